"""Figure 5 and tables 2 to 4 of paper 002: classification, in every reading of what the paper leaves open."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer import metrics
from gossamer.algorithms.coordinates.dpsda import Reduction
from gossamer.experiments import (
    Asked,
    Cell,
    Claim,
    Entry,
    Estimate,
    Finding,
    Found,
    Metric,
    Panel,
    Part,
    Played,
    Section,
    Tuned,
    about,
    across,
    below,
    every,
    increasing,
    measures,
    tuning_seeds,
)
from gossamer.experiments.papers.paper_002.cases import (
    BOTH,
    DELTA,
    LEVELS,
    TABLES,
    Case,
    Name,
    Task,
    grid_of,
    task_of,
)
from gossamer.experiments.papers.paper_002.regression import level_name
from gossamer.experiments.showing import promise
from gossamer.privacy import Budget
from gossamer.problems import Block
from gossamer.reports import Table

NEAR = 0.03  # "near the paper's": every accuracy within 3 points
REAL = {Budget(1.0, DELTA): 0.01, Budget(8.0, DELTA): 0.03}
"""Real guarantees for one sample, and the step where the search begins."""
PAPER: dict[str, dict[Name, dict[str, tuple[float, ...]]]] = {
    "mushrooms": {
        "DPSDA-C": {"training": (0.9795, 0.9477, 0.8825, 0.7938), "test": (0.9950, 0.8505, 0.8205, 0.7650)},
        "DPSDA-PS": {"training": (0.9770, 0.9450, 0.8810, 0.7535), "test": (0.9790, 0.8120, 0.7810, 0.7300)},
    },
    "mnist": {
        "DPSDA-C": {"training": (0.9738, 0.8615, 0.7394, 0.5975), "test": (0.9798, 0.8610, 0.7392, 0.5885)},
        "DPSDA-PS": {"training": (0.9739, 0.8971, 0.7715, 0.6210), "test": (0.9798, 0.8960, 0.7747, 0.6102)},
    },
    "cifar10": {
        "DPSDA-C": {"training": (0.9006, 0.8390, 0.7351, 0.6347), "test": (0.8970, 0.8333, 0.7264, 0.6301)},
        "DPSDA-PS": {"training": (0.9006, 0.8753, 0.8359, 0.7838), "test": (0.8970, 0.8721, 0.8334, 0.7761)},
    },
}
"""Tables 2 to 4: accuracy at the levels infinity, 1, 0.5 and 0.2."""
PARTS, MODELS = ("training", "test"), ("last", "average")


class Reading(NamedTuple):
    """What the paper leaves open: sigma = unit / epsilon.

    >>> print(Reading("mean", 5, 1.0, False))
    mean, 5 passes, 1/eps, no xi
    """

    reduction: Reduction
    passes: int
    unit: float
    errors: bool

    def __str__(self) -> str:
        passes = "1 pass" if self.passes == 1 else f"{self.passes} passes"
        return f"{self.reduction}, {passes}, {self.unit:g}/eps, {'xi' if self.errors else 'no xi'}"


REDUCTIONS: tuple[Reduction, ...] = ("sum", "mean")
ALL = tuple(itertools.starmap(Reading, itertools.product(REDUCTIONS, (1, 5), (1.0, 2.0, 14.0), (True, False))))
JUDGED = (
    Reading("sum", 1, 14.0, True),
    Reading("sum", 1, 1.0, True),
    Reading("mean", 1, 1.0, True),
    Reading("mean", 5, 1.0, False),
)
"""Claims are judged in these: section 6.2 with Theorem 2, with figure 7's sigma, section 2.2, and what comes near."""


def accuracy(model: NDArray[Any], part: Block) -> float:
    """The share of samples that a linear model classifies correctly.

    >>> accuracy(np.array([1.0]), Block(np.array([[1.0], [-1.0], [2.0]]), np.array([1, 0, 0]))).__round__(3)
    0.667
    """
    return float(np.mean((part.x @ model > 0) == (part.y == 1)))


def accuracies(task: Task) -> Metric:
    """Of the decision that would be played next, and of the running average: axes (seed, model, part)."""

    def of(played: Played) -> NDArray[Any]:
        owners, joint = played.algorithm.coordinates, measures.joint_decisions(played)
        assert owners is not None
        models = (metrics.joint_decisions(played.run.decisions, owners), metrics.running_average(joint)[:, -1])
        scores = [[[accuracy(one, part) for part in (task.train, task.test)] for one in model] for model in models]
        return np.array(scores).swapaxes(0, 1)

    return Metric(f"accuracies on {task.told}", of, record=("decisions",))


def cell(task: Task, case: Case, passes: int, seeds: range) -> Cell:
    """Every run has an order of the data, and noise, of its own."""
    rounds = len(task.train.y) // task.batch * passes
    bound = task.bound * (task.batch if case.reduction == "sum" else 1)
    make = partial(case.build, task.problem, rounds, task.batch, bound)
    kept = [measures.average_loss(), accuracies(task)]
    name = f"{task.key}, {case}, {case.reduction}, {passes} pass(es){', xi' * case.errors}"
    return Cell(name, make, partial(task.stream, task.batch, passes), rounds, kept, seeds, None, "joint")


def real(task: Task, name: Name, budget: Budget, seeds: range, quick: bool) -> Tuned:
    """A real guarantee for every sample, clip and step of least loss in another order and with other noise."""

    def tried(seeds: range, clip: float, step: float) -> Cell:
        return cell(task, Case(name, budget=budget, clip=clip, step=step), 1, seeds)

    start = {"clip": 1.0, "step": 0.0001 if task.key == "cifar10" else REAL[budget]}
    grid, trial, final = grid_of(start, quick), partial(tried, tuning_seeds(1)), partial(tried, seeds)
    return Tuned(f"{task.key}, {name}, {budget}", grid, trial, final, "average loss", start)


def cells(key: str, readings: tuple[Reading, ...], seeds: range, asked: Asked) -> Mapping[Any, Entry]:
    """Both algorithms at all levels in these readings, and with real guarantees."""
    task = task_of(key, asked)
    found: dict[Any, Entry] = {
        (name, reading, level): cell(
            task,
            Case(name, reading.unit / level, errors=reading.errors, reduction=reading.reduction),
            reading.passes,
            seeds,
        )
        for name in BOTH
        for reading in readings
        for level in LEVELS
    }
    return found | {
        (name, budget): real(task, name, budget, seeds, asked.quick or key == "cifar10")
        for name in BOTH
        for budget in REAL
    }


class Scores(NamedTuple):
    """Reads accuracies and losses of a task."""

    task: Task
    found: Found

    def accuracy(self, key: Any, model: str, part: str) -> Estimate:
        """Over runs."""
        values = self.found[key].repeated(f"accuracies on {self.task.told}")
        return Estimate.of(values[:, MODELS.index(model), PARTS.index(part)].tolist())

    def means(self, name: Name, reading: Reading, model: str, part: str) -> list[float]:
        """At the four levels."""
        return [self.accuracy((name, reading, level), model, part).mean for level in LEVELS]

    def off(self, name: Name, reading: Reading, part: str) -> float:
        """How far the last decision is from the paper's table where it is farthest."""
        ours = self.means(name, reading, "last", part)
        return float(np.abs(np.subtract(ours, PAPER[self.task.key][name][part])).max())


def claims(key: str, asked: Asked, found: Found) -> list[Claim]:
    """Of figure 5 and one table."""
    task = task_of(key, asked)
    scores, source = Scores(task, found), f"table {TABLES[key]}"

    def ordered(name: Name, reading: Reading) -> Finding:
        return increasing(
            {level_name(e): scores.accuracy((name, reading, e), "last", "test") for e in reversed(LEVELS)}
        )

    def near(name: Name, part: str, reading: Reading) -> Finding:
        printed = zip(LEVELS, PAPER[key][name][part], strict=True)
        return every(
            {
                f"{level_name(e)} (paper {paper:.4g})": about(
                    scores.accuracy((name, reading, e), "last", part), paper, NEAR
                )
                for e, paper in printed
            }
        )

    def loss(name: Name, reading: Reading, level: float, place: int) -> Estimate:
        return found[name, reading, level].estimate("average loss", place)

    def falls(name: Name, reading: Reading) -> Finding:
        half = len(found[name, reading, 1.0].at("average loss")) // 2
        return every(
            {
                level_name(e): below(loss(name, reading, e, -1), loss(name, reading, e, half), ("T", "T/2"))
                for e in LEVELS
            }
        )

    def pays(name: Name, reading: Reading) -> Finding:
        def find(level: float) -> Finding:
            mine = loss(name, reading, level, -1)
            return below(mine, Estimate.of([math.log(2)] * len(mine.values)), ("it", "playing 0"))

        return every({level_name(e): find(e) for e in LEVELS})

    columns, judged = {str(reading): reading for reading in JUDGED}, []
    for name in BOTH:
        where = f"{task.title}, {name}"
        judged += [
            across(columns, f"{where}: average fitness falls", "figure 5", partial(falls, name)),
            across(columns, f"{where}: average fitness is below that of playing 0", "ours", partial(pays, name)),
            across(columns, f"{where}: test accuracy falls as epsilon falls", source, partial(ordered, name)),
        ]
        for part in PARTS:
            text = f"{where}: {part} accuracy is the paper's at all levels, within {NEAR:g}"
            judged.append(across(columns, text, source, partial(near, name, part)))
    return judged


def percent(values: list[float]) -> str:
    """For a table.

    >>> percent([0.9795, 0.5])
    '98.0 / 50.0'
    """
    return " / ".join(f"{100 * value:.1f}" for value in values)


def shown(key: str, readings: tuple[Reading, ...], asked: Asked, found: Found) -> list[Part]:
    """A table of the paper beside all readings, and figure 5."""
    task = task_of(key, asked)
    scores, rows = Scores(task, found), []
    for name in BOTH:
        rows.append(("the paper", name, *(percent(list(PAPER[key][name][part])) for part in PARTS), "-", "-", "-"))
        for reading in readings:
            last = [percent(scores.means(name, reading, "last", part)) for part in PARTS]
            average = percent(scores.means(name, reading, "average", "test"))
            off = " / ".join(f"{100 * scores.off(name, reading, part):.1f}" for part in PARTS)
            rows.append((str(reading), name, *last, average, off, promise(found[name, reading, 1.0])))
        for budget in REAL:
            result = found[name, budget]
            numbers = [
                percent([scores.accuracy((name, budget), model, part).mean])
                for model, part in (("last", "training"), ("last", "test"), ("average", "test"))
            ]
            rows.append((result.cell.name.removeprefix(f"{key}, "), name, *numbers, "-", promise(result)))
    constant = [percent([task.constant(part)]) for part in (task.train, task.test)]
    rows.append(("constant classifier", "", *constant, constant[1], "-", "only the more frequent class"))
    columns = ("reading", "algorithm", *(f"{part}, last decision" for part in PARTS), "test, running average")
    columns += ("off the paper's training / test", "guarantee at eps 1")
    panels = tuple(
        Panel(
            f"{name}: {reading}",
            "average fitness, per sample",
            tuple(found[name, reading, e].curve(level_name(e), "average loss", 0.05) for e in LEVELS),
            level=math.log(2),
            log=True,
        )
        for reading in (JUDGED[0], JUDGED[-1])
        for name in BOTH
    )
    text = (
        f"d = {task.problem.dim}, {len(task.train.y):,} samples in batches of {task.batch}, {len(task.test.y):,} to "
        f"test; {task.source}, features in [0, 1]. In percent at epsilon infinity / 1 / 0.5 / 0.2, means over runs. "
        "Dotted: playing 0.",
    )
    return [
        Part(f"table-{TABLES[key]}", f"Table {TABLES[key]}: {task.title}", text, panels, Table(columns, tuple(rows)))
    ]


RUNS = {"mushrooms": 10, "mnist": 5, "cifar10": 3}


def readings_of(key: str, asked: Asked) -> tuple[Reading, ...]:
    """All; of CIFAR-10, which takes longest, those in which claims are judged."""
    return JUDGED if asked.quick or key == "cifar10" else ALL


def sections(asked: Asked) -> list[Section]:
    """One for each task."""
    return [
        Section(
            f"table-{number}",
            f"Table {number}",
            partial(cells, key, readings_of(key, asked), range(20, 20 + (3 if asked.quick else RUNS[key])), asked),
            5,
            claims=partial(claims, key, asked),
            parts=partial(shown, key, readings_of(key, asked), asked),
        )
        for key, number in TABLES.items()
    ]
