"""Gossamer: differentially private online learning by many learners at once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer import algorithms, data, mechanisms, metrics, problems, sets, streams, topology
    from gossamer.auditing.audit import Audit, audit
    from gossamer.core import Algorithm, Every, Federation, Rate
    from gossamer.errors import ConfigurationError, DataError, GossamerError, NetworkError, PrivacyError
    from gossamer.model import load_model
    from gossamer.privacy import Budget, Clip, FastNoise, Guarantee, SecureNoise
    from gossamer.problems import Block
    from gossamer.simulation import Run, simulate, simulate_many

__version__ = "0.4.0"

__all__ = [
    "Algorithm",
    "Audit",
    "Block",
    "Budget",
    "Clip",
    "ConfigurationError",
    "DataError",
    "Every",
    "FastNoise",
    "Federation",
    "GossamerError",
    "Guarantee",
    "NetworkError",
    "PrivacyError",
    "Rate",
    "Run",
    "SecureNoise",
    "algorithms",
    "audit",
    "data",
    "load_model",
    "mechanisms",
    "metrics",
    "problems",
    "sets",
    "simulate",
    "simulate_many",
    "streams",
    "topology",
]

_NAMES = {
    "auditing": ("Audit", "audit"),
    "core": ("Algorithm", "Every", "Federation", "Rate"),
    "errors": ("ConfigurationError", "DataError", "GossamerError", "NetworkError", "PrivacyError"),
    "model": ("load_model",),
    "privacy": ("Budget", "Clip", "FastNoise", "Guarantee", "SecureNoise"),
    "problems": ("Block",),
    "simulation": ("Run", "simulate", "simulate_many"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
_PACKAGES = {*__all__, *_HOMES.values()} - set(_HOMES)

if not TYPE_CHECKING:  # a type checker reads the imports above, and still finds misspelled names

    def __getattr__(name: str) -> Any:
        """Import what is asked for: JAX alone takes a second, and `gossamer --version` needs none of it."""
        if name in _HOMES:
            found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        elif name in _PACKAGES:
            found = import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_PACKAGES})
