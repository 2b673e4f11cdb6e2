"""Addresses: `host:port`, where an IPv6 address stands in brackets."""

import re
from ipaddress import IPv4Address, IPv6Address

from gossamer.errors import ConfigurationError

_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_NAME = re.compile(r"([A-Za-z0-9_-]+\.)*[A-Za-z0-9_-]*[A-Za-z_-][A-Za-z0-9_-]*")  # its last part is no number


def address_of(host: str, port: int) -> str:
    """The address of one port of a host, which is given with brackets or without.

    >>> address_of("::1", 7400)
    '[::1]:7400'
    >>> address_of("127.0.0.1", 65536)
    Traceback (most recent call last):
        ...
    gossamer.errors.ConfigurationError: address: got '127.0.0.1:65536'; allowed: host:port, with a name, ...
    """
    bare = without_brackets(host)
    address = f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"
    parts_of(address)
    return address


def parts_of(address: str, *, field: str = "address", least_port: int = 1) -> tuple[str, int]:
    """Host, without brackets, and port; refused where it is no address.

    >>> parts_of("[::1]:7400")
    ('::1', 7400)
    """
    match = _ADDRESS.fullmatch(address)
    if not match or not _is_host(match["host"]) or not least_port <= int(match["port"]) <= 65535:
        hosts = "a name, an IPv4 address or an IPv6 address in brackets"
        allowed = f"host:port, with {hosts}, and a port from {least_port} to 65535"
        raise ConfigurationError(field, address, allowed, 'try "127.0.0.1:7400"')
    return without_brackets(match["host"]), int(match["port"])


def without_brackets(host: str) -> str:
    """A host as programs want it that do not read addresses.

    >>> without_brackets("[::1]"), without_brackets("127.0.0.1")
    ('::1', '127.0.0.1')
    """
    return host.removeprefix("[").removesuffix("]")


def _is_host(host: str) -> bool:
    try:
        IPv6Address(host[1:-1]) if host.startswith("[") else IPv4Address(host)
    except ValueError:
        return _NAME.fullmatch(host) is not None
    return True
