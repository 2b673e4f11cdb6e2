"""Audits: attacks on guarantees, which bound epsilon from below."""

from gossamer.auditing.attacks import ATTACKS, MECHANISMS, Attack, Case, Kind, ReleaseCase, samples
from gossamer.auditing.audit import Audit, audit, audit_release
from gossamer.auditing.bound import Event, clopper_pearson, rounded
from gossamer.auditing.dlg import Reconstruction, dlg
from gossamer.auditing.views import Statistic, View, log_density, log_ratio

__all__ = [
    "ATTACKS",
    "MECHANISMS",
    "Attack",
    "Audit",
    "Case",
    "Event",
    "Kind",
    "Reconstruction",
    "ReleaseCase",
    "Statistic",
    "View",
    "audit",
    "audit_release",
    "clopper_pearson",
    "dlg",
    "log_density",
    "log_ratio",
    "rounded",
    "samples",
]
