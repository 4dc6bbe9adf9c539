"""Rows of a block by pyarrow, in the types that are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.layout import FsspecStore, Store
from lamella.snapshot.layout.store import ObjectStat
from lamella.snapshot.parquet.store_file import StoreFile
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.arrow import conformed, file_columns

_BATCH_ROWS: Final = 64 << 10
# Files of Spark 2, or of later ones in legacy mode: old dates stand there in another calendar, which pyarrow ignores.
_OTHER_CALENDAR: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def read_rows(
    location: str,
    target: pa.Schema,
    storage_options: Mapping[str, Mapping[str, Any]],
    *,
    written: Schema,
    current: Schema,
) -> Iterator[pa.RecordBatch]:
    """Every row of a block, as rows of the table.

    ``target`` names columns of ``current``, the table's schema; ``written`` is the one that the block was written with.
    Names in the file are those of ``written``, without regard to case. A column that the file lacks is null, or has its
    default.

    Raises:
        ObjectNotFound, StoreError: the file cannot be opened.
        UnknownColumn: the table has no column of that name.
        SchemaMismatch: a value does not fit the wanted type, or dates stand in the old calendar.
    """
    store = FsspecStore(storage_options)
    yield from rows_of_file(store, store.stat(location), target, written=written, current=current)


def rows_of_file(
    store: Store, stat: ObjectStat, target: pa.Schema, *, written: Schema, current: Schema
) -> Iterator[pa.RecordBatch]:
    """As :func:`read_rows`, of a file whose size is known."""
    with (
        StoreFile(store, stat) as opened,
        pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", pre_buffer=True) as file,
    ):
        if any(key in (file.metadata.metadata or {}) for key in _OTHER_CALENDAR):
            raise SchemaMismatch(f"{stat.location} has dates of the old calendar; read it on a classic session")
        names = file_columns(target.names, file.schema_arrow.names, written, current)
        for batch in file.iter_batches(_BATCH_ROWS, columns=names):
            try:
                yield conformed(batch, target, written, current)
            except SchemaMismatch as error:
                raise SchemaMismatch(f"{stat.location}: {error.message}", **error.details) from error
