"""Iceberg tables as sources, written by pyiceberg with a SQLite catalog."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.deletes import VectorFile
from lamella.snapshot.errors import BlocksRefused, InvalidRequest, InvalidSchema, StoreError
from lamella.snapshot.source.iceberg import IcebergReader
from lamella.snapshot.storage import AllLocations, FsspecStore
from lamella.snapshot.wire import ExternalSource
from support.sources import same_as

Make = Callable[..., IcebergTable]


@pytest.fixture
def make(catalog_folder: Path, name: str) -> Make:
    """Makes Iceberg tables of a schema in the catalog that the service knows."""
    uri = f"sqlite:///{catalog_folder}/catalog.db"
    catalog = SqlCatalog("prod", uri=uri, warehouse=f"file://{catalog_folder}/warehouse")
    catalog.create_namespace_if_not_exists("n")

    def made(schema: Any, suffix: str = "", **options: Any) -> IcebergTable:
        return catalog.create_table(f"n.{name.partition('.')[2]}{suffix}", schema=schema, **options)

    return made


def rows(start: int, count: int = 6) -> pa.Table:
    """``a`` counts on, ``s`` has nulls."""
    texts = [None if i % 4 == 3 else f"s{i:04}" for i in range(start, start + count)]
    return pa.table({"a": pa.array(range(start, start + count), pa.int64()), "s": texts})


def follow(lake: Lamella, name: str, source: IcebergTable) -> Table:
    """A table that follows an Iceberg table by its name in the catalog."""
    identifier = ".".join(source.name())
    lake.create_external(name, {"kind": "iceberg", "catalog": "prod", "table": identifier})
    return lake.table(name)


def own(source: IcebergTable) -> pa.Table:
    """The rows as pyiceberg reads them."""
    return source.refresh().scan().to_arrow()


def test_an_iceberg_table_is_followed_through_its_history(lake: Lamella, name: str, make: Make) -> None:
    """Appends, deletes by rewriting and overwriting; an expired or empty table is followed too."""
    source = make(rows(0).schema)
    table = follow(lake, name, source)
    assert not table.refresh().changed
    for at in range(3):
        source.append(rows(10 * at))
    answer = table.refresh()
    assert (answer.added, answer.removed) == (3, 0)
    same_as(table, own(source))
    source.delete("a = 3 or a >= 20")
    answer = table.refresh()
    assert (answer.added, answer.removed, answer.unchanged) == (1, 2, 1)
    same_as(table, own(source))
    source.overwrite(rows(100))
    table.refresh()
    same_as(table, own(source))
    assert not table.refresh().changed
    assert table.refresh("full").unchanged == 1
    source.delete("true")
    assert table.refresh().removed == 1
    assert table.scan().count() == 0
    assert table.verify().is_clean


def test_a_table_without_its_catalog_is_followed_by_metadata_files(lake: Lamella, name: str, make: Make) -> None:
    """Which one is current only the user knows then; the new one is remembered, and another table's is refused."""
    source = make(rows(0).schema)
    source.append(rows(0))
    lake.create_external(name, {"kind": "iceberg", "location": source.metadata_location})
    table = lake.table(name)
    assert table.refresh().added == 1
    source.append(rows(10))
    assert not table.refresh().changed
    assert table.refresh(location=source.metadata_location).added == 1
    same_as(table, own(source))
    assert not table.refresh().changed
    with pytest.raises(InvalidRequest, match="but the table was created from"):
        table.refresh(location=make(rows(0).schema, "other").metadata_location)
    folder = source.metadata_location.partition("/metadata/")[0]
    with pytest.raises(InvalidRequest, match="only the catalog knows"):
        lake.create_external(f"{name}f", {"kind": "iceberg", "location": folder})
    with pytest.raises(InvalidRequest, match="has no Iceberg catalog"):
        lake.create_external(f"{name}g", {"kind": "iceberg", "catalog": "other", "table": "n.t"})


@pytest.mark.parametrize("text", ["", "no", "{}", '{"format-version": 2}', '{"format-version": 9}'])
def test_damaged_metadata_is_an_error_that_names_it(lake: Lamella, name: str, tmp_path: Path, text: str) -> None:
    """Whatever stands in the file, the answer says that it cannot be read."""
    path = tmp_path / "v1.metadata.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"v1\.metadata\.json cannot be read"):
        lake.create_external(name, {"kind": "iceberg", "location": f"file://{path}"})


def test_a_source_that_is_none_is_refused_before_it_is_sent(lake: Lamella, name: str) -> None:
    """With an error of ours, as from everywhere else."""
    for source in ({"kind": "hudi"}, {}, {"kind": "delta", "place": "x"}):
        with pytest.raises(InvalidRequest, match="source"):
            lake.create_external(name, source)


def test_a_table_of_a_file_system_is_found_by_its_hint(lake: Lamella, name: str, make: Make) -> None:
    """The hint may lag behind: versions that follow it count."""
    source = make(rows(0).schema)
    folder = Path(source.metadata_location.removeprefix("file://")).parent
    for version in (1, 2):
        source.append(rows(10 * version))
        made = Path(source.metadata_location.removeprefix("file://"))
        (folder / f"v{version}.metadata.json").write_bytes(made.read_bytes())
    (folder / "version-hint.text").write_text("1")
    lake.create_external(name, {"kind": "iceberg", "location": str(folder.parent)})
    table = lake.table(name)
    assert table.refresh().added == 2
    same_as(table, own(source))


def test_columns_are_followed_by_their_ids(lake: Lamella, name: str, make: Make) -> None:
    """Renamed, dropped, widened, reused and nested columns: old files are read as Iceberg reads them."""
    fields = [
        NestedField(1, "a", IntegerType(), required=False),
        NestedField(2, "s", StringType(), required=False),
        NestedField(3, "st", StructType(NestedField(4, "x", LongType(), required=False)), required=False),
    ]
    source = make(Schema(*fields))

    def put(**columns: list[Any]) -> None:
        current = source.refresh().schema().as_arrow()
        source.append(pa.table(columns, schema=current))

    put(a=[1, 2, None], s=["x", None, "z"], st=[{"x": 1}, None, {"x": 3}])
    with source.update_schema() as update:
        update.rename_column("s", "t")
        update.rename_column("st.x", "y")
    with source.update_schema() as update:
        update.add_column("s", LongType())
        update.add_column(("st", "z"), StringType())
        update.update_column("a", LongType())
    put(a=[2**40], t=["new"], st=[{"y": 5, "z": "deep"}], s=[7])
    early = follow(lake, name, source)  # made when the table has a history already
    early.refresh()
    same_rows(early, source)

    with source.update_schema() as update:
        update.delete_column("s")
        update.move_first("t")
    with source.update_schema() as update:
        update.add_column("s", StringType())
    put(t=["last"], a=[4], st=[None], s=["text now"])
    answer = early.refresh()
    assert (answer.added, answer.unchanged) == (1, 2)
    assert answer.schema_changes >= 3
    same_rows(early, source)
    assert early.scan("s = 'text now'").count() == 1
    assert early.scan("s IS NULL AND st.y >= 1").count() == 3
    second = follow(lake, f"{name}late", source)
    second.refresh()
    same_rows(second, source)
    assert early.verify().is_clean
    assert not early.refresh().changed
    early.refresh("full")
    same_rows(early, source)


def test_initial_defaults_are_the_values_of_files_without_the_column(
    lake: Lamella, name: str, make: Make, tmp_path: Path
) -> None:
    """Of each type, also renamed and widened, and in a table that is followed later; filters and counts know them."""
    defaults: dict[str, tuple[IcebergType, Any]] = {
        "yes": (BooleanType(), True),
        "small": (IntegerType(), -5),
        "big": (LongType(), 2**60),
        "single": (FloatType(), 0.1),
        "double": (DoubleType(), 0.1),
        "price": (DecimalType(10, 2), "1.50"),
        "text": (StringType(), "a b é"),
        "day": (DateType(), "1969-12-31"),
        "clock": (TimeType(), "10:00:00.000500"),
        "at": (TimestampType(), "2020-01-02T03:04:05.000678"),
        "when": (TimestamptzType(), "2020-01-02T03:04:05.000678+00:00"),
        "key": (UUIDType(), "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        "raw": (BinaryType(), "00ff"),
        "three": (FixedType(3), "616263"),
    }
    source = make(Schema(NestedField(1, "id", LongType(), required=False)))
    source.append(pa.table({"id": [1, 2]}))
    versions = iter(range(1, 10))

    def published() -> tuple[str, pa.Table]:
        """The table in format version 3, which pyiceberg only reads: its location, and the rows that it reads."""
        metadata = json.loads(Path(source.refresh().metadata_location.removeprefix("file://")).read_bytes())
        for field in (field for schema in metadata["schemas"] for field in schema["fields"] if field["id"] > 1):
            field["initial-default"] = list(defaults.values())[field["id"] - 2][1]
        path = tmp_path / f"v{next(versions)}.metadata.json"
        path.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 100}))
        read = StaticTable.from_metadata(str(path)).scan().to_arrow()
        # Lamella's scan returns the bytes of a UUID.
        kinds = [pa.binary(16) if field.name == "key" else field.type for field in read.schema]
        return str(path), read.cast(pa.schema(list(zip(read.schema.names, kinds, strict=True))))

    lake.create_external(name, {"kind": "iceberg", "location": published()[0]})
    early = lake.table(name)
    early.refresh()
    with source.update_schema() as update:
        for column, (kind, _) in defaults.items():
            update.add_column(column, kind)
    source.append(pa.Table.from_pylist([{"id": 3, "small": 9}], schema=source.refresh().schema().as_arrow()))
    location, wanted = published()
    assert wanted["small"].to_pylist() == [9, -5, -5]
    lake.create_external(f"{name}late", {"kind": "iceberg", "location": location})
    second = lake.table(f"{name}late")
    for table in (early, second):
        table.refresh(location=location)
        same_as(table, wanted)
        assert table.scan("small = -5").count() == 2
        assert table.scan("price > 1.49 AND yes").count() == 2
        assert table.scan("day IS NULL").to_arrow()["id"].to_pylist() == [3]
        assert table.verify().is_clean
    with source.update_schema() as update:
        update.rename_column("small", "wide")
    with source.update_schema() as update:
        update.update_column("wide", LongType())
    location, wanted = published()
    for table in (early, second):
        table.refresh(location=location)
        same_as(table, wanted)
        assert table.scan("wide = -5").count() == 2
    with source.update_schema() as update:
        update.rename_column("wide", "w")
    defaults["small"] = (IntegerType(), -6)
    with pytest.raises(InvalidSchema, match="'w' had the default '-5' and now has '-6'"):
        early.refresh(location=published()[0])


def test_the_initial_default_of_a_struct_field_is_refused(lake: Lamella, name: str, make: Make, tmp_path: Path) -> None:
    """A table's columns have defaults at the top only."""
    inner = StructType(NestedField(2, "x", LongType(), required=False))
    source = make(Schema(NestedField(1, "st", inner, required=False)))
    metadata = json.loads(Path(source.metadata_location.removeprefix("file://")).read_bytes())
    metadata["schemas"][0]["fields"][0]["type"]["fields"][0]["initial-default"] = 5
    path = tmp_path / "v1.metadata.json"
    path.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 0}))
    with pytest.raises(InvalidSchema, match="'x' of a struct has an initial default"):
        lake.create_external(name, {"kind": "iceberg", "location": str(path)})


def same_rows(table: Table, source: IcebergTable) -> None:
    """The same columns in the same order, and the same rows."""
    wanted = own(source)
    found = table.scan().to_arrow()
    assert found.schema.names == wanted.schema.names
    assert sorted(found.to_pylist(), key=repr) == sorted(wanted.to_pylist(), key=repr)


def test_files_of_schemas_after_a_schema_that_is_current_again_are_followed(
    lake: Lamella, name: str, make: Make
) -> None:
    """A column that is added and dropped leaves the table with its first schema, and with files of another one."""
    source = make(rows(0).schema)
    source.append(rows(0))
    early = follow(lake, name, source)
    early.refresh()
    for column in ("b", "c"):
        with source.update_schema() as update:
            update.add_column(column, LongType())
        source.append(rows(10).append_column(column, pa.array(range(6), pa.int64())))
        with source.update_schema() as update:
            update.delete_column(column)
        assert source.refresh().schema().schema_id == 0
        source.append(rows(20))
        early.refresh()
        same_rows(early, source)
    second = follow(lake, f"{name}late", source)
    second.refresh()
    same_rows(second, source)
    with source.update_schema() as update:
        update.rename_column("s", "b")
    for table in (early, second):
        table.refresh()
        same_rows(table, source)
        assert not table.refresh().changed
        assert table.verify().is_clean


def test_names_that_are_swapped_are_followed(lake: Lamella, name: str, make: Make) -> None:
    """Two columns swap their names between two refreshes."""
    source = make(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    source.append(pa.table({"a": [1], "b": [2]}))
    table = follow(lake, name, source)
    table.refresh()
    for was, becomes in (("a", "c"), ("b", "a"), ("c", "b")):
        with source.update_schema() as update:
            update.rename_column(was, becomes)
    table.refresh()
    same_rows(table, source)
    assert table.scan("a = 2 AND b = 1").count() == 1


def test_a_refresh_after_a_rollback_follows_the_columns_again(lake: Lamella, name: str, make: Make) -> None:
    """A rollback takes back which columns of the source the table has, so that a refresh adds the later ones anew."""
    source = make(rows(0).schema)
    source.append(rows(0))
    table = follow(lake, name, source)
    first = table.refresh()
    with source.update_schema() as update:
        update.rename_column("s", "t")
        update.add_column("b", LongType())
    source.append(pa.table({"a": [100], "t": ["x"], "b": [20]}))
    second = table.refresh()
    table.rollback(first.snapshot_id)
    assert table.scan().count() == 6
    assert table.refresh().added == 1
    same_rows(table, source)
    assert table.scan("b = 20").count() == 1
    assert not table.refresh().changed
    with source.update_schema() as update:
        update.delete_column("b")
    table.refresh()
    same_rows(table, source)
    for snapshot in (second, first, second):
        table.rollback(snapshot.snapshot_id)
        table.refresh("full")
        same_rows(table, source)
    assert table.verify().is_clean


def test_identity_partitions_are_followed(lake: Lamella, name: str, make: Make) -> None:
    """Iceberg's writers keep identity columns in the files; for a file without one, the metadata has the value."""
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "a"))
    fields = (NestedField(1, "a", LongType(), required=False), NestedField(2, "s", StringType(), required=False))
    source = make(Schema(*fields), partition_spec=spec)
    source.append(rows(0))
    table = follow(lake, name, source)
    assert table.refresh().added == 6
    same_as(table, own(source))
    victim = next(task.file.file_path for task in source.scan().plan_files()).removeprefix("file://")
    contents = pq.read_table(victim)
    pq.write_table(contents.drop_columns(["a"]), victim)
    assert table.refresh("full").replaced == 1
    assert table.info().constants_count == 1
    same_as(table, own(source))


def test_a_double_that_only_the_metadata_has_is_refused(lake: Lamella, name: str, make: Make) -> None:
    """pyiceberg (0.12) reads it as a float, so 0.1 would become another number; null is read."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x"))
    fields = (NestedField(1, "a", LongType(), required=False), NestedField(2, "x", DoubleType(), required=False))
    source = make(Schema(*fields), partition_spec=spec)
    source.append(pa.table({"a": pa.array([1, 2], pa.int64()), "x": pa.array([0.1, None], pa.float64())}))
    for task in source.scan().plan_files():
        file = task.file.file_path.removeprefix("file://")
        pq.write_table(pq.read_table(file).drop_columns(["x"]), file)
    table = follow(lake, name, source)
    answer = table.refresh(strict=False)
    assert (answer.added, [refused.code for refused in answer.refused]) == (1, ["invalid_request"])
    assert "read as floats" in answer.refused[0].reason
    assert table.scan().to_arrow().to_pylist() == [{"a": 2, "x": None}]


def position_deletes(path: Path, *deleted: tuple[str, int]) -> Path:
    """A file of position deletes."""
    paths, positions = [each for each, _ in deleted], pa.array([position for _, position in deleted], pa.int64())
    pq.write_table(pa.table({"file_path": pa.array(paths, pa.string()), "pos": positions}), path)
    return path


def test_rows_of_position_deletes_are_left_out(lake: Lamella, name: str, make: Make, tmp_path: Path) -> None:
    """As pyiceberg leaves them out; an update of the deletes replaces the block, a file without rows has none."""
    source = make(rows(0).schema)
    source.append(rows(0))
    source.append(rows(10))
    second, first = [task.file.file_path for task in source.scan().plan_files()]

    def refreshed(number: int, *deleted: tuple[str, int]) -> tuple[Any, pa.Table]:
        metadata = with_delete_manifest(source, position_deletes(tmp_path / f"d{number}", *deleted))
        if number == 0:
            lake.create_external(name, {"kind": "iceberg", "location": metadata})
        return lake.table(name).refresh(location=metadata if number else None), StaticTable.from_metadata(metadata)

    answer, then = refreshed(0, (first, 0), (second, 5), (first, 3), (first, 0), ("file:///of/no/table", 1))
    assert (answer.added, answer.refused) == (2, ())
    table = lake.table(name)
    assert (table.info().live_row_count, table.info().deletes_count) == (9, 2)
    same_as(table, then.scan().to_arrow())
    assert not table.refresh().changed
    answer, then = refreshed(1, (first, 1), (second, 5), (first, 3))
    assert (answer.replaced, answer.unchanged) == (1, 1)
    same_as(table, then.scan().to_arrow())
    answer, then = refreshed(2, *((first, position) for position in range(6)))
    assert (answer.removed, answer.replaced) == (1, 1)
    same_as(table, then.scan().to_arrow())
    assert table.info().required_features == ()
    assert table.verify(deep=True, sample=1.0).findings == ()


def test_deletion_vectors_are_used_where_they_are(lake: Lamella, name: str, make: Make, tmp_path: Path) -> None:
    """In Puffin files; a data file with a vector ignores position deletes."""
    source = make(rows(0).schema)
    source.append(rows(0))
    (path,) = [task.file.file_path for task in source.scan().plan_files()]
    file = VectorFile(f"file://{tmp_path}/v.puffin")
    file.add("file:///other.parquet", np.array([0]))
    entry = file.add(path, np.array([1, 4]))
    (tmp_path / "v.puffin").write_bytes(file.finished())
    vector: dict[str, Any] = {
        "referenced": path,
        "format": FileFormat.PUFFIN,
        "position": (entry.offset, entry.length),
        "rows": 2,
    }
    old = with_delete_manifest(source, position_deletes(tmp_path / "old", (path, 0)))
    metadata = with_delete_manifest(source, tmp_path / "v.puffin", before=old, **vector)
    lake.create_external(name, {"kind": "iceberg", "location": metadata})
    table = lake.table(name)
    table.refresh()
    wanted = rows(0).filter(pa.array([value not in (1, 4) for value in range(6)]))
    same_as(table, wanted)
    (segment,) = table.snapshot(table.info().snapshot_id).segments
    (block,) = table.segment(segment.segment_id, reader_features=["deletes"]).blocks
    assert block.deletes == (entry,)
    (tmp_path / "w.puffin").write_bytes(file.finished())
    wrong = with_delete_manifest(source, tmp_path / "w.puffin", **{**vector, "rows": 3})
    with pytest.raises(BlocksRefused, match="has 2 positions, not 3"):
        table.refresh(location=wrong)


@pytest.mark.parametrize("data", [b"", b"PAR1 not", None])
def test_deletes_that_cannot_be_read_are_refused(
    lake: Lamella, name: str, make: Make, tmp_path: Path, data: bytes | None
) -> None:
    """With each data file that they may apply to; a lenient refresh leaves these out."""
    source = make(rows(0).schema)
    source.append(rows(0))
    (deleting,) = [task.file.file_path for task in source.scan().plan_files()]
    path = position_deletes(tmp_path / "deletes.parquet", (deleting, 0))
    metadata = with_delete_manifest(source, path)
    if data is None:
        pq.write_table(pa.table({"file_path": [deleting], "pos": pa.array([None], pa.int64())}), path)
    else:
        path.write_bytes(data)
    lake.create_external(name, {"kind": "iceberg", "location": metadata})
    with pytest.raises(BlocksRefused) as caught:
        lake.table(name).refresh()
    assert [each["path"] for each in caught.value.details["refused"]] == [deleting]
    assert lake.table(name).refresh(strict=False).added == 0
    assert lake.table(name).scan().count() == 0


def test_equality_deletes_are_refused(lake: Lamella, name: str, make: Make, tmp_path: Path) -> None:
    """With the data files that they may apply to."""
    source = make(rows(0).schema)
    source.append(rows(0))
    path = tmp_path / "deletes.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    metadata = with_delete_manifest(source, path, equality=True, sequence_number=2)
    lake.create_external(name, {"kind": "iceberg", "location": metadata})
    with pytest.raises(BlocksRefused, match="equality deletes"):
        lake.table(name).refresh()
    assert lake.table(name).refresh(strict=False).added == 0
    source.append(rows(10))
    newer = with_delete_manifest(source, path, equality=True, sequence_number=2)
    assert lake.table(name).refresh(location=newer, strict=False).added == 1
    same_as(lake.table(name), rows(10))


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"spec_id": 1, "partition": ["x"], "sequence_number": 2}, {"x1", "x2"}),
        ({"spec_id": 1, "partition": ["x"], "sequence_number": 1}, {"x1"}),
        ({"spec_id": 1, "partition": ["x"], "sequence_number": 2, "equality": True}, {"x1"}),
        ({"spec_id": 1, "partition": ["z"], "sequence_number": 9}, set()),
        ({"spec_id": 0, "sequence_number": 9}, {"3"}),
        ({"spec_id": 0, "sequence_number": 3, "equality": True}, {"x1", "y1", "x2", "y2"}),
        ({"spec_id": 0, "sequence_number": 9, "referenced": "y2"}, {"y2"}),
        ({"spec_id": 0, "sequence_number": 9, "referenced": "y2", "format": FileFormat.PUFFIN}, {"y2"}),
    ],
)
def test_a_delete_file_refuses_the_data_files_that_it_may_apply_to(
    make: Make, tmp_path: Path, options: dict[str, Any], refused: set[str]
) -> None:
    """By sequence number and partition, or the one that it names; equality deletes without partition apply to all."""
    source = make(pa.schema([("p", pa.string()), ("a", pa.int64())]))
    with source.update_spec() as update:
        update.add_identity("p")
    for _ in range(2):
        source.append(pa.table({"p": ["x", "y"], "a": [1, 2]}))
    with source.update_spec() as update:
        update.remove_field("p")
    source.append(pa.table({"p": ["x"], "a": [3]}))
    entries = source.refresh().inspect.entries().to_pylist()
    names = {
        each["data_file"]["file_path"]: f"{each['data_file']['partition']['p'] or ''}{each['sequence_number']}"
        for each in entries
    }
    assert sorted(names.values()) == ["3", "x1", "x2", "y1", "y2"]
    if "referenced" in options:
        by_name = {text: path for path, text in names.items()}
        options = {**options, "referenced": by_name[options["referenced"]]}
    path = tmp_path / "deletes"
    path.touch()
    metadata = with_delete_manifest(source, path, **options)
    reader = IcebergReader(FsspecStore(), {}, {})
    state = reader.read(ExternalSource(kind="iceberg", location=metadata), AllLocations())
    assert {names[each.path] for each in state.refused} == refused
    assert {names[file.location] for file in state.files} == {*names.values()} - refused
    assert all(str(path) in each.reason for each in state.refused)


def with_delete_manifest(
    source: IcebergTable,
    path: Path,
    *,
    spec_id: int = 0,
    partition: Sequence[Any] = (),
    sequence_number: int | None = None,
    equality: bool = False,
    referenced: str | None = None,
    format: FileFormat = FileFormat.PARQUET,
    position: tuple[int | None, int | None] = (None, None),
    rows: int = 1,
    before: str | None = None,
) -> str:
    """Metadata of the table with one more manifest, that of a delete file; ``sequence_number``: None is the newest.

    ``position``: offset and length of a deletion vector. ``before``: the metadata to extend; None: the table's own.
    """
    io = PyArrowFileIO()
    current = before or source.metadata_location
    snapshot = StaticTable.from_metadata(current).current_snapshot()
    assert snapshot is not None
    file = DataFile.from_args(
        3,
        content=DataFileContent.EQUALITY_DELETES if equality else DataFileContent.POSITION_DELETES,
        file_path=f"file://{path}",
        file_format=format,
        partition=Record(*partition),
        record_count=rows,
        file_size_in_bytes=path.stat().st_size,
        equality_ids=[1] if equality else None,
        referenced_data_file=referenced,
        content_offset=position[0],
        content_size_in_bytes=position[1],
    )
    location = f"file://{path}.{snapshot.sequence_number}.avro"
    spec = source.specs()[spec_id]
    writer = write_manifest(2, spec, source.schema(), io.new_output(location), snapshot.snapshot_id, "null")
    columns = writer._with_partition(3)
    # The library writes no delete manifests, and no ``referenced_data_file``.
    vars(writer).update(content=lambda: ManifestContent.DELETES, _with_partition=lambda _: columns)
    status = ManifestEntryStatus.ADDED if sequence_number is None else ManifestEntryStatus.EXISTING
    with writer:
        writer.add_entry(
            ManifestEntry.from_args(
                status=status, snapshot_id=snapshot.snapshot_id, sequence_number=sequence_number, data_file=file
            )
        )
    manifest = writer.to_manifest_file()
    manifests = [manifest, *snapshot.manifests(io)]
    listed = f"file://{path}.{snapshot.sequence_number}.list.avro"
    with write_manifest_list(
        2, io.new_output(listed), snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.sequence_number, "null"
    ) as written:
        written.add_manifests(manifests)
    raw = json.loads(Path(current.removeprefix("file://")).read_bytes())
    raw["snapshots"][-1]["manifest-list"] = listed
    metadata = path.with_name(f"0000{snapshot.sequence_number}-{path.name}.metadata.json")
    metadata.write_text(json.dumps(raw))
    return f"file://{metadata}"


def test_files_without_field_ids_are_refused(lake: Lamella, name: str, make: Make, tmp_path: Path) -> None:
    """They are known by names that may have been others' since."""
    source = make(rows(0).schema)
    pq.write_table(rows(0), tmp_path / "plain.parquet")
    source.add_files([f"file://{tmp_path}/plain.parquet"])
    table = follow(lake, name, source)
    with pytest.raises(BlocksRefused, match="no field ids"):
        table.refresh()


def test_a_type_that_cannot_be_followed_is_refused(lake: Lamella, name: str, make: Make) -> None:
    """A column that is dropped and undone by an older schema comes back with its values, which a table cannot say."""
    source = make(rows(0).schema)
    source.append(rows(0))
    table = follow(lake, name, source)
    table.refresh()
    with source.update_schema() as update:
        update.delete_column("s")
    table.refresh()
    assert [column.name for column in table.schema().schema.columns] == ["a"]
    raw = json.loads(Path(source.metadata_location.removeprefix("file://")).read_bytes())
    raw["current-schema-id"] = 0
    back = Path(source.metadata_location.removeprefix("file://")).with_name("00099-back.metadata.json")
    back.write_text(json.dumps(raw))
    lake.create_external(f"{name}b", {"kind": "iceberg", "location": source.metadata_location})
    lake.table(f"{name}b").refresh()
    with pytest.raises(InvalidSchema, match="added again"):
        lake.table(f"{name}b").refresh(location=f"file://{back}")


@pytest.mark.parametrize("ending", [".gz.metadata.json", ".metadata.json.gz"])
@pytest.mark.parametrize("by_hint", [False, True])
def test_compressed_metadata_is_read(
    lake: Lamella, name: str, make: Make, tmp_path: Path, ending: str, by_hint: bool
) -> None:
    """As newer and older writers name it, given as it is or found by the hint of a folder."""
    source = make(rows(0).schema)
    source.append(rows(0))
    data = Path(source.metadata_location.removeprefix("file://")).read_bytes()
    (tmp_path / "metadata").mkdir()
    path = tmp_path / "metadata" / f"v7{ending}"
    path.write_bytes(gzip.compress(data))
    (tmp_path / "metadata" / "version-hint.text").write_text("6")
    (tmp_path / "metadata" / "v6.metadata.json").write_bytes(data)
    lake.create_external(name, {"kind": "iceberg", "location": str(tmp_path if by_hint else path)})
    table = lake.table(name)
    assert table.refresh().source_version.startswith(f"v7{ending}#")  # type: ignore[union-attr]  # there is one
    same_as(table, rows(0))


def test_relative_paths_in_metadata_are_refused(lake: Lamella, name: str, make: Make, tmp_path: Path) -> None:
    """They would be looked for where the service happens to run."""
    source = make(rows(0).schema)
    source.append(rows(0))
    raw = json.loads(Path(source.metadata_location.removeprefix("file://")).read_bytes())
    raw["snapshots"][-1]["manifest-list"] = "metadata/snap.avro"
    path = tmp_path / "x.metadata.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(InvalidRequest, match=r"metadata/snap\.avro"):
        lake.create_external(name, {"kind": "iceberg", "location": str(path)})


def test_columns_whose_names_differ_only_in_case_are_refused(lake: Lamella, name: str, make: Make) -> None:
    """Spark would not tell them apart; the error names one."""
    source = make(pa.schema([("a", pa.int64()), ("A", pa.string())]))
    with pytest.raises(InvalidSchema, match=r"(?i)'a'"):
        follow(lake, name, source)


def test_columns_of_row_lineage_are_no_columns_of_the_table(
    lake: Lamella, name: str, make: Make, tmp_path: Path
) -> None:
    """Writers of format version 3 add them to files which have rows of other files."""
    source = make(rows(0).schema)
    source.append(rows(0))
    (path,) = [Path(task.file.file_path.removeprefix("file://")) for task in source.scan().plan_files()]
    written = pq.read_table(path)
    for column, number in (("_row_id", 2147483540), ("_last_updated_sequence_number", 2147483539)):
        field = pa.field(column, pa.int64(), metadata={"PARQUET:field_id": str(number)})
        written = written.append_column(field, pa.array(range(6), pa.int64()))
    metadata = json.loads(Path(source.metadata_location.removeprefix("file://")).read_bytes())
    pq.write_table(written, path)
    older = tmp_path / "v2.metadata.json"
    older.write_text(json.dumps(metadata))
    lake.create_external(f"{name}o", {"kind": "iceberg", "location": str(older)})
    with pytest.raises(BlocksRefused):
        lake.table(f"{name}o").refresh()
    newer = tmp_path / "v3.metadata.json"
    newer.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 6}))
    lake.create_external(name, {"kind": "iceberg", "location": str(newer)})
    lake.table(name).refresh()
    assert lake.table(name).info().schema.ignored_columns == ("_last_updated_sequence_number", "_row_id")
    same_as(lake.table(name), rows(0))
