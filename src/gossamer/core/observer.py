"""What an observer sees: exchanges are followed until nothing new is known, and whatever is seen must be clean."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.tree_util import tree_flatten_with_path

from gossamer.core.flow import Flow, foreign
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
from gossamer.core.learner import Now
from gossamer.core.operations import follow, follow_any
from gossamer.core.programs import Program, Programs, first
from gossamer.errors import PrivacyError
from gossamer.privacy import Assumption, Observer, Unit

_SEES: dict[Observer, tuple[str, ...]] = {
    "decisions": ("decision",),
    "wiretap": ("message", "broadcast"),
    "outsiders": ("message", "broadcast", "decision"),
    "peers": ("message", "broadcast", "decision"),
    "broadcasts": ("broadcast", "decision"),
}
_MADE_BY = {"decision": "decide", "message": "speak", "broadcast": "aggregate"}


def followed(flow: Flow, released: frozenset[str], programs: Programs) -> Trail:
    """Follow exchanges until no label changes any more, and look at what an observer sees in each.

    Any of several programs of a function may run at any exchange.
    """
    start = Trail(flow, "init")
    learner = follow(start, first(programs["init"]).checked.jaxpr, [PUBLIC])
    server = follow(start, first(programs["start"]).checked.jaxpr, []) if flow.server else []
    while True:
        trail = Trail(flow)
        after = _exchange(trail, released, programs, learner, server)
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
            _refuse_unclean(_field(first(programs[_MADE_BY[name]]), name, place), label, flow)
    if "decision" in _SEES[flow.observer]:
        for place, label in enumerate(state):
            name = _field(first(programs["init"]), "state", place)
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


def findings(flow: Flow, trail: Trail) -> tuple[tuple[Assumption, ...], tuple[Assumption, ...]]:
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
