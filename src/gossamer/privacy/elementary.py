"""Elementary functions from additions, multiplications and divisions: the same bits on every machine.

A library's functions may differ in the last bit from one processor to the next, and then a replayed draw would differ.
Errors are given in units of u = 2^-53, relative, to first order.
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LOG_2 = 0.6931471805599453


def expm1(z: Floats, terms: int) -> Floats:
    """exp(z) - 1 by so many terms of its series.

    >>> float(expm1(np.array([0.25]), terms=12)[0]) == math.expm1(0.25)
    True
    """
    total = np.full_like(z, 1 / math.factorial(terms))
    for n in range(terms - 1, 0, -1):
        total *= z
        total += 1 / math.factorial(n)
    return z * total


def log(x: Floats) -> Floats:
    """The logarithm of positive numbers, within 10 u: e log 2 + 2 artanh((m - 1) / (m + 1)), x = m 2^e, m around 1.

    >>> bool(abs(log(np.array([10.0]))[0] / math.log(10) - 1) < 1e-15)
    True
    """
    mantissa, exponent = np.frexp(x)
    low = mantissa < math.sqrt(0.5)
    mantissa = np.where(low, 2 * mantissa, mantissa)
    ratio = (mantissa - 1) / (mantissa + 1)
    square = ratio * ratio
    total = np.full_like(x, 1 / 23)
    for n in range(21, 0, -2):
        total *= square
        total += 1 / n
    result: Floats = (exponent - low) * _LOG_2 + 2 * ratio * total
    return result


def sin(x: Floats) -> Floats:
    """The sine of numbers from 0 to pi / 2 by its series, within 6 u.

    >>> float(sin(np.array([np.pi / 2]))[0])
    1.0
    """
    square = x * x
    total = np.full_like(x, -1 / math.factorial(23))
    for n in range(21, 0, -2):
        total *= square
        total += (-1) ** (n // 2) / math.factorial(n)
    return x * total
