"""What a run leaves behind."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError, DataError
from gossamer.files import private_file
from gossamer.metrics import average_loss
from gossamer.metrics.summary import numbers_in_words, seed_count, spread_in_words, standard_error
from gossamer.model import Origin, TrainedModel
from gossamer.privacy import Guarantee

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from gossamer.data.schema import Schema
    from gossamer.problems import Problem

Doubles = NDArray[np.float64]

_ARRAYS = (
    "steps",
    "losses",
    "accuracy",
    "consensus",
    "decisions",
    "test_steps",
    "test_losses",
    "test_accuracy",
    "measured",
)


@dataclass(frozen=True, repr=False)
class Run:
    """Losses, accuracy, consensus and traffic of one run, and the guarantee of its algorithm.

    With several seeds every array except `steps` and `test_steps` has a leading seed axis. Arrays cannot be written to.
    The losses, the accuracy and the transcript are functions of private data: they exist in a simulation and are never
    shown by a node on a network.

    Attributes:
        algorithm: what was run, as `Algorithm.describe` tells it.
        name: the algorithm's name.
        guarantee: the algorithm's guarantee, as if run with secure noise.
        measure: "global", "local" or "joint": which samples each decision was measured on.
        steps: (rows,) steps played up to the end of each row.
        losses: (rows, learners) mean loss per sample over the steps since the row before; "joint" has one column, and
            an estimate those of `measured`.
        accuracy: (rows, learners) share of correct predictions likewise; None for problems without classes.
        consensus: (rows,) mean squared distance of the decisions from their average, as each row begins; with more
            than 1,024 learners estimated on as many of them.
        decisions: (learners, coordinates) what each learner would play next.
        messages: how many messages arrived, every gossip step counted; a link that failed delivers none.
        bytes: their size.
        wall_time: seconds.
        seed: the seed, or the list of seeds; None in a loaded run that was saved without.
        transcript: what `record` asked for: axes (exchange, learner, coordinate).
        test_steps: (points,) steps played before each test, at the end of every row; None without a test.
        test_losses: (points, learners) mean loss, on the samples held out, of what each learner would play next; the
            last point is that of `decisions`; "joint" has one column.
        test_accuracy: (points, learners) share of correct predictions likewise; None for problems without classes.
        measured: the numbers of the learners in `losses` and `accuracy` where these are estimated, since there are too
            many learners to measure every decision on the samples of all; None where they are exact.
    """

    algorithm: str
    name: str
    guarantee: Guarantee
    measure: str
    steps: NDArray[np.int64]
    losses: Doubles
    accuracy: Doubles | None
    consensus: Doubles
    decisions: NDArray[np.float32]
    messages: int
    bytes: int
    wall_time: float
    seed: int | list[int] | None = None
    transcript: dict[str, Any] = field(default_factory=dict)
    test_steps: NDArray[np.int64] | None = None
    test_losses: Doubles | None = None
    test_accuracy: Doubles | None = None
    measured: NDArray[np.int64] | None = None

    @property
    def loss_error(self) -> float | None:
        """The standard error of the average loss, over all steps, learners and seeds; None where it is exact."""
        if self.measured is None:
            return None
        last = average_loss(self)[..., -1, :]
        return float(standard_error(last.reshape(-1, last.shape[-1]).mean(axis=0)))

    @property
    def loss_errors(self) -> Doubles | None:
        """(rows,) the standard error of the mean of every row of `losses`; None where they are exact."""
        return None if self.measured is None else standard_error(self.losses)

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            object.__setattr__(self, name, _read_only(getattr(self, name)))
        object.__setattr__(self, "transcript", {name: _read_only(each) for name, each in self.transcript.items()})

    def __repr__(self) -> str:
        """Short, and neither data nor the seed: what shows an object without being asked ends up in logs."""
        steps, learners = int(self.steps[-1]), self.decisions.shape[-2]
        return f"<Run: {self.name}, {steps:,} steps, {learners:,} learners, guarantee {self.guarantee.basis}>"

    def __str__(self) -> str:
        """What ran, how well it did, what it sent, what it promises, how long it took: for people, without the seed.

        Means of losses are functions of private data: print a run where its reader may see them, and log its `repr`.

        >>> from gossamer import algorithms, problems, simulate, streams, topology
        >>> algorithm = algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
        >>> print(simulate(algorithm, streams.random_signs(4, 3, seed=1), 50, seeds=[0, 1]))
        d_ogd on ring(4): 4 learners, 50 steps, 2 seeds, global measure
        average loss ... ± 0.0000 (mean ± standard deviation over 2 seeds)
        consensus error in the last tenth ... ± 0; 400 messages and 4,800 bytes per seed
        No privacy guarantee: messages and decisions are functions of raw gradients.
        ... seconds
        """
        numbers = [f"{name} {number}" for name, number in numbers_in_words(self).items()]
        several, spread = seed_count(self) > 1, spread_in_words(self)
        quality = ", ".join(numbers[:-1]) + f" ({spread})" * bool(spread)
        traffic = f"{numbers[-1]}; {self.messages:,} messages and {self.bytes:,} bytes" + " per seed" * several
        promise = textwrap.fill(self.guarantee.sentence(), 110, subsequent_indent="  ", break_on_hyphens=False)
        return "\n".join([self._what_ran(), quality, traffic, promise, f"{self.wall_time:.1f} seconds"])

    def _what_ran(self) -> str:
        """The first line of the description, and how much of it was played."""
        seeds, learners = seed_count(self), self.decisions.shape[-2]
        counts = [(learners, "learner"), (int(self.steps[-1]), "step"), (seeds, "seed")]
        sizes = [f"{count:,} {name}{'s' * (count != 1)}" for count, name in counts]
        return f"{self.algorithm.partition(chr(10))[0]}: {', '.join(sizes)}, {self.measure} measure"

    def to_dataframe(self) -> pd.DataFrame:
        """One row per (seed,) learner and recorded step: steps, learner, loss, average_loss, accuracy, consensus."""
        try:
            import pandas as pd
        except ImportError as missing:
            raise ConfigurationError(
                "to_dataframe", "no pandas", "an installed pandas", "pip install 'gossamer[data]'"
            ) from missing
        seeds = self.seed if isinstance(self.seed, list) else None
        lead = (len(seeds),) if seeds is not None else self.losses.shape[:-2]
        rows, learners = self.losses.shape[-2:]
        shape = (*lead, rows, learners)
        shown = np.arange(learners) if self.measured is None else self.measured
        columns: dict[str, Any] = {"seed": np.arange(lead[0])[:, None, None]} if lead else {}
        if seeds is not None:
            columns["seed"] = np.array(seeds)[:, None, None]
        columns |= {"step": self.steps[:, None], "learner": shown, "loss": self.losses}
        columns |= {"average_loss": average_loss(self), "consensus": self.consensus[..., None]}
        if self.accuracy is not None:
            columns["accuracy"] = self.accuracy
        return pd.DataFrame({name: np.broadcast_to(values, shape).ravel() for name, values in columns.items()})

    def plot(self) -> go.Figure:
        """Average loss and, where there are classes, accuracy against steps: mean over learners with their range."""
        from gossamer.simulation.plot import figure

        return figure([self])

    def model(self, problem: Problem, learner: int | None = None, schema: Schema | None = None) -> TrainedModel:
        """What a learner would play next, as a model that predicts; it says that it comes from a simulation.

        Args:
            problem: of the algorithm that ran.
            learner: its number; None: the mean over all learners.
            schema: columns of the records, where the run's samples were made by one.

        >>> from gossamer import algorithms, problems, simulate, streams, topology
        >>> problem = problems.Linear(3)
        >>> algorithm = algorithms.d_ogd(problem, topology.ring(4), step=0.1)
        >>> run = simulate(algorithm, streams.random_signs(4, 3, seed=1), 50, seed=0)
        >>> print(run.model(problem).origin)
            a simulation of 50 steps, the mean over its learners
        """
        if seed_count(self) > 1 or self.decisions.ndim != 2:
            raise ConfigurationError("model", f"a run of {seed_count(self)} seeds", "a run of one seed")
        if learner is not None:
            check_count("learner", learner, least=0, most=len(self.decisions) - 1)
        decision = self.decisions.mean(axis=0) if learner is None else self.decisions[learner]
        origin = Origin("simulation", int(self.steps[-1]), learner=learner)
        return TrainedModel(problem, decision, schema, guarantee=self.guarantee, origin=origin)

    def save(self, directory: str | Path, *, public_data: bool = False) -> None:
        """Write `run.json` and `run.npz` into a directory, readable by their owner only from the first byte on.

        They are as private as the data. The seed is left out unless the data are declared public: seed plus messages is
        the raw data.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        arrays = {name: value for name in _ARRAYS if (value := getattr(self, name)) is not None}
        arrays |= {f"transcript/{name}": values for name, values in self.transcript.items()}
        plain = ("algorithm", "name", "measure", "messages", "bytes", "wall_time")
        facts = {name: getattr(self, name) for name in plain} | {"guarantee": json.loads(self.guarantee.to_json())}
        if public_data:
            facts["seed"] = self.seed
        with private_file(directory / "run.npz") as file:
            np.savez(file, allow_pickle=False, **arrays)
        with private_file(directory / "run.json") as file:
            file.write(json.dumps(facts, indent=2).encode())

    @staticmethod
    def load(directory: str | Path) -> Run:
        """Read what `save` wrote."""
        directory = Path(directory)
        try:
            facts = json.loads((directory / "run.json").read_text())
            with np.load(directory / "run.npz", allow_pickle=False) as file:
                arrays = dict(file)
        except FileNotFoundError as missing:
            raise DataError(f"{directory} holds no saved run: {missing.filename} is missing") from missing
        facts["guarantee"] = Guarantee.from_json(json.dumps(facts["guarantee"]))
        prefix = "transcript/"
        transcript = {key.removeprefix(prefix): arrays.pop(key) for key in list(arrays) if key.startswith(prefix)}
        return Run(**{"accuracy": None, **facts, **arrays, "transcript": transcript})


def _read_only(values: Any) -> Any:
    """The same numbers, not to be changed by accident; None stays."""
    if values is None or not (array := np.asarray(values)).flags.writeable:
        return values
    view = array.view()
    view.setflags(write=False)
    return view
