"""What releases cost together, and the noise parameter that a budget allows. Every answer is rounded to the safe side.

Renyi divergences become epsilon and delta through Google's dp-accounting (imported on first use: it takes a second).
The curve of the Gaussian mechanism is computed here, to 12 digits and one-sided for every budget; pure losses are plain
sums. docs/privacy.md has the proofs.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import PrivacyError
from gossamer.privacy.budget import as_float
from gossamer.privacy.series import Total, sum_with_tail

__all__ = [
    "Total",
    "bounded_range_epsilon",
    "bounded_range_renyi",
    "gaussian_delta",
    "gaussian_epsilon",
    "largest_within",
    "mixed_epsilon",
    "mu_star",
    "pure_renyi",
    "renyi_epsilon",
    "sum_with_tail",
    "zcdp_epsilon",
]

Floats = NDArray[np.float64]

_SHAVE = 2.0**-40  # mu_star is lowered, epsilons through Renyi divergences are raised by this share
_FINER = 2.0**-43  # the inverses are raised by less, so that a round trip stays within the budget
_ROOT_TAU = math.sqrt(2 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_ORDERS: Floats = 1 + np.geomspace(0.011, 1e12, 400)  # dp-accounting converts orders above 1.01
_LEAST_DELTA = 1e-300  # below it order times delta may underflow in dp-accounting


# --- The Gaussian mechanism: mu-GDP means (epsilon, delta) with delta = Phi(-a) - e^epsilon Phi(-b), where
# a = epsilon/mu - mu/2 and b = a + mu (Balle and Wang 2018; Dong, Roth and Su 2022). Everything is solved for a: that
# is well conditioned for every epsilon, delta and mu, and delta falls as a grows.


def mu_star(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-Gaussian differential privacy implies (epsilon, delta), lowered by 1e-12 of itself.

    Gaussian noise of standard deviation `sensitivity / mu_star(epsilon, delta)` is the least that suffices.

    >>> round(1 / mu_star(2.0, 1e-3), 5), round(1 / mu_star(0.5, 1e-3), 4)
    (1.44524, 4.6101)
    """
    epsilon, delta = _positive("epsilon", epsilon), _delta(delta)
    if delta == 0:
        hint = "give the budget a delta such as 1e-5, or use Laplace noise"
        raise PrivacyError.of("delta", delta, "a positive delta for Gaussian noise", hint)

    def mu(a: float) -> float:
        b = math.sqrt(a * a + 2 * epsilon)
        return 2 * epsilon / (b + a) if a > 0 else b - a

    return mu(_least(lambda a: _delta_within(a, mu(a), delta))) * (1 - _SHAVE)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon at which mu-Gaussian differential privacy implies (epsilon, delta), rounded up.

    >>> round(gaussian_epsilon(1.0, 1e-5), 4), gaussian_epsilon(1.0, 0.0), gaussian_epsilon(0.0, 0.0)
    (4.3772, inf, 0.0)
    """
    mu, delta = _loss("mu", mu), _delta(delta)
    if mu in (0, math.inf) or delta == 0:
        return math.inf if mu else 0.0
    a = _least(lambda a: _delta_within(a, mu, delta))
    return max(0.0, mu * (a + _FINER * (1 + abs(a)) + mu / 2) * (1 + 2.0**-51))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The smallest delta at which mu-Gaussian differential privacy implies (epsilon, delta), rounded up.

    >>> round(gaussian_delta(1.0, 1.0), 5), gaussian_delta(100.0, 1.0)
    (0.12694, 1.0)
    """
    mu, epsilon = _loss("mu", mu), _loss("epsilon", epsilon)
    if mu in (0, math.inf):
        return 1.0 if mu else 0.0
    a = epsilon / mu * (1 - 2.0**-51) - mu / 2 * (1 + 2.0**-51)
    if a < -10:
        return 1.0
    log_delta = _log_delta(min(a, 40), mu) + _FINER
    delta = math.exp(log_delta) if log_delta < -1 else 1 - _complement(a, mu) * (1 - _FINER)
    return math.nextafter(delta, 1)


def _least(within: Callable[[float], bool]) -> float:
    """The least a that is within, by bisection. Deltas from 5e-324 to 1 - 1e-16 have their a between -10 and 40."""
    low, high = -10.0, 40.0
    for _ in range(70):
        middle = (low + high) / 2
        low, high = (low, middle) if within(middle) else (middle, high)
    return high


def _delta_within(a: float, mu: float, delta: float) -> bool:
    return _log_delta(a, mu) <= math.log(delta) if delta < 0.5 else _complement(a, mu) >= 1 - delta


def _log_delta(a: float, mu: float) -> float:
    """The logarithm of phi(a) (R(a) - R(b)), with Mills' ratio R(x) = Phi(-x)/phi(x): e^epsilon phi(b) is phi(a).

    For a small mu the difference is the integral of -R'(x) = 1 - x R(x), so that nothing cancels.
    """
    if mu < 0.5:
        x = a + mu * (_NODES + 1) / 2
        difference = math.log(mu) + math.log(float(_WEIGHTS @ (1 - x * _mills(x))) / 2)
    else:
        difference = math.log(float(_mills(a) - _mills(a + mu)))
    return difference - math.log(_ROOT_TAU) - a * a / 2


def _complement(a: float, mu: float) -> float:
    """One minus delta."""
    from scipy.special import ndtr

    return float(ndtr(a) + math.exp(-a * a / 2) / _ROOT_TAU * _mills(a + mu))


def _mills(x: float | Floats) -> Floats:
    from scipy.special import erfcx

    return math.sqrt(math.pi / 2) * np.asarray(erfcx(x / math.sqrt(2)), dtype=np.float64)


# --- Renyi divergences, which add up over releases that are chosen adaptively (Mironov 2017).


def renyi_epsilon(curve: Callable[[Floats], Floats], delta: float) -> float:
    """Epsilon at delta from a bound on the Renyi divergence at every order above 1.

    The least over orders a of curve(a) + (ln(1/delta) - ln a)/(a - 1) + ln(1 - 1/a) (Canonne, Kamath and Steinke 2020,
    Proposition 12; Asoodeh et al. 2020), by dp-accounting. Every order gives a valid epsilon, so a grid is safe.

    >>> round(renyi_epsilon(lambda orders: 0.5 * orders, 1e-5), 3)
    4.728
    """
    from dp_accounting.rdp import compute_epsilon

    delta = _delta(delta)
    delta = delta if delta >= _LEAST_DELTA else 0.0
    with np.errstate(over="ignore"):  # an infinite divergence is a valid bound
        epsilon, order = compute_epsilon(_ORDERS, curve(_ORDERS), delta)
        for width in (
            1.1,
            1.005,
        ):  # orders nearer to the best: the first grid has a ratio of 1.084, the second of 1.005
            near = 1 + (order - 1) * np.geomspace(1 / width, width, 41)
            epsilon, order = min((epsilon, order), compute_epsilon(near, curve(near), delta))
    return float(epsilon) * (1 + _SHAVE)


def pure_renyi(epsilon: float, orders: Floats) -> Floats:
    """The largest Renyi divergence of a pure epsilon: that of randomised response.

    Every mechanism with pure loss epsilon is, on two neighbours, a function of one randomised response (Kairouz, Oh and
    Viswanath 2015). With p = 1/(1 + e^-epsilon) its divergence of order a is the logarithm of
    p^a (1-p)^(1-a) + (1-p)^a p^(1-a) = cosh((a - 1/2) epsilon) / cosh(epsilon/2), over a - 1.

    >>> pure_renyi(1.0, np.array([2.0, 1e6])).round(4)
    array([0.7353, 1.    ])
    """
    epsilon = _loss("epsilon", epsilon)
    if epsilon > 1e6:  # never above epsilon itself
        return np.full(orders.shape, epsilon)
    direct = epsilon * orders < 100
    e, a = min(epsilon, 100.0), np.where(direct, orders, 1.0)
    small = np.log1p(2 * np.sinh(a * e / 2) * np.sinh((a - 1) * e / 2) / np.cosh(e / 2))
    large = (orders - 1) * epsilon - np.log1p(np.exp(-epsilon)) + np.log1p(np.exp(-(2 * orders - 1) * epsilon))
    divergence: Floats = np.where(direct, small, large) / (orders - 1)
    return divergence


def bounded_range_renyi(epsilon: float, orders: Floats) -> Floats:
    """A bound on the Renyi divergence of an epsilon-bounded-range mechanism: at most order * epsilon^2 / 8.

    Bounded range: the privacy loss Z = ln(P/Q) lies in an interval of length epsilon. The exponential mechanism
    P(y) ~ exp(epsilon score(y) / (2 sensitivity)) has it. *Proof.* By Hoeffding's lemma E_P e^(sZ) <= e^(s E_P Z +
    s^2 epsilon^2/8). With s = -1 the left side is 1, so E_P Z <= epsilon^2/8; with s = a - 1 then
    D_a = ln(E_P e^((a-1)Z))/(a-1) <= epsilon^2/8 + (a-1) epsilon^2/8. (Dong et al. 2020; Cesar and Rogers 2021.)

    >>> bounded_range_renyi(1.0, np.array([2.0, 1e6])).round(4)
    array([0.25, 1.  ])
    """
    return np.minimum(orders * (epsilon * epsilon / 8), pure_renyi(epsilon, orders))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon at delta of rho-zCDP: the Renyi divergence of order a is at most rho a.

    >>> round(zcdp_epsilon(0.125, 1e-5), 3), zcdp_epsilon(0.125, 0.0)
    (2.166, inf)
    """
    rho = _loss("rho", rho)
    return renyi_epsilon(lambda orders: rho * orders, delta)


def bounded_range_epsilon(epsilons: Sequence[float], delta: float) -> float:
    """Epsilon at delta of exponential mechanisms (or others of bounded range) one after another, never above the sum.

    >>> round(bounded_range_epsilon([0.1] * 10, 1e-6), 3), bounded_range_epsilon([0.1] * 10, 0.0)
    (0.7, 1.0)
    """
    return mixed_epsilon(delta, bounded_range=epsilons)


def mixed_epsilon(
    delta: float,
    *,
    pure: Sequence[float] = (),
    bounded_range: Sequence[float] = (),
    mu: float = 0.0,
    rho: float = 0.0,
) -> float:
    """Epsilon at delta of releases of several kinds on the same data, each chosen after those before it.

    The smaller of two bounds: the sum of the Renyi divergences converted; and the sum of the pure epsilons (a bounded
    range is one) plus the epsilon of the rest.

    Args:
        delta: where epsilon is asked for; at 0 it is the sum of pure losses, and infinite when there is another.
        pure: pure epsilons, one per mechanism.
        bounded_range: epsilons of exponential mechanisms, one per mechanism.
        mu: of all Gaussian mechanisms together, the root of the sum of squares.
        rho: of all zero-concentrated mechanisms together, the sum.

    >>> round(mixed_epsilon(1e-5, pure=[0.25], bounded_range=[1 / math.sqrt(60 * math.log(1e5))] * 60), 3)
    0.799
    """
    delta = _delta(delta)
    mu, rho = _loss("mu", mu), _loss("rho", rho)
    pures, ranges = _counted("epsilon", pure), _counted("bounded range", bounded_range)
    bounded = math.fsum([*pures.elements(), *ranges.elements()])
    gaussian = rho + mu * mu / 2
    rest = zcdp_epsilon(gaussian, delta) if rho else gaussian_epsilon(mu, delta)
    if delta == 0 or bounded == 0:
        return bounded + rest

    def curve(orders: Floats) -> Floats:
        return _added(pure_renyi, pures, orders) + _added(bounded_range_renyi, ranges, orders) + gaussian * orders

    return min(bounded + rest, renyi_epsilon(curve, delta))


def _added(curve: Callable[[float, Floats], Floats], epsilons: Counter[float], orders: Floats) -> Floats:
    return sum((count * curve(each, orders) for each, count in epsilons.items()), start=np.zeros_like(orders))


def largest_within(cost: Callable[[float], float], epsilon: float) -> float:
    """The largest positive parameter whose cost, which grows with it, is at most epsilon; lowered to the safe side.

    >>> eta = largest_within(lambda eta: mixed_epsilon(1e-5, pure=[0.25], bounded_range=[eta] * 60), 1.0)
    >>> round(eta * math.sqrt(60 * math.log(1e5)), 2)  # times the share of paper 004
    1.33
    """
    epsilon = _positive("epsilon", epsilon)
    low = high = 1.0
    while cost(low) > epsilon and low > 1e-300:
        low, high = low / 2, low
    while cost(high) <= epsilon and high < 1e300:
        low, high = high, high * 2
    if cost(low) > epsilon or cost(high) <= epsilon:
        raise PrivacyError.of("epsilon", epsilon, "a value that the cost crosses", "a fixed part may cost more already")
    while high - low > _SHAVE * low:
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= epsilon else (low, middle)
    return low


# --- Checks.


def _positive(field: str, given: float) -> float:
    value = as_float(given)
    if not 0 < value < math.inf:
        raise PrivacyError.of(field, given, "a positive finite number")
    return value


def _loss(field: str, given: float) -> float:
    value = as_float(given)
    if not value >= 0:
        raise PrivacyError.of(field, given, "a number of at least 0")
    return value


def _counted(field: str, given: Sequence[float]) -> Counter[float]:
    return Counter({_loss(field, each): count for each, count in Counter(given).items()})


def _delta(given: float) -> float:
    value = as_float(given)
    if not 0 <= value < 1:
        raise PrivacyError.of("delta", given, "a number from 0 to below 1")
    return value


def sampler_share(error: float, epsilon: float) -> float:
    """What noise within `error` of its law, in total variation, adds to delta where epsilon is stated.

    *Proof.* Let M be the mechanism in which the draws that one unit touches are exact and all others as sampled. The
    proof of (epsilon, delta) conditions on the others, whose law is the same under both neighbours, so it holds for M.
    The mechanism as it runs, M', is for every input within tau = `error` of M, and

        P(M'(D) in S) <= P(M(D) in S) + tau <= e^epsilon P(M(D') in S) + delta + tau
                      <= e^epsilon (P(M'(D') in S) + tau) + delta + tau.

    >>> sampler_share(1e-9, 0.0)
    2e-09
    """
    return error * (1 + math.exp(min(epsilon, 700.0))) if error else 0.0
