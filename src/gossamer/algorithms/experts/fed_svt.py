"""Fed-SVT: many clients follow one expert, and change it only where it has lost too much (paper 004, Algorithms 4, 5).

    server, before the first step:   x_1 uniform among the d experts,   Lhat = L + Lap(a),   k = 0
    every N steps, client i:         sends S_i(x) = its losses of expert x in the last phase, for all x     line 5
    server:  q  = the losses of all clients since the last change, of the expert that was played           line 7
             if k < kappa and q + Lap(b) > Lhat:                                                           line 9
                 draw x_t with P(x) ~ exp( -eta max(S(x), m L*) / 2 ),   S = all losses so far             line 12
                 k = k + 1,   q = 0,   Lhat = L + Lap(a), fresh                                            line 14
             broadcasts x_t

Line 9 compares with Lhat (as printed, with L: then every phase costs), line 12 adds up the losses of x, not of what was
played. One sample moves all later q of its segment by the same amount, so that comparing costs
max(1/a, 1/b) in all (`mechanisms.AboveThreshold`, constant shift), and each of at most kappa draws costs eta.

Local, where nobody trusts the server, there is no sparse vector, which needs the exact sum:

    every N steps, client i:  sends the increments of a noisy prefix sum of its losses of expert x, for all x
    server:                   x = argmin of all that it was sent so far

One sample moves each of d sums by 1: d in the l1 norm, sqrt(d) in the Euclidean one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from scipy import optimize, stats

from gossamer.algorithms.authoring import FIRST, Calibration
from gossamer.algorithms.experts.clients import Client, State, clients_of, exchanges_of, experts_of, loss_bits
from gossamer.algorithms.experts.follow_the_leader import Leader
from gossamer.algorithms.experts.shared_budget import BELOW, largest_rate, of_both
from gossamer.algorithms.experts.totals import CAP, ROUNDED, relative
from gossamer.checks import check_choice, check_positive
from gossamer.core import Algorithm, Federation, Now, Phases, Rate, Segment, Server
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import (
    AboveThreshold,
    Additive,
    AdditiveLaw,
    Aggregation,
    Calibrated,
    ExponentialMechanism,
    PermuteAndFlip,
    pairs,
    prefix_sum,
)
from gossamer.mechanisms.selection import Selection
from gossamer.mechanisms.threshold import Watch
from gossamer.privacy import Assumption, Budget, Guarantee, NoiseSpec, Pure, Sensitivity, Unit, declared, no_guarantee
from gossamer.privacy.loss import BoundedRange
from gossamer.problems import Experts
from gossamer.spec import kind

Trust = Literal["central", "local"]
Draws = Literal["exponential", "permute-and-flip"]
SvtCalibration = Literal[Calibration, "remainder", "halves", "literal"]
"""Besides those of all algorithms: the paper's kappa and L with another split of epsilon, and line 9 as printed."""

_ONE_INCREMENT = "one sample moves one increment of a query by 1, since losses lie between 0 and 1 and sums are exact"
_EVERY_SCORE = (
    "one sample moves every score by 1 and a rounding, and what is drawn is shown only where a query is above"
)


class Watching(NamedTuple):
    """What the server remembers.

    Attributes:
        totals: all losses of every expert so far, packed pairs.
        expert: the one that is played.
        watch: of the sparse vector.
    """

    totals: jax.Array
    expert: jax.Array
    watch: Watch


@dataclass(frozen=True)
class SparseVector(Server):
    """Keeps the expert as long as the noisy loss since the last change is below the noisy threshold."""

    problem: Experts
    comparing: AboveThreshold
    drawing: Selection

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """For every phase, whether it is needed or not."""
        return {**self.comparing.noise(used_in="aggregate"), **self.drawing.noise(used_in="aggregate")}

    def init(self) -> Watching:
        """The threshold is a run-time value, so that other numbers of clients do not compile again."""
        zeros = pairs.zeros((self.problem.dim,))
        return Watching(zeros, jnp.int32(0), self.comparing.init())

    def aggregate(self, state: Watching, messages: jax.Array, now: Now) -> tuple[jax.Array, Watching]:
        """Lines 5 to 18; the first exchange, before any loss, only names an expert."""
        first = now.public["first"] > 0
        phase = jnp.sum(messages, axis=0)
        totals = pairs.add(pairs.unpack(state.totals), phase)
        lost, threshold = declared(phase[state.expert], _ONE_INCREMENT), now.public["threshold"]

        def compare() -> tuple[jax.Array, Watch]:
            return self.comparing.release(state.watch, lost, now.noise, now.grid, threshold=threshold)

        # After kappa changes nothing is compared any more, and the expert stays.
        goes_on = self.comparing.goes_on(state.watch) & ~first
        above, watch = jax.lax.cond(goes_on, compare, lambda: (jnp.bool_(False), state.watch))
        scores = declared(relative(totals, now.public["cap"], now.public["floor"]), _EVERY_SCORE)
        drawn, _ = self.drawing.release(self.drawing.init(), scores, now.noise, now.grid)
        expert = jnp.where(first | above, drawn, state.expert)
        return expert, Watching(pairs.pack(totals), expert, watch)


@dataclass(frozen=True)
class Constants:
    """The numbers of Theorem 2.6, and the noise.

    Attributes:
        changes: kappa.
        eta: what one draw costs.
        query: b, the scale of the noise on a query.
        threshold: a, that of the noise on the threshold.
        limit: L, without m L*.
    """

    changes: int
    eta: float
    query: float
    threshold: float
    limit: float


def most_changes(experts: int, failure: float) -> int:
    """How often the expert changes at most, except with this probability, where one expert never exceeds m L*.

    The potential sum_x exp(-eta S(x) / 2) falls from d to at least 1, so it halves ceil(log2 d) times at most. After a
    change the next comes before the next halving with probability 2/3 at most (Lemma D.2). So the number of changes is
    at most that of trials, each of which succeeds with probability 1/3, until ceil(log2 d) have succeeded.

    >>> most_changes(100, 0.05), 3 * 7 + math.ceil(24 * math.log(20))  # and the paper's kappa
    (33, 93)
    """
    halvings = math.ceil(math.log2(experts))
    return int(stats.nbinom.ppf(1 - failure, halvings, 1 / 3)) + halvings


def _constants(experts: int, rounds: int, failure: float, budget: Budget, calibration: SvtCalibration) -> Constants:
    """Kappa, eta, the noise and L: printed, or as small as the proof allows."""
    epsilon = budget.epsilon
    if calibration == "tight":
        changes = most_changes(experts, failure)

        def at(share: float) -> Constants:
            return _tight(changes, share, rounds, failure, budget)

        share = optimize.minimize_scalar(lambda share: at(share).limit, bounds=(0.02, 0.9), method="bounded").x
        return at(float(share))
    changes = math.ceil(3 * math.ceil(math.log2(experts)) + 24 * math.log(1 / failure))
    threshold, query = (2 / epsilon, 2 / epsilon) if calibration == "halves" else (4 / epsilon, 8 / epsilon)
    if calibration in ("remainder", "halves"):
        eta = _largest_eta(changes, max(1 / threshold, 1 / query), budget)
    else:
        eta = epsilon / (math.sqrt(changes * math.log(1 / budget.delta)) if budget.delta else 2 * changes)
    limit = query * math.log(2 * rounds**2 / failure) + 4 / eta
    return Constants(changes, eta, query, threshold, limit)


def _tight(changes: int, share: float, rounds: int, failure: float, budget: Budget) -> Constants:
    """With a share of epsilon for comparing.

    A change must mean a loss of 2 ln(4) / eta at least (then Lemma D.2 has 2/3) in spite of all noise, except with
    probability `failure`: one-sided tails of one draw for every phase, and of one threshold for every change.
    """
    scale = 1 / (share * budget.epsilon)
    eta = _largest_eta(changes, share * budget.epsilon, budget)
    slack = scale * (math.log(rounds / failure) + math.log((changes + 1) / failure))
    return Constants(changes, eta, scale, scale, slack + 2 * math.log(4) / eta)


def _largest_eta(changes: int, compared: float, budget: Budget) -> float:
    """The most that each draw may cost beside what comparing costs."""
    if budget.delta == 0:
        return (BELOW * budget.epsilon - compared) / changes
    return largest_rate(lambda eta: [Pure(compared), BoundedRange((eta,) * changes)], budget)


def _mechanisms(
    experts: int, rounds: int, constants: Constants, budget: Budget, calibration: SvtCalibration, draws: Draws
) -> tuple[Calibrated[AboveThreshold], Calibrated[Selection]]:
    """Comparing: one sample moves one increment by 1. Drawing: it moves every score by 1, and a rounding."""
    one = Sensitivity(l1=1.0, l2=1.0)
    threshold = 0.0 if calibration == "literal" else constants.threshold
    watch = AboveThreshold(count=constants.changes, shift="constant", horizon=rounds + 1)  # and the first exchange
    comparing = watch.at_scale(one, query=constants.query, threshold=threshold)
    # D = 1 + cap 2^-23 with cap = 64 scales and a scale of 2 D / eta.
    spare = 1 - 2 * CAP * ROUNDED / constants.eta
    if spare < 0.5:
        raise PrivacyError.of("budget", budget, "a larger epsilon", "scores would be rounded by more than one sample")
    moved = Sensitivity(l1=1 / spare, l2=1 / spare)
    if draws == "permute-and-flip" and budget.delta:
        allowed = "'exponential' where the budget has a delta"
        raise ConfigurationError("draws", draws, allowed, "its draws compose better")
    kind = ExponentialMechanism if draws == "exponential" else PermuteAndFlip
    drawing = kind(experts, best="lowest", touches=constants.changes, name="choice")
    return comparing, drawing.at_scale(moved, choice=2 * moved.l2 / constants.eta)


def _promise(
    comparing: Calibrated[AboveThreshold],
    drawing: Calibrated[Selection],
    budget: Budget,
    calibration: SvtCalibration,
    horizon: int,
) -> Guarantee:
    """What the server broadcasts is a function of what was compared and drawn."""
    if calibration == "literal":
        return no_guarantee("queries are compared with the bare threshold: what that costs grows with every phase")
    promise = of_both(
        comparing,
        drawing,
        budget,
        Assumption("sums are exact", "gossamer.algorithms.experts.clients.loss_bits"),
        Assumption("an expert is drawn only where the threshold is exceeded", f"{__name__}.SparseVector.aggregate"),
        Assumption("the played expert is fixed between two draws", f"{__name__}.SparseVector.aggregate"),
        horizon=horizon,
        proof="docs/algorithms/fed_svt.md",
    )
    if calibration != "published":
        return promise
    reason = f"published as epsilon {budget.epsilon:g}, with a proof for more" if budget.delta else ""
    return replace(promise, basis="published", reason=reason)


@dataclass(frozen=True)
class NoisyClient(Client):
    """Trusts nobody: what it sends are the increments of a noisy sum."""

    mechanism: Additive

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """One vector for every exchange."""
        return self.mechanism.noise(used_in="speak")

    def _start(self) -> Any:
        return self.mechanism.init()

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """The sums of the last steps through the mechanism."""
        sums = declared(state.sums, "one sample moves every sum of losses by 1, since losses lie between 0 and 1")
        noisy, private = self.mechanism.increment(state.private, sums, now.noise, now.grid)
        return noisy, state._replace(private=private)


def _noisy_leader(
    experts: Experts, network: Federation, budget: Budget, aggregation: Aggregation | None, horizon: int, steps: int
) -> Algorithm:
    """The local form, from what was checked; `steps`: between two exchanges."""
    law: AdditiveLaw = "gaussian" if budget.delta else "laplace"
    kind: Aggregation = aggregation or ("blt" if budget.delta else "tree")
    rounds, d = horizon // steps, experts.dim
    release = prefix_sum(kind, (d,), rounds, law=law, name="sums").calibrate(
        Sensitivity(l1=float(d), l2=math.sqrt(d)), budget
    )
    return Algorithm(
        name="fed_svt",
        problem=experts,
        topology=network,
        learner=NoisyClient(experts, loss_bits(network.learners, steps), release.mechanism),
        server=Leader(experts),
        guarantee=Guarantee(
            basis="proven",
            losses=release.losses,
            deltas=release.deltas,
            unit=Unit.SAMPLE,
            observer="peers",
            horizon=horizon,
            repeats="group",
            assumptions=(Assumption("losses lie between 0 and 1", "gossamer.problems.Experts.loss_sums"),),
            proof="docs/algorithms/fed_svt.md",
        ),
        schedule=Phases((Segment(rounds, steps),)),
        releases=(release,),
        parameters={"steps_per_exchange": steps, "trust": "local", "noise": f"{law}, {kind}"},
    )


@kind("algorithm", "fed_svt")
def fed_svt(
    problem: int | Experts,
    learners: int | Federation,
    *,
    horizon: int,
    steps_per_exchange: int = 10,
    optimal_loss: float = 0.0,
    failure: float = 0.05,
    budget: Budget,
    trust: Trust = "central",
    calibration: SvtCalibration = "tight",
    draws: Draws = "exponential",
    aggregation: Aggregation | None = None,
) -> Algorithm:
    """Prediction from experts, one of which loses little; the privacy of every single loss vector.

    Args:
        problem: the experts, or how many.
        learners: how many clients; all play the same expert.
        horizon: steps.
        steps_per_exchange: N, the steps of a phase.
        optimal_loss: L*: the best expert loses at most this much for every client. Nothing checks it, because the data
            are private: where it is wrong, regret suffers, privacy does not. A public sign: all changes are used up.
        failure: rho: the bound of Theorem 2.6 may fail with about this probability.
        budget: for the whole horizon; with a delta, draws compose better.
        trust: "central": the server sees every client's sums, and what it broadcasts is private. "local": clients noise
            their sums.
        calibration: "tight": the best split between comparing and drawing, kappa from the exact law of the number of
            changes, and the smallest L with which the proof works. "published": the paper's noise, eta and L. With the
            paper's kappa and L and another split: "remainder": its noise for comparing, and draws get all that is left;
            "halves": comparing costs half of epsilon, with less noise. "literal": line 9 as printed, no guarantee.
        draws: "exponential", or "permute-and-flip" for pure budgets: never worse for one draw, but Lemma D.2 and with
            it `failure` are about the exponential mechanism.
        aggregation: of local noise, by default "tree", or "blt" where the budget has a delta.

    >>> print(fed_svt(100, 16, horizon=10_000, budget=Budget(1.0)).describe())
    fed_svt on server with 16 learners
      steps_per_exchange: 10
      trust: central
      changes: at most 33
      threshold: 185.5 above m L* = 0
      noise: tight, exponential
      noise on query: scale 3.36
      noise on threshold: scale 3.36
      noise on choice: scale 94.03
      guarantee: Proven: over 10,000 steps, whoever sees all that the trusted server sends out, learns about one sample
      of one learner at most epsilon 1.
    """
    check_choice("trust", trust, Trust)
    check_choice("calibration", calibration, SvtCalibration)
    check_choice("draws", draws, Draws)
    experts, network = experts_of(problem), clients_of(learners)
    if not isinstance(budget, Budget):
        raise PrivacyError.of("budget", budget, "a Budget for the whole horizon", "try Budget(1.0)")
    rounds, bits = exchanges_of(horizon, steps_per_exchange), loss_bits(network.learners, steps_per_exchange)
    if check_positive("optimal_loss", optimal_loss, zero=True) > horizon:
        raise ConfigurationError("optimal_loss", optimal_loss, f"at most the horizon of {horizon:,}")
    if trust == "local":
        if draws != "exponential" or optimal_loss:
            raise ConfigurationError("draws, optimal_loss", (draws, optimal_loss), "their defaults with trust='local'")
        if calibration != "tight":
            raise ConfigurationError("calibration", calibration, "'tight' with trust='local'", "the paper has no other")
        return _noisy_leader(experts, network, budget, aggregation, horizon, steps_per_exchange)
    if aggregation is not None:
        raise ConfigurationError("aggregation", aggregation, "None with trust='central'")
    if check_positive("failure", failure) >= 0.5:
        raise ConfigurationError("failure", failure, "a probability above 0, below 1/2")
    constants = _constants(experts.dim, rounds, failure, budget, calibration)
    comparing, drawing = _mechanisms(experts.dim, rounds, constants, budget, calibration, draws)
    floor = math.ceil(16 * network.learners * optimal_loss) / 16
    return Algorithm(
        name="fed_svt",
        problem=experts,
        topology=network,
        learner=Client(experts, bits),
        server=SparseVector(experts, comparing.mechanism, drawing.mechanism),
        guarantee=_promise(comparing, drawing, budget, calibration, horizon),
        schedule=Phases((Segment(1, 0), Segment(rounds, steps_per_exchange))),
        public={
            "first": FIRST,
            "threshold": Rate(floor + constants.limit, power=0.0),
            "floor": Rate(floor, power=0.0),
            "cap": Rate(CAP * drawing.scales["choice"][0].value, power=0.0),
        },
        releases=(comparing, drawing),
        parameters={
            "steps_per_exchange": steps_per_exchange,
            "trust": trust,
            "changes": f"at most {constants.changes}",
            "threshold": f"{constants.limit:.4g} above m L* = {floor:g}",
            "noise": f"{calibration}, {draws}",
        },
    )
