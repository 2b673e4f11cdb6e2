"""What is compared in paper 002: networks, algorithms with their noise, and classification tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gossamer import algorithms, data, problems, streams, topology
from gossamer.algorithms.coordinates.dpsda import Reduction
from gossamer.core import Algorithm, Rate
from gossamer.experiments import Asked
from gossamer.experiments.papers.sources import needed
from gossamer.privacy import Budget
from gossamer.problems import Block, Problem
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
ERRORS = math.sqrt(0.1)  # the standard deviation of xi
DELTA = 1e-5
LEVELS = (math.inf, 1.0, 0.5, 0.2)
"""The paper's epsilons, which "just characterize a corresponding proportional relationship"."""
CLIPS = (0.03, 0.1, 0.3, 1.0, 3.0)
STEPS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
SPLIT_SEED = 0

Name = Literal["DPSDA-C", "DPSDA-PS", "DPDOLA", "DPPS", "DPSR"]
BOTH: tuple[Name, ...] = ("DPSDA-C", "DPSDA-PS")


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


def grid_of(start: Mapping[str, float], quick: bool) -> dict[str, tuple[float, ...]]:
    """What clips and steps are chosen from; in a quick run they are those that an earlier search found.

    >>> grid_of({"step": 0.1}, quick=True)
    {'step': (0.1,)}
    """
    whole = {"clip": CLIPS, "step": STEPS}
    return {name: (value,) if quick else whole[name] for name, value in start.items()}


@dataclass(frozen=True)
class Case:
    """An algorithm with its noise.

    Attributes:
        name: of the algorithm.
        sigma: the scale of Laplace noise on every coordinate, as published; 0 for none.
        budget: of tight noise instead: blt with a delta, else Laplace; own coordinates exact.
        clip: of tight noise: of every sample's gradient, on the coordinates of a node.
        step: alpha(t) = step / sqrt(t).
        errors: whether gradients come with xi.
        reduction: f_t is a sum over its batch (section 6.2) or a mean (section 2.2).

    >>> print(Case("DPSDA-C", sigma=2.0), "|", Case("DPSDA-PS"), "|", Case("DPSDA-C", budget=Budget(1.0), clip=0.1))
    DPSDA-C, sigma 2 | DPSDA-PS, non-private | DPSDA-C, real epsilon 1, clip 0.1
    """

    name: Name
    sigma: float = 0.0
    budget: Budget | None = None
    clip: float | None = None
    step: float = 1.0
    errors: bool = True
    reduction: Reduction = "sum"

    def __str__(self) -> str:
        noise = f"sigma {self.sigma:g}" if self.sigma else "non-private"
        if self.budget is not None:
            delta = f", delta {self.budget.delta:g}" if self.budget.delta else ""
            noise = f"real epsilon {self.budget.epsilon:g}{delta}, clip {self.clip:g}"
        return f"{self.name}, {noise}" + (f", step {self.step:g}" if self.step != 1 else "")

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
        make, network = MAKERS[self.name]
        given: dict[str, Any] = {"horizon": horizon, "step": Rate(self.step)}
        width = problem.dim
        if self.name in BOTH:
            width = -(-width // NODES)
            given |= {"batch": batch, "gradient_noise": ERRORS if self.errors else 0.0, "reduction": self.reduction}
        if self.budget is not None:
            law = {"noise": "gaussian", "aggregation": "blt"} if self.budget.delta else {}
            return make(problem, network(), budget=self.budget, clip=self.clip, **law, **given)
        if not self.sigma:
            return make(problem, network(), noise="none", own="gossip", **given)
        printed = 2 * bound * math.sqrt(width) * horizon * (NODES if self.name in BOTH else 1)
        given |= {"unit": "batch"} if self.name in BOTH else {}
        budget = Budget(printed / self.sigma)
        return make(problem, network(), budget=budget, clip=bound, calibration="published", **given)


MAKERS: dict[str, tuple[Callable[..., Algorithm], Callable[[], Topology]]] = {
    "DPSDA-C": (algorithms.dpsda_c, undirected),
    "DPSDA-PS": (algorithms.dpsda_ps, directed),
    "DPDOLA": (algorithms.pd_ogd, undirected),
    "DPPS": (algorithms.dp_push_sum_dual_averaging, directed),
    "DPSR": (algorithms.dp_subgradient_rescaling, fixed),
}


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
        """More than the gradient of a sample can be on the coordinates of one node."""
        return math.sqrt(-(-self.train.x.shape[1] // NODES))

    @property
    def told(self) -> str:
        """What scores on it depend on."""
        return f"{self.key}, {self.source}, {len(self.train.y)} and {len(self.test.y)} samples"

    @cache  # noqa: B019  # tasks are kept anyway
    def stream(self, batch: int, passes: int, seed: int) -> ArrayStream:
        """Common batches in an order of their own for every seed."""
        return streams.common(*self.train, batch=batch, passes=passes, seed=seed, shuffle=True)

    @cache  # noqa: B019
    def dealt(self, batch: int, seed: int) -> Stream:
        """The same batches, one sample for each learner."""
        return dealt(self.stream(batch, 1, seed))

    def constant(self, part: Block) -> float:
        """The accuracy of always saying what is most frequent in training."""
        return float(np.mean(part.y == int(np.mean(self.train.y) > 0.5)))


TABLES = {"mushrooms": 2, "mnist": 3, "cifar10": 4}
"""Their tables in the paper."""


@cache
def task_of(key: str, asked: Asked) -> Task:
    """One of the three tasks of section 6.2; refused, with what to do, where its data are not there.

    >>> task = task_of("mnist", Asked(stand_in=True))
    >>> task.train.x.shape[1], task.constant(task.train) < 0.6
    (64, True)
    """
    make = {"mushrooms": _mushrooms, "mnist": _digits, "cifar10": _cats}[key]
    if asked.stand_in:
        return make(data.digits())
    return make(needed(f"Table {TABLES[key]} of paper 002 needs these data", getattr(data, key), asked.data))


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
