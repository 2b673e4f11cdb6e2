"""How much regret a block and a mechanism cost, from public numbers alone; PD-FTGL takes what costs least.

Let W be the weight of |x|^2 / 2, G the gradient bound, R the radius, and let decisions follow duals, x_i(z) =
Proj(-z_i / W), as in eq. (6) of paper 000. Let y be the decision of some average dual. For convex losses

    f_j(x_i) - f_j(u)  <=  <g_j, y - u> + G |x_j - y| + G |x_i - x_j|,            |x_i - x_j| <= |z_i - z_j| / W,

so that, for losses that do not react to decisions, the average over learners of the expected regret / n is at most
W R^2 / 2 + (T / W) K, where K is the sum of

    lag           2 L G^2                x(z) does not know the last two blocks, whose gradients move y by L G / W each
    disagreement  3 G E|z_i - zbar|      of the gradients, however they are dealt
    noise         E|N| G + 2 G E|N_i - Nbar|        N_i, the noise in a dual, moves decisions by |N_i| / W; or
                  3/2 E|xi|^2 / (n L) + 3 G E|N_i - Nbar|    for fresh noise xi in every block, with y of the noisy
                                         average: xi is independent of x(z), so that its linear term vanishes, and
                                         E|d||d + d'| <= 2 (L G)^2 + 3/2 E|xi|^2 / n for two noisy blocks d, d'

The best W is sqrt(2 T K) / R, and the bound R sqrt(2 T K): whatever makes K small is good. For strongly convex losses W
grows like alpha z L, and the bound is about K / alpha (1 + ln(T / L)) + alpha L R^2, with G + 2 alpha R for G. PD-OCG
lags three blocks behind, and its oracle adds 12 G R T / sqrt(L).

P is symmetric, so gossip acts on each of its eigenvectors alone. After m steps of accelerated gossip the part along
eigenvalue lambda is multiplied by p_m(lambda): p_0 = p_-1 = 1, p_(m+1) = (1 + theta) lambda p_m - theta p_(m-1).
Coupled, what was spoken k blocks ago has gone through k L steps, and what is added to the duals in all blocks disagrees
by L G sum_k max_lambda |p_kL|. Decoupled, the L steps of its own block are all that it ever gets: the disagreement
grows with the number of blocks, (T / 2) G max_lambda |p_L|, and so the tolerance must fall as T grows.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gossamer.algorithms.authoring import noise_energy
from gossamer.mechanisms import Additive, Calibrated, Gossiped, Independent, TreeSum
from gossamer.topology import Topology, accelerated_theta

_FORGOTTEN = 1e-10  # gossip steps are followed until this share of a disagreement is left


@dataclass(frozen=True)
class Modes:
    """p_m(lambda) for every eigenvalue of P but the largest: axes (gossip step m, eigenvalue).

    >>> from gossamer import topology
    >>> modes = Modes.of(topology.ring(16, weights="lazy"), most=10_000)
    >>> modes.left(steps=100) < 1e-3 < modes.left(steps=8)
    True
    """

    table: NDArray[np.float64]
    learners: int

    @classmethod
    def of(cls, topology: Topology, most: int) -> Self:
        """Of this network, followed for at most so many steps."""
        if topology.learners == 1:
            return cls(np.zeros((2, 0)), 1)
        eigenvalues = np.linalg.eigvalsh(topology.matrix())[:-1]
        theta = accelerated_theta(topology)
        rows = [np.ones_like(eigenvalues)]
        now, before = rows[0], rows[0]
        while len(rows) <= most and max(np.abs(now).max(), np.abs(before).max()) > _FORGOTTEN:
            now, before = (1 + theta) * eigenvalues * now - theta * before, now
            rows.append(now)
        return cls(np.stack(rows), topology.learners)

    def at(self, steps: int) -> NDArray[np.float64]:
        """p_steps; zero once it is forgotten."""
        return self.table[steps] if steps < len(self.table) else np.zeros(self.table.shape[1])

    def left(self, steps: int) -> float:
        """The largest share of any disagreement that is left after so many steps."""
        return float(np.abs(self.at(steps)).max(initial=0.0))

    def blocks(self, steps: int) -> NDArray[np.float64]:
        """p_steps, p_2steps, ...: axes (block, eigenvalue)."""
        return self.table[steps::steps]


class Cost(NamedTuple):
    """K in units of G^2, by cause.

    Attributes:
        lag: of decisions behind the data.
        disagreement: of learners, about gradients.
        noise: all that noise costs.
    """

    lag: float
    disagreement: float
    noise: float

    @property
    def total(self) -> float:
        """K / G^2."""
        return self.lag + self.disagreement + self.noise


def cost(
    release: Calibrated[Additive] | Calibrated[Gossiped],
    modes: Modes,
    *,
    block: int,
    gossip_steps: int,
    blocks: int,
    bound: float,
    lag: int,
    coupled: bool,
    before: bool,
    growing: bool,
) -> Cost:
    """K / G^2 of blocks of so many steps with this noise.

    Args:
        release: what the noise is, and its scale.
        modes: what gossip does.
        block: L.
        gossip_steps: steps of gossip in a block.
        blocks: T / L.
        bound: G.
        lag: blocks by which the update is late.
        coupled: whether gossip is carried on from block to block.
        before: whether noise is added before gossip.
        growing: whether the weight grows, so that early blocks count more.
    """
    n = modes.learners
    once, later = modes.at(gossip_steps), modes.blocks(gossip_steps)
    forgotten = np.abs(later).max(axis=1, initial=0.0).sum() if coupled else blocks / 2 * modes.left(gossip_steps)
    mechanism = release.mechanism.inner if isinstance(release.mechanism, Gossiped) else release.mechanism
    mean, largest = (energy / bound**2 for energy in _energies(release))
    rows = blocks if before else blocks - 1
    # Sums of fresh and of Toeplitz noise only grow: their early means are below the whole one. Those of a tree are not.
    sums = mechanism.max_error(rows) if growing and isinstance(mechanism, TreeSum) else mechanism.mean_error(rows)
    with_all, with_one = _shares(once, later, n, coupled, before)
    common, apart = math.sqrt(mean * sums * with_all), math.sqrt(largest * sums * with_one)
    noise = math.hypot(common, apart) + 2 * apart
    if isinstance(mechanism, Independent):
        disagreement = largest * _fresh_disagreement(once, later, n, blocks, coupled, before)
        noise = min(noise, (3 + lag) / 2 * mean / (n * block) + 3 * math.sqrt(disagreement))
    return Cost(float((2 + lag) * block), 3 * block * float(forgotten), noise)


def _energies(release: Calibrated[Additive] | Calibrated[Gossiped]) -> tuple[float, float]:
    """The expected squared norm of one draw: averaged over learners, and of the learner with the most noise."""
    (scales,) = release.scales.values()
    (spec,) = release.mechanism.noise("speak").values()
    squares = [noise_energy(spec) * scale.value**2 for scale in scales]
    return sum(squares) / len(squares), max(squares)


def _shares(
    once: NDArray[np.float64], later: NDArray[np.float64], n: int, coupled: bool, before: bool
) -> tuple[float, float]:
    """The squared noise in the average dual, and in the disagreement with it, for sums with noise of squared size 1.

    Coupled, a dual is sum_k p_kL (N_k - N_(k+1)) with N_k the noisy sum of k blocks ago: by parts, and by Minkowski's
    inequality over time, no larger than |p_L| + sum_k |p_(k+1)L - p_kL| times the root mean square of the sums.
    """
    if not before:
        return 1 / n, 1 - 1 / n
    moved = np.abs(once)
    if coupled:
        moved = moved + np.abs(np.diff(later, axis=0)).sum(axis=0)
    return 1 / n, float((moved**2).sum()) / n


def _fresh_disagreement(
    once: NDArray[np.float64], later: NDArray[np.float64], n: int, blocks: int, coupled: bool, before: bool
) -> float:
    """The squared disagreement of duals, averaged over learners and time, for fresh noise of squared size 1."""
    if not before:
        return blocks / 2 * (1 - 1 / n)
    return float((later**2).sum() if coupled else blocks / 2 * (once**2).sum()) / n


def lengths(horizon: int, *also: int) -> list[int]:
    """The blocks to try: 1, 2, 3, 4, 6, 8, 11, ..., a quarter of the horizon, and what else is given.

    >>> lengths(64, 5)
    [1, 2, 3, 4, 5, 6, 8, 11, 16]
    """
    most = max(1, horizon // 4)
    powers: Iterable[int] = (round(2 ** (k / 2)) for k in range(2 * most.bit_length() + 1))
    return sorted({length for length in (*powers, *also) if 1 <= length <= most})


modes_of = lru_cache(maxsize=4)(Modes.of)
"""`Modes.of`, remembered."""
