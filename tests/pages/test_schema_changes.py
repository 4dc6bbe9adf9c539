"""Pages through schema changes: a column is its id, whatever the file calls it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn, SchemaChange, WidenColumn
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from pages.page_tables import answered_rows, proven_rows

ROWS = 60
CHANGES: list[SchemaChange] = [
    RenameColumn(column="a", name="x"),
    RenameColumn(column="b", name="a"),
    DropColumn(column="c"),
    AddColumn(name="c", type="int64", default="5"),
    WidenColumn(column="x", type="int64"),
    WidenColumn(column="d", type="decimal(20,4)"),
]

Row = dict[str, Any]


def now(at: int) -> Row:
    """Row ``at`` of the file as the changed table has it: x was a, a was b, c is new."""
    return {"x": at - 20, "a": f"t{ROWS - at:03d}", "c": 5, "d": at * 100}


FILTERS: list[tuple[str, Callable[[Row], bool]]] = [
    ("x = 3", lambda row: row["x"] == 3),
    ("x = 3000000000", lambda _: False),
    ("a = 't030'", lambda row: row["a"] == "t030"),
    ("a > 't030' AND x > 0", lambda row: row["a"] > "t030" and row["x"] > 0),
    ("c = 5", lambda _: True),
    ("c > 5 OR x < -10", lambda row: row["x"] < -10),
    ("c = 5 AND x IN (1, 30)", lambda row: row["x"] in (1, 30)),
    ("d >= 12.5 AND d < 13.25", lambda row: 1250 <= row["d"] < 1325),
    ("d = 12.0050", lambda _: False),
]


@pytest.mark.parametrize("build", ["never", "before", "after", "both"])
def test_ranges_follow_columns_through_renames_and_widening(tmp_path: Path, build: str) -> None:
    """Out of the file, of a sidecar older than the changes, and of one built after them."""
    at = range(ROWS)
    table = pa.table(
        {
            "a": pa.array([k - 20 for k in at], pa.int32()),
            "b": [f"t{ROWS - k:03d}" for k in at],
            "c": pa.array([k * 7 for k in at], pa.int64()),
            "d": pa.array([Decimal(k) for k in at], pa.decimal128(10, 2)),
        }
    )
    path = tmp_path / "f.parquet"
    pq.write_table(table, path, write_page_index=True, max_rows_per_page=5, row_group_size=25)
    store = FsspecStore()
    schema = schema_of(read_footer(store, f"file://{path}"))
    blocks, _ = ingest(store, [f"file://{path}"], schema)
    warehouse = Warehouse(store, f"file://{tmp_path}/lake")
    pointer = warehouse.create("t", schema, now_ms=1)
    pointer = warehouse.commit(pointer, added=warehouse.prepare("t", schema, blocks), now_ms=2).pointer
    if build in ("before", "both"):
        warehouse.build_pages(pointer)
    pointer = warehouse.evolve(pointer, CHANGES, now_ms=3).pointer
    if build in ("after", "both"):
        warehouse.build_pages(pointer, rebuild=True)
    fresh = Warehouse(store, f"file://{tmp_path}/lake")
    for text, matches in FILTERS:
        answer = fresh.prune(pointer, PruneRequest(filter=text, level="page", columns=("x", "a", "c", "d")))
        assert answer.blocks is not None
        wanted = {k for k in at if matches(now(k))}
        if not answer.blocks:
            assert not wanted, text
            continue
        (block,) = answer.blocks
        assert block.pages is not None
        rows = answered_rows(block.pages, ROWS)
        assert wanted <= rows, text
        assert proven_rows(block.pages) <= wanted, text
        assert len(rows) <= len(wanted) + 10, f"{text}: pages are told apart"
        assert block.pages.unplaced == ["c"]
        assert [column.column for column in block.pages.columns or ()] == ["x", "a", "d"]
