"""Rows of a ledger and the hashes that chain them: no disk here, so an exported ledger is checked by the same code.

A row's hash covers everything in it and the hash of the row before. Whoever changes, removes or moves a row changes
every hash after it, and the last one is known elsewhere (`gossamer.net.store.witness`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal, NamedTuple, get_args

from gossamer.errors import GossamerError, PrivacyError
from gossamer.privacy import Guarantee, Loss

Kind = Literal["genesis", "start", "release", "gossip", "data", "end"]

FIRST = "0" * 64
"""What stands for the hash before the first row."""

WORDS = (
    "number", "time", "kind", "exchange", "step", "run", "spent", "bytes",
    "message", "state", "note", "previous", "hash",
)  # fmt: skip
"""What the parts of a row are called on disk, whatever their names in Python are."""

_IDENTITY = ("network", "learner", "config", "source", "key")
_SLACK = 1e-9  # a sum taken in another order may differ in its last bits: that is no spend that shrank


class LedgerError(PrivacyError):
    """A ledger that was changed, cut, swapped, or restored from an old copy."""


class Spent(NamedTuple):
    """What one mechanism has cost so far."""

    mechanism: str
    position: int
    loss: Loss


@dataclass(frozen=True)
class Identity:
    """What a ledger belongs to; written once, in its first row.

    Attributes:
        network: id of the network, in hexadecimal digits.
        learner: number of the learner.
        config: digest of the configuration, in hexadecimal digits.
        source: name of the data source: what runs over the same data have in common.
        key: fingerprint of the noise key, in hexadecimal digits.
    """

    network: str
    learner: int
    config: str
    source: str
    key: str

    def to_json(self) -> str:
        """As JSON text; `from_json` reads it back."""
        return _canonical(dict(zip(_IDENTITY, astuple(self), strict=True)))

    @classmethod
    def from_json(cls, text: str) -> Identity:
        """The identity that `to_json` wrote.

        >>> ours = Identity("a1", 0, "b2", "meters", "c3")
        >>> Identity.from_json(ours.to_json()) == ours
        True
        """
        return cls(*_values(json.loads(text), _IDENTITY))


class Row(NamedTuple):
    """One row of a ledger.

    Attributes:
        number: 1, 2, 3, ...
        time: when it was written, in whole seconds since 1970.
        kind: "genesis", "start", "release", "gossip", "data" (from here on samples are others) or "end".
        exchange: of what was sent; -1 before the first.
        step: gossip step within the exchange; -1 before the first.
        run: the run's id; empty before it began.
        spent: what every mechanism has cost, this row included.
        bytes: how many were sent.
        message: keyed digest of what was sent; empty where nothing was.
        state: keyed digest of the state after it; empty where there is none.
        note: the identity in the first row, the guarantee in the second, the name of the source in rows of kind
            "data", and in the last one why the run ended.
        previous: hash of the row before.
        hash: of everything above.
    """

    number: int
    time: int
    kind: Kind
    exchange: int
    step: int
    run: str
    spent: tuple[Spent, ...]
    bytes: int
    message: str
    state: str
    note: str
    previous: str
    hash: str

    def chained(self) -> Row:
        """The same with its hash.

        >>> row = Row(1, 0, "genesis", -1, -1, "", (), 0, "", "", "", FIRST, "").chained()
        >>> row.hash[:8], row.chained() == row
        ('ada86ee5', True)
        """
        facts = _canonical([*self[:6], encode_spent(self.spent), *self[7:-2]])
        return self._replace(hash=hashlib.sha256(f"{self.previous}\n{facts}".encode()).hexdigest())

    def to_json(self) -> str:
        """As one line of JSON; `from_json` reads it back."""
        return _canonical(dict(zip(WORDS, self, strict=True)) | {"spent": json.loads(encode_spent(self.spent))})

    @classmethod
    def from_json(cls, line: str) -> Row:
        """The row that `to_json` wrote.

        >>> from gossamer.privacy import Pure
        >>> spent = (Spent("gradient", 3, Pure(0.5)),)
        >>> row = Row(2, 0, "release", 0, 0, "r", spent, 8, "aa", "bb", "", FIRST, "").chained()
        >>> Row.from_json(row.to_json()) == row
        True
        """
        row = cls(*_values(json.loads(line), WORDS))
        return row._replace(spent=decode_spent(json.dumps(row.spent)))


def _values(facts: Any, words: Sequence[str]) -> list[Any]:
    """What stands under these words; refused where there are others."""
    if not isinstance(facts, dict) or facts.keys() != set(words):
        raise ValueError(f"not the words {', '.join(words)}")
    return [facts[word] for word in words]


def encode_spent(spent: Sequence[Spent]) -> str:
    """Spends as JSON text, the same for the same spends."""
    return _canonical([[one.mechanism, one.position, one.loss.to_json()] for one in spent])


def decode_spent(text: str) -> tuple[Spent, ...]:
    """The spends that `encode_spent` wrote."""
    return tuple(Spent(name, int(position), Loss.from_json(loss)) for name, position, loss in json.loads(text))


class Chain:
    """Checks rows one after another: numbers, hashes, order, and spends that never shrink.

    >>> first = Row(1, 0, "genesis", -1, -1, "", (), 0, "", "", "", FIRST, "").chained()
    >>> chain = Chain()
    >>> chain.add(first)
    >>> chain.add(first)
    Traceback (most recent call last):
        ...
    gossamer.net.store.chain.LedgerError: row 2: number 1 stands in its place: rows were removed, added or moved.
    """

    def __init__(self) -> None:
        self.last: Row | None = None

    @property
    def count(self) -> int:
        """How many rows were added."""
        return 0 if self.last is None else self.last.number

    def add(self, row: Row) -> None:
        """Check the next row; refused where it cannot follow the last one."""
        fault = self._fault(row)
        if fault:
            raise LedgerError(f"row {self.count + 1}: {fault}.")
        self.last = row

    def _fault(self, row: Row) -> str:
        if row.number != self.count + 1:
            return f"number {row.number} stands in its place: rows were removed, added or moved"
        if row.previous != (self.last.hash if self.last else FIRST):
            return "it does not carry the hash of the row before: a row was removed, added, moved or changed"
        if row.hash != row.chained().hash:
            return "its content does not match its hash: it was changed"
        return misplaced(self.last, row)


def misplaced(last: Row | None, row: Row) -> str:
    """Why a row cannot follow another, in words; empty where it can."""
    if last is None or row.kind in ("genesis", "start"):
        expected = {None: "genesis", "genesis": "start"}.get(last and last.kind, "another kind")
        return "" if row.kind == expected else f"a row of kind {row.kind!r} cannot stand here"
    if last.kind in ("genesis", "end"):
        return "the run has ended" if last.kind == "end" else "the run has not begun"
    if row.kind not in get_args(Kind) or row.run != last.run:
        return "it is of another run or of a kind that is not known"
    if row.kind not in ("end", "data") and (row.exchange, row.step) <= (last.exchange, last.step):
        ours, before = f"exchange {row.exchange}, step {row.step}", f"exchange {last.exchange}, step {last.step}"
        return f"{ours} is not later than {before}, which was committed before"
    return _shrunk(last.spent, row.spent)


def _shrunk(before: Sequence[Spent], after: Sequence[Spent]) -> str:
    """Which spend got smaller, in words; empty where none did."""
    now = {one.mechanism: one for one in after}
    if len(now) < len(after):
        return "a mechanism is named twice"
    for one in before:
        name = f"the spend of mechanism {one.mechanism!r}"
        if one.mechanism not in now:
            return f"{name} is missing"
        if now[one.mechanism].position < one.position:
            return f"{name} went back from position {one.position} to {now[one.mechanism].position}"
        if _smaller(one.loss, now[one.mechanism].loss):
            return f"{name} got smaller"
    return ""


def _smaller(old: Loss, new: Loss) -> bool:
    """Whether any number of a loss shrank."""
    if type(old) is not type(new):
        old, new = old.as_mixed(), new.as_mixed()
    return any(after < before * (1 - _SLACK) for before, after in zip(_numbers(old), _numbers(new), strict=True))


def _numbers(loss: Loss) -> list[float]:
    return [math.fsum(value) if isinstance(value, tuple) else value for value in vars(loss).values()]


def identity_of(row: Row) -> Identity:
    """What the first row says."""
    try:
        return Identity.from_json(row.note)
    except (ValueError, TypeError) as error:
        raise unreadable(row.number, error) from None


def guarantee_of(row: Row) -> Guarantee:
    """What the row says with which the run began."""
    try:
        return Guarantee.from_json(row.note)
    except (ValueError, KeyError, TypeError, AttributeError, PrivacyError) as error:
        raise unreadable(row.number, error) from None


def unreadable(number: int, error: Exception) -> LedgerError:
    """The error of a row that is not one; it does not repeat what stands there."""
    kind = error if isinstance(error, GossamerError) else type(error).__name__
    return LedgerError(f"row {number}: it cannot be read ({kind}): it was changed or damaged.")


def _canonical(facts: Any) -> str:
    return json.dumps(facts, separators=(",", ":"), allow_nan=False)
