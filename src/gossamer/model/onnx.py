"""A model for other programs, as ONNX: rows by the names of their columns go in, classes with their names come out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import export
from numpy.typing import NDArray

from gossamer.data.schema import Choice, Number, Schema
from gossamer.errors import ConfigurationError
from gossamer.model.file import notes_of, writing
from gossamer.model.onnx_operations import ROWS, Graph, Value, convert, type_of

if TYPE_CHECKING:
    from gossamer.model.trained import TrainedModel

_OURS = (ROWS, "shape_of_rows", "label", "probabilities", "prediction")  # names of tensors
_OPSET, _IR = 19, 9  # of 2023: what runtimes of today read


def save_onnx(model: TrainedModel, path: Path) -> None:
    """Write a model as ONNX; refused where it has operations that `gossamer.model.onnx_operations` does not know.

    Inputs are the columns of the schema (numbers as float64, choices as texts exactly as the schema has them), or "x".
    Outputs are "label" and, where there are any, "probabilities", or "prediction" for a number.
    """
    _require_onnx()
    data = to_onnx(model).SerializeToString(deterministic=True)
    with writing(path) as file:
        file.write(data)


def to_onnx(model: TrainedModel) -> Any:
    """The model as an object of the package onnx, checked."""
    import onnx
    from onnx import helper

    graph = Graph()
    inputs, x = _features(graph, model)
    outputs = _answers(graph, model, x)
    body = helper.make_graph(graph.nodes, "gossamer", inputs, outputs, graph.constants)
    made = helper.make_model(
        body, producer_name="gossamer", ir_version=_IR, opset_imports=[helper.make_opsetid("", _OPSET)]
    )
    helper.set_model_props(made, dict(notes_of(model)))
    onnx.checker.check_model(made, full_check=True)
    return made


def _features(graph: Graph, model: TrainedModel) -> tuple[list[Any], str]:
    """The inputs, and the tensor of features that the problem takes."""
    from onnx import TensorProto, helper

    for name in () if model.schema is None else model.schema.columns[:-1]:
        if name in _OURS:
            hint = "give the column another name, or save the model as .safetensors"
            raise ConfigurationError("schema", name, f"names that are none of {', '.join(_OURS)}, for ONNX", hint)
    if model.schema is None:
        shape: list[str | int] = [ROWS, *model.problem.feature_shape]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    else:
        kinds = {column.name: type_of(_type_of(column)) for column in model.schema.features}
        inputs = [helper.make_tensor_value_info(name, kind, (ROWS,)) for name, kind in kinds.items()]
    first = np.zeros(1, np.int64), np.ones(1, np.int64)
    count = helper.make_node("Slice", ["shape_of_rows", *map(graph.named, first)], [ROWS], name=ROWS)
    graph.nodes += [helper.make_node("Shape", [inputs[0].name], ["shape_of_rows"], name="shape_of_rows"), count]
    return inputs, "x" if model.schema is None else _encoded(graph, model.schema)


def _type_of(column: Number | Choice) -> type:
    return np.float64 if isinstance(column, Number) else np.str_


def _encoded(graph: Graph, schema: Schema) -> str:
    """What `Schema.encoded` does, column by column."""
    parts: list[Value] = []
    for column in schema.features:
        cells = graph.add("Unsqueeze", column.name, np.array([1], np.int64))
        if isinstance(column, Choice):
            found: Value = graph.add("Equal", cells, np.array([column.values], object))
        else:
            found = _scaled(graph, cells, column)
        parts.append(graph.add("Cast", found, to=type_of(np.float32)))
    if schema.intercept:
        parts.append(graph.add("Expand", np.ones((1, 1), np.float32), graph.shape((ROWS, 1))))
    return graph.add("Concat", *parts, axis=1)


def _scaled(graph: Graph, cells: Value, column: Number) -> Value:
    low, high, width = map(_double, (column.low, column.high, column.high - column.low))
    inside = graph.add("Clip", cells, low, high)
    double = graph.add("Mul", _double(2.0), graph.add("Sub", inside, low))
    return graph.add("Sub", graph.add("Div", double, width), _double(1.0))


def _double(number: float) -> NDArray[Any]:
    return np.asarray(number, np.float64)


def _answers(graph: Graph, model: TrainedModel, x: str) -> list[Any]:
    """What is given back: labels by name and their probabilities, or numbers in the label's unit."""
    from onnx import helper

    answers: dict[str, tuple[Value, Any, tuple[Any, ...]]] = {}
    predicted = _program(graph, model, "predict", x)
    if not model.classes:
        number, kind = _number(graph, model.schema, predicted)
        answers["prediction"] = number, kind, (ROWS,)
    else:
        names = np.array(model.classes, object if model.schema is not None else np.int64)
        answers["label"] = graph.add("Gather", names, predicted), type(model.classes[0]), (ROWS,)
    if model.probabilistic:
        answers["probabilities"] = _program(graph, model, "probabilities", x), np.float32, (ROWS, len(model.classes))
    graph.nodes += [
        helper.make_node("Identity", [graph.named(found)], [name]) for name, (found, _, _) in answers.items()
    ]
    return [helper.make_tensor_value_info(name, type_of(kind), shape) for name, (_, kind, shape) in answers.items()]


def _number(graph: Graph, schema: Schema | None, predicted: Value) -> tuple[Value, type]:
    if schema is None:
        return predicted, np.float32
    column = schema.label
    assert isinstance(column, Number)
    low, width = map(_double, (column.low, column.high - column.low))
    share = graph.add("Add", graph.add("Cast", predicted, to=type_of(np.float64)), _double(1.0))
    part = graph.add("Mul", graph.add("Div", share, _double(2.0)), width)
    return graph.add("Add", part, low), np.float64


def _program(graph: Graph, model: TrainedModel, what: str, x: str) -> Value:
    """What the problem computes, for rows whose number is not known."""
    (rows,) = export.symbolic_shape(ROWS)
    shape: Any = jax.ShapeDtypeStruct((rows, *model.problem.feature_shape), np.float32)  # type: ignore[no-untyped-call]
    compute = getattr(model.problem, what)
    program = jax.make_jaxpr(lambda given: compute(np.asarray(model.decision), given))(shape)
    return convert(graph, program, [x])[0]


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError as missing:
        hint = "pip install 'gossamer[onnx]'"
        raise ConfigurationError("path", "no onnx", "an installed onnx, to write .onnx", hint) from missing
