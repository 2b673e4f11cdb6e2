"""Hostile settings: what would be a silent cast, a silent broadcast or a warning elsewhere is an error here.

Most of the time goes into compiling. Compiled programs are kept in .pytest_cache: workers, and later runs, do not
compile the same program again. And XLA emits LLVM directly, not through MLIR, which takes half the time to compile and
runs as fast; programs that tests start in other processes inherit it. `XLA_FLAGS= make test` tests with XLA as it is.
"""

import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")  # read when JAX starts

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
