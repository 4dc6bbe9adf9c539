"""What the service asks of a catalog, and the values that travel through it.

Every mutation is one transaction. ``remember`` is stored inside it, so that an answer can be replayed exactly when
the change is there. A mutation raises :class:`~lamella.snapshot.errors.Unavailable` when it certainly did not happen
and :class:`~lamella.snapshot.errors.OutcomeUnknown` when the database failed in the commit itself. When ``remember``'s
key is stored already, the mutation raises :class:`~lamella.snapshot.errors.IdempotencyMismatch` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from lamella.service.catalog.access_port import AccessCatalog
from lamella.service.catalog.job_port import JobCatalog
from lamella.service.catalog.observed import CatalogListener
from lamella.service.catalog.watch_port import WatchCatalog
from lamella.service.quotas import Quotas
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.wire import NamespaceInfo


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot of a table. ``seq`` counts from 1 and is the table's ``version`` at that snapshot.

    Expired snapshots are gaps. ``until_ms``: the time of the snapshot that followed, when that is in a gap.
    """

    seq: int
    pointer: SnapshotPointer
    prev_snapshot_id: str | None
    operation: str
    row_count: int
    block_count: int
    segment_count: int
    file_size_bytes: int
    until_ms: int | None = None


class TagRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A name for a snapshot of a table. From ``expires_at_ms`` on (None: for ever) there is no such tag any more."""

    table_id: str
    name: str
    seq: int
    snapshot_id: str
    timestamp_ms: int
    created_at_ms: int
    expires_at_ms: int | None = None


class TableRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A live table and its current snapshot; ``version`` is the ``seq`` of that snapshot."""

    table_id: str
    namespace: str
    name: str
    location: str
    version: int
    pointer: SnapshotPointer
    created_at_ms: int


class DroppedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was dropped. ``doomed``: it cannot be undropped any more, and its files may be gone."""

    record: TableRecord
    dropped_at_ms: int
    doomed: bool


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who reads a snapshot of a table. It holds the snapshot until ``expires_at_ms``, and then ends by itself."""

    lease_id: str
    table_id: str
    seq: int
    snapshot_id: str
    owner: str
    created_at_ms: int
    expires_at_ms: int


class Condemned(msgspec.Struct, frozen=True, kw_only=True):
    """An object that a clean-up decided to delete. ``kind``: one of :data:`lamella.snapshot.vacuum.names.Kind`."""

    location: str
    table_id: str
    kind: str
    size_bytes: int
    condemned_at_ms: int


class CommitGuard(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit knew of clean-ups before it looked at its files or wrote anything.

    ``since_ms``: every object that it writes has a later name time. ``epochs``: see ``sweeps`` in the catalog.
    ``adds_files``: it adds blocks, which a clean-up may have been deleting.
    """

    since_ms: int
    epochs: tuple[int, int]
    adds_files: bool


class FeedbackRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks that readers found empty for one filter of a table.

    ``question``: the filter's digest, hexadecimal. ``asked``: the filter as it was last reported, JSON, in terms of the
    schema ``schema_id``. ``blocks``: block keys, 16 bytes each, those reported last at the end.
    """

    table_id: str
    question: str
    asked: str
    schema_id: int
    blocks: bytes
    block_count: int
    size_bytes: int
    used_at_ms: int


class FeedbackBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much is remembered for a table: pairs of a filter and a block, and their bytes."""

    most_facts: int
    most_bytes: int


class RecordedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter that was asked of a table, all times together.

    ``tree``: JSON, by ``mode`` ("shape", "hashed", "full") without its constants, with keyed hashes of them, or whole;
    ``digest`` names it, ``text`` spells it. ``considered``, ``kept``: blocks; ``kept_bytes``: of these.
    """

    table_id: str
    digest: str
    mode: str
    tree: str
    text: str
    time_zone: str
    times: int
    considered: int
    kept: int
    kept_bytes: int
    size_bytes: int
    first_ms: int
    last_ms: int


class RecordedBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many filters of a table are kept, and how many bytes of them."""

    most_filters: int
    most_bytes: int


class NamespaceUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the current snapshots of a namespace's tables have, and what they may have."""

    quotas: Quotas
    tables: int
    blocks: int
    bytes: int


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer kept under its ``Idempotency-Key``. ``scope`` is the request's method and path."""

    key: str
    scope: str
    request_sha256: str
    status: int
    body: bytes
    created_at_ms: int


class Catalog(AccessCatalog, JobCatalog, WatchCatalog, Protocol):
    """The port. All methods may be called from several threads at once.

    ``is_instant``: :meth:`current` waits for nothing and nobody, so that it may be called on an event loop.
    """

    is_instant: bool

    def listen_to(self, listener: CatalogListener) -> None:
        """Tell somebody what the database takes; once, before the catalog is used."""

    @property
    def connections(self) -> tuple[int, int]:
        """Of the pool: those that are in use, and as many as may be."""

    def ping(self) -> None:
        """Return when the database answers; else raise :class:`Unavailable`."""

    def check_write(self) -> None:
        """Return when the database has taken a write, which changes nothing; else raise :class:`Unavailable`."""

    def create_namespace(self, info: NamespaceInfo, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Raises AlreadyExists, QuotaExceeded."""

    def change_namespace(
        self, before: NamespaceInfo, after: NamespaceInfo, *, remember: StoredAnswer | None = None
    ) -> bool:
        """Give a namespace other properties, if it still has those that it had ``before``; False: it has not."""

    def namespace_use(self, name: str) -> NamespaceUse:
        """How much there is in a namespace, and may be. Raises NamespaceNotFound."""

    def check_room(self, table_id: str, *, blocks: int, size_bytes: int) -> None:
        """Raises QuotaExceeded when so much more of a table would be beyond a quota now; nothing is held."""

    def check_room_for_table(self, namespace: str) -> None:
        """Raises NamespaceNotFound, and QuotaExceeded when one more table would be beyond a quota now."""

    def namespaces(self) -> list[NamespaceInfo]:
        """All of them, by name."""

    def namespace(self, name: str) -> NamespaceInfo:
        """Raises NamespaceNotFound."""

    def drop_namespace(self, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Raises NamespaceNotFound, NamespaceNotEmpty."""

    def create_table(self, table: TableRecord, first: HistoryEntry, *, remember: StoredAnswer | None = None) -> None:
        """Raises NamespaceNotFound, AlreadyExists, QuotaExceeded."""

    def tables(self, namespace: str) -> list[str]:
        """Names of the live tables, sorted. Raises NamespaceNotFound."""

    def table(self, namespace: str, name: str) -> TableRecord:
        """Raises NamespaceNotFound, TableNotFound."""

    def current(self, namespace: str, name: str) -> TableRecord | None:
        """As :meth:`table`, by a shorter way and as fresh: every commit that was acknowledged before is seen.

        None: it is not there, or cannot be told this way now; :meth:`table` knows.
        """

    def table_by_id(self, table_id: str) -> TableRecord:
        """Raises TableNotFound, also when the table was dropped."""

    def drop_table(
        self,
        namespace: str,
        name: str,
        *,
        now_ms: int,
        purge: bool = False,
        base_snapshot_id: str | None = None,
        remember: StoredAnswer | None = None,
    ) -> None:
        """The table leaves the listing and its name is free again; nothing in storage is touched.

        ``purge``: it is doomed at once. ``base_snapshot_id``: only if that is its current snapshot. Raises
        NamespaceNotFound, TableNotFound, CommitConflict.
        """

    def dropped_tables(self, namespace: str, *, earlier: bool = True) -> list[DroppedTable]:
        """Those that can be undropped, newest drop first; with ``earlier``, also of earlier namespaces of that name.

        Raises NamespaceNotFound.
        """

    def undrop_table(self, table_id: str, namespace: str, name: str, *, remember: StoredAnswer | None = None) -> None:
        """Bring a dropped table back under that name.

        Raises NamespaceNotFound, TableNotFound (not dropped, or doomed), AlreadyExists (the name is taken),
        QuotaExceeded.
        """

    def dropped_before(self, before_ms: int) -> list[DroppedTable]:
        """The tables of the whole catalog that were dropped before then, and all doomed ones; oldest drop first."""

    def doom_table(self, table_id: str, *, dropped_before_ms: int, now_ms: int) -> bool:
        """From now on the table cannot be undropped, so its files may be deleted.

        False: it is not dropped (any more), or was dropped later than that.
        """

    def forget_table(self, table_id: str) -> bool:
        """Delete all that the catalog knows of a doomed table, once its files are gone; False: it is not doomed."""

    def advance(
        self,
        table_id: str,
        entry: HistoryEntry,
        *,
        while_kept: int | None = None,
        guard: CommitGuard | None = None,
        remember: StoredAnswer | Sequence[StoredAnswer] | None = None,
    ) -> bool:
        """Make ``entry`` current if the table still is at version ``entry.seq - 1``; False: another commit won,
        or the table was dropped.

        ``while_kept``: only if the snapshot with this ``seq`` is still in the history; else raises SnapshotExpired.
        ``guard``: only if no clean-up deleted meanwhile what the commit relies on; else raises Unavailable.
        Raises QuotaExceeded when the table would grow beyond a quota, whatever others commit at the same time.
        """

    def history(self, table_id: str, *, before_seq: int | None = None, limit: int) -> list[HistoryEntry]:
        """Newest first, from below ``before_seq``."""

    def snapshot(self, table_id: str, snapshot_id: str) -> HistoryEntry:
        """Raises SnapshotNotFound, or SnapshotExpired when it must have been one that expired."""

    def snapshot_at(self, table_id: str, timestamp_ms: int) -> HistoryEntry:
        """The snapshot that was current at that instant.

        Raises SnapshotNotFound when it is before the first, SnapshotExpired when that snapshot is no longer there.
        """

    def tags(self, table_id: str, *, now_ms: int) -> list[TagRecord]:
        """The tags of a table that are alive, by name."""

    def tag(self, table_id: str, name: str, *, now_ms: int) -> TagRecord:
        """Raises TagNotFound, also for a tag that expired."""

    def tagged(self, table_id: str, name: str, *, now_ms: int) -> HistoryEntry:
        """The snapshot that a tag names. Raises TagNotFound."""

    def put_tag(self, tag: TagRecord, *, move: bool, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Make a tag, or ``move`` the one of that name.

        Raises TableNotFound, SnapshotExpired (the snapshot is not in the history), AlreadyExists; TagNotFound when
        there is none to move.
        """

    def drop_tag(self, table_id: str, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Raises TagNotFound."""

    def expire_snapshots(self, table_id: str, seqs: Sequence[int], *, now_ms: int) -> list[int]:
        """Take snapshots out of a table's history; returns the ``seq`` of those that were taken out now, ascending.

        The current snapshot stays, and so does one that a living tag names or a lease holds: nobody can tag, lease
        or roll back to a snapshot once it is out. Tags and leases that are not alive are forgotten. Works for dropped
        tables too.
        """

    def add_lease(self, lease: LeaseRecord) -> None:
        """Raises TableNotFound, SnapshotExpired (the snapshot is not in the history), QuotaExceeded."""

    def renew_lease(self, table_id: str, lease_id: str, *, expires_at_ms: int, now_ms: int) -> None:
        """Raises LeaseNotFound, also when the lease ran out already."""

    def release_lease(self, table_id: str, lease_id: str) -> None:
        """End a lease; one that is not there is no error."""

    def leases(self, table_id: str, *, now_ms: int) -> list[LeaseRecord]:
        """The leases of a table that have not run out, oldest first."""

    def kept(self, table_id: str) -> list[HistoryEntry]:
        """The whole history as it is, newest first; also of a dropped table. Empty when there is no such table."""

    def tables_with_files(self) -> list[str]:
        """The ids of all tables that are there or can be undropped."""

    def guard(self, table_id: str, files: Iterable[str], *, since_ms: int) -> CommitGuard:
        """What a commit carries into :meth:`advance`; to be asked before its files are looked at.

        Raises Unavailable when a clean-up is about to delete one of the files.
        """

    def condemn(self, table_id: str, objects: Sequence[Condemned], *, watermark_ms: int) -> None:
        """Note what is about to be deleted, so that no commit takes it up from now on.

        ``watermark_ms``: the newest name time among the objects that are not blocks. Raises TableNotFound.
        """

    def condemned(self, table_id: str, *, after: str, limit: int) -> list[Condemned]:
        """What was condemned and not acquitted, by location as the database orders them, from behind ``after``."""

    def acquit(self, table_id: str, locations: Iterable[str]) -> None:
        """Take objects off that list: they are gone, or turned out to be needed."""

    def feedback(self, table_id: str) -> list[FeedbackRecord]:
        """What readers reported of a table, by question."""

    def add_feedback(self, record: FeedbackRecord, bounds: FeedbackBounds) -> int:
        """Remember blocks beside those that are known for the same question; returns how many were not.

        Beyond the bounds the questions that were not used for longest go, and of one that is too large by itself the
        blocks that were reported first. Raises TableNotFound.
        """

    def touch_feedback(self, table_id: str, questions: Iterable[str], *, now_ms: int) -> None:
        """These questions were used."""

    def drop_feedback(self, table_id: str, question: str, blocks: Iterable[bytes]) -> int:
        """Forget some blocks of a question; returns how many were known. Raises TableNotFound."""

    def clear_feedback(self, table_id: str) -> int:
        """Forget all that was reported of a table; returns how many facts."""

    def add_recorded(self, table_id: str, filters: Sequence[RecordedFilter], bounds: RecordedBounds) -> None:
        """Count filters that were asked; beyond the bounds those that were not asked for longest go."""

    def recorded(self, table_id: str, *, limit: int) -> list[RecordedFilter]:
        """The filters that were asked of a table, the latest first."""

    def clear_recorded(self, table_id: str) -> int:
        """Forget them; returns how many there were."""

    def answer(self, key: str, scope: str) -> StoredAnswer | None:
        """What was stored under the key, if anything."""

    def keep_answer(self, answer: StoredAnswer) -> None:
        """Store the answer of a request that changed nothing.

        Raises IdempotencyMismatch when there is one under the key already.
        """

    def forget_answers(self, *, before_ms: int, limit: int = 1000) -> int:
        """Delete up to ``limit`` answers that were stored before then, the oldest first; returns how many."""

    def secret(self, name: str, fresh: bytes) -> bytes:
        """The secret of that name; the first to ask gives it its value, ``fresh``. All replicas get the same."""

    def close(self) -> None:
        """Release connections."""
