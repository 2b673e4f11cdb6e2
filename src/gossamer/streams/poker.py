"""Poker hands: drawn exactly, labelled exactly, in the encoding of the UCI Poker Hand data."""

from __future__ import annotations

from typing import Any

import numpy as np

from gossamer.checks import check_count
from gossamer.errors import DataError
from gossamer.streams.base import Array
from gossamer.streams.pages import Generated

POKER_CLASSES = (
    "nothing",
    "one pair",
    "two pairs",
    "three of a kind",
    "straight",
    "flush",
    "full house",
    "four of a kind",
    "straight flush",
    "royal flush",
)


def poker_hands(learners: int, *, seed: int, scaled: bool = False) -> Generated:
    """Uniformly random hands of five cards, every learner its own, with their exact labels 0..9.

    The features are S1, C1, ..., S5, C5: suit 1..4 and rank 1 (ace) .. 13 (king) of each card, in the order
    drawn. The encoding and the labels are those of the UCI Poker Hand data; the hands are new, not rows of
    that file.

    Args:
        learners: how many learners.
        seed: of the cards.
        scaled: divide by 13, as `gossamer.data.poker` does.

    >>> hands = poker_hands(2, seed=0).read(0, 1000)
    >>> hands.x.shape, int(hands.x.min()), int(hands.x.max())
    ((1000, 2, 10), 1, 13)
    """
    check_count("learners", learners)

    def draw(rng: np.random.Generator, steps: int) -> tuple[Array, Array]:
        cards = _deal(rng, steps * learners)
        hands = np.stack([cards // 13 + 1, cards % 13 + 1], axis=-1).reshape(steps, learners, 10)
        x = hands.astype(np.float32)
        return x / np.float32(13) if scaled else x, poker_label(hands)

    return Generated(draw, learners=learners, features=(10,), seed=seed, description="random poker hands")


def poker_label(cards: Any) -> Array:
    """The UCI class 0..9 of every hand; the last axis holds S1, C1, ..., S5, C5.

    >>> poker_label([[1, 10, 1, 11, 1, 13, 1, 12, 1, 1], [1, 2, 2, 2, 3, 9, 4, 9, 1, 7]])
    array([9, 2], dtype=int32)
    """
    hands = np.asarray(cards)
    if hands.ndim < 1 or hands.shape[-1] != 10:
        raise DataError(f"cards: shape {hands.shape}; the last axis needs 10 numbers, S1, C1, ..., S5, C5")
    suits, ranks = hands[..., 0::2], np.sort(hands[..., 1::2], axis=-1)
    flush = (suits == suits[..., :1]).all(axis=-1)
    equal = _equal_pairs(ranks)
    ace_high = (ranks == [1, 10, 11, 12, 13]).all(axis=-1)
    straight = ((equal == 0) & (ranks[..., 4] - ranks[..., 0] == 4)) | ace_high
    # Counting equal pairs tells the grouped hands apart: pair 1, two pairs 2, three 3, full house 4, four 6.
    grouped = np.array([0, 1, 2, 3, 6, 0, 7])[equal]
    cases = [flush & ace_high, flush & straight, flush, straight]
    return np.select(cases, [9, 8, 5, 4], grouped).astype(np.int32)


def _equal_pairs(ranks: Array) -> Array:
    """How many of the ten pairs of cards have the same rank."""
    first, second = np.triu_indices(5, k=1)
    return np.asarray((ranks[..., first] == ranks[..., second]).sum(axis=-1))


def _deal(rng: np.random.Generator, hands: int) -> Array:
    """Five distinct cards 0..51 per hand: the first five swaps of a Fisher-Yates shuffle."""
    decks = np.tile(np.arange(52, dtype=np.int8), (hands, 1))
    rows = np.arange(hands)
    for place in range(5):
        other = rng.integers(place, 52, hands)
        decks[rows, place], decks[rows, other] = decks[rows, other], decks[rows, place].copy()
    return decks[:, :5]
