"""Large pieces of a ledger, in the file beside it: where they lie, what a crash leaves, and what is found."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.net.store import blobs, ledger
from gossamer.net.store.blobs import LARGE, Space
from gossamer.net.store.ledger import Identity, Ledger, LedgerError
from gossamer.net.store.vault import Sealer
from gossamer.net.wire.transport import ALL
from gossamer.privacy import Guarantee, Pure

KEEP = 3
PAGES = -(-LARGE // 4096)


def message(t: int) -> bytes:
    return f"message {t:03d} ".encode() * (LARGE // 12 + 1)


def state(t: int) -> bytes:
    """Of sizes that change: they do not fit where the one before was."""
    return f"state {t:03d} ".encode() * (LARGE // 10 + 1 + 700 * (t % 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger whose run has begun."""
    path = tmp_path / "ledger.db"
    Ledger.create(path, Identity("a1", 0, "b2", "meters", "c3"))
    with Ledger.open(path) as one:
        one.begin("run", Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,)))
    return path


def commit(one: Ledger, *exchanges: int) -> None:
    for t in exchanges:
        one.commit("release", t, 0, (), {ALL: message(t)}, state(t))


def kept(one: Ledger, exchanges: range) -> list[int]:
    """Of which exchanges the message is there; it is the right one, and the state is the last one's."""
    found = [t for t in exchanges if one.message(t, 0, 1) is not None]
    assert [one.message(t, 0, 1) for t in found] == [message(t) for t in found]
    assert one.state() == state(exchanges[-1])
    one.verify()
    return found


def beside(path: Path) -> bytes:
    return path.with_suffix(".blobs").read_bytes()


def test_large_pieces_lie_in_the_file_and_small_ones_do_not(path: Path) -> None:
    with Ledger.open(path) as one:
        one.commit("release", 0, 0, (), {ALL: b"small message"}, b"small state")
        assert not path.with_suffix(".blobs").exists()
        one.commit("release", 1, 0, (), {1: message(1), 2: message(2), 3: b"small message"}, state(1))
    with Ledger.open(path) as one:
        assert [one.message(1, 0, who) for who in (1, 2, 3)] == [message(1), message(2), b"small message"]
        assert one.state() == state(1)
        one.verify()
    assert b"message 001 message 001" in beside(path)
    assert b"message 001" not in path.read_bytes()
    assert b"small message" not in beside(path)


def test_neither_file_grows(path: Path) -> None:
    sizes = []
    for first in (0, 30, 60):
        with Ledger.open(path, keep=KEEP) as one:
            commit(one, *range(first, first + 30))
            assert kept(one, range(first, first + 30)) == [*range(first + 27, first + 30)]
            sizes.append(len(beside(path)))
    assert max(sizes[1:]) <= sizes[0] < 2 * 4096 * (KEEP + 2) * (PAGES + 6)
    assert path.stat().st_size < 200_000


def test_what_was_dropped_is_wiped_when_it_is_closed_or_opened(path: Path) -> None:
    with Ledger.open(path, keep=KEEP) as one:
        commit(one, *range(8))
        assert one.path.with_suffix(".blobs").stat().st_mode & 0o777 == 0o600
    found = beside(path)
    assert [t for t in range(8) if f"message {t:03d}".encode() in found] == [5, 6, 7]
    assert [t for t in range(8) if f"state {t:03d}".encode() in found] == [7]
    with path.with_suffix(".blobs").open("ab") as file:  # what a crash may leave
        file.write(b"state 006" * 1000)
    Ledger.open(path).close()
    assert beside(path).rstrip(b"\0") == found.rstrip(b"\0")


@pytest.mark.parametrize("fatal", ["insert", "flush", "commit"])
def test_what_a_crash_undoes_is_still_there(path: Path, fatal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces of the next row are written, and its transaction is not: again and again, as with a full disk."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with Ledger.open(path, keep=KEEP) as one:
        commit(one, *range(7))
    for _ in range(5):
        with Ledger.open(path, keep=KEEP) as one, monkeypatch.context() as patch:
            written = _note(patch, os, "pwrite", [])
            if fatal == "commit":
                one._database.set_authorizer(_no_commit)
            else:
                patch.setattr(*((ledger, "insert") if fatal == "insert" else (blobs, "flush")), fail)
            with pytest.raises(LedgerError, match="Nothing may be sent"):
                commit(one, 7)
            assert written  # it came as far as that
            one._database.set_authorizer(None)
        with Ledger.open(path, keep=KEEP) as one:
            assert kept(one, range(7)) == [4, 5, 6]
    with Ledger.open(path, keep=KEEP) as one:
        commit(one, 7)
        assert kept(one, range(8)) == [5, 6, 7]


def _no_commit(action: int, word: str | None, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION and word == "COMMIT" else sqlite3.SQLITE_OK


def _note(patch: pytest.MonkeyPatch, where: Any, name: str, events: list[str]) -> list[str]:
    """Write down every call of a function, before it is made."""
    function = getattr(where, name)

    def call(*given: Any) -> Any:
        events.append(name)
        return function(*given)

    patch.setattr(where, name, call)
    return events


def test_pieces_are_on_disk_before_the_transaction_and_freed_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    with Ledger.open(path, keep=1) as one:
        commit(one, 0)
        for where, name in ((os, "pwrite"), (blobs, "flush"), (Space, "give")):
            _note(monkeypatch, where, name, events)
        one._database.set_trace_callback(lambda text: events.append(text.split()[0]))
        commit(one, 1)
        one._database.set_trace_callback(None)
        found = [event for event in events if event in ("BEGIN", "pwrite", "flush", "COMMIT", "give")]
        events.clear()
    assert found == ["BEGIN", "pwrite", "pwrite", "flush", "COMMIT", "give", "give"]
    assert events[-2:] == ["pwrite", "flush"]  # what was dropped is wiped


def test_the_directory_knows_the_file_before_a_row_refers_to_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(blobs, "sync_directory", synced.append)
    with Ledger.open(path) as one:
        commit(one, 0)
    assert synced == [path.parent]


def test_writes_pass_by_the_cache_where_they_can(path: Path) -> None:
    with Ledger.open(path) as one:
        commit(one, 0)
        assert one._pieces.blobs._file is not None
        flags = fcntl.fcntl(one._pieces.blobs._file._file, fcntl.F_GETFL)
    probe = path.with_name("probe")
    probe.touch()
    try:
        os.close(os.open(probe, os.O_RDWR | os.O_DIRECT))
    except OSError:
        assert not flags & os.O_DIRECT
    else:
        assert flags & os.O_DIRECT


def test_a_log_that_a_crash_left_is_on_disk_before_anything_is_wiped(path: Path) -> None:
    """A commit may be in the system's memory only. If the power failed after what it dropped was wiped, the row before
    it would be back, and its state would not.
    """
    log, events = path.with_name(f"{path.name}-wal"), list[int]()
    with Ledger.open(path, keep=KEEP) as one:
        commit(one, *range(5))
        left = {file: file.read_bytes() for file in (path, log, path.with_suffix(".blobs"))}
    for file, data in left.items():  # as a process that was killed leaves them
        file.write_bytes(data)
    fsync, inode = os.fsync, log.stat().st_ino

    def noted(file: int) -> None:
        events.append(os.fstat(file).st_ino)
        fsync(file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", noted)
        patch.setattr(blobs.Blobs, "wipe", lambda _: events.append(-1))
        with Ledger.open(path, keep=KEEP) as one:
            assert one.last.exchange == 4
    assert events.index(inode) < events.index(-1)


@pytest.mark.parametrize(
    ("text", "why"), [("message 005", "row 8: the stored messages"), ("state 006", "stored state")]
)
def test_a_changed_byte_is_found_and_never_used(path: Path, text: str, why: str) -> None:
    with Ledger.open(path) as one:
        commit(one, *range(7))
    data = bytearray(beside(path))
    data[data.rindex(text.encode()) + 9] ^= 1
    path.with_suffix(".blobs").write_bytes(data)
    with Ledger.open(path, read_only=True) as one:
        assert one.message(4, 0, 1) == message(4)
        for use in (one.verify, one.state if text.startswith("state") else lambda: one.message(5, 0, 1)):
            with pytest.raises(LedgerError, match=why):
                use()
    if text.startswith("state"):  # a node does not even start, and nothing is wiped
        with pytest.raises(LedgerError, match=why):
            Ledger.open(path)
        assert beside(path) == data


@pytest.mark.parametrize(
    "change",
    [
        "page = 'x'",
        "page = 2.5",
        "page = NULL",
        "page = -5",
        "page = page + 1",
        "page = 1000000",
        "page = 0",
        "length = NULL",
        "length = 'a'",
        "length = -1",
        "length = length - 1",
        "length = 1000000000000",
        "data = X'00'",
        "data = X'00', page = NULL, length = NULL",
        "data = 'text', page = NULL, length = NULL",
    ],
)
def test_a_table_that_was_changed_is_found_before_anything_is_wiped(path: Path, change: str) -> None:
    with Ledger.open(path, keep=KEEP) as one:
        commit(one, *range(5))
    before = beside(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"UPDATE blobs SET {change} WHERE place < 0")
        database.commit()
    for read_only in (True, False):
        with pytest.raises(LedgerError, match=r"stored piece|stored state|missing or was cut"):
            _verify(path, read_only)
    assert beside(path) == before


def _verify(path: Path, read_only: bool) -> None:
    with Ledger.open(path, read_only=read_only) as one:
        one.verify()


@pytest.mark.parametrize("cut", [0.0, 0.5, None])
def test_a_file_that_is_cut_or_gone(path: Path, cut: float | None) -> None:
    with Ledger.open(path) as one:
        commit(one, *range(4))
    if cut is None:
        path.with_suffix(".blobs").unlink()
    else:
        os.truncate(path.with_suffix(".blobs"), int(cut * len(beside(path))))
    for read_only in (True, False):
        with pytest.raises(LedgerError, match=r"the stored|missing or was cut"):
            _verify(path, read_only)


def test_the_file_of_another_time_is_found(path: Path) -> None:
    with Ledger.open(path, keep=KEEP) as one:
        commit(one, *range(4))
        old = beside(path)
        commit(one, *range(4, 9))
    path.with_suffix(".blobs").write_bytes(old.ljust(len(beside(path)), b"\0"))
    for read_only in (True, False):
        with pytest.raises(LedgerError, match="the stored"):
            _verify(path, read_only)


@pytest.mark.parametrize("more", range(1, 9))
def test_a_reader_is_not_alarmed_by_what_is_written_meanwhile(path: Path, more: int) -> None:
    """States of one size come to lie where others were before."""
    with Ledger.open(path, keep=KEEP) as one:
        for t in range(5):
            one.commit("release", t, 0, (), {ALL: message(t)}, b"%03d" % t * LARGE)
        with Ledger.open(path, read_only=True) as reader:
            for t in range(5, 5 + more):
                one.commit("release", t, 0, (), {ALL: message(t)}, b"%03d" % t * LARGE)
            reader.verify()
            assert [reader.message(t, 0, 1) in (None, message(t)) for t in range(5)] == [True] * 5
            with pytest.raises(LedgerError, match="newer state"):
                reader.state()


def test_somebody_reads_while_the_node_writes_on(path: Path) -> None:
    """What was replaced since is not called changed; what is still there is checked."""
    with Ledger.open(path, keep=KEEP) as one:
        commit(one, *range(5))
        with Ledger.open(path, read_only=True) as reader:
            assert kept(reader, range(5)) == [2, 3, 4]
            assert reader._pieces.blobs._file is None  # it never writes
            commit(one, 5, 6)
            reader.verify()
            assert [reader.message(t, 0, 1) is not None for t in range(5)] == [False] * 4 + [True]
            with pytest.raises(LedgerError, match="newer state"):
                reader.state()
            with path.with_suffix(".blobs").open("r+b") as file:
                file.seek(beside(path).index(b"message 004"))
                file.write(b"massage")
            with pytest.raises(LedgerError, match="row 7: the stored messages"):
                reader.verify()


def test_sealed_pieces_are_not_in_clear(path: Path) -> None:
    sealed = path.with_name("sealed.db")
    Ledger.create(sealed, Identity("a1", 0, "b2", "meters", "c3"))
    with Ledger.open(sealed, sealer=Sealer(bytes(32)), keep=KEEP) as one:
        one.begin("run", Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,)))
        commit(one, *range(6))
        assert kept(one, range(6)) == [3, 4, 5]
        assert b"message" not in beside(sealed)
        assert b"state" not in beside(sealed)


@pytest.mark.parametrize("answer", [errno.EINVAL, errno.EIO, errno.ENOSPC, "half", "nothing"])
def test_disks_that_refuse(path: Path, answer: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without direct writes is written to through its cache, a part is completed; others end it."""
    pwrite, refused = os.pwrite, []

    def refuse(file: int, data: memoryview, offset: int) -> int:
        if refused and answer in (errno.EINVAL, "half"):
            return pwrite(file, data, offset)
        refused.append(offset)
        if isinstance(answer, int):
            raise OSError(answer, "refused")
        return pwrite(file, data[: len(data) // 2 if answer == "half" else 0], offset)

    with Ledger.open(path) as one:
        monkeypatch.setattr(os, "pwrite", refuse)
        if answer in (errno.EINVAL, "half"):
            commit(one, 0, 1)
            assert (kept(one, range(2)), len(refused)) == ([0, 1], 1)
        else:
            with pytest.raises(LedgerError, match="Nothing may be sent"):
                commit(one, 0)
        monkeypatch.undo()
    with Ledger.open(path) as one:
        assert one.last.exchange == (1 if answer in (errno.EINVAL, "half") else -1)
        one.verify()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_space_is_never_given_twice(data: st.DataObject) -> None:
    """Against a set of pages; and the free pages before the end are all others."""
    space, used = Space([]), dict[int, int]()
    for _ in range(data.draw(st.integers(1, 30))):
        if used and data.draw(st.booleans()):
            page = data.draw(st.sampled_from(sorted(used)))
            space.give(page, used.pop(page))
        else:
            pages = data.draw(st.integers(1, 5))
            used[space.take(pages)] = pages
        if data.draw(st.booleans()):
            space = Space(used.items())
        taken = [page + i for page, pages in used.items() for i in range(pages)]
        free = [page + i for page, pages in space.free for i in range(pages)]
        assert sorted(taken + free) == list(range(space.end))


def test_random_runs_keep_what_they_should(path: Path) -> None:
    """Sizes around the limit, several receivers, reopened now and then. Seed fixed."""
    chance, sent = random.Random(3), list[dict[int, bytes]]()
    one = Ledger.open(path, keep=KEEP)
    for t in range(60):
        sizes = [chance.choice([10, LARGE - 1, LARGE, 2 * LARGE]) for _ in range(3)]
        sent.append({who: chance.randbytes(size) for who, size in enumerate(sizes[1:])})
        held = chance.randbytes(sizes[0])
        one.commit("release", t, 0, (), sent[t], held)
        if chance.random() < 0.2:
            one.close()
            one = Ledger.open(path, keep=KEEP)
        assert one.state() == held
        for before in range(max(0, t - KEEP + 1), t + 1):
            assert [one.message(before, 0, who) for who in (0, 1)] == [sent[before][0], sent[before][1]]
        assert one.message(t - KEEP, 0, 0) is None
    one.verify()
    one.close()
    assert len(beside(path)) < 4096 * PAGES * 2 * 3 * (KEEP + 2)


def test_several_threads_ask_while_one_writes(path: Path) -> None:
    wrong: list[int] = []
    with Ledger.open(path, keep=KEEP) as one:

        def ask() -> None:
            for t in range(20):
                wrong.extend([t] if one.message(t, 0, 1) not in (None, message(t)) else [])

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        commit(one, *range(20))
        for thread in threads:
            thread.join()
        assert not wrong
        assert kept(one, range(20)) == [17, 18, 19]


def test_fewer_rows_can_be_kept_later(path: Path) -> None:
    with Ledger.open(path, keep=20) as one:
        commit(one, *range(20))
        large = len(beside(path))
    with Ledger.open(path, keep=2) as one:
        commit(one, 20)
        assert kept(one, range(21)) == [19, 20]
    assert len(beside(path)) <= large + 4096 * 2 * (PAGES + 6)  # what is left of it is zeros, and is used again
    assert [t for t in range(21) if f"message {t:03d}".encode() in beside(path)] == [19, 20]
