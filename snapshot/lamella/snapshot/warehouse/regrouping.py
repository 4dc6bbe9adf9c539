"""Optimising an index: each part gets the blocks of one group of segments, and none that have left the table.

A query reads whole groups of segments, so a part whose blocks are spread over many is opened for few of them. No
block's file is read: what parts know is taken over. Parts that fit already are left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from lamella.snapshot.errors import HashMismatch, ManifestError, ObjectNotFound
from lamella.snapshot.ids import Ids
from lamella.snapshot.index.directory import Numbers, Placed, place
from lamella.snapshot.index.kind import kind_named
from lamella.snapshot.index.part import Part, PartRef, pack, ref_of
from lamella.snapshot.layout import Store, TableLayout, table_root
from lamella.snapshot.manifest import SnapshotPointer, TableIndex
from lamella.snapshot.manifest.block_key import BlockKeys, no_keys
from lamella.snapshot.warehouse.index_blocks import IndexBlocks
from lamella.snapshot.warehouse.manifests import Manifests


class Regrouped(msgspec.Struct, frozen=True, kw_only=True):
    """New parts, stored, that no snapshot has yet; the locations of those that they were taken from; blocks that are
    known by parts that cannot be read; and how many groups are still to be looked at."""

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
    """Takes parts apart and puts them together."""

    def __init__(self, manifests: Manifests, blocks: IndexBlocks, store: Store, root: str, ids: Ids) -> None:
        self._manifests = manifests
        self._blocks = blocks
        self._store = store
        self._root = root
        self._ids = ids

    def run(
        self, pointer: SnapshotPointer, index: TableIndex, *, until: Callable[[], bool] = lambda: False
    ) -> Regrouped:
        """Make the parts of some groups of a snapshot's segments, at least one if there is any to be made, and no
        further one once ``until`` is true.

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

    def _scattered(self, pointer: SnapshotPointer, index: TableIndex) -> Iterator[tuple[BlockKeys, Placed]]:
        """The groups whose known blocks are not all that one part has: their keys, and where they are."""
        directories = self._blocks.directories(index)
        groups = self._blocks.groups(self._manifests.snapshot(pointer))
        keys = self._blocks.keys([ref for group in groups for ref in group])
        for group in groups:
            whole = np.concatenate([no_keys(), *(next(keys) for _ in group)])
            found = place(directories, whole)
            known = found.number >= 0
            numbers = np.unique(found.number[known])
            if not len(numbers):
                continue
            if len(numbers) > 1 or found.parts[int(numbers[0])].block_count != int(known.sum()):
                yield whole[known], found._replace(number=found.number[known], row=found.row[known])

    def _open(self, keys: BlockKeys, found: Placed) -> tuple[list[_Source], list[BlockKeys]]:
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
        """New parts, and what each was taken from. Parts over different types are not put together."""
        kind = kind_named(index.kind)
        alike: dict[bytes, list[_Source]] = defaultdict(list)
        for source in sources:
            header = source.part.header
            alike[msgspec.json.encode((header.kind, header.dtype, header.options), order="sorted")].append(source)
        for group in alike.values():
            header, rows = group[0].part.header, group[0].rows
            if len(group) == 1 and len(rows) == header.block_count:
                continue  # it has nothing else
            sections, facts = kind.taken([(source.part, source.rows) for source in group])
            keys = np.concatenate([source.keys for source in group])
            data, tail = pack(header.kind, header.dtype, len(keys), sections, options=header.options, facts=facts)
            ref = ref_of(layout.index_part(self._ids.new()), data, tail, len(keys))
            self._store.put(ref.location, data)
            yield (ref, keys), [source.part.ref.location for source in group]
