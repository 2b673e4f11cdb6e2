"""What correlated noise costs: `python -m bench.mechanisms` prints one step of every mechanism at d = 100,000.

A step is a draw on the host (`FastNoise`) and a compiled release. Independent Gaussian noise is the unit.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from bench.tools import print_table, seconds
from gossamer import FastNoise
from gossamer.mechanisms import Additive, Factorized, Independent, TreeSum
from gossamer.privacy import Scale

DIM, STEPS, REPEATS = 100_000, 32, 9
HORIZON = 10**6
HEADINGS = ("mechanism", "ms a step", "x independent", "state", "limit 8 (k + 1) d")


def contestants() -> dict[str, Additive]:
    shape = (DIM,)
    return {
        "independent": Independent(shape, law="gaussian"),
        **{f"blt, {k} buffers": Factorized.blt(shape, HORIZON, buffers=k) for k in (4, 5, 6)},
        "tree": TreeSum(shape, horizon=HORIZON, law="gaussian"),
    }


def measure(repeats: int = REPEATS) -> dict[str, list[float]]:
    """Milliseconds a step by mechanism, timed in turns, so that a slow minute of the machine hits all of them."""
    steps = {name: stepper(mechanism) for name, mechanism in contestants().items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            times[name].append(1000 * seconds(step) / STEPS)
    return times


def noise_rows() -> list[list[str]]:
    """One row per mechanism."""
    times = measure()
    unit = statistics.median(times["independent"])
    return [
        [name, span(times[name]), f"{statistics.median(times[name]) / unit:.2f}", *memory(mechanism)]
        for name, mechanism in contestants().items()
    ]


def stepper(mechanism: Additive) -> Callable[[], object]:
    """Runs some steps: draws of one chunk, then a compiled scan over them."""
    source, (name,) = FastNoise(0), mechanism.laws()
    spec = mechanism.noise("speak")[name]
    values = jnp.zeros((STEPS, *mechanism.shape), jnp.float32)

    @partial(jax.jit, donate_argnums=0)
    def releases(state: object, draws: jax.Array) -> tuple[object, jax.Array]:
        def step(carried: object, given: tuple[jax.Array, jax.Array]) -> tuple[object, jax.Array]:
            released, carried = mechanism.release(carried, given[0], {name: given[1]}, {})
            return carried, released

        return jax.lax.scan(step, state, (values, draws))

    def run() -> object:
        draws = source.draw(name, spec, [Scale(1.0)], 0, STEPS)[0]
        return jax.block_until_ready(releases(mechanism.init(), jnp.asarray(draws)))

    run()
    return run


def memory(mechanism: Additive) -> list[str]:
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(mechanism.init()))
    if not isinstance(mechanism, Factorized):
        return [f"{size / 1e6:.2f} MB", ""]
    buffers = len(jax.tree.leaves(mechanism.init()[2])[0])
    return [f"{size / 1e6:.2f} MB", f"{8 * (buffers + 1) * DIM / 1e6:.2f} MB"]


def span(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} ({min(times):.2f} - {max(times):.2f})"


def main() -> None:
    title = f"Noise and release, d = {DIM:,}: medians of interleaved repeats, with their range"
    print_table(title, HEADINGS, noise_rows())


if __name__ == "__main__":
    main()
