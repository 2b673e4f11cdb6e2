"""Locally private learning that never ends, with a finite budget for each learner (paper 003, Algorithm 1).

For t = 0, 1, ..., with theta_i(0) public and y_i(0) = theta_i(0) (start="noised": with noise of size sigma_i):

    d_i(t) = (1/(t+1)) sum_{k<=t} grad l(theta_i(t), xi_i(k))               all samples so far, clipped      line 4
    theta_i(t+1) = Proj( theta_i(t) + gamma_t sum_j w_ij (y_j(t) - theta_i(t)) - lambda_t d_i(t) )   hidden    lines 7-8
    y_i(t+1) = theta_i(t+1) + noise of size sigma_i (t+2)^varsigma_i                                 sent      line 5

lambda_t = lambda_0 / (t+1)^v, gamma_t = gamma_0 / (t+1)^u, w_ij the weights of the network, w_ii = -sum_j w_ij. What is
played is an average of y_i, or y_i; never theta_i. A sample moves theta_i by less and less, and what all y_i together
cost is a sum that converges: `fading` has the proof, and `hidden` what float32 adds to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from gossamer.algorithms.authoring import Calibration, Delayed, Growth, Share, Shifted, require_averaging
from gossamer.algorithms.endless import hidden
from gossamer.algorithms.endless.fading import Fading, each_of, noise_for
from gossamer.algorithms.endless.history import COUNTED, PICKS, History, Kept, Sampled, buffer_of
from gossamer.algorithms.endless.sums import sums_of
from gossamer.algorithms.endless.theorems import Theorems
from gossamer.checks import check_choice, check_count, check_positive
from gossamer.core import Algorithm, Every, Learner, Now, Phases, Public, Rate, Segment
from gossamer.errors import ConfigurationError
from gossamer.mechanisms import Calibrated
from gossamer.mechanisms.independent import Views
from gossamer.mechanisms.picks import Picks
from gossamer.privacy import Assumption, Budget, Clip, Guarantee, NoiseSpec, Unit, declared, no_guarantee
from gossamer.problems import Block, Problem
from gossamer.spec import kind
from gossamer.topology import FixedTopology, Topology
from gossamer.topology.time_varying import FailingLinks

Noise = Literal["laplace", "gaussian"]
Publish = Literal["averaged", "last", "raw"]
Start = Literal["public", "noised"]
_NAME = "parameters"
_PICKS, _AVERAGING, _DELTA = 32, 3, 1e-5  # defaults of options that not every setting uses
_BEFORE = {"step": 0.0, "coupling": 0.0, "time": 1.0, "share": 0.0}  # at an exchange before the first sample
_FADES = "a sample's trace in the parameters fades as the recursion says that the noise is scaled for"


class State(NamedTuple):
    """What a learner remembers.

    Attributes:
        theta: the parameters, never released.
        rest: what float32 cannot hold of theta.
        y: the parameters with noise, as last sent.
        average: of all y so far.
        said: the sum over others of P_ij y_j, as last heard.
        gradient: d(t), of all samples so far at theta.
        kept: the samples, or their sums.
        own: P_ii, the weight of its own message.
        growth: varsigma.
        private: the mechanism's state.
    """

    theta: jax.Array
    rest: jax.Array
    y: jax.Array
    average: jax.Array
    said: jax.Array
    gradient: jax.Array
    kept: Any
    own: jax.Array
    growth: jax.Array
    private: Any


@dataclass(frozen=True)
class Endless(Learner):
    """One learner: theta stays with it, y leaves it.

    Attributes:
        problem: loss and decision set.
        history: what it keeps of its samples.
        mechanism: what y goes through.
        own: P_ii of every learner.
        growths: varsigma of every learner.
    """

    problem: Problem
    history: History
    mechanism: Views
    own: tuple[float, ...]
    growths: tuple[float, ...]

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """One vector for every message, and what the history draws."""
        return {**self.mechanism.noise(used_in="speak"), **self.history.noise}

    def init(self, identity: jax.Array) -> State:
        """All learners start at the same public point."""
        start, own = jnp.asarray(self.problem.initial_decision()), jnp.asarray(self.own, jnp.float32)[identity]
        return State(
            theta=start,
            rest=jnp.zeros(self.problem.dim),
            y=start,
            average=start,
            said=start - own * start,
            gradient=jnp.zeros(self.problem.dim),
            kept=self.history.init(),
            own=own,
            growth=jnp.asarray(self.growths, jnp.float32)[identity],
            private=self.mechanism.init(),
        )

    def learn(self, state: State, block: Block, now: Now) -> State:
        """Keep the samples, and take d(t) at theta(t)."""
        kept = self.history.add(state.kept, block)
        return state._replace(kept=kept, gradient=self.history.gradient(kept, state.theta, now.noise))

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """theta(t+1), and y(t+1)."""
        coupling, step, domain = now.public["coupling"], now.public["step"], self.problem.domain
        kept = (1 - state.own) * coupling + self.problem.l2 * step
        update = kept * state.theta + step * state.gradient
        pull = hidden.pulled(domain, state.said, coupling)
        theta, rest = hidden.moved(domain, (state.theta, state.rest), pull, update)
        size = now.public["time"] ** state.growth
        scaled = declared(theta / size, _FADES)
        view, private = self.mechanism.release(state.private, scaled, now.noise, now.grid)
        y = size * view
        average = state.average + now.public["share"] * (y - state.average)
        return y, state._replace(theta=theta, rest=rest, y=y, average=average, private=private)

    def listen(self, state: State, heard: jax.Array) -> State:
        """What others said, out of sum_j P_ij y_j; what a failed link would have carried counts as the own y."""
        return state._replace(said=heard - state.own * state.y)


@dataclass(frozen=True)
class Averaging(Endless):
    """Plays the average of what it sent."""

    released = frozenset({"average"})

    def decide(self, state: State, now: Now) -> jax.Array:
        """The average, in the decision set."""
        return self.problem.domain.project(state.average)


@dataclass(frozen=True)
class Last(Endless):
    """Plays what it sent last."""

    released = frozenset({"y"})

    def decide(self, state: State, now: Now) -> jax.Array:
        """y(t), in the decision set."""
        return self.problem.domain.project(state.y)


@dataclass(frozen=True)
class Raw(Endless):
    """Plays theta itself: to look at in a simulation, never to be used."""

    released = frozenset({"theta"})

    def decide(self, state: State, now: Now) -> jax.Array:
        """theta(t)."""
        return state.theta


@kind("algorithm", "ldp_endless")
def ldp_endless(
    problem: Problem,
    topology: Topology,
    *,
    budget: Budget | Sequence[Budget] | None = None,
    sigma: float | Sequence[float] | None = None,
    growth: float | Sequence[float] = 0.1,
    clip: float | Clip | None = None,
    horizon: int | None = None,
    buffer: int | None = None,
    steps_per_exchange: int = 1,
    step: Rate | None = None,
    coupling: Rate | None = None,
    delay: int = 0,
    start: Start = "public",
    noise: Noise = "laplace",
    history: Kept = "exact",
    picks: int = _PICKS,
    label_bound: float | None = None,
    smoothness: float | None = None,
    publish: Publish = "averaged",
    averaging: int = _AVERAGING,
    delta: float = _DELTA,
    calibration: Calibration = "tight",
) -> Algorithm:
    """Locally private online learning with a finite budget for each learner, also over an endless horizon.

    Args:
        problem: loss and decision set.
        topology: who hears whom: fixed, or with links that fail; symmetric doubly stochastic weights. The paper's w_ij
            are the weights of others.
        budget: for the whole horizon, one for all learners or one for each; the noise follows from it.
        sigma: the standard deviation of the noise at t = 0 instead, for all or for each; the budget follows from it.
        growth: varsigma, for all or for each: noise grows like (t+1)^varsigma.
        clip: what each sample's gradient is clipped to in Euclidean norm; not for sums.
        horizon: samples that each learner will see at most; None: as many as it can keep, or count: 2,147,483,647.
        buffer: samples that a learner can keep, by default as many as the horizon; a run that does not fit is refused.
        steps_per_exchange: samples that a learner keeps between two exchanges.
        step: lambda_t, by default 1 / (t+1)^0.77.
        coupling: gamma_t, by default 1 / (t+1)^0.65.
        delay: exchanges in which samples are only gathered. A first sample alone would move theta by lambda_0 C.
        start: "public": all know theta(0), and nothing is sent before the first sample. "noised": an exchange before it
            sends theta(0) with noise, as in the paper. That protects nothing, and is there for comparisons with it.
        noise: "laplace" (pure) or "gaussian" (needs a delta; need not grow: growth=0).
        history: "exact": all samples in a buffer, for linear models. "statistics": sums, for least squares.
            "polynomial": sums, for logistic regression with a slope that is linear in the score. "sampled": all samples
            in a buffer, `picks` of them for each gradient; nothing is proven.
        picks: samples drawn for a gradient with history="sampled".
        label_bound: labels are clipped to this with history="statistics".
        smoothness: L of a sample's loss where the problem does not know it (heuristic).
        publish: "averaged": an average of all y. "last": the last y. "raw": theta itself, without any guarantee.
        averaging: the weight of y(t) in the average grows like t^averaging.
        delta: at which the budget of a given sigma is stated where noise is Gaussian.
        calibration: "tight", or "published": the noise of Theorem 5(i), for a finite horizon.

    >>> from gossamer import problems, sets, topology
    >>> problem = problems.Logistic(4, feature_bound=1.0, domain=sets.L2Ball(10.0))
    >>> options = {"clip": 1.0, "horizon": 2000, "noise": "gaussian", "growth": 0.0}
    >>> print(ldp_endless(problem, topology.ring(5), budget=Budget(2.0, 1e-5), **options).describe())
    ldp_endless on ring(5)
      step: 1 / t^0.77 at exchange t
      coupling: 1 / t^0.65 at exchange t
      delay: 0
      history: exact
      clip: Clip(l2=1.0)
      noise: gaussian, growing like t^0, tight
      publish: averaged
      theorems: ...
      noise on parameters: scale 8.21
      guarantee: Proven: over 2,000 steps, all other participants together, who see every message and every decision,
      learn about one sample of one learner at most epsilon 2 and delta 1e-05.
    """
    chosen = {"noise": noise, "history": history, "publish": publish, "start": start, "calibration": calibration}
    for (field, given), choices in zip(chosen.items(), (Noise, Kept, Publish, Start, Calibration), strict=True):
        check_choice(field, given, choices)
    for field, value, usual, used, needs in (
        ("picks", picks, _PICKS, history == "sampled", "history='sampled'"),
        ("label_bound", label_bound, None, history == "statistics", "history='statistics'"),
        ("averaging", averaging, _AVERAGING, publish == "averaged", "publish='averaged'"),
        ("delta", delta, _DELTA, sigma is not None and noise == "gaussian", "sigma is given and noise='gaussian'"),
    ):
        if value != usual and not used:
            raise ConfigurationError(field, value, f"{usual} unless {needs}", "it has no effect here")
    network = _network(topology)
    n, rate, pull = topology.learners, step or Rate(1.0, 0.77), coupling or Rate(1.0, 0.65)
    for name, falling in (("step", rate), ("coupling", pull)):
        if not isinstance(falling, Rate) or falling.delay:
            raise ConfigurationError(name, falling, "a Rate without a delay", "give delay=... for both")
    rows = check_count("steps_per_exchange", steps_per_exchange)
    if rows > 1 and calibration == "published":
        hint = "(19) counts every gradient in full"
        raise ConfigurationError("steps_per_exchange", rows, "1 with calibration='published'", hint)
    early = int(start == "noised")
    if horizon is not None:
        check_count("horizon", horizon, least=rows, most=COUNTED - early)
    size = horizon if buffer is None else check_count("buffer", buffer, least=rows)
    kept: History
    if history in ("statistics", "polynomial"):
        kept, room = sums_of(problem, history, clip, label_bound), COUNTED - early
    else:
        kept = buffer_of(problem, history, clip, size, picks)
        room = kept.size
    horizon = room if horizon is None else horizon
    rounds = horizon // rows
    if check_count("delay", delay, least=0) >= rounds:
        raise ConfigurationError("delay", delay, f"fewer exchanges than the horizon has, {rounds:,}")
    growths = tuple(check_positive("growth", one, zero=True) for one in each_of("growth", growth, n))
    own = tuple(float(one) for one in network.sparse().diagonal())
    constants = kept.constants(smoothness, rounds, rows)
    fadings = [Fading(rate, pull, weight=1 - weight, delay=delay, **constants) for weight in own]
    # A first message without data is counted like one more at the end. Message e then holds theta(e-1) with noise that
    # grew to e^growth and costs Phi_{e-1} / e^growth, the term before the one counted for it: no sum of first terms is
    # below what it stands for.
    mechanism = Views((problem.dim,), horizon=rounds + early, law=noise, name=_NAME)
    release = noise_for(mechanism, fadings, growths, rounds, budget, sigma, calibration, delta)
    public: dict[str, Public] = {
        "step": Delayed(rate, delay),
        "coupling": Delayed(pull, delay),
        "time": Growth(1.0),
        "share": Share(check_count("averaging", averaging, least=0), delay),
    }
    if early:
        public = {name: Shifted(schedule, _BEFORE[name]) for name, schedule in public.items()}
    makes: dict[Publish, type[Endless]] = {"averaged": Averaging, "last": Last, "raw": Raw}
    picking = (Picks((picks,), name=PICKS).at_scale(picks=1.0),) if isinstance(kept, Sampled) else ()
    return Algorithm(
        name="ldp_endless",
        problem=problem,
        topology=topology,
        learner=makes[publish](problem, kept, mechanism, own, growths),
        guarantee=_promise(release, kept, horizon, publish),
        schedule=Phases((Segment(1, 0), Segment(COUNTED, rows))) if early else Every(rows),
        public=public,
        releases=(release, *picking),
        capacity=room // rows + early,
        parameters={
            "step": str(rate),
            "coupling": str(pull),
            "delay": delay,
            "history": history,
            "clip": kept.clip if kept.clip else "samples on arrival",
            "noise": f"{noise}, growing like t^{_range(growths)}, {calibration}",
            "publish": publish,
            **({"start": start} if early else {}),
            "theorems": Theorems.about(topology, network, kept, fadings[0], growths, noise).summary(),
        },
    )


def _network(topology: Topology) -> FixedTopology:
    """The weights without failures: a learner must know which share of what it hears is its own."""
    require_averaging(topology)
    base = topology.base if isinstance(topology, FailingLinks) else topology
    if not isinstance(base, FixedTopology) or not base.is_symmetric():
        allowed = "a fixed graph with symmetric weights, or one whose links fail"
        raise ConfigurationError("topology", topology.name, allowed)
    return base


def _promise(release: Calibrated[Views], kept: History, horizon: int, publish: Publish) -> Guarantee:
    if publish == "raw":
        return no_guarantee("the parameters themselves are played, and the messages tell everything else about them")
    known = kept.smoothness is not None
    smooth = Assumption("losses are smooth", "gossamer.problems: feature_bound" if known else "")
    averaged = "" if isinstance(kept, Sampled) else "gossamer.algorithms.endless.history"
    whole = Assumption("a gradient is the mean over all samples", averaged)
    counted = hidden.counted(kept.problem.domain)
    exact = f"parameters in {kept.problem.domain} are computed without rounding (an L2Ball or a Box would count it)"
    claim = "every rounding of float32 is counted, whatever is heard" if counted else exact
    rounded = Assumption(claim, "gossamer.algorithms.endless.hidden" if counted else "")
    loose = [one.claim for one in (smooth, whole, rounded) if not one.enforced]
    return Guarantee(
        basis="heuristic" if loose else "proven",
        reason="; ".join(f"nothing makes it true that {claim}" for claim in loose),
        losses=release.losses,
        deltas=release.deltas,
        unit=Unit.SAMPLE,
        observer="peers",
        horizon=horizon,
        repeats="group",
        assumptions=(kept.bounded, smooth, whole, rounded),
        proof="docs/algorithms/ldp_endless.md",
    )


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to t^{high:g}"
