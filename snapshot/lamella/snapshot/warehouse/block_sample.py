"""Samples the blocks of a snapshot with their counts from manifests, and their rows."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Sidecar, Zones
from lamella.snapshot.columnar.sidecar import SidecarRefs, joined_zones
from lamella.snapshot.concurrency import check_deadline
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression.bound import BoundPredicate, BoundTerm
from lamella.snapshot.index import Kind, Part, Probe
from lamella.snapshot.index.building import Built, own_footer, term_values
from lamella.snapshot.index.definition import term_key
from lamella.snapshot.index.directory import Directory, Numbers
from lamella.snapshot.manifest import Block, SegmentRef, SnapshotPointer, TableIndex
from lamella.snapshot.manifest.block_key import BlockKeys
from lamella.snapshot.parquet.file_values import Unreadable
from lamella.snapshot.prune.evaluate import evaluate
from lamella.snapshot.prune.indexes import IndexLayer, OpenIndex
from lamella.snapshot.prune.outcome import verdicts
from lamella.snapshot.prune.result import Codes, SegmentSelection
from lamella.snapshot.schema import Leaf
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import IndexUse
from lamella.snapshot.workload.distribution import SampledColumn, ValueDistribution, from_vectors, value_distribution_of

Rows = npt.NDArray[np.int64]


class SampledBlocks(msgspec.Struct, frozen=True, eq=False):
    """Columns of the blocks that could be read, in order; ``blocks``: which blocks these are."""

    blocks: Any
    columns: Sequence[Mapping[Leaf, SampledColumn]]


def read_columns(store: Store, scene: BlockSample, chosen: Rows, leaves: Sequence[Leaf]) -> SampledBlocks:
    """Reads columns of blocks; blocks that cannot be read are left out. Raises StoreError, and Unavailable after the
    deadline."""
    blocks: list[int] = []
    columns: list[Mapping[Leaf, SampledColumn]] = []
    for number in chosen.tolist():
        check_deadline()
        block = scene.block(number)
        try:
            footer = own_footer(store, block)
            columns.append(
                {leaf: from_vectors(list(term_values(store, scene.head, leaf, block, footer))) for leaf in leaves}
            )
        except Unreadable:
            continue
        except LamellaError as error:
            if error.code == "store_error":
                raise
            continue
        blocks.append(number)
    return SampledBlocks(np.array(blocks, dtype=np.int64), columns)


class _MeasuredPart:
    """An index part in memory."""

    read_bytes = 0

    def __init__(self, kind: Kind, built: Built) -> None:
        part = built.part
        if part is None:
            raise AssertionError("a part has blocks")
        data = part.data

        def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            return [data[start : start + length] for start, length in ranges]

        self._probe = kind.probe(Part(part.ref("memory"), fetch))

    def probe(self) -> Probe:
        """Returns the probe of the part."""
        return self._probe


class MeasuredIndex:
    """An index over a sample of blocks, probed like any other; blocks that it lacks are kept."""

    def __init__(self, kind: Kind, index: TableIndex, term: BoundTerm, built: Built) -> None:
        self.name = index.name
        self.kind = kind
        self.expression = index.expression
        self.options: Mapping[str, Any] = index.options
        self.bytes_per_block = 0.0
        self.key: Hashable = term_key(term)
        self._parts = [] if built.part is None else [_MeasuredPart(kind, built)]
        self._directory = None
        if built.part is not None:
            self._directory = Directory.of([(built.part.ref("memory"), built.part.keys)])

    def locate(self, keys: BlockKeys) -> tuple[Sequence[_MeasuredPart], Numbers, Numbers]:
        """Returns the part, and the indexes of blocks in it."""
        if self._directory is None:
            return [], np.full(len(keys), -1, dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
        part, row = self._directory.find(keys)
        return self._parts, part, row


#: Maximum number of blocks; of a larger table, segments are sampled evenly.
MAX_BLOCKS: Final = 100_000
#: Number of segments whose manifests are read for the distinct counts of blocks.
_COUNTED_SEGMENTS: Final = 24
_AT_ONCE: Final = 64


class BlockSample:
    """The blocks with rows of a snapshot, or of segments sampled from it; one after another."""

    def __init__(self, manifests: Manifests, pointer: SnapshotPointer, *, max_blocks: int = MAX_BLOCKS) -> None:
        self._manifests = manifests
        self._pointer = pointer
        self.head = manifests.head(pointer)
        layer = manifests.layer(pointer)
        counts = layer.numbers("block_count")
        rows = np.arange(len(counts))
        while len(rows) > 1 and int(counts[rows].sum()) > max_blocks:
            rows = rows[::2]
        #: Rows of the segments in the snapshot's layer.
        self.segment_rows = rows
        self.segments = layer
        refs = SidecarRefs(layer)
        self._sidecars: list[Sidecar] = []
        for start in range(0, len(rows), _AT_ONCE):
            some = [refs(int(row)) for row in rows[start : start + _AT_ONCE]]
            self._sidecars += manifests.many_blocks(self.head, some, keep=False)
        self._has_rows = self._joined("row_count") > 0
        #: For each block the index of its segment in ``segment_rows``, and its row there.
        self.segment = np.repeat(np.arange(len(rows)), [len(each) for each in self._sidecars])[self._has_rows]
        starts = np.concatenate([[0], np.cumsum([len(each) for each in self._sidecars])])
        self.row = np.flatnonzero(self._has_rows) - starts[self.segment]
        self.row_count: npt.NDArray[Any] = self._joined("row_count")[self._has_rows]
        self.file_size: npt.NDArray[Any] = self._joined("file_size")[self._has_rows]
        self._zones: dict[Leaf, Zones] = {}
        self._outlooks: dict[tuple[Leaf, str], ValueDistribution] = {}

    def __len__(self) -> int:
        return len(self.row_count)

    @property
    def blocks_total(self) -> int:
        """Returns the number of blocks of the snapshot."""
        return self.head.summary.block_count

    def zones(self, leaf: Leaf) -> Zones:
        """Returns the zone maps of a column."""
        found = self._zones.get(leaf)
        if found is None:
            self._manifests.read_columns(self._sidecars, [leaf.id])
            parts = [each.zones(leaf.id, leaf.dtype) for each in self._sidecars]
            if parts:
                whole = joined_zones(leaf.dtype, parts)
                found = whole.take(np.flatnonzero(self._has_rows))
                if whole.spans is not None:
                    found.spans = whole.spans.take(np.flatnonzero(self._has_rows))
            else:
                found = Zones(None, None, np.zeros(0, dtype=np.uint8))
            self._zones[leaf] = found
        return found

    def distribution_by_block(self, leaf: Leaf) -> ValueDistribution:
        """Returns the expected selectivity of look-ups in a column, block by block."""
        found = self._outlooks.get((leaf, "block"))
        if found is None:
            distinct = np.full(len(self), np.nan)
            total = self._total(leaf)
            if total is not None:
                for position in self._counted_segments:
                    mine = self.segment == position
                    counts = [
                        np.nan if stats is None or stats.distinct_of_values is None else stats.distinct_of_values
                        for stats in (block.col_stats.get(leaf.id) for block in self._manifest(int(position)))
                    ]
                    distinct[mine] = np.array(counts)[self.row[mine]]
            found = value_distribution_of("block", self.zones(leaf), leaf.dtype, self._values(leaf), distinct, total)
            self._outlooks[leaf, "block"] = found
        return found

    def distribution_by_segment(self, leaf: Leaf) -> ValueDistribution:
        """Returns the expected selectivity of look-ups in a column, segment by segment."""
        found = self._outlooks.get((leaf, "segment"))
        if found is None:
            rows = self.segments.numbers("row_count")
            filled = np.flatnonzero(rows > 0)
            zones = self.segments.zones(leaf.id, leaf.dtype).take(filled)
            counts = []
            for row in filled.tolist():
                stats = self.refs[row].summary.col_stats.get(leaf.id)
                counts.append(np.nan if stats is None or stats.distinct_of_values is None else stats.distinct_of_values)
            nulls = np.maximum(self.segments.null_counts(leaf.id, leaf.dtype)[filled], 0)
            values = (rows[filled] - nulls).astype(np.float64)
            distinct = np.array(counts, dtype=np.float64)
            found = value_distribution_of("segment", zones, leaf.dtype, values, distinct, self._total(leaf))
            self._outlooks[leaf, "segment"] = found
        return found

    @cached_property
    def refs(self) -> list[SegmentRef]:
        """Returns all segments of the snapshot."""
        return list(self._manifests.refs(self._manifests.snapshot(self._pointer)))

    def block(self, number: int) -> Block:
        """Returns one of the blocks, from its segment's manifest."""
        return self._manifest(int(self.segment[number]))[int(self.row[number])]

    def tested(self, node: BoundPredicate) -> Codes:
        """Returns the verdicts of all blocks by their bounds."""
        return verdicts(evaluate(node, self.zones, len(self)), self.row_count)

    def parts(self, chosen: Rows, codes: Codes) -> list[SegmentSelection]:
        """Converts blocks (ascending) to the form of a prune; a part's ``segment`` is an index into ``segment_rows``.

        ``codes``: the verdicts of all blocks.
        """
        found = []
        for position in np.unique(self.segment[chosen]).tolist():
            mine = chosen[self.segment[chosen] == position]
            found.append(SegmentSelection(position, self._sidecars[position], self.row[mine], codes[mine]))
        return found

    def numbers_of(self, parts: Sequence[SegmentSelection]) -> Rows:
        """Returns the numbers of the blocks of such parts."""
        first = np.searchsorted(self.segment, np.arange(len(self.segment_rows)))
        found = [np.zeros(0, dtype=np.int64)]
        for part in parts:
            mine = np.arange(first[part.segment], first[part.segment] + int((self.segment == part.segment).sum()))
            found.append(mine[np.isin(self.row[mine], part.rows)])
        return np.concatenate(found)

    def keys(self, position: int) -> BlockKeys:
        """Returns the keys of all blocks of the segment at an index of ``segment_rows``."""
        found = self._sidecars[position].block_keys()
        return self._manifests.block_keys(self.refs[int(self.segment_rows[position])]) if found is None else found

    @property
    def _counted_segments(self) -> Rows:
        count = len(self.segment_rows)
        return np.unique(np.linspace(0, count - 1, min(count, _COUNTED_SEGMENTS)).astype(np.int64))

    def _manifest(self, position: int) -> tuple[Block, ...]:
        return self._manifests.segment(self.refs[int(self.segment_rows[position])]).blocks

    def _total(self, leaf: Leaf) -> float | None:
        stats = self._manifests.snapshot(self._pointer).summary.col_stats.get(leaf.id)
        count = None if stats is None else stats.distinct_of_values
        return None if count is None else float(count)

    def _values(self, leaf: Leaf) -> npt.NDArray[np.float64]:
        nulls = [each.null_counts(leaf.id, leaf.dtype) for each in self._sidecars]
        known = np.maximum(np.concatenate([np.zeros(0, dtype=np.int64), *nulls])[self._has_rows], 0)
        return np.asarray(self.row_count - known, dtype=np.float64)

    def _joined(self, name: str) -> npt.NDArray[Any]:
        return np.concatenate([np.zeros(0, dtype=np.int64), *(each.numbers(name) for each in self._sidecars)])


def refined(
    indexes: Sequence[OpenIndex], scene: BlockSample, node: BoundPredicate, parts: Sequence[SegmentSelection]
) -> tuple[list[SegmentSelection], tuple[IndexUse, ...]]:
    """Returns what indexes leave of the parts of a sample, and how they were used; empty if none of them applies."""
    questions = IndexLayer(indexes, scene.keys, time.perf_counter).questions(node)
    if questions is None:
        return list(parts), ()
    return questions.refine(parts), questions.uses
