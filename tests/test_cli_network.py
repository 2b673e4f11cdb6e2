"""The commands that make and run a network."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from cryptography import x509
from typer.testing import CliRunner

from gossamer import Budget, algorithms, problems, topology
from gossamer.cli import app
from gossamer.cli.watching import ask
from gossamer.errors import ConfigurationError
from gossamer.net import Ledger, NodeDirectory, prepared, try_network
from gossamer.net.web.access import new_token
from tests.networks import free_range

ROOT = Path(__file__).parent.parent
FILE = """
problem = {kind = "logistic", dim = 2}
topology = {kind = "ring"}
algorithm = {name = "pd_ogd", budget = {epsilon = 1.0}, clip = 1.0, step = 0.1}
"""


def make(folder: Path, *options: str, text: str = FILE) -> tuple[int, str]:
    file = folder / "algorithm.toml"
    file.write_text(text)
    given = ["network", "try", str(folder / "net"), "--algorithm", str(file), "--exchanges", "100000", *options]
    result = CliRunner().invoke(app, given)
    return result.exit_code, result.output + result.stderr


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes that have not begun: to be copied."""
    folder = tmp_path_factory.mktemp("network")
    code, said = make(folder, "--nodes", "2", "--port", str(free_range(2)), "--http-port", "0")
    assert code == 0, said
    return folder / "net"


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
        assert (settings.member, settings.source) == (f"node-{learner}", f"meters/node-{learner}")
        link = node.link(settings, topology.ring(3))
        assert (link.learner, sorted(link.peers)) == (learner, [i for i in range(3) if i != learner])
        assert node.agreement().pace.period == 0.5
        for name in ("noise.key", "cert.key", "pair.key", "ledger.db"):
            assert stat.S_IMODE((node.path / name).stat().st_mode) == 0o600
        assert stat.S_IMODE(node.path.stat().st_mode) == 0o700
        assert not (node.path / "coordinator.key").exists()
    names = [(i, name) for i in range(3) for name in ("noise.key", "pair.key")]
    keys = {(tmp_path / "net" / f"node-{i}" / name).read_bytes() for i, name in names}
    assert len(keys) == 6
    assert all(len(key) == 32 for key in keys)


@pytest.mark.parametrize(
    ("options", "change", "said"),
    [
        (["--nodes", "0"], ("", ""), "--nodes"),
        (["--nodes", "3", "--host", "a", "--host", "b"], ("", ""), "one for each of 3 nodes"),
        (["--nodes", "3", "--source", "a", "--source", "b"], ("", ""), "one for each of 3 nodes"),
        (["--nodes", "3", "--source", "a\nb"], ("", ""), "printable"),
        (["--nodes", "3", "--port", "65534"], ("", ""), "got '127.0.0.1:65536'"),
        (["--nodes", "3", "--http-port", "65534"], ("", ""), "got '127.0.0.1:65536'"),
        (["--nodes", "3", "--port", "0"], ("", ""), "a port from 1 to 65535"),
        (["--nodes", "3", "--host", "10.0.0.256"], ("", ""), "got '10.0.0.256:7400'"),
        (["--nodes", "3", "--host", "node 1"], ("", ""), "got 'node 1:7400'"),
        (["--nodes", "3", "--host", "[1:2]"], ("", ""), "got '[1:2]:7400'"),
        (["--nodes", "3", "--http-port", "7401"], ("", ""), "127.0.0.1:7401 would be used twice"),
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


def test_a_budget_that_makes_little_sense_is_said_aloud(tmp_path: Path) -> None:
    code, said = make(tmp_path, "--nodes", "2", text=FILE.replace("epsilon = 1.0", "epsilon = 1000.0"))
    assert code == 0, said
    assert "warning: epsilon 1,000 is no privacy to speak of" in said


def test_an_existing_directory_is_refused(tmp_path: Path) -> None:
    assert make(tmp_path, "--nodes", "2")[0] == 0
    code, said = make(tmp_path, "--nodes", "2")
    assert code == 2
    assert "does not exist yet" in said


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "net").touch()
    code, said = make(tmp_path, "--nodes", "2")
    assert code == 2
    assert "a directory that can be made" in said


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_ipv6_addresses_have_brackets_and_the_certificate_has_the_address(tmp_path: Path, host: str) -> None:
    assert make(tmp_path, "--nodes", "2", "--host", host, "--port", "7400")[0] == 0
    node = NodeDirectory(tmp_path / "net" / "node-1")
    link = node.link(node.settings(), topology.complete(2))
    assert (link.listen, {number: one.address for number, one in link.peers.items()}) == (
        "[::1]:7401",
        {0: "[::1]:7400"},
    )
    certificate = x509.load_pem_x509_certificate((node.path / "cert.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.IPAddress(ip_address("::1"))]


def test_nodes_on_several_hosts_may_have_pages_at_their_own_ports(tmp_path: Path) -> None:
    """On the machine of node 1 nobody listens at 7401 but node 1."""
    hosts = [option for name in ("a", "b") for option in ("--host", name)]
    assert make(tmp_path, "--nodes", "2", *hosts, "--port", "7400", "--http-port", "7401")[0] == 0


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([], ["net/node-0", "net/node-1"]),
        (["meters"], ["meters/node-0", "meters/node-1"]),
        (["meters"], ["meters"]),
        (["north", 'the "south" \\ side'], ["north", 'the "south" \\ side']),
    ],
)
def test_sources(tmp_path: Path, given: list[str], kept: list[str]) -> None:
    options = [option for name in given for option in ("--source", name)]
    code, said = make(tmp_path, "--nodes", str(len(kept)), *options, text=FILE.replace("ring", "complete"))
    assert code == 0, said
    for learner, name in enumerate(kept):
        node = NodeDirectory(tmp_path / "net" / f"node-{learner}")
        with Ledger.open(node.ledger, read_only=True) as ledger:
            assert ledger.identity.source == node.settings().source == name


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"hosts": ["127.0.0.1"] * 2}, "hosts"),
        ({"hosts": "abc"}, "hosts"),
        ({"sources": "abc"}, "sources"),
        ({"sources": ["a", "b", ""]}, "sources"),
    ],
)
def test_what_a_program_must_give_for_each_learner(tmp_path: Path, options: dict[str, Any], field: str) -> None:
    problem, ring = problems.Linear(2), topology.ring(3)
    algorithm = prepared(algorithms.pd_ogd(problem, ring, budget=Budget(1.0), clip=1.0, step=0.1))
    with pytest.raises(ConfigurationError, match=f"{field}: got .* one printable text for each of 3 learners"):
        try_network(tmp_path / "net", algorithm, **{"hosts": ["127.0.0.1"] * 3, **options})
    assert not (tmp_path / "net").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("label", "label", ""),
        ("label", "lable", "the keys member"),
        ("# [budget]\n# epsilon", "[budget]\nepsilonn", "the keys epsilon, delta"),
        ("# [budget]\n# epsilon = 1.0\n# delta", "[budget]\ndelta", "an epsilon"),
        ('member = "node-0"', "member = 0", "member: got 0; allowed: a text"),
        ("earlier = []", 'earlier = "../old"', "earlier: got '../old'; allowed: a list, each entry a text"),
        ("earlier = []", "earlier = [1]", "a list, each entry a text"),
        ("sealed = false", 'sealed = "no"', "sealed: got 'no'; allowed: true or false"),
        ("no_guarantee = false", 'no_guarantee = "false"', "true or false"),
        ("# [budget]\n# epsilon = 1.0", '[budget]\nepsilon = "1"', "a table, each value a number"),
        ('# [addresses]\n# "node-0" = "', '[addresses]\n"node-1" = 7 # "', "a table, each value a text"),
        ("earlier = []", 'earlier = []\nempty = "silent"', "the keys member"),
        ("earlier = []", "earlier = []\nbudget = 1.0", "budget: got 1.0; allowed: a table, each value a number"),
        ("label", "\udcff", "a TOML file"),
    ],
)
def test_settings_that_make_no_sense_are_named(network: Path, tmp_path: Path, old: str, new: str, said: str) -> None:
    node = NodeDirectory(Path(shutil.copytree(network / "node-0", tmp_path / "node-0")))
    file = node.path / "node.toml"
    changed = file.read_text().replace(old, new)
    assert old == new or changed != file.read_text()
    file.write_bytes(changed.encode(errors="surrogateescape"))
    if not said:
        assert node.settings().member == "node-0"
        return
    with pytest.raises(ConfigurationError) as refused:
        node.settings()
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("agreement.json", b"{", "ask for it again"),
        ("agreement.json", b"\xff", "ask for it again"),
        ("agreement.json", b"[]", "This is something else"),
        ("agreement.json", None, "ask for it again"),
        ("agreement.json", b'{"gossamer agreement": 99}', "another version of Gossamer"),
        ("agreement.json", b'{"gossamer agreement": 1}', "just the keys"),
        ("members.json", None, "gossamer node accept"),
        ("accepted.json", None, "gossamer node accept"),
        ("accepted.json", b"[]", "as it was written"),
        ("noise.key", None, "noise.key"),
        ("pair.key", None, "pair.key"),
        ("cert.pem", None, "cert.pem"),
        ("cert.key", None, "cert.key"),
        ("node.toml", None, "the directory of a node"),
    ],
)
def test_broken_directories_are_refused(
    network: Path, tmp_path: Path, name: str, content: bytes | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    node = Path(shutil.copytree(network / "node-0", tmp_path / "node-0"))
    (node / name).unlink()
    if content is not None:
        (node / name).write_bytes(content)
    result = CliRunner().invoke(app, ["node", str(node), "--exchanges", "1", "--no-linger"])
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert said in " ".join(result.stderr.split())


def test_three_nodes_run_to_their_end(tmp_path: Path) -> None:
    port = free_range(6)
    options = ["--nodes", "3", "--port", str(port), "--http-port", str(port + 3), "--period", "0.01"]
    text = FILE.replace("dim = 2", "feature_bound = 1.0") + (
        '\n[data]\ngenerator = "heterogeneous-logistic"\ndim = 2\nalpha = 1.0\nbeta = 1.0\nseed = 1\n'
    )
    code, said = make(tmp_path, *options, "--samples", "20", text=text)
    assert code == 0, said
    samples = (tmp_path / "net" / "node-1" / "samples.jsonl").read_text().splitlines()
    assert len(samples) == 20
    assert set(json.loads(samples[0])) == {"x", "y"}
    place = places(tmp_path)
    new_token(tmp_path / "net" / "node-1" / "page.token")  # its page is read all the same
    command = [sys.executable, "-m", "gossamer", "network", "run", str(tmp_path / "net"), "--exchanges", "25"]
    done = subprocess.run(command, check=False, env=place, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("finished") >= 3
    verify = [sys.executable, "-m", "gossamer", "ledger", "verify", *map(str, (tmp_path / "net").glob("node-*"))]
    checked = subprocess.run(verify, check=False, env=place, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count("27 rows, chain intact") == 3


@pytest.mark.parametrize(
    "answer",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n<html>", b"HTTP/1.0 200\r\nContent-Length: 9\r\n\r\n{"]
    + [b"HTTP/1.0 200\r\n\r\n" + text for text in (b"[]", b"{}", b'{"counts": 1, "state": 2}')],
)
def test_a_page_that_makes_no_sense_is_no_answer(answer: bytes, tmp_path: Path) -> None:
    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        http = f"127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "node.toml").write_text(f'member = "a"\nsource = "b"\nhttp = "{http}"\n')
        assert ask(NodeDirectory(tmp_path)) == {"state": "no answer"}
        thread.join()


def gossamer(*words: str) -> Result:
    return CliRunner().invoke(app, words)


class Follower:
    """Does what the page says, at other ports. Nodes are processes; all other commands run here, which is quicker."""

    def __init__(self, port: int) -> None:
        self.port, self.terminals, self.log = port, {}, Path("nodes.log")
        self.log.touch()

    def obey(self, line: str) -> None:
        line = line.replace("localhost:8400", f"localhost:{self.port + 3}")
        words = shlex.split(line)
        if words[:2] == ["gossamer", "node"]:
            self.start(words[2])
        elif words[0] == "pkill":
            self.kill(words[-1])
        elif words[0] == "gossamer":
            ports = ["--port", str(self.port), "--http-port", str(self.port + 3)] if "try" in words else []
            done = gossamer(*words[1:], *ports)
            assert done.exit_code == 0, f"{line}: {done.output}{done.stderr}"
        else:
            said = subprocess.run(line, check=True, shell=True, capture_output=True, text=True, timeout=20)
            assert said.stdout, line
            assert "error" not in said.stdout

    def start(self, node: str) -> None:
        with self.log.open("ab") as log:
            self.terminals[node] = subprocess.Popen([sys.executable, "-m", "gossamer", "node", node], stderr=log)
        if len(self.terminals) == 3:
            before, end = max(self.exchanges()), time.monotonic() + 60
            while min(self.exchanges()) < before + 2:
                assert time.monotonic() < end, "they do not go on"
                time.sleep(0.05)

    def kill(self, node: str) -> None:
        stopped = self.terminals.pop(node)
        stopped.kill()
        assert stopped.wait(20) == -signal.SIGKILL
        shutil.copytree(node, "old copy")

    def exchanges(self) -> list[int]:
        """Where each node is; -1 where it has no page or no decision."""
        nodes = [NodeDirectory(Path("clinics") / f"node-{learner}") for learner in range(3)]
        shown = [ask(node).get("last_exchange") for node in nodes]
        return [-1 if exchange is None else exchange for exchange in shown]

    def end(self) -> list[int]:
        """Ctrl-C in one terminal, SIGTERM in the others; their exit statuses."""
        for process, number in zip(self.terminals.values(), (signal.SIGINT, *[signal.SIGTERM] * 2), strict=True):
            process.send_signal(number)
        return [process.wait(20) for process in self.terminals.values()]


@pytest.fixture
def follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for name, value in places(tmp_path).items():
        monkeypatch.setenv(name, value)
    made = Follower(free_range(6))
    yield made
    for process in made.terminals.values():
        process.kill()
        process.wait()
    print(made.log.read_text())  # shown where the test fails


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl, which the page asks for: apt install curl")
def test_the_tutorial_can_be_followed(follower: Follower) -> None:
    text = (ROOT / "docs" / "tutorial-network.md").read_text().partition("make another network")[0]
    lines = [line for block in re.findall(r"(?ms)^```\n(.*?)^```", text) for line in block.splitlines()]
    commands = [line for line in lines if not line.startswith("{")]
    assert [line.split()[0] for line in commands].count("gossamer") >= 7
    for line in commands:
        follower.obey(line)
    assert '"event": "resumed", "learner": 1' in follower.log.read_text()
    directories = [f"clinics/node-{learner}" for learner in range(3)]

    def refused(node: str) -> str:
        done = gossamer("node", node)
        assert (done.exit_code, isinstance(done.exception, SystemExit)) == (2, True)
        return " ".join(done.stderr.split())

    assert "another process" in refused("clinics/node-1")
    assert follower.end() == [0, 0, 0], follower.log.read_text()
    for command in ("verify", "total"):
        done = gossamer("ledger", command, *directories)
        assert done.exit_code == 0, done.stderr
    number = Path("clinics/node-0/agreement.json")
    number.write_text(number.read_text().replace('"epsilon": 8', '"epsilon": 7'))
    shutil.rmtree("clinics/node-1")
    shutil.copytree("old copy", "clinics/node-1")
    Path("clinics/node-2/ledger.db").unlink()
    for node, reason in zip(
        directories, ("was changed after the coordinator signed it", "old copy", "ledger.db is gone"), strict=True
    ):
        assert reason in refused(node)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arenas are glibc's: run it on a Linux that has it")
@pytest.mark.parametrize(("allowed", "least", "most"), [(None, 1, 2), ("5", 3, 5)])
def test_threads_of_a_node_share_arenas(tmp_path: Path, allowed: str | None, least: int, most: int) -> None:
    """Each arena grows to the size of large messages; JAX and Zenoh have threads enough for sixteen."""
    port = free_range(1)
    code, said = make(
        tmp_path, "--nodes", "1", "--port", str(port), "--http-port", "0", text=FILE.replace("ring", "complete")
    )
    assert code == 0, said
    settings = tmp_path / "net" / "node-0" / "node.toml"
    settings.write_text(settings.read_text().replace("allow = []", 'allow = ["missing"]'))
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
