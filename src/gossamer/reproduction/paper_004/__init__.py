"""Paper 004: its Table 1 made empirical."""

from gossamer.reproduction.paper_004.plan import FULL, QUICK, Plan
from gossamer.reproduction.paper_004.report import FIGURES, TITLE, reproduce

__all__ = ["FIGURES", "FULL", "QUICK", "TITLE", "Plan", "reproduce"]
