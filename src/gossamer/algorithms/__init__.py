"""One function per algorithm, and the registry that lists them for the command line and the contract tests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from gossamer.algorithms.blocks.ad_ftgl import ad_ftgl
from gossamer.algorithms.blocks.d_ftrl import d_ftrl
from gossamer.algorithms.blocks.d_ocg import d_ocg
from gossamer.algorithms.blocks.pd_ftgl import pd_ftgl
from gossamer.algorithms.blocks.pd_ocg import pd_ocg
from gossamer.algorithms.blocks.theorems import BlockSetting, theorem_3_6, theorem_3_9
from gossamer.algorithms.coordinates.dp_push_sum_dual_averaging import dp_push_sum_dual_averaging
from gossamer.algorithms.coordinates.dp_subgradient_rescaling import dp_subgradient_rescaling
from gossamer.algorithms.coordinates.dpsda_c import dpsda_c
from gossamer.algorithms.coordinates.dpsda_ps import dpsda_ps
from gossamer.algorithms.descent.centralized_ogd import centralized_ogd
from gossamer.algorithms.descent.d_ogd import d_ogd
from gossamer.algorithms.descent.dsgd import dsgd
from gossamer.algorithms.descent.local_ogd import local_ogd
from gossamer.algorithms.descent.noisy_ogd import noisy_ogd
from gossamer.algorithms.descent.pd_ogd import pd_ogd
from gossamer.algorithms.descent.pdop import pdop
from gossamer.algorithms.endless.ldp_endless import ldp_endless
from gossamer.algorithms.experts.clients import summed
from gossamer.algorithms.experts.fed_ope_stoch import fed_ope_stoch
from gossamer.algorithms.experts.fed_svt import fed_svt
from gossamer.algorithms.experts.follow_the_leader import follow_the_leader
from gossamer.algorithms.experts.hedge import hedge
from gossamer.algorithms.experts.shrinking_dartboard import shrinking_dartboard
from gossamer.algorithms.federated.dp_ftrl import dp_ftrl
from gossamer.algorithms.federated.online_federated import online_federated
from gossamer.algorithms.federated.theorems import FederatedRegret, assumption_iv_4
from gossamer.core import Algorithm, Rate
from gossamer.privacy import Budget


@dataclass(frozen=True)
class Entry:
    """One algorithm: the function that makes it, the network it runs on, and options that make a small instance.

    Attributes:
        make: called as make(problem, topology, **options) on a "graph", else as make(problem, learners, **options).
        network: "graph", "server" or "none".
        summary: one line for tables.
        example: options that make a small instance, for the contract tests and the documentation.
        data: "own": every learner has samples of its own. "common": all see the same batches.
        losses: "any": a problem of any kind. "experts": it predicts from experts.
    """

    make: Callable[..., Algorithm]
    network: Literal["graph", "server", "none"]
    summary: str
    example: Mapping[str, object]
    data: Literal["own", "common"] = "own"
    losses: Literal["any", "experts"] = "any"


_PRIVATE: dict[str, object] = {"budget": Budget(50.0), "clip": 1.0}
_PHASES: dict[str, object] = {"horizon": 1000, "steps_per_exchange": 3}
REGISTRY: Mapping[str, Entry] = {
    "d_ogd": Entry(d_ogd, "graph", "decentralised online gradient descent", {"step": 0.1}),
    "d_ftrl": Entry(d_ftrl, "graph", "decentralised dual averaging", {"step": 0.1}),
    "ad_ftgl": Entry(
        ad_ftgl, "graph", "accelerated gossip in coupled blocks (Wan et al. 2024)", {"steps_per_exchange": 3}
    ),
    "d_ocg": Entry(d_ocg, "graph", "accelerated gossip, no projections (Wan et al. 2024)", {"steps_per_exchange": 3}),
    "centralized_ogd": Entry(centralized_ogd, "server", "a server sees every gradient", {"step": 0.1}),
    "local_ogd": Entry(local_ogd, "none", "every learner alone, no communication", {"step": 0.1}),
    "pd_ogd": Entry(pd_ogd, "graph", "private online gradient descent (Li et al. 2018)", _PRIVATE),
    "pd_ftgl": Entry(pd_ftgl, "graph", "private follow-the-leader in blocks (paper 000)", {**_PRIVATE, **_PHASES}),
    "pd_ocg": Entry(pd_ocg, "graph", "private, in blocks, no projections (paper 000)", {**_PRIVATE, **_PHASES}),
    "noisy_ogd": Entry(noisy_ogd, "graph", "d_ogd with uncalibrated noise on messages", {"step": 0.1, "scale": 0.1}),
    "online_federated": Entry(
        online_federated,
        "server",
        "private federated averaging with correlated noise (paper 001)",
        {"budget": Budget(20.0, 1e-3), "clip": 1.0, "horizon": 1000, "steps_per_exchange": 4, "step": 0.1},
    ),
    "dp_ftrl": Entry(
        dp_ftrl,
        "server",
        "private follow-the-leader with a trusted server (Kairouz et al. 2021)",
        {"budget": Budget(5.0, 1e-3), "clip": 1.0, "horizon": 1000, "steps_per_exchange": 3},
    ),
    "dpsda_c": Entry(
        dpsda_c,
        "graph",
        "private coordinates of one objective, undirected networks (paper 002)",
        {"budget": Budget(50.0, 1e-3), "clip": 1.0, "noise": "gaussian", "aggregation": "blt", "horizon": 1000},
        data="common",
    ),
    "dpsda_ps": Entry(
        dpsda_ps,
        "graph",
        "private coordinates of one objective, directed networks (paper 002)",
        {"budget": Budget(2000.0), "clip": 1.0},
        data="common",
    ),
    "ldp_endless": Entry(
        ldp_endless,
        "graph",
        "a finite budget for ever, of each learner (paper 003)",
        {"budget": Budget(200.0), "clip": 1.0, "horizon": 1000, "step": Rate(2.0, 0.77), "delay": 4},
    ),
    "dsgd": Entry(
        dsgd,
        "graph",
        "gradient descent with noise on messages (Pu et al. 2021)",
        {"sigma": 0.05, "clip": 1.0, "horizon": 1000},
    ),
    "pdop": Entry(
        pdop,
        "graph",
        "geometric steps and noise (Huang et al. 2015)",
        {"clip": 1.0, "horizon": 1000, "scale": (0.1, 0.995), "step": (0.5, 0.99)},
    ),
    "dp_push_sum_dual_averaging": Entry(
        dp_push_sum_dual_averaging, "graph", "private dual averaging on directed networks (Han et al. 2021)", _PRIVATE
    ),
    "dp_subgradient_rescaling": Entry(
        dp_subgradient_rescaling,
        "graph",
        "private gradient descent with row-stochastic weights (Xiong et al. 2020)",
        _PRIVATE,
    ),
    "fed_ope_stoch": Entry(
        fed_ope_stoch,
        "server",
        "experts with losses of one law: private Frank-Wolfe (paper 004)",
        {"budget": Budget(20.0), "horizon": 1000, "trust": "local"},
        losses="experts",
    ),
    "fed_svt": Entry(
        fed_svt,
        "server",
        "experts of which one loses little: sparse vectors (paper 004)",
        {"budget": Budget(20.0), **_PHASES},
        losses="experts",
    ),
    "shrinking_dartboard": Entry(
        shrinking_dartboard,
        "server",
        "experts against any adversary (Asi et al. 2022)",
        {"budget": Budget(5.0, 1e-3), **_PHASES},
        losses="experts",
    ),
    "follow_the_leader": Entry(
        follow_the_leader, "server", "the expert that lost least so far", _PHASES, losses="experts"
    ),
    "hedge": Entry(hedge, "server", "exponential weights on experts", _PHASES, losses="experts"),
}

__all__ = [
    "REGISTRY",
    "BlockSetting",
    "Entry",
    "FederatedRegret",
    "ad_ftgl",
    "assumption_iv_4",
    "centralized_ogd",
    "d_ftrl",
    "d_ocg",
    "d_ogd",
    "dp_ftrl",
    "dp_push_sum_dual_averaging",
    "dp_subgradient_rescaling",
    "dpsda_c",
    "dpsda_ps",
    "dsgd",
    "fed_ope_stoch",
    "fed_svt",
    "follow_the_leader",
    "hedge",
    "ldp_endless",
    "local_ogd",
    "noisy_ogd",
    "online_federated",
    "pd_ftgl",
    "pd_ocg",
    "pd_ogd",
    "pdop",
    "shrinking_dartboard",
    "summed",
    "theorem_3_6",
    "theorem_3_9",
]
