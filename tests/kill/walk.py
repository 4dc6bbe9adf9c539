"""Reads everything that the catalog points at, checks it, and holds it against what clients were told."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from kill.ledger import Intent, Ledger, Resolved
from kill.load import ROWS
from lamella.service.catalog import Catalog, HistoryEntry
from lamella.snapshot.manifest import ObjectRef, SegmentRef, content_hash
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse import Warehouse


class State(msgspec.Struct, frozen=True):
    """One snapshot of a table: its blocks, and the other objects that it needs."""

    seq: int
    snapshot_id: str
    blocks: frozenset[str]
    needed: frozenset[str] = frozenset()


class Walker:
    """Checks the bytes of each object once, since none ever changes, and each time that it is there; a new walker
    looks at everything anew. It remembers the snapshots that it saw before they expired."""

    def __init__(self, catalog: Catalog, store: Store, warehouse_url: str, data_url: str) -> None:
        self._catalog = catalog
        self._store = store
        self._warehouse = Warehouse(store, warehouse_url)
        self._data_url = data_url
        self._states: dict[str, State] = {}
        self._seen: dict[str, dict[int, State]] = {}
        self._segments: dict[str, frozenset[str]] = {}
        self._objects: set[str] = set()

    @property
    def snapshots(self) -> int:
        """How many were verified."""
        return len(self._states)

    def history(self, table_id: str) -> list[State]:
        """The snapshots of a table that this walker ever saw, oldest first; those that the history has are verified
        with all that they refer to, and are there."""
        # First, since a commit of a service that is dead may still land in between.
        current = self._catalog.table_by_id(table_id)
        entries = self._catalog.whole_history(table_id)[::-1]
        for older, newer in pairwise(entries):
            assert newer.pointer.timestamp_ms > older.pointer.timestamp_ms
            if newer.seq == older.seq + 1:
                assert newer.prev_snapshot_id == older.pointer.snapshot_id
            else:
                assert newer.seq > older.seq
                assert older.until_ms is not None
                assert older.pointer.timestamp_ms < older.until_ms < newer.pointer.timestamp_ms
        by_seq = {entry.seq: entry for entry in entries}
        assert by_seq[current.version].pointer == current.pointer
        there = self._there(table_id)
        seen = self._seen.setdefault(table_id, {})
        for entry in entries:
            seen[entry.seq] = state = self._state(entry)
            assert state.needed | state.blocks <= there, f"gone: {sorted((state.needed | state.blocks) - there)[:3]}"
        return [seen[seq] for seq in sorted(seen)]

    def unreferred(self, table_id: str) -> set[str]:
        """What is in the table's folder and in no snapshot of its history."""
        root = self._warehouse.table_location(table_id)
        found = {each.location for each in self._store.list(root + "/")}
        for entry in self._catalog.whole_history(table_id):
            found -= self._warehouse.objects(entry.pointer).locations()
            found.difference_update(self._warehouse.block_locations(entry.pointer))
        return found

    def _there(self, table_id: str) -> set[str]:
        """All objects of the table's folder, and all files that clients made elsewhere."""
        folders = (self._warehouse.table_location(table_id), self._data_url)
        return {found.location for folder in folders for found in self._store.list(folder + "/")}

    def _state(self, entry: HistoryEntry) -> State:
        known = self._states.get(entry.pointer.snapshot_id)
        if known is None:
            known = self._states[entry.pointer.snapshot_id] = self._verified(entry)
        return known

    def _verified(self, entry: HistoryEntry) -> State:
        snapshot = self._warehouse.snapshot(entry.pointer)
        assert snapshot.snapshot_id == entry.pointer.snapshot_id
        assert snapshot.prev_snapshot_id == entry.prev_snapshot_id
        needed = self._warehouse.objects(entry.pointer).needed
        for ref in needed:
            self._object(ref)
        parts = [self._segment(ref) for ref in self._warehouse.segments(entry.pointer)]
        blocks = frozenset().union(*parts)
        assert len(blocks) == sum(map(len, parts)), "a block stands in two segments"
        counted = (snapshot.summary.block_count, snapshot.summary.row_count)
        assert counted == (entry.block_count, entry.row_count) == (len(blocks), ROWS * len(blocks))
        return State(entry.seq, entry.pointer.snapshot_id, blocks, frozenset(ref.location for ref in needed))

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
            resolved = [each for each in ledger.resolved if each.intent.table == table]
            unknown = [intent for intent in ledger.open.values() if intent.table == table]
        compare(states, resolved, unknown)


#: Between which two snapshots that were seen something happened, by their ``seq``: behind the first, up to the second.
_Span = tuple[int, int]


def compare(states: list[State], resolved: list[Resolved], unknown: list[Intent]) -> None:
    """Acknowledged: happened in the snapshot that was named, once. Refused: never. Unknown: all of it, or nothing.

    ``states`` may lack snapshots that expired before anybody saw them. What happened in such a gap is known by what
    is there behind it: a block that came is there, unless it was removed, and is not there if it was.
    """
    added: dict[str, _Span] = {}
    removed: dict[str, _Span] = {}
    for older, newer in pairwise([State(0, "", frozenset()), *states]):
        span = (older.seq, newer.seq)
        for block in newer.blocks - older.blocks:
            assert block not in added, f"{block} came twice"
            added[block] = span
        for block in older.blocks - newer.blocks:
            removed[block] = span
    newest = states[-1]
    seqs = {state.snapshot_id: state.seq for state in states}
    seen = {*seqs.values()}
    happened = [each for each in resolved if each.snapshot_id is not None]
    intents = [each.intent for each in happened] + unknown
    allowed_in = {block for intent in intents for block in intent.added}
    allowed_out = {block for intent in intents for block in intent.removed}
    for each in happened:
        seq = seqs.get(each.snapshot_id or "")
        for block in each.intent.added:
            assert _fits(added.get(block), seq), f"lost: {block} of {each}"
            assert block in added or (seq is None and block in allowed_out), f"lost: {block} of {each}"
        for block in each.intent.removed:
            assert _fits(removed.get(block), seq), f"lost: {block} of {each}"
            # Not seen to go: then it was never seen, and came in the gap that this commit was in or ended.
            unseen = block not in added and (seq is None or seq - 1 not in seen)
            assert block in removed or unseen, f"lost: {block} of {each}"
    for intent in unknown:
        spans = {added.get(block) for block in intent.added}
        assert len(spans) <= 1, f"half of it happened: {intent}, {spans}"
        if spans == {None}:
            continue
        others = {block for other in intents if other is not intent for block in other.removed}
        stay = {block in newest.blocks for block in intent.removed if intent.added or block not in others}
        assert len(stay) <= 1, f"half of it happened: {intent}"
        assert not (intent.added and True in stay), f"half of it happened: {intent}"
    assert added.keys() <= allowed_in, f"not asked for, or refused: {sorted(added.keys() - allowed_in)[:3]}"
    assert removed.keys() <= allowed_out, f"not asked for, or refused: {sorted(removed.keys() - allowed_out)[:3]}"
    # One commit may do what several clients asked for; none is made that nobody asked for.
    made, named = newest.seq - 1, len({each.snapshot_id for each in happened})
    assert named <= made <= named + len(unknown), f"{made} commits, {named} acknowledged, {len(unknown)} unknown"


def _fits(span: _Span | None, seq: int | None) -> bool:
    """Whether what was seen to happen in ``span``, if it was, may be what the snapshot ``seq`` (None: unseen) did."""
    if span is None:
        return True
    return span[1] > span[0] + 1 if seq is None else span[1] == seq
