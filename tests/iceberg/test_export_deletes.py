"""Deleted rows in an export are deletion vectors of format version 3, which each reader applies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq
import pytest
from pyiceberg import expressions
from pyiceberg.table import StaticTable

from iceberg.test_export_constants import as_counter, read
from iceberg.test_export_duckdb import answers
from lamella.client.http import Lamella
from lamella.client.iceberg.export import ExportResult
from lamella.snapshot.errors import HashMismatch
from lamella.snapshot.manifest import DeleteFile
from lamella.snapshot.vacuum.mark import object_name
from support.deleted_rows import set_deletes
from support.folder_tables import COLUMNS, FolderTable, filled

e: Any = expressions
_COUNTS: Final = ("total-records", "total-delete-files", "total-position-deletes", "total-equality-deletes")


@pytest.fixture
def lake(export_url: str) -> Iterator[Lamella]:
    """The service's client, with a namespace ``ice``."""
    with Lamella(export_url) as lake:
        if "ice" not in [each.name for each in lake.namespaces()]:
            lake.create_namespace("ice")
        yield lake


@pytest.fixture
def table(lake: Lamella, tmp_path: Path) -> FolderTable:
    """A table of four files, without folders."""
    made = FolderTable(lake, tmp_path, ())
    made.add({}, {}, {}, {})
    return made


def metadata_of(done: ExportResult) -> dict[str, Any]:
    """The metadata file of an export."""
    found: dict[str, Any] = json.loads(Path(done.metadata_location.removeprefix("file://")).read_bytes())
    return found


def files_of(done: ExportResult) -> set[str]:
    """The names of all files of an export."""
    return {path.name for path in (Path(done.location.removeprefix("file://")) / "metadata").iterdir()}


def test_pyiceberg_leaves_deleted_rows_out(table: FolderTable) -> None:
    """Rows, filters and counts; an earlier export has its own."""
    rows = table.rows()
    first = table.export()
    table.delete({0: [1], 2: [0]})
    second, left = table.export(), table.rows()
    table.delete({1: [1]})
    third = table.export()
    assert (len(rows), len(left), len(table.rows()), third.rows) == (8, 6, 5, 5)
    assert read(third) == as_counter(table.rows())
    assert read(third, snapshot=second.number) == as_counter(left)
    assert read(third, snapshot=first.number) == as_counter(rows)
    scan = StaticTable.from_metadata(third.metadata_location).scan
    for row in rows:
        assert scan(e.EqualTo("id", row["id"])).count() == table.rows().count(row)
    assert scan().count() == 5


def test_the_metadata_counts_vectors(table: FolderTable) -> None:
    """Of format version 3 as long as a snapshot has any; a vector counts as a delete file."""
    first = metadata_of(table.export())
    assert (first["format-version"], "next-row-id" in first) == (2, False)
    table.delete({0: [1], 2: [0]})
    found = metadata_of(table.export())
    assert (found["format-version"], found["next-row-id"]) == (3, 0)
    assert [found["snapshots"][-1]["summary"][name] for name in _COUNTS] == ["8", "2", "2", "0"]
    assert [found["snapshots"][0]["summary"][name] for name in _COUNTS] == ["8", "0", "0", "0"]
    table.compact()
    done = table.export()
    assert metadata_of(done)["format-version"] == 3  # the snapshot before can still be read
    assert read(done) == as_counter(table.rows())


def test_added_vectors_are_no_append(table: FolderTable) -> None:
    """A reader of appended files does not look for deleted rows, so such a snapshot has no parent."""
    table.export()
    table.delete({3: [0]})
    table.export()
    table.add({})
    appended = metadata_of(table.export())["snapshots"][-1]
    assert (appended["summary"]["operation"], "parent-snapshot-id" in appended) == ("append", True)
    [entry] = table.delete({4: [1]})
    removed = table.files[4]
    table.table.commit(removed=[removed], operation="delete")
    table.export()
    assert entry
    table.table.rollback(list(table.table.snapshots())[-2].snapshot_id)
    done = table.export()
    found = metadata_of(done)["snapshots"][-1]
    assert (found["summary"]["operation"], "parent-snapshot-id" in found) == ("overwrite", False)
    assert read(done) == as_counter(table.rows())


def test_vectors_are_written_once(table: FolderTable) -> None:
    """The next export uses those of segments that it has; one that was interrupted is finished with what is there."""
    table.delete({0: [1], 2: [0]})
    first = table.export()
    assert table.export().is_changed is False
    table.add({})
    second = table.export()
    assert second.manifests_written == 1
    assert {name for name in files_of(second) if name.endswith(".puffin")} <= files_of(first)
    assert read(second) == as_counter(table.rows())
    for path in (Path(second.location.removeprefix("file://")) / "metadata").iterdir():
        if path.suffix == ".json" or path.name.startswith("snap-"):
            path.unlink()
    again = table.export()
    assert again.manifests_written == 0
    assert read(again) == as_counter(table.rows())


def test_every_file_belongs_to_a_segment_or_a_snapshot(lake: Lamella, tmp_path: Path) -> None:
    """So that a vacuum deletes it together with that."""
    table = filled(lake, tmp_path)
    table.add({"n": "1"}, {})
    table.delete({0: [1], 2: [0], 12: [0], 13: [1]})
    done = table.export()
    root = table.table.info().location
    names = [object_name(root, f"{done.location}/metadata/{name}") for name in files_of(done)]
    assert {None if name is None else name.kind for name in names} == {"export"}
    assert sum(name is not None and name.folder == "_sg" for name in names) >= 9


def test_any_vectors_of_a_block_become_one(table: FolderTable) -> None:
    """Several, and an unknown number of rows: Iceberg has one vector with a number."""
    files = table.files
    one, two = table.delete({0: [0], 1: [1]})
    uncounted: list[DeleteFile] = [msgspec.structs.replace(each, cardinality=None) for each in (one, one)]
    set_deletes(table.table, {files[0]: uncounted})
    assert table.table.info().live_row_count is None
    done = table.export()
    assert (read(done), done.rows) == (as_counter(table.rows()), 6)
    assert two


def test_a_damaged_vector_is_not_exported(table: FolderTable) -> None:
    """The export before it stays."""
    before, rows = table.export(), table.rows()
    [entry] = table.delete({0: [0]})
    path = Path(entry.location.removeprefix("file://"))
    path.write_bytes(path.read_bytes().replace(b"\xd1\xd3\x39\x64", b"\xd1\xd3\x39\x65"))
    with pytest.raises(HashMismatch):
        table.export()
    assert read(before) == as_counter(rows)


def mixed(lake: Lamella, root: Path) -> FolderTable:
    """A table with folders, some of whose rows are deleted."""
    table = filled(lake, root)
    table.add({"n": "1"}, {"s": "a b", "d": "2024-02-29"}, {})
    table.delete({0: [0], 3: [1], 4: [0], 13: [1], 14: [0]})
    table.delete({5: [1]})
    return table


def test_constants_and_vectors_are_read_together(lake: Lamella, tmp_path: Path) -> None:
    """A vector belongs to the partition of its file."""
    table = mixed(lake, tmp_path)
    done, rows = table.export(), table.rows()
    assert read(done) == as_counter(rows)
    for value in {row["n"] for row in rows} - {None}:
        assert read(done, e.EqualTo("n", value)) == as_counter([row for row in rows if row["n"] == value])


def test_duckdb_leaves_deleted_rows_out(lake: Lamella, tmp_path: Path) -> None:
    """With filters on columns of folders and of files."""
    table = mixed(lake, tmp_path)
    folder = table.export().location.removeprefix("file://")
    pq.write_table(table.table.scan().to_arrow(), tmp_path / "truth.parquet")
    sources = f"iceberg_scan('{folder}')", f"read_parquet('{tmp_path / 'truth.parquet'}')"
    filters = ("true", "n = 1", "n IS NULL", "id < 12", "id >= 20", "s <> 'zz'", "d IS NULL OR id = 3")
    shown = ", ".join(f'"{name}"::VARCHAR' for name in ("id", *COLUMNS))
    found = answers(
        [],
        [
            f"SELECT {what} FROM {source} WHERE {each} ORDER BY ALL"  # noqa: S608  # of this test
            for each in filters
            for what in (shown, "count(*)")
            for source in sources
        ],
    )
    for exported, expected in zip(found[::2], found[1::2], strict=True):
        assert exported == expected


def test_duckdb_reads_the_vectors_of_a_segment_in_any_order(lake: Lamella, tmp_path: Path) -> None:
    """DuckDB 1.5.5 mixed up vectors in one file, if it did not read them from the first to the last."""
    table = FolderTable(lake, tmp_path, ("n",))
    table.add({"n": "1"}, {"n": "2"}, {})
    table.delete({0: [0], 1: [1], 2: [0]})
    folder = table.export().location.removeprefix("file://")
    last, found = answers(
        [],
        [f"SELECT id FROM iceberg_scan('{folder}') WHERE {each} ORDER BY id" for each in ("n IS NULL", "true")],  # noqa: S608
    )
    wanted = sorted(row["id"] for row in table.rows())
    assert [int(id) for (id,) in found] == wanted
    assert [int(id) for (id,) in last] == wanted[2:]


def test_another_table_follows_an_export(lake: Lamella, tmp_path: Path) -> None:
    """Constants and vectors come back as what they were."""
    table = mixed(lake, tmp_path)
    done = table.export()
    name = f"{table.name}_followed"
    lake.create_external(name, {"kind": "iceberg", "location": done.metadata_location})
    followed = lake.table(name)
    answer = followed.refresh()
    assert (answer.added, answer.refused) == (done.files, ())
    assert as_counter(followed.scan().to_arrow().to_pylist()) == as_counter(table.rows())
    mine, theirs = table.table.info(), followed.info()
    assert (theirs.live_row_count, theirs.deletes_count) == (mine.live_row_count, mine.deletes_count)
    assert theirs.constants_count == mine.constants_count
