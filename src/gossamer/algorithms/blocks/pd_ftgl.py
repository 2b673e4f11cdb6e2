"""PD-FTGL: private decentralised follow-the-generalised-leader (paper 000, Algorithms 1 and 2).

Rounds are cut into blocks of L. In block z every learner plays x_i(z) and sums its clipped gradients,
d_i(z) = sum_t (clip(grad f_{t,i}(x_i(z))) - alpha x_i(z)); meanwhile block z-1 is gossiped, L accelerated steps.

before gossip   S~_i(z)      = PrivateSum of clip(grad f) over blocks 1..z                     the only release
(default)       d~_i(z)      = S~_i(z) - S~_i(z-1) - L alpha x_i(z)
   coupled      z_i^0(z+1)   = z_i^L(z) + d~_i(z),  z_i^{-1}(z+1) = z_i^{L-1}(z) + d~_i(z)     sent, gossiped by (5)
   decoupled    z_i(z+1)     = z_i(z) + [d~_i(z) gossiped by (5) from d^0 = d^{-1} = d~_i(z)]

after gossip    w_i(z-1)     = d_i^L(z-1), gossiped by (5) from d^0 = d^{-1} = d_i(z-1)        sent raw
(the paper)     zhat_i(z)    = PrivateSum(w_i(1), ..., w_i(z-1))                               released

                d_i^{k+1}    = (1 + theta) sum_j P_ij d_j^k - theta d_i^{k-1},  k = 0..L-1     (5)
                x_i(z+1)     = argmin_{x in K} <zhat_i(z), x> + (alpha (z-1) L + 2h)/2 |x|^2   (6), or with z_i^L(z)

A sample is in one block and moves its sum by at most 2 G, whatever L is. So blocks cost nothing in privacy, and divide
the noise by L.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import jax

from gossamer.algorithms.authoring import Calibration
from gossamer.algorithms.blocks import block_rule
from gossamer.algorithms.blocks.block_learner import BlockLearner, State, Update
from gossamer.algorithms.blocks.block_options import BlockOptions, Chosen, Coupling, NoiseAt
from gossamer.algorithms.blocks.theorems import BlockSetting, theorem_3_6
from gossamer.checks import check_count
from gossamer.core import Algorithm, Every, Now
from gossamer.errors import ConfigurationError
from gossamer.mechanisms import Additive, AdditiveLaw, Aggregation, Calibrated, Gossiped, Prefix, prefix_sum
from gossamer.privacy import Assumption, Budget, Clip, Guarantee, NoiseSpec, Sensitivity, Unit, declared
from gossamer.problems import Block, Problem
from gossamer.sets import DecisionSet
from gossamer.spec import kind
from gossamer.topology import AcceleratedGossip, Pair, Topology, accelerated_block

_SPREAD = "one sample moves one d_j by twice the clip, and what gossip makes of it by the matrix that scales the noise"
_ROUNDING = 2.0**-24  # float32: the relative error of one addition


@dataclass(frozen=True)
class Leader:
    """Follow the leader: argmin over K of <dual, x> + weight/2 |x|^2, eq. (6) of paper 000: one projection."""

    lag = 0
    error = 0.0

    def __call__(
        self, domain: DecisionSet, x: jax.Array, before: jax.Array, dual: jax.Array, weight: jax.Array
    ) -> jax.Array:
        """The point of K nearest to the minimiser without bounds."""
        return domain.project(-dual / weight)


@dataclass(frozen=True)
class PrivateBlocks(BlockLearner):
    """What both forms share: one draw a block, and noisy sums that start at zero."""

    mechanism: Additive | Gossiped

    @property
    def noise(self) -> dict[str, NoiseSpec]:
        """One draw a block."""
        return self.mechanism.noise(used_in="speak")

    def init(self, identity: jax.Array) -> State:
        """Duals and sums start at zero."""
        return super().init(identity)._replace(private=Prefix.start(self.mechanism))


@dataclass(frozen=True)
class BeforeGossip(PrivateBlocks):
    """Releases every d_i(z) once, through its mechanism, and gossips what was released: all the rest is public."""

    coupled: bool

    def learn(self, state: State, block: Block, now: Now) -> State:
        """What is released are clipped gradients alone: l2 knows no data, and comes after the noise."""
        return state._replace(gradient=self.problem.clipped_data_gradient_sum(state.x, block, self.clip))

    def speak(self, state: State, now: Now) -> tuple[Pair, State]:
        """The next decision from what was gossiped during this block; then d_i(z), noised, starts on its way."""
        noised, private = state.private.release(self.mechanism, state.gradient, now.noise, now.grid)
        gradient = self.problem.add_l2(noised, state.x, self.block)
        fresh, heard = self._fresh(gradient, state.x), state.heard
        message = Pair(heard.now + fresh, heard.before + fresh) if self.coupled else Pair(fresh, fresh)
        dual = heard.now if self.coupled else state.dual + heard.now
        return message, self._next(state, dual, now)._replace(private=private)


@dataclass(frozen=True)
class AfterGossip(PrivateBlocks):
    """Gossips raw d_i(z), and releases the sum of what gossip made of them: decisions are private, messages are not."""

    def speak(self, state: State, now: Now) -> tuple[Pair, State]:
        """zhat_i(z), the private sum of all that was gossiped, and the next decision; d_i(z) is sent as it is."""
        gossiped = declared(state.heard.now, _SPREAD)
        _, private = state.private.release(self.mechanism, gossiped, now.noise, now.grid)
        fresh = self._fresh(state.gradient, state.x)
        return Pair(fresh, fresh), self._next(state, private.total, now)._replace(private=private)


def calibrated(
    options: BlockOptions, block: int, gossip_steps: int, aggregation: Aggregation
) -> Calibrated[Additive] | Calibrated[Gossiped]:
    """The mechanism, with the scale that the budget asks for, or the printed one."""
    blocks = options.horizon // block
    if blocks < (1 if options.before else 2):
        least = block if options.before else 2 * block
        raise ConfigurationError("horizon", options.horizon, f"at least {least} steps for blocks of {block}")
    shape, rows = (options.problem.dim,), blocks if options.before else blocks - 1
    inner = prefix_sum(aggregation, shape, rows, law=options.noise, name="gradient")
    sensitivity = options.clip.sensitivity(Unit.SAMPLE, options.problem.dim, rows=block)
    if options.before:
        return inner.calibrate(sensitivity, options.budgets)
    mechanism = Gossiped.of(inner, AcceleratedGossip(gossip_steps).matrix(options.topology))
    sensitivity = _with_rounding(sensitivity, options, block)
    if options.published:
        return mechanism.at_scale(sensitivity, gradient=_printed_scale(options))
    return mechanism.calibrate(sensitivity, options.budgets[:1])


def _with_rounding(sensitivity: Sensitivity, options: BlockOptions, block: int) -> Sensitivity:
    """With float32: gossip adds n products for each of n learners, and two terms are added to d_j before it.

    Nodes on a network gossip step by step in float64 and round once, at the end: docs/network.md shows that it is less.
    """
    largest = 2 * (options.topology.learners**2 + 2) * _ROUNDING * block * options.bound
    return Sensitivity(sensitivity.l1 + largest * math.sqrt(options.problem.dim), sensitivity.l2 + largest)


def _printed_scale(options: BlockOptions) -> float:
    """Theorems 3.6 and 3.9: 6 sqrt(d) (G + alpha R) (2 + log2 T) / epsilon."""
    bound, height = options.printed_bound + options.strong_convexity * options.radius, 2 + math.log2(options.horizon)
    return 6 * math.sqrt(options.problem.dim) * bound * height / options.budgets[0].epsilon


def guarantee(options: BlockOptions, chosen: Chosen) -> Guarantee:
    """What the release gives: against everybody before gossip, and after it against those who see decisions only."""
    clipped = f"every sample's gradient is clipped: {options.clip}"
    assumptions = [
        Assumption(clipped, "gossamer.problems.Problem.clipped_data_gradient_sum"),
        Assumption("a sample enters one block", f"gossamer.core.Every({chosen.block}): blocks read new samples"),
    ]
    reason = ""
    if not options.before:
        reason = "peers see raw gradients: against them, and a wiretap, there is none"
        exact = "gossip multiplies with the matrix that the noise is scaled for"
        assumptions.append(Assumption(exact, "gossamer.topology.AcceleratedGossip.matrix, on a fixed network"))
    if options.published:
        claimed = options.budgets[0].epsilon
        reason += f"; the paper claims epsilon {claimed:g} for this noise, this is what it gives"
    # Occurrences in one block, under one node, or gossiped together add up: only fresh noise on steps composes.
    apart = options.before and chosen.aggregation == "independent" and chosen.block == 1
    return Guarantee(
        basis="published" if options.published else "proven",
        reason=reason,
        losses=chosen.release.losses,
        deltas=chosen.release.deltas,
        unit=Unit.SAMPLE,
        observer="peers" if options.before else "decisions",
        horizon=options.horizon,
        repeats="compose" if apart else "group",
        assumptions=tuple(assumptions),
        proof=f"docs/algorithms/{options.name}.md",
    )


@kind("algorithm", "pd_ftgl")
def pd_ftgl(
    problem: Problem,
    topology: Topology,
    *,
    horizon: int,
    budget: Budget | Sequence[Budget],
    clip: float | Clip,
    noise: AdditiveLaw = "laplace",
    noise_at: NoiseAt | None = None,
    gossip: Coupling | None = None,
    aggregation: Aggregation | None = None,
    strong_convexity: float = 0.0,
    steps_per_exchange: int | None = None,
    regularization: float = 1.0,
    calibration: Calibration = "tight",
) -> Algorithm:
    """Private decentralised follow-the-generalised-leader.

    Args:
        problem: loss and decision set.
        topology: who hears whom. Fixed, with symmetric doubly stochastic weights: gossip is accelerated. Before gossip
            it may also change or fail: gossip is plain then, and `steps_per_exchange` must be given.
        horizon: the steps that are played at most, T.
        budget: for the whole horizon; before gossip also one for each learner.
        clip: what each sample's gradient is clipped to; a number bounds its Euclidean norm, G.
        noise: "laplace" and "l2-laplace" are pure, "gaussian" needs a delta.
        noise_at: "before-gossip" (the default) protects messages and decisions; "after-gossip" (the paper's, and all
            there is as published) protects decisions from the public, and peers see raw gradients.
        gossip: "coupled" carries disagreements on into the next blocks, which shrink them further (the default before
            gossip); "decoupled" gossips every block for itself (the paper's, and all there is after gossip).
        aggregation: "tree", "toeplitz" or "blt" sum with correlated noise (the last two Gaussian only), "independent"
            adds fresh noise to every block; None takes the one that `block_rule` finds best.
        strong_convexity: alpha of every sample's loss: the problem's l2, if that is what makes it strongly convex.
        steps_per_exchange: L, steps and gossip steps a block; None takes the one that `block_rule` finds best, and
            eq. (7) with calibration="published".
        regularization: multiplies h: the best one by `block_rule`, that of Corollary 3.7 (published), or alpha L
            (strongly convex, Corollary 3.8).
        calibration: "tight" is the smallest noise that we can prove; "published" is as printed.

    >>> from gossamer import problems, topology
    >>> problem, ring = problems.Logistic(4, feature_bound=1.0), topology.ring(8, weights="lazy")
    >>> print(pd_ftgl(problem, ring, horizon=10_000, budget=Budget(1.0), clip=1.0).describe())
    pd_ftgl on ring(8, lazy)
      steps per exchange: ...
      regularization: 1 (h = ...)
      clip: Clip(l2=1.0)
      gossip: coupled, noise before gossip
      noise: laplace, ..., tight
      noise on gradient: scale ...
      guarantee: Proven: over 10,000 steps, all other participants together, who see every message and every
      decision, learn about one sample of one learner at most epsilon 1.
    """
    options = BlockOptions.of("pd_ftgl", **locals())
    given, update = options.steps_per_exchange, Leader()
    blocks = _blocks(options) if given is None else [check_count("steps_per_exchange", given)]
    chosen = choose(options, blocks, update)
    if not options.published:
        return assemble(options, chosen, update)
    return assemble(options, chosen, update, Printed(14, 2 + math.log2(horizon), theorem_3_6, given is None))


def _blocks(options: BlockOptions) -> list[int]:
    """The blocks to choose from: that of eq. (7) as printed, or a grid that contains it."""
    if not options.mixes_as_known:
        hint = "on a network that changes, or is very large, nothing is known about how fast gossip converges: try 16"
        raise ConfigurationError("steps_per_exchange", None, "a whole number", hint)
    printed = accelerated_block(options.topology, options.horizon) if options.topology.learners > 1 else 1
    return [printed] if options.published else block_rule.lengths(options.horizon, printed)


def choose(options: BlockOptions, blocks: Iterable[int], update: Update, gossip_steps: int | None = None) -> Chosen:
    """The block and the aggregation with the smallest bound on regret; as many gossip steps as steps by default."""

    def candidate(block: int, steps: int, aggregation: Aggregation) -> Chosen:
        release = calibrated(options, block, steps, aggregation)
        return Chosen(block, steps, aggregation, release, options.cost(release, block, steps, update))

    found = [candidate(block, gossip_steps or block, each) for block in blocks for each in options.aggregations]
    return min(found, key=lambda chosen: options.regret_bound(chosen, update))


@dataclass(frozen=True)
class Printed:
    """What is as in the paper: h = (G / R) sqrt(factor L T levels), or alpha L, and the theorem about it.

    Attributes:
        factor: of L T in the h of Corollary 3.7 or 3.10.
        levels: 2 + log2 T there; 1 in 3.10.
        theorem: the bound for any h.
        applies: whether block and gossip are those that the theorem asks for.
    """

    factor: float
    levels: float
    theorem: Callable[[BlockSetting, int, float], float]
    applies: bool

    def h(self, options: BlockOptions, block: int) -> float:
        """Corollaries 3.7 and 3.10; 3.8 and 3.11 where losses are strongly convex."""
        if options.strong_convexity:
            return options.strong_convexity * block
        ratio = options.printed_bound / options.radius
        return ratio * math.sqrt(self.factor * block * options.horizon * self.levels)

    def bound(self, options: BlockOptions, block: int, h: float) -> float | None:
        """Theorem 3.6 or 3.9, where all that it asks for is there."""
        return self.theorem(options.setting, block, h) if self.applies and options.semidefinite else None


def assemble(options: BlockOptions, chosen: Chosen, update: Update, printed: Printed | None = None) -> Algorithm:
    """All of it: PD-FTGL, or PD-OCG, as the update says; `printed` where it is as printed."""
    weight = options.weight(chosen, update)
    if printed is None:
        bound: float | None = options.regret_bound(chosen, update)
    else:
        weight = replace(weight, h=options.regularization * printed.h(options, chosen.block))
        bound = printed.bound(options, chosen.block, weight.h)
    learned = (options.problem, options.clip, options.strong_convexity, chosen.block, update)
    mechanism = chosen.release.mechanism
    parameters: dict[str, object] = {"steps per exchange": chosen.block}
    parameters |= {"gossip steps": chosen.gossip_steps} if chosen.gossip_steps != chosen.block else {}
    parameters["regularization"] = f"{options.regularization:g} (h = {weight.h:.4g})"
    parameters |= {"strong convexity": options.strong_convexity} if options.strong_convexity else {}
    parameters["clip"] = options.clip
    parameters["gossip"] = f"{options.gossip}, noise {options.noise_at.replace('-', ' ')}"
    parameters["noise"] = f"{options.noise}, {chosen.aggregation}, {options.calibration}"
    coupled = options.gossip == "coupled"
    return Algorithm(
        name=options.name,
        problem=options.problem,
        topology=options.topology,
        learner=BeforeGossip(*learned, mechanism, coupled) if options.before else AfterGossip(*learned, mechanism),
        guarantee=guarantee(options, chosen),
        mixing=options.mixing(chosen.gossip_steps),
        schedule=Every(chosen.block),
        public={"weight": weight},
        releases=(chosen.release,),
        parameters=parameters,
        regret_bound=bound if options.bound_is_proven else None,
        # The noise after gossip covers its exact matrix, and another one where a message is lost.
        missing="own" if options.before else "nothing",
    )
