"""What a run shows of its exchanges: figures that rows of the result add up, and how far decisions are apart."""

from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.problems import Block
from gossamer.simulation import measuring
from gossamer.simulation.inputs import Inputs
from gossamer.simulation.measuring import sample_of
from gossamer.simulation.program import Program
from gossamer.simulation.spread import joined

SAMPLED = 1024
"""With more learners, the disagreement is estimated on a sample of so many."""


def flatten_rows(block: Block) -> Block:
    """(steps, learner or batch, ...) to (rows, ...)."""
    return Block(*(leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]) for leaf in block))


def observe(program: Program, played: jax.Array, inputs: Inputs) -> jax.Array:
    """What a row adds up of an exchange, one flat array: learner by learner, and what `begun` puts last (`parted`)."""
    if program.measure == "joint":
        played = program.spread.whole(played)[jnp.array(program.coordinates), jnp.arange(played.shape[1])][None]
    elif program.sampled:
        played = program.spread.whole(played[sample_of(program.learners, program.sampled)])
    rows, axis, weight = _measured_on(program, inputs)

    def total(values: Any) -> jax.Array:
        return jax.vmap(lambda x, b: jnp.sum(values(x, b)), (0, axis))(played, rows) * np.float32(weight)

    correct = [total(program.problem.correct)] if program.problem.classifies else []
    each = jnp.stack([total(program.problem.losses), *correct], axis=1).reshape(program.row_parts, -1)
    row = jnp.concatenate([each, jnp.zeros((program.row_parts, 1))], axis=1).reshape(-1)
    return program.spread.row(row, program.row_parts > 1)


def _measured_on(program: Program, inputs: Inputs) -> tuple[Block, int | None, float]:
    """The samples that decisions are measured on, the axis of the decisions (None: all on the same), their weight."""
    block = inputs.block
    assert isinstance(block, Block)
    if program.own_samples:
        return block, 1, 1.0
    if program.sampled:
        return (
            program.spread.whole(measuring.drawn(block, inputs.rows.exchange, program.sampled)),
            0,
            1 / measuring.per_step(block.y.shape[0]),
        )
    return program.spread.whole(flatten_rows(block)), None, 1.0


def disagreement(program: Program, played: jax.Array) -> jax.Array:
    """The mean squared distance from the mean decision: of all learners, or estimated, without bias, on a sample."""
    some, scale = played, 1 / len(played)
    if program.learners > SAMPLED:
        some = played[sample_of(program.learners, SAMPLED)]
        scale = (1 - 1 / program.learners) / (SAMPLED - 1)
    some = program.spread.whole(some)  # added up in the same order on any mesh
    centred = some - jnp.mean(some, axis=0, keepdims=True)
    # Sums of squares by learner, and not one product: that would write all of `centred` down first.
    return jnp.sum(jnp.sum(jnp.square(centred), axis=1)) * np.float32(scale)


def add_up(row: jax.Array, figures: jax.Array) -> jax.Array:
    """The sum so far with these figures, as a sum and what its roundings have lost (Knuth's two-sum).

    Rows may be long, and float32 has seven digits. The order of the additions is that of the exchanges, so results do
    not depend on how a run is cut.
    """
    high, low = row
    total = high + figures
    added = total - high
    lost = (high - (total - added)) + (figures - added)
    return jnp.stack([total, low + lost])


class Figures(NamedTuple):
    """What rows hold: sums of losses and of correct predictions by decision, and the disagreement as they begin."""

    loss: NDArray[np.float64]
    correct: NDArray[np.float64] | None
    disagreement: NDArray[np.float64]

    @classmethod
    def of(cls, program: Program, rows: Any) -> Self:
        """Of rows as programs add them up, axes (row, seed, 2, figure), in double precision: axes (row, seed, ...)."""
        sums, low = rows[:, :, 0].astype(np.float64), rows[:, :, 1]
        np.add(sums, low, out=sums, where=np.isfinite(low))  # where a loss is infinite, what was lost is no number
        sums = joined(sums, program.row_parts) if program.row_parts > 1 else sums
        each = sums[..., :-1].reshape(*sums.shape[:-1], program.decisions, -1)
        return cls(each[..., 0], each[..., 1] if program.problem.classifies else None, sums[..., -1])
