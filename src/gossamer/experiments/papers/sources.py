"""The data of the papers: from files, or small data of scikit-learn in their place."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer import data, problems
from gossamer.errors import DataError
from gossamer.problems import Problem

ENLARGED = "digits of scikit-learn, enlarged"
NETWORK_SEED = 0


def needed(
    who: str,
    load: Callable[[Path | None], data.Dataset],
    directory: Path | None,
    instead: str = "scikit-learn's digits",
) -> data.Dataset:
    """Data from files; where they are missing, it says what to do.

    Args:
        who: needs them, for people.
        load: one of `gossamer.data`.
        directory: as there.
        instead: what `--stand-in` runs on.

    >>> needed("Paper 000 needs the letter data", data.letter, Path("/nowhere"))
    Traceback (most recent call last):
    gossamer.errors.DataError: ... Paper 000 needs the letter data: give their directory with --data, or try ...
    """
    try:
        return load(directory)
    except DataError as missing:
        advice = f"give their directory with --data, or try --stand-in, which runs on {instead}"
        raise DataError(f"{missing}. {who}: {advice}.") from missing


def enlarged() -> data.Dataset:
    """The digits of scikit-learn, images of 8x8, as 16x16: the network needs at least 10x10.

    >>> enlarged().x_train.shape[1:]
    (16, 16, 1)
    """
    small = data.digits()

    def images(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.kron(x.reshape(-1, 8, 8), np.ones((1, 2, 2), np.float32))[..., None]

    return replace(small, x_train=images(small.x_train), x_test=images(small.x_test))


def coloured(found: data.Dataset) -> data.Dataset:
    """Images (height, width, colours), also where there is one colour only."""
    if found.x_train.ndim == 4:
        return found
    return replace(found, x_train=found.x_train[..., None], x_test=found.x_test[..., None])


def network(images: data.Dataset) -> Problem:
    """Two convolutions, pooled, and two dense layers."""
    height, width, colours = images.x_train.shape[1:]
    return problems.small_cnn((height, width, colours), images.classes, seed=NETWORK_SEED)
