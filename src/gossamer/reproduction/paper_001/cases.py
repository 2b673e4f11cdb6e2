"""What is compared in paper 001: method, budget and local steps; and how each of them is made."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gossamer import algorithms, data, problems, streams
from gossamer.core import Algorithm, Learner, Now
from gossamer.mechanisms import Aggregation
from gossamer.privacy import Budget, NoiseSpec
from gossamer.problems import Block, Problem
from gossamer.reproduction.sources import ENLARGED, coloured, enlarged, needed, network
from gossamer.sets import L2Ball
from gossamer.spec import kind
from gossamer.streams import Stream

DELTA = 1e-3
CLIP = 1.0
FEATURE_BOUND, MODEL_BOUND = 3.0, 20.0  # of losses that are proven to be in the class "scalar-link"
LEARNERS = {3: 20, 4: 10}
DIM = 100
TAU = 4
STREAM_SEED = 1


class Method(NamedTuple):
    """What a learner does to its gradients.

    Attributes:
        title: in figures and tables.
        aggregation: of its noise; None where it has none.
        options: of `online_federated`, beyond those that all share.
        bounded: whether features are clipped, and models kept in a ball.
    """

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


@dataclass(frozen=True)
class Case:
    """Everything but the step size.

    >>> print(Case(3, "blt", 4), "|", Case(4, "none", 1))
    figure 3, BLT, epsilon 2, tau 4 | figure 4, no noise [1], tau 1
    """

    figure: int
    method: str
    tau: int
    epsilon: float = 2.0

    def __str__(self) -> str:
        budget = "" if self.method == "none" else f", epsilon {self.epsilon:g}"
        return f"figure {self.figure}, {METHODS[self.method].title}{budget}, tau {self.tau}"

    def build(self, problem: Problem, horizon: int, step: float) -> Algorithm:
        """The algorithm. Its first learner plays the last global model, the others the averaged one.

        >>> case = Case(3, "blt", 4)
        >>> round(case.build(problems.Logistic(DIM), 4000, 0.1).scales["gradient"][0].value, 2)
        5.56
        """
        method = METHODS[self.method]
        made = algorithms.online_federated(
            problem,
            LEARNERS[self.figure],
            horizon=horizon,
            steps_per_exchange=self.tau,
            budget=Budget(self.epsilon, DELTA) if method.aggregation else None,
            clip=CLIP,
            step=step,
            aggregation=method.aggregation or "blt",
            publish="averaged",
            **method.options,
        )
        return both_models(made)


class Played(NamedTuple):
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

    def init(self, identity: jax.Array) -> Played:
        """Number 0 is the one."""
        return Played(identity == 0, self.inner.init(identity))

    def decide(self, state: Played, now: Now) -> jax.Array:
        """The last model, or the average."""
        return jnp.where(state.last, state.state.x, state.state.average)

    def learn(self, state: Played, block: Block, now: Now) -> Played:
        """Local steps start at the last model all the same."""
        return state._replace(state=self.inner.learn(state.state, block, now))

    def speak(self, state: Played, now: Now) -> tuple[Any, Played]:
        """Says what the learner says."""
        said, after = self.inner.speak(state.state, now)
        return said, state._replace(state=after)

    def listen(self, state: Played, heard: Any) -> Played:
        """Hears what the learner hears."""
        return state._replace(state=self.inner.listen(state.state, heard))


@kind("algorithm", "online_federated, both models played", readable=False)
def both_models(algorithm: Algorithm) -> Algorithm:
    """The same algorithm, of which one learner plays the last model, and the others the averaged one."""
    return replace(algorithm, learner=BothModels(algorithm.learner))


def logistic_problem(method: str) -> problems.Logistic:
    """Section V-A: no l2, and no decision set where none is needed.

    >>> logistic_problem("rounds").smoothness
    2.25
    """
    if METHODS[method].bounded:
        return problems.Logistic(DIM, feature_bound=FEATURE_BOUND, domain=L2Ball(MODEL_BOUND))
    return problems.Logistic(DIM)


def logistic_stream(seed: int) -> Stream:
    """Section V-A, with heterogeneity (0.1, 0.1).

    >>> logistic_stream(0).read(0, 4).x.shape
    (4, 20, 100)
    """
    return streams.heterogeneous_logistic(LEARNERS[3], DIM, 0.1, 0.1, seed=seed)


@dataclass(frozen=True, eq=False)
class Digits:
    """Section V-B: the images, dealt to ten learners, and the network.

    Attributes:
        directory: as in `gossamer.data`.
        stand_in: take scikit-learn's digits, enlarged, in place of MNIST.
    """

    directory: Path | None = None
    stand_in: bool = False

    @property
    def name(self) -> str:
        """Of the data set."""
        return ENLARGED if self.stand_in else "MNIST"

    @cached_property
    def problem(self) -> Problem:
        """Two convolutions, pooled, and two dense layers."""
        return network(self.images)

    @cached_property
    def stream(self) -> Stream:
        """Half of the images dealt evenly, and half by digit."""
        x, y = self.images.x_train, self.images.y_train
        return streams.from_arrays(x, y, LEARNERS[4], "label-skew", skew=0.5, rest="all", seed=STREAM_SEED)

    @cached_property
    def test(self) -> Block:
        """The images held out."""
        return Block(self.images.x_test, self.images.y_test)

    def samples(self, tau: int) -> int:
        """R tau: as many as the learner with the fewest has, in whole rounds."""
        length = self.stream.length or 0
        return length - length % tau

    @cached_property
    def images(self) -> data.Dataset:
        """Images (height, width, 1) with labels."""
        if self.stand_in:
            return enlarged()
        return coloured(needed("Figure 4 of paper 001 needs the MNIST images", data.mnist, self.directory))
