"""The wheel, outside of the checkout: all it needs is in it, and what the README says happens.

Dependencies are those of this environment: a fresh one with all of them takes a minute more (`python -m bench.wheel`).
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from bench.wheel import ROOT, build, follow_readme

PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


def test_package_data_are_in_the_wheel(wheel: Path) -> None:
    source = ROOT / "src"
    files = [file for file in (source / "gossamer").rglob("*") if file.is_file()]
    data = {str(file.relative_to(source)) for file in files if file.suffix not in (".py", ".pyc")}
    assert "gossamer/py.typed" in data
    assert data <= set(zipfile.ZipFile(wheel).namelist())


def test_readme_from_top_to_bottom(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "fresh"
    venv.create(environment, with_pip=False)
    (packages,) = (environment / "lib").glob("python*/site-packages")
    subprocess.run(
        [*PIP, "install", "--no-deps", "--target", str(packages), str(wheel)], check=True, capture_output=True
    )
    # Only the path: what an editable installation puts there to be run is not.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    script = environment / "bin" / "gossamer"
    script.write_text(f"#!{environment}/bin/python\nfrom gossamer.cli import main\nmain()\n")
    script.chmod(0o755)
    where = [str(environment / "bin" / "python"), "-c", "import gossamer; print(gossamer.__file__)"]
    assert str(packages) in subprocess.run(where, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    printed = follow_readme(environment, tmp_path).split()
    table = (ROOT / "README.md").read_text().partition("| setting |")[2].partition("\n\n")[0]
    numbers = re.findall(r"[\d.]+%|[\d.]+-[\d.]+(?=\))", table)
    assert len(numbers) == 3 * 10
    assert set(numbers) <= set(printed)
    assert (tmp_path / "gossamer-report" / "report.html").exists()
    assert (tmp_path / "results" / "report.html").exists()
