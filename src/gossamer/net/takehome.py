"""The model of a node for its owner to take home: a decision that was released, and what was promised for it."""

from __future__ import annotations

from pathlib import Path

from gossamer.errors import PrivacyError
from gossamer.model import Origin, TrainedModel
from gossamer.model.trained import require_protected
from gossamer.net.directory import NodeDirectory
from gossamer.net.store.decisions import require_decisions
from gossamer.net.store.ledger import Ledger
from gossamer.net.store.vault import Sealer
from gossamer.spec import build


def take_home(directory: str | Path, *, averaged: bool = False, sealer: Sealer | None = None) -> TrainedModel:
    """The model of a node that runs or was stopped: a decision that it has released, and nothing that was not noised.

    The mean of released decisions is a function of them: it costs no more privacy. Where decisions move little, it has
    less noise in it.

    Args:
        directory: of the node.
        averaged: the mean of all decisions that were released, instead of the last one.
        sealer: where the node's state is sealed.
    """
    node = NodeDirectory(Path(directory))
    settings, agreement = node.settings(), node.agreement()
    learner = agreement.number(settings.member)
    if settings.sealed and sealer is None:
        raise PrivacyError.of("--state-key", None, "the file with the key that seals the node's state")
    with Ledger.open(node.ledger, read_only=True) as ledger:
        promise = ledger.promise
    require_protected(promise)
    kept = require_decisions(node.decisions, agreement.network, learner, sealer)
    return TrainedModel(
        build("agreement problem", agreement.spec["problem"], "problem"),
        kept.mean if averaged else kept.last,
        agreement.schema,
        guarantee=promise,
        origin=Origin("node", kept.exchange, kept.number if averaged else 1, agreement.network, learner),
        spec=agreement.spec,
    )
