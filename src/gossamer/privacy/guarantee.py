"""The promise that an algorithm makes about what it releases, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Basis = Literal["none"]
"""Why a guarantee is believed. Nothing here is private yet, so nothing is claimed."""


@dataclass(frozen=True)
class Guarantee:
    """What an observer can learn at most, and why we believe it.

    >>> no_guarantee("decisions are functions of raw gradients").sentence()
    'No privacy guarantee: decisions are functions of raw gradients.'
    """

    basis: Basis
    reason: str

    def sentence(self) -> str:
        """The whole guarantee as one readable sentence."""
        return f"No privacy guarantee: {self.reason.rstrip('.')}."


def no_guarantee(reason: str) -> Guarantee:
    """The guarantee of an algorithm that protects nothing, with the reason.

    >>> no_guarantee("messages are raw").basis
    'none'
    """
    return Guarantee(basis="none", reason=reason)
