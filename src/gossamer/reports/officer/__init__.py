"""The report of one ledger for a data-protection officer: what is promised, what was spent, and what was checked."""

from gossamer.reports.officer.facts import Facts, gathered
from gossamer.reports.officer.page import html, write

__all__ = ["Facts", "gathered", "html", "write"]
