"""Lamella over a table's files: registered by their footers (or by their values), pruned from SQL text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq

from lamella.snapshot.parquet import read_footer, schema_of
from lamella.snapshot.parquet.ingest import ingest
from lamella.snapshot.stats.measure import measure
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from sharp.blocks import Blocks
from sharp.dialects import SPARK
from sharp.filters import Filter
from sharp.planner import Plan

#: Small enough that a table of a few hundred blocks has several segments, and every layer prunes.
SEGMENT_BLOCKS = 64


class LamellaPlanner:
    """A warehouse with one table. ``scanned``: statistics are measured from the values, as Lamella's writers do."""

    name = "Lamella"

    def __init__(self, blocks: Blocks, root: Path, *, scanned: bool = False) -> None:
        store = FsspecStore()
        locations = [f"file://{path}" for path in blocks.files]
        schema = schema_of(read_footer(store, locations[0]))
        registered, refused = ingest(store, locations, schema)
        if refused:
            raise RuntimeError(f"not registered: {refused[0]}")
        if scanned:
            registered = [
                msgspec.structs.replace(block, col_stats=measure(pq.read_table(path), schema))
                for block, path in zip(registered, blocks.files, strict=True)
            ]
        self._warehouse = Warehouse(store, f"file://{root}", segment_blocks=SEGMENT_BLOCKS)
        table_id = blocks.folder.name
        empty = self._warehouse.create(table_id, schema, now_ms=1)
        refs = self._warehouse.prepare(table_id, schema, registered)
        self._pointer = self._warehouse.commit(empty, added=refs, now_ms=2).pointer
        self._number = {location: index for index, location in enumerate(locations)}

    def plan(self, node: Filter) -> Plan:
        """One prune through every layer."""
        request = PruneRequest(filter=SPARK.sql(node), shape="columns")
        columns = self._warehouse.prune(self._pointer, request).block_columns
        assert columns is not None
        plan = Plan(np.zeros(len(self._number), dtype=bool), np.zeros(len(self._number), dtype=bool))
        for location, verdict in zip(columns.location, columns.verdict, strict=True):
            plan.selected[self._number[location]] = True
            plan.all_rows[self._number[location]] = verdict == "ALL"
        return plan
