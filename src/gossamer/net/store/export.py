"""A ledger for others to read: rows as lines of JSON. No state, no message, and no key of the digests is in it."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from gossamer.errors import ConfigurationError, GossamerError
from gossamer.net.store.chain import Chain, Identity, LedgerError, Row, guarantee_of, identity_of, unreadable
from gossamer.net.store.ledger import Ledger
from gossamer.privacy import Guarantee

_FORMAT = "gossamer ledger 1"


def export(ledger: Ledger, out: Path) -> None:
    """Write the rows to a file that is not there yet; its first line says whose they are and what was promised."""
    write_rows(out, ledger.identity, ledger.promise, ledger.last, ledger.rows())


def write_rows(out: Path, identity: Identity, promise: Guarantee | None, last: Row, rows: Iterable[Row]) -> None:
    """Write an exported ledger of these rows, which end with the last one."""
    header = {
        "format": _FORMAT,
        "identity": json.loads(identity.to_json()),
        "run": last.run or None,
        "guarantee": json.loads(promise.to_json()) if promise else None,
        "rows": last.number,
        "head": last.hash,
    }
    unfinished = out.with_name(f"{out.name}.{os.getpid()}.new")
    try:
        with unfinished.open("x", encoding="utf-8") as file:
            file.write(json.dumps(header) + "\n")
            file.writelines(row.to_json() + "\n" for row in rows)
        os.link(unfinished, out)
    except FileExistsError:
        raise ConfigurationError("--out", str(out), "a file that is not there yet") from None
    except OSError as error:
        hint = f"the system says: {(error.strerror or 'refused').lower()}"
        raise ConfigurationError("--out", str(out), "a file that can be written", hint) from None
    finally:
        unfinished.unlink(missing_ok=True)


class Export:
    """An exported ledger; its chain is checked as it is opened.

    Attributes:
        path: the file.
        identity: what the ledger belongs to.
        promise: the guarantee of its run; None before it began.
        last: the last row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        chain = Chain()
        self.promise: Guarantee | None = None
        for row in self.rows():
            chain.add(row)
            if row.kind == "genesis":
                self.identity = identity_of(row)
            if row.kind == "start":
                self.promise = guarantee_of(row)
        if chain.last is None:
            raise LedgerError(f"{path}: no rows: not an exported ledger.")
        self.last = chain.last
        self._check_header()

    @property
    def run(self) -> str | None:
        """The run's id; None before it began."""
        return self.last.run or None

    def rows(self, first: int = 1) -> Iterator[Row]:
        """All rows, in the order of the file, from the one at place `first` on."""
        with self.path.open(encoding="utf-8", errors="replace") as file:
            next(file, "")
            for number, line in enumerate(file, 1):
                if number < first:
                    continue
                try:
                    yield Row.from_json(line)
                except (ValueError, KeyError, TypeError, AttributeError, GossamerError) as error:
                    raise unreadable(number, error) from None

    def _check_header(self) -> None:
        with self.path.open(encoding="utf-8") as file:
            try:
                header = json.loads(next(file))
                said = [header[key] for key in ("format", "identity", "run", "rows", "head")]
            except (ValueError, KeyError, TypeError):
                raise LedgerError(f"{self.path}: the first line cannot be read: not an exported ledger.") from None
        identity = json.loads(self.identity.to_json())
        if said != [_FORMAT, identity, self.run, self.last.number, self.last.hash]:
            raise LedgerError(f"row {self.last.number}: the first line of {self.path} does not agree with the rows.")
        if header.get("guarantee") != (json.loads(self.promise.to_json()) if self.promise else None):
            raise LedgerError(f"row 2: the guarantee in the first line of {self.path} is another one.")
