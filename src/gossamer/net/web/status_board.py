"""What a node shows of itself: counts, bytes, timings and spend by an allow-list, and its published decision.

Nothing here is computed from samples: no loss, no accuracy, no number of samples. What is not on a list is refused.
"""

from __future__ import annotations

import json
import math
import numbers
import sys
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TextIO

import numpy as np

from gossamer.checks import check_choice, check_count
from gossamer.data.schema import Schema
from gossamer.errors import ConfigurationError, DataError, NetworkError
from gossamer.model import TrainedModel
from gossamer.net.data.samples import features_of
from gossamer.net.wire.frames import REASONS
from gossamer.privacy import Guarantee
from gossamer.problems import Problem
from gossamer.streams.base import Array, fault

State = Literal["starting", "running", "finished", "exhausted", "stopped"]
"""Of a node; "exhausted" means that its budget or horizon is used up: it releases nothing more and still serves."""

DROPS = (*REASONS, "late", "early", "duplicate", "other_payload", "stranger", "queue", "forged")
"""Why a frame can be dropped; "queue": more came than the node could look at; "forged": its tag is not the sender's."""

_LONGEST_TEXT = 500
_LOGGED_EVERY = 1.0  # seconds


class Metric(NamedTuple):
    """One line of the allow-list: the type that Prometheus knows it as, and what it means."""

    kind: Literal["counter", "gauge"]
    help: str


ALLOWED: Mapping[str, Metric] = MappingProxyType(
    {
        "exchanges": Metric("counter", "Exchanges that were completed."),
        "messages_sent": Metric("counter", "Messages sent, without those sent again."),
        "messages_received": Metric("counter", "Messages of neighbours that were accepted."),
        "bytes_sent": Metric("counter", "Bytes of all frames sent."),
        "bytes_received": Metric("counter", "Bytes of all frames received."),
        "resent": Metric("counter", "Messages sent again from the outbox."),
        "missing": Metric("counter", "Messages of neighbours that did not come in time."),
        "void": Metric("counter", "Exchanges whose gossip was given up."),
        "wanted": Metric("counter", "Requests sent to neighbours to send a message again."),
        "frames_dropped": Metric("counter", "Frames that were dropped, by reason."),
        "exchange_seconds": Metric("counter", "Seconds spent in exchanges."),
        "commit_seconds": Metric("counter", "Seconds spent writing the ledger."),
        "waiting_seconds": Metric("counter", "Seconds spent waiting for neighbours."),
        "neighbours_connected": Metric("gauge", "Neighbours with a live connection."),
        "epsilon_spent": Metric("gauge", "Epsilon spent so far, at the delta spent."),
        "delta_spent": Metric("gauge", "Delta at which the epsilon is stated."),
        "ledger_rows": Metric("gauge", "Rows of the ledger, its first two and those of gossip included."),
        "horizon": Metric("gauge", "Steps that the guarantee covers; absent where they are endless."),
        "certificate_end_time": Metric("gauge", "Until when the node's certificate is good, in seconds since 1970."),
        "started_time": Metric("gauge", "When the process started, in seconds since 1970."),
    }
)
"""All that a node measures."""


class Event(NamedTuple):
    """One line of the allow-list of logs: its level, and the fields it may have."""

    level: Literal["info", "warning", "error"]
    fields: frozenset[str]


def _event(level: Literal["info", "warning", "error"], *fields: str) -> Event:
    return Event(level, frozenset(fields))


EVENTS: Mapping[str, Event] = MappingProxyType(
    {
        "started": _event("info", "exchange"),
        "resumed": _event("info", "exchange"),
        "waiting": _event("warning", "answers", "needed"),
        "frame_dropped": _event("warning", "reason", "sender"),
        "missing": _event("warning", "sender", "exchange", "step"),
        "given_up": _event("warning", "exchange", "step"),
        "horizon_used_up": _event("info", "exchange"),
        "budget_used_up": _event("info", "exchange"),
        "left_network": _event("error"),
        "certificate_used": _event("info", "days"),
        "certificate_ends": _event("warning", "days"),
        "stopped": _event("info", "exchange"),
        "refused": _event("error", "reason"),
        "serving": _event("info", "host", "port"),
    }
)
"""All that a node logs."""


class Board:
    """Counters, decision and log of one node; may be used from any thread.

    Args:
        problem: what the node learns; makes predictions.
        guarantee: of the node's algorithm.
        learner: the node's number.
        schema: of the records that predictions are asked for; None where they are features.
        logs: where log lines go; standard error by default.

    >>> from gossamer.privacy.guarantee import no_guarantee
    >>> from gossamer.problems import Logistic
    >>> board = Board(Logistic(2), no_guarantee("an example"), learner=3)
    >>> board.count("messages_sent", 2)
    >>> [line for line in board.prometheus().splitlines() if "messages_sent" in line][-1]
    'gossamer_messages_sent_total{learner="3"} 2'
    >>> board.set("loss", 0.5)
    Traceback (most recent call last):
        ...
    gossamer.errors.ConfigurationError: metric: got 'loss'; allowed: one of neighbours_connected, epsilon_spent, ...
    """

    def __init__(
        self,
        problem: Problem,
        guarantee: Guarantee,
        learner: int,
        *,
        schema: Schema | None = None,
        logs: TextIO | None = None,
    ) -> None:
        self.guarantee, self.learner = guarantee, check_count("learner", learner, least=0)
        self.schema, self._problem, self._logs = schema, problem, logs
        self._lock, self._log_lock = threading.Lock(), threading.Lock()  # a slow log holds up no counter
        self._counts: dict[str, float] = {name: 0 for name, metric in ALLOWED.items() if metric.kind == "counter"}
        self._drops: dict[str, float] = dict.fromkeys(DROPS, 0)
        self._gauges: dict[str, float] = {}
        self._logged: dict[str, float] = {}
        self._state: State = "starting"
        self._published: tuple[int, Array] | None = None
        # A guarantee against a wiretap is about messages: what is played is raw.
        self.shows_decisions = guarantee.observer != "wiretap"

    @property
    def state(self) -> State:
        """What the node is doing."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        check_choice("state", state, State)
        self._state = state

    def count(self, name: str, by: float = 1, *, reason: str | None = None) -> None:
        """Add to a counter of the allow-list; dropped frames are counted by reason."""
        amount = by if type(by) is int or type(by) is float else _number(name, by)
        counts, key = (self._counts, name) if reason is None else (self._drops, reason)
        if key not in counts or (name == "frames_dropped") != (reason is not None):
            _check_metric(name, "counter")
            raise ConfigurationError("reason", reason, f"for frames_dropped one of {', '.join(DROPS)}; else none")
        if not 0 <= amount < math.inf:
            raise ConfigurationError(name, by, "a finite number of at least 0")
        with self._lock:
            counts[key] += amount

    def set(self, name: str, value: float) -> None:
        """Set a gauge of the allow-list."""
        _check_metric(name, "gauge")
        number = _number(name, value)
        with self._lock:
            self._gauges[name] = number

    def publish(self, exchange: int, decision: Any) -> None:
        """Show a decision: the one that is public anyway, made before the samples of this exchange were seen."""
        check_count("exchange", exchange, least=0)
        shown = np.array(decision, np.float32)
        if shown.shape != (self._problem.dim,):
            raise ConfigurationError("decision", f"shape {shown.shape}", f"shape {(self._problem.dim,)}")
        found = fault(shown)
        if found is not None:
            raise DataError(f"the decision of exchange {exchange} is {found[0]} at {found[1]}: learning diverged")
        if not self.shows_decisions:
            return
        shown.setflags(write=False)
        self._published = (int(exchange), shown)  # one assignment: readers see the old pair or the new one

    def numbers(self) -> dict[str, float]:
        """All counters and gauges; dropped frames by reason."""
        with self._lock:
            drops = {f"frames_dropped {reason}": count for reason, count in self._drops.items()}
            return {**self._counts, **self._gauges, **drops}

    def prometheus(self) -> str:
        """All metrics in the text format 0.0.4."""
        with self._lock:
            counts, drops, gauges = dict(self._counts), dict(self._drops), dict(self._gauges)
        lines: list[str] = []
        for name, metric in ALLOWED.items():
            full = f"gossamer_{name}" + "_total" * (metric.kind == "counter")
            lines += [f"# HELP {full} {metric.help}", f"# TYPE {full} {metric.kind}"]
            own = f'learner="{self.learner}"'
            if name == "frames_dropped":
                lines += [f'{full}{{{own},reason="{reason}"}} {_text(drops[reason])}' for reason in DROPS]
            elif name in (values := counts if metric.kind == "counter" else gauges):
                lines.append(f"{full}{{{own}}} {_text(values[name])}")
        return "\n".join(lines) + "\n"

    @property
    def healthy(self) -> bool:
        """Whether the node does its work: it runs, or it finished and still serves."""
        return self._state in ("running", "finished", "exhausted")

    def health(self) -> dict[str, Any]:
        """State, and how far the node is."""
        published = self._published
        exchange = None if published is None else published[0]
        return {"learner": self.learner, "state": self._state, "healthy": self.healthy, "exchange": exchange}

    def promise(self) -> dict[str, Any]:
        """The guarantee as JSON, with its sentence."""
        facts: dict[str, Any] = json.loads(self.guarantee.to_json())
        return facts | {"sentence": self.guarantee.sentence()}

    def decision(self) -> dict[str, Any]:
        """The published decision, None before the first one."""
        published = self._published
        exchange, shown = (None, None) if published is None else (published[0], published[1].tolist())
        return {"learner": self.learner, "state": self._state, "exchange": exchange, "decision": shown}

    def predict(self, asked: Any) -> dict[str, Any]:
        """The published decision's answer for one sample, or for a list of them.

        Args:
            asked: with a schema a record, {"column": value, ...}, or a list of records; without one the features of a
                sample, or a list of them.
        """
        published = self._published
        if not self.shows_decisions:
            raise NetworkError("decisions of this algorithm are functions of raw data, and are never shown")
        if published is None:
            raise NetworkError("there is no decision yet: ask again when the node runs")
        exchange, decision = published
        shape, schema = self._problem.feature_shape, self.schema
        many = isinstance(asked, list) if schema is not None else _depth(asked) > len(shape)
        rows = asked if many else [asked]
        if not len(rows):
            raise DataError("no samples: at least one is needed")
        if schema is None:
            rows = np.stack([_finite(features_of(row, shape), place) for place, row in enumerate(rows)])
        model = TrainedModel(self._problem, decision, schema)
        answer: dict[str, Any] = {"prediction": model.predict(rows).tolist()}
        if model.probabilistic:
            answer["probabilities"] = model.predict_proba(rows).tolist()
        facts = {key: each if many else each[0] for key, each in answer.items()} | {"exchange": exchange}
        return facts | ({"classes": list(model.classes)} if model.classes else {})

    def log_seldom(self, event: str, **fields: Any) -> None:
        """Log what may come often: one line a second at most for each event and reason; all of it is counted."""
        now, what = time.monotonic(), f"{event} {fields.get('reason', '')}"
        if now - self._logged.get(what, -math.inf) >= _LOGGED_EVERY:
            self._logged[what] = now
            self.log(event, **fields)

    def log(self, event: str, **fields: Any) -> None:
        """Write one JSON line: time, level, event, learner, and fields of the event's allow-list."""
        if event not in EVENTS:
            raise ConfigurationError("event", event, f"one of {', '.join(EVENTS)}")
        allowed = EVENTS[event]
        for name, value in fields.items():
            _check_field(event, name, value)
        head = {"time": round(time.time(), 3), "level": allowed.level, "event": event, "learner": self.learner}
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in fields.items()}
        line = json.dumps(head | plain, allow_nan=False) + "\n"
        stream = self._logs if self._logs is not None else sys.stderr
        with self._log_lock:  # lines of several threads do not mix
            stream.write(line)
            stream.flush()


def _check_metric(name: str, kind: Literal["counter", "gauge"]) -> None:
    if name not in ALLOWED or ALLOWED[name].kind != kind:
        those = ", ".join(other for other, metric in ALLOWED.items() if metric.kind == kind)
        hint = "losses, accuracies and numbers of samples say something about the data, and are not shown"
        raise ConfigurationError("metric", name, f"one of {those}", hint)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
        raise ConfigurationError(name, type(value).__name__, "a number")
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _check_field(event: str, name: str, value: Any) -> None:
    """Names of the list only; numbers, and short texts: no array can slip in."""
    fields = EVENTS[event].fields
    if name not in fields:
        raise ConfigurationError(f"field of {event}", name, f"one of {', '.join(sorted(fields))}")
    if event == "frame_dropped" and name == "reason" and value not in DROPS:
        raise ConfigurationError("reason", value, f"one of {', '.join(DROPS)}")
    short = isinstance(value, str) and len(value) <= _LONGEST_TEXT
    if not (short or (isinstance(value, numbers.Real) and math.isfinite(value))):
        allowed = f"a finite number, or a text of at most {_LONGEST_TEXT} characters"
        raise ConfigurationError(f"{name} of {event}", type(value).__name__, allowed)


def _text(value: float) -> str:
    """A number as Prometheus writes it.

    >>> _text(math.inf), _text(3), _text(0.25)
    ('+Inf', '3', '0.25')
    """
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _depth(values: Any) -> int:
    """Axes of a list or an array, going by the first entries."""
    depth = 0
    while isinstance(values, list | tuple) and values:
        depth, values = depth + 1, values[0]
    return depth + np.ndim(values) if isinstance(values, np.ndarray) else depth + isinstance(values, list | tuple)


def _finite(row: Array, place: int) -> Array:
    found = fault(row)
    if found is not None:
        raise DataError(f"sample {place}: a feature is {found[0]} at {found[1]}")
    return row
