"""What keeps a network going: commands of `gossamer node` and `gossamer network` for what comes after the beginning."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gossamer.cli import doubts
from gossamer.cli.config import load_for_nodes
from gossamer.cli.show import say, warn
from gossamer.errors import ConfigurationError

if TYPE_CHECKING:
    from gossamer.net import Bill, Members
    from gossamer.privacy import Budget

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A node's directory.")]


def renew(
    directory: Directory,
    host: Annotated[
        list[str] | None, typer.Option(help="Where others dial this node from now on; default: where they did.")
    ] = None,
) -> None:
    """Make a new certificate for the same key; a node that runs takes it within seconds and goes on."""
    from gossamer.net.directory import NodeDirectory
    from gossamer.net.wire.renewal import renew as renewed

    until = renewed(NodeDirectory(directory).files(), host)
    console = Console()
    say(console, f"Good until {until:%Y-%m-%d}. The key is the same: nobody has to be told.")
    if host:
        say(console, "The other members write the new address into [addresses] of their node.toml, and restart.")


def change(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The coordinator's directory of the network.")],
    directory: Annotated[Path, typer.Argument(metavar="NEW", help="Made here: of the network that follows.")],
    add: Annotated[list[str] | None, typer.Option(help="NAME=HOST:PORT of a new member.")] = None,
    remove: Annotated[list[str] | None, typer.Option(help="Name of a member that leaves.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps of the new run.")] = None,
    algorithm: Annotated[
        Path | None, typer.Option(help="A TOML file with another algorithm; default: the same one.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="What all begin with: the answer of /decision of a node of the network.")
    ] = None,
    no_guarantee: Annotated[
        bool, typer.Option("--no-guarantee", help="Allow an algorithm without any privacy.")
    ] = False,
) -> None:
    """Write the agreement that follows: with other members, a new horizon, or another algorithm."""
    from gossamer.net.changes import change_network
    from gossamer.net.membership.agreement import Agreement
    from gossamer.net.node.agreement import prepared

    added, console = members_of("--add", add or []), Console()
    made = None
    if algorithm is not None:
        learners = len(Agreement.read(old / "agreement.json").members) + len(added) - len(remove or [])
        made = prepared(load_for_nodes(algorithm, learners).algorithm, allow_no_guarantee=no_guarantee)
    new = change_network(
        old,
        directory,
        add=added,
        remove=remove or [],
        algorithm=made,
        horizon=horizon,
        start=None if start is None else _decision_in(start),
        no_guarantee=no_guarantee,
    )
    chosen = new.algorithm()
    warn(*doubts.about_privacy(chosen.guarantee))
    say(console, chosen.describe())
    if added:
        say(console, f"Send {directory / 'agreement.json'} to {', '.join(added)}. There: gossamer node join")
        say(console, f"Then give every request.json to `gossamer network admit {directory} REQUEST...`.")
    say(console, f"Send agreement.json and members.json of {directory} to all members that stay. There, with the node")
    say(console, "stopped: gossamer node follow OLD NEW agreement.json members.json")
    if remove:
        say(console, f"Send agreement.json to {', '.join(remove)} too: the same command says that it has left.")


def _decision_in(file: Path) -> list[float]:
    """The decision in an answer of a node's page."""
    try:
        return [float(one) for one in json.loads(file.read_text(encoding="utf-8"))["decision"]]
    except (OSError, ValueError, KeyError, TypeError):
        hint = "curl http://localhost:8400/decision > start.json"
        raise ConfigurationError("--start", str(file), "the answer of /decision of a node", hint) from None


def members_of(option: str, given: Sequence[str]) -> dict[str, str]:
    """Names and addresses; refused where one is missing or comes twice."""
    members: dict[str, str] = {}
    for one in given:
        name, equals, address = one.rpartition("=")
        if not equals or name in members:
            raise ConfigurationError(option, one, "NAME=HOST:PORT, each name once", "try clinic-a=10.0.0.1:7400")
        members[name] = address
    return members


Epsilon = Annotated[
    float | None, typer.Option(help="What your data may cost in all, earlier runs included; else you are asked.")
]


def follow(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The node's directory so far; the node is stopped.")],
    directory: Annotated[Path, typer.Argument(metavar="NEW", help="Made here: of the node from now on.")],
    agreement: Annotated[Path, typer.Argument(metavar="AGREEMENT", help="The new agreement.json.")],
    members: Annotated[Path, typer.Argument(metavar="MEMBERS", help="The new members.json.")],
    epsilon: Epsilon = None,
    fingerprint: Annotated[
        list[str] | None, typer.Option(help="What a new member was shown; without it you are asked to compare.")
    ] = None,
) -> None:
    """Go on under a newer agreement, with the same keys; what was spent counts on."""
    from gossamer.net.changes import follow as go_on
    from gossamer.net.directory import NodeDirectory
    from gossamer.net.membership.documents import same_fingerprint

    console = Console()

    def compared(found: Members, new: Sequence[str]) -> bool:
        shown = {name: found.fingerprints[name] for name in new}
        say(console, "\n".join(f"New: {name}: {text}" for name, text in shown.items()))
        say(console, f"Fingerprint of the network, which new members compare: {found.fingerprint}", whole=True)
        if fingerprint is not None:
            return all(any(same_fingerprint(one, text) for one in fingerprint) for text in shown.values())
        _require_terminal("--fingerprint", "the fingerprint that each new member was shown when it joined")
        return typer.confirm("Was each new member shown the same when it joined? Ask by telephone")

    def consent(bill: Bill) -> Budget:
        return _agreed(bill, epsilon)

    go_on(NodeDirectory(old), directory, agreement, members, compared=compared, consent=consent)
    say(console, f"Start the node, once the others are there too: gossamer node {directory}")


def upgrade(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A node's directory of an earlier version.")],
    directory: Annotated[Path, typer.Argument(metavar="NEW", help="Made here, with keys that never leave it.")],
    agreement: Annotated[Path, typer.Argument(metavar="AGREEMENT", help="agreement.json of the new network.")],
    member: Annotated[str, typer.Option(help="This site's name in it.")],
    epsilon: Epsilon = None,
) -> None:
    """Join a network with the data and the ledger of an earlier version; its keys are made anew."""
    from gossamer.net.changes import upgrade as join_on
    from gossamer.net.directory import NodeDirectory
    from gossamer.net.membership.members import Request

    console = Console()
    made = join_on(NodeDirectory(old), directory, agreement, member, consent=lambda bill: _agreed(bill, epsilon))
    request = made.path / "request.json"
    say(console, f"What {old} has spent counts on, and its data are read on from where it stopped. Keep it.")
    say(console, "Its keys were not taken: new ones were made here.")
    say(console, f"Send {request} to the coordinator. It holds public keys only.")
    say(console, f"Fingerprint of {member}: {Request.read(request, made.agreement()).fingerprint}", whole=True)


def _agreed(bill: Bill, epsilon: float | None) -> Budget:
    """The budget to which the owner of the data agrees."""
    console, whole = Console(), bill.whole
    say(console, f"So far your data have cost epsilon {bill.spent[0]:.4g}, delta {bill.spent[1]:.3g}.")
    say(console, f"With the new run they cost up to epsilon {whole.epsilon:g}, delta {whole.delta:.3g} in all.")
    if epsilon is not None:
        return bill.up_to(epsilon)
    _require_terminal("--epsilon", "what your data may cost in all, earlier runs included")
    if not typer.confirm("Do you agree?"):
        raise ConfigurationError("--epsilon", "no", "what your data may cost in all", "nothing was made, nothing spent")
    return whole


def _require_terminal(option: str, allowed: str) -> None:
    if not sys.stdin.isatty():
        raise ConfigurationError(option, "none", allowed)


Out = Annotated[Path, typer.Option(help="The file; it must not exist yet.")]


def backup(directory: Directory, out: Out) -> None:
    """Write what may be restored of a node, which may run: who it is, whom it trusts, what it has spent."""
    from gossamer.net.backups import back_up
    from gossamer.net.directory import NodeDirectory

    back_up(NodeDirectory(directory), out)
    console = Console()
    say(console, f"{out} has the keys of the site's connections: keep it as safe as them.")
    say(console, "It has no noise key, no sample and no state. What is restored from it goes on in the next run.")


def move(directory: Directory, out: Out) -> None:
    """Write all of a node that is stopped, to be restored on another machine; the directory cannot run any more."""
    from gossamer.net.backups import move as moved
    from gossamer.net.directory import NodeDirectory

    moved(NodeDirectory(directory), out)
    console = Console()
    say(
        console,
        f"{out} has all secrets of the node, and nothing else has its noise key. On the other machine:",
    )
    say(console, f"  gossamer node restore {out.name} DIR")
    say(console, "  gossamer node DIR --adopt")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Made by `node backup` or `node move`.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made here.")],
) -> None:
    """Make a node's directory from a backup, or from a move."""
    from gossamer.net.backups import restore as restored

    console = Console()
    if restored(file, directory).copy == "move":
        say(console, f"Put its data where node.toml says, and start it: gossamer node {directory} --adopt")
        return
    say(console, "This was a backup. The node cannot go on in its run, where noise could be used twice; the run counts")
    say(console, "in full. Ask the coordinator for `gossamer network change`, and go on with `gossamer node follow`.")
