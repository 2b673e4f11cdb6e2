"""What epsilon and delta let somebody find out who guesses whether a record was there: one-sided, for every attack.

Whoever sees all that an observer sees, and knows everything but the record, says "it was there" or "it was not". Let h
be how often it says so rightly where it was there (hits), and f how often wrongly where it was not (false alarms).
Epsilon and delta mean h <= e^epsilon f + delta and 1 - f <= e^epsilon (1 - h) + delta (Wasserman and Zhou 2010;
Kairouz, Oh and Viswanath 2015). Nothing else is used here, and an attack that reaches these numbers may not exist.
"""

from __future__ import annotations

import math


def most_hits(epsilon: float, delta: float, false_alarms: float) -> float:
    """How often an attack can find a record that was there, where it is so often wrong about one that was not.

    >>> most_hits(0.0, 0.0, 0.25), round(most_hits(math.log(3), 0.0, 0.25), 12), most_hits(math.inf, 1.0, 0.0)
    (0.25, 0.75, 1.0)
    """
    if not math.isfinite(epsilon):
        return 1.0
    grown = math.exp(min(epsilon, 700.0)) * false_alarms + delta
    return min(1.0, grown, 1 - math.exp(-epsilon) * (1 - false_alarms - delta))


def best_guess(epsilon: float, delta: float, prior: float = 0.5) -> float:
    """How often the best guess is right at most, about a record that was there with this probability.

    The share of right guesses, prior h + (1 - prior) (1 - f), is linear in h and f, so it is largest in a corner of
    what epsilon and delta allow: always say "not there", always "there", or where both bounds meet.

    >>> round(best_guess(math.log(3), 0.0), 12), best_guess(math.log(3), 0.0, 0.9), best_guess(0.0, 0.0)
    (0.75, 0.9, 0.5)
    """
    if not math.isfinite(epsilon):
        return 1.0
    tilted = 1 / (1 + math.exp(-epsilon))
    middle = tilted + delta * (1 - tilted)
    least, most = (1 - prior) + prior * delta, prior + (1 - prior) * delta
    return min(1.0, max(middle, least, most))


def most_belief(epsilon: float, delta: float, prior: float, hits: float = 0.01) -> float:
    """How often an attack is right at most where it says "it was there", if that many records are found by it.

    The share prior h / (prior h + (1 - prior) f) with the least f that the bounds allow; it falls as h grows. Without
    a least number of hits nothing holds for a positive delta: a rare outcome may tell all.

    >>> round(most_belief(math.log(3), 0.0, 0.5), 12), most_belief(0.0, 0.0, 0.25), most_belief(1.0, 0.01, 0.5)
    (0.75, 0.25, 1.0)
    """
    if not math.isfinite(epsilon) or delta >= hits:
        return 1.0
    false_alarms = max(0.0, (hits - delta) * math.exp(-epsilon), 1 - delta - math.exp(min(epsilon, 700.0)) * (1 - hits))
    return max(prior, prior * hits / (prior * hits + (1 - prior) * false_alarms))


def in_hundred(share: float) -> str:
    """A share as a number of hundred cases, rounded up to a tenth.

    >>> in_hundred(0.5), in_hundred(0.73106), in_hundred(1.0)
    ('50', '73.2', '100')
    """
    tenths = min(1000, math.ceil(share * 1000 - 1e-9))
    return f"{tenths / 10:g}"
