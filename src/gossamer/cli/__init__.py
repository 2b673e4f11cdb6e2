"""The command line: `gossamer demo`, `run`, `algorithms`, `datasets`."""

from gossamer.cli.commands import app, main
from gossamer.cli.config import Experiment, load
from gossamer.cli.demo import Demo, play

__all__ = ["Demo", "Experiment", "app", "load", "main", "play"]
