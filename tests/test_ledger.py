"""The ledger: every fault is found, a crash loses nothing that was acknowledged, and no raw data leave it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gossamer.cli.commands import Commands
from gossamer.cli.ledger import ledger as commands
from gossamer.errors import ConfigurationError, NetworkError, PrivacyError
from gossamer.net.store.chain import Row
from gossamer.net.store.ledger import Identity, Ledger, LedgerError, Spent
from gossamer.net.store.pieces import place
from gossamer.net.store.vault import Sealer
from gossamer.net.store.witness import Mark, Witness, default_witness
from gossamer.net.wire.transport import ALL
from gossamer.privacy import Approximate, BoundedRange, Gaussian, Guarantee, Pure, compose, no_guarantee
from gossamer.privacy.accounting import sampler_share

SECRET = b"a raw sample of somebody, 37.2 degrees"
MESSAGE = b"a message that was noised"
PROMISE = Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,), horizon=100)


def identity(**other):
    return Identity(**{"network": "a1", "learner": 0, "config": "b2", "source": "meters", "key": "c3"} | other)


def begun(folder, *, sealer=None, witness=None, keep=1024, promise=PROMISE, run="run1", **other):
    """A new ledger whose run has begun, open."""
    folder.mkdir(exist_ok=True)
    Ledger.create(folder / "ledger.db", identity(**other))
    ledger = Ledger.open(folder / "ledger.db", sealer=sealer, witness=witness, keep=keep)
    ledger.begin(run, promise)
    return ledger


def fill(ledger, count, first=0):
    """So many releases; in row n the message and the state carry n."""
    for exchange in range(first, first + count):
        number = str(ledger.last.number + 1).encode()
        spent = [Spent("gradient", exchange + 1, Pure(0.01 * (exchange + 1)))]
        ledger.commit("release", exchange, 0, spent, {ALL: MESSAGE + number}, SECRET + number)


def filled(folder, count=6, **options):
    """The path of a closed ledger: rows 1 and 2 begin it, then come `count` releases."""
    with begun(folder, **options) as ledger:
        fill(ledger, count)
    return folder / "ledger.db"


def change(path, *statements):
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


def verify(path, **options):
    with Ledger.open(path, read_only=True, **options) as ledger:
        ledger.verify()


# Writing and reading


def test_rows_messages_and_state_come_back(tmp_path):
    with begun(tmp_path) as ledger:
        row = ledger.commit("release", 0, 0, [Spent("x", 1, Gaussian(0.1))], {1: b"one", 2: b"three"}, b"s0")
        assert (row.number, row.kind, row.exchange, row.step, row.run, row.bytes) == (3, "release", 0, 0, "run1", 8)
        gossip = ledger.commit("gossip", 0, 1, (), {ALL: b"all", 2: b"own"}, b"s1")
        assert gossip.spent == row.spent == (Spent("x", 1, Gaussian(0.1)),)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert [ledger.message(0, 0, who) for who in (1, 2, 3)] == [b"one", b"three", None]
        assert [ledger.message(0, 1, who) for who in (1, 2)] == [b"all", b"own"]
        assert ledger.message(1, 0, 1) is None
        assert ledger.state() == b"s1"
        assert (ledger.run, ledger.promise, ledger.identity) == ("run1", PROMISE, identity())
        assert [one.number for one in ledger.rows()] == [1, 2, 3, 4]
        assert list(ledger.rows())[2:] == [row, gossip]
        ledger.verify()


def test_digests_tell_nothing(tmp_path):
    """The same bytes have other digests in another row, in another ledger, and as a state."""
    found = []
    for name in ("one", "other"):
        with begun(tmp_path / name) as ledger:
            for t in range(2):
                row = ledger.commit("release", t, 0, (), {0: b"same"}, b"same")
                found += [row.message, row.state]
    assert len(set(found)) == 8
    assert hashlib.sha256(b"same").hexdigest() not in found


def test_before_the_run_begins(tmp_path):
    Ledger.create(tmp_path / "ledger.db", identity())
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert (ledger.run, ledger.promise, ledger.state(), ledger.last.kind) == (None, None, None, "genesis")
        ledger.verify()
        with pytest.raises(PrivacyError, match="has not begun"):
            fill(ledger, 1)
        ledger.begin("r", PROMISE)
        with pytest.raises(PrivacyError, match="'start' cannot stand here"):
            ledger.begin("again", PROMISE)
        assert ledger.run == "r"


def test_the_end(tmp_path):
    with begun(tmp_path) as ledger:
        fill(ledger, 2)
        assert ledger.finish(b"last", "horizon_used_up").kind == "end"
        for later in (lambda: fill(ledger, 1, first=2), lambda: ledger.finish(b"again", "again")):
            with pytest.raises(PrivacyError, match="has ended"):
                later()
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.ended
        assert ledger.state() == b"last"
        assert ledger.message(1, 0, 0) == MESSAGE + b"4"  # not the end row, which has the same exchange and step
        ledger.verify()


@pytest.mark.parametrize(
    ("exchange", "step", "spent", "why"),
    [
        (1, 0, [Spent("x", 3, Pure(0.3))], "exchange 1, step 0 is not later than exchange 1, step 1"),
        (1, 1, [Spent("x", 3, Pure(0.3))], "not later"),
        (0, 5, [Spent("x", 3, Pure(0.3))], "not later"),
        (2, 0, [Spent("x", 3, Pure(0.19))], "'x' got smaller"),
        (2, 0, [Spent("x", 1, Pure(0.3))], "'x' went back from position 2 to 1"),
        (2, 0, [Spent("y", 3, Pure(0.3))], "'x' is missing"),
        (2, 0, [Spent("x", 3, Gaussian(0.3))], "'x' got smaller"),
        (2, 0, [], "'x' is missing"),
        (2, 0, [Spent("x", 3, Pure(0.3))] * 2, "named twice"),
    ],
)
def test_refused_before_anything_is_written(tmp_path, exchange, step, spent, why):
    with begun(tmp_path) as ledger:
        ledger.commit("release", 0, 0, [Spent("x", 1, Pure(0.1))], {ALL: b"m"}, b"s")
        last = ledger.commit("release", 1, 1, [Spent("x", 2, Pure(0.2))], {ALL: b"m"}, b"s")
        with pytest.raises(PrivacyError, match=why):
            ledger.commit("release", exchange, step, spent, {ALL: b"other"}, b"other")
        assert (ledger.last, ledger.state(), ledger.message(1, 1, 0)) == (last, b"s", b"m")
        ledger.commit("release", 2, 0, [Spent("x", 2, Pure(0.2)), Spent("y", 1, Pure(0.1))], {}, b"t")
        ledger.verify()


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "end"},
        {"exchange": -1},
        {"step": 0.5},
        {"messages": {-2: b"m"}},
        {"messages": {1: "text"}},
        {"state": None},
    ],
)
def test_bad_arguments(tmp_path, bad):
    good = {"kind": "release", "exchange": 0, "step": 0, "spent": (), "messages": {1: b"m"}, "state": b"s"}
    with begun(tmp_path) as ledger:
        with pytest.raises(ConfigurationError):
            ledger.commit(**good | bad)
        assert ledger.commit(**good).number == 3


def test_one_ulp_less_is_no_shrinking(tmp_path):
    with begun(tmp_path) as ledger:
        ledger.commit("release", 0, 0, [Spent("x", 1, Pure(0.1))], {}, b"")
        ledger.commit("release", 1, 0, [Spent("x", 2, Pure(math.nextafter(0.1, 0)))], {}, b"")


def test_infinite_and_growing_losses(tmp_path):
    with begun(tmp_path, promise=no_guarantee("an example")) as ledger:
        for t in (1, 2, 3):
            losses = [Pure(math.inf), BoundedRange((0.1,) * t), Approximate(0.1 * t, 1e-9 * t)]
            spent = [Spent(str(i), t, loss) for i, loss in enumerate(losses)]
            ledger.commit("release", t, 0, spent, {}, b"")
        ledger.verify()
        assert ledger.last.spent[1].loss == BoundedRange((0.1, 0.1, 0.1))


def test_the_outbox_keeps_so_many_rows(tmp_path):
    path = filled(tmp_path, 10, keep=3)
    with Ledger.open(path, keep=3) as ledger:
        assert [ledger.message(t, 0, 1) is not None for t in range(10)] == [False] * 7 + [True] * 3
        ledger.verify()
        fill(ledger, 1, first=10)
        assert [ledger.message(t, 0, 1) is not None for t in range(11)] == [False] * 8 + [True] * 3
        ledger.verify()


def test_old_states_and_old_messages_leave_the_file(tmp_path):
    """Also where sizes change, so that states are not overwritten in place."""
    with begun(tmp_path, keep=2) as ledger:
        for t in range(40):
            marked = f"state {t:03d}".encode() * (3000 - 50 * t)
            ledger.commit("release", t, 0, (), {ALL: f"sent {t:03d}".encode() * 3000}, marked)
    data = (tmp_path / "ledger.db").read_bytes()
    assert [t for t in range(40) if f"state {t:03d}".encode() in data] == [39]
    assert [t for t in range(40) if f"sent {t:03d}".encode() in data] == [38, 39]


def test_the_file_does_not_grow(tmp_path):
    """But for the rows, of less than 1 KB each; the sizes of states change, so that they are not always in place."""
    path, sizes = tmp_path / "ledger.db", []
    begun(tmp_path).close()
    for first in (0, 30, 60):
        with Ledger.open(path, keep=4) as ledger:
            for t in range(first, first + 30):
                state = secrets.token_bytes(120_000 + 1000 * (t % 7))
                ledger.commit("release", t, 0, (), {ALL: bytes(40_000)}, state)
            assert (tmp_path / "ledger.db-wal").stat().st_size < 20 << 20
        sizes.append(path.stat().st_size)
    assert sizes[0] <= sizes[1] <= sizes[2] <= sizes[0] + 60_000
    assert sizes[2] < 800_000


def test_large_and_many_messages_from_several_threads(tmp_path):
    with begun(tmp_path) as ledger:
        wrong = []

        def ask():
            for t in range(30):
                found = ledger.message(t, 0, 1)
                wrong.extend([t] if found not in (None, bytes([t]) * 50_000) else [])

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for t in range(30):
            ledger.commit("release", t, 0, (), {ALL: bytes([t]) * 50_000}, b"s")
        for thread in threads:
            thread.join()
        assert not wrong


@pytest.mark.parametrize("when", ["new", "open", "closed", "copied"])
def test_only_the_owner_can_read(tmp_path, when):
    old = os.umask(0)
    try:
        witness = Witness(tmp_path / "outside" / "witness")
        folder = tmp_path / "node"
        if when == "new":
            folder.mkdir()
            Ledger.create(folder / "ledger.db", identity())
        else:
            ledger = begun(folder, witness=witness)
            fill(ledger, 2)
            if when == "closed":
                ledger.close()
        if when == "copied":
            ledger.close()
            (folder / "ledger.db").chmod(0o644)
            ledger = Ledger.open(folder / "ledger.db", witness=witness)
            fill(ledger, 1, first=2)
        files = [*folder.iterdir(), *(tmp_path / "outside").glob("*")]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert len(files) == {"new": 1, "closed": 3, "open": 5, "copied": 5}[when]
        if when in ("open", "copied"):
            ledger.close()
    finally:
        os.umask(old)


def test_create_never_overwrites(tmp_path):
    path = filled(tmp_path)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="not there yet"):
        Ledger.create(path, identity())
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ledger.db", "ledger.lock"]


# Faults


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (["UPDATE rows SET bytes = bytes + 1 WHERE number = 5"], "row 5: its content"),
        (["UPDATE rows SET time = time + 1 WHERE number = 1"], "row 1: its content"),
        (["UPDATE rows SET spent = replace(spent, '0.0', '0.00') WHERE number = 5"], "row 5: its content"),
        (["UPDATE rows SET note = replace(note, '1.0', '0.5') WHERE number = 2"], "row 2: its content"),
        (["UPDATE rows SET spent = '[' WHERE number = 5"], "row 5: it cannot be read"),
        (["UPDATE rows SET spent = NULL WHERE number = 5"], "row 5: it cannot be read"),
        (["UPDATE rows SET kind = 'gossip' WHERE number = 5"], "row 5: its content"),
        (["UPDATE rows SET run = 'run2' WHERE number = 5"], "row 5: its content"),
        (["DELETE FROM rows WHERE number = 5"], "row 5: number 6 stands"),
        (["DELETE FROM rows WHERE number = 8"], "row 8: it was removed"),
        (["DELETE FROM rows WHERE number >= 7"], "row 7: it was removed"),
        (["DELETE FROM rows WHERE number = 2"], "row 2: number 3 stands"),
        (["DELETE FROM rows WHERE number = 1"], "first or the last row"),
        (["DELETE FROM rows"], "first or the last row"),
        (["UPDATE rows SET number = 0 WHERE number = 1"], "first or the last row"),
        (["UPDATE rows SET number = number + 1 WHERE number = 8"], "first or the last row"),
        (["INSERT INTO rows SELECT 0, time, kind, exchange, step, run, spent, bytes, message, state, note, previous, "
          "hash FROM rows WHERE number = 3"], "row 1: number 0 stands"),
        (["DELETE FROM rows WHERE number = 5", "UPDATE rows SET number = number - 1 WHERE number > 5"],
         "first or the last row"),
        (["UPDATE rows SET number = 99 WHERE number = 4", "UPDATE rows SET number = 4 WHERE number = 5",
          "UPDATE rows SET number = 5 WHERE number = 99"], "row 4: it does not carry"),
        (["UPDATE blobs SET data = X'00' WHERE place < 0"], "row 8: the stored state"),
        (["DELETE FROM blobs WHERE place < 0"], "row 8: the stored state"),
        ([f"UPDATE blobs SET data = X'00' WHERE place = {place(6, ALL)}"], "row 6: the stored messages"),
        ([f"DELETE FROM blobs WHERE place = {place(6, ALL)}"], "row 6: the stored messages"),
        (["DELETE FROM blobs WHERE place > 0"], "row 8: the stored messages"),
        ([f"INSERT INTO blobs VALUES ({place(6, 3)}, X'00', NULL, NULL)"], "row 6: the stored messages"),
        ([f"INSERT INTO blobs VALUES ({place(9, ALL)}, X'00', NULL, NULL)"], "row 9: it was removed"),
        ([f"UPDATE blobs SET place = {place(7, 2)} WHERE place = {place(7, ALL)}"], "row 7: the stored messages"),
        ([f"UPDATE blobs SET data = (SELECT data FROM blobs WHERE place = {place(5, ALL)}) "
          f"WHERE place = {place(6, ALL)}"], "row 6: the stored messages"),
        (["UPDATE secret SET salt = randomblob(32)"], "row 3: the stored messages"),
        (["DELETE FROM secret"], "key of its digests"),
        (["DROP TABLE blobs"], "cannot be read"),
        (["PRAGMA user_version = 3"], "format 3; allowed: format 4. Use the version that made it"),
        (["PRAGMA application_id = 1"], "not a ledger"),
    ],
)  # fmt: skip
def test_every_change_is_found(tmp_path, statements, why):
    path = filled(tmp_path)
    verify(path)
    change(path, *statements)
    with pytest.raises(LedgerError, match=why):
        verify(path)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intact") / "node"
    with begun(folder) as ledger:
        fill(ledger, 3)
        ledger.commit("gossip", 2, 1, (), {1: b"a", 2: b"b"}, b"state")
    return folder / "ledger.db"


@settings(max_examples=60, deadline=None)
@given(number=st.integers(1, 6), column=st.sampled_from(Row._fields), value=st.data())
def test_any_changed_field_of_any_row_is_found(intact, tmp_path_factory, number, column, value):
    whole = column in ("number", "time", "exchange", "step", "bytes")
    new = value.draw(st.integers(-5, 2**40) if whole else st.text(st.characters(codec="ascii"), max_size=70))
    path = tmp_path_factory.mktemp("changed") / "ledger.db"
    shutil.copy(intact, path)
    with closing(sqlite3.connect(path)) as database:
        (old,) = database.execute(f"SELECT {column} FROM rows WHERE number = ?", (number,)).fetchone()
        database.execute(f"UPDATE OR REPLACE rows SET {column} = ? WHERE number = ?", (new, number))
        database.commit()
    if new == old:
        verify(path)
    else:
        with pytest.raises(LedgerError):
            verify(path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_file(tmp_path, share):
    path = filled(tmp_path, 200)
    os.truncate(path, int(share * path.stat().st_size))
    for read_only in (True, False):
        with pytest.raises(LedgerError), Ledger.open(path, read_only=read_only) as ledger:
            ledger.verify()


def test_what_is_no_ledger(tmp_path):
    with pytest.raises(ConfigurationError, match="key without its ledger"):
        Ledger.open(tmp_path / "ledger.db")
    (tmp_path / "ledger.db").write_bytes(b"something else" * 1000)
    with pytest.raises(LedgerError, match="not a database"):
        Ledger.open(tmp_path / "ledger.db")
    (tmp_path / "ledger.db").unlink()
    change(tmp_path / "ledger.db", "CREATE TABLE rows (number)")
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger.open(tmp_path / "ledger.db", read_only=True)


def test_one_process_only(tmp_path):
    with begun(tmp_path) as ledger:
        fill(ledger, 3)
        with pytest.raises(NetworkError, match="another process runs"):
            Ledger.open(tmp_path / "ledger.db")
        (tmp_path / "link").symlink_to(tmp_path)
        with pytest.raises(NetworkError, match="another process runs"):
            Ledger.open(tmp_path / "link" / "ledger.db")
        with Ledger.open(tmp_path / "ledger.db", read_only=True) as reader:
            fill(ledger, 2, first=3)
            reader.verify()
            assert (reader.last.number, ledger.last.number) == (5, 7)
            with pytest.raises(PrivacyError, match="reading only"):
                reader.finish(b"", "it ends")
    Ledger.open(tmp_path / "ledger.db").close()


def test_nothing_is_committed_after_close_or_a_failed_write(tmp_path):
    ledger = begun(tmp_path)
    ledger.close()
    ledger.close()
    with pytest.raises(PrivacyError, match="closed"):
        fill(ledger, 1)


def test_a_failed_write_stops_the_ledger(tmp_path, monkeypatch):
    witness = Witness(tmp_path / "witness")
    with begun(tmp_path / "node", witness=witness) as ledger:
        fill(ledger, 1)

        def full(mark):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(witness, "record", full)
            with pytest.raises(LedgerError, match="No space left"):
                fill(ledger, 1, first=1)
        with pytest.raises(PrivacyError, match="a write failed"):
            fill(ledger, 1, first=2)
    with Ledger.open(tmp_path / "node" / "ledger.db", witness=Witness(tmp_path / "witness")) as ledger:
        assert ledger.last.number == 4  # the row is there: it was committed, and nothing was sent
        ledger.verify()


# The witness


def open_with(path, witness, **options):
    return Ledger.open(path, witness=Witness(witness), **options)


def test_an_old_copy_is_refused(tmp_path):
    witness = tmp_path / "witness"
    path = filled(tmp_path / "node", 3, witness=Witness(witness))
    shutil.copytree(tmp_path / "node", tmp_path / "old")
    with open_with(path, witness) as ledger:
        fill(ledger, 1, first=3)
    shutil.rmtree(tmp_path / "node")
    shutil.copytree(tmp_path / "old", tmp_path / "node")
    with pytest.raises(LedgerError, match=r"row 5: .*restored from an old copy.* row 6"):
        open_with(path, witness)
    with pytest.raises(LedgerError, match="old copy"):
        verify(path, witness=Witness(witness))
    with pytest.raises(LedgerError, match="old copy"):
        open_with(path, witness, adopt=True)


def test_an_old_copy_from_before_the_run_is_refused(tmp_path):
    path, witness = tmp_path / "ledger.db", tmp_path / "witness"
    Ledger.create(path, identity())
    shutil.copy(path, tmp_path / "old.db")
    with open_with(path, witness) as ledger:
        ledger.begin("run", PROMISE)
        fill(ledger, 1)
    shutil.copy(tmp_path / "old.db", path)
    with pytest.raises(LedgerError, match="old copy"):
        open_with(path, witness)


def test_two_copies_that_went_apart(tmp_path):
    witness = tmp_path / "witness"
    path = filled(tmp_path / "node", 3, witness=Witness(witness))
    shutil.copytree(tmp_path / "node", tmp_path / "copy")
    with open_with(path, witness) as ledger:
        with pytest.raises(LedgerError, match="another process uses this witness"):
            open_with(tmp_path / "copy" / "ledger.db", witness)
        fill(ledger, 1, first=3)
    with Ledger.open(tmp_path / "copy" / "ledger.db") as copy:  # somebody ran it without the witness
        copy.commit("release", 3, 0, copy.last.spent, {ALL: b"other"}, b"other")
        copy.verify()
    with pytest.raises(LedgerError, match="another copy of it ran"):
        open_with(tmp_path / "copy" / "ledger.db", witness)
    with pytest.raises(LedgerError, match="another copy of it ran"):
        open_with(tmp_path / "copy" / "ledger.db", witness, adopt=True)


def test_a_ledger_without_a_witness_is_refused_and_can_be_adopted(tmp_path):
    path = filled(tmp_path / "node", 3, witness=Witness(tmp_path / "witness"))
    (tmp_path / "witness").unlink()
    with pytest.raises(LedgerError, match=r"witness knows nothing .* ends with row 5.* --adopt"):
        open_with(path, tmp_path / "witness")
    verify(path, witness=Witness(tmp_path / "witness"))  # who only reads needs none
    open_with(path, tmp_path / "witness", adopt=True).close()
    with pytest.raises(LedgerError, match="witness knows nothing"):  # nothing was written, so nothing was agreed to
        open_with(path, tmp_path / "witness")
    with open_with(path, tmp_path / "witness", adopt=True) as ledger:
        assert Witness(tmp_path / "witness").read() is None
        fill(ledger, 1, first=3)
        assert Witness(tmp_path / "witness").read() == ledger.mark
    open_with(path, tmp_path / "witness").close()


def test_the_witness_is_held_from_the_beginning(tmp_path):
    """Also where it knows of nothing yet: else a copy could run meanwhile, and be overwritten."""
    path = filled(tmp_path / "node", 3)
    shutil.copytree(tmp_path / "node", tmp_path / "copy")
    Ledger.create(tmp_path / "new.db", identity())
    shutil.copy(tmp_path / "new.db", tmp_path / "other.db")
    new = tmp_path / "new.db", tmp_path / "other.db", False
    for one, other, adopt in ((path, tmp_path / "copy" / "ledger.db", True), new):
        witness = tmp_path / f"witness of {one.name}"
        refused = pytest.raises(LedgerError, match="another process uses this witness")
        with open_with(one, witness, adopt=adopt), refused:
            open_with(other, witness, adopt=adopt)
        open_with(other, witness, adopt=adopt).close()


def test_a_crash_at_the_first_row_after_an_adoption(tmp_path, monkeypatch):
    """The row is there and the witness knows nothing of it: all have to agree again, since nothing was sent."""
    path, witness = filled(tmp_path / "node", 3), tmp_path / "witness"

    def crash(*_):
        raise KeyboardInterrupt

    with open_with(path, witness, adopt=True) as ledger, monkeypatch.context() as patch:
        patch.setattr(Witness, "record", crash)
        with pytest.raises(KeyboardInterrupt):
            fill(ledger, 1, first=3)
    with pytest.raises(LedgerError, match=r"witness knows nothing .* ends with row 6"):
        open_with(path, witness)
    with open_with(path, witness, adopt=True) as ledger:
        assert ledger.message(3, 0, 1) == MESSAGE + b"6"
        fill(ledger, 1, first=4)
    open_with(path, witness).close()


def test_a_witness_that_was_left_behind(tmp_path):
    """One row is what a crash leaves; more means that the node ran with another witness."""
    witness = tmp_path / "witness"
    path = filled(tmp_path / "node", 1, witness=Witness(witness))
    with Ledger.open(path) as ledger:
        fill(ledger, 1, first=1)
    open_with(path, witness).close()
    with Ledger.open(path) as ledger:
        fill(ledger, 2, first=2)
    with pytest.raises(LedgerError, match="ran with another witness"):
        open_with(path, witness)
    with open_with(path, witness, adopt=True) as ledger:
        known = Witness(witness).read()
        assert known.number == ledger.last.number - 2
        fill(ledger, 1, first=4)
    open_with(path, witness).close()


def test_a_run_that_has_begun_without_a_witness_is_a_copy(tmp_path):
    begun(tmp_path / "node").close()
    with pytest.raises(LedgerError, match="witness knows nothing of a ledger whose run has begun"):
        open_with(tmp_path / "node" / "ledger.db", tmp_path / "witness")


def test_gossip_that_changes_no_state_keeps_it(tmp_path):
    ledger = begun(tmp_path / "node")
    ledger.commit("release", 0, 0, (), {ALL: b"one"}, b"the state")
    ledger.commit("gossip", 0, 1, (), {ALL: b"two"}, None)
    assert ledger.state() == b"the state"
    ledger.verify()
    with pytest.raises(ConfigurationError, match="state"):
        ledger.commit("release", 1, 0, (), {ALL: b"three"}, None)
    ledger.close()
    with Ledger.open(tmp_path / "node" / "ledger.db") as again:
        assert again.state() == b"the state"
        again.verify()


def test_rewritten_from_the_beginning_is_found_by_the_witness(tmp_path):
    path = filled(tmp_path / "node", 3, witness=Witness(tmp_path / "witness"))
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        with Ledger.open(path, read_only=True) as ledger:
            rows = list(ledger.rows())
        previous = rows[2].hash
        for row in rows[3:]:
            forged = row._replace(time=row.time - 1, previous=previous).chained()
            previous = forged.hash
            values = (forged.time, forged.previous, forged.hash, forged.number)
            database.execute("UPDATE rows SET time = ?, previous = ?, hash = ? WHERE number = ?", values)
        database.commit()
    verify(path)
    with pytest.raises(LedgerError, match="another copy of it ran"):
        verify(path, witness=Witness(tmp_path / "witness"))


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 6), cut=st.integers(0, 90), noise=st.binary(min_size=90, max_size=90))
def test_a_torn_write_leaves_the_slot_before(tmp_path_factory, count, cut, noise):
    path = tmp_path_factory.mktemp("witness") / "witness"
    marks = [Mark(number, hashlib.sha256(bytes([number])).hexdigest()) for number in range(1, count + 2)]
    witness = Witness(path)
    for mark in marks[:-1]:
        witness.record(mark)
    before = path.read_bytes()
    witness.record(marks[-1])
    witness.close()
    after = path.read_bytes()
    (start,) = {place - place % 4096 for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new}
    torn = after[: start + cut] + noise[cut:] + after[start + 90 :]
    path.write_bytes(torn)
    found = Witness(path).read()
    assert found in marks[-2:]
    assert (found == marks[-1]) == (torn[start : start + 80] == after[start : start + 80])
    again = Witness(path)
    again.record(marks[-1])
    again.close()
    assert Witness(path).read() == marks[-1]


def test_a_damaged_witness(tmp_path):
    path = filled(tmp_path / "node", 1, witness=Witness(tmp_path / "witness"))
    (tmp_path / "witness").write_bytes(bytes(8192))
    for adopt in (False, True):
        with pytest.raises(LedgerError, match="damaged"):
            open_with(path, tmp_path / "witness", adopt=adopt)


def test_default_witness(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_witness("ab12") == tmp_path / "gossamer" / "witness" / "ab12"
    for relative in ("", "state"):
        monkeypatch.setenv("XDG_STATE_HOME", relative)
        assert default_witness("ab12") == Path.home() / ".local/state/gossamer/witness/ab12"
    for bad in ("", "../x", "a/b", "a" * 200):
        with pytest.raises(ConfigurationError, match="witness"):
            default_witness(bad)


# Sealing


def test_sealed_files_show_nothing(tmp_path):
    sealer = Sealer(bytes(range(32)))
    with begun(tmp_path, sealer=sealer) as ledger:
        fill(ledger, 5)
        files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        assert len(files) > 50_000
        assert SECRET not in files
        assert MESSAGE not in files
        assert ledger._vault._salt not in files
    with Ledger.open(tmp_path / "ledger.db", sealer=sealer) as ledger:
        ledger.verify()
        assert (ledger.state(), ledger.message(4, 0, 1)) == (SECRET + b"7", MESSAGE + b"7")
    plain = filled(tmp_path / "plain").read_bytes()  # the search finds what is there
    assert SECRET in plain
    assert MESSAGE in plain


def test_a_sealed_ledger_needs_its_key(tmp_path):
    path = filled(tmp_path, sealer=Sealer(bytes(32)))
    with pytest.raises(PrivacyError, match="this ledger is sealed"):
        Ledger.open(path)
    with pytest.raises(PrivacyError, match="another key"):
        Ledger.open(path, sealer=Sealer(bytes(31) + b"1"))
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()  # the chain only
        assert ledger.locked
        for read in (ledger.state, lambda: ledger.message(0, 0, 1)):
            with pytest.raises(PrivacyError, match="this ledger is sealed"):
                read()
    Ledger.open(path, sealer=Sealer(bytes(32))).close()  # nothing stays locked after a refusal


def test_a_plain_ledger_takes_no_sealer(tmp_path):
    path = filled(tmp_path)
    with pytest.raises(PrivacyError, match="begun without"):
        Ledger.open(path, sealer=Sealer(bytes(32)))


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE blobs SET data = (SELECT data FROM blobs WHERE place = {place(5, ALL)}) WHERE place > {place(6, 0)}",
        f"UPDATE blobs SET data = (SELECT data FROM blobs WHERE place = {place(8, ALL)}) WHERE place < 0",
        "UPDATE blobs SET data = X'00' WHERE place < 0",
    ],
)
def test_sealed_pieces_open_nowhere_else(tmp_path, statement):
    sealer = Sealer(bytes(32))
    path = filled(tmp_path, sealer=sealer)
    change(path, statement)
    with pytest.raises(PrivacyError, match="cannot be unsealed"):
        verify(path, sealer=sealer)


@pytest.mark.parametrize("key", [b"", bytes(31), bytearray(32), "0" * 32, None])
def test_bad_sealing_keys(key):
    with pytest.raises(PrivacyError, match="exactly 32 secret bytes"):
        Sealer(key)


# Crashes

CRASHES = """
    import os, random, signal, sys, time
    from pathlib import Path
    from gossamer.net.store import blobs, ledger as module
    from gossamer.net.store.ledger import Identity, Ledger, Spent
    from gossamer.net.wire.transport import ALL
    from gossamer.net.store.witness import Witness
    from gossamer.privacy import Guarantee, Pure

    folder, kills, blobs.LARGE = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    path, witness = folder / "ledger.db", folder / "witness"
    Ledger.create(path, Identity("a1", 0, "b2", "meters", "c3"))

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    def message(t):
        return b"message %d " % t * 2000

    def state(t):
        return b"state %d " % t * 5000

    def commit(ledger, t, pipe):
        ledger.commit("release", t, 0, [Spent("x", t + 1, Pure(0.1 * (t + 1)))], {ALL: message(t)}, state(t))
        os.write(pipe, t.to_bytes(4, "big"))

    def child(point, pipe):
        ledger = Ledger.open(path, witness=Witness(witness), keep=5)
        if ledger.run is None:
            ledger.begin("run", Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,)))
        first = ledger.last.exchange + 1
        commit(ledger, first, pipe)
        if point == "inside":
            module.insert = die
        if point == "before the witness":
            Witness.record = die
        for t in range(first + 1, first + 10_000):
            commit(ledger, t, pipe)
            if point == "after":
                die()

    chance = random.Random(7)
    points = ["inside", "before the witness", "after"] + ["any"] * kills
    for point in points:
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            child(point, writing)
        os.close(writing)
        heard = os.read(reading, 4)
        if point == "any":
            time.sleep(chance.random() * 0.03)
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while more := os.read(reading, 4096):
            heard += more
        os.close(reading)
        acknowledged = int.from_bytes(heard[-4:], "big")
        with Ledger.open(path, read_only=True, witness=Witness(witness)) as ledger:
            ledger.verify()
            last = ledger.last.exchange
        with Ledger.open(path, witness=Witness(witness), keep=5) as ledger:
            ledger.verify()
            assert ledger.last.exchange == last
            assert ledger.state() == state(last)
            assert ledger.message(last, 0, 1) == message(last)
            assert ledger.message(acknowledged, 0, 1) == message(acknowledged)
            print(point, last - acknowledged)
"""


@pytest.mark.parametrize("large", [10**6, 40_000, 1])
def test_killed_anywhere_nothing_acknowledged_is_lost(tmp_path, large):
    """SIGKILL inside the transaction, before the witness, after it, and 25 times at random moments of a run.

    All in the database; states in the file beside; all of it there.
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(CRASHES), str(tmp_path), "25", str(large)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["inside 0", "before the witness 1", "after 0"]
    assert len(lines) == 28
    assert {line.split()[-1] for line in lines} <= {"0", "1"}
    assert (tmp_path / "ledger.blobs").exists() == (large < 10**6)


# Commands

app = typer.Typer(cls=Commands)
app.add_typer(commands, name="ledger")


@app.callback()
def nothing():
    """Makes `ledger` a command of its own."""


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    return lambda *given: CliRunner().invoke(app, ["ledger", *map(str, given)], env={"COLUMNS": "200"})


def test_verify_command(tmp_path, invoke):
    path = filled(tmp_path / "node", witness=Witness(tmp_path / "witness"))
    with Ledger.open(path, read_only=True) as ledger:
        head = ledger.last.hash
    for argument in (tmp_path / "node", path):
        result = invoke("verify", argument)
        assert result.exit_code == 0
        assert result.stdout == f"{argument}: 8 rows, chain intact, head {head} (no witness on this machine)\n"
    filled(tmp_path / "other", key="d4", witness=Witness(default_witness("d4")))
    assert "the witness agrees" in invoke("verify", tmp_path / "other").stdout
    change(path, "UPDATE rows SET bytes = 1 WHERE number = 4")
    result = invoke("verify", tmp_path / "node", tmp_path / "other", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "node: row 4: its content does not match its hash" in result.stderr
    assert "nowhere" in result.stderr
    assert "other: 8 rows, chain intact" in result.stdout


def test_verify_command_on_a_node_that_runs(tmp_path, invoke):
    with begun(tmp_path / "node", witness=Witness(default_witness("c3"))) as ledger:
        fill(ledger, 2)
        for command in ("show", "verify", "total"):
            assert invoke(command, tmp_path / "node").exit_code == 0
        fill(ledger, 1, first=2)


def test_verify_and_total_refuse_an_old_copy_which_can_still_be_shown(tmp_path, invoke):
    path = filled(tmp_path / "node", 3, witness=Witness(default_witness("c3")))
    shutil.copy(path, tmp_path / "old.db")
    with Ledger.open(path, witness=Witness(default_witness("c3"))) as ledger:
        fill(ledger, 1, first=3)
    for command in ("verify", "total"):
        result = invoke(command, tmp_path / "old.db")
        assert result.exit_code == 2
        assert "old copy" in result.stderr
        assert invoke(command, path).exit_code == 0
    assert invoke("show", tmp_path / "old.db").exit_code == 0


def test_verify_command_with_a_sealed_ledger(tmp_path, invoke):
    filled(tmp_path / "node", sealer=Sealer(bytes(32)))
    (tmp_path / "key").write_bytes(bytes(32))
    assert "sealed: no messages, no state" in invoke("verify", tmp_path / "node").stdout
    assert "sealed" not in invoke("verify", tmp_path / "node", "--key", tmp_path / "key").stdout
    (tmp_path / "key").write_bytes(bytes(31) + b"1")
    assert invoke("verify", tmp_path / "node", "--key", tmp_path / "key").exit_code == 2
    assert "a file that can be read" in invoke("verify", tmp_path / "node", "--key", tmp_path / "nowhere").stderr


def test_show_command(tmp_path, invoke):
    promise = Guarantee("proven", losses=(Gaussian(1.0), Gaussian(2.0)), deltas=(1e-5, 1e-6), horizon=100)
    with begun(tmp_path / "node", promise=promise, learner=1, source="heart beats") as ledger:
        for t in range(5):
            ledger.commit(
                "release", t, 0, [Spent("x", t + 1, Gaussian(0.5 * math.sqrt(t + 1)))], {ALL: bytes(1234)}, b""
            )
    result = invoke("show", tmp_path / "node", "--rows", 2)
    assert result.exit_code == 0
    for expected in ("heart beats", "run1", "Claimed, not checked: over 100 steps", "at delta 1e-06", "1,234"):
        assert expected in result.stdout
    rows = [line.split() for line in result.stdout.splitlines() if "release" in line]
    assert [row[0] for row in rows] == ["6", "7"]
    shown = float(rows[-1][-1])
    assert 0 <= shown - Gaussian(0.5 * math.sqrt(5)).epsilon(1e-6) < 2e-3
    Ledger.create(tmp_path / "new.db", identity())
    assert "has not begun" in invoke("show", tmp_path / "new.db").stdout


def test_export_holds_no_raw_data_and_can_be_verified(tmp_path, invoke):
    path, out = filled(tmp_path / "node"), tmp_path / "rows.jsonl"
    assert invoke("export", tmp_path / "node", "--out", out).exit_code == 0
    with closing(sqlite3.connect(path)) as database:
        (salt,) = database.execute("SELECT salt FROM secret").fetchone()
    data = out.read_bytes()
    for private in (SECRET, MESSAGE, salt, salt.hex().encode(), SECRET.hex().encode(), MESSAGE.hex().encode()):
        assert private not in data
    lines = data.decode().splitlines()
    assert len(lines) == 9
    header = json.loads(lines[0])
    assert header["identity"]["source"] == "meters"
    assert Guarantee.from_json(json.dumps(header["guarantee"])) == PROMISE
    result = invoke("verify", out)
    assert result.exit_code == 0
    assert "8 rows, chain intact" in result.stdout
    assert "chain only" in result.stdout
    assert invoke("show", out).exit_code == 0
    assert invoke("export", tmp_path / "node", "--out", out).exit_code == 2  # not over another file
    assert out.read_bytes() == data
    assert invoke("export", out, "--out", tmp_path / "again").exit_code == 2
    change(path, "UPDATE rows SET bytes = 1 WHERE number = 4")
    assert invoke("export", path, "--out", tmp_path / "changed").exit_code == 2  # a changed ledger is not passed on
    assert not (tmp_path / "changed").exists()
    assert invoke("export", tmp_path / "node", "--out", tmp_path / "no" / "folder").exit_code == 2


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda lines: [*lines[:4], *lines[5:]], "row 4: number 5"),
        (lambda lines: lines[:-1], "does not agree"),
        (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], "row 3: number 4"),
        (lambda lines: [*lines[:4], lines[4].replace("0.02", "0.01"), *lines[5:]], "row 4: its content"),
        (lambda lines: [*lines[:4], "{}", *lines[5:]], "row 4: it cannot be read"),
        (lambda lines: [lines[0].replace("meters", "litres"), *lines[1:]], "does not agree"),
        (lambda lines: [lines[0].replace('"value": 1.0', '"value": 0.5'), *lines[1:]], "guarantee"),
        (lambda lines: ["?", *lines[1:]], "first line"),
        (lambda lines: lines[:1], "no rows"),
        (lambda lines: [], "no rows"),
    ],
)
def test_a_changed_export_is_found(tmp_path, invoke, spoil, why):
    filled(tmp_path / "node")
    invoke("export", tmp_path / "node", "--out", tmp_path / "rows.jsonl")
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    (tmp_path / "spoilt.jsonl").write_text("\n".join(spoil(lines)))
    result = invoke("verify", tmp_path / "spoilt.jsonl")
    assert result.exit_code == 2
    assert why in result.stderr


def spend(folder, losses, *, source, run, promise, learner=0):
    with begun(folder, source=source, run=run, promise=promise, learner=learner, key=secrets.token_hex(4)) as ledger:
        for t, loss in enumerate(losses):
            ledger.commit("release", t, 0, [Spent("x", t + 1, loss)], {}, b"")
    return folder


def table(result):
    """The cells of what `total` printed, by (source, run): epsilon and delta."""
    assert result.exit_code == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()[3:] if line.strip()]
    return {(line[0], " ".join(line[1:-2])): (float(line[-2]), float(line[-1])) for line in lines}


def test_totals_of_pure_losses(tmp_path, invoke):
    folders = [
        spend(tmp_path / run, [Pure(0.1), Pure(cost)], source=source, run=run, promise=PROMISE)
        for run, source, cost in (("r1", "meters", 0.25), ("r2", "meters", 0.5), ("r3", "hearts", 0.3))
    ]
    found = table(invoke("total", *folders))
    assert found == {
        ("hearts", "r3 0"): (0.3, 0.0),
        ("hearts", "sum of 1 run"): (0.3, 0.0),
        ("meters", "r1 0"): (0.25, 0.0),
        ("meters", "r2 0"): (0.5, 0.0),
        ("meters", "sum of 2 runs"): (0.75, 0.0),
    }
    invoke("export", folders[1], "--out", tmp_path / "r2.jsonl")
    assert table(invoke("total", *folders, folders[0], tmp_path / "r2.jsonl")) == found  # the same run counts once


def test_totals_of_gaussian_losses_with_sampler_errors(tmp_path, invoke):
    promise = Guarantee("proven", losses=(Gaussian(5.0),), deltas=(1e-5,), sampler_error=1e-7)
    one = spend(tmp_path / "1", [Gaussian(0.3)], source="m", run="r1", promise=promise)
    two = spend(tmp_path / "2", [Gaussian(0.4)], source="m", run="r2", promise=promise, learner=1)
    found = table(invoke("total", one, two))
    both = Gaussian(0.5)
    for key, loss, at, error in (
        (("m", "r1 0"), Gaussian(0.3), 1e-5, 1e-7),
        (("m", "r2 1"), Gaussian(0.4), 1e-5, 1e-7),
        (("m", "sum of 2 runs"), both, 2e-5, 2e-7),
    ):
        epsilon = loss.epsilon(at)
        assert 0 <= found[key][0] - epsilon < 1.1e-3 * epsilon
        delta = at + sampler_share(error, epsilon)
        assert 0 <= found[key][1] - delta < 1.1e-3 * delta
    given = table(invoke("total", one, two, "--delta", "1e-3"))["m", "sum of 2 runs"]
    assert 0 <= given[0] - both.epsilon(1e-3) < 1.1e-3 * given[0]
    assert invoke("total", one, "--delta", "1").exit_code == 2


def test_totals_of_mixed_kinds(tmp_path, invoke):
    gaussian = Guarantee("proven", losses=(Gaussian(5.0),), deltas=(1e-5,))
    one = spend(tmp_path / "1", [Gaussian(0.3)], source="m", run="r1", promise=gaussian)
    two = spend(tmp_path / "2", [Pure(0.4)], source="m", run="r2", promise=PROMISE)
    found = table(invoke("total", one, two))["m", "sum of 2 runs"]
    exact = compose([Gaussian(0.3), Pure(0.4)]).epsilon(1e-5)
    assert 0 <= found[0] - exact < 1.1e-3 * exact


def test_totals_without_a_guarantee_and_before_a_run(tmp_path, invoke):
    raw = spend(tmp_path / "1", [Pure(0.0)], source="m", run="r1", promise=no_guarantee("raw"))
    private = spend(tmp_path / "2", [Pure(0.4)], source="m", run="r2", promise=PROMISE)
    Ledger.create(tmp_path / "new.db", identity(source="n"))
    result = invoke("total", raw, private, tmp_path / "new.db")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["m", "sum", "of", "2", "runs", "infinity", "1"] in rows
    assert ["n", "sum", "of", "1", "run", "0", "0"] in rows


def test_totals_of_several_learners_of_one_run_add_up(tmp_path, invoke):
    """The run id may be the network's: two learners with it are two ledgers."""
    folders = [
        spend(tmp_path / str(i), [Pure(0.25)], source="m", run="r", promise=PROMISE, learner=i) for i in range(2)
    ]
    assert table(invoke("total", *folders))["m", "sum of 2 runs"] == (0.5, 0.0)


def test_totals_refuse_two_ledgers_of_one_run_that_differ(tmp_path, invoke):
    path = filled(tmp_path / "node", 2)
    shutil.copytree(tmp_path / "node", tmp_path / "copy")
    for folder, count in (("node", 2), ("copy", 3)):
        with Ledger.open(tmp_path / folder / "ledger.db") as ledger:
            ledger.commit("release", 2, 0, ledger.last.spent, {ALL: folder.encode()}, b"")
            fill(ledger, count, first=3)
    result = invoke("total", path, tmp_path / "copy")
    assert result.exit_code == 2
    assert "differ at row" in result.stderr


def test_totals_say_where_units_differ(tmp_path, invoke):
    other = Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,), observer="outsiders")
    one = spend(tmp_path / "1", [Pure(0.3)], source="m", run="r1", promise=PROMISE)
    two = spend(tmp_path / "2", [Pure(0.4)], source="m", run="r2", promise=other)
    elsewhere = spend(tmp_path / "3", [Pure(0.4)], source="n", run="r3", promise=other)
    Ledger.create(tmp_path / "new.db", identity(source="m"))
    assert "The runs over m do not protect the same" in invoke("total", one, two).stdout
    for others in ([], [elsewhere], [tmp_path / "new.db"]):  # over other data, or nothing released
        assert "do not protect the same" not in invoke("total", one, *others).stdout
