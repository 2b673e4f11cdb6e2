"""The life of a network, in short: `python -m bench.life` tells it at length, for docs/evidence/life.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import life
from tests.networks import free_range


def test_a_network_lives_through_kills_and_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "machine"))
    (tmp_path / "net").mkdir()
    story = life.tell(tmp_path / "net", horizon=8, period=0.2, kills=1, port=free_range(6))
    assert story.killed == 3
    assert {name: len(runs) for name, runs in story.runs.items()} == {
        "north": 3,
        "south": 3,
        "west": 3,
        "east": 1,
        "mid": 3,
        "far": 2,
    }
