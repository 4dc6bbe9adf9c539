"""Calls about files that arrived."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.client.http.call import Call, TableName, make_call, text_tuple
from lamella.snapshot.wire import ArrivalsAnswer, ArrivalsRequest, operations


def register_arrivals_call(
    name: TableName, files: Sequence[str], removed: Sequence[str], prefix: str | None, suffix: str | None
) -> Call[ArrivalsAnswer]:
    """Register the files that a table does not have yet."""
    body = ArrivalsRequest(files=text_tuple("files", files), removed=text_tuple("removed", removed))
    query = {"prefix": prefix, "suffix": suffix}
    return make_call(operations.arrivals.REGISTER_ARRIVALS, name, body=body, query=query)
