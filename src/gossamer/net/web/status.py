"""What the page of a node tells its owner, as one JSON value: facts, and in words what is wrong and what to do."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gossamer.net.web.allowed import VERSION
from gossamer.net.web.status_board import Board
from gossamer.privacy import Guarantee
from gossamer.privacy.meaning import best_guess, in_hundred

_DAY = 86_400.0
_ENDS_SOON = 30 * _DAY
_LATE = 3.0  # times what one exchange may take
_LITTLE = 0.1  # of the exchanges that the budget covers
_UNUSABLE = 0.01  # of the rows


@dataclass(frozen=True)
class About:
    """What does not change while a node runs: its network, and its place in it.

    Attributes:
        network: the network's id.
        algorithm: what it runs, in words.
        members: names of all members, by number.
        links: who ever hears whom, as pairs of numbers.
        deadline: after which a silent neighbour counts as away, in seconds.
    """

    network: str = ""
    algorithm: str = ""
    members: tuple[str, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    deadline: float = 10.0

    def name(self, learner: int) -> str:
        """What a learner is called.

        >>> About(members=("north", "south")).name(1), About().name(1)
        ('south', 'learner 1')
        """
        return self.members[learner] if learner < len(self.members) else f"learner {learner}"


def status_of(board: Board, about: About) -> dict[str, Any]:
    """All that the page shows.

    >>> from gossamer.privacy.guarantee import no_guarantee
    >>> from gossamer.problems import Logistic
    >>> status = status_of(Board(Logistic(2), no_guarantee("an example"), learner=0), About())
    >>> status["state"], status["spend"], status["rows"]["read"]
    ('starting', None, 0)
    """
    now, numbers = time.time(), board.numbers()
    known = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return {
        "now": now,
        "version": VERSION,
        "name": about.name(board.learner),
        "learner": board.learner,
        "network": about.network,
        "algorithm": about.algorithm,
        "state": board.state,
        "healthy": board.healthy,
        "since": known.get("start_time"),
        "progress": _progress(board, known),
        "spend": _spend(board, known),
        "guarantee": {
            "basis": board.guarantee.sentence().partition(":")[0].lower(),
            "sentence": board.guarantee.sentence(),
            "meaning": meaning(board.guarantee, board.learner),
        },
        "neighbours": [one | {"name": about.name(one["learner"])} for one in board.neighbours()],
        "members": list(about.members),
        "links": [list(pair) for pair in about.links],
        "model": {"exchange": board.published, "shown": board.shows_decisions},
        "certificate_end": known.get("certificate_end"),
        "counts": known,
        "rows": board.rows.facts(),
        "alarms": list(_alarms(board, about, known, now)),
    }


def meaning(guarantee: Guarantee, learner: int) -> str:
    """What epsilon and delta mean for somebody who guesses; empty where nothing is proven and checked.

    >>> from gossamer.privacy import Pure
    >>> print(meaning(Guarantee("published", losses=(Pure(1.0),), deltas=(0.0,)), 0))
    <BLANKLINE>
    """
    if guarantee.basis != "proven" or not guarantee.checked:
        return ""
    place = learner if len(guarantee.losses) > 1 else 0
    epsilon = guarantee.epsilons[place]
    right = best_guess(epsilon, min(1.0, guarantee.deltas[place] + guarantee.sampler_share(epsilon)))
    return (
        f"Somebody who knows all the rest and guesses which of two values {guarantee.unit} had is right at most "
        f"{in_hundred(right)} % of the time; blind guessing is right 50 % of the time."
    )


def _progress(board: Board, known: dict[str, float | None]) -> dict[str, Any]:
    plan = board.plan
    return {
        "exchange": known.get("last_exchange"),
        "at": known.get("last_exchange_time"),
        "per_minute": board.per_minute(),
        "period": known.get("period"),
        "allowed": None if plan is None else plan.exchanges,
    }


def _spend(board: Board, known: dict[str, float | None]) -> dict[str, Any] | None:
    """Epsilon and delta against the budget; None without a guarantee."""
    plan = board.plan
    if plan is None:
        return None
    began = "epsilon_spent" in known
    return {
        "epsilon": known["epsilon_spent"] if began else 0.0,
        "delta": known["delta_spent"] if began else 0.0,
        "budget": {"epsilon": plan.epsilon, "delta": plan.delta},
        "grows": plan.grows,
    }


def _alarms(board: Board, about: About, known: dict[str, float | None], now: float) -> Iterator[dict[str, str]]:
    """What is wrong, the worst first."""
    if board.state == "stopped":
        yield _alarm("error", "The node has stopped.", "Its log says why. Start it again when that is put right.")
    if board.state == "exhausted":
        yield _alarm("warning", "Nothing more may be spent: the node serves its last model.", "Make a new network.")
    if board.state == "running":
        yield from _late(about, known, now)
        yield from _away(board, about, now)
        yield from _ends(board, known)
    end = known.get("certificate_end")
    if end is not None and end - now < _ENDS_SOON:
        days = math.floor((end - now) / _DAY)
        told = f"The certificate ends in {days} days." if days > 0 else "The certificate has ended or ends today."
        yield _alarm("error" if days < 1 else "warning", told, "Run: gossamer node renew DIR")
    rows = board.rows
    if rows.rejected > _UNUSABLE * rows.read:
        share = math.ceil(100 * rows.rejected / rows.read)
        yield _alarm("warning", f"Up to {share} % of your rows cannot be used.", "See rejected.log in DIR.")


def _late(about: About, known: dict[str, float | None], now: float) -> Iterator[dict[str, str]]:
    last = known.get("last_exchange_time") or known.get("start_time") or now
    allowed = _LATE * max(about.deadline, known.get("period") or 0.0)
    if now - last > allowed:
        told = f"No exchange for {_span(now - last)}."
        yield _alarm("error", told, "It waits for neighbours, for samples, or for its disk: its log says for which.")


def _away(board: Board, about: About, now: float) -> Iterator[dict[str, str]]:
    for one in board.neighbours():
        if one["heard"] is None or now - one["heard"] > _LATE * max(about.deadline, board.numbers().get("period", 0.0)):
            since = "since the start" if one["heard"] is None else f"for {_span(now - one['heard'])}"
            name = about.name(one["learner"])
            yield _alarm("warning", f"{name} was not heard {since}.", f"Ask {name} whether its node runs.")


def _ends(board: Board, known: dict[str, float | None]) -> Iterator[dict[str, str]]:
    last, plan = known.get("last_exchange"), board.plan
    if plan is None or plan.exchanges is None or last is None:
        return
    left = plan.exchanges - int(last) - 1
    if left < _LITTLE * plan.exchanges:
        yield _alarm(
            "warning", f"{left:,} exchanges are left.", "Then the node serves its last model, and learns no more."
        )


def _alarm(level: str, told: str, todo: str) -> dict[str, str]:
    return {"level": level, "told": told, "todo": todo}


def _span(seconds: float) -> str:
    """A time that went by, in words.

    >>> _span(42), _span(200), _span(7300), _span(200_000)
    ('42 seconds', '3 minutes', '2 hours', '2 days')
    """
    for unit, size in (("days", _DAY), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
