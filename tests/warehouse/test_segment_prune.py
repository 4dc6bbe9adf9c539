"""Segments whose blocks are tested in another process, by what is sent about them."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from lamella.snapshot.errors import HashMismatch, InvalidFilter, ObjectNotFound, SegmentNotFound
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.segment_prune import (
    SegmentPrune,
    at_time,
    head_of,
    left_segments,
    selected_blocks,
)
from lamella.snapshot.wire import PrunedSegment, PruneRequest

DAY_US = 86_400_000_000
SCHEMA = Schema.assign([Column(name="ts", type="timestamp(us)"), Column(name="s", type="string")])


class NotedStore(FsspecStore):
    """A store that notes what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_locations: list[str] = []

    def read(self, location: str) -> bytes:
        """All bytes of an object."""
        self.read_locations.append(location)
        return super().read(location)


def block(number: int) -> Block:
    """A block of one day."""
    dtype = SCHEMA.leaves()[0].dtype
    low, high = number * DAY_US, (number + 1) * DAY_US - 1
    stats = ColumnStats(min=to_bound(dtype, low), max=to_bound(dtype, high), null_count=0)
    return Block(location=f"memory://d/{number:03}.parquet", row_count=10, file_size=100, col_stats={1: stats})


class Days:
    """Twelve days in segments of two blocks; ``at_us``: the time of the service."""

    def __init__(self, at_us: int = 0) -> None:
        self.store = NotedStore()
        clock = lambda: at_us // 1_000  # noqa: E731  # one value
        root = f"memory://days-{uuid.uuid4()}"
        self.warehouse = Warehouse(self.store, root, segment_blocks=2, clock=clock)
        table_id = str(uuid.uuid4())
        pointer = self.warehouse.create(table_id, SCHEMA, now_ms=1)
        for start in range(0, 12, 2):
            added = self.warehouse.prepare(table_id, SCHEMA, [block(start), block(start + 1)])
            pointer = self.warehouse.commit(pointer, added=added, now_ms=2).pointer
        self.pointer: SnapshotPointer = pointer

    def segments(self, filter: object = None) -> tuple[PrunedSegment, ...]:
        """Those that the service leaves."""
        return self.warehouse.prune(self.pointer, PruneRequest(filter=filter, level="segment")).segments or ()

    def prune(self, filter: object = None) -> SegmentPrune:
        """What is sent about them."""
        snapshot = self.warehouse.snapshot(self.pointer)
        manifests = Manifests(self.store, 1 << 20)
        return SegmentPrune(
            head=head_of(snapshot), segments=left_segments(manifests, snapshot, self.segments(filter)), filter=filter
        )

    def found(self, prune: SegmentPrune) -> list[str]:
        """The locations of the blocks that are found."""
        sent = msgspec.json.decode(msgspec.json.encode(prune), type=SegmentPrune)
        parts = selected_blocks(Manifests(self.store, 1 << 20), sent)
        return [location for part in parts for location in part.sidecar.texts("location", part.rows)]


def test_a_task_reads_the_sidecars_of_its_segments_and_nothing_else() -> None:
    """Neither the snapshot nor other segments, once each."""
    days = Days()
    prune = days.prune("ts < TIMESTAMP '1970-01-08 00:00:00+00:00'")
    assert len(prune.segments) == 4
    days.store.read_locations.clear()
    some = msgspec.structs.replace(prune, segments=prune.segments[1:3])
    assert len(days.found(some)) == 4
    assert sorted(days.store.read_locations) == sorted(segment.sidecar.location for segment in some.segments)
    assert not prune.head.segments
    assert not prune.head.groups


@pytest.mark.parametrize(
    "filter",
    [
        "ts > now() - INTERVAL 2 DAYS",
        "ts < current_date() AND ts >= current_timestamp() - INTERVAL 3 DAYS",
        "NOT (ts < now()) OR ts < TIMESTAMP '1970-01-02 00:00:00+00:00'",
    ],
)
@pytest.mark.parametrize("time_zone", ["UTC", "America/Los_Angeles"])
def test_a_filter_at_a_time_means_what_the_service_means_at_that_time(filter: str, time_zone: str) -> None:
    """As a tree, in which no answer of several differs from another; segments are left out by it, too."""
    now_us = 9 * DAY_US + DAY_US // 4
    days = Days(now_us)
    fixed = at_time(filter, time_zone=time_zone, now_us=now_us)
    assert isinstance(fixed, dict)
    answer = days.warehouse.prune(days.pointer, PruneRequest(filter=filter, time_zone=time_zone))
    assert 0 < len(answer.blocks or ()) < 12
    prune = msgspec.structs.replace(days.prune(fixed), time_zone=time_zone)
    assert len(prune.segments) < 6
    assert days.found(prune) == [each.location for each in answer.blocks or ()]
    assert at_time(fixed, time_zone=time_zone, now_us=now_us + 50 * DAY_US) == fixed


def test_a_filter_that_does_not_depend_on_the_time_is_sent_as_it_is() -> None:
    """So that errors name its places."""
    for filter in ("ts > TIMESTAMP '2024-01-01 00:00:00'", "s = 'now()'", None, True, {"type": "is-null", "term": "s"}):
        assert at_time(filter, time_zone="UTC", now_us=5) == filter
    with pytest.raises(InvalidFilter):
        at_time("ts >", time_zone="UTC", now_us=5)


def test_what_cannot_be_read_is_an_error() -> None:
    """A sidecar that is gone, or is another one; a segment that the snapshot does not have."""
    days = Days()
    prune = days.prune()
    first = prune.segments[0]
    for location, error in ((f"{first.sidecar.location}x", ObjectNotFound), (first.manifest.location, HashMismatch)):
        other = msgspec.structs.replace(first.sidecar, location=location)
        harmed = msgspec.structs.replace(first, sidecar=other)
        with pytest.raises(error):
            days.found(msgspec.structs.replace(prune, segments=(*prune.segments[1:], harmed)))
    snapshot = days.warehouse.snapshot(days.pointer)
    (gone, *_) = days.segments()
    with pytest.raises(SegmentNotFound):
        left_segments(Manifests(days.store, 1 << 20), snapshot, [msgspec.structs.replace(gone, segment_id="none")])
