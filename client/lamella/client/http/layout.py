"""The layout of a table: the calls. Their methods are in :mod:`lamella.client.http.aio.layout`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lamella.client.http.call import Call, TableName, make_call, text_tuple
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.wire import (
    ClusteringAnswer,
    ClusterKeyInfo,
    ClusterKeyRequest,
    RegroupAnswer,
    RegroupRequest,
    operations,
)

#: Called with each part of a regrouping as it is done.
OnRegroup = Callable[[RegroupAnswer], None]
#: A regrouping ends when this many parts in a row were given up because of conflicts.
_GIVEN_UP: Final = 3


def cluster_key_call(name: TableName) -> Call[ClusterKeyInfo]:
    """The current cluster key."""
    return make_call(operations.clustering.SHOW_CLUSTER_KEY, name)


def cluster_by_call(
    name: TableName, columns: Sequence[str], kind: ClusterKind, base_snapshot_id: str | None
) -> Call[ClusterKeyInfo]:
    """Set the cluster key."""
    request = ClusterKeyRequest(columns=text_tuple("columns", columns), kind=kind, base_snapshot_id=base_snapshot_id)
    return make_call(operations.clustering.SET_CLUSTER_KEY, name, body=request)


def clustering_call(
    name: TableName,
    key: Sequence[str],
    kind: ClusterKind | None,
    snapshot_id: str | None,
    where: str | None,
    time_zone: str,
    case_sensitive: bool,
    recorded: int | None,
) -> Call[ClusteringAnswer]:
    """How a table is laid out."""
    query = {
        "key": text_tuple("key", key),
        "kind": kind,
        "snapshot_id": snapshot_id,
        "where": where,
        "recorded": recorded,
        "time_zone": None if time_zone == "UTC" else time_zone,
        "case_sensitive": case_sensitive,
    }
    return make_call(operations.clustering.SHOW_CLUSTERING, name, query=query)


def regroup_call(name: TableName, request: RegroupRequest) -> Call[RegroupAnswer]:
    """One part of a regrouping."""
    return make_call(operations.clustering.REGROUP, name, body=request)


def has_next_part(parts: Sequence[RegroupAnswer], request: RegroupRequest) -> bool:
    """Whether to request another part: more remains, and not every recent part was given up."""
    if not parts:
        return True
    last = parts[-1]
    if request.dry_run or not last.remaining or not (last.replaced or last.given_up):
        return False
    return len(parts) < _GIVEN_UP or any(part.replaced for part in parts[-_GIVEN_UP:])
