"""pyiceberg plans scans of partitioned tables that clients wrote by the service: what its form of partitions cannot say
is left out or refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import RESTError
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, NestedField, StringType

from lamella.client.http import Lamella

ROWS = pa.table(
    {"id": pa.array([1, 2, 3, 4], pa.int64()), "part": ["a", "a", None, "b"], "other": pa.array([1, 2, 1, None])}
)


def make(catalog: Catalog, name: str, *columns: str) -> Table:
    """A table with the rows, partitioned by columns."""
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "part", StringType()), NestedField(3, "other", LongType())
    )
    ids = [schema.find_field(each).field_id for each in columns]
    fields = [PartitionField(each, 1_000 + each, IdentityTransform(), f"p{each}") for each in ids]
    catalog.create_namespace_if_not_exists("parts")
    table = catalog.create_table(f"parts.{name}", schema, partition_spec=PartitionSpec(*fields))
    table.append(ROWS)
    return table


def file_of_ids(table: Table, path: Path, ids: list[int], partition: Record) -> DataFile:
    """A new file with ids only: the other columns are in its partition."""
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}, schema=pa.schema([field])), path)
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=len(ids),
        file_size_in_bytes=path.stat().st_size,
    )
    made.spec_id = table.spec().spec_id
    return made


def add_files(table: Table, files: list[DataFile]) -> None:
    """Add files in one snapshot."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for each in files:
            append.append_data_file(each)


def ids(table: Table, filter: str = "true") -> list[int]:
    """The rows that a scan finds."""
    chosen: dict[str, Any] = {} if filter == "true" else {"row_filter": filter}
    return sorted(table.scan(**chosen).to_arrow()["id"].to_pylist())


def test_a_column_that_an_old_partition_spec_has_may_be_dropped(catalog: Catalog) -> None:
    """The files with that spec are planned with the values that they have."""
    table = make(catalog, "dropped", "part", "other")
    with table.update_spec() as change:
        change.remove_field("p2")
    with table.update_schema() as columns:
        columns.delete_column("part")
    assert len(list(table.scan().plan_files())) == 4
    assert ids(table) == [1, 2, 3, 4]
    assert ids(table, "other = 1") == [1, 3]


def test_files_with_a_null_in_their_partition_are_read(catalog: Catalog, rest_url: str) -> None:
    """pyiceberg 0.12 refuses a plan with such a value: it gets an empty partition, and other clients get the value."""
    table = make(catalog, "nulls", "part")
    assert ids(table) == [1, 2, 3, 4]
    assert ids(table, "part IS NULL") == [3]
    table.append(pa.table({"id": pa.array([5, 6], pa.int64()), "part": pa.nulls(2, pa.string())}))
    table.delete("id = 3 OR id = 5")  # a whole file, and one with other rows
    assert ids(table, "part IS NULL") == [6]
    planned = httpx2.post(f"{rest_url}/iceberg/v1/namespaces/parts/tables/nulls/plan", json={}).json()
    found = [each["data-file"]["partition"] for each in planned["file-scan-tasks"]]
    assert sorted(found, key=str) == [["a"], ["b"], [None]]
    given = {"user-agent": "PyIceberg/0.12.0"}
    planned = httpx2.post(
        f"{rest_url}/iceberg/v1/namespaces/parts/tables/nulls/plan", json={}, headers=given, timeout=60
    ).json()
    assert [] in [each["data-file"]["partition"] for each in planned["file-scan-tasks"]]


def test_a_client_may_plan_tables_of_clients_by_itself(rest_url: str) -> None:
    """A property of the catalog says so."""
    own = load_catalog("lake", type="rest", uri=f"{rest_url}/iceberg", **{"scan-planning-mode": "client"})
    table = make(own, "alone", "part")
    assert not own.supports_server_side_planning()
    assert ids(table, "part IS NULL") == [3]
    table.append(ROWS)
    table.delete("id = 3")
    assert ids(table) == [1, 1, 2, 2, 4, 4]


def test_dates_that_are_only_in_partitions_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    """pyiceberg would take them for text, which equals no date, and miss rows; a table without such files is read."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", DateType()))
    spec = PartitionSpec(PartitionField(2, 1_000, IdentityTransform(), "day"))
    catalog.create_namespace_if_not_exists("parts")
    table = catalog.create_table("parts.folders", schema, partition_spec=spec)
    table.append(pa.table({"id": pa.array([1], pa.int64()), "day": [dt.date(2024, 1, 1)]}))
    assert ids(table, "day = '2024-01-01'") == [1]
    day = Record((dt.date(2024, 1, 2) - dt.date(1970, 1, 1)).days)
    add_files(table, [file_of_ids(table, tmp_path / "day=2024-01-02.parquet", [2], day)])
    with pytest.raises(RESTError, match="values of folders in column 'day'"):
        ids(table)


def test_values_that_are_only_in_a_partition_with_a_null_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    """The empty partition that pyiceberg gets instead would lose them."""
    table = make(catalog, "halves", "part", "other")
    assert ids(table, "other = 1") == [1, 3]
    add_files(table, [file_of_ids(table, tmp_path / "half.parquet", [7], Record(None, 5))])
    with pytest.raises(RESTError, match="pyiceberg reads no plan with a null in a partition"):
        ids(table, "other = 5")


def test_dates_in_partitions_of_a_snapshot_that_lamella_cannot_read_are_refused(
    catalog: Catalog, lake: Lamella, tmp_path: Path
) -> None:
    """Nothing is known of its files, so pyiceberg might take a date for text and miss rows."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", DateType()))
    spec = PartitionSpec(PartitionField(2, 1_000, IdentityTransform(), "day"))
    catalog.create_namespace_if_not_exists("parts")
    table = catalog.create_table("parts.unread", schema, partition_spec=spec)
    day = (dt.date(2024, 1, 2) - dt.date(1970, 1, 1)).days
    table.append(pa.table({"id": pa.array([1], pa.int64()), "day": [dt.date(2024, 1, 1)]}))
    assert ids(table, "day = '2024-01-01'") == [1]
    made = [
        file_of_ids(table, tmp_path / f"{name}.parquet", [number], Record(day))
        for number, name in ((3, "day"), (4, "gone"))
    ]
    (tmp_path / "gone.parquet").unlink()
    add_files(table, made)
    assert lake.table("parts.unread").info().properties["lamella.source.unread"]
    with pytest.raises(RESTError, match="values of folders in column 'day'"):
        ids(table, "day = '2024-01-02'")
