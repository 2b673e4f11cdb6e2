"""Streams over records in memory: dealt to learners (`from_arrays`) or seen by all of them (`common`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gossamer.checks import check_count, check_seed
from gossamer.errors import ConfigurationError, DataError
from gossamer.privacy.marks import called_by_us
from gossamer.privacy.words import Key
from gossamer.problems.base import Block
from gossamer.streams.base import AS_TOLD, Array, Feed, Stream, as_features, as_labels, as_records, generator
from gossamer.streams.order import Batches, Listed, Order, Shares
from gossamer.streams.partition import Partition, Rest, check_partition, shares_of


@partial(jax.tree_util.register_dataclass, data_fields=["x", "y", "order"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class ArrayFeed(Feed):
    """Records on the device, and the order in which a program plays them."""

    exact = True
    x: Any
    y: Any
    order: Order

    def ahead(self, first: jax.Array, steps: int) -> Any:
        """Where the order has got to, and on accelerators which records these are.

        A CPU computes places several at a time, unless it looks something up at each.
        """
        places = self.order.places(first + jnp.arange(steps, dtype=jnp.uint32))
        return places if jax.default_backend() == "cpu" else self.order.looked_up(places)

    def samples(self, ahead: Any) -> Block:
        """Rows, gathered."""
        rows = self.order.looked_up(ahead) if jax.default_backend() == "cpu" else ahead
        return Block(*(leaf.at[rows].get(mode="promise_in_bounds") for leaf in (self.x, self.y)))

    def examples(self) -> Block:
        """All records."""
        return Block(self.x, self.y)

    def pieces(self, parts: int) -> list[Callable[[], Feed]]:
        """Of each run of learners the records that it plays, filled up to those of the run that plays most."""
        each = [self.order.among(part, parts) for part in range(parts)]
        rows = max(len(used) for used, _ in each)
        longest = jax.tree.map(lambda *leaves: max(map(np.shape, leaves)), *(order for _, order in each))
        return [partial(self._piece, used, rows, jax.tree.map(_filled, order, longest)) for used, order in each]

    def most_bytes(self, parts: int) -> int:
        """As if no run played a record twice."""
        played = min(self.order.most(parts), len(self.y))
        return int(played * (self.x.nbytes + self.y.nbytes) // len(self.y) + self.order.nbytes // parts)

    def _piece(self, used: Array, rows: int, order: Order) -> ArrayFeed:
        x, y = (_filled(np.take(leaf, used, axis=0), (rows, *leaf.shape[1:])) for leaf in (self.x, self.y))
        return ArrayFeed(x, y, order)


def _filled(leaf: Any, shape: tuple[int, ...]) -> Any:
    """With zeros at the end of its first axis."""
    return (
        leaf
        if np.shape(leaf) == shape
        else np.concatenate([leaf, np.zeros((shape[0] - len(leaf), *shape[1:]), leaf.dtype)])
    )


@partial(jax.tree_util.register_dataclass, data_fields=["x", "y"], meta_fields=["width"])
@dataclass(frozen=True, eq=False)
class OrderedFeed(Feed):
    """Records on the device in the order in which they are played, so many a step: read where they lie."""

    exact = True
    x: Any
    y: Any
    width: int

    def ahead(self, first: jax.Array, steps: int) -> jax.Array:
        """The numbers of the steps."""
        return first + jnp.arange(steps, dtype=jnp.uint32)

    def samples(self, ahead: jax.Array) -> Block:
        """Rows, cut out."""
        steps, first = len(ahead), jnp.sum(ahead[:1]) * np.uint32(self.width)  # there may be no step
        rows = (lax.dynamic_slice_in_dim(leaf, first, steps * self.width) for leaf in (self.x, self.y))
        return Block(*(leaf.reshape(steps, self.width, *leaf.shape[1:]) for leaf in rows))

    def examples(self) -> Block:
        """All records."""
        return Block(self.x, self.y)

    def pieces(self, parts: int) -> list[Callable[[], Feed]]:
        """Of each run of learners its columns of every step."""
        return [partial(self._piece, part, self.width // parts) for part in range(parts)]

    def most_bytes(self, parts: int) -> int:
        """The records are dealt evenly."""
        return super().most_bytes(1) // parts

    def _piece(self, part: int, width: int) -> OrderedFeed:
        def cut(leaf: Array) -> Array:
            steps = leaf[: len(leaf) // self.width * self.width].reshape(-1, self.width, *leaf.shape[1:])
            return steps[:, part * width : (part + 1) * width].reshape(-1, *leaf.shape[1:])

        return OrderedFeed(cut(self.x), cut(self.y), width)


class ArrayStream(Stream):
    """Records in memory and the order in which they are played: an `Order`, or record numbers (steps, width).

    The records are kept once; reading gathers rows. Made by `from_arrays` and `common`. Who gives an order of their own
    promises that it does not depend on the records, and plays none of them more often than `occurrences` says.

    Attributes:
        order: which record is played when.

    >>> order = np.array([[0, 1], [1, 0]])
    >>> records = as_records([[5.0], [7.0]], [0, 1])
    >>> ArrayStream(*records, order, learners=2, occurrences=2, description="swap").read(0, 2).y
    array([[0, 1], [1, 0]], dtype=int32)
    """

    def __init__(
        self,
        x: Array,
        y: Array,
        order: Array | Order,
        *,
        learners: int | None,
        occurrences: int | None,
        description: str,
        length: int | None = None,
        public_labels: bool = False,
        in_order: bool | None = None,
    ) -> None:
        self._x, self._y = x, y
        self.order: Order = order if isinstance(order, Order) else Listed(order)
        listed = self.order.listed if isinstance(self.order, Listed) else None
        steps = length if listed is None else len(listed)
        self.learners, self.length, self.shared = learners, steps, learners is None
        self.features, self.occurrences, self.description = x.shape[1:], occurrences, description
        self.promises, self.public_labels = () if called_by_us() else (AS_TOLD,), public_labels
        self._in_order = in_order or (listed is not None and np.array_equal(listed.ravel(), np.arange(listed.size)))

    def _read(self, start: int, stop: int) -> Block:
        shape = (stop - start, self.order.width)
        if self._in_order:  # nothing to gather: data that are in order already are read where they are
            records = slice(start * shape[1], stop * shape[1])
            return Block(*(leaf[records].reshape(*shape, *leaf.shape[1:]) for leaf in (self._x, self._y)))
        rows = self.order.records(np.arange(start, stop))
        return Block(np.take(self._x, rows, axis=0), np.take(self._y, rows))

    def feed(self) -> Feed:
        """The records, and their order."""
        if self._in_order:
            return OrderedFeed(self._x, self._y, self.order.width)
        return ArrayFeed(self._x, self._y, self.order)

    def fingerprint(self) -> str | None:
        """Of the records and of their order; None where later records do not matter for the samples before them."""
        if self._in_order or isinstance(self.order, Listed):
            return None
        form, leaves = self.order.told()
        digest = hashlib.sha256(f"{self._in_order} {form}".encode())
        for leaf in (self._x, self._y, *leaves):
            digest.update(f"{leaf.dtype} {leaf.shape}".encode())
            digest.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


def from_arrays(
    x: Any,
    y: Any,
    learners: int,
    partition: Partition = "iid",
    *,
    seed: int,
    skew: float | None = None,
    rest: Rest = "others",
    copies: int = 1,
    passes: int = 1,
    shuffle: bool = True,
    public_labels: bool = False,
) -> ArrayStream:
    """Deal records to learners.

    Every learner gets a share of the records and goes over it `passes` times. Where shares differ, the length
    of the stream is `passes` times the smallest share, and learners with larger shares do not finish. So a
    record occurs at most `copies * passes` times (`occurrences`).

    Partitions other than "iid" look at the labels: another label of one record deals other records to other learners.
    Nothing is claimed per record then (`occurrences` is None), unless labels are public: a record is then replaced by
    others of the same label only.

    Args:
        x: features (records, features...).
        y: labels (records,): whole numbers are classes, floating point numbers are regression targets.
        learners: how many learners share the records.
        partition: "iid": dealt evenly. "by-label": every learner has one class, larger classes having more
            learners (paper 003's mushrooms), or, with more classes than learners, class c goes to learner c
            mod n. "label-skew": a share `skew` of class c goes to learner c mod n and the remainder to the
            others.
        seed: of the shuffling.
        skew: for "label-skew", the share of each class that goes to its own learner.
        rest: for "label-skew", whom the remainder goes to, evenly: the "others" (paper 003: skew=0.4) or
            "all" learners, the own one too (paper 001: skew=0.5, so half of the records are dealt evenly to
            all).
        copies: how often the records are repeated before they are dealt (paper 000's letter: 10 n).
        passes: how often a learner goes over its own share, in a new order each time if `shuffle` is on.
        shuffle: whether records come in random order; otherwise each learner keeps the order of the arrays.
        public_labels: declare that the labels of all records are public, for a partition that looks at them: only
            features are protected per record.

    >>> stream = from_arrays([[0], [1], [2], [3], [4], [5]], [0, 0, 0, 0, 1, 1], 3, "by-label", seed=0)
    >>> stream.length
    2
    >>> stream.read(0, 2).y
    array([[0, 0, 1], [0, 0, 1]], dtype=int32)
    >>> public = from_arrays([[0], [1], [2]], [0, 0, 1], 2, "by-label", seed=0, passes=4, public_labels=True)
    >>> stream.occurrences, public.occurrences
    (None, 4)
    """
    for field, given in (("learners", learners), ("copies", copies), ("passes", passes)):
        check_count(field, given)
    check_seed(seed)
    if public_labels and partition == "iid":
        raise ConfigurationError("public_labels", True, "False with partition 'iid'", "it protects labels too")
    features, labels = as_records(x, y)
    if copies * len(labels) < learners:
        raise DataError(f"{len(labels)} records in {copies} copies cannot serve {learners} learners")
    if copies * len(labels) >= 2**31:
        raise DataError(f"{len(labels)} records in {copies} copies; at most {2**31 - 1:,} can be dealt")
    order = _dealt(partition, np.tile(labels, copies), len(labels), learners, skew, rest, seed, shuffle)
    length = passes * int(order.size.min())
    return ArrayStream(
        features,
        labels,
        order,
        length=length,
        learners=learners,
        occurrences=copies * passes if partition == "iid" or public_labels else None,
        public_labels=public_labels,
        description=f"{len(labels)} records, {partition} over {learners} learners, {length} steps",
        in_order=not shuffle and partition == "iid" and copies == passes == 1,
    )


def _dealt(
    partition: Partition,
    labels: Array,
    records: int,
    learners: int,
    skew: float | None,
    rest: Rest,
    seed: int,
    shuffle: bool,
) -> Shares:
    """Who has which records: labels are those of all copies."""
    check_partition(partition, labels, learners, skew, rest)
    cards = np.arange(len(labels), dtype=np.uint32)
    if shuffle:
        generator(seed, "from_arrays").shuffle(cards)
    key = Key.of(seed, "order of play")
    if partition == "iid":
        return Shares.evenly(cards % np.uint32(records), learners, key, shuffle=shuffle)
    own = [cards[share] for share in shares_of(partition, labels[cards], learners, skew, rest)]
    own = [(share if shuffle else np.sort(share)) % np.uint32(records) for share in own]
    return Shares.of(own, key, shuffle=shuffle)


def common(
    x: Any, y: Any = None, batch: int = 1, *, seed: int | None = None, passes: int = 1, shuffle: bool = False
) -> ArrayStream:
    """One batch per step that every learner sees (paper 002), for any number of learners.

    It reads as x (steps, batch, features...) and y (steps, batch). Records that do not fill a last batch are
    left out, in every pass.

    Args:
        x: features (records, features...), or loss vectors for linear losses.
        y: labels (records,); None where the loss has none (they read as zeros).
        batch: records per step.
        seed: of the shuffling; needed only with `shuffle`.
        passes: how often the records are played.
        shuffle: whether every pass is in a new random order; otherwise the order of the arrays is kept.

    >>> stream = common([[1.0], [2.0], [3.0], [4.0]], batch=2)
    >>> stream.shared, stream.learners, stream.length
    (True, None, 2)
    >>> stream.read(0, 2).x[..., 0]
    array([[1., 2.], [3., 4.]], dtype=float32)
    """
    check_count("batch", batch)
    check_count("passes", passes)
    features = as_features(x)
    features, labels = as_records(features, np.zeros(len(features), np.float32) if y is None else as_labels(y))
    steps = len(labels) // batch
    if steps == 0:
        raise DataError(f"{len(labels)} records do not fill one batch of {batch}")
    if shuffle and seed is None:
        raise ConfigurationError("seed", None, "a whole number of at least 0", "give a seed, or shuffle=False")
    order = Batches(Key.of(0 if seed is None else check_seed(seed), "common"), len(labels), batch, shuffle)
    return ArrayStream(
        features,
        labels,
        order,
        length=passes * steps,
        learners=None,
        occurrences=passes,
        description=f"{len(labels)} records, common batches of {batch}, {passes * steps} steps",
        in_order=not shuffle and passes == 1,
    )
