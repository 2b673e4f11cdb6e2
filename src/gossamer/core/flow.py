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
7. How far one unit moves a value is known where a clip bounds it, and through products with powers of two. It is lost
   in every other operation: other products round by a share of the whole value, and sums with numbers that anybody may
   have chosen by any amount.
8. What engines run is the program that was checked.

What no rule sees is listed as an assumption that nothing enforces, and the guarantee is heuristic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property, lru_cache, partial
from types import BuiltinFunctionType, FunctionType, MappingProxyType
from typing import Any, Literal

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
from gossamer.privacy import Assumption, NoiseSpec, Observer, Sensitivity, Unit
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
_PLAIN = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type, PyTreeDef, np.ndarray, FunctionType, BuiltinFunctionType}
)
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


Key = tuple[Any, Shapes]
Programs = dict[str, dict[Key, Program]]


@dataclass(frozen=True)
class Flow:
    """All that decides what leaves a learner.

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
        lattice: the draws that lie on one.
        put_together_by_us: whether a function of Gossamer chose all this: declarations rest on schedules and networks
            too.
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
    lattice: frozenset[str]
    put_together_by_us: bool

    def __hash__(self) -> int:
        return hash((self.learner, self.server, self.mechanisms, self.observer, self.unit, self.learners, self.rows))

    def noise_of(self, side: Literal["learner", "server"]) -> dict[str, NoiseSpec]:
        """The draws of the learner, or of the server: those that are used when it aggregates."""
        return {name: one for name, one in self.draws.items() if (one.used_in == "aggregate") == (side == "server")}

    def check(self) -> Checked:
        """The programs, followed; a `PrivacyError` where data leave otherwise than through a release.

        Equal flows share them where all classes are Gossamer's own: others may call themselves equal to anything.
        """
        strange = foreign((self.learner, self.server, self.problem, self.mechanisms))
        return Checked(self) if strange else _kept(self)


@dataclass(frozen=True)
class Guarded(Learner):
    """The learner of a checked algorithm: what engines run is the program that was checked, shape by shape."""

    checked: Checked

    @property
    def released(self) -> frozenset[str]:  # type: ignore[override]
        """As the learner said when it was checked."""
        return self.checked.released

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """As the learner said when it was checked."""
        return self.checked.flow.noise_of("learner")

    def init(self, identity: jax.Array) -> State:
        """The checked program of `init`."""
        return self.checked.run("init", identity)

    def decide(self, state: State, now: Now) -> jax.Array:
        """The checked program of `decide`."""
        decision: jax.Array = self.checked.run("decide", state, now)
        return decision

    def learn(self, state: State, block: Block, now: Now) -> State:
        """The checked program of `learn`."""
        return self.checked.run("learn", state, block, now)

    def speak(self, state: State, now: Now) -> tuple[Message, State]:
        """The checked program of `speak`."""
        said: tuple[Message, State] = self.checked.run("speak", state, now)
        return said

    def listen(self, state: State, heard: Message) -> State:
        """The checked program of `listen`."""
        return self.checked.run("listen", state, heard)


@dataclass(frozen=True)
class GuardedServer(Server):
    """The server of a checked algorithm."""

    checked: Checked

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """As the server said when it was checked."""
        return self.checked.flow.noise_of("server")

    def init(self) -> State:
        """The checked program of the server's `init`."""
        return self.checked.run("start")

    def aggregate(self, state: State, messages: Message, now: Now) -> tuple[Message, State]:
        """The checked program of `aggregate`."""
        answer: tuple[Message, State] = self.checked.run("aggregate", state, messages, now)
        return answer


class Checked:
    """The programs of a flow, followed together, and what that showed.

    Attributes:
        flow: what was traced.
        released: the fields of a state that the learner says are.
        seen: assumptions that the check saw to.
        loose: those that nothing enforces.
        digest: of the programs of one exchange.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow, self.released = flow, frozenset(flow.learner.released)
        self._programs: Programs = {}
        self._trace_exchange()
        self._trail = _followed(self, self._programs)
        for place, mechanism in enumerate(flow.mechanisms):
            if not self._trail.turns.get(place):
                hint = (
                    "call its `release` (or `increment`) with the draws of `now.noise`, or leave it out of `releases`"
                )
                raise PrivacyError.of("releases", name_of(mechanism), "mechanisms that release something", hint)
        self.seen, self.loose = _findings(flow, self._trail)
        self.digest = _digest(self._programs)

    def __repr__(self) -> str:
        return repr(self.flow)

    def run(self, function: str, *args: Any) -> Any:
        """Run one function as it was checked with arguments of these shapes; others are checked when they come."""
        leaves, tree = jax.tree.flatten(args)
        key = tree, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
        known = self._programs[function]
        if key not in known:
            known[key] = self._admitted(function, key)
        typed = [jnp.asarray(leaf, kind) for leaf, (_, kind) in zip(leaves, key[1], strict=True)]
        return jax.tree.unflatten(known[key].results, jaxpr_as_fun(known[key].run)(*typed))

    def require_covered(self, scaled_for: Sequence[Sequence[Sensitivity]]) -> None:
        """Refuse noise that is scaled for less than one unit moves what it is added to.

        Args:
            scaled_for: for each mechanism, the sensitivities of its learners, who all run the same program.
        """
        for place, (bound, way) in self._trail.moved.items():
            mechanism = self.flow.mechanisms[place]
            order = mechanism.order
            moved, covered = bound.of(order), min(one.of(order) for one in scaled_for[place])
            if moved > covered * (1 + 1e-9):
                raise PrivacyError(
                    f"flow: one unit moves what {name_of(mechanism)} releases by up to {moved:.9g} in the l{order} norm"
                    f"{way}, and its noise is scaled for {covered:.9g}. Calibrate it to the sensitivity of what is "
                    "released."
                )

    def _admitted(self, function: str, key: Key) -> Program:
        """The program of a function for other shapes, if together with all others it shows no less than they do."""
        program = self._traced(function, key)
        _require_same_state(function, program, self._programs)
        trail = _followed(self, {**self._programs, function: {**self._programs[function], key: program}})
        seen, loose = _findings(self.flow, trail)
        known = {place: moved for place, (moved, _) in self._trail.moved.items()}
        farther = [place for place, (moved, _) in trail.moved.items() if moved != known.get(place)]
        if loose != self.loose or set(seen) != set(self.seen) or farther:
            shapes = ", ".join(str(shape) for shape, _ in key[1])
            hint = "a proof holds for what was checked when the algorithm was made"
            raise PrivacyError.of(function, f"arguments of other shapes: {shapes}", "those that move no more", hint)
        return program

    def _traced(self, function: str, key: Key) -> Program:
        owner, name = _owner(self.flow, function)
        args = jax.tree.unflatten(key[0], [_array(*one) for one in key[1]])
        checked, results = traced(getattr(owner, name), *args)
        refuse_effects(checked.jaxpr, name)
        return Program(checked, key[0], jax.tree.structure(results))

    def _trace_exchange(self) -> None:
        """Trace all functions for the shapes of one exchange."""
        flow = self.flow

        def trace(name: str, *args: Any) -> Any:
            leaves, tree = jax.tree.flatten(args)
            key = tree, tuple((one.shape, one.dtype) for one in leaves)
            program = self._programs.setdefault(name, {})[key] = self._traced(name, key)
            made = [_array(one.shape, one.dtype) for one in program.checked.out_avals]
            return jax.tree.unflatten(program.results, made)

        def now(function: str) -> Now:
            used = {name: spec for name, spec in flow.draws.items() if spec.used_in == function}
            draws = {name: _array(spec.shape, jnp.float32) for name, spec in used.items()}
            grid = {name: _array((), jnp.float32) for name in used if name in flow.lattice}
            return Now({name: _array((), jnp.float32) for name in flow.public}, draws, grid)

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
        for function, each in self._programs.items():
            for program in each.values():
                _require_same_state(function, program, self._programs)


@lru_cache(maxsize=256)
def _kept(flow: Flow) -> Checked:
    return Checked(flow)


def _array(shape: tuple[int, ...], kind: Any) -> Any:
    """An array of which only shape and type are known."""
    return jax.ShapeDtypeStruct(shape, kind)  # type: ignore[no-untyped-call]


def _owner(flow: Flow, function: str) -> tuple[Learner | Server, str]:
    """Whose function it is, and its name there."""
    if function in ("start", "aggregate"):
        assert flow.server is not None
        return flow.server, "init" if function == "start" else function
    return flow.learner, function


def _require_same_state(function: str, program: Program, programs: Programs) -> None:
    """Refuse a state that changes its fields, shapes or types: what belongs to it would not be known."""
    if function in ("init", "start", "decide"):
        return
    first = _first(programs["start" if function == "aggregate" else "init"])
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


def _first(programs: Mapping[Key, Program]) -> Program:
    """The program for the shapes of the first exchange."""
    return next(iter(programs.values()))


# -- following the data ------------------------------------------------------------------------------------------------


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
    if foreign(flow.problem):
        stated.append(
            Assumption(f"{type(flow.problem).__name__} is a loss as it says, of samples of the shape it says")
        )
    bound = "one unit moves what {} releases by no more than its noise is scaled for (no bound is seen{})"
    stated += [Assumption(bound.format(name, way)) for name, way in trail.unseen.items()]
    return (only, *(one for one in stated if one.enforced)), tuple(one for one in stated if not one.enforced)


def _followed(checked: Checked, programs: Programs) -> Trail:
    """Follow exchanges until no label changes any more, and look at what an observer sees in each.

    Any of several programs of a function may run at any exchange.
    """
    flow, start = checked.flow, Trail(checked.flow, "init")
    learner = follow(start, _first(programs["init"]).checked.jaxpr, [PUBLIC])
    server = follow(start, _first(programs["start"]).checked.jaxpr, []) if flow.server else []
    while True:
        trail = Trail(flow)
        after = _exchange(trail, checked.released, programs, learner, server)
        joined = [either([a, b]) for a, b in zip(learner + server, after, strict=True)]
        if [one.known() for one in joined] == [one.known() for one in learner + server]:
            return trail
        learner, server = joined[: len(learner)], joined[len(learner) :]


def _exchange(
    trail: Trail, released: frozenset[str], programs: Programs, learner: list[Label], server: list[Label]
) -> list[Label]:
    """The labels of all states after one exchange; what is seen in it is looked at."""
    flow, sees = trail.flow, _SEES[trail.flow.observer]

    def call(name: str, *known: Any, on: Trail = trail) -> list[Label]:
        on.function = name
        each = [
            (one.checked.jaxpr, _labels(flow, one, known), {"grids": _grids(one)}) for one in programs[name].values()
        ]
        return follow_any(on, each)

    seen = {"decision": call("decide", learner)}
    said = call("speak", call("learn", learner))
    served, size = server, len(said) - len(learner)
    seen["message"], spoken = [_sent(one) for one in said[:size]], said[size:]
    # What an observer may see is checked to be clean; all else is heard as it was said.
    heard = [PUBLIC] * size if "message" in sees else seen["message"]
    absent: list[Label] = []
    if flow.server is not None:
        # Common data move the messages of all learners at once: no row of them is a unit's alone.
        given = (
            heard if flow.unit is Unit.SAMPLE else [one.touched()._replace(bound=None, sized=False) for one in heard]
        )
        answered = call("aggregate", server, given)
        size = len(answered) - len(server)
        seen["broadcast"], served = [_sent(one) for one in answered[:size]], answered[size:]
        heard = [PUBLIC] * size if "broadcast" in sees else seen["broadcast"]
        # A learner that misses a round hears the answer all the same, with the state that it had before.
        away = Trail(flow)
        absent = [_later(away, one) for one in call("listen", learner, heard, on=away)]
        trail.take([away])
    after = [_later(trail, one) for one in call("listen", spoken, heard)]
    _look(flow, released, programs, seen, learner)
    both = [either([a, b]) for a, b in zip(after, absent, strict=True)] if absent else after
    return both + [_later(trail, one) for one in served]


def _sent(label: Label) -> Label:
    """The same in a message: rows are still samples, but a draw or a state is somebody else's then."""
    return label if isinstance(label.token, Rows) else label.touched()


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
    flow: Flow, released: frozenset[str], programs: Programs, seen: Mapping[str, list[Label]], state: list[Label]
) -> None:
    """Refuse what an observer must not see."""
    for name in _SEES[flow.observer]:
        for place, label in enumerate(seen.get(name, [])):
            _refuse_unclean(_field(_first(programs[_MADE_BY[name]]), name, place), label, flow)
    if "decision" in _SEES[flow.observer]:
        for place, label in enumerate(state):
            name = _field(_first(programs["init"]), "state", place)
            if name.partition(".")[2].partition(".")[0] in released:
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
    return label.touched()._replace(age=OLD if label.age else CLEAN, bound=None, sized=False)


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
    kind = type(root)
    if kind in (list, tuple, frozenset, set) or (isinstance(root, tuple) and ours(kind)):
        return any(map(foreign, root))
    if kind in (dict, MappingProxyType):
        return any(map(foreign, root.values()))
    # Numbers, texts and arrays do nothing; what a model's function makes is clipped.
    if kind in _PLAIN or (isinstance(root, np.generic | jax.Array) and kind.__module__.startswith(("numpy", "jax"))):
        return False
    inside = [getattr(root, one.name) for one in fields(root)] if is_dataclass(root) else []
    return not ours(kind) or any(map(foreign, inside))


def _digest(programs: Programs) -> str:
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
