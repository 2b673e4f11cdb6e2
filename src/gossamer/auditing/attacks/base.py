"""What an attack is: two neighbours, what to look for, and the exact loss of that pair where it is known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer.auditing.audit import Audit, Method, Per, audit, audit_release
from gossamer.auditing.one_run import Scores
from gossamer.auditing.views import Floats, Statistic, View
from gossamer.core import Algorithm
from gossamer.mechanisms import Calibrated, Mechanism
from gossamer.privacy import Budget, Gaussian, Observer
from gossamer.streams import ArrayStream, Stream

Kind = Literal["sharp", "realistic", "flaw", "probe"]
Make = Callable[..., Algorithm]
Pair = tuple[Stream, Stream]


@dataclass(frozen=True)
class Case:
    """An algorithm, two neighbouring streams, and the score that tells them apart.

    Attributes:
        algorithm: what is attacked.
        stream: one input.
        neighbour: the other.
        statistic: the score.
        observer: who looks; None: the one of the guarantee.
        supremum: the exact epsilon, at the delta of the guarantee, of this very pair; None where it is not known.
        claimed: what somebody else, such as a paper, claims of the same noise; None: what the guarantee says.
        method: many runs, or one with many canaries.
        per: whether the streams differ by one occurrence, or were made of records of which one was replaced.

    >>> from gossamer.auditing import ATTACKS
    >>> case = ATTACKS["pd_ogd"][0].make()
    >>> case.noise, round(case.supremum, 3)
    ('laplace', 1.0)
    """

    algorithm: Algorithm
    stream: Stream
    neighbour: Stream
    statistic: Statistic | Scores
    observer: Observer | None = None
    supremum: float | None = None
    claimed: float | None = None
    method: Method = "many-runs"
    per: Per = "occurrence"

    @property
    def noise(self) -> str:
        """The laws of its draws."""
        return _laws(release.mechanism for release in self.algorithm.releases)

    def audit(self, **options: Any) -> Audit:
        """Carry it out; the options are those of `audit`: runs, seed, confidence, noise."""
        inputs = self.algorithm, self.stream, self.neighbour
        found = audit(
            *inputs, statistic=self.statistic, method=self.method, observer=self.observer, per=self.per, **options
        )
        return found if self.claimed is None else replace(found, claimed=self.claimed)


@dataclass(frozen=True)
class ReleaseCase:
    """A calibrated mechanism, two neighbouring sequences of values, and the score that tells them apart.

    Attributes:
        release: what is attacked.
        values: one input.
        neighbours: the other.
        statistic: the score of releases with axes (run, position, ...).
        supremum: the exact epsilon of this very pair; None where it is not known.

    >>> from gossamer.auditing import MECHANISMS
    >>> MECHANISMS["Independent"][0].make().audit(runs=2000, seed=0).contradicts
    False
    """

    release: Calibrated[Mechanism]
    values: ArrayLike
    neighbours: ArrayLike
    statistic: Callable[[NDArray[Any]], NDArray[Any]]
    supremum: float | None = None

    @property
    def noise(self) -> str:
        """The laws of its draws."""
        return _laws([self.release.mechanism])

    def audit(self, **options: Any) -> Audit:
        """Carry it out; the options are those of `audit_release`."""
        return audit_release(self.release, self.values, self.neighbours, statistic=self.statistic, **options)


@dataclass(frozen=True)
class Attack:
    """One way to test a guarantee.

    Attributes:
        name: short, for tables.
        shows: what it tests, in a few words.
        kind: "sharp": its exact loss is (nearly) all that is claimed, so too little noise is caught. "realistic": data
            as they come, on which the loss is smaller. "flaw": it breaks a calibration that is known to be flawed.
            "probe": it breaks a guarantee that leaves something out, such as roundings, and finds nothing in others.
        make: builds the case.
        runs: on each input, enough to measure at least 0.8 of a sharp claim; None: one run with canaries.
    """

    name: str
    shows: str
    kind: Kind
    make: Callable[[], Case | ReleaseCase]
    runs: int | None = 100_000


def attack(name: str, shows: str, kind: Kind, case: Any, *given: Any, runs: int = 100_000, **options: Any) -> Attack:
    """An attack whose case is `case(*given, **options)`."""
    return Attack(name, shows, kind, partial(case, *given, **options), runs)


def own_budgets(budgets: Sequence[Budget], case: Any, *given: Any, **options: Any) -> list[Attack]:
    """Sharp attacks on each learner, where everybody has a budget of its own."""
    options["budget"] = budgets
    return [
        attack(f"own budget {one.epsilon:g}", "one learner's noise", "sharp", case, *given, learner=i, **options)
        for i, one in enumerate(budgets)
    ]


def samples(x: ArrayLike, y: ArrayLike) -> ArrayStream:
    """The stream of these samples: features (step, learner, feature, ...) and labels (step, learner).

    >>> samples([[[1.0], [2.0]]], [[0, 1]]).read(0, 1).y
    array([[0, 1]], dtype=int32)
    """
    from gossamer.streams.base import as_records

    features, labels = np.asarray(x), np.asarray(y)
    records = as_records(features.reshape(labels.size, *features.shape[2:]), labels.ravel())
    order = np.arange(labels.size).reshape(labels.shape)
    return ArrayStream(*records, order, learners=labels.shape[1], occurrences=1, description="samples of an attack")


def signs(x: Floats) -> Pair:
    """Two streams of linear losses: these, and their negatives.

    >>> signs(np.ones((1, 2, 1)))[1].read(0, 1).x.ravel()
    array([-1., -1.], dtype=float32)
    """
    labels = np.zeros(x.shape[:2])
    return samples(x, labels), samples(-x, labels)


def played(view: View) -> Any:
    """A score where decisions are played without noise: what learner 0 plays after the first sample."""
    return view.decisions[:, 1, 0, 0]


def epsilon_of(algorithm: Algorithm, law: str, moved: float, learner: int = 0) -> float:
    """The epsilon of releases whose values move by so much together, in scales of their noise and in its norm.

    >>> from gossamer.auditing import ATTACKS
    >>> round(epsilon_of(ATTACKS["pd_ogd"][2].make().algorithm, "gaussian", 1.0), 3)
    1.16
    """
    deltas = algorithm.guarantee.deltas
    return Gaussian(moved).epsilon(deltas[learner % len(deltas)]) if law == "gaussian" else moved


def _laws(mechanisms: Any) -> str:
    return ", ".join(dict.fromkeys(law for mechanism in mechanisms for law, _ in mechanism.laws().values()))
