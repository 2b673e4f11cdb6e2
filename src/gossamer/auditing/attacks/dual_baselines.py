"""Attacks on the baselines of paper 002, DPPS and DPSR: one sample of one learner.

Both say what they heard plus a multiple of a noised gradient, so what `dpsda` works out of messages holds for them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from gossamer import problems, topology
from gossamer.algorithms import dp_push_sum_dual_averaging, dp_subgradient_rescaling
from gossamer.algorithms.coordinates.dp_subgradient_rescaling import Rescaled, TightRescaled
from gossamer.auditing.attacks.base import Attack, Case, Make, Pair, attack, own_budgets, played, samples
from gossamer.auditing.attacks.dpsda import DualRule, Rule, exact_loss, transcript_ratio
from gossamer.auditing.attacks.pd_ogd import BUDGETS, CLIP, OWN
from gossamer.auditing.views import Floats
from gossamer.core import Algorithm
from gossamer.mechanisms import AdditiveLaw
from gossamer.privacy import Budget
from gossamer.topology import Topology


@dataclass(frozen=True)
class RescaledRule(Rule):
    """The rule of DPSR: a message is the decision (published: with noise), after a step with a gradient rescaled."""

    decision: ClassVar[str] = "x"

    @property
    def released(self) -> bool:
        """Yes where gradients are noised."""
        assert isinstance(self.algorithm.learner, Rescaled)
        return isinstance(self.algorithm.learner, TightRescaled)

    def said(self, messages: Any) -> Floats:
        """The points, without the weights beside them."""
        return np.asarray(messages.x, np.float64)

    def rate(self, exchange: int) -> Any:
        """-alpha / [R^t]_ii."""
        assert isinstance(self.algorithm.topology, Topology)
        weights = np.linalg.matrix_power(self.algorithm.topology.matrix(), exchange).diagonal()
        return -self.algorithm.public["step"](np.array([exchange + 1]))[0] / weights[:, None]

    def decide(self, heard: Floats, added: Floats, total: Floats, exchange: int) -> Floats:
        """Proj_K(heard - rate * gradient)."""
        points = jnp.asarray(heard + self.rate(exchange) * added, jnp.float32)
        return np.asarray(jax.vmap(jax.vmap(self.algorithm.problem.domain.project))(points), np.float64)


RULES: dict[Make, Callable[[Algorithm], Rule]] = {
    dp_push_sum_dual_averaging: DualRule,
    dp_subgradient_rescaling: RescaledRule,
}
NETWORKS: dict[Make, Topology] = {
    dp_push_sum_dual_averaging: topology.star(3, weights="push-sum"),
    dp_subgradient_rescaling: topology.star(3, weights="uniform"),
}


def _one_changed(steps: int, learner: int, *, changed: int, learners: int = 3) -> Pair:
    """One feature, 1 for everybody but in the round that differs: there a gradient of 1 or -1, with a label far off."""
    x, y = np.zeros((steps, learners, 1)), np.zeros((steps, learners))
    x[changed + 1 :] = 1.0
    x[changed, learner], y[changed, learner] = 1.0, -9.0
    flipped = x.copy()
    flipped[changed, learner] = -1.0
    return samples(x, y), samples(flipped, y)


def one_gradient(make: Make, law: AdditiveLaw, budget: Any = None, learner: int = 0) -> Case:
    """Three learners, two steps: the second gradient of one of them is 1 or -1.

    >>> [round(one_gradient(make, "laplace").supremum, 3) for make in RULES]
    [1.0, 1.0]
    """
    budget = BUDGETS[law] if budget is None else budget
    algorithm = make(problems.Linear(1), NETWORKS[make], budget=budget, clip=CLIP, noise=law, step=0.5)
    rule, pair = RULES[make](algorithm), _one_changed(2, learner, changed=1)
    score, supremum = transcript_ratio(rule, *pair), exact_loss(rule, *pair, learner=learner)
    return Case(algorithm, *pair, score, supremum=supremum)


def _steep(make: Make, **options: Any) -> tuple[Algorithm, Pair]:
    """Squared losses so steep that the sign of a decision is the next clipped gradient."""
    algorithm = make(problems.LeastSquares(1), NETWORKS[make], clip=CLIP, step=1.0, **options)
    return algorithm, _one_changed(2, 0, changed=0)


def released_decisions(make: Make) -> Case:
    """Tight: a later gradient depends on a decision as much as it can, and that shows nothing new."""
    algorithm, pair = _steep(make, budget=Budget(1.0))
    rule = RULES[make](algorithm)
    supremum = exact_loss(rule, *_one_changed(1, 0, changed=0))  # the second step adds nothing
    return Case(algorithm, *pair, transcript_ratio(rule, *pair), supremum=supremum)


def re_leak(make: Make) -> Case:
    """Published: a sample moves its message, and through a decision that is never released, the next."""
    algorithm, pair = _steep(make, budget=Budget(1.0), horizon=2, calibration="published")
    (scales,) = algorithm.scales.values()
    supremum = 2 * 2 / scales[0].value
    return Case(algorithm, *pair, transcript_ratio(RULES[make](algorithm), *pair), supremum=supremum)


def raw_decision(make: Make) -> Case:
    """Published, seen by peers: the decision that follows the sample is played without noise."""
    algorithm, pair = _steep(make, budget=Budget(1.0), horizon=2, calibration="published")
    return Case(algorithm, *pair, played, observer="peers", supremum=np.inf)


def attacks(make: Make) -> tuple[Attack, ...]:
    """The attacks on one of the two."""
    own = (*OWN, OWN[0])
    return (
        *(attack("one gradient", "the noise of a gradient", "sharp", one_gradient, make, law) for law in BUDGETS),
        *own_budgets(own, one_gradient, make, "laplace")[: len(OWN)],
        attack("re-leak", "later gradients", "sharp", released_decisions, make),
        attack("published: re-leak", "the share of each message", "sharp", re_leak, make),
        attack("published: decision", "decisions without noise", "flaw", raw_decision, make),
    )
