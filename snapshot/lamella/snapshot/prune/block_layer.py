"""The block layer over many segments at once.

A segment is answered whole, without looking at a block, when its summary says that every row matches, or when what all
its blocks have in common (:class:`~lamella.snapshot.columnar.chunk.Column`) says that each of them may hold a row
that matches and one that does not. The others' blocks are tested together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, overload

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Companion, Zones
from lamella.snapshot.columnar.assembly import Load
from lamella.snapshot.columnar.chunk import Chunk
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.masks import both, either, filled
from lamella.snapshot.columnar.resident import Batch, ResidentBlocks
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, NULLS_KNOWN
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
from lamella.snapshot.prune.evaluate import Evaluator, Lookup
from lamella.snapshot.prune.kept import Codes, Indexes, Kept
from lamella.snapshot.prune.layers import VerdictShelf
from lamella.snapshot.prune.verdict import ALL, NONE, SOME, codes_of
from lamella.snapshot.schema import Leaf

_COMPLETE: Final = LOW_KNOWN | HIGH_KNOWN | NULLS_KNOWN
#: What a chunk's verdicts take beside their array, with the filter that they are kept under, roughly.
_VERDICT_BYTES: Final = 4_096


class KeptBlocks(Sequence[Kept]):
    """The kept blocks, segment by segment.

    ``segments``: rows of segments that have any, ascending. ``whole``: the verdict that all blocks of the segment
    have, or NONE where ``rows`` and ``codes`` say more: those from ``offsets[i]`` to before ``offsets[i + 1]`` are the
    kept blocks of segment i. ``block_counts``: blocks of each segment of the snapshot.
    """

    def __init__(
        self,
        segments: Indexes,
        whole: Codes,
        offsets: Indexes,
        rows: Indexes,
        codes: Codes,
        block_counts: Indexes,
        load: Load,
    ) -> None:
        self.segments = segments
        self.whole = whole
        self.offsets = offsets
        self.rows = rows
        self.codes = codes
        self.block_counts = block_counts
        self._load = load

    def __len__(self) -> int:
        return len(self.segments)

    @overload
    def __getitem__(self, index: int) -> Kept: ...
    @overload
    def __getitem__(self, index: slice) -> list[Kept]: ...
    def __getitem__(self, index: int | slice) -> Kept | list[Kept]:
        """The kept blocks of one of the segments, or of some."""
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        row, code = int(self.segments[index]), int(self.whole[index])
        index %= len(self)
        if code != NONE:
            count = int(self.block_counts[row])
            return Kept(row, self._open, np.arange(count), np.full(count, code, dtype=np.uint8))
        start, stop = int(self.offsets[index]), int(self.offsets[index + 1])
        return Kept(row, self._open, self.rows[start:stop], self.codes[start:stop])

    def __iter__(self) -> Iterator[Kept]:
        return (self[index] for index in range(len(self)))

    def opened_by(self, load: Load) -> KeptBlocks:
        """The same blocks, whose companions ``load`` opens."""
        parts = (self.segments, self.whole, self.offsets, self.rows, self.codes, self.block_counts)
        return KeptBlocks(*parts, load)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, roughly; ``block_counts`` are the snapshot's."""
        return sum(array.nbytes for array in (self.segments, self.whole, self.offsets, self.rows, self.codes))

    def _open(self, row: int) -> Companion:
        return self._load([row])[0]

    @property
    def block_count(self) -> int:
        """How many blocks."""
        return len(self.rows) + int(self.block_counts[self.segments[self.whole != NONE]].sum())


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """What the block layer found.

    ``bytes``: the kept blocks' file sizes; ``reused``: blocks whose verdicts were kept from another prune;
    ``lookups``: the statistics it looked at.
    """

    kept: KeptBlocks
    considered: int
    count: int
    bytes: int
    reused: int
    lookups: tuple[Lookup, ...]


class BlockLayer:
    """The blocks of one snapshot; ``load`` opens the companions of segments by their rows, ``kept`` has verdicts."""

    def __init__(
        self, segments: Companion, blocks: ResidentBlocks, load: Load, kept: VerdictShelf | None = None
    ) -> None:
        self._segments = segments
        self._blocks = blocks
        self._load = load
        self._verdicts = kept
        self._reused = 0

    def test(self, filter: Evaluator, codes: Codes, rows: Indexes) -> Tested:
        """Test the blocks of the segments ``rows``, ascending, which are those that ``codes`` keep."""
        considered = int(self._blocks.counts[rows].sum())
        lookups: list[Lookup] = []
        sizes_bytes = 0
        owners: list[Indexes] = []
        counts: list[Indexes] = []
        locals_: list[Indexes] = []
        found: list[Codes] = []
        whole = self._whole(filter, codes, rows)
        if whole is not None:
            whole_rows = np.flatnonzero(whole)
            sizes_bytes += int(self._segments.numbers("file_size")[whole_rows].sum())
            lookups.append(self._whole_lookup(whole, whole_rows))
            rows = rows[whole[rows] == NONE]
            owners.append(whole_rows)
            counts.append(np.zeros(len(whole_rows), dtype=np.int64))
        for batch in self._blocks.batches(rows, filter.columns, self._load):
            verdicts = self._codes(filter, batch, codes)
            lookups.append(batch.zones)
            left = (verdicts != NONE).nonzero()[0]
            if not len(left):
                continue
            of = np.searchsorted(batch.starts, left, side="right") - 1
            mine = np.bincount(of, minlength=len(batch.rows))
            some = mine.nonzero()[0]
            owners.append(batch.rows[some])
            counts.append(mine[some])
            locals_.append(left - batch.starts[of])
            found.append(verdicts[left])
            sizes_bytes += int(batch.numbers("file_size")[left].sum())
        kept = self._kept(owners, counts, locals_, found, whole)
        return Tested(
            kept=kept,
            considered=considered,
            count=kept.block_count,
            bytes=sizes_bytes,
            reused=self._reused,
            lookups=tuple(lookups),
        )

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
        if self._verdicts is None or batch.chunk is None or len(batch) < self._blocks.grain.kept_blocks:
            return codes_of(filter.outcome(batch.zones, len(batch)), batch.numbers("row_count") > 0)
        name = (batch.chunk.key, filter.key)
        found = self._verdicts.get(name)
        if found is None:
            found = codes_of(filter.outcome(batch.zones, len(batch)), batch.numbers("row_count") > 0)
            self._verdicts.put(name, found, found.nbytes + _VERDICT_BYTES)
        else:
            self._reused += len(batch)
        return found

    def _kept(
        self,
        owners: list[Indexes],
        counts: list[Indexes],
        rows: list[Indexes],
        found: list[Codes],
        whole: Codes | None,
    ) -> KeptBlocks:
        """``owners``: segments, those that are whole first when there are any; ``counts``: their tested blocks."""
        segments, numbers = joined(owners, np.int64), joined(counts, np.int64)
        if whole is not None:
            order = np.argsort(segments)
            segments, numbers = segments[order], numbers[order]
        return KeptBlocks(
            segments,
            np.zeros(len(segments), dtype=np.uint8) if whole is None else whole[segments],
            np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(numbers)]),
            joined(rows, np.int64),
            joined(found, np.uint8),
            self._blocks.counts,
            self._load,
        )

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
        common: dict[Leaf, Zones] = {}
        complete: Mask = np.ones(count, dtype=bool)
        for leaf in filter.columns:
            zones = self._blocks.inner(leaf, chunks, self._load)
            if zones is None or any(chunk.column(leaf, self._load).zones.spans is not None for chunk in chunks):
                return np.zeros(count, dtype=bool)
            common[leaf] = zones
            complete &= (zones.flags & np.uint8(_COMPLETE)) == _COMPLETE
        outcome = filter.outcome(common.__getitem__, count)
        return filled(both(complete, both(outcome.true, either(outcome.false, outcome.null))), count)


def joined(parts: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Arrays one after another."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)


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
