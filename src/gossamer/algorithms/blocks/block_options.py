"""The options of PD-FTGL and PD-OCG: which go together, what follows from them, and how much regret they cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from gossamer.algorithms.authoring import Calibration, require_averaging
from gossamer.algorithms.blocks import block_rule
from gossamer.algorithms.blocks.block_learner import Update, Weight, bound_and_radius
from gossamer.algorithms.blocks.block_rule import Cost, Modes
from gossamer.algorithms.blocks.theorems import BlockSetting
from gossamer.checks import check_choice, check_count, check_positive
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import Additive, AdditiveLaw, Aggregation, Calibrated, Gossiped
from gossamer.privacy import Budget, Clip, budgets_of
from gossamer.problems import Problem
from gossamer.topology import DENSE_LIMIT, AcceleratedGossip, FixedTopology, Gossip, Topology

NoiseAt = Literal["before-gossip", "after-gossip"]
Coupling = Literal["coupled", "decoupled"]
_CHOICES: Mapping[str, Any] = {
    "noise": AdditiveLaw,
    "calibration": Calibration,
    "noise_at": NoiseAt,
    "gossip": Coupling,
    "aggregation": Aggregation,
}


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
class BlockOptions:
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
    aggregation: Aggregation | None
    strong_convexity: float
    regularization: float
    calibration: Calibration
    steps_per_exchange: int | None
    gossip_steps: int | None = None

    @classmethod
    def of(
        cls,
        name: str,
        topology: Topology,
        *,
        horizon: int,
        budget: Budget | Sequence[Budget],
        clip: float | Clip,
        noise_at: NoiseAt | None,
        gossip: Coupling | None,
        calibration: Calibration,
        **others: Any,
    ) -> Self:
        """From what a user gave, of which `others` stay as they are."""
        require_averaging(topology)
        usual: NoiseAt = "before-gossip" if calibration == "tight" else "after-gossip"
        place = usual if noise_at is None else noise_at
        coupled: Coupling = "coupled" if place == "before-gossip" else "decoupled"
        return cls(
            name=name,
            topology=topology,
            horizon=check_count("horizon", horizon),
            budgets=budgets_of(budget, topology.learners),
            clip=Clip.of(clip),
            noise_at=place,
            gossip=coupled if gossip is None else gossip,
            calibration=calibration,
            **others,
        )

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for option, choices in _CHOICES.items():
            if option != "aggregation" or self.aggregation is not None:  # else it is chosen
                check_choice(option, getattr(self, option), choices)
        check_positive("regularization", self.regularization, "try 1.0")
        check_positive("strong_convexity", self.strong_convexity, zero=True)
        self._refuse_what_has_no_proof()
        self.mixing(1)  # refuses what gossip cannot be accelerated on

    def _refuse_what_has_no_proof(self) -> None:
        if self.aggregation == "optimal":
            hint = "its matrix holds for one number of blocks, and many numbers are compared"
            raise ConfigurationError("aggregation", "optimal", "'independent', 'tree', 'toeplitz' or 'blt'", hint)
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
            given = {"noise": self.noise, "noise_at": self.noise_at, "aggregation": self.aggregation or "tree"}
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
    def setting(self) -> BlockSetting:
        """The constants of Theorems 3.6 and 3.9."""
        n, d, epsilon = self.topology.learners, self.problem.dim, self.budgets[0].epsilon
        return BlockSetting(n, d, self.horizon, epsilon, self.printed_bound, self.radius, self.strong_convexity)

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

    @property
    def aggregations(self) -> tuple[Aggregation, ...]:
        """What to choose from: the one that was given, or all that may be best."""
        if self.aggregation or self.published:
            return (self.aggregation or "tree",)
        # blt has the noise of toeplitz in constant memory.
        return ("tree", "independent") if self.noise != "gaussian" else ("tree", "blt", "independent")

    def cost(
        self, release: Calibrated[Additive] | Calibrated[Gossiped], block: int, gossip_steps: int, update: Update
    ) -> Cost:
        """What `block_rule` says about this block, gossip and noise."""
        return block_rule.cost(
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

    @property
    def bound_is_proven(self) -> bool:
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
