"""Where a data set comes from: a file in a directory, else OpenML, else an error that says what to do."""

import os
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gossamer.errors import DataError
from gossamer.streams.base import Array
from gossamer.streams.files import read_npz

Raw = dict[str, Array]
Directory = str | os.PathLike[str] | None
Scaling = Literal["public", "standardised"]

VARIABLE = "GOSSAMER_DATA"
PATIENCE = 20.0  # seconds without an answer before OpenML counts as out of reach
SHUFFLE_SEED = 2024  # public; for data sets that come without a split


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set with a fixed split: features float32 (records, features...), labels int32 0..classes-1.

    Attributes:
        name: of the data set.
        x_train: features that train.
        y_train: their labels.
        x_test: features held out.
        y_test: their labels.
        source: where it came from.
        classes: how many.
        scaling: "public": the features of a record are computed from that record and from numbers in the code.
            "standardised": from mean and deviation of all training records too, so that one record changes the features
            of all. A guarantee per record does not hold for the records then, only for the numbers made of them.

    >>> from gossamer.data import digits
    >>> digits()
    Dataset(name='digits', source='scikit-learn', classes=10, scaling='public')
    """

    name: str
    x_train: Array = field(repr=False)
    y_train: Array = field(repr=False)
    x_test: Array = field(repr=False)
    y_test: Array = field(repr=False)
    source: str
    classes: int
    scaling: Scaling = "public"


@dataclass(frozen=True)
class Recipe:
    """How a data set is found and prepared.

    Attributes:
        name: of the data set.
        description: one line for people.
        file: its name in a directory.
        features: shape of the features of one record.
        classes: how many.
        openml: its number there.
        convert: turns what OpenML sends (features, labels) into the arrays that the file has.
        scale: turns raw features (float32) into those of the data set.
        train: how many records train, where there is no split; None: the file has `x_train` and so on.
    """

    name: str
    description: str
    file: str
    features: tuple[int, ...]
    classes: int
    openml: int
    convert: Callable[[Any, Any], Raw]
    scale: Callable[[Array], Array]
    train: int | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The arrays that the file must have."""
        return ("x_train", "y_train", "x_test", "y_test") if self.train is None else ("x", "y")

    @property
    def needs(self) -> str:
        """What a file must look like, for error texts."""
        return f"{self.file} needs the NumPy arrays {', '.join(self.keys)}, features of shape {self.features}"


def sklearn_datasets() -> Any:
    """The module `sklearn.datasets`, or the command that installs it."""
    try:
        import sklearn.datasets
    except ImportError:
        raise DataError("the data sets need scikit-learn: pip install 'gossamer[data]'") from None
    return sklearn.datasets


def fetch_openml(number: int) -> tuple[Any, Any]:
    """Features and labels of a data set at OpenML, with one quick retry and a limit on waiting."""
    fetch = sklearn_datasets().fetch_openml
    with _patience(PATIENCE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "Retrying...": the outcome says enough
        x, y = fetch(data_id=number, return_X_y=True, as_frame=True, n_retries=1, delay=0.1)
    return x, y


@contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """Sockets give up after so long: scikit-learn's downloads have no timeout of their own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def place_of(recipe: Recipe, directory: Directory = None) -> Path | None:
    """The file that is looked at first, whether or not it exists; None if nobody named a directory.

    >>> from gossamer.data.recipes import LETTER
    >>> place_of(LETTER, "/data").name
    'letter.npz'
    """
    named = directory if directory is not None else os.environ.get(VARIABLE)
    return Path(named) / recipe.file if named else None


def load(
    recipe: Recipe, directory: Directory = None, fetch: Callable[[int], tuple[Any, Any]] = fetch_openml
) -> Dataset:
    """A data set from the directory given, else from that of GOSSAMER_DATA, else from OpenML.

    >>> from gossamer.data.recipes import LETTER
    >>> load(LETTER, "/nowhere")
    Traceback (most recent call last):
    gossamer.errors.DataError: letter: /nowhere/letter.npz does not exist; letter.npz needs the NumPy ...
    """
    file = place_of(recipe, directory)
    if file is not None and file.is_file():
        return _prepared(recipe, _read(recipe, file), str(file))
    if directory is not None:
        raise DataError(f"{recipe.name}: {file} does not exist; {recipe.needs}")
    return _prepared(recipe, _download(recipe, file, fetch), f"OpenML {recipe.openml}")


def _read(recipe: Recipe, file: Path) -> Raw:
    try:
        raw, names = read_npz(file, recipe.keys)
    except DataError as reason:
        raise DataError(f"{recipe.name}: {reason}; {recipe.needs}") from None
    missing = [key for key in recipe.keys if key not in names]
    if missing:
        raise DataError(f"{recipe.name}: {file} lacks {', '.join(missing)}; {recipe.needs}")
    return raw


def _download(recipe: Recipe, looked_at: Path | None, fetch: Callable[[int], tuple[Any, Any]]) -> Raw:
    try:
        x, y = fetch(recipe.openml)
    except ImportError:
        raise DataError("OpenML data need pandas: pip install 'gossamer[data]'") from None
    except (OSError, HTTPException) as reason:
        looked = f"there is no {looked_at}" if looked_at else f"the variable {VARIABLE} is not set"
        raise DataError(
            f"{recipe.name}: {looked}, and OpenML {recipe.openml} is out of reach ({type(reason).__name__}). "
            f"Connect to the network, or set {VARIABLE} to a directory with the file: {recipe.needs}"
        ) from None
    return recipe.convert(x, y)


def _prepared(recipe: Recipe, raw: Raw, source: str) -> Dataset:
    for part in (key for key in recipe.keys if key.startswith("x")):
        _check(recipe, raw, part, source)
    if recipe.train is not None:
        raw = shuffled_split(raw["x"], raw["y"], recipe.train)
    scaled = {key: recipe.scale(raw[key].astype(np.float32)) for key in ("x_train", "x_test")}
    return dataset(recipe.name, raw | scaled, source, recipe.classes)


def _check(recipe: Recipe, raw: Raw, part: str, source: str) -> None:
    x, y = raw[part], raw[part.replace("x", "y")]
    if x.shape[1:] != recipe.features or y.shape != x.shape[:1] or len(x) == 0:
        raise DataError(f"{recipe.name}: {part} has shape {x.shape} and its labels {y.shape}; {recipe.needs}")
    if x.dtype.kind not in "biuf" or y.dtype.kind not in "biu":
        raise DataError(f"{recipe.name}: {part} must hold numbers, and its labels whole numbers ({source})")
    outside = (y < 0) | (y >= recipe.classes)
    if outside.any():
        row = int(outside.argmax())
        raise DataError(f"{recipe.name}: a label outside 0..{recipe.classes - 1} in row {row} of {source}")


def dataset(name: str, arrays: Raw, source: str, classes: int, scaling: Scaling = "public") -> Dataset:
    """A `Dataset` of float32 features and int32 labels from the four arrays of a split.

    >>> half = {"x_train": np.eye(2), "y_train": np.arange(2), "x_test": np.eye(2), "y_test": np.arange(2)}
    >>> dataset("tiny", half, "here", 2).x_train.dtype
    dtype('float32')
    """
    x_train, x_test = (arrays[key].astype(np.float32, copy=False) for key in ("x_train", "x_test"))
    y_train, y_test = (arrays[key].astype(np.int32) for key in ("y_train", "y_test"))
    return Dataset(name, x_train, y_train, x_test, y_test, source, classes, scaling)


def shuffled_split(x: Array, y: Array, train: int) -> Raw:
    """The four arrays of a split, after shuffling with the fixed public seed.

    >>> {key: len(part) for key, part in shuffled_split(np.zeros((5, 1)), np.zeros(5), 3).items()}
    {'x_train': 3, 'y_train': 3, 'x_test': 2, 'y_test': 2}
    """
    # RandomState is frozen by NumPy's policy: the split is the same in every version.
    order = np.random.RandomState(SHUFFLE_SEED).permutation(len(y))
    first, second = order[:train], order[train:]
    return {"x_train": x[first], "y_train": y[first], "x_test": x[second], "y_test": y[second]}
