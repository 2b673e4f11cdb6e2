"""Runs the regression of paper 002: figure 3, and what correlated noise gains."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer import streams
from gossamer.metrics import running_average
from gossamer.metrics.solver import best_decision
from gossamer.privacy import Budget
from gossamer.problems import Block, LeastSquares
from gossamer.reproduction.lab import remembered, runs_of, setting
from gossamer.reproduction.paper_002.cases import DELTA, DIM, DOMAIN, REGRESSION_CLIP, Case, Name, guarantee_of, levels
from gossamer.reproduction.paper_002.experiments import DualLab, facts, play
from gossamer.reproduction.store import Result, fingerprint, rounded
from gossamer.streams import Stream

Doubles = NDArray[np.float64]

DECISIONS = ("played", "averaged")
CORRELATED = (Budget(2.0, DELTA), Budget(1.0, DELTA))
"""Real guarantees of the table of correlated noise."""


class RegressionLab(DualLab):
    """Section 6.1. Every run has data and noise of its own.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from gossamer.reproduction import Store
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
        return [[self._least(seed, point) for point in points] for seed in seeds]

    def _least(self, seed: int, point: int) -> float:
        stream = _stream(seed)

        def compute() -> Result:
            return {"loss": best_decision(self.problem, stream, point).loss}

        where = {"stream": fingerprint(stream), "rounds": point}
        return float(self.store.cell(f"best decision {seed} {point}", where, compute)["loss"])

    @remembered
    def regret(self, case: Case, points: Sequence[int], seeds: Sequence[int]) -> Result:
        """Pseudo-regret per round of x(t) and of the running average, up to every point, for every run."""
        rounds = points[-1]
        algorithm = case.build(self.problem, rounds, bound=REGRESSION_CLIP)
        order = [fingerprint(_stream(seed)) for seed in seeds]
        where = setting(algorithm, seeds, rounds=rounds, points=list(points), streams=order)

        def compute() -> Result:
            least = np.array(self.least(seeds, points))
            losses: dict[str, list[Doubles]] = {name: [] for name in DECISIONS}
            for seed in seeds:
                stream = _stream(seed)
                joint, block = play(algorithm, stream, rounds, seed).joint, stream.read(0, rounds)
                losses["played"].append(_so_far(joint, block)[np.array(points) - 1])
                losses["averaged"].append(_so_far(running_average(joint), block)[np.array(points) - 1])
            return facts(algorithm) | {
                "rounds": list(points),
                **{name: rounded(np.array(each) - least) for name, each in losses.items()},
            }

        return self.store.cell(f"regression, {case}, {rounds} rounds, {runs_of(seeds)}", where, compute)


def _stream(seed: int) -> Stream:
    return streams.linear_regression(DIM, seed=seed)


def _so_far(plays: NDArray[Any], block: Block) -> Doubles:
    """The mean loss of decisions, each on the sample of its round, up to every round."""
    scores = np.einsum("td,td->t", np.asarray(plays, np.float64), np.asarray(block.x[:, 0], np.float64))
    losses = np.square(scores - block.y[:, 0])
    return np.asarray(np.cumsum(losses) / np.arange(1, len(losses) + 1))
