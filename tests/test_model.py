"""A model that is taken home: predictions by the names of columns, from whatever rows come in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gossamer import problems
from gossamer.data import Choice, Number, Schema
from gossamer.errors import ConfigurationError, DataError
from gossamer.model import TrainedModel

pytestmark = pytest.mark.unoptimized

AGE, SMOKER = Number("age", 0, 100), Choice("smoker", ("no", "yes"))
ILL, COST = Choice("ill", ("healthy", "ill")), Number("cost", 0, 5000)
STAGE = Choice("stage", ("I", "II", "III"))
DECISION = np.float32([2, -1, 1, 0.25])
X = np.float32([[0.5, 0, 1, 1], [-0.9, 1, 0, 1], [1, 1, 0, 1]])
RECORDS = [{"age": 75, "smoker": "yes"}, {"age": 5.0, "smoker": "no"}, {"age": 230, "smoker": "no"}]
"""Of the same rows: a number beyond its bound counts as the bound."""


class Frame:
    """What polars looks like from outside."""

    def __init__(self, table):
        self._table = {name: np.array(column) for name, column in table.items()}

    @property
    def columns(self):
        return list(self._table)

    def __getitem__(self, name):
        return self._table[name]


COLUMNS = {"town": ["a", "b", "c"], "smoker": ["yes", "no", "no"], "age": [75, 5, 230]}


def logistic(schema=None):
    return TrainedModel(problems.Logistic(4), DECISION, schema)


@pytest.mark.parametrize(
    "rows",
    [RECORDS, COLUMNS, pd.DataFrame(COLUMNS), pd.DataFrame(COLUMNS).astype("category"), Frame(COLUMNS)],
    ids=["records", "columns", "pandas", "categories", "other frames"],
)
def test_rows_come_by_the_names_of_their_columns(rows):
    model, plain = logistic(Schema((AGE, SMOKER), ILL)), logistic()
    assert model.classes == ("healthy", "ill")
    assert model.predict(rows).tolist() == ["ill", "healthy", "ill"]
    assert plain.predict(X).tolist() == [1, 0, 1]
    np.testing.assert_allclose(model.predict_proba(rows), plain.predict_proba(X), rtol=1e-6)


def test_probabilities_are_those_of_the_loss():
    scores = X.astype(float) @ DECISION
    np.testing.assert_allclose(logistic().predict_proba(X)[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-5)
    weights = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    model = TrainedModel(problems.Softmax(4, 3), weights.reshape(-1), Schema((AGE, SMOKER), STAGE))
    powers = np.exp(X.astype(float) @ weights.T)
    np.testing.assert_allclose(model.predict_proba(RECORDS), powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)
    assert model.predict(RECORDS).tolist() == [STAGE.values[one] for one in powers.argmax(axis=1)]


def test_probabilities_of_a_network():
    network = problems.small_cnn((10, 10, 1), 3, channels=2, hidden=2, seed=0)
    model = TrainedModel(network, network.initial_decision())
    found = model.predict_proba(np.random.default_rng(0).normal(size=(5, 10, 10, 1)))
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(
        found.argmax(axis=1), model.predict(np.random.default_rng(0).normal(size=(5, 10, 10, 1)))
    )


def test_targets_come_in_their_unit():
    model = TrainedModel(problems.LeastSquares(4), DECISION, Schema((AGE, SMOKER), COST))
    np.testing.assert_allclose(model.predict(RECORDS), 2500 + 2500 * (X @ DECISION), rtol=1e-5)
    assert model.classes == ()


@pytest.mark.parametrize("problem", [problems.Hinge(4), problems.LeastSquares(4), problems.Linear(4)])
def test_what_has_no_probabilities_says_so(problem):
    model = TrainedModel(problem, DECISION)
    assert not model.probabilistic
    with pytest.raises(ConfigurationError, match=rf"{type(problem).__name__}.*Logistic, Softmax.*Predict gives the"):
        model.predict_proba(X)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "no rows"),
        ({"age": [], "smoker": []}, "no rows"),
        ([{"age": 1}], "row 0: no column 'smoker'"),
        ({"age": [1]}, "no column 'smoker'"),
        (pd.DataFrame({"age": [1]}), "no column 'smoker'"),
        ({"age": [1, 2], "smoker": ["no"]}, "as many values"),
        ({"age": 1, "smoker": "no"}, "one list"),
        ([RECORDS[0], {"age": "77777", "smoker": "perhaps"}], "row 1: column 'smoker' holds a value"),
        ([{"age": "old", "smoker": "no"}], "row 0: column 'age' holds no number"),
        (pd.DataFrame({"age": [1.0, np.nan], "smoker": ["no", "no"]}), "row 1: column 'age' is empty"),
        (pd.DataFrame({"age": [1.0, 2.0], "smoker": ["no", np.nan]}), "row 1: column 'smoker' holds a value"),
        (X, "columns by name"),
        ("age", "columns by name"),
    ],
)
def test_rows_that_do_not_fit_the_schema(rows, said):
    with pytest.raises(DataError, match=said) as refused:
        logistic(Schema((AGE, SMOKER), ILL)).predict(rows)
    assert "77777" not in str(refused.value)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (np.ones((0, 4)), "no rows"),
        (np.ones(4), r"shape \(4,\); allowed: \(rows, 4\)"),
        (np.ones((2, 3)), "shape"),
        ([[1, 2, 3, 4], [1]], "different lengths"),
        (RECORDS, "without a schema"),
        ([["a", "b", "c", "d"]], "not numbers"),
        ([[1, 2, 3, np.nan]], r"row 0: a feature is NaN at \(3,\)"),
        ([[1, 2, 3, 1e300]], "infinite"),
    ],
)
def test_features_that_do_not_fit(rows, said):
    with pytest.raises(DataError, match=said):
        logistic().predict(rows)


def test_models_that_cannot_be():
    with pytest.raises(ConfigurationError, match="shape"):
        TrainedModel(problems.Logistic(3), DECISION)
    with pytest.raises(DataError, match="NaN"):
        TrainedModel(problems.Logistic(4), DECISION * np.nan)
    for schema in (Schema((AGE,), ILL), Schema((AGE, SMOKER), COST), Schema((AGE, SMOKER), STAGE)):
        with pytest.raises(ConfigurationError, match="schema"):
            logistic(schema)


def test_many_rows_are_predicted_in_parts():
    rows = np.random.default_rng(1).normal(size=(40_000, 4)).astype(np.float32)
    np.testing.assert_array_equal(logistic().predict(rows), rows @ DECISION > 0)
