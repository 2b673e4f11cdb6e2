"""Ledgers and exports of runs: opened, checked against their witnesses, every run once; earlier ones held still."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from gossamer.errors import ConfigurationError, NetworkError, PrivacyError
from gossamer.net.data.query import file_of, is_database
from gossamer.net.data.sources import Mark
from gossamer.net.directory import RESTORED, NodeDirectory
from gossamer.net.node.agreement import key_fingerprint
from gossamer.net.node.checkpoint import Checkpoint
from gossamer.net.node.spending import Cost, costs_of, unit_of
from gossamer.net.registry import Registry
from gossamer.net.settings import Settings
from gossamer.net.store.chain import LedgerError
from gossamer.net.store.database import hold
from gossamer.net.store.export import Export
from gossamer.net.store.ledger import Ledger
from gossamer.net.store.vault import Sealer
from gossamer.net.store.witness import Witness, default_witness, witness_of
from gossamer.privacy import Budget, Guarantee

AnyLedger = Ledger | Export
"""What a run has spent: the ledger of a node, or an export of it. Its place is a file, or the node's directory."""

_SQLITE = b"SQLite format 3\0"


def ledger_file(place: Path) -> Path:
    """The ledger of a directory, or what a backup holds of it, or the file that was given.

    >>> ledger_file(Path("rows.jsonl")).name
    'rows.jsonl'
    """
    if not place.is_dir():
        return place
    kept = place / RESTORED
    return kept if kept.exists() else place / "ledger.db"


def is_ledger(place: Path) -> bool:
    """Whether it is a ledger, and no export; refused where there is nothing to read."""
    path = ledger_file(place)
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        hint = f"the system says: {(error.strerror or 'refused').lower()}"
        raise ConfigurationError("ledger", str(path), "a file that can be read", hint) from None


def open_ledger(place: Path, stack: ExitStack) -> AnyLedger:
    """A ledger, as it is, or an export, which is checked as it is opened."""
    path = ledger_file(place)
    return stack.enter_context(Ledger.open(path, read_only=True)) if is_ledger(place) else Export(path)


def checked_ledger(place: Path, stack: ExitStack, sealer: Sealer | None = None) -> AnyLedger:
    """A ledger or an export, checked; a ledger also against its witness."""
    ledger = open_ledger(place, stack)
    if isinstance(ledger, Ledger):
        witness = own_witness(place, ledger)
        ledger = stack.enter_context(Ledger.open(ledger.path, sealer=sealer, witness=witness, read_only=True))
        ledger.verify()
    return ledger


def extent(place: Path, ledger: AnyLedger) -> str:
    """What was checked of a ledger beside the chain, in words."""
    if isinstance(ledger, Export):
        return "an export: the chain only"
    witness = own_witness(place, ledger)
    place_of = "" if witness.path == default_witness(ledger.identity.key) else f" in {witness.path.parent}"
    known = f"the witness{place_of} agrees" if witness.read() else f"no witness{place_of or ' on this machine'}"
    return f"sealed: no messages, no state; {known}" if ledger.locked else known


def own_witness(place: Path, ledger: Ledger) -> Witness:
    """The one that the node.toml beside a ledger names; the default for a ledger by itself."""
    node = NodeDirectory(ledger_file(place).parent)
    if not (node.path / "node.toml").exists():
        return Witness(default_witness(ledger.identity.key))
    return witness_of(node.path, node.witness, ledger.identity.key)


def distinct(ledgers: Sequence[AnyLedger]) -> list[AnyLedger]:
    """Every run of a learner once: of several copies the longest, where the others are beginnings of it."""
    longest: dict[tuple[object, ...], AnyLedger] = {}
    for ledger in sorted(ledgers, key=lambda ledger: ledger.last.number):
        own = (ledger.identity, ledger.run) if ledger.run else (ledger.path,)
        shorter = longest.get(own)
        if shorter and next(ledger.rows(first=shorter.last.number)).hash != shorter.last.hash:
            raise LedgerError(
                f"{shorter.path} and {ledger.path} are ledgers of the same run and differ at row "
                f"{shorter.last.number}: two copies of one node ran, and noise may have been used twice."
            )
        longest[own] = ledger
    return list(longest.values())


def earlier_costs(directory: Path, settings: Settings, key: bytes, promise: Guarantee, stack: ExitStack) -> list[Cost]:
    """What the `earlier` runs of a node.toml have cost; none of them can go on until the stack is closed.

    Args:
        directory: of the node.
        settings: what its node.toml says.
        key: the node's noise key.
        promise: of the run that they are added to.
        stack: keeps the locks.
    """
    if settings.earlier and settings.budget is None:
        hint = "what earlier runs cost counts towards it"
        raise ConfigurationError("earlier", list(settings.earlier), "none without a [budget] in node.toml", hint)
    files = {ledger_file(directory / path).resolve(): path for path in settings.earlier}
    ledgers: list[AnyLedger] = []
    held: set[Path] = set()
    with ExitStack() as opened:
        for file, path in files.items():
            if is_ledger(file):
                _hold(file, path, held, stack)
            ledgers.append(checked_ledger(directory / path, opened))
            _require_comparable(ledgers[-1], path, settings.source, key, promise)
        costs = [cost for ledger in distinct(ledgers) for cost in costs_of(ledger)]
        return [cost for cost in costs if cost.source == settings.source]


def last_mark(place: Path, sealer: Sealer | None) -> Mark:
    """Where a run has stopped reading its data; where nothing is known of it, nothing was read.

    Args:
        place: directory of its node, or an export, which says nothing of data.
        sealer: of its ledger.
    """
    if not is_ledger(place):
        return {}
    with Ledger.open(ledger_file(place), sealer=sealer, read_only=True) as ledger:
        state = None if ledger.data_changed else ledger.state()
    return {} if state is None else Checkpoint.from_bytes(state).mark


def enter_earlier(directory: Path, settings: Settings, registry: Registry) -> None:
    """Have the registry know the `earlier` runs of a node.toml too, which `earlier_costs` has checked."""
    for path in settings.earlier:
        with ExitStack() as stack:
            ledger = open_ledger(directory / path, stack)
            known = [one.budget for one in registry.runs() if one.key == ledger.identity.key]
            place = None if isinstance(ledger, Export) else ledger.path.parent
            registry.enter(ledger, place, budget=known[0] if known else None)


def enter_own(
    registry: Registry,
    ledger: Ledger,
    directory: Path,
    settings: Settings,
    *,
    given: bool = False,
    adopt: bool = False,
) -> None:
    """Have the registry know this run as its ledger does; refused where it has lost a run that has spent.

    Args:
        registry: of all runs.
        ledger: open, and the newest, as its witness says.
        directory: of the node.
        settings: what its node.toml says.
        given: whether its samples are given to it, instead of those that the settings name.
        adopt: whether the ledger may be of another machine, so that neither registry nor witness knows of it.
    """
    if ledger.last.exchange >= 0 and not adopt and not registry.over_same_data(ledger.identity.key):
        raise PrivacyError(
            f"registry: {registry.path} knows nothing of this run, which has spent: it is another registry than before "
            f"or a new one, and may not know of other runs over these data either. Bring the old one back, or name it "
            f"in node.toml. If there is none, start with --adopt; nothing was sent."
        )
    _, file = file_of(settings.data)
    registry.enter(
        ledger,
        directory,
        None if given or file in ("", "-") else directory / file,
        budget=None if settings.budget is None else Budget(**settings.budget),
        newest=not adopt,
        sealed=settings.sealed or is_database(settings.data),  # databases of one form begin alike, whatever is in them
    )


def _hold(ledger: Path, path: str, held: set[Path], stack: ExitStack) -> None:
    """Take the lock of an earlier ledger and its witness, which all copies share: none can spend more meanwhile."""
    try:
        stack.callback(os.close, hold(ledger.with_suffix(".lock")))
        with Ledger.open(ledger, read_only=True) as known:
            witness = own_witness(ledger, known)
        if witness.path not in held:
            held.add(witness.path)
            stack.callback(witness.close)
            witness.hold()
    except NetworkError:
        raise NetworkError(
            f"earlier: {path} is in use: its node runs, or another node counts what it has cost. It must not spend "
            f"more while this node runs. Stop the other one first."
        ) from None
    except OSError as error:
        hint = f"the system says: {(error.strerror or 'refused').lower()}. Once that run is over, an export will do"
        allowed = "a ledger that can be locked, so that its node cannot spend more while this one runs"
        raise ConfigurationError("earlier", path, allowed, hint) from None


def _require_comparable(ledger: AnyLedger, path: str, source: str, key: bytes, promise: Guarantee) -> None:
    """Refuse what cannot be added to this run: it would be another sum than that of these data."""
    if source not in ledger.sources:
        raise ConfigurationError("earlier", path, f"runs over the same source, {source!r}")
    if ledger.identity.key == key_fingerprint(key):
        raise ConfigurationError("earlier", path, "other runs than this one", "what it has spent counts by itself")
    unit = costs_of(ledger)[0].unit
    if unit and unit not in (unit_of(promise), unit_of(replace(promise, public_arrivals=False))):  # that protects more
        hint = f"it protects {unit}; losses of different guarantees do not add up"
        raise ConfigurationError("earlier", path, f"runs that protect {unit_of(promise)}", hint)
