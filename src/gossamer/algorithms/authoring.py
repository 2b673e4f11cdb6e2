"""What somebody who writes an algorithm needs: step sizes, guarantees of one release, schedules."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gossamer.core import Public, Rate
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import AdditiveLaw, Calibrated
from gossamer.privacy import Assumption, Clip, Guarantee, NoiseSpec, Unit
from gossamer.problems import Problem, check_clip
from gossamer.spec import kind
from gossamer.topology import Topology

Calibration = Literal["tight", "published"]
"""How noise is scaled: the smallest that we can prove, or as the paper prints it."""

# Step sizes.


def gradient_bound(problem: Problem, clip: float | Clip | None) -> float | None:
    """The largest norm a sample's gradient can have: the clip, the Lipschitz constant, or the smaller of both.

    >>> from gossamer.problems import Logistic
    >>> gradient_bound(Logistic(3, feature_bound=2.0), clip=0.5)
    0.5
    """
    bounded = check_clip(clip)
    bounds = [bound for bound in (bounded.norm if bounded else None, problem.lipschitz) if bound is not None]
    if not bounds:
        return None
    regularisation = problem.l2 * problem.domain.radius if problem.l2 else 0.0
    return min(bounds) + regularisation


def step_rate(problem: Problem, step: float | Rate | None, clip: float | Clip | None) -> Rate:
    """The step a user gave, or diameter / (gradient bound * sqrt(t)), the textbook choice, where both are known.

    >>> from gossamer.problems import Logistic
    >>> step_rate(Logistic(3), None, None)
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: step: got None; allowed: a positive number ...
    """
    if step is not None:
        return Rate.of("step", step)
    bound = gradient_bound(problem, clip)
    if bound is None or not math.isfinite(bound) or not math.isfinite(problem.domain.diameter):
        hint = "give a step, or a problem with a bounded domain and a feature_bound or a clip, from which it follows"
        raise ConfigurationError("step", step, "a positive number (constant) or a Rate", hint)
    return Rate(problem.domain.diameter / bound)


def noisy_step_rate(problem: Problem, step: float | Rate | None, clip: Clip, release: Calibrated[Any]) -> Rate:
    """The step a user gave, or diameter / (root mean square of a noisy gradient * sqrt(t)): all of it public.

    >>> from gossamer import mechanisms, problems, sets
    >>> release = mechanisms.Independent((4,), law="gaussian").at_scale(noise=2.0)
    >>> noisy_step_rate(problems.Logistic(4, domain=sets.L2Ball(1.0)), None, Clip(l2=3.0), release)
    Rate(scale=0.4, power=0.5, delay=0)
    """
    exact = step_rate(problem, step, clip)
    if step is not None:
        return exact
    bound = problem.domain.diameter / exact.scale
    (scales,) = release.scales.values()
    mean = sum(scale.value**2 for scale in scales) / len(scales)
    (spec,) = release.mechanism.noise("speak").values()
    return Rate(problem.domain.diameter / math.sqrt(bound**2 + mean * noise_energy(spec)))


def noise_energy(spec: NoiseSpec) -> float:
    """The mean squared norm of one additive draw at unit scale.

    >>> noise_energy(NoiseSpec("l2-laplace", (3,), used_in="speak"))
    12.0
    """
    d = spec.size
    return float({"laplace": 2 * d, "gaussian": d, "l2-laplace": d * (d + 1)}[spec.law])


def require_averaging(topology: Topology) -> None:
    """Refuse weights under which gossip does not converge to the average: the algorithm would favour some learners.

    >>> from gossamer import topology
    >>> require_averaging(topology.star(5, weights="uniform"))
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: topology: got 'star(5, uniform)'; allowed: doubly stochastic weights. Use ...
    """
    if not isinstance(topology, Topology):
        raise ConfigurationError("topology", topology, "a topology", "try gossamer.topology.ring(16)")
    if not topology.is_doubly_stochastic():
        hint = "use weights='metropolis' on an undirected graph"
        raise ConfigurationError("topology", topology.name, "doubly stochastic weights", hint)


def require_oracle(problem: Problem) -> None:
    """Refuse an unbounded decision set, on which a linear function has no minimum.

    >>> from gossamer.problems import Linear
    >>> require_oracle(Linear(3))
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: domain: got Everywhere(); allowed: a bounded set. A linear oracle ...
    """
    if not math.isfinite(problem.domain.radius):
        hint = "a linear oracle minimises over it: try domain=sets.L2Ball(10.0)"
        raise ConfigurationError("domain", problem.domain, "a bounded set", hint)


# Guarantees of one release.


def noised_once(release: Calibrated[Any], clip: Clip, *, proof: str) -> Guarantee:
    """The guarantee of a learner whose messages and decisions are functions of gradients that were noised once.

    Args:
        release: what the gradients go through.
        clip: of every sample's gradient.
        proof: where to read it.

    >>> from gossamer.mechanisms import Independent
    >>> from gossamer.privacy import Budget, Sensitivity
    >>> release = Independent((1,)).calibrate(Sensitivity(2.0, 2.0), Budget(1.0))
    >>> noised_once(release, Clip(l2=1.0), proof="docs/algorithms/pd_ogd.md").basis
    'proven'
    """
    promise = raw_decisions(release, clip, proof=proof)
    return replace(
        promise,
        basis="proven",
        reason="",
        observer="peers",
        repeats="compose",  # each occurrence of a record is a gradient of its own
        assumptions=(
            *promise.assumptions,
            Assumption("a sample enters one gradient", "gossamer.core.Every: each exchange reads new samples"),
        ),
    )


def raw_decisions(release: Calibrated[Any], clip: Clip, *, proof: str, claims: str = "") -> Guarantee:
    """The guarantee of published noise on messages, where what is played is not noised; `claims`: what its paper says.

    >>> from gossamer.mechanisms import Independent
    >>> from gossamer.privacy import Budget, Sensitivity
    >>> release = Independent((1,), horizon=9).calibrate(Sensitivity(2.0, 2.0), Budget(1.0))
    >>> raw_decisions(release, Clip(l2=1.0), proof="docs/algorithms/pd_ogd.md").observer
    'wiretap'
    """
    clipped = "gossamer.problems.Problem.clipped_data_gradient_sum"
    raw = "decisions are functions of raw gradients: whoever sees one besides the messages learns everything"
    return Guarantee(
        basis="published",
        reason="; ".join(filter(None, (claims, raw))),
        losses=release.losses,
        deltas=release.deltas,
        unit=Unit.SAMPLE,
        observer="wiretap",
        horizon=release.mechanism.horizon,
        assumptions=(Assumption(f"every sample's gradient is clipped: {clip}", clipped),),
        proof=proof,
    )


def published_horizon(problem: Problem, horizon: int | None, noise: AdditiveLaw) -> int:
    """The horizon, where noise with a share of the budget for every message, and raw decisions, can be had.

    >>> from gossamer import problems
    >>> published_horizon(problems.Logistic(2), None, "laplace")
    Traceback (most recent call last):
    gossamer.errors.PrivacyError: horizon: got None; allowed: a number of steps. The published noise shares ...
    """
    if horizon is None:
        raise PrivacyError.of("horizon", None, "a number of steps", "the published noise shares a budget among them")
    if problem.l2:
        hint = "decisions are raw here, and l2 times a raw decision would move messages beyond the clip"
        raise PrivacyError.of("l2", problem.l2, "0 with calibration='published'", hint)
    if noise != "laplace":
        raise ConfigurationError("noise", noise, "'laplace' with calibration='published'", "the paper has no other")
    return horizon


def require_one_bound(clip: Clip) -> None:
    """Refuse clips that are no projection on one Euclidean ball: others may move gradients apart.

    >>> require_one_bound(Clip(l1=1.0))
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: clip: got Clip(l1=1.0); allowed: one bound of the Euclidean norm. How far ...
    """
    if clip.order == 1 or clip.blocks is not None:
        hint = "how far points that are not noised carry a sample is known for such a clip only"
        raise ConfigurationError("clip", clip, "one bound of the Euclidean norm", hint)


# Schedules of exchanges 1, 2, ...


@kind("public", "lagged")
@dataclass(frozen=True)
class Lagged:
    """A rate one exchange late, as paper 002 writes it: y(t) is made with alpha(t-1), and alpha(0) is alpha(1).

    >>> Lagged(Rate(1.0))(np.array([1, 2, 5]))
    array([1. , 1. , 0.5])
    """

    rate: Rate

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The rate of the exchange before each."""
        return self.rate(np.maximum(t - 1, 1))

    def __str__(self) -> str:
        return str(self.rate).replace("t^", "max(t-1, 1)^").replace("(t + ", "(max(t-1, 1) + ")


@kind("public", "geometric")
@dataclass(frozen=True)
class Geometric:
    """scale * ratio^t at exchange t = 1, 2, ...

    >>> Geometric(2.0, 0.5)(np.array([1, 2]))
    array([1. , 0.5])
    """

    scale: float
    ratio: float

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The value at each exchange."""
        return np.asarray(self.scale * self.ratio ** t.astype(np.float64))

    def __str__(self) -> str:
        return f"{self.scale:.4g} * {self.ratio:g}^t at exchange t"


@kind("public", "growth")
@dataclass(frozen=True)
class Growth:
    """(t + 1)^power at exchange t = 1, 2, ...

    >>> Growth(0.5)(np.array([3, 8]))
    array([2., 3.])
    """

    power: float

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The value at each exchange."""
        return np.asarray((t + 1).astype(np.float64) ** self.power)

    def __str__(self) -> str:
        return f"(t + 1)^{self.power:g} at exchange t"


@kind("public", "delayed")
@dataclass(frozen=True)
class Delayed:
    """A rate that is zero for the first `delay` exchanges, while samples are gathered.

    >>> Delayed(Rate(1.0), 2)(np.array([1, 2, 4]))
    array([0. , 0. , 0.5])
    """

    rate: Rate
    delay: int

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The rate at each exchange."""
        return np.asarray(np.where(t <= self.delay, 0.0, self.rate(t)), np.float64)


@kind("public", "shifted")
@dataclass(frozen=True)
class Shifted:
    """A schedule one exchange late, with a value of its own at the first exchange, which no sample precedes.

    >>> Shifted(Rate(1.0), first=0.0)(np.array([1, 2, 5]))
    array([0. , 1. , 0.5])
    """

    schedule: Public
    first: float

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """What the schedule has at the exchange before each."""
        return np.asarray(np.where(t == 1, self.first, self.schedule(np.maximum(t - 1, 1))), np.float64)


@kind("public", "share")
@dataclass(frozen=True)
class Share:
    """The share of the newest y in an average whose weights grow like t^power, counted from the delay on.

    >>> Share(1, 0)(np.array([1, 2, 3]))
    array([1.        , 0.66666667, 0.5       ])
    """

    power: int
    delay: int

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """1 until the delay is over."""
        return np.asarray((1 + self.power) / (np.maximum(t - self.delay, 1) + self.power), np.float64)


@kind("public", "table")
@dataclass(frozen=True)
class Table:
    """One value for every exchange, and the last one for all after it.

    >>> Table((1.0, 0.5))(np.array([1, 2, 9]))
    array([1. , 0.5, 0.5])
    """

    values: tuple[float, ...]

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The value at each exchange."""
        return np.take(np.asarray(self.values, np.float64), np.minimum(t, len(self.values)) - 1)


FIRST = Table((1.0, 0.0))
"""1 at the first exchange, then 0."""
