"""Tests the blocks of some segments of a snapshot, by what was sent about them: in another process than the service's.

The service says which segments may hold matching rows. Whoever tests their blocks reads the sidecars of the segments,
and parts of skip indexes, from the store. The rules are those of a prune with these ``segments``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from lamella.snapshot.columnar.sidecar import Sidecar, SidecarRefs
from lamella.snapshot.errors import SegmentNotFound
from lamella.snapshot.expression import bind, read_filter, tree_of
from lamella.snapshot.manifest import ObjectRef, Snapshot, SnapshotPointer, Summary
from lamella.snapshot.manifest.block_key import BlockKeys
from lamella.snapshot.prune.block_layer import blocks_of_segment
from lamella.snapshot.prune.evaluate import Evaluator
from lamella.snapshot.prune.indexes import IndexLayer
from lamella.snapshot.prune.outcome import VERDICT_NAMES
from lamella.snapshot.prune.result import SegmentSelection
from lamella.snapshot.warehouse.finder import IndexAccess
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import PrunedSegment, Verdict

#: Sidecars that are read, and held, at once.
_AT_ONCE: Final = 16


class LeftSegment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A segment that may hold matching rows, and where its sidecar and its manifest are."""

    segment_id: str
    verdict: Verdict
    sidecar: ObjectRef
    manifest: ObjectRef


class SegmentPrune(msgspec.Struct, frozen=True, kw_only=True):
    """Segments of a snapshot, and the filter that their blocks are tested with.

    ``head``: see :func:`head_of`. ``filter``: as :func:`at_time` returns it, so that all who test segments of the
    snapshot ask the same.
    """

    head: Snapshot
    segments: tuple[LeftSegment, ...]
    filter: Any = None
    time_zone: str = "UTC"


def at_time(filter: Any, *, time_zone: str, now_us: int) -> Any:
    """Returns a filter that means the same whenever and wherever it is read: the filter itself, or, if it is SQL text
    with ``now()`` and the like, a tree with their values at ``now_us`` (microseconds since the epoch).

    Raises:
        InvalidFilter: cannot be read; LimitExceeded: too large.
    """
    if not isinstance(filter, str):
        return filter
    found = tree_of(read_filter(filter, time_zone=time_zone, now_us=now_us))
    return filter if found == tree_of(read_filter(filter, time_zone=time_zone)) else found


def head_of(snapshot: Snapshot) -> Snapshot:
    """Returns the part of a snapshot that tests of blocks need: its schemas and skip indexes."""
    return msgspec.structs.replace(
        snapshot,
        summary=Summary(),
        segments=(),
        groups=(),
        properties={},
        prev_manifest=None,
        replaced_files=msgspec.UNSET,
    )


def left_segments(manifests: Manifests, snapshot: Snapshot, left: Sequence[PrunedSegment]) -> tuple[LeftSegment, ...]:
    """Returns segments of a prune's answer with the places of their sidecars, which the snapshot's own has.

    Raises:
        SegmentNotFound: the snapshot has no such segment, or no sidecar.
        HashMismatch, ObjectNotFound, StoreError: a sidecar cannot be read.
    """
    if snapshot.sidecar is None:
        raise SegmentNotFound(f"the snapshot {snapshot.snapshot_id} has no sidecar", snapshot_id=snapshot.snapshot_id)
    pointer = SnapshotPointer(
        snapshot_id=snapshot.snapshot_id,
        timestamp_ms=snapshot.timestamp_ms,
        manifest=snapshot.sidecar,  # the layer is read from the sidecar alone
        sidecar=snapshot.sidecar,
    )
    layer = manifests.layer(pointer)
    rows = {segment_id: row for row, segment_id in enumerate(layer.texts("segment_id"))}
    sidecars, segment_manifests = SidecarRefs(layer), SidecarRefs(layer, "manifest")
    found = []
    for segment in left:
        row = rows.get(segment.segment_id)
        if row is None:
            raise SegmentNotFound(f"the snapshot has no segment {segment.segment_id!r}", segment_id=segment.segment_id)
        found.append(LeftSegment(segment.segment_id, segment.verdict, sidecars(row), segment_manifests(row)))
    return tuple(found)


def selected_blocks(
    manifests: Manifests, prune: SegmentPrune, timer: Callable[[], float] = time.perf_counter
) -> Iterator[SegmentSelection]:
    """Yields the blocks of the segments that may hold a matching row, segment by segment in their order;
    ``segment`` of each is its number in ``prune.segments``.

    They are those of the service's prune of these ``segments``. An index that cannot be read rules out nothing, as
    there.

    Raises:
        HashMismatch, ManifestError, ObjectNotFound, StoreError: a sidecar cannot be read.
        FilterTypeMismatch, UnknownColumn: as the service's prune.
    """
    head, segments = prune.head, prune.segments
    predicate = read_filter(prune.filter, time_zone=prune.time_zone)
    filter = Evaluator(bind(predicate, head.schema, time_zone=prune.time_zone))

    column_ids = [leaf.id for leaf in filter.columns]
    opened: dict[int, Sidecar] = {}

    def keys(row: int) -> BlockKeys:
        found = opened[row].block_keys()
        return manifests.keys_of(segments[row].sidecar, segments[row].manifest) if found is None else found

    indexes = IndexAccess(manifests).indexes(head)
    questions = IndexLayer(indexes, keys, timer).questions(filter.node) if indexes else None
    for start in range(0, len(segments), _AT_ONCE):
        some = segments[start : start + _AT_ONCE]
        refs = [segment.sidecar for segment in some]
        sidecars = manifests.many_blocks(head, refs, keep=False, column_ids=column_ids)
        opened = dict(enumerate(sidecars, start))
        for (number, sidecar), segment in zip(opened.items(), some, strict=True):
            part = blocks_of_segment(filter, number, sidecar, VERDICT_NAMES.index(segment.verdict))
            if questions is not None and len(part.rows):
                part = questions.refine_one(part)
            if len(part.rows):
                yield part
