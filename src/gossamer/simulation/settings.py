"""Programs that differ in numbers only, run as one.

Every setting of an algorithm is traced by itself. `Traced` takes the program apart into a form (all equations, shapes
and parameters) and the numbers that stand in it. Where forms are equal, `Shared` runs the one program with the numbers
of each setting: those in which settings differ become inputs with a leading axis, all others stay constants. So what
runs for a setting is the very program that was traced, and that was checked, for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.extend.core import Literal as Constant
from numpy.typing import NDArray

from gossamer.privacy.marks import as_written


class Numbers(NamedTuple):
    """The numbers of a program at their places, or, in a tree of the same form, what stands there instead of them.

    Attributes:
        closed: of the arrays that it closes over.
        equations: of each equation, those among its operands, and those of the programs in it.
        results: among its results.
    """

    closed: tuple[Any, ...]
    equations: tuple[tuple[tuple[Any, ...], tuple[Numbers, ...]], ...]
    results: tuple[Any, ...]


# Where programs lie in the parameters of an equation. Of others the numbers inside are part of the form.
_INNER: Mapping[str, tuple[str, ...]] = {
    "jit": ("jaxpr",),
    "pjit": ("jaxpr",),
    "remat2": ("jaxpr",),
    "checkpoint": ("jaxpr",),
    "closed_call": ("call_jaxpr",),
    "custom_jvp_call": ("call_jaxpr",),
    "custom_vjp_call": ("call_jaxpr",),
    "gossamer_mark": ("program",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "scan": ("jaxpr",),
    "cond": ("branches",),
}
_ONLY_INNER = ("custom_jvp_call", "custom_vjp_call", "gossamer_mark")
"""The other parameters say how to differentiate or to check them, and nobody does so any more."""


@dataclass(frozen=True, eq=False)
class Traced:
    """The program of one setting: its form, the numbers in it, and how its results are laid out."""

    program: ClosedJaxpr
    form: Hashable
    numbers: Numbers
    results: Any

    @classmethod
    def of(cls, function: Callable[..., Any], args: Sequence[Any]) -> Traced:
        """The program of a function for arguments of these shapes.

        >>> one, two, other = (Traced.of(f, [1.0]) for f in (lambda x: x + 1, lambda x: x + 2, lambda x: x * 2))
        >>> one.form == two.form, one.form == other.form
        (True, False)
        >>> jax.tree.leaves(two.numbers)
        [array(2., dtype=float32...)]
        """
        program, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        form, numbers = _apart(program)
        results = jax.tree.structure(shapes)
        return cls(program, (form, results), numbers, results)


@dataclass(frozen=True, eq=False)
class Shared:
    """One program for settings of one form, with a place for every number in which they differ.

    Attributes:
        traced: of one of them.
        open: of each of its numbers, whether they differ there.
        axes: of each argument, 0 where its leading axis is over settings, or None: it is common.
    """

    traced: Traced
    open: tuple[bool, ...]
    axes: tuple[int | None, ...]

    @classmethod
    def of(cls, all_: Sequence[Traced], axes: tuple[int | None, ...]) -> tuple[Shared, list[NDArray[Any]]]:
        """The program, and what to put into its places: axis (setting, ...)."""
        each = [jax.tree.leaves(one.numbers) for one in all_]
        columns = list(zip(*each, strict=True))
        differ = tuple(
            any(one is not column[0] and _bits(one) != _bits(column[0]) for one in column) for column in columns
        )
        shared = cls(all_[0], differ, axes)
        return shared, [np.stack(column) for column, open_ in zip(columns, differ, strict=True) if open_]

    @cached_property
    def _key(self) -> Hashable:
        leaves = jax.tree.leaves(self.traced.numbers)
        common = tuple(_bits(one) for one, open_ in zip(leaves, self.open, strict=True) if not open_)
        return self.traced.form, self.open, common, self.axes

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shared) and self._hash == other._hash and self._key == other._key

    def one(self, values: Sequence[Any], args: Sequence[Any]) -> Any:
        """The results of one setting, given its numbers for the open places."""
        _, tree = jax.tree.flatten(self.traced.numbers)
        rest = iter(values)
        numbers = jax.tree.unflatten(tree, [next(rest) if open_ else None for open_ in self.open])
        return jax.tree.unflatten(self.traced.results, _evaluate(self.traced.program, numbers, args))


@partial(jax.jit, static_argnames=("shared", "settings"))
def run(shared: Shared, settings: int, values: Sequence[Any], args: Sequence[Any]) -> Any:
    """The results of so many settings at once, with a leading axis.

    >>> functions = [lambda x: 2 * x, lambda x: 3 * x]
    >>> shared, values = Shared.of([Traced.of(each, [1.0]) for each in functions], axes=(None,))
    >>> run(shared, 2, values, [np.float32(5.0)])
    Array([10., 15.], dtype=float32)
    """
    axes = ([0] * len(values), list(shared.axes))
    return jax.vmap(shared.one, axes, axis_size=settings)(values, args)


# -- taking programs apart -------------------------------------------------------------------------------------------


def _apart(program: ClosedJaxpr | Jaxpr) -> tuple[Hashable, Numbers]:
    """A program's form, and the numbers in it."""
    jaxpr, closed = getattr(program, "jaxpr", program), getattr(program, "consts", ())
    places = {variable: place for place, variable in enumerate((*jaxpr.constvars, *jaxpr.invars))}
    form: list[Hashable] = [tuple(_kind(variable.aval) for variable in places), len(jaxpr.constvars)]
    equations = []
    for equation in jaxpr.eqns:
        inner = [_apart(one) for one in _programs(equation)]
        operands = tuple(_operand(one, places) for one in equation.invars)
        places |= {variable: len(places) + place for place, variable in enumerate(equation.outvars)}
        made = tuple(_kind(variable.aval) for variable in equation.outvars)
        settings = _settings(equation)
        effects = frozenset(map(str, equation.effects))
        form.append(
            (equation.primitive, operands, settings, made, str(equation.ctx), effects, tuple(each for each, _ in inner))
        )
        equations.append((tuple(map(_number, equation.invars)), tuple(numbers for _, numbers in inner)))
    form.append(tuple(_operand(one, places) for one in jaxpr.outvars))
    arrays = tuple(np.asarray(one) for one in closed)
    return tuple(form), Numbers(arrays, tuple(equations), tuple(map(_number, jaxpr.outvars)))


def _programs(equation: JaxprEqn) -> list[Any]:
    """The programs in an equation whose numbers may differ."""
    found: list[Any] = []
    for name in _INNER.get(equation.primitive.name, ()):
        inner = equation.params[name]
        found += inner if isinstance(inner, tuple) else [inner]
    return found


def _settings(equation: JaxprEqn) -> Hashable:
    """All other parameters of an equation."""
    name = equation.primitive.name
    if name in _ONLY_INNER:
        return ()
    inner = _INNER.get(name, ())
    return tuple((key, _frozen(value)) for key, value in sorted(equation.params.items()) if key not in inner)


def _frozen(value: Any) -> Hashable:
    """A parameter such that equal ones are the same to the last bit; what cannot be compared equals only itself."""
    if isinstance(value, ClosedJaxpr | Jaxpr):
        form, numbers = _apart(value)
        return form, tuple(map(_bits, jax.tree.leaves(numbers)))
    if isinstance(value, tuple | list):
        return type(value), tuple(map(_frozen, value))
    if isinstance(value, dict):
        return dict, tuple((key, _frozen(one)) for key, one in value.items())
    if isinstance(value, np.ndarray | jax.Array | float):
        return type(value), _bits(np.asarray(value))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value


def _kind(aval: Any) -> Hashable:
    return getattr(aval, "shape", None), getattr(aval, "dtype", aval), getattr(aval, "weak_type", None)


def _operand(one: Any, places: Mapping[Any, int]) -> Hashable:
    return ("number", _kind(one.aval)) if isinstance(one, Constant) else places[one]


def _number(one: Any) -> NDArray[Any] | None:
    return np.asarray(one.val, getattr(one.aval, "dtype", None)) if isinstance(one, Constant) else None


def _bits(number: NDArray[Any]) -> Hashable:
    """Shape, type and bytes: a zero and its negative differ, and a NaN equals itself."""
    return number.shape, number.dtype, number.tobytes()


# -- putting other numbers in ----------------------------------------------------------------------------------------


def _evaluate(program: ClosedJaxpr | Jaxpr, numbers: Numbers, args: Sequence[Any]) -> list[Any]:
    """The results of a program with other numbers; where there is None instead of one, its own stays."""
    jaxpr, closed = getattr(program, "jaxpr", program), getattr(program, "consts", ())
    known = dict(zip(jaxpr.constvars, map(_chosen, closed, numbers.closed), strict=True))
    known |= zip(jaxpr.invars, args, strict=True)

    def values(operands: Sequence[Any], instead: Sequence[Any]) -> list[Any]:
        return [
            _chosen(one.val, other) if isinstance(one, Constant) else known[one]
            for one, other in zip(operands, instead, strict=True)
        ]

    for equation, (instead, inner) in zip(jaxpr.eqns, numbers.equations, strict=True):
        operands = values(equation.invars, instead)
        with getattr(equation.ctx, "manager", nullcontext()):
            found = _apply(equation, inner, operands)
        known |= zip(equation.outvars, found, strict=True)
    return values(jaxpr.outvars, numbers.results)


def _chosen(own: Any, other: Any) -> Any:
    return own if other is None else other


def _apply(equation: JaxprEqn, inner: Sequence[Numbers], operands: list[Any]) -> list[Any]:
    """One equation; the programs in it are made again only where other numbers are put in."""
    if jax.tree.leaves(inner):
        programs = _programs(equation)
        functions = [partial(_evaluate_with, one, numbers) for one, numbers in zip(programs, inner, strict=True)]
        return list(_LOOPS.get(equation.primitive.name, _call)(equation.params, functions, operands))
    return as_written(equation, operands)


def _evaluate_with(program: ClosedJaxpr | Jaxpr, numbers: Numbers, *args: Any) -> list[Any]:
    return _evaluate(program, numbers, args)


_Functions = Sequence[Callable[..., list[Any]]]


def _call(params: Mapping[str, Any], functions: _Functions, operands: list[Any]) -> Sequence[Any]:
    return functions[0](*operands)


def _while(params: Mapping[str, Any], functions: _Functions, operands: list[Any]) -> Sequence[Any]:
    conditions, bodies = params["cond_nconsts"], params["body_nconsts"]
    first, second, carry = (
        operands[:conditions],
        operands[conditions : conditions + bodies],
        operands[conditions + bodies :],
    )
    found: list[Any] = lax.while_loop(
        lambda carry: functions[0](*first, *carry)[0], lambda carry: functions[1](*second, *carry), carry
    )
    return found


def _scan(params: Mapping[str, Any], functions: _Functions, operands: list[Any]) -> Sequence[Any]:
    consts, carried = params["num_consts"], params["num_carry"]
    common, carry, rows = operands[:consts], operands[consts : consts + carried], operands[consts + carried :]

    def body(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        found = functions[0](*common, *carry, *row)
        return found[:carried], found[carried:]

    options = {name: params[name] for name in ("reverse", "length", "unroll")}
    carry, shown = lax.scan(body, carry, rows, **options)
    return [*carry, *shown]


def _cond(params: Mapping[str, Any], functions: _Functions, operands: list[Any]) -> Sequence[Any]:
    found: list[Any] = lax.switch(operands[0], functions, *operands[1:])
    return found


_LOOPS: Mapping[str, Callable[[Mapping[str, Any], _Functions, list[Any]], Sequence[Any]]] = {
    "while": _while,
    "scan": _scan,
    "cond": _cond,
}
