"""The layers of a snapshot, and the block layer over many segments at once.

A segment is answered whole, without looking at a block, when its summary says that every row matches, or when what all
its blocks have in common (:class:`~lamella.snapshot.columnar.chunk.Column`) says that each of them may hold a row that
matches and one that does not. The others' blocks are tested together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.cache import CacheNamespace
from lamella.snapshot.columnar import Sidecar, Zones, zones_of
from lamella.snapshot.columnar.chunk import Chunk, Load
from lamella.snapshot.columnar.keys import Mask, both, either, filled, lesser
from lamella.snapshot.columnar.sidecar import SidecarRefs
from lamella.snapshot.columnar.snapshot_blocks import Batch, Piece, SnapshotBlocks
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, NULLS_KNOWN, Edges, edges_of
from lamella.snapshot.errors import SegmentNotFound
from lamella.snapshot.expression.bound import (
    BoundAnd,
    BoundNot,
    BoundOr,
    BoundPredicate,
    Comparison,
    Fixed,
    Membership,
    NullTest,
    children_of,
)
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.prune.evaluate import Evaluator, Lookup
from lamella.snapshot.prune.indexes import IndexLayer
from lamella.snapshot.prune.outcome import ALL, NONE, SOME, verdicts
from lamella.snapshot.prune.result import BlockSelection, Codes, Indexes, SelectionBuilder
from lamella.snapshot.prune.search import MAX_SEGMENTS, Division, Search, Searched, division
from lamella.snapshot.schema import DataType, Leaf

#: Verdicts of a chunk's blocks, by the chunk's content and the filter.
VerdictCache = CacheNamespace[npt.NDArray[np.uint8]]


class Layers:
    """``head``: the snapshot without its segments; ``segments``: one row for each of them.

    ``blocks``: their blocks many segments at once, None where each segment is looked at alone. ``verdicts``: where
    those of chunks of blocks are kept by content and filter, also for other snapshots that have the chunk. Safe to
    share between threads: what is made here is the same whoever makes it.
    """

    def __init__(
        self,
        head: Snapshot,
        segments: Sidecar,
        blocks: SnapshotBlocks | None = None,
        verdicts: VerdictCache | None = None,
        refs: SidecarRefs | None = None,
        indexes: IndexLayer | None = None,
    ) -> None:
        self.head = head
        self.segments = segments
        #: Where the sidecar of a segment is, by its row.
        self.sidecar = refs if refs is not None else SidecarRefs(segments)
        self.blocks = blocks
        self.verdicts = verdicts
        #: The skip indexes; None: there are none.
        self.indexes = indexes
        self._summary: dict[tuple[int, DataType], Zones] = {}
        self._edges: dict[Leaf, Edges | None] = {}

    def edges(self, leaf: Leaf) -> Edges | None:
        """The edges of a column over the segments."""
        try:
            return self._edges[leaf]
        except KeyError:
            found = self._edges[leaf] = edges_of(self.segments.zones(leaf.id, leaf.dtype))
            return found

    def is_bounded(self, leaf: Leaf) -> bool:
        """Whether all segments have a bound of a column."""
        edges = self._edges.get(leaf)  # where there are some: they know it at once
        if edges is not None and edges.exact:
            return True
        every, _ = self.segments.zones(leaf.id, leaf.dtype).flags_of_all()
        return bool(every & (LOW_KNOWN | HIGH_KNOWN))

    def summary(self, leaf: Leaf) -> Zones:
        """The statistics of a column over the whole snapshot: one entry."""
        key = (leaf.id, leaf.dtype)
        found = self._summary.get(key)
        if found is None:
            summary = self.head.summary
            entries = [(summary.row_count, summary.col_stats.get(leaf.id))]
            found = self._summary[key] = zones_of(leaf.dtype, entries)
        return found


def number_of_segment(segment_ids: Sequence[str], segment_id: str) -> int:
    """The position of a segment among those of a snapshot; raises SegmentNotFound."""
    try:
        return segment_ids.index(segment_id)
    except ValueError:
        raise SegmentNotFound(f"the snapshot has no segment {segment_id!r}", segment_id=segment_id) from None


_COMPLETE: Final = LOW_KNOWN | HIGH_KNOWN | NULLS_KNOWN
#: What a chunk's verdicts take beside their array and the filter that they are kept under, roughly.
_VERDICT_BYTES: Final = 4_096


class BlockLayer:
    """The blocks of one snapshot, tested once; ``load`` opens the sidecars of segments by their rows.

    ``kept`` has verdicts of earlier prunes.
    """

    def __init__(
        self, segments: Sidecar, blocks: SnapshotBlocks, load: Load, verdicts: VerdictCache | None = None
    ) -> None:
        self._segments = segments
        self._blocks = blocks
        self._load = load
        self._verdicts = verdicts
        #: Blocks of the segments that were looked at, and the file sizes of the selected ones, in bytes.
        self.considered = self.selected_bytes = 0
        #: Blocks whose verdicts were kept from another prune.
        self.reused = 0
        #: The statistics that were looked at.
        self.lookups: list[Lookup] = []

    def test(self, filter: Evaluator, codes: Codes, rows: Indexes) -> BlockSelection:
        """Test the blocks of the segments ``rows``, ascending, which are those that ``codes`` keep."""
        self.considered = int(np.add.reduce(self._blocks.counts[rows]))
        left = SelectionBuilder()
        whole_bytes = 0
        whole = self._whole(filter, codes, rows)
        if whole is not None:
            whole_rows = np.flatnonzero(whole)
            whole_bytes = int(self._segments.numbers("file_size")[whole_rows].sum())
            self.lookups.append(self._whole_lookup(whole, whole_rows))
            rows = rows[whole[rows] == NONE]
        for batch in self._blocks.batches(self._unsearched(filter, codes, rows, left)):
            tested = self._codes(filter, batch, codes)
            self.lookups.append(batch.zones)
            left.add_tested(batch.rows, batch.starts, tested, batch.numbers("file_size"))
        self.selected_bytes = whole_bytes + left.size_bytes
        return left.built(whole, self._blocks.counts)

    def search(self, filter: Evaluator, found: Division) -> BlockSelection | None:
        """The blocks of a few segments, where a search decides all of them: what :meth:`test` does, in less time.

        ``found``: the division of the segments, with no rest. None: the blocks are to be tested, or their columns are
        not in memory.
        """
        blocks = self._blocks
        count = sum(stop - start for start, stop in found.windows)
        if count >= blocks.worth_segments or count > MAX_SEGMENTS:
            return None
        left, considered, lookups = SelectionBuilder(), 0, list[Lookup]()
        every = [row for first, last in found.every for row in range(first, last)] if found.every else ()
        for begin, end in found.windows:
            row = begin
            while row < end:
                chunk = blocks.chunk_at(row)
                columns = chunk.cached(filter.columns)
                if columns is None or not columns.have_rows:
                    return None
                inner = division(filter, columns.edges, chunk.bounds[-1])
                if inner.rest is not None:
                    return None
                stop = min(end, chunk.stop)
                bounds = chunk.bounds[row - chunk.first : stop - chunk.first + 1]
                decided = [ALL if each in every else SOME for each in range(row, stop)]
                Searched(inner, columns, row, bounds, decided).add_to(left)
                considered += bounds[-1] - bounds[0]
                lookups.append(columns)
                row = stop
        self.considered, self.lookups, self.selected_bytes = considered, lookups, left.size_bytes
        return left.built(None, blocks.counts)

    def _unsearched(
        self, filter: Evaluator, codes: Codes, rows: Indexes, left: SelectionBuilder
    ) -> Iterator[Piece | None]:
        """The pieces that are to be tested; None where others, which need no test, lie between them."""
        search = Search(filter, codes)
        for piece in self._blocks.pieces(rows, filter.columns, self._load):
            found = search.of(piece)
            if found is None:
                yield piece
            else:
                yield None  # what came before is added first
                found.add_to(left)
                self.lookups.append(piece.zones)

    def _codes(self, filter: Evaluator, batch: Batch, codes: Codes) -> Codes:
        decided = codes[batch.rows] == ALL
        if decided.all():
            return np.where(batch.numbers("row_count") > 0, ALL, NONE).astype(np.uint8)
        found = self._tested(filter, batch)
        if decided.any():
            known = np.repeat(decided, batch.starts[1:] - batch.starts[:-1]) & (batch.numbers("row_count") > 0)
            found = np.where(known, np.uint8(ALL), found)
        return found

    def _tested(self, filter: Evaluator, batch: Batch) -> Codes:
        """The verdicts of blocks, read-only; those of a whole chunk are kept."""
        if self._verdicts is None or batch.chunk is None or len(batch) < self._blocks.batch_sizes.min_cached_blocks:
            return _tested(filter, batch)
        name = (batch.chunk.key, filter.key)
        found = self._verdicts.get(name)
        if found is None or len(found) != len(batch):  # those of other blocks are never believed
            found = _tested(filter, batch)
            self._verdicts.put(name, found, found.nbytes + filter.key.size_bytes + _VERDICT_BYTES)
        else:
            self.reused += len(batch)
        return found

    def _whole(self, filter: Evaluator, codes: Codes, rows: Indexes) -> Codes | None:
        """The verdict of segments whose blocks all have the same, proven without looking at them; NONE elsewhere.

        None: there are none.
        """
        worth = self._blocks.worth(rows, filter.columns)
        if not worth:
            return None
        whole = np.zeros(len(codes), dtype=np.uint8)
        for chunk, mine in worth:
            chunk.prepare(filter.columns, self._load)
            # A block without rows has a verdict of its own.
            full = np.minimum.reduceat(chunk.numbers("row_count", self._load), chunk.starts[:-1]) > 0
            whole[mine] = np.where(full[mine - chunk.first], np.where(codes[mine] == ALL, ALL, SOME), NONE)
        undecided = whole == SOME
        if undecided.any():
            whole[undecided & ~self._same(filter, [chunk for chunk, _ in worth])] = NONE
        return whole if whole.any() else None

    def _whole_lookup(self, whole: Codes, rows: Indexes) -> Lookup:
        """What is known of columns in segments that were answered whole: of them, or else of their blocks."""

        def zones(leaf: Leaf) -> Zones:
            found = self._segments.zones(leaf.id, leaf.dtype).take(rows)
            if found.has(LOW_KNOWN | HIGH_KNOWN).any():
                return found
            flags = []
            for chunk in self._blocks.chunks:
                mine = whole[chunk.first : chunk.stop] != NONE
                if mine.any():
                    all_flags = chunk.column(leaf, self._load).zones.flags
                    flags.append(all_flags[np.repeat(mine, np.diff(chunk.starts))])
            return Zones(None, None, np.concatenate(flags))

        return zones

    def _same(self, filter: Evaluator, chunks: Sequence[Chunk]) -> Mask:
        """Segments each of whose blocks may hold a row that matches, and one that does not.

        A set of results only grows when an entry's bounds are widened, for the predicates of :func:`_grows`; every
        block's bounds contain what all of them have in common.
        """
        count = len(self._blocks.counts)
        if not filter.columns or filter.split or not _grows(filter.node):
            return np.zeros(count, dtype=bool)
        # A block of one listed value has none outside of the list, which bounds that have nothing in common hide.
        lists = any(isinstance(leaf, Membership) for leaf in filter.leaves)
        common: dict[Leaf, Zones] = {}
        complete: Mask = np.ones(count, dtype=bool)
        for leaf in filter.columns:
            zones = self._blocks.inner(leaf, chunks, self._load)
            if zones is None or any(chunk.column(leaf, self._load).zones.has_gaps for chunk in chunks):
                return np.zeros(count, dtype=bool)
            common[leaf] = zones
            complete &= (zones.flags & np.uint8(_COMPLETE)) == _COMPLETE
            if lists and zones.low is not None and zones.high is not None:
                complete &= ~lesser(zones.high, zones.low)
        outcome = filter.outcome(common.__getitem__, count)
        return filled(both(complete, both(outcome.true, either(outcome.false, outcome.null))), count)


def _tested(filter: Evaluator, batch: Batch) -> Codes:
    return verdicts(filter.outcome(batch.zones, len(batch)), batch.numbers("row_count"))


def _grows(node: BoundPredicate) -> bool:
    """Whether the results of a filter can only become more when the bounds of its columns are widened."""
    match node:
        case BoundAnd() | BoundOr() | BoundNot():
            return all(_grows(child) for child in children_of(node))
        case Comparison(term) | NullTest(term):
            return isinstance(term, Leaf)
        case Membership():
            return isinstance(node.term, Leaf)
        case _:
            return isinstance(node, Fixed)
