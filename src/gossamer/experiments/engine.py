"""Runs the cells of a study: plans them, runs together what differs in numbers only, stores, and goes on."""

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
import numpy as np

from gossamer.errors import ConfigurationError
from gossamer.experiments.cells import Cell, Entry, Measured, Metric, Played, Result, Tuned, named
from gossamer.experiments.store import PATIENCE, Store, Values
from gossamer.experiments.tuning import search
from gossamer.simulation import Run, simulate, simulate_many

Plain = Cell | Measured
Key = TypeVar("Key", bound=Hashable)
Found = Mapping[Any, Result]
"""Results by the keys that a study gives its cells; those that need an accelerator may be missing."""

_TOGETHER = 64  # cells in one program
_LOSS = 60.0  # seconds of work that an interruption may lose, about
_FIRST = 5e7  # of `Cell.size` that runs together, or without a checkpoint, before the speed is known
_DIGITS = 8


class MissingError(Exception):
    """Cells that must be computed before it can go on."""

    def __init__(self, cells: Iterable[Plain], more: int = 0) -> None:
        super().__init__()
        self.cells, self.more = list(cells), more  # at least so many more cells after these


class UnavailableError(Exception):
    """A cell that cannot be computed here."""


@dataclass
class Speed:
    """Seconds that so much took."""

    seconds: float = 0.0
    size: float = 0.0


@dataclass(eq=False)
class Engine:
    """Computes cells, or reads them where they are there already.

    Attributes:
        store: of the cells.
        say: told how far it is, before each program.

    >>> engine = Engine()
    >>> two = {name: Measured("sum", {"a": 1}, lambda: {"sum": 2}) for name in ("sum", "the same")}
    >>> engine.find(two)["the same"]["sum"], engine.computed
    (array(2.), 1)
    """

    store: Store = field(default_factory=Store)
    say: Callable[[str], None] | None = None
    used: dict[str, Plain] = field(default_factory=dict)
    computed: int = 0
    _speeds: dict[str, Speed] = field(default_factory=lambda: defaultdict(Speed))
    _keys: dict[Plain, str] = field(default_factory=dict)
    _measured: dict[str, str] = field(default_factory=dict)

    def find(self, entries: Mapping[Key, Entry]) -> dict[Key, Result]:
        """The results of all cells; whatever cannot be built is refused before anything runs."""
        while True:
            found: dict[Key, Result] = {}
            missing: dict[str, Plain] = {}
            open_ends = 0
            for key, entry in entries.items():
                try:
                    found[key] = self._resolve(entry)
                except MissingError as error:
                    missing |= {self.key(cell): cell for cell in error.cells}
                    open_ends += error.more
                except UnavailableError:
                    continue
            if not missing:
                return found
            self._compute(missing, open_ends)

    def key(self, cell: Plain) -> str:
        """What a cell is stored by; an error names the cell."""
        if cell not in self._keys:
            key = self._keys[cell] = named(cell.name, lambda: self.store.key(cell.setting))
            other = self._measured.setdefault(key, cell.name) if isinstance(cell, Measured) else cell.name
            if other != cell.name:
                hint = "say in the setting what tells them apart"
                raise ConfigurationError(
                    f"{cell.name}: setting", cell.setting, f"another one than that of {other}", hint
                )
        return self._keys[cell]

    def _resolve(self, entry: Entry) -> Result:
        """The result of a cell; `MissingError` says what it needs first."""
        if isinstance(entry, Tuned):
            try:
                chosen = self._choose(entry)
            except MissingError as error:
                raise MissingError(error.cells, more=1) from None
            found = self._resolve(entry.cell("final", chosen))
            return Result(found.cell, found.values, {**chosen, **found.setting})
        key = self.key(entry)
        values = self.store.read(key)
        if values is None:
            if entry.accelerator and jax.default_backend() == "cpu":
                raise UnavailableError
            raise MissingError([entry])
        self.used.setdefault(key, entry)
        return Result(entry, values)

    def _choose(self, tuned: Tuned) -> dict[str, Any]:
        """The best setting of the grid, from the trials that are there."""
        if tuned.start is None:
            trials = [tuned.cell("trial", setting) for setting in tuned.settings]
            missing, losses = [], []
            for trial in trials:
                try:
                    losses.append(tuned.loss(self._resolve(trial)))
                except MissingError as error:
                    missing += error.cells
            if missing:
                raise MissingError(missing)
            return tuned.settings[int(np.argmin(losses))]
        start = self._choose(tuned.start) if isinstance(tuned.start, Tuned) else tuned.start

        def loss(*values: Any) -> float:
            setting = dict(zip(tuned.grid, values, strict=True))
            return tuned.loss(self._resolve(tuned.cell("trial", setting)))

        return dict(
            zip(tuned.grid, search(loss, list(tuned.grid.values()), [start[name] for name in tuned.grid]), strict=True)
        )

    def _compute(self, missing: Mapping[str, Plain], open_ends: int) -> None:
        """Compute cells that nobody else computes, and wait for those that somebody does."""
        waiting = dict(missing)
        while waiting:
            ours = self._claimed(waiting)
            if not ours:
                time.sleep(PATIENCE)
                continue
            self._tell(len(missing), waiting, ours, open_ends)
            try:
                self._run({key: waiting[key] for key in ours})
            finally:
                for key in ours:
                    self.store.drop(key)
            for key in ours:
                del waiting[key]

    def _claimed(self, waiting: dict[str, Plain]) -> list[str]:
        """Cells that run together, as many as take about a minute; those that are there meanwhile wait no longer."""
        ours: list[str] = []
        for key, cell in list(waiting.items()):
            if self.store.read(key) is not None:
                del waiting[key]
            elif (not ours or self._fits([waiting[each] for each in ours], cell)) and self.store.claim(key):
                if self.store.read(key) is None:
                    ours.append(key)
                else:  # somebody finished it in between
                    self.store.drop(key)
        return ours

    def _fits(self, batch: list[Plain], cell: Plain) -> bool:
        """Whether a cell may join others: it differs from them in numbers only, and they are not too many."""
        first = batch[0]
        if not isinstance(first, Cell) or not isinstance(cell, Cell) or first.likeness != cell.likeness:
            return False
        size = sum(map(_size, batch)) + cell.size
        return len(batch) < _TOGETHER and size <= self._much

    @property
    def _much(self) -> float:
        """How much an interruption may lose."""
        speed = self._speeds["together"]
        return _LOSS * speed.size / speed.seconds if speed.size else _FIRST

    def _run(self, batch: dict[str, Plain]) -> None:
        """Compute cells that run together, and store each."""
        first, begun = next(iter(batch.values())), time.perf_counter()
        others = f" (and {len(batch) - 1} like it)" if len(batch) > 1 else ""
        if isinstance(first, Measured):
            found: list[Values] = [_plain(named(first.name, first.compute))]
        else:
            cells = [cell for cell in batch.values() if isinstance(cell, Cell)]
            found = named(f"{first.name}{others}", lambda: self._simulate(cells))
        spent, speed = time.perf_counter() - begun, self._speeds[_sort(first)]
        speed.seconds += spent
        speed.size += sum(map(_size, batch.values()))
        for (key, cell), values in zip(batch.items(), found, strict=True):
            self.store.write(key, cell.name, cell.setting, values | {"seconds": round(spent / len(batch), 3)})
            self.computed += 1

    def _simulate(self, cells: list[Cell]) -> list[Values]:
        """The values of cells that differ in numbers only, stream by stream."""
        first, parts = cells[0], []
        for seed, seeds in first.repeats:
            stream = first.stream(seed)
            runs = self._runs(cells, stream, list(seeds))
            plays = [Played(run, cell.made, stream, cell.test) for run, cell in zip(runs, cells, strict=True)]
            parts.append([_measured(cell.metrics, played) for played, cell in zip(plays, cells, strict=True)])
        return [_joined([part[place] for part in parts]) for place in range(len(cells))]

    def _runs(self, cells: list[Cell], stream: Any, seeds: list[int]) -> list[Run]:
        first = cells[0]
        options: dict[str, Any] = {"measure": first.measure, "every": first.rows, "record": first.record}
        options |= {"test": first.test, "seeds": seeds, "progress": False}
        if len(cells) > 1:
            return simulate_many([cell.made for cell in cells], stream, first.steps, **options)
        long = first.size > self._much and len(first.repeats) == 1 and not first.alone
        part = self.store.beside(self.key(first)) if long else None
        run = simulate(first.made, stream, first.steps, checkpoint=part, **options)
        if part is not None:
            part.unlink(missing_ok=True)
        return [run]

    def _tell(self, asked: int, waiting: Mapping[str, Plain], ours: Sequence[str], open_ends: int) -> None:
        """How far it is, and how long the rest takes at the speed so far."""
        if self.say is None:
            return
        done = len(self.used) + asked - len(waiting)
        total = len(self.used) + asked + open_ends
        others = f" and {len(ours) - 1} more" if len(ours) > 1 else ""
        count = f"{done} of {'at least ' * bool(open_ends)}{total}"
        self.say(f"{count}{self._left(waiting.values())}: {waiting[ours[0]].name}{others}")

    def _left(self, cells: Iterable[Plain]) -> str:
        seconds = 0.0
        for cell in cells:
            speed = self._speeds[_sort(cell)]
            if not speed.size:
                return ""
            seconds += speed.seconds / speed.size * _size(cell)
        return f", about {seconds / 60:.0f} minutes left" if seconds >= 90 else ", about a minute left"


def _sort(cell: Plain) -> str:
    """Cells whose speeds are alike."""
    return "measured" if isinstance(cell, Measured) else "alone" if cell.alone else "together"


def _size(cell: Plain) -> float:
    """How much is to be done, among cells of its sort."""
    return cell.size if isinstance(cell, Cell) else 1.0


def _measured(metrics: Sequence[Metric], played: Played) -> Values:
    """All metrics of a run, axes (seed, ...), with the points of curves."""
    values: Values = {}
    for metric in metrics:
        values[metric.word] = metric.of(played)
        if metric.at is not None:
            values[f"{metric.word}, at"] = metric.at(played)
    return values | {"messages": played.run.messages, "bytes": played.run.bytes}


def _joined(parts: Sequence[Values]) -> Values:
    """The values of all streams; what is the same for all of them once."""
    same = {"messages", "bytes"} | {word for word in parts[0] if word.endswith(", at")}
    return {word: _plain(parts[0][word] if word in same else [part[word] for part in parts]) for word in parts[0]}


def _plain(value: Any) -> Any:
    """As JSON has it: numbers in eight digits; what is none is None, and what is not finite a word."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _plain(np.asarray(value).tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inside) for inside in value]
    if isinstance(value, float):
        if not np.isfinite(value):
            return None if np.isnan(value) else str(value)
        return float(f"{value:.{_DIGITS}g}")
    return value
