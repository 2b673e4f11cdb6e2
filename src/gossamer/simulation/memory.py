"""How much memory a run takes, known before it starts; one that does not fit is refused in words, and not killed.

What a run keeps follows from shapes. What the compiled program needs in between only the compiler knows: it is asked
where a run comes near to what is there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from gossamer.core.drawing import learners_draws
from gossamer.errors import ConfigurationError
from gossamer.simulation import engine
from gossamer.simulation.engine import Program
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.plan import chunks
from gossamer.simulation.sizes import length_of, loop_for, slots_of

NEAR = 0.25
"""Of a run that may take more than this share of the memory that is there, the compiler is asked."""

_DOUBLE, _SINGLE = 8, 4
_COMPILING = 60 * 2**20  # a compiler takes about this much on the host, whatever it compiles


class Memory(NamedTuple):
    """Bytes at the peak of a run, by what they are for; on a CPU all of them are in one memory.

    Attributes:
        records: of the stream and of the network, put on the device.
        states: of all learners and seeds, before and after the chunks that are computed and looked at.
        inputs: samples, noise and schedules of two chunks.
        scratch: what the compiled program writes down in between.
        shown: rows and transcript of two chunks, on the device.
        result: rows on the host, in double precision, and the last decisions.
        transcript: what `record` asks for, on the host.
        compiling: what the compiler takes, on the host.
    """

    records: int
    states: int
    inputs: int
    scratch: int
    shown: int
    result: int
    transcript: int
    compiling: int

    @property
    def device(self) -> int:
        """Bytes on the device."""
        return self.records + self.states + self.inputs + self.scratch + self.shown

    @property
    def host(self) -> int:
        """Bytes on the host, beside the device's where that is a CPU."""
        return self.result + self.transcript + self.compiling

    @property
    def total(self) -> int:
        """Both."""
        return self.device + self.host


class Shape(NamedTuple):
    """How a run is cut: what its memory depends on beside its program."""

    steps: int
    seeds: int
    every: int
    length: int


def estimate(feeder: Feeder, program: Program, run: Shape, *, ask: bool = False) -> Memory:
    """Bytes that a run takes at its peak, beside what is there before it; `ask` the compiler for what it needs."""
    schedule = feeder.algorithm.schedule
    exchanges = schedule.exchanges(run.steps)
    several = exchanges > run.length
    worlds = jax.eval_shape(lambda: engine.start(program))
    world, decisions = run.seeds * _bytes(worlds), run.seeds * program.learners * program.problem.dim * _SINGLE
    recorded = _recorded(program, worlds, run.seeds)
    slots = slots_of(run.length, run.every)
    row = run.seeds * 2 * program.figures * _SINGLE
    samples = _sample_bytes(feeder, max(segment.block for segment in schedule.segments(run.steps)))
    shown = slots * row + run.length * recorded
    states = (2 + several) * world  # those before and after a chunk, and those that were looked at last
    inputs = 0 if feeder.in_program else (1 + several) * run.length * _noise_bytes(feeder)
    if not feeder.fed:
        inputs += (1 + several) * run.length * samples
    scratch = 2 * world + 2 * samples + decisions
    if ask and feeder.fed:
        scratch = _scratch(feeder, program, run)
    rows = -(-exchanges // run.every) + 1
    return Memory(
        records=_record_bytes(feeder),
        states=states,
        inputs=inputs,
        scratch=scratch,
        shown=(1 + several) * shown,
        result=_result_bytes(program, run, rows, min(rows, slots)) + decisions,
        transcript=2 * exchanges * recorded,
        compiling=_COMPILING,
    )


def _result_bytes(program: Program, run: Shape, rows: int, at_once: int) -> int:
    """Rows in double precision, with room to grow, and once more in the run, or while those of a chunk are added."""
    figure = run.seeds * program.figures * _DOUBLE
    room = 1 << (rows - 1).bit_length()
    return figure * (room + max(rows, 4 * at_once))


def _recorded(program: Program, worlds: Any, seeds: int) -> int:
    """Bytes of the transcript of an exchange, about: messages may have parts beside a decision's size."""
    return seeds * len(program.record) * program.learners * program.problem.dim * _SINGLE


def _sample_bytes(feeder: Feeder, block: int) -> int:
    """Of the samples of an exchange: features and a label."""
    features = int(np.prod(feeder.algorithm.problem.feature_shape, dtype=np.int64))
    return feeder.width * max(1, block) * (features + 1) * _SINGLE


def _noise_bytes(feeder: Feeder) -> int:
    """Of the draws of an exchange, of all seeds."""
    drawn = sum(draw.spec.size for draw in learners_draws(feeder.algorithm).values())
    return len(feeder.sources) * feeder.algorithm.learners * drawn * _SINGLE


def _record_bytes(feeder: Feeder) -> int:
    """Of what is put on the device once."""
    feed = feeder.stream.feed() if feeder.in_program else None
    return _bytes(feed) + _bytes(feeder.constant())


def _scratch(feeder: Feeder, program: Program, run: Shape) -> int:
    """What the compiler says that the program of a chunk needs; it is compiled once, for this and for the run."""
    chunk = next(chunks(feeder.algorithm.schedule.segments(run.steps), run.length))
    worlds = jax.eval_shape(lambda: jax.vmap(lambda _: engine.start(program))(np.zeros(run.seeds)))
    inputs = feeder.inputs(chunk, every=run.every)
    asked = (program, feeder.constant(), worlds, inputs, chunk.first, chunk.stop, slots_of(run.length, run.every))
    compiled = loop_for(chunk).lower(*asked).compile()
    return int(compiled.memory_analysis().temp_size_in_bytes)


def _bytes(tree: Any) -> int:
    return sum(
        int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize for leaf in map(_array, jax.tree.leaves(tree))
    )


def _array(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf)


def require(feeder: Feeder, program: Program, steps: int, every: int, chunk: int | None) -> None:
    """Refuse a run that needs more memory than there is, before anything is computed."""
    if feeder.in_program:
        _compare(Memory(_record_bytes(feeder), *[0] * 7), feeder, program)  # before they are put there
    run = Shape(steps, len(feeder.sources), every, length_of(feeder, program, steps, every, chunk))
    needed = estimate(feeder, program, run)
    if _share(needed) > NEAR:
        needed = estimate(feeder, program, run, ask=True)
    _compare(needed, feeder, program)


def _share(needed: Memory) -> float:
    """Of the memory that is there, on the device or on the host, whichever is nearer to its end."""
    device, host = available()
    if device is None:
        return needed.total / host
    return max(needed.device / device, needed.host / host)


def _compare(needed: Memory, feeder: Feeder, program: Program) -> None:
    if _share(needed) <= 1:
        return
    device, host = available()
    on_device = device is not None and needed.device > device
    asked, there = (
        (needed.device, device or 0) if on_device else (needed.total if device is None else needed.host, host)
    )
    parts = {name: size for name, size in needed._asdict().items() if size >= asked / 10}
    told = ", ".join(f"{name} {_in_words(size)}" for name, size in sorted(parts.items(), key=lambda part: -part[1]))
    raise ConfigurationError(
        "memory",
        f"a run of about {_in_words(asked)} ({told})",
        f"{_in_words(there)}, which are free on the {'device' if on_device else 'host'}",
        _advice(needed, feeder, program),
    )


def _advice(needed: Memory, feeder: Feeder, program: Program) -> str:
    """The option that makes the largest part smaller."""
    largest = max(needed._asdict().items(), key=lambda part: part[1])[0]
    fewer = ", or fewer seeds" if len(feeder.sources) > 1 else ""
    if largest == "transcript" or (largest == "shown" and program.record):
        return f"record less: record=(), or fewer steps{fewer}"
    if largest in ("result", "shown"):
        measured = ", or measure='global', which keeps a sample of the learners" if program.own_samples else ""
        return f"keep fewer rows with a larger every={measured}{fewer}".replace("every=,", "every=...,")
    if largest == "inputs":
        return f"compute fewer exchanges at once with a smaller chunk={fewer}"
    if largest == "records":
        return "use fewer records, or a device with more memory"
    exact = program.measure == "global" and program.sampled is None and not program.shared
    measured = "measure='local'" if exact else "fewer learners, or a device with more memory"
    return f"try {measured}{fewer}"


def _in_words(size: int) -> str:
    """A number of bytes for people.

    >>> _in_words(1_500_000_000), _in_words(20_000)
    ('1.5 GB', '0.02 MB')
    """
    return f"{size / 1e9:,.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"


def available() -> tuple[int | None, int]:
    """Bytes that are free on the device, or None where it is a CPU, and on the host."""
    stats = jax.local_devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    device = stats["bytes_limit"] - stats["bytes_in_use"] if stats and "bytes_limit" in stats else None
    return device, min(_free_by_kernel(), _free_by_group())


def _free_by_kernel() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # no Linux: all that the machine has
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def _free_by_group() -> int:
    """What a container leaves; files that are cached count as used there, and are given back: so no more than that."""
    for limit, used in _GROUPS:
        try:
            most, now = Path(limit).read_text().strip(), int(Path(used).read_text())
        except (OSError, ValueError):
            continue
        if most != "max":
            return max(int(most) - now + _cached_by_group(), 0)
    return 2**63


def _cached_by_group() -> int:
    try:
        lines = Path("/sys/fs/cgroup/memory.stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("inactive_file"))
    except (OSError, StopIteration):
        return 0
