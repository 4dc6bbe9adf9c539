"""Calls about a table's past: snapshots, tags, changes, rollback; and dropped tables. Nothing here does I/O."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TypedDict
from urllib.parse import quote, urlencode

import msgspec

from lamella.client.http.call import (
    Call,
    Filter,
    Nothing,
    TableName,
    encoded,
    mutation,
    namespace_path,
    texts,
    timestamp_of,
)
from lamella.snapshot import wire
from lamella.snapshot.errors import InvalidRequest

#: An instant: Unix milliseconds, ISO 8601 text, or an aware datetime.
Time = int | str | dt.datetime


class Between(TypedDict, total=False):
    """The keyword arguments of :meth:`lamella.client.http.Table.changes`."""

    since_timestamp: Time | None
    until_timestamp: Time | None
    net: bool
    append_only: bool
    time_zone: str
    case_sensitive: bool
    page_size: int | None


def snapshots(
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
    return Call(method="GET", path=_asked(f"{name.path}/snapshots", query), answer=wire.SnapshotList)


def tags(name: TableName) -> Call[wire.TagList]:
    """The tags of a table."""
    return Call(method="GET", path=f"{name.path}/tags", answer=wire.TagList)


def put_tag(
    name: TableName,
    tag: str,
    snapshot_id: str | None,
    timestamp: Time | None,
    time_zone: str,
    expires_at: int | dt.datetime | None,
    max_age: dt.timedelta | None,
    move: bool,
) -> Call[wire.TagInfo]:
    """Make or move a tag."""
    body = wire.TagRequest(
        name=tag,
        snapshot_id=snapshot_id,
        timestamp=timestamp_of(timestamp),
        time_zone=time_zone,
        expires_at_ms=_unix_ms(expires_at),
        max_age_ms=None if max_age is None else max_age // dt.timedelta(milliseconds=1),
        move=move,
    )
    return mutation("POST", f"{name.path}/tags", wire.TagInfo, body)


def drop_tag(name: TableName, tag: str) -> Call[Nothing]:
    """Drop a tag."""
    if not tag:
        raise InvalidRequest("the name of a tag is empty")
    return mutation("DELETE", f"{name.path}/tags/{quote(tag, safe='')}", Nothing)


def rollback(
    name: TableName, snapshot_id: str | None, timestamp: Time | None, time_zone: str, base_snapshot_id: str | None
) -> Call[wire.RollbackAnswer]:
    """Make a new snapshot with an older one's blocks."""
    if (snapshot_id is None) == (timestamp is None):
        raise InvalidRequest("give exactly one of snapshot_id and timestamp")
    body = wire.RollbackRequest(
        snapshot_id=snapshot_id,
        timestamp=timestamp_of(timestamp),
        time_zone=time_zone,
        base_snapshot_id=base_snapshot_id,
    )
    return mutation("POST", f"{name.path}/rollback", wire.RollbackAnswer, body)


def changes(
    name: TableName,
    since: str | None,
    until: str | None,
    filter: Filter,
    columns: Sequence[str] | None,
    asked: Between,
    page_token: str | None = None,
) -> Call[wire.ChangesAnswer]:
    """One page of the blocks that came and went."""
    query: dict[str, object] = {
        "since": since,
        "until": until,
        "since_timestamp": timestamp_of(asked.get("since_timestamp")),
        "until_timestamp": timestamp_of(asked.get("until_timestamp")),
        "filter": filter if filter is None or isinstance(filter, str) else _tree(filter),
        "columns": None if columns is None else _json(texts("columns", columns)),
        "time_zone": asked.get("time_zone"),
        "page_size": asked.get("page_size"),
        "page_token": page_token,
    }
    for flag, said in (
        ("net", asked.get("net", False)),
        ("append_only", asked.get("append_only", False)),
        ("case_sensitive", asked.get("case_sensitive", False)),
    ):
        query[flag] = "true" if said else None
    return Call(method="GET", path=_asked(f"{name.path}/changes", query), answer=wire.ChangesAnswer)


class Whole:
    """Puts the changes of one snapshot together again where a page ended in between."""

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


def dropped_tables(namespace: str) -> Call[wire.DroppedList]:
    """The dropped tables of a namespace."""
    return Call(method="GET", path=f"{namespace_path(namespace)}/dropped", answer=wire.DroppedList)


def undrop_table(name: TableName, table_id: str | None, as_name: str | None) -> Call[wire.TableInfo]:
    """Bring a dropped table back."""
    if table_id is None:
        body = wire.UndropRequest(name=name.table, as_name=as_name)
    elif as_name is None:
        body = wire.UndropRequest(table_id=table_id, as_name=name.table)
    else:
        raise InvalidRequest("with table_id the table gets the name that is given; as_name says it twice")
    return mutation("POST", f"{namespace_path(name.namespace)}/undrop", wire.TableInfo, body)


def drop_table(name: TableName, purge: bool, base_snapshot_id: str | None) -> Call[Nothing]:
    """Drop a table."""
    query = {"purge": "true" if purge else None, "base_snapshot_id": base_snapshot_id}
    return mutation("DELETE", _asked(name.path, query), Nothing)


def _asked(path: str, query: Mapping[str, object]) -> str:
    text = urlencode({key: value for key, value in query.items() if value is not None})
    return f"{path}{'?' if text else ''}{text}"


def _unix_ms(at: int | dt.datetime | None) -> int | None:
    if at is None or isinstance(at, int):
        return at
    if at.tzinfo is None:
        raise InvalidRequest("a datetime without a time zone does not name an instant")
    return (at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _tree(filter: object) -> str:
    """A JSON filter as text; one that is only true or false is put into a tree, since text would be SQL."""
    if isinstance(filter, bool):
        return _json({"type": "true" if filter else "false"})
    return encoded(filter).decode()
