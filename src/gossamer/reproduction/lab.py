"""What the experiments of all papers share: cells of simulated algorithms, found by all that they depend on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from gossamer.core import Algorithm
from gossamer.privacy import Guarantee
from gossamer.reproduction.store import Result, Store, fingerprint
from gossamer.simulation import Run
from gossamer.streams import Stream

Plan = TypeVar("Plan")
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Lab(Generic[Plan]):
    """The experiments of a paper, by what is asked about them; what was run before is read.

    Attributes:
        store: of the cells.
        plan: how much is run.
    """

    store: Store
    plan: Plan
    _memory: dict[Any, Any] = field(default_factory=dict, repr=False, init=False)


def remembered(method: Method) -> Method:
    """A method of a lab that looks for a result once: even to find a cell, data must be read.

    >>> import tempfile
    >>> from pathlib import Path
    >>> class Slow(Lab[None]):
    ...     @remembered
    ...     def square(self, number):
    ...         print("computed")
    ...         return number**2
    >>> lab = Slow(Store(Path(tempfile.mkdtemp())), None)
    >>> lab.square(3) + lab.square(3)
    computed
    18
    """

    @wraps(method)
    def found(lab: Lab[Any], *arguments: Any) -> Any:
        key = f"{method.__name__}{arguments}"
        if key not in lab._memory:
            lab._memory[key] = method(lab, *arguments)
        return lab._memory[key]

    return cast(Method, found)


def setting(algorithm: Algorithm, seeds: Sequence[int], **more: Any) -> Result:
    """All that a cell depends on: what is run, with which noise, and whatever else is said."""
    return {"algorithm": algorithm.spec(), "seeds": list(seeds), **more}


def told(stream: Stream) -> str:
    """A stream in a setting: what it says about itself, and its first samples.

    >>> from gossamer.streams import random_signs
    >>> told(random_signs(2, 3, seed=0)).startswith("random signs")
    True
    """
    return f"{stream.description}, {fingerprint(stream)}"


def runs_of(seeds: Sequence[int]) -> str:
    """The runs of a cell, in its name.

    >>> runs_of([3]), runs_of(range(4))
    ('run 3', 'runs 0 to 3')
    """
    return f"run {seeds[0]}" if len(seeds) == 1 else f"runs {seeds[0]} to {seeds[-1]}"


def classified(run: Run) -> NDArray[np.float64]:
    """The accuracies of a run that classifies."""
    assert run.accuracy is not None
    return run.accuracy


def promised(guarantee: Guarantee) -> Result:
    """A guarantee as plain numbers; None where there is none."""
    private = guarantee.basis != "none"
    return {
        "basis": guarantee.basis,
        "epsilon": guarantee.epsilon if private else None,
        "delta": guarantee.delta if private else None,
    }
