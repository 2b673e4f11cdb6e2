"""Runs the tasks of paper 002, figures 5 to 7 and their tables: tuned and played, each part stored when finished."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer import streams
from gossamer.core import Algorithm
from gossamer.metrics import average_loss, joint_decisions, running_average
from gossamer.privacy import Budget
from gossamer.problems import Block
from gossamer.reproduction.lab import Lab, classified, promised, remembered, runs_of, setting
from gossamer.reproduction.paper_002.cases import DELTA, NODES, SCALES, Case, Name, Task, dealt, guarantee_of, levels
from gossamer.reproduction.paper_002.plan import Plan, Point
from gossamer.reproduction.store import Result, fingerprint, rounded
from gossamer.reproduction.tuning import search, tuning_seeds
from gossamer.simulation import Run, simulate
from gossamer.streams import Stream

Doubles = NDArray[np.float64]

BOTH: tuple[Name, ...] = ("DPSDA-C", "DPSDA-PS")
MODELS = ("last", "averaged")
CHANGED = 400  # the round whose data differ in figure 6
REAL = (Budget(1.0, DELTA), Budget(8.0, DELTA))
"""Real guarantees of the classification tasks, for one sample."""
COMPARED: dict[str, tuple[Name, ...]] = {
    "undirected": ("DPSDA-C", "DPDOLA"),
    "directed": ("DPSDA-PS", "DPPS", "DPSR"),
}
"""Figure 7, by network."""
PAPERS_STEP, TUNED_STEP = "alpha(t) = 1/sqrt(t)", "step tuned"
PROTOCOLS = (PAPERS_STEP, TUNED_STEP)
"""Of figure 7."""


class Played(NamedTuple):
    """What one run played: the joint decision of every round, the one it would play next, and the run."""

    joint: NDArray[np.float32]
    following: NDArray[np.float32]
    run: Run


def play(algorithm: Algorithm, stream: Stream, rounds: int, seed: int) -> Played:
    """One run of DPSDA."""
    owners = algorithm.coordinates
    assert owners is not None  # DPSDA shares out the coordinates
    run = simulate(algorithm, stream, rounds, seed=seed, measure="joint", record=["decisions"], every=1, progress=False)
    return Played(joint_decisions(run.transcript["decisions"], owners), joint_decisions(run.decisions, owners), run)


class DualLab(Lab[Plan]):
    """What the experiments share."""

    @property
    def seeds(self) -> range:
        """Of the final runs."""
        return range(self.plan.runs)

    @property
    def trials(self) -> range:
        """Of the runs to tune on."""
        return tuning_seeds(self.plan.trials)

    def search(self, key: str, loss: Callable[[float, float], float], start: Point) -> Point:
        """The clip and the step of least loss, by descent on the grid; known ones are not searched again."""
        if key in self.plan.known:
            return self.plan.known[key]
        if key not in self._memory:
            self._memory[key] = search(loss, (self.plan.clips, self.plan.steps), start)
        found: Point = self._memory[key]
        return found


@dataclass(frozen=True, eq=False)
class TaskLab(DualLab, ABC):
    """Experiments on one task."""

    task: Task

    @abstractmethod
    def build(self, case: Case) -> Algorithm:
        """The algorithm of a case, over the whole horizon."""

    def guarantee(self, case: Case) -> str:
        """What a row is really worth."""
        return guarantee_of(self.build(case))


class ClassLab(TaskLab):
    """Section 6.2, one task. Every run has its own order of the data, and noise of its own."""

    def level(self, name: Name, unit: float, level: float) -> Result:
        """One row of the paper's table."""
        return self.scores(levels(name, unit)[level], self.seeds)

    def plain(self, name: Name, passes: int, errors: bool) -> Result:
        """Without noise, over several passes."""
        return self.scores(Case(name, errors=errors), self.seeds, passes)

    def real(self, name: Name, budget: Budget) -> Case:
        """A row with a real guarantee for every sample, clip and step chosen."""
        case = Case(name, budget=budget, own="exact", clip=1.0)

        def loss(clip: float, step: float) -> float:
            found = self.scores(case.tuned(clip, step), self.trials)
            return float(np.mean([curve[-1] for curve in found["fitness"]]))

        return case.tuned(*self.search(f"{self.task.key}, {case}", loss, (1.0, 10 / self.task.problem.dim)))

    def zero(self) -> float:
        """The fitness of playing 0."""
        return self.task.batch * math.log(2)

    def build(self, case: Case) -> Algorithm:
        """For one pass."""
        rounds = len(self.task.train.y) // self.task.batch
        return case.build(self.task.problem, rounds, self.task.batch, self.task.bound)

    @remembered
    def scores(self, case: Case, seeds: Sequence[int], passes: int = 1) -> Result:
        """Average fitness, and accuracies of the last decision and of the running average, for every run."""
        task = self.task
        order = [
            streams.common(*task.train, batch=task.batch, passes=passes, seed=seed, shuffle=True) for seed in seeds
        ]
        rounds = order[0].length or 0
        algorithm = case.build(task.problem, rounds, task.batch, task.bound)
        data = f"{task.key}, {task.source}, {len(task.train.y)} and {len(task.test.y)} samples"
        first = fingerprint(order[0])
        where = setting(algorithm, seeds, rounds=rounds, task=data, passes=passes, stream=first)

        def compute() -> Result:
            runs = [play(algorithm, stream, rounds, seed) for seed, stream in zip(seeds, order, strict=True)]
            models = {
                "last": [each.following for each in runs],
                "averaged": [running_average(each.joint)[-1] for each in runs],
            }
            return facts(algorithm) | {
                "rounds": list(range(1, rounds + 1)),
                "fitness": rounded([task.batch * average_loss(each.run)[:, 0] for each in runs]),
                "online": rounded([float(np.mean(classified(each.run))) for each in runs]),
                **{name: self._accuracy(each) for name, each in models.items()},
            }

        again = "" if passes == 1 else f", {passes} passes"
        return self.store.cell(f"{task.key}, {case}{again}, {runs_of(seeds)}", where, compute)

    def _accuracy(self, models: Sequence[NDArray[Any]]) -> dict[str, list[float]]:
        parts = {"train": self.task.train, "test": self.task.test}
        return {
            f"{kind}{name}": rounded([score(model, part) for model in models])
            for kind, score in (("", accuracy), ("balanced ", balanced_accuracy))
            for name, part in parts.items()
        }


def accuracy(model: NDArray[Any], part: Block) -> float:
    """The share of samples that a linear model classifies correctly.

    >>> accuracy(np.array([1.0]), Block(np.array([[1.0], [-1.0], [2.0]]), np.array([1, 0, 0]))).__round__(3)
    0.667
    """
    return float(np.mean((part.x @ model > 0) == (part.y == 1)))


def balanced_accuracy(model: NDArray[Any], part: Block) -> float:
    """The mean over classes of the share that is classified correctly: 0.5 for a constant.

    >>> balanced_accuracy(np.array([1.0]), Block(np.array([[1.0], [2.0], [3.0]]), np.array([1, 1, 0])))
    0.5
    """
    each = [Block(part.x[part.y == label], part.y[part.y == label]) for label in (0, 1)]
    return float(np.mean([accuracy(model, part) for part in each]))


class PairLab(TaskLab):
    """Figure 6 and table 5: two runs with the same noise, whose data differ in one round."""

    @property
    def rounds(self) -> int:
        """T."""
        return min(self.plan.rounds, len(self.task.train.y) - 1)

    @property
    def changed(self) -> int:
        """The round t whose f_t differs."""
        return min(CHANGED, self.rounds * 4 // 5)

    def cases(self, name: Name) -> dict[str, Case]:
        """The paper's levels with both scales, and a real guarantee."""
        found = {"non-private": Case(name)}
        for label, unit in SCALES.items():
            found |= {f"{label}, eps = {e:g}": case for e, case in levels(name, unit).items() if math.isfinite(e)}
        real = Case(name, budget=Budget(1.0, DELTA), own="exact", clip=1.0, step=0.1)
        return found | {"tight, (1, 1e-5), blt": real}

    @cached_property
    def both(self) -> tuple[Stream, Stream]:
        """F and F': at the round that differs, another image of the other digit."""
        x, y = (leaf[: self.rounds].copy() for leaf in self.task.train)
        place = self.changed - 1
        other = int(np.flatnonzero(self.task.train.y[self.rounds :] != y[place])[0]) + self.rounds
        first = streams.common(x, y)
        x, y = x.copy(), y.copy()
        x[place], y[place] = (leaf[other] for leaf in self.task.train)
        return first, streams.common(x, y)

    def build(self, case: Case) -> Algorithm:
        """For one sample a round."""
        return case.build(self.task.problem, self.rounds, 1, math.sqrt(-(-self.task.problem.dim // NODES)))

    @remembered
    def differences(self, case: Case) -> Result:
        """|x(t) - x'(t)| at the round that differs and after it: entry 1, and the entry that moves most there."""
        algorithm, data = self.build(case), [fingerprint(each) for each in self.both]
        where = setting(algorithm, self.seeds, rounds=self.rounds, streams=data, changed=self.changed)

        def compute() -> Result:
            pairs = [[play(algorithm, each, self.rounds, seed).joint for each in self.both] for seed in self.seeds]
            entry = self.entry
            at = slice(max(0, self.changed - 20), self.changed + 20)
            gaps = [np.abs(one - two)[self.changed - 1 : self.changed + 1] for one, two in pairs]
            return facts(algorithm) | {
                "rounds": list(range(at.start + 1, min(at.stop, self.rounds) + 1)),
                "F": rounded([one[at, entry] for one, _ in pairs]),
                "F'": rounded([two[at, entry] for _, two in pairs]),
                "first": rounded([gap[:, 0] for gap in gaps]),
                "most": rounded([gap[:, entry] for gap in gaps]),
                "largest": rounded([gap.max(axis=1) for gap in gaps]),
            }

        return self.store.cell(f"{CHANGED}, {case}, {runs_of(self.seeds)}", where, compute)

    @cached_property
    def entry(self) -> int:
        """The pixel in which the two images differ most."""
        place = self.changed - 1
        (one, _), (two, _) = (each.read(place, place + 1) for each in self.both)
        return int(np.argmax(np.abs(one - two).reshape(-1)))


class CompareLab(TaskLab):
    """Figure 7: equal sigma, one sample for every learner and round, or a common batch of the same seven samples."""

    @property
    def rounds(self) -> int:
        """As many as the data have sevens, or fewer."""
        return min(self.plan.compared, len(self.task.train.y) // NODES)

    @property
    def seeds(self) -> range:
        """Of the final runs."""
        return range(self.plan.compared_runs)

    def case(self, name: Name, sigma: float, protocol: str) -> Case:
        """One curve: under the paper's protocol with its step, else with the step of least average fitness."""
        case = Case(name, sigma, errors=False)
        return case if protocol == PAPERS_STEP else replace(case, step=self._step(case))

    @remembered
    def _step(self, case: Case) -> float:
        """Chosen on another order of the data and other noise."""
        if (key := f"figure 7, {case}, {self.rounds} rounds") in self.plan.known:
            return self.plan.known[key][1]

        def loss(step: float) -> float:
            return float(self.fitness(replace(case, step=step), self.trials[:1])["fitness"][0][-1])

        return search(loss, (self.plan.steps,), (0.001,))[0]

    def found(self, name: Name, sigma: float, protocol: str) -> Result:
        """The runs of one curve."""
        return self.fitness(self.case(name, sigma, protocol), self.seeds)

    def build(self, case: Case) -> Algorithm:
        """For seven samples a round."""
        width = self.task.problem.dim
        bound = NODES * math.sqrt(-(-width // NODES)) if case.name in BOTH else math.sqrt(width)
        return case.build(self.task.problem, self.rounds, NODES, bound)

    @remembered
    def fitness(self, case: Case, seeds: Sequence[int]) -> Result:
        """Average fitness so far, and the accuracies at the end, for every run."""
        algorithm = self.build(case)
        order = [streams.common(*self.task.train, batch=NODES, seed=seed, shuffle=True) for seed in seeds]
        first = fingerprint(order[0])
        where = setting(algorithm, seeds, rounds=self.rounds, stream=first, task=self.task.key)
        common = algorithm.coordinates is not None

        def compute() -> Result:
            runs = [
                simulate(
                    algorithm,
                    stream if common else dealt(stream),
                    self.rounds,
                    seed=seed,
                    measure="joint" if common else "global",
                    every=max(1, self.rounds // 50),
                    progress=False,
                )
                for seed, stream in zip(seeds, order, strict=True)
            ]
            return facts(algorithm) | {
                "rounds": runs[0].steps.tolist(),
                "fitness": rounded([NODES * np.mean(average_loss(each), axis=1) for each in runs]),
                "test": self._mean(accuracy, algorithm, runs),
                "balanced test": self._mean(balanced_accuracy, algorithm, runs),
            }

        return self.store.cell(f"figure 7, {case}, {self.rounds} rounds, {runs_of(seeds)}", where, compute)

    def _mean(self, score: Callable[[NDArray[Any], Block], float], algorithm: Algorithm, runs: Sequence[Run]) -> Any:
        """Of every run, on the test data: of the one decision played together, or of all learners' own."""
        owners = algorithm.coordinates
        models = [run.decisions if owners is None else [joint_decisions(run.decisions, owners)] for run in runs]
        return rounded([np.mean([score(model, self.task.test) for model in each]) for each in models])


def facts(algorithm: Algorithm) -> Result:
    """What a table says about a row: its noise and its guarantee."""
    scales = [each for name, each in algorithm.scales.items() if name != "error"]
    return {"noise": scales[0][0].value if scales else 0.0, **promised(algorithm.guarantee)}
