"""Accounting: known numbers, agreement with dp-accounting and with mpmath, and never an answer on the unsafe side."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, ZCDpEvent, get_epsilon_gaussian, get_sigma_gaussian
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.privacy.accounting import (
    bounded_range_epsilon,
    bounded_range_renyi,
    gaussian_delta,
    gaussian_epsilon,
    largest_within,
    mixed_epsilon,
    mu_star,
    pure_renyi,
    renyi_epsilon,
    sum_with_tail,
    zcdp_epsilon,
)

FIXED = settings(derandomize=True, deadline=None)


def powers(low, high):
    """Numbers spread evenly over orders of magnitude."""
    return st.floats(math.log10(low), math.log10(high)).map(lambda exponent: 10.0**exponent)


epsilons, deltas = powers(1e-4, 1e4), powers(1e-300, 0.5)
losses = st.floats(1e-3, 5.0)


def exact_delta(mu, epsilon):
    """The curve of the Gaussian mechanism, with so many digits that nothing cancels."""
    with mpmath.workdps(420):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        low, high = (epsilon / mu - mu / 2) / mpmath.sqrt(2), (epsilon / mu + mu / 2) / mpmath.sqrt(2)
        return (mpmath.erfc(low) - mpmath.exp(epsilon) * mpmath.erfc(high)) / 2


class TestGaussian:
    def test_known_numbers(self):
        assert 1 / mu_star(2.0, 1e-3) == pytest.approx(1.44524, abs=5e-6)
        assert 1 / mu_star(0.5, 1e-3) == pytest.approx(4.6101, abs=5e-5)

    @pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 20.0, 300.0])
    @pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-3, 0.4])
    def test_agrees_with_dp_accounting(self, epsilon, delta):
        """To its own absolute tolerance of 1e-12 in sigma and epsilon, and 1e-10 for what cancels in its logarithms."""
        sigma = get_sigma_gaussian(epsilon, delta)
        assert 1 / mu_star(epsilon, delta) == pytest.approx(sigma, rel=1e-10)
        assert gaussian_epsilon(1 / sigma, delta) == pytest.approx(get_epsilon_gaussian(sigma, delta), rel=1e-9)

    @pytest.mark.parametrize("epsilon", [1e-12, 1e-4, 0.1, 1.0, 10.0, 500.0])
    @pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-5, 0.1, 0.5, 0.99])
    def test_largest_mu_and_never_above_it(self, epsilon, delta):
        """Within two parts in 10^12 of the exact curve, from below: dp-accounting is off by 1e-5 in one corner."""
        mu = mu_star(epsilon, delta)
        assert exact_delta(mu, epsilon) <= delta < exact_delta(mu * (1 + 2e-12), epsilon)

    @pytest.mark.parametrize("mu", [1e-3, 0.3, 1.0, 8.0])
    @pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.1])
    def test_inverses_are_on_the_safe_side(self, mu, delta):
        epsilon = gaussian_epsilon(mu, delta)
        assert exact_delta(mu, epsilon) <= delta
        if epsilon:
            assert exact_delta(mu, epsilon - 1e-11 * (mu + epsilon)) > delta
            assert 1 <= gaussian_delta(mu, epsilon) / exact_delta(mu, epsilon) < 1 + 1e-11

    @given(epsilons, deltas)
    @settings(FIXED, max_examples=60)
    @example(1e-4, 1e-300)
    @example(1e4, 1e-300)
    @example(1e-4, 0.5)
    @example(1e4, 0.5)
    def test_round_trips_stay_within_the_budget(self, epsilon, delta):
        mu = mu_star(epsilon, delta)
        assert gaussian_epsilon(mu, delta) <= epsilon
        assert gaussian_delta(mu, epsilon) <= delta
        assert gaussian_epsilon(mu * (1 + 1e-10), delta) > epsilon * (1 - 1e-9)

    @given(epsilons, epsilons, deltas, deltas)
    @settings(FIXED, max_examples=30)
    def test_monotone(self, first, second, third, fourth):
        (low, high), (rare, common) = sorted((first, second)), sorted((third, fourth))
        assert mu_star(low, rare) <= mu_star(high, rare)
        assert mu_star(low, rare) <= mu_star(low, common)
        assert gaussian_epsilon(low, rare) <= gaussian_epsilon(high, rare)
        assert gaussian_epsilon(low, rare) >= gaussian_epsilon(low, common)
        assert gaussian_delta(low, high) >= gaussian_delta(low, 2 * high)

    def test_extremes(self):
        assert gaussian_epsilon(1e12, 1e-5) == pytest.approx(5e23)
        assert gaussian_epsilon(1e200, 1e-5) == gaussian_epsilon(math.inf, 1e-5) == math.inf
        assert gaussian_epsilon(1e-300, 1e-5) == 0
        assert gaussian_delta(1e200, 1.0) == gaussian_delta(math.inf, 1.0) == 1
        assert 0 < gaussian_delta(1e-3, 1e4) < 1e-300  # never 0: that would be a pure guarantee
        assert gaussian_delta(0.0, 1.0) == 0
        assert mu_star(1e4, 0.5) == pytest.approx(141.42, rel=1e-3)  # mu^2/2 is about epsilon


class TestRenyi:
    @given(losses, st.floats(1.02, 100.0))
    @FIXED
    def test_curve_of_randomised_response(self, epsilon, order):
        p = 1 / (1 + math.exp(-epsilon))
        moment = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
        expected = math.log(moment) / (order - 1)
        assert pure_renyi(epsilon, np.array([order]))[0] == pytest.approx(expected, rel=1e-6, abs=1e-12)

    @given(powers(1e-8, 1e4), powers(0.02, 1e9))
    @FIXED
    def test_curves_are_below_what_they_must_be(self, epsilon, order_less_one):
        orders = 1 + np.array([order_less_one, 2 * order_less_one])
        pure, ranged = pure_renyi(epsilon, orders), bounded_range_renyi(epsilon, orders)
        assert np.all(pure <= np.minimum(epsilon, orders * epsilon**2 / 2) * (1 + 1e-12))
        assert np.all(ranged <= pure)
        assert np.all(pure > 0)
        assert pure[0] <= pure[1] * (1 + 1e-12)

    @given(st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.lists(st.floats(0, 1), min_size=6, max_size=6))
    @FIXED
    def test_bounded_range_covers_exponential_mechanisms(self, scores, moves):
        """Brute force: scores move by up to the sensitivity 1, each its own way."""
        scores, moves = np.array(scores), np.array(moves[: len(scores)])
        p, q = (np.exp(1.3 * s / 2) / np.sum(np.exp(1.3 * s / 2)) for s in (scores, scores + 2 * moves - 1))
        for order in (1.1, 2.0, 8.0, 64.0):
            divergence = math.log(np.sum(p**order * q ** (1 - order))) / (order - 1)
            assert divergence <= bounded_range_renyi(1.3, np.array([order]))[0] + 1e-12

    @given(powers(1e-4, 1e2), powers(1e-12, 0.1))
    @settings(FIXED, max_examples=30)
    def test_conversion_is_dp_accounting_s_and_never_worse(self, rho, delta):
        theirs = RdpAccountant().compose(ZCDpEvent(rho)).get_epsilon(delta)
        assert zcdp_epsilon(rho, delta) <= theirs * (1 + 1e-8)
        mu = math.sqrt(2 * rho)  # N(0, 1) against N(mu, 1) attains every divergence
        assert zcdp_epsilon(rho, delta) >= gaussian_epsilon(mu, delta) * (1 - 1e-9)

    def test_conversion_at_the_same_order(self):
        order, rho, delta = 7.0, 0.2, 1e-6
        by_hand = rho * order + (math.log(1 / delta) - math.log(order)) / (order - 1) + math.log(1 - 1 / order)
        assert RdpAccountant([order]).compose(ZCDpEvent(rho)).get_epsilon(delta) == pytest.approx(by_hand)
        assert zcdp_epsilon(rho, delta) < by_hand

    def test_ten_exponential_mechanisms(self):
        assert bounded_range_epsilon([0.1] * 10, 1e-6) <= 0.701
        assert bounded_range_epsilon([0.1] * 10, 1e-6) == pytest.approx(0.7002, abs=1e-4)
        assert bounded_range_epsilon([0.1] * 100, 1e-6) == pytest.approx(2.419, abs=2e-3)

    @given(st.lists(losses, max_size=5), powers(1e-12, 0.1))
    @settings(FIXED, max_examples=30)
    def test_never_above_the_pure_sum(self, each, delta):
        assert bounded_range_epsilon(each, 0.0) == math.fsum(each)
        assert bounded_range_epsilon(each, delta) <= mixed_epsilon(delta, pure=each) <= math.fsum(each)

    @pytest.mark.parametrize(
        ("epsilon", "delta", "half", "quarter", "largest"),
        [
            (0.1, 1e-5, 0.942, 0.692, 1.62),
            (1, 1e-5, 1.053, 0.799, 1.33),
            (5, 1e-5, 1.165, 0.910, 1.12),
            (10, 1e-5, 1.243, 0.990, 1.01),
            (10, 1e-3, 1.289, 1.035, 0.97),
            (20, 1e-5, 1.370, 1.120, 0.89),
        ],
    )
    def test_sparse_vector_and_sixty_exponential_mechanisms(self, epsilon, delta, half, quarter, largest):
        """Paper 004c: the table of SOUNDNESS 5.2."""
        eta = epsilon / math.sqrt(60 * math.log(1 / delta))

        def cost(share, eta):
            return mixed_epsilon(delta, pure=[share * epsilon], bounded_range=[eta] * 60)

        assert cost(1 / 2, eta) / epsilon == pytest.approx(half, abs=6e-4)
        assert cost(1 / 4, eta) / epsilon == pytest.approx(quarter, abs=6e-4)
        most = largest_within(lambda eta: cost(1 / 4, eta), epsilon)
        assert most / eta == pytest.approx(largest, abs=6e-3)
        assert epsilon * (1 - 1e-9) < cost(1 / 4, most) <= epsilon

    @pytest.mark.parametrize(("pure", "mu"), [((1.0,), 0.2), ((0.3, 0.3, 0.3), 0.5), ((0.05,) * 20, 0.1)])
    def test_mixed_losses_are_above_the_exact_composition(self, pure, mu):
        """Randomised responses and a Gaussian, composed by optimistic privacy loss distributions (grid 1e-3)."""
        exact = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-3, pessimistic_estimate=False)
        for epsilon in pure:
            response = pld.from_randomized_response(
                2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=1e-3, pessimistic_estimate=False
            )
            exact = exact.compose(response)
        ours = mixed_epsilon(1e-5, pure=pure, mu=mu)
        assert exact.get_epsilon_for_delta(1e-5) <= ours <= math.fsum(pure) + gaussian_epsilon(mu, 1e-5)

    def test_gaussian_parts(self):
        assert mixed_epsilon(1e-5, mu=0.7) == gaussian_epsilon(0.7, 1e-5)
        both = RdpAccountant().compose(GaussianDpEvent(2.0)).compose(ZCDpEvent(0.1)).get_epsilon(1e-5)
        assert mixed_epsilon(1e-5, mu=0.5, rho=0.1) == pytest.approx(both, rel=1e-3)
        assert mixed_epsilon(0.0, pure=[0.1], mu=0.5) == math.inf
        assert mixed_epsilon(0.0, pure=[0.1, 0.2], bounded_range=[0.3]) == pytest.approx(0.6)
        assert mixed_epsilon(1e-5) == renyi_epsilon(lambda orders: 0 * orders, 1e-5) == 0

    def test_pure_sums_are_not_asked_of_a_distribution(self):
        """What dp-accounting's distributions answer at delta 0 would be useless."""
        ten = pld.from_laplace_mechanism(10.0).self_compose(10)
        assert ten.get_epsilon_for_delta(0.0) > 1 + 1e-6
        assert mixed_epsilon(0.0, pure=[0.1] * 10) == 1

    @pytest.mark.parametrize("huge", [1e7, 1e200, math.inf])
    def test_huge_losses(self, huge):
        assert mixed_epsilon(1e-5, pure=[huge], mu=1.0) <= huge + gaussian_epsilon(1.0, 1e-5)
        assert huge * (1 - 1e-9) <= bounded_range_epsilon([huge], 1e-5) <= huge
        assert zcdp_epsilon(huge, 1e-5) >= huge

    def test_tiny_delta_counts_as_none(self):
        assert zcdp_epsilon(0.1, 1e-305) == math.inf
        assert mixed_epsilon(1e-305, pure=[0.5]) == 0.5


class TestLargestWithin:
    def test_inverts(self):
        assert largest_within(lambda x: x**2, 9.0) == pytest.approx(3.0, rel=1e-11)
        assert largest_within(lambda rho: zcdp_epsilon(rho, 1e-5), 1e-3) ** 0.5 > 0

    @pytest.mark.parametrize("cost", [lambda x: 2.0 + x, lambda x: 0.5])
    def test_refuses_a_cost_that_does_not_cross(self, cost):
        with pytest.raises(PrivacyError, match="epsilon"):
            largest_within(cost, 1.0)


class Mushrooms:
    """The convex recursion of paper 003 in the setting of SOUNDNESS 4, with its provable tail."""

    w, u, v, varsigma, clip, dim = 0.6, 0.65, 0.77, 0.11, 2.0, 112

    def __init__(self, smoothness):
        self.smoothness, self.phi = smoothness, 0.0

    def term(self, t):
        """sqrt(n) Phi_t / rho_t; the state goes from one block to the next."""
        gamma, step = (t + 1.0) ** -self.u, (t + 1.0) ** -self.v
        q = np.maximum(np.abs(1 - self.w * gamma), np.abs(1 - self.w * gamma - step * self.smoothness))
        phi = np.empty(len(t))
        for i, (contraction, moved) in enumerate(zip(q.tolist(), (step * self.clip / (t + 1)).tolist(), strict=True)):
            phi[i], self.phi = self.phi, contraction * self.phi + moved
        return math.sqrt(self.dim) * phi / (t + 1.0) ** self.varsigma

    def tail(self, stop):
        s, at = 1 + self.v - self.u, stop + 1.0
        slack = self.w - s * at ** (self.u - 1)
        convex = at**-self.v * self.smoothness <= 2 * (1 - self.w * at**-self.u)
        if slack <= 0 or not convex:
            return math.inf
        k, power = max(self.clip / slack, self.phi * at**s), self.v - self.u + self.varsigma
        # Terms from `stop` on: the one at `stop`, and the integral of the bound beyond it.
        return math.sqrt(self.dim) * k * (at ** -(1 + power) + at**-power / power)


class TestSumWithTail:
    @pytest.mark.parametrize(("stop", "total"), [(2_000, 272.7), (20_000, 270.6), (200_000, 270.2)])
    def test_mushrooms_of_paper_003(self, stop, total):
        budget = Mushrooms(0.25)
        partial = float(np.sum(budget.term(np.arange(stop))))
        assert partial + budget.tail(stop) == pytest.approx(total, abs=0.06)
        if stop == 2_000:
            assert partial == pytest.approx(241.7, abs=0.05)

    def test_slow_series(self):
        budget = Mushrooms(0.25)
        total = sum_with_tail(budget.term, budget.tail, tolerance=0.05)
        assert 270.0 < total.bound < 270.6
        assert 20_000 < total.stop < 500_000

    def test_refuses_what_is_not_certified(self):
        budget = Mushrooms(0.25)
        with pytest.raises(PrivacyError, match=r"tail: got .* at most 1e-06 of"):
            sum_with_tail(budget.term, budget.tail, most=5_000)
        with pytest.raises(PrivacyError, match="inf"):
            sum_with_tail(lambda t: 1.0 / (t + 1.0), lambda stop: math.inf, most=5_000)

    @given(st.floats(2.5, 6.0), st.integers(1, 50), powers(1e-5, 1e-1))
    @settings(FIXED, max_examples=30)
    def test_above_the_zeta_function(self, power, start, tolerance):
        def tail(stop):
            return (stop - 1.0) ** (1 - power) / (power - 1)

        total = sum_with_tail(lambda t: t**-power, tail, start, tolerance)
        exact = float(mpmath.zeta(power, start))
        assert exact <= total.bound <= exact * (1 + 1.001 * tolerance)

    def test_blocks_come_in_order_and_once(self):
        seen = []

        def term(t):
            seen.extend(t.tolist())
            return 1.0 / t**2

        assert sum_with_tail(term, lambda stop: 1 / (stop - 1), start=3, tolerance=1e-4).stop == 3 + len(seen)
        assert len(seen) > 5_000
        assert seen == list(range(3, 3 + len(seen)))

    def test_nothing_at_all(self):
        assert sum_with_tail(lambda t: 0.0 * t, lambda stop: 0.0).bound == 0

    @pytest.mark.parametrize("term", [lambda t: -1.0 * t - 1, lambda t: t * math.nan, lambda t: np.zeros(1)])
    def test_refuses_bad_terms(self, term):
        with pytest.raises(PrivacyError, match="term"):
            sum_with_tail(term, lambda stop: 0.0)

    @pytest.mark.parametrize("tail", [-1.0, math.nan])
    def test_refuses_bad_tails(self, tail):
        with pytest.raises(PrivacyError, match="tail"):
            sum_with_tail(lambda t: 1.0 + t, lambda stop: tail)

    @pytest.mark.parametrize("settings", [{"most": 0}, {"tolerance": -1.0}])
    def test_refuses_bad_settings(self, settings):
        with pytest.raises(ConfigurationError):
            sum_with_tail(lambda t: 1.0 + t, lambda stop: 0.0, **settings)


class TestBadInput:
    @pytest.mark.parametrize("epsilon", [0, 0.0, -1.0, math.nan, math.inf, True, None, "1", 10**400])
    def test_epsilon(self, epsilon):
        with pytest.raises(PrivacyError, match=r"epsilon: got .*; allowed: a positive finite number"):
            mu_star(epsilon, 1e-5)

    @pytest.mark.parametrize("delta", [-1e-9, 1.0, 2, math.nan, math.inf, True, None])
    @pytest.mark.parametrize("ask", [mu_star, gaussian_epsilon, zcdp_epsilon, lambda e, d: mixed_epsilon(d, pure=[e])])
    def test_delta(self, ask, delta):
        with pytest.raises(PrivacyError, match=r"delta: got .*; allowed: a number from 0 to below 1"):
            ask(1.0, delta)

    def test_delta_zero_of_a_gaussian(self):
        with pytest.raises(PrivacyError, match=r"delta: got 0.0; allowed: a positive delta.* Give the budget a delta"):
            mu_star(1.0, 0.0)
        assert gaussian_epsilon(1.0, 0.0) == zcdp_epsilon(1.0, 0.0) == math.inf

    @pytest.mark.parametrize("loss", [-1.0, math.nan, False, None])
    def test_losses(self, loss):
        for ask in (
            lambda: gaussian_epsilon(loss, 1e-5),
            lambda: gaussian_delta(loss, 1.0),
            lambda: zcdp_epsilon(loss, 1e-5),
            lambda: bounded_range_epsilon([0.1, loss], 1e-5),
            lambda: mixed_epsilon(1e-5, pure=[loss]),
        ):
            with pytest.raises(PrivacyError, match="at least 0"):
                ask()
