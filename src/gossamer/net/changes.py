"""What changes in a network after its first day: who takes part, for how long, and on which version of Gossamer.

    change_network    the coordinator writes an agreement that follows the one before, and signs it with the same key
    follow            a member goes on under it: a new run in a new directory, with the same keys
    upgrade           a site with a directory of an earlier version joins a network, with keys of its own

Nothing that ran is changed. Every run has a noise key and a ledger of its own. What the runs before have cost counts
towards one budget, which the owner of the data sets: nobody else can have more spent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from gossamer.core import Algorithm
from gossamer.core.spec import make_algorithm
from gossamer.errors import ConfigurationError, GossamerError, PrivacyError
from gossamer.files import private_file
from gossamer.net.dependencies import require_net
from gossamer.net.directory import NodeDirectory, Settings, pins_of, settings_text
from gossamer.net.enrolment import admit, join, make_empty, signer_of, write_new
from gossamer.net.ledgers import earlier_costs
from gossamer.net.membership.agreement import Agreement
from gossamer.net.membership.members import Members
from gossamer.net.node.agreement import key_fingerprint, prepared, promise_of
from gossamer.net.node.correspondence import Pace
from gossamer.net.node.participant import keeps_start
from gossamer.net.node.spending import Spending, added_up, needed
from gossamer.net.store.ledger import Identity, Ledger
from gossamer.net.wire.certificates import certificate_for, common_name, described
from gossamer.privacy import Budget, SecureNoise

Compared = Callable[[Members, Sequence[str]], bool]
"""Asked with the keys of all members, and the names of those that are new, whether these have been compared."""


@dataclass(frozen=True)
class Bill:
    """What the data of one site cost.

    Attributes:
        spent: epsilon and delta of all runs so far.
        whole: what they are when the new run has come to its end.
        up_to: a budget of another epsilon, with the delta that it needs.
    """

    spent: tuple[float, float]
    whole: Budget
    up_to: Callable[[float], Budget]


Consent = Callable[[Bill], Budget]
"""Asked what the data may cost in all, the runs before included; raises where their owner does not agree."""


def change_network(
    old: Path,
    directory: Path,
    *,
    add: Mapping[str, str] | None = None,
    remove: Sequence[str] = (),
    algorithm: Algorithm | None = None,
    horizon: int | None = None,
    exchanges: int | None = None,
    pace: Pace | None = None,
    start: Sequence[float] | None = None,
    no_guarantee: bool = False,
) -> Agreement:
    """Write the agreement that follows the one of a network; where nobody is new, also the keys of its members.

    Args:
        old: the coordinator's directory of the network, with the keys of all its members.
        directory: of the network that follows; must not exist, or be empty.
        add: new members and their addresses `host:port`; they come after those that stay.
        remove: names of members that leave.
        algorithm: as `prepared` made it; None: the one before, for those who take part now.
        horizon: steps of the new run, where the algorithm has a horizon; None: as before.
        exchanges: after how many learning ends; None: as before.
        pace: how long nodes wait; None: as before.
        start: the decision that all begin with, which a run of the network has released; None: where the problem says.
        no_guarantee: whether the algorithm may have no privacy.
    """
    require_net()
    signer, before = signer_of(old), Agreement.read(old / "agreement.json")
    known = Members.read(old / "members.json", before)
    members = _changed(before, add or {}, remove)
    if algorithm is None or horizon is not None or start is not None:
        tables = _tables(before.spec if algorithm is None else algorithm.spec(), len(members), horizon)
        if start is not None:
            tables["problem"]["start"] = [float(one) for one in start]
        algorithm = prepared(make_algorithm(tables), allow_no_guarantee=no_guarantee)
    if start is not None:
        _require_start_counts(before.algorithm(), algorithm)
    made = Agreement.new(
        algorithm,
        members,
        pace or before.pace,
        signer,
        schema=before.schema,
        arrivals=before.arrivals,
        exchanges=exchanges or before.exchanges,
        after=before,
    )
    make_empty(directory)
    write_new(directory / "coordinator.key", signer.private_bytes_raw())
    write_new(directory / "agreement.json", made.to_bytes())
    (directory / "requests").mkdir(mode=0o700)
    for request in known.requests:
        if request.member in members:
            write_new(directory / "requests" / f"{made.number(request.member)}.json", request.to_bytes())
    admit(directory, [])
    return made


def _changed(before: Agreement, add: Mapping[str, str], remove: Sequence[str]) -> dict[str, str]:
    """Names and addresses of the members after a change."""
    for name in remove:
        before.number(name)
    for name in add:
        if name in before.names:
            hint = "whoever has new keys joins under another name; for a new address there is `gossamer node renew`"
            raise ConfigurationError("--add", name, "a name that no member has", hint)
    return {one.name: one.address for one in before.members if one.name not in remove} | dict(add)


def _tables(spec: Mapping[str, Any], learners: int, horizon: int | None) -> dict[str, Any]:
    """What an algorithm is made of, for another number of learners, or another horizon."""
    tables = {name: dict(spec[name]) for name in ("problem", "topology", "algorithm")}
    if tables["topology"].get("learners", learners) != learners:
        tables["topology"]["learners"] = learners
    elif spec["topology"].get("learners") is None and horizon is None:
        hint = "give the algorithm of the new network: --algorithm FILE.toml"
        raise ConfigurationError("topology", spec["topology"].get("kind"), "one of so many learners", hint)
    if horizon is not None:
        tables["algorithm"]["horizon"] = horizon
    return tables


def _require_start_counts(before: Algorithm, algorithm: Algorithm) -> None:
    """Refuse a start that was not released to everybody, or that the algorithm forgets at once."""
    if before.guarantee.observer == "wiretap":
        hint = "begin where the problem says"
        raise PrivacyError.of("start", "a decision of the run before", "one that the public may see", hint)
    if not keeps_start(algorithm):
        hint = "its decisions follow from sums of gradients alone: begin without a start"
        raise ConfigurationError("start", algorithm.name, "an algorithm that goes on from where it begins", hint)


def follow(
    old: NodeDirectory, directory: Path, agreement: Path, members: Path, *, compared: Compared, consent: Consent
) -> NodeDirectory:
    """Go on under a newer agreement: the directory of a new run, for a member that stays.

    It has the keys of the member and what was accepted of others. Its noise key and its ledger are new; what was spent
    counts on, and reading goes on where it has stopped. Refused while the node of the old directory runs.

    Args:
        old: the member's directory so far.
        directory: of the new run; must not exist, or be empty.
        agreement: file of the agreement that follows.
        members: file with the keys of its members.
        compared: see `Compared`; asked only where somebody is new.
        consent: see `Consent`.
    """
    require_net()
    old.require_here()
    settings, new = old.settings(), Agreement.read(agreement)
    _require_follows(old, new)
    if settings.member not in new.names:
        _keep_next(old, new)
        old.require_not_followed()
    found = Members.read(members, new)
    old.require_known(found)
    newcomers = [name for name in new.names if name not in old.accepted()]
    if newcomers and not compared(found, newcomers):
        raise PrivacyError(
            f"fingerprint: {', '.join(newcomers)} was shown another one when it joined. Somebody may have put keys in "
            f"its place: ask the coordinator which request it admitted. Nothing was sent."
        )
    algorithm = prepared(new.algorithm(), allow_no_guarantee=settings.no_guarantee)
    learner, key = new.number(settings.member), SecureNoise.new_key()
    budget = _agreed_to(old, algorithm, learner, key, consent)
    make_empty(directory)
    private, papers = old.secret("cert.key"), described((old.path / "cert.pem").read_bytes())
    name = common_name(new.network, learner)
    certificate = certificate_for(private, name, papers.hosts, issuer=papers.issuer)
    for file, content in (
        ("agreement.json", new.to_bytes()),
        ("cert.pem", certificate),
        ("cert.key", private),
        ("pair.key", old.secret("pair.key")),
        ("noise.key", key),
        ("request.json", found.requests[learner].to_bytes()),
        ("node.toml", settings_text(_moved(old, directory) | budget).encode()),
        ("members.json", found.to_bytes()),
        ("accepted.json", pins_of(found)),
    ):
        write_new(directory / file, content)
    made = NodeDirectory(directory)
    identity = Identity(new.network, learner, algorithm.digest, settings.source, key_fingerprint(key))
    Ledger.create(made.ledger, identity)
    _keep_next(old, new)
    return made


def upgrade(
    old: NodeDirectory, directory: Path, agreement: Path, member: str, *, consent: Consent, http: str | None = None
) -> NodeDirectory:
    """Join a network with the data of a directory that an earlier version made, or of another network.

    Its ledger counts on, and reading goes on where it has stopped. Its keys are not taken: with Gossamer 0.2 and 0.3
    the machine that made a network had the keys of all nodes. So the site makes new ones, as with `join`.

    Args:
        old: the directory so far; it is only read.
        directory: of the new run; must not exist, or be empty.
        agreement: file of the agreement of the new network.
        member: the site's name in it.
        consent: see `Consent`.
        http: address of the node's page; None: as it was.
    """
    require_net()
    table, agreed = old.table(), Agreement.read(agreement)
    old.require_here()
    if _coordinator_of(old) == agreed.coordinator:
        hint = "for another agreement of the same coordinator, use `gossamer node follow`"
        raise ConfigurationError("OLD", str(old.path), "a directory of another network", hint)
    algorithm = prepared(agreed.algorithm(), allow_no_guarantee=bool(table.get("no_guarantee", False)))
    key = SecureNoise.new_key()
    settings = (
        {"member": member} | _moved(old, directory) | _agreed_to(old, algorithm, agreed.number(member), key, consent)
    )
    if http is not None:
        settings["http"] = http
    return join(agreement, member, directory, algorithm=algorithm, key=key, settings=settings)


def _coordinator_of(old: NodeDirectory) -> str:
    """Who signed the agreement of a directory; empty where this version can not read it, or there is none."""
    try:
        return old.agreement().coordinator
    except GossamerError:
        return ""


def _require_follows(old: NodeDirectory, new: Agreement) -> None:
    """Refuse an agreement that does not come after the one of a directory, by the same coordinator."""
    before = old.agreement()
    if new.coordinator != before.coordinator:
        raise PrivacyError(
            f"agreement: somebody else has signed it than the one of {old.path}. Ask the coordinator by telephone; a "
            f"network of another coordinator is joined with `gossamer node join`. Nothing was sent."
        )
    if before.digest not in new.follows:
        raise PrivacyError(
            f"agreement: it does not follow the one of {old.path}. Ask the coordinator for the newest one, and use the "
            f"directory of your newest run. Nothing was sent."
        )
    old.require_not_followed()


def _keep_next(old: NodeDirectory, new: Agreement) -> None:
    with private_file(old.next_agreement) as opened:
        opened.write(new.to_bytes())


def _agreed_to(old: NodeDirectory, algorithm: Algorithm, learner: int, key: bytes, consent: Consent) -> dict[str, Any]:
    """The budget to which the owner agrees; without a guarantee there is none, and nothing to add up."""
    if algorithm.guarantee.basis == "none":
        return {"earlier": []}
    settings = Settings(**{"member": "", **_moved(old, None), "budget": {"epsilon": 1.0}})
    promise = promise_of(algorithm, settings.empty)
    with ExitStack() as stack:
        earlier = earlier_costs(old.path, settings, key, promise, stack)
    budget = partial(needed, promise, learner, earlier)
    agreed = consent(Bill(added_up(earlier), budget(), budget))
    Spending(algorithm, learner, agreed, earlier).require_one_release()
    return {"budget": asdict(agreed)}


def _moved(old: NodeDirectory, new: Path | None) -> dict[str, Any]:
    """What node.toml of a directory says, for a run after it: as seen from another directory, or from everywhere."""
    table, place = old.table(), old.path.resolve()
    kept = {one.name: table[one.name] for one in fields(Settings) if one.name in table}

    def seen(path: str) -> str:
        whole = os.path.normpath(place / path)
        return whole if new is None or os.path.isabs(path) else os.path.relpath(whole, new.resolve())

    for name in ("data", "witness"):
        if kept.get(name, "") not in ("", "-"):
            kept[name] = seen(kept[name])
    kept.pop("listen" if "peers" in table else "", None)  # of an earlier version: the agreement says it now
    return kept | {"earlier": [seen("."), *map(seen, table.get("earlier", ()))], "continues": seen(".")}
