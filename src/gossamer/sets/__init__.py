"""Decision sets: where a learner may play, with Euclidean projection and linear minimisation."""

from gossamer.sets.base import DecisionSet, Everywhere
from gossamer.sets.matrices import TraceNormBall
from gossamer.sets.vectors import Box, L1Ball, L2Ball, Simplex

__all__ = ["Box", "DecisionSet", "Everywhere", "L1Ball", "L2Ball", "Simplex", "TraceNormBall"]
