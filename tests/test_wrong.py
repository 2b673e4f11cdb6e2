"""Wrong data, settings, keys and documents: the owner is told, nobody else is, and nothing is sent or spent."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gossamer.cli import app
from gossamer.errors import GossamerError
from gossamer.net import Ledger, NodeDirectory, launch
from gossamer.net.node.spending import added_up, costs_of
from tests.networks import Hub
from tests.wrongs import ROWS, WRONGS, Wrong, good, network, spent


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks of one site and of two, to be copied."""
    folder = tmp_path_factory.mktemp("made")
    network(folder / "one", [7400])
    network(folder / "two")
    return folder


def copied(made: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "machine"))
    shutil.copytree(made, folder / "sites")
    return folder / "sites" / "north"


@pytest.fixture
def node(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node without neighbours, so that it can start again by itself."""
    return copied(made / "one", tmp_path, monkeypatch)


@pytest.fixture
def one_of_two(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(made / "two", tmp_path, monkeypatch)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr("gossamer.net.startup.ZenohTransport", lambda link, forged: hub.transport(link.learner))
    return hub


def start(node: Path, exchanges: int = 3) -> None:
    found = NodeDirectory(node)
    launch(found, found.settings(), found.agreement().algorithm(), exchanges=exchanges).run(linger=False)


def say(node: Path, old: str, new: str) -> None:
    file = node / "node.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def command(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["node", *words])
    return done.exit_code, " ".join((done.output + done.stderr).split())


@pytest.mark.parametrize("wrong", WRONGS, ids=lambda wrong: wrong.name)
def test_whatever_is_wrong_is_refused_before_anything_is_spent(one_of_two: Path, hub: Hub, wrong: Wrong) -> None:
    node = one_of_two
    wrong.happen(node)
    with pytest.raises(GossamerError) as refused:
        start(node)
    assert wrong.said in str(refused.value)
    assert not any(value in str(refused.value) for value in (f"{ROWS}", "sesame", "12.50"))
    assert (spent(node), hub.sent, hub.receivers) == (False, [], {})
    code, said = command("check", str(node))
    assert (code, wrong.said in said) == (2, True)


def test_nothing_is_wrong_with_the_others(one_of_two: Path, hub: Hub) -> None:
    node = one_of_two
    code, said = command("check", str(node))
    assert (code, "Nothing stands in the way" in said, "benign: 60, malignant: 60" in said) == (0, True, True)
    assert not spent(node)
    start(node)
    assert spent(node)
    assert hub.sent
    file = node / "data-check.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["rows"] == ROWS


def test_owners_may_start_all_the_same(node: Path, hub: Hub) -> None:
    (node.parent / "north.csv").unlink()
    say(node, "allow = []", 'allow = ["missing", "outside"]')
    start(node)
    assert spent(node)


def test_a_restart_goes_by_all_rows_so_far(node: Path, hub: Hub) -> None:
    """One bad row among two new ones is no reason to stop a node that has read a hundred."""
    start(node)
    with (node.parent / "north.csv").open("a") as file:
        file.write("perhaps,1,1\n")
    start(node, 5)
    with (node.parent / "north.csv").open("a") as file:
        file.write("perhaps,1,1\n")
    with pytest.raises(GossamerError, match="more than 1 %"):
        start(node, 7)


def rows_of(node: Path) -> int:
    with Ledger.open(node / "ledger.db", read_only=True) as ledger:
        return ledger.last.number


def spent_on(node: Path) -> dict[str, float]:
    with Ledger.open(node / "ledger.db", read_only=True) as ledger:
        return {cost.source: round(added_up([cost])[0], 3) for cost in costs_of(ledger)}


def test_before_the_first_sample_other_data_cost_nothing(node: Path, hub: Hub) -> None:
    good(node.parent / "right.csv")
    good(node.parent / "north.csv", header="other,columns,here")
    assert command("data", str(node), "--data", str(node.parent / "north.csv"))[0] == 2
    code, said = command("data", str(node), "--data", str(node.parent / "right.csv"), "--again")
    assert (code, "give --data alone" in said) == (2, True)
    before = (node / "node.toml").read_text()
    code, said = command("data", str(node), "--data", str(node.parent / "right.csv"))
    assert (code, "nothing was spent" in said) == (0, True)
    after = (node / "node.toml").read_text()
    assert [old for old, new in zip(before.splitlines(), after.splitlines(), strict=True) if old != new] == [
        'data = "../north.csv"'
    ]
    assert rows_of(node) == 1
    start(node)


@pytest.mark.parametrize("again", [True, False])
def test_after_the_first_sample_other_data_are_booked(node: Path, hub: Hub, again: bool) -> None:
    start(node)
    good(node.parent / "right.csv")
    words = ["data", str(node), "--data", str(node.parent / "right.csv")]
    code, said = command(*words)
    assert (code, "one that is used twice costs twice" in said) == (2, True)
    code, said = command(*words, "--source", "north")
    assert (code, "another name" in said) == (2, True)
    before = rows_of(node)
    code, said = command(*words, *(["--again"] if again else ["--source", "corrected"]))
    assert code == 0, said
    assert rows_of(node) == before + 1
    assert spent_on(node) == ({"north": 2.0} if again else {"north": 1.0, "corrected": 1.0})
    start(node, 5)  # from the beginning of the new file
    with Ledger.open(node / "ledger.db", read_only=True) as ledger:
        ledger.verify()
        assert ledger.data_changed is False
        assert ledger.sources == (["north", "north"] if again else ["north", "corrected"])
    with sqlite3.connect(node / "ledger.db") as opened:
        assert [kind for (kind,) in opened.execute("SELECT kind FROM rows ORDER BY number")].count("data") == 1
    opened.close()
    start(node, 7)  # and on from there
    out = node.parent / "rows.jsonl"
    done = CliRunner().invoke(app, ["ledger", "export", str(node), "--out", str(out)])
    assert done.exit_code == 0
    done = CliRunner().invoke(app, ["ledger", "total", str(out)])
    assert ("2" if again else "corrected") in done.output


def test_the_new_data_are_read_from_their_beginning_once(node: Path, hub: Hub) -> None:
    start(node)
    good(node.parent / "right.csv")
    assert command("data", str(node), "--data", str(node.parent / "right.csv"), "--source", "other")[0] == 0
    for exchanges, rows in ((4, 1), (6, 2)):
        found = NodeDirectory(node)
        running = launch(found, found.settings(), found.agreement().algorithm(), exchanges=exchanges)
        running.run(linger=False)
        assert running.node.board.rows.read == rows


def test_a_budget_counts_records_that_come_again(node: Path, hub: Hub) -> None:
    with (node / "node.toml").open("a") as file:
        file.write("\n[budget]\nepsilon = 1.5\ndelta = 1e-6\n")
    start(node)
    good(node.parent / "right.csv")
    assert command("data", str(node), "--data", str(node.parent / "right.csv"), "--again")[0] == 0
    before = rows_of(node)
    with pytest.raises(GossamerError, match="with its next exchange, epsilon 2"):
        start(node, 5)
    assert rows_of(node) == before
    say(node, "epsilon = 1.5", "epsilon = 2.0")
    start(node, 5)
    assert rows_of(node) > before


def test_a_change_of_data_that_broke_off_is_made_again(node: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings are written first: then the node refuses to start, and reads nothing twice."""
    start(node)
    good(node.parent / "right.csv")
    words = ["data", str(node), "--data", str(node.parent / "right.csv"), "--again"]
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "change_data", lambda self, source: (_ for _ in ()).throw(OSError("the machine died")))
        assert CliRunner().invoke(app, ["node", *words]).exit_code == 1
    with pytest.raises(GossamerError, match="not the data that were read before"):
        start(node)
    assert command(*words)[0] == 0
    start(node, 5)


def test_a_node_that_runs_keeps_its_data(node: Path, hub: Hub) -> None:
    start(node)
    good(node.parent / "right.csv")
    with Ledger.open(node / "ledger.db"):
        code, said = command("data", str(node), "--data", str(node.parent / "right.csv"), "--again")
    assert (code, "another process" in said) == (2, True)
    assert "../north.csv" in (node / "node.toml").read_text()


def test_a_site_joins_with_a_database(node: Path, tmp_path: Path) -> None:
    path = tmp_path / "clinic.db"
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("CREATE TABLE visits (id INTEGER PRIMARY KEY, age REAL, size REAL, diagnosis TEXT)")
        opened.executemany("INSERT INTO visits VALUES (?, 40, 20, ?)", [(n, "benign") for n in range(50)])
    agreement = str(node.parent / "coordinator" / "agreement.json")
    words = ["join", agreement, str(tmp_path / "new"), "--member", "north", "--data", f"sqlite:{path}"]
    code, said = command(*words, "--query", "SELECT * FROM visits")
    assert (code, "both" in said) == (2, True)
    code, said = command(*words)
    assert (code, "[query]" in said, (tmp_path / "new").exists()) == (2, True, False)
    assert command(*words, "--query", "SELECT * FROM visits", "--cursor", "id")[0] == 0
    code, said = command("check", str(tmp_path / "new"))
    assert code == 0, said
    assert "the same label: there is nothing to learn" in said
    assert "still to be accepted" in said
