"""What paper 000 proves about the regret of PD-FTGL and PD-OCG with its own noise: Theorems 3.6 and 3.9, for any h.

Both are for losses that do not react to decisions, are G-Lipschitz and alpha-strongly convex on a set of radius R, for
blocks of L steps with the gossip of eqs. (7) and (10), and for every learner i.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count, check_positive


@dataclass(frozen=True)
class BlockSetting:
    """The constants of the theorems.

    Attributes:
        learners: n.
        dim: d.
        horizon: T.
        epsilon: of the whole horizon.
        gradient: G.
        radius: R.
        strong_convexity: alpha.

    >>> BlockSetting(learners=9, dim=416, horizon=150_000, epsilon=10.0, gradient=1.0, radius=10.0).levels
    19.194...
    """

    learners: int
    dim: int
    horizon: int
    epsilon: float
    gradient: float
    radius: float
    strong_convexity: float = 0.0

    @property
    def levels(self) -> float:
        """2 + log2 T."""
        return 2 + math.log2(self.horizon)

    @property
    def noise(self) -> float:
        """27 d G (G + alpha R) (2 + log2 T)^2 / epsilon: what the noise costs, over a weight."""
        return 27 * self.dim * self.gradient * self._wide(1) * self.levels**2 / self.epsilon

    @property
    def disagreement(self) -> float:
        """6 G (G + alpha R) / n: what unfinished gossip costs, over a weight."""
        return 6 * self.gradient * self._wide(1) / self.learners

    def lag(self, block: int) -> float:
        """G L (G + 2 alpha R): what a block of lag costs, over a weight."""
        return self.gradient * block * self._wide(2)

    def _wide(self, times: int) -> float:
        return self.gradient + times * self.strong_convexity * self.radius

    def weights(self, blocks: NDArray[np.int64], block: int, h: float) -> NDArray[np.float64]:
        """Of |x|^2 / 2: alpha z L + 2 h, for numbers of blocks z."""
        return self.strong_convexity * blocks.astype(np.float64) * block + 2 * h


def theorem_3_6(setting: BlockSetting, block: int, h: float) -> float:
    """The bound of eq. (8) on E[R_{T,i}] of PD-FTGL.

    >>> letter = BlockSetting(learners=9, dim=416, horizon=150_000, epsilon=10.0, gradient=1.0, radius=10.0)
    >>> h = math.sqrt(14 * 67 * 150_000 * letter.levels) / 10  # of Corollary 3.7, which is a little above the theorem
    >>> corollary = 9 * 10 * (7 * math.sqrt(67 * 150_000 * letter.levels)
    ...     + 4 * 416 * letter.levels**1.5 * math.sqrt(150_000 / 67) / 10)
    >>> round(theorem_3_6(letter, 67, h) / corollary, 2)
    0.86
    """
    return _bound(setting, block, h, behind=1, factor=12, inexact=0.0)


def theorem_3_9(setting: BlockSetting, block: int, h: float) -> float:
    """The bound of eq. (11) on E[R_{T,i}] of PD-OCG, whose oracle is called L times a block.

    >>> letter = BlockSetting(learners=9, dim=416, horizon=150_000, epsilon=10.0, gradient=1.0, radius=10.0)
    >>> h = math.sqrt(15 * 387 * 150_000) / 10  # of Corollary 3.10
    >>> corollary = 9 * 10 * (21 * 150_000**0.75 + 4 * 416 * 150_000**0.25 * letter.levels**2 / 10)
    >>> round(theorem_3_9(letter, 387, h) / corollary, 2)
    0.87
    """
    return _bound(setting, block, h, behind=2, factor=24, inexact=12 * setting.gradient * setting.radius)


def _bound(setting: BlockSetting, block: int, h: float, *, behind: int, factor: float, inexact: float) -> float:
    """Decisions follow duals so many blocks behind; `inexact`, over sqrt(L), is what an oracle costs."""
    check_count("block", block)
    check_positive("h", h)
    z = np.arange(1, math.ceil(setting.horizon / block) + 1)
    lag = factor * setting.lag(block) / setting.weights(z, block, h)
    late = setting.weights(z[behind:] - behind - 1, block, h)
    total = lag.sum() + ((setting.noise + setting.disagreement) / late + inexact / math.sqrt(block)).sum()
    return setting.learners * (h * setting.radius**2 + block * float(total))
