"""What the page of paper 002 says whatever comes out: how it begins, what its rows are worth, and how it was run."""

from gossamer.reproduction.page import Part
from gossamer.reproduction.paper_002.cases import EDGES, NODES
from gossamer.reproduction.paper_002.plan import Plan

WORTH = (
    "Guarantee: what the row really gives over its whole horizon. 'Published' rows have the noise of the paper's "
    "Protocol 1, on messages only; epsilon there is the exact-upper accounting against a wiretapper who sees no "
    "decision, and there is none at all once a decision is seen, which is what is played and plotted. Their clip is "
    "more than a gradient can be: the paper clips nothing. Clip and step of the rows with a real guarantee are "
    "tuned, which epsilon does not cover."
)


def introduction(plan: Plan, stand_in: bool) -> tuple[str, ...]:
    """What was run, and on what."""
    data = "scikit-learn's digits in place of all real data" if stand_in else "real data"
    return (
        f"{NODES} nodes share out the coordinates of one decision, all see the same batch in every round, and gossip "
        "spreads what each adds to a common dual: on undirected networks (DPSDA-C) and on directed ones (DPSDA-PS).",
        f"This is the {plan.name} run, on {data}: {plan.runs} runs behind every number, each with its own order of the "
        "data (regression: its own data) and its own noise.",
        "The paper's levels epsilon = 1, 0.5, 0.2 'just characterize a corresponding proportional relationship'. Here "
        "they are Laplace noise of scale sigma on every coordinate of every message, with two mappings side by side: "
        "sigma = 1/epsilon (1 is the sigma of its figure 7) and sigma = 14/epsilon (2 n L / epsilon of its Theorem 2 "
        "with L = 1). What such a row really guarantees is in every table: with sums of gradients over a batch, "
        "next to nothing.",
    )


def networks() -> Part:
    """The digraphs, which the paper only draws."""
    rounds = "; ".join(
        f"round t = {k} mod 4: {', '.join(f'{one} to {other}' for one, other in edges)}"
        for k, edges in enumerate(EDGES, start=1)
    )
    return Part(
        "networks",
        "Networks",
        (
            f"Figure 2 of the paper, a 4-strongly connected digraph on 7 nodes, is only drawn. Ours, nodes 0 to 6: "
            f"{rounds}. No round is strongly connected, nor are three in a row; any four are. Weights: push-sum, "
            "1 / outdegree with the node itself.",
            "DPSDA-C and DPDOLA: the same edges without direction, with Metropolis weights. The paper's 1 / degree is "
            "not symmetric where degrees differ, and its Lemma 2(a) needs symmetric weights. DPSR needs a fixed "
            "network: all edges at every round, row-stochastic.",
        ),
    )


def out_of_reach() -> Part:
    """What the paper's numbers do not follow from."""
    return Part(
        "out-of-reach",
        "What does not follow from what the paper states",
        (
            "Table 5: x(400) does not depend on f_400, so that |x(400) - x'(400)| is 0; and the first entry of x "
            "belongs to a pixel that is 0 in every image of a 6 or an 8 in MNIST, so that its derivative is 0 and the "
            "difference is 0 at every t. Printed are 0.0374 and 0.0357 without noise. Another index, another order of "
            "the entries or other features than d = 784 pixels would be needed.",
            "Table 4: 90.06 % and 89.70 % without noise, the same for both algorithms to the last digit, is the "
            "share of images that are no cats: a classifier that never says 'cat'. The rows with noise, 63 % to 88 %, "
            "are below it: noise is compared with saying nothing, and loses.",
            "Table 2: at epsilon 1 the paper has 94.77 % in training and 85.05 % in testing (94.50 % and 81.20 % for "
            "PS), a gap of 10 to 13 points, where 6,000 samples fit 112 weights and noise does not know which "
            "samples are which: in our tables the two differ by about a point. Without noise its test accuracy is "
            "above the one in training, which may be that while learning (our column 'online'): it is not said.",
            "The step of the classification tasks, the initial decision, whether the tables are of the last decision "
            "or of an average, over how many passes and runs, and the sigma behind an epsilon are not stated. Theorem "
            "2 has sigma = 2 n L / epsilon, where L bounds a node's gradient. That is summed over a batch: with "
            "features in [0, 1] L is up to 400 on mushrooms, 1,058 on MNIST and 2,933 on CIFAR-10, and not 1.",
        ),
    )


def protocol(plan: Plan) -> Part:
    """How clips and steps were chosen, and what differs from the paper."""
    clips, steps = (", ".join(f"{value:g}" for value in values) for values in (plan.clips, plan.steps))
    known = "The quick run takes those that an earlier search found (docs/reproduce-002.md)." if plan.known else ""
    return Part(
        "protocol",
        "How it was run",
        (
            "Everything as published has alpha(t) = 1/sqrt(t), gradients summed over the batch, the box [-5, 5] in "
            "every coordinate ('each entry is restricted to a ball of radius 5'), the own coordinates by gossip, and "
            "errors xi of variance 0.1 on every node's gradient. Features are as the data come (mushrooms, 0 and 1) or "
            "divided by 255; no intercept.",
            f"Rows with a real guarantee protect one sample of a common batch (unit='sample'), against outsiders who "
            f"see every message and decision, over the whole horizon: blt noise, own coordinates exact. Clip from "
            f"{clips}; step from {steps}, alpha(t) = step/sqrt(t): by descent to a pair that no neighbour beats, in "
            f"regret or in average fitness, on {plan.trials} run(s) with other data or another order, and other noise. "
            f"{known}",
            "MNIST: 8,000 of the 11,769 images of 6 and 8 among the 60,000, the others to test. Mushrooms: 6,000 and "
            "2,000. CIFAR-10: a stratified subset of 10,000 and 2,000 images, 71 rounds of 140.",
        ),
    )
