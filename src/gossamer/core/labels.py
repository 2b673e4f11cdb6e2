"""What is known of the values of a checked program: the data they depend on, and how far one unit moves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from jax.extend.core import JaxprEqn

from gossamer.errors import PrivacyError
from gossamer.mechanisms import Mechanism
from gossamer.privacy import Sensitivity
from gossamer.privacy.marks import Declaration, Mark

if TYPE_CHECKING:
    from gossamer.core.flow import Flow

CLEAN, NOW, BLOCK, OLD = range(4)
"""How old the newest data are that a value depends on: none, this iteration's, this block's, those of earlier ones."""
AGES = ("no data", "data of this block", "data of another iteration", "data of earlier exchanges")

_INSIDE = ("/jax/", *(f"/gossamer/{room}/" for room in ("core", "mechanisms", "privacy", "problems", "sets")))


class Drawn(NamedTuple):
    """A draw as it came."""

    name: str


class Held(NamedTuple):
    """A part of a mechanism's state as a release, or `init`, returned it; `turn` counts releases in this exchange."""

    mechanism: int
    leaf: int
    turn: int


class Lattice(NamedTuple):
    """The spacing of a draw's lattice as it came: public, and not to be changed."""

    name: str


class Rows(NamedTuple):
    """Samples as they came: each in one row."""

    name: str


class Label(NamedTuple):
    """What is known of a value.

    Attributes:
        age: of the newest data that it depends on.
        noise: the draws and states of mechanisms that it depends on other than through a release.
        token: where it is one of these itself, untouched.
        bound: how far one unit moves it, or who says so; None: nothing is known.
        sized: whether it is no larger than what was clipped, or zero: others may have chosen what is larger.
        source: which data, or noise, came into it.
        through: the function and the last operation on the way.
    """

    age: int = CLEAN
    noise: frozenset[str] = frozenset()
    token: Drawn | Held | Rows | Lattice | None = None
    bound: Sensitivity | Declaration | None = None
    sized: bool = False
    source: str = ""
    through: tuple[str, JaxprEqn | None] = ("", None)

    @property
    def clean(self) -> bool:
        """Whether anybody may see it."""
        return self.age == CLEAN and not self.noise and not isinstance(self.token, Drawn | Held)

    def known(self) -> tuple[Any, ...]:
        """What two labels must share to be the same."""
        return self.age, self.noise, self.token, self.bound, self.sized

    def touched(self) -> Label:
        """The same after an operation: no draw, state or row any more, but something made of it."""
        secret = {self.source} if isinstance(self.token, Drawn | Held) else set()
        return self._replace(token=None, noise=self.noise | secret)

    def secret(self) -> str:
        """The noise in it, in words."""
        return ", ".join(sorted(self.touched().noise))

    def way(self) -> str:
        """Through which operation it came, and where that stands, in words."""
        function, equation = self.through
        if equation is None:
            return ""
        found = getattr(equation.source_info, "traceback", None)
        frames = found.frames if found is not None else ()
        here = [one for one in frames if not any(part in one.file_name for part in _INSIDE)]
        place = f" ({here[0].file_name.rsplit('/', 1)[-1]}:{here[0].line_num})" if here else ""
        mark = equation.params.get("mark")
        operation = f"{mark.kind} values" if isinstance(mark, Mark) else equation.primitive.name
        if operation == "lost values":
            operation = "a vmap, in which releases and clips are not seen,"
        return f" through {operation} in {function}{place}"


PUBLIC = Label()
ZERO = Label(sized=True)


def join(labels: Sequence[Label], through: tuple[str, JaxprEqn | None] | None = None) -> Label:
    """Of something that depends on all of these."""
    touched = [label.touched() for label in labels]
    worst = max(touched, key=lambda label: (label.age, len(label.noise)), default=PUBLIC)
    if worst.clean:
        return PUBLIC
    noise = frozenset().union(*(label.noise for label in touched))
    return Label(worst.age, noise, source=worst.source, through=through or worst.through)


def either(labels: Sequence[Label]) -> Label:
    """Of something that is one of these: it moves as far as that which moves farthest."""
    first = labels[0]
    if all(one.known() == first.known() for one in labels):
        return first
    moving = [one.bound for one in labels if not one.clean]
    bounds = [bound for bound in moving if isinstance(bound, Sensitivity)]
    largest = Sensitivity(max(one.l1 for one in bounds), max(one.l2 for one in bounds)) if bounds else None
    bound = largest if len(bounds) == len(moving) else None
    return join(labels)._replace(bound=bound, sized=all(one.sized for one in labels))


@dataclass
class Trail:
    """What happens in one exchange.

    Attributes:
        flow: whose.
        function: the one that is being followed.
        used: how often each draw was used for a release.
        turns: how often each mechanism has released.
        fresh: how often each mechanism has released data.
        methods: by which of its methods each mechanism releases.
        grids: the draws of this function that lie on a lattice.
        declared: what was declared about released values.
        unseen: the mechanisms to whose values no bound was seen, and where it was lost.
        moved: how far one unit moves what each mechanism releases at most, and the last operation on the way.
        closed: why nothing may be released here.
    """

    flow: Flow
    function: str = ""
    used: dict[str, int] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)
    fresh: dict[int, int] = field(default_factory=dict)
    methods: dict[int, str] = field(default_factory=dict)
    grids: frozenset[str] = frozenset()
    declared: dict[Declaration, None] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)
    moved: dict[int, tuple[Sensitivity, str]] = field(default_factory=dict)
    closed: str = ""

    def newest(self, mechanism: int) -> int:
        """The turn of a mechanism's newest state."""
        return self.turns.get(mechanism, 0)

    def copy(self, **changed: Any) -> Trail:
        """Another one that goes on from here."""
        own: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        own = {name: dict(each) if isinstance(each, dict) else each for name, each in own.items()} | changed
        return Trail(**own)

    def take(self, others: Sequence[Trail]) -> None:
        """Go on after one of several ways: with the most that any of them used."""
        counts: tuple[str, ...] = ("used", "turns", "fresh")
        for other in others:
            for name in counts:
                mine, theirs = getattr(self, name), getattr(other, name)
                mine.update({key: max(mine.get(key, 0), count) for key, count in theirs.items()})
            for place, method in other.methods.items():
                self.uses(place, method)
            self.declared |= other.declared
            self.unseen |= other.unseen
            for place, moved in other.moved.items():
                self.moves(place, *moved)

    def moves(self, mechanism: int, bound: Sensitivity, way: str) -> None:
        """Note how far one unit moves what a mechanism releases."""
        before, place = self.moved.get(mechanism, (bound, way))
        farther = bound.l1 > before.l1 or bound.l2 > before.l2
        largest = Sensitivity(max(before.l1, bound.l1), max(before.l2, bound.l2))
        self.moved[mechanism] = largest, way if farther else place

    def uses(self, mechanism: int, method: str) -> None:
        """Note by which method a mechanism releases: its state is kept for one of them only."""
        if self.methods.setdefault(mechanism, method) != method:
            name = name_of(self.flow.mechanisms[mechanism])
            raise PrivacyError.of("flow", f"{name} by release and by increment", "one of them, always")


def name_of(mechanism: Mechanism) -> str:
    """A mechanism by the names of its draws."""
    return ", ".join(mechanism.laws()) or type(mechanism).__name__


def features_of(trail: Trail, token: Rows) -> int:
    """Axes of one sample; all others count samples."""
    return len(trail.flow.problem.feature_shape) if token.name == "x" else 0


def shape_of(variable: Any) -> tuple[int, ...]:
    """The axes of a variable of a program."""
    return tuple(getattr(variable.aval, "shape", ()))


def is_of_rows(trail: Trail, label: Label, shape: tuple[int, ...]) -> bool:
    """Whether a value has samples in its rows, and not features of one."""
    return isinstance(label.token, Rows) and len(shape) > features_of(trail, label.token)
