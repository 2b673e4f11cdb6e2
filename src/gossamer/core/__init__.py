"""The contracts: what a learner, a server and an algorithm are, for every engine."""

from gossamer.core.algorithm import Algorithm, Missing, Public
from gossamer.core.federation import Federation
from gossamer.core.learner import Learner, Message, Now, Server, State
from gossamer.core.schedule import Every, Phases, Rate, Schedule, Segment

__all__ = [
    "Algorithm",
    "Every",
    "Federation",
    "Learner",
    "Message",
    "Missing",
    "Now",
    "Phases",
    "Public",
    "Rate",
    "Schedule",
    "Segment",
    "Server",
    "State",
]
