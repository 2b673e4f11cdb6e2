"""Not in paper 003: a setting of its algorithm that is private and of use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from gossamer import algorithms, problems, sets
from gossamer.algorithms.endless.ldp_endless import Publish
from gossamer.core import Algorithm, Rate
from gossamer.experiments import Asked, Cell, Claim, Entry, Found, measures, reaches, single
from gossamer.experiments.claims import at_most
from gossamer.experiments.papers.paper_003.circle import circle, dealt
from gossamer.experiments.papers.paper_003.mushrooms import MODELS, Sizes, records, to_norm
from gossamer.privacy import Budget
from gossamer.problems import Block
from gossamer.streams import Stream

USABLE: Mapping[str, Mapping[str, Any]] = {
    "(2, 1e-5), Gaussian": {"budget": Budget(2.0, 1e-5), "noise": "gaussian"},
    "epsilon 10, Laplace": {"budget": Budget(10.0), "noise": "laplace"},
    "epsilon 10, Laplace, v 0.9": {"budget": Budget(10.0), "noise": "laplace", "step": Rate(4.0, 0.9)},
    "no noise": {"sigma": 1e-9, "noise": "gaussian"},
}
"""Two ways to be purely private, and no noise, for comparison."""
ACCURATE, SMALL_LOSS = 0.88, 0.36  # what a usable model must have


def usable(asked: Asked, title: str, rounds: int, publish: Publish) -> Algorithm:
    """Algorithm 1 over an endless horizon with a late start, on rows of norm 1."""
    dim = int(records(asked).x_train.shape[1])
    options: dict[str, Any] = {"step": Rate(4.0, 0.52), "growth": 0.0, **USABLE[title]}
    return algorithms.ldp_endless(
        problems.Logistic(dim, feature_bound=1.0, domain=sets.L2Ball(20.0)),
        circle(),
        clip=1.0,
        buffer=rounds,
        coupling=Rate(1.0, 0.51),
        delay=min(200, rounds // 3),
        publish=publish,
        **options,
    )


@cache
def _unit_stream(asked: Asked, rounds: int, seed: int) -> Stream:
    return dealt(to_norm(records(asked).x_train, 1.0), records(asked).y_train, rounds, "by-label", seed)


def cells(asked: Asked, sizes: Sizes) -> Mapping[Any, Entry]:
    """By budget and what is shown; the averaged release for all."""
    found = records(asked)
    test = Block(to_norm(found.x_test, 1.0), found.y_test)
    shown: list[tuple[str, Publish]] = [(title, "averaged") for title in USABLE]
    return {
        f"{title}, {MODELS[model]}": Cell(
            f"usable, {title}, {MODELS[model]}",
            partial(usable, asked, title, sizes.rounds, model),
            partial(_unit_stream, asked, sizes.rounds),
            sizes.rounds,
            [measures.held_out(), measures.held_out("loss")],
            seeds=range(sizes.seeds),
            measure="local",
            every=max(1, sizes.rounds // 10),
            test=test,
        )
        for title, model in [*shown, *((next(iter(USABLE)), model) for model in ("raw", "last"))]
    }


def claims(found: Found) -> Sequence[Claim]:
    """What a budget that means something leaves of a model."""
    claims = []
    for title in USABLE:
        if title != "no noise":
            ends = found[f"{title}, {MODELS['averaged']}"]
            accuracy = reaches(ends.estimate("test accuracy").values, ACCURATE)
            claims.append(single(f"{title}, for ever, averaged: accuracy of at least {ACCURATE:g}", "ours", accuracy))
    private = found[f"{next(iter(USABLE))}, {MODELS['averaged']}"].estimate("test loss").values
    loss = at_most(private, SMALL_LOSS)
    return [*claims, single(f"{next(iter(USABLE))}: loss of at most {SMALL_LOSS:g}", "ours", loss)]
