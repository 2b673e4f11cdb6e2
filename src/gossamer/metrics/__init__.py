"""How good a run was: its summary, regrets of every kind the papers use, and the comparators they need."""

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
from gossamer.metrics.solver import Comparator, best_decision, best_decisions
from gossamer.metrics.summary import Summary, summarize

__all__ = [
    "Comparator",
    "Summary",
    "average_loss",
    "best_decision",
    "best_decisions",
    "dynamic_regret",
    "expert_regret",
    "instantaneous_regret",
    "joint_decisions",
    "pseudo_regret",
    "running_average",
    "static_regret",
    "summarize",
    "tracking_error",
]
