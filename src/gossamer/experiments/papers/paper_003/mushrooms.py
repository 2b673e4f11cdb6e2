"""Section VII-A of paper 003, logistic regression on mushrooms: records, sizes, Algorithm 1, its theory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from gossamer import algorithms, data, problems
from gossamer.algorithms.endless.fading import Fading
from gossamer.algorithms.endless.ldp_endless import Publish
from gossamer.algorithms.endless.theorems import Theorems
from gossamer.core import Algorithm, Rate
from gossamer.errors import PrivacyError
from gossamer.experiments import Asked, Cell, measures
from gossamer.experiments.papers.paper_003.circle import LEARNERS, NEEDS, circle, dealt
from gossamer.experiments.papers.sources import needed
from gossamer.problems import Problem
from gossamer.streams import Stream

NORM = math.sqrt(21)  # of a row of mushrooms: 21 attributes, each with one value
STEP, COUPLING = Rate(1.0, 0.77), Rate(1.0, 0.65)
GROWTHS = tuple(0.1 + 0.01 * i for i in range(1, LEARNERS + 1))
LOUD, BASE = 1.0, 0.1  # Laplace scales at t = 0 of figure 1, and of Table I at x1
EARLY = 10  # the round that later ones are compared with
MODELS: Mapping[Publish, str] = {"raw": "theta (not releasable)", "last": "y", "averaged": "averaged release"}
"""Of Algorithm 1: what is shown, and whether anybody may see it."""


class Powers(NamedTuple):
    """u of the coupling, v of the steps, varsigma of the noise."""

    u: float
    v: float
    varsigma: float

    def __str__(self) -> str:
        return f"u {self.u:g}, v {self.v:g}, varsigma {self.varsigma:g}"


TABLE_1: Mapping[float, tuple[float, int]] = {
    1.0: (23.34, 8),
    1.5: (16.59, 11),
    2.0: (12.65, 12),
    2.5: (11.97, 34),
    3.0: (11.54, 127),
    3.5: (10.50, 269),
    4.0: (9.64, 575),
    4.5: (8.79, 934),
    5.0: (7.98, 1119),
    5.5: (7.47, 2292),
    6.0: (7.03, 4999),
}
"""The paper's: by noise level, budget and number of iterations."""


@dataclass(frozen=True)
class Sizes:
    """How much is run.

    Attributes:
        rounds: of figure 1 and the remarks.
        seeds: of the noise.
        l2: the paper's r_i, which it does not state: all of these.
        steps: of the rivals.
        levels: of the noise in Table I.
        table: rounds of Table I.
        table_seeds: of the noise in Table I.
        streams: orders of the data for Lemma 1.
    """

    rounds: int
    seeds: int
    levels: tuple[float, ...]
    table: int
    table_seeds: int
    streams: int
    steps: tuple[float, ...] = tuple(4.0**power for power in range(-4, 5))
    l2: tuple[float, ...] = (0.01, 0.1, 1.0)
    table_l2: tuple[float, ...] = (0.1, 1.0)

    @property
    def at(self) -> list[int]:
        """The rounds that curves are measured at."""
        marks = (1, 2, 5, EARLY, 20, 50, 100, 200, 500, 1000, 2000, 5000)
        return [mark for mark in marks if mark < self.rounds] + [self.rounds]

    @property
    def looked_at(self) -> list[int]:
        """The rounds of Table I: each needs an optimum of its own."""
        late = np.geomspace(30, self.table, 90).astype(int).tolist()
        return sorted({*range(1, 31), *(t for t in late if t <= self.table)})


FULL = Sizes(2000, 5, tuple(TABLE_1), 5000, 3, 5)
QUICK = Sizes(500, 2, (1.0, 3.0, 6.0), 300, 2, 2, steps=(1 / 16, 1.0, 16.0), l2=(0.1, 1.0))


@cache
def records(asked: Asked) -> data.Dataset:
    """Rows of norm sqrt(21): mushrooms, or scikit-learn's tumours scaled to it."""
    if not asked.stand_in:
        return needed(NEEDS, data.mushrooms, asked.data, "data of scikit-learn")
    found = data.breast_cancer()
    return replace(found, x_train=to_norm(found.x_train, NORM), x_test=to_norm(found.x_test, NORM))


@cache
def stream(asked: Asked, rounds: int, seed: int) -> Stream:
    """All records: learners 1 to 3 have label 0, 4 and 5 label 1; each as often as so many rounds need."""
    found = records(asked)
    x, y = np.concatenate([found.x_train, found.x_test]), np.concatenate([found.y_train, found.y_test])
    return dealt(x, y, rounds, "by-label", seed)


@cache
def problem(asked: Asked, l2: float) -> Problem:
    """l2-regularised logistic regression on rows as they are. The paper's ball, of radius 1e5, is never reached."""
    return problems.Logistic(int(records(asked).x_train.shape[1]), feature_bound=NORM, l2=l2)


def endless(
    loss: Problem,
    rounds: int,
    level: float,
    publish: Publish = "raw",
    *,
    step: Rate = STEP,
    coupling: Rate = COUPLING,
    growths: Sequence[float] = GROWTHS,
) -> Algorithm:
    """Algorithm 1 at Laplace noise level * (t+1)^varsigma_i: for curves; what plays theta is not for release.

    As in the paper, y(0) has noise too. The clip is the largest gradient there is, so that nothing is clipped.

    >>> endless(problems.Logistic(3, feature_bound=NORM, l2=0.1), 50, 1.0).guarantee.basis
    'none'
    """
    return algorithms.ldp_endless(
        loss,
        circle(),
        sigma=math.sqrt(2) * level,
        growth=list(growths),
        clip=NORM,
        horizon=rounds,
        step=step,
        coupling=coupling,
        start="noised",
        publish=publish,
    )


def fadings(loss: Problem, step: Rate = STEP, coupling: Rate = COUPLING) -> Mapping[str, Fading]:
    """The recursions for what one sample costs on rows as they are, by the name of the bound.

    >>> list(fadings(problems.Logistic(3, feature_bound=NORM, l2=0.1)))
    ['Theorem 5(i)', 'eq. (22)', 'tight']
    """
    assert loss.smoothness is not None
    tight = Fading(step, coupling, 0.6, 2 * NORM, loss.smoothness, strong_convexity=loss.l2)
    loose = replace(tight, convex=False, strong_convexity=0.0)
    return {"Theorem 5(i)": tight.published(), "eq. (22)": loose, "tight": tight}


def spent(fading: Fading, dim: int, growth: float, rounds: int | None, scale: float = LOUD) -> float:
    """The budget of so many rounds; None: of all, infinite where that has no proof.

    >>> round(spent(Fading(STEP, COUPLING, 0.6, 2.0, 0.25), 112, 0.11, None), 1)
    270.0
    """
    try:
        return math.sqrt(dim) * fading.total(1, growth, rounds) / scale
    except PrivacyError:
        return math.inf


def theory(loss: Problem, powers: Powers | None = None, **scales: float) -> Theorems:
    """What the theorems say about figure 1, or about other powers.

    >>> loss = problems.Logistic(112, feature_bound=NORM, l2=0.1)
    >>> round(theory(loss).rate(3), 2), theory(loss, Powers(0.72, 0.85, 0.1), step=1e-6, coupling=0.3).violations()[1]
    (0.08, [])
    """
    u, v, varsigma = powers or (COUPLING.power, STEP.power, 0.0)
    assert loss.smoothness is not None
    return Theorems.of(
        circle(),
        growths=[varsigma] if powers else GROWTHS,
        step=Rate(scales.get("step", 1.0), v),
        coupling=Rate(scales.get("coupling", 1.0), u),
        smoothness=loss.smoothness,
        strong_convexity=loss.l2,
        gradient=NORM,
    )


def cell_of(asked: Asked, sizes: Sizes, l2: float, title: str, make: Any, seeds: Sequence[int] | None = None) -> Cell:
    """A run of figure 1 or of the remarks: errors and regrets along it."""
    return Cell(
        f"figure 1, {title}, l2 {l2:g}",
        make,
        partial(stream, asked, sizes.rounds),
        sizes.rounds,
        [measures.tracking_error(sizes.at), measures.instantaneous_regret(sizes.at)],
        seeds=range(sizes.seeds) if seeds is None else seeds,
        measure="local",
    )


def error(sizes: Sizes) -> str:
    """The word of the metric."""
    return measures.tracking_error(sizes.at).word


def regret(sizes: Sizes) -> str:
    """The word of the metric."""
    return measures.instantaneous_regret(sizes.at).word


def short(value: float) -> str:
    """A budget for a table."""
    return "no bound" if math.isinf(value) else f"{value:.4g}"


def to_norm(x: Any, norm: float) -> Any:
    """Rows scaled to a norm."""
    return x * (norm / np.linalg.norm(x, axis=1, keepdims=True)).astype(x.dtype)
