"""Lamella changes the columns of tables of Iceberg clients and rolls them back; both sides have the same."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.sorting import SortDirection
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import FloatType, IntegerType, ListType, LongType, NestedField, StringType, StructType

from lamella.client.http import Lamella
from lamella.client.http import Table as LamellaTable
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.delete import delete_rows
from lamella.client.rewrite.engine import SerialEngine
from lamella.snapshot.errors import CommitConflict, InvalidRequest, InvalidSchema, SchemaConflict, UnknownColumn
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.evolution import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetDefault,
    SetDoc,
    SetNullable,
    WidenColumn,
)
from lamella.snapshot.wire import SchemaUpdate

INNER = StructType(NestedField(5, "x", FloatType()), NestedField(6, "y", StringType()))
COLUMNS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "n", IntegerType()),
    NestedField(3, "name", StringType(), doc="what it is called"),
    NestedField(4, "s", INNER),
)
ROWS = [{"id": at, "n": at * 2, "name": f"n{at}", "s": {"x": 0.5, "y": "y"}} for at in range(4)]


@pytest.fixture
def table(catalog: Catalog, lake: Lamella) -> Table:
    """A table of a client, with a struct; some rows are those of a client, some of Lamella."""
    namespace = f"c{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(namespace)
    made = catalog.create_table(f"{namespace}.t", schema=COLUMNS)
    made.append(pa.Table.from_pylist(ROWS[:2], schema=made.schema().as_arrow()))
    lake.table(f"{namespace}.t").append(ROWS[2:])
    return made


def name_of(table: Table) -> str:
    """Its name."""
    return ".".join(table.name())


def ids_of(columns: tuple[Column, ...], above: str = "") -> dict[str, int]:
    """The ids in Lamella, by path."""
    found = {}
    for column in columns:
        found[f"{above}{column.name}"] = column.id
        found |= ids_of(column.fields, f"{above}{column.name}.")
    return found


def test_changes_of_columns_are_a_schema_of_iceberg(lake: Lamella, catalog: Catalog, table: Table) -> None:
    """With the same ids on both sides, also of nested columns and of several at once; what the client wrote in the
    schema stays, and the rows are read with it."""
    lamella = lake.table(name_of(table))
    parts = (Column(name="element", type="struct", fields=(Column(name="p", type="string"),)),)
    changes: list[SchemaChange] = [
        AddColumn(name="last", type="timestamp(us)"),
        AddColumn(name="tags", type="list", fields=parts, first=True),
        AddColumn(name="z", type="decimal(9,2)", parent="s"),
        RenameColumn(column="name", name="title"),
        RenameColumn(column="s.y", name="why"),
        WidenColumn(column="n", type="int64"),
        WidenColumn(column="s.x", type="float64"),
        MoveColumn(column="id", first=True),
    ]
    info = lamella.evolve(changes)
    loaded = catalog.load_table(name_of(table))
    by_name = {loaded.schema().find_column_name(number): number for number in loaded.schema().field_ids}
    assert by_name == ids_of(info.schema.columns)
    assert [field.name for field in loaded.schema().fields] == ["id", "tags", "n", "title", "s", "last"]
    assert loaded.schema().find_field("title").doc == "what it is called"
    wanted = [
        {
            "id": row["id"],
            "tags": None,
            "n": row["n"],
            "title": row["name"],
            "s": {"x": 0.5, "why": "y", "z": None},
            "last": None,
        }
        for row in ROWS
    ]
    assert rows_of(lamella) == wanted
    assert rows_in(StaticTable.from_metadata(loaded.metadata_location)) == wanted
    assert rows_in(loaded, "n >= 4") == wanted[2:]
    lamella.append([{"id": 9, "tags": [{"p": "t"}], "n": 1 << 40, "title": "new"}])
    loaded.append(pa.Table.from_pylist([{"id": 10, "title": "client"}], schema=loaded.schema().as_arrow()))
    again = catalog.load_table(name_of(table))
    assert rows_of(lamella) == rows_in(StaticTable.from_metadata(again.metadata_location))
    assert [row["id"] for row in rows_of(lamella)] == [0, 1, 2, 3, 9, 10]
    assert lamella.evolve([DropColumn(column="tags")]).schema.columns[1].name == "n"
    assert lamella.info().properties["lamella.source.read_only"] == ""
    before = lamella.schema().schema.last_column_id
    assert lamella.evolve([AddColumn(name="tags", type="int64")]).schema.columns[-1].id > before - 1
    assert {row["tags"] for row in rows_in(catalog.load_table(name_of(table)))} == {None}


def rows_of(table: LamellaTable) -> list[dict[str, Any]]:
    """The rows that Lamella reads, by id."""
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def rows_in(table: Table, filter: str = "id >= 0") -> list[dict[str, Any]]:
    """The rows that pyiceberg reads, by id."""
    found: list[dict[str, Any]] = table.scan(filter).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def test_changes_that_iceberg_could_not_state_are_refused(lake: Lamella, catalog: Catalog, table: Table) -> None:
    """With the cause; nothing is changed on either side."""
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "id_bucket")
        spec.add_field("name", IdentityTransform(), "name")
    with table.update_sort_order() as order:
        order.asc("n", IdentityTransform())
    assert table.sort_order().fields[0].direction == SortDirection.ASC
    lamella = lake.table(name_of(table))
    refused: list[tuple[SchemaChange, type[Exception], str]] = [
        (AddColumn(name="a", type="int64", nullable=False, default="1"), InvalidRequest, "columns with a default"),
        (AddColumn(name="a", type="int64", default="1"), InvalidRequest, "columns with a default"),
        (AddColumn(name="a", type="int64", doc="why"), InvalidRequest, "comments"),
        (AddColumn(name="a", type="uint32"), InvalidSchema, "no exact form"),
        (AddColumn(name="a", type="int16"), InvalidSchema, "no exact form"),
        (AddColumn(name="a", type="varchar(3)"), InvalidSchema, "no exact form"),
        (AddColumn(name="a", type="timestamp(ms)"), InvalidSchema, "no exact form"),
        (AddColumn(name="a", type="timestamp(ns)"), InvalidSchema, "no exact form"),
        (AddColumn(name="_row_id", type="int64"), InvalidSchema, "that Iceberg's readers make"),
        (AddColumn(name="id_bucket", type="int64"), InvalidSchema, "name of a partition field"),
        (RenameColumn(column="n", name="id_bucket"), InvalidSchema, "name of a partition field"),
        (WidenColumn(column="n", type="float64"), InvalidSchema, "cannot become double"),
        (WidenColumn(column="n", type="decimal(10,0)"), InvalidSchema, "cannot become decimal"),
        (DropColumn(column="id"), InvalidRequest, "a partition spec that uses the column"),
        (DropColumn(column="n"), InvalidRequest, "source column for sort field"),
        (SetDoc(column="n", doc="x"), InvalidRequest, "no 'set-doc'"),
        (SetDefault(column="n", default="1"), InvalidRequest, "no 'set-default'"),
        (SetNullable(column="n", nullable=False), InvalidRequest, "no 'set-nullable'"),
        (DropColumn(column="nothing"), UnknownColumn, "nothing"),
    ]
    before = catalog.load_table(name_of(table)).metadata_location
    schema = lamella.schema().schema
    for change, error, reason in refused:
        with pytest.raises(error, match=reason):
            lamella.evolve([change])
    with pytest.raises(SchemaConflict):
        lamella.evolve([DropColumn(column="s")], base_schema_id=99)
    assert lamella.schema().schema == schema
    assert catalog.load_table(name_of(table)).metadata_location == before
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": "[]"})
    with pytest.raises(InvalidRequest, match="name mapping"):
        lamella.evolve([DropColumn(column="s")])


def test_nanoseconds_and_identifier_fields(lake: Lamella, catalog: Catalog, table: Table) -> None:
    """The first are a type of format version 3; the second cannot be dropped."""
    numbers = ListType(element_id=2, element_type=LongType(), element_required=False)
    fields = NestedField(1, "id", LongType(), required=True), NestedField(3, "l", numbers)
    name = f"{table.name()[0]}.exact"
    catalog.create_table(name, schema=Schema(*fields, identifier_field_ids=[1]), properties={"format-version": "3"})
    lamella = lake.table(name)
    lamella.evolve([AddColumn(name="at", type="timestamp_ntz(ns)")])
    assert str(catalog.load_table(name).schema().find_type("at")) == "timestamp_ns"
    assert lamella.schema().schema.columns[-1].type == "timestamp_ntz(ns)"
    with pytest.raises(InvalidRequest, match="identifier fields"):
        lamella.evolve([DropColumn(column="id")])
    lamella.evolve([RenameColumn(column="id", name="key")])
    assert catalog.load_table(name).schema().identifier_field_names() == {"key"}


def test_a_rollback_of_lamella_is_one_of_iceberg(lake: Lamella, catalog: Catalog, table: Table) -> None:
    """``main`` is at the snapshot with those rows; the columns stay, and both sides go on from there."""
    lamella = lake.table(name_of(table))
    of_client = list(lamella.snapshots())[1]
    of_lamella = lamella.info().snapshot_id
    first = [each.snapshot_id for each in catalog.load_table(name_of(table)).snapshots()]
    lamella.delete("id = 0")
    between = lamella.info().snapshot_id
    lamella.evolve([AddColumn(name="more", type="string"), RenameColumn(column="name", name="title")])
    lamella.delete("id = 1")
    only_here = lamella.info().snapshot_id
    lamella.append([{"id": 7, "title": "seven"}])
    done = lamella.rollback(of_lamella, base_snapshot_id=lamella.info().snapshot_id)
    assert done.restored_snapshot_id == of_lamella
    assert done.row_count == 4
    loaded = catalog.load_table(name_of(table))
    current = loaded.current_snapshot()
    assert current is not None
    assert current.snapshot_id == first[1]
    rows = [{"id": each["id"], "n": each["n"], "title": each["name"], "s": each["s"], "more": None} for each in ROWS]
    assert rows_of(lamella) == rows_in(StaticTable.from_metadata(loaded.metadata_location)) == rows
    lamella.rollback(between)
    assert [row["id"] for row in rows_in(catalog.load_table(name_of(table)))] == [1, 2, 3]
    lamella.rollback(of_client.snapshot_id)
    assert [row["id"] for row in rows_in(catalog.load_table(name_of(table)))] == [0, 1]
    lamella.append([{"id": 8, "title": "eight"}])
    assert [row["id"] for row in rows_in(catalog.load_table(name_of(table)))] == [0, 1, 8]
    with pytest.raises(InvalidRequest, match="was published together with later changes"):
        lamella.rollback(only_here)
    with pytest.raises(InvalidRequest, match="is the current one"):
        lamella.rollback(lamella.info().snapshot_id)
    with pytest.raises(CommitConflict):
        lamella.rollback(of_lamella, base_snapshot_id=of_lamella)
    empty = list(lamella.snapshots())[-1]
    with pytest.raises(InvalidRequest, match="no snapshot in the table's Iceberg metadata"):
        lamella.rollback(empty.snapshot_id)
    assert [row["id"] for row in rows_of(lamella)] == [0, 1, 8]
    assert loaded.refresh().inspect.refs().num_rows == 1


def test_columns_are_not_changed_in_a_commit_of_rows(lake: Lamella, table: Table) -> None:
    """Such a commit has no form in Iceberg here; the two steps have."""
    lamella = lake.table(name_of(table))
    context = JobContext(lake=lake, table=name_of(table), engine=SerialEngine())
    change = AddColumn(name="other", type="string")
    update = SchemaUpdate(changes=(change,), base_schema_id=lamella.schema().schema.schema_id)
    with pytest.raises(InvalidRequest, match="change its columns in a commit without rows"):
        delete_rows(context, "id = 1", schema_update=update)
    lamella.evolve([change])
    lamella.append([{"id": 5, "other": "x"}])
    assert rows_of(lamella)[-1]["other"] == "x"


def test_a_client_has_dropped_a_column_of_an_earlier_partition_spec(
    lake: Lamella, catalog: Catalog, table: Table
) -> None:
    """Lamella does not do that, since pyiceberg (0.12) cannot write such manifests; Lamella writes them, by a schema
    that has the column."""
    table = catalog.load_table(name_of(table))
    with table.update_spec() as spec:
        spec.add_field("name", IdentityTransform(), "name")
    rows = [{**row, "id": number} for number, row in enumerate(ROWS, 10)]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    with table.update_spec() as spec:
        spec.remove_field("name")
    lamella = lake.table(name_of(table))
    with pytest.raises(InvalidRequest, match="a partition spec that uses the column"):
        lamella.evolve([DropColumn(column="name")])
    with table.update_schema() as schema:
        schema.delete_column("name")
    lamella.delete("id IN (11, 2)")
    loaded = catalog.load_table(name_of(table))
    wanted = [0, 1, 3, 10, 12, 13]
    assert [row["id"] for row in rows_of(lamella)] == wanted
    assert [row["id"] for row in rows_in(loaded)] == wanted
    assert [row["id"] for row in rows_in(StaticTable.from_metadata(loaded.metadata_location))] == wanted
