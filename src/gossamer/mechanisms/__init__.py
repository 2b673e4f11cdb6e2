"""Mechanisms: exact values in, private values out, with the privacy loss computed by what scales the noise."""

from gossamer.mechanisms.additive import Additive, AdditiveLaw
from gossamer.mechanisms.base import Calibrated, Mechanism, snap
from gossamer.mechanisms.factorized import Factorized
from gossamer.mechanisms.gossiped import Gossiped
from gossamer.mechanisms.independent import Independent
from gossamer.mechanisms.keeping import Keeping
from gossamer.mechanisms.prefix import Aggregation, Prefix, prefix_sum
from gossamer.mechanisms.selection import ExponentialMechanism, NoisyMax, PermuteAndFlip, SharedFlip, Spread
from gossamer.mechanisms.threshold import AboveThreshold
from gossamer.mechanisms.tree import TreeSum

__all__ = [
    "AboveThreshold",
    "Additive",
    "AdditiveLaw",
    "Aggregation",
    "Calibrated",
    "ExponentialMechanism",
    "Factorized",
    "Gossiped",
    "Independent",
    "Keeping",
    "Mechanism",
    "NoisyMax",
    "PermuteAndFlip",
    "Prefix",
    "SharedFlip",
    "Spread",
    "TreeSum",
    "prefix_sum",
    "snap",
]
