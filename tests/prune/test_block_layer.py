"""Blocks tested many segments at once: the same verdicts as segment by segment, from fewer sidecars."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lamella.snapshot.cache import BoundedCache, CacheNamespace, DerivedCache, DiskCache, MemoryCache
from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.columnar.chunk import Columns
from lamella.snapshot.columnar.snapshot_blocks import BatchSizes, SnapshotBlocks
from lamella.snapshot.expression import bind, read_sql, text_of
from lamella.snapshot.expression.bound import BoundAnd, BoundOr, BoundPredicate, Comparison, Membership
from lamella.snapshot.manifest import Block, Snapshot, SnapshotPointer
from lamella.snapshot.prune.block_layer import Layers
from lamella.snapshot.prune.evaluate import Evaluator
from lamella.snapshot.prune.outcome import SOME
from lamella.snapshot.prune.pipeline import Pruning
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import AddColumn
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import PruneRequest
from support import generate, generate_terms
from support.oracle import Oracle

SEEDS = st.integers(0, 2**48)
FINE = BatchSizes(chunk_segments=4, worth_segments=2, batch_blocks=4)


class Table:
    """A snapshot whose sidecars are counted when they are opened."""

    def __init__(
        self,
        store: FsspecStore,
        pointer: SnapshotPointer,
        batch_sizes: BatchSizes,
        cache_bytes: int = 1 << 24,
        disk: DerivedCache | None = None,
        of: Table | None = None,
    ) -> None:
        self.manifests = Manifests(store, 1 << 24)
        self.head: Snapshot = self.manifests.head(pointer)
        self.segments = self.manifests.layer(pointer)
        self.opened: list[int] = []
        self.memory_cache: BoundedCache = BoundedCache(cache_bytes) if of is None else of.memory_cache
        self.blocks = SnapshotBlocks(
            self.segments, Columns(CacheNamespace(self.memory_cache, "column"), disk), "view", batch_sizes
        )
        self.plain = Layers(self.head, self.segments)
        self.together = Layers(self.head, self.segments, self.blocks, CacheNamespace(self.memory_cache, "verdicts"))

    def load(self, row: int) -> Sidecar:
        """Open the sidecar of a segment."""
        self.opened.append(row)
        return self.manifests.blocks(self.head, self.plain.sidecar(row))

    def load_all(
        self,
        rows: Sequence[int],
        *,
        keep: bool = True,  # noqa: ARG002  # all are counted
        column_ids: Collection[int] = (),  # noqa: ARG002
    ) -> list[Sidecar]:
        """Open several."""
        return [self.load(row) for row in rows]

    def prune(self, layers: Layers, bound: BoundPredicate, *, blocks: bool = True) -> PruneResult:
        """Prune through layers."""
        # That some segments are found by a search must not be seen either.
        searched = 1 if layers is self.together else 1 << 30
        return Pruning(layers, self.load, time.perf_counter, worth_search=searched).run(bound, blocks=blocks)

    def described(self, layers: Layers, bound: BoundPredicate) -> object:
        """All that a prune says, but for the times: also the verdicts of the segments, when these are asked for."""
        return described(self.prune(layers, bound)), described(self.prune(layers, bound, blocks=False))


def written(rng: Random, schema: Schema, blocks: list[Block], store: FsspecStore) -> SnapshotPointer:
    """A table of several commits, one of which removes blocks; its columns may have been widened in between."""
    warehouse = Warehouse(store, f"memory://together-{uuid.uuid4()}", segment_blocks=rng.choice([1, 2, 3]))
    table_id = rng.randbytes(16).hex()
    pointer = warehouse.create(table_id, schema, now_ms=1)
    at = 0
    while at < len(blocks):
        size = rng.randint(1, 20)
        added = warehouse.prepare(table_id, schema, blocks[at : at + size])
        pointer = warehouse.commit(pointer, added=added, now_ms=2 + at).pointer
        at += size
    gone = {block.location for block in blocks if rng.random() < 0.1}
    if gone:
        pointer = warehouse.commit(pointer, removed=sorted(gone), operation="delete", now_ms=99).pointer
    return pointer


def random_blocks(rng: Random, schema: Schema, table: list[generate.Block]) -> list[Block]:
    """The blocks of a random table; one may have no rows, and any may lack statistics."""
    found = []
    for index, columns in enumerate(table):
        given_ = {leaf.id: generate.weakened_stats(rng, leaf.dtype, columns[leaf.name]) for leaf in schema.leaves()}
        stats = {column_id: each for column_id, each in given_.items() if each is not None}
        rows = len(next(iter(columns.values())))
        location = f"memory://together/data/{index}.parquet"
        found.append(Block(location=location, row_count=rows, file_size=100 + index, col_stats=stats))
    return found


def described(found: PruneResult) -> object:
    """All that a result says, but for the times."""
    selected = [(part.segment, part.rows.tolist(), part.codes.tolist()) for part in found.parts() if len(part.rows)]
    report = found.answer.report
    stages = [(stage.stage, stage.considered, stage.kept, stage.bytes) for stage in report.stages]
    return stages, found.answer.segments, selected, report.not_used


def check(seed: int) -> int:
    """Compare both ways over one random table; how many segments were answered whole though not all rows match."""
    rng = Random(seed)
    schema = generate.schema(rng)
    many = rng.randint(1, 50)
    table = [each for _ in range(many // 5 + 1) for each in generate.table(rng, schema, blocks=5)][:many]
    if rng.random() < 0.5:  # as in a table that is sorted, whose blocks are searched
        first = schema.leaves()[0]
        table.sort(key=lambda columns: _sort_key(columns[first.name]))
    store = FsspecStore()
    pointer = written(rng, schema, random_blocks(rng, schema, table), store)
    cache_bytes = rng.choice([0, 4_096, 1 << 24])
    batch_sizes = rng.choice(
        [
            FINE,
            BatchSizes(chunk_segments=2, worth_segments=1, batch_blocks=1, min_cached_blocks=1),
            BatchSizes(chunk_segments=4, worth_segments=8, batch_blocks=4),
        ]
    )
    # Kept as buffers or not: it makes no difference.
    both = Table(store, pointer, batch_sizes, cache_bytes, rng.choice([None, MemoryCache(BoundedCache(1 << 24))]))
    seen = generate.seen_values(schema, table)
    whole = 0
    for _ in range(15):
        predicate = generate.predicate(rng, schema, seen)
        bound = bind(predicate, schema)
        for blocks in (False, True):  # the verdicts of the segments alone, and the blocks
            one, other = (both.prune(layers, bound, blocks=blocks) for layers in (both.plain, both.together))
            assert described(one) == described(other), f"seed {seed}: {text_of(predicate)}"
        selection = other.selection
        assert selection is not None
        whole += int((selection.whole == SOME).sum())
        assert selection.block_count == sum(len(part.rows) for part in other.parts())
        assert [part.segment for part in other.parts()] == selection.segments.tolist()
    return whole


def _sort_key(cells: list[Any]) -> tuple[bool, Any]:
    """Blocks without a number come last."""
    numbers = [cell for cell in cells if cell is not None and cell == cell]
    return (False, min(numbers)) if numbers else (True, 0)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
@example(1569)  # NOT IN over blocks of one value each
def test_blocks_tested_together_get_the_verdicts_they_get_alone(seed: int) -> None:
    """Over random tables, statistics, filters, chunk sizes and memory, the whole result is the same."""
    check(seed)


@pytest.mark.slow
def test_segments_are_answered_whole_without_looking_at_their_blocks() -> None:
    """The random tables above reach the proof that needs no block."""
    assert sum(check(seed) for seed in range(40)) > 50


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_blocks_of_a_sorted_column_are_found_without_a_test(seed: int) -> None:
    """Once its bounds are in memory, a few segments take the shortest way, to the result of all others."""
    rng = Random(seed)
    schema = Schema.assign([Column(name="a", type=rng.choice(["int64", "float64", "timestamp", "decimal(9,2)"]))])
    leaf = schema.leaves()[0]
    values = sorted(rng.randint(0, 300) for _ in range(200))
    blocks: list[Block] = []
    at = 0
    while at < len(values):
        cells = values[at : at + rng.randint(1, 4)]
        at += len(cells) - (rng.random() < 0.3 and len(cells) > 1)  # some blocks share a value
        given_ = float if leaf.dtype.is_float else int
        bounds = [to_bound(leaf.dtype, given_(each)) for each in (cells[0], cells[-1])]
        stats = ColumnStats(min=bounds[0], max=bounds[1], null_count=0, min_exact=True, max_exact=True)
        location = f"memory://together/data/{len(blocks)}.parquet"
        blocks.append(
            Block(location=location, row_count=len(cells), file_size=rng.randint(1, 99), col_stats={leaf.id: stats})
        )
    store = FsspecStore()
    warehouse = Warehouse(store, f"memory://together-{uuid.uuid4()}", segment_blocks=4)
    pointer = warehouse.create("t", schema, now_ms=1)
    for start in range(0, len(blocks), 40):  # of one commit after another, each sorted
        added = warehouse.prepare("t", schema, blocks[start : start + 40])
        pointer = warehouse.commit(pointer, added=added, now_ms=2).pointer
    batch_sizes = BatchSizes(chunk_segments=8, worth_segments=6, batch_blocks=4)
    both = Table(store, pointer, batch_sizes)
    points = tuple(range(301))
    everywhere = Membership(
        leaf, tuple(map(float, points)) if leaf.dtype.is_float else points, False, False, "a IN (...)"
    )
    both.prune(both.together, everywhere)
    assert sorted(set(both.opened)) == list(range(len(both.segments)))
    both.opened.clear()
    for _ in range(20):
        low, width = rng.randint(-5, 305), rng.choice([0, 0, 1, 3, 10])
        value = float if leaf.dtype.is_float else int
        parts = (
            Comparison(leaf, rng.choice(["ge", "gt"]), value(low), "low"),
            Comparison(leaf, rng.choice(["le", "lt"]), value(low + width), "high"),
        )
        point = Comparison(leaf, "eq", value(low), "point")
        filters: list[BoundPredicate] = [BoundAnd(parts), point, BoundOr((BoundAnd(parts), parts[0]))]
        bound = rng.choice(filters)
        found = both.prune(both.together, bound)
        assert found.selection is None or len(found.selection.segments) >= 6 or both.opened == []
        assert described(found) == described(both.prune(both.plain, bound))
        both.opened.clear()


@pytest.mark.soak
def test_many_tables_are_answered_the_same_together() -> None:
    """Thousands of random tables."""
    for seed in range(3_000):
        check(seed)


COLUMNS = (Column(name="k", type="int64"), Column(name="u", type="int64"), Column(name="s", type="string"))


def events(count: int, store: FsspecStore, segment_blocks: int = 1) -> tuple[Warehouse, SnapshotPointer, Schema, str]:
    """Segments of ``segment_blocks``: ``k`` sorted, ``u`` one range everywhere, ``s`` texts that begin alike."""
    schema = Schema.assign(list(COLUMNS))
    warehouse = Warehouse(store, f"memory://together-{uuid.uuid4()}", segment_blocks=segment_blocks)
    table_id = "0194e3a0-0000-7000-8000-000000000000"
    pointer = warehouse.create(table_id, schema, now_ms=1)
    added = warehouse.prepare(table_id, schema, [event(schema, index) for index in range(count)])
    return warehouse, warehouse.commit(pointer, added=added, now_ms=2).pointer, schema, table_id


def event(schema: Schema, index: int) -> Block:
    """One block."""
    k, u, s = schema.leaves()
    bounds = (
        (k, index * 10, index * 10 + 9),
        (u, index % 7, 1_000 + index % 7),
        (s, b"/data/%04d" % index, b"/data/%04d/x" % index),
    )
    stats = {
        leaf.id: ColumnStats(min=to_bound(leaf.dtype, low), max=to_bound(leaf.dtype, high), null_count=0)
        for leaf, low, high in bounds
    }
    return Block(location=f"memory://together/data/{index}.parquet", row_count=10, file_size=100, col_stats=stats)


def test_a_filter_that_all_blocks_survive_opens_no_sidecar_again() -> None:
    """Once the column is in memory, an unsorted equality is answered by whole segments, from the layers alone."""
    store = FsspecStore()
    _, pointer, schema, _ = events(200, store)
    table = Table(store, pointer, BatchSizes(chunk_segments=16))
    bound = bind(read_sql("u = 500"), schema)
    table.prune(table.together, bound)
    table.opened.clear()
    selection = table.prune(table.together, bound).selection
    assert selection is not None
    assert (selection.whole == SOME).all()
    assert selection.block_count == 200
    assert table.opened == []


def test_a_narrow_filter_opens_only_what_it_is_left_with() -> None:
    """Nothing is put together for a question that one segment answers."""
    store = FsspecStore()
    _, pointer, schema, _ = events(200, store)
    table = Table(store, pointer, BatchSizes(chunk_segments=16))
    table.prune(table.together, bind(read_sql("k BETWEEN 1203 AND 1207"), schema))
    assert table.opened == [120]
    assert len(table.memory_cache) == 0


def test_a_new_snapshot_needs_only_the_chunks_that_changed() -> None:
    """After an append the columns of almost all segments are those of the snapshot before."""
    store = FsspecStore()
    warehouse, pointer, schema, table_id = events(400, store)
    table = Table(store, pointer, BatchSizes(chunk_segments=8))
    bound = bind(read_sql("s LIKE '/data/%'"), schema)
    table.prune(table.together, bound)
    added = warehouse.prepare(table_id, schema, [event(schema, 400)])
    newest = warehouse.commit(pointer, added=added, now_ms=3).pointer
    after = Table(store, newest, BatchSizes(chunk_segments=8), of=table)
    found = after.prune(after.together, bind(read_sql("s LIKE '/data/%'"), schema))
    assert sum(len(part.rows) for part in found.parts()) == 401
    assert len(set(after.opened)) < 140, "of 401"


def test_another_process_finds_the_columns_on_disk(tmp_path: Path) -> None:
    """With a cache on disk a restart opens no sidecar to test blocks, whatever their columns' types."""
    store = FsspecStore()
    _, pointer, schema, _ = events(100, store)
    bounds = [bind(read_sql(text), schema) for text in ("s LIKE '/data/00%'", "u < 500 OR k > 7", "u = 500")]
    answers = []
    for _ in range(2):  # the second one begins with nothing but the folder
        table = Table(store, pointer, BatchSizes(chunk_segments=8), disk=DiskCache(tmp_path / "cache", 1 << 24))
        answers.append([table.described(table.together, bound) for bound in bounds])
    assert answers[0] == answers[1]
    assert table.opened == []


@pytest.mark.parametrize("shared", [b"", b"/", b"s3://bucket/", b"\xff\xff", b"a" * 40])
def test_texts_that_share_a_prefix_are_compared_exactly(shared: bytes) -> None:
    """Behind what all share eight bytes decide, then eight more, then the length; zero bytes count."""
    rng = Random(len(shared))
    schema = Schema.assign([Column(name="b", type="binary")])
    (leaf,) = schema.leaves()

    def text() -> bytes:
        return shared + bytes(rng.choice(b"\0ab\xff") for _ in range(rng.randint(0, 20)))

    pairs = [sorted((text(), text())) for _ in range(300)]
    blocks = [
        Block(
            location=f"memory://x/{index}",
            row_count=1,
            file_size=1,
            col_stats={
                leaf.id: ColumnStats(min=to_bound(leaf.dtype, low), max=to_bound(leaf.dtype, high), null_count=0)
            },
        )
        for index, (low, high) in enumerate(pairs)
    ]
    store = FsspecStore()
    warehouse = Warehouse(store, f"memory://together-{uuid.uuid4()}", segment_blocks=5)
    pointer = warehouse.create("0194e3a0-0000-7000-8000-000000000000", schema, now_ms=1)
    added = warehouse.prepare("0194e3a0-0000-7000-8000-000000000000", schema, blocks)
    table = Table(store, warehouse.commit(pointer, added=added, now_ms=2).pointer, FINE)
    chunks = table.blocks.chunks
    keys = [chunk.column(leaf, table.load_all).zones.low for chunk in chunks]
    lows = [low for low, _ in pairs]
    values = sorted({*lows[:40], *(text() for _ in range(40)), b"", shared[:-1], shared + b"\xff" * 9, b"\xff" * 50})
    compare: dict[str, Callable[[bytes, bytes], bool]] = {
        "less": lambda low, value: low < value,
        "less_equal": lambda low, value: low <= value,
    }
    for name, test in compare.items():
        for value in values:
            found = np.concatenate([getattr(each, name)(value) for each in keys])
            assert found.tolist() == [test(low, value) for low in lows]
    for right in (False, True):
        ranks = np.concatenate([each.rank(values, right=right) for each in keys if each is not None])
        assert ranks.tolist() == [sum(v <= low if right else v < low for v in values) for low in lows]
    whole = Sidecar(build_blocks(schema, blocks)).zones(leaf.id, leaf.dtype).low
    assert whole is not None
    rows = np.array([rng.randrange(len(lows)) for _ in range(50)])
    for keys_ in (whole, whole.cut(0, len(lows))):
        taken = keys_.take(rows)
        assert [taken.less_equal(value).tolist() for value in values] == [
            [lows[row] <= value for row in rows.tolist()] for value in values
        ]


def test_verdicts_of_unchanged_chunks_are_cached_for_the_next_snapshot() -> None:
    """The same filter on a new snapshot tests only the chunks that the commit changed, and says how many it did not."""
    store = FsspecStore()
    warehouse, first, schema, table_id = events(400, store)
    batch_sizes = BatchSizes(chunk_segments=4, batch_blocks=1, min_cached_blocks=1)
    bound = bind(read_sql("s LIKE '/data/_1%' OR k < 7"), schema)
    table = Table(store, first, batch_sizes)
    before = table.prune(table.together, bound)
    assert before.answer.report.reused_blocks == 0
    more = warehouse.prepare(table_id, schema, [event(schema, 400)])
    after = Table(store, warehouse.commit(first, added=more, now_ms=3).pointer, batch_sizes, of=table)
    found = after.prune(after.together, bound)
    assert found.answer.report.reused_blocks > 200
    assert described(found) == described(after.prune(after.plain, bound))
    assert after.described(after.together, bound) == after.described(after.plain, bound)


def test_the_same_question_to_the_same_snapshot_is_answered_from_the_cache() -> None:
    """The answer is the same but for its times, and says so; another spelling of the filter asks anew or the same."""
    store = FsspecStore()
    warehouse, pointer, _, _ = events(50, store)
    requests = [
        PruneRequest(filter=text, shape="ranges") for text in ("k > 77 AND u = 500", "k > 77 AND u = 500", "k > 78")
    ]
    one, again, other = (warehouse.prune(pointer, request) for request in requests)
    assert [answer.report.from_cache for answer in (one, again, other)] == [False, True, False]
    assert again.block_ranges == one.block_ranges
    assert [(s.stage, s.considered, s.kept, s.bytes) for s in again.report.stages] == [
        (s.stage, s.considered, s.kept, s.bytes) for s in one.report.stages
    ]
    assert warehouse.prune(pointer, PruneRequest(filter="k > 77 AND u = 500", limit=3)).report.from_cache is False


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_any_filter_is_a_key(seed: int) -> None:
    """Filters of the whole language can be hashed, and are equal to themselves read again."""
    rng = Random(seed)
    schema = generate.schema(rng)
    draw = generate_terms.predicates(rng, schema, Oracle(schema, "UTC"), generate_terms.table(rng, schema))
    predicate = draw()
    one, other = Evaluator(bind(predicate, schema)).key, Evaluator(bind(predicate, schema)).key
    assert hash(one) == hash(other)
    assert one == other or "nan" in text_of(predicate).lower()


def test_a_filtered_number_takes_few_bytes_a_block() -> None:
    """Bounds, flags, row count and file size of a million blocks fit where they must."""
    store = FsspecStore()
    _, pointer, schema, _ = events(10_000, store, segment_blocks=250)
    table = Table(store, pointer, BatchSizes(chunk_segments=1_000))
    table.prune(table.together, bind(read_sql("u = 5"), schema))
    assert 10_000 * 17 < table.memory_cache.size_bytes <= 10_000 * 32


@pytest.mark.parametrize(
    "sizes", [[0, 1], [1, (1 << 32) - 1], [1, 1 << 32], [1 << 40, 1], [5] * 20 + [1 << 62] + [7] * 20]
)
@pytest.mark.parametrize("is_on_disk", [False, True])
def test_sizes_are_exact_however_large(sizes: list[int], is_on_disk: bool, tmp_path: Path) -> None:
    """Four bytes each are enough for most chunks; one that holds a larger number has eight, wherever it stands."""
    store = FsspecStore()
    schema = Schema.assign(list(COLUMNS))
    blocks = [msgspec.structs.replace(event(schema, row), file_size=size) for row, size in enumerate(sizes)]
    warehouse = Warehouse(store, f"memory://together-{uuid.uuid4()}", segment_blocks=1)
    pointer = warehouse.create("0194e3a0-0000-7000-8000-000000000000", schema, now_ms=1)
    added = warehouse.prepare("0194e3a0-0000-7000-8000-000000000000", schema, blocks)
    pointer = warehouse.commit(pointer, added=added, now_ms=2).pointer
    disk = DiskCache(tmp_path / "cache", 1 << 24) if is_on_disk else None
    for _ in range(2):  # the second time from the disk, if there is one
        table = Table(store, pointer, BatchSizes(chunk_segments=1 << 20), disk=disk)
        (chunk,) = table.blocks.chunks
        assert chunk.numbers("file_size", table.load_all).tolist() == sizes
        assert chunk.numbers("row_count", table.load_all).tolist() == [10] * len(sizes)


def test_columns_are_cached_by_what_their_schema_says_and_not_by_its_number() -> None:
    """Of two changes that began with the same snapshot each has its own default in the blocks that lack the column."""
    store = FsspecStore()
    warehouse, pointer, _, _ = events(40, store)
    found = []
    for default in (1, 7):
        change = AddColumn(name="added", type="int64", default=str(default))
        branch = warehouse.evolve(pointer, [change], now_ms=3).pointer
        for text in ("u = 500 OR added > 5", "u = 500 AND added > 5", "u = 501 AND added < 5"):
            answer = warehouse.prune(branch, PruneRequest(filter=text, shape="columns"))
            assert answer.block_columns is not None
            found.append(len(answer.block_columns.location))
    assert found == [40, 0, 40, 40, 40, 0]
