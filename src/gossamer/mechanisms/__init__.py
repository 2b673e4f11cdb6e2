"""Mechanisms: exact values in, private values out, with the privacy loss computed by what scales the noise."""

from gossamer.mechanisms.base import Additive, Calibrated, Mechanism, snap
from gossamer.mechanisms.independent import Independent
from gossamer.mechanisms.selection import ExponentialMechanism, NoisyMax, PermuteAndFlip
from gossamer.mechanisms.threshold import AboveThreshold

__all__ = [
    "AboveThreshold",
    "Additive",
    "Calibrated",
    "ExponentialMechanism",
    "Independent",
    "Mechanism",
    "NoisyMax",
    "PermuteAndFlip",
    "snap",
]
