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

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import BuiltinFunctionType, FunctionType, MappingProxyType
from typing import Any, Literal

import jax
import numpy as np
from jax.tree_util import PyTreeDef

from gossamer.core.learner import Learner, Server
from gossamer.mechanisms import Mechanism
from gossamer.privacy import NoiseSpec, Observer, Unit
from gossamer.privacy.marks import ours
from gossamer.problems import Problem

_PLAIN = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type, PyTreeDef, np.ndarray, FunctionType, BuiltinFunctionType}
)


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
