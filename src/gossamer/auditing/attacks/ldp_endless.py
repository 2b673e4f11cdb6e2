"""Attacks on paper 003 and on its baselines: noisy views of a hidden state.

Whoever hears all messages y and knows the data of a learner but for one sample can compute its hidden theta(t) for
either of two samples: theta depends on data and messages only. So the likelihood of a transcript is a product of noise
densities around theta(t), and between neighbours the factor of every message counts. Linear losses move theta as far
as the recursion of `fading` says, with equality. With many exchanges all of them must go one way to show that, which
happens too rarely to be counted (0.357 of 1 was measured in 200 exchanges): attacks have two or three.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer import problems, sets, topology
from gossamer.algorithms import dsgd, ldp_endless, pdop
from gossamer.algorithms.endless.fading import Fading, Trace
from gossamer.algorithms.endless.ldp_endless import Averaging, Endless, Noise, State
from gossamer.auditing.attacks.base import (
    Attack,
    Case,
    Pair,
    ReleaseCase,
    attack,
    epsilon_of,
    own_budgets,
    played,
    samples,
    signs,
)
from gossamer.auditing.attacks.pd_ogd import BUDGETS, CLIP, OWN
from gossamer.auditing.views import Floats, Statistic, View, log_ratio
from gossamer.core import Algorithm, Every, Now, Rate
from gossamer.mechanisms.independent import Views
from gossamer.privacy import Budget, Gaussian, Law
from gossamer.problems import Block
from gossamer.streams import Stream, smooth_cycle_logistic
from gossamer.topology import Topology

PAIR = topology.complete(2)


def hidden(algorithm: Algorithm, stream: Stream, messages: Any, learner: int) -> Floats:
    """theta(1), theta(2), ... of one learner with these data, if this was said: axes (run, exchange, coordinate).

    By its own program, with all its roundings.

    >>> case = first_sample("laplace", horizon=2)
    >>> hidden(case.algorithm, case.stream, np.zeros((1, 2, 2, 1)), learner=0)[0, :, 0].round(3)
    array([-1.   , -0.975])
    """
    assert isinstance(algorithm.topology, Topology)
    assert isinstance(algorithm.learner, Endless)
    said, rows = jnp.asarray(messages, jnp.float32), _rows(algorithm)
    exchanges = np.arange(said.shape[1])
    constant, _ = algorithm.mixing.prepare(algorithm.topology, exchanges)
    heard = jax.vmap(jax.vmap(lambda each: algorithm.mixing.mix(constant, {}, each)[learner]))(said)
    read = stream.read(0, len(exchanges) * rows)
    blocks = Block(*(leaf[:, learner].reshape(len(exchanges), rows, *leaf.shape[2:]) for leaf in read))
    public = {name: values(exchanges + 1).astype(np.float32) for name, values in algorithm.public.items()}
    return np.asarray(
        _replayed(algorithm.learner, jnp.asarray(learner), blocks, public, said[:, :, learner], heard), np.float64
    )


@partial(jax.jit, static_argnames="learner")
def _replayed(
    learner: Endless, identity: jax.Array, blocks: Block, public: Any, said: jax.Array, heard: jax.Array
) -> Any:
    silence = {name: jnp.zeros(spec.shape) for name, spec in learner.noise.items()}

    def exchange(state: State, given: Any) -> tuple[State, jax.Array]:
        block, public, said, heard = given
        now = Now(public, silence, {})
        _, state = learner.speak(learner.learn(state, block, now), now)
        return learner.listen(state._replace(y=said), heard), state.theta

    def path(said: jax.Array, heard: jax.Array) -> jax.Array:
        return jax.lax.scan(exchange, learner.init(identity), (blocks, public, said, heard))[1]

    return jax.vmap(path)(said, heard)


def _scales(algorithm: Algorithm, learner: int, exchanges: int) -> Floats:
    """Of the noise on every message."""
    assert isinstance(algorithm.learner, Endless)
    growth = algorithm.learner.growths[learner]
    return algorithm.scales_of("parameters")[learner].value * np.arange(2.0, exchanges + 2) ** growth


def _rows(algorithm: Algorithm) -> int:
    assert isinstance(algorithm.schedule, Every)
    return algorithm.schedule.block


def _law(algorithm: Algorithm) -> Law:
    return algorithm.learner.noise["parameters"].law


def transcript_ratio(algorithm: Algorithm, pair: Pair, learner: int) -> Statistic:
    """The log-likelihood ratio of all messages, where one sample of one learner differs.

    >>> case = first_sample("laplace", horizon=2)
    >>> messages = np.zeros((1, 2, 2, 1))
    >>> messages[:, :, 0] = -9.0
    >>> case.statistic(View(messages=messages)).round(3)
    array([1.])
    """

    def score(view: View) -> Floats:
        said = np.asarray(view.messages, np.float64)
        scales = _scales(algorithm, learner, said.shape[1])[:, None]
        ours, theirs = (hidden(algorithm, side, said, learner) / scales for side in pair)
        ratios = log_ratio(_law(algorithm), 1.0, said[:, :, learner] / scales, ours, theirs)
        return np.asarray(ratios.sum(axis=1), np.float64)

    return score


def exact_loss(algorithm: Algorithm, pair: Pair, learner: int) -> float:
    """The epsilon of two inputs whose thetas are as far apart whatever is said.

    >>> case = first_sample("gaussian", horizon=3)
    >>> round(exact_loss(case.algorithm, (case.stream, case.neighbour), 0), 3)
    1.0
    """
    length = pair[0].length
    assert length is not None
    exchanges = length // _rows(algorithm)
    silence = np.zeros((1, exchanges, algorithm.learners, algorithm.problem.dim))
    ours, theirs = (hidden(algorithm, side, silence, learner)[0] for side in pair)
    moved = (ours - theirs) / _scales(algorithm, learner, exchanges)[:, None]
    size = np.abs(moved).sum() if _law(algorithm) == "laplace" else np.linalg.norm(moved)
    return epsilon_of(algorithm, _law(algorithm), float(size), learner)


def _one_changed(steps: int, learner: int = 0, learners: int = 2) -> Pair:
    """One feature: a gradient of 1 or -1 at the first step of one learner, and of 0 everywhere else."""
    x = np.zeros((steps, learners, 1))
    x[0, learner] = 1.0
    return signs(x)


def _attacked(algorithm: Algorithm, pair: Pair, learner: int = 0) -> Case:
    score, supremum = transcript_ratio(algorithm, pair, learner), exact_loss(algorithm, pair, learner)
    return Case(algorithm, *pair, score, supremum=supremum)


def first_sample(
    law: Noise, *, horizon: int, steps: int | None = None, learner: int = 0, budget: Any = None, **options: Any
) -> Case:
    """Two learners, linear losses: the first gradient of one of them is 1 or -1."""
    length, given = steps or horizon, BUDGETS[law] if budget is None else budget
    settings: dict[str, Any] = {"clip": CLIP, "horizon": horizon, "buffer": length, "noise": law} | options
    algorithm = ldp_endless(problems.Linear(1, domain=sets.L2Ball(10.0)), PAIR, budget=given, **settings)
    return _attacked(algorithm, _one_changed(length, learner), learner)


def published_noise() -> Case:
    """The noise of Theorem 5(i) for epsilon 1 over three exchanges: it counts every gradient as if it differed.

    >>> case = published_noise()
    >>> round(case.supremum, 3), round(case.algorithm.guarantee.epsilon, 3), case.claimed
    (0.785, 0.785, 1.0)
    """
    return replace(first_sample("laplace", horizon=3, calibration="published"), claimed=1.0)


def flipped_label(law: Noise) -> Case:
    """Five learners on a ring, logistic regression in five dimensions: the first label of one of them is flipped.

    Two exchanges: theta(1) is a function of data alone, so the distance at theta(2) is the same in every run.

    >>> round(flipped_label("gaussian").supremum, 3)
    0.213
    """
    learner, steps = 2, 2
    problem = problems.Logistic(5, feature_bound=1.0, domain=sets.L2Ball(100.0))
    algorithm = ldp_endless(problem, topology.ring(5), budget=BUDGETS[law], clip=CLIP, horizon=steps, noise=law)
    x, y = smooth_cycle_logistic(5, 5, seed=0).read(0, steps)
    flipped = y.copy()
    flipped[0, learner] = 1 - y[0, learner]
    return _attacked(algorithm, (samples(x, y), samples(x, flipped)), learner)


def moved_target() -> Case:
    """Five learners on a ring, least squares on sums, eight exchanges: the first target of one of them is moved.

    The second derivative does not depend on targets, so distances are the same in every run here too.

    >>> round(moved_target().supremum, 3)
    0.322
    """
    learner, steps = 2, 8
    problem = problems.LeastSquares(2, feature_bound=1.0, domain=sets.L2Ball(1.0))
    options: dict[str, Any] = {"step": Rate(0.5, 0.77), "delay": 2, "history": "statistics", "label_bound": 1.0}
    options |= {"budget": Budget(2.0, 0.1), "horizon": steps, "noise": "gaussian", "growth": 0.0}
    algorithm = ldp_endless(problem, topology.ring(5), **options)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(steps, 5, 2))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    y = np.clip(x @ np.array([0.3, -0.2]), -1, 1)
    y[0, learner] = 1.0
    moved = y.copy()
    moved[0, learner] = -1.0
    return _attacked(algorithm, (samples(x, y), samples(x, moved)), learner)


HUGE = 2.0**40
"""The radius of a set that is as good as unbounded: float32 numbers of that size are 2^17 apart."""


@dataclass(frozen=True)
class Steered(Averaging):
    """A learner with an active neighbour: all that one can do to it is to choose what it hears.

    Attributes:
        said: by the neighbour before the first exchange, the second, ..., whatever is said to it.
    """

    said: tuple[float, ...]

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """After the neighbour's message, whatever was heard."""
        chosen = jnp.asarray(self.said, jnp.float32)[now.public["time"].astype(int) - 2]
        return super().speak(state._replace(said=jnp.full_like(state.said, (1 - state.own) * chosen)), now)


def active_neighbour(radius: float = HUGE) -> Case:
    """A neighbour that steers theta to 4096, and then says 3 * 2^36, within what a frame carries.

    Half of that minus theta is a tie between two float32 numbers: the sample decides which of them it is, and they are
    8,192 apart. Where roundings are not counted, the next message tells them apart.

    >>> case = active_neighbour()
    >>> case.algorithm.guarantee.epsilon <= 1 and case.supremum < 0.001
    True
    """
    options: dict[str, Any] = {"horizon": 3, "noise": "gaussian", "growth": 0.0, "coupling": Rate(0.5, 0.0)}
    problem = problems.Linear(1, domain=sets.L2Ball(radius))
    algorithm = ldp_endless(problem, PAIR, budget=Budget(1.0, 1e-5), clip=CLIP, **options)
    made = algorithm.learner
    assert isinstance(made, Averaging)
    fields = {name: getattr(made, name) for name in ("problem", "history", "mechanism", "own", "growths")}
    steered = replace(algorithm, learner=Steered(**fields, said=(0.0, 16384.0, 3 * 2.0**36)))
    return _attacked(steered, _one_changed(3))


def loud_neighbour(radius: float = HUGE) -> Case:
    """Honest learners with noise of 20 and 10^9: what is heard of the other has float32 digits of 32 and more.

    In exact arithmetic four exchanges cost 0.658. In a set that is not huge, what is heard is cut, and they do.

    >>> [f"{loud_neighbour(radius).algorithm.guarantee.epsilons[0]:.3g}" for radius in (100.0, HUGE)]
    ['0.658', '7.67e+09']
    """
    options: dict[str, Any] = {"clip": CLIP, "horizon": 4, "noise": "gaussian", "growth": 0.0}
    algorithm = ldp_endless(problems.Linear(1, domain=sets.L2Ball(radius)), PAIR, sigma=(20.0, 1e9), **options)
    pair = _one_changed(4)
    return Case(algorithm, *pair, transcript_ratio(algorithm, pair, 0))


def raw_parameters() -> Case:
    """Plays theta as it is, against what the same noise costs where it is not: one decision tells everything.

    >>> case = raw_parameters()
    >>> case.supremum, case.claimed, case.algorithm.guarantee.basis
    (inf, 1.0, 'none')
    """
    case = first_sample("laplace", horizon=2, publish="raw")
    flaw: dict[str, Any] = {"observer": "peers", "supremum": math.inf, "claimed": 1.0}
    return replace(case, statistic=lambda view: -played(view), **flaw)


def three_views(law: Noise) -> ReleaseCase:
    """The mechanism alone: three views of a state that one unit moves, each in units of the growth of its noise."""
    fading = Fading(Rate(1.0, 0.77), Rate(1.0, 0.65), weight=0.5, change=2.0, smoothness=0.0)
    mechanism = Views((1,), horizon=3, law=law, touches=3)
    release = mechanism.calibrate(Trace.of_views(fading, 0.1, 1, mechanism.order, 3), BUDGETS[law])
    scale = release.scales["noise"][0].value
    values = fading.terms(1, 0.1, 3)[:, None] / 2

    def score(shown: NDArray[Any]) -> Floats:
        return np.asarray(log_ratio(law, scale, shown, values, -values).sum(axis=1), np.float64)

    moved = 2 * values / scale
    loss = float(moved.sum()) if law == "laplace" else Gaussian(float(np.linalg.norm(moved))).epsilon(0.1)
    return ReleaseCase(release, values, -values, score, supremum=loss)


Make = Callable[[float], Algorithm]
STEEP = problems.LeastSquares(1, feature_bound=1.0)


def _dsgd(noise: float) -> Algorithm:
    """Two steps whose decisions are so small that no gradient after the first is clipped."""
    return dsgd(STEEP, PAIR, sigma=noise, clip=CLIP, horizon=2, step=Rate(0.4, 1.0))


def _pdop(scale: float) -> Algorithm:
    return pdop(STEEP, PAIR, clip=CLIP, horizon=2, scale=(scale, 0.9), step=(0.5, 0.8))


def _descent(make: Make) -> tuple[Algorithm, Pair]:
    """With noise for epsilon 1: squared losses, of which one is at -clip or clip, and the next is around 0."""
    algorithm = make(make(1.0).guarantee.epsilon)
    x, y = np.ones((2, 2, 1)), np.zeros((2, 2))
    y[0, 0] = 9.0
    other = y.copy()
    other[0, 0] = -9.0
    return algorithm, (samples(x, y), samples(x, other))


def re_leak(make: Make) -> Case:
    """A sample moves the decision and its message, and through the next gradient the next message."""
    algorithm, pair = _descent(make)
    exchanges = np.array([1, 2])
    steps, units = (algorithm.public[name](exchanges) for name in ("step", "unit"))
    scales = algorithm.scales_of("gradient")[0].value * units
    x = steps[0], -2 * steps[1] * steps[0]  # x(1), and what is added to what was heard at x(2)

    def score(view: View) -> Floats:
        said = np.asarray(view.messages[..., 0], np.float64)
        heard = said[:, 0] @ PAIR.matrix()[0]
        shown = said[:, 0, 0], said[:, 1, 0] - heard
        return np.asarray(
            sum(log_ratio("laplace", s, r[:, None], m, -m) for s, r, m in zip(scales, shown, x, strict=True))
        )

    supremum = float(2 * (np.abs(x) / scales).sum())
    return Case(algorithm, *pair, score, supremum=supremum)


def raw_decision(make: Make) -> Case:
    """Seen by peers: the decision that follows the sample is played without noise."""
    algorithm, pair = _descent(make)
    return Case(algorithm, *pair, played, observer="peers", supremum=math.inf)


def _baseline(make: Make) -> tuple[Attack, ...]:
    return (
        attack("re-leak", "later gradients", "sharp", re_leak, make),
        attack("decision", "decisions without noise", "flaw", raw_decision, make),
    )


_OWN_GROWTH: dict[str, Any] = {"horizon": 3, "learner": 1, "growth": (0.3, 0.0)}
# Noise that grows so fast that nearly all is lost at the beginning.
_LONG: dict[str, Any] = {"horizon": 10_000, "steps": 3, "growth": 5.0}

ATTACKS: tuple[Attack, ...] = (
    attack("first sample", "the noise of three views", "sharp", first_sample, "laplace", horizon=3),
    attack("first sample", "the noise of three views", "sharp", first_sample, "gaussian", horizon=3, growth=0.0),
    *own_budgets(OWN, first_sample, "laplace", horizon=2),
    attack("own growth", "one learner's noise", "sharp", first_sample, "gaussian", **_OWN_GROWTH),
    attack("delayed", "samples gathered first", "sharp", first_sample, "laplace", horizon=3, delay=1),
    attack("long horizon", "a horizon of 10,000", "sharp", first_sample, "laplace", **_LONG),
    attack("active neighbour", "rounding of what is heard", "probe", active_neighbour, runs=3_000),
    attack("loud neighbour", "rounding of honest noise", "probe", loud_neighbour),
    attack("flipped label", "two exchanges", "realistic", flipped_label, "laplace"),
    attack("flipped label", "two exchanges", "realistic", flipped_label, "gaussian"),
    attack("moved target", "a whole transcript", "realistic", moved_target),
    attack("published: Theorem 5", "every gradient counted", "realistic", published_noise),
    attack("raw parameters", "theta without noise", "flaw", raw_parameters),
)
DSGD: tuple[Attack, ...] = _baseline(_dsgd)
PDOP: tuple[Attack, ...] = _baseline(_pdop)
VIEWS: tuple[Attack, ...] = (
    attack("three views", "the noise of all views", "sharp", three_views, "laplace"),
    attack("three views", "the noise of all views", "sharp", three_views, "gaussian"),
)
