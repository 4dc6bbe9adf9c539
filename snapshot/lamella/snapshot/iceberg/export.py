"""Tables exported as Iceberg: manifests and metadata files."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

import msgspec
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    construct_partition_summaries,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
    read_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.typedef import Record, TableVersion

from lamella.snapshot.deletes import RangeReader, VectorFile, deleted_rows
from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.iceberg.export_folder import FORMAT, FORMAT_OF_VECTORS, OLD_VERSIONS
from lamella.snapshot.iceberg.manifest_entries import MemoryFile, MemoryOutput
from lamella.snapshot.iceberg.metadata import (
    MAIN,
    NAME_MAPPING,
    SNAPSHOT,
    mapping_of,
    require_types,
)
from lamella.snapshot.iceberg.partitions import (
    Partition,
    columns_in,
    not_read_equally,
    partition_of,
    spec_json,
    specs_json,
)
from lamella.snapshot.iceberg.scan_plan import file_statistics
from lamella.snapshot.iceberg.types import schema_json
from lamella.snapshot.manifest import Block, DeleteFile, Snapshot
from lamella.snapshot.manifest.codec import content_hash
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.stats.bound import Value

# Iceberg's manifests and manifest lists as Avro files, written and read by pyiceberg.
#
# A manifest contains what never changes of a segment's blocks; lists contain what differs between snapshots. Its
# entries are "added", and their snapshot and sequence number are null, so that readers use those of the list's entry
# (the specification's inheritance). So one file serves every snapshot that has the segment.

#: Iceberg's id of a column for paths of data files, with which delete files say which they are about.
_PATH_FIELD: Final = 2147483546
_CODEC: Final = {"avro.codec": "deflate"}


class ListedManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A list's entry for a manifest: its location and size, its contents, and the snapshot that added it.

    ``added_by``, ``sequence_number``: of the first snapshot that had the manifest. ``partitions``: the least and the
    greatest value of each column of the spec. ``is_deletes``: its files are deletion vectors, and its rows are deleted.
    """

    location: str
    size_bytes: int
    added_by: int
    sequence_number: int
    file_count: int
    row_count: int
    spec_id: int = 0
    partitions: tuple[PartitionFieldSummary, ...] = ()
    is_deletes: bool = False


class ExportedVector(msgspec.Struct, frozen=True, kw_only=True):
    """The deletion vector of a block in a Puffin file of its own: ``data`` is the file, at ``entry.location``.

    Of a file of several vectors, pyiceberg (0.12) applies every one to the data file that the footer names, and DuckDB
    (1.5) may read another one than is meant.
    """

    data: bytes
    entry: DeleteFile


class ManifestBytes(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest, before it is written: all blocks of a segment with constants in the same columns, or their deletion
    vectors (``is_deletes``)."""

    data: bytes
    file_count: int
    row_count: int
    partition_columns: tuple[int, ...]
    spec_id: int
    partitions: tuple[PartitionFieldSummary, ...]
    is_deletes: bool


def vectors_of(
    blocks: Iterable[Block], store: RangeReader, location_of: Callable[[str], str]
) -> dict[str, ExportedVector]:
    """Returns the deletion vectors of the blocks that have any, by location of the block.

    ``location_of`` returns the location of a file with this hash.

    Raises:
        CorruptDeletes, HashMismatch, ObjectNotFound, StoreError: as :func:`lamella.snapshot.deletes.read_vector`.
    """
    found = {}
    for block in blocks:
        if block.deletes:
            file = VectorFile("")
            entry = file.add(block.location, deleted_rows(store, block.deletes, block.row_count))
            data = file.finished()
            entry = msgspec.structs.replace(entry, location=location_of(content_hash(data)))
            found[block.location] = ExportedVector(data=data, entry=entry)
    return found


def manifests_of(
    blocks: Sequence[Block],
    schema: Schema,
    written: Sequence[Schema],
    columns: Collection[int] | None,
    vectors: Mapping[str, ExportedVector],
) -> list[ManifestBytes]:
    """Returns the manifests of at least one block, one for each partition spec, and one for each whose blocks have
    deleted rows.

    ``written``: the schemas that they were written with. ``columns``: those with statistics; None: all. ``vectors``:
    :func:`vectors_of`.

    Raises:
        NotExpressible: Iceberg cannot express the schema or a constant.
        ManifestError: statistics or a constant do not match a column's type.
    """
    by_id = {each.schema_id: each for each in written}
    groups: dict[tuple[int, ...], list[tuple[Block, Record]]] = {}
    for block in blocks:
        partition = partition_of(block.constants, by_id[block.written_with], schema, block.location)
        groups.setdefault(tuple(partition), []).append((block, _record(partition, block.location)))
    found = []
    for spec in sorted(groups):
        entries = [
            data_entry(block, partition, by_id[block.written_with], columns) for block, partition in groups[spec]
        ]
        found.append(_manifest(spec, entries, schema))
    for spec in sorted(groups):
        entries = [
            _vector_entry(vectors[block.location], block.location, partition)
            for block, partition in groups[spec]
            if block.location in vectors
        ]
        if entries:
            found.append(_manifest(spec, entries, schema, is_deletes=True))
    return found


def _manifest(
    spec: tuple[int, ...], entries: Sequence[ManifestEntry], schema: Schema, *, is_deletes: bool = False
) -> ManifestBytes:
    described, described_spec = schema_json(schema), spec_json(schema, spec)
    partition_spec = PartitionSpec.model_validate(described_spec)
    iceberg_schema = IcebergSchema.model_validate(described)
    version: TableVersion = FORMAT_OF_VECTORS if is_deletes else FORMAT
    meta = {
        "schema": json.dumps(described),
        "schema-id": str(schema.schema_id),
        "partition-spec": json.dumps(described_spec["fields"]),
        "partition-spec-id": str(partition_spec.spec_id),
        "format-version": str(version),
        "content": "deletes" if is_deletes else "data",
        **_CODEC,
    }
    data_file = data_file_with_partition(
        format_version=version, partition_type=partition_spec.partition_type(iceberg_schema)
    )
    entry_schema = manifest_entry_schema_with_data_file(format_version=version, data_file=data_file)
    return ManifestBytes(
        data=_avro(entry_schema, "manifest_entry", meta, list(entries)),
        file_count=len(entries),
        row_count=sum(each.data_file.record_count for each in entries),
        partition_columns=spec,
        spec_id=partition_spec.spec_id,
        partitions=tuple(
            construct_partition_summaries(
                partition_spec, iceberg_schema, [each.data_file.partition for each in entries]
            )
        ),
        is_deletes=is_deletes,
    )


def _record(partition: Partition, location: str) -> Record:
    return Record(
        *(None if value is None else _avro_value(dtype, value, location) for dtype, value in partition.values())
    )


def _avro_value(dtype: DataType, value: Value, location: str) -> Any:
    """Returns a value as pyiceberg writes it."""
    if dtype.is_text and isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        # pyiceberg (0.12) reads the doubles of manifests as floats.
        if not _is_float(value):
            raise not_read_equally(location, value)
        return value
    if dtype.name == "boolean":
        return bool(value)
    if dtype.name == "decimal":
        # The constructor is exact; arithmetic rounds to the precision of a context.
        return Decimal(f"{value!r}E-{dtype.scale}")
    return value


def _is_float(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False


def list_bytes(
    manifests: Iterable[ListedManifest], *, snapshot: int, parent: int | None, sequence_number: int
) -> bytes:
    """Returns the manifest list of a snapshot."""
    manifests = list(manifests)
    version: TableVersion = FORMAT_OF_VECTORS if any(each.is_deletes for each in manifests) else FORMAT
    meta = {
        "snapshot-id": str(snapshot),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(sequence_number),
        "format-version": str(version),
        **_CODEC,
    }
    entries = [
        ManifestFile.from_args(
            _table_format_version=version,
            manifest_path=each.location,
            manifest_length=each.size_bytes,
            partition_spec_id=each.spec_id,
            content=ManifestContent.DELETES if each.is_deletes else ManifestContent.DATA,
            sequence_number=each.sequence_number,
            min_sequence_number=each.sequence_number,
            added_snapshot_id=each.added_by,
            added_files_count=each.file_count,
            existing_files_count=0,
            deleted_files_count=0,
            added_rows_count=each.row_count,
            existing_rows_count=0,
            deleted_rows_count=0,
            partitions=list(each.partitions),
        )
        for each in manifests
    ]
    return _avro(MANIFEST_LIST_FILE_SCHEMAS[version], "manifest_file", meta, entries)


def read_list(data: bytes) -> list[ListedManifest]:
    """Reads a list written by :func:`list_bytes`."""
    return [
        ListedManifest(
            location=each.manifest_path,
            size_bytes=each.manifest_length,
            added_by=each.added_snapshot_id or 0,
            sequence_number=each.sequence_number,
            file_count=each.added_files_count or 0,
            row_count=each.added_rows_count or 0,
            spec_id=each.partition_spec_id,
            partitions=tuple(each.partitions or ()),
            is_deletes=each.content == ManifestContent.DELETES,
        )
        for each in read_manifest_list(MemoryFile(data))
    ]


def data_entry(
    block: Block,
    partition: Record,
    schema: Schema,
    columns: Collection[int] | None,
    version: TableVersion = FORMAT,
) -> ManifestEntry:
    found = file_statistics(block, schema, columns)
    file = DataFile.from_args(
        _table_format_version=version,
        content=DataFileContent.DATA,
        file_path=block.location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=block.row_count,
        file_size_in_bytes=block.file_size,
        value_counts=found.value_counts or None,
        null_value_counts=found.null_value_counts or None,
        nan_value_counts=found.nan_value_counts or None,
        lower_bounds=found.lower_bounds or None,
        upper_bounds=found.upper_bounds or None,
    )
    return ManifestEntry.from_args(
        _table_format_version=version, status=ManifestEntryStatus.ADDED, snapshot_id=None, data_file=file
    )


def _vector_entry(vector: ExportedVector, location: str, partition: Record) -> ManifestEntry:
    """Returns the entry of a block's vector. Older readers find the block by the bounds, newer ones by its name."""
    entry, path = vector.entry, {_PATH_FIELD: location.encode()}
    file = DataFile.from_args(
        _table_format_version=FORMAT_OF_VECTORS,
        content=DataFileContent.POSITION_DELETES,
        file_path=entry.location,
        file_format=FileFormat.PUFFIN,
        partition=partition,
        record_count=entry.cardinality,
        file_size_in_bytes=len(vector.data),
        lower_bounds=path,
        upper_bounds=path,
        referenced_data_file=location,
        content_offset=entry.offset,
        content_size_in_bytes=entry.length,
    )
    return ManifestEntry.from_args(
        _table_format_version=FORMAT_OF_VECTORS, status=ManifestEntryStatus.ADDED, snapshot_id=None, data_file=file
    )


def _avro(schema: Any, name: str, meta: dict[str, str], records: list[Any]) -> bytes:
    """Returns an Avro file with all records in one block, or no block if there are no records."""
    out = MemoryOutput("memory")
    with AvroOutputFile[Any](output_file=out, file_schema=schema, schema_name=name, metadata=meta) as writer:
        if records:
            writer.write_block(records)
    return out.data


#: Members of each snapshot's summary, besides its Lamella id: the schemas of its files, the columns with statistics.
SCHEMAS: Final = "lamella.schema-ids"
COLUMNS: Final = "lamella.statistics"
_DELETE_FILES: Final = "total-delete-files"
#: What may differ between two metadata files that describe the same state of the table.
_OF_THE_FILE: Final = ("last-updated-ms", "metadata-log")


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot to be exported. ``number``: its id in Iceberg, which is its number in the table's history.

    ``columns``: those with statistics, in the form of :data:`COLUMNS`.
    """

    snapshot: Snapshot
    number: int
    columns: str


def check_readable(snapshot: Snapshot) -> None:
    """Raise NotExpressible if Iceberg's readers cannot read the snapshot's columns, or blocks of older schemas."""
    schema_json(snapshot.schema)
    require_types(snapshot.schema, written_with(snapshot))
    mapping_of(snapshot.schema, written_with(snapshot))


def written_with(snapshot: Snapshot) -> tuple[Schema, ...]:
    """Returns the schemas that a snapshot's blocks were written with, the newest first."""
    used = set(snapshot.schema_ids_in_use)
    return tuple(schema for schema in reversed(snapshot.history) if schema.schema_id in used)


def _partition_columns(previous: Mapping[str, Any] | None) -> set[tuple[int, ...]]:
    """Returns the columns of each of a metadata file's partition specs."""
    specs = [] if previous is None else previous["partition-specs"]
    return {tuple(field["source-id"] for field in spec["fields"]) for spec in specs}


def is_exported(previous: Mapping[str, Any] | None, exported: Exported) -> bool:
    """Returns whether a metadata file has the snapshot, with the same statistics."""
    found = _entry(previous, exported.number)
    said = None if found is None else (_lamella_id(found), found["summary"].get(COLUMNS))
    return said == (exported.snapshot.snapshot_id, exported.columns)


def current_list(previous: Mapping[str, Any] | None) -> str | None:
    """Returns the location of the manifest list of a metadata file's current snapshot; None if there is none."""
    found = None if previous is None else _entry(previous, previous["current-snapshot-id"])
    return None if found is None else str(found["manifest-list"])


def next_sequence(previous: Mapping[str, Any] | None) -> int:
    """Returns the sequence number of the next snapshot."""
    return 1 if previous is None else int(previous["last-sequence-number"]) + 1


def parent_of(previous: Mapping[str, Any] | None, *, only_adds: bool) -> int | None:
    """Returns the parent of the next snapshot.

    Only a snapshot that adds to the current one has a parent: readers of incremental changes look for files that are
    marked as deleted, which no segment's manifest has. Without a parent they refuse.
    """
    if previous is None or not only_adds:
        return None
    return None if current_list(previous) is None else int(previous["current-snapshot-id"])


def entry(
    exported: Exported,
    manifest_list: str,
    manifests: Iterable[ListedManifest],
    *,
    sequence_number: int,
    parent: int | None,
    only_adds: bool,
) -> dict[str, Any]:
    """Returns a snapshot's entry in a metadata file. ``only_adds``: it contains every file of the current one.

    A vector counts as a delete file.
    """
    vectors = [each for each in manifests if each.is_deletes]
    snapshot, total = exported.snapshot, exported.snapshot.summary
    found: dict[str, Any] = {
        "snapshot-id": exported.number,
        "sequence-number": sequence_number,
        "timestamp-ms": snapshot.timestamp_ms,
        "manifest-list": manifest_list,
        "schema-id": snapshot.schema.schema_id,
        "summary": {
            "operation": "append" if only_adds else "overwrite",
            "total-records": str(total.row_count),
            "total-data-files": str(total.block_count),
            "total-files-size": str(total.compressed_byte_size),
            _DELETE_FILES: str(sum(each.file_count for each in vectors)),
            "total-position-deletes": str(sum(each.row_count for each in vectors)),
            "total-equality-deletes": "0",
            SNAPSHOT: snapshot.snapshot_id,
            SCHEMAS: ",".join(map(str, snapshot.schema_ids_in_use)),
            COLUMNS: exported.columns,
        },
    }
    return found if parent is None else found | {"parent-snapshot-id": parent}


def next_metadata(
    previous: Mapping[str, Any] | None,
    previous_location: str | None,
    exported: Exported,
    added: Mapping[str, Any] | None,
    *,
    partition_columns: Collection[tuple[int, ...]] = (),
    location: str,
    alive: Collection[str],
    tags: Mapping[str, str],
    now_ms: int,
) -> dict[str, Any]:
    """Returns the metadata file that follows ``previous``, with the exported snapshot as the current one.

    ``added``: its entry; None: ``previous`` has it. ``partition_columns``: of the specs of its manifests. ``alive``:
    ids of the snapshots of the table's history; others have left it, and their files may be deleted. ``tags``: snapshot
    ids by tag.

    Raises:
        NotExpressible: see :func:`check_readable`.
    """
    snapshot, number = exported.snapshot, exported.number
    own = added if added is not None else _entry(previous, number)
    if own is None:
        raise ValueError("an entry is required for a snapshot that was not exported before")
    remaining = [each for each in _entries(previous) if each["snapshot-id"] != number and _lamella_id(each) in alive]
    known_specs = _partition_columns(previous)
    specs = {columns for columns in known_specs if columns_in(snapshot.schema, columns) == columns}
    if specs != known_specs:  # readers fail at a spec whose column was dropped
        remaining = []
    mapping, remaining = _mapping(snapshot, remaining)
    schemas = {each["schema-id"]: each for each in ([] if previous is None else previous["schemas"])}
    entries = sorted([*remaining, own], key=lambda each: int(each["sequence-number"]))
    in_use = {each["schema-id"] for each in entries}
    # Schemas of older files are included for readers that look there for the names in a file, as Lamella does.
    for schema in (*written_with(snapshot), snapshot.schema):
        with suppress(NotExpressible):  # an older one may have a column that was dropped
            schemas[schema.schema_id] = schema_json(schema)
            in_use.add(schema.schema_id)
    of = {_lamella_id(each): each["snapshot-id"] for each in entries}
    logged = sorted((each["timestamp-ms"], each["snapshot-id"]) for each in remaining)
    before = [(at, each) for at, each in logged if at <= own["timestamp-ms"]]
    has_vectors = any(each["summary"].get(_DELETE_FILES, "0") != "0" for each in entries)
    found: dict[str, Any] = {
        # Rows have no ids, as those of a table that was of an earlier version before.
        **({"format-version": FORMAT_OF_VECTORS, "next-row-id": 0} if has_vectors else {"format-version": FORMAT}),
        "table-uuid": snapshot.table_id,
        "location": location,
        "last-sequence-number": max(
            int(own["sequence-number"]), 0 if previous is None else int(previous["last-sequence-number"])
        ),
        "last-updated-ms": max(
            now_ms, own["timestamp-ms"], 0 if previous is None else int(previous["last-updated-ms"])
        ),
        "last-column-id": max(
            snapshot.schema.last_column_id, 0 if previous is None else int(previous["last-column-id"])
        ),
        "current-schema-id": snapshot.schema.schema_id,
        "schemas": [schemas[key] for key in sorted(in_use)],
        **specs_json(snapshot.schema, {*specs, *partition_columns}),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        # The files belong to the table: Iceberg's clean-up must not delete them.
        "properties": {NAME_MAPPING: json.dumps(mapping), "gc.enabled": "false"},
        "current-snapshot-id": number,
        "snapshots": entries,
        "snapshot-log": [
            {"timestamp-ms": at, "snapshot-id": each} for at, each in [*before, (own["timestamp-ms"], number)]
        ],
        "metadata-log": _log(previous, previous_location),
        "refs": {
            **{
                name: {"snapshot-id": of[snapshot_id], "type": "tag"}
                for name, snapshot_id in sorted(tags.items())
                if name != MAIN and snapshot_id in of
            },
            MAIN: {"snapshot-id": number, "type": "branch"},
        },
    }
    return found


def says_the_same(one: Mapping[str, Any] | None, other: Mapping[str, Any]) -> bool:
    """Returns whether two metadata files are equivalent for readers of the table."""
    return one is not None and all(one.get(key) == other.get(key) for key in {*one, *other} if key not in _OF_THE_FILE)


def _mapping(
    snapshot: Snapshot, remaining: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[Mapping[str, Any]]]:
    """Returns the name mapping of a snapshot and the other snapshots, which are dropped if no mapping is right for
    all."""
    by_id = {str(schema.schema_id): schema for schema in snapshot.history}
    ids = {one for each in remaining for one in str(each["summary"].get(SCHEMAS, "")).split(",") if one}
    ids |= {str(each["schema-id"]) for each in remaining}
    own = written_with(snapshot)
    if ids <= set(by_id):
        others = [by_id[one] for one in sorted(ids, key=int, reverse=True)]
        try:
            return mapping_of(snapshot.schema, [*own, *others]), list(remaining)
        except NotExpressible:
            pass  # the name belonged to another column then
    return mapping_of(snapshot.schema, own), []


def _log(previous: Mapping[str, Any] | None, location: str | None) -> list[dict[str, Any]]:
    if previous is None or location is None:
        return []
    log = [*previous.get("metadata-log", ()), {"timestamp-ms": previous["last-updated-ms"], "metadata-file": location}]
    return log[-OLD_VERSIONS:]


def _entries(previous: Mapping[str, Any] | None) -> Iterable[Mapping[str, Any]]:
    return () if previous is None else previous.get("snapshots", ())


def _entry(previous: Mapping[str, Any] | None, number: int | None) -> Mapping[str, Any] | None:
    return next((each for each in _entries(previous) if each["snapshot-id"] == number), None)


def _lamella_id(each: Mapping[str, Any]) -> str | None:
    found = each.get("summary", {}).get(SNAPSHOT)
    return None if found is None else str(found)
