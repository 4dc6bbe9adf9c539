"""The blocks that a prune selects, as arrays and as runs of neighbours with one verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, overload

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.columnar.chunk import Load
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.prune.outcome import NONE

Codes = npt.NDArray[np.uint8]
Indexes = npt.NDArray[np.int64]


class Kept:
    """The kept blocks of one segment: its row in the snapshot's sidecar, their rows in its own, their verdicts.

    Its sidecar is opened when first asked for.
    """

    __slots__ = ("_sidecar", "codes", "rows", "segment")

    def __init__(self, segment: int, sidecar: Sidecar | Callable[[int], Sidecar], rows: Indexes, codes: Codes) -> None:
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

    def where(self, chosen: Mask) -> Kept:
        """Only those of the kept blocks."""
        return Kept(self.segment, self._sidecar, self.rows[chosen], self.codes[chosen])

    def numbers(self, name: str) -> Indexes:
        """A numeric column of the sidecar, for the kept blocks."""
        values: Indexes = self.sidecar.numbers(name)[self.rows]
        return values


def joined_numbers(parts: Sequence[Kept], name: str) -> Indexes:
    """A numeric column over all parts, one after another."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *(part.numbers(name) for part in parts)])


def totals(parts: Sequence[Kept]) -> tuple[int, int]:
    """How many blocks, and their file sizes in bytes, added up."""
    return sum(len(part.rows) for part in parts), int(joined_numbers(parts, "file_size").sum())


def chosen_parts(parts: Sequence[Kept], selected: Indexes) -> tuple[tuple[Kept, ...], Indexes | None]:
    """Only the ``selected`` blocks: places in the parts one after another, in any sequence.

    That sequence comes back as places in the new parts, None when it is their own.
    """
    count = sum(len(part.rows) for part in parts)
    mask = np.zeros(count, dtype=bool)
    mask[selected] = True
    places = np.cumsum(mask) - 1
    masks = np.split(mask, np.cumsum([len(part.rows) for part in parts])[:-1]) if parts else []
    left = tuple(part.where(mine) for part, mine in zip(parts, masks, strict=True))
    order = places[selected]
    return left, None if bool((order == np.arange(len(order))).all()) else order


#: So many segments and runs are gone through faster by Python than by NumPy, whose calls cost more than they do here.
_FEW: Final = 8


def runs_of(parts: Sequence[Kept]) -> Runs:
    """The longest runs of all parts; no sidecar is opened for them."""
    if isinstance(parts, KeptBlocks):
        found = parts.runs or _few(parts)
        if found is None:
            found = _listed(parts.segments, _with_whole(parts, _cut(parts.offsets, parts.rows, parts.codes)))
        return found
    nothing = np.zeros(0, dtype=np.int64)
    cut = _cut(
        np.cumsum([0, *(len(part.rows) for part in parts)]),
        np.concatenate([nothing, *(part.rows for part in parts)]),
        np.concatenate([nothing.astype(np.uint8), *(part.codes for part in parts)]),
    )
    return _listed(np.array([part.segment for part in parts], dtype=np.int64), cut)


def _few(parts: KeptBlocks) -> Runs | None:
    """The runs, when the blocks of each segment are neighbours, as those of a range over a sorted column are."""
    if len(parts.segments) > _FEW or parts.whole.any():
        return None
    offsets, rows, codes = parts.offsets.tolist(), parts.rows, parts.codes.tobytes()
    found = Runs(parts.segments, [], [], [], [], len(set(offsets)) - 1)
    for place, (start, stop) in enumerate(pairwise(offsets)):
        if start == stop:
            continue
        first = int(rows[start])
        if int(rows[stop - 1]) - first != stop - start - 1:
            return None
        left = codes[start:stop]
        while left:
            if len(found) > 2 * _FEW:
                return None
            others = left.lstrip(left[:1])
            count = len(left) - len(others)
            found.place.append(place)
            found.first.append(first)
            found.count.append(count)
            found.code.append(left[0])
            first += count
            left = others
    return found


#: Runs as arrays: place, first, count, code.
_Arrays = tuple[Indexes, Indexes, Indexes, Codes]


def _listed(segments: Indexes, arrays: _Arrays) -> Runs:
    place, first, count, code = arrays
    used = 1 + int(np.count_nonzero(place[1:] != place[:-1])) if len(place) else 0
    return Runs(segments, place.tolist(), first.tolist(), count.tolist(), code.tolist(), used)


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
    place: Indexes = offsets.searchsorted(begins, side="right") - 1
    return place, rows[begins], ends - begins, codes[begins]


def _with_whole(parts: KeptBlocks, tested: _Arrays) -> _Arrays:
    """The runs with those of segments that are kept as a whole; one without blocks has none."""
    places = parts.whole.nonzero()[0]  # NONE is zero
    if not len(places):
        return tested
    counts = parts.block_counts[parts.segments[places]]
    some = counts.nonzero()[0]
    places = places[some]
    place = np.concatenate([places, tested[0]])
    order = place.argsort(kind="stable")  # within a segment they are in order
    return (
        place[order],
        np.concatenate([np.zeros(len(some), dtype=np.int64), tested[1]])[order],
        np.concatenate([counts[some], tested[2]])[order],
        np.concatenate([parts.whole[places], tested[3]])[order],
    )


#: What a run, a segment and a tested block take in memory.
_RUN_BYTES: Final = 128
_SEGMENT_BYTES: Final = 17
_BLOCK_BYTES: Final = 9


class Runs(msgspec.Struct, frozen=True):
    """Lists with one entry a run, in the snapshot's sequence.

    A run is ``count`` blocks from number ``first`` on, all with the verdict ``code``, of the segment that is at
    ``segments[place]``; ``segments`` are rows of the snapshot's layer, ascending. ``segment_count``: how many of them
    have a run.
    """

    segments: Indexes
    place: list[int]
    first: list[int]
    count: list[int]
    code: list[int]
    segment_count: int

    def __len__(self) -> int:
        return len(self.first)


class KeptArrays(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Kept blocks as they are remembered: as :class:`KeptBlocks`, without what opens sidecars.

    Thousands of them are held, and the garbage collector has to look at none: there are arrays and tuples of numbers,
    and no lists. ``runs``: place, first, count and code of all runs, and how many segments have one.
    """

    segments: Indexes
    whole: Codes
    block_counts: Indexes
    runs: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int] | None = None
    offsets: Indexes | None = None
    rows: Indexes | None = None
    codes: Codes | None = None

    def opened_by(self, load: Load) -> KeptBlocks:
        """The blocks, whose sidecars ``load`` opens."""
        if self.runs is not None:
            place, first, count, code, segment_count = self.runs
            runs = Runs(self.segments, list(place), list(first), list(count), list(code), segment_count)
            return KeptBlocks.of(runs, self.block_counts, load)
        assert self.offsets is not None and self.rows is not None and self.codes is not None  # noqa: S101, PT018
        return KeptBlocks(self.segments, self.whole, self.offsets, self.rows, self.codes, self.block_counts, load)


class KeptBlocks(Sequence[Kept]):
    """The kept blocks, segment by segment.

    ``segments``: rows of segments that have any, ascending. ``whole``: the verdict that all blocks of the segment
    have, or NONE where ``rows`` and ``codes`` say more: those from ``offsets[i]`` to before ``offsets[i + 1]`` are the
    kept blocks of segment i. ``block_counts``: blocks of each segment of the snapshot.
    """

    #: The same as runs, where they were found as such; then the arrays are made when they are first asked for.
    runs: Runs | None = None

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

    @classmethod
    def of(cls, runs: Runs, block_counts: Indexes, load: Load) -> KeptBlocks:
        """Blocks that were found as runs, of segments each of which has one."""
        made = cls.__new__(cls)
        made.runs = runs
        made.segments, made.whole = runs.segments, np.zeros(len(runs.segments), dtype=np.uint8)
        made.block_counts, made._load = block_counts, load
        return made

    @cached_property
    def offsets(self) -> Indexes:
        """Where the tested blocks of each segment begin, and the end."""
        assert self.runs is not None  # noqa: S101  # else they are given
        counts = np.bincount(self.runs.place, weights=self.runs.count, minlength=len(self.segments))
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    @cached_property
    def rows(self) -> Indexes:
        """The tested blocks' numbers in their segments."""
        assert self.runs is not None  # noqa: S101  # else they are given
        return _numbers(self.runs.first, self.runs.count)

    @cached_property
    def codes(self) -> Codes:
        """Their verdicts."""
        assert self.runs is not None  # noqa: S101  # else they are given
        return np.repeat(np.array(self.runs.code, dtype=np.uint8), self.runs.count)

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

    def arrays(self) -> KeptArrays:
        """What is to be remembered of them."""
        if self.runs is None:
            return KeptArrays(
                segments=self.segments,
                whole=self.whole,
                block_counts=self.block_counts,
                offsets=self.offsets,
                rows=self.rows,
                codes=self.codes,
            )
        runs = self.runs
        columns = (tuple(runs.place), tuple(runs.first), tuple(runs.count), tuple(runs.code), runs.segment_count)
        return KeptArrays(segments=self.segments, whole=self.whole, block_counts=self.block_counts, runs=columns)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory at most, roughly; ``block_counts`` are the snapshot's."""
        runs = 0 if self.runs is None else len(self.runs) * _RUN_BYTES
        return runs + len(self.segments) * _SEGMENT_BYTES + self.tested_count * _BLOCK_BYTES

    def _open(self, row: int) -> Sidecar:
        return self._load([row])[0]

    @property
    def tested_count(self) -> int:
        """How many blocks in ``rows``."""
        return len(self.rows) if self.runs is None else sum(self.runs.count)

    @cached_property
    def block_count(self) -> int:
        """How many blocks."""
        whole = self.whole.nonzero()[0]  # NONE is zero
        return self.tested_count + (int(self.block_counts[self.segments[whole]].sum()) if len(whole) else 0)


class Survivors:
    """Kept blocks, segment after segment as they are found.

    They are kept as runs as long as all of them are added as such.
    """

    def __init__(self) -> None:
        self._segments: list[int] = []
        self._counts: list[int] = []
        self._runs: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])
        self._rows: list[Indexes] = []
        self._codes: list[Codes] = []
        self._sizes: list[npt.NDArray[Any]] = []

    def add_runs(self, segment: int, runs: Sequence[tuple[int, int, int]], start: int, sizes: npt.NDArray[Any]) -> None:
        """Add those of one segment, whose first block is number ``start``.

        Each run has the number of its first block, of the one behind its last, and the verdict; ``sizes`` are those of
        all files, by these numbers.
        """
        places, firsts, counts, codes = self._runs
        place, blocks = len(self._segments), 0
        for first, stop, code in runs:
            places.append(place)
            firsts.append(first - start)
            counts.append(stop - first)
            codes.append(code)
            blocks += stop - first
            self._sizes.append(sizes[first:stop])
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
        places = (codes != NONE).nonzero()[0]  # of bytes as they are it takes five times as long
        cuts = places.searchsorted(starts)
        counts = cuts[1:] - cuts[:-1]
        some = counts.nonzero()[0]
        self._segments += segments[some].tolist()
        self._counts += counts[some].tolist()
        self._rows.append(places - np.repeat(starts[:-1], counts))
        self._codes.append(codes[places])
        self._sizes.append(sizes[places])

    @property
    def size_bytes(self) -> int:
        """The sizes of the files added up."""
        return int(np.add.reduce(joined(self._sizes, np.int64)))

    def kept(self, whole: Codes | None, block_counts: Indexes, load: Load) -> KeptBlocks:
        """All of them, with the segments that are kept as a ``whole`` (None: none are)."""
        segments = np.array(self._segments, dtype=np.int64)
        if whole is None and not self._rows:
            return KeptBlocks.of(Runs(segments, *self._runs, len(segments)), block_counts, load)
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
        return KeptBlocks(
            segments,
            np.zeros(len(segments), dtype=np.uint8) if whole is None else whole[segments],
            offsets,
            joined(self._rows, np.int64),
            joined(self._codes, np.uint8),
            block_counts,
            load,
        )


def joined(parts: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Arrays one after another."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)


def _numbers(firsts: Sequence[int], counts: Sequence[int]) -> Indexes:
    """``count`` numbers from each ``first`` on, one run after another."""
    return joined([np.arange(first, first + count) for first, count in zip(firsts, counts, strict=True)], np.int64)
