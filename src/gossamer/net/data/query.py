"""Samples of a database: rows of a query, in the order of a column that only grows."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gossamer.data.schema import Schema
from gossamer.errors import ConfigurationError, DataError
from gossamer.net.data.reader import Faults, Reader, Tally
from gossamer.net.data.samples import Sample
from gossamer.net.data.sources import Mark, other_data, taken_before
from gossamer.problems import Problem

SCHEMES = ("sqlite:", "postgresql:")
"""How the name of a database begins."""

_SECONDS = 5  # that a database may take to answer


class Query:
    """Rows of a database, by the columns of a schema; each once, as a cursor column grows.

    The cursor must be a number or a text that is unique and only grows, such as an id that the database counts up: a
    row that comes with a smaller one than was read is never read, and one that is given a larger one is read again. A
    database that does not answer while the node runs has no rows now; the owner is told.

    Args:
        database: "sqlite:FILE", or "postgresql://USER@HOST/NAME" without a password: the client of PostgreSQL finds it
            in ~/.pgpass or in PGPASSWORD.
        rows: a SELECT.
        cursor: the column of it that grows.
        problem: whose samples they are.
        schema: of the records.
        faults: is told of rows that cannot be used.

    >>> import tempfile
    >>> from gossamer.data import Choice, Number
    >>> from gossamer.problems import Logistic
    >>> schema = Schema((Number("age", 0, 100),), Choice("ill", ("no", "yes")), intercept=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with sqlite3.connect(f"{folder}/clinic.db") as written:
    ...         _ = written.execute("CREATE TABLE visits (id INTEGER PRIMARY KEY, age REAL, ill TEXT)")
    ...         _ = written.execute("INSERT INTO visits (age, ill) VALUES (75, 'yes'), (50, 'no')")
    ...     written.close()
    ...     query = Query(f"sqlite:{folder}/clinic.db", "SELECT * FROM visits", "id", Logistic(1), schema)
    ...     query.take(1), query.mark["cursor"], query.take(5), query.take(5)
    ([(array([0.5], dtype=float32), 1)], 1, [(array([0.], dtype=float32), 0)], [])
    """

    def __init__(
        self,
        database: str,
        rows: str,
        cursor: str,
        problem: Problem,
        schema: Schema | None,
        *,
        faults: Faults | None = None,
    ) -> None:
        if schema is None:
            hint = "the agreement of this network has none: give .jsonl or .csv files with numbers only"
            raise ConfigurationError("data", "a database", "databases with a schema only", hint)
        require_no_password(database)
        self._database, self._select, self._cursor = database, rows.strip().rstrip(";"), cursor
        self._reader = Reader(problem, schema, faults=faults)
        self._connection: Any = None
        self._last: int | str | None = None
        self._digest = b""  # of the row that was read last
        self._answered = False

    @property
    def tally(self) -> Tally:
        """What the rows were like, for the owner."""
        return self._reader.tally

    @property
    def ended(self) -> bool:
        """Never: rows may come."""
        return False

    @property
    def mark(self) -> Mark:
        """The cursor and a digest of the row that was read last."""
        kept = self.tally.kept
        return {"query": self._cursor, "rows": kept[0], "cursor": self._last, "digest": self._digest, "tally": kept}

    def resume(self, mark: Mark) -> None:
        """Go on behind the cursor of the mark; refused where another row stands there now."""
        if not taken_before(mark):
            return
        if mark.get("query") != self._cursor:
            raise other_data("database")
        found = self._asked("=", mark["cursor"], 1)
        if found and _digest(found[0], self._columns) != mark["digest"]:
            raise other_data("database")
        self._last, self._digest = mark["cursor"], mark["digest"]
        self.tally.restore(mark["tally"])

    def take(self, most: int, whole: int = 1) -> list[Sample | None]:
        """The samples of the next rows, at most so many."""
        try:
            found = self._asked(">", self._last, most + 1)
        except _SilentError as silent:
            if not self._answered:  # nothing was ever read: whoever wrote the settings is there to read this
                raise DataError(f"database: {silent}") from None
            self._reader.tell(f"database: {silent}")
            return []
        cursors = [self._cursor_of(row) for row in found]
        if len(set(cursors)) < len(cursors):
            raise DataError(f"database: two rows have the same {self._cursor!r}; the cursor must be unique")
        kept = found[:most][: min(most, len(found)) // whole * whole]
        if kept:
            self._last, self._digest = cursors[len(kept) - 1], _digest(kept[-1], self._columns)
        first = self.tally.rows
        return [
            self._reader.read(self._reader.of_record, row, f"row {first + place}") for place, row in enumerate(kept)
        ]

    def close(self) -> None:
        """Let go of the database; the next question opens it again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    @property
    def _columns(self) -> list[str]:
        assert self._reader.schema is not None
        return [*self._reader.schema.columns, self._cursor]

    def _cursor_of(self, row: Mapping[str, Any]) -> int | str:
        value = row[self._cursor]
        if isinstance(value, bool) or not isinstance(value, int | str):
            hint = "cast it in the query, such as CAST(arrived AS TEXT)"
            raise DataError(f"database: the cursor {self._cursor!r} must hold whole numbers or texts; {hint}")
        return value

    def _asked(self, relation: str, cursor: int | str | None, most: int) -> list[dict[str, Any]]:
        """Rows whose cursor has this relation to the given one, in its order."""
        name = '"' + self._cursor.replace('"', '""') + '"'
        mark = "%s" if self._is_postgresql else "?"
        select = self._select.replace("%", "%%") if self._is_postgresql else self._select
        where = "" if cursor is None else f" WHERE {name} {relation} {mark}"
        text = f"SELECT * FROM ({select}) AS asked{where} ORDER BY {name} LIMIT {int(most)}"
        try:
            if self._connection is None:
                self._connection = _connected(self._database)
            asked = self._connection.cursor()
            asked.execute(text, () if cursor is None else (cursor,))
            names, rows = [column[0] for column in asked.description], asked.fetchall()
            self._connection.rollback()  # lets go of what was locked
        except DataError:
            raise
        except Exception as error:  # DB-API: each driver has its own; their texts may hold values and hosts
            self._connection = None
            raise _SilentError(f"it does not answer, or not to this query ({type(error).__name__})") from None
        self._require_columns(names)
        self._answered = True
        return [dict(zip(names, row, strict=True)) for row in rows]

    @property
    def _is_postgresql(self) -> bool:
        return self._database.startswith("postgresql:")

    def _require_columns(self, names: Sequence[str]) -> None:
        self._reader.require_columns("database", names)
        if self._cursor not in names:
            raise DataError(f"database: the query has no column {self._cursor!r}, which is the cursor")


class _SilentError(DataError):
    """The database does not answer."""


def is_database(data: str) -> bool:
    """Whether the name of data is that of a database.

    >>> is_database("sqlite:clinic.db"), is_database("clinic.csv")
    (True, False)
    """
    return data.startswith(SCHEMES)


def file_of(data: str) -> tuple[str, str]:
    """What stands before the name of a file in the name of data, and that name; empty where there is no file.

    >>> file_of("sqlite:clinic.db"), file_of("clinic.csv"), file_of("postgresql://ward@db/clinic")
    (('sqlite:', 'clinic.db'), ('', 'clinic.csv'), ('postgresql://ward@db/clinic', ''))
    """
    if data.startswith("postgresql:"):
        return data, ""
    kind = "sqlite:" if data.startswith("sqlite:") else ""
    return kind, data.removeprefix(kind)


def require_no_password(database: str) -> None:
    """Refuse the name of a database with a password: settings, histories of shells and lists of processes show it.

    >>> require_no_password("postgresql://ward@db/clinic")
    """
    try:
        parts = urlsplit(database)
        hidden = parts.password is not None or "password" in parts.query.lower()
    except ValueError:
        hidden = True
    if database.startswith("postgresql:") and hidden:
        hint = "write it into ~/.pgpass of the node's user, or set PGPASSWORD"
        raise ConfigurationError("data", "a database with a password", "postgresql://USER@HOST/NAME", hint)


def _digest(row: Mapping[str, Any], columns: Sequence[str]) -> bytes:
    return hashlib.sha256(repr([str(row[name]) for name in columns]).encode()).digest()


def _connected(database: str) -> Any:
    scheme, _, rest = database.partition(":")
    if scheme == "sqlite":
        path = Path(rest)
        if not path.is_file():
            raise _SilentError("no such file")
        uri = f"{path.absolute().as_uri()}?mode=ro"
        return sqlite3.connect(uri, uri=True, timeout=_SECONDS, check_same_thread=False)
    try:
        import psycopg
    except ImportError:
        raise DataError("PostgreSQL needs psycopg: pip install 'gossamer[postgresql]'") from None
    limits = f"-c statement_timeout={_SECONDS * 1000} -c default_transaction_read_only=on"
    return psycopg.connect(database, connect_timeout=_SECONDS, options=limits)
