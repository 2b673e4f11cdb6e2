"""Paper 003, declared: the experiments of section VII, its lemmas and remarks, and a setting that is of use."""

from functools import partial

from gossamer.experiments import Asked, Section, Study
from gossamer.experiments.claims import ONE_STREAM, RULES
from gossamer.experiments.papers.paper_003 import figure_1, leakage, mushrooms, networks, remarks, table_1, usable

INTRODUCTION = (
    "Five learners on a circle, w = 0.3, each trusting nobody: what leaves a learner is its parameters with noise, and "
    "what all of it together tells about a sample is bounded for ever.",
)


def study(asked: Asked) -> Study:
    """What is run."""
    return of(
        asked,
        mushrooms.QUICK if asked.quick else mushrooms.FULL,
        networks.QUICK if asked.quick else networks.FULL,
    )


def of(asked: Asked, records: mushrooms.Sizes, images: networks.Sizes) -> Study:
    """With these sizes."""
    of_use = (
        "Not in the paper: an endless horizon, growth 0, a delay of 200 rounds, steps 4 / t^0.52 (or as said), "
        "coupling 1 / t^0.51, clip 1, rows of norm 1, a ball of radius 20. The budget is per occurrence of a record. "
        "Exponents, delay and radius were tuned on these data, which no budget covers."
    )
    declared = [
        Section(
            "figure-1",
            "Figure 1",
            partial(figure_1.cells, asked, records),
            figure=1,
            claims=partial(figure_1.claims, asked, records),
            parts=partial(figure_1.parts, asked, records),
        ),
        Section(
            "table-1",
            "Table I",
            partial(table_1.cells, asked, records),
            figure=1,
            claims=partial(table_1.claims, asked, records),
            parts=partial(table_1.parts, asked, records),
        ),
        Section(
            "remarks",
            "Lemma 1, Theorem 1 and Remarks 7, 9 and 10",
            partial(remarks.cells, asked, records),
            figure=1,
            claims=partial(remarks.claims, asked, records),
            parts=partial(remarks.parts, asked, records),
        ),
        Section(
            "usable",
            "A setting that is private and of use",
            partial(usable.cells, asked, records),
            figure=1,
            text=(of_use,),
            claims=usable.claims,
        ),
        Section(
            "table-2",
            "Table II",
            partial(networks.table_cells, asked, images),
            figure=2,
            claims=partial(networks.table_claims, images),
            parts=partial(networks.table_parts, asked, images),
        ),
        Section(
            "dlg",
            "Table II: the attack",
            partial(leakage.cells, asked, images),
            figure=2,
            claims=partial(leakage.claims, images),
            parts=partial(leakage.parts, images),
        ),
    ]
    declared += [
        Section(
            f"figure-{number}",
            f"Figure {number}",
            partial(networks.figure_cells, which, asked, images),
            figure=number,
            claims=partial(networks.figure_claims, which, images),
            parts=partial(networks.figure_parts, which, images),
        )
        for number, which in networks.IMAGES.items()
    ]
    title = "Paper 003 again: locally private learning with a finite budget for ever"
    return Study(title, declared, INTRODUCTION, (RULES, ONE_STREAM))
