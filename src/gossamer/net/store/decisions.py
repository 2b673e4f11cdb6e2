"""The decisions that a node has released, for its owner to take home: the last one, and the mean of all.

They are what the node's page shows, and nothing else: a state that was not noised is never written here. The file is
written at most once a second, and when the node ends: after a crash it may lag by that much.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError, DataError, GossamerError, PrivacyError
from gossamer.files import private_file
from gossamer.model.tensors import from_bytes, to_bytes
from gossamer.net.store.vault import Sealer

_SECONDS = 1.0  # between two times that the file is written, at least,
_SHARE = 20  # and so many times as long as writing took


class Kept(NamedTuple):
    """Of one learner: the exchange in which its last decision is played, that decision, and the mean of so many."""

    network: str
    learner: int
    exchange: int
    last: NDArray[np.float32]
    mean: NDArray[np.float64]
    number: int


class Decisions:
    """Keeps what one node releases. Decisions before the first exchange are those of everybody, and are left out.

    Args:
        path: of the file.
        network: id of the network; what another one left there is not gone on with.
        learner: the node's number.
        dim: how many numbers a decision has.
        sealer: encrypts the file, where the node's state is encrypted.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     decisions = Decisions(Path(folder) / "decisions", "5e1f", 0, 2)
    ...     for exchange in range(4):
    ...         decisions.add(exchange, np.full(2, exchange, np.float32))
    ...     decisions.close()
    ...     kept = read_decisions(Path(folder) / "decisions")
    >>> kept.exchange, kept.last.tolist(), kept.mean.tolist(), kept.number
    (3, [3.0, 3.0], [2.0, 2.0], 3)
    """

    def __init__(self, path: Path, network: str, learner: int, dim: int, sealer: Sealer | None = None) -> None:
        self._path, self._sealer = path, sealer
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._timer: threading.Timer | None = None
        self._wait = _SECONDS
        self.kept: Kept | None = None
        with suppress(GossamerError, OSError):
            kept = read_decisions(path, sealer)
            if (kept.network, kept.learner, kept.last.shape) == (network, learner, (dim,)):
                self.kept = kept
        self._first = Kept(network, learner, 0, np.zeros(dim, np.float32), np.zeros(dim), 0)

    def add(self, exchange: int, decision: NDArray[np.float32]) -> None:
        """A decision that is played in this exchange. Those that were there before a restart count once."""
        before = self.kept or self._first
        if exchange <= before.exchange or not np.isfinite(decision).all():
            return
        number = before.number + 1
        mean = before.mean + (decision - before.mean) / number
        with self._lock:
            self.kept = before._replace(exchange=exchange, last=decision, mean=mean, number=number)
            if self._timer is None:
                self._timer = threading.Timer(self._wait, self._write)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """Write what is not written yet."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            self._write()
        with self._writing:  # what is being written is whole before the process ends
            pass

    def _write(self) -> None:
        """A disk that takes nothing stops the ledger, and with it the node: here it need not be said again."""
        begun = time.monotonic()
        with self._writing, suppress(OSError):
            with self._lock:
                kept, self._timer = self.kept, None
            assert kept is not None
            data = _to_bytes(kept)
            with private_file(self._path) as file:
                file.write(data if self._sealer is None else self._sealer.seal(data, self._path.name))
        self._wait = max(_SECONDS, _SHARE * (time.monotonic() - begun))


def read_decisions(path: Path, sealer: Sealer | None = None) -> Kept:
    """What `Decisions` has written; also while the node runs."""
    data = path.read_bytes()
    if sealer is not None:
        data = sealer.unseal(data, path.name)
    try:
        tensors, notes = from_bytes(data)
        numbers: dict[str, Any] = {name: int(notes[name]) for name in ("learner", "exchange", "number")}
        return Kept(notes["network"], last=tensors["last"], mean=tensors["mean"], **numbers)
    except (DataError, KeyError, ValueError):
        raise PrivacyError(
            f"{path}: it cannot be read: it is sealed, or was changed. If the node's state is sealed, say --state-key; "
            f"else remove the file: a node that runs writes it anew."
        ) from None


def _to_bytes(kept: Kept) -> bytes:
    notes = {name: str(getattr(kept, name)) for name in ("network", "learner", "exchange", "number")}
    return to_bytes({"last": kept.last, "mean": kept.mean}, notes)


def require_decisions(path: Path, network: str, learner: int, sealer: Sealer | None = None) -> Kept:
    """What a node has released; refused where it released nothing, or where it is of another network or learner."""
    try:
        kept = read_decisions(path, sealer)
    except FileNotFoundError:
        hint = "a node that has finished its first exchange writes it within a second; start the node"
        raise ConfigurationError("model", "nothing released yet", "a decision of the node", hint) from None
    if (kept.network, kept.learner) != (network, learner):
        given = f"one of learner {kept.learner} of network {kept.network}"
        raise ConfigurationError(f"model {path}", given, f"one of learner {learner} of network {network}")
    return kept
