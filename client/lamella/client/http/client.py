"""The client of a Lamella service, and the handle of a table."""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from lamella.client.http import call as calls
from lamella.client.http import past
from lamella.client.http.advising import AdvisedTable
from lamella.client.http.aggregated import Aggregated
from lamella.client.http.call import Call, Filter, TableName
from lamella.client.http.exchange import Exchange, Outcome, Send
from lamella.client.http.following import FollowingLake, FollowingTable
from lamella.client.http.history import TableHistory
from lamella.client.http.holding import Holding
from lamella.client.http.indexing import IndexedLake, IndexedTable
from lamella.client.http.maintenance import MaintainedLake, MaintainedTable
from lamella.client.http.pool import PooledTransport
from lamella.client.http.pruned import Pruned
from lamella.client.http.pruning import Asked, batch_body, next_page, prune_call
from lamella.client.http.reporting import ReportingTable
from lamella.client.http.resolving import Addresses, ResolvingTable
from lamella.client.http.retry import RetryPolicy
from lamella.client.http.stages import OrderSpec, merged, read_order, stages
from lamella.client.http.transport import Transport, TransportFailure
from lamella.client.http.verifying import VerifiedTable
from lamella.snapshot import wire
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block, Segment, Snapshot
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import SchemaChange

if TYPE_CHECKING:
    from lamella.client.scan import Scan
    from lamella.snapshot.layout import Store

Answer = TypeVar("Answer")


class Lamella(MaintainedLake, IndexedLake, FollowingLake):
    """A Lamella service: ``lake = Lamella("http://127.0.0.1:8181")``.

    Safe to share between threads. Every method raises a :class:`~lamella.snapshot.errors.LamellaError`: the class
    that the service's answer names, :class:`~lamella.snapshot.errors.Unavailable` when there is no answer after all
    tries, or :class:`~lamella.snapshot.errors.OutcomeUnknown` when a change may have been made all the same. The
    latter carries the ``idempotency_key``; the same call with that key is safe, however often.

    ``token``: sent as a bearer token. ``timeout_s``: the longest wait for a connection and for each next piece of an
    answer, per try. ``policy``: the tries. ``transport``: another way to send requests (see
    :mod:`lamella.client.http.testing`); it is closed with the client. ``sleep``, ``jitter`` and ``ids`` are the
    outside world, for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
        policy: RetryPolicy | None = None,
        transport: Transport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        ids: Ids | None = None,
    ) -> None:
        #: Addresses of blocks, for answers of shape "ranges".
        self.addresses = Addresses()
        self._exchange = Exchange(url, token=token, policy=policy, ids=ids, jitter=jitter)
        self._transport: Transport = transport if transport is not None else PooledTransport(url, timeout_s=timeout_s)
        self._sleep = sleep

    @property
    def url(self) -> str:
        """The service's base URL."""
        return str(self._exchange.address)

    def config(self) -> wire.ServiceConfig:
        """The service's version and limits, and how long an idempotency key can be used."""
        return self.run(calls.config())

    def namespaces(self) -> tuple[wire.NamespaceInfo, ...]:
        """All namespaces."""
        return self.run(calls.namespaces()).namespaces

    def create_namespace(
        self, name: str, properties: Mapping[str, str] | None = None, *, idempotency_key: str | None = None
    ) -> wire.NamespaceInfo:
        """Make a namespace; raises AlreadyExists."""
        return self.run(calls.create_namespace(name, properties or {}), idempotency_key)

    def drop_namespace(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop an empty namespace; raises NamespaceNotFound, NamespaceNotEmpty."""
        self.run(calls.drop_namespace(name), idempotency_key)

    def tables(self, namespace: str) -> tuple[str, ...]:
        """The names of a namespace's tables; raises NamespaceNotFound."""
        return self.run(calls.tables(namespace)).tables

    def create_table(
        self,
        name: str,
        *,
        schema: Schema | Sequence[Column] | None = None,
        schema_from: str | None = None,
        cluster_key: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> wire.TableInfo:
        """Make the table ``namespace.name``, from columns or from the URL of a Parquet file.

        Raises AlreadyExists, NamespaceNotFound, InvalidSchema, UnknownColumn (in the cluster key), NotParquet.
        """
        call = calls.create_table(TableName.parse(name), schema, schema_from, cluster_key, properties or {})
        return self.run(call, idempotency_key)

    def drop_table(self, name: str, *, purge: bool = False, idempotency_key: str | None = None) -> None:
        """Drop a table; it can be undropped for a time. Raises TableNotFound.

        ``purge``: it cannot; the next vacuum removes what the service wrote for it.
        """
        self.run(past.drop_table(TableName.parse(name), purge), idempotency_key)

    def dropped_tables(self, namespace: str) -> tuple[wire.DroppedTable, ...]:
        """The tables of a namespace that can be undropped, newest drop first; raises NamespaceNotFound."""
        return self.run(past.dropped_tables(namespace)).tables

    def undrop_table(
        self,
        name: str,
        *,
        table_id: str | None = None,
        as_name: str | None = None,
        idempotency_key: str | None = None,
    ) -> wire.TableInfo:
        """Bring a dropped table back, with its history and tags.

        ``name``: ``namespace.table`` as it was, the last one dropped of that name; ``as_name``: a new table name.
        With ``table_id`` it is that table, whatever it was called, and ``name`` is what it gets.

        Raises TableNotFound, NamespaceNotFound, AlreadyExists (the name is taken).
        """
        return self.run(past.undrop_table(TableName.parse(name), table_id, as_name), idempotency_key)

    def table(self, name: str) -> Table:
        """The handle of ``namespace.name`` (the table is what follows the last dot); asks nothing of the service."""
        return Table(self, TableName.parse(name))

    def close(self) -> None:
        """Give back the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Lamella({self.url!r})"

    def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call of :mod:`lamella.client.http.call`, with retries."""
        steps = self._exchange.steps(call, idempotency_key)
        outcome: Outcome | None = None
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, Send):
                    try:
                        outcome = self._transport.send(step.request)
                    except TransportFailure as failure:
                        outcome = failure
                else:
                    self._sleep(step.delay_s)
                    outcome = None
        except StopIteration as done:
            answer: Answer = done.value
            return answer


class Table(
    MaintainedTable,
    IndexedTable,
    FollowingTable,
    ReportingTable,
    AdvisedTable,
    TableHistory,
    VerifiedTable,
    ResolvingTable,
):
    """One table of a service; made by :meth:`Lamella.table`. Holds no state but its name."""

    def __init__(self, lake: Lamella, name: TableName) -> None:
        self._lake = lake
        self._name = name
        self._addresses = lake.addresses

    @property
    def namespace(self) -> str:
        """The namespace's name."""
        return self._name.namespace

    @property
    def name(self) -> str:
        """The table's own name."""
        return self._name.table

    def info(self) -> wire.TableInfo:
        """The table as it stands; raises TableNotFound."""
        return self._lake.run(calls.table(self._name))

    def schema(self) -> wire.SchemaInfo:
        """The table's columns, now and before; raises TableNotFound."""
        return self._lake.run(calls.schema(self._name))

    def evolve(
        self,
        changes: Sequence[SchemaChange],
        *,
        base_schema_id: int | None = None,
        idempotency_key: str | None = None,
    ) -> wire.SchemaInfo:
        """Change the table's columns, in one new snapshot: all changes in order, or none. No file is written again.

        ``changes``: :class:`~lamella.snapshot.schema.evolution.AddColumn` and the like. ``base_schema_id``: only if
        that schema is in force.

        Raises UnknownColumn, InvalidSchema, InvalidRequest (nothing would change), SchemaConflict, TableNotFound.
        """
        return self._lake.run(calls.evolve(self._name, changes, base_schema_id), idempotency_key)

    def register(
        self,
        paths: Sequence[str],
        *,
        strict: bool = False,
        verify: bool = False,
        idempotency_key: str | None = None,
    ) -> wire.RegisterAnswer:
        """Append Parquet files that exist, named by file, directory or glob URLs as the service sees them.

        Files that cannot be taken are in the answer's ``refused``. When none could be taken, or with ``strict`` when
        one could not, raises BlocksRefused, or DuplicateBlock when all of those are in the table already; ``refused``
        in its details lists them. Raises StoreError when the store itself was in the way.

        ``verify``: the service reads every value and takes the statistics from them: for files whose writer is not to
        be trusted, and for what footers leave out (exact bounds, NaN, INT96).
        """
        return self._lake.run(calls.register(self._name, paths, strict, verify), idempotency_key)

    def commit(
        self,
        added: Iterable[Block | Mapping[str, Any]] = (),
        removed: Sequence[str] = (),
        base_snapshot_id: str | None = None,
        operation: str = "append",
        properties: Mapping[str, str] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> wire.CommitAnswer:
        """Add blocks with their statistics, remove blocks by location, in one new snapshot.

        Raises DuplicateBlock, CommitConflict (blocks to be removed are gone), ObjectNotFound.
        """
        call = calls.commit(self._name, added, removed, base_snapshot_id, operation, properties or {})
        return self._lake.run(call, idempotency_key)

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """The manifest of a snapshot, by id or tag; raises SnapshotNotFound."""
        return self._lake.run(calls.snapshot(self._name, snapshot_id))

    def segment(self, segment_id: str, *, snapshot_id: str | None = None) -> Segment:
        """The manifest of a segment of a snapshot, by default the current one.

        Raises SegmentNotFound, SnapshotNotFound.
        """
        return self._lake.run(calls.segment(self._name, segment_id, snapshot_id))

    def prune(
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
    ) -> Pruned:
        """The blocks that may hold a row for which ``filter`` is true, and how they were found.

        ``filter``: SQL text in Spark's dialect, or a JSON tree. ``columns``: what will be read, for
        ``column_size_bytes``. At most one of ``snapshot_id`` (an id or a tag) and ``timestamp`` (Unix milliseconds,
        ISO 8601 text or an aware datetime). ``time_zone``: for timestamps in the filter that have none.

        ``limit``: so many matching rows are enough, any of them, or the first ones of ``order_by`` (``"a DESC, b"``);
        then the blocks come best first. ``join``: only rows whose key is among these can matter (see
        :mod:`lamella.client.join`). ``residuals``: what is left of the filter in each block. ``segments``: look at
        these only. ``max_ms``: a time budget; see ``complete`` and ``unresolved`` of the answer. ``page_size``: fetch
        the answer in pages of so many blocks; they are put together again (:meth:`prune_pages` gives them one by one).

        Raises InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded, TableNotFound, SnapshotNotFound.
        """
        behind = stages(limit, order_by, join, residuals, segments, max_ms, page_size)
        call = calls.prune(
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
        return self._lake.run(call) if page_size is None else merged(list(self._pages(call)))

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
        workers: int = 8,
        progress: bool = False,
        lease: bool = True,
        feedback: bool = False,
    ) -> Scan:
        """The rows for which ``filter`` is true: ``.to_arrow()``, ``.to_batches()``, ``.count()``; ``.plan`` says why.

        ``columns``: names, of fields inside structs too (``"s.x"``); None: all. ``limit``: no more rows than that, any
        of them, or the first ones of ``order_by`` (``"a DESC, b"``). What the rest of the filter means is said at
        :meth:`prune`; every row is decided by Spark SQL's rules in its ANSI mode, or FilterNotEvaluable is raised.

        ``changes_since``: only rows of blocks that came after that snapshot (an id or a tag); NotAppendOnly when
        blocks were removed since, for then the rows that are new cannot be told.

        The files are read from here, at the blocks' own locations: ``storage_options`` are fsspec's by scheme
        (``{"s3": {"endpoint_url": ...}}``), ``store`` is another store altogether. ``workers``: row groups read at a
        time, with twice as many requests under way. ``progress``: a bar on stderr. ``lease``: while rows are read for
        longer than ten minutes, hold the snapshot, so that a clean-up leaves its files alone. ``feedback``: tell the
        service which blocks were read without finding a row, if the table wants to know; see ``docs/feedback.md``.
        """
        from lamella.client.scan import Request, Scan, open_store

        request = Request(
            filter=filter,
            columns=None if columns is None else calls.texts("columns", columns),
            limit=limit,
            order_by=read_order(order_by),
            snapshot_id=snapshot_id,
            timestamp=timestamp,
            time_zone=time_zone,
            case_sensitive=case_sensitive,
        )
        only = None if changes_since is None else partial(self._added, changes_since)
        opened = open_store(store, storage_options)
        hold = partial(Holding.of_snapshot, self) if lease else None
        report = None
        if feedback and filter is not None:
            report = partial(self._told, filter, time_zone, case_sensitive)
        return Scan(self, request, opened, workers=workers, progress=progress, only=only, hold=hold, report=report)

    def _told(
        self, filter: Filter, time_zone: str, case_sensitive: bool, snapshot_id: str, locations: list[str]
    ) -> None:
        with suppress(LamellaError):  # a favour to others: the rows are here already
            self.report_empty(
                filter, locations, snapshot_id=snapshot_id, time_zone=time_zone, case_sensitive=case_sensitive
            )

    def _added(self, since: str, until: str) -> set[str]:
        """Locations of the blocks that came between two snapshots."""
        found = self.changes(since, until, net=True, append_only=True)
        return {block.location for changes in found for block in changes.added}

    def prune_pages(
        self, filter: Filter = None, columns: Sequence[str] | None = None, *, page_size: int, **asked: Unpack[Asked]
    ) -> Iterator[Pruned]:
        """As :meth:`prune`, page by page as it is iterated: at most ``page_size`` blocks at a time.

        All pages are of one snapshot, that of the first, and together they are the whole answer: nothing is missing
        and nothing is there twice, whatever is committed meanwhile.
        """
        return self._pages(prune_call(self._name, filter, columns, page_size, asked))

    def _pages(self, first: Call[Pruned]) -> Iterator[Pruned]:
        call: Call[Pruned] | None = first
        while call is not None:
            page = self._lake.run(call)
            yield page
            call = next_page(first, page)

    def prune_batch(
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
    ) -> tuple[Pruned, ...]:
        """The answers to many filters over one snapshot, in their order; each segment is read once for all of them.

        The rest, and the errors, as of :meth:`prune`; ``filter`` in an error's details is the filter's number.
        """
        body = batch_body(
            filters, columns, snapshot_id, timestamp, time_zone, case_sensitive, shape, explain, residuals
        )
        return (self._lake.run(calls.prune_batch(self._name, body))).answers

    def diff(
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
    ) -> wire.DiffAnswer:
        """The blocks that may match ``filter`` and that only one of two snapshots has.

        Each is named by its id or a tag, or by a time; the second is the current one unless it is named. Names and
        types in the filter are those of the newer snapshot. Raises as :meth:`prune`.
        """
        body = wire.DiffRequest(
            from_snapshot_id=from_snapshot_id,
            to_snapshot_id=to_snapshot_id,
            from_timestamp=calls.timestamp_of(from_timestamp),
            to_timestamp=calls.timestamp_of(to_timestamp),
            filter=filter,
            columns=None if columns is None else tuple(columns),
            time_zone=time_zone,
            case_sensitive=case_sensitive,
        )
        return self._lake.run(calls.diff(self._name, body))

    def aggregate(
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
    ) -> Aggregated:
        """Counts, least and greatest values of the rows that match ``filter``, as far as statistics prove them.

        ``aggregates``: ``count(*)``, ``count(c)``, ``min(c)``, ``max(c)``. ``mode`` "exact": ``groups`` hold what is
        proven, ``scan`` the blocks whose matching rows are still to be added (none when ``complete``); "bounded": what
        the true values lie between, and nothing to scan. The rest as of :meth:`prune`.

        Raises as :meth:`prune`, and InvalidRequest for an aggregate that is none of these.
        """
        call = calls.aggregate(
            self._name, aggregates, filter, group_by, mode, snapshot_id, timestamp, time_zone, case_sensitive
        )
        return self._lake.run(call)

    def __str__(self) -> str:
        return str(self._name)

    def __repr__(self) -> str:
        return f"{self._lake!r}.table({str(self._name)!r})"
