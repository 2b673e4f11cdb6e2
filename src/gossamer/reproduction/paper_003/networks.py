"""Runs the networks of paper 003, and the attack on them, each part stored when it is finished."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.algorithms.endless.ldp_endless import Publish
from gossamer.auditing.dlg import dlg
from gossamer.core import Algorithm
from gossamer.problems import Block, Problem
from gossamer.reproduction.lab import Lab, setting, told
from gossamer.reproduction.paper_003.cases import (
    BASE,
    GROWTHS,
    NETWORK_CLIP,
    NETWORK_GROWTHS,
    NETWORK_STEP,
    RIVALS,
    Pictures,
    network_endless,
    network_rival,
)
from gossamer.reproduction.paper_003.plan import Network
from gossamer.reproduction.store import Result, rounded
from gossamer.simulation import simulate
from gossamer.simulation.testing import HeldOut
from gossamer.streams import Stream


@dataclass(frozen=True, eq=False)
class NetworkLab(Lab[Network]):
    """Figures 2 and 3 and Table II: a network on images."""

    pictures: Pictures

    def table(self, level: float, publish: Publish) -> Result | None:
        """A column of Table II: Algorithm 1 at a multiple of Lap(0.05 (t+1)^(0.1 + 0.01 i))."""
        rounds, scale = self.plan.table_rounds, level * BASE["Table II"]
        return self._played(f"Table II, level {level:g}, {publish}", rounds, scale, GROWTHS, publish)

    def endless(self, publish: Publish) -> Result | None:
        """Algorithm 1 in figure 2 or 3."""
        scale = BASE["figures 2 and 3"]
        return self._played(f"figure, Algorithm 1, {publish}", self.plan.rounds, scale, NETWORK_GROWTHS, publish)

    def rival(self, name: str) -> Result | None:
        """DSGD, DOLA or PDOP in figure 2 or 3."""
        algorithm = network_rival(name, self.pictures.problem, self.plan.rounds)
        return self._cell(f"figure, {RIVALS[name]}", algorithm, self.plan.rounds)

    def attack(self, level: float) -> Result | None:
        """DLG on the first message of every learner: theta(1) is a step from a public point along one gradient.

        Level 0: almost no noise. The attacker knows the label.
        """
        scale = max(level * BASE["Table II"], 1e-9)
        options: dict[str, Any] = {"scale": scale, "growths": GROWTHS, "picks": 1, "publish": "last"}
        algorithm, stream = network_endless(self.pictures.problem, 1, **options), self.pictures.stream(1)
        tries = {"steps": self.plan.attack_steps, "restarts": self.plan.attack_restarts}
        where = setting(algorithm, [0], stream=told(stream), **tries, level=level, images=self.pictures.name)

        def compute() -> Result:
            run = simulate(algorithm, stream, 1, seed=0, measure="local", progress=False, record=("messages",))
            start, block = np.asarray(self.pictures.problem.initial_decision()), stream.read(0, 1)
            errors = []
            for said, x, y in zip(run.transcript["messages"][0], block.x[0], block.y[0], strict=True):
                seen = (start - said) / NETWORK_STEP.scale
                found = dlg(algorithm.problem, start, seen, seed=0, label_known=int(y), clip=NETWORK_CLIP, **tries)
                errors.append(found.error(x))
            black = np.mean(np.square(block.x[0]), axis=(1, 2, 3))
            return {"error": rounded(errors), "black": rounded(black), "device": jax.default_backend()}

        return self._stored(f"DLG, level {level:g}", where, compute)

    def _played(
        self, title: str, rounds: int, scale: float, growths: tuple[float, ...], publish: Publish
    ) -> Result | None:
        options: dict[str, Any] = {"scale": scale, "growths": growths, "picks": self.plan.picks}
        algorithm = network_endless(self.pictures.problem, rounds, **options, publish=publish)
        return self._cell(title, algorithm, rounds, **options)

    def _cell(self, title: str, algorithm: Algorithm, rounds: int, **more: Any) -> Result | None:
        pictures, stream, seeds = self.pictures, self.pictures.stream(rounds), list(range(self.plan.seeds))
        sizes = {"rounds": rounds, "tested": len(pictures.test.y), "points": self.plan.points, **more}
        where = setting(algorithm, seeds, stream=told(stream), images=pictures.name, **sizes)
        return self._stored(title, where, partial(self._compute, algorithm, stream, rounds, seeds))

    def _stored(self, title: str, where: Mapping[str, Any], compute: Callable[[], Result]) -> Result | None:
        """Run now, or read; None where it has to wait for an accelerator."""
        name, anywhere = f"{self.pictures.which}, {title}", self.plan.anywhere or jax.default_backend() != "cpu"
        return self.store.cell(name, where, compute) if anywhere or self.store.has(name, where) else None

    def _compute(self, algorithm: Algorithm, stream: Stream, rounds: int, seeds: list[int]) -> Result:
        run = simulate(
            algorithm,
            stream,
            rounds,
            seeds=seeds,
            measure="local",
            every=max(1, rounds // self.plan.points),
            progress=False,
            test=self.pictures.test,
        )
        block = stream.read(0, rounds)
        seen = Block(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in block))
        means = run.decisions.mean(axis=1, keepdims=True)
        assert run.test_accuracy is not None  # a network classifies
        assert run.test_steps is not None
        return {
            "rounds": run.test_steps.tolist(),
            "test": rounded(run.test_accuracy),
            "training": _right(algorithm.problem, run.decisions, seen),
            "mean test": _right(algorithm.problem, means, self.pictures.test),
            "mean training": _right(algorithm.problem, means, seen),
            "basis": run.guarantee.basis,
            "seconds": round(run.wall_time, 2),
            "device": jax.default_backend(),
        }


def _right(problem: Problem, decisions: NDArray[np.float32], block: Block) -> list[list[float]]:
    """The share of rows that each decision (seed, learner, coordinate) classifies correctly."""
    samples = Block(jnp.asarray(block.x, jnp.float32), jnp.asarray(block.y))
    shares: list[list[float]] = rounded(HeldOut(problem, None, samples).evaluate(decisions)["accuracy"])
    return shares
