"""docs/benchmarks.md is what `python -m bench.benchmarks render` makes of the evidence, with no number of its own."""

from __future__ import annotations

import ast
import copy
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import loops
from bench.benchmarks import prototype, render, sizes
from bench.benchmarks.__main__ import PARTS
from bench.benchmarks.comparison import CONTESTANTS, settings

CONTESTANT_FILES = Path(render.__file__).parent / "contestants"


def test_the_page_is_what_the_evidence_says():
    assert render.PAGE.read_text() == render.page(*render.evidence()), "run python -m bench.benchmarks render"


def test_lines_that_are_no_table_are_short():
    lines = [line for line in render.PAGE.read_text().splitlines() if not line.startswith("|")]
    assert max(map(len, lines)) <= 120


def test_no_text_of_the_page_has_a_number_of_its_own():
    """Every number comes from the evidence: in the source of `render` digits are in formats and in docstrings only."""
    tree = ast.parse(Path(render.__file__).read_text())
    formats = {id(part) for one in ast.walk(tree) if isinstance(one, ast.FormattedValue) and one.format_spec
               for part in ast.walk(one.format_spec)}  # fmt: skip
    docstrings = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    texts = [one for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    wrong = [one.value for one in texts if id(one) not in formats | docstrings and re.search(r"\d", one.value)]
    assert wrong == []


def test_rates_follow_the_evidence():
    """Ten times the seconds: a tenth of every rate of Gossamer, and no other number of the first table changes."""
    found, gpu = render.evidence()
    slower = copy.deepcopy(found)
    for part in slower["comparison"]["found"].values():
        part["rows"]["Gossamer"]["seconds"] = [10 * taken for taken in part["rows"]["Gossamer"]["seconds"]]
    first, second = (re.search(r"\| Gossamer \| (.*) \|", render.page(each, gpu))[1] for each in (found, slower))
    rates = [[float(rate.strip("* ").replace(",", "")) for rate in row.split("|")] for row in (first, second)]
    assert np.allclose(rates[0], 10 * np.array(rates[1]), rtol=0.01)


def test_the_evidence_says_what_it_was_measured_on():
    found, gpu = render.evidence()
    assert set(PARTS) <= set(found)
    for part in PARTS:
        assert {"busy", "quick", "machine", "seconds in all"} <= set(found[part])
    assert gpu is None or gpu["machine"]["device"]


def test_every_contestant_has_a_script_and_a_line():
    assert {one.name for one in CONTESTANTS} == set(render.NOTES)
    assert all((CONTESTANT_FILES / one.script).exists() for one in CONTESTANTS)
    assert [one.workload for one in settings(quick=True)] == list(render.WORKLOADS)


def test_a_framework_that_fails_is_said_to():
    found, gpu = render.evidence()
    failing = copy.deepcopy(found)
    for part in failing["comparison"]["found"].values():
        part["rows"]["Flower"] = {"failed": "no such package"}
    assert "failed: no such package" in render.page(failing, gpu)


def test_a_table_of_memory_is_shown_where_there_is_one():
    found, gpu = render.evidence()
    table = {"found": {"headings": ["learners", "estimate"], "rows": [["16", "1 MB"]]}}
    assert "| 16 | 1 MB |" in render.page({**found, "memory": table}, gpu)


def test_the_learners_round_of_the_frameworks_is_that_of_the_loop(monkeypatch):
    monkeypatch.syspath_prepend(CONTESTANT_FILES)
    monkeypatch.delitem(sys.modules, "common", raising=False)
    from common import Setting, local_steps, samples

    setting = Setting("federated-logreg", 5, 3, 4, 2, 0.5, 0.3, 0.0)
    x, y = samples(setting, 5)
    model, losses = np.zeros(4, np.float32), []
    for r in range(5):
        played = [local_steps(model, x[r, :, i], y[r, :, i], setting, None) for i in range(3)]
        model = np.mean([local for local, _ in played], axis=0)
        losses.append([loss for _, loss in played])
    noise = loops.independent_noise(3, 4, 0.0, np.random.default_rng(0))
    assert np.allclose(losses, loops.federated_logreg(x, y, 0.5, 0.3, noise), atol=1e-6)
    assert json.loads(setting.text())["rounds"] == 5


@pytest.mark.parametrize("seed", [0])
def test_the_prototype_and_the_loop_learn_as_simulate_does(monkeypatch, seed):
    """Little noise and records that are all the same: three ways, one trajectory."""
    monkeypatch.setattr(sizes.Ring, "scale", 0.0)
    ring = sizes.Ring(5, 3)
    x, y = ring.records()
    x, y = np.repeat(x[:: ring.rows], ring.rows, axis=0), np.repeat(y[:: ring.rows], ring.rows)
    shaped = x.reshape(5, ring.rows, 3), y.reshape(5, ring.rows).astype(np.float32)
    rng = np.random.default_rng(seed)
    by_loop = loops.pd_ogd(*shaped, 20, sizes.STEP, sizes.CLIP, 0.0, rng).mean(axis=0)
    by_prototype = prototype.gossip(x, y.astype(np.float32), 20, ring.rows, sizes.STEP, sizes.CLIP, 0.0)
    assert np.allclose(by_loop, by_prototype, atol=1e-5)


def test_unit_laplace_noise_of_the_prototype():
    """Mean size 1 within 0.02, at 5e-7 false alarms; 2/3 and 3/2 of the scale would be far outside."""
    drawn = np.asarray(prototype.laplace(np.uint32(3), (400, 160)))
    assert abs(np.abs(drawn).mean() - 1) < 0.02
    assert abs((drawn > 0).mean() - 0.5) < 0.01
