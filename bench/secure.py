"""What secure noise costs on one core: `python -m bench.secure` prints what docs/secure-noise.md quotes.

Times are of the processor, not of the wall: other programs on the machine count only by the cache they take away.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.tools import print_table, seconds
from gossamer.privacy import FastNoise, NoiseSpec, Scale
from gossamer.privacy.keystream import Keystream
from gossamer.privacy.noise import Law, NoiseSource
from gossamer.privacy.secure import SecureNoise

REPEATS = 9
HEADINGS = ("noise", "learners x exchanges x values", "million values a second", "ns a value", "us a draw")
SECURE = SecureNoise(bytes(32), run_id="bench", digest="bench")  # a key that is no secret: for timing only
SPACINGS: dict[Law, int] = {"laplace": 200_001, "gaussian": 700_001, "l2-laplace": 6_001}


@dataclass(frozen=True)
class Case:
    """One line of the table: a call, and how many draws of how many values it makes."""

    name: str
    learners: int
    exchanges: int
    values: int
    call: Callable[[], object]

    def row(self, times: list[float]) -> list[str]:
        """Its cells, from the seconds of every repeat."""
        draws = self.learners * self.exchanges
        rates = [draws * self.values / each / 1e6 for each in times]
        median = statistics.median(times)
        return [
            self.name,
            f"{self.learners} x {self.exchanges:,} x {self.values:,}",
            f"{statistics.median(rates):.1f} ({min(rates):.1f} - {max(rates):.1f})",
            f"{median / (draws * self.values) * 1e9:,.0f}",
            f"{median / draws * 1e6:,.2f}",
        ]


def draw(noise: NoiseSource, law: Law, learners: int, exchanges: int, values: int) -> Case:
    spec, grid = NoiseSpec(law, (values,), used_in="speak"), 2.0**-20
    scales = [Scale(SPACINGS[law] * grid, grid)] * learners
    name = f"{'' if isinstance(noise, SecureNoise) else 'FastNoise, '}{law}"
    return Case(name, learners, exchanges, values, lambda: noise.draw("x", spec, scales, 0, exchanges))


def keystream(learners: int, exchanges: int, values: int) -> Case:
    """The 16 bytes that a value takes, and nothing else."""
    streams = [Keystream(bytes(32), blocks=-(-values // 4)) for _ in range(learners)]
    words = np.empty((exchanges, 8 * -(-values // 4)), np.uint64)

    def call() -> None:
        for stream in streams:
            stream.fill(words, 0)

    return Case("keystream alone", learners, exchanges, values, call)


def cases() -> list[Case]:
    middle, large, small, single = (16, 512, 112), (1, 1, 1_000_000), (16, 1000, 5), (16, 1, 5)
    return [
        *(draw(SECURE, law, *middle) for law in SPACINGS),
        draw(FastNoise(0), "laplace", *middle),
        draw(FastNoise(0), "gaussian", *middle),
        keystream(*middle),
        draw(SECURE, "laplace", *large),
        draw(SECURE, "gaussian", *large),
        keystream(*large),
        draw(SECURE, "laplace", *small),
        draw(SECURE, "gaussian", *small),
        draw(SECURE, "laplace", *single),
    ]


def rows(repeats: int = REPEATS) -> list[list[str]]:
    """The table, without its headings: medians of interleaved repeats, with the range over the repeats."""
    measured = cases()
    times: list[list[float]] = [[] for _ in measured]
    for case in measured:
        case.call()  # tables and caches
    for _ in range(repeats):
        for case, each in zip(measured, times, strict=True):
            each.append(seconds(case.call, clock=time.thread_time))
    return [case.row(each) for case, each in zip(measured, times, strict=True)]


def main() -> None:
    title = "Secure noise on one core: medians of interleaved repeats, with the range over the repeats"
    print_table(title, HEADINGS, rows())


if __name__ == "__main__":
    main()
