"""The virtual iterate of paper 001: the global models of a run with the noise taken out of them. A diagnostic only."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.algorithms.federated.online_federated import LocalSteps
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.privacy import Clip, FastNoise, NoiseSource, SecureNoise
from gossamer.problems import Block, Problem
from gossamer.sets import Everywhere
from gossamer.simulation import Run, simulate
from gossamer.streams import from_arrays


def virtual_iterates(
    algorithm: Algorithm, run: Run, *, noise: Callable[[int], NoiseSource] = FastNoise
) -> NDArray[np.float32]:
    """x_xi^r = x^r + (eta~ / tau) b^{r-1,tau-1} xi, r = 1, 2, ...: every global model without its noise, (round, d).

    Under eq. (9) these move along exact gradients, taken at noisy points. They are as raw as the data, and whoever
    knows them knows the noise: a simulation can show them, no node ever does.

    The noise is found by running the same learners, server and seed once more on losses that are zero.

    Args:
        algorithm: made by `online_federated`, on an unbounded decision set without l2, where models are sums.
        run: of this algorithm, with `record=["broadcasts"]` and one seed.
        noise: what the run was given. Not `SecureNoise`, whose key must never be used over other data.

    >>> from gossamer import Budget, algorithms, problems, streams
    >>> options = {"horizon": 8, "steps_per_exchange": 2, "budget": Budget(1.0, 1e-3), "clip": 1.0, "step": 0.1}
    >>> algorithm = algorithms.online_federated(problems.Linear(3), 4, **options)
    >>> stream = streams.random_signs(4, 3, seed=1)
    >>> run = simulate(algorithm, stream, 8, seed=0, record=["broadcasts"])
    >>> gradients = stream.read(0, 2).x  # of norm 1
    >>> np.allclose(virtual_iterates(algorithm, run)[0], -0.1 * gradients.sum(axis=0).mean(axis=0), atol=1e-6)
    True
    """
    learner, problem = algorithm.learner, algorithm.problem
    if not isinstance(learner, LocalSteps) or problem.l2 or not isinstance(problem.domain, Everywhere):
        hint = "there models are sums of gradients and of noise"
        raise ConfigurationError("algorithm", algorithm.name, "online_federated, no l2 and no decision set", hint)
    if "broadcasts" not in run.transcript or not isinstance(run.seed, int):
        raise ConfigurationError("run", sorted(run.transcript), "a run of one seed", "with record=['broadcasts']")
    if isinstance(noise(run.seed), SecureNoise):
        raise PrivacyError.of(
            "noise", "SecureNoise", "a source for simulations", "its key is for one run over one data set"
        )
    steps, silent = int(run.steps[-1]), _Silent(problem.dim)
    quiet = replace(
        algorithm,
        problem=silent,
        learner=replace(learner, problem=silent),
        server=replace(algorithm.server, problem=silent),  # type: ignore[type-var]  # the server of this algorithm
    )
    zeros = np.zeros((steps * algorithm.learners, 1), np.float32)
    stream = from_arrays(zeros, zeros[:, 0], algorithm.learners, seed=0, shuffle=False)
    again = simulate(quiet, stream, steps, seed=run.seed, noise=noise, record=["broadcasts"], progress=False)
    return np.asarray(run.transcript["broadcasts"] - again.transcript["broadcasts"])


@dataclass(frozen=True)
class _Silent(Problem):
    """Losses that are zero."""

    @property
    def feature_shape(self) -> tuple[int, ...]:
        return (1,)

    def predict(self, decision: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.zeros(x.shape[0])

    def _data_losses(self, decision: jax.Array, block: Block) -> jax.Array:
        return jnp.zeros(block.x.shape[0])

    def _clipped_data_gradient_sum(self, decision: jax.Array, block: Block, clip: Clip | None) -> jax.Array:
        return jnp.zeros_like(decision)

    def _row_gradients(self, decision: jax.Array, block: Block, places: jax.Array) -> jax.Array:
        return jnp.zeros((block.x.shape[0], places.shape[0]))

    def _check_labels(self, y: np.ndarray[Any, Any], start: int) -> None:
        """Nothing to check."""
