"""What leaves a learner, checked: an algorithm that says `proven` is traced, and its data are followed.

Messages, broadcasts, decisions and released fields may depend on data only through releases of the algorithm's own
mechanisms. The functions of learner and server are traced to programs (jaxprs), and every value in them gets a label:
whether it depends on data and on which (of this block, of another iteration, older), on draws, on a mechanism's state,
and how far one unit moves it. The rules:

1. Data, draws that protect, and the states of mechanisms are secret. What is heard is clean, and chosen by anybody.
2. A release cleans what it returns if its noise is its own draw, whole and used once, its state is the one that its
   last release returned, and its mechanism is among the algorithm's.
3. What is released depends on the current block (in a scan: on that iteration's rows) and on clean values. For older
   data somebody must say, with `declared`, why one unit moves them no farther than the noise is scaled for.
4. Predicates, indices and numbers of iterations are operands like all others; under one that is not clean nothing is
   released.
5. Callbacks and other effects are refused. Constants, and what `init` makes, are public.
6. One block is released once by each mechanism; the losses of several mechanisms compose, and the guarantee covers it.
7. How far one unit moves a value is known where a clip bounds it, and through products with constants. It is lost in
   every other operation: sums with numbers that anybody may have chosen round by any amount.
8. What engines run is the program that was checked.

What no rule sees is listed as an assumption that nothing enforces, and the guarantee is heuristic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, lru_cache, partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun, jaxprs_in_params
from jax.extend.core import Literal as Constant
from jax.tree_util import PyTreeDef, keystr, tree_flatten_with_path

from gossamer.core.following import follow, follow_any
from gossamer.core.labels import (
    AGES,
    CLEAN,
    NOW,
    OLD,
    PUBLIC,
    Drawn,
    Held,
    Label,
    Lattice,
    Rows,
    Trail,
    either,
    name_of,
)
from gossamer.core.learner import Learner, Message, Now, Server, State
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import Mechanism
from gossamer.privacy import Assumption, NoiseSpec, Observer, Unit
from gossamer.privacy.marks import ours, refuse_effects, traced, unmarked
from gossamer.problems import Block, Problem

_SEES: dict[Observer, tuple[str, ...]] = {
    "decisions": ("decision",),
    "wiretap": ("message", "broadcast"),
    "outsiders": ("message", "broadcast", "decision"),
    "peers": ("message", "broadcast", "decision"),
    "broadcasts": ("broadcast", "decision"),
}
_SETTINGS = (bool, int, float, str, tuple, np.dtype)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type, PyTreeDef)
_MADE_BY = {"decision": "decide", "message": "speak", "broadcast": "aggregate"}


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


@dataclass(frozen=True)
class Flow:
    """All that decides what leaves a learner: equal flows are checked once.

    Attributes:
        learner: one learner's side.
        server: of a federation.
        problem: loss and decision set.
        mechanisms: through which data leave.
        idle: draws that protect nothing.
        observer: whom the guarantee is against.
        unit: what changes between neighbours.
        learners: how many.
        public: the names of the schedules.
        rows: the lengths of its blocks, in samples.
        draws: all declared randomness, by name.
        put_together_by_us: whether a function of Gossamer chose all this: declarations rest on schedules and networks
            too.
        scaled_for: the l1 and l2 sensitivity that the noise of each mechanism is scaled for. Programs do not depend on
            it: another budget does not compile again.
    """

    learner: Learner
    server: Server | None
    problem: Problem
    mechanisms: tuple[Mechanism, ...]
    idle: frozenset[str]
    observer: Observer
    unit: Unit
    learners: int
    public: tuple[str, ...]
    rows: tuple[int, ...]
    draws: Mapping[str, NoiseSpec]
    put_together_by_us: bool
    scaled_for: tuple[tuple[float, float], ...] = field(compare=False)

    def __hash__(self) -> int:
        return hash((self.learner, self.server, self.mechanisms, self.observer, self.unit, self.learners, self.rows))

    def noise_of(self, side: Literal["learner", "server"]) -> dict[str, NoiseSpec]:
        """The draws of the learner, or of the server: those that are used when it aggregates."""
        return {name: one for name, one in self.draws.items() if (one.used_in == "aggregate") == (side == "server")}

    def check(self) -> Findings:
        """What the program shows; a `PrivacyError` where data leave otherwise than through a release."""
        return _checked(self, self.scaled_for)


class Findings(NamedTuple):
    """What a check found: assumptions that it saw to, those that nothing enforces, and a digest of the programs."""

    seen: tuple[Assumption, ...]
    loose: tuple[Assumption, ...]
    digest: str


@dataclass(frozen=True)
class Guarded(Learner):
    """The learner of a checked algorithm: what engines run is the program that was checked, shape by shape."""

    flow: Flow

    @property
    def released(self) -> frozenset[str]:  # type: ignore[override]
        """As the learner says."""
        return self.flow.learner.released

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """As the learner said when it was checked."""
        return self.flow.noise_of("learner")

    def init(self, identity: jax.Array) -> State:
        """The checked program of `init`."""
        return _run(self.flow, "init", identity)

    def decide(self, state: State, now: Now) -> jax.Array:
        """The checked program of `decide`."""
        decision: jax.Array = _run(self.flow, "decide", state, now)
        return decision

    def learn(self, state: State, block: Block, now: Now) -> State:
        """The checked program of `learn`."""
        return _run(self.flow, "learn", state, block, now)

    def speak(self, state: State, now: Now) -> tuple[Message, State]:
        """The checked program of `speak`."""
        said: tuple[Message, State] = _run(self.flow, "speak", state, now)
        return said

    def listen(self, state: State, heard: Message) -> State:
        """The checked program of `listen`."""
        return _run(self.flow, "listen", state, heard)


@dataclass(frozen=True)
class GuardedServer(Server):
    """The server of a checked algorithm."""

    flow: Flow

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """As the server said when it was checked."""
        return self.flow.noise_of("server")

    def init(self) -> State:
        """The checked program of the server's `init`."""
        return _run(self.flow, "start")

    def aggregate(self, state: State, messages: Message, now: Now) -> tuple[Message, State]:
        """The checked program of `aggregate`."""
        answer: tuple[Message, State] = _run(self.flow, "aggregate", state, messages, now)
        return answer


def _run(flow: Flow, function: str, *args: Any) -> Any:
    """Run one function as it was checked with arguments of these shapes."""
    leaves, tree = jax.tree.flatten(args)
    shapes = tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    program = _allowed(flow, flow.scaled_for, function, tree, shapes)
    typed = [jnp.asarray(leaf, kind) for leaf, (_, kind) in zip(leaves, shapes, strict=True)]
    return jax.tree.unflatten(program.results, jaxpr_as_fun(program.run)(*typed))


@lru_cache(maxsize=512)
def _allowed(flow: Flow, scaled_for: Any, function: str, tree: Any, shapes: Shapes) -> Program:
    """The program of a function for these shapes, checked together with all that may run beside it."""
    assert flow.scaled_for == scaled_for  # part of the key
    program, known = _traced(*_owner(flow, function), tree, shapes), _programs(flow)
    if program not in known[function]:
        _require_same_state(flow, function, program, known)
        _followed(flow, {**known, function: [*known[function], program]})
        known[function].append(program)
    return program


@lru_cache(maxsize=512)
def _traced(owner: Learner | Server, name: str, tree: Any, shapes: Shapes) -> Program:
    function: Callable[..., Any] = getattr(owner, name)
    leaves = [_array(shape, kind) for shape, kind in shapes]
    args = jax.tree.unflatten(tree, leaves)
    checked, results = traced(function, *args)
    refuse_effects(checked.jaxpr, name)
    return Program(checked, tree, jax.tree.structure(results))


def _array(shape: tuple[int, ...], kind: Any) -> Any:
    """An array of which only shape and type are known."""
    return jax.ShapeDtypeStruct(shape, kind)  # type: ignore[no-untyped-call]


def _owner(flow: Flow, function: str) -> tuple[Learner | Server, str]:
    """Whose function it is, and its name there."""
    if function in ("start", "aggregate"):
        assert flow.server is not None
        return flow.server, "init" if function == "start" else function
    return flow.learner, function


@lru_cache(maxsize=256)
def _programs(flow: Flow) -> dict[str, list[Program]]:
    """All functions, traced for the shapes of one exchange; more are added where other shapes come."""
    programs: dict[str, list[Program]] = {}

    def trace(name: str, *args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        shapes = tuple((one.shape, one.dtype) for one in leaves)
        program = _traced(*_owner(flow, name), tree, shapes)
        programs.setdefault(name, []).append(program)
        return jax.tree.unflatten(program.results, [_array(one.shape, one.dtype) for one in program.checked.out_avals])

    def now(function: str) -> Now:
        draws = {name: _array(spec.shape, jnp.float32) for name, spec in flow.draws.items() if spec.used_in == function}
        return Now({name: _array((), jnp.float32) for name in flow.public}, draws, {})

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
        for program in each:
            _require_same_state(flow, function, program, programs)
    return programs


def _require_same_state(flow: Flow, function: str, program: Program, programs: Mapping[str, Sequence[Program]]) -> None:
    """Refuse a state that changes its fields, shapes or types: what belongs to it would not be known."""
    first = programs["start" if function == "aggregate" else "init"][0]
    if function in ("init", "start", "decide"):
        return
    found = jax.tree.unflatten(program.results, program.checked.out_avals)
    state = found[1] if function in ("speak", "aggregate") else found
    before = jax.tree.unflatten(first.results, first.checked.out_avals)
    kept, made = (
        {keystr(path): one.str_short() for path, one in tree_flatten_with_path(each)[0]} for each in (state, before)
    )
    forms: list[Any] = [jax.tree.structure(state), jax.tree.structure(before)]
    if kept != made or forms[0] != forms[1]:
        other = [f"{name}: {kept.get(name)}" for name in {**made, **kept} if kept.get(name) != made.get(name)]
        given = f"{other[0] if other else 'another one'} after {function}"
        hint = "keep all fields, with their shapes and types"
        raise ConfigurationError("state", given, "a state as `init` makes it", hint)


# -- following the data ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _checked(flow: Flow, scaled_for: Any) -> Findings:
    assert flow.scaled_for == scaled_for  # part of the key
    programs = _programs(flow)
    trail = _followed(flow, programs)
    for place, mechanism in enumerate(flow.mechanisms):
        if not trail.turns.get(place):
            hint = "call its `release` (or `increment`) with the draws of `now.noise`, or leave it out of `releases`"
            raise PrivacyError.of("releases", name_of(mechanism), "mechanisms that release something", hint)
    return Findings(*_findings(flow, trail), _digest(programs))


def _findings(flow: Flow, trail: Trail) -> tuple[tuple[Assumption, ...], tuple[Assumption, ...]]:
    """What was seen, and what nothing enforces."""
    names = ", ".join(map(name_of, flow.mechanisms))
    seen = [f"{one}s" for one in _SEES[flow.observer] if one != "broadcast" or flow.server]
    through = f"data enter {' and '.join(seen)} through releases of {names} only (constants and schedules are public)"
    only = Assumption(through, "gossamer.core.flow.Flow")
    trusted = flow.put_together_by_us and not foreign((flow.learner, flow.server, flow.mechanisms))
    who = type(flow.server if flow.server is not None and flow.server.noise else flow.learner)
    stated = [Assumption(one.claim, one.place if one.ours and trusted else "") for one in trail.declared]
    for mechanism in flow.mechanisms:
        keeper = f"{who.__module__}.{who.__qualname__}" if trusted else ""
        stated += [Assumption(claim, keeper) for claim in mechanism.promises()]
        if foreign(mechanism):
            stated.append(Assumption(f"{type(mechanism).__name__} ({name_of(mechanism)}) is as private as it says"))
    bound = "one unit moves what {} releases by no more than its noise is scaled for"
    stated += [Assumption(bound.format(name)) for name in trail.unseen]
    return (only, *(one for one in stated if one.enforced)), tuple(one for one in stated if not one.enforced)


def _followed(flow: Flow, programs: Mapping[str, Sequence[Program]]) -> Trail:
    """Follow exchanges until no label changes any more, and look at what an observer sees in each.

    Any of several programs of a function may run at any exchange.
    """
    start = Trail(flow, "init")
    learner = follow(start, programs["init"][0].checked.jaxpr, [PUBLIC])
    server = follow(start, programs["start"][0].checked.jaxpr, []) if flow.server else []
    while True:
        trail = Trail(flow)
        after = _exchange(trail, programs, learner, server)
        joined = [either([a, b]) for a, b in zip(learner + server, after, strict=True)]
        if [one.known() for one in joined] == [one.known() for one in learner + server]:
            return trail
        learner, server = joined[: len(learner)], joined[len(learner) :]


def _exchange(
    trail: Trail, programs: Mapping[str, Sequence[Program]], learner: list[Label], server: list[Label]
) -> list[Label]:
    """The labels of all states after one exchange; what is seen in it is looked at."""
    flow, sees = trail.flow, _SEES[trail.flow.observer]

    def call(name: str, *known: Any) -> list[Label]:
        trail.function = name
        each = [(one.checked.jaxpr, _labels(flow, one, known), {"grids": _grids(one)}) for one in programs[name]]
        return follow_any(trail, each)

    seen = {"decision": call("decide", learner)}
    said = call("speak", call("learn", learner))
    served, size = server, len(said) - len(learner)
    seen["message"], spoken = said[:size], said[size:]
    # What an observer may see is checked to be clean; all else is heard as it was said.
    heard = [PUBLIC] * size if "message" in sees else seen["message"]
    if flow.server is not None:
        # Common data move the messages of all learners at once.
        given = heard if flow.unit is Unit.SAMPLE else [one._replace(bound=None) for one in heard]
        answered = call("aggregate", server, given)
        size = len(answered) - len(server)
        seen["broadcast"], served = answered[:size], answered[size:]
        heard = [PUBLIC] * size if "broadcast" in sees else seen["broadcast"]
    after = call("listen", spoken, heard)
    _look(flow, programs, seen, learner)
    return [_later(trail, one) for one in (*after, *served)]


def _grids(program: Program) -> frozenset[str]:
    """The draws of a function that lie on a lattice."""
    args = jax.tree.unflatten(program.arguments, range(program.arguments.num_leaves))
    return frozenset(name for arg in args if isinstance(arg, Now) for name in arg.grid)


def _labels(flow: Flow, program: Program, known: Sequence[list[Label]]) -> list[Label]:
    """The labels of a function's arguments: those known (the state, and what is heard), then block and `now`."""
    given = [label for labels in known for label in labels]
    tree = jax.tree.unflatten(program.arguments, range(program.arguments.num_leaves))
    paths = tree_flatten_with_path(tree)[0]
    rest = [_argument(flow, path) for path, place in paths if place >= len(given)]
    return given + rest


def _argument(flow: Flow, path: tuple[Any, ...]) -> Label:
    """Of a block's leaf, or one of `now`."""
    names = [str(getattr(part, "name", getattr(part, "key", part))) for part in path[1:]]
    if names[0] in ("x", "y"):
        return Label(NOW, token=Rows(names[0]), source=f"block.{names[0]}")
    if names[0] == "noise" and names[1] not in flow.idle:
        return Label(token=Drawn(names[1]), source=f"the draw {names[1]!r}")
    return Label(token=Lattice(names[1])) if names[0] == "grid" else PUBLIC


def _look(
    flow: Flow, programs: Mapping[str, Sequence[Program]], seen: Mapping[str, list[Label]], state: list[Label]
) -> None:
    """Refuse what an observer must not see."""
    for name in _SEES[flow.observer]:
        for place, label in enumerate(seen.get(name, [])):
            _refuse_unclean(_field(programs[_MADE_BY[name]][0], name, place), label, flow)
    if "decision" in _SEES[flow.observer]:
        for place, label in enumerate(state):
            name = _field(programs["init"][0], "state", place)
            if name.partition(".")[2].partition(".")[0] in flow.learner.released:
                _refuse_unclean(name, label, flow)


def _refuse_unclean(name: str, label: Label, flow: Flow) -> None:
    if label.clean:
        return
    what = f"{AGES[label.age]} ({label.source})" if label.age else f"{label.secret()}, which is secret"
    raise PrivacyError(
        f"flow: {name} depends on {what}{label.way()}, and not only through a release. Let everything that leaves "
        f"depend on what {' or '.join(map(name_of, flow.mechanisms))} released, or claim no proven guarantee."
    )


def _later(trail: Trail, label: Label) -> Label:
    """The same at the next exchange: its data are old then, and a mechanism's state must be the newest."""
    if isinstance(label.token, Held):
        if label.token.turn != trail.newest(label.token.mechanism):
            name = name_of(trail.flow.mechanisms[label.token.mechanism])
            raise PrivacyError(
                f"flow: the state of {name} is kept as it was before its last release. Its noise, or its count, would "
                "be used again: keep the state that `release` returns."
            )
        return label._replace(token=label.token._replace(turn=0))
    return label.touched()._replace(age=OLD if label.age else CLEAN, bound=None)


def _field(program: Program, name: str, place: int) -> str:
    """The name of a result's leaf: `message`, `state.x`."""
    leaves = tree_flatten_with_path(jax.tree.unflatten(program.results, range(program.results.num_leaves)))[0]
    path = leaves[place][0][1 if name in ("message", "broadcast") else 0 :]
    return ".".join([name, *(str(part).strip(".[]'") for part in path)])


def foreign(root: Any) -> bool:
    """Whether an object, or anything that it is made of, comes from outside of Gossamer.

    >>> class Mine: ...
    >>> foreign(Unit.SAMPLE), foreign((1.0, Mine()))
    (False, True)
    """
    if isinstance(root, list | tuple | frozenset | set):
        return any(map(foreign, root))
    if isinstance(root, Mapping):
        return any(map(foreign, root.values()))
    kind = type(root)
    # Numbers, texts and arrays do nothing; what a model's function makes is clipped.
    if kind in _PLAIN or isinstance(root, np.ndarray | np.generic | jax.Array | FunctionType | BuiltinFunctionType):
        return False
    inside = [getattr(root, one.name) for one in fields(root)] if is_dataclass(root) else []
    return not ours(kind) or any(map(foreign, inside))


def _digest(programs: Mapping[str, Sequence[Program]]) -> str:
    """Of all programs and the constants in them."""
    found = hashlib.sha256()
    for name, each in sorted(programs.items()):
        for program in each:
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
