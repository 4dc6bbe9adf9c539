"""An Iceberg table as a source: its metadata lists the files. Needs the extra ``lamella[iceberg]``.

Columns are matched by field id. A file is read by the names of the schema that its own ids and names belong to, which
is in the table's schema history (:mod:`lamella.snapshot.source.evolution`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import InvalidRequest, InvalidSchema, LamellaError, ObjectNotFound, StoreError
from lamella.snapshot.iceberg.metadata import SNAPSHOT
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.column import canonical_default
from lamella.snapshot.source.iceberg_deletes import ListedData, ListedDeletes, Partition, without_deleted_rows
from lamella.snapshot.source.options import StoreOptions, iceberg_properties
from lamella.snapshot.source.state import SourceFile, SourceSchema, SourceState, outside
from lamella.snapshot.source.transforms import Transformed
from lamella.snapshot.storage import AllowedLocations, Store, normal
from lamella.snapshot.wire import ExternalSource, RefusedFile

#: How names of metadata files end: as text, and compressed by newer and older writers.
_SUFFIXES: Final = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")
_HINT: Final = "version-hint.text"
_CODE: Final = InvalidRequest.code

#: Columns that writers add to files of format version 3 which have rows of other files.
_ROW_LINEAGE: Final = ("_last_updated_sequence_number", "_row_id")
_WITH_ROW_LINEAGE: Final = 3

#: Connections of the Iceberg catalogs that the service knows, by name.
Catalogs = Mapping[str, Mapping[str, str]]


def read_iceberg(
    store: Store, source: ExternalSource, options: StoreOptions, catalogs: Catalogs, allowed: AllowedLocations
) -> SourceState:
    """Returns the files of the table's current snapshot.

    Each location is compared with ``allowed`` before it is opened: the metadata, and the lists and manifests that it
    names. The table's own properties do not affect how files are opened, since anyone who can write the table controls
    them.

    Raises:
        InvalidRequest: the current metadata cannot be determined, or the table uses an unsupported feature.
        LocationRefused: its metadata, or a part of it, is outside of ``allowed``.
        InvalidSchema: an unknown type.
        ObjectNotFound: there is no such table.
        StoreError: it cannot be read, or the extra is missing.
    """
    try:
        from pyiceberg.exceptions import NoSuchTableError, NotInstalledError, RESTError, ValidationError
        from pyiceberg.io import load_file_io
        from pyiceberg.serializers import Compressor, FromByteStream
    except ImportError as error:
        raise StoreError("Iceberg tables require the extra lamella[iceberg]") from error
    name = f"{source.catalog}:{source.table}" if source.location is None else source.location
    try:
        if source.location is None:
            location = _in_catalog(source, catalogs)
        else:
            location = _metadata(store, source.location, allowed)
        allowed.require(location)
        io = load_file_io(iceberg_properties(options), location)
        compression = Compressor.get_compressor(".gz.metadata.json" if location.endswith(_SUFFIXES[1:]) else location)
        with io.new_input(location).open() as stream:
            try:
                metadata = FromByteStream.table_metadata(stream, compression=compression)
            except TypeError as error:  # a default of nanoseconds, for instance
                raise ValueError(str(error)) from error
        return _state(store, metadata, io, location, allowed)
    except NoSuchTableError as error:
        raise ObjectNotFound(f"there is no Iceberg table {name}: {error}", location=name) from error
    except FileNotFoundError as error:
        raise ObjectNotFound(f"there is no Iceberg table at {name}: {error}", location=name) from error
    except LamellaError:
        raise
    except (OSError, RESTError, ValueError, ValidationError, NotImplementedError, NotInstalledError) as error:
        # pyiceberg raises ValueError for what it does not support, and its own error for damaged metadata.
        raise StoreError(f"the Iceberg table {name} cannot be read: {error}", location=name) from error


def _in_catalog(source: ExternalSource, catalogs: Catalogs) -> str:
    from pyiceberg.catalog import load_catalog

    name, identifier = str(source.catalog), str(source.table)
    if name not in catalogs:
        raise InvalidRequest(f"the service has no Iceberg catalog {name!r}", catalog=name)
    return str(load_catalog(name, **catalogs[name]).load_table(identifier).metadata_location)


def _metadata(store: Store, location: str, allowed: AllowedLocations) -> str:
    """Returns the metadata file: the location itself, or the one that a file system table's hint refers to."""
    if location.endswith(_SUFFIXES):
        return location
    allowed.require_all_below(location)
    folder = location.rstrip("/")
    try:
        hint = store.read(f"{folder}/metadata/{_HINT}").decode("ascii", "replace").strip()
    except ObjectNotFound as error:
        raise InvalidRequest(
            f"{folder} has no metadata/{_HINT}: only the catalog knows the current metadata file; give that file, or "
            "the catalog and the table"
            "",
            location=folder,
        ) from error
    if not hint.isdigit():
        raise InvalidRequest(f"{folder}/metadata/{_HINT} says {hint[:50]!r}, which is not a version", location=folder)
    version = int(hint)
    names = {found.location.rpartition("/")[2] for found in store.list(f"{folder}/metadata")}
    if names.isdisjoint(_files(version)):
        raise ObjectNotFound(f"{folder}/metadata has no {_files(version)[0]}", location=folder)
    while not names.isdisjoint(_files(version + 1)):  # the hint is written after the commit, and may be lost
        version += 1
    return f"{folder}/metadata/{next(name for name in _files(version) if name in names)}"


def _files(version: int) -> list[str]:
    return [f"v{version}{suffix}" for suffix in _SUFFIXES]


def _state(store: Store, metadata: Any, io: Any, location: str, allowed: AllowedLocations) -> SourceState:
    current = metadata.current_schema_id
    # A schema that equals an earlier one gets its id, so files may have schemas with higher ids than the current one.
    versions = sorted((schema for schema in metadata.schemas if schema.schema_id != current), key=lambda s: s.schema_id)
    versions.append(next(schema for schema in metadata.schemas if schema.schema_id == current))
    ignored = _ROW_LINEAGE if metadata.format_version >= _WITH_ROW_LINEAGE else ()
    schemas = tuple(
        SourceSchema(
            schema_id=schema.schema_id,
            columns=tuple(map(_column, schema.fields)),
            ignored_columns=tuple(name for name in ignored if name not in {field.name for field in schema.fields}),
        )
        for schema in versions
    )
    snapshot = metadata.current_snapshot()
    specs = metadata.specs()
    data: list[ListedData] = []
    deletes: list[ListedDeletes] = []
    refused: list[RefusedFile] = []
    for entry, of_deletes in () if snapshot is None else _entries(io, snapshot, allowed):
        file = entry.data_file
        path = normal(file.file_path)
        if of_deletes is not None:
            deletes.append(_listed_deletes(entry, path, of_deletes, specs))
            continue
        if file.file_format.value != "PARQUET":
            refused.append(RefusedFile(path=path, code=_CODE, reason=f"it is {file.file_format}, not Parquet"))
            continue
        if not allowed.allows(path):
            refused += outside(allowed, [path])
            continue
        identity, transformed = _partition_values(file, specs[file.spec_id or 0])
        found = SourceFile(
            location=path, size_bytes=file.file_size_in_bytes, partition=identity, transformed=transformed
        )
        data.append(ListedData(file.file_path, found, _partition(file), entry.sequence_number))
    whole: list[SourceFile] = []
    for each in without_deleted_rows(store, data, deletes, allowed):
        if isinstance(each, SourceFile):
            whole.append(each)
        else:
            refused.append(each)
    return SourceState(
        files=tuple(whole),
        version=f"{location.rpartition('/')[2]}#{'none' if snapshot is None else snapshot.snapshot_id}",
        identity=str(metadata.table_uuid),
        refused=tuple(refused),
        schemas=schemas,
        numbers=dict(_named(metadata.name_mapping())) if _is_export(snapshot) else {},
    )


def _partition_values(file: Any, spec: Any) -> tuple[dict[int, Any], dict[int, tuple[Transformed, ...]]]:
    """Returns the values of identity transforms, and of all, by the field id of the source column."""
    identity: dict[int, Any] = {}
    transformed: dict[int, tuple[Transformed, ...]] = {}
    for field, value in zip(spec.fields, file.partition or (), strict=True):
        transform = str(field.transform)
        if transform == "identity":
            identity[field.source_id] = value
        transformed[field.source_id] = (*transformed.get(field.source_id, ()), (transform, value))
    return identity, transformed


def _is_export(snapshot: Any) -> bool:
    """Returns whether a table's names can be trusted: in Lamella's own exports no name is used by two columns' files.

    Elsewhere a name may pass to another column, also for existing files: what was read from these is wrong from then
    on, and it is unknown which files they are.
    """
    return snapshot is not None and snapshot.summary is not None and SNAPSHOT in snapshot.summary.additional_properties


def _named(mapping: Any) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yields the paths of a name mapping, each with its field id."""

    def below(fields: Any, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
        for field in fields:
            for name in field.names:
                if field.field_id is not None:
                    yield (*above, name), field.field_id
                yield from below(field.fields, (*above, name))

    return iter(()) if mapping is None else below(mapping.root, ())


#: ``referenced_data_file``, ``content_offset`` and ``content_size_in_bytes`` of a delete file.
_OfDeletes = tuple[str | None, int | None, int | None]
_OF_DELETES: Final = ("referenced_data_file", "content_offset", "content_size_in_bytes")


def _entries(io: Any, snapshot: Any, allowed: AllowedLocations) -> Iterator[tuple[Any, _OfDeletes | None]]:
    """Yields the entries of the snapshot, those of delete files with what the library does not read of them."""
    from pyiceberg.manifest import ManifestContent, ManifestEntryStatus

    allowed.require(normal(snapshot.manifest_list))  # ``normal`` refuses relative paths
    for manifest in snapshot.manifests(io):
        allowed.require(normal(manifest.manifest_path))
        entries = manifest.fetch_manifest_entry(io, discard_deleted=False)
        deletes = manifest.content == ManifestContent.DELETES
        details = _of_deletes(io, manifest.manifest_path) if deletes else [None] * len(entries)
        for entry, of_deletes in zip(entries, details, strict=True):
            if entry.status != ManifestEntryStatus.DELETED:
                yield entry, of_deletes


def _of_deletes(io: Any, manifest: str) -> list[_OfDeletes | None]:
    """Returns the members :data:`_OF_DELETES` of each entry of a manifest: the library reads entries without them."""
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_ENTRY_SCHEMAS

    names = [field.name for field in DATA_FILE_TYPE[3].fields]
    referenced, offset, length = map(names.index, _OF_DELETES)
    with AvroFile[Any](io.new_input(manifest), MANIFEST_ENTRY_SCHEMAS[3]) as entries:
        # The data file is the last member of an entry.
        return [(entry[-1][referenced], entry[-1][offset], entry[-1][length]) for entry in entries]


def _listed_deletes(entry: Any, location: str, of_deletes: _OfDeletes, specs: Mapping[int, Any]) -> ListedDeletes:
    from pyiceberg.manifest import DataFileContent

    file = entry.data_file
    is_equality = file.content == DataFileContent.EQUALITY_DELETES
    partition: Partition | None = _partition(file)
    if file.spec_id not in specs or (is_equality and _is_unpartitioned(specs[file.spec_id])):
        partition = None
    referenced, offset, length = of_deletes
    return ListedDeletes(
        location=location,
        format=file.file_format.value,
        sequence=entry.sequence_number,
        partition=partition,
        referenced=None if is_equality else referenced,
        offset=offset,
        length=length,
        row_count=file.record_count,
        is_equality=is_equality,
    )


def _is_unpartitioned(spec: Any) -> bool:
    return all(str(field.transform) == "void" for field in spec.fields)


def _partition(file: Any) -> Partition:
    """Returns a key that is equal for files of one partition, NaN and zeros of either sign included."""
    values = (value + 0.0 if isinstance(value, float) else value for value in file.partition or ())
    return file.spec_id, *map(repr, values)


def _column(field: Any) -> Column:
    """Returns a column; its initial default is the value of rows of files without it, as a table's default is."""
    column = _typed(field.name, field.field_id, field.field_type)
    if field.initial_default is None:
        return column
    default = canonical_default(column.dtype, _text(field.initial_default), field.name)
    return msgspec.structs.replace(column, default=default)


def _field(field: Any) -> Column:
    """Returns a field of a struct."""
    if field.initial_default is not None:
        raise InvalidSchema(f"field {field.name!r} of a struct has an initial default", column=field.name)
    return _typed(field.name, field.field_id, field.field_type)


def _text(default: Any) -> str:
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, bytes):
        return default.hex()
    # Dates, times and timestamps have the form of ISO 8601.
    return default.isoformat() if hasattr(default, "isoformat") else str(default)


def _typed(name: str, number: int, kind: Any, *, nullable: bool = True) -> Column:
    from pyiceberg import types

    def made(text: str, *fields: Column) -> Column:
        return Column(name=name, type=text, id=number, nullable=nullable, fields=fields)

    if isinstance(kind, types.StructType):
        return made("struct", *map(_field, kind.fields))
    if isinstance(kind, types.ListType):
        return made("list", _typed("element", kind.element_id, kind.element_type))
    if isinstance(kind, types.MapType):
        key = _typed("key", kind.key_id, kind.key_type, nullable=False)
        return made("map", key, _typed("value", kind.value_id, kind.value_type))
    if isinstance(kind, types.DecimalType):
        return made(f"decimal({kind.precision},{kind.scale})")
    if isinstance(kind, types.FixedType):
        return made(f"fixed({len(kind)})")
    plain: dict[Any, str] = {
        types.BooleanType: "boolean",
        types.IntegerType: "int32",
        types.LongType: "int64",
        types.FloatType: "float32",
        types.DoubleType: "float64",
        types.DateType: "date",
        types.TimeType: "time(us)",
        types.TimestampType: "timestamp_ntz(us)",
        types.TimestamptzType: "timestamp(us)",
        types.TimestampNanoType: "timestamp_ntz(ns)",
        types.TimestamptzNanoType: "timestamp(ns)",
        types.StringType: "string",
        types.UUIDType: "uuid",
        types.BinaryType: "binary",
    }
    text = plain.get(type(kind))
    if text is None:
        raise InvalidSchema(f"column {name!r} is {kind}", column=name)
    return made(text)
