"""Runs the cases of paper 002: tuned and played, each part stored when it is finished."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from gossamer import streams
from gossamer.core import Algorithm
from gossamer.metrics import average_loss, joint_decisions, running_average
from gossamer.metrics.solver import best_decision
from gossamer.privacy import Budget
from gossamer.problems import Block, LeastSquares
from gossamer.reproduction.paper_002.cases import (
    DELTA,
    DIM,
    DOMAIN,
    NODES,
    REGRESSION_CLIP,
    SCALES,
    Case,
    Name,
    Task,
    dealt,
    guarantee_of,
    levels,
)
from gossamer.reproduction.paper_002.plan import Plan, Point
from gossamer.reproduction.store import Result, Store, fingerprint, rounded
from gossamer.reproduction.tuning import climb, nearest
from gossamer.simulation import Run, simulate
from gossamer.streams import Stream

Doubles = NDArray[np.float64]
Method = TypeVar("Method", bound=Callable[..., Any])

FIRST_TUNING_SEED = 1000  # tuning never sees the data, their order or the noise of the final runs
BOTH: tuple[Name, ...] = ("DPSDA-C", "DPSDA-PS")
DECISIONS = ("played", "averaged")
MODELS = ("last", "averaged")
CHANGED = 400  # the round whose data differ in figure 6
REAL = (Budget(1.0, DELTA), Budget(8.0, DELTA))
"""Real guarantees of the classification tasks, for one sample."""
CORRELATED = (Budget(2.0, DELTA), Budget(1.0, DELTA))
"""Real guarantees of the table of correlated noise."""
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


def remembered(method: Method) -> Method:
    """A method of a lab that looks for a result once: even to find a cell, data must be read."""

    @wraps(method)
    def found(lab: Lab, *arguments: Any) -> Any:
        key = f"{method.__name__}{arguments}"
        if key not in lab._found:
            lab._found[key] = method(lab, *arguments)
        return lab._found[key]

    return cast(Method, found)


@dataclass(frozen=True, eq=False)
class Lab:
    """What the experiments share; what was run before is read.

    Attributes:
        store: of the cells.
        plan: how much is run.
    """

    store: Store
    plan: Plan
    _best: dict[str, Point] = field(default_factory=dict, repr=False, init=False)
    _found: dict[str, Any] = field(default_factory=dict, repr=False, init=False)

    @property
    def seeds(self) -> range:
        """Of the final runs."""
        return range(self.plan.runs)

    @property
    def trials(self) -> range:
        """Of the runs to tune on."""
        return range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + self.plan.trials)

    def search(self, key: str, loss: Any, start: Point) -> Point:
        """The clip and the step of least loss, by descent on the grid; known ones are not searched again."""
        if key in self.plan.known:
            return self.plan.known[key]
        if key not in self._best:
            clips, steps = self.plan.clips, self.plan.steps
            begin = (nearest(clips, start[0]), nearest(steps, start[1]))
            place = climb(lambda at: loss(clips[at[0]], steps[at[1]]), (len(clips), len(steps)), begin)
            self._best[key] = clips[place[0]], steps[place[1]]
        return self._best[key]


class RegressionLab(Lab):
    """Section 6.1. Every run has data and noise of its own.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from gossamer.reproduction.paper_002.plan import QUICK
    >>> lab = RegressionLab(Store(Path(tempfile.mkdtemp())), QUICK)
    >>> lab.points
    [50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 1000, 2000]
    """

    problem = LeastSquares(DIM, domain=DOMAIN)

    @property
    def points(self) -> list[int]:
        """The horizons of a long run: tenths of the paper's, and doublings of it."""
        rounds, points = self.plan.rounds, self.plan.points
        longer, horizon = [], 2 * rounds
        while horizon <= self.plan.longer:
            longer.append(horizon)
            horizon *= 2
        return [rounds * k // points for k in range(1, points + 1)] + longer

    def level(self, name: Name, unit: float, level: float) -> Result:
        """The regret at one of the paper's levels, at every horizon."""
        return self.regret(levels(name, unit)[level], self.points, self.seeds)

    def real(self, name: Name, budget: Budget) -> Case:
        """A case with a real guarantee over the paper's horizon, clip and step chosen."""
        case = Case(name, budget=budget, aggregation="blt" if budget.delta else "independent", own="exact", clip=1.0)
        return self.chosen(case, self.plan.rounds)

    def chosen(self, case: Case, rounds: int) -> Case:
        """The clip and step of least regret, on other data and noise."""

        def loss(clip: float, step: float) -> float:
            found = self.regret(case.tuned(clip, step), [rounds], self.trials)
            return float(np.mean([curve[-1] for curve in found["played"]]))

        return case.tuned(*self.search(f"{case.tuned(1.0, 1.0)}, {rounds} rounds", loss, (0.1, 0.3)))

    def correlated(self, budget: Budget, aggregation: Any, own: Any) -> Case:
        """One row of the table of correlated noise."""
        case = Case("DPSDA-C", budget=budget, aggregation=aggregation, own=own, clip=1.0, errors=False)
        return self.chosen(case, self.plan.correlated)

    @remembered
    def zero(self, rounds: int) -> list[float]:
        """The regret of playing 0, for every run."""
        found = self.least(self.seeds, [rounds])
        blocks = [_stream(seed).read(0, rounds) for seed in self.seeds]
        return [float(np.mean(np.square(b.y)) - least[0]) for b, least in zip(blocks, found, strict=True)]

    def guarantee(self, case: Case, rounds: int) -> str:
        """What a row is really worth over so many rounds."""
        return guarantee_of(case.build(self.problem, rounds, bound=REGRESSION_CLIP))

    def least(self, seeds: Iterable[int], points: Sequence[int]) -> list[list[float]]:
        """The least mean loss of a fixed decision up to every point, for every stream."""
        found = []
        for seed in seeds:
            stream, cells = _stream(seed), []
            for point in points:
                setting = {"stream": fingerprint(stream), "rounds": point}

                def compute(stream: Stream = stream, point: int = point) -> Result:
                    return {"loss": best_decision(self.problem, stream, point).loss}

                cells.append(self.store.cell(f"best decision {seed} {point}", setting, compute)["loss"])
            found.append(cells)
        return found

    @remembered
    def regret(self, case: Case, points: Sequence[int], seeds: Sequence[int]) -> Result:
        """Pseudo-regret per round of x(t) and of the running average, up to every point, for every run."""
        rounds = points[-1]
        algorithm = case.build(self.problem, rounds, bound=REGRESSION_CLIP)
        setting = _setting(algorithm, rounds, seeds) | {
            "points": list(points),
            "streams": [fingerprint(_stream(seed)) for seed in seeds],
        }

        def compute() -> Result:
            least = np.array(self.least(seeds, points))
            losses: dict[str, list[Doubles]] = {name: [] for name in DECISIONS}
            for seed in seeds:
                stream = _stream(seed)
                joint, block = play(algorithm, stream, rounds, seed).joint, stream.read(0, rounds)
                losses["played"].append(_so_far(joint, block)[np.array(points) - 1])
                losses["averaged"].append(_so_far(running_average(joint), block)[np.array(points) - 1])
            return _facts(algorithm) | {
                "rounds": list(points),
                **{name: rounded(np.array(each) - least) for name, each in losses.items()},
            }

        return self.store.cell(f"regression, {case}, {rounds} rounds, {_named(seeds)}", setting, compute)


def _stream(seed: int) -> Stream:
    return streams.linear_regression(DIM, seed=seed)


def _so_far(plays: NDArray[Any], block: Block) -> Doubles:
    """The mean loss of decisions, each on the sample of its round, up to every round."""
    scores = np.einsum("td,td->t", np.asarray(plays, np.float64), np.asarray(block.x[:, 0], np.float64))
    losses = np.square(scores - block.y[:, 0])
    return np.asarray(np.cumsum(losses) / np.arange(1, len(losses) + 1))


@dataclass(frozen=True, eq=False)
class ClassLab(Lab):
    """Section 6.2, one task. Every run has its own order of the data, and noise of its own."""

    task: Task = field(kw_only=True)

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

    def guarantee(self, case: Case) -> str:
        """What a row is really worth after one pass."""
        rounds = len(self.task.train.y) // self.task.batch
        return guarantee_of(case.build(self.task.problem, rounds, self.task.batch, self.task.bound))

    @remembered
    def scores(self, case: Case, seeds: Sequence[int], passes: int = 1) -> Result:
        """Average fitness, and accuracies of the last decision and of the running average, for every run."""
        task = self.task
        order = [
            streams.common(*task.train, batch=task.batch, passes=passes, seed=seed, shuffle=True) for seed in seeds
        ]
        rounds = order[0].length or 0
        algorithm = case.build(task.problem, rounds, task.batch, task.bound)
        setting = _setting(algorithm, rounds, seeds) | {
            "task": f"{task.key}, {task.source}, {len(task.train.y)} and {len(task.test.y)} samples",
            "passes": passes,
            "stream": fingerprint(order[0]),
        }

        def compute() -> Result:
            runs = [play(algorithm, stream, rounds, seed) for seed, stream in zip(seeds, order, strict=True)]
            models = {
                "last": [each.following for each in runs],
                "averaged": [running_average(each.joint)[-1] for each in runs],
            }
            return _facts(algorithm) | {
                "rounds": list(range(1, rounds + 1)),
                "fitness": rounded([task.batch * average_loss(each.run)[:, 0] for each in runs]),
                "online": rounded([float(np.mean(_accuracies(each.run))) for each in runs]),
                **{name: self._accuracy(each) for name, each in models.items()},
            }

        again = "" if passes == 1 else f", {passes} passes"
        return self.store.cell(f"{task.key}, {case}{again}, {_named(seeds)}", setting, compute)

    def _accuracy(self, models: Sequence[NDArray[Any]]) -> dict[str, list[float]]:
        parts = {"train": self.task.train, "test": self.task.test}
        return {
            **{name: rounded([accuracy(model, part) for model in models]) for name, part in parts.items()},
            **{
                f"balanced {name}": rounded([balanced_accuracy(model, part) for model in models])
                for name, part in parts.items()
            },
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


@dataclass(frozen=True, eq=False)
class PairLab(Lab):
    """Figure 6 and table 5: two runs with the same noise, whose data differ in one round."""

    task: Task = field(kw_only=True)

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

    def guarantee(self, case: Case) -> str:
        """What a row is really worth."""
        return guarantee_of(self._build(case))

    def _build(self, case: Case) -> Algorithm:
        return case.build(self.task.problem, self.rounds, 1, math.sqrt(-(-self.task.problem.dim // NODES)))

    @remembered
    def differences(self, case: Case) -> Result:
        """|x(t) - x'(t)| at the round that differs and after it: entry 1, and the entry that moves most there."""
        algorithm, (first, other) = self._build(case), self.both
        setting = _setting(algorithm, self.rounds, self.seeds) | {
            "streams": [fingerprint(first), fingerprint(other)],
            "changed": self.changed,
        }

        def compute() -> Result:
            pairs = [[play(algorithm, each, self.rounds, seed).joint for each in self.both] for seed in self.seeds]
            entry = self.entry
            at = slice(max(0, self.changed - 20), self.changed + 20)
            gaps = [np.abs(one - two)[self.changed - 1 : self.changed + 1] for one, two in pairs]
            return _facts(algorithm) | {
                "rounds": list(range(at.start + 1, min(at.stop, self.rounds) + 1)),
                "F": rounded([one[at, entry] for one, _ in pairs]),
                "F'": rounded([two[at, entry] for _, two in pairs]),
                "first": rounded([gap[:, 0] for gap in gaps]),
                "most": rounded([gap[:, entry] for gap in gaps]),
                "largest": rounded([gap.max(axis=1) for gap in gaps]),
            }

        return self.store.cell(f"{CHANGED}, {case}, {_named(self.seeds)}", setting, compute)

    @cached_property
    def entry(self) -> int:
        """The pixel in which the two images differ most."""
        place = self.changed - 1
        (one, _), (two, _) = (each.read(place, place + 1) for each in self.both)
        return int(np.argmax(np.abs(one - two).reshape(-1)))


@dataclass(frozen=True, eq=False)
class CompareLab(Lab):
    """Figure 7: equal sigma, one sample for every learner and round, or a common batch of the same seven samples."""

    task: Task = field(kw_only=True)

    @property
    def rounds(self) -> int:
        """As many as the data have sevens, or fewer."""
        return min(self.plan.compared, len(self.task.train.y) // NODES)

    @property
    def seeds(self) -> range:
        """Of the final runs."""
        return range(self.plan.compared_runs)

    def case(self, name: Name, sigma: float, protocol: str) -> Case:
        """One curve: under the paper's protocol with its step, else with the step of least average fitness.

        Steps are chosen on another order of the data and other noise.
        """
        steps, case = self.plan.steps, Case(name, sigma, errors=False)
        if protocol == PAPERS_STEP:
            return case

        def loss(point: tuple[int, ...]) -> float:
            found = self.fitness(replace(case, step=steps[point[0]]), self.trials[:1])
            return float(found["fitness"][0][-1])

        known = {**self.plan.known, **self._best}
        if (key := f"figure 7, {case}, {self.rounds} rounds") not in known:
            known[key] = self._best[key] = 0.0, steps[climb(loss, (len(steps),), (nearest(steps, 0.001),))[0]]
        return replace(case, step=known[key][1])

    def found(self, name: Name, sigma: float, protocol: str) -> Result:
        """The runs of one curve."""
        return self.fitness(self.case(name, sigma, protocol), self.seeds)

    def guarantee(self, case: Case) -> str:
        """What a row is really worth."""
        return guarantee_of(self._build(case))

    def _build(self, case: Case) -> Algorithm:
        width = self.task.problem.dim
        bound = NODES * math.sqrt(-(-width // NODES)) if case.name in BOTH else math.sqrt(width)
        return case.build(self.task.problem, self.rounds, NODES, bound)

    @remembered
    def fitness(self, case: Case, seeds: Sequence[int]) -> Result:
        """Average fitness so far, and the accuracies at the end, for every run."""
        algorithm = self._build(case)
        order = [streams.common(*self.task.train, batch=NODES, seed=seed, shuffle=True) for seed in seeds]
        setting = _setting(algorithm, self.rounds, seeds) | {"stream": fingerprint(order[0]), "task": self.task.key}
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
            tests = [[f(model, self.task.test) for model in _models(algorithm, each)] for each in runs for f in _TESTS]
            means = np.mean(np.array(tests).reshape(len(runs), len(_TESTS), -1), axis=2)
            return _facts(algorithm) | {
                "rounds": runs[0].steps.tolist(),
                "fitness": rounded([NODES * np.mean(average_loss(each), axis=1) for each in runs]),
                "test": rounded(means[:, 0]),
                "balanced test": rounded(means[:, 1]),
            }

        return self.store.cell(f"figure 7, {case}, {self.rounds} rounds, {_named(seeds)}", setting, compute)


_TESTS = (accuracy, balanced_accuracy)


def _models(algorithm: Algorithm, run: Run) -> NDArray[Any]:
    """What is played at the end: one decision together, or one of every learner."""
    if algorithm.coordinates is None:
        return run.decisions
    return joint_decisions(run.decisions, algorithm.coordinates)[None]


def _setting(algorithm: Algorithm, rounds: int, seeds: Sequence[int]) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "seeds": list(seeds),
        "algorithm": algorithm.spec(),
    }


def _named(seeds: Sequence[int]) -> str:
    return f"run {seeds[0]}" if len(seeds) == 1 else f"runs {seeds[0]} to {seeds[-1]}"


def _accuracies(run: Run) -> Doubles:
    assert run.accuracy is not None  # of a classifier
    return run.accuracy


def _facts(algorithm: Algorithm) -> Result:
    """What a table says about a row: its noise and its guarantee."""
    scales = algorithm.scales
    promise = algorithm.guarantee
    private = promise.basis != "none"
    names = [name for name in scales if name != "error"]
    return {
        "noise": scales[names[0]][0].value if names else 0.0,
        "basis": promise.basis,
        "epsilon": promise.epsilon if private else None,
        "delta": promise.delta if private else None,
    }
