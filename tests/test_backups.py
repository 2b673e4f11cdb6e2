"""Copies of a node: what can be restored, what cannot, and that no copy uses noise twice."""

from __future__ import annotations

import io
import shutil
import tarfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from gossamer.errors import ConfigurationError, GossamerError, NetworkError, PrivacyError
from gossamer.net import Ledger, LedgerError, NodeDirectory, back_up, launch, move, restore
from gossamer.net.ledgers import checked_ledger
from gossamer.net.node.spending import costs_of
from gossamer.net.store.witness import default_witness, state_directory
from tests.lives import changed, folder, followed, hub, made, nodes, rows_of, rows_read, run

__all__ = ["folder", "hub", "made", "nodes"]  # fixtures


def another_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "another machine"))


def epsilon_of(place: Path) -> float:
    with ExitStack() as stack:
        (cost,) = costs_of(checked_ledger(place, stack))
        assert cost.loss is not None
        return cost.loss.epsilon(1e-6)


# Backups


def test_a_backup_holds_nothing_of_the_noise_and_the_data(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    run(nodes, 3)
    back_up(nodes["north"], folder / "north.backup")
    assert (folder / "north.backup").stat().st_mode & 0o777 == 0o600
    with tarfile.open(folder / "north.backup") as archive:
        names = set(archive.getnames())
    assert not names & {"noise.key", "ledger.db", "ledger.blobs"}
    whole = b"".join(_content(folder / "north.backup").values())
    assert (nodes["north"].path / "noise.key").read_bytes() not in whole
    with Ledger.open(nodes["north"].ledger, read_only=True) as ledger:
        state, message = ledger.state(), ledger.message(2, 0, 1)
    assert state is not None
    assert message is not None
    assert state not in whole
    assert message not in whole


def _content(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]


def test_a_node_that_was_restored_goes_on_in_the_next_run_and_the_lost_one_counts_in_full(
    folder: Path, nodes: dict[str, NodeDirectory]
) -> None:
    """It ran on after the backup, so nobody knows what it has spent: never less than all."""
    back_up(nodes["north"], folder / "north.backup")  # before the first exchange: nothing was spent
    run(nodes, 3)
    shutil.rmtree(folder / "north")
    back, copy = restore(folder / "north.backup", folder / "back")
    assert copy == "backup"
    assert epsilon_of(back.path) == pytest.approx(1.0, rel=1e-3)
    with pytest.raises(PrivacyError, match=r"restored from a backup\. It cannot go on in its run"):
        run([back], 5)
    with pytest.raises(PrivacyError, match="restored from a backup"):
        move(back, folder / "moved")
    second = changed(folder)
    after = {
        name: followed(back if name == "north" else node, second, folder / f"{name}-2") for name, node in nodes.items()
    }
    assert run(after, 4) == ["finished"] * 3
    assert rows_of(after["north"]) == 2 + 4
    assert after["north"].settings().budget == after["south"].settings().budget


def test_a_backup_of_a_node_that_runs_and_its_spend(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    run(nodes, 3)
    running = launch(nodes["north"], nodes["north"].settings(), nodes["north"].agreement().algorithm())
    with running.opened:
        back_up(nodes["north"], folder / "north.backup")
    back, _ = restore(folder / "north.backup", folder / "back")
    assert epsilon_of(back.path) == pytest.approx(epsilon_of(nodes["north"].path), rel=1e-3)
    with pytest.raises(ConfigurationError, match="a file that is not there yet"):
        back_up(nodes["north"], folder / "north.backup")


# Moves


def test_a_node_moves_and_goes_on(
    folder: Path, nodes: dict[str, NodeDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(nodes, 3)
    key, read = (nodes["north"].path / "noise.key").read_bytes(), rows_read(nodes["north"])
    move(nodes["north"], folder / "north.moved")
    assert not (nodes["north"].path / "noise.key").exists()
    with pytest.raises(PrivacyError, match="was moved, with its noise key"):
        run([nodes["north"]], 5)
    with pytest.raises(PrivacyError, match="was moved"):
        followed(nodes["north"], changed(folder), folder / "n2")
    another_machine(folder, monkeypatch)
    there, copy = restore(folder / "north.moved", folder / "there")
    assert (copy, (there.path / "noise.key").read_bytes()) == ("move", key)
    assert rows_read(there) == read
    with pytest.raises(LedgerError, match="adopt it"):
        run([there], 5)
    machine = folder.parent / "machine"
    for known in machine.rglob("*"):  # witnesses of the two that stay, and their registry
        if known.is_file() and known.name != _fingerprint(there):
            shutil.copy(known, state_directory().parent / known.relative_to(machine))
    assert run([there, nodes["south"], nodes["west"]], 6, adopt=[there]) == ["finished"] * 3
    assert rows_of(there) == 2 + 6


def test_an_old_move_is_refused_by_the_witness_and_by_neighbours(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    run(nodes, 3)
    move(nodes["north"], folder / "north.moved")
    here, _ = restore(folder / "north.moved", folder / "here")
    assert run([here, nodes["south"], nodes["west"]], 6) == ["finished"] * 3  # the same machine knows it
    again, _ = restore(folder / "north.moved", folder / "again")
    with pytest.raises(LedgerError, match="restored from an old copy"):
        run([again], 7)
    default_witness(_fingerprint(again)).unlink()
    with pytest.raises(LedgerError, match="holds a message of exchange"):
        run([again, nodes["south"], nodes["west"]], 8, adopt=[again])
    assert rows_of(again) == 2 + 3


def _fingerprint(node: NodeDirectory) -> str:
    with Ledger.open(node.ledger, read_only=True) as ledger:
        return ledger.identity.key


def test_a_node_that_runs_is_not_moved(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    running = launch(nodes["north"], nodes["north"].settings(), nodes["north"].agreement().algorithm())
    with running.opened, pytest.raises(NetworkError, match="another process runs on this directory"):
        move(nodes["north"], folder / "north.moved")
    assert (nodes["north"].path / "noise.key").exists()
    assert not (folder / "north.moved").exists()


# Files that are none


@pytest.mark.parametrize("fault", ["gone", "text", "cut", "foreign", "path", "twice", "lacking"])
def test_files_that_cannot_be_restored(folder: Path, nodes: dict[str, NodeDirectory], fault: str) -> None:
    file = folder / "north.backup"
    back_up(nodes["north"], file)
    content = _content(file)
    if fault == "gone":
        file.unlink()
    elif fault == "text":
        file.write_text("nothing")
    elif fault == "cut":
        file.write_bytes(file.read_bytes()[:200])
    else:
        added = {"foreign": "noise.txt", "path": "../node.toml", "twice": "node.toml", "lacking": "request.json"}[fault]
        with tarfile.open(file, "w:gz") as archive:
            for name, data in [*content.items(), (added, b"x")]:
                if fault == "lacking" and name in ("pair.key", "request.json"):
                    continue
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    with pytest.raises(GossamerError, match=r"FILE"):
        restore(file, folder / "back")
    assert not (folder / "back").exists()
