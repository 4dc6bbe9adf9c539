"""A Delta table as a source: its log lists the files."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.deletes import MAX_VECTOR_BYTES, VECTOR_FRAME_BYTES, decode_inline_vector, decode_z85
from lamella.snapshot.errors import (
    InvalidRequest,
    InvalidSchema,
    LamellaError,
    LocationRefused,
    ObjectNotFound,
    StoreError,
)
from lamella.snapshot.manifest import DeleteFile
from lamella.snapshot.schema import Column, parse_type
from lamella.snapshot.schema.types import collations_in
from lamella.snapshot.source.options import StoreOptions, delta_options
from lamella.snapshot.source.state import (
    FIRST_OF_PARTS,
    FileSchema,
    SourceFile,
    SourceSchema,
    SourceState,
    outside,
)
from lamella.snapshot.storage import AllLocations, AllowedLocations, Store, normal
from lamella.snapshot.storage.location import parse
from lamella.snapshot.wire import ExternalSource, RefusedFile

# A checked copy of a Delta table's log.
#
# A log can refer to parts of itself, or to a list of deleted rows, at any location, and the library that reads logs
# opens what they refer to. If a table may not use every location, the library gets this copy: the newest checkpoint and
# the commits after it, all from the log's own folder.
#
# The library lists files without saying where their deletion vectors are, so these are read from the copy, too.

_FOLDER: Final = "_delta_log"
_SIDECARS: Final = "_sidecars"
_NAME: Final = re.compile(
    r"(?P<version>[0-9]{20})"
    r"(?P<checkpoint>\.checkpoint(\.(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})|\.[0-9a-f-]{36})?)?\.(json|parquet)"
)
#: The names of sidecars in the protocol; none of them can lead out of their folder.
_SIDECAR: Final = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]*\.parquet")
_VECTOR: Final = "deletionVector"
_VECTOR_MEMBERS: Final = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
_COLUMNS: Final = ("add.path", *(f"add.{_VECTOR}.{name}" for name in _VECTOR_MEMBERS), "sidecar.path")


class LogVector(msgspec.Struct, frozen=True, kw_only=True):
    """A deletion vector as the log describes it.

    ``storage_type``: "u" (``path_or_data`` names a file of the table), "p" (a file anywhere) or "i" (it is the data).
    """

    storage_type: str = msgspec.field(name="storageType")
    path_or_data: str = msgspec.field(name="pathOrInlineDv")
    size_bytes: int = msgspec.field(name="sizeInBytes")
    cardinality: int
    offset: int | None = None


class _Add(msgspec.Struct):
    path: str | None = None
    vector: LogVector | None = msgspec.field(name=_VECTOR, default=None)


class _Sidecar(msgspec.Struct):
    path: str | None = None


class _Protocol(msgspec.Struct):
    features: tuple[str, ...] | None = msgspec.field(name="readerFeatures", default=None)


class _Action(msgspec.Struct):
    """The relevant members of one action."""

    add: _Add | None = None
    sidecar: _Sidecar | None = None
    protocol: _Protocol | None = None


_DECODER: Final = msgspec.json.Decoder(_Action)


class LogCopy(msgspec.Struct, frozen=True):
    """``folder`` contains the table's log. ``vectors``: the last deletion vectors of files, by the paths in the log.
    ``features``: what readers must support.
    """

    folder: Path
    vectors: Mapping[str, LogVector]
    features: frozenset[str]


@contextmanager
def copied_log(store: Store, root: str) -> Iterator[LogCopy]:
    """Yields a copy of the log of the table in ``root``, until the end of the ``with``.

    Raises:
        ObjectNotFound: there is no log.
        LocationRefused: it refers to a part of itself elsewhere.
        StoreError: it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="lamella-delta-") as folder:
        log = Path(folder) / _FOLDER
        (log / _SIDECARS).mkdir(parents=True)
        copy = _Copy(store, root, log)
        for name in _newest(store, root):
            copy.take(name)
        yield LogCopy(Path(folder), copy.vectors, copy.features)


class _Copy:
    def __init__(self, store: Store, root: str, log: Path) -> None:
        self._store = store
        self._root = root
        self._log = log
        self.vectors: dict[str, LogVector] = {}
        self.features: frozenset[str] = frozenset()

    def take(self, name: str) -> None:
        """Copy an object of the log, with the sidecars that it names."""
        data = self._store.read(f"{self._root}/{_FOLDER}/{name}")
        (self._log / name).write_bytes(data)
        try:
            actions = list(_in_parquet(data) if name.endswith(".parquet") else _in_json(data))
        except (msgspec.MsgspecError, pa.ArrowException, UnicodeDecodeError) as error:
            raise StoreError(f"{name} in the log of {self._root} cannot be read", location=self._root) from error
        for action in actions:
            add, sidecar = action.add, action.sidecar
            if action.protocol is not None:
                self.features = frozenset(action.protocol.features or ())
            if add is not None and add.path is not None:
                # Commits come in order, after the checkpoint, and a file has one vector at a time.
                self.vectors.pop(add.path, None)
                if add.vector is not None:
                    self.vectors[add.path] = add.vector
            if sidecar is not None and sidecar.path is not None:
                self._take_sidecar(sidecar.path)

    def _take_sidecar(self, path: str) -> None:
        if _SIDECAR.fullmatch(path) is None:
            raise LocationRefused(
                f"the log of {self._root} refers to a file outside its own folder", location=self._root
            )
        name = f"{_SIDECARS}/{path}"
        if not (self._log / name).exists():
            self.take(name)


def _newest(store: Store, root: str) -> list[str]:
    """Returns the names of the newest complete checkpoint and of the commits from it on."""
    prefix = f"{root}/{_FOLDER}/"
    found = [
        (name, named)
        for each in store.list(prefix)
        if (named := _NAME.fullmatch(name := each.location.removeprefix(prefix))) is not None
    ]
    if not found:
        raise ObjectNotFound(f"there is no Delta table at {root}", location=root)
    parts: dict[tuple[int, int], int] = {}
    whole = [-1]
    for _, named in found:
        version = int(named["version"])
        if named["part"] is not None:
            key = (version, int(named["parts"]))
            parts[key] = parts.get(key, 0) + 1
        elif named["checkpoint"] is not None:
            whole.append(version)
    last = max([*whole, *(version for (version, count), there in parts.items() if there == count)])
    return [
        name
        for name, named in found
        if (int(named["version"]) == last or (named["checkpoint"] is None and int(named["version"]) > last))
    ]


def _in_json(data: bytes) -> Iterator[_Action]:
    return (_DECODER.decode(line) for line in data.splitlines() if line.strip())


def _in_parquet(data: bytes) -> Iterator[_Action]:
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        there = [column.path for column in map(file.schema.column, range(len(file.schema)))]
        wanted = [name for name in there if name in _COLUMNS or name.startswith("protocol.readerFeatures.")]
        for batch in file.iter_batches(columns=wanted) if wanted else ():
            yield from (msgspec.convert(_without_empty(row), _Action) for row in batch.to_pylist())


def _without_empty(row: dict[str, Any]) -> dict[str, Any]:
    """Converts a row to an action: Parquet may have an empty object where the log has none."""
    add = row.get("add")
    if add is not None and (add.get(_VECTOR) or {}).get("storageType") is None:
        row["add"] = {"path": add.get("path")}
    return row


#: How an absolute URI begins.
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
#: Features of tables whose newest commits only a catalog knows.
_MANAGED: Final = frozenset({"catalogManaged", "catalogOwned-preview"})
#: Columns of changes, which are also in data files.
_CHANGE_DATA: Final = ("__is_cdc", "_change_type")
#: The version of writers from which a table lists its features.
_FEATURES_FROM: Final = 7
#: The feature of tables with deletion vectors.
_VECTORS: Final = "deletionVectors"
#: Table features known here that a reader may have to support.
_FEATURES: Final = frozenset(
    {
        "columnMapping",
        _VECTORS,
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


def read_delta(store: Store, source: ExternalSource, options: StoreOptions, allowed: AllowedLocations) -> SourceState:
    """Returns the files of the table's newest version; those outside of ``allowed`` are refused, as are those whose
    deletion vectors are outside.

    Raises:
        InvalidRequest: it needs an unknown feature.
        InvalidSchema: an unknown type, or text with a collation.
        LocationRefused: the table is not in ``allowed``, or its log refers to a part of itself that is not.
        ObjectNotFound: there is no Delta table.
        StoreError: the log cannot be read, or the extra is missing.
    """
    try:
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError as error:
        raise StoreError("Delta tables require the extra lamella[delta]") from error
    root = normal(source.location or "").rstrip("/")
    allowed.require_all_below(root)
    if parse(root).scheme == "memory":
        raise InvalidRequest("a Delta table must be on the file system or S3", location=root)
    try:
        with _opened(store, root, options, allowed) as (table, vectors):
            _check(table, root)
            mode = _mapping_mode(table, root)
            fields = _fields(json.loads(table.schema().to_json()))
            schemas, in_files = _schemas(fields, mode, _change_data(table))
            listed = _adds(table)
            version, identity = table.version(), str(table.metadata().id)
    except TableNotFoundError as error:
        raise ObjectNotFound(f"there is no Delta table at {root}", location=root) from error
    except (DeltaError, OSError) as error:
        _refuse_managed(store, root)
        raise StoreError(f"the log of {root} cannot be read: {error}", location=root) from error
    # The library gives partition values by the columns' own names.
    names = {str(field["name"]): column.name for field, column in zip(fields, schemas[0].columns, strict=True)}
    deleted = {_location(path, root): vector for path, vector in vectors.items()}
    found: dict[str, SourceFile] = {}
    refused: list[RefusedFile] = []
    for path, size, values in listed:
        constants = tuple((names.get(name, name), value) for name, value in values.items())
        location = _location(path, root)
        file = SourceFile(location=location, size_bytes=size, constants=constants)
        try:
            found[location] = _with_vector(file, deleted.get(location), root, allowed)
        except LamellaError as error:
            refused.append(RefusedFile(path=location, code=error.code, reason=error.message))
    return SourceState(
        files=tuple(file for location, file in found.items() if allowed.allows(location)),
        version=str(version),
        identity=identity,
        refused=(*refused, *outside(allowed, sorted(found))),
        schemas=schemas,
        in_files=in_files,
    )


def _location(path: str, root: str) -> str:
    """Returns the location of a path in the log: a URI, relative to the table's folder or absolute."""
    text = unquote(path)
    return normal(text if _ABSOLUTE.match(path) else f"{root}/{text}")


@contextmanager
def _opened(
    store: Store, root: str, options: StoreOptions, allowed: AllowedLocations
) -> Iterator[tuple[Any, Mapping[str, LogVector]]]:
    """Yields the table, and the deletion vectors of its files, by their paths in the log."""
    from deltalake import DeltaTable

    at = parse(root)
    if isinstance(allowed, AllLocations) and unquote(root) == root:  # the library decodes what looks like an escape
        table_path = at.path if at.scheme == "file" else root
        table = DeltaTable(table_path, storage_options=delta_options(at.scheme, options))
        if _VECTORS not in (table.protocol().reader_features or ()):
            yield table, {}
            return
    with copied_log(store, root) as log:
        yield DeltaTable(str(log.folder)), log.vectors


def _refuse_managed(store: Store, root: str) -> None:
    """Raise InvalidRequest for a table that the library cannot read because a catalog manages it."""
    try:
        with copied_log(store, root) as log:
            features = log.features
    except LamellaError:
        return  # the library's error says more
    if features & _MANAGED:
        raise InvalidRequest(
            f"a catalog manages the Delta table at {root}: only the catalog knows which commits are in the table, and "
            "Lamella reads the log alone",
            location=root,
        )


def _check(table: Any, root: str) -> None:
    protocol = table.protocol()
    unknown = sorted(set(protocol.reader_features or ()) - _FEATURES)
    if protocol.min_reader_version > 3 or unknown:
        what = ", ".join(unknown) or f"reader version {protocol.min_reader_version}"
        raise InvalidRequest(f"{root} cannot be read without {what}", location=root)


def _change_data(table: Any) -> tuple[str, ...]:
    """Returns the columns that Delta's writers add to data files of tables with a change data feed."""
    protocol = table.protocol()
    is_on = "delta.enableChangeDataFeed" in table.metadata().configuration
    # It may have been switched off, but the protocol remains, and so may the files.
    may_have_been = 4 <= protocol.min_writer_version < _FEATURES_FROM or "changeDataFeed" in (
        protocol.writer_features or ()
    )
    return _CHANGE_DATA if is_on or may_have_been else ()


def _mapping_mode(table: Any, root: str) -> str:
    """Returns how columns are found in the files: by their "name", by the name of the mapping, or by its "id"."""
    protocol = table.protocol()
    mode = str(table.metadata().configuration.get("delta.columnMapping.mode", "none")).lower()
    # Without the feature, the setting means nothing.
    if protocol.min_reader_version < 2 or (
        protocol.min_reader_version > 2 and "columnMapping" not in (protocol.reader_features or ())
    ):
        return "none"
    if mode not in ("none", "name", "id"):
        raise InvalidRequest(f"{root} maps its columns in a way that is not known: {mode!r}", location=root)
    return mode


def _with_vector(file: SourceFile, vector: LogVector | None, root: str, allowed: AllowedLocations) -> SourceFile:
    """Returns the file with its deletion vector.

    Raises:
        InvalidRequest: the log describes it in an unknown way.
        LocationRefused: it is outside of ``allowed``.
    """
    if vector is None:
        return file
    if vector.storage_type == "i":
        return msgspec.structs.replace(file, vector=_inline(vector), cardinality=vector.cardinality)
    location = _vector_location(vector, root)
    allowed.require(location)
    # A file of vectors begins with its version, so no vector is at the start.
    if vector.offset is None or vector.offset < 1 or not 0 < vector.size_bytes <= MAX_VECTOR_BYTES:
        raise InvalidRequest(f"the deletion vector in {location} has {vector.size_bytes} bytes from {vector.offset} on")
    entry = DeleteFile(
        kind="deletion_vector",
        location=location,
        offset=vector.offset,
        length=vector.size_bytes + VECTOR_FRAME_BYTES,
        cardinality=vector.cardinality,
    )
    return msgspec.structs.replace(file, deletes=(entry,))


def _vector_location(vector: LogVector, root: str) -> str:
    text = vector.path_or_data
    if vector.storage_type == "p":
        return normal(unquote(text))
    if vector.storage_type != "u" or len(text) < _UUID_CHARS:
        raise InvalidRequest(f"a deletion vector is stored in an unknown way: {vector.storage_type!r}")
    folder, encoded = text[:-_UUID_CHARS], text[-_UUID_CHARS:]
    name = f"deletion_vector_{_uuid(encoded)}.bin"
    return normal(f"{root}/{folder}/{name}" if folder else f"{root}/{name}")


def _inline(vector: LogVector) -> bytes:
    """Returns a vector of the log as files have it."""
    try:
        return decode_inline_vector(vector.path_or_data, vector.size_bytes)
    except ValueError as error:
        raise InvalidRequest(f"a deletion vector in the log cannot be decoded: {error}") from error


#: Characters of a UUID.
_UUID_CHARS: Final = 20


def _uuid(text: str) -> UUID:
    try:
        return UUID(bytes=decode_z85(text))
    except ValueError as error:
        raise InvalidRequest(f"the name of a file of deletion vectors cannot be decoded: {error}") from error


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
    """Returns a partition's value as the text of a default."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


# Columns of a table with column mapping have an id and a name for the files (``physicalName``) beside their own name.
# Parts of lists and maps have no ids; they get one from the id of the column and their position in its type.

_ID: Final = "delta.columnMapping.id"
_IN_FILES: Final = "delta.columnMapping.physicalName"


def _fields(schema: Any) -> list[Mapping[str, Any]]:
    """Returns the fields of a schema; raises InvalidSchema for text with a collation."""
    try:
        collated = collations_in(schema)
    except ValueError as error:
        raise InvalidSchema(f"the table's schema cannot be read: {error}") from error
    if collated:
        listed = ", ".join(f"{path!r} ({collation})" for path, collation in list(collated.items())[:10])
        raise InvalidSchema(
            f"Lamella compares text by its bytes, but the table has collations: {listed}", columns=list(collated)
        )
    fields: list[Mapping[str, Any]] = schema["fields"]
    return fields


def _schemas(
    fields: Sequence[Mapping[str, Any]], mode: str, ignored: tuple[str, ...]
) -> tuple[tuple[SourceSchema, ...], FileSchema | None]:
    """Returns the table's schema, after the one with the names in its files if these are others; and which of them the
    files have if columns are mapped.

    ``ignored``: columns of files that are not the table's.
    """
    if mode == "none":
        columns = tuple(_column(field, _name_of) for field in fields)
        names = {column.name for column in columns}
        left = tuple(name for name in ignored if name not in names)
        return (SourceSchema(schema_id=0, columns=columns, ignored_columns=left),), None
    in_files = _mapped(fields, _IN_FILES)
    current = _mapped(fields, None)
    schemas = (in_files,) if in_files.schema_id == current.schema_id else (in_files, current)
    return schemas, FileSchema(schema_id=in_files.schema_id, by_number=mode == "id")


def _mapped(fields: Sequence[Mapping[str, Any]], name_key: str | None) -> SourceSchema:
    def named(field: Mapping[str, Any]) -> tuple[str, int]:
        own = str(field["name"])
        metadata = field.get("metadata") or {}
        number, name = metadata.get(_ID), own if name_key is None else metadata.get(name_key)
        if not isinstance(number, int) or not 0 < number < FIRST_OF_PARTS or not isinstance(name, str) or not name:
            raise InvalidSchema(f"the table maps its columns, but not column {own!r}", column=own)
        return name, number

    columns = tuple(_column(field, named) for field in fields)
    numbers = [number for column in columns for number in _numbers(column)]
    if len(numbers) != len(set(numbers)):
        raise InvalidSchema("the table maps two of its columns in the same way")
    # The log numbers columns, and not schemas. The same columns are the same schema, whenever they come back.
    digest = hashlib.sha256(msgspec.json.encode(columns)).digest()
    return SourceSchema(schema_id=int.from_bytes(digest[:6], "big") + 1, columns=columns, extra_columns=True)


def _numbers(column: Column) -> Iterator[int]:
    yield column.id
    for field in column.fields:
        yield from _numbers(field)


#: Returns the name of a field, and its id or 0.
_Naming = Callable[[Mapping[str, Any]], tuple[str, int]]


def _name_of(field: Mapping[str, Any]) -> tuple[str, int]:
    return str(field["name"]), 0


def _column(field: Mapping[str, Any], naming: _Naming) -> Column:
    name, number = naming(field)
    return _typed(name, field["type"], naming, number)


def _typed(name: str, kind: Any, naming: _Naming, number: int, *, nullable: bool = True) -> Column:
    """Returns a column of a type; ``number``: its id."""
    if isinstance(kind, str):
        dtype = parse_type(_TYPES.get(kind, kind))
        if dtype.name in ("unknown", "null", "variant"):
            raise InvalidSchema(f"column {name!r} is {kind}", column=name)
        return Column(name=name, type=str(dtype), nullable=nullable, id=number)

    def part(at: int, part_name: str, member: str, *, can_be_null: bool = True) -> Column:
        above, own = divmod(number, FIRST_OF_PARTS)
        part_id = number and (4 * above + at) * FIRST_OF_PARTS + own
        return _typed(part_name, kind[member], naming, part_id, nullable=can_be_null)

    fields: tuple[Column, ...]
    if kind["type"] == "struct":
        fields = tuple(_column(field, naming) for field in kind["fields"])
        return Column(name=name, type="struct", nullable=nullable, fields=fields, id=number)
    if kind["type"] == "array":
        fields = (part(1, "element", "elementType"),)
        return Column(name=name, type="list", nullable=nullable, fields=fields, id=number)
    if kind["type"] == "map":
        fields = (part(2, "key", "keyType", can_be_null=False), part(3, "value", "valueType"))
        return Column(name=name, type="map", nullable=nullable, fields=fields, id=number)
    raise InvalidSchema(f"column {name!r} is {kind['type']!r}", column=name)
