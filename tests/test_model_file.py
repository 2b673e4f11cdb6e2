"""A model in a file: it comes back as it was, and what was altered, cut, or is of somebody else is refused in words."""

from __future__ import annotations

import json
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import gossamer
from gossamer import Budget, algorithms, problems, simulate, streams, topology
from gossamer.data import Choice, Number, Schema
from gossamer.errors import ConfigurationError, DataError, PrivacyError
from gossamer.model import Origin, TrainedModel, load_model
from gossamer.model.tables import predict_file
from gossamer.model.tensors import from_bytes, to_bytes

pytestmark = pytest.mark.unoptimized

SCHEMA = Schema((Number("age", 0, 100), Choice("smoker", ("no", "yes"))), Choice("ill", ("healthy", "ill")))
DECISION = np.float32([2, -1, 1, 0.25])
COLUMNS = {"town": ["a", "b", "c"], "smoker": ["yes", "no", "no"], "age": [75, 5, 230]}
NETWORK = "5e1f" * 8
ALGORITHM = algorithms.pd_ogd(problems.Logistic(4), topology.ring(3), budget=Budget(1.0), clip=1.0, step=0.1)


def trained(**options):
    about = {
        "guarantee": ALGORITHM.guarantee,
        "origin": Origin("node", 120, averaged=7, network=NETWORK, learner=2),
        "spec": ALGORITHM.spec(),
    }
    return TrainedModel(problems.Logistic(4), DECISION, SCHEMA, **about | options)


@pytest.fixture
def saved(tmp_path):
    trained().save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def rewritten(file, change):
    """The file with other notes, as a careful forger or a later version would write it."""
    tensors, notes = from_bytes(file.read_bytes())
    file.write_bytes(to_bytes(tensors, {name: text for name, text in (notes | change).items() if text is not None}))


def test_a_model_comes_back_as_it_was(saved):
    model = gossamer.load_model(str(saved))
    ours = trained()
    assert (model.problem, model.schema, model.origin, model.spec) == (
        ours.problem,
        ours.schema,
        ours.origin,
        ours.spec,
    )
    assert model.guarantee.losses == ours.guarantee.losses
    assert model.guarantee.sentence().startswith("Recorded as proven")
    np.testing.assert_array_equal(model.decision, DECISION)
    frame = pd.DataFrame(COLUMNS)
    assert model.predict(frame).tolist() == ["ill", "healthy", "ill"]
    np.testing.assert_array_equal(model.predict_proba(frame), ours.predict_proba(frame))
    assert "learner 2 of network 5e1f" in str(model)
    assert saved.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "problem",
    [
        problems.Softmax(4, 3, l2=0.5, feature_bound=2.0),
        problems.Hinge(4),
        problems.LeastSquares(4),
        problems.small_cnn((10, 10, 1), 3, channels=2, hidden=2, seed=5),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_every_problem_comes_back(problem, tmp_path):
    decision = np.random.default_rng(0).normal(size=problem.dim).astype(np.float32)
    TrainedModel(problem, decision).save(tmp_path / "model.safetensors")
    model = load_model(tmp_path / "model.safetensors")
    assert model.problem == problem
    np.testing.assert_array_equal(model.decision, decision)


def test_other_readers_of_safetensors_read_it(saved, tmp_path):
    safetensors = pytest.importorskip("safetensors", reason="pip install safetensors")
    with safetensors.safe_open(saved, "np") as file:
        np.testing.assert_array_equal(file.get_tensor("decision"), DECISION)
        assert file.metadata()["format"] == "gossamer model"
        assert json.loads(file.metadata()["schema"])["label"]["values"] == ["healthy", "ill"]
    from safetensors.numpy import save

    theirs = save({"a": np.arange(6, dtype=np.float64).reshape(2, 3), "b": np.ones(1, np.float32)}, {"by": "them"})
    tensors, notes = from_bytes(theirs)
    assert (tensors["a"].tolist(), tensors["b"].tolist(), notes) == ([[0, 1, 2], [3, 4, 5]], [1], {"by": "them"})


def test_every_bit_counts(saved):
    data = saved.read_bytes()
    for place in [*range(0, len(data), 37), len(data) - 1]:
        saved.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises((DataError, ConfigurationError), match=r"model\.safetensors|written by"):
            load_model(saved)


def test_a_file_that_was_cut_or_grew(saved):
    data = saved.read_bytes()
    for length in (0, 7, 8, 300, len(data) - 1):
        saved.write_bytes(data[:length])
        with pytest.raises(DataError, match="cut"):
            load_model(saved)
    saved.write_bytes(data + b"\0")
    with pytest.raises(DataError, match="something was added"):
        load_model(saved)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "2", "gossamer": "0.9.0"}, "version '2' of the format and was written by Gossamer 0.9.0"),
        ({"version": "1" * 5000, "gossamer": None}, "written by another release"),
        ({"format": "adapter"}, "no model of Gossamer's"),
        ({"schema": "null"}, "digest"),
        ({"guarantee": ALGORITHM.guarantee.to_json().replace("proven", "heuristic")}, "digest"),
        ({"digest": None}, "digest"),
    ],
)
def test_other_notes(saved, change, said):
    rewritten(saved, change)
    with pytest.raises(DataError, match=said):
        load_model(saved)


def test_other_headers(saved):
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for header, said in (
        ({"decision": entry | {"data_offsets": [0, 4]}}, "not that of its shape"),
        ({"decision": entry | {"shape": [-2]}}, "no count"),
        ({"decision": entry | {"dtype": "BF16"}}, "no type"),
        ({"decision": entry, "again": entry}, "two arrays"),
        ({"decision": entry, "__metadata__": {"a": 1}}, "no texts"),
        ([1], "no table"),
    ):
        text = json.dumps(header).encode()
        saved.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
        with pytest.raises(DataError, match=said):
            load_model(saved)
    saved.write_bytes(struct.pack("<Q", 2**60) + bytes(8))
    with pytest.raises(DataError, match="no safetensors"):
        load_model(saved)


def test_a_model_of_another_network_or_problem(saved, tmp_path):
    assert load_model(saved, network=NETWORK).problem == problems.Logistic(4)
    with pytest.raises(ConfigurationError, match="allowed: one of network ffff"):
        load_model(saved, network="ffff")
    with pytest.raises(ConfigurationError, match="the one that the model was learnt for"):
        load_model(saved, problems.Logistic(4, l2=0.5))
    TrainedModel(problems.Logistic(4), DECISION).save(tmp_path / "plain.safetensors")
    with pytest.raises(ConfigurationError, match="one of no network"):
        load_model(tmp_path / "plain.safetensors", network=NETWORK)


def affine(params, x):
    return params["w"] @ x + params["b"]


def test_a_model_of_your_own_is_given_again(tmp_path):
    own = problems.Model(affine, {"w": np.ones((3, 4)), "b": np.zeros(3)}, features=(4,), classes=3)
    TrainedModel(own, np.arange(15.0)).save(tmp_path / "model.safetensors")
    with pytest.raises(ConfigurationError, match=r"load_model\(path, problem\)"):
        load_model(tmp_path / "model.safetensors")
    assert load_model(tmp_path / "model.safetensors", own).predict(np.ones((1, 4))).tolist() == [2]


def test_a_file_imports_nothing(saved):
    """A kind "package.module:name" in the file of a stranger is not looked for."""
    from gossamer.model.file import _digest

    tensors, notes = from_bytes(saved.read_bytes())
    for table in ({"kind": "antigravity:Model"}, {"kind": "logistic", "dim": 4, "domain": {"kind": "this:s"}}):
        forged = notes | {"spec": json.dumps({"problem": table})}
        del forged["digest"]
        saved.write_bytes(to_bytes(tensors, forged | {"digest": _digest(tensors, forged)}))
        with pytest.raises(ConfigurationError, match="installed package"):
            load_model(saved)


def test_places_that_cannot_be_used(saved, tmp_path):
    for place in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(ConfigurationError, match="a file that can be read"):
            load_model(place)
    with pytest.raises(ConfigurationError, match=r"ends in \.safetensors or \.onnx"):
        trained().save(tmp_path / "model.pickle")
    with pytest.raises(ConfigurationError, match="a file that can be written"):
        trained().save(tmp_path / "nowhere" / "model.safetensors")


def test_decisions_that_are_raw_are_no_model():
    raw = algorithms.pdop(problems.Logistic(4, feature_bound=1.0), topology.ring(3), clip=1.0, horizon=10)
    assert raw.guarantee.observer == "wiretap"
    with pytest.raises(PrivacyError, match="functions of raw data"):
        trained(guarantee=raw.guarantee)


def test_a_run_becomes_a_model_that_says_so():
    stream = streams.random_signs(3, 4, seed=1)
    run = simulate(
        algorithms.pd_ogd(problems.Linear(4), topology.ring(3), budget=Budget(1.0), clip=1.0, step=0.1),
        stream,
        20,
        seed=0,
    )
    model = run.model(problems.Linear(4), learner=1)
    np.testing.assert_array_equal(model.decision, run.decisions[1])
    assert str(model.origin) == "a simulation of 20 steps, learner 1"
    np.testing.assert_allclose(run.model(problems.Linear(4)).decision, run.decisions.mean(axis=0), rtol=1e-6)
    with pytest.raises(ConfigurationError, match="learner"):
        run.model(problems.Linear(4), learner=3)
    with pytest.raises(ConfigurationError, match="shape"):
        run.model(problems.Linear(5))


# Rows in files


def tables(folder):
    frame = pd.DataFrame(COLUMNS)
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_json(folder / "rows.jsonl", orient="records", lines=True)
    frame.to_parquet(folder / "rows.parquet")
    return [folder / f"rows.{end}" for end in ("csv", "jsonl", "parquet")]


def test_rows_of_a_file_are_predicted(tmp_path, capsys):
    model = trained()
    wanted, likely = model.answers(COLUMNS)
    for rows in tables(tmp_path):
        assert predict_file(model, rows) == 3
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "prediction,probability healthy,probability ill"
        assert [line.partition(",")[0] for line in lines[1:]] == wanted.tolist()
        for end, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
            predict_file(model, rows, tmp_path / f"out.{end}")
            found = read(tmp_path / f"out.{end}")
            assert found["prediction"].tolist() == wanted.tolist()
            np.testing.assert_allclose(found["probability ill"], likely[:, 1], rtol=1e-6)
        predict_file(model, rows, tmp_path / "out.jsonl")
        first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
        assert first == {
            "prediction": "ill",
            "probabilities": {"healthy": pytest.approx(0.0953, abs=1e-4), "ill": pytest.approx(0.9047, abs=1e-4)},
        }


def test_rows_without_a_schema(tmp_path, capsys):
    model = TrainedModel(problems.Hinge(2), [1.0, -1.0])
    (tmp_path / "rows.csv").write_text("name,a,b\none,1,0\n\ntwo,0,1\n")
    (tmp_path / "rows.jsonl").write_text('{"x": [1, 0]}\n{"x": [0, 1]}\n')
    predict_file(model, tmp_path / "rows.csv", without=["name"])
    predict_file(model, tmp_path / "rows.jsonl")
    assert capsys.readouterr().out == "prediction\n1\n0\n" * 2


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rows.csv", "age,smoker\n1,no\nnan,no\n", "row 1: column 'age' is empty"),
        ("rows.csv", "age,smoker\n1\n", "row 0: 1 cells, and the header has 2"),
        ("rows.csv", "age,age,smoker\n1,1,no\n", "same name"),
        ("rows.csv", "age\n1\n", "row 0: no column 'smoker'"),
        ("rows.csv", "", "no rows"),
        ("rows.csv", 'age,smoker\n1,"no\n', "not CSV"),
        ("rows.csv", "age,smoker\n1,\udcff\n", "not UTF-8"),
        ("rows.jsonl", '{"age": 1, "smoker": "77777"}\n', "row 0: column 'smoker' holds a value"),
        ("rows.jsonl", "77777\n", "row 0: not an object"),
        ("rows.jsonl", "{\n", "row 0: not JSON"),
        ("rows.parquet", "PAR1", "not a Parquet file"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path, name, text, said):
    (tmp_path / name).write_text(text, errors="surrogateescape")
    with pytest.raises(DataError, match=said) as refused:
        predict_file(trained(), tmp_path / name, tmp_path / "out.csv")
    assert "77777" not in str(refused.value)
    assert not (tmp_path / "out.csv").exists()


def test_rows_that_are_far_down_have_their_number(tmp_path):
    lines = ["0.5,no"] * 20_000
    lines[19_000] = "old,no"
    (tmp_path / "rows.csv").write_text("\n".join(["age,smoker", *lines, ""]))
    with pytest.raises(DataError, match="row 19000: column 'age' holds no number"):
        predict_file(trained(), tmp_path / "rows.csv", tmp_path / "out.csv")


# ONNX


def in_onnx(model, tmp_path, rows):
    pytest.importorskip("onnx", reason="pip install 'gossamer[onnx]'")
    runtime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
    model.save(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, rows), strict=True)), session


def many_layers(params, x):
    hidden = jax.nn.gelu(x @ params["a"] + params["b"])
    hidden = jax.nn.silu(hidden) + jax.nn.softplus(hidden) + jax.nn.elu(hidden) + jnp.clip(hidden, -1.0, 1.0)
    hidden = (hidden - hidden.mean()) / jnp.sqrt(hidden.var() + 1e-5)
    return jnp.stack(jnp.split(hidden, 2), axis=1).reshape(-1) @ params["c"]


def layered():
    draws = np.random.default_rng(0)
    start = {"a": draws.normal(size=(4, 8)), "b": draws.normal(size=8), "c": draws.normal(size=(8, 3))}
    return problems.Model(many_layers, start, features=(4,), classes=3)


@pytest.mark.parametrize(
    "problem",
    [
        problems.Logistic(4, feature_bound=1.0),
        problems.Hinge(4),
        problems.LeastSquares(4, feature_bound=0.5),
        problems.Linear(4),
        problems.Softmax(4, 3, feature_bound=1.0),
        problems.small_cnn((10, 10, 1), 3, channels=2, hidden=4, seed=0),
        layered(),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_onnx_predicts_the_same(problem, tmp_path):
    draws = np.random.default_rng(1)
    start = problem.initial_decision()
    model = TrainedModel(problem, start + draws.normal(scale=0.3, size=problem.dim).astype(np.float32))
    for count in (1, 50):
        x = draws.normal(size=(count, *problem.feature_shape)).astype(np.float32)
        found, _ = in_onnx(model, tmp_path, {"x": x})
        if problem.classifies:
            np.testing.assert_array_equal(found["label"], model.predict(x))
        else:
            np.testing.assert_allclose(found["prediction"], model.predict(x), rtol=1e-4, atol=1e-6)
        assert ("probabilities" in found) == model.probabilistic
        if model.probabilistic:
            np.testing.assert_allclose(found["probabilities"], model.predict_proba(x), rtol=1e-4, atol=1e-6)


def test_onnx_takes_columns_by_name(tmp_path):
    rows = {"age": np.array([75, 5, 230.0]), "smoker": np.array(["yes", "no", "no"], object)}
    found, session = in_onnx(trained(), tmp_path, rows)
    assert found["label"].tolist() == ["ill", "healthy", "ill"]
    np.testing.assert_allclose(found["probabilities"], trained().predict_proba(COLUMNS), rtol=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["origin"])["network"] == NETWORK
    target = Schema(SCHEMA.features, Number("cost", 0, 5000), intercept=False)
    cost = TrainedModel(problems.LeastSquares(3), DECISION[:3], target)
    np.testing.assert_allclose(in_onnx(cost, tmp_path, rows)[0]["prediction"], cost.predict(COLUMNS), rtol=1e-6)


def sorting(params, x):
    return jnp.sort(x) @ params


def test_what_has_no_onnx_says_so(tmp_path):
    pytest.importorskip("onnx", reason="pip install 'gossamer[onnx]'")
    own = problems.Model(sorting, np.ones((4, 3)), features=(4,), classes=3)
    with pytest.raises(ConfigurationError, match=r"'sort'.*as \.safetensors"):
        TrainedModel(own, own.initial_decision()).save(tmp_path / "model.onnx")
    taken = Schema((Number("label", 0, 1),), Choice("ill", ("no", "yes")))
    with pytest.raises(ConfigurationError, match="label"):
        TrainedModel(problems.Logistic(2), [1, 1], taken).save(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
