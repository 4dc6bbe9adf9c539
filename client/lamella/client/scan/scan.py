"""A scan: planned by the service, read by this process, as a whole or in fragments that can be read separately."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final, TypeVar, cast

import msgspec
import pyarrow as pa

from lamella.client.scan.aggregates import RowAggregates, complete, completed_answer
from lamella.client.scan.engines import EngineRows
from lamella.client.scan.plan import (
    Plan,
    Planner,
    Request,
    ScanRecipe,
    plan_of,
    plan_of_blocks,
    recipe_of,
    usable_parts,
    versions_of,
)
from lamella.client.scan.progress import Progress
from lamella.client.scan.rows import Rows, batches_of
from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.deletes import RangeReader, Vectors
from lamella.snapshot.errors import InvalidRequest, LimitExceeded
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.reader_feedback import is_enabled
from lamella.snapshot.rows.block_file import BlockFile
from lamella.snapshot.rows.json_values import json_rows
from lamella.snapshot.rows.row_groups import Fetcher, ReadSpec, RowGroupRead, row_group_reads
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import FsspecStore, Store
from lamella.snapshot.wire import AggregateAnswer, PruneAnswer, PrunedBlock, TableInfo

#: Blocks whose lists of deleted rows are read together.
_VECTORS_AHEAD: Final = 256

Item = TypeVar("Item")
Made = TypeVar("Made")


def prefetch(pool: Executor, work: Callable[[Item], Made], items: Iterable[Item], depth: int) -> Iterator[Made]:
    """``map(work, items)`` with up to ``depth`` items in progress; an error is raised in place of its item's result."""
    waiting: deque[Future[Made]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def with_vectors_ahead(store: Store, blocks: Sequence[PrunedBlock]) -> Iterator[tuple[PrunedBlock, RangeReader]]:
    """Yield blocks with what has read the lists of deleted rows of some of them together: one file has those of many
    blocks."""
    for first in range(0, len(blocks), _VECTORS_AHEAD):
        some = blocks[first : first + _VECTORS_AHEAD]
        vectors = Vectors(store, (entry for block in some for entry in block.deletes or ()))
        for block in some:
            yield block, vectors


class EmptyBlocks:
    """Counts pieces of blocks as they are opened and read; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: dict[str, int] = {}
        self._rows: dict[str, int] = {}

    def opened(self, location: str, pieces: int) -> None:
        """Record the number of pieces of a block, without those pruned by page statistics."""
        with self._lock:
            self._pieces[location] = self._pieces.get(location, 0) + pieces

    def read(self, location: str, rows: int) -> None:
        """Record a finished piece and its number of matching rows."""
        with self._lock:
            self._pieces[location] -= 1
            self._rows[location] = self._rows.get(location, 0) + rows

    def empty(self) -> list[str]:
        """Return the blocks of which all pieces (at least one) were read and no row matched."""
        with self._lock:
            return sorted(location for location, rows in self._rows.items() if not rows and not self._pieces[location])


#: Concurrent requests per fragment: fragments are usually read several at a time.
_REQUESTS: Final = 4

#: Opens the store that a block is read from, in the reading process.
OpenStore = Callable[[], Store]


class Fragment(Rows):
    """The matching rows of one block of a scan. Picklable; can be read without the service.

    Its properties come from the plan; the file is opened when it is read.
    """

    def __init__(self, recipe: ScanRecipe, block: PrunedBlock, written: Schema, open_store: OpenStore) -> None:
        """``written``: the schema that the block was written with."""
        self._recipe = recipe
        self._block = block
        self._written = written
        self._open_store = open_store

    @property
    def location(self) -> str:
        """The location of the block's file.

        Example:
            >>> [fragment] = table.scan("price > 125").fragments()
            >>> fragment.location
            'file:///...parquet'
        """
        return self._block.location

    @property
    def row_count(self) -> int:
        """Maximum number of output rows: those that statistics do not rule out.

        Example:
            >>> [fragment] = table.scan("price > 125").fragments()
            >>> fragment.row_count
            3
        """
        pages = self._block.pages
        if pages is not None and not pages.whole:
            return sum(pages.row_count)
        known = self._block.live_row_count
        return self._block.row_count if known is None else known

    @property
    def size_bytes(self) -> int:
        """The size of the block's file in bytes; usually less is read.

        Example:
            >>> [fragment] = table.scan("price > 125").fragments()
            >>> fragment.size_bytes == table.prune("price > 125").size_bytes
            True
        """
        return self._block.file_size

    @property
    def schema(self) -> pa.Schema:
        """The output columns, the same for all fragments of a scan.

        Example:
            >>> [fragment] = table.scan("price > 125", ["id", "day"]).fragments()
            >>> fragment.schema.names
            ['id', 'day']
        """
        return self._recipe.output_schema

    def with_columns(self, columns: Sequence[str]) -> Fragment:
        """Return the fragment with other output columns; raises UnknownColumn, InvalidRequest.

        Example:
            >>> fragment = table.scan("price > 125").fragments()[0]
            >>> fragment.with_columns(["id"]).schema.names
            ['id']
        """
        recipe = msgspec.structs.replace(self._recipe, columns=self._recipe.texts(columns))
        return Fragment(recipe, self._block, self._written, self._open_store)

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows as they are read, one row group at a time.

        Raises BlockReplaced, ObjectNotFound, StoreError, NotParquet, SchemaMismatch and EvaluationFailed.

        Example:
            >>> [fragment] = table.scan("price > 125").fragments()
            >>> [batch.num_rows for batch in fragment.to_batches()]
            [3]
        """
        store = self._open_store()
        file = BlockFile(store, self._block, self._written, self._recipe.schema)
        fetcher = Fetcher(store, _REQUESTS)
        try:
            for piece in row_group_reads(file, limit=None):
                yield from batches_of(piece.table(self._recipe.reading, fetcher))
        finally:
            fetcher.close()

    def __repr__(self) -> str:
        return f"Fragment({self.location!r}, row_count={self.row_count})"


def fragments_of(plan: Plan, stores: Sequence[OpenStore]) -> list[Fragment]:
    """Return one fragment for each block of a plan; ``stores`` has one entry per block."""
    return [
        Fragment(plan.recipe, block, plan.written(block), store)
        for block, store in zip(plan.blocks, stores, strict=True)
    ]


_Result = TypeVar("_Result")


class Scan(EngineRows):
    """The rows of a table that match a filter, unordered unless an order is requested.

    ``only``: returns the locations of the blocks, by snapshot id, that may be read at all; None: all blocks. ``hold``:
    a context manager entered while files of a snapshot are read, to keep it from expiring; None: none. ``report``:
    called with a snapshot id and the locations of blocks in which no row matched, after all were read, for tables with
    feedback; None: no report. ``stores``: returns, for a snapshot id and locations of its blocks, an opener of a store
    for each in another process; None: the scan's own store is pickled. ``versions``: what says which schemas the
    request's snapshot has, if it is known.

    The plan is made on first use and kept: later commits are not seen. Each method reads the files again. Safe to share
    between threads.

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
        stores: Callable[[str, Sequence[str]], Sequence[OpenStore]] | None = None,
        versions: TableInfo | Snapshot | None = None,
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
        self._stores = stores
        self._versions = versions
        self._lock = threading.Lock()
        self._made: tuple[PruneAnswer, Plan] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what the copy in another process plans from: the same snapshot, if this scan has been planned."""
        if self._stores is not None:
            raise TypeError("a scan with signed URLs cannot be pickled: pass on its fragments()")
        state = {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_made")}
        made = self._made
        if made is not None:
            snapshot_id = made[0].snapshot_id
            state["_request"] = msgspec.structs.replace(self._request, snapshot_id=snapshot_id, timestamp=None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._made = None

    @property
    def plan(self) -> PruneAnswer:
        """Return the service's answer: which blocks and rows are read, and why.

        Example:
            >>> plan = table.scan("price > 99.5").plan
            >>> [block.verdict for block in plan.blocks]
            ['SOME', 'ALL']
        """
        return self._pruned()[0]

    @property
    def schema(self) -> pa.Schema:
        """The output columns.

        Example:
            >>> table.scan(columns=["id", "day"]).schema.names
            ['id', 'day']
        """
        if self._versions is not None:
            return recipe_of(self._versions, self._request).output_schema
        return self._planned().recipe.output_schema

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows as they are read, at most 65,536 at a time; with an order, after all candidates were read.

        Example:
            >>> sum(batch.num_rows for batch in table.scan("price > 99.5").to_batches())
            6
        """
        planned = self._planned()
        tables = self._ordered(planned) if planned.ordering is not None else self._limited(planned)
        for table in tables:
            yield from batches_of(table)

    def fragments(self) -> list[Fragment]:
        """Return the scan in parts, one per block, which other processes can read in any order.

        Together they contain the rows of the scan. Each opens its own store, see ``store`` and ``signed_urls`` of
        :meth:`lamella.client.http.Table.scan`. Fragments do not keep the snapshot from expiring: if reading may take
        longer than the service's minimum age, take a :class:`~lamella.client.http.maintenance.SnapshotLease` around it.

        Raises InvalidRequest for a scan with a limit or an order, which fragments cannot apply separately.

        Example:
            >>> [fragment.row_count for fragment in table.scan("price > 125").fragments()]
            [3]
        """
        if self._request.limit is not None or self._request.order_by:
            raise InvalidRequest(
                "fragments cannot apply a limit or an order: apply them where the fragments are combined"
            )
        planned = self._planned()
        if self._stores is None:
            return fragments_of(planned, [partial(_same, self._store)] * len(planned.blocks))
        locations = [block.location for block in planned.blocks]
        return fragments_of(planned, self._stores(planned.snapshot_id, locations))

    def at_snapshot(self) -> Scan:
        """Return this scan of the snapshot that it reads now; later commits do not change what the copy reads.

        Raises InvalidRequest for a scan with a limit or an order, which an engine's filter would have to follow; what
        planning raises.

        Example:
            >>> orders = table.scan().at_snapshot()
            >>> orders.count()
            15
        """
        request = self._request
        if request.limit is not None or request.order_by:
            raise InvalidRequest("an engine applies limits and orders itself: leave them out of the scan")
        if self._made is not None:
            snapshot_id = self._made[0].snapshot_id
        else:
            nothing = {"type": "false"}
            found = self._table.prune(nothing, level="block", limit=None, order_by=(), **request.shared_arguments())
            snapshot_id = found.snapshot_id
        pinned = msgspec.structs.replace(request, snapshot_id=snapshot_id, timestamp=None)
        versions = versions_of(self._table, snapshot_id)
        _ = recipe_of(versions, pinned).reading  # what cannot be read is an error now, not one of the engine
        return self._with(pinned, versions)

    def narrowed(
        self,
        columns: Sequence[str] | None = None,
        may_match: Sequence[dict[str, Any]] = (),
        *,
        limit: int | None = None,
    ) -> Scan:
        """Return this scan with some of its columns only, for an engine that needs no row of which one of the filters
        ``may_match`` is not true.

        Such rows may be read all the same: blocks and pages are left out, and no row is evaluated. ``limit``: any rows,
        at most so many; only without such filters. For scans of one snapshot (:meth:`at_snapshot`).

        Example:
            >>> orders = table.scan().at_snapshot()
            >>> orders.narrowed(["id"], limit=3).to_arrow().num_rows
            3
        """
        request, versions = self._request, self._versions
        if versions is None:
            return self.at_snapshot().narrowed(columns, may_match, limit=limit)
        recipe = recipe_of(versions, request)
        pruned_by = usable_parts(may_match, recipe)
        wanted = request.columns if columns is None else recipe.texts(columns)
        narrow = msgspec.structs.replace(request, columns=wanted, may_match=pruned_by, limit=limit)
        return self._with(narrow, versions)

    def _with(self, request: Request, versions: TableInfo | Snapshot) -> Scan:
        """Return the same with another request of a known snapshot."""
        # Of a block whose pages an engine's filter left out, it is not known that no row matches.
        report = self._report if request.may_match is None else None
        return Scan(
            self._table,
            request,
            self._store,
            workers=self._workers,
            progress=self._progress,
            only=self._only,
            hold=self._hold,
            report=report,
            stores=self._stores,
            versions=versions,
        )

    def count(self) -> int:
        """Return the number of rows: from statistics where they prove it, otherwise by reading the filter's columns.

        Example:
            >>> table.scan("price > 99.5").count()
            6
        """
        request = self._request
        if self._made is None and self._only is None:
            answer = self._table.aggregate(["count(*)"], request.filter, **request.shared_arguments())
            if answer.complete:
                bound = answer.groups[0].values[0].value if answer.groups else None
                return self._capped(0 if bound is None or bound.int64 is None else bound.int64)
        return self._capped(self._counted(self._planned()))

    def _counted(self, planned: Plan) -> int:
        """Return the number of matching rows of the blocks."""
        counts = [block.live_row_count if block.verdict == "ALL" else None for block in planned.blocks]
        others = tuple(block for block, count in zip(planned.blocks, counts, strict=True) if count is None)
        read = self._read(planned, others, RowGroupRead.count, counting=True)
        return sum(count for count in counts if count is not None) + sum(read)

    def to_json_rows(self) -> Iterator[list[Any]]:
        """Yield rows as lists of JSON values in the order of the columns; see
        :mod:`lamella.snapshot.rows.json_values`.

        Example:
            >>> next(table.scan("price > 125", ["id", "day"]).to_json_rows())
            [13, '2024-06-01']
        """
        columns = self._planned().recipe.output
        for batch in self.to_batches():
            yield from json_rows(pa.Table.from_batches([batch]), columns)

    def aggregate(
        self,
        aggregates: Sequence[str],
        *,
        group_by: Sequence[str] = (),
        max_blocks: int | None = None,
        max_rows: int | None = None,
    ) -> pa.Table:
        """Return ``count(*)``, ``count(c)``, ``min(c)``, ``max(c)`` and ``sum(c)`` of the rows, for each group.

        The result is exact. Blocks of which statistics prove their part are not opened; of the others, the columns that
        are needed are read. Groups come in any order, and without ``group_by`` there is one. ``columns`` of the scan do
        not matter. ``max_blocks``, ``max_rows``: what may be read, in blocks and the rows that these have.

        Raises InvalidRequest for other aggregates and for a scan with a limit, LimitExceeded if more would have to be
        read than may be, and for a sum of more than 38 digits.

        Example:
            >>> rows = table.scan("price > 65").aggregate(["count(*)", "sum(amount)"], group_by=["country"])
            >>> rows.sort_by("country").to_pylist()[0]
            {'country': 'DE', 'count(*)': 3, 'sum(amount)': Decimal('7')}
        """
        return self._completed(aggregates, group_by, max_blocks, max_rows)[1]

    def aggregate_answer(
        self, aggregates: Sequence[str], *, group_by: Sequence[str] = ()
    ) -> tuple[AggregateAnswer, tuple[PrunedBlock, ...]]:
        """Return the result of :meth:`aggregate` as the service has it in answers, and the blocks that were read.

        Example:
            >>> answer, blocks_read = table.scan("price > 65").aggregate_answer(["count(*)"])
            >>> answer.complete, len(blocks_read)
            (True, 1)
        """
        answer, result, read = self._completed(aggregates, group_by, None, None)
        return completed_answer(answer, result), read

    def _completed(
        self, aggregates: Sequence[str], group_by: Sequence[str], max_blocks: int | None, max_rows: int | None
    ) -> tuple[AggregateAnswer, pa.Table, tuple[PrunedBlock, ...]]:
        """Return what statistics prove, the whole result, and the blocks that were read for the rest."""
        request = self._request
        if request.limit is not None:
            raise InvalidRequest("a scan with a limit has any of the rows that match: there is no one result")
        arguments = request.shared_arguments()
        if self._only is None:
            answer = self._table.aggregate(
                aggregates, request.filter, group_by=group_by, max_scan_blocks=max_blocks, **arguments
            )
            _require_small(answer.scan_blocks, sum(block.row_count for block in answer.scan), max_blocks, max_rows)
            return answer, complete(answer, self._aggregated(answer, answer.scan) if answer.scan else ()), answer.scan
        # Statistics are about all blocks, so they prove nothing of some.
        planned = self._planned()
        _require_small(len(planned.blocks), sum(block.row_count for block in planned.blocks), max_blocks, max_rows)
        arguments |= {"snapshot_id": planned.snapshot_id, "timestamp": None}
        answer = self._table.aggregate(aggregates, {"type": "false"}, group_by=group_by, **arguments)
        return answer, complete(answer, self._aggregated(answer, planned.blocks)), planned.blocks

    def _aggregated(self, answer: AggregateAnswer, blocks: tuple[PrunedBlock, ...]) -> Iterator[pa.Table]:
        """Yield the aggregates of parts of the matching rows of some blocks."""
        versions = versions_of(self._table, answer.snapshot_id)
        of_rows = RowAggregates(answer, versions.schema, case_sensitive=self._request.case_sensitive)
        request = msgspec.structs.replace(self._request, columns=of_rows.columns or None, order_by=())
        plan = plan_of_blocks(versions, request, answer.snapshot_id, blocks)
        if not of_rows.columns:
            yield of_rows.of_count(self._counted(plan))
            return
        for rows in self._read(plan, blocks, RowGroupRead.table):
            yield of_rows.of(rows)

    def _capped(self, count: int) -> int:
        limit = self._request.limit
        return count if limit is None else min(count, limit)

    def _limited(self, planned: Plan) -> Iterator[pa.Table]:
        left = self._request.limit
        if left == 0:
            return
        for table in self._read(planned, planned.blocks, RowGroupRead.table):
            if left is not None and table.num_rows >= left:
                yield table.slice(0, left)
                return
            left = None if left is None else left - table.num_rows
            yield table

    def _ordered(self, planned: Plan) -> Iterator[pa.Table]:
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
        yield best.select(range(len(planned.recipe.output))).rename_columns(self.schema.names)

    def _read(
        self,
        planned: Plan,
        blocks: Sequence[PrunedBlock],
        read: Callable[[RowGroupRead, ReadSpec, Fetcher], _Result],
        *,
        counting: bool = False,
    ) -> Iterator[_Result]:
        """Yield the result of ``read`` for each piece of the blocks, in order, reading some ahead."""
        # With an order all rows of a block are needed; without one, any rows up to the limit.
        limit = self._request.limit if planned.ordering is None and not counting else None
        emptiness = EmptyBlocks()
        protected = nullcontext() if self._hold is None or not blocks else self._hold(planned.snapshot_id)
        with protected, self._working(len(blocks)) as (pool, fetcher, progress):

            def opened(item: tuple[PrunedBlock, RangeReader]) -> list[RowGroupRead]:
                block, vectors = item
                file = BlockFile(self._store, block, planned.written(block), planned.recipe.schema, vectors)
                made = row_group_reads(file, limit=limit, counting=counting)
                emptiness.opened(block.location, len(made))
                return made

            def done(piece: RowGroupRead) -> _Result:
                result = read(piece, planned.reading, fetcher)
                emptiness.read(piece.file.location, _row_count(result))
                return result

            def all_pieces() -> Iterator[RowGroupRead]:
                for made in prefetch(pool, opened, with_vectors_ahead(self._store, blocks), self._workers):
                    progress.block()
                    yield from made

            for result in prefetch(pool, done, all_pieces(), self._workers):
                progress.rows(result.num_rows if isinstance(result, pa.Table) else 0)
                yield result
        self._report_empty(planned, emptiness)

    def _report_empty(self, planned: Plan, emptiness: EmptyBlocks) -> None:
        if self._report is None or not is_enabled(planned.properties):
            return
        found = emptiness.empty()
        if found:
            self._report(planned.snapshot_id, found)

    @contextmanager
    def _working(self, blocks: int) -> Iterator[tuple[ContextThreadPool, Fetcher, Progress]]:
        fetcher = Fetcher(self._store, 2 * self._workers)
        pool = ContextThreadPool(max_workers=self._workers, thread_name_prefix="lamella-scan")
        try:
            with Progress(blocks, shown=self._progress) as progress:
                yield pool, fetcher, progress
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            fetcher.close()

    def _planned(self) -> Plan:
        return self._pruned()[1]

    def _pruned(self) -> tuple[PruneAnswer, Plan]:
        with self._lock:
            if self._made is None:
                self._made = plan_of(self._table, self._request, self._only, self._versions)
            return self._made


def open_store(store: Store | None, storage_options: Mapping[str, Mapping[str, Any]] | None) -> Store:
    """Return the given store, or one with these options by scheme."""
    return FsspecStore(storage_options) if store is None else store


def _require_small(blocks: int, rows: int, max_blocks: int | None, max_rows: int | None) -> None:
    for name, count, maximum in (("blocks", blocks, max_blocks), ("rows", rows, max_rows)):
        if maximum is not None and count > maximum:
            raise LimitExceeded(
                f"{count} {name} would have to be read, of at most {maximum}", limit=name, maximum=maximum
            )


def _row_count(result: object) -> int:
    """Return the number of rows of a piece's result, of either type."""
    if isinstance(result, tuple):
        result = result[1]
    return result.num_rows if isinstance(result, pa.Table) else int(cast(int, result))


def _located(piece: RowGroupRead, reading: ReadSpec, fetcher: Fetcher) -> tuple[str, pa.Table]:
    return piece.file.location, piece.table(reading, fetcher)


def _same(store: Store) -> Store:
    return store
