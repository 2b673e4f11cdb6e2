"""Attacks on PD-OGD.

Whoever sees messages and decisions of the tight form can undo the step, g~_i(t) = (sum_j P_ij x_j(t) - x_i(t+1)) / eta,
and knows at which decision the gradient was taken. So the likelihood of a whole transcript is a product of noise
densities, and between neighbours all factors cancel but that of the sample that differs.

One finite record may break float32 inside a model: its gradient is not a number. Where that enters a sum, the message
is not a number either, and no noise hides that. So whoever sees messages looks for one thing: whether they are finite.
A gradient that is not finite must add exactly zero, and then they are.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from gossamer import problems, topology
from gossamer.algorithms import pd_ogd
from gossamer.auditing.attacks.base import Attack, Case, Pair, attack, epsilon_of, own_budgets, played, samples, signs
from gossamer.auditing.views import Floats, Statistic, View, log_ratio
from gossamer.core import Algorithm
from gossamer.mechanisms import AdditiveLaw
from gossamer.privacy import Budget, Clip
from gossamer.problems import Block, Problem
from gossamer.streams import ArrayStream, Partition, Stream, from_arrays, smooth_cycle_logistic
from gossamer.topology import Topology

CLIP = Clip(l2=1.0)
BUDGETS: dict[AdditiveLaw, Budget] = {"laplace": Budget(1.0), "l2-laplace": Budget(1.0), "gaussian": Budget(1.0, 0.1)}
"""The event that shows a Gaussian's epsilon has probability 0.27 at delta 0.1. At 1e-5 it has 1.6e-4, and measuring it
takes ten million runs."""


def transcript_ratio(algorithm: Algorithm, stream: Stream, neighbour: Stream, *places: tuple[int, int]) -> Statistic:
    """The log-likelihood ratio of all that peers see of tight PD-OGD, where the samples of some places differ.

    A place is a step and a learner.

    >>> case = one_gradient("laplace", (Budget(1.0),))
    >>> case.statistic(View(messages=np.array([[[[-5.0]]]]), decisions=np.zeros((1, 1, 1, 1)))).round(3)
    array([1.])
    """
    ratios = [_sample_ratio(algorithm, stream, neighbour, *place) for place in places]
    return lambda view: np.sum([ratio(view) for ratio in ratios], axis=0)


def _sample_ratio(algorithm: Algorithm, stream: Stream, neighbour: Stream, step: int, learner: int) -> Statistic:
    assert isinstance(algorithm.topology, Topology)
    weights = np.asarray(algorithm.topology.matrix(step)[learner])
    size = float(algorithm.public["step"](np.array([step + 1]))[0])
    ours, theirs = (_sample(each, step, learner) for each in (stream, neighbour))

    def score(view: View) -> Floats:
        played = np.asarray(view.decisions[:, step], np.float64)
        released = (np.tensordot(played, weights, (1, 0)) - view.messages[:, step, learner]) / size
        own = view.decisions[:, step, learner]
        value, other = (gradients(algorithm.problem, own, sample) for sample in (ours, theirs))
        return log_ratio(_law(algorithm), scale_of(algorithm, learner), released, value, other)

    return score


def _sample(stream: Stream, step: int, learner: int) -> Block:
    return Block(*(np.asarray(leaf[:, learner]) for leaf in stream.read(step, step + 1)))


@partial(jax.jit, static_argnames="problem")
def gradients(problem: Problem, decisions: jax.Array, sample: Block) -> jax.Array:
    """The clipped gradients of one sample at many decisions.

    >>> sample = Block(np.array([[3.0]], np.float32), np.zeros(1))
    >>> gradients(problems.Linear(1), np.zeros((2, 1), np.float32), sample).shape
    (2, 1)
    """
    return jax.vmap(lambda decision: problem.clipped_gradient_sum(decision, sample, CLIP))(decisions)


def _law(algorithm: Algorithm) -> Any:
    return algorithm.learner.noise["gradient"].law


def scale_of(algorithm: Algorithm, learner: int = 0) -> float:
    """Of the noise on a learner's gradients."""
    return algorithm.scales_of("gradient")[learner].value


def _exact(algorithm: Algorithm, learner: int, moved: float) -> float:
    """The epsilon of one release whose value moves by so much, in the norm of its noise."""
    return epsilon_of(algorithm, _law(algorithm), moved / scale_of(algorithm, learner), learner)


def one_gradient(law: AdditiveLaw, budget: tuple[Budget, ...], learner: int = 0) -> Case:
    """One coordinate, one step: the gradient of one learner is +1 or -1, as far apart as the clip lets them be."""
    learners = len(budget)
    algorithm = pd_ogd(problems.Linear(1), topology.complete(learners), budget=budget, clip=CLIP, noise=law, step=1.0)
    gradients = np.zeros((1, learners, 1))
    gradients[0, learner] = 1.0
    pair = signs(gradients)
    score = transcript_ratio(algorithm, *pair, (0, learner))
    return Case(algorithm, *pair, score, supremum=_exact(algorithm, learner, 2.0))


def flipped_label(law: AdditiveLaw) -> Case:
    """Five learners on a ring, five features, four steps: one label flipped at the third.

    A flipped label moves a logistic gradient by exactly the features, wherever it is taken: their two slopes are
    -sigmoid(-s) and sigmoid(s), and sigmoid(s) + sigmoid(-s) = 1.

    >>> round(flipped_label("l2-laplace").supremum, 3)
    0.5
    """
    step, learner, steps = 2, 2, 4
    problem = problems.Logistic(5, feature_bound=1.0)
    algorithm = pd_ogd(problem, topology.ring(5), budget=BUDGETS[law], clip=CLIP, noise=law, step=0.5)
    x, y = smooth_cycle_logistic(5, 5, seed=0).read(0, steps)
    flipped = y.copy()
    flipped[step, learner] = 1 - y[step, learner]
    pair = samples(x, y), samples(x, flipped)
    moved = float(np.linalg.norm(x[step, learner], ord=1 if law == "laplace" else 2))
    score = transcript_ratio(algorithm, *pair, (step, learner))
    return Case(algorithm, *pair, score, supremum=_exact(algorithm, learner, moved))


def _published() -> tuple[Algorithm, Pair]:
    """Two steps of the published form: x(2) = +1 or -1 as the first label says, and the next gradient is its sign."""
    problem, alone = problems.LeastSquares(1), topology.isolated(1)
    algorithm = pd_ogd(problem, alone, budget=Budget(1.0), clip=CLIP, horizon=2, step=1.0, calibration="published")
    x = np.ones((2, 1, 1))
    return algorithm, (samples(x, [[1.0], [0.0]]), samples(x, [[-1.0], [0.0]]))


def re_leak() -> Case:
    """Published, the whole wiretap: a sample moves its message, and through x(2), which is never released, the next."""
    algorithm, pair = _published()
    scale = scale_of(algorithm)

    def score(view: View) -> Floats:
        first, second = (np.asarray(view.messages[:, t, 0], np.float64) for t in (0, 1))
        return log_ratio("laplace", scale, first, 1.0, -1.0) + log_ratio("laplace", scale, second - first, -1.0, 1.0)

    return Case(algorithm, *pair, score, supremum=4 / scale)


def raw_decision() -> Case:
    """Published, seen by peers: the decision that follows the sample is played without noise."""
    algorithm, pair = _published()
    return Case(algorithm, *pair, played, observer="peers", supremum=np.inf)


def dealt(partition: Partition, *, public_labels: bool) -> Case:
    """A hundred records with losses +x or -x, dealt to four learners by their labels, on which no loss depends.

    One record gets another label; or, where labels are public, another loss. The label alone moves other records to
    other learners: as many gradients as differ add up to the exact loss, and a claim as for one sample is false.

    >>> round(dealt("by-label", public_labels=True).supremum, 3), dealt("by-label", public_labels=False).supremum > 20
    (1.0, True)
    """
    rng = np.random.default_rng(0)
    x, y = rng.choice([-1.0, 1.0], (100, 1)), rng.integers(0, 2, 100)
    options: dict[str, Any] = {"skew": 0.5} if partition == "label-skew" else {}

    def deal(x: Floats, y: Any) -> ArrayStream:
        return from_arrays(x, y, 4, partition, seed=0, public_labels=public_labels, **options)

    stream = deal(x, y)
    one = int(stream.order.records(np.arange(1))[0, 0])  # a record that is played, and at once
    other_x, other_y = x.copy(), y.copy()
    if public_labels:
        other_x[one] = -x[one]
    else:
        other_y[one] = 1 - y[one]
    neighbour = deal(other_x, other_y)
    steps = min(stream.length or 0, neighbour.length or 0)
    moved = stream.read(0, steps).x != neighbour.read(0, steps).x
    problem = problems.Linear(1)
    algorithm = pd_ogd(problem, topology.complete(4), budget=Budget(1.0), clip=CLIP, step=1.0)
    score = transcript_ratio(algorithm, stream, neighbour, *map(tuple, np.argwhere(moved)[:, :2]))
    exact, claimed = _exact(algorithm, 0, 2.0 * int(moved.sum())), None if public_labels else 1.0
    return Case(algorithm, stream, neighbour, score, supremum=exact, claimed=claimed, per="record")


def normed(params: Any, x: jax.Array) -> jax.Array:
    """A linear model of x / |x|: at zero it is 0 / 0.

    >>> normed(jnp.ones((2, 2)), jnp.array([3.0, 4.0])).round(2).tolist()
    [1.39..., 1.39...]
    """
    return jnp.asarray(params @ (x / jnp.sqrt(jnp.sum(x * x))))


def zeros_over_their_norm() -> Case:
    """A record of zeros instead of one with ones, into a model that divides by the norm."""
    problem = problems.Model(normed, np.eye(2), features=(2,), classes=2)
    return _finite_or_not(problem, np.ones(2), np.zeros(2))


def huge_pixel() -> Case:
    """A pixel of 3e38 in an image of zeros, into a convolutional network."""
    problem = problems.small_cnn((10, 10, 1), 2, channels=4, hidden=4, seed=1)
    image = np.zeros((10, 10, 1))
    bright = image.copy()
    bright[5, 5] = 3e38
    return _finite_or_not(problem, image, bright)


def _finite_or_not(problem: Problem, ordinary: ArrayLike, extreme: ArrayLike) -> Case:
    """One learner, one step, epsilon 1; the score is whether all it says is finite."""
    algorithm = pd_ogd(problem, topology.isolated(1), budget=Budget(1.0), clip=1.0, step=1.0)
    stream, neighbour = (samples(np.asarray(x)[None, None], [[0]]) for x in (ordinary, extreme))

    def score(view: View) -> Floats:
        finite = np.isfinite(view.messages).reshape(len(view.messages), -1).all(axis=1)
        return np.asarray(finite, np.float64)

    return Case(algorithm, stream, neighbour, score)


OWN = (Budget(0.5), Budget(2.0))
DEALS: tuple[Partition, ...] = ("by-label", "label-skew")

ATTACKS: tuple[Attack, ...] = (
    *(
        attack("one gradient", "the noise of a gradient", "sharp", one_gradient, law, (budget,))
        for law, budget in BUDGETS.items()
    ),
    *own_budgets(OWN, one_gradient, "laplace"),
    *(attack("flipped label", "a whole transcript", "realistic", flipped_label, law) for law in BUDGETS),
    *(
        attack(f"{deal}, public", "a record that keeps its label", "sharp", dealt, deal, public_labels=True)
        for deal in DEALS
    ),
    *(
        attack(deal, "a record whose label deals others", "flaw", dealt, deal, public_labels=False, runs=20_000)
        for deal in DEALS
    ),
    attack("published: re-leak", "the share of each message", "sharp", re_leak),
    attack("published: decision", "decisions without noise", "flaw", raw_decision),
)
EXTREMES: tuple[Attack, ...] = (
    attack("zeros over their norm", "a gradient of 0 / 0", "probe", zeros_over_their_norm, runs=20_000),
    attack("pixel of 3e38", "a gradient that overflows", "probe", huge_pixel, runs=20_000),
)
