"""Skip indexes: the calls. Their methods are in :mod:`lamella.client.http.aio.indexes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lamella.client.http.call import Call, TableName, make_call
from lamella.snapshot.wire import (
    CreateIndex,
    IndexInfo,
    IndexKindList,
    IndexList,
    OptimiseAnswer,
    OptimiseRequest,
    PartsAnswer,
    PartsRequest,
    RefreshAnswer,
    RefreshRequest,
    operations,
)

#: Called with each part of a refresh as it is done.
OnRefresh = Callable[[RefreshAnswer], None]
#: Called with each part of an optimisation as it is done.
OnOptimise = Callable[[OptimiseAnswer], None]


def index_kinds_call() -> Call[IndexKindList]:
    """The kinds of indexes."""
    return make_call(operations.indexes.LIST_INDEX_KINDS)


def create_index_call(
    name: TableName, index: str, kind: str, expression: str, options: Mapping[str, Any], time_zone: str
) -> Call[IndexInfo]:
    """Create an index."""
    body = CreateIndex(name=index, kind=kind, expression=expression, options=dict(options), time_zone=time_zone)
    return make_call(operations.indexes.CREATE_INDEX, name, body=body)


def indexes_call(name: TableName, snapshot_id: str | None, dropped: bool) -> Call[IndexList]:
    """The indexes of a table."""
    return make_call(operations.indexes.LIST_INDEXES, name, query={"snapshot_id": snapshot_id, "dropped": dropped})


def index_call(name: TableName, index: str, snapshot_id: str | None) -> Call[IndexInfo]:
    """One index."""
    return make_call(operations.indexes.SHOW_INDEX, name, index=index, query={"snapshot_id": snapshot_id})


def drop_index_call(name: TableName, index: str) -> Call[IndexInfo]:
    """Drop an index."""
    return make_call(operations.indexes.DROP_INDEX, name, index=index)


def restore_index_call(name: TableName, index: str) -> Call[IndexInfo]:
    """Restore a dropped index."""
    return make_call(operations.indexes.RESTORE_INDEX, name, index=index)


def vacuum_index_call(name: TableName, index: str) -> Call[IndexInfo]:
    """Remove a dropped index permanently."""
    return make_call(operations.indexes.VACUUM_INDEX, name, index=index)


def refresh_index_call(name: TableName, index: str, request: RefreshRequest) -> Call[RefreshAnswer]:
    """One part of a refresh."""
    return make_call(operations.indexes.REFRESH_INDEX, name, index=index, body=request)


def add_index_parts_call(name: TableName, index: str, request: PartsRequest) -> Call[PartsAnswer]:
    """Add parts that were built elsewhere."""
    return make_call(operations.indexes.ADD_INDEX_PARTS, name, index=index, body=request)


def optimise_index_call(name: TableName, index: str, request: OptimiseRequest) -> Call[OptimiseAnswer]:
    """One part of an optimisation."""
    return make_call(operations.indexes.OPTIMISE_INDEX, name, index=index, body=request)


def next_refresh_request(request: RefreshRequest, part: RefreshAnswer) -> RefreshRequest | None:
    """The request for the next part; None when this was the last."""
    if part.next_page_token is None:
        return None
    return msgspec.structs.replace(request, page_token=part.next_page_token)
