"""Counts of distinct values: close to the truth, the same through every layer, and never in anyone's way."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from typing import Any

import datasketches  # type: ignore[import-untyped]  # ships no type information
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.client.rewrite.block_writer import write_block
from lamella.service.commits.blocks import check_block
from lamella.snapshot.errors import ManifestError, SchemaMismatch
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block, Snapshot, SnapshotPointer
from lamella.snapshot.parquet import ingest
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.sketch import Sketch, check, estimate, family_of, united
from lamella.snapshot.sketch.hll import LG_K, compact
from lamella.snapshot.sketch.layers import encode, read_blocks, read_union
from lamella.snapshot.sketch.sketcher import Sketcher
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from support import generate
from support.arrow_files import arrow_array

#: Four times the standard error of 1,024 registers.
TOLERANCE = 4 * 1.04 / 32


def sketch_of(kind: str, *batches: Any) -> Sketch:
    """The sketch of values given as Arrow arrays."""
    sketcher = Sketcher(generate.dtype_of(kind))
    for batch in batches:
        sketcher.add(batch)
    sketch = sketcher.sketch()
    assert sketch is not None
    return sketch


@pytest.mark.parametrize("kind", [kind for kind in generate.TYPES if kind != "time(us)"])
def test_few_values_of_every_type_are_counted_exactly(kind: str) -> None:
    """Up to some dozens, duplicates, nulls, NaN and both zeros included."""
    rng = Random(kind)
    dtype = generate.dtype_of(kind)
    cells = [rng.choice([None, generate.value(rng, dtype)]) for _ in range(60)]
    present = [cell for cell in cells if cell is not None]
    numbers = {cell for cell in present if cell == cell}
    true = len(numbers) + any(cell != cell for cell in present)
    array = arrow_array(dtype, cells)
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    assert estimate(sketch_of(kind, array[:20], array[20:])) == true
    assert estimate(sketch_of(kind, pa.chunked_array([array[:7], array[7:]]))) == true


@pytest.mark.parametrize("count", [1_000, 30_000, 400_000])
def test_many_values_are_counted_closely_and_unions_are_those_of_all_values(count: int) -> None:
    """Within the error of the registers; the union of overlapping halves has the registers of the whole."""
    values = np.random.default_rng(count).permutation(count)
    whole = sketch_of("int64", pa.array(values))
    halves = [
        sketch_of("int64", pa.array(values[: count * 2 // 3])),
        sketch_of("int64", pa.array(values[count // 3 :])),
    ]
    both = united(halves)
    assert both is not None
    assert abs(estimate(whole) / count - 1) < TOLERANCE
    assert abs(estimate(both) / count - 1) < TOLERANCE
    assert both.data[48:] == whole.data[48:]
    assert len(whole.data) <= 1_024
    texts = sketch_of("string", pa.array([f"user-{value}" for value in values.tolist()]))
    assert abs(estimate(texts) / count - 1) < TOLERANCE


def by_the_library(family: str, items: list[Any]) -> Sketch:
    """The sketch of a library that was given every value, one after another."""
    sketch = datasketches.hll_sketch(LG_K, datasketches.tgt_hll_type.HLL_8)
    for item in items:
        sketch.update(item)
    return Sketch(family, compact(sketch))


@pytest.mark.parametrize("count", [90, 700, 20_000, 200_000])
@pytest.mark.parametrize("repeats", [1, 3])
def test_a_sketch_is_the_one_of_the_library_bit_for_bit(count: int, repeats: int) -> None:
    """Values that change nothing are left out by their hashes, in batches; that must not show, not even in the estimate
    that depends on their order."""
    rng = np.random.default_rng(count + repeats)
    numbers = rng.permutation(np.repeat(rng.integers(-(2**63), 2**63 - 1, count // repeats), repeats))
    integers = pa.array(numbers)
    batches = [integers[start : start + 30_000] for start in range(0, len(integers), 30_000)]
    assert sketch_of("int64", *batches) == by_the_library("integer", numbers.tolist())
    assert sketch_of("int32", pa.array(numbers >> 32, pa.int32())) == by_the_library(
        "integer", (numbers >> 32).tolist()
    )
    doubles = numbers.view(np.float64)
    doubles[:3] = [0.0, -0.0, np.nan]
    assert sketch_of("double", pa.array(doubles)) == by_the_library("float", doubles.tolist())
    letters = "aé日😀\0 z"
    texts = ["".join(letters[ord(digit) % 7] for digit in str(number)[: number % 21]) for number in numbers.tolist()]
    texts = [text + str(number) for text, number in zip(texts, numbers.tolist(), strict=True)]
    chunks = pa.chunked_array([texts[: count // 3], texts[count // 3 :]])
    assert sketch_of("string", chunks) == by_the_library("text", texts)
    assert sketch_of("string", chunks.slice(5)) == by_the_library("text", texts[5:])


def test_the_empty_text_is_a_value() -> None:
    """The library does not count it, so another text stands for it, in every batch."""
    texts = [f"text {number}" for number in range(3_000)]
    with_empty = sketch_of("string", pa.array([*texts, "", None]), pa.array(["", *texts]))
    counted = estimate(with_empty)
    assert abs(counted / 3_001 - 1) < TOLERANCE
    assert estimate(sketch_of("string", pa.array(["", "a", None, ""]))) == 2


def test_widened_types_count_on_and_others_do_not_mix() -> None:
    """An integer is the same value in every width, a decimal only at one scale."""
    narrow, wide = sketch_of("int8", pa.array([1, 2], pa.int8())), sketch_of("uint64", pa.array([2, 3], pa.uint64()))
    both = united([narrow, wide])
    assert both is not None
    assert estimate(both) == 3
    assert united([narrow, sketch_of("date", pa.array([1], pa.int32()).cast(pa.date32()))]) is None
    assert family_of(generate.dtype_of("decimal(5,2)")) != family_of(generate.dtype_of("decimal(6,3)"))
    assert united([]) is None


def test_text_that_is_no_utf8_is_not_counted() -> None:
    """There is no count rather than a wrong one."""
    sketcher = Sketcher(generate.dtype_of("string"))
    sketcher.add(pa.array([b"\xff"], pa.large_binary()))
    sketcher.add(pa.array([b"a"], pa.large_binary()))
    assert sketcher.sketch() is None
    with pytest.raises(ValueError, match="interval"):
        Sketcher(generate.dtype_of("interval"))


def test_damaged_sketches_are_named_and_never_crash() -> None:
    """Whatever the bytes, an error of ours or a number comes out."""
    sketch = sketch_of("int64", pa.array(range(5_000)))
    rng = Random(0)
    for _ in range(300):
        data = bytearray(sketch.data[: rng.randint(0, len(sketch.data))] if rng.random() < 0.3 else sketch.data)
        for _ in range(rng.randint(0, 5)):
            if data:
                data[rng.randrange(min(len(data), 48))] = rng.randrange(256)
        try:
            estimate(Sketch("integer", bytes(data)))
        except ManifestError:
            continue
    dtype = generate.dtype_of("int64")
    assert check(dtype, sketch) is None
    assert check(dtype, Sketch("integer", b"x")) is not None
    assert check(generate.dtype_of("date"), sketch) is not None


SCHEMA = Schema.assign([Column(name="a", type="int64"), Column(name="s", type="string")])


class Lake:
    """A table in a warehouse on disk, written as the Spark writer writes."""

    def __init__(self, folder: Path) -> None:
        self.store = FsspecStore()
        self.root = f"file://{folder}"
        self.warehouse = Warehouse(self.store, self.root, segment_blocks=2)
        self.pointer: SnapshotPointer = self.warehouse.create("t", SCHEMA, now_ms=1)
        self.layout = TableLayout(f"{self.root}/t")

    def block(self, start: int, stop: int, *, sketched: bool = True) -> Block:
        """A block of the numbers from ``start`` to ``stop``, and their last digits as text."""
        numbers = range(start, stop)
        rows = pa.table({"a": pa.array(numbers, pa.int64()), "s": [str(n % 10) for n in numbers]})
        block = write_block(self.store, self.layout, Ids(), rows, SCHEMA)
        return block if sketched else Block(location=block.location, row_count=stop - start, file_size=1)

    def append(self, *blocks: Block) -> None:
        """Commit blocks."""
        leaves = self.warehouse.prepare("t", SCHEMA, blocks)
        self.pointer = self.warehouse.commit(self.pointer, added=leaves, now_ms=2).pointer

    def remove(self, *blocks: Block) -> None:
        """Commit that blocks are gone."""
        gone = [block.location for block in blocks]
        self.pointer = self.warehouse.commit(self.pointer, removed=gone, operation="delete", now_ms=3).pointer

    def counts(self) -> tuple[int | None, int | None]:
        """The counts of the snapshot, which any other reader finds too."""
        snapshot: Snapshot = Warehouse(self.store, self.root).snapshot(self.pointer)
        stats = snapshot.summary.col_stats
        return stats[1].distinct_of_values, stats[2].distinct_of_values

    def objects(self) -> int:
        """How many sketch objects there are."""
        return len(list(self.store.list(f"{self.root}/t/_ts")))


def test_counts_grow_with_appends_and_shrink_with_removals(tmp_path: Path) -> None:
    """Overlap is not counted twice; what was removed is not counted at all; every layer agrees."""
    lake = Lake(tmp_path)
    first, second, third = lake.block(0, 20), lake.block(10, 30), lake.block(100, 105)
    lake.append(first, second, third)
    assert lake.counts() == (35, 10)
    lake.warehouse = Warehouse(lake.store, lake.root, segment_blocks=2)  # nothing in memory
    lake.append(lake.block(0, 40))
    assert lake.counts() == (45, 10)
    segments = list(lake.warehouse.segments(lake.pointer))
    assert [ref.summary.col_stats[1].distinct_of_values for ref in segments] == [30, 45]  # the small ones folded
    lake.remove(second, third)
    assert lake.counts() == (40, 10)
    manifest = lake.warehouse.segment(next(lake.warehouse.segments(lake.pointer)))
    assert all(not block.sketches for block in manifest.blocks)


def test_one_block_without_sketches_makes_the_counts_unknown_until_it_is_gone(tmp_path: Path) -> None:
    """An estimate of a part would pass for one of the whole."""
    lake = Lake(tmp_path)
    plain = lake.block(50, 60, sketched=False)
    lake.append(lake.block(0, 20))
    lake.append(plain)
    assert lake.counts() == (None, None)
    lake.append(lake.block(20, 25))
    assert lake.counts() == (None, None)
    lake.remove(plain)
    assert lake.counts() == (25, 10)


def test_a_table_without_sketches_has_no_sketch_objects(tmp_path: Path) -> None:
    """Registered files cost nothing more than before."""
    lake = Lake(tmp_path)
    lake.append(lake.block(0, 10, sketched=False))
    assert lake.objects() == 0


def test_lost_or_damaged_sketch_objects_only_lose_the_counts(tmp_path: Path) -> None:
    """Commits go on and prunes answer; the counts are unknown."""
    lake = Lake(tmp_path)
    first, second = lake.block(0, 20), lake.block(20, 30)
    lake.append(first, second)
    for stat in list(lake.store.list(f"{lake.root}/t/_ts")):
        lake.store.delete(stat.location)
        lake.store.put(stat.location, b"LSK1 and then nothing that makes sense")
    lake.warehouse = Warehouse(lake.store, lake.root, segment_blocks=2)
    lake.append(lake.block(40, 50))
    assert lake.counts() == (None, None)
    lake.remove(first)
    assert lake.counts() == (None, None)
    assert len(lake.warehouse.prune(lake.pointer, PruneRequest(filter="a > 25")).blocks or ()) == 2


def test_sketch_objects_come_back_whole(tmp_path: Path) -> None:
    """The union can be read without the blocks, also when it is longer than the first read."""
    store = FsspecStore()
    rng = np.random.default_rng(0)
    columns = {column: sketch_of("int64", pa.array(rng.integers(0, 2**60, 3_000))) for column in range(1, 301)}
    store.put(f"file://{tmp_path}/x", encode(columns, {"somewhere": columns}))
    assert read_union(store, f"file://{tmp_path}/x") == columns
    assert read_blocks(store, f"file://{tmp_path}/x") == {"somewhere": columns}
    assert read_union(store, f"file://{tmp_path}/nothing") is None
    assert read_blocks(store, f"file://{tmp_path}/nothing") == {}


def test_verified_files_are_counted_too(tmp_path: Path) -> None:
    """A scan that reads every value counts them on the way."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1, 2, 2, None], "s": ["x", "y", "x", "z"]}), path)
    ((block,), refused) = ingest(FsspecStore(), [f"file://{path}"], SCHEMA, verify=True, workers=1)
    assert refused == []
    assert [block.col_stats[column].distinct_of_values for column in (1, 2)] == [2, 3]
    assert sorted(block.sketches) == [1, 2]


def test_a_sketch_that_cannot_be_one_is_refused() -> None:
    """A writer's mistake is said when it commits."""
    block = Block(location="memory://x", row_count=1, file_size=1, sketches={1: Sketch("integer", b"no")})
    with pytest.raises(SchemaMismatch):
        check_block(block, SCHEMA.by_id())


@pytest.mark.parametrize("count", [float("nan"), float("inf"), -1.0])
def test_a_sketch_without_a_count_is_refused(count: float) -> None:
    """The count that a sketch stores of itself may be any number; one that counts nothing is a writer's mistake."""
    assert "estimate" in (check(SCHEMA.leaf("a").dtype, forged(count)) or "")


def test_the_count_of_a_forged_sketch_fits_a_manifest() -> None:
    """A sketch can claim more values than 64 bits count, by the number it stores and by its registers."""
    assert estimate(forged(1e300)) == estimate(forged(1e19)) == (1 << 63) - 1
    full = bytearray(forged(5.0).data)
    full[-1024:] = bytes([63]) * 1024
    union = united([Sketch("integer", bytes(full)), forged(5.0)])
    assert union is not None
    assert estimate(union) == (1 << 63) - 1


def forged(count: float) -> Sketch:
    """A sketch of many numbers that states another count of itself."""
    hll = datasketches.hll_sketch(10, datasketches.tgt_hll_type.HLL_8)
    for number in range(5_000):
        hll.update(number)
    data = bytearray(hll.serialize_compact())
    data[8:16] = struct.pack("<d", count)
    return Sketch("integer", bytes(data))
