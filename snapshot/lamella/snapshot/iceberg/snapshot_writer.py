"""Iceberg snapshots of what Lamella's own writers changed in a table of Iceberg clients. Needs ``lamella[iceberg]``.

New files get a manifest of their own, of the partition spec without fields: a block may have rows of many partitions. A
manifest with files that went is written again, with these marked as deleted; all other manifests stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import msgspec
from pyiceberg.io import InputFile
from pyiceberg.manifest import ManifestFile, write_manifest, write_manifest_list
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.typedef import Record

from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.iceberg.export import data_entry
from lamella.snapshot.iceberg.manifest_entries import ManifestEntries, MemoryFile, MemoryOutput, Read, is_of_deletes
from lamella.snapshot.iceberg.metadata import MAIN
from lamella.snapshot.iceberg.table_metadata import Json, current_schema, current_snapshot
from lamella.snapshot.manifest import Block, Summary
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import normal

#: The format version of tables that Lamella's own writers may change.
FORMAT_VERSION: Final = 2
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
    if metadata["format-version"] != FORMAT_VERSION:
        raise NotExpressible(f"Lamella writes tables of format version {FORMAT_VERSION}")
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
        listed.append(_without(manifest, removed, metadata, described, snapshot_id, name, read, files))
    if counts[0] != len(removed):
        raise NotExpressible("the table's Iceberg metadata does not have all files that were removed")
    if added and spec is not None:
        out = MemoryOutput(name("m"))
        partition_spec = PartitionSpec.model_validate(spec)
        with write_manifest(FORMAT_VERSION, partition_spec, described, out, snapshot_id, _COMPRESSION) as writer:
            for block in added:
                entry = data_entry(block, Record(), schema, None)
                entry.data_file.spec_id = partition_spec.spec_id
                writer.add(entry)
        files[out.location] = out.data
        listed.append(writer.to_manifest_file())
    out = MemoryOutput(name("snap"))
    parent_id = None if parent is None else parent["snapshot-id"]
    with write_manifest_list(FORMAT_VERSION, out, snapshot_id, parent_id, sequence, _COMPRESSION) as lists:
        lists.add_manifests(listed)
    files[out.location] = out.data
    snapshot: Json = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence,
        "timestamp-ms": now_ms,
        "manifest-list": out.location,
        "schema-id": metadata["current-schema-id"],
        "summary": _summary(parent, added, counts, total, same_rows=same_rows),
    }
    if parent_id is not None:
        snapshot["parent-snapshot-id"] = parent_id
    updates += [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": MAIN, "type": "branch", "snapshot-id": snapshot_id},
    ]
    return WrittenSnapshot(updates, files)


def _without(
    manifest: ManifestFile,
    removed: Collection[str],
    metadata: Json,
    described: IcebergSchema,
    snapshot_id: int,
    name: Callable[[str], str],
    read: Read,
    files: dict[str, bytes],
) -> ManifestFile:
    """Write a manifest again, with files marked as deleted."""
    spec = PartitionSpec.model_validate(
        next(each for each in metadata["partition-specs"] if each["spec-id"] == manifest.partition_spec_id)
    )
    try:
        types = [str(field.field_type) for field in spec.partition_type(described).fields]
    except ValueError as error:
        raise NotExpressible(f"a manifest is of a partition spec whose column was dropped: {error}") from error
    if any(each in _NOT_READ_EXACTLY for each in types):
        raise NotExpressible("a partition of doubles cannot be written again exactly")
    out = MemoryOutput(name("m"))
    source: Any = _Source(read.read(manifest.manifest_path))
    with write_manifest(FORMAT_VERSION, spec, described, out, snapshot_id, _COMPRESSION) as writer:
        for entry in manifest.fetch_manifest_entry(source):
            entry.data_file.spec_id = spec.spec_id
            if normal(entry.data_file.file_path) in removed:
                writer.delete(entry)
            else:
                writer.existing(entry)
    files[out.location] = out.data
    return writer.to_manifest_file()


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


class _Source:
    """The part of pyiceberg's FileIO that reading a manifest uses."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def new_input(self, _: str) -> InputFile:
        return MemoryFile(self._data)
