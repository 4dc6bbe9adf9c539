"""Hostile Parquet files: what a footer or a page index says may be anything."""

from __future__ import annotations

import io
from functools import cache
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.guard import peak_bytes, survive
from fuzz.mutation import EDGES, mutated_bytes
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import block_of, read_footer, schema_of
from lamella.snapshot.parquet.columns import plan
from lamella.snapshot.parquet.footer import Footer
from lamella.snapshot.parquet.page_index import page_zones, read_page_index
from lamella.snapshot.parquet.statistics_rules import Origin, chunk_stats
from lamella.snapshot.parquet.writer import legacy_calendar, writer_of
from lamella.snapshot.schema import Column, Schema
from parquet.crafted import chunk, element, encode, file_bytes, metadata, statistics, stored, varint

SEEDS = st.integers(0, 2**48)
TABLE = Schema.assign([Column(name="a", type="int64"), Column(name="f", type="float64")])


@cache
def files() -> tuple[bytes, ...]:
    """Real files: several types and row groups, with and without a page index and bloom filters."""
    rows = 200
    table = pa.table(
        {
            "a": pa.array([None if i % 7 == 0 else i for i in range(rows)], pa.int64()),
            "f": pa.array([float("nan") if i % 50 == 0 else i / 3 for i in range(rows)]),
            "s": [f"text {i % 13}" * 3 for i in range(rows)],
            "d": pa.array(range(rows), pa.decimal128(20, 3)),
            "t": pa.array(range(rows), pa.timestamp("us", tz="UTC")),
            "l": [[i] * (i % 3) for i in range(rows)],
            "z": [{"x": i, "y": {"w": b"\xff"}} for i in range(rows)],
        }
    )
    small: dict[str, Any] = {"data_page_size": 64, "write_batch_size": 20}
    out = []
    for part, options in (
        (table, {"write_page_index": True, "row_group_size": 80, **small}),
        (table.select(["a", "f"]), {"write_page_index": True, "use_dictionary": False, **small}),
        (table, {"row_group_size": 50, "store_schema": False}),
    ):
        buffer = io.BytesIO()
        pq.write_table(part, buffer, **options)
        out.append(buffer.getvalue())
    return tuple(out)


def swallow(data: bytes) -> bool:
    """Read a file in every way that Lamella has; True when it could be a block."""
    store, location = stored(data)
    footer = survive(lambda: read_footer(store, location), data[-2_000:])
    if isinstance(footer, LamellaError):
        return False
    own = survive(lambda: schema_of(footer), footer)
    used = False
    for schema in (TABLE, own):
        if isinstance(schema, LamellaError):
            continue
        block = survive(lambda schema=schema: block_of(footer, schema), footer)  # type: ignore[misc]  # bound at once
        if not isinstance(block, LamellaError):
            assert msgspec.json.decode(msgspec.json.encode(block), type=Block) == block
            used = True
        survive(lambda schema=schema: _pages(store, footer, schema), footer)  # type: ignore[misc]  # bound at once
    return used


def _pages(store: Any, footer: Footer, schema: Schema) -> int:
    """Read the page index and take every page's bounds from it; what is kept is consistent with itself."""
    leaves = range(len(footer.metadata.schema.leaves))
    index = read_page_index(store, footer, bounds=leaves)
    found = 0
    origin = Origin(writer_of(footer.metadata.created_by), legacy_calendar(footer.metadata.properties))
    orders = footer.metadata.column_orders
    for column in plan(footer.metadata.schema, schema).present:
        for number, group in enumerate(footer.metadata.row_groups):
            pages = index.at(number, column.index)
            if pages is None:
                continue
            assert int(pages.row_counts.sum()) == group.num_rows
            assert (pages.row_counts > 0).all()
            part, order = group.chunks[column.index], orders[column.index] if len(orders) == len(leaves) else 0
            stats = chunk_stats(column, part, group.num_rows, order, origin)
            raw = index.column_indexes.get((number, column.index), b"")
            zones = page_zones(column, part, stats, pages, raw, order, origin)
            if not isinstance(zones, str):
                assert len(zones.lows) == len(zones.highs) == len(zones.flags) == len(zones.nulls) == len(pages)
                found += 1
    return found


def hostile_file(seed: int) -> bytes:
    """A real file, damaged in its footer, in its page indexes, or anywhere."""
    rng = Random(seed)
    data = rng.choice(files())
    length = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - length], data[-8 - length : -8]
    match rng.randrange(4):
        case 0:
            return mutated_bytes(rng, data)
        case 1:  # the page indexes stand right before the footer
            at = max(4, len(body) - rng.choice((100, 1_000, 3_000)))
            tail = mutated_bytes(rng, body[at:])
            return body[:at] + tail[: len(body) - at].ljust(len(body) - at, b"\0") + data[-8 - length :]
        case _:
            return body + _framed(mutated_bytes(rng, footer))


def _framed(footer: bytes) -> bytes:
    return footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_the_files_are_read() -> None:
    """What the mutations start from can be used, page indexes too."""
    assert all(swallow(data) for data in files())
    store, location = stored(files()[0])
    footer = read_footer(store, location)
    assert _pages(store, footer, schema_of(footer)) > 10


@settings(max_examples=300)
@given(SEEDS)
def test_damaged_files(seed: int) -> None:
    """Damage anywhere: an error of ours, or a block that survives JSON and pages that add up."""
    swallow(hostile_file(seed))


@pytest.mark.soak
def test_a_lot_of_damaged_files() -> None:
    """As above, 60,000 times; a good part of them is still used."""
    assert sum(swallow(hostile_file(seed)) for seed in range(60_000)) > 5_000


# --- footers that say anything, field by field ---


def _number(rng: Random) -> int:
    return rng.choice((0, 1, 2, 10, -1, rng.randint(-5, 500), max(-(1 << 63), min(rng.choice(EDGES), (1 << 63) - 1))))


def _bytes(rng: Random) -> bytes:
    return rng.choice((b"", b"\0", b"\xff" * 8, b"\x7f\xf0" * 4, rng.randbytes(rng.randrange(40)), b"a" * 3_000))


def stated_file(seed: int) -> bytes:
    """A file of little but a footer, whose fields are plausible but for some that say anything."""
    rng = Random(seed)
    leaves = [_leaf(rng, name) for name in ("a", "f", "g")[: rng.randint(1, 3)]]
    groups = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        rows = rng.choice((10, 10, 10, 0, _number(rng)))
        chunks = [_chunk(rng, leaf, rows) for leaf in leaves]
        groups.append((rows, chunks[: rng.choice((len(chunks), len(chunks), len(chunks), 1))]))
    more: dict[int, Any] = {3: _number(rng)} if rng.random() < 0.2 else {}
    writer = rng.choice(("parquet-cpp-arrow version 26.0.1", "parquet-mr version 1.8.0 (build x)", "x", "", None))
    return file_bytes(metadata(leaves, groups, created_by=writer, more=more), body_bytes=rng.choice((200, 4_000)))


def _leaf(rng: Random, name: str) -> dict[int, Any]:
    physical = rng.choice((1, 2, 3, 4, 5, 6, 7, 0, 9))
    more: dict[str, Any] = {}
    if rng.random() < 0.4:
        more = {"converted": rng.randint(-1, 25), "precision": _number(rng), "scale": _number(rng)}
    if rng.random() < 0.3:
        more["logical"] = {
            rng.randint(1, 20): rng.choice(({}, {1: _number(rng)}, {1: True, 2: {rng.randint(1, 4): {}}}))
        }
    if physical == 7 or rng.random() < 0.2:
        more["length"] = _number(rng)
    return element(name, physical, repetition=rng.choice((0, 1, 1, 2, 7)), **more)


def _chunk(rng: Random, leaf: dict[int, Any], rows: int) -> dict[int, Any]:
    values = [_bytes(rng) if rng.random() < 0.5 else _number(rng).to_bytes(8, "little", signed=True) for _ in range(4)]
    stats = statistics(
        values[0], values[1], nulls=rng.choice((None, 0, 3, _number(rng))), old_low=values[2], old_high=values[3],
        exact=rng.choice((None, True, False)), nans=rng.choice((None, 0, _number(rng))),
    )  # fmt: skip
    meta = {field: _number(rng) for field in (1, 4, 5, 6, 7, 9, 11, 14, 15) if rng.random() < 0.08}
    if rng.random() < 0.1:
        meta[16] = {3: [_number(rng) for _ in range(rng.randint(0, 4))]}  # type: ignore[assignment]  # a structure
    outer = {field: _number(rng) for field in (2, 4, 5, 6, 7) if rng.random() < 0.15}
    return chunk([leaf[4]], leaf[1], rng.choice((stats, stats, None)), num_values=rows, meta=meta, outer=outer)


@settings(max_examples=300)
@given(SEEDS)
def test_footers_that_say_anything(seed: int) -> None:
    """Well-formed footers whose numbers and bounds cannot be true are refused or disbelieved."""
    swallow(stated_file(seed))


@pytest.mark.soak
def test_a_lot_of_footers_that_say_anything() -> None:
    """As above, 100,000 times; some of them can be believed."""
    assert sum(swallow(stated_file(seed)) for seed in range(100_000)) > 2_000


# --- bombs ---

BOMBS = {
    "a list of 2^31 structures": b"\x29" + b"\xfc" + varint((1 << 31) - 1),
    "a list of 2^60 bytes": b"\x29" + b"\xf3" + varint(1 << 60),
    "text of 2^62 bytes": b"\x48" + varint(1 << 62),
    "structures within structures": b"\x1c" * 500_000,
    "lists within lists": b"\x19" + b"\x19" * 500_000,
    "a map of 2^31 entries": b"\x1b" + varint((1 << 31) - 1) + b"\x88",
    "an endless number": b"\x16" + b"\xff" * 500_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_footer_that_promises_much_takes_little(name: str) -> None:
    """Sizes that are not there, and endless nesting: refused within some times the footer's own size."""
    data = file_bytes(BOMBS[name])
    assert not swallow(data)
    assert peak_bytes(lambda: swallow(data)) < 40 * len(data) + (2 << 20)


@pytest.mark.parametrize("columns", [50, pytest.param(3_000, marks=pytest.mark.soak)])
def test_a_wide_file_with_many_row_groups_takes_memory_in_proportion(columns: int) -> None:
    """Column chunks cost about what they take in the footer, not their square."""
    leaves = [element(f"c{i}", 2) for i in range(columns)]
    chunks = [chunk([f"c{i}"], 2, statistics(b"\1" * 8, b"\2" * 8, nulls=0)) for i in range(columns)]
    data = file_bytes(metadata(leaves, [(10, chunks)] * 20), body_bytes=4_000)
    assert swallow(data)
    assert peak_bytes(lambda: swallow(data)) < 200 * len(data) + (4 << 20)


def test_page_indexes_that_promise_much_take_little() -> None:
    """An offset index of a thousand bytes that claims 2^31 pages is not believed."""
    index = b"\x19" + b"\xfc" + varint((1 << 31) - 1) + b"\x16\x02" * 400
    body = b"PAR1" + index.ljust(2_000, b"\0")
    part = chunk(["a"], 2, None, outer={4: 4, 5: len(index), 6: 4, 7: len(index)}, meta={9: 1_500, 7: 100})
    footer = encode(metadata([element("a", 2)], [(10, [part])]))
    data = body + _framed(footer)
    assert swallow(data)
    assert peak_bytes(lambda: swallow(data)) < 4 << 20
    store, location = stored(data)
    assert not read_page_index(store, read_footer(store, location)).pages
