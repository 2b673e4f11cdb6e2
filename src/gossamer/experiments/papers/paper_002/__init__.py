"""Paper 002: nodes that control coordinates of one objective; figures 3, 5, 6 and 7, tables 2 to 5."""

from gossamer.experiments import Asked, Part, Study
from gossamer.experiments.papers.paper_002 import classification, compared, pairs, regression
from gossamer.experiments.papers.paper_002.cases import EDGES, NODES

WORTH = (
    "What a row really guarantees is in the tables. Published rows have the noise of Protocol 1, on messages only, and "
    "a clip that gradients never reach, since the paper clips nothing: epsilon there is that of a wiretapper who sees "
    "no decision, and there is none once one decision is seen. Clip and step of rows with a real guarantee are tuned, "
    "which epsilon does not cover."
)
INTRODUCTION = (
    f"{NODES} nodes share out the coordinates of one decision, all see the same batch in every round, and gossip "
    "spreads what each adds to a common dual: on undirected networks (DPSDA-C) and on directed ones (DPSDA-PS).",
    "The paper leaves open: whether f_t is the mean over a batch (section 2.2) or the sum (section 6.2), how many "
    "passes over the data, the sigma behind an epsilon, whether its tables have the errors xi, and of which decision "
    "they are. Its epsilons 'just characterize a corresponding proportional relationship'. All readings are run.",
    WORTH,
)


def networks() -> Part:
    """The digraphs, which the paper only draws."""
    rounds = "; ".join(
        f"round t = {k} mod 4: {', '.join(f'{one} to {other}' for one, other in edges)}"
        for k, edges in enumerate(EDGES, start=1)
    )
    text = (
        f"Figure 2 of the paper, a 4-strongly connected digraph, is only drawn. Ours: {rounds}. No three rounds in a "
        "row are strongly connected, any four are. Weights 1 / outdegree. DPSDA-C and DPDOLA: the same edges without "
        "direction, Metropolis weights (1 / degree is not symmetric, which Lemma 2(a) needs). DPSR needs a fixed "
        "network: all edges, row-stochastic.",
        "Round 0: A(0) is the identity and nothing is said before there are data, so w(1) = 1, and A(t) is the network "
        "of exchange t - 1 (tests/test_dpsda_text.py holds this against the text of Algorithms 1 and 2).",
    )
    return Part("networks", "Networks", text)


def study(asked: Asked) -> Study:
    """What is run."""
    sections = [
        regression.section(asked),
        *classification.sections(asked),
        pairs.section(asked),
        compared.section(asked),
    ]
    title = "Paper 002 again: private learning of nondecomposable objectives, each node with coordinates of its own"
    return Study(title, sections, INTRODUCTION, closing=[networks()])
