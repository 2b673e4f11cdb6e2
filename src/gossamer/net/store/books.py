"""Ledgers and exports of runs, to be checked and added up: each against its witness, and every run once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from gossamer.errors import ConfigurationError
from gossamer.net.node.directory import NodeDirectory
from gossamer.net.store.chain import LedgerError
from gossamer.net.store.export import Export
from gossamer.net.store.ledger import Ledger
from gossamer.net.store.sealing import Sealer
from gossamer.net.store.witness import Witness, default_witness, witness_of

Book = Ledger | Export
"""What a run has spent: the ledger of a node, or an export of it. Its place is a file, or the node's directory."""

_SQLITE = b"SQLite format 3\0"


def book_file(place: Path) -> Path:
    """The ledger of a directory, or the file that was given.

    >>> book_file(Path("rows.jsonl")).name
    'rows.jsonl'
    """
    return place / "ledger.db" if place.is_dir() else place


def is_ledger(place: Path) -> bool:
    """Whether it is a ledger, and no export; refused where there is nothing to read."""
    path = book_file(place)
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        hint = f"the system says: {(error.strerror or 'refused').lower()}"
        raise ConfigurationError("ledger", str(path), "a file that can be read", hint) from None


def open_book(place: Path, stack: ExitStack) -> Book:
    """A ledger, as it is, or an export, which is checked as it is opened."""
    path = book_file(place)
    return stack.enter_context(Ledger.open(path, read_only=True)) if is_ledger(place) else Export(path)


def checked_book(place: Path, stack: ExitStack, sealer: Sealer | None = None) -> Book:
    """A ledger or an export, checked; a ledger also against its witness."""
    book = open_book(place, stack)
    if isinstance(book, Ledger):
        witness = own_witness(place, book)
        book = stack.enter_context(Ledger.open(book.path, sealer=sealer, witness=witness, read_only=True))
        book.verify()
    return book


def own_witness(place: Path, ledger: Ledger) -> Witness:
    """The one that the node.toml beside a ledger names; the default for a ledger by itself."""
    node = NodeDirectory(book_file(place).parent)
    if not (node.path / "node.toml").exists():
        return Witness(default_witness(ledger.identity.key))
    return witness_of(node.path, node.settings().witness, ledger.identity.key)


def distinct(books: Sequence[Book]) -> list[Book]:
    """Every run of a learner once: of several copies the longest, where the others are beginnings of it."""
    longest: dict[tuple[object, ...], Book] = {}
    for book in sorted(books, key=lambda book: book.last.number):
        own = (book.identity, book.run) if book.run else (book.path,)
        shorter = longest.get(own)
        if shorter and next(book.rows(first=shorter.last.number)).hash != shorter.last.hash:
            raise LedgerError(
                f"{shorter.path} and {book.path} are ledgers of the same run and differ at row {shorter.last.number}: "
                f"two copies of one node ran, and noise may have been used twice."
            )
        longest[own] = book
    return list(longest.values())
