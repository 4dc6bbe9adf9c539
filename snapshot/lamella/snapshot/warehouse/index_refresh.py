"""Fills and optimizes an index, some parts at a time.

A part is valid for its blocks whatever is committed in the meantime. So a refresh goes through *one* snapshot from one
:class:`RefreshPosition` to the next, and adds its parts to the snapshot that is current by then. No state is kept
between two calls: an abandoned refresh leaves the parts built so far. Blocks that are left out are before the position,
so that the same refresh does not try them again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np

from lamella.snapshot.errors import HashMismatch, InvalidRequest, ManifestError, ObjectNotFound
from lamella.snapshot.ids import Ids
from lamella.snapshot.index.building import PART_BLOCKS, SkippedBlock, Source, build_part, reads_filters
from lamella.snapshot.index.definition import term_in
from lamella.snapshot.index.directory import Directory, DirectoryEntries, Numbers, find_entries
from lamella.snapshot.index.part import Part, PartRef, pack, ref_of
from lamella.snapshot.index.registry import kind_named
from lamella.snapshot.manifest import Block, SegmentRef, Snapshot, SnapshotPointer, TableIndex
from lamella.snapshot.manifest.block_key import BlockKeys, are_among, no_keys
from lamella.snapshot.storage import Store, TableLayout, table_root
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import Coverage

#: Sidecars that are read at once.
_AT_ONCE: Final = 64


class IndexBlocks:
    """Compares blocks with directories. Every method that goes through a snapshot reads the sidecars of all of its
    segments, 16 bytes per block; sidecars that are not in memory are not cached."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests

    def directories(self, index: TableIndex) -> list[Directory]:
        """Returns the directories of an index, oldest first."""
        return [self._manifests.directory(ref.object) for ref in index.directories]

    def groups(self, snapshot: Snapshot) -> list[list[SegmentRef]]:
        """Groups the segments of a whole snapshot; each group has one part: full segments alone, small neighbours
        together. The grouping is deterministic.
        """
        groups: list[list[SegmentRef]] = []
        size = PART_BLOCKS
        for ref in self._manifests.refs(snapshot):
            count = ref.summary.block_count
            if size + count > PART_BLOCKS:
                groups.append([])
                size = 0
            groups[-1].append(ref)
            size += count
        return groups

    def keys(self, refs: Sequence[SegmentRef]) -> Iterator[BlockKeys]:
        """Yields the keys of the blocks of each of some segments."""
        for start in range(0, len(refs), _AT_ONCE):
            some = refs[start : start + _AT_ONCE]
            sidecars = self._manifests.sidecars([ref.sidecar for ref in some], keep=False)
            for ref, sidecar in zip(some, sidecars, strict=True):
                keys = sidecar.block_keys()
                yield self._manifests.block_keys(ref) if keys is None else keys

    def all_keys(self, pointer: SnapshotPointer) -> BlockKeys:
        """Returns the keys of all blocks of a snapshot."""
        refs = list(self._manifests.refs(self._manifests.snapshot(pointer)))
        return np.concatenate([no_keys(), *self.keys(refs)])

    def coverage(
        self,
        pointer: SnapshotPointer,
        indexes: Sequence[TableIndex],
        *,
        more: Directory | None = None,
        forget: BlockKeys | None = None,
    ) -> list[Coverage]:
        """Returns the coverage of a snapshot by each index. ``more``, ``forget``: as if these entries were added, and
        the other entries of these blocks removed."""
        keys = self.all_keys(pointer)
        return [self._covered(keys, self.directories(index), more, forget) for index in indexes]

    def gone(self, pointer: SnapshotPointer, index: TableIndex) -> BlockKeys:
        """Returns the blocks that an index has and a snapshot has not."""
        here = self.all_keys(pointer)
        return np.concatenate(
            [no_keys(), *(each.keys[~are_among(each.keys, here)] for each in self.directories(index))]
        )

    def _covered(
        self, keys: BlockKeys, directories: Sequence[Directory], more: Directory | None, forget: BlockKeys | None
    ) -> Coverage:
        if forget is not None and len(forget):
            directories = [each.where(~are_among(each.keys, forget)) for each in directories]
        if more is not None:
            directories = [*directories, more]
        found = find_entries(directories, keys)
        is_known = found.number >= 0
        indexed = int(is_known.sum())
        return Coverage(
            blocks=len(keys),
            indexed=indexed,
            not_indexed=len(keys) - indexed,
            stale=int((found.has_location & ~is_known).sum()),
            unused_entries=sum(len(each) for each in directories) - indexed,
        )


Mode = Literal["incremental", "full", "quick"]

#: Groups of segments that are processed together.
_LOOK_AHEAD: Final = 64

_SOURCES: Final[dict[Mode, Source]] = {"incremental": "either", "full": "values", "quick": "filters"}


class RefreshPosition(msgspec.Struct, frozen=True, array_like=True):
    """Where a refresh continues: the group of segments, the block in it, and the number of blocks still to be tried
    (None: not counted yet)."""

    group: int = 0
    row: int = 0
    remaining: int | None = None


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one call. The parts are stored, but no snapshot has them. ``following``: None if the refresh is
    complete."""

    parts: tuple[tuple[PartRef, BlockKeys], ...]
    left_out: tuple[SkippedBlock, ...]
    left_out_keys: BlockKeys
    row_count: int
    remaining: int
    following: RefreshPosition | None


class IndexRefresh:
    """Builds parts from the files of blocks."""

    def __init__(self, manifests: Manifests, blocks: IndexBlocks, store: Store, root: str, ids: Ids) -> None:
        self._manifests = manifests
        self._blocks = blocks
        self._store = store
        self._root = root
        self._ids = ids

    def run(
        self,
        pointer: SnapshotPointer,
        index: TableIndex,
        mode: Mode,
        start: RefreshPosition,
        *,
        max_blocks: int,
        workers: int = 1,
        until: Callable[[], bool] = lambda: False,
    ) -> Refreshed:
        """Build parts for blocks of a snapshot, starting at a position: at most ``max_blocks``, at least one if there
        is any; stops when ``until`` is true.

        ``index``: its current definition, not that of the snapshot. ``mode``: "full" builds every block from its
        values, including those that the index has; "incremental" builds blocks that it lacks, from filters in their
        files if its kind can; "quick" builds only blocks of which no rows need to be read.

        Raises:
            InvalidRequest: a column of the index was dropped, or has another type.
            StoreError: storage failed.
        """
        table = self._manifests.head(pointer)
        term = term_in(index, table)
        if term is None:
            raise InvalidRequest(f"{index.expression} has changed since the index was created", name=index.name)
        if mode == "quick" and not reads_filters(index, term):
            return _NOTHING
        layout = TableLayout(table_root(self._root, table.table_id))
        work = _Work(self._manifests, self._blocks, pointer, index, mode)
        remaining = work.count(start) if start.remaining is None else start.remaining
        parts: list[tuple[PartRef, BlockKeys]] = []
        left_out: list[SkippedBlock] = []
        left_out_keys = [no_keys()]
        tried = rows = 0
        at = start if work.rows(start) else work.following(start, [], 0)
        while at is not None and tried < max_blocks and not (tried and until()):
            wanted = work.rows(at)[: max_blocks - tried]
            some = _Until(work.blocks(at), wanted, until, is_first=not tried)
            built = build_part(self._store, index, table, some, source=_SOURCES[mode], workers=workers)
            tried += some.taken
            left_out += built.left_out
            left_out_keys.append(built.left_out_keys)
            if built.part is not None:
                ref = built.part.ref(layout.index_part(self._ids.new()))
                self._store.put(ref.location, built.part.data)
                parts.append((ref, built.part.keys))
                rows += built.part.row_count
            at = work.following(at, work.rows(at), some.taken)
        left = 0 if at is None else max(remaining - tried, 1)
        return Refreshed(
            parts=tuple(parts),
            left_out=tuple(left_out),
            left_out_keys=np.concatenate(left_out_keys),
            row_count=rows,
            remaining=left,
            following=None if at is None else msgspec.structs.replace(at, remaining=left),
        )


_NOTHING: Final = Refreshed(parts=(), left_out=(), left_out_keys=no_keys(), row_count=0, remaining=0, following=None)


class _Until:
    """Yields blocks until ``until`` is true, but at least the first of a call; ``taken``: the number yielded."""

    def __init__(
        self, blocks: Sequence[Block], rows: Sequence[int], until: Callable[[], bool], *, is_first: bool
    ) -> None:
        self._blocks = blocks
        self._rows = rows
        self._until = until
        self._is_first = is_first
        self.taken = 0

    def __iter__(self) -> Iterator[Block]:
        for row in self._rows:
            if not (self._is_first and not self.taken) and self._until():
                return
            self.taken += 1
            yield self._blocks[row]


class _Work:
    """The blocks of a snapshot that are to be built."""

    def __init__(
        self, manifests: Manifests, blocks: IndexBlocks, pointer: SnapshotPointer, index: TableIndex, mode: Mode
    ) -> None:
        self._manifests = manifests
        self._blocks = blocks
        self._groups = blocks.groups(manifests.snapshot(pointer))
        self._directories = [] if mode == "full" else blocks.directories(index)
        self._wanted: dict[int, list[int]] = {}

    def rows(self, position: RefreshPosition) -> list[int]:
        """Returns the blocks of the group of the position, from its row on, that are to be tried."""
        if position.group not in self._wanted:
            self._look(position.group)
        return [row for row in self._wanted.get(position.group, ()) if row >= position.row]

    def blocks(self, position: RefreshPosition) -> list[Block]:
        """Returns the blocks of the group of the position."""
        return [block for ref in self._groups[position.group] for block in self._manifests.segment(ref).blocks]

    def count(self, start: RefreshPosition) -> int:
        """Returns how many blocks are to be tried from a position on."""
        rest = range(start.group + 1, len(self._groups))
        return len(self.rows(start)) + sum(len(self.rows(RefreshPosition(group))) for group in rest)

    def following(self, position: RefreshPosition, wanted: list[int], taken: int) -> RefreshPosition | None:
        """Returns the position after the first ``taken`` of the wanted blocks; None at the end."""
        if taken < len(wanted):
            return RefreshPosition(position.group, wanted[taken])
        rest = range(position.group + 1, len(self._groups))
        return next((RefreshPosition(group) for group in rest if self.rows(RefreshPosition(group))), None)

    def _look(self, first: int) -> None:
        """Find the wanted blocks of some groups, so that their sidecars are read together."""
        some = self._groups[first : first + _LOOK_AHEAD]
        keys = list(self._blocks.keys([ref for group in some for ref in group]))
        for number, group in enumerate(some, first):
            mine, keys = keys[: len(group)], keys[len(group) :]
            found = find_entries(self._directories, np.concatenate([no_keys(), *mine]))
            self._wanted[number] = np.flatnonzero(found.number < 0).tolist()


# Optimizing an index: each part gets the blocks of one group of segments, without those that have left the table.
#
# A query reads whole groups of segments, so a part whose blocks are spread over many groups is opened for few of them.
# No block's file is read: the content of parts is copied. Parts that already fit are left alone.


class Regrouped(msgspec.Struct, frozen=True, kw_only=True):
    """New parts, stored but in no snapshot yet; the locations of the parts they were copied from; blocks in parts that
    cannot be read; and the number of groups still to be processed."""

    parts: tuple[tuple[PartRef, BlockKeys], ...]
    moved_from: frozenset[str]
    lost: BlockKeys
    remaining: int


class _Source(NamedTuple):
    """Blocks of one part: their rows there, and their keys."""

    part: Part
    rows: Numbers
    keys: BlockKeys


class Regrouping:
    """Splits and recombines parts."""

    def __init__(self, manifests: Manifests, blocks: IndexBlocks, store: Store, root: str, ids: Ids) -> None:
        self._manifests = manifests
        self._blocks = blocks
        self._store = store
        self._root = root
        self._ids = ids

    def run(
        self, pointer: SnapshotPointer, index: TableIndex, *, until: Callable[[], bool] = lambda: False
    ) -> Regrouped:
        """Make the parts of some groups of a snapshot's segments, at least one if there is any to be made; stops when
        ``until`` is true.

        Raises:
            InvalidRequest: the index's kind is not installed here.
            StoreError: storage failed.
        """
        layout = TableLayout(table_root(self._root, self._manifests.head(pointer).table_id))
        parts: list[tuple[PartRef, BlockKeys]] = []
        moved_from: set[str] = set()
        lost = [no_keys()]
        groups = list(self._scattered(pointer, index))
        done = 0
        for keys, found in groups:
            if (parts or len(lost) > 1) and until():
                break
            done += 1
            sources, unreadable = self._open(keys, found)
            lost += unreadable
            for made, of in self._made(layout, index, sources):
                parts.append(made)
                moved_from.update(of)
        return Regrouped(
            parts=tuple(parts),
            moved_from=frozenset(moved_from),
            lost=np.concatenate(lost),
            remaining=len(groups) - done,
        )

    def _scattered(self, pointer: SnapshotPointer, index: TableIndex) -> Iterator[tuple[BlockKeys, DirectoryEntries]]:
        """Yields the groups whose indexed blocks are not exactly those of one part: their keys, and where they are."""
        directories = self._blocks.directories(index)
        groups = self._blocks.groups(self._manifests.snapshot(pointer))
        keys = self._blocks.keys([ref for group in groups for ref in group])
        for group in groups:
            whole = np.concatenate([no_keys(), *(next(keys) for _ in group)])
            found = find_entries(directories, whole)
            known = found.number >= 0
            numbers = np.unique(found.number[known])
            if not len(numbers):
                continue
            if len(numbers) > 1 or found.parts[int(numbers[0])].block_count != int(known.sum()):
                yield whole[known], found._replace(number=found.number[known], row=found.row[known])

    def _open(self, keys: BlockKeys, found: DirectoryEntries) -> tuple[list[_Source], list[BlockKeys]]:
        sources: list[_Source] = []
        lost: list[BlockKeys] = []
        for number in np.unique(found.number).tolist():
            ref = found.parts[number]
            mine = np.flatnonzero(found.number == number)
            mine = mine[np.argsort(found.row[mine], kind="stable")]
            try:
                part = Part(ref, self._manifests.ranges_of(ref.location))
            except (ObjectNotFound, HashMismatch, ManifestError):
                lost.append(keys[mine])
            else:
                sources.append(_Source(part, found.row[mine], keys[mine]))
        return sources, lost

    def _made(
        self, layout: TableLayout, index: TableIndex, sources: list[_Source]
    ) -> Iterator[tuple[tuple[PartRef, BlockKeys], list[str]]]:
        """Yields new parts, and the locations each was copied from. Parts over different types are not combined."""
        kind = kind_named(index.kind)
        same_type: dict[bytes, list[_Source]] = defaultdict(list)
        for source in sources:
            header = source.part.header
            same_type[msgspec.json.encode((header.kind, header.dtype, header.options), order="sorted")].append(source)
        for group in same_type.values():
            header, rows = group[0].part.header, group[0].rows
            if len(group) == 1 and len(rows) == header.block_count:
                continue  # it contains nothing else
            sections, facts = kind.taken([(source.part, source.rows) for source in group])
            keys = np.concatenate([source.keys for source in group])
            data, tail = pack(header.kind, header.dtype, len(keys), sections, options=header.options, facts=facts)
            ref = ref_of(layout.index_part(self._ids.new()), data, tail, len(keys))
            self._store.put(ref.location, data)
            yield (ref, keys), [source.part.ref.location for source in group]
