"""The built-in attacks: worst cases, realistic cases and known flaws, by what they attack."""

from collections.abc import Mapping

from gossamer.algorithms import dp_push_sum_dual_averaging, dp_subgradient_rescaling, dpsda_c, dpsda_ps
from gossamer.auditing.attacks import (
    dp_ftrl,
    dpsda,
    dual_baselines,
    experts,
    ldp_endless,
    mechanisms,
    online_federated,
    pd_ftgl,
    pd_ogd,
)
from gossamer.auditing.attacks.base import Attack, Case, Kind, ReleaseCase, samples
from gossamer.auditing.attacks.one_run import ONE_RUN

ATTACKS: Mapping[str, tuple[Attack, ...]] = {
    "pd_ogd": (*pd_ogd.ATTACKS, *pd_ogd.EXTREMES),
    "pd_ftgl": pd_ftgl.ATTACKS,
    "pd_ocg": pd_ftgl.PD_OCG,
    "online_federated": online_federated.ATTACKS,
    "dp_ftrl": dp_ftrl.ATTACKS,
    "dpsda_c": dpsda.attacks(dpsda_c),
    "dpsda_ps": dpsda.attacks(dpsda_ps),
    "ldp_endless": ldp_endless.ATTACKS,
    "dsgd": ldp_endless.DSGD,
    "pdop": ldp_endless.PDOP,
    "dp_push_sum_dual_averaging": dual_baselines.attacks(dp_push_sum_dual_averaging),
    "dp_subgradient_rescaling": dual_baselines.attacks(dp_subgradient_rescaling),
    "fed_ope_stoch": experts.FED_OPE_STOCH,
    "fed_svt": experts.FED_SVT,
    "shrinking_dartboard": experts.SHRINKING_DARTBOARD,
}
"""Attacks by the name of the algorithm."""

MECHANISMS: Mapping[str, tuple[Attack, ...]] = {
    **mechanisms.MECHANISMS,
    "Gossiped": pd_ftgl.GOSSIPED,
    "Releaked": dpsda.RELEAKED,
    "Views": ldp_endless.VIEWS,
}
"""Attacks by the name of the mechanism."""

__all__ = ["ATTACKS", "MECHANISMS", "ONE_RUN", "Attack", "Case", "Kind", "ReleaseCase", "samples"]
