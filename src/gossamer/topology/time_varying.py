"""Topologies that change from exchange to exchange.

Their randomness is public: a function of a public seed and the exchange number only, so that all nodes of a
network agree on it without a word, however a simulator cuts its run into chunks.
"""

from collections.abc import Sequence
from functools import reduce
from typing import final

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.checks import check_count, check_seed
from gossamer.errors import ConfigurationError
from gossamer.spec import kind
from gossamer.topology import weights as rules
from gossamer.topology.base import Floats, Integers, Neighbours, Topology, as_exchanges, padded, unpadded
from gossamer.topology.fixed import FixedTopology
from gossamer.topology.graphs import graph_name, in_order, weigh_graph

# Keeps these draws apart from those of any other generator that a user gives the same seed.
PURPOSE = int.from_bytes(b"topology")


def public_draws(seed: int, exchanges: Integers, count: int) -> NDArray[np.uint64]:
    """`count` uniform 64-bit integers for each exchange, a function of (seed, exchange) only.

    Raw Philox output and no distribution of numpy: these streams are guaranteed never to change.

    >>> once = public_draws(7, np.arange(5), 3)
    >>> bool((once[4] == public_draws(7, np.array([4]), 3)).all())
    True
    """
    key = np.random.SeedSequence(seed, spawn_key=(PURPOSE,)).generate_state(2, np.uint64)
    draws = np.empty((len(exchanges), count), np.uint64)
    for row, exchange in zip(draws, exchanges.tolist(), strict=True):
        row[:] = np.random.Philox(key=key, counter=[0, 0, exchange, 0]).random_raw(count)
    return draws


class ChangingTopology(Topology):
    """What all topologies that change with time share."""

    fixed = False

    @final
    def sparse(self, exchange: int = 0) -> sparse.csr_array:
        """The weights of one exchange as a sparse matrix without stored zeros."""
        lists = self.neighbours(as_exchanges(exchange))
        return unpadded(Neighbours(lists.speakers[0], lists.weights[0]))

    @final
    def second_singular_value(self) -> float:
        """Refused: the matrix changes."""
        hint = "ask for the spectral gap of one of the graphs it is made of"
        raise ConfigurationError("topology", self.name, "a fixed topology for singular values and spectral gaps", hint)


@final
class Alternating(ChangingTopology):
    """Cycles through fixed topologies: exchange t uses number t mod B. See `alternating`."""

    def __init__(self, parts: tuple[FixedTopology, ...]) -> None:
        names = ", ".join(part.name for part in parts)
        super().__init__(f"alternating({names})", parts[0].learners, any(part.directed for part in parts))
        self.parts = parts
        self._lists = _stacked([padded(part.sparse()) for part in parts])

    def neighbours(self, exchanges: Integers) -> Neighbours:
        """The lists of each exchange's part."""
        phases = self._phases(exchanges)
        return Neighbours(self._lists.speakers[phases], self._lists.weights[phases])

    def links(self, exchanges: Integers) -> NDArray[np.int64]:
        """Directed messages per exchange: those of the part whose turn it is."""
        each = np.concatenate([part.links(np.zeros(1, np.int64)) for part in self.parts])
        return each[self._phases(exchanges)]

    def ever_meets(self, learner: int) -> tuple[frozenset[int], frozenset[int]]:
        """Those whom it meets in any part."""
        hears, heard_by = zip(*(part.ever_meets(learner) for part in self.parts), strict=True)
        return frozenset().union(*hears), frozenset().union(*heard_by)

    def is_doubly_stochastic(self) -> bool:
        """Whether every part is."""
        return all(part.is_doubly_stochastic() for part in self.parts)

    def is_column_stochastic(self) -> bool:
        """Whether every part is."""
        return all(part.is_column_stochastic() for part in self.parts)

    def is_strongly_connected(self, window: int = 1) -> bool:
        """Whether the union over every `window` consecutive exchanges, wherever it starts, is connected."""
        period = len(self.parts)
        length = min(check_count("window", window, least=1), period)
        turns = [[self.parts[(start + turn) % period] for turn in range(length)] for start in range(period)]
        return all(rules.is_connected(_union(parts)) for parts in turns)

    def _phases(self, exchanges: Integers) -> NDArray[np.int64]:
        return as_exchanges(exchanges) % len(self.parts)


@kind("topology", "alternating")
def alternating(parts: Sequence[FixedTopology | nx.Graph], *, weights: str | Floats | None = None) -> Alternating:
    """Cycles through graphs: exchange t uses number t mod B, and together they must be connected.

    A part is a fixed topology, or a networkx graph, which may be in pieces on its own and gets `weights`.

    >>> halves = alternating([nx.Graph([(0, 1), (2, 3)]), nx.Graph([(1, 2), (3, 0)])])
    >>> halves.hears(0, exchange=2), halves.hears(0, exchange=3), halves.is_strongly_connected(window=2)
    (((1, 0.5),), ((3, 0.5),), True)
    """
    orders = [in_order(part) for part in parts if isinstance(part, nx.Graph)]
    if any(order != orders[0] for order in orders):
        raise ConfigurationError("parts", "graphs with different nodes", "the same nodes, in the same order")
    made = tuple(weigh_graph(graph_name(part), part, weights) if isinstance(part, nx.Graph) else part for part in parts)
    if not made or not all(isinstance(part, FixedTopology) for part in made):
        raise ConfigurationError("parts", list(made), "at least one fixed topology or networkx graph")
    sizes = [part.learners for part in made]
    if len(set(sizes)) > 1:
        raise ConfigurationError("parts", f"sizes {sizes}", "the same number of learners in every part")
    union = _union(made)
    if not rules.is_connected(union):
        cut = rules.describe_cut(union)
        raise ConfigurationError("parts", cut, "graphs that are connected together", "add a part that links them")
    return Alternating(made)


@final
class RandomMatching(ChangingTopology):
    """A fresh random matching in every exchange. See `random_matching`."""

    def __init__(self, learners: int, seed: int) -> None:
        super().__init__(f"random_matching({learners})", learners, directed=False)
        self.seed = seed

    def neighbours(self, exchanges: Integers) -> Neighbours:
        """Everybody's partner, with weight 1/2; the odd one out keeps its own."""
        draws = public_draws(self.seed, as_exchanges(exchanges), self.learners)
        order = np.argsort(draws, axis=1, kind="stable").astype(np.int32)
        last = self.learners // 2 * 2
        left, right = order[:, 0:last:2], order[:, 1:last:2]
        partner = np.tile(np.arange(self.learners, dtype=np.int32), (len(order), 1))
        np.put_along_axis(partner, left, right, axis=1)
        np.put_along_axis(partner, right, left, axis=1)
        heard = np.where(partner == np.arange(self.learners, dtype=np.int32)[None, :], 0.0, 0.5)
        return Neighbours(partner[..., None], np.stack([1.0 - heard, heard], axis=-1))

    def links(self, exchanges: Integers) -> NDArray[np.int64]:
        """Directed messages per exchange: two for each pair."""
        return np.full(len(as_exchanges(exchanges)), self.learners // 2 * 2, np.int64)

    def is_doubly_stochastic(self) -> bool:
        """Always: pairs average."""
        return True

    def is_column_stochastic(self) -> bool:
        """Always: pairs average."""
        return True

    def is_strongly_connected(self, window: int = 1) -> bool:
        """Checks the graph of all pairs that may meet, which is complete; no window makes it certain."""
        check_count("window", window, least=1)
        return True


@kind("topology", "random-matching")
def random_matching(learners: int, *, seed: int) -> RandomMatching:
    """In every exchange a fresh, uniformly random matching, whose pairs average; for odd learners one sits out.

    >>> random_matching(5, seed=1).links(np.arange(2))
    array([4, 4])
    """
    return RandomMatching(check_count("learners", learners), check_seed(seed))


@final
class FailingLinks(ChangingTopology):
    """A fixed topology whose links fail at random. See `with_link_failures`."""

    def __init__(self, base: FixedTopology, probability: float, seed: int) -> None:
        super().__init__(f"with_link_failures({base.name}, {probability})", base.learners, base.directed)
        self.base, self.probability, self.seed = base, probability, seed
        self._lists = padded(base.sparse())
        self._link, self._links = _number_links(self._lists.speakers, base.directed)

    def neighbours(self, exchanges: Integers) -> Neighbours:
        """The base's lists; the weight of each failed link moves to its receiver or back to its sender."""
        speakers, weights = self._lists
        up = self._links_up(exchanges)
        heard = np.where(up, weights[:, 1:], 0.0)
        lost = np.where(up, 0.0, weights[:, 1:])
        own = np.tile(weights[:, 0], (len(up), 1))
        if self._sender_keeps():
            np.add.at(own, (np.arange(len(up))[:, None, None], speakers[None]), lost)
        else:
            own += lost.sum(axis=-1)
        times = (len(up), *speakers.shape)
        return Neighbours(np.broadcast_to(speakers, times), np.concatenate([own[..., None], heard], axis=-1))

    def links(self, exchanges: Integers) -> NDArray[np.int64]:
        """Directed messages that arrive in each exchange."""
        used = self._lists.weights[:, 1:] > 0.0
        count: NDArray[np.int64] = np.count_nonzero(self._links_up(exchanges) & used, axis=(1, 2))
        return count

    def ever_meets(self, learner: int) -> tuple[frozenset[int], frozenset[int]]:
        """Those whom it meets when all links are up."""
        return self.base.ever_meets(learner)

    def is_doubly_stochastic(self) -> bool:
        """Whether the weights stay so when any links fail: they must be symmetric."""
        return self.base.is_doubly_stochastic() and not self.directed and self.base.is_symmetric()

    def is_column_stochastic(self) -> bool:
        """Whether senders keep what they could not send, or the weights stay doubly stochastic."""
        return self._sender_keeps() or self.is_doubly_stochastic()

    def is_strongly_connected(self, window: int = 1) -> bool:
        """Checks the graph with all links up; with failures no window makes it certain."""
        return self.base.is_strongly_connected(window)

    def _links_up(self, exchanges: Integers) -> NDArray[np.bool_]:
        draws = public_draws(self.seed, as_exchanges(exchanges), self._links)
        up: NDArray[np.bool_] = draws >= np.uint64(self.probability * 2.0**64)
        return up[:, self._link]

    def _sender_keeps(self) -> bool:
        """Column-stochastic weights stay so when the sender keeps what it could not send."""
        rule = self.base.weights
        return rule == "push-sum" or (rule == "custom" and rules.is_column_stochastic(self.base.sparse()))


@kind("topology", "with-link-failures")
def with_link_failures(topology: FixedTopology, probability: float, *, seed: int) -> FailingLinks:
    """Each link fails independently in each exchange, in both directions at once on undirected graphs.

    The weight of a failed link goes to the receiver's own message (which keeps metropolis and lazy weights
    doubly stochastic and uniform ones row stochastic) or, for push-sum, back to the sender's.

    >>> from gossamer import topology
    >>> flaky = with_link_failures(topology.complete(2), 0.5, seed=1)
    >>> flaky.links(np.arange(8)), flaky.own_weight(0, exchange=0), flaky.own_weight(0, exchange=1)
    (array([2, 0, 0, 2, 0, 0, 0, 2]), 0.5, 1.0)
    """
    if not isinstance(topology, FixedTopology):
        given, hint = getattr(topology, "name", topology), "start from a fixed graph such as ring(16)"
        raise ConfigurationError("topology", given, "a fixed topology", hint)
    if not 0.0 <= probability < 1.0:
        raise ConfigurationError("probability", probability, "at least 0 and less than 1")
    return FailingLinks(topology, float(probability), check_seed(seed))


def _number_links(speakers: Integers, directed: bool) -> tuple[NDArray[np.int64], int]:
    """Gives each place of the lists the number of its link; both directions share one unless directed."""
    hearers = np.broadcast_to(np.arange(len(speakers))[:, None], speakers.shape)
    ends = np.stack([hearers, speakers], axis=-1).reshape(-1, 2).astype(np.int64)
    if not directed:
        ends.sort(axis=1)
    _, link = np.unique(ends @ np.array([len(speakers), 1]), return_inverse=True)
    return link.reshape(speakers.shape), int(link.max(initial=-1)) + 1


def _union(parts: Sequence[FixedTopology]) -> sparse.csr_array:
    return reduce(lambda union, part: union + part.sparse(), parts[1:], parts[0].sparse())


def _stacked(lists: Sequence[Neighbours]) -> Neighbours:
    """Lists of different width as one array, padded to the widest."""
    width = max(each.speakers.shape[1] for each in lists)
    itself = np.arange(len(lists[0].speakers), dtype=np.int32)[:, None]
    speakers = [np.hstack([s, np.tile(itself, (1, width - s.shape[1]))]) for s, _ in lists]
    weights = [np.pad(w, ((0, 0), (0, width + 1 - w.shape[1]))) for _, w in lists]
    return Neighbours(np.stack(speakers), np.stack(weights))
