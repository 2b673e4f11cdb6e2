"""A model in a file: what was learnt, for which columns, under which promise. Safetensors, so nothing in it can run.

The notes of the file:

    format, version    "gossamer model", "1"
    gossamer           the release that wrote it
    spec               the algorithm's specification, or only its problem
    schema             columns of a row and values of the label; "null" where rows are features
    guarantee, origin  JSON, "null" where nobody said
    digest             SHA-256 of all other notes and all numbers
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gossamer.data.schema import Schema
from gossamer.errors import ConfigurationError, DataError, GossamerError
from gossamer.files import private_file
from gossamer.model.origin import Origin
from gossamer.model.tensors import from_bytes, to_bytes
from gossamer.model.trained import TrainedModel
from gossamer.privacy import Guarantee
from gossamer.problems import Problem
from gossamer.spec import build, canonical, spec_of

FORMAT, VERSION = "gossamer model", 1


def save_model(model: TrainedModel, path: Path) -> None:
    """Write a model to a file, in one piece: a file that is there keeps its content until the new one is whole."""
    notes = notes_of(model)
    tensors = {"decision": np.asarray(model.decision)}
    with writing(path) as file:
        file.write(to_bytes(tensors, notes | {"digest": _digest(tensors, notes)}))


def notes_of(model: TrainedModel) -> dict[str, str]:
    """What a file says beside the numbers."""
    return {
        "format": FORMAT,
        "version": str(VERSION),
        "gossamer": version("gossamer"),
        "spec": canonical(model.spec or {"problem": spec_of(model.problem)}),
        "schema": canonical(None if model.schema is None else model.schema.table()),
        "guarantee": "null" if model.guarantee is None else model.guarantee.to_json(),
        "origin": canonical(None if model.origin is None else model.origin.table()),
    }


def load_model(path: str | Path, problem: Problem | None = None, *, network: str | None = None) -> TrainedModel:
    """The model in a file that `gossamer model export` or `TrainedModel.save` wrote.

    Refused where the file was changed or cut, where a later version wrote it, and where it is of another problem or
    network than those that are given. The digest tells of accidents, not of forgers: take models from people you know.

    Args:
        path: of the file.
        problem: what was learnt, where its kind is yours and not Gossamer's: a file makes no code run. Else the file
            says it.
        network: id of the network that it must come from.

    >>> import tempfile
    >>> from gossamer.problems import Logistic
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     TrainedModel(Logistic(2), [2.0, 0.5]).save(f"{folder}/model.safetensors")
    ...     model = load_model(f"{folder}/model.safetensors")
    >>> model.problem, model.predict([[1, 1], [-1, 0]]).tolist()
    (Logistic(dim=2, ...), [1, 0])
    """
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        hint = f"the system says: {(error.strerror or 'refused').lower()}"
        raise ConfigurationError("model", str(path), "a file that can be read", hint) from None
    try:
        model = _read(data, problem)
    except DataError as fault:
        raise DataError(f"{file.name}: {fault}") from None
    if network is not None and (model.origin is None or model.origin.network != network):
        found = "no network" if model.origin is None or not model.origin.network else model.origin.network
        raise ConfigurationError("model", f"one of {found}", f"one of network {network}", "ask its members for theirs")
    return model


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its place when it is whole; what the system refuses is said."""
    try:
        with private_file(path) as file:
            yield file
    except OSError as error:
        hint = f"the system says: {(error.strerror or 'refused').lower()}"
        raise ConfigurationError("path", str(path), "a file that can be written", hint) from None


def _read(data: bytes, problem: Problem | None) -> TrainedModel:
    tensors, notes = from_bytes(data)
    if notes.get("format") != FORMAT:
        raise DataError("it is a safetensors file, but no model of Gossamer's")
    _require_version(notes)
    if notes.pop("digest", "") != _digest(tensors, notes):
        raise DataError("its numbers or notes are not those that its digest was made of: it was changed")
    try:
        spec, schema, promise, origin = (json.loads(notes[name]) for name in ("spec", "schema", "guarantee", "origin"))
        known = _problem(spec["problem"]) if problem is None else _same(problem, spec["problem"])
        return TrainedModel(
            known,
            tensors["decision"],
            None if schema is None else Schema.of(schema),
            guarantee=None if promise is None else Guarantee.from_json(notes["guarantee"]),
            origin=None if origin is None else Origin.of(origin),
            spec=spec if "algorithm" in spec else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as fault:
        if isinstance(fault, GossamerError):
            raise
        raise DataError(f"its notes cannot be read ({type(fault).__name__})") from None


def _require_version(notes: Mapping[str, str]) -> None:
    number = notes.get("version", "")
    if number not in map(str, range(1, VERSION + 1)):
        release = notes.get("gossamer", "")
        wrote = f"Gossamer {release[:20]}" if release and release.isprintable() else "another release"
        raise DataError(
            f"it has version {number[:20]!r} of the format and was written by {wrote}; this release, "
            f"{version('gossamer')}, reads up to version {VERSION}: use a later one"
        )


def _digest(tensors: Mapping[str, NDArray[Any]], notes: Mapping[str, str]) -> str:
    """Of all that a model file says."""
    shapes = {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()}
    digest = hashlib.sha256(canonical({"notes": dict(notes), "tensors": shapes}).encode())
    for name in sorted(tensors):
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def _problem(table: Mapping[str, Any]) -> Problem:
    """The problem that a file names. Other packages' modules are imported by name for no file of a stranger's."""
    foreign = next((word for word in _words(table) if ":" in word), None)
    if foreign is not None:
        hint = "make the problem yourself, and say load_model(path, problem)"
        raise ConfigurationError("model problem", foreign, "a kind that Gossamer or an installed package names", hint)
    try:
        built: Problem = build("model problem", table, "problem")
    except ConfigurationError as error:
        if error.field != "model problem kind":
            raise
        hint = "make the problem yourself, and say load_model(path, problem)"
        raise ConfigurationError(error.field, error.given, "a kind that files can name", hint) from None
    return built


def _words(table: Any) -> list[str]:
    """The kinds that a table names, those inside included."""
    inside = table.values() if isinstance(table, Mapping) else table if isinstance(table, list) else ()
    own = [table["kind"]] if isinstance(table, Mapping) and isinstance(table.get("kind"), str) else []
    return own + [word for each in inside for word in _words(each)]


def _same(problem: Problem, table: Mapping[str, Any]) -> Problem:
    """The problem that was given; refused where the file is of another one."""
    if canonical(spec_of(problem)) != canonical(table):
        hint = "another network, other options, or a function that was changed since"
        raise ConfigurationError("problem", type(problem).__name__, "the one that the model was learnt for", hint)
    return problem
