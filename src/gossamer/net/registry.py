"""What all runs over the same data have cost, on their owner's machine: no run has to be told of another.

A run enters when its site joins, and again whenever its node starts or reads other data: then it counts for both. Runs
read the same data where the source has the same name, or where they read the same file: under another name, by a link,
in a folder, or a copy that begins alike.

Before an exchange releases anything its cost is written here, and only then into the ledger. So what stands here is
never less than what was spent, also after a crash, of nodes that run at once, and of directories that are gone. A fast
node writes down several exchanges at once, at most what it makes in about a second.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.node.spending import (
    LOST,
    Cost,
    added_up,
    cost_of_one,
    largest_of,
    several_times,
    sum_of,
    units_of,
    within,
)
from gossamer.net.store.database import connect
from gossamer.net.store.export import Export
from gossamer.net.store.ledger import Ledger
from gossamer.net.store.witness import state_directory, sync_directory
from gossamer.privacy import Budget, Loss, Unit
from gossamer.privacy.guarantee import rounded_up

_APPLICATION, _VERSION = 0x476F7352, 1  # "GosR"
_SCHEMA = """
CREATE TABLE runs (key TEXT, data INTEGER, network TEXT, learner INTEGER, source TEXT, times INTEGER, directory TEXT,
    run TEXT, exchanges INTEGER, cost TEXT, budget TEXT, PRIMARY KEY (key, source));
CREATE TABLE files (data INTEGER, path TEXT, beginning TEXT, UNIQUE (data, path, beginning));
"""
_RUNS = """
SELECT key, data, network, learner, group_concat(source, ' = '), sum(times), directory, run, exchanges, cost, budget
    FROM runs GROUP BY key, data ORDER BY min(rowid)
"""
_SPENT = "SELECT directory, run, exchanges, cost FROM runs WHERE key = ?"
_BEGINNING, _SOUGHT = 1024, 2**20  # bytes after the first line that tell data apart; where they must lie
_MOST_AHEAD, _QUICK = 1024, 1.0  # exchanges, and the seconds below which more of them are written down at once
_JOINT = tuple(map(str, (Unit.BATCH, Unit.BATCH_SAMPLE, Unit.SAMPLE_OF_EACH)))


class Known(NamedTuple):
    """One run as the registry knows it; once for each of its data, where they were changed.

    Attributes:
        key: fingerprint of its noise key: what all copies of a directory share.
        data: a number that runs over the same data have in common.
        network: id of its network.
        learner: its number there.
        source: what it calls the data.
        directory: where its node lies or lay; empty for an export.
        exchanges: for how many of them the cost is.
        cost: at least what it has spent.
        budget: what its node.toml says that the data may cost in all; None where it says nothing.
        times: how often a record of the data may have come in this run, for which the cost is.
    """

    key: str
    data: int
    network: str
    learner: int
    source: str
    directory: str
    exchanges: int
    cost: Cost
    budget: Budget | None
    times: int = 1

    @property
    def there(self) -> bool:
        """Whether its directory is still where it was: the owner can change what its node.toml says."""
        return bool(self.directory) and (Path(self.directory) / "node.toml").exists()


def default_registry() -> Path:
    """Where the registry lies unless node.toml says otherwise.

    >>> default_registry().parts[-2:]
    ('gossamer', 'sources.db')
    """
    return state_directory() / "sources.db"


def registry_of(directory: Path, chosen: str) -> Path:
    """The registry of a node; refused where it would lie in the node's directory, of which there may be old copies.

    >>> registry_of(Path("/nodes/node-0"), "/volume/sources.db").as_posix()
    '/volume/sources.db'
    """
    path = directory / chosen if chosen else default_registry()
    if path.resolve().is_relative_to(directory.resolve()):
        hint = "other nodes must find it, and a copy of the directory would bring an old one along"
        raise ConfigurationError("registry", chosen or str(path), "a file outside of the node's directory", hint)
    return path


def counted(runs: Sequence[Known]) -> list[Cost]:
    """What adds up: the cost of every run, but once for all learners of a network whose guarantee covers them together.

    Where the unit is a common batch, or one sample of every learner, a learner's loss is about what all of them
    release.
    """
    alone: list[Cost] = []
    joint: dict[tuple[str, str], dict[int, list[Cost]]] = {}
    for run in runs:
        if any(unit in run.cost.unit for unit in _JOINT):
            joint.setdefault((run.network, run.cost.unit), {}).setdefault(run.learner, []).append(run.cost)
        else:
            alone.append(run.cost)
    return alone + [largest_of([sum_of(costs) for costs in learners.values()]) for learners in joint.values()]


def limits_of(own: Known, others: Sequence[Known]) -> list[Budget]:
    """What the data of a run may cost in all: what its owner says for this run, or else for others that are there."""
    return [own.budget] if own.budget else [one.budget for one in others if one.budget and one.there]


class Registry:
    """The runs of one owner, in a file that only the owner can read.

    Args:
        path: of the file; made where there is none, unless it is only read.
        read_only: whether nothing is written; then all is as of one moment.

    >>> import tempfile
    >>> from contextlib import closing
    >>> from gossamer.net import Identity
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "ledger.db"
    ...     Ledger.create(file, Identity("a1", 0, "b2", "meters", "c3"))
    ...     with closing(Registry(Path(folder) / "sources.db")) as registry, Ledger.open(file) as ledger:
    ...         registry.enter(ledger, Path(folder))
    ...         [(run.source, run.exchanges) for run in registry.over_same_data("c3")]
    [('meters', 0)]
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        with ExitStack() as stack, self._errors():
            if not read_only and not path.exists():
                _create(path)
            self._database = stack.enter_context(connect(path, read_only))
            if not read_only:
                os.chmod(path, 0o600)
            self._check()
            self._resources = stack.pop_all()

    def close(self) -> None:
        """Let go of the file."""
        self._resources.close()

    def enter(
        self,
        ledger: Ledger | Export,
        directory: Path | None = None,
        data: Path | None = None,
        *,
        budget: Budget | None = None,
        newest: bool = False,
        sealed: bool = False,
    ) -> None:
        """Enter a run, or what has changed about it.

        Args:
            ledger: of the run.
            directory: of its node; None for an export.
            data: the file or folder that it reads now; None where it reads none.
            budget: what the data may cost in all.
            newest: whether nothing later than this ledger can be; else what is known counts, where it is more.
            sealed: whether nothing may be kept of the data, so that copies of the file are not found.
        """
        identity, exchanges, cost = ledger.identity, ledger.last.exchange + 1, cost_of_one(ledger)
        lost = ledger.last.note == LOST  # all that it could spend
        path, begins = ("", "") if data is None else (str(data.resolve()), "" if sealed else beginning(data))
        with self._errors(), self._transaction():
            known = self._database.execute(_SPENT, (identity.key,)).fetchone()
            where = known[0] if known and directory is None else str(directory.resolve() if directory else "")
            more = known and not (newest or lost) and known[2] > exchanges
            spent = known[1:] if more else (cost.run, exchanges, _written(cost))
            limit = json.dumps(None if budget is None else asdict(budget))
            for source, times in Counter(ledger.sources).items():
                number = self._number(source, path if source == ledger.sources[-1] else "", begins)
                own = (identity.key, number, identity.network, identity.learner, source, times, where, *spent, limit)
                self._database.execute(f"INSERT OR REPLACE INTO runs VALUES ({', '.join('?' * 11)})", own)

    def _number(self, source: str, path: str, begins: str) -> int:
        """The number of the data of this name or in this place; all that turn out to be the same get one."""
        rows = self._database.execute("SELECT data FROM runs WHERE source = ?", (source,))
        same = {data for (data,) in rows} | self._reading(path, begins)
        number = min(same, default=1 + max((one.data for one in self._runs()), default=0))
        for other in same - {number}:
            self._database.execute("UPDATE runs SET data = ? WHERE data = ?", (number, other))
            self._database.execute("UPDATE OR REPLACE files SET data = ? WHERE data = ?", (number, other))
        if path:
            self._database.execute("INSERT OR IGNORE INTO files VALUES (?, ?, ?)", (number, path, begins))
        return number

    def over_same_data(self, key: str) -> list[Known]:
        """All runs over the data of one, itself included; none where it is not known."""
        with self._errors():
            runs = self._runs()
            data = {one.data for one in runs if one.key == key}
            return [one for one in runs if one.data in data]

    def runs(self) -> list[Known]:
        """All runs."""
        with self._errors():
            return self._runs()

    def reserve(self, key: str, cost: Cost, exchanges: int) -> bool:
        """Write down what a run is about to cost, for a record that came once, where `limits_of` cover that."""
        with self._errors(), self._transaction():
            runs = self._runs()
            own = [one for one in runs if one.key == key]
            if not own:
                raise PrivacyError(f"registry: {self.path} has lost a run that reads it. Start its node again.")
            for one in own:
                others = [other for other in runs if other.data == one.data and other.key != key]
                costs = counted([*others, one._replace(cost=several_times(cost, one.times))])
                if not all(within(costs, budget) for budget in limits_of(one, others)):
                    return False
            spent = (_written(cost), exchanges, key)
            self._database.execute("UPDATE runs SET cost = ?, exchanges = ? WHERE key = ?", spent)
            return True

    def _runs(self) -> list[Known]:
        found = []
        for row in self._database.execute(_RUNS):
            key, data, network, learner, source, times, directory, run, exchanges, cost, budget = row
            paid = several_times(_read(cost, source, run, learner), times)
            own = (key, data, network, learner, source, directory, exchanges, paid, _budget(budget), times)
            found.append(Known(*own))
        return found

    def _reading(self, path: str, begins: str) -> set[int]:
        """The data that lie in this file or folder, or begin as it does."""
        rows = self._database.execute("SELECT data, path, beginning FROM files").fetchall() if path else []
        return {data for data, known, start in rows if (begins and start == begins) or _same_place(path, known)}

    def _check(self) -> None:
        ours, version = (self._database.execute(f"PRAGMA {one}").fetchone()[0] for one in _PRAGMAS)
        if (ours, version) != (_APPLICATION, _VERSION):
            raise sqlite3.DatabaseError("it is no registry of this version of Gossamer")
        found = self._database.execute("PRAGMA quick_check").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError("its pages are damaged")
        self._runs()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = error if isinstance(error, sqlite3.Error | OSError) else "a run in it cannot be read"
            raise PrivacyError(
                f"registry: {self.path} cannot be read or written ({why}). It adds up what all runs over the same data "
                f"cost, so nothing is sent without it. Bring it back; or move it away and start every node once with "
                f"--adopt, and name exports of runs whose directories are gone in `earlier`."
            ) from None


_PRAGMAS = ("application_id", "user_version")


class DataAccount:
    """What the data of one run may cost; an `Account` of its node.

    Args:
        registry: where all runs over the data are.
        key: of the run, as of `Known`.
    """

    def __init__(self, registry: Registry, key: str) -> None:
        self._registry, self._key = registry, key
        self._through, self._ahead, self._written = 0, 1, -_QUICK

    def covers(self, cost: Callable[[int], Cost], exchanges: int) -> bool:
        """Whether so many exchanges are covered; then they stand in the registry, perhaps with some that follow."""
        if exchanges <= self._through:
            return True
        now = time.monotonic()
        self._ahead = min(2 * self._ahead, _MOST_AHEAD) if now - self._written < _QUICK else 1
        if self._ahead > 1:
            with suppress(PrivacyError, ConfigurationError):  # beyond the horizon, perhaps
                if self._reserved(cost, exchanges + self._ahead - 1, now):
                    return True
        self._ahead = 1
        return self._reserved(cost, exchanges, now)

    def _reserved(self, cost: Callable[[int], Cost], through: int, now: float) -> bool:
        if not self._registry.reserve(self._key, cost(through), through):
            return False
        self._through, self._written = through, now
        return True

    def require(self, cost: Callable[[int], Cost], exchanges: int) -> None:
        """Refuse a run that may not even begin, or not with its new data, with what it and others cost."""
        if self.covers(cost, exchanges):
            return
        known = self._registry.over_same_data(self._key)
        own = [one._replace(cost=several_times(cost(exchanges), one.times)) for one in known if one.key == self._key]
        alike = [[mine, *(one for one in known if one.data == mine.data and one.key != self._key)] for mine in own]
        asked, *known = max(alike, key=lambda runs: added_up(counted(runs))[0])
        others, limits = counted(known), {str(limit) for limit in limits_of(asked, known)}
        spent, first = (rounded_up(added_up(costs)[0]) for costs in (others, [asked.cost]))
        units = units_of([*others, asked.cost])
        what = "the first exchange of this one costs" if exchanges == 1 else "this one costs, with its next exchange,"
        raise PrivacyError(
            f"budget: these data may cost {' and '.join(sorted(limits))} in all, as [budget] in node.toml says. Other "
            f"runs over them ({len(known)}) have cost epsilon {spent}; {what} epsilon {first}. "
            + (f"They do not protect the same: {'; '.join(units)}; so nothing adds up. " if len(units) > 1 else "")
            + "`gossamer ledger total` lists all runs. Raise the budget, or take other data. Nothing was sent."
        )


def beginning(data: Path) -> str:
    """What a file begins with after its first line, as a digest; empty where that is too little to tell files apart."""
    try:
        with data.open("rb") as file:
            start = file.read(_SOUGHT).partition(b"\n")[2][:_BEGINNING]
    except OSError:
        return ""
    return hashlib.sha256(start).hexdigest() if len(start) == _BEGINNING else ""


def _same_place(one: str, other: str) -> bool:
    """Whether two paths lead to the same file now, or one lies in the other."""
    ours, theirs = Path(one), Path(other)
    if ours.is_relative_to(theirs) or theirs.is_relative_to(ours):
        return True
    try:
        return ours.samefile(theirs)
    except OSError:
        return False


def _create(path: Path) -> None:
    """An empty registry, whole or not at all; another process may be faster."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with connect(unfinished, read_only=False) as database:  # no log beside it: a home may be on a network's disk
            database.execute(f"PRAGMA application_id = {_APPLICATION}")
            database.execute(f"PRAGMA user_version = {_VERSION}")
            database.executescript(_SCHEMA)
        with suppress(FileExistsError):
            os.link(unfinished, path)
    finally:
        unfinished.unlink()
    sync_directory(path.parent)


def _written(cost: Cost) -> str:
    loss = None if cost.loss is None else cost.loss.to_json()
    return json.dumps({"loss": loss, "delta": cost.delta, "error": cost.error, "unit": cost.unit})


def _read(text: str, source: str, run: str, learner: int) -> Cost:
    facts = json.loads(text)
    loss = None if facts["loss"] is None else Loss.from_json(facts["loss"])
    return Cost(source, run, learner, loss, float(facts["delta"]), float(facts["error"]), str(facts["unit"]))


def _budget(text: str) -> Budget | None:
    facts = json.loads(text)
    return None if facts is None else Budget(**facts)
