"""How much of paper 003 is run: everything, or a quick look."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mushrooms:
    """Sizes of figure 1 and Table I.

    Attributes:
        rounds: of figure 1.
        seeds: of the noise.
        l2: the paper's r_i, which it does not state: all of these.
        steps: of the rivals, from large to small, each half the one before.
        levels: of the noise in Table I.
        table_l2: the l2 of Table I.
        table_rounds: after which Table I gives up.
        table_seeds: of the noise in Table I.
    """

    rounds: int
    seeds: int
    table_seeds: int
    levels: tuple[float, ...]
    table_l2: tuple[float, ...]
    table_rounds: int
    l2: tuple[float, ...] = (0.01, 0.1, 1.0)
    steps: tuple[float, ...] = tuple(2.0**power for power in range(8, -9, -1))


@dataclass(frozen=True)
class Usable:
    """Sizes of the setting that is private and useful.

    Attributes:
        rounds: samples of every learner.
        seeds: of the noise.
    """

    rounds: int
    seeds: int


@dataclass(frozen=True)
class Network:
    """Sizes of figures 2 and 3 and of Table II.

    Attributes:
        levels: of the noise in Table II.
        table_rounds: of Table II.
        rounds: of figures 2 and 3.
        seeds: of the noise.
        picks: past samples drawn for each gradient.
        tested: images held out that are used; None: all.
        points: of a curve.
        attack_steps: of DLG.
        attack_restarts: of DLG.
        anywhere: whether it may be run without an accelerator.
    """

    levels: tuple[float, ...]
    table_rounds: int
    rounds: int
    seeds: int
    picks: int
    tested: int | None = None
    points: int = 20
    attack_steps: int = 1000
    attack_restarts: int = 4
    anywhere: bool = False


@dataclass(frozen=True)
class Plan:
    """Sizes of the experiments.

    >>> FULL.mushrooms.rounds, QUICK.network.rounds
    (2000, 40)
    """

    name: str
    mushrooms: Mushrooms
    usable: Usable
    network: Network


LEVELS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0)
"""Of Table I."""

FULL = Plan(
    "full",
    Mushrooms(rounds=2000, seeds=5, table_seeds=3, levels=LEVELS, table_l2=(0.1, 1.0), table_rounds=2000),
    Usable(rounds=2000, seeds=5),
    Network(levels=(0.5, 1.0, 1.5, 2.0), table_rounds=3000, rounds=600, seeds=3, picks=32),
)

QUICK = Plan(
    "quick",
    Mushrooms(rounds=2000, seeds=2, table_seeds=2, levels=(1.0, 2.0, 4.0, 6.0), table_l2=(0.1, 1.0), table_rounds=500),
    Usable(rounds=2000, seeds=2),
    Network(
        levels=(0.5, 2.0),
        table_rounds=100,
        rounds=40,
        seeds=1,
        picks=8,
        tested=500,
        points=4,
        attack_steps=200,
        attack_restarts=1,
        anywhere=True,
    ),
)
