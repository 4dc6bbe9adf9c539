"""Sorted runs: rows in scratch space between the two passes of an external sort.

A run is one object: Arrow streams one after another, a *chunk* each, so that any stretch of chunks is one range read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from lamella.client.rewrite.sorting import to_stream
from lamella.snapshot.ids import Ids
from lamella.snapshot.layout import Store

#: Rows of a chunk at most, and about how many bytes; what is read in vain at the ends of a range is that large.
CHUNK_ROWS: Final = 16_384
_CHUNK_BYTES: Final = 2 << 20
_LEAST_ROWS: Final = 256
#: A run that is not tiny has so many, since ranges can be cut only where a chunk begins.
_LEAST_CHUNKS: Final = 32
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Some rows of a run: how many, and where in its object."""

    row_count: int
    offset: int
    size_bytes: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Rows in order. ``first_keys``: of each chunk the key of its first row, a table as an Arrow stream.

    ``memory_bytes``: what the rows take as Arrow. ``block_rows``: how many of them make a block of the wanted size.
    """

    location: str
    chunks: tuple[Chunk, ...]
    first_keys: bytes
    memory_bytes: int
    block_rows: int

    @property
    def row_count(self) -> int:
        """Rows in all."""
        return sum(chunk.row_count for chunk in self.chunks)


class Scratch(msgspec.Struct, frozen=True):
    """A folder for what is needed only while a job runs."""

    folder: str

    def location(self, ids: Ids, ending: str) -> str:
        """A fresh name, of the form that a clean-up of the table's folder knows."""
        return f"{self.folder}/{ids.new()}_v1.{ending}"


def write_run(store: Store, scratch: Scratch, ids: Ids, rows: pa.Table, keys: pa.Table, *, block_rows: int) -> Run:
    """Put rows that are in order, with their keys in the same order; raises StoreError."""
    count = rows.num_rows
    size = max(1, rows.nbytes // max(count, 1))
    step = max(_LEAST_ROWS, min(CHUNK_ROWS, _CHUNK_BYTES // size, -(-count // _LEAST_CHUNKS)))
    sink = pa.BufferOutputStream()
    chunks: list[Chunk] = []
    starts = list(range(0, count, step))
    for start in starts:
        before = sink.tell()
        part = rows.slice(start, step)
        with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
            writer.write_table(part.combine_chunks())
        chunks.append(Chunk(part.num_rows, before, sink.tell() - before))
    location = scratch.location(ids, "run")
    store.put(location, sink.getvalue().to_pybytes())
    return Run(
        location=location,
        chunks=tuple(chunks),
        first_keys=to_stream(keys.take(pa.array(starts, pa.int64())).combine_chunks()),
        memory_bytes=rows.nbytes,
        block_rows=block_rows,
    )


def read_chunks(store: Store, location: str, chunks: Sequence[Chunk]) -> Iterator[pa.Table]:
    """The rows of neighbouring chunks, chunk by chunk, from one range read; raises ObjectNotFound, StoreError."""
    start = chunks[0].offset
    length = chunks[-1].offset + chunks[-1].size_bytes - start
    data = pa.py_buffer(store.read_range(location, start, length))
    for chunk in chunks:
        yield pa.ipc.open_stream(data.slice(chunk.offset - start, chunk.size_bytes)).read_all()
