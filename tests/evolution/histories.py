"""Random lives of a table: appends, schema changes, removals, late appends; beside it the rows as a reader sees them.

A block's rows are kept by column id, in the types of the schema they were written with. What they are under a later
schema is worked out here on the values themselves, without the code under test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.schema import Column, DataType, Leaf, Schema
from lamella.snapshot.schema.column import default_value
from lamella.snapshot.schema.evolution import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    WidenColumn,
    evolve,
)
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from support import generate

_NAMES = ("c0", "c1", "c2", "c3", "c4")
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
#: A type, and types that it may become.
WIDER = {
    "int8": ("int16", "int32", "int64", "float64", "decimal(10,0)", "decimal(14,3)"),
    "int16": ("int32", "int64", "float64", "decimal(38,20)"),
    "int32": ("int64", "float64", "decimal(12,2)", "decimal(20,0)"),
    "int64": ("decimal(20,0)", "decimal(24,4)"),
    "date": ("timestamp_ntz(us)",),
    "uint8": ("uint16", "uint64", "int16", "int64"),
    "uint32": ("uint64", "int64"),
    "float16": ("float32", "float64"),
    "float32": ("float64",),
    "decimal(5,2)": ("decimal(10,2)", "decimal(10,4)", "decimal(30,5)"),
    "decimal(18,4)": ("decimal(20,4)", "decimal(38,10)"),
    "timestamp(ms)": ("timestamp(us)", "timestamp(ns)"),
    "timestamp(us)": ("timestamp(ns)",),
    "fixed(4)": ("binary",),
    "uuid": ("binary",),
}
_DEFAULTS = {
    "boolean": "true",
    "int8": "3",
    "int16": "-2",
    "int32": "0",
    "int64": "5",
    "uint8": "4",
    "uint32": "1",
    "float32": "0.5",
    "float64": "-0.0",
    "decimal(5,2)": "0.03",
    "decimal(18,4)": "-0.0001",
    "date": "1970-01-02",
    "timestamp(ms)": "1970-01-01T00:00:01Z",
    "timestamp(us)": "1969-12-31T23:59:59.999999Z",
    "string": "ab",
    "binary": "61",
    "fixed(4)": "61616161",
}


@dataclass
class WrittenBlock:
    """One block: what was written, under which schema."""

    location: str
    schema: Schema
    rows: list[dict[int, Any]]


@dataclass
class History:
    """A table with its blocks by location, and its snapshots with what was in each."""

    seed: int
    rng: Random = field(init=False)
    blocks: dict[str, WrittenBlock] = field(default_factory=dict)
    states: list[tuple[SnapshotPointer, tuple[str, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.warehouse = Warehouse(FsspecStore(), "memory://histories", segment_blocks=self.rng.choice([1, 2, 3]))
        self.table_id = self.rng.randbytes(16).hex()
        pointer = self.warehouse.create(self.table_id, generate.schema(self.rng), now_ms=1)
        self.states.append((pointer, ()))

    @property
    def pointer(self) -> SnapshotPointer:
        """The snapshot in force."""
        return self.states[-1][0]

    def live(self, steps: int) -> None:
        """Do random things."""
        for _ in range(steps):
            kind = self.rng.choice(["append", "append", "late append", "evolve", "evolve", "remove"])
            if kind == "evolve":
                self._evolve()
            elif kind == "remove":
                self._remove()
            else:
                self._append(self.states[-1] if kind == "append" else self.rng.choice(self.states))

    def rows(self, location: str, schema: Schema) -> list[dict[str, Any]]:
        """The rows of a block as a reader under ``schema`` sees them, by column name."""
        block = self.blocks[location]
        before = block.schema.by_id()
        return [
            {leaf.name: _seen(row.get(leaf.id, _ABSENT), before.get(leaf.id), leaf) for leaf in schema.leaves()}
            for row in block.rows
        ]

    def seen(self, schema: Schema, locations: Sequence[str]) -> generate.Block:
        """Every value of every leaf."""
        rows = [row for location in locations for row in self.rows(location, schema)]
        return {leaf.name: [row[leaf.name] for row in rows] for leaf in schema.leaves()}

    def _append(self, prepared_at: tuple[SnapshotPointer, tuple[str, ...]]) -> None:
        """Append under the schema of a snapshot, to the one in force."""
        head = self.warehouse.head(prepared_at[0])
        made = [self._block(head.schema) for _ in range(self.rng.randint(1, 3))]
        refs = self.warehouse.prepare(self.table_id, head, made)
        result = self.warehouse.commit(self.pointer, added=refs, now_ms=2)
        self.states.append((result.pointer, (*self.states[-1][1], *(block.location for block in made))))

    def _block(self, schema: Schema) -> Block:
        rng = self.rng
        columns = generate.table(rng, schema, blocks=1)[0]
        count = len(next(iter(columns.values())))
        location = f"memory://files/{len(self.blocks)}.parquet"
        stats: dict[int, ColumnStats] = {}
        rows: list[dict[int, Any]] = [{} for _ in range(count)]
        for leaf in schema.leaves():
            if rng.random() < 0.15:  # the file does not have the column
                columns[leaf.name] = [_default(leaf)] * count
            else:
                for row, cell in zip(rows, columns[leaf.name], strict=True):
                    row[leaf.id] = cell
            given = generate.weakened_stats(rng, leaf.dtype, columns[leaf.name])
            if given is not None:
                stats[leaf.id] = given
        self.blocks[location] = WrittenBlock(location, schema, rows)
        return Block(location=location, row_count=count, file_size=100, col_stats=stats, schema_id=schema.schema_id)

    def _evolve(self) -> None:
        head = self.warehouse.head(self.pointer)
        changes: list[SchemaChange] = []
        schema = head.schema
        for _ in range(self.rng.randint(1, 3)):
            change = self._change(schema)
            try:
                schema = evolve(schema, [change], history=head.history)
            except LamellaError:
                continue  # refused, as it should be
            changes.append(change)
        if schema.columns != head.schema.columns:
            pointer = self.warehouse.evolve(self.pointer, changes, now_ms=3).pointer
            assert self.warehouse.head(pointer).schema.columns == schema.columns
            self.states.append((pointer, self.states[-1][1]))

    def _change(self, schema: Schema) -> SchemaChange:
        rng = self.rng
        tops = [column.name for column in schema.columns]
        leaf = rng.choice(schema.leaves())
        kind = rng.choice(["add", "add", "add field", "drop", "rename", "rename", "widen", "widen", "widen", "move"])
        if kind == "add":
            dtype = rng.choice(list(_DEFAULTS))
            default = _DEFAULTS[dtype] if rng.random() < 0.5 else None
            return AddColumn(name=rng.choice(_NAMES), type=dtype, default=default, first=rng.random() < 0.3)
        if kind == "add field":
            return AddColumn(name=rng.choice(_NAMES), type=rng.choice(list(_DEFAULTS)), parent=rng.choice(tops))
        if kind == "drop":
            return DropColumn(column=rng.choice([leaf.path, (rng.choice(tops),)]))
        if kind == "rename":
            return RenameColumn(column=rng.choice([leaf.path, (rng.choice(tops),)]), name=rng.choice(_NAMES))
        if kind == "move":
            return MoveColumn(column=rng.choice(tops), first=True)
        return WidenColumn(column=leaf.path, type=rng.choice(WIDER.get(str(leaf.dtype), ("int64",))))

    def _remove(self) -> None:
        pointer, present = self.states[-1]
        gone = [location for location in present if self.rng.random() < 0.3]
        if gone:
            result = self.warehouse.commit(pointer, removed=gone, operation="delete", now_ms=4)
            left = tuple(location for location in present if location not in gone)
            self.states.append((result.pointer, left))


_ABSENT = object()


def _seen(value: Any, before: Leaf | None, leaf: Leaf) -> Any:
    if value is _ABSENT or before is None:
        return _default(leaf)
    return widened_value(value, before.dtype, leaf.dtype)


def _default(leaf: Leaf) -> Any:
    return None if leaf.default is None else default_value(leaf.dtype, leaf.default)


def widened_value(value: Any, source: DataType, target: DataType) -> Any:
    """A value of the old type as one of the new type; None stays None."""
    if value is None:
        return None
    if target.name == "decimal":
        return value * 10 ** (target.scale - source.scale)
    if source.name == "date" and target.name == "timestamp_ntz":
        return value * 86_400_000_000
    if target.is_float:
        return float(value)
    if source.name == "timestamp":
        return value * _PER_SECOND[target.unit] // _PER_SECOND[source.unit]
    return value


def schema_of(*columns: tuple[str, str]) -> Schema:
    """A schema of nullable columns."""
    return Schema.assign([Column(name=name, type=dtype) for name, dtype in columns])
