"""What is compared in paper 003: Algorithm 1 and three rivals, on mushrooms and on images."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gossamer import algorithms, data, problems, sets, streams, topology
from gossamer.algorithms.authoring import Geometric, Growth
from gossamer.algorithms.descent.gossip_descent import Descent, worst_sample
from gossamer.algorithms.endless.fading import Fading
from gossamer.algorithms.endless.ldp_endless import Publish
from gossamer.core import Algorithm, Public, Rate
from gossamer.mechanisms.independent import Views
from gossamer.privacy import Budget, Clip, Unit, no_guarantee
from gossamer.problems import Block, Problem
from gossamer.reproduction.sources import ENLARGED, coloured, enlarged, needed, network
from gossamer.spec import kind
from gossamer.streams import Stream

LEARNERS = 5
RADIUS = 1e5
NORM = math.sqrt(21)  # of a row of mushrooms: 21 attributes, each with one value
STEP, COUPLING = Rate(1.0, 0.77), Rate(1.0, 0.65)
GROWTHS = tuple(0.1 + 0.01 * i for i in range(1, LEARNERS + 1))
BASE = {"figure 1": 1.0, "Table I": 0.1, "Table II": 0.05, "figures 2 and 3": math.sqrt(2)}
"""Laplace scales at t = 0."""
NETWORK_STEP, NETWORK_COUPLING = Rate(1.0, 0.71), Rate(0.01, 0.7)
NETWORK_GROWTHS = tuple(0.1 + 0.02 * i for i in range(1, LEARNERS + 1))
NETWORK_CLIP = 1.0
SMOOTHNESS = 1.0  # of the network's losses: stated, not known
STREAM_SEED = 1

NEEDS = "Paper 003 needs these data"

RIVALS = {"dsgd": "DSGD", "dola": "DOLA", "pdop": "PDOP"}
"""Of figures 1 to 3."""

Images = Literal["mnist", "cifar10"]
IMAGES: Mapping[int, Images] = {2: "mnist", 3: "cifar10"}
"""By figure."""


def circle() -> topology.Topology:
    """Five learners, each with two neighbours of weight 0.3.

    >>> circle().matrix()[0].tolist()
    [0.4, 0.3, 0.0, 0.0, 0.3]
    """
    one = np.eye(LEARNERS)
    return topology.ring(LEARNERS, weights=0.4 * one + 0.3 * (np.roll(one, 1, 0) + np.roll(one, -1, 0)))


@dataclass(frozen=True, eq=False)
class Mushrooms:
    """Section VII-A: the records, split by label: learners 1 to 3 have label 0, 4 and 5 label 1.

    Attributes:
        directory: as in `gossamer.data`.
        stand_in: take scikit-learn's tumours, every row scaled to the norm of a mushroom's, instead.
    """

    directory: Path | None = None
    stand_in: bool = False

    @property
    def name(self) -> str:
        """Of the data set."""
        return "tumours of scikit-learn" if self.stand_in else "mushrooms"

    @cached_property
    def records(self) -> data.Dataset:
        """Rows of norm sqrt(21)."""
        if not self.stand_in:
            return needed(NEEDS, data.mushrooms, self.directory, "data of scikit-learn")
        found = data.breast_cancer()
        return replace(found, x_train=_to_norm(found.x_train, NORM), x_test=_to_norm(found.x_test, NORM))

    @property
    def dim(self) -> int:
        """Features."""
        return int(self.records.x_train.shape[1])

    def stream(self, rounds: int) -> Stream:
        """All records, each as often as so many rounds need."""
        found = self.records
        x, y = np.concatenate([found.x_train, found.x_test]), np.concatenate([found.y_train, found.y_test])
        return _dealt(x, y, rounds, "by-label")

    def unit_stream(self, rounds: int) -> Stream:
        """The training records, scaled to norm 1."""
        return _dealt(_to_norm(self.records.x_train, 1.0), self.records.y_train, rounds, "by-label")

    @property
    def held_out(self) -> Block:
        """The other records, scaled to norm 1."""
        return Block(_to_norm(self.records.x_test, 1.0), self.records.y_test)

    def problem(self, l2: float) -> Problem:
        """l2-regularised logistic regression on rows as they are."""
        return problems.Logistic(self.dim, feature_bound=NORM, l2=l2, domain=sets.L2Ball(RADIUS))

    def unit_problem(self) -> Problem:
        """On rows of norm 1, in a smaller ball."""
        return problems.Logistic(self.dim, feature_bound=1.0, domain=sets.L2Ball(20.0))


def endless(problem: Problem, rounds: int, level: float) -> Algorithm:
    """Algorithm 1 at Laplace noise level * (t+1)^(0.1 + 0.01 i), which plays theta: for curves, not for release.

    As in the paper, y(0) has noise too. The clip is the largest gradient there is, so that nothing is clipped.

    >>> endless(problems.Logistic(3, feature_bound=NORM, l2=0.1), 50, 1.0).guarantee.basis
    'none'
    """
    return algorithms.ldp_endless(
        problem,
        circle(),
        sigma=math.sqrt(2) * level,
        growth=GROWTHS,
        clip=NORM,
        horizon=rounds,
        step=STEP,
        coupling=COUPLING,
        start="noised",
        publish="raw",
    )


def fadings(problem: Problem) -> Mapping[str, Fading]:
    """The recursions for what one sample costs on rows as they are, by the name of the bound.

    >>> list(fadings(problems.Logistic(3, feature_bound=NORM, l2=0.1)))
    ['Theorem 5(i)', 'eq. (22)', 'tight']
    """
    assert problem.smoothness is not None  # there is a feature_bound
    return bounds(Fading(STEP, COUPLING, 0.6, 2 * NORM, problem.smoothness, strong_convexity=problem.l2))


def bounds(tight: Fading) -> Mapping[str, Fading]:
    """The paper's two bounds beside a tight one."""
    loose = replace(tight, convex=False, strong_convexity=0.0)
    return {"Theorem 5(i)": tight.published(), "eq. (22)": loose, "tight": tight}


def rival(name: str, problem: Problem, step: float, rounds: int) -> Algorithm:
    """A rival on mushrooms. DSGD has Algorithm 1's noise with the least growth of all learners.

    The paper states no noise of DOLA and PDOP here: they have that of figures 2 and 3.

    >>> rival("pdop", problems.Logistic(3, feature_bound=NORM, l2=0.1), 0.5, 50).name
    'pdop'
    """
    return _descent(name, problem, rounds, NORM, *_rival(name, step))


def rival_budget(name: str, problem: Problem, step: float, rounds: int) -> float:
    """A bound on what the messages of so many rounds cost the sample that they cost most, as `gossip_descent` has it.

    >>> problem = problems.Logistic(3, feature_bound=NORM, l2=0.1)
    >>> [round(rival_budget("dsgd", problem, 0.5, rounds), 3) for rounds in (1, 50, 5000)]
    [3.677, 9.0, 9.0]
    """
    shape, unit, scale = _rival(name, step)
    assert problem.smoothness is not None
    moved = worst_sample(shape, unit, problem.smoothness, rounds, problem.l2)
    return math.sqrt(problem.dim) * 2 * NORM * moved / scale


def _rival(
    name: str, step: float, base: float = BASE["figure 1"], growth: float = GROWTHS[0]
) -> tuple[Public, Public, float]:
    """Step, shape of the noise, scale of the noise."""
    falling = Rate(step, 1.0, delay=1)
    kinds: Mapping[str, tuple[Public, Public, float]] = {
        "dsgd": (falling, Growth(growth), base),
        "dola": (falling, Rate(1.0, 1.0, delay=1), 0.07 / 0.2),
        "pdop": (Geometric(step, 0.96), Geometric(1.0, 0.98), 0.5),
    }
    return kinds[name]


USABLE: Mapping[str, Mapping[str, Any]] = {
    "(2, 1e-5), Gaussian": {"budget": Budget(2.0, 1e-5), "noise": "gaussian"},
    "epsilon 10, Laplace": {"budget": Budget(10.0), "noise": "laplace"},
    "epsilon 10, Laplace, v 0.9": {"budget": Budget(10.0), "noise": "laplace", "step": Rate(4.0, 0.9)},
    "no noise": {"sigma": 1e-9, "noise": "gaussian"},
}
"""Of the setting that is private and useful: two ways to be purely private, and no noise, for comparison."""
DELAY = 200


def usable(problem: Problem, kind: str, rounds: int) -> Algorithm:
    """Algorithm 1 over an endless horizon with a late start, which plays theta: what it sends is looked at too.

    >>> usable(problems.Logistic(3, feature_bound=1.0, domain=sets.L2Ball(20.0)), "no noise", 300).capacity
    300
    """
    options: dict[str, Any] = {"step": Rate(4.0, 0.52), "growth": 0.0, **USABLE[kind]}
    return algorithms.ldp_endless(
        problem,
        circle(),
        clip=1.0,
        buffer=rounds,
        coupling=Rate(1.0, 0.51),
        delay=DELAY,
        publish="raw",
        **options,
    )


@dataclass(frozen=True, eq=False)
class Pictures:
    """Sections VII-B and VII-C: images, 40 % of class i to its learner, and the network.

    Attributes:
        which: "mnist" or "cifar10".
        directory: as in `gossamer.data`.
        stand_in: take scikit-learn's digits, enlarged, instead.
        tested: images held out that are used; None: all.
    """

    which: Images
    directory: Path | None = None
    stand_in: bool = False
    tested: int | None = None

    @property
    def name(self) -> str:
        """Of the data set."""
        names: Mapping[Images, str] = {"mnist": "MNIST", "cifar10": "CIFAR-10 (10,000 images)"}
        return ENLARGED if self.stand_in else names[self.which]

    @cached_property
    def images(self) -> data.Dataset:
        """Images (height, width, colours)."""
        if self.stand_in:
            return enlarged()
        load = data.mnist if self.which == "mnist" else data.cifar10
        return coloured(needed(NEEDS, load, self.directory, "data of scikit-learn"))

    @cached_property
    def problem(self) -> Problem:
        """Two convolutions, pooled, and two dense layers."""
        return network(self.images)

    def stream(self, rounds: int) -> Stream:
        """Each image as often as so many rounds need."""
        return _dealt(self.images.x_train, self.images.y_train, rounds, "label-skew", skew=0.4, rest="others")

    @cached_property
    def test(self) -> Block:
        """Images held out."""
        return Block(self.images.x_test[: self.tested], self.images.y_test[: self.tested])


MODELS: Mapping[Publish, str] = {"raw": "theta (not releasable)", "last": "y", "averaged": "averaged release"}
"""Of Algorithm 1: what is shown, and whether anybody may see it."""


def network_endless(
    problem: Problem,
    rounds: int,
    *,
    scale: float,
    growths: tuple[float, ...],
    picks: int,
    publish: Publish,
) -> Algorithm:
    """Algorithm 1 for a network: gradients of a random part of the past, and a smoothness that nobody checked.

    >>> tiny = problems.small_cnn((10, 10, 1), 2, channels=1, hidden=1, seed=0)
    >>> made = network_endless(tiny, 9, scale=0.05, growths=GROWTHS, picks=2, publish="averaged")
    >>> made.guarantee.basis
    'heuristic'
    """
    return algorithms.ldp_endless(
        problem,
        circle(),
        sigma=math.sqrt(2) * scale,
        growth=growths,
        clip=NETWORK_CLIP,
        horizon=rounds,
        step=NETWORK_STEP,
        coupling=NETWORK_COUPLING,
        history="sampled",
        picks=picks,
        smoothness=SMOOTHNESS,
        publish=publish,
    )


def network_rival(name: str, problem: Problem, rounds: int) -> Algorithm:
    """A rival for a network: without a smoothness nothing bounds its cost, so it has no guarantee at all.

    DSGD has the steps and the noise of Algorithm 1, as in the paper. The steps of the others are not stated:
    1 / (t+1) for DOLA, as its noise falls; 0.5 * 0.96^t for PDOP.

    >>> tiny = problems.small_cnn((10, 10, 1), 2, channels=1, hidden=1, seed=0)
    >>> network_rival("dsgd", tiny, 9).guarantee.basis
    'none'
    """
    shape, unit, scale = _rival(name, 0.5 if name == "pdop" else 1.0, BASE["figures 2 and 3"], NETWORK_GROWTHS[0])
    shape = NETWORK_STEP if name == "dsgd" else shape
    return _descent(name, problem, rounds, NETWORK_CLIP, shape, unit, scale)


@kind("algorithm", "descent with any step", readable=False)
def _descent(
    rival: str, problem: Problem, rounds: int, norm: float, step: Public, unit: Public, scale: float
) -> Algorithm:
    """As `dsgd` and `pdop` make it, for any step: their costs may be too large for a number, or have no bound."""
    clip, mechanism = Clip.of(norm), Views((problem.dim,), horizon=rounds, law="laplace", name="gradient")
    return Algorithm(
        name=rival,
        problem=problem,
        topology=circle(),
        learner=Descent(problem, clip, mechanism),
        guarantee=no_guarantee("looked at in a reproduction, which states the cost of messages apart"),
        public={"step": step, "unit": unit},
        releases=(mechanism.at_scale(clip.sensitivity(Unit.SAMPLE, problem.dim), gradient=scale),),
        parameters={"step": str(step), "clip": clip, "noise": f"laplace, {scale:.4g} times {unit}"},
    )


def network_budget(dim: int, rounds: int, scale: float, growth: float, smoothness: float) -> float:
    """Eq. (22) for a network of a smoothness that is made up.

    >>> network_budget(100, 50, 0.05, 0.11, 0.1) > network_budget(100, 50, 0.05, 0.11, 0.0)
    True
    """
    fading = Fading(NETWORK_STEP, NETWORK_COUPLING, 0.6, 2 * NETWORK_CLIP, smoothness, convex=False)
    return math.sqrt(dim) * fading.total(1, growth, rounds) / scale


def _dealt(x: Any, y: Any, rounds: int, split: Any, **options: Any) -> Stream:
    """Each record as often as so many rounds need."""
    deal = partial(streams.from_arrays, x, y, LEARNERS, split, seed=STREAM_SEED, **options)
    return deal(passes=-(-rounds // (deal().length or 1)))


def _to_norm(x: Any, norm: float) -> Any:
    return x * (norm / np.linalg.norm(x, axis=1, keepdims=True)).astype(x.dtype)
