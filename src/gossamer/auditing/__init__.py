"""Audits: attacks on guarantees, which bound epsilon from below."""

from gossamer.auditing.attacks import ATTACKS, MECHANISMS, ONE_RUN, Attack, Case, Kind, ReleaseCase, samples
from gossamer.auditing.attacks.matched import matched_filter
from gossamer.auditing.audit import Audit, ManyRuns, Method, OneRun, audit, audit_release
from gossamer.auditing.bound import Event, clopper_pearson, guess_bound, rounded
from gossamer.auditing.dlg import Reconstruction, dlg
from gossamer.auditing.one_run import Canaries, Guesses, Part, Scores
from gossamer.auditing.unmix import Unmixed, unmix
from gossamer.auditing.views import Statistic, View, log_density, log_ratio

__all__ = [
    "ATTACKS",
    "MECHANISMS",
    "ONE_RUN",
    "Attack",
    "Audit",
    "Canaries",
    "Case",
    "Event",
    "Guesses",
    "Kind",
    "ManyRuns",
    "Method",
    "OneRun",
    "Part",
    "Reconstruction",
    "ReleaseCase",
    "Scores",
    "Statistic",
    "Unmixed",
    "View",
    "audit",
    "audit_release",
    "clopper_pearson",
    "dlg",
    "guess_bound",
    "log_density",
    "log_ratio",
    "matched_filter",
    "rounded",
    "samples",
    "unmix",
]
