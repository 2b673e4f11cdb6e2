"""How much of paper 002 is run: everything, or a quick look."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Point = tuple[float, float]

ROUNDS = 500  # T of the paper's regression and of its figure 6


@dataclass(frozen=True)
class Plan:
    """Sizes of the experiments.

    Attributes:
        name: of the plan.
        runs: of every number, each with data (or their order) and noise of its own.
        trials: runs to tune on, with other data (or their order) and other noise.
        rounds: of the regression of figure 3.
        longer: rounds of the same regression, to see where the regret goes.
        correlated: rounds of the table of correlated noise.
        clips: to choose from with real guarantees.
        steps: to choose from with real guarantees, and in figure 7.
        known: (clip, step) that an earlier search found, by case; they are not searched again.
        compared: rounds of figure 7.
        compared_runs: of figure 7.
        points: of a curve.

    >>> FULL.rounds, FULL.runs, QUICK.runs
    (500, 10, 5)
    """

    name: str
    runs: int
    trials: int
    longer: int
    correlated: int
    compared: int
    compared_runs: int
    rounds: int = ROUNDS
    clips: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    steps: tuple[float, ...] = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    known: Mapping[str, Point] = field(default_factory=dict)
    points: int = 10


FULL = Plan("full", runs=10, trials=2, longer=8000, correlated=5000, compared=1428, compared_runs=5)

KNOWN: Mapping[str, Point] = {
    "DPSDA-C, (1, 0), Laplace, own exact, clip 1, 500 rounds": (0.1, 0.03),
    "DPSDA-C, (1, 1e-05), blt, own by gossip, clip 1, 5000 rounds": (0.1, 0.3),
    "DPSDA-C, (1, 1e-05), blt, own exact, clip 1, 500 rounds": (0.1, 0.3),
    "DPSDA-C, (1, 1e-05), blt, own exact, clip 1, 5000 rounds": (0.1, 1.0),
    "DPSDA-C, (1, 1e-05), independent, own by gossip, clip 1, 5000 rounds": (0.1, 0.1),
    "DPSDA-C, (1, 1e-05), independent, own exact, clip 1, 5000 rounds": (0.1, 0.1),
    "DPSDA-C, (1, 1e-05), tree, own by gossip, clip 1, 5000 rounds": (0.3, 0.03),
    "DPSDA-C, (1, 1e-05), tree, own exact, clip 1, 5000 rounds": (0.1, 1.0),
    "DPSDA-C, (2, 1e-05), blt, own by gossip, clip 1, 5000 rounds": (0.1, 1.0),
    "DPSDA-C, (2, 1e-05), blt, own exact, clip 1, 5000 rounds": (0.1, 3.0),
    "DPSDA-C, (2, 1e-05), independent, own by gossip, clip 1, 5000 rounds": (0.1, 0.3),
    "DPSDA-C, (2, 1e-05), independent, own exact, clip 1, 5000 rounds": (0.1, 0.3),
    "DPSDA-C, (2, 1e-05), tree, own by gossip, clip 1, 5000 rounds": (0.1, 0.3),
    "DPSDA-C, (2, 1e-05), tree, own exact, clip 1, 5000 rounds": (0.1, 1.0),
    "DPSDA-PS, (1, 0), Laplace, own exact, clip 1, 500 rounds": (0.1, 0.03),
    "DPSDA-PS, (1, 1e-05), blt, own exact, clip 1, 500 rounds": (0.1, 0.3),
    "cifar10, DPSDA-C, (1, 1e-05), blt, own exact, clip 1": (3.0, 0.0001),
    "cifar10, DPSDA-C, (8, 1e-05), blt, own exact, clip 1": (3.0, 0.0001),
    "cifar10, DPSDA-PS, (1, 1e-05), blt, own exact, clip 1": (1.0, 0.0001),
    "cifar10, DPSDA-PS, (8, 1e-05), blt, own exact, clip 1": (1.0, 0.0001),
    "mnist, DPSDA-C, (1, 1e-05), blt, own exact, clip 1": (1.0, 0.01),
    "mnist, DPSDA-C, (8, 1e-05), blt, own exact, clip 1": (1.0, 0.03),
    "mnist, DPSDA-PS, (1, 1e-05), blt, own exact, clip 1": (1.0, 0.01),
    "mnist, DPSDA-PS, (8, 1e-05), blt, own exact, clip 1": (1.0, 0.03),
    "mushrooms, DPSDA-C, (1, 1e-05), blt, own exact, clip 1": (1.0, 0.01),
    "mushrooms, DPSDA-C, (8, 1e-05), blt, own exact, clip 1": (1.0, 0.03),
    "mushrooms, DPSDA-PS, (1, 1e-05), blt, own exact, clip 1": (1.0, 0.01),
    "mushrooms, DPSDA-PS, (8, 1e-05), blt, own exact, clip 1": (1.0, 0.03),
}
"""What the search of the full plan found, by case and, in the regression, rounds."""

QUICK = Plan("quick", runs=5, trials=2, longer=2000, correlated=5000, compared=300, compared_runs=3, known=KNOWN)
