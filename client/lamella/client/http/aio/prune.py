"""Methods of a table that are answered from statistics: prunes, differences, aggregates."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Sequence
from typing import Unpack

from lamella.client.http.aio.runner import AsyncCallRunner
from lamella.client.http.blocks import ranges_of
from lamella.client.http.call import Call, Filter, TableName
from lamella.client.http.layer_map import TableMap, axis_of, is_small, map_of
from lamella.client.http.prune_request import (
    OrderSpec,
    PruneOptions,
    aggregate_call,
    batch_body,
    diff_body,
    diff_call,
    first_page_call,
    merge_pages,
    next_page_call,
    prune_batch_call,
    prune_call,
    stages,
)
from lamella.client.http.results import AggregateResult, PruneResult
from lamella.client.http.tables import segment_call, snapshot_call
from lamella.snapshot import wire
from lamella.snapshot.manifest import FEATURES


class AsyncTablePrune:
    """Which blocks a query must read; a part of :class:`lamella.client.http.AsyncTable`."""

    _lake: AsyncCallRunner
    _name: TableName

    async def prune(
        self,
        filter: Filter = None,
        columns: Sequence[str] | None = None,
        *,
        snapshot_id: str | None = None,
        timestamp: int | str | dt.datetime | None = None,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
        level: wire.Level = "block",
        shape: wire.Shape = "columns",
        explain: bool = False,
        reader_columns: Sequence[str] = (),
        limit: int | None = None,
        order_by: OrderSpec = (),
        join: wire.JoinKeys | Sequence[wire.JoinKeys] = (),
        residuals: bool = False,
        segments: Sequence[str] | None = None,
        max_ms: float | None = None,
        page_size: int | None = None,
        sign_urls: bool = False,
        reader_features: Sequence[str] = (),
    ) -> PruneResult:
        """The blocks that may hold a row for which ``filter`` is true, and a report of the pruning.

        ``filter``: SQL text in Spark's dialect, a JSON tree, or an expression (``col("a") > 4``, also of pyarrow and
        Polars; see ``docs/python.md``). ``columns``: the columns that will be read, for
        ``column_size_bytes``. Give at most one of ``snapshot_id`` (an id, tag or number) and ``timestamp`` (Unix
        milliseconds, ISO 8601 text or an aware datetime). ``time_zone``: for timestamps in the filter that have none.

        ``limit``: this many matching rows are enough: any rows, or the first rows in the order of ``order_by``
        (``"a DESC, b"``); the blocks are then returned best first. ``join``: only rows with one of these keys matter
        (see :mod:`lamella.client.join`). ``residuals``: return the part of the filter that is undecided for each block.
        ``segments``: prune only these segments. ``max_ms``: a time budget; see ``complete`` and ``unresolved`` in the
        answer. ``page_size``: fetch the answer in pages of this many blocks and merge them (:meth:`prune_pages` returns
        the pages). ``sign_urls``: add to each block a URL that reads it without credentials until ``url_expires_ms``.
        Anyone who has the URL can read the block, so keep it out of logs. The service limits the number of URLs in an
        answer. ``reader_features``: what the caller supports when it reads the blocks, such as ``"constants"``; a table
        that requires more gives no blocks (see ``docs/reader-features.md``).

        Raises InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded, TableNotFound, SnapshotNotFound,
        ReaderFeatureMissing; with ``sign_urls`` NotSignable and LocationRefused.

        Example:
            >>> pruned = await table.prune((col("price") > 99.5) & col("country").is_in(["DE", "FR"]))
            >>> pruned.block_count, pruned.report.blocks_total
            (2, 4)
        """
        behind = stages(limit, order_by, join, residuals, segments, max_ms, page_size, sign_urls, reader_features)
        call = prune_call(
            self._name,
            filter,
            columns,
            snapshot_id,
            timestamp,
            time_zone,
            case_sensitive,
            level,
            shape,
            explain,
            reader_columns,
            behind,
        )
        if page_size is None:
            return await self._lake.run(call)
        return merge_pages([page async for page in self._pages(call)])

    async def layer_map(
        self,
        filter: Filter = None,
        *,
        column: str | None = None,
        snapshot_id: str | None = None,
        time_zone: str = "UTC",
    ) -> TableMap:
        """A picture of the table's segments and blocks, and of which of them ``filter`` selects. Notebooks show it.

        ``column``: whose values the blocks lie along; by default the first column of the cluster key. A table with more
        than 1,000 blocks or 32 segments is shown by its segments. ``snapshot_id``: an id, tag or number;
        ``time_zone``: for timestamps in the filter that have none.

        Raises InvalidFilter, FilterTypeMismatch, UnknownColumn, TableNotFound, SnapshotNotFound; InvalidRequest for a
        column without minimum and maximum.

        Example:
            >>> found = await table.layer_map("price > 99.5")
            >>> found.selected_blocks, found.block_count, found.column
            (2, 4, 'day')
        """
        everything = await self._ranges(None, snapshot_id, time_zone)
        selected = everything if filter is None else await self._ranges(filter, everything.snapshot_id, time_zone)
        snapshot = await self._lake.run(snapshot_call(self._name, everything.snapshot_id))
        leaf, segments = axis_of(snapshot, column), {}
        if is_small(everything) and leaf is not None:
            for segment_id in ranges_of(everything).segment_id:
                call = segment_call(self._name, segment_id, everything.snapshot_id, FEATURES)
                segments[segment_id] = await self._lake.run(call)
        return map_of(everything, selected, leaf, segments)

    async def _ranges(self, filter: Filter, snapshot_id: str | None, time_zone: str) -> PruneResult:
        return await self.prune(
            filter, snapshot_id=snapshot_id, time_zone=time_zone, shape="ranges", reader_features=FEATURES
        )

    def prune_pages(
        self,
        filter: Filter = None,
        columns: Sequence[str] | None = None,
        *,
        page_size: int,
        **options: Unpack[PruneOptions],
    ) -> AsyncIterator[PruneResult]:
        """Like :meth:`prune`, page by page during iteration: at most ``page_size`` blocks at a time.

        All pages are of the first page's snapshot. Together they are the complete answer, without gaps or duplicates,
        even if others commit in between.

        Example:
            >>> [page.block_count async for page in table.prune_pages("price > 0", page_size=3)]
            [3, 1]
        """
        return self._pages(first_page_call(self._name, filter, columns, page_size, options))

    async def _pages(self, first: Call[PruneResult]) -> AsyncIterator[PruneResult]:
        call: Call[PruneResult] | None = first
        while call is not None:
            page = await self._lake.run(call)
            yield page
            call = next_page_call(first, page)

    async def prune_batch(
        self,
        filters: Sequence[Filter],
        columns: Sequence[str] | None = None,
        *,
        snapshot_id: str | None = None,
        timestamp: int | str | dt.datetime | None = None,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
        shape: wire.Shape = "columns",
        explain: bool = False,
        residuals: bool = False,
        reader_features: Sequence[str] = (),
    ) -> tuple[PruneResult, ...]:
        """The answers to several filters on one snapshot, in their order; each segment is read once for all filters.

        The other arguments and the errors are those of :meth:`prune`; ``filter`` in an error's details is the number of
        the filter.

        Example:
            >>> answers = await table.prune_batch(["price > 125", "customer = 'c1'"])
            >>> [answer.block_count for answer in answers]
            [1, 3]
        """
        body = batch_body(
            filters,
            columns,
            snapshot_id,
            timestamp,
            time_zone,
            case_sensitive,
            shape,
            explain,
            residuals,
            reader_features,
        )
        return (await self._lake.run(prune_batch_call(self._name, body))).answers

    async def diff(
        self,
        from_snapshot_id: str | None = None,
        to_snapshot_id: str | None = None,
        filter: Filter = None,
        columns: Sequence[str] | None = None,
        *,
        from_timestamp: int | str | dt.datetime | None = None,
        to_timestamp: int | str | dt.datetime | None = None,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
        reader_features: Sequence[str] = (),
    ) -> wire.DiffAnswer:
        """The blocks that may match ``filter`` and that only one of two snapshots has.

        A snapshot is given by id, tag or time; the second is by default the current one. Names and types in the filter
        are those of the newer snapshot. Raises the errors of :meth:`prune`.

        Example:
            >>> diff = await table.diff("may", filter="price > 99.5")
            >>> len(diff.added), len(diff.removed)
            (1, 0)
        """
        body = diff_body(
            from_snapshot_id,
            to_snapshot_id,
            from_timestamp,
            to_timestamp,
            filter,
            columns,
            time_zone,
            case_sensitive,
            reader_features,
        )
        return await self._lake.run(diff_call(self._name, body))

    async def aggregate(
        self,
        aggregates: Sequence[str],
        filter: Filter = None,
        *,
        group_by: Sequence[str] = (),
        mode: wire.AggregateMode = "exact",
        snapshot_id: str | None = None,
        timestamp: int | str | dt.datetime | None = None,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
        reader_features: Sequence[str] = (),
        max_scan_blocks: int | None = None,
    ) -> AggregateResult:
        """Counts, sums, minima and maxima of the rows that match ``filter``, as far as statistics prove them.

        ``aggregates``: ``count(*)``, ``count(c)``, ``min(c)``, ``max(c)``, ``sum(c)``. ``mode`` "exact": ``groups`` has
        what is proven, ``scan`` the blocks whose matching rows must still be added (none when ``complete``); "bounded":
        bounds of the true values, and nothing to scan. ``max_scan_blocks``: list these blocks only if they are not more
        than this; ``scan_blocks`` is their number. The other arguments are those of :meth:`prune`; ``reader_features``
        only matters if there is something to scan.

        To have the missing rows read as well, use ``scan(filter).aggregate(...)``.

        Raises the errors of :meth:`prune`, and InvalidRequest for any other aggregate.

        Example:
            >>> answer = await table.aggregate(["count(*)", "max(price)"], "day >= '2024-06-01'")
            >>> answer.complete
            True
        """
        call = aggregate_call(
            self._name,
            aggregates,
            filter,
            group_by,
            mode,
            snapshot_id,
            timestamp,
            time_zone,
            case_sensitive,
            reader_features,
            max_scan_blocks,
        )
        return await self._lake.run(call)
