"""How every operation of a program changes what is known of its values: the rules that `core.flow` lists."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from gossamer.core.labels import (
    BLOCK,
    NOW,
    PUBLIC,
    ZERO,
    Drawn,
    Held,
    Label,
    Lattice,
    Rows,
    Trail,
    either,
    features_of,
    is_of_rows,
    join,
    shape_of,
)
from gossamer.core.releases import marked
from gossamer.privacy import Sensitivity, Unit
from gossamer.privacy.marks import Declaration, marked_p

_CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call"}
)
_EACH = frozenset(
    {"add", "sub", "mul", "div", "max", "min", "neg", "abs", "sign", "exp", "log", "sqrt", "tanh", "square"}
)
_LEAST, _MOST = 1e-30, 1e30  # bounds in between have all their digits in float32
_REARRANGED = frozenset({"reshape", "squeeze", "transpose", "rev", "copy", "copy_p"})


def follow(trail: Trail, jaxpr: Jaxpr, labels: Sequence[Label]) -> list[Label]:
    """The labels of a program's results, from those of its arguments; its constants are public."""
    known: dict[Any, Label] = dict.fromkeys(jaxpr.constvars, PUBLIC)
    known |= dict(zip(jaxpr.invars, labels, strict=True))

    def read(variable: Any) -> Label:
        if isinstance(variable, Literal):
            return PUBLIC if np.any(variable.val) else ZERO
        return known[variable]

    for equation in jaxpr.eqns:
        results = _equation(trail, equation, [read(variable) for variable in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def _equation(trail: Trail, equation: JaxprEqn, operands: list[Label]) -> list[Label]:
    """The labels of one equation's results. What no rule knows depends on everything that it is given."""
    name, count = equation.primitive.name, len(equation.outvars)
    if equation.primitive is marked_p:
        return marked(trail, equation, operands)
    if name in _RULES:
        return _RULES[name](trail, equation, operands)
    called = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    if name in _CALLS and called is not None:
        return follow(trail, getattr(called, "jaxpr", called), operands)
    if name == "optimization_barrier":
        return list(operands)
    sized = _sized(equation, operands)
    if all(one.clean for one in operands):
        return [ZERO if sized else PUBLIC] * count
    result = join(operands, (trail.function, equation))
    bound = _bound(equation, operands)
    return [result._replace(token=_rows(trail, equation, operands), bound=bound, sized=sized)] * count


def _sized(equation: JaxprEqn, operands: list[Label]) -> bool:
    """Whether a result is no larger than what was clipped: parts of such values, their choice, and half of them."""
    name = equation.primitive.name
    if name == "select_n":
        return all(one.sized for one in operands[1:])
    if name in ("mul", "div"):
        scaled = [place for place, one in enumerate(operands) if one.sized]
        return len(operands) == 2 and bool(scaled) and (_constant_factor(equation, scaled[0]) or math.inf) <= 1
    kept = name in ("neg", "slice", "dynamic_slice", "convert_element_type", "broadcast_in_dim", *_REARRANGED)
    return kept and operands[0].sized


def _rows(trail: Trail, equation: JaxprEqn, operands: list[Label]) -> Rows | None:
    """Whether rows are still samples, each in one of them: number by number, or with their leading axis split."""
    moving = [place for place, one in enumerate(operands) if not one.clean]
    token, name = operands[moving[0]].token, equation.primitive.name
    if len(moving) > 1 or not isinstance(token, Rows):
        return None
    given, made = shape_of(equation.invars[moving[0]]), shape_of(equation.outvars[0])
    if name in _EACH or (name == "select_n" and moving[0] > 0):
        return token if given == made else None
    if name not in ("convert_element_type", "copy", "reshape", "broadcast_in_dim"):
        return None
    features = features_of(trail, token)
    same = given[len(given) - features :] == made[len(made) - features :] and math.prod(given) == math.prod(made)
    return token if same else None


def _bound(equation: JaxprEqn, operands: list[Label]) -> Sensitivity | Declaration | None:
    """How far one unit moves the result of an operation that keeps bounds."""
    moving = [place for place, one in enumerate(operands) if not one.clean]
    bound, name = operands[moving[0]].bound, equation.primitive.name
    if len(moving) > 1 or bound is None:
        return None
    sizes = [math.prod(shape_of(one)) for one in (equation.invars[moving[0]], equation.outvars[0])]
    floats = all(
        getattr(one.aval, "dtype", None) == jnp.float32 for one in (equation.invars[moving[0]], equation.outvars[0])
    )
    kept = name in ("neg", "slice", "dynamic_slice", *_REARRANGED) or (name == "select_n" and moving[0] > 0)
    kept = kept or (name == "convert_element_type" and floats) or (name == "broadcast_in_dim" and sizes[0] == sizes[1])
    if kept:
        return bound
    factor = _constant_factor(equation, moving[0]) if isinstance(bound, Sensitivity) and floats else None
    if factor is None or not isinstance(bound, Sensitivity):
        return None
    l1, l2 = bound.l1 * factor, bound.l2 * factor
    return Sensitivity(l1, l2) if l2 >= _LEAST and l1 <= _MOST and _LEAST <= factor <= _MOST else None


def _constant_factor(equation: JaxprEqn, moving: int) -> float | None:
    """By what a product with a power of two, or a quotient, multiplies: others round, by a share of the whole value."""
    name = equation.primitive.name
    constant = equation.invars[1 - moving] if name in ("mul", "div") else None
    if not isinstance(constant, Literal) or (name == "div" and moving == 1):
        return None
    factor = abs(float(constant.val))
    if math.frexp(factor)[0] != 0.5:
        return None
    return factor if name == "mul" else 1 / factor


# -- loops and branches ------------------------------------------------------------------------------------------------


def _scan(trail: Trail, equation: JaxprEqn, operands: list[Label]) -> list[Label]:
    """Rows of this iteration are `NOW`; all other data of the block, carried or constant, are `BLOCK`."""
    body = equation.params["jaxpr"].jaxpr
    # Told by their shapes, which have one axis more outside: releases of JAX name their numbers in different ways.
    threaded = sum(
        len(shape_of(one)) == len(shape_of(own)) for one, own in zip(equation.outvars, body.outvars, strict=True)
    )
    apart = sum(len(shape_of(one)) > len(shape_of(own)) for one, own in zip(equation.invars, body.invars, strict=True))
    carried = len(equation.invars) - apart
    consts = carried - threaded
    fixed = [one if isinstance(one.token, Lattice) else _in_every(one.touched()) for one in operands[:consts]]
    carry = [_in_every(one) for one in operands[consts:carried]]
    rows = [_row(trail, *each) for each in zip(equation.invars[carried:], operands[carried:], strict=True)]
    while True:
        inside = trail.copy()
        results = follow(inside, body, [*fixed, *carry, *rows])
        after = [_in_every(_if_newest(inside, one)) for one in results[: len(carry)]]
        joined = [either([a, _as_before(a, b)]) for a, b in zip(carry, after, strict=True)]
        if [one.known() for one in joined] == [one.known() for one in carry]:
            break
        carry = joined
    trail.take([inside])
    old = any(one.age == BLOCK for one in operands)
    return [_out_of_loop(trail, one, old) for one in (*after, *results[len(carry) :])]


def _in_every(label: Label) -> Label:
    """The same in every iteration: not data of one of them, nor a draw for each of them."""
    label = label if isinstance(label.token, Held) else label.touched()
    return label._replace(age=BLOCK if label.age == NOW else label.age, bound=None, sized=False)


def _row(trail: Trail, variable: Any, label: Label) -> Label:
    """One row for each iteration: a draw, or samples, of its own. Other rows may hold parts of one unit."""
    if isinstance(label.token, Drawn):
        return label
    if trail.flow.unit is not Unit.BATCH and is_of_rows(trail, label, shape_of(variable)):
        return label
    return _in_every(label.touched())


def _if_newest(trail: Trail, label: Label) -> Label:
    """A mechanism's state, if it is the one that its last release returned; else something made of it."""
    stale = isinstance(label.token, Held) and label.token.turn != trail.newest(label.token.mechanism)
    return label.touched() if stale else label


def _as_before(before: Label, after: Label) -> Label:
    """A state that was threaded through an iteration is the one that the next iteration starts from."""
    same = isinstance(before.token, Held) and isinstance(after.token, Held) and before.token[:2] == after.token[:2]
    return after._replace(token=before.token) if same else after


def _out_of_loop(trail: Trail, label: Label, old: bool) -> Label:
    if isinstance(label.token, Held):
        return label._replace(token=label.token._replace(turn=trail.newest(label.token.mechanism)))
    return label.touched()._replace(age=NOW if label.age == BLOCK and not old else label.age, bound=None, sized=False)


def _while(trail: Trail, equation: JaxprEqn, operands: list[Label]) -> list[Label]:
    """Nothing is released in a loop whose end a program decides; what decides it is in all results."""
    tests, bodies = equation.params["cond_nconsts"], equation.params["body_nconsts"]
    cond, body = equation.params["cond_jaxpr"].jaxpr, equation.params["body_jaxpr"].jaxpr
    given = [one.touched()._replace(bound=None, sized=False) for one in operands]
    fixed_test, fixed, carry = given[:tests], given[tests : tests + bodies], given[tests + bodies :]
    inside = trail.copy(closed="in a loop without a fixed number of iterations")
    while True:
        goes_on = follow(inside, cond, [*fixed_test, *carry])
        after = follow(inside, body, [*fixed, *carry])
        joined = [join([a, b, *goes_on], (trail.function, equation)) for a, b in zip(carry, after, strict=True)]
        if [one.known() for one in joined] == [one.known() for one in carry]:
            trail.take([inside])
            return joined
        carry = joined


def _cond(trail: Trail, equation: JaxprEqn, operands: list[Label]) -> list[Label]:
    """What decides between branches is in all results; unless it is clean, no branch releases."""
    index, *given = operands
    closed = trail.closed if index.clean else "where something that depends on data decides whether it happens"
    results = follow_any(trail, [(branch.jaxpr, given, {"closed": closed}) for branch in equation.params["branches"]])
    if index.clean:
        return results
    return [join([index, one], (trail.function, equation)) for one in results]


def follow_any(trail: Trail, ways: Sequence[tuple[Jaxpr, Sequence[Label], dict[str, Any]]]) -> list[Label]:
    """The labels of the results of one of several programs, each with its arguments and what is special there."""
    trails, results = [], []
    for jaxpr, labels, special in ways:
        way = trail.copy(**special)
        results.append([_of_branch(way, one) for one in follow(way, jaxpr, labels)])
        trails.append(way)
    trail.take(trails)
    return [_after_branches(trail, either(each)) for each in zip(*results, strict=True)]


def _of_branch(trail: Trail, label: Label) -> Label:
    """The newest state of a mechanism has the same turn in every branch, whether it released there or not."""
    label = _if_newest(trail, label)
    return label._replace(token=label.token._replace(turn=-1)) if isinstance(label.token, Held) else label


def _after_branches(trail: Trail, label: Label) -> Label:
    if isinstance(label.token, Held):
        return label._replace(token=label.token._replace(turn=trail.newest(label.token.mechanism)))
    return label


_RULES: dict[str, Callable[[Trail, JaxprEqn, list[Label]], list[Label]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
