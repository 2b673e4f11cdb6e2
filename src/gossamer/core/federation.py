"""The network of learners around a server."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count, check_positive, check_seed
from gossamer.errors import ConfigurationError
from gossamer.spec import kind
from gossamer.topology import public_draws


@kind("topology", "server")
@dataclass(frozen=True)
class Federation:
    """The network of a federated algorithm: every learner talks to one server and to nobody else.

    Attributes:
        learners: how many.
        participation: how likely a learner is to take part in a round. One that does not uses none of its samples of
            that round, says nothing (the server counts zeros) and keeps its state; it hears the broadcast like all.
        seed: of who takes part when: public, and a function of the round's number only.

    >>> Federation(20).name
    'server with 20 learners'
    >>> Federation(4, participation=0.5, seed=1).present(np.arange(2))
    array([[False,  True, False,  True],
           [ True, False, False,  True]])
    """

    learners: int
    participation: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("learners", self.learners)
        check_seed(self.seed)
        check_positive("participation", self.participation)
        if self.participation > 1:
            raise ConfigurationError("participation", self.participation, "a probability above 0, at most 1")

    @classmethod
    def of(cls, given: int | Federation) -> Federation:
        """The network that a user gave; a number stands for as many learners, present in every round.

        >>> Federation.of(3)
        Federation(learners=3, participation=1.0, seed=0)
        """
        return given if isinstance(given, Federation) else cls(given)

    @property
    def name(self) -> str:
        """How the network is called in tables."""
        some = f", each present with probability {self.participation:g}" if self.participation < 1 else ""
        return f"server with {self.learners} learners{some}"

    @property
    def fixed(self) -> bool:
        """Whether everybody takes part in every round."""
        return self.participation == 1

    def links(self, exchanges: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many messages travel in each exchange: one up from whoever takes part, and one down to everybody.

        >>> Federation(20).links(np.arange(2))
        array([40, 40])
        """
        return np.asarray(self.learners + self.present(exchanges).sum(axis=1))

    def present(self, exchanges: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Who takes part in each of these exchanges: axes (exchange, learner)."""
        if self.fixed:
            return np.ones((len(exchanges), self.learners), np.bool_)
        draws = public_draws(self.seed, exchanges, self.learners)
        return np.asarray(draws < np.uint64(self.participation * 2.0**64))
