"""Prediction from experts: a sample is a vector of losses, one for every expert, each between 0 and 1."""

from dataclasses import KW_ONLY, dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError
from gossamer.problems.base import Block
from gossamer.problems.checks import check_losses
from gossamer.problems.linear import Linear
from gossamer.sets import DecisionSet, Simplex
from gossamer.spec import kind


@kind("problem", "experts")
@dataclass(frozen=True)
class Experts(Linear):
    """The loss <losses, w> of a mixture w of experts; of one expert, its own loss. Labels are ignored.

    Attributes:
        summed: whether a row is the sum of the losses of many samples, as streams of sums supply them: of any size.

    >>> problem = Experts(2)
    >>> float(problem.loss(jnp.array([0.25, 0.75]), jnp.array([1.0, 0.0]), jnp.array(0)))
    0.25
    >>> problem.check(Block(np.array([[0.5, 1.5]]), np.zeros(1)))
    Traceback (most recent call last):
    gossamer.errors.DataError: loss out of range at position (0, 1): allowed are numbers from 0 to 1
    """

    _: KW_ONLY
    domain: DecisionSet = field(default_factory=Simplex)
    summed: bool = False

    def __post_init__(self) -> None:
        check_count("experts", self.dim, least=2)
        super().__post_init__()
        plain = not self.l2 and self.feature_bound is None and isinstance(self.domain, Simplex)
        if not plain:
            raise ConfigurationError("experts", self, "mixtures (domain=Simplex()), without l2 and feature_bound")

    def check(self, block: Block, *, start: int = 0) -> None:
        """Losses lie between 0 and 1; sums of them are at least 0."""
        super().check(block, start=start)
        check_losses(np.asarray(block.x), np.inf if self.summed else 1.0, start)

    def loss_sums(self, block: Block, bits: int) -> jax.Array:
        """The sum over rows of every expert's losses, each between 0 and 1 and a multiple of 2^-bits.

        One row that is replaced moves no sum by more than 1, and float32 sums of up to 2^(24 - bits) rows are exact.

        >>> Experts(2).loss_sums(Block(jnp.array([[0.5, 7.0], [0.26, 0.0]]), jnp.zeros(2)), bits=2).tolist()
        [0.75, 1.0]
        """
        x = jnp.where(jnp.isfinite(block.x).all(axis=1)[:, None], block.x, 0)
        rows = x if self.summed else jnp.round(jnp.clip(x, 0, 1) * 2**bits) / 2**bits
        return jnp.sum(rows, axis=0)
