# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/blocks.py: change that file.
"""Methods of a table that look up blocks and plan rewrites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from lamella.client.http.blocks import (
    AddressCache,
    PlanOptions,
    blocks_calls,
    join_answers,
    plan_call,
    ranges_of,
    resolve_ranges,
    segment_blocks_call,
)
from lamella.client.http.call import TableName
from lamella.client.http.results import PruneResult
from lamella.client.http.sync.runner import CallRunner
from lamella.snapshot.wire import BlocksAnswer, PlanAnswer, RewriteJob


class TableAddresses:
    """Block addresses by segment and number; a part of :class:`lamella.client.http.Table`."""

    _lake: CallRunner
    _name: TableName
    _addresses: AddressCache

    def resolve(self, pruned: PruneResult, *, reader_features: Sequence[str] = ()) -> PruneResult:
        """Convert an answer of ``shape`` "ranges" to ``shape`` "columns".

        The client fetches the addresses of a segment once and caches them. ``reader_features``: as in the request for
        the answer. Raises InvalidRequest (the answer has another shape), SnapshotExpired (the answer's snapshot is
        gone), ReaderFeatureMissing.

        Example:
            >>> ranges = table.prune("price > 99.5", shape="ranges")
            >>> len(table.resolve(ranges).locations)
            2
        """
        segments = {}
        for segment_id in ranges_of(pruned).segment_id:
            blocks = self._addresses.get(segment_id)
            if blocks is None:
                call = segment_blocks_call(self._name, segment_id, pruned.snapshot_id, reader_features)
                blocks = self._lake.run(call)
                self._addresses.put(blocks)
            segments[segment_id] = blocks
        return resolve_ranges(pruned, segments)


class TableBlocks:
    """Methods of a table for rewrite jobs; a part of :class:`lamella.client.http.Table`."""

    _lake: CallRunner
    _name: TableName

    def plan(self, job: RewriteJob, **options: Unpack[PlanOptions]) -> PlanAnswer:
        """The blocks that a job would rewrite now, and the gain; see :class:`lamella.snapshot.wire.PlanRequest`.

        Raises TableNotFound, SnapshotNotFound, InvalidRequest (a recluster of a table without a cluster key),
        InvalidFilter.

        Example:
            >>> plan = table.plan("compact")
            >>> [len(task.blocks) for task in plan.tasks]
            [4]
        """
        return self._lake.run(plan_call(self._name, job, options))

    def blocks(
        self,
        locations: Sequence[str],
        *,
        snapshot_id: str | None = None,
        sign_urls: bool = False,
        reader_features: Sequence[str] = (),
    ) -> BlocksAnswer:
        """Look up blocks by location; with ``snapshot_id`` None each request sees the current snapshot.

        ``sign_urls``, ``reader_features``: as in :meth:`prune`. Raises TableNotFound, SnapshotNotFound,
        ReaderFeatureMissing; with ``sign_urls`` NotSignable, LocationRefused, LimitExceeded.

        Example:
            >>> pruned = table.prune("price > 125")
            >>> [block.row_count for block in table.blocks(pruned.locations).blocks]
            [3]
        """
        found = blocks_calls(self._name, locations, snapshot_id, sign_urls=sign_urls, reader_features=reader_features)
        return join_answers([self._lake.run(call) for call in found])
