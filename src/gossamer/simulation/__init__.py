"""The simulator: all learners in one compiled program, or step by step in Python."""

from gossamer.simulation.run import Run
from gossamer.simulation.simulate import simulate

__all__ = ["Run", "simulate"]
