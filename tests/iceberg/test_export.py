"""A table exported as Iceberg: pyiceberg reads what the table has, and an export writes only what is new."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import StaticTable

from iceberg.conftest import MakeTable
from iceberg.exporting import exported, opened, rows
from lamella.client.iceberg.export import HOLD, ExportOptions, ExportResult, export_iceberg
from lamella.client.jobs.rewrite import compact
from lamella.snapshot.errors import InvalidRequest, ManifestError, NotExpressible, SnapshotNotFound, UnknownColumn
from lamella.snapshot.iceberg import export as metadata_files
from lamella.snapshot.iceberg import export_folder
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn, WidenColumn
from lamella.snapshot.storage import FsspecStore
from support.event_tables import EventTable, events


def filled(make_table: MakeTable, files: int = 3, **more: Any) -> EventTable:
    """A table of some files."""
    table = make_table(**more)
    rng = random.Random(files)
    table.add(*[events(rng, 40) for _ in range(files)])
    return table


def files_of(done: ExportResult) -> dict[str, int]:
    """The names in the export's folder, with the times of their last changes (ns)."""
    folder = Path(done.location.removeprefix("file://")) / "metadata"
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_pyiceberg_reads_the_rows_of_the_table(make_table: MakeTable) -> None:
    """All of them and nothing else, from the table's own files; by the metadata file, or by its folder's hint."""
    table = filled(make_table)
    done = exported(table)
    assert rows(opened(done)) == table.rows()
    assert {task.file.file_path for task in opened(done).scan().plan_files()} == {b.location for b in table.blocks()}
    assert rows(StaticTable.from_metadata(done.location)) == table.rows()
    assert (done.files, done.rows, done.snapshots, done.is_changed) == (3, 120, 1, True)
    assert opened(done).scan().count() == 120
    assert Path(done.location.removeprefix("file://")).parent.name == table.handle.info().location.rpartition("/")[2]


def test_a_table_without_rows_can_be_exported(make_table: MakeTable) -> None:
    """And is filled by the next export."""
    table = make_table()
    assert rows(opened(exported(table))) == table.rows()
    table.add(events(random.Random(1), 10))
    assert rows(opened(exported(table))) == table.rows()


def test_the_same_snapshot_again_writes_nothing(make_table: MakeTable) -> None:
    """Not one file changes, and none comes."""
    table = filled(make_table)
    first = exported(table)
    before = files_of(first)
    again = exported(table)
    assert files_of(again) == before
    assert (again.is_changed, again.manifests_written, again.manifests_reused, again.size_bytes) == (False, 0, 1, 0)
    assert again.metadata_location == first.metadata_location


def test_a_commit_of_one_segment_writes_one_manifest(make_table: MakeTable) -> None:
    """What was there stays as it was; older snapshots are read as ever, by id and by time, and by tag."""
    table = filled(make_table)
    first = exported(table)
    old = table.rows()
    table.handle.tag("gold")
    before = files_of(first)
    table.add(events(random.Random(7), 20))
    second = exported(table)
    after = files_of(second)
    new = after.keys() - before.keys()
    assert (second.manifests_written, second.manifests_reused, second.snapshots) == (1, 1, 2)
    assert sorted(name.rpartition(".")[2] for name in new) == ["avro", "avro", "json"]
    assert {name: at for name, at in after.items() if name in before and name != "version-hint.text"} == {
        name: at for name, at in before.items() if name != "version-hint.text"
    }
    found = opened(second)
    assert rows(found) == table.rows()
    assert rows(found, first.number) == old
    gold = found.snapshot_by_name("gold")
    assert gold is not None
    assert gold.snapshot_id == first.number
    at = found.snapshot_as_of_timestamp(gold.timestamp_ms)
    assert at is not None
    assert at.snapshot_id == first.number


def test_entries_inherit_what_differs_from_snapshot_to_snapshot(make_table: MakeTable) -> None:
    """A file's snapshot and sequence number are those of the first export that had its segment."""
    table = filled(make_table, 2)
    first = exported(table)
    table.add(events(random.Random(8), 20))
    found = opened(exported(table))
    snapshot = found.current_snapshot()
    assert snapshot is not None
    entries = [entry for m in snapshot.manifests(found.io) for entry in m.fetch_manifest_entry(found.io)]
    assert {entry.status for entry in entries} == {ManifestEntryStatus.ADDED}
    assert sorted((entry.snapshot_id, entry.sequence_number) for entry in entries) == [
        (first.number, 1),
        (first.number, 1),
        (snapshot.snapshot_id, 2),
    ]
    assert (snapshot.parent_snapshot_id, snapshot.sequence_number) == (first.number, 2)
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "append"


def test_a_rewrite_has_no_parent(make_table: MakeTable) -> None:
    """Its manifests do not say which files went, so readers of changes between snapshots must not go across it."""
    table = filled(make_table, 4)
    exported(table)
    compact(table.context(block_rows=200))
    done = exported(table)
    found = opened(done)
    snapshot = found.current_snapshot()
    assert snapshot is not None
    assert snapshot.parent_snapshot_id is None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "overwrite"
    assert rows(found) == table.rows()


def test_an_older_snapshot_can_be_exported(make_table: MakeTable) -> None:
    """It is the current one of the export then; what was exported before stays, and comes back without a new list."""
    table = filled(make_table)
    old, old_rows = table.handle.info().snapshot_id, table.rows()
    table.handle.tag("old", old)
    table.add(events(random.Random(9), 20))
    newest = exported(table)
    older = exported(table, snapshot="old")
    assert rows(opened(older)) == old_rows
    assert rows(opened(older), newest.number) == table.rows()
    log = opened(older).metadata.snapshot_log
    assert [each.snapshot_id for each in log] == [older.number]
    lists = {name for name in files_of(older) if name.startswith("snap-")}
    again = exported(table)
    assert rows(opened(again)) == table.rows()
    assert {name for name in files_of(again) if name.startswith("snap-")} == lists
    assert [each.snapshot_id for each in opened(again).metadata.snapshot_log] == [older.number, newest.number]
    with pytest.raises(SnapshotNotFound):
        exported(table, snapshot="nothing")


def test_columns_come_and_go(make_table: MakeTable) -> None:
    """Renamed, dropped, added, moved and widened columns are read right in files of any age, and in older snapshots."""
    table = filled(make_table, 2)
    first, before = exported(table), table.rows()
    table.handle.evolve(
        [
            RenameColumn(column="user", name="who"),
            DropColumn(column="price"),
            AddColumn(name="note", type="string", first=True),
            WidenColumn(column="place.zip", type="int64"),
            RenameColumn(column="place.city", name="town"),
        ]
    )
    done = exported(table)
    assert (done.manifests_written, done.manifests_reused) == (0, 1)
    path = table.folder / "new.parquet"
    structs = pa.array([{"town": "Bonn", "zip": 1 << 40}])
    pq.write_table(pa.table({"id": pa.array([1], pa.int64()), "who": ["x"], "note": ["n"], "place": structs}), path)
    table.handle.register([str(path)])
    done = exported(table)
    found = opened(done)
    read = found.scan().to_arrow()
    assert read.column_names == ["note", "id", "day", "who", "amount", "place"]
    old = pa.concat_tables([pq.read_table(b.location.removeprefix("file://")) for b in table.blocks()[:2]])
    assert sorted(read.filter(pa.compute.is_null(read["note"]))["who"].to_pylist(), key=str) == sorted(
        old["user"].to_pylist(), key=str
    )
    [new] = read.filter(pa.compute.equal(read["note"], "n")).to_pylist()
    assert (new["place"], new["day"]) == ({"town": "Bonn", "zip": 1 << 40}, None)
    assert found.scan("who = 'x' and place.zip > 1000").to_arrow()["id"].to_pylist() == [1]
    assert found.scan(f"id = {old['id'][0].as_py()}").to_arrow()["who"].to_pylist() == [old["user"][0].as_py()]
    assert rows(found, first.number) == before


def test_a_name_that_stood_for_two_columns_ends_older_snapshots(make_table: MakeTable) -> None:
    """While files with either are in the table nothing can be exported; once they are rewritten, only what is now."""
    table = filled(make_table, 2)
    exported(table)
    table.handle.evolve([DropColumn(column="user"), AddColumn(name="user", type="string")])
    with pytest.raises(NotExpressible, match="two columns"):
        exported(table)
    compact(table.context(block_rows=500))
    done = exported(table)
    assert (done.snapshots, done.forgotten) == (1, 1)
    assert opened(done).scan().to_arrow()["user"].null_count == 80


def test_a_column_that_iceberg_does_not_know_is_refused(make_table: MakeTable) -> None:
    """Before anything is written."""
    table = filled(make_table, 1)
    table.handle.evolve([AddColumn(name="big", type="uint64")])
    with pytest.raises(NotExpressible, match="unsigned"):
        exported(table)
    assert not (Path(table.handle.info().location.removeprefix("file://")) / "_iceberg").exists()


def test_a_widening_that_iceberg_does_not_know_is_refused(make_table: MakeTable) -> None:
    """A decimal of another scale: its readers take the files' digits for others."""
    table = filled(make_table, 1)
    table.handle.evolve([WidenColumn(column="price", type="decimal(16,4)")])
    with pytest.raises(NotExpressible, match="older files"):
        exported(table)


@pytest.mark.parametrize("numbers", [{"id": 2, "user": 1}, {"id": 1}], ids=["other", "some"])
def test_a_file_that_numbers_its_columns_otherwise_is_refused(make_table: MakeTable, numbers: dict[str, int]) -> None:
    """Iceberg's readers go by a file's own numbers, whatever the mapping of names says: they would swap the columns."""
    table = make_table()
    fields = [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(numbers[name])} if name in numbers else None)
        for name, kind in (("id", pa.int64()), ("user", pa.string()))
    ]
    path = table.folder / "numbered.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int64()), "user": ["u"]}, schema=pa.schema(fields)), path)
    table.handle.register([str(path)])
    with pytest.raises(NotExpressible, match="column ids differ"):
        exported(table)
    assert exported(table, trust_files=True).files == 1
    with pytest.raises(NotExpressible, match="column ids differ"):  # a file that was not checked is not exported
        exported(table)
    pq.write_table(pa.table({"id": pa.array([2], pa.int64()), "user": ["v"]}), table.folder / "plain.parquet")
    table.handle.register([str(table.folder / "plain.parquet")])
    compact(table.context(block_rows=100))
    read = opened(exported(table)).scan().to_arrow()
    assert sorted(zip(read["id"].to_pylist(), read["user"].to_pylist(), strict=True)) == [(1, "u"), (2, "v")]


@pytest.mark.parametrize(
    ("rows_of_file", "reason"),
    [
        (pa.table({"ID": pa.array([1], pa.int64())}), "case-sensitive"),
        (pa.table({"id": pa.array([1], pa.uint32())}), "uint32"),
    ],
    ids=["case", "unsigned"],
)
def test_a_file_that_is_read_otherwise_is_refused(make_table: MakeTable, rows_of_file: pa.Table, reason: str) -> None:
    """Names in another case, and types that Iceberg has not."""
    table = make_table()
    path = table.folder / "odd.parquet"
    pq.write_table(rows_of_file, path)
    table.handle.register([str(path)])
    with pytest.raises(NotExpressible, match=reason):
        exported(table)


def test_statistics_of_some_columns(make_table: MakeTable) -> None:
    """Other columns have none; other statistics are other manifests, and the snapshot has the new ones."""
    table = filled(make_table)
    first = exported(table)
    done = exported(table, columns=("id", "place"))
    assert (done.manifests_written, done.snapshots) == (1, 1)
    found = opened(done)
    snapshot = found.current_snapshot()
    assert snapshot is not None
    [manifest] = snapshot.manifests(found.io)
    ids = table.handle.snapshot(done.snapshot_id).schema.select(["id", "place"])
    for entry in manifest.fetch_manifest_entry(found.io):
        assert set(entry.data_file.value_counts) == set(ids)
    assert rows(found) == table.rows()
    assert files_of(done).keys() > files_of(first).keys() - {"version-hint.text"}
    with pytest.raises(UnknownColumn):
        exported(table, columns=("nothing",))


def test_another_folder(make_table: MakeTable, tmp_path: Path) -> None:
    """Of the user's choice, but not one among the tables' own; each folder holds its snapshot by a tag of its own."""
    table = filled(make_table)
    done = exported(table, location=str(tmp_path / "there" / "t"))
    assert done.location == f"file://{tmp_path}/there/t"
    assert rows(opened(done)) == table.rows()
    assert (tmp_path / "there/t/metadata/version-hint.text").read_text() == "1"
    root = table.handle.info().location
    for location in (root, f"{root}/_b", f"{root}/../other", f"{root}-2/x"):
        with pytest.raises(InvalidRequest, match="own folders"):
            exported(table, location=location)
    with pytest.raises(InvalidRequest, match="another table"):
        exported(filled(make_table), location=str(tmp_path / "there" / "t"))
    exported(table)
    assert len({tag.name for tag in table.handle.tags() if tag.name.startswith(HOLD)}) == 2


def test_no_clean_up_of_icebergs_may_delete_the_tables_files(make_table: MakeTable) -> None:
    """The metadata says so, and its folder has nothing of the table's."""
    table = filled(make_table)
    done = exported(table)
    assert opened(done).properties["gc.enabled"] == "false"
    assert not any(block.location.startswith(done.location) for block in table.blocks())


def test_metadata_is_what_the_specification_wants(make_table: MakeTable) -> None:
    """Logs ascend, the last entry is the current snapshot, and numbers are within the greatest that are said."""
    table = filled(make_table, 1)
    for number in range(4):
        exported(table)
        table.add(events(random.Random(number), 5))
    done = exported(table)
    said = json.loads(Path(done.metadata_location.removeprefix("file://")).read_bytes())
    assert said["format-version"] == 2
    logged = [each["timestamp-ms"] for each in said["snapshot-log"]]
    assert logged == sorted(logged)
    assert said["snapshot-log"][-1]["snapshot-id"] == said["current-snapshot-id"] == said["refs"]["main"]["snapshot-id"]
    assert said["last-updated-ms"] >= max(logged)
    assert (
        [each["sequence-number"] for each in said["snapshots"]]
        == [1, 2, 3, 4, 5]
        == [*range(1, said["last-sequence-number"] + 1)]
    )
    files = [each["metadata-file"] for each in said["metadata-log"]]
    assert [Path(file).name for file in files] == [f"v{n}.metadata.json" for n in range(1, 5)]
    assert all(Path(file.removeprefix("file://")).exists() for file in files)
    assert said["last-column-id"] == table.handle.snapshot(done.snapshot_id).schema.last_column_id


def test_old_metadata_files_go(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the log names stay."""
    for module in (metadata_files, export_folder):
        monkeypatch.setattr(module, "OLD_VERSIONS", 2)
    table = filled(make_table, 1)
    for number in range(4):
        exported(table)
        table.add(events(random.Random(number), 5))
    done = exported(table)
    said = json.loads(Path(done.metadata_location.removeprefix("file://")).read_bytes())
    logged = [Path(each["metadata-file"]).name for each in said["metadata-log"]]
    assert logged == ["v3.metadata.json", "v4.metadata.json"]
    assert {name for name in files_of(done) if name.endswith(".json")} == {*logged, "v5.metadata.json"}


def test_what_is_no_export_is_left_alone(make_table: MakeTable) -> None:
    """A damaged metadata file, or one of a table without snapshots or of another format version, is an error that names
    it."""
    table = filled(make_table, 1)
    path = Path(exported(table).metadata_location.removeprefix("file://"))
    for text in ("{", '{"format-version": 3}', '{"format-version": 4, "current-snapshot-id": 1}'):
        path.with_name("v2.metadata.json").write_text(text)
        with pytest.raises(ManifestError, match=r"v2\.metadata\.json"):
            exported(table)
        assert path.with_name("v2.metadata.json").read_text() == text


def test_an_export_that_is_overtaken_changes_nothing(make_table: MakeTable) -> None:
    """One that began with an earlier snapshot ends after one of a later: readers do not go back, nor does the tag."""
    table = filled(make_table, 2)
    newer: list[ExportResult] = []

    def overtake(*_: object) -> None:
        if not newer:
            table.add(events(random.Random(9), 40))
            newer.append(exported(table))

    done = export_iceberg(table.lake, table.name, FsspecStore(), ExportOptions(), on_progress=overtake)
    assert newer[0].number > done.number
    assert not done.is_changed
    assert done.held_by is None
    assert rows(opened(done)) == table.rows()
    [tag] = [tag for tag in table.handle.tags() if tag.name.startswith("iceberg-export")]
    assert tag.snapshot_id == newer[0].snapshot_id
    assert exported(table, snapshot=done.snapshot_id, no_hold=True).number == done.number
