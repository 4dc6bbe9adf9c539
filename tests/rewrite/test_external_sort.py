"""Blocks in, sorted runs, ranges of them, blocks out: no row is lost or doubled, and the order is the cluster key's."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.client.rewrite.engine import Engine, LocalEngine, SerialEngine, merge_runs, scratch_space
from lamella.client.rewrite.sort import Order, Run, Scratch, cut_ranges
from lamella.client.rewrite.source import Source
from lamella.client.rewrite.stages import Bin, MergeRange, RewriteBin, Sink, SinkResult, SortBlocks
from lamella.client.rewrite.target import Target
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import read_footer, schema_of
from lamella.snapshot.parquet.ingest import ingest
from lamella.snapshot.storage import FsspecStore

TYPES: dict[str, pa.DataType] = {
    "i": pa.int64(),
    "u": pa.uint64(),
    "f": pa.float64(),
    "t": pa.string(),
    "b": pa.binary(),
    "d": pa.date32(),
    "m": pa.decimal128(30, 4),
    "ts": pa.timestamp("ns"),
    "flag": pa.bool_(),
    "fix": pa.binary(3),
}


def value_of(rng: random.Random, name: str) -> Any:
    """A value; few different ones, so that keys repeat, with null and the special ones among them."""
    if rng.random() < 0.1:
        return None
    match name:
        case "i":
            return rng.choice([-(2**63), 2**63 - 1, rng.randint(-5, 5), rng.randint(-(10**9), 10**9)])
        case "u":
            return rng.choice([0, 2**64 - 1, rng.randint(0, 9)])
        case "f":
            return rng.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, rng.random(), -1.5])
        case "t":
            return rng.choice(["", "a", "ä", "\U0001f600", "z" * 80, f"user_{rng.randint(0, 40)}"])
        case "b" | "fix":
            return bytes(rng.choice([b"\x00\x00\x01", b"\xff\xff\xff", b"abc"]))
        case "d":
            return dt.date(1960, 1, 1) + dt.timedelta(days=rng.randint(0, 20_000))
        case "m":
            return Decimal(rng.randint(-(10**25), 10**25)).scaleb(-4)
        case "ts":
            return rng.randint(-(10**18), 10**18)
        case _:
            return rng.random() < 0.5


def rows_of(rng: random.Random, count: int) -> pa.Table:
    """Random rows, each with a number of its own."""
    columns = {name: pa.array([value_of(rng, name) for _ in range(count)], kind) for name, kind in TYPES.items()}
    return pa.table({**columns, "row": pa.array([rng.getrandbits(60) for _ in range(count)], pa.int64())})


def comparable(name: str, value: Any) -> Any:
    """A key of Python's own that sorts as the format says: NaN above all numbers, nulls last, text by bytes."""
    if value is None:
        return (1, 0)
    if name == "f":
        return (0, (1, 0.0) if math.isnan(value) else (0, value + 0.0))
    return (0, value.encode() if isinstance(value, str) else value)


def as_text(rows: pa.Table) -> list[str]:
    """Each row as text that tells -0.0 from 0.0, and is the same for every NaN."""
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rows.columns]
    return [repr(each) for each in zip(*(column.to_pylist() for column in columns), strict=True)]


class Files:
    """Parquet files of random rows, as blocks of a table of their own."""

    def __init__(self, folder: Path, rng: random.Random, sizes: list[int]) -> None:
        self.store = FsspecStore()
        self.rows = [rows_of(rng, size) for size in sizes]
        locations = []
        for number, rows in enumerate(self.rows):
            pq.write_table(rows, folder / f"{number}.parquet")
            locations.append(f"file://{folder / f'{number}.parquet'}")
        self.schema = schema_of(read_footer(self.store, locations[0]))
        self.blocks, refused = ingest(self.store, locations, self.schema, workers=1)
        assert not refused
        self.folder = folder

    def target(self, **more: Any) -> Target:
        """Where blocks are written."""
        (self.folder / "table").mkdir(exist_ok=True)
        return Target(location=f"file://{self.folder}/table", history=(self.schema,), **more)

    @property
    def scratch(self) -> Scratch:
        """Where runs are written."""
        return Scratch(f"file://{self.folder}/scratch")

    def all_rows(self) -> pa.Table:
        """All rows."""
        return pa.concat_tables(self.rows)


def source_of(block: Block) -> Source:
    """What is needed of a block to read it."""
    return Source(
        location=block.location,
        row_count=block.row_count,
        file_size=block.file_size,
        content_id=block.content_id,
        schema_id=0,
    )


def read_back(blocks: list[Block]) -> pa.Table:
    """The rows of blocks, in their order, by another reader."""
    return pa.concat_tables([pq.read_table(block.location.removeprefix("file://")) for block in blocks])


def merged(engine: Engine, files: Files, target: Target, *, bins: int, range_rows: int) -> list[list[Block]]:
    """The blocks of each range, in the order of the ranges."""
    sources = [source_of(block) for block in files.blocks]
    tasks = [Bin(sources=tuple(sources[at::bins])) for at in range(bins)]
    runs: list[Run] = []
    for _, sorted_runs in engine.run(SortBlocks(target=target, scratch=files.scratch), tasks):
        assert sorted_runs.failed is None
        runs += sorted_runs.runs
    ranges = cut_ranges(runs, range_rows)
    found = dict(engine.run(MergeRange(target=target, scratch=files.scratch, block_rows=target.block_rows), ranges))
    return [list(found[number].blocks) for number in range(len(ranges))]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.few(2)
def test_rows_come_out_in_order_and_all_of_them(tmp_path: Path, seed: int) -> None:
    """Whatever the key's types, the sizes and the memory: the same rows, sorted over all ranges."""
    rng = random.Random(seed)
    files = Files(tmp_path, rng, [rng.choice([1, 40, 700, 3000]) for _ in range(rng.randint(1, 6))])
    keys = tuple(rng.sample(sorted(TYPES), rng.randint(1, 3)))
    target = files.target(
        order=Order(keys=keys), block_rows=rng.choice([50, 400]), memory_bytes=rng.choice([1, 60_000])
    )
    found = merged(SerialEngine(), files, target, bins=rng.randint(1, 3), range_rows=rng.choice([300, 1000]))
    rows = read_back([block for blocks in found for block in blocks])
    assert Counter(as_text(rows)) == Counter(as_text(files.all_rows()))
    order = [
        tuple(comparable(name, value) for name, value in zip(keys, values, strict=True))
        for values in zip(
            *(
                rows.column(name).cast(pa.int64()).to_pylist() if name == "ts" else rows.column(name).to_pylist()
                for name in keys
            ),
            strict=True,
        )
    ]
    assert order == sorted(order)


def test_one_key_for_nearly_all_rows_is_cut_as_evenly_as_any(tmp_path: Path) -> None:
    """Rows of one key go to several ranges, so that no task must hold them all."""
    rng = random.Random(5)
    files = Files(tmp_path, rng, [4000, 4000, 4000])
    files.rows = [rows.set_column(0, "i", pa.array([7] * rows.num_rows, pa.int64())) for rows in files.rows]
    again = tmp_path / "hot"
    again.mkdir()
    for number, rows in enumerate(files.rows):
        pq.write_table(rows, again / f"{number}.parquet")
    files.blocks, _ = ingest(files.store, [f"file://{again}/{n}.parquet" for n in range(3)], files.schema, workers=1)
    target = files.target(order=Order(keys=("i",)), block_rows=10**6)
    found = merged(SerialEngine(), files, target, bins=3, range_rows=2000)
    sizes = [sum(block.row_count for block in blocks) for blocks in found]
    assert sum(sizes) == 12_000
    assert len(sizes) == 6
    assert max(sizes) <= 2 * min(sizes)


def test_a_bin_is_written_in_order_with_exact_statistics(tmp_path: Path) -> None:
    """What a bin becomes holds its rows, sorted, in blocks of the size asked for, and says so exactly."""
    rng = random.Random(2)
    files = Files(tmp_path, rng, [300, 500, 40])
    target = files.target(order=Order(keys=("i", "t")), block_rows=210)
    task = Bin(sources=tuple(map(source_of, files.blocks)))
    done = RewriteBin(target=target, scratch=files.scratch)(task)
    assert done.failed is None
    assert [block.row_count for block in done.written.blocks] == [210, 210, 210, 210]
    assert Counter(as_text(read_back(list(done.written.blocks)))) == Counter(as_text(files.all_rows()))
    for block in done.written.blocks:
        values = [v for v in read_back([block]).column("i").to_pylist() if v is not None]
        stats = block.col_stats[files.schema.leaf("i").id]
        assert stats.null_count == block.row_count - len(values)
        assert stats.min is not None
        assert stats.max is not None


def test_a_replaced_file_fails_its_bin(tmp_path: Path) -> None:
    """Rows of a file that is not the registered one are never written anew."""
    files = Files(tmp_path, random.Random(3), [50, 60])
    pq.write_table(files.rows[0], tmp_path / "1.parquet")
    stage = RewriteBin(target=files.target(), scratch=files.scratch)
    done = stage(Bin(sources=tuple(map(source_of, files.blocks))))
    assert done.failed is not None
    assert "1.parquet" in done.failed
    assert not done.written.blocks


def test_processes_do_what_one_thread_does(tmp_path: Path) -> None:
    """The engine decides where tasks run, and nothing else."""
    files = Files(tmp_path, random.Random(4), [800, 900, 100])
    target = files.target(order=Order(keys=("t", "i", "row")), block_rows=300)
    alone = merged(SerialEngine(), files, target, bins=2, range_rows=500)
    with LocalEngine(2) as engine:
        both = merged(engine, files, target, bins=2, range_rows=500)
    assert [[as_text(read_back([b])) for b in blocks] for blocks in alone] == [
        [as_text(read_back([b])) for b in blocks] for blocks in both
    ]


def test_a_stream_of_rows_without_a_key_becomes_blocks_of_the_requested_size(tmp_path: Path) -> None:
    """Rows stay in their order, no small block is left behind: what is over is put together with what others left.

    Columns go by their place, as they come from Spark, also when several blocks come one after another.
    """
    files = Files(tmp_path, random.Random(6), [2_300, 90])
    target = files.target(block_rows=500, memory_bytes=90_000)
    sink = Sink(target=target, scratch=files.scratch)
    numbered = [rows.rename_columns([f"c{at}" for at in range(rows.num_columns)]) for rows in files.rows]
    sunk = [sink.drain(rows.to_batches(max_chunksize=200)) for rows in numbered]
    assert len(sunk[0].written.blocks) > 1
    blocks = [block for each in sunk for block in each.written.blocks]
    assert [row for each in sunk[:1] for row in as_text(read_back(list(each.written.blocks)))] == as_text(
        files.rows[0].slice(0, sunk[0].written.row_count)
    )
    with scratch_space(target, is_near=True) as space:
        rest = merge_runs(SerialEngine(), target, space, [run for each in sunk for run in each.runs])
    blocks += [block for each in rest for block in each.blocks]
    assert Counter(as_text(read_back(blocks))) == Counter(as_text(files.all_rows()))
    assert min(block.row_count for block in blocks) >= 200 or len(rest) == 1


def test_no_rows_make_no_block(tmp_path: Path) -> None:
    """An empty stream leaves nothing, with a key or without."""
    files = Files(tmp_path, random.Random(7), [3])
    for order in (Order(), Order(keys=("i",))):
        assert Sink(target=files.target(order=order), scratch=files.scratch).drain([]) == SinkResult()
