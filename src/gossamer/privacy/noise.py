"""What learners and engines agree on about noise: learners declare draws by name, a source supplies them.

No function that adds noise makes its own randomness. A source answers with arrays *at scale* whose values depend only
on its key and on (name, learner, exchange), so a run gives the same result however it is cut into chunks, and a
learner alone draws what it would draw among others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError

Law = Literal["laplace", "gaussian", "l2-laplace", "gumbel", "exponential", "uniform"]
LAWS: tuple[Law, ...] = ("laplace", "gaussian", "l2-laplace", "gumbel", "exponential", "uniform")
UsedIn = Literal["decide", "learn", "speak", "aggregate"]


class Scale(NamedTuple):
    """What one learner's unit draws are multiplied by, and the lattice on which they are released.

    Attributes:
        value: the scale.
        grid: the spacing of the lattice, a power of two that divides the scale; 0: no lattice.
    """

    value: float
    grid: float = 0.0


def columns(scales: Sequence[Scale]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Values and spacings of many scales; where all are the same one, of that one.

    Ten million learners with one budget are not looked at one by one.

    >>> columns([Scale(2.0, 0.5)] * 3)
    (array([2.], dtype=float32), array([0.5], dtype=float32))
    """
    alike = scales[:1] if scales.count(scales[0]) == len(scales) else scales
    values, spacings = np.array(alike, np.float32).reshape(-1, 2).T
    return values, spacings


@dataclass(frozen=True)
class NoiseSpec:
    """One named draw a learner needs at every exchange: its law at unit scale, its shape, the function that gets it.

    The laws: "laplace" has density exp(-|x|)/2, "gaussian" variance 1, "exponential" mean 1, "gumbel" distribution
    function exp(-exp(-x)), "uniform" lies in (0, 1); "l2-laplace" is one vector with density proportional to
    exp(-|x|_2), over all of the shape.

    >>> NoiseSpec("laplace", (3,), used_in="speak").size
    3
    """

    law: Law
    shape: tuple[int, ...]
    used_in: UsedIn

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise ConfigurationError("law", self.law, " or ".join(map(repr, LAWS)))

    @property
    def size(self) -> int:
        """Numbers per draw."""
        return math.prod(self.shape)


class NoiseSource(Protocol):
    """Where the engine gets the draws from."""

    def draw(self, name: str, spec: NoiseSpec, scales: Sequence[Scale], start: int, stop: int) -> NDArray[np.float32]:
        """Draws of exchanges `start` to `stop`, one scale per learner: axes (learner, exchange, *spec.shape).

        A fresh array at every call, which the source never touches again: the engine hands its memory to JAX.
        """
