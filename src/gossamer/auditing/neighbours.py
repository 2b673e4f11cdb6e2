"""Whether two inputs are neighbours: what differs is one unit of privacy, neither more nor nothing."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import AboveThreshold, Additive, Calibrated, Independent, Mechanism
from gossamer.mechanisms.selection import Selection
from gossamer.privacy import Unit
from gossamer.streams import Stream

_SLACK = 1 + 1e-6  # float32 values whose difference rounds up are no wider apart than was said


def changed_learners(stream: Stream, neighbour: Stream, steps: int, unit: Unit | None) -> tuple[int, ...]:
    """The learners (or places in a common batch) whose data differ; refused where that is not one unit.

    Without a unit any samples may differ: how many of them one record changes is then what is audited.
    """
    changed = changed_samples(stream, neighbour, steps)
    if not (_ONE_UNIT[unit](changed) if unit else changed.any()):
        allowed = f"{unit or 'at least one sample'} changed within the {steps:,} steps of the audit"
        raise ConfigurationError("neighbour", f"{changed.sum():,} changed samples", allowed)
    return tuple(np.flatnonzero(changed.any(axis=0)).tolist())


def changed_samples(stream: Stream, neighbour: Stream, steps: int) -> NDArray[np.bool_]:
    """Which samples of the first steps differ, axes (step, learner or place in a common batch).

    >>> from gossamer import streams
    >>> one, other = (streams.from_arrays([[0.0], [x]], [0, 0], 2, seed=0, shuffle=False) for x in (1.0, 2.0))
    >>> changed_samples(one, other, 1)
    array([[False,  True]])
    """
    ours, theirs = stream.read(0, steps), neighbour.read(0, steps)
    if ours.x.shape != theirs.x.shape:
        raise ConfigurationError("neighbour", theirs.x.shape, f"samples of shape {ours.x.shape}, as in the stream")
    features = np.any((ours.x != theirs.x).reshape(*ours.y.shape, -1), axis=-1)
    return np.asarray(features | (ours.y != theirs.y))


_ONE_UNIT: Mapping[Unit, Any] = {
    Unit.SAMPLE: lambda changed: changed.sum() == 1,
    Unit.BATCH_SAMPLE: lambda changed: changed.sum() == 1,
    Unit.BATCH: lambda changed: changed.any(axis=1).sum() == 1,
    Unit.SAMPLE_OF_EACH: lambda changed: changed.any() and changed.sum(axis=0).max() == 1,
}


def check_values(release: Calibrated[Mechanism], values: NDArray[Any], neighbours: NDArray[Any]) -> None:
    """Refuse sequences of values further apart than one unit may move them, by the mechanism's own promise."""
    mechanism = release.mechanism
    if not release.sensitivities:
        raise PrivacyError.of("sensitivity", None, "a bound", "only a calibrated mechanism makes a claim to audit")
    if values.shape != neighbours.shape or values.ndim == 0 or values.shape[1:] != mechanism.shape:
        allowed = f"two arrays of the same shape (positions, *{mechanism.shape})"
        raise ConfigurationError("values", (values.shape, neighbours.shape), allowed)
    moves = (values.astype(np.float64) - neighbours).reshape(len(values), -1)
    moved = moves[moves.any(axis=1)]
    if not 1 <= len(moved) <= _most_moved(mechanism, len(values)):
        allowed = f"from 1 to {_most_moved(mechanism, len(values)):,}"
        raise ConfigurationError("neighbours", f"{len(moved):,} values that move", allowed)
    order = (
        mechanism.order if isinstance(mechanism, Additive) else np.inf
    )  # of scores and queries: that of each of them
    largest = float(np.linalg.norm(moved, ord=order, axis=1).max())
    bound = release.sensitivities[0].of(mechanism.order)
    if largest > bound * _SLACK:
        raise ConfigurationError("neighbours", f"a value that moves by {largest:g}", f"moves by at most {bound:g}")
    if _goes_both_ways(mechanism, moved):
        raise ConfigurationError("neighbours", "moves both ways", "moves one way, as a monotone mechanism was promised")


def _most_moved(mechanism: Mechanism, positions: int) -> int:
    """How many of the values one unit may move."""
    if isinstance(mechanism, AboveThreshold):
        return 1 if mechanism.shift == "constant" else positions
    if isinstance(mechanism, Independent | Selection):
        return positions if mechanism.touches is None else min(mechanism.touches, positions)
    return 1


def _goes_both_ways(mechanism: Mechanism, moved: NDArray[Any]) -> bool:
    """Whether moves break the promise of a monotone mechanism: within a selection, or over all queries."""
    if isinstance(mechanism, Selection) and mechanism.monotone:
        return bool(np.any((moved > 0).any(axis=1) & (moved < 0).any(axis=1)))
    monotone = isinstance(mechanism, AboveThreshold) and mechanism.shift == "monotone"
    return monotone and bool((moved > 0).any() and (moved < 0).any())
