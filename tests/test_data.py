"""Data sets: the same arrays from a file and from OpenML, fixed splits, and errors that say what to do.

Nothing here needs the network or a data folder: OpenML is played by a fake, and files are small copies of the format.
The real files are checked where they are present.
"""

from __future__ import annotations

import builtins
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest

from gossamer import data
from gossamer.data import Dataset
from gossamer.data.recipes import CIFAR10, LETTER, MNIST, MUSHROOMS, POKER, RECIPES
from gossamer.data.sources import Recipe, load
from gossamer.errors import ConfigurationError, DataError

REAL = Path(__file__).parents[2] / "shared" / "data"
LOADERS: dict[str, Callable[..., Dataset]] = {
    "mushrooms": data.mushrooms,
    "letter": data.letter,
    "poker": data.poker,
    "mnist": data.mnist,
    "cifar10": data.cifar10,
}


@pytest.fixture(autouse=True)
def _no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOSSAMER_DATA", raising=False)


def small_file(folder: Path, recipe: Recipe) -> dict[str, np.ndarray]:
    """Random records in the format of the real file."""
    rng = np.random.default_rng(0)
    arrays = {}
    for key, count in zip(recipe.keys, (40, 40, 10, 10), strict=False):
        shape = (count, *recipe.features) if key.startswith("x") else (count,)
        top = recipe.classes if key.startswith("y") else {"mushrooms": 2, "letter": 16}.get(recipe.name, 10)
        arrays[key] = rng.integers(0, top, shape).astype(np.uint8)
    np.savez(folder / recipe.file, **arrays)
    return arrays


def unreachable(number: int) -> tuple[Any, Any]:
    raise ConnectionRefusedError(f"no route for {number}")


# ---------------------------------------------------------------- scikit-learn


def test_digits() -> None:
    digits = data.digits()
    assert (digits.x_train.shape, digits.x_test.shape, digits.classes) == ((1437, 64), (360, 64), 10)
    assert (digits.x_train.min(), digits.x_train.max()) == (0.0, 1.0)
    assert set(np.unique(digits.y_train)) == set(range(10))


def test_breast_cancer_is_standardised_with_training_statistics_where_that_is_asked_for() -> None:
    tumours = data.breast_cancer("standardised")
    assert tumours.scaling == "standardised"
    assert "scaling='standardised'" in repr(tumours)
    assert (tumours.x_train.shape, tumours.x_test.shape) == ((455, 30), (114, 30))
    assert np.allclose(tumours.x_train.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(tumours.x_train.std(axis=0), 1, atol=1e-5)
    assert not np.allclose(tumours.x_test.std(axis=0), 1, atol=1e-2)


def test_features_of_a_record_are_computed_from_that_record_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another record, as far out as can be, changes no row but its own; standardised it changes all."""
    import sklearn.datasets

    bunch = sklearn.datasets.load_breast_cancer()
    other = replaced(bunch.data)

    def rows(scaling: str, features: np.ndarray) -> np.ndarray:
        monkeypatch.setattr(
            sklearn.datasets, "load_breast_cancer", lambda: SimpleNamespace(**bunch | {"data": features})
        )
        tumours = data.breast_cancer(scaling)
        return np.concatenate([tumours.x_train, tumours.x_test])

    changed = {s: (rows(s, bunch.data) != rows(s, other)).any(axis=1).sum() for s in ("public", "standardised")}
    assert changed == {"public": 1, "standardised": 569}
    assert np.abs(rows("public", other)).max() == 1
    with pytest.raises(ConfigurationError, match="scaling: got 'private'; allowed: 'public' or 'standardised'"):
        data.breast_cancer("private")  # type: ignore[arg-type]


def replaced(features: np.ndarray) -> np.ndarray:
    """With another first record of the training part."""
    other = features.copy()
    other[np.random.RandomState(2024).permutation(len(features))[0]] = 1e6
    return other


def test_public_ranges_hold_nearly_all_of_the_data() -> None:
    """Else values would be cut off, and little were left to learn from."""
    tumours = data.breast_cancer()
    at_an_end = np.abs(tumours.x_train) == 1
    assert at_an_end.mean() < 0.03
    assert at_an_end.mean(axis=0).max() < 0.08
    assert (tumours.x_train.std(axis=0) > 0.2).all()


@pytest.mark.parametrize("make", [data.digits, data.breast_cancer])
def test_splits_are_fixed_typed_and_without_overlap(make: Callable[[], Dataset]) -> None:
    first, second = make(), make()
    assert np.array_equal(first.x_train, second.x_train)
    assert first.x_train.dtype == first.x_test.dtype == np.float32
    assert first.y_train.dtype == first.y_test.dtype == np.int32
    train, test = ({row.tobytes() for row in part} for part in (first.x_train, first.x_test))
    assert not train & test
    assert abs(first.y_train.mean() - first.y_test.mean()) < 0.1 * first.classes  # shuffled


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_directory_by_argument_and_by_variable(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_file(tmp_path, recipe)
    given = LOADERS[recipe.name](tmp_path)
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    by_variable = LOADERS[recipe.name]()
    assert np.array_equal(given.x_train, by_variable.x_train)
    assert given.source == str(tmp_path / recipe.file)
    assert given.x_train.shape[1:] == recipe.features
    assert (given.x_train.dtype, given.y_train.dtype) == (np.float32, np.int32)
    assert np.abs(given.x_train).max() <= 1.0
    assert {e.name: e.where for e in data.available()}[recipe.name] == str(tmp_path / recipe.file)


def test_scalings(tmp_path: Path) -> None:
    raw = {recipe.name: small_file(tmp_path, recipe) for recipe in RECIPES}
    for name, scale in (
        ("letter", lambda x: x / 7.5 - 1),
        ("poker", lambda x: x / 13),
        ("mnist", lambda x: x / 255),
        ("cifar10", lambda x: x / 255),
    ):
        loaded = LOADERS[name](tmp_path)
        assert np.allclose(loaded.x_test, scale(raw[name]["x_test"].astype(float)), atol=1e-6)
        assert np.array_equal(loaded.y_test, raw[name]["y_test"])
    assert set(np.unique(data.mushrooms(tmp_path).x_train)) == {0.0, 1.0}


def test_mushrooms_are_shuffled_and_split(tmp_path: Path) -> None:
    x = np.zeros((8124, 112), np.uint8)
    x[:, :13] = np.arange(8124)[:, None] >> np.arange(13) & 1  # the record's number in binary
    np.savez(tmp_path / "mushrooms.npz", x=x, y=(np.arange(8124) >= 4208).astype(np.uint8))
    loaded = data.mushrooms(tmp_path)
    numbers = np.concatenate([loaded.x_train, loaded.x_test])[:, :13] @ (2 ** np.arange(13))
    assert (len(loaded.y_train), len(loaded.y_test)) == (6000, 2124)
    assert sorted(numbers) == list(range(8124))
    assert np.array_equal(loaded.y_train, numbers[:6000] >= 4208)
    share, deviation = 3916 / 8124, np.sqrt(0.25 / 2124)
    assert abs(loaded.y_test.mean() - share) < 5 * deviation


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({"x_train": np.zeros((4, 16))}, "lacks y_train, x_test, y_test"),
        (
            {"x_train": np.zeros((4, 15)), "y_train": np.zeros(4, int), "x_test": np.zeros((4, 16))}
            | {"y_test": np.zeros(4, int)},
            r"x_train has shape \(4, 15\)",
        ),
        (
            {"x_train": np.zeros((4, 16)), "y_train": np.array([0, 1, 8154, 2])}
            | {"x_test": np.zeros((4, 16)), "y_test": np.zeros(4, int)},
            r"label outside 0\.\.25 in row 2",
        ),
        (
            {"x_train": np.zeros((4, 16)), "y_train": np.array(["a"] * 4)}
            | {"x_test": np.zeros((4, 16)), "y_test": np.zeros(4, int)},
            "whole numbers",
        ),
    ],
)
def test_files_of_another_format(tmp_path: Path, arrays: dict[str, Any], fault: str) -> None:
    np.savez(tmp_path / "letter.npz", **arrays)
    with pytest.raises(DataError, match=fault) as error:
        data.letter(tmp_path)
    assert "8154" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 broken"])
def test_files_that_are_broken(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "letter.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"not an \.npz file .* x_train, y_train, x_test, y_test"):
        data.letter(tmp_path)


def test_a_named_directory_without_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"letter\.npz does not exist; letter\.npz needs the NumPy arrays x_train"):
        data.letter(tmp_path)


# ---------------------------------------------------------------- OpenML


def test_openml_mushrooms_become_one_hot_columns() -> None:
    frame = pandas.DataFrame(
        {"cap-shape": list("xbx"), "stalk-root": ["c", None, "e"], "bruises%3F": list("ftt")}, dtype="category"
    )
    raw = MUSHROOMS.convert(frame, pandas.Series(list("pep"), dtype="category"))
    assert raw["x"].tolist() == [[0, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1]]
    assert raw["y"].tolist() == [1, 0, 1]


def test_openml_letter() -> None:
    x = pandas.DataFrame(np.arange(20_000 * 16).reshape(20_000, 16) % 16)
    y = pandas.Series(np.array(list("ABZ"))[np.arange(20_000) % 3], dtype="category")
    loaded = load(LETTER, fetch=lambda number: (x, y))
    assert (loaded.source, len(loaded.y_train), len(loaded.y_test)) == ("OpenML 6", 15_000, 5_000)
    assert loaded.y_train[:3].tolist() == [0, 1, 25]
    assert np.allclose(loaded.x_train[0], np.arange(16) / 7.5 - 1)


def test_openml_images() -> None:
    pixels = pandas.DataFrame(np.arange(2 * 784).reshape(2, 784))
    assert MNIST.convert(pixels, pandas.Series(["3", "9"]))["x_train"][1, 2, 5] == 784 + 2 * 28 + 5
    colours = np.zeros((60_000, 3072), np.uint8)
    colours[7] = np.arange(3072) % 251
    labels = pandas.Series((np.arange(60_000) % 10).astype(str), dtype="category")
    raw = CIFAR10.convert(colours, labels)
    assert [len(raw[key]) for key in CIFAR10.keys] == [10_000, 10_000, 2_000, 2_000]
    assert raw["x_train"][7, 3, 4, 2] == (2 * 1024 + 3 * 32 + 4) % 251  # colour planes, then rows
    assert np.bincount(raw["y_test"]).tolist() == [200] * 10


def test_openml_poker() -> None:
    raw = POKER.convert(pandas.DataFrame(np.ones((130_000, 10))), pandas.Series(["7"] * 130_000))
    assert [len(raw[key]) for key in POKER.keys] == [25_010, 25_010, 99_999, 99_999]
    assert set(raw["y_test"].tolist()) == {7}


def test_openml_of_another_shape_is_refused() -> None:
    frame, labels = pandas.DataFrame({"odor": list("ab")}), pandas.Series(list("ep"))
    with pytest.raises(DataError, match=r"x has shape \(2, 2\)"):
        load(MUSHROOMS, fetch=lambda number: (frame, labels))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_without_file_and_network_the_error_says_what_to_do(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        load(recipe, fetch=unreachable)
    text = str(error.value)
    for part in (recipe.name, "GOSSAMER_DATA is not set", "Connect to the network", recipe.file, *recipe.keys):
        assert part in text


def test_a_variable_without_the_file_falls_back_and_is_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"there is no {tmp_path / 'letter.npz'}, and OpenML 6 is out of reach"):
        load(LETTER, fetch=unreachable)
    assert {e.name: e.where for e in data.available()}["letter"] == "OpenML 6, by download"


def test_scikit_learn_without_network_fails_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real call, with the network cut."""
    attempts = []

    def cut(*args: object, **kwargs: object) -> None:
        attempts.append(args)
        raise OSError("network is cut")

    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    monkeypatch.setattr(socket, "getaddrinfo", cut)
    with pytest.raises(DataError, match=r"OpenML 24 is out of reach \(URLError\)"):
        data.mushrooms()
    assert len(attempts) <= 4  # no long series of retries
    assert socket.getdefaulttimeout() is None


@pytest.mark.parametrize("make", [data.digits, data.breast_cancer, data.mnist])
def test_without_scikit_learn_the_error_has_the_command(
    make: Callable[[], Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(DataError, match=r"pip install 'gossamer\[data\]'"):
        make()


def test_available_names_every_loader() -> None:
    entries = data.available()
    assert {entry.name for entry in entries} == {"digits", "breast_cancer", *LOADERS}
    assert all(callable(getattr(data, entry.name)) and entry.description for entry in entries)


# ---------------------------------------------------------------- the real files, where they are


SIZES = {
    "mushrooms": (6_000, 2_124),
    "letter": (15_000, 5_000),
    "poker": (25_010, 99_999),
    "mnist": (60_000, 10_000),
    "cifar10": (10_000, 2_000),
}


def need(recipe: Recipe) -> Path:
    """The real file of a data set; without it the test is skipped, and says how to get it."""
    file = REAL / recipe.file
    if not file.exists():
        pytest.skip(f"no {file}: {recipe.needs} (docs/streams-and-data.md)")
    return file


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_real_files_have_the_documented_sizes(recipe: Recipe) -> None:
    need(recipe)
    loaded = LOADERS[recipe.name](REAL)
    assert (len(loaded.x_train), len(loaded.x_test)) == SIZES[recipe.name]
    assert len(np.unique(loaded.y_train)) == recipe.classes
    assert loaded.x_train.max() == 1.0


def test_openml_conversion_gives_back_the_real_mushrooms() -> None:
    with np.load(need(MUSHROOMS)) as real:
        names = [str(name).split("=") for name in real["feature_names117"]]
        wide, narrow, labels = real["x117"], real["x"], real["y"]
    columns: dict[str, Any] = {attribute: np.full(len(wide), "", dtype=object) for attribute, _ in names}
    for number, (attribute, value) in enumerate(names):
        columns[attribute][wide[:, number] == 1] = value
    raw = MUSHROOMS.convert(pandas.DataFrame(columns), pandas.Series(np.where(labels, "p", "e")))
    assert np.array_equal(raw["x"], narrow)
    assert np.array_equal(raw["y"], labels)
