"""DSGD: distributed stochastic gradient descent with noise on messages (Pu et al. 2021).

    x_i(t+1) = sum_j w_ij ( x_j(t) + zeta_j(t) ) - lambda_t grad f_{t,i}(x_i(t)),     lambda_t = c / (t + c')

A baseline of paper 003, with the noise of that paper: Laplace, growing like (t+1)^varsigma. It plays x_i(t), raw.
"""

import math

from gossamer.algorithms.authoring import Growth
from gossamer.algorithms.descent.gossip_descent import gossip_descent
from gossamer.checks import check_positive
from gossamer.core import Algorithm, Rate
from gossamer.privacy import Clip
from gossamer.problems import Problem
from gossamer.spec import kind
from gossamer.topology import Topology


@kind("algorithm", "dsgd")
def dsgd(
    problem: Problem,
    topology: Topology,
    *,
    sigma: float,
    clip: float | Clip,
    horizon: int,
    growth: float = 0.0,
    step: float | Rate | None = None,
) -> Algorithm:
    """Distributed stochastic gradient descent with Laplace noise on messages; decisions are not protected.

    Args:
        problem: loss and decision set; with a feature_bound a sample costs less, as it is carried on by less.
        topology: who hears whom; doubly stochastic weights.
        sigma: the standard deviation of the noise at t = 0.
        clip: what each sample's gradient is clipped to in Euclidean norm.
        horizon: the steps that are played at most.
        growth: varsigma: noise grows like (t+1)^varsigma.
        step: lambda_t; a number is a constant, and the default 1 / (t + 1).

    >>> from gossamer import problems, topology
    >>> problem = problems.Logistic(4, feature_bound=1.0)
    >>> algorithm = dsgd(problem, topology.ring(5), sigma=1.0, clip=1.0, horizon=100)
    >>> algorithm.guarantee.basis, algorithm.guarantee.observer, round(algorithm.guarantee.epsilon, 2)
    ('published', 'wiretap', 3.08)
    """
    return gossip_descent(
        "dsgd",
        problem,
        topology,
        clip=clip,
        horizon=horizon,
        step=Rate(1.0, 1.0, delay=1) if step is None else Rate.of("step", step),
        unit=Growth(check_positive("growth", growth, zero=True)),
        scale=check_positive("sigma", sigma) / math.sqrt(2),
    )
