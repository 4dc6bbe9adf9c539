"""Plans what a job would rewrite: applies :mod:`lamella.snapshot.cluster` to the blocks of a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from lamella.snapshot.cluster.compaction import Limits, pack
from lamella.snapshot.cluster.extent import BlockTarget, Boxes, Extents, block_target_of
from lamella.snapshot.cluster.key import key_terms
from lamella.snapshot.cluster.selection import Aims, select
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import bind, read_filter
from lamella.snapshot.expression.bound import columns_of_terms
from lamella.snapshot.manifest import SnapshotPointer, require_features
from lamella.snapshot.prune.block_layer import Layers
from lamella.snapshot.schema import Leaf
from lamella.snapshot.warehouse.layouts import LayoutScan, Rows
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.objects import Lookup
from lamella.snapshot.wire import BlockFacts, BlocksAnswer, PlanAnswer, PlannedTask, PlanRequest

#: The share of deleted rows from which a purge rewrites a block, if the request names none.
PURGE_SHARE: Final = 0.1


class RewriteGroup(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Blocks that a job rewrites together into about ``pieces`` blocks of ``level``.

    ``blocks``: their numbers in the snapshot's order. ``row_count``: of rows that are not deleted. ``file_size_bytes``:
    of their files now. ``blocks_saved``, ``bytes_saved``: as in :class:`~lamella.snapshot.wire.PlannedTask`.
    """

    blocks: Rows
    row_count: int
    file_size_bytes: int
    pieces: int
    level: int
    blocks_saved: float = 0.0
    bytes_saved: float = 0.0


class RewritePlan(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The groups of one run of a job over the blocks of ``scan``; ``reason``: why there are no more than these.

    ``where``: where the blocks lie on the cluster key; None: there is no key, or the job does not use it.
    """

    scan: LayoutScan
    where: Extents | None = None
    groups: tuple[RewriteGroup, ...]
    reason: str
    remaining_blocks: int = 0
    remaining_bytes: int = 0


class Planning:
    """Plans rewrites; reads sidecars, and the manifests of segments with chosen blocks.

    ``layers``: those of a snapshot.
    """

    def __init__(self, manifests: Manifests, layers: Callable[[SnapshotPointer], Layers]) -> None:
        self._manifests = manifests
        self._layers = layers
        self._lookup = Lookup(manifests)

    def imperfect_blocks(self, pointer: SnapshotPointer) -> int:
        """Returns how many blocks compaction would rewrite: too small or too large for the table.

        Raises:
            InvalidRequest: the table's properties contain an invalid size.
        """
        head = self._manifests.head(pointer)
        target = block_target_of(head.properties)
        if target == BlockTarget() and not head.summary.deletes_count:
            return head.summary.block_count - head.summary.perfect_block_count
        sizes = LayoutScan(self._manifests, self._layers(pointer)).live_sizes()
        return int((~target.is_perfect(sizes)).sum())

    def blocks_to_purge(self, pointer: SnapshotPointer, min_deleted_share: float = PURGE_SHARE) -> int:
        """Returns how many blocks a purge would rewrite."""
        if not self._manifests.head(pointer).summary.deletes_count:
            return 0
        return len(_to_purge(LayoutScan(self._manifests, self._layers(pointer)), min_deleted_share, None))

    def plan(self, pointer: SnapshotPointer, request: PlanRequest) -> PlanAnswer:
        """Returns what the job would do now.

        Raises:
            InvalidRequest: a recluster of a table without a cluster key; invalid bounds.
            ReaderFeatureMissing: readers of the snapshot need another feature.
            InvalidFilter, UnknownColumn, FilterTypeMismatch: the filter is invalid.
        """
        require_features(self._manifests.head(pointer).features, request.reader_features)
        planned = self.groups(pointer, request)
        scan, key = planned.scan, planned.scan.head.cluster_key
        described: tuple[Leaf, ...] = ()
        if request.job == "recluster" and key is not None and isinstance(planned.where, Boxes):
            described = columns_of_terms(key_terms(scan.head.schema, key.columns))
        tasks = [
            PlannedTask(
                blocks=self._facts(scan, each.blocks),
                row_count=each.row_count,
                file_size_bytes=each.file_size_bytes,
                pieces=each.pieces,
                level=each.level,
                blocks_saved=each.blocks_saved,
                bytes_saved=each.bytes_saved,
                col_stats=tuple(scan.statistics(np.asarray(each.blocks), described)) if described else (),
            )
            for each in planned.groups
        ]
        return PlanAnswer(
            snapshot_id=pointer.snapshot_id,
            tasks=tuple(tasks),
            reason=planned.reason,
            remaining_blocks=planned.remaining_blocks,
            remaining_bytes=planned.remaining_bytes,
            blocks_total=len(scan),
            file_size_bytes_total=int(scan.file_size.sum()),
            cluster_key=() if key is None else key.columns,
            cluster_kind="linear" if key is None else key.kind,
            key_id=None if key is None else key.key_id,
        )

    def groups(self, pointer: SnapshotPointer, request: PlanRequest) -> RewritePlan:
        """Returns what the job would rewrite now, without reading a manifest of a segment.

        Raises:
            InvalidRequest: a recluster of a table without a cluster key; invalid bounds.
            InvalidFilter, UnknownColumn, FilterTypeMismatch: the filter is invalid.
        """
        _check(request)
        scan = LayoutScan(self._manifests, self._layers(pointer))
        allowed = self._allowed(scan, request)
        default = block_target_of(scan.head.properties)
        target = BlockTarget(
            rows=request.target_rows or default.rows, size_bytes=request.target_bytes or default.size_bytes
        )
        if request.job == "purge":
            return _purge(scan, target, request, allowed)
        key = scan.head.cluster_key
        where: Extents | None = None
        if key is not None:
            where = scan.extents(key.kind, key_terms(scan.head.schema, key.columns))
        if request.job == "compact":
            return _compact(scan, where, target, request, allowed)
        if where is None:
            raise InvalidRequest("the table has no cluster key, so it cannot be reclustered")
        return _recluster(scan, where, target, request, allowed)

    def blocks(
        self, pointer: SnapshotPointer, locations: Sequence[str], reader_features: Iterable[str] = ()
    ) -> BlocksAnswer:
        """Returns blocks by location; raises ReaderFeatureMissing if readers of the snapshot need another feature."""
        require_features(self._manifests.head(pointer).features, reader_features)
        found = self._lookup.find(self._manifests.snapshot(pointer), locations)
        facts: dict[str, BlockFacts] = {}
        for ref in {position.ref.segment_id: position.ref for position in found.values()}.values():
            clustered = self._manifests.sidecar(ref.sidecar).clustered()
            for row, block in enumerate(self._manifests.identities(ref)):
                if block.location in found:
                    key_id = int(clustered.key_id[row])
                    facts[block.location] = BlockFacts(
                        location=block.location,
                        row_count=block.row_count,
                        file_size=block.file_size,
                        content_id=block.content_id,
                        schema_id=block.schema_id or 0,
                        key_id=key_id if key_id >= 0 else None,
                        level=int(clustered.level[row]),
                        constants=block.constants,
                        deletes=block.deletes,
                    )
        return BlocksAnswer(
            snapshot_id=pointer.snapshot_id,
            blocks=tuple(facts[location] for location in locations if location in facts),
            missing=tuple(location for location in locations if location not in facts),
        )

    def _allowed(self, scan: LayoutScan, request: PlanRequest) -> Mask | None:
        if request.filter is None:
            return None
        predicate = read_filter(request.filter, time_zone=request.time_zone)
        node = bind(predicate, scan.head.schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        return scan.may_match(node)

    def _facts(self, scan: LayoutScan, blocks: Rows) -> tuple[BlockFacts, ...]:
        numbers = np.asarray(blocks, dtype=np.int64)
        return tuple(
            BlockFacts(
                location=each.location,
                row_count=each.row_count,
                file_size=each.file_size,
                content_id=each.content_id,
                schema_id=each.schema_id or 0,
                key_id=int(scan.key_id[number]) if scan.key_id[number] >= 0 else None,
                level=level,
                constants=each.constants,
                deletes=each.deletes,
            )
            for number, each, level in zip(
                numbers.tolist(), scan.identities(numbers), scan.levels(numbers), strict=True
            )
        )


def _compact(
    scan: LayoutScan, where: Extents | None, target: BlockTarget, request: PlanRequest, allowed: Mask | None
) -> RewritePlan:
    """Returns the plan of a compaction."""
    limits = Limits()
    limits = Limits(max_bytes=request.max_bytes or limits.max_bytes, max_blocks=request.max_blocks or limits.max_blocks)
    packing = pack(where, scan.live_sizes(), target, limits, allowed=allowed)
    groups = [
        RewriteGroup(
            blocks=np.asarray(each.blocks),
            row_count=each.rows,
            file_size_bytes=int(scan.file_size[each.blocks].sum()),
            pieces=each.pieces,
            level=each.level,
        )
        for each in packing.bins
    ]
    return RewritePlan(
        scan=scan,
        where=where,
        groups=tuple(groups),
        reason=packing.reason,
        remaining_blocks=packing.remaining_blocks,
    )


def _recluster(
    scan: LayoutScan, where: Extents, target: BlockTarget, request: PlanRequest, allowed: Mask | None
) -> RewritePlan:
    """Returns the plan of a recluster."""
    aims = Aims(target=target)
    aims = msgspec.structs.replace(
        aims,
        target_depth=request.target_depth or aims.target_depth,
        max_bytes=request.max_bytes or aims.max_bytes,
        min_gain=aims.min_gain if request.min_gain is None else request.min_gain,
    )
    selection = select(where, scan.sizes(), aims, allowed=allowed)
    groups = [
        RewriteGroup(
            blocks=np.asarray(each.blocks),
            row_count=each.rows,
            file_size_bytes=each.size_bytes,
            pieces=int(target.blocks_of(each.rows, each.size_bytes)),
            level=each.level,
            blocks_saved=each.blocks_saved,
            bytes_saved=each.bytes_saved,
        )
        for each in selection.tasks
    ]
    return RewritePlan(
        scan=scan,
        where=where,
        groups=tuple(groups),
        reason=selection.reason,
        remaining_bytes=selection.remaining_bytes,
    )


def _purge(scan: LayoutScan, target: BlockTarget, request: PlanRequest, allowed: Mask | None) -> RewritePlan:
    """Returns the plan of a purge: each block alone, those with the largest share of deleted rows first."""
    share = PURGE_SHARE if request.min_deleted_share is None else request.min_deleted_share
    chosen = _to_purge(scan, share, allowed)
    limits = Limits()
    within = np.cumsum(scan.file_size[chosen]) <= (request.max_bytes or limits.max_bytes)
    within &= np.arange(len(chosen)) < (request.max_blocks or limits.max_blocks)
    taken, left = chosen[within], chosen[~within]
    sizes, levels = scan.live_sizes(), scan.sizes().level
    groups = [
        RewriteGroup(
            blocks=np.array([number]),
            row_count=int(sizes.rows[number]),
            file_size_bytes=int(scan.file_size[number]),
            pieces=int(target.blocks_of(sizes.rows[number], sizes.size_bytes[number])),
            level=max(0, int(levels[number])),
        )
        for number in taken.tolist()
    ]
    if len(left):
        reason = "the limit max_bytes or max_blocks is reached" if groups else "each block exceeds max_bytes"
    else:
        reason = f"no other block has {share:.0%} or more of its rows deleted" if share else "no other has deleted rows"
    return RewritePlan(
        scan=scan,
        groups=tuple(groups),
        reason=reason,
        remaining_blocks=len(left),
        remaining_bytes=int(scan.file_size[left].sum()),
    )


def _to_purge(scan: LayoutScan, min_deleted_share: float, allowed: Mask | None) -> Rows:
    """Returns the blocks with at least this share of deleted rows, the largest first; one with an unknown number counts
    as if all were deleted."""
    live = np.maximum(scan.live_row_count, 0)
    share = (scan.row_count - live) / np.maximum(scan.row_count, 1)
    chosen = (scan.live_row_count != scan.row_count) & (share >= min_deleted_share)
    numbers = np.flatnonzero(chosen if allowed is None else chosen & allowed)
    return numbers[np.argsort(-share[numbers], kind="stable")]


def _check(request: PlanRequest) -> None:
    for name in ("max_bytes", "max_blocks", "target_rows", "target_bytes", "target_depth"):
        value = getattr(request, name)
        if value is not None and value < 1:
            raise InvalidRequest(f"{name} must be at least 1, not {value}", parameter=name)
    share = request.min_deleted_share
    if share is not None and not 0 <= share <= 1:
        raise InvalidRequest(f"min_deleted_share must be from 0 to 1, not {share}", parameter="min_deleted_share")
    if request.min_gain is not None and not request.min_gain >= 0:
        raise InvalidRequest(f"min_gain must be at least 0, not {request.min_gain}", parameter="min_gain")
