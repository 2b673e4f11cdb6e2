"""Mixing: what each learner hears when all of them have spoken, for the simulator.

A mixing is a hashable value. `prepare` runs on the host and turns a topology into arrays; `mix` is pure JAX
and linear in the messages. Up to DENSE_LIMIT learners all gossip steps of an exchange are fused into one
matrix multiplication; above it, and on sparse fixed graphs, each step gathers from neighbour lists.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError
from gossamer.spec import kind
from gossamer.topology.base import DENSE_LIMIT, Integers, Topology, as_exchanges, dense
from gossamer.topology.fixed import FixedTopology
from gossamer.topology.halo import within_reach

CHANGING_DENSE_LIMIT = 128
"""Above this many learners one matrix per exchange would fill the memory: changing topologies gather."""

SPARSE = 32
"""Plain gossip gathers on a fixed graph with so many times as many learners as anybody hears in all its steps.

Measured on a CPU, messages of 1 to 1,000 numbers, 1 to 32 seeds: gathering is then 2 to 70 times as fast as
multiplying, and at twice that density about as fast where messages are short.
"""

SMALLEST_GAP = 1e-12
UNROLLED_PLACES = 8

Arrays: TypeAlias = dict[str, Any]
Messages: TypeAlias = Any
"""Any pytree whose leaves have a leading axis over the learners."""


class Mixing(Protocol):
    """What the network does with the messages of one exchange; implementations are hashable values."""

    @property
    def steps(self) -> int:
        """Gossip steps in one exchange; each costs the topology's `links`."""

    def theta_on(self, topology: Topology) -> float | None:
        """Each step is (1 + theta) P H - theta H(before), as a node computes it too; None: P H, plain gossip."""

    def prepare(self, topology: Topology, exchanges: Integers) -> tuple[Arrays, Arrays]:
        """On the host: arrays that never change, and arrays with a leading axis over these exchanges."""

    def mix(self, constant: Arrays, varying: Arrays, messages: Messages) -> Messages:
        """On the device: what each learner hears, given the `varying` of one exchange."""


class Pair(NamedTuple):
    """Messages of accelerated gossip: the iterate H^k and the one before it."""

    now: Any
    before: Any


def spoken(messages: Messages) -> Messages:
    """The part of the messages that travels: of a `Pair` the iterate before stays with its learner.

    >>> spoken(Pair(now=1.0, before=2.0))
    1.0
    """
    return messages.now if isinstance(messages, Pair) else messages


class PushSum(NamedTuple):
    """Messages of push-sum: both parts are mixed alike, and their ratio estimates the average."""

    value: Any
    mass: Any

    def ratio(self) -> Any:
        """Value divided by mass, which lacks the value's trailing axes.

        >>> PushSum(value=jnp.array([[2.0, 4.0]]), mass=jnp.array([0.5])).ratio()
        Array([[4., 8.]], dtype=float32)
        """

        def divide(value: jax.Array) -> jax.Array:
            mass = jnp.asarray(self.mass)
            return value / mass.reshape(mass.shape + (1,) * (value.ndim - mass.ndim))

        return jax.tree.map(divide, self.value)


@kind("mixing", "gossip")
@dataclass(frozen=True)
class Gossip:
    """Plain gossip: `steps` times, everybody takes the weighted sum of what it hears, H <- P H.

    Over column-stochastic weights with `PushSum` messages this is push-sum. A topology that changes keeps the
    weights of an exchange for all steps of it.

    >>> from gossamer import topology
    >>> constant, varying = Gossip().prepare(topology.complete(2), np.arange(1))
    >>> Gossip().mix(constant, varying, jnp.array([0.0, 4.0]))
    Array([2., 2.], dtype=float32)
    """

    steps: int = 1

    def __post_init__(self) -> None:
        check_count("steps", self.steps, least=1)

    def theta_on(self, topology: Topology) -> None:
        """No acceleration."""

    def prepare(self, topology: Topology, exchanges: Integers) -> tuple[Arrays, Arrays]:
        """Arrays for `mix`; a topology that is fixed has no varying part."""
        # A fixed topology has the weights of exchange 0 for ever.
        lists = topology.neighbours(np.zeros(1, np.int64) if topology.fixed else as_exchanges(exchanges))
        if self._multiplies(topology, width=lists.speakers.shape[-1]):
            arrays: Arrays = {"matrix": _rounded(np.linalg.matrix_power(dense(lists), self.steps))}
        else:
            weights = lists.weights.copy()
            arrays = {"speakers": np.asarray(lists.speakers), "weights": to_float32(weights, own=weights[..., 0])}
        return ({name: array[0] for name, array in arrays.items()}, {}) if topology.fixed else ({}, arrays)

    def _multiplies(self, topology: Topology, width: int) -> bool:
        """Whether one matrix holds all steps of an exchange; else each gathers what `width` others say."""
        if not topology.fixed:
            return topology.learners <= CHANGING_DENSE_LIMIT
        sparse = SPARSE if jax.default_backend() == "cpu" else 1  # there, a product takes as long as many gathers
        return topology.learners <= min(DENSE_LIMIT, sparse * self.steps * max(width, 1) - 1)

    def mix(self, constant: Arrays, varying: Arrays, messages: Messages) -> Messages:
        """What each learner hears; leaves of `messages` have a leading axis over the learners."""
        weights = constant | varying
        if "matrix" in weights:
            return _multiply(weights["matrix"], messages)
        return jax.lax.fori_loop(0, self.steps, lambda _, heard: _gather(weights, heard), messages)


@kind("mixing", "accelerated-gossip")
@dataclass(frozen=True)
class AcceleratedGossip:
    """Accelerated gossip, eq. (5) of paper 000: H^{k+1} = (1 + theta) P H^k - theta H^{k-1}, `steps` times.

    Messages are a `Pair` (H^0, H^{-1}), and a `Pair` (H^L, H^{L-1}) is heard. With before = now this is the
    decoupled form; carrying the pair from block to block is the coupled form of Wan et al.
    The default theta is that of Lemma F.1, 1 / (1 + sqrt(1 - sigma_2^2)).

    >>> from gossamer import topology
    >>> start, gossip = jnp.array([0.0, 0.0, 8.0, 0.0]), AcceleratedGossip(steps=4)
    >>> constant, varying = gossip.prepare(topology.ring(4), np.arange(1))
    >>> gossip.mix(constant, varying, Pair(start, start)).now
    Array([0.919..., 2.530..., 2.020..., 2.530...], dtype=float32)
    """

    steps: int
    theta: float | None = None

    def __post_init__(self) -> None:
        check_count("steps", self.steps, least=1)
        if self.theta is not None and not 0.0 <= self.theta <= 1.0:
            raise ConfigurationError("theta", self.theta, "from 0 to 1, or None for that of Lemma F.1")

    def check(self, topology: Topology) -> None:
        """Refuse a topology that the acceleration is not made for."""
        if not (isinstance(topology, FixedTopology) and topology.is_doubly_stochastic() and topology.is_symmetric()):
            allowed = "fixed, symmetric and doubly stochastic for accelerated gossip"
            hint = "use metropolis or lazy weights on an undirected graph, or plain Gossip"
            raise ConfigurationError("topology", topology.name, allowed, hint)

    def theta_on(self, topology: Topology) -> float:
        """Theta as it is used on a network.

        >>> from gossamer import topology
        >>> AcceleratedGossip(2).theta_on(topology.ring(1)), AcceleratedGossip(2, theta=0.25).theta_on(topology.ring(1))
        (0.5, 0.25)
        """
        return accelerated_theta(topology) if self.theta is None else self.theta

    def prepare(self, topology: Topology, exchanges: Integers) -> tuple[Arrays, Arrays]:
        """Arrays for `mix`: all of them are the same in all exchanges."""
        as_exchanges(exchanges)
        self.check(topology)
        theta = self.theta_on(topology)
        if topology.learners <= DENSE_LIMIT:
            rows = _polynomials(topology.matrix(), self.steps, theta)
            return {"block": np.block([[_rounded(polynomial) for polynomial in row] for row in rows])}, {}
        lists, _ = Gossip().prepare(topology, exchanges)
        return lists | {"theta": np.float32(theta)}, {}

    def matrix(self, topology: Topology) -> NDArray[np.float32]:
        """The matrix M = p_L(P) that `mix` multiplies with where before = now, with its roundings to float32.

        >>> from gossamer import topology
        >>> AcceleratedGossip(steps=8).matrix(topology.complete(2)).tolist()
        [[0.53125, 0.46875], [0.46875, 0.53125]]
        """
        constant, _ = self.prepare(topology, np.zeros(1, np.int64))
        if "block" not in constant:
            hint = "above, gossip multiplies with no matrix"
            raise ConfigurationError("topology", topology.name, f"at most {DENSE_LIMIT} learners", hint)
        n = topology.learners
        return np.asarray(constant["block"][:n, :n])

    def mix(self, constant: Arrays, varying: Arrays, messages: Pair) -> Pair:
        """The pair that each learner holds after all steps."""
        if "block" in constant:
            stacked = jax.tree.map(lambda now, before: jnp.concatenate([now, before - now]), *messages)
            heard = _multiply(constant["block"], stacked)
            return Pair(*(jax.tree.map(lambda leaf, i=half: jnp.split(leaf, 2)[i], heard) for half in (0, 1)))
        pair: Pair = jax.lax.fori_loop(0, self.steps, lambda _, pair: _accelerated_step(constant, pair), messages)
        return pair


def accelerated_theta(topology: Topology) -> float:
    """The mixing coefficient of Lemma F.1 in paper 000: 1 / (1 + sqrt(1 - sigma_2^2)).

    >>> from gossamer import topology
    >>> round(accelerated_theta(topology.ring(25, weights="lazy")), 6)
    0.873864
    """
    gap = _positive_gap(topology)
    return 1.0 / (1.0 + math.sqrt(gap * (2.0 - gap)))


def accelerated_block(topology: Topology, horizon: int) -> int:
    """The block length L of eq. (7) in paper 000: ceil(4 ln(n T sqrt(14 n)) / sqrt(rho)).

    >>> from gossamer import topology
    >>> accelerated_block(topology.ring(25, weights="lazy"), horizon=10_000)
    601
    """
    n, rounds = topology.learners, check_count("horizon", horizon)
    return math.ceil(4.0 * math.log(n * rounds * math.sqrt(14.0 * n)) / math.sqrt(_positive_gap(topology)))


def polynomial_matrix(matrix: NDArray[np.float64], steps: int, theta: float) -> NDArray[np.float64]:
    """The matrix M = p_L(P) of accelerated gossip that starts from H^{-1} = H^0; P must be symmetric.

    >>> polynomial_matrix(np.array([[0.75, 0.25], [0.25, 0.75]]), steps=2, theta=0.5)
    array([[0.34375, 0.65625],
           [0.65625, 0.34375]])
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.allclose(matrix, matrix.T, atol=1e-9):
        raise ConfigurationError("matrix", f"an array of shape {matrix.shape}", "a symmetric square matrix")
    return _polynomials(matrix, check_count("steps", steps, least=0), theta)[0][0]


def to_float32(weights: NDArray[np.float64], own: NDArray[np.float64]) -> NDArray[np.float32]:
    """Weights in float32 whose rows sum exactly to one where they should; `own` is the view of the own weights.

    Plain rounding makes a row sum to 1 + 3e-8, which a run of 10^8 exchanges would raise to e^3. On a grid of
    2^-24 the own weight takes up the difference without any error.

    >>> thirds = np.full((1, 3), 1 / 3)
    >>> float(to_float32(thirds, own=thirds[:, 0]).astype(np.float64).sum())
    1.0
    """
    sums = weights.sum(axis=-1)
    weights *= 2.0**24
    np.round(weights, out=weights)
    weights *= 2.0**-24
    own += sums - weights.sum(axis=-1)
    return weights.astype(np.float32)


def _rounded(matrices: NDArray[np.float64]) -> NDArray[np.float32]:
    return to_float32(matrices, own=np.einsum("...ii->...i", matrices))


def _polynomials(matrix: NDArray[np.float64], steps: int, theta: float) -> list[list[NDArray[np.float64]]]:
    """Four polynomials of P, a 2-by-2 block matrix that takes (H^0, H^{-1} - H^0) to (H^L, H^{L-1}).

    In these coordinates the first column holds p_L(P) and p_{L-1}(P), and nothing large cancels in float32.
    They are evaluated on the eigenvalues, so that a step costs n multiplications and not n^3.
    """
    eigenvalues, vectors = np.linalg.eigh(matrix)
    one, zero = np.ones_like(eigenvalues), np.zeros_like(eigenvalues)
    now, before = np.stack([one, zero]), np.stack([one, one])
    for _ in range(steps):
        now, before = (1.0 + theta) * eigenvalues * now - theta * before, now
    return [[(vectors * values) @ vectors.T for values in row] for row in (now, before)]


def _positive_gap(topology: Topology) -> float:
    gap = topology.spectral_gap()
    if gap <= SMALLEST_GAP:
        hint = "connect the learners and use lazy weights"
        raise ConfigurationError("topology", topology.name, "a spectral gap above 0", hint)
    return gap


def _multiply(matrix: jax.Array, messages: Messages) -> Messages:
    def multiply(leaf: jax.Array) -> jax.Array:
        flat = leaf.reshape(leaf.shape[0], -1)
        # Accelerators would otherwise round to fewer bits, and averages would drift.
        heard = jnp.matmul(matrix.astype(leaf.dtype), flat, precision=jax.lax.Precision.HIGHEST)
        return heard.reshape(leaf.shape)

    return jax.tree.map(multiply, messages)


def _gather(lists: Arrays, messages: Messages) -> Messages:
    def gather(leaf: jax.Array) -> jax.Array:
        flat = leaf.reshape(leaf.shape[0], -1)
        shares = lists["weights"].astype(leaf.dtype).T[..., None]
        reach = within_reach(lists, flat)

        def add(heard: jax.Array, place: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            speakers, share = place
            return heard + share * reach.at[speakers].get(mode="promise_in_bounds"), None

        places = (lists["speakers"].T, shares[1:])
        heard: jax.Array
        heard, _ = jax.lax.scan(add, shares[0] * flat, places, unroll=UNROLLED_PLACES)
        return heard.reshape(leaf.shape)

    return jax.tree.map(gather, messages)


def _accelerated_step(lists: Arrays, pair: Pair) -> Pair:
    def combine(mixed: jax.Array, before: jax.Array) -> jax.Array:
        theta: jax.Array = lists["theta"].astype(mixed.dtype)
        return mixed + theta * (mixed - before)

    return Pair(jax.tree.map(combine, _gather(lists, pair.now), pair.before), pair.now)
