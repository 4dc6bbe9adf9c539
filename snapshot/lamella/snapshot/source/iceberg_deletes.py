"""Delete files of an Iceberg table, and the data files that they apply to.

Deletion vectors are used where they are. Position deletes are read, and become a vector of each data file. Equality
deletes are not applied: a data file that one of them may apply to is refused. The rules are those of the section "Scan
Planning" of Iceberg's specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.deletes import MAX_VECTOR_BYTES, Positions, encode_vector, union
from lamella.snapshot.errors import CorruptDeletes, InvalidRequest, LamellaError
from lamella.snapshot.manifest import DeleteFile
from lamella.snapshot.parquet.footer import StoreFile
from lamella.snapshot.source.state import SourceFile
from lamella.snapshot.storage import AllowedLocations, Store
from lamella.snapshot.wire import RefusedFile

#: The id of a partition spec, and the values as text.
Partition = tuple[Any, ...]

_WORKERS: Final = 8
_COMPACT: Final = "; compact the table"


def partition_key(spec_id: int, values: Sequence[Any]) -> Partition:
    """Returns a key that is equal for files of one partition, NaN and zeros of either sign included."""
    return spec_id, *(repr(value + 0.0 if isinstance(value, float) else value) for value in values)


class ListedData(msgspec.Struct, frozen=True):
    """A data file. ``path``: as the metadata has it; ``sequence``: of its data, None if the format has none."""

    path: str
    file: SourceFile
    partition: Partition
    sequence: int | None


class ListedDeletes(msgspec.Struct, frozen=True, kw_only=True):
    """A delete file. ``partition``: None if it applies to all. ``referenced``: the only data file that it applies to.

    ``offset`` and ``length``: of a deletion vector. ``is_equality``: it has values instead of positions.
    """

    location: str
    format: str
    sequence: int | None
    partition: Partition | None
    referenced: str | None = None
    offset: int | None = None
    length: int | None = None
    row_count: int
    is_equality: bool = False

    @property
    def is_vector(self) -> bool:
        """Returns whether it is a deletion vector."""
        return self.format == "PUFFIN"

    def may_apply(self, data: ListedData) -> bool:
        """Returns whether rows of a data file may be deleted by it."""
        if self.referenced is not None and self.referenced != data.path:
            return False
        # Equality deletes do not apply to data of the same commit.
        if (
            self.sequence is not None
            and data.sequence is not None
            and data.sequence > self.sequence - int(self.is_equality)
        ):
            return False
        # A file that names its data file is looked at whatever the partition is: nothing may be overlooked.
        return self.referenced is not None or self.partition in (None, data.partition)


def without_deleted_rows(
    store: Store, data: Sequence[ListedData], deletes: Sequence[ListedDeletes], allowed: AllowedLocations
) -> Iterator[SourceFile | RefusedFile]:
    """Yields the data files with their deleted rows, or why these are unknown, in the order of ``data``.

    Raises:
        StoreError: storage failed.
    """
    applying = deletes_of_data_files(data, deletes)
    used = {each.location: each for entries in applying.values() for each in entries if _is_list(each)}
    lists = dict(zip(used, _read(store, list(used.values()), allowed), strict=True))
    for each in data:
        entries = applying.get(each.path, [])
        try:
            yield _with_deletes(each, entries, lists, allowed) if entries else each.file
        except LamellaError as error:
            yield RefusedFile(path=each.file.location, code=error.code, reason=error.message)


def _is_list(entry: ListedDeletes) -> bool:
    return not entry.is_equality and not entry.is_vector


def deletes_of_data_files(
    data: Sequence[ListedData], deletes: Sequence[ListedDeletes]
) -> dict[str, list[ListedDeletes]]:
    """Returns the delete files that may apply to each data file, by path."""
    by_path: dict[str, list[ListedDeletes]] = {}
    by_partition: dict[Partition | None, list[ListedDeletes]] = {}
    for entry in deletes:
        if entry.referenced is not None:
            by_path.setdefault(entry.referenced, []).append(entry)
        else:
            by_partition.setdefault(entry.partition, []).append(entry)
    found: dict[str, list[ListedDeletes]] = {}
    for each in data:
        candidates = [
            *by_path.get(each.path, ()),
            *by_partition.get(each.partition, ()),
            *by_partition.get(None, ()),
        ]
        chosen = [entry for entry in candidates if entry.may_apply(each)]
        if chosen:
            found[each.path] = chosen
    return found


def _with_deletes(
    data: ListedData,
    entries: Sequence[ListedDeletes],
    lists: Mapping[str, Mapping[str, Positions] | LamellaError],
    allowed: AllowedLocations,
) -> SourceFile:
    for entry in entries:
        if entry.is_equality:
            raise InvalidRequest(f"{entry.location} has equality deletes that may apply to it{_COMPACT}")
    vectors = [entry for entry in entries if entry.is_vector]
    if len(vectors) > 1:
        raise InvalidRequest(f"it has {len(vectors)} deletion vectors")
    if vectors:  # it has all rows of earlier position deletes
        return msgspec.structs.replace(data.file, deletes=(_vector(data, vectors[0], allowed),))
    parts = []
    for entry in entries:
        found = lists[entry.location]
        if isinstance(found, LamellaError):
            raise found
        if data.path in found:
            parts.append(found[data.path])
    if not parts:
        return data.file
    positions = union(parts)
    return msgspec.structs.replace(data.file, vector=encode_vector(positions), cardinality=len(positions))


def _vector(data: ListedData, entry: ListedDeletes, allowed: AllowedLocations) -> DeleteFile:
    if entry.offset is None or entry.length is None or entry.offset < 0 or not 0 < entry.length <= MAX_VECTOR_BYTES:
        raise InvalidRequest(f"the deletion vector in {entry.location} has {entry.length} bytes from {entry.offset} on")
    if entry.referenced is None or entry.partition not in (None, data.partition):
        raise InvalidRequest(f"the deletion vector in {entry.location} names no data file, or one of another partition")
    allowed.require(entry.location)
    return DeleteFile(
        kind="deletion_vector",
        location=entry.location,
        offset=entry.offset,
        length=entry.length,
        cardinality=entry.row_count,
    )


def _read(
    store: Store, entries: Sequence[ListedDeletes], allowed: AllowedLocations
) -> Iterable[Mapping[str, Positions] | LamellaError]:
    """Yields the positions of each list by data file, or why it cannot be read."""

    def one(entry: ListedDeletes) -> Mapping[str, Positions] | LamellaError:
        try:
            if entry.format != "PARQUET":
                raise InvalidRequest(
                    f"{entry.location} deletes rows of it, and is {entry.format}, not Parquet{_COMPACT}"
                )
            allowed.require(entry.location)
            return _positions(store, entry.location)
        except LamellaError as error:
            return error

    if not entries:
        return []
    with ContextThreadPool(min(_WORKERS, len(entries)), thread_name_prefix="deletes") as pool:
        return list(pool.map(one, entries))


def _positions(store: Store, location: str) -> Mapping[str, Positions]:
    """Returns the positions of a file of position deletes, by the paths of data files."""
    try:
        with StoreFile(store, store.stat(location)) as opened, pq.ParquetFile(opened) as file:
            rows = file.read(columns=["file_path", "pos"]).combine_chunks()
        paths, positions = rows.column("file_path").cast(pa.large_string()), rows.column("pos").cast(pa.int64())
    except (pa.ArrowException, KeyError) as error:
        raise CorruptDeletes(f"{location} is not a list of deleted rows: {error}", location=location) from error
    if paths.null_count or positions.null_count:
        raise CorruptDeletes(f"{location} deletes rows without a path or position", location=location)
    if not len(rows):
        return {}
    encoded = paths.combine_chunks().dictionary_encode()
    codes, values = encoded.indices.to_numpy(), positions.to_numpy()
    if (values < 0).any():
        raise CorruptDeletes(f"{location} has a negative position", location=location)
    order = np.lexsort((values, codes))
    stops = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)))
    parts = np.split(values[order], stops[:-1])
    return {path: np.unique(part) for path, part in zip(encoded.dictionary.to_pylist(), parts, strict=True)}
