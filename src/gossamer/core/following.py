"""How every operation of a program changes what is known of its values: the rules that `core.flow` lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from gossamer.core.labels import (
    AGES,
    BLOCK,
    CLEAN,
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
    join,
    name_of,
)
from gossamer.errors import PrivacyError
from gossamer.mechanisms import Mechanism
from gossamer.privacy import Clip, Sensitivity, Unit
from gossamer.privacy.marks import Clipped, Declaration, Mark, marked_p

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
        return _marked(trail, equation, operands)
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
    given, made = _shape(equation.invars[moving[0]]), _shape(equation.outvars[0])
    if name in _EACH or (name == "select_n" and moving[0] > 0):
        return token if given == made else None
    if name not in ("convert_element_type", "copy", "reshape", "broadcast_in_dim"):
        return None
    features = _features(trail, token)
    same = given[len(given) - features :] == made[len(made) - features :] and math.prod(given) == math.prod(made)
    return token if same else None


def _features(trail: Trail, token: Rows) -> int:
    """Axes of one sample; all others count samples."""
    return len(trail.flow.problem.feature_shape) if token.name == "x" else 0


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(getattr(variable.aval, "shape", ()))


def _bound(equation: JaxprEqn, operands: list[Label]) -> Sensitivity | Declaration | None:
    """How far one unit moves the result of an operation that keeps bounds."""
    moving = [place for place, one in enumerate(operands) if not one.clean]
    bound, name = operands[moving[0]].bound, equation.primitive.name
    if len(moving) > 1 or bound is None:
        return None
    sizes = [math.prod(_shape(one)) for one in (equation.invars[moving[0]], equation.outvars[0])]
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
        len(_shape(one)) == len(_shape(own)) for one, own in zip(equation.outvars, body.outvars, strict=True)
    )
    apart = sum(len(_shape(one)) > len(_shape(own)) for one, own in zip(equation.invars, body.invars, strict=True))
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
    if trail.flow.unit is not Unit.BATCH and _is_of_rows(trail, label, _shape(variable)):
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


# -- marks -------------------------------------------------------------------------------------------------------------


def _marked(trail: Trail, equation: JaxprEqn, operands: list[Label]) -> list[Label]:  # noqa: PLR0911
    mark: Mark = equation.params["mark"]
    ends = np.cumsum(mark.sizes).tolist()
    parts = [operands[end - size : end] for size, end in zip(mark.sizes, ends, strict=True)]
    if mark.kind == "release":
        return _release(trail, equation, mark, parts)
    if mark.kind == "init":
        return _init(trail, equation, mark, operands)
    if mark.kind == "public":
        _require_newest(trail, mark.owner, operands)
        return [PUBLIC] * len(equation.outvars)
    if mark.kind == "clipped":
        return [_clipped(trail, equation, mark.owner, parts)]
    if mark.kind == "lost":
        return [join(operands, (trail.function, equation))] * len(equation.outvars)
    label = operands[0].touched()
    if label.clean:
        return [label]
    trail.declared[mark.owner] = None
    return [label._replace(age=min(label.age, NOW), bound=mark.owner)]


def _place(trail: Trail, mechanism: Mechanism) -> int:
    """Which of the algorithm's mechanisms it is."""
    known = trail.flow.mechanisms
    same = [place for place, one in enumerate(known) if type(one) is type(mechanism) and one == mechanism]
    if not same:
        allowed = f"mechanisms among the algorithm's releases: {', '.join(map(name_of, known))}"
        raise PrivacyError.of("flow", f"{name_of(mechanism)} of {type(mechanism).__name__}", allowed)
    return same[0]


def _init(trail: Trail, equation: JaxprEqn, mark: Mark, operands: list[Label]) -> list[Label]:
    """A mechanism's first state, of public values; made anew in any other function, it is nobody's newest."""
    if not all(one.clean for one in operands) or not equation.outvars:
        return [join(operands, (trail.function, equation))] * len(equation.outvars)
    turn, place = (0 if trail.function == "init" else -2), _place(trail, mark.owner)
    what = f"the state of {name_of(mark.owner)}"
    return [Label(token=Held(place, leaf, turn), source=what) for leaf in range(len(equation.outvars))]


def _clipped(trail: Trail, equation: JaxprEqn, owner: Clipped, parts: list[list[Label]]) -> Label:
    """Rows: one unit moves the sum by twice the clip, where the point is clean. One vector: whatever moves it."""
    result = join([label for part in parts for label in part], (trail.function, equation))._replace(sized=True)
    size = math.prod(_shape(equation.outvars[0]))
    floats = all(getattr(one.aval, "dtype", None) == jnp.float32 for one in (equation.invars[0], equation.outvars[0]))
    if type(owner.clip) is not Clip or not floats:  # nobody knows how another class, or type, is clipped
        return result._replace(sized=False)
    if result.clean:
        return result
    if owner.rows is None:
        return result._replace(bound=owner.clip.sensitivity(Unit.SAMPLE, size))
    samples, others = parts[1] + parts[2], [label for part in (parts[0], *parts[3:]) for label in part]
    shapes = map(_shape, equation.invars[len(parts[0]) :])
    whole = all(label.clean or _is_of_rows(trail, label, shape) for label, shape in zip(samples, shapes, strict=False))
    if not whole or not all(label.clean for label in others):
        return result
    batch = owner.rows if trail.flow.unit is Unit.BATCH else 1
    return result._replace(bound=owner.clip.sensitivity(trail.flow.unit, size, rows=owner.rows, batch=batch))


def _is_of_rows(trail: Trail, label: Label, shape: tuple[int, ...]) -> bool:
    """Whether a value has samples in its rows, and not features of one."""
    return isinstance(label.token, Rows) and len(shape) > _features(trail, label.token)


def _release(trail: Trail, equation: JaxprEqn, mark: Mark, parts: list[list[Label]]) -> list[Label]:
    """Rules 2, 3, 4 and 6."""
    mechanism, (state, (value,), draws, grids, public) = mark.owner, parts
    place, name = _place(trail, mechanism), name_of(mark.owner)
    trail.uses(place, mark.method)
    if trail.closed:
        raise PrivacyError(f"flow: {name} releases {trail.closed}. Release always, and decide on what was released.")
    _require_draws(trail, equation, mark, draws)
    _require_newest(trail, mechanism, state)
    _require_lattice(trail, mark, grids)
    for label in public:
        if not label.clean:
            raise PrivacyError(f"flow: a public argument of {name} depends on {label.source}{label.way()}.")
    _require_all(trail, mechanism)
    _require_value(name, value, old=mechanism.composes)
    _note_bound(trail, place, value, mark.method)
    turn = trail.turns[place] = trail.newest(place) + 1
    trail.fresh[place] = trail.fresh.get(place, 0) + (value.age > CLEAN)
    if trail.fresh[place] > 1 and not mechanism.composes:
        raise PrivacyError(
            f"flow: {name} releases data of one block {trail.fresh[place]} times, and its noise covers one. Release "
            "once, or give each release a mechanism of its own: their losses compose."
        )
    leaves = range(len(equation.outvars) - mark.results)
    held = [Label(token=Held(place, leaf, turn), source=f"the state of {name}") for leaf in leaves]
    return [PUBLIC] * mark.results + held


def _require_draws(trail: Trail, equation: JaxprEqn, mark: Mark, draws: list[Label]) -> None:
    """The mechanism's own draws, of its laws, as they came, and for this release only."""
    name, laws, first = name_of(mark.owner), mark.owner.laws(), sum(mark.sizes[:2])
    if set(mark.names) != set(laws):
        raise PrivacyError.of("flow", f"draws {sorted(mark.names)} for {name}", f"its own: {sorted(laws)}")
    for place, (draw, label) in enumerate(zip(mark.names, draws, strict=True)):
        (law, shape), spec = laws[draw], trail.flow.draws[draw]
        whole = law != "l2-laplace" or spec.shape == shape  # a part of such a vector has another law
        if label.token != Drawn(draw) or _shape(equation.invars[first + place]) != shape or not whole:
            raise PrivacyError(
                f"flow: {name} gets something else than its draw {draw!r} as it came{label.way()}. Noise that is "
                "changed, kept or made elsewhere protects nothing: hand it `now.noise`. Where there is a draw for each "
                "of several releases, scan over them."
            )
        if spec.used_in != trail.function:
            raise PrivacyError.of("flow", f"the draw {draw!r} in {trail.function}", f"in {spec.used_in}, as declared")
        if spec.law != law:
            raise PrivacyError.of(
                "noise", f"{spec.law} for {draw!r}", f"{law!r}, the law that {name} is calibrated for"
            )
        trail.used[draw] = trail.used.get(draw, 0) + 1
        if trail.used[draw] > 1:
            raise PrivacyError(
                f"flow: the draw {draw!r} is used for two releases, whose difference has no noise. Declare a draw for "
                "each release."
            )


def _require_lattice(trail: Trail, mark: Mark, grids: list[Label]) -> None:
    """The lattice of its draws, where they lie on one, as it came."""
    wanted = trail.grids & set(mark.names)
    if set(mark.grids) != wanted or [one.token for one in grids] != [Lattice(name) for name in mark.grids]:
        raise PrivacyError(
            f"flow: {name_of(mark.owner)} gets another lattice than that of its draws. Rounded to it, noise would "
            "vanish, or show what it hides: hand it `now.grid`."
        )


def _require_newest(trail: Trail, mechanism: Mechanism, state: list[Label]) -> None:
    place = _place(trail, mechanism)
    newest = [Held(place, leaf, trail.newest(place)) for leaf in range(len(state))]
    if [label.token for label in state] != newest:
        raise PrivacyError(
            f"flow: {name_of(mechanism)} gets another state than its last release returned, or `init` made. Keep that "
            "state in the learner's, untouched, and hand it to the next release."
        )


def _require_all(trail: Trail, mechanism: Mechanism) -> None:
    """Where one unit is common data, it moves what all learners release: their mechanisms count it together."""
    learners, unit = trail.flow.learners, trail.flow.unit
    if unit is not Unit.SAMPLE and trail.function != "aggregate" and mechanism.together < learners:
        hint = f"{unit} moves what all learners release: make {name_of(mechanism)} with together={learners}"
        raise PrivacyError.of("together", mechanism.together, str(learners), hint)


def _require_value(name: str, value: Label, *, old: bool) -> None:
    """Data of this block, or older data of which somebody says why the noise covers them; no noise."""
    if value.touched().noise:
        raise PrivacyError(f"flow: what {name} releases depends on {value.secret()}, which is secret{value.way()}.")
    if value.age > NOW and not isinstance(value.bound, Declaration) and not old:
        raise PrivacyError(
            f"flow: what {name} releases depends on {AGES[value.age]} ({value.source}){value.way()}: one unit would "
            "be released again and again, and the noise covers one release. Release each block once and add up what "
            "was released; or say with `privacy.declared` why the noise covers it."
        )


def _note_bound(trail: Trail, place: int, value: Label, method: str) -> None:
    """How far one unit moves what is released, for whoever knows what its noise is scaled for.

    A mechanism that adds values up rounds all of them as the largest: then even public ones must be of a known size.
    """
    mechanism = trail.flow.mechanisms[place]
    if isinstance(value.bound, Declaration):
        return
    if mechanism.adds_up(method) and not value.sized:
        trail.unseen[name_of(mechanism)] = f" of the size of all values{value.way()}"
    if value.age == CLEAN:
        return
    if value.bound is None or mechanism.together > 1 or value.age > NOW:
        trail.unseen[name_of(mechanism)] = value.way()
    else:
        trail.moves(place, value.bound, value.way())
