"""Losses with their gradients, clipped in closed form, and the constants that privacy and regret need."""

from gossamer.problems.base import Block, Problem, clipped
from gossamer.problems.checks import check_clip
from gossamer.problems.cnn import small_cnn
from gossamer.problems.experts import Experts
from gossamer.problems.linear import Hinge, LeastSquares, Linear, Logistic
from gossamer.problems.model import Model
from gossamer.problems.softmax import Softmax

__all__ = [
    "Block",
    "Experts",
    "Hinge",
    "LeastSquares",
    "Linear",
    "Logistic",
    "Model",
    "Problem",
    "Softmax",
    "check_clip",
    "clipped",
    "small_cnn",
]
