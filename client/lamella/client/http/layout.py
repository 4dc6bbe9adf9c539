"""The layout of a table: the calls, and methods of :class:`Table` and its async twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lamella.client.http.call import AsyncCallRunner, Call, CallRunner, TableName, make_call, text_tuple
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.wire import (
    ClusteringAnswer,
    ClusterKeyInfo,
    ClusterKeyRequest,
    RegroupAnswer,
    RegroupRequest,
    merged_regroup,
    operations,
)

#: Called with each part of a regrouping as it is done.
OnRegroup = Callable[[RegroupAnswer], None]
#: How often in a row a part may be given up to others before a regrouping ends.
_GIVEN_UP: Final = 3


def cluster_key_call(name: TableName) -> Call[ClusterKeyInfo]:
    """The cluster key in force."""
    return make_call(operations.clustering.SHOW_CLUSTER_KEY, name)


def cluster_by_call(
    name: TableName, columns: Sequence[str], kind: ClusterKind, base_snapshot_id: str | None
) -> Call[ClusterKeyInfo]:
    """Another cluster key."""
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
    """Whether to ask for another part: there is more to do, and not all of it was given up again and again."""
    if not parts:
        return True
    last = parts[-1]
    if request.dry_run or not last.remaining or not (last.replaced or last.given_up):
        return False
    return len(parts) < _GIVEN_UP or any(part.replaced for part in parts[-_GIVEN_UP:])


class TableLayout:
    """How a table is laid out; a part of :class:`lamella.client.Table`."""

    _lake: CallRunner
    _name: TableName

    def cluster_key(self) -> ClusterKeyInfo:
        """The cluster key in force; raises TableNotFound."""
        return self._lake.run(cluster_key_call(self._name))

    def cluster_by(
        self,
        columns: Sequence[str],
        kind: ClusterKind = "linear",
        *,
        base_snapshot_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> ClusterKeyInfo:
        """Lay rows out by these columns from now on (none: by nothing). Blocks stay until a job rewrites them.

        ``base_snapshot_id``: only if the key in force is still that of this snapshot.

        Raises UnknownColumn, InvalidRequest, CommitConflict (another key by now), SnapshotNotFound, TableNotFound.
        """
        return self._lake.run(cluster_by_call(self._name, columns, kind, base_snapshot_id), idempotency_key)

    def clustering(
        self,
        key: Sequence[str] = (),
        kind: ClusterKind | None = None,
        *,
        snapshot_id: str | None = None,
        where: str | None = None,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
        recorded: int | None = None,
    ) -> ClusteringAnswer:
        """How the table is laid out for its cluster key, or (``key``, ``kind``) for one that it could have.

        ``where``: SQL; only blocks that may hold a row for which it is true. ``recorded``: so many of the recorded
        filters are asked again.

        Raises UnknownColumn, InvalidRequest (no key), InvalidFilter, FilterTypeMismatch, SnapshotNotFound,
        TableNotFound.
        """
        return self._lake.run(
            clustering_call(self._name, key, kind, snapshot_id, where, time_zone, case_sensitive, recorded)
        )

    def regroup(
        self,
        key: Sequence[str] = (),
        kind: ClusterKind = "linear",
        *,
        max_segments: int | None = None,
        max_ms: float | None = None,
        target_depth: int | None = None,
        min_gain: float | None = None,
        dry_run: bool = False,
        on_part: OnRegroup | None = None,
    ) -> RegroupAnswer:
        """Put blocks into other segments, so that look-ups by the cluster key (or ``key``) skip more of these.

        No block is read or written. Part after part, of at most ``max_segments`` segments each, until there is no more
        to do; what is done is kept, whenever this ends. ``dry_run``: only what the first part would do.

        Raises UnknownColumn, InvalidRequest, TableNotFound, StoreError.
        """
        request = RegroupRequest(
            key=text_tuple("key", key),
            kind=kind,
            max_segments=max_segments,
            max_ms=max_ms,
            target_depth=target_depth,
            min_gain=min_gain,
            dry_run=dry_run,
        )
        parts: list[RegroupAnswer] = []
        while has_next_part(parts, request):
            parts.append(self._lake.run(regroup_call(self._name, request)))
            if on_part is not None:
                on_part(parts[-1])
        return merged_regroup(parts)


class AsyncTableLayout:
    """The asyncio twin of :class:`TableLayout`."""

    _lake: AsyncCallRunner
    _name: TableName

    async def cluster_key(self) -> ClusterKeyInfo:
        """As :meth:`TableLayout.cluster_key`."""
        return await self._lake.run(cluster_key_call(self._name))

    async def cluster_by(
        self,
        columns: Sequence[str],
        kind: ClusterKind = "linear",
        *,
        base_snapshot_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> ClusterKeyInfo:
        """As :meth:`TableLayout.cluster_by`."""
        return await self._lake.run(cluster_by_call(self._name, columns, kind, base_snapshot_id), idempotency_key)

    async def clustering(
        self,
        key: Sequence[str] = (),
        kind: ClusterKind | None = None,
        *,
        snapshot_id: str | None = None,
        where: str | None = None,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
        recorded: int | None = None,
    ) -> ClusteringAnswer:
        """As :meth:`TableLayout.clustering`."""
        return await self._lake.run(
            clustering_call(self._name, key, kind, snapshot_id, where, time_zone, case_sensitive, recorded)
        )

    async def regroup(
        self,
        key: Sequence[str] = (),
        kind: ClusterKind = "linear",
        *,
        max_segments: int | None = None,
        max_ms: float | None = None,
        target_depth: int | None = None,
        min_gain: float | None = None,
        dry_run: bool = False,
        on_part: OnRegroup | None = None,
    ) -> RegroupAnswer:
        """As :meth:`TableLayout.regroup`."""
        request = RegroupRequest(
            key=text_tuple("key", key),
            kind=kind,
            max_segments=max_segments,
            max_ms=max_ms,
            target_depth=target_depth,
            min_gain=min_gain,
            dry_run=dry_run,
        )
        parts: list[RegroupAnswer] = []
        while has_next_part(parts, request):
            parts.append(await self._lake.run(regroup_call(self._name, request)))
            if on_part is not None:
                on_part(parts[-1])
        return merged_regroup(parts)
