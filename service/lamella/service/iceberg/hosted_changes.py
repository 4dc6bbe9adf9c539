"""Changes of columns and rollbacks by Lamella's interfaces, on tables that Iceberg clients commit to.

Each is a commit of Iceberg, which Lamella's table follows as it follows those of clients: a new schema with the same
ids on both sides, or ``main`` at an earlier snapshot. What Lamella's writers changed before is published first.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from lamella.service.catalog import Catalog, HistoryEntry, TableRecord
from lamella.service.history.history import schema_info, trusted_manifests
from lamella.service.history.rollback import require_base, rollback_answer
from lamella.service.http.idempotency import IdempotencyKey, Pending
from lamella.service.iceberg.hosted import PUBLISH, HostedTables
from lamella.service.iceberg.registered import is_of_client
from lamella.snapshot.errors import InvalidRequest, SchemaConflict
from lamella.snapshot.iceberg.metadata import MAIN
from lamella.snapshot.iceberg.schema_change import updates_for
from lamella.snapshot.iceberg.table_metadata import Json
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.source import UNREAD, VERSION
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import EvolveRequest, RollbackRequest

#: Snapshots of the history that are looked at, before and after one, for the Iceberg snapshot with its rows.
_STEPS: Final = 50


class HostedChanges:
    """Changes the columns of tables of Iceberg clients, and rolls them back."""

    def __init__(self, *, catalog: Catalog, warehouse: Warehouse, hosted: HostedTables) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._hosted = hosted

    def evolve(self, table: TableRecord, request: EvolveRequest, key: IdempotencyKey) -> Pending:
        """Change the columns.

        Raises, here or when awaited: InvalidRequest, InvalidSchema: only Iceberg clients write the table, or a change
        that Iceberg could not state. UnknownColumn, SchemaConflict: as for other tables.
        """

        def make(_: TableRecord, head: Snapshot, metadata: Json) -> list[Json]:
            wanted = request.base_schema_id
            if wanted is not None and wanted != head.schema.schema_id:
                raise SchemaConflict(
                    f"the table has schema {head.schema.schema_id} now, not {wanted}",
                    schema_id=head.schema.schema_id,
                    snapshot_id=head.snapshot_id,
                )
            return updates_for(metadata, head, request.changes)

        return self._hosted.commit_own(table, "evolve", make, lambda result: schema_info(result.snapshot), key)

    def rollback(
        self, table: TableRecord, request: RollbackRequest, target: HistoryEntry, key: IdempotencyKey
    ) -> Pending:
        """Make the rows of an earlier snapshot the current ones; the columns stay.

        Raises, here or when awaited: InvalidRequest: only Iceberg clients write the table, no snapshot of Iceberg has
        just these rows, or the table has them. CommitConflict: as for other tables.
        """
        target_id = target.pointer.snapshot_id

        def make(record: TableRecord, head: Snapshot, metadata: Json) -> list[Json]:
            require_base(request, head.snapshot_id, head.prev_snapshot_id if head.operation == PUBLISH else None)
            number = self._iceberg_snapshot(record, target)
            if all(each["snapshot-id"] != number for each in metadata["snapshots"]):
                raise InvalidRequest(
                    "no snapshot in the table's Iceberg metadata has just the rows of this one: it was published"
                    " together with later changes, or has expired there",
                    snapshot_id=target_id,
                )
            ref = metadata["refs"].get(MAIN, {"type": "branch"})
            return [{"action": "set-snapshot-ref", **ref, "ref-name": MAIN, "snapshot-id": number}]

        return self._hosted.commit_own(table, "rollback", make, partial(rollback_answer, target_id), key)

    def _iceberg_snapshot(self, record: TableRecord, target: HistoryEntry) -> int | None:
        """Return the id of an Iceberg snapshot with the blocks of a snapshot; None: none is found."""
        earlier = self._catalog.history(record.table_id, before_seq=target.seq + 1, limit=_STEPS)
        around = self._catalog.history(record.table_id, before_seq=target.seq + _STEPS, limit=_STEPS)
        with trusted_manifests():
            then = self._warehouse.snapshot(target.pointer)
            following = sorted((each for each in around if each.seq > target.seq), key=lambda each: each.seq)
            for entries in (earlier, following):
                found = self._first_of_client(entries, then)
                if found is not None:
                    return found
        return None

    def _first_of_client(self, entries: Iterable[HistoryEntry], then: Snapshot) -> int | None:
        """Return the id of the Iceberg snapshot of the first of some snapshots that has metadata of its own, if all up
        to it have the blocks of ``then``."""
        for entry in entries:
            each = self._warehouse.snapshot(entry.pointer)
            if (each.groups, each.segments) != (then.groups, then.segments):
                return None
            if is_of_client(each):
                number = each.properties.get(VERSION, "").rpartition("#")[2]
                return int(number) if number.isdigit() and not each.properties.get(UNREAD) else None
        return None
