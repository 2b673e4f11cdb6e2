"""Streams: what every learner sees, step by step."""

from gossamer.streams.arrays import ArrayStream, common, from_arrays
from gossamer.streams.base import Feed, Stream
from gossamer.streams.drawing import Draws, Generated
from gossamer.streams.drift import Mirrored, blend, mirrored, sequence
from gossamer.streams.experts import (
    Experts,
    drifting_experts,
    hard_experts,
    hidden_expert,
    realizable_experts,
    stochastic_experts,
)
from gossamer.streams.files import from_file, read_records
from gossamer.streams.generators import (
    clusters,
    heterogeneous_logistic,
    linear_regression,
    random_signs,
    smooth_cycle_logistic,
)
from gossamer.streams.live import LiveStream, from_iterators
from gossamer.streams.partition import Partition, Rest
from gossamer.streams.poker import POKER_CLASSES, poker_hands, poker_label

__all__ = [
    "POKER_CLASSES",
    "ArrayStream",
    "Draws",
    "Experts",
    "Feed",
    "Generated",
    "LiveStream",
    "Mirrored",
    "Partition",
    "Rest",
    "Stream",
    "blend",
    "clusters",
    "common",
    "drifting_experts",
    "from_arrays",
    "from_file",
    "from_iterators",
    "hard_experts",
    "heterogeneous_logistic",
    "hidden_expert",
    "linear_regression",
    "mirrored",
    "poker_hands",
    "poker_label",
    "random_signs",
    "read_records",
    "realizable_experts",
    "sequence",
    "smooth_cycle_logistic",
    "stochastic_experts",
]
