"""What two learners share and nobody else knows: a secret from their X25519 keys, and tags made with it.

Every learner trusts the certificates of its neighbours, each signed with its own key. So a neighbour could sign another
certificate in the name of a third learner. The tag of a frame is what shows who sent it: it needs the pair's secret.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gossamer.net.dependencies import require_net

TAG = 32
"""Bytes of a tag."""


def new_pair_key() -> bytes:
    """A fresh private key of 32 bytes.

    >>> len(new_pair_key())
    32
    """
    return X25519PrivateKey.generate().private_bytes_raw()


def public_pair_key(private: bytes) -> bytes:
    """The public half of a private key.

    >>> len(public_pair_key(new_pair_key()))
    32
    """
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def is_public_key(public: bytes) -> bool:
    """Whether these bytes are the public half of a key; low-order points, with which every secret is 0, are none.

    >>> is_public_key(public_pair_key(new_pair_key())), is_public_key(bytes(32)), is_public_key(b"short")
    (True, False, False)
    """
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


def pair_secret(private: bytes, public: bytes, network: str) -> bytes:
    """The secret of 32 bytes of two learners of a network, from the key of one and the public key of the other.

    >>> one, other = new_pair_key(), new_pair_key()
    >>> ours = pair_secret(one, public_pair_key(other), "0a1b")
    >>> ours == pair_secret(other, public_pair_key(one), "0a1b"), ours == pair_secret(other, public_pair_key(one), "0a")
    (True, False)
    """
    shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    return _derived(shared, f"gossamer pair {network}")


class Tags:
    """Marks what one learner sends to its peers, and knows what they sent to it.

    Args:
        learner: the learner's number.
        secrets: of the pairs with each peer, by its number.

    >>> zero, one = Tags(0, {1: bytes(32)}), Tags(1, {0: bytes(32)})
    >>> one.opened(0, zero.tagged(1, b"hello"))
    b'hello'
    >>> zero.opened(1, zero.tagged(1, b"hello")) is None  # what went to 1 does not come from 1
    True
    """

    def __init__(self, learner: int, secrets: Mapping[int, bytes]) -> None:
        require_net("blake3")
        self._out = {peer: _derived(secret, f"frame {learner} {peer}") for peer, secret in secrets.items()}
        self._in = {peer: _derived(secret, f"frame {peer} {learner}") for peer, secret in secrets.items()}

    def tagged(self, receiver: int, data: bytes) -> bytes:
        """The data with a tag behind it."""
        return data + _tag(self._out[receiver], data)

    def opened(self, sender: int, data: bytes) -> bytes | None:
        """The data without the tag; None where the tag is not this sender's."""
        body, tag = data[:-TAG], data[-TAG:]
        return body if hmac.compare_digest(tag, _tag(self._in[sender], body)) else None


def _tag(key: bytes, data: bytes) -> bytes:
    from blake3 import blake3

    return blake3(data, key=key).digest(TAG)


def _derived(secret: bytes, purpose: str) -> bytes:
    return HKDF(SHA256(), length=32, salt=None, info=purpose.encode()).derive(secret)
