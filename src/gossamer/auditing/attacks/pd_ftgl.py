"""Attacks on PD-FTGL and PD-OCG: one sample of the first block, whose gradient is +1 or -1.

Whatever the aggregation, all noisy sums that a learner ever releases follow from their increments y, and there is a
lower-triangular matrix S with S y = S x + z: x are the exact values and z the independent draws. The rows of S are the
nodes of a tree; of a factorisation S is the factor, and for fresh noise it is the identity. Losses are linear, so that
neighbours have the same values but for the first. So the log-likelihood ratio of all that is seen is a sum over the
rows that hold block 1, and no other block is in more of them.

Before gossip messages show y: what gossip made of the messages before is public. After gossip decisions show it:
without bounds x(z+1) = -zhat(z) / W. There a sample moves the values of all learners, by the column of M = p_L(P).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer import problems, sets, topology
from gossamer.algorithms import pd_ftgl, pd_ocg
from gossamer.algorithms.blocks.block_learner import BlockLearner
from gossamer.algorithms.blocks.pd_ftgl import BeforeGossip
from gossamer.auditing.attacks.base import Attack, Case, Make, ReleaseCase, attack, epsilon_of, own_budgets, signs
from gossamer.auditing.attacks.mechanisms import dense
from gossamer.auditing.attacks.pd_ogd import BUDGETS, CLIP, OWN
from gossamer.auditing.views import Floats, Statistic, View, log_ratio
from gossamer.core import Algorithm
from gossamer.mechanisms import AdditiveLaw, Aggregation, Factorized, Gossiped, Independent, Mechanism, TreeSum
from gossamer.privacy import Budget, Sensitivity
from gossamer.topology import AcceleratedGossip, FixedTopology, accelerated_theta, polynomial_matrix

PAIR, RING, LAZY_RING = topology.complete(2), topology.ring(4), topology.ring(4, weights="lazy")
BALL, INSIDE = sets.L2Ball(1.0), 1000.0
"""So much regularisation keeps decisions inside the ball, where the dual can be told from them."""


def strategy(mechanism: Mechanism, rows: int) -> Floats:
    """S, from its definition: not by the code that makes the noise.

    >>> strategy(TreeSum((1,), horizon=4), 4)
    array([[1., 0., 0., 0.],
           [1., 1., 0., 0.],
           [0., 0., 1., 0.],
           [1., 1., 1., 1.]])
    """
    if isinstance(mechanism, Gossiped):
        return strategy(mechanism.inner, rows)
    if isinstance(mechanism, Independent):
        return np.eye(rows)
    if isinstance(mechanism, Factorized):
        return dense(mechanism.factor, rows)
    leaf, inside = np.arange(1, rows + 1)[:, None], np.arange(1, rows + 1)
    length = leaf & -leaf  # of the node that a leaf completes
    return np.asarray((inside <= leaf) & (inside > leaf - length), np.float64)


def shares(algorithm: Algorithm, learner: int) -> Floats:
    """How far each learner's value moves where one gradient moves by 1: its own alone, or all by a column of p_L(P).

    >>> shares(after_gossip("laplace").algorithm, 0)
    array([0.25, 0.75])
    """
    network = algorithm.topology
    assert isinstance(network, FixedTopology)
    if isinstance(algorithm.learner, BeforeGossip):
        matrix = np.eye(network.learners)
    else:
        matrix = polynomial_matrix(network.matrix(), algorithm.mixing.steps, accelerated_theta(network))
    return np.asarray(matrix[:, learner], np.float64)


def from_messages(algorithm: Algorithm, view: View) -> Floats:
    """The increments that messages carry, axes (run, row, learner, coordinate).

    Coupled, a message is z^L, which everybody can compute from the messages before, plus the increment.
    """
    sent = np.asarray(view.messages, np.float64)
    assert isinstance(algorithm.learner, BeforeGossip)
    if not algorithm.learner.coupled:
        return sent
    assert isinstance(algorithm.mixing, AcceleratedGossip)
    assert isinstance(algorithm.topology, FixedTopology)
    constant, _ = algorithm.mixing.prepare(algorithm.topology, np.zeros(1, np.int64))
    block = np.asarray(constant["block"], np.float64)
    heard, before = np.zeros_like(sent[:, 0]), np.zeros_like(sent[:, 0])
    increments = []
    for now in sent.swapaxes(0, 1):
        increments.append(now - heard)
        change = before + increments[-1] - now
        heard, before = np.split(block @ np.concatenate([now, change], axis=1), 2, axis=1)
    return np.stack(increments, axis=1)


def from_decisions(algorithm: Algorithm, view: View) -> Floats:
    """The same from decisions: x(z+1) = -zhat(z) / W at exchange z, and leaf 1 is in zhat(2); for PD-OCG one block on.

    In one dimension one step of conditional gradient with exact line search is exact.
    """
    assert isinstance(algorithm.learner, BlockLearner)
    first = 2 + algorithm.learner.update.lag
    played = np.asarray(view.decisions[:, first:], np.float64)
    weights = algorithm.public["weight"](np.arange(first, first + played.shape[1]))
    sums = -weights[:, None, None] * played
    return np.diff(sums, axis=1, prepend=0.0)


def first_block_ratio(
    algorithm: Algorithm, gradient: Floats, learner: int, increments: Callable[[Algorithm, View], Floats]
) -> Statistic:
    """The log-likelihood ratio of all that is seen, where a gradient of the first block changes its sign.

    >>> case = before_gossip("laplace", "independent")
    >>> messages = np.zeros((2, 4, 2, 1))
    >>> messages[0, 0, 0], messages[1, 0, 0] = 9.0, 0.5
    >>> case.statistic(View(messages=messages)).round(3)
    array([1. , 0.5])
    """
    mechanism = algorithm.releases[0].mechanism
    law, scale = algorithm.learner.noise["gradient"].law, algorithm.scales_of("gradient")[learner].value
    moved = shares(algorithm, learner)[:, None] * gradient

    def score(view: View) -> Floats:
        values = increments(algorithm, view)
        matrix = strategy(mechanism, values.shape[1])
        shown = np.einsum("ts,rsic->rtic", matrix, values)
        mean = matrix[:, 0, None, None] * moved
        return np.asarray(log_ratio(law, scale, shown, mean, -mean).sum(axis=(1, 2)), np.float64)

    return score


def _exact(algorithm: Algorithm, gradient: Floats, learner: int, rows: int) -> float:
    """The epsilon of all rows that are seen together, of all learners, each in the norm of its noise."""
    law, scale = algorithm.learner.noise["gradient"].law, algorithm.scales_of("gradient")[learner].value
    order = 2 if law == "gaussian" else 1
    column = strategy(algorithm.releases[0].mechanism, rows)[:, 0]
    size = 2 * float(np.linalg.norm(gradient, ord=1 if law == "laplace" else 2))
    size *= float(np.linalg.norm(column, ord=order) * np.linalg.norm(shares(algorithm, learner), ord=order))
    return epsilon_of(algorithm, law, size / scale, learner)


def _case(
    algorithm: Algorithm, increments: Callable[[Algorithm, View], Floats], exchanges: int, learner: int, rows: int
) -> Case:
    """Every sample is 0, but for the last one of a learner's first block, whose gradient has norm 1."""
    assert isinstance(algorithm.learner, BlockLearner)
    dim, block = algorithm.problem.dim, algorithm.learner.block
    gradient = np.full(dim, dim**-0.5)
    x = np.zeros((exchanges * block, algorithm.learners, dim))
    x[block - 1, learner] = gradient
    score = first_block_ratio(algorithm, gradient, learner, increments)
    return Case(algorithm, *signs(x), score, supremum=_exact(algorithm, gradient, learner, rows))


def before_gossip(
    law: AdditiveLaw,
    aggregation: Aggregation = "tree",
    *,
    make: Make = pd_ftgl,
    budget: Budget | tuple[Budget, ...] | None = None,
    learner: int = 0,
    **options: Any,
) -> Case:
    """Two learners, four blocks of two steps, one coordinate: block 1 is in three nodes of a tree."""
    exchanges, block = 4, 2
    options |= {"horizon": exchanges * block, "steps_per_exchange": block, "aggregation": aggregation}
    given = BUDGETS[law] if budget is None else budget
    algorithm = make(problems.Linear(1, domain=BALL), PAIR, budget=given, clip=CLIP, noise=law, **options)
    return _case(algorithm, from_messages, exchanges, learner, rows=exchanges)


def after_gossip(
    law: AdditiveLaw,
    aggregation: Aggregation = "tree",
    *,
    make: Make = pd_ftgl,
    network: FixedTopology = PAIR,
    exchanges: int = 4,
    dim: int = 1,
    **options: Any,
) -> Case:
    """Decisions of all learners. Of `exchanges` - 1 leaves the last is in no decision that is played (PD-OCG: two).

    Leaf 1 moves every node of every learner that it is in. With pure noise all of epsilon is lost where each coordinate
    of each of them shows its sign, so few of them are best.
    """
    options = {"budget": BUDGETS[law], "noise_at": "after-gossip", "regularization": INSIDE} | options
    options |= {"horizon": exchanges, "steps_per_exchange": 1, "aggregation": aggregation}
    algorithm = make(problems.Linear(dim, domain=BALL), network, clip=CLIP, noise=law, **options)
    assert isinstance(algorithm.learner, BlockLearner)
    return _case(algorithm, from_decisions, exchanges, learner=0, rows=exchanges - 2 - algorithm.learner.update.lag)


def raw_message(make: Make = pd_ftgl) -> Case:
    """Noise after gossip, seen by peers: what is sent is the gradient itself."""

    def score(view: View) -> Any:
        return view.messages[:, 0, 0, 0]

    return replace(after_gossip("laplace", make=make), statistic=score, observer="peers", supremum=np.inf)


def gossiped_leaf(law: AdditiveLaw) -> ReleaseCase:
    """The mechanism alone, on one learner: nothing is released first, and then leaf 1 is in a node of every level."""
    leaves = 4
    mechanism = Gossiped.of(TreeSum((1,), horizon=leaves, law=law), np.eye(1))
    release = mechanism.calibrate(Sensitivity(l1=2.0, l2=2.0), BUDGETS[law])
    scale, matrix = release.scales["noise"][0].value, strategy(mechanism, leaves)
    values = np.array([[0.0], [1.0], *[[0.0]] * (leaves - 1)])

    def score(shown: NDArray[Any]) -> Floats:
        nodes = matrix @ np.diff(np.asarray(shown[:, 1:], np.float64), axis=1, prepend=0.0)
        ratios = log_ratio(law, scale, nodes, matrix[:, :1], -matrix[:, :1])
        return np.asarray(ratios.sum(axis=1), np.float64)

    supremum = release.spent(len(values)).epsilon(release.deltas[0])
    return ReleaseCase(release, values, -values, score, supremum=supremum)


_ALL = "decisions of all"
# Of what is claimed the printed noise gives H / (3 (2 + log2 T)): with four blocks of one step this is epsilon 1.
_PRINTED: dict[str, Any] = {"budget": Budget(6.0), "calibration": "published"}
_THREE_COORDINATES: dict[str, Any] = {"network": LAZY_RING, "exchanges": 7, "dim": 3, "budget": Budget(2.0)}

ATTACKS: tuple[Attack, ...] = (
    *(attack("first block, tree", "every level, messages", "sharp", before_gossip, law) for law in BUDGETS),
    *(attack("first block, fresh noise", "messages", "sharp", before_gossip, law, "independent") for law in BUDGETS),
    attack("first block, blt", "the whole column, messages", "sharp", before_gossip, "gaussian", "blt"),
    attack("first block, decoupled", "messages", "sharp", before_gossip, "laplace", gossip="decoupled"),
    *own_budgets(OWN, before_gossip, "laplace"),
    *(attack("after gossip, tree", _ALL, "sharp", after_gossip, law) for law in BUDGETS),
    *(attack("after gossip, fresh noise", _ALL, "sharp", after_gossip, law, "independent") for law in BUDGETS),
    *(
        attack(f"after gossip, ring, {each}", _ALL, "sharp", after_gossip, "gaussian", each, network=RING, exchanges=6)
        for each in ("tree", "blt")
    ),
    attack("published: decisions", "what the printed noise gives", "sharp", after_gossip, "laplace", **_PRINTED),
    # 36 draws have to show their signs.
    attack("after gossip, three coordinates", _ALL, "realistic", after_gossip, "laplace", **_THREE_COORDINATES),
    attack("after gossip: messages", "raw gradients", "flaw", raw_message),
)

PD_OCG: tuple[Attack, ...] = (
    *(
        attack("first block, tree", "every level, messages", "sharp", before_gossip, law, make=pd_ocg)
        for law in BUDGETS
    ),
    attack("after gossip, tree", _ALL, "sharp", after_gossip, "gaussian", make=pd_ocg, exchanges=7),
    attack("after gossip, fresh noise", _ALL, "sharp", after_gossip, "laplace", "independent", make=pd_ocg),
    attack("after gossip: messages", "raw gradients", "flaw", raw_message, pd_ocg),
)

GOSSIPED: tuple[Attack, ...] = tuple(
    attack("first leaf", "every level, one exchange late", "sharp", gossiped_leaf, law) for law in BUDGETS
)
