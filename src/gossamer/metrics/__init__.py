"""How good a run was: average losses, regrets of every kind the papers use, and the comparators they need."""

from gossamer.metrics.regret import (
    average_loss,
    dynamic_regret,
    expert_regret,
    instantaneous_regret,
    joint_decisions,
    pseudo_regret,
    running_average,
    static_regret,
    tracking_error,
)
from gossamer.metrics.solver import Comparator, best_decision

__all__ = [
    "Comparator",
    "average_loss",
    "best_decision",
    "dynamic_regret",
    "expert_regret",
    "instantaneous_regret",
    "joint_decisions",
    "pseudo_regret",
    "running_average",
    "static_regret",
    "tracking_error",
]
