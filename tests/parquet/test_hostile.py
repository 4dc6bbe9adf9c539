"""Damaged and hostile files: nothing comes out of reading them but a block that can be kept, or an error of ours."""

from __future__ import annotations

import io
from contextlib import suppress
from functools import cache

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import block_of, read_footer, schema_of
from lamella.snapshot.schema import Column, Schema
from parquet.crafted import file_bytes, stored

TABLE = Schema.assign([Column(name="a", type="int64"), Column(name="f", type="float64")])


@cache
def footers() -> list[bytes]:
    """Footers of real files."""
    table = pa.table(
        {
            "a": [1, 2, None],
            "f": [1.5, float("nan"), 0.0],
            "s": ["x", "y" * 100, None],
            "d": pa.array([1, 2, 3], pa.decimal128(20, 3)),
            "t": pa.array([1, 2, 3], pa.timestamp("us", tz="UTC")),
            "l": [[1], [], None],
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            "z": [{"x": 1, "y": {"w": b"\xff"}}, None, None],
        }
    )
    out = []
    for part, options in ((table, {"write_page_index": True}), (table.select(["a", "f"]), {"row_group_size": 1})):
        buffer = io.BytesIO()
        pq.write_table(part, buffer, **options)
        data = buffer.getvalue()
        out.append(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])
    return out


def read(data: bytes) -> None:
    """Read a file in every way; only our errors may come."""
    store, location = stored(data)
    try:
        footer = read_footer(store, location)
    except LamellaError:
        return
    schemas = [TABLE]
    with suppress(LamellaError):
        schemas.append(schema_of(footer))
    for schema in schemas:
        try:
            block = block_of(footer, schema)
        except LamellaError:
            continue
        assert msgspec.json.decode(msgspec.json.encode(block), type=Block) == block


edits = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.sampled_from(["set", "insert", "cut"]), st.binary(min_size=1, max_size=9)),
    min_size=1,
    max_size=6,
)


@given(st.integers(0, 1), edits)
def test_a_damaged_footer(which: int, changes: list[tuple[int, str, bytes]]) -> None:
    """Bytes changed, put in or taken out anywhere: an error of ours, or a block that survives JSON."""
    raw = bytearray(footers()[which])
    for position, how, data in changes:
        at = position % (len(raw) + 1)
        if how == "set":
            raw[at : at + len(data)] = data
        elif how == "insert":
            raw[at:at] = data
        else:
            del raw[at : at + len(data)]
    read(file_bytes(bytes(raw), body_bytes=4000))


@given(st.binary(max_size=200), st.sampled_from([b"PAR1", b"PARE", b""]))
def test_noise(raw: bytes, magic: bytes) -> None:
    """Any bytes, with and without the frame of a Parquet file."""
    read(file_bytes(raw, magic=magic))
    read(raw + magic)


@given(st.integers(0, 1), st.integers(0, 1 << 16))
def test_a_footer_that_is_cut(which: int, length: int) -> None:
    """Every prefix of a footer is an error, since what is at its end is needed."""
    raw = footers()[which]
    read(file_bytes(raw[: length % len(raw)], body_bytes=4000))
