"""Runs the cases of paper 001: tuned and played, each part stored when it is finished."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from gossamer.core import Algorithm
from gossamer.metrics import average_loss
from gossamer.reproduction.lab import Lab, Plan, classified, promised, remembered, runs_of, setting, told
from gossamer.reproduction.paper_001.cases import METHODS, TAU, Case, Digits, logistic_problem, logistic_stream
from gossamer.reproduction.paper_001.plan import Images, Logistic
from gossamer.reproduction.store import Result, fingerprint, rounded
from gossamer.reproduction.tuning import FIRST_TUNING_SEED, search, tuning_seeds
from gossamer.simulation import Run, simulate

Publish = Literal["last", "averaged"]
Protocol = Literal["paper's", "tuned"]

MODELS: tuple[Publish, ...] = ("last", "averaged")
EARLY = 500  # the round whose accuracy the paper gives
EARLY_ACCURACY = 0.7  # and what it is there without noise


class MethodLab(Lab[Plan], ABC):
    """The cases of one figure, by what is asked about them."""

    @abstractmethod
    def cases(self) -> list[Case]:
        """All of them."""

    @abstractmethod
    def final(self, case: Case, step: float) -> Result:
        """The runs behind a number or a curve: by published model, one curve for every run."""

    @abstractmethod
    def shared(self, case: Case) -> float:
        """The step size of the paper's protocol."""

    @abstractmethod
    def tuned(self, case: Case, publish: Publish = "last") -> float:
        """The step size that is best for this method and this model."""

    @abstractmethod
    def accuracy(self, found: Result, publish: Publish) -> list[float]:
        """The accuracy of a published model, for every run."""

    @abstractmethod
    def score(self, found: Result, publish: Publish) -> list[float]:
        """What a step size is chosen by, for every run; more is better."""

    def step(self, case: Case, protocol: Protocol, publish: Publish = "last") -> float:
        """The step size under one of the protocols."""
        return self.shared(case) if protocol == "paper's" else self.tuned(case, publish)

    def steps(self, case: Case) -> list[float]:
        """The step sizes of all final runs of a case."""
        every = (self.shared(case), *(self.tuned(case, publish) for publish in MODELS))
        return list(dict.fromkeys(every))

    def found(self, case: Case, protocol: Protocol, publish: Publish = "last") -> Result:
        """The final runs under one of the protocols."""
        return self.final(case, self.step(case, protocol, publish))


class LogisticLab(MethodLab[Logistic]):
    """Figure 3. Every run has data and noise of its own.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from gossamer.reproduction import Store
    >>> from gossamer.reproduction.paper_001.plan import QUICK
    >>> print(LogisticLab(Store(Path(tempfile.mkdtemp())), QUICK.logistic).case("tree", 0.5))
    figure 3, binary tree, epsilon 0.5, tau 4
    """

    def case(self, method: str, epsilon: float) -> Case:
        """One curve of the figure."""
        return Case(3, method, TAU, epsilon)

    def cases(self) -> list[Case]:
        """Every method at every budget."""
        methods = (*self.plan.methods, *self.plan.extras)
        return [self.case(method, epsilon) for method in methods for epsilon in self.plan.epsilons]

    def final(self, case: Case, step: float) -> Result:
        """All runs, with the round's accuracy on fresh samples and the regret so far."""
        return self._play(case, step, range(self.plan.runs))

    def accuracy(self, found: Result, publish: Publish) -> list[float]:
        """On the fresh samples of all rounds."""
        return [float(np.mean(curve)) for curve in found["accuracy"][publish]]

    def score(self, found: Result, publish: Publish) -> list[float]:
        """The dynamic regret, with its sign turned."""
        return [-curve[-1] for curve in found["regret"][publish]]

    def shared(self, case: Case) -> float:
        """The best step of BLT; for independent noise its own, which is smaller, as in the paper."""
        method = "independent" if case.method == "independent" else "blt"
        return self.tuned(self.case(method, case.epsilon))

    @remembered
    def tuned(self, case: Case, publish: Publish = "last") -> float:
        """By a search from the best step of BLT."""
        limit = np.inf if (smooth := logistic_problem(case.method).smoothness) is None else 2 / smooth
        steps = [step for step in self.plan.steps if step <= limit]

        def loss(step: float) -> float:
            found = self._play(case, step, tuning_seeds(self.plan.trials))
            return -float(np.mean(self.score(found, publish)))

        known = self.tuned(self.case("blt", case.epsilon)) if case.method != "blt" else 0.02
        return search(loss, (steps,), (known,))[0]

    def _play(self, case: Case, step: float, seeds: Sequence[int]) -> Result:
        samples = self.plan.rounds * TAU
        algorithm = case.build(logistic_problem(case.method), samples, step)
        data = [logistic_stream(seed) for seed in seeds]
        where = _setting(
            case, algorithm, samples, seeds, points=self.plan.points, streams=[fingerprint(stream) for stream in data]
        )

        def compute() -> Result:
            every = max(1, self.plan.rounds // self.plan.points)
            options: dict[str, Any] = {"every": every, "progress": False}
            runs = [
                simulate(algorithm, stream, samples, seed=seed, **options)
                for seed, stream in zip(seeds, data, strict=True)
            ]
            return _facts(algorithm, runs) | {
                "rounds": (runs[0].steps // TAU).tolist(),
                "accuracy": _by_model([classified(run) for run in runs]),
                "regret": _by_model([average_loss(run) for run in runs]),
            }

        return self.store.cell(_named(case, step, seeds), where, compute)


@dataclass(frozen=True, eq=False)
class ImageLab(MethodLab[Images]):
    """Figure 4. The images are dealt once, and every run has noise of its own.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from gossamer.reproduction import Store
    >>> from gossamer.reproduction.paper_001.plan import QUICK
    >>> ImageLab(Store(Path(tempfile.mkdtemp())), QUICK.images, Digits(stand_in=True)).rounds(4)
    34
    """

    images: Digits

    def case(self, method: str, tau: int) -> Case:
        """One curve of the figure."""
        return Case(4, method, tau)

    def rounds(self, tau: int) -> int:
        """R."""
        return self.images.samples(tau) // tau

    def cases(self) -> list[Case]:
        """Every method with all its local steps."""
        cases = [self.case(method, tau) for method, taus in self.plan.methods.items() for tau in taus]
        places = list(METHODS)
        return sorted(filter(self.has, cases), key=lambda case: (case.tau, places.index(case.method)))

    def has(self, case: Case) -> bool:
        """Whether a case is part of the plan, and can be run here or has been run elsewhere."""
        if case.tau not in self.plan.methods.get(case.method, ()):
            return False
        if not remembers_all(case) or jax.default_backend() != "cpu":
            return True
        return all(
            self.store.has(*self._cell(case, step, group, self.plan.every)[:2])
            for step in self.steps(case)
            for group in self._groups(case)
        )

    def final(self, case: Case, step: float) -> Result:
        """All runs, with the accuracy on the test images."""
        return _joined([self._play(case, step, group, self.plan.every) for group in self._groups(case)])

    def _groups(self, case: Case) -> list[list[int]]:
        """Seeds that are run in one program: all of them, where they fit into memory."""
        seeds = list(range(self.plan.seeds[case.method]))
        return [[seed] for seed in seeds] if remembers_all(case) else [seeds]

    def accuracy(self, found: Result, publish: Publish) -> list[float]:
        """At the end."""
        return [float(curve[-1]) for curve in found["accuracy"][publish]]

    def score(self, found: Result, publish: Publish) -> list[float]:
        """The accuracy at the end."""
        return self.accuracy(found, publish)

    def shared(self, case: Case) -> float:
        """The step at which training without noise is nearest to where the paper has it at round 500.

        The paper does not state its step size; this is what it says about its curves.
        """
        if self.plan.shared is not None:
            return self.plan.shared
        plain = self.case("none", 1)
        rounds = min(EARLY, self.rounds(1))

        def off(step: float) -> float:
            found = self._play(plain, step, [FIRST_TUNING_SEED], rounds, samples=rounds)
            return abs(self.score(found, "last")[0] - EARLY_ACCURACY)

        return search(off, (self.plan.steps,), (0.01,))[0]

    @remembered
    def tuned(self, case: Case, publish: Publish = "last") -> float:
        """By a search from the best step of one local step, or a start that is known; Toeplitz noise takes BLT's."""
        known, key = self.plan.known, (case.method, case.tau, publish)
        if key in known:
            return known[key]
        if remembers_all(case):
            return self.tuned(self.case("blt", case.tau), publish)
        start = self.plan.starts[case.method] if case.tau == 1 else self.tuned(self.case(case.method, 1), publish)

        seeds = tuning_seeds(1 if case.method == "none" else self.plan.trials)  # without noise all are alike

        def loss(step: float) -> float:
            return -float(np.mean(self.score(self._play(case, step, seeds, self.plan.trial_every), publish)))

        return search(loss, (self.plan.steps,), (start,))[0]

    def _play(self, case: Case, step: float, seeds: Sequence[int], every: int, samples: int | None = None) -> Result:
        return self.store.cell(*self._cell(case, step, seeds, every, samples))

    def _cell(
        self, case: Case, step: float, seeds: Sequence[int], every: int, samples: int | None = None
    ) -> tuple[str, dict[str, Any], Callable[[], Result]]:
        """Name, setting and computation of a cell."""
        horizon = self.images.samples(case.tau)
        samples = horizon if samples is None else samples
        algorithm = case.build(self.images.problem, horizon, step)
        stream = self.images.stream
        size = f"{self.images.problem.dim} parameters"
        where = _setting(case, algorithm, samples, seeds, every=every, streams=[told(stream)], network=size)

        def compute() -> Result:
            run = simulate(
                algorithm,
                stream,
                samples,
                seeds=list(seeds),
                measure="local",
                every=max(1, every // case.tau),
                progress=False,
                test=self.images.test,
            )
            tested = run.test_accuracy
            assert tested is not None  # a network classifies
            return _facts(algorithm, [run]) | {
                "rounds": (run.steps // case.tau).tolist(),
                "accuracy": _by_model(list(tested)),
            }

        return _named(case, step, seeds, samples), where, compute


def remembers_all(case: Case) -> bool:
    """Whether noise of this kind keeps all its rows: for the network many gigabytes, which only an accelerator has."""
    return case.method in ("toeplitz", "optimal", "published")


def _setting(case: Case, algorithm: Algorithm, samples: int, seeds: Sequence[int], **more: Any) -> Result:
    return setting(algorithm, seeds, figure=case.figure, method=case.method, samples=samples, **more)


def _named(case: Case, step: float, seeds: Sequence[int], samples: int | None = None) -> str:
    return f"{case}, step {step:g}, {runs_of(seeds)}" + ("" if samples is None else f", {samples} samples")


def _by_model(curves: Sequence[Any]) -> dict[Publish, Any]:
    """Curves (run, point, learner) by what is played: learner 0 plays the last model, learner 1 the average."""
    return {publish: rounded([curve[:, place] for curve in curves]) for place, publish in enumerate(MODELS)}


def _facts(algorithm: Algorithm, runs: Sequence[Run]) -> Result:
    """What a table says about them: noise, guarantee, averaging."""
    return {
        "noise": algorithm.scales["gradient"][0].value if algorithm.scales else 0.0,
        "publish": str(algorithm.parameters["publish"]),
        **promised(runs[0].guarantee),
        "seconds": round(sum(run.wall_time for run in runs), 2),
        "device": jax.default_backend(),
    }


def _joined(parts: Sequence[Result]) -> Result:
    """Runs of one case that were stored apart."""
    curves = {publish: [curve for part in parts for curve in part["accuracy"][publish]] for publish in MODELS}
    return parts[0] | {"accuracy": curves}
