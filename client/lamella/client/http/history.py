"""The history of a table: snapshots, tags, changes, rollback.

The calls. Their methods are in :mod:`lamella.client.http.aio.history`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TypedDict

import msgspec

from lamella.client.filters import plain_filter
from lamella.client.http.call import (
    Call,
    Filter,
    TableName,
    encode_json,
    make_call,
    text_tuple,
    timestamp_of,
)
from lamella.snapshot import wire
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire import operations
from lamella.snapshot.wire.operation import Nothing

#: An instant: Unix milliseconds, ISO 8601 text, or an aware datetime.
Time = int | str | dt.datetime


class ChangesOptions(TypedDict, total=False):
    """The keyword arguments of :meth:`lamella.client.http.Table.changes`."""

    since_timestamp: Time | None
    until_timestamp: Time | None
    net: bool
    append_only: bool
    time_zone: str
    case_sensitive: bool
    page_size: int | None
    reader_features: Sequence[str]


def snapshots_call(
    name: TableName,
    page_size: int | None,
    page_token: str | None,
    snapshot_id: str | None,
    timestamp: Time | None,
    time_zone: str,
) -> Call[wire.SnapshotList]:
    """One page of a table's history, newest first."""
    query = {
        "page_size": page_size,
        "page_token": page_token,
        "snapshot_id": snapshot_id,
        "timestamp": timestamp_of(timestamp),
        "time_zone": None if time_zone == "UTC" else time_zone,
    }
    return make_call(operations.history.LIST_SNAPSHOTS, name, query=query)


def current_snapshots_call(tables: Sequence[str]) -> Call[wire.CurrentSnapshots]:
    """The snapshots of several tables that are current at one moment."""
    for each in tables:
        TableName.parse(each)
    request = wire.CurrentSnapshotsRequest(tables=tuple(tables))
    return make_call(operations.history.CURRENT_SNAPSHOTS, body=request)


def tags_call(name: TableName) -> Call[wire.TagList]:
    """The tags of a table."""
    return make_call(operations.history.LIST_TAGS, name)


def put_tag_call(
    name: TableName,
    tag: str,
    snapshot_id: str | None,
    timestamp: Time | None,
    time_zone: str,
    expires_at: int | dt.datetime | None,
    max_age: dt.timedelta | None,
    move: bool,
) -> Call[wire.TagInfo]:
    """Create or move a tag."""
    body = wire.TagRequest(
        name=tag,
        snapshot_id=snapshot_id,
        timestamp=timestamp_of(timestamp),
        time_zone=time_zone,
        expires_at_ms=_unix_ms(expires_at),
        max_age_ms=None if max_age is None else max_age // dt.timedelta(milliseconds=1),
        move=move,
    )
    return make_call(operations.history.PUT_TAG, name, body=body)


def drop_tag_call(name: TableName, tag: str) -> Call[Nothing]:
    """Drop a tag."""
    return make_call(operations.history.DROP_TAG, name, tag=tag)


def rollback_call(
    name: TableName, snapshot_id: str | None, timestamp: Time | None, time_zone: str, base_snapshot_id: str | None
) -> Call[wire.RollbackAnswer]:
    """Create a new snapshot with the blocks of an older one."""
    if (snapshot_id is None) == (timestamp is None):
        raise InvalidRequest("give exactly one of snapshot_id and timestamp")
    body = wire.RollbackRequest(
        snapshot_id=snapshot_id,
        timestamp=timestamp_of(timestamp),
        time_zone=time_zone,
        base_snapshot_id=base_snapshot_id,
    )
    return make_call(operations.history.ROLLBACK, name, body=body)


def changes_call(
    name: TableName,
    since: str | None,
    until: str | None,
    filter: Filter,
    columns: Sequence[str] | None,
    options: ChangesOptions,
    page_token: str | None = None,
) -> Call[wire.ChangesAnswer]:
    """One page of the blocks that were added and removed."""
    plain = plain_filter(filter, options.get("time_zone", "UTC"))
    query: dict[str, object] = {
        "since": since,
        "until": until,
        "since_timestamp": timestamp_of(options.get("since_timestamp")),
        "until_timestamp": timestamp_of(options.get("until_timestamp")),
        "filter": plain if plain is None or isinstance(plain, str) else _tree(plain),
        "columns": None if columns is None else _json(text_tuple("columns", columns)),
        "time_zone": options.get("time_zone"),
        "page_size": options.get("page_size"),
        "page_token": page_token,
        "net": options.get("net"),
        "append_only": options.get("append_only"),
        "case_sensitive": options.get("case_sensitive"),
        "reader_features": ",".join(options.get("reader_features", ())) or None,
    }
    return make_call(operations.history.CHANGES, name, query=query)


class ChangesPages:
    """Joins the changes of a snapshot that were split over pages."""

    def __init__(self) -> None:
        self._open: wire.SnapshotChanges | None = None

    def of(self, page: wire.ChangesAnswer) -> list[wire.SnapshotChanges]:
        """The snapshots that this page completes."""
        done = []
        for part in page.changes:
            before = self._open
            if before is not None:
                added, removed = (*before.added, *part.added), (*before.removed, *part.removed)
                part = msgspec.structs.replace(part, added=added, removed=removed)
            self._open = part if part.continues else None
            if self._open is None:
                done.append(part)
        return done


def _unix_ms(at: int | dt.datetime | None) -> int | None:
    if at is None or isinstance(at, int):
        return at
    if at.tzinfo is None:
        raise InvalidRequest("a datetime without a time zone does not name an instant")
    return (at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _tree(filter: object) -> str:
    """A JSON filter as text; true and false are put into a tree, since a bare word would be read as SQL."""
    if isinstance(filter, bool):
        return _json({"type": "true" if filter else "false"})
    return encode_json(filter).decode()
