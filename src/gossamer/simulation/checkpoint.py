"""A run's state on disk: written atomically, readable by its owner only, refused for any other run; and its keeper.

A checkpoint holds raw sums and the seed. It is private and part of no export.
"""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError
from gossamer.files import private_file
from gossamer.privacy import SecureNoise
from gossamer.problems import Block
from gossamer.simulation.engine import World
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.inputs import Fed
from gossamer.simulation.mesh import due
from gossamer.simulation.plan import Chunk
from gossamer.simulation.program import Program
from gossamer.simulation.spread import ALONE, Spread, parted
from gossamer.simulation.tally import Tally
from gossamer.simulation.testing import HeldOut
from gossamer.spec import difference, word_of
from gossamer.streams import Stream

_LAYOUT = 2
"""Of the arrays in the file: 2 keeps rows learner by learner."""

_PIECE_BYTES = 2**23  # of samples that are read again at once
_SECONDS = 10.0  # between two checkpoints


@dataclass(frozen=True)
class Seen:
    """All samples that were read: the number of steps, and a digest that does not depend on how they were cut.

    >>> x, y = np.arange(6.0).reshape(3, 2, 1), np.zeros((3, 2))
    >>> whole, first = Seen().plus(Block(x, y)), Seen().plus(Block(x[:1], y[:1]))
    >>> whole.digest == first.plus(Block(x[1:], y[1:])).digest, whole.digest == first.digest
    (True, False)
    """

    steps: int = 0
    hashes: tuple[Any, ...] = field(default_factory=lambda: (hashlib.sha256(), hashlib.sha256()))

    def plus(self, block: Block) -> Seen:
        """With the steps of one block more: features and labels each go into a hash of their own, step after step."""
        if len(block.y) == 0:  # an exchange without samples
            return self
        hashes = tuple(each.copy() for each in self.hashes)
        for each, leaf in zip(hashes, block, strict=True):
            if not self.steps:
                each.update(f"{leaf.dtype} {leaf.shape[1:]}".encode())
            each.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8))
        return Seen(self.steps + len(block.y), hashes)

    @property
    def digest(self) -> str:
        """Of everything so far."""
        return hashlib.sha256(b"".join(each.digest() for each in self.hashes)).hexdigest()

    @classmethod
    def again(cls, stream: Stream, steps: int) -> Seen:
        """The first steps of a stream, read piece by piece."""
        seen, piece = cls(), 1
        while seen.steps < steps:
            block = stream.read(seen.steps, min(steps, seen.steps + piece))
            seen = seen.plus(block)
            piece = max(1, _PIECE_BYTES * len(block.y) // sum(leaf.nbytes for leaf in block))
        return seen


class Progress(NamedTuple):
    """How far a run has come."""

    exchanges: int
    worlds: World
    tally: Tally
    seen: Seen


def identity(feeder: Feeder, program: Program, seeds: list[int], held_out: HeldOut | None) -> dict[str, Any]:
    """What a resumed run must have in common with the interrupted one.

    To continue with other data, other noise or another algorithm would give a result that no run gives, and use the
    same noise over different data.
    """
    return {
        "algorithm": feeder.algorithm.spec(),
        "stream": feeder.stream.description,
        "records": feeder.stream.fingerprint(),
        "seeds": seeds,
        "measure": program.measure,
        "record": list(program.record),
        "noise": word_of(type(feeder.sources[0])),
        "keys": [source.fingerprint for source in feeder.sources if isinstance(source, SecureNoise)],
        "test": held_out.fingerprint() if held_out else None,
    }


def write(path: Path, identity: dict[str, Any], progress: Progress, spread: Spread = ALONE) -> None:
    """Replace the checkpoint in one step: a crash leaves the old one or the new one.

    It holds whole arrays, wherever the learners are: a run goes on on any mesh, or on none. Of several processes the
    first writes, and the others send it their learners piece by piece.
    """
    leaves = jax.tree.leaves(progress.worlds)
    leaves[-1:] = map(spread.row_as_one, leaves[-1:])
    arrays: dict[str, Any] = {f"world/{i}": leaf for i, leaf in enumerate(leaves)}
    facts = identity | {"layout": _LAYOUT, "exchanges": progress.exchanges, "every": progress.tally.every}
    facts |= {"steps": progress.seen.steps, "samples": progress.seen.digest}
    arrays |= {"facts": np.array(json.dumps(facts)), **progress.tally.arrays()}
    if not spread.writes:
        for _ in (piece for array in arrays.values() for piece in spread.pieces(array)):
            pass
        return
    with private_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _write_array(member, array, spread)


def _write_array(member: IO[bytes], array: Any, spread: Spread) -> None:
    """As `np.savez` writes it, without ever having all of it at hand."""
    descr = np.lib.format.dtype_to_descr(np.dtype(array.dtype))
    np.lib.format.write_array_header_2_0(member, {"descr": descr, "fortran_order": False, "shape": array.shape})
    for piece in spread.pieces(array):
        member.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)


def read(path: Path, identity: dict[str, Any], fresh: World, every: int | None, stream: Stream) -> Progress | None:
    """The progress stored there; None if there is nothing yet.

    Args:
        path: where `write` put it.
        identity: what the run must have in common with the one that was interrupted.
        fresh: the worlds before the first exchange, for their structure.
        every: the width of the rows that is asked for; None takes the stored one.
        stream: the samples. Those that the interrupted run has read are read again: others are refused.
    """
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, NDArray[Any]] = dict(file)
        facts = json.loads(str(arrays.pop("facts")))
    except (ValueError, KeyError, OSError, zipfile.BadZipFile, EOFError) as broken:
        raise ConfigurationError(
            "checkpoint", str(path), "a file that simulate wrote", "name another file, or remove this one"
        ) from broken
    if facts.get("layout") != _LAYOUT:
        raise _of_another_version(path)
    wanted = identity | {"every": facts["every"] if every is None else every}
    if apart := difference(wanted, {key: facts.get(key) for key in wanted}):
        key, value, there = apart
        secret = key in ("seeds", "keys", "records")  # with messages they are the raw data, or they say nothing
        given, stored = ("others", "those") if secret else (value, f"{there!r}, as")
        hint = "name another file, or remove this one"
        raise ConfigurationError(f"checkpoint ({key})", given, f"{stored} in {path}", hint)
    leaves = [arrays.pop(f"world/{i}", None) for i in range(len(jax.tree.leaves(fresh)))]
    if leaves[-1] is not None and (more := fresh.row.shape[-1] - leaves[-1].shape[-1]) > 0:
        leaves[-1] = parted(leaves[-1], 1 + more)
    for leaf, wanted_leaf in zip(leaves, jax.tree.leaves(fresh), strict=True):
        if leaf is None or (leaf.shape, leaf.dtype) != (wanted_leaf.shape, wanted_leaf.dtype):
            raise _of_another_version(path)
    worlds = jax.tree.unflatten(jax.tree.structure(fresh), leaves)
    seen = Seen.again(stream, facts["steps"])
    if seen.digest != facts["samples"]:
        theirs = f"the samples of the first {seen.steps:,} steps that were read for {path}"
        raise ConfigurationError("checkpoint (samples)", "others", theirs, "name another file, or remove this one")
    return Progress(facts["exchanges"], worlds, Tally.restore(facts["every"], arrays), seen)


def _of_another_version(path: Path) -> ConfigurationError:
    hint = "another version wrote it: remove it, start again"
    return ConfigurationError("checkpoint", str(path), "states of the same form", hint)


@dataclass
class Keeper:
    """Resumes from the checkpoint and keeps it up to date, at most every few seconds."""

    path: Path | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    written: float = 0.0
    spread: Spread = ALONE

    def resume(self, fresh: World, every: int | None, usual: int, exchanges: int, stream: Stream) -> Progress:
        """What the file holds, or a fresh start with rows of `every` exchanges, or of the usual number."""
        stored = self.path and read(self.path, self.identity, fresh, every, stream)
        if not stored:
            return Progress(0, fresh, Tally(every or usual), Seen())
        if stored.exchanges > exchanges:
            raise ConfigurationError(
                "steps", f"{exchanges} exchanges", f"at least the {stored.exchanges} in {self.path}"
            )
        return stored

    def saw(self, seen: Seen, stream: Stream, block: Block | Fed, chunk: Chunk) -> Seen:
        """With the samples of a chunk, where a checkpoint must know them since nothing else tells what they are."""
        if not self.path or self.identity["records"]:
            return seen
        if isinstance(block, Fed):
            return seen.plus(stream.read(chunk.step, chunk.step + (chunk.stop - chunk.first) * chunk.block))
        rows = (self.spread.fetch(leaf)[chunk.first : chunk.stop] for leaf in block)
        return seen.plus(Block(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in rows)))

    def keep(self, progress: Progress, *, now: bool = False) -> None:
        """Write the checkpoint, if it is time or `now`."""
        if self.path and (now or due(self.spread, time.monotonic() - self.written > _SECONDS)):
            write(self.path, self.identity, progress, self.spread)
            self.written = time.monotonic()
