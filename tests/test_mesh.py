"""Learners over several devices and processes: the runs of one device, and what is refused.

Everything runs in processes of its own (`meshes.py`), which start JAX with several fake devices. XLA picks how it adds
up by the size of an array, and fuses multiplications with additions where a loop lets it; both is turned off here, so
that what is left can be compared to the last bit.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from gossamer import ConfigurationError, NetworkError, algorithms, problems, simulate, streams, topology
from gossamer.simulation import watch
from gossamer.streams.order import Listed, Order
from gossamer.topology import Gossip
from gossamer.topology.halo import halo
from tests import meshes

pytestmark = pytest.mark.unoptimized
FLAGS = "--xla_cpu_max_isa=AVX --xla_cpu_experimental_ynn_fusion_type="


def started(count: int, *arguments: Any) -> subprocess.Popen[str]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS} --xla_force_host_platform_device_count={count}"
    command = [sys.executable, "-W", "error", "-m", "tests.meshes", *map(str, arguments)]
    where = Path(__file__).parent.parent
    paths = {"PYTHONPATH": os.pathsep.join([str(where), *sys.path])}
    environment = os.environ | paths | {"XLA_FLAGS": flags}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=where, env=environment, text=True, **pipes)


def finished(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=240)[0]  # for a machine that does much else
    finally:
        process.kill()


def two(folder: Path, what: str) -> str:
    """What the first of two processes says; the second is ended when it has."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    both = [started(2, "process", folder, what, port, rank) for rank in (0, 1)]
    try:
        return finished(both[0])
    finally:
        both[1].kill()
        both[1].communicate()


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("devices")
    process = started(8, "devices", folder)
    said = finished(process)
    assert process.returncode == 0, said
    return json.loads((folder / "devices.json").read_text())


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("processes")
    said = two(folder, "agreed")
    files = [folder / f"process-agreed-{rank}.json" for rank in (0, 1)]
    assert all(file.exists() for file in files), said
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize("case", meshes.GOSSIP)
def test_gossip_on_eight_devices_is_that_of_one_to_the_last_bit(devices: dict[str, Any], case: str) -> None:
    assert set(devices["gossip"][case].values()) == {0.0}


@pytest.mark.parametrize("case", meshes.SERVED)
def test_sums_of_a_server_on_eight_devices_are_those_of_one(devices: dict[str, Any], case: str) -> None:
    assert max(devices["served"][case].values()) < 1e-5


def test_a_run_goes_on_on_another_mesh_and_on_none(devices: dict[str, Any]) -> None:
    for steps in ("7 steps", "13 steps", "20 steps"):
        assert set(devices["resumed"][steps].values()) == {0.0}
    assert "checkpoint (algorithm" in devices["resumed"]["another program"]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            "does not divide",
            "got '8 devices'; allowed: a number of devices that divides the 20 learners. Try 5 of them",
        ),
        ("more than there are", "got 16; allowed: at most 8, the local cpu devices. XLA_FLAGS="),
        ("no such axis", """got "the axes ('devices',)"; allowed: one axis, named "learners". Try Mesh("""),
        ("two axes", "('learners', 'rest')"),
        ("no mesh", "got '8'; allowed: a jax.sharding.Mesh, a number of local devices or None"),
        ("no device", "got 0; allowed: a whole number of at least 1"),
        ("debug", "got 8; allowed: None with debug=True"),
    ],
)
def test_meshes_that_are_refused(devices: dict[str, Any], case: str, said: str) -> None:
    assert devices["refused"][case].startswith("ConfigurationError: mesh: ")
    assert said in devices["refused"][case]


def test_a_device_has_the_records_of_its_own_learners(devices: dict[str, Any]) -> None:
    assert devices["records"] == {"step 0": True, "step 50": True, "records": [170] * 8}


def test_no_device_has_all_states_when_a_checkpoint_is_written(devices: dict[str, Any]) -> None:
    assert devices["a piece"] is False


def test_two_processes_compute_what_one_does(processes: list[dict[str, Any]]) -> None:
    for found in processes:
        assert found["devices"] == [4, 2, False]  # a number means devices of one's own
        assert set(found["apart"].values()) == {0.0}


def test_processes_that_disagree_are_refused(processes: list[dict[str, Any]]) -> None:
    first, second = (found["refused"] for found in processes)
    assert "mesh (algorithm algorithm step, process 0): got 0.1;" in first["step"]
    assert "mesh (algorithm algorithm step, process 1): got 1.1;" in second["step"]
    assert "mesh (steps, process 0): got 10;" in first["steps"]
    assert "process 1 refuses the run" in first["one refuses"]
    assert "steps: got -1" in second["one refuses"]
    assert "exchanges in the checkpoint, process 1): got 12;" in second["checkpoint"]


def test_a_process_that_is_silent_ends_the_run_of_the_others(processes: list[dict[str, Any]]) -> None:
    stopped = processes[0]["stopped"]
    assert stopped["error"].startswith("NetworkError: process 1 of the mesh was lost: ")
    assert stopped["error"].endswith("lost.checkpoint holds the run as last written; start all processes again")
    assert stopped["seconds"] < 60  # of which 3 in silence


class Store:
    """That of `jax.distributed`, with a second process that counts up to 2."""

    def __init__(self) -> None:
        self.signs, self.gone = {}, False

    def key_value_set(self, key: str, value: str, *, allow_overwrite: bool) -> None:
        if self.gone:
            raise jax.errors.JaxRuntimeError("gone")
        self.signs |= {key: value, "gossamer/alive/1": str(min(2, int(value)))}

    def key_value_dir_get(self, folder: str) -> list[tuple[str, str]]:
        return list(self.signs.items())


def test_who_is_silent_is_lost_and_so_is_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_EVERY", 0.01)
    monkeypatch.setattr(watch, "SILENT", 0.5)
    store = Store()
    watching = watch.Watch(store, 0)
    watching.check()
    time.sleep(1.0)
    with pytest.raises(NetworkError, match="process 1 of the mesh was lost"):
        watching.check()
    store.gone = True
    time.sleep(1.0)
    with pytest.raises(NetworkError, match="process 0 of the mesh"):
        watching.check()


def test_a_lost_process_ends_the_run_and_leaves_the_checkpoint(tmp_path: Path) -> None:
    said = two(tmp_path, "lost")
    found = json.loads((tmp_path / "process-lost-0.json").read_text())
    assert found["error"].startswith("NetworkError: "), said
    assert "lost.checkpoint holds the run as last written" in found["error"]
    assert found["seconds"] < 90
    algorithm, stream = meshes.pd_ogd(topology.ring(64)), meshes.Dying(64)
    file = tmp_path / "lost.checkpoint"
    whole, straight = (simulate(algorithm, stream, 40, seeds=meshes.SEEDS, every=3, checkpoint=c) for c in (file, None))
    np.testing.assert_allclose(whole.decisions, straight.decisions, rtol=1e-4, atol=1e-5)


def test_a_mesh_of_one_device_changes_nothing() -> None:
    algorithm = algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
    runs = [simulate(algorithm, streams.random_signs(4, 3, seed=1), 20, seed=0, mesh=mesh) for mesh in (None, 1)]
    assert (runs[0].losses == runs[1].losses).all()


def test_more_devices_than_there_are() -> None:
    algorithm = algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
    with pytest.raises(ConfigurationError, match="mesh: got 99; allowed: at most"):
        simulate(algorithm, streams.random_signs(4, 3, seed=1), 20, seed=0, mesh=99)


@pytest.mark.parametrize("partition", ["iid", "by-label", "listed"])
def test_a_part_of_an_order_plays_what_the_whole_plays(partition: str) -> None:
    rng, steps, parts = np.random.default_rng(2), np.arange(40), 4
    labels = rng.integers(0, 3, 100)
    if partition == "listed":
        order: Order = Listed(rng.integers(0, 100, (40, 8)))
    else:
        order = streams.from_arrays(labels[:, None], labels, 8, partition, seed=1, passes=9, copies=2).order
    for part in range(parts):
        used, own = order.among(part, parts)
        assert len(np.unique(used)) == len(used) < 100
        assert (used[own.records(steps)] == order.records(steps)[:, 2 * part : 2 * part + 2]).all()


@pytest.mark.parametrize("graph", [topology.ring(240), topology.random_regular(240, 4, seed=2), topology.isolated(240)])
@pytest.mark.parametrize("parts", [1, 3, 8])
def test_a_halo_holds_the_rows_that_lists_point_to(graph: topology.Topology, parts: int) -> None:
    lists, _ = Gossip().prepare(graph, np.zeros(1, np.int64))
    split, rows = halo(lists, parts), 240 // parts
    for device in range(parts):
        own = np.arange(device * rows, (device + 1) * rows)
        got = [
            other * rows + split[f"sent {far}"][other]
            for far in range(parts)
            if f"sent {far}" in split and (other := (device - far) % parts) != device
        ]
        reach = np.concatenate([own, *got])
        assert (reach[split["speakers"][own]] == lists["speakers"][own]).all()
