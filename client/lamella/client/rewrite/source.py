"""Reads all rows of registered blocks exactly, to rewrite them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client.rewrite.target import arrow_schema
from lamella.snapshot.deletes import Positions, RangeReader, deleted_rows, remaining
from lamella.snapshot.errors import BlockReplaced, ObjectNotFound, SchemaMismatch
from lamella.snapshot.manifest import ClusterStats, DeleteFile, live_rows
from lamella.snapshot.parquet.footer import StoreFile
from lamella.snapshot.parquet.writer import require_gregorian
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.arrow import conformed, constant_scalars, file_columns
from lamella.snapshot.stats import Bound
from lamella.snapshot.stats.constant import Constants, constant_values
from lamella.snapshot.storage import FsspecStore, Store
from lamella.snapshot.storage.store import ObjectStat
from lamella.snapshot.wire import BlockFacts

_Item = TypeVar("_Item")

_BATCH_ROWS: Final = 64 << 10
#: Smaller groups of blocks cost more to start than they save.
_MIN_GROUP_BYTES: Final = 4 << 20
_NO_CONSTANTS: Final[Constants] = {}
# Files of Spark 2, or of later releases in legacy mode: old dates use another calendar, which pyarrow ignores.
_OTHER_CALENDAR: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def read_rows(
    location: str,
    target: pa.Schema,
    storage_options: Mapping[str, Mapping[str, Any]],
    *,
    written: Schema,
    current: Schema,
    constants: Constants = _NO_CONSTANTS,
    deletes: Sequence[DeleteFile] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield every row of a block but the deleted ones, as rows of the table.

    ``target`` names columns of ``current``, the table's schema; ``written`` is the schema that the block was written
    with. Column names in the file are those of ``written``, compared case-insensitively. A column missing from the file
    has the value that ``constants`` gives it, or else is null or has its default.

    Raises:
        ObjectNotFound, StoreError: the file cannot be opened.
        CorruptDeletes, HashMismatch: the list of deleted rows is damaged.
        UnknownColumn: the table has no column of that name.
        SchemaMismatch: a value does not fit the target type, or dates use the old calendar.
    """
    store = FsspecStore(storage_options)
    stat = store.stat(location)
    yield from rows_of_file(store, stat, target, written=written, current=current, constants=constants, deletes=deletes)


def rows_of_file(
    store: Store,
    stat: ObjectStat,
    target: pa.Schema,
    *,
    written: Schema,
    current: Schema,
    constants: Constants = _NO_CONSTANTS,
    deletes: Sequence[DeleteFile] = (),
) -> Iterator[pa.RecordBatch]:
    """Same as :func:`read_rows`, for a file of known size."""
    pieces = _pieces(store, stat, target, written=written, current=current, constants=constants, deletes=deletes)
    for _, rows in pieces:
        yield rows


def _pieces(
    store: Store,
    stat: ObjectStat,
    target: pa.Schema,
    *,
    written: Schema,
    current: Schema,
    constants: Constants = _NO_CONSTANTS,
    deletes: Sequence[DeleteFile] = (),
    wanted: Positions | None = None,
) -> Iterator[tuple[Positions, pa.RecordBatch]]:
    """Yield rows with their positions in the file; ``wanted``: only at these ascending positions."""
    given = constant_scalars(constant_values(constants, written), written)
    with (
        StoreFile(store, stat) as opened,
        pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", pre_buffer=True) as file,
    ):
        has_old_calendar = any(key in (file.metadata.metadata or {}) for key in _OTHER_CALENDAR)
        names = file_columns(target.names, file.schema_arrow.names, written, current)
        deleted = deleted_rows(store, deletes, file.metadata.num_rows)
        for batch, start in _batches(file, names, wanted):
            live = remaining(deleted, start, batch.num_rows)
            keep = np.ones(batch.num_rows, dtype=bool) if live is None else live
            if wanted is not None:
                begin, end = np.searchsorted(wanted, [start, start + batch.num_rows])
                chosen = np.zeros(batch.num_rows, dtype=bool)
                chosen[wanted[begin:end] - start] = True
                keep &= chosen
            rows = batch if keep.all() else batch.filter(pa.array(keep))
            if has_old_calendar:
                for name, values in zip(rows.schema.names, rows.columns, strict=True):
                    require_gregorian(values, stat.location, name)
            try:
                made = conformed(rows, target, written, current, given)
            except SchemaMismatch as error:
                raise SchemaMismatch(f"{stat.location}: {error.message}", **error.details) from error
            yield np.flatnonzero(keep) + start, made


def _batches(
    file: pq.ParquetFile, names: Sequence[str], wanted: Positions | None
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield batches and the position of the first row of each; row groups without a wanted row are not read."""
    row = stop = 0
    if wanted is None:
        for batch in file.iter_batches(_BATCH_ROWS, columns=names):
            yield batch, row
            row += batch.num_rows
        return
    for number in range(file.metadata.num_row_groups):
        row, stop = stop, stop + file.metadata.row_group(number).num_rows
        if np.searchsorted(wanted, row) == np.searchsorted(wanted, stop):
            continue
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=names):
            yield batch, row
            row += batch.num_rows


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed to read a block; ``schema_id``: the schema that it was written with.

    ``cluster``: the block's description of the order of its rows. ``constants``: values of columns that its file does
    not hold. ``deletes``: rows of the file that are not in the table, but in ``row_count``.
    """

    location: str
    row_count: int
    file_size: int
    content_id: str | None
    schema_id: int
    cluster: ClusterStats | None = None
    constants: dict[int, Bound | None] = {}
    deletes: tuple[DeleteFile, ...] = ()

    @classmethod
    def of(cls, block: BlockFacts) -> Source:
        """Return the source of a block."""
        return cls(
            location=block.location,
            row_count=block.row_count,
            file_size=block.file_size,
            content_id=block.content_id,
            schema_id=block.schema_id,
            cluster=None if block.key_id is None else ClusterStats(key_id=block.key_id, level=block.level),
            constants=block.constants,
            deletes=block.deletes,
        )

    def live_row_count(self, store: Store) -> int:
        """Return the number of rows that are not deleted; reads the lists of deleted rows if it is not known."""
        known = live_rows(self.row_count, self.deletes)
        return self.row_count - len(deleted_rows(store, self.deletes, self.row_count)) if known is None else known


def grouped(items: Iterable[_Item], size_bytes: Callable[[_Item], int], max_bytes: int) -> Iterator[list[_Item]]:
    """Yield items in groups of at most ``max_bytes``, in their order; a larger item is a group of its own."""
    some: list[_Item] = []
    total = 0
    for item in items:
        size = size_bytes(item)
        if some and total + size > max_bytes:
            yield some
            some, total = [], 0
        some.append(item)
        total += size
    if some:
        yield some


def spread(
    items: Sequence[_Item], size_bytes: Callable[[_Item], int], max_bytes: int, parallelism: int
) -> list[list[_Item]]:
    """Return items in groups of at most ``max_bytes``, or smaller ones, so that there are two for each of
    ``parallelism`` workers."""
    share = sum(map(size_bytes, items)) // (2 * parallelism)
    return list(grouped(items, size_bytes, min(max_bytes, max(share, _MIN_GROUP_BYTES))))


def live_positions(store: RangeReader, source: Source) -> Positions:
    """Return the positions in a block's file of its rows that are not deleted, ascending; raises CorruptDeletes,
    HashMismatch, ObjectNotFound, StoreError."""
    left = remaining(deleted_rows(store, source.deletes, source.row_count), 0, source.row_count)
    return np.arange(source.row_count) if left is None else np.flatnonzero(left)


def source_rows(
    store: Store,
    source: Source,
    schemas: Mapping[int, Schema],
    current: Schema,
    target: pa.Schema | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield every row of a block but the deleted ones, with the table's columns; ``target``: these columns and types
    only.

    Raises:
        BlockReplaced: the file is not the one that was registered, or has other rows.
        CorruptDeletes, HashMismatch: the list of deleted rows is damaged.
        ObjectNotFound, StoreError: it cannot be read.
        SchemaMismatch: a value does not fit its type, or dates use the old calendar.
    """
    pieces = positioned_rows(store, source, schemas, current, arrow_schema(current) if target is None else target)
    for _, rows in pieces:
        yield rows


def positioned_rows(
    store: Store,
    source: Source,
    schemas: Mapping[int, Schema],
    current: Schema,
    target: pa.Schema,
    wanted: Positions | None = None,
) -> Iterator[tuple[Positions, pa.RecordBatch]]:
    """Yield rows of a block, which are not deleted, with their positions in its file; ``wanted``: only at these
    ascending positions, none of which is deleted.

    Without columns in ``target`` the positions tell the number of rows. Raises as :func:`source_rows`.
    """
    stat = store.stat(source.location)
    if stat.size_bytes != source.file_size or source.content_id not in (None, stat.content_id):
        raise _replaced_error(source)
    count = 0
    for positions, rows in _pieces(
        store,
        stat,
        target,
        written=schemas[source.schema_id],
        current=current,
        constants=source.constants,
        deletes=source.deletes,
        wanted=wanted,
    ):
        count += len(positions)
        yield positions, rows
    if count != (source.live_row_count(store) if wanted is None else len(wanted)):
        raise _replaced_error(source)
    try:
        unchanged = store.stat(source.location) == stat
    except ObjectNotFound:
        unchanged = True  # deleted after it was read completely
    if not unchanged:
        raise _replaced_error(source)


def _replaced_error(source: Source) -> BlockReplaced:
    return BlockReplaced(
        f"{source.location} is not the file that the table's statistics come from", location=source.location
    )
