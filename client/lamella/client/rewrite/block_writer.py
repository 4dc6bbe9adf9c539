"""Rows in order become blocks of the wanted size, with their entries in the table's skip indexes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa

from lamella.client.rewrite.block_file import encode, write_block
from lamella.client.rewrite.index_entries import IndexEntries, ScratchPart
from lamella.client.rewrite.runs import Scratch
from lamella.client.rewrite.target import Target
from lamella.snapshot.ids import Ids
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import Block, ClusterStats
from lamella.snapshot.stats.measure import measure

_SAMPLE_ROWS: Final = 20_000
_SAMPLE_SLICES: Final = 4


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks that are in the table's folder and in no snapshot yet, and what indexes are to know of them."""

    blocks: tuple[Block, ...] = ()
    parts: tuple[ScratchPart, ...] = ()

    @property
    def row_count(self) -> int:
        """Rows in all of them."""
        return sum(block.row_count for block in self.blocks)

    @property
    def size_bytes(self) -> int:
        """Bytes of their files."""
        return sum(block.file_size for block in self.blocks)


class BlockWriter:
    """Writes blocks one after another, for one task."""

    def __init__(self, target: Target, store: Store, scratch: Scratch, ids: Ids) -> None:
        self._target = target
        self._store = store
        self._scratch = scratch
        self._ids = ids
        self._entries = [IndexEntries(index, target) for index in target.indexes]
        self._blocks: list[Block] = []

    def write(self, rows: pa.Table, wanted: int | None = None) -> None:
        """All of the rows, cut evenly: no small block is left at the end.

        ``wanted``: rows of a block, when it is known how many make one of the wanted size.
        """
        if rows.num_rows == 0:
            return
        size = block_rows(rows, self._target) if wanted is None else wanted
        count = max(1, round(rows.num_rows / size))
        for part in _evenly(rows, count):
            self.write_one(part, self._target.written_for)

    def write_whole(self, rows: pa.Table) -> pa.Table:
        """As many whole blocks as there are; returns the rows that are left, fewer than a block's."""
        size = block_rows(rows, self._target) if rows.num_rows else 1
        whole = rows.num_rows // size * size
        for start in range(0, whole, size):
            self.write_one(rows.slice(start, size), self._target.written_for)
        # A copy, so that the rows that are written can be freed.
        return rows.slice(whole).take(pa.array(range(rows.num_rows - whole), pa.int64()))

    def finish(self) -> Written:
        """What was written; the entries of indexes are put into scratch space."""
        parts = [entries.part(self._store, self._scratch, self._ids) for entries in self._entries]
        return Written(blocks=tuple(self._blocks), parts=tuple(part for part in parts if part is not None))

    def write_one(self, rows: pa.Table, cluster: ClusterStats | None) -> None:
        """One block, however many rows; ``cluster``: what it says of their order."""
        target = self._target
        block = write_block(
            self._store,
            target.layout,
            self._ids,
            rows,
            target.schema,
            compression=target.compression,
            bloom_filters=target.bloom_filters,
        )
        block = msgspec.structs.replace(block, cluster_stats=cluster, schema_id=target.schema.schema_id)
        self._blocks.append(block)
        for entries in self._entries:
            entries.add(block, rows)


def block_rows(rows: pa.Table, target: Target) -> int:
    """Rows that make a block of the wanted size, by the bytes that a sample of them takes as a file."""
    per_slice = _SAMPLE_ROWS // _SAMPLE_SLICES
    if rows.num_rows <= per_slice:
        return target.block_rows
    starts = [(rows.num_rows - per_slice) * at // (_SAMPLE_SLICES - 1) for at in range(_SAMPLE_SLICES)]
    sample = pa.concat_tables([rows.slice(start, per_slice) for start in starts])
    measured = measure(sample, target.schema)
    size_bytes = len(encode(sample, target.schema, measured, compression=target.compression))
    return max(1, min(target.block_rows, target.block_bytes * int(sample.num_rows) // size_bytes))


def _evenly(rows: pa.Table, count: int) -> Iterator[pa.Table]:
    edges = [rows.num_rows * at // count for at in range(count + 1)]
    for start, end in itertools.pairwise(edges):
        yield rows.slice(start, end - start)
