"""The functions of a learner and a server as programs: traced with marks, for the shapes of one exchange."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxprs_in_params
from jax.extend.core import Literal as Constant
from jax.tree_util import keystr, tree_flatten_with_path

from gossamer.core.flow import Flow
from gossamer.core.learner import Learner, Now, Server
from gossamer.errors import ConfigurationError
from gossamer.privacy.marks import refuse_effects, traced, unmarked
from gossamer.problems import Block

_SETTINGS = (bool, int, float, str, tuple, np.dtype)


@dataclass(frozen=True, eq=False)
class Program:
    """One function of a learner or server: its program with marks, and how its arguments and results are laid out."""

    checked: ClosedJaxpr
    arguments: Any
    results: Any

    @cached_property
    def run(self) -> ClosedJaxpr:
        """The same without marks, as engines run it."""
        return jax.make_jaxpr(partial(unmarked, self.checked))(*self.checked.in_avals)


Shapes = tuple[tuple[tuple[int, ...], Any], ...]
Key = tuple[Any, Shapes]
"""The tree of a function's arguments, and shapes and types of its leaves."""
Programs = dict[str, dict[Key, Program]]
"""By the name of the function, and by its arguments."""


def of_exchange(flow: Flow) -> Programs:
    """All functions, traced for the shapes of one exchange."""
    programs: Programs = {}

    def trace(name: str, *args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        key = tree, tuple((one.shape, one.dtype) for one in leaves)
        program = programs.setdefault(name, {})[key] = traced_for(flow, name, key)
        made = [_array(one.shape, one.dtype) for one in program.checked.out_avals]
        return jax.tree.unflatten(program.results, made)

    def now(function: str) -> Now:
        one = _array((), jnp.float32)
        draws = {name: _array(spec.shape, jnp.float32) for name, spec in flow.draws.items()}
        everything = Now(dict.fromkeys(flow.public, one), draws, dict.fromkeys(flow.lattice, one))
        return everything.only_for(function, flow.draws)

    state = trace("init", _array((), jnp.int32))
    trace("decide", state, now("decide"))
    for rows in flow.rows:
        features = _array((rows, *flow.problem.feature_shape), jnp.float32)
        labels = _array((rows,), jnp.int32 if flow.problem.classifies else jnp.float32)
        trace("learn", state, Block(features, labels), now("learn"))
    heard, _ = trace("speak", state, now("speak"))
    if flow.server is not None:
        messages = jax.tree.map(lambda one: _array((flow.learners, *one.shape), one.dtype), heard)
        heard, _ = trace("aggregate", trace("start"), messages, now("aggregate"))
    trace("listen", state, heard)
    for function, each in programs.items():
        for program in each.values():
            require_same_state(function, program, programs)
    return programs


def traced_for(flow: Flow, function: str, key: Key) -> Program:
    """The program of one function for arguments of these shapes."""
    owner, name = _owner(flow, function)
    args = jax.tree.unflatten(key[0], [_array(*one) for one in key[1]])
    checked, results = traced(getattr(owner, name), *args)
    refuse_effects(checked.jaxpr, name)
    return Program(checked, key[0], jax.tree.structure(results))


def _array(shape: tuple[int, ...], kind: Any) -> Any:
    """An array of which only shape and type are known."""
    return jax.ShapeDtypeStruct(shape, kind)  # type: ignore[no-untyped-call]


def _owner(flow: Flow, function: str) -> tuple[Learner | Server, str]:
    """Whose function it is, and its name there."""
    if function in ("start", "aggregate"):
        assert flow.server is not None
        return flow.server, "init" if function == "start" else function
    return flow.learner, function


def require_same_state(function: str, program: Program, programs: Programs) -> None:
    """Refuse a state that changes its fields, shapes or types: what belongs to it would not be known."""
    if function in ("init", "start", "decide"):
        return
    made_first = first(programs["start" if function == "aggregate" else "init"])
    found = jax.tree.unflatten(program.results, program.checked.out_avals)
    state = found[1] if function in ("speak", "aggregate") else found
    before = jax.tree.unflatten(made_first.results, made_first.checked.out_avals)
    kept, made = (
        {keystr(path): one.str_short() for path, one in tree_flatten_with_path(each)[0]} for each in (state, before)
    )
    forms: list[Any] = [jax.tree.structure(state), jax.tree.structure(before)]
    if kept != made or forms[0] != forms[1]:
        other = [f"{name}: {kept.get(name)}" for name in {**made, **kept} if kept.get(name) != made.get(name)]
        given = f"{other[0] if other else 'another one'} after {function}"
        hint = "keep all fields, with their shapes and types"
        raise ConfigurationError("state", given, "a state as `init` makes it", hint)


def first(programs: Mapping[Key, Program]) -> Program:
    """The program for the shapes of the first exchange."""
    return next(iter(programs.values()))


def digest(programs: Programs) -> str:
    """Of all programs and the constants in them."""
    found = hashlib.sha256()
    for name, each in sorted(programs.items()):
        for program in each.values():
            found.update(name.encode())
            _add_to(found, program.checked)
    return found.hexdigest()


def _add_to(found: Any, program: Any) -> None:
    """Add operations, their types, constants and settings to a digest; places in memory say nothing."""
    jaxpr = getattr(program, "jaxpr", program)
    numbers = {variable: str(place) for place, variable in enumerate((*jaxpr.constvars, *jaxpr.invars))}
    for constant in getattr(program, "consts", ()):
        known = np.asarray(constant)
        found.update(f"{known.dtype}{known.shape}".encode() + known.tobytes())
    for equation in jaxpr.eqns:
        given = [str(one.val) if isinstance(one, Constant) else numbers[one] for one in equation.invars]
        numbers |= {variable: str(len(numbers) + place) for place, variable in enumerate(equation.outvars)}
        settings = [f"{key}={value}" for key, value in sorted(equation.params.items()) if isinstance(value, _SETTINGS)]
        made = [str(one.aval) for one in equation.outvars]
        found.update("\n".join([equation.primitive.name, *given, *settings, *made]).encode())
        for inner in jaxprs_in_params(equation.params):
            _add_to(found, inner)
    found.update(
        " ".join(numbers.get(one, str(one)) for one in jaxpr.outvars if not isinstance(one, Constant)).encode()
    )
