"""Files that are as confidential as the data: mode 0600 from the first byte on, whatever the umask."""

from __future__ import annotations

import builtins
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.experiments import Engine, Measured, Page, Part, Store
from gossamer.files import private_file
from gossamer.reports import Report, Table
from gossamer.simulation import simulate
from tests import instances


@pytest.fixture(params=[0, 0o022, 0o777], ids=["open", "usual", "strict"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_may_read_not_for_a_moment(umask: int, tmp_path: Path) -> None:
    place, left = tmp_path / "a", tmp_path / "a.new"
    for wide in (place, left):  # what was there before, and what a crash left
        os.close(os.open(wide, os.O_CREAT | os.O_WRONLY, 0o666))
        wide.chmod(0o666)
    with private_file(place) as file:
        assert mode(left) == 0o600
        file.write(b"secret")
        assert place.read_bytes() == b""
    assert mode(place) == 0o600
    assert place.read_bytes() == b"secret"
    assert not left.exists()


def test_what_breaks_off_leaves_what_was_there(tmp_path: Path) -> None:
    place = tmp_path / "a"
    place.write_bytes(b"before")

    def break_off() -> None:
        with private_file(place) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert place.read_bytes() == b"before"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_an_unfinished_file_of_somebody_else_is_never_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever puts a file, or a link, in the place of the unfinished one is refused, not followed."""
    (tmp_path / "theirs").touch()
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)  # as a sticky directory does
    (tmp_path / "a.new").symlink_to(tmp_path / "theirs")
    with pytest.raises(FileExistsError), private_file(tmp_path / "a") as file:
        file.write(b"secret")
    assert (tmp_path / "theirs").read_bytes() == b""


def run_of(folder: Path) -> None:
    simulate(instances.algorithm("d_ogd"), instances.stream(), 20, record=("messages",), **instances.QUIET).save(folder)


def checkpoint_of(folder: Path) -> None:
    simulate(instances.algorithm("d_ogd"), instances.stream(), 20, checkpoint=folder / "c", **instances.QUIET)


def report_of(folder: Path) -> None:
    run = simulate(instances.algorithm("d_ogd"), instances.stream(), 20, **instances.QUIET)
    report = Report("title", table=Table(("a",), (("1",),)), runs={"d_ogd": run}, command="command")
    report.write(folder / "report.html")


def study_of(folder: Path) -> None:
    table = Table(("claim", "verdict"), (("a", "holds"),))
    Page("title", (), table, [Part("claims", "heading", table=table)], {"a": 1}, "command").write(folder)
    Engine(Store(folder / "cells")).find({"sum": Measured("sum", {"a": 1}, lambda: {"sum": 3})})


@pytest.mark.parametrize(
    ("write", "files"),
    [
        (run_of, {"run.json", "run.npz"}),
        (checkpoint_of, {"c"}),
        (report_of, {"report.html"}),
        (study_of, {"report.html", "raw.json", "claims.csv", "claims.md", f"{Store().key({'a': 1})}.json"}),
    ],
)
def test_results_are_written_as_private_files_only(
    write, files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else opens a file to write: neither `open`, which creates it for others too, nor a library."""
    plain = io.open

    def watched(file, mode="r", *args, **kwargs):
        inside = isinstance(file, str | os.PathLike) and Path(file).is_relative_to(tmp_path)
        assert not (inside and set(mode) & set("wax+")), file
        return plain(file, mode, *args, **kwargs)

    monkeypatch.setattr(io, "open", watched)
    monkeypatch.setattr(builtins, "open", watched)
    old = os.umask(0)
    try:
        write(tmp_path)
        write(tmp_path)  # again, over what is there
    finally:
        os.umask(old)
    found = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {file.name for file in found} == files
    assert {mode(file) for file in found} == {0o600}
