"""Requests and answers about a table's history: its snapshots, tags, changes, rollback; and dropped tables."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lamella.snapshot.manifest import RowChange
from lamella.snapshot.wire.commit import MAX_TABLES
from lamella.snapshot.wire.limits import Moment, Word
from lamella.snapshot.wire.prune import PrunedBlock


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a table's history; ``tags`` name it.

    ``number``: its number among the table's snapshots, counted from 1, which is also its id in Iceberg.
    """

    snapshot_id: str
    prev_snapshot_id: str | None
    timestamp_ms: int
    operation: str
    row_count: int
    block_count: int
    segment_count: int
    file_size_bytes: int
    tags: tuple[str, ...] = ()
    number: int = 0


class SnapshotList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../snapshots``, newest first."""

    snapshots: tuple[SnapshotInfo, ...]
    next_page_token: str | None = None


class CurrentSnapshotsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /v1/current-snapshots``: the names of the tables, ``namespace.table``."""

    tables: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=MAX_TABLES)]


class CurrentSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot of a table (``namespace.table``) that was current, and when it was committed."""

    table: str
    snapshot_id: str
    timestamp_ms: int


class CurrentSnapshots(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshots that were all current at one moment, in the order of the request."""

    snapshots: tuple[CurrentSnapshot, ...]


class TagRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../tags``: tags a snapshot, by default the current one.

    ``snapshot_id``: an id or another tag; or ``timestamp`` (Unix ms, or ISO 8601 text, without a zone in
    ``time_zone``). ``expires_at_ms`` (Unix) or ``max_age_ms`` (from now): when the tag expires; neither: never.
    ``move``: the tag exists and moves to another snapshot; unless a time is given it keeps its own.
    """

    name: Word
    snapshot_id: Word | None = None
    timestamp: int | Moment | None = None
    time_zone: Moment = "UTC"
    expires_at_ms: int | None = None
    max_age_ms: int | None = None
    move: bool = False


class TagInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A tag: its snapshot and that snapshot's time, and when the tag was created and expires (None: never)."""

    name: str
    snapshot_id: str
    timestamp_ms: int
    created_at_ms: int
    expires_at_ms: int | None = None


class TagList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../tags``, ordered by name."""

    tags: tuple[TagInfo, ...]


class RollbackRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../rollback``: creates a new snapshot with the blocks of an older one.

    Exactly one of ``snapshot_id`` (an id, tag or number) and ``timestamp`` (as in :class:`TagRequest`).
    ``base_snapshot_id``: the snapshot that must be current; otherwise the request fails with a conflict.
    """

    snapshot_id: Word | None = None
    timestamp: int | Moment | None = None
    time_zone: Moment = "UTC"
    base_snapshot_id: Word | None = None


class RollbackAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The new snapshot, the one before it, and the one whose blocks it has.

    ``added``: number of restored blocks; ``removed``: number of blocks that left the table.
    """

    snapshot_id: str
    prev_snapshot_id: str
    restored_snapshot_id: str
    added: int
    removed: int
    row_count: int
    block_count: int


class DroppedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A dropped table. It can be undropped until ``undrop_before_ms`` (Unix), and possibly somewhat longer."""

    table_id: str
    name: str
    location: str
    snapshot_id: str
    dropped_at_ms: int
    undrop_before_ms: int


class DroppedList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/namespaces/{ns}/dropped``, newest drop first."""

    tables: tuple[DroppedTable, ...]


class UndropRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /v1/namespaces/{ns}/undrop``: exactly one of ``table_id`` and ``name`` (the most recently dropped table of
    that name).

    ``as``: its new name; by default its old one.
    """

    table_id: Word | None = None
    name: Word | None = None
    as_name: Word | None = msgspec.field(name="as", default=None)


class RenameRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../rename``: the table's new name. ``namespace``: None: it stays in its namespace."""

    name: Word
    namespace: Word | None = None


class SnapshotChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks in which a snapshot differs from an earlier one, as far as they may match the filter.

    ``from_snapshot_id``: the earlier one. ``operation``: the operation that created the snapshot. ``number``: of the
    snapshot in the table's history. ``row_changes``: what happened to rows, as in a snapshot (None: unknown).
    ``continues``: the next page has more of the same two snapshots. A block that was replaced in place, or of which
    rows were deleted, is in both lists.
    """

    snapshot_id: str
    from_snapshot_id: str
    timestamp_ms: int
    operation: str
    added: tuple[PrunedBlock, ...]
    removed: tuple[PrunedBlock, ...]
    continues: bool = False
    number: int = 0
    row_changes: tuple[RowChange, ...] | None = None


class ChangesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../changes``: what was added and removed after ``since_snapshot_id``, up to and including
    ``until_snapshot_id``.

    Oldest first, one entry per snapshot; with ``net`` one entry for the whole range. Continue later with ``since`` =
    ``until_snapshot_id``.
    """

    since_snapshot_id: str
    until_snapshot_id: str
    changes: tuple[SnapshotChanges, ...]
    next_page_token: str | None = None
