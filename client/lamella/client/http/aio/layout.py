"""Methods of a table for its cluster key and layout."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.client.http.aio.runner import AsyncCallRunner
from lamella.client.http.call import TableName, text_tuple
from lamella.client.http.layout import (
    OnRegroup,
    cluster_by_call,
    cluster_key_call,
    clustering_call,
    has_next_part,
    regroup_call,
)
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.wire import ClusteringAnswer, ClusterKeyInfo, RegroupAnswer, RegroupRequest, merged_regroup


class AsyncTableLayout:
    """How a table is laid out; a part of :class:`lamella.client.http.AsyncTable`."""

    _lake: AsyncCallRunner
    _name: TableName

    async def cluster_key(self) -> ClusterKeyInfo:
        """The current cluster key; raises TableNotFound.

        Example:
            >>> (await table.cluster_key()).columns
            ('day',)
        """
        return await self._lake.run(cluster_key_call(self._name))

    async def cluster_by(
        self,
        columns: Sequence[str],
        kind: ClusterKind = "linear",
        *,
        base_snapshot_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> ClusterKeyInfo:
        """Set the cluster key; without columns the table has none. Blocks stay as they are until a job rewrites them.

        A column may be an expression that follows the order of one column: ``date_trunc('DAY', at)``.
        ``base_snapshot_id``: only if the current key is still that of this snapshot.

        Raises UnknownColumn, InvalidFilter, InvalidRequest, CommitConflict (the key was changed), SnapshotNotFound,
        TableNotFound.

        Example:
            >>> (await table.cluster_by(["country", "day"])).columns
            ('country', 'day')
        """
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
        """How well the table is clustered by its cluster key, or by another key (``key``, ``kind``).

        ``where``: SQL; only blocks that may hold a row for which it is true. ``recorded``: the number of recorded
        filters to evaluate again.

        Raises UnknownColumn, InvalidRequest (no key), InvalidFilter, FilterTypeMismatch, SnapshotNotFound,
        TableNotFound.

        Example:
            >>> clustering = await table.clustering(["price"])
            >>> clustering.blocks_total, clustering.depth.max_depth
            (4, 1)
        """
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
        """Move blocks between segments, so that filters on the cluster key (or ``key``) skip more segments.

        No block is read or written. Runs in parts of at most ``max_segments`` segments until nothing is left to do;
        finished parts are kept if it is interrupted. ``dry_run``: only return what the first part would do.

        Raises UnknownColumn, InvalidRequest, TableNotFound, StoreError.

        Example:
            >>> (await table.regroup(dry_run=True)).remaining
            0
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
            parts.append(await self._lake.run(regroup_call(self._name, request)))
            if on_part is not None:
                on_part(parts[-1])
        return merged_regroup(parts)
