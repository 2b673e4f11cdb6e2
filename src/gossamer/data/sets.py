"""The data sets by name."""

from typing import NamedTuple

import numpy as np

from gossamer.checks import check_choice
from gossamer.data.recipes import CIFAR10, LETTER, MNIST, MUSHROOMS, POKER, RECIPES
from gossamer.data.sources import (
    Dataset,
    Directory,
    Recipe,
    Scaling,
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


CELL_NUCLEI = {
    "radius": ((5, 25), (0, 1), (5, 30)),
    "texture": ((10, 30), (0, 3), (10, 45)),
    "perimeter": ((40, 160), (0, 8), (40, 200)),
    "area": ((0, 1500), (0, 120), (0, 2000)),
    "smoothness": ((0.05, 0.15), (0, 0.015), (0.05, 0.2)),
    "compactness": ((0, 0.25), (0, 0.08), (0, 0.7)),
    "concavity": ((0, 0.3), (0, 0.1), (0, 0.8)),
    "concave points": ((0, 0.15), (0, 0.025), (0, 0.25)),
    "symmetry": ((0.1, 0.3), (0, 0.05), (0.1, 0.5)),
    "fractal dimension": ((0.04, 0.1), (0, 0.01), (0.04, 0.14)),
}
"""The usual range of what is measured of cell nuclei, in pixels where it has a unit: of its mean over the nuclei of an
image, of the error of that mean, and of the mean of its three largest values. Round numbers, chosen with the published
summary of the data set in view; no program computes them from records."""


def breast_cancer(scaling: Scaling = "public") -> Dataset:
    """Breast Cancer Wisconsin of scikit-learn: 30 features, malignant 0, benign 1; 455 / 114 records.

    Shuffled with a fixed public seed and split.

    Args:
        scaling: "public": the ranges of `CELL_NUCLEI` become [-1, 1], and values outside are moved to its ends.
            "standardised": by mean and deviation of the training part, to which every record contributes; so nothing
            holds per record (see `Dataset`).

    >>> tumours = breast_cancer()
    >>> tumours.x_train.shape, float(abs(tumours.x_train).max()), tumours.scaling
    ((455, 30), 1.0, 'public')
    """
    check_choice("scaling", scaling, Scaling)
    bunch = sklearn_datasets().load_breast_cancer()
    raw = shuffled_split(bunch.data, bunch.target, 455)
    if scaling == "public":
        low, high = np.array(list(CELL_NUCLEI.values())).transpose(2, 1, 0).reshape(2, -1)  # means, errors, largest
        centre, half, most = (low + high) / 2, (high - low) / 2, 1.0
    else:
        centre, half, most = raw["x_train"].mean(axis=0), raw["x_train"].std(axis=0), np.inf
    scaled = {key: ((raw[key] - centre) / half).clip(-most, most) for key in ("x_train", "x_test")}
    return dataset("breast_cancer", raw | scaled, "scikit-learn", 2, scaling)


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
