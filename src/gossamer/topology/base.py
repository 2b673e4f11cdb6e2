"""What every topology answers: who hears whom, with which weight, at which exchange."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.errors import ConfigurationError
from gossamer.spec import family

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]

DENSE_LIMIT = 2048
"""Above this many learners no n-by-n matrix is ever built."""

WIDTH_LIMIT = 1024
"""Above DENSE_LIMIT no learner may hear more others than this: the padded lists would be n-by-n again."""

LAST_EXCHANGE = 2**62


class Neighbours(NamedTuple):
    """Neighbour lists, padded to one width k; axes before the last two (exchanges) may come first.

    speakers: (..., n, k) whom each learner hears; unused places hold the learner itself, with weight 0.
    weights: (..., n, k + 1) the learner's own weight, then one weight per place.
    """

    speakers: Integers
    weights: NDArray[np.float64]


@family("topology")
class Topology(ABC):
    """Who hears whom. Entry [i, j] of the matrix is the weight learner i gives to what it hears from j."""

    fixed: bool

    def __init__(self, name: str, learners: int, directed: bool) -> None:
        self.name, self.learners, self.directed = name, learners, directed

    def __repr__(self) -> str:
        return self.name

    @abstractmethod
    def sparse(self, exchange: int = 0) -> sparse.csr_array:
        """The weights of one exchange as a sparse matrix without stored zeros."""

    @abstractmethod
    def neighbours(self, exchanges: Integers) -> Neighbours:
        """The weights of several exchanges as neighbour lists, with a leading axis over the exchanges."""

    @abstractmethod
    def links(self, exchanges: Integers) -> NDArray[np.int64]:
        """How many directed messages travel in each exchange (links that are down carry none)."""

    @abstractmethod
    def second_singular_value(self) -> float:
        """Second largest singular value of a fixed matrix; 0 for one learner alone."""

    @abstractmethod
    def is_doubly_stochastic(self) -> bool:
        """Whether rows and columns sum to one, in every exchange."""

    @abstractmethod
    def is_column_stochastic(self) -> bool:
        """Whether every message is split without loss, in every exchange: what push-sum needs."""

    @abstractmethod
    def is_strongly_connected(self, window: int = 1) -> bool:
        """Whether news reaches everybody over the links of every `window` consecutive exchanges."""

    def ever_meets(self, learner: int) -> tuple[frozenset[int], frozenset[int]]:
        """Whom this learner may ever hear, and who may ever hear it; where nothing rules it out, anybody meets anybody.

        >>> from gossamer import topology
        >>> hears, heard_by = topology.random_matching(4, seed=1).ever_meets(0)
        >>> sorted(hears), sorted(heard_by)
        ([1, 2, 3], [1, 2, 3])
        """
        self._check_learner(learner)
        everybody = frozenset(range(self.learners)) - {learner}
        return everybody, everybody

    def spectral_gap(self) -> float:
        """One minus the second singular value: how fast gossip agrees. One learner alone: 1."""
        return 1.0 - self.second_singular_value()

    def matrix(self, exchange: int = 0) -> NDArray[np.float64]:
        """The (n, n) weights of one exchange; refused above DENSE_LIMIT learners."""
        if self.learners > DENSE_LIMIT:
            hint = "use hears(), neighbours() or sparse(), which never build an n-by-n matrix"
            raise ConfigurationError("learners", self.learners, f"at most {DENSE_LIMIT} for a dense matrix", hint)
        dense: NDArray[np.float64] = self.sparse(exchange).toarray()
        return dense

    def hears(self, learner: int, exchange: int = 0) -> tuple[tuple[int, float], ...]:
        """Whom this learner hears, and with which weight; itself excluded."""
        speakers, weights = self._row(learner, exchange)
        return tuple((int(j), float(w)) for j, w in zip(speakers, weights, strict=True) if j != learner)

    def own_weight(self, learner: int, exchange: int = 0) -> float:
        """The weight this learner gives to its own message."""
        speakers, weights = self._row(learner, exchange)
        return float(weights[speakers == learner].sum())

    def _row(self, learner: int, exchange: int) -> tuple[Integers, Floats]:
        self._check_learner(learner)
        weights = self.sparse(exchange)
        row = slice(weights.indptr[learner], weights.indptr[learner + 1])
        return weights.indices[row], weights.data[row]

    def _check_learner(self, learner: int) -> None:
        if not 0 <= learner < self.learners:
            raise ConfigurationError("learner", learner, f"a whole number from 0 to {self.learners - 1}")


def as_exchanges(exchanges: Integers | int) -> NDArray[np.int64]:
    """Exchange numbers as int64, refused outside 0 ... 2^62 (all counters are exact in that range)."""
    numbers = np.atleast_1d(np.asarray(exchanges))
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise ConfigurationError("exchanges", f"{numbers.dtype} array", "a flat array of integers")
    if numbers.size and not (numbers.min() >= 0 and numbers.max() <= LAST_EXCHANGE):
        raise ConfigurationError("exchanges", "a number outside", "integers from 0 to 2^62")
    return numbers.astype(np.int64)


def padded(weights: sparse.csr_array) -> Neighbours:
    """The neighbour lists of a sparse weight matrix."""
    learners = weights.shape[0]
    entries = weights.tocoo()
    others = entries.row != entries.col
    hearers, speakers, values = entries.row[others], entries.col[others], entries.data[others]
    degrees = np.bincount(hearers, minlength=learners)
    width = int(degrees.max())
    if learners > DENSE_LIMIT and width > WIDTH_LIMIT:
        allowed = f"at most {WIDTH_LIMIT} neighbours each when there are more than {DENSE_LIMIT} learners"
        hint = "take a graph without hubs, or an algorithm with a server"
        raise ConfigurationError("topology", f"a learner that hears {width} others", allowed, hint)
    places = np.arange(len(hearers)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    lists = np.repeat(np.arange(learners, dtype=np.int32)[:, None], width, axis=1)
    lists[hearers, places] = speakers
    listed = np.zeros((learners, width + 1))
    listed[:, 0] = weights.diagonal()
    listed[hearers, places + 1] = values
    return Neighbours(lists, listed)


def unpadded(lists: Neighbours) -> sparse.csr_array:
    """The sparse weight matrix of the neighbour lists of one exchange."""
    learners, places = lists.weights.shape
    itself = np.arange(learners, dtype=np.int32)[:, None]
    columns = np.concatenate([itself, lists.speakers], axis=1)
    matrix = sparse.csr_array(
        (lists.weights.ravel(), columns.ravel(), np.arange(learners + 1) * places), shape=(learners, learners)
    )
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def dense(lists: Neighbours) -> NDArray[np.float64]:
    """The (..., n, n) matrices of neighbour lists with any leading axes."""
    learners = lists.weights.shape[-2]
    matrices = np.zeros((*lists.weights.shape[:-1], learners))
    np.put_along_axis(matrices, lists.speakers.astype(np.int64), lists.weights[..., 1:], axis=-1)
    # Unused places wrote a zero on the diagonal, so the own weights come last.
    np.einsum("...ii->...i", matrices)[...] = lists.weights[..., 0]
    return matrices
