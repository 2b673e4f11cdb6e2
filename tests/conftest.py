"""Hostile settings: what would be a silent cast, a silent broadcast or a warning elsewhere is an error here.

Most of the time goes into compiling. So compiled programs are kept in .pytest_cache: workers, the programs that tests
start, and later runs do not compile the same program again. XLA emits LLVM directly, not through MLIR, and in one part,
not 32 that are compiled side by side, as all cores are busy: that takes less than half the time, and runs as fast.
`XLA_FLAGS= make test` tests with XLA as it is.

Modules with the mark `unoptimized` have LLVM optimise nothing, which halves it again: their subject is what is
computed, within tolerances, or from end to end, and not how it is rounded. So are doctests.
"""

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Read when JAX starts, here and in other processes.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1")
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parent.parent / ".pytest_cache" / "jax")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_most_optimizations", True)  # for doctests: other modules say so
_machine = tempfile.TemporaryDirectory(prefix="gossamer-tests-")
os.environ["XDG_STATE_HOME"] = _machine.name
gc.set_threshold(20_000, 20, 20)  # tracing makes many objects that live: looking for garbage takes a tenth of the time


@pytest.fixture(autouse=True, scope="module")
def machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test writes a witness or a registry where the user has theirs, and no module finds those of another."""
    os.environ["XDG_STATE_HOME"] = f"{_machine.name}/{request.node.name.replace('/', '.')}"
    yield
    os.environ["XDG_STATE_HOME"] = _machine.name


@pytest.fixture(autouse=True, scope="module")
def programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every module compiles its own, as it says: workers that keep all programs grow to 5 GB, and slow down."""
    jax.clear_caches()
    unoptimized = request.node.get_closest_marker("unoptimized") is not None
    jax.config.update("jax_disable_most_optimizations", unoptimized)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    jax.clear_caches()
