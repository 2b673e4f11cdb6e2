"""Write what was measured into docs/papers/: `python docs/papers.py 002 --out DIR`, after `gossamer reproduce`.

The cells are read from --out, the data from --data; a missing cell is an error. What is below the mark of the page is
replaced. With `--pictures` the panels are drawn too, which needs matplotlib.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gossamer.experiments import Asked, Engine, Page, Panel, Part, Store
from gossamer.experiments.cells import Cell

HERE = Path(__file__).parent
MARK = "<!-- Everything below is made by docs/papers.py. -->"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def verdicts(claims: Part) -> str:
    """Every claim with its verdict in every column: the numbers are in the report."""
    assert claims.table is not None
    names = claims.table.columns[2::2]
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for row in claims.table.rows:
        asked = tuple(name for name, verdict in zip(names, row[3::2], strict=True) if verdict != "not run")
        found = [verdict for verdict in row[3::2] if verdict != "not run"]
        groups.setdefault(asked, []).append([row[0], row[1], *found])
    return "\n\n".join(table(["claim", "in the paper", *asked], rows) for asked, rows in groups.items())


def evidence(engine: Engine, command: str) -> str:
    """Which runs all of this is made of."""
    cells = [cell for cell in engine.used.values() if isinstance(cell, Cell)]
    seconds = sum((engine.store.read(key) or {}).get("seconds", 0.0) for key in engine.used)
    written = max(file.stat().st_mtime for file in engine.store.directory.glob("*.json"))
    seeds = sorted({tuple(cell.seeds) for cell in cells})
    told = "; ".join(f"{each[0]} to {each[-1]}" for each in seeds)
    date = datetime.fromtimestamp(written, UTC).date()
    return (
        f"`{command}`, finished on {date}: {len(engine.used):,} cells, {seconds / 60:,.0f} minutes of computing. Noise "
        f"seeds {told} (1000 and above: tuning). Every cell is stored with its whole setting in `raw.json`."
    )


def picture(panels: Sequence[Panel], path: Path) -> None:
    """All panels of a part, two in a row."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = math.ceil(len(panels) / 2)
    figure, axes = plt.subplots(rows, 2, figsize=(9, 3 * rows), squeeze=False, layout="constrained")
    for axis, panel in zip(axes.flat, panels, strict=False):
        for curve in panel.curves:
            (line,) = axis.plot(curve.x, curve.mean, label=curve.name)
            axis.fill_between(curve.x, curve.low, curve.high, alpha=0.2, color=line.get_color())
        if panel.level is not None:
            axis.axhline(panel.level, ls=":", color="black")
        axis.set(title=panel.title, ylabel=panel.y, xlabel="round", yscale="log" if panel.log else "linear")
        axis.title.set_size(9)
        axis.legend(fontsize=7)
    for axis in list(axes.flat)[len(panels) :]:
        axis.remove()
    figure.savefig(path, dpi=90)


def generated(page: Page, engine: Engine, command: str) -> str:
    """What goes below the mark."""
    shown = [part for part in page.parts if part.table is not None and part.name not in ("claims", "evidence")]
    claims = next(part for part in page.parts if part.name == "claims")
    blocks = ["## Verdicts", verdicts(claims)]
    for part in shown:
        assert part.table is not None
        blocks += [f"## {part.heading}", *part.text, table(part.table.columns, part.table.rows), *part.notes]
    return "\n\n".join([*blocks, "## Evidence", evidence(engine, command)]) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Rewrite one page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paper")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pictures", action="store_true")
    given = parser.parse_args(arguments)
    engine = Engine(Store(given.out / "cells"), missing)
    study: Any = importlib.import_module(f"gossamer.experiments.papers.paper_{given.paper}").study
    page = study(Asked(data=given.data)).run(engine)
    command = f"gossamer reproduce {given.paper}"
    path = HERE / "papers" / f"{given.paper}.md"
    above, _, _ = path.read_text().partition(MARK)
    path.write_text(f"{above}{MARK}\n\n{generated(page, engine, command)}")
    drawn: Mapping[str, Sequence[Panel]] = {part.name: part.panels for part in page.parts if part.panels}
    for name, panels in drawn.items() if given.pictures else ():
        picture(panels, HERE / "images" / f"paper-{given.paper}-{name}.png")


def missing(line: str) -> None:
    """Refuse to compute."""
    raise SystemExit(f"cells are missing: run `gossamer reproduce` first ({line})")


if __name__ == "__main__":
    main()
