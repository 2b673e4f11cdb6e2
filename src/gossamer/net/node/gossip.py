"""What one learner makes of its message and of those of its neighbours, gossip step by gossip step.

The same as `topology.mixing` does for all learners at once, in float64 and with messages that may be missing:

- `Averaging`     H_i <- sum_j P_ij H_j; a missing H_j counts as H_i.
- `Accelerated`   H_i <- (1 + theta) sum_j P_ij H_j - theta H_i(before), eq. (5) of paper 000. A step in which a message
                  is missing is a plain one: acceleration with other weights than its own may diverge.
- `Cumulative`    push-sum. To every neighbour goes the sum of all that it was ever sent, so that the next message to
                  arrive brings along what was lost, and one that arrives twice brings nothing: no mass is lost.
                  A learner gives nothing to those who are gone, nor after a step in which it heard nobody: its mass
                  would run dry.

Where noise is added after gossip a missing message ends the gossip of that exchange (`GivenUp`): nothing is heard.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gossamer.core import Missing
from gossamer.net.node.neighbourhood import Neighbourhood
from gossamer.net.wire.transport import ALL

Values = tuple[NDArray[Any], ...]
"""The arrays of one message."""

Outgoing = tuple[Mapping[int, Values], "LocalGossip"]
"""What is sent in a step, by receiver (or to `ALL`), and the gossip with that written down."""

_PIECE = 16_384  # numbers: two pieces of 128 KB are in the second cache


class LocalGossip(ABC):
    """The gossip of one learner in one exchange. Methods change nothing: each step makes a new value.

    Attributes:
        word: what it is called on disk.
    """

    word: ClassVar[str]

    @abstractmethod
    def outgoing(self, around: Neighbourhood, gone: frozenset[int] = frozenset()) -> Outgoing:
        """What is sent in the next step, by receiver (or to `ALL`), and the gossip with that written down.

        Args:
            around: the network.
            gone: receivers that are known not to listen.
        """

    @abstractmethod
    def mixed(self, around: Neighbourhood, arrived: Mapping[int, Values]) -> LocalGossip:
        """After a step in which these messages arrived."""

    @abstractmethod
    def heard(self) -> tuple[Values, ...]:
        """What was made of the messages: one tuple, or two where the iterate before counts too."""

    def arrays(self) -> list[Any]:
        """All of the first step that cannot be read in the message that was sent: lists and dictionaries of arrays."""
        return []

    @property
    def told_by_messages(self) -> bool:
        """Whether a later step can be restored from this one's `arrays` and the messages since."""
        return True


@dataclass(frozen=True)
class Averaging(LocalGossip):
    """Plain gossip.

    >>> around = Neighbourhood(own=0.5, hears={1: 0.25, 2: 0.25}, heard_by={1: 0.25, 2: 0.25})
    >>> Averaging((np.array([4.0]),)).mixed(around, {1: (np.array([8.0]),)}).heard()
    ((array([5.]),),)
    """

    word = "plain"
    now: Values

    def outgoing(self, around: Neighbourhood, gone: frozenset[int] = frozenset()) -> Outgoing:
        """The same to all."""
        return {ALL: self.now}, self

    def mixed(self, around: Neighbourhood, arrived: Mapping[int, Values]) -> LocalGossip:
        """The weighted sum."""
        return Averaging(_weighted_sum(_terms(self.now, around, arrived)))

    def heard(self) -> tuple[Values, ...]:
        """The iterate."""
        return (self.now,)


@dataclass(frozen=True)
class Accelerated(LocalGossip):
    """Accelerated gossip; the iterate before stays with its learner."""

    word = "accelerated"
    now: Values
    before: Values
    theta: float

    def outgoing(self, around: Neighbourhood, gone: frozenset[int] = frozenset()) -> Outgoing:
        """The same to all."""
        return {ALL: self.now}, self

    def mixed(self, around: Neighbourhood, arrived: Mapping[int, Values]) -> LocalGossip:
        """Eq. (5)."""
        terms = _terms(self.now, around, arrived)
        if set(around.hears) <= set(arrived):
            terms = [((1 + self.theta) * weight, values) for weight, values in terms] + [(-self.theta, self.before)]
        return Accelerated(_weighted_sum(terms), self.now, self.theta)

    def heard(self) -> tuple[Values, ...]:
        """The last two iterates."""
        return self.now, self.before

    def arrays(self) -> list[Any]:
        """The iterate before, which is not sent."""
        return [list(self.before)]


@dataclass(frozen=True)
class Cumulative(LocalGossip):
    """Push-sum with running sums.

    Attributes:
        now: what the learner holds.
        sent: to each neighbour, all that it was ever sent.
        got: from each neighbour, all that ever arrived.
        alone: whether nobody was heard at the last step.
        kept: the share that it kept for itself when it last sent.

    >>> around = Neighbourhood(own=0.5, hears={1: 0.5}, heard_by={1: 0.5})
    >>> sums, gossip = Cumulative((np.array([4.0]),)).outgoing(around)
    >>> lost = gossip.mixed(around, {})
    >>> sums, lost.heard(), lost.outgoing(around)[1].mixed(around, {1: (np.array([3.0]),)}).heard()
    ({1: (array([2.]),)}, ((array([2.]),),), ((array([5.]),),))
    """

    word = "push-sum"
    now: Values
    sent: Mapping[int, Values] = field(default_factory=dict)
    got: Mapping[int, Values] = field(default_factory=dict)
    alone: bool = False
    kept: float = 1.0

    def outgoing(self, around: Neighbourhood, gone: frozenset[int] = frozenset()) -> Outgoing:
        """To everybody who hears it, its share on top of all that it was sent before."""
        given = {who: weight for who, weight in around.heard_by.items() if who not in gone and not self.alone}
        sums = {
            receiver: _added(self.sent.get(receiver), _times(given.get(receiver, 0.0), self.now))
            for receiver in around.heard_by
        }
        kept = around.own + sum(weight for who, weight in around.heard_by.items() if who not in given)
        return sums, replace(self, sent={**self.sent, **sums}, kept=kept)

    def mixed(self, around: Neighbourhood, arrived: Mapping[int, Values]) -> LocalGossip:
        """What it keeps for itself, and what is new in the sums that arrived."""
        now = _times(self.kept, self.now)
        for sender, sums in arrived.items():
            before = self.got.get(sender)
            now = _added(now, sums if before is None else tuple(a - b for a, b in zip(sums, before, strict=True)))
        return replace(self, now=now, got={**self.got, **arrived}, alone=bool(around.hears) and not arrived)

    def heard(self) -> tuple[Values, ...]:
        """What it holds."""
        return (self.now,)

    @property
    def told_by_messages(self) -> bool:
        """No: what arrived is not in it."""
        return False

    def arrays(self) -> list[Any]:
        """All sums."""
        sums = ({who: list(each) for who, each in sums.items()} for sums in (self.sent, self.got))
        return [list(self.now), *sums, self.alone, self.kept]


@dataclass(frozen=True)
class GivenUp(LocalGossip):
    """The gossip of an exchange in which a message was missing, and whose noise covers no other than its exact result.

    All who hear of it give up too. Whoever does not, got all messages of all steps, and has the exact result.
    """

    word = "given up"
    zeros: Values

    def outgoing(self, around: Neighbourhood, gone: frozenset[int] = frozenset()) -> Outgoing:
        """Nothing."""
        return {}, self

    def mixed(self, around: Neighbourhood, arrived: Mapping[int, Values]) -> LocalGossip:
        """Nothing."""
        return self

    def heard(self) -> tuple[Values, ...]:
        """Zeros: the sum that is released grows by noise alone."""
        return self.zeros, self.zeros


def restored(word: str, arrays: list[Any], sent: Sequence[Values | None], theta: float | None) -> LocalGossip:
    """The gossip of this word that sent these messages, and whose `arrays` at the first of these steps these are.

    Args:
        word: what it is called on disk.
        arrays: of the step at which they were kept.
        sent: the messages of that step and of those since; None where there was none.
        theta: of accelerated gossip.

    >>> gossip = Accelerated((np.ones(1),), (np.zeros(1),), theta=0.5)
    >>> restored("accelerated", gossip.arrays(), [gossip.now], theta=0.5) == gossip
    True
    """
    if word == Cumulative.word:
        now, given, got, alone, kept = arrays
        gave, took = ({who: tuple(each) for who, each in sums.items()} for sums in (given, got))
        return Cumulative(tuple(now), gave, took, alone, kept)
    *earlier, last = sent
    if last is None or word == GivenUp.word:
        first = next((values for values in sent if values is not None), ())
        return GivenUp(tuple(np.zeros_like(value) for value in first))
    if word == Averaging.word:
        return Averaging(last)
    before = earlier[-1] if earlier else tuple(arrays[0])
    assert before is not None
    assert theta is not None
    return Accelerated(last, before, theta)


def after_step(
    gossip: LocalGossip, around: Neighbourhood, arrived: Mapping[int, Values], missing: Missing | None
) -> LocalGossip:
    """One step; where a message is missing, what the algorithm says of it happens.

    >>> around = Neighbourhood(own=0.5, hears={1: 0.5}, heard_by={1: 0.5})
    >>> after_step(Averaging((np.ones(1),)), around, {}, "nothing").heard()
    ((array([0.]),), (array([0.]),))
    """
    if missing == "nothing" and set(around.hears) - set(arrived):
        return GivenUp(tuple(np.zeros_like(value) for value in gossip.heard()[0]))
    return gossip.mixed(around, arrived)


def _terms(now: Values, around: Neighbourhood, arrived: Mapping[int, Values]) -> list[tuple[float, Values]]:
    """Weights and messages of plain gossip: what is missing counts as one's own."""
    own = around.own + sum(weight for sender, weight in around.hears.items() if sender not in arrived)
    return [(own, now), *((weight, arrived[sender]) for sender, weight in around.hears.items() if sender in arrived)]


def _weighted_sum(terms: Sequence[tuple[float, Values]]) -> Values:
    _, first = terms[0]
    return tuple(_sum([(weight, values[place]) for weight, values in terms]) for place in range(len(first)))


def _sum(terms: Sequence[tuple[float, NDArray[Any]]]) -> NDArray[np.float64]:
    """In pieces that stay in the cache: 0.5 instead of 1.2 ms for four times 100,000 numbers."""
    total = np.empty(terms[0][1].shape)
    flat, sums = [(weight, values.reshape(-1)) for weight, values in terms], total.reshape(-1)
    product = np.empty(min(_PIECE, sums.size))
    for begin in range(0, sums.size, _PIECE):
        piece = sums[begin : begin + _PIECE]
        for number, (weight, values) in enumerate(flat):
            out = product[: piece.size] if number else piece
            np.multiply(values[begin : begin + _PIECE], weight, out=out, dtype=np.float64)
            if number:
                np.add(piece, out, out=piece)
    return total


def _times(weight: float, values: Values) -> Values:
    return tuple(np.multiply(value, weight, dtype=np.float64) for value in values)


def _added(one: Values | None, other: Values) -> Values:
    return other if one is None else tuple(a + b for a, b in zip(one, other, strict=True))
