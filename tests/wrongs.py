"""Wrong data, settings, keys and documents of a node: what an owner may do by accident, and what it is told."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from gossamer import Budget, algorithms, problems, topology
from gossamer.core import Algorithm
from gossamer.data import Choice, Number, Schema
from gossamer.net import NodeDirectory, Pace, admit, join, new_network, prepared
from gossamer.net.wire.certificates import certified, common_name

SCHEMA = Schema((Number("age", 0, 100), Number("size", 0, 50)), Choice("diagnosis", ("benign", "malignant")))
LATE = 10**6  # exchanges: the end of learning
ROWS = 120


def algorithm(sites: int) -> Algorithm:
    """What the sites learn by."""
    problem, around = problems.Logistic(SCHEMA.dim, feature_bound=SCHEMA.feature_bound), topology.complete(2)
    if sites == 1:
        around = topology.isolated(1)
    return prepared(algorithms.pd_ogd(problem, around, budget=Budget(1.0), clip=1.0, step=0.1))


def network(folder: Path, ports: Sequence[int] = (7400, 7401)) -> Path:
    """Sites that have joined and accepted each other; the directory of the first, `north`, beside north.csv."""
    sites = {name: f"127.0.0.1:{port}" for name, port in zip(("north", "south"), ports, strict=False)}
    ready = algorithm(len(sites))
    pace = Pace(deadline=0.1, patience=0.1, period=0.001)
    new_network(folder / "coordinator", ready, sites, pace=pace, schema=SCHEMA, exchanges=LATE)
    made = [
        join(folder / "coordinator/agreement.json", name, folder / name, data="../north.csv", algorithm=ready)
        for name in sites
    ]
    admit(folder / "coordinator", [node.path / "request.json" for node in made])
    for node in made:
        node.accept(folder / "coordinator/members.json", lambda members: True)
    good(folder / "north.csv")
    return folder / "north"


def good(
    file: Path,
    *,
    header: str = "diagnosis,age,size",
    row: Callable[[int], tuple[object, object, object]] = lambda n: (("benign", "malignant")[n % 2], n % 100, n % 50),
    separator: str = ",",
    encoding: str = "utf-8",
) -> None:
    """A file of records, or one with something wrong in it."""
    rows = [separator.join(map(str, row(number))) for number in range(ROWS)]
    file.write_text("\n".join([header.replace(",", separator), *rows]) + "\n", encoding=encoding)


class Wrong(NamedTuple):
    """Something wrong: a name, how it comes about (given the directory of the node), and words of the refusal."""

    name: str
    happen: Callable[[Path], object]
    said: str


def _data(name: str) -> Callable[[Path], Path]:
    return lambda node: node.parent / name


def _settings(node: Path, *lines: str) -> None:
    """Lines take the places of those that set the same."""
    file = node / "node.toml"
    text = file.read_text()
    for line in lines:
        key = line.partition(" =")[0]
        old = next((one for one in text.splitlines() if one.startswith(f"{key} =")), None)
        text = f"{text}\n{line}\n" if old is None else text.replace(old, line)
    file.write_text(text)


def _csv(**options: object) -> Callable[[Path], None]:
    return lambda node: good(node.parent / "north.csv", **options)  # type: ignore[arg-type]


def _a_broken_parquet_file(node: Path) -> None:
    (node.parent / "north.parquet").write_bytes(b"PAR1 and half of the rest")
    _settings(node, 'data = "../north.parquet"')


def _a_folder_with_another_table(node: Path) -> None:
    (node.parent / "inbox").mkdir()
    good(node.parent / "inbox/a.csv")
    (node.parent / "inbox/b.csv").write_text("invoice,amount\n7,12.50\n")
    _settings(node, 'data = "../inbox"')


def _a_database_without_the_table(node: Path) -> None:
    with closing(sqlite3.connect(node.parent / "clinic.db")) as opened, opened:
        opened.execute("CREATE TABLE wards (id INTEGER PRIMARY KEY)")
    _settings(node, 'data = "sqlite:../clinic.db"', '[query]\nrows = "SELECT * FROM visits"\ncursor = "id"')


def _other_keys_in_json(node: Path) -> None:
    rows = [json.dumps({"Age": 1, "Size": 2, "Diagnosis": "benign"}) for _ in range(ROWS)]
    (node.parent / "north.jsonl").write_text("\n".join(rows) + "\n")
    _settings(node, 'data = "../north.jsonl"')


def _the_certificate_of_another(node: Path) -> None:
    (node / "cert.pem").write_bytes(certified(common_name("ab", 0), ["127.0.0.1"])[0])


def _another_key_of_a_member(node: Path) -> None:
    file = node / "accepted.json"
    known = json.loads(file.read_text())
    known["members"]["south"] = known["members"]["north"]
    file.write_text(json.dumps(known))


def _an_agreement_that_was_changed(node: Path) -> None:
    file = node / "agreement.json"
    file.write_text(file.read_text().replace('"benign"', '"harmless"'))


def _row(**changed: Callable[[int], object]) -> Callable[[int], tuple[object, object, object]]:
    def row(number: int) -> tuple[object, object, object]:
        cells = {"diagnosis": ("benign", "malignant")[number % 2], "age": number % 100, "size": number % 50}
        return tuple({**cells, **{name: change(number) for name, change in changed.items()}}.values())  # type: ignore[return-value]

    return row


WRONGS = (
    Wrong("the file is missing", lambda node: (node.parent / "north.csv").unlink(), "no row in it yet"),
    Wrong(
        "a header and no rows", lambda node: _data("north.csv")(node).write_text("diagnosis,age,size\n"), "no row in"
    ),
    Wrong("labels M and B", _csv(row=_row(diagnosis=lambda n: "BM"[n % 2])), "more than 1 % of the rows"),
    Wrong(
        "a cell in fifty is empty", _csv(row=_row(age=lambda n: "" if n % 50 == 7 else 40)), "more than 1 % of the rows"
    ),
    Wrong("decimal commas", _csv(row=_row(size=lambda n: f'"{n % 50},5"')), "more than 1 % of the rows"),
    Wrong(
        "millimetres, where the bounds are centimetres", _csv(row=_row(size=lambda n: 10 * (n % 50))), "a tenth of the"
    ),
    Wrong("a column is missing", _csv(header="diagnosis,age,weight"), "no column 'size'"),
    Wrong("no header", _csv(header="benign,50,20"), "no header"),
    Wrong("cells separated by semicolons", _csv(separator=";"), "separate cells by commas"),
    Wrong("text in UTF-16, as a spreadsheet saves it", _csv(encoding="utf-16"), "as CSV in UTF-8"),
    Wrong("JSON lines with other keys", _other_keys_in_json, "more than 1 % of the rows"),
    Wrong("half of a Parquet file", _a_broken_parquet_file, "not a Parquet file"),
    Wrong("a folder with another table among the files", _a_folder_with_another_table, "more than 1 % of the rows"),
    Wrong("a database without the table", _a_database_without_the_table, "not to this query"),
    Wrong("a spreadsheet", lambda node: _settings(node, 'data = "../north.xlsx"'), "a name that ends in .jsonl"),
    Wrong("a key of node.toml misspelt", lambda node: _settings(node, 'dta = "../north.csv"'), "node.toml dta"),
    Wrong(
        "a password in the name of the database",
        lambda node: _settings(node, 'data = "postgresql://ward:sesame@db/clinic"'),
        "pgpass",
    ),
    Wrong(
        "a budget below what the first exchange costs",
        lambda node: _settings(node, "[budget]\nepsilon = 0.5\ndelta = 1e-6"),
        "[budget] in node.toml",
    ),
    Wrong("a key that others may read", lambda node: (node / "cert.key").chmod(0o644), "others may read"),
    Wrong("the certificate of another key", _the_certificate_of_another, "that of another key"),
    Wrong("a member with another key than before", _another_key_of_a_member, "are not those that were accepted"),
    Wrong("an agreement changed after it was signed", _an_agreement_that_was_changed, "changed after"),
    Wrong("the ledger is gone", lambda node: (node / "ledger.db").unlink(), "ledger.db is gone"),
)
"""Each is refused before anything is sent or spent."""


def spent(node: Path) -> bool:
    """Whether a node has written down that anything was spent, or that it has begun."""
    ledger = NodeDirectory(node).ledger
    if not ledger.exists():
        return False
    with closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as opened:
        return bool(opened.execute("SELECT count(*) FROM rows").fetchone()[0] > 1)
