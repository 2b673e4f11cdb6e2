"""Hostile settings: what would be a silent cast, a silent broadcast or a warning elsewhere is an error here.

Compiled programs are kept in .pytest_cache: workers, and later runs, do not compile the same program again.
"""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parent.parent / ".pytest_cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs() -> Iterator[None]:
    """After every module: workers that keep all programs grow to 5 GB, and slow down."""
    yield
    jax.clear_caches()
