"""All blocks of a snapshot in columns: sizes, levels, the zone maps of some columns; for looking at its layout.

Columns are put together chunk by chunk and kept, like those of prunes and with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.cluster.block_sizes import NOT_WRITTEN, Sizes
from lamella.snapshot.cluster.extent import Extents, extents
from lamella.snapshot.columnar import Companion, Zones
from lamella.snapshot.columnar.chunk import NEEDED, Chunk
from lamella.snapshot.columnar.companion import CLUSTERED
from lamella.snapshot.columnar.joined import joined_zones
from lamella.snapshot.columnar.masks import Mask
from lamella.snapshot.columnar.refs import CompanionRefs
from lamella.snapshot.commit.summaries import seen_blocks
from lamella.snapshot.expression.bound import BoundPredicate
from lamella.snapshot.manifest import ClusterKind, ObjectRef, decode_segment
from lamella.snapshot.manifest.block_key import Identity, identities
from lamella.snapshot.prune.evaluate import evaluate
from lamella.snapshot.prune.layers import Layers
from lamella.snapshot.prune.verdict import NONE, verdicts
from lamella.snapshot.schema import Leaf
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.warehouse.manifests import Manifests

Rows = npt.NDArray[np.int64]
_NUMBERS: Final = (*NEEDED, *CLUSTERED)


class LayoutScan:
    """The blocks of a snapshot, one after another in its order; some 40 bytes of each, and those of the zone maps.

    ``leaves``: columns that will be asked for; others are read when they are.
    """

    def __init__(self, manifests: Manifests, layers: Layers, leaves: Sequence[Leaf] = ()) -> None:
        self._manifests = manifests
        self._layers = layers
        self.head = layers.head
        counts = layers.segments.numbers("block_count")
        #: For each block the number of its segment.
        self.segment: Rows = np.repeat(np.arange(len(counts)), counts)
        self._starts = np.cumsum(counts) - counts
        columns: list[list[Rows]] = [[np.zeros(0, dtype=np.int64)] for _ in _NUMBERS]
        for chunk in self._chunks():
            chunk.prepare(leaves, self._load, _NUMBERS)
            for found, name in zip(columns, _NUMBERS, strict=True):
                found.append(chunk.numbers(name, self._load).astype(np.int64))
        self.row_count, self.file_size, self.key_id, self._levels = (np.concatenate(each) for each in columns)
        self._zones: dict[Leaf, Zones] = {}

    def __len__(self) -> int:
        return len(self.row_count)

    @cached_property
    def key_id_in_force(self) -> int:
        """The id of the table's cluster key; -1: it has none."""
        key = self.head.cluster_key
        return -1 if key is None else key.key_id

    def sizes(self, *, of_own_key: bool = True) -> Sizes:
        """Sizes and levels; ``of_own_key`` False: as for a key that no block was written for."""
        is_own = (self.key_id == self.key_id_in_force) & (self.key_id >= 0) & of_own_key
        return Sizes(self.row_count, self.file_size, np.where(is_own, self._levels, NOT_WRITTEN))

    def zones(self, leaf: Leaf) -> Zones:
        """The zone maps of a column."""
        found = self._zones.get(leaf)
        if found is None:
            parts = [chunk.column(leaf, self._load).zones for chunk in self._chunks()]
            nothing = Zones(None, None, np.zeros(0, dtype=np.uint8))
            found = self._zones[leaf] = joined_zones(leaf.dtype, parts) if parts else nothing
        return found

    def extents(self, kind: ClusterKind, leaves: Sequence[Leaf]) -> Extents:
        """Where the blocks lie on a key."""
        return extents(kind, [self.zones(leaf) for leaf in leaves])

    def may_match(self, node: BoundPredicate) -> Mask:
        """Blocks that may hold a row for which the filter is true, by their bounds."""
        return np.asarray(verdicts(evaluate(node, self.zones, len(self)), self.row_count) != NONE)

    def identities(self, blocks: Rows) -> list[Identity]:
        """What tells blocks (their numbers here) from others, in the order asked; read from the manifests anew."""
        manifests = CompanionRefs(self._layers.segments, of="manifest")
        found: dict[int, Identity] = {}
        for segment in np.unique(self.segment[blocks]).tolist():
            ref: ObjectRef = manifests(segment)
            mine = identities(self._manifests.read(ref), ref.location)
            start = int(self._starts[segment])
            for number in blocks[self.segment[blocks] == segment].tolist():
                found[number] = mine[number - start]
        return [found[number] for number in blocks.tolist()]

    def statistics(self, blocks: Rows, leaves: Sequence[Leaf]) -> list[dict[int, ColumnStats]]:
        """What manifests say of some columns of blocks (their numbers here), in the order asked."""
        manifests = CompanionRefs(self._layers.segments, of="manifest")
        found: dict[int, dict[int, ColumnStats]] = {}
        for segment in np.unique(self.segment[blocks]).tolist():
            ref: ObjectRef = manifests(segment)
            whole = decode_segment(self._manifests.read(ref), location=ref.location)
            seen = seen_blocks(self.head, whole.blocks)
            start = int(self._starts[segment])
            for number in blocks[self.segment[blocks] == segment].tolist():
                stats = seen[number - start].col_stats
                found[number] = {leaf.id: stats[leaf.id] for leaf in leaves if leaf.id in stats}
        return [found[number] for number in blocks.tolist()]

    def levels(self, blocks: Rows) -> list[int]:
        """The level of each of some blocks, for whatever key it was written."""
        return [int(each) for each in self._levels[blocks]]

    def _chunks(self) -> Sequence[Chunk]:
        blocks = self._layers.blocks
        if blocks is None:
            raise AssertionError("layers of a snapshot have columns over many segments")
        return blocks.chunks

    def _load(self, rows: Sequence[int], *, keep: bool = True) -> list[Companion]:
        refs = [self._layers.companion(row) for row in rows]
        return self._manifests.many_blocks(self.head, refs, keep=keep)
