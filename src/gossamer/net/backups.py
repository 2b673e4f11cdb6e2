"""Copies of a node's directory that can do no harm: a backup for the day when the disk is gone, and a move.

Noise must never be used twice. So a **backup** has no noise key, no state and no message: what is restored from it is
who the site is, whom it trusts, and what it has spent; it goes on in the next run (`gossamer node follow`), and the
run that was lost counts in full. A **move** takes everything along, and what is left behind cannot run any more.
"""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.files import private_file
from gossamer.net.directory import MOVED, RESTORED, NodeDirectory
from gossamer.net.enrolment import make_empty, write_new
from gossamer.net.ledgers import checked_ledger
from gossamer.net.node.agreement import prepared, promise_of
from gossamer.net.node.spending import LOST
from gossamer.net.store.chain import Row, guarantee_of
from gossamer.net.store.database import fold, hold
from gossamer.net.store.export import Export, export, write_rows
from gossamer.net.store.ledger import Ledger
from gossamer.privacy import Guarantee

Copy = Literal["backup", "move"]

_KEPT = (
    "node.toml", "agreement.json", "members.json", "accepted.json", "request.json", "next.json",
    "cert.pem", "cert.key", "pair.key", "decisions",
)  # fmt: skip
_MOVED = (*_KEPT, "noise.key", "ledger.db", "ledger.blobs")
_LARGEST = 2**32  # bytes of one file
_MUST = ("node.toml", "agreement.json", "cert.pem", "cert.key", "pair.key")


def back_up(node: NodeDirectory, out: Path) -> None:
    """Write what may be restored of a node, running or not, to a file that is not there yet.

    It holds the private keys of the site's connections: keep it like them. It holds no noise key, no sample, no state.

    Args:
        node: the directory.
        out: the file.
    """
    node.settings()
    with Ledger.open(node.ledger, read_only=True) as ledger, _beside(out) as rows:
        ledger.verify()
        export(ledger, rows)
        _write(out, [(name, (node.path / name).read_bytes()) for name in _KEPT if (node.path / name).exists()], rows)


def move(node: NodeDirectory, out: Path) -> None:
    """Write all of a node that is stopped to a file that is not there yet; the directory cannot run any more.

    Args:
        node: the directory; its noise key is overwritten and removed once the file is on disk.
        out: the file. Whoever has it has all secrets of the site.
    """
    node.require_latest()
    key = node.path / "noise.key"
    node.secret(key.name)
    with ExitStack() as stack:
        stack.callback(os.close, hold(node.ledger.with_suffix(".lock")))  # no node runs on it
        checked_ledger(node.path, stack)
        fold(node.ledger)
        _write(out, [(name, (node.path / name).read_bytes()) for name in _MOVED if (node.path / name).exists()])
        with private_file(node.path / MOVED) as left:
            left.write(f"{out.resolve()}\n".encode())
        with key.open("r+b", buffering=0) as opened:
            opened.write(bytes(key.stat().st_size))
            os.fsync(opened.fileno())
        key.unlink()


class Restored(NamedTuple):
    """A directory that was made from a file, and what the file is."""

    node: NodeDirectory
    copy: Copy


def restore(file: Path, directory: Path) -> Restored:
    """Make the directory of a node from what `back_up` or `move` wrote.

    Args:
        file: of the backup, or of the move.
        directory: must not exist, or be empty.
    """
    found = _read(file)
    node = NodeDirectory(directory)
    make_empty(directory)
    for name, data in found.items():
        write_new(directory / name, data)
    if "noise.key" in found:
        return Restored(node, "move")
    _close(node)
    return Restored(node, "backup")


def _close(node: NodeDirectory) -> None:
    """End the ledger of a backup: what was spent after it nobody knows, so the whole run counts."""
    file = node.path / RESTORED
    kept = Export(file)
    rows = list(kept.rows())
    if rows[-1].kind == "genesis":
        rows.append(_after(rows[-1], "start", run=LOST, note=_promise(node).to_json()))
    if rows[-1].kind != "end":
        rows.append(_after(rows[-1], "end", note=LOST))
    file.unlink()
    write_rows(file, kept.identity, guarantee_of(rows[1]), rows[-1], rows)


def _promise(node: NodeDirectory) -> Guarantee:
    """What a run promises of which the backup has not seen the beginning."""
    agreed = node.agreement()
    return promise_of(prepared(agreed.algorithm(), allow_no_guarantee=True), agreed.arrivals)


def _after(last: Row, kind: Literal["start", "end"], *, run: str = "", note: str = "") -> Row:
    return last._replace(
        number=last.number + 1,
        time=int(time.time()),
        kind=kind,
        run=run or last.run,
        bytes=0,
        message="",
        state="",
        note=note,
        previous=last.hash,
    ).chained()


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A name for a file that is gone at the end."""
    rows = out.with_name(f"{out.name}.{os.getpid()}.rows")
    try:
        yield rows
    finally:
        rows.unlink(missing_ok=True)


def _write(out: Path, files: Sequence[tuple[str, bytes]], rows: Path | None = None) -> None:
    """A new archive that only its owner can read; whole and on disk, or not there."""
    if out.exists():
        raise ConfigurationError("--out", str(out), "a file that is not there yet")
    both = [*files, *([(RESTORED, rows.read_bytes())] if rows else [])]
    try:
        with private_file(out) as opened, tarfile.open(fileobj=opened, mode="w:gz") as archive:
            for name, data in both:
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(data), 0o600
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        hint = f"the system says: {(error.strerror or 'refused').lower()}"
        raise ConfigurationError("--out", str(out), "a file that can be written", hint) from None


def _read(file: Path) -> dict[str, bytes]:
    """The files of an archive by name; refused where there are others, or some are missing."""
    allowed = "a file made by `gossamer node backup` or `gossamer node move`"
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(file) as archive:
            for entry in archive:
                opened = archive.extractfile(entry) if entry.isreg() else None
                if (
                    opened is None
                    or entry.name not in (*_MOVED, RESTORED)
                    or entry.name in found
                    or entry.size > _LARGEST
                ):
                    raise ConfigurationError("FILE", str(file), allowed, f"it holds {entry.name!r}")
                found[entry.name] = opened.read()
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError("FILE", str(file), allowed, "it is gone, broken or something else") from None
    lacking = [name for name in _MUST if name not in found]
    whole = ("noise.key" in found and "ledger.db" in found) != (RESTORED in found)
    if lacking or not whole:
        raise PrivacyError(f"FILE: {file} is not whole: make another one, or take an older one. Nothing was restored.")
    return found
