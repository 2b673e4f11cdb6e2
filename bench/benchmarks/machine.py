"""What the numbers were measured on."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("jax", "numpy", "scipy", "networkx")


def about() -> dict[str, Any]:
    """Processor, memory, versions, the commit, and how busy the machine is before anything runs."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "load": round(os.getloadavg()[0], 1),
        "commit": commit(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
    }


def processor() -> str:
    """Its name and speed, as Linux has them."""
    known = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    fields = dict(line.split(":", 1) for line in known.splitlines() if ":" in line)
    found = {name.strip(): value.strip() for name, value in fields.items()}
    name = found.get("model name", platform.processor() or "unknown")
    return name if "Hz" in name or "cpu MHz" not in found else f"{name}, {float(found['cpu MHz']) / 1000:.1f} GHz"


def commit() -> str:
    """Short, or "unknown" outside of a checkout."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
