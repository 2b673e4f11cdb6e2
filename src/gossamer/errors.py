"""The one family of exceptions: every error says what was given, what is allowed and what to do.

Nothing is sent and nothing is spent when one of these is raised.
"""

from __future__ import annotations


class GossamerError(Exception):
    """Root of every error that Gossamer raises on purpose."""


class ConfigurationError(GossamerError, ValueError):
    """A setting is wrong: names the field, the value, what is allowed and what to do.

    >>> raise ConfigurationError("step", -1.0, "a positive number", "try step=0.1")
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: step: got -1.0; allowed: a positive number. Try step=0.1.
    """

    def __init__(self, field: str, given: object, allowed: str, hint: str = "") -> None:
        self.field, self.given, self.allowed, self.hint = field, given, allowed, hint
        super().__init__(_explain(field, given, allowed, hint))


class DataError(GossamerError, ValueError):
    """Data cannot be used: says position and kind of the fault, never the value itself."""


class PrivacyError(GossamerError):
    """A release that the budget does not cover, an exhausted mechanism, or a missing bound."""

    @classmethod
    def of(cls, field: str, given: object, allowed: str, hint: str = "") -> PrivacyError:
        """The error of one setting: names the field, the value, what is allowed and what to do.

        >>> raise PrivacyError.of("epsilon", 0, "a positive finite number")
        Traceback (most recent call last):
        gossamer.errors.PrivacyError: epsilon: got 0; allowed: a positive finite number.
        """
        return cls(_explain(field, given, allowed, hint))


class NetworkError(GossamerError):
    """A peer, a certificate or a frame that cannot be accepted."""


def _explain(field: str, given: object, allowed: str, hint: str) -> str:
    advice = f" {hint[0].upper()}{hint[1:].rstrip('.')}." if hint else ""
    return f"{field}: got {given!r}; allowed: {allowed.rstrip('.')}.{advice}"
