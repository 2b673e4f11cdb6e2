"""Paper 001: the experiments of section V, federated learning with correlated noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from gossamer.experiments import (
    Asked,
    Cell,
    Claim,
    Curve,
    Entry,
    Estimate,
    Finding,
    Found,
    Panel,
    Part,
    Result,
    Section,
    Study,
    Tuned,
    about,
    alike,
    below,
    reaches,
    single,
    tuning_seeds,
)
from gossamer.experiments.claims import RULES, across
from gossamer.experiments.papers.paper_001.cases import (
    ACCURACY,
    FEATURE_BOUND,
    FINE,
    FULL,
    KEPT,
    METHODS,
    MODEL_BOUND,
    QUICK,
    REGRET,
    STREAM_SEED,
    TAU,
    TEST,
    TESTED,
    Case,
    Digits,
    Sizes,
    logistic_problem,
    logistic_stream,
)
from gossamer.experiments.papers.paper_001.words import AVERAGED, IMAGES, LOGISTIC, TITLE
from gossamer.experiments.showing import promise
from gossamer.reports import Columns, Table

CURVES = ("none", "tree", "optimal", "toeplitz", "blt", "independent")
EXTRAS = ("published", "bounded", "rounds")
EPSILONS = (2.0, 0.5)
EARLY, EARLY_ACCURACY = 500, 0.7  # the round whose accuracy the paper gives, and what it is there without noise
NEAR = 0.05  # "close", "similar": within 5 % of the accuracy; "around 0.9": within 0.05


class Column(NamedTuple):
    """Of the tables: how the step is chosen, and which model is published: 0 the last one, 1 the averaged one."""

    protocol: str
    model: int = 0


COLUMNS = {"paper's protocol": Column("paper's"), "tuned": Column("tuned"), "tuned, averaged": Column("averaged", 1)}
Key = tuple[Case, str]  # and the protocol
in_columns = partial(across, COLUMNS)
"""A claim under the paper's protocol, with tuned steps, and for the averaged model."""


class Logistic:
    """Figure 3. Every run has data and noise of its own, the same for every method: differences are paired."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes

    def cell(self, case: Case, seeds: Sequence[int], step: float) -> Cell:
        """Runs with one step."""
        samples = self.sizes.rounds * TAU
        make = partial(case.build, logistic_problem(case.method), samples, step)
        return Cell(f"{case}, step {step:g}", make, logistic_stream, samples, KEPT, seeds=seeds, data=None)

    @cache  # noqa: B019  # others start where it ended
    def tuned(self, case: Case, protocol: str, judged: str | None = None) -> Tuned:
        """By dynamic regret, from the best step of BLT; the paper's protocol takes that step for all but one."""
        if protocol == "paper's":
            return self.tuned(case, "tuned", "independent" if case.method == "independent" else "blt")
        base = Case(3, judged or case.method, TAU, case.epsilon)
        smooth, model = logistic_problem(base.method).smoothness, int(protocol == "averaged")
        grid = {"step": tuple(step for step in self.sizes.steps if smooth is None or step <= 2 / smooth)}
        start = {"step": 0.02} if base.method == "blt" else self.tuned(Case(3, "blt", TAU, case.epsilon), protocol)
        trial, final = partial(self.cell, base, tuning_seeds(self.sizes.trials)), partial(self.cell, case)
        loss = partial(last_of, REGRET, model)
        return Tuned(f"{case}, {protocol}", grid, trial, partial(final, range(self.sizes.runs)), by=loss, start=start)

    def cells(self, methods: Sequence[str]) -> Mapping[Key, Entry]:
        """Every method at every budget under every protocol."""
        cases = [Case(3, method, TAU, epsilon) for epsilon in EPSILONS for method in methods]
        return {
            (case, column.protocol): self.tuned(case, column.protocol) for case in cases for column in COLUMNS.values()
        }


def last_of(word: str, model: int, result: Result) -> float:
    """Of a curve, mean over all runs."""
    return float(result[word][..., -1, model].mean())


def off_by(wanted: float, result: Result, model: int = 0) -> float:
    """How far the accuracy of a model is from a number."""
    return abs(last_of(TEST, model, result) - wanted)


class Images:
    """Figure 4. The images are dealt once, and every run has noise of its own."""

    def __init__(self, sizes: Sizes, digits: Digits) -> None:
        self.sizes, self.digits = sizes, digits

    def cell(
        self,
        case: Case,
        seeds: Sequence[int],
        step: float,
        clip: float = 1.0,
        server_step: float = 1.0,
        samples: int | None = None,
    ) -> Cell:
        """Runs with these sizes, tested on the images held out."""
        horizon = self.digits.samples(case.tau)
        return Cell(
            f"{case}, step {step:g}, clip {clip:g}, server step {server_step:g}",
            partial(case.build, self.digits.problem, horizon, step, clip, server_step),
            self.digits.stream,
            samples or horizon,
            TESTED,
            seeds=seeds,
            data=(STREAM_SEED,),
            measure="local",
            every=max(1, self.sizes.every // case.tau),
            test=self.digits.test,
            accelerator=case.remembers_all,
        )

    @cache  # noqa: B019
    def entry(self, case: Case, protocol: str) -> Entry:
        """The paper has one step for all: that at which no noise is nearest to where the paper has it at round 500."""
        final = partial(self.cell, case, range(self.sizes.seeds[case.method]))
        if self.sizes.known:
            return final(self.sizes.known["blt" if protocol == "paper's" else case.method])
        if protocol == "paper's":
            trial = partial(self.cell, Case(4, "none", 1), tuning_seeds(1), samples=EARLY)
            off = partial(off_by, EARLY_ACCURACY)
            return Tuned(f"{case}, shared", {"step": FINE}, trial, final, by=off, start={"step": 0.01})
        judged = Case(4, "blt", case.tau) if case.remembers_all else case
        start = {"none": 0.2, "blt": 0.02, "independent": 0.001}[judged.method]
        grid = {"clip": self.sizes.clips, "server_step": self.sizes.server_steps, "step": FINE}
        seeds = tuning_seeds(1 if case.method == "none" else self.sizes.trials)
        error = partial(off_by, 1.0, model=int(protocol == "averaged"))
        begin = {"step": start, "clip": 1.0, "server_step": 1.0}
        trial = partial(self.cell, judged, seeds)
        return Tuned(f"{case}, {protocol}", grid, trial, final, by=error, start=begin)

    def cells(self) -> Mapping[Key, Entry]:
        """Every method with all its local steps under every protocol."""
        cases = [Case(4, method, tau) for method, taus in self.sizes.taus.items() for tau in taus]
        return {
            (case, column.protocol): self.entry(case, column.protocol) for case in cases for column in COLUMNS.values()
        }


def scores(found: Found, case: Case, column: Column, word: str, at: int | None = None) -> list[float]:
    """By run: accuracy over all rounds, regret at the end, or accuracy on the images at a round or at the end."""
    result = found[case, column.protocol]
    values = result.repeated(word)[..., column.model]
    if word == ACCURACY:
        return [float(value) for value in values.mean(axis=1)]
    place = -1 if at is None else int(np.argmin(np.abs(np.array(result.at(word)) - at)))
    return [float(value) for value in values[:, place]]


def estimates(
    found: Found, cases: Sequence[Case], column: Column, word: str, at: int | None = None
) -> dict[str, Estimate]:
    """Numbers that can be compared: the runs that all of them have; without noise all runs on the images are alike."""
    values = {str(case): scores(found, case, column, word, at) for case in cases}
    count = min(len(each) for each in values.values() if len(each) > 1) if max(map(len, values.values())) > 1 else 1
    return {name: Estimate.of((each * count)[:count]) for name, each in values.items()}


def _below(pair: Mapping[str, Estimate]) -> Finding:
    (low, one), (high, other) = pair.items()
    return below(one, other, (low, high))


def logistic_claims(found: Found) -> list[Claim]:
    """Section V-A."""
    source = "section V-A, figure 3"

    def compared(epsilon: float, names: Sequence[str], column: Column) -> dict[str, Estimate]:
        return estimates(found, [Case(3, name, TAU, epsilon) for name in names], column, ACCURACY)

    def follows(epsilon: float, column: Column) -> Finding:
        return alike(compared(epsilon, CURVES[:-1], column), NEAR)

    def above(epsilon: float, pair: Sequence[str], column: Column) -> Finding:
        return _below(compared(epsilon, pair, column))

    pairs = (("tree", "optimal"), ("tree", "toeplitz"), ("tree", "blt"), ("independent", "tree"))
    follow = f"correlated noise follows the noiseless curve (all within {NEAR:.0%})"
    return [
        claim
        for epsilon in EPSILONS
        for claim in (
            in_columns(f"epsilon {epsilon:g}: {follow}", source, partial(follows, epsilon)),
            *(
                in_columns(
                    f"epsilon {epsilon:g}: {METHODS[high].title} is above {METHODS[low].title}",
                    source,
                    partial(above, epsilon, (low, high)),
                )
                for low, high in pairs
            ),
        )
    ]


def extra_claims(found: Found) -> list[Claim]:
    """Ours: less noise than the paper's has less regret."""
    pairs = {
        "tight noise has less dynamic regret than that of Lemma IV.8": ("toeplitz", "published"),
        "noise once a round has less dynamic regret than at every step": ("rounds", "bounded"),
    }

    def less(pair: Sequence[str], epsilon: float) -> Finding:
        cases = [Case(3, method, TAU, epsilon) for method in pair]
        return _below(estimates(found, cases, COLUMNS["tuned"], REGRET))

    columns = {f"epsilon {epsilon:g}": epsilon for epsilon in EPSILONS}
    return [across(columns, words, "ours", partial(less, pair)) for words, pair in pairs.items()]


def image_claims(found: Found) -> list[Claim]:
    """Section V-B: orders, the numbers of its text, and what local steps save; then what we set out to reach."""
    cases = list(dict.fromkeys(case for case, _ in found))
    figure, text = "section V-B, figure 4", "section V-B, text"

    def ends(those: Sequence[Case], column: Column) -> dict[str, Estimate]:
        return estimates(found, those, column, TEST)

    def close(those: Sequence[Case], column: Column) -> Finding:
        return alike(ends(those, column), NEAR)

    def above(pair: Sequence[Case], column: Column) -> Finding:
        return _below(ends(pair, column))

    def around(case: Case, value: float, at: int | None, column: Column) -> Finding:
        return about(Estimate.of(scores(found, case, column, TEST, at)), value, NEAR)

    claims, noisy = [], [case for case in cases if case.method not in ("none", "independent")]
    for case in noisy:
        plain, fresh = Case(4, "none", case.tau), Case(4, "independent", case.tau)
        title = f"tau {case.tau}: {METHODS[case.method].title} ends"
        words = f"{title} close to no noise (within {NEAR:.0%})"
        claims.append(in_columns(words, figure, partial(close, (case, plain))))
        claims.append(in_columns(f"{title} above independent noise", figure, partial(above, (fresh, case))))
    plain, fresh, first = Case(4, "none", 1), Case(4, "independent", 1), [case for case in noisy if case.tau == 1]
    stated: list[tuple[Case, float, int | None]] = [
        *((case, 0.9, None) for case in first),
        (fresh, 0.8, None),
        (plain, EARLY_ACCURACY, EARLY),
        *((case, 0.6, EARLY) for case in first),
    ]
    for case, value, at in stated:
        when = "at the end" if at is None else f"at round {at}"
        words = f"tau 1: accuracy with {METHODS[case.method].title} {when} is around {value:g} (within {NEAR:g})"
        claims.append(in_columns(words, text, partial(around, case, value, at)))
    for method in dict.fromkeys(case.method for case in cases):
        same = [case for case in cases if case.method == method]
        if len(same) > 1:
            words = f"{METHODS[method].title}: tau 1, 2, 4 end alike (within {NEAR:.0%})"
            claims.append(in_columns(words, figure, partial(close, same)))
    averaged = scores(found, Case(4, "blt", 1), COLUMNS["tuned, averaged"], TEST)
    best = max((scores(found, fresh, column, TEST) for column in COLUMNS.values()), key=sum)
    ahead = [mine - theirs for mine, theirs in zip(averaged, best, strict=True)]
    goals = {
        "the averaged model with BLT noise reaches 0.82": (averaged, 0.82),
        "it is 0.3 above independent noise": (ahead, 0.3),
    }
    return claims + [single(f"tau 1: {words}", "ours", reaches(*goal)) for words, goal in goals.items()]


def table_of(found: Found, words: Mapping[str, str]) -> Table:
    """One row per case and protocol: what was chosen, scores of both models, guarantee."""

    def score(word: str, model: int, row: tuple[Key, Result]) -> str:
        (case, protocol), _ = row
        return Estimate.of(scores(found, case, Column(protocol, model), word)).cell

    columns: Columns[tuple[Key, Result]] = {
        "run": lambda row: str(row[0][0]),
        "protocol": lambda row: row[0][1],
        "chosen": lambda row: ", ".join(f"{name} {value:g}" for name, value in row[1].setting.items()) or "-",
        "V": lambda row: f"{row[1].algorithm.scales['gradient'][0].value:.2f}" if row[1].algorithm.scales else "0",
        **{
            f"{name}, {model}": partial(score, word, place)
            for name, word in words.items()
            for place, model in enumerate(("last", "averaged"))
        },
        "guarantee": lambda row: promise(row[1]),
    }
    return Table.of(columns, found.items())


def parts_of(name: str, heading: str, words: Mapping[str, str], notes: tuple[str, ...], found: Found) -> list[Part]:
    """One panel for every quantity, budget or number of local steps, and column; and the table."""
    cases = list(dict.fromkeys(case for case, _ in found))
    panels = [
        Panel(
            f"epsilon {epsilon:g}, tau {tau}, {title}",
            quantity,
            tuple(
                Curve.of_runs(METHODS[case.method].title, result.at(word), result.repeated(word)[..., column.model])
                for case in cases
                if (case.epsilon, case.tau) == (epsilon, tau)
                for result in [found[case, column.protocol]]
            ),
            log=word == REGRET,
            span=None if word == REGRET else (0.0, 1.0),
        )
        for quantity, word in words.items()
        for epsilon, tau in dict.fromkeys((case.epsilon, case.tau) for case in cases)
        for title, column in COLUMNS.items()
    ]
    return [Part(name, heading, panels=tuple(panels), table=table_of(found, words), notes=notes)]


def study_of(sizes: Sizes, asked: Asked) -> Study:
    """All sections, at these sizes."""
    logistic, images = Logistic(sizes), Images(sizes, Digits(asked, sizes))
    scored, tested = {"accuracy": ACCURACY, "dynamic regret": REGRET}, {"test accuracy": TEST}
    heading = f"Figure 3 with other noise: features within {FEATURE_BOUND:g}, models within {MODEL_BOUND:g}"
    sections = [
        Section(
            "figure-3",
            "Figure 3: logistic regression, 20 learners, tau 4",
            partial(logistic.cells, CURVES),
            figure=3,
            claims=logistic_claims,
            parts=partial(parts_of, "figure-3", "Figure 3: logistic regression", scored, (LOGISTIC, AVERAGED)),
        ),
        Section(
            "beyond",
            heading,
            partial(logistic.cells, ("toeplitz", *EXTRAS)),
            figure=3,
            claims=extra_claims,
            parts=partial(parts_of, "beyond", heading, scored, (LOGISTIC, AVERAGED)),
        ),
        Section(
            "figure-4",
            f"Figure 4: the network on {images.digits.name}",
            images.cells,
            figure=4,
            claims=image_claims,
            parts=partial(parts_of, "figure-4", f"Figure 4: {images.digits.name}", tested, (IMAGES, AVERAGED)),
        ),
    ]
    kind = "full" if sizes is FULL else "quick"
    introduction = (
        "Federated online learning with a curious server: each learner's gradients leave it only with noise that is "
        "correlated over time by a matrix factorisation (Algorithm 1), against fresh noise at every step and none.",
        f"This is the {kind} run: figure 3 has R = {sizes.rounds:,} rounds and {sizes.runs} runs.",
    )
    return Study(TITLE, sections, introduction, (RULES,))


def study(asked: Asked) -> Study:
    """What is run."""
    return study_of(QUICK if asked.quick else FULL, asked)
