"""Whether a query reads the table that its rows are written to, and at which snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lamella.client.spark.catalyst_terms import kind_of
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.lake import LakeTable
from lamella.client.spark.pins import Pin
from lamella.snapshot.errors import InvalidRequest


def snapshot_read(gateway: Gateway, dataset: Any, table: LakeTable, pin: Pin) -> str | None:
    """The snapshot of a table that a frame which has run has read, without having asked for that one; None: none.

    Raises:
        InvalidRequest: it may have read another snapshot than the pinned one.
    """
    named = set(_versions(dataset.queryExecution().analyzed(), table.table_id))
    if not named and not pin.was_read:
        return None
    # Spark loads a table again when it runs a query, and then gets the pinned snapshot; what it has in its cache stays.
    if named - {pin.snapshot_id} and not gateway.session.sharedState().cacheManager().isEmpty():
        raise InvalidRequest(
            f"the query may have read {table.name} from Spark's cache, where it is not as it is now; nothing was done."
            " Make the frame anew, or empty the cache (UNCACHE TABLE, unpersist)"
        )
    return pin.snapshot_id


def _versions(plan: Any, table_id: str) -> Iterator[str]:
    pending = [plan]
    while pending:
        node = pending.pop()
        if kind_of(node) == "DataSourceV2Relation" and not node.timeTravelSpec().isDefined():
            table = node.table()
            if table.id() == table_id:
                yield str(table.version())
        for more in (node.children(), node.subqueries()):
            pending += [more.apply(at) for at in range(more.size())]
