"""How far one sample moves what private Frank-Wolfe releases on its trees, and the noise for that (paper 004).

One sample at a vertex s moves v_s at the leaves below s, of which there are 2^(j-|s|), by D_s each. A sum of fresh
gradients is released once (`release="vertex"`), v_s at every leaf (`"leaf"`), or, by a trusted server, the expert with
the least sum of all v_s.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from gossamer.algorithms.authoring import Calibration
from gossamer.algorithms.experts.frank_wolfe_trees import Leaf, leaves_of
from gossamer.algorithms.experts.totals import CAP, ROUNDED
from gossamer.checks import check_choice
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import Calibrated, ExponentialMechanism, Independent, NoisyMax, SharedFlip, Spread
from gossamer.mechanisms.independent import Views
from gossamer.mechanisms.selection import Selection
from gossamer.privacy import Budget, Sensitivity
from gossamer.problems import Experts, Linear, Problem

Trust = Literal["local", "central"]
Release = Literal["vertex", "leaf"]
Noise = Literal["laplace", "gaussian"]

BITS = 12
"""A coordinate of one sample is rounded to 2^-12 of its range: sums of integers are exact."""
_UNIT = 2.0**-24  # float32: the relative error of one operation
_MOST = 2**19  # samples of one vertex: their sum of integers of up to 2^11 each fits into 32 bits


def local_noise(
    trust: Trust, release: Release | None, noise: Noise | None, budget: Budget, calibration: Calibration
) -> tuple[Release, Noise]:
    """What local clients noise and the law of it, as given or by default; what does not apply is refused.

    >>> local_noise("local", None, None, Budget(1.0, 1e-5), "tight")
    ('vertex', 'gaussian')
    """
    check_choice("trust", trust, Trust)
    check_choice("calibration", calibration, Calibration)
    usual: Release = "leaf" if calibration == "published" else "vertex"
    if trust == "central":
        for name, given in (("noise", noise), ("release", release)):
            if given is not None:
                raise ConfigurationError(name, given, "None with trust='central'", "the server draws an expert")
        if calibration == "published" and budget.delta:
            raise PrivacyError.of("budget", budget, "a pure one with calibration='published'", "the paper has no other")
        return usual, "laplace"
    where, law = release or usual, noise or ("gaussian" if budget.delta else "laplace")
    check_choice("release", where, Release)
    check_choice("noise", law, Noise)
    if where == "vertex" and calibration == "published":
        raise ConfigurationError("release", release, "'leaf' with calibration='published'", "the paper has no other")
    if law == "gaussian" and (budget.delta == 0 or calibration == "published"):
        raise PrivacyError.of("noise", law, "'laplace' for pure budgets and for calibration='published'")
    return where, law


@dataclass(frozen=True)
class TreeNoise:
    """What a user of `fed_ope_stoch` chose, the trees that follow from it, and the noise that these need.

    >>> chosen = TreeNoise(Experts(20), 16, 2**14, Budget(1.0), 1.0, 0.0, "central", "vertex", "laplace", None, "tight")
    >>> len(chosen.leaves), chosen.deepest, round(chosen.calibrated().scales["choice"][0].value, 3)
    (14, 0, 2.016)
    """

    problem: Problem
    learners: int
    horizon: int
    budget: Budget
    lipschitz: float
    smoothness: float
    trust: Trust
    release: Release
    noise: Noise
    trees: int | None
    calibration: Calibration

    @property
    def published(self) -> bool:
        """Whether noise and batches are the paper's."""
        return self.calibration == "published"

    @property
    def central(self) -> bool:
        """Whether the server is trusted."""
        return self.trust == "central"

    @property
    def pure(self) -> bool:
        """Whether losses add up, and not their squares."""
        return self.budget.delta == 0 if self.central else self.noise == "laplace"

    @cached_property
    def centre(self) -> float:
        """Of the range of a coordinate of a gradient: losses of experts lie between 0 and 1."""
        return self.lipschitz / 2 if isinstance(self.problem, Experts) and not self.published else 0.0

    @cached_property
    def half(self) -> float:
        """Half that range."""
        return self.lipschitz / 2 if self.centre else self.lipschitz

    @cached_property
    def _planned(self) -> tuple[tuple[Leaf, ...], int]:
        return leaves_of(self.horizon, self._wanted, published=self.published, fixed=self.trees is not None)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """All exchanges."""
        return self._planned[0]

    @property
    def changed(self) -> int:
        """In how many phases T_1 is another one than was wanted."""
        return self._planned[1]

    @property
    def deepest(self) -> int:
        """Of all trees."""
        return max(leaf.tree for leaf in self.leaves)

    def _wanted(self, phase: int, steps: int) -> int | None:
        """T_1 = floor( log2(b epsilon beta sqrt(m) / (alpha ln d)) / 2 ); None: no tree, for linear losses.

        Differences of a linear loss' gradients are 0: right children would only use up samples. A trusted server adds
        noise once and not for each client: there m stands where the paper has its root.
        """
        if self.trees is not None:
            return self.trees or None
        if self.smoothness == 0 and not self.published:
            return None
        m = self.learners ** (1.0 if self.central and not self.published else 0.5)
        batch = 2 ** (phase - 1) / (phase - 1) ** 2 if self.published else steps
        ratio = batch * self.budget.epsilon * self.smoothness * m / (self.lipschitz * math.log(self.problem.dim))
        return math.floor(math.log2(ratio) / 2) if ratio > 0 else 0

    def moved(self, leaf: Leaf) -> float:
        """D_s, how far one sample moves a coordinate of v_s at most, wherever x_s and its parent lie."""
        linear = isinstance(self.problem, Linear)
        below = (0.0 if linear else 2 * self.half) if self.published else min(2 * self.half, 2 * self.smoothness)
        return 2 * (below if leaf.depth else self.half) / leaf.samples

    def printed(self, leaf: Leaf) -> float:
        """The paper's scale times epsilon: 4 alpha 2^j / b."""
        return float(4 * self.lipschitz * 2**leaf.tree / (leaf.samples << leaf.depth))

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

    def calibrated(self) -> Calibrated[Any]:
        """What data go through: draws "choice" of a trusted server, "gradient" of clients."""
        d, slack = self.problem.dim, self.slack()
        worst = max(leaf.leaves * self.moved(leaf) / unit for leaf, unit in zip(self.leaves, self.units, strict=True))
        if self.central:
            return self._selection(slack, worst)
        kind = Independent if self.release == "vertex" else Views
        mechanism = kind((d,), horizon=len(self.leaves), law=self.noise, name="gradient")
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
