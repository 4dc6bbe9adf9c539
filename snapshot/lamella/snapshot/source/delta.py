"""A Delta table as a source: its log says which files there are. Needs the extra ``lamella[delta]``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote

from lamella.snapshot.errors import InvalidRequest, InvalidSchema, ObjectNotFound, StoreError
from lamella.snapshot.layout import Anywhere, Places, Store, normal
from lamella.snapshot.layout.location import parse
from lamella.snapshot.schema import Column, parse_type
from lamella.snapshot.schema.collations import collations_in
from lamella.snapshot.source.delta_log import copied_log
from lamella.snapshot.source.options import StoreOptions, delta_options
from lamella.snapshot.source.state import SourceFile, SourceSchema, SourceState, outside
from lamella.snapshot.wire import ExternalSource, RefusedFile

#: What a reader may have to know to read a table, of what we do know.
_FEATURES: Final = frozenset(
    {
        "columnMapping",  # refused below unless it is off
        "deletionVectors",  # files that have one are refused
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
_TYPES: Final = {
    "long": "int64",
    "integer": "int32",
    "short": "int16",
    "byte": "int8",
    "float": "float32",
    "double": "float64",
    "timestamp": "timestamp(us)",
    "timestamp_ntz": "timestamp_ntz(us)",
}
#: The code of a file that would give wrong rows.
_CODE: Final = InvalidRequest.code


def read_delta(store: Store, source: ExternalSource, options: StoreOptions, places: Places) -> SourceState:
    """The files of the table's newest version; those outside of ``places`` are refused.

    Raises:
        InvalidRequest: it needs a feature that is not known here, or its columns are mapped to other names.
        InvalidSchema: a type that is not known, or text with a collation.
        LocationRefused: the table does not lie in ``places``, or its log names a part of itself that does not.
        ObjectNotFound: there is no Delta table.
        StoreError: the log cannot be read, or the extra is missing.
    """
    try:
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError as error:
        raise StoreError("Delta tables need the extra lamella[delta]") from error
    root = normal(source.location or "").rstrip("/")
    places.require_all_below(root)
    if parse(root).scheme == "memory":
        raise InvalidRequest("a Delta table is read from files or S3", location=root)
    try:
        with _opened(store, root, options, places) as (table, had_deletions):
            _check(table, root)
            columns = _columns(json.loads(table.schema().to_json()))
            incomplete = _with_deletions(table) if had_deletions is None else []
            listed = _adds(table)
            version, identity = table.version(), str(table.metadata().id)
    except TableNotFoundError as error:
        raise ObjectNotFound(f"there is no Delta table at {root}", location=root) from error
    except (DeltaError, OSError) as error:
        raise StoreError(f"the log of {root} cannot be read: {error}", location=root) from error
    found: dict[str, SourceFile] = {}
    for path, size, constants in listed:
        text = unquote(path)
        location = normal(text if "://" in text else f"{root}/{text}")
        found[location] = SourceFile(location=location, size_bytes=size, constants=tuple(constants.items()))
    refused = {_one_of(path, found, root) for path in incomplete}
    # A file gets a list of deleted rows and never loses it, unless an older version of the table was restored.
    refused |= {place for path in had_deletions or () for place in _spellings(path, root) if place in found}
    reason = "it has a deletion vector: rows that were deleted are still in the file"
    return SourceState(
        files=tuple(file for location, file in found.items() if location not in refused and places.allows(location)),
        version=str(version),
        identity=identity,
        refused=(
            *(RefusedFile(path=path, code=_CODE, reason=reason) for path in sorted(refused)),
            *outside(places, sorted(found.keys() - refused)),
        ),
        schemas=(SourceSchema(schema_id=0, columns=columns),),
    )


@contextmanager
def _opened(
    store: Store, root: str, options: StoreOptions, places: Places
) -> Iterator[tuple[Any, frozenset[str] | None]]:
    """The table, and the files of which some rows are deleted where the library is not to be asked for them."""
    from deltalake import DeltaTable

    at = parse(root)
    if isinstance(places, Anywhere):
        place = at.path if at.scheme == "file" else root
        yield DeltaTable(place, storage_options=delta_options(at.scheme, options)), None
    else:
        with copied_log(store, root) as log:
            yield DeltaTable(str(log.folder)), log.with_deletions


def _check(table: Any, root: str) -> None:
    protocol = table.protocol()
    unknown = sorted(set(protocol.reader_features or ()) - _FEATURES)
    if protocol.min_reader_version > 3 or unknown:
        what = ", ".join(unknown) or f"reader version {protocol.min_reader_version}"
        raise InvalidRequest(f"{root} cannot be read without {what}", location=root)
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise InvalidRequest(
            f"{root} maps its columns to other names in its files (delta.columnMapping.mode is {mode!r})", location=root
        )


def _with_deletions(table: Any) -> list[str]:
    """Files some of whose rows are deleted, as the library writes them."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return []
    import pyarrow as pa

    return [row["filepath"] for row in pa.table(table.deletion_vectors()).to_pylist()]


def _one_of(path: str, found: Mapping[str, SourceFile], root: str) -> str:
    """Which of the files it is, escaped or not; one that is none must not be overlooked."""
    for location in _spellings(path, root):
        if location in found:
            return location
    raise StoreError(f"the log of {root} deletes rows of {path}, which is none of its files", location=root)


def _spellings(path: str, root: str) -> Iterator[str]:
    for text in (path, unquote(path), unquote(unquote(path))):
        yield normal(text if text.startswith("/") or "://" in text else f"{root}/{text}")


def _adds(table: Any) -> list[tuple[str, int, Mapping[str, str | None]]]:
    import pyarrow as pa

    found = pa.table(table.get_add_actions(flatten=False))
    wanted = [name for name in ("path", "size_bytes", "partition") if name in found.schema.names]
    rows = found.select(wanted).to_pylist()
    return [
        (row["path"], row["size_bytes"], {name: _text(value) for name, value in (row.get("partition") or {}).items()})
        for row in rows
    ]


def _text(value: object) -> str | None:
    """A partition's value as the text of a default."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _columns(schema: Any) -> tuple[Column, ...]:
    try:
        collated = collations_in(schema)
    except ValueError as error:
        raise InvalidSchema(f"the table's schema cannot be read: {error}") from error
    if collated:
        listed = ", ".join(f"{path!r} ({collation})" for path, collation in list(collated.items())[:10])
        raise InvalidSchema(
            f"text is compared by its bytes here, and the table has collations: {listed}", columns=list(collated)
        )
    return tuple(_column(field) for field in schema["fields"])


def _column(field: Mapping[str, Any]) -> Column:
    return _typed(str(field["name"]), field["type"])


def _typed(name: str, kind: Any, *, nullable: bool = True) -> Column:
    if isinstance(kind, str):
        dtype = parse_type(_TYPES.get(kind, kind))
        if dtype.name in ("unknown", "null", "variant"):
            raise InvalidSchema(f"column {name!r} is {kind}", column=name)
        return Column(name=name, type=str(dtype), nullable=nullable)
    if kind["type"] == "struct":
        fields = tuple(_column(field) for field in kind["fields"])
        return Column(name=name, type="struct", nullable=nullable, fields=fields)
    if kind["type"] == "array":
        return Column(name=name, type="list", nullable=nullable, fields=(_typed("element", kind["elementType"]),))
    if kind["type"] == "map":
        key = _typed("key", kind["keyType"], nullable=False)
        return Column(name=name, type="map", nullable=nullable, fields=(key, _typed("value", kind["valueType"])))
    raise InvalidSchema(f"column {name!r} is {kind['type']!r}", column=name)
