"""Appends, overwrites and deletes from Python: what :class:`lamella.client.http.Table` offers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec
import pyarrow as pa

from lamella.client.http.lake import Lake
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.delete import DeleteResult, delete_rows
from lamella.client.rewrite.block_writer import WrittenBlocks
from lamella.client.rewrite.commit import TableState, commit_result
from lamella.client.rewrite.engine import ThreadEngine, scratch_space
from lamella.client.rewrite.target import Target
from lamella.client.scan.progress import Progress
from lamella.client.write.columns import TableColumns
from lamella.client.write.commit import EVERY_ROW, RowsCommit
from lamella.client.write.data import RowStream, open_rows
from lamella.client.write.layout import Layout, WriteResult, require_sizes
from lamella.client.write.new_table import table_for
from lamella.client.write.once import CommitOnce
from lamella.client.write.rows import write_rows
from lamella.snapshot.delete_policy import DeleteMode
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.manifest import ClusterKind

_MAX_WORKERS: Final = 4


class NewTable(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a missing table is created, and how. The cluster key is the write's own."""

    create: bool = False
    cluster_kind: ClusterKind = "linear"
    properties: Mapping[str, str] = {}


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a write is carried out. ``workers``: threads (None: one per core, at most four)."""

    layout: Layout = Layout()
    new_table: NewTable = NewTable()
    workers: int | None = None
    progress: bool = False

    def check(self) -> None:
        """Raise InvalidRequest for impossible numbers."""
        require_sizes(self.layout.block_rows, self.layout.block_bytes)
        if self.layout.memory_bytes < 1:
            raise InvalidRequest("memory_bytes is at least 1", memory_bytes=self.layout.memory_bytes)
        if self.workers is not None and self.workers < 1:
            raise InvalidRequest("a write needs at least one worker", workers=self.workers)

    @property
    def threads(self) -> int:
        """Return the number of threads."""
        return self.workers or min(_MAX_WORKERS, os.cpu_count() or 1)


def append(
    lake: Lake,
    name: str,
    data: Any,
    options: WriteOptions,
    *,
    properties: Mapping[str, str] | None = None,
    idempotency_key: str | None = None,
) -> WriteResult:
    """Append rows; see :meth:`lamella.client.http.Table.append`."""
    options.check()
    stream = open_rows(data)
    with table_of(lake, name, stream, options):
        state, target, columns = prepared(lake, name, stream, options)
        once = CommitOnce(lake, state, target.store(), idempotency_key)
        earlier = once.earlier()
        if earlier is not None:
            return earlier
        with scratch_space(target, is_near=True, folder=options.layout.scratch) as space:
            with progress_of(options) as shown:
                batches = counted(map(columns.fit, stream), shown)
                written = write_rows(batches, target, space, workers=options.threads, progress=shown.done)
            result = summary(written, state)
            if not result.rows:
                return result
            result = msgspec.structs.replace(result, committed=True)
            commit_result(
                lake,
                state,
                target,
                written,
                operation="append",
                properties=properties,
                send=lambda call: once.send(call, result),
            )
    return once.result or result


def overwrite(
    lake: Lake,
    name: str,
    data: Any,
    options: WriteOptions,
    *,
    where: Any = None,
    time_zone: str = "UTC",
    read_snapshot_id: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> WriteResult:
    """Replace rows; see :meth:`lamella.client.http.Table.overwrite`."""
    options.check()
    _refuse_boolean(where)
    stream = open_rows(data)
    if where is not None and read_snapshot_id is not None:
        raise InvalidRequest("rows that were computed from the table replace all of it: where cannot be given as well")
    rows_commit = RowsCommit(
        replaces=EVERY_ROW if where is None else where,
        time_zone=time_zone,
        rests_on=lambda: read_snapshot_id,
        properties=dict(properties or {}),
    )
    with table_of(lake, name, stream, options):
        state, target, columns = prepared(lake, name, stream, options)
        rows_commit.check(target.schema)
        with scratch_space(target, is_near=True, folder=options.layout.scratch) as space:
            with progress_of(options) as shown:
                batches = counted(map(columns.fit, stream), shown)
                written = write_rows(batches, target, space, workers=options.threads, progress=shown.done)
            engine = ThreadEngine(options.threads)
            done = rows_commit.apply(lake, engine, state, target, written, scratch=options.layout.scratch)
    return msgspec.structs.replace(
        summary(written, state),
        snapshot_id=done.snapshot_id,
        rows_removed=done.rows_removed,
        committed=done.committed,
    )


def delete(
    lake: Lake,
    name: str,
    where: Any,
    options: WriteOptions,
    *,
    every_row: bool = False,
    time_zone: str = "UTC",
    case_sensitive: bool = False,
    mode: DeleteMode | None = None,
) -> DeleteResult:
    """Delete rows; see :meth:`lamella.client.http.Table.delete`."""
    options.check()
    _refuse_boolean(where)
    if (where is None) != every_row:
        raise InvalidRequest(
            "a delete takes a filter, or every_row=True and no filter"
            if where is None
            else "every_row deletes all rows; give no filter with it"
        )
    with progress_of(options, "blocks") as shown:
        context = JobContext(
            lake=lake,
            table=name,
            engine=ThreadEngine(options.threads),
            storage_options=options.layout.storage_options,
            scratch=options.layout.scratch,
            compression=options.layout.compression,
            on_progress=lambda done, total, _unit: shown.done(done, total),
        )
        return delete_rows(
            context,
            EVERY_ROW if every_row else where,
            time_zone=time_zone,
            case_sensitive=case_sensitive,
            mode=mode,
        )


def summary(written: Sequence[WrittenBlocks], state: TableState) -> WriteResult:
    """Return the result of a write before its commit."""
    return WriteResult(
        blocks=sum(len(each.blocks) for each in written),
        rows=sum(each.row_count for each in written),
        size_bytes=sum(each.size_bytes for each in written),
        snapshot_id=state.info.snapshot_id,
        committed=False,
    )


def counted(batches: Iterable[pa.RecordBatch], shown: Progress) -> Iterator[pa.RecordBatch]:
    """Yield batches and show how many rows they have."""
    for batch in batches:
        shown.rows(batch.num_rows)
        yield batch


def table_of(lake: Lake, name: str, stream: RowStream, options: WriteOptions) -> AbstractContextManager[None]:
    """Create the table for the rows, if that was requested; see :func:`table_for`."""
    new = options.new_table
    return table_for(
        lake,
        name,
        stream.columns,
        options.layout.keys,
        new.properties,
        create=new.create,
        cluster_kind=new.cluster_kind,
    )


def prepared(
    lake: Lake, name: str, stream: RowStream, options: WriteOptions
) -> tuple[TableState, Target, TableColumns]:
    """Return the table, how its blocks are written, and its columns; raises for rows that can never fit."""
    state = TableState.read(lake, name)
    target = options.layout.target_of(state)
    columns = TableColumns(target.schema)
    if stream.schema is not None:
        columns.check(stream.schema)
    return state, target, columns


def progress_of(options: WriteOptions, doing: str = "rows in blocks") -> Progress:
    """Return the progress bar of a write."""
    return Progress(None, shown=options.progress, doing=doing)


def _refuse_boolean(where: Any) -> None:
    """Raise InvalidRequest for True and False: a comparison that Python has evaluated, more likely than a filter."""
    if isinstance(where, bool):
        raise InvalidRequest(f"a filter is SQL text or a JSON tree, not {where}")
