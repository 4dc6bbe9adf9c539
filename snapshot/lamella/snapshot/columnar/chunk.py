"""Statistics of the blocks of several segments, column by column, in memory and in a disk cache.

A chunk assembles only the columns that filters name and keeps them under a key of their content; the sidecars that they
come from are not needed any more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.cache import Buffer, CacheNamespace, DerivedCache
from lamella.snapshot.columnar.keys import BytesKeys, Keys, Mask, NumberKeys, SharedKeys, WideKeys
from lamella.snapshot.columnar.sidecar import Sidecar, joined_zones
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, Buckets, Edges, Spans, Zones, ascending
from lamella.snapshot.errors import ManifestError
from lamella.snapshot.schema import DataType, Leaf, parse_type

# Columns of many segments, assembled from their sidecars.
#
# Assembled columns stay in memory; sidecars consist of many small allocations that do not. So only a few sidecars are
# open at a time, and numbers are copied directly to their final array. Otherwise the process would not return the freed
# memory to the system.

#: Sidecars that are fetched together and open at a time.
_OPEN_SEGMENTS: Final = 16


Rows = npt.NDArray[np.int64]


class Load(Protocol):
    """Opens the sidecars of segments by their rows."""

    def __call__(self, rows: Sequence[int], *, keep: bool = True, column_ids: Collection[int] = ()) -> list[Sidecar]:
        """Opens sidecars. ``keep`` False: they are read once and need not stay in memory. ``column_ids``: columns that
        will be asked for."""
        ...


class Assembly:
    """Some columns of consecutive segments, read together on first access; each column is returned once.

    ``first``: the first segment's row; ``starts``: the index of each segment's first block, and the total.
    """

    def __init__(
        self, first: int, starts: npt.NDArray[np.int64], leaves: Sequence[Leaf], names: Sequence[str], load: Load
    ) -> None:
        self._segments = range(first, first + len(starts) - 1)
        self._count = int(starts[-1])
        self._counts = starts[1:] - starts[:-1]
        self._leaves = leaves
        self._names = names
        self._load = load
        self._zones: dict[Leaf, Zones] = {}
        self._numbers: dict[str, npt.NDArray[Any]] = {}

    def zones(self, leaf: Leaf) -> Zones:
        """Returns the zone maps of one of the columns."""
        if leaf not in self._zones:
            self._read()
        return self._zones.pop(leaf)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Returns one of the numeric columns, in four bytes per number if all numbers fit, otherwise in eight."""
        if name not in self._numbers:
            self._read()
        return self._numbers.pop(name)

    def _read(self) -> None:
        zones = {leaf: _Zones(leaf.dtype, self._count) for leaf in self._leaves}
        numbers = {name: _Numbers(self._count) for name in self._names}
        column_ids = [leaf.id for leaf in self._leaves]
        for at in range(0, len(self._segments), _OPEN_SEGMENTS):
            segments = self._segments[at : at + _OPEN_SEGMENTS]
            counts = self._counts[at : at + _OPEN_SEGMENTS].tolist()
            opened = self._load(segments, keep=False, column_ids=column_ids)
            for sidecar, count in zip(opened, counts, strict=True):
                if len(sidecar) != count:
                    raise ManifestError(f"a segment has {len(sidecar)} blocks, but {count} according to its snapshot")
                for leaf, joining in zones.items():
                    joining.add(sidecar.zones(leaf.id, leaf.dtype))
                for name, growing in numbers.items():
                    growing.add(sidecar.numbers(name))
        self._zones = {leaf: joining.joined() for leaf, joining in zones.items()}
        self._numbers = {name: growing.array[: growing.count] for name, growing in numbers.items()}


class _Numbers:
    """An array that is filled from its beginning: four bytes per element, which mostly suffices for row counts and file
    sizes."""

    def __init__(self, capacity: int) -> None:
        self.array: npt.NDArray[Any] = np.empty(capacity, dtype=np.uint32)
        self.count = 0

    def add(self, part: npt.NDArray[np.int64]) -> None:
        """Append numbers."""
        if self.array.dtype == np.uint32 and len(part) and not 0 <= int(part.min()) <= int(part.max()) < 1 << 32:
            self.array = self.array.astype(np.int64)
        self.array[self.count : self.count + len(part)] = part
        self.count += len(part)


class _Zones:
    """Zone maps assembled part by part: numeric bounds in place, others at the end."""

    def __init__(self, dtype: DataType, capacity: int) -> None:
        self._dtype = dtype
        self._capacity = capacity
        self._count = 0
        #: The lows, the highs and the flags.
        self._of_table: tuple[npt.NDArray[Any], ...] | None = None
        self._parts: list[Zones] = []

    def add(self, part: Zones) -> None:
        """Append zone maps."""
        low, high = part.low, part.high
        if not self._parts and not part.has_gaps and isinstance(low, NumberKeys) and isinstance(high, NumberKeys):
            arrays = low.array, high.array, part.flags
            if self._of_table is None:
                self._of_table = tuple(np.empty(self._capacity, dtype=array.dtype) for array in arrays)
            if [whole.dtype for whole in self._of_table] == [array.dtype for array in arrays]:
                stop = self._count + len(part)
                for whole, array in zip(self._of_table, arrays, strict=True):
                    whole[self._count : stop] = array
                self._count = stop
                return
        if self._of_table is not None:
            self._parts.append(self._filled())
            self._of_table = None
        # Joining copies the data, so it no longer needs its sidecar.
        self._parts.append(joined_zones(self._dtype, [part]))

    def joined(self) -> Zones:
        """Returns the zone maps of all parts."""
        return joined_zones(self._dtype, self._parts) if self._parts else self._filled()

    def _filled(self) -> Zones:
        assert self._of_table is not None  # noqa: S101  # a chunk has a segment
        low, high, flags = (array[: self._count] for array in self._of_table)
        return Zones(NumberKeys(low), NumberKeys(high), flags)


#: The numbers that every query needs.
NEEDED: Final = ("row_count", "file_size")
#: Approximate size of a column without its arrays.
_COLUMN_BYTES: Final = 2_048


class Numbers(msgspec.Struct, frozen=True):
    """One numeric column over a chunk's blocks."""

    array: npt.NDArray[Any]


class Column(msgspec.Struct, frozen=True):
    """The zone maps of one column over a chunk's blocks."""

    zones: Zones


class Common(msgspec.Struct, frozen=True):
    """What the blocks of each segment of a chunk have in common in one column; small, and kept longer than the column.

    ``inner``: the maximum of the lows and the minimum of the highs, and the flags that every block has; None: unknown.
    ``has_gaps``: as of the column's zone maps. ``has_bound``: whether a bound of one of the segment's blocks is known.
    """

    inner: Zones | None
    has_gaps: bool
    has_bound: Mask

    @classmethod
    def of(cls, zones: Zones, starts: Rows) -> Common:
        """Returns what blocks have in common; ``starts``: the first block of each segment, and the total."""
        bounded = (zones.flags & np.uint8(LOW_KNOWN | HIGH_KNOWN)) != 0
        counted = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(bounded)])[starts]
        return cls(_inner(zones, starts), zones.has_gaps, np.asarray(counted[1:] > counted[:-1]))

    @property
    def size_bytes(self) -> int:
        """Returns the bytes of the arrays."""
        return int(self.has_bound.nbytes) + (0 if self.inner is None else _size_bytes(self.inner))


class CachedColumns(msgspec.Struct, frozen=True):
    """Columns of a chunk or sidecar in memory: ``zones`` in the order of ``leaves``, and the numbers of ``NEEDED``.

    ``have_rows``: whether each of the blocks has rows.
    """

    leaves: Sequence[Leaf]
    zones: Sequence[Zones]
    numbers: dict[str, npt.NDArray[Any]]
    have_rows: bool

    @classmethod
    def of(cls, sidecar: Sidecar, leaves: Sequence[Leaf]) -> CachedColumns:
        """Reads the columns of a sidecar."""
        zones = [sidecar.zones(leaf.id, leaf.dtype) for leaf in leaves]
        return cls(leaves, zones, {name: sidecar.numbers(name) for name in NEEDED}, sidecar.have_rows)

    def __call__(self, leaf: Leaf) -> Zones:
        """Returns the zone maps of one of the columns."""
        return self.zones[self.leaves.index(leaf)]

    def edges(self, leaf: Leaf) -> Edges | None:
        """Returns the edges of one of the columns if the bounds of its blocks ascend."""
        zones = self.zones[self.leaves.index(leaf)]
        found = zones.ascending
        return ascending(zones) if found is None else found or None


#: Approximate memory of a block's bounds and flags in one column, by the order of its type; texts are of any length.
_BOUNDS_BYTES: Final = {"bytes": 100, "decimal": 33}
_NUMBER_BYTES: Final = 17


def block_bytes(leaves: Sequence[Leaf]) -> int:
    """Returns about how much memory these columns, and the numbers of ``NEEDED``, take per block."""
    return 4 * len(NEEDED) + sum(_BOUNDS_BYTES.get(leaf.dtype.order or "", _NUMBER_BYTES) for leaf in leaves)


#: The cache of columns, by the key of their chunk and their name.
ColumnCache = CacheNamespace[Column | Common | Numbers]


class Columns(msgspec.Struct, frozen=True):
    """Where columns of chunks are cached: ``memory`` in memory, ``disk`` for all processes of the host (None: no disk
    cache)."""

    memory: ColumnCache
    disk: DerivedCache | None = None


class Chunk:
    """The segments from ``first`` to before ``stop`` of a snapshot; ``starts``: the first block of each, and the
    total."""

    def __init__(self, first: int, counts: Rows, key: str, columns: Columns) -> None:
        self.first = first
        self.stop = first + len(counts)
        self.starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        #: The same as Python integers, for access one by one.
        self.bounds: list[int] = self.starts.tolist()
        self.key = key
        self._columns = columns
        self._needed = [f"{key}/{name}" for name in NEEDED]
        self._full = f"{key}/full"
        self._names: dict[Leaf, str] = {}
        self._have_rows: bool | None = None

    def column(self, leaf: Leaf, load: Load) -> Column:
        """Returns the statistics of a column."""
        found = self._columns.memory.load(self._name(leaf), lambda: self._column(leaf, self._assembly(load, [leaf])))
        assert isinstance(found, Column)  # noqa: S101  # by its name
        return found

    def common(self, leaf: Leaf, load: Load) -> Common:
        """Returns what the blocks of each segment have in common in a column."""

        def made() -> tuple[Common, int]:
            found = Common.of(self.column(leaf, load).zones, self.starts)
            return found, _COLUMN_BYTES + found.size_bytes

        found = self._columns.memory.load(_common(self._name(leaf)), made)
        assert isinstance(found, Common)  # noqa: S101  # by its name
        return found

    def full(self, load: Load) -> Mask:
        """Returns which segments have blocks, each of which has rows."""

        def made() -> tuple[Numbers, int]:
            found = _full(self.numbers("row_count", load), self.starts)
            return Numbers(found), _COLUMN_BYTES + found.nbytes

        found = self._columns.memory.load(self._full, made)
        assert isinstance(found, Numbers)  # noqa: S101  # by its name
        return found.array

    def knows(self, leaves: Sequence[Leaf]) -> bool:
        """Returns whether :meth:`common` of all these columns, and :meth:`full`, are in memory."""
        names = [self._full, *(_common(self._name(leaf)) for leaf in leaves)]
        return self._columns.memory.get_all(names) is not None

    def prepare(self, leaves: Sequence[Leaf], load: Load, wanted: Sequence[str] = NEEDED) -> None:
        """Assemble these columns and the ``wanted`` numbers; each sidecar is opened once."""
        memory = self._columns.memory
        new = [leaf for leaf in leaves if memory.get(self._name(leaf)) is None]
        names = [name for name in wanted if memory.get(f"{self.key}/{name}") is None]
        assembly = self._assembly(load, new, names)
        for name in names:
            memory.load(f"{self.key}/{name}", partial(self._numbers, name, assembly))
        for leaf in new:
            memory.load(self._name(leaf), partial(self._column, leaf, assembly))

    def passing(self, leaves: Sequence[Leaf], load: Load) -> CachedColumns:
        """Returns the columns for one use: they are cached neither in memory nor on disk, but :meth:`common` and
        :meth:`full` are."""
        found = self.cached(leaves)
        if found is None:
            assembly = self._assembly(load, leaves, NEEDED)
            zones = [_comparable(assembly.zones(leaf)) for leaf in leaves]
            numbers = {name: assembly.numbers(name) for name in NEEDED}
            found = self._cached_columns(leaves, zones, numbers)
        memory = self._columns.memory
        for leaf, zones_of_leaf in zip(leaves, found.zones, strict=True):
            common = Common.of(zones_of_leaf, self.starts)
            memory.remember(_common(self._name(leaf)), common, _COLUMN_BYTES + common.size_bytes)
        full = _full(found.numbers["row_count"], self.starts)
        memory.remember(self._full, Numbers(full), _COLUMN_BYTES + full.nbytes)
        return found

    def is_assembled(self, leaves: Sequence[Leaf]) -> bool:
        """Returns whether :meth:`prepare` will most likely open no sidecar."""
        disk = self._columns.disk
        names = [*(self._name(leaf) for leaf in leaves), *(f"{self.key}/{name}" for name in NEEDED)]
        kinds = [*("column" for _ in leaves), *("numbers" for _ in NEEDED)]
        return all(
            self._columns.memory.get(name) is not None or (disk is not None and disk.has_derived(_stored(kind, name)))
            for kind, name in zip(kinds, names, strict=True)
        )

    def cached(self, leaves: Sequence[Leaf]) -> CachedColumns | None:
        """Returns the columns from memory, or None if one of them is missing there."""
        # The names tell columns and numbers apart.
        found: list[Any] | None = self._columns.memory.get_all([*map(self._name, leaves), *self._needed])
        if found is None:
            return None
        count = len(leaves)
        zones = [each.zones for each in found[:count]]
        return self._cached_columns(
            leaves, zones, {name: each.array for name, each in zip(NEEDED, found[count:], strict=True)}
        )

    def made(self, leaves: Sequence[Leaf], load: Load) -> CachedColumns:
        """Returns the columns, assembled if they are not in memory."""
        found = self.cached(leaves)
        if found is not None:
            return found
        zones = [self.column(leaf, load).zones for leaf in leaves]
        return self._cached_columns(leaves, zones, {name: self.numbers(name, load) for name in NEEDED})

    def _cached_columns(
        self, leaves: Sequence[Leaf], zones: Sequence[Zones], numbers: dict[str, npt.NDArray[Any]]
    ) -> CachedColumns:
        have_rows = self._have_rows
        if have_rows is None:
            have_rows = self._have_rows = bool((numbers["row_count"] > 0).all())
        return CachedColumns(leaves, zones, numbers, have_rows)

    def numbers(self, name: str, load: Load) -> npt.NDArray[Any]:
        """Returns a numeric column of the sidecars, in the smallest sufficient width."""
        found = self._columns.memory.load(
            f"{self.key}/{name}", lambda: self._numbers(name, self._assembly(load, (), [name]))
        )
        assert isinstance(found, Numbers)  # noqa: S101  # by its name
        return found.array

    def _name(self, leaf: Leaf) -> str:
        try:
            return self._names[leaf]
        except KeyError:
            name = self._names[leaf] = f"{self.key}/{leaf.id}/{leaf.dtype}"
            return name

    def _assembly(self, load: Load, leaves: Sequence[Leaf], names: Sequence[str] = ()) -> Assembly:
        return Assembly(self.first, self.starts, leaves, names, load)

    def _column(self, leaf: Leaf, assembly: Assembly) -> tuple[Column, int]:
        disk = self._columns.disk
        if disk is None:
            zones = _comparable(assembly.zones(leaf))
            heap_bytes = _size_bytes(zones)
        else:
            key = _stored("column", self._name(leaf))
            views, heap_bytes = disk.derived_with_heap(key, lambda: packed(_comparable(assembly.zones(leaf))))
            zones = unpacked(views)
        return Column(zones), _COLUMN_BYTES + heap_bytes

    def _numbers(self, name: str, assembly: Assembly) -> tuple[Numbers, int]:
        disk = self._columns.disk
        if disk is None:
            array = assembly.numbers(name)
            return Numbers(array), _COLUMN_BYTES + array.nbytes
        key = _stored("numbers", f"{self.key}/{name}")
        (data,), heap_bytes = disk.derived_with_heap(key, lambda: [assembly.numbers(name)])
        array = np.frombuffer(data, dtype=np.uint32 if data.nbytes == 4 * int(self.starts[-1]) else np.int64)
        return Numbers(array), _COLUMN_BYTES + heap_bytes


def _common(name: str) -> str:
    return f"{name}/common"


def _full(row_counts: npt.NDArray[Any], starts: Rows) -> Mask:
    if not len(row_counts):
        return np.zeros(len(starts) - 1, dtype=bool)
    empty = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(row_counts <= 0)])[starts]
    return np.asarray((starts[1:] > starts[:-1]) & (empty[1:] == empty[:-1]))


def _comparable(zones: Zones) -> Zones:
    """Returns zone maps whose texts compare after their common prefix."""
    if not isinstance(zones.low, BytesKeys) or not isinstance(zones.high, BytesKeys):
        return zones
    found = Zones(
        SharedKeys(zones.low, zones.has(LOW_KNOWN)), SharedKeys(zones.high, zones.has(HIGH_KNOWN)), zones.flags
    )
    found.spans, found.buckets = zones.spans, zones.buckets
    return found


def _stored(kind: str, name: str) -> str:
    """Returns the name of a column on disk."""
    return f"{kind} {STORED_VERSION} {name}"


def _inner(zones: Zones, starts: Rows) -> Zones | None:
    low, high = zones.low, zones.high
    begin = starts[:-1]
    if not isinstance(low, NumberKeys) or not isinstance(high, NumberKeys) or not (np.diff(starts) > 0).all():
        return None
    flags = np.bitwise_and.reduceat(zones.flags, begin)
    return Zones(
        NumberKeys(np.maximum.reduceat(low.array, begin)), NumberKeys(np.minimum.reduceat(high.array, begin)), flags
    )


def _size_bytes(zones: Zones) -> int:
    spans = 0 if zones.spans is None else zones.spans.edges.nbytes + zones.spans.offsets.nbytes
    buckets = 0 if zones.buckets is None else zones.buckets.packed.nbytes
    return zones.flags.nbytes + _keys_bytes(zones.low) + _keys_bytes(zones.high) + spans + buckets


def _keys_bytes(keys: Keys | None) -> int:
    parts: list[Any] = []
    if isinstance(keys, NumberKeys):
        parts = [keys.array]
    elif isinstance(keys, WideKeys):
        parts = [keys.high, keys.low]
    elif isinstance(keys, BytesKeys):
        parts = [keys.prefix, keys.prefix, keys.offsets, keys.data]
    return sum(int(part.nbytes) for part in parts)


# A chunk's column as buffers, for a disk cache that other processes map, and back.
#
# The first buffer describes the others, which are the arrays themselves and are used in place.

#: Version of the buffers' form; part of their cache keys.
STORED_VERSION = 2

_Form = Literal["number", "wide", "bytes", "shared"]


class _Head(msgspec.Struct, frozen=True):
    """Header of the buffers. ``form`` of the bounds (None: there are none); ``kind``: the NumPy dtype of their array
    and of the spans; ``buckets``: the type of the column, if it has any."""

    form: _Form | None
    kind: str = ""
    shared: tuple[bytes, bytes] = (b"", b"")
    spans: str | None = None
    buckets: str | None = None


#: Created once: two threads that decode a struct for the first time at once crash the process (msgspec 0.22).
_HEAD = msgspec.msgpack.Decoder(_Head)


def packed(zones: Zones) -> list[Buffer]:
    """Returns the buffers of zone maps without ``fails``."""
    low, high, spans = zones.low, zones.high, zones.spans
    kind = None if spans is None else spans.edges.dtype.str
    head = _Head(None, spans=kind)
    arrays: list[npt.NDArray[Any]] = [zones.flags]
    if low is not None and high is not None:
        form: _Form = _form_of(low)
        number = low.array.dtype.str if isinstance(low, NumberKeys) else ""
        shared = (low.shared, high.shared) if isinstance(low, BytesKeys) and isinstance(high, BytesKeys) else (b"", b"")
        head = _Head(form, number, shared, kind)
        arrays += [*_arrays_of(low), *_arrays_of(high)]
    if spans is not None:
        arrays += [spans.offsets, spans.edges]
    if zones.buckets is not None:
        head = msgspec.structs.replace(head, buckets=str(zones.buckets.dtype))
        arrays.append(zones.buckets.packed)
    return [msgspec.msgpack.encode(head), *(np.ascontiguousarray(array) for array in arrays)]


def unpacked(buffers: Sequence[memoryview]) -> Zones:
    """Reads the zone maps from the buffers of :func:`packed`."""
    head = _HEAD.decode(buffers[0])
    rest = list(buffers[1:])
    flags = _array(rest.pop(0), "u1")
    low: Keys | None = None
    high: Keys | None = None
    if head.form is not None:
        count = _BUFFERS[head.form]
        low = _keys(head.form, head.kind, head.shared[0], rest[:count])
        high = _keys(head.form, head.kind, head.shared[1], rest[count : 2 * count])
        rest = rest[2 * count :]
    zones = Zones(low, high, flags)
    if head.spans is not None:
        zones.spans = Spans(_array(rest.pop(0), "i8"), _array(rest.pop(0), head.spans))
    if head.buckets is not None:
        zones.buckets = Buckets(parse_type(head.buckets), _array(rest.pop(0), "i8"))
    return zones


_BUFFERS: dict[_Form, int] = {"number": 1, "wide": 2, "bytes": 3, "shared": 4}


def _form_of(keys: Keys) -> _Form:
    if isinstance(keys, NumberKeys):
        return "number"
    if isinstance(keys, WideKeys):
        return "wide"
    return "shared" if isinstance(keys, SharedKeys) else "bytes"


def _arrays_of(keys: Keys) -> list[npt.NDArray[Any]]:
    if isinstance(keys, NumberKeys):
        return [keys.array]
    if isinstance(keys, WideKeys):
        return [keys.high, keys.low]
    if isinstance(keys, BytesKeys):
        data = np.frombuffer(keys.data, dtype=np.uint8)
        words = [keys.words] if isinstance(keys, SharedKeys) else []
        return [keys.prefix, keys.offsets.astype(np.int64, copy=False), data, *words]
    raise TypeError(f"{type(keys).__name__} is not an order of bounds")


def _keys(form: _Form, kind: str, shared: bytes, buffers: Sequence[memoryview]) -> Keys:
    if form == "number":
        return NumberKeys(_array(buffers[0], kind))
    if form == "wide":
        return WideKeys(_array(buffers[0], "i8"), _array(buffers[1], "u8"))
    keys = BytesKeys(_array(buffers[0], "u8"), _array(buffers[1], "i8"), buffers[2])
    return keys if form == "bytes" else SharedKeys.of(keys, shared, _array(buffers[3], "u8"))


def _array(buffer: memoryview, kind: str) -> npt.NDArray[Any]:
    return np.frombuffer(buffer, dtype=np.dtype(kind))
