"""The simulator: all learners in one compiled program, or step by step in Python; many settings at once."""

from gossamer.simulation.many import simulate_many
from gossamer.simulation.run import Run
from gossamer.simulation.simulate import simulate

__all__ = ["Run", "simulate", "simulate_many"]
