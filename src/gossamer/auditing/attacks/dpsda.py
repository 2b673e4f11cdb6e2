"""Attacks on DPSDA-C and DPSDA-PS: one common batch, which moves what all nodes say.

What node i adds to the dual, v_i = h_i(t+1) - sum_j P_ij(t) h_j(t), can be read off the messages. Tight, the decisions
can too, so everybody knows at which points the gradients were taken: v_i is a known gradient plus noise. As published
they are functions of the raw duals, which an attacker works out for each of the two inputs. Correlated noise is undone
as for `pd_ftgl`: with the lower-triangular S of `strategy`, S v is S n u plus independent draws.

One batch with gradient c or -c everywhere moves the messages of all n nodes by 2 n c: n times Theorem 2 of paper 002.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gossamer import problems, streams, topology
from gossamer.algorithms import dpsda_c, dpsda_ps
from gossamer.algorithms.coordinates.dual_averaging import NAME, DualAveraging, TightDual
from gossamer.auditing.attacks.base import Attack, Case, Make, Pair, ReleaseCase, attack, epsilon_of
from gossamer.auditing.attacks.pd_ftgl import strategy
from gossamer.auditing.attacks.pd_ogd import BUDGETS, CLIP
from gossamer.auditing.views import Floats, Statistic, View, log_ratio
from gossamer.core import Algorithm
from gossamer.mechanisms.independent import Releaked
from gossamer.privacy import Budget, Sensitivity
from gossamer.problems import Block
from gossamer.streams import Stream
from gossamer.topology import Topology

NODES = 7
CHORDS = [(0, 2), (0, 3), (0, 5), (4, 1)]
NETWORKS: dict[Make, Topology] = {
    dpsda_c: topology.ring(NODES),
    dpsda_ps: topology.from_networkx(nx.compose(nx.cycle_graph(NODES, nx.DiGraph), nx.DiGraph(CHORDS))),
}
"""Node 0 of the digraph is heard by four others, and most by one: masses become unequal."""


@dataclass(frozen=True)
class Rule(ABC):
    """How the messages of an algorithm are made: said = heard + rate * added, where noise is added to what is added."""

    algorithm: Algorithm

    decision: ClassVar[str]
    """The field of a node's state that holds its decision."""

    @property
    @abstractmethod
    def released(self) -> bool:
        """Whether decisions are made from what was released, and not from raw gradients."""

    @abstractmethod
    def said(self, messages: Any) -> Floats:
        """The vectors that messages carry, axes (run, exchange, node, coordinate)."""

    @abstractmethod
    def rate(self, exchange: int) -> Any:
        """What is added is multiplied with, for every node."""

    @abstractmethod
    def decide(self, heard: Floats, added: Floats, total: Floats, exchange: int) -> Floats:
        """The next decisions, from what was heard, what is added now, and what was added in all."""

    def part(self, added: Floats) -> Floats:
        """The coordinates of every node that it adds to, padded with zeros: axes (..., node, place)."""
        return added


@dataclass(frozen=True)
class DualRule(Rule):
    """The rule of dual averaging: a message is the dual, and decisions are functions of it."""

    decision: ClassVar[str] = "y"

    @property
    def learner(self) -> DualAveraging:
        """One node."""
        assert isinstance(self.algorithm.learner, DualAveraging)
        return self.algorithm.learner

    @property
    def released(self) -> bool:
        """Yes where the dual is noised before it decides."""
        return isinstance(self.learner, TightDual)

    def said(self, messages: Any) -> Floats:
        """The duals, without their masses."""
        return np.asarray(messages.value if self.learner.push else messages, np.float64)

    def rate(self, exchange: int) -> Any:
        """Duals are sums."""
        return 1.0

    def part(self, added: Floats) -> Floats:
        """The coordinates that each node controls."""
        if not self.learner.blocks:
            return added
        padded = np.concatenate([added, np.zeros((*added.shape[:-1], 1))], axis=-1)
        return np.take_along_axis(padded, np.broadcast_to(self._places, (*added.shape[:-1], self.learner.width)), -1)

    def _whole(self, part: Floats) -> Floats:
        """The inverse of `part`: zero on the coordinates of others."""
        if not self.learner.blocks:
            return part
        whole = np.zeros((*part.shape[:-1], self.learner.problem.dim + 1))
        np.put_along_axis(whole, np.broadcast_to(self._places, part.shape), part, axis=-1)
        return whole[..., :-1]

    def decide(self, heard: Floats, added: Floats, total: Floats, exchange: int) -> Floats:
        """Pi(z / w, step), with the sum of what was added in the place of z / w where a node knows better."""
        average = (heard + self._whole(added)) / self._mass(exchange)[:, None]
        if self.learner.own == "exact":
            own = self._whole(np.ones_like(added)) > 0
            average = np.where(own, self._whole(total) / self.learner.weight, average)
        step = self.algorithm.public["step"](np.array([exchange + 1]))[0]
        proximal, domain = self.learner.proximal, self.learner.problem.domain

        def pi(dual: jax.Array) -> jax.Array:
            return proximal.minimizer(dual, step, domain)

        points = jax.vmap(jax.vmap(pi))(jnp.asarray(average, jnp.float32))
        return np.asarray(points, np.float64)

    @property
    def _places(self) -> NDArray[np.intp]:
        dim, width = self.learner.problem.dim, self.learner.width
        return np.array([block + (dim,) * (width - len(block)) for block in self.learner.blocks])

    def _mass(self, exchange: int) -> Floats:
        assert isinstance(self.algorithm.topology, Topology)
        mass = np.ones(self.algorithm.learners)
        for before in range(exchange if self.learner.push else 0):
            mass = self.algorithm.topology.matrix(before) @ mass
        return mass


def transcript_ratio(rule: Rule, stream: Stream, neighbour: Stream) -> Statistic:
    """The log-likelihood ratio of all messages, with the data of every round but the one that differs known.

    >>> case = one_batch(dpsda_c, "laplace")
    >>> messages = np.zeros((2, 2, 7, 7))
    >>> messages[:, 0] = 9 * np.eye(7)
    >>> case.statistic(View(messages=messages)).round(3)
    array([1., 1.])
    """
    algorithm = rule.algorithm
    (release,) = algorithm.releases
    (name,), steps = release.scales, _length(stream)
    law, scales = algorithm.learner.noise[name].law, [scale.value for scale in algorithm.scales_of(name)]
    matrix = strategy(release.mechanism, steps)

    def score(view: View) -> Floats:
        public = _public(rule, view.messages)
        released = np.stack([noisy for _, noisy in public], axis=1)
        sides = _means(rule, (stream, neighbour), public)
        shown, ours, theirs = (np.einsum("ts,rs...->rt...", matrix, each) for each in (released, *sides))
        ratios = [log_ratio(law, s, shown[:, :, i], ours[:, :, i], theirs[:, :, i]) for i, s in enumerate(scales)]
        return np.asarray(np.sum(ratios, axis=(0, 2)), np.float64)

    return score


def _length(stream: Stream) -> int:
    assert stream.length is not None
    return stream.length


def _public(rule: Rule, messages: Any) -> list[tuple[Floats, Floats]]:
    """For every exchange what the nodes had heard before it, and what they then added, noise included."""
    assert isinstance(rule.algorithm.topology, Topology)
    said, public = rule.said(messages), []
    heard = np.zeros_like(said[:, 0])
    for exchange in range(said.shape[1]):
        public.append((heard, rule.part((said[:, exchange] - heard) / rule.rate(exchange))))
        heard = rule.algorithm.topology.matrix(exchange) @ said[:, exchange]
    return public


def _means(rule: Rule, sides: Pair, public: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """What every node adds in each round without noise, if its data are those of either side.

    Axes (run, exchange, node, place); one run stands for all where gradients do not depend on decisions.
    """
    problem = rule.algorithm.problem
    react = problem.smoothness != 0
    start = np.asarray(problem.initial_decision(), np.float64)
    played = np.broadcast_to(start, (len(public[0][0]) if react else 1, rule.algorithm.learners, problem.dim))
    # Decisions from what was released are the same, whatever the data were.
    worlds = [(played, np.zeros_like(public[0][1]))] * (1 if rule.released else 2)
    exact: list[list[Floats]] = []
    for exchange, (heard, noisy) in enumerate(public):
        exact.append([_gradients(rule, worlds[k % len(worlds)][0], side, exchange) for k, side in enumerate(sides)])
        if react and exchange + 1 < len(public):
            added = [noisy] if rule.released else exact[-1]
            totals = [total + new for new, (_, total) in zip(added, worlds, strict=True)]
            worlds = [(rule.decide(heard, a, t, exchange), t) for a, t in zip(added, totals, strict=True)]
    ours, theirs = (np.stack(side, axis=1) for side in zip(*exact, strict=True))
    return ours, theirs


def _gradients(rule: Rule, played: Floats, stream: Stream, exchange: int) -> Floats:
    """What every node would add without noise at these decisions, axes (run, node, place)."""
    data, at = stream.read(exchange, exchange + 1), jnp.asarray(played, jnp.float32)
    return np.asarray(_learnt(rule.algorithm.learner, rule.decision, at, data, stream.shared), np.float64)


@partial(jax.jit, static_argnames=("learner", "decision", "shared"))
def _learnt(learner: Any, decision: str, played: jax.Array, data: Block, shared: bool) -> jax.Array:
    batch = Block(*(leaf[0] if shared else leaf[0][:, None] for leaf in data))
    states = jax.vmap(learner.init)(jnp.arange(played.shape[1]))
    learn = jax.vmap(learner.learn, (0, None if shared else 0, None))
    gradients: jax.Array = jax.vmap(lambda run: learn(states._replace(**{decision: run}), batch, None).gradient)(played)
    return gradients


def exact_loss(rule: Rule, stream: Stream, neighbour: Stream, learner: int = 0) -> float:
    """The epsilon of two inputs whose gradients depend on no decision: all draws together, in the norm of their noise.

    >>> case = one_batch(dpsda_ps, "gaussian", aggregation="blt", steps=4)
    >>> round(exact_loss(DualRule(case.algorithm), case.stream, case.neighbour), 3)
    1.0
    """
    algorithm = rule.algorithm
    (release,) = algorithm.releases
    (name,), steps = release.scales, _length(stream)
    nothing = np.zeros((1, algorithm.learners, algorithm.problem.dim))
    ours, theirs = _means(rule, (stream, neighbour), [(nothing, rule.part(nothing))] * steps)
    moved = np.einsum("ts,s...->t...", strategy(release.mechanism, steps), (ours - theirs)[0])
    law, scale = algorithm.learner.noise[name].law, algorithm.scales_of(name)[learner].value
    each = np.linalg.norm(moved, ord=1 if law == "laplace" else 2, axis=-1)
    size = np.linalg.norm(moved) if law == "gaussian" else each.sum()
    return epsilon_of(algorithm, law, float(size) / scale, learner)


def _one_changed(steps: int, *, changed: int = 0, others: float = 0.0, dim: int = NODES) -> Pair:
    """Features of 1 and -1 in one round, whose label is far away, and of `others` in all others."""
    x, y = np.full((steps, dim), others), np.zeros(steps, np.float32)
    x[changed], y[changed] = 1.0, -9.0
    flipped = x.copy()
    flipped[changed] = -1.0
    return streams.common(x, y), streams.common(flipped, y)


def one_batch(
    make: Make, law: str, *, steps: int = 2, changed: int = 0, network: Topology | None = None, **options: Any
) -> Case:
    """Attack (a): linear losses, of which one has the gradient 1 or -1 in every coordinate, and all others 0.

    >>> round(one_batch(dpsda_c, "laplace").supremum, 3), round(one_batch(dpsda_ps, "gaussian").supremum, 3)
    (1.0, 1.0)
    """
    network = network or NETWORKS[make]
    given = {"budget": BUDGETS["laplace" if law == "laplace" else "gaussian"], "horizon": steps, "noise": law} | options
    algorithm = make(problems.Linear(network.learners), network, clip=CLIP, **given)
    rule, pair = DualRule(algorithm), _one_changed(steps, changed=changed, dim=network.learners)
    return Case(algorithm, *pair, transcript_ratio(rule, *pair), supremum=exact_loss(rule, *pair))


def published_batch(make: Make, claimed: float | None = None) -> Case:
    """The same on the published scale, for 1 in all: what it really costs is seven halves of that.

    >>> case = published_batch(dpsda_c, claimed=1.0)
    >>> round(case.supremum, 3), round(case.algorithm.guarantee.epsilon, 3), case.claimed
    (3.5, 3.5, 1.0)
    """
    return replace(one_batch(make, "laplace", calibration="published"), claimed=claimed)


def _steep(make: Make, steps: int, **options: Any) -> tuple[Algorithm, Pair]:
    """Attack (b): squared losses so steep that the sign of a decision is the next clipped gradient."""
    algorithm = make(problems.LeastSquares(NODES), NETWORKS[make], clip=CLIP, **options)
    return algorithm, _one_changed(steps, others=1.0)


def released_decisions(make: Make) -> Case:
    """Tight: later gradients depend on decisions as much as they can, and that shows nothing new."""
    algorithm, pair = _steep(make, 2, budget=BUDGETS["gaussian"], noise="gaussian")
    rule = DualRule(algorithm)
    supremum = exact_loss(rule, *_one_changed(1))  # the second round adds nothing
    return Case(algorithm, *pair, transcript_ratio(rule, *pair), supremum=supremum)


def re_leak(make: Make) -> Case:
    """Published, epsilon 0.25 a round over seven: already the second message moves as far as the first.

    Each of two messages of seven nodes loses 0.25; after them noise hides where decisions are, and less is seen.

    >>> case = re_leak(dpsda_c)
    >>> round(case.supremum, 3), case.claimed, round(case.algorithm.guarantee.epsilon, 3)
    (3.5, 1.75, 12.25)
    """
    claimed = 1.75
    algorithm, pair = _steep(make, 2, budget=Budget(claimed), horizon=7, calibration="published")
    supremum = 2 * NODES * 2 * NODES / algorithm.scales_of(NAME)[0].value
    return Case(algorithm, *pair, transcript_ratio(DualRule(algorithm), *pair), supremum=supremum, claimed=claimed)


def raw_decision(make: Make) -> Case:
    """Published, one decision and the messages before it: what it has more than they is the raw gradient."""
    network, changed = NETWORKS[make], 1
    algorithm = make(problems.Linear(NODES), network, clip=CLIP, budget=Budget(1.0), horizon=3, calibration="published")
    rule = DualRule(algorithm)
    step = algorithm.public["step"](np.array([changed + 1]))[0]

    def score(view: View) -> Floats:
        heard = rule.said(view.messages)[:, changed - 1, :, 0] @ network.matrix(changed - 1)[0]
        played = np.asarray(view.decisions[:, changed + 1, 0, 0], np.float64)
        return np.asarray(-played * rule._mass(changed)[0] / step - heard, np.float64)

    return Case(algorithm, *_one_changed(3, changed=changed), score, observer="outsiders", supremum=np.inf)


def flipped_label(make: Make) -> Case:
    """Batches of three, two coordinates for each node, three rounds: the label of one sample of the second is flipped.

    As for `pd_ogd` this moves its gradient by exactly the features, wherever it is taken; all later gradients react.

    >>> round(flipped_label(dpsda_c).supremum, 3)
    0.664
    """
    rounds, batch, dim, changed = 3, 3, 2 * NODES, 4
    options = {"clip": CLIP, "batch": batch, "horizon": rounds, "noise": "gaussian", "aggregation": "blt"}
    algorithm = make(problems.Logistic(dim, feature_bound=2.0), NETWORKS[make], budget=Budget(4.0, 0.1), **options)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rounds * batch, dim))
    x *= 2 / np.linalg.norm(x, axis=1, keepdims=True)
    y = rng.integers(0, 2, len(x)).astype(np.int32)
    flipped = y.copy()
    flipped[changed] = 1 - y[changed]
    pair = streams.common(x, y, batch), streams.common(x, flipped, batch)
    (release,) = algorithm.releases
    column = strategy(release.mechanism, rounds)[:, changed // batch]
    moved = NODES * float(np.linalg.norm(x[changed]) * np.linalg.norm(column))
    supremum = epsilon_of(algorithm, "gaussian", moved / release.scales[NAME][0].value)
    return Case(algorithm, *pair, transcript_ratio(DualRule(algorithm), *pair), supremum=supremum)


def repeated_value() -> ReleaseCase:
    """The mechanism of the published form: a value that moves, and a second that moves by half as much."""
    release = Releaked((1,), horizon=4, reach=1.5).calibrate(Sensitivity(l1=2.0, l2=2.0), Budget(1.0))
    scale, values = release.scales["noise"][0].value, np.array([[1.0], [0.5]])

    def score(shown: NDArray[Any]) -> Floats:
        return np.asarray(log_ratio("laplace", scale, shown, values, -values).sum(axis=1), np.float64)

    return ReleaseCase(release, values, -values, score, supremum=3.0 / scale)


_PAIR = {dpsda_c: topology.complete(2), dpsda_ps: topology.directed_ring(2)}
_ALL_SIGNS = 300_000  # with Laplace noise all seven nodes must show their signs, which one run in 128 does


def attacks(make: Make) -> tuple[Attack, ...]:
    """The attacks on one of the two."""
    batch, everyone = partial(one_batch, make), "the noise of all nodes"
    return (
        attack("one batch", everyone, "sharp", batch, "laplace", runs=_ALL_SIGNS),
        attack("second batch", "what is heard tells nothing", "sharp", batch, "gaussian", changed=1, runs=50_000),
        *(
            attack(f"one batch, {each}", everyone, "sharp", batch, "gaussian", aggregation=each, steps=4, runs=50_000)
            for each in ("tree", "blt")
        ),
        attack("two nodes, tree", everyone, "sharp", batch, "laplace", aggregation="tree", network=_PAIR[make]),
        attack("re-leak", "later gradients", "sharp", released_decisions, make, runs=50_000),
        attack("flipped label", "a whole transcript", "realistic", flipped_label, make, runs=50_000),
        attack("published: one batch", "the true cost", "sharp", published_batch, make, runs=150_000),
        attack("published: Theorem 2", "the claim", "flaw", published_batch, make, 1.0, runs=_ALL_SIGNS),
        attack("published: re-leak", "the claim", "flaw", re_leak, make, runs=_ALL_SIGNS),
        attack("published: decision", "decisions without noise", "flaw", raw_decision, make),
    )


RELEAKED: tuple[Attack, ...] = (attack("two values", "what leaks again", "sharp", repeated_value),)
