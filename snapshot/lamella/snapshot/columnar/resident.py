"""The statistics of a snapshot's blocks, column by column over many segments at once.

Segments are taken together in chunks (:mod:`.chunk`) whose borders depend on the segments' content alone, so that a
new snapshot has almost all chunks in common with the one before, whatever its commit folded, moved or dropped.

A question that only a few segments are left for reads those segments' own companions instead.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.assembly import Load
from lamella.snapshot.columnar.chunk import Chunk, Columns, Rows
from lamella.snapshot.columnar.companion import Companion
from lamella.snapshot.columnar.joined import joined_zones
from lamella.snapshot.columnar.keys import NumberKeys
from lamella.snapshot.columnar.zones import Zones
from lamella.snapshot.schema import Leaf


class Grain(msgspec.Struct, frozen=True, kw_only=True):
    """How much is taken together.

    A chunk ends behind a segment with a probability of one in ``chunk_segments``, and has at most eight times as many.
    Its columns are put together when a question is left with at least ``worth_segments`` of its segments, in a small
    table with half of them, unless one that the question has ruled out would have to be fetched for that. Pieces of
    fewer than ``batch_blocks`` blocks are joined, up to sixteen times as many, to be tested in one go. Verdicts of a
    chunk are kept when it has at least ``kept_blocks``; those of fewer are made faster than they are found again.
    """

    chunk_segments: int = 64
    worth_segments: int = 16
    batch_blocks: int = 1 << 11
    kept_blocks: int = 1 << 12


_GRAIN: Final = Grain()


class Batch:
    """Blocks that are tested together: those of the segments ``rows``, ascending, one after another.

    ``starts``: where each segment's blocks begin, and the end.
    """

    def __init__(
        self, rows: Rows, starts: Rows, pieces: Sequence[tuple[Chunk | Companion, int, int]], load: Load
    ) -> None:
        source = pieces[0][0]
        #: The chunk that this is all of.
        self.chunk = source if isinstance(source, Chunk) and len(rows) == source.stop - source.first else None
        self.rows = rows
        self.starts = starts
        self._pieces = pieces
        self._load = load
        self._zones: dict[Leaf, Zones] = {}

    def __len__(self) -> int:
        return int(self.starts[-1])

    def zones(self, leaf: Leaf) -> Zones:
        """The zone maps of a column."""
        found = self._zones.get(leaf)
        if found is None:
            parts = [self._part(source, start, stop, leaf) for source, start, stop in self._pieces]
            found = self._zones[leaf] = parts[0] if len(parts) == 1 else joined_zones(leaf.dtype, parts)
        return found

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """A numeric column of the companions."""
        parts = [
            source.numbers(name, self._load)[start:stop] if isinstance(source, Chunk) else source.numbers(name)
            for source, start, stop in self._pieces
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _part(self, source: Chunk | Companion, start: int, stop: int, leaf: Leaf) -> Zones:
        if isinstance(source, Chunk):
            return source.column(leaf, self._load).zones.cut(start, stop)
        return source.zones(leaf.id, leaf.dtype)


class ResidentBlocks:
    """The blocks of one snapshot. ``segments``: its layer.

    ``view``: names all that companions look like depends on beside their content, which is the schema they are seen
    from. ``is_near`` says of a segment, by its row, that opening its companion fetches nothing from elsewhere.

    What opens companions is an argument, since it differs from question to question.
    """

    def __init__(
        self,
        segments: Companion,
        columns: Columns,
        view: str,
        grain: Grain = _GRAIN,
        *,
        is_near: Callable[[int], bool] = lambda _row: True,
    ) -> None:
        self.grain = grain
        self._is_near = is_near
        self._segments = segments
        self._columns = columns
        self._view = view
        self._chunks: tuple[Chunk, ...] | None = None
        self._inner: dict[Leaf, Zones] = {}
        #: Blocks of each segment.
        self.counts: Rows = segments.numbers("block_count")
        #: The number of each segment's first block in the snapshot, and the number of all.
        self.starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.counts)])

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks, in order."""
        if self._chunks is None:
            self._chunks = tuple(self._cut())
        return self._chunks

    def worth(self, rows: Rows, columns: Sequence[Leaf]) -> list[tuple[Chunk, Rows]]:
        """The chunks that have many of the segments ``rows``, ascending, with these.

        None whose columns are still to be made from a segment that is not one of these and has to be fetched.
        """
        enough = min(self.grain.worth_segments, max(2, len(self.counts) // 2))
        if len(rows) < enough:
            return []
        return [
            (chunk, mine)
            for chunk, mine in self._split(rows)
            if len(mine) >= min(enough, len(chunk.starts) - 1) and self._is_free(chunk, mine, columns)
        ]

    def _is_free(self, chunk: Chunk, mine: Rows, columns: Sequence[Leaf]) -> bool:
        if len(mine) == chunk.stop - chunk.first or chunk.is_made(columns):
            return True
        asked = set(mine.tolist())
        return all(row in asked or self._is_near(row) for row in range(chunk.first, chunk.stop))

    def inner(self, leaf: Leaf, chunks: Sequence[Chunk], load: Load) -> Zones | None:
        """What all blocks of each segment have in common, known for the segments of these chunks at most."""
        found = self._inner.get(leaf)
        if found is None:
            count = len(self.counts)
            parts = [(chunk, chunk.column(leaf, load).inner) for chunk in chunks]
            flags = np.zeros(count, dtype=np.uint8)
            known = [(chunk, inner) for chunk, inner in parts if inner is not None]
            if not known or not isinstance(known[0][1].low, NumberKeys):
                return None
            kind = known[0][1].low.array.dtype
            low, high = np.zeros(count, dtype=kind), np.zeros(count, dtype=kind)
            for chunk, inner in known:
                if isinstance(inner.low, NumberKeys) and isinstance(inner.high, NumberKeys):
                    flags[chunk.first : chunk.stop] = inner.flags
                    low[chunk.first : chunk.stop] = inner.low.array
                    high[chunk.first : chunk.stop] = inner.high.array
            found = Zones(NumberKeys(low), NumberKeys(high), flags)
            if len(chunks) == len(self.chunks):
                self._inner[leaf] = found
        return found

    def batches(self, rows: Rows, columns: Sequence[Leaf], load: Load) -> Iterator[Batch]:
        """The blocks of the segments ``rows``, ascending, batch after batch; ``columns`` will be asked for."""
        most = self.grain.batch_blocks
        pieces: list[tuple[Chunk | Companion, int, int]] = []
        taken: list[int] = []
        blocks = 0
        for source, first, stop in self._pieces(rows, columns, load):
            if isinstance(source, Chunk):
                start, end = int(source.starts[first - source.first]), int(source.starts[stop - source.first])
            else:
                start, end = 0, len(source)
            is_large = end - start >= most
            if pieces and (is_large or blocks + end - start > 16 * most):
                yield self._batch(taken, pieces, load)
                pieces, taken, blocks = [], [], 0
            if is_large:
                yield self._batch(list(range(first, stop)), [(source, start, end)], load)
                continue
            pieces.append((source, start, end))
            taken.extend(range(first, stop))
            blocks += end - start
        if pieces:
            yield self._batch(taken, pieces, load)

    def _batch(self, rows: list[int], pieces: Sequence[tuple[Chunk | Companion, int, int]], load: Load) -> Batch:
        taken = np.array(rows, dtype=np.int64)
        starts = np.zeros(len(rows) + 1, dtype=np.int64)
        self.counts[taken].cumsum(out=starts[1:])
        return Batch(taken, starts, pieces, load)

    def _pieces(self, rows: Rows, columns: Sequence[Leaf], load: Load) -> Iterator[tuple[Chunk | Companion, int, int]]:
        """Runs of segments, each with where its columns come from: its chunk, or a single segment's companion."""
        worth = {chunk.first for chunk, _ in self.worth(rows, columns)}
        for chunk, mine in self._split(rows):
            if chunk.first in worth or chunk.is_held(columns):
                first, last = int(mine[0]), int(mine[-1])
                if last - first + 1 == len(mine):
                    yield chunk, first, last + 1
                    continue
                ends = [*(np.flatnonzero(mine[1:] - mine[:-1] > 1) + 1).tolist(), len(mine)]
                for start, end in zip([0, *ends], ends, strict=False):
                    yield chunk, int(mine[start]), int(mine[end - 1]) + 1
            else:
                single = mine.tolist()
                for row, companion in zip(single, load(single), strict=True):
                    yield companion, row, row + 1

    def _split(self, rows: Rows) -> list[tuple[Chunk, Rows]]:
        """The segments ``rows``, ascending, by chunk."""
        if not len(rows):
            return []
        chunks = self.chunks
        number = bisect_right(self._firsts, int(rows[0])) - 1
        if int(rows[-1]) < chunks[number].stop:
            return [(chunks[number], rows)]
        cuts = np.searchsorted(rows, self._firsts)
        ends = [*cuts[1:].tolist(), len(rows)]
        return [
            (chunk, rows[start:end])
            for chunk, start, end in zip(chunks, cuts.tolist(), ends, strict=True)
            if end > start
        ]

    @property
    def _firsts(self) -> list[int]:
        if self._chunk_firsts is None:
            self._chunk_firsts = [chunk.first for chunk in self.chunks]
        return self._chunk_firsts

    _chunk_firsts: list[int] | None = None

    def _cut(self) -> Iterator[Chunk]:
        digests = self._segments.texts("companion.sha256")
        usual = self.grain.chunk_segments
        first = 0
        for row, digest in enumerate(digests):
            length = row + 1 - first
            last = row + 1 == len(digests)
            if last or int(digest[-4:], 16) % usual == 0 or length == 8 * usual:
                key = hashlib.sha256("".join([self._view, *digests[first : row + 1]]).encode()).hexdigest()
                yield Chunk(first, self.counts[first : row + 1], key, self._columns)
                first = row + 1
