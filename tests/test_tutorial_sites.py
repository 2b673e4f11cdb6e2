"""The page for sites can be followed, from nothing to predictions; each node is a process of its own."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from gossamer.cli import app
from tests.networks import free_range

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorial-sites.md"


class Follower:
    """Does what the page says, at ports that are free."""

    def __init__(self) -> None:
        self.port, self.fingerprint = free_range(6), ""
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def obey(self, line: str) -> str:
        for said, ours in ((7400, self.port), (8400, self.port + 3)):
            for number in range(3):
                line = line.replace(f":{said + number}", f":{ours + number}")
        words = shlex.split(line)
        if words[0] == "gossamer" and words[1] == "node" and len(words) == 3:
            with Path(f"{words[2]}.log").open("wb") as log:
                command = [sys.executable, "-m", *words]
                self.nodes[words[2]] = subprocess.Popen(command, stderr=log, stdout=log, env=dict(os.environ))
            return ""
        if words[0] == "gossamer":
            return self.say(words[1:])
        if words[0] == "curl":
            self.wait()
        done = subprocess.run(
            [sys.executable, *words[1:]] if words[0] == "python" else words, capture_output=True, check=True
        )
        return done.stdout.decode()

    def say(self, words: list[str]) -> str:
        if words[:2] == ["node", "accept"]:
            refused = CliRunner().invoke(app, words)  # nobody is there to be asked
            assert "--fingerprint" in refused.stderr
            assert CliRunner().invoke(app, [*words, "--fingerprint", "0000"]).exit_code == 2
            words = [*words, "--fingerprint", self.fingerprint]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{words}: {done.output}{done.stderr}"
        if "admit" in words:
            self.fingerprint = done.output.strip().rpartition(": ")[2]
            assert ("\n" in self.fingerprint, len(self.fingerprint.split())) == (False, 12)
        return done.output

    def wait(self) -> None:
        """Until all nodes have used their records."""
        end = time.monotonic() + 90
        while not all("horizon_used_up" in Path(f"{name}.log").read_text() for name in self.nodes):
            assert time.monotonic() < end, "they do not come to their end"
            assert all(process.poll() is None for process in self.nodes.values())
            time.sleep(0.1)


@pytest.fixture
def follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Follower()
    yield made
    for process in made.nodes.values():
        process.kill()
        process.wait()
    print(*(file.read_text() for file in tmp_path.glob("*.log")))  # shown where the test fails


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl, which the page asks for: apt install curl")
def test_the_page_for_sites_can_be_followed(follower: Follower) -> None:
    blocks = re.findall(r"(?ms)^```(\w*)\n(.*?)^```", PAGE.read_text())
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    said = [follower.obey(line) for line in lines]
    shown, example = (block for language, block in blocks if language == "text")
    first = next(text for text in said if text.startswith("data "))
    assert first.splitlines()[-8:] == shown.splitlines()[-8:]
    answer = json.loads(said[-1])
    assert answer.keys() == json.loads(example).keys()
    assert (answer["prediction"], answer["exchange"]) == ("malignant", 18)
    with Path("clinics/test.csv").open(newline="") as opened:
        records = list(csv.DictReader(opened))
    for number in range(3):
        page = f"http://127.0.0.1:{follower.port + 3 + number}/predict"
        with urlopen(page, json.dumps(records).encode()) as asked:
            predicted = json.load(asked)["prediction"]
        right = sum(one == record["diagnosis"] for one, record in zip(predicted, records, strict=True))
        assert right / len(records) > 0.8  # always "benign" has 0.62
    logs = "".join(Path(f"{name}.log").read_text() for name in follower.nodes)
    assert not any(word in logs for word in ("unusable", "outside", "benign"))  # no terminal: a log may have readers
