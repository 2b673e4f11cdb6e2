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

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from gossamer.algorithms.authoring import Calibration, Table
from gossamer.algorithms.experts.clients import clients_of, experts_of
from gossamer.algorithms.experts.frank_wolfe_noise import BITS, Noise, Release, TreeNoise, Trust, local_noise
from gossamer.algorithms.experts.totals import CAP, relative
from gossamer.checks import check_choice, check_count, check_positive
from gossamer.core import Algorithm, Federation, Learner, Now, Phases, Segment, Server
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import Calibrated, Independent, pairs
from gossamer.mechanisms.picks import Picks
from gossamer.mechanisms.selection import Selection
from gossamer.privacy import Assumption, Budget, Guarantee, NoiseSpec, Unit, declared
from gossamer.problems import Block, Experts, Problem
from gossamer.sets import Simplex
from gossamer.spec import kind

Play = Literal["mixture", "expert"]

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
class FrankWolfeClient(Learner):
    """Sends v_s of every leaf, and plays the point that the experts named by the server lead to.

    Attributes:
        problem: the losses.
        depth: of the deepest tree.
        centre: of the range of a coordinate of a gradient.
        half: half that range.
        smoothness: beta, or infinity.
        expert: whether one expert, drawn from the mixture at every exchange, is played instead of it.
        whole: whether all samples of a block are used.
        at_vertices: what noises every sum of fresh gradients, once; all that follows is made of it.
        at_leaves: what noises every v_s that is sent, as in the paper: a sample is released as often as there are
            leaves below it. Without either the server is trusted with v_s.
    """

    problem: Problem
    depth: int
    centre: float
    half: float
    smoothness: float
    expert: bool
    whole: bool
    at_vertices: Independent | None = None
    at_leaves: Independent | None = None

    released = frozenset({"played"})

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """One vector for every exchange, and what drawing an expert takes."""
        drawn = _PICK.noise(used_in="decide") if self.expert else {}
        return drawn if self._mechanism is None else {**drawn, **self._mechanism.noise(used_in="speak")}

    @property
    def _mechanism(self) -> Independent | None:
        return self.at_leaves if self.at_vertices is None else self.at_vertices

    def init(self, identity: jax.Array) -> State:
        """All clients start at the same public point."""
        x = jnp.asarray(self.problem.initial_decision())
        path = jnp.broadcast_to(x, (self.depth + 1, self.problem.dim))
        zero, none = jnp.zeros(()), jnp.zeros_like(x)
        private = () if self._mechanism is None else self._mechanism.init()
        return State(x, x, path, none, zero, jnp.zeros_like(path), zero, zero, private)

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
        steps = jnp.round(jnp.clip(jnp.nan_to_num(rows) / unit, -1, 1) * 2 ** (BITS - 1)).astype(jnp.int32)
        used = jnp.arange(rows.shape[0], dtype=samples.dtype) < samples
        whole: jax.Array = jnp.sum(jnp.where(used[:, None], steps, 0), axis=0).astype(jnp.float32) / 2**BITS
        return whole

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """v_s of the leaf."""
        depth, private, sums = now.public["depth"].astype(jnp.int32), state.private, state.sums
        if self.at_vertices is not None:
            sums, private = self.at_vertices.release(private, declared(sums, _CLAMPED), now.noise, now.grid)
        mean = 2 * state.half * sums / now.public["samples"]
        value = jnp.where(depth == 0, 0.0, state.gradients[jnp.maximum(depth - 1, 0)]) + mean
        said, unit = value, now.public["unit"]
        if self.at_leaves is not None:
            noisy, private = self.at_leaves.release(private, declared(value / unit, _ON_A_PATH), now.noise, now.grid)
            said = noisy * unit
        gradients, rate, last = _from(state.gradients, depth, value), now.public["rate"], now.public["last"]
        return said, state._replace(gradients=gradients, rate=rate, last=last, private=private)

    def listen(self, state: State, heard: jax.Array) -> State:
        """(2): a step towards the expert that the server named; after the last leaf of a phase the point is played."""
        x = state.x + state.rate * (jax.nn.one_hot(heard, self.problem.dim) - state.x)
        return state._replace(x=x, played=jnp.where(state.last > 0, x, state.played))


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


def _promise(chosen: TreeNoise, release: Calibrated[Any]) -> Guarantee:
    """Everything that leaves a client (or the trusted server) is a function of the releases."""
    reason = ""
    if chosen.published:
        where = "choices" if chosen.central else "messages, of which the proof looks at one coordinate"
        reason = f"published as epsilon {chosen.budget.epsilon:g} of {where}"
    return Guarantee(
        basis="published" if chosen.published else "proven",
        reason=reason,
        losses=release.losses,
        deltas=release.deltas,
        unit=Unit.SAMPLE,
        observer="broadcasts" if chosen.central else "peers",
        horizon=chosen.horizon,
        repeats="group",
        assumptions=(
            Assumption("gradients and their differences are clamped", f"{__name__}.FrankWolfeClient.learn"),
            Assumption("a sample enters one vertex", "gossamer.core.Phases: each exchange reads new samples"),
        ),
        proof="docs/algorithms/fed_ope_stoch.md",
    )


def _algorithm(chosen: TreeNoise, network: Federation, play: Play) -> Algorithm:
    """The algorithm that checked options make."""
    leaves, units, release = chosen.leaves, chosen.units, chosen.calibrated()
    scale = release.scales["choice" if chosen.central else "gradient"][0].value
    known = {
        name: tuple(float(getattr(leaf, name)) for leaf in leaves) for name in ("depth", "samples", "rate", "last")
    }
    local = {} if chosen.central else {"at_vertices" if chosen.release == "vertex" else "at_leaves": release.mechanism}
    return Algorithm(
        name="fed_ope_stoch",
        problem=chosen.problem,
        topology=network,
        learner=FrankWolfeClient(
            chosen.problem,
            chosen.deepest,
            chosen.centre,
            chosen.half,
            smoothness=math.inf if chosen.published else chosen.smoothness,
            expert=play == "expert",
            whole=not chosen.published,
            **local,
        ),
        server=Selecting(release.mechanism) if chosen.central else Argmin(),
        guarantee=_promise(chosen, release),
        schedule=Phases(tuple(Segment(1, leaf.rows) for leaf in leaves)),
        public={
            **{name: Table(values) for name, values in known.items()},
            "unit": Table(units),
            "cap": Table(tuple(CAP * scale * unit for unit in units)),
        },
        releases=(release, _PICK.at_scale(expert=1.0)) if play == "expert" else (release,),
        parameters={
            "trust": chosen.trust,
            "phases": f"{len({leaf.phase for leaf in leaves})} trained, the first is {leaves[0].phase}",
            "trees": f"{min(leaf.tree for leaf in leaves)} to {chosen.deepest} deep, {len(leaves)} exchanges",
            "samples": f"{sum(leaf.samples for leaf in leaves):,} of {chosen.horizon:,} used",
            "noise": f"{chosen.calibration}, "
            + ("one choice" if chosen.central else f"{chosen.noise}, every {chosen.release}"),
            "play": play,
        },
    )


@kind("algorithm", "fed_ope_stoch")
def fed_ope_stoch(
    problem: int | Problem,
    learners: int | Federation,
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
        problem: a number of experts, or a problem whose decisions are mixtures: `problems.Experts`, or another one
            with domain=sets.Simplex().
        learners: how many clients; all play the same mixture.
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
    check_choice("play", play, Play)
    losses = experts_of(problem) if isinstance(problem, int | Experts) else problem
    if not isinstance(losses, Problem) or not isinstance(losses.domain, Simplex) or losses.dim < 2 or losses.l2:
        allowed = "a number of experts, or a problem with domain=sets.Simplex(), dim of at least 2 and without l2"
        raise ConfigurationError("problem", problem, allowed)
    if not isinstance(budget, Budget):
        raise PrivacyError.of("budget", budget, "a Budget for the whole horizon", "try Budget(1.0)")
    alpha = (1.0 if isinstance(losses, Experts) else losses.lipschitz) if lipschitz is None else lipschitz
    beta = losses.smoothness if smoothness is None else smoothness
    if alpha is None or beta is None:
        field = "lipschitz" if alpha is None else "smoothness"
        raise ConfigurationError(field, None, "a number, which the problem does not know", "or give a feature_bound")
    where, law = local_noise(trust, release, noise, budget, calibration)
    if trees is not None:
        check_count("trees", trees, least=1 if calibration == "published" else 0)
    network, steps = clients_of(learners), check_count("horizon", horizon)
    bounds = check_positive("lipschitz", alpha), check_positive("smoothness", beta, zero=True)
    chosen = TreeNoise(losses, network.learners, steps, budget, *bounds, trust, where, law, trees, calibration)
    if chosen.changed and trees is None:
        warnings.warn(
            f"trees: the default of T_1 is below 1, or does not fit, in {chosen.changed} phases", stacklevel=2
        )
    return _algorithm(chosen, network, play)
