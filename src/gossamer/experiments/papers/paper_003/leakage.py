"""The attack of Table II of paper 003: images found from a learner's first message (DLG)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np

from gossamer.auditing.dlg import dlg
from gossamer.experiments import Asked, Claim, Entry, Estimate, Found, Measured, Part, below, single
from gossamer.experiments.papers.paper_003.networks import BASE, GROWTHS, STEP, TABLE_2, Sizes, falling, problem, stream
from gossamer.privacy import Clip
from gossamer.problems import Block
from gossamer.reports import Table


def attack(asked: Asked, clip: float, level: float, tries: tuple[int, int]) -> dict[str, Any]:
    """DLG on the first message of every learner: one step from a public point along the gradient of one sample.

    The attacker knows the label, and that pixels are from 0 to 1. Level 0: no noise.
    """
    loss, block = problem("mnist", asked), stream("mnist", asked, 1, 0).read(0, 1)
    start, draws = np.asarray(loss.initial_decision()), np.random.default_rng(7)
    errors = []
    for i, (x, y) in enumerate(zip(block.x[0], block.y[0], strict=True)):
        one = Block(jnp.asarray(x[None], jnp.float32), jnp.asarray([y]))
        seen = np.asarray(loss.clipped_gradient_sum(jnp.asarray(start), one, Clip.of(clip)), np.float64)
        seen += level * BASE * 2 ** GROWTHS[i] * draws.laplace(size=seen.shape) / STEP.scale
        known: dict[str, Any] = {"label_known": int(y), "clip": clip, "bounds": (0.0, 1.0)}
        found = dlg(loss, start, seen, seed=0, steps=tries[0], restarts=tries[1], **known)
        errors.append(found.error(x))
    black = np.mean(np.square(block.x[0]), axis=(1, 2, 3))
    return {"error": np.round(errors, 5).tolist(), "black": np.round(black, 5).tolist()}


def cells(asked: Asked, sizes: Sizes) -> Mapping[Any, Entry]:
    """By clip and noise level."""
    images = "digits" if asked.stand_in else "mnist"
    return {
        (clip, level): Measured(
            f"DLG, clip {clip:g}, noise x{level:g}",
            {"attack": "dlg", "images": images, "clip": clip, "level": level, "tries": list(sizes.tries)},
            partial(attack, asked, clip, level, sizes.tries),
        )
        for clip, level in product((1.0, 10.0), (0.0, *sizes.levels))
    }


def claims(sizes: Sizes, found: Found) -> Sequence[Claim]:
    """What noise does to the attack, and whether there is an attack at all."""
    claims = []
    for clip in (1.0, 10.0):
        errors = {level: Estimate.of(found[clip, level]["error"].tolist()) for level in (0.0, *sizes.levels)}
        black = Estimate.of(found[clip, 0.0]["black"].tolist())
        claims += [
            single(
                f"DLG, clip {clip:g}, no noise: nearer than a black image",
                "ours",
                below(errors[0.0], black, ("DLG", "black")),
            ),
            single(
                f"DLG, clip {clip:g}: more noise, more error",
                "Table II",
                falling({f"x{level:g}": -1 * errors[level] for level in sizes.levels}),
            ),
            single(
                f"DLG, clip {clip:g}, noise x0.5: as bad as a black image",
                "ours",
                below(black, errors[sizes.levels[0]], ("black", "DLG")),
            ),
        ]
    return claims


def parts(sizes: Sizes, found: Found) -> Sequence[Part]:
    """Errors by clip and level."""
    columns = ("noise", "paper", *(f"clip {clip:g}" for clip in (1.0, 10.0)), "black image")
    rows = tuple(
        (
            f"x{level:g}",
            f"{TABLE_2[level][2]:g}" if level else "-",
            *(Estimate.of(found[clip, level]["error"].tolist()).cell for clip in (1.0, 10.0)),
            Estimate.of(found[1.0, level]["black"].tolist()).cell,
        )
        for level in (0.0, *sizes.levels)
    )
    text = (
        "Mean squared error of the image found from a learner's first message, mean over the five learners. The "
        f"attacker knows the label and that pixels are from 0 to 1: {sizes.tries[0]:,} steps of Adam, "
        f"{sizes.tries[1]} first guesses.",
    )
    return [Part("dlg", "Table II: deep leakage from gradients", text, table=Table(columns, rows))]
