"""Experiments: studies that are declared and not programmed; one engine runs, stores, judges and draws them.

A `Study` has sections. Each section says which cells it needs, what is claimed about their results, and what is shown.
A `Cell` is the runs of one algorithm by noise seed, on one stream or several, and the metrics that are kept of them; a
`Tuned` cell chooses its setting on trials first; a `Measured` cell is any other function of plain settings.

>>> from functools import cache, partial
>>> from gossamer import Budget, algorithms, problems, streams, topology
>>> @cache
... def data(seed):
...     return streams.random_signs(4, 3, seed=seed)
>>> def make(epsilon):
...     return algorithms.pd_ogd(problems.Linear(3), topology.ring(4), budget=Budget(epsilon), clip=1.0, step=0.1)
>>> def cells():
...     kept = [measures.final_loss()]
...     return {e: Cell(f"epsilon {e:g}", partial(make, e), data, 100, kept, seeds=range(3)) for e in (0.5, 4.0)}
>>> def claims(found):
...     loss = {e: found[e].estimate("final loss") for e in found}
...     return [single("more epsilon, less loss", "ours", below(loss[4.0], loss[0.5]))]
>>> page = Study("What privacy costs", [Section("epsilon", "By epsilon", cells, claims=claims)]).run()
>>> page.verdicts.rows[0][:2], page.parts[1].table.columns
(('ours', 'more epsilon, less loss'), ('run', 'final loss', 'guarantee'))
"""

from gossamer.experiments import measures
from gossamer.experiments.cells import Cell, Entry, Measured, Metric, Played, Result, Tuned
from gossamer.experiments.claims import (
    Claim,
    Estimate,
    Finding,
    about,
    across,
    alike,
    below,
    claims_table,
    decided,
    every,
    increasing,
    judged,
    reaches,
    single,
    verdicts_table,
)
from gossamer.experiments.drawing import Curve, Panel, draw
from gossamer.experiments.engine import Engine, Found
from gossamer.experiments.fits import Fit, at_most_like, exponent, like, share_of
from gossamer.experiments.page import Page, Part
from gossamer.experiments.store import Store
from gossamer.experiments.study import Asked, Section, Study
from gossamer.experiments.sweep import Sweep, sweep
from gossamer.experiments.tuning import climb, tuning_seeds

__all__ = [
    "Asked",
    "Cell",
    "Claim",
    "Curve",
    "Engine",
    "Entry",
    "Estimate",
    "Finding",
    "Fit",
    "Found",
    "Measured",
    "Metric",
    "Page",
    "Panel",
    "Part",
    "Played",
    "Result",
    "Section",
    "Store",
    "Study",
    "Sweep",
    "Tuned",
    "about",
    "across",
    "alike",
    "at_most_like",
    "below",
    "claims_table",
    "climb",
    "decided",
    "draw",
    "every",
    "exponent",
    "increasing",
    "judged",
    "like",
    "measures",
    "reaches",
    "share_of",
    "single",
    "sweep",
    "tuning_seeds",
    "verdicts_table",
]
