"""Paper 000: the experiments of section 4 and appendix B, and its bounds against T, rho, n and epsilon."""

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
from gossamer.experiments import (
    Asked,
    Cell,
    Claim,
    Curve,
    Entry,
    Estimate,
    Finding,
    Found,
    Measured,
    Metric,
    Panel,
    Part,
    Played,
    Section,
    Study,
    Tuned,
    alike,
    at_most_like,
    below,
    exponent,
    increasing,
    measures,
    tuning_seeds,
)
from gossamer.experiments.claims import ONE_STREAM, RULES, across
from gossamer.experiments.papers.paper_000_page import BANDS, PROTOCOL, RUNTIME, TUNED, table_of_cases
from gossamer.experiments.papers.sources import needed
from gossamer.privacy import Budget
from gossamer.problems import Linear, Softmax
from gossamer.sets import L2Ball, TraceNormBall
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
ALIKE = 0.01  # "almost unaffected": within 1 % of the loss
BOTH = ("published", "tight")
NAMES = {"pd_ftgl": "PD-FTGL", "pd_ocg": "PD-OCG", "pd_ogd": "PD-OGD"}
OURS = ("pd_ftgl", "pd_ocg")
AFTER, TREE = {"noise_at": "after-gossip"}, {"aggregation": "tree"}
LOSS, CURVE = "final loss", "average loss"


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


def compared(lab: Lab, name: str) -> dict[Any, Entry]:
    """Figures 1 and 2: losses and times of the three algorithms on one data set."""
    cases = [Case(name, algorithm, form) for form in BOTH for algorithm in NAMES]
    return {case: lab.tuned(case) for case in cases} | {("time", case): lab.timed(case) for case in cases}


def losses_of(found: Found, cases: Mapping[str, Case]) -> dict[str, Estimate]:
    """The average losses at the end."""
    return {name: found[case].estimate(LOSS) for name, case in cases.items()}


def seconds(found: Found, case: Case) -> Estimate:
    """Per 10,000 rounds."""
    values = found["time", case].values
    return Estimate.of([10_000 * spent / values["rounds"][-1] for spent in values["times"][-1]])


in_both = partial(across, {form: form for form in BOTH})
"""A claim, published against published and tight against tight."""


def comparison_claims(number: int, name: str, found: Found) -> list[Claim]:
    """Section 4.2."""

    def finding(low: str, high: str, measure: Callable[[Case], Estimate], form: str) -> Finding:
        one, other = (measure(Case(name, algorithm, form)) for algorithm in (low, high))
        return below(one, other, (NAMES[low], NAMES[high]))

    loss, spent = (lambda case: found[case].estimate(LOSS)), partial(seconds, found)
    losses = [("pd_ftgl", "pd_ogd"), ("pd_ocg", "pd_ogd"), ("pd_ftgl", "pd_ocg")]
    times = [("pd_ftgl", "pd_ogd"), ("pd_ocg", "pd_ftgl")]
    tests = [("the loss of {} is below that of {}", loss, pair) for pair in losses]
    tests += [("{} runs faster than {} (seconds per 10,000 rounds)", spent, pair) for pair in times]
    return [
        in_both(
            f"{name}: {words.format(NAMES[low], NAMES[high])}",
            f"section 4.2, figure {number}",
            partial(finding, low, high, measure),
        )
        for words, measure, (low, high) in tests
    ]


def comparison_parts(lab: Lab, number: int, name: str, found: Found) -> list[Part]:
    """Losses, and times."""
    drawn, times = {}, []
    for form in BOTH:
        drawn[f"{form}: average loss"] = {NAMES[each]: Case(name, each, form) for each in NAMES}
        curves = [
            Curve.of_runs(words, found["time", case].values["rounds"], np.array(found["time", case].values["times"]).T)
            for words, case in drawn[f"{form}: average loss"].items()
        ]
        times.append(Panel(f"{form}: runtime", "seconds", tuple(curves), log=True))
    part = figure_parts(lab, number, f"{name}, epsilon {LOUD:g}, complete graph of 9", drawn, found)[0]
    return [replace(part, name=f"{part.name}-{name}".replace(" ", "-"), panels=(*part.panels, *times), notes=RUNTIME)]


Panels = Mapping[str, Mapping[str, Case]]


def figure_parts(lab: Lab, number: int, what: str, panels: Panels, found: Found) -> list[Part]:
    """Average losses by panel and name of the curve, and a table of all cases."""

    def curve(name: str, case: Case) -> Curve:
        values = found[case][CURVE][0]  # (seed, point, learner)
        mean, low, high = values.mean(axis=(0, 2)), values.min(axis=(0, 2)), values.max(axis=(0, 2))
        return Curve(name, found[case].at(CURVE), mean.tolist(), low.tolist(), high.tolist())

    drawn = [
        Panel(
            title, CURVE, tuple(curve(*each) for each in cases.items()), level=chance(lab, next(iter(cases.values())))
        )
        for title, cases in panels.items()
    ]
    results = {case: found[case] for cases in panels.values() for case in cases.values()}
    heading = f"Figure {number}: {what}"
    table = table_of_cases(results, lambda case: lab.data.stream(case.data, case.learners, STREAM_SEED))
    return [Part(f"figure-{number}", heading, panels=tuple(drawn), table=table, notes=(BANDS, TUNED))]


def chance(lab: Lab, case: Case) -> float:
    """The loss of playing 0: ln of the number of classes."""
    return float(np.log(lab.data.problem(case.data).classes))


def panels_of(number: int, sizes: Sizes, letter: str) -> dict[str, dict[str, Case]]:
    """The cases of figures 3 to 5."""
    pairs = [(form, name) for form in BOTH for name in OURS]
    if number == 3:
        return {
            f"{NAMES[name]}, {form}": {f"epsilon {e:g}": Case(letter, name, form, e) for e in sizes.epsilons}
            for form, name in pairs
        }
    if number == 4:
        return {
            f"{NAMES[name]}, {form}": {f"n = {n}": Case(letter, name, form, learners=n) for n in sizes.learners}
            for form, name in pairs
        }
    return {
        f"{NAMES[name]}, {form}, epsilon {e:g}": {graph: Case(letter, name, form, e, graph=graph) for graph in GRAPHS}
        for form, name in pairs
        for e in (LOUD, QUIET)
    }


def epsilon_claims(panels: Panels, found: Found) -> list[Claim]:
    """Figure 3."""

    def losses(name: str, form: str) -> list[Estimate]:
        return list(losses_of(found, panels[f"{NAMES[name]}, {form}"]).values())

    def grown(form: str) -> Finding:
        ocg, ftgl = (values[-1] - values[0] for values in (losses("pd_ocg", form), losses("pd_ftgl", form)))
        return below(ocg, ftgl, ("PD-OCG", "PD-FTGL"))

    source = "appendix B, figure 3"
    better = [
        in_both(f"{NAMES[name]} is better with larger epsilon", source, partial(_grows, panels, found, name))
        for name in OURS
    ]
    words = "PD-OCG is less sensitive to epsilon than PD-FTGL: from the largest to the smallest its loss grows less"
    return [*better, in_both(words, source, grown)]


def _grows(panels: Panels, found: Found, name: str, form: str) -> Finding:
    return increasing(losses_of(found, panels[f"{NAMES[name]}, {form}"]))


def size_claims(panels: Panels, found: Found) -> list[Claim]:
    """Figure 4."""
    source = "appendix B, figure 4"
    return [
        in_both(f"{NAMES[name]} gets (slightly) worse with n", source, partial(_grows, panels, found, name))
        for name in OURS
    ]


def graph_claims(panels: Panels, found: Found) -> list[Claim]:
    """Figure 5."""

    def losses(name: str, epsilon: float, form: str) -> dict[str, Estimate]:
        return losses_of(found, panels[f"{NAMES[name]}, {form}, epsilon {epsilon:g}"])

    def turned(form: str) -> Finding:
        return increasing(dict(reversed(losses("pd_ftgl", QUIET, form).items())))

    order = "(cycle, then Watts-Strogatz, then complete)"
    return [
        in_both(
            f"PD-FTGL at epsilon {LOUD:g}: a larger spectral gap is worse {order}",
            "appendix B, figure 5(a)",
            lambda form: increasing(losses("pd_ftgl", LOUD, form)),
        ),
        in_both(f"PD-FTGL at epsilon {QUIET:g}: a larger spectral gap is better", "appendix B, figure 5(b)", turned),
        *(
            in_both(
                f"PD-OCG at epsilon {epsilon:g} is almost unaffected by the graph (within {ALIKE:.0%})",
                f"appendix B, figure 5({letter})",
                lambda form, epsilon=epsilon: alike(losses("pd_ocg", epsilon, form), ALIKE),
            )
            for epsilon, letter in ((LOUD, "c"), (QUIET, "d"))
        ),
    ]


def ladder_panels(letter: str) -> dict[str, dict[str, Case]]:
    """Ours: from the published noise to the smallest one, in steps."""
    return {f"epsilon {e:g}": {form: Case(letter, "pd_ftgl", form, e) for form in FORMS} for e in (LOUD, 1.0)}


def ladder_claims(panels: Panels, found: Found) -> list[Claim]:
    """Every step lowers the loss."""
    printed, rule = "block of eq. (7)", "block by the rule"
    pairs = {
        "tight noise is below published": (f"tight after gossip, {printed}", "published"),
        "noise before gossip is below after": (f"tight before gossip, {printed}", f"tight after gossip, {printed}"),
        "Gaussian is below Laplace": (f"Gaussian before gossip, {printed}", f"tight before gossip, {printed}"),
        f"{rule}, after gossip: tight is below published": (f"tight after gossip, {rule}", "published"),
        f"{rule}: noise before gossip is below after": ("tight", f"tight after gossip, {rule}"),
        f"{rule}: Gaussian is below Laplace": (f"Gaussian before gossip, {rule}", "tight"),
    }

    def finding(low: str, high: str, title: str) -> Finding:
        losses = losses_of(found, panels[title])
        return below(losses[low], losses[high], ("low", "high"))

    return [
        across({title: title for title in panels}, f"PD-FTGL: {words}", "ours", partial(finding, *pair))
        for words, pair in pairs.items()
    ]


class Point(NamedTuple):
    """A setting of the bounds on regret: PD-FTGL on linear losses of the unit ball, with h as in the theory."""

    form: str
    steps: int
    gap: float = 1.0
    learners: int = 9
    epsilon: float = QUIET

    def build(self) -> Algorithm:
        """Weights (1 - rho) I + rho/n 1 1^T have the spectral gap rho, and are positive semidefinite."""
        n = self.learners
        network = topology.complete(n, weights=(1 - self.gap) * np.eye(n) + self.gap / n)
        problem = Linear(2, feature_bound=1.0, domain=L2Ball(1.0))
        options = {"horizon": self.steps, "budget": Budget(self.epsilon), "clip": 1.0, **FORMS[self.form].options}
        return algorithms.pd_ftgl(problem, network, **options)

    def cell(self, repeats: int) -> Cell:
        """Regret on signs that are held and taken back: who moves too fast pays, and so does who is late."""
        told = f"{self.form}, T {self.steps}, rho {self.gap:g}, n {self.learners}, epsilon {self.epsilon:g}"
        kept, stream = [final_regret()], partial(taken_back, self.learners)
        return Cell(f"regret, {told}", self.build, stream, self.steps, kept, data=range(repeats), points=1)


@cache
def taken_back(learners: int, seed: int) -> Stream:
    """Random signs, the same loss for 128 steps and then its opposite."""
    return streams.mirrored(streams.random_signs(learners, 2, seed=seed), hold=128)


def final_regret() -> Metric:
    """R_{T,i} / (n T), mean over learners."""

    def of(played: Played) -> Any:
        return measures.static_regret().of(played)[..., -1, :].mean(axis=-1)

    return Metric("regret", of)


def sweeps(sizes: Sizes) -> dict[str, tuple[str, float, list[float], Callable[[str, float], Point]]]:
    """By name: what it is plotted against, the power that the bound has, the values, and the point of each."""
    T, few = sizes.steps, 1 if sizes.each else 2
    gaps = [4.0**k for k in range(0, 4, few)]
    return {
        "T": ("T", -0.5, [T / 4**k for k in range(3, -1, -few)], lambda form, t: Point(form, int(t))),
        "rho, little noise": ("1 / rho", 0.25, gaps, lambda form, g: Point(form, T, gap=1 / g, epsilon=1e6)),
        "rho, much noise": ("1 / rho", -0.25, gaps, lambda form, g: Point(form, T, gap=1 / g, epsilon=20.0)),
        "n": ("n", 0.0, [4.0, 16.0, 64.0], lambda form, n: Point(form, T, learners=int(n))),
        "epsilon": (
            "1 / epsilon",
            1.0,
            [1 / e for e in (2560, 640, 160)],
            lambda form, i: Point(form, T, epsilon=1 / i),
        ),
    }


def dependence_cells(sizes: Sizes) -> dict[Any, Entry]:
    """Every sweep in both forms."""
    return {
        (name, form, value): point(form, value).cell(sizes.streams)
        for name, (_, _, values, point) in sweeps(sizes).items()
        for form in BOTH
        for value in values
    }


def dependence_claims(sizes: Sizes, found: Found) -> list[Claim]:
    """Corollary 3.7, as powers with a tenth for logarithms: R_{T,i} / (n T) is at most like each of them."""

    def finding(name: str, values: Sequence[float], power: float, form: str) -> Finding:
        regrets = [found[name, form, value].repeated("regret") for value in values]
        return at_most_like(exponent(values, np.array(regrets).reshape(len(values), -1)), power + 0.1)

    return [
        in_both(
            f"regret / (n T) grows at most like ({axis})^{power:g} ({name})",
            "Corollary 3.7",
            partial(finding, name, values, power),
        )
        for name, (axis, power, values, _) in sweeps(sizes).items()
    ]


def study_of(sizes: Sizes, asked: Asked) -> Study:
    """All sections, at these sizes."""
    lab = Lab(sizes, Data(sizes, asked.data, asked.stand_in))
    letter = lab.data.letter

    def cases(panels: Panels) -> dict[Any, Entry]:
        return {case: lab.tuned(case) for group in panels.values() for case in group.values()}

    comparisons = [
        Section(
            f"figure-{number}-{name}",
            name,
            partial(compared, lab, name),
            figure=number,
            claims=partial(comparison_claims, number, name),
            parts=partial(comparison_parts, lab, number, name),
        )
        for number, names in ((1, (letter,)), (2, lab.data.poker))
        for name in names
    ]
    several = {3: ("epsilon", epsilon_claims), 4: ("learners", size_claims), 5: ("graphs", graph_claims)}
    figures = [
        Section(
            f"figure-{number}",
            what,
            partial(cases, panels),
            figure=number,
            claims=partial(claims, panels),
            parts=partial(figure_parts, lab, number, f"{what}, {letter}", panels),
        )
        for number, (what, claims) in several.items()
        for panels in [panels_of(number, sizes, letter)]
    ]
    steps = ladder_panels(letter)
    heading = "From published to tight"
    ladder = Section("ladder", heading, partial(cases, steps), claims=partial(ladder_claims, steps))
    dependence = Section(
        "dependence",
        "Regret against T, rho, n and epsilon",
        partial(dependence_cells, sizes),
        claims=partial(dependence_claims, sizes),
        text=("PD-FTGL with the h of the theory, on linear losses that are held for 128 steps and then taken back.",),
    )
    kind = "full" if sizes == FULL else "quick"
    introduction = (
        "Private decentralised online classification in the ball of the trace norm of radius 10: PD-FTGL and PD-OCG "
        "against PD-OGD (Li et al. 2018), published against published and tight against tight.",
        f"This is the {kind} run: T = {sizes.letter:,} on {letter}, {sizes.hands:,} on {HANDS}, {sizes.seeds} seeds.",
    )
    closing = (Part("protocol", "How it was run", PROTOCOL),)
    sections = [*comparisons, *figures, ladder, dependence]
    return Study("Paper 000 again", sections, introduction, (RULES, ONE_STREAM), closing)


def study(asked: Asked) -> Study:
    """What is run."""
    return study_of(QUICK if asked.quick else FULL, asked)
