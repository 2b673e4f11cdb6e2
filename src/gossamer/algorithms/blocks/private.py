"""What PD-FTGL and PD-OCG share: which options go together, the noise, the guarantee, the choice of noise and block."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from gossamer.algorithms.authoring import require_averaging
from gossamer.algorithms.blocks import block_rule
from gossamer.algorithms.blocks.block_rule import Cost, Modes
from gossamer.algorithms.blocks.learner import AfterGossip, BeforeGossip, BlockLearner, Update, Weight, bound_and_radius
from gossamer.checks import check_count, check_positive
from gossamer.core import Algorithm, Every
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import Additive, AdditiveLaw, Calibrated, Factorized, Gossiped, Independent, TreeSum
from gossamer.privacy import Assumption, Budget, Clip, Guarantee, Observer, Sensitivity, Unit, budgets_of
from gossamer.problems import Problem
from gossamer.topology import DENSE_LIMIT, AcceleratedGossip, FixedTopology, Gossip, Topology

NoiseAt = Literal["before-gossip", "after-gossip"]
Coupling = Literal["coupled", "decoupled"]
Aggregation = Literal["tree", "toeplitz", "blt", "independent"]
Calibration = Literal["tight", "published"]

_ROUNDING = 2.0**-24  # float32: the relative error of one addition


@dataclass(frozen=True)
class Chosen:
    """A block with its gossip and its noise.

    Attributes:
        block: L.
        gossip_steps: steps of gossip in a block.
        aggregation: how noise enters the sums.
        release: the calibrated mechanism.
        cost: what it costs by `block_rule`, in units of G^2.
    """

    block: int
    gossip_steps: int
    aggregation: Aggregation
    release: Calibrated[Additive] | Calibrated[Gossiped]
    cost: Cost


@dataclass(frozen=True)
class Setting:
    """The options of both algorithms, checked: combinations without a proof are refused with the reason."""

    name: str
    problem: Problem
    topology: Topology
    horizon: int
    budgets: tuple[Budget, ...]
    clip: Clip
    noise: AdditiveLaw
    noise_at: NoiseAt
    gossip: Coupling
    strong_convexity: float
    regularization: float
    calibration: Calibration

    @classmethod
    def of(
        cls,
        name: str,
        problem: Problem,
        topology: Topology,
        *,
        horizon: int,
        budget: Budget | Sequence[Budget],
        clip: float | Clip,
        noise: AdditiveLaw,
        noise_at: NoiseAt | None,
        gossip: Coupling | None,
        aggregation: Aggregation | None,
        strong_convexity: float,
        regularization: float,
        calibration: Calibration,
    ) -> Setting:
        """From what a user gave."""
        require_averaging(topology)
        required = {"noise": noise, "calibration": calibration}
        chosen = {"noise_at": noise_at, "gossip": gossip, "aggregation": aggregation}
        for option, given in (required | {key: value for key, value in chosen.items() if value is not None}).items():
            if given not in _ALLOWED[option]:
                raise ConfigurationError(option, given, " or ".join(map(repr, _ALLOWED[option])))
        check_positive("regularization", regularization, "try 1.0")
        check_positive("strong_convexity", strong_convexity, zero=True)
        place: NoiseAt = noise_at or ("before-gossip" if calibration == "tight" else "after-gossip")
        coupling: Coupling = gossip or ("coupled" if place == "before-gossip" else "decoupled")
        setting = cls(
            name,
            problem,
            topology,
            check_count("horizon", horizon),
            budgets_of(budget, topology.learners),
            Clip.of(clip),
            noise,
            place,
            coupling,
            strong_convexity,
            regularization,
            calibration,
        )
        setting._refuse_what_has_no_proof(aggregation)
        setting.mixing(1)  # refuses what gossip cannot be accelerated on
        return setting

    def _refuse_what_has_no_proof(self, aggregation: Aggregation | None) -> None:
        if aggregation in ("toeplitz", "blt") and self.noise != "gaussian":
            hint = "pure noise pays the l1 norm of a column of the factor, which grows like sqrt(T / L): use a tree"
            raise PrivacyError.of("aggregation", aggregation, f"'tree' or 'independent' with {self.noise} noise", hint)
        if self.noise_at == "after-gossip":
            if self.gossip == "coupled":
                hint = (
                    "coupled gossip mixes the blocks: its duals are no sums of leaves, and a unit moves all later ones"
                )
                raise PrivacyError.of("gossip", self.gossip, "'decoupled' with noise after gossip", hint)
            if not isinstance(self.topology, FixedTopology):
                hint = "the noise covers the exact matrix of gossip, and changing or failing links have another"
                raise PrivacyError.of("topology", self.topology.name, "a fixed network for noise after gossip", hint)
            drifts = self.problem.l2 or self.strong_convexity
            if drifts and not self.bounded:
                hint = "decisions are part of what is gossiped raw, and their float32 roundings need a bound"
                raise PrivacyError.of("domain", self.problem.domain, "a bounded set with l2 or strong convexity", hint)
            if len(set(self.budgets)) > 1:
                hint = "a sample moves what every learner releases, so all of them spend together"
                raise PrivacyError.of("budget", "one for each learner", "one for all with noise after gossip", hint)
        if self.calibration == "published":
            printed = {"noise": "laplace", "noise_at": "after-gossip", "aggregation": "tree"}
            given = {"noise": self.noise, "noise_at": self.noise_at, "aggregation": aggregation or "tree"}
            for option, value in given.items():
                if value != printed[option]:
                    hint = "the paper has no other; calibration='tight' has"
                    raise PrivacyError.of(option, value, f"{printed[option]!r} with calibration='published'", hint)

    @property
    def before(self) -> bool:
        """Whether noise is added before gossip."""
        return self.noise_at == "before-gossip"

    @property
    def published(self) -> bool:
        """Whether everything is as printed."""
        return self.calibration == "published"

    @property
    def bound(self) -> float:
        """G + 2 alpha R: how fast the loss and its strongly convex part change, and the largest norm of d_i / L."""
        return bound_and_radius(self.problem, self.clip)[0] + 2 * self.strong_convexity * self.radius

    @property
    def printed_bound(self) -> float:
        """The paper's G, of which it needs the whole loss to be Lipschitz: the clip, and what l2 adds to it."""
        return self.clip.norm + self.problem.l2 * self.radius

    @property
    def radius(self) -> float:
        """R; G where the decision set has no bound."""
        return bound_and_radius(self.problem, self.clip)[1]

    @property
    def bounded(self) -> bool:
        """Whether the decision set is."""
        return math.isfinite(self.problem.domain.radius)

    def mixing(self, steps: int) -> AcceleratedGossip | Gossip:
        """Accelerated gossip; plain on a network that changes, for which there is no acceleration."""
        if not isinstance(self.topology, FixedTopology):
            return Gossip(steps)
        mixing = AcceleratedGossip(steps)
        mixing.check(self.topology)
        return mixing

    @property
    def semidefinite(self) -> bool:
        """Whether P is positive semidefinite, as Assumption 3.4 wants it: lazy weights are."""
        return self.mixes_as_known and bool(np.linalg.eigvalsh(self.topology.matrix()).min() >= -1e-12)

    @property
    def mixes_as_known(self) -> bool:
        """Whether the eigenvalues of gossip are known: not on networks that change, or are too large for a matrix."""
        return isinstance(self.topology, FixedTopology) and self.topology.learners <= DENSE_LIMIT

    def modes(self) -> Modes:
        """What gossip does to disagreements; where that is not known, as if there were none: h is a guess then."""
        if not self.mixes_as_known:
            return Modes(np.zeros((2, 0)), self.topology.learners)
        return block_rule.modes_of(self.topology, self.horizon)

    def choose(
        self,
        blocks: Iterable[int],
        aggregation: Aggregation | None,
        update: Update,
        gossip_steps: int | None = None,
    ) -> Chosen:
        """The block and the aggregation with the smallest bound on regret; as many gossip steps as steps by default."""
        aggregations: tuple[Aggregation, ...] = (aggregation,) if aggregation else self._aggregations()
        options = [self._with(block, gossip_steps or block, each, update) for block in blocks for each in aggregations]
        return min(options, key=lambda chosen: self.regret_bound(chosen, update))

    def _aggregations(self) -> tuple[Aggregation, ...]:
        if self.published:
            return ("tree",)
        # blt has the noise of toeplitz in constant memory.
        return ("tree", "independent") if self.noise != "gaussian" else ("tree", "blt", "independent")

    def _with(self, block: int, gossip_steps: int, aggregation: Aggregation, update: Update) -> Chosen:
        release = self.release(block, gossip_steps, aggregation)
        cost = block_rule.cost(
            release,
            self.modes(),
            block=block,
            gossip_steps=gossip_steps,
            blocks=self.horizon // block,
            bound=self.bound,
            lag=update.lag,
            coupled=self.gossip == "coupled",
            before=self.before,
            growing=self.strong_convexity > 0,
        )
        return Chosen(block, gossip_steps, aggregation, release, cost)

    def release(
        self, block: int, gossip_steps: int, aggregation: Aggregation
    ) -> Calibrated[Additive] | Calibrated[Gossiped]:
        """The mechanism, with the scale that the budget asks for, or the printed one."""
        blocks = self.horizon // block
        if blocks < (1 if self.before else 2):
            least = block if self.before else 2 * block
            raise ConfigurationError("horizon", self.horizon, f"at least {least} steps for blocks of {block}")
        sensitivity = self.clip.sensitivity(Unit.SAMPLE, self.problem.dim, rows=block)
        if self.before:
            return _mechanism(aggregation, self.problem.dim, blocks, self.noise).calibrate(sensitivity, self.budgets)
        inner = _mechanism(aggregation, self.problem.dim, blocks - 1, self.noise)
        mechanism = Gossiped.of(inner, AcceleratedGossip(gossip_steps).matrix(self.topology))
        sensitivity = self._with_rounding(sensitivity, block)
        if self.published:
            return mechanism.at_scale(sensitivity, gradient=self._printed_scale())
        return mechanism.calibrate(sensitivity, self.budgets[:1])

    def _with_rounding(self, sensitivity: Sensitivity, block: int) -> Sensitivity:
        """With float32: gossip adds n products for each of n learners, and two terms are added to d_j before it.

        Nodes on a network gossip step by step in float64 and round once, at the end: docs/network.md shows that it is
        less.
        """
        largest = 2 * (self.topology.learners**2 + 2) * _ROUNDING * block * self.bound
        return Sensitivity(sensitivity.l1 + largest * math.sqrt(self.problem.dim), sensitivity.l2 + largest)

    def _printed_scale(self) -> float:
        """Theorems 3.6 and 3.9: 6 sqrt(d) (G + alpha R) (2 + log2 T) / epsilon."""
        bound, height = self.printed_bound + self.strong_convexity * self.radius, 2 + math.log2(self.horizon)
        return 6 * math.sqrt(self.problem.dim) * bound * height / self.budgets[0].epsilon

    def h(self, chosen: Chosen) -> float:
        """The weight that makes `regret_bound` smallest, or alpha L, as in Corollaries 3.8 and 3.11."""
        if self.strong_convexity:
            return self.regularization * self.strong_convexity * chosen.block
        return self.regularization * self.bound / self.radius * math.sqrt(self.horizon * chosen.cost.total / 2)

    def regret_bound(self, chosen: Chosen, update: Update) -> float:
        """The bound of `block_rule` on the average over learners of R_{T,i}, with the weight that is used."""
        # x(z) has the weight of exchange z - 1, and x(1), which has none, costs no more than x(2).
        exchanges = np.maximum(1, np.arange(math.ceil(self.horizon / chosen.block)))
        weight = self.weight(chosen, update)(exchanges)
        moved = float(np.sum(chosen.block * chosen.cost.total * self.bound**2 / weight))
        inexact = 3 * self.bound * update.error * self.radius * self.horizon
        return self.topology.learners * (self.h(chosen) * self.radius**2 + moved + inexact)

    def weight(self, chosen: Chosen, update: Update) -> Weight:
        """With the h of the rule."""
        return Weight(self.h(chosen), chosen.block, self.strong_convexity, update.lag)

    def algorithm(self, chosen: Chosen, update: Update, *, h: float | None, corollary: float | None) -> Algorithm:
        """All of it; `h` and `corollary` where they are as printed."""
        weight = self.weight(chosen, update)
        weight = weight if h is None else replace(weight, h=self.regularization * h)
        printed = corollary if self.regularization == 1.0 else None
        bound = printed if self.published else self.regret_bound(chosen, update)
        parameters: dict[str, object] = {"block": chosen.block}
        if chosen.gossip_steps != chosen.block:
            parameters["gossip steps a block"] = chosen.gossip_steps
        parameters["regularization"] = f"{self.regularization:g} (h = {weight.h:.4g})"
        parameters |= {"strong convexity": self.strong_convexity} if self.strong_convexity else {}
        parameters["clip"] = self.clip
        parameters["gossip"] = f"{self.gossip}, noise {self.noise_at.replace('-', ' ')}"
        parameters["noise"] = f"{self.noise}, {chosen.aggregation}, {self.calibration}"
        return Algorithm(
            name=self.name,
            problem=self.problem,
            topology=self.topology,
            learner=self._learner(chosen, update),
            guarantee=self._guarantee(chosen),
            mixing=self.mixing(chosen.gossip_steps),
            schedule=Every(chosen.block),
            public={"weight": weight},
            releases=(chosen.release,),
            parameters=parameters,
            regret_bound=bound if self._bound_is_proven() else None,
            # The noise after gossip covers its exact matrix, and another one where a message is lost.
            missing="own" if self.before else "nothing",
        )

    def _bound_is_proven(self) -> bool:
        """Whether what the bounds assume holds: bounded decisions, gradients and convexity as said, a known gossip."""
        gradient, convexity = self.problem.lipschitz, self.problem.strong_convexity
        if gradient is None or convexity is None or not (self.bounded and self.mixes_as_known):
            return False
        parts = [
            (bound, math.sqrt(place.stop - place.start) if self.clip.order == 1 else 1.0)
            for place, bound in self.clip.parts(self.problem.dim)
        ]
        unclipped = all(gradient * root <= bound * (1 + 1e-9) for bound, root in parts)
        return unclipped and self.strong_convexity <= convexity * (1 + 1e-9)

    def _learner(self, chosen: Chosen, update: Update) -> BlockLearner:
        mechanism = chosen.release.mechanism
        shared: dict[str, Any] = {
            "problem": self.problem,
            "clip": self.clip,
            "strong_convexity": self.strong_convexity,
            "block": chosen.block,
            "update": update,
        }
        if isinstance(mechanism, Gossiped):
            return AfterGossip(**shared, mechanism=mechanism)
        return BeforeGossip(**shared, mechanism=mechanism, coupled=self.gossip == "coupled")

    def _guarantee(self, chosen: Chosen) -> Guarantee:
        release, claimed = chosen.release, self.budgets[0].epsilon
        assumptions = [
            Assumption(
                f"every sample's gradient is clipped: {self.clip}",
                "gossamer.problems.Problem.clipped_data_gradient_sum",
            ),
            Assumption("a sample enters one block", f"gossamer.core.Every({chosen.block}): blocks read new samples"),
        ]
        observer: Observer = "peers" if self.before else "decisions"
        reason = "" if self.before else "peers see raw gradients: against them, and a wiretap, there is none"
        if not self.before:
            exact = "gossip multiplies with the matrix that the noise is scaled for"
            assumptions.append(Assumption(exact, "gossamer.topology.AcceleratedGossip.matrix, on a fixed network"))
        if self.published:
            reason += f"; the paper claims epsilon {claimed:g} for this noise, this is what it gives"
        # Occurrences in one block, under one node, or gossiped together add up: only fresh noise on steps composes.
        apart = self.before and chosen.aggregation == "independent" and chosen.block == 1
        return Guarantee(
            basis="published" if self.published else "proven",
            reason=reason,
            losses=release.losses,
            deltas=release.deltas,
            unit=Unit.SAMPLE,
            observer=observer,
            horizon=self.horizon,
            repeats="compose" if apart else "group",
            assumptions=tuple(assumptions),
            proof=f"docs/algorithms/{self.name}.md",
        )


_ALLOWED: dict[str, tuple[str, ...]] = {
    "noise": get_args(AdditiveLaw),
    "noise_at": get_args(NoiseAt),
    "gossip": get_args(Coupling),
    "aggregation": get_args(Aggregation),
    "calibration": get_args(Calibration),
}


def _mechanism(aggregation: Aggregation, dim: int, blocks: int, noise: AdditiveLaw) -> Additive:
    """What one learner releases its blocks through."""
    shape, name = (dim,), "gradient"
    if aggregation == "tree":
        return TreeSum(shape, horizon=blocks, law=noise, name=name)
    if aggregation == "independent":
        return Independent(shape, horizon=blocks, law=noise, name=name)
    return getattr(Factorized, aggregation)(shape, blocks, name=name)  # type: ignore[no-any-return]
