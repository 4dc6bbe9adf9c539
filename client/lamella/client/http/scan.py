"""Table scans: the service plans them, and the client reads the rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from lamella.client.filters import plain_filter
from lamella.client.http.call import Filter, text_tuple
from lamella.client.http.maintenance import SnapshotLease
from lamella.client.http.prune_request import OrderSpec, read_order
from lamella.client.http.sync.methods import TableMethods
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.manifest import FEATURES

if TYPE_CHECKING:
    from lamella.client.scan import RowChanges, Scan
    from lamella.client.scan.plan import Planner
    from lamella.client.scan.scan import OpenStore
    from lamella.snapshot.storage import Store


class TableScan(TableMethods):
    """The rows of a table; a part of :class:`lamella.client.http.Table`."""

    def scan(
        self,
        filter: Filter = None,
        columns: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        order_by: OrderSpec = (),
        snapshot_id: str | None = None,
        timestamp: int | str | dt.datetime | None = None,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
        changes_since: str | None = None,
        store: Store | None = None,
        storage_options: Mapping[str, Mapping[str, Any]] | None = None,
        signed_urls: bool = False,
        workers: int = 8,
        progress: bool = False,
        lease: bool = True,
        feedback: bool = False,
    ) -> Scan:
        """The rows for which ``filter`` is true; ``.plan`` says why. Read by a method of the scan:

        ``.to_arrow()``, ``.to_batches()``, ``.to_reader()``, ``.to_pandas()``, ``.to_polars()``, ``.to_duckdb()``,
        ``.to_dask()``, ``.fragments()``, ``.count()``; or by another engine whose filters prune: ``.to_lazyframe()``,
        ``.to_pyarrow_dataset()``, ``.to_datafusion()``, ``.to_ray()``, ``.to_daft()``; see
        :class:`lamella.client.scan.Scan`.

        ``columns``: names, also of struct fields (``"s.x"``); None: all. ``limit``: return at most this many rows: any
        rows, or the first rows in the order of ``order_by`` (``"a DESC, b"``). The other arguments are described at
        :meth:`prune`. Every row is evaluated by Spark SQL's rules in ANSI mode; raises FilterNotEvaluable when that is
        not possible.

        ``changes_since``: only rows of blocks that were added after this snapshot (an id, tag or number). Raises
        NotAppendOnly when blocks were removed since, because the new rows cannot be identified then.

        The client reads the files at the blocks' locations: ``storage_options`` are the options of fsspec by scheme
        (``{"s3": {"endpoint_url": ...}}``), ``store`` is another store. ``signed_urls``: read by URLs that the service
        signs, without credentials for the store; see ``docs/data-access.md``. ``workers``: the number of row groups
        that are read concurrently; twice as many requests may be in flight. ``progress``: show a progress bar on
        stderr. ``lease``: hold the snapshot when reading takes longer than ten minutes, so that a vacuum keeps its
        files. ``feedback``: report blocks that were read without finding a row, if the table accepts such reports; see
        ``docs/feedback.md``.

        Example:
            >>> table.scan("price > 125", ["id", "price"]).to_arrow().to_pylist()
            [{'id': 13, 'price': 130.0}, {'id': 14, 'price': 140.0}, {'id': 15, 'price': 150.0}]
        """
        from lamella.client.scan import Request, Scan, open_store

        filter = plain_filter(filter, time_zone)
        request = Request(
            filter=filter,
            columns=None if columns is None else text_tuple("columns", columns),
            limit=limit,
            order_by=read_order(order_by),
            snapshot_id=snapshot_id,
            timestamp=timestamp,
            time_zone=time_zone,
            case_sensitive=case_sensitive,
        )
        only = None if changes_since is None else partial(self._added, changes_since)
        planner, opened = (
            self._signed(store, storage_options) if signed_urls else (self, open_store(store, storage_options))
        )
        hold = partial(SnapshotLease.of_snapshot, self) if lease else None
        report = None
        if feedback and filter is not None:
            report = partial(self._report_empty, filter, time_zone, case_sensitive)
        return Scan(
            planner,
            request,
            opened,
            workers=workers,
            progress=progress,
            only=only,
            hold=hold,
            report=report,
            stores=self._stores if signed_urls else None,
        )

    def row_changes(
        self,
        since: str | None = None,
        until: str | None = None,
        filter: Filter = None,
        columns: Sequence[str] | None = None,
        *,
        keys: Sequence[str] = (),
        since_timestamp: int | str | dt.datetime | None = None,
        until_timestamp: int | str | dt.datetime | None = None,
        net: bool = False,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
        store: Store | None = None,
        storage_options: Mapping[str, Mapping[str, Any]] | None = None,
        workers: int = 8,
        progress: bool = False,
    ) -> RowChanges:
        """The rows that came and went after ``since`` (an id, tag or number) up to ``until``, snapshot by snapshot.

        ``.to_arrow()``, ``.to_batches()``, ``.to_pandas()`` and the other methods of a scan return them with the
        columns of the last snapshot and three more: ``_change_type`` ("insert" or "delete"), ``_commit_version`` (the
        number of the snapshot in the history) and ``_commit_timestamp``. Rows that a rewrite carried over are not among
        them, and a compaction has none. To continue later, pass ``.until`` as ``since``.

        ``keys``: columns that identify a row. One deleted and one inserted row of a snapshot with the same key are then
        "update_preimage" and "update_postimage". ``net``: only the difference between the two ends. ``filter``: only
        rows for which it is true. The other arguments are described at :meth:`scan`.

        Raises SnapshotExpired when a snapshot in between is no longer in the history (``net`` needs only the two ends).

        Example:
            >>> rows = table.row_changes(since="may").to_arrow()
            >>> rows.select(["id", "_change_type"]).to_pylist()[0]
            {'id': 13, '_change_type': 'insert'}
        """
        from lamella.client.scan import ChangesRequest, RowChanges, open_store

        request = ChangesRequest(
            since=since,
            until=until,
            since_timestamp=since_timestamp,
            until_timestamp=until_timestamp,
            filter=plain_filter(filter, time_zone),
            columns=None if columns is None else text_tuple("columns", columns),
            keys=text_tuple("keys", keys),
            net=net,
            time_zone=time_zone,
            case_sensitive=case_sensitive,
        )
        return RowChanges(self, request, open_store(store, storage_options), workers=workers, progress=progress)

    def _signed(
        self, store: Store | None, storage_options: Mapping[str, Mapping[str, Any]] | None
    ) -> tuple[Planner, Store]:
        from lamella.client.presigned import BlockUrls, SignedPlanner, UrlStore, url_source

        if store is not None or storage_options is not None:
            raise InvalidRequest("with signed_urls, store and storage_options cannot be given")
        urls = BlockUrls(url_source(self._lake, self._name))
        return SignedPlanner(self, self._lake, self._name, urls), UrlStore(urls)

    def _stores(self, snapshot_id: str, locations: Sequence[str]) -> list[OpenStore]:
        """A store for each block, with a new URL."""
        from lamella.client.presigned import BlockUrls, SignedBlocks, url_source

        urls = BlockUrls(url_source(self._lake, self._name))
        urls.begin(snapshot_id, locations)
        signed = ((location, urls.of(location)) for location in locations)
        return [
            partial(
                SignedBlocks(
                    service_url=self._lake.url,
                    table=str(self._name),
                    snapshot_id=snapshot_id,
                    urls=(block.url,),
                    sizes=(block.size_bytes,),
                    deletes=(block.deletes,),
                ).store,
                (location,),
            )
            for location, block in signed
        ]

    def _report_empty(
        self, filter: Filter, time_zone: str, case_sensitive: bool, snapshot_id: str, locations: list[str]
    ) -> None:
        with suppress(LamellaError):  # feedback only helps later readers; these rows are read already
            self.report_empty(
                filter, locations, snapshot_id=snapshot_id, time_zone=time_zone, case_sensitive=case_sensitive
            )

    def _added(self, since: str, until: str) -> set[str]:
        """Locations of the blocks that were added between two snapshots."""
        found = self.changes(since, until, net=True, append_only=True, reader_features=FEATURES)
        return {block.location for changes in found for block in changes.added}
