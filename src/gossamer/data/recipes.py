"""The data sets that come from a file or from OpenML: what they look like and how they are prepared."""

from functools import partial
from typing import Any

import numpy as np

from gossamer.data.sources import Raw, Recipe
from gossamer.streams.base import Array


def _split(x: Array, y: Array, train: int, test: int) -> Raw:
    """The first records train, the next ones test."""
    end = train + test
    return {"x_train": x[:train], "y_train": y[:train], "x_test": x[train:end], "y_test": y[train:end]}


def _texts(labels: Any) -> Array:
    return np.array([str(label).strip("'\"") for label in labels])


def _convert_mushrooms(x: Any, y: Any) -> Raw:
    """One column per attribute and value that occurs, without stalk-root, which has missing values."""
    columns = [_texts(x[name]) for name in x.columns if name != "stalk-root"]
    one_hot = [values[:, None] == np.unique(values) for values in columns]
    return {"x": np.concatenate(one_hot, axis=1).astype(np.uint8), "y": (_texts(y) == "p").astype(np.uint8)}


def _in_order(x: Any, y: Any, train: int, test: int, shape: tuple[int, ...]) -> Raw:
    """As they come; labels are numbers, or capital letters for 0, 1, ..."""
    texts = _texts(y)
    classes = [ord(text) - ord("A") for text in texts] if texts[0].isalpha() else texts
    return _split(np.asarray(x).reshape(-1, *shape), np.asarray(classes).astype(np.int64), train, test)


def _convert_cifar10(x: Any, y: Any) -> Raw:
    """The first 1,000 of each class among the 50,000 training images, the first 200 among the others."""
    labels = _texts(y).astype(np.int64)
    train = _first_of_each(labels[:50_000], 1_000)
    test = 50_000 + _first_of_each(labels[50_000:], 200)
    rows = np.concatenate([train, test])
    images = np.asarray(x)[rows].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return _split(images, labels[rows], len(train), len(test))


def _first_of_each(labels: Array, count: int) -> Array:
    """The first so many of every class, in the order in which they come."""
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in np.unique(labels)]))


def _as_is(x: Array) -> Array:
    return x


def _around_zero(x: Array) -> Array:
    return x / np.float32(7.5) - np.float32(1)


def _divided(x: Array, by: int) -> Array:
    return x / np.float32(by)


MUSHROOMS = Recipe(
    name="mushrooms",
    description="edible or poisonous, 112 one-hot features, 2 classes, 8,124 records",
    file="mushrooms.npz",
    features=(112,),
    classes=2,
    openml=24,
    convert=_convert_mushrooms,
    scale=_as_is,
    train=6_000,
)

LETTER = Recipe(
    name="letter",
    description="printed capital letters, 16 features, 26 classes, 20,000 records",
    file="letter.npz",
    features=(16,),
    classes=26,
    openml=6,
    convert=partial(_in_order, train=15_000, test=5_000, shape=(16,)),
    scale=_around_zero,
)

POKER = Recipe(
    name="poker",
    description="hands of five cards, 10 features, 10 classes, 125,009 records",
    file="poker.npz",
    features=(10,),
    classes=10,
    openml=1567,
    convert=partial(_in_order, train=25_010, test=99_999, shape=(10,)),
    scale=partial(_divided, by=13),
)

MNIST = Recipe(
    name="mnist",
    description="handwritten digits, 28x28 grey images, 10 classes, 70,000 records",
    file="mnist.npz",
    features=(28, 28),
    classes=10,
    openml=554,
    convert=partial(_in_order, train=60_000, test=10_000, shape=(28, 28)),
    scale=partial(_divided, by=255),
)

CIFAR10 = Recipe(
    name="cifar10",
    description="photographs, 32x32 colour images, 10 classes, 12,000 records (a stratified subset)",
    file="cifar10_10k2k.npz",
    features=(32, 32, 3),
    classes=10,
    openml=40927,
    convert=_convert_cifar10,
    scale=partial(_divided, by=255),
)

RECIPES = (MUSHROOMS, LETTER, POKER, MNIST, CIFAR10)
