"""The same algorithms on sums: a row of the stream is what the losses of a whole block add up to."""

from __future__ import annotations

from dataclasses import replace

from gossamer.core import Algorithm, Federation, Phases, Segment
from gossamer.errors import ConfigurationError
from gossamer.privacy import Assumption, Guarantee
from gossamer.problems import Experts
from gossamer.spec import kind


@kind("algorithm", "summed", readable=False)
def summed(algorithm: Algorithm, *, pooled: bool = False) -> Algorithm:
    """The same algorithm for a stream of sums (`streams.Experts.sums`): a row is what a block adds up to.

    Args:
        algorithm: one that sends sums of losses only.
        pooled: one client stands for all of them, and its rows are the sums over all. Only where clients add no noise
            of their own: the server then hears exactly the sums.

    >>> from gossamer import Budget, streams
    >>> from gossamer.algorithms import fed_svt
    >>> algorithm = fed_svt(10, 64, horizon=1000, budget=Budget(1.0))
    >>> stream = streams.realizable_experts(64, 10, seed=0).sums(algorithm.schedule, 1000, pooled=True)
    >>> from gossamer import simulate
    >>> simulate(summed(algorithm, pooled=True), stream, 100, seed=0, measure="local", progress=False).losses.shape
    (101, 1)
    """
    problem, learner = algorithm.problem, algorithm.learner
    if not isinstance(problem, Experts) or not isinstance(algorithm.schedule, Phases):
        raise ConfigurationError("algorithm", algorithm.name, "one that predicts from experts in phases")
    if pooled and learner.noise:
        raise ConfigurationError("pooled", True, "False where clients add noise of their own")
    if not getattr(learner, "whole", True):
        raise ConfigurationError("algorithm", algorithm.name, "one that uses all samples of a block")
    problem = replace(problem, summed=True)
    return replace(
        algorithm,
        problem=problem,
        guarantee=_of_sums(algorithm.guarantee),
        learner=replace(learner, problem=problem),  # type: ignore[call-arg]
        topology=Federation(1) if pooled else algorithm.topology,
        schedule=Phases(tuple(Segment(run.exchanges, min(run.block, 1)) for run in algorithm.schedule.runs)),
    )


def _of_sums(promise: Guarantee) -> Guarantee:
    """Nothing clips what is summed up already."""
    if promise.basis == "none":
        return promise
    summands = Assumption("rows are sums of losses between 0 and 1, and a sample is one summand")
    reason = "; ".join(filter(None, (promise.reason, f"nothing makes it true that {summands.claim}")))
    return replace(promise, basis="heuristic", reason=reason, assumptions=(*promise.assumptions, summands))
