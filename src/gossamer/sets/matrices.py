"""The ball of the trace norm: matrices of small rank, played as flat vectors."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from gossamer.checks import check_count, check_positive
from gossamer.errors import ConfigurationError
from gossamer.sets.base import DecisionSet, direction
from gossamer.sets.vectors import project_on_simplex
from gossamer.spec import kind

POWER_TOLERANCE = 1e-5
POWER_LIMIT = 1000
SQUARINGS = 8


@kind("set", "trace-norm-ball")
@dataclass(frozen=True)
class TraceNormBall(DecisionSet):
    """The matrices whose singular values sum to at most `radius`, flattened row by row.

    >>> ball = TraceNormBall(1.0, shape=(2, 2))
    >>> ball.project(jnp.array([2.0, 0.0, 0.0, 1.5])).round(4).tolist()
    [0.75, 0.0, 0.0, 0.25]
    >>> ball.linear_minimizer(jnp.array([3.0, 0.0, 0.0, 1.0])).round(2).tolist()
    [-1.0, ...0.0, ...0.0, ...0.0]
    """

    radius: float
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)
        if not isinstance(self.shape, tuple) or len(self.shape) != 2:
            raise ConfigurationError("shape", self.shape, "a tuple (rows, columns)")
        for size in self.shape:
            check_count("shape", size)

    @property
    def dimension(self) -> int:
        """Rows times columns."""
        return self.shape[0] * self.shape[1]

    @property
    def diameter(self) -> float:
        """Twice the radius."""
        return 2 * self.radius

    def _project(self, x: jax.Array) -> jax.Array:
        """Project the singular values on the l1 ball.

        The right singular vectors come from the Gram matrix of the shorter side: on a CPU half the time of
        an SVD. That squares the condition number, so the values are measured again as column norms of XV;
        what remains is an error of at most about sqrt(rounding unit) * radius, and membership is exact.
        """
        tall = self._tall(x)
        V, _ = jax.lax.linalg.eigh(tall.T @ tall, symmetrize_input=False, sort_eigenvalues=False)
        columns = tall @ V
        values = jnp.linalg.norm(columns, axis=0)
        kept = project_on_simplex(values, self.radius) / jnp.where(values > 0, values, 1)
        projected = (columns * kept[None, :]) @ V.T
        return jnp.where(values.sum() <= self.radius, x, self._flat(projected))

    def _linear_minimizer(self, g: jax.Array) -> jax.Array:
        tall = self._tall(direction(g))
        right = leading_eigenvector(tall.T @ tall)
        left = direction(tall @ right)
        return -self.radius * self._flat(jnp.outer(left, right))

    def _support(self, g: jax.Array) -> jax.Array:
        # The iterative oracle falls short of the maximum, most of all where leading values coincide, as at an optimum.
        return self.radius * jnp.linalg.svd(g.reshape(self.shape), compute_uv=False)[0]

    def _contains(self, x: jax.Array, tolerance: float) -> jax.Array:
        values = jnp.linalg.svd(x.reshape(self.shape), compute_uv=False)
        return values.sum() <= self.radius * (1 + tolerance)

    def _tall(self, x: jax.Array) -> jax.Array:
        matrix = x.reshape(self.shape)
        return matrix if self.shape[0] >= self.shape[1] else matrix.T

    def _flat(self, tall: jax.Array) -> jax.Array:
        return (tall if self.shape[0] >= self.shape[1] else tall.T).reshape(-1)


def leading_eigenvector(gram: jax.Array) -> jax.Array:
    """A unit eigenvector of the largest eigenvalue of a positive semidefinite matrix, by power iteration.

    Squaring the matrix first makes one iteration worth `2**SQUARINGS`, for about the price of forming a
    Gram matrix. Stops when the residual is below a relative tolerance, or at a limit of iterations. The
    start has coordinates of a golden-ratio sequence: no structure of the data is orthogonal to it.

    >>> leading_eigenvector(jnp.diag(jnp.array([1.0, 4.0]))).round(3).tolist()
    [...0.0, ...1.0]
    """
    golden = jnp.arange(1, gram.shape[0] + 1, dtype=gram.dtype) * 0.6180339887498949
    start = direction(1.5 - golden % 1)
    for _ in range(SQUARINGS):
        gram = jnp.matmul(gram, gram)
        gram = gram / jnp.where(gram.any(), jnp.linalg.norm(gram), 1)

    def unfinished(state: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        v, image, step = state
        value = jnp.vdot(v, image)
        large: jax.Array = jnp.linalg.norm(image - value * v) > POWER_TOLERANCE * value
        return large & (step < POWER_LIMIT)

    def iterate(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        _, image, step = state
        v = direction(image)
        return v, gram @ v, step + 1

    v, _, _ = jax.lax.while_loop(unfinished, iterate, (start, gram @ start, jnp.asarray(0)))
    return v
