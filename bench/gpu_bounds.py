"""One sample's effect on clipped sums of extreme finite numbers: `python -m bench.gpu_bounds`, on any device of JAX.

Devices differ in what they do with subnormal numbers and in the order of sums. Whatever they do, a clipped gradient is
no longer than its bound with `norm_slack`, and a sample that is replaced moves a sum by `Clip.sensitivity` at most. The
table has the largest such ratios; the exit status is 1 if one of them is above 1.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bench.tools import print_table
from gossamer.privacy import Clip
from gossamer.privacy.clip import norm_slack
from gossamer.privacy.units import Unit
from gossamer.problems import Block, Hinge, LeastSquares, Linear, Logistic, Model, Problem, Softmax, small_cnn

BOUNDS = (1e-12, 1.0, 100.0, 1e12)
SIZES = (0.0, 1e-45, 1e-41, 1.2e-38, 1e-30, 1.1e-19, 1e-12, 1e-5, 1.0, 1e5, 1e12, 1.8e19, 1e26, 1e31, 1e37, 3.4e38)
FEATURES, CLASSES, LONG = 6, 3, 100_000

Floats = NDArray[np.float32]


class Ratios(NamedTuple):
    """The largest norm of a clipped gradient, and the largest move of a sum, as shares of what is promised."""

    alone: float
    moved: float


def normed(params: Any, x: jax.Array) -> jax.Array:
    return _affine(params, x / jnp.sqrt(jnp.sum(x * x)))


def rooted(params: Any, x: jax.Array) -> jax.Array:
    return _affine(params, jnp.sqrt(x))


def divided(params: Any, x: jax.Array) -> jax.Array:
    return _affine(params, 1 / x)


def layer_normed(params: Any, x: jax.Array) -> jax.Array:
    return _affine(params, (x - jnp.mean(x)) / jnp.std(x))


def logged(params: Any, x: jax.Array) -> jax.Array:
    return _affine(params, jnp.log(x))


def root_of_params(params: Any, x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(jnp.square(params["w"] @ x)) + jnp.sum(jnp.square(params["b"])))


def _affine(params: Any, x: jax.Array) -> jax.Array:
    return jnp.asarray(params["w"] @ x + params["b"])


def model(apply: Any, *, outputs: int = CLASSES, **options: Any) -> Model:
    params = {"w": np.random.default_rng(0).normal(size=(outputs, FEATURES)), "b": np.zeros(outputs)}
    return Model(apply, params, features=(FEATURES,), **options)


def small_problems() -> dict[str, Problem]:
    """All built-in problems, and models of users with everything that is not defined everywhere."""
    made: dict[str, Problem] = {
        "logistic": Logistic(FEATURES),
        "logistic, features up to 1": Logistic(FEATURES, feature_bound=1.0),
        "hinge": Hinge(FEATURES),
        "linear": Linear(FEATURES),
        "least squares": LeastSquares(FEATURES),
        "least squares, features up to 1e-12": LeastSquares(FEATURES, feature_bound=1e-12),
        "softmax": Softmax(FEATURES, CLASSES),
        "softmax, features up to 1e12": Softmax(FEATURES, CLASSES, feature_bound=1e12),
        "root of params": model(root_of_params, loss="squared"),
        "small_cnn": small_cnn((10, 10, 1), CLASSES, channels=4, hidden=4, seed=1),
        "normed, features up to 1": model(normed, classes=CLASSES, feature_bound=1.0),
    }
    for apply in (normed, rooted, divided, layer_normed, logged):
        made[apply.__name__] = model(apply, classes=CLASSES)
    return made


def long_problems() -> dict[str, Problem]:
    """Gradients of so many numbers that their norms are summed in groups."""
    return {"linear, long": Linear(LONG), "softmax, long": Softmax(LONG // 50, 50)}


def clips(dim: int, bound: float) -> tuple[Clip, ...]:
    """Every kind with this bound."""
    blocks = (dim // 3, dim - dim // 3)
    return (
        Clip(l2=bound),
        Clip(l1=bound),
        Clip(l2=(bound, bound), blocks=blocks),
        Clip(l1=(bound, bound), blocks=blocks),
    )


def extreme(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Rows (the first axis): of one size, of mixed sizes, with few entries, and of what long sums lose beside a 1."""
    sizes = np.array(SIZES)
    rows, size = shape[0], int(np.prod(shape[1:], dtype=int))
    mixed = rng.choice(sizes, (rows, size)) * rng.choice([-1, 1], (rows, size))
    even = rng.choice(sizes, (rows, 1)) * np.clip(rng.normal(size=(rows, size)), -1, 1)
    few = mixed * (rng.random((rows, size)) < 0.3)
    lost = np.where(np.arange(size) == 0, 1.0, rng.choice([2.0**-12.5, 2.0**-25], (rows, 1)))
    lost *= 10.0 ** rng.integers(-9, 9, (rows, 1))
    kinds = (np.arange(rows) + rng.integers(4))[:, None] % 4
    return np.choose(kinds, [mixed, even, few, lost]).astype(np.float32).reshape(shape)


def cases(problem: Problem, number: int, rows: int, seed: int) -> tuple[Floats, Block, Block]:
    """Decisions, blocks, and neighbours with another first row: its opposite, or anything."""
    rng = np.random.default_rng(seed)
    decisions = rng.normal(size=(number, problem.dim)) * rng.choice([0.0, 1e-3, 1.0, 1e10], (number, 1))
    x = extreme(rng, (number * rows, *problem.feature_shape)).reshape(number, rows, *problem.feature_shape)
    if problem.classifies:
        y = rng.integers(0, getattr(problem, "classes", 2) or 2, (number, rows)).astype(np.int32)
    else:
        y = extreme(rng, (number, rows))
    other_x, other_y = x.copy(), y.copy()
    other_x[::2, 0] = -x[::2, 0]
    other_x[1::2, 0] = extreme(rng, other_x[1::2, 0].shape)
    if not problem.classifies:
        other_y[:, 0] = -y[:, 0]
    return decisions.astype(np.float32), Block(x, y), Block(other_x, other_y)


@partial(jax.jit, static_argnums=(0, 1))
def sums(problem: Problem, bounds: tuple[Clip | None, ...], decisions: Any, blocks: Block) -> tuple[jax.Array, ...]:
    """The clipped sum of every block at its decision, for every clip."""

    def one(decision: jax.Array, block: Block) -> tuple[jax.Array, ...]:
        return tuple(problem.clipped_data_gradient_sum(decision, block, clip) for clip in bounds)

    return jax.vmap(one)(decisions, blocks)


def ratios(problem: Problem, bounds: tuple[Clip, ...], decisions: Floats, blocks: Block, others: Block) -> Ratios:
    """The largest over all clips and cases; infinite where a sum is not finite. Only blocks of one row are alone."""
    rows = blocks.x.shape[1]
    ours, theirs = (
        [np.asarray(each, np.float64) for each in sums(problem, bounds, decisions, some)] for some in (blocks, others)
    )
    worst = Ratios(0.0, 0.0)
    for clip, here, there in zip(bounds, ours, theirs, strict=True):
        lengths = [
            np.linalg.norm(here[:, where], clip.order, axis=1) / (bound * (1 + norm_slack(problem.dim, clip.order)))
            for where, bound in clip.parts(problem.dim)
        ]
        allowed = clip.sensitivity(Unit.SAMPLE, problem.dim, rows=rows)
        moves = [np.linalg.norm(here - there, order, axis=1) / allowed.of(order) for order in (1, 2)]
        alone = _largest(lengths) if rows == 1 else 0.0
        worst = Ratios(max(worst.alone, alone), max(worst.moved, _largest(moves)))
    return worst


def _largest(found: Sequence[NDArray[np.float64]]) -> float:
    return float(np.nan_to_num(np.max(found), nan=np.inf, posinf=np.inf))


def measure(problems: Mapping[str, Problem], number: int) -> list[tuple[str, float, Ratios]]:
    found = []
    for name, problem in problems.items():
        for bound in BOUNDS:
            made = [ratios(problem, clips(problem.dim, bound), *cases(problem, number, rows, rows)) for rows in (1, 30)]
            found.append((name, bound, Ratios(*map(max, zip(*made, strict=True)))))
    return found


def main() -> int:
    found = [*measure(small_problems(), 2_000), *measure(long_problems(), 8)]
    title = f"Largest shares of what is promised, on {jax.devices()[0].device_kind}"
    rows = [[name, f"{bound:g}", f"{got.alone:.7f}", f"{got.moved:.7f}"] for name, bound, got in found]
    print_table(title, ("problem", "bound", "one clipped gradient", "a sample replaced"), rows)
    return int(max(max(got) for _, _, got in found) > 1)


if __name__ == "__main__":
    sys.exit(main())
