"""A node's own data: what its settings name, what they are like, and how they are put right."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gossamer.data.schema import Schema
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.files import private_file
from gossamer.net.data.folder import Folder
from gossamer.net.data.followed_file import SUFFIXES, FollowedFile
from gossamer.net.data.query import Query, file_of, is_database
from gossamer.net.data.reader import Faults
from gossamer.net.data.sources import Mark, Source, StandardInput, from_iterable, taken_before
from gossamer.net.data.survey import Survey, survey
from gossamer.net.directory import NodeDirectory
from gossamer.net.ledgers import enter_own, last_mark
from gossamer.net.node.checkpoint import Checkpoint
from gossamer.net.registry import Registry, registry_of
from gossamer.net.settings import Settings, query_table
from gossamer.net.store.ledger import Ledger
from gossamer.net.store.vault import Sealer
from gossamer.net.web.rows import both
from gossamer.problems import Problem

_LONGEST_LOG = 2**20


def source_of(
    directory: Path,
    settings: Settings,
    problem: Problem,
    schema: Schema | None,
    data: str | Iterable[Any] | None = None,
    *,
    new_data: bool = False,
    told: Faults | None = None,
) -> Source:
    """The samples of a node; what cannot be used is told to the owner alone.

    Args:
        directory: of the node; names of files are seen from there.
        settings: what its node.toml says.
        problem: whose samples they are.
        schema: of the records; None where samples come as numbers.
        data: other data than the settings name; or an iterable.
        new_data: nothing on standard input was used before a restart.
        told: of every sample that cannot be used too.
    """
    written, named = _Faults(directory / "rejected.log"), settings.data if data is None else data
    faults: Faults = written if told is None else both(written, told)
    if not isinstance(named, str):
        return from_iterable(named, problem, schema=schema, faults=faults)
    if named == "-":
        return StandardInput(problem, schema=schema, label=settings.label, new_data=new_data, faults=faults)
    return _stored(directory, replace(settings, data=named) if data else settings, problem, schema, faults)


def _stored(
    directory: Path,
    settings: Settings,
    problem: Problem,
    schema: Schema | None,
    faults: Faults | None = None,
    *,
    whole: bool = False,
) -> FollowedFile | Folder | Query:
    """Samples that can be read again; `whole`: the files of a folder count as whole."""
    data, label = settings.data, settings.label
    if is_database(data):
        assert settings.query is not None
        kind, file = file_of(data)
        data = f"{kind}{directory / file}" if file else data
        return Query(data, settings.query["rows"], settings.query["cursor"], problem, schema, faults=faults)
    path = directory / data
    if path.is_dir():
        waiting = {"settled": 0.0} if whole else {}
        return Folder(path, problem, schema=schema, label=label, faults=faults, **waiting)
    if path.suffix.lower() not in SUFFIXES:
        allowed = f"a name that ends in {', '.join(SUFFIXES)}, a folder that is there, or a database"
        raise ConfigurationError("data", data, allowed, "save a spreadsheet as CSV in UTF-8")
    return FollowedFile(path, problem, schema=schema, label=label, rotated=settings.rotated, faults=faults)


@dataclass(frozen=True)
class _Faults:
    """Which samples could not be used and why, in a file of the owner's: it says something about the data."""

    path: Path

    def __call__(self, fault: str) -> None:
        if not self.path.exists():
            self.path.touch(0o600)
        if self.path.stat().st_size > _LONGEST_LOG:
            return
        with self.path.open("a", encoding="utf-8") as opened:
            opened.write(fault + "\n")


def check_data(
    directory: NodeDirectory, settings: Settings, problem: Problem, schema: Schema | None, mark: Mark
) -> Survey | None:
    """What the data of a node are like that it has not used; nothing is used by it. None: they can be read only once.

    Args:
        directory: of the node.
        settings: what its node.toml says.
        problem: whose samples they are.
        schema: of the records; None where samples come as numbers.
        mark: where the node is in them; empty for their beginning.
    """
    if settings.data == "-":
        return None
    source = _stored(directory.path, settings, problem, schema, whole=True)
    with ExitStack() as stack:
        if isinstance(source, Query):
            stack.callback(source.close)
        source.resume(mark)
        return survey(settings.data, source, schema)


def require_sound(
    directory: NodeDirectory, settings: Settings, found: Survey | None, tell: Callable[[Survey], None] | None = None
) -> None:
    """Have the owner know what the data are like, and refuse those that cannot be used.

    Args:
        directory: of the node, which gets a file that only its owner can read.
        settings: what its node.toml says, with what the owner allows.
        found: what the data are like; None where nobody can know.
        tell: is given it too, for the owner's terminal.
    """
    if found is not None:
        file = found.write(directory.path)
        if tell is not None:
            tell(found)
        found.require_sound(settings.allow, file)


def mark_of(directory: Path, settings: Settings, ledger: Ledger, sealer: Sealer | None = None) -> Mark:
    """Where a node is in its data, or where an earlier run was; empty at their beginning, and where nobody knows.

    Args:
        directory: of the node.
        settings: what its node.toml says.
        ledger: of the node, open.
        sealer: of its state.
    """
    if ledger.data_changed or ledger.locked:
        return {}
    state = ledger.state()
    if state is None:
        return last_mark(directory / settings.continues, sealer) if settings.continues else {}
    return Checkpoint.from_bytes(state).mark


def change_data(
    directory: NodeDirectory,
    settings: Settings,
    ledger: Ledger,
    data: str,
    *,
    query: Mapping[str, str] | None = None,
    source: str | None = None,
    again: bool = False,
) -> bool:
    """Have a node read other data from now on; whether something was used before, so that the ledger has it now.

    Where no sample was used, the settings change and nothing else. Afterwards the owner has to know one thing that
    nobody else can: whether a record of the data before may be among the new ones.

    Args:
        directory: of the node, which must not run.
        settings: what its node.toml says.
        ledger: of the node, open.
        data: the new ones, as node.toml names them; they have been checked.
        query: of a database.
        source: what the ledger calls them, if no record of the data before is among them.
        again: records of the data before may be among them: each of these costs once more.
    """
    if settings.continues and ledger.last.exchange < 0:
        raise PrivacyError(
            f"data: this run goes on where {settings.continues} has stopped reading, and has released nothing. Start "
            "it with those data first; then change them. Nothing was changed."
        )
    begun = ledger.last.exchange >= 0 and not ledger.data_changed
    used = begun and (ledger.locked or taken_before(mark_of(directory.path, settings, ledger)) > 0)
    if ledger.ended:
        raise PrivacyError("data: this run has ended, and reads no data any more. Make a new network for new data.")
    if used and again == (source is not None):
        raise PrivacyError(
            "data: samples were used already, and one that is used twice costs twice. Say --again if records that were "
            "in the data before may be among the new ones, or --source NAME if none is. Nothing was changed."
        )
    if used and source in ledger.sources:
        hint = "say --again for data of which records were used"
        raise ConfigurationError("--source", source, f"another name than {', '.join(ledger.sources)}", hint)
    if not used and (again or source is not None):
        hint = "no sample was used: give --data alone"
        raise ConfigurationError("--source or --again", source or "--again", "neither", hint)
    called = source or settings.source
    with closing(Registry(registry_of(directory.path, settings.registry))) as registry:
        enter_own(registry, ledger, directory.path, settings, given=True)  # refused where it has lost this run
        _rewrite(directory.path / "node.toml", {"data": data, "source": called}, query)
        if used:
            ledger.change_data(called)
        enter_own(registry, ledger, directory.path, replace(settings, data=data, source=called, query=query))
    return used


def _rewrite(file: Path, values: dict[str, str], query: Mapping[str, str] | None) -> None:
    """Put other values into settings, and leave the rest, comments too, as it is."""
    text = re.sub(r"(?m)^\[query\]\n(?:(?!\[).*\n?)*", "", file.read_text(encoding="utf-8"))
    for name, value in values.items():
        line = f"{name} = {json.dumps(value, ensure_ascii=False)}"
        text, found = re.subn(rf"(?m)^{name} = .*$", line.replace("\\", r"\\"), text, count=1)
        text = text if found else f"{line}\n{text}"
    if query is not None:
        text = f"{text.rstrip()}\n\n{query_table(query)}"
    with private_file(file) as opened:
        opened.write(text.encode())
