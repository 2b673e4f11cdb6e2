"""docs/benchmarks.md and its pictures, from the numbers in docs/evidence/: nothing is measured here.

No text of this file has a digit in it: every number on the page comes from the evidence.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence" / "benchmarks.json"
GPU = ROOT / "docs" / "evidence" / "benchmarks-gpu.json"
MEMORY = ROOT / "docs" / "evidence" / "memory.json"
PAGE = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"
WIDTH = 120
NEAR = 0.2
"""As near as a measured peak should come to its estimate."""
PARTS = ("comparison", "algorithms", "mechanisms", "scaling", "settings")

Json = dict[str, Any]

WORKLOADS = {
    "gossip-logreg": "gossip",
    "federated-logreg": "a server",
    "federated-logreg correlated": "a server, correlated noise",
}
NOTES = {
    "Gossamer": (
        "`simulate`: `noisy_ogd` on the ring, `online_federated` with the server",
        "`noisy_ogd` has a chosen noise scale and no guarantee; `online_federated` has one",
    ),
    "NumPy loop": ("`bench/loops.py`, vectorised over the learners, NumPy's own samplers", "no guarantee"),
    "PyTorch loop": ("eager tensors over all learners, gradients in closed form, one thread", "no guarantee"),
    "pfl-research": (
        "a `FederatedAlgorithm` on its `SimulatedBackend`",
        "no gossip; its mechanisms noise an update once a round, not every local step",
    ),
    "fluke": (
        "its `CentralizedFL`; for gossip a subclass of its `DecentralizedFL`",
        "its own gossip sends to one random neighbour; its `DPFedAVG` has fresh noise only",
    ),
    "Flower": (
        "a `ClientApp`, `FedAvg` and its simulation on Ray",
        "no gossip; its `LocalDpMod` composes nothing over rounds",
    ),
}


def page(found: Json, gpu: Json | None) -> str:
    """The text of docs/benchmarks.md."""
    sections = [
        commands(found),
        workloads(found),
        scaling(found["scaling"]["found"]),
        floor(found["scaling"]["found"]),
        every_algorithm(found["algorithms"]["found"]),
        many_settings(found["settings"]["found"]),
        correlated_noise(found["mechanisms"]["found"]),
        on_gpu(gpu, found) if gpu else "",
        memory(found["memory"]["found"]) if "memory" in found else "",
        machines(found, gpu),
    ]
    shown = [section for section in sections if section]
    return "\n\n".join([opening(found, gpu), contents(shown), *shown]) + "\n"


def contents(sections: Sequence[str]) -> str:
    """Links to the sections."""
    headings = [section.splitlines()[0].removeprefix("## ") for section in sections]
    anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    links = " · ".join(f"[{heading}](#{anchor})" for heading, anchor in zip(headings, anchors, strict=True))
    return wrapped(f"On this page: {links}")


def opening(found: Json, gpu: Json | None) -> str:
    """The first screen: what to expect."""
    compared = found["comparison"]["found"]
    gossip, federated = compared["gossip-logreg"], compared["federated-logreg"]
    n, served, d = (
        part["setting"][key] for part, key in ((gossip, "learners"), (federated, "learners"), (gossip, "dim"))
    )
    frameworks = [name for name in ("pfl-research", "fluke", "Flower") if times_of(federated["rows"][name])]
    ratios = [speed(federated["rows"]["Gossamer"]) / speed(federated["rows"][name]) for name in frameworks]
    largest = [row for row in found["scaling"]["found"]["learners"] if times_of(row["gossamer"])][-1]
    expected = [
        f"On {cores(found)}, {n} learners on a ring play **{rate(gossip['rows']['Gossamer'])} rounds a second** with "
        f"noise on every message and d = {d}. That is {against(gossip, 'NumPy loop')} times a NumPy loop and "
        f"{against(gossip, 'PyTorch loop')} times a PyTorch loop.",
        f"With {served} learners and a server it is {rate(federated['rows']['Gossamer'])} rounds a second, "
        f"{against(federated, 'NumPy loop')} times a NumPy loop"
        + (f" and {span(ratios)} times the frameworks for federated learning" if ratios else "")
        + f". Correlated noise costs {share_lost(compared)} of the speed.",
        "Time grows with learners times dimensions, and not with the length of the run. "
        f"{largest['learners']:,} learners with d = {largest['dim']} take {duration(per_round(largest['gossamer']))} a "
        "round.",
    ]
    if gpu and (rings := [row for row in gpu["rows"] if row["row"] == "gossip" and times_of(row["gossamer"])]):
        most = rings[-1]
        expected.append(
            f"One {gpu['machine']['device']} plays {rate(most['gossamer'])} rounds a second with {most['learners']:,} "
            f"learners and d = {most['dim']}."
        )
    headings = ["rounds a second", *WORKLOADS.values()]
    rows = [[name, *(cell(compared[each], name) for each in WORKLOADS)] for name in NOTES]
    return "\n\n".join(
        [
            "# Benchmarks",
            "How fast Gossamer is, what it was compared with, and how to measure it on your machine.",
            "\n".join(wrapped(line, "- ") for line in expected),
            table(headings, rows),
            wrapped(
                "Medians over repeats; in brackets how many times as fast Gossamer is. All compute the same: "
                "same samples, clip, noise law and scale." + caveat(found)
            ),
            "![Rounds a second of every contestant](images/benchmarks-compared.png)",
        ]
    )


def commands(found: Json) -> str:
    """How to run it."""
    minutes = math.ceil(sum(found[part]["seconds in all"] for part in PARTS) / 60)
    lines = {
        "make benchmarks": f"measures everything, then writes this page: {minutes} minutes",
        ".venv/bin/python -m bench.benchmarks --quick": "small sizes, few repeats: does it work here?",
        ".venv/bin/python -m bench.benchmarks render": "this page again, from the stored numbers",
        "PYTHONPATH=src:. python -m bench.benchmarks gpu": "what is said about GPUs; needs JAX, SciPy, NetworkX only",
        "make bench": "Gossamer against NumPy only, as a table in the terminal",
    }
    width = max(map(len, lines))
    return "\n\n".join(
        [
            "## Run it",
            "\n".join(["```", *(f"{command:{width}}  # {text}" for command, text in lines.items()), "```"]),
            wrapped(
                "The first call installs each framework into a virtual environment of its own, in `.benchmarks/`. The "
                "raw numbers are in [evidence/benchmarks.json](evidence/benchmarks.json)."
            ),
        ]
    )


def workloads(found: Json) -> str:
    """What is compared, and whether it is the same."""
    compared = found["comparison"]["found"]
    gossip, federated, correlated = (compared[each]["setting"] for each in WORKLOADS)
    described = [
        f"**Gossip**: {gossip['learners']} learners on a ring, logistic regression with d = {gossip['dim']}, one fresh "
        f"sample per learner and round, Laplace noise of scale {gossip['scale']:g} on every message, "
        f"{gossip['rounds']:,} rounds.",
        f"**A server**: {federated['learners']} learners, d = {federated['dim']}, {federated['local_steps']} local "
        f"steps a round on fresh samples. Each gradient is clipped to {federated['clip']:g} and gets Gaussian noise of "
        f"scale {federated['scale']:.3g}; {federated['rounds']:,} rounds.",
        f"**Correlated noise**: the same with noise whose rows partly cancel (scale {correlated['scale']:.3g}, "
        f"{len(correlated['rates'])} buffers a learner). NumPy makes it by FFT, all others one row after the other.",
    ]
    differ = max(row.get("losses differ by", 0.0) for part in compared.values() for row in part["rows"].values())
    rows = [[name, versions_of(compared, name), *NOTES[name]] for name in NOTES]
    return "\n\n".join(
        [
            "## What was compared",
            "\n".join(wrapped(line, "- ") for line in described),
            table(["", "versions", "what runs", "what it does not do"], rows),
            wrapped(
                "The three frameworks run the same NumPy code for a learner's round; what they add is theirs. Without "
                f"noise, the losses of all of them differ from those of the NumPy loop by at most {differ:.1g}."
            ),
            wrapped(
                "Ranges over the repeats, the share of the time that drawing the noise alone takes, and the mean loss "
                "in the last tenth of the rounds (with few rounds little is learnt):"
            ),
            details(compared),
        ]
    )


def details(compared: Json) -> str:
    """A line for every workload and contestant."""
    rows = []
    for workload, title in WORKLOADS.items():
        part = compared[workload]
        for name, row in part["rows"].items():
            if not times_of(row):
                rows.append([title, name, row.get("cannot") or f"failed: {row['failed']}", "", "", ""])
                continue
            shares = ""
            if name == "Gossamer":
                shares = f"{statistics.median(part['noise alone']) / statistics.median(row['seconds']):.2f}"
            loss = f"{statistics.median(row['loss']):.3f}"
            rows.append([title, name, rate_range(row), f"{row['rounds']:,}", shares, loss])
    return table(["workload", "", "rounds a second", "rounds", "noise alone", "loss"], rows)


def scaling(found: Json) -> str:
    """Cost against n, d and T."""
    n, d, rounds = found["learners"], found["dimensions"], found["rounds"]
    rows = [
        [
            axis,
            f"{row[key]:,}" if key else f"{row['gossamer']['rounds']:,}",
            *(each(row.get(v)) for v in ("gossamer", "numpy")),
        ]
        for axis, key, part in (("learners", "learners", n), ("dimensions", "dim", d), ("rounds", None, rounds))
        for row in part
    ]
    slopes = [exponent(part, key) for part, key in ((n, "learners"), (d, "dim"))]
    return "\n\n".join(
        [
            "## Cost against learners, dimensions and rounds",
            wrapped(
                "`pd_ogd` on a ring: logistic regression, Laplace noise for every coordinate, a record of its own for "
                'each learner and round, losses measured locally (`measure="local"`). The default measure evaluates '
                "every decision on the samples of all learners, and costs more."
            ),
            "![Time of a round against learners, dimensions and rounds](images/benchmarks-scaling.png)",
            wrapped(
                f"From {first(n, 'learners'):,} learners on, time grows like n to the power {slopes[0]:.2f}; from "
                f"{first(d, 'dim'):,} dimensions on like d to the power {slopes[1]:.2f}. A long run costs as much a "
                "round as a short one, apart from what a call costs once."
            ),
            table(["against", "", "Gossamer, a round", "NumPy loop, a round"], rows),
        ]
    )


def floor(found: Json) -> str:
    """Beside the prototype."""
    rows = []
    for row in found["learners"]:
        ours, least = row["gossamer"], row.get("prototype")
        share = f"{speed(ours) / speed(least):.2f}" if times_of(ours) and times_of(least) else ""
        size = row["learners"] * row["dim"]
        rows.append(
            [f"{row['learners']:,}", *(coordinates(each, size) for each in (ours, least, row.get("numpy"))), share]
        )
    return "\n\n".join(
        [
            "## Against plain JAX",
            wrapped(
                "`bench/benchmarks/prototype.py` does the arithmetic of such a round and nothing else: no guarantee, "
                "no checks, no schedules, noise from a simpler hash. It shows what a library can cost. Million "
                f"coordinates a second, d = {found['learners'][0]['dim']}:"
            ),
            table(["learners", "Gossamer", "plain JAX", "NumPy loop", "Gossamer / plain JAX"], rows),
        ]
    )


def every_algorithm(found: list[Json]) -> str:
    """The ratios of `make bench`."""
    rows = []
    for row in found:
        median = {name: statistics.median(row[name]) for name in ("gossamer", "numpy", "noise") if name in row}
        ratios = [three(median[name] / median["gossamer"]) if name in median else "" for name in ("numpy", "noise")]
        compiling = f"{max(0.0, row['first'][0] - median['gossamer']):.1f} s"
        rows.append([row["name"], *(simple_rate(row, name) for name in ("gossamer", "numpy")), *ratios, compiling])
    slower = [row[0] for row in rows if row[3] and float(row[3].replace(",", "")) < 1]
    verdict = f"Slower than its loop: {'; '.join(slower)}." if slower else "None is slower than its loop."
    return "\n\n".join(
        [
            "## Every algorithm against its NumPy loop",
            wrapped(
                "Rounds a second of whole runs, at the sizes of the papers. Loops are vectorised, and tests check that "
                'they compute the same. "Of noise alone" compares with drawing the same noise and nothing else. The '
                f"last column is what the first call takes longer: tracing and compiling. {verdict}"
            ),
            table(["workload", "Gossamer", "NumPy loop", "x NumPy", "of noise alone", "first call"], rows),
        ]
    )


def correlated_noise(found: Json) -> str:
    """Mechanisms beside independent noise."""
    times = {name: statistics.median(each) for name, each in found["ms a step"].items()}
    rows = [
        [
            name,
            f"{three(times[name])} ({three(min(each))} to {three(max(each))})",
            three(times[name] / times["independent"]),
        ]
        for name, each in found["ms a step"].items()
    ]
    return "\n\n".join(
        [
            "## Correlated noise",
            wrapped(
                f"One draw and release of {found['dim']:,} values, for a horizon of {found['rows']:,} releases: "
                "milliseconds, and how many times as long as independent Gaussian noise "
                "([mechanisms](mechanisms.md) says what they are)."
            ),
            table(["mechanism", "ms", "x independent"], rows),
        ]
    )


def on_gpu(gpu: Json, found: Json) -> str:
    """Rows of the accelerator."""
    copy = next(row["bytes a second"] for row in gpu["rows"] if row["row"] == "copy")
    rows = []
    for row in gpu["rows"]:
        if "gossamer" not in row:
            continue
        size = f"{row['learners']:,}" if "learners" in row else ""
        moved, least = "", row.get("prototype")
        if "bytes a round" in row and times_of(row["gossamer"]):
            moved = f"{row['bytes a round'] * speed(row['gossamer']) / copy:.2f}"
        processor = on_processor(row, found)
        last = [
            rate(processor) if times_of(processor) else "",
            rate(least) if times_of(least) else failure(least),
            moved,
        ]
        rows.append([row["row"], size, str(row.get("dim", "")), ours(row["gossamer"]), *last])
    headings = ["", "learners", "d", "rounds a second", f"on {cores(found)}", "plain JAX", "of a copy's bytes"]
    return "\n\n".join(
        [
            "## On a GPU",
            wrapped(
                f"{gpu['machine']['device']}, JAX {gpu['machine']['versions']['jax']}; medians with ranges, compiling "
                f"not counted. A copy on the device moves {copy / 1e12:.2g} TB/s, read and written. The last column "
                "compares with it what a round of gossip must move at least: decisions and what was heard, read and "
                "written, and the samples."
            ),
            "![Time of a round on the GPU](images/benchmarks-gpu.png)",
            table(headings, rows),
            *(in_words(row) for row in gpu["rows"] if row["row"] == "settings"),
        ]
    )


def many_settings(found: Json) -> str:
    """What `simulate_many` takes on the machine of the other tables."""
    return "\n\n".join(["## Many settings at once", in_words(found)])


def in_words(row: Json) -> str:
    """Seconds of a call for each algorithm, all together."""
    return wrapped(
        f"{len(row['seconds'])} algorithms with {row['runs']} settings each ({row['budgets']} budgets, "
        f"{row['seeds']} seeds), {row['learners']} learners, d = {row['dim']}, {row['steps']:,} rounds, by "
        f"`simulate_many`: {sum(row['seconds'].values()):.0f} "
        "seconds, compiling counted."
    )


def on_processor(row: Json, found: Json) -> Json | None:
    """What the machine of the other tables needs for the same."""
    if row["row"] == "gossip":
        sizes = {(each["learners"], each["dim"]): each["gossamer"] for each in found["scaling"]["found"]["learners"]}
        return sizes.get((row["learners"], row["dim"]))
    for each in found["algorithms"]["found"]:
        if "beside" in row and each["name"].startswith(row["beside"]):
            return {"rounds": each["rounds"], "seconds": each["gossamer"]}
    return None


def memory(found: Json) -> str:
    """Estimated and measured."""
    from bench.estimates import COLUMNS, cells

    shares = [run["measured"] / run["estimate"] for run in found["runs"]]
    close = sum(abs(share - 1) <= NEAR for share in shares)
    return "\n\n".join(
        [
            "## Memory",
            wrapped(
                "What `simulate` estimates before a run starts, and by how much the run raised the peak of a process "
                f"of its own. Of {len(shares)} runs {close} lie within {NEAR:.0%}; the ratio goes from "
                f"{three(min(shares))} to {three(max(shares))}. A run must fit with a margin: "
                "[simulate](simulate.md#memory) says which. `python -m bench.estimates` measures this table."
            ),
            table(COLUMNS, [cells(run) for run in found["runs"]]),
        ]
    )


def machines(found: Json, gpu: Json | None) -> str:
    """Where the numbers come from."""
    rows = []
    for part in PARTS:
        rows.append([part, *described(found[part]["machine"]), "yes" if found[part].get("busy") else "no"])
    if gpu:
        device, host = gpu["machine"]["device"], described(gpu["machine"])
        commits = [host[2], *dict.fromkeys(row["commit"] for row in gpu["rows"] if "commit" in row)]  # rows run again
        rows.append(["gpu", f"{device}; {host[0]}", host[1], ", ".join(commits), "no"])
    return "\n\n".join(
        [
            "## Machines and versions",
            wrapped(
                "Repeats take turns, so that a slow minute hits everybody. Compare ratios within a table, not rates of "
                "two machines. Gossamer uses all cores and a loop uses one, so it loses more where other programs run."
            ),
            table(["part", "machine", "versions", "commit", "other programs running"], rows),
        ]
    )


def described(machine: Json) -> list[str]:
    """Machine, versions and commit."""
    each = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return [f"{machine['cores']} cores, {machine['processor']}, {machine['memory GB']} GB", each, machine["commit"]]


# Numbers, as the page writes them.


def times_of(row: Json | None) -> list[float]:
    """Seconds of the repeats, if there are any."""
    return [] if row is None else row.get("seconds", [])


def speed(row: Json) -> float:
    """Rounds a second, the median."""
    return row["rounds"] / statistics.median(row["seconds"])


def per_round(row: Json) -> float:
    """Seconds, the median."""
    return 1 / speed(row)


def rate(row: Json | None) -> str:
    """Rounds a second, to three digits."""
    return three(speed(row)) if row else ""


def rate_range(row: Json) -> str:
    """With the range over the repeats."""
    slow, fast = row["rounds"] / max(row["seconds"]), row["rounds"] / min(row["seconds"])
    return f"{rate(row)} ({three(slow)} to {three(fast)})"


def simple_rate(row: Json, version: str) -> str:
    """Of a row of `make bench`."""
    return rate_range({"rounds": row["rounds"], "seconds": row[version]}) if version in row else ""


def ours(row: Json) -> str:
    """A rate with its range, or why there is none."""
    return rate_range(row) if times_of(row) else failure(row)


def failure(row: Json | None) -> str:
    """Why there is no number."""
    return f"failed: {row['failed']}" if row else ""


def each(row: Json | None) -> str:
    """Time of a round, or why there is none."""
    return duration(per_round(row)) if times_of(row) else failure(row)


def coordinates(row: Json | None, size: int) -> str:
    """Million coordinates a second."""
    return three(speed(row) * size / 1e6) if times_of(row) else failure(row)


def cell(part: Json, name: str) -> str:
    """Of the first table."""
    row = part["rows"][name]
    if not times_of(row):
        return row.get("cannot") or "failed"
    return f"**{rate(row)}**" if name == "Gossamer" else f"{rate(row)} ({against(part, name)})"


def against(part: Json, name: str) -> str:
    """How many times as fast Gossamer is."""
    row = part["rows"][name]
    return three(speed(part["rows"]["Gossamer"]) / speed(row)) if times_of(row) else "?"


def share_lost(compared: Json) -> str:
    """What correlated noise costs."""
    fresh, correlated = (compared[name]["rows"]["Gossamer"] for name in list(WORKLOADS)[1:])
    return f"{max(0.0, 1 - speed(correlated) / speed(fresh)):.0%}"


def span(values: Sequence[float]) -> str:
    """From the least to the largest."""
    return f"{three(min(values))} to {three(max(values))}"


def upper(rows: Sequence[Json], key: str) -> list[Json]:
    """The rows whose arithmetic, and not their overhead, is what takes time."""
    large = [row for row in rows if times_of(row["gossamer"]) and row["learners"] * row["dim"] >= LARGE[key]]
    return large if len(large) > 1 else list(rows)[-2:]


def first(rows: Sequence[Json], key: str) -> int:
    """The least of these sizes."""
    return int(upper(rows, key)[0][key])


def exponent(rows: Sequence[Json], key: str) -> float:
    """Of the size in the time of a round, from that size on."""
    least, *_, most = upper(rows, key)
    growth = per_round(most["gossamer"]) / per_round(least["gossamer"])
    return math.log(growth) / math.log(most[key] / least[key])


LARGE = {"learners": 100_000, "dim": 1_600}
"""Coordinates of a round from which on rows are `upper`."""


def three(value: float) -> str:
    """Three digits, and commas."""
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{float(f'{value:.3g}'):,.{min(digits, 2)}f}"


def duration(seconds: float) -> str:
    """In a unit that fits."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{three(seconds / size)} {unit}"
    return f"{three(seconds / 1e-9)} ns"


def cores(found: Json) -> str:
    """The machine of the comparison, in two words."""
    return f"{found['comparison']['machine']['cores']} CPU cores"


def caveat(found: Json) -> str:
    """Whether the numbers are worth less than they could be."""
    reasons = {"busy": "while other programs were running", "quick": "in a quick run, with small sizes and few repeats"}
    found_to = [text for key, text in reasons.items() if any(part.get(key) for part in found.values())]
    return f" **Measured {' and '.join(found_to)}.**" if found_to else ""


def versions_of(compared: Json, name: str) -> str:
    """Of the packages that a contestant names."""
    for part in compared.values():
        if "versions" in part["rows"][name]:
            return ", ".join(f"{package} {version}" for package, version in part["rows"][name]["versions"].items())
    return "not installed"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines)


def wrapped(text: str, start: str = "") -> str:
    """Lines of a length that reads well."""
    return textwrap.fill(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


def evidence() -> tuple[Json, Json | None]:
    """What is stored: of this machine, with the memory of runs, and of an accelerator."""
    found = json.loads(EVIDENCE.read_text())
    if MEMORY.exists():
        found["memory"] = {"found": json.loads(MEMORY.read_text())}
    return found, json.loads(GPU.read_text()) if GPU.exists() else None


def write() -> None:
    """The page and its pictures."""
    from bench.benchmarks.environments import python_of

    PAGE.write_text(page(*evidence()))
    script = Path(__file__).with_name("plots.py")
    subprocess.run([str(python_of("plots")), str(script), str(EVIDENCE), str(GPU), str(IMAGES)], check=True)
    print(f"wrote {PAGE.relative_to(ROOT)}")
