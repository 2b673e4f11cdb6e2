"""What an idle network does to its model: `python -m bench.idle` writes docs/evidence/idle.md. Minutes.

Four sites learn from the tumours of examples/private-ring.toml, every record once. Then nothing comes any more.
On nodes, with ledgers, over a transport in memory: what an agreement allows. In the simulator, whose learners are the
same functions: what agreements refuse, and ends that are agreed too late. At last what a neighbour sees.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer import Budget, algorithms, data, problems, sets, simulate, streams, topology
from gossamer.core import Algorithm, Rate
from gossamer.net.node.agreement import Arrivals, frame_format, prepared
from gossamer.net.node.correspondence import Pace
from gossamer.net.node.participant import Participant
from gossamer.reports.html import versions
from tests.networks import Hub, _run, make_member, run_all

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "idle.md"
SITES, IDLE, SEEDS = 4, (0, 1_000, 10_000), range(20)
PERIOD = 0.002  # seconds, of the nodes whose accuracy is measured
EXCHANGES, TIMED, SLOW = (
    1_000,
    0.05,
    0.002,
)  # where moments are measured, their period, seconds that reading takes there
RECORDS = data.breast_cancer()
SAMPLES = len(RECORDS.y_train) // SITES
PROBLEM = problems.Logistic(RECORDS.x_train.shape[1], feature_bound=5.5, domain=sets.L2Ball(3.0))
BUDGET = Budget(8.0, 1e-5)


def gradients(step: float | Rate | None = None) -> Algorithm:
    """As in the example; the step is the default one where none is given."""
    ring = topology.ring(SITES)
    return algorithms.pd_ogd(PROBLEM, ring, budget=BUDGET, clip=1.0, noise="gaussian", step=step)


def sums(horizon: int, epsilon: float = 8.0) -> Algorithm:
    """Noisy sums of all gradients, whose noise is correlated, so that it grows slowly."""
    ring = topology.ring(SITES, weights="lazy")
    options = {"aggregation": "blt", "steps_per_exchange": 1, "regularization": 0.3}
    budget = Budget(epsilon, 1e-5)
    return algorithms.pd_ftgl(PROBLEM, ring, budget=budget, clip=1.0, noise="gaussian", horizon=horizon, **options)


def accuracy(decision: Any) -> float:
    """On the records held out."""
    return float(np.mean(np.asarray(PROBLEM.predict(np.asarray(decision), RECORDS.x_test)) == RECORDS.y_test))


def own(learner: int) -> list[tuple[NDArray[np.float32], Any]]:
    rows = range(learner, SITES * SAMPLES, SITES)
    return [(RECORDS.x_train[row], RECORDS.y_train[row]) for row in rows]


def on_nodes(folder: Path, arrivals: Arrivals) -> tuple[list[float], list[int]]:
    """Accuracy (mean of sites) and exchanges, so many periods after the last sample."""
    algorithm, hub = prepared(gradients()), Hub()
    pace = Pace(deadline=60.0, patience=60.0, retry=0.05, period=PERIOD)
    end = SAMPLES if arrivals == "hidden" else None
    given = {"pace": pace, "arrivals": arrivals, "exchanges": end}
    made = [make_member(folder / str(i), algorithm, i, hub.transport(i), own(i), **given) for i in range(SITES)]
    for one in made:
        threading.Thread(target=_run, args=(one,), daemon=True).start()
    while min(one.node.ledger.last.exchange for one in made) < SAMPLES - 1 or any(
        one.node.board.state not in ("waiting", "finished") for one in made
    ):
        time.sleep(0.05)
    used, shown, exchanges = time.monotonic(), [], []
    for periods in IDLE:
        time.sleep(max(0.0, used + periods * PERIOD - time.monotonic()))
        shown.append(float(np.mean([accuracy(one.node.board.decision()["decision"]) for one in made])))
        exchanges.append(max(one.node.ledger.last.exchange for one in made) + 1)
    for one in made:
        one.node.stop()
    return shown, exchanges


def stream(empty: int) -> streams.Stream:
    """The records, dealt in turn, and then so many steps in which no site has one."""
    steps = SAMPLES + empty
    x = np.zeros((steps * SITES, PROBLEM.dim), np.float32)
    y = np.zeros(steps * SITES, np.int32)
    x[: SAMPLES * SITES], y[: SAMPLES * SITES] = (
        leaf[: SAMPLES * SITES] for leaf in (RECORDS.x_train, RECORDS.y_train)
    )
    return streams.from_arrays(x, y, SITES, seed=0, shuffle=False)


def simulated(algorithm: Algorithm, empty: Sequence[int], averaged: bool = False) -> list[float]:
    """Accuracy, mean over sites and seeds, after so many exchanges without a sample."""
    found, given = [], stream(max(empty))
    for exchanges in empty:
        steps, options = SAMPLES + exchanges, {"progress": False, "record": ["decisions"] if averaged else []}
        runs = [simulate(algorithm, given, steps, seed=seed, **options) for seed in SEEDS]
        played = [run.transcript["decisions"].mean(axis=0) if averaged else run.decisions for run in runs]
        found.append(float(np.mean([accuracy(one) for run in played for one in run])))
    return found


WITHOUT_END: dict[str, Callable[[], list[float]]] = {
    "constant steps of 0.1": lambda: simulated(gradients(0.1), IDLE),
    "steps that fall like 1/sqrt(t), the default": lambda: simulated(gradients(), IDLE),
    "likewise, and the average of all decisions is shown": lambda: simulated(gradients(), IDLE, averaged=True),
    "steps that fall like 1/t, 10 / (t + 30)": lambda: simulated(gradients(Rate(10.0, 1.0, 30)), IDLE),
    "sums with correlated noise (`pd_ftgl`, blt)": lambda: simulated(sums(SAMPLES + IDLE[-1]), IDLE),
    "likewise, epsilon 1": lambda: simulated(sums(SAMPLES + IDLE[-1], 1.0), IDLE),
}
LATE = (1.0, 1.1, 1.25, 1.5, 2.0, 4.0)


def seen(folder: Path, arrivals: Arrivals, period: float) -> tuple[float, int]:
    """How well moments tell samples apart, for a neighbour; how many sizes are not those of a site without samples.

    Half of the samples take a while to read. The others do not; where arrivals are hidden, they do not come at all.
    0.5: moments tell nothing; 1: they tell all.
    """
    algorithm, hub = prepared(gradients()), Hub()
    moments: dict[int, dict[int, float]] = {0: {}, 2: {}}
    sizes: dict[int, dict[int, int]] = {0: {}, 2: {}}
    slow = np.random.default_rng(1).random(EXCHANGES) < 0.5
    pace = Pace(deadline=60.0, patience=60.0, retry=0.5, period=period)

    def samples() -> Iterator[Any]:
        for number, here in enumerate(slow):
            if here:
                time.sleep(SLOW)
            yield own(0)[number % SAMPLES] if here or arrivals == "public" else None

    form, carry = frame_format(algorithm, "0" * 32, Participant(algorithm, 0).leaves), hub.carry

    def noted(sender: int, receiver: int, content: bytes) -> None:
        if receiver == 1 and (frame := form.decode(content, sender)).kind == "message":
            moments[sender].setdefault(frame.exchange, time.monotonic())
            sizes[sender][frame.exchange] = len(content)
        carry(sender, receiver, content)

    hub.carry = noted  # type: ignore[method-assign]
    given = {"pace": pace, "exchanges": EXCHANGES, "arrivals": arrivals}
    of_all = [samples(), *([],) * (SITES - 1)]
    made = [make_member(folder / str(i), algorithm, i, hub.transport(i), of_all[i], **given) for i in range(SITES)]
    run_all(made, seconds=600.0)
    gaps = np.diff([moments[0][exchange] for exchange in range(EXCHANGES)])
    return auc(gaps, slow[1:]), sum(sizes[0][exchange] != sizes[2][exchange] for exchange in range(EXCHANGES))


def auc(values: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """The chance that a value with the label is larger than one without."""
    with_it, without = values[labels], values[~labels]
    return float(np.mean(with_it[:, None] > without) + np.mean(with_it[:, None] == without) / 2)


def percent(values: Sequence[float]) -> list[str]:
    return [f"{100 * value:.1f} %" for value in values]


def table(*rows: Sequence[str]) -> str:
    head, *rest = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rest)) + "\n"


def main() -> None:
    begun, after = time.perf_counter(), [f"after {idle:,}" for idle in IDLE]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nodes = {
            "public": on_nodes(folder / "public", "public"),
            f"hidden, learning ends after {SAMPLES} exchanges": on_nodes(folder / "hidden", "hidden"),
        }
        attacks = {
            "hidden: whether a sample came": seen(folder / "came", "hidden", TIMED),
            "public: what is in a sample": seen(folder / "content", "public", TIMED),
            "hidden, with a period of 0, which agreements refuse": seen(folder / "control", "hidden", 0.0),
        }
    empty = [round(SAMPLES * (factor - 1)) for factor in LATE]
    late = {
        "`pd_ogd`, default steps": simulated(gradients(), empty),
        "`pd_ftgl`, blt": [simulated(sums(SAMPLES + more), [more])[0] for more in empty],
    }
    sections = [
        "# Evidence: what an idle network does to its model\n",
        "Written by `python -m bench.idle` (part of `make evidence`). Four sites on a ring learn from tumours, with\n"
        f"`pd_ogd` and epsilon 8 but where something else is said. Each site has {SAMPLES} records, and uses each\n"
        f"once. Then none comes. Accuracy is on {len(RECORDS.y_test)} records held out, mean over sites.\n",
        "## What agreements allow\n",
        f"On nodes with ledgers, over a transport in memory, with a period of {PERIOD:g} s: so many empty periods\n"
        "after the last sample. One run of each.\n",
        table(
            ["arrivals", *after, "exchanges"],
            *([name, *percent(found), f"{made[0]}; at the end {made[-1]}"] for name, (found, made) in nodes.items()),
        ),
        "## What agreements refuse\n",
        f"Hidden arrivals without an end to learning: after so many exchanges without a sample. In the simulator,\n"
        f"whose learners are the same functions; mean over {len(SEEDS)} seeds.\n",
        table(["what", *after], *([name, *percent(found())] for name, found in WITHOUT_END.items())),
        "## An end that comes too late\n",
        "Hidden arrivals. Learning ends after that many times the exchanges for which there are samples. In the\n"
        f"simulator; mean over {len(SEEDS)} seeds.\n",
        table(
            ["algorithm", *(f"{factor:g} times" for factor in LATE)],
            *([name, *percent(found)] for name, found in late.items()),
        ),
        "## What a neighbour sees\n",
        f"On nodes with a period of {TIMED:g} s, {EXCHANGES:,} exchanges. One site has samples; half of them, by\n"
        f"chance, take {SLOW:g} s to read. Where arrivals are public the others take no time; where they are hidden,\n"
        "there are no others. The area under the curve says how well the times between messages tell the two halves\n"
        f"apart: 0.5 is chance, with a standard error of {0.577 / EXCHANGES**0.5:.2f}; 1 tells all.\n",
        table(
            ["what a neighbour wants to know", "area", "messages whose size differs from another site's"],
            *([name, f"{area:.2f}", str(sizes)] for name, (area, sizes) in attacks.items()),
        ),
        f"Taken in {time.perf_counter() - begun:.0f} s with {versions()}.\n",
    ]
    PAGE.write_text("\n".join(sections))


if __name__ == "__main__":
    main()
