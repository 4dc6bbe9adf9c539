"""A table's past, as methods of :class:`lamella.client.http.Table` and its async twin."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Unpack

from lamella.client.http import past
from lamella.client.http.call import Filter, TableName
from lamella.client.http.past import Between, Time, Whole
from lamella.client.http.running import Runs, RunsAsync
from lamella.snapshot import wire


class TableHistory:
    """Snapshots, tags, changes and rollback of a table; a part of :class:`lamella.client.http.Table`."""

    _lake: Runs
    _name: TableName

    def snapshots(
        self,
        *,
        page_size: int | None = None,
        snapshot_id: str | None = None,
        timestamp: Time | None = None,
        time_zone: str = "UTC",
    ) -> Iterator[wire.SnapshotInfo]:
        """The history, newest first, fetched page by page as it is iterated.

        It begins with the current snapshot, or with that of ``snapshot_id`` (an id or a tag) or ``timestamp``.
        """
        token: str | None = None
        while True:
            call = past.snapshots(self._name, page_size, token, snapshot_id, timestamp, time_zone)
            page = self._lake.run(call)
            yield from page.snapshots
            token = page.next_page_token
            if token is None:
                return

    def tags(self) -> tuple[wire.TagInfo, ...]:
        """The tags that are alive, by name."""
        return self._lake.run(past.tags(self._name)).tags

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
        call = past.put_tag(self._name, name, snapshot_id, timestamp, time_zone, expires_at, max_age, move)
        return self._lake.run(call, idempotency_key)

    def drop_tag(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop a tag; its snapshot stays as long as the table's retention lets it. Raises TagNotFound."""
        self._lake.run(past.drop_tag(self._name, name), idempotency_key)

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
        call = past.rollback(self._name, snapshot_id, timestamp, time_zone, base_snapshot_id)
        return self._lake.run(call, idempotency_key)

    def changes(
        self,
        since: str | None = None,
        until: str | None = None,
        filter: Filter = None,
        columns: Sequence[str] | None = None,
        **asked: Unpack[Between],
    ) -> Iterator[wire.SnapshotChanges]:
        """What came and went after ``since`` (an id or a tag), up to ``until``: a snapshot at a time, oldest first.

        ``net``: in one, without what came and went in between. ``append_only``: NotAppendOnly where blocks were
        removed; the snapshots before that come first. ``filter``: only blocks that may hold matching rows, by the
        names and types of the last snapshot. ``since_timestamp``, ``until_timestamp``: the ends by time.
        ``page_size``: blocks fetched at a time. To go on later, give the last ``snapshot_id`` as ``since``.

        Raises SnapshotExpired when a snapshot that is needed is no longer in the history (one in between: ``net`` can
        do without), and as :meth:`lamella.client.http.Table.prune`.
        """
        whole, token = Whole(), None
        while True:
            page = self._lake.run(past.changes(self._name, since, until, filter, columns, asked, token))
            yield from whole.of(page)
            token = page.next_page_token
            if token is None:
                return


class AsyncTableHistory:
    """The same for asyncio; a part of :class:`lamella.client.http.AsyncTable`."""

    _lake: RunsAsync
    _name: TableName

    async def snapshots(
        self,
        *,
        page_size: int | None = None,
        snapshot_id: str | None = None,
        timestamp: Time | None = None,
        time_zone: str = "UTC",
    ) -> AsyncIterator[wire.SnapshotInfo]:
        """As :meth:`Table.snapshots`, with ``async for``."""
        token: str | None = None
        while True:
            call = past.snapshots(self._name, page_size, token, snapshot_id, timestamp, time_zone)
            page = await self._lake.run(call)
            for info in page.snapshots:
                yield info
            token = page.next_page_token
            if token is None:
                return

    async def tags(self) -> tuple[wire.TagInfo, ...]:
        """As :meth:`Table.tags`."""
        return (await self._lake.run(past.tags(self._name))).tags

    async def tag(
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
        """As :meth:`Table.tag`."""
        call = past.put_tag(self._name, name, snapshot_id, timestamp, time_zone, expires_at, max_age, move)
        return await self._lake.run(call, idempotency_key)

    async def drop_tag(self, name: str, *, idempotency_key: str | None = None) -> None:
        """As :meth:`Table.drop_tag`."""
        await self._lake.run(past.drop_tag(self._name, name), idempotency_key)

    async def rollback(
        self,
        snapshot_id: str | None = None,
        *,
        timestamp: Time | None = None,
        time_zone: str = "UTC",
        base_snapshot_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> wire.RollbackAnswer:
        """As :meth:`Table.rollback`."""
        call = past.rollback(self._name, snapshot_id, timestamp, time_zone, base_snapshot_id)
        return await self._lake.run(call, idempotency_key)

    async def changes(
        self,
        since: str | None = None,
        until: str | None = None,
        filter: Filter = None,
        columns: Sequence[str] | None = None,
        **asked: Unpack[Between],
    ) -> AsyncIterator[wire.SnapshotChanges]:
        """As :meth:`Table.changes`, with ``async for``."""
        whole, token = Whole(), None
        while True:
            page = await self._lake.run(past.changes(self._name, since, until, filter, columns, asked, token))
            for snapshot in whole.of(page):
                yield snapshot
            token = page.next_page_token
            if token is None:
                return
