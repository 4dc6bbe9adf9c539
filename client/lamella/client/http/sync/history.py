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
    current_snapshots_call,
    drop_tag_call,
    put_tag_call,
    rollback_call,
    snapshots_call,
    tags_call,
)
from lamella.client.http.sync.runner import CallRunner
from lamella.snapshot import wire


class LakeHistory:
    """Snapshots of several tables; a part of :class:`lamella.client.Lamella`."""

    def current_snapshots(self: CallRunner, *tables: str) -> dict[str, str]:
        """The ids of the current snapshots of up to 100 tables, all current at one moment, by ``namespace.table``.

        Readers of these snapshots see all changes of a transaction or none; see ``docs/transactions.md``. Raises
        NamespaceNotFound, TableNotFound.

        Example:
            >>> at = lake.current_snapshots("shop.orders", "shop.rates")
            >>> orders = lake.table("shop.orders").prune("id > 10", snapshot_id=at["shop.orders"])
            >>> rates = lake.table("shop.rates").prune(snapshot_id=at["shop.rates"])
        """
        found = self.run(current_snapshots_call(tables))
        return {each.table: each.snapshot_id for each in found.snapshots}


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
        """The snapshots, newest first, fetched page by page during iteration.

        Starts at the current snapshot, or at that of ``snapshot_id`` (an id, tag or number) or ``timestamp``.

        Example:
            >>> [(info.number, info.operation) for info in table.snapshots()]
            [(5, 'append'), (4, 'index'), (3, 'index'), (2, 'append'), (1, 'create')]
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
        """The tags that have not expired, by name.

        Example:
            >>> [tag.name for tag in table.tags()]
            ['may']
        """
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
        """Tag a snapshot: the current one, that of an id or another tag, or the one that was current at a time.

        A tag can be used wherever a snapshot id can. Its snapshot does not expire while the tag exists: until
        ``expires_at`` (Unix milliseconds or an aware datetime), for ``max_age``, or until it is dropped. ``move``: move
        an existing tag to another snapshot; it keeps its expiry unless a new one is given.

        Raises AlreadyExists, TagNotFound (nothing to move), SnapshotNotFound, InvalidRequest (the name).

        Example:
            >>> table.tag("june", max_age=datetime.timedelta(days=90)).name
            'june'
        """
        call = put_tag_call(self._name, name, snapshot_id, timestamp, time_zone, expires_at, max_age, move)
        return self._lake.run(call, idempotency_key)

    def drop_tag(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop a tag; the table's retention decides how long its snapshot stays. Raises TagNotFound.

        Example:
            >>> table.drop_tag("may")
            >>> table.tags()
            ()
        """
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
        """Create a new snapshot with the blocks and columns of an older one (by id, tag or time).

        The history is kept, so a rollback can be rolled back. ``base_snapshot_id``: only if this is the current
        snapshot; without it, concurrent commits are undone too.

        Raises SnapshotNotFound, CommitConflict, BlocksGone (``blocks`` names them), InvalidRequest.

        Example:
            >>> table.rollback("may").row_count
            12
        """
        call = rollback_call(self._name, snapshot_id, timestamp, time_zone, base_snapshot_id)
        return self._lake.run(call, idempotency_key)

    def changes(
        self,
        since: str | None = None,
        until: str | None = None,
        filter: Filter = None,
        columns: Sequence[str] | None = None,
        **options: Unpack[ChangesOptions],
    ) -> Iterator[wire.SnapshotChanges]:
        """The blocks added and removed after ``since`` (an id, tag or number) to ``until``: by snapshot, oldest first.

        ``net``: one item for all snapshots, without blocks that were added and removed in between. ``append_only``:
        raise NotAppendOnly at the first snapshot that removed blocks, after the snapshots before it. ``filter``: only
        blocks that may hold matching rows, by the names and types of the last snapshot. ``since_timestamp``,
        ``until_timestamp``: the range by time. ``page_size``: blocks fetched at a time. To continue later, pass the
        last ``snapshot_id`` as ``since``.

        Raises SnapshotExpired when a required snapshot is no longer in the history (``net`` does not need those in
        between), and the errors of :meth:`lamella.client.http.Table.prune`.

        Example:
            >>> [(change.operation, len(change.added)) for change in table.changes(since="may")]
            [('append', 1)]
        """
        whole, token = ChangesPages(), None
        while True:
            page = self._lake.run(changes_call(self._name, since, until, filter, columns, options, token))
            yield from whole.of(page)
            token = page.next_page_token
            if token is None:
                return
