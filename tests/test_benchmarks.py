"""docs/benchmarks.md is what `python -m bench.benchmarks render` makes of the evidence, with no number of its own."""

from __future__ import annotations

import ast
import copy
import json
import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bench import endless, loops, workloads
from bench.benchmarks import gpu, prototype, render, sizes
from bench.benchmarks.comparison import CONTESTANTS, settings
from gossamer import FastNoise, Rate, algorithms, problems, simulate, streams, topology

pytestmark = pytest.mark.unoptimized

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
    found, accelerated = render.evidence()
    slower = copy.deepcopy(found)
    for part in slower["comparison"]["found"].values():
        part["rows"]["Gossamer"]["seconds"] = [10 * taken for taken in part["rows"]["Gossamer"]["seconds"]]
    first, second = (
        re.search(r"\| Gossamer \| (.*) \|", render.page(each, accelerated))[1] for each in (found, slower)
    )
    rates = [[float(rate.strip("* ").replace(",", "")) for rate in row.split("|")] for row in (first, second)]
    assert np.allclose(rates[0], 10 * np.array(rates[1]), rtol=0.01)


def test_the_evidence_says_what_it_was_measured_on():
    found, accelerated = render.evidence()
    assert set(render.PARTS) <= set(found)
    for part in render.PARTS:
        assert {"busy", "quick", "machine", "seconds in all"} <= set(found[part])
    assert accelerated is None or accelerated["machine"]["device"]


def test_every_contestant_has_a_script_and_a_line():
    assert {one.name for one in CONTESTANTS} == set(render.NOTES)
    assert all((CONTESTANT_FILES / one.script).exists() for one in CONTESTANTS)
    assert [one.workload for one in settings(quick=True)] == list(render.WORKLOADS)


def test_a_framework_that_fails_is_said_to():
    found, accelerated = render.evidence()
    failing = copy.deepcopy(found)
    for part in failing["comparison"]["found"].values():
        part["rows"]["Flower"] = {"failed": "no such package"}
    assert "failed: no such package" in render.page(failing, accelerated)


def test_the_table_of_memory_is_that_of_the_evidence():
    """19 of 20 within a fifth, say page and evidence; one more that is not makes it 19 of 21."""
    found, accelerated = render.evidence()
    runs = found["memory"]["found"]["runs"]
    near = sum(abs(run["measured"] / run["estimate"] - 1) <= 0.2 for run in runs)
    assert f"Of {len(runs)} runs {near} lie within 20%" in render.page(found, accelerated).replace("\n", " ")
    far = {**runs[0], "estimate": 100.0, "measured": 150.0}
    page = render.page({**found, "memory": {"found": {"runs": [*runs, far]}}}, accelerated).replace("\n", " ")
    assert f"Of {len(runs) + 1} runs {near} lie within 20%" in page
    assert "| 100 MB | 150 MB | 1.50 |" in page


def test_rows_of_an_accelerator_are_shown_with_what_failed():
    found, _ = render.evidence()
    times = {"rounds": 10, "seconds": [1.0, 2.0, 4.0]}
    rows = [
        {"row": "copy", "bytes a second": 1e12},
        {"row": "20 learners and a server", "beside": "federated-logreg", "gossamer": times},
        {"row": "gossip", "learners": 16, "dim": 100, "bytes a round": 1e11, "gossamer": times, "prototype": times},
        {"row": "gossip", "learners": 10**6, "dim": 100, "gossamer": gpu.measured(no_memory), "prototype": times},
    ]
    about = {"device": "a GPU", "cores": 1, "processor": "P", "memory GB": 1, "versions": {"jax": "1"}, "commit": "c"}
    page = render.page(found, {"machine": about, "rows": rows})
    assert re.search(r"\| gossip \| 16 \| 100 \| 5.00 \(2.50 to 10.0\) \| [\d,]+ \| 5.00 \| 0.50 \|", page)
    assert "| gossip | 1,000,000 | 100 | failed: MemoryError: too large |" in page
    assert "One a GPU plays 5.00 rounds a second with 16 learners" in page


def no_memory():
    raise MemoryError("too large")


def test_a_row_takes_about_the_seconds_that_are_asked_for(monkeypatch):
    """A call takes 0.5 s, and a round a millisecond: 2 s more than a call are 2,048 rounds."""
    played: list[int] = []
    monkeypatch.setattr(sizes, "seconds", lambda run: (run(), 0.5 + 1e-3 * played[-1])[1])
    row = sizes.timed(played.append, target=2.0, repeats=3)
    assert row["rounds"] == 2048
    assert np.allclose(row["seconds"], 0.5 + 2.048)


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


def test_the_prototype_and_the_loop_play_what_d_ogd_plays():
    """Without noise, and with records that are all the same: three ways, one trajectory."""
    ring = sizes.Ring(5, 3)
    x, y = ring.records()
    x, y = np.repeat(x[:: ring.rows], ring.rows, axis=0), np.repeat(y[:: ring.rows], ring.rows)
    shaped = x.reshape(5, ring.rows, 3), y.reshape(5, ring.rows).astype(np.float32)
    rng = np.random.default_rng(0)
    by_loop = loops.pd_ogd(*shaped, 20, sizes.STEP, sizes.CLIP, 0.0, rng).mean(axis=0)
    by_prototype = prototype.gossip(x, y.astype(np.float32), 20, ring.rows, sizes.STEP, sizes.CLIP, 0.0)
    ours = algorithms.d_ogd(problems.Logistic(3), topology.ring(5), step=Rate(sizes.STEP), clip=sizes.CLIP)
    stream = streams.from_arrays(x[:: ring.rows], y[:: ring.rows], 5, seed=0, shuffle=False, passes=20)
    by_simulate = simulate(ours, stream, 20, seed=0, measure="local", progress=False).losses.mean(axis=0)
    assert np.allclose(by_loop, by_prototype, atol=1e-5)
    assert np.allclose(by_loop, by_simulate, atol=1e-5)


class Silence(FastNoise):
    """Noise that is zero."""

    def draw(self, *args, **options):
        return np.zeros_like(super().draw(*args, **options))


def test_the_loop_of_ldp_endless_plays_what_simulate_plays():
    rounds, made = 60, endless.algorithm()
    x, y = endless.samples(rounds)
    flat = x.reshape(-1, endless.DIM), y.reshape(-1)
    stream = streams.from_arrays(*flat, endless.LEARNERS, seed=0, shuffle=False)
    silent = partial(Silence, compiled=False)
    run = simulate(made, stream, rounds, seed=0, noise=silent, measure="local", every=1, progress=False)
    losses = endless.loop(x, y, endless.weights_of(made), 0.0, np.random.default_rng(0))
    assert np.ptp(losses) > 0.1
    np.testing.assert_allclose(losses, run.losses.mean(axis=1), rtol=1e-4)


def test_the_loop_of_gossip_plays_what_simulate_plays():
    rounds, n, d = 60, workloads.GOSSIP_LEARNERS, workloads.GOSSIP_DIM
    x, y = workloads._samples(rounds * n, d)
    stream = streams.from_arrays(x, y, n, seed=0, shuffle=False)
    run = simulate(workloads.noisy_ring(0.0), stream, rounds, seed=0, measure="local", every=1, progress=False)
    weights, rng = topology.ring(n).matrix().astype(np.float32), np.random.default_rng(0)
    by_round = x.reshape(rounds, n, d), y.reshape(rounds, n).astype(np.float32)
    losses = loops.gossip_logreg(*by_round, weights, workloads.GOSSIP_STEP, 0.0, rng)
    np.testing.assert_allclose(losses, run.losses, atol=1e-6)


def test_unit_laplace_noise_of_the_prototype():
    """Mean size 1 within 0.02, at 5e-7 false alarms; 2/3 and 3/2 of the scale would be far outside."""
    drawn = np.asarray(prototype.laplace(np.uint32(3), (400, 160)))
    assert abs(np.abs(drawn).mean() - 1) < 0.02
    assert abs((drawn > 0).mean() - 0.5) < 0.01
