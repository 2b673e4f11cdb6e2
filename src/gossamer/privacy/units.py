"""What may change between neighbouring inputs, and who sees what is released."""

from enum import StrEnum
from typing import Literal

Observer = Literal["decisions", "wiretap", "outsiders", "peers", "broadcasts"]
OBSERVERS: dict[Observer, str] = {
    "decisions": "the public, who sees every decision but no message",
    "wiretap": "an outsider who reads every message but sees no decision",
    "outsiders": "people outside the network, who read every message and see every decision but no data",
    "peers": "all other participants together, who see every message and every decision",
    "broadcasts": "whoever sees all that the trusted server sends out",
}


class Unit(StrEnum):
    """What may change between neighbouring inputs."""

    SAMPLE = "one sample of one learner"
    BATCH = "one common batch"
    BATCH_SAMPLE = "one sample of a common batch"
    SAMPLE_OF_EACH = "one sample of every learner"


def content_of(unit: str) -> str:
    """What is protected where everybody knows when units come: less than the whole unit.

    >>> content_of("one sample of one learner")
    'the content of one sample of one learner, of which everybody knows that and when it comes,'
    """
    return f"the content of {unit}, of which everybody knows that and when it comes,"
