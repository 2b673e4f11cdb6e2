"""Sections VII-B and VII-C of paper 003: a network on images, Table II and figures 2 and 3."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from gossamer import algorithms, data
from gossamer.algorithms.endless.ldp_endless import Publish
from gossamer.core import Algorithm, Rate
from gossamer.experiments import (
    Asked,
    Cell,
    Claim,
    Entry,
    Estimate,
    Finding,
    Found,
    Part,
    about,
    below,
    decided,
    every,
    measures,
    single,
)
from gossamer.experiments.claims import NOT_RUN
from gossamer.experiments.drawing import Curve, Panel
from gossamer.experiments.papers.paper_003.circle import LEARNERS, NEEDS, RIVALS, circle, dealt, descent, shapes
from gossamer.experiments.papers.sources import coloured, enlarged, needed, network
from gossamer.problems import Block, Problem
from gossamer.reports import Table
from gossamer.streams import Stream

STEP = Rate(1.0, 0.71)
U = 0.7
GROWTHS = tuple(0.1 + 0.01 * i for i in range(1, LEARNERS + 1))  # of Table II
STEEPER = tuple(0.1 + 0.02 * i for i in range(1, LEARNERS + 1))  # of figures 2 and 3
BASE, LOUD = 0.05, math.sqrt(2)  # Laplace scales of Table II at x1, and of figures 2 and 3
SMOOTHNESS = 1.0  # of the network's losses: stated, not known
MADE_UP = (0.0, 0.1, SMOOTHNESS)
CLOSE = 0.02  # "as in Table II": within this
STALLED = 0.2  # accuracy of ten classes at most, where nothing was learnt
TABLE_2: Mapping[float, tuple[float, float, float]] = {
    0.5: (0.9402, 0.9449, 0.2696),
    1.0: (0.9350, 0.9380, 0.2786),
    1.5: (0.8862, 0.8964, 0.2898),
    2.0: (0.8180, 0.8259, 0.3110),
}
"""The paper's: by noise level, training accuracy, test accuracy and DLG error."""
IMAGES = {2: "mnist", 3: "cifar10"}
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10 (10,000 images)"}


class Setting(NamedTuple):
    """What Table II leaves open, and gamma_0, which it states as 0.01."""

    clip: float
    rows: int
    gamma: float

    def __str__(self) -> str:
        return f"clip {self.clip:g}, {self.rows} a round, gamma_0 = {self.gamma:g}"


FIRST, STATED, COUPLED = Setting(1.0, 1, 0.01), Setting(10.0, 20, 0.01), Setting(10.0, 20, 1.0)
GRID = tuple(Setting(*each) for each in product((1.0, 3.0, 5.0, 10.0), (1, 20), (0.01, 0.1, 1.0)))


class Run(NamedTuple):
    """One run of Table II."""

    setting: Setting
    level: float
    seed: int
    picks: int
    publish: Publish = "raw"


@dataclass(frozen=True)
class Sizes:
    """How much is run.

    Attributes:
        table: rounds of Table II.
        figures: rounds of figures 2 and 3.
        seeds: of the noise.
        picks: past samples in a gradient; the paper takes all.
        grid: settings that are looked at with noise x1 and one seed.
        looked: settings that are run at all levels, with all seeds.
        levels: of the noise.
        tested: images held out that are used.
        tries: steps of the attack, and first guesses.
        whole: whether the whole grid is declared at 32 picks; then networks are left to accelerators.
    """

    table: int
    figures: int
    seeds: int
    picks: int
    grid: tuple[Setting, ...]
    looked: tuple[Setting, ...]
    levels: tuple[float, ...]
    tested: int
    tries: tuple[int, int]
    whole: bool


FULL = Sizes(3000, 600, 3, 8, GRID, (FIRST, STATED, COUPLED), (0.5, 1.0, 1.5, 2.0), 2000, (1000, 4), True)
QUICK = Sizes(60, 30, 1, 4, (), (FIRST, STATED), (0.5, 2.0), 500, (100, 1), False)
PICKS = 32  # of the whole grid


@cache
def pictures(which: str, asked: Asked) -> data.Dataset:
    """Images (height, width, colours)."""
    if asked.stand_in:
        return enlarged()
    load = data.mnist if which == "mnist" else data.cifar10
    return coloured(needed(NEEDS, load, asked.data, "data of scikit-learn"))


@cache
def problem(which: str, asked: Asked) -> Problem:
    """Two convolutions, pooled, and two dense layers."""
    return network(pictures(which, asked))


@cache
def stream(which: str, asked: Asked, samples: int, seed: int) -> Stream:
    """40 % of class i to its learner; each image as often as so many samples need."""
    found = pictures(which, asked)
    return dealt(found.x_train, found.y_train, samples, "label-skew", seed, skew=0.4, rest="others")


@cache
def held_out(which: str, asked: Asked, tested: int) -> Block:
    """The first images held out."""
    return Block(pictures(which, asked).x_test[:tested], pictures(which, asked).y_test[:tested])


def endless(
    loss: Problem,
    rounds: int,
    setting: Setting,
    *,
    scale: float,
    growths: tuple[float, ...] = GROWTHS,
    picks: int = PICKS,
    smoothness: float = SMOOTHNESS,
    publish: Publish = "raw",
) -> Algorithm:
    """Algorithm 1 for a network: gradients of a random part of the past, and a smoothness that nobody checked.

    >>> from gossamer import problems
    >>> tiny = problems.small_cnn((10, 10, 1), 2, channels=1, hidden=1, seed=0)
    >>> endless(tiny, 9, FIRST, scale=0.05, publish="averaged").guarantee.basis
    'heuristic'
    """
    return algorithms.ldp_endless(
        loss,
        circle(),
        sigma=math.sqrt(2) * scale,
        growth=growths,
        clip=setting.clip,
        horizon=rounds * setting.rows,
        steps_per_exchange=setting.rows,
        step=STEP,
        coupling=Rate(setting.gamma, U),
        history="sampled",
        picks=picks,
        smoothness=smoothness,
        publish=publish,
    )


def budget(loss: Problem, rounds: int, setting: Setting, scale: float, smoothness: float) -> float:
    """Epsilon of learner 1's messages, as the object has it that scales their noise.

    >>> from gossamer import problems
    >>> tiny = problems.small_cnn((10, 10, 1), 2, channels=1, hidden=1, seed=0)
    >>> budget(tiny, 9, STATED, 0.05, 0.0) < budget(tiny, 9, FIRST, 0.05, 0.0)
    True
    """
    release = endless(loss, rounds, setting, scale=scale, smoothness=smoothness).releases[0]
    return release.spent(rounds, 0).epsilon(0.0)


def rival(name: str, loss: Problem, rounds: int, clip: float) -> Algorithm:
    """A rival on one sample a round: without a smoothness nothing bounds its cost, so it has no guarantee at all.

    DSGD has the steps and the noise of Algorithm 1, as in the paper; DOLA takes 1 / (t+1), PDOP 0.5 * 0.96^t.
    """
    step, unit, scale = shapes(0.5 if name == "pdop" else 1.0, STEEPER[0], LOUD)[name]
    return descent(name, loss, rounds, clip, STEP if name == "dsgd" else step, unit, scale)


def table_cells(asked: Asked, sizes: Sizes) -> Mapping[Any, Entry]:
    """Table II: the grid at x1, the settings that are looked at, and the whole grid for accelerators."""
    seeds = range(sizes.seeds)
    runs = [Run(setting, 1.0, 0, sizes.picks) for setting in sizes.grid]
    runs += [Run(*each, sizes.picks) for each in product(sizes.looked, sizes.levels, seeds)]
    shown: tuple[Publish, ...] = ("last", "averaged")
    runs += [Run(STATED, *each[:2], sizes.picks, each[2]) for each in product(sizes.levels[:2], seeds, shown)]
    if sizes.whole:
        runs += [Run(*each, PICKS) for each in product(GRID, sizes.levels, seeds)]
    loss = problem("mnist", asked)
    return {
        run: Cell(
            f"Table II, {run.setting}, noise x{run.level:g}, {run.picks} picks, {run.publish}, seed {run.seed}",
            partial(
                endless,
                loss,
                sizes.table,
                run.setting,
                scale=run.level * BASE,
                picks=run.picks,
                publish=run.publish,
            ),
            partial(stream, "mnist", asked, sizes.table * run.setting.rows),
            sizes.table * run.setting.rows,
            [measures.held_out(), measures.late_accuracy()],
            seeds=(run.seed,),
            measure="local",
            every=max(1, sizes.table // 10),
            test=held_out("mnist", asked, sizes.tested),
            accelerator=sizes.whole,
            alone=True,
        )
        for run in dict.fromkeys(runs)
    }


def figure_cells(which: str, asked: Asked, sizes: Sizes) -> Mapping[Any, Entry]:
    """Figure 2 or 3: Algorithm 1, what is played or what may be released, and the rivals."""
    loss, made = problem(which, asked), {}
    for setting, publish in DRAWN:
        options: dict[str, Any] = {"scale": LOUD, "growths": STEEPER, "picks": sizes.picks, "publish": publish}
        make = partial(endless, loss, sizes.figures, setting, **options)
        made[_title(setting, publish)] = setting.rows, make
    for name, title in RIVALS.items():
        made[title] = 1, partial(rival, name, loss, sizes.figures, STATED.clip)
    return {
        (title, seed): Cell(
            f"{NAMES[which]}, {title}, seed {seed}",
            make,
            partial(stream, which, asked, sizes.figures * rows),
            sizes.figures * rows,
            [measures.held_out(), measures.late_accuracy()],
            seeds=(seed,),
            measure="local",
            every=max(1, sizes.figures // 6),
            test=held_out(which, asked, sizes.tested),
            accelerator=sizes.whole,
            alone=True,
        )
        for title, (rows, make) in made.items()
        for seed in range(sizes.seeds)
    }


DRAWN: tuple[tuple[Setting, Publish], ...] = ((STATED, "raw"), (STATED, "averaged"), (Setting(10.0, 1, 0.01), "raw"))
"""Of Algorithm 1 in figures 2 and 3."""


def _title(setting: Setting, publish: Publish) -> str:
    shown = "theta (not releasable)" if publish == "raw" else "averaged release"
    return f"Algorithm 1, {shown}, {setting.rows} a round"


def ends_at(found: Found, runs: Sequence[Any], word: str = "test accuracy") -> Estimate | None:
    """The mean over learners at the end, by seed; None where nothing was run."""
    there = [found[run].estimate(word).mean for run in runs if run in found]
    return Estimate.of(there) if there else None


def _of(sizes: Sizes, setting: Setting, level: float, publish: Publish = "raw", picks: int | None = None) -> list[Run]:
    return [Run(setting, level, seed, picks or sizes.picks, publish) for seed in range(sizes.seeds)]


def table_claims(sizes: Sizes, found: Found) -> Sequence[Claim]:
    """Table II for every setting that is looked at."""
    claims = []
    for setting in sizes.looked:
        by_level = {f"x{level:g}": ends_at(found, _of(sizes, setting, level)) for level in sizes.levels}
        for level, value in zip(sizes.levels, by_level.values(), strict=True):
            paper = TABLE_2[level][1]
            statement = f"MNIST, {setting}, noise x{level:g}: test accuracy of {paper:g} (within {CLOSE:g})"
            claims.append(single(statement, "Table II", NOT_RUN if value is None else about(value, paper, CLOSE)))
        falls = falling({level: value for level, value in by_level.items() if value is not None})
        claims.append(single(f"MNIST, {setting}: more noise, less test accuracy", "Table II", falls))
    whole = [Run(*each, PICKS) for each in product(GRID, sizes.levels, range(sizes.seeds))]
    if sizes.whole:
        ran = sum(run in found for run in whole)
        finding = NOT_RUN if ran < len(whole) else decided(True, f"{ran} runs")
        claims.append(single(f"the whole grid with {PICKS} picks ({len(whole)} runs)", "ours", finding))
    return claims


def figure_claims(which: str, sizes: Sizes, found: Found) -> Sequence[Claim]:
    """Algorithm 1 against every rival."""
    where = f"figure {next(number for number, name in IMAGES.items() if name == which)}"
    titles = (*(_title(setting, publish) for setting, publish in DRAWN), *RIVALS.values())
    ends = {title: ends_at(found, [(title, seed) for seed in range(sizes.seeds)]) for title in titles}
    claims = []
    for title in RIVALS.values():
        theirs = ends[title]
        for mine in (_title(setting, publish) for setting, publish in DRAWN):
            ours = ends[mine]
            known = theirs is not None and ours is not None and len(theirs.values) == len(ours.values)
            less = below(theirs, ours, (title, "Algorithm 1")) if known and theirs and ours else NOT_RUN
            claims.append(single(f"{NAMES[which]}: {title} ends below {mine}", where, less))
        stalls = about(theirs, 0.0, STALLED) if theirs else NOT_RUN
        claims.append(single(f"{NAMES[which]}: {title} does not train (at most {STALLED:g})", where, stalls))
    return claims


def falling(values: Mapping[str, Estimate]) -> Finding:
    """Whether each is below the one before."""
    steps = {f"{low} to {high}": below(values[high], values[low], (high, low)) for low, high in pairwise(values)}
    return every(steps) if steps else NOT_RUN


def table_parts(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Part]:
    """Test accuracy by setting and level, and what the messages cost."""
    loss, rows = problem("mnist", asked), []
    settings: set[tuple[Setting, int, Publish]] = {(run.setting, run.picks, run.publish) for run in found}
    settings |= {(setting, PICKS, "raw") for setting in (GRID if sizes.whole else ())}
    for setting, picks, publish in sorted(settings, key=lambda each: (each[1], each[0], each[2])):
        at = {level: ends_at(found, _of(sizes, setting, level, publish, picks)) for level in sizes.levels}
        late = ends_at(found, _of(sizes, setting, 1.0, publish, picks), "late accuracy")
        costs = [budget(loss, sizes.table, setting, BASE, smooth) for smooth in MADE_UP]
        stated = "gamma_0" if setting.gamma == FIRST.gamma else "none of the three"
        rows.append(
            (
                *(f"{value:g}" for value in setting),
                stated,
                str(picks),
                publish,
                *("not run" if value is None else value.cell for value in (*at.values(), late)),
                *(f"{cost:.2g}" for cost in costs),
            )
        )
    paper = ("paper", "-", "0.01", "-", "all", "raw", *(f"{TABLE_2[level][1]:g}" for level in sizes.levels))
    first = ("clip", "samples a round", "gamma_0", "stated by the paper", "picks", "shown")
    costly = (f"epsilon at x1, L = {smooth:g}" for smooth in MADE_UP)
    columns = (*first, *(f"test, x{level:g}" for level in sizes.levels), "new samples, x1", *costly)
    text = (
        "The paper states steps, noise and gamma_0 = 0.01. It states neither a clip (Assumption 5 asks for a bound C) "
        "nor how many samples come in a round, nor the initial weights. Shown is theta, which the paper plots and "
        "nobody may see; 'last' is y, 'averaged' what may be released. Test: mean of the learners' own models on "
        f"{sizes.tested:,} images. New samples: accuracy on what comes in the last tenth, before it is learnt.",
        "Epsilon: of learner 1's messages over the run, by the mechanism that scales their noise. L is the smoothness "
        "of the losses, which nobody knows: L = 0 are linear losses.",
    )
    table = Table(columns, (tuple(paper) + ("0.935",) + ("-",) * 3, *rows))
    return [Part("table-2", f"Table II: the network, {sizes.table:,} rounds", text, table=table)]


def figure_parts(which: str, sizes: Sizes, found: Found) -> Sequence[Part]:
    """Test accuracy along the run."""
    word, curves, rows = "test accuracy", [], []
    for title in dict.fromkeys(title for title, _ in found):
        there = [found[title, seed] for seed in range(sizes.seeds) if (title, seed) in found]
        runs = [each.repeated(word)[0].mean(axis=-1) for each in there]
        rounds = np.linspace(0, sizes.figures, len(there[0].at(word)) + 1)[1:]
        curves.append(Curve.of_runs(title, rounds.tolist(), runs))
        ends = ends_at(found, [(title, seed) for seed in range(sizes.seeds)])
        rows.append((title, "-" if ends is None else ends.cell))
    text = (
        "Noise Lap(sqrt(2) (t+1)^(0.1 + 0.02 i)), steps 1 / (t+1)^0.71, gamma 0.01 / (t+1)^0.7, clip 10. DSGD: the "
        "same steps, and the noise of learner 1 for all. DOLA: noise 0.07 / (0.2 (t+1)), steps 1 / (t+1). PDOP: noise "
        "0.5 * 0.98^t, steps 0.5 * 0.96^t. The rivals see one sample a round and play x, which is raw.",
    )
    number = next(number for number, name in IMAGES.items() if name == which)
    heading = f"Figure {number}: the network on {NAMES[which]}, {sizes.figures:,} rounds"
    panel = Panel(word, "mean of the learners' own", tuple(curves))
    return [
        Part(f"figure-{number}", heading, text, (panel,), Table(("curve", "test accuracy at the end"), tuple(rows)))
    ]
