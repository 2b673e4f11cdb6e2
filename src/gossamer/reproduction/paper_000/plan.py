"""How much of paper 000 is run: everything, or a quick look."""

from collections.abc import Mapping
from dataclasses import dataclass, field

CLIPS = (0.01, 0.1, 1.0, 10.0)
MULTIPLIERS = tuple(digit * 10.0**power for power in range(-4, 2) for digit in (1, 5))
"""The paper's grids: 0.0001, 0.0005, 0.001, ..., 10, 50."""


@dataclass(frozen=True)
class Plan:
    """Sizes of the experiments.

    Attributes:
        name: for people.
        letter: T on letter.
        hands: T on random poker hands.
        poker: whether the real poker data are run as well, each record once for every learner.
        copies: copies of letter for each learner.
        seeds: of the noise, of every number in a table; on poker the first 3.
        trials: seeds of a run to tune on.
        epsilons: of figure 3.
        loud: the epsilon of figures 1, 2 and 4, and the first of figure 5.
        quiet: the second epsilon of figure 5.
        learners: of figure 4; the first of them everywhere else.
        ladder: the epsilons at which the steps from published to tight are compared.
        clips: to choose from.
        multipliers: to choose from.
        share: the part of the rounds that hyper-parameters are tuned on, by algorithm; all where it is not named.
        each: whether hyper-parameters are tuned for every network, or on the default one only.
        timed: rounds whose time is measured.
        repeats: of every time.
        points: of a curve.

    >>> FULL.letter, QUICK.letter
    (150000, 2000)
    """

    name: str
    letter: int
    hands: int
    poker: bool
    copies: int
    seeds: int
    trials: int
    epsilons: tuple[float, ...] = (2.5, 5.0, 10.0)
    loud: float = 10.0
    quiet: float = 1000.0
    learners: tuple[int, ...] = (9, 16, 25)
    ladder: tuple[float, ...] = (10.0, 1.0)
    clips: tuple[float, ...] = CLIPS
    multipliers: tuple[float, ...] = MULTIPLIERS
    share: Mapping[str, float] = field(default_factory=dict)
    each: bool = True
    timed: int = 15_000
    repeats: int = 3
    points: int = 60


FULL = Plan(
    "full",
    letter=150_000,
    hands=1_000_000,
    poker=True,
    copies=10,
    seeds=5,
    trials=1,
    share={"pd_ocg": 0.1, "pd_ogd": 0.1},
)

QUICK = Plan(
    "quick",
    letter=2_000,
    hands=2_000,
    poker=False,
    copies=1,
    seeds=3,
    trials=3,  # as many as in the final runs: one program for both
    epsilons=(2.5, 10.0),
    learners=(9, 16),
    clips=(1.0,),
    multipliers=(0.1, 1.0, 10.0),
    each=False,
    timed=1_000,
    points=30,
)
