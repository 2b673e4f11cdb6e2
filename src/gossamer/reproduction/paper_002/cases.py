"""What is compared in paper 002: networks, tasks, and algorithms with their noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gossamer import algorithms, data, problems, topology
from gossamer.core import Algorithm, Rate
from gossamer.mechanisms import Aggregation
from gossamer.privacy import Budget
from gossamer.privacy.guarantee import rounded_up
from gossamer.problems import Block, Problem
from gossamer.reproduction.sources import needed
from gossamer.sets import Box
from gossamer.streams import Stream
from gossamer.streams.arrays import ArrayStream
from gossamer.topology import FixedTopology, Topology

NODES = 7
EDGES = (((0, 1), (4, 5)), ((1, 2), (5, 6)), ((2, 3), (6, 0)), ((3, 4), (0, 3)))
"""Who speaks to whom in round t, t + 1, t + 2 and t + 3: a cycle of all nodes and the chord 0 -> 3, in four parts.

No round is strongly connected, nor are three in a row; any four are: figure 2 of the paper, which is only drawn, is
such a 4-strongly connected digraph."""

DOMAIN = Box(-5.0, 5.0)
DIM = 21
ERRORS = math.sqrt(0.1)  # the standard deviation of xi
DELTA = 1e-5
LEVELS = (math.inf, 1.0, 0.5, 0.2)
SCALES = {"sigma = 1/eps": 1.0, "sigma = 14/eps": 14.0}
"""Noise of the paper's levels, which "just characterize a corresponding proportional relationship": the sigma of its
figure 7, and 2 n L / epsilon of its Theorem 2 with L = 1."""
REGRESSION_CLIP = 50.0  # far above what gradients are: the paper clips nothing
SPLIT_SEED = 0

Name = Literal["DPSDA-C", "DPSDA-PS", "DPDOLA", "DPPS", "DPSR"]
OWN = {"exact": "own exact", "gossip": "own by gossip"}


def directed() -> Topology:
    """The digraphs of `EDGES` in turn, with push-sum weights 1 / outdegree.

    >>> directed().is_strongly_connected(window=4), directed().is_strongly_connected(window=3)
    (True, False)
    """
    return topology.alternating([_graph(nx.DiGraph(), edges) for edges in EDGES], weights="push-sum")


def undirected() -> Topology:
    """The same edges without direction, with Metropolis weights.

    The paper's 1 / degree is not symmetric, which its Lemma 2(a) needs.

    >>> undirected().is_doubly_stochastic()
    True
    """
    return topology.alternating([_graph(nx.Graph(), edges) for edges in EDGES], weights="metropolis")


def fixed() -> FixedTopology:
    """All of `EDGES` at every round, for DPSR, with row-stochastic weights.

    >>> fixed().is_strongly_connected()
    True
    """
    union = _graph(nx.DiGraph(), tuple(edge for edges in EDGES for edge in edges))
    return topology.from_networkx(union, weights="uniform")


def _graph(graph: nx.Graph, edges: tuple[tuple[int, int], ...]) -> nx.Graph:
    graph.add_nodes_from(range(NODES))
    graph.add_edges_from(edges)
    return graph


@dataclass(frozen=True)
class Case:
    """An algorithm with its noise.

    Attributes:
        name: of the algorithm.
        sigma: the scale of Laplace noise on every coordinate, as published; 0 for none.
        budget: of tight Gaussian noise instead.
        aggregation: of tight noise.
        own: of DPSDA: where the own coordinates come from.
        clip: of tight noise: of every sample's gradient, on the coordinates of a node.
        step: alpha(t) = step / sqrt(t).
        errors: whether gradients come with xi.

    >>> print(Case("DPSDA-C", sigma=2.0), "|", Case("DPSDA-PS"))
    DPSDA-C, sigma 2 | DPSDA-PS, non-private
    >>> print(Case("DPSDA-C", budget=Budget(1.0, DELTA), own="exact", clip=1.0, step=0.1))
    DPSDA-C, (1, 1e-05), blt, own exact, clip 1, step 0.1
    """

    name: Name
    sigma: float = 0.0
    budget: Budget | None = None
    aggregation: Aggregation = "blt"
    own: Literal["exact", "gossip"] = "gossip"
    clip: float | None = None
    step: float = 1.0
    errors: bool = True

    def __str__(self) -> str:
        words: list[str] = [self.name]
        if self.budget is not None:
            law = self.aggregation if self.budget.delta else "Laplace"
            words += [f"({self.budget.epsilon:g}, {self.budget.delta:g})", law, OWN[self.own], f"clip {self.clip:g}"]
        else:
            words.append(f"sigma {self.sigma:g}" if self.sigma else "non-private")
            words += [OWN["exact"]] if self.own == "exact" else []
        return ", ".join(words + ([f"step {self.step:g}"] if self.step != 1 else []))

    def tuned(self, clip: float, step: float) -> Case:
        """The same with another clip and step."""
        return replace(self, clip=clip, step=step)

    def build(self, problem: Problem, horizon: int, batch: int = 1, bound: float = 1.0) -> Algorithm:
        """The algorithm.

        Args:
            problem: loss and decision set.
            horizon: rounds.
            batch: samples of a round that all nodes see.
            bound: as published: what gradients are clipped to; it should never do anything.

        >>> Case("DPSDA-PS", sigma=2.0).build(problems.Logistic(14), 10).scales["dual"][0].value
        2.0
        """
        if self.name.startswith("DPSDA"):
            return self._dpsda(problem, horizon, batch, bound)
        make, network = BASELINES[self.name]
        printed = 2 * bound * math.sqrt(problem.dim) * horizon
        return make(
            problem,
            network(),
            budget=Budget(printed / self.sigma),
            clip=bound,
            horizon=horizon,
            step=Rate(self.step),
            calibration="published",
        )

    def _dpsda(self, problem: Problem, horizon: int, batch: int, bound: float) -> Algorithm:
        make, network = (
            (algorithms.dpsda_c, undirected()) if self.name == "DPSDA-C" else (algorithms.dpsda_ps, directed())
        )
        common = {"horizon": horizon, "batch": batch, "step": Rate(self.step)}
        common |= {"gradient_noise": ERRORS if self.errors else 0.0}
        if self.budget is not None:
            law = {"noise": "gaussian", "aggregation": self.aggregation} if self.budget.delta else {}
            return make(problem, network, budget=self.budget, clip=self.clip, own=self.own, **law, **common)  # type: ignore[arg-type]
        if not self.sigma:
            return make(problem, network, noise="none", own=self.own, **common)  # type: ignore[arg-type]
        printed = 2 * NODES * bound * math.sqrt(-(-problem.dim // NODES)) * horizon
        budget = Budget(printed / self.sigma)
        return make(problem, network, budget=budget, clip=bound, unit="batch", calibration="published", **common)  # type: ignore[arg-type]


BASELINES: dict[str, tuple[Callable[..., Algorithm], Callable[[], Topology]]] = {
    "DPDOLA": (algorithms.pd_ogd, undirected),
    "DPPS": (algorithms.dp_push_sum_dual_averaging, directed),
    "DPSR": (algorithms.dp_subgradient_rescaling, fixed),
}


def guarantee_of(algorithm: Algorithm) -> str:
    """What a row is really worth, in a few words.

    >>> guarantee_of(Case("DPSDA-C").build(problems.Logistic(14), 10))
    'none'
    >>> guarantee_of(Case("DPSDA-C", budget=Budget(1.0), clip=1.0).build(problems.Logistic(14), 10))
    'epsilon 1 about one sample of a common batch, clip 1; proven'
    """
    promise = algorithm.guarantee
    if promise.basis == "none":
        return "none"
    delta = f", delta {promise.delta:.3g}" if promise.delta else ""
    clip = getattr(algorithm.learner, "clip", None)
    bound = "" if clip is None else f", clip {clip.norm:.4g}"
    seen = "; published: none once one decision is seen" if promise.basis == "published" else f"; {promise.basis}"
    return f"epsilon {rounded_up(promise.epsilon)}{delta} about {promise.unit}{bound}{seen}"


def levels(name: Name, unit: float) -> dict[float, Case]:
    """The paper's four levels: sigma = unit / epsilon.

    >>> [case.sigma for case in levels("DPSDA-C", 14.0).values()]
    [0.0, 14.0, 28.0, 70.0]
    """
    return {level: Case(name, sigma=unit / level) for level in LEVELS}


@dataclass(frozen=True, eq=False)
class Task:
    """A binary classification: what is learnt from, and what is tested on.

    Attributes:
        key: of the task.
        title: in tables.
        source: of the data.
        batch: samples of a round.
        train: features in [0, 1] and labels 0, 1.
        test: held out.
    """

    key: str
    title: str
    source: str
    batch: int
    train: Block
    test: Block

    @property
    def problem(self) -> Problem:
        """Logistic regression without an intercept, in the box."""
        return problems.Logistic(self.train.x.shape[1], domain=DOMAIN)

    @property
    def bound(self) -> float:
        """More than the gradient of a batch can be on the coordinates of one node."""
        return self.batch * math.sqrt(-(-self.train.x.shape[1] // NODES))

    def constant(self, part: Block) -> float:
        """The accuracy of always saying what is most frequent in training."""
        return float(np.mean(part.y == int(np.mean(self.train.y) > 0.5)))


TABLES = {"mushrooms": 2, "mnist": 3, "cifar10": 4}
"""Their tables in the paper."""


@dataclass(frozen=True)
class Tasks:
    """The three tasks of section 6.2, each read when it is asked for.

    Attributes:
        directory: as in `gossamer.data`.
        stand_in: take scikit-learn's digits for all.

    >>> task = Tasks(stand_in=True).of("mnist")
    >>> task.train.x.shape[1], task.constant(task.train) < 0.6
    (64, True)
    """

    directory: Path | None = None
    stand_in: bool = False

    def of(self, key: str) -> Task:
        """One of `TABLES`; refused, with what to do, where its data are not there."""
        return _task(key, self.directory, self.stand_in)


@cache
def _task(key: str, directory: Path | None, stand_in: bool) -> Task:
    make = {"mushrooms": _mushrooms, "mnist": _digits, "cifar10": _cats}[key]
    if stand_in:
        return make(data.digits())
    return make(needed(f"Table {TABLES[key]} of paper 002 needs these data", getattr(data, key), directory))


def _mushrooms(found: data.Dataset) -> Task:
    """Poisonous or not: 6,000 to learn from, 2,000 to test; of digits, the odd ones."""
    train, test = _flat(found.x_train, found.y_train % 2), _flat(found.x_test[:2000], found.y_test[:2000] % 2)
    return Task("mushrooms", "mushrooms", found.name, min(100, len(train.y) // 10), train, test)


def _digits(found: data.Dataset) -> Task:
    """8 against 6: 8,000 of the 11,769 training images of MNIST to learn from, the others to test."""
    chosen = np.isin(found.y_train, (6, 8))
    x, y = found.x_train[chosen], found.y_train[chosen] == 8
    order = np.random.default_rng(SPLIT_SEED).permutation(len(y))
    count = 8000 if len(y) > 8000 else len(y) * 2 // 3
    parts = (order[:count], order[count:])
    train, test = (_flat(x[part], y[part]) for part in parts)
    return Task("mnist", "6 against 8", found.name, min(100, count // 10), train, test)


def _cats(found: data.Dataset) -> Task:
    """Cat (class 3) or not."""
    train, test = _flat(found.x_train, found.y_train == 3), _flat(found.x_test, found.y_test == 3)
    return Task("cifar10", "cat or not", found.name, min(140, len(train.y) // 10), train, test)


def _flat(x: NDArray[np.float32], y: NDArray[np.generic]) -> Block:
    return Block(x.reshape(len(x), -1), y.astype(np.int32))


def dealt(stream: ArrayStream) -> Stream:
    """The same batches for decomposable objectives: sample i of every batch goes to learner i.

    >>> from gossamer import streams
    >>> common = streams.common(np.eye(4, 2), [0, 1, 0, 1], batch=2)
    >>> common.shared, dealt(common).shared, dealt(common).read(0, 2).y.tolist()
    (True, False, [[0, 1], [0, 1]])
    """
    text = stream.description.replace("common batches", "batches dealt to learners, one sample each,")
    return ArrayStream(
        stream._x,
        stream._y,
        stream.order,
        length=stream.length,
        learners=stream.order.width,
        occurrences=stream.occurrences,
        description=text,
    )
