"""What Theorems 1 to 5 of paper 003 ask for, which of it holds, the rates they promise, and what they bound.

delta_2 and delta_m are the second largest and the smallest eigenvalue of W = P - I, kappa^2 bounds the variance of a
sample's gradient, D the gradient of a learner's mean loss. Both are at most the clip.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from gossamer.algorithms.endless.fading import Fading
from gossamer.algorithms.endless.history import History, Sampled
from gossamer.core import Rate
from gossamer.topology import FixedTopology, Topology


def fastest(theorem: int, *, growth: float, u: float | None = None) -> float:
    """The best beta that the conditions leave; it is approached and not attained (Remarks 7 and 9).

    Theorem 1: min(1 - v, 2 u - 2 varsigma - 1) with varsigma + 1/2 < u < v; largest for v = u = 2 (1 + varsigma) / 3.
    Theorem 2: (1 - v) / 2 with v > (1 + 2 u) / 3, so that a faster falling coupling makes it slower.

    Args:
        theorem: 1 or 3 (strongly convex), 2 or 4 (convex).
        growth: varsigma.
        u: the power of the coupling; None: the best one.

    >>> round(fastest(1, growth=0.1), 3), round(fastest(1, growth=0.4), 3)
    (0.267, 0.067)
    >>> [round(fastest(2, growth=0.1, u=u), 3) for u in (0.65, 0.7, 0.8)]
    [0.117, 0.1, 0.067]
    """
    strong = theorem in (1, 3)
    best = (2 + 2 * growth) / 3 if strong else growth + 0.5
    power = best if u is None else u
    if not growth + 0.5 <= power < 1:
        return 0.0
    return min(1 - power, 2 * power - 2 * growth - 1) if strong else min((1 - power) / 3, 1 / 6)


@dataclass(frozen=True)
class Theorems:
    """Theorems 1 to 5 with their constants.

    Attributes:
        step: lambda_0 and v.
        coupling: gamma_0 and u.
        growths: varsigma of every learner.
        smoothness: L.
        strong_convexity: mu; 0: convex; None: neither.
        gradient: D, and a bound on kappa.
        delta_2: the second largest eigenvalue of W.
        delta_m: the smallest.
        bounded: whether the decision set is.
        others: what else keeps the theorems from applying, in words.

    >>> from gossamer import topology
    >>> cycle = np.eye(5) * 0.4 + 0.3 * (np.roll(np.eye(5), 1, 0) + np.roll(np.eye(5), -1, 0))
    >>> steps = {"step": Rate(1.0, 0.77), "coupling": Rate(1.0, 0.65), "growths": [0.11]}
    >>> losses = {"smoothness": 5.25, "strong_convexity": 0.1, "gradient": 1.0}
    >>> paper = Theorems.of(topology.ring(5, weights=cycle), **steps, **losses)
    >>> paper.violations()[1][0]
    'gamma_0 = 1 is above 1 / (-3 delta_m) = 0.3071'
    >>> len(paper.violations()[5]), paper.violations()[3], round(paper.rate(3), 2)
    (2, [], 0.08)
    """

    step: Rate
    coupling: Rate
    growths: tuple[float, ...]
    smoothness: float
    strong_convexity: float | None
    gradient: float
    delta_2: float
    delta_m: float
    bounded: bool = True
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, topology: Topology, *, growths: Sequence[float], **constants: object) -> Self:
        """With the eigenvalues of a fixed network."""
        values = np.sort(np.linalg.eigvalsh(topology.matrix())) - 1
        second = min(0.0, float(np.round(values[-2], 12))) if len(values) > 1 else -1.0
        return cls(growths=tuple(growths), delta_2=second, delta_m=float(values[0]), **constants)  # type: ignore[arg-type]

    @classmethod
    def about(
        cls,
        topology: Topology,
        network: FixedTopology,
        kept: History,
        fading: Fading,
        growths: Sequence[float],
        noise: str,
    ) -> Self:
        """For a run of `ldp_endless` on a network, of which `network` is what there is while no link fails."""
        lacking = {
            "links fail": topology is not network,
            "gradients use a part of the samples": isinstance(kept, Sampled),
            "updates begin after a delay": fading.delay > 0,
            "noise is not Laplace": noise != "laplace",
        }
        return cls.of(
            network,
            growths=growths,
            step=fading.step,
            coupling=fading.coupling,
            smoothness=fading.smoothness,
            strong_convexity=fading.strong_convexity if fading.convex else None,
            gradient=kept.largest_gradient,
            bounded=math.isfinite(kept.problem.domain.radius),
            others=tuple(said for said, true in lacking.items() if true),
        )

    def violations(self) -> Mapping[int, list[str]]:
        """For each theorem the conditions that do not hold, in words; none: it applies."""
        u, v, noise = self.coupling.power, self.step.power, max(self.growths)
        mu = self.strong_convexity
        order = (
            [] if noise + 0.5 < u < v < 1 else [f"(4) max varsigma + 1/2 < u < v < 1 fails for {noise:g}, {u:g}, {v:g}"]
        )
        strong = [] if mu else ["losses are not known to be strongly convex"]
        convex = [] if mu is not None else ["losses are not known to be convex"]
        inside = [] if self.bounded else ["the decision set is not bounded"]
        slow = [] if 2 / 3 < (1 + 2 * u) / 3 < v < 1 else [f"2/3 < (1 + 2 u) / 3 < v < 1 fails for {u:g}, {v:g}"]
        linked = inside + ([] if self.delta_2 < 0 else ["delta_2 = 0: the network is in pieces"]) + list(self.others)
        growing = [] if min(self.growths) > 0 else ["varsigma > 0, which Gaussian noise does not need"]
        return {
            1: linked + order + strong + self._coupling() + (self._step(1) if mu else []),
            2: linked + order + convex + slow + self._coupling() + self._step(2),
            3: linked + order + strong,
            4: linked + order + convex + slow,
            5: linked + order + growing + strong + self._coupling() + (self._step(1) if mu else []),
        }

    def _coupling(self) -> list[str]:
        most = -1 / (3 * self.delta_m) if self.delta_m else math.inf  # one learner alone
        given = self.coupling.scale
        return [] if given <= most else [f"gamma_0 = {given:g} is above 1 / (-3 delta_m) = {most:.4g}"]

    def _step(self, theorem: int) -> list[str]:
        most, formula = self._largest_step(theorem)
        given = self.step.scale
        return [] if given <= most else [f"lambda_0 = {given:g} is above {formula} = {most:.4g}"]

    def _largest_step(self, theorem: int) -> tuple[float, str]:
        pull, mu, L = -self.coupling.scale * self.delta_2, self.strong_convexity or 0.0, self.smoothness
        if theorem in (1, 3):
            return pull * mu / (mu**2 + 8 * L**2), "-gamma_0 delta_2 mu / (mu^2 + 8 L^2)"
        return pull / (2 * (L**2 + 2 * self.gradient**2)), "-delta_2 gamma_0 / (2 (L^2 + kappa^2 + D^2))"

    def rate(self, theorem: int) -> float:
        """beta: tracking errors (1, 3) or instantaneous regrets (2, 4) of the hidden theta fall like t^-beta.

        With the smallest varsigma, as printed; Remark 9 and the proof suggest the largest.
        """
        u, v = self.coupling.power, self.step.power
        return min(1 - v, 2 * u - 2 * min(self.growths) - 1) if theorem in (1, 3) else (1 - v) / 2

    @property
    def dynamic_regret_power(self) -> float:
        """1 - beta/2: Corollary 1, sum_{t<=T} F_t(theta_i(t)) - F_t(theta_t*) grows at most like T to this."""
        return 1 - self.rate(1) / 2

    def drift(self, t: int) -> float:
        """Lemma 1, eq. (8), with a constant: |theta*_{t+1} - theta*_t|^2 is at most this, in every run.

        *Proof.* One sample more changes the gradient of the mean loss at theta_t* by 2 G / (t+2) at most, where G
        bounds a sample's gradient; l2 is in both. There theta_t* is optimal, so in theta*_{t+1} - theta*_t, of length
        a, the old gradient goes up. By the strong convexity of F_{t+1}, mu a^2 <= a 2 G / (t+2). ∎

        >>> of = {"growths": (0.1,), "smoothness": 1.0, "strong_convexity": 0.5, "gradient": 1.0}
        >>> Theorems(Rate(1.0, 0.8), Rate(1.0, 0.7), **of, delta_2=-0.4, delta_m=-1.0).drift(2)
        1.0
        """
        return (2 * self.gradient / (self.strong_convexity * (t + 2))) ** 2 if self.strong_convexity else math.inf

    def tracking_bound(self, t: int, sigma: float, first: float, learners: int) -> float:
        """Eq. (54), the bound behind Theorem 1, as printed: on sum_i E |theta_i(t+1) - theta*_{t+1}|^2.

        Args:
            t: of the round.
            sigma: the largest sigma_i; its Laplace scale is sigma / sqrt(2).
            first: sum_i |theta_i(0) - theta_0*|^2.
            learners: m.

        >>> of = {"growths": (0.1,), "smoothness": 1.0, "strong_convexity": 1.0, "gradient": 1.0}
        >>> small = Theorems(Rate(0.01, 0.8), Rate(0.3, 0.7), **of, delta_2=-0.4, delta_m=-1.0)
        >>> f"{small.tracking_bound(1000, sigma=1.0, first=5.0, learners=5):.1e}"
        '1.4e+08'
        """
        mu, noise = self.strong_convexity, max(self.growths)
        u, v, lam, gamma = self.coupling.power, self.step.power, self.step.scale, self.coupling.scale
        power = 2 * u - 2 * noise - 1
        if not mu or not (1 / 2 < v < 1 and power > 0):
            return math.inf
        spread = 2 * self.gradient**2  # kappa^2 + D^2
        c_1 = 12 * learners * self.gradient**2 / mu * (1 + mu * lam / 8)
        c_2 = 16 * learners * spread * (lam + 8) / mu * (2 / mu**2 + 1 / self.smoothness**2)
        c_3 = 6 * learners * (1 + lam * mu / 8) * spread
        c_4 = learners * sigma**2 * (3 + 3 * mu * lam / 8)
        sums = (  # of (45), with the power of 1/t
            (v, c_1 * lam * 2**v / v),
            (1 - v, c_2 * 2 ** (1 - v) / ((1 - v) * lam)),
            (2 * v - 1, c_3 * lam**2 * 2 ** (2 * v - 1) / (2 * v - 1)),
            (power, c_4 * gamma**2 * 2**power / power),
        )
        c_5 = max(1.0, 48 * (1 - v) ** 2 * 2 ** (1 - v) / (mu * lam))
        c_6 = c_5 * (c_1 * lam + c_2 / lam + c_3 * lam**2 + c_4 * gamma**2 + sum(size for _, size in sums))
        begun = 16 * (1 - v) ** 2 * first / (mu * lam)
        return float(sum(size / t**fall for fall, size in sums) + (begun + c_6) / t ** (1 - v))

    def start(self, theorem: int) -> float:
        """t_0 of Theorem 3, t_0' of Theorem 4: from where on their rates hold."""
        u, v = self.coupling.power, self.step.power
        if not 0 < u < v:
            return math.inf
        first = (-3 * self.delta_m * self.coupling.scale) ** (1 / u) - 1
        margin = v - u if theorem == 3 else (3 * v - 2 * u - 1) / 2
        most, _ = self._largest_step(theorem)
        second = (self.step.scale / most) ** (1 / margin) - 1 if most and margin > 0 else math.inf
        return float(np.ceil(max(first, second)))

    def summary(self) -> str:
        """One line: the theorems whose conditions hold, and what the others lack; all of them are about theta."""
        found = self.violations()
        holds = [str(number) for number, broken in found.items() if not broken]
        fails = [f"{number}: {broken[0]}" for number, broken in found.items() if broken]
        return "; ".join([f"conditions of {', '.join(holds) or 'none'} hold", *fails])
