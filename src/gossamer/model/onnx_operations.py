"""Operations of JAX as those of ONNX: a program over rows whose number is not known becomes nodes of a graph."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError

ROWS = "rows"
"""The dimension whose length is not known."""

_LAST = 2**63 - 1
_ELEMENTWISE: Mapping[str, str] = {
    "abs": "Abs", "add": "Add", "add_any": "Add", "and": "And", "ceil": "Ceil", "copy": "Identity", "cos": "Cos",
    "div": "Div", "eq": "Equal", "erf": "Erf", "exp": "Exp", "floor": "Floor", "ge": "GreaterOrEqual",
    "gt": "Greater", "le": "LessOrEqual", "log": "Log", "logistic": "Sigmoid", "lt": "Less", "max": "Max",
    "min": "Min", "mul": "Mul", "neg": "Neg", "not": "Not", "or": "Or", "pow": "Pow", "sign": "Sign", "sin": "Sin",
    "sqrt": "Sqrt", "stop_gradient": "Identity", "sub": "Sub", "tanh": "Tanh",
}  # fmt: skip
_REDUCTIONS = {"reduce_sum": "ReduceSum", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin"}
_WITHIN = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}
_WITHIN |= {"custom_vjp_call": "call_jaxpr", "remat2": "jaxpr", "checkpoint": "jaxpr"}

Value = str | NDArray[Any]
"""Of a program: the name of a tensor, or a constant."""


class Graph:
    """Nodes, and the constants that they take."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operation: str, *inputs: Value, **attributes: Any) -> str:
        """One more node; the name of what it gives."""
        from onnx import helper

        name = f"{operation}_{len(self.nodes)}"
        names = [self.named(one) for one in inputs]
        self.nodes.append(helper.make_node(operation, names, [name], name=name, **attributes))
        return name

    def named(self, value: Value) -> str:
        """The name of a tensor, which a constant gets here."""
        from onnx import numpy_helper

        if isinstance(value, str):
            return value
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name))
        return name

    def shape(self, dims: Sequence[Any]) -> Value:
        """A shape as a tensor; ROWS stands for the number of rows, which the graph has under that name."""
        parts = [ROWS if str(dim) == ROWS else _numbers([_size(dim)]) for dim in dims]
        return self.add("Concat", *parts, axis=0) if ROWS in map(str, dims) else _numbers(map(_size, dims))


def convert(graph: Graph, program: ClosedJaxpr, inputs: Sequence[Value]) -> list[Value]:
    """Put a program into a graph: what it gives, by the names of tensors.

    Refused where it has an operation that is not in the tables of this file.
    """
    known: dict[Any, Value] = dict(zip(program.jaxpr.constvars, map(np.asarray, program.consts), strict=True))
    known |= dict(zip(program.jaxpr.invars, inputs, strict=True))

    def value_of(variable: Any) -> Value:
        literal: Any = variable if isinstance(variable, Literal) else None
        return known[variable] if literal is None else np.asarray(literal.val, literal.aval.dtype)

    for equation in program.jaxpr.eqns:
        found = _results(graph, equation, [value_of(one) for one in equation.invars])
        known |= dict(zip(equation.outvars, found, strict=True))
    return [value_of(one) for one in program.jaxpr.outvars]


def _results(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    name = equation.primitive.name
    constants = [one for one in inputs if not isinstance(one, str)]
    fixed = all(type(size) is int for one in equation.outvars for size in one.aval.shape)
    if len(constants) == len(inputs) and fixed:  # the weights, cut and shaped
        with jax.ensure_compile_time_eval():
            given = equation.primitive.bind(*map(jax.numpy.asarray, constants), **equation.params)
        return [np.asarray(one) for one in (given if equation.primitive.multiple_results else [given])]
    if name in _WITHIN:
        inside = equation.params[_WITHIN[name]]
        closed = inside if isinstance(inside, ClosedJaxpr) else ClosedJaxpr(inside, ())
        return convert(graph, closed, inputs)
    if name == "optimization_barrier":
        return inputs
    if name in _ELEMENTWISE:
        return [graph.add(_ELEMENTWISE[name], *inputs)]
    if name in _REDUCTIONS:
        return [graph.add(_REDUCTIONS[name], *inputs, _numbers(equation.params["axes"]), keepdims=0)]
    if name not in _OTHERS:
        hint = "write the model with other operations, or save it as .safetensors"
        raise ConfigurationError("model", f"an operation {name!r}", "operations that ONNX is written for", hint)
    return _OTHERS[name](graph, equation, inputs)


def _broadcast(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    dims, places = equation.params["shape"], equation.params["broadcast_dimensions"]
    given = equation.invars[0].aval.shape
    between = [given[places.index(axis)] if axis in places else 1 for axis in range(len(dims))]
    shaped = inputs[0] if list(given) == between else graph.add("Reshape", inputs[0], _reshaped(between))
    if list(map(str, between)) == list(map(str, dims)):
        return [shaped]
    return [graph.add("Expand", shaped, graph.shape(dims))]


def _reshape(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    return [graph.add("Reshape", inputs[0], _reshaped(equation.outvars[0].aval.shape))]


def _transpose(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    return [graph.add("Transpose", inputs[0], perm=list(equation.params["permutation"]))]


def _concatenate(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    return [graph.add("Concat", *inputs, axis=equation.params["dimension"])]


def _stack(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    along = equation.params["axis"]
    return [graph.add("Concat", *(graph.add("Unsqueeze", one, _numbers([along])) for one in inputs), axis=along)]


def _split(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    along = _numbers([equation.params["axis"]])
    ends = np.cumsum(equation.params["sizes"]).tolist()
    cuts = zip([0, *ends[:-1]], ends, strict=True)
    return [graph.add("Slice", inputs[0], _numbers([begin]), _numbers([end]), along) for begin, end in cuts]


def _clamp(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    low, given, high = inputs
    return [graph.add("Min", graph.add("Max", given, low), high)]


def _slice(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    starts, ends, steps = (equation.params[key] for key in ("start_indices", "limit_indices", "strides"))
    ends = [end if type(end) is int else _LAST for end in ends]
    axes = range(len(starts))
    return [graph.add("Slice", inputs[0], *map(_numbers, (starts, ends, axes, steps or [1] * len(starts))))]


def _dot(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    """As Einstein writes it: batch dimensions first, then those that are left of each factor."""
    (summed, other_summed), (batch, other_batch) = equation.params["dimension_numbers"]
    letters = iter(string.ascii_letters)
    left = [next(letters) for _ in equation.invars[0].aval.shape]
    right = [next(letters) for _ in equation.invars[1].aval.shape]
    for mine, other in (*zip(summed, other_summed, strict=True), *zip(batch, other_batch, strict=True)):
        right[other] = left[mine]
    kept = [left[axis] for axis in batch]
    kept += [letter for axis, letter in enumerate(left) if axis not in (*summed, *batch)]
    kept += [letter for axis, letter in enumerate(right) if axis not in (*other_summed, *other_batch)]
    return [graph.add("Einsum", *inputs, equation=f"{''.join(left)},{''.join(right)}->{''.join(kept)}")]


def _select(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    if len(inputs) != 3 or equation.invars[0].aval.dtype != bool:
        raise ConfigurationError("model", "a choice between many", "choices by true and false, for ONNX")
    return [graph.add("Where", inputs[0], inputs[2], inputs[1])]


def _iota(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    dims, along = equation.params["shape"], equation.params["dimension"]
    count = np.arange(_size(dims[along]), dtype=equation.params["dtype"])
    shaped = count.reshape([-1 if axis == along else 1 for axis in range(len(dims))])
    return [graph.add("Expand", shaped, graph.shape(dims))]


def _cast(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    return [graph.add("Cast", inputs[0], to=type_of(equation.params["new_dtype"]))]


def _finite(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    return [graph.add("Not", graph.add("Or", graph.add("IsInf", *inputs), graph.add("IsNaN", *inputs)))]


def _power(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    return [graph.add("Pow", inputs[0], np.asarray(equation.params["y"], equation.invars[0].aval.dtype))]


def _square(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    return [graph.add("Mul", inputs[0], inputs[0])]


def _log1p(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    return [graph.add("Log", graph.add("Add", inputs[0], _one(equation)))]


def _expm1(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    return [graph.add("Sub", graph.add("Exp", inputs[0]), _one(equation))]


def _erfc(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    return [graph.add("Sub", _one(equation), graph.add("Erf", inputs[0]))]


def _one(equation: Any) -> NDArray[Any]:
    return np.ones((), equation.invars[0].aval.dtype)


def _differ(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    return [graph.add("Not", graph.add("Equal", *inputs))]


def _rsqrt(graph: Graph, equation: Any, inputs: list[Value]) -> list[Value]:
    return [graph.add("Reciprocal", graph.add("Sqrt", inputs[0]))]


_OTHERS: Mapping[str, Callable[[Graph, Any, list[Value]], list[Value]]] = {
    "broadcast_in_dim": _broadcast,
    "clamp": _clamp,
    "concatenate": _concatenate,
    "convert_element_type": _cast,
    "dot_general": _dot,
    "erfc": _erfc,
    "expand_dims": _reshape,
    "expm1": _expm1,
    "integer_pow": _power,
    "iota": _iota,
    "is_finite": _finite,
    "log1p": _log1p,
    "ne": _differ,
    "reshape": _reshape,
    "rsqrt": _rsqrt,
    "select_n": _select,
    "slice": _slice,
    "split": _split,
    "square": _square,
    "squeeze": _reshape,
    "stack": _stack,
    "transpose": _transpose,
}


def type_of(dtype: Any) -> int:
    """The number by which ONNX knows a type."""
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _reshaped(dims: Sequence[Any]) -> NDArray[np.int64]:
    """A shape in which one length may follow from the others."""
    if sum(type(dim) is not int for dim in dims) > 1:
        raise ConfigurationError("model", f"a shape {tuple(dims)}", "one dimension with all rows, for ONNX")
    return _numbers([dim if type(dim) is int else -1 for dim in dims])


def _size(dim: Any) -> int:
    if type(dim) is not int:
        raise ConfigurationError("model", f"a dimension of {dim}", "dimensions that do not depend on how many rows")
    return dim


def _numbers(values: Any) -> NDArray[np.int64]:
    return np.array(list(values), np.int64)
