"""Runs the cases of paper 000: tuned, played, timed, each part stored when it is finished."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from gossamer.algorithms.blocks.pd_ocg import projection_free_block
from gossamer.core import Algorithm
from gossamer.metrics import average_loss
from gossamer.reproduction.claims import Estimate
from gossamer.reproduction.lab import Lab, remembered
from gossamer.reproduction.paper_000.cases import Case, Sources
from gossamer.reproduction.paper_000.plan import Plan
from gossamer.reproduction.store import Result, fingerprint, rounded
from gossamer.reproduction.tuning import search, tuning_seeds
from gossamer.simulation import Run, simulate
from gossamer.streams import Stream

STARTS = {"published": 1.0}
START = 0.1  # of the multiplier, in all other forms: their h knows the noise


class Tuned(NamedTuple):
    """The hyper-parameters of a case.

    >>> Tuned(clip=1.0, multiplier=0.1)
    Tuned(clip=1.0, multiplier=0.1)
    """

    clip: float
    multiplier: float


@dataclass(frozen=True, eq=False)
class Experiments(Lab[Plan]):
    """The cases, by what is asked about them.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from gossamer.reproduction import Store
    >>> from gossamer.reproduction.paper_000.plan import QUICK
    >>> lab = Experiments(Store(Path(tempfile.mkdtemp())), QUICK, Sources(QUICK, None, stand_in=True))
    >>> print(lab.default("digits", "pd_ftgl", "tight"))
    digits, pd_ftgl, tight, epsilon 10, complete(9)
    """

    sources: Sources

    def default(self, data: str, algorithm: str, form: str, epsilon: float | None = None) -> Case:
        """The case on the complete graph of the first size."""
        return Case(data, algorithm, form, self.plan.loud if epsilon is None else epsilon, self.plan.learners[0])

    @remembered
    def final(self, case: Case) -> Result:
        """The runs of all seeds with the tuned hyper-parameters: curves, traffic and guarantee."""
        count = self.plan.seeds if case.data == self.sources.letter else min(3, self.plan.seeds)
        steps, tuned = self.sources.steps(case.data), self.tuned(case)
        return self._play(case, tuned, steps, steps, range(count)) | {"tuned": tuned._asdict()}

    def loss(self, case: Case) -> Estimate:
        """The average loss at the end, mean over learners, over seeds."""
        return Estimate.of(self.final(case)["final"])

    def seconds(self, case: Case) -> Estimate:
        """Seconds per 10,000 rounds."""
        times = self.timing(case)
        return Estimate.of([10_000 * spent / times["rounds"][-1] for spent in times["seconds"][-1]])

    @remembered
    def tuned(self, case: Case) -> Tuned:
        """By coordinate descent on the grids, from the optimum of the default network or a start that is known."""
        home = self.default(case.data, case.algorithm, case.form, case.epsilon)
        if case != home and not self.plan.each:
            return self.tuned(home)
        first = self.tuned(home) if case != home else Tuned(1.0, STARTS.get(case.form, START))

        def loss(clip: float, multiplier: float) -> float:
            return float(np.mean(self._trial(case, Tuned(clip, multiplier))["final"]))

        return Tuned(*search(loss, (self.plan.clips, self._multipliers(case)), first))

    def _multipliers(self, case: Case) -> tuple[float, ...]:
        """The paper multiplies h only: published PD-OGD keeps its step. Tight against tight its step is tuned too."""
        return (1.0,) if case.algorithm == "pd_ogd" and case.form == "published" else self.plan.multipliers

    def _trial(self, case: Case, tuned: Tuned) -> Result:
        """A run to tune on.

        Shorter ones of PD-OCG keep the block of the whole horizon, so that the best multiplier of h stays the same;
        PD-OGD, whose step falls with time, plays the first rounds of the whole run.
        """
        steps, share = self.sources.steps(case.data), self.plan.share.get(case.algorithm, 1.0)
        part, seeds = int(share * steps), tuning_seeds(self.plan.trials)
        if case.algorithm == "pd_ogd":
            return self._play(case, tuned, steps, part, seeds)
        whole = case.algorithm != "pd_ocg" or share == 1.0
        block = None if whole else projection_free_block(steps, 0.0)
        return self._play(case, tuned, part, part, seeds, block)

    def _play(
        self, case: Case, tuned: Tuned, horizon: int, steps: int, seeds: Sequence[int], block: int | None = None
    ) -> Result:
        algorithm = case.build(self.sources.problem(case.data), horizon, *tuned, block)
        stream = self._stream(case.data, case.learners)
        setting = self._setting(case, algorithm, stream, steps) | {"seeds": list(seeds), "points": self.plan.points}

        def compute() -> Result:
            every = max(1, algorithm.schedule.exchanges(steps) // self.plan.points)
            run = simulate(algorithm, stream, steps, seeds=list(seeds), every=every, progress=False)
            return _outcome(algorithm, run)

        return self.store.cell(_named(case, tuned, steps, len(seeds)), setting, compute)

    def timing(self, case: Case) -> Result:
        """Wall time of a third, two thirds and all of the timed rounds: one seed, alone, compiled before."""
        tuned, steps = self.tuned(case), self.sources.steps(case.data)
        algorithm = case.build(self.sources.problem(case.data), steps, *tuned)
        stream, block = self._stream(case.data, case.learners), _block(algorithm)
        blocks = max(3, min(self.plan.timed, steps) // block)
        rounds = [min(steps // block, blocks * part // 3) * block for part in (1, 2, 3)]
        setting = self._setting(case, algorithm, stream, rounds[-1]) | {"repeats": self.plan.repeats, "timing": rounds}

        def spent(count: int) -> float:
            begun = time.perf_counter()
            simulate(algorithm, stream, count, seed=0, measure="local", every=count, progress=False)
            return time.perf_counter() - begun

        def compute() -> Result:
            for count in rounds:
                spent(count)  # compiles
            return {"rounds": rounds, "seconds": [[spent(count) for _ in range(self.plan.repeats)] for count in rounds]}

        return self.store.cell(f"time {case}", setting, compute)

    def _setting(self, case: Case, algorithm: Algorithm, stream: Stream, steps: int) -> dict[str, Any]:
        return asdict(case) | {
            "steps": steps,
            "algorithm": algorithm.spec(),
            "stream": f"{stream.description}, first rounds {fingerprint(stream)}",
        }

    @remembered
    def _stream(self, data: str, learners: int) -> Stream:
        return self.sources.stream(data, learners)


def _named(case: Case, tuned: Tuned, steps: int, seeds: int) -> str:
    runs = "1 seed" if seeds == 1 else f"{seeds} seeds"
    return f"{case}, clip {tuned.clip:g}, multiplier {tuned.multiplier:g}, {steps} rounds, {runs}"


def _block(algorithm: Algorithm) -> int:
    return max(segment.block for segment in algorithm.schedule.segments(1_000_000_000))


def _outcome(algorithm: Algorithm, run: Run) -> Result:
    """A run of several seeds as plain numbers: AL(t, i) by seed, its range over learners, traffic, guarantee."""
    losses = average_loss(run)
    record = run.guarantee.per_record()
    exchanges = algorithm.schedule.exchanges(int(run.steps[-1]))
    links = int(algorithm.topology.links(np.arange(1))[0])
    return {
        "steps": run.steps.tolist(),
        "mean": rounded(losses.mean(axis=-1)),
        "low": rounded(losses.min(axis=-1)),
        "high": rounded(losses.max(axis=-1)),
        "final": losses[:, -1].mean(axis=-1).tolist(),
        "messages": run.messages,
        "predicted messages": links * algorithm.mixing.steps * exchanges,
        "links": links,
        "block": _block(algorithm),
        "gossip steps": algorithm.mixing.steps,
        "noise": str(algorithm.parameters["noise"]),
        "wall time": run.wall_time,
        "basis": run.guarantee.basis,
        "observer": run.guarantee.observer,
        "epsilon": run.guarantee.epsilon,
        "delta": run.guarantee.delta,
        "per record": None if record is None else {"epsilon": record.epsilon, "delta": record.delta},
        "sentence": run.guarantee.sentence(),
    }
