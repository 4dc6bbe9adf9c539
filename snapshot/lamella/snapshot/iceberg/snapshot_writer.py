"""Iceberg snapshots of what Lamella's own writers changed in a table of Iceberg clients. Needs ``lamella[iceberg]``.

New files get a manifest of their own, of the partition spec without fields: a block may have rows of many partitions. A
manifest with files that went is written again, with these marked as deleted; all other manifests stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    ManifestListWriterV2,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.typedef import Record, TableVersion

from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.iceberg.export import data_entry
from lamella.snapshot.iceberg.manifest_entries import (
    ManifestEntries,
    MemoryOutput,
    Read,
    first_row_id,
    is_of_deletes,
    set_first_row_id,
    spec_with_schema,
    whole_entries,
)
from lamella.snapshot.iceberg.metadata import MAIN
from lamella.snapshot.iceberg.table_metadata import (
    WITH_ROW_IDS,
    WRITTEN_VERSIONS,
    Json,
    current_schema,
    current_snapshot,
)
from lamella.snapshot.manifest import Block, Summary
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import normal

_COMPRESSION: Final = "deflate"
#: Types whose partition values the library reads as others.
_NOT_READ_EXACTLY: Final = ("double",)


class WrittenSnapshot(msgspec.Struct, frozen=True):
    """The updates of the commit that adds a snapshot, and the files that it needs, by location."""

    updates: list[Json]
    files: dict[str, bytes]


def write_snapshot(
    metadata: Json,
    manifests: ManifestEntries,
    read: Read,
    *,
    added: Sequence[Block],
    removed: Collection[str],
    schema: Schema,
    total: Summary,
    snapshot_id: int,
    name: Callable[[str], str],
    same_rows: bool,
    now_ms: int,
) -> WrittenSnapshot:
    """Returns the snapshot that follows the current one of ``metadata``.

    ``schema``: of Lamella, with Iceberg's field ids. ``total``: of all blocks afterwards. ``name`` returns an unused
    location for a kind of file. ``same_rows``: the new files have the rows of those that went.

    Raises:
        NotExpressible: the table or a block has no form there.
        ManifestError: a manifest is damaged.
    """
    if metadata["format-version"] not in WRITTEN_VERSIONS:
        raise NotExpressible(f"Lamella does not write tables of format version {metadata['format-version']}")
    version: TableVersion = metadata["format-version"]
    if any(block.constants or block.deletes for block in added):
        raise NotExpressible("a block has constants or deleted rows, which such a table has in other ways")
    parent = current_snapshot(metadata)
    sequence = metadata["last-sequence-number"] + 1
    files: dict[str, bytes] = {}
    updates: list[Json] = []
    spec = next((each for each in metadata["partition-specs"] if not each["fields"]), None)
    if spec is None and added:
        number = max(each["spec-id"] for each in metadata["partition-specs"]) + 1
        spec = {"spec-id": number, "fields": []}
        updates.append({"action": "add-spec", "spec": {"fields": []}})
    described = IcebergSchema.model_validate(current_schema(metadata))
    listed: list[ManifestFile] = []
    counts = [0, 0]
    for manifest in () if parent is None else manifests.listed(parent["manifest-list"], read):
        gone = [
            file
            for file in (() if is_of_deletes(manifest) else manifests.files(manifest, read))
            if normal(file.path) in removed
        ]
        if not gone:
            listed.append(manifest)
            continue
        counts = [counts[0] + len(gone), counts[1] + sum(file.row_count for file in gone)]
        spec_of_it, described_then = _spec_to_rewrite(metadata, manifest.partition_spec_id)
        out = MemoryOutput(name("m"))
        writer = _ManifestWriter(version, spec_of_it, described_then, out, snapshot_id)
        listed.append(_without(manifest, removed, writer, read))
        files[out.location] = out.data
    if counts[0] != len(removed):
        raise NotExpressible("the table's Iceberg metadata does not have all files that were removed")
    if added and spec is not None:
        out = MemoryOutput(name("m"))
        partition_spec = PartitionSpec.model_validate(spec)
        writer = _ManifestWriter(version, partition_spec, described, out, snapshot_id)
        with writer:
            for block in added:
                entry = data_entry(block, Record(), schema, None, version)
                entry.data_file.spec_id = partition_spec.spec_id
                writer.add(entry)
        files[out.location] = out.data
        listed.append(writer.to_manifest_file())
    out = MemoryOutput(name("snap"))
    parent_id = None if parent is None else parent["snapshot-id"]
    next_row_id = metadata["next-row-id"] if version == WITH_ROW_IDS else None
    with _ListWriter(version, out, snapshot_id, parent_id, sequence, next_row_id) as lists:
        lists.add_manifests(listed)
    files[out.location] = out.data
    snapshot: Json = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence,
        "timestamp-ms": now_ms,
        "manifest-list": out.location,
        "schema-id": metadata["current-schema-id"],
        # Rows of new files have new ids, so who knows rows by their ids has to see them come and go.
        "summary": _summary(parent, added, counts, total, same_rows=same_rows and next_row_id is None),
    }
    if parent_id is not None:
        snapshot["parent-snapshot-id"] = parent_id
    if next_row_id is not None and lists.next_row_id is not None:
        snapshot |= {"first-row-id": next_row_id, "added-rows": lists.next_row_id - next_row_id}
    updates += [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": MAIN, "type": "branch", "snapshot-id": snapshot_id},
    ]
    return WrittenSnapshot(updates, files)


def _spec_to_rewrite(metadata: Json, number: int) -> tuple[PartitionSpec, IcebergSchema]:
    """Returns a partition spec of entries that are written again, with its schema.

    Raises:
        NotExpressible: values of the partition cannot be written as they were read.
    """
    spec, described = spec_with_schema(metadata, number)
    if any(str(field.field_type) in _NOT_READ_EXACTLY for field in spec.partition_type(described).fields):
        raise NotExpressible("a partition of doubles cannot be written again exactly")
    return spec, described


def _without(manifest: ManifestFile, removed: Collection[str], writer: _ManifestWriter, read: Read) -> ManifestFile:
    """Write a manifest again, with files marked as deleted. The others have their row ids in their entries from now
    on."""
    with writer:
        for entry in whole_entries(manifest, read.read(manifest.manifest_path)):
            if normal(entry.data_file.file_path) in removed:
                writer.delete(entry)
            else:
                writer.existing(entry)
    return writer.to_manifest_file()


class _ManifestWriter(ManifestWriterV2):
    """Writes manifests of both versions. The library writes only the first, and takes entries without row ids."""

    def __init__(
        self, version: TableVersion, spec: PartitionSpec, schema: IcebergSchema, out: OutputFile, snapshot_id: int
    ) -> None:
        super().__init__(spec, schema, out, snapshot_id, _COMPRESSION)
        self._version = version

    @property
    def version(self) -> TableVersion:
        return self._version

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=self._with_partition(self.version),
            record_schema=self._with_partition(WITH_ROW_IDS),
            schema_name="manifest_entry",
            metadata=self._meta,
        )

    def to_manifest_file(self) -> ManifestFile:
        """Return the list's entry, without row ids: the list gives them."""
        made = super().to_manifest_file()
        return ManifestFile(*(made[at] for at in range(len(made))), None)


class _ListWriter(ManifestListWriterV2):
    """Writes manifest lists of both versions. ``next_row_id``: of the table, None before version 3."""

    def __init__(
        self,
        version: TableVersion,
        out: OutputFile,
        snapshot_id: int,
        parent_id: int | None,
        sequence: int,
        next_row_id: int | None,
    ) -> None:
        super().__init__(out, snapshot_id, parent_id, sequence, _COMPRESSION)
        self._format_version = version
        self._meta["format-version"] = str(version)
        self.next_row_id = next_row_id
        if next_row_id is not None:
            self._meta["first-row-id"] = str(next_row_id)

    def __enter__(self) -> _ListWriter:
        self._writer = AvroOutputFile[ManifestFile](
            output_file=self._output_file,
            record_schema=MANIFEST_LIST_FILE_SCHEMAS[WITH_ROW_IDS],
            file_schema=MANIFEST_LIST_FILE_SCHEMAS[self._format_version],
            schema_name="manifest_file",
            metadata=self._meta,
        )
        self._writer.__enter__()
        return self

    def prepare_manifest(self, manifest_file: ManifestFile) -> ManifestFile:
        """Return the entry. A manifest without row ids gets as many as it has live rows, whatever its entries have."""
        made = super().prepare_manifest(manifest_file)
        if self.next_row_id is None or made.content != ManifestContent.DATA or first_row_id(made) is not None:
            return made
        set_first_row_id(made, self.next_row_id)
        self.next_row_id += (made.added_rows_count or 0) + (made.existing_rows_count or 0)
        return made


def _summary(
    parent: Json | None, added: Iterable[Block], counts: Sequence[int], total: Summary, *, same_rows: bool
) -> dict[str, str]:
    added = list(added)
    gone, gone_rows = counts
    if same_rows:
        operation = "replace"
    elif not gone:
        operation = "append"
    else:
        operation = "overwrite" if added else "delete"
    before = {} if parent is None else parent.get("summary", {})
    deletes = ("total-delete-files", "total-position-deletes", "total-equality-deletes")
    found = {
        "operation": operation,
        "added-data-files": len(added),
        "added-records": sum(block.row_count for block in added),
        "added-files-size": sum(block.file_size for block in added),
        "deleted-data-files": gone,
        "deleted-records": gone_rows,
        "total-data-files": total.block_count,
        "total-records": total.row_count,
        "total-files-size": total.compressed_byte_size,
        **{each: before.get(each, "0") for each in deletes},
        "engine-name": "lamella",
    }
    return {key: str(value) for key, value in found.items()}
