"""What a page shows where nothing else is said: a table of all metrics, their curves, and the evidence."""

from collections.abc import Mapping
from typing import Any

from gossamer.experiments.cells import Cell, Result, told
from gossamer.experiments.drawing import Panel
from gossamer.experiments.engine import Engine
from gossamer.experiments.page import Part
from gossamer.reports import Table


def table_of(results: Mapping[str, Result]) -> Table:
    """One row for each result: every metric at its end, what was chosen, and the guarantee.

    >>> from gossamer.experiments import Measured
    >>> table_of({"two": Result(Measured("two", {}, dict), {"sum": 2})}).rows
    (('two', '2', '-'),)
    """
    words = list(dict.fromkeys(word for result in results.values() for word in words_of(result)))
    chosen = any(result.setting for result in results.values())
    rows = [
        (
            name,
            *(_value(result, word) if word in result.values else "-" for word in words),
            *([told(result.setting) or "-"] if chosen else []),
            promise(result),
        )
        for name, result in results.items()
    ]
    return Table(("run", *words, *(["chosen"] if chosen else []), "guarantee"), tuple(rows))


def curves(results: Mapping[str, Result]) -> tuple[Panel, ...]:
    """One panel for each metric that is a curve, with a curve for each result."""
    words = dict.fromkeys(word for result in results.values() for word in words_of(result) if _curved(result, word))
    return tuple(
        Panel(
            word, word, tuple(each.curve(name, word) for name, each in results.items() if _curved(each, word)), x="step"
        )
        for word in words
    )


def promise(result: Result) -> str:
    """The guarantee of a result in a few words; "-" where nothing was run."""
    if not isinstance(result.cell, Cell):
        return "-"
    guarantee = result.guarantee
    if guarantee.basis == "none":
        return "none"
    delta = f", delta {guarantee.delta:.3g}" if guarantee.delta else ""
    return f"epsilon {guarantee.epsilon:.4g}{delta}, {guarantee.basis} ({guarantee.observer})"


def evidence(engine: Engine) -> Part:
    """Every cell that was used: what ran, how long, and where it is."""
    rows, total = [], 0.0
    for key, cell in engine.used.items():
        seconds = (engine.store.read(key) or {}).get("seconds", 0.0)
        total += seconds
        if isinstance(cell, Cell):
            runs = f"{len(cell.repeats)} streams, " * (len(cell.repeats) > 1) + f"seeds {_listed(cell.seeds)}"
            rows.append((cell.name, cell.made.name, f"{cell.steps:,}", runs, f"{seconds:.1f}", key))
        else:
            rows.append((cell.name, "-", "-", "-", f"{seconds:.1f}", key))
    text = f"{len(rows):,} cells, {total / 60:,.1f} minutes of computing. Each is a file in the directory `cells`."
    table = Table(("cell", "algorithm", "steps", "runs", "seconds", "file"), tuple(rows))
    return Part("evidence", "Evidence", (text,), table=table)


def raw(engine: Engine) -> dict[str, Any]:
    """Every cell that was used, with its setting and its numbers."""
    return {
        key: {"name": cell.name, "setting": cell.setting, "values": engine.store.read(key)}
        for key, cell in engine.used.items()
    }


def words_of(result: Result) -> list[str]:
    """The metrics of a result.

    >>> from gossamer.experiments import Measured
    >>> words_of(Result(Measured("two", {}, dict), {"sum": 2, "seconds": 0.1}))
    ['sum']
    """
    if isinstance(result.cell, Cell):
        return [metric.word for metric in result.cell.metrics]
    return [word for word in result.values if word != "seconds"]


def _value(result: Result, word: str) -> str:
    return result.estimate(word).cell if isinstance(result.cell, Cell) else str(result.values[word])


def _curved(result: Result, word: str) -> bool:
    return f"{word}, at" in result.values


def _listed(seeds: Any) -> str:
    """Seeds in few characters."""
    first, last = seeds[0], seeds[-1]
    return (
        f"{first}" if len(seeds) == 1 else f"{first} to {last}" if len(seeds) == last - first + 1 else f"{list(seeds)}"
    )
