"""What all nodes of a network agree on: the algorithm as they run it, its digest, and what their frames look like."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.core import Algorithm, Schedule
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.wire.frames import Format, Leaf
from gossamer.net.wire.transport import LONGEST_MESSAGE
from gossamer.privacy import Assumption, FastNoise, Guarantee, NoiseSource, SecureNoise
from gossamer.privacy.keystream import subkey
from gossamer.problems import Block
from gossamer.topology import Topology

Empty = Literal["silent", "wait"]
"""What a node does where no sample has come: it speaks with a zero gradient, or waits, which shows when they come."""

BLIND = Assumption("when samples come, and whether they can be used, tells nothing")
"""What a node that waits for samples assumes."""

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
        raise PrivacyError.of("block", mixing.steps, "fewer gossip steps with noise after gossip on a network")


def promise_of(algorithm: Algorithm, empty: Empty) -> Guarantee:
    """What a node promises: the algorithm's guarantee, which says nothing of when samples come.

    >>> from gossamer import Budget, algorithms, problems, topology
    >>> algorithm = algorithms.pd_ogd(problems.Logistic(2), topology.ring(3), budget=Budget(1.0), clip=1.0, step=0.1)
    >>> promise_of(algorithm, "silent").basis, promise_of(algorithm, "wait").basis
    ('proven', 'heuristic')
    """
    promise = algorithm.guarantee
    if empty == "silent" or promise.basis == "none":
        return promise
    basis = "heuristic" if promise.basis == "proven" else promise.basis
    made = replace(promise, basis=basis, assumptions=(*promise.assumptions, BLIND))
    return made.because("the node waits for samples, so its neighbours see when they come")


def config_digest(algorithm: Algorithm) -> str:
    """A digest of all that says what is computed: it is part of the noise, of the ledger and of every frame.

    >>> from gossamer import algorithms, problems, topology
    >>> one, two = (algorithms.d_ogd(problems.Linear(2), topology.ring(3), step=step) for step in (0.1, 0.2))
    >>> config_digest(one) == config_digest(one), config_digest(one) == config_digest(two)
    (True, False)
    """
    problem, network = algorithm.problem, algorithm.topology
    parts = [repr(part) for part in (algorithm.name, algorithm.learner, algorithm.mixing, algorithm.schedule)]
    parts += [f"{name} {schedule!r}" for name, schedule in sorted(algorithm.public.items())]
    parts += [repr(algorithm.releases), repr(algorithm.missing), repr(algorithm.batch)]
    parts += [
        replace(algorithm.guarantee).to_json()
    ]  # without the digest of programs, which other versions of JAX write
    parts += [hashlib.sha256(problem.initial_decision().astype("<f4").tobytes()).hexdigest()]
    if isinstance(network, Topology):
        lists = network.neighbours(np.arange(1 if network.fixed else 64))
        parts += [network.name, repr(lists.speakers.tolist()), repr(lists.weights.tolist())]
    text = "\n".join(parts)
    if " at 0x" in text:  # a function of the user's: its place in memory says nothing, its operations do
        block = Block(jnp.zeros((1, *problem.feature_shape)), jnp.zeros(1, jnp.int32))
        program = jax.make_jaxpr(problem.losses)(jnp.zeros(problem.dim), block)
        text += str(program) + "".join(map(_digest_of, program.consts))
    plain = re.sub(r" at 0x[0-9a-f]+", "", text)
    # Nine digits: machines differ in the last ones.
    rounded = re.sub(r"\d+\.\d+(?:e-?\d+)?|\d+e-?\d+", lambda number: f"{float(number[0]):.9g}", plain)
    return hashlib.sha256(rounded.encode()).hexdigest()


def _digest_of(array: Any) -> str:
    """Of numbers that a program holds: its text does not show them."""
    known = np.asarray(array)
    return f" {known.dtype} {known.shape} {hashlib.sha256(known.tobytes()).hexdigest()}"


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
    digest = config_digest(algorithm)
    if algorithm.guarantee.basis == "none":
        return FastNoise(int.from_bytes(subkey(key, run, digest)[:8], "little"))
    return SecureNoise(key, run, digest)


def frame_format(algorithm: Algorithm, network: str, leaves: tuple[Leaf, ...]) -> Format:
    """What the frames of a network look like.

    A learner's message has the dtype that it speaks in; what gossip makes of messages is sent in float64, so that its
    rounding is far below what the noise after gossip covers.
    """
    wide = tuple(Leaf("<f8", leaf.shape) for leaf in leaves)
    made = Format(
        network=bytes.fromhex(network),
        config=bytes.fromhex(config_digest(algorithm)),
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
