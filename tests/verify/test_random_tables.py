"""Whatever honest writers make of a table, verification finds nothing: random files, commits, removals, schemas."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolution.histories import WIDER
from lamella.snapshot import commit as commits
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.parquet import ingest
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn, SchemaChange, WidenColumn
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.verify import Deep, Options, Recorded, Verification
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.regroup import Swap
from lamella.snapshot.wire import VerifyAnswer
from support import generate
from support.arrow_files import write_block


class RandomTable:
    """A table and its life, by a seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = rng = Random(seed)
        self.folder = folder
        self.store = FsspecStore()
        self.root = f"file://{folder}/warehouse"
        shape = commits.Shape(
            segment_blocks=rng.choice([1, 2, 3, 8]), fan_in=2, group_segments=rng.choice([2, 50]), max_grouped=8
        )
        self.warehouse = Warehouse(self.store, self.root, shape=shape, prepare_pages=rng.random() < 0.5)
        self.live: list[str] = []
        self.count = 0
        self.history: list[Recorded] = []
        self.pointer = self._recorded(self.warehouse.create("t", generate.schema(rng), now_ms=1))

    def step(self) -> None:
        """Append, remove, put blocks into other segments, or change the schema."""
        kind = self.rng.choice(["append", "append", "append", "remove", "rearrange", "evolve"])
        if kind == "append":
            self._append()
        elif kind == "rearrange":
            self._rearrange()
        elif kind == "remove":
            gone = [location for location in self.live if self.rng.random() < 0.4]
            if gone:
                self.live = [location for location in self.live if location not in gone]
                self.pointer = self._recorded(self.warehouse.commit(self.pointer, removed=gone, now_ms=2).pointer)
        else:
            try:
                done = self.warehouse.evolve(self.pointer, [self._change(self._schema)], now_ms=3)
            except LamellaError:
                return  # a change that the schema cannot take
            self.pointer = self._recorded(done.pointer)

    def verify(self) -> VerifyAnswer:
        """Down to every value."""
        newest = len(self.history)
        options = Options(deep=Deep(sample=1.0, filters=8), history=(newest, 100), workers=2)

        def read(below: int, limit: int) -> list[Recorded]:
            return [record for record in reversed(self.history) if record.seq < below][:limit]

        return Verification(self.store, self.root, "t", self.pointer, options, read).run()

    @property
    def _schema(self) -> Schema:
        return self.warehouse.head(self.pointer).schema

    def _append(self) -> None:
        head = self.warehouse.head(self.pointer)
        locations = []
        for block in generate.table(self.rng, head.schema, blocks=3):
            path = self.folder / f"{self.count}.parquet"
            write_block(self.rng, head.schema, block, path)
            locations.append(f"file://{path}")
            self.count += 1
        blocks, refused = ingest(self.store, locations, head.schema, verify=self.rng.random() < 0.5, workers=2)
        assert not refused
        self.live += locations
        refs = self.warehouse.prepare("t", head, blocks)
        self.pointer = self._recorded(self.warehouse.commit(self.pointer, added=refs, now_ms=2).pointer)

    def _rearrange(self) -> None:
        rng = self.rng
        refs = list(self.warehouse.segments(self.pointer))
        rows = rng.sample(range(len(refs)), rng.randint(0, len(refs)))
        if not rows:
            return
        positions = [(at, block) for at, row in enumerate(rows) for block in range(refs[row].summary.block_count)]
        rng.shuffle(positions)
        cuts = sorted(rng.sample(range(len(positions) + 1), rng.randint(0, min(3, len(positions)))))
        made = [tuple(positions[start:stop]) for start, stop in pairwise([0, *cuts, len(positions)])]
        written = self.warehouse.rearranging.write(self.pointer, Swap(rows=tuple(rows), made=tuple(made)))
        self.pointer = self._recorded(self.warehouse.rearranging.commit(self.pointer, [written], now_ms=4)[0].pointer)

    def _change(self, schema: Schema) -> SchemaChange:
        rng = self.rng
        leaf = rng.choice(schema.leaves())
        kind = rng.choice(["add", "add", "drop", "rename", "widen", "widen"])
        name = f"n{rng.randint(0, 99)}"
        if kind == "add":
            return AddColumn(
                name=name, type=rng.choice(["int64", "string", "float64"]), default=rng.choice([None, "5"])
            )
        if kind == "drop":
            return DropColumn(column=leaf.path)
        if kind == "rename":
            return RenameColumn(column=leaf.path, name=name)
        return WidenColumn(column=leaf.path, type=rng.choice(WIDER.get(str(leaf.dtype), ("int64",))))

    def _recorded(self, pointer: SnapshotPointer) -> SnapshotPointer:
        snapshot = self.warehouse.snapshot(pointer)
        self.history.append(
            Recorded(
                seq=len(self.history) + 1,
                pointer=pointer,
                prev_snapshot_id=snapshot.prev_snapshot_id,
                operation=snapshot.operation,
                row_count=snapshot.summary.row_count,
                block_count=snapshot.summary.block_count,
                segment_count=snapshot.segment_count,
                file_size_bytes=snapshot.summary.compressed_byte_size,
            )
        )
        return pointer


def check(seed: int, steps: int) -> None:
    """Live, then verify."""
    with tempfile.TemporaryDirectory() as folder:
        table = RandomTable(seed, Path(folder))
        for _ in range(steps):
            table.step()
        assert table.verify().findings == ()


@pytest.mark.dear
@given(seed=st.integers(0, 1 << 32), steps=st.integers(1, 10))
@settings(max_examples=25)
def test_honest_tables_are_clean(seed: int, steps: int) -> None:
    """No finding, not even a warning, after any life of a table, with every value read and filters compared."""
    check(seed, steps)


@pytest.mark.soak
def test_many_honest_tables_are_clean() -> None:
    """The same for many seeds."""
    for seed in range(200):
        check(seed, 8)
