"""The commands that make and run a network."""

from __future__ import annotations

import json
import os
import platform
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gossamer.cli import app
from gossamer.errors import ConfigurationError
from gossamer.net import NodeDirectory
from tests.test_zenoh_link import free_ports

ROOT = Path(__file__).parent.parent
FILE = """
problem = {kind = "logistic", dim = 2}
topology = {kind = "ring"}
algorithm = {name = "pd_ogd", budget = {epsilon = 1.0}, clip = 1.0, step = 0.1}
"""


def make(folder: Path, *options: str, text: str = FILE) -> tuple[int, str]:
    file = folder / "algorithm.toml"
    file.write_text(text)
    given = ["network", "init", str(folder / "net"), "--algorithm", str(file), *options]
    result = CliRunner().invoke(app, given)
    return result.exit_code, result.output + result.stderr


def places(folder: Path) -> dict[str, str]:
    """An environment in which a process finds this package, and keeps its marks in a folder."""
    return os.environ | {"PYTHONPATH": str(ROOT / "src"), "XDG_STATE_HOME": str(folder / "state")}


def test_directories_hold_what_a_node_needs_and_no_more(tmp_path: Path) -> None:
    code, said = make(tmp_path, "--nodes", "3", "--period", "0.5", "--source", "meters")
    assert code == 0, said
    assert "Put the samples of each node" in said
    for learner in range(3):
        node = NodeDirectory(tmp_path / "net" / f"node-{learner}")
        settings = node.settings()
        assert (settings.learner, settings.source, settings.pace["period"]) == (learner, f"meters/node-{learner}", 0.5)
        assert sorted(map(int, settings.peers)) == [i for i in range(3) if i != learner]
        for name in ("noise.key", "cert.key", "ledger.db"):
            assert stat.S_IMODE((node.path / name).stat().st_mode) == 0o600
        assert stat.S_IMODE(node.path.stat().st_mode) == 0o700
        assert not (node.path / "ca.key").exists()
    keys = {(tmp_path / "net" / f"node-{i}" / "noise.key").read_bytes() for i in range(3)}
    assert len(keys) == 3
    assert all(len(key) == 32 for key in keys)


@pytest.mark.parametrize(
    ("options", "change", "said"),
    [
        (["--nodes", "0"], ("", ""), "--nodes"),
        (["--nodes", "3", "--host", "a", "--host", "b"], ("", ""), "one for each of 3 nodes"),
        (["--nodes", "3"], ("pd_ogd", "pd_ogdd"), "The nearest is 'pd_ogd'"),
        (["--nodes", "3"], ("budget = {epsilon = 1.0}, clip = 1.0, ", ""), "budget"),
        (["--nodes", "3"], ('pd_ogd", budget = {epsilon = 1.0}, clip = 1.0,', 'd_ogd",'), "--no-guarantee"),
        (["--nodes", "3"], ('kind = "ring"', 'kind = "torus", rows = 2, columns = 2'), "4, as [topology] says"),
    ],
)
def test_refusals(tmp_path: Path, options: list[str], change: tuple[str, str], said: str) -> None:
    code, output = make(tmp_path, *options, text=FILE.replace(*change) if change[0] else FILE)
    assert code == 2
    assert said in " ".join(output.split())
    assert not (tmp_path / "net").exists()


def test_an_existing_directory_is_refused(tmp_path: Path) -> None:
    assert make(tmp_path, "--nodes", "2")[0] == 0
    code, said = make(tmp_path, "--nodes", "2")
    assert code == 2
    assert "does not exist yet" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("retry", "retry", ""),
        ("deadline", "deadlin", "the keys deadline, period, retry, patience"),
        ("label", "lable", "the keys network"),
        ('1 = "127', 'one = "127', "numbers of learners"),
        ("# [budget]\n# epsilon", "[budget]\nepsilonn", "the keys epsilon, delta"),
    ],
)
def test_settings_that_are_misspelt_are_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert make(tmp_path, "--nodes", "2")[0] == 0
    node = NodeDirectory(tmp_path / "net" / "node-0")
    file = node.path / "node.toml"
    file.write_text(file.read_text().replace(old, new))
    if not said:
        assert node.settings().learner == 0
        return
    with pytest.raises(ConfigurationError) as refused:
        node.settings()
    assert said in str(refused.value)


def test_three_nodes_run_to_their_end(tmp_path: Path) -> None:
    port = min(free_ports(1))
    options = ["--nodes", "3", "--port", str(port), "--http-port", str(port + 10), "--period", "0"]
    text = FILE.replace("dim = 2", "feature_bound = 1.0") + (
        '\n[data]\ngenerator = "heterogeneous-logistic"\ndim = 2\nalpha = 1.0\nbeta = 1.0\nseed = 1\n'
    )
    code, said = make(tmp_path, *options, "--samples", "20", text=text)
    assert code == 0, said
    samples = (tmp_path / "net" / "node-1" / "samples.jsonl").read_text().splitlines()
    assert len(samples) == 20
    assert set(json.loads(samples[0])) == {"x", "y"}
    place = places(tmp_path)
    command = [sys.executable, "-m", "gossamer", "network", "run", str(tmp_path / "net"), "--exchanges", "25"]
    done = subprocess.run(command, check=False, env=place, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("finished") >= 3
    verify = [sys.executable, "-m", "gossamer", "ledger", "verify", *map(str, (tmp_path / "net").glob("node-*"))]
    checked = subprocess.run(verify, check=False, env=place, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count("27 rows, chain intact") == 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arenas are glibc's")
@pytest.mark.parametrize(("allowed", "least", "most"), [(None, 1, 2), ("5", 3, 5)])
def test_threads_of_a_node_share_arenas(tmp_path: Path, allowed: str | None, least: int, most: int) -> None:
    """Each arena grows to the size of large messages; JAX and Zenoh have threads enough for sixteen."""
    port = min(free_ports(1))
    code, said = make(
        tmp_path, "--nodes", "1", "--port", str(port), "--http-port", "0", text=FILE.replace("ring", "complete")
    )
    assert code == 0, said
    node = ["node", str(tmp_path / "net" / "node-0"), "--exchanges", "1", "--no-linger"]
    told = tmp_path / "malloc.xml"
    script = f"""
import ctypes
from gossamer.cli import app
app({node!r}, standalone_mode=False)
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
opened = ctypes.c_void_p(libc.fopen({str(told)!r}.encode(), b"w"))
libc.malloc_info(0, opened)
libc.fclose(opened)
"""
    environment = places(tmp_path)
    environment.pop("MALLOC_ARENA_MAX", None)
    if allowed is not None:
        environment["MALLOC_ARENA_MAX"] = allowed
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, env=environment, capture_output=True, timeout=120
    )
    assert b'"event": "started"' in done.stderr, done.stderr
    assert least <= told.read_text().count("<heap nr=") <= most
