"""What may be spent: epsilon and delta for the whole horizon."""

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.errors import PrivacyError
from gossamer.spec import kind


@kind("budget")
@dataclass(frozen=True)
class Budget:
    """Epsilon and delta that everything released over the whole horizon may cost together.

    >>> Budget(1.0, 1e-5)
    Budget(epsilon=1.0, delta=1e-05)
    >>> Budget(0.0)
    Traceback (most recent call last):
    gossamer.errors.PrivacyError: epsilon: got 0.0; allowed: a positive finite number.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        epsilon, delta = as_float(self.epsilon), as_float(self.delta)
        if not 0 < epsilon < math.inf:
            raise PrivacyError.of("epsilon", self.epsilon, "a positive finite number")
        if not 0 <= delta < 1:
            raise PrivacyError.of("delta", self.delta, "a number from 0 to below 1", "common choices are 0 and 1e-5")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g}" + (f", delta {self.delta:g}" if self.delta else "")


def budgets_of(budget: Budget | Sequence[Budget], learners: int | None = None) -> tuple[Budget, ...]:
    """One budget that holds for every learner, or one for each, where it is known how many there are.

    >>> budgets_of([Budget(1.0), Budget(2.0)], learners=3)
    Traceback (most recent call last):
    gossamer.errors.PrivacyError: budget: got 2 budgets; allowed: one Budget, or one for each of 3 learners.
    """
    if isinstance(budget, Budget):
        return (budget,)
    allowed = (
        f"one Budget, or one for each of {learners} learners" if learners else "one Budget, or one for each learner"
    )
    if not isinstance(budget, Sequence) or not budget or not all(isinstance(one, Budget) for one in budget):
        raise PrivacyError.of("budget", budget, allowed, "try Budget(epsilon=1.0, delta=1e-5)")
    if learners is not None and len(budget) != learners:
        raise PrivacyError(f"budget: got {len(budget)} budgets; allowed: {allowed}.")
    return tuple(budget)


def is_number(given: Any) -> bool:
    """Whether this is a real number, and no truth value.

    >>> is_number(1), is_number(True), is_number("1")
    (True, False, False)
    """
    return isinstance(given, numbers.Real) and not isinstance(given, bool)


def as_float(given: Any) -> float:
    """The number as a float; NaN, which every comparison refuses, where it is none.

    >>> as_float(2), as_float(True), as_float(None), as_float(10**400)
    (2.0, nan, nan, inf)
    """
    try:
        return float(given) if is_number(given) else math.nan
    except OverflowError:
        return math.inf if given > 0 else -math.inf
