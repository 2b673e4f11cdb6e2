"""An algorithm: the only thing an engine takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from gossamer.core.checked import Checked, Guarded, GuardedServer, check
from gossamer.core.federation import Federation
from gossamer.core.flow import Flow, foreign
from gossamer.core.learner import Learner, Server
from gossamer.core.schedule import Every, Schedule
from gossamer.core.spec import read_specification, specification
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import Calibrated, Independent, Mechanism
from gossamer.privacy import Guarantee, Loss, Scale, Unit, compose
from gossamer.privacy.marks import ours, put_together_by_us
from gossamer.problems import Problem
from gossamer.spec import Made, digest, family
from gossamer.topology import Gossip, Mixing, Topology

Public = Callable[[NDArray[np.int64]], NDArray[np.float64]]
"""A public schedule: exchange numbers 1, 2, ... to one value each."""

Missing = Literal["own", "later", "nothing"]
"""What a learner on a real network makes of a neighbour's message that did not come: its own message has that weight
too; nothing now, and the next message brings it along (push-sum); or nothing of this exchange is heard at all."""


@family("algorithm")
@dataclass(frozen=True)
class Algorithm:
    """A learner (and a server, for a federation), its network, its schedule and its guarantee.

    Attributes:
        name: the function in `gossamer.algorithms` that made it.
        problem: loss and decision set.
        topology: who hears whom.
        learner: one learner's side.
        guarantee: what an observer can learn at most.
        mixing: what the network does with the messages of one exchange.
        server: only for a `Federation`.
        schedule: how many steps lie between two exchanges.
        public: schedules known to everybody (step sizes), by name.
        releases: the mechanisms through which data leave a learner or the server, with the scales of their draws.
        coordinates: for each coordinate of the joint decision the learner that controls it, where no learner owns all.
        parameters: what a reader of a report wants to know.
        regret_bound: what `theoretical_bound` returns, or computes from what is said about the losses; None where
            nothing is proven.
        capacity: exchanges after which a learner's memory is full; None: it never is.
        missing: what a lost message does, such that the guarantee stays: see `Missing`. None: the guarantee counts on
            every message, and a real network is refused.
        batch: samples a step; more than one only where all learners see the same batches.
    """

    name: str
    problem: Problem
    topology: Topology | Federation
    learner: Learner
    guarantee: Guarantee
    mixing: Mixing = Gossip()
    server: Server | None = None
    schedule: Schedule = Every(1)
    public: Mapping[str, Public] = field(default_factory=dict)
    releases: tuple[Calibrated[Mechanism], ...] = ()
    coordinates: tuple[int, ...] | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    regret_bound: float | Callable[..., float] | None = None
    capacity: int | None = None
    missing: Missing | None = "own"
    batch: int = 1
    _by_us: ClassVar[bool] = False
    _made: ClassVar[Made | None] = None
    _checked: ClassVar[Checked | None] = None

    def __post_init__(self) -> None:
        if (self.server is None) == (self.graph is None):
            raise ConfigurationError("topology", self.topology, "a Federation exactly when there is a server")
        if type(self.guarantee) is not Guarantee:
            raise ConfigurationError("guarantee", type(self.guarantee).__name__, "a Guarantee, and no class made of it")
        object.__setattr__(self, "_by_us", put_together_by_us(Algorithm))
        object.__setattr__(self, "public", MappingProxyType(dict(self.public)))
        object.__setattr__(self, "releases", tuple(self.releases))
        for side in (self.learner, self.server):
            try:
                hash(side)
            except TypeError as error:
                hint = "compiled programs are kept by it: use tuples, not lists or arrays"
                raise ConfigurationError("learner", type(side).__name__, "one with hashable fields", hint) from error
        drawn = [*self.learner.noise, *(self.server.noise if self.server else ())]
        if any(type(name) is not str or "/" in name for name in drawn):
            hint = "it separates a server's draws from those of learners"
            raise ConfigurationError("noise", drawn, "names without a slash", hint)
        scaled = [name for release in self.releases for name in release.scales]
        for names in (drawn, scaled):
            if len(set(names)) < len(names):
                allowed = "draws with different names: each has one scale and one use"
                raise ConfigurationError("releases", names, allowed)
        declared = set(drawn)
        if declared != set(self.scales):
            raise ConfigurationError("releases", sorted(self.scales), f"a scale for each draw of {sorted(declared)}")
        for name in declared:
            self.scales_of(name)
            if self.flow.draws[name].used_in == "aggregate" and len(self.scales[name]) > 1:
                raise ConfigurationError("releases", f"{len(self.scales[name])} scales of {name}", "one for the server")
        if self.guarantee.basis == "proven":
            self._require_covered()
            self._require_apart()
            checked = check(self.flow)
            checked.require_covered([release.sensitivities for release in self._protecting])
            object.__setattr__(
                self, "guarantee", self.guarantee.after_check(checked.seen, checked.loose, checked.digest)
            )
            object.__setattr__(self, "_checked", None if checked.loose else checked)

    def __init_subclass__(cls) -> None:
        raise TypeError("Algorithm has no subclasses: engines rely on what its constructor checks")

    @cached_property
    def flow(self) -> Flow:
        """What leaves a learner, and how: what is checked where the guarantee says `proven`."""
        protecting = self._protecting
        return Flow(
            learner=self.learner,
            server=self.server,
            problem=self.problem,
            mechanisms=tuple(release.mechanism for release in protecting),
            idle=frozenset(self.scales) - {name for release in protecting for name in release.scales},
            observer=self.guarantee.observer,
            unit=self.guarantee.unit,
            learners=self.learners,
            public=tuple(sorted(self.public)),
            rows=tuple(sorted({self.batch * run.block for run in self.schedule.segments(2**62)})),
            draws=MappingProxyType({**self.learner.noise, **(self.server.noise if self.server else {})}),
            lattice=frozenset(name for name, each in self.scales.items() if all(scale.grid for scale in each)),
            put_together_by_us=self._by_us and not foreign((*self.public.values(), self.topology, self.mixing)),
        )

    @property
    def _protecting(self) -> list[Calibrated[Mechanism]]:
        """The releases that protect data."""
        return [release for release in self.releases if release.sensitivities]

    @property
    def running(self) -> tuple[Learner, Server | None]:
        """Learner and server as engines run them: of a guarantee that is proven, the programs that were checked."""
        if self._checked is None:
            return self.learner, self.server
        return Guarded(self._checked), GuardedServer(self._checked) if self.server else None

    def _require_apart(self) -> None:
        """Refuse to compose the occurrences of a record where two of them may share noise or a release."""
        if self.guarantee.repeats != "compose":
            return
        for release in self.releases:
            served = any(self.flow.draws[name].used_in == "aggregate" for name in release.scales)
            rows = max(self.flow.rows) * (self.learners if served else 1)  # a server may release those of all at once
            samples = 1 if self.guarantee.unit is Unit.BATCH else rows / self._per_exchange(release)
            if release.sensitivities and (type(release.mechanism) is not Independent or samples > 1):
                allowed = "'group' unless every sample is released by itself, with noise of its own"
                raise PrivacyError.of("repeats", "compose", allowed)

    def _require_covered(self) -> None:
        """Refuse a guarantee of less than what all its releases cost together."""
        releases = self._protecting
        if not releases:
            hint = "list the calibrated mechanisms that data go through"
            raise PrivacyError.of("releases", (), "mechanisms with a sensitivity, for a proven guarantee", hint)
        stated = (*self.guarantee.losses, *releases, *(each for release in releases for each in release.sensitivities))
        for cls in set(map(type, stated)):
            if not ours(cls):
                raise PrivacyError.of("guarantee", cls.__name__, "Gossamer's own, where it is proven")
        if self.guarantee.per == "record" or self.guarantee.occurrences is not None:
            raise PrivacyError.of("guarantee", "one per record", "one per occurrence", "the stream says how many")
        lattice = [one for one in releases if all(scale.grid for each in one.scales.values() for scale in each)]
        inexact = self._sampler_error(lattice)
        if self.guarantee.sampler_error < inexact * (1 - 1e-9):
            raise PrivacyError.of("sampler_error", self.guarantee.sampler_error, f"at least {inexact:.6g} on a lattice")
        protecting = [release.losses for release in releases]
        count = max(map(len, protecting))
        together = tuple(_together([losses[one % len(losses)] for losses in protecting]) for one in range(count))
        if self.guarantee.losses not in (together, together[:1] if len(set(together)) == 1 else together):
            allowed = "what its releases cost together, " + ", ".join(sorted({str(one) for one in together})[:3])
            raise PrivacyError.of("guarantee", self.guarantee.losses, allowed)

    @property
    def learners(self) -> int:
        """How many learners take part."""
        return self.topology.learners

    @property
    def graph(self) -> Topology | None:
        """Who hears whom; None where all learners talk to a server."""
        return None if isinstance(self.topology, Federation) else self.topology

    def network(self, exchanges: NDArray[np.int64]) -> tuple[Any, Any]:
        """What the network needs in order to mix: what never changes, and arrays with a leading axis over exchanges.

        The weights of gossip; in a federation who takes part, or nothing where everybody does.
        """
        if isinstance(self.topology, Federation):
            return (), {} if self.topology.fixed else self.topology.present(exchanges)
        return self.mixing.prepare(self.topology, exchanges)

    def messages(self, exchanges: NDArray[np.int64]) -> NDArray[np.int64]:
        """Messages that arrive in each of these exchanges, every gossip step counted."""
        return self.topology.links(exchanges) * self.mixing.steps

    @property
    def scales(self) -> dict[str, tuple[Scale, ...]]:
        """The scale of every draw by name: one for all learners, or one for each."""
        return {name: scales for release in self.releases for name, scales in release.scales.items()}

    def scales_of(self, name: str) -> tuple[Scale, ...]:
        """The scale of one draw for every learner."""
        scales = self.scales[name]
        if len(scales) not in (1, self.learners):
            raise ConfigurationError("releases", f"{len(scales)} scales", f"1 or {self.learners}, one for each learner")
        if len({scale.grid > 0 for scale in scales}) > 1:
            raise PrivacyError.of("releases", f"some scales of {name} on a lattice", "all of them, or none")
        return scales if len(scales) == self.learners else scales * self.learners

    def require(self, exchanges: int) -> None:
        """Refuse a number of exchanges that a mechanism is not calibrated for, or that a learner cannot remember."""
        if self.capacity is not None and exchanges > self.capacity:
            allowed = f"at most {self.capacity:,} exchanges, after which a learner's memory is full"
            raise ConfigurationError("steps", f"{exchanges:,} exchanges", allowed, "make it with a larger buffer")
        for release in self.releases:
            release.mechanism.require(exchanges * self._per_exchange(release))

    @property
    def others_release(self) -> bool:
        """Whether other participants release a learner's data: they add the noise, or they see the same batches."""
        return self.guarantee.observer in ("decisions", "broadcasts") or self.guarantee.unit is not Unit.SAMPLE

    def spent(self, exchanges: int, learner: int) -> dict[str, tuple[int, Loss]]:
        """What one learner has released after so many exchanges: by draw, how often, and the loss of one unit.

        Where others release its data they may go on without it. So its first exchange costs all that the whole horizon
        may cost.

        >>> from gossamer import Budget, algorithms, problems, topology
        >>> options = {"budget": Budget(1.0), "clip": 1.0, "step": 0.1}
        >>> algorithms.pd_ogd(problems.Linear(4), topology.ring(3), **options).spent(7, learner=0)
        {'gradient': (7, Pure(value=0.99999...))}
        """
        if self.guarantee.basis == "none":
            return {}
        found = {}
        for release in self.releases:
            position = exchanges * self._per_exchange(release)
            release.mechanism.require(position)
            counted = release.mechanism.horizon if exchanges and self.others_release else position
            loss = release.spent(counted, learner % len(release.deltas))
            found[", ".join(release.scales)] = (position, loss)
        return found

    def _per_exchange(self, release: Calibrated[Mechanism]) -> int:
        """How often a mechanism releases in one exchange: as often as its draws are declared."""
        return max(
            self.flow.draws[name].size // math.prod(shape) for name, (_, shape) in release.mechanism.laws().items()
        )

    def secured(self) -> Algorithm:
        """The same algorithm for secure noise: releases on a lattice, and the error of its sampler in the guarantee.

        >>> from gossamer import Budget, algorithms, problems, topology
        >>> options = {"budget": Budget(1.0), "clip": 1.0, "step": 0.1}
        >>> secured = algorithms.pd_ogd(problems.Linear(4), topology.ring(3), **options).secured()
        >>> secured.scales["gradient"][0].grid, 0 < secured.guarantee.delta < 1e-13
        (3.0517578125e-05, True)
        """
        if self.guarantee.basis == "none":
            raise PrivacyError.of("guarantee", "none", "one that noise can keep", self.guarantee.reason)
        if self.scales and all(scale.grid for scales in self.scales.values() for scale in scales):
            return self
        idle = [name for release in self.releases if not release.sensitivities for name in release.scales]
        if idle:
            hint = "choose options without them (gradient_noise=0, or a history that is not sampled)"
            raise PrivacyError.of("secure noise", f"draws that protect nothing: {', '.join(idle)}", "none", hint)
        error = self._sampler_error([release.on_lattice() for release in self.releases])
        if error >= 1:
            hint = "with it the error of all draws has a bound"
            raise PrivacyError.of("horizon", self.guarantee.horizon, "a number of steps", hint)
        guarantee, releases = self.guarantee, [release.keeping_back(error).on_lattice() for release in self.releases]
        if len(releases) == 1:
            guarantee = replace(guarantee, losses=releases[0].losses, deltas=releases[0].deltas)
        else:
            guarantee = replace(guarantee, losses=(compose([release.losses[0] for release in releases]),))
        # The bound on regret is that of the noise before it grew.
        made = replace(self, releases=tuple(releases), guarantee=guarantee.with_sampler_error(error), regret_bound=None)
        object.__setattr__(made, "_made", self._made)
        return made

    def _sampler_error(self, releases: Sequence[Calibrated[Mechanism]]) -> float:
        """How far the draws that one unit touches are from their laws, on a lattice.

        One sample of one learner touches that learner's draws; any other unit may touch those of all.
        """
        error = sum(release.sampler_error() for release in releases)
        return error * (1 if self.guarantee.unit is Unit.SAMPLE else self.learners)

    def spec(self) -> dict[str, Any]:
        """What this algorithm is, as plain values that files hold and machines compare: see `gossamer.core.spec`.

        >>> from gossamer import algorithms, problems, topology
        >>> spec = algorithms.d_ogd(problems.Linear(2), topology.ring(4), step=0.5).spec()
        >>> spec["problem"], spec["topology"], spec["algorithm"]
        ({'kind': 'linear', 'dim': 2}, {'kind': 'ring', 'learners': 4}, {'name': 'd_ogd', 'step': 0.5})
        """
        return specification(self)

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> Algorithm:
        """The algorithm that a specification describes; refused where anything else follows from its options now.

        >>> from gossamer import algorithms, problems, topology
        >>> spec = algorithms.d_ogd(problems.Linear(2), topology.ring(4), step=0.5).spec()
        >>> Algorithm.from_spec(spec).spec() == spec
        True
        """
        return read_specification(spec)

    @cached_property
    def digest(self) -> str:
        """Of the specification: what nodes agree on, and checkpoints are known by."""
        return digest(self.spec())

    def theoretical_bound(self, **losses: Any) -> float:
        """What the expected regret is proven to stay below, for losses that do not react to decisions.

        Paper 000: R_{T,i}, with the losses of all n learners at every step; as published for every learner i, tight
        for their average. Paper 001: its Regret_d or Regret_s, if what is said about the losses is true.

        Args:
            losses: constants that no algorithm knows: see `gossamer.algorithms.FederatedRegret`. Paper 000 needs none.

        >>> from gossamer import Budget, algorithms, problems
        >>> options = {"horizon": 4000, "steps_per_exchange": 4, "budget": Budget(2.0, 1e-3), "clip": 3.0}
        >>> federated = algorithms.online_federated(problems.LeastSquares(9), 20, step=0.001, **options)
        >>> round(federated.theoretical_bound(mu=0.2, start=0.5, smoothness=2.0) / 4000, 1)  # of a sample
        3.2
        """
        if self.regret_bound is None:
            hint = (
                "paper 000 needs a bounded decision set, gradients that the clip leaves as they are (a feature_bound "
                "says so), losses as strongly convex as is said, a fixed network, noise that is not on a lattice, and "
                "as published the printed block and lazy weights; paper 001 no decision set, no l2, a constant step, "
                "noise on every step, a horizon, and the last model played by all learners in every round"
            )
            raise ConfigurationError("theoretical_bound", self.name, "an algorithm and settings with a proof", hint)
        if callable(self.regret_bound):
            return self.regret_bound(**losses)
        if losses:
            raise ConfigurationError("theoretical_bound", sorted(losses), f"no constants for {self.name}")
        return self.regret_bound

    def describe(self) -> str:
        """Name, network, parameters, noise and guarantee, one per line.

        >>> from gossamer import algorithms, problems, topology
        >>> print(algorithms.d_ogd(problems.Logistic(3), topology.ring(4), step=0.5).describe())
        d_ogd on ring(4)
          step: 0.5 at every exchange
          guarantee: No privacy guarantee: messages and decisions are functions of raw gradients.
        """
        lines = [f"{self.name} on {self.topology.name}"]
        lines += [f"  {key}: {value}" for key, value in self.parameters.items()]
        lines += [f"  noise on {name}: scale {_range(scales)}" for name, scales in self.scales.items()]
        return "\n".join([*lines, f"  guarantee: {self.guarantee.sentence()}"])


def _together(losses: list[Loss]) -> Loss:
    return losses[0] if len(losses) == 1 else compose(losses)


def _range(scales: tuple[Scale, ...]) -> str:
    low, high = min(scales).value, max(scales).value
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
