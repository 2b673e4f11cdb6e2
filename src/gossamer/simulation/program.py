"""What shapes the compiled loop of a run."""

from dataclasses import dataclass
from typing import Literal, Self

from gossamer.core import Algorithm, Learner, Server
from gossamer.problems import Problem
from gossamer.simulation import measuring
from gossamer.simulation.spread import ALONE, Spread
from gossamer.topology import Mixing

Measure = Literal["global", "local", "joint"]


@dataclass(frozen=True)
class Program:
    """All that shapes the compiled loop: equal programs on equal shapes do not compile again."""

    learner: Learner
    server: Server | None
    mixing: Mixing
    problem: Problem
    learners: int
    shared: bool
    measure: Measure
    coordinates: tuple[int, ...] | None
    record: tuple[str, ...]
    sampled: int | None = None  # so many decisions are measured, on samples of the samples: see `measuring`
    spread: Spread = ALONE

    @property
    def own_samples(self) -> bool:
        """Whether a decision is measured on the samples of its own learner, and not on all."""
        return self.measure == "local" and not self.shared

    @property
    def decisions(self) -> int:
        """How many decisions are measured."""
        return 1 if self.measure == "joint" else self.sampled or self.learners

    @property
    def row_parts(self) -> int:
        """Over how many devices a row is dealt: over all, where it has figures of every learner."""
        return self.spread.parts if self.decisions == self.learners else 1

    @property
    def figures(self) -> int:
        """How many numbers a row adds up: see `Figures`."""
        return self.decisions * (2 if self.problem.classifies else 1) + self.row_parts

    def shown(self, seeds: int, every: int) -> int:
        """About how many numbers come out of an exchange: a share of a row, and the transcript."""
        return seeds * (-(-2 * self.figures // every) + len(self.record) * self.learners * self.problem.dim)

    def measured(self, steps: int, width: int) -> int:
        """On how many samples each decision is measured in an exchange of so many steps of so many samples.

        Of an estimate, steps: what is added up is then the mean over the samples that are drawn of each.
        """
        return steps if self.own_samples or self.sampled else steps * width

    @classmethod
    def of(
        cls, algorithm: Algorithm, shared: bool, measure: Measure, record: tuple[str, ...], debug: bool = False
    ) -> Self:
        """The program of an algorithm; `shared`: every learner sees the same batch; `debug`: functions as written."""
        learner, server = (algorithm.learner, algorithm.server) if debug else algorithm.running
        return cls(
            learner,
            server,
            algorithm.mixing,
            algorithm.problem,
            algorithm.learners,
            shared,
            measure,
            algorithm.coordinates if measure == "joint" else None,
            record,
            measuring.size(measure, shared, algorithm.learners),
        )
