"""Step sizes, and demands on the network, that algorithms share."""

from __future__ import annotations

import math
from typing import Any

from gossamer.core import Rate
from gossamer.errors import ConfigurationError
from gossamer.mechanisms import Calibrated
from gossamer.privacy import Clip, NoiseSpec
from gossamer.problems import Problem, check_clip
from gossamer.topology import Topology


def gradient_bound(problem: Problem, clip: float | Clip | None) -> float | None:
    """The largest norm a sample's gradient can have: the clip, the Lipschitz constant, or the smaller of both.

    >>> from gossamer.problems import Logistic
    >>> gradient_bound(Logistic(3, feature_bound=2.0), clip=0.5)
    0.5
    """
    bounded = check_clip(clip)
    bounds = [bound for bound in (bounded.norm if bounded else None, problem.lipschitz) if bound is not None]
    if not bounds:
        return None
    regularisation = problem.l2 * problem.domain.radius if problem.l2 else 0.0
    return min(bounds) + regularisation


def step_rate(problem: Problem, step: float | Rate | None, clip: float | Clip | None) -> Rate:
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


def noisy_step_rate(problem: Problem, step: float | Rate | None, clip: Clip, release: Calibrated[Any]) -> Rate:
    """The step a user gave, or diameter / (root mean square of a noisy gradient * sqrt(t)): all of it public.

    >>> from gossamer import mechanisms, problems, sets
    >>> release = mechanisms.Independent((4,), law="gaussian").at_scale(noise=2.0)
    >>> noisy_step_rate(problems.Logistic(4, domain=sets.L2Ball(1.0)), None, Clip(l2=3.0), release)
    Rate(scale=0.4, power=0.5, delay=0)
    """
    exact = step_rate(problem, step, clip)
    if step is not None:
        return exact
    bound = problem.domain.diameter / exact.scale
    (scales,) = release.scales.values()
    mean = sum(scale.value**2 for scale in scales) / len(scales)
    (spec,) = release.mechanism.noise("speak").values()
    return Rate(problem.domain.diameter / math.sqrt(bound**2 + mean * noise_energy(spec)))


def noise_energy(spec: NoiseSpec) -> float:
    """The mean squared norm of one additive draw at unit scale.

    >>> noise_energy(NoiseSpec("l2-laplace", (3,), used_in="speak"))
    12.0
    """
    d = spec.size
    return float({"laplace": 2 * d, "gaussian": d, "l2-laplace": d * (d + 1)}[spec.law])


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


def require_oracle(problem: Problem) -> None:
    """Refuse an unbounded decision set, on which a linear function has no minimum.

    >>> from gossamer.problems import Linear
    >>> require_oracle(Linear(3))
    Traceback (most recent call last):
        ...
    gossamer.errors.ConfigurationError: domain: got Everywhere(); allowed: a bounded set. A linear oracle ...
    """
    if not math.isfinite(problem.domain.radius):
        hint = "a linear oracle minimises over it: try domain=sets.L2Ball(10.0)"
        raise ConfigurationError("domain", problem.domain, "a bounded set", hint)
