"""The statistics of a snapshot's blocks, column by column over many segments at once.

Segments are combined in chunks (:mod:`.chunk`) whose boundaries depend on the segments' content only. So a new snapshot
shares almost all chunks with the one before, whatever its commit merged, moved or dropped.

A query that only a few segments remain for reads the sidecars of those segments instead.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.chunk import CachedColumns, Chunk, Columns, Load, Rows, block_bytes
from lamella.snapshot.columnar.keys import NumberKeys
from lamella.snapshot.columnar.sidecar import Sidecar, joined_zones
from lamella.snapshot.columnar.zones import Zones
from lamella.snapshot.schema import Leaf


class BatchSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Batch sizes.

    A chunk ends after a segment with a probability of one in ``chunk_segments``, and has at most eight times as many
    segments. Its columns are assembled when at least ``worth_segments`` of its segments remain for a query, or half of
    them in a small table, unless a segment that the query has ruled out would have to be fetched for that. Pieces of
    fewer than ``batch_blocks`` blocks are joined, up to sixteen times as many, and tested together. The verdicts of a
    chunk are cached when it has at least ``min_cached_blocks``; computing those of fewer blocks is faster than a cache
    look-up.
    """

    chunk_segments: int = 64
    worth_segments: int = 16
    batch_blocks: int = 1 << 11
    min_cached_blocks: int = 1 << 12


_BATCH_SIZES: Final = BatchSizes()


class Piece(msgspec.Struct, frozen=True):
    """The blocks of the segments from ``first`` to before ``stop``: in their source from ``start`` to before ``end``.

    The source is their ``chunk``, or one segment's own sidecar (None). ``columns``: the requested columns of it.
    """

    chunk: Chunk | None
    columns: CachedColumns
    first: int
    stop: int
    start: int
    end: int

    def zones(self, leaf: Leaf) -> Zones:
        """Returns the zone maps of a column."""
        found = self.columns(leaf)
        return found if self.chunk is None else found.cut(self.start, self.end)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Returns a numeric column of the sidecars."""
        return self.columns.numbers[name][self.start : self.end]

    @property
    def bounds(self) -> Sequence[int]:
        """Returns the index of each segment's first block in the source, and the end."""
        if self.chunk is None:
            return (self.start, self.end)
        return self.chunk.bounds[self.first - self.chunk.first : self.stop - self.chunk.first + 1]


class Batch:
    """Blocks that are tested together: those of the segments ``rows``, ascending, one after another.

    ``starts``: the index of each segment's first block, and the end.
    """

    def __init__(self, rows: Rows, starts: Rows, pieces: Sequence[Piece]) -> None:
        chunk = pieces[0].chunk
        # As many segments as the chunk has may also belong to it and another chunk.
        is_whole = chunk is not None and len(rows) == chunk.stop - chunk.first
        #: The chunk that this batch covers completely.
        self.chunk = chunk if is_whole and all(piece.chunk is chunk for piece in pieces) else None
        self.rows = rows
        self.starts = starts
        self._pieces = pieces
        self._zones: dict[Leaf, Zones] = {}

    def __len__(self) -> int:
        return int(self.starts[-1])

    def zones(self, leaf: Leaf) -> Zones:
        """Returns the zone maps of a column."""
        found = self._zones.get(leaf)
        if found is None:
            parts = [piece.zones(leaf) for piece in self._pieces]
            found = self._zones[leaf] = parts[0] if len(parts) == 1 else joined_zones(leaf.dtype, parts)
        return found

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Returns a numeric column of the sidecars."""
        parts = [piece.numbers(name) for piece in self._pieces]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class SnapshotBlocks:
    """The blocks of one snapshot. ``segments``: its layer.

    ``view``: names everything that sidecars depend on besides their content, which is the schema of the reader.
    ``is_near`` tells whether the sidecar of a segment (by its row) can be opened without a fetch.

    Methods take the function that opens sidecars as an argument, since it differs between queries.
    """

    #: Approximate memory per segment: its numbers of blocks.
    BYTES_A_SEGMENT: Final = 64

    def __init__(
        self,
        segments: Sidecar,
        columns: Columns,
        view: str,
        batch_sizes: BatchSizes = _BATCH_SIZES,
        *,
        is_near: Callable[[int], bool] = lambda _row: True,
    ) -> None:
        self.batch_sizes = batch_sizes
        self._is_near = is_near
        self._segments = segments
        self._columns = columns
        self._view = view
        self._chunks: dict[int, Chunk] = {}
        self._inner: dict[Leaf, Zones] = {}
        #: Blocks of each segment.
        self.counts: Rows = segments.numbers("block_count")
        #: The number of each segment's first block in the snapshot, and the total.
        self.starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.counts)])

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """Returns the chunks, in order."""
        return tuple([self._chunk(number) for number in range(len(self._firsts))])

    @property
    def worth_segments(self) -> int:
        """Returns how many segments of a chunk must remain for its columns to be assembled."""
        return min(self.batch_sizes.worth_segments, max(2, len(self.counts) // 2))

    def chunk_at(self, row: int) -> Chunk:
        """Returns the chunk that a segment belongs to."""
        return self._chunk(bisect_right(self._firsts, row) - 1)

    def worth(self, rows: Rows, columns: Sequence[Leaf]) -> list[tuple[Chunk, Rows]]:
        """Returns the chunks that have many of the segments ``rows`` (ascending), with these rows.

        Leaves out chunks whose columns are not yet assembled and would require fetching a segment that is not among
        ``rows``.
        """
        enough = self.worth_segments
        if len(rows) < enough:
            return []
        return [
            (chunk, mine)
            for chunk, mine in self.split(rows)
            if len(mine) >= min(enough, len(chunk.starts) - 1) and self._is_free(chunk, mine, columns)
        ]

    def _is_free(self, chunk: Chunk, mine: Rows, columns: Sequence[Leaf]) -> bool:
        if len(mine) == chunk.stop - chunk.first or chunk.is_assembled(columns):
            return True
        requested = set(mine.tolist())
        return all(row in requested or self._is_near(row) for row in range(chunk.first, chunk.stop))

    def fits(self, worth: Sequence[tuple[Chunk, Rows]], columns: Sequence[Leaf]) -> bool:
        """Returns whether these columns of chunks take at most half of the cache: on disk if there is such, else in
        memory.

        More would remove each other; and files that are mapped take space on the disk even when they were deleted.
        """
        cache = self._columns.memory if self._columns.disk is None else self._columns.disk
        blocks = sum(chunk.bounds[-1] for chunk, _ in worth)
        return blocks * block_bytes(columns) <= cache.max_bytes // 2

    def inner(self, leaf: Leaf, chunks: Sequence[Chunk], load: Load) -> Zones | None:
        """Returns what all blocks of each segment have in common, from the first of these chunks to the last one.

        Known at most for the segments of the chunks, which are ascending. None: nothing is known, or bounds are not
        all that is.
        """
        found = self._inner.get(leaf)
        if found is not None and len(chunks) == len(self._firsts):
            return found
        first, count = chunks[0].first, chunks[-1].stop - chunks[0].first
        parts = [(chunk, chunk.common(leaf, load)) for chunk in chunks]
        flags = np.zeros(count, dtype=np.uint8)
        known = [(chunk, common.inner) for chunk, common in parts if common.inner is not None]
        if not known or not isinstance(known[0][1].low, NumberKeys) or any(common.has_gaps for _, common in parts):
            return None
        kind = known[0][1].low.array.dtype
        low, high = np.zeros(count, dtype=kind), np.zeros(count, dtype=kind)
        for chunk, inner in known:
            if isinstance(inner.low, NumberKeys) and isinstance(inner.high, NumberKeys):
                mine = slice(chunk.first - first, chunk.stop - first)
                flags[mine] = inner.flags
                low[mine] = inner.low.array
                high[mine] = inner.high.array
        found = Zones(NumberKeys(low), NumberKeys(high), flags)
        if len(chunks) == len(self._firsts):
            self._inner[leaf] = found
        return found

    def batches(self, pieces: Iterable[Piece | None]) -> Iterator[Batch]:
        """Yields the blocks of ascending pieces in batches; None in ``pieces`` ends a batch."""
        max_blocks = self.batch_sizes.batch_blocks
        joined: list[Piece] = []
        blocks = 0
        for piece in pieces:
            if piece is None:
                if joined:
                    yield self._batch(joined)
                    joined, blocks = [], 0
                continue
            size = piece.end - piece.start
            is_large = size >= max_blocks
            if joined and (is_large or blocks + size > 16 * max_blocks):
                yield self._batch(joined)
                joined, blocks = [], 0
            if is_large:
                yield self._batch([piece])
                continue
            joined.append(piece)
            blocks += size
        if joined:
            yield self._batch(joined)

    def _batch(self, pieces: Sequence[Piece]) -> Batch:
        taken = np.array([row for piece in pieces for row in range(piece.first, piece.stop)], dtype=np.int64)
        starts = np.zeros(len(taken) + 1, dtype=np.int64)
        self.counts[taken].cumsum(out=starts[1:])
        return Batch(taken, starts, pieces)

    def pieces(self, rows: Rows, columns: Sequence[Leaf], load: Load) -> Iterator[Piece]:
        """Yields runs of the segments ``rows`` (ascending), with ``columns`` and their source."""
        worth = {chunk.first for chunk, _ in self.worth(rows, columns)}
        for chunk, mine in self.split(rows):
            cached = chunk.made(columns, load) if chunk.first in worth else chunk.cached(columns)
            if cached is not None:
                yield from self.pieces_of(chunk, mine, cached)
                continue
            single = mine.tolist()
            opened = load(single, column_ids=[leaf.id for leaf in columns])
            for row, sidecar in zip(single, opened, strict=True):
                yield Piece(None, CachedColumns.of(sidecar, columns), row, row + 1, 0, len(sidecar))

    def pieces_of(self, chunk: Chunk, rows: Rows, columns: CachedColumns) -> Iterator[Piece]:
        """Yields runs of segments of one chunk, whose columns are given."""
        bounds, before = chunk.bounds, chunk.first
        for first, stop in _runs(rows):
            yield Piece(chunk, columns, first, stop, bounds[first - before], bounds[stop - before])

    def split(self, rows: Rows) -> list[tuple[Chunk, Rows]]:
        """Returns the segments ``rows`` (ascending) by chunk."""
        if not len(rows):
            return []
        firsts = self._firsts
        number = bisect_right(firsts, int(rows[0])) - 1
        chunk = self._chunk(number)
        if int(rows[-1]) < chunk.stop:
            return [(chunk, rows)]
        found = []
        start = 0
        while start < len(rows):
            chunk = self._chunk(bisect_right(firsts, int(rows[start])) - 1)
            end = int(rows.searchsorted(chunk.stop))
            found.append((chunk, rows[start:end]))
            start = end
        return found

    def _chunk(self, number: int) -> Chunk:
        """Returns a chunk; it is made on first access."""
        found = self._chunks.get(number)
        if found is None:
            first, stop = self._firsts[number], [*self._firsts[number + 1 : number + 2], len(self._segments)][0]
            digests = self._segments.texts("sidecar.sha256", np.arange(first, stop))
            key = hashlib.sha256("".join([self._view, *digests]).encode()).hexdigest()
            found = self._chunks.setdefault(number, Chunk(first, self.counts[first:stop], key, self._columns))
        return found

    @cached_property
    def _firsts(self) -> list[int]:
        """The first segment of each chunk."""
        usual = self.batch_sizes.chunk_segments
        stops = (self._segments.hash_ends.astype(np.int64) % usual == 0).nonzero()[0] + 1
        firsts: list[int] = []
        first = 0
        for stop in [*stops.tolist(), len(self._segments)]:
            firsts += range(first, stop, 8 * usual)
            first = stop
        return firsts


def _runs(rows: Rows) -> Iterator[tuple[int, int]]:
    """Yields ascending rows (at least one) as runs of neighbours: the first row and the one after the last."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        yield first, last + 1
        return
    before = first
    for row in rows[1:].tolist():
        if row > before + 1:
            yield first, before + 1
            first = row
        before = row
    yield first, before + 1
