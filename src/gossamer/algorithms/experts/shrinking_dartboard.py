"""The private shrinking dartboard, against any oblivious adversary (Geulen and others 2010; Asi and others 2022).

    server, after every phase:  l = the losses of the played expert in it, of all clients;   S(x) = all losses so far
        with probability (1 - p) exp(-eta l):   keep the expert
        else, if there are draws left:          draw x with P(x) ~ exp(-eta S(x))

Without a limit of draws the expert of phase t is distributed as Hedge's weights, yet it rarely changes. Privacy:

- *Keeping.* One sample moves l of its phase by 1 at most. The probability of keeping changes by a factor of e^eta at
  most, that of not keeping, 1 - (1-p) exp(-eta l), by 1 + (1-p)(1 - e^-eta) / p at most (at l = 0): together at most
  ln(1 + (1-p)(1 - e^-eta) / p), or eta, once. p > 0 is what makes this finite: some changes happen without a reason.
- *Drawing.* Each of at most K draws is an exponential mechanism whose scores one sample moves by 1 either way: its log
  probabilities move within an interval of length 2 eta.

Both compose, adaptively, since a draw and a decision to keep only depend on the data and on what was broadcast before.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gossamer.algorithms.authoring import FIRST
from gossamer.algorithms.experts.clients import Client, clients_of, exchanges_of, experts_of, loss_bits
from gossamer.algorithms.experts.shared_budget import largest_rate, of_both
from gossamer.algorithms.experts.totals import CAP, ROUNDED, relative
from gossamer.core import Algorithm, Federation, Now, Phases, Rate, Segment, Server
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import ExponentialMechanism, Keeping, pairs
from gossamer.privacy import Assumption, Budget, Loss, NoiseSpec, Pure, Sensitivity, declared
from gossamer.problems import Experts
from gossamer.spec import kind

_SHARE = 1 / 3  # of epsilon: for keeping
_FEW_DRAWS = "one sample moves every score by 1 and a rounding, and a counted number of draws is shown"


class State(NamedTuple):
    """What the server remembers: all losses (packed pairs), the played expert, and the draws that are left."""

    totals: jax.Array
    expert: jax.Array
    left: jax.Array


@dataclass(frozen=True)
class Dartboard(Server):
    """Keeps its expert with a probability that falls with what it loses."""

    problem: Experts
    keeping: Keeping
    drawing: ExponentialMechanism
    draws: int

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """For every phase."""
        return {**self.keeping.noise(used_in="aggregate"), **self.drawing.noise(used_in="aggregate")}

    def init(self) -> State:
        """All draws are left."""
        return State(pairs.zeros((self.problem.dim,)), jnp.int32(0), jnp.int32(self.draws))

    def aggregate(self, state: State, messages: jax.Array, now: Now) -> tuple[jax.Array, State]:
        """Keep, or draw; before any loss, draw for nothing."""
        first = now.public["first"] > 0
        phase = jnp.sum(messages, axis=0)
        totals = pairs.add(pairs.unpack(state.totals), phase)
        lost = declared(phase[state.expert] + now.public["restless"], "one sample moves the losses of a phase by 1")
        keep, _ = self.keeping.release((), lost, now.noise, now.grid)
        scores = declared(relative(totals, now.public["cap"]), _FEW_DRAWS)
        drawn, _ = self.drawing.release(self.drawing.init(), scores, now.noise, now.grid)
        change = ~first & ~keep & (state.left > 0)
        expert = jnp.where(first | change, drawn, state.expert)
        return expert, State(pairs.pack(totals), expert, state.left - change.astype(jnp.int32))


def _restless(eta: float, budget: Budget) -> float:
    """The p with which keeping costs its share of epsilon."""
    over = -math.expm1(-eta)
    return over / (over + math.expm1(_SHARE * budget.epsilon))


def _most_draws(eta: float, rounds: int, most: int, budget: Budget, failure: float) -> int:
    """Changes in so many phases with losses of at most `most` each, except with this probability (Bernstein)."""
    p = _restless(eta, budget)
    mean = rounds * (1 - (1 - p) * math.exp(-eta * most))
    log = math.log(1 / failure)
    return max(1, min(rounds, math.ceil(mean + math.sqrt(2 * mean * log) + log / 3)))


def _largest_eta(rounds: int, most: int, budget: Budget, failure: float) -> float:
    """The largest rate that the budget allows."""

    def losses(eta: float) -> list[Loss]:
        draws = _most_draws(eta, rounds, most, budget, failure)
        drawn = ExponentialMechanism(2, touches=draws).at_scale(Sensitivity(1.0, 1.0), noise=1 / eta).losses[0]
        return [Pure(max(eta, _SHARE * budget.epsilon)), drawn]

    return largest_rate(losses, budget)


@kind("algorithm", "shrinking_dartboard")
def shrinking_dartboard(
    problem: int | Experts,
    learners: int | Federation,
    *,
    horizon: int,
    steps_per_exchange: int = 1,
    budget: Budget,
    failure: float = 0.05,
) -> Algorithm:
    """Private prediction from experts without any assumption on their losses, with a trusted server.

    Args:
        problem: the experts, or how many.
        learners: how many clients.
        horizon: steps.
        steps_per_exchange: of a phase.
        budget: for the whole horizon; a third of epsilon goes to keeping, the rest to drawing.
        failure: how likely draws are to run out, at most; the last expert then stays.

    >>> shrinking_dartboard(10, 1, horizon=10_000, budget=Budget(1.0, 1e-5)).guarantee.epsilon <= 1
    True
    """
    experts, network = experts_of(problem), clients_of(learners)
    rounds, bits = exchanges_of(horizon, steps_per_exchange), loss_bits(network.learners, steps_per_exchange)
    if not isinstance(budget, Budget):
        raise PrivacyError.of("budget", budget, "a Budget for the whole horizon", "try Budget(1.0, 1e-5)")
    if not 0 < failure < 1:
        raise ConfigurationError("failure", failure, "a probability above 0, below 1")
    most = network.learners * steps_per_exchange
    eta = _largest_eta(rounds, most, budget, failure)
    restless, draws = _restless(eta, budget), _most_draws(eta, rounds, most, budget, failure)
    keeping = Keeping((), restless=restless, name="keep").at_scale(Sensitivity(1.0, 1.0), keep=1 / eta)
    moved = 1 + CAP / eta * ROUNDED
    drawing = ExponentialMechanism(experts.dim, best="lowest", touches=draws, name="choice").at_scale(
        Sensitivity(moved, moved), choice=moved / eta
    )
    counted = Assumption("draws are counted", f"{__name__}.Dartboard.aggregate")
    return Algorithm(
        name="shrinking_dartboard",
        problem=experts,
        topology=network,
        learner=Client(experts, bits),
        server=Dartboard(experts, keeping.mechanism, drawing.mechanism, draws),
        guarantee=of_both(
            keeping, drawing, budget, counted, horizon=horizon, proof="docs/algorithms/shrinking_dartboard.md"
        ),
        schedule=Phases((Segment(1, 0), Segment(rounds, steps_per_exchange))),
        public={
            "first": FIRST,
            "restless": Rate(-math.log1p(-restless) / eta, power=0.0),
            "cap": Rate(CAP / eta, power=0.0),
        },
        releases=(keeping, drawing),
        parameters={
            "steps_per_exchange": steps_per_exchange,
            "eta": f"{eta:.4g}",
            "restless": f"{restless:.4g}",
            "draws": f"at most {draws:,}",
        },
    )
