"""Reads the Bloom filters that a Parquet file contains, from the offsets in its footer, without reading rows.

A filter covers one column chunk, so a block has one per row group. If one is missing or invalid, the block is not
indexed from its filters at all. How the filters of a column encode and hash values is their domain
(:mod:`lamella.snapshot.bloom.plain_encoding`).

Nothing proves that a filter contains all values of its chunk. So checks look for evidence that it does not: a writer
with known errors (:data:`lamella.snapshot.parquet.writer.DENIED`), a filter without any bit for a chunk with values,
and a minimum or maximum of the footer that the filter does not contain.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.bloom.plain_encoding import domain_of
from lamella.snapshot.bloom.split_block import MAX_BYTES, SplitBlockBloom, xxh64
from lamella.snapshot.parquet import thrift
from lamella.snapshot.parquet.columns import decoder
from lamella.snapshot.parquet.footer import Chunk, Footer
from lamella.snapshot.parquet.schema import PHYSICAL, FileLeaf
from lamella.snapshot.parquet.thrift import ANY, INT, Spec, ThriftError
from lamella.snapshot.parquet.writer import Writer, writer_of
from lamella.snapshot.storage.store import Store

_HEADER: Final[Spec] = {1: INT, 2: ANY, 3: ANY, 4: ANY}
#: Size, algorithm, hash and compression: the first member of each union is the only defined one.
_EXPECTED: Final[dict[int, Any]] = {2: {1: {}}, 3: {1: {}}, 4: {1: {}}}
#: No known header is longer than 18 bytes.
_HEADER_BYTES: Final = 64
_SLOT_BYTES: Final = 32
#: Maximum bytes of filters that are read for one block; :func:`shrunk` usually reduces them a lot.
MAX_BLOCK_BYTES: Final = 64 << 20
_MAX_GROUPS: Final = 256

_Words = npt.NDArray[np.uint32]


def read_filters(store: Store, footer: Footer, leaf: int) -> list[tuple[str, _Words]] | str:
    """Returns domain and (slots, 8) words of the filter of each row group that has rows, or the reason why they cannot
    be used.

    ``leaf``: the column's index in the file's schema. The caller ensures that the file still has this footer.

    Raises:
        ObjectNotFound, StoreError: as the store.
    """
    column = footer.metadata.schema.leaves[leaf]
    domain = domain_of(column.dtype, PHYSICAL[column.physical], column.type_length)
    if domain is None or column.opaque or column.repeated:
        return f"filters of {column.dtype} stored as {PHYSICAL[column.physical]} are not supported"
    writer = writer_of(footer.metadata.created_by)
    if "bloom filter" in writer.denied:
        return f"the filters of its writer are not trusted: {writer.denied['bloom filter']}"
    if _is_ambiguous(footer, column):
        return f"two columns of the file are called {_dotted(column)!r}, and some writers confuse their filters"
    groups = [group for group in footer.metadata.row_groups if group.num_rows]
    if len(groups) > _MAX_GROUPS:
        return f"the file has {len(groups)} row groups"
    found: list[tuple[str, _Words]] = []
    left = MAX_BLOCK_BYTES
    for group in groups:
        words = _read(store, footer.location, group.chunks[leaf], left)
        if isinstance(words, str):
            return words
        problem = _problem(words, group.chunks[leaf], column, writer)
        if problem is not None:
            return problem
        left -= words.nbytes
        found.append((domain, words))
    return found


def shrunk(words: _Words, rate: float) -> _Words:
    """Returns the smallest filter that matches the same keys, and others at most at ``rate``, if possible.

    The upper bits of a key's hash select its slot, so merging two neighbouring slots gives the slot of a filter of half
    the size.
    """
    while len(words) % 2 == 0:
        half = words[0::2] | words[1::2]
        if false_positives_of(half) > rate:
            break
        words = half
    return words


def false_positives_of(words: _Words) -> float:
    """Returns the false positive rate of a filter, from the bits that are set."""
    return float((np.bitwise_count(words) / 32).prod(axis=1).mean())


def _is_ambiguous(footer: Footer, column: FileLeaf) -> bool:
    """Returns whether another column has the same dotted name, by which parquet-java keeps filters while it writes."""
    return sum(_dotted(other) == _dotted(column) for other in footer.metadata.schema.leaves) > 1


def _dotted(column: FileLeaf) -> str:
    return b".".join(column.file_path).decode("utf-8", "replace")


def _problem(words: _Words, chunk: Chunk, column: FileLeaf, writer: Writer) -> str | None:
    """Returns the reason why a filter cannot be that of a chunk, as far as the footer shows."""
    statistics = chunk.statistics or {}
    if not words.any():
        counts = {"null count", "null count above zero"}.isdisjoint(writer.denied)
        all_null = counts and statistics.get(3) == chunk.num_values
        return None if all_null else "a filter has no bit set, and there may be values"
    bounds = [
        bound
        for bound, exact in ((statistics.get(6), statistics.get(8)), (statistics.get(5), statistics.get(7)))
        if bound is not None and _is_a_value(bound, exact, column)
    ]
    hashes = np.array([xxh64(bound) for bound in bounds], dtype=np.uint64)
    if not SplitBlockBloom(words).contains(hashes).all():
        return "a filter does not contain the minimum or maximum of the footer"
    return None


def _is_a_value(bound: bytes, exact: bool | None, column: FileLeaf) -> bool:
    """Returns whether a bound is certainly a value as a filter hashes it: not truncated, and neither NaN nor one of two
    zeros."""
    if exact is False or (column.dtype.order == "bytes" and exact is not True):
        return False
    decode = decoder(column)
    value = None if decode is None else decode(bound)
    return value is not None and value == value and not (column.dtype.is_float and value == 0)


def _read(store: Store, location: str, chunk: Chunk, max_bytes: int) -> _Words | str:
    if chunk.encrypted or chunk.bloom_filter is None:
        return "a row group has no filter"
    offset, length = chunk.bloom_filter
    if length > max_bytes + _HEADER_BYTES:
        return f"a filter of {length} bytes is not supported"
    data = store.read_range(location, offset, length or _HEADER_BYTES)
    try:
        header, start = thrift.struct(data, 0, _HEADER)
    except (ThriftError, IndexError):
        return "the header of a filter cannot be decoded"
    size = header.get(1, 0)
    if {field: header.get(field) for field in _EXPECTED} != _EXPECTED:
        return "a filter is not a split-block filter with XXH64"
    if size <= 0 or size % _SLOT_BYTES or size > min(max_bytes, MAX_BYTES):
        return f"a filter of {size} bytes is not supported"
    if length and start + size > length:
        return "a filter is longer than the footer says"
    bits = data[start : start + size]
    if len(bits) < size:
        bits += store.read_range(location, offset + start + len(bits), size - len(bits))
    if len(bits) != size:
        return "a filter extends past the end of the file"
    return np.frombuffer(bits, dtype="<u4").reshape(-1, 8)
