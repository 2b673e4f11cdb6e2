"""`gossamer network` and `gossamer node`: learners in processes of their own, each with its own keys."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from typer.core import TyperGroup

from gossamer.checks import check_count
from gossamer.cli import doubts, lifecycle, page, records
from gossamer.cli.config import load_for_nodes
from gossamer.cli.show import say, warn
from gossamer.cli.watching import watch
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, NetworkError
from gossamer.streams import Stream

network = typer.Typer(no_args_is_help=True, help="Make a network of nodes, or try one out on this machine.")

Arrivals = Literal["hidden", "public"]

_PATIENCE = 20.0  # seconds for a node to end


@network.command("new")
def new(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made here: the coordinator's, with its key.")],
    algorithm: Annotated[Path, typer.Option(help="A TOML file with [problem], [topology] and [algorithm].")],
    member: Annotated[list[str], typer.Option(help="NAME=HOST:PORT of each site, in order: where others reach it.")],
    deadline: Annotated[float, typer.Option(help="Seconds to wait for a sign of life from a neighbour.")] = 10.0,
    period: Annotated[float, typer.Option(help="Seconds from one exchange to the next, at least.")] = 1.0,
    arrivals: Annotated[
        Arrivals,
        typer.Option(help="hidden: nodes speak at their pace, samples or not; public: when there are samples."),
    ] = "hidden",
    exchanges: Annotated[
        int | None, typer.Option(help="After how many exchanges learning ends for all. Needed with hidden.")
    ] = None,
    no_guarantee: Annotated[
        bool, typer.Option("--no-guarantee", help="Allow an algorithm without any privacy.")
    ] = False,
) -> None:
    """Write the agreement of a network, which every site then joins with keys of its own."""
    from gossamer.net.enrolment import new_network
    from gossamer.net.node.agreement import prepared
    from gossamer.net.node.correspondence import Pace

    members = lifecycle.members_of("--member", member)
    found = load_for_nodes(algorithm, len(members))
    ready = prepared(found.algorithm, allow_no_guarantee=no_guarantee)
    pace = Pace(deadline=deadline, period=period)
    new_network(directory, ready, members, pace=pace, schema=found.schema, arrivals=arrivals, exchanges=exchanges)
    console = Console()
    warn(*doubts.about_privacy(ready.guarantee))
    _say_agreed(console, ready, arrivals, exchanges)
    say(console, f"Send {directory / 'agreement.json'} to every site. There:")
    for name in members:
        say(console, f"  gossamer node join agreement.json DIR --member {shlex.quote(name)}")
    say(console, f"Then give every request.json to `gossamer network admit {directory} REQUEST...`.")


def _say_agreed(console: Console, ready: Algorithm, arrivals: Arrivals, exchanges: int | None) -> None:
    """What is computed, what is promised, and when."""
    from gossamer.net.node.agreement import promise_of

    say(console, ready.describe().replace(ready.guarantee.sentence(), promise_of(ready, arrivals).sentence()))
    hidden = "Nodes exchange at their pace, whether samples come or not: nobody sees when they come."
    public = "Nodes exchange when one of them has samples: everybody sees when they come."
    say(console, public if arrivals == "public" else hidden)
    if exchanges is not None:
        say(console, f"Learning ends after {exchanges:,} exchanges. The last model stays.")


network.command("change")(lifecycle.change)


@network.command("admit")
def admit_requests(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made by `network new`.")],
    requests: Annotated[list[Path], typer.Argument(metavar="REQUEST...", help="request.json of sites, one or more.")],
) -> None:
    """Put the public keys of all sites into members.json, once every site has sent its request."""
    from gossamer.net.enrolment import admit

    found, console = admit(directory, requests), Console()
    say(console, "\n".join(f"  {name}: {shown}" for name, shown in found.fingerprints.items()), whole=True)
    if found.members is None:
        say(console, f"Still missing: {', '.join(found.missing)}.")
        return
    say(console, f"Send {directory / 'members.json'} to every site. There: gossamer node accept DIR members.json")
    say(console, f"All sites must see this fingerprint: {found.members.fingerprint}", whole=True)


@network.command("try")
def try_out(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made here: a directory for every node.")],
    algorithm: Annotated[Path, typer.Option(help="A TOML file with [problem], [topology] and [algorithm].")],
    nodes: Annotated[int, typer.Option(help="How many learners.")],
    host: Annotated[list[str] | None, typer.Option(help="Address of each node, in order; default 127.0.0.1.")] = None,
    port: Annotated[int, typer.Option(help="Node i listens at this port + i.")] = 7400,
    http_port: Annotated[int, typer.Option(help="Node i has its page at this port + i; 0: none.")] = 8400,
    deadline: Annotated[float, typer.Option(help="Seconds to wait for a sign of life from a neighbour.")] = 10.0,
    period: Annotated[float, typer.Option(help="Seconds from one exchange to the next, at least.")] = 1.0,
    arrivals: Annotated[
        Arrivals,
        typer.Option(help="hidden: nodes speak at their pace, samples or not; public: when there are samples."),
    ] = "hidden",
    exchanges: Annotated[
        int | None,
        typer.Option(
            help="After how many exchanges learning ends for all. Default with [data] and hidden: with the samples."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="With [data] in the file: samples to write for each node.")] = 1000,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="What each node's ledger calls its data, in order: the same for all runs over the same data. "
            "Given once for all: this name and the node's; default: the directory's name and the node's."
        ),
    ] = None,
    no_guarantee: Annotated[
        bool, typer.Option("--no-guarantee", help="Allow an algorithm without any privacy.")
    ] = False,
) -> None:
    """Make all nodes of a network on this machine, for trying: it then has the keys of all of them."""
    from gossamer.net.enrolment import try_network
    from gossamer.net.node.agreement import prepared
    from gossamer.net.node.correspondence import Pace

    check_count("--nodes", nodes)
    found = load_for_nodes(algorithm, nodes)
    hosts = _for_each("--host", host or ["127.0.0.1"], nodes)
    sources = _for_each("--source", source, nodes, end="/node-{}") if source else None
    ready = prepared(found.algorithm, allow_no_guarantee=no_guarantee)
    if exchanges is None and arrivals == "hidden" and found.stream is not None:
        exchanges = ready.schedule.exchanges(min(samples, found.stream.length or samples))
    made = try_network(
        directory,
        ready,
        hosts=hosts,
        port=port,
        http_port=http_port or None,
        pace=Pace(deadline=deadline, period=period),
        arrivals=arrivals,
        exchanges=exchanges,
        sources=sources,
        schema=found.schema,
        no_guarantee=no_guarantee,
    )
    console = Console()
    warn(*doubts.about_privacy(ready.guarantee), *doubts.about_labels(found.only_label))
    _say_agreed(console, ready, arrivals, exchanges)
    for learner, node in enumerate(made):
        if found.stream is not None:
            _write_samples(node.path / "samples.jsonl", found.stream, learner, samples)
        say(console, f"  {node.path}: gossamer node {node.path}")
    if found.stream is None:
        say(console, "Put the samples of each node in its samples.jsonl, or name another file in its node.toml.")
    say(console, "For trying only: this machine made the keys of all nodes. Between sites, use `gossamer network new`.")


def _for_each(option: str, given: list[str], nodes: int, end: str = "") -> list[str]:
    """One text for each node: those that were given, or the one for all of them, with an end of its own for each."""
    if len(given) not in (1, nodes):
        raise ConfigurationError(option, given, f"one for all, or one for each of {nodes} nodes")
    return given if len(given) == nodes else [given[0] + end.format(learner) for learner in range(nodes)]


def _write_samples(file: Path, stream: Stream, learner: int, steps: int) -> None:
    """The first samples of one learner, one JSON object a line."""
    block = stream.read(0, steps if stream.length is None else min(steps, stream.length))
    x, y = block if stream.shared else (leaf[:, learner : learner + 1] for leaf in block)
    features, labels = x.reshape(-1, *x.shape[2:]), y.reshape(-1)
    rows = ({"x": row.tolist(), "y": label.item()} for row, label in zip(features, labels, strict=True))
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.writelines(json.dumps(row) + "\n" for row in rows)


class _NodeCommands(TyperGroup):
    """`gossamer node DIR` runs a node; the commands are the words that come before."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is no command is a directory, or an option of running one."""
        asked = not args or args[0] in self.commands or args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if asked else ["run", *args])


node = typer.Typer(
    cls=_NodeCommands,
    no_args_is_help=True,
    help="Run one learner: `gossamer node DIR`. Before that: join, accept; later: follow, backup, move.",
)


for command in ("renew", "follow", "upgrade", "backup", "move", "restore"):
    node.command(command)(getattr(lifecycle, command))
node.command("check")(records.check)
node.command("data")(records.change)
node.command("token")(page.token)


@node.command("join")
def join_network(
    agreement: Annotated[Path, typer.Argument(metavar="AGREEMENT", help="agreement.json, from the coordinator.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made here, with keys that never leave it.")],
    member: Annotated[str, typer.Option(help="This site's name in the agreement.")],
    data: Annotated[
        str | None, typer.Option(help=f"Its records: {records.DATA}; default: samples.jsonl in DIR.")
    ] = None,
    label: Annotated[str, typer.Option(help="The label's name in them, where the agreement has no schema.")] = "y",
    query: records.Rows = None,
    cursor: records.Cursor = None,
    rotated: Annotated[
        bool, typer.Option("--rotated", help="The file is renamed now and then, and a new one begins (logrotate).")
    ] = False,
    source: Annotated[
        str | None, typer.Option(help="What the ledger calls these data: the same in all runs over them.")
    ] = None,
    http: Annotated[str, typer.Option(help='Where the node has its page; "": none.')] = "127.0.0.1:8400",
    no_guarantee: Annotated[
        bool, typer.Option("--no-guarantee", help="Allow an algorithm without any privacy.")
    ] = False,
) -> None:
    """Make the directory of this site's node, and the request that the coordinator needs."""
    from gossamer.cli import registered
    from gossamer.net.enrolment import join
    from gossamer.net.membership.agreement import Agreement
    from gossamer.net.membership.members import Request
    from gossamer.net.node.agreement import prepared

    agreed = Agreement.read(agreement)
    ready = prepared(agreed.algorithm(), allow_no_guarantee=no_guarantee)
    made = join(
        agreement,
        member,
        directory,
        algorithm=ready,
        source=source,
        http=http,
        data="samples.jsonl" if data is None else records.seen_from_anywhere(data),
        label=label,
        query=records.query_of(query, cursor),
        rotated=rotated,
        no_guarantee=no_guarantee,
    )
    console, request = Console(), made.path / "request.json"
    registered.enter(made)
    warn(*doubts.about_privacy(ready.guarantee), *registered.about_others(made))
    _say_agreed(console, ready, agreed.arrivals, agreed.exchanges)
    say(console, f"Send {request} to the coordinator. It holds public keys only.")
    say(console, f"Fingerprint of {member}: {Request.read(request, agreed).fingerprint}", whole=True)


@node.command("accept")
def accept_members(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made by `node join`.")],
    members: Annotated[Path, typer.Argument(metavar="MEMBERS", help="members.json, from the coordinator.")],
    fingerprint: Annotated[
        str | None, typer.Option(help="What the other sites see; without it you are asked to compare.")
    ] = None,
) -> None:
    """Take the public keys of all sites, once they have compared their fingerprint."""
    from gossamer.net.directory import NodeDirectory
    from gossamer.net.membership.documents import same_fingerprint
    from gossamer.net.membership.members import Members

    console = Console()

    def confirmed(shown: Members) -> bool:
        say(console, "\n".join(f"  {name}: {text}" for name, text in shown.fingerprints.items()), whole=True)
        say(console, f"Fingerprint of the network: {shown.fingerprint}", whole=True)
        if fingerprint is not None:
            return same_fingerprint(fingerprint, shown.fingerprint)
        if not sys.stdin.isatty():
            allowed = "the fingerprint that the other sites see"
            raise ConfigurationError("--fingerprint", "none", allowed, "ask them by telephone")
        return typer.confirm("Do all other sites see the same fingerprint of the network? Ask by telephone")

    NodeDirectory(directory).accept(members, confirmed)
    say(console, f"Accepted. Start the node: gossamer node {directory}")


@node.command("run")
def run_node(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A node's directory, made by `node join`.")],
    data: Annotated[
        str | None, typer.Option(help=f"Instead of what node.toml says: {records.DATA}, or - : standard input.")
    ] = None,
    exchanges: Annotated[int | None, typer.Option(help="End after so many exchanges.")] = None,
    state_key: Annotated[
        Path | None, typer.Option(help="A file with 32 bytes, which seal state, messages and noise key.")
    ] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Go on here with a directory that was moved from another machine.")
    ] = False,
    new_data: Annotated[
        bool, typer.Option("--new-data", help="After a restart: nothing on standard input was used before.")
    ] = False,
    linger: Annotated[bool, typer.Option(help="At the end keep serving the last decision, until SIGTERM.")] = True,
) -> None:
    """Run one learner, until its guarantee is used up or somebody stops it."""
    from gossamer.cli import registered
    from gossamer.net.directory import NodeDirectory
    from gossamer.net.startup import launch, limit_arenas

    limit_arenas()
    found = NodeDirectory(directory)
    settings = found.settings()
    running = launch(
        found,
        settings,
        found.agreement().algorithm(),
        data=None if data is None else records.seen_from_anywhere(data),  # `launch` looks in DIR
        exchanges=exchanges,
        state_key=state_key,
        adopt=adopt,
        new_data=new_data,
        tell=records.tell if sys.stdout.isatty() else None,  # a file or a pipe may be a log that others read
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: running.node.stop())
    warn(*registered.about_others(found))
    running.run(linger=linger)


@network.command("run")
def run(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made by `network try`.")],
    exchanges: Annotated[int | None, typer.Option(help="End after so many exchanges.")] = None,
) -> None:
    """Start all nodes of a directory on this machine, and show what they do."""
    from gossamer.net.directory import NodeDirectory

    made = [path for path in directory.glob("node-*") if path.name.removeprefix("node-").isdigit()]
    found = sorted(made, key=lambda path: int(path.name.removeprefix("node-")))
    if not found:
        raise ConfigurationError("DIR", str(directory), "a directory made by `gossamer network try`")
    nodes = [NodeDirectory(path) for path in found]
    if not all(node.settings().http for node in nodes):
        raise ConfigurationError("http", "", "an address in every node.toml", "the table is read from there")
    logs = [(path / "node.log").open("ab") for path in found]
    extra = [] if exchanges is None else ["--exchanges", str(exchanges)]
    started = [
        subprocess.Popen([sys.executable, "-m", "gossamer", "node", str(path), *extra], stdout=log, stderr=log)
        for path, log in zip(found, logs, strict=True)
    ]
    try:
        watch(nodes, started)
    except KeyboardInterrupt:
        pass
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        codes = [_ended(process) for process in started]
        for log in logs:
            log.close()
    bad = [path.name for path, code in zip(found, codes, strict=True) if code]
    if bad:
        raise NetworkError(f"{', '.join(bad)} ended with an error: see node.log in each directory.")


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The status of a process that was asked to end; it is killed where it does not."""
    try:
        return process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
