"""The simulator: all learners in one compiled program, or step by step in Python."""

from gossamer.simulation.run import Run
from gossamer.simulation.simulate import simulate
from gossamer.simulation.virtual import virtual_iterates

__all__ = ["Run", "simulate", "virtual_iterates"]
