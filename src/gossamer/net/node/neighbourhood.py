"""Whom one learner hears, and who hears it, at every exchange."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gossamer.topology import Topology

_AHEAD = 64
"""Exchanges of a changing topology that are looked up at once."""


class Neighbourhood(NamedTuple):
    """The network around one learner at one exchange.

    Attributes:
        own: the weight that the learner gives to its own message.
        hears: whom it hears, with the weight of each.
        heard_by: who hears it, with the weight that each of them gives to its message.
    """

    own: float
    hears: Mapping[int, float]
    heard_by: Mapping[int, float]


class Neighbourhoods:
    """The neighbourhoods of one learner, exchange by exchange, with the weights in float64.

    >>> from gossamer import topology
    >>> Neighbourhoods(topology.directed_ring(3), learner=0).at(7)
    Neighbourhood(own=0.5, hears={2: 0.5}, heard_by={1: 0.5})
    """

    def __init__(self, topology: Topology, learner: int) -> None:
        self._topology, self._learner = topology, learner
        self._known: dict[int, Neighbourhood] = {}
        if topology.fixed:
            self._known = self._look_up(np.zeros(1, np.int64))

    def at(self, exchange: int) -> Neighbourhood:
        """The neighbourhood at one exchange."""
        number = 0 if self._topology.fixed else exchange
        if number not in self._known:
            self._known = self._look_up(number + np.arange(_AHEAD, dtype=np.int64))
        return self._known[number]

    def _look_up(self, exchanges: np.ndarray) -> dict[int, Neighbourhood]:
        speakers, weights = self._topology.neighbours(exchanges)
        return {
            int(exchange): _around(self._learner, speakers[row], weights[row]) for row, exchange in enumerate(exchanges)
        }


def _around(learner: int, speakers: np.ndarray, weights: np.ndarray) -> Neighbourhood:
    """From the padded lists of one exchange: unused places hold the learner itself, with weight 0."""
    hears = {
        int(j): float(weight)
        for j, weight in zip(speakers[learner], weights[learner, 1:], strict=True)
        if weight and j != learner
    }
    rows, places = np.nonzero((speakers == learner) & (weights[:, 1:] != 0))
    heard_by = {int(i): float(weights[i, place + 1]) for i, place in zip(rows, places, strict=True) if i != learner}
    return Neighbourhood(float(weights[learner, 0]), hears, heard_by)
