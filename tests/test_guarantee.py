"""Budgets, losses and guarantees: conversions, groups, compositions, sentences and JSON, against brute force."""

from __future__ import annotations

import functools
import itertools
import json
import math
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.privacy import (
    OBSERVERS,
    Approximate,
    Assumption,
    Budget,
    Concentrated,
    Gaussian,
    Guarantee,
    Loss,
    Pure,
    Unit,
    accounting,
    budgets_of,
    no_guarantee,
)
from gossamer.privacy.loss import BoundedRange, Mixed, compose, worst

FIXED = settings(derandomize=True, deadline=None)
numbers = st.floats(0.0, 3.0)
several = st.lists(numbers, max_size=4).map(tuple)
probabilities = st.floats(0.0, 1e-3)
every_loss = st.one_of(
    st.builds(Pure, numbers),
    st.builds(Gaussian, numbers),
    st.builds(Concentrated, numbers),
    st.builds(BoundedRange, several),
    st.builds(Approximate, numbers, probabilities),
    st.builds(Mixed, several, several, numbers, numbers, numbers, probabilities),
)


@st.composite
def guarantees(draw):
    losses = tuple(draw(st.lists(every_loss, min_size=1, max_size=3)))
    return Guarantee(
        basis=draw(st.sampled_from(["proven", "published", "heuristic"])),
        reason=draw(st.text(max_size=20)),
        losses=losses,
        deltas=tuple(draw(st.lists(probabilities, min_size=len(losses), max_size=len(losses)))),
        unit=draw(st.sampled_from(Unit)),
        observer=draw(st.sampled_from(list(OBSERVERS))),
        horizon=draw(st.none() | st.integers(1, 10**12)),
        occurrences=draw(st.none() | st.integers(1, 1000)),
        sampler_error=draw(st.floats(0, 1e-9)),
        assumptions=tuple(draw(st.lists(st.builds(Assumption, st.text(), st.text(min_size=1)), max_size=2))),
        proof=draw(st.text(max_size=20)),
    )


def pure(*epsilons, **settings):
    """A proven guarantee of pure losses, one per learner."""
    losses = tuple(map(Pure, epsilons))
    return checked(Guarantee("proven", losses=losses, deltas=(0.0,) * len(losses), **settings))


def gaussian(mu, delta, **settings):
    return checked(Guarantee("proven", losses=(Gaussian(mu),), deltas=(delta,), **settings))


def checked(claim):
    """As it is read from a file of somebody who checked it."""
    return Guarantee.from_json(json.dumps(json.loads(claim.to_json()) | {"checked": "program"}))


class TestBudget:
    def test_any_real_number(self):
        assert Budget(np.float32(0.5), Fraction(1, 2**20)) == Budget(0.5, 2.0**-20)
        assert Budget(1) == Budget(1.0, 0)
        assert len({Budget(1), Budget(1.0)}) == 1
        assert str(Budget(1.0, 1e-5)) == "epsilon 1, delta 1e-05"

    @pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, -math.inf, True, "1", None, [1.0], 10**400])
    def test_refuses_epsilon(self, epsilon):
        with pytest.raises(PrivacyError, match=r"epsilon: got .*; allowed: a positive finite number"):
            Budget(epsilon)

    @pytest.mark.parametrize("delta", [-1e-9, 1, 1.5, math.nan, math.inf, True, "0", None])
    def test_refuses_delta(self, delta):
        with pytest.raises(PrivacyError, match=r"delta: got .*; allowed: a number from 0 to below 1"):
            Budget(1.0, delta)

    def test_one_for_all_or_one_for_each(self):
        one, two = Budget(1.0), Budget(2.0)
        assert budgets_of(one, 3) == (one,)
        assert budgets_of([one, two], 2) == (one, two)
        for wrong in ([], [one], "ab", 1.0, [1.0, 2.0], None):
            with pytest.raises(PrivacyError, match="budget: got"):
                budgets_of(wrong, 2)


def divergence(p, q, epsilon):
    """The smallest delta at this epsilon, by brute force over all outcomes, both ways."""
    return max(np.sum(np.maximum(a - math.exp(epsilon) * b, 0)) for a, b in ((p, q), (q, p)))


def response(epsilon):
    p = 1 / (1 + math.exp(-epsilon))
    return np.array([p, 1 - p]), np.array([1 - p, p])


def geometric(center, epsilon):
    """Discrete Laplace noise on -200..200 with its ends folded in: exactly epsilon for a move by one."""
    k = np.arange(-200, 201) - center
    mass = np.exp(-epsilon * np.abs(k)) * math.tanh(epsilon / 2)
    ends = np.exp(-epsilon * np.array([200 + center, 200 - center])) / (1 + math.exp(-epsilon))
    return np.concatenate([ends[:1], mass[1:-1], ends[1:]])


class TestLosses:
    @given(every_loss, st.floats(1e-9, 0.5), st.floats(1e-9, 0.5))
    @settings(FIXED, max_examples=60)
    def test_epsilon_falls_with_delta(self, loss, first, second):
        low, high = sorted((first, second))
        assert loss.epsilon(high) <= loss.epsilon(low) * (1 + 1e-9) <= loss.epsilon(0.0) * (1 + 2e-9)
        assert loss.epsilon(loss.least_delta + high) < math.inf

    @given(every_loss, st.integers(1, 4), st.integers(1, 4))
    @settings(FIXED, max_examples=60)
    def test_groups_of_groups(self, loss, first, second):
        assert loss.group(1).epsilon(1e-2) == pytest.approx(loss.epsilon(1e-2))
        twice, once = loss.group(first).group(second), loss.group(first * second)
        assert twice.epsilon(0.5) == pytest.approx(once.epsilon(0.5), rel=1e-9)
        assert loss.epsilon(0.5) <= loss.group(first).epsilon(0.5) * (1 + 1e-9)

    @pytest.mark.parametrize("size", [1, 2, 5])
    @pytest.mark.parametrize("epsilon", [0.1, 1.0])
    def test_pure_groups_by_brute_force(self, size, epsilon):
        """A discrete Laplace mechanism moved by `size`: the claimed epsilon holds, and nothing smaller does."""
        p, q = geometric(0, epsilon), geometric(size, epsilon)
        assert p.sum() == pytest.approx(1)
        claimed = Pure(epsilon).group(size).epsilon(0.0)
        assert divergence(p, q, claimed + 1e-9) == pytest.approx(0, abs=1e-15)
        assert divergence(p, q, 0.99 * claimed) > 1e-4

    @pytest.mark.parametrize("size", [1, 2, 5])
    def test_gaussian_groups_by_brute_force(self, size):
        """N(0, 1) against N(0.3 size, 1) on a fine grid: the claimed epsilon is exact."""
        x = np.linspace(-15, 15, 300_001)
        density = [np.exp(-((x - c) ** 2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0]) for c in (0, 0.3 * size)]
        epsilon = Gaussian(0.3).group(size).epsilon(1e-5)
        assert divergence(*density, epsilon) == pytest.approx(1e-5, rel=1e-4)

    @pytest.mark.parametrize("size", [1, 2, 3, 4])
    def test_approximate_groups_by_brute_force(self, size):
        """A chain of laws on four outcomes in which neighbours attain (epsilon, delta): its ends keep the claim.

        From one law to the next a mass of delta goes to an outcome that did not occur, the rest as in randomised
        response.
        """
        epsilon, delta = 0.4, 0.01
        unit = Approximate(epsilon, delta)
        laws = [np.array([0.0, 0.2, 0.8, 0.0])]
        for step in range(size):
            p = laws[-1].copy()
            p[0 if step % 2 else 3] += delta
            p[1] = min(p[1] * math.exp(epsilon), 0.9)
            p[2] = 1 - p[0] - p[1] - p[3]
            laws.append(p)
        for before, after in pairwise(laws):
            grown = divergence(before, after, epsilon)
            unit = replace(unit, delta=max(unit.delta, grown))
        group = unit.group(size)
        assert divergence(laws[0], laws[-1], group.value) <= group.delta

    def test_approximate_group_is_the_geometric_sum(self):
        assert Approximate(0.5, 1e-6).group(3).delta == pytest.approx(1e-6 * (1 + math.exp(0.5) + math.exp(1.0)))
        assert Approximate(0.0, 1e-6).group(3) == Approximate(0.0, 3e-6)
        assert Approximate(1.0, 1e-6).group(10**6).delta == 1.0
        assert Approximate(1.0, 0.0).group(10**6) == Approximate(1e6, 0.0)

    def test_concentrated_group(self):
        """Gaussians attain zero-concentrated losses: rho = mu^2/2, and mu adds up."""
        assert Concentrated(0.3**2 / 2).group(4).rho == pytest.approx(Gaussian(0.3).group(4).mu ** 2 / 2)

    @given(every_loss)
    @FIXED
    def test_json(self, loss):
        text = json.dumps(loss.to_json(), allow_nan=False)
        assert Loss.from_json(json.loads(text)) == loss

    def test_infinite_losses(self):
        for loss in (
            Pure(math.inf),
            Gaussian(math.inf),
            BoundedRange((math.inf, 1.0)),
            Mixed(pure=(math.inf,), mu=1.0),
        ):
            text = json.dumps(loss.to_json(), allow_nan=False)
            assert Loss.from_json(json.loads(text)) == loss
            assert loss.epsilon(0.1) == loss.group(2).epsilon(0.1) == math.inf

    def test_unknown_kind(self):
        with pytest.raises(ConfigurationError, match=r"kind of loss: got 'x'; allowed: 'pure', 'gaussian'"):
            Loss.from_json({"kind": "x"})

    @pytest.mark.parametrize("kind", [Pure, Gaussian, Concentrated, lambda v: Approximate(1.0, v), BoundedRange])
    @pytest.mark.parametrize("value", [-1.0, math.nan, True, None, "1"])
    def test_refuses(self, kind, value):
        with pytest.raises(PrivacyError, match="of at least 0"):
            kind(value)

    def test_several_numbers_where_several_belong(self):
        assert BoundedRange([1, 2]) == BoundedRange((1.0, 2.0))
        for wrong in (lambda: BoundedRange(0.1), lambda: Pure((0.1,)), lambda: BoundedRange((0.1, -0.1))):
            with pytest.raises(PrivacyError, match="of at least 0"):
                wrong()


def at_least(loss, losses, delta):
    """Whether it is no less than each. `Pure` alone does not use delta: as part of a composition it does."""
    return all(loss.epsilon(delta) >= one.as_mixed().epsilon(delta) * (1 - 1e-9) for one in losses)


class TestCompose:
    def test_one_kind_stays(self):
        assert compose([]) == compose([Pure(0.0)]) == Pure(0.0)
        assert compose([Pure(0.1)] * 10) == Pure(1.0)
        assert compose([Gaussian(3.0), Pure(0.0), Gaussian(4.0)]) == Gaussian(5.0)
        assert compose([Concentrated(0.5), Concentrated(0.25)]) == Concentrated(0.75)
        assert compose([BoundedRange((0.1,)), BoundedRange((0.2, 0.3))]) == BoundedRange((0.1, 0.2, 0.3))
        assert compose([Approximate(1.0, 1e-6), Approximate(0.5, 1e-6)]) == Approximate(1.5, 2e-6)

    @given(st.lists(every_loss, min_size=1, max_size=3), st.integers(1, 3))
    @settings(FIXED, max_examples=40)
    def test_order_grouping_and_bounds(self, losses, size):
        delta = 0.02
        whole = compose(losses)
        assert whole.epsilon(delta) == pytest.approx(compose(losses[::-1]).epsilon(delta), rel=1e-9)
        assert at_least(whole, losses, delta)
        # (epsilon_1, delta_1) and (epsilon_2, delta_2) together are (epsilon_1 + epsilon_2, delta_1 + delta_2).
        assert whole.epsilon(0.0) == pytest.approx(math.fsum(loss.epsilon(0.0) for loss in losses))
        # Where several parts are approximate, a group of the whole is charged more than the parts' groups together.
        grouped = compose([loss.group(size) for loss in losses])
        assert whole.group(size).epsilon(0.5) >= grouped.epsilon(0.5) * (1 - 1e-9)

    @pytest.mark.parametrize("each", [(0.3, 0.5), (0.2, 0.2, 0.2), (1.0, 0.1, 0.4)])
    def test_pure_compositions_by_brute_force(self, each):
        """All outcomes of several randomised responses: what is claimed at a delta holds."""
        p, q = np.ones(1), np.ones(1)
        for a, b in map(response, each):
            p, q = np.outer(p, a).ravel(), np.outer(q, b).ravel()
        for delta in (0.0, 1e-3, 0.05):
            assert divergence(p, q, accounting.mixed_epsilon(delta, pure=each) + 1e-12) <= delta + 1e-15
        assert divergence(p, q, 0.99 * math.fsum(each)) > 0

    def test_approximate_with_others(self):
        both = compose([Approximate(1.0, 1e-6), Gaussian(0.5)])
        assert both.epsilon(1e-7) == both.epsilon(1e-6) == math.inf
        assert both.epsilon(3e-6) == pytest.approx(1.0 + Gaussian(0.5).epsilon(2e-6))
        assert both.least_delta == 1e-6

    def test_kind_without_a_rule(self):
        class Odd(Loss):
            def epsilon(self, delta):
                return 1.0

            def group(self, size):
                return self

        with pytest.raises(PrivacyError, match="composes with others"):
            compose([Odd(), Pure(1.0)])

    @given(st.lists(every_loss, min_size=1, max_size=3))
    @settings(FIXED, max_examples=40)
    def test_worst_is_never_less(self, losses):
        assert at_least(worst(losses), losses, 1e-3)
        assert at_least(worst(losses), losses, 0.1)
        assert worst([Gaussian(0.1), Gaussian(0.3), Gaussian(0.2)]) == Gaussian(0.3)


class TestGuarantee:
    @given(guarantees())
    @settings(FIXED, max_examples=60)
    def test_json_round_trip(self, promise):
        assert Guarantee.from_json(promise.to_json()) == promise
        assert hash(Guarantee.from_json(promise.to_json())) == hash(promise)

    @pytest.mark.parametrize("public_labels", [False, True])
    def test_what_a_stream_says_survives_json(self, public_labels):
        promise = pure(1.0).for_stream(3, promises=[Assumption("as told")], public_labels=public_labels)
        assert Guarantee.from_json(promise.to_json()) == promise

    def test_per_record_survives_json(self):
        record = pure(1.0, occurrences=3).per_record()
        assert Guarantee.from_json(record.to_json()) == record
        infinite = pure(math.inf)
        assert Guarantee.from_json(infinite.to_json()) == infinite

    def test_frozen(self):
        with pytest.raises(FrozenInstanceError):
            pure(1.0).basis = "none"

    @given(guarantees())
    @settings(FIXED, max_examples=40)
    def test_covers_what_it_states(self, promise):
        epsilon, delta = promise.epsilon, promise.delta
        if 0 < epsilon < 100 and delta < 0.9:
            assert promise.covers(Budget(epsilon * (1 + 1e-9), delta * (1 + 1e-6)))
            assert not promise.covers(Budget(epsilon, 0.0)) or promise.sampler_error == 0

    def test_covers(self):
        assert pure(1.0).covers(Budget(1.0))
        assert not pure(1.0, 2.0).covers(Budget(1.5))
        assert pure(1.0, 2.0).covers([Budget(1.0), Budget(2.0)])
        assert not pure(1.0, 2.0).covers([Budget(2.0), Budget(1.0)])
        assert not pure(1.0).covers([Budget(1.0), Budget(0.5)])
        assert not no_guarantee("nothing").covers(Budget(1e6, 0.99))
        with pytest.raises(PrivacyError, match="budget"):
            pure(1.0, 2.0).covers([Budget(1.0)] * 3)

    def test_covers_another_point_of_the_curve(self):
        promise = gaussian(accounting.mu_star(1.0, 1e-5), 1e-5)
        assert promise.covers(Budget(1.0, 1e-5))
        assert not promise.covers(Budget(1.0))
        assert not promise.covers(Budget(1.0, 0.999e-5))
        assert not promise.covers(Budget(0.999, 1e-5))
        assert promise.covers(Budget(2.0, 1e-12))

    def test_sampler_error_counts_both_ways(self):
        """Within tau of the exact laws: (1 + e^epsilon) tau more delta, at the epsilon that is asked for."""
        tau = 1e-8
        promise = pure(1.0).with_sampler_error(tau / 2).with_sampler_error(tau / 2)
        assert promise.delta == pytest.approx((1 + math.e) * tau)
        assert not promise.covers(Budget(1.0))
        assert not promise.covers(Budget(1.0, 0.99 * (1 + math.e) * tau))
        assert promise.covers(Budget(1.0, 1.01 * (1 + math.e) * tau))
        assert not promise.covers(Budget(3.0, 1.01 * (1 + math.e) * tau))
        assert pure(1e4).with_sampler_error(tau).delta == 1.0

    def test_sampler_error_by_brute_force(self):
        """Randomised responses, each law moved by tau in the worst direction."""
        tau = 1e-3
        p, q = response(1.0)
        p, q = p + np.array([tau, -tau]), q + np.array([-tau, tau])
        promise = pure(1.0).with_sampler_error(tau)
        assert divergence(p, q, 1.0) == pytest.approx(promise.delta, rel=1e-12)

    def test_per_record(self):
        assert pure(1.0).per_record() is None
        record = pure(0.5, 1.0, occurrences=10).per_record()
        assert record.losses == (Pure(10.0),)  # wherever the occurrences lie
        assert record.per_record() == record
        assert not record.covers(Budget(9.9))
        assert record.covers(Budget(10.0))
        assert no_guarantee("x").for_stream(3).per_record().basis == "none"

    def test_per_record_of_a_record_at_several_learners(self):
        """Each learner with noise of its own, for its own budget: no way to lay k occurrences costs more than said."""
        epsilons, times = (0.5, 1.0, 0.2), 4
        claim = pure(*epsilons, occurrences=times, repeats="compose").per_record().epsilon
        lays = list(itertools.combinations_with_replacement(epsilons, times))
        for lay in lays:
            laws = [response(epsilon) for epsilon in lay]
            p, q = (functools.reduce(np.multiply.outer, [law[side] for law in laws]) for side in (0, 1))
            assert divergence(p.ravel(), q.ravel(), claim) <= 1e-12
        assert max(map(sum, lays)) == claim == 4.0  # all of them may lie at the learner with most to spend

    def test_per_record_on_a_promise_is_heuristic(self):
        told = (Assumption("no record is in two of the streams"),)
        promise = pure(1.0).for_stream(2, promises=told)
        record = promise.per_record()
        assert (promise.basis, record.basis) == ("proven", "heuristic")
        assert (record.promises, record.assumptions) == ((), told)
        assert record.per_record() == record
        assert "which nothing checks" in record.sentence()
        published = replace(promise, basis="published", reason="x").per_record()
        assert published.basis == "published"

    def test_per_record_sampler_error(self):
        record = pure(1.0, occurrences=3).with_sampler_error(1e-9).per_record()
        assert record.delta == pytest.approx(3e-9 * (1 + math.exp(3)))
        assert not record.covers(Budget(3.0, 0.99 * record.delta))
        assert record.covers(Budget(3.0, 1.01 * record.delta))

    def test_per_record_of_one_point(self):
        """The delta of a group of an approximate loss grows with it; what the rest was stated at stays."""
        promise = Guarantee("published", "x", (Approximate(1.0, 1e-6),), (1e-6,), occurrences=2)
        record = promise.per_record()
        assert record.epsilon == 2.0
        assert record.delta == pytest.approx(1e-6 * (1 + math.e))
        mixed = compose([Approximate(1.0, 1e-6), Gaussian(0.1)])
        record = Guarantee("published", "x", (mixed,), (3e-6,), occurrences=2).per_record()
        assert record.deltas[0] == pytest.approx(2e-6 + 1e-6 * (1 + math.e))
        assert record.epsilon < math.inf

    def test_nothing_guaranteed(self):
        assert no_guarantee("x").epsilon == math.inf
        assert no_guarantee("x").delta == 1
        assert no_guarantee("messages are raw.").sentence() == "No privacy guarantee: messages are raw."

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("basis", "sure"),
            ("observer", "nobody"),
            ("unit", "one person"),
            ("per", "year"),
            ("losses", ()),
            ("losses", (1.0,)),
            ("deltas", (0.0, 0.0)),
            ("deltas", (-1e-9,)),
            ("deltas", (math.nan,)),
            ("sampler_error", 2.0),
            ("horizon", 0),
            ("horizon", 1.5),
            ("occurrences", 0),
        ],
    )
    def test_refuses(self, field, value):
        with pytest.raises((ConfigurationError, PrivacyError)):
            replace(pure(1.0), **{field: value})

    def test_proven_needs_code_for_every_assumption(self):
        loose = Assumption("the loss is smooth")
        with pytest.raises(PrivacyError, match="Not enforced: the loss is smooth"):
            pure(1.0, assumptions=(loose,))
        assert replace(pure(1.0), basis="heuristic", assumptions=(loose,)).basis == "heuristic"

    def test_no_guarantee_has_no_losses(self):
        with pytest.raises(ConfigurationError):
            Guarantee("none", losses=(Pure(1.0),), deltas=(0.0,))


class TestWords:
    def test_one_loss(self):
        assert pure(1.0, horizon=1000).sentence() == (
            "Recorded as proven: over 1,000 steps, all other participants together, who see every message and every "
            "decision, learn about one sample of one learner at most epsilon 1."
        )

    def test_gaussian_and_record(self):
        promise = gaussian(accounting.mu_star(1.0, 1e-5), 1e-5, observer="decisions", horizon=1, occurrences=10)
        assert promise.sentence() == (
            "Recorded as proven: over 1 step, the public, who sees every decision but no message, learns about one "
            "sample of one learner at most epsilon 1 and delta 1e-05; per record, which occurs up to 10 times, epsilon "
            "14.43 and delta 1e-05."
        )

    def test_range_over_learners(self):
        promise = pure(0.5, 2.0, 1.0, unit=Unit.BATCH, observer="wiretap")
        assert promise.sentence() == (
            "Recorded as proven: over an endless horizon, an outsider who reads every message but sees no decision, "
            "learns about one common batch at most epsilon 0.5 to 2 (by learner)."
        )

    def test_record_alone(self):
        assert "about one sample of one learner, all its occurrences (up to 3) together, at most epsilon 3." in (
            pure(1.0, occurrences=3).per_record().sentence()
        )

    def test_occurs_once(self):
        assert "record" not in pure(1.0, occurrences=1).sentence()

    def test_reason(self):
        promise = replace(pure(math.inf), basis="published", reason="decisions are raw.")
        assert promise.sentence().startswith("Published: ")
        assert promise.sentence().endswith("at most epsilon infinity; decisions are raw.")

    @given(guarantees())
    @settings(FIXED, max_examples=40)
    def test_one_sentence_that_never_understates(self, promise):
        text = replace(promise, reason="", occurrences=None).sentence()
        assert text.endswith(".")
        assert "\n" not in text
        stated = text.split("epsilon ")[1].removesuffix(".").removesuffix(" (by learner)").split(" and ")[0]
        assert float(stated.split(" to ")[-1].replace("infinity", "inf")) >= promise.epsilon * (1 - 2e-9)

    def test_rounds_up(self):
        assert "epsilon 1.235." in pure(1.23401).sentence()
        assert "epsilon 1." in pure(1.0000000000000002).sentence()

    def test_explain(self):
        clipped = Assumption("gradients are clipped to 1", "Clip")
        smooth = Assumption("the loss is smooth")
        promise = pure(1.0, assumptions=(clipped,), proof="docs/privacy.md").with_sampler_error(1e-12)
        assert promise.explain().splitlines()[1:] == [
            "  assumes: gradients are clipped to 1 (enforced by Clip)",
            "  assumes: noise is within 1e-12 of its law in total variation (counted in delta)",
            "  proof: docs/privacy.md",
        ]
        heuristic = Guarantee("heuristic", "", (Pure(1.0),), (0.0,), assumptions=(smooth,))
        assert heuristic.explain().endswith("  assumes: the loss is smooth (not enforced)")
        assert no_guarantee("x").explain() == "No privacy guarantee: x."


def test_no_budget_covers_nothing():
    promise = Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,))
    for nothing in ([], 1.0, [1.0]):
        with pytest.raises(PrivacyError, match="budget"):
            promise.covers(nothing)


@pytest.mark.parametrize(
    "loss", [Pure(0.3), Gaussian(0.3), Concentrated(0.02), Approximate(0.3, 1e-7), BoundedRange((0.2,))]
)
def test_repeated_is_composition(loss):
    closed, composed = loss.repeated(7), compose([loss] * 7)
    assert type(closed) is type(composed)
    assert closed.epsilon(1e-5) == pytest.approx(composed.epsilon(1e-5), rel=1e-12)


def test_the_words_of_guarantees_on_disk_stay():
    """Ledgers and exports of deployed nodes hold them: who renames a field in Python must still read these."""
    losses = (Pure(0.5), Gaussian(0.5), Concentrated(0.1), Approximate(0.5, 1e-7), BoundedRange((0.2,)))
    written = [loss.to_json() for loss in (*losses, compose([Pure(0.5), Gaussian(0.5)]))]
    assert [sorted(one) for one in written] == [
        ["kind", "value"],
        ["kind", "mu"],
        ["kind", "rho"],
        ["delta", "kind", "value"],
        ["kind", "values"],
        ["bounded_range", "delta", "kind", "mu", "pure", "rho", "value"],
    ]
    assert [one["kind"] for one in written] == ["pure", "gaussian", "zcdp", "approximate", "bounded-range", "mixed"]
    promise = pure(1.0, assumptions=(Assumption("gradients are clipped", "Clip"),))
    assert sorted(json.loads(promise.to_json())) == [
        *("assumptions", "basis", "checked", "deltas", "horizon", "losses", "observer", "occurrences", "per"),
        *("promises", "proof", "public_arrivals", "public_labels", "reason", "repeats", "sampler_error", "unit"),
    ]
