"""Real data sets, from a directory the user names, from OpenML, or from scikit-learn.

A data set is looked for in the directory given; else in the directory that the environment variable
GOSSAMER_DATA names; else at OpenML (scikit-learn downloads it once and keeps it). `digits` and
`breast_cancer` come with scikit-learn itself.
"""

from gossamer.data.schema import Choice, Encoded, Number, Schema
from gossamer.data.sets import Available, available, breast_cancer, cifar10, digits, letter, mnist, mushrooms, poker
from gossamer.data.sources import Dataset

__all__ = [
    "Available",
    "Choice",
    "Dataset",
    "Encoded",
    "Number",
    "Schema",
    "available",
    "breast_cancer",
    "cifar10",
    "digits",
    "letter",
    "mnist",
    "mushrooms",
    "poker",
]
