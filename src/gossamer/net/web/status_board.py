"""What a node shows of itself: counts, bytes, timings and spend by an allow-list, and its published decision.

Nothing here is computed from samples, but for what was read and rejected of them: that is for the owner alone.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Collection
from typing import Any, NamedTuple, TextIO

import numpy as np

from gossamer.checks import check_choice, check_count
from gossamer.data.schema import Schema
from gossamer.errors import ConfigurationError, DataError, NetworkError
from gossamer.model import TrainedModel
from gossamer.net.data.samples import features_of
from gossamer.net.web.allowed import (
    ALLOWED,
    DROPS,
    EVENTS,
    STATES,
    VERSION,
    State,
    as_number,
    check_field,
    check_metric,
    in_prometheus,
)
from gossamer.net.web.rows import Rows
from gossamer.privacy import Guarantee
from gossamer.problems import Problem
from gossamer.streams.base import Array, fault

_LOGGED_EVERY = 1.0  # seconds
_RATE_OVER, _RATE_MOST = 60.0, 600  # seconds, exchanges


class Plan(NamedTuple):
    """What a learner may spend in all, and how many exchanges that covers (None: they never end).

    Attributes:
        epsilon: of the budget.
        delta: likewise.
        exchanges: that it covers.
        grows: whether what is spent grows from exchange to exchange.
    """

    epsilon: float
    delta: float
    exchanges: int | None
    grows: bool


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
    gossamer.errors.ConfigurationError: metric: got 'loss'; allowed: one of neighbours, neighbours_connected, ...
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
        self.rows = Rows()
        self._lock, self._log_lock = threading.Lock(), threading.Lock()  # a slow log holds up no counter
        self._counts: dict[str, float] = {name: 0 for name, metric in ALLOWED.items() if metric.kind == "counter"}
        del self._counts["frames_dropped"]  # it has a reason
        self._drops: dict[str, float] = dict.fromkeys(DROPS, 0)
        self._gauges: dict[str, float] = {}
        self._heard: dict[int, float | None] = {}
        self._connected: frozenset[int] = frozenset()
        self._lately: deque[float] = deque(maxlen=_RATE_MOST)
        self._logged: dict[str, float] = {}
        self._state: State = "starting"
        self._published: tuple[int, Array] | None = None
        self.plan: Plan | None = None
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
        amount = by if type(by) is int or type(by) is float else as_number(name, by)
        counts, key = (self._counts, name) if reason is None else (self._drops, reason)
        if key not in counts or (name == "frames_dropped") != (reason is not None):
            check_metric(name, "counter")
            raise ConfigurationError("reason", reason, f"for frames_dropped one of {', '.join(DROPS)}; else none")
        if not 0 <= amount < math.inf:
            raise ConfigurationError(name, by, "a finite number of at least 0")
        with self._lock:
            counts[key] += amount

    def set(self, name: str, value: float) -> None:
        """Set a gauge of the allow-list, one without a label."""
        if check_metric(name, "gauge").label:
            raise ConfigurationError("metric", name, "one without a label", "the board itself knows it")
        number = as_number(name, value)
        with self._lock:
            self._gauges[name] = number

    def intend(self, plan: Plan) -> None:
        """Show what may be spent in all."""
        self.plan = plan
        self.set("epsilon_budget", plan.epsilon)
        self.set("delta_budget", plan.delta)
        if plan.exchanges is not None:
            self.set("exchanges_allowed", plan.exchanges)

    def exchanged(self, exchange: int, seconds: float) -> None:
        """Count an exchange that was completed, and how long it took."""
        now = time.time()
        self.count("exchanges")
        self.count("exchange_seconds", seconds)
        self.set("last_exchange", exchange)
        self.set("last_exchange_time", now)
        with self._lock:
            self._lately.append(now)

    def meet(self, neighbours: Collection[int]) -> None:
        """Name the neighbours."""
        self._heard = dict.fromkeys(neighbours)
        self.set("neighbours", len(self._heard))

    def heard(self, neighbour: int) -> None:
        """Note that a neighbour was heard just now."""
        with self._lock:
            self._heard[neighbour] = time.time()

    def connect(self, connected: Collection[int]) -> None:
        """Note which neighbours there is a live connection to."""
        self._connected = frozenset(connected)
        self.set("neighbours_connected", len(self._connected))

    def neighbours(self) -> list[dict[str, Any]]:
        """Each neighbour: whether it is connected, and when it was last heard, in seconds since 1970."""
        with self._lock:
            heard, connected = dict(self._heard), self._connected
        return [{"learner": one, "connected": one in connected, "heard": at} for one, at in sorted(heard.items())]

    def per_minute(self) -> float | None:
        """Exchanges a minute, lately; None before there were some for a second."""
        now = time.time()
        with self._lock:
            lately = [at for at in self._lately if at >= now - _RATE_OVER]
        span = lately[-1] - lately[0] if lately else 0.0
        return 60 * (len(lately) - 1) / span if span >= 1 else None

    def numbers(self) -> dict[str, float]:
        """All counters and gauges without a label; dropped frames by reason."""
        with self._lock:
            drops = {f"frames_dropped {reason}": count for reason, count in self._drops.items()}
            return {**self._counts, **self._gauges, **drops}

    def prometheus(self) -> str:
        """All metrics in the text format 0.0.4."""
        with self._lock:
            plain = {name: {"": value} for name, value in (self._counts | self._gauges).items()}
            drops, heard = dict(self._drops), {str(one): at for one, at in self._heard.items()}
        labelled: dict[str, dict[str, float]] = {
            "frames_dropped": drops,
            "neighbour_connected": {one: int(int(one) in self._connected) for one in heard},
            "neighbour_heard": {one: at for one, at in heard.items() if at is not None},
            "state": {state: int(state == self._state) for state in STATES},
            "build": {VERSION: 1},
        }
        return in_prometheus(plain | labelled, self.learner)

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

    @property
    def healthy(self) -> bool:
        """Whether the node does its work: it runs, waits for samples, or finished and still serves."""
        return self._state in ("running", "waiting", "finished", "exhausted")

    @property
    def published(self) -> int | None:
        """The exchange of the decision that is shown: the version of the model."""
        published = self._published
        return None if published is None else published[0]

    def health(self) -> dict[str, Any]:
        """State, how far the node is, and how many neighbours it reaches."""
        numbers = self.numbers()
        at = numbers.get("last_exchange_time")
        return {
            "learner": self.learner,
            "state": self._state,
            "healthy": self.healthy,
            "exchange": self.published,
            "seconds_since_exchange": None if at is None else round(max(0.0, time.time() - at), 1),
            "neighbours": numbers.get("neighbours", 0),
            "neighbours_connected": numbers.get("neighbours_connected", 0),
        }

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
            check_field(event, name, value)
        head = {"time": round(time.time(), 3), "level": allowed.level, "event": event, "learner": self.learner}
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in fields.items()}
        line = json.dumps(head | plain, allow_nan=False) + "\n"
        stream = self._logs if self._logs is not None else sys.stderr
        with self._log_lock:  # lines of several threads do not mix
            stream.write(line)
            stream.flush()


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
