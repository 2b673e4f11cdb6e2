"""Refusals of settings and of data: position and kind of a fault, never a value."""

import numpy as np

from gossamer.errors import ConfigurationError, DataError
from gossamer.privacy import Clip


def check_clip(clip: float | Clip | None) -> Clip | None:
    """The clip; a number bounds the Euclidean norm, None stands for no clipping.

    >>> check_clip(1.0), check_clip(None)
    (Clip(l2=1.0), None)

    >>> check_clip(-1.0)
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: clip: got -1.0; allowed: a positive finite number.
    """
    return None if clip is None else Clip.of(clip)


def check_class_count(classes: int | None) -> None:
    """Refuse fewer than two classes.

    >>> check_class_count(1)
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: classes: got 1; allowed: a whole number of at least 2.
    """
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 2:
        raise ConfigurationError("classes", classes, "a whole number of at least 2")


def check_classes(y: np.ndarray, classes: int, start: int) -> None:
    """Refuse labels that are not integers from 0 to classes - 1.

    >>> check_classes(np.array([0, 1, 2]), classes=2, start=100)
    Traceback (most recent call last):
    gossamer.errors.DataError: label out of range at position (102,): allowed are the integers 0 to 1
    """
    if y.dtype.kind not in "iu":
        raise DataError(f"labels are {y.dtype}, not integers: convert them to int32, 0 to {classes - 1}")
    _refuse_first((y < 0) | (y >= classes), "label out of range", f"allowed are the integers 0 to {classes - 1}", start)


def check_finite(x: np.ndarray, start: int) -> None:
    """Refuse features that are NaN or infinite.

    >>> check_finite(np.array([[1.0, 2.0], [np.nan, 3.0]]), start=10)
    Traceback (most recent call last):
    gossamer.errors.DataError: feature not finite at position (11, 0): allowed are finite numbers
    """
    if not np.isfinite(np.vdot(x, x)):  # an infinite sum may also come from large numbers: look closer
        _refuse_first(~np.isfinite(x), "feature not finite", "allowed are finite numbers", start)


def check_targets(y: np.ndarray, start: int) -> None:
    """Refuse targets that are not finite real numbers.

    >>> check_targets(np.array([[1.0], [np.nan]]), start=0)
    Traceback (most recent call last):
    gossamer.errors.DataError: target not finite at position (1, 0): allowed are finite numbers
    """
    if y.dtype.kind != "f":
        raise DataError(f"targets are {y.dtype}, not real numbers: convert them to float32")
    _refuse_first(~np.isfinite(y), "target not finite", "allowed are finite numbers", start)


def _refuse_first(bad: np.ndarray, kind: str, allowed: str, start: int) -> None:
    if bad.any():
        first, *rest = (int(i) for i in np.unravel_index(bad.argmax(), bad.shape))
        raise DataError(f"{kind} at position {(first + start, *rest)}: {allowed}")


def check_losses(x: np.ndarray, most: float, start: int) -> None:
    """Refuse losses below 0 or above the largest one.

    >>> check_losses(np.array([[0.5, -0.1]]), 1.0, start=3)
    Traceback (most recent call last):
    gossamer.errors.DataError: loss out of range at position (3, 1): allowed are numbers from 0 to 1
    """
    if x.size and (x.min() < 0 or x.max() > most):
        allowed = (
            f"allowed are numbers from 0 to {most:g}" if np.isfinite(most) else "allowed are numbers of at least 0"
        )
        _refuse_first((x < 0) | (x > most), "loss out of range", allowed, start)
