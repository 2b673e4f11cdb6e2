"""How much of paper 001 is run: everything, or a quick look."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Steps = tuple[float, ...]

STEPS: Steps = tuple(digit * 10.0**power for power in range(-4, 0) for digit in (1, 2, 5))
"""Step sizes of the network: 0.0001, 0.0002, 0.0005, ..., 0.5."""
STARTS: Mapping[str, float] = {"none": 0.2, "blt": 0.02, "independent": 0.001}


@dataclass(frozen=True)
class Logistic:
    """Sizes of figure 3.

    Attributes:
        rounds: R.
        runs: of every number in a table, each with data and noise of its own.
        trials: runs to tune on.
        methods: of the figure.
        extras: further methods, in a table of their own.
        epsilons: the budgets.
        steps: step sizes to choose from.
        points: of a curve.
    """

    rounds: int
    runs: int
    trials: int
    methods: tuple[str, ...] = ("none", "tree", "optimal", "toeplitz", "blt", "independent")
    extras: tuple[str, ...] = ("published", "bounded", "rounds")
    epsilons: tuple[float, ...] = (2.0, 0.5)
    steps: Steps = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    points: int = 50


@dataclass(frozen=True)
class Images:
    """Sizes of figure 4.

    Attributes:
        methods: of the figure, with the local steps that each is run with.
        seeds: of the noise, of every number in a table, by method.
        trials: seeds of a run to tune on.
        steps: step sizes to choose from.
        starts: where to begin, by method.
        known: step sizes that an earlier search found, by method, local steps and published model; they are not
            searched again.
        shared: the one step size of the paper's protocol, where an earlier search found it.
        every: samples between two tests of a final run.
        trial_every: samples between two tests of a run to tune on.
    """

    methods: Mapping[str, tuple[int, ...]]
    seeds: Mapping[str, int]
    trials: int
    steps: Steps = STEPS
    starts: Mapping[str, float] = field(default_factory=lambda: STARTS)
    known: Mapping[tuple[str, int, str], float] = field(default_factory=dict)
    shared: float | None = None
    every: int = 100
    trial_every: int = 500


@dataclass(frozen=True)
class Plan:
    """Sizes of the experiments.

    >>> FULL.logistic.rounds, QUICK.logistic.rounds
    (1000, 250)
    """

    name: str
    logistic: Logistic
    images: Images


FULL = Plan(
    "full",
    Logistic(rounds=1000, runs=10, trials=2),
    Images(
        methods={"none": (1, 2, 4), "blt": (1, 2, 4), "toeplitz": (1,), "independent": (1, 2, 4)},
        seeds={"none": 1, "blt": 10, "toeplitz": 3, "independent": 10},
        trials=2,
    ),
)

QUICK = Plan(
    "quick",
    Logistic(rounds=250, runs=3, trials=1),
    Images(
        methods={"none": (1,), "blt": (1,), "independent": (1,)},
        seeds={"none": 1, "blt": 1, "independent": 1},
        trials=1,
        known={
            (method, 1, publish): step
            for method, step in (("none", 0.5), ("blt", 0.02), ("independent", 0.002))
            for publish in ("last", "averaged")
        },
        shared=0.02,
        every=500,
    ),
)
