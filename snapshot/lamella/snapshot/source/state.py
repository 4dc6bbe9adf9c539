"""The state of a source, its difference to a table's blocks, and the table properties that describe it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import InvalidRequest, LocationRefused
from lamella.snapshot.manifest import Block, DeleteFile, content_hash
from lamella.snapshot.manifest.block_key import Identity
from lamella.snapshot.schema import Column
from lamella.snapshot.source.path_values import PathValues
from lamella.snapshot.source.transforms import Transformed
from lamella.snapshot.storage import AllowedLocations, normal
from lamella.snapshot.wire import ExternalSource, RefusedFile


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A data file. ``size_bytes`` and ``content_id`` as far as the source gives them.

    ``constants``: values that every row of the file has according to the source's log. ``folders``: values that the
    folders of its path name. ``values``: likewise, values that a metastore gives. ``partition``: values by field id, as
    the source's metadata has them, of columns that the file may lack. ``transformed``: likewise, the transforms of
    columns with their values (:mod:`lamella.snapshot.source.transforms`). ``deletes``: the source's own lists of
    deleted rows, as a block has them but without hashes. ``vector``: a deletion vector that no file of the source has
    as it is (:func:`lamella.snapshot.deletes.encode_vector`), of ``cardinality`` positions (None: not stated).
    """

    location: str
    size_bytes: int | None = None
    content_id: str | None = None
    constants: PathValues = ()
    folders: PathValues = ()
    values: PathValues = ()
    partition: Mapping[int, Any] = {}
    transformed: Mapping[int, tuple[Transformed, ...]] = {}
    deletes: tuple[DeleteFile, ...] = ()
    vector: bytes | None = None
    cardinality: int | None = None


#: Parts of lists and maps to which a source gives no field id have ids from here on, made from that of the column.
FIRST_OF_PARTS: Final = 1 << 32


class SourceSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One of a source's schemas. The ids of ``columns`` are the source's field ids (0: it matches columns by name).

    ``extra_columns``, ``ignored_columns``: as :class:`~lamella.snapshot.schema.Schema`.
    """

    schema_id: int
    columns: tuple[Column, ...]
    extra_columns: bool = False
    ignored_columns: tuple[str, ...] = ()


class FileSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The one of a source's schemas whose names its files have.

    ``by_number``: the file's field ids decide which column is which, so they must be those of the schema.
    """

    schema_id: int
    by_number: bool


class SourceState(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one version. ``identity``: the source's own id, which detects that another source took its place.

    ``refused``: files that belong to it and cannot be part of a table. ``schemas``: its schemas in the order of their
    first use, but the current one last; empty: it declares none. ``numbers``: the field ids of columns, by their paths
    in files without field ids. ``exact_doubles``: doubles in ``partition`` are those of the files. ``above``: values
    named by folders above the root of a directory. ``partitioned_by``: columns whose values a metastore gives.
    ``in_files``: what all files have been written with; None: a file's own names and field ids tell.
    """

    files: tuple[SourceFile, ...]
    version: str | None = None
    identity: str | None = None
    refused: tuple[RefusedFile, ...] = ()
    schemas: tuple[SourceSchema, ...] = ()
    numbers: Mapping[tuple[str, ...], int] = {}
    exact_doubles: bool = False
    above: PathValues = ()
    partitioned_by: tuple[str, ...] = ()
    in_files: FileSchema | None = None


def outside(allowed: AllowedLocations, locations: Iterable[str]) -> tuple[RefusedFile, ...]:
    """Returns the errors for files of a source outside of the allowed locations."""
    reason = "the table may not use files in this location"
    return tuple(
        RefusedFile(path=location, code=LocationRefused.code, reason=reason)
        for location in locations
        if not allowed.allows(location)
    )


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Files that the table lacks, locations that the source no longer has, and files that differ from the table's.

    ``unsure``: some of ``replaced`` may be the same; only reading them tells.
    """

    added: tuple[SourceFile, ...]
    removed: tuple[str, ...]
    replaced: tuple[SourceFile, ...]
    unchanged: tuple[SourceFile, ...]
    unsure: bool = False


def difference(known: Iterable[Identity], files: Iterable[SourceFile]) -> Difference:
    """Returns the difference, as far as sizes and content ids tell; a value that a source does not give counts as
    equal."""
    blocks = {block.location: block for block in known}
    added, replaced, unchanged = [], [], []
    for file in files:
        block = blocks.pop(file.location, None)
        if block is None:
            added.append(file)
        elif is_other(block, file):
            replaced.append(file)
        else:
            unchanged.append(file)
    return Difference(
        added=tuple(added), removed=tuple(sorted(blocks)), replaced=tuple(replaced), unchanged=tuple(unchanged)
    )


def is_other(block: Identity, file: SourceFile) -> bool:
    """Returns whether the source's file, or the list of its deleted rows, differs from those of a block for certain."""
    if file.size_bytes is not None and file.size_bytes != block.file_size:
        return True
    if file.content_id is not None and file.content_id != block.content_id:
        return True
    if file.vector is not None:
        return [entry.sha256 for entry in block.deletes] != [content_hash(file.vector)]
    return [_without_hash(entry) for entry in block.deletes] != list(file.deletes)


def _without_hash(entry: DeleteFile) -> DeleteFile:
    return msgspec.structs.replace(entry, sha256=None)


PREFIX: Final = "lamella.source."
KIND: Final = PREFIX + "kind"
#: The source's own version when the table last changed, and its id.
VERSION: Final = PREFIX + "version"
IDENTITY: Final = PREFIX + "id"
#: The number of the source's files that are not in the table.
REFUSED: Final = PREFIX + "refused"
#: JSON objects: the table's column id by field id, its schema id by the source's schema id (sources with field ids).
FIELDS: Final = PREFIX + "fields"
SCHEMAS: Final = PREFIX + "schemas"

LOCATION: Final = PREFIX + "location"
#: Set if the source is an Iceberg table of which this service is the catalog: :data:`LOCATION` is its metadata file.
HOSTED: Final = PREFIX + "hosted"
#: In a snapshot of a branch of a hosted table: the Iceberg snapshot that has its files; in others, the current one has.
SNAPSHOT: Final = PREFIX + "snapshot"
#: In the snapshot of a client's commit: the one before it. Later ones, which others made, have another one before them.
AFTER: Final = PREFIX + "after"
#: Why only Iceberg clients write a hosted table; absent or empty if Lamella does, too.
READ_ONLY: Final = PREFIX + "read_only"
#: JSON: the names of columns of a hosted table that must have a value in each row, by their ids.
REQUIRED: Final = PREFIX + "required"
#: Why the blocks are not those of the source's current version; absent or empty if they are.
UNREAD: Final = PREFIX + "unread"

#: What is true of a snapshot's own files and columns; the other properties say which source a table follows.
_OF_A_SNAPSHOT: Final = (VERSION, REFUSED, FIELDS, SCHEMAS, UNREAD, AFTER, SNAPSHOT)

_MEMBERS: Final = ("kind", "location", "catalog", "table", "path_columns", "time_zone")
_NAMES: Final = msgspec.json.Decoder(dict[int, str])
_SOURCE: Final = msgspec.json.Decoder(ExternalSource)  # created here: see ``snapshot.columnar.chunk``


def source_of(properties: Mapping[str, str]) -> ExternalSource | None:
    """Returns a table's source, None if it has none; raises InvalidRequest for invalid properties."""
    if KIND not in properties:
        return None
    given: dict[str, Any] = {name: properties[PREFIX + name] for name in _MEMBERS if PREFIX + name in properties}
    try:
        return _SOURCE.decode(msgspec.json.encode(given))
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the table's source cannot be read: {error}") from error


def source_properties(source: ExternalSource) -> dict[str, str]:
    """Returns the properties of a table that follows a source, with a normalized location.

    Raises:
        InvalidRequest: a member is missing, or does not apply to this kind.
    """
    by_name = source.catalog is not None or source.table is not None
    if by_name and (source.kind != "iceberg" or source.catalog is None or source.table is None):
        raise InvalidRequest("catalog and table must be given together, for an Iceberg table")
    if by_name == (source.location is not None):
        raise InvalidRequest("a source must have a location, or (Iceberg) a catalog and a table")
    if source.path_columns != "read" and source.kind != "directory":
        raise InvalidRequest("path_columns is for directories")
    if source.time_zone != "UTC" and source.kind not in ("directory", "hive"):
        raise InvalidRequest("time_zone is for directories and Hive tables")
    given = msgspec.to_builtins(source)
    if source.location is not None:
        given["location"] = normal(source.location)
    return {PREFIX + name: str(value) for name, value in given.items()}


def restored_properties(current: Mapping[str, str], target: Mapping[str, str]) -> dict[str, str]:
    """Returns a table's properties after a rollback: the current ones, but those about files and columns of the source
    are the target's, like its files and columns."""
    others = {name: text for name, text in current.items() if name not in _OF_A_SNAPSHOT}
    return others | {name: target[name] for name in _OF_A_SNAPSHOT if name in target}


def refuse_registered(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a table to which files cannot be added as they are."""
    if properties.get(HOSTED):
        raise InvalidRequest("this is a table of Iceberg clients: add files by one of them (add_files)")
    refuse_added(properties)


def refuse_unwritable(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a table of Iceberg clients whose blocks only they change."""
    reason = properties.get(UNREAD) or properties.get(READ_ONLY)
    if properties.get(HOSTED) and reason:
        raise InvalidRequest(f"only Iceberg clients can write this table: {reason}")


def refuse_nulls(properties: Mapping[str, str], blocks: Iterable[Block]) -> None:
    """Raise InvalidRequest for a block that may have nulls in a column that Iceberg clients require."""
    names = _NAMES.decode(properties.get(REQUIRED) or "{}") if properties.get(HOSTED) else {}
    for block in blocks if names else ():
        for number, name in names.items():
            stats = block.col_stats.get(number)
            if block.row_count and (stats is None or stats.null_count != 0):
                raise InvalidRequest(
                    f"column {name!r} is required in this table of Iceberg clients, and {block.location} may have nulls"
                    " in it",
                    column=name,
                )


def refuse_added(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a table whose blocks only its source, or Iceberg clients, change."""
    refuse_unwritable(properties)
    if KIND in properties and not properties.get(HOSTED):
        raise InvalidRequest("the table follows a source: change the files in the source, and refresh the table")


def refuse_columns(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a table that has the columns of its source."""
    if properties.get(HOSTED):
        raise InvalidRequest("this is a table of Iceberg clients: change its columns in a commit without rows")
    if properties.get(KIND, "directory") != "directory":
        raise InvalidRequest(
            "the table has the columns of its source: change them in the source, and refresh the table"
        )


def refuse_rollback(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a table whose current snapshot Iceberg clients decide."""
    if properties.get(HOSTED):
        raise InvalidRequest("this has become a table of Iceberg clients: try again")


def refuse_branch_change(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a branch that stands for one in the metadata of an Iceberg table."""
    if properties.get(SNAPSHOT):
        raise InvalidRequest("this branch is one of the Iceberg table: move or drop it by an Iceberg client")


def refuse_checks(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a table whose rows are written by others."""
    if KIND in properties:
        raise InvalidRequest("nothing checks the rows of an external table, so it has no constraints")


def refuse_properties(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for properties that a request may not set."""
    for name in properties:
        if name.startswith(PREFIX):
            raise InvalidRequest(f"{name!r} is set by the service: create the table with a source", property=name)
