"""Manifest lists and manifests that Iceberg's writers wrote, read by pyiceberg. Needs ``lamella[iceberg]``.

Only what a scan needs is kept of an entry: statistics are those of the files' footers.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any, Final, NamedTuple

import msgspec
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from lamella.snapshot.errors import ManifestError, NotExpressible
from lamella.snapshot.iceberg.table_metadata import Json, current_schema, ids_of


class Read(NamedTuple):
    """How files are read: ``read`` returns a whole one, ``require`` raises if one may not be read."""

    read: Callable[[str], bytes]
    require: Callable[[str], None]


_ADDED: Final = 1
_DELETED: Final = 2
#: Contents of a file.
DATA: Final = 0
POSITION_DELETES: Final = 1
EQUALITY_DELETES: Final = 2

_ENTRY: Final = MANIFEST_ENTRY_SCHEMAS[3]
_STATUS, _SNAPSHOT, _SEQUENCE, _FILE_SEQUENCE, _FILE_AT = (
    next(at for at, field in enumerate(_ENTRY.fields) if field.name == name)
    for name in ("status", "snapshot_id", "sequence_number", "file_sequence_number", "data_file")
)
#: A list's entry as format version 3 has it; the library reads only what version 2 has.
_LISTED: Final = MANIFEST_LIST_FILE_SCHEMAS[3]
_FIRST_ROW_ID: Final = next(at for at, field in enumerate(_LISTED.fields) if field.name == "first_row_id")
_POSITIONS: Final = {field.name: at for at, field in enumerate(DATA_FILE_TYPE[3].fields)}
#: What the library raises for damaged files.
_DAMAGED: Final = (ValueError, EOFError, IndexError, TypeError, KeyError, OverflowError, AttributeError)


class ListedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A live entry of a manifest. ``path`` and ``format`` as the manifest has them; ``sequence``: of its data.

    ``referenced``, ``offset``, ``length``: of a file of deleted rows, the data file and the place of its vector.
    ``first_row_id``: of a data file, the id of its first row; None before format version 3.
    """

    path: str
    format: str
    content: int
    size_bytes: int
    row_count: int
    spec_id: int
    partition: tuple[Any, ...]
    sequence: int | None
    equality_ids: tuple[int, ...] = ()
    sort_order_id: int | None = None
    referenced: str | None = None
    offset: int | None = None
    length: int | None = None
    first_row_id: int | None = None


class ManifestEntries:
    """Reads manifests, and remembers those that were read last: they never change.

    ``max_files``: of all manifests that are remembered.
    """

    def __init__(self, max_files: int = 100_000) -> None:
        self._max_files = max_files
        self._lock = Lock()
        self._known: dict[str, tuple[ListedFile, ...]] = {}

    def listed(self, manifest_list: str, read: Read) -> list[ManifestFile]:
        """Returns the manifests of a list. Raises ManifestError if it is damaged."""
        read.require(manifest_list)
        data = read.read(manifest_list)
        try:
            return list(_read_list(data))
        except _DAMAGED as error:
            raise ManifestError(f"{manifest_list} is no manifest list: {error}", location=manifest_list) from error

    def files(self, manifest: ManifestFile, read: Read) -> tuple[ListedFile, ...]:
        """Returns the live entries of a manifest. Raises ManifestError if it is damaged.

        Whether it may be read is checked first, also if it is remembered: another table may have named it then.

        What an entry inherits of the list's is the same in every list: a list names the snapshot that added it. But row
        ids are missing in lists from before the table had any.
        """
        read.require(manifest.manifest_path)
        inherited = manifest.sequence_number, manifest.partition_spec_id, first_row_id(manifest)
        key = f"{manifest.manifest_path} {inherited}"
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known[key] = self._known.pop(key)  # the one used last is at the end
                return found
        data = read.read(manifest.manifest_path)
        try:
            found = tuple(_live(manifest, data))
        except _DAMAGED as error:
            location = manifest.manifest_path
            raise ManifestError(f"{location} is no manifest: {error}", location=location) from error
        with self._lock:
            self._known[key] = found
            while len(self._known) > 1 and sum(map(len, self._known.values())) > self._max_files:
                del self._known[next(iter(self._known))]
        return found


def is_of_deletes(manifest: ManifestFile) -> bool:
    """Returns whether a manifest lists delete files."""
    return manifest.content == ManifestContent.DELETES


def spec_with_schema(metadata: Json, number: int) -> tuple[PartitionSpec, Schema]:
    """Returns a partition spec, and the newest schema that has its columns: one may have been dropped since.

    Raises:
        ManifestError: the table has no such spec.
        NotExpressible: no schema of the table has them any more.
    """
    found = next((each for each in metadata["partition-specs"] if each["spec-id"] == number), None)
    if found is None:
        raise ManifestError(f"the table has no partition spec {number}")
    spec = PartitionSpec.model_validate(found)
    wanted = {field.source_id for field in spec.fields}
    for schema in (current_schema(metadata), *reversed(metadata["schemas"])):
        if wanted.issubset(ids_of(schema)):
            return spec, Schema.model_validate(schema)
    raise NotExpressible(f"no schema of the table has the columns of the partition spec {number}")


def first_row_id(manifest: ManifestFile) -> int | None:
    """Returns the id of the first row in a manifest's files that have none of their own; None: they have no row ids."""
    found: int | None = manifest[_FIRST_ROW_ID]
    return found


def set_first_row_id(manifest: ManifestFile, number: int) -> None:
    """Set what :func:`first_row_id` returns."""
    manifest[_FIRST_ROW_ID] = number


def _read_list(data: bytes) -> Iterator[ManifestFile]:
    with AvroFile[ManifestFile](
        MemoryFile(data),
        _LISTED,
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as records:
        yield from records


class RowIds:
    """Numbers the rows of a manifest's data files, by the section "First Row ID Inheritance" of the specification.

    ``first``: :func:`first_row_id` of the manifest. Live entries are counted in their order.
    """

    def __init__(self, first: int | None) -> None:
        self._next = first

    def of(self, own: int | None, row_count: int) -> int | None:
        """Returns the id of the first row of the next file; ``own``: the one that its entry has."""
        if self._next is None:
            return None
        if own is not None:
            return own
        self._next += row_count
        return self._next - row_count


def _live(manifest: ManifestFile, data: bytes) -> Iterator[ListedFile]:
    at = _POSITIONS
    ids = RowIds(first_row_id(manifest))
    with AvroFile[Any](MemoryFile(data), _ENTRY) as records:
        for record in records:
            status, sequence, file = record[_STATUS], record[_SEQUENCE], record[_FILE_AT]
            if status == _DELETED:
                continue
            if sequence is None and (manifest.sequence_number == 0 or status == _ADDED):
                sequence = manifest.sequence_number
            partition = file[at["partition"]]
            yield ListedFile(
                path=file[at["file_path"]],
                format=str(file[at["file_format"]]).upper(),
                content=file[at["content"]] or DATA,
                size_bytes=file[at["file_size_in_bytes"]],
                row_count=file[at["record_count"]],
                spec_id=manifest.partition_spec_id,
                partition=() if partition is None else tuple(partition[i] for i in range(len(partition))),
                sequence=sequence,
                equality_ids=tuple(file[at["equality_ids"]] or ()),
                sort_order_id=file[at["sort_order_id"]],
                referenced=file[at["referenced_data_file"]],
                offset=file[at["content_offset"]],
                length=file[at["content_size_in_bytes"]],
                first_row_id=ids.of(file[at["first_row_id"]], file[at["record_count"]]),
            )


def whole_entries(manifest: ManifestFile, data: bytes) -> list[ManifestEntry]:
    """Returns the live entries of a manifest with all members that format version 3 has, and what they inherit."""
    at, ids = _POSITIONS["first_row_id"], RowIds(first_row_id(manifest))
    found = []
    with AvroFile[ManifestEntry](
        MemoryFile(data),
        _ENTRY,
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as records:
        for entry in records:
            if entry.status == ManifestEntryStatus.DELETED:
                continue
            file = entry.data_file
            file.spec_id = manifest.partition_spec_id
            file[at] = ids.of(file[at], file.record_count)
            if entry.snapshot_id is None:
                entry[_SNAPSHOT] = manifest.added_snapshot_id
            if manifest.sequence_number == 0 or entry.status == ManifestEntryStatus.ADDED:
                for number in (_SEQUENCE, _FILE_SEQUENCE):
                    if entry[number] is None:
                        entry[number] = manifest.sequence_number
            found.append(entry)
    return found


class MemoryFile(InputFile):
    """A file in memory, for pyiceberg to read."""

    def __init__(self, data: bytes) -> None:
        super().__init__("memory")
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002  # pyiceberg's signature
        return io.BytesIO(self._data)


class _Stream(io.BytesIO):
    """Keeps its content when it is closed."""

    def __init__(self, out: MemoryOutput) -> None:
        super().__init__()
        self._out = out

    def close(self) -> None:
        if not self.closed:
            self._out.data = self.getvalue()
        super().close()


class MemoryOutput(OutputFile):
    """A file in memory, for pyiceberg to write."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.data = b""

    def __len__(self) -> int:
        return len(self.data)

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        return MemoryFile(self.data)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002  # pyiceberg's signature
        return _Stream(self)
