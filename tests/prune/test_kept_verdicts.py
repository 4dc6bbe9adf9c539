"""Verdicts of chunks that are kept for later prunes: of those blocks, by that filter, and of no others."""

from __future__ import annotations

import uuid
from random import Random
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar.snapshot_blocks import Batch, BatchSizes
from lamella.snapshot.commit import Shape
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression import bind, read_sql, text_of
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.prune.evaluate import Evaluator
from lamella.snapshot.schema import Column, Leaf, Schema
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn, SchemaChange, WidenColumn
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from prune.test_block_layer import Table, described, events
from support import generate

SEEDS = st.integers(0, 2**48)
#: Small chunks, all of whose verdicts are kept; mostly tested one by one, or several together.
KEEPING = BatchSizes(chunk_segments=4, worth_segments=2, batch_blocks=6, min_cached_blocks=1)
JOINING = BatchSizes(chunk_segments=4, worth_segments=2, batch_blocks=64, min_cached_blocks=1)
TYPES = ("int32", "int64", "uint8", "float32", "decimal(5,2)", "date", "timestamp(ms)", "string")
WIDER = {"int32": "int64", "uint8": "int32", "float32": "float64", "decimal(5,2)": "decimal(20,4)"}


def answer(warehouse: Warehouse, pointer: SnapshotPointer, predicate: n.Predicate, *, alone: bool) -> dict[str, str]:
    """The verdicts of the kept blocks by their locations; ``alone``: found segment by segment."""
    found = warehouse.prune_predicate(pointer, predicate, PruneRequest(explain=alone)).blocks
    assert found is not None
    return {block.location: block.verdict for block in found}


class Life:
    """A table that goes through random changes; one warehouse is asked all the time, and keeps what it found.

    Each block has a ``tag``, which a block that takes its place has too, and one of two values of ``half``.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.store = FsspecStore()
        self.root = f"memory://kept-{uuid.uuid4()}"
        self.shape = Shape(segment_blocks=self.rng.choice([2, 3, 4, 6]), fan_in=self.rng.choice([2, 4, 8]))
        self.batch_sizes = self.rng.choice([KEEPING, JOINING, JOINING])
        self.warm = Warehouse(self.store, self.root, shape=self.shape, batch_sizes=self.batch_sizes)
        self.table_id = self.rng.randbytes(16).hex()
        columns = [Column(name=f"c{index}", type=self.rng.choice(TYPES)) for index in range(2)]
        schema = Schema.assign([Column(name="tag", type="string"), Column(name="half", type="int64"), *columns])
        #: The snapshots, and the location of each tag's block in each.
        self.states: list[tuple[SnapshotPointer, dict[str, str]]] = []
        self.states.append((self.warm.create(self.table_id, schema, now_ms=1), {}))
        self.made = 0
        self.filters: list[n.Predicate] = []
        #: The tags of each segment that a filter of the last asking names beside those of a chunk.
        self.behind: list[list[str]] = []
        self.values: dict[Leaf, list[Any]] = {}

    def step(self) -> None:
        """Change the table."""
        rng, (pointer, live) = self.rng, self.states[-1]
        kind = rng.choice(["append", *["replace"] * 5, "remove", "evolve"]) if len(live) > 40 else "append"
        if kind == "evolve":
            try:
                pointer = self.warm.evolve(pointer, [self._schema_change()], now_ms=2).pointer
            except LamellaError:
                return  # refused, as it should be
            self.states.append((pointer, live))
            return
        gone = rng.sample(sorted(live), min(len(live), rng.randint(1, 5))) if kind != "append" else []
        if kind == "replace" and self.behind and rng.random() < 0.8:
            gone = [tag for tag in rng.choice(self.behind) if tag in live]
        tags = gone if kind == "replace" else []
        if kind == "append":
            tags = [f"t{self.made + index:04}" for index in range(rng.randint(1, 25))]
        head = self.warm.head(pointer)
        added = [self._block(tag, head.schema) for tag in tags]
        refs = self.warm.prepare(self.table_id, head, added)
        pointer = self.warm.commit(pointer, added=refs, removed=[live[tag] for tag in gone], now_ms=2).pointer
        left = {tag: location for tag, location in live.items() if tag not in gone}
        self.states.append((pointer, left | {tag: made.location for tag, made in zip(tags, added, strict=True)}))

    def ask(self) -> None:
        """Think of filters that leave as many segments as a chunk has: most of them its own, and others behind it."""
        rng, (pointer, live) = self.rng, self.states[-1]
        schema = self.warm.head(pointer).schema
        seen = {leaf.name: self._values(leaf) for leaf in schema.leaves()}
        tags = {location: tag for tag, location in live.items()}
        self.behind = []
        table = Table(self.store, pointer, self.batch_sizes)
        count = len(table.blocks.counts)
        for chunk in rng.sample(table.blocks.chunks, min(6, len(table.blocks.chunks))):
            rows, behind = list(range(chunk.first, chunk.stop)), range(chunk.stop, count)
            spare = rng.randint(0, min(len(rows) - 1, len(behind)))
            picked = rng.sample(rows, len(rows) - spare) + rng.sample(behind, spare)
            chosen = [[tags[location] for location in table.load(row).texts("location")] for row in picked]
            self.behind += chosen[len(rows) - spare :]
            listed = n.In(n.Ref("tag"), tuple(n.Literal("string", tag) for some in chosen for tag in some))
            half = n.Compare("eq", n.Ref("half"), n.Literal("integer", rng.choice([1, 5])))
            other = half if rng.random() < 0.7 else generate.predicate(rng, schema, seen)
            self.filters.append(n.And((listed, other)))

    def _values(self, leaf: Leaf) -> list[Any]:
        """The few values that a column has, so that a filter is decided by blocks and not by segments."""
        return self.values.setdefault(leaf, [generate.value(self.rng, leaf.dtype) for _ in range(4)])

    def check(self) -> int:
        """Hold the warm warehouse's answers against a new one's; the blocks whose kept verdicts it used."""
        fresh = Warehouse(self.store, self.root, shape=self.shape)
        reused = 0
        for pointer, _ in self.states[-2:]:
            for predicate in self.filters[-18:]:
                try:
                    expected = answer(fresh, pointer, predicate, alone=True)
                except LamellaError:  # of a column that this snapshot does not have, or not of that type
                    continue
                found = self.warm.prune_predicate(pointer, predicate, PruneRequest())
                reused += found.report.reused_blocks
                assert {b.location: b.verdict for b in found.blocks or ()} == expected, text_of(predicate)
        return reused

    def _schema_change(self) -> SchemaChange:
        rng, schema = self.rng, self.warm.head(self.states[-1][0]).schema
        column = rng.choice(schema.columns[2:] or schema.columns)
        name = f"n{len(self.states)}"
        changes: list[SchemaChange] = [
            AddColumn(name=name, type="int32", default=rng.choice([None, "3"])),
            RenameColumn(column=column.name, name=name),
            DropColumn(column=column.name),
            WidenColumn(column=column.name, type=WIDER.get(column.type, "int64")),
        ]
        return rng.choice(changes)

    def _block(self, tag: str, schema: Schema) -> Block:
        rng = self.rng
        self.made += 1
        stats: dict[int, ColumnStats] = {}
        for leaf in schema.leaves():
            cells = [rng.choice(self._values(leaf)) for _ in range(rng.randint(1, 2))]
            if leaf.name == "tag":
                cells = [tag.encode()]
            elif leaf.name == "half":
                cells = [rng.choice([1, 5])]
            elif rng.random() < 0.1:
                cells.append(None)
            weak = generate.weakened_stats(rng, leaf.dtype, cells) if rng.random() < 0.1 else None
            stats[leaf.id] = weak or generate.exact_stats(leaf.dtype, cells)
        return Block(
            location=f"memory://kept/{tag}-{self.made}",
            row_count=rng.choice([0, *[4] * 15]),
            file_size=100,
            col_stats=stats,
            schema_id=schema.schema_id,
        )


def live(seed: int) -> int:
    """Check one life; the blocks whose kept verdicts were used."""
    life = Life(seed)
    reused = 0
    for _ in range(10):
        life.step()
        life.ask()
        reused += life.check()
    fsspec.filesystem("memory").rm(life.root, recursive=True)  # what it takes grows with what is there
    return reused


@pytest.mark.dear
@settings(max_examples=12, deadline=None)
@given(SEEDS)
def test_a_warm_warehouse_answers_as_a_new_one_does(seed: int) -> None:
    """Whatever was asked of earlier snapshots and kept, each answer is the one that is found segment by segment."""
    live(seed)


@pytest.mark.slow
def test_the_lives_above_use_what_was_cached() -> None:
    """Verdicts of chunks are kept and used again, across snapshots."""
    assert sum(live(seed) for seed in range(2)) > 30


@pytest.mark.soak
def test_many_warm_warehouses_answer_as_new_ones_do() -> None:
    """Hundreds of random lives."""
    for seed in range(400):
        live(seed)


SCHEMA = Schema.assign([Column(name="k", type="string"), Column(name="s", type="string")])


def pair(index: int, *, swapped: bool = False) -> list[Block]:
    """The blocks of a segment: one of them may hold ``s = 'm'``, by its bounds, and the other one does not."""
    key, dtype = f"{index:03}".encode(), SCHEMA.leaf("s").dtype
    found = []
    for number, matches in enumerate((not swapped, swapped)):
        low, high = (b"k", b"p") if matches else (b"a", b"c")
        stats = {
            1: ColumnStats(min=to_bound(dtype, key), max=to_bound(dtype, key), null_count=0),
            2: ColumnStats(min=to_bound(dtype, low), max=to_bound(dtype, high), null_count=0),
        }
        location = f"memory://two/{index}-{number}{'-new' if swapped else ''}"
        found.append(Block(location=location, row_count=10, file_size=100, col_stats=stats))
    return found


def test_as_many_segments_as_a_chunk_has_are_not_that_chunk() -> None:
    """Of a filter that leaves segments of two chunks, nothing is kept in the name of the first when others change."""
    store, root, count = FsspecStore(), f"memory://kept-{uuid.uuid4()}", 40
    warm = Warehouse(store, root, segment_blocks=2, batch_sizes=JOINING)
    table_id = str(uuid.uuid4())
    pointer = warm.create(table_id, SCHEMA, now_ms=1)
    refs = warm.prepare(table_id, SCHEMA, [block for index in range(count) for block in pair(index)])
    pointer = warm.commit(pointer, added=refs, now_ms=2).pointer
    chunks = Table(store, pointer, JOINING).blocks.chunks
    assert sum(chunk.stop - chunk.first > 2 for chunk in chunks[:-1]) > 1
    for chunk in chunks:
        for spare in range(1, min(chunk.stop - chunk.first - 1, count - chunk.stop)):
            picked = [*range(chunk.first, chunk.stop - spare), *range(count - spare, count)]
            keys = ", ".join(f"'{index:03}'" for index in picked)
            predicate = read_sql(f"k IN ({keys}) AND s = 'm'")
            answer(warm, pointer, predicate, alone=False)
            last = picked[-1]
            refs = warm.prepare(table_id, SCHEMA, pair(last, swapped=True))
            gone = [block.location for block in pair(last)]
            changed = warm.commit(pointer, added=refs, removed=gone, now_ms=3).pointer
            expected = answer(Warehouse(store, root), changed, predicate, alone=True)
            assert f"memory://two/{last}-1-new" in expected
            assert answer(warm, changed, predicate, alone=False) == expected, text_of(predicate)


def test_only_all_of_a_chunk_counts_as_the_chunk() -> None:
    """Neither a part of it does, nor one with segments of the next, however many these are together."""
    store = FsspecStore()
    _, pointer, schema, _ = events(120, store)
    table = Table(store, pointer, KEEPING)
    leaves = schema.leaves()
    at, second = next(
        (c, d) for c, d in zip(table.blocks.chunks, table.blocks.chunks[1:], strict=False) if c.stop > c.first + 1
    )

    def chunk_of(rows: range) -> object:
        pieces = list(table.blocks.pieces(np.array(rows), leaves, table.load_all))
        starts = np.arange(len(rows) + 1)
        return Batch(np.array(rows), starts, pieces).chunk

    for chunk in (at, second):
        chunk.prepare(leaves, table.load_all)
    assert chunk_of(range(at.first, at.stop)) is at
    assert chunk_of(range(at.first, at.stop - 1)) is None
    assert chunk_of(range(at.first + 1, at.stop + 1)) is None


def test_verdicts_of_another_number_of_blocks_are_not_believed() -> None:
    """Should something else ever stand in a chunk's place, the chunk is tested anew."""
    store = FsspecStore()
    _, pointer, schema, _ = events(60, store)
    table = Table(store, pointer, KEEPING)
    bound = bind(read_sql("s LIKE '/data/_1%' OR k < 7"), schema)
    verdicts = table.together.verdicts
    assert verdicts is not None
    for chunk in table.blocks.chunks:
        verdicts.put((chunk.key, Evaluator(bound).key), np.zeros(chunk.stop - chunk.first + 1, dtype=np.uint8), 1)
    found = table.prune(table.together, bound)
    assert found.answer.report.reused_blocks == 0
    assert described(found) == described(table.prune(table.plain, bound))
    assert table.described(table.together, bound) == table.described(table.plain, bound)
    assert table.prune(table.together, bound).answer.report.reused_blocks > 0
