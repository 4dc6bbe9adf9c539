"""Logs of others name files: what they may lead the service to where a table may not use every place."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as IcebergTable

from lamella.snapshot.deletes import decode_vector
from lamella.snapshot.errors import LocationRefused, ObjectNotFound
from lamella.snapshot.source import Reader, SourceState
from lamella.snapshot.storage import AllowedLocations, TableLocations
from lamella.snapshot.wire import ExternalSource
from support.delta_logs import actions, commit, inline_vector, protocol, with_deleted_rows
from support.touched_store import TouchedStore


def rows(start: int, count: int = 6) -> pa.Table:
    """``a`` counts on, ``p`` has two values."""
    values = range(start, start + count)
    return pa.table({"a": pa.array(values, pa.int64()), "p": [f"p {value % 2}" for value in values]})


class Lake:
    """Places of a table: ``inside`` is allowed, ``outside`` is not."""

    def __init__(self, folder: Path) -> None:
        self.inside, self.outside = folder / "in side", folder / "outside"
        self.inside.mkdir()
        self.outside.mkdir()
        self.store = TouchedStore()
        self.locations = TableLocations(str(folder / "warehouse"), None, [str(self.inside)])

    def read(self, source: ExternalSource, locations: AllowedLocations | None = None) -> SourceState:
        """What the source is, by the rules."""
        return Reader(self.store).read(source, {}, self.locations if locations is None else locations)

    def delta(self, folder: Path) -> SourceState:
        """A Delta table, by the rules; nothing outside of it is asked of the store."""
        self.store.touched.clear()
        try:
            return self.read(ExternalSource(kind="delta", location=str(folder)))
        finally:
            assert all(touched.startswith(f"file://{folder}/_delta_log") for touched in self.store.touched)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Empty places."""
    return Lake(tmp_path)


def refused(state: SourceState) -> dict[str, str]:
    """The codes of the files that cannot be part of a table, by name."""
    return {Path(each.path).name: each.code for each in state.refused}


def test_a_delta_table_is_the_same_by_the_copy_of_its_log(lake: Lake) -> None:
    """Partitions, removals, checkpoints with commits behind them, odd names: nothing is lost on the way."""
    folder = lake.inside / "d elta"

    def check() -> None:
        source = ExternalSource(kind="delta", location=str(folder))
        assert lake.delta(folder) == Reader(lake.store).read(source, {})

    write_deltalake(folder, rows(0), partition_by=["p"])
    check()
    for at in range(1, 4):
        write_deltalake(folder, rows(10 * at), mode="append", partition_by=["p"])
    DeltaTable(folder).delete("a > 12 AND a < 22")
    check()
    DeltaTable(folder).create_checkpoint()
    check()
    write_deltalake(folder, rows(90), mode="append", partition_by=["p"])
    check()
    assert any("checkpoint" in touched for touched in lake.store.touched)
    assert not any(touched.endswith(f"{0:020}.json") for touched in lake.store.touched)


def test_deleted_rows_are_seen_in_commits_and_checkpoints(lake: Lake) -> None:
    """A file has its last vector, wherever the log has it."""
    folder = lake.inside / "t"
    write_deltalake(folder, rows(0))
    write_deltalake(folder, rows(10), mode="append")
    first, second = actions(folder, "add")
    vectors = [inline_vector([1]), inline_vector([1, 3]), inline_vector([5])]
    for add, vector in zip((first, first, second), vectors, strict=True):
        with_deleted_rows(folder, add, vector)

    def deleted() -> dict[str, list[int]]:
        files = {Path(file.location).name: file.vector for file in lake.delta(folder).files}
        return {name: decode_vector(vector or b"", 6, location="x").tolist() for name, vector in files.items()}

    assert deleted() == {first["path"]: [1, 3], second["path"]: [5]}
    DeltaTable(folder).create_checkpoint()
    assert deleted() == {first["path"]: [1, 3], second["path"]: [5]}
    assert [touched for touched in lake.store.touched if touched.endswith(".checkpoint.parquet")]
    assert not [touched for touched in lake.store.touched if touched.endswith(f"{1:020}.json")]


@pytest.mark.parametrize("where", ["file://{outside}/rows.bin", "s3://elsewhere/rows.bin"])
def test_a_list_of_deleted_rows_elsewhere_is_not_opened(lake: Lake, where: str) -> None:
    """It would fail to be read; that it is elsewhere is enough to refuse the file."""
    folder = lake.inside / "t"
    write_deltalake(folder, rows(0))
    (lake.outside / "rows.bin").write_bytes(b"no list of rows")
    add = actions(folder, "add")[0]
    vector = {
        "storageType": "p",
        "pathOrInlineDv": where.format(outside=lake.outside),
        "sizeInBytes": 9,
        "cardinality": 1,
    }
    remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1, "size": add["size"]}
    commit(
        folder,
        protocol("deletionVectors"),
        {"remove": remove},
        {"add": {**add, "deletionVector": {**vector, "offset": 1}}},
    )
    assert refused(lake.delta(folder)) == {add["path"]: "location_refused"}


@pytest.mark.parametrize(
    "where", ["file://{outside}/x.parquet", "../outside/x.parquet", "%2e%2e/outside/x.parquet", "s3://b/x"]
)
def test_a_file_that_a_delta_log_names_elsewhere_is_refused(lake: Lake, where: str) -> None:
    """It is told as refused by the rules; whether it is there is not looked at."""
    folder = lake.inside
    write_deltalake(folder, rows(0))
    add = actions(folder, "add")[0]
    commit(folder, {"add": {**add, "path": where.format(outside=lake.outside)}})
    state = lake.delta(folder)
    assert [Path(file.location).name for file in state.files] == [add["path"]]
    assert list(refused(state).values()) == ["location_refused"]


def v2_checkpoint(folder: Path, sidecar: str, size_bytes: int = 1) -> None:
    """A checkpoint of the newest version whose files stand in a sidecar."""
    log = folder / "_delta_log"
    version = DeltaTable(folder).version()
    known = [line for path in sorted(log.glob("*.json")) for line in map(json.loads, path.read_text().splitlines())]
    (meta,) = [line for line in known if "metaData" in line][-1:]
    named = {"sidecar": {"path": sidecar, "sizeInBytes": size_bytes, "modificationTime": 1}}
    lines: Sequence[dict[str, Any]] = [
        {"checkpointMetadata": {"version": version}},
        protocol("v2Checkpoint"),
        meta,
        named,
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (log / f"{version:020}.checkpoint.{uuid.uuid4()}.json").write_text(text)


def test_a_checkpoint_in_parts_is_read_by_its_sidecars(lake: Lake) -> None:
    """A sidecar in the log's own folder is copied too, and the table is the one that it was."""
    folder = lake.inside / "t"
    write_deltalake(folder, rows(0))
    write_deltalake(folder, rows(10), mode="append")
    files = {file.location for file in lake.delta(folder).files}
    DeltaTable(folder).create_checkpoint()
    log = folder / "_delta_log"
    (log / "_sidecars").mkdir()
    (classic,) = log.glob("*.checkpoint.parquet")
    adds = pq.read_table(classic).select(["add"])
    pq.write_table(adds.filter(adds["add"].is_valid()), log / "_sidecars" / "part-1.parquet")
    classic.unlink()
    (log / "_last_checkpoint").unlink()
    v2_checkpoint(folder, "part-1.parquet", (log / "_sidecars" / "part-1.parquet").stat().st_size)
    for commit_file in log.glob("*.json"):
        if "checkpoint" not in commit_file.name and commit_file.name != f"{1:020}.json":
            commit_file.unlink()
    assert {file.location for file in lake.delta(folder).files} == files
    assert any("_sidecars/part-1.parquet" in touched for touched in lake.store.touched)


@pytest.mark.parametrize(
    "sidecar",
    ["file://{outside}/x.parquet", "../../../outside/x.parquet", "../x.parquet", "%2e%2e/x.parquet", ".x.parquet"],
)
def test_a_part_of_a_log_that_lies_elsewhere_is_refused(lake: Lake, sidecar: str) -> None:
    """The library would open it; here nothing outside of the log's folder is opened, and the table is refused."""
    folder = lake.inside / "t"
    write_deltalake(folder, rows(0))
    pq.write_table(rows(0), lake.outside / "x.parquet")
    v2_checkpoint(folder, sidecar.format(outside=lake.outside))
    with pytest.raises(LocationRefused) as caught:
        lake.delta(folder)
    assert caught.value.details == {"location": f"file://{folder}"}


def test_a_delta_table_elsewhere_is_refused_and_one_that_is_not_there_is_missing(lake: Lake) -> None:
    """A place that is not allowed is refused alike, whatever is there."""
    write_deltalake(lake.outside / "t", rows(0))
    for name in ("t", "nothing"):
        with pytest.raises(LocationRefused):
            lake.delta(lake.outside / name)
        assert not lake.store.touched
    with pytest.raises(ObjectNotFound):
        lake.delta(lake.inside / "nothing")


@pytest.fixture
def iceberg(lake: Lake) -> IcebergTable:
    """An Iceberg table in the allowed place, of two snapshots."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{lake.outside}/catalog.db", warehouse=f"file://{lake.inside}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=rows(0).schema)
    table.append(rows(0))
    table.append(rows(10))
    return table


def iceberg_source(location: object) -> ExternalSource:
    """The table with this metadata file."""
    return ExternalSource(kind="iceberg", location=str(location))


def changed_metadata(table: IcebergTable, **members: Any) -> Path:
    """Another metadata file beside the table's own, with some members changed."""
    own = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(own.read_text())
    metadata.update(members)
    changed = own.with_name(f"{uuid.uuid4()}.metadata.json")
    changed.write_text(json.dumps(metadata))
    return changed


def test_an_iceberg_table_is_the_same_with_and_without_rules(lake: Lake, iceberg: IcebergTable) -> None:
    """Where all of it lies in allowed places, rules change nothing."""
    source = iceberg_source(iceberg.metadata_location)
    state = lake.read(source)
    assert state == Reader(lake.store).read(source, {})
    assert len(state.files) == 2


def test_a_file_that_an_iceberg_table_names_elsewhere_is_refused(lake: Lake, iceberg: IcebergTable) -> None:
    """It is told as refused by the rules, the others stay."""
    pq.write_table(rows(50), lake.outside / "x.parquet")
    iceberg.add_files([f"file://{lake.outside}/x.parquet"])
    state = lake.read(iceberg_source(iceberg.metadata_location))
    assert refused(state) == {"x.parquet": "location_refused"}
    assert len(state.files) == 2


def test_lists_and_manifests_elsewhere_are_not_opened(lake: Lake, iceberg: IcebergTable) -> None:
    """They are copies of the table's own, so that opening them would succeed; even one that was read before is not."""
    snapshots = json.loads(Path(iceberg.metadata_location.removeprefix("file://")).read_text())["snapshots"]
    own = Path(snapshots[-1]["manifest-list"].removeprefix("file://"))
    copied = shutil.copy(own, lake.outside / own.name)
    snapshots[-1]["manifest-list"] = f"file://{copied}"
    named_elsewhere = iceberg_source(changed_metadata(iceberg, snapshots=snapshots))
    assert len(Reader(lake.store).read(named_elsewhere, {}).files) == 2
    with pytest.raises(LocationRefused) as caught:
        lake.read(named_elsewhere)
    assert caught.value.details == {"location": f"file://{copied}"}

    folder = Path(iceberg.location().removeprefix("file://"))
    only_list = TableLocations(str(lake.outside / "w"), None, [str(folder / "data"), str(own.parent)])
    assert len(lake.read(iceberg_source(iceberg.metadata_location), only_list).files) == 2
    moved = lake.inside / "moved"
    moved.mkdir()
    snapshots[-1]["manifest-list"] = f"file://{shutil.copy(own, moved / own.name)}"
    metadata = shutil.move(changed_metadata(iceberg, snapshots=snapshots), moved / "v1.metadata.json")
    with pytest.raises(LocationRefused) as caught:
        lake.read(iceberg_source(metadata), TableLocations(str(lake.outside / "w"), None, [str(moved)]))
    assert str(folder) in caught.value.details["location"]


def test_the_properties_of_an_iceberg_table_do_not_say_how_its_files_are_opened(
    lake: Lake, iceberg: IcebergTable
) -> None:
    """Who writes a table could else have a module loaded, or requests that we signed sent to a place of theirs."""
    source = changed_metadata(
        iceberg,
        properties={"py-io-impl": "antigravity.FileIO", "s3.endpoint": "http://127.0.0.1:1", "warehouse": "s3://x"},
    )
    assert len(lake.read(iceberg_source(source)).files) == 2


def test_an_iceberg_table_elsewhere_is_refused(lake: Lake, iceberg: IcebergTable) -> None:
    """By its metadata file, and by the folder of its hint; nothing is asked of the store."""
    outside = shutil.copytree(iceberg.location().removeprefix("file://"), lake.outside / "t")
    name = Path(iceberg.metadata_location).name
    for location in (outside, outside / "metadata" / name, f"{lake.inside}/../outside/t/metadata/{name}"):
        with pytest.raises(LocationRefused):
            lake.read(iceberg_source(location))
    assert not lake.store.touched


def test_a_directory_elsewhere_is_refused(lake: Lake) -> None:
    """A folder, a glob that begins in an allowed place's parent, and a folder around the warehouse."""
    for location in (lake.outside, f"{lake.inside.parent}/*side", f"{lake.inside}/../outside", lake.inside.parent):
        with pytest.raises(LocationRefused):
            lake.read(ExternalSource(kind="directory", location=str(location)))
    assert not lake.store.touched
    pq.write_table(rows(0), lake.inside / "x.parquet")
    assert len(lake.read(ExternalSource(kind="directory", location=f"{lake.inside}/*")).files) == 1
