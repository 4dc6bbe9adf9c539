"""The layers of a snapshot, and the block layer over many segments at once.

A segment is answered whole, without looking at a block, when its summary says that every row matches, or when what all
its blocks have in common (:class:`~lamella.snapshot.columnar.chunk.Column`) says that each of them may hold a row that
matches and one that does not. The others' blocks are tested together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.cache import CacheNamespace
from lamella.snapshot.columnar import Sidecar, Zones, zones_of
from lamella.snapshot.columnar.chunk import CachedColumns, Chunk, Load
from lamella.snapshot.columnar.keys import Mask, both, either, filled, lesser
from lamella.snapshot.columnar.sidecar import SidecarRefs
from lamella.snapshot.columnar.snapshot_blocks import Batch, Piece, SnapshotBlocks
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, NULLS_KNOWN, Edges, edges_of, has_bound
from lamella.snapshot.concurrency import deadline_exceeded, is_deadline_exceeded
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import SegmentNotFound, Unavailable
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
from lamella.snapshot.prune.result import BlockSelection, Codes, Indexes, SegmentSelection, SelectionBuilder
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

    def unbounded(self, columns: Sequence[Leaf]) -> list[Leaf]:
        """Those of some columns of which not all segments, and so perhaps not all blocks, have a bound."""
        found = []
        for leaf in columns:
            edges = self._edges.get(leaf)  # where there are some: they know it at once
            if edges is None or not edges.exact:
                every, _ = self.segments.zones(leaf.id, leaf.dtype).flags_of_all()
                if not every & (LOW_KNOWN | HIGH_KNOWN):
                    found.append(leaf)
        return found

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


def lookup_of(sidecar: Sidecar) -> Lookup:
    """The statistics of a sidecar's entries, column by column."""
    return lambda leaf: sidecar.zones(leaf.id, leaf.dtype)


def codes_of_sidecar(filter: Evaluator, sidecar: Sidecar) -> Codes:
    """The verdicts of a sidecar's entries."""
    return verdicts(filter.outcome(lookup_of(sidecar), len(sidecar)), sidecar.numbers("row_count"))


def blocks_of_segment(filter: Evaluator, row: int, sidecar: Sidecar, code: int) -> SegmentSelection:
    """The blocks of one segment that a filter keeps; ``code``: the verdict of the segment itself."""
    if code == ALL:
        codes = np.where(sidecar.numbers("row_count") > 0, ALL, NONE).astype(np.uint8)
    else:
        codes = codes_of_sidecar(filter, sidecar)
    rows = np.flatnonzero(codes != NONE)
    return SegmentSelection(row, sidecar, rows, codes[rows])


_COMPLETE: Final = LOW_KNOWN | HIGH_KNOWN | NULLS_KNOWN
#: What a chunk's verdicts take beside their array and the filter that they are kept under, roughly.
_VERDICT_BYTES: Final = 4_096


class BlockLayer:
    """The blocks of one snapshot, tested once; ``load`` opens the sidecars of segments by their rows."""

    def __init__(self, layers: Layers, blocks: SnapshotBlocks, load: Load) -> None:
        self._layers = layers
        self._segments = layers.segments
        self._blocks = blocks
        self._load = load
        self._verdicts = layers.verdicts
        #: Blocks of the segments that were looked at, and the file sizes of the selected ones, in bytes.
        self.considered = self.selected_bytes = 0
        #: Blocks whose verdicts were kept from another prune.
        self.reused = 0
        #: The columns of the filter of which no block that was looked at has a bound; empty if none was looked at.
        self.unbounded: list[Leaf] = []
        self._has_looked = False

    def test(self, filter: Evaluator, codes: Codes, rows: Indexes) -> BlockSelection:
        """Test the blocks of the segments ``rows``, ascending, which are those that ``codes`` keep.

        Raises:
            Unavailable: the request's time is over.
        """
        self.considered = int(np.add.reduce(self._blocks.counts[rows]))
        self.unbounded = self._layers.unbounded(filter.columns)
        left = SelectionBuilder()
        worth = self._blocks.worth(rows, filter.columns)
        whole: Codes | None = None
        if worth and not self._blocks.fits(worth, filter.columns):
            whole = self._test_passing(filter, codes, rows, worth, left)
        else:
            if worth:
                for chunk, _ in worth:
                    chunk.prepare(filter.columns, self._load)
                whole = self._whole(filter, codes, worth)
                rows = rows[whole[rows] == NONE]
            self._test_pieces(filter, codes, self._blocks.pieces(rows, filter.columns, self._load), left)
        if not self._has_looked:
            self.unbounded = []
        whole_bytes = 0
        if whole is not None and not whole.any():
            whole = None
        if whole is not None:
            whole_bytes = int(self._segments.numbers("file_size")[whole.nonzero()[0]].sum())
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
        left, considered, looked = SelectionBuilder(), 0, list[CachedColumns]()
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
                looked.append(columns)
                row = stop
        self.considered, self.selected_bytes = considered, left.size_bytes
        self.unbounded = self._layers.unbounded(filter.columns) if looked else []
        for columns in looked:
            self._look(columns)
        return left.built(None, blocks.counts)

    def _test_passing(
        self,
        filter: Evaluator,
        codes: Codes,
        rows: Indexes,
        worth: Sequence[tuple[Chunk, Indexes]],
        left: SelectionBuilder,
    ) -> Codes:
        """Test one chunk after another, whose columns do not fit into memory together.

        What the blocks of a segment have in common is small, and is kept: where that decides, a later prune opens
        nothing.
        """
        known = [(chunk, mine) for chunk, mine in worth if chunk.knows(filter.columns)]
        whole = self._whole(filter, codes, known) if known else np.zeros(len(codes), dtype=np.uint8)
        opened = {chunk.first for chunk, _ in worth}
        decided = {chunk.first for chunk, _ in known}
        try:
            for chunk, mine in self._blocks.split(rows[whole[rows] == NONE]):
                if chunk.first not in opened:
                    self._test_pieces(filter, codes, self._blocks.pieces(mine, filter.columns, self._load), left)
                    continue
                columns = chunk.passing(filter.columns, self._load)
                if chunk.first not in decided:
                    whole |= self._whole(filter, codes, [(chunk, mine)])
                    mine = mine[whole[mine] == NONE]
                if len(mine):
                    self._test_pieces(filter, codes, self._blocks.pieces_of(chunk, mine, columns), left)
        except Unavailable as error:
            if not is_deadline_exceeded(error):
                raise
            raise deadline_exceeded(
                f"the request exceeded its time limit: it reads the statistics of {counted(self.considered, 'block')}, "
                "more than the cache holds. Narrow the filter by a column that the table is sorted by, or give the "
                "service more cache_bytes, a cache_dir with more cache_dir_bytes, or a longer request_deadline_s"
            ) from error
        return whole

    def _test_pieces(self, filter: Evaluator, codes: Codes, pieces: Iterable[Piece], left: SelectionBuilder) -> None:
        for batch in self._blocks.batches(self._unsearched(filter, codes, pieces, left)):
            tested = self._codes(filter, batch, codes)
            self._look(batch.zones)
            left.add_tested(batch.rows, batch.starts, tested, batch.numbers("file_size"))

    def _unsearched(
        self, filter: Evaluator, codes: Codes, pieces: Iterable[Piece], left: SelectionBuilder
    ) -> Iterator[Piece | None]:
        """The pieces that are to be tested; None where others, which need no test, lie between them."""
        search = Search(filter, codes)
        for piece in pieces:
            found = search.of(piece)
            if found is None:
                yield piece
            else:
                yield None  # what came before is added first
                found.add_to(left)
                self._look(piece.zones)

    def _look(self, zones: Lookup) -> None:
        """Note the columns of which these blocks have a bound."""
        self._has_looked = True
        if self.unbounded:
            self.unbounded = [leaf for leaf in self.unbounded if not has_bound(zones(leaf))]

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

    def _whole(self, filter: Evaluator, codes: Codes, worth: Sequence[tuple[Chunk, Indexes]]) -> Codes:
        """The verdict of segments whose blocks all have the same, proven without looking at them; NONE elsewhere."""
        whole = np.zeros(len(codes), dtype=np.uint8)
        for chunk, mine in worth:
            # A block without rows has a verdict of its own.
            full = chunk.full(self._load)
            whole[mine] = np.where(full[mine - chunk.first], np.where(codes[mine] == ALL, ALL, SOME), NONE)
        chunks = [chunk for chunk, _ in worth]
        span = whole[chunks[0].first : chunks[-1].stop]
        undecided = span == SOME
        if undecided.any():
            span[undecided & ~self._same(filter, chunks)] = NONE
        if whole.any():
            self._look_whole(whole, chunks)
        return whole

    def _look_whole(self, whole: Codes, chunks: Sequence[Chunk]) -> None:
        """Note the columns of which segments that are answered as a whole, or else their blocks, have a bound."""
        self._has_looked = True
        if not self.unbounded:
            return
        rows = whole.nonzero()[0]

        def is_bounded(leaf: Leaf) -> bool:
            if has_bound(self._segments.zones(leaf.id, leaf.dtype).take(rows)):
                return True
            return any(
                chunk.common(leaf, self._load).has_bound[whole[chunk.first : chunk.stop] != NONE].any()
                for chunk in chunks
            )

        self.unbounded = [leaf for leaf in self.unbounded if not is_bounded(leaf)]

    def _same(self, filter: Evaluator, chunks: Sequence[Chunk]) -> Mask:
        """Segments, from the first of the chunks to the last one, each of whose blocks may hold a row that matches, and
        one that does not.

        A set of results only grows when an entry's bounds are widened, for the predicates of :func:`_grows`; every
        block's bounds contain what all of them have in common.
        """
        count = chunks[-1].stop - chunks[0].first
        if not filter.columns or filter.split or not _grows(filter.node):
            return np.zeros(count, dtype=bool)
        # A block of one listed value has none outside of the list, which bounds that have nothing in common hide.
        lists = any(isinstance(leaf, Membership) for leaf in filter.leaves)
        common: dict[Leaf, Zones] = {}
        complete: Mask = np.ones(count, dtype=bool)
        for leaf in filter.columns:
            zones = self._blocks.inner(leaf, chunks, self._load)
            if zones is None:
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
