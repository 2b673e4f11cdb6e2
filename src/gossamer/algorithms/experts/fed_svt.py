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

Where nobody trusts the server, each client noises its sums, and the server names the leader: there is no sparse vector.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from scipy import optimize, stats

from gossamer.algorithms.authoring import FIRST
from gossamer.algorithms.experts.clients import (
    BELOW,
    CAP,
    ROUNDED,
    SPARE,
    Client,
    State,
    clients_of,
    experts_of,
    floored,
    loss_bits,
    phases_of,
    relative,
)
from gossamer.algorithms.experts.follow_the_leader import Leader
from gossamer.checks import check_choice, check_positive
from gossamer.core import Algorithm, Federation, Now, Phases, Rate, Segment, Server
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import (
    AboveThreshold,
    Additive,
    Calibrated,
    ExponentialMechanism,
    Factorized,
    Independent,
    PermuteAndFlip,
    TreeSum,
    pairs,
)
from gossamer.mechanisms.selection import Selection
from gossamer.mechanisms.threshold import Watch
from gossamer.privacy import (
    Assumption,
    Budget,
    Guarantee,
    NoiseSpec,
    Pure,
    Sensitivity,
    Unit,
    accounting,
    compose,
    declared,
    no_guarantee,
)
from gossamer.privacy.loss import BoundedRange, Loss
from gossamer.problems import Experts
from gossamer.spec import kind

Trust = Literal["central", "local"]
Calibration = Literal["tight", "A", "B", "C", "published", "literal"]
Draws = Literal["exponential", "permute-and-flip"]
Aggregation = Literal["tree", "blt", "independent"]


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
        scores = declared(relative(floored(totals, now.public["floor"]), now.public["cap"]), _EVERY_SCORE)
        drawn, _ = self.drawing.release(self.drawing.init(), scores, now.noise, now.grid)
        expert = jnp.where(first | above, drawn, state.expert)
        return expert, Watching(pairs.pack(totals), expert, watch)


@dataclass(frozen=True)
class NoisyClient(Client):
    """Trusts nobody: what it sends are the increments of a noisy sum."""

    mechanism: Additive

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """One vector for every phase."""
        return self.mechanism.noise(used_in="speak")

    def _start(self) -> Any:
        return self.mechanism.init()

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """The phase's sums through the mechanism."""
        sums = declared(state.sums, "one sample moves every sum of losses by 1, since losses lie between 0 and 1")
        noisy, private = self.mechanism.increment(state.private, sums, now.noise, now.grid)
        return noisy, state._replace(private=private)


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


@kind("algorithm", "fed_svt")
def fed_svt(
    experts: int | Experts,
    clients: int | Federation,
    *,
    horizon: int,
    phase: int = 10,
    optimal_loss: float = 0.0,
    failure: float = 0.05,
    budget: Budget,
    trust: Trust = "central",
    calibration: Calibration = "tight",
    draws: Draws = "exponential",
    aggregation: Aggregation | None = None,
) -> Algorithm:
    """Prediction from experts, one of which loses little; the privacy of every single loss vector.

    Args:
        experts: how many, or the problem.
        clients: how many; all play the same expert.
        horizon: steps.
        phase: N: steps between two exchanges.
        optimal_loss: L*: the best expert loses at most this much for every client. Nothing checks it, because the data
            are private: where it is wrong, regret suffers, privacy does not. A public sign: all changes are used up.
        failure: rho: the bound of Theorem 2.6 may fail with about this probability.
        budget: for the whole horizon; with a delta, draws compose better.
        trust: "central": the server sees every client's sums, and what it broadcasts is private. "local": clients noise
            their sums.
        calibration: "tight": the best split between comparing and drawing, kappa from the exact law of the number of
            changes, and the smallest L with which the proof works. "published": the paper's noise, eta and L. "A", "B",
            "C": the paper's kappa and L with another split: eta = 3 epsilon / (4 kappa); half the
            budget on each, less noise; the largest eta for a delta. "literal": line 9 as printed, without guarantee.
        draws: "exponential", or "permute-and-flip" for pure budgets: never worse for one draw, but Lemma D.2 and with
            it `failure` are about the exponential mechanism.
        aggregation: of local noise: "tree" (pure budgets), "blt" (with a delta), "independent".

    >>> print(fed_svt(100, 16, horizon=10_000, budget=Budget(1.0)).describe())
    fed_svt on server with 16 learners
      phase: 10
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
    for field, given, choices in (
        ("trust", trust, Trust),
        ("calibration", calibration, Calibration),
        ("draws", draws, Draws),
    ):
        check_choice(field, given, choices)
    problem, network = experts_of(experts), clients_of(clients)
    if not isinstance(budget, Budget):
        raise PrivacyError.of("budget", budget, "a Budget for the whole horizon", "try Budget(1.0)")
    rounds, bits = phases_of(horizon, phase), loss_bits(network.learners, phase)
    if check_positive("optimal_loss", optimal_loss, zero=True) > horizon:
        raise ConfigurationError("optimal_loss", optimal_loss, f"at most the horizon of {horizon:,}")
    if trust == "local":
        if draws != "exponential" or optimal_loss:
            raise ConfigurationError("draws, optimal_loss", (draws, optimal_loss), "their defaults with trust='local'")
        return _local(problem, network, budget, aggregation, calibration, horizon, phase)
    if aggregation is not None:
        raise ConfigurationError("aggregation", aggregation, "None with trust='central'")
    if check_positive("failure", failure) >= 0.5:
        raise ConfigurationError("failure", failure, "a probability above 0, below 1/2")
    constants = _constants(problem.dim, rounds, failure, budget, calibration)
    comparing, drawing = _mechanisms(problem.dim, rounds, constants, budget, calibration, draws)
    floor = math.ceil(16 * network.learners * optimal_loss) / 16
    return Algorithm(
        name="fed_svt",
        problem=problem,
        topology=network,
        learner=Client(problem, bits),
        server=SparseVector(problem, comparing.mechanism, drawing.mechanism),
        guarantee=_promise(comparing, drawing, budget, calibration, horizon),
        schedule=Phases((Segment(1, 0), Segment(rounds, phase))),
        public={
            "first": FIRST,
            "threshold": Rate(floor + constants.limit, power=0.0),
            "floor": Rate(floor, power=0.0),
            "cap": Rate(CAP * drawing.scales["choice"][0].value, power=0.0),
        },
        releases=(comparing, drawing),
        parameters={
            "phase": phase,
            "trust": trust,
            "changes": f"at most {constants.changes}",
            "threshold": f"{constants.limit:.4g} above m L* = {floor:g}",
            "noise": f"{calibration}, {draws}",
        },
    )


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


def _constants(experts: int, rounds: int, failure: float, budget: Budget, calibration: Calibration) -> Constants:
    """Kappa, eta, the noise and L: printed, or as small as the proof allows."""
    epsilon = budget.epsilon
    if calibration in ("A", "B", "C") and bool(budget.delta) != (calibration == "C"):
        kind = "one with a delta" if calibration == "C" else "a pure one"
        raise PrivacyError.of("budget", budget, f"{kind} for calibration={calibration!r}", "'tight' takes both")
    if calibration == "tight":
        changes = most_changes(experts, failure)

        def at(share: float) -> Constants:
            return _tight(changes, share, rounds, failure, budget)

        share = optimize.minimize_scalar(lambda share: at(share).limit, bounds=(0.02, 0.9), method="bounded").x
        return at(float(share))
    changes = math.ceil(3 * math.ceil(math.log2(experts)) + 24 * math.log(1 / failure))
    threshold, query = (2 / epsilon, 2 / epsilon) if calibration == "B" else (4 / epsilon, 8 / epsilon)
    if calibration in ("A", "B", "C"):
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

    def cost(eta: float) -> float:
        return compose([Pure(compared), BoundedRange((eta,) * changes)]).epsilon((1 - SPARE) * budget.delta)

    return accounting.largest_within(cost, BELOW * budget.epsilon)


def _mechanisms(
    experts: int, rounds: int, constants: Constants, budget: Budget, calibration: Calibration, draws: Draws
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
        raise ConfigurationError(
            "draws", draws, "'exponential' where the budget has a delta", "its draws compose better"
        )
    kind = ExponentialMechanism if draws == "exponential" else PermuteAndFlip
    drawing = kind(experts, best="lowest", touches=constants.changes, name="choice")
    return comparing, drawing.at_scale(moved, choice=2 * moved.l2 / constants.eta)


def _promise(
    comparing: Calibrated[AboveThreshold],
    drawing: Calibrated[Selection],
    budget: Budget,
    calibration: Calibration,
    horizon: int,
) -> Guarantee:
    if calibration == "literal":
        return no_guarantee("queries are compared with the bare threshold: what that costs grows with every phase")
    loss: Loss = compose([comparing.losses[0], drawing.losses[0]])
    published = calibration == "published"
    return Guarantee(
        basis="published" if published else "proven",
        reason=f"published as epsilon {budget.epsilon:g}, with a proof for more" if published and budget.delta else "",
        losses=(loss,),
        deltas=((1 - SPARE) * budget.delta,),
        unit=Unit.SAMPLE,
        observer="broadcasts",
        horizon=horizon,
        repeats="group",
        assumptions=(
            Assumption("losses lie between 0 and 1", "gossamer.problems.Experts.loss_sums"),
            Assumption("sums are exact", "gossamer.algorithms.experts.clients.loss_bits"),
            Assumption("an expert is drawn only where the threshold is exceeded", f"{__name__}.SparseVector.aggregate"),
            Assumption("the played expert is fixed between two draws", f"{__name__}.SparseVector.aggregate"),
        ),
        proof="docs/algorithms/fed_svt.md",
    )


def _local(
    problem: Experts,
    network: Federation,
    budget: Budget,
    aggregation: Aggregation | None,
    calibration: Calibration,
    horizon: int,
    phase: int,
) -> Algorithm:
    """Noisy sums of every client, and the leader among them."""
    if calibration != "tight":
        raise ConfigurationError("calibration", calibration, "'tight' with trust='local'", "the paper has no other")
    kind = aggregation or ("blt" if budget.delta else "tree")
    check_choice("aggregation", kind, Aggregation)
    if kind == "blt" and budget.delta == 0:
        raise PrivacyError.of("budget", budget, "one with a delta for aggregation='blt'", "'tree' has Laplace noise")
    rounds, law, shape = horizon // phase, "gaussian" if budget.delta else "laplace", (problem.dim,)
    mechanism: Additive
    if kind == "blt":
        mechanism = Factorized.blt(shape, rounds, name="sums")
    else:
        make = TreeSum if kind == "tree" else Independent
        mechanism = make(shape, horizon=rounds, law=law, name="sums")  # type: ignore[arg-type]
    release = mechanism.calibrate(Sensitivity(l1=float(problem.dim), l2=math.sqrt(problem.dim)), budget)
    return Algorithm(
        name="fed_svt",
        problem=problem,
        topology=network,
        learner=NoisyClient(problem, loss_bits(network.learners, phase), mechanism),
        server=Leader(problem),
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
        schedule=Phases((Segment(rounds, phase),)),
        releases=(release,),
        parameters={"phase": phase, "trust": "local", "noise": f"{law}, {kind}"},
    )
