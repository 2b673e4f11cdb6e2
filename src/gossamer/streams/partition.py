"""Who gets which records: the partitions of `from_arrays`."""

from typing import Literal

import numpy as np

from gossamer.checks import check_choice
from gossamer.errors import ConfigurationError, DataError
from gossamer.streams.base import Array

Partition = Literal["iid", "by-label", "label-skew"]
Rest = Literal["others", "all"]


def shares_of(
    partition: Partition, labels: Array, learners: int, skew: float | None = None, rest: Rest = "others"
) -> list[Array]:
    """The record numbers of every learner by label. Records are dealt in the order given: shuffle before.

    >>> [share.tolist() for share in shares_of("by-label", np.array([0, 1, 0, 1]), 2)]
    [[0, 2], [1, 3]]
    """
    if partition == "by-label":
        shares = _by_label(_classes(labels), learners)
    else:
        assert skew is not None  # check_partition has seen to it
        shares = _label_skew(_classes(labels), learners, skew, rest)
    for learner, share in enumerate(shares):
        if len(share) == 0:
            raise DataError(f"learner {learner} of {learners} gets no records; use fewer learners or less skew")
    return shares


def check_partition(partition: str, labels: Array, learners: int, skew: float | None, rest: str) -> None:
    """Refuse what does not fit together."""
    check_choice("partition", partition, Partition)
    check_choice("rest", rest, Rest)
    if partition == "label-skew" and (skew is None or not 0 <= skew <= 1):
        raise ConfigurationError("skew", skew, "a share between 0 and 1", "paper 003 has skew=0.4")
    if partition != "label-skew" and skew is not None:
        raise ConfigurationError("skew", skew, f"None with partition {partition!r}", "use 'label-skew'")
    if partition == "label-skew" and rest == "others" and learners == 1:
        raise ConfigurationError("rest", rest, "'all' for a single learner", "there are no others")
    if partition != "iid" and labels.dtype.kind == "f":
        raise ConfigurationError("partition", partition, "'iid' for regression targets", "labels are floats")


def _classes(labels: Array) -> list[Array]:
    """The record numbers of every class, classes in rising order."""
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _deal(records: Array, players: int) -> list[Array]:
    """Like cards: the shares differ by one record at most."""
    return [records[first::players] for first in range(players)]


def _by_label(classes: list[Array], learners: int) -> list[Array]:
    if learners < len(classes):
        return [np.concatenate(classes[learner::learners]) for learner in range(learners)]
    players = [1] * len(classes)
    for _ in range(learners - len(classes)):  # the next learner goes where shares are largest
        crowded = max(range(len(classes)), key=lambda c: len(classes[c]) / players[c])
        players[crowded] += 1
    return [share for own, count in zip(classes, players, strict=True) for share in _deal(own, count)]


def _label_skew(classes: list[Array], learners: int, skew: float, rest: Rest) -> list[Array]:
    dealt: list[list[Array]] = [[] for _ in range(learners)]
    spread = []
    for number, records in enumerate(classes):
        owner, kept = number % learners, round(skew * len(records))
        dealt[owner].append(records[:kept])
        spread.append(records[kept:])
        if rest == "others":
            others = [(owner + step) % learners for step in range(1, learners)]
            for learner, share in zip(others, _deal(records[kept:], learners - 1), strict=True):
                dealt[learner].append(share)
    if rest == "all":
        for learner, share in enumerate(_deal(np.concatenate(spread), learners)):
            dealt[learner].append(share)
    return [np.concatenate(parts) for parts in dealt]
