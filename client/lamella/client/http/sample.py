"""Calls for samples of rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from lamella.client.filters import plain_filter
from lamella.client.http.call import Call, Filter, TableName, make_call, text_tuple, timestamp_of
from lamella.snapshot.wire import SampleAnswer, SampleRequest, operations


def sample_call(
    name: TableName,
    filter: Filter,
    columns: Sequence[str] | None,
    rows: int,
    snapshot_id: str | None,
    timestamp: int | str | dt.datetime | None,
    time_zone: str,
    case_sensitive: bool,
    max_blocks: int,
    max_bytes: int | None,
    max_ms: float | None,
) -> Call[SampleAnswer]:
    """Some rows."""
    request = SampleRequest(
        filter=plain_filter(filter, time_zone),
        columns=None if columns is None else text_tuple("columns", columns),
        rows=rows,
        snapshot_id=snapshot_id,
        timestamp=timestamp_of(timestamp),
        time_zone=time_zone,
        case_sensitive=case_sensitive,
        max_blocks=max_blocks,
        max_bytes=max_bytes,
        max_ms=max_ms,
    )
    return make_call(operations.samples.SAMPLE, name, body=request)
