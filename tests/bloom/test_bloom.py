"""Bloom filters are Parquet's: published hashes, and filters that pyarrow wrote."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamella.snapshot.bloom import SplitBlockBloom, key_bytes, key_hashes, xxh64, xxh64_numbers
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import parse_type
from support.service_api import parquet_bytes


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_hashes_are_those_that_xxhash_publishes(data: bytes, digest: int) -> None:
    """XXH64 with seed 0, of short and of long input."""
    assert xxh64(data) == digest


def test_arrays_hash_as_their_bytes_do() -> None:
    """One at a time or all at once: the same hash."""
    rng = Random(1)
    wide = [rng.randrange(-(2**63), 2**63) for _ in range(200)]
    assert xxh64_numbers(np.array(wide, dtype=np.int64)).tolist() == [xxh64(struct.pack("<q", n)) for n in wide]
    narrow = [rng.randrange(-(2**31), 2**31) for _ in range(200)]
    assert xxh64_numbers(np.array(narrow, dtype=np.int32)).tolist() == [xxh64(struct.pack("<i", n)) for n in narrow]
    with pytest.raises(ValueError, match="2 bytes"):
        xxh64_numbers(np.zeros(1, dtype=np.int16))


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
COLUMNS: list[tuple[str, pa.DataType, list[Any], list[Any]]] = [
    # our type, pyarrow's, values, the same in our type's order
    ("int8", pa.int8(), [-3, 0, 7], [-3, 0, 7]),
    ("int32", pa.int32(), [-5, 0, 2**31 - 1], [-5, 0, 2**31 - 1]),
    ("uint32", pa.uint32(), [0, 2**32 - 1], [0, 2**32 - 1]),
    ("int64", pa.int64(), [-(2**63), 0, 12], [-(2**63), 0, 12]),
    ("uint64", pa.uint64(), [0, 2**64 - 1], [0, 2**64 - 1]),
    ("string", pa.string(), ["", "käse", "x" * 100], [b"", "käse".encode(), b"x" * 100]),
    ("binary", pa.binary(), [b"\0", b"\xff" * 40], [b"\0", b"\xff" * 40]),
    ("date", pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)], [-1, 19782]),
    ("timestamp(us)", pa.timestamp("us", "UTC"), [EPOCH + dt.timedelta(seconds=5)], [5_000_000]),
    ("time(ms)", pa.time32("ms"), [dt.time(0, 0, 1)], [1000]),
    ("decimal(30,2)", pa.decimal128(30, 2), [Decimal("-1.25"), Decimal("12345678901234567890.50")], None),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("kind", "arrow", "values", "keys"), COLUMNS, ids=[kind for kind, *_ in COLUMNS])
def test_keys_are_found_in_filters_that_pyarrow_wrote(
    kind: str, arrow: pa.DataType, values: list[Any], keys: list[Any] | None
) -> None:
    """Another writer's filter holds every key that it was given, by our hashes, and few others."""
    keys = keys if keys is not None else [int(value.scaleb(2)) for value in values]
    table = pa.table({"k": pa.array(values, arrow)})
    data = parquet_bytes(table, bloom_filter_options={"k": {"ndv": 100, "fpp": 0.001}})
    bloom = SplitBlockBloom.from_bytes(bitset_of(data))
    dtype = parse_type(kind)
    assert bloom.contains(key_hashes(dtype, keys)).all()
    ours = SplitBlockBloom(np.zeros_like(bloom.words))
    ours.insert(key_hashes(dtype, keys))
    assert ours.to_bytes() == bloom.to_bytes()


def bitset_of(data: bytes) -> bytes:
    """The bitset of the only bloom filter in a file: it lies before the footer, behind a short Thrift header."""
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for size in (32 << power for power in range(20)):
        start = footer - size
        header = b"\x15" + _zigzag(size)
        at = data.rfind(header, 0, max(start, 0))
        if at >= 0 and start - at < 24:
            return data[start:footer]
    raise AssertionError("no bloom filter found")


def _zigzag(number: int) -> bytes:
    left, out = number << 1, b""
    while left >= 0x80:
        out += bytes([left & 0x7F | 0x80])
        left >>= 7
    return out + bytes([left])


def test_what_was_put_in_is_found_and_little_else() -> None:
    """No false negatives; about as many false positives as asked for."""
    inside = key_hashes(parse_type("int64"), range(5_000))
    outside = key_hashes(parse_type("int64"), range(10**6, 10**6 + 20_000))
    bloom = SplitBlockBloom.sized(5_000, 0.01)
    bloom.insert(inside)
    again = SplitBlockBloom.from_base64(bloom.to_base64())
    assert again.contains(inside).all()
    assert again.contains(outside).mean() < 0.02


@pytest.mark.parametrize("kind", ["boolean", "float32", "float64", "interval"])
def test_types_without_a_filter_say_so(kind: str) -> None:
    """Booleans and floats have none, and what has no order has none either."""
    assert key_bytes(parse_type(kind)) is None
    with pytest.raises(ValueError, match="bloom filters do not support"):
        key_hashes(parse_type(kind), [1])


@pytest.mark.parametrize("text", ["", "!", "AAAA", "A" * 128])
def test_what_is_no_filter_is_refused(text: str) -> None:
    """Not base64, or not a power of two of blocks."""
    with pytest.raises(InvalidRequest, match="bloom filter"):
        SplitBlockBloom.from_base64(text)
