"""What all experiments of paper 003 share: five learners on a circle, how records are dealt, and the rivals."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from gossamer import streams, topology
from gossamer.algorithms.authoring import Geometric, Growth
from gossamer.algorithms.descent.gossip_descent import Descent
from gossamer.core import Algorithm, Public, Rate
from gossamer.mechanisms.independent import Views
from gossamer.privacy import Clip, Unit, no_guarantee
from gossamer.problems import Problem
from gossamer.spec import kind
from gossamer.streams import Stream

LEARNERS = 5
STREAM_SEED = 1
NEEDS = "Paper 003 needs these data"
RIVALS = {"dsgd": "DSGD", "dola": "DOLA", "pdop": "PDOP"}
"""Of figures 1 to 3."""


def circle() -> topology.Topology:
    """Five learners, each with two neighbours of weight 0.3.

    >>> circle().matrix()[0].tolist()
    [0.4, 0.3, 0.0, 0.0, 0.3]
    """
    one = np.eye(LEARNERS)
    return topology.ring(LEARNERS, weights=0.4 * one + 0.3 * (np.roll(one, 1, 0) + np.roll(one, -1, 0)))


def dealt(x: Any, y: Any, samples: int, split: Any, seed: int = 0, **options: Any) -> Stream:
    """Each record as often as so many samples of every learner need.

    >>> dealt(np.eye(10), np.zeros(10, int), 4, "iid").length
    4
    """
    deal = partial(streams.from_arrays, x, y, LEARNERS, split, seed=STREAM_SEED + seed, **options)
    return deal(passes=-(-samples // (deal().length or 1)))


def shapes(step: float, growth: float, base: float) -> Mapping[str, tuple[Public, Public, float]]:
    """Of every rival: its steps, the shape of its noise, and the scale of that.

    DSGD has Algorithm 1's noise with the least growth of all learners. The paper states the noise of DOLA and PDOP for
    figures 2 and 3 only; they have it in figure 1 too. It states no steps: they fall like 1/t, or geometrically.
    """
    falling = Rate(step, 1.0, delay=1)
    return {
        "dsgd": (falling, Growth(growth), base),
        "dola": (falling, Rate(1.0, 1.0, delay=1), 0.07 / 0.2),
        "pdop": (Geometric(step, 0.96), Geometric(1.0, 0.98), 0.5),
    }


@kind("algorithm", "descent with any step", readable=False)
def descent(
    name: str, problem: Problem, rounds: int, norm: float, step: Public, unit: Public, scale: float
) -> Algorithm:
    """As `dsgd` and `pdop` make it, for any step: their costs may be too large for a number, or have no bound.

    >>> from gossamer import problems
    >>> descent("dola", problems.Logistic(3), 50, 1.0, *shapes(0.5, 0.11, 1.0)["dola"]).name
    'dola'
    """
    clip, mechanism = Clip.of(norm), Views((problem.dim,), horizon=rounds, law="laplace", name="gradient")
    return Algorithm(
        name=name,
        problem=problem,
        topology=circle(),
        learner=Descent(problem, clip, mechanism),
        guarantee=no_guarantee("looked at in a reproduction, which states the cost of messages apart"),
        public={"step": step, "unit": unit},
        releases=(mechanism.at_scale(clip.sensitivity(Unit.SAMPLE, problem.dim), gradient=scale),),
        parameters={"step": str(step), "clip": clip, "noise": f"laplace, {scale:.4g} times {unit}"},
    )
