"""The command line. Each command is imported when it is run: see `gossamer.cli.commands`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gossamer.cli.commands import app, main

if TYPE_CHECKING:
    from gossamer.cli.config import Experiment, load
    from gossamer.cli.demo import Demo, play

__all__ = ["Demo", "Experiment", "app", "load", "main", "play"]

_HOMES = {"Demo": "demo", "Experiment": "config", "load": "config", "play": "demo"}

if not TYPE_CHECKING:  # a type checker reads the imports above

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
