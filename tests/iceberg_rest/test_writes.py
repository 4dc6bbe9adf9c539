"""Iceberg clients create tables and commit to them; Lamella and the clients read the same rows."""

from __future__ import annotations

import itertools
import json
import random
import threading
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType, TimestampNanoType

from fixtures_s3 import S3Server
from fixtures_server import StartServer
from lamella.client.http import Lamella
from lamella.client.http import Table as LamellaTable
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.rewrite import compact
from lamella.client.rewrite.engine import SerialEngine
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import InvalidRequest, LocationRefused, ReaderFeatureMissing
from lamella.snapshot.iceberg.manifest_entries import ManifestEntries, Read
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, MoveColumn, RenameColumn, WidenColumn
from support.app_client import AppClient
from support.tenants import ROOT_KEY, ROOT_SHA256

ROOT = "/iceberg/v1"
ROWS = pa.table(
    {"id": pa.array(range(10), pa.int64()), "name": [f"n{i}" for i in range(10)], "day": ["mon", "tue"] * 5}
)


@pytest.fixture
def namespace(catalog: Catalog) -> str:
    """A namespace of two levels."""
    name = f"w{uuid.uuid4().hex[:8]}.eu"
    catalog.create_namespace(name)
    return name


@pytest.fixture
def orders(catalog: Catalog, namespace: str) -> Table:
    """A table that a client made, without rows."""
    return catalog.create_table(f"{namespace}.orders", schema=ROWS.schema)


def ids_of(lake: Lamella, name: str, filter: str | None = None) -> list[int]:
    """The ids that Lamella reads."""
    return sorted(row["id"] for row in lake.table(name).scan(filter).to_arrow().to_pylist())


def test_what_a_client_appends_is_a_table_of_blocks(lake: Lamella, catalog: Catalog, orders: Table) -> None:
    """With statistics: a filter opens the files that can match, and no others; all of them by default."""
    name = ".".join(orders.name())
    for first in (0, 100, 200):
        orders.append(ROWS.set_column(0, "id", pa.array(range(first, first + 10), pa.int64())))
    table = lake.table(name)
    assert ids_of(lake, name) == [*range(10), *range(100, 110), *range(200, 210)]
    found = table.prune("id BETWEEN 103 AND 105")
    assert (len(found.blocks), table.info().block_count) == (1, 3)
    assert ids_of(lake, name, "id BETWEEN 103 AND 105") == [103, 104, 105]
    assert [each.operation for each in table.snapshots()] == ["append", "append", "append", "create"]
    again = catalog.load_table(name)
    assert sorted(again.scan("id >= 205").to_arrow()["id"].to_pylist()) == [205, 206, 207, 208, 209]
    assert [each.snapshot_id for each in again.snapshots()] == [each.snapshot_id for each in orders.snapshots()]


def test_the_service_plans_these_tables_by_its_statistics(rest_url: str, orders: Table) -> None:
    """Residuals are true where every row matches; partitions and older snapshots are those of the manifests."""
    with orders.update_spec() as spec:
        spec.add_field("day", IdentityTransform(), "day")
    orders.append(ROWS)
    before = orders.current_snapshot()
    assert before is not None
    orders.append(ROWS.set_column(0, "id", pa.array(range(100, 110), pa.int64())))
    path = f"{ROOT}/namespaces/{orders.name()[0]}%1F{orders.name()[1]}/tables/orders/plan"
    with AppLike(rest_url) as http:
        filter = {"type": "gt-eq", "term": "id", "value": 100}
        found = http.post(path, {"filter": filter})["file-scan-tasks"]
        assert [each["residual-filter"] for each in found] == [True, True]
        assert sorted(tuple(each["data-file"]["partition"]) for each in found) == [("mon",), ("tue",)]
        assert {each["data-file"]["spec-id"] for each in found} == {1}
        then = http.post(path, {"snapshot-id": before.snapshot_id})["file-scan-tasks"]
        assert sum(each["data-file"]["record-count"] for each in then) == 10
        assert http.post(path, {"filter": filter, "snapshot-id": before.snapshot_id})["file-scan-tasks"] == []


class AppLike:
    """Posts JSON to a service."""

    def __init__(self, url: str) -> None:
        self._lake = Lamella(url)

    def __enter__(self) -> AppLike:
        return self

    def __exit__(self, *_: object) -> None:
        self._lake.close()

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer."""
        import httpx2

        answer = httpx2.post(f"{self._lake.url}{path}", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest.mark.parametrize(("version", "of_both"), [(2, False), (2, True), (3, True)])
def test_random_commits_leave_the_rows_that_they_should(
    lake: Lamella, catalog: Catalog, namespace: str, *, version: int, of_both: bool
) -> None:
    """Appends, deletes, overwrites, changed columns, other specs and rollbacks; by Lamella, by plans of the service,
    and by the manifests, each against rows that the test remembers. ``of_both``: Lamella changes the table, too.

    In format version 3, pyiceberg (0.12) does not write rows, and the row ids are checked. Several changes of Lamella
    are then one Iceberg snapshot, whose manifests have several files.
    """
    done: Counter[str] = Counter()
    for seed in range(6):
        chance = random.Random(seed)
        history = History(catalog, f"{namespace}.t{seed}", chance, lake if of_both else None, version=version)
        for step in range(14):
            for _ in range(version - 1 if of_both else 1):
                history.change(step)
            history.check(lake)
        done += history.done
    if of_both:
        assert all(done[what] for what in ("column", "rename", "drop", "widen", "rollback")), done


class History:
    """A table, and the rows that it should have: an id, and the values of the columns that there were then."""

    def __init__(
        self,
        catalog: Catalog,
        name: str,
        chance: random.Random,
        lake: Lamella | None,
        *,
        version: int,
        creates: bool = True,
    ) -> None:
        self._catalog = catalog
        self._name = name
        self._chance = chance
        self._lake = lake
        if creates:
            schema = Schema(NestedField(1, "id", LongType()))
            catalog.create_table(name, schema=schema, properties={"format-version": str(version)})
        self._table = catalog.load_table(name)
        self._ids = RowIdChecks() if version == 3 else None
        #: The names of the columns besides the id, in the order of their creation; None: dropped.
        self._columns: list[str | None] = []
        self._rows: list[tuple[int, ...]] = []
        self._past: list[tuple[int, list[tuple[int, ...]]]] = []
        self._past_of_lamella: list[tuple[str, list[tuple[int, ...]]]] = []
        self._number = 0
        #: What Lamella has changed of columns, and how often it has rolled back.
        self.done: Counter[str] = Counter()

    def change(self, step: int) -> None:
        """Commit something."""
        self._number += 1
        if self._lake is not None and self._chance.random() < 0.5:
            self._change_by_lamella(self._lake.table(self._name), step)
            return
        self._table = self._catalog.load_table(self._name)
        table, low = self._table, self._chance.randrange(60)
        kinds = ["column", "spec", "rollback", "rename", "drop"]
        if self._ids is None:
            kinds += ["append", "append", "delete", "overwrite"]
        what = self._chance.choice(kinds)
        if what == "append":
            made = [(self._chance.randrange(60), *[step] * len(self._columns)) for _ in range(low % 8 + 1)]
            table.append(self._arrow(made))
            self._rows = [*self._rows, *made]
        elif what == "delete":
            with warnings.catch_warnings(action="ignore"):  # of deletes that match nothing
                table.delete(f"id >= {low} and id < {low + 20}")
            self._rows = [row for row in self._rows if not low <= row[0] < low + 20]
        elif what == "overwrite":
            made = [(low, *[step] * len(self._columns))]
            with warnings.catch_warnings(action="ignore"):
                table.overwrite(self._arrow(made), f"id >= {low}")
            self._rows = [*(row for row in self._rows if row[0] < low), *made]
        elif what == "column" and len(self._names()) < 3:
            with table.update_schema() as schema:
                schema.add_column(f"c{self._number}", IntegerType())
            self._columns.append(f"c{self._number}")
        elif what == "rename" and self._names():
            name = self._names()[0]
            with table.update_schema() as schema:
                schema.rename_column(name, f"r{self._number}")
            self._columns[self._columns.index(name)] = f"r{self._number}"
        elif what == "drop" and len(self._names()) > 1:
            name = self._names()[-1]
            with table.update_schema() as schema:
                schema.delete_column(name)
            self._columns[self._columns.index(name)] = None
        elif what == "spec":
            with table.update_spec() as spec:
                before = [each.name for each in table.spec().fields]
                for name in before:
                    spec.remove_field(name)
                if not before:
                    spec.add_field("id", IdentityTransform(), f"p{step}")
        elif what == "rollback" and self._past:
            number, self._rows = self._chance.choice(self._past)
            table.manage_snapshots().set_current_snapshot(snapshot_id=number).commit()
        current = table.current_snapshot()
        if current is not None:
            self._past.append((current.snapshot_id, self._rows))

    def _change_by_lamella(self, table: LamellaTable, step: int) -> None:
        low = self._chance.randrange(60)
        kinds = [
            "append",
            "append",
            "delete",
            "upsert",
            "upsert",
            "compact",
            "columns",
            "columns",
            "rollback",
            "rollback",
        ]
        what = self._chance.choice(kinds)
        if what == "columns":
            self._change_columns(table)
        elif what == "rollback" and self._past_of_lamella:
            snapshot_id, rows = self._chance.choice(self._past_of_lamella)
            try:
                table.rollback(snapshot_id)
            except InvalidRequest as error:
                if "no snapshot in the table's Iceberg metadata has just the rows" in error.message:
                    return
                if error.message not in ("that snapshot is the current one", "the table is like that already"):
                    raise
            else:
                self.done["rollback"] += 1
            self._rows = rows
        else:
            self._change_rows(table, what, step, low)
        self._past_of_lamella.append((table.info().snapshot_id, self._rows))

    def _change_rows(self, table: LamellaTable, what: str, step: int, low: int) -> None:
        made = [(low + at, *[step] * len(self._columns)) for at in range(low % 5 + 1)]
        if what == "compact":
            assert self._lake is not None
            compact(JobContext(lake=self._lake, table=self._name, engine=SerialEngine()))
        elif what == "append":
            table.append(self._dicts(made))
            self._rows = [*self._rows, *made]
        elif what == "delete":
            table.delete(f"id BETWEEN {low} AND {low + 9}")
            self._rows = [row for row in self._rows if not low <= row[0] <= low + 9]
        elif what == "upsert":
            table.upsert(self._dicts(made), on=["id"])
            ids = {row[0] for row in made}
            self._rows = [*(row for row in self._rows if row[0] not in ids), *made]

    def _change_columns(self, table: LamellaTable) -> None:
        names = self._names()
        narrow = [column.name for column in table.info().schema.columns if column.type == "int32"]
        kinds = {"column": len(names) < 4, "rename": bool(names), "drop": len(names) > 1, "widen": bool(narrow)}
        what = self._chance.choice([kind for kind, is_possible in kinds.items() if is_possible])
        if what == "column":
            first = self._chance.random() < 0.5
            more = AddColumn(name=f"d{self._number}", type="string")
            table.evolve([AddColumn(name=f"l{self._number}", type="int32", first=first), more])
            table.evolve([DropColumn(column=more.name)])
            self._columns.append(f"l{self._number}")
        elif what == "rename":
            table.evolve([RenameColumn(column=names[-1], name=f"m{self._number}"), MoveColumn(column="id", first=True)])
            self._columns[self._columns.index(names[-1])] = f"m{self._number}"
        elif what == "drop":
            table.evolve([DropColumn(column=names[0])])
            self._columns[self._columns.index(names[0])] = None
        else:
            table.evolve([WidenColumn(column=narrow[0], type="int64")])
        self.done[what] += 1
        loaded = self._catalog.load_table(self._name)
        assert {field.name: field.field_id for field in loaded.schema().fields} == {
            column.name: column.id for column in table.info().schema.columns
        }

    def _names(self) -> list[str]:
        return [name for name in self._columns if name is not None]

    def check(self, lake: Lamella) -> None:
        """All readers find the rows, and those of a filter."""
        low = self._chance.randrange(60)
        wanted = sorted(map(_text, self._dicts(self._rows)))
        some = sorted(_text(row) for row in self._dicts(self._rows) if row["id"] >= low)
        table, loaded = lake.table(self._name), self._catalog.load_table(self._name)
        assert _found(table.scan().to_arrow()) == wanted
        assert _found(table.scan(f"id >= {low}").to_arrow()) == some
        assert _found(loaded.scan(f"id >= {low}").to_arrow()) == some
        assert _found(StaticTable.from_metadata(loaded.metadata_location).scan().to_arrow()) == wanted
        if self._ids is not None:
            self._ids.check(loaded)

    def _arrow(self, rows: list[tuple[int, ...]]) -> pa.Table:
        return pa.Table.from_pylist(self._dicts(rows), schema=self._table.schema().as_arrow())

    def _dicts(self, rows: list[tuple[int, ...]]) -> list[dict[str, Any]]:
        names = ["id", *self._columns]
        return [{name: cell for name, cell in zip_longest(names, row) if name is not None} for row in rows]


class RowIdChecks:
    """What must hold of the row ids in the manifests of a table of format version 3, from commit to commit."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._next = 0

    def check(self, table: Table) -> None:
        """Files that stay have the same ids as before, new ones have ids that were never used, and all are below the
        next one."""
        snapshot, next_id = table.current_snapshot(), next_row_id(table)
        assert next_id >= self._next
        ranges = sorted(row_ids(snapshot.manifest_list)) if snapshot is not None else []
        for (_, end, _), (start, _, _) in itertools.pairwise(ranges):
            assert end <= start
        for start, end, path in ranges:
            known = self._first.get(path)
            assert start == known if known is not None else start >= self._next
            assert end <= next_id
            self._first[path] = start
        self._next = next_id


def next_row_id(table: Table) -> int:
    """What is above all row ids of a table of format version 3."""
    assert isinstance(table.metadata, TableMetadataV3)
    found = table.metadata.next_row_id
    assert found is not None
    return found


def row_ids(manifest_list: str) -> Iterator[tuple[int, int, str]]:
    """The ids of the rows of each data file (from, up to), with its path, as the specification says."""
    for manifest in avro_records(manifest_list, MANIFEST_LIST_FILE_SCHEMAS[3]):
        if manifest["content"] == 1:
            continue
        next_id = manifest["first_row_id"]
        for entry in avro_records(manifest["manifest_path"], MANIFEST_ENTRY_SCHEMAS[3]):
            if entry["status"] == 2:
                continue
            file = entry["data_file"]
            first = file["first_row_id"]
            if first is None:
                first, next_id = next_id, next_id + file["record_count"]
            yield first, first + file["record_count"], file["file_path"]


def avro_records(location: str, schema: Schema) -> Iterator[dict[str, Any]]:
    """The records of a file by the names of their members."""

    def named(record: Any, fields: Any) -> dict[str, Any]:
        return {
            field.name: named(record[at], field.field_type.fields) if field.name == "data_file" else record[at]
            for at, field in enumerate(fields)
        }

    with AvroFile[Any](PyArrowFileIO().new_input(location), schema) as records:
        yield from (named(record, schema.fields) for record in records)


def _found(result: pa.Table) -> list[str]:
    return sorted(map(_text, result.to_pylist()))


def _text(row: dict[str, Any]) -> str:
    """A row, whatever the order of its columns."""
    return repr(sorted(row.items()))


def test_columns_below_others_are_followed(lake: Lamella, catalog: Catalog, namespace: str) -> None:
    """A struct whose fields are added, renamed and dropped."""
    inner = StructType(NestedField(3, "x", LongType()), NestedField(4, "y", StringType()))
    name = f"{namespace}.nested"
    table = catalog.create_table(name, schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "s", inner)))
    table.append(pa.Table.from_pylist([{"id": 1, "s": {"x": 5, "y": "a"}}], schema=table.schema().as_arrow()))
    with table.update_schema() as schema:
        schema.rename_column("s.x", "z")
        schema.delete_column("s.y")
        schema.add_column(("s", "w"), LongType())
    table.append(pa.Table.from_pylist([{"id": 2, "s": {"z": 6, "w": 7}}], schema=table.schema().as_arrow()))
    found = sorted(lake.table(name).scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert found == [{"id": 1, "s": {"z": 5, "w": None}}, {"id": 2, "s": {"z": 6, "w": 7}}]
    assert ids_of(lake, name, "s.z > 5") == [2]


def test_of_two_commits_on_one_snapshot_the_second_is_refused(catalog: Catalog, orders: Table) -> None:
    """As a failed commit, with what has changed; the client can load the table and try again."""
    other = catalog.load_table(".".join(orders.name()))
    orders.append(ROWS)
    required = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": None})
    with pytest.raises(CommitFailedException, match="branch main was created concurrently"):
        catalog.commit_table(other, (required,), (SetPropertiesUpdate(updates={"a": "1"}),))
    other.append(ROWS)  # pyiceberg loads the table and tries again
    assert catalog.load_table(".".join(other.name())).scan().count() == 20


def test_writers_at_once_lose_nothing(rest_url: str, catalog: Catalog, lake: Lamella, orders: Table) -> None:
    """Each tries until it succeeds; every row is there once."""
    name, each, writers = ".".join(orders.name()), 6, 4

    def write(writer: int) -> None:
        own = load_catalog("own", type="rest", uri=f"{rest_url}/iceberg")
        for step in range(each):
            number = writer * 100 + step
            row = pa.table({"id": pa.array([number], pa.int64()), "name": ["x"], "day": ["y"]})
            while True:
                try:
                    own.load_table(name).append(row)
                    break
                except CommitFailedException:
                    continue

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = sorted(writer * 100 + step for writer in range(writers) for step in range(each))
    assert ids_of(lake, name) == wanted
    assert sorted(catalog.load_table(name).scan().to_arrow()["id"].to_pylist()) == wanted


def test_names_follow_the_rules_of_iceberg(catalog: Catalog, namespace: str, orders: Table) -> None:
    """Namespaces have levels and properties; tables are listed, renamed, dropped and refused by its errors."""
    parent, _, child = namespace.partition(".")
    assert (parent,) in catalog.list_namespaces()
    assert catalog.list_namespaces(parent) == [(parent, child)]
    assert catalog.list_tables(namespace) == [(parent, child, "orders")]
    updated = catalog.update_namespace_properties(namespace, removals={"x"}, updates={"owner": "web"})
    assert (updated.updated, updated.removed, updated.missing) == (["owner"], [], ["x"])
    assert catalog.load_namespace_properties(namespace) == {"owner": "web"}
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(namespace)
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(f"{namespace}.orders", schema=ROWS.schema)
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(namespace)
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table("nowhere.t", schema=ROWS.schema)
    catalog.rename_table(f"{namespace}.orders", f"{namespace}.sold")
    with pytest.raises(NoSuchTableError):
        catalog.load_table(f"{namespace}.orders")
    assert catalog.load_table(f"{namespace}.sold").metadata.table_uuid == orders.metadata.table_uuid
    catalog.drop_table(f"{namespace}.sold")
    catalog.drop_namespace(namespace)
    assert not catalog.namespace_exists(namespace)


def test_a_transaction_of_the_client_creates_and_fills_a_table(lake: Lamella, catalog: Catalog, namespace: str) -> None:
    """``CREATE TABLE AS SELECT``: the table is there with its rows, or not at all."""
    name = f"{namespace}.made"
    with catalog.create_table_transaction(name, schema=ROWS.schema) as made:
        made.append(ROWS)
        assert not catalog.table_exists(name)
    assert ids_of(lake, name) == list(range(10))
    assert catalog.load_table(name).scan("id < 3").count() == 3


def test_a_table_is_registered_by_its_metadata_file(
    lake: Lamella, catalog: Catalog, orders: Table, namespace: str
) -> None:
    """Its rows can be read, by its own manifests if the files are in the folder of another table."""
    orders.append(ROWS)
    again = catalog.register_table(f"{namespace}.again", orders.metadata_location)
    assert sorted(again.scan().to_arrow()["id"].to_pylist()) == list(range(10))
    with pytest.raises(ReaderFeatureMissing):
        lake.table(f"{namespace}.again").scan().to_arrow()


def test_what_lamella_cannot_read_is_committed_and_its_readers_get_an_error(
    lake: Lamella, catalog: Catalog, orders: Table, tmp_path: Path
) -> None:
    """A file that is not there: Iceberg clients have it in their table, Lamella's readers get the reason and no rows;
    when it is there, they read again."""
    name = ".".join(orders.name())
    orders.append(ROWS)
    lost = tmp_path / "lost.parquet"
    pq.write_table(ROWS, lost)
    transaction = orders.transaction()
    transaction.add_files([f"file://{lost}"])
    hidden = lost.rename(tmp_path / "hidden")
    transaction.commit_transaction()
    with pytest.raises(ReaderFeatureMissing, match="unread"):
        lake.table(name).scan().to_arrow()
    assert "lost.parquet" in lake.table(name).info().properties["lamella.source.unread"]
    assert "unread_source" in lake.table(name).info().required_features  # older releases do not read the manifest
    assert len(list(catalog.load_table(name).scan().plan_files())) == 2
    hidden.rename(lost)
    lake.table(name).refresh()
    assert ids_of(lake, name) == sorted([*range(10)] * 2)
    assert lake.table(name).info().properties["lamella.source.unread"] == ""
    assert ids_of(lake, name, "id = 3") == [3, 3]
    with pytest.raises(InvalidRequest, match="no commit of an Iceberg client has followed"):
        lake.table(name).append(ROWS)
    orders.append(ROWS)
    lake.table(name).append(ROWS)
    assert catalog.load_table(name).scan().count() == 40


def test_a_file_that_is_in_a_table_twice_is_not_read_once(
    lake: Lamella, catalog: Catalog, orders: Table, tmp_path: Path
) -> None:
    """Iceberg's readers have its rows twice; a block is in a table once, so Lamella's readers get an error."""
    name, file = ".".join(orders.name()), tmp_path / "x.parquet"
    pq.write_table(ROWS, file)
    orders.add_files([f"file://{file}"])
    orders.add_files([f"file://{file}"], check_duplicate_files=False)
    with pytest.raises(ReaderFeatureMissing):
        lake.table(name).scan().to_arrow()
    assert "is listed twice" in lake.table(name).info().properties["lamella.source.unread"]
    assert StaticTable.from_metadata(catalog.load_table(name).metadata_location).scan().count() == 20
    orders.append(ROWS)
    assert len(orders.snapshots()) == 3


def test_a_changed_name_mapping_holds_for_all_files(
    lake: Lamella, catalog: Catalog, orders: Table, tmp_path: Path
) -> None:
    """Files without field ids are read by it, as Iceberg's readers do: not by the one of the time they were added."""
    name, added = ".".join(orders.name()), tmp_path / "added.parquet"
    pq.write_table(ROWS.append_column("other", pa.array(["o"] * 10)), added)
    with orders.update_schema() as schema:
        schema.add_column("other", StringType())
    orders.add_files([f"file://{added}"])
    assert lake.table(name).scan("id = 1").to_arrow().to_pylist()[0]["name"] == "n1"
    mapping = [
        {"field-id": 1, "names": ["id"]},
        {"field-id": 2, "names": ["other"]},
        {"field-id": 3, "names": ["day"]},
        {"field-id": 4, "names": ["name"]},
    ]
    with orders.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": json.dumps(mapping)})
    by_manifests = StaticTable.from_metadata(catalog.load_table(name).metadata_location)
    wanted = _found(by_manifests.scan().to_arrow())
    try:
        assert _found(lake.table(name).scan().to_arrow()) == wanted
    except ReaderFeatureMissing:  # its blocks have no form for files whose names changed places
        assert lake.table(name).info().properties["lamella.source.unread"]


def test_a_type_that_lamella_does_not_have_is_for_iceberg_clients(lake: Lamella, rest_url: str, namespace: str) -> None:
    """The table is there for them, and says why Lamella cannot read it."""
    path = f"{ROOT}/namespaces/{namespace.replace('.', '%1F')}/tables"
    schema = {"type": "struct", "fields": [{"id": 1, "name": "g", "type": "geometry(OGC:CRS84)", "required": False}]}
    with AppLike(rest_url) as http:
        made = http.post(path, {"name": "shapes", "schema": schema, "properties": {"format-version": "3"}})
        assert made["metadata"]["schemas"][0]["fields"][0]["type"] == "geometry(OGC:CRS84)"
    assert "geometry" in lake.table(f"{namespace}.shapes").info().properties["lamella.source.unread"]
    with pytest.raises(ReaderFeatureMissing):
        lake.table(f"{namespace}.shapes").scan().to_arrow()


def test_nanoseconds_are_read_in_format_version_3(lake: Lamella, catalog: Catalog, namespace: str) -> None:
    """As what they are."""
    name = f"{namespace}.exact"
    schema = Schema(NestedField(1, "at", TimestampNanoType()))
    catalog.create_table(name, schema=schema, properties={"format-version": "3"})
    assert lake.table(name).info().schema.columns[0].type == "timestamp_ntz(ns)"


def test_what_lamella_writes_is_an_iceberg_snapshot(lake: Lamella, catalog: Catalog, orders: Table) -> None:
    """As soon as a client loads the table, and not before; several changes are one snapshot, with a summary."""
    name = ".".join(orders.name())
    orders.append(ROWS)
    table = lake.table(name)
    table.append(ROWS.set_column(0, "id", pa.array(range(100, 110), pa.int64())))
    table.delete("id = 3")
    before = len(list(table.snapshots()))
    loaded = catalog.load_table(name)
    assert len(loaded.snapshots()) == 2
    assert len(list(table.snapshots())) == before + 1
    summary = loaded.snapshots()[-1].summary
    assert summary is not None
    assert summary.operation.value == "overwrite"
    assert (summary["added-records"], summary["total-records"]) == ("19", "19")
    parent = loaded.snapshots()[-1].parent_snapshot_id
    assert parent == loaded.snapshots()[0].snapshot_id
    again = catalog.load_table(name)
    assert again.metadata_location == loaded.metadata_location
    wanted = [0, 1, 2, 4, 5, 6, 7, 8, 9, *range(100, 110)]
    assert sorted(StaticTable.from_metadata(again.metadata_location).scan().to_arrow()["id"].to_pylist()) == wanted
    required = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": parent})
    with pytest.raises(CommitFailedException, match="branch main has changed"):
        catalog.commit_table(again, (required,), (SetPropertiesUpdate(updates={"a": "1"}),))
    again.append(ROWS)
    assert ids_of(lake, name) == sorted([*wanted, *range(10)])


def test_an_index_and_a_tag_are_no_iceberg_snapshots(lake: Lamella, catalog: Catalog, orders: Table) -> None:
    """They change no row; plans of the service use the index."""
    name = ".".join(orders.name())
    orders.append(ROWS)
    before = catalog.load_table(name)
    table = lake.table(name)
    table.create_index("by_name", "bloom", "name")
    table.tag("v1")
    after = catalog.load_table(name)
    assert after.metadata_location == before.metadata_location
    assert after.scan("name = 'n3'").to_arrow()["id"].to_pylist() == [3]


def test_lamellas_writes_that_iceberg_could_not_state_are_refused(
    lake: Lamella, catalog: Catalog, orders: Table, namespace: str, tmp_path: Path
) -> None:
    """Files without field ids, deletion vectors, other metadata files; parts that are required, of which nothing is
    counted."""
    orders.append(ROWS)
    table = lake.table(".".join(orders.name()))
    file = tmp_path / "x.parquet"
    pq.write_table(ROWS, file)
    refused: list[Callable[[], object]] = [
        lambda: table.register([f"file://{file}"]),
        lambda: table.refresh(location="file:///elsewhere/v1.metadata.json"),
        lambda: table.delete("id = 1", mode="merge-on-read"),
    ]
    numbers = ListType(element_id=2, element_type=LongType(), element_required=True)
    assert catalog.create_table(f"{namespace}.required", schema=Schema(NestedField(1, "id", numbers)))
    for write in refused:
        with pytest.raises(InvalidRequest, match="this is a table of Iceberg clients"):
            write()
    with pytest.raises(InvalidRequest, match="column 'id' is required"):
        lake.table(f"{namespace}.required").append({"id": [[1]]})
    with pytest.raises(InvalidRequest, match="column 'id' is required"):
        lake.table(f"{namespace}.required").evolve([AddColumn(name="x", type="int64")])
    assert table.refresh().changed is False
    assert ids_of(lake, ".".join(orders.name())) == list(range(10))


def test_required_columns_have_a_value_in_what_lamella_writes(lake: Lamella, catalog: Catalog, namespace: str) -> None:
    """Columns, and fields of required structs; a commit with a null, or without the column, is refused."""
    name = f"{namespace}.required"
    inner = StructType(NestedField(3, "x", LongType(), required=True), NestedField(4, "y", StringType()))
    fields = NestedField(1, "id", LongType(), required=True), NestedField(2, "s", inner, required=True)
    made = catalog.create_table(name, schema=Schema(*fields))
    made.append(pa.Table.from_pylist([{"id": 1, "s": {"x": 5, "y": None}}], schema=made.schema().as_arrow()))
    table = lake.table(name)
    table.append([{"id": 2, "s": {"x": 6, "y": "b"}}])
    wrong: list[list[dict[str, Any]]] = [
        [{"id": None, "s": {"x": 6, "y": "b"}}],
        [{"id": 3, "s": {"x": None, "y": "b"}}],
        [{"id": 3, "s": None}],
    ]
    for rows in wrong:
        with pytest.raises(InvalidRequest, match="is required in this table of Iceberg clients"):
            table.append(rows)
    with pytest.raises(InvalidRequest, match=r"column 's\.x' is required"):
        table.append([{"id": 4}])
    table.upsert([{"id": 1, "s": {"x": 7, "y": "c"}}], on=["id"])
    found = catalog.load_table(name).scan().to_arrow()
    assert sorted(zip(found["id"].to_pylist(), found["s"].to_pylist(), strict=True), key=lambda row: row[0]) == [
        (1, {"x": 7, "y": "c"}),
        (2, {"x": 6, "y": "b"}),
    ]
    with made.update_schema(allow_incompatible_changes=True) as change:
        change.make_column_optional("id")
    table.append([{"id": None, "s": {"x": 8, "y": None}}])
    assert len(table.scan("id IS NULL").to_arrow()) == 1


def test_a_default_that_only_new_rows_have_is_left_to_iceberg_clients(lake: Lamella, rest_url: str) -> None:
    """Lamella's writers would give new rows the value that old ones have."""
    lake.create_namespace("defaults")
    path = f"{ROOT}/namespaces/defaults/tables"
    for name, more in (("same", {"initial-default": 7, "write-default": 7}), ("other", {"write-default": 7})):
        column = {"id": 2, "name": "n", "type": "long", "required": False, **more}
        fields = [{"id": 1, "name": "id", "type": "long", "required": False}, column]
        body = {"name": name, "schema": {"type": "struct", "fields": fields}, "properties": {"format-version": "3"}}
        with AppLike(rest_url) as http:
            http.post(path, body)
    lake.table("defaults.same").append([{"id": 1}])
    assert lake.table("defaults.same").scan().to_arrow().to_pylist() == [{"id": 1, "n": 7}]
    with pytest.raises(InvalidRequest, match="column 'n' has another default for new rows"):
        lake.table("defaults.other").append([{"id": 1}])


def test_rows_of_an_upgraded_table_get_ids_when_lamella_commits(lake: Lamella, catalog: Catalog, orders: Table) -> None:
    """Those of the manifests that it had before, too: a snapshot of format version 3 gives each manifest its ids."""
    name = ".".join(orders.name())
    orders.append(ROWS)
    orders.append(ROWS.set_column(0, "id", pa.array(range(100, 110), pa.int64())))
    with AppLike(lake.url) as http:
        path = f"{ROOT}/namespaces/{orders.name()[0]}%1F{orders.name()[1]}/tables/orders"
        http.post(path, {"updates": [{"action": "upgrade-format-version", "format-version": 3}]})
        before = http.post(f"{path}/plan", {})["file-scan-tasks"]
        assert all("first-row-id" not in each["data-file"] for each in before)
        lake.table(name).append(ROWS.slice(0, 5))
        loaded = catalog.load_table(name)
        assert next_row_id(loaded) == 25
        plan = http.post(f"{path}/plan", {})["file-scan-tasks"]
    counted = sorted((each["data-file"]["first-row-id"], each["data-file"]["record-count"]) for each in plan)
    assert counted == [(0, 10), (10, 10), (20, 5)]
    RowIdChecks().check(loaded)
    lake.table(name).delete("id = 103")
    again = catalog.load_table(name)
    snapshot = again.current_snapshot()
    assert snapshot is not None
    by_path = {path: first for first, _, path in row_ids(snapshot.manifest_list)}
    first_ids = {each["data-file"]["file-path"]: each["data-file"]["first-row-id"] for each in plan}
    shared = by_path.keys() & first_ids.keys()
    assert len(shared) == 2
    assert all(by_path[path] == first_ids[path] for path in shared)


def test_files_of_snapshots_that_clients_list_are_not_cleaned_up(
    lake: Lamella, catalog: Catalog, orders: Table
) -> None:
    """A block that Lamella wrote and replaced stays while the Iceberg metadata has its snapshot."""
    name = ".".join(orders.name())
    table = lake.table(name)
    table.append(ROWS)
    then = catalog.load_table(name).current_snapshot()
    assert then is not None
    table.delete("id < 5")
    loaded = catalog.load_table(name)
    answer = table.vacuum(older_than="0s", execute=True)
    assert any("Iceberg" in str(each.reason) for each in answer.snapshots)
    old = StaticTable.from_metadata(loaded.metadata_location).scan(snapshot_id=then.snapshot_id).to_arrow()
    assert sorted(old["id"].to_pylist()) == list(range(10))


@pytest.mark.s3
def test_both_sides_write_in_a_bucket(start_server: StartServer, s3: S3Server, tmp_path: Path) -> None:
    """The client with its own credentials, the service with those of its settings."""
    warehouse, storage = s3.bucket("iceberg-writes"), {"s3": s3.storage_options}
    server = start_server(warehouse=warehouse, catalog=tmp_path / "catalog.db", store_options=json.dumps(storage))
    own = {
        "s3.endpoint": s3.endpoint_url,
        "s3.access-key-id": s3.storage_options["key"],
        "s3.secret-access-key": s3.storage_options["secret"],
        "s3.region": "us-east-1",
    }
    catalog = load_catalog("lake", type="rest", uri=f"{server.url}/iceberg", **own)
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=ROWS.schema)
    assert table.location().startswith("s3://iceberg-writes/")
    table.append(ROWS)
    with Lamella(server.url) as lake:
        found = lake.table("n.t").scan("id > 7", storage_options=storage).to_arrow()
        assert sorted(found["id"].to_pylist()) == [8, 9]
        lake.table("n.t").append(ROWS.slice(0, 1), storage_options=storage)
        lake.table("n.t").delete("id = 5", storage_options=storage)
        wanted = [0, 0, 1, 2, 3, 4, 6, 7, 8, 9]
        loaded = catalog.load_table("n.t")
        assert sorted(loaded.scan().to_arrow()["id"].to_pylist()) == wanted
        by_manifests = StaticTable.from_metadata(loaded.metadata_location, own)
        assert sorted(by_manifests.scan().to_arrow()["id"].to_pylist()) == wanted


@pytest.fixture
def app(tmp_path: Path) -> Any:
    """A service with keys."""
    settings = Settings(warehouse=str(tmp_path / "warehouse"), auth=True, root_key_sha256=ROOT_SHA256)
    with AppClient(create_app(settings)) as app:
        app.headers["Authorization"] = f"Bearer {ROOT_KEY}"
        yield app


def simple(name: str = "t", **more: Any) -> dict[str, Any]:
    """The body that creates a table."""
    fields = [{"id": 1, "name": "id", "type": "long", "required": False}]
    return {"name": name, "schema": {"type": "struct", "fields": fields}, **more}


def test_a_repeated_request_with_its_key_happens_once(app: AppClient) -> None:
    """The second answer is the first one; another body under the key is refused; errors too are repeated in Iceberg's
    form."""
    assert app.post(f"{ROOT}/namespaces", json={"namespace": ["n"]}).status_code == 200
    key = {"Idempotency-Key": "k1"}
    first = app.post(f"{ROOT}/namespaces/n/tables", json=simple(), headers=key)
    again = app.post(f"{ROOT}/namespaces/n/tables", json=simple(), headers=key)
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    other = app.post(f"{ROOT}/namespaces/n/tables", json=simple("u"), headers=key)
    assert (other.status_code, other.json()["error"]["type"]) == (409, "CommitFailedException")
    path, key = f"{ROOT}/namespaces/n/tables/t", {"Idempotency-Key": "k2"}
    body = {"updates": [{"action": "set-properties", "updates": {"a": "1"}}]}
    one, two = (app.post(path, json=body, headers=key).json() for _ in range(2))
    assert one == two
    assert one["metadata"]["properties"] == {"a": "1"}
    refused = {"requirements": [{"type": "assert-create"}], "updates": []}
    for _ in range(2):
        answer = app.post(path, json=refused, headers={"Idempotency-Key": "k3"})
        assert (answer.status_code, answer.json()["error"]["type"]) == (409, "CommitFailedException")


def test_a_transaction_commits_to_all_tables_or_none(app: AppClient) -> None:
    """An error names every table that is not as required."""
    app.post(f"{ROOT}/namespaces", json={"namespace": ["n"]})
    for name in ("a", "b", "c"):
        assert app.post(f"{ROOT}/namespaces/n/tables", json=simple(name)).status_code == 200

    def change(name: str, schema_id: int = 0) -> dict[str, Any]:
        return {
            "identifier": {"namespace": ["n"], "name": name},
            "requirements": [{"type": "assert-current-schema-id", "current-schema-id": schema_id}],
            "updates": [{"action": "set-properties", "updates": {"by": "transaction"}}],
        }

    def properties(name: str) -> dict[str, str]:
        found: dict[str, str] = app.get(f"{ROOT}/namespaces/n/tables/{name}").json()["metadata"]["properties"]
        return found

    path = f"{ROOT}/transactions/commit"
    bad = app.post(path, json={"table-changes": [change("a"), change("b", 5), change("c", 6)]})
    assert (bad.status_code, bad.json()["error"]["type"]) == (409, "CommitFailedException")
    assert all(f"n.{name}" in bad.json()["error"]["message"] for name in ("b", "c"))
    assert properties("a") == {}
    missing = app.post(path, json={"table-changes": [change("a"), change("nothing")]})
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NoSuchTableException")
    twice = app.post(path, json={"table-changes": [change("a"), change("a")]})
    assert twice.status_code == 400
    assert properties("a") == {}
    done = app.post(path, json={"table-changes": [change(name) for name in ("a", "b", "c")]})
    assert done.status_code == 204, done.text
    assert [properties(name) for name in ("a", "b", "c")] == [{"by": "transaction"}] * 3


def test_a_key_commits_only_where_it_may(app: AppClient) -> None:
    """And no table is at a location that it may not use, nor a metadata file read or written there."""
    app.post(f"{ROOT}/namespaces", json={"namespace": ["n"]})
    assert app.post(f"{ROOT}/namespaces/n/tables", json=simple("a")).status_code == 200
    grants = [{"role": "read", "namespace": "n"}]
    key = app.post("/v1/keys", json={"name": "reader", "grants": grants}).json()["key"]
    reader = {"Authorization": f"Bearer {key}"}
    body = {"updates": [{"action": "set-properties", "updates": {"a": "1"}}]}
    change = {"identifier": {"namespace": ["n"], "name": "a"}, **body}
    for method, path, sent in (
        ("POST", "/namespaces", {"namespace": ["m"]}),
        ("POST", "/namespaces/n/tables", simple("b")),
        ("POST", "/namespaces/n/tables/a", body),
        ("POST", "/transactions/commit", {"table-changes": [change]}),
        ("DELETE", "/namespaces/n/tables/a", None),
        ("POST", "/namespaces/n/register", {"name": "b", "metadata-location": "file:///x.metadata.json"}),
    ):
        answer = app.request(method, ROOT + path, headers=reader, json=sent)
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "ForbiddenException"), path
    for wrong in (
        simple("b", location="file:///elsewhere/b"),
        simple("b", properties={"write.metadata.path": "file:///elsewhere"}),
    ):
        answer = app.post(f"{ROOT}/namespaces/n/tables", json=wrong)
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "ForbiddenException")
    moved = {"updates": [{"action": "set-location", "location": "file:///elsewhere"}]}
    assert app.post(f"{ROOT}/namespaces/n/tables/a", json=moved).status_code == 403
    stolen = {"name": "b", "metadata-location": "file:///etc/x.metadata.json"}
    assert app.post(f"{ROOT}/namespaces/n/register", json=stolen).status_code == 403


def test_manifests_are_read_only_where_the_table_may_have_files(app: AppClient, tmp_path: Path) -> None:
    """A client names a list of another table: it is in the metadata, and neither blocks nor plans read it."""
    app.post(f"{ROOT}/namespaces", json={"namespace": ["n"]})
    assert app.post(f"{ROOT}/namespaces/n/tables", json=simple("a")).status_code == 200
    snapshot = {
        "snapshot-id": 7,
        "sequence-number": 1,
        "timestamp-ms": 1_795_000_000_000,
        "manifest-list": f"file://{tmp_path}/elsewhere/snap.avro",
        "summary": {"operation": "append"},
    }
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 7},
    ]
    path = f"{ROOT}/namespaces/n/tables/a"
    assert app.post(path, json={"updates": updates}).status_code == 200
    plan = app.post(f"{path}/plan", json={})
    assert (plan.status_code, plan.json()["error"]["type"]) == (403, "ForbiddenException")
    properties = app.get("/v1/namespaces/n/tables/a").json()["properties"]
    assert "is not in a location that this table may use" in properties["lamella.source.unread"]


def test_a_remembered_manifest_is_checked_again(orders: Table) -> None:
    """Another table may have named it, whose files this one may not use."""
    orders.append(ROWS)
    snapshot = orders.current_snapshot()
    assert snapshot is not None

    def refuse(location: str) -> None:
        raise LocationRefused(location)

    def read(location: str) -> bytes:
        return Path(location.removeprefix("file://")).read_bytes()

    entries = ManifestEntries()
    [manifest] = entries.listed(snapshot.manifest_list, Read(read, lambda _: None))
    assert [file.row_count for file in entries.files(manifest, Read(read, lambda _: None))] == [10]
    with pytest.raises(LocationRefused):
        entries.files(manifest, Read(read, refuse))


def test_a_table_is_not_among_the_files_of_the_service(
    lake: Lamella, catalog: Catalog, namespace: str, orders: Table, tmp_path: Path
) -> None:
    """Clients delete files below a table's location that no metadata names."""
    folder = lake.table(".".join(orders.name())).info().location
    warehouse = folder.rpartition("/")[0]
    for location in (folder, warehouse, warehouse.rpartition("/")[0], f"{warehouse}/other"):
        with pytest.raises(BadRequestError, match="files of the service"):
            catalog.create_table(f"{namespace}.bad", schema=ROWS.schema, location=location)
    made = catalog.create_table(f"{namespace}.good", schema=ROWS.schema, location=f"file://{tmp_path}/good")
    made.append(ROWS)
    assert ids_of(lake, f"{namespace}.good") == list(range(10))
    assert (tmp_path / "good" / "data").is_dir()


def test_a_table_of_format_version_1_is_registered_and_written(
    lake: Lamella, catalog: Catalog, namespace: str, tmp_path: Path
) -> None:
    """Its metadata lacks members of later versions."""
    other = SqlCatalog("other", uri=f"sqlite:///{tmp_path}/other.db", warehouse=f"file://{tmp_path}/old")
    other.create_namespace("o")
    old = other.create_table("o.t", schema=ROWS.schema, properties={"format-version": "1"})
    old.append(ROWS)
    name = f"{namespace}.old"
    table = catalog.register_table(name, old.metadata_location)
    assert ids_of(lake, name) == list(range(10))
    table.append(ROWS)
    assert len(ids_of(lake, name)) == 20
    with pytest.raises(InvalidRequest, match="format version 1"):
        lake.table(name).append(ROWS)
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    lake.table(name).append(ROWS)
    assert catalog.load_table(name).scan().count() == 30


def test_commits_to_lamellas_own_tables_are_refused(app: AppClient) -> None:
    """With the reason: their snapshots are Lamella's."""
    app.post("/v1/namespaces", json={"name": "n"})
    app.post("/v1/namespaces/n/tables", json={"name": "t", "schema": [{"name": "id", "type": "int64"}]})
    answer = app.post(f"{ROOT}/namespaces/n/tables/t", json={"updates": []})
    assert (answer.status_code, answer.json()["error"]["type"]) == (406, "UnsupportedOperationException")
