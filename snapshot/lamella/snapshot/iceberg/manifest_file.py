"""Iceberg's manifests and manifest lists as Avro files, written and read by pyiceberg.

A manifest says of a segment's blocks what never changes, and leaves to the lists what differs from snapshot to
snapshot: its entries are "added", and their snapshot and sequence number are null, so that readers take those of the
list's entry (the specification's inheritance). So one file serves every snapshot that has the segment.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
    read_manifest_list,
)
from pyiceberg.typedef import Record
from pyiceberg.types import StructType

from lamella.snapshot.iceberg.bounds import file_statistics
from lamella.snapshot.iceberg.types import schema_json
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Schema

_FORMAT: Final = 2
_CODEC: Final = {"avro.codec": "deflate"}
_ENTRY: Final = manifest_entry_schema_with_data_file(
    format_version=_FORMAT, data_file=data_file_with_partition(format_version=_FORMAT, partition_type=StructType())
)


class ListedManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A list's entry for a manifest: where and how long it is, what it holds, and since which snapshot it is there.

    ``added_by``, ``sequence_number``: of the first snapshot that had the manifest.
    """

    location: str
    size_bytes: int
    added_by: int
    sequence_number: int
    file_count: int
    row_count: int


def manifest_bytes(
    blocks: Sequence[Block], schema: Schema, written: Sequence[Schema], columns: Collection[int] | None
) -> bytes:
    """The manifest of blocks, of which there is at least one.

    ``written``: the schemas that they were written with. ``columns``: of which statistics are given; None: of all.

    Raises:
        NotExpressible: the schema cannot be one of Iceberg's.
        ManifestError: statistics that are not of a column's type.
    """
    by_id = {each.schema_id: each for each in written}
    meta = {
        "schema": json.dumps(schema_json(schema)),
        "schema-id": str(schema.schema_id),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": str(_FORMAT),
        "content": "data",
        **_CODEC,
    }
    entries = [_entry(block, by_id[block.written_with], columns) for block in blocks]
    return _avro(_ENTRY, "manifest_entry", meta, entries)


def list_bytes(
    manifests: Iterable[ListedManifest], *, snapshot: int, parent: int | None, sequence_number: int
) -> bytes:
    """The manifest list of a snapshot."""
    meta = {
        "snapshot-id": str(snapshot),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(sequence_number),
        "format-version": str(_FORMAT),
        **_CODEC,
    }
    entries = [
        ManifestFile.from_args(
            _table_format_version=_FORMAT,
            manifest_path=each.location,
            manifest_length=each.size_bytes,
            partition_spec_id=0,
            content=ManifestContent.DATA,
            sequence_number=each.sequence_number,
            min_sequence_number=each.sequence_number,
            added_snapshot_id=each.added_by,
            added_files_count=each.file_count,
            existing_files_count=0,
            deleted_files_count=0,
            added_rows_count=each.row_count,
            existing_rows_count=0,
            deleted_rows_count=0,
            partitions=[],
        )
        for each in manifests
    ]
    return _avro(MANIFEST_LIST_FILE_SCHEMAS[_FORMAT], "manifest_file", meta, entries)


def read_list(data: bytes) -> list[ListedManifest]:
    """What :func:`list_bytes` wrote."""
    return [
        ListedManifest(
            location=each.manifest_path,
            size_bytes=each.manifest_length,
            added_by=each.added_snapshot_id or 0,
            sequence_number=each.sequence_number,
            file_count=each.added_files_count or 0,
            row_count=each.added_rows_count or 0,
        )
        for each in read_manifest_list(_Given(data))
    ]


def _entry(block: Block, schema: Schema, columns: Collection[int] | None) -> ManifestEntry:
    found = file_statistics(block, schema, columns)
    file = DataFile.from_args(
        _table_format_version=_FORMAT,
        content=DataFileContent.DATA,
        file_path=block.location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=block.row_count,
        file_size_in_bytes=block.file_size,
        value_counts=found.value_counts or None,
        null_value_counts=found.null_value_counts or None,
        nan_value_counts=found.nan_value_counts or None,
        lower_bounds=found.lower_bounds or None,
        upper_bounds=found.upper_bounds or None,
    )
    return ManifestEntry.from_args(
        _table_format_version=_FORMAT, status=ManifestEntryStatus.ADDED, snapshot_id=None, data_file=file
    )


def _avro(schema: Any, name: str, meta: dict[str, str], records: list[Any]) -> bytes:
    """An Avro file with all records in one block; none, if there are none."""
    out = _Kept()
    with AvroOutputFile[Any](output_file=out, file_schema=schema, schema_name=name, metadata=meta) as writer:
        if records:
            writer.write_block(records)
    return out.data


class _Stream(io.BytesIO):
    """Keeps what was written when it is closed."""

    def __init__(self, kept: _Kept) -> None:
        super().__init__()
        self._kept = kept

    def close(self) -> None:
        self._kept.data = self.getvalue()
        super().close()


class _Kept(OutputFile):
    """A file in memory, as pyiceberg writes one."""

    def __init__(self) -> None:
        super().__init__("memory")
        self.data = b""

    def __len__(self) -> int:
        return len(self.data)

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        return _Given(self.data)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002  # pyiceberg's signature
        return _Stream(self)


class _Given(InputFile):
    """A file in memory, as pyiceberg reads one."""

    def __init__(self, data: bytes) -> None:
        super().__init__("memory")
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002  # pyiceberg's signature
        return io.BytesIO(self._data)
