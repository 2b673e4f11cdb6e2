"""The page of paper 002: its claims, figures 3, 5, 6 and 7, tables 2 to 5, and how they were run."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gossamer.errors import DataError
from gossamer.privacy import Budget
from gossamer.reports import Table
from gossamer.reproduction.claims import Claim, Estimate
from gossamer.reproduction.drawing import Curve, Panel
from gossamer.reproduction.page import Asked, Chapter, Page, Part, claims_part
from gossamer.reproduction.paper_002 import findings
from gossamer.reproduction.paper_002.cases import DELTA, LEVELS, NODES, SCALES, TABLES, Case, Name, Tasks, levels
from gossamer.reproduction.paper_002.experiments import (
    BOTH,
    COMPARED,
    MODELS,
    PAPERS_STEP,
    PROTOCOLS,
    REAL,
    ClassLab,
    CompareLab,
    PairLab,
)
from gossamer.reproduction.paper_002.findings import PAPER, TABLE_5, level_name
from gossamer.reproduction.paper_002.plan import Plan
from gossamer.reproduction.paper_002.regression import CORRELATED, DECISIONS, RegressionLab
from gossamer.reproduction.paper_002.words import WORTH, introduction, networks, out_of_reach, protocol
from gossamer.reproduction.store import Result

TITLE = "Paper 002 again: private learning of nondecomposable objectives, each node with coordinates of its own"
FIGURES = (3, 5, 6, 7)
BANDS = "Lines are means over runs, bands one standard deviation to either side."
PARTS = ("train", "test")
SMALL_REGRESSION = (Budget(1.0), Budget(1.0, DELTA))


def reproduce(asked: Asked[Plan]) -> Page:
    """Run what is asked for, and write it down; without data, what needs none."""
    store, plan, tasks = asked.store, asked.plan, Tasks(asked.directory, asked.stand_in)
    make: dict[int, Callable[[], Chapter]] = {
        3: lambda: regression(RegressionLab(store, plan)),
        5: lambda: classification({key: ClassLab(store, plan, tasks.of(key)) for key in TABLES}),
        6: lambda: pairs(PairLab(store, plan, tasks.of("mnist"))),
        7: lambda: compared(CompareLab(store, plan, tasks.of("cifar10"))),
    }
    chapters = []
    for number in asked.numbers(FIGURES):
        try:
            chapters.append(make[number]())
        except DataError as missing:
            if asked.figure is not None:
                raise
            claim = Claim(f"figure {number}: its data are missing", f"figure {number}", {})
            part = Part(f"figure-{number}", f"Figure {number}: not run", (str(missing),))
            chapters.append(Chapter([claim], [part]))
    closing = [networks(), out_of_reach(), protocol(plan)]
    return Page.of(asked, TITLE, introduction(plan, asked.stand_in), chapters, closing)


def regression(lab: RegressionLab) -> Chapter:
    """Figure 3, and what correlated noise gains."""
    rounds = lab.plan.rounds
    unit = SCALES["sigma = 1/eps"]
    panels = [
        Panel(
            f"{name}: {findings.WORDS[quantity]}",
            "regret per round",
            (
                *(_curve(level_name(e), lab.level(name, unit, e), quantity, lab.plan.points) for e in LEVELS),
                _zero(lab.points[: lab.plan.points], float(np.mean(lab.zero(rounds)))),
            ),
            log=True,
        )
        for quantity in DECISIONS
        for name in BOTH
    ]
    longer = lab.points[-1]
    rows = [_regret_row(lab, case, label if case.sigma else "", longer) for label, _, _, case in published()]
    rows += [
        _regret_row(lab, lab.real(name, budget), "real guarantee", None) for budget in SMALL_REGRESSION for name in BOTH
    ]
    zero = str(Estimate.of(lab.zero(rounds)))
    rows.append(("playing 0", "", zero, zero, str(Estimate.of(lab.zero(longer))), "", "it uses no data"))
    columns = ("row", "mapping", "x(t)", "running average", f"x(t), T = {longer}", "average, longer", "guarantee")
    figure = Part(
        "figure-3",
        f"Figure 3: online linear regression, d = 21, T = {rounds}",
        ("The figure has sigma = 1/epsilon; numbers are pseudo-regrets per round.",),
        panels=tuple(panels),
        table=Table(columns, tuple(rows)),
        notes=(BANDS, WORTH),
    )
    return Chapter(findings.of_regression(lab), [figure, *correlated(lab)])


def _regret_row(lab: RegressionLab, case: Case, label: str, longer: int | None) -> tuple[str, ...]:
    rounds = lab.plan.rounds
    points = [rounds] if longer is None else lab.points
    found = lab.regret(case, points, lab.seeds)
    numbers = [str(findings.at(found, quantity, rounds)) for quantity in DECISIONS]
    ends = ["-", "-"] if longer is None else [str(findings.at(found, quantity, longer)) for quantity in DECISIONS]
    return (str(case), label, *numbers, *ends, lab.guarantee(case, rounds))


def correlated(lab: RegressionLab) -> list[Part]:
    """Ours: independent and correlated noise at equal real guarantees."""
    rounds = lab.plan.correlated
    rows = []
    for budget in CORRELATED:
        for aggregation in ("independent", "tree", "blt"):
            for own in ("exact", "gossip"):
                case = lab.correlated(budget, aggregation, own)
                found = lab.regret(case, [rounds], lab.seeds)
                numbers = [findings.at(found, quantity, rounds) for quantity in DECISIONS]
                share = numbers[0].mean / float(np.mean(lab.zero(rounds)))
                rows.append((str(case), *map(str, numbers), f"{share:.2f}", lab.guarantee(case, rounds)))
    zero = str(Estimate.of(lab.zero(rounds)))
    rows.append(("playing 0", zero, zero, "1.00", "it uses no data"))
    text = (
        f"Not in the paper. The regression of figure 3 over T = {rounds:,} rounds, DPSDA-C, without xi: clip and step "
        "of least regret from the stated grid, on other data and noise.",
    )
    columns = ("row", "x(t)", "running average", "share of playing 0", "guarantee")
    return [
        Part("correlated", "What correlated noise gains", text, table=Table(columns, tuple(rows))),
        claims_part(findings.of_correlated(lab), (), "What correlated noise gains: verdicts", "correlated-claims"),
    ]


def classification(labs: dict[str, ClassLab]) -> Chapter:
    """Figure 5 and tables 2 to 4."""
    unit = SCALES["sigma = 14/eps"]
    panels = [
        Panel(
            f"{lab.task.title}: {name}",
            "average fitness, per sample",
            (
                *(
                    _curve(level_name(e), lab.level(name, unit, e), "fitness", None, lab.task.batch, first=3)
                    for e in LEVELS
                ),
                _zero(lab.level(name, unit, math.inf)["rounds"][3:], math.log(2)),
            ),
            log=True,
        )
        for lab in labs.values()
        for name in BOTH
    ]
    figure = Part(
        "figure-5",
        "Figure 5: average fitness F(T)/T",
        ("Fitness divided by the samples of a batch, with sigma = 14/epsilon. Playing 0 has ln 2.",),
        panels=tuple(panels),
        notes=(BANDS,),
    )
    text = (
        "Set before the runs: test accuracy of the running average, mean over runs, with and without the errors xi of "
        "gradients, N(0, 0.1), that the paper adds to each node's gradient.",
    )
    goals = claims_part(findings.of_goals(labs), text, "What we set out to reach without noise", "goals")
    claims = [claim for lab in labs.values() for claim in findings.of_task(lab)]
    return Chapter(claims, [figure, *map(accuracies, labs.values()), goals])


def accuracies(lab: ClassLab) -> Part:
    """One of the tables 2 to 4."""
    task, cases = lab.task, []
    for _, name, level, case in published():
        paper = (PAPER[task.key][name][part][LEVELS.index(level)] for part in PARTS)
        row = f"{case} ({level_name(level)})" if case.sigma else str(case)
        cases.append((row, ", ".join(map("{:.2%}".format, paper)), case))
    real = [lab.real(name, budget) for budget in REAL for name in BOTH]
    rows = [_accuracy_row(lab, *each) for each in (*cases, *((str(case), "-", case) for case in real))]
    both = ", ".join(f"{task.constant(part):.2%}" for part in (task.train, task.test))
    rows.append(("constant classifier", "-", "-", both, both, "50.00%", "-", "only the more frequent class"))
    rows.append(("playing 0", "-", f"{lab.zero():.1f}", "-", "-", "-", "-", "it uses no data"))
    columns: tuple[str, ...] = ("row", "paper: train, test", "fitness", "last: train, test", "average: train, test")
    columns += ("average, balanced test", "online", "guarantee")
    number = TABLES[task.key]
    text: tuple[str, ...] = (
        f"d = {task.problem.dim}, {len(task.train.y):,} samples in batches of {task.batch}, {len(task.test.y):,} to "
        f"test; data: {task.source}, features in [0, 1]. Fitness: sum over a batch, mean over rounds. Last: what "
        "would be played next. Online: accuracy on every batch before it is learnt. After one pass.",
    )
    if task.key == "cifar10":
        text += (
            "One image in ten is a cat: 90 % is what never saying 'cat' has. The paper has 42,000 images to learn from "
            "and 8,000 to test.",
        )
    title, table = f"Table {number}: {task.title}", Table(columns, tuple(rows))
    return Part(f"table-{number}", title, text, table=table, notes=(WORTH,))


def published() -> Iterator[tuple[str, Name, float, Case]]:
    """The rows as published, with both readings of the levels: the one without noise once."""
    for label, unit in SCALES.items():
        for name in BOTH:
            for level, case in levels(name, unit).items():
                if math.isfinite(level) or label == "sigma = 1/eps":
                    yield label, name, level, case


def _accuracy_row(lab: ClassLab, label: str, paper: str, case: Case) -> tuple[str, ...]:
    found = lab.scores(case, lab.seeds)
    pairs_ = [", ".join(_percent(found[model][part]) for part in PARTS) for model in MODELS]
    return (
        label,
        paper,
        f"{np.mean([curve[-1] for curve in found['fitness']]):.1f}",
        *pairs_,
        _percent(found["averaged"]["balanced test"]),
        _percent(found["online"]),
        lab.guarantee(case),
    )


def pairs(lab: PairLab) -> Chapter:
    """Figure 6 and table 5."""
    t, entry = lab.changed, lab.entry
    shown = ("non-private", "sigma = 1/eps, eps = 1", "sigma = 14/eps, eps = 1", "tight, (1, 1e-5), blt")
    found = {(name, label): lab.differences(lab.cases(name)[label]) for name in BOTH for label in shown}
    panels = [
        Panel(f"{name}, {label}", f"entry {entry + 1} of x(t)", _both(found[name, label]))
        for name in BOTH
        for label in shown[:2]
    ]
    panels += [
        Panel(
            f"{name}: difference",
            f"|x(t) - x'(t)|, entry {entry + 1}",
            tuple(_gap(label, found[name, label]) for label in shown),
        )
        for name in BOTH
    ]
    rows, places = [], ("non-private", "eps = 1", "eps = 0.5", "eps = 0.2")
    for name in BOTH:
        for label, case in lab.cases(name).items():
            run = lab.differences(case)
            paper = "-" if case.budget else f"{TABLE_5[name][places.index(label.split(', ')[-1])]:.4f}"
            gaps = [np.mean([seed[1] for seed in run[key]]) for key in ("first", "most", "largest")]
            before = np.max([seed[0] for seed in run["largest"]])
            rows.append(
                (f"{name}, {label}", paper, f"{before:.4f}", *(f"{gap:.4f}" for gap in gaps), lab.guarantee(case))
            )
    columns = (
        "row",
        f"paper: entry 1 of x({t})",
        f"x({t}), largest entry",
        *(f"x({t + 1}), {which}" for which in ("entry 1", f"entry {entry + 1}", "largest entry")),
        "guarantee",
    )
    text = (
        f"{lab.rounds} samples of 6 and 8, one in each round; at t = {t} the image is another one, of the other digit. "
        f"Both runs have the same noise. x({t}) is played before f_{t} is seen, so it cannot differ: x({t + 1}) is the "
        f"first that can. Entry 1 is a corner of the image, black in every 6 and 8 of MNIST: its derivative is 0, and "
        f"it cannot differ at any time. Entry {entry + 1} is where the two images differ most.",
        "What this can show: how far one round of data moves a decision when the noise is held fixed. What it cannot: "
        "privacy. An observer does not hold the noise fixed; what counts is how likely the same output is under both "
        "data. As published x(t) is a function of raw gradients and of messages that a wiretapper has, so that "
        "whatever difference there is, however small, tells F from F' with certainty. Where a difference shrinks as "
        "noise grows, noise has driven entries into the faces of the box or saturated the loss: that is no privacy. "
        "What an attack on the published and on the tight noise really measures: docs/audits.md.",
    )
    part = Part(
        "figure-6",
        f"Figure 6 and table 5: data that differ at t = {t}",
        text,
        panels=tuple(panels),
        table=Table(columns, tuple(rows)),
        notes=("Decisions are of one run; differences, and the table, are means over runs.", WORTH),
    )
    return Chapter(findings.of_pairs(lab), [part])


def compared(lab: CompareLab) -> Chapter:
    """Figure 7."""
    sigma = SCALES["sigma = 1/eps"]
    panels = [
        Panel(
            f"{network}, {protocol}",
            "average fitness",
            (
                *(_curve(name, lab.found(name, sigma, protocol), "fitness", None) for name in names),
                _zero(lab.found(names[0], sigma, protocol)["rounds"], NODES * math.log(2)),
            ),
            log=protocol == PAPERS_STEP,
        )
        for network, names in COMPARED.items()
        for protocol in PROTOCOLS
    ]
    rows = [
        _compared_row(lab, name, unit, protocol)
        for unit in SCALES.values()
        for names in COMPARED.values()
        for name in names
        for protocol in PROTOCOLS
    ]
    constant = f"{lab.task.constant(lab.task.test):.2%}"
    rows.append(("constant classifier", "-", "-", constant, "50.00%", "only the more frequent class"))
    rows.append(("playing 0", "-", f"{NODES * math.log(2):.3f}", "-", "-", "it uses no data"))
    columns = ("row", "protocol", "average fitness", "test", "balanced test", "guarantee")
    text = (
        f"{lab.task.title}, {lab.rounds:,} rounds of {NODES} samples. The baselines are for decomposable objectives "
        f"and learn from one sample per learner and round; DPSDA sees the same {NODES} samples as one common batch. "
        "(The paper has 140 a round, 20 for each learner.) The fitness of a baseline is the mean over learners of the "
        f"loss of its decision on all {NODES} samples, summed. Sigma is in units of a gradient for all: DPDOLA and "
        "DPSR send decisions, with noise of sigma times their step. DPSR has all edges at every round.",
        "Equal sigma is not equal privacy: DPSDA multiplies gradients by n and every node's message carries the same "
        f"batch. Nor is an equal alpha an equal step: the dual of DPSDA is a sum over {NODES} samples, that of DPPS "
        "their mean. No xi here.",
    )
    part = Part(
        "figure-7",
        "Figure 7: against algorithms for decomposable objectives, sigma = 1",
        text,
        panels=tuple(panels),
        table=Table(columns, tuple(rows)),
        notes=(BANDS, WORTH),
    )
    return Chapter(findings.of_compared(lab), [part])


def _compared_row(lab: CompareLab, name: Name, sigma: float, protocol: str) -> tuple[str, ...]:
    case, found = lab.case(name, sigma, protocol), lab.found(name, sigma, protocol)
    fitness = Estimate.of([curve[-1] for curve in found["fitness"]])
    scores = [_percent(found[key]) for key in ("test", "balanced test")]
    return (str(case), protocol, str(fitness), *scores, lab.guarantee(case))


def _curve(name: str, found: Result, quantity: str, points: int | None, unit: float = 1.0, first: int = 0) -> Curve:
    """A mean over runs with its spread; the first rounds may be left out."""
    runs = np.array(found[quantity])[:, first:points] / unit
    return Curve.of_runs(name, found["rounds"][first:points], runs, least=0.05)


def _both(found: Result) -> tuple[Curve, ...]:
    """The first run alone, on both data."""
    return tuple(Curve.line(key, found["rounds"], found[key][0]) for key in ("F", "F'"))


def _gap(name: str, found: Result) -> Curve:
    """How far two runs are apart, mean over pairs."""
    gap = np.mean(np.abs(np.array(found["F"]) - np.array(found["F'"])), axis=0)
    return Curve.line(name, found["rounds"], gap.tolist())


def _zero(rounds: Sequence[int], height: float) -> Curve:
    return Curve.line("playing 0", rounds, [height] * len(rounds))


def _percent(values: Sequence[float]) -> str:
    return f"{np.mean(values):.2%}"
