"""The built-in attacks: worst cases, realistic cases and known flaws, by what they attack."""

from collections.abc import Mapping

from gossamer.auditing.attacks import pd_ogd
from gossamer.auditing.attacks.base import Attack, Case, Kind, ReleaseCase, samples
from gossamer.auditing.attacks.mechanisms import MECHANISMS

ATTACKS: Mapping[str, tuple[Attack, ...]] = {"pd_ogd": pd_ogd.ATTACKS}
"""Attacks by the name of the algorithm."""

__all__ = ["ATTACKS", "MECHANISMS", "Attack", "Case", "Kind", "ReleaseCase", "samples"]
