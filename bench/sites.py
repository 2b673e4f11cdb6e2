"""Sites with data of their own: `python -m bench.sites` writes docs/evidence/sites.md.

What an owner sees when something is wrong and after how many seconds, what three clinics reach beside a run on pooled
data without noise, how long a row takes to read, and whether rows of PostgreSQL are those of SQLite. Some minutes.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import runpy
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.cli.config import load_for_nodes
from gossamer.data import Schema
from gossamer.net import NodeDirectory, Pace, admit, join, new_network, prepared
from gossamer.net.checkup import source_of
from gossamer.net.settings import Settings
from gossamer.reports.html import versions
from tests.networks import free_range
from tests.wrongs import WRONGS, network, spent

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "evidence" / "sites.md"
CLINICS = ("north", "south", "west")
RUNS = 3
ROWS = 20_000
PATIENCE = 120.0


def main() -> None:
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = [wrongs(folder / "wrong"), clinics(folder / "clinics"), reading(folder / "reading")]
    intro = (
        "# Evidence: sites with data of their own\n\nWritten by `python -m bench.sites` (part of `make evidence`).\n"
    )
    load = f"{os.getloadavg()[2]:.0f} processes wanted to run on {os.cpu_count()} cores meanwhile (load average)."
    taken = f"Taken in {time.perf_counter() - begun:.0f} s with {versions()}. {load}"
    PAGE.write_text("\n".join([intro, *parts, taken, ""]))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def environment(folder: Path) -> dict[str, str]:
    """Witnesses stay in the folder."""
    return {**os.environ, "XDG_STATE_HOME": str(folder / "machine"), "PYTHONWARNINGS": "ignore", "COLUMNS": "10000"}


# Something is wrong


def wrongs(folder: Path) -> str:
    """What each says, in a process as an owner starts it."""
    network(folder / "made", (free_range(1), free_range(1)))
    rows = []
    for number, wrong in enumerate(WRONGS):
        sites = folder / str(number)
        shutil.copytree(folder / "made", sites)
        wrong.happen(sites / "north")
        begun, worked = time.perf_counter(), children_seconds()
        command = [sys.executable, "-m", "gossamer", "node", str(sites / "north")]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment(sites), timeout=PATIENCE
        )
        seconds, worked = time.perf_counter() - begun, children_seconds() - worked
        said = " ".join(done.stderr.split()).rpartition("error: ")[2].replace(f"{sites}/", "")
        assert done.returncode == 2, f"{wrong.name}: {done.stderr}"
        assert not spent(sites / "north"), wrong.name
        rows.append([wrong.name, said.replace("|", "\\|"), f"{seconds:.1f}", f"{worked:.1f}"])
    title = (
        "## Something is wrong\n\nA node is started with `gossamer node north`. In every case it ends with status 2; "
        "the ledger has its first row only: nothing was sent, nothing was spent.\n\n"
    )
    return title + table(["what is wrong", "what the owner sees", "seconds", "of them work"], rows)


def children_seconds() -> float:
    """What processes that have ended worked, on whatever else the machine was busy with."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# Three clinics


def clinics(folder: Path) -> str:
    """Accuracy on the records that no clinic has."""
    runpy.run_path(str(ROOT / "examples/clinics/write_data.py"))["main"](folder)
    found = load_for_nodes(ROOT / "examples/clinics/tumours.toml", len(CLINICS))
    assert found.schema is not None
    schema = found.schema
    train = {name: encoded(schema, folder / f"{name}.csv") for name in CLINICS}
    test = encoded(schema, folder / "test.csv")
    pooled = tuple(np.concatenate([train[name][part] for name in CLINICS]) for part in (0, 1))
    scores = [score for run in range(RUNS) for score in network_scores(folder / str(run), folder, found)]
    alone = [without_noise(train[name], test) for name in CLINICS]
    rows = [
        [f"three nodes, epsilon 4 for each record ({RUNS} runs, the answers of each node)", shown(scores)],
        ["all records in one place, no noise", shown([without_noise(pooled, test)])],
        ["each clinic alone, no noise", shown(alone)],
        ["always the more frequent label", shown([max(test[1].mean(), 1 - test[1].mean())])],
    ]
    title = (
        "## Three clinics\n\nThe [tutorial](../tutorial-sites.md): 144 records at each clinic, accuracy on 137 others. "
        "Nodes are processes over TLS on loop-back. Without noise: scikit-learn's logistic regression.\n\n"
    )
    return title + table(["who learns", "accuracy (mean; least to largest)"], rows)


def encoded(schema: Schema, file: Path) -> tuple[Any, Any]:
    with file.open(encoding="utf-8", newline="") as opened:
        made = [schema.encoded(record) for record in csv.DictReader(opened)]
    return np.stack([one.x for one in made]), np.array([one.y for one in made])


def without_noise(train: tuple[Any, Any], test: tuple[Any, Any]) -> float:
    from sklearn.linear_model import LogisticRegression

    return float(LogisticRegression(fit_intercept=False, max_iter=10_000).fit(*train).score(*test))


def shown(scores: Sequence[float]) -> str:
    mean = f"{100 * statistics.mean(scores):.1f} %"
    return mean if len(scores) == 1 else f"{mean} ({100 * min(scores):.1f} to {100 * max(scores):.1f})"


def network_scores(folder: Path, data: Path, found: Any) -> list[float]:
    """A network of processes, from keys to predictions."""
    port = free_range(6)
    members = {name: f"127.0.0.1:{port + number}" for number, name in enumerate(CLINICS)}
    ready = prepared(found.algorithm)
    new_network(folder / "coordinator", ready, members, pace=Pace(period=0.2), schema=found.schema, exchanges=100)
    pages = [f"127.0.0.1:{port + 3 + number}" for number in range(3)]
    made = [
        join(
            folder / "coordinator/agreement.json",
            name,
            folder / name,
            algorithm=ready,
            data=str(data / f"{name}.csv"),
            http=page,
        )
        for name, page in zip(CLINICS, pages, strict=True)
    ]
    admit(folder / "coordinator", [node.path / "request.json" for node in made])
    for node in made:
        node.accept(folder / "coordinator/members.json", lambda members: True)
    with (data / "test.csv").open(encoding="utf-8", newline="") as opened:
        records = list(csv.DictReader(opened))
    with running(made, environment(folder)):
        return [score_of(page, records) for page in pages]


@contextmanager
def running(made: Sequence[NodeDirectory], places: Mapping[str, str]) -> Iterator[None]:
    """Nodes as processes, once all have come to their end; they answer until this is left."""
    with ExitStack() as stack:
        for node in made:
            command = [sys.executable, "-m", "gossamer", "node", str(node.path)]
            log = stack.enter_context((node.path / "node.log").open("wb"))
            process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL, env=dict(places))
            stack.callback(process.wait)
            stack.callback(process.terminate)
        end = time.monotonic() + PATIENCE
        while not all("horizon_used_up" in (node.path / "node.log").read_text() for node in made):
            assert time.monotonic() < end, "they do not come to their end"
            time.sleep(0.2)
        yield


def score_of(page: str, records: list[dict[str, str]]) -> float:
    with urllib.request.urlopen(f"http://{page}/predict", json.dumps(records).encode()) as answer:
        predicted = json.load(answer)["prediction"]
    return statistics.mean(one == record["diagnosis"] for one, record in zip(predicted, records, strict=True))


# Reading


def reading(folder: Path) -> str:
    """Microseconds a row, and whether all sources have the same records."""
    folder.mkdir()
    found = load_for_nodes(ROOT / "examples/clinics/tumours.toml", len(CLINICS))
    assert found.schema is not None
    records = write_all(folder, found.schema)
    named = {
        "CSV": "a.csv",
        "JSON lines": "a.jsonl",
        "Parquet": "a.parquet",
        "a folder of 100 CSV files": "inbox",
        "SQLite": "sqlite:a.db",
    }
    with ExitStack() as stack:
        host = stack.enter_context(postgresql(folder, found.schema, records))
        if host is not None:
            named["PostgreSQL"] = host
        rows, first = [], None
        for name, data in named.items():
            seconds, samples = read(folder, data, found)
            if first is None:
                first = samples
            assert all(np.array_equal(a[0], b[0]) and a[1] == b[1] for a, b in zip(first, samples, strict=True)), name
            rows.append([name, f"{1e6 * seconds / ROWS:.0f}"])
        if host is None:
            rows.append(["PostgreSQL", "skipped: no server, or no psycopg, on this machine"])
    title = (
        f"## Reading\n\n{ROWS:,} records of ten numbers and a label, eight at a time, the check of each included. "
        "All sources gave the same samples, and the second half of them after a restart.\n\n"
    )
    return title + table(["source", "microseconds a row"], rows)


def read(folder: Path, data: str, found: Any) -> tuple[float, list[Any]]:
    query = {"rows": "SELECT * FROM visits", "cursor": "id"} if ":" in data else None
    settings = Settings("north", "north", data=data, query=query)
    samples: list[Any] = []
    seconds, mark = 0.0, None
    for end in (ROWS // 2, ROWS):
        source = source_of(folder, settings, found.algorithm.problem, found.schema)
        if mark is not None:
            source.resume(mark)
        begun = time.perf_counter()
        while len(samples) < end:
            samples += source.take(8)
        seconds += time.perf_counter() - begun
        mark = source.mark
    return seconds, samples


def write_all(folder: Path, schema: Schema) -> list[tuple[Any, ...]]:
    """The same records in all kinds of files."""
    import pyarrow
    import pyarrow.parquet

    random = np.random.default_rng(0)
    bounds = [(column.low, column.high) for column in schema.features]  # type: ignore[union-attr]
    values = [[float(random.uniform(*pair)) for pair in bounds] for _ in range(ROWS)]
    records = [(*row, schema.label.values[n % 2]) for n, row in enumerate(values)]  # type: ignore[union-attr]
    rows = [dict(zip(schema.columns, record, strict=True)) for record in records]
    (folder / "inbox").mkdir()
    share = ROWS // 100
    for file, part in [("a.csv", rows)] + [(f"inbox/{n:02}.csv", rows[n * share :][:share]) for n in range(100)]:
        with (folder / file).open("w", newline="") as opened:
            writer = csv.DictWriter(opened, schema.columns)
            writer.writeheader()
            writer.writerows(part)
        os.utime(folder / file, (1e9, 1e9))
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "a.parquet")
    with closing(sqlite3.connect(folder / "a.db")) as opened, opened:
        names = ", ".join(f'"{name}"' for name in schema.columns)
        opened.execute(f"CREATE TABLE visits (id INTEGER PRIMARY KEY, {names})")
        marks = ", ".join("?" * len(schema.columns))
        opened.executemany(f"INSERT INTO visits ({names}) VALUES ({marks})", records)
    return records


@contextmanager
def postgresql(folder: Path, schema: Schema, records: list[tuple[Any, ...]]) -> Iterator[str | None]:
    """A server of Debian's packages with the same records, on a socket in a folder; None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    try:
        import psycopg
    except ImportError:
        found = []
    if not found:
        print("PostgreSQL: skipped. apt-get install postgresql, pip install 'gossamer[postgresql]'")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="pg") as name:
        place, own = Path(name), ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if own:
            shutil.chown(place, "postgres")
        user = "postgres" if own else os.environ["USER"]
        made = [*own, str(found[-1] / "initdb"), "-D", name + "/data", "-A", "trust", "-U", user]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=name)
        options = f"-k {name} -c listen_addresses='' -c fsync=off"
        control = [*own, str(found[-1] / "pg_ctl"), "-D", name + "/data", "-w", "-l", name + "/log"]
        subprocess.run([*control, "-o", options, "start"], check=True, stdout=subprocess.DEVNULL, cwd=name)
        try:
            address = f"postgresql:///postgres?host={name}&user={user}"
            with psycopg.connect(address) as opened:
                columns = ", ".join(f'"{one}" double precision' for one in schema.columns[:-1])
                opened.execute(f'CREATE TABLE visits (id SERIAL PRIMARY KEY, {columns}, "{schema.label.name}" text)')
                names = ", ".join(f'"{one}"' for one in schema.columns)
                with opened.cursor().copy(f"COPY visits ({names}) FROM STDIN") as copy:
                    for record in records:
                        copy.write_row(record)
            yield address
        finally:
            subprocess.run([*control, "-m", "fast", "stop"], check=True, stdout=subprocess.DEVNULL, cwd=name)


if __name__ == "__main__":
    main()
