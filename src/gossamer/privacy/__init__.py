"""What a run may spend, what it promises, and where its randomness comes from."""

from gossamer.privacy.budget import Budget, budgets_of
from gossamer.privacy.clip import Clip, Sensitivity
from gossamer.privacy.fast import FastNoise
from gossamer.privacy.guarantee import Assumption, Basis, Guarantee, no_guarantee
from gossamer.privacy.loss import Approximate, BoundedRange, Concentrated, Gaussian, Loss, Mixed, Pure, compose, worst
from gossamer.privacy.marks import declared
from gossamer.privacy.noise import Law, NoiseSource, NoiseSpec, Scale, UsedIn
from gossamer.privacy.secure import SecureNoise
from gossamer.privacy.units import OBSERVERS, Observer, Unit

__all__ = [
    "OBSERVERS",
    "Approximate",
    "Assumption",
    "Basis",
    "BoundedRange",
    "Budget",
    "Clip",
    "Concentrated",
    "FastNoise",
    "Gaussian",
    "Guarantee",
    "Law",
    "Loss",
    "Mixed",
    "NoiseSource",
    "NoiseSpec",
    "Observer",
    "Pure",
    "Scale",
    "SecureNoise",
    "Sensitivity",
    "Unit",
    "UsedIn",
    "budgets_of",
    "compose",
    "declared",
    "no_guarantee",
    "worst",
]
