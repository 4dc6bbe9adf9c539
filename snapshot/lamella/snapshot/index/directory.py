"""Directories: find the part of an index that covers a block, and the row in it.

A directory is an Arrow file with one row per block, sorted by block key; its metadata contains the list of parts. An
index has a few of them: a build adds one, and small ones are merged, so that an index of a million blocks is not
rewritten for every thousand new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.errors import ManifestError, UnsupportedFormat
from lamella.snapshot.index.part import PartRef
from lamella.snapshot.manifest.block_key import BlockKeys

DIRECTORY_FORMAT: Final = 1
_FORMAT: Final = b"lamella.format_version"
_PARTS: Final = b"lamella.parts"
_NAMES: Final = ("key.high", "key.low", "part", "row")
#: Created once: two threads that decode a struct for the first time at once crash the process (msgspec 0.22).
_PART_REFS: Final = msgspec.json.Decoder(tuple[PartRef, ...])
Numbers = npt.NDArray[np.int64]


class Addition(NamedTuple):
    """Parts to add to an index, each with the keys of its blocks in order."""

    index_id: str
    parts: tuple[tuple[PartRef, BlockKeys], ...]


class Directory:
    """Sorted block keys, with the number of each block's part in ``parts`` and its row there."""

    def __init__(self, parts: Sequence[PartRef], keys: BlockKeys, part: Numbers, row: Numbers) -> None:
        self.parts = tuple(parts)
        self.keys = keys
        self.part = part
        self.row = row
        self._high = keys[:, 0]

    @classmethod
    def of(cls, parts: Sequence[tuple[PartRef, BlockKeys]]) -> Directory:
        """Builds the directory of parts, given the keys of their blocks in order; of two entries for a block the later
        one wins."""
        keys = np.concatenate([keys for _, keys in parts]) if parts else np.zeros((0, 2), dtype=np.uint64)
        part = np.concatenate([np.full(len(keys), number) for number, (_, keys) in enumerate(parts)] or [_none()])
        row = np.concatenate([np.arange(len(keys)) for _, keys in parts] or [_none()])
        return cls._latest([ref for ref, _ in parts], keys, part, row)

    @classmethod
    def merged(cls, directories: Sequence[Directory]) -> Directory:
        """Merges the entries of several directories; later ones win for blocks that occur in more than one. Parts
        without entries are dropped."""
        parts: list[PartRef] = []
        shifted = []
        for directory in directories:
            shifted.append(directory.part + len(parts))
            parts += directory.parts
        found = cls._latest(
            parts,
            np.concatenate([directory.keys for directory in directories]),
            np.concatenate(shifted),
            np.concatenate([directory.row for directory in directories]),
        )
        return found.where(np.ones(len(found), dtype=bool))

    @classmethod
    def _latest(cls, parts: Sequence[PartRef], keys: BlockKeys, part: Numbers, row: Numbers) -> Directory:
        order = np.lexsort((np.arange(len(keys)), keys[:, 1], keys[:, 0]))
        keys, part, row = keys[order], part[order], row[order]
        is_last = np.ones(len(keys), dtype=bool)
        is_last[:-1] = (keys[1:] != keys[:-1]).any(axis=1)
        return cls(parts, keys[is_last], part[is_last], row[is_last])

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, keys: BlockKeys) -> tuple[Numbers, Numbers]:
        """Returns the part of each block (-1: none), and the row in it."""
        part = np.full(len(keys), -1, dtype=np.int64)
        row = np.zeros(len(keys), dtype=np.int64)
        at, open_ = self._first(keys)
        # Usually one iteration; more if files at the same location are known, one of which replaced another.
        while len(open_):
            found = self.keys[at, 1] == keys[open_, 1]
            part[open_[found]] = self.part[at[found]]
            row[open_[found]] = self.row[at[found]]
            at, open_ = at[~found] + 1, open_[~found]
            same = np.zeros(len(at), dtype=bool)
            inside = at < len(self)
            same[inside] = self._high[at[inside]] == keys[open_[inside], 0]
            at, open_ = at[same], open_[same]
        return part, row

    def has_location(self, keys: BlockKeys) -> npt.NDArray[np.bool_]:
        """Returns for each block whether there is an entry of a file at its location, of whatever content."""
        found = np.zeros(len(keys), dtype=bool)
        found[self._first(keys)[1]] = True
        return found

    def _first(self, keys: BlockKeys) -> tuple[Numbers, Numbers]:
        """Returns the first entry with the location of a block, and the number of the block, for blocks that have
        one."""
        at = np.searchsorted(self._high, keys[:, 0])
        inside = at < len(self)
        same = np.zeros(len(keys), dtype=bool)
        same[inside] = self._high[at[inside]] == keys[inside, 0]
        return at[same], np.flatnonzero(same)

    def where(self, mask: npt.NDArray[np.bool_]) -> Directory:
        """Returns the entries for which ``mask`` is true, and the parts they refer to."""
        used, renumbered = np.unique(self.part[mask], return_inverse=True)
        return Directory(
            [self.parts[number] for number in used.tolist()],
            self.keys[mask],
            renumbered.astype(np.int64),
            self.row[mask],
        )

    def entries(self, number: int) -> tuple[BlockKeys, Numbers]:
        """Returns the blocks that this directory assigns to a part: keys and rows, by row."""
        mine = np.flatnonzero(self.part == number)
        mine = mine[np.argsort(self.row[mine], kind="stable")]
        return self.keys[mine], self.row[mine]

    def to_bytes(self) -> bytes:
        """Returns the directory as it is stored."""
        arrays: Mapping[str, npt.NDArray[Any]] = dict(
            zip(_NAMES, (self.keys[:, 0], self.keys[:, 1], self.part, self.row), strict=True)
        )
        metadata = {_FORMAT: str(DIRECTORY_FORMAT).encode(), _PARTS: msgspec.json.encode(self.parts)}
        types = (pa.uint64(), pa.uint64(), pa.uint32(), pa.uint32())
        schema = pa.schema(
            [pa.field(name, kind, nullable=False) for name, kind in zip(_NAMES, types, strict=True)], metadata=metadata
        )
        columns = [
            pa.array(np.ascontiguousarray(array).astype(kind.to_pandas_dtype()))
            for array, kind in zip(arrays.values(), types, strict=True)
        ]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.record_batch(columns, schema=schema))
        return bytes(sink.getvalue())

    @classmethod
    def read(cls, data: bytes | memoryview, location: str = "directory") -> Directory:
        """Reads a directory written by :meth:`to_bytes`; raises ManifestError, UnsupportedFormat."""
        try:
            reader = pa.ipc.open_file(pa.BufferReader(data))
            batch = reader.get_batch(0)
            metadata = batch.schema.metadata or {}
            version = int(metadata.get(_FORMAT, b"0"))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ManifestError(f"{location} is not the directory of an index: {error}", location=location) from error
        if version > DIRECTORY_FORMAT:
            raise UnsupportedFormat(f"{location} has format {version}", location=location)
        if batch.schema.names != list(_NAMES):
            raise ManifestError(f"{location} is not the directory of an index", location=location)
        try:
            parts = _PART_REFS.decode(metadata.get(_PARTS, b""))
        except msgspec.DecodeError as error:
            raise ManifestError(f"{location}: {error}", location=location) from error
        high, low, part, row = (
            np.frombuffer(column.buffers()[1], dtype=_dtype(column))[: len(column)] for column in batch.columns
        )
        keys = np.stack([high, low], axis=1)
        if len(part) and int(part.max()) >= len(parts):
            raise ManifestError(f"{location} refers to a part that it does not have", location=location)
        return cls(parts, keys, part.astype(np.int64), row.astype(np.int64))

    @property
    def size_bytes(self) -> int:
        """Returns the approximate memory of the directory in bytes."""
        return self.keys.nbytes + self._high.nbytes + self.part.nbytes + self.row.nbytes + 400 * len(self.parts)


class DirectoryEntries(NamedTuple):
    """The entries of some blocks in several directories: the parts, and for each block the number of its part (-1:
    none) and its row there. ``has_location``: a file at the block's location is known, of whatever content."""

    parts: list[PartRef]
    number: Numbers
    row: Numbers
    has_location: npt.NDArray[np.bool_]


def find_entries(directories: Sequence[Directory], keys: BlockKeys) -> DirectoryEntries:
    """Looks blocks up in the directories of an index, oldest first; the last directory that has a block wins."""
    parts: list[PartRef] = []
    number = np.full(len(keys), -1, dtype=np.int64)
    row = np.zeros(len(keys), dtype=np.int64)
    has_location = np.zeros(len(keys), dtype=bool)
    for directory in reversed(directories):
        open_ = np.flatnonzero(number < 0)
        part, at = directory.find(keys[open_])
        known = part >= 0
        number[open_[known]] = part[known] + len(parts)
        row[open_[known]] = at[known]
        has_location |= directory.has_location(keys)
        parts += directory.parts
    return DirectoryEntries(parts, number, row, has_location)


def _dtype(column: Any) -> str:
    return str(column.type)


def _none() -> Numbers:
    return np.zeros(0, dtype=np.int64)
