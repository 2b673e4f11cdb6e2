"""Every learner alone: online gradient descent on its own stream, without a word to anybody."""

from dataclasses import replace

from gossamer.algorithms.descent.d_ogd import d_ogd
from gossamer.core import Algorithm, Rate
from gossamer.privacy import Clip, no_guarantee
from gossamer.problems import Problem
from gossamer.spec import kind
from gossamer.topology import isolated


@kind("algorithm", "local_ogd")
def local_ogd(
    problem: Problem, learners: int, *, step: float | Rate | None = None, clip: float | Clip | None = None
) -> Algorithm:
    """Online gradient descent without communication: what a learner reaches by itself.

    Args:
        problem: loss and decision set.
        learners: how many.
        step: the step size; by default diameter / (gradient bound * sqrt(t)) where the problem has both.
        clip: the norm that each sample's gradient is clipped to.

    >>> from gossamer.problems import Logistic
    >>> local_ogd(Logistic(2), 3, step=0.1).guarantee.sentence()
    'No privacy guarantee: nothing is sent, but decisions are functions of raw gradients.'
    """
    alone = d_ogd(problem, isolated(learners), step=step, clip=clip)
    promise = no_guarantee("nothing is sent, but decisions are functions of raw gradients")
    return replace(alone, name="local_ogd", guarantee=promise)
