"""Rows of one stream as blocks: sorted externally by the cluster key, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa

from lamella.client.rewrite.block_writer import WrittenBlocks, block_rows
from lamella.client.rewrite.engine import (
    SAMPLE_ROWS,
    Progress,
    ScratchSpace,
    SerialEngine,
    ThreadEngine,
    merge_runs,
)
from lamella.client.rewrite.sort import Order, Run, in_order, read_chunks, write_run
from lamella.client.rewrite.stages import RunSorter, Sink, Stage
from lamella.client.rewrite.target import Target
from lamella.snapshot.ids import Ids
from lamella.snapshot.schema import Schema

#: The fraction of memory for a sample of keys, which has at least this many rows.
_SAMPLE_SHARE: Final = 8
_MIN_SAMPLE: Final = 1_000


def write_rows(
    batches: Iterable[pa.RecordBatch],
    target: Target,
    space: ScratchSpace,
    *,
    workers: int,
    progress: Progress | None = None,
) -> list[WrittenBlocks]:
    """Write rows, which have exactly the table's columns, as blocks that are in no snapshot yet.

    About ``target.memory_bytes`` of rows are in memory at a time, or those of one block if they are more.

    Raises:
        StoreError: the store or scratch space refused a file.
    """
    if target.order.needs_curve:
        target, runs = _along_curve(batches, target, space)
        written: list[WrittenBlocks] = []
    else:
        sunk = Sink(target=target, scratch=space.scratch).drain(batches)
        runs, written = list(sunk.runs), [sunk.written]
        space.used(runs, written)
    engine = ThreadEngine(_tasks_at_once(target, runs, workers))
    shared = msgspec.structs.replace(target, memory_bytes=max(1, target.memory_bytes // engine.parallelism))
    return [*written, *merge_runs(engine, shared, space, runs, progress)]


def _tasks_at_once(target: Target, runs: list[Run], workers: int) -> int:
    """Return how many blocks can be sorted and encoded at once in the target's memory, at most ``workers``."""
    rows = sum(run.row_count for run in runs)
    if not rows:
        return 1
    row_bytes = max(1, sum(run.memory_bytes for run in runs) // rows)
    block_bytes = row_bytes * min(rows, max(run.block_rows for run in runs))
    return max(1, min(workers, target.memory_bytes // max(1, block_bytes)))


# A curve is fitted to a sample of all rows. So rows wait in scratch space as they came until all have come; then each
# run is sorted along the curve.


class KeySample:
    """The key columns of at most ``max_rows`` rows and about ``max_bytes`` bytes, evenly from all that were added."""

    def __init__(self, order: Order, schema: Schema, *, max_bytes: int, max_rows: int = SAMPLE_ROWS) -> None:
        self._order = order
        self._schema = schema
        self._max_bytes = max_bytes
        self._max_rows = max_rows
        self._parts: list[pa.Table] = []
        self._step = 1
        self._seen = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows: every n-th, where n doubles whenever the sample is full."""
        keys = self._order.columns(pa.Table.from_batches([batch]), self._schema)
        positions = np.arange(-self._seen % self._step, batch.num_rows, self._step)
        self._seen += batch.num_rows
        self._parts.append(keys.take(pa.array(positions)))
        while self._is_full():
            sample = self.rows()
            self._parts = [sample.take(pa.array(np.arange(0, sample.num_rows, 2)))]
            self._step *= 2

    def _is_full(self) -> bool:
        count = int(sum(part.num_rows for part in self._parts))
        size_bytes = int(sum(part.nbytes for part in self._parts))
        return count > self._max_rows or (size_bytes > self._max_bytes and count > _MIN_SAMPLE)

    def rows(self) -> pa.Table:
        """Return the sample; there is at least one row."""
        return pa.concat_tables(self._parts).combine_chunks()


class SortRun(Stage, frozen=True, kw_only=True):
    """Reads a run whose rows have no order, and writes it in the target's order."""

    task_type: ClassVar[Any] = Run
    result_type: ClassVar[Any] = Run

    def __call__(self, task: Run) -> Run:
        store, target = self.target.store(), self.target
        rows = pa.concat_tables(list(read_chunks(store, task.location, task.chunks))).combine_chunks()
        rows, keys = in_order(rows, target.order.key_rows(rows, target.schema))
        return write_run(store, self.scratch, Ids(), rows, keys, block_rows=block_rows(rows, target))


def _along_curve(batches: Iterable[pa.RecordBatch], target: Target, space: ScratchSpace) -> tuple[Target, list[Run]]:
    sample = KeySample(target.order, target.schema, max_bytes=target.memory_bytes // _SAMPLE_SHARE)
    sorter = RunSorter(msgspec.structs.replace(target, order=Order()), space.store, space.scratch, Ids())
    for batch in batches:
        if batch.num_rows:
            sample.add(batch)
            sorter.add(batch)
    unsorted = sorter.finish()
    space.used(unsorted)
    if not unsorted:
        return target, []
    target = msgspec.structs.replace(target, order=target.order.along(sample.rows(), target.schema))
    stage = SortRun(target=target, scratch=space.scratch)
    runs = []
    # One after another, since each run is as large as memory allows.
    for number, run in SerialEngine().run(stage, unsorted):
        space.used([run])
        space.remove([unsorted[number]])
        runs.append(run)
    return target, runs
