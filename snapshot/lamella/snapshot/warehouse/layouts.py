"""Evaluates how snapshots are laid out for a key, and regroups blocks into segments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.cluster.depth import DepthSummary, box_depths, interval_depths, summary
from lamella.snapshot.cluster.extent import NOT_WRITTEN, Extents, Intervals, Sizes, block_target_of, extents, mass_of
from lamella.snapshot.cluster.health import Health, health
from lamella.snapshot.cluster.key import key_terms, key_texts, key_zones
from lamella.snapshot.cluster.regroup import RegroupAims, Regrouping, regroup
from lamella.snapshot.columnar import Sidecar, Zones, zones_of
from lamella.snapshot.columnar.chunk import NEEDED, Chunk
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.sidecar import CLUSTERED, SidecarRefs, joined_zones
from lamella.snapshot.commit.snapshots import seen_blocks
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import Predicate, bind
from lamella.snapshot.expression.bound import BoundPredicate, BoundTerm, columns_of_terms
from lamella.snapshot.manifest import ClusterKind, ObjectRef, SegmentRef, Snapshot, SnapshotPointer, decode_segment
from lamella.snapshot.manifest.block_key import Identity, identities
from lamella.snapshot.prune.block_layer import Layers
from lamella.snapshot.prune.evaluate import evaluate
from lamella.snapshot.prune.outcome import NONE, verdicts
from lamella.snapshot.schema import Leaf
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.read_costs import ReadCosts
from lamella.snapshot.warehouse.regroup import Rearranging, Swap, Written
from lamella.snapshot.wire import ClusteringAnswer, DepthFigures, LookUpFigures, RegroupRequest
from lamella.snapshot.workload.recorded_filters import Recorded

#: Look-ups are ranges of this fraction of all rows.
SHARE = 0.001

# All blocks of a snapshot in columns: sizes, levels, and zone maps of some columns, for evaluating its layout.
#
# Columns are assembled chunk by chunk and cached, like those of prunes and together with them.

Rows = npt.NDArray[np.int64]


class OnOneKey:
    """Blocks, which determine the distribution of rows, and segments, whether they are in the table or not.

    ``blocks``, ``segments``: the zone maps of the key's terms, each of all of them; ``rows``: of each block.
    """

    def __init__(
        self,
        kind: ClusterKind,
        terms: Sequence[BoundTerm],
        blocks: Sequence[Zones],
        rows: Rows,
        segments: Sequence[Zones],
    ) -> None:
        found = extents(
            kind,
            [
                joined_zones(term.dtype, [of_blocks, of_segments])
                for term, of_blocks, of_segments in zip(terms, blocks, segments, strict=True)
            ],
        )
        first, count = len(rows), len(segments[0])
        self._rows = rows
        #: The extents of the blocks and of the segments.
        self.blocks: Extents = found.take(np.arange(first))
        self.segments: Extents = found.take(np.arange(first, first + count))
        self._likely: npt.NDArray[np.float64] | None = None

    def opened_segments(self, segments: Rows | None = None) -> float:
        """Returns the expected number of the segments (None: of all) that a look-up of :data:`SHARE` of the rows opens;
        for a key along a curve the average over ranges of each column and of all columns at once."""
        if self._likely is None:
            self._likely = self._sent_to()
        return float(self._likely.sum() if segments is None else self._likely[segments].sum())

    def _sent_to(self) -> npt.NDArray[np.float64]:
        pairs = list(zip(_sides(self.blocks), _sides(self.segments), strict=True))
        spans = [mass_of(of_blocks, self._rows).spans(of_segments) for of_blocks, of_segments in pairs]
        likely = [side.read_by(SHARE) for side in spans]
        if len(spans) > 1:
            likely.append(np.prod([side.read_by(SHARE ** (1 / len(spans))) for side in spans], axis=0))
        return np.asarray(np.mean(np.stack(likely), axis=0))


def zones_of_refs(leaf: Leaf, refs: Sequence[SegmentRef]) -> Zones:
    """Returns the zone map of a column over segments that were written under the same schema as the column."""
    return zones_of(leaf.dtype, [(ref.summary.row_count, ref.summary.col_stats.get(leaf.id)) for ref in refs])


def _sides(found: Extents) -> tuple[Intervals, ...]:
    return (found,) if isinstance(found, Intervals) else found.sides


_NUMBERS: Final = (*NEEDED, *CLUSTERED)
#: Sidecars that are open at a time.
_AT_ONCE: Final = 16


class LayoutScan:
    """The blocks of a snapshot, one after another in its order; about 40 bytes per block, plus the zone maps.

    ``terms``: those whose columns will be used; others are read on first access.
    """

    def __init__(self, manifests: Manifests, layers: Layers, terms: Sequence[BoundTerm] = ()) -> None:
        self._manifests = manifests
        self._layers = layers
        self.head = layers.head
        counts = layers.segments.numbers("block_count")
        #: For each block the number of its segment.
        self.segment: Rows = np.repeat(np.arange(len(counts)), counts)
        self._starts = np.cumsum(counts) - counts
        leaves = columns_of_terms(terms)
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
    def live_row_count(self) -> Rows:
        """For each block the number of its rows that are not deleted; -1: unknown."""
        if not self.head.summary.deletes_count:
            return self.row_count
        found = [
            sidecar.live_row_counts()
            for at in range(0, len(self._starts), _AT_ONCE)
            for sidecar in self._load(range(at, min(at + _AT_ONCE, len(self._starts))), keep=False)
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *found])

    @cached_property
    def key_id_in_force(self) -> int:
        """Returns the id of the table's cluster key; -1 if it has none."""
        key = self.head.cluster_key
        return -1 if key is None else key.key_id

    def sizes(self, *, of_own_key: bool = True) -> Sizes:
        """Returns sizes and levels; ``of_own_key`` False: as for a key that no block was written for."""
        is_own = (self.key_id == self.key_id_in_force) & (self.key_id >= 0) & of_own_key
        return Sizes(self.row_count, self.file_size, np.where(is_own, self._levels, NOT_WRITTEN))

    def live_sizes(self) -> Sizes:
        """Returns the sizes that blocks have without their deleted rows, bytes in proportion, and their levels."""
        sizes = self.sizes()
        if not self.head.summary.deletes_count:
            return sizes
        live = np.where(self.live_row_count < 0, self.row_count, self.live_row_count)
        size_bytes = (self.file_size * (live / np.maximum(self.row_count, 1))).astype(np.int64)
        return Sizes(live, size_bytes, sizes.level)

    def zones(self, leaf: Leaf) -> Zones:
        """Returns the zone maps of a column."""
        found = self._zones.get(leaf)
        if found is None:
            parts = [chunk.column(leaf, self._load).zones for chunk in self._chunks()]
            nothing = Zones(None, None, np.zeros(0, dtype=np.uint8))
            found = self._zones[leaf] = joined_zones(leaf.dtype, parts) if parts else nothing
        return found

    def key_zones(self, terms: Sequence[BoundTerm]) -> list[Zones]:
        """Returns the zone maps of the terms of a key."""
        return [key_zones(term, self.zones, len(self)) for term in terms]

    def extents(self, kind: ClusterKind, terms: Sequence[BoundTerm]) -> Extents:
        """Returns the extents of the blocks on a key."""
        return extents(kind, self.key_zones(terms))

    def may_match(self, node: BoundPredicate) -> Mask:
        """Returns the blocks that may have a row for which the filter is true, by their bounds."""
        return np.asarray(verdicts(evaluate(node, self.zones, len(self)), self.row_count) != NONE)

    def identities(self, blocks: Rows) -> list[Identity]:
        """Returns the identities of blocks (given by their numbers here), in the given order; reads the manifests."""
        manifests = SidecarRefs(self._layers.segments, of="manifest")
        found: dict[int, Identity] = {}
        for segment in np.unique(self.segment[blocks]).tolist():
            ref: ObjectRef = manifests(segment)
            mine = identities(self._manifests.read(ref), ref.location)
            start = int(self._starts[segment])
            for number in blocks[self.segment[blocks] == segment].tolist():
                found[number] = mine[number - start]
        return [found[number] for number in blocks.tolist()]

    def statistics(self, blocks: Rows, leaves: Sequence[Leaf]) -> list[dict[int, ColumnStats]]:
        """Returns the statistics of some columns of blocks (given by their numbers here), in the given order; reads the
        manifests."""
        manifests = SidecarRefs(self._layers.segments, of="manifest")
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
        """Returns the level of each of some blocks, for whatever key it was written."""
        return [int(each) for each in self._levels[blocks]]

    def _chunks(self) -> Sequence[Chunk]:
        blocks = self._layers.blocks
        if blocks is None:
            raise AssertionError("layers of a snapshot have columns over many segments")
        return blocks.chunks

    def _load(self, rows: Sequence[int], *, keep: bool = True, column_ids: Collection[int] = ()) -> list[Sidecar]:
        refs = [self._layers.sidecar(row) for row in rows]
        return self._manifests.many_blocks(self.head, refs, keep=keep, column_ids=column_ids)


#: Seed of the sample of boxes, if there are many.
_SEED: Final = 0
#: Default and maximum number of segments that one request replaces.
SEGMENTS: Final = 32
MAX_SEGMENTS: Final = 256


class Where(msgspec.Struct, frozen=True, eq=False):
    """Restricts to blocks that may match."""

    predicate: Predicate
    time_zone: str = "UTC"
    case_sensitive: bool = False


class Key(msgspec.Struct, frozen=True, eq=False):
    """A key of a snapshot. ``key_id``: of its own key; None: of a candidate key."""

    terms: tuple[BoundTerm, ...]
    kind: ClusterKind
    key_id: int | None


class Regrouped(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one call wrote, in no snapshot yet: ``written`` of the groups of ``plan``, the first ones.

    ``before``: how many segments a look-up opens; ``gains``: how many fewer after each of ``written`` is done.
    """

    plan: Regrouping
    written: tuple[Written, ...]
    blocks: tuple[int, ...]
    before: float
    gains: tuple[float, ...]


class Layouts:
    """Evaluates snapshots; ``layers``: those of a snapshot; ``segment_blocks``: of a full segment."""

    def __init__(
        self,
        manifests: Manifests,
        layers: Callable[[SnapshotPointer], Layers],
        costs: ReadCosts,
        rearranging: Rearranging,
        segment_blocks: int,
    ) -> None:
        self._manifests = manifests
        self._layers = layers
        self._costs = costs
        self._rearranging = rearranging
        self._segment_blocks = segment_blocks

    def clustering(
        self,
        pointer: SnapshotPointer,
        columns: Sequence[str] = (),
        kind: ClusterKind = "linear",
        *,
        where: Where | None = None,
        recorded: Sequence[Recorded] = (),
    ) -> ClusteringAnswer:
        """Returns the figures of a layout, for the snapshot's own key or (``columns``) another one.

        Raises:
            InvalidRequest, UnknownColumn: an invalid key, or the snapshot has none.
            FilterTypeMismatch, UnknownColumn, LimitExceeded: the filter is invalid.
        """
        layers = self._layers(pointer)
        head = layers.head
        key = key_of(head, columns, kind)
        scan = LayoutScan(self._manifests, layers, key.terms)
        chosen = scan.row_count > 0
        if where is not None:
            node = bind(where.predicate, head.schema, time_zone=where.time_zone, case_sensitive=where.case_sensitive)
            chosen = chosen & scan.may_match(node)
        rows = np.flatnonzero(chosen)
        sizes = scan.sizes(of_own_key=key.key_id is not None).take(rows)
        both = OnOneKey(
            key.kind,
            key.terms,
            scan.key_zones(key.terms),
            scan.row_count,
            segment_zones(layers, key.terms),
        )
        found = health(both.blocks.take(rows), sizes, block_target_of(head.properties), seed=_SEED)
        costs, left_out = self._costs.of(pointer, recorded)
        levels, counts = np.unique(sizes.level[sizes.level != NOT_WRITTEN], return_counts=True)
        return ClusteringAnswer(
            snapshot_id=head.snapshot_id,
            timestamp_ms=head.timestamp_ms,
            columns=tuple(term.name for term in key.terms),
            kind=key.kind,
            key_id=key.key_id,
            blocks_total=len(scan),
            segments_total=len(layers.segments),
            segment_depth=_figures(_depths(both.segments)),
            segments_opened=both.opened_segments(),
            levels=dict(zip(levels.tolist(), counts.tolist(), strict=True)),
            recorded=costs,
            left_out=left_out,
            **_members(found, key),
        )

    def average_depth(self, pointer: SnapshotPointer) -> float | None:
        """Returns the average depth of a snapshot's blocks on its cluster key; None if it has none."""
        layers = self._layers(pointer)
        if layers.head.cluster_key is None:
            return None
        key = key_of(layers.head)
        scan = LayoutScan(self._manifests, layers, key.terms)
        rows = np.flatnonzero(scan.row_count > 0)
        return _depths(extents(key.kind, [zones.take(rows) for zones in scan.key_zones(key.terms)])).average_depth

    def deleted_bytes(self, pointer: SnapshotPointer) -> int:
        """Returns the bytes of the deleted rows of a snapshot: of each block with a known number of them, as much of
        its file as they are of its rows."""
        layers = self._layers(pointer)
        if not layers.head.summary.deletes_count:
            return 0
        scan = LayoutScan(self._manifests, layers)
        return int((scan.file_size - scan.live_sizes().size_bytes).sum())

    def regroup(
        self, pointer: SnapshotPointer, request: RegroupRequest, *, until: Callable[[], bool] = lambda: False
    ) -> Regrouped:
        """Plan a regrouping and write the segments of its groups: the first one if there is any, and more until
        ``until`` is true; none in a dry run.

        Raises:
            InvalidRequest, UnknownColumn: invalid bounds, an invalid key, or the snapshot has none.
            StoreError: storage failed.
        """
        if request.kind != "linear" and not request.key:
            raise InvalidRequest("kind requires key: give its columns")
        layers = self._layers(pointer)
        key = key_of(layers.head, request.key, request.kind)
        aims = self._aims(request)
        scan = LayoutScan(self._manifests, layers, key.terms)
        zones = scan.key_zones(key.terms)
        numbers, segment_of = np.unique(scan.segment, return_inverse=True)
        plan = regroup(extents(key.kind, zones), scan.row_count, segment_of, aims)
        first = np.searchsorted(scan.segment, numbers)
        written: list[Written] = []
        for group in plan.groups:
            if request.dry_run or (written and until()):
                break
            written.append(self._rearranging.write(pointer, _swap(group.segments, group.blocks, numbers, first)))
        of_segments = segment_zones(layers, key.terms, [ref for each in written for ref in each.new])
        cost = OnOneKey(key.kind, key.terms, zones, scan.row_count, of_segments)
        count = len(layers.segments)
        gains = []
        start = count
        for group, done in zip(plan.groups, written, strict=False):
            new = np.arange(start, start + len(done.new))
            gains.append(cost.opened_segments(numbers[group.segments]) - cost.opened_segments(new))
            start += len(done.new)
        return Regrouped(
            plan=plan,
            written=tuple(written),
            blocks=tuple(sum(len(each) for each in group.blocks) for group in plan.groups),
            before=cost.opened_segments(np.arange(count)),
            gains=tuple(gains),
        )

    def _aims(self, request: RegroupRequest) -> RegroupAims:
        aims = RegroupAims(segment_blocks=self._segment_blocks, max_segments=SEGMENTS, range_share=SHARE)
        if request.max_segments is not None:
            if not 2 <= request.max_segments <= MAX_SEGMENTS:
                raise InvalidRequest(
                    f"max_segments must be from 2 to {MAX_SEGMENTS}, not {request.max_segments}",
                    parameter="max_segments",
                )
            aims = msgspec.structs.replace(aims, max_segments=request.max_segments)
        if request.target_depth is not None:
            if request.target_depth < 1:
                raise InvalidRequest(f"target_depth must be at least 1, not {request.target_depth}")
            aims = msgspec.structs.replace(aims, target_depth=request.target_depth)
        if request.min_gain is not None:
            if not request.min_gain >= 0:
                raise InvalidRequest(f"min_gain must be at least 0, not {request.min_gain}")
            aims = msgspec.structs.replace(aims, min_gain=request.min_gain)
        return aims


def key_of(head: Snapshot, columns: Sequence[str] = (), kind: ClusterKind = "linear") -> Key:
    """Returns the key to evaluate: that of these columns, else the snapshot's own.

    Raises:
        InvalidRequest, UnknownColumn: an invalid key, or the snapshot has none.
    """
    own = head.cluster_key
    if columns:
        is_own = own is not None and (key_texts(head.schema, columns), kind) == (own.columns, own.kind)
        return Key(key_terms(head.schema, columns), kind, own.key_id if own is not None and is_own else None)
    if own is None:
        raise InvalidRequest("the table has no cluster key: give the columns of a key")
    return Key(key_terms(head.schema, own.columns), own.kind, own.key_id)


def _depths(found: Extents) -> DepthSummary:
    if isinstance(found, Intervals):
        return summary(interval_depths(found))
    return summary(box_depths(found, np.random.default_rng(_SEED)))


def _figures(found: DepthSummary) -> DepthFigures:
    return DepthFigures(**msgspec.structs.asdict(found))


def _members(found: Health, key: Key) -> dict[str, Any]:
    counts = {
        name: getattr(found, name)
        for name in (
            "constant_blocks",
            "unclustered_blocks",
            "unimprovable_blocks",
            "unknown_blocks",
            "small_blocks",
            "perfect_blocks",
            "large_blocks",
        )
    }
    look_ups = tuple(
        LookUpFigures(
            share=each.share,
            blocks=each.blocks,
            bytes=each.size_bytes,
            ideal_blocks=each.ideal_blocks,
            ideal_bytes=each.ideal_bytes,
            column=None if each.column is None else key.terms[each.column].name,
        )
        for each in found.look_ups
    )
    return {
        **counts,
        "blocks": found.block_count,
        "row_count": found.row_count,
        "file_size_bytes": found.size_bytes,
        "depth": _figures(found.depth),
        "look_ups": look_ups,
    }


def _swap(segments: Any, blocks: Sequence[Any], numbers: Any, first: Any) -> Swap:
    """Converts a group of a plan to rows of a snapshot's layer. ``numbers``: the rows of the segments that have blocks;
    ``first``: the index of the first block of each among all blocks."""
    rows = numbers[segments]
    starts = first[segments]
    order = np.argsort(starts, kind="stable")
    made = []
    for of_new in blocks:
        owner = order[np.searchsorted(starts[order], of_new, side="right") - 1]
        made.append(tuple(zip(owner.tolist(), (of_new - starts[owner]).tolist(), strict=True)))
    return Swap(rows=tuple(rows.tolist()), made=tuple(made))


def segment_zones(layers: Layers, terms: Sequence[BoundTerm], new: Sequence[SegmentRef] = ()) -> list[Zones]:
    """Returns the zone maps of terms over all segments of a snapshot, followed by those of ``new`` ones."""

    def lookup(leaf: Leaf) -> Zones:
        found = layers.segments.zones(leaf.id, leaf.dtype)
        return joined_zones(leaf.dtype, [found, zones_of_refs(leaf, new)]) if new else found

    return [key_zones(term, lookup, len(layers.segments) + len(new)) for term in terms]
