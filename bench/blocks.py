"""PD-FTGL and PD-OCG measured: `python -m bench.blocks [PICTURE_DIR]` prints what their pages quote.

Regret against the bounds on random signs, coupled against decoupled gossip on cycles, and the rule that picks blocks
against eq. (7) of paper 000. Streams and seeds are fixed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from bench.tools import print_table
from bench.workloads import length_of
from gossamer import Budget, algorithms, problems, sets, simulate, streams, topology
from gossamer.algorithms.blocks import block_rule
from gossamer.algorithms.blocks.block_options import Coupling
from gossamer.core import Algorithm
from gossamer.metrics import best_decision
from gossamer.problems import Problem
from gossamer.streams import Draws, Generated, Stream

# Bounds: d, n and epsilon at which the corollaries' bounds are below what no play can exceed, and two decades of T.
DIM, LEARNERS, BOUND_BUDGET, ALPHA = 2, 2, Budget(100.0), 1.0
LONG, SHORT = (30_000, 300_000, 3_000_000), (3_000, 30_000, 300_000)
LONGEST = (100_000, 1_000_000, 10_000_000)
BALL = problems.Linear(DIM, feature_bound=1.0, domain=sets.L2Ball(1.0))
TWIN = problems.Linear(DIM, l2=ALPHA, feature_bound=1.0, domain=sets.L2Ball(1.0))

Regret = NDArray[np.float64]


def biased(seed: int, learners: int = LEARNERS, dim: int = DIM) -> Stream:
    """One sign per coordinate for ever, and every sample that vector, or with probability 0.1 its negative.

    Whoever does not move pays in every step.
    """
    direction = (np.random.default_rng(seed).choice([-1.0, 1.0], dim) / np.sqrt(dim)).astype(np.float32)

    def draw(draws: Draws) -> tuple[Any, Any]:
        signs = 1 - 2 * (draws.uniform(1) < 0.1).astype(np.float32)
        return signs * direction[None, None], draws.np.zeros(signs.shape[:2], np.float32)

    return Generated(draw, learners=learners, features=(dim,), seed=seed, description="biased signs")


def alike(seed: int, learners: int = LEARNERS, dim: int = DIM) -> Stream:
    """Fresh random signs, the same ones for all learners."""

    def draw(draws: Draws) -> tuple[Any, Any]:
        size = np.float32(1 / np.sqrt(dim))
        signs = draws.np.where(draws.common().words(dim) >> 31, size, -size)
        return draws.np.repeat(signs, learners, axis=1), draws.np.zeros((len(signs), learners), np.float32)

    return Generated(draw, learners=learners, features=(dim,), seed=seed, description="random signs, all alike")


def taken_back(hold: int) -> Callable[[int], Stream]:
    """Random signs that are held for so many steps and then taken back: whoever moves too fast pays for every move."""
    return lambda seed: streams.mirrored(alike(seed), hold=hold)


def hard_streams(algorithm: Algorithm) -> dict[str, Callable[[int], Stream]]:
    """What every algorithm is tried on."""
    return {"biased": biased, "random": alike, "taken back": taken_back(8 * length_of(algorithm))}


SLOW: dict[str, Any] = {"step": 0.1, "on": ("biased",)}
FAST: dict[str, Any] = {"step": 10.0, "on": ("taken back",)}
"""Steps ten times too small and too large, each on the stream that it is bad for."""


@dataclass(frozen=True)
class Case:
    """An algorithm that a bound holds for, and how to make it with a step that many times too large."""

    name: str
    make: Callable[..., Algorithm]
    strongly: bool = False
    published: bool = False
    horizons: tuple[int, ...] = LONG
    block: int | None = None

    @property
    def problem(self) -> Problem:
        """Linear losses, or their strongly convex twin."""
        return TWIN if self.strongly else BALL

    def __call__(self, horizon: int, *, step: float = 1.0) -> Algorithm:
        """With the right step, 1/h or 1/(alpha t), times `step`."""
        options: dict[str, Any] = {"regularization": 1 / step}
        if self.strongly:
            options = {"strong_convexity": ALPHA / step}
        if self.published:
            options |= {"calibration": "published", "noise_at": "after-gossip"}
        if self.block:
            options |= {"steps_per_exchange": self.block}
        graph = topology.complete(LEARNERS)
        return self.make(self.problem, graph, horizon=horizon, budget=BOUND_BUDGET, clip=1.0, **options)

    def bound(self, horizon: int) -> float:
        """On R_{T,i}, as the algorithm states it."""
        return self(horizon).theoretical_bound()

    def trivial(self, horizon: int) -> float:
        """What no play on the ball exceeds: the largest loss less the smallest, in every step and for every learner."""
        alpha = ALPHA if self.strongly else 0.0
        least = -1 / (2 * alpha) if alpha >= 1 else -1 + alpha / 2
        return LEARNERS * horizon * (1 + alpha / 2 - least)


CASES = (
    Case("3.7: pd_ftgl", algorithms.pd_ftgl, published=True),
    Case("3.8: pd_ftgl, strongly convex", algorithms.pd_ftgl, strongly=True, published=True, horizons=LONGEST),
    Case("3.10: pd_ocg", algorithms.pd_ocg, published=True),
    Case("3.11: pd_ocg, strongly convex", algorithms.pd_ocg, strongly=True, published=True),
    Case("ours: pd_ftgl", algorithms.pd_ftgl, horizons=SHORT),
    Case("ours: pd_ftgl, L=16", algorithms.pd_ftgl, horizons=SHORT, block=16),
    Case("ours: pd_ftgl, strongly convex", algorithms.pd_ftgl, strongly=True, horizons=SHORT),
    Case("ours: pd_ocg", algorithms.pd_ocg),
    Case("ours: pd_ocg, strongly convex", algorithms.pd_ocg, strongly=True),
)


def least_loss(problem: Problem, stream: Stream, steps: int) -> float:
    """The sum of all losses of the best fixed decision, in closed form: losses are <g, x> + l2/2 |x|^2 on a ball."""
    total = np.zeros(DIM)
    for start in range(0, steps, 10**6):
        total += stream.read(start, min(steps, start + 10**6)).x.sum(axis=(0, 1), dtype=np.float64)
    size, radius, curvature = float(np.linalg.norm(total)), problem.domain.radius, problem.l2 * LEARNERS * steps
    distance = radius if size >= radius * curvature else size / curvature
    return -size * distance + curvature * distance**2 / 2


def regret(
    algorithm: Algorithm | None, problem: Problem, data: Callable[[int], Stream], steps: int, seeds: int
) -> Regret:
    """R_{T,i}, averaged over learners, for every seed of stream and noise; None plays zero, whose losses are zero."""
    found = []
    for seed in range(seeds):
        stream = data(seed)
        lost = 0.0 if algorithm is None else LEARNERS * steps * average(algorithm, stream, steps, [seed])[0]
        found.append(lost - least_loss(problem, stream, steps))
    return np.array(found)


def average(algorithm: Algorithm, stream: Stream, steps: int, seeds: Sequence[int]) -> Regret:
    """The mean loss over steps and learners, for every seed of the noise."""
    run = simulate(algorithm, stream, steps, seeds=seeds, every=steps, progress=False)
    return np.asarray(np.average(run.losses, axis=1, weights=np.diff(run.steps, prepend=0)).mean(axis=-1))


def worst(
    case: Case, horizons: Iterable[int], seeds: int, *, step: float = 1.0, on: Sequence[str] | None = None
) -> dict[int, Regret]:
    """The regrets at every T on the stream (of all, or of those named) where their mean is largest."""
    found = {}
    for steps in horizons:
        algorithm = case(steps, step=step)
        tried = [data for name, data in hard_streams(algorithm).items() if on is None or name in on]
        found[steps] = max((regret(algorithm, case.problem, data, steps, seeds) for data in tried), key=np.mean)
    return found


def of_zero(case: Case, horizons: Iterable[int], seeds: int) -> dict[int, Regret]:
    """The regrets of playing zero on the biased stream."""
    return {steps: regret(None, case.problem, biased, steps, seeds) for steps in horizons}


def below(regrets: Mapping[int, Regret], bound: Callable[[int], float]) -> bool:
    """Whether mean regret plus three standard errors is below the bound at every T."""
    return all(upper(values) < bound(steps) for steps, values in regrets.items())


def upper(values: Regret) -> float:
    """The mean plus three standard errors."""
    return float(values.mean() + 3 * values.std(ddof=1) / math.sqrt(len(values)))


def exponent(values: Mapping[int, float]) -> float:
    """That of T, fitted."""
    return float(np.polyfit(np.log(list(values)), np.log(list(values.values())), 1)[0])


def means(regrets: Mapping[int, Regret]) -> dict[int, float]:
    """By T."""
    return {steps: float(values.mean()) for steps, values in regrets.items()}


def first_below(case: Case, share: float = 1.0) -> float:
    """The T from which on the bound is below this share of the trivial one, to a tenth of a decade."""
    tenths = (round(10 ** (k / 10), -2) for k in range(40, 150))
    return next(steps for steps in tenths if case.bound(int(steps)) < share * case.trivial(int(steps)))


def print_bounds(seeds: int = 2) -> None:
    """Measured regret against every bound; shares are at the first, middle and last T."""
    rows = []
    for case in CASES:
        right = worst(case, case.horizons, seeds)
        wrong = [worst(case, case.horizons[-1:], seeds, **options) for options in (SLOW, FAST)]
        zero = of_zero(case, case.horizons, seeds)
        bounds = {steps: case.bound(steps) for steps in case.horizons}
        rows.append(
            [
                case.name,
                f"{case.horizons[0]:,} to {case.horizons[-1]:,}",
                shares(bounds, {steps: case.trivial(steps) for steps in case.horizons}),
                shares({steps: upper(values) for steps, values in right.items()}, bounds),
                f"{exponent(means(right)):.2f} / {exponent(bounds):.2f}",
                *(shares(means(each), bounds) for each in (zero, *wrong)),
            ]
        )
    headings = (
        "bound", "T", "bound / trivial", "regret / bound", "exponents", "playing 0", "step / 10", "step x 10"
    )  # fmt: skip
    print_table(f"n={LEARNERS}, d={DIM}, epsilon {BOUND_BUDGET.epsilon:g}, clip 1, {seeds} seeds", headings, rows)
    for case in CASES:
        if case.bound(case.horizons[0]) > case.trivial(case.horizons[0]):
            play = -least_loss(case.problem, biased(0), 10**5) / case.trivial(10**5)
            print(
                f"{case.name}: below the trivial bound from T = {first_below(case):,.0f} on, "
                f"and below what playing 0 costs on the biased stream from {first_below(case, play):,.0f} on."
            )


def shares(values: Mapping[int, float], of: Mapping[int, float]) -> str:
    """One over the other, at every T."""
    return ", ".join(f"{value / of[steps]:.2g}" for steps, value in values.items())


# Coupled against decoupled gossip.
CYCLES, HORIZONS, BUDGET = (25, 64), (10_000, 100_000), Budget(1.0, 1e-5)
LOGISTIC = problems.Logistic(10, feature_bound=1.0, domain=sets.L2Ball(10.0))
WEIGHTS = (1.0, 0.5, 0.2, 0.1, 0.05)
COLOURS = ("#1f77b4", "#d62728", "#7f7f7f", "#111111")


def contestants(learners: int, horizon: int, weight: float = 1.0, problem: Problem = LOGISTIC) -> dict[str, Algorithm]:
    """Blocks and noise by the rule unless said, at one multiple of the default weight."""
    cycle = topology.ring(learners, weights="lazy")

    def make(**options: Any) -> Algorithm:
        return algorithms.pd_ftgl(
            problem,
            cycle,
            horizon=horizon,
            budget=BUDGET,
            clip=1.0,
            noise="gaussian",
            regularization=weight,
            **options,
        )

    decoupled = make(gossip="decoupled")
    return {
        "coupled": make(),
        "decoupled": decoupled,
        "decoupled, eq. (7)": make(gossip="decoupled", steps_per_exchange=topology.accelerated_block(cycle, horizon)),
        "coupled, block of decoupled": make(steps_per_exchange=length_of(decoupled)),
        "coupled, L=1, fresh noise": make(steps_per_exchange=1, aggregation="independent"),
    }


def print_cycles(seeds: Mapping[int, int], weights: Sequence[float] = WEIGHTS) -> dict[tuple[int, int, str], float]:
    """Average regret with default weights, and with the best of the grid; returns the former."""
    rows, found = [], {}
    for learners in CYCLES:
        stream = streams.smooth_cycle_logistic(learners, 10, seed=0, spread=1.0)
        for horizon in HORIZONS:
            best = best_decision(LOGISTIC, stream, horizon, tolerance=1e-5).loss
            for name in contestants(learners, horizon):
                by_weight = {}
                for weight in weights:
                    count = seeds[horizon] if weight == 1 else max(2, seeds[horizon] // 2)
                    algorithm = contestants(learners, horizon, weight)[name]
                    by_weight[weight] = average(algorithm, stream, horizon, range(count)) - best
                tuned = min(by_weight, key=lambda weight: by_weight[weight].mean())
                found[learners, horizon, name] = float(by_weight[1.0].mean())
                shown = (f"{values.mean():.5f} ± {error(values):.5f}" for values in (by_weight[1.0], by_weight[tuned]))
                rows.append([f"{learners}, {horizon:,}", name, str(length_of(algorithm)), *shown, f"{tuned:g}"])
            cycle = topology.ring(learners, weights="lazy")
            other = algorithms.pd_ogd(LOGISTIC, cycle, clip=1.0, budget=BUDGET, noise="gaussian")
            values = average(other, stream, horizon, range(seeds[horizon])) - best
            rows.append([f"{learners}, {horizon:,}", "(pd_ogd)", "1", f"{values.mean():.5f} ± {error(values):.5f}"])
    headings = ("n, T", "pd_ftgl", "block", "average regret", "with the best weight", "of default")
    print_table(
        "Cycles, logistic, d=10, epsilon 1, delta 1e-5, Gaussian, clip 1: mean ± standard error", headings, rows
    )
    return found


def print_signs(horizon: int = 10_000, dim: int = 10, seeds: int = 3) -> None:
    """The same on linear losses that move: biased signs, and signs that are taken back after so many steps."""
    ball, rows = problems.Linear(dim, feature_bound=1.0, domain=sets.L2Ball(1.0)), []
    for learners in CYCLES:
        signs = alike(0, learners, dim)
        data = {"biased": biased(0, learners, dim)}
        data |= {f"taken back after {hold}": streams.mirrored(signs, hold=hold) for hold in (128, 512, 2048)}
        for stream_name, stream in data.items():
            best = best_decision(ball, stream, horizon).loss
            row = [f"{learners}, {stream_name}"]
            for algorithm in list(contestants(learners, horizon, problem=ball).values())[:3]:
                values = average(algorithm, stream, horizon, range(seeds)) - best
                row.append(f"{values.mean():.4f} ± {error(values):.4f} (L={length_of(algorithm)})")
            rows.append(row)
    headings = ("n, stream", "coupled", "decoupled", "decoupled, eq. (7)")
    print_table(f"Cycles, linear losses on the unit ball, d={dim}, T={horizon:,}, default weights", headings, rows)


def error(values: Regret) -> float:
    """The standard error of the mean."""
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def print_rule() -> None:
    """The rule's block, noise and bound against those of eq. (7) with a tree: no run."""
    letter = problems.Softmax(16, 26, feature_bound=math.sqrt(0.5), domain=sets.TraceNormBall(10.0, (26, 16)))
    cycles = [
        (f"cycle of {n}, T={horizon:,}, {gossip}", LOGISTIC, topology.ring(n, weights="lazy"), horizon, BUDGET, gossip)
        for n in CYCLES
        for horizon in HORIZONS
        for gossip in ("coupled", "decoupled")
    ]
    letters = [
        (f"letter, {graph.name}, epsilon {epsilon:g}", letter, graph, 150_000, Budget(epsilon), "coupled")
        for graph in (topology.complete(9), topology.ring(9, weights="lazy"))
        for epsilon in (1.0, 2.5, 10.0)
    ]
    rows = []
    for name, problem, graph, horizon, budget, gossip in (*cycles, *letters):
        options: dict[str, Any] = {"horizon": horizon, "budget": budget, "clip": 1.0, "gossip": gossip}
        options["noise"] = "gaussian" if budget.delta else "laplace"
        rule = algorithms.pd_ftgl(problem, graph, **options)
        block = topology.accelerated_block(graph, horizon)
        printed = algorithms.pd_ftgl(problem, graph, **options, steps_per_exchange=block, aggregation="tree")
        scale = 1 / (graph.learners * horizon)
        each = [f"{length_of(a)}, {noise_of(a)}, {scale * a.theoretical_bound():.3g}" for a in (rule, printed)]
        rows.append([name, *each, f"{printed.theoretical_bound() / rule.theoretical_bound():.2f}"])
    print_table("Block, noise, bound on average regret", ("setting", "rule", "eq. (7), tree", "bound x"), rows)


def noise_of(algorithm: Algorithm) -> str:
    """How noise enters the sums."""
    return str(algorithm.parameters["noise"]).split(", ")[1]


def draw_costs(directory: Path, learners: int = 64, horizon: int = 100_000) -> None:
    """K by cause against the block, coupled and decoupled: pd_ftgl-costs.html."""
    from plotly.subplots import make_subplots

    cycle = topology.ring(learners, weights="lazy")
    lengths = block_rule.lengths(horizon // 16)
    kinds: tuple[Coupling, ...] = ("coupled", "decoupled")
    figure = make_subplots(1, 2, shared_yaxes=True, subplot_titles=kinds)
    for column, gossip in enumerate(kinds, start=1):
        costs = [cost_of(cycle, horizon, length, gossip) for length in lengths]
        parts = {"lag": "lag", "disagreement": "disagreement", "noise": "noise (fresh)", "total": "K"}
        for (part, name), colour in zip(parts.items(), COLOURS, strict=True):
            values = [getattr(cost, part) for cost in costs]
            line = {"color": colour, "width": 3 if part == "total" else 1.5}
            figure.add_scatter(x=lengths, y=values, name=name, line=line, showlegend=column == 1, row=1, col=column)
        best = min(range(len(lengths)), key=lambda place: costs[place].total)
        figure.add_vline(x=lengths[best], line_dash="dot", row=1, col=column)
    figure.update_xaxes(type="log", title="block", dtick=1)
    figure.update_yaxes(type="log", range=[1, 5], dtick=1)
    figure.update_yaxes(title="K / G^2", col=1)
    save(figure, directory / "pd_ftgl-costs.html")


def cost_of(graph: topology.FixedTopology, horizon: int, length: int, gossip: Coupling) -> block_rule.Cost:
    """K of one block with fresh Gaussian noise before gossip."""
    algorithm = algorithms.pd_ftgl(
        LOGISTIC,
        graph,
        horizon=horizon,
        budget=BUDGET,
        clip=1.0,
        noise="gaussian",
        gossip=gossip,
        aggregation="independent",
        steps_per_exchange=length,
    )
    return block_rule.cost(
        algorithm.releases[0],
        block_rule.modes_of(graph, horizon),
        block=length,
        gossip_steps=length,
        blocks=horizon // length,
        bound=1.0,
        lag=0,
        coupled=gossip == "coupled",
        before=True,
        growing=False,
    )


def draw_cycles(regrets: Mapping[tuple[int, int, str], float], directory: Path) -> None:
    """Average regret with default weights against T: pd_ftgl-cycles.html."""
    figure = go.Figure()
    names = ("coupled", "decoupled", "decoupled, eq. (7)")
    for learners, dash in zip(CYCLES, ("solid", "dash"), strict=True):
        for name, colour in zip(names, COLOURS, strict=False):
            values, line = [regrets[learners, steps, name] for steps in HORIZONS], {"dash": dash, "color": colour}
            figure.add_scatter(x=HORIZONS, y=values, name=f"n={learners}, {name}", line=line, mode="lines+markers")
    figure.update_xaxes(type="log", title="T", tickvals=HORIZONS)
    figure.update_yaxes(type="log", title="average regret", tickvals=[0.005, 0.01, 0.02, 0.05])
    save(figure, directory / "pd_ftgl-cycles.html")


def save(figure: go.Figure, path: Path) -> None:
    """As a page that a browser turns into a picture."""
    figure.update_layout(template="plotly_white", width=860, height=430, margin={"t": 40, "r": 20})
    figure.write_html(path, include_plotlyjs=True, config={"displayModeBar": False})


def main() -> None:
    print_bounds()
    print_rule()
    print_signs()
    regrets = print_cycles({10_000: 8, 100_000: 3})
    if len(sys.argv) > 1:
        draw_costs(Path(sys.argv[1]))
        draw_cycles(regrets, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
