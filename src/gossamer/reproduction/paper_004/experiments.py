"""Runs the cases of paper 004, each part stored when it is finished."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from gossamer.algorithms import summed
from gossamer.core import Algorithm
from gossamer.metrics import expert_regret
from gossamer.reproduction.claims import Estimate
from gossamer.reproduction.lab import Lab, promised, setting
from gossamer.reproduction.paper_004.cases import ADVERSARIES, EXPERTS, GAP, Case, Gains, hidden, realizable, stochastic
from gossamer.reproduction.paper_004.plan import Plan, Sizes
from gossamer.reproduction.store import Result, fingerprint, rounded
from gossamer.simulation import Run, simulate
from gossamer.streams import Experts, Stream

Doubles = NDArray[np.float64]
DRAWS = 2000  # of the bootstrap
DATA_SEED = 40  # of the first stream


class Fit(NamedTuple):
    """By which power of m regret falls, with a 95 % interval, and the m it is fitted over."""

    exponent: float
    low: float
    high: float
    clients: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.exponent:.2f} ({self.low:.2f} to {self.high:.2f}), m = {self.clients[0]} to {self.clients[-1]}"


def exponent(clients: Sequence[int], regrets: Doubles, floor: float) -> Fit | None:
    """The fitted exponent of 1/m in the mean regret, where that is above the floor; None with fewer than two such m.

    The interval is a percentile bootstrap over the streams, the same ones for all m.

    Args:
        clients: all m.
        regrets: axes (m, stream).
        floor: what is not about m: below it nothing is fitted.

    >>> fit = exponent([1, 4, 16], np.array([[64.0, 66.0], [32.0, 33.0], [1.0, 1.0]]), floor=2.0)
    >>> round(fit.exponent, 3), fit.clients
    (0.5, (1, 4))
    """
    regrets = np.asarray(regrets, np.float64)
    used = regrets.mean(axis=1) > floor
    if used.sum() < 2:
        return None
    logs, values = np.log(np.asarray(clients, np.float64)[used]), regrets[used]
    picks = np.random.default_rng(0).integers(values.shape[1], size=(DRAWS, values.shape[1]))
    means = np.maximum(values[:, picks].mean(axis=2), floor / 100)
    centred = logs - logs.mean()
    slopes = -(centred @ np.log(means)) / np.sum(centred**2)
    slope = -(centred @ np.log(values.mean(axis=1))) / np.sum(centred**2)
    low, high = np.quantile(slopes, [0.025, 0.975])
    return Fit(float(slope), float(low), float(high), tuple(np.asarray(clients)[used].tolist()))


def coin_regret(horizon: int, experts: int) -> float:
    """The expected regret of every algorithm on fair coins: T/2 less the expected least of d binomial numbers.

    >>> round(coin_regret(4096, 20), 1), round(float(np.sqrt(2048 * np.log(20))), 1)
    (59.8, 78.3)
    """
    survive = stats.binom.sf(np.arange(horizon), horizon, 0.5)
    return horizon / 2 - float(np.sum(survive**experts))


@cache
def made(case: Case, clients: int, horizon: int) -> Algorithm:
    """The algorithm of a case: some take a while to calibrate, and all are asked for again and again."""
    return case.make(clients, horizon)


class ExpertLab(Lab[Plan]):
    """All runs of paper 004."""

    def stochastic(self, title: str, case: Case, clients: int, gap: float = GAP) -> Result:
        """Fed-DP-OPE-Stoch, or a reference, on stochastic experts."""
        sizes = self.plan.stochastic
        if case.supply == "samples":
            sizes = replace(sizes, streams=max(2, sizes.streams // 8))
        return self._cell(f"stochastic, gap {gap:g}, {title}", case, clients, sizes, partial(stochastic, gap=gap))

    def realizable(self, title: str, case: Case, clients: int) -> Result:
        """Fed-SVT, or a reference, on realizable experts."""
        sizes = self.plan.realizable
        if case.supply == "sums":
            sizes = replace(sizes, streams=max(2, sizes.streams // 6), seeds=min(2, sizes.seeds))
        return self._cell(f"realizable, {title}", case, clients, sizes, realizable)

    def hidden(self, title: str, case: Case, clients: int) -> Result:
        """Fed-SVT on the construction behind Theorem 2.7."""
        sizes = replace(self.plan.realizable, horizon=self.plan.realizable.hidden)
        return self._cell(f"hidden expert, {title}", case, clients, sizes, hidden)

    def general(self, adversary: str, title: str, case: Case, clients: int) -> Result:
        """Against a general oblivious adversary."""
        return self._cell(f"{adversary}, {title}", case, clients, self.plan.oblivious, ADVERSARIES[adversary])

    def smooth(self, beta: float, release: str) -> Result:
        """Fed-DP-OPE-Stoch, local and pure, on losses of this smoothness."""
        sizes = self.plan.smooth
        seeds = list(range(sizes.seeds))

        def drawn(stream: int) -> Gains:
            return Gains.of(sizes.clients, sizes.horizon, beta, DATA_SEED + stream)

        algorithm = drawn(0).algorithm(release)

        def compute() -> Result:
            begun, regrets = time.perf_counter(), []
            play = partial(simulate, seeds=seeds, measure="local", progress=False, record=("decisions",))
            for number in range(sizes.streams):
                gains = drawn(number)
                run = play(algorithm, gains.stream(), sizes.horizon)
                best = gains.least()
                played = by_step(run, algorithm, sizes.horizon)
                regrets.append([float(np.sum(gains.losses(each) - best)) for each in played])
            return {"regret": rounded(regrets), "seconds": round(time.perf_counter() - begun, 2)}

        shape = {"streams": [DATA_SEED, sizes.streams], "stream": fingerprint(drawn(0).stream()), "beta": beta}
        where = setting(algorithm, seeds, **shape)
        found = self.store.cell(f"smooth, beta {beta:.2g}, {release}", where, compute)
        return found | _facts(algorithm, sizes.clients, sizes.horizon)

    def uniform(self, beta: float) -> float:
        """The regret of playing all experts alike on the same samples."""
        sizes, alike = self.plan.smooth, np.full((1, EXPERTS), 1 / EXPERTS)

        def compute() -> Result:
            drawn = [Gains.of(sizes.clients, sizes.horizon, beta, DATA_SEED + each) for each in range(sizes.streams)]
            return {"regret": rounded([float(np.sum(each.losses(alike) - each.least())) for each in drawn])}

        where = {"beta": beta, "horizon": sizes.horizon, "clients": sizes.clients, "streams": sizes.streams}
        found = self.store.cell(f"smooth, beta {beta:.2g}, uniform", where, compute)
        return float(np.mean(found["regret"]))

    def _cell(self, title: str, case: Case, clients: int, sizes: Sizes, draw: Callable[[int, int], Stream]) -> Result:
        """The regrets of a case on all streams, drawn for the clients from a seed; guarantee and traffic."""
        horizon, algorithm = sizes.horizon, made(case, clients, sizes.horizon)
        where = {
            "algorithm": algorithm.spec(),
            "stream": draw(clients, DATA_SEED).description,
            "streams": [DATA_SEED, sizes.streams],
            "seeds": sizes.seeds,
            "horizon": horizon,
        }

        def compute() -> Result:
            begun = time.perf_counter()
            streams = [draw(clients, DATA_SEED + number) for number in range(sizes.streams)]
            found = [_regrets(algorithm, case, each, clients, horizon, range(sizes.seeds)) for each in streams]
            kinds = {kind: rounded([each[kind] for each in found]) for kind in found[0]}
            return kinds | {"seconds": round(time.perf_counter() - begun, 2)}

        return self.store.cell(f"{title}, m={clients}", where, compute) | _facts(algorithm, clients, horizon)


def _facts(algorithm: Algorithm, clients: int, horizon: int) -> dict[str, Any]:
    """What needs no run: the guarantee, and what is sent to the server."""
    promise, exchanges = algorithm.guarantee, algorithm.schedule.exchanges(horizon)
    return {
        **promised(promise),
        "observer": promise.observer if promise.basis != "none" else None,
        "exchanges": exchanges,
        "numbers": clients * exchanges * algorithm.problem.dim,
    }


def _regrets(
    algorithm: Algorithm, case: Case, stream: Stream, clients: int, horizon: int, seeds: Sequence[int]
) -> dict[str, list[float]]:
    """Per-client regret of every seed: in hindsight, and, where there is a best expert and a gap, in expectation."""
    pooled, steps, rows = case.supply == "pooled", horizon, stream
    if case.supply != "samples":
        assert isinstance(stream, Experts)
        rows, algorithm = stream.sums(algorithm.schedule, horizon, pooled=pooled), summed(algorithm, pooled=pooled)
        assert rows.length is not None
        steps = rows.length
    run = simulate(
        algorithm, rows, steps, seeds=list(seeds), measure="local", progress=False, record=("decisions",) * _few(steps)
    )
    share = clients if pooled else 1
    found = {"regret": (expert_regret(run, rows).mean(axis=-1) * steps / share).tolist()}
    if case.supply != "samples" and _few(steps) and isinstance(stream, Experts) and stream.means is not None:
        found["expected"] = _expected(run, stream, _counts(made(case, clients, horizon), horizon))
    return found


def _few(steps: int) -> bool:
    """Whether all decisions can be kept."""
    return steps <= 64


def _counts(algorithm: Algorithm, horizon: int) -> Doubles:
    """Steps of every block, and of what is left."""
    blocks = [run.block for run in algorithm.schedule.segments(horizon) for _ in range(run.exchanges)]
    return np.array([*blocks, horizon - sum(blocks)], np.float64)


def _expected(run: Run, stream: Experts, counts: Doubles) -> list[float]:
    """Steps times what the played mixture loses more than the best expert, in expectation."""
    assert stream.means is not None
    excess = _played(run) @ (stream.means - stream.means.min())
    return [float(value) for value in excess @ counts]


def by_step(run: Run, algorithm: Algorithm, horizon: int) -> Doubles:
    """What the clients played, axes (seed, step, expert)."""
    return np.repeat(_played(run), _counts(algorithm, horizon).astype(int), axis=1)


def _played(run: Run) -> Doubles:
    """By block, axes (seed, block, expert): the first client's, as all clients play the same."""
    played = np.concatenate([run.transcript["decisions"], run.decisions[:, None]], axis=1)
    return played[:, :, 0].astype(np.float64)


def by_stream(found: Result, kind: str = "regret") -> list[float]:
    """Mean over the noise seeds, for every stream."""
    return [float(np.mean(each)) for each in found[kind]]


def estimate(found: Result, kind: str = "regret") -> Estimate:
    """The regret with its interval over the streams."""
    return Estimate.of(by_stream(found, kind))


def table_of(found: Sequence[Result], kind: str = "regret") -> Doubles:
    """Axes (m, stream)."""
    return np.array([by_stream(each, kind) for each in found])
