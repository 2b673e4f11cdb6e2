"""The lower-triangular C with the least mean squared error of prefix sums, found by fixed-point iteration.

Minimise |A C^-1|^2, the sum of the squares of all entries, over all C with columns of norm 1, where A takes prefix
sums: eq. (7) of paper 001. In X = C^T C that is convex: minimise tr(M X^-1) with M = A^T A and diag(X) = 1.

With multipliers v > 0 and V = diag(v), tr(M X^-1) + sum_i v_i (X_ii - 1) is least where X V X = M, so at
X = V^(-1/2) S V^(-1/2), S = (V^(1/2) M V^(1/2))^(1/2). There it is 2 tr(S) - sum(v); for the best multiple of v,
tr(S)^2 / sum(v). No factorisation has a smaller error: a duality gap is known at every iteration. diag(X) = 1 says
v = diag(S), which is the fixed point of Denisov et al. 2022, Theorem 3.2.

M^-1 = A^-1 A^-T is tridiagonal, and so is S^-2: all its eigenvectors cost the square of the number of rows, not the
cube. docs/mechanisms.md has the proof that the iteration converges near the solution.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_ITERATIONS = 100  # 9 are enough for 6,000 rows


class Optimum(NamedTuple):
    """A matrix with columns of norm 1, and by how much at most its error is above the least one, relative to it."""

    matrix: NDArray[np.float64]
    gap: float


def optimise(rows: int, gap: float = 1e-5) -> Optimum:
    """The best matrix for so many rows, up to this gap.

    The matrix is a valid factor whatever the gap is: privacy rests on column norms, which are computed from the matrix.

    >>> best = optimise(2)
    >>> best.matrix.round(3).tolist(), best.gap < 1e-5
    ([[0.924, 0.0], [0.382, 1.0]], True)
    """
    from scipy.linalg import eigh_tridiagonal

    diagonal, beside, v = np.full(rows, 2.0), -np.ones(rows - 1), np.ones(rows)
    diagonal[0] = 1.0
    for _ in range(_ITERATIONS):
        inverse = eigh_tridiagonal(diagonal / v, beside / np.sqrt(v[1:] * v[:-1]))  # of S^-2
        values, vectors = inverse[0] ** -0.5, inverse[1]  # of S
        share = np.square(vectors) @ values  # the diagonal of S
        reached = float(_error(values, vectors, share) * v.sum() / share.sum() ** 2 - 1)
        if reached <= gap:
            break
        v *= (share / v) ** 3  # the power 1 is the published iteration: the same limit, in three times the iterations
    return Optimum(_factor((vectors * values) @ vectors.T / np.sqrt(share[:, None] * share)), reached)


def _error(values: NDArray[np.float64], vectors: NDArray[np.float64], share: NDArray[np.float64]) -> float:
    """tr(M X^-1) once X has the diagonal 1, which makes it diag(S)^(-1/2) S diag(S)^(-1/2)."""
    prefixes = np.cumsum(np.sqrt(share)[:, None] * vectors, axis=0)
    return float(np.einsum("tk,tk,k->", prefixes, prefixes, 1 / values))


def _factor(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """The lower-triangular C with C^T C = X: Cholesky, from the last row to the first."""
    return np.ascontiguousarray(np.linalg.cholesky(X[::-1, ::-1]).T[::-1, ::-1])
