"""A model that can be used: what was learnt, with the columns it reads and the promise it was made under."""

from gossamer.model.file import load_model
from gossamer.model.origin import Origin
from gossamer.model.trained import TrainedModel

__all__ = ["Origin", "TrainedModel", "load_model"]
