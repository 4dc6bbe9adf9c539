"""A prune that must not wait reads nothing for what readers reported."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lamella.snapshot.commit import Shape
from lamella.snapshot.expression import read_filter
from lamella.snapshot.manifest import Block, Snapshot, SnapshotPointer
from lamella.snapshot.manifest.block_key import block_keys
from lamella.snapshot.prune.pipeline import Deferred
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.reader_feedback import ENABLED, Facts, digest_of
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from support.timed_store import TimedStore

SCHEMA = Schema.assign([Column(name="a", type="int64")])
ASKED = PruneRequest(filter="a = 7")


class Reports:
    """The word of readers, always at hand."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def is_near(self, head: Snapshot) -> bool:
        """It is."""
        return head is not None

    def facts(self, head: Snapshot) -> Facts | None:
        """All of it."""
        return self._facts if head.properties.get(ENABLED) == "true" else None

    def used(self, head: Snapshot, digests: Sequence[bytes]) -> None:
        """Nobody counts."""


def block(number: int) -> Block:
    """A block whose statistics say nothing of ``a``."""
    return Block(location=f"s3://b/d/{number:04}.parquet", row_count=1, file_size=1, content_id=str(number))


@pytest.fixture
def store() -> TimedStore:
    """A store that tells what is read."""
    return TimedStore(lambda: 1)


@pytest.fixture
def filled(store: TimedStore) -> SnapshotPointer:
    """A table of 60 blocks in 15 segments; feedback is on."""
    warehouse = Warehouse(store, "s3://b/w", shape=Shape(segment_blocks=4, fan_in=100))
    pointer = warehouse.create("t", SCHEMA, now_ms=1, properties={ENABLED: "true"})
    segments = warehouse.prepare("t", warehouse.snapshot(pointer), [block(number) for number in range(60)])
    return warehouse.commit(pointer, added=segments, now_ms=1).pointer


def reports(empty: range) -> Reports:
    """These blocks were reported to hold no row for the filter."""
    digest = digest_of(read_filter(ASKED.filter), SCHEMA)
    assert digest is not None
    return Reports(Facts({digest: block_keys(block(number) for number in empty)}))


def test_reported_blocks_are_left_out_at_once_when_their_keys_are_held(
    store: TimedStore, filled: SnapshotPointer
) -> None:
    """The answer that does not wait is the one that does."""
    warehouse = Warehouse(store, "s3://b/w")
    warehouse.listen_to(reports(range(58)))
    found = warehouse.find(filled, ASKED)
    assert found.block_count == 2
    store.read_hook = pytest.fail
    now = warehouse.find_now(filled, ASKED)
    assert isinstance(now, PruneResult)
    assert now.block_count == 2
    assert now.answer.report.feedback is not None
    assert now.answer.report.feedback.ruled_out == 58


def test_what_must_be_read_for_reports_is_not_read_at_once(store: TimedStore, filled: SnapshotPointer) -> None:
    """Which blocks a filter leaves is remembered; when sidecars have left memory meanwhile, a thread has to ask."""
    warehouse = Warehouse(store, "s3://b/w")
    assert warehouse.find(filled, ASKED).block_count == 60
    warehouse.listen_to(reports(range(58)))
    for ref in warehouse.segments(filled):  # what is larger than all memory is not held any more
        warehouse.resident.put(("sidecar", ref.sidecar.location), object(), warehouse.resident.max_bytes + 1)
    store.read_hook = pytest.fail
    assert isinstance(warehouse.find_now(filled, ASKED), Deferred)
    store.read_hook = None
    assert warehouse.find(filled, ASKED).block_count == 2
