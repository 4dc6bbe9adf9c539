"""Reads everything that the catalog points at, checks it, and holds it against what clients were told."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from kill.ledger import Intent, Ledger, Settled
from kill.load import ROWS
from lamella.service.catalog import Catalog, HistoryEntry
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import ObjectRef, SegmentRef, content_hash
from lamella.snapshot.warehouse import Warehouse

_PAGE = 1_000


class State(msgspec.Struct, frozen=True):
    """One snapshot of a table: its entry in the catalog's history, and its blocks."""

    entry: HistoryEntry
    blocks: frozenset[str]


class Walker:
    """Checks each object once, since none ever changes; a new walker looks at everything anew."""

    def __init__(self, catalog: Catalog, store: Store, warehouse_url: str) -> None:
        self._catalog = catalog
        self._store = store
        self._warehouse = Warehouse(store, warehouse_url)
        self._states: dict[str, State] = {}
        self._segments: dict[str, frozenset[str]] = {}
        self._objects: set[str] = set()
        self._blocks: set[str] = set()

    @property
    def snapshots(self) -> int:
        """How many were verified."""
        return len(self._states)

    def history(self, table_id: str) -> list[State]:
        """Every snapshot of a table, oldest first, each of them verified with all that it refers to."""
        # First, since a commit of a service that is dead may still land in between.
        current = self._catalog.table_by_id(table_id)
        entries: list[HistoryEntry] = []
        before: int | None = None
        while page := self._catalog.history(table_id, before_seq=before, limit=_PAGE):
            entries += page
            before = page[-1].seq
        entries.reverse()
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        for earlier, later in pairwise(entries):
            assert later.prev_snapshot_id == earlier.pointer.snapshot_id
            assert later.pointer.timestamp_ms > earlier.pointer.timestamp_ms
        assert entries[current.version - 1].pointer == current.pointer
        return [self._state(entry) for entry in entries]

    def _state(self, entry: HistoryEntry) -> State:
        known = self._states.get(entry.pointer.snapshot_id)
        if known is None:
            known = self._states[entry.pointer.snapshot_id] = State(entry, self._verified(entry))
        return known

    def _verified(self, entry: HistoryEntry) -> frozenset[str]:
        snapshot = self._warehouse.snapshot(entry.pointer)
        assert snapshot.snapshot_id == entry.pointer.snapshot_id
        assert snapshot.prev_snapshot_id == entry.prev_snapshot_id
        for ref in self._warehouse.objects(entry.pointer).needed:
            self._object(ref)
        parts = [self._segment(ref) for ref in self._warehouse.segments(entry.pointer)]
        blocks = frozenset().union(*parts)
        assert len(blocks) == sum(map(len, parts)), "a block stands in two segments"
        counted = (snapshot.summary.block_count, snapshot.summary.row_count)
        assert counted == (entry.block_count, entry.row_count) == (len(blocks), ROWS * len(blocks))
        for location in blocks - self._blocks:
            self._store.stat(location)
        self._blocks |= blocks
        return blocks

    def _segment(self, ref: SegmentRef) -> frozenset[str]:
        known = self._segments.get(ref.segment_id)
        if known is None:
            listed = [block.location for block in self._warehouse.segment(ref).blocks]
            known = self._segments[ref.segment_id] = frozenset(listed)
            assert len(known) == len(listed) == ref.summary.block_count
        return known

    def _object(self, ref: ObjectRef) -> None:
        if ref.location not in self._objects:
            data = self._store.read(ref.location)
            assert (len(data), content_hash(data)) == (ref.size_bytes, ref.sha256), ref.location
            self._objects.add(ref.location)

    def check(self, table: str, table_id: str, ledger: Ledger) -> None:
        """Fail unless the table's history is just what clients were told, give or take what is still unknown."""
        states = self.history(table_id)
        with ledger.lock:
            settled = [each for each in ledger.settled if each.intent.table == table]
            unknown = [intent for intent in ledger.open.values() if intent.table == table]
        compare(states, settled, unknown)


def compare(states: list[State], settled: list[Settled], unknown: list[Intent]) -> None:
    """Acknowledged: happened in the snapshot that was named, once. Refused: never. Unknown: all of it, or nothing."""
    came: dict[str, str] = {}
    went: dict[str, str] = {}
    for earlier, later in pairwise(states):
        name = later.entry.pointer.snapshot_id
        for block in later.blocks - earlier.blocks:
            assert block not in came, f"{block} came twice"
            came[block] = name
        for block in earlier.blocks - later.blocks:
            went[block] = name
    allowed_in: set[str] = set()
    allowed_out: set[str] = set()
    for each in settled:
        if each.snapshot_id is None:
            continue
        intent = each.intent
        allowed_in |= intent.added
        allowed_out |= intent.removed
        assert {came.get(block) for block in intent.added} <= {each.snapshot_id}, f"lost: {each}"
        assert {went.get(block) for block in intent.removed} <= {each.snapshot_id}, f"lost: {each}"
    for intent in unknown:
        places = {came.get(block) for block in intent.added} or {went.get(block) for block in intent.removed}
        if intent.added and None not in places:
            places |= {went.get(block) for block in intent.removed}
        assert len(places) == 1 or not intent.added, f"half of it happened: {intent}, {places}"
        allowed_in |= intent.added
        allowed_out |= intent.removed
    assert came.keys() <= allowed_in, f"not asked for, or refused: {sorted(came.keys() - allowed_in)[:3]}"
    assert went.keys() <= allowed_out, f"not asked for, or refused: {sorted(went.keys() - allowed_out)[:3]}"
