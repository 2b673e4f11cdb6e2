"""What a study computes: runs of an algorithm, pure functions of a setting, and both with a setting that is chosen."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, DataError, GossamerError
from gossamer.experiments.claims import Estimate
from gossamer.experiments.drawing import Curve
from gossamer.privacy import Guarantee
from gossamer.problems import Block
from gossamer.simulation import Run
from gossamer.simulation.program import Measure
from gossamer.spec import canonical, plain
from gossamer.streams import Stream

Doubles = NDArray[np.float64]
Setting: TypeAlias = Mapping[str, Any]
_ROWS = 4096  # samples that are hashed at once


class Played(NamedTuple):
    """What a metric is a function of: a run of several seeds, what ran, on what, and the samples held out."""

    run: Run
    algorithm: Algorithm
    stream: Stream
    test: Block | None = None


class Metric(NamedTuple):
    """A number, or a curve, of every seed of a run.

    Attributes:
        word: its name, which says all that it depends on besides the run: cells are stored by it.
        of: the values, axes (seed, ...).
        at: of a curve, the points of its first axis after the seed.
        record: what `simulate` must record for it.

    >>> Metric("messages", lambda played: np.full(len(played.run.losses), played.run.messages)).record
    ()
    """

    word: str
    of: Callable[[Played], Any]
    at: Callable[[Played], Any] | None = None
    record: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Cell:
    """Runs of one algorithm: by noise seed, on one stream or on several.

    Attributes:
        name: for people; errors and progress show it.
        algorithm: makes it.
        stream: makes a stream from a seed of the data; give all cells the same function, kept by `functools.cache`.
        steps: samples per learner.
        metrics: what is kept of the runs.
        seeds: of the noise.
        data: seeds of the streams: every noise seed runs on each of them. None: every noise seed has a stream of its
            own, made from that seed.
        measure: as for `simulate`; so are the two below.
        every: exchanges per row of a run; None: what gives about `points` rows.
        test: samples held out.
        points: of a curve.
        accelerator: only run where there is one; elsewhere it is left out, unless it is in the store.
        alone: never in one program with others, and never with a checkpoint: for states that fill the memory.

    >>> from gossamer import algorithms, problems, streams, topology
    >>> from gossamer.experiments import measures
    >>> def make(): return algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
    >>> cell = Cell("d_ogd", make, lambda seed: streams.random_signs(4, 3, seed=seed), 100, [measures.final_loss()])
    >>> cell.setting["steps"], cell.setting["metrics"]
    (100, ['final loss'])
    """

    name: str
    algorithm: Callable[[], Algorithm]
    stream: Callable[[int], Stream]
    steps: int
    metrics: Sequence[Metric]
    seeds: Sequence[int] = (0,)
    data: Sequence[int] | None = (0,)
    measure: Measure = "global"
    every: int | None = None
    test: Block | None = None
    points: int = 60
    accelerator: bool = False
    alone: bool = False

    @cached_property
    def made(self) -> Algorithm:
        """The algorithm; an error names the cell."""
        made: Algorithm = named(self.name, self.algorithm)
        return made

    @property
    def repeats(self) -> list[tuple[int, tuple[int, ...]]]:
        """Seeds of the data, each with the noise seeds that run on its stream."""
        if self.data is None:
            return [(seed, (seed,)) for seed in self.seeds]
        return [(seed, tuple(self.seeds)) for seed in self.data]

    @property
    def record(self) -> tuple[str, ...]:
        """What the metrics need recorded."""
        return tuple(dict.fromkeys(name for metric in self.metrics for name in metric.record))

    @cached_property
    def rows(self) -> int:
        """Exchanges per row."""
        return self.every or max(1, self.made.schedule.exchanges(self.steps) // self.points)

    @property
    def size(self) -> float:
        """How much is to be done: samples of all learners in all runs, times the number of parameters."""
        runs = sum(len(seeds) for _, seeds in self.repeats)
        return float(self.steps) * runs * self.made.learners * self.made.problem.dim

    @cached_property
    def setting(self) -> Setting:
        """All that the result depends on, as plain values."""

        def streams() -> list[str]:
            return [fingerprint(self.stream(seed), self.steps) for seed, _ in self.repeats]

        return {
            "algorithm": named(self.name, self.made.spec),
            "streams": named(self.name, streams),
            "seeds": [list(seeds) for _, seeds in self.repeats],
            "steps": self.steps,
            "metrics": [metric.word for metric in self.metrics],
            "measure": self.measure,
            "every": self.rows,
            "test": None if self.test is None else _digest(self.test),
        }

    @cached_property
    def likeness(self) -> str:
        """Equal where cells may run in one program: they differ in the numbers of the algorithm at most."""
        if self.alone:
            return canonical(self.setting)
        told = dict(self.setting)
        spec = told.pop("algorithm")
        form = {"options": _blank(spec["algorithm"]), "mixing": spec["resolved"]["mixing"]}
        form |= {"problem": spec["problem"], "topology": spec["topology"], "schedule": spec["resolved"]["schedule"]}
        return canonical([told, form])


@dataclass(frozen=True, eq=False)
class Measured:
    """What is not a simulation: any function without arguments of what its setting says.

    Attributes:
        name: for people.
        setting: all that the result depends on, as plain values; say "revision": 2 where the function has changed.
        compute: gives plain values by name.

    >>> Measured("sum", {"a": 1, "b": 2}, lambda: {"sum": 3}).compute()
    {'sum': 3}
    """

    name: str
    setting: Setting
    compute: Callable[[], Mapping[str, Any]]
    accelerator: bool = False


@dataclass(frozen=True, eq=False)
class Tuned:
    """A cell with the best setting of a grid, chosen on cells of its own: other seeds than the final ones.

    Attributes:
        name: for people.
        grid: values to choose from, by option.
        trial: the cell that a setting is judged by; called with the options of the grid by name.
        final: the cell with the chosen setting, likewise.
        by: the metric whose mean is least where the setting is best, or a function of a result.
        start: where coordinate descent begins, by option, or what was tuned before: its optimum. None: all of the grid
            is run.

    >>> Tuned("clip", {"clip": (0.1, 1.0), "step": (0.1,)}, trial=print, final=print, by="final loss").settings
    [{'clip': 0.1, 'step': 0.1}, {'clip': 1.0, 'step': 0.1}]
    """

    name: str
    grid: Mapping[str, Sequence[Any]]
    trial: Callable[..., Entry]
    final: Callable[..., Entry]
    by: str | Callable[[Result], float]
    start: Setting | Tuned | None = None
    _cells: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def settings(self) -> list[dict[str, Any]]:
        """All points of the grid."""
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]

    def cell(self, kind: str, setting: Setting) -> Entry:
        """The trial, or the final cell, of a setting; made once."""
        key = f"{kind} {canonical(plain(setting))}"
        if key not in self._cells:
            make = self.trial if kind == "trial" else self.final
            self._cells[key] = named(f"{self.name}, {told(setting)}", lambda: make(**setting))
        made: Entry = self._cells[key]
        return made

    def loss(self, result: Result) -> float:
        """What a setting is judged by; what is not a number is the worst."""
        found = self.by(result) if callable(self.by) else result.estimate(self.by).mean
        return found if np.isfinite(found) else float("inf")


Entry: TypeAlias = "Cell | Measured | Tuned"


@dataclass(frozen=True, eq=False)
class Result:
    """The values of a cell.

    Attributes:
        cell: what was computed.
        values: by metric; of a `Measured` what it gave.
        setting: what was chosen, where it was tuned.

    >>> result = Result(Measured("sum", {}, dict), {"sum": [1, 2]})
    >>> result["sum"]
    array([1., 2.])
    """

    cell: Cell | Measured
    values: Mapping[str, Any]
    setting: Setting = field(default_factory=dict)

    def __getitem__(self, word: str) -> Doubles:
        """A metric as an array, axes (stream, seed, ...)."""
        if word not in self.values:
            shown = ", ".join(repr(name) for name in self.values if " at" not in name)
            raise ConfigurationError("metric", word, f"one of {shown}", f"{self.cell.name} has no other")
        return np.array(self.values[word], np.float64)

    def at(self, word: str) -> list[float]:
        """The points of a curve."""
        found: list[float] = self.values[f"{word}, at"]
        return found

    def repeated(self, word: str) -> Doubles:
        """By repetition: by stream, as means over the noise seeds; of one stream by seed."""
        values = self[word]
        found: Doubles = values[0] if len(values) == 1 else values.mean(axis=1)
        return found

    def estimate(self, word: str, place: int = -1) -> Estimate:
        """The mean over repetitions with its interval; of a curve at one of its points, by default the last."""
        values = self.repeated(word)
        values = values[:, place] if f"{word}, at" in self.values else values
        return Estimate.of([float(np.mean(each)) for each in values])

    def curve(self, name: str, word: str, least: float | None = None) -> Curve:
        """The mean over repetitions, with one standard deviation to either side."""
        values = self.repeated(word)
        return Curve.of_runs(name, self.at(word), values.reshape(*values.shape[:2], -1).mean(axis=-1), least)

    @property
    def algorithm(self) -> Algorithm:
        """What ran."""
        if not isinstance(self.cell, Cell):
            raise GossamerError(f"{self.cell.name} is not a run of an algorithm")
        return self.cell.made

    @property
    def guarantee(self) -> Guarantee:
        """What it promises, also about a record that occurs more than once in its stream; if run with secure noise."""
        if not isinstance(self.cell, Cell):
            raise GossamerError(f"{self.cell.name} is not a run of an algorithm")
        stream = self.cell.stream(self.cell.repeats[0][0])
        labels = stream.public_labels
        return self.algorithm.guarantee.for_stream(stream.occurrences, promises=stream.unenforced, public_labels=labels)


def named(name: str, make: Callable[[], Any]) -> Any:
    """What a function makes; whatever goes wrong is an error that names the cell.

    >>> named("case A", lambda: 1 / 0)
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: case A: got ZeroDivisionError: division by zero; allowed: a cell ...
    """
    try:
        return make()
    except ConfigurationError as error:
        where = error.field if error.field.startswith(name) else f"{name}: {error.field}"
        raise ConfigurationError(where, error.given, error.allowed, error.hint) from error
    except GossamerError as error:
        raise type(error)(str(error) if str(error).startswith(name) else f"{name}: {error}") from error
    except OSError as error:
        raise DataError(f"{name}: {error}. All finished cells are kept: start again") from error
    except Exception as error:
        allowed = "a cell that can be built and run"
        raise ConfigurationError(name, Said(f"{type(error).__name__}: {error}"), allowed) from error


class Said(str):
    """A text that errors show without quotes."""

    def __repr__(self) -> str:
        return str(self)


def told(setting: Setting) -> str:
    """A setting for people.

    >>> told({"clip": 1.0, "noise": "laplace"})
    'clip 1, noise laplace'
    """
    return ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in setting.items()
    )


_KNOWN: WeakKeyDictionary[Stream, dict[int, str]] = WeakKeyDictionary()


def fingerprint(stream: Stream, steps: int) -> str:
    """Tells streams apart by all that their samples follow from; where nothing says that, by the samples themselves.

    >>> from gossamer.streams import random_signs
    >>> fingerprint(random_signs(2, 3, seed=0), 10) == fingerprint(random_signs(2, 3, seed=1), 10)
    False
    """
    known = _KNOWN.setdefault(stream, {})
    if steps not in known:
        whole = stream.fingerprint()
        known[steps] = f"{stream.description}, {(whole or _samples(stream, steps))[:16]}"
    return known[steps]


def _samples(stream: Stream, steps: int) -> str:
    hashed = hashlib.sha256()
    for low in range(0, steps, _ROWS):
        hashed.update(_digest(stream.read(low, min(steps, low + _ROWS))).encode())
    return hashed.hexdigest()


def _digest(block: Block) -> str:
    hashed = hashlib.sha256()
    for leaf in block:
        hashed.update(f"{leaf.dtype} {leaf.shape}".encode() + np.ascontiguousarray(leaf).tobytes())
    return hashed.hexdigest()


def _blank(value: Any) -> Any:
    """Without its numbers."""
    if isinstance(value, dict):
        return {key: _blank(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_blank(inside) for inside in value]
    return 0 if isinstance(value, int | float) and not isinstance(value, bool) else value
