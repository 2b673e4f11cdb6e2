"""What is compared in paper 001: method, local steps and budget; how each is made, and how much of it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gossamer import algorithms, data, metrics, problems, streams
from gossamer.core import Algorithm, Learner, Now
from gossamer.experiments import Asked, Metric, Played, measures
from gossamer.experiments.papers.sources import ENLARGED, coloured, enlarged, needed, network
from gossamer.mechanisms import Aggregation
from gossamer.privacy import Budget, NoiseSpec
from gossamer.problems import Block, Problem
from gossamer.sets import L2Ball
from gossamer.spec import kind
from gossamer.streams import Stream

DELTA, DIM, TAU, STREAM_SEED = 1e-3, 100, 4, 1
LEARNERS = {3: 20, 4: 10}
FEATURE_BOUND, MODEL_BOUND = 3.0, 20.0  # of losses that are proven to be in the class "scalar-link"
FINE = tuple(digit * 10.0**power for power in range(-4, 0) for digit in (1, 2, 5))


class Method(NamedTuple):
    """What a learner does to its gradients: its title, the aggregation of its noise, and other options."""

    title: str
    aggregation: Aggregation | None
    options: Mapping[str, Any] = {}
    bounded: bool = False


METHODS = {
    "none": Method("no noise [1]", None),
    "tree": Method("binary tree", "tree"),
    "optimal": Method("optimised", "optimal"),
    "toeplitz": Method("Toeplitz", "toeplitz"),
    "blt": Method("BLT", "blt"),
    "independent": Method("independent noise [3]", "independent"),
    "published": Method("Toeplitz, noise of Lemma IV.8", "toeplitz", {"calibration": "published"}),
    "bounded": Method("BLT, features clipped", "blt", bounded=True),
    "rounds": Method("BLT, features clipped, noise once a round", "blt", {"release": "rounds"}, bounded=True),
}
"""The first six are those of section V, with BLT: nearly the noise of Toeplitz, in constant memory."""


@dataclass(frozen=True, eq=False)
class Sizes:
    """How much is run.

    Attributes:
        rounds: R of figure 3.
        runs: of every number of figure 3, each with data and noise of its own.
        trials: seeds of a run to tune on.
        steps: eta of figure 3, to choose from.
        taus: of figure 4, by method.
        seeds: of the noise in figure 4, by method.
        samples: R tau of figure 4 at most; None: all that every learner has.
        images: held out, to test on; None: all.
        every: samples between two tests.
        clips: of figure 4, to choose from.
        server_steps: eta_g of figure 4, to choose from.
        known: eta of figure 4 by method, where nothing is searched.
    """

    rounds: int = 1000
    runs: int = 10
    trials: int = 2
    steps: tuple[float, ...] = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    taus: Mapping[str, tuple[int, ...]] = field(
        default_factory=lambda: dict.fromkeys(("none", "optimal", "toeplitz", "blt", "independent"), (1, 2, 4))
    )
    seeds: Mapping[str, int] = field(
        default_factory=lambda: {"none": 1, "optimal": 3, "toeplitz": 3, "blt": 10, "independent": 10}
    )
    samples: int | None = None
    images: int | None = None
    every: int = 100
    clips: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    server_steps: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    known: Mapping[str, float] = field(default_factory=dict)


FULL = Sizes()
QUICK = Sizes(
    rounds=250,
    runs=3,
    trials=1,
    steps=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
    taus=dict.fromkeys(("none", "blt", "independent"), (1,)),
    seeds=dict.fromkeys(("none", "blt", "independent"), 1),
    samples=2000,
    images=1000,
    every=500,
    known={"none": 0.2, "blt": 0.02, "independent": 0.002},
)


@dataclass(frozen=True)
class Case:
    """A curve: everything but the sizes of steps and clip.

    >>> print(Case(3, "blt", 4), "|", Case(4, "none", 1))
    figure 3, BLT, epsilon 2, tau 4 | figure 4, no noise [1], tau 1
    >>> round(Case(3, "blt", 4).build(problems.Logistic(DIM), 4000, 0.1).scales["gradient"][0].value, 2)
    5.56
    """

    figure: int
    method: str
    tau: int
    epsilon: float = 2.0

    def __str__(self) -> str:
        budget = "" if self.method == "none" else f", epsilon {self.epsilon:g}"
        return f"figure {self.figure}, {METHODS[self.method].title}{budget}, tau {self.tau}"

    @property
    def remembers_all(self) -> bool:
        """Whether its noise keeps all its rows: for the network 14.7 GB, which only an accelerator has."""
        return self.figure == 4 and self.method in ("toeplitz", "optimal")

    def build(
        self, problem: Problem, horizon: int, step: float, clip: float = 1.0, server_step: float = 1.0
    ) -> Algorithm:
        """The algorithm. Its first learner plays the last global model, the others the averaged one."""
        method = METHODS[self.method]
        made = algorithms.online_federated(
            problem,
            LEARNERS[self.figure],
            horizon=horizon,
            steps_per_exchange=self.tau,
            budget=Budget(self.epsilon, DELTA) if method.aggregation else None,
            clip=clip,
            step=step,
            server_step=server_step,
            aggregation=method.aggregation or "blt",
            publish="averaged",
            **method.options,
        )
        return both_models(made)


ACCURACY, REGRET, TEST = "accuracy of both models", "dynamic regret of both models", "test accuracy of both models"


def of_both(word: str, values: Callable[[Played], Any], at: Callable[[Played], Any]) -> Metric:
    """A curve of the last model (learner 0) and of the averaged one (learner 1), axes (seed, point, model)."""
    return Metric(word, lambda played: values(played)[..., :2], at)


def rounds_of(steps: Any, played: Played) -> Any:
    """Steps in rounds."""
    return steps // next(iter(played.algorithm.schedule.segments(10**9))).block


def recorded(played: Played) -> Any:
    """The rounds at which rows end."""
    return rounds_of(played.run.steps, played)


KEPT = (
    of_both(ACCURACY, lambda played: measures.accuracy().of(played), recorded),
    # Samples of a round are linearly independent: some model has any margins on them, and the least loss is 0.
    of_both(REGRET, lambda played: metrics.average_loss(played.run), recorded),
)
TESTED = (
    of_both(TEST, lambda played: played.run.test_accuracy, lambda played: rounds_of(played.run.test_steps, played)),
)


class Both(NamedTuple):
    """Whether the last model is played, and the state of the learner."""

    last: jax.Array
    state: Any


@dataclass(frozen=True)
class BothModels(Learner):
    """A learner of `online_federated`: number 0 plays the last global model, all others the averaged one.

    What is played changes nothing else, and both models are functions of what was released: one run tells how good
    both are.
    """

    inner: Learner

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """Nothing of its own."""
        return self.inner.noise

    def init(self, identity: jax.Array) -> Both:
        """Number 0 is the one."""
        return Both(identity == 0, self.inner.init(identity))

    def decide(self, state: Both, now: Now) -> jax.Array:
        """The last model, or the average."""
        return jnp.where(state.last, state.state.x, state.state.average)

    def learn(self, state: Both, block: Block, now: Now) -> Both:
        """Local steps start at the last model all the same."""
        return state._replace(state=self.inner.learn(state.state, block, now))

    def speak(self, state: Both, now: Now) -> tuple[Any, Both]:
        """Says what the learner says."""
        said, after = self.inner.speak(state.state, now)
        return said, state._replace(state=after)

    def listen(self, state: Both, heard: Any) -> Both:
        """Hears what the learner hears."""
        return state._replace(state=self.inner.listen(state.state, heard))


@kind("algorithm", "online_federated, both models played", readable=False)
def both_models(algorithm: Algorithm) -> Algorithm:
    """The same algorithm, of which one learner plays the last model, and the others the averaged one."""
    return replace(algorithm, learner=BothModels(algorithm.learner), regret_bound=None)


def logistic_problem(method: str) -> problems.Logistic:
    """Section V-A: no l2, and no decision set where none is needed.

    >>> logistic_problem("rounds").smoothness
    2.25
    """
    if METHODS[method].bounded:
        return problems.Logistic(DIM, feature_bound=FEATURE_BOUND, domain=L2Ball(MODEL_BOUND))
    return problems.Logistic(DIM)


@cache
def logistic_stream(seed: int) -> Stream:
    """Section V-A, with heterogeneity (0.1, 0.1).

    >>> logistic_stream(0).read(0, 4).x.shape
    (4, 20, 100)
    """
    return streams.heterogeneous_logistic(LEARNERS[3], DIM, 0.1, 0.1, seed=seed)


@dataclass(frozen=True, eq=False)
class Digits:
    """Section V-B: the images, half of them dealt evenly to ten learners and half by digit, and the network."""

    asked: Asked
    sizes: Sizes

    @property
    def name(self) -> str:
        """Of the data set."""
        return ENLARGED if self.asked.stand_in else "MNIST"

    @cached_property
    def images(self) -> data.Dataset:
        """Images (height, width, 1) with labels."""
        if self.asked.stand_in:
            return enlarged()
        return coloured(needed("Figure 4 of paper 001 needs the MNIST images", data.mnist, self.asked.data))

    @cached_property
    def problem(self) -> Problem:
        """Two convolutions, pooled, and two dense layers."""
        return network(self.images)

    @cached_property
    def stream(self) -> partial[Stream]:
        """For every seed the same."""
        x, y = self.images.x_train, self.images.y_train
        dealt = streams.from_arrays(x, y, LEARNERS[4], "label-skew", skew=0.5, rest="all", seed=STREAM_SEED)
        return partial(lambda stream, seed: stream, dealt)

    @cached_property
    def test(self) -> Block:
        """The images held out."""
        most = self.sizes.images
        return Block(self.images.x_test[:most], self.images.y_test[:most])

    def samples(self, tau: int) -> int:
        """R tau: as many as the learner with the fewest has, in whole rounds."""
        length = min(self.stream(STREAM_SEED).length or 0, self.sizes.samples or 10**9)
        return length - length % tau
