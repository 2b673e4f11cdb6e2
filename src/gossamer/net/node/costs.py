"""What runs have cost, as their ledgers say, and what runs over the same data cost together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from gossamer.net.store.export import Export
from gossamer.net.store.ledger import Ledger
from gossamer.privacy import Guarantee, Loss, compose
from gossamer.privacy.accounting import sampler_share

T = TypeVar("T")


class Cost(NamedTuple):
    """What one run has spent so far.

    Attributes:
        source: name of the data source.
        run: its id.
        learner: whose data it was.
        loss: of all its mechanisms together; None without a guarantee.
        delta: where its epsilon is stated.
        error: how far its noise is from the exact law at most.
        unit: what is protected, and from whom; empty before the first release.
    """

    source: str
    run: str
    learner: int
    loss: Loss | None
    delta: float
    error: float
    unit: str


def added_up(costs: Sequence[Cost], delta: float | None = None) -> tuple[float, float]:
    """Epsilon and delta of runs on the same data, stated at the sum of their deltas unless another one is given.

    The sampler's errors are counted in delta; a run without a guarantee costs everything.

    >>> from gossamer.privacy import Pure
    >>> added_up([Cost("meters", run, 0, Pure(0.5), 0.0, 0.0, "one sample") for run in ("r1", "r2")])
    (1.0, 0.0)
    """
    losses = [cost.loss for cost in costs if cost.loss is not None]
    at = min(1.0, math.fsum(cost.delta for cost in costs)) if delta is None else delta
    if len(losses) < len(costs) or at == 1:
        return math.inf, 1.0
    epsilon = compose(losses).epsilon(at)
    return epsilon, min(1.0, at + sampler_share(math.fsum(cost.error for cost in costs), epsilon))


def cost_of(book: Ledger | Export) -> Cost:
    """What the last row says, in the terms of the guarantee."""
    identity, promise = book.identity, book.promise
    run = book.run or "has not begun"
    if promise is None or book.last.exchange < 0:
        return Cost(identity.source, run, identity.learner, compose([]), 0.0, 0.0, "")
    unit = unit_of(promise)
    if not promise.losses:
        return Cost(identity.source, run, identity.learner, None, 1.0, 0.0, unit)
    spent = [one.loss for one in book.last.spent] or [own_of(promise.losses, identity.learner)]
    loss, delta = compose(spent), own_of(promise.deltas, identity.learner)
    return Cost(identity.source, run, identity.learner, loss, delta, promise.sampler_error, unit)


def unit_of(promise: Guarantee) -> str:
    """What a guarantee protects, and from whom: only where these are the same do losses add up.

    >>> from gossamer.privacy import Pure
    >>> unit_of(Guarantee("proven", losses=(Pure(0.5),), deltas=(0.0,)))
    'one sample of one learner (occurrence), observer peers'
    """
    return f"{promise.unit} ({promise.per}), observer {promise.observer}"


def units_of(costs: Iterable[Cost]) -> list[str]:
    """What these runs protect; those that have released nothing protect nothing."""
    return sorted({cost.unit for cost in costs if cost.unit})


def own_of(each: Sequence[T], learner: int) -> T:
    """This learner's of a guarantee's losses or deltas: there is one for all, or one for each."""
    return each[learner if len(each) > 1 else 0]
