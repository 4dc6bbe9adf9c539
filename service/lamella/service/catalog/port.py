"""What the service asks of a catalog, and the values that travel through it.

Every mutation is one transaction. ``remember`` is stored inside it, so that an answer can be replayed exactly when
the change is there. A mutation raises :class:`~lamella.snapshot.errors.Unavailable` when it certainly did not happen
and :class:`~lamella.snapshot.errors.OutcomeUnknown` when the database failed in the commit itself. When ``remember``'s
key is stored already, the mutation raises :class:`~lamella.snapshot.errors.IdempotencyMismatch` and changes nothing.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.wire import NamespaceInfo


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot of a table. ``seq`` counts from 1 without gaps and is the table's ``version`` at that snapshot."""

    seq: int
    pointer: SnapshotPointer
    prev_snapshot_id: str | None
    operation: str
    row_count: int
    block_count: int
    segment_count: int
    file_size_bytes: int


class TableRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A live table and its current snapshot; ``version`` is the ``seq`` of that snapshot."""

    table_id: str
    namespace: str
    name: str
    location: str
    version: int
    pointer: SnapshotPointer
    created_at_ms: int


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer kept under its ``Idempotency-Key``. ``scope`` is the request's method and path."""

    key: str
    scope: str
    request_sha256: str
    status: int
    body: bytes
    created_at_ms: int


class Catalog(Protocol):
    """The port. All methods may be called from several threads at once."""

    def ping(self) -> None:
        """Return when the database answers; else raise :class:`Unavailable`."""

    def create_namespace(self, info: NamespaceInfo, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Raises AlreadyExists."""

    def namespaces(self) -> list[NamespaceInfo]:
        """All of them, by name."""

    def namespace(self, name: str) -> NamespaceInfo:
        """Raises NamespaceNotFound."""

    def drop_namespace(self, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Raises NamespaceNotFound, NamespaceNotEmpty."""

    def create_table(self, table: TableRecord, first: HistoryEntry, *, remember: StoredAnswer | None = None) -> None:
        """Raises NamespaceNotFound, AlreadyExists."""

    def tables(self, namespace: str) -> list[str]:
        """Names of the live tables, sorted. Raises NamespaceNotFound."""

    def table(self, namespace: str, name: str) -> TableRecord:
        """Raises NamespaceNotFound, TableNotFound."""

    def table_by_id(self, table_id: str) -> TableRecord:
        """Raises TableNotFound, also when the table was dropped."""

    def drop_table(self, namespace: str, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """The table leaves the listing and its name is free again; nothing in storage is touched.

        Raises NamespaceNotFound, TableNotFound.
        """

    def advance(self, table_id: str, entry: HistoryEntry, *, remember: StoredAnswer | None = None) -> bool:
        """Make ``entry`` current if the table still is at version ``entry.seq - 1``; False: another commit won,
        or the table was dropped."""

    def history(self, table_id: str, *, before_seq: int | None = None, limit: int) -> list[HistoryEntry]:
        """Newest first, from below ``before_seq``."""

    def snapshot(self, table_id: str, snapshot_id: str) -> HistoryEntry:
        """Raises SnapshotNotFound."""

    def snapshot_at(self, table_id: str, timestamp_ms: int) -> HistoryEntry:
        """The snapshot that was current at that instant. Raises SnapshotNotFound when it is before the first."""

    def answer(self, key: str, scope: str) -> StoredAnswer | None:
        """What was stored under the key, if anything."""

    def forget_answers(self, *, before_ms: int) -> int:
        """Delete answers that were stored before then; returns how many."""

    def secret(self, name: str, fresh: bytes) -> bytes:
        """The secret of that name; the first to ask gives it its value, ``fresh``. All replicas get the same."""

    def close(self) -> None:
        """Release connections."""
