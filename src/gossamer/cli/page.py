"""The page of a node, from the command line: its token, and what it says."""

import json
import ssl
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from gossamer.cli.lifecycle import Directory
from gossamer.cli.show import say
from gossamer.errors import ConfigurationError

if TYPE_CHECKING:
    from gossamer.net.directory import NodeDirectory

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # listened at, and how this machine reaches it


def token(
    directory: Directory,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="One that is good for /metrics and /healthz only.")
    ] = False,
) -> None:
    """Make a token for the node's page, and show the link; a token that was there before is good no longer."""
    from gossamer.net.directory import NodeDirectory
    from gossamer.net.web.access import METRICS, OWNER, new_token
    from gossamer.net.wire.certificates import fingerprint_of

    node, console = NodeDirectory(directory), Console()
    settings = node.settings()
    if metrics and not (directory / OWNER).exists():
        raise ConfigurationError("--metrics", f"no {OWNER}", "a token of the owner first", "run it without --metrics")
    file = directory / (METRICS if metrics else OWNER)
    made = new_token(file)
    say(console, f"The token is in {file}; only its owner can read it. Restart the node.")
    if metrics:
        say(console, "Prometheus takes it: authorization with credentials_file.")
    elif settings.http and not settings.http.endswith(":0"):
        say(console, f"The page: {_address(node)}/#token={made}")
        if certificate := _certificate(node):
            say(console, f"SHA-256 of its certificate: {fingerprint_of(certificate.read_bytes())}", whole=True)


def ask(node: "NodeDirectory") -> dict[str, Any]:
    """What the page of a node on this machine says, at /status; an OSError or ValueError where it says nothing."""
    from gossamer.net.web.access import OWNER, read_token

    headers, context = {}, None
    if owner := read_token(node.path / OWNER):
        headers["Authorization"] = f"Bearer {owner}"
    address = _address(node)
    if address.startswith("https"):
        context = _pinned(_certificate(node))
    request = urllib.request.Request(f"{address}/status", headers=headers)
    with urllib.request.urlopen(request, timeout=1.0, context=context) as answer:
        facts: dict[str, Any] = json.load(answer)
    return facts


def _address(node: "NodeDirectory") -> str:
    from gossamer.net.wire.addresses import address_of, parts_of

    host, port = parts_of(node.settings().http, field="http", least_port=0)
    scheme = "http" if _certificate(node) is None else "https"
    return f"{scheme}://{address_of(_EVERYWHERE.get(host, host), port)}"


def _certificate(node: "NodeDirectory") -> Path | None:
    from gossamer.net.web.access import given_certificate, is_loopback
    from gossamer.net.wire.addresses import parts_of

    settings = node.settings()
    given = given_certificate(node.path, settings.http_certificate, settings.http_key)
    if given is None and is_loopback(parts_of(settings.http, field="http", least_port=0)[0]):
        return None
    return (given or node.files()).certificate


def _pinned(certificate: Path | None) -> ssl.SSLContext:
    """Trusts the certificate that lies in the node's directory, whatever name it is for, and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(certificate)
    return context
