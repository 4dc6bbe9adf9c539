"""A cell: locations and zone maps of the pages of one column in one block.

Zone entries are those of the row groups (from the chunks' own statistics), followed by those of the pages of each row
group whose pages have statistics. A row group whose pages have none is one zone: the row group's.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import BytesKeys, Keys, NumberKeys, WideKeys
from lamella.snapshot.columnar.zones import Zones, is_wide, number_dtype
from lamella.snapshot.errors import ManifestError
from lamella.snapshot.schema import DataType

_HEAD: Final = struct.Struct("<qB")
_HEAD_UNSIGNED: Final = struct.Struct("<QB")
_WIDTHS: Final = ((0, None), (1, "<u1"), (2, "<u2"), (4, "<u4"), (8, "<u8"))


def pack(values: npt.NDArray[Any]) -> bytes:
    """Packs an array of int64 or uint64."""
    if not len(values):
        return b""
    minimum, maximum = int(values.min()), int(values.max())
    width, code = next(each for each in _WIDTHS if maximum - minimum < 1 << (8 * each[0]))
    head = _HEAD_UNSIGNED if values.dtype == np.uint64 else _HEAD
    if code is None:
        return head.pack(minimum, 0)
    distances = values.astype(np.uint64) - np.uint64(minimum % (1 << 64))  # modulo 2^64, for either sign
    return head.pack(minimum, width) + distances.astype(code).tobytes()


def unpack(data: bytes, count: int, *, unsigned: bool = False) -> npt.NDArray[Any]:
    """Unpacks ``count`` numbers from the bytes of :func:`pack`; raises ManifestError for invalid bytes."""
    dtype = np.uint64 if unsigned else np.int64
    if not count:
        if data:
            raise ManifestError("unexpected packed numbers")
        return np.empty(0, dtype=dtype)
    head = _HEAD_UNSIGNED if unsigned else _HEAD
    if len(data) < head.size:
        raise ManifestError("packed numbers are truncated")
    minimum, width = head.unpack_from(data)
    code = dict(_WIDTHS).get(width, "")
    if code == "" or len(data) != head.size + width * count:
        raise ManifestError("packed numbers have a wrong length")
    if code is None:
        return np.full(count, minimum, dtype=dtype)
    distances = np.frombuffer(data, dtype=code, offset=head.size).astype(np.uint64)
    return (distances + np.uint64(minimum % (1 << 64))).astype(dtype)


Numbers = npt.NDArray[np.int64]

#: Approximate memory of a cell without its arrays, in bytes.
_OVERHEAD_BYTES: Final = 2_000


class Units(msgspec.Struct, frozen=True):
    """Pages or chunks: first rows in the block, rows, file offsets, sizes in bytes, row groups, first rows in those."""

    starts: Numbers
    rows: Numbers
    offsets: Numbers
    sizes: Numbers
    groups: Numbers
    first_rows: Numbers


class Cell(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One column of one block.

    Per row group: ``group_rows``; the chunk's ``offsets`` and ``sizes`` in bytes, including the dictionary, which is
    the first ``dictionary_sizes`` bytes; ``page_counts`` (0: the locations of its pages are unknown). Per page with a
    location: ``page_rows`` and ``page_sizes``. ``zoned``: the row groups whose pages have zone entries. ``zones`` and
    ``null_counts`` (-1: unknown) have an entry per row group and then per zoned page; None: only locations are known.
    ``reason``: why some row group has no page locations or statistics.
    """

    group_rows: Numbers
    offsets: Numbers
    sizes: Numbers
    dictionary_sizes: Numbers
    page_counts: Numbers
    page_rows: Numbers
    page_sizes: Numbers
    zoned: npt.NDArray[np.bool_]
    zones: Zones | None
    null_counts: Numbers
    reason: str | None = None

    @cached_property
    def zone_starts(self) -> tuple[Numbers, Numbers]:
        """Returns the first row of each zone, relative to the block and ascending, and its entry in ``zones``."""
        group_starts = _starts(self.group_rows)
        starts: list[Numbers] = []
        entries: list[Numbers] = []
        page = 0
        entry = len(self.group_rows)
        for group, count in enumerate(self.page_counts.tolist()):
            if self.zoned[group]:
                starts.append(group_starts[group] + _starts(self.page_rows[page : page + count]))
                entries.append(np.arange(entry, entry + count, dtype=np.int64))
                entry += count
            elif self.group_rows[group]:
                starts.append(group_starts[group : group + 1])
                entries.append(np.array([group], dtype=np.int64))
            page += count
        none = np.empty(0, dtype=np.int64)
        return np.concatenate([none, *starts]), np.concatenate([none, *entries])

    @cached_property
    def units(self) -> Units:
        """Returns what can be read of the column separately: pages, or the whole chunk if its pages are unknown."""
        group_starts = _starts(self.group_rows)
        columns: list[list[Numbers]] = [[], [], [], []]
        page = 0
        for group, count in enumerate(self.page_counts.tolist()):
            if count:
                rows, sizes = (each[page : page + count] for each in (self.page_rows, self.page_sizes))
                data = self.offsets[group] + self.dictionary_sizes[group]
                row = (group_starts[group] + _starts(rows), rows, data + _starts(sizes), sizes)
            elif self.group_rows[group]:
                one = slice(group, group + 1)
                row = (group_starts[one], self.group_rows[one], self.offsets[one], self.sizes[one])
            else:
                continue
            for column, values in zip(columns, row, strict=True):
                column.append(values)
            page += count
        none = np.empty(0, dtype=np.int64)
        starts, rows, offsets, sizes = (np.concatenate([none, *column]) for column in columns)
        groups = np.searchsorted(group_starts, starts, side="right") - 1
        return Units(starts, rows, offsets, sizes, groups, starts - group_starts[groups])

    @property
    def size_bytes(self) -> int:
        """Returns the approximate memory of the cell."""
        keys = 40 * len(self.zones) if self.zones is not None else 0
        return _OVERHEAD_BYTES + 72 * len(self.group_rows) + 32 * len(self.page_rows) + keys


def _starts(counts: Numbers) -> Numbers:
    return np.cumsum(counts) - counts


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """A cell as bytes; arrays packed."""

    groups: int
    pages: int
    entries: int
    group_rows: bytes
    offsets: bytes
    sizes: bytes
    dictionary_sizes: bytes
    page_counts: bytes
    page_rows: bytes
    page_sizes: bytes
    zoned: bytes
    flags: bytes
    null_counts: bytes
    low: tuple[bytes, ...]
    high: tuple[bytes, ...]
    reason: str | None


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Stored)
#: More pages than the page indexes of a file can name (see ``parquet.page_index.MAX_INDEX_BYTES``).
_MAX_PAGES: Final = 1 << 22


def encode(cell: Cell) -> bytes:
    """Encodes a cell with zones."""
    zones = cell.zones
    if zones is None:
        raise ValueError("only cells with zones are stored")
    return _ENCODER.encode(
        _Stored(
            groups=len(cell.group_rows),
            pages=len(cell.page_rows),
            entries=len(zones),
            group_rows=pack(cell.group_rows),
            offsets=pack(cell.offsets),
            sizes=pack(cell.sizes),
            dictionary_sizes=pack(cell.dictionary_sizes),
            page_counts=pack(cell.page_counts),
            page_rows=pack(cell.page_rows),
            page_sizes=pack(cell.page_sizes),
            zoned=cell.zoned.astype(np.uint8).tobytes(),
            flags=zones.flags.tobytes(),
            null_counts=pack(cell.null_counts),
            low=_keys_bytes(zones.low, len(zones)),
            high=_keys_bytes(zones.high, len(zones)),
            reason=cell.reason,
        )
    )


def decode(data: bytes, dtype: DataType) -> Cell:
    """Decodes a cell of a column of ``dtype``; raises ManifestError for invalid bytes."""
    try:
        raw = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ManifestError(f"page statistics cannot be decoded: {error}") from error
    groups, pages, entries = raw.groups, raw.pages, raw.entries
    zoned = np.frombuffer(raw.zoned, dtype=np.uint8).astype(bool)
    flags = np.frombuffer(raw.flags, dtype=np.uint8)
    # Before allocating: packed numbers that are all equal take a few bytes, however many they are.
    if len(zoned) != groups or len(flags) != entries or not 0 <= pages <= _MAX_PAGES:
        raise ManifestError("page statistics contradict themselves")
    counts = unpack(raw.page_counts, groups)
    if (counts < 0).any() or counts.sum() != pages:
        raise ManifestError("page statistics contradict themselves")
    if entries != groups + int(counts[zoned].sum()):
        raise ManifestError("page statistics have a wrong number of zones")
    zones = Zones(_keys(raw.low, dtype, entries), _keys(raw.high, dtype, entries), flags)
    return Cell(
        group_rows=unpack(raw.group_rows, groups),
        offsets=unpack(raw.offsets, groups),
        sizes=unpack(raw.sizes, groups),
        dictionary_sizes=unpack(raw.dictionary_sizes, groups),
        page_counts=counts,
        page_rows=unpack(raw.page_rows, pages),
        page_sizes=unpack(raw.page_sizes, pages),
        zoned=zoned,
        zones=zones,
        null_counts=unpack(raw.null_counts, entries),
        reason=raw.reason,
    )


def _keys_bytes(keys: Keys | None, count: int) -> tuple[bytes, ...]:
    if keys is None:
        return ()
    if isinstance(keys, BytesKeys):
        values = [keys.at(index) for index in range(count)]
        lengths = np.array([len(value) for value in values], dtype=np.int64)
        return pack(lengths), b"".join(values)
    if isinstance(keys, WideKeys):
        return pack(keys.high), pack(keys.low)
    if isinstance(keys, NumberKeys):
        array = keys.array
        return (array.tobytes() if array.dtype == np.float64 else pack(array),)
    raise TypeError(f"{type(keys).__name__} cannot be stored")


def _keys(parts: Sequence[bytes], dtype: DataType, count: int) -> Keys | None:
    if dtype.order is None:
        return None
    wide = is_wide(dtype)
    if len(parts) != (2 if wide or dtype.order == "bytes" else 1):
        raise ManifestError(f"page bounds do not match a column of type {dtype}")
    if dtype.order == "bytes":
        lengths = unpack(parts[0], count)
        offsets = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if (lengths < 0).any() or offsets[-1] != len(parts[1]):
            raise ManifestError("page bounds are truncated")
        return BytesKeys(prefixes(offsets, parts[1]), offsets, memoryview(parts[1]))
    if wide:
        return WideKeys(unpack(parts[0], count), unpack(parts[1], count, unsigned=True))
    kind = number_dtype(dtype)
    if kind == np.float64:
        if len(parts[0]) != 8 * count:
            raise ManifestError("page bounds are truncated")
        return NumberKeys(np.frombuffer(parts[0], dtype=np.float64))
    return NumberKeys(unpack(parts[0], count, unsigned=kind == np.uint64))


def prefixes(offsets: Numbers, data: bytes) -> npt.NDArray[np.uint64]:
    """Returns the ``prefix_key`` of each of the strings into which ``offsets`` cut ``data``."""
    padded = np.frombuffer(data + bytes(8), dtype=np.uint8)
    at = np.arange(8, dtype=np.int64)
    chosen: npt.NDArray[Any] = padded[offsets[:-1, None] + at]
    chosen = np.where(at < np.diff(offsets)[:, None], chosen, 0).astype(np.uint8)
    return np.ascontiguousarray(chosen).view(">u8").reshape(-1).astype(np.uint64)
