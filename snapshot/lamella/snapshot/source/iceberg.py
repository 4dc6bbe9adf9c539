"""An Iceberg table as a source: its metadata lists the files. Needs the extra ``lamella[iceberg]``.

Columns are matched by field id. A file is read by the names of the schema that its own ids and names belong to, which
is in the table's schema history (:mod:`lamella.snapshot.source.evolution`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lamella.snapshot.errors import InvalidRequest, InvalidSchema, LamellaError, ObjectNotFound, StoreError
from lamella.snapshot.iceberg.metadata import SNAPSHOT
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.column import canonical_default
from lamella.snapshot.source.iceberg_deletes import (
    ListedData,
    ListedDeletes,
    Partition,
    partition_key,
    without_deleted_rows,
)
from lamella.snapshot.source.options import StoreOptions, iceberg_properties
from lamella.snapshot.source.state import Difference, SourceFile, SourceSchema, SourceState, outside
from lamella.snapshot.source.transforms import Transformed
from lamella.snapshot.storage import AllowedLocations, Store, normal
from lamella.snapshot.wire import ExternalSource, RefusedFile

if TYPE_CHECKING:
    from lamella.snapshot.iceberg.manifest_entries import ListedFile

#: How names of metadata files end: as text, and compressed by newer and older writers.
_SUFFIXES: Final = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")
_HINT: Final = "version-hint.text"
_CODE: Final = InvalidRequest.code

#: Columns that writers add to files of format version 3 which have rows of other files.
_ROW_LINEAGE: Final = ("_last_updated_sequence_number", "_row_id")
_WITH_ROW_LINEAGE: Final = 3

#: The content of a file of deleted rows by value, in a manifest.
_EQUALITY_DELETES: Final = 2

#: Connections of the Iceberg catalogs that the service knows, by name.
Catalogs = Mapping[str, Mapping[str, str]]


class IcebergVersion(NamedTuple):
    """A snapshot of a table by one of its metadata files; None: the current one."""

    location: str
    snapshot_id: int | None = None


class IcebergReader:
    """Reads Iceberg tables. ``catalogs``: connections by name. Remembers manifests, which never change."""

    def __init__(self, store: Store, options: StoreOptions, catalogs: Catalogs) -> None:
        self._store = store
        self._options = options
        self._catalogs = catalogs
        self._manifests: Any = None

    def read(
        self,
        source: ExternalSource,
        allowed: AllowedLocations,
        *,
        hosted: bool = False,
        snapshot_id: int | None = None,
    ) -> SourceState:
        """Returns the files of a snapshot of the table, by default the current one.

        Each location is compared with ``allowed`` before it is opened: the metadata, and the lists and manifests that
        it names. The table's own properties do not affect how files are opened, since anyone who can write the table
        controls them. ``hosted``: all files are read again when the name mapping changes, so it can be used.

        Raises:
            InvalidRequest: the current metadata cannot be determined, or the table uses an unsupported feature.
            LocationRefused: its metadata, or a part of it, is outside of ``allowed``.
            InvalidSchema: an unknown type.
            ObjectNotFound: there is no such table.
            StoreError: it cannot be read, or the extra is missing.
        """
        name = f"{source.catalog}:{source.table}" if source.location is None else source.location
        with self._errors(name):
            location = _in_catalog(source, self._catalogs) if source.location is None else None
            if location is None:
                location = _metadata(self._store, str(source.location), allowed)
            table = self._table(IcebergVersion(location, snapshot_id), allowed)
            return _state(self._store, table, hosted=hosted)

    def change(
        self, before: IcebergVersion, after: IcebergVersion, allowed: AllowedLocations
    ) -> tuple[SourceState, Difference] | None:
        """Returns the state of a table with the files that are new between two of its versions, and the difference;
        None: all files have to be compared.

        Only manifests that one of the two does not have are read, if the delete files are the same. Raises as
        :meth:`read`.
        """
        with self._errors(after.location):
            return _change(self._store, self._table(before, allowed), self._table(after, allowed))

    def _table(self, version: IcebergVersion, allowed: AllowedLocations) -> _Table:
        from pyiceberg.io import load_file_io
        from pyiceberg.serializers import Compressor, FromByteStream

        from lamella.snapshot.iceberg.manifest_entries import ManifestEntries

        if self._manifests is None:
            self._manifests = ManifestEntries()
        location = version.location
        allowed.require(location)
        io = load_file_io(iceberg_properties(self._options), location)
        compression = Compressor.get_compressor(".gz.metadata.json" if location.endswith(_SUFFIXES[1:]) else location)
        with io.new_input(location).open() as stream:
            try:
                metadata = FromByteStream.table_metadata(stream, compression=compression)
            except TypeError as error:  # a default of nanoseconds, for instance
                raise ValueError(str(error)) from error
        snapshot = metadata.current_snapshot()
        if version.snapshot_id is not None:
            snapshot = metadata.snapshot_by_id(version.snapshot_id)
            if snapshot is None:
                raise InvalidRequest(f"{location} has no snapshot {version.snapshot_id}", location=location)
        return _Table(metadata, snapshot, io, location, allowed, self._manifests)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turn pyiceberg's errors into Lamella's."""
        try:
            from pyiceberg.exceptions import NoSuchTableError, NotInstalledError, RESTError, ValidationError
        except ImportError as error:
            raise StoreError("Iceberg tables require the extra lamella[iceberg]") from error
        try:
            yield
        except NoSuchTableError as error:
            raise ObjectNotFound(f"there is no Iceberg table {name}: {error}", location=name) from error
        except FileNotFoundError as error:
            raise ObjectNotFound(f"there is no Iceberg table at {name}: {error}", location=name) from error
        except LamellaError:
            raise
        except (OSError, RESTError, ValueError, ValidationError, NotImplementedError, NotInstalledError) as error:
            # pyiceberg raises ValueError for what it does not support, and its own error for damaged metadata.
            raise StoreError(f"the Iceberg table {name} cannot be read: {error}", location=name) from error


class _Table:
    """A table at a snapshot of one of its metadata files. ``metadata``, ``snapshot``: as pyiceberg reads them."""

    def __init__(
        self, metadata: Any, snapshot: Any, io: Any, location: str, allowed: AllowedLocations, manifests: Any
    ) -> None:
        self.metadata = metadata
        self.location = location
        self.allowed = allowed
        self.specs = metadata.specs()
        self.snapshot = snapshot
        self._io = io
        self._manifests = manifests

    def manifests(self) -> dict[str, Any]:
        """Return the manifests of the snapshot, by path."""
        if self.snapshot is None:
            return {}
        return {
            each.manifest_path: each for each in self._manifests.listed(self.snapshot.manifest_list, self._reading())
        }

    def files(self, manifests: Iterable[Any]) -> Iterator[ListedFile]:
        """Yield the live entries of manifests."""
        for manifest in manifests:
            yield from self._manifests.files(manifest, self._reading())

    def _reading(self) -> Any:
        from lamella.snapshot.iceberg.manifest_entries import Read

        # ``normal`` refuses relative paths
        return Read(self._read, lambda location: self.allowed.require(normal(location)))

    def _read(self, location: str) -> bytes:
        with self._io.new_input(location).open() as stream:
            return bytes(stream.read())


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


def _state(store: Store, table: _Table, *, hosted: bool) -> SourceState:
    found = _Files(table)
    found.add(table.files(table.manifests().values()))
    whole = list(without_deleted_rows(store, found.data, found.deletes, table.allowed))
    return _described(
        table,
        [each for each in whole if isinstance(each, SourceFile)],
        [*found.refused, *(each for each in whole if isinstance(each, RefusedFile))],
        hosted=hosted,
    )


def _change(store: Store, before: _Table, after: _Table) -> tuple[SourceState, Difference] | None:
    old, new = before.manifests(), after.manifests()
    deletes = {path for path, each in new.items() if _is_of_deletes(each)}
    if deletes != {path for path, each in old.items() if _is_of_deletes(each)}:
        return None
    gone, found = _Files(before), _Files(after)
    gone.add(before.files(each for path, each in old.items() if path not in new))
    found.add(after.files(each for path, each in new.items() if path not in old))
    if gone.refused or found.refused:
        return None
    were = {each.file.location: each for each in gone.data}
    added = [each for each in found.data if each.file.location not in were]
    if any(each != were[each.file.location] for each in found.data if each.file.location in were):
        return None  # an entry that says something else of a file
    if deletes:
        found.add(after.files(new[path] for path in sorted(deletes)))
    whole = list(without_deleted_rows(store, added, found.deletes, after.allowed))
    files = [each for each in whole if isinstance(each, SourceFile)]
    refused = [each for each in whole if isinstance(each, RefusedFile)]
    left = {each.file.location for each in found.data}
    difference = Difference(
        added=tuple(files),
        removed=tuple(sorted(location for location in were if location not in left)),
        replaced=(),
        unchanged=(),
    )
    return _described(after, files, refused, hosted=True), difference


def _is_of_deletes(manifest: Any) -> bool:
    from lamella.snapshot.iceberg.manifest_entries import is_of_deletes

    return is_of_deletes(manifest)


class _Files:
    """The entries of manifests as what they are to a table: data files, delete files, and files that it cannot have."""

    def __init__(self, table: _Table) -> None:
        self._table = table
        self._seen: set[str] = set()
        self.data: list[ListedData] = []
        self.deletes: list[ListedDeletes] = []
        self.refused: list[RefusedFile] = []

    def add(self, entries: Iterable[ListedFile]) -> None:
        """Sort some entries. Raises InvalidRequest for a data file that is listed twice: a table has a block once."""
        specs, allowed = self._table.specs, self._table.allowed
        for entry in entries:
            path = normal(entry.path)
            if entry.content:
                self.deletes.append(_listed_deletes(entry, path, specs))
            elif entry.format != "PARQUET":
                reason = f"it is {entry.format}, not Parquet"
                self.refused.append(RefusedFile(path=path, code=_CODE, reason=reason))
            elif not allowed.allows(path):
                self.refused += outside(allowed, [path])
            elif path in self._seen:
                raise InvalidRequest(f"{path} is listed twice, so its rows are in the table twice", location=path)
            else:
                self._seen.add(path)
                identity, transformed = _partition_values(entry, specs[entry.spec_id])
                found = SourceFile(
                    location=path, size_bytes=entry.size_bytes, partition=identity, transformed=transformed
                )
                self.data.append(
                    ListedData(entry.path, found, partition_key(entry.spec_id, entry.partition), entry.sequence)
                )


def _described(
    table: _Table, files: Sequence[SourceFile], refused: Sequence[RefusedFile], *, hosted: bool
) -> SourceState:
    """Returns the state of a table with these files."""
    metadata, snapshot = table.metadata, table.snapshot
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
    return SourceState(
        files=tuple(files),
        version=f"{table.location.rpartition('/')[2]}#{'none' if snapshot is None else snapshot.snapshot_id}",
        identity=str(metadata.table_uuid),
        refused=tuple(refused),
        schemas=schemas,
        numbers=dict(_named(metadata.name_mapping())) if hosted or _is_export(snapshot) else {},
        exact_doubles=_is_export(snapshot),  # they contain only doubles that are floats
    )


def _partition_values(file: ListedFile, spec: Any) -> tuple[dict[int, Any], dict[int, tuple[Transformed, ...]]]:
    """Returns the values of identity transforms, and of all, by the field id of the source column."""
    identity: dict[int, Any] = {}
    transformed: dict[int, tuple[Transformed, ...]] = {}
    for field, value in zip(spec.fields, file.partition, strict=True):
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


def _listed_deletes(file: ListedFile, location: str, specs: Mapping[int, Any]) -> ListedDeletes:
    is_equality = file.content == _EQUALITY_DELETES
    partition: Partition | None = partition_key(file.spec_id, file.partition)
    if file.spec_id not in specs or (is_equality and _is_unpartitioned(specs[file.spec_id])):
        partition = None
    return ListedDeletes(
        location=location,
        format=file.format,
        sequence=file.sequence,
        partition=partition,
        referenced=None if is_equality else file.referenced,
        offset=file.offset,
        length=file.length,
        row_count=file.row_count,
        is_equality=is_equality,
    )


def _is_unpartitioned(spec: Any) -> bool:
    return all(str(field.transform) == "void" for field in spec.fields)


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
