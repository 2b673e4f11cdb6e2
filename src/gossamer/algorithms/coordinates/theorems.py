"""What paper 002 proves of DPSDA, in numbers: Theorems 1, 3 and 5, Lemmas 3 and 6, Corollaries 1 and 2.

All are for the noise as published, with epsilon for every round. Constants that several of them take:

    nodes        n
    epsilon      of one round
    bound        L^, of |u_i|
    lipschitz    L, of the norm of the gradient of f_t
    smoothness   G of f_t
    diameter     D_chi, of the set of one coordinate, or with different sets of the largest (Remark 4)
    psi          C, the largest value of the proximal function: `Proximal.largest`
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

BETA = 2.0
"""beta of Lemma 6."""


def theorem_1(
    *,
    steps: Sequence[float],
    last_step: float,
    moved: Sequence[float],
    apart: Sequence[float],
    misled: Sequence[float],
    lipschitz: float,
    diameter: float,
    psi: float,
    nodes: int,
    biased: float = 0.0,
) -> float:
    """Theorem 1: the pseudo-regret (3) of any algorithm of Protocol 1, from what was measured in every round.

    (1/2) sum alpha(t-1) E|phi(t)|^2 + C / alpha(T)                                         (E1)
    + L sum E|x(t) - x_(t)| + sqrt(n) D sum E|grad f_t(x_(t)) - g(t)| + (E4)                (E2), (E3)

    Args:
        steps: alpha(t-1) of the rounds t = 1, ..., T.
        last_step: alpha(T).
        moved: E|phi(t)|^2, of what a round adds to the average of the duals.
        apart: E|x(t) - x_(t)|, of what is played from what the average of the duals gives.
        misled: E|grad f_t(x_(t)) - g(t)|, of the gradients from those at that point.
        lipschitz: L.
        diameter: D_chi.
        psi: C.
        nodes: n.
        biased: (E4), the largest sum of E<g(t) - phi(t), x_(t) - v>: 0 where phi(t) has the mean g(t).

    Plain dual averaging with one node, gradients of norm 1 and alpha(t) = 1 / sqrt(t), over 4 rounds:

    >>> alone = {"apart": [0.0] * 4, "misled": [0.0] * 4, "lipschitz": 1.0, "diameter": 2.0, "psi": 0.5, "nodes": 1}
    >>> theorem_1(steps=[1.0, 1.0, 0.5**0.5, 3**-0.5], last_step=0.5, moved=[1.0] * 4, **alone).__round__(3)
    2.642
    """
    first = float(np.dot(steps, moved)) / 2 + psi / last_step
    return first + lipschitz * sum(apart) + math.sqrt(nodes) * diameter * sum(misled) + biased


def lemma_3(*, nodes: int, epsilon: float, bound: float, least_weight: float) -> float:
    """Lemma 3, (18): the sum over nodes of E|z_i(t) - z_(t)|^2 of DPSDA-C, at every t.

    `least_weight` is phi, the smallest positive weight; theta = 1 - phi / (4 n^2).

    >>> round(lemma_3(nodes=2, epsilon=math.inf, bound=1.0, least_weight=0.5))
    52422
    """
    n, theta = nodes, 1 - least_weight / (4 * nodes**2)
    mixing = theta**2 * (1 - theta) ** 2
    return bound**2 * (3 * n**4 / mixing + 3 * n**4 + 24 * n**6 / (mixing * epsilon**2))


def lemma_6(*, nodes: int, epsilon: float, bound: float, window: int, least_mass: float) -> float:
    """Lemma 6: the sum over nodes of E|z_i(t) / w_i(t) - z_(t)|^2 of DPSDA-PS, at every t.

    `window` is B: any B rounds together are strongly connected; lambda = (1 - n^(-n B))^(1/B). `least_mass` is gamma,
    from `smallest_mass`.

    >>> round(lemma_6(nodes=2, epsilon=math.inf, bound=1.0, window=1, least_mass=1.0))
    3641
    """
    n = nodes
    # lambda is so near to 1 that 1 - lambda must not be computed as a difference: 5e-25 for n = 7 and B = 4.
    log_lambda = math.log1p(-(float(n) ** (-n * window))) / window
    gap, square = -math.expm1(log_lambda), math.exp(2 * log_lambda)
    shared = 8 * n**2 * BETA**2 * bound**2 / (least_mass * gap) ** 2
    return shared * (1 / square + 8 * n**2 / epsilon**2)


def theorem_3(*, least_weight: float, **constants: float) -> float:
    """M_1 of Theorem 3: the pseudo-regret of DPSDA-C over T rounds is at most M_1 sqrt(T), for alpha(t) = 1 / sqrt(t).

    Theorem 1 with Lemma 3: (31). The constants are those above, and `least_weight` of `lemma_3`.

    >>> few = {"nodes": 2, "lipschitz": 1.0, "smoothness": 1.0, "diameter": 2.0, "psi": 1.0, "least_weight": 0.5}
    >>> round(theorem_3(epsilon=math.inf, bound=1.0, **few))
    2484
    """
    names = ("nodes", "epsilon", "bound")
    return _rate(lemma_3(least_weight=least_weight, **{name: constants[name] for name in names}), **constants)  # type: ignore[arg-type]


def corollary_1(**constants: Any) -> float:
    """2 M_1 of Corollary 1: for the running average of the decisions; the arguments are those of `theorem_3`.

    The paper's proof takes losses of round t at decisions of earlier rounds for their own losses: it holds where losses
    are independent draws of one law, not for any sequence.

    >>> few = {"nodes": 2, "lipschitz": 1.0, "smoothness": 1.0, "diameter": 2.0, "psi": 1.0, "least_weight": 0.5}
    >>> round(corollary_1(epsilon=math.inf, bound=1.0, **few))
    4969
    """
    return 2 * theorem_3(**constants)


def theorem_5(*, window: int, least_mass: float, **constants: float) -> float:
    """M_2 of Theorem 5: the pseudo-regret of DPSDA-PS over T rounds is at most M_2 sqrt(T), for alpha(t) = 1 / sqrt(t).

    Theorem 1 with Lemma 6. The constants are those above, and `window` and `least_mass` of `lemma_6`.

    >>> few = {"nodes": 2, "lipschitz": 1.0, "smoothness": 1.0, "diameter": 2.0, "psi": 1.0, "least_mass": 1.0}
    >>> round(theorem_5(epsilon=math.inf, bound=1.0, window=1, **few))
    658
    """
    given = {name: constants[name] for name in ("nodes", "epsilon", "bound")}
    return _rate(lemma_6(window=window, least_mass=least_mass, **given), **constants)  # type: ignore[arg-type]


def corollary_2(**constants: Any) -> float:
    """2 M_2 of Corollary 2: for the running average of the decisions; the arguments are those of `theorem_5`.

    What `corollary_1` says about its proof holds here too.

    >>> few = {"nodes": 2, "lipschitz": 1.0, "smoothness": 1.0, "diameter": 2.0, "psi": 1.0, "least_mass": 1.0}
    >>> round(corollary_2(epsilon=math.inf, bound=1.0, window=1, **few))
    1317
    """
    return 2 * theorem_5(**constants)


def _rate(
    disagreement: float,
    *,
    nodes: float,
    epsilon: float,
    bound: float,
    lipschitz: float,
    smoothness: float,
    diameter: float,
    psi: float,
) -> float:
    """The bound of Theorem 1 divided by sqrt(T): E|phi|^2 as in (29), distances from a bound on disagreement.

    Jensen: the sum over n nodes of E|z_i - z_| is at most sqrt(n disagreement); and sum 1 / sqrt(t) <= 2 sqrt(T).
    """
    gradients = (16 * nodes**2 / epsilon**2 + 2 * nodes) * bound**2
    apart = math.sqrt(nodes * disagreement)
    return gradients + psi + 2 * (lipschitz + math.sqrt(nodes) * diameter * smoothness) * apart
