"""What all nodes of a network agree on: the algorithm as they run it, its digest, and what their frames look like."""

from __future__ import annotations

from typing import Literal

from gossamer.checks import check_choice, check_count
from gossamer.core import Algorithm, Schedule
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.wire.frames import Format, Leaf
from gossamer.net.wire.transport import LONGEST_MESSAGE
from gossamer.privacy import FastNoise, Guarantee, NoiseSource, SecureNoise
from gossamer.privacy.keystream import subkey
from gossamer.topology import Topology

Arrivals = Literal["public", "hidden"]
"""Whether everybody may know when samples come, or nobody outside the site."""

_LATEST = 2**62
_ROUNDINGS = 2**25


def prepared(algorithm: Algorithm, *, allow_no_guarantee: bool = False) -> Algorithm:
    """The algorithm as nodes run it: with secure noise, unless it protects nothing and that is allowed.

    >>> from gossamer import algorithms, problems, topology
    >>> prepared(algorithms.d_ogd(problems.Linear(2), topology.ring(3), step=0.1))
    Traceback (most recent call last):
        ...
    gossamer.errors.PrivacyError: guarantee: got 'none'; allowed: one that noise can keep. To send raw gradients ...
    """
    if any(spec.used_in == "decide" for spec in algorithm.learner.noise.values()):
        raise ConfigurationError("algorithm", algorithm.name, "one whose decisions draw no noise of their own")
    if algorithm.missing is None:
        hint = "use calibration='tight'"
        raise PrivacyError.of("algorithm", algorithm.name, "one whose guarantee holds where messages are lost", hint)
    if algorithm.missing == "nothing":
        _require_few_roundings(algorithm)
    if algorithm.guarantee.basis != "none":
        return algorithm.secured()
    if not allow_no_guarantee:
        hint = "to send raw gradients on purpose, say so: allow_no_guarantee, or --no-guarantee"
        raise PrivacyError.of("guarantee", "none", "one that noise can keep", hint)
    return algorithm


def _require_few_roundings(algorithm: Algorithm) -> None:
    """Refuse gossip so long that its roundings in float64, before the noise, are not covered: docs/network.md."""
    assert isinstance(algorithm.topology, Topology)
    mixing = algorithm.mixing
    theta = mixing.theta_on(algorithm.topology)
    if mixing.steps * (algorithm.learners + 3) / (1 - (theta or 0.0)) >= _ROUNDINGS:
        fewer = "fewer gossip steps with noise after gossip on a network"
        raise PrivacyError.of("steps_per_exchange", mixing.steps, fewer)


def promise_of(algorithm: Algorithm, arrivals: Arrivals) -> Guarantee:
    """What a node promises: the algorithm's guarantee, of the content of samples alone where arrivals are public.

    >>> from gossamer import Budget, algorithms, problems, topology
    >>> algorithm = algorithms.pd_ogd(problems.Logistic(2), topology.ring(3), budget=Budget(1.0), clip=1.0, step=0.1)
    >>> promise = promise_of(algorithm, "public")
    >>> promise.basis, promise.protected
    ('proven', 'the content of one sample of one learner, of which everybody knows that and when it comes,')
    """
    check_choice("arrivals", arrivals, Arrivals)
    promise = algorithm.guarantee
    return promise.with_public_arrivals() if arrivals == "public" and promise.basis != "none" else promise


def require_kept(algorithm: Algorithm, arrivals: Arrivals, exchanges: int | None, period: float) -> None:
    """Refuse an agreement under which a network without new samples would lose its model, or show when they come.

    >>> from gossamer import algorithms, problems, topology
    >>> algorithm = algorithms.d_ogd(problems.Linear(2), topology.ring(3), step=0.1)
    >>> require_kept(algorithm, "public", None, period=0.0)
    >>> require_kept(algorithm, "hidden", None, period=1.0)
    Traceback (most recent call last):
        ...
    gossamer.errors.ConfigurationError: exchanges: got None; allowed: after how many learning ends, where arrivals ...
    """
    check_choice("arrivals", arrivals, Arrivals)
    if exchanges is not None:
        check_count("exchanges", exchanges)
    if not period and algorithm.guarantee.basis != "none":
        hint = "samples are read before an exchange begins, so that nobody sees how long that takes"
        raise ConfigurationError("period", period, "seconds above 0", hint)
    if arrivals == "public":
        return
    if exchanges is None:
        hint = (
            "nodes then speak whether samples come or not, and noise without samples would ruin the model: say for how "
            "many exchanges most sites have samples, or arrivals='public'"
        )
        raise ConfigurationError("exchanges", None, "after how many learning ends, where arrivals are hidden", hint)


def key_fingerprint(key: bytes) -> str:
    """Tells whether a ledger belongs to a noise key; gives nothing of the key away.

    >>> len(key_fingerprint(bytes(32)))
    32
    """
    return subkey(key, "ledger").hex()[:32]


def noise_of(algorithm: Algorithm, key: bytes, run: str) -> NoiseSource:
    """The noise of one node: secure, or fast where nothing is protected.

    A node draws as the only learner of its key, so its draws do not depend on its number.

    >>> from gossamer import algorithms, problems, topology
    >>> algorithm = algorithms.noisy_ogd(problems.Linear(2), topology.ring(3), step=0.1, scale=0.1)
    >>> type(noise_of(algorithm, bytes(32), "run")).__name__
    'FastNoise'
    """
    if algorithm.guarantee.basis == "none":
        return FastNoise(int.from_bytes(subkey(key, run, algorithm.digest)[:8], "little"))
    return SecureNoise(key, run, algorithm.digest)


def frame_format(algorithm: Algorithm, network: str, leaves: tuple[Leaf, ...]) -> Format:
    """What the frames of a network look like.

    A learner's message has the dtype that it speaks in; what gossip makes of messages is sent in float64, so that its
    rounding is far below what the noise after gossip covers.
    """
    wide = tuple(Leaf("<f8", leaf.shape) for leaf in leaves)
    made = Format(
        network=bytes.fromhex(network),
        config=bytes.fromhex(algorithm.digest),
        learners=algorithm.learners,
        steps=algorithm.mixing.steps,
        first=wide if algorithm.missing == "later" else leaves,
        later=wide,
    )
    if made.limit > LONGEST_MESSAGE:
        allowed = f"messages of at most {LONGEST_MESSAGE:,} bytes"
        raise ConfigurationError("problem", f"messages of {made.limit:,} bytes", allowed, "take a smaller model")
    return made


def block_at(schedule: Schedule, exchange: int) -> int:
    """How many steps lie before an exchange, after the one before it.

    >>> from gossamer.core import Every, Phases, Segment
    >>> block_at(Every(4), 7), block_at(Phases((Segment(1, 0), Segment(9, 2))), 0)
    (4, 0)
    """
    for segment in schedule.segments(_LATEST):
        if exchange < segment.exchanges:
            return segment.block
        exchange -= segment.exchanges
    raise ConfigurationError("exchange", exchange, "fewer exchanges than the schedule has")
