"""Adversaries of prediction from experts (paper 004): streams whose features are the losses of d experts, 0 to 1.

Stochastic ones draw every loss from one law; oblivious ones fix all losses in advance. `Experts.sums` supplies the sums
of whole blocks instead, drawn from the very law that the sums of samples have: a long run then costs as much as its
exchanges, not as its samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gossamer.checks import check_choice, check_count, check_seed
from gossamer.core import Schedule
from gossamer.errors import ConfigurationError, DataError
from gossamer.privacy.marks import called_by_us
from gossamer.privacy.words import Key, Time, permuted, places
from gossamer.problems.base import Block
from gossamer.streams.base import AS_TOLD, Array, Stream, generator
from gossamer.streams.drawing import Draws, Generated

Law = Literal["bernoulli", "correlated", "heavy"]
Losses = Callable[..., Any]
"""Makes losses (step, learner, expert) from `Draws` and parameters."""

_PAGE_SUMS = 2**18  # sums that are drawn at once


@dataclass(frozen=True)
class _AsSamples:
    """Losses as features; where all clients have the same, they do not depend on how many clients there are."""

    losses: Losses
    alike: bool

    def __call__(self, draws: Draws, *parameters: Any) -> tuple[Any, Any]:
        shape = (len(draws.steps), draws.learners.shape[1])
        x = self.losses(draws.common() if self.alike else draws, *parameters)
        return draws.np.broadcast_to(x, (*shape, draws.dim)), draws.np.zeros(shape, np.float32)


class Experts(Generated):
    """Losses of experts, fresh at every step; where all clients have the same, each occurs once at every client.

    Attributes:
        best: the expert that is best in expectation, or in hindsight; None where chance decides.
        means: the mean loss of every expert, where losses are independent and 0 or 1; then there are `sums`.
    """

    def __init__(
        self,
        losses: Losses,
        *parameters: Any,
        learners: int,
        experts: int,
        seed: int,
        description: str,
        alike: bool = False,
        best: int | None = None,
        means: Array | None = None,
        unlucky: Array | None = None,
    ) -> None:
        check_count("experts", experts, least=2)
        named: dict[str, Any] = {"learners": check_count("learners", learners), "features": (experts,)}
        super().__init__(_AsSamples(losses, alike), *parameters, **named, seed=seed, description=description)
        self.occurrences = learners if alike else 1
        self.promises = () if called_by_us() else (AS_TOLD,)
        self.best, self.means, self._unlucky, self._seed = best, means, unlucky, seed

    def sums(self, schedule: Schedule, steps: int, *, pooled: bool = False) -> Sums:
        """A stream with one row for every block of the schedule: each client's sums, or those of all of them.

        Rows have the law that sums of this stream's samples have, not the same values. Steps after the last block are
        one row more. For algorithms made by `gossamer.algorithms.summed`.

        >>> from gossamer import Every
        >>> sums = realizable_experts(64, 5, seed=0).sums(Every(10), 1000, pooled=True)
        >>> sums.length, sums.read(0, 1).x.shape, float(sums.read(0, 100).x[:, 0].mean().round(-1))
        (100, (1, 1, 5), 260.0)
        """
        if self.means is None:
            raise DataError(f"{self.description}: sums have no simple law; only independent losses of 0 or 1 have them")
        counts = [block for run in schedule.segments(steps) if run.block for block in [run.block] * run.exchanges]
        counts += [rest] if (rest := steps - sum(counts)) else []
        return Sums(self, np.array(counts), pooled)


class Sums(Stream):
    """Sums of independent losses of 0 or 1 are binomial; what is planned is added up.

    Attributes:
        counts: steps of every row.
        means: the mean loss of every expert in one step of one client.
    """

    def __init__(self, whole: Experts, counts: Array, pooled: bool) -> None:
        assert whole.learners is not None
        assert whole.features is not None
        assert whole.means is not None
        self.counts, self.means = counts, whole.means
        self._whole, self._clients = whole, whole.learners if pooled else 1
        self._ends = np.cumsum(counts)
        self.learners, self.length, self.shared = 1 if pooled else whole.learners, len(counts), False
        self.features, self.occurrences, self.promises = whole.features, whole.occurrences, whole.unenforced
        self.description = f"sums over {len(counts)} blocks of {whole.description}"
        self._rows = max(1, _PAGE_SUMS // (self.learners * whole.features[0]))
        self._drawing: dict[int, Future[Array]] = {}

    def fingerprint(self) -> str | None:
        """Of the stream of samples, and of what is added up."""
        whole = self._whole.fingerprint()
        told = f"{whole} {self.learners} of {self._clients} {self.counts.tolist()}"
        return None if whole is None else hashlib.sha256(told.encode()).hexdigest()

    def _read(self, start: int, stop: int) -> Block:
        first, end = start // self._rows, max(start // self._rows + 1, -(-stop // self._rows))
        parts = self._pages(first, end)
        x = np.concatenate(parts)[start - first * self._rows : stop - first * self._rows]
        return Block(x, np.zeros(x.shape[:2], np.float32))

    def _pages(self, first: int, end: int) -> list[Array]:
        """Every page has a generator of its own, and NumPy draws without Python's lock: threads share them.

        As many pages after these are drawn meanwhile, as far as the stream goes: who reads them next need not wait.
        """
        known, until = self._drawing, min(2 * end - first, -(-len(self.counts) // self._rows))
        threads = ThreadPoolExecutor()
        self._drawing = {
            page: known.get(page) or threads.submit(self._drawn, page) for page in range(first, max(end, until))
        }
        threads.shutdown(wait=False)
        return [self._drawing[page].result() for page in range(first, end)]

    def _drawn(self, page: int) -> Array:
        whole, rows = self._whole, slice(page * self._rows, (page + 1) * self._rows)
        counts, ends = self.counts[rows], self._ends[rows]
        rng = generator(whole._seed, f"sums of {whole.description}", page)
        shape = (len(counts), self.learners or 1, len(self.means))
        trials = np.broadcast_to((counts * self._clients)[:, None, None], shape)
        x = rng.binomial(trials, self.means).astype(np.float32)
        if whole._unlucky is not None:
            planned = np.diff(np.searchsorted(whole._unlucky, np.stack([ends - counts, ends])), axis=0)[0]
            x[:, :, whole.best] = self._clients * planned.astype(np.float32)[:, None]
        return x


def stochastic_experts(learners: int, experts: int, *, gap: float = 0.1, law: Law = "bernoulli", seed: int) -> Experts:
    """Losses drawn from one law: mean 1/2, the best expert `gap` less.

    Args:
        learners: how many; each has losses of its own.
        experts: how many.
        gap: between the best expert and all others.
        law: "bernoulli": 0 or 1, all independent. "correlated": 0 or 1, half of the randomness of a step common to all
            experts. "heavy": min(1, Pareto of index 1.5), so mostly small losses and some of 1.
        seed: of everything.

    >>> stream = stochastic_experts(3, 4, seed=0)
    >>> stream.read(0, 2000).x.mean(axis=(0, 1)).round(1), stream.best
    (array([0.4, 0.5, 0.5, 0.5], dtype=float32), 0)
    """
    check_choice("law", law, Law)
    if not 0 <= gap <= 0.5:
        raise ConfigurationError("gap", gap, "a number from 0 to 0.5")
    name = f"stochastic experts ({law}, gap {gap:g})"
    best = _best(experts, seed, name)
    means = np.full(check_count("experts", experts, least=2), 0.5)
    means[best] -= gap
    losses = {"bernoulli": _bernoulli, "correlated": _correlated, "heavy": _heavy}[law]
    known = means if law == "bernoulli" else None
    numbers = (_heavy_sizes(means) if law == "heavy" else means).astype(np.float32)
    return Experts(
        losses, numbers, learners=learners, experts=experts, seed=seed, description=name, best=best, means=known
    )


def realizable_experts(
    learners: int, experts: int, *, mean: float = 0.5, optimal_loss: int = 0, horizon: int | None = None, seed: int
) -> Experts:
    """One expert has no loss, or `optimal_loss` for every client in the whole horizon; others have 0 or 1 at random.

    Args:
        learners: how many; each has losses of its own.
        experts: how many.
        mean: of the losses of all other experts.
        optimal_loss: L*: at so many steps, evenly spread, the best expert has loss 1 for everybody.
        horizon: the steps it is spread over; needed where there is any.
        seed: of everything.

    >>> stream = realizable_experts(2, 3, optimal_loss=4, horizon=100, seed=0)
    >>> stream.read(0, 100).x.sum(axis=0)[:, stream.best].tolist()
    [4.0, 4.0]
    """
    if check_count("optimal_loss", optimal_loss, least=0) and horizon is None:
        raise ConfigurationError("horizon", None, "a number of steps where optimal_loss is positive")
    if not 0 <= mean <= 1:
        raise ConfigurationError("mean", mean, "a number from 0 to 1")
    if horizon is not None:
        check_count("horizon", horizon, least=max(1, optimal_loss))
    name = f"realizable experts (mean {mean:g}, best {optimal_loss})"
    best = _best(experts, seed, name)
    means, named = _one_without_loss(learners, experts, mean, seed=seed, description=name, best=best)
    numbers = means.astype(np.float32)
    if not optimal_loss:
        return Experts(_bernoulli, numbers, **named)
    unlucky = _spread(optimal_loss, horizon or 1)
    return Experts(_planned, numbers, np.uint32(best), unlucky.astype(np.uint32), **named, unlucky=unlucky)


def drifting_experts(learners: int, experts: int, *, period: int = 500, seed: int) -> Experts:
    """An oblivious adversary: who is good changes every `period` steps, and all clients have the same losses.

    In each period a random half of the experts has loss 1 with probability 3/4, the others with 1/4. Over many periods
    all experts are about equally good: whoever follows the leader of the past is misled.

    >>> drifting_experts(2, 6, period=10, seed=0).read(0, 5).x.shape
    (5, 2, 6)
    """
    name = f"drifting experts (period {check_count('period', period)})"
    named: dict[str, Any] = {"learners": learners, "experts": experts, "seed": seed, "description": name}
    return Experts(_drifting, Key.of(check_seed(seed), "who is good"), np.uint32(period), **named, alike=True)


def hard_experts(learners: int, experts: int, *, seed: int) -> Experts:
    """The construction behind Theorem 2.4: fair coins, the same for all clients, so each occurs at every client.

    Nothing that was seen says anything about what comes, so every algorithm loses T/2 in expectation, while the best of
    d experts loses about sqrt(T ln(d) / 2) less: regret that no number of clients lowers.

    >>> stream = hard_experts(3, 4, seed=0)
    >>> losses = stream.read(0, 10).x
    >>> bool((losses == losses[:, :1]).all()), stream.occurrences
    (True, 3)
    """
    return Experts(_coins, learners=learners, experts=experts, seed=seed, description="hard experts", alike=True)


def hidden_expert(learners: int, experts: int, *, seed: int) -> Experts:
    """The construction behind Theorem 2.7: one expert never has a loss, all others always have loss 1.

    Whoever is epsilon-private needs about ln(d) / epsilon samples that point to it, so ln(d) / (m epsilon) steps of m
    clients, before it can be found, and pays 1 at each.

    >>> stream = hidden_expert(1, 3, seed=0)
    >>> stream.read(0, 1).x[0, 0].tolist(), stream.best
    ([1.0, 0.0, 1.0], 1)
    """
    name = "hidden expert"
    best = _best(experts, seed, name)
    means, named = _one_without_loss(learners, experts, 1.0, seed=seed, description=name, best=best)
    return Experts(_bernoulli, means.astype(np.float32), **named)


def _one_without_loss(learners: int, experts: int, mean: float, **named: Any) -> tuple[Array, dict[str, Any]]:
    """The mean losses of experts of whom the best has none, and all that `Experts` is told by name."""
    means = np.full(experts, float(mean))
    means[named["best"]] = 0.0
    return means, {"learners": learners, "experts": experts, "means": means, **named}


def _best(experts: int, seed: int, purpose: str) -> int:
    return int(generator(check_seed(seed), purpose).integers(check_count("experts", experts, least=2)))


def _bernoulli(draws: Draws, means: Array) -> Any:
    return (draws.uniform(draws.dim) < means[None, None]).astype(np.float32)


def _planned(draws: Draws, means: Array, best: Any, unlucky: Array) -> Any:
    """The best expert has loss 1 exactly at the unlucky steps, for everybody."""
    place = draws.np.minimum(draws.np.searchsorted(unlucky, draws.steps.astype(np.uint32)), len(unlucky) - 1)
    lost = (draws.np.asarray(unlucky)[place] == draws.steps)[..., None]
    return draws.np.where(
        (np.arange(draws.dim, dtype=np.uint32) == best)[None, None], lost, _bernoulli(draws, means)
    ).astype(np.float32)


def _correlated(draws: Draws, means: Array) -> Any:
    """With probability 1/2 a client's experts all look at one common number, else each at its own."""
    own, shared, together = draws.uniform(draws.dim), draws.uniform(1), draws.uniform(1) < 0.5
    return (draws.np.where(together, shared, own) < means[None, None]).astype(np.float32)


def _heavy(draws: Draws, sizes: Array) -> Any:
    """min(1, s / U^(2/3)) with U in (0, 1]."""
    return draws.np.minimum(1, sizes[None, None] * (1 - draws.uniform(draws.dim)) ** np.float32(-2 / 3)).astype(
        np.float32
    )


def _heavy_sizes(means: Array) -> Array:
    """min(1, s / U^(2/3)) has the mean 3 s - 2 s^1.5 for s <= 1: s is solved for."""
    s = means / 3
    for _ in range(60):
        s = (means + 2 * s**1.5) / 3
    return s


def _drifting(draws: Draws, good: Key, period: Any) -> Any:
    """Uniform numbers, compared with the means of the period that a step lies in."""
    experts = draws.np.arange(draws.dim, dtype=np.uint32)[None, None]
    number = (draws.steps // period).astype(np.uint32)[..., None]
    at = places(Key(*good), draws.np.zeros_like(experts), Time(number, number * np.uint32(0)))
    order = permuted(experts, np.uint32(draws.dim), at)
    means = draws.np.where(order < draws.dim // 2, np.float32(0.75), np.float32(0.25))
    return (draws.uniform(draws.dim) < means).astype(np.float32)


def _coins(draws: Draws) -> Any:
    return (draws.words(draws.dim) >> 31).astype(np.float32)


def _spread(total: int, steps: int) -> Array:
    """So many of the steps 0, ..., steps-1, evenly spread: those at which t * total / steps passes a whole number."""
    return np.array([-(-number * steps // total) - 1 for number in range(1, total + 1)])
