"""The wheel in a fresh environment outside of the checkout, with all it depends on: `python -m bench.wheel`.

Builds it, installs it with every extra, and does what the README says: its program, the demo, three commands.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place, begun = Path(folder), time.perf_counter()
        wheel = build(place)
        run(sys.executable, "-m", "venv", str(place / "fresh"))
        pip = [str(place / "fresh" / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        run(*pip, "--constraint", str(ROOT / "constraints.txt"), f"{wheel}[all]")
        installed = time.perf_counter()
        follow_readme(place / "fresh", place)
        done = time.perf_counter()
    print(f"installed in {installed - begun:.0f} s, README and demo in {done - installed:.0f} s")


def build(place: Path) -> Path:
    """The wheel of this checkout; what an earlier build has left is not in it."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(ROOT))
    (wheel,) = place.glob("*.whl")
    return wheel


def follow_readme(environment: Path, place: Path) -> str:
    """Do what the README says, in a directory that has only the examples; gives what the demo prints."""
    text = (ROOT / "README.md").read_text()
    program = text.partition("```python\n")[2].partition("```")[0]
    (place / "ten_lines.py").write_text(program)
    (place / "examples").symlink_to(ROOT / "examples")
    shell = text.partition("## From a file")[2].partition("```\n")[2].partition("```")[0]
    commands = [line.partition("#")[0].split() for line in shell.splitlines()]
    run(str(environment / "bin" / "python"), "ten_lines.py", cwd=place)
    for command in commands:
        run(str(environment / "bin" / command[0]), *command[1:], cwd=place)
    return run(str(environment / "bin" / "gossamer"), "demo", cwd=place)


def run(*command: str, cwd: Path | None = None) -> str:
    return subprocess.run(command, check=True, cwd=cwd, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
