"""Synthetic streams of the papers: endless, fresh at every step, the same for the same seed."""

from typing import Any

import numpy as np

from gossamer.checks import check_count, check_positive, check_seed
from gossamer.errors import ConfigurationError
from gossamer.streams.base import Array, generator
from gossamer.streams.drawing import Draws, Generated


def heterogeneous_logistic(learners: int, dim: int, alpha: float, beta: float, *, seed: int) -> Generated:
    """Binary classification whose learners differ: synthetic(alpha, beta) of Li et al. 2020 (paper 001, V-A).

    Learner k draws once u ~ N(0, alpha), W ~ N(u, 1)^d, b ~ N(u, 1), B ~ N(0, beta), v ~ N(B, 1)^d. Its
    samples are x ~ N(v, S) with S diagonal, S_jj = j^-1.2, and the label is 1 where sigmoid(W x + b) > 1/2,
    else 0. alpha makes the models differ, beta the features. The second argument of N is a variance
    throughout.

    `truth` is (learners, dim + 1): W, then b.

    >>> stream = heterogeneous_logistic(20, 100, 0.1, 0.1, seed=0)
    >>> block = stream.read(0, 4)
    >>> block.x.shape, block.y.shape, block.y.dtype
    ((4, 20, 100), (4, 20), dtype('int32'))
    """
    check_count("learners", learners)
    check_count("dim", dim)
    check_seed(seed)
    check_positive("alpha", alpha, "a variance", zero=True)
    check_positive("beta", beta, "a variance", zero=True)
    purpose = "heterogeneous logistic regression"
    rng = generator(seed, purpose)
    model_mean = np.sqrt(alpha) * rng.standard_normal((learners, 1))
    models = model_mean + rng.standard_normal((learners, dim + 1))
    feature_mean = np.sqrt(beta) * rng.standard_normal((learners, 1))
    centres = (feature_mean + rng.standard_normal((learners, dim))).astype(np.float32)
    spread = (np.arange(1, dim + 1) ** -0.6).astype(np.float32)
    truth = models.astype(np.float32)
    named = {"learners": learners, "features": (dim,), "seed": seed, "description": purpose, "truth": truth}
    return Generated(_heterogeneous, centres, spread, truth[:, :-1], truth[:, -1], **named)


def _heterogeneous(draws: Draws, centres: Array, spread: Array, weights: Array, offset: Array) -> tuple[Any, Any]:
    x = draws.normal(draws.dim) * spread[None, None] + centres[None]
    return x, (draws.dot(x, weights[None]) + offset[None] > 0).astype(np.int32)


def linear_regression(dim: int = 21, *, seed: int) -> Generated:
    """Linear regression of paper 002 (6.1), one sample per step that every learner sees.

    a ~ U[-0.5, 0.5]^d and b = a . truth + rho, with truth ~ N(0, 1)^d fixed by the seed and rho ~ N(0, 0.2),
    where 0.2 is the variance.

    >>> stream = linear_regression(seed=0)
    >>> stream.shared, stream.truth.shape, stream.read(0, 3).x.shape
    (True, (21,), (3, 1, 21))
    """
    check_count("dim", dim)
    check_seed(seed)
    purpose = "linear regression"
    truth = generator(seed, purpose).standard_normal(dim, dtype=np.float32)
    return Generated(_regression, truth, learners=None, features=(dim,), seed=seed, description=purpose, truth=truth)


def _regression(draws: Draws, truth: Array) -> tuple[Any, Any]:
    x = draws.uniform(draws.dim) - np.float32(0.5)
    rho = np.float32(np.sqrt(0.2)) * draws.normal(1)[..., 0]
    return x, (x * truth[None, None]).sum(axis=-1) + rho


def random_signs(learners: int, dim: int, *, seed: int) -> Generated:
    """Linear losses with coordinates +-1/sqrt(dim) at random, so of norm 1: the hard case for regret.

    The features are the loss vectors; the labels are zeros, and every learner has its own.

    >>> random_signs(1, 4, seed=0).read(0, 1).x
    array([[[-0.5,  0.5, -0.5,  0.5]]], dtype=float32)
    """
    check_count("dim", dim)
    return Generated(_signs, learners=learners, features=(dim,), seed=seed, description="random signs")


def _signs(draws: Draws) -> tuple[Any, Any]:
    size = np.float32(1 / np.sqrt(draws.dim))
    x = draws.np.where(draws.words(draws.dim) >> 31, size, -size)
    return x, draws.np.zeros(x.shape[:2], np.float32)


def smooth_cycle_logistic(learners: int, dim: int, *, seed: int, spread: float = 3.0) -> Generated:
    """Logistic data that vary smoothly along a cycle, so that neighbours on a ring have similar data.

    With c, a, b ~ N(0, 1)^d fixed by the seed, learner i of n has w_i = c + spread (cos(2 pi i/n) a + sin(2 pi i/n) b).
    Its features are uniform on the unit sphere, and its label is 1 with probability sigmoid(w_i . x), else 0.
    The larger the spread, the more a learner's own data mislead it, and the more it needs to hear the far side.

    `truth` is (learners, dim): the w_i.

    >>> stream = smooth_cycle_logistic(64, 10, seed=0)
    >>> bool(np.allclose(np.linalg.norm(stream.read(0, 5).x, axis=-1), 1.0))
    True
    """
    check_count("learners", learners)
    check_count("dim", dim)
    check_seed(seed)
    if not np.isfinite(spread):
        raise ConfigurationError("spread", spread, "a finite number", "try 3.0")
    purpose = "smooth logistic cycle"
    c, a, b = generator(seed, purpose).standard_normal((3, dim))
    angle = 2 * np.pi * np.arange(learners)[:, None] / learners
    truth = (c + spread * (np.cos(angle) * a + np.sin(angle) * b)).astype(np.float32)
    return Generated(_on_sphere, truth, learners=learners, features=(dim,), seed=seed, description=purpose, truth=truth)


def _on_sphere(draws: Draws, truth: Array) -> tuple[Any, Any]:
    x = draws.normal(draws.dim)
    x = x / draws.np.sqrt(draws.dot(x, x))[..., None]
    likely = 1 / (1 + draws.np.exp(-draws.dot(x, truth[None])))
    return x, (draws.uniform(1)[..., 0] < likely).astype(np.int32)


def clusters(learners: int, dim: int, classes: int, *, seed: int, apart: float = 3.0) -> Generated:
    """Classes as clusters, of which learner i sees class i mod `classes` only: alone nobody can tell them apart.

    A sample is the centre of its class plus N(0, I). Centres lie in random directions, at right angles to each other,
    and have the norm `apart`. `truth` is (classes, dim): the centres.

    >>> stream = clusters(4, 6, 2, seed=0)
    >>> stream.read(0, 3).y[0].tolist(), stream.truth.shape
    ([0, 1, 0, 1], (2, 6))
    """
    check_count("learners", learners)
    check_count("dim", dim)
    check_count("classes", classes, least=2, most=min(learners, dim))
    check_seed(seed)
    purpose = "clusters, one class for each learner"
    directions, _ = np.linalg.qr(generator(seed, purpose).standard_normal((dim, classes)))
    truth = (check_positive("apart", apart) * directions.T).astype(np.float32)
    return Generated(
        _around_centres, truth, learners=learners, features=(dim,), seed=seed, description=purpose, truth=truth
    )


def _around_centres(draws: Draws, centres: Array) -> tuple[Any, Any]:
    own = (draws.learners % np.uint32(len(centres))).astype(np.int32)
    x = draws.normal(draws.dim) + draws.np.asarray(centres)[own]
    return x, draws.np.broadcast_to(own, x.shape[:2])
