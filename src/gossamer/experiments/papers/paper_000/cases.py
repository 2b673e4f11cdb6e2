"""What is compared in paper 000: data, algorithm, its form, epsilon and network; how each is made, tuned and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gossamer import algorithms, data, streams, topology
from gossamer.algorithms.blocks.pd_ocg import projection_free_block
from gossamer.core import Algorithm, Rate
from gossamer.experiments import Cell, Entry, Measured, Tuned, measures, tuning_seeds
from gossamer.experiments.claims import across
from gossamer.experiments.papers.sources import needed
from gossamer.privacy import Budget
from gossamer.problems import Softmax
from gossamer.sets import TraceNormBall
from gossamer.simulation import simulate
from gossamer.streams import POKER_CLASSES, Stream
from gossamer.topology import FixedTopology, accelerated_block

RADIUS, DELTA = 10.0, 1e-6
STREAM_SEED = GRAPH_SEED = 1
HANDS = "random poker hands"
GRAPHS = ("cycle", "Watts-Strogatz", "complete")  # from the smallest spectral gap to the largest
CLIPS = (0.01, 0.1, 1.0, 10.0)
MULTIPLIERS = tuple(digit * 10.0**power for power in range(-4, 2) for digit in (1, 5))
LOUD, QUIET = 10.0, 1000.0  # the epsilons of figures 1, 2, 4 and 5
BOTH = ("published", "tight")
NAMES = {"pd_ftgl": "PD-FTGL", "pd_ocg": "PD-OCG", "pd_ogd": "PD-OGD"}
OURS = ("pd_ftgl", "pd_ocg")
AFTER, TREE = {"noise_at": "after-gossip"}, {"aggregation": "tree"}
LOSS, CURVE = "final loss", "average loss"
in_both = partial(across, {form: form for form in BOTH})
"""A claim, published against published and tight against tight."""


class Form(NamedTuple):
    """A way to run an algorithm: its options, its delta, and whether the block is the paper's, eq. (7)."""

    options: dict[str, Any]
    delta: float = 0.0
    printed_block: bool = False


FORMS = {
    "published": Form(AFTER | {"calibration": "published"}),
    "tight after gossip, block of eq. (7)": Form(AFTER | TREE, printed_block=True),
    "tight before gossip, block of eq. (7)": Form(TREE, printed_block=True),
    "Gaussian before gossip, block of eq. (7)": Form(TREE | {"noise": "gaussian"}, DELTA, printed_block=True),
    "tight after gossip, block by the rule": Form(AFTER),
    "tight": Form({}),  # before gossip, block by the rule
    "Gaussian before gossip, block by the rule": Form({"noise": "gaussian"}, DELTA),
}
"""From published to tight, in steps."""


@dataclass(frozen=True)
class Sizes:
    """How much is run.

    Attributes:
        letter: T on letter.
        hands: T on random poker hands.
        seeds: of the noise, of every number in a table; on poker the first 3.
        epsilons: of figure 3.
        learners: of figure 4; the first of them everywhere else.
        clips: to choose from.
        multipliers: of h, to choose from.
        share: the part of the rounds that is tuned on, by algorithm; all where it is not named.
        each: whether every network is tuned for, or the default one only.
        timed: rounds whose time is measured.
        steps: T of the dependence on other constants; it is measured itself up to there.
        streams: of losses for it.
        poker: whether the real poker data are run as well.
    """

    letter: int = 150_000
    hands: int = 1_000_000
    seeds: int = 5
    epsilons: tuple[float, ...] = (10.0, 5.0, 2.5)
    learners: tuple[int, ...] = (9, 16, 25)
    clips: tuple[float, ...] = CLIPS
    multipliers: tuple[float, ...] = MULTIPLIERS
    share: Mapping[str, float] = field(default_factory=lambda: {"pd_ocg": 0.1, "pd_ogd": 0.1})
    each: bool = True
    timed: int = 15_000
    steps: int = 2**16
    streams: int = 16
    poker: bool = True


FULL = Sizes()
QUICK = Sizes(
    letter=2000,
    hands=2000,
    seeds=3,
    epsilons=(10.0, 2.5),
    learners=(9, 16),
    clips=(1.0,),
    multipliers=(0.1, 1.0, 10.0),
    share={},
    each=False,
    timed=1000,
    steps=2**12,
    streams=4,
    poker=False,
)


@dataclass(frozen=True)
class Case:
    """Everything but the hyper-parameters.

    >>> print(Case("letter", "pd_ftgl", "published"))
    letter, pd_ftgl, published, epsilon 10, complete(9)
    >>> case = Case("letter", "pd_ftgl", "published", graph="cycle")
    >>> case.build(Softmax(16, 26, domain=TraceNormBall(10.0, (26, 16))), 150_000, 1.0, 1.0).schedule
    Every(block=237)
    """

    data: str
    algorithm: str
    form: str
    epsilon: float = LOUD
    learners: int = 9
    graph: str = "complete"

    def __str__(self) -> str:
        return f"{self.data}, {self.algorithm}, {self.form}, epsilon {self.epsilon:g}, {self.graph}({self.learners})"

    @property
    def home(self) -> Case:
        """The same on the complete graph of nine."""
        return replace(self, learners=9, graph="complete")

    def network(self) -> FixedTopology:
        """The graph. The paper does not state its weights, and needs them positive semidefinite: lazy ones are."""
        if self.graph == "cycle":
            return topology.ring(self.learners, weights="lazy")
        if self.graph == "Watts-Strogatz":
            return topology.watts_strogatz(self.learners, 6, 0.5, seed=GRAPH_SEED, weights="lazy")
        return topology.complete(self.learners)

    def build(
        self, problem: Softmax, horizon: int, clip: float, multiplier: float, block: int | None = None
    ) -> Algorithm:
        """The algorithm: the multiplier is of h, and of PD-OGD's step."""
        network, form = self.network(), FORMS[self.form]
        given: dict[str, Any] = {"horizon": horizon, "budget": Budget(self.epsilon, form.delta), "clip": clip}
        if self.algorithm == "pd_ogd":
            given |= {"calibration": "published"} if self.form == "published" else {}
            usual = algorithms.pd_ogd(problem, network, **given).public["step"]
            assert isinstance(usual, Rate)
            return algorithms.pd_ogd(problem, network, step=replace(usual, scale=multiplier * usual.scale), **given)
        block = accelerated_block(network, horizon) if form.printed_block else block
        make = getattr(algorithms, self.algorithm)
        made: Algorithm = make(
            problem, network, regularization=multiplier, steps_per_exchange=block, **given, **form.options
        )
        return made


@dataclass(frozen=True, eq=False)
class Data:
    """The data: from a directory, from random generators, or small stand-ins that need no files."""

    sizes: Sizes
    directory: Path | None
    stand_in: bool

    @property
    def letter(self) -> str:
        """The name of the main data set."""
        return "digits" if self.stand_in else "letter"

    @property
    def poker(self) -> tuple[str, ...]:
        """The data sets of figure 2."""
        return (HANDS, "poker") if self.sizes.poker and not self.stand_in else (HANDS,)

    def steps(self, name: str) -> int:
        """T."""
        return {HANDS: self.sizes.hands, "poker": 125_009}.get(name, self.sizes.letter)

    def problem(self, name: str) -> Softmax:
        """Multiclass classification in the ball of the trace norm, section 4.1."""
        features, classes = (10, len(POKER_CLASSES))
        if name not in (HANDS, "poker"):
            found = self.records(name)
            features, classes = found.x_train.shape[1], found.classes
        return Softmax(features, classes, domain=TraceNormBall(RADIUS, (classes, features)))

    @cache  # noqa: B019  # one for a study
    def records(self, name: str) -> data.Dataset:
        """From files."""
        if name == "digits":
            return data.digits()
        return needed(f"Paper 000 needs the {name} data", getattr(data, name), self.directory)

    @cache  # noqa: B019
    def stream(self, name: str, learners: int, seed: int) -> Stream:
        """The learners' samples: the same records for every algorithm and every noise seed."""
        if name == HANDS:
            return streams.poker_hands(learners, seed=seed, scaled=True)
        found = self.records(name)
        if name == "poker":
            x, y = np.concatenate([found.x_train, found.x_test]), np.concatenate([found.y_train, found.y_test])
            return streams.from_arrays(x, y, learners, seed=seed, copies=learners)
        copies = max(1, -(-self.sizes.letter // len(found.y_train)))
        return streams.from_arrays(found.x_train, found.y_train, learners, seed=seed, copies=copies * learners)


@dataclass(frozen=True, eq=False)
class Lab:
    """Cells by case; tuned cells are kept, since others start where they ended."""

    sizes: Sizes
    data: Data

    @cache  # noqa: B019
    def tuned(self, case: Case) -> Tuned:
        """Coordinate descent on the paper's grids, from the optimum of the default network or a start that is known."""
        return self._tuned(case, partial(self._final, case))

    @cache  # noqa: B019
    def timed(self, case: Case) -> Tuned:
        """The time of what was tuned."""
        return self._tuned(case, partial(self._time, case))

    def _tuned(self, case: Case, final: Callable[..., Entry]) -> Tuned:
        judged = case if self.sizes.each else case.home
        fixed = case.algorithm == "pd_ogd" and case.form == "published"  # the paper keeps the step of its theory
        grid = {"clip": self.sizes.clips, "multiplier": (1.0,) if fixed else self.sizes.multipliers}
        known = {"clip": 1.0, "multiplier": 1.0 if case.form == "published" else 0.1}
        start = known if judged == case.home else self.tuned(case.home)
        whole = len(self.sizes.clips) * len(self.sizes.multipliers) < 9
        return Tuned(str(case), grid, partial(self._trial, judged), final, by=LOSS, start=None if whole else start)

    def _cell(self, case: Case, steps: int, seeds: Sequence[int], make: Callable[[], Algorithm], told: str) -> Cell:
        stream = partial(self.data.stream, case.data, case.learners)
        kept = [measures.final_loss(), measures.average_loss()]
        return Cell(f"{case}, {told}", make, stream, steps, kept, seeds=seeds, data=(STREAM_SEED,))

    def _trial(self, case: Case, clip: float, multiplier: float) -> Cell:
        """Shorter runs of PD-OCG keep the block of the whole horizon; PD-OGD plays the first rounds of it."""
        steps, share = self.data.steps(case.data), self.sizes.share.get(case.algorithm, 1.0)
        part = int(share * steps)
        horizon = steps if case.algorithm == "pd_ogd" else part
        block = projection_free_block(steps, 0.0) if case.algorithm == "pd_ocg" and share < 1 else None
        make = partial(case.build, self.data.problem(case.data), horizon, clip, multiplier, block)
        seeds = tuning_seeds(1 if self.sizes.each else self.sizes.seeds)
        return self._cell(case, part, seeds, make, f"trial, clip {clip:g}, multiplier {multiplier:g}")

    def _final(self, case: Case, clip: float, multiplier: float) -> Cell:
        steps = self.data.steps(case.data)
        make = partial(case.build, self.data.problem(case.data), steps, clip, multiplier)
        seeds = range(self.sizes.seeds if case.data == self.data.letter else min(3, self.sizes.seeds))
        return self._cell(case, steps, seeds, make, f"clip {clip:g}, multiplier {multiplier:g}")

    def _time(self, case: Case, clip: float, multiplier: float) -> Measured:
        """Wall time of a third, two thirds and all of the timed rounds: one seed, alone, compiled before."""
        steps = self.data.steps(case.data)
        made = case.build(self.data.problem(case.data), steps, clip, multiplier)
        block = next(iter(made.schedule.segments(10**9))).block
        blocks = max(3, min(self.sizes.timed, steps) // block)
        rounds = [min(steps // block, blocks * part // 3) * block for part in (1, 2, 3)]

        def spent(count: int) -> float:
            begun, stream = time.perf_counter(), self.data.stream(case.data, case.learners, STREAM_SEED)
            simulate(made, stream, count, seed=0, measure="local", every=count, progress=False)
            return time.perf_counter() - begun

        def compute() -> dict[str, Any]:
            for count in rounds:
                spent(count)  # compiles
            return {"rounds": rounds, "times": [[spent(count) for _ in range(3)] for count in rounds]}

        return Measured(f"time of {case}", {"time": asdict(case), "algorithm": made.spec(), "rounds": rounds}, compute)
