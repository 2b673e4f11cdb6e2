"""Hostile settings: what would be a silent cast, a silent broadcast or a warning elsewhere is an error here."""

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
