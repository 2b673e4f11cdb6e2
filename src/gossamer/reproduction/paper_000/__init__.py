"""Paper 000: the experiments of section 4 and appendix B."""

from gossamer.reproduction.paper_000.plan import FULL, QUICK, Plan
from gossamer.reproduction.paper_000.report import FIGURES, TITLE, reproduce

__all__ = ["FIGURES", "FULL", "QUICK", "TITLE", "Plan", "reproduce"]
