# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/layout.py: change that file.
"""Methods of a table for its cluster key and layout."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.client.http.call import TableName, text_tuple
from lamella.client.http.layout import (
    OnRegroup,
    cluster_by_call,
    cluster_key_call,
    clustering_call,
    has_next_part,
    regroup_call,
)
from lamella.client.http.sync.runner import CallRunner
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.wire import ClusteringAnswer, ClusterKeyInfo, RegroupAnswer, RegroupRequest, merged_regroup


class TableLayout:
    """How a table is laid out; a part of :class:`lamella.client.http.Table`."""

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
