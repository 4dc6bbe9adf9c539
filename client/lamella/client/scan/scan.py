"""A scan: planned by the service, read here."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
import pyarrow as pa

from lamella.client.scan.ahead import ahead
from lamella.client.scan.block_file import BlockFile
from lamella.client.scan.columns import Wanted, wanted_columns, wanted_leaf
from lamella.client.scan.emptiness import Emptiness
from lamella.client.scan.fetch import Fetcher
from lamella.client.scan.ordering import Ordering
from lamella.client.scan.piece import Piece, Reading, pieces
from lamella.client.scan.progress import Progress
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import Predicate, read_filter
from lamella.snapshot.feedback import is_enabled
from lamella.snapshot.layout import FsspecStore, Store
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.rows import RowFilter
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import Versioned, schema_at
from lamella.snapshot.wire import AggregateAnswer, BlockColumns, Level, OrderBy, PruneAnswer, PrunedBlock, TableInfo

_BATCH_ROWS: Final = 64 << 10
_Result = TypeVar("_Result")


class Planner(Protocol):
    """What a scan asks of a table; :class:`lamella.client.http.Table` is one."""

    def prune(
        self,
        filter: Any = None,
        *,
        snapshot_id: str | None,
        timestamp: int | str | dt.datetime | None,
        time_zone: str,
        case_sensitive: bool,
        level: Level,
        limit: int | None,
        order_by: Sequence[OrderBy],
    ) -> PruneAnswer:
        """The blocks that may hold matching rows, with their row ranges (``level`` "page")."""

    def aggregate(
        self,
        aggregates: Sequence[str],
        filter: Any = None,
        *,
        snapshot_id: str | None,
        timestamp: int | str | dt.datetime | None,
        time_zone: str,
        case_sensitive: bool,
    ) -> AggregateAnswer:
        """Counts as far as statistics prove them."""

    def info(self) -> TableInfo:
        """The table as it stands."""

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """One of its snapshots."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be read; see :meth:`lamella.client.http.Table.scan`.

    ``filter`` may be a :data:`lamella.snapshot.expression.Predicate` where the planner takes one.
    """

    filter: Any = None
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    order_by: tuple[OrderBy, ...] = ()
    snapshot_id: str | None = None
    timestamp: int | str | dt.datetime | None = None
    time_zone: str = "UTC"
    case_sensitive: bool = False

    def asked(self) -> dict[str, Any]:
        """What both planning and counting take."""
        return {
            "snapshot_id": self.snapshot_id,
            "timestamp": self.timestamp,
            "time_zone": self.time_zone,
            "case_sensitive": self.case_sensitive,
        }


class _Plan(msgspec.Struct, frozen=True):
    answer: PruneAnswer
    blocks: tuple[PrunedBlock, ...]
    versions: Versioned
    schema: Schema
    reading: Reading
    ordering: Ordering | None
    properties: Mapping[str, str]


class Scan:
    """The rows of a table that match a filter, in no particular order unless one was asked for.

    ``only``: which blocks of a snapshot, by its id, are read at all (their locations); None: whichever may match.
    ``hold``: what is entered while files of a snapshot are read, to keep it from expiring; None: nothing.
    ``report``: called with a snapshot's id and the locations of blocks that were read without finding a matching row,
    once all is read, for tables that want to know; None: nobody is told.

    Planned when it is first used, and then for good: what is committed later is not seen. Files are read anew by each
    method. Safe to share between threads.

    Every method raises what planning raises (InvalidFilter, UnknownColumn, FilterNotEvaluable, ...), and while reading
    BlockReplaced, ObjectNotFound, StoreError, NotParquet, SchemaMismatch and EvaluationFailed.
    """

    def __init__(
        self,
        table: Planner,
        request: Request,
        store: Store,
        *,
        workers: int,
        progress: bool,
        only: Callable[[str], AbstractSet[str]] | None = None,
        hold: Callable[[str], AbstractContextManager[object]] | None = None,
        report: Callable[[str, list[str]], object] | None = None,
    ) -> None:
        if workers < 1:
            raise InvalidRequest("a scan needs at least one worker", workers=workers)
        if request.limit is not None and request.limit < 0:
            raise InvalidRequest("a limit is not negative", limit=request.limit)
        self._table = table
        self._request = request
        self._store = store
        self._workers = workers
        self._progress = progress
        self._only = only
        self._hold = hold
        self._report = report
        self._lock = threading.Lock()
        self._made: _Plan | None = None

    @property
    def plan(self) -> PruneAnswer:
        """The service's answer: which blocks and rows are read, and how they were found."""
        return self._planned().answer

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out."""
        planned = self._planned()
        return _output_schema(planned.reading.schema, self._output_count(planned))

    def to_arrow(self) -> pa.Table:
        """All rows, in memory."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """The rows as they are read, at most 65,536 at a time; with an order, once all candidates were read."""
        planned = self._planned()
        tables = self._ordered(planned) if planned.ordering is not None else self._limited(planned)
        for table in tables:
            for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
                if batch.num_rows:
                    yield batch

    def count(self) -> int:
        """How many rows there are: from statistics alone where they prove it, else by reading the filter's columns."""
        request = self._request
        if self._made is None and self._only is None:
            answer = self._table.aggregate(["count(*)"], request.filter, **request.asked())
            if answer.complete:
                bound = answer.groups[0].values[0].value if answer.groups else None
                return self._at_most(0 if bound is None or bound.int64 is None else bound.int64)
        planned = self._planned()
        total = sum(block.row_count for block in planned.blocks if block.verdict == "ALL")
        others = tuple(block for block in planned.blocks if block.verdict != "ALL")
        total += sum(self._read(planned, others, Piece.count, counting=True))
        return self._at_most(total)

    def _at_most(self, count: int) -> int:
        limit = self._request.limit
        return count if limit is None else min(count, limit)

    def _limited(self, planned: _Plan) -> Iterator[pa.Table]:
        left = self._request.limit
        if left == 0:
            return
        for table in self._read(planned, planned.blocks, Piece.table):
            if left is not None and table.num_rows >= left:
                yield table.slice(0, left)
                return
            left = None if left is None else left - table.num_rows
            yield table

    def _ordered(self, planned: _Plan) -> Iterator[pa.Table]:
        ordering, limit = planned.ordering, self._request.limit
        if ordering is None or limit == 0:
            return
        best = planned.reading.schema.empty_table()
        waiting: list[pa.Table] = []
        bounds = {block.location: block.order_bound for block in planned.blocks}
        for location, table in self._read(planned, planned.blocks, _located):
            if limit is None:
                waiting.append(table)
                continue
            if ordering.is_complete(best, bounds[location], limit):
                break
            if table.num_rows:
                best = ordering.sorted(pa.concat_tables([best, table]), limit)
        if limit is None:
            best = ordering.sorted(pa.concat_tables([best, *waiting]), None)
        yield best.select(range(self._output_count(planned))).rename_columns(self.schema.names)

    def _output_count(self, planned: _Plan) -> int:
        count = len(planned.reading.output)
        return count if planned.ordering is None else count - len(planned.ordering.wanted)

    def _read(
        self,
        planned: _Plan,
        blocks: Sequence[PrunedBlock],
        read: Callable[[Piece, Reading, Fetcher], _Result],
        *,
        counting: bool = False,
    ) -> Iterator[_Result]:
        """What ``read`` makes of each piece of the blocks, in their order, some ahead of its use."""
        # An order needs all of a block's rows, but any rows of a block will do where there is none.
        limit = self._request.limit if planned.ordering is None and not counting else None
        emptiness = Emptiness()
        held = nullcontext() if self._hold is None or not blocks else self._hold(planned.answer.snapshot_id)
        with held, self._working(len(blocks)) as (pool, fetcher, progress):

            def opened(block: PrunedBlock) -> list[Piece]:
                written = planned.schema
                if block.schema_id is not None:
                    written = schema_at(planned.versions, block.schema_id)
                file = BlockFile(self._store, block, written, planned.schema)
                made = pieces(file, limit=limit, counting=counting)
                emptiness.opened(block.location, len(made))
                return made

            def done(piece: Piece) -> _Result:
                result = read(piece, planned.reading, fetcher)
                emptiness.read(piece.file.location, _row_count(result))
                return result

            def all_pieces() -> Iterator[Piece]:
                for made in ahead(pool, opened, blocks, self._workers):
                    progress.block()
                    yield from made

            for result in ahead(pool, done, all_pieces(), self._workers):
                progress.rows(result.num_rows if isinstance(result, pa.Table) else 0)
                yield result
        self._tell(planned, emptiness)

    def _tell(self, planned: _Plan, emptiness: Emptiness) -> None:
        if self._report is None or not is_enabled(planned.properties):
            return
        found = emptiness.empty()
        if found:
            self._report(planned.answer.snapshot_id, found)

    @contextmanager
    def _working(self, blocks: int) -> Iterator[tuple[ThreadPoolExecutor, Fetcher, Progress]]:
        fetcher = Fetcher(self._store, 2 * self._workers)
        pool = ThreadPoolExecutor(max_workers=self._workers, thread_name_prefix="lamella-scan")
        try:
            with Progress(blocks, shown=self._progress) as progress:
                yield pool, fetcher, progress
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            fetcher.close()

    def _planned(self) -> _Plan:
        with self._lock:
            if self._made is None:
                self._made = self._make_plan()
            return self._made

    def _make_plan(self) -> _Plan:
        request = self._request
        given = request.filter
        predicate = given if isinstance(given, Predicate) else read_filter(given, time_zone=request.time_zone)
        answer = self._table.prune(
            request.filter,
            level="page",
            # blocks that are not to be read must not be what a limit is reached by
            limit=request.limit if self._only is None else None,
            order_by=request.order_by,
            **request.asked(),
        )
        versions: TableInfo | Snapshot = self._table.info()
        if versions.snapshot_id != answer.snapshot_id:
            versions = self._table.snapshot(answer.snapshot_id)
        schema = versions.schema
        row_filter = RowFilter(predicate, schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        output = wanted_columns(schema, request.columns, case_sensitive=request.case_sensitive)
        fields = [one.field for one in output]
        ordering = None
        if request.order_by:
            ordering = Ordering(schema, request.order_by, len(output), case_sensitive=request.case_sensitive)
            output = (*output, *ordering.wanted)
            fields += [one.field for one in ordering.wanted]
        columns: tuple[Wanted, ...] = tuple(wanted_leaf(schema, leaf) for leaf in row_filter.columns)
        reading = Reading(output, pa.schema(fields), row_filter, columns)
        blocks = blocks_of(answer)
        if self._only is not None:
            wanted = self._only(answer.snapshot_id)
            blocks = tuple(block for block in blocks if block.location in wanted)
        return _Plan(answer, blocks, versions, schema, reading, ordering, versions.properties)


def open_store(store: Store | None, storage_options: Mapping[str, Mapping[str, Any]] | None) -> Store:
    """The store to read from: the one given, or one with these options by scheme."""
    return FsspecStore(storage_options) if store is None else store


def blocks_of(answer: PruneAnswer) -> tuple[PrunedBlock, ...]:
    """The blocks of an answer in either shape."""
    columns = answer.block_columns
    if columns is None:
        return answer.blocks or ()
    given = {name: getattr(columns, name) for name in BlockColumns.__struct_fields__}
    lists = {name: values for name, values in given.items() if values is not None}
    return tuple(PrunedBlock(**dict(zip(lists, row, strict=True))) for row in zip(*lists.values(), strict=True))


def _row_count(result: object) -> int:
    """How many rows a piece gave, in whatever form."""
    if isinstance(result, tuple):
        result = result[1]
    return result.num_rows if isinstance(result, pa.Table) else int(cast(int, result))


def _located(piece: Piece, reading: Reading, fetcher: Fetcher) -> tuple[str, pa.Table]:
    return piece.file.location, piece.table(reading, fetcher)


def _output_schema(schema: pa.Schema, count: int) -> pa.Schema:
    return pa.schema([schema.field(at) for at in range(count)])
