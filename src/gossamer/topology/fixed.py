"""A topology that does not change with time."""

from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from gossamer.checks import check_count
from gossamer.topology import weights as rules
from gossamer.topology.base import DENSE_LIMIT, Integers, Neighbours, Topology, as_exchanges, padded

LANCZOS_RESTARTS, LANCZOS_TOLERANCE = 300, 1e-10


@final
class FixedTopology(Topology):
    """The same weights in every exchange.

    >>> from gossamer import topology
    >>> pair = topology.complete(2)
    >>> pair.matrix(), pair.hears(0), pair.links(np.arange(3))
    (array([[0.5, 0.5],
           [0.5, 0.5]]), ((1, 0.5),), array([2, 2, 2]))
    """

    fixed = True

    def __init__(self, name: str, directed: bool, weights: str, matrix: sparse.csr_array) -> None:
        super().__init__(name, matrix.shape[0], directed)
        self.weights = weights
        self._matrix = matrix
        self._matrix.eliminate_zeros()
        self._matrix.sort_indices()

    def sparse(self, exchange: int = 0) -> sparse.csr_array:
        """The weights as a sparse matrix, the same for every exchange."""
        as_exchanges(exchange)
        return self._matrix

    def neighbours(self, exchanges: Integers) -> Neighbours:
        """The same neighbour lists for every exchange (views, not copies)."""
        speakers, weights = self._lists
        times = len(as_exchanges(exchanges))
        return Neighbours(
            np.broadcast_to(speakers, (times, *speakers.shape)), np.broadcast_to(weights, (times, *weights.shape))
        )

    @cached_property
    def _lists(self) -> Neighbours:
        return padded(self._matrix)

    def links(self, exchanges: Integers) -> NDArray[np.int64]:
        """Directed messages per exchange: all links, always."""
        return np.full(len(as_exchanges(exchanges)), self._links, np.int64)

    @cached_property
    def _links(self) -> int:
        return int(self._matrix.nnz - np.count_nonzero(self._matrix.diagonal()))

    def ever_meets(self, learner: int) -> tuple[frozenset[int], frozenset[int]]:
        """Whom this learner hears, and who hears it: always the same.

        >>> from gossamer import topology
        >>> topology.directed_ring(3).ever_meets(0)
        (frozenset({2}), frozenset({1}))
        """
        self._check_learner(learner)
        hears, heard_by = self._matrix[[learner]].nonzero()[1], self._matrix[:, [learner]].nonzero()[0]
        return frozenset(hears.tolist()) - {learner}, frozenset(heard_by.tolist()) - {learner}

    def second_singular_value(self) -> float:
        """Second largest singular value of the matrix; 0 for one learner alone."""
        return self._second_singular_value

    @cached_property
    def _second_singular_value(self) -> float:
        if self.learners == 1:
            return 0.0
        if self.learners <= DENSE_LIMIT:
            dense = self.matrix()
            values = np.linalg.eigvalsh(dense) if self.is_symmetric() else np.linalg.svd(dense, compute_uv=False)
            return float(np.sort(np.abs(values))[-2])
        return _sparse_second_singular_value(self._matrix)

    def is_doubly_stochastic(self) -> bool:
        """Whether rows and columns sum to one."""
        return rules.is_row_stochastic(self._matrix) and rules.is_column_stochastic(self._matrix)

    def is_column_stochastic(self) -> bool:
        """Whether columns sum to one."""
        return rules.is_column_stochastic(self._matrix)

    def is_symmetric(self) -> bool:
        """Whether any two learners weigh each other alike."""
        return rules.is_symmetric(self._matrix)

    def is_strongly_connected(self, window: int = 1) -> bool:
        """Whether news from every learner reaches every other one; the window does not matter here."""
        check_count("window", window, least=1)
        return rules.is_connected(self._matrix)


def _sparse_second_singular_value(matrix: sparse.csr_array) -> float:
    """The root of the second eigenvalue of P'P.

    Lanczos converges quickly where gossip does. Where it does not, the graph has narrow cuts, and then the
    sparse factors of a shift just above the spectrum stay small.
    """
    apply_gram = LinearOperator(matrix.shape, dtype=np.float64, matvec=lambda x: matrix.T @ (matrix @ x))
    try:
        top = _top_two(apply_gram, tol=LANCZOS_TOLERANCE, maxiter=LANCZOS_RESTARTS)
    except ArpackNoConvergence:
        gram = (matrix.T @ matrix).tocsc()
        top = _top_two(gram, sigma=gram.sum(axis=1).max() * (1.0 + 1e-9))
    return float(np.sqrt(min(top)))


def _top_two(gram: Any, **options: float) -> NDArray[np.float64]:
    start = np.random.default_rng(0).standard_normal(gram.shape[0])
    eigenvalues: NDArray[np.float64] = eigsh(gram, k=2, v0=start, return_eigenvectors=False, **options)
    return eigenvalues
