"""Paper 001: the experiments of section V."""

from gossamer.reproduction.paper_001.plan import FULL, QUICK, Plan
from gossamer.reproduction.paper_001.report import FIGURES, TITLE, reproduce

__all__ = ["FIGURES", "FULL", "QUICK", "TITLE", "Plan", "reproduce"]
