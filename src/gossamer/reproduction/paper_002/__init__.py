"""Paper 002: the experiments of section 6."""

from gossamer.reproduction.paper_002.plan import FULL, QUICK, Plan
from gossamer.reproduction.paper_002.report import FIGURES, TITLE, reproduce

__all__ = ["FIGURES", "FULL", "QUICK", "TITLE", "Plan", "reproduce"]
