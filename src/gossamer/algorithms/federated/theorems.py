"""What paper 001 proves about the regret of Algorithm 1, with constants: Lemma IV.9, Corollaries IV.7, IV.11 and IV.12.

Assumption IV.4 asks of the mean loss f^r of every round, with P(x) its nearest minimiser, that

    alpha (f^r(x) - f^r*) + <grad f^r(x), P(x) - x> + mu/2 |P(x) - x|^2 <= 0.

`assumption_iv_4` has alpha and mu for the classes of Definition IV.5. Theorem IV.10 is Lemma IV.9 with the noise of
Lemma IV.8 and |b|^2 = O(ln(R tau)); here noise and |b|^2 are those of the algorithm at hand.

No losses have IV.4 and bounded gradients (IV.2) everywhere: together they keep x within 2 B_g / mu of P(x). So the
bounds are about runs that stay where both hold, and whoever asks for a bound vouches for that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from gossamer.checks import check_choice, check_positive
from gossamer.core import Federation, Rate
from gossamer.errors import ConfigurationError
from gossamer.mechanisms import Additive, Calibrated, Factorized, TreeSum
from gossamer.privacy import Budget, Clip
from gossamer.problems import Problem
from gossamer.sets import Everywhere

LossGrowth = Literal["quasi-strongly-convex", "quadratic-growth", "polyak-lojasiewicz", "error-bound"]
Regret = Literal["dynamic", "static"]


class Growth(NamedTuple):
    """The constants of Assumption IV.4."""

    alpha: float
    mu: float


def assumption_iv_4(
    growth: LossGrowth, constant: float, *, smoothness: float, weak_convexity: float = 0.0, alpha: float | None = None
) -> Growth:
    """Lemma IV.6 and Corollary IV.7: alpha and mu of a class of losses, which need not be convex.

    With c = c_QG, c_PL / 2 or c_EB^2 / (2 L) any alpha below (c - mu_WC) / L will do, and mu is half of what is left,
    c - mu_WC - alpha L. As printed, and on the safe side: eq. (13) gives twice this mu, and PL implies c = c_PL.

    Args:
        growth: a class of Definition IV.5.
        constant: mu_QSC, c_QG, c_PL or c_EB.
        smoothness: L.
        weak_convexity: mu_WC; 0 for convex losses.
        alpha: of those that are possible; None takes half the largest, and 1 for quasi-strongly convex losses.

    >>> assumption_iv_4("quasi-strongly-convex", 0.5, smoothness=2.0)
    Growth(alpha=1.0, mu=0.5)
    >>> pl = assumption_iv_4("polyak-lojasiewicz", 0.502, smoothness=2.1, weak_convexity=0.1)
    >>> round(2 * pl.alpha, 3), round(pl.mu, 4)
    (0.072, 0.0377)
    >>> assumption_iv_4("error-bound", 1.0, smoothness=2.0) == assumption_iv_4("quadratic-growth", 0.25, smoothness=2.0)
    True
    """
    check_choice("growth", growth, LossGrowth)
    check_positive("constant", constant)
    check_positive("smoothness", smoothness)
    check_positive("weak_convexity", weak_convexity, zero=True)
    if growth == "quasi-strongly-convex":
        return Growth(1.0, constant)
    shares = {
        "quadratic-growth": constant,
        "polyak-lojasiewicz": constant / 2,
        "error-bound": constant**2 / (2 * smoothness),
    }
    room = shares[growth] - weak_convexity
    if room <= 0:
        hint = "losses that bend down more than they grow have no such constants"
        raise ConfigurationError("weak_convexity", weak_convexity, f"below {shares[growth]:.4g}", hint)
    chosen = room / (2 * smoothness) if alpha is None else check_positive("alpha", alpha)
    if chosen * smoothness >= room:
        raise ConfigurationError("alpha", alpha, f"below {room / smoothness:.4g}", "see Corollary IV.7")
    return Growth(chosen, (room - chosen * smoothness) / 2)


def lemma_iv_8(gradient: float, column: float, budget: Budget) -> float:
    """V_i as printed: sqrt(2) B_g max|c| / sqrt(rho), with sqrt(rho) = sqrt(epsilon + ln 1/delta) - sqrt(ln 1/delta).

    >>> round(lemma_iv_8(1.0, 1.0, Budget(2.0, 1e-3)) / 2, 3)  # in units of 2 B_g, of which 1.445 are enough
    1.984
    """
    log = math.log(1 / budget.delta)
    return math.sqrt(2) * gradient * column / (math.sqrt(budget.epsilon + log) - math.sqrt(log))


@dataclass(frozen=True)
class FederatedRegret:
    """Regret_d or Regret_s of a run of Algorithm 1, at most: called with what is true of the losses.

    Attributes:
        rounds: R.
        tau: local steps of a round.
        step: eta.
        server_step: eta_g.
        gradient: B_g.
        noise: d V^2, the expected squared noise of one row in the mean over learners: V^2 = sum_i V_i^2 / n^2.
        local_noise: d V_i^2, of the learner with the most noise.
        row: max |b^{r,t}|^2; of fresh noise 1.
        correlated: whether noise cancels over time; else Corollary IV.11 counts.

    >>> bound = FederatedRegret.of(1000, 4, 0.002, 1.0, 1.0, learners=20, dim=10, scales=[5.0], row=4.0)
    >>> losses = {"smoothness": 1.0, "mu": 0.5, "start": 0.1}
    >>> round(bound(alpha=1.0, **losses)), round(bound(regret="static", **losses))
    (607, 338)
    """

    rounds: int
    tau: int
    step: float
    server_step: float
    gradient: float
    noise: float
    local_noise: float
    row: float
    correlated: bool = True

    @classmethod
    def of(
        cls,
        rounds: int,
        tau: int,
        step: float,
        server_step: float,
        gradient: float,
        *,
        learners: int,
        dim: int,
        scales: Sequence[float],
        row: float,
        correlated: bool = True,
    ) -> Self:
        """From V_i of every learner, or one for all of them."""
        squares = [scale**2 for scale in scales]
        mean, most = dim * sum(squares) / len(squares) / learners, dim * max(squares)
        return cls(rounds, tau, step, server_step, gradient, mean, most, row, correlated)

    @property
    def pace(self) -> float:
        """eta~ = eta eta_g tau."""
        return self.step * self.server_step * self.tau

    def __call__(
        self,
        *,
        mu: float,
        start: float,
        smoothness: float,
        alpha: float = 1.0,
        variation: float = 0.0,
        sigma: float = 0.0,
        regret: Regret = "dynamic",
    ) -> float:
        """The bound on the expected regret, summed over R tau steps.

        Args:
            mu: of Assumption IV.4; of static regret the strong convexity mu_SC.
            start: the squared distance of the first model from X*.
            smoothness: L.
            alpha: of Assumption IV.4.
            variation: C_R, the squared distances of each round's minimisers from X*, summed.
            sigma: of Assumption IV.3; 0 where X* is one point.
            regret: "dynamic" (Lemma IV.9, Corollary IV.11) or "static" (Corollary IV.12).
        """
        check_choice("regret", regret, Regret)
        for name, value in (("mu", mu), ("smoothness", smoothness), ("alpha", alpha)):
            check_positive(name, value)
        for name, value in (("start", start), ("variation", variation), ("sigma", sigma)):
            check_positive(name, value, zero=True)
        if regret == "static":
            return self.rounds * self.tau * self._corollary_iv_12(mu, start, smoothness, variation / self.rounds)
        self._require_pace(alpha / (8 * smoothness), "alpha / (8 L)")
        dynamic = self._lemma_iv_9 if self.correlated else self._corollary_iv_11
        moved = (12 * smoothness + alpha * mu) * variation / (alpha**2 * self.rounds)
        return self.rounds * self.tau * dynamic(mu, start, smoothness, alpha, moved, sigma)

    def _require_pace(self, most: float, words: str) -> None:
        if self.pace > most * (1 + 1e-9):
            allowed = f"eta eta_g tau at most {words} = {most:.4g}"
            raise ConfigurationError("step", self.step, allowed, f"it is {self.pace:.4g} here: make step smaller")

    def _inside(self, smoothness: float) -> float:
        """(VI), what local steps cost: L^2 eta^2 (2 tau^2 B_g^2 + 8 max|b|^2 d V_i^2)."""
        walked = 2 * (self.tau * self.gradient) ** 2 + 8 * self.row * self.local_noise
        return (smoothness * self.step) ** 2 * walked

    def _lemma_iv_9(self, mu: float, start: float, L: float, alpha: float, moved: float, sigma: float) -> float:
        """Regret_d / (R tau), eq. (30), with R max|b|^2 for |B_R|^2."""
        first = start / (alpha * self.rounds * self.pace)
        noise = 24 * L * (1 + sigma) * (self.pace / (alpha * self.tau)) ** 2 * self.row * self.noise
        drift = 2 * (self.pace + alpha / (12 * L) + 1 / mu) * self._inside(L) / alpha
        return first + noise + moved + drift

    def _corollary_iv_11(self, mu: float, start: float, L: float, alpha: float, moved: float, sigma: float) -> float:
        """Regret_d / (R tau) with fresh noise, eq. (37).

        The last line of the proof divides by alpha where, with its theta = alpha / (12 L), there is 5 alpha / 6: what
        is printed is 1.2 times too small.
        """
        first = start / (alpha * self.rounds * self.pace)
        noise = 2 * self.pace * self.noise / (alpha * self.tau)
        walked = (self.tau * self.gradient) ** 2 + self.tau * self.local_noise
        drift = 4 * (2 * self.pace + 1 / mu) * (L * self.step) ** 2 * walked / alpha
        return 1.2 * (first + noise + moved + drift)

    def _corollary_iv_12(self, mu: float, start: float, L: float, variation: float) -> float:
        """Regret_s / (R tau), strongly convex; theta = eta~ ln(R tau). The paper has O(.) for these constants."""
        if not self.correlated:
            raise ConfigurationError("regret", "static", "'dynamic' with independent noise", "see Corollary IV.11")
        log = max(math.log(self.rounds * self.tau), 2 / 3)
        self._require_pace(1 / (10 * L * log), "1 / (10 L ln(R tau))")
        first, theta = start / (self.pace * self.rounds), self.pace * log
        noise = self.pace**2 * self.row * self.noise / (theta * self.tau**2)
        drift = 2 * (self.pace + theta + 1 / (2 * mu)) * self._inside(L)
        return first + noise + drift + 2 * L**2 * (self.pace + theta) * variation


def regret_of(
    problem: Problem,
    clip: Clip | None,
    network: Federation,
    rate: Rate,
    server_step: float,
    tau: int,
    rounds: int | None,
    release: Calibrated[Additive] | None,
) -> FederatedRegret | None:
    """The bound on the last models of a run with noise on every step, where the algorithm is that of the lemma.

    B_g is what the losses are known to have, or the clip, which must leave gradients on the way as they are.

    >>> from gossamer.problems import Logistic
    >>> regret_of(Logistic(9), None, Federation(4), Rate(0.1, 0.0), 1.0, 4, 100, None) is None  # no bound on gradients
    True
    """
    euclidean = clip is not None and clip.order == 2 and clip.blocks is None
    gradient = min(problem.lipschitz or math.inf, clip.norm if clip is not None and euclidean else math.inf)
    if rounds is None or rate.power or network.participation < 1 or (clip is not None and not euclidean):
        return None
    if problem.l2 or not isinstance(problem.domain, Everywhere) or not math.isfinite(gradient):
        return None
    mechanism = release.mechanism if release else None
    correlated = isinstance(mechanism, Factorized | TreeSum)
    return FederatedRegret.of(
        rounds,
        tau,
        rate.scale,
        server_step,
        gradient,
        learners=network.learners,
        dim=problem.dim,
        scales=[scale.value for scale in release.scales["gradient"]] if release else [0.0],
        row=mechanism.max_error(rounds * tau) if isinstance(mechanism, Factorized | TreeSum) else 1.0,
        correlated=correlated or release is None,
    )
