"""PDOP: private distributed optimisation with geometric steps and noise (Huang, Mitra, Vaidya 2015).

    x_i(t+1) = Proj_K( sum_j w_ij ( x_j(t) + Lap(c p^t) ) - gamma q^t grad f_{t,i}(x_i(t)) ),     0 < q < p < 1

A baseline of paper 003. Steps fall faster than noise, so the budget is finite; they sum to a finite distance too, so it
stops learning. It plays x_i(t), raw.
"""

import math

from gossamer.algorithms.authoring import Geometric
from gossamer.algorithms.descent.gossip_descent import gossip_descent
from gossamer.checks import check_count, check_positive
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError
from gossamer.privacy import Clip
from gossamer.problems import Problem
from gossamer.spec import kind
from gossamer.topology import Topology

_LEAST = 1e-30  # float32 holds no noise that is much smaller


@kind("algorithm", "pdop")
def pdop(
    problem: Problem,
    topology: Topology,
    *,
    clip: float | Clip,
    horizon: int,
    scale: tuple[float, float] = (0.5, 0.98),
    step: tuple[float, float] = (0.5, 0.96),
) -> Algorithm:
    """Private distributed optimisation with noise and steps that fall geometrically; decisions are not protected.

    Args:
        problem: loss and decision set; with a feature_bound a sample costs less, as it is carried on by less.
        topology: who hears whom; doubly stochastic weights.
        clip: what each sample's gradient is clipped to in Euclidean norm.
        horizon: the steps that are played at most.
        scale: c and p: Laplace noise of scale c p^t.
        step: gamma and q: steps of gamma q^t, q < p.

    >>> from gossamer import problems, topology
    >>> algorithm = pdop(problems.Logistic(4, feature_bound=1.0), topology.ring(5), clip=1.0, horizon=100)
    >>> round(algorithm.guarantee.epsilon, 2)
    4.44
    """
    (c, p), (gamma, q) = scale, step
    if not 0 < q < p < 1:
        raise ConfigurationError("step", step, "a ratio q with 0 < q < p < 1", f"noise falls like {p:g}^t")
    if p ** check_count("horizon", horizon) < _LEAST:
        longest = int(math.log(_LEAST) / math.log(p))
        hint = "after that noise of c p^t is nothing"
        raise ConfigurationError("horizon", horizon, f"at most {longest:,} steps", hint)
    return gossip_descent(
        "pdop",
        problem,
        topology,
        clip=clip,
        horizon=horizon,
        step=Geometric(check_positive("step", gamma), q),
        unit=Geometric(1.0, p),
        scale=check_positive("scale", c),
    )
