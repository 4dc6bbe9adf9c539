# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/indexes.py: change that file.
"""Methods for skip indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamella.client.http.call import TableName
from lamella.client.http.indexes import (
    OnOptimise,
    OnRefresh,
    add_index_parts_call,
    create_index_call,
    drop_index_call,
    index_call,
    index_kinds_call,
    indexes_call,
    next_refresh_request,
    optimise_index_call,
    refresh_index_call,
    restore_index_call,
    vacuum_index_call,
)
from lamella.client.http.sync.runner import CallRunner
from lamella.snapshot.wire import (
    IndexInfo,
    IndexKind,
    OptimiseAnswer,
    OptimiseRequest,
    PartsAnswer,
    PartSent,
    PartsRequest,
    RefreshAnswer,
    RefreshMode,
    RefreshRequest,
    merged_optimise,
    merged_refresh,
)


class TableIndexes:
    """The skip indexes of a table; a part of :class:`lamella.client.http.Table`."""

    _lake: CallRunner
    _name: TableName

    def indexes(self, *, dropped: bool = False, snapshot_id: str | None = None) -> tuple[IndexInfo, ...]:
        """The table's skip indexes by name, each with its coverage; ``dropped``: also dropped indexes.

        ``snapshot_id``: those of an older snapshot (an id, tag or number). Raises TableNotFound, SnapshotNotFound.

        Example:
            >>> [(index.name, index.kind) for index in table.indexes()]
            [('by_customer', 'bloom')]
        """
        return self._lake.run(indexes_call(self._name, snapshot_id, dropped)).indexes

    def index(self, name: str, *, snapshot_id: str | None = None) -> IndexInfo:
        """One index, dropped or not; raises IndexNotFound.

        Example:
            >>> table.index("by_customer").coverage.indexed
            4
        """
        return self._lake.run(index_call(self._name, name, snapshot_id))

    def create_index(
        self,
        name: str,
        kind: str,
        expression: str,
        *,
        options: Mapping[str, Any] | None = None,
        time_zone: str = "UTC",
        idempotency_key: str | None = None,
    ) -> IndexInfo:
        """Create an index of a kind (see :meth:`lamella.client.Lamella.index_kinds`) on a column or an expression.

        It covers no block until it is refreshed. Raises AlreadyExists (also for the name of a dropped index),
        InvalidRequest (the kind, its options, or an expression that cannot be indexed), InvalidFilter, UnknownColumn.

        Example:
            >>> table.create_index("by_country", "value_set", "country").coverage.not_indexed
            4
        """
        return self._lake.run(
            create_index_call(self._name, name, kind, expression, options or {}, time_zone), idempotency_key
        )

    def drop_index(self, name: str, *, idempotency_key: str | None = None) -> IndexInfo:
        """Drop an index; it is no longer used, and can be restored. Raises IndexNotFound.

        Example:
            >>> index = table.drop_index("by_customer")
            >>> table.indexes()
            ()
        """
        return self._lake.run(drop_index_call(self._name, name), idempotency_key)

    def restore_index(self, name: str, *, idempotency_key: str | None = None) -> IndexInfo:
        """Restore a dropped index with all its parts. Raises IndexNotFound.

        Example:
            >>> index = table.drop_index("by_customer")
            >>> table.restore_index("by_customer").dropped_ms is None
            True
        """
        return self._lake.run(restore_index_call(self._name, name), idempotency_key)

    def vacuum_index(self, name: str, *, idempotency_key: str | None = None) -> IndexInfo:
        """Remove a dropped index permanently. Raises IndexNotFound, also when the index is in use.

        Example:
            >>> index = table.drop_index("by_customer")
            >>> table.vacuum_index("by_customer").name
            'by_customer'
            >>> table.indexes(dropped=True)
            ()
        """
        return self._lake.run(vacuum_index_call(self._name, name), idempotency_key)

    def refresh_index(
        self,
        name: str,
        mode: RefreshMode = "incremental",
        *,
        max_blocks: int | None = None,
        max_ms: float | None = None,
        on_part: OnRefresh | None = None,
    ) -> RefreshAnswer:
        """Refresh an index.

        ``mode``: index the blocks that it does not cover ("incremental"), all blocks again ("full"), or only blocks
        whose files have filters that it can use ("quick").

        A refresh runs in parts of at most ``max_blocks`` and about ``max_ms``. Each part is committed when it is done
        and passed to ``on_part``; if a refresh is interrupted, the next one continues it. ``left_out`` in the answer
        lists the blocks that could not be indexed, and why.

        Raises IndexNotFound, InvalidRequest, SnapshotExpired (it took longer than the table keeps snapshots),
        StoreError.

        Example:
            >>> index = table.create_index("by_country", "value_set", "country")
            >>> table.refresh_index("by_country").indexed
            4
        """
        parts: list[RefreshAnswer] = []
        request: RefreshRequest | None = RefreshRequest(mode=mode, max_blocks=max_blocks, max_ms=max_ms)
        while request is not None:
            parts.append(self._lake.run(refresh_index_call(self._name, name, request)))
            if on_part is not None:
                on_part(parts[-1])
            request = next_refresh_request(request, parts[-1])
        return merged_refresh(parts)

    def add_index_parts(
        self, name: str, index_id: str, parts: Sequence[PartSent], *, idempotency_key: str | None = None
    ) -> PartsAnswer:
        """Add parts that were built elsewhere; see :func:`lamella.client.spark.build_index`.

        Raises IndexNotFound, InvalidRequest (a part belongs to another index), ObjectNotFound.
        """
        request = PartsRequest(parts=tuple(parts), index_id=index_id)
        return self._lake.run(add_index_parts_call(self._name, name, request), idempotency_key)

    def optimise_index(
        self, name: str, *, max_ms: float | None = None, on_part: OnOptimise | None = None
    ) -> OptimiseAnswer:
        """Regroup an index's parts so that each covers the blocks of one segment, and no removed blocks.

        Raises IndexNotFound, InvalidRequest, StoreError.

        Example:
            >>> table.optimise_index("by_customer").remaining
            0
        """
        parts: list[OptimiseAnswer] = []
        while not parts or parts[-1].remaining:
            parts.append(self._lake.run(optimise_index_call(self._name, name, OptimiseRequest(max_ms=max_ms))))
            if on_part is not None:
                on_part(parts[-1])
        return merged_optimise(parts)


class LakeIndexes:
    """The kinds of indexes; a part of :class:`lamella.client.Lamella`."""

    def index_kinds(self: CallRunner) -> tuple[IndexKind, ...]:
        """The kinds of skip indexes that the service knows, with their options.

        Example:
            >>> [kind.name for kind in lake.index_kinds()]
            ['affix', 'bloom', 'keys', 'minmax', 'ngram', 'nulls', 'ranges', 'value_set']
        """
        return self.run(index_kinds_call()).kinds
