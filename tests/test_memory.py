"""Memory is estimated before a run, and one that does not fit is refused in words."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer import ConfigurationError, algorithms, problems, simulate, streams, topology
from gossamer.privacy import FastNoise
from gossamer.simulation import engine, memory
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.program import Program
from tests.instances import QUIET

DIM, STEPS = 3, 40


def parts(learners=2000):
    problem = problems.Logistic(DIM)
    stream = streams.smooth_cycle_logistic(learners, DIM, seed=0)
    return algorithms.noisy_ogd(problem, topology.ring(learners), step=1.0, scale=0.1), stream


def run(learners=2000, **options):
    return simulate(*parts(learners), STEPS, **(QUIET | options))


def there_are(monkeypatch, host, device=None):
    monkeypatch.setattr(memory, "available", lambda: (device, host))


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"learners": 200_000, "measure": "local", "every": 1}, r"larger every=.*measure='global'"),
        ({"learners": 200_000, "record": ["messages"], "every": STEPS}, r"record=\(\)"),
        ({"learners": 200, "chunk": 2**18}, "smaller chunk="),
        (
            {"learners": 1000, "every": STEPS, "chunk": 1, "seed": None, "seeds": range(1000)},
            "fewer learners, or fewer seeds",
        ),
    ],
)
def test_a_run_that_does_not_fit_is_refused_before_anything_is_computed(monkeypatch, options, advice):
    there_are(monkeypatch, 100_000_000)
    monkeypatch.setattr(engine, "start_many", None)  # nobody gets there
    with pytest.raises(ConfigurationError, match=rf"memory: got 'a run of about .*Try .*{advice}"):
        run(**options)


def test_the_error_says_how_much_there_is_and_where(monkeypatch):
    there_are(monkeypatch, 10**12, device=10_000)
    with pytest.raises(ConfigurationError, match=r"allowed: 0.008 MB, four fifths of what is free on the device"):
        run()
    there_are(monkeypatch, 1_000_000, device=10**12)
    with pytest.raises(ConfigurationError, match=r"allowed: 0.8 MB, four fifths of what is free on the host"):
        run()


def test_records_are_counted_before_they_are_put_on_the_device(monkeypatch):
    x = np.ones((40_000, DIM), np.float32)
    stream = streams.from_arrays(x, np.ones(len(x), int), learners=1000, seed=0)
    monkeypatch.setattr(stream, "on_device", None)
    there_are(monkeypatch, 10**12, device=500_000)
    algorithm = algorithms.d_ogd(problems.Logistic(DIM), topology.ring(1000), step=1.0)
    with pytest.raises(ConfigurationError, match="fewer records"):
        simulate(algorithm, stream, STEPS, seed=0, noise=lambda seed: FastNoise(seed, compiled=True))


def test_the_compiler_is_asked_where_a_run_comes_near(monkeypatch):
    asked, scratch = [], memory._scratch
    monkeypatch.setattr(memory, "_scratch", lambda *given: asked.append(scratch(*given)) or asked[-1])
    options = {"learners": 10_000}  # the program draws and reads by itself
    plain = run(**options)
    assert not asked
    there_are(monkeypatch, 200_000_000)
    assert (run(**options).losses == plain.losses).all()
    assert asked
    assert min(asked) > 0


def test_more_of_anything_takes_more():
    def total(learners=2000, steps=STEPS, seeds=1, record=(), every=1, length=8):
        algorithm, stream = parts(learners)
        feeder = Feeder(algorithm, stream, tuple(FastNoise(seed) for seed in range(seeds)))
        program = Program.of(algorithm, False, "local", record)
        return memory.estimate(feeder, program, memory.Shape(steps, seeds, every, length)).total

    for more in ({"learners": 3000}, {"steps": 80}, {"seeds": 2}, {"record": ("messages",)}, {"length": 16}):
        assert total(**more) > total()
    assert total(every=10) < total()


def test_what_is_available_is_something():
    device, host = memory.available()
    assert device is None or device > 0
    assert 2**20 < host < 2**50


def test_a_container_may_leave_less(monkeypatch, tmp_path):
    for name, number in (("max", 5_000_000), ("current", 2_000_000)):
        (tmp_path / name).write_text(f"{number}\n")
    monkeypatch.setattr(
        memory, "_GROUPS", ((tmp_path / "none", tmp_path / "none"), (tmp_path / "max", tmp_path / "current"))
    )
    monkeypatch.setattr(memory, "_cached_by_group", lambda: 500_000)
    assert memory._free_by_group() == 3_500_000
    (tmp_path / "max").write_text("max\n")
    assert memory._free_by_group() > 2**50
