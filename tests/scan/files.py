"""Tables of files that a test has written itself, and a store that says which bytes were read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from pages.reads_counted import ReadsCounted
from scan.planning import WarehouseTable


def written(
    folder: Path, *tables: pa.Table, schema: Schema | None = None, verify: bool = False, **options: Any
) -> WarehouseTable:
    """Each table as a file ``0.parquet``, ``1.parquet``, ... of one table, with a page index. ``verify``: with exact
    statistics."""
    paths = [folder / f"{at}.parquet" for at in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, **{"write_page_index": True, **options})
    return of_files(paths, schema=schema, verify=verify)


def of_files(paths: list[Path], *, schema: Schema | None = None, verify: bool = False) -> WarehouseTable:
    """Files that exist as one table."""
    store = FsspecStore()
    locations = [f"file://{path}" for path in paths]
    of = schema if schema is not None else schema_of(read_footer(store, locations[0]))
    blocks, refused = ingest(store, locations, of, workers=1, verify=verify)
    assert refused == []
    warehouse = Warehouse(store, f"memory://{paths[0].parent}")
    empty = warehouse.create("t", of, now_ms=1)
    pointer = warehouse.commit(empty, added=warehouse.prepare("t", of, blocks), now_ms=2).pointer
    return WarehouseTable(warehouse, pointer)


class RangesSeen(ReadsCounted):
    """A store that remembers every range that was read, as (offset, bytes)."""

    def __init__(self) -> None:
        super().__init__(FsspecStore())
        self.ranges: list[tuple[int, int]] = []

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """As the store does."""
        data = super().read_range(location, start, length)
        self.ranges.append((start, len(data)))
        return data
