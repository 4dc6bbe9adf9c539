"""Damaged page statistics: the cells of a page sidecar, and the sidecar itself."""

from __future__ import annotations

import hashlib
from functools import cache
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.guard import peak_bytes, survive
from fuzz.mutation import EDGES, mutated_bytes
from fuzz.test_parquet_files import files
from lamella.snapshot.errors import LamellaError, ManifestError
from lamella.snapshot.pages.cell import decode
from lamella.snapshot.pages.sidecar import PageSidecar, build_pages
from lamella.snapshot.parquet import block_of, read_footer, schema_of
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.storage import FsspecStore
from parquet.crafted import stored

SEEDS = st.integers(0, 2**48)
SEGMENT = "segment"
MANIFEST = "0" * 64


@cache
def written() -> tuple[Schema, bytes]:
    """The page sidecar of one real file with a page index, and its schema."""
    store, location = stored(files()[0])
    footer = read_footer(store, location)
    schema = schema_of(footer)
    return schema, build_pages(store, schema, SEGMENT, MANIFEST, [block_of(footer, schema)])


@cache
def cells() -> tuple[tuple[Leaf, bytes], ...]:
    """The bytes of every cell, as they stand behind the directory."""
    schema, data = written()
    directory = msgspec.msgpack.decode(_directory(data))
    at = 48 + int.from_bytes(data[8:16], "little")
    found = []
    for column_id, _, sizes, _ in directory["columns"]:
        (size,) = _sizes(sizes)
        if size:
            found.append((schema.by_id()[column_id], data[at : at + size]))
        at += size
    return tuple(found)


def _directory(data: bytes) -> bytes:
    return data[48 : 48 + int.from_bytes(data[8:16], "little")]


def _sizes(packed: bytes) -> tuple[int, ...]:
    return (int.from_bytes(packed[:8], "little"),)  # one block: its size is the least of all


def swallow_cell(seed: int) -> bool:
    """Decode a damaged cell; True when nothing was wrong with it."""
    rng = Random(seed)
    leaf, data = rng.choice(cells())
    if rng.random() < 0.5:
        fields = msgspec.msgpack.decode(data)
        at = rng.randrange(len(fields))
        small = [edge for edge in EDGES if abs(edge) < 1 << 63]
        fields[at] = rng.choice((rng.choice(small), fields[rng.randrange(len(fields))], b"", rng.randbytes(9), None))
        damaged = msgspec.msgpack.encode(fields)
    else:
        damaged = mutated_bytes(rng, data)
    return not isinstance(survive(lambda: decode(damaged, leaf.dtype), damaged), LamellaError)


def test_the_cells_are_read() -> None:
    """What the mutations start from is whole."""
    assert len([decode(data, leaf.dtype) for leaf, data in cells()]) >= 4


@settings(max_examples=300)
@given(SEEDS)
def test_damaged_cells(seed: int) -> None:
    """Damaged cells are decoded, or refused by an error of ours."""
    swallow_cell(seed)


@pytest.mark.soak
def test_a_lot_of_damaged_cells() -> None:
    """As above, 100,000 times; some of them are not hurt by it."""
    assert sum(swallow_cell(seed) for seed in range(100_000)) > 1_000


@pytest.mark.parametrize("member", [0, 1, 2])
def test_a_cell_that_claims_much_takes_little(member: int) -> None:
    """A few bytes that claim 2^28 row groups, pages or zones are refused before room is made for them."""
    leaf, data = cells()[0]
    fields = msgspec.msgpack.decode(data)
    fields[member] = 1 << 28
    nine = (1).to_bytes(8, "little") + b"\0"  # packed: the same number, as often as one likes
    fields[3:9] = [nine] * 6
    damaged = msgspec.msgpack.encode(fields)
    assert peak_bytes(lambda: survive(lambda: decode(damaged, leaf.dtype), damaged)) < 64 << 20


@settings(max_examples=200)
@given(SEEDS)
def test_a_damaged_page_sidecar(seed: int) -> None:
    """A directory that was damaged, with a checksum that fits: read, or refused by an error of ours."""
    rng = Random(seed)
    _, data = written()
    directory = mutated_bytes(rng, _directory(data)) if rng.random() < 0.8 else _directory(data)
    head = data[:8] + len(directory).to_bytes(8, "little") + hashlib.sha256(directory).digest()
    body = data[48 + len(_directory(data)) :]
    damaged = head + directory + (mutated_bytes(rng, body) if rng.random() < 0.5 else body)
    if rng.random() < 0.1:
        damaged = mutated_bytes(rng, damaged)
    survive(lambda: _read_all(damaged), f"seed {seed}")


def _read_all(data: bytes) -> None:
    store: FsspecStore
    store, location = stored(data)
    sidecar = PageSidecar(store, location, SEGMENT, MANIFEST)
    schema, _ = written()
    for leaf in schema.leaves():
        if sidecar.has(leaf.id) and len(sidecar):
            sidecar.cells(leaf.id, leaf.dtype, range(len(sidecar)))
    if len(sidecar):
        sidecar.block(0)


def test_what_is_no_page_sidecar() -> None:
    """Other bytes, and none, are a manifest error."""
    for data in (b"", b"PAR1", written()[1][:40], files()[0]):
        assert isinstance(survive(lambda data=data: _read_all(data), data), ManifestError)  # type: ignore[misc]  # bound at once
