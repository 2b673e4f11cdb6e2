"""What the page of paper 003 says whatever comes out: how it begins, what may be released, and how it was run."""

from gossamer.reproduction.paper_003.cases import NETWORK_CLIP, NORM
from gossamer.reproduction.paper_003.plan import Plan

RAW = (
    "theta is what the paper plots. It is a diagnostic of a simulator: whoever sees it besides the messages learns "
    "everything, so it has no guarantee and is never released. y is what is sent. The averaged release is a weighted "
    "mean of all y so far (weights grow like t^3) and costs nothing more. The rivals play x, which is raw too."
)


def introduction(plan: Plan) -> tuple[str, ...]:
    """What was run."""
    sizes = plan.mushrooms
    return (
        "Five learners on a circle, w = 0.3, each trusting nobody: what leaves a learner is its parameters with noise, "
        "and what all of it together tells about a sample is bounded for ever.",
        f"This is the {plan.name} run: mushrooms have {sizes.rounds:,} rounds and {sizes.seeds} noise seeds (Table I: "
        f"{sizes.table_rounds:,} rounds, {sizes.table_seeds} seeds), networks {plan.network.table_rounds:,} rounds in "
        f"Table II, {plan.network.rounds:,} in figures 2 and 3, and {plan.network.seeds} seed(s).",
    )


def protocol(plan: Plan) -> tuple[str, ...]:
    """What the paper does not say, and what was taken."""
    return (
        "Mushrooms: all 8,124 records, split by label (learners 1 to 3 have label 0, 4 and 5 label 1), each as often "
        "as the rounds need: 2,000 rounds are 10,000 samples, so some occur twice. Rows are as they are, with norm "
        f"sqrt(21); the clip is {NORM:.4g}, the largest gradient there is, so nothing is clipped, as in the paper. "
        "Its r_i is not stated: l2 is 0.01, 0.1 and 1. One sample per learner and round. theta_t* by Newton's method.",
        "Figure 1 and Table I send y(0) = theta(0) with noise before the first sample, as the paper does, with a "
        "coupling of gamma_0 = 1. The start is public, so that protects nothing and costs nothing. The usable setting "
        "and the networks do without it.",
        "The paper does not state the noise of DOLA and PDOP on mushrooms: they have that of figures 2 and 3. DOLA: "
        "steps c / (t+1), as its noise falls; DSGD: c / (t+1), noise (t+1)^0.11 for all learners; PDOP: c * 0.96^t.",
        f"Networks: {plan.network.picks} past samples per gradient, clip {NETWORK_CLIP:g}, no decision set (the "
        "paper's ball has a radius of 1e5). 40 % of class i go to learner i mod 5, the rest evenly to the others; "
        "images as often as rounds need.",
    )
