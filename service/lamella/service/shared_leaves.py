"""The segments of a group: one set for all its plain appends, written once however often the group is folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from lamella.service.change import Change, Step
from lamella.service.commit_queue import Entry
from lamella.service.idempotency import Sealed
from lamella.snapshot.manifest import Block, SegmentRef, SnapshotPointer
from lamella.snapshot.warehouse import ChangeSet, Warehouse

Waiting = Entry[Change | Step, Sealed]


class SharedLeaves:
    """Writes what the changes of one group add."""

    def __init__(self, warehouse: Warehouse, table_id: str) -> None:
        self._warehouse = warehouse
        self._table_id = table_id
        self._written: dict[tuple[int, ...], tuple[SegmentRef, ...]] = {}

    def change_sets(
        self, base: SnapshotPointer, group: Sequence[Waiting]
    ) -> tuple[list[ChangeSet], list[list[Waiting]]]:
        """The changes as change sets to be made on ``base``, and beside each the entries whose changes it has.

        Appends that cannot fail on ``base`` are one change set. Any other change is one of its own, so that it can be
        refused alone; those come behind.
        """
        shared, own = self._sorted(base, group)
        members = [shared] if shared else []
        members += [[entry] for entry in own]
        return [self._change_set(base, entries) for entries in members], members

    def _sorted(self, base: SnapshotPointer, group: Sequence[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
        plain = [entry for entry in group if _change(entry).is_plain_append]
        if len(plain) < 2:
            return [], list(group)
        named = [block.location for entry in plain for block in _change(entry).blocks]
        taken = self._warehouse.has_blocks(base, named)
        new = [block for entry in plain if _change(entry).only_new for block in _change(entry).blocks]
        replaced = self._warehouse.coming_back(base, new)
        safe: set[int] = set()
        for entry in plain:
            places = [block.location for block in _change(entry).blocks]
            comes_back = _change(entry).only_new and not replaced.isdisjoint(places)
            if len(set(places)) == len(places) and taken.isdisjoint(places) and not comes_back:
                taken.update(places)
                safe.add(id(entry))
        return [entry for entry in group if id(entry) in safe], [entry for entry in group if id(entry) not in safe]

    def _change_set(self, base: SnapshotPointer, entries: Sequence[Waiting]) -> ChangeSet:
        first = _change(entries[0])
        return ChangeSet(
            added=first.segments or self._segments(base, entries),
            removed=first.removed,
            read_at=first.read_at,
            operation=first.operation,
            properties=first.properties,
            index_parts=first.index_parts,
            no_new_matches=first.no_new_matches,
            only_new=first.only_new and len(entries) == 1,
        )

    def _segments(self, base: SnapshotPointer, entries: Sequence[Waiting]) -> tuple[SegmentRef, ...]:
        key = tuple(id(entry) for entry in entries)
        found = self._written.get(key)
        if found is None:
            blocks: list[Block] = [block for entry in entries for block in _change(entry).blocks]
            versions = self._warehouse.snapshot(base)
            found = self._written[key] = self._warehouse.prepare(self._table_id, versions, blocks) if blocks else ()
        return found


def _change(entry: Waiting) -> Change:
    return cast(Change, entry.change)  # steps come alone
