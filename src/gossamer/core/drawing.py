"""What the functions of learners and servers are given at every exchange: schedules, draws and their lattices.

The simulator, audits and nodes all ask here, so that a learner alone in a process gets what it gets among others.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from gossamer.core.algorithm import Algorithm
from gossamer.privacy import NoiseSource, NoiseSpec, Scale, UsedIn
from gossamer.privacy.noise import columns

FUNCTIONS: tuple[str, ...] = get_args(UsedIn)
"""Those that draws are made for."""


class Draw(NamedTuple):
    """One declared draw.

    Attributes:
        name: at the source of noise.
        spec: its law, its shape and the function that gets it.
        scales: one for each of those who draw it.
    """

    name: str
    spec: NoiseSpec
    scales: tuple[Scale, ...]

    def made(self, source: NoiseSource, start: int, stop: int) -> NDArray[np.float32]:
        """For exchanges start, ..., stop-1: axes (learner, exchange, ...)."""
        return source.draw(self.name, self.spec, self.scales, start, stop)


def learners_draws(
    algorithm: Algorithm, learners: Sequence[int] | None = None, used_in: Collection[str] = FUNCTIONS
) -> dict[str, Draw]:
    """The draws of these learners, or of all, for these functions.

    >>> from gossamer import Budget, algorithms, problems, topology
    >>> options = {"budget": Budget(1.0), "clip": 1.0, "step": 0.1}
    >>> algorithm = algorithms.pd_ogd(problems.Linear(4), topology.ring(3), **options)
    >>> draws = learners_draws(algorithm, [2])
    >>> draws["gradient"].spec.shape, len(draws["gradient"].scales), learners_draws(algorithm, used_in=["decide"])
    ((4,), 1, {})
    """
    found = {}
    for name, spec in algorithm.running[0].noise.items():
        if spec.used_in in used_in:
            scales = algorithm.scales_of(name)
            found[name] = Draw(name, spec, scales if learners is None else tuple(scales[one] for one in learners))
    return found


def server_draws(algorithm: Algorithm, used_in: Collection[str] = FUNCTIONS) -> dict[str, Draw]:
    """The draws of the server; none where there is no server."""
    server = algorithm.running[1]
    specs = server.noise if server else {}
    return {
        name: Draw(f"server/{name}", spec, algorithm.scales[name][:1])
        for name, spec in specs.items()
        if spec.used_in in used_in
    }


def grids(draws: Mapping[str, Draw]) -> dict[str, NDArray[np.float32]]:
    """The lattice of every draw that has one: the same at every exchange, axis (learner,)."""
    each = {name: (columns(draw.scales)[1], len(draw.scales)) for name, draw in draws.items()}
    return {name: np.broadcast_to(spacing, count) for name, (spacing, count) in each.items() if spacing.all()}


def schedules(algorithm: Algorithm, start: int, stop: int) -> dict[str, NDArray[np.float32]]:
    """What is known to everybody at exchanges start, ..., stop-1, by name: axis (exchange,).

    >>> from gossamer import Rate, algorithms, problems, topology
    >>> schedules(algorithms.d_ogd(problems.Linear(4), topology.ring(3), step=Rate(2.0)), 0, 4)["step"].round(3)
    array([2.   , 1.414, 1.155, 1.   ], dtype=float32)
    """
    numbers = np.arange(start, stop, dtype=np.int64) + 1
    return {name: schedule(numbers).astype(np.float32) for name, schedule in algorithm.public.items()}
