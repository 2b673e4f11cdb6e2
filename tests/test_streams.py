"""Streams: the same samples however they are read, dealt as declared, and with the moments they promise.

Statistical tests compare with 5 standard deviations (two-sided false alarm 6e-7 each) unless they say otherwise; seeds
are fixed, so a test that passes keeps passing.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import Budget, algorithms, problems, simulate, topology
from gossamer.errors import ConfigurationError, DataError
from gossamer.privacy import Assumption, Guarantee
from gossamer.problems import Block
from gossamer.streams import (
    ArrayStream,
    Experts,
    Generated,
    Stream,
    blend,
    clusters,
    common,
    drifting_experts,
    from_arrays,
    from_file,
    from_iterators,
    hard_experts,
    heterogeneous_logistic,
    hidden_expert,
    linear_regression,
    mirrored,
    poker_hands,
    poker_label,
    random_signs,
    read_records,
    realizable_experts,
    sequence,
    smooth_cycle_logistic,
    stochastic_experts,
)

SIGMAS = 5.0
REAL_POKER = Path(__file__).parents[2] / "shared" / "data" / "poker.npz"
property_test = settings(max_examples=12, deadline=None, derandomize=True)


def numbered(records: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Records whose feature is their number, so that they can be told apart."""
    return np.arange(records, dtype=np.float32)[:, None], np.arange(records) % classes


def dealt(stream: Stream) -> list[list[int]]:
    """The record numbers that every learner sees, in order."""
    assert stream.length is not None
    return stream.read(0, stream.length).x[..., 0].astype(int).T.tolist()


# ---------------------------------------------------------------- every stream

RANDOM_ACCESS: dict[str, Callable[[], Stream]] = {
    "iid": lambda: from_arrays(*numbered(103), 4, seed=1, copies=3, passes=2),
    "by-label": lambda: from_arrays(*numbered(103), 4, "by-label", seed=1, passes=2),
    "label-skew": lambda: from_arrays(*numbered(103), 4, "label-skew", skew=0.4, seed=1, passes=3),
    "common": lambda: common(*numbered(103), batch=5, seed=1, passes=4, shuffle=True),
    "heterogeneous": lambda: heterogeneous_logistic(4, 8, 0.5, 0.5, seed=1),
    "linear": lambda: linear_regression(seed=1),
    "signs": lambda: random_signs(4, 8, seed=1),
    "cycle": lambda: smooth_cycle_logistic(4, 8, seed=1),
    "poker": lambda: poker_hands(4, seed=1),
    "head": lambda: random_signs(4, 8, seed=1).head(9000),
    "sequence": lambda: sequence(random_signs(4, 8, seed=1).head(77), random_signs(4, 8, seed=2)),
    "blend": lambda: blend(random_signs(4, 8, seed=1), random_signs(4, 8, seed=2), start=20, stop=9000, seed=3),
    "common blend": lambda: blend(linear_regression(seed=1), linear_regression(seed=2), start=9, stop=999, seed=3),
}


@pytest.mark.parametrize("name", RANDOM_ACCESS)
@property_test
@given(data=st.data())
def test_reading_does_not_depend_on_the_chunking(name: str, data: st.DataObject) -> None:
    stream = RANDOM_ACCESS[name]()
    end = min(stream.length or 14_000, 14_000)  # beyond the first page of every generator
    cuts = sorted(data.draw(st.sets(st.integers(0, end), min_size=2, max_size=5)))
    whole = RANDOM_ACCESS[name]().read(cuts[0], cuts[-1])
    pieces = [stream.read(*pair) for pair in reversed(list(itertools.pairwise(cuts)))][::-1]
    assert np.array_equal(np.concatenate([p.x for p in pieces]), whole.x)
    assert np.array_equal(np.concatenate([p.y for p in pieces]), whole.y)


@pytest.mark.parametrize("name", RANDOM_ACCESS)
def test_what_is_read_has_the_declared_form(name: str) -> None:
    stream = RANDOM_ACCESS[name]()
    block = stream.read(3, 10)
    assert stream.features is not None
    assert block.x.shape == (7, block.y.shape[1], *stream.features)
    assert stream.shared == (stream.learners is None)
    assert stream.shared or block.y.shape == (7, stream.learners)
    assert block.x.dtype == np.float32
    assert block.y.dtype in (np.int32, np.float32)
    assert block.x.flags.c_contiguous
    assert stream.read(4, 4).x.shape == (0, *block.x.shape[1:])
    assert stream.description in repr(stream)


@pytest.mark.parametrize("name", RANDOM_ACCESS)
def test_writing_into_a_block_does_not_change_the_stream(name: str) -> None:
    stream = RANDOM_ACCESS[name]()
    before = stream.read(0, 5)
    kept = before.x.copy()
    before.x[:] = -7.0
    assert np.array_equal(stream.read(0, 5).x, kept)


@pytest.mark.parametrize("name", [name for name in RANDOM_ACCESS if RANDOM_ACCESS[name]().length])
def test_reading_past_the_end_says_how_much_there_is(name: str) -> None:
    stream = RANDOM_ACCESS[name]()
    assert stream.length is not None
    with pytest.raises(DataError, match=f"has {stream.length} steps"):
        stream.read(0, stream.length + 1)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2)])
def test_ranges_that_are_none(start: int, stop: int) -> None:
    with pytest.raises(DataError, match="0 <= start <= stop"):
        random_signs(2, 2, seed=0).read(start, stop)


SEEDED: dict[str, Callable[[int], Stream]] = {
    "iid": lambda seed: from_arrays(*numbered(200), 4, seed=seed),
    "common": lambda seed: common(*numbered(200), seed=seed, shuffle=True),
    "heterogeneous": lambda seed: heterogeneous_logistic(4, 8, 0.5, 0.5, seed=seed),
    "linear": lambda seed: linear_regression(seed=seed),
    "signs": lambda seed: random_signs(4, 8, seed=seed),
    "cycle": lambda seed: smooth_cycle_logistic(4, 8, seed=seed),
    "poker": lambda seed: poker_hands(4, seed=seed),
}


@pytest.mark.parametrize("name", SEEDED)
def test_the_seed_decides(name: str) -> None:
    make = SEEDED[name]
    assert np.array_equal(make(5).read(0, 40).x, make(5).read(0, 40).x)
    assert not np.array_equal(make(5).read(0, 40).x, make(6).read(0, 40).x)
    with pytest.raises(ConfigurationError, match="seed"):
        make(-1)


# ---------------------------------------------------------------- dealing


@property_test
@given(
    records=st.integers(6, 40),
    learners=st.integers(1, 5),
    copies=st.integers(1, 3),
    passes=st.integers(1, 3),
    shuffle=st.booleans(),
    partition=st.sampled_from(["iid", "by-label", "label-skew"]),
)
def test_no_record_occurs_more_often_than_declared(records, learners, copies, passes, shuffle, partition):
    skew = {"skew": 0.5, "rest": "all"} if partition == "label-skew" else {}
    options = {"copies": copies, "passes": passes, "shuffle": shuffle, "seed": 0, **skew}
    options["public_labels"] = partition != "iid"
    stream = from_arrays(*numbered(records), learners, partition, **options)
    seen = Counter(itertools.chain.from_iterable(dealt(stream)))
    assert max(seen.values()) <= stream.occurrences == copies * passes
    if partition == "iid" and records * copies % learners == 0:
        assert set(seen.values()) == {copies * passes}  # nothing is left over, so the bound is attained
        assert len(seen) == records


@property_test
@given(
    learners=st.integers(2, 5),
    copies=st.integers(1, 3),
    passes=st.integers(1, 3),
    shuffle=st.booleans(),
    partition=st.sampled_from(["iid", "by-label", "label-skew"]),
    record=st.integers(0, 39),
)
def test_a_replaced_record_changes_no_more_samples_than_declared(learners, copies, passes, shuffle, partition, record):
    """Whatever changes of it where the deal is even; where labels are public, all but its label."""
    skew = {"skew": 0.5} if partition == "label-skew" else {}
    options = {"copies": copies, "passes": passes, "shuffle": shuffle, "seed": 0, **skew}
    x, y = numbered(40)
    other_x, other_y = x.copy(), y.copy()
    other_x[record] = -1
    other_y[record] = y[record] if skew or partition == "by-label" else 1 - y[record]
    options["public_labels"] = partition != "iid"
    one, other = (from_arrays(*records, learners, partition, **options) for records in ((x, y), (other_x, other_y)))
    assert 1 <= differences(one, other) <= one.occurrences
    assert one.public_labels == (partition != "iid")
    assert one.promises == ()


def differences(one: Stream, other: Stream) -> int:
    assert one.length is not None
    assert one.length == other.length
    ours, theirs = one.read(0, one.length), other.read(0, one.length)
    return int((np.any(ours.x != theirs.x, axis=-1) | (ours.y != theirs.y)).sum())


@pytest.mark.parametrize(("partition", "options"), [("by-label", {}), ("label-skew", {"skew": 0.5})])
def test_a_deal_that_looks_at_private_labels_claims_nothing_per_record(partition, options) -> None:
    """One other label moves records to other learners: many more samples differ than the record has."""
    (x, y), changed = numbered(400, classes=2), numbered(400, classes=2)[1]
    changed[0] = 1 - y[0]
    one, other = (from_arrays(x, labels, 4, partition, seed=0, **options) for labels in (y, changed))
    steps = min(one.length, other.length)
    assert differences(one.head(steps), other.head(steps)) > 50
    assert one.occurrences is None
    for stream in (one.head(9), sequence(one, one), mirrored(one), blend(one, one, start=1, stop=9, seed=0)):
        assert stream.occurrences is None
    algorithm = algorithms.pd_ogd(problems.Linear(1), topology.ring(4), budget=Budget(1.0), clip=1.0, step=1.0)
    promise = simulate(algorithm, one, 9, seed=0).guarantee
    assert promise.per_record() is None
    assert "nothing is claimed per record" in promise.sentence()
    public = from_arrays(x, y, 4, partition, seed=0, passes=3, public_labels=True, **options)
    promise = simulate(algorithm, public, 9, seed=0).guarantee
    assert "per record, which occurs up to 3 times and whose label is public, epsilon 3;" in promise.sentence()
    assert promise.per_record().basis == "proven"


@property_test
@given(records=st.integers(2, 30), batch=st.integers(1, 4), passes=st.integers(1, 3), shuffle=st.booleans())
def test_common_batches_use_each_record_once_per_pass(records, batch, passes, shuffle):
    batch = min(batch, records)
    stream = common(*numbered(records), batch, seed=0, passes=passes, shuffle=shuffle)
    played = stream.read(0, stream.length).x[..., 0].reshape(passes, -1)
    assert played.shape[1] == records // batch * batch
    assert all(len(set(one.tolist())) == len(one) for one in played)
    assert stream.occurrences == passes


def test_features_and_labels_stay_together() -> None:
    x, y = numbered(90, classes=7)
    for partition in ("iid", "by-label"):
        block = from_arrays(x, y, 4, partition, seed=0, copies=2, passes=2).read(0, 20)
        assert np.array_equal(block.x[..., 0] % 7, block.y)


def test_iid_is_a_random_even_deal() -> None:
    shares = dealt(from_arrays(*numbered(4000), 4, seed=0))
    assert [len(share) for share in shares] == [1000] * 4
    for share in shares:  # the mean of 1000 of 4000 numbers without replacement
        deviation = np.sqrt(4000**2 / 12 / 1000 * 0.75)
        assert abs(np.mean(share) - 1999.5) < SIGMAS * deviation


def test_order_is_kept_without_shuffling() -> None:
    stream = from_arrays(*numbered(6), 2, seed=0, passes=2, shuffle=False)
    assert dealt(stream) == [[0, 2, 4, 0, 2, 4], [1, 3, 5, 1, 3, 5]]
    assert dealt(common(*numbered(5), batch=2)) == [[0, 2], [1, 3]]


def test_every_pass_has_a_new_order() -> None:
    for share in dealt(from_arrays(*numbered(120), 3, seed=0, passes=3)):
        first, second, third = share[:40], share[40:80], share[80:]
        assert sorted(first) == sorted(second) == sorted(third)
        assert first != second != third != first


def test_larger_shares_are_used_beyond_the_smallest() -> None:
    y = np.array([0] * 30 + [1] * 10)
    shares = dealt(from_arrays(np.arange(40.0)[:, None], y, 2, "by-label", seed=0, passes=2))
    assert [len(share) for share in shares] == [20, 20]
    assert len(set(shares[0])) == 20  # of its 30 records, none twice yet
    assert Counter(shares[1]) == dict.fromkeys(range(30, 40), 2)


def test_by_label_is_the_mushrooms_of_paper_003() -> None:
    y = np.array([0] * 4208 + [1] * 3916)
    labels = from_arrays(np.zeros((8124, 1)), y, 5, "by-label", seed=0).read(0, 1402).y
    assert [sorted(set(column)) for column in labels.T.tolist()] == [[0], [0], [0], [1], [1]]


def test_by_label_with_more_classes_than_learners() -> None:
    labels = from_arrays(*numbered(500, classes=10), 3, "by-label", seed=0).read(0, 150).y
    for learner in range(3):
        assert set(labels[:, learner].tolist()) == {c for c in range(10) if c % 3 == learner}


def test_label_skew_of_paper_003() -> None:
    labels = from_arrays(*numbered(500, classes=5), 5, "label-skew", skew=0.4, seed=0).read(0, 100).y
    counts = np.stack([np.bincount(labels[:, learner], minlength=5) for learner in range(5)])
    assert np.array_equal(counts, np.full((5, 5), 15) + 25 * np.eye(5, dtype=int))


def test_label_skew_of_paper_001() -> None:
    x, y = numbered(6000, classes=10)
    labels = from_arrays(x, y, 10, "label-skew", skew=0.5, rest="all", seed=0).read(0, 600).y
    counts = np.stack([np.bincount(labels[:, learner], minlength=10) for learner in range(10)])
    assert np.array_equal(counts, np.full((10, 10), 30) + 300 * np.eye(10, dtype=int))


@property_test
@given(skew=st.floats(0, 1), learners=st.integers(2, 6), rest=st.sampled_from(["others", "all"]))
def test_label_skew_keeps_every_record_and_rounds_shares(skew, learners, rest):
    from gossamer.streams.partition import shares_of

    labels = np.arange(6 * 37) % 6
    shares = shares_of("label-skew", labels, learners, skew, rest)
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(labels)))
    own = [int((labels[shares[c % learners]] == c).sum()) for c in range(6)]
    extra = (1 - skew) * 37 / learners if rest == "all" else 0
    assert all(abs(count - skew * 37 - extra) <= 1.5 for count in own)


def test_regression_targets_stay_floats() -> None:
    assert from_arrays(np.eye(4), np.linspace(0, 1, 4), 2, seed=0).read(0, 2).y.dtype == np.float32
    assert from_arrays(np.eye(4), np.array([True, False] * 2), 2, seed=0).read(0, 2).y.dtype == np.int32


def test_images_keep_their_shape() -> None:
    stream = from_arrays(np.zeros((8, 5, 4, 3), np.uint8), np.zeros(8, int), 2, seed=0)
    assert stream.read(0, 3).x.shape == (3, 2, 5, 4, 3)


SECRET = 8.1546e37


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        ([[1.0, 2.0], [3.0, np.nan], [1.0, 1.0]], [0, 1, 1], "x: NaN in row 1, column 1"),
        ([[1.0, 2.0], [-np.inf, 3.0], [1.0, 1.0]], [0, 1, 1], "x: infinite .* in row 1, column 0"),
        ([[1.0], [SECRET * 1e9], [1.0]], [0, 1, 1], "infinite .or beyond float32. in row 1, column 0"),
        (np.full((3, 2, 2), np.nan), [0, 1, 1], r"x: NaN in row 0, column \(0, 0\)"),
        ([[1.0], [2.0], [3.0]], [0.5, np.nan, 1.0], "y: NaN in row 1"),
        ([[1.0], [2.0], [3.0]], [0, 1], "x has 3 records and y has 2"),
        ([[1.0], [2.0], [3.0]], [0, 1, 2**40], "32 bits in row 2"),
        ([[1.0], [2.0], [3.0]], [[0], [1], [2]], "y: 2 axes"),
        ([1.0, 2.0, 3.0], [0, 1, 1], "x: 1 axes"),
        (np.zeros((0, 2)), [], "x: empty"),
        (np.zeros((3, 0)), [0, 1, 1], "x: empty"),
        ([["a"], ["b"], ["c"]], [0, 1, 1], "x: not numbers"),
        ([[1.0], [2.0, 3.0], [4.0]], [0, 1, 1], "rows of different lengths"),
        ([[1.0]], [0], "1 records in 1 copies cannot serve 2 learners"),
    ],
)
def test_records_that_cannot_be_used(x: object, y: object, text: str) -> None:
    with pytest.raises(DataError, match=text) as error:
        from_arrays(x, y, 2, seed=0)
    assert "8154" not in str(error.value)
    assert "8.15" not in str(error.value)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("learners", {"learners": 0}),
        ("learners", {"learners": 2.0}),
        ("copies", {"copies": 0}),
        ("passes", {"passes": True}),
        ("partition", {"partition": "random"}),
        ("skew", {"partition": "label-skew"}),
        ("skew", {"partition": "label-skew", "skew": 1.5}),
        ("skew", {"skew": 0.5}),
        ("rest", {"partition": "label-skew", "skew": 0.5, "rest": "none"}),
        ("rest", {"partition": "label-skew", "skew": 0.5, "learners": 1}),
        ("partition", {"partition": "by-label", "y": np.linspace(0, 1, 12)}),
        ("public_labels", {"public_labels": True}),
    ],
)
def test_settings_of_from_arrays(field: str, options: dict) -> None:
    x, y = numbered(12)
    with pytest.raises(ConfigurationError, match=f"^{field}: "):
        from_arrays(**({"x": x, "y": y, "learners": 2, "seed": 0} | options))


def test_a_learner_without_records_is_refused() -> None:
    with pytest.raises(DataError, match="learner 3 of 5 gets no records"):
        from_arrays(*numbered(30), 5, "label-skew", skew=1.0, rest="all", seed=0)


def test_settings_of_common() -> None:
    with pytest.raises(DataError, match="4 records do not fill one batch of 5"):
        common(*numbered(4), batch=5)
    with pytest.raises(ConfigurationError, match="seed"):
        common(*numbered(4), shuffle=True)
    assert not common(numbered(4)[0]).read(0, 4).y.any()


# ---------------------------------------------------------------- drift


def test_sequence_is_one_after_the_other() -> None:
    old, new = random_signs(3, 4, seed=0), random_signs(3, 4, seed=1)
    stream = sequence(old.head(50), new.head(30), old)
    assert stream.length is None
    assert stream.occurrences == 3
    assert np.array_equal(stream.read(48, 52).x, np.concatenate([old.read(48, 50).x, new.read(0, 2).x]))
    assert np.array_equal(stream.read(80, 90).x, old.read(0, 10).x)
    assert sequence(old.head(50), new.head(30)).length == 80


def test_drift_between_the_same_records_adds_up_occurrences() -> None:
    first, second = from_arrays(*numbered(40), 4, seed=0), from_arrays(*numbered(40), 4, seed=1)
    for stream in (sequence(first, second), blend(first, second, start=0, stop=10, seed=0)):
        seen = Counter(itertools.chain.from_iterable(dealt(stream)))
        assert max(seen.values()) == stream.occurrences == 2
    live = from_iterators([iter([])] * 4)
    assert sequence(first, live).occurrences is None


def test_disjoint_parts_are_a_promise_on_which_claims_per_record_rest() -> None:
    first, second = from_arrays(*numbered(40), 4, seed=0), from_arrays(*numbered(40), 4, seed=1)
    algorithm = algorithms.pd_ogd(problems.Linear(1), topology.ring(4), budget=Budget(1.0), clip=1.0, step=1.0)
    if_so = "per record, epsilon 1, if no record is in two of the streams, which nothing checks"
    told = (sequence(first, second, disjoint=True), blend(first, second, start=0, stop=9, seed=0, disjoint=True))
    for stream in (*told, told[0].head(15), sequence(told[0], random_signs(4, 1, seed=0), disjoint=True)):
        assert stream.occurrences == 1
        promise = simulate(algorithm, stream, 10, seed=0).guarantee
        assert promise.basis == "proven"  # one occurrence rests on nothing of the kind
        assert if_so in promise.sentence()
        assert "assumes, per record: no record is in two of the streams (not enforced)" in promise.explain()
        record = promise.per_record()
        assert record.basis == "heuristic"
        assert record.assumptions[-1] == Assumption("no record is in two of the streams")
        assert Guarantee.from_json(promise.to_json()) == promise
    assert mirrored(told[0]).promises == told[0].promises
    assert sequence(first, second).promises == ()


class Own(Stream):
    """Somebody's own stream, which says what it likes."""

    learners, length, shared, occurrences, description, features = 4, None, False, 1, "mine", (1,)

    def _read(self, start: int, stop: int) -> Block:
        return Block(np.ones((stop - start, 4, 1), np.float32), np.zeros((stop - start, 4), np.float32))


def test_what_a_stream_from_outside_says_of_its_records_is_a_promise() -> None:
    def draw(rng: np.random.Generator, steps: int) -> tuple[np.ndarray, ...]:
        return np.ones((steps, 4, 1), np.float32), np.zeros((steps, 4), np.float32)

    x, y = numbered(20)
    played = ArrayStream(x, y, np.arange(20).reshape(5, 4), learners=4, occurrences=1, description="mine")
    drawn = Generated(draw, learners=4, features=(1,), seed=0, description="mine")
    losses = Experts(lambda rng, steps: np.ones((steps, 4, 2)), learners=4, experts=2, seed=0, description="mine")
    for stream in (Own(), Own().head(5), played, drawn, losses, mirrored(drawn)):
        assert [promise.claim for promise in stream.promises] == ["no record changes more samples than the stream says"]
    ours = (from_arrays(x, y, 4, seed=0), common(x, y), poker_hands(4, seed=0), *(make() for make in ALIKE.values()))
    assert {stream.promises for stream in ours} == {()}


def test_a_promise_cannot_be_switched_off():
    """Whoever writes a stream, or changes what one says about records, is believed in nothing."""

    class Silent(ArrayStream):
        promises = ()

        def _read(self, start, stop):
            return Block(np.repeat(self._x[:1], stop - start, axis=0)[:, None], np.zeros((stop - start, 1), np.int32))

    x, y = numbered(12)
    dealt = from_arrays(x, y, 2, "by-label", seed=0)
    lying = Silent(x, y, np.zeros((6, 1), np.int64), learners=1, occurrences=1, description="one record, always")
    lying.promises = ()
    promise = simulate(
        algorithms.pd_ogd(problems.Linear(1), topology.isolated(1), budget=Budget(1.0), clip=1.0, step=0.1),
        lying,
        4,
        seed=0,
    ).guarantee.per_record()
    assert promise.basis == "heuristic"
    assert lying.head(3).unenforced == lying.unenforced != ()
    for name, value in (("occurrences", 1), ("promises", ()), ("public_labels", True)):
        with pytest.raises(ConfigurationError, match="what Gossamer's own streams say themselves"):
            setattr(dealt, name, value)


ALIKE = {
    "hard": lambda: hard_experts(5, 8, seed=1),
    "drifting": lambda: drifting_experts(5, 8, period=7, seed=1),
    "stochastic": lambda: stochastic_experts(5, 8, seed=1),
    "realizable": lambda: realizable_experts(5, 8, seed=1),
    "hidden": lambda: hidden_expert(5, 8, seed=1),
    "heterogeneous": lambda: heterogeneous_logistic(5, 8, 0.5, 0.5, seed=1),
    "signs": lambda: random_signs(5, 8, seed=1),
    "cycle": lambda: smooth_cycle_logistic(5, 8, seed=1),
    "poker": lambda: poker_hands(5, seed=1),
    "clusters": lambda: clusters(5, 8, 2, seed=1),
}


@pytest.mark.parametrize("name", sorted(set(ALIKE) - {"hidden"}))  # whose vectors are all the same
def test_a_vector_that_several_learners_see_occurs_at_each_of_them(name: str) -> None:
    stream = ALIKE[name]()
    x = stream.read(0, 500).x
    together = int((x == x[:, :1]).all(axis=(0, 2)).sum())  # learners whose vectors are always those of the first
    assert stream.occurrences == together == (5 if name in ("hard", "drifting") else 1)


def test_blend_probability_rises_linearly() -> None:
    """At a quarter, half and three quarters of the way; the squared law, as a wrong schedule, must be rejected."""
    zeros = from_arrays(np.zeros((200_000, 1)), np.zeros(200_000, int), 200, seed=0)
    ones = from_arrays(np.ones((200_000, 1)), np.ones(200_000, int), 200, seed=0)
    block = blend(zeros, ones, start=100, stop=900, seed=4).read(0, 1000)
    assert np.array_equal(block.x[..., 0], block.y)
    assert not block.y[:101].any()
    assert block.y[900:].all()
    share = np.clip((np.arange(1000) - 100) / 800, 0, 1)
    for centre in (300, 500, 700):
        window = slice(centre - 50, centre + 50)
        count, p = block.y[window].sum(), share[window]
        deviation = np.sqrt(200 * (p * (1 - p)).sum())
        assert abs(count - 200 * p.sum()) < SIGMAS * deviation
        assert abs(count - 200 * (p**2).sum()) > SIGMAS * deviation
    mixed = block.y[500]
    assert 0 < mixed.sum() < 200  # every learner has its own coin


def test_streams_that_do_not_fit_together() -> None:
    two, three = random_signs(2, 4, seed=0).head(5), random_signs(3, 4, seed=0)
    with pytest.raises(DataError, match="stream 0 serves 2 learners and stream 1 serves 3 learners"):
        sequence(two, three)
    with pytest.raises(DataError, match="all learners alike"):
        sequence(two, linear_regression(4, seed=0))
    with pytest.raises(DataError, match=r"features \(4,\) and stream 1 has \(5,\)"):
        sequence(two, random_signs(2, 5, seed=0))
    with pytest.raises(ConfigurationError, match="head"):
        sequence(random_signs(2, 4, seed=0), two)
    with pytest.raises(DataError, match="labels of different kinds: float32 and int32"):
        sequence(two, smooth_cycle_logistic(2, 4, seed=0)).read(0, 10)
    with pytest.raises(ConfigurationError, match=r"^stop: "):
        blend(three, three, start=5, stop=5, seed=0)
    with pytest.raises(DataError, match="first 6 steps were asked for, and the stream has 5"):
        two.head(6)


# ---------------------------------------------------------------- generators


def close(values: np.ndarray, mean: float, deviation: float) -> bool:
    """Whether the average of independent values with this deviation is where it should be."""
    return bool(abs(values.mean() - mean) < SIGMAS * deviation / np.sqrt(values.size))


def test_heterogeneous_logistic_labels_and_spread() -> None:
    stream = heterogeneous_logistic(3, 6, 0.1, 0.1, seed=0)
    block = stream.read(0, 20_000)
    margin = np.einsum("snd,nd->sn", block.x.astype(float), stream.truth[:, :-1]) + stream.truth[:, -1]
    clear = np.abs(margin) > 1e-4
    assert np.array_equal((margin > 0)[clear], block.y[clear])
    for j in range(6):  # the variance of n normal values has the relative deviation sqrt(2/n)
        ratio = block.x[..., j].var(axis=0) * (j + 1) ** 1.2
        assert (np.abs(ratio - 1) < SIGMAS * np.sqrt(2 / 20_000)).all()


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (0.1, 2.0), (1.0, 0.25)])
def test_heterogeneity_is_the_covariance_between_coordinates(alpha: float, beta: float) -> None:
    stream = heterogeneous_logistic(20_000, 2, alpha, beta, seed=0)
    w1, w2, b = stream.truth.T.astype(float)
    x1, x2 = stream.read(0, 1).x[0].T.astype(float)
    spread = np.sqrt((1 + alpha) ** 2 + alpha**2)
    assert close(w1 * w2, alpha, spread)
    assert close(w1 * b, alpha, spread)
    assert close(w1**2, 1 + alpha, np.sqrt(2) * (1 + alpha))
    variances = 1 + beta + 1.0, 1 + beta + 2**-1.2
    assert close(x1 * x2, beta, np.sqrt(variances[0] * variances[1] + beta**2))
    assert close(x2**2, variances[1], np.sqrt(2) * variances[1])


@pytest.mark.parametrize("name", ["heterogeneous", "linear", "cycle"])
def test_generated_samples_never_repeat(name: str) -> None:
    stream = RANDOM_ACCESS[name]()
    x = stream.read(0, 30_000).x  # several pages
    samples_seen = x.reshape(-1, x.shape[-1])
    assert stream.occurrences == 1
    assert len(np.unique(samples_seen[:, :4], axis=0)) == len(samples_seen)


def test_linear_regression_moments() -> None:
    stream = linear_regression(seed=3)
    block = stream.read(0, 50_000)
    x, rho = block.x[:, 0].astype(float), block.y[:, 0] - block.x[:, 0].astype(float) @ stream.truth
    assert np.abs(x).max() <= 0.5
    assert close(x, 0.0, np.sqrt(1 / 12))
    assert close(x**2, 1 / 12, np.sqrt(1 / 180))
    assert close(rho, 0.0, np.sqrt(0.2))
    assert close(rho**2, 0.2, np.sqrt(2) * 0.2)
    assert np.linalg.norm(rho @ x / len(x)) < 0.02  # the truth is the least-squares solution
    many = np.concatenate([linear_regression(dim=500, seed=seed).truth for seed in range(20)])
    assert close(many, 0.0, 1.0)
    assert close(many**2, 1.0, np.sqrt(2))


def test_random_signs_moments() -> None:
    x = random_signs(3, 16, seed=0).read(0, 20_000).x
    assert set(np.unique(x).tolist()) == {-0.25, 0.25}
    signs = x.astype(float) * 4
    assert close(signs, 0.0, 1.0)
    assert close(signs[:, 0] * signs[:, 1], 0.0, 1.0)  # learners are independent
    assert close(signs[1:] * signs[:-1], 0.0, 1.0)  # so are steps


def test_smooth_cycle_is_smooth_and_calibrated() -> None:
    stream = smooth_cycle_logistic(12, 10, seed=0)
    truth = stream.truth.astype(float)
    # Around a circle, second differences are -2(1 - cos(2 pi/n)) times the deviation from the centre.
    bend = np.roll(truth, 1, axis=0) + np.roll(truth, -1, axis=0) - 2 * truth
    assert np.allclose(bend, -2 * (1 - np.cos(np.pi / 6)) * (truth - truth.mean(axis=0)), atol=1e-5)
    block = stream.read(0, 10_000)
    assert np.allclose(np.linalg.norm(block.x, axis=-1), 1.0, atol=1e-6)
    margin = np.einsum("snd,nd->sn", block.x.astype(float), truth)
    p = 1 / (1 + np.exp(-margin))
    for weight in (np.ones_like(p), margin):  # level and slope of the logistic model
        deviation = np.sqrt((p * (1 - p) * weight**2).sum())
        assert abs(((block.y - p) * weight).sum()) < SIGMAS * deviation
    assert abs(((block.y - 1 / (1 + np.exp(-0.9 * margin))) * margin).sum()) > SIGMAS * deviation


@pytest.mark.parametrize(
    "make",
    [
        lambda: heterogeneous_logistic(0, 3, 0.1, 0.1, seed=0),
        lambda: heterogeneous_logistic(2, 0, 0.1, 0.1, seed=0),
        lambda: heterogeneous_logistic(2, 3, -0.1, 0.1, seed=0),
        lambda: heterogeneous_logistic(2, 3, 0.1, float("nan"), seed=0),
        lambda: linear_regression(0, seed=0),
        lambda: random_signs(2, 0, seed=0),
        lambda: smooth_cycle_logistic(-1, 2, seed=0),
        lambda: poker_hands(0, seed=0),
    ],
)
def test_settings_of_generators(make: Callable[[], Stream]) -> None:
    with pytest.raises(ConfigurationError):
        make()


# ---------------------------------------------------------------- poker

HANDS_PER_CLASS = (1302540, 1098240, 123552, 54912, 10200, 5108, 3744, 624, 36, 4)


@pytest.mark.parametrize(
    ("cards", "label"),
    [
        ("1-2 2-4 3-6 4-8 1-10", 0),
        ("1-13 2-1 3-2 4-3 1-4", 0),  # around the corner is no straight
        ("1-2 2-2 3-6 4-8 1-10", 1),
        ("1-2 2-2 3-6 4-6 1-10", 2),
        ("1-2 2-2 3-2 4-6 1-10", 3),
        ("3-3 2-1 4-2 4-5 1-4", 4),
        ("3-12 2-1 4-10 4-13 1-11", 4),
        ("2-2 2-4 2-6 2-8 2-10", 5),
        ("1-2 2-2 3-2 4-6 1-6", 6),
        ("1-2 2-2 3-2 4-2 1-10", 7),
        ("4-1 4-2 4-3 4-4 4-5", 8),
        ("4-9 4-10 4-11 4-12 4-13", 8),
        ("3-10 3-12 3-1 3-11 3-13", 9),
    ],
)
def test_known_hands(cards: str, label: int) -> None:
    hand = [int(number) for card in cards.split() for number in card.split("-")]
    assert poker_label(hand) == label


def test_every_hand_there_is_has_its_class() -> None:
    decks = np.fromiter(
        itertools.chain.from_iterable(itertools.combinations(range(52), 5)), np.int8, 5 * sum(HANDS_PER_CLASS)
    ).reshape(-1, 5)
    hands = np.stack([decks // 13 + 1, decks % 13 + 1], axis=-1).reshape(-1, 10)
    assert tuple(np.bincount(poker_label(hands)).tolist()) == HANDS_PER_CLASS


def test_random_hands_are_uniform() -> None:
    """Classes and cards against their exact frequencies; chi-square tests with a false alarm of 1e-6 each."""
    from scipy.stats import chi2

    block = poker_hands(3, seed=0).read(0, 40_000)
    cards = (block.x[..., 0::2].astype(int) - 1) * 13 + block.x[..., 1::2].astype(int) - 1
    cards = cards.reshape(-1, 5)
    assert all(len(set(hand)) == 5 for hand in cards[:2000].tolist())
    assert np.array_equal(np.sort(cards, axis=1)[:, 1:] > np.sort(cards, axis=1)[:, :-1], np.full((120_000, 4), True))
    for place in range(5):
        counts = np.bincount(cards[:, place], minlength=52)
        assert ((counts - 120_000 / 52) ** 2 / (120_000 / 52)).sum() < chi2.isf(1e-6, 51)
    counts = np.bincount(block.y.ravel(), minlength=10)
    expected = 120_000 * np.array(HANDS_PER_CLASS) / sum(HANDS_PER_CLASS)
    merged = [np.append(array[:7], array[7:].sum()) for array in (counts, expected)]
    assert ((merged[0] - merged[1]) ** 2 / merged[1]).sum() < chi2.isf(1e-6, 7)
    assert np.array_equal(poker_hands(3, seed=0, scaled=True).read(0, 9).x, block.x[:9] / np.float32(13))


@pytest.mark.skipif(not REAL_POKER.exists(), reason=f"no {REAL_POKER}: put UCI's data there, docs/streams-and-data.md")
def test_labels_agree_with_the_uci_file() -> None:
    with np.load(REAL_POKER) as real:
        for part in ("train", "test"):
            assert np.array_equal(poker_label(real[f"x_{part}"]), real[f"y_{part}"])


def test_cards_of_the_wrong_shape() -> None:
    with pytest.raises(DataError, match="last axis needs 10 numbers"):
        poker_label([[1, 2, 3]])


# ---------------------------------------------------------------- files


def write(folder: Path, kind: str, x: np.ndarray, y: np.ndarray) -> Path:
    import pandas

    path = folder / f"data.{kind}"
    frame = pandas.DataFrame({"a": x[:, 0], "target": y, "b": x[:, 1]})
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    else:
        np.savez(path, x=x, target=y)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("labels", [np.arange(60) % 3, np.arange(60) / 7])
def test_files_read_as_the_arrays_they_were(tmp_path: Path, kind: str, labels: np.ndarray) -> None:
    x = np.random.default_rng(0).standard_normal((60, 2)).astype(np.float32)
    path = write(tmp_path, kind, x, labels)
    from_disk = from_file(path, 4, label="target", seed=3, passes=2).read(0, 30)
    in_memory = from_arrays(x, labels, 4, seed=3, passes=2).read(0, 30)
    assert np.allclose(from_disk.x, in_memory.x, rtol=1e-6)
    assert np.allclose(from_disk.y, in_memory.y, rtol=1e-6)
    assert from_disk.y.dtype == in_memory.y.dtype


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_unknown_columns_and_missing_files(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind, np.zeros((4, 2)), np.arange(4))
    with pytest.raises(DataError, match=r"no (column|key) 'targe'; did you mean 'target'\?"):
        read_records(path, "targe")
    with pytest.raises(DataError, match="no such file"):
        read_records(tmp_path / f"other.{kind}")
    broken = tmp_path / f"broken.{kind}"
    broken.write_bytes(b"\xff\xfe\x00 8.1546")
    with pytest.raises(DataError, match="not") as error:
        read_records(broken)
    assert "8.15" not in str(error.value)
    with pytest.raises(ConfigurationError, match="path"):
        read_records(tmp_path / "data.xlsx")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a,y\n1,0\n8154x,1\n", "row 2, column 'a' is not a number"),
        ("a,y\n1,0\n,1\n", "row 2, column 'a' is empty"),
        ("a,y\n1,0\n8154,inf\n", "row 2, column 'y' is infinite"),
        ("a,y\n1,0\nnan,8154\n", "row 2, column 'a' is missing or NaN"),
        ("a,y\n1,0\n8154,1,2\n", "row 2 has 3 cells, and the header has 2"),
        ("a,y\n1,0,3\n8154,1,2\n", "row 1 has 3 cells, and the header has 2"),
        ("8154,1\n8154,0\n", "no header"),
        ("a,y\n", "empty"),
        ("", "no column 'y'.*nothing"),
        ("y\n0\n", "no features"),
    ],
)
def test_csv_faults_say_where(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=fault) as error:
        from_file(path, 1, seed=0)
    assert "8154" not in str(error.value)


def test_csv_may_have_quotes_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text('"a, b", y\n"1.5",0\n\n2.5,1\n')
    x, y = read_records(path)
    assert x.tolist() == [[1.5], [2.5]]
    assert y.tolist() == [0, 1]


def test_parquet_faults_say_where(tmp_path: Path) -> None:
    import pandas

    path = tmp_path / "data.parquet"
    pandas.DataFrame({"a": ["8154", "x"], "y": [0, 1]}).to_parquet(path)
    with pytest.raises(DataError, match=r"column 'a' holds .*string, not numbers") as error:
        read_records(path)
    assert "8154" not in str(error.value)
    pandas.DataFrame({"a": [8154.0, None], "y": [0, 1]}).to_parquet(path)
    with pytest.raises(DataError, match="row 2, column 'a' is missing or NaN"):
        read_records(path)
    pandas.DataFrame({"a": [], "y": []}, dtype=float).to_parquet(path)
    with pytest.raises(DataError, match="empty"):
        read_records(path)


# ---------------------------------------------------------------- live


def samples(learner: int, count: int):
    return (([learner, step], step % 2) for step in range(count))


def test_live_samples_arrive_in_order() -> None:
    stream = from_iterators(samples(learner, 10) for learner in range(3))
    assert (stream.learners, stream.length, stream.occurrences, stream.features) == (3, None, None, None)
    assert stream.read(0, 0).x.shape[:2] == (0, 3)
    block = stream.read(0, 4)
    assert block.x[:, :, 0].tolist() == [[0, 1, 2]] * 4
    assert block.y.tolist() == [[0] * 3, [1] * 3] * 2
    assert stream.features == (2,)
    assert stream.read(6, 8).x[:, 0, 1].tolist() == [6, 7]  # steps 4 and 5 are dropped
    with pytest.raises(DataError, match="only goes forward: step 8 is next"):
        stream.read(7, 9)
    assert stream.read(8, 9).x[0, 0, 1] == 8


def test_live_stream_ends_with_its_shortest_iterator() -> None:
    stream = from_iterators([samples(0, 10), samples(1, 6)])
    stream.read(0, 4)
    with pytest.raises(DataError, match="learner 1 has no more samples: the stream has 6 whole steps"):
        stream.read(4, 9)
    assert stream.length == 6
    assert stream.read(4, 6).x[:, 1, 1].tolist() == [4, 5]  # what had arrived is not lost
    with pytest.raises(DataError, match="the stream has 6 steps"):
        stream.read(6, 7)


@pytest.mark.parametrize(
    ("sample", "fault"),
    [
        (([1.0, np.nan], 0), "learner 1, step 1: NaN in feature 1"),
        (([np.inf, 1.0], 0), "learner 1, step 1: infinite .* in feature 0"),
        (([8154.0], 0), r"learner 1, step 1: features of shape \(1,\); expected \(2,\)"),
        (([8154.0, 1.0], 0.5), "learner 1, step 1: a floating-point label"),
        (([8154.0, 1.0], [0]), "learner 1, step 1: a label of shape"),
        (([8154.0, "8154"], 0), "learner 1, step 1: not numbers"),
        (([8154.0, [8154.0]], 0), "learner 1, step 1: rows of different lengths"),
        (([8154.0, 1.0], 2**40), "learner 1, step 1, label: .* 32 bits"),
        (([], 0), "learner 1, step 1: empty"),
        (8154.0, "learner 1, step 1: a sample must be a pair"),
    ],
)
def test_live_faults_say_where_and_end_the_stream(sample: object, fault: str) -> None:
    good = ([1.0, 2.0], 1)
    stream = from_iterators([[good] * 3, [good, sample, good]])
    with pytest.raises(DataError, match=fault) as error:
        stream.read(0, 3)
    assert "8154" not in str(error.value)
    assert stream.length == 1
    assert stream.read(0, 1).y.tolist() == [[1, 1]]


def test_live_streams_need_learners() -> None:
    with pytest.raises(ConfigurationError, match="iterators"):
        from_iterators([])


def test_clusters_have_their_centres_and_one_class_for_each_learner() -> None:
    """Means of 4,000 samples; half and twice the distance must be rejected."""
    stream = clusters(6, 5, 3, seed=2, apart=2.0)
    x, y = stream.read(0, 2000)
    assert (y == np.arange(6) % 3).all()
    np.testing.assert_allclose(stream.truth @ stream.truth.T, 4.0 * np.eye(3), atol=1e-5)
    off = np.abs([x[y == kind].mean(axis=0) - stream.truth[kind] for kind in range(3)])
    assert off.max() < SIGMAS / np.sqrt(4000)
    for wrong in (0.5, 2.0):
        assert np.abs(x[y == 0].mean(axis=0) - wrong * stream.truth[0]).max() > SIGMAS / np.sqrt(4000)
    for classes in (1, 6, 7):
        with pytest.raises(ConfigurationError, match="classes"):
            clusters(6, 5, classes, seed=0)


def test_programs_cut_records_in_order_out_where_they_lie() -> None:
    """To the last bit what the host reads, at the last step too, with records left over and blocks without steps."""
    x, y = np.random.default_rng(0).normal(size=(11, 2)).astype(np.float32), np.arange(11)
    for stream in (from_arrays(x, y, 3, seed=0, shuffle=False), common(x, y, batch=2)):
        feed, length = stream.feed(), stream.length
        assert feed is not None
        assert length is not None
        assert feed.exact
        for start, stop in ((0, 2), (length - 2, length), (length - 1, length), (1, 1)):
            found = feed.samples(feed.ahead(jnp.uint32(start), stop - start))
            for mine, read in zip(found, stream.read(start, stop), strict=True):
                assert (np.asarray(mine) == read).all()


def test_pieces_of_records_in_order_are_the_columns_of_their_learners() -> None:
    x, y = np.random.default_rng(0).normal(size=(26, 2)).astype(np.float32), np.arange(26)
    stream = from_arrays(x, y, 6, seed=0, shuffle=False)
    feed, whole = stream.feed(), stream.read(0, stream.length)
    assert feed is not None
    assert feed.most_bytes(3) == feed.most_bytes(1) // 3
    for part, make in enumerate(feed.pieces(3) or ()):
        piece = make()
        found = piece.samples(piece.ahead(jnp.uint32(0), len(whole.y)))
        for mine, read in zip(found, whole, strict=True):
            assert (np.asarray(mine) == read[:, 2 * part : 2 * part + 2]).all()


def test_streams_are_known_by_the_same_digests_as_before() -> None:
    """Cells of studies and checkpoints are found by them: whatever changes inside of a stream, hours of work stay."""
    x, y = np.arange(24, dtype=np.float32).reshape(12, 2), np.arange(12) % 2
    dealt = (
        from_arrays(x, y, 3, seed=1),
        common(x, y, batch=2, seed=1, shuffle=True),
        from_arrays(x, y, 2, "by-label", seed=1),
    )
    assert [str(each.fingerprint())[:16] for each in dealt] == [
        "8a8151cb78afd853",
        "35cc22fad4bf1578",
        "e77718354ec05826",
    ]
