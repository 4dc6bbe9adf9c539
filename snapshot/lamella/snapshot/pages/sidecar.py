"""The page sidecar of a segment: the cells of all its blocks and columns in one object.

::

    8 bytes  LAMELPG1       8 bytes  length of the directory       32 bytes  SHA-256 of the directory
    directory (MessagePack)
    cells, column after column, in each block after block; the directory has their sizes and checksums

A reader fetches the directory once, and then only the cells of the columns and blocks that it needs. The sidecar is
derived: it can be deleted and rebuilt at any time, and no manifest refers to it. It is bound to the segment by the hash
of the segment's manifest, which contains the hash of each file's footer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.sidecar import widened_zones
from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import LamellaError, ManifestError, UnsupportedFormat
from lamella.snapshot.manifest import Block
from lamella.snapshot.pages.build import KnownBlock, group_rows, read_block_footer, read_cells, why
from lamella.snapshot.pages.cell import Cell, Numbers, decode, encode, pack, unpack
from lamella.snapshot.schema import DataType, Schema, parse_type
from lamella.snapshot.storage.store import Store

MAGIC: Final = b"LAMELPG1"
VERSION: Final = 1
#: Bytes of the first request for a sidecar; the directory of 1,000 blocks and 20 columns fits.
FIRST_BYTES: Final = 384 << 10
#: A longer directory is refused: about 1,000 blocks of 10,000 columns fit.
MAX_DIRECTORY_BYTES: Final = 128 << 20
#: Cells closer to each other than this are read by one request.
GAP_BYTES: Final = 64 << 10

_HEADER_BYTES: Final = 48
_CHECK_BYTES: Final = 8


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """A block: its row groups' rows, its content id, or why it has no cells."""

    group_rows: tuple[int, ...]
    content_id: str | None
    reason: str | None


class _Column(msgspec.Struct, frozen=True, array_like=True):
    """A column: the sizes of its cells (0: none), block by block, and their checksums one after another."""

    column_id: int
    dtype: str
    sizes: bytes
    checks: bytes


class _Directory(msgspec.Struct, frozen=True):
    version: int
    segment_id: str
    manifest_sha256: str
    blocks: tuple[_Entry, ...]
    columns: tuple[_Column, ...]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Directory)


class Ranges(Protocol):
    """The source of a sidecar's bytes: a store, or the bytes themselves."""

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Returns some bytes of an object, as :class:`~lamella.snapshot.storage.store.Store`."""
        ...


class PageSidecar:
    """A readable page sidecar: its directory."""

    def __init__(self, store: Ranges, location: str, segment_id: str, manifest_sha256: str) -> None:
        """Fetch the directory of the sidecar at ``location`` of this segment.

        Raises:
            ObjectNotFound, StoreError: as the store.
            ManifestError, UnsupportedFormat: not a page sidecar, or one of another segment.
        """
        self._store = store
        self._location = location
        first = store.read_range(location, 0, FIRST_BYTES)
        if len(first) < _HEADER_BYTES or first[:8] != MAGIC:
            raise ManifestError(f"{location} is not a page sidecar")
        length = int.from_bytes(first[8:16], "little")
        if length > MAX_DIRECTORY_BYTES:
            raise ManifestError(f"{location} has a directory of {length} bytes")
        end = _HEADER_BYTES + length
        data = first[_HEADER_BYTES:end]
        if end > FIRST_BYTES:
            data += store.read_range(location, FIRST_BYTES, end - FIRST_BYTES)
        if hashlib.sha256(data).digest() != first[16:48]:
            raise ManifestError(f"the directory of {location} is damaged")
        try:
            directory = _DECODER.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ManifestError(f"the directory of {location} cannot be decoded: {error}") from error
        if directory.version > VERSION:
            raise UnsupportedFormat(f"{location} has format version {directory.version}")
        if (directory.segment_id, directory.manifest_sha256) != (segment_id, manifest_sha256):
            raise ManifestError(f"{location} belongs to another segment")
        self._blocks = directory.blocks
        self._columns: dict[int, tuple[str, Numbers, Numbers, bytes]] = {}
        at = end
        for column in directory.columns:
            sizes = unpack(column.sizes, len(self._blocks))
            if len(column.checks) != _CHECK_BYTES * len(self._blocks):
                raise ManifestError(f"the directory of {location} contradicts itself")
            offsets = at + np.cumsum(sizes) - sizes
            self._columns[column.column_id] = (column.dtype, offsets, sizes, column.checks)
            at += int(sizes.sum())
        self.size_bytes = 200 + 2 * length + 24 * len(self._blocks) * len(self._columns)

    def __len__(self) -> int:
        return len(self._blocks)

    def block(self, block: int) -> tuple[tuple[int, ...], str | None, str | None]:
        """Returns of a block its row groups' rows, its file's content id at registration, and why it has no cells."""
        entry = self._blocks[block]
        return entry.group_rows, entry.content_id, entry.reason

    def has(self, column_id: int) -> bool:
        """Returns whether it has cells of the column."""
        return column_id in self._columns

    @property
    def column_types(self) -> dict[int, str]:
        """Returns the columns that it was built for, in order, with their types at that time."""
        return {column_id: column[0] for column_id, column in self._columns.items()}

    def cells(self, column_id: int, dtype: DataType, blocks: Sequence[int]) -> list[Cell | None]:
        """Returns a column's cells of some blocks (ascending), None for those without; reads only these.

        ``dtype`` is the column's current type; it may have been widened since the sidecar was built.

        Raises:
            ObjectNotFound, StoreError: as the store.
            ManifestError: the bytes differ from those that were written.
        """
        built_for = self._columns[column_id][0]
        found: list[Cell | None] = []
        for data in self._raw(column_id, blocks):
            if not data:
                found.append(None)
                continue
            cell = decode(data, parse_type(built_for))
            if built_for != str(dtype) and cell.zones is not None:
                zones = widened_zones(cell.zones, parse_type(built_for), dtype)
                cell = msgspec.structs.replace(cell, zones=zones)
            found.append(cell)
        return found

    def _raw(self, column_id: int, blocks: Sequence[int]) -> list[bytes]:
        """Returns a column's stored cells of some blocks (ascending), empty for those without."""
        _, offsets, sizes, checks = self._columns[column_id]
        raw = _read_parts(self._store, self._location, [(int(offsets[b]), int(sizes[b])) for b in blocks])
        for block, data in zip(blocks, raw, strict=True):
            if sizes[block] and _check(data) != checks[block * _CHECK_BYTES : (block + 1) * _CHECK_BYTES]:
                raise ManifestError(f"the page statistics in {self._location} are damaged")
        return raw


def build_pages(
    store: Store,
    schema: Schema,
    segment_id: str,
    manifest_sha256: str,
    blocks: Sequence[Block],
    *,
    workers: int = 8,
    on_done: Callable[[str, str | None], None] | None = None,
) -> bytes:
    """Builds the page sidecar of a segment from the files of its blocks.

    A file that cannot be read, or has changed, has no cells, and the sidecar records why; ``on_done`` is called with
    each block's location and that reason (None: no problem), in the caller's thread.
    """
    leaves = schema.leaves()
    known = [KnownBlock.of(block) for block in blocks]

    def one(block: KnownBlock) -> tuple[dict[int, bytes], _Entry]:
        try:
            footer = read_block_footer(store, block)
            cells = read_cells(store, block, footer, leaves)
        except LamellaError as error:
            return {}, _Entry(group_rows=(), content_id=block.content_id, reason=why(error))
        entry = _Entry(group_rows=group_rows(footer), content_id=block.content_id, reason=None)
        return {column_id: encode(cell) for column_id, cell in cells.items()}, entry

    parts: list[dict[int, bytes]] = []
    entries: list[_Entry] = []
    with ContextThreadPool(max_workers=workers, thread_name_prefix="pages") as pool:
        for block, (cells, entry) in zip(known, pool.map(one, known), strict=True):
            parts.append(cells)
            entries.append(entry)
            if on_done is not None:
                on_done(block.location, entry.reason)
    columns: list[_Column] = []
    body: list[bytes] = []
    for leaf in leaves:
        cells_of = [cells.get(leaf.id, b"") for cells in parts]
        sizes: npt.NDArray[np.int64] = np.array([len(data) for data in cells_of], dtype=np.int64)
        checks = b"".join(_check(data) for data in cells_of)
        columns.append(_Column(leaf.id, str(leaf.dtype), pack(sizes), checks))
        body.extend(cells_of)
    directory = _ENCODER.encode(_Directory(VERSION, segment_id, manifest_sha256, tuple(entries), tuple(columns)))
    head = MAGIC + len(directory).to_bytes(8, "little") + hashlib.sha256(directory).digest()
    return b"".join((head, directory, *body))


def join_pages(parts: Sequence[tuple[PageSidecar, int]], segment_id: str, manifest_sha256: str) -> bytes | None:
    """Builds the page sidecar of a segment whose blocks come from others: each with its sidecar and number in it.

    No file is read. None if the sidecars do not have the same columns and types: then it must be built from the files.

    Raises:
        ObjectNotFound, StoreError, ManifestError: a part cannot be read, or is damaged.
    """
    shapes = {tuple((column_id, each[0]) for column_id, each in part._columns.items()) for part, _ in parts}
    if len(shapes) != 1:
        return None
    by_part = _by_part(parts)
    columns: list[_Column] = []
    body: list[bytes] = []
    for column_id, dtype in shapes.pop():
        cells_of = [b""] * len(parts)
        for part, positions in by_part:
            read = part._raw(column_id, [parts[position][1] for position in positions])
            for position, data in zip(positions, read, strict=True):
                cells_of[position] = data
        sizes: npt.NDArray[np.int64] = np.array([len(data) for data in cells_of], dtype=np.int64)
        columns.append(_Column(column_id, dtype, pack(sizes), b"".join(_check(data) for data in cells_of)))
        body.extend(cells_of)
    entries = tuple(part._blocks[number] for part, number in parts)
    directory = _ENCODER.encode(_Directory(VERSION, segment_id, manifest_sha256, entries, tuple(columns)))
    head = MAGIC + len(directory).to_bytes(8, "little") + hashlib.sha256(directory).digest()
    return b"".join((head, directory, *body))


def _by_part(parts: Sequence[tuple[PageSidecar, int]]) -> list[tuple[PageSidecar, list[int]]]:
    """Returns the indexes of each sidecar's blocks, in its order, so that neighbouring cells are read by one
    request."""
    positions: dict[int, list[int]] = {}
    for position, (part, _) in enumerate(parts):
        positions.setdefault(id(part), []).append(position)
    return [(parts[mine[0]][0], sorted(mine, key=lambda position: parts[position][1])) for mine in positions.values()]


def _check(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECK_BYTES).digest()


def _read_parts(store: Ranges, location: str, parts: Iterable[tuple[int, int]]) -> list[bytes]:
    """Returns parts of an object, given in ascending order; neighbouring ones are read by one request."""
    wanted = list(parts)
    out: list[bytes] = []
    first = 0
    while first < len(wanted):
        start, end = wanted[first][0], sum(wanted[first])
        last = first + 1
        while last < len(wanted) and wanted[last][0] - end <= GAP_BYTES:
            end = max(end, sum(wanted[last]))
            last += 1
        data = store.read_range(location, start, end - start) if end > start else b""
        out.extend(data[offset - start : offset - start + size] for offset, size in wanted[first:last])
        first = last
    return out
