"""What a node spent and sent, on disk before anything is sent: a hash chain, the bytes themselves, and the state.

A row of the chain, the messages of that row and the state after it are written in one transaction (large ones into a
file beside the database, see `gossamer.net.store.blobs`). After a crash the stored bytes are sent again, never computed
again: the same noise over other data would give the data away.

Both files hold raw sums and samples (in the state): only their owner can read them, and no export holds any of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal

from gossamer.checks import check_choice, check_count
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.store.blobs import ReplacedError
from gossamer.net.store.chain import (
    Chain,
    Identity,
    Kind,
    LedgerError,
    Row,
    Spent,
    guarantee_of,
    identity_of,
    misplaced,
)
from gossamer.net.store.database import connect, database_errors, flush_log, hold, insert, make, require_ledger, select
from gossamer.net.store.pieces import MOST_RECEIVER, Pieces, require_bytes
from gossamer.net.store.vault import Sealer, Vault
from gossamer.net.store.witness import Mark, Witness, old_copy
from gossamer.net.wire.transport import ALL
from gossamer.privacy import Guarantee

__all__ = ["Identity", "Ledger", "LedgerError", "Row", "Spent"]

Sends = Literal["release", "gossip"]


class Ledger:
    """One node's ledger. `create` makes the file, `open` opens it, `begin` names the run.

    Attributes:
        path: the database.
        identity: what the ledger belongs to.
        last: the last row.
        sources: what the data of the run were called, one after another; a name that comes twice was read twice.
        data_changed: whether the data are others than those that the last state was made of.
        adopted: whether it was moved here, so that nobody but neighbours can tell that it is no old copy.

    >>> import tempfile
    >>> from gossamer.privacy import Pure
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "ledger.db"
    ...     Ledger.create(path, Identity("a1", 0, "b2", "meters", "c3"))
    ...     with Ledger.open(path) as ledger:
    ...         _ = ledger.begin("run1", Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,)))
    ...         row = ledger.commit("release", 0, 0, [Spent("x", 1, Pure(0.1))], {ALL: b"noised"}, b"state")
    ...         print(row.number, row.bytes, ledger.message(0, 0, 2), ledger.state())
    ...         ledger.verify()
    3 6 b'noised' b'state'
    """

    @classmethod
    def create(cls, path: Path, identity: Identity) -> None:
        """Make a ledger with its first row; an existing file is refused."""
        make(path, identity)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        sealer: Sealer | None = None,
        witness: Witness | None = None,
        keep: int = 1024,
        read_only: bool = False,
        adopt: bool = False,
    ) -> Ledger:
        """Open a ledger.

        Args:
            path: the database.
            sealer: encrypts state and messages; the one that the run was begun with. Somebody who only reads rows
                needs none.
            witness: knows the last row; the ledger keeps it up to date and closes it.
            keep: of so many rows the messages are kept, to be sent again.
            read_only: also while a node runs on it; everything read is from one moment.
            adopt: accept a ledger that goes on from what the witness knows, or of which it knows nothing: one that was
                moved here. The witness learns of it with the first row that is written.
        """
        return cls(path, sealer, witness, check_count("keep", keep), read_only, adopt)

    def __init__(
        self, path: Path, sealer: Sealer | None, witness: Witness | None, keep: int, read_only: bool, adopt: bool
    ) -> None:
        self.path, self._sealer, self._witness = path.resolve(), sealer, witness
        self._keep, self._read_only, self.adopted = keep, read_only, adopt
        self._turn = threading.RLock()
        self._broken = False
        if not self.path.is_file():
            hint = "a key without its ledger is never used: make a new directory"
            raise ConfigurationError("ledger", str(path), "a file made by Ledger.create", hint)
        with ExitStack() as stack, database_errors(self.path):
            known = self._secure(stack)
            self._database = stack.enter_context(connect(self.path, read_only))
            require_ledger(self._database, self.path)
            self._load(stack)
            if not read_only:
                flush_log(self.path)
            self._check_witness(known)
            if not read_only:
                self._pieces.state(self._stated, self.last)  # nothing is wiped because of a row that somebody changed
                self._pieces.blobs.wipe()
            self._resources = stack.pop_all()

    def _secure(self, stack: ExitStack) -> Mark | None:
        """Lock out other processes, and ask the witness before the rows are read: they may only be newer then."""
        if not self._read_only:
            stack.callback(os.close, hold(self.path.with_suffix(".lock")))
            os.chmod(self.path, 0o600)
        if self._witness is None:
            return None
        stack.callback(self._witness.close)
        if not self._read_only:
            self._witness.hold()
        return self._witness.read()

    def _load(self, stack: ExitStack) -> None:
        genesis = self._row("WHERE number = 1")
        last = self._row("ORDER BY number DESC")
        if genesis is None or last is None or genesis.kind != "genesis" or last.hash != last.chained().hash:
            raise LedgerError(f"{self.path}: the first or the last row is missing or was changed.")
        self.identity = identity_of(genesis)
        self.last = last
        self._stated = self._row("WHERE state != '' ORDER BY number DESC")
        changes = select(self._database, "WHERE kind = 'data' ORDER BY number")
        self.sources = [self.identity.source, *(row.note for row in changes)]
        self.data_changed = any(self._stated is None or row.number > self._stated.number for row in changes)
        self._vault = Vault(self._database, self.path, self.run, self._sealer, self._read_only)
        again = partial(connect, self.path, read_only=True) if self._read_only else None
        self._pieces = Pieces(self._database, self.path.with_suffix(".blobs"), self._vault, again)
        stack.callback(self._pieces.blobs.close)
        self._numbers = self._pieces.sent(last.number)

    @property
    def locked(self) -> bool:
        """Whether state and messages are sealed and the key was not given: then only rows can be read."""
        return self._vault.locked

    @property
    def run(self) -> str | None:
        """The run's id; None before it began."""
        return self.last.run or None

    @property
    def promise(self) -> Guarantee | None:
        """The guarantee that the run was begun with; None before it began."""
        with self._turn, database_errors(self.path):
            start = self._row("WHERE number = 2")
        return guarantee_of(start) if start else None

    @property
    def mark(self) -> Mark:
        """What a witness has to know of it."""
        return Mark(self.last.number, self.last.hash)

    @property
    def ended(self) -> bool:
        """Whether nothing is sent any more."""
        return self.last.kind == "end"

    # Writing

    def begin(self, run: str, promise: Guarantee) -> Row:
        """Write down the run's id, which must be fresh, and its guarantee; once for each ledger."""
        if not isinstance(run, str) or not run:
            raise ConfigurationError("run", run, "an id that no other run has", "try secrets.token_hex(16)")
        with self._turn:
            row = self._next("start", -1, -1, (), run=run, note=promise.to_json())
            if self._witness is not None:
                self._witness.record(self.mark)  # first: a run that has begun without a witness is a copy
            with self._transaction(row):
                self._vault.begin(self._database, run)
            return row

    def commit(
        self,
        kind: Sends,
        exchange: int,
        step: int,
        spent: Sequence[Spent],
        messages: Mapping[int, bytes],
        state: bytes | None,
    ) -> Row:
        """Write down what is about to be sent; only when this has returned may it be sent.

        Args:
            kind: "release" where a mechanism released something new, else "gossip".
            exchange: number of the exchange.
            step: gossip step in the exchange; (exchange, step) is later than that of the last commit.
            spent: what every mechanism has cost, this release included; never less than before. Gossip that costs
                nothing more may leave it empty.
            messages: receiver to bytes; the receiver -1 stands for all.
            state: of the learner, after this step. Gossip that changes nothing of it says None.
        """
        check_choice("kind", kind, Sends)
        if state is None and kind == "release":
            raise ConfigurationError("state", None, "bytes with every release")
        exchange, step = check_count("exchange", exchange, least=0), check_count("step", step, least=0)
        sent = sorted((check_count("receiver", who, ALL, MOST_RECEIVER), data) for who, data in messages.items())
        for data in (b"" if state is None else state, *(data for _, data in sent)):
            require_bytes(data)
        with self._turn:
            costs = tuple(spent) or (self.last.spent if kind == "gossip" else ())
            row = self._next(kind, exchange, step, costs, messages=sent, state=state)
            with self._transaction(row):
                self._pieces.put_messages(row, sent, self._keep)
                if state is not None:
                    self._pieces.put_state(row, state)
            self._numbers[exchange, step] = row.number
            while len(self._numbers) > self._keep:
                del self._numbers[next(iter(self._numbers))]
            return row

    def finish(self, state: bytes, why: str) -> Row:
        """Write down the last state, and why it is the last; nothing is sent, and nothing can be committed after it."""
        require_bytes(state)
        with self._turn:
            last = self.last
            row = self._next("end", last.exchange, last.step, last.spent, note=why, state=state)
            with self._transaction(row):
                self._pieces.put_state(row, state)
            return row

    def change_data(self, source: str) -> None:
        """Write down that samples come from data of this name now: if it was there before, they may come again."""
        with self._turn:
            with self._transaction(self._next("data", *self.last[3:5], self.last.spent, note=source)):
                self.sources.append(source)
            self.data_changed = True

    def _next(
        self,
        kind: Kind,
        exchange: int,
        step: int,
        spent: tuple[Spent, ...],
        *,
        run: str = "",
        note: str = "",
        messages: Sequence[tuple[int, bytes]] | None = None,
        state: bytes | None = None,
    ) -> Row:
        """The next row; refused, before anything is written, where it cannot follow the last one."""
        if self._read_only or self._broken:
            why = "it is open for reading only" if self._read_only else "a write failed or the ledger was closed"
            raise PrivacyError(f"{self.path}: nothing can be committed: {why}. Open it again; nothing may be sent.")
        number, now = self.last.number + 1, int(time.time())
        run, previous = run or self.last.run, self.last.hash
        row = Row(number, now, kind, exchange, step, run, spent, 0, "", "", note, previous, "")
        fault = misplaced(self.last, row)
        if fault:
            raise PrivacyError(f"{self.path}: a {kind} is refused: {fault}. Nothing was written, nothing may be sent.")
        return row._replace(
            bytes=sum(len(data) for _, data in messages or ()),
            message="" if messages is None else self._vault.digest(number, messages),
            state="" if state is None else self._vault.digest_of_state(number, state),
        ).chained()

    @property
    def broken(self) -> bool:
        """Whether a write failed or the ledger was closed: what is on disk may be more than what it says."""
        return self._broken

    @contextmanager
    def _transaction(self, row: Row) -> Iterator[None]:
        """All or nothing, then the witness. After a failure nobody knows what is on disk: only opening again tells."""
        self._broken = True
        with database_errors(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                insert(self._database, row)
                self._pieces.blobs.sync()
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
            if self._witness:
                self._witness.record(Mark(row.number, row.hash))
        self.last = row
        if row.state:
            self._stated, self.data_changed = row, False
        self._pieces.blobs.settle()
        self._broken = False

    # Reading

    def message(self, exchange: int, step: int, receiver: int) -> bytes | None:
        """What was committed for this receiver, or for all; None where nothing was, or where it was dropped since."""
        with self._turn, database_errors(self.path):
            number = self._numbers.get((exchange, step))
            row = None if number is None else self._row(f"WHERE number = {number}")
            try:
                sent = {} if row is None else self._pieces.messages(row)
            except ReplacedError:
                return None
            return sent.get(receiver, sent.get(ALL))

    def state(self) -> bytes | None:
        """The last committed state; None before the first. One that is not that of its row is refused."""
        with self._turn, database_errors(self.path):
            try:
                return self._pieces.state(self._stated, self.last)
            except ReplacedError:
                raise LedgerError(f"{self.path}: the node wrote a newer state meanwhile: open it again.") from None

    def _fault_of_state(self) -> PrivacyError | None:
        try:
            with suppress(ReplacedError):  # by a node that runs
                self._pieces.state(self._stated, self.last)
        except PrivacyError as fault:
            return fault
        return None

    def rows(self, first: int = -(2**63)) -> Iterator[Row]:
        """All rows as stored, in the order of their numbers, from the number `first` on."""
        while True:
            with self._turn, database_errors(self.path):
                some = select(self._database, "WHERE number >= ? ORDER BY number LIMIT 500", (first,))
            if not some:
                return
            yield from some
            first = some[-1].number + 1

    def verify(self) -> None:
        """Check the chain, the kept messages and the state; the first fault is raised.

        Of a sealed ledger without its key only the chain is checked. The witness was asked when the ledger was opened.
        While the node runs, its state and the oldest messages may be dropped before they are read: they are left out.
        """
        chain = Chain()
        with self._turn, database_errors(self.path):
            fault = None if self.locked else self._fault_of_state()  # first: it is the first to be replaced
            last = self.last.number - 1 if self.ended else self.last.number
            first = min(self._pieces.kept("min") or last, last)  # messages of the last commit are always kept
            for row in self.rows():
                chain.add(row)
                if row.number >= first and row.message and not self.locked:
                    with suppress(ReplacedError):  # by a node that runs: these are kept no longer
                        self._pieces.messages(row)
            if chain.last != self.last or (self._pieces.kept("max") or 0) > chain.count:
                raise LedgerError(f"row {chain.count + 1}: it was removed: later rows or messages of it are left.")
            if fault is not None:
                raise fault

    def close(self) -> None:
        """Let go of the file; more than once does no harm."""
        with self._turn:
            self._broken = True
            self._resources.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # Inside

    def _check_witness(self, known: Mark | None) -> None:
        if self._witness is None:
            return
        last = self.mark
        at = None if known is None else self._row(f"WHERE number = {known.number}")
        if known is not None and (at is None or at.hash != known.hash):
            raise old_copy(self.path, known, last)
        moved = self.adopted and not self.ended  # neighbours must agree first: the next row will be recorded
        if self._read_only or self.run is None or known == last or moved:
            return
        if not self.adopted:
            self._witness.require_next(known, last)
        self._witness.record(last)

    def _row(self, where: str) -> Row | None:
        return next(iter(select(self._database, f"{where} LIMIT 1")), None)
