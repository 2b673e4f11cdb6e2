"""The data sets by name."""

from __future__ import annotations

from typing import NamedTuple

from gossamer.data.recipes import CIFAR10, LETTER, MNIST, MUSHROOMS, POKER, RECIPES
from gossamer.data.sources import (
    Dataset,
    Directory,
    Recipe,
    dataset,
    load,
    place_of,
    shuffled_split,
    sklearn_datasets,
)


def mushrooms(directory: Directory = None) -> Dataset:
    """UCI Mushroom: 112 columns of 0 and 1 as LIBSVM has them, edible 0, poisonous 1; 6,000 / 2,124 records.

    They come in UCI order, so they are shuffled with a fixed public seed before they are split.

    >>> mushrooms("/nowhere")
    Traceback (most recent call last):
        ...
    gossamer.errors.DataError: mushrooms: /nowhere/mushrooms.npz does not exist; mushrooms.npz needs the NumPy
    ...
    """
    return load(MUSHROOMS, directory)


def letter(directory: Directory = None) -> Dataset:
    """UCI Letter: 16 features scaled to [-1, 1] by x/7.5 - 1, 26 classes; 15,000 / 5,000 records.

    The first 15,000 records train: in the file those of the UCI order, from OpenML those of its order, which may
    differ.

    >>> import numpy as np
    >>> LETTER.scale(np.array([0.0, 15.0])).tolist()
    [-1.0, 1.0]
    """
    return load(LETTER, directory)


def poker(directory: Directory = None) -> Dataset:
    """UCI Poker Hand: S1, C1, ..., S5, C5 divided by 13, 10 classes; 25,010 / 99,999 records.

    Suits 1..4 and ranks 1..13 are `round(13 * x)`. `gossamer.streams.poker_hands(scaled=True)` has endless
    further hands of the same kind.

    >>> import numpy as np
    >>> POKER.scale(np.array([13.0])).tolist()
    [1.0]
    """
    return load(POKER, directory)


def mnist(directory: Directory = None) -> Dataset:
    """MNIST: images (28, 28) in [0, 1], 10 classes; 60,000 / 10,000 records.

    >>> import numpy as np
    >>> MNIST.scale(np.array([255.0])).tolist()
    [1.0]
    """
    return load(MNIST, directory)


def cifar10(directory: Directory = None) -> Dataset:
    """A stratified subset of CIFAR-10: images (32, 32, 3) in [0, 1], 10 classes; 10,000 / 2,000 records.

    It has the first 1,000 (200) images of every class, from OpenML too.

    >>> CIFAR10.file
    'cifar10_10k2k.npz'
    """
    return load(CIFAR10, directory)


def digits() -> Dataset:
    """Handwritten digits of scikit-learn: 64 features in [0, 1] (x/16), 10 classes; 1,437 / 360 records.

    Shuffled with a fixed public seed before they are split.

    >>> data = digits()
    >>> data.x_train.shape, data.x_test.shape, float(data.x_train.max())
    ((1437, 64), (360, 64), 1.0)
    """
    bunch = sklearn_datasets().load_digits()
    return dataset("digits", shuffled_split(bunch.data / 16, bunch.target, 1437), "scikit-learn", 10)


def breast_cancer() -> Dataset:
    """Breast Cancer Wisconsin of scikit-learn: 30 features, malignant 0, benign 1; 455 / 114 records.

    Shuffled with a fixed public seed, split, and standardised with mean and deviation of the training part.

    >>> breast_cancer().x_train.shape
    (455, 30)
    """
    bunch = sklearn_datasets().load_breast_cancer()
    raw = shuffled_split(bunch.data, bunch.target, 455)
    mean, deviation = raw["x_train"].mean(axis=0), raw["x_train"].std(axis=0)
    standard = {key: (raw[key] - mean) / deviation for key in ("x_train", "x_test")}
    return dataset("breast_cancer", raw | standard, "scikit-learn", 2)


class Available(NamedTuple):
    """A data set and where it would come from now.

    >>> Available("digits", "small handwritten digits", "scikit-learn").where
    'scikit-learn'
    """

    name: str
    description: str
    where: str


def available() -> list[Available]:
    """Every data set, with one line about it and where it would come from now; the network is not touched.

    >>> [entry.name for entry in available()]
    ['digits', 'breast_cancer', 'mushrooms', 'letter', 'poker', 'mnist', 'cifar10']
    """
    small = [
        Available("digits", "small handwritten digits, 64 features, 10 classes, 1,797 records", "scikit-learn"),
        Available("breast_cancer", "tumours, 30 features, 2 classes, 569 records", "scikit-learn"),
    ]
    return small + [Available(recipe.name, recipe.description, _where(recipe)) for recipe in RECIPES]


def _where(recipe: Recipe) -> str:
    file = place_of(recipe)
    return str(file) if file is not None and file.is_file() else f"OpenML {recipe.openml}, by download"
