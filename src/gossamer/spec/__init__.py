"""What an object is, as plain values: canonical, versioned, and read back by one reader.

>>> from gossamer import sets
>>> from gossamer.spec import build, spec_of
>>> build("set", spec_of(sets.L2Ball(2.0)), "set")
L2Ball(radius=2.0)
"""

from gossamer.spec.kinds import Kind, Made, family, find, kind, kinds, made_of, word_of
from gossamer.spec.section import Section, build, keys_of, nearest, picked
from gossamer.spec.values import either
from gossamer.spec.writing import Nothing, canonical, difference, digest, plain, rounded, spec_of, written

__all__ = [
    "Kind",
    "Made",
    "Nothing",
    "Section",
    "build",
    "canonical",
    "difference",
    "digest",
    "either",
    "family",
    "find",
    "keys_of",
    "kind",
    "kinds",
    "made_of",
    "nearest",
    "picked",
    "plain",
    "rounded",
    "spec_of",
    "word_of",
    "written",
]
