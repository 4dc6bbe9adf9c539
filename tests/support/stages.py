"""Random tables in a real warehouse, beside their rows: what the tests of pruning stages start from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from lamella.snapshot.expression import Predicate
from lamella.snapshot.expression.nodes import TRUE
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from support import generate
from support.deleted import without_some
from support.oracle import Oracle
from support.term_oracle import Row

#: Seconds on a clock of the test's choice.
Timer = Callable[[], float]


@dataclass
class Lake:
    """One table at one snapshot; ``rows`` has each block's rows by its location."""

    schema: Schema
    warehouse: Warehouse
    pointer: SnapshotPointer
    rows: dict[str, list[dict[str, Any]]]
    seen: generate.Block
    oracle: Oracle

    def matching(self, predicate: Any, location: str) -> list[Row]:
        """The rows of a block for which the filter is true."""
        return [row for row in self.rows[location] if self.oracle.decide(predicate, row) is True]


def block(index: int, columns: generate.Block, stats: dict[int, ColumnStats], file_size: int = 100) -> Block:
    """A block of these columns."""
    return Block(
        location=f"memory://blocks/{index}.parquet",
        row_count=len(next(iter(columns.values()))),
        file_size=file_size,
        col_stats=stats,
    )


def weakened(rng: Random, schema: Schema, columns: generate.Block) -> dict[int, ColumnStats]:
    """True but weakened statistics of a block; some columns have none."""
    given = {leaf.id: generate.weakened_stats(rng, leaf.dtype, columns[leaf.name]) for leaf in schema.leaves()}
    return {column_id: stats for column_id, stats in given.items() if stats is not None}


def exact(schema: Schema, columns: generate.Block) -> dict[int, ColumnStats]:
    """The statistics of a full scan."""
    return {leaf.id: generate.exact_stats(leaf.dtype, columns[leaf.name]) for leaf in schema.leaves()}


def lake(
    rng: Random,
    *,
    blocks: int = 8,
    segment_blocks: int = 2,
    schema: Schema | None = None,
    deletes: bool = False,
    timer: Timer = time.perf_counter,
) -> Lake:
    """A random table of a few segments; half of them have exact statistics. ``deletes``: some rows are deleted."""
    schema = schema if schema is not None else generate.schema(rng)
    table = generate.table(rng, schema, blocks=blocks)
    exactly = rng.random() < 0.5
    made = [
        block(i, columns, exact(schema, columns) if exactly else weakened(rng, schema, columns), rng.randint(1, 300))
        for i, columns in enumerate(table)
    ]
    warehouse = Warehouse(FsspecStore(), "memory://stages", segment_blocks=segment_blocks, timer=timer)
    table_id = rng.randbytes(16).hex()
    rows = {one.location: generate.rows_of(columns) for one, columns in zip(made, table, strict=True)}
    if deletes:
        some = [without_some(rng, one, rows[one.location]) for one in made]
        made = [one for one, _ in some]
        rows = {one.location: left for one, left in some}
    pointer = warehouse.create(table_id, schema, now_ms=1)
    pointer = warehouse.commit(pointer, added=warehouse.prepare(table_id, schema, made), now_ms=2).pointer
    return Lake(schema, warehouse, pointer, rows, generate.seen_values(schema, table), Oracle(schema))


def counting(*, blocks: int = 4, rows: int = 10, segment_blocks: int = 2, timer: Timer = time.perf_counter) -> Lake:
    """Columns ``a``, ``s`` and ``x`` that count on from block to block, and a list ``l`` without statistics."""
    element = Column(name="element", type="int64")
    schema = Schema.assign(
        [
            Column(name="a", type="int64"),
            Column(name="s", type="string"),
            Column(name="x", type="float64"),
            Column(name="l", type="list", fields=(element,)),
        ]
    )
    leaves = {leaf.name: leaf for leaf in schema.leaves()}
    made, rows_by_location = [], {}
    for index in range(blocks):
        values = range(index * rows, (index + 1) * rows)
        columns: generate.Block = {
            "a": list(values),
            "s": [f"v{value:06}".encode() for value in values],
            "x": [value / 2 for value in values],
        }
        stats = {leaves[name].id: generate.exact_stats(leaves[name].dtype, cells) for name, cells in columns.items()}
        one = block(index, columns, stats)
        made.append(one)
        rows_by_location[one.location] = generate.rows_of(columns)
    warehouse = Warehouse(
        FsspecStore(), "memory://stages", segment_blocks=segment_blocks, timer=timer, token_secret=b"s" * 32
    )
    table_id = Random(blocks).randbytes(16).hex()
    pointer = warehouse.create(table_id, schema, now_ms=1)
    pointer = warehouse.commit(pointer, added=warehouse.prepare(table_id, schema, made), now_ms=2).pointer
    return Lake(schema, warehouse, pointer, rows_by_location, {}, Oracle(schema))


def number_of(location: str) -> int:
    """The number in a block's location."""
    return int(location.rpartition("/")[2].removesuffix(".parquet"))


def everything() -> Predicate:
    """The filter that every row matches."""
    return TRUE
