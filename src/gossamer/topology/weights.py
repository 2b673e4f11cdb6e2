"""Weight rules: from who hears whom to how much each voice counts."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from gossamer.errors import ConfigurationError
from gossamer.topology.base import Floats

TOLERANCE = 1e-9
NAMED_LEARNERS = 5


def weigh(adjacency: sparse.csr_array, weights: str | Floats, directed: bool) -> sparse.csr_array:
    """Weights on a graph; adjacency[i, j] = 1 where i hears j, with an empty diagonal.

    >>> pair = sparse.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> weigh(pair, "lazy", directed=False).toarray()
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    if not isinstance(weights, str):
        return custom(adjacency, weights)
    if weights not in RULES:
        raise ConfigurationError("weights", weights, " | ".join(RULES) + " | an (n, n) matrix")
    if directed and weights in ("metropolis", "lazy"):
        allowed = "push-sum | uniform | an (n, n) matrix on a directed graph"
        raise ConfigurationError("weights", weights, allowed, "use push-sum, whose mass corrects for the one-way links")
    return RULES[weights](adjacency)


def metropolis(adjacency: sparse.csr_array) -> sparse.csr_array:
    """Symmetric and doubly stochastic: 1 / (1 + the larger of the two degrees)."""
    edges, degrees = adjacency.tocoo(), adjacency.sum(axis=1)
    values = 1.0 / (1.0 + np.maximum(degrees[edges.row], degrees[edges.col]))
    spoken = sparse.csr_array((values, (edges.row, edges.col)), shape=adjacency.shape)
    return _with_own(spoken, 1.0 - spoken.sum(axis=1))


def lazy(adjacency: sparse.csr_array) -> sparse.csr_array:
    """Half of metropolis and half of one's own: positive semidefinite."""
    return ((metropolis(adjacency) + sparse.eye_array(adjacency.shape[0])) / 2.0).tocsr()


def uniform(adjacency: sparse.csr_array) -> sparse.csr_array:
    """Row stochastic: everything heard, and one's own, counts the same."""
    share = 1.0 / (1.0 + adjacency.sum(axis=1))
    return _with_own(sparse.diags_array(share) @ adjacency, share)


def push_sum(adjacency: sparse.csr_array) -> sparse.csr_array:
    """Column stochastic: a speaker splits its message evenly over its listeners and itself."""
    share = 1.0 / (1.0 + adjacency.sum(axis=0))
    return _with_own(adjacency @ sparse.diags_array(share), share)


RULES: dict[str, Callable[[sparse.csr_array], sparse.csr_array]] = {
    "metropolis": metropolis,
    "lazy": lazy,
    "uniform": uniform,
    "push-sum": push_sum,
}


def custom(adjacency: sparse.csr_array, weights: Any) -> sparse.csr_array:
    """A given matrix, refused unless it is row- or column-stochastic and zero where there is no edge."""
    given = np.asarray(weights)
    if given.shape != adjacency.shape or given.dtype.kind not in "iuf":
        shown = f"{given.dtype} array of shape {given.shape}"
        raise ConfigurationError("weights", shown, f"numbers of shape {adjacency.shape}")
    if not np.all(np.isfinite(given)) or np.any(given < 0):
        row, column = np.argwhere(~(np.isfinite(given) & (given >= 0)))[0]
        raise ConfigurationError("weights", f"entry [{row}, {column}]", "finite numbers of at least 0")
    matrix = sparse.csr_array(given.astype(np.float64))
    _refuse_extra_links(matrix, adjacency)
    if not (is_row_stochastic(matrix) or is_column_stochastic(matrix)):
        excess = matrix.sum(axis=1) - 1.0
        worst = int(np.argmax(np.abs(excess)))
        allowed = f"rows or columns that sum to 1 within {TOLERANCE:g}"
        hint = "divide each row by its sum, or each column for push-sum"
        raise ConfigurationError("weights", f"row {worst} that sums to 1 {excess[worst]:+.3g}", allowed, hint)
    return matrix


def is_row_stochastic(matrix: sparse.csr_array) -> bool:
    """Whether every learner's weights sum to one."""
    return bool(np.all(np.abs(matrix.sum(axis=1) - 1.0) <= TOLERANCE))


def is_column_stochastic(matrix: sparse.csr_array) -> bool:
    """Whether every message is split without loss."""
    return bool(np.all(np.abs(matrix.sum(axis=0) - 1.0) <= TOLERANCE))


def is_symmetric(matrix: sparse.csr_array) -> bool:
    """Whether any two learners weigh each other alike."""
    return bool(abs(matrix - matrix.T).max() <= TOLERANCE)


def is_connected(matrix: sparse.csr_array) -> bool:
    """Whether news from every learner reaches every other one."""
    return int(connected_components(matrix, connection="strong", return_labels=False)) == 1


def describe_cut(matrix: sparse.csr_array) -> str:
    """Names the smallest group of learners that hears nobody outside it.

    >>> describe_cut(sparse.csr_array(np.array([[1.0, 0.0], [0.5, 0.5]])))
    'learner 0 cannot hear the others'
    """
    groups, label = connected_components(matrix, connection="strong")
    edges = matrix.tocoo()
    crossing = label[edges.row] != label[edges.col]
    deaf = np.setdiff1d(np.arange(groups), label[edges.row[crossing]])
    sizes = np.bincount(label, minlength=groups)
    members = np.flatnonzero(label == deaf[np.argmin(sizes[deaf])])
    named = ", ".join(str(member) for member in members[:NAMED_LEARNERS])
    more = f" and {len(members) - NAMED_LEARNERS} more" if len(members) > NAMED_LEARNERS else ""
    return f"learner{'s' if len(members) > 1 else ''} {named}{more} cannot hear the others"


def _with_own(spoken: sparse.csr_array, own: Floats) -> sparse.csr_array:
    return (spoken + sparse.diags_array(own)).tocsr()


def _refuse_extra_links(matrix: sparse.csr_array, adjacency: sparse.csr_array) -> None:
    allowed = adjacency + sparse.eye_array(adjacency.shape[0])
    hearers, speakers = (matrix - matrix.multiply(allowed)).nonzero()
    if len(hearers):
        given = f"a weight at [{hearers[0]}, {speakers[0]}]"
        hint = f"add the edge {speakers[0]} -> {hearers[0]} to the graph or remove its weight"
        raise ConfigurationError("weights", given, "zero where there is no edge", hint)
