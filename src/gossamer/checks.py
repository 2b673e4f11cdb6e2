"""Checks of settings that every layer shares."""

import math
import numbers
from typing import Any, get_args

from gossamer.errors import ConfigurationError


def check_count(field: str, given: Any, least: int = 1, most: int | None = None) -> int:
    """The value as an int; refused unless it is a whole number from `least` to `most`.

    >>> check_count("learners", 0)
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: learners: got 0; allowed: a whole number of at least 1.
    """
    whole = type(given) is int or (isinstance(given, numbers.Integral) and not isinstance(given, bool))
    if not whole or given < least or (most is not None and given > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ConfigurationError(field, given, f"a whole number {bounds}")
    return int(given)


def check_choice(field: str, given: Any, literal: Any) -> None:
    """Refuse what is not one of the values of a `Literal`.

    >>> from typing import Literal
    >>> check_choice("noise", "cauchy", Literal["laplace", "gaussian"])
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: noise: got 'cauchy'; allowed: 'laplace' or 'gaussian'.
    """
    if given not in get_args(literal):
        raise ConfigurationError(field, given, " or ".join(map(repr, get_args(literal))))


def check_seed(seed: Any) -> int:
    """The seed as an int; refused unless it is a whole number of at least 0."""
    return check_count("seed", seed, least=0)


def check_positive(field: str, given: Any, hint: str = "", *, zero: bool = False) -> float:
    """The value as a float; refused unless it is positive (or zero, where that is allowed) and finite.

    >>> check_positive("radius", 0.0)
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: radius: got 0.0; allowed: a positive finite number.
    """
    real = isinstance(given, numbers.Real) and not isinstance(given, bool)
    if not real or not (0 < given < math.inf or (zero and given == 0)):
        allowed = "a finite number of at least 0" if zero else "a positive finite number"
        raise ConfigurationError(field, given, allowed, hint)
    return float(given)
