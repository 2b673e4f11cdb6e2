"""Documents that people send each other: readable JSON, signed, and refused where anything in them was changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gossamer.errors import ConfigurationError, PrivacyError

VERSION = 1
_LONGEST = 2**26


def canonical(document: Mapping[str, Any]) -> bytes:
    """What is signed: a document without its signature, always the same bytes.

    >>> canonical({"b": 1, "a": [2.0], "signature": "5e"})
    b'{"a":[2.0],"b":1}'
    """
    unsigned = {key: value for key, value in document.items() if key != "signature"}
    return json.dumps(unsigned, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(document: Mapping[str, Any]) -> str:
    """Tells documents apart, whatever their signature.

    >>> digest_of({"a": 1})[:16]
    '015abd7f5cc57a2d'
    """
    return hashlib.sha256(canonical(document)).hexdigest()


def fingerprint(*parts: bytes) -> str:
    """192 bits as people read them to each other: too many for somebody who looks for two documents with the same.

    >>> fingerprint(b"a", b"b")
    'e5a0 1fee 14e0 ed5c 4871 4f22 180f 25ad 8365 b53f 9779 f79d'
    """
    whole = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    return " ".join(whole[place : place + 4] for place in range(0, 48, 4))


def same_fingerprint(one: str, other: str) -> bool:
    """Whether two people mean the same, however they write it.

    >>> same_fingerprint("AC8D-8342", "ac8d 8342")
    True
    """
    return _bare(one) == _bare(other)


def _bare(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def write(document: Mapping[str, Any]) -> bytes:
    """A document as it is sent: for people and programs."""
    return json.dumps(document, indent=1, allow_nan=False).encode()


def read(file: Path, kind: str, keys: Collection[str]) -> dict[str, Any]:
    """A document of a kind, with just these keys and texts; what it says is not checked.

    Args:
        file: where it lies.
        kind: "agreement", "request" or "members".
        keys: beside the kind and the signature.
    """
    allowed = f"the {kind} of a network, as it was made"
    try:
        data = file.read_bytes()
        document = json.loads(data[:_LONGEST])
    except (OSError, ValueError):
        hint = "it is gone or broken: ask for it again"
        raise ConfigurationError(kind, str(file), allowed, hint) from None
    if not isinstance(document, dict) or f"gossamer {kind}" not in document:
        raise ConfigurationError(kind, str(file), allowed, "this is something else")
    if document[f"gossamer {kind}"] != VERSION:
        hint = "its maker has another version of Gossamer"
        raise ConfigurationError(f"gossamer {kind}", document[f"gossamer {kind}"], str(VERSION), hint)
    expected = {f"gossamer {kind}", "signature", *keys}
    if set(document) != expected:
        odd = sorted(expected ^ set(document))
        raise ConfigurationError(kind, str(file), f"just the keys {', '.join(sorted(expected))}", f"see {odd[0]!r}")
    return document


def altered(kind: str, file: Path, who: str) -> PrivacyError:
    """The refusal of a document that is not what its maker signed."""
    return PrivacyError(
        f"{kind}: {file} was changed after {who} signed it, or was signed by somebody else. Ask {who} for it again, "
        f"and compare fingerprints by telephone. Nothing was sent."
    )
