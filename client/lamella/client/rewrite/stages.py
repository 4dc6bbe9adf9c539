"""What tasks do, as values that can be called anywhere: sort blocks into runs, merge a range of runs into blocks.

A task is a value and so is what becomes of it; in between a task writes only objects with fresh names. So a task may
be run twice, or twice at once, and what no answer names is garbage for a clean-up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from lamella.client.rewrite.block_writer import BlockWriter, Written, block_rows
from lamella.client.rewrite.ranges import Range, Stretch
from lamella.client.rewrite.runs import Run, Scratch, read_chunks, write_run
from lamella.client.rewrite.sorting import in_order, rows_before
from lamella.client.rewrite.source import Source, source_rows
from lamella.client.rewrite.target import Target
from lamella.snapshot.errors import BlockReplaced, NotParquet, ObjectNotFound, SchemaMismatch
from lamella.snapshot.ids import Ids
from lamella.snapshot.layout import Store
from lamella.snapshot.schema import Schema


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a stage have in common. Called with a task, a stage gives its result.

    ``task_type`` and ``result_type`` say how both travel (as JSON).
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
    """Blocks that are written anew together; ``pieces``: into so many (None: as large as they should be)."""

    sources: tuple[Source, ...]
    pieces: int | None = None


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a bin. ``failed``: it cannot be read as it should be, so nothing of it was written."""

    written: Written = Written()
    failed: str | None = None


class RewriteBin(Stage, frozen=True, kw_only=True):
    """Read a bin's blocks, sort their rows, write them as new blocks: in memory, all at once."""

    task_type: ClassVar[Any] = Bin
    result_type: ClassVar[Any] = Rewritten

    def __call__(self, task: Bin) -> Rewritten:
        store, ids = self.target.store(), Ids()
        try:
            batches = [batch for source in task.sources for batch in self._read(store, source)]
        except (BlockReplaced, NotParquet, ObjectNotFound, SchemaMismatch) as error:
            return Rewritten(failed=error.message)
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
        return Rewritten(written=writer.finish())

    def _read(self, store: Store, source: Source) -> Iterator[pa.RecordBatch]:
        return source_rows(store, source, self.schemas, self.target.schema)


class SortedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """What became of blocks that were read. ``failed``: one of them cannot be read as it should be."""

    runs: tuple[Run, ...] = ()
    failed: str | None = None


class SortBlocks(Stage, frozen=True, kw_only=True):
    """Read blocks and put their rows into scratch space as sorted runs, each as large as memory allows."""

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
    """Collects rows; whenever there are as many as memory allows, they become a run."""

    def __init__(self, target: Target, store: Store, scratch: Scratch, ids: Ids) -> None:
        self._target = target
        self._store = store
        self._scratch = scratch
        self._ids = ids
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._runs: list[Run] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Some rows more; see :meth:`Target.rows_of`."""
        if batch.num_rows == 0:
            return
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._target.memory_bytes:
            self._put()

    def finish(self) -> list[Run]:
        """All runs."""
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
    """Read a range of the runs, put it in order, write it as blocks of about ``block_rows`` rows."""

    block_rows: int

    task_type: ClassVar[Any] = Range
    result_type: ClassVar[Any] = Written

    def __call__(self, task: Range) -> Written:
        store = self.target.store()
        writer = BlockWriter(self.target, store, self.scratch, Ids())
        parts = [part for stretch in task.stretches for part in self._inside(store, task, stretch)]
        if parts:
            rows = pa.concat_tables(parts).combine_chunks()
            if self.target.order.keys:
                rows, _ = in_order(rows, self.target.order.key_rows(rows, self.target.schema))
            writer.write(rows, self.block_rows)
        return writer.finish()

    def _inside(self, store: Store, task: Range, stretch: Stretch) -> Iterator[pa.Table]:
        """The rows of a stretch that lie in the range, in the order of the run."""
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
