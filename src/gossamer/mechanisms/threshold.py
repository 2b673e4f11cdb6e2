"""Which queries exceed a threshold: below costs nothing, only answers "above" do."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from gossamer.checks import check_choice, check_count
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms.base import Grid, Mechanism, Noise, State, per_scale, snap
from gossamer.mechanisms.pairs import Pair, add, two_sum
from gossamer.privacy import Budget, Law, Loss, Pure, Sensitivity
from gossamer.privacy.marks import marked
from gossamer.spec import kind

Shift = Literal["any", "monotone", "constant"]
SHIFTS: dict[Shift, int] = {"any": 2, "monotone": 1, "constant": 1}
"""How one unit moves queries: each its own way, all the same way, all by the same amount; and by how many sensitivities
a query and the threshold, which moves along, then drift apart at most."""


class Watch(NamedTuple):
    """Where a watch of queries stands.

    Attributes:
        threshold: the public one.
        noisy: the noisy threshold; in constant-shift mode less the increments since the last answer "above".
        drawn: whether there is a noisy threshold; where not, the next release makes one.
        left: answers "above" that are left.
        asked: queries so far, where a horizon bounds them.
    """

    threshold: jax.Array
    noisy: Pair
    drawn: jax.Array
    left: jax.Array
    asked: jax.Array


@kind("mechanism", "above-threshold")
@dataclass(frozen=True)
class AboveThreshold(Mechanism):
    """Says of one query after the other whether it exceeds a threshold, up to `count` times "above", then no more.

    A query is above where query + Lap(b) >= threshold + Lap(a). The noisy threshold is what queries are compared with,
    never the bare one: else every "below" would cost. With D the sensitivity of one query and k = count:

    - shift="any":       epsilon = D / a + 2 k D / b.  One noisy threshold for all queries (Lyu, Su and Li 2017).
    - shift="monotone":  epsilon = D / a + k D / b.    One unit moves all queries the same way: the caller's promise.
    - shift="constant":  epsilon = max(D / a, D / b).  A fresh threshold after every "above". A release takes an
      *increment*; the query is the sum of increments since the last "above", made here. One unit enters one increment,
      and D is the sensitivity of that.

    *Proof, any and monotone.* The probability of a sequence of answers is the integral over the noisy threshold z of
    its density times a factor P(query + noise < z) for every "below" and P(query + noise >= z) for every "above". Go
    over to the neighbour and replace z by z + D: the density costs exp(D / a), factors "below" only grow, and each of
    the k factors "above" costs exp(s / b), where s = D + (old query - new query) is at most 2 D. Monotone: if queries
    rise, s <= D; if they fall, keep z instead: "below" grows, and each "above" costs exp(D / b).

    *Proof, constant.* One unit enters one increment, so within one segment all queries from some i0 on move by the same
    c, |c| <= D, and no other query moves. Segments before have the same law. If queries rise, replace z by z + c: the
    density costs exp(c / a), factors before i0 are "below" and only grow, all others stay. If they fall, keep z:
    "below" grows, and the one "above" costs exp(|c| / b). Only one of the two is paid. Later segments start from a
    fresh threshold and an empty sum, so the unit has left. This holds for adaptive and endless streams and any count.

    Attributes:
        count: answers "above" until it halts; None: never (constant shift only).
        shift: how one unit moves queries.
        name: of its draws: they are "query" and "threshold", or NAME_query and NAME_threshold where a name is given.

    >>> from gossamer.privacy import Budget, Sensitivity
    >>> loss = Sensitivity(l1=1.0, l2=1.0)
    >>> watch = AboveThreshold(count=10, shift="constant").calibrate(loss, Budget(0.5))
    >>> {name: round(scale.value, 6) for name, (scale,) in watch.scales.items()}
    {'query': 2.0, 'threshold': 2.0}
    >>> AboveThreshold(count=10).at_scale(loss, query=40.0, threshold=4.0).losses
    (Pure(value=0.75),)
    """

    shape: tuple[int, ...] = field(init=False, repr=False, default=())
    _: KW_ONLY
    name: str = ""
    count: int | None = 1
    shift: Shift = "any"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("shift", self.shift, Shift)
        if self.count is not None:
            check_count("count", self.count)
        elif self.shift != "constant":
            hint = "only a constant shift has a loss that does not grow with the answers"
            raise PrivacyError.of("count", None, "a number of answers", hint)

    @property
    def order(self) -> Literal[1, 2]:
        """Both norms of one number are the same."""
        return 1

    @property
    def composes(self) -> bool:
        """Unless shifts are constant one unit may move every query."""
        return self.shift != "constant"

    def adds_up(self, method: str) -> bool:
        """Where shifts are constant, values are increments of a query."""
        return self.shift == "constant"

    def promises(self) -> tuple[str, ...]:
        """That queries are monotone."""
        return ("one unit moves all queries the same way",) if self.shift == "monotone" else ()

    def goes_on(self, state: Watch) -> jax.Array:
        """Whether answers "above" are left: a function of those given, which everybody knows.

        >>> watch = AboveThreshold(count=1)
        >>> bool(watch.goes_on(watch.init()))
        True
        """
        answer: jax.Array = marked("public", self, lambda watch: watch.left > 0, state)
        return answer

    def laws(self) -> Mapping[str, tuple[Law, tuple[int, ...]]]:
        """A number for the query, and one for the threshold, which only a release that starts a segment uses."""
        return {self._draw("query"): ("laplace", ()), self._draw("threshold"): ("laplace", ())}

    def init(self, threshold: float | jax.Array = 0.0) -> Watch:
        """Before the first query. The threshold is public, and a run-time value."""
        public, zero = jnp.float32(threshold), jnp.float32(0)
        return Watch(public, (zero, zero), jnp.bool_(False), jnp.int32(self.count or 1), jnp.int32(0))

    def release(
        self, state: State, value: jax.Array, noise: Noise, grid: Grid, *, threshold: jax.Array | None = None
    ) -> tuple[jax.Array, Watch]:
        """Whether the query is above, as a truth value. In constant-shift mode `value` is the query's increment.

        A public `threshold` takes the place of the one that `init` got wherever a noisy one is drawn.

        Halted, or past the horizon, it compares nothing: outside a compiled program it raises, inside it says False. A
        query that is not a number is never above.
        """
        if value.shape != ():
            raise ConfigurationError("query", value.shape, "one number, an array of shape ()")
        spacing = grid.get(self._draw("query"))
        public = state.threshold if threshold is None else threshold
        fresh = two_sum(snap(public, spacing), snap(noise[self._draw("threshold")], spacing))
        noisy = _where(state.drawn, state.noisy, fresh)
        margin = add(noisy, -snap(value, spacing))  # on a lattice exact up to 2^47 spacings: the shift *is* constant
        above = self._covered(state) & _reaches(snap(noise[self._draw("query")], spacing), margin)
        return above, self._after(state, above, margin if self.shift == "constant" else noisy)

    def _covered(self, state: Watch) -> jax.Array:
        """Whether one more query may be answered; outside a compiled program it must."""
        if not isinstance(state.asked, jax.core.Tracer):
            self.require(int(state.asked) + 1)
        if not isinstance(state.left, jax.core.Tracer) and int(state.left) == 0:
            raise PrivacyError(f"count: all {self.count} answers 'above' were given. Nothing was released.")
        return (state.left > 0) if self.horizon is None else (state.left > 0) & (state.asked < self.horizon)

    def _after(self, state: Watch, above: jax.Array, noisy: Pair) -> Watch:
        """A constant shift starts afresh after "above"; else the threshold stays as long as there are answers."""
        drawn = ~above if self.shift == "constant" else jnp.bool_(True)
        left = state.left if self.count is None else state.left - above.astype(jnp.int32)
        asked = state.asked if self.horizon is None else jnp.minimum(state.asked, self.horizon - 1) + 1
        return Watch(state.threshold, noisy, drawn, left, asked)

    def loss(self, sensitivity: Sensitivity, scales: Mapping[str, float], position: int | None) -> Loss:
        """By the formulas above; so many answers "above" as there were queries at most."""
        if position == 0:
            return Pure(0.0)
        query, threshold = (per_scale(sensitivity.l1, scales[self._draw(name)]) for name in ("query", "threshold"))
        if self.shift == "constant":
            return Pure(max(threshold, query))
        return Pure(threshold + self._weight(position) * query)

    def scales(self, sensitivity: Sensitivity, budget: Budget) -> dict[str, float]:
        """Constant: D / epsilon each. Else the split with the smallest variance of query minus threshold.

        Minimising a^2 + b^2 under D / a + w D / b = epsilon gives b / a = w^(1/3).
        """
        ratio = 1.0 if self.shift == "constant" else self._weight(self.horizon) ** (1 / 3)
        share = 1.0 if self.shift == "constant" else 1 + ratio**2
        threshold = sensitivity.l1 * share / budget.epsilon
        return {self._draw("query"): ratio * threshold, self._draw("threshold"): threshold}

    def _weight(self, position: int | None) -> int:
        """How many sensitivities the queries answered "above" and the threshold can drift apart together."""
        return SHIFTS[self.shift] * min(bound for bound in (self.count, position) if bound is not None)

    def _draw(self, what: str) -> str:
        return f"{self.name}_{what}" if self.name else what


def _where(condition: jax.Array, a: Pair, b: Pair) -> Pair:
    return jnp.where(condition, a[0], b[0]), jnp.where(condition, a[1], b[1])


def _reaches(draw: jax.Array, margin: Pair) -> jax.Array:
    """Whether draw >= margin, exactly: the first part is the float nearest to the margin."""
    return (draw > margin[0]) | ((draw == margin[0]) & (margin[1] <= 0))
