"""Directories and globs as sources."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from lamella.client import Lamella
from lamella.snapshot.errors import BlockReplaced, BlocksRefused, InvalidRequest
from lamella.snapshot.schema import Column
from support.sources import same_as


def put(path: Path, start: int, count: int = 5, **more: pa.Array) -> None:
    """A file of ``a``, which counts on, and ``s``; whatever was there is another file then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"a": range(start, start + count), "s": [None if i % 4 == 3 else f"s{i:04}" for i in range(count)]}
    beside = path.with_name(f".{path.name}.new")
    pq.write_table(pa.table({**{k: list(v) for k, v in columns.items()}, **more}), beside, write_page_index=True)
    before = path.stat().st_mtime_ns if path.exists() else 0
    beside.rename(path)
    if path.stat().st_mtime_ns <= before:  # two writes within one tick of the clock
        os.utime(path, ns=(time.time_ns(), before + 1_000_000))


def own(folder: Path) -> pa.Table:
    """The rows that a plain reader sees."""
    return ds.dataset(folder, format="parquet").to_table()


def test_a_directory_is_followed_through_every_change(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Added, deleted and replaced files come in one snapshot each time, and rows are the directory's own."""
    for at in range(4):
        put(tmp_path / "d" / f"{at}.parquet", 10 * at)
    lake.create_external(name, {"kind": "directory", "location": str(tmp_path / "d")})
    table = lake.table(name)
    assert table.info().row_count == 0
    first = table.refresh()
    assert (first.changed, first.added, first.removed, first.replaced, first.unchanged) == (True, 4, 0, 0, 0)
    same_as(table, own(tmp_path / "d"))

    put(tmp_path / "d" / "1.parquet", 1000, 7)
    put(tmp_path / "d" / "sub" / "new.parquet", 5)
    (tmp_path / "d" / "2.parquet").unlink()
    expected = table.refresh("dry_run")
    assert (expected.changed, expected.snapshot_id) == (False, first.snapshot_id)
    second = table.refresh()
    for answer in (expected, second):
        assert (answer.added, answer.removed, answer.replaced, answer.unchanged) == (1, 1, 1, 2)
    same_as(table, own(tmp_path / "d"))
    changes = table.changes(first.snapshot_id)
    steps = [*changes]
    assert [step.operation for step in steps] == ["refresh"]
    assert (len(steps[0].added), len(steps[0].removed)) == (2, 2)

    third = table.refresh()
    assert (third.changed, third.snapshot_id, third.unchanged) == (False, second.snapshot_id, 4)
    assert len([*table.snapshots()]) == 3
    with pytest.raises(BlockReplaced):  # the old snapshot is of a file that is no longer there
        table.scan("a BETWEEN 10 AND 14", snapshot_id=first.snapshot_id).to_arrow()


def test_a_file_of_the_same_size_is_noticed_by_its_time(lake: Lamella, name: str, tmp_path: Path) -> None:
    """What is replaced in place is another file, in every layer down to pages."""
    path = tmp_path / "d" / "x.parquet"
    put(path, 10)
    size = path.stat().st_size
    lake.create_external(name, {"kind": "directory", "location": str(tmp_path / "d")})
    table = lake.table(name)
    table.refresh()
    assert table.scan("a >= 13", columns=["a"]).to_arrow().to_pydict() == {"a": [13, 14]}
    put(path, 20)
    assert path.stat().st_size == size
    assert table.refresh().replaced == 1
    assert table.scan("a >= 13", columns=["a"]).to_arrow().num_rows == 5
    assert table.prune("a = 11", level="page").block_count == 0
    assert table.prune("a = 21", level="page").block_count == 1


def test_full_mode_opens_every_file_and_keeps_those_that_are_the_same(lake: Lamella, name: str, tmp_path: Path) -> None:
    """A file that was changed behind size and time is found by its footer; the others stay as they are."""
    for at in range(3):
        put(tmp_path / "d" / f"{at}.parquet", 10 * at)
    lake.create_external(name, {"kind": "directory", "location": str(tmp_path / "d")})
    table = lake.table(name)
    table.refresh()
    path = tmp_path / "d" / "1.parquet"
    was = path.stat()
    put(path, 50)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert path.stat().st_size == was.st_size
    assert not table.refresh().changed  # nothing to be seen from outside
    answer = table.refresh("full")
    assert (answer.changed, answer.replaced, answer.unchanged) == (True, 1, 2)
    same_as(table, own(tmp_path / "d"))
    again = table.refresh("full")
    assert (again.changed, again.unchanged) == (False, 3)


def test_a_half_written_file_is_named_and_left_out_or_refuses_all(lake: Lamella, name: str, tmp_path: Path) -> None:
    """An empty or cut file is no block; a good file that became one leaves the table; ``strict`` changes nothing."""
    put(tmp_path / "d" / "good.parquet", 0)
    put(tmp_path / "d" / "soon.parquet", 10)
    lake.create_external(name, {"kind": "directory", "location": str(tmp_path / "d")})
    table = lake.table(name)
    table.refresh()
    (tmp_path / "d" / "empty.parquet").touch()
    data = (tmp_path / "d" / "soon.parquet").read_bytes()
    (tmp_path / "d" / "soon.parquet").write_bytes(data[:-10])
    with pytest.raises(BlocksRefused) as caught:
        table.refresh(strict=True)
    assert len(caught.value.details["refused"]) == 2
    answer = table.refresh()
    codes = {each.path.rpartition("/")[2]: each.code for each in answer.refused}
    assert codes == {"empty.parquet": "not_parquet", "soon.parquet": "truncated_parquet"}
    assert (answer.added, answer.removed, answer.unchanged) == (0, 1, 1)
    assert table.info().properties["lamella.source.refused"] == "2"
    assert not table.refresh().changed
    put(tmp_path / "d" / "empty.parquet", 100)
    (tmp_path / "d" / "soon.parquet").write_bytes(data)
    done = table.refresh()
    assert (done.added, done.refused) == (2, ())
    assert table.info().properties["lamella.source.refused"] == "0"
    same_as(table, own(tmp_path / "d"))


def test_hidden_files_and_other_names_do_not_count(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Spark's rule: what a job has not committed yet is hidden."""
    put(tmp_path / "d" / "x.parquet", 0)
    put(tmp_path / "d" / "_temporary" / "y.parquet", 10)
    put(tmp_path / "d" / ".z.parquet", 20)
    (tmp_path / "d" / "notes.txt").write_text("hello")
    lake.create_external(name, {"kind": "directory", "location": str(tmp_path / "d")})
    assert lake.table(name).refresh().added == 1


def test_a_glob_takes_what_matches(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Files and folders that match, now and later."""
    put(tmp_path / "in-1" / "x.parquet", 0)
    put(tmp_path / "out" / "x.parquet", 10)
    lake.create_external(name, {"kind": "directory", "location": f"{tmp_path}/in-*"})
    table = lake.table(name)
    assert table.refresh().added == 1
    put(tmp_path / "in-2" / "x.parquet", 20)
    assert table.refresh().added == 1
    assert table.scan().count() == 10


def test_folders_are_columns(lake: Lamella, name: str, tmp_path: Path) -> None:
    """A file that holds the column must prove the folder's value; or folders mean nothing."""
    put(tmp_path / "d" / "day=1" / "x.parquet", 0)
    put(tmp_path / "d" / "day=2" / "x.parquet", 10)
    source = {"kind": "directory", "location": str(tmp_path / "d")}
    lake.create_external(name, source)
    table = lake.table(name)
    assert table.refresh(strict=True).added == 2
    assert [(column.name, column.type) for column in table.info().schema.columns][-1] == ("day", "int32")
    assert table.scan("day = 2", columns=["a", "day"]).to_arrow().to_pydict() == {
        "a": list(range(10, 15)),
        "day": [2] * 5,
    }
    put(tmp_path / "d" / "day=three" / "x.parquet", 20)  # the type was fixed when the table was created
    (refused,) = table.refresh().refused
    assert (refused.code, "'day=three'" in refused.reason) == ("value_outside_file", True)
    lake.create_external(f"{name}b", {**source, "path_columns": "ignore"})
    assert lake.table(f"{name}b").refresh().added == 3

    day = {"day": pa.array([1] * 5)}
    put(tmp_path / "e" / "day=1" / "x.parquet", 0, **day)
    put(tmp_path / "e" / "day=2" / "x.parquet", 0, **day)
    put(tmp_path / "e" / "day=__HIVE_DEFAULT_PARTITION__" / "x.parquet", 0, day=pa.array([None] * 5, pa.int64()))
    lake.create_external(f"{name}c", {**source, "location": str(tmp_path / "e")})
    answer = lake.table(f"{name}c").refresh()
    assert answer.added == 2
    assert [each.path.rpartition("/e/")[2] for each in answer.refused] == ["day=2/x.parquet"]


def test_a_folder_above_the_directory_counts_where_the_table_has_its_column(
    lake: Lamella, name: str, tmp_path: Path
) -> None:
    """The root is the table, so ``env=prod`` above it is no column, unless the table has one that the file lacks."""
    root = tmp_path / "env=prod" / "d"
    put(root / "x.parquet", 0)
    source = {"kind": "directory", "location": str(root)}
    lake.create_external(name, source)
    assert lake.table(name).refresh().added == 1

    columns = [Column(name="a", type="int64"), Column(name="s", type="string"), Column(name="ENV", type="string")]
    lake.create_external(f"{name}b", source, schema=columns)
    assert lake.table(f"{name}b").refresh().added == 1
    assert set(lake.table(f"{name}b").scan(columns=["env"]).to_arrow().column(0).to_pylist()) == {"prod"}
    lake.create_external(f"{name}c", {**source, "path_columns": "ignore"}, schema=columns)
    assert lake.table(f"{name}c").refresh().added == 1
    put(root / "x.parquet", 0, env=pa.array(["test"] * 5))  # a column of the file's own is read as it is
    assert lake.table(f"{name}b").refresh().replaced == 1
    assert set(lake.table(f"{name}b").scan(columns=["env"]).to_arrow().column(0).to_pylist()) == {"test"}


@pytest.mark.parametrize("by_file", [False, True])
def test_a_required_column_of_one_file_may_be_null_in_the_others(
    lake: Lamella, name: str, tmp_path: Path, by_file: bool
) -> None:
    """Nullability is not taken over from the file that the columns come from, nor for what is inside of columns."""
    inside = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    kinds = {"a": pa.int64(), "key": pa.int64(), "st": inside, "m": pa.map_(pa.string(), pa.int64())}
    rows = {"a": [1], "key": [2], "st": [{"x": 3}], "m": [[("k", 4)]]}
    required = pa.schema([pa.field(column, kind, nullable=False) for column, kind in kinds.items()])
    (tmp_path / "d").mkdir()
    pq.write_table(pa.table(rows, schema=required), tmp_path / "d" / "0-newest.parquet")
    loose = pa.schema({**kinds, "st": pa.struct([pa.field("x", pa.int64())])})
    nulls = pa.table({column: [None] for column in kinds}, schema=loose)
    pq.write_table(nulls, tmp_path / "d" / "1-older.parquet")
    source = {"kind": "directory", "location": str(tmp_path / "d")}
    lake.create_external(name, source, schema_from=str(tmp_path / "d" / "0-newest.parquet") if by_file else None)
    table = lake.table(name)
    answer = table.refresh()
    assert (answer.added, answer.refused) == (2, ())
    assert all(column.nullable for column in table.schema().schema.columns)
    assert table.scan("a IS NULL").to_arrow().num_rows == 1
    assert table.scan("a = 1").to_arrow().to_pydict() == rows


def test_a_directory_that_vanished_empties_nothing(lake: Lamella, name: str, tmp_path: Path) -> None:
    """A disk that is not mounted looks like an empty folder."""
    put(tmp_path / "d" / "x.parquet", 0)
    lake.create_external(name, {"kind": "directory", "location": str(tmp_path / "d")})
    table = lake.table(name)
    table.refresh()
    (tmp_path / "d" / "x.parquet").unlink()
    with pytest.raises(InvalidRequest, match="allow_empty"):
        table.refresh()
    assert table.info().block_count == 1
    assert table.refresh(allow_empty=True).removed == 1
    assert table.info().block_count == 0


@pytest.mark.parametrize("inside", ["_delta_log/0.json", "metadata/v1.metadata.json", ".hoodie/x"])
def test_the_folder_of_another_format_is_no_plain_directory(
    lake: Lamella, name: str, tmp_path: Path, inside: str
) -> None:
    """Not every file below counts there."""
    put(tmp_path / "d" / "x.parquet", 0)
    (tmp_path / "d" / inside).parent.mkdir(parents=True)
    (tmp_path / "d" / inside).write_text("{}")
    with pytest.raises(InvalidRequest, match="not all files"):
        lake.create_external(name, {"kind": "directory", "location": str(tmp_path / "d")})


def test_only_the_source_changes_the_files(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Registering and removing are refused, properties of the source cannot be set, and plain tables cannot refresh."""
    put(tmp_path / "d" / "x.parquet", 0)
    put(tmp_path / "other.parquet", 0)
    lake.create_external(name, {"kind": "directory", "location": str(tmp_path / "d")})
    table = lake.table(name)
    table.refresh()
    with pytest.raises(InvalidRequest, match="follows a source"):
        table.register([str(tmp_path / "other.parquet")])
    with pytest.raises(InvalidRequest, match="follows a source"):
        table.commit(removed=[f"file://{tmp_path}/d/x.parquet"])
    with pytest.raises(InvalidRequest, match="set by the service"):
        table.commit(properties={"lamella.source.location": "/elsewhere"})
    table.commit(properties={"owner": "me"}, operation="set")
    lake.create_table(f"{name}p", schema_from=f"file://{tmp_path}/other.parquet")
    with pytest.raises(InvalidRequest, match="no source"):
        lake.table(f"{name}p").refresh()
    with pytest.raises(InvalidRequest, match="set by the service"):
        lake.create_table(
            f"{name}q", schema_from=f"file://{tmp_path}/other.parquet", properties={"lamella.source.kind": "delta"}
        )


def test_a_refresh_after_a_rollback_brings_the_source_back(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Whatever the table was made to show, a refresh makes it the source again."""
    put(tmp_path / "d" / "x.parquet", 0)
    lake.create_external(name, {"kind": "directory", "location": str(tmp_path / "d")})
    table = lake.table(name)
    first = table.refresh()
    put(tmp_path / "d" / "y.parquet", 10)
    table.refresh()
    table.rollback(first.snapshot_id)
    assert table.scan().count() == 5
    assert table.refresh().added == 1
    same_as(table, own(tmp_path / "d"))
    assert table.verify().is_clean
