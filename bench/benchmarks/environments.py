"""One virtual environment for every other framework, in `.benchmarks/`, with pinned versions."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".benchmarks"

REQUIREMENTS = {
    "torch": ("torch==2.13.0", "numpy==2.4.6"),
    "flower": ("flwr[simulation]==1.41.0", "numpy==2.4.6"),
    "pfl": ("pfl==0.6.0", "numpy==2.4.6"),
    "fluke": ("fluke-fl==0.8.1", "torch==2.13.0", "numpy==2.4.6"),
    "plots": ("matplotlib==3.11.2", "numpy==2.4.6"),
}


class InstallError(Exception):
    """pip refused; the message is its last line."""


def make_all() -> None:
    """Before anything is timed; what cannot be installed is said when it is asked for."""
    for name in REQUIREMENTS:
        with contextlib.suppress(InstallError):
            python_of(name)


def python_of(name: str) -> Path:
    """The interpreter of an environment, which is made where it does not exist or has other requirements."""
    place, wanted = HOME / name, "\n".join(REQUIREMENTS[name])
    ready, python = place / "ready", place / "bin" / "python"
    if ready.exists() and ready.read_text() == wanted:
        return python
    print(f"making {place.relative_to(ROOT)}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS[name]]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError((done.stderr.strip().splitlines() or ["pip failed"])[-1])
    ready.write_text(wanted)
    return python
