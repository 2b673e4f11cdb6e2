"""The page of paper 003: its claims, figures 1 to 3, Tables I and II, and how they were run."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from gossamer.algorithms.endless.fading import Fading
from gossamer.algorithms.endless.ldp_endless import Publish
from gossamer.reports import Columns, Table
from gossamer.reproduction.claims import ONE_STREAM, RULES, Claim, Estimate, one_column, verdicts_table
from gossamer.reproduction.drawing import Curve, Panel
from gossamer.reproduction.page import Asked, Page, Part, claims_part
from gossamer.reproduction.paper_003 import findings
from gossamer.reproduction.paper_003.cases import (
    BASE,
    COUPLING,
    GROWTHS,
    IMAGES,
    MODELS,
    NETWORK_CLIP,
    NETWORK_GROWTHS,
    RIVALS,
    SMOOTHNESS,
    STEP,
    USABLE,
    Mushrooms,
    Pictures,
    bounds,
    fadings,
    network_budget,
    rival_budget,
)
from gossamer.reproduction.paper_003.experiments import EARLY, SINGLE, Model, TrackingLab, UsableLab, mean_error, slope
from gossamer.reproduction.paper_003.findings import TABLE_1, TABLE_2, spent
from gossamer.reproduction.paper_003.networks import NetworkLab
from gossamer.reproduction.paper_003.plan import Plan
from gossamer.reproduction.paper_003.words import RAW, introduction, protocol
from gossamer.reproduction.store import Result

TITLE = "Paper 003 again: locally private learning with a finite budget for ever"
FIGURES = (1, 2, 3)
BANDS = "Lines are means over seeds and learners, bands one standard deviation of the seeds to either side."
SMALLEST, LARGEST = 1e-3, 1e4  # that are drawn
MADE_UP = (0.0, 0.01, 0.1, SMOOTHNESS)


def reproduce(asked: Asked[Plan]) -> Page:
    """Run what is asked for, and write it down."""
    plan, numbers = asked.plan, asked.numbers(FIGURES)
    by_l2: list[Claim] = []
    others: list[Claim] = []
    parts: list[Part] = []
    if 1 in numbers:
        mushrooms = Mushrooms(asked.directory, asked.stand_in)
        lab = TrackingLab(asked.store, plan.mushrooms, mushrooms)
        usable = UsableLab(asked.store, plan.usable, mushrooms)
        by_l2 += [*findings.of_mushrooms(lab), *findings.of_table_1(lab)]
        parts += [each(lab) for each in (figure_1, rates, rivals, budgets, table_1)]
        parts.append(usable_setting(usable))
        others += findings.of_usable(usable)
    for number in filter(numbers.__contains__, IMAGES):
        pictures = Pictures(IMAGES[number], asked.directory, asked.stand_in, plan.network.tested)
        network = NetworkLab(asked.store, plan.network, pictures)
        others += findings.of_network(network)
        parts += [*([table_2(network)] if number == 2 else []), network_figure(network, number)]
    kinds = {
        "claims": ("Mushrooms: what the paper says, and what we measured", by_l2),
        "claims-others": ("A usable setting and networks: what is said, and what we measured", others),
    }
    tables = [claims_part(each, (RULES, ONE_STREAM), title, name) for name, (title, each) in kinds.items() if each]
    verdicts = verdicts_table(one_column([*by_l2, *others]))
    every = [*tables, *parts, Part("protocol", "How it was run", protocol(plan))]
    return Page(TITLE, introduction(plan), verdicts, every, asked.store.used, asked.command)


def figure_1(lab: TrackingLab) -> Part:
    """Tracking error and instantaneous regret for every l2, and the budgets."""
    panels = [
        Panel(
            f"l2 {l2:g}",
            f"log10 of the {label}",
            tuple(_mushroom_curves(lab, l2, quantity)),
            level=math.log10(mean_error(lab.endless(l2), "start", quantity)[-1]),
        )
        for l2 in lab.plan.l2
        for quantity, label in (("error", "tracking error"), ("regret", "regret"))
    ]
    columns = ("l2", "curve", *(f"error, t={t:,}" for t in lab.at if t >= EARLY), "regret at the end")
    rows = []
    for l2 in lab.plan.l2:
        for name, found, model in _curves(lab, l2):
            errors = [value for t, value in zip(lab.at, mean_error(found, model), strict=True) if t >= EARLY]
            rows.append((f"{l2:g}", name, *map(_short, errors), _short(mean_error(found, model, "regret")[-1])))
    return Part(
        "figure-1",
        f"Figure 1: {lab.mushrooms.name}, Laplace noise (t+1)^(0.1 + 0.01 i)",
        (RAW,),
        panels=tuple(panels),
        table=Table(columns, tuple(rows)),
        notes=(
            BANDS,
            "Tracking error: |theta_i(t) - theta_t*|^2 with the minimiser of the mean loss of all samples so far. "
            f"'start' plays 0 for ever: the dotted line. Drawn from {SMALLEST:g} to {LARGEST:g}.",
        ),
    )


def rates(lab: TrackingLab) -> Part:
    """Fitted slopes beside the exponents of the theorems."""
    theory = {l2: findings.theory(lab.mushrooms.problem(l2)) for l2 in lab.plan.l2}
    columns: Columns[tuple[float, Publish]] = {
        "l2": lambda row: f"{row[0]:g}",
        "model": lambda row: MODELS[row[1]],
        "fitted, error": lambda row: f"{-slope(lab.endless(row[0]), row[1]):.3f}",
        "beta, Theorems 1, 3": lambda row: f"{theory[row[0]].rate(3):.2f}",
        "fitted, regret": lambda row: f"{-slope(lab.endless(row[0]), row[1], 'regret'):.3f}",
        "beta, Theorems 2, 4": lambda row: f"{theory[row[0]].rate(4):.3f}",
        "t_0": lambda row: f"{theory[row[0]].start(3):.1e}",
    }
    return Part(
        "rates",
        "Rates: fitted from round 100 on, beside those of the theorems",
        table=Table.of(columns, product(lab.plan.l2, MODELS)),
        notes=(
            "Fitted: the error falls like t^-fitted (negative: it rises). beta is an exponent of an upper bound. t_0 "
            "is the round from which Theorem 3 says anything: far beyond any run, because it is the ratio of "
            "lambda_0 to its limit to the power 1 / (v - u) = 8.3. No run can see it; what is seen is that errors "
            "fall before it.",
        ),
    )


def rivals(lab: TrackingLab) -> Part:
    """Their steps, errors and budgets."""
    rows = []
    for l2 in lab.plan.l2:
        problem = lab.mushrooms.problem(l2)
        for name, title in RIVALS.items():
            converging = lab.converging(name, l2)
            kinds = {"least error": lab.chosen(name, l2)}
            if converging:
                kinds |= {"largest that converges": converging[0], "smallest that converges": converging[-1]}
            for kind, step in kinds.items():
                error = mean_error(lab.rival(name, l2, step), "raw")[-1]
                cost = rival_budget(name, problem, step, lab.plan.rounds)
                note = kind if converging else f"{kind}; none converges"
                rows.append((f"{l2:g}", title, note, f"{step:g}", _short(error), _short(cost)))
    columns = ("l2", "rival", "which step", "step", "tracking error at the end", "budget")
    text = (
        "The paper's rule is the largest step of which the double does not converge. A step converges here where the "
        "run ends nearer to the optimum than 0 is. On factors of 2 from "
        f"{lab.plan.steps[0]:g} to {lab.plan.steps[-1]:g} the rule has no answer: steps that fall like 1/t, or "
        "geometrically, recover from almost any start, so the largest that converges is the end of the grid. Figure 1 "
        "and the claims take the step with the least error at the end.",
        "Budgets are bounds on what the messages of the whole run cost one sample of one learner, the paper's own "
        "adjacency. They are finite and stop growing: a sample enters one gradient, and what it leaves behind "
        "shrinks with the steps. The paper says that they grow to infinity; they do where every round is counted as "
        "if its data had changed. None of it covers decisions: x is played raw.",
        "DOLA and PDOP have noise that falls; with the noise of Algorithm 1 DOLA would be DSGD.",
    )
    return Part("rivals", "Figure 1: the rivals", text, table=Table(columns, tuple(rows)))


def budgets(lab: TrackingLab) -> Part:
    """Per learner: Theorem 5(i), eq. (22) and the tight recursion."""
    rounds, dim = lab.plan.rounds, lab.mushrooms.dim
    plain = bounds(Fading(STEP, COUPLING, weight=0.6, change=2.0, smoothness=0.25))
    settings = {f"rows as they are, l2 {l2:g}": fadings(lab.mushrooms.problem(l2)) for l2 in lab.plan.l2}
    settings["rows of norm 1, clip 1, no l2"] = plain
    rows = [
        (
            name,
            str(learner + 1),
            *(_short(spent(each, dim, growth, rounds)) for each in kinds.values()),
            *(_short(spent(kinds[kind], dim, growth, None)) for kind in ("eq. (22)", "tight")),
        )
        for name, kinds in settings.items()
        for learner, growth in enumerate(GROWTHS)
    ]
    columns = ("setting", "learner", *(f"{name}, {rounds:,} rounds" for name in plain))
    columns += ("eq. (22), for ever", "tight, for ever")
    return Part(
        "budgets",
        "Cumulative budgets at the noise of figure 1",
        (
            "C = 2 sqrt(21) and L = 21/4 + l2 for rows as they are (nothing is clipped), C = 2 and L = 1/4 for rows of "
            "norm 1. Theorem 5(i) counts every past gradient as if it differed. Noise x times larger costs 1/x.",
        ),
        panels=tuple(Panel(f"l2 {l2:g}", "cumulative budget", _spending(lab, l2)) for l2 in lab.plan.l2),
        table=Table(columns, tuple(rows)),
        notes=("'no bound': no proof that the sum is finite, or it is too large for a number.",),
    )


def table_1(lab: TrackingLab) -> Part:
    """Iterations and budgets by noise level."""
    rows = []
    for level in lab.plan.levels:
        paper = TABLE_1.get(level)
        row = [f"x{level:g}", *(("-", "-") if paper is None else (f"{paper[0]:g}", f"{paper[1]:,}"))]
        for l2 in lab.plan.table_l2:
            found, problem = lab.iterations(l2, level), lab.mushrooms.problem(l2)
            row += [_counts(found[kind], lab.plan.table_rounds) for kind in ("first", "stays")]
            ends = None if None in found["stays"] else max(1, round(float(np.mean(found["stays"]))))
            cost = spent(fadings(problem)["tight"], problem.dim, GROWTHS[0], ends, level * BASE["Table I"])
            row.append(_short(cost) + (" (for ever)" if ends is None else ""))
        rows.append(tuple(row))
    columns = ["noise", "paper: budget", "paper: iterations"]
    for l2 in lab.plan.table_l2:
        columns += [f"l2 {l2:g}: first", f"l2 {l2:g}: stays", f"l2 {l2:g}: tight budget"]
    return Part(
        "table-1",
        "Table I: iterations until |mean_i theta_i(t) - theta_t*| <= 1, base level Lap(0.1 (t+1)^(0.1 + 0.01 i))",
        table=Table(tuple(columns), tuple(rows)),
        notes=(
            "First: the first round with a distance of at most 1. Stays: the round from which on it is, to the end "
            f"of the run ({lab.plan.table_rounds:,} rounds; optima every round up to 100, then every percent). Mean "
            "over seeds. Budget: tight, learner 1, up to the round of 'stays'. The paper's budgets would need "
            "sqrt(n) C of about 0.18, where n = 112 and C is at least the largest difference of two gradients: they "
            "cannot be reached from what it states. They also do not fall like 1 / noise, as budgets of equal length "
            "would.",
        ),
    )


def usable_setting(lab: UsableLab) -> Part:
    """Accuracy and loss of every model, each learner's own and the mean."""
    rows = []
    for kind in USABLE:
        found = lab.found(kind)
        for model, title in MODELS.items():
            for place, t in enumerate(found["at"]):
                scores = [found["scores"][model][whose][s] for whose in ("own", "mean") for s in ("accuracy", "loss")]
                cells = [_mean([seed[place] for seed in score]) for score in scores]
                rows.append((kind, f"{found['scale']:.3g}", title, f"{t:,}", *cells))
    columns = ("budget", "noise", "model", "round", "own: accuracy", "own: loss", "mean: accuracy", "mean: loss")
    return Part(
        "usable",
        f"A usable setting: {lab.mushrooms.name}, rows of norm 1, endless horizon",
        (
            "Not in the paper. Growth 0, a delay of 200 rounds, steps 4 / t^0.52 (or as said), coupling 1 / t^0.51, "
            "clip 1, ball of radius 20, no l2. Own: the mean over the five learners of each one's own model. Mean: "
            "one model, the mean of the five. Held-out records. The budget is per occurrence of a record. By round "
            f"{SINGLE:,} none has occurred twice; after that a record may, and costs as much again.",
            "A pure budget of 10 is not usable: its noise has to pay sqrt(112) more, and for every term. The "
            "exponents of the Gaussian setting are poor for it (v - u must be large where noise does not grow); v = "
            "0.9 is the best of those tried.",
        ),
        table=Table(columns, tuple(rows)),
        notes=("Exponents, delay and radius were tuned on these data, which no budget covers.",),
    )


def table_2(lab: NetworkLab) -> Part:
    """The network at several noise levels."""
    rows: list[tuple[str, ...]] = []
    dim = lab.pictures.problem.dim
    for level in lab.plan.levels:
        paper = TABLE_2[level]
        attacked = lab.attack(level)
        error = "not run" if attacked is None else _mean(attacked["error"])
        rows.append((f"x{level:g}", "paper", f"{paper[0]:g}", f"{paper[1]:g}", "", "", f"{paper[2]:g}"))
        for model, title in MODELS.items():
            rows.append((f"x{level:g}", title, *_scores(lab.table(level, model)), error if model == "last" else ""))
    plain = lab.attack(0.0)
    for guess, key in (("first message", "error"), ("a guess: all black", "black")):
        rows.append(("none", guess, "", "", "", "", "not run" if plain is None else _mean(plain[key])))
    columns = ("noise", "model", "training, own", "test, own", "training, mean", "test, mean", "DLG error")
    costs = "; ".join(
        f"L = {smooth:g}: {network_budget(dim, lab.plan.table_rounds, BASE['Table II'], GROWTHS[0], smooth):.2g}"
        for smooth in MADE_UP
    )
    return Part(
        "table-2",
        f"Table II: the network on {lab.pictures.name}, {lab.plan.table_rounds:,} rounds, base level "
        "Lap(0.05 (t+1)^(0.1 + 0.01 i))",
        (
            f"{dim:,} parameters. Gradients are means over {lab.plan.picks} past samples drawn at random, each "
            f"clipped to {NETWORK_CLIP:g}; for networks every guarantee is heuristic. Nobody knows how smooth the "
            f"losses are. By eq. (22) the noise x1 costs learner 1 an epsilon of: {costs}. Even of linear losses (L = "
            "0) nothing is left to protect; and an endless horizon has no bound, because coupling 0.01 / t^0.7 does "
            "not outweigh steps 1 / t^0.71.",
        ),
        table=Table(columns, tuple(rows)),
        notes=(
            "Training: on all samples seen. Own: the mean over the learners of each one's own model. Mean: the mean "
            "of the five. DLG: mean squared error of the image found from a learner's first message, by an attacker "
            "who knows the label; mean over five learners.",
        ),
    )


def network_figure(lab: NetworkLab, number: int) -> Part:
    """Figure 2 or 3: test accuracy along the run."""
    found: dict[str, Result | None] = {f"Algorithm 1, {title}": lab.endless(model) for model, title in MODELS.items()}
    found |= {title: lab.rival(name) for name, title in RIVALS.items()}
    there = {name: each for name, each in found.items() if each is not None}
    curves = [Curve.of_runs(name, each["rounds"], np.mean(each["test"], axis=2)) for name, each in there.items()]
    columns = ("curve", "training, own", "test, own", "training, mean", "test, mean")
    rows = [(name, *_scores(each)) for name, each in found.items()]
    cost = network_budget(
        lab.pictures.problem.dim, lab.plan.rounds, BASE["figures 2 and 3"], NETWORK_GROWTHS[0], SMOOTHNESS
    )
    return Part(
        f"figure-{number}",
        f"Figure {number}: the network on {lab.pictures.name}, {lab.plan.rounds:,} rounds",
        (
            "Noise Lap(sqrt(2) (t+1)^(0.1 + 0.02 i)), steps 1 / (t+1)^0.71, coupling 0.01 / (t+1)^0.7. DSGD: the "
            "same steps, and the noise of learner 1 for all. DOLA: noise 0.07 / (0.2 (t+1)), steps 1 / (t+1). PDOP: "
            f"noise 0.5 * 0.98^t, steps 0.5 * 0.96^t. By eq. (22), if L were {SMOOTHNESS:g}, learner 1 would have an "
            f"epsilon of {cost:.2g}; rivals have no bound at all.",
        ),
        panels=(Panel("test accuracy", "mean of the learners' own", tuple(curves)),) if there else (),
        table=Table(columns, tuple(rows)),
        notes=(BANDS,),
    )


def _curves(lab: TrackingLab, l2: float) -> list[tuple[str, Result, Model]]:
    found = lab.endless(l2)
    own: list[tuple[str, Result, Model]] = [(title, found, model) for model, title in MODELS.items()]
    theirs: list[tuple[str, Result, Model]] = [
        (title, lab.rival(name, l2, lab.chosen(name, l2)), "raw") for name, title in RIVALS.items()
    ]
    return [*own, *theirs, ("start", found, "start")]


def _mushroom_curves(lab: TrackingLab, l2: float, quantity: str) -> list[Curve]:
    since = lab.at.index(EARLY)
    curves = []
    for name, found, model in _curves(lab, l2):
        runs = np.mean(found["models"][model][quantity], axis=2)[:, since:]
        if model != "start":
            curves.append(Curve.of_runs(name, lab.at[since:], np.log10(np.clip(runs, SMALLEST, LARGEST))))
    return curves


def _spending(lab: TrackingLab, l2: float) -> tuple[Curve, ...]:
    """The tight budgets of two learners, and those of the rivals whose bounds can be drawn beside them."""
    problem, times = lab.mushrooms.problem(l2), lab.at
    tight = fadings(problem)["tight"]
    spending = {
        f"Algorithm 1, learner {i + 1}": [spent(tight, problem.dim, GROWTHS[i], t) for t in times]
        for i in (0, len(GROWTHS) - 1)
    }
    for name in ("dsgd", "dola"):
        spending[f"{RIVALS[name]}, step 0.5"] = [rival_budget(name, problem, 0.5, t) for t in times]
    return tuple(Curve.line(name, times, values) for name, values in spending.items())


def _scores(found: Result | None) -> list[str]:
    if found is None:
        return ["not run"] * 4
    last = [seed[-1] for seed in found["test"]]
    return [_mean(each) for each in (found["training"], last, found["mean training"], found["mean test"])]


def _counts(found: Sequence[int | None], rounds: int) -> str:
    there = [t for t in found if t is not None]
    if len(there) < len(found):
        return f"> {rounds:,}" if not there else f"{len(there)} of {len(found)} runs"
    return f"{float(np.mean(there)):,.0f}"


def _short(value: float) -> str:
    return "no bound" if math.isinf(value) else f"{value:.4g}"


def _mean(seeds: Sequence[float | Sequence[float]]) -> str:
    """Over seeds, of each the mean over learners."""
    return Estimate.of([float(np.mean(seed)) for seed in seeds]).cell
