"""Runs the cases of paper 003, each part stored when it is finished."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from gossamer.algorithms.authoring import Share
from gossamer.algorithms.endless.ldp_endless import Publish
from gossamer.core import Algorithm
from gossamer.errors import GossamerError
from gossamer.problems import Problem
from gossamer.reproduction.lab import Lab, remembered, setting, told
from gossamer.reproduction.paper_003.cases import BASE, DELAY, MODELS, RIVALS, Mushrooms, endless, rival, usable
from gossamer.reproduction.paper_003.plan import Mushrooms as Sizes
from gossamer.reproduction.paper_003.plan import Usable
from gossamer.reproduction.store import Result, rounded
from gossamer.simulation import Run, simulate
from gossamer.streams import Stream

Doubles = NDArray[np.float64]
Model = Publish | Literal["start"]

EARLY = 10  # the round that later ones are compared with
AVERAGING = 3  # the default of ldp_endless
SINGLE = 1000  # the round of the usable setting that is reported besides the last: no record has come twice by then
_TOLERANCE = 1e-12


def best_so_far(problem: Problem, stream: Stream, at: Sequence[int]) -> Doubles:
    """theta_t* for each t in `at`: what minimises the mean loss of all samples up to step t, by Newton's method.

    Losses are strongly convex: a gradient g bounds the distance from the minimum by |g|^2 / (2 l2).

    >>> from gossamer import problems, streams
    >>> stream = streams.heterogeneous_logistic(2, 3, 0.1, 0.1, seed=0)
    >>> best_so_far(problems.Logistic(3, l2=0.1), stream, [1, 20]).shape
    (2, 3)
    """
    best, found = np.zeros(problem.dim), []
    for t in at:
        x, y = _rows(stream, t)
        best = _newton(x, y, problem.l2, best)
        found.append(best)
    return np.stack(found)


def _newton(x: Doubles, y: Doubles, l2: float, start: Doubles) -> Doubles:
    best, ridge = start, l2 * np.eye(x.shape[1])
    for _ in range(100):
        share = expit(x @ best)
        gradient = x.T @ (share - y) / len(y) + l2 * best
        if gradient @ gradient <= 2 * l2 * _TOLERANCE:
            return best
        curvature = (x.T * (share * (1 - share))) @ x / len(y) + ridge
        best = best - np.linalg.solve(curvature, gradient)
    raise GossamerError("Newton's method did not find the best decision: raise l2")


def _rows(stream: Stream, steps: int) -> tuple[Doubles, Doubles]:
    block = stream.read(0, steps)
    return block.x.reshape(-1, block.x.shape[-1]).astype(np.float64), block.y.reshape(-1).astype(np.float64)


def mean_losses(x: Doubles, y: Doubles, l2: float, decisions: Doubles) -> Doubles:
    """The mean loss of each decision (..., coordinate) on all rows.

    >>> mean_losses(np.ones((2, 1)), np.array([0.0, 1.0]), 0.0, np.zeros((3, 1))).round(4).tolist()
    [0.6931, 0.6931, 0.6931]
    """
    scores = decisions @ x.T
    losses = np.logaddexp(0.0, scores) - y * scores
    return np.asarray(losses.mean(axis=-1) + l2 / 2 * np.sum(decisions**2, axis=-1))


def averaged(sent: Doubles, delay: int = 0) -> Doubles:
    """The averaged release, from y(0), y(1), ... along the second axis: a function of what was sent.

    >>> averaged(np.array([[[0.0], [1.0], [2.0]]]))[0, -1].round(4).tolist()
    [1.8]
    """
    shares = Share(AVERAGING, delay)(np.arange(1, sent.shape[1]))
    out = np.array(sent)
    for t, share in enumerate(shares.tolist(), start=1):
        out[:, t] = out[:, t - 1] + share * (sent[:, t] - out[:, t - 1])
    return out


def played(run: Run, rounds: int) -> Doubles:
    """Decisions 0, 1, ..., `rounds`, axes (seed, t, learner, coordinate); what came before any sample is left out."""
    decisions = np.concatenate([run.transcript["decisions"], run.decisions[:, None]], axis=1)
    return decisions[:, -rounds - 1 :].astype(np.float64)


def trajectories(run: Run, start: Doubles, rounds: int) -> dict[Publish, Doubles]:
    """theta(t) and y(t), t = 0, 1, ..., of a recorded run that plays theta; axes (seed, t, learner, coordinate).

    y(0) is the start where nothing was sent before the first sample.
    """
    sent = run.transcript["messages"].astype(np.float64)
    first = np.broadcast_to(start, (sent.shape[0], 1, *sent.shape[2:]))
    return {"raw": played(run, rounds), "last": np.concatenate([first, sent], axis=1)[:, -rounds - 1 :]}


@dataclass(frozen=True, eq=False)
class TrackingLab(Lab[Sizes]):
    """Figure 1 and Table I: mushrooms."""

    mushrooms: Mushrooms

    @property
    def at(self) -> list[int]:
        """The rounds that curves are measured at."""
        marks = (1, 2, 5, EARLY, 20, 50, 100, 200, 500, 1000, 2000, 5000)
        return [mark for mark in marks if mark < self.plan.rounds] + [self.plan.rounds]

    def endless(self, l2: float) -> Result:
        """Algorithm 1 at the paper's noise: tracking error and instantaneous regret of all three models."""
        problem, stream = self.mushrooms.problem(l2), self.mushrooms.stream(self.plan.rounds)
        algorithm = endless(problem, self.plan.rounds, BASE["figure 1"])

        def compute() -> Result:
            run = self._run(algorithm, stream, self.plan.rounds)
            models = trajectories(run, problem.initial_decision(), self.plan.rounds)
            models["averaged"] = averaged(models["last"])
            found = {name: self._measure(problem, stream, models[name][:, self.at]) for name in MODELS}
            still = np.zeros((1, len(self.at), 1, problem.dim))
            facts = {"at": self.at, "seconds": round(run.wall_time, 2)}
            return facts | {"models": found | {"start": self._measure(problem, stream, still)}}

        where = setting(algorithm, range(self.plan.seeds), stream=told(stream), l2=l2, at=self.at)
        return self.store.cell(f"figure 1, Algorithm 1, l2 {l2:g}", where, compute)

    def rival(self, name: str, l2: float, step: float) -> Result:
        """A rival with a step size, whether or not it converges."""
        problem, stream = self.mushrooms.problem(l2), self.mushrooms.stream(self.plan.rounds)
        algorithm = rival(name, problem, step, self.plan.rounds)

        def compute() -> Result:
            run = self._run(algorithm, stream, self.plan.rounds, ("decisions",))
            found = self._measure(problem, stream, played(run, self.plan.rounds)[:, self.at])
            return {"at": self.at, "models": {"raw": found}, "seconds": round(run.wall_time, 2)}

        where = setting(algorithm, range(self.plan.seeds), stream=told(stream), l2=l2, at=self.at)
        return self.store.cell(f"figure 1, {RIVALS[name]}, l2 {l2:g}, step {step:g}", where, compute)

    def converging(self, name: str, l2: float) -> list[float]:
        """The steps with which a rival converges, from large to small.

        It does where the tracking error at the end is below that of playing the start for ever.
        """
        still = mean_error(self.endless(l2), "start")[-1]
        return [step for step in self.plan.steps if mean_error(self.rival(name, l2, step), "raw")[-1] < still]

    def chosen(self, name: str, l2: float) -> float:
        """The step with the least tracking error at the end: the best that a rival can hope for.

        The paper's rule, the largest step that converges, has no answer: steps that fall fast recover from any start.
        """
        return min(self.plan.steps, key=lambda step: mean_error(self.rival(name, l2, step), "raw")[-1])

    def iterations(self, l2: float, level: float) -> Result:
        """Table I, for every seed: the first t with |mean theta_i(t) - theta_t*| <= 1, and that from which it stays so.

        None where there is none.
        """
        rounds = self.plan.table_rounds
        problem, stream = self.mushrooms.problem(l2), self.mushrooms.stream(rounds)
        algorithm, seeds = endless(problem, rounds, level * BASE["Table I"]), range(self.plan.table_seeds)

        def compute() -> Result:
            run = self._run(algorithm, stream, rounds, ("decisions",), seeds)
            times = _looked_at(rounds)
            gaps = played(run, rounds)[:, times].mean(axis=2) - self._optima(l2, rounds, times)
            near = np.linalg.norm(gaps, axis=-1) <= 1
            stays = np.flip(np.logical_and.accumulate(np.flip(near, axis=1), axis=1), axis=1)
            return {name: [_first(times, row) for row in rows] for name, rows in (("first", near), ("stays", stays))}

        where = setting(algorithm, seeds, stream=told(stream), l2=l2, rounds=rounds, level=level)
        return self.store.cell(f"Table I, level {level:g}, l2 {l2:g}", where, compute)

    def _run(
        self,
        algorithm: Algorithm,
        stream: Stream,
        rounds: int,
        record: Sequence[str] = ("decisions", "messages"),
        seeds: Sequence[int] | None = None,
    ) -> Run:
        seeds = list(range(self.plan.seeds)) if seeds is None else list(seeds)
        return simulate(algorithm, stream, rounds, seeds=seeds, measure="local", progress=False, record=record)

    @remembered
    def _optima(self, l2: float, rounds: int, at: Sequence[int]) -> Doubles:
        return best_so_far(self.mushrooms.problem(l2), self.mushrooms.stream(rounds), at)

    def _measure(self, problem: Problem, stream: Stream, decisions: Doubles) -> Result:
        """Tracking errors and instantaneous regrets, (seed, point, learner); None for what is not finite."""
        best = self._optima(problem.l2, self.plan.rounds, self.at)
        errors = np.sum((decisions - best[None, :, None]) ** 2, axis=-1)
        regrets = np.empty(decisions.shape[:3])
        for place, t in enumerate(self.at):
            x, y = _rows(stream, t)
            least = mean_losses(x, y, problem.l2, best[place])
            regrets[:, place] = mean_losses(x, y, problem.l2, decisions[:, place]) - least
        return {"error": rounded(_bounded(errors)), "regret": rounded(_bounded(regrets))}


def _looked_at(rounds: int) -> list[int]:
    """Every round up to 100, then one in a hundred: each needs an optimum of its own."""
    late = np.unique(np.geomspace(100, max(rounds, 100), 300).astype(int))
    return [t for t in dict.fromkeys([*range(1, 100), *late.tolist()]) if t <= rounds]


def _first(times: Sequence[int], row: NDArray[np.bool_]) -> int | None:
    return times[int(np.argmax(row))] if row.any() else None


def _bounded(values: Doubles) -> Doubles:
    """Numbers that can be written: what overflowed is as large as can be."""
    return np.nan_to_num(np.minimum(values, 1e30), nan=1e30, posinf=1e30)


def mean_error(found: Result, model: Model, quantity: str = "error") -> list[float]:
    """Of all seeds and learners, at every point."""
    return [float(value) for value in np.mean(found["models"][model][quantity], axis=(0, 2))]


def at_end(found: Result, model: Model, quantity: str = "error", place: int = -1) -> list[float]:
    """Mean over learners at one point, for every seed."""
    return [float(value) for value in np.mean(found["models"][model][quantity], axis=2)[:, place]]


def slope(found: Result, model: Model, quantity: str = "error", since: int = 100) -> float:
    """The fitted exponent of the mean from round `since` on: negative where it falls."""
    times, values = np.array(found["at"]), np.array(mean_error(found, model, quantity))
    late = times >= since
    if np.sum(late) < 2:
        late = times >= times[-3]
    return float(np.polyfit(np.log(times[late]), np.log(values[late]), 1)[0])


@dataclass(frozen=True, eq=False)
class UsableLab(Lab[Usable]):
    """Ours: a budget that means something, and a model that is of use."""

    mushrooms: Mushrooms

    @property
    def at(self) -> list[int]:
        """The rounds that are reported."""
        return [t for t in (SINGLE,) if t < self.plan.rounds] + [self.plan.rounds]

    def found(self, kind: str) -> Result:
        """Held-out accuracy and loss of every model: each learner's own, and that of their mean."""
        problem, stream = self.mushrooms.unit_problem(), self.mushrooms.unit_stream(self.plan.rounds)
        algorithm = usable(problem, kind, self.plan.rounds)

        def compute() -> Result:
            options: dict[str, Any] = {"seeds": list(range(self.plan.seeds)), "measure": "local", "progress": False}
            run = simulate(algorithm, stream, self.plan.rounds, record=("decisions", "messages"), **options)
            models = trajectories(run, problem.initial_decision(), self.plan.rounds)
            models["averaged"] = averaged(models["last"], DELAY)
            scores = {name: self._scores(problem, models[name][:, self.at]) for name in MODELS}
            return {"at": self.at, "scores": scores, "scale": algorithm.scales["parameters"][0].value}

        where = setting(algorithm, range(self.plan.seeds), stream=told(stream), at=self.at, delay=DELAY)
        return self.store.cell(f"usable, {kind}", where, compute)

    def _scores(self, problem: Problem, decisions: Doubles) -> Result:
        """(seed, point, learner), and (seed, point) of the mean."""
        test = self.mushrooms.held_out
        kept = _projected(decisions, problem.domain.radius)
        rows, labels = np.asarray(test.x, np.float64), np.asarray(test.y, np.float64)

        def judged(models: Doubles) -> dict[str, Any]:
            right = ((models @ rows.T > 0) == (labels == 1)).mean(axis=-1)
            return {"accuracy": rounded(right), "loss": rounded(mean_losses(rows, labels, 0.0, models))}

        return {"own": judged(kept), "mean": judged(kept.mean(axis=2))}


def _projected(decisions: Doubles, radius: float) -> Doubles:
    """Into the ball: what is played is."""
    norms = np.linalg.norm(decisions, axis=-1, keepdims=True)
    return np.asarray(decisions * np.minimum(1, radius / np.maximum(norms, 1e-30)))
