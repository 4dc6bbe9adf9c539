"""The files of a snapshot whose manifests a client wrote, as scan tasks have them. Needs ``lamella[iceberg]``.

Which delete files apply to a data file follows the section "Scan Planning" of Iceberg's specification.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from pyiceberg.conversions import to_json

from lamella.snapshot.errors import InvalidRequest, NotExpressible
from lamella.snapshot.iceberg.manifest_entries import (
    DATA,
    EQUALITY_DELETES,
    POSITION_DELETES,
    ListedFile,
    ManifestEntries,
    Read,
    spec_with_schema,
)
from lamella.snapshot.iceberg.table_metadata import Json
from lamella.snapshot.source.iceberg_deletes import (
    ListedData,
    ListedDeletes,
    deletes_of_data_files,
    partition_key,
)
from lamella.snapshot.source.state import SourceFile
from lamella.snapshot.storage import normal

#: Types whose values JSON has as what they are.
_SAME_IN_JSON: Final = frozenset({"boolean", "int", "long", "float", "double", "string"})
_CONTENTS: Final = {DATA: "data", POSITION_DELETES: "position-deletes", EQUALITY_DELETES: "equality-deletes"}


class PlannedFile(msgspec.Struct, frozen=True):
    """A data file as the JSON of its task, and the positions of its delete files."""

    data_file: bytes
    deletes: tuple[int, ...]


class SnapshotFiles(msgspec.Struct, frozen=True):
    """The data files of a snapshot by their locations, in normal form, and its delete files as JSON.

    ``text_column``: one whose partition values are text in JSON, though they are none: dates, for example; None: there
    is none. ``leaves_out``: a file has no partition values because one of them is null.
    """

    files: Mapping[str, PlannedFile]
    delete_files: tuple[bytes, ...]
    text_column: str | None
    leaves_out: bool


def snapshot_files(
    metadata: Json, snapshot: Json, manifests: ManifestEntries, read: Read, *, nulls: bool = True
) -> SnapshotFiles:
    """Returns the files of a snapshot of a table. ``nulls`` False: files with a null in their partition have an empty
    one.

    Raises:
        ManifestError: a list or a manifest is damaged.
        NotExpressible: a partition value has no form in JSON.
        ObjectNotFound, StoreError: one of them cannot be read.
    """
    specs = _Specs(metadata, nulls=nulls)
    data: list[ListedData] = []
    described: dict[str, bytes] = {}
    deletes: list[ListedDeletes] = []
    delete_files: list[bytes] = []
    for manifest in manifests.listed(snapshot["manifest-list"], read):
        for file in manifests.files(manifest, read):
            partition = partition_key(file.spec_id, file.partition)
            if file.content == DATA:
                location = _location(file.path)
                described[location] = _described(file, specs)
                data.append(ListedData(file.path, SourceFile(location=location), partition, file.sequence))
                continue
            is_equality = file.content == EQUALITY_DELETES
            is_global = is_equality and specs.is_unpartitioned(file.spec_id)
            deletes.append(
                ListedDeletes(
                    location=str(len(delete_files)),  # its position among the delete files
                    format=file.format,
                    sequence=file.sequence,
                    partition=None if is_global else partition,
                    referenced=None if is_equality else file.referenced,
                    row_count=file.row_count,
                    is_equality=is_equality,
                )
            )
            delete_files.append(_described(file, specs))
    applying = deletes_of_data_files(data, deletes)
    return SnapshotFiles(
        files={
            each.file.location: PlannedFile(described[each.file.location], _positions(applying.get(each.path, ())))
            for each in data
        },
        delete_files=tuple(delete_files),
        text_column=specs.text_column,
        leaves_out=specs.leaves_out,
    )


def _location(path: str) -> str:
    """Returns a location in normal form; a path that is none stays, and is no block's."""
    try:
        return normal(path)
    except InvalidRequest:
        return path


def _positions(deletes: Sequence[ListedDeletes]) -> tuple[int, ...]:
    """Returns the positions of delete files. A deletion vector has all rows of the position deletes of its file."""
    has_vector = any(each.is_vector for each in deletes)
    return tuple(int(each.location) for each in deletes if each.is_vector or each.is_equality or not has_vector)


class _Specs:
    """The partition specs of a table."""

    def __init__(self, metadata: Json, *, nulls: bool) -> None:
        self._specs = {each["spec-id"]: each for each in metadata["partition-specs"]}
        self._metadata = metadata
        self._nulls = nulls
        self._types: dict[int, list[Any]] = {}
        self.text_column: str | None = None
        self.leaves_out = False

    def is_unpartitioned(self, spec_id: int) -> bool:
        return all(field["transform"] == "void" for field in self._specs.get(spec_id, {}).get("fields", ()))

    def values(self, spec_id: int, partition: Sequence[Any]) -> list[Any]:
        """Return the partition values in JSON's form. Raises NotExpressible."""
        if not partition:
            return []
        if spec_id not in self._types:
            spec, schema = spec_with_schema(self._metadata, spec_id)
            self._types[spec_id] = [field.field_type for field in spec.partition_type(schema).fields]
            for field, kind in zip(spec.fields, self._types[spec_id], strict=True):
                if str(field.transform) == "identity" and str(kind) not in _SAME_IN_JSON:
                    self.text_column = schema.find_column_name(field.source_id)
        if not self._nulls and None in partition:
            self.leaves_out = True
            return []
        try:
            return [
                None if value is None else to_json(kind, value)
                for kind, value in zip(self._types[spec_id], partition, strict=True)
            ]
        except (ValueError, TypeError, OverflowError) as error:
            raise NotExpressible(f"a partition value has no form in JSON: {error}") from error


def _described(file: ListedFile, specs: _Specs) -> bytes:
    """Returns a file as the specification's ``ContentFile``, without statistics."""
    found: Json = {
        "spec-id": file.spec_id,
        "partition": specs.values(file.spec_id, file.partition),
        "content": _CONTENTS[file.content],
        "file-path": file.path,
        "file-format": file.format.lower(),
        "file-size-in-bytes": file.size_bytes,
        "record-count": file.row_count,
    }
    if file.sort_order_id is not None:
        found["sort-order-id"] = file.sort_order_id
    if file.first_row_id is not None:
        # Iceberg's Java library has the second one after release 1.12; rows inherit it as their last change.
        found |= {"first-row-id": file.first_row_id, "data-sequence-number": file.sequence}
    if file.content == EQUALITY_DELETES:
        found["equality-ids"] = file.equality_ids
    if file.content == POSITION_DELETES:
        position = {
            "referenced-data-file": file.referenced,
            "content-offset": file.offset,
            "content-size-in-bytes": file.length,
        }
        found |= {name: value for name, value in position.items() if value is not None}
    return msgspec.json.encode(found)
