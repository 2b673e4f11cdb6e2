"""What is compared in paper 000: data, algorithm, its form, epsilon and network; and how each of them is made."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gossamer import algorithms, data, streams, topology
from gossamer.core import Algorithm, Rate
from gossamer.privacy import Budget
from gossamer.problems import Softmax
from gossamer.reproduction.paper_000.plan import Plan
from gossamer.reproduction.sources import needed
from gossamer.sets import TraceNormBall
from gossamer.streams import POKER_CLASSES, Stream
from gossamer.topology import FixedTopology, accelerated_block

RADIUS = 10.0
STREAM_SEED = 1
GRAPH_SEED = 1
DELTA = 1e-6
HANDS = "random poker hands"
GRAPHS = ("cycle", "Watts-Strogatz", "complete")
"""From the smallest spectral gap to the largest."""


class Form(NamedTuple):
    """A way to run an algorithm: its options, its delta, and whether the block is the paper's, eq. (7)."""

    options: dict[str, Any]
    delta: float = 0.0
    printed_block: bool = False


AFTER: dict[str, Any] = {"noise_at": "after-gossip"}
TREE: dict[str, Any] = {"aggregation": "tree"}
FORMS = {
    "published": Form(AFTER | {"calibration": "published"}),
    "tight": Form({}),
    "tight after gossip, block of eq. (7)": Form(AFTER | TREE, printed_block=True),
    "tight before gossip, block of eq. (7)": Form(TREE, printed_block=True),
    "Gaussian before gossip, block of eq. (7)": Form(TREE | {"noise": "gaussian"}, DELTA, printed_block=True),
    "tight after gossip, block by the rule": Form(AFTER),
    "Gaussian before gossip, block by the rule": Form({"noise": "gaussian"}, DELTA),
}
LADDER = (
    "published",
    "tight after gossip, block of eq. (7)",
    "tight before gossip, block of eq. (7)",
    "Gaussian before gossip, block of eq. (7)",
    "tight after gossip, block by the rule",
    "tight",  # before gossip, block by the rule
    "Gaussian before gossip, block by the rule",
)


@dataclass(frozen=True)
class Case:
    """Everything but the hyper-parameters.

    >>> print(Case("letter", "pd_ftgl", "published", 10.0, 9))
    letter, pd_ftgl, published, epsilon 10, complete(9)
    """

    data: str
    algorithm: str
    form: str
    epsilon: float
    learners: int
    graph: str = "complete"

    def __str__(self) -> str:
        return f"{self.data}, {self.algorithm}, {self.form}, epsilon {self.epsilon:g}, {self.graph}({self.learners})"

    def network(self) -> FixedTopology:
        """The graph. The paper does not state its weights, and needs them positive semidefinite: lazy ones are.

        >>> Case("letter", "pd_ftgl", "tight", 1.0, 9, "cycle").network()
        ring(9, lazy)
        """
        if self.graph == "cycle":
            return topology.ring(self.learners, weights="lazy")
        if self.graph == "Watts-Strogatz":
            return topology.watts_strogatz(self.learners, 6, 0.5, seed=GRAPH_SEED, weights="lazy")
        return topology.complete(self.learners)

    def build(
        self, problem: Softmax, horizon: int, clip: float, multiplier: float, block: int | None = None
    ) -> Algorithm:
        """The algorithm: the multiplier is of h, and of PD-OGD's step.

        >>> case = Case("letter", "pd_ftgl", "published", 10.0, 9)
        >>> case.build(problem_of(16, 26), 150_000, 1.0, 1.0).schedule
        Every(block=67)
        """
        network, form = self.network(), FORMS[self.form]
        budget = Budget(self.epsilon, form.delta)
        if self.algorithm == "pd_ogd":
            return _pd_ogd(problem, network, budget, horizon, clip, multiplier, published=self.form == "published")
        make = {"pd_ftgl": algorithms.pd_ftgl, "pd_ocg": algorithms.pd_ocg}[self.algorithm]
        if form.printed_block:
            block = accelerated_block(network, horizon)
        return make(
            problem,
            network,
            horizon=horizon,
            budget=budget,
            clip=clip,
            regularization=multiplier,
            steps_per_exchange=block,
            **form.options,
        )


def _pd_ogd(
    problem: Softmax,
    network: FixedTopology,
    budget: Budget,
    horizon: int,
    clip: float,
    multiplier: float,
    *,
    published: bool,
) -> Algorithm:
    options: dict[str, Any] = {"budget": budget, "clip": clip, "horizon": horizon}
    options |= {"calibration": "published"} if published else {}
    default = algorithms.pd_ogd(problem, network, **options)
    step = default.public["step"]
    if multiplier == 1.0 or not isinstance(step, Rate):
        return default
    return algorithms.pd_ogd(problem, network, step=replace(step, scale=multiplier * step.scale), **options)


def problem_of(features: int, classes: int) -> Softmax:
    """Multiclass classification in the ball of the trace norm, section 4.1.

    >>> problem_of(16, 26).dim
    416
    """
    return Softmax(features, classes, domain=TraceNormBall(RADIUS, (classes, features)))


@dataclass(frozen=True, eq=False)
class Sources:
    """The data: from a directory, from random generators, or small stand-ins that need no files.

    Attributes:
        plan: how many rounds.
        directory: as in `gossamer.data`.
        stand_in: take scikit-learn's digits in place of letter, and no real poker data.

    >>> from gossamer.reproduction.paper_000.plan import QUICK
    >>> Sources(QUICK, None, stand_in=True).letter
    'digits'
    """

    plan: Plan
    directory: Path | None
    stand_in: bool = False

    @property
    def letter(self) -> str:
        """The name of the main data set."""
        return "digits" if self.stand_in else "letter"

    @property
    def poker(self) -> tuple[str, ...]:
        """The data sets of figure 2."""
        return (HANDS, "poker") if self.plan.poker and not self.stand_in else (HANDS,)

    def steps(self, name: str) -> int:
        """T."""
        if name == HANDS:
            return self.plan.hands
        return len(self._poker.y_train) + len(self._poker.y_test) if name == "poker" else self.plan.letter

    def problem(self, name: str) -> Softmax:
        """What is learnt."""
        if name == HANDS:
            return problem_of(10, len(POKER_CLASSES))
        records = self._poker if name == "poker" else self._letter
        return problem_of(records.x_train.shape[1], records.classes)

    def chance(self, name: str) -> float:
        """The loss of playing 0: ln of the number of classes."""
        return math.log(self.problem(name).classes)

    def stream(self, name: str, learners: int) -> Stream:
        """The learners' samples: the same records for every algorithm and every noise seed."""
        if name == HANDS:
            return streams.poker_hands(learners, seed=STREAM_SEED, scaled=True)
        if name == "poker":
            x = np.concatenate([self._poker.x_train, self._poker.x_test])
            y = np.concatenate([self._poker.y_train, self._poker.y_test])
            return streams.from_arrays(x, y, learners, seed=STREAM_SEED, copies=learners)
        x, y = self._letter.x_train, self._letter.y_train
        per_learner = max(self.plan.copies, -(-self.plan.letter // len(y)))
        return streams.from_arrays(x, y, learners, seed=STREAM_SEED, copies=per_learner * learners)

    @cached_property
    def _letter(self) -> data.Dataset:
        if self.stand_in:
            return data.digits()
        return needed("Paper 000 needs the letter data", data.letter, self.directory)

    @cached_property
    def _poker(self) -> data.Dataset:
        return needed("Paper 000 needs the poker data", data.poker, self.directory)
