"""A model that was learnt: predictions for rows by the names of their columns, and how likely each class is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.data.schema import Choice, Schema
from gossamer.errors import ConfigurationError, DataError, PrivacyError
from gossamer.model.origin import Origin
from gossamer.model.rows import features_of
from gossamer.privacy import Guarantee
from gossamer.problems import Problem
from gossamer.spec import either, spec_of
from gossamer.streams.base import Array, fault

_MOST_ROWS = 2**14  # that are predicted at once


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """A decision, what it decides about, and what was promised when it was learnt.

    Attributes:
        problem: what was learnt.
        decision: the weights, a flat vector as the problem has them.
        schema: the columns of a row, and the values of the label; None where rows are arrays of features.
        guarantee: what the data that it was learnt from are promised; None where nobody said.
        origin: where it comes from; None where nobody said.
        spec: of the algorithm that learnt it; None where nobody said.

    >>> from gossamer.data import Choice, Number, Schema
    >>> from gossamer.problems import Logistic
    >>> schema = Schema((Number("age", 0, 100),), Choice("ill", ("no", "yes")))
    >>> model = TrainedModel(Logistic(2), [2.0, 0.5], schema)
    >>> rows = [{"age": 75}, {"age": 10}]
    >>> model.predict(rows).tolist()
    ['yes', 'no']
    >>> model.predict_proba(rows).round(2).tolist()
    [[0.18..., 0.8...], [0.75, 0.25]]
    >>> model.predict([{"ages": 75}])
    Traceback (most recent call last):
        ...
    gossamer.errors.DataError: row 0: no column 'age'
    """

    problem: Problem
    decision: Any
    schema: Schema | None = None
    guarantee: Guarantee | None = None
    origin: Origin | None = None
    spec: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        """Short: a decision may have millions of numbers."""
        return f"<TrainedModel: {type(self.problem).__name__}, {self.problem.dim:,} weights>"

    def __str__(self) -> str:
        """What it predicts, from which columns, where it comes from and what was promised.

        >>> from gossamer.problems import Logistic
        >>> print(TrainedModel(Logistic(2), [2.0, 0.5]))
        logistic with 2 weights
        predicts 0 or 1 from arrays of features (rows, 2)
        """
        lines = [f"{spec_of(self.problem)['kind']} with {self.problem.dim:,} weights"]
        what = either([str(one) for one in self.classes]) if self.classes else "a number"
        shape = ", ".join(map(str, self.problem.feature_shape))
        columns = f"arrays of features (rows, {shape})"
        if self.schema is not None:
            what = f"{self.schema.label.name}: {what}"
            columns = f"the columns {', '.join(column.name for column in self.schema.features)}"
        lines.append(f"predicts {what} from {columns}")
        lines += [] if self.origin is None else [f"from {self.origin}"]
        lines += [] if self.guarantee is None else [self.guarantee.sentence()]
        return "\n".join(lines)

    def __post_init__(self) -> None:
        decision = np.array(self.decision, np.float32)
        if decision.shape != (self.problem.dim,):
            raise ConfigurationError("decision", f"shape {decision.shape}", f"shape {(self.problem.dim,)}")
        found = fault(decision)
        if found is not None:
            raise DataError(f"the decision is {found[0]} at {found[1]}: learning diverged")
        if self.schema is not None:
            self.schema.require_fits(self.problem)
        require_protected(self.guarantee)
        decision.setflags(write=False)
        object.__setattr__(self, "decision", decision)

    @property
    def classes(self) -> tuple[str, ...] | tuple[int, ...]:
        """What can be predicted: the values of the label, or the numbers of the classes; empty for a target."""
        if self.schema is not None and isinstance(self.schema.label, Choice):
            return self.schema.label.values
        return tuple(range(getattr(self.problem, "classes", 2))) if self.problem.classifies else ()

    def predict(self, rows: Any) -> NDArray[Any]:
        """The predicted class of every row, by its name where there is a schema; or a number, in the label's unit.

        Args:
            rows: with a schema a data frame (pandas, polars), a list of records, or a mapping of columns: other columns
                than those of the schema are not looked at. Without one an array of features, (rows, features...).
        """
        return self._meant(_computed(self.problem, "predict", self.decision, self._features(rows)))

    def answers(self, rows: Any, first: int = 0) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
        """What `predict` says, and what `predict_proba` says where there are probabilities; `first`: for errors.

        >>> from gossamer.problems import Hinge
        >>> TrainedModel(Hinge(2), [2.0, 0.5]).answers([[1, 1]])
        (array([1], dtype=int32), None)
        """
        x = features_of(rows, self.problem.feature_shape, self.schema, first)
        wanted = ("predict", "probabilities") if self.probabilistic else ("predict",)
        predicted, *likely = (_computed(self.problem, what, self.decision, x, first) for what in wanted)
        return self._meant(predicted), likely[0] if likely else None

    def predict_proba(self, rows: Any) -> NDArray[np.float32]:
        """How likely each class is, (rows, classes), in the order of `classes`; rows as for `predict`.

        Logistic regression, softmax and networks with cross-entropy are models of probabilities. A support vector
        machine (`Hinge`) has scores only, and a target has none: these are refused.
        """
        if not self.probabilistic:
            hint = "predict gives the class" if self.problem.classifies else "predict gives the number"
            allowed = "a model of probabilities: Logistic, Softmax, or Model with cross-entropy"
            raise ConfigurationError("predict_proba", type(self.problem).__name__, allowed, hint)
        return _computed(self.problem, "probabilities", self.decision, self._features(rows))

    def save(self, path: str | Path) -> None:
        """Write it to a file that ends in .safetensors, or in .onnx for other programs (needs `gossamer[onnx]`)."""
        from gossamer.model import file, onnx

        writers = {".safetensors": file.save_model, ".onnx": onnx.save_onnx}
        place = Path(path)
        if place.suffix not in writers:
            raise ConfigurationError("path", str(path), f"a file that ends in {' or '.join(writers)}")
        writers[place.suffix](self, place)

    @property
    def probabilistic(self) -> bool:
        """Whether there are probabilities."""
        return _is_probabilistic(self.problem)

    def _features(self, rows: Any) -> Array:
        return features_of(rows, self.problem.feature_shape, self.schema)

    def _meant(self, predicted: Array) -> NDArray[Any]:
        """Numbers of classes as their names, and scaled targets in their unit."""
        if self.schema is None:
            return predicted
        if isinstance(self.schema.label, Choice):
            return np.array(self.schema.label.values)[predicted]
        return np.array([self.schema.answer(one) for one in predicted])


def require_protected(guarantee: Guarantee | None) -> None:
    """Refuse decisions that are functions of raw data: a guarantee against a wiretap is about messages only."""
    if guarantee is not None and guarantee.observer == "wiretap":
        raise PrivacyError(
            "model: decisions of this algorithm are functions of raw data: its guarantee is against a wiretap only. "
            "Nothing was written. Use an algorithm whose decisions are protected."
        )


@lru_cache
def _is_probabilistic(problem: Problem) -> bool:
    decision, x = np.zeros(problem.dim, np.float32), np.zeros((1, *problem.feature_shape), np.float32)
    return jax.eval_shape(problem.probabilities, decision, x) is not None


@partial(jax.jit, static_argnums=(0, 1))
def _compiled(problem: Problem, what: str, decision: jax.Array, x: jax.Array) -> Any:
    return getattr(problem, what)(decision, x)


def _computed(problem: Problem, what: str, decision: Array, x: Array, first: int = 0) -> Array:
    """Of so many rows at once. Programs are compiled for a number of rows: powers of two keep them few."""
    parts = []
    for start in range(0, len(x), _MOST_ROWS):
        part = x[start : start + _MOST_ROWS]
        padded = np.zeros((1 << (len(part) - 1).bit_length(), *x.shape[1:]), np.float32)
        padded[: len(part)] = part
        parts.append(np.asarray(_compiled(problem, what, decision, padded))[: len(part)])
    answers = np.concatenate(parts)
    if not np.isfinite(answers).all():
        row = first + int(np.argmin(np.isfinite(answers.reshape(len(x), -1)).all(axis=1)))
        raise DataError(f"row {row}: the prediction is beyond float32: a feature is too large")
    return answers
