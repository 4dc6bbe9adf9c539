"""Whatever holds rows in Python, as a stream of record batches and dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from lamella.client.scan.rows import library
from lamella.client.write.arrow_types import columns_of
from lamella.client.write.columns import Chunk
from lamella.client.write.python_values import PythonRows
from lamella.snapshot.errors import InvalidRequest, SchemaMismatch
from lamella.snapshot.schema import Column

#: Maximum rows and approximate maximum bytes of a chunk.
CHUNK_ROWS: Final = 64 << 10
CHUNK_BYTES: Final = 16 << 20
#: Dictionaries that are converted together.
_DICTIONARIES: Final = 10_000
_STREAM: Final = "__arrow_c_stream__"
_ARRAY: Final = "__arrow_c_array__"


class RowStream:
    """Rows that are read once, in order. ``schema``: their columns, if they are known before the first row is read."""

    def __init__(self, chunks: Iterable[Chunk], schema: pa.Schema | None = None) -> None:
        self._chunks = iter(chunks)
        self.schema = schema

    def columns(self) -> tuple[Column, ...]:
        """Return the columns of a new table for these rows: those of the data, or of its first chunk.

        Raises:
            InvalidSchema: a type that a table cannot have, or a column of nulls.
            InvalidRequest: there are no rows that tell.
        """
        if self.schema is None:
            first = next(self._chunks, None)
            if first is None:
                raise InvalidRequest("rows without columns and values do not tell the columns of a new table")
            self._chunks = chain([first], self._chunks)
            return columns_of((first.to_batch() if isinstance(first, PythonRows) else first).schema)
        return columns_of(self.schema)

    def __iter__(self) -> Iterator[Chunk]:
        return self._chunks


def open_rows(data: Any) -> RowStream:
    """Return the rows of ``data``; see :meth:`lamella.client.http.Table.append`.

    Raises:
        InvalidRequest: it holds no rows.
        SchemaMismatch: its values have no types in Arrow. Reading the stream raises this too.
    """
    if isinstance(data, str | bytes | bytearray):
        raise InvalidRequest(f"rows are expected, not {type(data).__name__}; `lamella append` reads files")
    known = _known(data)
    if known is not None:
        return known
    if isinstance(data, Mapping):
        return _of_table(_converted(lambda: pa.table(dict(data))))
    if isinstance(data, Iterable):
        return RowStream(_of_items(data))
    raise InvalidRequest(f"{type(data).__name__} holds no rows")


def _known(data: Any) -> RowStream | None:
    """Return the rows of a value that holds columns; None: it is no such value."""
    if isinstance(data, pa.RecordBatch):
        return RowStream(sliced(data), data.schema)
    if isinstance(data, pa.Table):
        return _of_table(data)
    if isinstance(data, pa.RecordBatchReader):
        return _of_reader(data)
    module = type(data).__module__.partition(".")[0]
    if module == "pandas":
        return _of_pandas(data)
    if module == "polars" and hasattr(data, "collect"):
        return _of_lazy(data)
    if module == "pyarrow" and hasattr(data, "scanner"):
        data = data.scanner()
    if module == "pyarrow" and hasattr(data, "to_reader"):
        return _of_reader(data.to_reader())
    if hasattr(data, _STREAM):
        return _of_reader(_converted(lambda: pa.RecordBatchReader.from_stream(data)))
    if hasattr(data, _ARRAY):
        return _known(_converted(lambda: pa.record_batch(data)))
    return None


def _of_table(table: pa.Table) -> RowStream:
    return RowStream((part for batch in table.to_batches() for part in sliced(batch)), table.schema)


def _of_reader(reader: pa.RecordBatchReader) -> RowStream:
    return RowStream((part for batch in _read(reader) for part in sliced(batch)), reader.schema)


def _read(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            yield reader.read_next_batch()
        except StopIteration:
            return


def _of_pandas(data: Any) -> RowStream:
    """Return the rows of a frame. Levels of the index that have a name are columns, as in ``DataFrame.to_parquet``."""
    if not hasattr(data, "columns"):
        raise InvalidRequest("a series has no columns; pass series.to_frame()")
    named = [name for name in data.index.names if name is not None]
    if named:
        unnamed = [level for level, name in enumerate(data.index.names) if name is None]
        data = (data.reset_index(level=unnamed, drop=True) if unnamed else data).reset_index()
    return _of_table(_converted(lambda: pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata()))


def _of_lazy(data: Any) -> RowStream:
    """Return the rows of a Polars LazyFrame, streamed where this release of Polars can."""
    frames = library("polars", "append", "polars")
    if not hasattr(data, "collect_batches"):
        return _of_reader(pa.RecordBatchReader.from_stream(data.collect(engine="streaming")))
    empty = pa.RecordBatchReader.from_stream(frames.DataFrame(schema=data.collect_schema())).schema
    batches = data.collect_batches(chunk_size=CHUNK_ROWS, lazy=True)
    return RowStream((part for frame in batches for part in _of_reader(pa.RecordBatchReader.from_stream(frame))), empty)


def _of_items(items: Iterable[Any]) -> Iterator[Chunk]:
    rows: list[Any] = []
    for item in items:
        if isinstance(item, Mapping):
            rows.append(item)
            if len(rows) >= _DICTIONARIES:
                yield PythonRows.of(rows)
                rows = []
            continue
        if rows:
            yield PythonRows.of(rows)
            rows = []
        inner = RowStream(_of_items(item)) if isinstance(item, list | tuple) else _known(item)
        if inner is None:
            raise InvalidRequest(f"rows are dictionaries, record batches, tables or frames, not {type(item).__name__}")
        yield from inner
    if rows:
        yield PythonRows.of(rows)


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of limited size; an empty one once, for its columns."""
    count = batch.num_rows
    if not count:
        yield batch
        return
    row_bytes = max(1, batch.nbytes // count)
    step = max(1, min(CHUNK_ROWS, CHUNK_BYTES // row_bytes))
    for start in range(0, count, step):
        yield batch.slice(start, step)


def _converted(make: Any) -> Any:
    try:
        return make()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaMismatch(f"the rows cannot be converted to Arrow: {error}") from error
