"""What a prune finds: the blocks that it selects, and one value that goes from the evaluator to the writer of answers.

:class:`PruneResult` is made by :meth:`~lamella.snapshot.prune.pipeline.Pruning.run`. Each step behind it (readers'
reports, pages, residuals, signed URLs) gives the same type with more of it filled in, and
:mod:`~lamella.snapshot.prune.writer` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, cast

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.prune.outcome import NONE, VERDICT_NAMES
from lamella.snapshot.prune.paging import Position
from lamella.snapshot.wire import OrderBound, PruneAnswer, PrunedPages, Shape, Verdict

Codes = npt.NDArray[np.uint8]
Indexes = npt.NDArray[np.int64]
#: The verdicts as they travel, by code.
VERDICTS: Final = cast("tuple[Verdict, ...]", VERDICT_NAMES)
#: Opens the sidecar of a segment by the segment's row in the snapshot's layer.
OpenSegment = Callable[[int], Sidecar]


class PruneResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a prune.

    ``answer`` is all of the answer but the blocks: its ``report`` says how the result came about. ``selection`` has
    the blocks; None when segments alone were asked for. ``segments`` is the snapshot's layer of segments,
    ``open_segment`` opens their sidecars, and ``schema_id`` is the schema in force.

    ``order``: the sequence of the blocks in the answer, as positions in the selection; None for that very sequence.
    ``bounds`` go with the order; ``pages``, ``residual`` (positions in the answer's ``residuals``) and ``urls`` go with
    the selection. ``next_position``: where the next page begins; None when there is none. ``shape`` and
    ``column_ids`` (the leaves whose sizes are asked for, or None) say how the blocks are written. ``members``: which
    of "constants" and "deletes" blocks of the snapshot have, so that those of the selected blocks are written, too.
    ``vectors``: deletion vectors that are written with ``urls``, by location and offset.
    """

    answer: PruneAnswer
    selection: BlockSelection | None
    segments: Sidecar
    schema_id: int
    open_segment: OpenSegment
    shape: Shape = "records"
    column_ids: tuple[int, ...] | None = None
    order: Indexes | None = None
    bounds: tuple[OrderBound, ...] | None = None
    pages: tuple[PrunedPages, ...] | None = None
    residual: Indexes | None = None
    urls: tuple[str, ...] | None = None
    members: tuple[str, ...] = ()
    vectors: Mapping[tuple[str, int], bytes] = {}
    next_position: Position | None = None

    @property
    def block_count(self) -> int:
        """How many blocks are selected."""
        return 0 if self.selection is None else self.selection.block_count

    @property
    def is_plain(self) -> bool:
        """True when the answer is blocks in the snapshot's own sequence, with nothing but numbers beside each."""
        return (
            self.selection is not None
            and self.order is None
            and self.bounds is None
            and self.pages is None
            and self.urls is None
        )

    def parts(self) -> Iterator[SegmentSelection]:
        """The selected blocks, segment by segment; nothing when segments alone were asked for."""
        return iter(()) if self.selection is None else self.selection.parts(self.open_segment)

    def only(self, parts: Sequence[SegmentSelection]) -> BlockSelection:
        """A selection of some of the blocks."""
        return BlockSelection.of_parts(parts, self.segments.numbers("block_count"))


class SegmentSelection:
    """The selected blocks of one segment: its row in the snapshot's sidecar, their rows in its own, their verdicts.

    Its sidecar is opened when first asked for.
    """

    __slots__ = ("_sidecar", "codes", "rows", "segment")

    def __init__(self, segment: int, sidecar: Sidecar | OpenSegment, rows: Indexes, codes: Codes) -> None:
        self.segment = segment
        self.rows = rows
        self.codes = codes
        self._sidecar = sidecar

    @property
    def sidecar(self) -> Sidecar:
        """The segment's sidecar."""
        found = self._sidecar
        if not isinstance(found, Sidecar):
            found = self._sidecar = found(self.segment)
        return found

    def where(self, chosen: Mask) -> SegmentSelection:
        """Only those of the blocks."""
        return SegmentSelection(self.segment, self._sidecar, self.rows[chosen], self.codes[chosen])

    def verdicts(self) -> list[Verdict]:
        """The verdicts of the blocks, as they travel."""
        return [VERDICTS[code] for code in self.codes.tolist()]

    def numbers(self, name: str) -> Indexes:
        """A numeric column of the sidecar, for the selected blocks."""
        values: Indexes = self.sidecar.numbers(name)[self.rows]
        return values


def joined_numbers(parts: Sequence[SegmentSelection], name: str) -> Indexes:
    """A numeric column over all parts, one after another."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *(part.numbers(name) for part in parts)])


def totals(parts: Sequence[SegmentSelection]) -> tuple[int, int]:
    """How many blocks, and their file sizes in bytes, added up."""
    return sum(len(part.rows) for part in parts), int(joined_numbers(parts, "file_size").sum())


def chosen_parts(
    parts: Sequence[SegmentSelection], selected: Indexes
) -> tuple[tuple[SegmentSelection, ...], Indexes | None]:
    """Only the ``selected`` blocks: positions in the parts one after another, in any sequence.

    That sequence comes back as positions in the new parts, None when it is their own.
    """
    count = sum(len(part.rows) for part in parts)
    mask = np.zeros(count, dtype=bool)
    mask[selected] = True
    positions = np.cumsum(mask) - 1
    masks = np.split(mask, np.cumsum([len(part.rows) for part in parts])[:-1]) if parts else []
    left = tuple(part.where(mine) for part, mine in zip(parts, masks, strict=True))
    order = positions[selected]
    return left, None if bool((order == np.arange(len(order))).all()) else order


#: What a run, a segment and a tested block take in memory.
_RUN_BYTES: Final = 128
_SEGMENT_BYTES: Final = 17
_BLOCK_BYTES: Final = 9


class Runs(msgspec.Struct, frozen=True, gc=False):
    """Columns with one entry a run, in the snapshot's sequence.

    A run is ``count`` blocks from number ``first`` on, all with the verdict ``code``, of the segment that is at
    ``segments[ordinal]``; ``segments`` are rows of the snapshot's layer, ascending. ``segment_count``: how many of them
    have a run.
    """

    segments: Indexes
    ordinal: tuple[int, ...]
    first: tuple[int, ...]
    count: tuple[int, ...]
    code: tuple[int, ...]
    segment_count: int

    def __len__(self) -> int:
        return len(self.first)


class BlockRows(msgspec.Struct, frozen=True, gc=False):
    """Blocks one by one: those of the segment at position i are the ``rows`` from ``offsets[i]`` to ``offsets[i + 1]``.

    ``rows`` are their numbers in the segment, ascending; ``codes`` their verdicts.
    """

    offsets: Indexes
    rows: Indexes
    codes: Codes


class BlockSelection(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The selected blocks of a snapshot, in its sequence, ``block_count`` of them.

    ``segments``: rows of segments, ascending; one that was refined may have no blocks left. ``whole``: the verdict
    that all blocks of the segment have, or NONE where ``blocks`` say more: as runs, or one by one. ``block_counts``:
    blocks of each segment of the snapshot.

    It knows no sidecars. Thousands of selections are held in memory, and the garbage collector has to look at none:
    there are arrays and tuples of numbers, and no lists.
    """

    segments: Indexes
    whole: Codes
    block_counts: Indexes
    blocks: Runs | BlockRows
    block_count: int

    @classmethod
    def of_runs(cls, runs: Runs, block_counts: Indexes) -> BlockSelection:
        """Blocks that were found as runs, of segments each of which has one."""
        return cls(
            segments=runs.segments,
            whole=np.zeros(len(runs.segments), dtype=np.uint8),
            block_counts=block_counts,
            blocks=runs,
            block_count=sum(runs.count),
        )

    @classmethod
    def of_blocks(
        cls, segments: Indexes, whole: Codes, offsets: Indexes, rows: Indexes, codes: Codes, block_counts: Indexes
    ) -> BlockSelection:
        """Blocks that were tested one by one, and segments that are selected as a whole."""
        ordinals = whole.nonzero()[0]  # NONE is zero
        count = len(rows) + (int(block_counts[segments[ordinals]].sum()) if len(ordinals) else 0)
        return cls(
            segments=segments,
            whole=whole,
            block_counts=block_counts,
            blocks=BlockRows(offsets, rows, codes),
            block_count=count,
        )

    @classmethod
    def of_parts(cls, parts: Sequence[SegmentSelection], block_counts: Indexes) -> BlockSelection:
        """Blocks that are there segment by segment, in the snapshot's sequence; a segment may have none."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls.of_blocks(
            np.array([part.segment for part in parts], dtype=np.int64),
            np.zeros(len(parts), dtype=np.uint8),
            np.cumsum([0, *(len(part.rows) for part in parts)]),
            np.concatenate([nothing, *(part.rows for part in parts)]),
            np.concatenate([nothing.astype(np.uint8), *(part.codes for part in parts)]),
            block_counts,
        )

    def parts(self, open_segment: OpenSegment) -> Iterator[SegmentSelection]:
        """The blocks segment by segment; ``open_segment`` is called when a sidecar is asked for."""
        tested = self.tested()
        offsets = tested.offsets.tolist()
        for ordinal, (row, code) in enumerate(zip(self.segments.tolist(), self.whole.tolist(), strict=True)):
            if code != NONE:
                count = int(self.block_counts[row])
                yield SegmentSelection(row, open_segment, np.arange(count), np.full(count, code, dtype=np.uint8))
            else:
                mine = slice(offsets[ordinal], offsets[ordinal + 1])
                yield SegmentSelection(row, open_segment, tested.rows[mine], tested.codes[mine])

    def tested(self) -> BlockRows:
        """The blocks of the segments that are not selected as a whole, one by one."""
        blocks = self.blocks
        if isinstance(blocks, BlockRows):
            return blocks
        counts = np.bincount(blocks.ordinal, weights=blocks.count, minlength=len(self.segments))
        return BlockRows(
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            _numbers(blocks.first, blocks.count),
            np.repeat(np.array(blocks.code, dtype=np.uint8), blocks.count),
        )

    def runs(self) -> Runs:
        """The longest runs of all blocks; no sidecar is opened for them."""
        blocks = self.blocks
        if isinstance(blocks, Runs):
            return blocks
        return _few(self.segments, self.whole, blocks) or _listed(
            self.segments, _with_whole(self, _cut(blocks.offsets, blocks.rows, blocks.codes))
        )

    @property
    def size_bytes(self) -> int:
        """What it takes in memory at most, roughly; ``block_counts`` are the snapshot's."""
        blocks = self.blocks
        if isinstance(blocks, Runs):
            size_bytes = len(blocks) * _RUN_BYTES + self.block_count * _BLOCK_BYTES
        else:
            size_bytes = len(blocks.rows) * _BLOCK_BYTES
        return size_bytes + len(self.segments) * _SEGMENT_BYTES


#: So many segments and runs are gone through faster by Python than by NumPy, whose calls cost more than they do here.
_FEW: Final = 8


def _few(segments: Indexes, whole: Codes, tested: BlockRows) -> Runs | None:
    """The runs, when the blocks of each segment are neighbours, as those of a range over a sorted column are."""
    if len(segments) > _FEW or whole.any():
        return None
    offsets, rows, codes = tested.offsets.tolist(), tested.rows, tested.codes.tobytes()
    ordinals: list[int] = []
    firsts: list[int] = []
    counts: list[int] = []
    verdicts: list[int] = []
    for ordinal, (start, stop) in enumerate(pairwise(offsets)):
        if start == stop:
            continue
        first = int(rows[start])
        if int(rows[stop - 1]) - first != stop - start - 1:
            return None
        left = codes[start:stop]
        while left:
            if len(firsts) > 2 * _FEW:
                return None
            others = left.lstrip(left[:1])
            count = len(left) - len(others)
            ordinals.append(ordinal)
            firsts.append(first)
            counts.append(count)
            verdicts.append(left[0])
            first += count
            left = others
    return Runs(segments, tuple(ordinals), tuple(firsts), tuple(counts), tuple(verdicts), len(set(offsets)) - 1)


#: Runs as arrays: ordinal, first, count, code.
_Arrays = tuple[Indexes, Indexes, Indexes, Codes]


def _listed(segments: Indexes, arrays: _Arrays) -> Runs:
    ordinal, first, count, code = arrays
    used = 1 + int(np.count_nonzero(ordinal[1:] != ordinal[:-1])) if len(ordinal) else 0
    return Runs(
        segments, tuple(ordinal.tolist()), tuple(first.tolist()), tuple(count.tolist()), tuple(code.tolist()), used
    )


def _cut(offsets: Indexes, rows: Indexes, codes: Codes) -> _Arrays:
    """Cut blocks into runs: ``rows`` are their numbers, those of segment i from ``offsets[i]`` on, ascending."""
    count = len(rows)
    if not count:
        return rows, rows, rows, codes
    breaks = np.empty(count, dtype=bool)
    breaks[0] = True
    np.not_equal(rows[1:] - rows[:-1], 1, out=breaks[1:])
    breaks[1:] |= codes[1:] != codes[:-1]
    breaks[offsets[:-1][offsets[:-1] < count]] = True
    begins = breaks.nonzero()[0]
    ends = np.empty_like(begins)
    ends[:-1] = begins[1:]
    ends[-1] = count
    # Of segments without blocks here the last offset is the next one's, which the search finds.
    ordinal: Indexes = offsets.searchsorted(begins, side="right") - 1
    return ordinal, rows[begins], ends - begins, codes[begins]


def _with_whole(selection: BlockSelection, tested: _Arrays) -> _Arrays:
    """The runs with those of segments that are kept as a whole; one without blocks has none."""
    whole = selection.whole.nonzero()[0]  # NONE is zero
    if not len(whole):
        return tested
    counts = selection.block_counts[selection.segments[whole]]
    some = counts.nonzero()[0]
    whole = whole[some]
    ordinal = np.concatenate([whole, tested[0]])
    order = ordinal.argsort(kind="stable")  # within a segment they are in order
    return (
        ordinal[order],
        np.concatenate([np.zeros(len(some), dtype=np.int64), tested[1]])[order],
        np.concatenate([counts[some], tested[2]])[order],
        np.concatenate([selection.whole[whole], tested[3]])[order],
    )


class SelectionBuilder:
    """Builds a selection: blocks are added segment after segment, as they are found.

    They are kept as runs as long as all of them are added as such.
    """

    def __init__(self) -> None:
        self._segments: list[int] = []
        self._counts: list[int] = []
        self._runs: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])
        self._rows: list[Indexes] = []
        self._codes: list[Codes] = []
        self._sizes: list[npt.NDArray[Any]] = []

    def add_sizes(self, sizes: npt.NDArray[Any]) -> None:
        """Add the sizes of the files of runs."""
        self._sizes.append(sizes)

    def add_runs(self, segment: int, runs: Sequence[tuple[int, int, int]], start: int) -> None:
        """Add those of one segment, whose first block is number ``start``; their sizes are added apart.

        Each run has the number of its first block, of the one behind its last, and the verdict.
        """
        ordinals, firsts, counts, codes = self._runs
        ordinal, blocks = len(self._segments), 0
        for first, stop, code in runs:
            ordinals.append(ordinal)
            firsts.append(first - start)
            counts.append(stop - first)
            codes.append(code)
            blocks += stop - first
        self._segments.append(segment)
        self._counts.append(blocks)
        if self._rows:
            self._unroll()

    def _unroll(self) -> None:
        """Bring runs into the form of the others."""
        _, firsts, counts, codes = self._runs
        if firsts:
            self._rows.append(_numbers(firsts, counts))
            self._codes.append(np.repeat(np.array(codes, dtype=np.uint8), counts))
            self._runs = ([], [], [], [])

    def add_tested(self, segments: Indexes, starts: Indexes, codes: Codes, sizes: npt.NDArray[Any]) -> None:
        """Add those of all blocks of some segments that ``codes`` keep.

        ``starts``: where each segment's blocks begin, and the end; ``sizes``: those of all files.
        """
        self._unroll()
        selected = (codes != NONE).nonzero()[0]  # of bytes as they are it takes five times as long
        cuts = selected.searchsorted(starts)
        counts = cuts[1:] - cuts[:-1]
        some = counts.nonzero()[0]
        self._segments += segments[some].tolist()
        self._counts += counts[some].tolist()
        self._rows.append(selected - np.repeat(starts[:-1], counts))
        self._codes.append(codes[selected])
        self._sizes.append(sizes[selected])

    @property
    def size_bytes(self) -> int:
        """The sizes of the files added up."""
        return int(np.add.reduce(joined(self._sizes, np.int64)))

    def built(self, whole: Codes | None, block_counts: Indexes) -> BlockSelection:
        """All of them, with the segments that are kept as a ``whole`` (None: none are)."""
        segments = np.array(self._segments, dtype=np.int64)
        if whole is None and not self._rows:
            ordinal, first, count, code = self._runs
            runs = Runs(segments, tuple(ordinal), tuple(first), tuple(count), tuple(code), len(segments))
            return BlockSelection.of_runs(runs, block_counts)
        self._unroll()
        counts = np.array(self._counts, dtype=np.int64)
        if whole is not None:
            added = whole.nonzero()[0]
            segments = np.concatenate([added, segments])
            order = segments.argsort()
            segments = segments[order]
            counts = np.concatenate([np.zeros(len(added), dtype=np.int64), counts])[order]
        offsets = np.zeros(len(segments) + 1, dtype=np.int64)
        counts.cumsum(out=offsets[1:])
        return BlockSelection.of_blocks(
            segments,
            np.zeros(len(segments), dtype=np.uint8) if whole is None else whole[segments],
            offsets,
            joined(self._rows, np.int64),
            joined(self._codes, np.uint8),
            block_counts,
        )


def joined(parts: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Arrays one after another."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)


def _numbers(firsts: Sequence[int], counts: Sequence[int]) -> Indexes:
    """``count`` numbers from each ``first`` on, one run after another."""
    return joined([np.arange(first, first + count) for first, count in zip(firsts, counts, strict=True)], np.int64)
