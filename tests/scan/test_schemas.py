"""Blocks of older schemas, and older snapshots: rows by column id, under the names of the snapshot that is read."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn, WidenColumn
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from scan.planning import WarehouseTable

FIRST = Schema.assign(
    [
        Column(name="id", type="int32"),
        Column(name="a", type="string"),
        Column(name="gone", type="float64"),
        Column(name="s", type="struct", fields=(Column(name="x", type="int32"), Column(name="y", type="string"))),
    ]
)
CHANGES = (
    RenameColumn(column="a", name="b"),
    DropColumn(column="gone"),
    WidenColumn(column="id", type="int64"),
    RenameColumn(column="s.x", name="wide"),
    WidenColumn(column="s.wide", type="int64"),
    AddColumn(name="z", type="int32", parent="s"),
    AddColumn(name="a", type="int64"),
    AddColumn(name="gone", type="int32", default="7", nullable=False),
)
OLD = pa.table(
    {
        "ID": pa.array([1, 2, 3], pa.int32()),
        "a": ["one", "two", None],
        "gone": [0.5, 1.5, 2.5],
        "s": pa.array(
            [{"x": 1, "y": "p"}, None, {"x": None, "y": "q"}], pa.struct([("x", pa.int32()), ("y", pa.string())])
        ),
    }
)
NEW = pa.table(
    {
        "id": pa.array([4, 2**40], pa.int64()),
        "b": ["four", "big"],
        "s": pa.array(
            [{"wide": 4, "y": "r", "z": 1}, {"wide": 2**41, "y": None, "z": None}],
            pa.struct([("wide", pa.int64()), ("y", pa.string()), ("z", pa.int32())]),
        ),
        "a": [40, None],
        "gone": pa.array([8, 7], pa.int32()),
    }
)


def evolved(folder: Path) -> tuple[WarehouseTable, SnapshotPointer]:
    """A table that changed its schema between two files, and its snapshot before."""
    store = FsspecStore()
    warehouse = Warehouse(store, f"memory://{folder}")
    pointer = warehouse.create("t", FIRST, now_ms=1)
    pointers = []
    for number, table in enumerate((OLD, NEW)):
        path = folder / f"{number}.parquet"
        pq.write_table(table, path, write_page_index=True)
        head = warehouse.head(pointer)
        blocks, refused = ingest(store, [f"file://{path}"], head.schema, workers=1)
        assert refused == []
        pointer = warehouse.commit(pointer, added=warehouse.prepare("t", head, blocks), now_ms=2).pointer
        pointers.append(pointer)
        if number == 0:
            pointer = warehouse.evolve(pointer, CHANGES, now_ms=3).pointer
    return WarehouseTable(warehouse, *pointers), pointers[0]


def test_old_and_new_blocks_are_read_as_one_table(tmp_path: Path) -> None:
    """Renamed, widened, dropped, added and added again: every value stays with its column."""
    table, _ = evolved(tmp_path)
    found = table.scan().to_arrow().sort_by("id")
    assert [str(kind) for kind in found.schema.types[:2]] == ["int64", "string"]
    assert found.to_pylist() == [
        {"id": 1, "b": "one", "s": {"wide": 1, "y": "p", "z": None}, "a": None, "gone": 7},
        {"id": 2, "b": "two", "s": None, "a": None, "gone": 7},
        {"id": 3, "b": None, "s": {"wide": None, "y": "q", "z": None}, "a": None, "gone": 7},
        {"id": 4, "b": "four", "s": {"wide": 4, "y": "r", "z": 1}, "a": 40, "gone": 8},
        {"id": 2**40, "b": "big", "s": {"wide": 2**41, "y": None, "z": None}, "a": None, "gone": 7},
    ]


def test_columns_that_became_another_kind_are_read_from_old_files(tmp_path: Path) -> None:
    """Integers as doubles and decimals, dates as timestamps: each value is equal to the one in the file."""
    kinds = {"f": ("int32", "float64"), "n": ("int64", "decimal(22,2)"), "t": ("date", "timestamp_ntz(us)")}
    store, path = FsspecStore(), tmp_path / "old.parquet"
    warehouse = Warehouse(store, f"memory://{tmp_path}")
    pointer = warehouse.create("t", Schema.assign([Column(name=n, type=t) for n, (t, _) in kinds.items()]), now_ms=1)
    dates = [date(1600, 2, 29), date(1970, 1, 1), None]
    rows = {"f": pa.array([-7, 2**31 - 1, None], pa.int32()), "n": [-(2**63), 2**63 - 1, None], "t": dates}
    pq.write_table(pa.table(rows), path, row_group_size=1, write_page_index=True)
    head = warehouse.head(pointer)
    blocks, refused = ingest(store, [f"file://{path}"], head.schema, workers=1)
    assert refused == []
    pointer = warehouse.commit(pointer, added=warehouse.prepare("t", head, blocks), now_ms=2).pointer
    changes = [WidenColumn(column=n, type=t) for n, (_, t) in kinds.items()]
    pointer = warehouse.evolve(pointer, changes, now_ms=3).pointer
    table = WarehouseTable(warehouse, pointer)
    first = {"f": -7.0, "n": Decimal(-(2**63)), "t": datetime(1600, 2, 29)}  # noqa: DTZ001  # without a zone
    second = {"f": float(2**31 - 1), "n": Decimal(2**63 - 1), "t": datetime(1970, 1, 1)}  # noqa: DTZ001
    assert table.scan().to_arrow().to_pylist() == [first, second, dict.fromkeys(kinds)]
    for condition, expected in {
        "f = -7": [first],
        "f > -6.5D AND f < 2147483647.5D": [second],
        "f = 0.5D": [],
        "n = -9223372036854775808.00": [first],
        "n > 9223372036854775806.99": [second],
        "t < TIMESTAMP_NTZ '1970-01-01 00:00:00'": [first],
        "t = TIMESTAMP_NTZ '1970-01-01 00:00:00'": [second],
        "t > TIMESTAMP_NTZ '1970-01-01 00:00:00'": [],
    }.items():
        assert table.scan(condition).to_arrow().to_pylist() == expected, condition


def test_filters_speak_of_the_columns_as_they_are_now(tmp_path: Path) -> None:
    """A column that a file lacks is null there, or has its default; an old name means what it means now."""
    table, _ = evolved(tmp_path)
    wanted = {
        "gone = 7": [1, 2, 3, 2**40],
        "a IS NULL": [1, 2, 3, 2**40],
        "b >= 'o'": [1, 2],
        "s.wide IS NULL": [2, 3],
        "s.wide + 1 > 3": [4, 2**40],
        "s.z = 1": [4],
        "id * 2 > 6": [4, 2**40],
    }
    for condition, ids in wanted.items():
        found = table.scan(condition, columns=("id", "s.z")).to_arrow()
        assert sorted(found.column("id").to_pylist()) == ids, condition
        assert table.scan(condition).count() == len(ids), condition


def test_an_older_snapshot_has_its_own_columns(tmp_path: Path) -> None:
    """Time travel reads rows, names and types as they were."""
    table, before = evolved(tmp_path)
    scan = table.scan("gone > 1 AND a = 'two'", snapshot_id=before.snapshot_id)
    assert scan.to_arrow().to_pylist() == [{"id": 2, "a": "two", "gone": 1.5, "s": None}]
    assert str(scan.schema.field("id").type) == "int32"


_NUMBER = pa.int32()
#: Rows of structs, and of lists, maps and structs that contain them; each field ``x`` is dropped later.
NESTED = pa.table(
    {
        "id": pa.array(range(4), _NUMBER),
        "s": pa.array([{"x": 1}, None, {"x": None}, {"x": 4}], pa.struct([("x", _NUMBER)])),
        "l": pa.array(
            [[{"x": 1}, None], None, [], [{"x": None}]], pa.list_(pa.field("element", pa.struct([("x", _NUMBER)])))
        ),
        "m": pa.array(
            [[("k", {"x": 1}), ("o", None)], None, [], [("k", {"x": 4})]],
            pa.map_(pa.string(), pa.struct([("x", _NUMBER)])),
        ),
        "o": pa.array(
            [{"in": {"x": 1}}, {"in": None}, None, {"in": {"x": None}}],
            pa.struct([("in", pa.struct([("x", _NUMBER)]))]),
        ),
    }
)
REPLACED = tuple(
    change
    for parent in ("s", "l.element", "m.value", "o.in")
    for change in (AddColumn(name="y", type="int64", parent=parent), DropColumn(column=f"{parent}.x"))
)


def replaced(folder: Path) -> WarehouseTable:
    """A table whose structs have none of the fields that its file has."""
    store = FsspecStore()
    location = f"file://{folder}/0.parquet"
    pq.write_table(NESTED, folder / "0.parquet", write_page_index=True, data_page_size=1, write_batch_size=1)
    schema = schema_of(read_footer(store, location))
    warehouse = Warehouse(store, f"memory://{folder}")
    pointer = warehouse.create("t", schema, now_ms=1)
    blocks, refused = ingest(store, [location], schema, workers=1)
    assert refused == []
    pointer = warehouse.commit(pointer, added=warehouse.prepare("t", schema, blocks), now_ms=2).pointer
    return WarehouseTable(warehouse, warehouse.evolve(pointer, REPLACED, now_ms=3).pointer)


def test_a_struct_remains_when_its_last_old_field_is_dropped(tmp_path: Path) -> None:
    """The file says which structs, lists and maps are null, whichever fields the table still has of them."""
    table = replaced(tmp_path)
    new = {"y": None}
    rows: list[dict[str, Any]] = [
        {"id": 0, "s": new, "l": [new, None], "m": [("k", new), ("o", None)], "o": {"in": new}},
        {"id": 1, "s": None, "l": None, "m": None, "o": {"in": None}},
        {"id": 2, "s": new, "l": [], "m": [], "o": None},
        {"id": 3, "s": new, "l": [new], "m": [("k", new)], "o": {"in": new}},
    ]
    assert table.scan().to_arrow().to_pylist() == rows
    assert table.scan("id IN (1, 3)").to_arrow().to_pylist() == [rows[1], rows[3]]
    for name in ("s", "l", "m", "o"):
        assert table.scan("id >= 2", columns=(name,)).to_arrow().to_pylist() == [{name: row[name]} for row in rows[2:]]


def test_a_field_that_replaced_all_others_is_null_by_itself(tmp_path: Path) -> None:
    """Alone, counted and in filters, a field that the file lacks is null in every row; none is lost."""
    table = replaced(tmp_path)
    assert table.scan(columns=("s.y", "o.in.y")).to_arrow().column(0).null_count == 4
    for condition, ids in {
        "s.y IS NULL": [0, 1, 2, 3],
        "s.y IS NOT NULL": [],
        "o.in.y IS NULL AND id > 1": [2, 3],
    }.items():
        assert table.scan(condition, columns=("id",)).to_arrow()["id"].to_pylist() == ids
        assert table.scan(condition).count() == len(ids)
