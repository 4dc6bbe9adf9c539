"""Filling an index: parts for blocks that it does not know, some at a time, group of segments by group.

What is built is true of its blocks whatever is committed meanwhile, so a refresh goes through *one* snapshot from a
:class:`Place` to the next, and its parts are added to whichever snapshot is current by then. Between two calls nothing
is held anywhere: a refresh that is not gone on with leaves what it built so far. Blocks that are left out are behind
the place, so that they are not tried again by the same refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

import msgspec
import numpy as np

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.ids import Ids
from lamella.snapshot.index.building import LeftOut, Source, build_part, reads_filters
from lamella.snapshot.index.definition import term_in
from lamella.snapshot.index.directory import place
from lamella.snapshot.index.part import PartRef
from lamella.snapshot.layout import Store, TableLayout, table_root
from lamella.snapshot.manifest import Block, SnapshotPointer, TableIndex
from lamella.snapshot.manifest.block_key import BlockKeys, no_keys
from lamella.snapshot.warehouse.index_blocks import IndexBlocks
from lamella.snapshot.warehouse.manifests import Manifests

Mode = Literal["incremental", "full", "quick"]

#: Groups of segments that are looked at together.
_LOOK_AHEAD: Final = 64

_SOURCES: Final[dict[Mode, Source]] = {"incremental": "either", "full": "values", "quick": "filters"}


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a refresh goes on: the group of segments, the block in it, and how many blocks are still to be tried
    (None: not counted yet)."""

    group: int = 0
    row: int = 0
    remaining: int | None = None


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """What one call built. The parts are stored, and no snapshot has them. ``following``: None when that was all."""

    parts: tuple[tuple[PartRef, BlockKeys], ...]
    left_out: tuple[LeftOut, ...]
    left_out_keys: BlockKeys
    row_count: int
    remaining: int
    following: Place | None


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
        start: Place,
        *,
        max_blocks: int,
        workers: int = 1,
        until: Callable[[], bool] = lambda: False,
    ) -> Refreshed:
        """Build parts for blocks of a snapshot, from a place on: at most ``max_blocks``, at least one if there is any,
        and no further one once ``until`` is true.

        ``index``: as it is now, not as it was in that snapshot. ``mode``: "full" builds every block from its values,
        also those that the index knows; "incremental" those that it does not know, from filters in their files where
        its kind can; "quick" only those that need no row to be read.

        Raises:
            InvalidRequest: a column of the index is gone, or has another type.
            StoreError: storage failed.
        """
        table = self._manifests.head(pointer)
        term = term_in(index, table)
        if term is None:
            raise InvalidRequest(f"{index.expression} is not what it was when the index was made", name=index.name)
        if mode == "quick" and not reads_filters(index, term):
            return _NOTHING
        layout = TableLayout(table_root(self._root, table.table_id))
        work = _Work(self._manifests, self._blocks, pointer, index, mode)
        remaining = work.count(start) if start.remaining is None else start.remaining
        parts: list[tuple[PartRef, BlockKeys]] = []
        left_out: list[LeftOut] = []
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
    """Some blocks one after another, until time is up; ``taken``: how many were. The first of a call always is."""

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

    def rows(self, place: Place) -> list[int]:
        """The blocks of the place's group, from its row on, that are to be tried."""
        if place.group not in self._wanted:
            self._look(place.group)
        return [row for row in self._wanted.get(place.group, ()) if row >= place.row]

    def blocks(self, place: Place) -> list[Block]:
        """The blocks of the place's group."""
        return [block for ref in self._groups[place.group] for block in self._manifests.segment(ref).blocks]

    def count(self, start: Place) -> int:
        """How many blocks are to be tried from a place on."""
        rest = range(start.group + 1, len(self._groups))
        return len(self.rows(start)) + sum(len(self.rows(Place(group))) for group in rest)

    def following(self, place: Place, wanted: list[int], taken: int) -> Place | None:
        """The place behind the first ``taken`` of the wanted blocks; None: there is no more to be tried."""
        if taken < len(wanted):
            return Place(place.group, wanted[taken])
        rest = range(place.group + 1, len(self._groups))
        return next((Place(group) for group in rest if self.rows(Place(group))), None)

    def _look(self, first: int) -> None:
        """Find the wanted blocks of some groups, so that their companions are read together."""
        some = self._groups[first : first + _LOOK_AHEAD]
        keys = list(self._blocks.keys([ref for group in some for ref in group]))
        for number, group in enumerate(some, first):
            mine, keys = keys[: len(group)], keys[len(group) :]
            found = place(self._directories, np.concatenate([no_keys(), *mine]))
            self._wanted[number] = np.flatnonzero(found.number < 0).tolist()
