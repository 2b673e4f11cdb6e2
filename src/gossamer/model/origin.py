"""Where a model comes from: which network and learner, or a simulation, and which decisions it is made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from gossamer.checks import check_choice, check_count
from gossamer.errors import ConfigurationError, DataError

Maker = Literal["node", "simulation"]


@dataclass(frozen=True)
class Origin:
    """What a model was taken from.

    Attributes:
        maker: "node": a learner of a network released it; "simulation": a run that had all data in one place.
        exchange: in which the decision is played: it has learnt from all exchanges before. Of a simulation its steps.
        averaged: of how many decisions it is the mean; 1: the last one alone.
        network: id of the network; empty for a simulation.
        learner: the number of the learner; None: the mean over all learners of a simulation.

    >>> print(Origin("node", 120, network="5e1f", learner=2))
    learner 2 of network 5e1f, the decision of exchange 120
    >>> print(Origin("simulation", 50))
    a simulation of 50 steps, the mean over its learners
    """

    maker: Maker
    exchange: int
    averaged: int = 1
    network: str = ""
    learner: int | None = None

    def __post_init__(self) -> None:
        check_choice("maker", self.maker, Maker)
        check_count("exchange", self.exchange, least=0)
        check_count("averaged", self.averaged)
        if self.learner is not None:
            check_count("learner", self.learner, least=0)

    def __str__(self) -> str:
        """In words."""
        if self.maker == "simulation":
            whose = "the mean over its learners" if self.learner is None else f"learner {self.learner}"
            return f"a simulation of {self.exchange:,} steps, {whose}"
        what = f"the mean of {self.averaged:,} decisions up to" if self.averaged > 1 else "the decision of"
        return f"learner {self.learner} of network {self.network}, {what} exchange {self.exchange:,}"

    def table(self) -> dict[str, Any]:
        """As plain values: what `of` reads."""
        return asdict(self)

    @classmethod
    def of(cls, table: Any) -> Origin:
        """The origin that `table` wrote.

        >>> Origin.of(Origin("node", 3, network="5e1f", learner=0).table()).learner
        0
        """
        if not isinstance(table, dict) or table.keys() != {field.name for field in fields(cls)}:
            raise DataError("it does not say where it comes from in the words of this version")
        try:
            return cls(**table)
        except ConfigurationError as error:
            raise DataError(f"where it comes from cannot be read: {error}") from None
