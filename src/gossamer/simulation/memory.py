"""How much memory a run takes, known before it starts; one that does not fit is refused in words, and not killed.

What a run keeps follows from shapes. What the compiled program needs in between only the compiler knows: it is asked
where a run comes near to what is there.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from gossamer.core.drawing import learners_draws
from gossamer.errors import ConfigurationError
from gossamer.simulation import engine, measuring
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.plan import chunks
from gossamer.simulation.program import Program
from gossamer.simulation.sizes import even_of, length_of, runner, slots_of

NEAR = 0.25
"""Of a run that may take more than this share of the memory that is there, the compiler is asked."""

MARGIN = 1.25
"""So many times its estimate must be free for a run: what was measured lay up to 23 % above."""

_DOUBLE, _SINGLE = 8, 4
_COMPILING = 62 * 2**20  # about what a compiler takes on the host, whatever it compiles
_NOT_RETURNED = 64 * 2**20  # about what a process keeps of memory that it has freed


class Memory(NamedTuple):
    """Bytes that a run takes, by what they are for; on a CPU all of them are in one memory.

    Attributes:
        records: of the stream and of the network, put on the device.
        states: of all learners and seeds, before and after the chunks that are computed and looked at.
        inputs: samples, noise and schedules of chunks.
        scratch: what the compiled program writes down in between.
        shown: rows and transcript of chunks, on the device.
        result: rows on the host, in double precision, and the last decisions.
        transcript: what `record` asks for, on the host.
        compiling: what the compiler takes, on the host.
        reported: what is made of rows and transcript at the end, when inputs and scratch are gone.
    """

    records: int = 0
    states: int = 0
    inputs: int = 0
    scratch: int = 0
    shown: int = 0
    result: int = 0
    transcript: int = 0
    compiling: int = 0
    reported: int = 0

    @property
    def device(self) -> int:
        """Bytes on the device, at their peak."""
        return self.records + self.states + self.inputs + self.scratch + self.shown

    @property
    def host(self) -> int:
        """Bytes on the host at their peak, where the device is no CPU."""
        return self.result + self.transcript + self.compiling + self.reported

    @property
    def total(self) -> int:
        """Bytes at the peak where the device is a CPU: while chunks are computed, or at the end."""
        kept = self.records + self.states + self.result + self.transcript + self.compiling
        computing = self.inputs + self.scratch + self.shown
        return kept + max(computing, self.reported) + min(computing, self.reported, _NOT_RETURNED)

    def dealt(self, parts: int, row_parts: int) -> Self:
        """On each of so many devices that have memories of their own, of which so many share a row."""
        own = {name: getattr(self, name) // parts for name in ("states", "inputs", "scratch")}
        return self._replace(**own, shown=self.shown // row_parts)


class Shape(NamedTuple):
    """How a run is cut: what its memory depends on beside its program."""

    steps: int
    seeds: int
    every: int
    length: int


def estimate(feeder: Feeder, program: Program, run: Shape, *, ask: bool = False) -> Memory:
    """Bytes that a run takes, beside what is there before it; `ask` the compiler for what its program needs."""
    exchanges = feeder.algorithm.schedule.exchanges(run.steps)
    alive = 1 + (exchanges > run.length)  # chunks: one is computed while the one before it is looked at
    world = run.seeds * _bytes(jax.eval_shape(lambda: engine.start(program)))
    decisions = run.seeds * program.learners * program.problem.dim * _SINGLE
    recorded = len(program.record) * decisions  # about: messages may have parts beside a value
    samples = _sample_bytes(feeder, run.steps)
    slots, rows = slots_of(run.length, run.every), -(-exchanges // run.every)
    figures = run.seeds * program.figures
    asked = ask and feeder.fed
    return Memory(
        records=_record_bytes(feeder),
        states=(1 + alive) * world,
        inputs=alive * run.length * ((0 if feeder.fed else samples) + _noise_bytes(feeder)),
        scratch=_scratch(feeder, program, run) if asked else 2 * world + 2 * samples + decisions,
        shown=alive * (slots * figures * 2 * _SINGLE + run.length * recorded),
        result=figures * _DOUBLE * (rows + 4 * min(rows, slots)) + decisions,  # four copies while they are added
        transcript=exchanges * recorded,
        compiling=_COMPILING,
        reported=figures * _DOUBLE * rows + exchanges * recorded,
    )


def _sample_bytes(feeder: Feeder, steps: int) -> int:
    """Of the samples of an exchange: features and a label."""
    block = max(segment.block for segment in feeder.algorithm.schedule.segments(steps))
    features = int(np.prod(feeder.algorithm.problem.feature_shape, dtype=np.int64))
    return feeder.width * max(1, block) * (features + 1) * _SINGLE


def _noise_bytes(feeder: Feeder) -> int:
    """Of the draws of an exchange, of all seeds, where the host makes them."""
    if feeder.in_program:
        return 0
    drawn = sum(draw.spec.size for draw in learners_draws(feeder.algorithm).values())
    return len(feeder.sources) * feeder.algorithm.learners * drawn * _SINGLE


def _record_bytes(feeder: Feeder, parts: int = 1) -> int:
    """Of what is put on a device once: records of a stream are dealt where they can be."""
    if feeder.records is not None and not feeder.stream.shared:
        return feeder.records.most_bytes(parts) + _bytes(feeder.constant) // parts
    return _bytes(feeder.records) + _bytes(feeder.constant)


def _scratch(feeder: Feeder, program: Program, run: Shape) -> int:
    """What the compiler says that the program of a chunk needs; it is compiled once, for this and for the run."""
    chunk = next(chunks(feeder.algorithm.schedule.segments(run.steps), run.length))
    worlds = jax.eval_shape(lambda: jax.vmap(lambda _: engine.start(program))(np.zeros(run.seeds)))
    inputs = feeder.inputs(chunk, every=run.every)
    cut = chunk.first, chunk.stop, slots_of(run.length, run.every), even_of(chunk, run.every)
    compiled = runner(feeder, chunk).lower(program, feeder.constant, worlds, inputs, *cut).compile()
    known: Any = compiled.memory_analysis()
    return int(known.temp_size_in_bytes)


def _bytes(tree: Any) -> int:
    return sum(
        int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize for leaf in map(_array, jax.tree.leaves(tree))
    )


def _array(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf)


def require(feeder: Feeder, program: Program, steps: int, every: int, chunk: int | None) -> None:
    """Refuse a run that needs more memory than there is, before anything is computed."""
    alone = jax.default_backend() == "cpu"  # devices of a CPU share its memory
    parts, row_parts = (1, 1) if alone else (feeder.spread.parts, program.row_parts)
    records = _record_bytes(feeder, parts)
    if feeder.fed:
        _compare(Memory(records=records), feeder, program)  # before they are put there
    run = Shape(steps, len(feeder.sources), every, length_of(feeder, program, steps, every, chunk))
    needed = estimate(feeder, program, run).dealt(parts, row_parts)._replace(records=records)
    if _share(needed) > NEAR and feeder.spread.mesh is None:
        needed = estimate(feeder, program, run, ask=True)
    _compare(needed, feeder, program)


def _share(needed: Memory) -> float:
    """Of the memory that is there, on the device or on the host, whichever is nearer to its end."""
    device, host = available()
    if device is None:
        return needed.total / host
    return max(needed.device / device, needed.host / host)


def _compare(needed: Memory, feeder: Feeder, program: Program) -> None:
    if MARGIN * _share(needed) <= 1:
        return
    device, host = available()
    on_device = device is not None and MARGIN * needed.device > device
    asked, there = (
        (needed.device, device or 0) if on_device else (needed.total if device is None else needed.host, host)
    )
    parts = {name: size for name, size in needed._asdict().items() if size >= asked / 10}
    told = ", ".join(f"{name} {_in_words(size)}" for name, size in sorted(parts.items(), key=lambda part: -part[1]))
    raise ConfigurationError(
        "memory",
        f"a run of about {_in_words(asked)} ({told})",
        f"{_in_words(int(there / MARGIN))}, four fifths of what is free on the {'device' if on_device else 'host'}",
        _advice(needed, feeder, program),
    )


def _advice(needed: Memory, feeder: Feeder, program: Program) -> str:
    """The options that make the largest part smaller."""
    largest = max(needed._asdict().items(), key=lambda part: part[1])[0]
    rows, kept = largest in ("result", "shown", "reported"), bool(program.record)
    exact = program.measure == "global" and program.sampled is None and not program.shared
    sampled = program.own_samples and measuring.size("global", False, program.learners) is not None
    options = {
        "record=(): no transcript": largest == "transcript" or (rows and kept),
        "a larger every=, for fewer rows": rows and not kept,
        "measure='global', which measures a sample of so many learners": rows and sampled,
        "a smaller chunk=, for fewer exchanges at once": largest == "inputs",
        "fewer records": largest == "records",
        "measure='local'": largest == "scratch" and exact,
        "fewer learners": largest in ("states", "scratch"),
        "fewer seeds": len(feeder.sources) > 1 and largest != "records",
    }
    return "try " + ", or ".join(option for option, helps in options.items() if helps)


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
