"""Poker hands: drawn exactly, labelled exactly, in the encoding of the UCI Poker Hand data."""

from typing import Any

import numpy as np

from gossamer.errors import DataError
from gossamer.streams.base import Array
from gossamer.streams.drawing import Draws, Generated

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
    unit = np.float32(13 if scaled else 1)
    return Generated(_hands, unit, learners=learners, features=(10,), seed=seed, description="random poker hands")


def _hands(draws: Draws, unit: Any) -> tuple[Any, Any]:
    cards = _deal(draws)
    hands = draws.np.stack([cards // 13 + 1, cards % 13 + 1], axis=-1).reshape(*cards.shape[:2], 10)
    return hands.astype(np.float32) / unit, _label(draws.np, hands)


def poker_label(cards: Any) -> Array:
    """The UCI class 0..9 of every hand; the last axis holds S1, C1, ..., S5, C5.

    >>> poker_label([[1, 10, 1, 11, 1, 13, 1, 12, 1, 1], [1, 2, 2, 2, 3, 9, 4, 9, 1, 7]])
    array([9, 2], dtype=int32)
    """
    hands = np.asarray(cards)
    if hands.ndim < 1 or hands.shape[-1] != 10:
        raise DataError(f"cards: shape {hands.shape}; the last axis needs 10 numbers, S1, C1, ..., S5, C5")
    return np.asarray(_label(np, hands))


def _label(library: Any, hands: Any) -> Any:
    """With NumPy or with JAX."""
    suits, ranks = hands[..., 0::2], library.sort(hands[..., 1::2], axis=-1)
    flush = (suits == suits[..., :1]).all(axis=-1)
    equal = _equal_pairs(ranks)
    ace_high = (ranks == library.array([1, 10, 11, 12, 13])).all(axis=-1)
    straight = ((equal == 0) & (ranks[..., 4] - ranks[..., 0] == 4)) | ace_high
    # Counting equal pairs tells the grouped hands apart: pair 1, two pairs 2, three 3, full house 4, four 6.
    grouped = library.array([0, 1, 2, 3, 6, 0, 7])[equal]
    cases = [flush & ace_high, flush & straight, flush, straight]
    classes = [library.full_like(grouped, number) for number in (9, 8, 5, 4)]
    return library.select(cases, classes, grouped).astype(np.int32)


def _equal_pairs(ranks: Any) -> Any:
    """How many of the ten pairs of cards have the same rank."""
    first, second = np.triu_indices(5, k=1)
    return (ranks[..., first] == ranks[..., second]).sum(axis=-1)


def _deal(draws: Draws) -> Any:
    """Five distinct cards 0..51 per hand: the k-th is one of those that are left, counted from the lowest."""
    left = draws.below([52 - place for place in range(5)]).astype(np.int32)
    dealt: list[Any] = []  # in rising order
    cards = []
    for place in range(5):
        card = left[..., place]
        for lower in dealt:  # a card as high as one that is gone, or higher, is one further
            card = card + (card >= lower)
        cards.append(card)
        dealt = list(draws.np.moveaxis(draws.np.sort(draws.np.stack([*dealt, card], axis=-1), axis=-1), -1, 0))
    return draws.np.stack(cards, axis=-1)
