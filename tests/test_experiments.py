"""The engine of studies: what it runs, keeps, resumes and refuses."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from gossamer import Budget, DataError, algorithms, metrics, problems, sets, simulate, streams, topology
from gossamer.cli.commands import app
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, GossamerError
from gossamer.experiments import (
    Asked,
    Cell,
    Engine,
    Measured,
    Metric,
    Section,
    Store,
    Study,
    Tuned,
    below,
    measures,
    single,
    sweep,
    tuning_seeds,
)
from gossamer.simulation import checkpoint
from gossamer.streams import Stream

STEPS = 60
PROBLEM = problems.Logistic(3, l2=0.1)


@cache
def data(seed: int) -> Stream:
    return streams.heterogeneous_logistic(4, 3, 0.1, 0.1, seed=seed)


def make(epsilon: float = 1.0, step: float = 0.1, clip: float = 1.0) -> Algorithm:
    return algorithms.pd_ogd(PROBLEM, topology.ring(4), budget=Budget(epsilon), clip=clip, step=step)


def cell(name: str = "pd_ogd", seeds: Any = (0, 1), what: Any = None, **options: Any) -> Cell:
    given = {key: options.pop(key) for key in ("epsilon", "step", "clip") if key in options}
    kept = what or [measures.final_loss(), measures.average_loss()]
    return Cell(name, partial(make, **given), data, STEPS, kept, seeds=seeds, **options)


def number(value: int, compute: Callable[[], dict[str, Any]] | None = None) -> Measured:
    return Measured(f"number {value}", {"number": value}, compute or (lambda: {"number": value}))


def never() -> dict[str, Any]:
    raise AssertionError("a finished cell was computed again")


# What runs


def test_cells_that_differ_in_numbers_run_together_and_give_what_simulate_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together: list[int] = []
    real = measures.metrics.average_loss

    def watched(cells: list[Cell], *rest: Any) -> Any:
        together.append(len(cells))
        return runs(cells, *rest)

    engine = Engine()
    runs = engine._runs
    monkeypatch.setattr(engine, "_runs", watched)
    found = engine.find({e: cell(f"epsilon {e}", epsilon=e) for e in (0.5, 1.0, 2.0)} | {"5": cell(data=(5,))})
    assert sorted(together) == [1, 3]
    alone = simulate(make(0.5), data(0), STEPS, seeds=[0, 1], progress=False, every=1)
    np.testing.assert_allclose(found[0.5]["average loss"][0], real(alone), rtol=1e-5)
    assert found[0.5].at("average loss") == list(range(1, STEPS + 1))
    assert found[0.5].values["messages"] == alone.messages
    promised = found[0.5].guarantee.because(alone.guarantee.reason)
    assert promised == alone.guarantee


@pytest.mark.parametrize(
    ("given", "shape", "count"),
    [((3,), (1, 2), 2), ((3, 4, 5), (3, 2), 3), (None, (2, 1), 2)],
)
def test_repetitions_are_streams_or_seeds(given: Any, shape: tuple[int, ...], count: int) -> None:
    found = Engine().find({"it": cell(data=given)})["it"]
    assert found["final loss"].shape == shape
    assert len(found.estimate("final loss").values) == count
    first = simulate(make(), data(0 if given is None else 3), STEPS, seeds=[0], progress=False)
    assert found["final loss"][0, 0] == pytest.approx(metrics.average_loss(first)[:, -1].mean(), rel=1e-6)
    assert found.estimate("average loss").mean == pytest.approx(found.estimate("final loss").mean, rel=1e-6)
    assert len(found.curve("mine", "average loss").mean) == STEPS


def test_metrics_against_the_best_decision_are_those_of_gossamer_metrics() -> None:
    at = [1, 10, STEPS]
    what = [measures.tracking_error(at), measures.instantaneous_regret(at), measures.static_regret()]
    found = Engine().find({"it": cell(what=what, every=1)})["it"]
    run = simulate(make(), data(0), STEPS, seeds=[0, 1], every=1, record=["decisions"], progress=False)
    played = np.concatenate([run.transcript["decisions"], run.decisions[:, None]], axis=1)[:, at]
    for seed in (0, 1):
        error = metrics.tracking_error(played[seed], PROBLEM, data(0), at)
        regret = metrics.instantaneous_regret(played[seed], PROBLEM, data(0), at)
        np.testing.assert_allclose(found[what[0].word][0, seed], error, rtol=1e-4)
        np.testing.assert_allclose(found[what[1].word][0, seed], regret, rtol=1e-4, atol=1e-7)
    expected = metrics.static_regret(run, PROBLEM, data(0))[:, 0]
    np.testing.assert_allclose(found["static regret"][0, :, -1], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("averaged", [False, True])
def test_pseudo_regret_is_the_mean_over_seeds(averaged: bool) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    problem = problems.LeastSquares(4, domain=sets.L2Ball(1.0))
    stream = streams.common(rows, rows @ np.ones(4, np.float32))
    algorithm = algorithms.dpsda_c(problem, topology.ring(4), budget=Budget(1.0, 1e-5), clip=1.0, step=0.1, horizon=40)
    what = [measures.pseudo_regret(averaged)]
    options: dict[str, Any] = {"seeds": (0, 1, 2), "every": 1, "measure": "joint"}
    found = Engine().find({"it": Cell("dpsda_c", lambda: algorithm, lambda _: stream, 40, what, **options)})["it"]
    run = simulate(algorithm, stream, 40, record=["decisions"], progress=False, **options)
    plays = metrics.joint_decisions(run.transcript["decisions"], algorithm.coordinates or ())
    plays = metrics.running_average(plays) if averaged else plays
    expected = metrics.pseudo_regret(plays, problem, stream)
    assert found.estimate(what[0].word).mean == pytest.approx(expected, rel=1e-5)
    assert len(set(found[what[0].word][0])) == 3


def test_what_is_not_finite_comes_back() -> None:
    odd = Metric("odd", lambda played: np.array([[np.inf, -np.inf, np.nan, 0.1]] * len(played.run.losses)))
    found = Engine().find({"it": cell(what=[odd])})["it"]["odd"]
    np.testing.assert_array_equal(found[0, 0], [np.inf, -np.inf, np.nan, 0.1])


@pytest.mark.parametrize(
    "other",
    [
        cell(epsilon=2.0),
        cell(seeds=(0, 2)),
        cell(data=(1,)),
        cell(every=3),
        cell(measure="local"),
        cell(what=[measures.final_loss()]),
        cell(test=data(9).read(0, 1)),
    ],
)
def test_whatever_differs_is_another_cell_and_names_are_not(other: Cell) -> None:
    engine = Engine()
    assert engine.key(cell()) != engine.key(other)
    assert engine.key(cell()) == engine.key(cell("another name", alone=True))


def test_functions_that_are_not_told_apart_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"other: setting: got \{'number': 1\}; .* that of number 1"):
        Engine().find({"one": number(1), "other": Measured("other", {"number": 1}, never)})


def test_streams_that_differ_late_are_told_apart() -> None:
    """A stream whose order says nothing is told by all of its samples."""
    x = np.zeros((400, 3), np.float32)
    other = x.copy()
    other[399] = 1
    engine = Engine()
    keys = {
        engine.key(
            Cell("a", make, lambda _, x=x: streams.from_arrays(x, np.zeros(400, int), 4, seed=0, shuffle=False), n, ())
        )
        for x, n in ((x, 100), (other, 100), (x, 99))
    }
    assert len(keys) == 3


# Tuning


def tuned(start: Any, by: Any = "loss", grid: Any = None) -> tuple[Tuned, list[int]]:
    """The best setting is clip 2, step 30; `asked` counts the trials."""
    asked: list[int] = []

    def trial(clip: int, step: int) -> Measured:
        def compute() -> dict[str, Any]:
            asked.append(clip)
            return {"loss": [[(clip - 2) ** 2 + (step - 30) ** 2 / 100]]}

        return Measured("trial", {"trial of clip": clip, "step": step}, compute)

    grid = grid or {"clip": (1, 2, 3, 4), "step": (10, 20, 30)}
    return Tuned("it", grid, trial, lambda **chosen: Measured("final", chosen, lambda: chosen), by, start), asked


@pytest.mark.parametrize(
    ("start", "trials"), [(None, 12), ({"clip": 2, "step": 30}, 4), ({"clip": 1, "step": 10}, 6), ("another", 4)]
)
def test_tuning_finds_the_best_setting_with_as_few_trials(start: Any, trials: int) -> None:
    it, asked = tuned(tuned(None)[0] if start == "another" else start)
    engine = Engine()
    if start == "another":
        engine.find({"first": it.start})
    found = engine.find({"it": it})["it"]
    assert (found.setting, found.values["clip"]) == ({"clip": 2, "step": 30}, 2)
    assert len(asked) == (0 if start == "another" else trials)


def test_what_is_not_a_number_is_never_best() -> None:
    it, _ = tuned(None, by=lambda result: float("nan") if result["loss"][0, 0] == 0 else result["loss"][0, 0])
    assert Engine().find({"it": it})["it"].setting != {"clip": 2, "step": 30}


def test_trials_run_in_one_program_and_have_seeds_of_their_own() -> None:
    said: list[str] = []
    grid = {"step": (0.01, 0.1, 1.0)}
    it = Tuned("it", grid, partial(cell, "trial", tuning_seeds(2)), partial(cell, "final", (0, 1)), "final loss")
    found = Engine(say=said.append).find({"it": it})["it"]
    assert said[0] == "0 of at least 4: trial and 2 more"
    assert said[1].startswith("3 of 4, about a minute left: final")
    assert set(tuning_seeds(2)).isdisjoint(found.cell.setting["seeds"][0])


# What is refused before anything runs


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (cell("case B", clip=-1.0), r"case B: clip: got -1"),
        (Cell("case B", lambda: 1 / 0, data, STEPS, ()), r"case B: got ZeroDivisionError: division by zero"),
        (Tuned("case B", {"clip": (-1.0,)}, partial(cell, "trial"), cell, "final loss"), r"trial: clip: got -1"),
    ],
)
def test_a_case_that_cannot_be_built_is_named_before_anything_runs(broken: Any, message: str) -> None:
    engine = Engine()
    with pytest.raises(ConfigurationError, match=message):
        engine.find({"first": number(1), "second": broken})
    assert engine.computed == 0


def test_missing_data_are_an_error_that_names_the_case() -> None:
    def nowhere(seed: int) -> Stream:
        raise DataError("letter.npz is not there: give its directory with --data")

    with pytest.raises(DataError, match=r"case C: letter.npz is not there"):
        Engine().find({"it": Cell("case C", make, nowhere, STEPS, ())})


def test_what_fails_in_a_run_names_the_cell_and_keeps_the_others(tmp_path: Path) -> None:
    store, broken = Store(tmp_path), Metric("broken", lambda played: 1 / 0)
    with pytest.raises(ConfigurationError, match=r"case D: got ZeroDivisionError"):
        Engine(store).find({"first": number(1), "second": cell("case D", what=[broken])})
    assert [file.suffix for file in tmp_path.iterdir()] == [".json"]
    Engine(Store(tmp_path)).find({"first": number(1, never)})


# What is kept


@pytest.mark.parametrize("moment", range(4))
def test_an_interruption_at_any_cell_loses_that_cell_only(moment: int, tmp_path: Path) -> None:
    def interrupted() -> dict[str, Any]:
        raise KeyboardInterrupt

    wanted = {place: number(place, interrupted if place == moment else None) for place in range(4)}
    with pytest.raises(KeyboardInterrupt):
        Engine(Store(tmp_path)).find(wanted)
    assert len(list(tmp_path.iterdir())) == moment  # no lock, and nothing half-written
    engine = Engine(Store(tmp_path))
    found = engine.find({place: number(place, never if place < moment else None) for place in range(4)})
    assert [found[place].values["number"] for place in range(4)] == [0, 1, 2, 3]
    assert engine.computed == 4 - moment


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_full_disk_is_an_error_and_leaves_nothing_half_written(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if where == "fsync" else (Path, "replace")), full)
        with pytest.raises(DataError, match=r"cannot be written: no space left on device. All finished cells are kept"):
            Engine(Store(tmp_path)).find({"it": number(1)})
    assert not list(tmp_path.iterdir())
    assert Engine(Store(tmp_path)).find({"it": number(1)})["it"].values["number"] == 1


@pytest.mark.parametrize(
    "harm",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"number": 1}, "sum"', '"number": 2}, "sum"').replace(
            '"values": {"number": 1', '"values": {"number": 2'
        ),
        lambda text: text.replace('"setting": {"number": 1', '"setting": {"number": 3'),
        lambda text: "[]",
        lambda text: "",
    ],
)
def test_a_damaged_cell_is_refused_with_its_file(harm: Callable[[str], str], tmp_path: Path) -> None:
    Engine(Store(tmp_path)).find({"it": number(1)})
    (file,) = tmp_path.iterdir()
    whole = file.read_text()
    assert harm(whole) != whole
    file.write_text(harm(whole))
    with pytest.raises(DataError, match=rf"{file.name} is damaged: remove it"):
        Engine(Store(tmp_path)).find({"it": number(1)})
    file.unlink()
    assert Engine(Store(tmp_path)).find({"it": number(1)})["it"].values["number"] == 1


def test_a_long_cell_goes_on_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted while it runs, it reads the samples before only to see that they are the same."""
    monkeypatch.setattr("gossamer.experiments.engine._FIRST", 1.0)
    monkeypatch.setattr(checkpoint, "_SECONDS", 0.0)
    real, kept = checkpoint.Keeper.keep, []

    def stopping(self: Any, progress: Any, *, now: bool = False) -> None:
        real(self, progress, now=now)
        kept.append(progress.exchanges)
        if not now:
            raise KeyboardInterrupt

    long = partial(Cell, "long", make, data, 40_000, [measures.final_loss()], seeds=(0, 1))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Keeper, "keep", stopping)
        with pytest.raises(KeyboardInterrupt):
            Engine(Store(tmp_path)).find({"it": long()})
    assert 0 < kept[-1] < 40_000
    assert [file.suffix for file in tmp_path.iterdir()] == [".part"]
    found = Engine(Store(tmp_path)).find({"it": long()})["it"]
    assert [file.suffix for file in tmp_path.iterdir()] == [".json"]
    np.testing.assert_array_equal(found["final loss"], Engine().find({"it": long()})["it"]["final loss"])


WORKER = """
import os, sys, time
from pathlib import Path
from gossamer.experiments import Engine, Measured, Store

def compute(place):
    with open(sys.argv[2], "a") as log:
        log.write(f"{place}\\n")
    time.sleep(0.02)
    return {"number": place}

def cell(place):
    return Measured(f"number {place}", {"number": place}, lambda: compute(place))

cells = {place: cell(place) for place in range(30)}
found = Engine(Store(Path(sys.argv[1]))).find(cells)
assert [found[place].values["number"] for place in range(30)] == list(range(30))
"""


def test_processes_share_the_cells_even_where_one_is_killed(tmp_path: Path) -> None:
    """Two processes on one store; one is killed. No cell is lost; twice is only what the killed one was at."""
    log, cells = tmp_path / "log", tmp_path / "cells"
    command = [sys.executable, "-c", WORKER, str(cells), str(log)]
    workers = [subprocess.Popen(command) for _ in range(2)]
    while not log.exists() or len(log.read_text().split()) < 10:
        time.sleep(0.01)
        assert any(worker.poll() is None for worker in workers)
    workers[0].send_signal(signal.SIGKILL)
    assert [worker.wait(60) for worker in workers] == [-signal.SIGKILL, 0]
    computed = [int(place) for place in log.read_text().split()]
    assert set(computed) == set(range(30))
    assert len(computed) <= 31
    assert {file.suffix for file in cells.iterdir()} <= {".json", ".lock"}
    engine = Engine(Store(cells))
    engine.find({place: number(place, never) for place in range(30)})
    assert engine.computed == 0


# Studies and sweeps


def little(asked: Asked) -> Study:
    def cells() -> dict[float, Cell]:
        return {epsilon: cell(f"epsilon {epsilon:g}", epsilon=epsilon) for epsilon in (0.5, 8.0)}

    def claims(found: Any) -> list[Any]:
        low, high = (found[epsilon].estimate("final loss") for epsilon in (8.0, 0.5))
        return [single("more epsilon, less loss", "ours", below(low, high))]

    def unwanted() -> dict[str, Cell]:
        raise AssertionError("a figure that nobody asked for was planned")

    return Study(
        "A little study",
        [
            Section("epsilon", "By epsilon", cells, figure=1, claims=claims),
            Section("other", "Another figure", unwanted, figure=2),
        ],
    )


def test_a_study_plans_only_what_is_asked_for_and_writes_everything(tmp_path: Path) -> None:
    page = little(Asked()).run(Engine(Store(tmp_path / "cells")), figure=1, command="again")
    page.write(tmp_path)
    assert [part.name for part in page.parts] == ["claims", "epsilon", "evidence"]
    assert page.verdicts.rows[0][:2] == ("ours", "more epsilon, less loss")
    table = page.parts[1].table
    assert table is not None
    assert table.columns == ("run", "final loss", "average loss", "guarantee")
    assert [row[0] for row in table.rows] == ["0.5", "8.0"]
    raw = json.loads((tmp_path / "raw.json").read_text())
    assert {each["name"] for each in raw.values()} == {"epsilon 0.5", "epsilon 8"}
    with pytest.raises(ConfigurationError, match=r"--figure: got 3; allowed: one of the figures 1, 2"):
        little(Asked()).run(figure=3)


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


FILE = """
from gossamer.experiments import Measured, Section, Study, decided, single

def study(asked):
    cells = lambda: {"it": Measured("it", {"quick": asked.quick}, lambda: {"number": 1 if asked.quick else 2})}
    claims = lambda found: [single(f"number {found['it'].values['number']}", "ours", decided(True, "so"))]
    return Study("Mine", [Section("mine", "Mine", cells, figure=1, claims=claims)])
"""


def test_the_command_runs_the_study_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    out = command("study", tmp_path / "mine.py", "--quick", "--out", tmp_path / "out")
    assert out.exit_code == 0, out.output
    assert "number 1" in out.stdout
    assert "1 cells were run, 0 were there already" in out.stdout
    again = command("study", tmp_path / "mine.py", "--quick", "--figure", 1, "--out", tmp_path / "out")
    assert "0 cells were run, 1 were there already" in again.stdout
    assert "--figure 1 --quick" in (tmp_path / "out" / "report.html").read_text()
    for text, allowed in (("x = 1", "defines `study`"), ("study = 3", "defines `study`")):
        (tmp_path / "mine.py").write_text(text)
        assert allowed in " ".join(command("study", tmp_path / "mine.py").stderr.split())


def test_a_sweep_is_a_table_and_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = {"epsilon": (0.5, 8.0), "step": (0.01, 0.1)}
    found = sweep(make, grid, data(0), STEPS, seeds=range(2), metrics=[measures.final_loss()], out=tmp_path)
    assert found.best() == found.settings[int(np.argmin([value.mean for value in found.estimates()]))]
    assert found.best(most=True) != found.best()
    assert str(found).splitlines()[0].split("  ")[0] == "epsilon"
    found.to_csv(tmp_path / "it.csv")
    assert len((tmp_path / "it.csv").read_text().splitlines()) == 1 + 4 * 2
    assert len(found.plot().data) >= 2
    monkeypatch.setattr("gossamer.experiments.engine.simulate_many", never)
    again = sweep(make, grid, data(0), STEPS, seeds=range(2), metrics=[measures.final_loss()], out=tmp_path)
    assert again.estimates() == found.estimates()
    with pytest.raises(ConfigurationError, match="grid"):
        sweep(make, {}, data(0), STEPS, seeds=[0])


SWEPT = """
problem = {kind = "linear"}
data = {generator = "random-signs", dim = 3, seed = 1}
topology = {kind = "ring", learners = 4}
algorithm = {name = "pd_ogd", budget = {epsilon = [1, 2]}, clip = 1, step = [0.1, 1.0]}
simulate = {steps = 20, seeds = [0, 1]}
"""


def test_the_command_sweeps_a_run_file(tmp_path: Path) -> None:
    file = tmp_path / "it.toml"
    file.write_text(SWEPT)
    out = command("sweep", file, "--out", tmp_path / "out")
    assert out.exit_code == 0, out.output
    assert "budget.epsilon 2, step 0.1" in " ".join(out.stdout.split())
    assert len(list((tmp_path / "out" / "cells").iterdir())) == 4
    for old, new, message in (
        ("[0.1, 1.0]", "[0.1, -1]", "step: got -1"),
        ("seeds = [0, 1]", 'seeds = [0, 1], checkpoint = "c"', "checkpoint"),
        ("[1, 2]}, clip = 1, step = [0.1, 1.0]", "1}, clip = 1, step = 1", "a list in place of a number"),
    ):
        file.write_text(SWEPT.replace(old, new))
        refused = command("sweep", file, "--out", tmp_path / "out")
        assert refused.exit_code == 2
        assert message in " ".join(refused.stderr.split())


def test_what_another_process_is_at_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is somebody else's until they have written; then theirs is read."""
    theirs, ours = Store(tmp_path), Engine(Store(tmp_path))
    key = ours.key(number(1))
    assert theirs.claim(key)
    assert not ours.store.claim(key)

    def finish(seconds: float) -> None:
        theirs.write(key, "number 1", {"number": 1}, {"number": 1})

    monkeypatch.setattr(time, "sleep", finish)
    assert ours.find({"it": number(1, never)})["it"].values == {"number": 1}
    assert ours.computed == 0


def test_a_store_that_cannot_be_locked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(GossamerError, match="a file system with locks"):
        Engine(Store(tmp_path)).find({"it": number(1)})
