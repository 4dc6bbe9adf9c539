# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/history.py: change that file.
"""Methods of a table for its history: snapshots, tags, changes, rollback."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Unpack

from lamella.client.http.call import Filter, TableName
from lamella.client.http.history import (
    ChangesOptions,
    ChangesPages,
    Time,
    changes_call,
    drop_tag_call,
    put_tag_call,
    rollback_call,
    snapshots_call,
    tags_call,
)
from lamella.client.http.sync.runner import CallRunner
from lamella.snapshot import wire


class TableHistory:
    """Snapshots, tags, changes and rollback of a table; a part of :class:`lamella.client.http.Table`."""

    _lake: CallRunner
    _name: TableName

    def snapshots(
        self,
        *,
        page_size: int | None = None,
        snapshot_id: str | None = None,
        timestamp: Time | None = None,
        time_zone: str = "UTC",
    ) -> Iterator[wire.SnapshotInfo]:
        """The history, newest first, fetched page by page during iteration.

        It begins with the current snapshot, or with that of ``snapshot_id`` (an id or a tag) or ``timestamp``.
        """
        token: str | None = None
        while True:
            call = snapshots_call(self._name, page_size, token, snapshot_id, timestamp, time_zone)
            page = self._lake.run(call)
            yield from page.snapshots
            token = page.next_page_token
            if token is None:
                return

    def tags(self) -> tuple[wire.TagInfo, ...]:
        """The tags that are alive, by name."""
        return self._lake.run(tags_call(self._name)).tags

    def tag(
        self,
        name: str,
        snapshot_id: str | None = None,
        *,
        timestamp: Time | None = None,
        time_zone: str = "UTC",
        expires_at: int | dt.datetime | None = None,
        max_age: dt.timedelta | None = None,
        move: bool = False,
        idempotency_key: str | None = None,
    ) -> wire.TagInfo:
        """Name a snapshot: the current one, that of an id or another tag, or the one in force at a time.

        Wherever a snapshot's id can stand, the tag can. Its snapshot does not expire while the tag is alive: until
        ``expires_at`` (Unix milliseconds or an aware datetime), for ``max_age``, or until it is dropped. ``move``: the
        tag is there and gets another snapshot; it keeps its time unless a new one is given.

        Raises AlreadyExists, TagNotFound (nothing to move), SnapshotNotFound, InvalidRequest (the name).
        """
        call = put_tag_call(self._name, name, snapshot_id, timestamp, time_zone, expires_at, max_age, move)
        return self._lake.run(call, idempotency_key)

    def drop_tag(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop a tag; its snapshot stays as long as the table's retention lets it. Raises TagNotFound."""
        self._lake.run(drop_tag_call(self._name, name), idempotency_key)

    def rollback(
        self,
        snapshot_id: str | None = None,
        *,
        timestamp: Time | None = None,
        time_zone: str = "UTC",
        base_snapshot_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> wire.RollbackAnswer:
        """Make a new snapshot with the blocks and columns of an older one (an id, a tag, or the one of a time).

        Nothing leaves the history, so a rollback can be rolled back. ``base_snapshot_id``: only if that is the current
        snapshot; without it, what others commit meanwhile is taken back too.

        Raises SnapshotNotFound, CommitConflict, BlocksGone (``blocks`` names them), InvalidRequest.
        """
        call = rollback_call(self._name, snapshot_id, timestamp, time_zone, base_snapshot_id)
        return self._lake.run(call, idempotency_key)

    def changes(
        self,
        since: str | None = None,
        until: str | None = None,
        filter: Filter = None,
        columns: Sequence[str] | None = None,
        **asked: Unpack[ChangesOptions],
    ) -> Iterator[wire.SnapshotChanges]:
        """What came and went after ``since`` (an id or a tag), up to ``until``: a snapshot at a time, oldest first.

        ``net``: in one, without what came and went in between. ``append_only``: NotAppendOnly where blocks were
        removed; the snapshots before that come first. ``filter``: only blocks that may hold matching rows, by the
        names and types of the last snapshot. ``since_timestamp``, ``until_timestamp``: the ends by time.
        ``page_size``: blocks fetched at a time. To go on later, give the last ``snapshot_id`` as ``since``.

        Raises SnapshotExpired when a snapshot that is needed is no longer in the history (one in between: ``net`` can
        do without), and as :meth:`lamella.client.http.Table.prune`.
        """
        whole, token = ChangesPages(), None
        while True:
            page = self._lake.run(changes_call(self._name, since, until, filter, columns, asked, token))
            yield from whole.of(page)
            token = page.next_page_token
            if token is None:
                return
