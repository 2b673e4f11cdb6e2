"""What a node may show of itself: lists of its metrics and of its log lines. What is not on a list is refused.

Nothing here is computed from samples: no loss, no accuracy, no number of samples.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from gossamer.errors import ConfigurationError
from gossamer.net.wire.frames import REASONS

State = Literal["starting", "running", "waiting", "finished", "exhausted", "stopped"]
"""Of a node; "waiting": arrivals are public, and nobody has samples; "exhausted": its budget or horizon is used up, so
it releases nothing more and still serves."""

STATES: tuple[State, ...] = get_args(State)

VERSION = version("gossamer")

DROPS = (*REASONS, "late", "early", "duplicate", "other_payload", "stranger", "queue", "forged")
"""Why a frame can be dropped; "queue": more came than the node could look at; "forged": its tag is not the sender's."""

_LONGEST_TEXT = 500

Kind = Literal["counter", "gauge"]


class Metric(NamedTuple):
    """One line of the allow-list: its type, what it means, its name in Prometheus where it has a unit, its label."""

    kind: Kind
    help: str
    named: str = ""
    label: Literal["", "reason", "neighbour", "state", "version"] = ""


def _counter(help: str, named: str = "", label: Literal["", "reason"] = "") -> Metric:
    return Metric("counter", help, named, label)


def _gauge(help: str, named: str = "", label: Literal["", "neighbour", "state", "version"] = "") -> Metric:
    return Metric("gauge", help, named, label)


ALLOWED: Mapping[str, Metric] = MappingProxyType(
    {
        "exchanges": _counter("Exchanges that were completed."),
        "messages_sent": _counter("Messages sent, without those sent again."),
        "messages_received": _counter("Messages of neighbours that were accepted."),
        "bytes_sent": _counter("Bytes of all frames sent.", "sent_bytes"),
        "bytes_received": _counter("Bytes of all frames received.", "received_bytes"),
        "resent": _counter("Messages sent again from the outbox.", "messages_resent"),
        "missing": _counter("Messages of neighbours that did not come in time.", "messages_missing"),
        "void": _counter("Exchanges whose gossip was given up.", "exchanges_void"),
        "wanted": _counter("Requests sent to neighbours to send a message again.", "messages_wanted"),
        "frames_dropped": _counter("Frames that were dropped, by reason.", label="reason"),
        "exchange_seconds": _counter("Seconds spent in exchanges."),
        "commit_seconds": _counter("Seconds spent writing the ledger."),
        "waiting_seconds": _counter("Seconds spent waiting for neighbours."),
        "neighbours": _gauge("Neighbours that the topology gives to this learner."),
        "neighbours_connected": _gauge("Neighbours with a live connection."),
        "neighbour_connected": _gauge("Whether there is a live connection to a neighbour.", label="neighbour"),
        "neighbour_heard": _gauge(
            "When a neighbour was last heard, in seconds since 1970; absent before it was.",
            "neighbour_heard_timestamp_seconds",
            label="neighbour",
        ),
        "epsilon_spent": _gauge("Epsilon spent so far, at the delta spent, with earlier runs that are counted."),
        "delta_spent": _gauge("Delta at which the epsilon is stated."),
        "epsilon_budget": _gauge("Epsilon that may be spent in all."),
        "delta_budget": _gauge("Delta that may be spent in all."),
        "exchanges_allowed": _gauge("Exchanges that budget and horizon cover; absent where they never end."),
        "last_exchange": _gauge("Number of the last exchange, from 0; restarts included.", "last_exchange_number"),
        "last_exchange_time": _gauge(
            "When the last exchange was completed, in seconds since 1970; absent before one was.",
            "last_exchange_timestamp_seconds",
        ),
        "period": _gauge("From one exchange to the next at least, as the network has agreed.", "period_seconds"),
        "ledger_rows": _gauge("Rows of the ledger, its first two and those of gossip included."),
        "horizon": _gauge("Steps that the guarantee covers; absent where they are endless.", "horizon_steps"),
        "certificate_end": _gauge(
            "Until when the node's certificate is good, in seconds since 1970.", "certificate_end_timestamp_seconds"
        ),
        "page_certificate_end": _gauge(
            "Until when the certificate of the node's page is good, in seconds since 1970; absent without TLS.",
            "page_certificate_end_timestamp_seconds",
        ),
        "start_time": _gauge("When the process started, in seconds since 1970.", "start_time_seconds"),
        "state": _gauge("Whether the node is in this state.", label="state"),
        "build": _gauge("The version of Gossamer that runs.", "build_info", label="version"),
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


def check_metric(name: str, kind: Kind) -> Metric:
    """The metric of this name and kind; refused where there is none."""
    if name not in ALLOWED or ALLOWED[name].kind != kind:
        those = ", ".join(other for other, metric in ALLOWED.items() if metric.kind == kind)
        hint = "losses, accuracies and numbers of samples say something about the data, and are not shown"
        raise ConfigurationError("metric", name, f"one of {those}", hint)
    return ALLOWED[name]


def as_number(name: str, value: Any) -> float:
    """A value of a metric; refused where it is no number, or NaN."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
        raise ConfigurationError(name, type(value).__name__, "a number")
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def check_field(event: str, name: str, value: Any) -> None:
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


def in_prometheus(values: Mapping[str, Mapping[str, float]], learner: int) -> str:
    """Metrics in the text format 0.0.4.

    Args:
        values: by name, and by value of the label ("" where there is none).
        learner: whose they are.

    >>> print(in_prometheus({"neighbour_connected": {"1": 1}}, learner=3).splitlines()[-1])
    # TYPE gossamer_build_info gauge
    >>> [line for line in in_prometheus({"bytes_sent": {"": 7}}, learner=3).splitlines() if "sent_bytes" in line][-1]
    'gossamer_sent_bytes_total{learner="3"} 7'
    """
    lines: list[str] = []
    for name, metric in ALLOWED.items():
        full = f"gossamer_{metric.named or name}" + "_total" * (metric.kind == "counter")
        lines += [f"# HELP {full} {metric.help}", f"# TYPE {full} {metric.kind}"]
        for which, value in values.get(name, {}).items():
            label = f',{metric.label}="{which}"' if metric.label else ""
            lines.append(f'{full}{{learner="{learner}"{label}}} {_text(value)}')
    return "\n".join(lines) + "\n"


def _text(value: float) -> str:
    """A number as Prometheus writes it.

    >>> _text(math.inf), _text(3), _text(0.25)
    ('+Inf', '3', '0.25')
    """
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
