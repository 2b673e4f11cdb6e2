"""Earlier runs over the same data: their ledgers are checked, and held so that they cannot spend more."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from gossamer.errors import ConfigurationError, NetworkError
from gossamer.net.node.agreed import key_fingerprint
from gossamer.net.node.costs import Cost, cost_of, unit_of
from gossamer.net.node.directory import Settings
from gossamer.net.store.books import Book, book_file, checked_book, distinct, is_ledger, own_witness
from gossamer.net.store.database import hold
from gossamer.net.store.ledger import Ledger
from gossamer.privacy import Guarantee


def earlier_costs(directory: Path, settings: Settings, key: bytes, promise: Guarantee, stack: ExitStack) -> list[Cost]:
    """What the `earlier` runs of a node.toml have cost; none of them can go on until the stack is closed.

    Args:
        directory: of the node.
        settings: what its node.toml says.
        key: the node's noise key.
        promise: of the run that they are added to.
        stack: keeps the locks.
    """
    if settings.earlier and settings.budget is None:
        hint = "what earlier runs cost counts towards it"
        raise ConfigurationError("earlier", list(settings.earlier), "none without a [budget] in node.toml", hint)
    files = {book_file(directory / path).resolve(): path for path in settings.earlier}
    books: list[Book] = []
    held: set[Path] = set()
    with ExitStack() as opened:
        for file, path in files.items():
            if is_ledger(file):
                _hold(file, path, held, stack)
            books.append(checked_book(directory / path, opened))
            _require_comparable(books[-1], path, settings.source, key, promise)
        return [cost_of(book) for book in distinct(books)]


def _hold(ledger: Path, path: str, held: set[Path], stack: ExitStack) -> None:
    """Take the lock of an earlier ledger and its witness, which all copies share: none can spend more meanwhile."""
    try:
        stack.callback(os.close, hold(ledger.with_suffix(".lock")))
        with Ledger.open(ledger, read_only=True) as known:
            witness = own_witness(ledger, known)
        if witness.path not in held:
            held.add(witness.path)
            stack.callback(witness.close)
            witness.hold()
    except NetworkError:
        raise NetworkError(
            f"earlier: {path} is in use: its node runs, or another node counts what it has cost. It must not spend "
            f"more while this node runs. Stop the other one first."
        ) from None
    except OSError as error:
        hint = f"the system says: {(error.strerror or 'refused').lower()}. Once that run is over, an export will do"
        allowed = "a ledger that can be locked, so that its node cannot spend more while this one runs"
        raise ConfigurationError("earlier", path, allowed, hint) from None


def _require_comparable(book: Book, path: str, source: str, key: bytes, promise: Guarantee) -> None:
    """Refuse what cannot be added to this run: it would be another sum than that of these data."""
    if book.identity.source != source:
        raise ConfigurationError("earlier", path, f"runs over the same source, {source!r}")
    if book.identity.key == key_fingerprint(key):
        raise ConfigurationError("earlier", path, "other runs than this one", "what it has spent counts by itself")
    unit = cost_of(book).unit
    if unit and unit != unit_of(promise):
        hint = f"it protects {unit}; losses of different guarantees do not add up"
        raise ConfigurationError("earlier", path, f"runs that protect {unit_of(promise)}", hint)
