"""Large pieces of a ledger, in the file beside it: where they lie, what a crash leaves, and what is found."""

from __future__ import annotations

import errno
import os
import random
import secrets
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.net import ledger
from gossamer.net.blobs import LARGE, Space
from gossamer.net.ledger import ALL, Identity, Ledger, LedgerError
from gossamer.net.sealing import Sealer
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


@pytest.mark.parametrize("fatal", ["insert", "sync"])
def test_what_a_crash_undoes_is_still_there(path: Path, fatal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces of the next rows are written, and their transactions are not: again and again, as with a full disk."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with Ledger.open(path, keep=KEEP) as one:
        commit(one, *range(7))
    for _ in range(5):
        with monkeypatch.context() as patch:
            patch.setattr(*((ledger, "insert") if fatal == "insert" else (os, "fdatasync")), fail)
            with pytest.raises(LedgerError, match="no space left"), Ledger.open(path, keep=KEEP) as one:
                commit(one, 7)
        with Ledger.open(path, keep=KEEP) as one:
            assert kept(one, range(7)) == [4, 5, 6]
    with Ledger.open(path, keep=KEEP) as one:
        commit(one, 7)
        assert kept(one, range(8)) == [5, 6, 7]


@pytest.mark.parametrize(
    ("text", "why"), [("message 005", "row 8: the stored messages"), ("state 006", "stored state")]
)
def test_a_changed_byte_is_found_and_never_sent(path: Path, text: str, why: str) -> None:
    with Ledger.open(path) as one:
        commit(one, *range(7))
    data = bytearray(beside(path))
    data[data.rindex(text.encode()) + 9] ^= 1
    path.with_suffix(".blobs").write_bytes(data)
    with Ledger.open(path) as one:
        with pytest.raises(LedgerError, match=why):
            one.verify()
        assert one.message(4, 0, 1) == message(4)
        with pytest.raises(LedgerError, match=why):
            _ = one.state() if text.startswith("state") else one.message(5, 0, 1)


@pytest.mark.parametrize("cut", [0.0, 0.5, None])
def test_a_file_that_is_cut_or_gone(path: Path, cut: float | None) -> None:
    with Ledger.open(path) as one:
        commit(one, *range(4))
    if cut is None:
        path.with_suffix(".blobs").unlink()
    else:
        os.truncate(path.with_suffix(".blobs"), int(cut * len(beside(path))))
    for read_only in (True, False):
        with pytest.raises(LedgerError), Ledger.open(path, read_only=read_only) as one:
            one.verify()


def test_the_file_of_another_time_is_found(path: Path) -> None:
    with Ledger.open(path, keep=KEEP) as one:
        commit(one, *range(4))
        old = beside(path)
        commit(one, *range(4, 9))
    path.with_suffix(".blobs").write_bytes(old)
    with pytest.raises(LedgerError, match="stored messages"), Ledger.open(path) as one:
        one.verify()


def test_somebody_reads_while_the_node_writes_on(path: Path) -> None:
    """What was replaced since is not called changed; what is still there is checked."""
    with Ledger.open(path, keep=KEEP) as one:
        commit(one, *range(5))
        with Ledger.open(path, read_only=True) as reader:
            assert kept(reader, range(5)) == [2, 3, 4]
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


@pytest.mark.parametrize("answer", [errno.EINVAL, errno.EIO, "a part"])
def test_disks_that_refuse(path: Path, answer: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without direct writes is written to through its cache; other faults end the ledger."""
    pwrite, refused = os.pwrite, []

    def refuse(file: int, data: memoryview, offset: int) -> int:
        if answer == "a part":
            return pwrite(file, data[: len(data) // 2], offset)
        if answer != errno.EINVAL or not refused:
            refused.append(offset)
            raise OSError(answer, "refused")
        return pwrite(file, data, offset)

    with Ledger.open(path) as one:
        monkeypatch.setattr(os, "pwrite", refuse)
        if answer == errno.EINVAL:
            commit(one, 0, 1)
            assert (kept(one, range(2)), len(refused)) == ([0, 1], 1)
        else:
            with pytest.raises(LedgerError, match="Nothing may be sent"):
                commit(one, 0)
        monkeypatch.undo()
    with Ledger.open(path) as one:
        assert one.last.exchange == (1 if answer == errno.EINVAL else -1)
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
        sent.append({who: secrets.token_bytes(size) for who, size in enumerate(sizes[1:])})
        held = secrets.token_bytes(sizes[0])
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
