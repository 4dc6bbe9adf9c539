"""Deletion vectors: their bytes, and what is refused."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from lamella.snapshot.deletes import (
    BITMAP_HEADER,
    Positions,
    VectorFile,
    decode_bitmap,
    decode_vector,
    deleted_rows,
    encode_vector,
    remaining,
    union,
)
from lamella.snapshot.errors import CorruptDeletes, HashMismatch
from lamella.snapshot.storage import FsspecStore

#: A vector as Iceberg's specification describes it, byte by byte: positions 1, 5, and 2**33.
_EXAMPLE = bytes.fromhex(
    "0000003a d1d33964 0200000000000000"
    "00000000 3a300000 01000000 0000 0100 10000000 0100 0500"
    "02000000 3a300000 01000000 0000 0000 10000000 0000"
)


def positions(*values: int) -> Positions:
    """An array of positions."""
    return np.array(values, dtype=np.int64)


def sets_of_positions() -> st.SearchStrategy[list[int]]:
    """Scattered positions, dense ranges, and both, over two 32-bit halves."""
    scattered = st.lists(st.integers(0, 2**34), max_size=50)
    dense = st.tuples(st.integers(0, 2**33), st.integers(1, 70_000)).map(lambda run: range(run[0], run[0] + run[1]))
    return st.tuples(scattered, st.lists(dense, max_size=2)).map(
        lambda parts: sorted({*parts[0], *(value for run in parts[1] for value in run)})
    )


@given(sets_of_positions())
def test_a_vector_gives_its_positions_again(values: list[int]) -> None:
    """Whatever the positions, few, many, in runs or beyond 32 bits."""
    data = encode_vector(positions(*values))
    assert decode_vector(data, 2**35, location="x").tolist() == values
    assert decode_bitmap(data[4:-4], 2**35, location="x").tolist() == values


def test_the_bytes_are_those_of_the_specification() -> None:
    """Length, magic number, 64-bit bitmap in the portable form, and checksum."""
    body = _EXAMPLE[4:]
    data = _EXAMPLE + struct.pack(">I", zlib.crc32(body))
    assert encode_vector(positions(1, 5, 2**33)) == data
    assert decode_vector(data, 2**34, location="x").tolist() == [1, 5, 2**33]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data[:-1], "length"),
        (lambda data: data[:7], "7 bytes"),
        (lambda data: data[:0], "0 bytes"),
        (lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:], "checksum"),
        (lambda data: data + b"\0", "length"),
    ],
)
def test_a_damaged_vector_is_refused(change: object, problem: str) -> None:
    """An error says what is wrong; rows are never taken for deleted, or for not deleted."""
    data = encode_vector(positions(3, 4, 5))
    with pytest.raises(CorruptDeletes, match=problem):
        decode_vector(change(data), 100, location="x")  # type: ignore[operator]


def test_a_vector_that_no_writer_makes_is_refused() -> None:
    """Other magic numbers, positions that do not ascend, and bitmaps that are cut off."""
    with pytest.raises(CorruptDeletes, match="begins with"):
        decode_bitmap(b"\0\0\0\0" + encode_vector(positions(1))[8:-4], 100, location="x")
    disordered = bytearray(encode_vector(positions(1, 5))[4:-4])
    disordered[-4:-2], disordered[-2:] = disordered[-2:], disordered[-4:-2]
    with pytest.raises(CorruptDeletes):
        decode_bitmap(bytes(disordered), 100, location="x")
    with pytest.raises(CorruptDeletes, match="cannot be decoded"):
        decode_bitmap(BITMAP_HEADER + b"\1", 100, location="x")


def test_rows_that_the_block_does_not_have_are_refused_before_they_are_listed() -> None:
    """A few bytes may stand for billions of positions."""
    many = encode_vector(positions(*range(70_000)))
    with pytest.raises(CorruptDeletes, match="does not have"):
        decode_vector(many, 69_999, location="x")
    with pytest.raises(CorruptDeletes, match="does not have"):
        decode_vector(encode_vector(positions(10)), 10, location="x")
    assert decode_vector(encode_vector(positions(9)), 10, location="x").tolist() == [9]


def test_random_bytes_never_give_positions_outside_the_block() -> None:
    """Damage that the checksum does not show gives an error or ascending positions of the block."""
    rng = Random(1)
    for _ in range(3_000):
        body = bytearray(encode_vector(positions(*sorted(rng.sample(range(200), rng.randint(1, 90)))))[4:-4])
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(4, len(body))] = rng.randrange(256)
        try:
            found = decode_bitmap(bytes(body), 200, location="x")
        except CorruptDeletes:
            continue
        assert (np.diff(found) > 0).all()
        assert len(found) == 0 or 0 <= found[0] <= found[-1] < 200


def test_a_file_of_vectors_is_read_by_iceberg(tmp_path: Path) -> None:
    """pyiceberg finds each data file's positions; Lamella reads each by its entry."""
    store = FsspecStore()
    location = f"file://{tmp_path}/v.puffin"
    file = VectorFile(location)
    wanted = {f"file:///data/{number}.parquet": positions(number, 7, 100 + number) for number in range(3)}
    entries = {path: file.add(path, values) for path, values in wanted.items()}
    store.put(location, file.finished())
    vectors = deletion_vectors_from_puffin_file(PuffinFile((tmp_path / "v.puffin").read_bytes()))
    read = {vector.referenced_data_file: sorted(vector.to_vector().to_pylist()) for vector in vectors}
    assert read == {path: values.tolist() for path, values in wanted.items()}
    for path, entry in entries.items():
        assert entry.cardinality == 3
        assert deleted_rows(store, [entry], 1_000).tolist() == wanted[path].tolist()


def test_an_entry_is_compared_with_its_vector(tmp_path: Path) -> None:
    """Another hash or another number of positions is an error."""
    store = FsspecStore()
    location = f"file://{tmp_path}/v.puffin"
    file = VectorFile(location)
    entry = file.add("file:///a.parquet", positions(1, 2))
    store.put(location, file.finished())
    with pytest.raises(HashMismatch):
        deleted_rows(store, [msgspec.structs.replace(entry, sha256="0" * 64)], 10)
    with pytest.raises(CorruptDeletes, match="has 2 positions, not 3"):
        deleted_rows(store, [msgspec.structs.replace(entry, cardinality=3)], 10)


def test_what_remains_of_a_part_of_a_file() -> None:
    """None where no row of the part is deleted; otherwise a mask of the part."""
    deleted = union([positions(1, 3), positions(3, 8)])
    assert deleted.tolist() == [1, 3, 8]
    assert remaining(deleted, 4, 4) is None
    mask = remaining(deleted, 3, 6)
    assert mask is not None
    assert mask.tolist() == [False, True, True, True, True, False]
    assert union([]).tolist() == []
