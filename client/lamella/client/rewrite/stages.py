"""The work of tasks, as callables that can run anywhere.

Rewrite a bin of blocks, sort blocks into runs, merge a range of runs into blocks, remove rows, consume the rows of a
frame.

Tasks and results are values; a task writes only objects with new names. So a task may run twice, even concurrently, and
objects that no result names are garbage for vacuum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.client.rewrite.block_writer import BlockWriter, WrittenBlocks, block_rows
from lamella.client.rewrite.sort import Range, Run, RunSlice, Scratch, in_order, read_chunks, rows_before, write_run
from lamella.client.rewrite.source import Source, live_positions, source_rows
from lamella.client.rewrite.target import Target, arrow_schema
from lamella.snapshot.cluster.extent import SMALL
from lamella.snapshot.delete_policy import DeletePolicy
from lamella.snapshot.deletes import encode_vector
from lamella.snapshot.errors import BlockReplaced, EvaluationFailed, NotParquet, ObjectNotFound, SchemaMismatch
from lamella.snapshot.expression import read_filter
from lamella.snapshot.ids import Ids
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.arrow import conform_leaf
from lamella.snapshot.stats.measure import leaf_values
from lamella.snapshot.storage import Store


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a stage have in common. Calling a stage with a task returns the result.

    ``task_type`` and ``result_type``: the types that are transferred (as JSON).
    """

    target: Target
    scratch: Scratch

    task_type: ClassVar[Any]
    result_type: ClassVar[Any]

    @property
    def schemas(self) -> Mapping[int, Schema]:
        """All schemas of the table, by id."""
        return {schema.schema_id: schema for schema in self.target.history}


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks that are rewritten together; ``pieces``: into how many blocks (None: by target size)."""

    sources: tuple[Source, ...]
    pieces: int | None = None


class BinResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a bin. ``failed``: why it cannot be read; nothing of it was written."""

    written: WrittenBlocks = WrittenBlocks()
    failed: str | None = None


class RewriteBin(Stage, frozen=True, kw_only=True):
    """Reads the blocks of a bin, sorts their rows in memory and writes new blocks."""

    task_type: ClassVar[Any] = Bin
    result_type: ClassVar[Any] = BinResult

    def __call__(self, task: Bin) -> BinResult:
        store, ids = self.target.store(), Ids()
        try:
            batches = [batch for source in task.sources for batch in self._read(store, source)]
        except (BlockReplaced, NotParquet, ObjectNotFound, SchemaMismatch) as error:
            return BinResult(failed=error.message)
        target = self.target
        rows = target.rows_of(batches).combine_chunks() if batches else None
        if rows is not None and target.order.needs_curve:
            order = target.order.along(target.order.columns(rows, target.schema), target.schema)
            target = msgspec.structs.replace(target, order=order)
        writer = BlockWriter(target, store, self.scratch, ids)
        if rows is not None:
            if target.order.keys:
                rows, _ = in_order(rows, target.order.key_rows(rows, target.schema))
            writer.write(rows, None if task.pieces is None else max(1, rows.num_rows // task.pieces))
        return BinResult(written=writer.finish())

    def _read(self, store: Store, source: Source) -> Iterator[pa.RecordBatch]:
        return source_rows(store, source, self.schemas, self.target.schema)


class SortedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The result of sorting blocks. ``failed``: why one of them cannot be read."""

    runs: tuple[Run, ...] = ()
    failed: str | None = None


class SortBlocks(Stage, frozen=True, kw_only=True):
    """Reads blocks and writes their rows to scratch space as sorted runs, each as large as memory allows."""

    task_type: ClassVar[Any] = Bin
    result_type: ClassVar[Any] = SortedRuns

    def __call__(self, task: Bin) -> SortedRuns:
        store = self.target.store()
        sorter = RunSorter(self.target, store, self.scratch, Ids())
        try:
            for source in task.sources:
                for batch in source_rows(store, source, self.schemas, self.target.schema):
                    sorter.add(batch)
        except (BlockReplaced, NotParquet, ObjectNotFound, SchemaMismatch) as error:
            return SortedRuns(failed=error.message)
        return SortedRuns(runs=tuple(sorter.finish()))


class RunSorter:
    """Collects rows and writes a run whenever memory is full."""

    def __init__(self, target: Target, store: Store, scratch: Scratch, ids: Ids) -> None:
        self._target = target
        self._store = store
        self._scratch = scratch
        self._ids = ids
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._runs: list[Run] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; see :meth:`Target.rows_of`."""
        if batch.num_rows == 0:
            return
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._target.memory_bytes:
            self._put()

    def finish(self) -> list[Run]:
        """Return all runs."""
        self._put()
        return self._runs

    def _put(self) -> None:
        if not self._batches:
            return
        target = self._target
        rows = target.rows_of(self._batches).combine_chunks()
        self._batches, self._bytes = [], 0
        keys = target.order.key_rows(rows, target.schema)
        if target.order.keys:
            rows, keys = in_order(rows, keys)
        self._runs.append(
            write_run(self._store, self._scratch, self._ids, rows, keys, block_rows=block_rows(rows, target))
        )


class MergeRange(Stage, frozen=True, kw_only=True):
    """Reads a range of the runs, sorts it, and writes blocks of about ``block_rows`` rows."""

    block_rows: int

    task_type: ClassVar[Any] = Range
    result_type: ClassVar[Any] = WrittenBlocks

    def __call__(self, task: Range) -> WrittenBlocks:
        store = self.target.store()
        writer = BlockWriter(self.target, store, self.scratch, Ids())
        parts = [part for stretch in task.stretches for part in self._inside(store, task, stretch)]
        if parts:
            rows = pa.concat_tables(parts).combine_chunks()
            if self.target.order.keys:
                rows, _ = in_order(rows, self.target.order.key_rows(rows, self.target.schema))
            writer.write(rows, self.block_rows)
        return writer.finish()

    def _inside(self, store: Store, task: Range, stretch: RunSlice) -> Iterator[pa.Table]:
        """Yield the rows of a slice that are in the range, in the order of the run."""
        at = stretch.first_row
        count = len(stretch.chunks)
        for number, rows in enumerate(read_chunks(store, stretch.location, stretch.chunks)):
            start, stop = 0, rows.num_rows
            if (number == 0 and task.low is not None) or (number == count - 1 and task.high is not None):
                keys = self.target.order.key_rows(rows, self.target.schema)
                if number == 0 and task.low is not None:
                    start = rows_before(keys, task.low, run=stretch.run, first_row=at)
                if number == count - 1 and task.high is not None:
                    stop = rows_before(keys, task.high, run=stretch.run, first_row=at)
            at += rows.num_rows
            if start < stop:
                yield rows.slice(start, stop - start)


Mask = npt.NDArray[np.bool_]


class BlockRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one block: how many rows matched, and what becomes of the others.

    ``disposition``: the block stays as it is (no row matched), is removed (all matched), stays without the rows of
    ``vector``, or is replaced by what was ``written``.
    """

    location: str
    matched: int
    disposition: Literal["stays", "goes", "vector", "rewritten"]
    written: WrittenBlocks = WrittenBlocks()
    vector: bytes | None = None


class RemovalResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of some blocks, in order. ``failed``: why there are none."""

    blocks: tuple[BlockRemoval, ...] = ()
    failed: str | None = None


class RemovalStage(Stage, frozen=True, kw_only=True):
    """Removes rows of blocks; rewrites a block only when some but not all rows match, and the policy does not keep its
    file."""

    policy: DeletePolicy = DeletePolicy()

    def removal(self, store: Store, source: Source, matches: Mask) -> BlockRemoval:
        """Return what becomes of a block without some of its rows; ``matches``: which of those that are not deleted.

        Raises as :func:`~lamella.client.rewrite.source.source_rows`.
        """
        matched = int(matches.sum())
        if matched in (0, len(matches)):
            return BlockRemoval(location=source.location, matched=matched, disposition="goes" if matched else "stays")
        live = live_positions(store, source)
        if self.policy.keeps_file(source.row_count - len(live) + matched, source.row_count):
            vector = encode_vector(live[matches])
            return BlockRemoval(location=source.location, matched=matched, disposition="vector", vector=vector)
        batches = list(source_rows(store, source, self.schemas, self.target.schema))
        rows = self.target.rows_of(batches).filter(pa.array(~matches)).combine_chunks()
        writer = BlockWriter(self.target, store, self.scratch, Ids())
        writer.write_one(rows, source.cluster)
        return BlockRemoval(location=source.location, matched=matched, disposition="rewritten", written=writer.finish())


class RemoveRows(RemovalStage, frozen=True, kw_only=True):
    """Removes the rows that match a filter; reads the filter's columns first.

    ``filter``: SQL text or a JSON tree; every part of it can be decided row by row.
    """

    filter: Any
    time_zone: str = "UTC"
    case_sensitive: bool = False

    task_type: ClassVar[Any] = Bin
    result_type: ClassVar[Any] = RemovalResult

    def row_filter(self) -> RowFilter:
        """Return the bound filter; raises FilterNotEvaluable, and what binding raises."""
        predicate = read_filter(self.filter, time_zone=self.time_zone)
        return RowFilter(predicate, self.target.schema, time_zone=self.time_zone, case_sensitive=self.case_sensitive)

    def __call__(self, task: Bin) -> RemovalResult:
        store, bound_filter = self.target.store(), self.row_filter()
        try:
            return RemovalResult(
                blocks=tuple(
                    self.removal(store, source, self._matches(store, bound_filter, source)) for source in task.sources
                )
            )
        except (BlockReplaced, EvaluationFailed, NotParquet, ObjectNotFound, SchemaMismatch) as error:
            return RemovalResult(failed=error.message)

    def _matches(self, store: Store, bound_filter: RowFilter, source: Source) -> Mask:
        schema = self.target.schema
        names = {leaf.path[0] for leaf in bound_filter.columns}
        masks = [np.zeros(0, dtype=bool)]
        if not names:
            return np.asarray(bound_filter.matches({}, source.live_row_count(store)))
        wanted = pa.schema([field for field in arrow_schema(schema) if field.name in names])
        for batch in source_rows(store, source, self.schemas, schema, wanted):
            rows = pa.Table.from_batches([batch])
            columns = {
                leaf.id: conform_leaf(leaf_values(rows, leaf).combine_chunks(), leaf.dtype, leaf.name)
                for leaf in bound_filter.columns
            }
            masks.append(np.asarray(bound_filter.matches(columns, batch.num_rows)))
        return np.concatenate(masks)


class SinkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one stream of rows: finished blocks, and runs of rows that are not in blocks yet."""

    written: WrittenBlocks = WrittenBlocks()
    runs: tuple[Run, ...] = ()


class Sink(Stage, frozen=True, kw_only=True):
    """Consumes one stream of batches, which have the table's columns in its order.

    Without keys rows keep their order: full blocks are written at once. A remainder that would make a small block
    becomes a run, which is merged with the remainders of other streams.
    """

    task_type: ClassVar[type] = bytes
    result_type: ClassVar[type] = SinkResult

    def drain(self, batches: Iterable[pa.RecordBatch]) -> SinkResult:
        """Consume every row; raises SchemaMismatch for a row that does not fit, and StoreError."""
        if self.target.order.keys:
            sorter = RunSorter(self.target, self.target.store(), self.scratch, Ids())
            for batch in batches:
                sorter.add(batch)
            return SinkResult(runs=tuple(sorter.finish()))
        return self._in_blocks(batches)

    def _in_blocks(self, batches: Iterable[pa.RecordBatch]) -> SinkResult:
        target, store, ids = self.target, self.target.store(), Ids()
        writer = BlockWriter(target, store, self.scratch, ids)
        rest: list[pa.Table] = []
        waiting: list[pa.RecordBatch] = []
        size_bytes = 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            waiting.append(batch)
            size_bytes += batch.nbytes
            # The other half is for the remaining rows, less than a block.
            if 2 * size_bytes >= target.memory_bytes:
                rest = [writer.write_whole(pa.concat_tables([*rest, target.rows_of(waiting)]))]
                waiting, size_bytes = [], 0
        if waiting:
            rest.append(target.rows_of(waiting))
        rows = pa.concat_tables(rest) if rest else None
        runs: tuple[Run, ...] = ()
        if rows is not None and rows.num_rows:
            wanted = block_rows(rows, target)
            if rows.num_rows >= SMALL * wanted:
                writer.write(rows)
            else:
                keys = target.order.key_rows(rows, target.schema)
                runs = (write_run(store, self.scratch, ids, rows, keys, block_rows=wanted),)
        return SinkResult(written=writer.finish(), runs=runs)
