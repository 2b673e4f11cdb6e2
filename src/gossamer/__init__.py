"""Gossamer: differentially private online learning by many learners at once."""

from gossamer import algorithms, data, mechanisms, metrics, problems, sets, streams, topology
from gossamer.auditing import Audit, audit
from gossamer.core import Algorithm, Rate
from gossamer.errors import ConfigurationError, DataError, GossamerError, NetworkError, PrivacyError
from gossamer.privacy import Budget, Clip, FastNoise, Guarantee, SecureNoise
from gossamer.simulation import Run, simulate

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Audit",
    "Budget",
    "Clip",
    "ConfigurationError",
    "DataError",
    "FastNoise",
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
    "mechanisms",
    "metrics",
    "problems",
    "sets",
    "simulate",
    "streams",
    "topology",
]
