"""What a run is refused for, before anything runs."""

from collections.abc import Sequence
from typing import get_args

from gossamer.checks import check_count, check_seed
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, DataError, PrivacyError
from gossamer.privacy import Unit
from gossamer.simulation.program import Measure
from gossamer.streams import Stream

RECORDS = ("decisions", "messages", "broadcasts")


def check_seeds(seed: int | None, seeds: Sequence[int] | None) -> list[int]:
    """The seeds of a run: of `seed` or of `seeds` exactly one is given."""
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
