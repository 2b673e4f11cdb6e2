"""Directories that Gossamer 0.2 made, stored in tests/data: what is kept of them, and what is not trusted any more."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gossamer import Budget
from gossamer.cli import app
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net import Bill, NodeDirectory, admit, new_network, upgrade
from gossamer.net.ledgers import checked_ledger, distinct
from gossamer.net.node.spending import added_up, costs_of
from tests.lives import LATE, PACE, agree, algorithm_for, begun, hub, rows_of, rows_read, run, sites

__all__ = ["hub"]  # nodes speak in memory

STORED = Path(__file__).parent / "data" / "node-0.2"
"""Two nodes of 0.2.0 (`pd_ogd`, epsilon 1) that made five exchanges: without cert.key, which nothing here reads."""
NAMES = ("north", "south")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(STORED, tmp_path / "old")
    new_network(tmp_path / "coordinator", algorithm_for(2), sites(NAMES), pace=PACE, exchanges=LATE)
    return tmp_path


def upgraded(folder: Path, number: int, consent: object = agree) -> NodeDirectory:
    name, agreement = NAMES[number], folder / "coordinator" / "agreement.json"
    old = NodeDirectory(folder / "old" / f"node-{number}")
    return upgrade(old, folder / name, agreement, name, consent=consent)  # type: ignore[arg-type]


def test_a_ledger_of_0_2_is_read_and_verified(folder: Path) -> None:
    with ExitStack() as stack:
        ledger = checked_ledger(folder / "old" / "node-0", stack)
        assert (ledger.last.number, ledger.identity.source) == (7, "clinics/node-0")
        assert added_up(costs_of(ledger))[0] == pytest.approx(1.0, rel=1e-3)


def test_a_node_of_0_2_goes_on_with_its_data_and_its_spend(folder: Path) -> None:
    nodes = [upgraded(folder, number) for number in range(2)]
    admit(folder / "coordinator", [node.path / "request.json" for node in nodes])
    for node in nodes:
        node.accept(folder / "coordinator" / "members.json", lambda members: True)
    assert run(nodes, 3) == ["finished"] * 2
    lines = (folder / "old" / "node-0" / "samples.jsonl").read_bytes().splitlines(keepends=True)
    assert rows_read(NodeDirectory(folder / "old" / "node-0")) == sum(map(len, lines[:5]))
    assert rows_read(nodes[0]) == sum(map(len, lines))
    assert rows_of(nodes[0]) == 2 + 3
    with ExitStack() as stack:
        ledgers = [checked_ledger(place, stack) for place in (folder / "old" / "node-0", nodes[0].path)]
        assert len({ledger.identity.source for ledger in ledgers}) == 1
        total = added_up([cost for one in distinct(ledgers) for cost in costs_of(one)])
    assert total[0] == pytest.approx(2.0, rel=1e-3)
    budget = nodes[0].settings().budget
    assert budget is not None
    assert total[0] <= budget["epsilon"] <= 2.001


def test_no_key_of_0_2_is_taken(folder: Path) -> None:
    """One machine has made them, for all nodes."""
    old = b"".join(file.read_bytes() for file in (folder / "old").glob("*/*.*") if file.suffix in (".key", ".pem"))
    node = upgraded(folder, 0)
    for name in ("noise.key", "pair.key", "cert.key", "cert.pem"):
        assert (node.path / name).read_bytes() not in old


def test_whoever_does_not_agree_joins_nothing(folder: Path) -> None:
    def half(bill: Bill) -> Budget:
        assert bill.spent[0] == pytest.approx(1.0, rel=1e-3)
        return bill.up_to(1.5)

    with pytest.raises(PrivacyError, match="earlier runs and the first exchange"):
        upgraded(folder, 0, half)
    assert not (folder / "north").exists()


def test_the_old_directory_says_what_to_do_and_a_new_one_is_not_upgraded(folder: Path) -> None:
    old = NodeDirectory(folder / "old" / "node-0")
    with pytest.raises(ConfigurationError, match="gossamer node upgrade"):
        old.settings()
    new = begun(folder / "new", NAMES)["north"]
    agreement = folder / "new" / "coordinator" / "agreement.json"
    with pytest.raises(ConfigurationError, match="gossamer node follow"):
        upgrade(new, folder / "x", agreement, "north", consent=agree)


def test_settings_of_0_2_that_have_their_place_in_the_agreement_are_not_kept(folder: Path) -> None:
    text = (upgraded(folder, 0).path / "node.toml").read_text()
    assert [key for key in ("[pace]", "[peers]", "listen", "network =", "learner") if key in text] == []
    assert 'data = "../old/node-0/samples.jsonl"' in text
    assert json.loads((folder / "old" / "node-0" / "algorithm.json").read_text())["spec"] == 1


def test_the_command_says_what_is_kept(folder: Path) -> None:
    words = ["node", "upgrade", folder / "old" / "node-0", folder / "north", folder / "coordinator" / "agreement.json"]
    done = CliRunner().invoke(app, [*map(str, words), "--member", "north", "--epsilon", "2.1"])
    assert done.exit_code == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "So far your data have cost epsilon 1, " in said
    assert "Its keys were not taken" in said
    assert "Fingerprint of north: " in said
