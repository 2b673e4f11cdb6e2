"""What privacy costs by epsilon and by the number of samples, in the settings of the demo: `python -m bench.choose`.

Writes docs/evidence/choose.md. A quarter, all and four times the samples of the demo; five seeds of the noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gossamer.cli import demo
from gossamer.reports.html import versions

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "choose.md"
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
FACTORS = (0.25, 1, 4)
HEAD = ("setting", "samples a learner", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS), "not private")
SETTINGS: dict[str, tuple[Callable[[int], demo.Setting], int]] = {
    "neighbours (`pd_ftgl`), accuracy": (demo.neighbours, 4000),
    "a server (`online_federated`), accuracy": (demo.server, 4000),
    "a stream without end (`ldp_endless`), accuracy": (demo.endless, 8000),
    "coordinates (`dpsda_c`), loss": (demo.coordinates, 5000),
    "experts (`fed_svt`), wrong choices": (demo.experts, 4096),
}


def rows() -> Iterator[tuple[str, ...]]:
    for name, (make, usual) in SETTINGS.items():
        for factor in FACTORS:
            steps = round(factor * usual)
            setting = make(steps)
            made = [*map(setting.private, EPSILONS), setting.open]
            runs = [demo.simulate_seeds(algorithm, setting.stream, steps) for algorithm in made]
            cells = [demo.cell(setting, demo.scores(setting, run)).replace("\n", " (") for run in runs]
            yield name, f"{steps:,}", *(f"{cell})" if "(" in cell else cell for cell in cells)


def main() -> None:
    begun = time.perf_counter()
    lines = [f"| {' | '.join(row)} |" for row in (HEAD, ("---",) * len(HEAD), *rows())]
    intro = (
        "# Evidence: what privacy costs by epsilon and by samples\n\n"
        "Written by `python -m bench.choose` (part of `make evidence`). The settings are those of "
        "[the demo](../../README.md#two-commands), with the options chosen there for its own number of samples.\n"
        "Mean over five seeds of the noise, in brackets the least and the largest. Delta is 1e-5, and 0 for experts.\n"
    )
    taken = f"Taken in {time.perf_counter() - begun:.0f} s with {versions()}."
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join([intro, *lines, "", taken, ""]))


if __name__ == "__main__":
    main()
