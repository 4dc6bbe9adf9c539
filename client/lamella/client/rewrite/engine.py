"""Engines, which run tasks, and the driver's part of a sort: sampling, cutting ranges, merging them.

An engine gets a stage once and its tasks one by one; results arrive as they are ready. The interface is small: a stage
is a picklable callable, tasks and results are JSON. :class:`LocalEngine` runs them in processes of this machine;
Spark's engine is in :mod:`lamella.client.spark.engine`.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, ClassVar, Final, Protocol, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client.rewrite.block_writer import WrittenBlocks
from lamella.client.rewrite.sort import Run, Scratch, cut_ranges, from_stream, to_stream
from lamella.client.rewrite.source import Source
from lamella.client.rewrite.stages import Bin, MergeRange, Stage
from lamella.client.rewrite.target import Target, arrow_schema
from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import LamellaError, StoreError
from lamella.snapshot.parquet.footer import StoreFile
from lamella.snapshot.schema.arrow import conformed, constant_scalars, file_columns
from lamella.snapshot.stats.constant import constant_values
from lamella.snapshot.storage import FsspecStore

T = TypeVar("T")
R = TypeVar("R")

#: Attempts at a task when storage fails.
_TRIES: Final = 3


class Engine(Protocol):
    """Runs tasks."""

    @property
    def is_near(self) -> bool:
        """Whether tasks run on this machine, so that scratch space may be a local folder."""
        ...

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at once."""
        ...

    def run(self, stage: Stage, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield the number and the result of each task, in the order of completion.

        Raises a task's error after several attempts; other tasks may still be running then. Closing the iterator stops
        the remaining tasks.
        """
        ...


class SerialEngine:
    """Runs one task after another in this thread."""

    is_near = True
    parallelism = 1

    def run(self, stage: Stage, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """See :class:`Engine`."""
        for number, task in enumerate(tasks):
            yield number, msgspec.json.decode(call(stage, msgspec.json.encode(task)), type=stage.result_type)


class ThreadEngine:
    """Runs tasks in ``threads`` threads of this process (None: one per core).

    For programs that cannot start processes, since their main module has no guard or is a notebook. Arrow does most of
    the work of a task without Python's lock.
    """

    is_near = True

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at once."""
        return self._threads

    def run(self, stage: Stage, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """See :class:`Engine`; a single task runs in this thread."""
        if len(tasks) == 1 or self._threads == 1:
            yield from SerialEngine().run(stage, tasks)
            return
        # Tasks are not passed as JSON: msgspec must not analyse a type in two threads at once.
        with ContextThreadPool(self._threads, thread_name_prefix="lamella-task") as pool:
            yield from _in_pool(lambda task: pool.submit(_attempted, stage, task), self._threads, tasks)


def _in_pool(
    submit: Callable[[Any], Future[R]], at_once: int, tasks: Sequence[Any]
) -> Generator[tuple[int, R], None, None]:
    """Yield the number and the result of each task as they are done, with at most ``at_once`` of them submitted."""
    waiting = iter(enumerate(tasks))
    under_way: dict[Future[R], int] = {}
    try:
        while True:
            while len(under_way) < at_once and (following := next(waiting, None)) is not None:
                number, task = following
                under_way[submit(task)] = number
            if not under_way:
                return
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                yield under_way.pop(future), future.result()
    finally:
        for future in under_way:
            future.cancel()


class LocalEngine:
    """Runs tasks in ``processes`` processes of this machine (None: one per core). A context manager."""

    is_near = True

    def __init__(self, processes: int | None = None) -> None:
        self._processes = processes or os.cpu_count() or 1
        self._pool: ProcessPoolExecutor | None = None

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at once."""
        return self._processes

    def run(self, stage: Stage, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """See :class:`Engine`; a single task runs in this process, which saves starting others."""
        if len(tasks) == 1 and self._pool is None:
            yield from SerialEngine().run(stage, tasks)
            return
        done = _in_pool(lambda task: self._submit(stage, task), self._processes, tasks)
        with closing(done):
            for number, result in done:
                yield number, msgspec.json.decode(result, type=stage.result_type)

    def _submit(self, stage: Stage, task: Any) -> Future[bytes]:
        if self._pool is None:
            # Spawned, not forked: a fork copies locks held by threads that it does not copy.
            context = get_context("forkserver")
            self._pool = ProcessPoolExecutor(self._processes, mp_context=context, initializer=_end_with_parent)
        return self._pool.submit(call, stage, msgspec.json.encode(task))

    def close(self) -> None:
        """Stop the processes after their current tasks."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end_with_parent() -> None:
    """End this process when its parent is killed.

    Otherwise it would wait for tasks forever: it holds both ends of the pipe that they arrive through.
    """
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def call(stage: Stage, task: bytes) -> bytes:
    """Run one task, with retries when storage fails; raises StoreError after the last attempt."""
    return msgspec.json.encode(_attempted(stage, msgspec.json.decode(task, type=stage.task_type)))


def _attempted(stage: Stage, task: Any) -> Any:
    function: Callable[[Any], Any] = stage  # type: ignore[assignment]  # stages are called, each with its own task
    for left in range(_TRIES - 1, -1, -1):
        try:
            return function(task)
        except StoreError:
            if not left:
                raise
    raise AssertionError("unreachable")


#: Total rows of a sample over all blocks.
SAMPLE_ROWS: Final = 200_000
_MIN_ROWS: Final = 200


class SampleResult(msgspec.Struct, frozen=True, kw_only=True):
    """Key columns of some rows, as an Arrow stream; None: nothing could be read."""

    keys: bytes | None = None


class SampleKeys(Stage, frozen=True, kw_only=True):
    """Reads the key columns of one row group of each block and takes every n-th row."""

    rows_per_block: int

    task_type: ClassVar[Any] = Bin
    result_type: ClassVar[Any] = SampleResult

    def __call__(self, task: Bin) -> SampleResult:
        parts = [part for source in task.sources if (part := self._of_block(source)) is not None]
        return SampleResult(keys=to_stream(pa.concat_tables(parts)) if parts else None)

    def _of_block(self, source: Source) -> pa.Table | None:
        target = self.target
        store = target.store()
        tops = dict.fromkeys(target.schema.leaf(key).path[0] for key in target.order.keys)
        wanted = pa.schema([field for field in arrow_schema(target.schema) if field.name in tops])
        written = self.schemas[source.schema_id]
        constants = constant_scalars(constant_values(source.constants, written), written)
        try:
            with StoreFile(store, store.stat(source.location)) as opened, pq.ParquetFile(opened) as file:
                if not file.num_row_groups:
                    return None
                names = file_columns(wanted.names, file.schema_arrow.names, written, target.schema)
                rows = file.read_row_group(source.row_count % file.num_row_groups, columns=names).combine_chunks()
        except (LamellaError, pa.ArrowException):
            return None  # the rewriting task reports why it cannot be read
        step = max(1, rows.num_rows // max(1, self.rows_per_block))
        picked = rows.take(pa.array(np.arange(step // 2, rows.num_rows, step)))
        table = pa.Table.from_batches(
            [conformed(batch, wanted, written, target.schema, constants) for batch in picked.to_batches()], wanted
        )
        return target.order.columns(table, target.schema)


def sample_keys(engine: Engine, target: Target, scratch: Scratch, sources: Sequence[Source]) -> pa.Table | None:
    """Return the key columns of sampled rows of all blocks."""
    per_block = max(_MIN_ROWS, SAMPLE_ROWS // max(1, len(sources)))
    stage = SampleKeys(target=target, scratch=scratch, rows_per_block=per_block)
    size = max(1, -(-len(sources) // (4 * engine.parallelism)))
    tasks = [Bin(sources=tuple(sources[start : start + size])) for start in range(0, len(sources), size)]
    found = [from_stream(result.keys) for _, result in engine.run(stage, tasks) if result.keys is not None]
    return pa.concat_tables(found) if found else None


#: Tasks per process or core, so that all finish at about the same time.
_TASKS_EACH: Final = 2
#: Rows of this size in memory are merged faster here than tasks begin elsewhere.
_SMALL_BYTES: Final = 4 << 20

#: Called with the rows done and the total.
Progress = Callable[[int, int], object]


class ScratchSpace:
    """Scratch space of one job. Objects that tasks write are registered by :meth:`used` and removed at the end."""

    def __init__(self, scratch: Scratch, store: FsspecStore) -> None:
        self.scratch = scratch
        self.store = store
        self._used: set[str] = set()

    def used(self, runs: Iterable[Run] = (), written: Iterable[WrittenBlocks] = ()) -> None:
        """Register objects in scratch space."""
        self._used.update(run.location for run in runs)
        self._used.update(part.ref.location for each in written for part in each.parts)

    def remove(self, runs: Iterable[Run]) -> None:
        """Remove runs that are not needed any more."""
        locations = {run.location for run in runs}
        with suppress(StoreError):
            self.store.delete_many(locations)
        self._used -= locations

    def clear(self) -> None:
        """Remove the registered objects. Vacuum removes what failed tasks left."""
        if self._used:
            with suppress(StoreError):
                self.store.delete_many(self._used)
        self._used.clear()


@contextmanager
def scratch_space(target: Target, *, is_near: bool, folder: str | None = None) -> Iterator[ScratchSpace]:
    """Yield scratch space that all tasks can reach: ``folder`` (a URL), a temporary folder when tasks run on this
    machine, otherwise a folder beside the table's blocks."""
    store = target.store()
    if folder is not None or not is_near:
        space = ScratchSpace(Scratch((folder or target.layout.scratch).rstrip("/")), store)
        try:
            yield space
        finally:
            space.clear()
        return
    with tempfile.TemporaryDirectory(prefix="lamella-", ignore_cleanup_errors=True) as made:
        yield ScratchSpace(Scratch(f"file://{made}"), store)


def merge_runs(
    engine: Engine, target: Target, space: ScratchSpace, runs: Sequence[Run], progress: Progress | None = None
) -> list[WrittenBlocks]:
    """Merge all runs and write the rows as blocks in key order.

    A range has as many blocks as memory allows, or fewer to keep all workers busy.
    """
    if not runs:
        return []
    rows = sum(run.row_count for run in runs)
    size_bytes = sum(run.memory_bytes for run in runs)
    if engine.is_near and size_bytes <= _SMALL_BYTES:
        engine = SerialEngine()
    row_bytes = max(1, size_bytes // rows)
    block_rows = max(1, sum(run.block_rows * run.row_count for run in runs) // rows)
    in_memory = max(1, target.memory_bytes // (row_bytes * block_rows))
    for_all = max(1, rows // (block_rows * engine.parallelism * _TASKS_EACH))
    ranges = cut_ranges(runs, block_rows * min(in_memory, for_all))
    stage = MergeRange(target=target, scratch=space.scratch, block_rows=block_rows)
    found: dict[int, Any] = {}
    done = 0
    for number, written in engine.run(stage, ranges):
        found[number] = written
        space.used(written=[written])
        done += written.row_count
        if progress is not None:
            progress(done, rows)
    return [found[number] for number in range(len(ranges))]
