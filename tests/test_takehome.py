"""The model of a node for its owner: what was released, from nodes that run, wait, have ended or are sealed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gossamer import algorithms, topology
from gossamer.cli import app
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net import Sealer, prepared, take_home, try_network
from gossamer.privacy import Guarantee
from tests.networks import until
from tests.test_launch import (
    PROBLEM,
    QUICK,
    STATE_KEY,
    alone,
    content,
    go,
    hub,  # noqa: F401  # nodes speak in memory
    lingering,
    opened,
    private,
    run_together,
    sealed_node,
)

pytestmark = pytest.mark.unoptimized


def test_the_model_of_a_node_is_what_it_released(tmp_path: Path) -> None:
    """Of a node that runs, and of one that has ended: the last decision, or the mean of all but the start."""
    node, played = alone(tmp_path / "net"), []
    running = opened(node, 4)
    keep = running.node._play
    running.node._play = lambda exchange, decision: (played.append(np.array(decision)), keep(exchange, decision))
    with pytest.raises(ConfigurationError, match="nothing released yet"):
        take_home(node.path)
    with lingering(running):
        until(lambda: running.node.board.state == "finished")
        until(node.decisions.exists)
        assert take_home(node.path).origin.exchange == 4
        assert running.node.board.predict([0, 0, 1])["exchange"] == 4
    assert len(played) == 5
    model, mean = take_home(node.path), take_home(node.path, averaged=True)
    np.testing.assert_array_equal(model.decision, played[-1])
    np.testing.assert_allclose(mean.decision, np.mean(played[1:], axis=0), rtol=1e-6)
    assert (mean.origin.averaged, mean.origin.learner, mean.origin.network) == (4, 0, node.agreement().network)
    assert model.problem == PROBLEM
    assert model.spec == node.agreement().spec
    assert model.guarantee.sentence() == Guarantee.from_json(running.node.board.guarantee.to_json()).sentence()
    go(node, 6)
    assert (take_home(node.path).origin.exchange, take_home(node.path, averaged=True).origin.averaged) == (6, 6)


def test_what_was_released_answers_before_neighbours_do(tmp_path: Path) -> None:
    """A node that starts again, alone: it waits, and predicts."""
    algorithm = private(topology.complete(2))
    made = try_network(tmp_path / "net", prepared(algorithm), hosts=["127.0.0.1"] * 2, pace=QUICK)
    run_together(made, 3, algorithm)
    waiting = opened(made[0], 9, algorithm)
    with lingering(waiting):
        assert waiting.node.board.predict([0.5, 0.5, 0.5])["exchange"] == 3
        assert waiting.node.board.state == "starting"


def test_no_model_of_raw_decisions(tmp_path: Path) -> None:
    algorithm = algorithms.pdop(PROBLEM, topology.complete(2), clip=1.0, horizon=20)
    made = try_network(tmp_path / "net", prepared(algorithm), hosts=["127.0.0.1"] * 2, pace=QUICK)
    run_together(made, 3, algorithm)
    assert not made[0].decisions.exists()
    with pytest.raises(PrivacyError, match="functions of raw data"):
        take_home(made[0].path)


def test_the_model_of_a_sealed_node(tmp_path: Path) -> None:
    node, _, file = sealed_node(tmp_path)
    go(node, 3, state_key=file)
    with pytest.raises(PrivacyError, match="--state-key"):
        take_home(node.path)
    with pytest.raises(PrivacyError, match="cannot be unsealed"):
        take_home(node.path, sealer=Sealer(bytes(32)))
    model = take_home(node.path, sealer=Sealer(STATE_KEY))
    assert model.decision.tobytes() not in content(node)
    assert (
        CliRunner()
        .invoke(
            app,
            ["model", "export", str(node.path), "--out", str(tmp_path / "model.safetensors"), "--state-key", str(file)],
        )
        .exit_code
        == 0
    )


def test_decisions_of_another_node_are_not_taken(tmp_path: Path) -> None:
    one, other = alone(tmp_path / "one"), alone(tmp_path / "other")
    go(one, 3)
    shutil.copy(one.decisions, other.decisions)
    with pytest.raises(ConfigurationError, match=f"one of learner 0 of network {other.agreement().network}"):
        take_home(other.path)
    go(other, 2)
    assert take_home(other.path, averaged=True).origin.averaged == 2
    other.decisions.write_bytes(b"damaged")
    with pytest.raises(PrivacyError, match="remove the file"):
        take_home(other.path)
    go(other, 3)
    assert take_home(other.path).origin.exchange == 3


def test_commands_take_a_model_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = alone(tmp_path / "net")
    go(node, 3)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b,c\n0.5,-0.25,0.5\n")
    said = {}
    for command in (
        f"model export {node.path} --out model.safetensors",
        f"model export {node.path} --out mean.safetensors --averaged",
        "model show mean.safetensors",
        f"model predict model.safetensors rows.csv --agreement {node.path}/agreement.json",
        "model predict model.safetensors rows.csv --out predictions.jsonl",
    ):
        result = CliRunner().invoke(app, command.split())
        assert result.exit_code == 0, result.output
        said[command.split()[1]] = " ".join(result.stdout.split())
    assert "the mean of 3 decisions" in said["show"]
    assert "1 predictions in predictions.jsonl" in said["predict"]
    other = alone(tmp_path / "other")
    command = f"model predict model.safetensors rows.csv --agreement {other.path}/agreement.json"
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 2
    assert "allowed: one of network" in result.stderr
