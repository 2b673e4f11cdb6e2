"""What a unit costs where noisy views of one hidden state are released again and again, and its trace in it fades.

A learner never releases theta_t itself but y_t = theta_t + noise, at every exchange. Given all messages, neighbours'
states differ by at most Phi_t (paper 003, eq. (17) to (22)):

    Phi_{t+1} = q_t Phi_t + lambda_t C / (t+1) + e_t,     Phi_t = 0 up to the first update

    convex losses, mu I <= Hessian <= L I:   q_t = max( |1 - w gamma_t - lambda_t mu|, |1 - w gamma_t - lambda_t L| )
    losses that are only L-smooth:           q_t = |1 - w gamma_t - lambda_t mu| + lambda_t (L - mu)     (22)

where mu is the l2 of losses that are not convex: that part of their gradient is linear. (With mu = 0 this is eq. (22).)

*Proof.* theta_{t+1} = Proj( (1 - w gamma_t) theta_t - lambda_t d_t(theta_t) + what was heard ), and projections do not
expand. d_t is a mean of t + 1 gradients of which one differs, by C at most at one point. For convex losses the rest of
the map is (1 - w gamma_t) I - lambda_t H with H between mu I and L I, which is symmetric, so its norm is q_t. A sample
that comes later enters fewer means: the recursion has coefficients of at least 0, so the first sample costs most.

*Float32.* A computed update is the exact one and an error, of either neighbour: they add at most e_t, which is twice
the error of `Rounding`, whose numbers `hidden` derives. What is public, such as messages, is rounded alike in both.
Rounded step and coupling change q_t by at most `Rounding.public` of gamma_t + lambda_t L. Errors do not fade as traces
do: the coupling forgets them as fast as they come, which leaves e_t / (w gamma_t). In exact arithmetic e_t = 0, and
sums may be endless.

Laplace noise of scale rho_0 (t+1)^s costs sqrt(d) sum_t Phi_t / rho_t; Gaussian noise mu^2 = sum_t Phi_t^2 / rho_t^2,
each with the rounding of what is released in Phi_t.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from gossamer.algorithms.authoring import Calibration
from gossamer.checks import check_count, check_positive
from gossamer.core import Rate
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import Calibrated
from gossamer.mechanisms.independent import Cumulative, Views
from gossamer.privacy import Budget, budgets_of

Doubles = NDArray[np.float64]
_FIRST, _LAST = 2**11, 2**21  # terms that are added before the tail's bound takes over
_DIRECT = 2**24  # terms that are added where there is no such bound
_CLOSE = 1e-4  # the share that the bound of the tail may have


@dataclass(frozen=True)
class Rounding:
    """How far float32 is off at most in one run, in the Euclidean norm; all zero: exact arithmetic.

    Attributes:
        update: in every update,
        coupling: and this times gamma_t,
        step: and this times lambda_t.
        view: in what is released of theta, times the growth of its noise.
        public: the share by which steps and coupling are not what they should be.

    >>> Rounding(update=1.0, coupling=2.0, step=3.0).apart(np.array([0.5]), np.array([0.1]))
    array([4.6])
    """

    update: float = 0.0
    coupling: float = 0.0
    step: float = 0.0
    view: float = 0.0
    public: float = 0.0

    def apart(self, coupling: Doubles, step: Doubles) -> Doubles:
        """e_t: by how much the updates of two runs move them apart more than exact ones would."""
        return 2 * (self.update + self.coupling * coupling + self.step * step)


@dataclass(frozen=True)
class Fading:
    """How far one sample moves theta_t, for every t.

    Attributes:
        step: lambda_t = step(t + 1).
        coupling: gamma_t = coupling(t + 1).
        weight: w, the sum of the weights that a learner gives to others.
        change: C, by which the gradient of one sample that is replaced changes at most.
        smoothness: L of every sample's loss.
        strong_convexity: mu of every sample's loss; where it is not convex, its l2.
        convex: whether losses are convex.
        delay: updates begin after so many exchanges.
        full: whether all t + 1 gradients of a mean are counted as if they differed, as eq. (19) does.
        rounding: of float32; by default arithmetic is exact.

    >>> mushrooms = Fading(Rate(1.0, 0.77), Rate(1.0, 0.65), weight=0.6, change=2.0, smoothness=0.25)
    >>> round(math.sqrt(112) * mushrooms.total(1, 0.11, 2000), 1)
    241.7
    """

    step: Rate
    coupling: Rate
    weight: float
    change: float
    smoothness: float
    strong_convexity: float = 0.0
    convex: bool = True
    delay: int = 0
    full: bool = False
    rounding: Rounding = Rounding()

    def distances(self, count: int) -> Doubles:
        """Phi_1, ..., Phi_count."""
        return _distances(self, check_count("count", count, least=0))[:count]

    def contraction(self, t: NDArray[np.int64]) -> Doubles:
        """q_t for t = 0, 1, ...; 1 before updates begin."""
        step, kept = self.step(t + 1), 1 - self.weight * self.coupling(t + 1)
        if self.convex:
            q = np.maximum(np.abs(kept - step * self.strong_convexity), np.abs(kept - step * self.smoothness))
        else:
            q = np.abs(kept - step * self.strong_convexity) + step * (self.smoothness - self.strong_convexity)
        q += self.rounding.public * (self.coupling(t + 1) + step * self.smoothness)
        return np.where(t < self.delay, 1.0, q)

    def terms(self, order: Literal[1, 2], growth: float, count: int) -> Doubles:
        """(Phi_t / (t+1)^growth)^order for t = 1, ..., count, where Phi_t has the rounding of the view in it."""
        times = np.arange(1, count + 1)
        shown = self.distances(count) + np.where(times > self.delay, 2 * self.rounding.view, 0.0)
        with np.errstate(over="ignore"):
            return np.asarray((shown / (times + 1.0) ** growth) ** order)

    def total(self, order: Literal[1, 2], growth: float, count: int | None) -> float:
        """The sum of the first `count` terms; None: of all. Many are terms and a proven bound on the rest.

        >>> endless = Fading(Rate(1.0, 0.77), Rate(1.0, 0.65), weight=0.6, change=2.0, smoothness=0.25)
        >>> round(math.sqrt(112) * endless.total(1, 0.11, None), 1)
        270.0
        """
        if count is not None and count <= _LAST:
            return _sum(self, order, growth, count)
        last, rest = _FIRST, math.inf
        while rest > _CLOSE * _sum(self, order, growth, last) and last < _LAST:
            last *= 4
            rest = self.tail(order, growth, last)
        if math.isinf(rest) and count is not None and count <= _DIRECT:
            return _sum(self, order, growth, count)
        endless = count is None and self.rounding != Rounding()
        if endless or math.isinf(rest):
            hint = "roundings do not fade" if endless else f"a longer one needs that {self._why(order, growth)}"
            raise PrivacyError.of("horizon", count, f"at most {_DIRECT:,} exchanges", hint)
        parts = rest, 0.0 if count is None else self._drift(order, growth, last, count)
        rest = float(sum(part ** (1 / order) for part in parts) ** order)  # Minkowski
        return _sum(self, order, growth, last) + rest

    def tail(self, order: Literal[1, 2], growth: float, count: int) -> float:
        """A bound on the sum of all terms after `count`, less what e_t adds after it; infinite where there is no proof.

        Let u < 1, s = 1 + v - u and a = w gamma_0, less L lambda_0 (N+1)^(u-v) where losses are not convex, and then
        u <= v, so that a only grows. (`Rounding.public` takes its share of gamma_0 + L lambda_0 (N+1)^(u-v) too.) From
        t = N on let q_t = 1 - w gamma_t (convex: lambda_t L <= 2 (1 - w gamma_t)), and let a > s (N+1)^(u-1). Then with

            K = max( lambda_0 C / (a - s (N+1)^(u-1)), Phi_N (N+1)^s ),       Phi_t <= K (t+1)^-s for all t >= N.

        *Proof.* By induction: (t+2)^-s >= (t+1)^-s (1 - s / (t+1)), and (1 - a (t+1)^-u) K (t+1)^-s + lambda_0 C
        (t+1)^-(1+v) is at most that, because K (a - s (t+1)^(u-1)) >= lambda_0 C. The terms are then summed as an
        integral. ∎
        """
        u, s = self.coupling.power, 1 + self.step.power - self.coupling.power
        if self.step.delay or self.coupling.delay or count <= self.delay or not self._settled(count):
            return math.inf
        if self.full or u >= 1:  # it does not fade
            return math.inf
        here = float(count + 1)
        margin, power = self._pull(here) - s * here ** (u - 1), order * (s + growth) - 1
        if margin <= 0 or power <= 0:
            return math.inf
        change = self.change * (1 + self.rounding.public)
        K = max(self.step.scale * change / margin, float(self.distances(count)[-1]) * here**s)
        return float(K**order * here**-power / power)

    def _pull(self, here: float) -> float:
        """a: q_t <= 1 - a (t+1)^-u from t + 1 = `here` on; without end below 0 where nothing says so."""
        u, v = self.coupling.power, self.step.power
        share = self.rounding.public + (not self.convex)
        if share and u > v:  # what holds here must hold from here on
            return -math.inf
        lost = share * self.smoothness * self.step.scale * here ** (u - v)
        return float((self.weight - self.rounding.public) * self.coupling.scale - lost)

    def _drift(self, order: Literal[1, 2], growth: float, first: int, count: int) -> float:
        """A bound on what e_t and the rounding of views add to the terms after `first`, up to `count`.

        From 0 at t = N on, F_{t+1} = q_t F_t + e_t stays below the largest e_t / (1 - q_t) so far, which is at most
        e_t / (a (t+1)^-u). In it the part of every update grows with t, that of the coupling stays, and that of the
        step falls: between t and 2 t the first is largest at the end and the last at the beginning.
        """
        each, u, v = self.rounding, self.coupling.power, self.step.power
        bound, total, start = 0.0, 0.0, first
        while start < count and each != Rounding():
            stop, here = min(2 * start, count), float(start + 1)
            update, step = each.update * (stop + 1.0) ** u, each.step * self.step.scale * here ** (u - v)
            bound = max(bound, 2 * (update + each.coupling * self.coupling.scale + step) / self._pull(here))
            total += (stop - start) * ((bound + 2 * each.view) / (here + 1) ** growth) ** order
            start = stop
        return total

    def _settled(self, count: int) -> bool:
        """Whether q_t is what the tail says from `count` on: steps and coupling fall, so what holds once stays."""
        now = np.array([count + 1])
        step, kept = float(self.step(now)[0]), 1 - self.weight * float(self.coupling(now)[0])
        return kept >= 0 and (not self.convex or step * self.smoothness <= 2 * kept)

    def _why(self, order: int, growth: float) -> str:
        u, v = self.coupling.power, self.step.power
        return (
            f"u < 1, {order} (1 + v - u + growth) > 1 and that contraction wins over smoothness: "
            f"got u = {u:g}, v = {v:g}, growth {growth:g}, L = {self.smoothness:g}"
        )

    def published(self) -> Self:
        """The recursion (19) behind Theorem 5(i): every one of the t + 1 gradients is counted as if it differed."""
        return replace(self, convex=False, strong_convexity=0.0, full=True, rounding=Rounding())


@lru_cache
def _sum(fading: Fading, order: Literal[1, 2], growth: float, count: int) -> float:
    """Of the first terms: all learners of a regular network share one."""
    with np.errstate(over="ignore"):
        return float(fading.terms(order, growth, count).sum())


@lru_cache(maxsize=8)
def _distances(fading: Fading, count: int) -> Doubles:
    """In blocks of powers of two, so that longer requests share the work of few sizes."""
    whole = 1 << max(0, count - 1).bit_length()
    if whole != count:
        return _distances(fading, whole)
    t = np.arange(whole, dtype=np.int64)
    share = 1.0 if fading.full else 1.0 / (t + 1)
    step, coupling, change = fading.step(t + 1), fading.coupling(t + 1), fading.change * (1 + fading.rounding.public)
    added = np.where(t < fading.delay, 0.0, step * change * share + fading.rounding.apart(coupling, step))
    with np.errstate(over="ignore", invalid="ignore"):  # what grows without bound ends at infinity
        return _recursion(fading.contraction(t), added)


def _recursion(q: Doubles, added: Doubles) -> Doubles:
    """x_{t+1} = q_t x_t + added_t from 0: many stretches at once, each from 0, and then what each started with."""
    width = min(len(q), 1024)
    q, out = q.reshape(-1, width), added.reshape(-1, width).copy()
    for column in range(1, width):
        out[:, column] += q[:, column] * out[:, column - 1]
    kept, moved = np.cumprod(q, axis=1), 0.0
    for row in range(len(out)):
        out[row] += kept[row] * moved
        moved = float(out[row, -1])
    return np.nan_to_num(out.ravel(), nan=math.inf)  # infinity times 0, where a long stretch grows without bound


@dataclass(frozen=True)
class Trace(Cumulative):
    """How far one unit moves all noisy views of a state together, each in units of the growth of its noise.

    The views are released one after the other, each with noise of its own: on the stack of all of them neighbours
    differ by sum_t |Phi_t / (t+1)^growth| in the l1 norm (times sqrt(d)) and by the root of the sum of squares in the
    Euclidean one, adaptively. The norm that is not asked for is infinite: it may have no bound.

    Attributes:
        fading: how far the state moves.
        growth: varsigma: the noise of view t is (t+1)^growth times its scale.
        size: d, coordinates of a view.
        spacing: of the lattice that views are rounded to; 0: none.
    """

    fading: Fading
    growth: float
    size: int
    spacing: float = 0.0

    def __post_init__(self) -> None:
        """Nothing to check: made by `of_views`, which does."""

    @classmethod
    def of_views(
        cls, fading: Fading, growth: float, size: int, order: Literal[1, 2], count: int | None, spacing: float = 0.0
    ) -> Self:
        """Of the first `count` views; None: of all.

        >>> mushrooms = Fading(Rate(1.0, 0.77), Rate(1.0, 0.65), weight=0.6, change=2.0, smoothness=0.25)
        >>> round(Trace.of_views(mushrooms, 0.11, 112, order=2, count=None).l2, 2)  # Gaussian, rho_0 = 1
        3.78
        """
        # Float32: (t+1)^growth, and with it the noise, may come out smaller by this share.
        slack = 1 + 2.0**-16 * max(1.0, growth)
        moved = slack * fading.total(order, growth, count)
        if not math.isfinite(moved):
            hint = "a sample's trace grows faster than it fades: take a smaller step, or features of a smaller bound"
            raise PrivacyError.of("step", str(fading.step), "one whose budget has a number", hint)
        views = size * (count or 0)
        l1 = math.sqrt(size) * moved + spacing * views if order == 1 else math.inf
        l2 = math.sqrt(slack * moved) + spacing * math.sqrt(views) if order == 2 else math.inf
        return cls(l1, l2, fading, growth, size, spacing)

    def until(self, order: Literal[1, 2], count: int | None) -> Self:
        """Of the first `count` views only.

        >>> mushrooms = Fading(Rate(1.0, 0.77), Rate(1.0, 0.65), weight=0.6, change=2.0, smoothness=0.25)
        >>> trace = Trace.of_views(mushrooms, 0.11, 112, order=1, count=None)
        >>> [round(trace.until(1, t).l1, 1) for t in (1, 2000, None)]
        [19.6, 241.8, 270.0]
        """
        return self.of_views(self.fading, self.growth, self.size, order, count, self.spacing)

    def rounded(self, spacing: float) -> Self:
        """Of views on a lattice, once `until` says how many."""
        return replace(self, spacing=spacing)


def noise_for(
    mechanism: Views,
    fadings: Sequence[Fading],
    growths: Sequence[float],
    rounds: int,
    budget: Budget | Sequence[Budget] | None,
    sigma: float | Sequence[float] | None,
    calibration: Calibration,
    delta: float,
) -> Calibrated[Views]:
    """Noise for the budget, or the budget of the noise: exactly one is given."""
    if (budget is None) == (sigma is None):
        raise PrivacyError.of("budget", budget, "either budget or sigma", "the other follows from it")
    order, size, learners = mechanism.order, mechanism.shape[0], len(fadings)
    traces = [Trace.of_views(f, s, size, order, mechanism.horizon) for f, s in zip(fadings, growths, strict=True)]
    if sigma is not None:
        if calibration == "published":
            raise ConfigurationError("calibration", calibration, "'tight' with sigma", "the noise is as given")
        scales = [check_positive("sigma", one) for one in each_of("sigma", sigma, learners)]
        chosen = [one / math.sqrt(2) if mechanism.law == "laplace" else one for one in scales]
        stated = delta if mechanism.law == "gaussian" else 0.0
        if mechanism.law == "gaussian" and not 0 < delta < 1:
            raise PrivacyError.of("delta", delta, "a number between 0 and 1 with Gaussian noise")
        return replace(mechanism.at_scale(traces, **{mechanism.name: chosen}), deltas=(stated,) * learners)
    assert budget is not None
    given = budgets_of(budget, learners)
    if calibration == "tight":
        return mechanism.calibrate(traces, given)
    if mechanism.law != "laplace":
        raise ConfigurationError("calibration", calibration, "'tight' here", "Theorem 5(i) has Laplace noise")
    given = given * learners if len(given) == 1 else given
    least = min(fading.weight for fading in fadings)  # the paper's w bar, for everybody
    each = [replace(fading, weight=least).published() for fading in fadings]
    printed = [Trace.of_views(fading, s, size, 1, rounds) for fading, s in zip(each, growths, strict=True)]
    chosen = [trace.l1 / one.epsilon for trace, one in zip(printed, given, strict=True)]
    return mechanism.at_scale(traces, **{mechanism.name: chosen})


def each_of(field: str, given: float | Sequence[float], learners: int) -> tuple[float, ...]:
    """One number for each learner."""
    values = tuple(given) if isinstance(given, Sequence | np.ndarray) else (given,) * learners
    if len(values) != learners:
        raise ConfigurationError(field, given, f"one number, or one for each of {learners} learners")
    return values
