"""Paper 003: the experiments of section VII."""

from gossamer.reproduction.paper_003.plan import FULL, QUICK, Plan
from gossamer.reproduction.paper_003.report import FIGURES, TITLE, reproduce

__all__ = ["FIGURES", "FULL", "QUICK", "TITLE", "Plan", "reproduce"]
