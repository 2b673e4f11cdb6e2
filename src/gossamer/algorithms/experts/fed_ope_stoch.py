"""Fed-DP-OPE-Stoch: many clients, stochastic losses on the simplex, private Frank-Wolfe (paper 004, Algorithms 1 to 3).

    phase p = 1, 2, ... has 2^(p-1) steps; all clients play x_p in it; x_p comes from losses that no other used:

    for trees j = 1, ..., T_1, vertices in depth-first order:
        root:          x_s = x,  v_s = mean of grad l(x) over b fresh samples                              line 5
        left child:    x_s and v_s of its parent                                                           line 9
        right child:   x_s = x, v_s = v_parent + mean of grad l(x_s) - grad l(x_parent) over 2^-|s| b      (3)
        leaf:          clients send v_s with noise,  server: w = argmin_n of the mean                      (1)
                       x = (1 - eta_k) x + eta_k e_w,   eta_k = 2 / (k+1),   k = 1, 2, ... within a phase  (2)

Along a path to a leaf exactly one vertex has fresh samples: the root at the first leaf, else a right child. So one
exchange is one leaf: its block holds that vertex' samples, which no other vertex sees.

Every gradient is centred and clamped: a coordinate of one sample's gradient, or of a difference of two, lies within
[-r, r], r = half the range of a gradient at the root, and min(range, beta |x_s - x_parent|_1) below, which all clients
know. So one sample moves a coordinate of the mean over c samples by D_s = 2 r / c at most, and smoothness is no
assumption of the privacy proof: where losses are less smooth than was said, differences are clamped.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from gossamer.algorithms.authoring import Table
from gossamer.algorithms.experts.clients import CAP, ROUNDED, clients_of, experts_of, relative
from gossamer.algorithms.experts.frank_wolfe_trees import Leaf, leaves_of
from gossamer.algorithms.experts.shared_selections import SharedFlip, Spread
from gossamer.checks import check_choice, check_count, check_positive
from gossamer.core import Algorithm, Federation, Learner, Now, Phases, Segment, Server
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import Calibrated, ExponentialMechanism, Independent, NoisyMax, pairs
from gossamer.mechanisms.picks import Picks
from gossamer.mechanisms.selection import Selection
from gossamer.mechanisms.views import Views
from gossamer.privacy import (
    Assumption,
    Budget,
    Guarantee,
    NoiseSpec,
    Sensitivity,
    Unit,
    declared,
)
from gossamer.problems import Block, Experts, Linear, Problem
from gossamer.sets import Simplex

Trust = Literal["local", "central"]
Release = Literal["vertex", "leaf"]
Noise = Literal["laplace", "gaussian"]
Play = Literal["mixture", "expert"]
Calibration = Literal["tight", "published"]

_BITS = 12  # a coordinate of one sample is rounded to 2^-12 of its range: sums of integers are exact
_UNIT = 2.0**-24  # float32: the relative error of one operation
_MOST = 2**19  # samples of one vertex: their sum of integers of up to 2^11 each fits into 32 bits
_CLAMPED = "one sample moves a coordinate of a sum by 1 and a rounding, since gradients are clamped to their range"
_ON_A_PATH = "one sample moves v_s at the leaves below one vertex only, by what its clamped gradient allows"
_PICK = Picks((1,), name="expert")


class State(NamedTuple):
    """What a client remembers.

    Attributes:
        played: x_p.
        x: the current point, from what the server broadcast.
        points: x_s along the path to the leaf, by depth.
        sums: the fresh vertex' clamped gradients: integers, in units of 2^-12 of their range.
        half: r of the fresh vertex.
        gradients: v_s along the path, by depth; noised where vertices are released.
        rate: eta_k of the leaf.
        last: whether it is the phase's last.
        private: the mechanism's state.
    """

    played: jax.Array
    x: jax.Array
    points: jax.Array
    sums: jax.Array
    half: jax.Array
    gradients: jax.Array
    rate: jax.Array
    last: jax.Array
    private: Any


@dataclass(frozen=True)
class TrustingClient(Learner):
    """Sends v_s as it is: the server is trusted with it. Plays the mixture.

    Attributes:
        problem: the losses.
        depth: of the deepest tree.
        centre: of the range of a coordinate of a gradient.
        half: half that range.
        smoothness: beta, or infinity.
        expert: whether one expert, drawn from the mixture at every exchange, is played instead of it.
        whole: whether all samples of a block are used.
    """

    problem: Problem
    depth: int
    centre: float
    half: float
    smoothness: float
    expert: bool
    whole: bool

    released = frozenset({"played"})

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """What drawing an expert takes."""
        return _PICK.noise(used_in="decide") if self.expert else {}

    def init(self, identity: jax.Array) -> State:
        """All clients start at the same public point."""
        x = jnp.asarray(self.problem.initial_decision())
        path = jnp.broadcast_to(x, (self.depth + 1, self.problem.dim))
        zero, none = jnp.zeros(()), jnp.zeros_like(x)
        return State(x, x, path, none, zero, jnp.zeros_like(path), zero, zero, self._start())

    def _start(self) -> Any:
        return ()

    def decide(self, state: State, now: Now) -> jax.Array:
        """x_p, or an expert drawn from it."""
        if not self.expert:
            return state.played
        below = jnp.cumsum(state.played) < now.noise[_PICK.name][0] * jnp.sum(state.played)
        one: jax.Array = jax.nn.one_hot(jnp.minimum(jnp.sum(below), self.problem.dim - 1), self.problem.dim)
        return one

    def learn(self, state: State, block: Block, now: Now) -> State:
        """Line 5 at a root, (3) at a right child: clamped, rounded, added up."""
        depth = now.public["depth"].astype(jnp.int32)
        parent = state.points[jnp.maximum(depth - 1, 0)]
        moved = jnp.minimum(jnp.sum(jnp.abs(state.x - parent)), 2.0)
        below = jnp.minimum(2 * self.half, self.smoothness * moved) if math.isfinite(self.smoothness) else 2 * self.half
        half = jnp.where(depth == 0, self.half, below)
        sums = self._sums(state.x, parent, depth == 0, half, block, now.public["samples"])
        return state._replace(sums=sums, half=half, points=_from(state.points, depth, state.x))

    def _sums(
        self, x: jax.Array, parent: jax.Array, root: jax.Array, half: jax.Array, block: Block, samples: jax.Array
    ) -> jax.Array:
        """In units of the range: one sample moves a coordinate by 1 at most, and by one rounding of the sum."""
        if isinstance(self.problem, Experts) and self.problem.summed:  # gradients of linear losses do not change
            total: jax.Array = (jnp.sum(block.x, axis=0) - samples * self.centre) / (2 * self.half)
            return total * root.astype(total.dtype)
        here = self.problem.row_gradients(x, block)
        rows = here - jnp.where(root, self.centre, self.problem.row_gradients(parent, block))
        unit = jnp.where(half > 0, half, 1.0)
        steps = jnp.round(jnp.clip(jnp.nan_to_num(rows) / unit, -1, 1) * 2 ** (_BITS - 1)).astype(jnp.int32)
        used = jnp.arange(rows.shape[0], dtype=samples.dtype) < samples
        whole: jax.Array = jnp.sum(jnp.where(used[:, None], steps, 0), axis=0).astype(jnp.float32) / 2**_BITS
        return whole

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """v_s of the leaf."""
        depth = now.public["depth"].astype(jnp.int32)
        increment, private = self._noised(state.private, state.sums, now)
        mean = 2 * state.half * increment / now.public["samples"]
        value = jnp.where(depth == 0, 0.0, state.gradients[jnp.maximum(depth - 1, 0)]) + mean
        said, private = self._said(private, value, now)
        return said, state._replace(
            gradients=_from(state.gradients, depth, value),
            rate=now.public["rate"],
            last=now.public["last"],
            private=private,
        )

    def _noised(self, private: Any, sums: jax.Array, now: Now) -> tuple[jax.Array, Any]:
        return sums, private

    def _said(self, private: Any, value: jax.Array, now: Now) -> tuple[jax.Array, Any]:
        return value, private

    def listen(self, state: State, heard: jax.Array) -> State:
        """(2): a step towards the expert that the server named; after the last leaf of a phase the point is played."""
        x = state.x + state.rate * (jax.nn.one_hot(heard, self.problem.dim) - state.x)
        return state._replace(x=x, played=jnp.where(state.last > 0, x, state.played))


@dataclass(frozen=True)
class PrivateClient(TrustingClient):
    """Trusts nobody: noise on every sum of fresh gradients, once; all that follows is made of it."""

    mechanism: Independent

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """One vector for every exchange."""
        return {**super().noise, **self.mechanism.noise(used_in="speak")}

    def _start(self) -> Any:
        return self.mechanism.init()

    def _noised(self, private: Any, sums: jax.Array, now: Now) -> tuple[jax.Array, Any]:
        return self.mechanism.release(private, declared(sums, _CLAMPED), now.noise, now.grid)


@dataclass(frozen=True)
class LeafClient(PrivateClient):
    """The paper's: noise on v_s at every leaf, so that a sample is released as often as there are leaves below it."""

    def _noised(self, private: Any, sums: jax.Array, now: Now) -> tuple[jax.Array, Any]:
        return sums, private

    def _said(self, private: Any, value: jax.Array, now: Now) -> tuple[jax.Array, Any]:
        scaled = declared(value / now.public["unit"], _ON_A_PATH)
        noisy, private = self.mechanism.release(private, scaled, now.noise, now.grid)
        return noisy * now.public["unit"], private


def _from(path: jax.Array, depth: jax.Array, value: jax.Array) -> jax.Array:
    """The path with the value at this depth and below: left children copy it."""
    return jnp.where((jnp.arange(path.shape[0]) >= depth)[:, None], value, path)


@dataclass(frozen=True)
class Argmin(Server):
    """Names the coordinate with the least sum: messages are private already."""

    def init(self) -> Any:
        """Nothing to remember."""
        return ()

    def aggregate(self, state: Any, messages: jax.Array, now: Now) -> tuple[jax.Array, Any]:
        """(1)."""
        return jnp.argmin(jnp.sum(messages, axis=0)).astype(jnp.int32), state


@dataclass(frozen=True)
class Selecting(Server):
    """Trusted with all v_s: what it names is drawn, and that alone leaves it."""

    selection: Selection

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """One number for every expert."""
        return self.selection.noise(used_in="aggregate")

    def init(self) -> Any:
        """Nothing to remember."""
        return ()

    def aggregate(self, state: Any, messages: jax.Array, now: Now) -> tuple[jax.Array, Any]:
        """(1), privately. One sample moves the sum of many clients by little: it is added up in pairs."""
        zeros = jnp.zeros_like(messages[0])
        total, _ = jax.lax.scan(lambda pair, one: (pairs.add(pair, one), None), (zeros, zeros), messages)
        scores = declared(relative(total, now.public["cap"]) / now.public["unit"], _ON_A_PATH)
        return self.selection.release(self.selection.init(), scores, now.noise, now.grid)[0], state


@dataclass(frozen=True)
class Setting:
    """Everything that a user chose; `algorithm` makes the algorithm of it."""

    problem: Problem
    network: Federation
    horizon: int
    budget: Budget
    lipschitz: float
    smoothness: float
    trust: Trust
    release: Release
    noise: Noise
    trees: int | None
    play: Play
    calibration: Calibration

    @property
    def published(self) -> bool:
        """Whether noise and batches are the paper's."""
        return self.calibration == "published"

    @cached_property
    def centre(self) -> float:
        """Of the range of a coordinate of a gradient: losses of experts lie between 0 and 1."""
        return self.lipschitz / 2 if isinstance(self.problem, Experts) and not self.published else 0.0

    @cached_property
    def half(self) -> float:
        """Half that range."""
        return self.lipschitz / 2 if self.centre else self.lipschitz

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """All exchanges; where the default of T_1 could not be taken, a warning."""
        found, changed = leaves_of(self.horizon, self._deepest, published=self.published, fixed=self.trees is not None)
        if changed and self.trees is None:
            warnings.warn(f"trees: the default of T_1 is below 1, or does not fit, in {changed} phases", stacklevel=5)
        return found

    def _deepest(self, phase: int, steps: int) -> int | None:
        """T_1 = floor( log2(b epsilon beta sqrt(m) / (alpha ln d)) / 2 ); None: no tree, for linear losses.

        Differences of a linear loss' gradients are 0: right children would only use up samples. A trusted server adds
        noise once and not for each client: there m stands where the paper has its root.
        """
        if self.trees is not None:
            return self.trees or None
        if self.smoothness == 0 and not self.published:
            return None
        m = self.network.learners ** (1.0 if self.trust == "central" and not self.published else 0.5)
        batch = 2 ** (phase - 1) / (phase - 1) ** 2 if self.published else steps
        ratio = batch * self.budget.epsilon * self.smoothness * m / (self.lipschitz * math.log(self.problem.dim))
        return math.floor(math.log2(ratio) / 2) if ratio > 0 else 0

    def moved(self, leaf: Leaf) -> float:
        """D_s, how far one sample moves a coordinate of v_s at most, wherever x_s and its parent lie."""
        linear = isinstance(self.problem, Linear)
        below = (0.0 if linear else 2 * self.half) if self.published else min(2 * self.half, 2 * self.smoothness)
        return 2 * (below if leaf.depth else self.half) / leaf.samples

    @cached_property
    def units(self) -> tuple[float, ...]:
        """What releases of v_s are divided by, the same for all leaves of a tree.

        One sample at s moves as many leaves as lie below s by D_s each: pure losses add these up, others their squares.
        """
        power = 1.0 if self.pure else 0.5
        largest: dict[tuple[int, int], float] = {}
        for leaf in self.leaves:
            here = self.printed(leaf) if self.published else leaf.leaves**power * self.moved(leaf)
            largest[leaf.phase, leaf.tree] = max(largest.get((leaf.phase, leaf.tree), 0.0), here)
        return tuple(largest[leaf.phase, leaf.tree] for leaf in self.leaves)

    def printed(self, leaf: Leaf) -> float:
        """The paper's scale times epsilon: 4 alpha 2^j / b."""
        return float(4 * self.lipschitz * 2**leaf.tree / (leaf.samples << leaf.depth))

    @property
    def pure(self) -> bool:
        """Whether losses add up, and not their squares."""
        return self.budget.delta == 0 if self.trust == "central" else self.noise == "laplace"

    @property
    def deepest(self) -> int:
        """Of all trees."""
        return max(leaf.tree for leaf in self.leaves)

    def slack(self) -> float:
        """How far one sample moves what is released with all roundings, in units of D of a root, the range over c.

        Sums are integers, rounded once. v_s is rounded a few times for every vertex of its path, by 2^-24 of the range
        each; a score once more, by a share of its cap.
        """
        most = max(leaf.samples for leaf in self.leaves)
        if most > _MOST:
            hint = "sums of so many gradients are not exact"
            raise ConfigurationError("horizon", self.horizon, f"at most {_MOST:,} samples of one vertex", hint)
        if self.trust == "local" and self.release == "vertex":
            return 1 + most * _UNIT
        return 1 + most * 16 * (self.deepest + 1) ** 2 * _UNIT

    def released(self) -> Calibrated[Any]:
        """What data go through."""
        d, slack, count = self.problem.dim, self.slack(), len(self.leaves)
        worst = max(leaf.leaves * self.moved(leaf) / unit for leaf, unit in zip(self.leaves, self.units, strict=True))
        if self.trust == "central":
            return self._selection(slack, worst)
        kind = Independent if self.release == "vertex" else Views
        mechanism = kind((d,), horizon=count, law=self.noise, name="gradient")
        if not self.published:
            return mechanism.calibrate(Sensitivity(slack * d, slack * math.sqrt(d)), self.budget)
        stacked = Sensitivity(slack * worst * d, slack * worst * math.sqrt(d))
        return mechanism.at_scale(stacked, gradient=1 / self.budget.epsilon)

    def _selection(self, slack: float, worst: float) -> Calibrated[Selection]:
        options: dict[str, Any] = {"best": "lowest", "touches": 1, "name": "choice"}
        if self.published:
            printed = NoisyMax(self.problem.dim, **options)
            return printed.at_scale(Sensitivity(slack * worst, slack * worst), choice=1 / self.budget.epsilon)
        kind = SharedFlip if self.pure else Spread if self.deepest else ExponentialMechanism
        shared = {} if kind is ExponentialMechanism else {"leaves": 2**self.deepest}
        mechanism: Selection = kind(self.problem.dim, **options, **shared)
        rough = mechanism.calibrate(Sensitivity(slack, slack), self.budget).scales["choice"][0].value
        moved = slack + 2 * CAP * rough * ROUNDED * (2**self.deepest if self.deepest else 1)
        return mechanism.calibrate(Sensitivity(moved, moved), self.budget)

    def learner(self, release: Calibrated[Any]) -> TrustingClient:
        """One client's side."""
        whole = not self.published
        beta = self.smoothness if whole else math.inf
        options = (self.problem, self.deepest, self.centre, self.half, beta, self.play == "expert", whole)
        if self.trust == "central":
            return TrustingClient(*options)
        return (PrivateClient if self.release == "vertex" else LeafClient)(*options, release.mechanism)

    def algorithm(self) -> Algorithm:
        """All of it."""
        release, leaves, units = self.released(), self.leaves, self.units
        central = self.trust == "central"
        scale = release.scales["choice" if central else "gradient"][0].value
        drawn = (_PICK.at_scale(expert=1.0),) if self.play == "expert" else ()
        return Algorithm(
            name="fed_ope_stoch",
            problem=self.problem,
            topology=self.network,
            learner=self.learner(release),
            server=Selecting(release.mechanism) if central else Argmin(),
            guarantee=self.promise(release),
            schedule=Phases(tuple(Segment(1, leaf.rows) for leaf in leaves)),
            public={
                "depth": Table(tuple(float(leaf.depth) for leaf in leaves)),
                "samples": Table(tuple(float(leaf.samples) for leaf in leaves)),
                "rate": Table(tuple(leaf.rate for leaf in leaves)),
                "last": Table(tuple(float(leaf.last) for leaf in leaves)),
                "unit": Table(units),
                "cap": Table(tuple(CAP * scale * unit for unit in units)),
            },
            releases=(release, *drawn),
            parameters={
                "trust": self.trust,
                "phases": f"{len({leaf.phase for leaf in leaves})} trained, the first is {leaves[0].phase}",
                "trees": f"{min(leaf.tree for leaf in leaves)} to {self.deepest} deep, {len(leaves)} exchanges",
                "samples": f"{sum(leaf.samples for leaf in leaves):,} of {self.horizon:,} used",
                "noise": f"{self.calibration}, {'one choice' if central else f'{self.noise}, every {self.release}'}",
                "play": self.play,
            },
        )

    def promise(self, release: Calibrated[Any]) -> Guarantee:
        """Everything that leaves a client (or the trusted server) is a function of the releases."""
        reason = ""
        if self.published:
            where = "choices" if self.trust == "central" else "messages, of which the proof looks at one coordinate"
            reason = f"published as epsilon {self.budget.epsilon:g} of {where}"
        return Guarantee(
            basis="published" if self.published else "proven",
            reason=reason,
            losses=release.losses,
            deltas=release.deltas,
            unit=Unit.SAMPLE,
            observer="broadcasts" if self.trust == "central" else "peers",
            horizon=self.horizon,
            repeats="group",
            assumptions=(
                Assumption("gradients and their differences are clamped", f"{__name__}.TrustingClient.learn"),
                Assumption("a sample enters one vertex", "gossamer.core.Phases: each exchange reads new samples"),
            ),
            proof="docs/algorithms/fed_ope_stoch.md",
        )


def fed_ope_stoch(
    experts: int | Problem,
    clients: int | Federation,
    *,
    horizon: int,
    budget: Budget,
    lipschitz: float | None = None,
    smoothness: float | None = None,
    trust: Trust = "central",
    release: Release | None = None,
    noise: Noise | None = None,
    trees: int | None = None,
    play: Play = "mixture",
    calibration: Calibration = "tight",
) -> Algorithm:
    """Prediction from experts, or any losses on the simplex, that are drawn from one law.

    Args:
        experts: how many, or a problem whose decisions are mixtures: `problems.Experts`, or another one with
            domain=sets.Simplex().
        clients: how many; all play the same mixture.
        horizon: steps.
        budget: for the whole horizon.
        lipschitz: alpha: every coordinate of a gradient is clamped to [-alpha, alpha]; 1 for experts, whose losses lie
            between 0 and 1.
        smoothness: beta: a gradient changes by beta |x - y|_1 at most in every coordinate, and is clamped to that; by
            default the problem's, which is 0 for experts.
        trust: "central": the server sees every v_s, and which expert it names is private. "local": clients send noised
            values.
        release: of local clients: "vertex" (the default): every sum of fresh gradients is noised once. "leaf": v_s is
            noised at every leaf, as in the paper (the default of "published").
        noise: of local clients: "laplace" (pure budgets, the default for them) or "gaussian".
        trees: T_1, by default as in the paper, but no tree, only a root, for linear losses.
        play: "mixture", or "expert": one drawn from it for each block of samples, which may be half of all.
        calibration: "tight": batches that use whole phases, noise for d coordinates. "published": the paper's batches
            and noise; the guarantee says what that costs.

    >>> algorithm = fed_ope_stoch(20, 16, horizon=2**14, budget=Budget(1.0))
    >>> print(algorithm.describe())
    fed_ope_stoch on server with 16 learners
      trust: central
      phases: 14 trained, the first is 2
      trees: 0 to 0 deep, 14 exchanges
      samples: 16,383 of 16,384 used
      noise: tight, one choice
      play: mixture
      noise on choice: scale 2.016
      guarantee: Proven: over 16,384 steps, whoever sees all that the trusted server sends out, learns about one sample
      of one learner at most epsilon 1.
    """
    for name, given, choices in (
        ("trust", trust, Trust),
        ("play", play, Play),
        ("calibration", calibration, Calibration),
    ):
        check_choice(name, given, choices)
    problem = experts_of(experts) if isinstance(experts, int | Experts) else experts
    if not isinstance(problem, Problem) or not isinstance(problem.domain, Simplex) or problem.dim < 2 or problem.l2:
        allowed = "a number of experts, or a problem with domain=sets.Simplex(), dim of at least 2 and without l2"
        raise ConfigurationError("experts", experts, allowed)
    if not isinstance(budget, Budget):
        raise PrivacyError.of("budget", budget, "a Budget for the whole horizon", "try Budget(1.0)")
    alpha = (1.0 if isinstance(problem, Experts) else problem.lipschitz) if lipschitz is None else lipschitz
    beta = problem.smoothness if smoothness is None else smoothness
    if alpha is None or beta is None:
        field = "lipschitz" if alpha is None else "smoothness"
        raise ConfigurationError(field, None, "a number, which the problem does not know", "or give a feature_bound")
    chosen = _noise(noise, budget, trust, release, calibration)
    if trees is not None:
        check_count("trees", trees, least=1 if calibration == "published" else 0)
    return Setting(
        problem,
        clients_of(clients),
        check_count("horizon", horizon),
        budget,
        check_positive("lipschitz", alpha),
        check_positive("smoothness", beta, zero=True),
        trust,
        release or ("leaf" if calibration == "published" else "vertex"),
        chosen,
        trees,
        play,
        calibration,
    ).algorithm()


def _noise(
    noise: Noise | None, budget: Budget, trust: Trust, release: Release | None, calibration: Calibration
) -> Noise:
    """The law of local noise; what does not apply is refused."""
    if trust == "central":
        for name, given in (("noise", noise), ("release", release)):
            if given is not None:
                raise ConfigurationError(name, given, "None with trust='central'", "the server draws an expert")
        if calibration == "published" and budget.delta:
            raise PrivacyError.of("budget", budget, "a pure one with calibration='published'", "the paper has no other")
        return "laplace"
    if release is not None:
        check_choice("release", release, Release)
    if release == "vertex" and calibration == "published":
        raise ConfigurationError("release", release, "'leaf' with calibration='published'", "the paper has no other")
    chosen = noise or ("gaussian" if budget.delta else "laplace")
    check_choice("noise", chosen, Noise)
    if chosen == "gaussian" and (budget.delta == 0 or calibration == "published"):
        raise PrivacyError.of("noise", chosen, "'laplace' for pure budgets and for calibration='published'")
    return chosen
