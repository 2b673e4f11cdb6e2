"""The bounds of paper 000 against T, rho, n and epsilon: regret of PD-FTGL with the h of the theory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from gossamer import algorithms, streams, topology
from gossamer.core import Algorithm
from gossamer.experiments import Cell, Claim, Entry, Finding, Found, Metric, Played, at_most_like, exponent, measures
from gossamer.experiments.papers.paper_000.cases import BOTH, FORMS, QUIET, Sizes, in_both
from gossamer.privacy import Budget
from gossamer.problems import Linear
from gossamer.sets import L2Ball
from gossamer.streams import Stream


class Point(NamedTuple):
    """A setting of the bounds on regret: PD-FTGL on linear losses of the unit ball, with h as in the theory."""

    form: str
    steps: int
    gap: float = 1.0
    learners: int = 9
    epsilon: float = QUIET

    def build(self) -> Algorithm:
        """Weights (1 - rho) I + rho/n 1 1^T have the spectral gap rho, and are positive semidefinite."""
        n = self.learners
        network = topology.complete(n, weights=(1 - self.gap) * np.eye(n) + self.gap / n)
        problem = Linear(2, feature_bound=1.0, domain=L2Ball(1.0))
        options = {"horizon": self.steps, "budget": Budget(self.epsilon), "clip": 1.0, **FORMS[self.form].options}
        return algorithms.pd_ftgl(problem, network, **options)

    def cell(self, repeats: int) -> Cell:
        """Regret on signs that are held and taken back: who moves too fast pays, and so does who is late."""
        told = f"{self.form}, T {self.steps}, rho {self.gap:g}, n {self.learners}, epsilon {self.epsilon:g}"
        kept, stream = [final_regret()], partial(taken_back, self.learners)
        return Cell(f"regret, {told}", self.build, stream, self.steps, kept, data=range(repeats), points=1)


@cache
def taken_back(learners: int, seed: int) -> Stream:
    """Random signs, the same loss for 128 steps and then its opposite."""
    return streams.mirrored(streams.random_signs(learners, 2, seed=seed), hold=128)


def final_regret() -> Metric:
    """R_{T,i} / (n T), mean over learners."""

    def of(played: Played) -> Any:
        return measures.static_regret().of(played)[..., -1, :].mean(axis=-1)

    return Metric("regret", of)


def sweeps(sizes: Sizes) -> dict[str, tuple[str, float, list[float], Callable[[str, float], Point]]]:
    """By name: what it is plotted against, the power that the bound has, the values, and the point of each."""
    T, few = sizes.steps, 1 if sizes.each else 2
    gaps = [4.0**k for k in range(0, 4, few)]
    return {
        "T": ("T", -0.5, [T / 4**k for k in range(4 - few, -1, -few)], lambda form, t: Point(form, int(t))),
        "rho, little noise": ("1 / rho", 0.25, gaps, lambda form, g: Point(form, T, gap=1 / g, epsilon=1e6)),
        "rho, much noise": ("1 / rho", -0.25, gaps, lambda form, g: Point(form, T, gap=1 / g, epsilon=20.0)),
        "n": ("n", 0.0, [4.0, 16.0, 64.0], lambda form, n: Point(form, T, learners=int(n))),
        "epsilon": (
            "1 / epsilon",
            1.0,
            [1 / e for e in (2560, 640, 160)],
            lambda form, i: Point(form, T, epsilon=1 / i),
        ),
    }


def dependence_cells(sizes: Sizes) -> dict[Any, Entry]:
    """Every sweep in both forms."""
    return {
        (name, form, value): point(form, value).cell(sizes.streams)
        for name, (_, _, values, point) in sweeps(sizes).items()
        for form in BOTH
        for value in values
    }


def dependence_claims(sizes: Sizes, found: Found) -> list[Claim]:
    """Corollary 3.7, as powers with a tenth for logarithms: R_{T,i} / (n T) is at most like each of them."""

    def finding(name: str, values: Sequence[float], power: float, form: str) -> Finding:
        regrets = [found[name, form, value].repeated("regret") for value in values]
        return at_most_like(exponent(values, np.array(regrets).reshape(len(values), -1)), power + 0.1)

    return [
        in_both(
            f"regret / (n T) grows at most like ({axis})^{power:g} ({name})",
            "Corollary 3.7",
            partial(finding, name, values, power),
        )
        for name, (axis, power, values, _) in sweeps(sizes).items()
    ]
