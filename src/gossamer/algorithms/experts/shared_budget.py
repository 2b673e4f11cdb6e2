"""Two mechanisms of a trusted server that share one budget: how much it leaves, and what it then guarantees."""

from collections.abc import Callable, Sequence
from typing import Any

from gossamer.mechanisms import Calibrated
from gossamer.privacy import Assumption, Budget, Guarantee, Loss, Unit, accounting, compose

BELOW = 1 - 2.0**-40
"""Of epsilon, what is left after the rounding of its sums."""
_SPARE = 1e-4  # of delta: kept for the error of a secure sampler


def largest_rate(loss: Callable[[float], Sequence[Loss]], budget: Budget) -> float:
    """The largest rate of draws whose losses, all of them together, are within the budget.

    >>> from gossamer.privacy import Pure
    >>> round(largest_rate(lambda rate: [Pure(0.25), Pure(3 * rate)], Budget(1.0)), 6)
    0.25
    """

    def cost(rate: float) -> float:
        return compose(loss(rate)).epsilon((1 - _SPARE) * budget.delta)

    return accounting.largest_within(cost, BELOW * budget.epsilon)


def of_both(
    one: Calibrated[Any], other: Calibrated[Any], budget: Budget, *assumptions: Assumption, horizon: int, proof: str
) -> Guarantee:
    """The guarantee against all who see what the server broadcasts: the losses of both mechanisms, composed.

    >>> from gossamer.mechanisms import Independent
    >>> from gossamer.privacy import Sensitivity
    >>> half = Independent((1,)).calibrate(Sensitivity(1.0, 1.0), Budget(0.5))
    >>> round(of_both(half, half, Budget(1.0), horizon=10, proof="docs/algorithms/fed_svt.md").epsilon, 6)
    1.0
    """
    return Guarantee(
        basis="proven",
        losses=(compose([one.losses[0], other.losses[0]]),),
        deltas=((1 - _SPARE) * budget.delta,),
        unit=Unit.SAMPLE,
        observer="broadcasts",
        horizon=horizon,
        repeats="group",
        assumptions=(Assumption("losses lie between 0 and 1", "gossamer.problems.Experts.loss_sums"), *assumptions),
        proof=proof,
    )
