"""Locally private online federated learning with correlated noise (paper 001, Algorithm 1).

    learner i, round r:   z = x^r
      for t = 0 .. tau-1:   g = clip( grad f_i^{r,t}(z) )                                        line 8
                            S_i^{r,t} = (sum of all g so far) + b^{r,t} xi_i                     line 9   released
                            z = z - eta (S_i^{r,t} - S_i^{r,t-1})                                lines 10, 11
      send  ghat_i^r = (x^r - z) / (eta tau)                                                     lines 13, 14
    server:   x^{r+1} = x^r - eta eta_g tau mean_i ghat_i^r                                      line 16

xi_i are independent Gaussian draws of scale V_i and b^{r,t} is a row of B, with B C = A the matrix of prefix sums: see
`mechanisms.Factorized`. Everything after line 9 is a function of the released sums (eq. (3)), so one sample costs what
it costs there, V_i = 2 B_g max|c| / mu*(epsilon, delta) in the tight calibration; Lemma IV.8 in the published one.

`release="rounds"`: local steps are exact and never shown, and only the round's sum is released, with one row of
noise. One sample moves that sum by what `round_sum` proves for the losses at hand.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.algorithms.authoring import Calibration
from gossamer.algorithms.federated.round_sum import LossClass, RoundSum, round_sum
from gossamer.algorithms.federated.theorems import lemma_iv_8, regret_of
from gossamer.checks import check_choice, check_count, check_positive
from gossamer.core import Algorithm, Every, Federation, Learner, Now, Rate, Server
from gossamer.errors import ConfigurationError
from gossamer.mechanisms import Additive, Aggregation, Calibrated, Independent, prefix_sum
from gossamer.privacy import (
    Assumption,
    Budget,
    Clip,
    Guarantee,
    NoiseSpec,
    Sensitivity,
    Unit,
    budgets_of,
    declared,
    no_guarantee,
)
from gossamer.problems import Block, Problem, check_clip
from gossamer.sets import L2Ball
from gossamer.spec import kind

Release = Literal["steps", "rounds"]
Publish = Literal["last", "averaged"]

_ENDLESS = 2**20  # rows of noise for which the averaging length of an endless stream is chosen
_MOVED = "one sample moves the sum of a round's gradients by what `round_sum` has for this class of losses"


class State(NamedTuple):
    """The global model, the average of such models and how many it holds, what is said, and the mechanism's state."""

    x: jax.Array
    average: jax.Array
    models: jax.Array
    said: jax.Array
    private: Any


@dataclass(frozen=True)
class LocalSteps(Learner):
    """Plain local steps: the baseline without noise (Mitra et al. 2021, [1] in the paper), and what all forms share."""

    problem: Problem
    clip: Clip | None
    steps_per_exchange: int
    averaging: int

    released = frozenset({"x", "average"})

    def init(self, identity: jax.Array) -> State:
        """Everybody starts at the same public point."""
        x = jnp.asarray(self.problem.initial_decision())
        return State(x, x, jnp.ones((), jnp.int32), jnp.zeros_like(x), self._start())

    def _start(self) -> Any:
        return ()

    def decide(self, state: State, now: Now) -> jax.Array:
        """The average of the last global models; of one of them, x^r itself."""
        return state.average

    def learn(self, state: State, block: Block, now: Now) -> State:
        """Tau local steps, each on a fresh sample."""
        return state._replace(said=self._gradients(state.x, block, now) / self.steps_per_exchange)

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """Says ghat."""
        return state.said, state

    def listen(self, state: State, heard: jax.Array) -> State:
        """x^{r+1}, and the mean of all models so far, which forgets exponentially after `averaging` rounds."""
        models = jnp.minimum(state.models + 1, self.averaging)
        average = heard + (1 - 1 / models.astype(heard.dtype)) * (state.average - heard)  # of one: exactly this one
        return state._replace(x=heard, average=average, models=models)

    def _gradients(self, x: jax.Array, block: Block, now: Now) -> jax.Array:
        """The sum of the gradients along exact local steps from x."""

        def step(moved: jax.Array, one: Block) -> tuple[jax.Array, None]:
            return moved + self.problem.clipped_gradient_sum(x - now.public["step"] * moved, one, self.clip), None

        moved: jax.Array = jax.lax.scan(step, jnp.zeros_like(x), self._by_step(block))[0]
        return moved

    def _by_step(self, block: Block) -> Block:
        return Block(*(leaf.reshape(self.steps_per_exchange, -1, *leaf.shape[1:]) for leaf in block))


@dataclass(frozen=True)
class NoisySteps(LocalSteps):
    """Algorithm 1: every gradient is released before the next one is taken."""

    mechanism: Additive

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """A row for every local step."""
        return self.mechanism.noise(used_in="learn", times=self.steps_per_exchange)

    def _start(self) -> Any:
        return self.mechanism.init()

    def learn(self, state: State, block: Block, now: Now) -> State:
        """Lines 7 to 13; l2 is no data, and comes after the noise."""

        def step(carried: tuple[jax.Array, Any], row: tuple[Block, Any]) -> tuple[tuple[jax.Array, Any], None]:
            (moved, private), (one, noise) = carried, row
            z = state.x - now.public["step"] * moved
            gradient = self.problem.clipped_data_gradient_sum(z, one, self.clip)
            noisy, private = self.mechanism.increment(private, gradient, noise, now.grid)
            return (moved + self.problem.add_l2(noisy, z), private), None

        start = jnp.zeros_like(state.x), state.private
        (moved, private), _ = jax.lax.scan(step, start, (self._by_step(block), now.noise))
        return state._replace(said=moved / self.steps_per_exchange, private=private)


@dataclass(frozen=True)
class NoisyRounds(LocalSteps):
    """Exact local steps from a public point, and one release of their sum; no local iterate is ever shown."""

    mechanism: Additive
    radius: float

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """A row for every round."""
        return self.mechanism.noise(used_in="learn")

    def _start(self) -> Any:
        return self.mechanism.init()

    def learn(self, state: State, block: Block, now: Now) -> State:
        """Sum of the round's gradients, released once."""
        x = L2Ball(self.radius).project(state.x) if math.isfinite(self.radius) else state.x
        gradients = declared(self._gradients(x, block, now), _MOVED)
        noisy, private = self.mechanism.increment(state.private, gradients, now.noise, now.grid)
        return state._replace(said=noisy / self.steps_per_exchange, private=private)


@dataclass(frozen=True)
class AveragingServer(Server):
    """Adds up the mean of what the learners say. It projects what it broadcasts, not what it adds up.

    Correlated noise cancels in the sum; a projection in between would keep part of it for ever.
    """

    problem: Problem

    def init(self) -> jax.Array:
        """The sum starts at x^0."""
        return jnp.asarray(self.problem.initial_decision())

    def aggregate(self, state: jax.Array, messages: jax.Array, now: Now) -> tuple[jax.Array, jax.Array]:
        """Line 16."""
        total = state - now.public["global step"] * jnp.mean(messages, axis=0)
        return self.problem.domain.project(total), total


def _calibrated(
    mechanism: Additive, sensitivity: Sensitivity, clip: Clip, budgets: tuple[Budget, ...], calibration: Calibration
) -> Calibrated[Additive]:
    """Tight: V = sensitivity * max|c| / mu*(epsilon, delta). Published: Lemma IV.8."""
    tight = mechanism.calibrate(sensitivity, budgets)
    if calibration == "tight":
        return tight
    scales = [lemma_iv_8(clip.norm, mechanism.gain(mechanism.horizon), budget) for budget in budgets]
    return replace(mechanism.at_scale(sensitivity, gradient=scales), deltas=tight.deltas)


def _promise(release: Calibrated[Additive], clip: Clip, horizon: int | None, moved: RoundSum | None) -> Guarantee:
    clipped = "gossamer.problems.Problem.clipped_data_gradient_sum"
    losses = Assumption(f"losses are of the class {moved.loss_class!r}", moved.enforced_by) if moved else None
    loose = "" if losses is None or losses.enforced else f"nothing makes it true that {losses.claim}"
    return Guarantee(
        basis="heuristic" if loose else "proven",
        reason=loose,
        losses=release.losses,
        deltas=release.deltas,
        unit=Unit.SAMPLE,
        observer="peers",
        horizon=horizon,
        # Fresh noise on every gradient: each occurrence of a record is a release of its own. Else they may add up.
        repeats="compose" if isinstance(release.mechanism, Independent) and moved is None else "group",
        assumptions=(
            Assumption(f"every sample's gradient is clipped: {clip}", clipped),
            Assumption("a sample enters one gradient", "gossamer.core.Every: each exchange reads new samples"),
            *((losses,) if losses else ()),
        ),
        proof="docs/algorithms/online_federated.md",
    )


@kind("algorithm", "online_federated")
def online_federated(
    problem: Problem,
    learners: int | Federation,
    *,
    horizon: int | None,
    steps_per_exchange: int,
    budget: Budget | Sequence[Budget] | None,
    clip: float | Clip | None = None,
    step: float | Rate,
    server_step: float = 1.0,
    aggregation: Aggregation = "blt",
    release: Release = "steps",
    loss_class: LossClass | None = None,
    smoothness: float | None = None,
    publish: Publish = "last",
    averaging: int | None = None,
    calibration: Calibration = "tight",
) -> Algorithm:
    """Federated online learning in which gradients leave a learner through a matrix factorisation only.

    Args:
        problem: loss and decision set.
        learners: how many; a `Federation` where not all take part in every round.
        horizon: the samples that each learner will see at most; None: no end ("blt", "tree" and "independent").
        steps_per_exchange: tau: samples, and steps, between two exchanges with the server.
        budget: for the whole horizon, or one for each learner; Gaussian noise needs a delta. None: no noise and no
            guarantee, the baseline [1] of the paper.
        clip: what each sample's gradient is clipped to; a number bounds its Euclidean norm.
        step: eta, of the local steps.
        server_step: eta_g: the server moves by eta eta_g tau times the mean of what it hears.
        aggregation: "blt" (constant memory), "toeplitz" (remembers all noise), "optimal" (so does this; made once for a
            horizon, then read from a cache), "tree", or "independent" (fresh noise at every step: the baseline [3] of
            the paper).
        release: "steps": noise on every gradient. "rounds": on the sum of a round's gradients only.
        loss_class: with rounds: why one sample moves that sum by little. By default the best class that the problem is
            known to be in; one that it is not known to be in makes the guarantee heuristic. See `round_sum`.
        smoothness: L where the problem does not know it (heuristic).
        publish: "last": the global model is played. "averaged": a running mean of all global models is, which has less
            noise and costs no privacy; local steps start at the global model all the same.
        averaging: rounds after which the mean forgets; by default as many as a full gradient needs to move the model as
            far as the noise does, and half of all rounds at most.
        calibration: "tight", or "published": the noise of Lemma IV.8, which is more than the budget needs.

    >>> from gossamer.problems import Logistic
    >>> options = {"horizon": 4000, "steps_per_exchange": 4, "clip": 1.0, "step": 0.1}
    >>> algorithm = online_federated(Logistic(100), 20, budget=Budget(2.0, 1e-3), **options)
    >>> print(algorithm.describe())
    online_federated on server with 20 learners
      steps per exchange: 4
      step: 0.1 at every exchange
      server step: 1.0
      clip: Clip(l2=1.0)
      noise: blt, a row for every step, tight
      publish: the last model
      noise on gradient: scale 5.5...
      guarantee: Proven: over 4,000 steps, all other participants together, who see every message and every decision,
      learn about one sample of one learner at most epsilon 2 and delta 0.001.
    """
    check_choice("aggregation", aggregation, Aggregation)
    check_choice("release", release, Release)
    check_choice("publish", publish, Publish)
    check_choice("calibration", calibration, Calibration)
    network, rate = Federation.of(learners), Rate.of("step", step)
    tau = check_count("steps_per_exchange", steps_per_exchange)
    rounds = None if horizon is None else check_count("horizon", horizon, least=tau) // tau
    by_round = release == "rounds"
    _refuse_what_has_no_effect(aggregation, by_round, loss_class, smoothness, calibration, budget)
    calibrated: Calibrated[Additive] | None = None
    if budget is None:
        bounded, words = check_clip(clip), "none"
        promise = no_guarantee("every learner sends its raw gradients to the server")
        learner = LocalSteps(problem, bounded, tau, _averaging(publish, averaging, rounds, 1.0))
    else:
        bounded = Clip.of(clip)
        largest = float(rate(np.ones(1, np.int64))[0])
        moved = round_sum(problem, bounded, largest, tau, loss_class, smoothness) if by_round else None
        sensitivity = moved.sensitivity if moved else bounded.sensitivity(Unit.SAMPLE, problem.dim)
        rows = rounds if by_round or rounds is None else rounds * tau
        mechanism = prefix_sum(aggregation, (problem.dim,), rows, law="gaussian", name="gradient")
        calibrated = _calibrated(mechanism, sensitivity, bounded, budgets_of(budget, network.learners), calibration)
        promise = _promise(calibrated, bounded, horizon, moved)
        length = _averaging(publish, averaging, rounds, _noise_in_gradients(calibrated, bounded, network.learners, tau))
        words = f"{aggregation}, a row for every {'round' if by_round else 'step'}, {calibration}"
        if moved:
            learner = NoisyRounds(problem, bounded, tau, length, mechanism, moved.radius)
            words += f", local steps start within {moved.radius:.4g} of zero" * math.isfinite(moved.radius)
        else:
            learner = NoisySteps(problem, bounded, tau, length, mechanism)
    return Algorithm(
        name="online_federated",
        problem=problem,
        topology=network,
        learner=learner,
        server=AveragingServer(problem),
        guarantee=promise,
        schedule=Every(tau),
        public={
            "step": rate,
            "global step": replace(rate, scale=rate.scale * check_positive("server_step", server_step) * tau),
        },
        releases=(calibrated,) if calibrated else (),
        parameters={
            "steps per exchange": tau,
            "step": str(rate),
            "server step": server_step,
            **({} if bounded is None else {"clip": bounded}),
            "noise": words,
            "publish": f"the average, over {learner.averaging} rounds" if learner.averaging > 1 else "the last model",
        },
        regret_bound=None
        if by_round or learner.averaging > 1
        else regret_of(problem, bounded, network, rate, server_step, tau, rounds, calibrated),
    )


def _refuse_what_has_no_effect(
    aggregation: Aggregation,
    by_round: bool,
    loss_class: LossClass | None,
    smoothness: float | None,
    calibration: Calibration,
    budget: object,
) -> None:
    if budget is None:
        given = {"aggregation": aggregation, "release": "rounds" if by_round else "steps", "calibration": calibration}
        for name, usual in {"aggregation": "blt", "release": "steps", "calibration": "tight"}.items():
            if given[name] != usual:
                raise ConfigurationError(name, given[name], f"{usual!r} with budget=None, which has no noise")
    if by_round and calibration == "published":
        raise ConfigurationError("calibration", calibration, "'tight' with release='rounds'", "the paper has no other")
    for name, value in (("loss_class", loss_class), ("smoothness", smoothness)):
        if value is not None and not by_round:
            raise ConfigurationError(name, value, "None unless release='rounds'")


def _noise_in_gradients(release: Calibrated[Additive], clip: Clip, learners: int, tau: int) -> float:
    """The noise in a global model, in Euclidean norm, counted in the moves of one round of full gradients."""
    mechanism, scales = release.mechanism, release.scales["gradient"]
    mean_square = sum(scale.value**2 for scale in scales) / len(scales)
    variance = mean_square * mechanism.mean_error(mechanism.horizon or _ENDLESS) / learners
    return math.sqrt(variance * math.prod(mechanism.shape)) / (tau * clip.norm)


def _averaging(publish: Publish, averaging: int | None, rounds: int | None, noise: float) -> int:
    """Rounds to average over: as given, or as many as the noise is gradients, at most half of all; 1 for the last."""
    if publish == "last":
        if averaging is not None:
            raise ConfigurationError("averaging", averaging, "None unless publish='averaged'")
        return 1
    if averaging is not None:
        return check_count("averaging", averaging)
    return max(1, math.ceil(noise) if rounds is None else min(math.ceil(noise), rounds // 2))
