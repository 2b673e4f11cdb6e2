"""The sentences of a report: short, and without words that only we know."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from gossamer.net.node.spending import added_up
from gossamer.privacy import OBSERVERS, Guarantee, Unit
from gossamer.privacy.guarantee import rounded_up
from gossamer.privacy.meaning import best_guess, in_hundred
from gossamer.reports.officer.facts import Facts

UNITS = {
    Unit.SAMPLE: "One record of this site: a line of its file, with everything in it.",
    Unit.BATCH: "One batch: the records that all sites see in one step, all of them together.",
    Unit.BATCH_SAMPLE: "One record of a batch that all sites see.",
    Unit.SAMPLE_OF_EACH: "One record of every site at the same time.",
}
BASES = {
    "proven": "Proven: there is a mathematical proof, and program code enforces everything that it assumes.",
    "published": "As published: the noise is that of a scientific paper, and the numbers are what it gives.",
    "heuristic": "Not fully enforced: the proof assumes something that no code enforces. It is marked below.",
    "none": "No protection: this run protects nobody.",
}
_RECORDS = (2, 5, 20)  # of one person


def day(time: int) -> str:
    """A moment, for people.

    >>> day(0)
    '1 January 1970, 00:00 UTC'
    """
    moment = datetime.fromtimestamp(time, UTC)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def printable(text: str) -> str:
    r"""Others' words, such that what cannot be seen shows, and nothing changes the direction of the line.

    >>> printable("meters\u202e<b>")
    'meters\\u202e<b>'
    """
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def cost(epsilon: float, delta: float) -> str:
    """Epsilon and delta, rounded up.

    >>> cost(1.0, 0.0), cost(0.5, 1e-6)
    ('epsilon 1', 'epsilon 0.5 and delta 1e-06')
    """
    return f"epsilon {rounded_up(epsilon)}" + ("" if delta == 0 else f" and delta {rounded_up(delta)}")


def whom(promise: Guarantee) -> str:
    """What is protected, and what of it."""
    known = " Its content, that is: everybody may know that it came, and when." if promise.public_arrivals else ""
    return UNITS[promise.unit] + known


def newer(facts: Facts) -> str:
    """What the registry knows of the run that its ledger does not."""
    return (
        f"The registry of this machine has {facts.booked:,} exchanges of this run, this ledger "
        f"{facts.last.exchange + 1:,}. A node notes down about a second ahead. If the node has stopped, or the "
        f"difference is larger, this is an old copy: make the report of the newest."
    )


def against(promise: Guarantee) -> str:
    """Whom it protects from."""
    seen = OBSERVERS[promise.observer]
    return f"{seen[0].upper()}{seen[1:]}. All that they know beside, and any computer, is allowed for."


def epsilon_in_words(epsilon: float) -> str:
    """What an epsilon says."""
    times = f"{math.exp(epsilon):,.3g}" if epsilon < 14 else f"10^{math.ceil(epsilon / math.log(10))}"
    return (
        f"Epsilon {rounded_up(epsilon)}: whatever they see is at most {times} times as likely with the record as with "
        f"another one, or with none, in its place. Epsilon 0 would tell nothing."
    )


def delta_in_words(delta: float) -> str:
    """What a delta says."""
    if delta == 0:
        return "Delta is 0: this holds for everything that can be seen, without exception."
    odds = f"{math.floor(1 / delta):,}" if delta > 1e-7 else f"10^{math.floor(-math.log10(delta))}"
    return f"Delta {rounded_up(delta)}: an allowance for rare outcomes that tell more, 1 in {odds}."


def guess_in_words(epsilon: float, delta: float) -> str:
    """What the best guess reaches."""
    right = in_hundred(best_guess(epsilon, delta))
    return (
        f"Say that a coin decides whether a record is put in, and the attacker guesses. Who sees nothing is right in "
        f"50 of 100 cases. Who sees all of it is right in at most {right} of 100."
    )


def growth_in_words(facts: Facts) -> str:
    """Whether what was spent grows, and why."""
    now, most = (added_up([one])[0] for one in (facts.spent, facts.promised))
    steps = facts.promise.horizon
    ends = "" if steps is None else f" After {steps:,} steps the program releases nothing more."
    if facts.last.exchange < 0:
        return f"Nothing was released so far, so nothing was spent.{ends}"
    if facts.last.kind == "end":
        return "It does not grow any more: this run has ended, and the program refuses to go on."
    if now >= most * (1 - 1e-9):
        return (
            f"It does not grow with more exchanges of this network: the amount above is all that one of the protected "
            f"units can cost in this run, however long it goes on.{ends}"
        )
    return f"It grows while the network goes on, up to {cost(*added_up([facts.promised]))} and no further.{ends}"


def several_records(facts: Facts) -> list[tuple[str, str]]:
    """What the promise says about people with more than one record: by group privacy, from the guarantee itself."""
    shown = []
    for count in _RECORDS:
        many = facts.promise.for_stream(count * facts.times).per_record()
        if many is not None and many.losses:
            shown.append((f"{count}", cost(many.epsilon, many.delta) if many.delta < 1 else "nothing is promised"))
    return shown


GLOSSARY = (
    ("exchange", "one round in which sites send each other messages"),
    ("noise", "random numbers that are added to a message before it leaves a site, so that it hides single records"),
    ("gradient", "the direction in which a record would change the model; messages are made of it"),
    ("clip", "to cut a gradient down to a fixed size, so that no record counts more than any other can"),
    ("ledger", "the file in which the program writes down what a message costs, before it may be sent"),
    ("head", "a number that changes if anything in the ledger is changed"),
    ("agreement", "the document that says what all sites compute; the coordinator signs it"),
    ("fingerprint", "a short number that stands for a site's public keys; sites compare it by telephone"),
)
