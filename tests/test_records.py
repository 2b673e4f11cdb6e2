"""Records by the columns of a schema: files, folders and databases, each row once, whatever happens to them."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from gossamer.data import Choice, Number, Schema
from gossamer.errors import ConfigurationError, DataError
from gossamer.net.data.folder import Folder
from gossamer.net.data.followed_file import FollowedFile
from gossamer.net.data.query import Query
from gossamer.net.data.sources import from_iterable
from gossamer.net.data.survey import survey
from gossamer.net.node.checkpoint import pack, unpack
from gossamer.problems import LeastSquares, Logistic

SCHEMA = Schema((Number("age", 0, 100), Number("dose", 0, 10)), Choice("ill", ("no", "yes")))
PROBLEM = Logistic(3)
SECRET = "123456.7"  # a value that nothing may show


def record(number: int) -> dict[str, Any]:
    return {"age": number, "dose": number / 10, "ill": ("no", "yes")[number % 2]}


def ages(samples: list[Any]) -> list[int | None]:
    """Which records they are."""
    return [None if one is None else round(SCHEMA.features[0].unscaled(float(one[0][0]))) for one in samples]


def as_csv(numbers: list[int] | range, columns: tuple[str, ...] = ("ill", "ward", "dose", "age")) -> str:
    rows = [",".join(str({"ward": "B 7", **record(number)}[name]) for name in columns) for number in numbers]
    return "\n".join([",".join(columns), *rows]) + "\n"


def write(path: Path, numbers: list[int] | range) -> None:
    """As what the name says; the file counts as whole."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([record(number) for number in numbers]), path, row_group_size=2)
    elif path.suffix == ".csv":
        path.write_text(as_csv(numbers))
    else:
        path.write_text("".join(json.dumps(record(number)) + "\n" for number in numbers))
    settle(path)


def settle(path: Path) -> None:
    os.utime(path, (1e9, 1e9))


def open_file(path: Path, **options: Any) -> FollowedFile:
    return FollowedFile(path, PROBLEM, schema=SCHEMA, **options)


def open_folder(path: Path, **options: Any) -> Folder:
    return Folder(path, PROBLEM, schema=SCHEMA, **options)


def restarted(source: Any, make: Any) -> Any:
    """Another process goes on from what was kept."""
    again = make()
    again.resume(unpack(pack(source.mark)))
    return again


# One record


@pytest.mark.parametrize("columns", [("age", "dose", "ill"), ("ill", "ward", "dose", "age")])
def test_columns_of_csv_come_by_name_in_any_order_and_others_are_left_out(tmp_path: Path, columns: Any) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\ufeff" + as_csv([75, 50], columns).replace("\n", "\r\n"))
    first, second = open_file(path).take(5)
    assert_array_equal(first[0], np.array([0.5, 0.5, 1], np.float32), strict=True)
    assert (first[1], second[1]) == (1, 0)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_files_of_all_kinds_have_the_same_records(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    assert ages(open_file(path).take(5)) == []
    write(path, range(7))
    source = open_file(path)
    assert ages(source.take(3)) == [0, 1, 2]
    source = restarted(source, lambda: open_file(path))
    assert ages(source.take(2)) == [3, 4]
    assert ages(source.take(4, whole=2)) == [5, 6]
    assert source.take(5) == []
    assert source.tally.kept == [7, 0, 14, 0]


def test_records_of_python_are_mappings() -> None:
    source = from_iterable([record(3), None, ([1.0, 2.0, 3.0], 1)], PROBLEM, schema=SCHEMA)
    assert [ages(source.take(5)) for _ in range(2)] == [[3], [None]]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"age": ""}, "'age' holds no number"),
        ({"age": "1_0"}, "'age' holds no number"),
        ({"age": "nan"}, "'age' is empty, or not finite"),
        ({"dose": "12,5"}, "5 cells; the header has 4"),
        ({"ill": "M"}, "'ill' holds a value that is not in the schema"),
        ({"ill": '"yes'}, "cannot be read as CSV"),
    ],
)
def test_rows_that_cannot_be_used_are_counted_and_show_no_value(tmp_path: Path, changed: Any, reason: str) -> None:
    path, told = tmp_path / "a.csv", []
    cells = {"age": "75", "dose": SECRET, "ill": "yes", "ward": "B 7", **changed}
    path.write_text(",".join(cells) + "\n" + ",".join(cells.values()) + "\n")
    source = open_file(path, faults=told.append)
    assert source.take(5) == [None]
    ((said, count),) = source.tally.reasons.items()
    assert (count, source.tally.unusable) == (1, 1)
    assert reason in said
    assert not any(secret in "".join(told) + said for secret in (SECRET, "B 7", "12", "1_0"))


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("age,dose", "no column 'ill'"),
        ("Age,dose,ill", "no column 'age'"),
        ("age;dose;ill", "separate cells by commas"),
        (f"{SECRET},1,yes", "no header"),
        ("age,dose,ill,age", "2 columns are called 'age'"),
    ],
)
def test_a_table_without_the_columns_is_refused(tmp_path: Path, header: str, reason: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(header + "\n1,2,yes\n")
    with pytest.raises(DataError) as refused:
        open_file(path).take(1)
    assert reason in str(refused.value)
    assert SECRET not in str(refused.value)


def test_parquet_that_does_not_suit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, range(9))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(DataError, match="not all of it"):
        open_file(path).take(1)
    pq.write_table(pa.table({"age": [1], "ill": ["no"]}), path)
    with pytest.raises(DataError, match="no column 'dose'"):
        open_file(path).take(1)
    with pytest.raises(ConfigurationError, match="with a schema only"):
        FollowedFile(path, PROBLEM).take(1)
    path.write_bytes(whole)
    source = open_file(path)
    source.take(4)
    write(path, range(10, 19))  # another file
    with pytest.raises(DataError, match="only grow"):
        source.take(1)


# A file that is renamed, and begins again


@pytest.mark.parametrize(
    ("older", "old"),
    [("a.csv.2", "a.csv.1"), ("a.csv-20261118", "a.csv-20261119"), ("a-20261118.csv", "a-20261119.csv")],
)
def test_a_rotated_file_is_read_to_its_end_before_the_new_one(tmp_path: Path, older: str, old: str) -> None:
    path = tmp_path / "a.csv"
    write(path, range(5))
    source = open_file(path, rotated=True)
    assert ages(source.take(2)) == [0, 1]
    path.rename(tmp_path / older)
    assert ages(source.take(1)) == [2]  # between the two names there is no file
    write(path, range(5, 8))
    assert ages(source.take(3)) == [3, 4, 5]
    path.rename(tmp_path / old)
    write(path, range(8, 10))
    source = restarted(source, lambda: open_file(path, rotated=True))
    assert ages(source.take(9)) == [6, 7, 8, 9]
    assert source.take(9) == []
    assert source.mark["file"] == "a.csv"


def test_a_node_that_was_away_reads_all_files_that_came_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write(path, range(3))
    source = open_file(path, rotated=True)
    source.take(1)
    for number in range(4):
        for age in range(number, 0, -1):  # as logrotate does
            (tmp_path / f"a.csv.{age}").rename(tmp_path / f"a.csv.{age + 1}")
        path.rename(tmp_path / "a.csv.1")
        write(path, range(10 * number + 10, 10 * number + 12))
    assert ages(restarted(source, lambda: open_file(path, rotated=True)).take(99)) == [
        1,
        2,
        10,
        11,
        20,
        21,
        30,
        31,
        40,
        41,
    ]


def test_a_rotated_file_must_be_announced(tmp_path: Path) -> None:
    """A copy beside a file that was sorted anew looks the same, and would have samples used twice."""
    path = tmp_path / "a.csv"
    write(path, range(5))
    source = open_file(path)
    source.take(2)
    path.rename(tmp_path / "a.csv.1")
    write(path, [4, 3, 2, 1, 0])
    with pytest.raises(DataError, match="only grow"):
        source.take(1)


def test_a_rotated_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write(path, range(5))
    source = open_file(path, rotated=True)
    source.take(2)
    write(path, range(5, 9))
    with pytest.raises(DataError, match="only grow"):
        source.take(1)


# A folder


def test_files_of_a_folder_come_by_name_each_once(tmp_path: Path) -> None:
    write(tmp_path / "b.csv", [2, 3])
    write(tmp_path / "a.parquet", [0, 1])
    write(tmp_path / "c.jsonl", [4])
    write(tmp_path / ".hidden.csv", [9])
    (tmp_path / "notes.txt").write_text("not read")
    source = open_folder(tmp_path)
    assert ages(source.take(3)) == [0, 1, 2]
    write(tmp_path / "aa.csv", [5])  # late, and before others by name
    source = restarted(source, lambda: open_folder(tmp_path))
    assert ages(source.take(9)) == [3, 5, 4]
    assert source.take(9) == []
    write(tmp_path / "d.csv", range(6, 9))
    assert ages(source.take(2, whole=2)) == [6, 7]
    assert source.take(2, whole=2) == []
    write(tmp_path / "e.csv", [9])
    assert ages(source.take(2, whole=2)) == [8, 9]  # a batch of two files


def test_a_file_that_is_still_written_waits(tmp_path: Path) -> None:
    write(tmp_path / "b.csv", [1])
    (tmp_path / "a.csv").write_text(as_csv(range(2)))
    (tmp_path / "c.parquet").write_bytes(b"PAR1 not all of it")
    source = open_folder(tmp_path)
    assert ages(source.take(9)) == [1]
    settle(tmp_path / "a.csv")
    assert ages(source.take(9)) == [0, 1]
    with (tmp_path / "a.csv").open("a") as file:  # the writer only paused
        file.write("yes,B,0,3\nyes,B,0")
    assert ages(source.take(9)) == [3]
    write(tmp_path / "c.parquet", [7])
    assert source.take(9) == []  # the one before is still written
    settle(tmp_path / "a.csv")
    assert ages(source.take(9)) == [7]


def test_no_file_is_read_twice_whatever_its_name(tmp_path: Path) -> None:
    told: list[str] = []
    write(tmp_path / "a.csv", [0, 1])
    write(tmp_path / "b.csv", [2, 3, 4])
    source = open_folder(tmp_path, faults=told.append)
    assert ages(source.take(3)) == [0, 1, 2]
    (tmp_path / "a.csv").rename(tmp_path / "z.csv")  # read to its end
    (tmp_path / "b.csv").rename(tmp_path / "y.csv")  # while it is read
    write(tmp_path / "x.csv", [0, 1])  # a copy
    source = restarted(source, lambda: open_folder(tmp_path, faults=told.append))
    assert ages(source.take(9)) == [3, 4]
    assert source.take(9) == []
    assert [text.partition(":")[0] for text in told] == ["x.csv", "z.csv"]
    (tmp_path / "z.csv").unlink()
    write(tmp_path / "a.csv", [8, 9])  # another file under a name that was read
    assert source.take(9) == []
    (tmp_path / "y.csv").unlink()
    write(tmp_path / "w.csv", [2, 3, 4])  # what was read, after the file is gone
    assert restarted(source, lambda: open_folder(tmp_path)).take(9) == []


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", range(4))
    source = open_folder(tmp_path)
    source.take(2)
    write(tmp_path / "a.csv", [3, 2, 1, 0])
    with pytest.raises(DataError, match="only grow"):
        source.take(1)
    with pytest.raises(DataError, match="only grow"):
        restarted(source, lambda: open_folder(tmp_path))


def test_a_file_with_other_columns_is_left_out_and_told(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "a.csv").write_text("colour\nred\n")
    settle(tmp_path / "a.csv")
    write(tmp_path / "b.csv", [1])
    source = open_folder(tmp_path, faults=told.append)
    assert [ages(source.take(9)) for _ in range(2)] == [[1], []]
    assert len(told) == 1
    assert "a.csv: left out: a.csv: no column 'age'" in told[0]
    assert survey("folder", open_folder(tmp_path), SCHEMA).doubts == ["unusable"]


def test_marks_of_a_file_and_a_folder_are_not_the_same(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", range(4))
    folder, file = open_folder(tmp_path), open_file(tmp_path / "a.csv")
    folder.take(1), file.take(1)
    with pytest.raises(DataError, match="only grow"):
        open_file(tmp_path / "a.csv").resume(folder.mark)
    with pytest.raises(DataError, match="only grow"):
        open_folder(tmp_path).resume(file.mark)


@pytest.mark.parametrize("seed", range(8))
def test_arrivals_renames_and_restarts_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    """Files arrive, are renamed and removed after they were read, and the process dies at any time."""
    chance, taken, made = random.Random(seed), [], 0
    source = open_folder(tmp_path)
    for turn in range(60):
        match chance.randrange(5):
            case 0:
                count = chance.randrange(1, 5)
                suffix = chance.choice(["csv", "jsonl", "parquet"])
                write(tmp_path / f"{chance.randrange(1000)}-{turn}.{suffix}", range(made, made + count))
                made += count
            case 1:
                source = restarted(source, lambda: open_folder(tmp_path))
            case 2 if names := sorted(tmp_path.iterdir()):
                old = chance.choice(names)
                old.rename(old.with_name(f"{chance.randrange(1000)}-{turn}{old.suffix}"))
            case _:
                taken += ages(source.take(chance.randrange(4)))
    while more := source.take(50):
        taken += ages(more)
    assert sorted(taken) == list(range(made))


# A database


def database(path: Path, numbers: list[int] | range) -> None:
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("CREATE TABLE IF NOT EXISTS visits (id INTEGER PRIMARY KEY, age REAL, dose REAL, ill TEXT)")
        rows = [(number + 1, *record(number).values()) for number in numbers]
        opened.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", rows)


def asked(path: Path, rows: str = "SELECT * FROM visits;", cursor: str = "id", **options: Any) -> Query:
    return Query(f"sqlite:{path}", rows, cursor, PROBLEM, SCHEMA, **options)


def test_rows_of_a_database_come_in_the_order_of_the_cursor_each_once(tmp_path: Path) -> None:
    path = tmp_path / "clinic.db"
    database(path, [2, 0, 1])
    source = asked(path)
    assert ages(source.take(2)) == [0, 1]
    database(path, range(3, 6))
    source = restarted(source, lambda: asked(path))
    assert ages(source.take(3, whole=2)) == [2, 3]
    assert [ages(source.take(9)) for _ in range(2)] == [[4, 5], []]
    assert source.tally.rows == 6
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("DELETE FROM visits WHERE id < 6")  # what was read may go
    assert restarted(source, lambda: asked(path)).take(9) == []


def test_a_database_in_which_the_last_row_is_another_is_refused(tmp_path: Path) -> None:
    database(tmp_path / "a.db", range(3))
    database(tmp_path / "b.db", range(3))
    source = asked(tmp_path / "a.db")
    source.take(2)
    with closing(sqlite3.connect(tmp_path / "b.db")) as opened, opened:
        opened.execute("UPDATE visits SET age = 99 WHERE id = 2")
    with pytest.raises(DataError, match="only grow"):
        restarted(source, lambda: asked(tmp_path / "b.db"))
    with pytest.raises(DataError, match="only grow"):
        restarted(source, lambda: asked(tmp_path / "a.db", cursor="age"))


@pytest.mark.parametrize(
    ("rows", "cursor", "said"),
    [
        ("SELECT * FROM visits", "number", "no column 'number', which is the cursor"),
        ("SELECT age, ill, id FROM visits", "id", "no column 'dose'"),
        ("SELECT * FROM wards", "id", "does not answer"),
        ("SELECT *, 7 AS seven FROM visits", "seven", "must be unique"),
        ("SELECT * FROM visits", "age", "whole numbers or texts"),
        ("DROP TABLE visits", "id", "does not answer"),
    ],
)
def test_queries_that_cannot_be_read(tmp_path: Path, rows: str, cursor: str, said: str) -> None:
    database(tmp_path / "a.db", range(3))
    with pytest.raises(DataError, match=said):
        asked(tmp_path / "a.db", rows, cursor).take(5)
    assert len(asked(tmp_path / "a.db").take(5)) == 3


def test_a_database_that_is_away_for_a_while_has_no_rows_meanwhile(tmp_path: Path) -> None:
    path, told = tmp_path / "a.db", []
    database(path, range(3))
    source = asked(path, faults=told.append)
    assert ages(source.take(1)) == [0]
    path.rename(tmp_path / "away.db")
    source._connection.close()
    assert source.take(5) == []
    (tmp_path / "away.db").rename(path)
    assert ages(source.take(5)) == [1, 2]
    assert len(told) == 1


def test_a_password_is_refused_and_not_repeated() -> None:
    for name in ("postgresql://ward:sesame@db/clinic", "postgresql://db/clinic?password=sesame"):
        with pytest.raises(ConfigurationError, match="pgpass") as refused:
            Query(name, "SELECT 1", "id", PROBLEM, SCHEMA)
        assert "sesame" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="with a schema only"):
        Query("sqlite:a.db", "SELECT 1", "id", PROBLEM, None)


# What data are like


def test_a_survey_counts_and_uses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(as_csv(range(99)) + "perhaps,B,1,1\n")
    found = survey("a.csv", open_file(path), SCHEMA)
    assert (found.tally.rows, found.tally.unusable, found.tally.values, found.doubts) == (100, 1, 198, [])
    assert found.labels == {"no": 50, "yes": 49}
    with path.open("a") as file:
        file.write("perhaps,B,1,1\n")
    found = survey("a.csv", open_file(path), SCHEMA)
    assert found.doubts == ["unusable"]
    assert survey("a.csv", open_file(path), SCHEMA, most=50).whole is False
    path.write_text(as_csv(range(91, 111)))
    assert survey("a.csv", open_file(path), SCHEMA).doubts == ["outside"]
    path.write_text(as_csv(range(91, 102)))  # one age and one dose, of 22 numbers
    assert survey("a.csv", open_file(path), SCHEMA).doubts == []


def test_targets_are_scaled_and_counted(tmp_path: Path) -> None:
    schema = Schema((Number("age", 0, 100),), Number("price", 0, 10), intercept=False)
    path = tmp_path / "a.jsonl"
    path.write_text('{"age": 75, "price": 20}\n')
    source = FollowedFile(path, LeastSquares(1), schema=schema)
    ((x, y),) = source.take(1)
    assert (x.tolist(), y) == ([0.5], 1.0)
    assert (source.tally.values, source.tally.outside, dict(source.tally.columns)) == (2, 1, {"price": 1})
