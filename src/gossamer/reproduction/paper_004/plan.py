"""How much of paper 004 is run: everything, or a quick look."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Of the runs against general oblivious adversaries, and of all others.

    Attributes:
        horizon: T.
        clients: all m.
        streams: of losses; intervals are over them.
        seeds: of the noise, on every stream.
    """

    horizon: int
    clients: tuple[int, ...]
    streams: int
    seeds: int


@dataclass(frozen=True)
class Stochastic(Sizes):
    """Of Fed-DP-OPE-Stoch on linear losses.

    Attributes:
        published: the m with the paper's constants, whose runs go sample by sample.
        gaps: between the best expert and the others, besides the usual one: the worst of them is looked for.
    """

    published: tuple[int, ...]
    gaps: tuple[float, ...]


@dataclass(frozen=True)
class Realizable(Sizes):
    """Of Fed-SVT.

    Attributes:
        local: the m where clients noise their sums.
        hidden: T of the construction behind Theorem 2.7.
    """

    local: tuple[int, ...]
    hidden: int


@dataclass(frozen=True)
class Smooth:
    """Of Fed-DP-OPE-Stoch on smooth losses.

    Attributes:
        horizon: T.
        clients: m.
        streams: of samples.
        seeds: of the noise, on every stream.
        betas: smoothness; Corollary 2.3 is about at most 1 / (T epsilon).
    """

    horizon: int
    clients: int
    streams: int
    seeds: int
    betas: tuple[float, ...]


@dataclass(frozen=True)
class Plan:
    """Sizes of the experiments.

    >>> FULL.stochastic.clients[-1], QUICK.realizable.clients
    (256, (1, 4, 16, 64))
    """

    name: str
    stochastic: Stochastic
    realizable: Realizable
    smooth: Smooth
    oblivious: Sizes


DOUBLING = tuple(2**power for power in range(9))

FULL = Plan(
    "full",
    Stochastic(
        horizon=2**14,
        clients=DOUBLING,
        streams=32,
        seeds=4,
        published=(1, 16),
        gaps=(0.2, 0.05, 0.025, 0.0125, 0.00625, 0.003125, 0.0015625, 0.00078125),
    ),
    Realizable(horizon=10_000, clients=DOUBLING, streams=24, seeds=4, local=(1, 4, 16, 64), hidden=4096),
    Smooth(horizon=2**12, clients=16, streams=6, seeds=4, betas=(0.0, 2.0**-12, 0.1, 1.0)),
    Sizes(horizon=2**12, clients=(1, 4, 16, 64), streams=12, seeds=2),
)

QUICK = Plan(
    "quick",
    Stochastic(horizon=2**14, clients=(1, 4, 16, 64), streams=8, seeds=1, published=(), gaps=(0.0125,)),
    Realizable(horizon=10_000, clients=(1, 4, 16, 64), streams=8, seeds=1, local=(1, 16), hidden=2048),
    Smooth(horizon=2**4, clients=4, streams=2, seeds=2, betas=(1.0,)),
    Sizes(horizon=2**10, clients=(1, 16), streams=8, seeds=1),
)
