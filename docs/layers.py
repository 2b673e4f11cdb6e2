"""Draw docs/images/layers.svg from the contracts of the import linter in pyproject.toml: `python docs/layers.py`."""

from __future__ import annotations

import re
import tomllib
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
BOX, GAP, TOP, EDGE = 34, 8, 44, 16  # height of a box, space between two, space for a title, margin
COLUMN = 440
STYLE = """
  text { font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #1d2733; text-anchor: middle; }
  .title, .note { font-family: system-ui, sans-serif; text-anchor: start; }
  .title { font-weight: 600; }
  .note { font-size: 13px; }
  .page { fill: #ffffff; stroke: #c5ced8; }
  .box { fill: #eef2f6; stroke: #64748b; }
  .pure { fill: #d8efe3; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .page { fill: #10161d; stroke: #3b4754; }
    .box { fill: #1f2933; stroke: #8b9bad; }
    .pure { fill: #17402f; }
  }
"""


class Layer(NamedTuple):
    """Modules side by side: `free` to import each other, or not."""

    modules: list[str]
    free: bool


class Column(NamedTuple):
    """The layers of one package, from the top down."""

    title: str
    layers: list[Layer]


def picture() -> str:
    """The picture of what pyproject.toml says now."""
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    columns = [column_of(contract) for contract in contracts if contract["type"] == "layers"]
    pure = {one.split(".")[1] for each in contracts if each["type"] == "forbidden" for one in each["source_modules"]}
    return drawn(columns, pure)


def column_of(contract: dict[str, Any]) -> Column:
    """One contract: of the whole package, or of what is inside one of its packages."""
    (inside,) = contract.get("containers", ["gossamer"])
    layers = [
        Layer([name.strip().removeprefix(f"{inside}.") for name in re.split("[:|]", layer)], "|" not in layer)
        for layer in contract["layers"]
    ]
    return Column(inside, layers)


def drawn(columns: list[Column], pure: set[str]) -> str:
    """Columns side by side, and below them what the signs mean."""
    bottom = TOP + EDGE + max(len(column.layers) for column in columns) * (BOX + GAP)
    width, height = EDGE + len(columns) * (COLUMN + EDGE), bottom + 66
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" aria-labelledby="title">',
        '<title id="title">The layers of Gossamer: imports point down only</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>',
    ]
    for number, column in enumerate(columns):
        left = EDGE + number * (COLUMN + EDGE)
        parts.append(f'<text class="title" x="{left}" y="{TOP - 14}">{escape(column.title)}</text>')
        for row, layer in enumerate(column.layers):
            parts += boxes(layer, left, TOP + row * (BOX + GAP), pure if column.title == "gossamer" else set())
    notes = ("Imports point down only. Boxes that touch may import each other; boxes with a gap may not.",)
    notes += ("Green, thick edge: pure mathematics, without disk, network or command line.",)
    parts += [f'<text class="note" x="{EDGE}" y="{bottom + 16 + 22 * row}">{n}</text>' for row, n in enumerate(notes)]
    return "\n".join([*parts, "</svg>", ""])


def boxes(layer: Layer, left: int, top: int, pure: set[str]) -> list[str]:
    """One layer: its modules, as wide as the column together."""
    gap = 0 if layer.free else GAP
    each = (COLUMN - gap * (len(layer.modules) - 1)) / len(layer.modules)
    parts = []
    for place, name in enumerate(layer.modules):
        x, kind = left + place * (each + gap), "box pure" if name in pure else "box"
        parts.append(f'<rect class="{kind}" x="{x:g}" y="{top}" width="{each:g}" height="{BOX}" rx="4"/>')
        parts.append(f'<text x="{x + each / 2:g}" y="{top + BOX / 2 + 5:g}">{escape(name)}</text>')
    return parts


if __name__ == "__main__":
    (HERE / "images" / "layers.svg").write_text(picture(), encoding="utf-8")
