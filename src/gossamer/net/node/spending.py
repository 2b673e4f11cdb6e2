"""What the releases of one node cost, whether one more is covered, and what runs over the same data cost together."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.store.chain import Spent
from gossamer.net.store.export import Export
from gossamer.net.store.ledger import Ledger
from gossamer.net.web.status_board import Plan
from gossamer.privacy import Budget, Guarantee, Loss, accounting, compose
from gossamer.privacy.loss import worst
from gossamer.privacy.units import content_of

T = TypeVar("T")

_ENDLESS = 2**40
"""Exchanges: nobody makes so many."""

Refusal = Literal["horizon_used_up", "budget_used_up"]
"""Why nothing is released any more."""


LOST = "lost"
"""Why a run has ended of which only a backup is left: what it spent after that nobody knows, so all of it counts."""

_DIGITS = 10_000  # parts of one, to which a budget is rounded up


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
    return epsilon, min(1.0, at + accounting.sampler_share(math.fsum(cost.error for cost in costs), epsilon))


def costs_of(ledger: Ledger | Export) -> list[Cost]:
    """What the last row says, in the terms of the guarantee, for each source that the run has read.

    One that it read twice may hold records that came twice: these cost what two records cost that change together.
    """
    times, cost = Counter(ledger.sources), cost_of_one(ledger)
    return [several_times(cost, times[source])._replace(source=source) for source in sorted(times)]


def sum_of(costs: Sequence[Cost]) -> Cost:
    """What several runs of one learner cost together."""
    losses = [cost.loss for cost in costs if cost.loss is not None]
    return costs[0]._replace(
        loss=compose(losses) if len(losses) == len(costs) else None,
        delta=math.fsum(cost.delta for cost in costs),
        error=math.fsum(cost.error for cost in costs),
    )


def largest_of(costs: Sequence[Cost]) -> Cost:
    """The most that any of several runs costs."""
    losses = [cost.loss for cost in costs if cost.loss is not None]
    return costs[0]._replace(
        loss=worst(losses) if len(losses) == len(costs) else None,
        delta=max(cost.delta for cost in costs),
        error=max(cost.error for cost in costs),
    )


def several_times(cost: Cost, times: int) -> Cost:
    """What a record costs that came so often: what so many records cost that change together.

    >>> from gossamer.privacy import Pure
    >>> several_times(Cost("meters", "r1", 0, Pure(0.5), 0.0, 0.0, "one sample"), 2).loss
    Pure(value=1.0)
    """
    return cost if cost.loss is None or times == 1 else cost._replace(loss=cost.loss.group(times))


def cost_of_one(ledger: Ledger | Export) -> Cost:
    """What the last row says, of a record that came once, under the name that its data had first."""
    identity, promise = ledger.identity, ledger.promise
    run = ledger.run or "has not begun"
    lost = ledger.last.kind == "end" and ledger.last.note == LOST
    if promise is None or (ledger.last.exchange < 0 and not lost):
        return Cost(identity.source, run, identity.learner, compose([]), 0.0, 0.0, "")
    unit = unit_of(promise)
    if not promise.losses:
        return Cost(identity.source, run, identity.learner, None, 1.0, 0.0, unit)
    spent = ([] if lost else [one.loss for one in ledger.last.spent]) or [own_of(promise.losses, identity.learner)]
    loss, delta = compose(spent), own_of(promise.deltas, identity.learner)
    return Cost(identity.source, run, identity.learner, loss, delta, promise.sampler_error, unit)


def needed(promise: Guarantee, learner: int, earlier: Sequence[Cost], epsilon: float | None = None) -> Budget:
    """What a learner's data cost in all where a run comes to its end, rounded up; or another epsilon with its delta.

    >>> from gossamer.privacy import Pure
    >>> promise = Guarantee("proven", losses=(Pure(0.5),), deltas=(0.0,))
    >>> needed(promise, 0, [Cost("meters", "r1", 0, Pure(0.25), 0.0, 0.0, "one sample")])
    Budget(epsilon=0.75, delta=0.0)
    """
    own = Cost("", "", learner, own_of(promise.losses, learner), own_of(promise.deltas, learner), 0.0, "")
    costs = [*earlier, own]
    if any(cost.loss is None for cost in earlier):
        hint = "records that were sent without noise cannot be protected any more: use others, under another source"
        raise PrivacyError.of("earlier", "a run without a guarantee", "runs that have one", hint)
    if epsilon is None:
        epsilon = math.ceil(added_up(costs)[0] * _DIGITS) / _DIGITS
    errors = math.fsum([promise.sampler_error, *(cost.error for cost in earlier)])
    delta = math.fsum(cost.delta for cost in costs) + accounting.sampler_share(errors, epsilon)
    return Budget(epsilon, delta)


def unit_of(promise: Guarantee) -> str:
    """What a guarantee protects, and from whom: only where these are the same do losses add up.

    >>> from gossamer.privacy import Pure
    >>> unit_of(Guarantee("proven", losses=(Pure(0.5),), deltas=(0.0,)))
    'one sample of one learner (occurrence), observer peers'
    """
    return f"{promise.protected} ({promise.per}), observer {promise.observer}"


def units_of(costs: Iterable[Cost]) -> list[str]:
    """What these runs protect; those that have released nothing protect nothing.

    Where one run protects a sample and another one only its content, both protect its content.

    >>> runs = [Cost("meters", "r1", 0, None, 0.0, 0.0, unit) for unit in ("one sample (occurrence)", "")]
    >>> units_of(runs)
    ['one sample (occurrence)']
    >>> content = content_of("one sample") + " (occurrence)"
    >>> units_of([*runs, runs[0]._replace(unit=content)]) == [content]
    True
    """
    units = {cost.unit for cost in costs if cost.unit}
    return sorted(unit for unit in units if _content(unit) not in units)


def _content(unit: str) -> str:
    """The weaker promise about the same unit, as `unit_of` writes both."""
    protected, _, rest = unit.partition(" (")
    return f"{content_of(protected)} ({rest}"


def own_of(each: Sequence[T], learner: int) -> T:
    """This learner's of a guarantee's losses or deltas: there is one for all, or one for each."""
    return each[learner if len(each) > 1 else 0]


def within(costs: Sequence[Cost], budget: Budget) -> bool:
    """Whether runs over the same data stay within a budget together; never where they protect different units.

    They may run at once, and each may depend on what the others released: losses of such runs compose as those of
    runs one after another do (Lyu 2022; Vadhan and Zhang 2023).

    >>> from gossamer.privacy import Pure
    >>> costs = [Cost("meters", run, 0, Pure(0.5), 0.0, 0.0, "one sample") for run in ("r1", "r2")]
    >>> within(costs, Budget(1.0)), within(costs, Budget(0.9))
    (True, False)
    """
    left = budget.delta - accounting.sampler_share(math.fsum(cost.error for cost in costs), budget.epsilon)
    return left >= 0 and len(units_of(costs)) <= 1 and added_up(costs, left)[0] <= budget.epsilon


class Account(Protocol):
    """What the data of a run may cost, and what all other runs over them cost."""

    def covers(self, cost: Callable[[int], Cost], exchanges: int) -> bool:
        """Whether so many exchanges are covered; then they count as spent for all other runs.

        Args:
            cost: of this run after a number of exchanges, of a record that came once.
            exchanges: in all, those before included.
        """


class Spending:
    """The costs of one learner's exchanges.

    Args:
        algorithm: whose guarantee says what they are.
        learner: the learner's number.
        budget: what its data may cost in all, with what `earlier` runs cost; None: what the algorithm is made for.
        earlier: what earlier runs over the same data have cost.
        times: how often a record may have come in this run, since its data were changed.

    >>> from gossamer import algorithms, problems, topology
    >>> problem, network = problems.Logistic(2), topology.ring(3)
    >>> algorithm = algorithms.pd_ogd(problem, network, budget=Budget(1.0), clip=1.0, step=0.1)
    >>> spending = Spending(algorithm, 0)
    >>> print("epsilon {:.3f}, delta {}".format(*spending.shown(spending.after(5))))
    epsilon 1.000, delta 0.0
    >>> spending.refusal(0), Spending(algorithm, 0, Budget(0.5)).refusal(0)
    (None, 'budget_used_up')
    """

    def __init__(
        self,
        algorithm: Algorithm,
        learner: int,
        budget: Budget | None = None,
        earlier: Sequence[Cost] = (),
        times: int = 1,
    ) -> None:
        self._algorithm, self._learner, self._times = algorithm, learner, times
        self._budget, self._earlier = budget, tuple(earlier)

    def after(self, exchanges: int) -> tuple[Spent, ...]:
        """What every mechanism has cost after so many exchanges."""
        return tuple(Spent(name, *facts) for name, facts in self._algorithm.spent(exchanges, self._learner).items())

    def cost(self, promise: Guarantee, exchanges: int) -> Cost:
        """The same as the cost of a run that was begun with this promise, of a record that came once."""
        if not promise.losses:
            return Cost("", "", self._learner, None, 1.0, 0.0, unit_of(promise))
        loss, delta = compose([one.loss for one in self.after(exchanges)]), own_of(promise.deltas, self._learner)
        return Cost("", "", self._learner, loss, delta, promise.sampler_error, unit_of(promise))

    def refusal(self, exchange: int) -> Refusal | None:
        """Why this exchange must not release anything; None where it may."""
        horizon = self._algorithm.guarantee.horizon
        if horizon is not None and exchange >= self._algorithm.schedule.exchanges(horizon):
            return "horizon_used_up"
        try:
            self._algorithm.require(exchange + 1)
        except (PrivacyError, ConfigurationError):
            return "horizon_used_up"
        if self._budget is not None and not self._within(self._budget, exchange + 1):
            return "budget_used_up"
        return None

    def plan(self) -> Plan | None:
        """What may be spent in all, and how many exchanges that covers; None without a guarantee."""
        promise, most = self._algorithm.guarantee, self._covered()
        if promise.basis == "none":
            return None
        if self._budget is not None:
            epsilon, delta = self._budget.epsilon, self._budget.delta
        else:
            delta = own_of(promise.deltas, self._learner)
            epsilon = own_of(promise.losses, self._learner).epsilon(delta)
            delta = min(1.0, delta + promise.sampler_share(epsilon))
        first, last = (self.shown(self.after(n))[0] for n in (1, _ENDLESS if most is None else max(1, most)))
        return Plan(epsilon, delta, most, grows=last > first)

    def _covered(self) -> int | None:
        """How many exchanges are covered, by bisection; None: they never end."""
        known, tried = 0, 1
        while self.refusal(tried - 1) is None:
            if tried >= _ENDLESS:
                return None
            known, tried = tried, 2 * tried
        while tried - known > 1:
            middle = (known + tried) // 2
            known, tried = (middle, tried) if self.refusal(middle - 1) is None else (known, middle)
        return known

    def require_one_release(self) -> None:
        """Refuse a budget below what the first exchange costs: the node would never say anything."""
        if self.refusal(0) == "budget_used_up" and self._budget is not None:
            given = f"epsilon {self._budget.epsilon:g}, delta {self._budget.delta:.3g}"
            hint = "set [budget] in node.toml if you agree that your data cost more, or leave the network"
            raise PrivacyError.of("[budget]", given, "what earlier runs and the first exchange cost, or more", hint)

    def shown(self, spent: Sequence[Spent]) -> tuple[float, float]:
        """Epsilon and delta of what was spent; where there is a budget with earlier runs, at its delta."""
        promise, loss = self._algorithm.guarantee, self._loss(spent)
        if self._budget is not None:
            return self._counted(loss, self._budget), self._budget.delta
        delta = own_of(promise.deltas, self._learner)
        epsilon = loss.epsilon(delta)
        return epsilon, min(1.0, delta + promise.sampler_share(epsilon))

    def _loss(self, spent: Sequence[Spent]) -> Loss:
        """Of a record that came as often as it may."""
        return compose([one.loss for one in spent]).group(self._times)

    def _within(self, budget: Budget, exchanges: int) -> bool:
        """Whether earlier runs and so many exchanges of this one stay within a budget."""
        if self._algorithm.guarantee.basis == "none":
            return False
        return self._counted(self._loss(self.after(exchanges)), budget) <= budget.epsilon

    def _counted(self, loss: Loss, budget: Budget) -> float:
        """Epsilon of earlier runs and of this loss together, at the budget's delta; infinite where it is too small."""
        own = Cost("", "", self._learner, loss, 0.0, self._algorithm.guarantee.sampler_error, "")
        errors = math.fsum(cost.error for cost in (*self._earlier, own))
        left = budget.delta - accounting.sampler_share(errors, budget.epsilon)
        return added_up([*self._earlier, own], left)[0] if left >= 0 else math.inf
