"""The pictures of docs/benchmarks.md, drawn by the environment `plots`: `python plots.py EVIDENCE GPU DIRECTORY`."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

Json = dict[str, Any]

INK, OURS, LOOP, FLOOR = "#333333", "#c2410c", "#64748b", "#94a3b8"
plt.rcParams |= {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "savefig.dpi": 130,
    "figure.constrained_layout.use": True,
}
VERSIONS = {
    "gossamer": ("Gossamer", OURS, "o-"),
    "numpy": ("NumPy loop", LOOP, "s-"),
    "prototype": ("plain JAX", FLOOR, "^--"),
}
WORKLOADS = {
    "gossip-logreg": "gossip",
    "federated-logreg": "a server",
    "federated-logreg correlated": "a server, correlated noise",
}


def compared(found: Json, path: Path) -> None:
    """Rounds a second of every contestant, a panel for each workload."""
    figure, panels = plt.subplots(1, 3, figsize=(9.2, 2.5), sharey=True)
    names = list(reversed(found["gossip-logreg"]["rows"]))
    for panel, (workload, title) in zip(panels, WORKLOADS.items(), strict=True):
        rows = found[workload]["rows"]
        for place, name in enumerate(names):
            row = rows[name]
            if row.get("seconds"):
                middle = row["rounds"] / statistics.median(row["seconds"])
                low, high = row["rounds"] / max(row["seconds"]), row["rounds"] / min(row["seconds"])
                panel.barh(place, middle, color=OURS if name == "Gossamer" else LOOP, height=0.62)
                panel.plot([low, high], [place, place], color=INK, linewidth=1)
                panel.text(high * 1.25, place, three(middle), va="center", fontsize=8)
            else:
                panel.text(
                    1.3, place, "no gossip" if "cannot" in row else "failed", va="center", fontsize=8, style="italic"
                )
        panel.set(xscale="log", xlim=(1, 2e6), title=title, xlabel="rounds a second")
        panel.xaxis.set_major_locator(LogLocator(numticks=8))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(FuncFormatter(short))
        panel.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(names)), names)
    figure.savefig(path)


def scaled(found: Json, path: Path) -> None:
    """Time a round against learners, dimensions and rounds."""
    figure, panels = plt.subplots(1, 3, figsize=(9.2, 3.1), sharey=True)
    axes = {"learners": "learners (d = 100)", "dimensions": "dimensions (16 learners)", "rounds": "rounds of the run"}
    for panel, (axis, label) in zip(panels, axes.items(), strict=True):
        key = {"learners": "learners", "dimensions": "dim"}.get(axis)
        for version, look in VERSIONS.items():
            draw(panel, points(found[axis], version, key), *look)
        panel.set(xscale="log", yscale="log", xlabel=label)
        tidy(panel)
    panels[0].set_ylabel("time of a round")
    panels[0].legend(frameon=False)
    figure.savefig(path)


def accelerated(gpu: Json, cpu: Json, path: Path) -> None:
    """Time a round against learners, on the accelerator and on the processor."""
    figure, panel = plt.subplots(figsize=(5.2, 3.3))
    rows = [row for row in gpu["rows"] if row["row"] == "gossip" and row["dim"] == 100]
    device = gpu["machine"]["device"]
    processor = f"{cpu['machine']['cores']} CPU cores"
    draw(panel, points(rows, "gossamer", "learners"), device, OURS, "o-")
    draw(panel, points(rows, "prototype", "learners"), f"{device}, plain JAX", FLOOR, "^--")
    draw(panel, points(cpu["found"]["learners"], "gossamer", "learners"), processor, LOOP, "s-")
    panel.set(xscale="log", yscale="log", xlabel="learners (d = 100)", ylabel="time of a round")
    tidy(panel)
    panel.legend(frameon=False)
    figure.savefig(path)


def points(rows: list[Json], version: str, key: str | None) -> list[tuple[float, float, float, float]]:
    """(size, median, least and most seconds a round) of the rows that a version has."""
    found = []
    for row in rows:
        times = row.get(version, {})
        if times.get("seconds"):
            each = [taken / times["rounds"] for taken in times["seconds"]]
            size = times["rounds"] if key is None else row[key]
            found.append((size, statistics.median(each), min(each), max(each)))
    return found


def draw(panel: Any, found: list[tuple[float, float, float, float]], name: str, colour: str, style: str) -> None:
    """A line, with the range over the repeats."""
    if found:
        sizes, middles, lows, highs = zip(*found, strict=True)
        panel.plot(sizes, middles, style, color=colour, label=name, ms=4)
        panel.vlines(sizes, lows, highs, color=colour, linewidth=1)


def tidy(panel: Any) -> None:
    """Decades only, with words for times."""
    panel.xaxis.set_major_locator(LogLocator(numticks=12))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_locator(LogLocator(numticks=12))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(short))
    panel.yaxis.set_major_formatter(FuncFormatter(clock))
    panel.grid(color="#e5e7eb", linewidth=0.6)


def clock(seconds: float, _: object = None) -> str:
    """1 us, 10 ms, 1 s."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.99 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def short(value: float, _: object = None) -> str:
    """1, 10, 1k, 1M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= 0.99 * size:
            return f"{value / size:.0f}{unit}"
    return f"{value:.0f}"


def three(value: float) -> str:
    """Three digits."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    evidence, gpu, directory = map(Path, sys.argv[1:])
    found = json.loads(evidence.read_text())
    compared(found["comparison"]["found"], directory / "benchmarks-compared.png")
    scaled(found["scaling"]["found"], directory / "benchmarks-scaling.png")
    if gpu.exists():
        accelerated(json.loads(gpu.read_text()), found["scaling"], directory / "benchmarks-gpu.png")


if __name__ == "__main__":
    main()
