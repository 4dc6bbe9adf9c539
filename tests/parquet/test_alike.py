"""Files whose footers have one shape, decoded together: the same blocks as one by one, or none."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.columnar import build_block_arrays, build_blocks
from lamella.snapshot.commit import Shape, summarize_block_arrays, summarize_blocks
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block, Segment, encode_segment
from lamella.snapshot.manifest import encode as encode_manifest
from lamella.snapshot.manifest.block_arrays import BlockSequence, LooseBlocks, Part
from lamella.snapshot.parquet import block_of, ingest, ingest_arrays, read_footer, schema_of
from lamella.snapshot.parquet.footer import decode_footer, read_footer_bytes
from lamella.snapshot.parquet.footer_batch import FEWEST, FooterDecoder, decode_footer_batch
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.storage.store import ObjectStat
from lamella.snapshot.warehouse import Warehouse
from parquet.crafted import (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FIXED,
    FLOAT,
    INT32,
    INT64,
    OPTIONAL,
    REQUIRED,
    chunk,
    element,
    encode,
    metadata,
    statistics,
)

#: Where the footers of crafted files begin, and those of written ones at the latest.
_BODY_BYTES = 1_000
_LARGE_BODY_BYTES = 1 << 20

_INTS = {INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}
#: Leaves by name: element, and the bounds that its chunks may have.
_LEAVES: dict[str, tuple[dict[int, Any], st.SearchStrategy[bytes]]] = {}


def _numbers(physical: int, *values: float) -> st.SearchStrategy[bytes]:
    return st.sampled_from([struct.pack(_INTS[physical], value) for value in values] + [b"", b"\x01"])


for _name, _physical, _more, _values in (
    ("i32", INT32, {}, (-(2**31), -1, 0, 1, 2**31 - 1)),
    ("i64", INT64, {}, (-(2**63), -1, 0, 1, 2**63 - 1)),
    ("i8", INT32, {"logical": {10: {1: 8, 2: True}}, "converted": 15}, (-129, -128, 0, 127, 128)),
    ("u64", INT64, {"converted": 14}, (-1, 0, 1, 2**62)),
    ("day", INT32, {"converted": 6}, (-200_000, 0, 20_000)),
    ("price", INT64, {"converted": 5, "scale": 2, "precision": 5}, (-(10**5), -99_999, 0, 99_999, 10**5)),
    ("u32", INT32, {"converted": 13}, (-1, 0, 1, 2**31 - 1)),
    ("time", INT32, {"converted": 7}, (-1, 0, 86_399_999)),
    ("at ms", INT64, {"converted": 9}, (-(2**63), -1, 0, 1_700_000_000_000)),
    ("at ns", INT64, {"logical": {8: {1: False, 2: {3: {}}}}}, (-1, 0, 2**62)),
    ("f64", DOUBLE, {}, (-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan)),
    ("f32", FLOAT, {}, (-1.5, -0.0, 0.0, math.nan)),
):
    _LEAVES[_name] = (element(_name, _physical, **_more), _numbers(_physical, *_values))
_LEAVES["text"] = (
    element("text", BYTE_ARRAY, converted=0),
    st.sampled_from(
        [b"", b"a", b"b" * 64, b"b" * 65, b"\xff" * 70, "é".encode(), b"\xff", b'",', b"\\", b"a\nb", b"~\x7f"]
    ),
)
_LEAVES["plain text"] = (
    element("plain text", BYTE_ARRAY, converted=0),
    st.sampled_from([b"a", b"b c", b"~", b"key-1"]),
)
_LEAVES["bytes"] = (element("bytes", BYTE_ARRAY), st.sampled_from([b"", b"\0", b"a", b"\xff"]))
_LEAVES["uuid"] = (
    element("uuid", FIXED, length=16, logical={14: {}}),
    st.sampled_from([bytes(16), b"k" * 16, b"\xff" * 16, b"k" * 15]),
)
_LEAVES["half"] = (element("half", FIXED, length=2, logical={15: {}}), st.sampled_from([b"\0\0", b"\0\x3c", b"\0\xfe"]))
_LEAVES["flag"] = (element("flag", BOOLEAN), st.sampled_from([b"\0", b"\1", b"\2", b""]))
_LEAVES["fixed price"] = (
    element("fixed price", FIXED, length=4, converted=5, scale=2, precision=9),
    st.sampled_from([b"\xff\xff\xff\xff", b"\0\0\0\1", b"\x7f\xff\xff\xff", b"\0\0\1", b"\x80\0\0\0"]),
)
for _length, _precision in ((9, 20), (9, 18), (16, 38)):
    _name = f"wide price {_length} {_precision}"
    _LEAVES[_name] = (
        element(_name, FIXED, length=_length, converted=5, scale=2, precision=_precision),
        st.sampled_from(
            [
                number.to_bytes(_length, "big", signed=True)
                for number in (-(2**70), -(2**63) - 1, -(2**63), -(10**18), -1, 0, 1, 10**18, 2**63 - 1, 2**63, 2**70)
                if -(2 ** (8 * _length - 1)) <= number < 2 ** (8 * _length - 1)
            ]
            + [b"\0\0\1", bytes(_length + 1)]
        ),
    )
_LEAVES["required"] = (element("required", INT64, repetition=REQUIRED), _numbers(INT64, -1, 0, 1))
_LEAVES["old time"] = (element("old time", 3), st.just(bytes(12)))


def alone(stat: ObjectStat, footer: bytes, schema: Schema) -> Block | None:
    """What a file is when it is looked at by itself; None: it is refused."""
    try:
        return block_of(decode_footer(stat, footer), schema)
    except LamellaError:
        return None


def stat_of(footer: bytes, number: int = 0, *, body_bytes: int = _BODY_BYTES) -> ObjectStat:
    """A file that ends in that footer."""
    size_bytes = body_bytes + len(footer) + 8
    return ObjectStat(location=f"memory://f/{number}", size_bytes=size_bytes, content_id=str(number))


def compare(footers: list[bytes], schema: Schema, *, body_bytes: int = _BODY_BYTES) -> int:
    """Assert that what is decoded together is what it is alone, also in manifests and sidecars; returns how many were
    decoded together."""
    stats = [stat_of(footer, number, body_bytes=body_bytes) for number, footer in enumerate(footers)]
    found = decode_footer_batch(stats, footers, schema, fewest=1)
    expected = [alone(stat, footer, schema) for stat, footer in zip(stats, footers, strict=True)]
    for block, other in zip(found, expected, strict=True):
        assert block is None or block == other
    parts: list[Part] = []
    where: dict[int, tuple[int, int]] = {}
    decoder = FooterDecoder(schema, fewest=1)
    half = len(footers) // 2  # the second half meets the shapes of the first
    for start, stop in ((0, half), (half, len(footers))):
        for numbers, arrays in decoder.decode(stats[start:stop], footers[start:stop]):
            where |= {start + number: (len(parts), row) for row, number in enumerate(numbers.tolist())}
            parts.append(arrays)
    rest = [number for number, block in enumerate(expected) if block is not None and number not in where]
    where |= {number: (len(parts), row) for row, number in enumerate(rest)}
    parts.append(LooseBlocks([block for number, block in enumerate(expected) if block is not None and number in rest]))
    order = sorted(where)
    sequence = BlockSequence(
        parts,
        np.array([where[number][0] for number in order], dtype=np.int64),
        np.array([where[number][1] for number in order], dtype=np.int64),
    )
    check_sequence(sequence, [block for block in expected if block is not None], schema)
    return sum(block is not None for block in found)


def check_sequence(sequence: BlockSequence, blocks: list[Block], schema: Schema) -> None:
    """Assert that a sequence has these blocks, and gives the bytes that they give as objects."""
    assert list(sequence) == blocks
    assert [sequence[number] for number in range(len(blocks))] == blocks
    assert sequence.locations == [block.location for block in blocks]
    assert sequence.footer_hashes == [block.footer_sha256 for block in blocks]
    gone = {block.location for block in blocks[::3]}
    assert list(sequence.without(gone)) == [block for block in blocks if block.location not in gone]
    for some in slice(None), slice(1, None), slice(None, None, -1), slice(None, 1):
        few, expected = sequence[some], blocks[some]
        if not expected:
            continue
        encoded = few.by_block(lambda part: part.json())
        assert encoded == [msgspec.json.encode(block) for block in expected]
        summary = summarize_block_arrays(schema, few)
        assert msgspec.json.encode(summary) == msgspec.json.encode(summarize_blocks(schema, expected))
        segment = Segment(
            format_version=3, segment_id="s", summary=summary, blocks=tuple(expected), schema_id=schema.schema_id
        )
        assert encode_segment(segment, encoded) == encode_manifest(segment)
        assert build_block_arrays(schema, few) == build_blocks(schema, expected)


@st.composite
def chunks(draw: st.DrawFn, name: str, rows: int, *, exact: bool | None, has_nans: bool) -> dict[int, Any]:
    """A chunk with all members, of numbers that may or may not fit each other."""
    leaf, values = _LEAVES[name]
    mostly = st.sampled_from([0] * 23 + [1])
    mostly_yes = st.sampled_from([True, True, True, False])
    low, high = draw(values), draw(values)
    code = _INTS.get(leaf[1])
    if code is not None and len(low) == len(high) == struct.calcsize(code):
        low, high = sorted((low, high), key=lambda raw: struct.unpack(code, raw)) if draw(mostly_yes) else (low, high)
    stats = statistics(
        low,
        high,
        nulls=draw(st.sampled_from([1, rows, rows + 1, -1])) if draw(mostly) else 0,
        exact=exact,
        nans=draw(st.sampled_from([0, 0, 0, 0, 1, rows, rows + 1, -1])) if has_nans else None,
    )
    levels = [1, rows - 1] if leaf[3] == OPTIONAL else [rows]
    return chunk(
        [name],
        leaf[1],
        stats,
        num_values=rows + draw(mostly),
        meta={
            6: draw(st.sampled_from([60, 61, 1 << 40, 1 << 50, -1])) if draw(mostly) else 60,
            9: draw(st.sampled_from([0, 3, _BODY_BYTES])) if draw(mostly) else draw(st.sampled_from([4, 500])),
            11: draw(st.sampled_from([0, 4])),
            14: draw(st.sampled_from([0, 4, 900, _BODY_BYTES + 5])) if draw(mostly) else 4,
            15: draw(st.sampled_from([0, 32, -1])) if draw(mostly) else 32,
            16: {1: 7, 3: levels} if draw(mostly) else {1: 7, 3: [0, rows][-len(levels) :]},
        },
        outer={
            2: draw(st.sampled_from([4, 4, 300])),  # read by nobody, in one byte or two
            4: draw(st.sampled_from([4, 700])),
            5: draw(st.sampled_from([0, 10, 900])) if draw(mostly) else 10,
            6: draw(st.sampled_from([0, 4, 800])) if draw(mostly) else 4,
            7: 20,
        },
    )


@st.composite
def shapes(draw: st.DrawFn) -> list[bytes]:
    """Footers of one shape with other numbers, by hand."""
    names = draw(st.lists(st.sampled_from(sorted(_LEAVES)), min_size=1, max_size=3, unique=True))
    groups = draw(st.integers(1, 2))
    exact = draw(st.sampled_from([None, True, False]))
    has_nans = draw(st.booleans())
    footers = []
    for _ in range(draw(st.integers(3, 6))):
        row_groups = []
        for _ in range(groups):
            rows = draw(st.sampled_from([10, 10, 10, 10, 10, 10, 300, 0]))
            row_groups.append((rows, [draw(chunks(name, rows, exact=exact, has_nans=has_nans)) for name in names]))
        made = metadata(
            [_LEAVES[name][0] for name in names], row_groups, properties={"writer": draw(st.text(max_size=3))}
        )
        footers.append(encode(made))
    return footers


@given(shapes())
def test_footers_of_one_shape_give_the_blocks_that_they_give_alone(footers: list[bytes]) -> None:
    """Whatever their numbers and bounds are: counts that contradict each other, bounds that are no values, ..."""
    schema = schema_of(decode_footer(stat_of(footers[0]), footers[0])) if _decodes(footers[0]) else None
    if schema is not None:
        compare(footers, schema)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=12))
def test_blocks_of_several_shapes_are_written_in_their_order(kinds: list[int]) -> None:
    """Shapes that differ in exact bounds, known null counts, missing statistics or compression; and files that are
    only decoded alone."""
    footers = []
    for number, kind in enumerate(kinds):
        rows = 10 + number
        bounds = struct.pack("<q", number), struct.pack("<q", 5 * number)
        given_stats = {
            1: statistics(*bounds, nulls=0, exact=True),
            2: statistics(*bounds, nulls=None, exact=None),
            3: statistics(nulls=0),
            4: statistics(bounds[1] + b"\0", bounds[0], nulls=0),
        }.get(kind, statistics(*bounds, nulls=0))
        made = chunk(["i64"], INT64, given_stats, num_values=rows, meta={4: 6 if kind == 5 else 1, 6: 60, 7: 60, 9: 4})
        footers.append(encode(metadata([_LEAVES["i64"][0]], [(rows, [made])])))
    schema = schema_of(decode_footer(stat_of(footers[0]), footers[0]))
    together = compare(footers, schema)
    assert together >= sum(kind in (0, 1, 2, 3, 5) for kind in kinds) - len(set(kinds))


def _decodes(footer: bytes) -> bool:
    try:
        decode_footer(stat_of(footer), footer)
    except LamellaError:
        return False
    return True


def tables(count: int, seed: int = 0) -> list[pa.Table]:
    """Tables of one schema with other values, among them nulls, NaN, long text, and columns in lists and structs."""
    found = []
    rng = np.random.default_rng(seed)
    for number in range(count):
        rows = int(rng.integers(3, 300))
        values = rng.integers(-(10**6), 10**6, rows)
        nulls = rng.random(rows) < 0.2
        nulls[0] = False
        floats = rng.normal(size=rows)
        if number % 3 == 0:
            floats[rng.integers(0, rows)] = math.nan
        text = [f"{value}" * int(rng.integers(1, 20)) for value in values.tolist()]
        found.append(
            pa.table(
                {
                    "id": pa.array(values + 10**12 * number),
                    "maybe": pa.array(values, mask=nulls),
                    "small": pa.array((values % 100).astype("int8")),
                    "big": pa.array(values.astype("uint64")),
                    "x": pa.array(floats),
                    "at": pa.array(values).cast(pa.timestamp("us", "UTC")),
                    "day": pa.array((values % 9_000).astype("int32")).cast(pa.date32()),
                    "price": pa.array([f"{value}.25" for value in values.tolist()]).cast(pa.decimal128(12, 2)),
                    "wide": pa.array([f"{value}.5" for value in values.tolist()]).cast(pa.decimal128(38, 10)),
                    "text": pa.array(text),
                    "flag": pa.array(values % 2 == 0),
                    "list": pa.array([[int(value)] for value in values]),
                    "struct": pa.array([{"a": int(value)} for value in values]),
                }
            )
        )
    return found


def test_what_a_writer_writes_is_decoded_together(tmp_path: Path) -> None:
    """All files, with one row group or with several."""
    store = FsspecStore()
    every: list[dict[str, Any]] = [{}, {"write_page_index": True}, {"row_group_size": 2}]
    for kind, options in enumerate(every):
        paths = []
        for number, table in enumerate(tables(FEWEST + 12)):
            paths.append(f"{tmp_path}/{kind}-{number}.parquet")
            # Two rows of these may all be null or NaN, which is another shape.
            sparse = ["maybe", "x"] if "row_group_size" in options else []
            pq.write_table(table.slice(0, 3).drop_columns(sparse), paths[-1], store_decimal_as_integer=True, **options)
        schema = schema_of(read_footer(store, paths[0]))
        expected = [block_of(read_footer(store, path), schema) for path in paths]
        stats = [store.stat(path) for path in paths]
        found = decode_footer_batch(stats, [read_footer_bytes(store, stat) for stat in stats], schema)
        assert found == expected
        assert ingest(store, paths, schema) == (expected, [])


def test_files_of_several_shapes_are_each_decoded_with_their_like(tmp_path: Path) -> None:
    """Row groups, compression, nulls and missing statistics make shapes; the blocks are those of each file alone."""
    store = FsspecStore()
    paths = []
    every: list[dict[str, Any]] = [{}, {"row_group_size": 50}, {"compression": "zstd"}, {"write_statistics": ["id"]}]
    for number, table in enumerate(tables(80)):
        paths.append(f"{tmp_path}/{number:03}.parquet")
        pq.write_table(table, paths[-1], **every[number % 4])
    schema = schema_of(read_footer(store, paths[0]))
    expected = [block_of(read_footer(store, path), schema) for path in paths]
    stats = [store.stat(path) for path in paths]
    found = decode_footer_batch(stats, [read_footer_bytes(store, stat) for stat in stats], schema, fewest=10)
    assert sum(block is not None for block in found) >= 50
    assert [block or alone for block, alone in zip(found, expected, strict=True)] == expected
    assert ingest(store, paths, schema) == (expected, [])


def written_objects(store: FsspecStore, schema: Schema, blocks: Sequence[Block]) -> dict[str, bytes]:
    """All that a warehouse writes when it registers blocks, by location; nothing of it is left."""
    root = "memory://alike"
    warehouse = Warehouse(
        store, root, ids=Ids(lambda: 1, bytes), shape=Shape(segment_blocks=50, group_segments=2, fan_in=2)
    )
    empty = warehouse.create("t", schema, now_ms=1)
    done = warehouse.commit(empty, added=warehouse.prepare("t", schema, blocks), now_ms=2)
    warehouse.commit(done.pointer, removed=[block.location for block in list(blocks)[:20]], now_ms=3)
    found = {stat.location: store.read(stat.location) for stat in store.list(root)}
    store.delete_many(found)
    return found


@pytest.mark.parametrize("schema_id", [0, 3])
def test_a_warehouse_writes_the_same_bytes_for_blocks_in_arrays(tmp_path: Path, schema_id: int) -> None:
    """Manifests, sidecars and indexes of files of several shapes, also of one that is decoded alone, when they are
    added and when some are removed."""
    store = FsspecStore()
    paths = []
    for number, table in enumerate(tables(170)):
        paths.append(f"{tmp_path}/{number:03}.parquet")
        compression = "zstd" if number % 3 == 0 else "snappy"
        pq.write_table(table.drop_columns(["x"] if number % 40 == 7 else []), paths[-1], compression=compression)
    first = schema_of(read_footer(store, paths[0]))
    schema = msgspec.structs.replace(first, schema_id=schema_id)
    blocks, refused = ingest(store, paths, schema)
    arrays, also_refused = ingest_arrays(store, paths, schema)
    assert refused == also_refused == []
    assert arrays.has_arrays
    assert written_objects(store, schema, arrays) == written_objects(store, schema, blocks)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Footers that pyarrow wrote, of one shape."""
    folder = tmp_path_factory.mktemp("written")
    store = FsspecStore()
    found = []
    for number, table in enumerate(tables(20)):
        path = folder / f"{number}.parquet"
        pq.write_table(table.select(["id", "maybe", "small", "x", "at", "price", "text"]), path)
        found.append(read_footer_bytes(store, store.stat(str(path))))
    return found


def schema_of_written(footer: bytes) -> Schema:
    """The schema of a table that was made from a file with that footer."""
    return schema_of(decode_footer(stat_of(footer, body_bytes=_LARGE_BODY_BYTES), footer))


def test_a_table_with_other_columns_and_wider_types(written: list[bytes]) -> None:
    """Columns that the files lack, finer units, and widened numbers are as they are file by file."""
    wider = {"small": "int64", "at": "timestamp(ns)", "price": "decimal(20,4)"}
    columns = [Column(name=c.name, type=wider.get(c.name, c.type)) for c in schema_of_written(written[0]).columns]
    schema = Schema.assign([*columns, Column(name="later", type="int32")])
    assert compare(written, schema, body_bytes=_LARGE_BODY_BYTES) >= 15


def test_a_column_that_must_have_no_null(written: list[bytes]) -> None:
    """A file that may hold nulls there is refused as it is alone, and the others are taken."""
    columns = [msgspec.structs.replace(c, nullable=False) for c in schema_of_written(written[0]).columns]
    for required in ("id", "maybe"):
        relaxed = [msgspec.structs.replace(c, nullable=c.name != required) for c in columns]
        taken = compare(written, Schema.assign(relaxed), body_bytes=_LARGE_BODY_BYTES)
        assert (taken >= 15) == (required == "id")


@given(seed=st.integers(0, 2**32))
def test_damaged_footers_are_never_taken_for_what_they_are_not(written: list[bytes], seed: int) -> None:
    """A byte that is changed, lost or added gives the block that the file alone gives, or none."""
    rng = Random(seed)  # repeatable on purpose
    footers = [written[0]]
    for footer in written[1:]:
        raw = bytearray(footer)
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(raw))
            what = rng.randrange(4)
            if what == 0:
                del raw[at]
            elif what == 1:
                raw.insert(at, rng.randrange(256))
            else:
                raw[at] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        footers.append(bytes(raw))
    compare(footers, schema_of_written(written[0]), body_bytes=_LARGE_BODY_BYTES)
