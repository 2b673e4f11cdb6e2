"""A flow that was checked: its programs, what following them showed, and what engines run of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from gossamer.core.flow import Flow, foreign
from gossamer.core.labels import name_of
from gossamer.core.learner import Learner, Message, Now, Server, State
from gossamer.core.observer import findings, followed
from gossamer.core.programs import Key, Program, digest, of_exchange, require_same_state, traced_for
from gossamer.errors import PrivacyError
from gossamer.privacy import NoiseSpec, Sensitivity
from gossamer.problems import Block


def check(flow: Flow) -> Checked:
    """The programs of a flow, followed; a `PrivacyError` where data leave otherwise than through a release.

    Equal flows share them where all classes are Gossamer's own: others may call themselves equal to anything.
    """
    strange = foreign((flow.learner, flow.server, flow.problem, flow.mechanisms))
    return Checked(flow) if strange else _kept(flow)


@lru_cache(maxsize=256)
def _kept(flow: Flow) -> Checked:
    return Checked(flow)


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
        self._programs = of_exchange(flow)
        self._trail = followed(flow, self.released, self._programs)
        for place, mechanism in enumerate(flow.mechanisms):
            if not self._trail.turns.get(place):
                hint = (
                    "call its `release` (or `increment`) with the draws of `now.noise`, or leave it out of `releases`"
                )
                raise PrivacyError.of("releases", name_of(mechanism), "mechanisms that release something", hint)
        self.seen, self.loose = findings(flow, self._trail)
        self.digest = digest(self._programs)

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
        program = traced_for(self.flow, function, key)
        require_same_state(function, program, self._programs)
        programs = {**self._programs, function: {**self._programs[function], key: program}}
        trail = followed(self.flow, self.released, programs)
        seen, loose = findings(self.flow, trail)
        known = {place: moved for place, (moved, _) in self._trail.moved.items()}
        farther = [place for place, (moved, _) in trail.moved.items() if moved != known.get(place)]
        if loose != self.loose or set(seen) != set(self.seen) or farther:
            shapes = ", ".join(str(shape) for shape, _ in key[1])
            hint = "a proof holds for what was checked when the algorithm was made"
            raise PrivacyError.of(function, f"arguments of other shapes: {shapes}", "those that move no more", hint)
        return program


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
