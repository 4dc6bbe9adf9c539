"""Prune calls that are made of keyword arguments, and the calls for the pages behind a first one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final, TypedDict

import msgspec

from lamella.client.http import call as calls
from lamella.client.http.call import Call, Filter, TableName
from lamella.client.http.pruned import Pruned
from lamella.client.http.stages import OrderSpec, stages
from lamella.snapshot import wire
from lamella.snapshot.errors import InvalidRequest

#: Made once, here: two threads that decode a struct for the first time at once end the process (msgspec 0.22).
_REQUEST: Final = msgspec.json.Decoder(wire.PruneRequest)


class Asked(TypedDict, total=False):
    """The keyword arguments of a prune, as of :meth:`lamella.client.Table.prune`."""

    snapshot_id: str | None
    timestamp: int | str | dt.datetime | None
    time_zone: str
    case_sensitive: bool
    shape: wire.Shape
    explain: bool
    reader_columns: Sequence[str]
    limit: int | None
    order_by: OrderSpec
    join: wire.JoinKeys | Sequence[wire.JoinKeys]
    residuals: bool
    segments: Sequence[str] | None
    sign_urls: bool


def prune_call(
    name: TableName, filter: Filter, columns: Sequence[str] | None, page_size: int, asked: Asked
) -> Call[Pruned]:
    """The call for the first page."""
    behind = stages(
        asked.get("limit"),
        asked.get("order_by", ()),
        asked.get("join", ()),
        asked.get("residuals", False),
        asked.get("segments"),
        None,
        page_size,
        asked.get("sign_urls", False),
    )
    return calls.prune(
        name,
        filter,
        columns,
        asked.get("snapshot_id"),
        asked.get("timestamp"),
        asked.get("time_zone", "UTC"),
        asked.get("case_sensitive", False),
        "block",
        asked.get("shape", "columns"),
        asked.get("explain", False),
        asked.get("reader_columns", ()),
        behind,
    )


def batch_body(
    filters: Sequence[Filter],
    columns: Sequence[str] | None,
    snapshot_id: str | None,
    timestamp: int | str | dt.datetime | None,
    time_zone: str,
    case_sensitive: bool,
    shape: wire.Shape,
    explain: bool,
    residuals: bool,
) -> wire.BatchRequest:
    """The body of a batch; raises InvalidRequest for one filter instead of a list."""
    if isinstance(filters, str | dict):
        raise InvalidRequest("filters is a list of filters, not one filter")
    return wire.BatchRequest(
        filters=tuple(filters),
        columns=None if columns is None else tuple(columns),
        snapshot_id=snapshot_id,
        timestamp=calls.timestamp_of(timestamp),
        time_zone=time_zone,
        case_sensitive=case_sensitive,
        shape=shape,
        explain=explain,
        residuals=residuals,
    )


def diff_body(
    from_snapshot_id: str | None,
    to_snapshot_id: str | None,
    from_timestamp: int | str | dt.datetime | None,
    to_timestamp: int | str | dt.datetime | None,
    filter: Filter,
    columns: Sequence[str] | None,
    time_zone: str,
    case_sensitive: bool,
) -> wire.DiffRequest:
    """The body of a question for what came and went."""
    return wire.DiffRequest(
        from_snapshot_id=from_snapshot_id,
        to_snapshot_id=to_snapshot_id,
        from_timestamp=calls.timestamp_of(from_timestamp),
        to_timestamp=calls.timestamp_of(to_timestamp),
        filter=filter,
        columns=None if columns is None else tuple(columns),
        time_zone=time_zone,
        case_sensitive=case_sensitive,
    )


def next_page(first: Call[Pruned], page: Pruned) -> Call[Pruned] | None:
    """The call for the page behind ``page``; None when that was the last."""
    if page.next_page_token is None:
        return None
    request = _REQUEST.decode(first.body)
    body = msgspec.structs.replace(request, page_token=page.next_page_token)
    return msgspec.structs.replace(first, body=msgspec.json.encode(body))
