"""The rates of paper 001, measured: `python -m bench.federated [PICTURE.html]` prints what its page quotes.

Theorem IV.10 and Corollaries IV.11 and IV.12 as fitted exponents of R, with the steps that they prescribe, on a
strongly convex problem and on one that is not convex but satisfies the Polyak-Lojasiewicz (PL) condition; the bounds
with their constants; what moving minima cost; and where correlated noise stops being better than independent noise.

The least loss of every round is zero, so dynamic regret needs no solver. Noise has epsilon 2 and delta 1e-3. What noise
adds is the difference to the same run without noise. It is fitted by itself too: other terms can hide it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from bench.tools import Repeated, print_table
from gossamer import Budget, FastNoise, algorithms, simulate
from gossamer.algorithms import FederatedRegret, assumption_iv_4
from gossamer.core import Algorithm
from gossamer.mechanisms import Aggregation, Factorized
from gossamer.mechanisms.factors import Buffered
from gossamer.problems import LeastSquares, Problem
from gossamer.problems.checks import check_targets
from gossamer.problems.linear import ScalarLink

LEARNERS, DIM, TAU, SERVER_STEP = 4, 2, 2, 4.0
BUDGET, CLIP = Budget(2.0, 1e-3), 3.0
CROWD, RATIOS = 64, (0.25, 4.0)
NOISES: tuple[Aggregation, ...] = ("blt", "independent")
ROUNDS = (250, 500, 1_000, 2_000, 4_000, 8_000, 16_000)
SEEDS = 32

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Wave(ScalarLink):
    """The link s^2/2 + a sin(s)^2 of the residual s = <x, w> - y: not convex for a > 1/2, and PL.

    >>> problem = Wave(1, feature_bound=1.0)
    >>> problem.smoothness, problem.strong_convexity
    (2.1, None)
    """

    depth: float = field(default=0.55, kw_only=True)

    @property
    def smoothness(self) -> float | None:
        """(1 + 2a) R^2 with features of norm at most R."""
        return None if self.feature_bound is None else (1 + 2 * self.depth) * self.feature_bound**2 + self.l2

    @property
    def strong_convexity(self) -> float | None:
        """None: the second derivative goes down to 1 - 2a."""
        return None

    def _link(self, score: jax.Array, y: jax.Array) -> jax.Array:
        return (score - y) ** 2 / 2 + self.depth * jnp.sin(score - y) ** 2

    def _slope(self, score: jax.Array, y: jax.Array) -> jax.Array:
        return (score - y) + self.depth * jnp.sin(2 * (score - y))

    def _check_labels(self, y: np.ndarray, start: int) -> None:
        check_targets(y, start)


class WaveConstants:
    """Of one residual, found on a grid; f^r is a mean over d coordinates, which divides all but alpha by d.

    Beyond residuals of 100 the square is all that counts.

    Attributes:
        weak: mu_WC, of weak convexity.
        pl: c_PL, the least l'^2 / (2 l).
        alpha: what Corollary IV.7 allows alpha to be, (c_PL/2 - mu_WC) / L.
        mu: the largest mu of Assumption IV.4 with alpha 1, the least 2 (s l' - l) / s^2.

    >>> found = WaveConstants(0.55)
    >>> [round(value, 3) for value in (found.weak, found.pl, found.alpha, found.mu)]
    [0.1, 0.502, 0.072, 0.355]
    """

    def __init__(self, depth: float) -> None:
        s = np.linspace(1e-3, 100, 1_000_001)
        link, slope = s**2 / 2 + depth * np.sin(s) ** 2, s + depth * np.sin(2 * s)
        self.weak, self.pl = 2 * depth - 1, float(np.min(slope**2 / (2 * link)))
        stated = assumption_iv_4("polyak-lojasiewicz", self.pl, smoothness=1 + 2 * depth, weak_convexity=self.weak)
        self.alpha = 2 * stated.alpha
        self.mu = float(np.min(2 * (s * slope - link) / s**2))


@dataclass(frozen=True)
class Case:
    """A problem, its samples, and the constants of Assumption IV.4.

    The features of a learner's samples in a round are an orthonormal basis. So f^r(x) is the mean over coordinates of
    the loss at x_j - target_j. All targets are `distance` away from the start, up or down from there by `moves` in
    turns.

    Attributes:
        problem: the losses, each of one residual.
        slope: the derivative of the loss in the residual.
        alpha: of Assumption IV.4.
        mu: likewise.
        distance: of every coordinate of the start from its target.
        rotated: every learner has a basis of its own; else all have the unit vectors.
        moves: by how much targets move, up in even rounds and down in odd ones.
        learners: n.
    """

    name: str
    problem: Problem
    slope: Callable[[Values], Values]
    alpha: float
    mu: float
    distance: float
    rotated: bool
    moves: float = 0.0
    learners: int = LEARNERS

    def stream(self) -> Repeated:
        """Two rounds, again and again."""
        rng = np.random.default_rng(0)
        turned = np.linalg.qr(rng.normal(size=(self.learners, DIM, DIM)))[0]
        bases = turned if self.rotated else [np.eye(DIM)] * self.learners
        x = np.array([[basis[(step + i) % DIM] for i, basis in enumerate(bases)] for step in range(2 * TAU)])
        targets = self.distance + self.moves * np.repeat([1.0, -1.0], TAU)
        return Repeated(x.astype(np.float32), (targets[:, None] * x.sum(axis=2)).astype(np.float32))

    @property
    def smooth(self) -> float:
        """L, of every sample's loss."""
        assert self.problem.smoothness is not None
        return self.problem.smoothness

    @property
    def variation(self) -> float:
        """C_R / R: the squared distance of a round's minimum from that of all rounds together."""
        return DIM * self.moves**2


def least_squares(distance: float = 0.7) -> Case:
    """F^r(x) = |x - target|^2 / d: strongly convex with 2/d, so Assumption IV.4 holds with alpha 1 and mu 2/d."""
    problem = LeastSquares(DIM, feature_bound=1.0)
    return Case("least squares", problem, lambda s: 2 * s, alpha=1.0, mu=2 / DIM, distance=distance, rotated=True)


def wave() -> Case:
    """Not convex, PL. The start is beyond the concave part, residuals of 1.36 to 1.79."""
    problem = Wave(DIM, feature_bound=1.0)
    mu = WaveConstants(problem.depth).mu / DIM
    return Case(
        "wave",
        problem,
        lambda s: s + problem.depth * np.sin(2 * s),
        alpha=1.0,
        mu=mu,
        distance=2.2,
        rotated=False,
    )


def log_rows(rounds: int) -> float:
    """Ln(R tau)."""
    return math.log(rounds * TAU)


@dataclass(frozen=True)
class Claim:
    """A step rule, and the rate that it is said to give.

    Attributes:
        name: in the paper.
        noise: correlated ("blt"), or independent.
        step: eta~ for R; the factor is what the condition on eta~ allows at R = 250.
        power: the exponent of R in the rate.
        shape: the rate with its logarithms, up to a factor.
    """

    name: str
    noise: Aggregation
    step: Callable[[int], float]
    power: str
    shape: Callable[[int], float]


THEOREM = Claim(
    "IV.10",
    "blt",
    lambda r: 1.2 * r ** (-1 / 3) * log_rows(r) ** (-2 / 3),
    "-2/3",
    lambda r: (log_rows(r) / r) ** (2 / 3),
)
INDEPENDENT = Claim("IV.11", "independent", lambda r: 0.5 * r**-0.5, "-1/2", lambda r: r**-0.5)
STATIC = Claim(
    "IV.12",
    "blt",
    lambda r: 0.3 * (r * log_rows(r)) ** -0.5,
    "-1/2",
    lambda r: (log_rows(r) / r) ** 0.5,
)
MIXED = replace(INDEPENDENT, name="IV.11, step of IV.10", step=THEOREM.step)
"""Not a claim: noise that does not cancel, with the step for noise that does."""


def federation(
    case: Case, rounds: int, step: float, noise: Aggregation | None, server_step: float = SERVER_STEP
) -> Algorithm:
    """Algorithm 1 with eta~ = step. Independent noise is the same for every horizon: without one, one program does."""
    return algorithms.online_federated(
        case.problem,
        case.learners,
        horizon=rounds * TAU if noise == "blt" else None,
        steps_per_exchange=TAU,
        clip=CLIP,
        step=step / (server_step * TAU),
        server_step=server_step,
        budget=BUDGET if noise else None,
        aggregation=noise or "blt",
    )


def regrets(case: Case, algorithm: Algorithm, rounds: int, seeds: int) -> Values:
    """Regret_d / (R tau) for every seed of the noise: the mean loss of x^r, which all learners play."""
    run = simulate(
        algorithm,
        case.stream(),
        rounds * TAU,
        seeds=range(seeds),
        measure="local",
        every=rounds,
        progress=False,
    )
    return np.asarray(run.losses.mean(axis=(1, 2)))


@dataclass(frozen=True)
class Curve:
    """Regrets over R, axes (R, seed); without noise (R,); and the bound of the claim where it has constants."""

    rounds: tuple[int, ...]
    noisy: Values
    quiet: Values
    bounds: Values

    @property
    def mean(self) -> Values:
        """Over seeds."""
        return np.asarray(self.noisy.mean(axis=1))

    @property
    def total_exponent(self) -> tuple[float, float]:
        """Of R, and its standard error over seeds."""
        return jackknife(lambda mean: exponent(self.rounds, mean), self.noisy)

    @property
    def noise_exponent(self) -> tuple[float, float]:
        """That of what noise adds."""
        return jackknife(lambda mean: exponent(self.rounds, mean - self.quiet), self.noisy)

    @property
    def noise_share(self) -> Values:
        """Of the regret."""
        return 1 - self.quiet / self.mean


def measure(case: Case, claim: Claim, rounds: Sequence[int] = ROUNDS, seeds: int = SEEDS) -> Curve:
    """One run with noise and one without for every R, with the step of the claim."""
    noisy, quiet, bounds = [], [], []
    for count in rounds:
        step = claim.step(count)
        algorithm = federation(case, count, step, claim.noise)
        noisy.append(regrets(case, algorithm, count, seeds))
        quiet.append(regrets(case, federation(case, count, step, None), count, 1)[0])
        bounds.append(bound(case, algorithm, count, step))
    return Curve(tuple(rounds), np.array(noisy), np.array(quiet), np.array(bounds))


def exponent(rounds: Sequence[int], values: Values) -> float:
    """That of R, fitted to all points alike."""
    return float(np.polyfit(np.log(rounds), np.log(values), 1)[0])


def jackknife(statistic: Callable[[Values], float], samples: Values) -> tuple[float, float]:
    """A statistic of the mean over seeds, the last axis, and its standard error."""
    seeds = samples.shape[-1]
    without = [statistic(np.delete(samples, seed, axis=-1).mean(axis=-1)) for seed in range(seeds)]
    return statistic(samples.mean(axis=-1)), math.sqrt((seeds - 1) * np.var(without))


def bound(case: Case, algorithm: Algorithm, rounds: int, step: float, server_step: float = SERVER_STEP) -> float:
    """Lemma IV.9 with its constants, or Corollary IV.11 for independent noise, of a sample.

    P_X* is one point: sigma = 0. Independent noise has no horizon here, so the algorithm does not know R.
    """
    mechanism = algorithm.releases[0].mechanism
    correlated = isinstance(mechanism, Factorized)
    stated = FederatedRegret.of(
        rounds,
        TAU,
        step / (server_step * TAU),
        server_step,
        CLIP,
        learners=case.learners,
        dim=DIM,
        scales=[algorithm.scales_of("gradient")[0].value],
        row=mechanism.max_error(rounds * TAU) if isinstance(mechanism, Factorized) else 1.0,
        correlated=correlated,
    )
    losses = {"alpha": case.alpha, "mu": case.mu, "smoothness": case.smooth, "variation": rounds * case.variation}
    return stated(start=DIM * case.distance**2, **losses) / (rounds * TAU)


def replay(case: Case, algorithm: Algorithm, rounds: int, seeds: int) -> tuple[float, float]:
    """The mean of |x^r - target|^2, and the share of clipped gradients at all local iterates.

    A second implementation, after eq. (2) of the paper, in NumPy and with the same draws. Targets must not move.
    """
    mechanism, spec = algorithm.releases[0].mechanism, algorithm.learner.noise["gradient"]
    scales, samples = algorithm.scales_of("gradient"), case.stream().read(0, 2 * TAU)
    draws = np.array([FastNoise(seed).draw("gradient", spec, scales, 0, rounds) for seed in range(seeds)])
    rows = draws.reshape(seeds, case.learners, rounds * TAU, DIM).transpose(2, 0, 1, 3).astype(np.float64)
    factor = mechanism.factor if isinstance(mechanism, Factorized) else Buffered((), ())
    assert isinstance(factor, Buffered)
    rates, weights = np.array(factor.rates).reshape(-1, 1, 1, 1), np.array(factor.scales).reshape(-1, 1, 1, 1)
    buffers = np.zeros((len(rates), seeds, case.learners, DIM))
    steps, moves = (algorithm.public[name](np.ones(1, np.int64))[0] for name in ("step", "global step"))
    x, clipped, distance = np.zeros((seeds, 1, DIM)), 0, 0.0
    for r in range(rounds):
        z = np.repeat(x, case.learners, axis=1)
        distance += float(np.mean(np.sum((x - case.distance) ** 2, axis=2)))
        for t in range(TAU):
            place = (r * TAU + t) % (2 * TAU)
            slope = case.slope(np.sum(z * samples.x[place], axis=2) - samples.y[place])
            clipped += int(np.sum(np.abs(slope) > CLIP))
            noise = rows[r * TAU + t] - np.sum(weights * buffers, axis=0)
            buffers += noise - rates * buffers
            z = z - steps * (np.clip(slope, -CLIP, CLIP)[..., None] * samples.x[place] + noise)
        x = x - moves * np.mean(x - z, axis=1, keepdims=True) / (steps * TAU)
    return distance / rounds, clipped / (rounds * TAU * seeds * case.learners)


def print_constants() -> None:
    """Those that the bounds need."""
    constants, say = WaveConstants(0.55), Console(width=120, highlight=False).print
    say(
        f"n={LEARNERS}, d={DIM}, tau={TAU}, eta_g={SERVER_STEP:g}, clip {CLIP:g}, epsilon {BUDGET.epsilon:g}, delta "
        f"{BUDGET.delta:g}, {SEEDS} seeds."
    )
    for case in (least_squares(), wave()):
        say(
            f"{case.name}: L {case.smooth:g}, alpha {case.alpha:g}, mu {case.mu:.3g}, so eta~ <= alpha / (8 L) = "
            f"{case.alpha / (8 * case.smooth):.4f}; every target {case.distance} from the start."
        )
    say(
        f"One residual of the wave: mu_WC {constants.weak:.3g}, c_PL {constants.pl:.4f}, so Corollary IV.7 gives "
        f"alpha < {constants.alpha:.4f}; checked on a grid, Assumption IV.4 holds with alpha 1, mu {constants.mu:.4f}."
    )


def print_rates() -> dict[tuple[str, str], Curve]:
    """Exponents, predicted and measured; returns the curves by claim and problem."""
    pairs = [(claim, case) for claim in (THEOREM, INDEPENDENT, MIXED) for case in (least_squares(), wave())]
    pairs.append((STATIC, least_squares(distance=0.1)))
    rows, curves = [], {}
    for claim, case in pairs:
        curve = curves[claim.name, case.name] = measure(case, claim)
        shape = exponent(ROUNDS, np.array([claim.shape(count) for count in ROUNDS]))
        predicted = "" if claim is MIXED else f"{claim.power}, {shape:.3f}"
        clipped = [share_clipped(case, claim, count) for count in (ROUNDS[0], ROUNDS[2])]
        of_bound = [f"{exponent(ROUNDS, curve.bounds):.3f}", span(curve.mean / curve.bounds)]
        rows.append(
            [
                f"{claim.name}, {case.name}",
                predicted,
                shown(*curve.total_exponent),
                f"{exponent(ROUNDS, curve.quiet):.3f}",
                shown(*curve.noise_exponent),
                span(curve.noise_share),
                *(["", ""] if claim is STATIC else of_bound),
                ", ".join(f"{share:.2g}" for share in clipped),
            ]
        )
    headings = (
        "claim, problem", "predicted", "measured", "no noise", "noise part", "noise share", "bound", "of it", "clipped"
    )  # fmt: skip
    title = f"Exponents of R in the average regret, R = {ROUNDS[0]:,} to {ROUNDS[-1]:,}"
    print_table(title, headings, rows)
    say = Console(width=120, highlight=False).print
    say("predicted: the claim's, without and with its logarithms, the latter fitted like what was measured.")
    say("bound: the exponent of the bound with its constants, and which share of it the regret is, at both ends of R.")
    say(f"clipped: the share of all gradients, local iterates included, at R = {ROUNDS[0]:,} and {ROUNDS[2]:,}.")
    return curves


def share_clipped(case: Case, claim: Claim, rounds: int, seeds: int = 8) -> float:
    """Of all gradients of a run, local iterates included."""
    return replay(case, federation(case, rounds, claim.step(rounds), claim.noise), rounds, seeds)[1]


def span(values: Values) -> str:
    """At the first and the last R."""
    return f"{values[0]:.2g} to {values[-1]:.2g}"


def shown(value: float, error: float) -> str:
    return f"{value:.3f} ± {error:.3f}"


def print_moves(moves: float = 0.3) -> None:
    """What moving minima add to the regret without noise: C_R / R is the same at every R."""
    rows = []
    for claim, case, static in (
        (THEOREM, least_squares(), False),
        (THEOREM, wave(), False),
        (STATIC, least_squares(distance=0.1), True),
    ):
        moving, added = replace(case, moves=moves), []
        for count in ROUNDS:
            algorithm = federation(case, count, claim.step(count), None)
            least = moves**2 if static else 0.0  # f^r at the best fixed decision
            added.append(regrets(moving, algorithm, count, 1)[0] - least - regrets(case, algorithm, count, 1)[0])
        shares = np.array(added) / moving.variation
        regret = "static" if static else "dynamic"
        power = exponent(ROUNDS, np.array([claim.shape(count) if static else 1.0 for count in ROUNDS]))
        rows.append(
            [f"{claim.name}, {case.name}", regret, span(shares), f"{power:.3f}", f"{exponent(ROUNDS, shares):.3f}"]
        )
    headings = ("step, problem", "regret", "added regret R / C_R", "its exponent: bound", "measured")
    print_table(f"Targets that move up and down by {moves:g} in turns: C_R / R = {DIM * moves**2:.2g}", headings, rows)


@dataclass(frozen=True)
class Sweep:
    """Regret over eta~ at one R, axes (step, seed), with either noise."""

    steps: Values
    correlated: Values
    independent: Values

    @property
    def crossing(self) -> float:
        """Where correlated noise stops being better for good, between two steps of the grid; NaN: it never does."""
        gap = np.log(self.correlated.mean(axis=1) / self.independent.mean(axis=1))
        better = np.flatnonzero(gap < 0)
        if not len(better) or better[-1] == len(gap) - 1:
            return math.nan
        last = better[-1]
        share = gap[last] / (gap[last] - gap[last + 1])
        return float(self.steps[last] * (self.steps[last + 1] / self.steps[last]) ** share)


def sweep(case: Case, server_step: float, rounds: int = 1_000, points: int = 13, seeds: int = SEEDS // 2) -> Sweep:
    """Two decades of eta~."""
    steps, both = np.geomspace(0.01, 1.0, points), {}
    for noise in NOISES:
        runs = [federation(case, rounds, step, noise, server_step) for step in steps.tolist()]
        both[noise] = np.array([regrets(case, run, rounds, seeds) for run in runs])
    return Sweep(steps, both["blt"], both["independent"])


def condition(ratio: float, rounds: int = 1_000) -> float:
    """The eta~ up to which the bound for correlated noise is the smaller one, after Corollary IV.11: n / eta_g^2."""
    return TAU / ((1 + ratio) * log_rows(rounds) ** 2)


def bounds_cross(case: Case, server_step: float, rounds: int = 1_000) -> float:
    """The eta~ at which the bounds with their constants cross."""
    correlated, independent = (federation(case, rounds, 0.01, noise, server_step) for noise in NOISES)
    for step in map(float, np.geomspace(1e-5, 1, 1001)):
        if bound(case, correlated, rounds, step, server_step) > bound(case, independent, rounds, step, server_step):
            return step
    return math.nan


def print_crossings() -> dict[float, Sweep]:
    """Measured crossings beside the condition; returns the sweeps of least squares by n / eta_g^2.

    With so many learners the clip is hardly active at the crossing. With few it is, and there is none: clipped
    gradients pull back less, which favours noise that cancels by itself.
    """
    kept: dict[float, Sweep] = {}
    rows = []
    for case in (least_squares(), wave()):
        crowd = replace(case, learners=CROWD)
        for ratio in RATIOS:
            server_step = math.sqrt(CROWD / ratio)
            found = sweep(crowd, server_step)
            kept.setdefault(ratio, found)
            at = found.crossing
            clipped = replay(crowd, federation(crowd, 1_000, at, "blt", server_step), 1_000, 2)[1]
            means = [values.mean(axis=1) for values in (found.correlated, found.independent)]
            best = [f"{mean.min():.4f} at {found.steps[mean.argmin()]:.3f}" for mean in means]
            theory = f"{condition(ratio):.4f}", f"{bounds_cross(crowd, server_step):.4f}"
            rows.append([f"{case.name}, {ratio:g}", *theory, f"{at:.3f}", f"{clipped:.2g}", *best])
    headings = (
        "problem, n / eta_g^2", "condition", "bounds", "measured", "clipped", "best correlated", "best independent"
    )  # fmt: skip
    print_table(f"eta~ up to which correlated noise has less regret, n = {CROWD}, R = 1,000", headings, rows)
    return kept


def draw(curves: dict[tuple[str, str], Curve], sweeps: dict[float, Sweep], path: Path) -> None:
    """The picture of docs/algorithms/online_federated.md, as a page that a browser turns into a picture."""
    from plotly.subplots import make_subplots

    titles = ("Steps as prescribed, n = 4", "Least squares, R = 1,000, n = 64")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.1)
    colours = {THEOREM.name: "#1f77b4", INDEPENDENT.name: "#d62728"}
    for (name, problem), curve in curves.items():
        if name in colours:
            dash = "dot" if problem.startswith("wave") else "solid"
            line = {"color": colours[name], "dash": dash}
            label = f"{'correlated' if name == THEOREM.name else 'independent'}, {problem}"
            figure.add_scatter(x=ROUNDS, y=curve.mean, name=label, line=line, mode="lines+markers", row=1, col=1)
    for (ratio, found), dash in zip(sweeps.items(), ("solid", "dot"), strict=True):
        for kind, values, colour in (
            ("correlated", found.correlated, "#1f77b4"),
            ("independent", found.independent, "#d62728"),
        ):
            label = f"{kind}, n/eta_g² = {ratio:g}"
            line = {"color": colour, "dash": dash}
            figure.add_scatter(x=found.steps, y=values.mean(axis=1), name=label, line=line, row=1, col=2)
        figure.add_vline(x=condition(ratio), line_dash=dash, line_color="#7f7f7f", row=1, col=2)
    figure.update_xaxes(type="log", title="R", tickvals=ROUNDS[::2], tickformat=",", row=1, col=1)
    figure.update_xaxes(type="log", title="step eta~; vertical: the condition", dtick=1, row=1, col=2)
    figure.update_yaxes(type="log", dtick=1)
    figure.update_yaxes(title="average regret", row=1, col=1)
    figure.update_layout(template="plotly_white", width=1100, height=430, margin={"t": 40, "r": 20})
    figure.write_html(path, include_plotlyjs=True, config={"displayModeBar": False})


def main() -> None:
    print_constants()
    curves = print_rates()
    print_moves()
    sweeps = print_crossings()
    if len(sys.argv) > 1:
        draw(curves, sweeps, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
