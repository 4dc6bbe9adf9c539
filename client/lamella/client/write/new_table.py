"""Tables that a write creates for its rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from lamella.client.http.lake import Lake
from lamella.snapshot.errors import AlreadyExists, LamellaError, NamespaceNotFound, TableNotFound
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.wire import TableInfo


@contextlib.contextmanager
def table_for(
    lake: Lake,
    name: str,
    columns: Callable[[], Sequence[Column]],
    cluster_by: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    *,
    create: bool = True,
    cluster_kind: ClusterKind = "linear",
) -> Iterator[None]:
    """Create a table for rows with these ``columns``, and its namespace, unless they exist; a created table is dropped
    when the block fails.

    ``columns`` is only called when the table is created, and may raise. Raises InvalidSchema, UnknownColumn. Without
    ``create`` nothing is created.
    """
    made = _make_table(lake, name, columns, cluster_by, properties, cluster_kind) if create else None
    try:
        yield
    except BaseException:
        if made is not None:
            drop_unused(lake, made)
        raise


def drop_unused(lake: Lake, made: TableInfo) -> None:
    """Drop a table that was created for rows that were not committed, unless another client has committed to it.

    It also stays when the service cannot be reached; the original error is the one to report.
    """
    with contextlib.suppress(LamellaError):
        lake.drop_table(f"{made.namespace}.{made.name}", purge=True, base_snapshot_id=made.snapshot_id)


def _make_table(
    lake: Lake,
    name: str,
    columns: Callable[[], Sequence[Column]],
    cluster_by: Sequence[str] | None,
    properties: Mapping[str, str] | None,
    cluster_kind: ClusterKind,
) -> TableInfo | None:
    handle = lake.table(name)
    try:
        handle.info()
    except (TableNotFound, NamespaceNotFound) as missing:
        wanted = columns()
        schema = Schema.assign(wanted)
        for key in cluster_by or ():
            schema.leaf(key)
        if isinstance(missing, NamespaceNotFound):  # creating a namespace needs more permissions than writing
            with contextlib.suppress(AlreadyExists):
                lake.create_namespace(handle.namespace)
        with contextlib.suppress(AlreadyExists):  # another client was first
            return lake.create_table(
                name,
                schema=wanted,
                cluster_key=list(cluster_by or ()),
                properties=properties,
                cluster_kind=cluster_kind,
            )
    return None
