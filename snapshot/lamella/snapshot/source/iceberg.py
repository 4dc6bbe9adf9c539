"""An Iceberg table as a source: its metadata lists the files. Needs the extra ``lamella[iceberg]``.

Columns are matched by field id. A file is read by the names of the schema that its own ids and names belong to, which
is in the table's schema history (:mod:`lamella.snapshot.source.evolution`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lamella.snapshot.errors import InvalidRequest, InvalidSchema, LamellaError, ObjectNotFound, StoreError
from lamella.snapshot.iceberg.export import SNAPSHOT
from lamella.snapshot.schema import Column
from lamella.snapshot.source.options import StoreOptions, iceberg_properties
from lamella.snapshot.source.state import SourceFile, SourceSchema, SourceState, outside
from lamella.snapshot.storage import AllowedLocations, Store, normal
from lamella.snapshot.wire import ExternalSource, RefusedFile

_SUFFIX: Final = ".metadata.json"
_HINT: Final = "version-hint.text"
_CODE: Final = InvalidRequest.code

#: Connections of the Iceberg catalogs that the service knows, by name.
Catalogs = Mapping[str, Mapping[str, str]]

#: The id of a partition spec, and the values as text.
_Partition = tuple[Any, ...]


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
        from pyiceberg.serializers import FromInputFile
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
        return _state(FromInputFile.table_metadata(io.new_input(location)), io, location, allowed)
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
    if location.endswith(_SUFFIX):
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
    if _file(version) not in names:
        raise ObjectNotFound(f"{folder}/metadata has no {_file(version)}", location=folder)
    while _file(version + 1) in names:  # the hint is written after the commit, and may be lost
        version += 1
    return f"{folder}/metadata/{_file(version)}"


def _file(version: int) -> str:
    return f"v{version}{_SUFFIX}"


def _state(metadata: Any, io: Any, location: str, allowed: AllowedLocations) -> SourceState:
    current = metadata.current_schema_id
    # A schema that equals an earlier one gets its id, so files may have schemas with higher ids than the current one.
    versions = sorted((schema for schema in metadata.schemas if schema.schema_id != current), key=lambda s: s.schema_id)
    versions.append(next(schema for schema in metadata.schemas if schema.schema_id == current))
    schemas = tuple(
        SourceSchema(schema_id=schema.schema_id, columns=tuple(map(_column, schema.fields))) for schema in versions
    )
    snapshot = metadata.current_snapshot()
    files: list[tuple[SourceFile, _Partition, float | None]] = []
    refused: list[RefusedFile] = []
    deletes = _Deletes(metadata.specs())
    for entry, referenced in () if snapshot is None else _entries(io, snapshot, allowed):
        file = entry.data_file
        path = normal(file.file_path)
        problem = _problem(file)
        if problem is not None:
            refused.append(RefusedFile(path=path, code=_CODE, reason=problem))
            deletes.add(entry, path, referenced)
            continue
        if not allowed.allows(path):
            refused += outside(allowed, [path])
            continue
        spec = metadata.specs()[file.spec_id or 0]
        values = zip(spec.fields, file.partition or (), strict=True)
        identity = {field.source_id: value for field, value in values if str(field.transform) == "identity"}
        found = SourceFile(location=path, size_bytes=file.file_size_in_bytes, partition=identity)
        files.append((found, _partition(file), entry.sequence_number))
    whole: list[SourceFile] = []
    for found, partition, sequence in files:  # a delete file may be listed after the files that it applies to
        cause = deletes.cause(found.location, partition, sequence)
        if cause is None:
            whole.append(found)
        else:
            refused.append(RefusedFile(path=found.location, code=_CODE, reason=cause))
    return SourceState(
        files=tuple(whole),
        version=f"{location.rpartition('/')[2]}#{'none' if snapshot is None else snapshot.snapshot_id}",
        identity=str(metadata.table_uuid),
        refused=tuple(refused),
        schemas=schemas,
        numbers=dict(_named(metadata.name_mapping())) if _is_export(snapshot) else {},
    )


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


def _entries(io: Any, snapshot: Any, allowed: AllowedLocations) -> Iterator[tuple[Any, str | None]]:
    """Yields the entries of the snapshot, each with the only data file that it deletes rows of, if it names one."""
    from pyiceberg.manifest import ManifestContent, ManifestEntryStatus

    allowed.require(snapshot.manifest_list)
    for manifest in snapshot.manifests(io):
        allowed.require(manifest.manifest_path)
        entries = manifest.fetch_manifest_entry(io, discard_deleted=False)
        deletes = manifest.content == ManifestContent.DELETES
        referenced = _referenced(io, manifest.manifest_path) if deletes else [None] * len(entries)
        for entry, path in zip(entries, referenced, strict=True):
            if entry.status != ManifestEntryStatus.DELETED:
                yield entry, path


def _referenced(io: Any, manifest: str) -> list[str | None]:
    """Returns ``referenced_data_file`` of each entry of a manifest: the library reads entries without it."""
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_ENTRY_SCHEMAS

    at = [field.name for field in DATA_FILE_TYPE[3].fields].index("referenced_data_file")
    with AvroFile[Any](io.new_input(manifest), MANIFEST_ENTRY_SCHEMAS[3]) as entries:
        return [entry[-1][at] for entry in entries]  # the data file is the last member of an entry


class _Deletes:
    """Delete files, and the data files that they may apply to; the deleted rows are not read."""

    def __init__(self, specs: Mapping[int, Any]) -> None:
        self._specs = specs
        self._referenced: dict[str, str] = {}
        # The last sequence number of data files that are affected, and the delete file, by partition; None: everywhere.
        self._last: dict[_Partition | None, tuple[float, str]] = {}

    def add(self, entry: Any, path: str, referenced: str | None) -> None:
        """Add the delete file at ``path``; files of data are ignored."""
        from pyiceberg.manifest import DataFileContent

        file = entry.data_file
        if file.content == DataFileContent.DATA:
            return
        if file.content == DataFileContent.POSITION_DELETES and referenced is not None:
            self._referenced[normal(referenced)] = path
            return
        last = math.inf if entry.sequence_number is None else entry.sequence_number
        partition: _Partition | None = _partition(file)
        if file.content == DataFileContent.EQUALITY_DELETES:
            last -= 1  # they do not apply to data files of the same commit
            if self._is_unpartitioned(file.spec_id):
                partition = None
        if file.spec_id not in self._specs:
            partition = None
        self._last[partition] = max(self._last.get(partition, (last, path)), (last, path))

    def cause(self, path: str, partition: _Partition, sequence: float | None) -> str | None:
        """Returns why the data file at ``path`` may have deleted rows; None: it has none."""
        if path in self._referenced:
            return f"{self._referenced[path]} deletes rows of it, and they are still in the file; compact the table"
        for scope in (partition, None):
            last, deletes = self._last.get(scope, (None, ""))
            if last is not None and (sequence is None or sequence <= last):
                return f"{deletes} may delete rows of it, and they are still in the file; compact the table"
        return None

    def _is_unpartitioned(self, spec_id: int) -> bool:
        fields = self._specs[spec_id].fields if spec_id in self._specs else ()
        return all(str(field.transform) == "void" for field in fields)


def _partition(file: Any) -> _Partition:
    """Returns a key that is equal for files of one partition, NaN and zeros of either sign included."""
    values = (value + 0.0 if isinstance(value, float) else value for value in file.partition or ())
    return file.spec_id, *map(repr, values)


def _problem(file: Any) -> str | None:
    from pyiceberg.manifest import DataFileContent, FileFormat

    if file.content != DataFileContent.DATA:
        return "it deletes rows of data files (merge on read): those rows are still in the files; compact the table"
    if file.file_format != FileFormat.PARQUET:
        return f"it is {file.file_format}, not Parquet"
    return None


def _column(field: Any) -> Column:
    if getattr(field, "initial_default", None) is not None:
        raise InvalidSchema(f"column {field.name!r} has an initial default", column=field.name)
    return _typed(field.name, field.field_id, field.field_type)


def _typed(name: str, number: int, kind: Any, *, nullable: bool = True) -> Column:
    from pyiceberg import types

    def made(text: str, *fields: Column) -> Column:
        return Column(name=name, type=text, id=number, nullable=nullable, fields=fields)

    if isinstance(kind, types.StructType):
        return made("struct", *map(_column, kind.fields))
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
