"""Gradients of learners that are not neighbours, from what one learner hears (Mrini, Cyffers and Bellet 2024).

Who talks to neighbours only is not hidden from the others: what an observer hears are mixtures of everybody's gradients
with public weights, and enough mixtures can be undone. In descent by gossip

    x(t+1) = P(t-1) x(t) - eta_t (g(t) + noise(t)),        x(0) public, one row for each learner,

every message is a public point less a sum of all g_j(s) + noise_j(s) before it, with public coefficients L. Write
g_j(s) as g_j, the mean over time, plus what it differs by. Then what is heard is A g + L e, where A adds up the columns
of L over time, and e is noise and differences. Generalised least squares with covariance L L^T solve this for g. The
solution is exact where gradients stay as they are and there is no noise.

Is g_j determined at all? That is a question of A alone: whether the network is observable from where the observer sits.
If gradients are new at every step, no: an observer hears as many numbers a step as it has neighbours, and there are as
many unknowns as learners. Then this is the best linear estimate of the means.

Like `dlg` it is no bound on epsilon, but shows what one means.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path

from gossamer.auditing.views import Floats
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError
from gossamer.privacy import Clip, FastNoise, NoiseSource
from gossamer.problems import Block
from gossamer.sets import Everywhere
from gossamer.simulation import simulate
from gossamer.streams import Stream
from gossamer.topology import Topology

DESCENTS = ("d_ogd", "noisy_ogd", "pd_ogd", "dsgd", "pdop")
"""Algorithms that say where they go next: what was heard, less a step along a gradient."""


@dataclass(frozen=True)
class Unmixed:
    """What one learner makes of what it hears.

    Attributes:
        observer: its number.
        hops: how far every learner is from it; -1 for those from whom no message ever reaches it.
        determined: for every learner how much of its gradient the heard messages fix without noise: 1 for all of it.
        gradients: the estimates of the mean gradients, axes (learner, coordinate).
        cosines: of every estimate with the mean gradient that the learner really had.
    """

    observer: int
    hops: NDArray[np.int64]
    determined: Floats
    gradients: Floats = field(repr=False)
    cosines: Floats

    def beyond(self, hops: int) -> Floats:
        """The cosines of learners at least so far away."""
        return self.cosines[self.hops >= hops]


def unmix(
    algorithm: Algorithm,
    stream: Stream,
    steps: int,
    *,
    observer: int = 0,
    seed: int,
    noise: Callable[[int], NoiseSource] = FastNoise,
) -> Unmixed:
    """Run an algorithm once, and reconstruct everybody's mean gradient from what one learner hears.

    Args:
        algorithm: descent by gossip over all vectors: see `DESCENTS`.
        stream: the learners' samples. The observer does not see them: they give the true gradients.
        steps: how many to listen to. As many as the farthest learner is hops away are needed to hear of all.
        observer: who listens: to its neighbours' messages, and to its own.
        seed: of the noise.
        noise: makes the noise source from a seed.

    >>> from gossamer import algorithms, problems, topology
    >>> from gossamer.auditing import samples
    >>> x = np.tile(np.random.default_rng(0).normal(size=(1, 6, 5)), (3, 1, 1))
    >>> stream = samples(x, np.zeros((3, 6)))
    >>> found = unmix(algorithms.d_ogd(problems.Linear(5), topology.ring(6), step=0.1), stream, 3, seed=0)
    >>> found.hops.tolist(), found.cosines.round(3).tolist()
    ([0, 1, 2, 3, 2, 1], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    """
    network = _check(algorithm, observer)
    run = simulate(algorithm, stream, steps, seed=seed, noise=noise, record=["messages", "decisions"], progress=False)
    said, played = (np.asarray(run.transcript[kind], np.float64) for kind in ("messages", "decisions"))
    heard = np.stack([network.matrix(t)[observer] > 0 for t in range(steps)])
    public, mixed = _mixtures(algorithm, network, steps)
    whiten = np.linalg.inv(np.linalg.cholesky(_square(mixed[heard])))
    sums = whiten @ mixed[heard].sum(axis=1)
    undo = np.linalg.pinv(sums, rcond=1e-9)
    determined = np.diag(undo @ sums).round(6)
    found = np.where(determined[:, None] > 0, undo @ whiten @ (public - said)[heard], 0.0)
    truth = _gradients(algorithm, played, stream.read(0, steps)).mean(axis=0)
    return Unmixed(observer, _hops(network, observer), determined, found, _cosines(found, truth))


def _check(algorithm: Algorithm, observer: int) -> Topology:
    network, problem = algorithm.topology, algorithm.problem
    if algorithm.name not in DESCENTS or not isinstance(network, Topology):
        raise ConfigurationError("algorithm", algorithm.name, " or ".join(DESCENTS), "others mix in other ways")
    if not isinstance(problem.domain, Everywhere):
        raise ConfigurationError("domain", problem.domain, "all vectors", "a projection is not linear")
    if not 0 <= observer < algorithm.learners:
        raise ConfigurationError("observer", observer, f"a learner: 0 to {algorithm.learners - 1}")
    return network


def _mixtures(algorithm: Algorithm, network: Topology, steps: int) -> tuple[Floats, Floats]:
    """Messages without any gradient, and L: axes (step, learner, coordinate) and (step, learner, step, learner)."""
    count, sizes = algorithm.learners, algorithm.public["step"](np.arange(1, steps + 1))
    point = np.tile(algorithm.problem.initial_decision().astype(np.float64), (count, 1))
    weights = np.zeros((count, steps, count))
    public, mixed = [], []
    for t, size in enumerate(sizes.tolist()):
        move = network.matrix(max(0, t - 1)) - size * algorithm.problem.l2 * np.eye(count)
        point, weights = move @ point, np.tensordot(move, weights, axes=1)
        weights[:, t] += size * np.eye(count)
        public.append(point)
        mixed.append(weights.copy())
    return np.stack(public), np.stack(mixed)


def _square(rows: Floats) -> Floats:
    """L L^T, of rows with axes (message, step, learner)."""
    flat = rows.reshape(len(rows), -1)
    return np.asarray(flat @ flat.T)


def _gradients(algorithm: Algorithm, played: Floats, data: Block) -> Floats:
    """The clipped gradients that were taken, axes (step, learner, coordinate)."""
    clip = algorithm.parameters.get("clip")
    bounded = clip if isinstance(clip, Clip) else None

    def one(decision: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return algorithm.problem.clipped_data_gradient_sum(decision, Block(x[None], y[None]), bounded)

    taken = jax.jit(jax.vmap(jax.vmap(one)))(played.astype(np.float32), data.x, data.y)
    return np.asarray(taken, np.float64)


def _hops(network: Topology, observer: int) -> NDArray[np.int64]:
    """How many messages, one after the other, carry something from each learner, by the first exchange's weights."""
    far = shortest_path(network.sparse(0), unweighted=True, indices=observer)
    return np.where(np.isfinite(far), far, -1).astype(np.int64)


def _cosines(found: Floats, truth: Floats) -> Floats:
    """0 where either is zero."""
    sizes = np.linalg.norm(found, axis=1) * np.linalg.norm(truth, axis=1)
    return np.asarray(np.sum(found * truth, axis=1) / np.where(sizes > 0, sizes, 1.0), np.float64)
