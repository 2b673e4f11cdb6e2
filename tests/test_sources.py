"""Sources of samples: whole lines only, marks that survive restarts, and faults that show no value."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

from gossamer.cli import app
from gossamer.errors import ConfigurationError, DataError
from gossamer.net import startup
from gossamer.net.data import lines as whole_lines
from gossamer.net.data import sources
from gossamer.net.data.followed_file import FollowedFile
from gossamer.net.data.samples import block_of, sample_of_json
from gossamer.net.data.sources import StandardInput, from_iterable
from gossamer.problems import Experts, LeastSquares, Linear, Logistic, Softmax, small_cnn

TWO = Logistic(2)
IMAGES = small_cnn((10, 10, 1), 3, channels=2, hidden=2, seed=0)
MARKED = "123456.7"  # a value that no fault may show


def line(x, y=1):
    return json.dumps({"x": x, "y": y}) + "\n"


def labels(samples):
    return [None if sample is None else sample[1] for sample in samples]


def everything(source, *, seconds=10.0):
    """All of a source that reads in a thread."""
    taken, end = [], time.monotonic() + seconds
    while not source.ended:
        taken += source.take(100)
        assert time.monotonic() < end
        time.sleep(0.001)
    return taken


# A file that grows


def test_a_file_is_followed_from_before_it_exists(tmp_path):
    path = tmp_path / "s.jsonl"
    source = FollowedFile(path, TWO)
    assert source.take(5) == []
    with path.open("w") as file:
        for text, expected in [
            (line([1, 2]), [1]),
            ("", []),
            (line([1, 2], 0)[:9], []),
            (line([1, 2], 0)[9:] + "\n  \n" + line([3, 4]), [0, 1]),
        ]:
            file.write(text)
            file.flush()
            assert labels(source.take(5)) == expected
    assert source.mark["byte"] == path.stat().st_size
    assert not source.ended


def test_no_more_than_asked_for(tmp_path):
    path = tmp_path / "s.ndjson"
    path.write_text("".join(line([n, 0], n % 2) for n in range(5)))
    source = FollowedFile(path, TWO)
    assert source.take(0) == []
    assert [labels(source.take(2)) for _ in range(4)] == [[0, 1], [0, 1], [0], []]


CONTENTS = [line([n, 0.5], n % 2) for n in range(4)] + ["\n", "{broken\n", line([1, 2, 3])]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(CONTENTS), max_size=8), st.lists(st.integers(1, 3), min_size=30, max_size=30))
def test_restarts_lose_and_repeat_nothing(tmp_path_factory, contents, sizes):
    path = tmp_path_factory.mktemp("restart") / "s.jsonl"
    path.write_text("".join(contents))
    whole = FollowedFile(path, TWO).take(100)
    pieces, mark = [], FollowedFile(path, TWO).mark
    for size in sizes:
        source = FollowedFile(path, TWO)
        source.resume(mark)
        pieces += source.take(size)
        mark = source.mark
    assert labels(pieces) == labels(whole)
    assert len(whole) == sum(text != "\n" for text in contents)


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_a_file_that_became_shorter_is_refused(tmp_path, suffix):
    path = tmp_path / f"s.{suffix}"
    path.write_text(line([1, 2]) * 2 if suffix == "jsonl" else "a,b,y\n1,2,1\n3,4,0\n")
    source = FollowedFile(path, TWO)
    assert len(source.take(5)) == 2
    before = path.read_text()
    path.write_text("")
    with pytest.raises(DataError, match="only grow"):
        source.take(5)
    path.unlink()
    with pytest.raises(DataError, match="only grow"):
        source.take(5)
    path.write_text(before)
    assert source.take(5) == []


def csv_line(x, y):
    return f"{x[0]},{x[1]},{y}\n"


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
@pytest.mark.parametrize(
    "order",
    [
        [3, 2, 0, 1],  # sorted anew
        [0, 2, 1, 3],  # all but the last line as it was
        [2, 1, 0, 3],  # the last line as it was
    ],
)
def test_a_file_that_is_replaced_while_it_is_read_is_refused(tmp_path, suffix, order):
    """All lines are of the same length: what was read before would come again, behind the mark."""
    path, other = tmp_path / f"s.{suffix}", tmp_path / "other"
    header, form = ("", line) if suffix == "jsonl" else ("a,b,y\n", csv_line)
    lines = [form([n, 0], n % 2) for n in range(4)]
    path.write_text(header + "".join(lines[:2]))
    source = FollowedFile(path, TWO)
    assert labels(source.take(5)) == [0, 1]
    other.write_text(header + "".join(lines[:3]))
    other.rename(path)  # as an editor does that saves what was appended
    assert labels(source.take(5, whole=2)) == []
    mark = source.mark
    other.write_text(header + "".join(lines[n] for n in order))
    other.rename(path)
    with pytest.raises(DataError, match="cut, replaced or changed"):
        source.take(5)
    assert source.mark == mark
    with pytest.raises(DataError, match="cut, replaced or changed"):
        FollowedFile(path, TWO).resume(mark)
    path.write_text(header + "".join(lines))
    assert labels(source.take(5)) == [0, 1]


def test_a_file_is_compared_with_some_of_what_was_read(tmp_path, monkeypatch):
    """All of the last line however long it is, and lines before a short one, but not the whole file every time."""
    monkeypatch.setattr(whole_lines, "_COMPARED", 64)
    path = tmp_path / "s.jsonl"
    lines = [line([n, 0], n % 2) for n in (3, 4, 5, 6, 7)]
    path.write_text("".join(lines))
    source = FollowedFile(path, TWO)
    source.take(5)
    assert source.mark["since"] == path.stat().st_size - 64
    path.write_text("".join([lines[1], lines[0], *lines[2:]]))
    assert source.take(5) == []
    path.write_text("".join([*lines[:2], lines[3], lines[2], lines[4]]))
    with pytest.raises(DataError, match="only grow"):
        source.take(5)
    long = line([1, 2])[:-1] + " " * 200 + "\n"
    path.write_text("".join(lines) + long)
    assert labels(source.take(5)) == [1]
    path.write_text("".join(lines) + long.replace("2", "3"))
    with pytest.raises(DataError, match="only grow"):
        source.take(5)


def test_a_header_that_is_too_long_is_refused(tmp_path, monkeypatch):
    """Else nobody would know which column is the label."""
    monkeypatch.setattr(whole_lines, "LONGEST_LINE", 64)
    path = tmp_path / "a.csv"
    path.write_text("y," + "x" * 99 + ",b\n1,2.0,3.0\n0,5.0,1.0\n")
    source = FollowedFile(path, LeastSquares(2))
    for _ in range(2):
        with pytest.raises(DataError, match="a header of more than 64 bytes"):
            source.take(5)


@pytest.mark.parametrize("restarted", [False, True])
def test_another_header_is_refused(tmp_path, monkeypatch, restarted):
    monkeypatch.setattr(whole_lines, "_COMPARED", 6)  # so that the header is beyond
    path = tmp_path / "s.csv"
    rows = "1,2,1\n3,4,0\n1,1,1\n"
    path.write_text("a,b,y\n" + rows)
    source = FollowedFile(path, TWO)
    assert labels(source.take(2)) == [1, 0]
    path.write_text("y,a,b\n" + rows)
    with pytest.raises(DataError, match="only grow"):
        FollowedFile(path, TWO).resume(source.mark) if restarted else source.take(2)
    path.write_text("a,b,y\n" + rows)
    assert labels(source.take(2)) == [1]


def test_before_the_first_sample_any_file_will_do(tmp_path):
    path = tmp_path / "s.csv"
    source = FollowedFile(path, TWO)
    path.write_text("number,b,y\n")
    assert source.take(5) == []
    empty = source.mark
    path.write_text("y,a,b\n")
    assert source.take(5) == []
    path.write_text("a,y,b\n1,0,2\n")
    other = tmp_path / "other.csv"
    other.write_text("y,a,b\n1,2,3\n")
    again = FollowedFile(other, TWO)
    again.resume(empty)
    assert labels(again.take(5)) == [1]
    assert labels(source.take(5)) == [0]


@pytest.mark.parametrize("nothing", [{"items": 0}, {"samples": 0}, {"file": "a", "byte": 0, "since": 0, "digest": b""}])
def test_where_nothing_was_taken_any_source_will_do(tmp_path, nothing):
    path = tmp_path / "s.jsonl"
    path.write_text(line([1, 2]))
    stream = StandardInput(TWO, io.BytesIO(path.read_bytes()))
    for source in (FollowedFile(path, TWO), from_iterable([([1, 2], 1)], TWO), stream):
        source.resume(nothing)
        end = time.monotonic() + 10.0
        while not (taken := source.take(5)):  # one is read by a thread
            assert time.monotonic() < end
            time.sleep(0.001)
        assert labels(taken) == [1]


def test_the_command_line_names_files_of_the_working_directory(tmp_path, monkeypatch):
    named = []

    def refuse(*_, data, **__):
        named.append(data)
        raise ConfigurationError("data", "this test", "no node")

    monkeypatch.setattr("gossamer.net.directory.NodeDirectory", Mock())
    monkeypatch.setattr(startup, "launch", refuse)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")  # left as it is in this process
    monkeypatch.chdir(tmp_path)
    for options in (["--data", "mine.jsonl"], ["--data", "/data/mine.jsonl"], ["--data", "-"], []):
        assert CliRunner().invoke(app, ["node", "net/node-0", *options]).exit_code == 2
    assert named == [str(tmp_path / "mine.jsonl"), "/data/mine.jsonl", "-", None]


def test_directories_and_pipes_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path, tmp_path / "pipe.csv"):
        with pytest.raises(DataError, match="not a file"):
            FollowedFile(path, TWO, "csv").take(1)


def test_a_file_that_cannot_be_opened(tmp_path, monkeypatch):
    (tmp_path / "s.csv").write_text("a,b,y\n")

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="PermissionError"):
        FollowedFile(tmp_path / "s.csv", TWO).take(1)


def test_the_kind_comes_from_the_name_or_is_said(tmp_path):
    path = tmp_path / "s.log"
    with pytest.raises(ConfigurationError, match=r"ends in \.jsonl"):
        FollowedFile(path, TWO)
    with pytest.raises(ConfigurationError, match="kind"):
        FollowedFile(path, TWO, "xml")
    path.write_text(line([1, 2]))
    assert labels(FollowedFile(path, TWO, "jsonl").take(1)) == [1]


def test_marks_of_other_data_are_refused(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_text(line([1, 2]) + line([3, 4], 0))
    source = FollowedFile(path, TWO)
    source.take(1)
    again = FollowedFile(path, TWO)
    again.resume(source.mark)
    assert labels(again.take(5)) == [0]
    for contents in (line([1, 3]) + line([3, 4], 0), ""):  # replaced, or gone
        path.write_text(contents)
        with pytest.raises(DataError, match="not the data that were read before"):
            FollowedFile(path, TWO).resume(source.mark)
    other = tmp_path / "other.jsonl"
    other.write_text(line([1, 2]) * 2)
    with pytest.raises(DataError, match="not the data"):
        FollowedFile(other, TWO).resume(source.mark)
    with pytest.raises(DataError, match="not the data"):
        from_iterable([], TWO).resume(source.mark)


def test_whole_batches_only(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_text("".join(line([n, 0], n % 2) for n in range(5)))
    batches = [FollowedFile(path, TWO), from_iterable([([n, 0], n % 2) for n in range(5)], TWO)]
    stream = StandardInput(TWO, io.BytesIO(path.read_bytes()))
    time.sleep(0.2)  # read by a thread
    for source in (*batches, stream):
        assert [labels(source.take(4, whole=2)) for _ in range(2)] == [[0, 1, 0, 1], []]
    with path.open("a") as file:
        file.write(line([5, 0], 1))
    assert labels(batches[0].take(4, whole=2)) == [0, 1]


def test_lines_that_are_too_long(tmp_path, monkeypatch):
    for module in (sources, whole_lines):
        monkeypatch.setattr(module, "LONGEST_LINE", 64)
    path, told = tmp_path / "s.jsonl", []
    long = "[" * 150
    source = FollowedFile(path, TWO, faults=told.append)
    path.write_text(line([1, 2]) + long)
    assert labels(source.take(5)) == [1]
    assert told == []
    path.write_text(line([1, 2]) + long + "\n" + line([3, 4], 0))
    assert labels(source.take(5)) == [None, 0]
    assert told == [f"byte {len(line([1, 2]))}: a line of more than 64 bytes"]
    path.write_text(line([1, 2]) + long + "\n")
    ends_long = FollowedFile(path, TWO)
    ends_long.take(5)
    path.write_text(line([1, 2]) + long.replace("[", "]") + "\n" + line([1, 2]))
    with pytest.raises(DataError, match="only grow"):
        ends_long.take(5)
    with pytest.raises(DataError, match="only grow"):
        FollowedFile(path, TWO).resume(ends_long.mark)
    told.clear()
    stream = io.BytesIO((long + "\n" + line([3, 4], 0) + long).encode())
    assert labels(everything(StandardInput(TWO, stream, faults=told.append))) == [None, 0, None]
    assert len(told) == 2


# CSV


def test_csv_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "s.csv"
    source = FollowedFile(path, LeastSquares(2), label="price")
    path.write_text("\ufeffroo")
    assert source.take(5) == []
    path.write_text('\ufeffrooms,price,"floor"\r\n')
    assert source.take(5) == []
    with path.open("a", newline="") as file:
        file.write('1.5,10,2\r\n\r\n"3",-1e2, 4\r\n5,6')
    (first, second) = source.take(5)
    assert_array_equal(first[0], np.array([1.5, 2], np.float32), strict=True)
    assert_array_equal(second[0], np.array([3, 4], np.float32), strict=True)
    assert labels((first, second)) == [10.0, -100.0]
    again = FollowedFile(path, LeastSquares(2), label="price")
    again.resume(source.mark)
    assert again.take(5) == []
    with path.open("a") as file:
        file.write(",7\n")
    assert_array_equal(again.take(5)[0][0], np.array([5, 7], np.float32), strict=True)


@pytest.mark.parametrize(
    "row", ["1,2", "1,2,1,1", "1,,1", "1,a,1", "1,nan,1", "1,inf,1", "1,1_0,1", "1,2,0.5", "1,2,2", '"', '" ",1,1']
)
def test_unusable_rows_of_csv(tmp_path, row):
    path, told = tmp_path / "s.csv", []
    path.write_text(f"a,b,y\n{row}\n1,2,1.0\n")
    assert labels(FollowedFile(path, TWO, faults=told.append).take(5)) == [None, 1]
    assert len(told) == 1
    assert told[0].startswith("byte 6: ")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("1,2,3", "no header"),
        ("a,b,z", "no column 'y'"),
        ("a,y", "1 columns of features; the problem needs 2"),
        ("", "no column"),
    ],
)
def test_headers_that_do_not_suit(tmp_path, header, words):
    path = tmp_path / "s.csv"
    path.write_text(header + "\n1,2,1\n")
    with pytest.raises(DataError, match=words):
        FollowedFile(path, TWO).take(5)


def test_a_header_that_is_not_text(tmp_path):
    path = tmp_path / "s.csv"
    path.write_bytes(b"\xff\xfe,b,y\n")
    with pytest.raises(DataError, match="UTF-8"):
        FollowedFile(path, TWO).take(5)


def test_images_in_csv_and_json(tmp_path):
    shape = IMAGES.feature_shape
    pixels = np.arange(100, dtype=np.float32)
    path = tmp_path / "s.csv"
    path.write_text(",".join(["y", *(f"p{n}" for n in range(100))]) + "\n2," + ",".join(map(str, pixels)) + "\n")
    ((image, label),) = FollowedFile(path, IMAGES).take(1)
    assert label == 2
    assert_array_equal(image, pixels.reshape(shape), strict=True)
    assert_array_equal(sample_of_json(IMAGES, line(image.tolist()))[0], image, strict=True)
    with pytest.raises(DataError, match="100 features; every sample needs 10 x 10 x 1"):
        sample_of_json(IMAGES, line(pixels.tolist()))
    with pytest.raises(DataError, match="9 features"):
        sample_of_json(IMAGES, line(image[1:].tolist()))


# What JSON may say


BAD = {
    "nothing": "[]",
    "a string": '"x"',
    "no label": '{"x": [1, 2]}',
    "no features": '{"y": 1}',
    "not JSON": "{'x': [1, 2], 'y': 1}",
    "NaN": '{"x": [1, NaN], "y": 1}',
    "infinity": '{"x": [1, -Infinity], "y": 1}',
    "overflow": '{"x": [1, 1e999], "y": 1}',
    "beyond float32": '{"x": [1, 1e39], "y": 1}',
    "a huge integer": '{"x": [1, 1' + "0" * 400 + '], "y": 1}',
    "a huger integer": '{"x": [1, 1' + "0" * 5000 + '], "y": 1}',
    "too short": '{"x": [1], "y": 1}',
    "too long": '{"x": [1, 2, 3], "y": 1}',
    "nested": '{"x": [[1, 2]], "y": 1}',
    "nested inside": '{"x": [1, [2]], "y": 1}',
    "a boolean": '{"x": [1, true], "y": 1}',
    "null": '{"x": [1, null], "y": 1}',
    "text": '{"x": [1, "2"], "y": 1}',
    "a number": '{"x": 1, "y": 1}',
    "an object": '{"x": {"0": 1, "1": 2}, "y": 1}',
    "no features but text": '{"x": "12", "y": 1}',
    "boolean label": '{"x": [1, 2], "y": true}',
    "text label": '{"x": [1, 2], "y": "1"}',
    "list label": '{"x": [1, 2], "y": [1]}',
    "null label": '{"x": [1, 2], "y": null}',
    "half label": '{"x": [1, 2], "y": 0.5}',
    "label out of range": '{"x": [1, 2], "y": 2}',
    "huge label": '{"x": [1, 2], "y": 4294967297}',
    "huger label": '{"x": [1, 2], "y": 1' + "0" * 30 + "}",
    "deep": '{"x": ' + "[" * 100_000,
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_unusable_json(text):
    told = []
    taken = everything(StandardInput(TWO, io.BytesIO(f"{text}\n{line([1, 2])}".encode()), faults=told.append))
    assert labels(taken) == [None, 1]
    assert len(told) == 1
    assert told[0].startswith("sample 0: ")


@pytest.mark.parametrize(
    "text",
    [
        f'{{"x": [{MARKED}, NaN], "y": 1}}',
        f'{{"x": [{MARKED}], "y": 1}}',
        f'{{"x": [{MARKED}, 1e39], "y": 1}}',
        f'{{"x": [1, 2], "y": {MARKED}}}',
        f'{{"x": [1, "{MARKED}"], "y": 1}}',
        f'{{"x": [{MARKED}, 2], "y": 1',
    ],
)
def test_faults_show_no_value(tmp_path, text):
    told = []
    (tmp_path / "s.jsonl").write_text(text + "\n")
    assert FollowedFile(tmp_path / "s.jsonl", TWO, faults=told.append).take(1) == [None]
    (tmp_path / "s.csv").write_text(f"a,b,y\n{MARKED},x,1\n")
    assert FollowedFile(tmp_path / "s.csv", TWO, faults=told.append).take(1) == [None]
    assert len(told) == 2
    assert not any("123456" in one for one in told)


def test_labels_have_the_type_of_the_problem():
    assert sample_of_json(TWO, line([1, 2], 1.0))[1] == 1
    assert type(sample_of_json(TWO, line([1, 2], 1.0))[1]) is int
    assert type(sample_of_json(LeastSquares(2), line([1, 2], 1))[1]) is float
    assert sample_of_json(LeastSquares(2), line([1, 2], 0.1))[1] == np.float32(0.1)
    assert sample_of_json(TWO, '{"x": [1, 2], "churned": 1}', "churned")[1] == 1


def test_the_problem_has_a_say():
    assert sample_of_json(Experts(2), line([0.5, 1], 0))[0].tolist() == [0.5, 1]
    with pytest.raises(DataError, match="loss out of range"):
        sample_of_json(Experts(2), line([0.5, 1.5], 0))
    with pytest.raises(DataError, match="not a finite number"):
        sample_of_json(Linear(2), '{"x": [1, 2], "y": 1e999}')


def test_large_numbers_are_features():
    assert sample_of_json(TWO, line([3e38, -3e38]))[0].tolist() == np.float32([3e38, -3e38]).tolist()


# Standard input


def test_standard_input_is_the_default(monkeypatch, tmp_path):
    (tmp_path / "given").write_text(line([1, 2]) + "\n" + line([3, 4], 0).rstrip())
    with (tmp_path / "given").open() as given:
        monkeypatch.setattr(sys, "stdin", given)
        source = StandardInput(TWO)
        assert labels(everything(source)) == [1, 0]
    assert source.take(5) == []
    with pytest.raises(DataError, match="--new-data"):
        StandardInput(TWO, io.BytesIO()).resume(source.mark)
    with pytest.raises(DataError, match="--new-data"):  # what a file held may come again by standard input
        StandardInput(TWO, io.BytesIO()).resume({"file": "s.jsonl", "byte": 9, "since": 0, "digest": b""})
    StandardInput(TWO, io.BytesIO()).resume({"samples": 0})
    fresh = StandardInput(TWO, io.BytesIO(), new_data=True)
    fresh.resume(source.mark)
    assert fresh.mark == source.mark  # a third process is refused too
    StandardInput(TWO, io.BytesIO(), new_data=True).resume(source.mark)


def test_a_fast_writer_waits(monkeypatch):
    monkeypatch.setattr(sources, "_WAITING", 3)
    stream = io.BytesIO("".join(line([n, 0], n % 2) for n in range(1000)).encode())
    source = StandardInput(TWO, stream)
    time.sleep(0.1)
    assert stream.tell() < 10 * len(line([100, 0]))
    assert not source.ended
    assert labels(everything(source)) == [0, 1] * 500


def test_a_bad_byte_costs_the_sample_that_has_it_and_no_other():
    """Text would be decoded many lines at a time: what one sample holds would decide about others."""
    lines = [line([n, 0], n % 2).encode() for n in range(1000)]
    lines[500] = lines[500].replace(b"500", b"5\xff0")
    told = []
    taken = labels(everything(StandardInput(TWO, io.BytesIO(b"".join(lines)), faults=told.append)))
    assert taken == [None if n == 500 else n % 2 for n in range(1000)]
    assert told == ["sample 500: not JSON, or with NaN or Infinity"]


def test_a_stream_that_breaks_ends():
    class Broken(io.BytesIO):
        def readline(self, size=-1):
            if not (found := super().readline(size)):
                raise OSError
            return found

    told = []
    assert labels(everything(StandardInput(TWO, Broken(line([1, 2]).encode()), faults=told.append))) == [1, None]
    assert told == ["sample 1: the stream cannot be read (OSError)"]


def test_a_process_ends_while_its_input_is_open():
    program = (
        "from gossamer.net.data.sources import StandardInput; from gossamer.problems import Logistic; import time\n"
        "source = StandardInput(Logistic(1))\n"
        "while not source.take(1): time.sleep(0.01)\n"
        "print('taken', flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        child.stdin.write(line([1]).encode())
        child.stdin.flush()
        assert child.wait(timeout=60) == 0
        assert child.stdout.read() == b"taken\n"
        assert child.stderr.read() == b""


# Iterators


def test_items_are_taken_up_to_the_first_none():
    source = from_iterable(iter([([1, 2], 1), None, None, ([3, 4], 0), ([5, 6], 1)]), TWO)
    assert [labels(source.take(1)) for _ in range(3)] == [[1], [], []]
    assert not source.ended
    assert labels(source.take(5)) == [0, 1]
    assert source.ended
    assert source.mark == {"items": 3}


def test_a_resumed_iterator_skips_what_was_taken():
    items = [([1, 2], 1), None, ([3, 4], 0), ([5, 6], 1)]
    source = from_iterable(items, TWO)
    source.resume({"items": 2})
    assert source.mark == {"items": 2}
    assert source.take(5) == []
    assert_array_equal(source.take(5)[0][0], np.float32([5, 6]))
    assert source.mark == {"items": 3}


@pytest.mark.parametrize(
    "x", [np.arange(2), np.ones(2, np.float16), jnp.ones(2), (np.float32(1), 2), [np.int64(1), 2.5]]
)
def test_kinds_of_features(x):
    (sample,) = from_iterable([(x, np.int64(1))], TWO).take(1)
    assert_array_equal(sample[0], np.asarray(x, np.float32), strict=True)
    assert type(sample[1]) is int


@pytest.mark.parametrize(
    "item", [5, ([1, 2],), "ab", (np.array([True, False]), 1), (np.ones((1, 2)), 1), (None, 1), (np.ones(2), np.nan)]
)
def test_unusable_items(item):
    told = []
    assert labels(from_iterable([item, ([1, 2], 0)], TWO, faults=told.append).take(5)) == [None, 0]
    assert len(told) == 1
    assert told[0].startswith("item 0: ")


# Blocks


def test_rows_without_a_sample_have_no_gradient():
    sample = (np.float32([1, 2]), 0)
    for problem in (TWO, Softmax(2, classes=3), LeastSquares(2)):
        full, padded = (block_of(problem, given, rows) for given, rows in (([sample], 1), ([None, sample], 4)))
        assert padded.y.dtype == (np.int32 if problem.classifies else np.float32)
        assert padded.x.shape == (4, 2)
        decision = jnp.linspace(-1.0, 1.0, problem.dim)
        gradients = [problem.clipped_data_gradient_sum(decision, block, 1.0) for block in (full, padded)]
        assert_array_equal(gradients[0], gradients[1])
        assert np.any(gradients[0])


def test_more_samples_than_rows_are_refused():
    sample = (np.zeros(IMAGES.feature_shape, np.float32), 1)
    assert block_of(IMAGES, [sample], 1).x.shape == (1, 10, 10, 1)
    with pytest.raises(ConfigurationError, match="at most 1"):
        block_of(TWO, [None, None], 1)
