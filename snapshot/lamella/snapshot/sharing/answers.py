"""Listings, files with statistics, and the lines of answers."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np

from lamella.snapshot.columnar.keys import Keys
from lamella.snapshot.columnar.zones import HIGH_EXACT, HIGH_KNOWN, LOW_EXACT, LOW_KNOWN, MAY_NAN
from lamella.snapshot.deletes import inline_vector, positions_of
from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.manifest import DeleteFile, Snapshot
from lamella.snapshot.prune.result import SegmentSelection
from lamella.snapshot.prune.top_k import value_at
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.sharing.hints import one_order
from lamella.snapshot.stats.bound import Value, decimal_text
from lamella.snapshot.stats.constant import Constants, constant_values


class SharedShare(msgspec.Struct, frozen=True, kw_only=True):
    """A share."""

    name: str


class SharedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A schema of a share: a namespace."""

    name: str
    share: str


class SharedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a share."""

    name: str
    schema: str
    share: str


class ShareAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One share."""

    share: SharedShare


class ShareList(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Shares."""

    items: tuple[SharedShare, ...]
    next_page_token: str | None = None


class SharedSchemaList(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Schemas of a share, by name."""

    items: tuple[SharedSchema, ...]
    next_page_token: str | None = None


class SharedTableList(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Tables, by name."""

    items: tuple[SharedTable, ...]
    next_page_token: str | None = None


class SharingError(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a request failed: a code of docs/errors.md in upper case, and a message."""

    error_code: str
    message: str


#: Columns with statistics in an answer: the first of the table, as in Delta's own logs.
MAX_COLUMNS: Final = 32
# Statistics of files for recipients: only exact ones that every JSON reader reads equally.
#
# Excluded are bounds that may be loose, integers that a double cannot hold, decimals, times finer than a millisecond,
# text whose order differs between readers, and bounds of columns that may contain NaN.

_EXACT_IN_DOUBLE: Final = 1 << 53
_LONGEST_TEXT: Final = 256
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

Plain = Callable[[Any], Any]


def stats_of(part: SegmentSelection, schema: Schema, partition_columns: Collection[int] = ()) -> list[str]:
    """Returns the statistics of each of the kept files, as JSON in ASCII, without those of partition columns.

    Those of a file with deleted rows describe all of its rows, which Delta calls bounds that are not tight.
    """
    found: list[dict[str, Any]] = [
        {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
        for rows in part.numbers("row_count").tolist()
    ]
    for stats, deletes in zip(found, part.sidecar.deletes(part.rows), strict=True):
        if deletes:
            stats["tightBounds"] = False
    leaves = [
        leaf
        for leaf in schema.leaves()
        if len(leaf.path) == 1 and not leaf.repeated and leaf.id not in partition_columns
    ]
    for leaf in leaves[:MAX_COLUMNS]:
        _add(found, part, leaf)
    return [_ENCODE(each) for each in found]


def _add(found: list[dict[str, Any]], part: SegmentSelection, leaf: Leaf) -> None:
    sidecar, rows = part.sidecar, part.rows
    for stats, nulls in zip(found, sidecar.null_counts(leaf.id, leaf.dtype)[rows].tolist(), strict=True):
        if nulls >= 0:
            stats["nullCount"][leaf.name] = nulls
    zones = sidecar.zones(leaf.id, leaf.dtype)
    flags = zones.flags[rows]
    for member, keys, wanted, sign in (
        ("minValues", zones.low, LOW_KNOWN | LOW_EXACT, -1.0),
        ("maxValues", zones.high, HIGH_KNOWN | HIGH_EXACT, 1.0),
    ):
        plain = _plain_of(leaf.dtype, sign)
        if plain is None or keys is None:
            continue
        known = (flags & np.uint8(wanted | MAY_NAN)) == wanted
        for index in np.flatnonzero(known).tolist():
            value = _value(keys, int(rows[index]), plain)
            if value is not None:
                found[index][member][leaf.name] = value


def _value(keys: Keys, row: int, plain: Plain) -> Any:
    return plain(value_at(keys, row))


def _plain_of(dtype: DataType, sign: float) -> Plain | None:
    """Returns a function that converts a bound to JSON, or to None if readers would differ on it; ``sign``: the sign of
    a zero."""
    if dtype.is_integer:
        return lambda value: value if abs(value) <= _EXACT_IN_DOUBLE else None
    if dtype.is_float:
        return lambda value: (value or math.copysign(0.0, sign)) if math.isfinite(value) else None
    if dtype.is_text:
        return _text
    if dtype.name == "date":
        return _date
    if dtype.name in ("timestamp", "timestamp_ntz"):
        per_ms, end = PER_SECOND[dtype.unit] // 1_000, "Z" if dtype.name == "timestamp" else ""
        return lambda value: _time(value, per_ms, end)
    return None


def _text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= _LONGEST_TEXT and one_order(text) else None


def _date(value: int) -> str | None:
    try:
        return (_EPOCH + dt.timedelta(days=value)).date().isoformat()
    except OverflowError:
        return None


def _time(value: int, per_ms: int, end: str) -> str | None:
    at_ms, rest = divmod(value, per_ms)
    try:
        at = _EPOCH + dt.timedelta(milliseconds=at_ms)
    except OverflowError:
        return None
    return None if rest else at.replace(tzinfo=None).isoformat(timespec="milliseconds") + end


# Constants as Delta's partition values.
#
# A Delta table has the same partition columns in all of its files, and none of them in the files. So a table can be
# shared if all of its blocks have constants in the same columns.


def partition_columns(head: Snapshot) -> tuple[int, ...]:
    """Returns the columns in which all blocks of a snapshot have constants.

    Raises:
        NotExpressible: some blocks have constants in other columns than others; a type that has no text.
    """
    summary = head.summary
    if not summary.constants_count:
        return ()
    if len(summary.constant_columns) != 1 or summary.constants_count != summary.block_count:
        raise NotExpressible(
            "files of the table lack different columns, and Delta's partition columns are the same for all files:"
            " compact the table"
        )
    columns = {column.id: column for column in head.schema.columns}
    found = tuple(column_id for column_id in summary.constant_columns[0] if column_id in head.schema.by_id())
    for column_id in found:
        column = columns.get(column_id)
        if column is None or not _has_partition_text(column.dtype):
            name = head.schema.by_id()[column_id].name
            raise NotExpressible(
                f"the table cannot be shared: column {name!r} has values that are not in its files, and is of a type"
                " that no partition column has: compact the table",
                column=name,
            )
    return found


def partition_values(
    constants: Constants, written: Schema, head: Snapshot, columns: Collection[int]
) -> dict[str, str | None]:
    """Returns a block's constants in these columns by name, as Delta's protocol writes partition values.

    Raises:
        NotExpressible: a value that recipients would read, or compare, in another way than Spark.
    """
    leaves, names = written.by_id(), {column.id: column.name for column in head.schema.columns}
    return {
        names[column_id]: None if value is None else _partition_text(leaves[column_id].dtype, value, names[column_id])
        for column_id, value in constant_values(constants, written).items()
        if column_id in columns
    }


def _has_partition_text(dtype: DataType) -> bool:
    plain = dtype.is_text or dtype.is_integer or dtype.is_float
    return plain or dtype.name in ("boolean", "date", "decimal", "timestamp", "timestamp_ntz")


def _partition_text(dtype: DataType, value: Value, name: str) -> str:
    text: str | None = None
    if isinstance(value, bytes):
        text = value.decode() or None  # empty text means null
    elif isinstance(value, float):
        text = repr(value) if math.isfinite(value) and (value or math.copysign(1, value) > 0) else None
    elif dtype.name == "boolean":
        text = "true" if value else "false"
    elif dtype.name == "decimal":
        text = decimal_text(value, dtype.scale)
    elif dtype.name == "date":
        text = _date(value)
    elif dtype.name in ("timestamp", "timestamp_ntz"):
        text = _partition_time(value, dtype)
    else:
        text = str(value)
    if text is None:
        raise NotExpressible(
            f"the table cannot be shared: column {name!r} has the value {value!r} for all rows of a file, which"
            " recipients would not read or compare as Spark does: compact the table",
            column=name,
        )
    return text


def _partition_time(value: int, dtype: DataType) -> str | None:
    micros, rest = divmod(value * 1_000_000, PER_SECOND[dtype.unit])
    try:
        at = (_EPOCH + dt.timedelta(microseconds=micros)).replace(tzinfo=None)
    except OverflowError:
        return None
    if rest:
        return None
    return at.isoformat("T", "microseconds") + "Z" if dtype.name == "timestamp" else at.isoformat(" ", "microseconds")


# The lines of answers, in the protocol's two forms.
#
# ``parquet`` describes a file for a reader of Parquet, ``delta`` has the actions of a Delta log, for kernels that read
# those. All text is ASCII: some recipients split lines at every Unicode separator.

Form = Literal["parquet", "delta"]

#: Features of Delta that a recipient needs for tables with local times, and with deleted rows.
NTZ: Final = "timestampNtz"
VECTORS: Final = "deletionVectors"
_ENCODE_LINE: Final = json.JSONEncoder(separators=(",", ":")).encode


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """A table at a version. ``schema``: Spark's JSON. ``reader_features``: of Delta, that a recipient needs.

    ``partition_columns``: names of the columns whose values are not in the files.
    """

    table_id: str
    name: str
    version: int
    timestamp_ms: int
    created_ms: int
    schema: str
    reader_features: tuple[str, ...]
    size_bytes: int
    file_count: int
    partition_columns: tuple[str, ...] = ()


class SharedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an answer. ``file_id`` is the same in every answer, until the file's content changes.

    ``vector``: the file's deletion vector as Delta's log describes it; None: no row is deleted.
    """

    file_id: str
    url: str
    size_bytes: int
    stats: str
    partition_values: Mapping[str, str | None] = {}
    vector: Mapping[str, Any] | None = None


def reader_features(head: Snapshot) -> tuple[str, ...]:
    """Returns the features of Delta that a recipient of the table needs, which only Delta's form supports."""
    has_ntz = any(leaf.dtype.name == "timestamp_ntz" for leaf in head.schema.leaves())
    needed = ((VECTORS, bool(head.summary.deletes_count)), (NTZ, has_ntz))
    return tuple(name for name, is_needed in needed if is_needed)


def vector_of(
    deletes: Sequence[DeleteFile], vectors: Mapping[tuple[str, int], bytes], row_count: int
) -> Mapping[str, Any] | None:
    """Returns a file's deletion vector as Delta's log has it, inside of the log; ``vectors``: by location and offset.

    A recipient then needs no second URL for the file. It gets no checksum, so the vector is checked here.

    Raises:
        CorruptDeletes, HashMismatch: it is damaged.
    """
    if not deletes:
        return None
    (entry,) = deletes
    data = vectors[entry.location, entry.offset]
    positions = positions_of(data, entry, row_count)
    text, size_bytes = inline_vector(data)
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": size_bytes, "cardinality": len(positions)}


def head_lines(form: Form, state: TableState) -> Iterator[bytes]:
    """Yields the protocol and the metadata of the table."""
    sizes = {"version": state.version, "size": state.size_bytes, "numFiles": state.file_count}
    metadata: dict[str, Any] = {
        "id": state.table_id,
        "name": state.name,
        "format": {"provider": "parquet"},
        "schemaString": state.schema,
        "partitionColumns": list(state.partition_columns),
        "configuration": {},
    }
    if form == "parquet":
        yield _line({"protocol": {"minReaderVersion": 1}})
        yield _line({"metaData": metadata | sizes})
        return
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if state.reader_features:
        features = list(state.reader_features)
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
    delta = metadata | {"format": {"provider": "parquet", "options": {}}, "createdTime": state.created_ms}
    yield _line({"protocol": {"deltaProtocol": protocol}})
    yield _line({"metaData": sizes | {"deltaMetadata": delta}})


def file_line(form: Form, state: TableState, file: SharedFile, expires_ms: int) -> bytes:
    """Returns the line of one file, whose URL is valid until it expires."""
    known: dict[str, Any] = {
        "id": file.file_id,
        "version": state.version,
        "timestamp": state.timestamp_ms,
        "expirationTimestamp": expires_ms,
    }
    if form == "parquet":
        values = dict(file.partition_values)
        members = {"url": file.url, "partitionValues": values, "size": file.size_bytes, "stats": file.stats}
        return _line({"file": known | members})
    add = {
        "path": file.url,
        "partitionValues": dict(file.partition_values),
        "size": file.size_bytes,
        "modificationTime": state.timestamp_ms,
        "dataChange": True,
        "stats": file.stats,
    }
    if file.vector is not None:
        add["deletionVector"] = file.vector
    return _line({"file": known | {"deltaSingleAction": {"add": add}}})


def end_line(
    *, next_page_token: str | None = None, refresh_token: str | None = None, expires_ms: int | None = None
) -> bytes:
    """Returns the end of an answer, for recipients that request one or get pages."""
    given = {
        "refreshToken": refresh_token,
        "nextPageToken": next_page_token,
        "minUrlExpirationTimestamp": expires_ms,
    }
    return _line({"endStreamAction": {name: value for name, value in given.items() if value is not None}})


def _line(value: Mapping[str, Any]) -> bytes:
    return _ENCODE_LINE(value).encode("ascii") + b"\n"
