"""Which parts of a learner's state anything later depends on: only those are kept at rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Jaxpr, Literal


def needed_leaves(function: Callable[[Any, Any], tuple[Any, Any]], state: Any, others: Any) -> tuple[bool, ...]:
    """For each array of the state, whether the results of one exchange, or of any later one, depend on it.

    Args:
        function: one exchange: takes the state and everything else, gives the state after it and all other results.
        state: arrays, or their shapes.
        others: likewise.

    >>> from typing import NamedTuple
    >>> import jax.numpy as jnp
    >>> def exchange(state, gradient):
    ...     total, last = state
    ...     return (total + gradient, gradient), total
    >>> needed_leaves(exchange, (jnp.zeros(2), jnp.zeros(2)), jnp.ones(2))
    (True, False)
    """
    jaxpr = jax.make_jaxpr(function)(state, others).jaxpr
    size = len(jax.tree.leaves(state))
    needed: set[int] = set()
    while True:  # from the results backwards, until nothing is added
        results = [jaxpr.outvars[place] for place in needed] + list(jaxpr.outvars[size:])
        found = _inputs(jaxpr, results)
        now = needed | {place for place, variable in enumerate(jaxpr.invars[:size]) if variable in found}
        if now == needed:
            return tuple(place in needed for place in range(size))
        needed = now


def _inputs(jaxpr: Jaxpr, results: Sequence[Any]) -> set[Any]:
    """All variables that these results are computed from; an operation needs all that it is given."""
    found = {variable for variable in results if not isinstance(variable, Literal)}
    for equation in reversed(jaxpr.eqns):
        if found & set(equation.outvars):
            found |= {variable for variable in equation.invars if not isinstance(variable, Literal)}
    return found
