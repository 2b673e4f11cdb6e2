"""What an observer sees, and log-likelihood ratios of it where the law of the noise is known."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError
from gossamer.privacy import Law, Observer

Floats = NDArray[np.float64]


class View(NamedTuple):
    """What an observer sees of many runs; None for what is hidden from it.

    Attributes:
        messages: what was said, axes (run, exchange, learner, ...).
        decisions: what was played, axes (run, exchange, learner, coordinate).
        broadcasts: what the server answered, axes (run, exchange, ...).

    >>> View(messages=np.zeros((10, 1, 3, 2))).decisions is None
    True
    """

    messages: Any = None
    decisions: Any = None
    broadcasts: Any = None


Statistic = Callable[[View], NDArray[Any]]
"""A score for every run of a view: large where the run looks like one on `stream`, small where like `neighbour`."""

SEES: Mapping[Observer, frozenset[str]] = {
    "decisions": frozenset({"decisions"}),
    "wiretap": frozenset({"messages", "broadcasts"}),
    "outsiders": frozenset({"messages", "broadcasts", "decisions"}),
    "peers": frozenset({"messages", "broadcasts", "decisions"}),
    "broadcasts": frozenset({"broadcasts", "decisions"}),
}
"""What each observer sees; broadcasts, which are messages too, exist where there is a server."""


def log_density(law: Law, scale: float, noise: NDArray[Any]) -> Floats:
    """The logarithm of the density of a noise vector (the last axis), up to a constant.

    >>> log_density("laplace", 2.0, np.array([[3.0, -4.0]])), log_density("l2-laplace", 2.0, np.array([[3.0, -4.0]]))
    (array([-3.5]), array([-2.5]))
    >>> log_density("gaussian", 2.0, np.array([[3.0, -4.0]]))
    array([-3.125])
    """
    noise = np.asarray(noise, np.float64)
    if law == "laplace":
        size = np.abs(noise).sum(axis=-1) / scale
    elif law == "l2-laplace":
        size = np.linalg.norm(noise, axis=-1) / scale
    elif law == "gaussian":
        size = np.square(noise).sum(axis=-1) / (2 * scale**2)
    else:
        raise ConfigurationError("law", law, "'laplace', 'l2-laplace' or 'gaussian'", "others need their own density")
    return np.asarray(-size, np.float64)


def log_ratio(law: Law, scale: float, released: NDArray[Any], value: Any, neighbour: Any) -> Floats:
    """The log-likelihood ratio ln p(released | value) - ln p(released | neighbour) of additive noise.

    By the lemma of Neyman and Pearson no other score tells the two apart better.

    In double precision throughout: rounded to single, a ratio shows which last bits floating-point noise can have, not
    what the mechanism on paper loses.

    >>> log_ratio("laplace", 2.0, np.array([[5.0], [0.0]]), value=1.0, neighbour=-1.0)
    array([1., 0.])
    """
    shown, ours, theirs = (np.asarray(each, np.float64) for each in (released, value, neighbour))
    return log_density(law, scale, shown - ours) - log_density(law, scale, shown - theirs)
