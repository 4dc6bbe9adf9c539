"""Reads some rows of a snapshot within bounds: on rows, blocks, bytes, time, and the size of the answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import Predicate
from lamella.snapshot.manifest import FEATURES, Snapshot, SnapshotPointer
from lamella.snapshot.prune.outcome import ALL
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.prune.writer import answer_of
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.rows.block_file import BlockFile
from lamella.snapshot.rows.columns import ReadColumn, read_columns, read_leaf
from lamella.snapshot.rows.json_values import json_rows
from lamella.snapshot.rows.row_groups import Fetcher, ReadSpec, row_group_reads
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.storage import ListedObject, ObjectStat, Store
from lamella.snapshot.warehouse.finder import Finder
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import PrunedBlock, PruneRequest
from lamella.snapshot.wire.sample import SampleAnswer, SampleBound, SampleColumn, SampleRequest

#: Most bytes of the rows of an answer, as JSON.
MAX_ANSWER_BYTES: Final = 8 << 20
#: Requests to the store at a time.
_AT_ONCE: Final = 4
_ENCODER: Final = msgspec.json.Encoder()


class Stopped(Exception):
    """A bound is reached: nothing more is read."""

    def __init__(self, bound: SampleBound) -> None:
        self.bound: SampleBound = bound


class BoundedReads:
    """``store``, of which at most ``max_bytes`` are read, and nothing once ``is_over``; raises Stopped instead.

    Threads may share it.
    """

    def __init__(self, store: Store, max_bytes: int, is_over: Callable[[], bool]) -> None:
        self._store = store
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._is_over = is_over
        self._lock = threading.Lock()

    @property
    def read_bytes(self) -> int:
        """Returns the bytes that were requested."""
        return self._max_bytes - self._left

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Returns some bytes of an object."""
        self._take(length)
        return self._store.read_range(location, start, length)

    def read(self, location: str) -> bytes:
        """Returns all bytes of an object."""
        self._take(self._store.stat(location).size_bytes)
        return self._store.read(location)

    def stat(self, location: str) -> ObjectStat:
        """Returns size and content id of an object."""
        self._take(0)
        return self._store.stat(location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Delegate to the store."""
        return self._store.put(location, data)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """Delegate to the store."""
        return self._store.expand(url, plain=plain)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """Delegate to the store."""
        return self._store.list(prefix, start_after=start_after)

    def delete(self, location: str) -> None:
        """Delegate to the store."""
        self._store.delete(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Delegate to the store."""
        return self._store.delete_many(locations)

    def _take(self, size_bytes: int) -> None:
        if self._is_over():
            raise Stopped("time")
        with self._lock:
            if size_bytes > self._left:
                raise Stopped("bytes")
            self._left -= size_bytes


class RowSamples:
    """Samples of the snapshots of a warehouse."""

    def __init__(self, manifests: Manifests, finder: Finder, store: Store) -> None:
        self._manifests = manifests
        self._finder = finder
        self._store = store

    def read(
        self,
        pointer: SnapshotPointer,
        request: SampleRequest,
        *,
        max_bytes: int,
        is_over: Callable[[], bool],
        require: Callable[[str], object],
    ) -> SampleAnswer:
        """Returns rows that match; the request's snapshot and bound on time are not looked at.

        ``max_bytes``: most bytes of files that are read. ``is_over``: nothing is read once it returns True.
        ``require`` is called with each location before it is read, and raises if it must not be.

        Raises:
            InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded, InvalidRequest: the request is invalid.
            FilterNotEvaluable: a part of the filter cannot be decided exactly.
            EvaluationFailed: the filter cannot be computed for some row.
            ReaderFeatureMissing: the table needs readers of a later release.
            BlockReplaced, NotParquet, SchemaMismatch, CorruptDeletes, HashMismatch: a file is not as registered.
            ObjectNotFound, StoreError: it cannot be read.
        """
        wanted = PruneRequest(
            filter=request.filter,
            time_zone=request.time_zone,
            case_sensitive=request.case_sensitive,
            reader_features=FEATURES,
        )
        predicate = self._finder.read(wanted)
        head = self._manifests.head(pointer)
        columns, left_out = _columns(head.schema, request)
        reading = _read_spec(
            predicate, head.schema, columns, time_zone=request.time_zone, case_sensitive=request.case_sensitive
        )
        found = self._finder.find_predicate(pointer, predicate, wanted)
        sample = _Sample(head, reading, columns, request.rows)
        bounded = BoundedReads(self._store, max_bytes, is_over)
        fetcher = Fetcher(bounded, _AT_ONCE)
        stopped: SampleBound | None = None
        try:
            for block in _first_blocks(found, request.max_blocks):
                _require(block, require)
                sample.add(bounded, fetcher, block)
        except Stopped as error:
            stopped = error.bound
        finally:
            fetcher.close()
        if stopped is None and sample.blocks < found.block_count:
            stopped = "blocks"
        return SampleAnswer(
            snapshot_id=head.snapshot_id,
            timestamp_ms=head.timestamp_ms,
            columns=tuple(SampleColumn(name=one.field.name, type=_type_of(one)) for one in columns),
            rows=sample.rows,
            complete=stopped is None,
            stopped=stopped,
            blocks_total=head.summary.block_count,
            blocks_selected=found.block_count,
            blocks_read=sample.blocks,
            bytes_read=bounded.read_bytes,
            left_out=left_out,
        )

    def count(
        self,
        pointer: SnapshotPointer,
        predicate: Predicate,
        *,
        time_zone: str,
        max_blocks: int,
        max_bytes: int,
        is_over: Callable[[], bool],
        require: Callable[[str], object],
    ) -> RowCount:
        """Returns the number of rows for which a filter is true; those of blocks that match as a whole are not read.

        Nothing is read if more than ``max_blocks`` would have to be. The other arguments, and the errors, are those of
        :meth:`read`.
        """
        request = PruneRequest(time_zone=time_zone, reader_features=FEATURES)
        head = self._manifests.head(pointer)
        reading = _read_spec(predicate, head.schema, (), time_zone=time_zone, case_sensitive=False)
        found = self._finder.find_predicate(pointer, predicate, request)
        rows, unsure = 0, []
        for block in answer_of(msgspec.structs.replace(found, shape="records")).blocks or ():
            known = block.live_row_count if block.verdict == "ALL" else None
            if known is None:
                unsure.append(block)
                if len(unsure) > max_blocks:
                    return RowCount(rows=None, blocks_read=0, bytes_read=0, stopped="blocks")
            else:
                rows += known
        bounded = BoundedReads(self._store, max_bytes, is_over)
        fetcher = Fetcher(bounded, _AT_ONCE)
        done = 0
        try:
            for block in unsure:
                _require(block, require)
                file = _opened(bounded, head, block)
                rows += sum(piece.count(reading, fetcher) for piece in row_group_reads(file, limit=None, counting=True))
                done += 1
        except Stopped as error:
            return RowCount(rows=None, blocks_read=done, bytes_read=bounded.read_bytes, stopped=error.bound)
        finally:
            fetcher.close()
        return RowCount(rows=rows, blocks_read=done, bytes_read=bounded.read_bytes)


class RowCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of ``rows`` for which a filter is true; None: not all blocks were read, since a bound ``stopped``
    it."""

    rows: int | None
    blocks_read: int
    bytes_read: int
    stopped: SampleBound | None = None


def _require(block: PrunedBlock, require: Callable[[str], object]) -> None:
    for location in (block.location, *(each.location for each in block.deletes or ())):
        require(location)


def _opened(store: Store, head: Snapshot, block: PrunedBlock) -> BlockFile:
    written = head.schema if block.schema_id is None else schema_at(head, block.schema_id)
    return BlockFile(store, block, written, head.schema)


class _Sample:
    """The rows that were read so far, and the number of blocks that they are from."""

    def __init__(self, head: Snapshot, reading: ReadSpec, columns: Sequence[ReadColumn], max_rows: int) -> None:
        self.rows: list[list[Any]] = []
        self.blocks = 0
        self._head = head
        self._reading = reading
        self._columns = columns
        self._max_rows = max_rows
        self._answer_bytes = 0

    def add(self, store: Store, fetcher: Fetcher, block: PrunedBlock) -> None:
        """Add rows of a block; raises Stopped, also for the first row more than are wanted."""
        file = _opened(store, self._head, block)
        self.blocks += 1
        # One row more than is wanted shows that there are more.
        for piece in row_group_reads(file, limit=self._max_rows - len(self.rows) + 1):
            left = self._max_rows - len(self.rows)
            for row in json_rows(piece.table(self._reading, fetcher, limit=left + 1), self._columns):
                if len(self.rows) == self._max_rows:
                    raise Stopped("rows")
                self._answer_bytes += len(_ENCODER.encode(row))
                if self._answer_bytes > MAX_ANSWER_BYTES:
                    raise Stopped("answer_bytes")
                self.rows.append(row)


def _first_blocks(found: PruneResult, count: int) -> Iterator[PrunedBlock]:
    """Yields blocks in the snapshot's order, first those in which every row matches, at most ``count``."""
    for is_sure in (True, False):
        parts = []
        for part in found.parts():
            mine = ((part.codes == ALL) == is_sure).nonzero()[0][:count]
            if len(mine):
                parts.append(part.where(mine))
                count -= len(mine)
            if not count:
                break
        some = msgspec.structs.replace(found, selection=found.only(parts), order=None, bounds=None, shape="records")
        yield from answer_of(some).blocks or ()


def _columns(schema: Schema, request: SampleRequest) -> tuple[tuple[ReadColumn, ...], dict[str, str]]:
    """Returns the requested columns, and those that were not requested and cannot be read with the reasons."""
    if request.columns is not None:
        return read_columns(schema, request.columns, case_sensitive=request.case_sensitive), {}
    found: list[ReadColumn] = []
    left_out: dict[str, str] = {}
    for column in schema.columns:
        try:
            found += read_columns(schema, [column.name], case_sensitive=True)
        except InvalidRequest as error:
            left_out[column.name] = error.message
    return tuple(found), left_out


def _read_spec(
    predicate: Predicate, schema: Schema, columns: tuple[ReadColumn, ...], *, time_zone: str, case_sensitive: bool
) -> ReadSpec:
    decides = RowFilter(predicate, schema, time_zone=time_zone, case_sensitive=case_sensitive)
    of_filter = tuple(read_leaf(schema, leaf) for leaf in decides.columns)
    return ReadSpec(columns, pa.schema([one.field for one in columns]), decides, of_filter)


def _type_of(one: ReadColumn) -> str:
    if one.leaf is not None:
        return str(one.leaf.dtype)
    return _nested(one.column)


def _nested(column: Column) -> str:
    if not column.fields:
        return str(column.dtype)
    names = [f"{part.name}: " if column.dtype.name == "struct" else "" for part in column.fields]
    inner = [name + _nested(part) for name, part in zip(names, column.fields, strict=True)]
    return f"{column.dtype.name}<{', '.join(inner)}>"
