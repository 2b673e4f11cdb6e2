"""What the registry says to the owner of a node: which other runs read the same data, and what they have cost."""

from contextlib import closing

from gossamer.net.directory import NodeDirectory
from gossamer.net.ledgers import enter_own
from gossamer.net.node.spending import added_up, units_of
from gossamer.net.registry import Known, Registry, counted, registry_of
from gossamer.net.store.ledger import Ledger
from gossamer.privacy.guarantee import rounded_up


def enter(node: NodeDirectory) -> None:
    """Have the registry know a node that has just joined."""
    settings = node.settings()
    with (
        Ledger.open(node.ledger, read_only=True) as ledger,
        closing(Registry(registry_of(node.path, settings.registry))) as registry,
    ):
        enter_own(registry, ledger, node.path, settings)


def about_others(node: NodeDirectory) -> list[str]:
    """What the owner of a node should know of other runs over its data; nothing where there are none."""
    path = registry_of(node.path, node.settings().registry)
    if not path.exists():
        return []
    with Ledger.open(node.ledger, read_only=True) as ledger, closing(Registry(path, read_only=True)) as registry:
        key, runs = ledger.identity.key, registry.over_same_data(ledger.identity.key)
    others = [one for one in runs if one.key != key]
    return [line for data in sorted({one.data for one in others}) for line in in_words(_over(data, others))]


def _over(data: int, runs: list[Known]) -> list[Known]:
    return [one for one in runs if one.data == data]


def in_words(others: list[Known]) -> list[str]:
    """Other runs over the same data, for the owner.

    >>> from gossamer.net.node.spending import Cost
    >>> from gossamer.privacy import Pure
    >>> cost = Cost("meters", "r1", 0, Pure(0.5), 0.0, 0.0, "one sample")
    >>> in_words([Known("c3", 1, "a1", 0, "meters", "/nodes/old", 7, cost, None)])
    ["other runs over the same data: 1 (source 'meters' in /nodes/old). So far they have spent epsilon 0.5. What ..."]
    """
    if not others:
        return []
    places = {f"source {one.source!r}" + (f" in {one.directory}" if one.directory else "") for one in others}
    shown = "; ".join(sorted(places)[:3]) + ("; ..." if len(places) > 3 else "")
    costs = counted(others)
    epsilon, delta = map(rounded_up, added_up(costs))
    spent = f"epsilon {epsilon}" + ("" if delta == "0" else f" and delta {delta}")
    if len(units_of(costs)) > 1:
        spent = "what cannot be added up: they do not protect the same"
    said = f"other runs over the same data: {len(others)} ({shown}). So far they have spent {spent}."
    return [f"{said} What this one spends is added. If these are other data, give them another name: --source."]
