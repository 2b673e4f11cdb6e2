"""Where a command writes: refused, before anything runs, where that cannot be done."""

from pathlib import Path

from gossamer.errors import ConfigurationError
from gossamer.reports import require_plotly


def report_directory(out: Path, within: str = "") -> Path:
    """A directory that a report is written into, or one within it; refused too where no report can be drawn.

    >>> import tempfile
    >>> report_directory(Path(tempfile.mkdtemp()), "cells").name
    'cells'
    """
    require_plotly()
    made = out / within
    try:
        made.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or "refused").lower()
        raise ConfigurationError(
            "--out", str(out), "a directory that can be made", f"the system says: {reason}"
        ) from None
    return made
