"""DPSDA: every node controls its own coordinates of one common decision (paper 002). `dpsda_c` and `dpsda_ps` share it.

All nodes see the same batch f_t. Node i takes the derivatives of its own coordinates only, at its own estimate y_i(t)
of the whole decision; x_i(t), what it plays, is the part of y_i(t) that it controls.

Tight: changing the data of one round moves what every node releases in that round, stacked by 2 n c sqrt(n) in the
Euclidean norm and by 2 n c sum_i sqrt(d_i) in the l1 norm, and nothing else: all later gradients are taken at points
that are functions of releases. So one release is what a unit costs, after one round and after a billion. Where f_t is
the mean of B samples, one of them moves 1 / B of that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np

from gossamer.algorithms.authoring import Calibration, Lagged, published_horizon, require_one_bound
from gossamer.algorithms.coordinates.dual_averaging import ERROR, NAME, DualAveraging, Own, PublishedDual, TightDual
from gossamer.algorithms.coordinates.networks import require_connected, smallest_mass
from gossamer.algorithms.coordinates.proximal import EUCLIDEAN, Proximal, check_proximal
from gossamer.checks import check_choice, check_count, check_positive
from gossamer.core import Algorithm, Missing, Rate
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import Additive, AdditiveLaw, Aggregation, Calibrated, Independent, prefix_sum
from gossamer.mechanisms.independent import Releaked, reach
from gossamer.privacy import Assumption, Budget, Clip, Guarantee, Sensitivity, Unit, no_guarantee
from gossamer.privacy.marks import ours
from gossamer.problems import Problem, check_clip
from gossamer.topology import Topology

Noise = Literal["laplace", "gaussian", "none"]
Protects = Literal["sample", "batch"]
Reduction = Literal["sum", "mean"]


@dataclass(frozen=True)
class DpsdaOptions:
    """Everything that a user chose; `algorithm` makes the algorithm of it."""

    name: str
    problem: Problem
    topology: Topology
    push: bool
    coordinates: Sequence[int] | None
    horizon: int | None
    budget: Budget | None
    clip: float | Clip | None
    unit: Protects
    batch: int
    reduction: Reduction
    noise: Noise
    aggregation: Aggregation
    own: Own | None
    step: float | Rate | None
    proximal: Proximal
    gradient_noise: float
    calibration: Calibration

    def __post_init__(self) -> None:
        """Refuse what cannot be, and what would have no effect."""
        options = {"unit": Protects, "reduction": Reduction, "noise": Noise, "calibration": Calibration}
        for field, choices in options.items():
            check_choice(field, getattr(self, field), choices)
        check_proximal(self.proximal, self.problem.domain)
        if self.aggregation not in ("independent", "tree", "blt"):
            hint = "the other mechanisms remember all noise; that of 'blt' is nearly as small, in constant memory"
            raise ConfigurationError("aggregation", self.aggregation, "'independent', 'tree' or 'blt'", hint)
        if self.own is not None:
            check_choice("own", self.own, Own)
        if self.horizon is not None:
            check_count("horizon", self.horizon)
        check_count("batch", self.batch)
        check_positive("gradient_noise", self.gradient_noise, zero=True)
        require_connected(self.topology)
        if self.bound is not None and self.bound.blocks is not None:
            hint = "the blocks are those of `coordinates`"
            raise ConfigurationError("clip", self.clip, "one bound, for the part of every node", hint)
        if self.noise == "none":
            self._refuse_others("noise='none'", budget=None, calibration="tight", aggregation="independent")
            return
        if not isinstance(self.budget, Budget):
            hint = "a common batch moves the releases of all nodes; or noise='none'"
            raise PrivacyError.of("budget", self.budget, "one Budget for all", hint)
        if self.calibration == "published":
            where = "calibration='published', as the paper has it"
            self._refuse_others(where, noise="laplace", aggregation="independent")
            if self.own == "exact":
                raise ConfigurationError("own", self.own, f"'gossip' with {where}")
            self._check_published()

    @cached_property
    def bound(self) -> Clip | None:
        """The clip; None where there is none, which noise does not allow."""
        return check_clip(self.clip) if self.noise == "none" else Clip.of(self.clip)

    @cached_property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """The coordinates of every node."""
        return blocks_of(self.coordinates, self.problem.dim, self.learners)

    @cached_property
    def rate(self) -> Lagged:
        """alpha(t-1)."""
        return Lagged(Rate(1.0) if self.step is None else Rate.of("step", self.step))

    @property
    def own_part(self) -> Own:
        """As chosen; by default exact, and as the paper has it where the noise is the paper's."""
        return self.own or ("gossip" if self.calibration == "published" else "exact")

    def _refuse_others(self, where: str, **usual: Any) -> None:
        for field, only in usual.items():
            if getattr(self, field) != only:
                raise ConfigurationError(field, getattr(self, field), f"{only!r} with {where}")

    def _check_published(self) -> None:
        published_horizon(self.problem, self.horizon, "laplace")
        if self.unit == "sample" and self.batch > 1:
            hint = "raw decisions carry one sample into the gradients of all others"
            raise PrivacyError.of("unit", "sample", "'batch' with calibration='published'", hint)
        require_one_bound(self._bounded)

    @property
    def learners(self) -> int:
        """How many nodes: n."""
        return self.topology.learners

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of coordinates of every node that has any."""
        return tuple(len(block) for block in self.blocks if block)

    def sensitivity(self) -> Sensitivity:
        """How far the unit moves n u_i of all nodes, stacked, in one round."""
        bounds = (self._bounded.bounds[0],) * len(self.sizes)
        parts = Clip(blocks=self.sizes, **{f"l{self._bounded.order}": bounds})
        whole = self.unit == "batch"
        one = parts.sensitivity(Unit.BATCH_SAMPLE, self.problem.dim, batch=1 if whole else self.batch)
        # float32, on either side: the product of n, which is exact, with a sum as long as its samples; 1 / B is rounded
        rounded = 1 if whole else self.batch + (self.reduction == "mean")
        grown = self.learners * (1 if whole else self.share) * (1 + rounded * 2.0**-23)
        return Sensitivity(grown * one.l1, grown * one.l2)

    @property
    def share(self) -> float:
        """Of one sample in the loss of a round."""
        return 1 / self.batch if self.reduction == "mean" else 1.0

    def algorithm(self) -> Algorithm:
        """The algorithm."""
        shared: dict[str, Any] = {
            "blocks": self.blocks,
            "weight": float(self.learners),
            "push": self.push,
            "whole": self.unit == "batch",
            "batch": self.batch,
            "share": self.share,
            "proximal": self.proximal,
            "own": self.own_part,
            "error": self.gradient_noise > 0,
        }
        plain = DualAveraging(self.problem, self.bound, **shared)
        errors = Independent((plain.width,), law="gaussian", name=ERROR).at_scale(error=self.gradient_noise)
        others = (errors,) if plain.error else ()
        if self.noise == "none":
            promise = no_guarantee("messages and decisions are functions of raw gradients")
            return self._with(plain, promise, others)
        if self.calibration == "tight":
            release = self._mechanism(plain.width).calibrate(self.sensitivity(), self._given_budget)
            learner = TightDual(self.problem, self.bound, release.mechanism, **shared)
            return self._with(learner, self._proven(release), (release, *others))
        published = self._published()
        raw = PublishedDual(self.problem, self.bound, published.mechanism, **shared)
        return self._with(raw, self._as_published(published), (published, *others))

    @property
    def _given_budget(self) -> Budget:
        assert self.budget is not None
        return self.budget

    @property
    def _bounded(self) -> Clip:
        assert self.bound is not None
        return self.bound

    def _mechanism(self, width: int) -> Additive:
        """What every node releases through: n u_i on its own coordinates."""
        law = cast(AdditiveLaw, self.noise)
        return replace(prefix_sum(self.aggregation, (width,), self.horizon, law=law, name=NAME), together=self.learners)

    def _published(self) -> Calibrated[Releaked]:
        """As printed: Lap(2 n L / (epsilon / T)) on every coordinate, with sqrt(d_i) for more than one (Remark 5)."""
        assert self.horizon is not None
        printed = 2 * self.learners * self._bounded.norm * math.sqrt(max(self.sizes)) * self.horizon
        stretch = self.learners * self._smooth / smallest_mass(self.topology, self.horizon)
        mechanism = Releaked(
            (self.problem.dim,),
            horizon=self.horizon,
            law="laplace",
            name=NAME,
            together=self.learners,
            reach=reach(self.rate, self.horizon, stretch),
        )
        return mechanism.at_scale(self.sensitivity(), dual=printed / self._given_budget.epsilon)

    @property
    def _smooth(self) -> float:
        """G of the loss of a round; infinite where it is not known, or whether (10) holds: what decisions pass on."""
        if self.problem.smoothness is None or not ours(type(self.proximal)):
            return math.inf
        return self.batch * self.share * self.problem.smoothness

    def _proven(self, release: Calibrated[Additive]) -> Guarantee:
        return Guarantee(
            basis="proven",
            losses=release.losses,
            deltas=release.deltas,
            unit=self._unit,
            observer="outsiders",
            horizon=self.horizon,
            repeats="compose" if self._apart(release.mechanism) else "group",
            assumptions=(
                self._clipped,
                Assumption("a batch enters one gradient", "gossamer.core.Every(1): each exchange reads a new batch"),
            ),
            proof=f"docs/algorithms/{self.name}.md",
        )

    def _apart(self, mechanism: Additive) -> bool:
        """Whether occurrences of a record are releases of their own: fresh noise, and not two of them in one sum."""
        return isinstance(mechanism, Independent) and (self.batch == 1 or self.unit == "batch")

    def _as_published(self, release: Calibrated[Releaked]) -> Guarantee:
        first = release.spent(1).epsilon(0.0)
        claimed, rounds = self._given_budget.epsilon, self.horizon
        assert rounds is not None
        reason = (
            f"the paper claims epsilon {claimed / rounds:.4g} a round and {claimed:.4g} in all, with the sensitivity "
            f"of one node; a round moves the messages of all, which costs {first:.4g}, and through decisions, which "
            f"are not noised, {release.mechanism.reach:.4g} times that; whoever sees one decision besides the messages "
            "learns everything"
        )
        known = math.isfinite(self._smooth)
        smooth = (Assumption(f"the loss of a batch is {self._smooth:.4g}-smooth", "feature_bound"),) if known else ()
        return Guarantee(
            basis="published",
            reason=reason,
            losses=release.losses,
            deltas=release.deltas,
            unit=self._unit,
            observer="wiretap",
            horizon=self.horizon,
            assumptions=(self._clipped, *smooth),
            proof=f"docs/algorithms/{self.name}.md",
        )

    @property
    def _unit(self) -> Unit:
        return Unit.BATCH if self.unit == "batch" else Unit.BATCH_SAMPLE

    @property
    def _clipped(self) -> Assumption:
        claim = f"the gradient of every {self.unit} is clipped on the coordinates of each node: {self.bound}"
        return Assumption(claim, "gossamer.algorithms.coordinates.dual_averaging.DualAveraging.learn")

    def _with(self, learner: DualAveraging, promise: Guarantee, releases: tuple[Calibrated[Any], ...]) -> Algorithm:
        sizes = sorted({len(block) for block in self.blocks})
        many = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        parameters: dict[str, object] = {"coordinates": f"{many} for each node", "step": str(self.rate)}
        if self.reduction == "mean":
            parameters["loss of a round"] = f"the mean of {self.batch} samples"
        if self.proximal != EUCLIDEAN:
            parameters["proximal function"] = self.proximal
        if self.bound is not None:
            parameters["clip"] = f"{self.bound} of a {self.unit}'s gradient, on the coordinates of each node"
        quiet = self.noise == "none"
        parameters["noise"] = "none" if quiet else f"{self.noise}, {self.aggregation}, {self.calibration}"
        parameters["own coordinates"] = self.own_part
        return Algorithm(
            name=self.name,
            problem=self.problem,
            topology=self.topology,
            learner=learner,
            guarantee=promise,
            public={"step": self.rate},
            releases=releases,
            coordinates=self.owners,
            parameters=parameters,
            missing=_missing(learner),
            batch=self.batch,
        )

    @property
    def owners(self) -> tuple[int, ...]:
        """For each coordinate the node that controls it."""
        of = {place: node for node, block in enumerate(self.blocks) for place in block}
        return tuple(of[place] for place in range(self.problem.dim))


def blocks_of(coordinates: Sequence[int] | None, dim: int, learners: int) -> tuple[tuple[int, ...], ...]:
    """The coordinates that each node controls; by default consecutive ones, as evenly as can be.

    >>> blocks_of(None, 5, 2), blocks_of([1, 0, 1], 3, 2)
    (((0, 1, 2), (3, 4)), ((1,), (0, 2)))
    """
    if coordinates is None:
        return tuple(tuple(part.tolist()) for part in np.array_split(np.arange(dim), learners))
    try:
        owners = np.asarray(coordinates)
    except ValueError:  # rows of different lengths
        owners = np.array(None)
    if owners.shape != (dim,) or owners.dtype.kind not in "iu" or not ((owners >= 0) & (owners < learners)).all():
        allowed = f"{dim} numbers from 0 to {learners - 1}: for each coordinate the node that controls it"
        raise ConfigurationError("coordinates", coordinates, allowed)
    return tuple(tuple(np.flatnonzero(owners == node).tolist()) for node in range(learners))


def _missing(learner: DualAveraging) -> Missing | None:
    """Push-sum brings lost messages along later; published, its cost counts on the mass that no lost message leaves."""
    if not learner.push:
        return "own"
    return None if isinstance(learner, PublishedDual) else "later"
