"""Scores for canaries in one run, where the noise is added to sums of gradients.

Let y_t be what a learner newly releases at exchange t: a sum x_t of gradients, with noise. Whoever knows the points at
which gradients were taken knows x_t, but for the coins: each canary adds m + b v/2, where m is the mean of its two
gradients, v their difference, and b = 1 or -1 its coin. Taken off what is known, and made independent by the matrix W
of the noise (see `online_federated.whitening`), all that a learner releases is

    r = sum_k (b_k / 2) W_k v_k^T + z,        W_k: the column of canary k,  z: independent Gaussian draws of scale s.

So y_j = <W_j v_j^T / 2, r> / s^2 = sum_k K_jk b_k + noise of covariance K, with K_jk = <W_j, W_k> <v_j, v_k> / 4 s^2.
The best linear estimate of all coins together is (K + 1)^-1 y. Divided by the diagonal of (K + 1)^-1 it is half a
log-likelihood ratio where canaries do not disturb each other, and nearly so where they do.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.auditing.attacks.online_federated import whitening
from gossamer.auditing.attacks.pd_ftgl import strategy
from gossamer.auditing.one_run import Canaries, Part, Scores
from gossamer.auditing.views import Floats, log_ratio
from gossamer.core import Algorithm, Federation
from gossamer.errors import ConfigurationError
from gossamer.mechanisms import Factorized, Independent
from gossamer.mechanisms.factors import Buffered
from gossamer.privacy import Clip, Law
from gossamer.problems import Block, Problem
from gossamer.streams import Stream
from gossamer.topology import Topology

Singles = NDArray[np.float32]


def matched_filter(algorithm: Algorithm, stream: Stream, neighbour: Stream) -> Scores:
    """Scores for an audit in one run of an algorithm that releases sums of gradients.

    For `online_federated` (gradients of later local steps as if they were taken at the point where the round starts),
    for tight `pd_ogd` and for `d_ogd`, which has no noise. Any other algorithm needs a score of its own.

    Args:
        algorithm: what is audited.
        stream: one record of every canary, and all other samples, which the auditor knows.
        neighbour: the other record of every canary.

    >>> from gossamer import algorithms, problems, topology
    >>> from gossamer.auditing import audit, samples
    >>> algorithm = algorithms.d_ogd(problems.Linear(2), topology.ring(4), step=1.0)
    >>> x = np.random.default_rng(0).normal(size=(50, 4, 2))
    >>> one, other = (samples(sign * x, np.zeros((50, 4))) for sign in (1, -1))
    >>> found = audit(algorithm, one, other, statistic=matched_filter(algorithm, one, other), method="one-run", seed=0)
    >>> found.guesses
    Guesses(counted=100, guessed=100, right=100)
    """
    read = _READERS.get(algorithm.name)
    if read is None or "unit" in algorithm.public:
        given = algorithm.name if read is None else f"{algorithm.name} as published"
        raise ConfigurationError("algorithm", given, " or ".join(_READERS), "write a score of your own")
    if isinstance(algorithm.topology, Federation) and algorithm.topology.participation < 1:
        raise ConfigurationError("participation", algorithm.topology.participation, "1", "write a score of your own")

    def scores(canaries: Canaries, parts: Iterator[Part]) -> Floats:
        residuals = _residuals(algorithm, stream, neighbour, canaries, read(algorithm, parts))
        law: Law = next((spec.law for spec in algorithm.learner.noise.values()), "gaussian")
        return _jointly(algorithm, canaries, residuals) if law == "gaussian" else _alone(algorithm, law, residuals)

    return scores


class Released(NamedTuple):
    """What is new at each exchange of a part, and where gradients were taken; axes (exchange, learner, coordinate)."""

    part: Part
    new: Singles
    points: Singles


def _said(part: Part) -> Singles:
    if part.view.messages is None:
        raise ConfigurationError("observer", "sees no messages", "one who does", "or write a score of your own")
    return np.asarray(part.view.messages)


def _from_server(algorithm: Algorithm, parts: Iterator[Part]) -> Iterator[Released]:
    """A message is the mean of a round's released gradients; what was broadcast before it is where they were taken."""
    last = algorithm.problem.initial_decision()
    for part in parts:
        said, answered = _said(part), part.view.broadcasts
        points = np.broadcast_to(np.concatenate([last[None], answered[:-1]])[:, None], said.shape)
        last = answered[-1]
        new = np.asarray(part.block * (said - algorithm.problem.l2 * points), np.float32)
        yield Released(part, new, points)


def _from_neighbours(algorithm: Algorithm, parts: Iterator[Part]) -> Iterator[Released]:
    """A message is what was heard, less the step times the released gradient at the message before."""
    assert isinstance(algorithm.topology, Topology)
    problem, last = algorithm.problem, np.tile(algorithm.problem.initial_decision(), (algorithm.learners, 1))
    project = jax.jit(jax.vmap(jax.vmap(problem.domain.project)))
    for part in parts:
        said = _said(part)
        exchanges = part.exchange + np.arange(len(said))
        before = np.concatenate([last[None], said[:-1]])
        weights = np.stack([algorithm.topology.matrix(max(0, t - 1)) for t in exchanges.tolist()])
        steps = algorithm.public["step"](exchanges + 1)[:, None, None]
        last, points = said[-1], np.asarray(project(before))
        yield Released(part, ((weights @ before - said) / steps - problem.l2 * points).astype(np.float32), points)


_READERS: dict[str, Callable[[Algorithm, Iterator[Part]], Iterator[Released]]] = {
    "online_federated": _from_server,
    "pd_ogd": _from_neighbours,
    "d_ogd": _from_neighbours,
}


class Residual(NamedTuple):
    """What was released less all that is known: b v/2 for every canary, and noise.

    Attributes:
        start: number of the first exchange.
        rows: axes (exchange, learner, coordinate).
        which: the canaries of this part.
        exchanges: theirs, from 0 in this part.
        learners: theirs.
        moved: v of each.
    """

    start: int
    rows: Singles
    which: slice
    exchanges: NDArray[np.intp]
    learners: NDArray[np.intp]
    moved: Singles


def _residuals(
    algorithm: Algorithm, stream: Stream, neighbour: Stream, canaries: Canaries, released: Iterator[Released]
) -> Iterator[Residual]:
    problem, clip = algorithm.problem, cast(Clip | None, algorithm.parameters.get("clip"))
    for part, new, points in released:
        span = part.step, part.step + len(new) * part.block
        ours, theirs = stream.read(*span), neighbour.read(*span)
        which = slice(*np.searchsorted(canaries.steps, span))
        steps, learners = canaries.steps[which] - part.step, canaries.learners[which]
        exchanges = steps // part.block
        blocks = Block(*(_by_exchange(leaf, part.block) for leaf in ours))
        there = points[exchanges, learners]
        one, other = (
            _gradients(problem, clip, there, *(leaf[steps, learners] for leaf in each)) for each in (ours, theirs)
        )
        rows = new - np.asarray(_sums(problem, clip, points, blocks))
        np.add.at(rows, (exchanges, learners), (one - other) / 2)
        yield Residual(part.exchange, rows, which, exchanges, learners, one - other)


def _by_exchange(leaf: NDArray[np.generic], block: int) -> NDArray[np.generic]:
    """Axes (step, learner, ...) to (exchange, learner, step, ...)."""
    return leaf.reshape(-1, block, *leaf.shape[1:]).swapaxes(1, 2)


@partial(jax.jit, static_argnums=(0, 1))
def _sums(problem: Problem, clip: Clip | None, points: jax.Array, block: Block) -> jax.Array:
    """The clipped sum of every exchange and learner."""
    total = partial(problem.clipped_data_gradient_sum, clip=clip)
    sums: jax.Array = jax.vmap(jax.vmap(total))(points, block)
    return sums


def _gradients(problem: Problem, clip: Clip | None, points: Singles, x: Singles, y: NDArray[np.generic]) -> Singles:
    """The clipped gradient of each sample at its point; rows are filled up, so that few sizes are compiled for."""
    count = len(points)
    size = 1 << max(0, count - 1).bit_length()
    filled = (np.concatenate([leaf, np.zeros((size - count, *leaf.shape[1:]), leaf.dtype)]) for leaf in (points, x, y))
    at, features, labels = (each[None] for each in filled)
    sums = _sums(problem, clip, at, Block(features[:, :, None], labels[:, :, None]))
    return np.asarray(sums)[0, :count]


def _scales(algorithm: Algorithm) -> Floats:
    """Of every learner's noise; 1 where there is none, which gives the same order of scores."""
    scales = [algorithm.scales_of(name) for name in algorithm.scales]
    return np.array([scale.value for scale in scales[0]] if scales else [1.0] * algorithm.learners)


def _alone(algorithm: Algorithm, law: Law, residuals: Iterator[Residual]) -> Floats:
    """Log-likelihood ratios where every exchange has noise of its own."""
    scales = _scales(algorithm)
    found = []
    for _, rows, _, at, whose, moved in residuals:
        ends = (sign * moved / scales[whose, None] / 2 for sign in (1, -1))
        found.append(log_ratio(law, 1.0, rows[at, whose] / scales[whose, None], *ends))
    return np.concatenate(found)


def _jointly(algorithm: Algorithm, canaries: Canaries, residuals: Iterator[Residual]) -> Floats:
    """Best linear estimates of all coins of a learner together: see the top of this file."""
    matrix = _matrix(algorithm, canaries.exchanges)
    whiten = _Whitening(algorithm, matrix)
    mine = [np.flatnonzero(canaries.learners == learner) for learner in range(algorithm.learners)]
    moved = [np.zeros((len(each), algorithm.problem.dim), np.float32) for each in mine]
    columns = [np.zeros(len(each), np.intp) for each in mine]
    matched = [np.zeros(len(each)) for each in mine]
    for start, rows, which, at, whose, differences in residuals:
        white = whiten(rows)
        for learner, places in enumerate(mine):
            first, last = np.searchsorted(places, (which.start, which.stop))
            moved[learner][first:last] = differences[whose == learner]
            columns[learner][first:last] = start + at[whose == learner]
            weights = matrix[start : start + len(rows), columns[learner][:last]]
            matched[learner][:last] += np.sum(weights * (white[:, learner] @ moved[learner][:last].T), axis=0)
    found = np.zeros(len(canaries.steps))
    for learner, scale in enumerate(_scales(algorithm)):
        own = matrix[:, columns[learner]]
        joint = (own.T @ own) * (moved[learner] @ moved[learner].T) / (4 * scale**2)
        inverse = np.linalg.inv(joint + np.eye(len(joint)))
        found[mine[learner]] = inverse @ matched[learner] / (2 * scale**2) / np.diag(inverse)
    return found


def _matrix(algorithm: Algorithm, exchanges: int) -> Floats:
    """W."""
    if not algorithm.releases:
        return np.eye(exchanges)
    mechanism, per_exchange = algorithm.releases[0].mechanism, _rows_of_noise(algorithm)
    if per_exchange == 1:
        return strategy(mechanism, exchanges)
    return whitening(mechanism, exchanges * per_exchange, per_exchange)


def _rows_of_noise(algorithm: Algorithm) -> int:
    return next(iter(algorithm.learner.noise.values())).size // algorithm.problem.dim


class _Whitening:
    """Applies W to rows as they come. A buffered factor needs its buffers only; any other, all rows before."""

    def __init__(self, algorithm: Algorithm, matrix: Floats) -> None:
        mechanism = algorithm.releases[0].mechanism if algorithm.releases else None
        self.independent = mechanism is None or isinstance(mechanism, Independent)
        self.matrix = matrix
        self.past: list[Singles] = []
        self.factor = None
        factor = mechanism.factor if isinstance(mechanism, Factorized) else None
        if isinstance(factor, Buffered) and _rows_of_noise(algorithm) == 1:
            self.factor = factor
            self.buffers = jnp.zeros((len(self.factor.rates), algorithm.learners, algorithm.problem.dim))

    def __call__(self, rows: Singles) -> Singles:
        """The next rows."""
        if self.independent:
            return rows
        if self.factor is not None:
            self.buffers, white = _buffered(self.factor, self.buffers, rows)
            return np.asarray(white)
        self.past += list(rows)
        count = len(self.past)
        weights = self.matrix[count - len(rows) : count, :count]
        return np.tensordot(weights, np.stack(self.past), axes=1).astype(np.float32)


@partial(jax.jit, static_argnums=0)
def _buffered(factor: Buffered, buffers: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows of C x: each row, and what the buffers hold of those before it."""
    scales, keeps = jnp.array(factor.scales, jnp.float32), 1 - jnp.array(factor.rates, jnp.float32)

    def step(held: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return keeps[:, None, None] * held + row[None], row + jnp.tensordot(scales, held, axes=1)

    result: tuple[jax.Array, jax.Array] = jax.lax.scan(step, buffers, rows)
    return result
