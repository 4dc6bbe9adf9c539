"""Rows of local files: Parquet, CSV, JSON lines, Arrow IPC."""

from __future__ import annotations

import csv
import io
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from lamella.client.rewrite.target import arrow_schema
from lamella.snapshot.errors import InvalidRequest, InvalidSchema, LamellaError, SchemaMismatch
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.column import default_value
from lamella.snapshot.schema.types import PER_SECOND

FileFormat = Literal["parquet", "csv", "jsonl", "arrow"]

#: The path of standard input.
STANDARD_INPUT: Final = "-"
_ENDINGS: Final[dict[str, FileFormat]] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_COMPRESSED: Final = re.compile(r"\.(gz|bz2|zst|lz4)$", re.IGNORECASE)
_FILE_MAGIC: Final = b"ARROW1"
_BATCH_ROWS: Final = 64 << 10
#: Lines of JSON that are converted together.
_LINES: Final = 10_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Numbers that JSON has only as text.
_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class FileRows:
    """The rows of files in their order, as record batches and lists of dictionaries, of which few are in memory.

    ``path``: the file that is being read; None: none is yet.
    """

    def __init__(
        self,
        paths: Sequence[str],
        schema: Schema | None,
        *,
        kind: FileFormat | None = None,
        delimiter: str | None = None,
    ) -> None:
        """``schema``: the table's columns, as which the texts of CSV and JSON are read; None: there is no table yet,
        and types are guessed. ``kind``: None: by each file's name. ``delimiter``: of CSV; None: a tab for ``.tsv``,
        otherwise a comma.

        Raises InvalidRequest for a name that does not tell the format, and for a delimiter of several characters.
        """
        if delimiter is not None and len(delimiter) != 1:
            raise InvalidRequest(f"the delimiter of CSV is one character, not {delimiter!r}")
        self.path: str | None = None
        self._readers = [(path, _reader(path, kind)) for path in paths]
        self._schema = schema
        self._delimiter = delimiter

    def __iter__(self) -> Iterator[Any]:
        """Yield the rows.

        Raises:
            SchemaMismatch: a file is not of its format, or a value cannot be read as its column's type; names the file.
            OSError: a file cannot be read.
        """
        for path, read in self._readers:
            self.path = path
            yield from _named(path, read(path, self._schema, self._delimiter))


_Reader = Callable[[str, "Schema | None", "str | None"], Iterator[Any]]


def _reader(path: str, kind: FileFormat | None) -> _Reader:
    readers: dict[FileFormat, _Reader] = {"parquet": _parquet, "csv": _csv, "jsonl": _json_lines, "arrow": _arrow}
    if path == STANDARD_INPUT:
        return readers[kind or "arrow"]
    found = kind or _ENDINGS.get(Path(_COMPRESSED.sub("", path)).suffix.lower())
    if found is None:
        raise InvalidRequest(f"the name of {path} does not tell its format; give --format", path=path)
    return readers[found]


def _named(path: str, rows: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        raise SchemaMismatch(f"{path}: {error}", path=path) from error
    except SchemaMismatch as error:
        if error.message.startswith(path):
            raise
        raise SchemaMismatch(f"{path}: {error.message}", path=path) from error


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    """Return no rows, for their columns."""
    return pa.RecordBatch.from_pylist([], schema=schema)


@contextmanager
def _bytes_of(path: str) -> Iterator[BinaryIO]:
    """Open a file, decompressed, or standard input as it is. The stream can be read once, from start to end."""
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with pa.input_stream(path, compression="detect") as source, io.BufferedReader(source) as file:
        yield cast(BinaryIO, file)


@contextmanager
def _seekable(path: str) -> Iterator[str | BinaryIO]:
    """Return a file that can be read at any place; standard input is copied to a temporary one."""
    if path != STANDARD_INPUT:
        yield path
        return
    with tempfile.TemporaryFile() as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        yield file


def _parquet(path: str, _schema: Schema | None, _delimiter: str | None) -> Iterator[pa.RecordBatch]:
    with _seekable(path) as source, pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
        yield _empty(file.schema_arrow)
        yield from file.iter_batches(_BATCH_ROWS)


def _arrow(path: str, _schema: Schema | None, _delimiter: str | None) -> Iterator[pa.RecordBatch]:
    if path == STANDARD_INPUT:
        yield from _stream(sys.stdin.buffer)
        return
    with Path(path).open("rb") as file:
        is_file = file.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        file.seek(0)
        if not is_file:
            yield from _stream(file)
            return
        with pa.ipc.open_file(file) as reader:
            yield _empty(reader.schema)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def _stream(source: BinaryIO) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(source) as reader:
        yield _empty(reader.schema)
        yield from reader


# CSV. An empty field is null; one in quotes is empty text. Nothing else is null: "NA" is text.


def _csv(path: str, schema: Schema | None, delimiter: str | None) -> Iterator[pa.RecordBatch]:
    by_name = "\t" if Path(_COMPRESSED.sub("", path)).suffix.lower() == ".tsv" else ","
    separator = delimiter or by_name
    with _bytes_of(path) as source:
        header = _header(source, separator)
        types = {} if schema is None else _field_types(header.names, schema)
        options = pa.csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        parsing = pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True)
        whole = io.BufferedReader(_Joined(header.data, source))
        with pa.csv.open_csv(whole, parse_options=parsing, convert_options=options) as reader:
            yield _empty(reader.schema)
            yield from reader


class _Header(NamedTuple):
    """The names of the columns of a CSV file, and the bytes that were read to find them."""

    names: list[str]
    data: bytes


def _header(source: BinaryIO, separator: str) -> _Header:
    lines: list[bytes] = []

    def texts() -> Iterator[str]:
        for line in source:
            lines.append(line)
            yield line.decode("utf-8-sig" if len(lines) == 1 else "utf-8")

    try:
        names = next(csv.reader(texts(), delimiter=separator), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise SchemaMismatch(f"the header cannot be read: {error}") from error
    return _Header(names, b"".join(lines))


class _Joined(io.RawIOBase):
    """Bytes that were read already, and those that follow them."""

    def __init__(self, data: bytes, rest: BinaryIO) -> None:
        super().__init__()
        self._parts = [io.BytesIO(data), rest]

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what comes next; 0 at the end."""
        while self._parts:
            data = self._parts[0].read(len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
            del self._parts[0]
        return 0


def _field_types(header: Sequence[str], schema: Schema) -> dict[str, Any]:
    wanted = {field.name.lower(): field.type for field in arrow_schema(schema)}
    return {name: wanted[name.lower()] for name in header if name.lower() in wanted}


# JSON lines: a dictionary each. Texts are read as what the column holds; decimals have all their digits.


def _json_lines(path: str, schema: Schema | None, _delimiter: str | None) -> Iterator[Any]:
    columns = () if schema is None else schema.columns
    decoder = msgspec.json.Decoder(float_hook=Decimal if any(map(_has_decimal, columns)) else float)
    by_name = {column.name.lower(): column for column in columns}
    rows: list[dict[str, Any]] = []
    with _bytes_of(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = decoder.decode(line)
                if not isinstance(row, dict):
                    raise SchemaMismatch("a line is not an object")
                rows.append({name: _json_value(value, by_name.get(name.lower())) for name, value in row.items()})
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LamellaError) as error:
                text = error.message if isinstance(error, LamellaError) else str(error)
                raise SchemaMismatch(f"{path}, line {number}: {text}", path=path, line=number) from error
            if len(rows) >= _LINES:
                yield rows
                rows = []
    yield rows


def _has_decimal(column: Column) -> bool:
    return column.dtype.name == "decimal" or any(map(_has_decimal, column.fields))


def _json_value(value: Any, column: Column | None) -> Any:
    """Return a value of JSON as a column's; one that does not fit is left to the check of values."""
    if column is None or value is None or isinstance(value, bool):
        return float(value) if isinstance(value, Decimal) else value
    if column.fields:
        return _json_parts(value, column)
    dtype = column.dtype
    if isinstance(value, Decimal):
        return value if dtype.name == "decimal" else float(value)
    if not isinstance(value, str) or dtype.is_text:
        return value
    if dtype.is_float:
        return _NUMBERS.get(value, value)
    if dtype.name == "decimal":
        with suppress(ArithmeticError, ValueError):
            return Decimal(value)
        return value
    if dtype.name in ("date", "timestamp", "timestamp_ntz", "time") or dtype.order == "bytes":
        return _moment(_read(value, column), column)
    return value


def _read(text: str, column: Column) -> Any:
    try:
        return default_value(column.dtype, text)
    except InvalidSchema as error:
        raise SchemaMismatch(f"column {column.name!r}: {error.message}", column=column.name) from error


def _moment(value: Any, column: Column) -> Any:
    dtype = column.dtype
    if dtype.name == "date":
        return date(1970, 1, 1) + timedelta(days=value)
    if dtype.name in ("timestamp", "timestamp_ntz", "time"):
        at = _EPOCH + timedelta(microseconds=value * 1_000_000 // PER_SECOND[dtype.unit])
        if dtype.name == "time":
            return at.time()
        return at if dtype.name == "timestamp" else at.replace(tzinfo=None)
    return value


def _json_parts(value: Any, column: Column) -> Any:
    if column.type == "struct" and isinstance(value, Mapping):
        fields = {field.name.lower(): field for field in column.fields}
        return {name: _json_value(part, fields.get(name.lower())) for name, part in value.items()}
    if column.type == "list" and isinstance(value, list):
        return [_json_value(part, column.fields[0]) for part in value]
    if column.type == "map" and isinstance(value, Mapping):
        key, item = column.fields
        return [(_json_value(name, key), _json_value(part, item)) for name, part in value.items()]
    return value
