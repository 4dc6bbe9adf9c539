"""Answers put together from kept texts are the very bytes that are written from values."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.cache import BoundedCache
from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.prune.result import BlockSelection, PruneResult
from lamella.snapshot.prune.segment_text import SegmentTexts
from lamella.snapshot.prune.writer import answer_of
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import AddColumn
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import OrderBy, PruneRequest, Shape

SCHEMA = Schema.assign([Column(name="a", type="int64")])
LEAF = SCHEMA.leaves()[0]
SHAPES: tuple[Shape, ...] = ("records", "columns")
CACHE_BYTES = 1 << 22

Table = tuple[Warehouse, SnapshotPointer]


def blocks(rng: Random, numbers: range, *, name: str = "", schema_id: int = 0) -> list[Block]:
    """Blocks of ten values of ``a`` each, counting on, with names that are odd now and then."""
    odd = ['"', "\\", "\n", "\x7f", "é", "😀", "", "{}", ",", '"verdict":"ALL"}', '\\"verdict":"ALL"}']
    return [
        Block(
            location=f"memory://b/{rng.choice(odd)}{number}{name}",
            row_count=rng.choice([1, 10, 10**9, 2**40]),
            file_size=rng.choice([0, rng.randint(0, 2**50)]),
            schema_id=schema_id,
            col_stats={
                LEAF.id: ColumnStats(
                    min=to_bound(LEAF.dtype, number * 10), max=to_bound(LEAF.dtype, number * 10 + 9), null_count=0
                )
            },
        )
        for number in numbers
    ]


def table(rng: Random, *, count: int = 300, segment_blocks: int = 100, name: str = "") -> Table:
    """A table of such blocks."""
    warehouse = Warehouse(FsspecStore(), "memory://assembled", segment_blocks=segment_blocks)
    table_id = rng.randbytes(16).hex()
    pointer = warehouse.create(table_id, SCHEMA, now_ms=1)
    refs = warehouse.prepare(table_id, SCHEMA, blocks(rng, range(count), name=name))
    return warehouse, warehouse.commit(pointer, added=refs, now_ms=2).pointer


def unopened(found: PruneResult) -> PruneResult:
    """The same result, whose sidecars cannot be opened."""
    return msgspec.structs.replace(found, open_segment=_unopened)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_an_answer_from_cached_texts_is_that_from_values(seed: int) -> None:
    """Byte for byte, for ranges of every width; the second time no sidecar is opened."""
    rng = Random(seed)
    warehouse, pointer = table(rng, segment_blocks=rng.choice([30, 100, 1_000]))
    texts = SegmentTexts(BoundedCache(CACHE_BYTES))
    for _ in range(8):
        low, high = sorted(rng.choices(range(3_000), k=2))
        hole = rng.choice(["", f" AND (a < {low + 200} OR a > {low + 400})", f" AND a <> {high - 5}"])
        request = PruneRequest(filter=f"a >= {low} AND a <= {high}{hole}", shape=rng.choice(SHAPES))
        found = warehouse.find(pointer, request)
        expected = msgspec.json.encode(answer_of(found))
        written = texts.answer(found, opening=True)
        assert written in (None, expected)
        if written is not None:
            assert texts.answer(unopened(found), opening=False) == expected


def test_texts_are_for_answers_that_are_mostly_runs() -> None:
    """Neighbours come from texts; blocks here and there, none, orders, sizes and ranges do not."""
    warehouse, pointer = table(Random(1))
    texts = SegmentTexts(BoundedCache(CACHE_BYTES))

    def answer(filter: str, request: PruneRequest) -> bytes | None:
        return texts.answer(warehouse.find(pointer, msgspec.structs.replace(request, filter=filter)), opening=True)

    for shape in SHAPES:
        plain = PruneRequest(shape=shape)
        assert answer("a >= 500 AND a < 2500", plain) is not None
        assert answer("a >= 0", plain) is not None
        assert answer("a < 0", plain) is None
        assert answer(" OR ".join(f"a = {each}" for each in range(5, 3_000, 50)), plain) is None
        assert answer("a >= 0", msgspec.structs.replace(plain, columns=("a",))) is None
        assert answer("a >= 0", msgspec.structs.replace(plain, order_by=(OrderBy(column="a"),))) is None
        assert answer("a >= 0", msgspec.structs.replace(plain, residuals=True)) is None
    assert answer("a >= 0", PruneRequest(shape="ranges")) is None
    assert answer("a >= 0", PruneRequest(level="segment")) is None


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_opened_unless_it_may_be(shape: Shape) -> None:
    """Without a text the answer is left to others, also when so little is asked for that making one is not worth it."""
    warehouse, pointer = table(Random(2), count=900, segment_blocks=300)
    texts = SegmentTexts(BoundedCache(CACHE_BYTES))
    whole = warehouse.find(pointer, PruneRequest(filter="a >= 0", shape=shape))
    few = warehouse.find(pointer, PruneRequest(filter="a >= 1000 AND a < 1160", shape=shape))
    assert texts.answer(unopened(whole), opening=False) is None
    assert few.block_count == 16
    assert texts.answer(unopened(few), opening=True) is None
    assert texts.answer(whole, opening=True) is not None
    assert texts.answer(unopened(few), opening=False) == msgspec.json.encode(answer_of(few))


def test_blocks_of_an_older_schema_are_written_from_values() -> None:
    """Their answers have a member more; those of segments without any have not."""
    rng = Random(3)
    warehouse, pointer = table(rng)
    evolved = warehouse.evolve(pointer, [AddColumn(name="b", type="int64")], now_ms=3)
    head = evolved.snapshot
    younger = blocks(rng, range(300, 400), schema_id=head.schema.schema_id)
    mixed = [*blocks(rng, range(400, 450)), *blocks(rng, range(450, 500), schema_id=head.schema.schema_id)]
    pointer = evolved.pointer
    for some in (younger, mixed):
        refs = warehouse.prepare(head.table_id, head, some)
        pointer = warehouse.commit(pointer, added=refs, now_ms=4).pointer
    texts = SegmentTexts(BoundedCache(CACHE_BYTES))
    for filter, is_younger in (("a < 900", False), ("a >= 3000 AND a < 4000", True), ("a >= 4500", False)):
        for shape in SHAPES:
            found = warehouse.find(pointer, PruneRequest(filter=filter, shape=shape))
            written = texts.answer(found, opening=True)
            assert written == (msgspec.json.encode(answer_of(found)) if is_younger else None)


def test_a_large_answer_is_left_to_be_sent_in_pieces() -> None:
    """More than a megabyte is never put together as one, however few blocks it has."""
    warehouse, pointer = table(Random(4), name="x" * 5_000)
    texts = SegmentTexts(BoundedCache(CACHE_BYTES))
    for filter, is_large in (("a >= 0", True), ("a < 1000", False)):
        for shape in SHAPES:
            found = warehouse.find(pointer, PruneRequest(filter=filter, shape=shape))
            written = texts.answer(found, opening=True)
            assert (written is None) == is_large
            assert written is None or len(written) < 1 << 20


def test_texts_take_no_more_memory_than_they_are_given() -> None:
    """They count into what is held in memory, go when others need the room, and answers stay right."""
    warehouse, pointer = table(Random(5), segment_blocks=30)
    cache = BoundedCache(20_000)
    texts = SegmentTexts(cache)
    for low in [*range(0, 2_700, 100)] * 2:
        found = warehouse.find(pointer, PruneRequest(filter=f"a >= {low} AND a < {low + 300}", shape="columns"))
        written = texts.answer(found, opening=True)
        assert written == msgspec.json.encode(answer_of(found))
        assert 0 < cache.size_bytes <= 20_000
    assert len(cache) < 10


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_runs_are_the_blocks_in_as_few_pieces_as_can_be(seed: int) -> None:
    """Unrolled they are the kept blocks of every segment, whole ones included; no two neighbours could be one."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, size=rng.integers(1, 6))
    segments = np.flatnonzero(rng.random(len(counts)) < 0.8)
    whole = np.where(rng.random(len(segments)) < rng.choice([0.0, 0.3]), rng.integers(1, 4, len(segments)), 0).astype(
        np.uint8
    )
    share = np.where(whole, 0.0, rng.choice([0.7, 1.0]))
    rows = [np.flatnonzero(rng.random(counts[s]) < p) for s, p in zip(segments, share, strict=True)]
    codes = rng.integers(1, 3, size=sum(map(len, rows))).astype(np.uint8)
    offsets = np.cumsum([0, *map(len, rows)])
    every = np.concatenate([np.zeros(0, int), *rows])
    selection = BlockSelection.of_blocks(segments, whole, offsets, every, codes, counts)
    parts = tuple(selection.parts(_unopened))
    runs = selection.runs()
    listed = list(zip(runs.ordinal, runs.first, runs.count, runs.code, strict=True))
    unrolled = [(ordinal, first + at, code) for ordinal, first, count, code in listed for at in range(count)]
    expected = [
        (ordinal, row, code)
        for ordinal, part in enumerate(parts)
        for row, code in zip(part.rows.tolist(), part.codes.tolist(), strict=True)
    ]
    assert unrolled == expected
    assert all(count > 0 for _, _, count, _ in listed)
    assert not any((a[0], a[1] + a[2], a[3]) == (b[0], b[1], b[3]) for a, b in pairwise(listed))
    alone = BlockSelection.of_parts(parts, counts).runs()  # the parts as others have them, one by one
    for name in ("ordinal", "first", "count", "code"):
        assert getattr(alone, name) == getattr(runs, name)


def _unopened(row: int) -> Sidecar:
    raise AssertionError(f"the sidecar of {row} was opened")
