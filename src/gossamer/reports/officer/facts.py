"""All that a report says, from a ledger that was checked: nothing is computed here that a ledger or guarantee knows."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gossamer.errors import ConfigurationError, GossamerError
from gossamer.net.directory import NodeDirectory
from gossamer.net.ledgers import AnyLedger, checked_ledger, extent, ledger_file, own_witness
from gossamer.net.membership.agreement import Agreement
from gossamer.net.membership.members import Members
from gossamer.net.node.agreement import prepared, promise_of
from gossamer.net.node.spending import Cost, added_up, cost_of_one, own_of, several_times, unit_of, units_of
from gossamer.net.registry import Known, Registry, counted, default_registry, registry_of
from gossamer.net.settings import Settings
from gossamer.net.store.chain import Identity, LedgerError, Row
from gossamer.net.store.export import Export
from gossamer.net.store.vault import Sealer
from gossamer.privacy import Guarantee

_MOST_POINTS = 60


class Point(NamedTuple):
    """What was spent from an exchange on, until the next point."""

    exchange: int
    epsilon: float


class Agreed(NamedTuple):
    """What a node's directory holds beside its ledger.

    Attributes:
        agreement: whose signature was checked.
        members: whose signatures were checked; None before the coordinator has sent them.
        accepted: whether the site has compared and accepted these keys.
        settings: what node.toml says.
        confirmed: whether the guarantee was computed again from the agreement, and is the one of the ledger.
    """

    agreement: Agreement
    members: Members | None
    accepted: bool
    settings: Settings
    confirmed: bool


@dataclass(frozen=True)
class Facts:
    """One run, and all others over the same data.

    Attributes:
        name: of the ledger's file or directory.
        identity: what the ledger belongs to.
        sources: what its data were called, one after another.
        times: how often a record may have come, since they were changed.
        promise: the guarantee that the run was begun with.
        first: the row with which it began.
        last: the last row.
        checks: what was checked beside the chain, in words.
        newest: whether a witness knows of nothing later.
        booked: exchanges that the registry has of this run; a node notes down about a second ahead.
        spent: what the run has cost, of a record that came so often.
        growth: when that changed.
        registry: where the other runs are known from; None where this run is not known there.
        others: other runs over the same data.
        agreed: what stands beside the ledger in a node's directory; None of a ledger by itself.
    """

    name: str
    identity: Identity
    sources: tuple[str, ...]
    times: int
    promise: Guarantee
    first: Row
    last: Row
    checks: str
    newest: bool
    booked: int
    spent: Cost
    growth: tuple[Point, ...]
    registry: Path | None
    others: tuple[Known, ...]
    agreed: Agreed | None

    @property
    def promised(self) -> Cost:
        """What the run may cost at most, by its guarantee."""
        promise, learner = self.promise, self.identity.learner
        if not promise.losses:
            return self.spent._replace(loss=None, delta=1.0, unit=unit_of(promise))
        loss, delta = own_of(promise.losses, learner), own_of(promise.deltas, learner)
        cost = self.spent._replace(loss=loss, delta=delta, error=promise.sampler_error, unit=unit_of(promise))
        return several_times(cost, self.times)

    @property
    def together(self) -> list[Cost]:
        """What adds up over the data: this run as its ledger says, others as the registry does.

        Where the data were changed, over those on which most was spent.
        """
        return max(self._sums, key=lambda costs: added_up(costs)[0])

    @property
    def _sums(self) -> list[list[Cost]]:
        own = self.identity
        ours = Known(own.key, 0, own.network, own.learner, own.source, "", 0, self.spent, None)
        alike = [[one for one in self.others if one.data == data] for data in {one.data for one in self.others}]
        return [counted([ours, *others]) for others in alike or [[]]]

    @property
    def comparable(self) -> bool:
        """Whether all runs over the data protect the same, so that their sum means something."""
        return all(len(units_of(costs)) <= 1 for costs in self._sums)

    @property
    def site(self) -> str:
        """The member's name; its number where only the ledger is there."""
        number = self.identity.learner
        return self.agreed.agreement.members[number].name if self.agreed else f"learner {number}"


def gathered(place: Path, *, registry: Path | None = None, sealer: Sealer | None = None) -> Facts:
    """Check a ledger, and gather what a report says about it; refused where anything does not verify.

    Args:
        place: a node's directory, its ledger, or an export.
        registry: another one than node.toml names, or than the default.
        sealer: of a sealed ledger, so that messages and state are checked too.
    """
    with ExitStack() as stack:
        ledger = checked_ledger(place, stack, sealer)
        promise, identity = ledger.promise, ledger.identity
        if promise is None:
            hint = "nothing was released, so nothing was spent"
            raise ConfigurationError("ledger", str(place), "one whose run has begun", hint)
        node = NodeDirectory(ledger_file(place).parent)
        beside = (node.path / "agreement.json").exists() and (place.is_dir() or place.name == "ledger.db")
        agreed = _agreed(node, identity, promise) if beside else None
        known = _registry(node, registry, agreed)
        runs = _known(known, identity.key)
        times = max([*Counter(ledger.sources).values(), *(one.times for one in runs if one.key == identity.key)])
        first, growth = _growth(ledger, promise, identity.learner)
        return Facts(
            name=place.resolve().name,
            identity=identity,
            sources=tuple(dict.fromkeys(ledger.sources)),
            times=times,
            promise=promise,
            first=first,
            last=ledger.last,
            checks=extent(place, ledger),
            newest=not isinstance(ledger, Export) and bool(own_witness(place, ledger).read()),
            booked=max((one.exchanges for one in runs if one.key == identity.key), default=0),
            spent=several_times(cost_of_one(ledger), times),
            growth=growth,
            registry=known if runs else None,
            others=tuple(one for one in runs if one.key != identity.key),
            agreed=agreed,
        )


def _growth(ledger: AnyLedger, promise: Guarantee, learner: int) -> tuple[Row, tuple[Point, ...]]:
    """The row with which the run began, and when its cost changed; of many changes some, the last among them."""
    first, changes, before = ledger.last, [], None
    came = Counter([ledger.identity.source])
    for row in ledger.rows():
        if row.kind == "start":
            first = row
        if row.kind == "data":
            came[row.note] += 1
        now = (tuple(one.loss for one in row.spent), max(came.values()))
        if row.kind == "release" and now != before:
            changes.append((row, max(came.values())))
            before = now
    step = max(1, -(-len(changes) // _MOST_POINTS))
    chosen = changes[::step] + ([changes[-1]] if changes and (len(changes) - 1) % step else [])
    if not promise.losses:
        return first, ()
    base = Cost("", "", learner, None, own_of(promise.deltas, learner), promise.sampler_error, "")
    return first, tuple(Point(row.exchange, added_up([_of_row(base, row, times)])[0]) for row, times in chosen)


def _of_row(base: Cost, row: Row, times: int) -> Cost:
    from gossamer.privacy import compose

    return several_times(base._replace(loss=compose([one.loss for one in row.spent])), times)


def _registry(node: NodeDirectory, given: Path | None, agreed: Agreed | None) -> Path:
    if given is not None:
        return given
    return registry_of(node.path, agreed.settings.registry) if agreed else default_registry()


def _known(path: Path, key: str) -> list[Known]:
    if not path.exists():
        return []
    with closing(Registry(path, read_only=True)) as registry:
        return registry.over_same_data(key)


def _agreed(node: NodeDirectory, identity: Identity, promise: Guarantee) -> Agreed:
    """The signed documents beside a ledger; refused where they are those of another network."""
    agreement, settings = node.agreement(), node.settings()
    if agreement.network != identity.network or identity.learner >= len(agreement.members):
        raise LedgerError(f"{node.path}: agreement.json is of another network than the ledger beside it.")
    file = node.path / "members.json"
    members = Members.read(file, agreement) if file.exists() else None
    try:
        pinned = json.loads((node.path / "accepted.json").read_text(encoding="utf-8"))["members"]
    except (OSError, ValueError, KeyError, TypeError):
        pinned = None
    accepted = members is not None and pinned == members.fingerprints
    return Agreed(agreement, members, accepted, settings, _confirmed(agreement, identity, promise))


def _confirmed(agreement: Agreement, identity: Identity, promise: Guarantee) -> bool:
    """Whether the agreement's algorithm, made again, promises what the ledger says; refused where it is another one."""
    try:
        ready = prepared(agreement.algorithm(), allow_no_guarantee=True)
    except GossamerError:  # an algorithm of a package that is not here
        return False
    if ready.digest != identity.config:
        raise LedgerError("agreement.json: its algorithm is another one than that of the ledger beside it.")
    return promise_of(ready, agreement.arrivals) == promise
