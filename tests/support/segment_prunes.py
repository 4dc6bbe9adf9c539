"""A prune by segments, as Spark's executors do it, beside the same prune by the service's own code."""

from __future__ import annotations

import msgspec

from lamella.snapshot.expression import Predicate, tree_of
from lamella.snapshot.manifest import FEATURES, SnapshotPointer
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.segment_prune import SegmentPrune, head_of, left_segments, selected_blocks
from lamella.snapshot.wire import PruneAnswer, PruneRequest, Verdict


def blocks_by_segments(
    warehouse: Warehouse, pointer: SnapshotPointer, predicate: Predicate
) -> list[tuple[str, Verdict]]:
    """Locations and verdicts of the blocks that executors find: each segment alone, by what is sent as JSON."""
    request = PruneRequest(level="segment", reader_features=FEATURES)
    left = warehouse.prune_predicate(pointer, predicate, request).segments or ()
    snapshot = warehouse.snapshot(pointer)
    segments = left_segments(Manifests(warehouse.manifests.store, 1 << 20), snapshot, left)
    whole = SegmentPrune(head=head_of(snapshot), segments=segments, filter=tree_of(predicate))
    found: list[tuple[str, Verdict]] = []
    for segment in segments:
        sent = msgspec.json.encode(msgspec.structs.replace(whole, segments=(segment,)))
        prune = msgspec.json.decode(sent, type=SegmentPrune)
        for part in selected_blocks(Manifests(warehouse.manifests.store, 1 << 20), prune):
            found += zip(part.sidecar.texts("location", part.rows), part.verdicts(), strict=True)
    return found


def assert_same_by_segments(
    warehouse: Warehouse, pointer: SnapshotPointer, predicate: Predicate, answer: PruneAnswer, case: str
) -> None:
    """Check that executors find the blocks of the service's answer, in its order and with its verdicts."""
    expected = [(block.location, block.verdict) for block in answer.blocks or ()]
    assert blocks_by_segments(warehouse, pointer, predicate) == expected, f"other blocks by segments, {case}"
