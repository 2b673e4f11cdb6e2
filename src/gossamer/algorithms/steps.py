"""Step sizes, and demands on the network, that algorithms share."""

from __future__ import annotations

import math

from gossamer.core import Rate
from gossamer.errors import ConfigurationError
from gossamer.problems import Problem
from gossamer.topology import Topology


def gradient_bound(problem: Problem, clip: float | None) -> float | None:
    """The largest norm a sample's gradient can have: the clip, the Lipschitz constant, or the smaller of both.

    >>> from gossamer.problems import Logistic
    >>> gradient_bound(Logistic(3, feature_bound=2.0), clip=0.5)
    0.5
    """
    bounds = [bound for bound in (clip, problem.lipschitz) if bound is not None]
    if not bounds:
        return None
    regularisation = problem.l2 * problem.domain.radius if problem.l2 else 0.0
    return min(bounds) + regularisation


def step_rate(problem: Problem, step: float | Rate | None, clip: float | None) -> Rate:
    """The step a user gave, or diameter / (gradient bound * sqrt(t)), the textbook choice, where both are known.

    >>> from gossamer.problems import Logistic
    >>> step_rate(Logistic(3), None, None)
    Traceback (most recent call last):
        ...
    gossamer.errors.ConfigurationError: step: got None; allowed: a positive number ...
    """
    if step is not None:
        return Rate.of("step", step)
    bound = gradient_bound(problem, clip)
    if bound is None or not math.isfinite(bound) or not math.isfinite(problem.domain.diameter):
        raise ConfigurationError(
            "step",
            step,
            "a positive number (constant) or a Rate",
            "give a step, or a problem with a bounded domain and a feature_bound or a clip, from which it follows",
        )
    return Rate(problem.domain.diameter / bound)


def require_averaging(topology: Topology) -> None:
    """Refuse weights under which gossip does not converge to the average: the algorithm would favour some learners.

    >>> from gossamer import topology
    >>> require_averaging(topology.star(5, weights="uniform"))
    Traceback (most recent call last):
        ...
    gossamer.errors.ConfigurationError: topology: got 'star(5, uniform)'; allowed: doubly stochastic weights. Use ...
    """
    if not isinstance(topology, Topology):
        raise ConfigurationError("topology", topology, "a topology", "try gossamer.topology.ring(16)")
    if not topology.is_doubly_stochastic():
        raise ConfigurationError(
            "topology", topology.name, "doubly stochastic weights", "use weights='metropolis' on an undirected graph"
        )
