"""Truthful reports stay true, whatever becomes of the table: a model of rows beside real files and manifests."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.snapshot.commit import Shape
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression import read_filter
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.manifest.block_key import BlockKeys, are_among, no_keys
from lamella.snapshot.parquet import ingest
from lamella.snapshot.reader_feedback import digest_of
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn, SchemaChange, WidenColumn
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest

_ARROW = {"int32": pa.int32(), "int64": pa.int64()}
Cells = dict[str, list[int | None]]


@dataclass
class ConstantTerm:
    """A block: the cells of its file by the names in it, and the names that columns (by id) had when it came."""

    cells: Cells
    names: dict[int, str]


@dataclass
class State:
    """A snapshot, and what rows it should have."""

    pointer: SnapshotPointer
    columns: tuple[Column, ...]
    blocks: dict[str, ConstantTerm]


@dataclass
class Lake:
    """One table, its model, and everything that readers ever reported."""

    random: Random
    root: str
    store: FsspecStore = field(default_factory=FsspecStore)
    facts: dict[bytes, BlockKeys] = field(default_factory=dict)
    past: list[State] = field(default_factory=list)
    files: dict[str, Cells] = field(default_factory=dict)
    confirmed: int = 0

    def __post_init__(self) -> None:
        shape = Shape(segment_blocks=4, fan_in=2)
        self.warehouse = Warehouse(self.store, f"{self.root}/w", shape=shape)
        schema = Schema.assign([Column(name="a", type="int32"), Column(name="b", type="int32")])
        self.now = State(self.warehouse.create("t", schema, now_ms=1), schema.columns, {})

    def cells(self) -> Cells:
        """A new file's cells, of some of the columns."""
        count = self.random.randint(1, 4)
        some = [c.name for c in self.now.columns if self.random.random() < 0.8] or [self.now.columns[0].name]
        values = [None, *range(12)]
        return {name: [self.random.choice(values) for _ in range(count)] for name in some}

    def put(self, location: str, cells: Cells) -> None:
        """Write a file, or replace it in place."""
        types = {column.name: _ARROW[column.type] for column in self.now.columns}
        table = pa.table({name: pa.array(values, types[name]) for name, values in cells.items()})
        data = io.BytesIO()
        pq.write_table(table, data, write_statistics=self.random.random() < 0.3)
        self.store.delete(location)
        self.store.put(location, data.getvalue())
        self.files[location] = cells

    def commit(self, added: list[str], removed: list[str]) -> None:
        """Commit files as they are now, and the removal of blocks."""
        snapshot = self.warehouse.snapshot(self.now.pointer)
        blocks, refused = ingest(self.store, added, snapshot.schema, workers=1)
        fitting = [block.location for block in blocks]
        assert len(fitting) + len(refused) == len(added)
        segments = self.warehouse.prepare("t", snapshot, blocks)
        removed = [location for location in removed if location in self.now.blocks]
        done = self.warehouse.commit(self.now.pointer, added=segments, removed=removed, now_ms=1)
        names = {column.id: column.name for column in self.now.columns}
        remaining = {location: block for location, block in self.now.blocks.items() if location not in removed}
        remaining |= {location: ConstantTerm(self.files[location], names) for location in fitting}
        self.past.append(self.now)
        self.now = State(done.pointer, self.now.columns, remaining)

    def step(self) -> None:
        """Whatever may happen to a table."""
        what = self.random.choice(("append", "append", "append", "replace", "again", "remove", "evolve", "rollback"))
        locations = sorted(self.now.blocks)
        if what == "append" or not locations:
            fresh = [f"{self.root}/f{len(self.files) + i}" for i in range(self.random.randint(1, 3))]
            for location in fresh:
                self.put(location, self.cells())
            self.commit(fresh, [])
        elif what == "replace":
            location = self.random.choice(locations)
            self.put(location, self.cells())
            self.commit([location], [location])
        elif what == "again":  # the same file, under the columns that there are now
            location = self.random.choice(locations)
            self.commit([location], [location])
        elif what == "remove":
            self.commit([], [self.random.choice(locations)])
        elif what == "evolve":
            self.evolve()
        elif self.past:
            self.roll_back()

    def evolve(self) -> None:
        """Rename, widen, add with a default or without, drop and reuse names."""
        column = self.random.choice(self.now.columns)
        free = [name for name in ("a", "b", "c", "d") if name not in {c.name for c in self.now.columns}]
        changes: list[SchemaChange] = []
        if free:
            changes.append(RenameColumn(column=column.name, name=free[0]))
            changes.append(AddColumn(name=free[0], type="int32", default=self.random.choice((None, "3", "5"))))
        if column.type == "int32":
            changes.append(WidenColumn(column=column.name, type="int64"))
        if len(self.now.columns) > 1:
            changes.append(DropColumn(column=column.name))
        done = self.warehouse.evolve(self.now.pointer, [self.random.choice(changes)], now_ms=1)
        self.past.append(self.now)
        self.now = State(done.pointer, done.snapshot.schema.columns, self.now.blocks)

    def roll_back(self) -> None:
        """To a snapshot whose files are still there as they were."""
        then = self.random.choice(self.past)
        try:
            done = self.warehouse.rollback(self.now.pointer, then.pointer, now_ms=1)
        except LamellaError:
            return
        self.past.append(self.now)
        self.now = State(done.pointer, done.snapshot.schema.columns, then.blocks)

    def value(self, block: ConstantTerm, column: Column, row: int) -> int | None:
        """What a reader sees in a column of a row."""
        name = block.names.get(column.id)
        if name is None or name not in block.cells:
            return None if column.default is None else int(column.default)
        return block.cells[name][row]

    def ask(self) -> None:
        """Prune by a filter, look that no row is lost and no earlier report is false, and report what is empty."""
        text, matches = self.filter()
        predicate = read_filter(text)
        schema = self.warehouse.head(self.now.pointer).schema
        found = self.warehouse.find(self.now.pointer, PruneRequest(filter=text))
        refs = list(self.warehouse.segments(self.now.pointer))
        parts = tuple(found.parts())
        selected = {location for part in parts for location in part.sidecar.texts("location", part.rows)}
        full = {
            location
            for location, block in self.now.blocks.items()
            for row in range(len(next(iter(block.cells.values()))))
            if matches([self.value(block, column, row) for column in self.now.columns])
        }
        assert full <= selected, (text, full - selected)
        digest = digest_of(predicate, schema)
        assert digest is not None
        for part in parts:
            keys = self.warehouse.manifests.block_keys(refs[part.segment])[part.rows]
            locations = part.sidecar.texts("location", part.rows)
            empty = np.array([location not in full for location in locations])
            known = are_among(keys, self.facts.get(digest, no_keys()))
            assert not (known & ~empty).any(), text
            self.confirmed += int(known.sum())
            fresh = empty & ~known
            if fresh.any() and self.random.random() < 0.8:
                self.facts[digest] = np.concatenate([self.facts.get(digest, no_keys()), keys[fresh]])

    def filter(self) -> tuple[str, Any]:
        """A filter over one or two columns, and what it does with the values of a row."""
        at = self.random.randrange(len(self.now.columns))
        other = self.random.randrange(len(self.now.columns))
        one, two = self.now.columns[at].name, self.now.columns[other].name
        k = self.random.randint(0, 11)
        choices: list[tuple[str, Any]] = [
            (f"{one} = {k}", lambda row: row[at] == k),
            (f"{one} IS NULL", lambda row: row[at] is None),
            (f"{one} IN ({k}, {k + 1})", lambda row: row[at] in (k, k + 1)),
            (f"{one} = {k} AND {two} IS NULL", lambda row: row[at] == k and row[other] is None),
            (f"{two} IS NULL AND {one} = {k}", lambda row: row[at] == k and row[other] is None),
            (f"{one} = {k} OR {two} = 3", lambda row: row[at] == k or row[other] == 3),
        ]
        return self.random.choice(choices)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.few(3)
def test_truthful_reports_stay_true(seed: int) -> None:
    """Appends, compaction, removal, files replaced in place or taken again, changes of columns, rollback."""
    lake = Lake(Random(seed), f"memory://truthful-{seed}")
    for _ in range(30):
        lake.step()
        for _ in range(10):
            lake.ask()
    assert lake.confirmed > 50  # and they are met again


def test_a_file_that_is_replaced_is_not_covered_by_what_was_said_of_the_old_one() -> None:
    """The same location, size and row count: another content is another block."""
    lake = Lake(Random(1), "memory://replaced")
    location = "memory://replaced/x"
    lake.put(location, {"a": [1, 11], "b": [0, 0]})
    lake.commit([location], [])
    schema = lake.warehouse.head(lake.now.pointer).schema
    digest = digest_of(read_filter("a = 5"), schema)
    assert digest is not None

    def reported() -> list[bool]:
        (ref,) = lake.warehouse.segments(lake.now.pointer)
        known: list[bool] = are_among(
            lake.warehouse.manifests.block_keys(ref), lake.facts.get(digest, no_keys())
        ).tolist()
        return known

    assert reported() == [False]
    (ref,) = lake.warehouse.segments(lake.now.pointer)
    lake.facts[digest] = lake.warehouse.manifests.block_keys(ref)
    assert reported() == [True]
    lake.put(location, {"a": [1, 5], "b": [0, 0]})
    lake.commit([location], [location])
    assert lake.warehouse.find(lake.now.pointer, PruneRequest(filter="a = 5")).block_count == 1
    assert reported() == [False]
