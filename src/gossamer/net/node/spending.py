"""What the releases of one node cost, and whether one more is covered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.node.costs import Cost, added_up, own_of
from gossamer.net.store.chain import Spent
from gossamer.privacy import Budget, accounting, compose

Refusal = Literal["horizon_used_up", "budget_used_up"]
"""Why nothing is released any more."""


class Spending:
    """The costs of one learner's exchanges.

    Args:
        algorithm: whose guarantee says what they are.
        learner: the learner's number.
        budget: what its data may cost in all, with what `earlier` runs cost; None: what the algorithm is made for.
        earlier: what earlier runs over the same data have cost.

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
        self, algorithm: Algorithm, learner: int, budget: Budget | None = None, earlier: Sequence[Cost] = ()
    ) -> None:
        self._algorithm, self._learner = algorithm, learner
        self._budget, self._earlier = budget, tuple(earlier)

    def after(self, exchanges: int) -> tuple[Spent, ...]:
        """What every mechanism has cost after so many exchanges."""
        return tuple(Spent(name, *facts) for name, facts in self._algorithm.spent(exchanges, self._learner).items())

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

    def shown(self, spent: Sequence[Spent]) -> tuple[float, float]:
        """Epsilon and delta of what was spent."""
        promise = self._algorithm.guarantee
        delta = own_of(promise.deltas, self._learner)
        epsilon = compose([one.loss for one in spent]).epsilon(delta)
        return epsilon, min(1.0, delta + promise.sampler_share(epsilon))

    def _within(self, budget: Budget, exchanges: int) -> bool:
        """Whether earlier runs and so many exchanges of this one stay within a budget."""
        promise = self._algorithm.guarantee
        if promise.basis == "none":
            return False
        loss = compose([one.loss for one in self.after(exchanges)])
        own = Cost("", "", self._learner, loss, 0.0, promise.sampler_error, "")
        errors = math.fsum(cost.error for cost in (*self._earlier, own))
        left = budget.delta - accounting.sampler_share(errors, budget.epsilon)
        return left >= 0 and added_up([*self._earlier, own], left)[0] <= budget.epsilon
