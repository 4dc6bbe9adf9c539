"""Tables of Lamella become tables that Iceberg clients commit to, with the same files."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import StaticTable
from pyiceberg.types import IntegerType

from iceberg_rest.test_writes import History
from lamella.client.http import Lamella
from lamella.client.http import Table as LamellaTable
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.rewrite import Bounds, purge
from lamella.client.rewrite.engine import SerialEngine
from lamella.snapshot.errors import InvalidRequest, LamellaError, NotExpressible
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.evolution import AddCheck, AddColumn

IDS = pa.table({"id": pa.array(range(10), pa.int64())})


@pytest.fixture
def name() -> str:
    """An unused name of a table."""
    return f"ice.c{uuid.uuid4().hex[:8]}"


@pytest.fixture
def numbers(lake: Lamella, name: str) -> LamellaTable:
    """A table of Lamella with ten rows."""
    lake.create_table(name, schema=IDS.schema)
    table = lake.table(name)
    table.append(IDS)
    return table


def ids(rows: pa.Table) -> list[int]:
    """The ids of rows, in order."""
    return sorted(rows["id"].to_pylist())


class ConvertedHistory(History):
    """A table that Lamella's writers made and changed, before its conversion."""

    def __init__(self, catalog: Catalog, name: str, chance: random.Random, lake: Lamella) -> None:
        lake.create_table(name, schema=pa.schema({"id": pa.int64()}))
        super().__init__(catalog, name, chance, lake, version=2, creates=False)
        table = lake.table(name)
        for _ in range(12):
            self._number += 1
            if chance.random() < 0.3:
                self._change_columns(table)
            else:
                self._change_rows(
                    table, chance.choice(["append", "delete", "upsert", "compact"]), self._number, self._number * 7 % 60
                )
        purge(JobContext(lake=lake, table=name, engine=SerialEngine()), Bounds(min_deleted_share=0.0))
        self.snapshot_ids = [entry.snapshot_id for entry in table.snapshots()]
        self.rows_before = table.scan().to_arrow()
        table.convert_to_iceberg()


def test_random_commits_before_and_after_a_conversion_leave_the_rows_that_they_should(
    lake: Lamella, catalog: Catalog, name: str
) -> None:
    """Lamella's rows, deletions and columns, then commits of both sides; by all readers after each commit."""
    for seed in range(8):
        history = ConvertedHistory(catalog, f"{name}_{seed}", random.Random(seed), lake)
        history.check(lake)
        for step in range(12):
            history.change(step)
            history.check(lake)
        past = lake.table(f"{name}_{seed}").scan(snapshot_id=history.snapshot_ids[0]).to_arrow()
        assert sorted(map(repr, past.to_pylist())) == sorted(map(repr, history.rows_before.to_pylist()))


def test_columns_of_all_kinds_are_read_by_both_sides(lake: Lamella, catalog: Catalog, name: str) -> None:
    """Nested columns, and types that Iceberg has in a wider form: the table has these from then on."""
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int16()),
            "s": pa.array([{"x": 1, "y": "a"}, None], pa.struct({"x": pa.int64(), "y": pa.string()})),
            "l": pa.array([[1, 2], []], pa.list_(pa.int32())),
            "m": pa.array([[("k", 1.5)], None], pa.map_(pa.string(), pa.float64())),
            "d": pa.array([None, 12], pa.decimal128(10, 2)),
            "t": pa.array([0, 1], pa.timestamp("us", "UTC")),
        }
    )
    lake.create_table(name, schema=rows.schema)
    table = lake.table(name)
    table.append(rows)
    wanted = rows.to_pylist()
    table.convert_to_iceberg()
    assert table.schema().schema.columns[0].type == "int32"
    for step in range(2):
        loaded = catalog.load_table(name)
        by_manifests = StaticTable.from_metadata(loaded.metadata_location)
        for found in (loaded.scan().to_arrow(), by_manifests.scan().to_arrow(), table.scan().to_arrow()):
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted * (step + 1)))
        loaded.append(rows.cast(loaded.schema().as_arrow()))
    assert table.scan("s.x = 1").to_arrow().num_rows == 3


def test_folders_with_values_become_partitions(lake: Lamella, catalog: Catalog, name: str, tmp_path: Path) -> None:
    """Clients read the values of files in folders as identity partitions, and prune by them."""
    for day in ("mon", "tue"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(IDS, tmp_path / f"day={day}" / "part.parquet")
    lake.create_table(name, schema=pa.schema({"id": pa.int64(), "day": pa.string()}))
    table = lake.table(name)
    table.register([f"{tmp_path}/*/*.parquet"], path_columns="read")
    table.convert_to_iceberg()
    loaded = catalog.load_table(name)
    for read in (loaded, StaticTable.from_metadata(loaded.metadata_location)):
        found = read.scan("day = 'tue' and id < 3").to_arrow().to_pylist()
        assert sorted(row["id"] for row in found) == [0, 1, 2]
        assert {row["day"] for row in found} == {"tue"}
    loaded.delete("day = 'mon'")
    loaded.append(pa.table({"id": [77], "day": ["tue"]}))
    assert ids(table.scan().to_arrow()) == [*range(10), 77]


def test_what_the_table_had_stays(catalog: Catalog, name: str, numbers: LamellaTable) -> None:
    """Its id, history, tags, indexes and properties; clients see the same snapshot under the same number."""
    numbers.tag("first")
    numbers.create_index("by_id", "bloom", "id")
    numbers.append(pa.table({"id": pa.array([50], pa.int64())}))
    before = numbers.info()
    number = catalog.load_table(name).metadata.current_snapshot_id
    answer = numbers.convert_to_iceberg()
    loaded = catalog.load_table(name)
    assert (loaded.metadata_location, loaded.metadata.current_snapshot_id) == (answer.metadata_location, number)
    assert str(loaded.metadata.table_uuid) == before.table_id == numbers.info().table_id
    assert (answer.block_count, answer.row_count) == (2, 11)
    assert ids(numbers.scan(snapshot_id="first").to_arrow()) == list(range(10))
    assert [index.name for index in numbers.indexes()] == ["by_id"]
    assert next(iter(numbers.snapshots())).operation == "convert"


def test_a_required_column_stays_required_until_a_client_changes_it(lake: Lamella, catalog: Catalog, name: str) -> None:
    """Neither side writes a null before that, and both sides do afterwards."""
    columns = [Column(name="id", type="int64", nullable=False), Column(name="s", type="string")]
    lake.create_table(name, schema=columns)
    table = lake.table(name)
    table.append(pa.table({"id": pa.array([1, 2], pa.int64()), "s": ["a", None]}))
    table.convert_to_iceberg()
    loaded = catalog.load_table(name)
    assert [field.required for field in loaded.schema().fields] == [True, False]
    null = pa.table({"id": pa.array([None], pa.int64()), "s": ["b"]})
    with pytest.raises(LamellaError, match="id"):
        table.append(null)
    with pytest.raises(ValueError, match="id"):
        loaded.append(null)
    loaded.append(pa.table({"id": [3], "s": ["c"]}, schema=loaded.schema().as_arrow()))
    with loaded.update_schema() as schema:
        schema.make_column_optional("id")
    loaded.append(null)
    table.append(null)
    wanted = [1, 2, 3, None, None]
    loaded = catalog.load_table(name)
    for found in (table, loaded, StaticTable.from_metadata(loaded.metadata_location)):
        assert sorted(found.scan().to_arrow()["id"].to_pylist(), key=repr) == sorted(wanted, key=repr)
    assert table.scan("id IS NULL").to_arrow().num_rows == 2


def test_nothing_changes_in_a_dry_run(catalog: Catalog, name: str, numbers: LamellaTable) -> None:
    """It returns what would be converted, or the error."""
    before = numbers.info().snapshot_id
    answer = numbers.convert_to_iceberg(dry_run=True)
    assert (answer.snapshot_id, answer.metadata_location, answer.row_count) == (before, None, 10)
    assert numbers.info().snapshot_id == before
    with pytest.raises(Exception, match="or convert it"), catalog.load_table(name).transaction() as change:
        change.set_properties(a="b")


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (lambda table: table.delete("id = 3"), NotExpressible, "has deleted rows"),
        (lambda table: table.evolve([AddCheck(name="low", condition="id < 99")]), NotExpressible, "constraint 'low'"),
        (lambda table: table.evolve([AddColumn(name="u", type="uint32")]), NotExpressible, "unsigned"),
        (lambda table: table.evolve([AddColumn(name="n", type="int64", default="7")]), NotExpressible, "default"),
        (lambda table: table.create_branch("audit"), InvalidRequest, "has branches"),
        (lambda table: table.convert_to_iceberg(), InvalidRequest, "already"),
    ],
)
def test_a_table_that_would_be_wrong_afterwards_is_refused(
    numbers: LamellaTable, change: Callable[[LamellaTable], Any], error: type[Exception], reason: str
) -> None:
    """The error names the cause, in a dry run too, and nothing has changed."""
    change(numbers)
    before = numbers.info()
    for dry_run in (True, False):
        with pytest.raises(error, match=reason):
            numbers.convert_to_iceberg(dry_run=dry_run)
    assert numbers.info() == before


def test_required_parts_of_lists_are_refused(lake: Lamella, name: str) -> None:
    """No statistics tell whether clients write nulls there."""
    element = Column(name="element", type="int64", nullable=False)
    lake.create_table(name, schema=[Column(name="l", type="list", fields=(element,))])
    with pytest.raises(NotExpressible, match="column 'l' is required"):
        lake.table(name).convert_to_iceberg()


def test_rows_that_arrive_during_a_conversion_are_in_the_table(
    rest_url: str, catalog: Catalog, name: str, numbers: LamellaTable
) -> None:
    """Commits and the conversion try again on what the other left; none is lost, and none has half of it."""
    stop, added = threading.Event(), list(range(10))

    def append() -> None:
        with Lamella(rest_url) as other:
            for number in range(100, 10_000):
                if stop.is_set():
                    return
                other.table(name).append(pa.table({"id": pa.array([number], pa.int64())}))
                added.append(number)

    writer = threading.Thread(target=append)
    writer.start()
    try:
        numbers.convert_to_iceberg()
        assert catalog.load_table(name).scan().count() >= 10
    finally:
        stop.set()
        writer.join()
    with catalog.load_table(name).update_schema() as schema:
        schema.add_column("more", IntegerType())
    loaded = catalog.load_table(name)
    for found in (numbers, loaded, StaticTable.from_metadata(loaded.metadata_location)):
        assert ids(found.scan().to_arrow()) == added
