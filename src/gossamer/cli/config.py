"""A simulation in one TOML file: [problem], [data], [topology], [algorithm] and [simulate].

The keys of a section are the parameters of the functions that it calls, so there is no second schema to keep up.
"""

import inspect
import itertools
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gossamer import simulate
from gossamer.cli.kinds import DATASETS, GENERATORS, Maker
from gossamer.core import Algorithm, Federation
from gossamer.core.spec import LISTED, TABLES, make_algorithm, make_network, sections_of
from gossamer.data.schema import Choice, Schema
from gossamer.errors import ConfigurationError, DataError
from gossamer.simulation import Run
from gossamer.spec import Nothing, Section, find, keys_of, kinds, picked
from gossamer.spec.values import MisfitError
from gossamer.streams import POKER_CLASSES, Stream, common, from_arrays, read_records

SECTIONS = ("problem", "data", "topology", "algorithm", "simulate")
SOURCES = ("name", "generator", "path")
GENERATED_CLASSES = {"heterogeneous-logistic": 2, "smooth-cycle-logistic": 2, "poker-hands": len(POKER_CLASSES)}


@dataclass(frozen=True)
class Experiment:
    """What a file describes, ready to run; `only_label` is the label of all records, where there is but one."""

    algorithm: Algorithm
    stream: Stream
    settings: Section
    only_label: int | None = None

    def run(self) -> Run:
        """Simulate it."""
        run: Run = self.settings.call(simulate, {"algorithm": self.algorithm, "stream": self.stream})
        return run


class Source(NamedTuple):
    """A stream, how many classes its labels have where that is known, and their label where all have the same."""

    stream: Stream
    classes: int | None
    only_label: int | None = None


def load(file: Path, *, steps: int | None = None, seed: int | None = None) -> Experiment:
    r"""Read and check a file; nothing runs yet.

    Args:
        file: see `examples/`.
        steps: instead of those of [simulate].
        seed: instead of that of [simulate].

    >>> import tempfile
    >>> lines = [
    ...     'problem = {kind = "linear"}',
    ...     'data = {generator = "random-signs", dim = 3, seed = 1}',
    ...     'topology = {kind = "ring", learners = 4}',
    ...     'algorithm = {name = "d_ogd", step = 0.1}',
    ...     "simulate = {steps = 20}",
    ... ]
    >>> with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
    ...     print("\n".join(lines), file=file, flush=True)
    ...     load(Path(file.name), seed=0).algorithm.topology
    ring(4)
    """
    return _experiment(_parsed(file), steps, seed)


def _experiment(tables: Mapping[str, Any], steps: int | None = None, seed: int | None = None) -> Experiment:
    sections = sections_of(tables, SECTIONS, SECTIONS)
    settings = _settings(sections["simulate"], steps, seed)
    source, made = _with_data(sections)
    algorithm = make_algorithm(made)
    _require_steps("[simulate] steps" if steps is None else "--steps", settings, sections["data"], source.stream)
    return Experiment(algorithm, source.stream, settings, source.only_label)


class Varied(NamedTuple):
    """One setting of a file in which lists stand for numbers: what varies, by its name, and what it makes."""

    setting: dict[str, Any]
    experiment: Experiment


def load_varied(file: Path) -> list[Varied]:
    r"""Read a file with lists in place of numbers in [problem], [topology] or [algorithm]: every combination.

    >>> import tempfile
    >>> lines = [
    ...     'problem = {kind = "linear"}',
    ...     'data = {generator = "random-signs", dim = 3, seed = 1}',
    ...     'topology = {kind = "ring", learners = 4}',
    ...     'algorithm = {name = "pd_ogd", budget = {epsilon = [1, 2]}, clip = 1, step = [0.1, 1.0]}',
    ...     "simulate = {steps = 20, seeds = [0, 1]}",
    ... ]
    >>> with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
    ...     print("\n".join(lines), file=file, flush=True)
    ...     [varied.setting for varied in load_varied(Path(file.name))][1:3]
    [{'budget.epsilon': 1, 'step': 1.0}, {'budget.epsilon': 2, 'step': 0.1}]
    """
    tables = _parsed(file)
    places = [place for name in TABLES for place in _varying(tables.get(name, {}), name)]
    if not places:
        hint = "write step = [0.01, 0.1, 1.0], say"
        raise ConfigurationError("FILE", str(file), "a run file with a list in place of a number", hint)
    found = []
    for values in itertools.product(*(_at(tables, place) for place in places)):
        chosen = tables
        for place, value in zip(places, values, strict=True):
            chosen = _with(chosen, place, value)
        setting = dict(zip((".".join(place[1:]) for place in places), values, strict=True))
        found.append(Varied(setting, _experiment(chosen)))
    return found


def _varying(table: Any, name: str) -> Iterator[tuple[str, ...]]:
    """Where a table has a list that its key does not take."""
    if not isinstance(table, dict):
        return
    known = kinds(name)
    kind = find(name, str(table.get("name" if name == "algorithm" else "kind"))) if known else None
    keys = keys_of(kind.make, kind.words) if kind else {}
    for key, value in table.items():
        try:
            if key in keys:
                keys[key].reader.read(key, value)
                continue
        except (MisfitError, ConfigurationError):
            pass
        yield from _lists(value, (name, key))


def _lists(value: Any, place: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, list) and value:
        yield place
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from _lists(inside, (*place, key))


def _at(tables: Any, place: tuple[str, ...]) -> Any:
    return _at(tables[place[0]], place[1:]) if place else tables


def _with(tables: Mapping[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The same tables with one value changed."""
    first, *rest = place
    return {**tables, first: _with(tables[first], tuple(rest), value) if rest else value}


class ForNodes(NamedTuple):
    """What a file says about a network: the algorithm, and data to try it with."""

    algorithm: Algorithm
    stream: Stream | None
    only_label: int | None
    schema: Schema | None


def load_for_nodes(file: Path, nodes: int) -> ForNodes:
    """Read the algorithm of a network of so many nodes; [data], where it is there, says what its samples look like."""
    tables = _parsed(file)
    schema = Schema.of(tables.pop("schema")) if "schema" in tables else None
    given = tables.get("topology", {})
    if isinstance(given, dict) and not {"rows", "parts", "topology", "dimension", "graph"} & set(given):
        tables["topology"] = given | {"learners": nodes}
    sections = sections_of(tables, TABLES, SECTIONS)
    source, made = _with_data(sections) if "data" in sections else (None, {n: sections[n].table for n in TABLES})
    if schema is not None:
        made["problem"] = {**_shape_of_schema(schema, sections["problem"]), **made["problem"]}
    algorithm = make_algorithm(made)
    if isinstance(algorithm.topology, Federation):
        raise ConfigurationError("[algorithm] name", algorithm.name, "an algorithm that gossips", "it needs a server")
    if algorithm.learners != nodes:
        raise ConfigurationError("--nodes", nodes, f"{algorithm.learners}, as [topology] says")
    return ForNodes(algorithm, source and source.stream, source and source.only_label, schema)


def _shape_of_schema(schema: Schema, problem: Section) -> dict[str, Any]:
    """What the schema says about the problem: the size and the bound of its features, and how many classes."""
    classes = len(schema.label.values) if isinstance(schema.label, Choice) else None
    said = {"dim": schema.dim, "feature_bound": schema.feature_bound, "classes": classes}
    allowed = keys_of(picked(problem, "problem").make)
    return {key: value for key, value in said.items() if key in allowed and value is not None}


def _with_data(sections: Mapping[str, Section]) -> tuple[Source, dict[str, Mapping[str, Any]]]:
    """The data, and the tables of the algorithm with what the data say: shapes, classes and the size of batches."""
    kind = picked(sections["algorithm"], "algorithm", key="name", elsewhere=LISTED)
    shared = "batch" in kind.defaults  # samples that all learners see
    maker = picked(sections["problem"], "problem").make
    network = make_network(sections["topology"], kind)
    images = "image_shape" in inspect.signature(maker).parameters
    source = _source(sections["data"], network.learners, images=images, together=shared)
    known = {key: value for key, value in _shape(source).items() if key in keys_of(maker) and value is not None}
    if "classes" in keys_of(maker) and "classes" not in {**known, **sections["problem"].table}:
        # Counted from the labels, it would be one record's doing how long decisions and messages are.
        hint = "say how many kinds of labels there can be: it is public, and not counted from the records"
        raise ConfigurationError("[problem] classes", Nothing(), "a whole number", hint)
    data = sections["data"].table
    batch = {"batch": data["batch"]} if shared and "batch" in data else {}
    tables = {
        "problem": {**known, **sections["problem"].table},
        "topology": sections["topology"].table,
        "algorithm": {**batch, **sections["algorithm"].table},
    }
    return source, tables


def _parsed(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise ConfigurationError("FILE", str(file), "a TOML file", f"the system says: {reason}") from None
    except UnicodeDecodeError:
        raise ConfigurationError("FILE", str(file), "a TOML file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError("FILE", str(file), "a TOML file", f"it breaks off: {error}") from None


def _settings(section: Section, steps: int | None, seed: int | None) -> Section:
    section.expect([simulate])
    table = dict(section.table)
    if steps is not None:
        table["steps"] = steps
    if seed is not None:
        table.pop("seeds", None)
        table["seed"] = seed
    if "seed" not in table and "seeds" not in table:
        raise ConfigurationError(
            "[simulate] seed", Nothing(), "a whole number", "add seed to [simulate], or give --seed"
        )
    return Section(section.name, table)


def _require_steps(field: str, settings: Section, data: Section, stream: Stream) -> None:
    """Refuse more steps than there are samples, and say how to show them more often."""
    steps, there = settings.table.get("steps"), stream.length
    if not isinstance(steps, int) or there is None or steps <= there:
        return
    passes = data.table.get("passes", 1)
    enough = -(-steps * passes // there)
    hint = f"set passes = {enough} in [data], which shows every learner its samples {enough:,} times"
    raise ConfigurationError(field, steps, f"at most {there:,}, with passes = {passes}", hint)


def _source(section: Section, learners: int, *, images: bool, together: bool) -> Source:
    """The stream that the section names in one of three ways; `together`: all learners see the same batches."""
    named = [key for key in SOURCES if key in section.table]
    if len(named) != 1:
        shown = named or Nothing()
        raise ConfigurationError(section.name, shown, f"exactly one of {', '.join(SOURCES)}")
    if named == ["generator"] and together:
        hint = "all learners see the same batches, and generators make samples for each"
        raise ConfigurationError(f"{section.name} generator", section.table["generator"], "name or path", hint)
    if named == ["generator"]:
        return _generated(section, learners)
    loader: Maker = (
        read_records
        if named == ["path"]
        else section.pick("name", DATASETS, elsewhere="`gossamer datasets` lists them")
    )
    dealt: Maker = common if together else from_arrays
    section.expect([loader, dealt], extra=named, supplied=["learners"])
    loaded = section.call(loader)
    x, y, classes = _records(loaded)
    stream = section.call(dealt, {"x": _images(x) if images else _rows(x), "y": y, "learners": learners})
    if getattr(loaded, "scaling", "public") == "standardised":  # each record has changed the features of all
        stream.occurrences, stream.description = None, f"{stream.description}, standardised with all of them"
    return Source(stream, classes, _only_label(y))


def _generated(section: Section, learners: int) -> Source:
    maker = section.pick("generator", GENERATORS)
    section.expect([maker], extra=["generator"], supplied=["learners"])
    stream = section.call(maker, {"learners": learners})
    return Source(stream, section.table.get("classes", GENERATED_CLASSES.get(section.table["generator"])))


def _records(loaded: Any) -> tuple[Any, Any, int | None]:
    """Features, labels and, where it is known, the number of classes: a data set's training part, or a file."""
    if isinstance(loaded, tuple):
        return (*loaded, None)
    return loaded.x_train, loaded.y_train, loaded.classes


def _only_label(y: Any) -> int | None:
    return int(y.flat[0]) if y.dtype.kind != "f" and y.size and (y == y.flat[0]).all() else None


def _rows(x: Any) -> Any:
    """One vector per record, for the linear models."""
    return x if x.ndim < 3 else x.reshape(len(x), -1)


def _images(x: Any) -> Any:
    """(records, height, width, colours)."""
    if x.ndim not in (3, 4):
        raise DataError(f"the records have features of shape {x.shape[1:]}; images (height, width) are needed")
    return x if x.ndim == 4 else x[..., None]


def _shape(source: Source) -> dict[str, Any]:
    """What the data say about the problem."""
    features = source.stream.features or ()
    return {"dim": math.prod(features), "image_shape": list(features), "classes": source.classes}
