"""l2-Laplace vectors are Gaussian vectors of random size: what host draws and compiled draws share.

Let Z be a standard Gaussian vector in d dimensions and G a Gamma((d + 1) / 2) number, independent of it. Then
X = sqrt(2 G) Z has density proportional to exp(-|x|_2).

*Proof.* Given G = g, X is Gaussian with variance 2g in every coordinate, so its density at x with |x|_2 = r is,
up to a constant,

    integral over g of  g^(-d/2) exp(-r^2 / 4g)  g^((d-1)/2) exp(-g)  =  integral of  g^(-1/2) exp(-g - r^2 / 4g)
                                                                     =  sqrt(pi) exp(-r).

So a vector costs one number more than a Gaussian one, and needs no norm. That number is the size sqrt(2 G), by
inversion of a standard Gaussian z: the quantile of G at Phi(z). It is smooth in z, so a table and straight lines
between its entries give it: within a share of 5e-6 in one dimension, of 2e-7 from ten dimensions on.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

# The table covers -SPAN to SPAN: Box and Muller on 32-bit words give numbers up to 6.77.
SPAN = 7.0
INTERVALS = 2**13


@cache
def sizes(dim: int) -> NDArray[np.float32]:
    """The table: sqrt(2 G) at INTERVALS + 1 equidistant Gaussian numbers from -SPAN to SPAN.

    >>> table = sizes(1)  # G is exponential: its median is log 2
    >>> table.shape, round(float(table[INTERVALS // 2] ** 2 / 2), 4)
    ((8193,), 0.6931)
    """
    from scipy.special import gammainccinv, gammaincinv, ndtr

    z = np.linspace(-SPAN, SPAN, INTERVALS + 1)
    tail = ndtr(-np.abs(z))  # from the nearer end, where the probability has all its digits
    gamma = np.where(z < 0, gammaincinv((dim + 1) / 2, tail), gammainccinv((dim + 1) / 2, tail))
    table: NDArray[np.float32] = np.sqrt(2 * gamma).astype(np.float32)
    table.setflags(write=False)  # every caller gets the same one
    return table
