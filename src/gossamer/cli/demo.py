"""`gossamer demo`: five settings, and in each of them what privacy costs at budgets that people accept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gossamer import Algorithm, Budget, Rate, algorithms, problems, sets, simulate, streams, topology
from gossamer.metrics import average_loss
from gossamer.metrics.summary import last_tenth, percent
from gossamer.reports import Network, Part, Report, Table
from gossamer.simulation import Run
from gossamer.streams import Stream

BUDGETS = (8.0, 4.0, 1.0)
DELTA = 1e-5
SEEDS = (0, 1, 2, 3, 4)  # of the noise; everything here is public
DATA = 2026  # seed of the samples; options were chosen on samples of other seeds
POINTS = 100  # of every curve
PUBLISHED = 8.0  # the budget of the row "as published": the largest

Measure = Literal["accuracy", "loss", "wrong"]
Make = Mapping[str, Algorithm]

INTRODUCTION = (
    "Five ways in which many learners learn online together, each the setting of one paper. In each of them nothing "
    "about a sample reaches the others except through noise, and a whole run costs the epsilon of its column.",
    "Samples are fresh at every step: no learner sees one twice. Numbers are means over five seeds of the noise, with "
    "the least and the largest.",
)
PRIVACY = (
    "Epsilon bounds what all that is sent and played tells about one sample, over the whole run (delta 1e-5; experts "
    "0). Columns without an epsilon are not private."
)
PAPERS = (
    '"As published" is the same algorithm with the noise that its paper scales, at epsilon 8. The papers of '
    "neighbours, of the stream without end and of coordinates claim delta 0, which is a stronger promise: their noise "
    "is larger for that reason too."
)
TUNING = (
    "Steps, clips and blocks were chosen by hand on samples of other seeds, once for all budgets. That is no loss of "
    "privacy here, where the samples come from a generator; on data of your own it would be."
)
COLUMNS = ("setting", "nothing shared", "not private", "epsilon 8", "epsilon 4", "epsilon 1", "as published, epsilon 8")


@dataclass(frozen=True)
class Setting:
    """One part of the demo.

    Attributes:
        title: in a word or two.
        story: who learns what, and who is not trusted.
        stream: the samples.
        steps: of the run.
        measure: accuracy or loss at the end, or the share of wrong choices over the whole run.
        idle: the measure where nothing is shared: every learner alone, or never learning.
        open: without privacy.
        private: by epsilon; made when it is asked for.
        published: with the noise of the paper.
    """

    title: str
    story: str
    stream: Stream
    steps: int
    measure: Measure
    idle: Algorithm | float
    open: Algorithm
    private: Callable[[float], Algorithm]
    published: Algorithm


@dataclass(frozen=True)
class Demo:
    """The report, what came out in two sentences, and what must be said about privacy."""

    report: Report
    verdict: str
    privacy: str


def play(share: float = 1.0) -> Demo:
    """Run all settings, or the first share of their steps, and write down what happened."""
    made = (neighbours(), server(), endless(), coordinates(), experts())
    played = [(setting, _runs(setting, share)) for setting in made]
    report = Report(
        title="Learning together in private: five settings",
        introduction=INTRODUCTION,
        table=Table(COLUMNS, tuple(_row(setting, runs) for setting, runs in played)),
        notes=(PRIVACY, PAPERS, TUNING),
        command="gossamer demo",
        parts=tuple(_part(setting, runs) for setting, runs in played),
        public=True,
    )
    return Demo(report, _verdict(played), PRIVACY)


def neighbours(steps: int = 4000) -> Setting:
    """Paper 000."""
    learners = 16
    problem = problems.Softmax(16, 8, feature_bound=7.0, domain=sets.L2Ball(10.0))
    ring = topology.ring(learners, weights="lazy")
    private = partial(algorithms.pd_ftgl, problem, ring, horizon=steps, clip=1.0)
    ours = partial(private, noise="gaussian", aggregation="blt", steps_per_exchange=32, regularization=0.3)
    return Setting(
        title="neighbours",
        story="16 learners on a ring. Each meets one of 8 kinds of events only, and learns to tell all of them apart "
        "by talking to two neighbours, whom it does not trust. Algorithm: `pd_ftgl`.",
        stream=streams.clusters(learners, 16, 8, seed=DATA),
        steps=steps,
        measure="accuracy",
        idle=algorithms.local_ogd(problem, learners, step=Rate(1.0)),
        open=algorithms.d_ogd(problem, ring, step=Rate(1.0)),
        private=lambda epsilon: ours(budget=Budget(epsilon, DELTA)),
        published=private(budget=Budget(PUBLISHED), calibration="published"),
    )


def server(steps: int = 4000) -> Setting:
    """Paper 001."""
    learners = 20
    problem = problems.Logistic(20, feature_bound=8.0)
    train = partial(algorithms.online_federated, problem, learners, horizon=steps, steps_per_exchange=4, clip=1.0)
    return Setting(
        title="a server",
        story="20 learners whose samples follow different laws train one model around a server that they do not trust. "
        "Each makes four local steps and sends a noised sum. Algorithm: `online_federated`.",
        stream=streams.heterogeneous_logistic(learners, 20, 0.1, 0.1, seed=DATA),
        steps=steps,
        measure="accuracy",
        idle=algorithms.local_ogd(problem, learners, step=Rate(1.0)),
        open=train(budget=None, step=0.1),
        private=lambda epsilon: train(budget=Budget(epsilon, DELTA), step=0.03),
        published=train(budget=Budget(PUBLISHED, DELTA), step=0.03, aggregation="toeplitz", calibration="published"),
    )


def endless(steps: int = 8000) -> Setting:
    """Paper 003."""
    learners = 10
    problem = problems.Logistic(10, feature_bound=1.0, domain=sets.L2Ball(5.0))
    ring = topology.ring(learners)
    learn = partial(algorithms.ldp_endless, problem, ring, history="polynomial")
    ours = partial(learn, noise="gaussian", growth=0.0, step=Rate(3.0, 0.7), coupling=Rate(1.0, 0.51), delay=200)
    return Setting(
        title="no end",
        story="10 learners on a ring go on for 2,147,483,647 samples at one fixed price, of which 8,000 are played "
        "here. Each meets one of two kinds of events. Algorithm: `ldp_endless`.",
        stream=streams.clusters(learners, 10, 2, seed=DATA, apart=2.5),
        steps=steps,
        measure="accuracy",
        idle=algorithms.local_ogd(problem, learners, step=Rate(1.0)),
        open=algorithms.d_ogd(problem, ring, step=Rate(3.0)),
        private=lambda epsilon: ours(budget=Budget(epsilon, DELTA)),
        published=learn(budget=Budget(PUBLISHED), horizon=steps, calibration="published"),
    )


def coordinates(steps: int = 5000) -> Setting:
    """Paper 002."""
    problem = problems.LeastSquares(21, feature_bound=2.5, domain=sets.L2Ball(6.0))
    ring = topology.ring(7, weights="lazy")
    stream = streams.linear_regression(21, seed=DATA)
    decide = partial(algorithms.dpsda_c, problem, ring)
    ours = partial(decide, horizon=steps, clip=0.3, noise="gaussian", aggregation="blt", step=Rate(1.0))
    return Setting(
        title="coordinates",
        story="7 nodes hold 3 coordinates each of one decision in 21 dimensions, and see the same samples. Outsiders "
        "read every message. The number is the squared error; noise in the labels alone is 0.2. Algorithm: `dpsda_c`.",
        stream=stream,
        steps=steps,
        measure="loss",
        idle=float(np.mean(np.square(stream.read(0, steps).y))),
        open=decide(noise="none", step=Rate(1.0)),
        private=lambda epsilon: ours(budget=Budget(epsilon, DELTA)),
        published=decide(horizon=steps, budget=Budget(PUBLISHED), clip=1.0, calibration="published", step=Rate(0.3)),
    )


def experts(steps: int = 4096) -> Setting:
    """Paper 004."""
    clients, count = 20, 20
    stream = streams.realizable_experts(clients, count, seed=DATA)
    choose = partial(algorithms.fed_svt, count, clients, horizon=steps)
    return Setting(
        title="experts",
        story="20 clients follow one of 20 experts, of whom one is never wrong, and do not know which. The server is "
        "trusted, and whoever sees its choices is not. The number is the share of wrong advice. Algorithm: `fed_svt`.",
        stream=stream,
        steps=steps,
        measure="wrong",
        idle=float(np.mean(stream.read(0, steps).x)),
        open=algorithms.follow_the_leader(count, clients, horizon=steps),
        private=lambda epsilon: choose(budget=Budget(epsilon)),
        published=choose(budget=Budget(PUBLISHED), calibration="published"),
    )


def _runs(setting: Setting, share: float) -> dict[str, Run]:
    """All runs of a setting, by the column they are in; noise has five seeds, and without noise one is enough."""
    chosen: dict[str, Algorithm] = {"not private": setting.open}
    if isinstance(setting.idle, Algorithm):
        chosen["nothing shared"] = setting.idle
    chosen |= {f"epsilon {epsilon:g}": setting.private(epsilon) for epsilon in BUDGETS}
    chosen["as published, epsilon 8"] = setting.published
    return {
        name: simulate_seeds(algorithm, setting.stream, round(share * setting.steps))
        for name, algorithm in chosen.items()
    }


def simulate_seeds(algorithm: Algorithm, stream: Stream, steps: int) -> Run:
    """With noise five times, else once."""
    seeds = SEEDS if algorithm.releases else SEEDS[:1]
    every = max(1, algorithm.schedule.exchanges(steps) // POINTS)
    return simulate(algorithm, stream, steps, seeds=seeds, every=every)


def scores(setting: Setting, run: Run) -> NDArray[np.float64]:
    """The measure of every seed, over learners."""
    if setting.measure == "accuracy":
        assert run.accuracy is not None
        values = last_tenth(run, run.accuracy)
    elif setting.measure == "loss":
        values = last_tenth(run, run.losses)
    else:
        values = average_loss(run)[:, -1:]
    return np.asarray(np.nanmean(values, axis=(1, 2)))


def cell(setting: Setting, values: NDArray[np.float64]) -> str:
    """The mean, and below it the least and the largest where there are several."""
    shown = (values.mean(), values.min(), values.max())
    mean, low, high = (f"{value:.2f}" if setting.measure == "loss" else percent(value) for value in shown)
    return mean if len(values) == 1 else f"{mean}\n{low.rstrip('%')}-{high.rstrip('%')}"


def _row(setting: Setting, runs: Mapping[str, Run]) -> tuple[str, ...]:
    cells = {name: cell(setting, scores(setting, run)) for name, run in runs.items()}
    if not isinstance(setting.idle, Algorithm):
        cells["nothing shared"] = cell(setting, np.array([setting.idle]))
    return (f"{setting.title}\n{setting.measure}", *(cells[name] for name in COLUMNS[1:]))


def _part(setting: Setting, runs: Mapping[str, Run]) -> Part:
    rows = tuple(
        (name, *cell(setting, scores(setting, run)).partition("\n")[::2], run.guarantee.basis)
        for name, run in runs.items()
    )
    columns = ("", setting.measure, f"least-largest of {len(SEEDS)} seeds", "guarantee")
    return Part(
        title=setting.title.capitalize(),
        introduction=(setting.story,),
        table=Table(columns, rows),
        runs=runs,
        networks=_networks(setting, runs),
        caption="One node for each learner, with what it meets, coloured by the accuracy of its last decisions.",
    )


def _networks(setting: Setting, runs: Mapping[str, Run]) -> tuple[Network, ...]:
    """Who knows what at the end: only where learners meet different things."""
    if setting.title != "neighbours":
        return ()
    meets = tuple(map(str, setting.stream.read(0, 1).y[0]))
    graphs = {"nothing shared": setting.idle, "epsilon 1": setting.private(1.0)}
    pictures = []
    for name, algorithm in graphs.items():
        run = runs[name]
        assert isinstance(algorithm, Algorithm)
        assert isinstance(algorithm.topology, topology.Topology)
        assert run.accuracy is not None
        values = tuple(last_tenth(run, run.accuracy).mean(axis=(0, 1)).tolist())
        pictures.append(Network(name, algorithm.topology, values, meets, "accuracy"))
    return tuple(pictures)


def _verdict(played: list[tuple[Setting, dict[str, Run]]]) -> str:
    """What was shown, in two sentences."""
    setting, runs = played[0]
    mean = {name: percent(scores(setting, run).mean()) for name, run in runs.items()}
    least = {epsilon: min(_kept(setting, runs, epsilon) for setting, runs in played) for epsilon in BUDGETS}
    return (
        f"Alone, a learner on the ring gets {mean['nothing shared']} right; with its neighbours {mean['not private']}, "
        f"in private {mean['epsilon 1']} at epsilon 1, and with the noise that the paper prints "
        f"{mean['as published, epsilon 8']} at epsilon 8. Of what sharing gives, private learners keep at least "
        f"{least[8.0]:.0%} at epsilon 8, {least[4.0]:.0%} at 4 and {least[1.0]:.0%} at 1, in all five settings."
    )


def _kept(setting: Setting, runs: Mapping[str, Run], epsilon: float) -> float:
    """The share of the way from sharing nothing to sharing everything."""
    score = {name: float(scores(setting, run).mean()) for name, run in runs.items()}
    idle = score.get("nothing shared", setting.idle if isinstance(setting.idle, float) else np.nan)
    return (score[f"epsilon {epsilon:g}"] - idle) / (score["not private"] - idle)
