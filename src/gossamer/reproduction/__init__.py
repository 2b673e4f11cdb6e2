"""Reproductions: the experiments of a paper again, with figures, tables, raw numbers and a table of its claims."""

from gossamer.reproduction.claims import (
    Claim,
    Estimate,
    Finding,
    about,
    alike,
    below,
    claims_table,
    every,
    increasing,
    reaches,
    verdicts_table,
)
from gossamer.reproduction.drawing import Curve, Panel, draw
from gossamer.reproduction.page import Asked, Page, Part
from gossamer.reproduction.store import Store
from gossamer.reproduction.tuning import climb

__all__ = [
    "Asked",
    "Claim",
    "Curve",
    "Estimate",
    "Finding",
    "Page",
    "Panel",
    "Part",
    "Store",
    "about",
    "alike",
    "below",
    "claims_table",
    "climb",
    "draw",
    "every",
    "increasing",
    "reaches",
    "verdicts_table",
]
