"""Makes src/gossamer/mechanisms/blt.py: buffered Toeplitz coefficients for horizons 2^0 to 2^30.

    python tools/make_blt.py            writes the file (about five minutes)
    python tools/make_blt.py --check    compares what is shipped with jax-privacy's closed forms and its optimiser

For every horizon and number of buffers it minimises (largest error of a prefix)^2 x (sensitivity)^2, which is what
`jax_privacy.matrix_factorization.buffered_toeplitz.optimize` does (Dvijotham et al. 2024). That takes decays near 1 as
parameters, which loses digits: at 2^30 rows its best with 6 and 8 buffers is 23 % and 9 % above the optimum. Here the
rates 1 - decay of C and of its inverse are the parameters, in logarithms, in the order in which they interlace. Then
everything is a product or a sum of positive numbers, and float64 is enough at any horizon.

Coefficients are rounded to 12 significant bits, so that products with them are exact in the compiled mechanism. What a
mechanism guarantees is computed from the rounded numbers; nothing in this script has to be trusted.
"""

from __future__ import annotations

import argparse
import math
import re
import textwrap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from gossamer.mechanisms.blt import TABLE, Family, rounded
from gossamer.mechanisms.factors import Buffered, SquareRoot

FILE = Path(__file__).parent.parent / "src" / "gossamer" / "mechanisms" / "blt.py"
EXPONENTS = range(31)
CLOSE = 1.001  # no further buffers once the product is so close to that of the Toeplitz square root
MOST = 10

Floats = NDArray[np.float64]


def main() -> None:
    """Write the file, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare the shipped file with jax-privacy")
    if parser.parse_args().check:
        check()
        return
    write({exponent: family(2**exponent) for exponent in EXPONENTS})


def write(table: dict[int, Family]) -> None:
    """The module with this table in the place of the one that it has."""
    before, start, rest = FILE.read_text().partition('_TEXT = """\n')
    _, end, after = rest.partition('"""\n')
    lines = []
    for exponent, each in table.items():
        pairs = [" / ".join(" ".join(map(shortest, part)) for part in pair) for pair in each]
        lines.append(textwrap.fill(f"{exponent:2}: {'; '.join(pairs)}", 120, subsequent_indent=" " * 4))
    FILE.write_text(before + start + "\n".join(lines) + "\n" + end + after)


def family(rows: int) -> Family:
    """The best coefficients for 1, 2, ... buffers, until one more hardly helps."""
    found: Family = []
    for buffers in range(1, MOST + 1):
        factor = best(rows, buffers)
        ratio = product(factor, rows) / toeplitz(rows)
        print(f"{rows:>12,} rows, {buffers:2} buffers: {ratio:.5f} of the Toeplitz square root", flush=True)
        found.append((factor.rates, factor.scales))
        if ratio < CLOSE:
            break
    return found


def best(rows: int, buffers: int) -> Buffered:
    """Local search from rates spread evenly in their logarithms."""
    spread = np.linspace(-math.log(rows) - 0.3, 1.5, 2 * buffers)
    point = np.concatenate([spread[:1], np.log(np.diff(spread))])
    for _ in range(2):
        point = minimize(objective, point, args=(rows,), method="BFGS", options={"gtol": 1e-10, "maxiter": 2000}).x
    rates, inverse = interlacing(point)
    return Buffered(tuple(map(rounded, rates)), tuple(map(rounded, residues(rates, inverse))))


def interlacing(point: Floats) -> tuple[Floats, Floats]:
    """Rates of C and of its inverse, in turns: rate_1 < inverse_1 < rate_2 < ... < 1."""
    logits = np.cumsum(np.concatenate([point[:1], np.exp(point[1:])]))
    rates = 1 / (1 + np.exp(-logits))
    return rates[0::2], rates[1::2]


def residues(rates: Floats, inverse: Floats) -> Floats:
    """The scales of the matrix with these rates whose inverse has those (partial fractions)."""
    others = [np.delete(rates, k) for k in range(len(rates))]
    return np.array([np.prod(inverse - r) / np.prod(rest - r) for r, rest in zip(rates, others, strict=True)])


def objective(point: Floats, rows: int) -> float:
    """The logarithm of the product, from parameters without bounds."""
    rates, inverse = interlacing(point)
    scales, shares = residues(rates, inverse), -residues(inverse, rates) / inverse
    rest = np.prod(rates / inverse)
    norm = 1 + scales @ geometric(rates[:, None] + rates - rates[:, None] * rates, rows - 1) @ scales
    both = geometric(inverse[:, None] + inverse - inverse[:, None] * inverse, rows)
    error = rows * rest**2 + 2 * rest * shares @ geometric(inverse, rows) + shares @ both @ shares
    return math.log(norm * error) if 0 < norm * error < math.inf else 50.0


def geometric(missing: Floats, terms: int) -> Floats:
    """The sum of (1 - missing)^i over i < terms."""
    return -np.expm1(terms * np.log1p(-np.minimum(missing, 1 - 1e-16))) / missing


def shortest(value: float) -> str:
    """The fewest digits that are read back as the same 12 bits."""
    texts = (f"{value:.{digits}g}" for digits in range(1, 6))
    exact = next(text for text in texts if rounded(float(text)) == value)
    return re.sub("^0(?=[.])", "", exact).replace("e-0", "e-")


def product(factor: Buffered | SquareRoot, rows: int) -> float:
    """Squared error times squared sensitivity."""
    return factor.norm(rows) ** 2 * factor.error(rows)


def toeplitz(rows: int) -> float:
    """The product of the Toeplitz square root; beyond 10^6 rows its coefficients are 1 / sqrt(pi (j + 1/4))."""
    first = min(rows, 10**6)
    norm = SquareRoot(first).norm(first) ** 2 + math.log((rows - 0.25) / (first - 0.25)) / math.pi
    return norm**2


def check() -> None:
    """Print what is shipped beside what jax-privacy computes for it and finds itself."""
    import jax
    import jax.numpy as jnp
    from jax_privacy.matrix_factorization import buffered_toeplitz

    jax.config.update("jax_enable_x64", True)
    for exponent in (4, 10, 16, 20):
        rows = 2**exponent
        for each in TABLE[exponent]:
            factor = Buffered(*each)
            theirs = buffered_toeplitz.BufferedToeplitz.build(1 - np.array(factor.rates), np.array(factor.scales))
            norm = float(buffered_toeplitz.sensitivity_squared(theirs, rows))
            error = float(buffered_toeplitz.max_error(theirs.inverse(), jnp.array(rows)))
            print(f"{rows:>9,} rows, {len(factor.rates)} buffers, product {product(factor, rows):.4f}; ", end="")
            print(f"sensitivity^2 {factor.norm(rows) ** 2:.7f}, jax-privacy {norm:.7f}; ", end="")
            print(f"error {factor.error(rows):.6f}, jax-privacy {error:.6f}")
    for rows, buffers in ((1024, 3), (2**20, 5), (2**30, 8)):
        theirs = buffered_toeplitz.optimize(n=rows, min_buffers=buffers, max_buffers=buffers)
        mine = best(rows, buffers)
        loss = float(buffered_toeplitz.max_loss(theirs, jnp.array(rows)))
        print(f"{rows:>13,} rows, {buffers} buffers: {product(mine, rows):.4f}, jax-privacy's optimiser {loss:.4f}")


if __name__ == "__main__":
    main()
