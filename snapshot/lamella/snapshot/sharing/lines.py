"""The lines of answers, in the protocol's two forms.

``parquet`` says of a file what a reader of Parquet needs, ``delta`` the actions of a Delta log, for kernels that read
those. All text is ASCII: some recipients split lines at every separator that Unicode has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from lamella.snapshot.schema import Schema

Form = Literal["parquet", "delta"]

#: What a recipient must be able to read a Delta log of tables that have local times.
NTZ_FEATURE: Final = "timestampntz"
_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """A table at a version, as answers say it. ``schema``: Spark's JSON. ``has_ntz``: a column is a local time."""

    table_id: str
    name: str
    version: int
    timestamp_ms: int
    created_ms: int
    schema: str
    has_ntz: bool
    size_bytes: int
    file_count: int


class SharedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an answer. ``file_id`` is the same in every answer, and another one's once its content is."""

    file_id: str
    url: str
    size_bytes: int
    stats: str


def has_ntz(schema: Schema) -> bool:
    """Whether a column is a local time, which only the form of Delta has."""
    return any(leaf.dtype.name == "timestamp_ntz" for leaf in schema.leaves())


def head_lines(form: Form, state: TableState) -> Iterator[bytes]:
    """What is needed to read the table, and what the table is."""
    sizes = {"version": state.version, "size": state.size_bytes, "numFiles": state.file_count}
    metadata: dict[str, Any] = {
        "id": state.table_id,
        "name": state.name,
        "format": {"provider": "parquet"},
        "schemaString": state.schema,
        "partitionColumns": [],
        "configuration": {},
    }
    if form == "parquet":
        yield _line({"protocol": {"minReaderVersion": 1}})
        yield _line({"metaData": metadata | sizes})
        return
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if state.has_ntz:
        features = ["timestampNtz"]
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
    """One file, which the URL reads until it expires."""
    known: dict[str, Any] = {
        "id": file.file_id,
        "version": state.version,
        "timestamp": state.timestamp_ms,
        "expirationTimestamp": expires_ms,
    }
    if form == "parquet":
        said = {"url": file.url, "partitionValues": {}, "size": file.size_bytes, "stats": file.stats}
        return _line({"file": known | said})
    add = {
        "path": file.url,
        "partitionValues": {},
        "size": file.size_bytes,
        "modificationTime": state.timestamp_ms,
        "dataChange": True,
        "stats": file.stats,
    }
    return _line({"file": known | {"deltaSingleAction": {"add": add}}})


def end_line(
    *, next_page_token: str | None = None, refresh_token: str | None = None, expires_ms: int | None = None
) -> bytes:
    """The end of an answer, for recipients that ask for one or get pages."""
    given = {
        "refreshToken": refresh_token,
        "nextPageToken": next_page_token,
        "minUrlExpirationTimestamp": expires_ms,
    }
    return _line({"endStreamAction": {name: value for name, value in given.items() if value is not None}})


def _line(value: Mapping[str, Any]) -> bytes:
    return _ENCODE(value).encode("ascii") + b"\n"
