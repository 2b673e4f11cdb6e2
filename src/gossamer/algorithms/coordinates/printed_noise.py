"""Noise as the papers of two baselines print it: a share of the budget for every message, and raw decisions."""

import math
from collections.abc import Callable, Sequence

from gossamer.algorithms.authoring import published_horizon, raw_decisions, require_one_bound
from gossamer.core import Public
from gossamer.mechanisms import AdditiveLaw, Calibrated
from gossamer.mechanisms.independent import Releaked, reach
from gossamer.privacy import Budget, Clip, Guarantee, Unit
from gossamer.problems import Problem
from gossamer.topology import Topology


def printed_noise(
    problem: Problem,
    topology: Topology,
    clip: Clip,
    budgets: Sequence[Budget],
    horizon: int | None,
    noise: AdditiveLaw,
    step: Public,
    least: Callable[[Topology, int], float],
    *,
    name: str,
    proof: str,
) -> tuple[Calibrated[Releaked], Guarantee]:
    """Lap(2 G sqrt(d) / (epsilon / T)) on every message; its cost is what smoothness lets through.

    `least` says what the smallest number is that a node of a network divides by within so many exchanges.

    >>> from gossamer import problems, topology
    >>> from gossamer.algorithms.coordinates.networks import smallest_mass
    >>> from gossamer.core import Rate
    >>> given = problems.Linear(4), topology.ring(3), Clip(l2=1.0), [Budget(1.0)], 100, "laplace", Rate(1.0)
    >>> release, promise = printed_noise(*given, smallest_mass, name="dual", proof="")
    >>> release.scales["dual"][0].value, promise.observer
    (400.0, 'wiretap')
    """
    rounds = published_horizon(problem, horizon, noise)
    require_one_bound(clip)
    smooth = math.inf if problem.smoothness is None else problem.smoothness
    leaked = reach(step, rounds, smooth / least(topology, rounds))
    mechanism = Releaked((problem.dim,), horizon=rounds, law=noise, name=name, reach=leaked)
    printed = [2 * clip.norm * math.sqrt(problem.dim) * rounds / budget.epsilon for budget in budgets]
    release = mechanism.at_scale(clip.sensitivity(Unit.SAMPLE, problem.dim), **{name: printed})
    claims = mechanism.claims(max(budget.epsilon for budget in budgets))
    return release, raw_decisions(release, clip, proof=proof, claims=claims)
