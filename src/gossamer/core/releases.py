"""What clips, releases and declarations do to labels: the rules of `core.flow` for equations that Gossamer marked."""

import math

import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn

from gossamer.core.labels import (
    AGES,
    CLEAN,
    NOW,
    PUBLIC,
    Drawn,
    Held,
    Label,
    Lattice,
    Trail,
    is_of_rows,
    join,
    name_of,
    shape_of,
)
from gossamer.errors import PrivacyError
from gossamer.mechanisms import Mechanism
from gossamer.privacy import Clip, Unit
from gossamer.privacy.marks import Clipped, Declaration, Mark


def marked(trail: Trail, equation: JaxprEqn, operands: list[Label]) -> list[Label]:  # noqa: PLR0911
    """The labels of the results of a marked equation."""
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
    size = math.prod(shape_of(equation.outvars[0]))
    floats = all(getattr(one.aval, "dtype", None) == jnp.float32 for one in (equation.invars[0], equation.outvars[0]))
    if type(owner.clip) is not Clip or not floats:  # nobody knows how another class, or type, is clipped
        return result._replace(sized=False)
    if result.clean:
        return result
    if owner.rows is None:
        return result._replace(bound=owner.clip.sensitivity(Unit.SAMPLE, size))
    samples, others = parts[1] + parts[2], [label for part in (parts[0], *parts[3:]) for label in part]
    shapes = map(shape_of, equation.invars[len(parts[0]) :])
    whole = all(label.clean or is_of_rows(trail, label, shape) for label, shape in zip(samples, shapes, strict=False))
    if not whole or not all(label.clean for label in others):
        return result
    batch = owner.rows if trail.flow.unit is Unit.BATCH else 1
    return result._replace(bound=owner.clip.sensitivity(trail.flow.unit, size, rows=owner.rows, batch=batch))


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
        if label.token != Drawn(draw) or shape_of(equation.invars[first + place]) != shape or not whole:
            raise PrivacyError(
                f"flow: {name} gets something else than its draw {draw!r} as it came{label.way()}. Noise that is "
                "changed, kept or made elsewhere protects nothing: hand it `now.noise`. Where there is a draw for each "
                "of several releases, scan over them."
            )
        if spec.used_in != trail.function:
            raise PrivacyError.of("flow", f"the draw {draw!r} in {trail.function}", f"in {spec.used_in}, as declared")
        if spec.law != law:
            allowed = f"{law!r}, the law that {name} is calibrated for"
            raise PrivacyError.of("noise", f"{spec.law} for {draw!r}", allowed)
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
