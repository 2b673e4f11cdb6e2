"""`simulate`: run an algorithm over a stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count, check_seed
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, DataError, GossamerError, PrivacyError
from gossamer.privacy import Assumption, FastNoise, Guarantee, NoiseSource, SecureNoise, Unit
from gossamer.problems import Block
from gossamer.simulation import checkpoint as checkpoints
from gossamer.simulation import debug as debugger
from gossamer.simulation import engine
from gossamer.simulation.checkpoint import Progress, Seen
from gossamer.simulation.engine import Measure, Outputs, Program, World
from gossamer.simulation.feeding import Chunk, Feeder, batch_of, chunk_length, chunks
from gossamer.simulation.run import Run
from gossamer.simulation.summary import report, without_seed_axis
from gossamer.simulation.tally import Tally
from gossamer.simulation.testing import HeldOut, cut_at_rows
from gossamer.streams import Stream

RECORDS = ("decisions", "messages", "broadcasts")
_ROWS = 1000  # rows a run keeps unless told otherwise
_TESTED_ROWS = 50  # likewise where every row ends with a test
_CHECKPOINT_SECONDS = 10.0


def simulate(
    algorithm: Algorithm,
    stream: Stream,
    steps: int,
    *,
    seed: int | None = None,
    seeds: Sequence[int] | None = None,
    noise: Callable[[int], NoiseSource] = FastNoise,
    measure: Measure = "global",
    every: int | None = None,
    record: Sequence[str] = (),
    chunk: int | None = None,
    debug: bool = False,
    progress: bool = True,
    checkpoint: str | Path | None = None,
    test: Block | None = None,
) -> Run:
    """Run an algorithm over the first `steps` samples of every learner.

    Args:
        algorithm: made by a function of `gossamer.algorithms`.
        stream: the learners' samples.
        steps: samples per learner; exchanges follow from the algorithm's schedule. Steps after the last whole block
            are played with the last decision and never released.
        seed: of the noise; there is no default.
        seeds: several at once instead, in one compiled program: results get a leading seed axis.
        noise: makes the noise source from a seed.
        measure: "global": each decision on the samples of all learners; "local": on the learner's own; "joint": the
            decision put together from the coordinates that each learner controls, on all samples.
        every: exchanges per row of the result, each row a mean over all its steps; by default about 1000 rows,
            or about 50 where there is a test.
        record: any of "decisions", "messages" and, where there is a server, "broadcasts": the transcript of what was
            played, said and answered. Of accelerated gossip it holds the first iterate of each exchange; the others are
            public linear functions of the first ones.
        chunk: exchanges per compiled call; by default what keeps the inputs of a call at a few megabytes.
        debug: run the same functions in plain Python, learner by learner.
        progress: show a progress bar where the output is a terminal.
        checkpoint: a file that the run continues from where it exists, and that is kept up to date.
        test: samples held out, x (rows, features...) and y (rows,). At the end of every row of the result the
            decisions that would be played next are evaluated on them. Nothing else in the run depends on them.

    Returns:
        The run: see `Run`.

    >>> from gossamer import algorithms, problems, simulate, streams, topology
    >>> stream = streams.random_signs(4, 3, seed=1)
    >>> run = simulate(algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1), stream, 200, seed=0)
    >>> run.losses.shape, run.messages, run.bytes
    ((200, 4), 1600, 19200)
    """
    chosen = _seeds(seed, seeds)
    check_run(algorithm, stream, steps, measure, every, chunk, record)
    begun = time.perf_counter()
    feeder = Feeder(algorithm, stream, tuple(noise(s) for s in chosen))
    program = Program.of(algorithm, stream.shared, measure, tuple(record), debug)
    held_out = None if test is None else HeldOut.of(program, test)
    keeper = _Keeper()
    if checkpoint is not None:
        keeper = _Keeper(Path(checkpoint), checkpoints.identity(feeder, program, chosen, noise, held_out))
    exchanges = algorithm.schedule.exchanges(steps)
    usual = max(1, exchanges // (_TESTED_ROWS if held_out else _ROWS))
    done = keeper.resume(engine.start_many(program, len(chosen)), every, usual, exchanges, stream)
    block = max(segment.block for segment in algorithm.schedule.segments(steps))
    length = chunk or chunk_length(algorithm, feeder.sources, block, batch_of(stream))
    plan = chunks(algorithm.schedule.segments(steps), length, done.exchanges)
    if held_out:
        plan = cut_at_rows(plan, done.tally.every)
    with _bar(progress, algorithm.name, exchanges, done.exchanges) as advance:
        done = _play_all(feeder, program, plan, done, debug, keeper, advance, held_out)
    last = _play_rest(feeder, program, steps, done)
    if held_out and done.tally.tested < done.tally.rows:  # the run ends within a row
        done.tally.add_test(held_out.evaluate(last))
    run = report(algorithm, _promise(feeder, debug), program, done.tally, last)
    single = seeds is None
    run = replace(run, seed=chosen[0] if single else chosen, wall_time=time.perf_counter() - begun)
    return without_seed_axis(run) if single else run


def _promise(feeder: Feeder, debug: bool) -> Guarantee:
    """The guarantee of this run: of this stream, of this noise, of one seed, and of the program that ran."""
    stream = feeder.stream
    promise = feeder.algorithm.guarantee.for_stream(
        stream.occurrences, promises=stream.unenforced, public_labels=stream.public_labels
    )
    if promise.basis == "none":
        return promise
    if debug and promise.basis == "proven":
        promise = promise.after_check([], [Assumption("what ran, functions as written, is what was checked")], "")
    if not all(isinstance(source, SecureNoise) for source in feeder.sources):
        promise = promise.because("as if run with secure noise")
    return promise.because("each seed for itself") if len(feeder.sources) > 1 else promise


class _Played(NamedTuple):
    """A chunk that JAX is computing, or has computed: how many rows it measures, its states and its outputs.

    `ahead` holds the decisions after it, where they are to be tested; `seen` all samples up to its end.
    """

    chunk: Chunk
    rows: int
    worlds: World
    outputs: Outputs
    ahead: jax.Array | None
    seen: Seen


def _play_all(
    feeder: Feeder,
    program: Program,
    plan: Iterator[Chunk],
    done: Progress,
    debug: bool,
    keeper: _Keeper,
    advance: Callable[[int], None],
    held_out: HeldOut | None,
) -> Progress:
    """Every whole block, chunk by chunk.

    Only `look` moves the progress on: the states and the sums of a chunk together. Whatever interrupts a run, the
    checkpoint on disk never holds the one without the other.
    """
    constant, worlds, tally, seen = feeder.constant(), done.worlds, done.tally, done.seen
    run_chunk = debugger.run_chunk if debug else engine.run_chunk

    def look(progress: Progress, played: _Played | None, *, last: bool) -> Progress:
        """Wait for the outputs of a chunk, and add them up."""
        if played is None:
            return progress
        chunk, rows, worlds, outputs, ahead, seen = played
        shown = jax.tree.map(lambda leaf: np.asarray(leaf)[chunk.first : chunk.stop], outputs)
        messages = feeder.messages(chunk)
        scores = held_out.evaluate(np.asarray(ahead)) if held_out and ahead is not None else None
        tally.add(chunk.origin + chunk.first, shown, rows=rows, steps=chunk.block, messages=messages)
        if scores is not None:
            tally.add_test(scores)
        progress = Progress(chunk.origin + chunk.stop, worlds, tally, seen)
        keeper.keep(progress, now=last)
        advance(progress.exchanges)
        return progress

    played: _Played | None = None
    for chunk in plan:
        try:
            inputs = feeder.inputs(chunk)  # JAX computes the chunk before meanwhile, on another core
        except GossamerError:  # a live stream ended early: what was played is kept
            look(done, played, last=True)
            raise
        worlds, outputs = run_chunk(program, constant, worlds, inputs, chunk.first, chunk.stop)
        tested = held_out is not None and (chunk.origin + chunk.stop) % tally.every == 0
        ahead = _play_next(feeder, program, worlds, _after(chunk))[0] if tested else None
        seen = keeper.saw(seen, inputs.block, chunk)
        done = look(done, played, last=False)
        played = _Played(chunk, _rows(program, inputs.block.x, chunk.block), worlds, outputs, ahead, seen)
    return look(done, played, last=True)


def _play_rest(feeder: Feeder, program: Program, steps: int, done: Progress) -> NDArray[np.float32]:
    """The steps after the last whole block; returns the last decisions, axes (seed, learner, coordinate)."""
    played = sum(s.exchanges * s.block for s in feeder.algorithm.schedule.segments(steps))
    rest = steps - played
    decisions, outputs, rows = _play_next(feeder, program, done.worlds, Chunk(done.exchanges, 1, 0, 1, rest, played))
    if rest:
        outputs = jax.tree.map(lambda leaf: np.asarray(leaf)[None], outputs)
        done.tally.add(done.exchanges, outputs, rows=rows, steps=rest, messages=0)
    return np.asarray(decisions)


def _after(chunk: Chunk) -> Chunk:
    """The exchange after a chunk, without its samples."""
    step = chunk.step + (chunk.stop - chunk.first) * chunk.block
    return Chunk(chunk.origin + chunk.stop, 1, 0, 1, 0, step)


def _play_next(feeder: Feeder, program: Program, worlds: World, chunk: Chunk) -> tuple[jax.Array, Outputs, int]:
    """The decisions of a single exchange in which nothing is learnt, what they show, and on how many samples."""
    inputs = feeder.inputs(chunk, used_in=("decide",))
    return *engine.play(program, worlds, engine.at(inputs, 0)), _rows(program, inputs.block.x, chunk.block)


def _rows(program: Program, x: Any, block: int) -> int:
    """How many samples each decision is measured on in one exchange; axes of x: (exchange, step, learner, ...)."""
    own = program.measure == "local" and not program.shared
    return block if own else block * x.shape[2]


@dataclass
class _Keeper:
    """Resumes from the checkpoint and keeps it up to date, at most every few seconds."""

    path: Path | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    written: float = 0.0

    def resume(self, fresh: World, every: int | None, usual: int, exchanges: int, stream: Stream) -> Progress:
        """What the file holds, or a fresh start with rows of `every` exchanges, or of the usual number."""
        stored = self.path and checkpoints.read(self.path, self.identity, fresh, every, stream)
        if not stored:
            return Progress(0, fresh, Tally(every or usual), Seen())
        if stored.exchanges > exchanges:
            raise ConfigurationError(
                "steps", f"{exchanges} exchanges", f"at least the {stored.exchanges} in {self.path}"
            )
        return stored

    def saw(self, seen: Seen, block: Block, chunk: Chunk) -> Seen:
        """With the samples of a chunk, where there is a checkpoint that must know them."""
        if not self.path:
            return seen
        rows = (leaf[chunk.first : chunk.stop] for leaf in block)
        return seen.plus(Block(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in rows)))

    def keep(self, progress: Progress, *, now: bool = False) -> None:
        if self.path and (now or time.monotonic() - self.written > _CHECKPOINT_SECONDS):
            checkpoints.write(self.path, self.identity, progress)
            self.written = time.monotonic()


def _seeds(seed: int | None, seeds: Sequence[int] | None) -> list[int]:
    if (seed is None) == (seeds is None) or (seeds is not None and not len(seeds)):
        raise ConfigurationError(
            "seed", seed if seeds is None else seeds, "either seed=number or seeds=[...]", "try seed=0"
        )
    return [check_seed(one) for one in ([seed] if seeds is None else seeds)]


def check_run(
    algorithm: Algorithm,
    stream: Stream,
    steps: int,
    measure: str,
    every: int | None,
    chunk: int | None,
    record: Sequence[str],
) -> None:
    """Refuse what cannot run, before anything runs."""
    if stream.learners not in (None, algorithm.learners):
        raise ConfigurationError(
            "stream", f"{stream.learners} learners", f"{algorithm.learners}, as on {algorithm.topology.name}"
        )
    for name, given in (("steps", steps), ("every", every), ("chunk", chunk)):
        if given is not None:
            check_count(name, given)
    _check_privacy(algorithm, stream, steps)
    if stream.length is not None and steps > stream.length:
        raise DataError(f"{steps} steps were asked for, and the stream has {stream.length} steps")
    if algorithm.schedule.exchanges(steps) < 1:
        raise ConfigurationError(
            "steps", steps, f"at least one whole block of {algorithm.schedule}", "shorten the block or run longer"
        )
    if measure not in get_args(Measure):
        raise ConfigurationError("measure", measure, "'global', 'local' or 'joint'")
    if measure == "joint" and algorithm.coordinates is None:
        raise ConfigurationError(
            "measure", measure, "'global' or 'local'", f"{algorithm.name} learners each own a whole decision"
        )
    if isinstance(record, str) or not set(record) <= set(RECORDS):
        raise ConfigurationError("record", record, f"a list with any of {RECORDS}", "try record=['messages']")
    if "broadcasts" in record and algorithm.server is None:
        raise ConfigurationError("record", record, "'decisions' and 'messages' where there is no server")


def _check_privacy(algorithm: Algorithm, stream: Stream, steps: int) -> None:
    """Refuse a run that the guarantee does not cover, before any noise is drawn."""
    promise = algorithm.guarantee
    if promise.horizon is not None and steps > promise.horizon:
        raise PrivacyError.of(
            "steps", steps, f"at most the horizon of {promise.horizon:,}", "make it with a longer one"
        )
    algorithm.require(algorithm.schedule.exchanges(steps))
    if promise.basis != "none" and stream.shared != (promise.unit in (Unit.BATCH, Unit.BATCH_SAMPLE)):
        data = "one batch common to all learners" if stream.shared else "samples of its own for every learner"
        raise PrivacyError.of("stream", data, f"data of which {promise.unit} is the unit of privacy")


@contextmanager
def _no_bar() -> Iterator[Callable[[int], None]]:
    yield lambda _: None


def _bar(show: bool, name: str, total: int, done: int) -> AbstractContextManager[Callable[[int], None]]:
    """A progress bar on standard error, where that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    return _rich_bar(console, name, total, done) if show and console.is_terminal else _no_bar()


@contextmanager
def _rich_bar(console: Any, name: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    from rich.progress import Progress as Bar

    with Bar(console=console, transient=True) as bar:
        task = bar.add_task(name, total=total, completed=done)
        yield lambda completed: bar.update(task, completed=completed)
