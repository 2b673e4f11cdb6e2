"""Figure 7 of paper 002: against algorithms for decomposable objectives, at equal sigma."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

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
    across,
    below,
    measures,
    tuning_seeds,
)
from gossamer.experiments.papers.paper_002.cases import BOTH, NODES, Case, Name, Task, grid_of, task_of
from gossamer.experiments.papers.paper_002.classification import accuracy
from gossamer.experiments.showing import promise
from gossamer.reports import Table

COMPARED: dict[Name, tuple[Name, ...]] = {"DPSDA-C": ("DPDOLA",), "DPSDA-PS": ("DPPS", "DPSR")}
PROTOCOLS: dict[str, tuple[Reduction, bool]] = {
    "sum, alpha(t) = 1/sqrt(t)": ("sum", False),
    "mean, alpha(t) = 1/sqrt(t)": ("mean", False),
    "mean, step tuned": ("mean", True),
}
"""Of DPSDA's f_t, and whether the step of everybody is tuned."""
KNOWN = {"DPDOLA": 0.01, "DPSR": 0.001, "DPPS": 0.01, "DPSDA-C": 0.003, "DPSDA-PS": 0.003}
"""Where the search of steps begins."""


def tested(task: Task) -> Metric:
    """Test accuracy of what is played last: together, or mean over learners."""

    def of(played: Played) -> np.ndarray:
        owners, last = played.algorithm.coordinates, played.run.decisions
        models = last if owners is None else metrics.joint_decisions(last, owners)[:, None]
        return np.array([np.mean([accuracy(one, task.test) for one in each]) for each in models])

    return Metric(f"accuracy on {task.told}", of)


def cell(task: Task, case: Case, rounds: int, seeds: range) -> Cell:
    """One sample for every learner and round, or a common batch of the same seven samples."""
    joint, size = case.name in BOTH, NODES if case.reduction == "sum" else 1
    bound = size * task.bound if joint else math.sqrt(task.problem.dim)
    make = partial(case.build, task.problem, rounds, NODES, bound)
    data = partial(task.stream, NODES, 1) if joint else partial(task.dealt, NODES)
    name = f"figure 7, {case}" + f", {case.reduction}" * joint
    kept = [measures.average_loss(), tested(task)]
    return Cell(name, make, data, rounds, kept, seeds, None, "joint" if joint else "global")


def cells(asked: Asked, rounds: int, seeds: range) -> Mapping[Any, Entry]:
    """Every algorithm under every protocol, sigma = 1, without xi."""
    task = task_of("cifar10", asked)
    rounds = min(rounds, len(task.train.y) // NODES)

    def made(name: Name, reduction: Reduction, seeds: range, step: float = 1.0) -> Cell:
        return cell(task, Case(name, 1.0, step=step, errors=False, reduction=reduction), rounds, seeds)

    found: dict[Any, Entry] = {}
    for name in (*BOTH, *(other for others in COMPARED.values() for other in others)):
        for protocol, (reduction, tuned) in PROTOCOLS.items():
            plain = partial(made, name, reduction)
            trial, final = partial(plain, tuning_seeds(1)), partial(plain, seeds)
            search = Tuned(
                f"figure 7, {name}",
                grid_of({"step": KNOWN[name]}, asked.quick),
                trial,
                final,
                "average loss",
                {"step": KNOWN[name]},
            )
            found[name, protocol] = search if tuned else plain(seeds)
    return found


def claims(found: Found) -> list[Claim]:
    """Of figure 7."""

    def ahead(mine: Name, theirs: Name, protocol: str) -> Finding:
        one, other = (found[name, protocol].estimate("average loss") for name in (mine, theirs))
        return below(one, other, (mine, theirs))

    columns = {protocol: protocol for protocol in PROTOCOLS}
    return [
        across(
            columns,
            f"{mine} has less average fitness than {other} at sigma = 1",
            "figure 7",
            partial(ahead, mine, other),
        )
        for mine, others in COMPARED.items()
        for other in others
    ]


def shown(asked: Asked, found: Found) -> list[Part]:
    """The figure, and all rows."""
    task = task_of("cifar10", asked)
    panels = tuple(
        Panel(
            f"against {mine}, {protocol}",
            "average fitness, per sample",
            tuple(found[name, protocol].curve(name, "average loss", 0.05) for name in (mine, *others)),
            level=math.log(2),
            log=True,
        )
        for protocol in PROTOCOLS
        for mine, others in COMPARED.items()
    )
    word = f"accuracy on {task.told}"
    rows = [
        (
            name,
            protocol,
            f"{result.setting.get('step', 1.0):g}",
            result.estimate("average loss").cell,
            result.estimate(word).cell,
            promise(result),
        )
        for (name, protocol), result in found.items()
    ]
    zero = Estimate.of([math.log(2)]).cell
    rows.append(("playing 0", "", "", zero, "-", "it uses no data"))
    rows.append(("constant classifier", "", "", "-", f"{task.constant(task.test):.3f}", "only the more frequent class"))
    columns = ("row", "protocol", "step", "average fitness, per sample", "test accuracy", "guarantee")
    text = (
        f"{task.title}, {NODES} samples a round; no xi. Baselines learn from one sample per learner and round, DPSDA "
        "from the same seven as one common batch; only DPSDA has a sum or a mean. Fitness of a baseline: the mean over "
        "learners, on all samples. Equal sigma is not equal privacy: see the guarantees.",
    )
    heading = "Figure 7: against algorithms for decomposable objectives, sigma = 1"
    return [Part("figure-7", heading, text, panels, Table(columns, tuple(rows)))]


def section(asked: Asked) -> Section:
    """Figure 7."""
    rounds, seeds = (100, range(20, 23)) if asked.quick else (1428, range(20, 23))
    return Section("figure-7", "Figure 7", partial(cells, asked, rounds, seeds), 7, (), claims, partial(shown, asked))
