"""Some segments of a snapshot taken together: their blocks' statistics, column by column.

Of a chunk only the columns that filters name are put together, and held by content; the companions they come from are
not needed any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.cache import DerivedCache, Shelf
from lamella.snapshot.columnar.assembly import Assembly, Load
from lamella.snapshot.columnar.companion import Companion
from lamella.snapshot.columnar.edges import Edges, ascending
from lamella.snapshot.columnar.keys import BytesKeys, Keys, NumberKeys, SharedKeys, WideKeys
from lamella.snapshot.columnar.stored_column import STORED_VERSION, packed, unpacked
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, Zones
from lamella.snapshot.schema import Leaf

Rows = npt.NDArray[np.int64]

#: The numbers that every question needs.
NEEDED: Final = ("row_count", "file_size")
#: What a column takes beside its arrays, roughly.
_COLUMN_BYTES: Final = 2_048


class Numbers(msgspec.Struct, frozen=True):
    """One numeric column over a chunk's blocks."""

    array: npt.NDArray[Any]


class Column(msgspec.Struct, frozen=True):
    """The zone maps of one column over a chunk's blocks, and ``inner``, over its segments, what all blocks have.

    ``inner``'s bounds are the greatest of the lows and the least of the highs; its flags are set where every block has
    them. None where that is not known.
    """

    zones: Zones
    inner: Zones | None


class Held(msgspec.Struct, frozen=True):
    """Columns of a chunk or companion in memory, ``zones`` in the order of ``leaves``, and the numbers of ``NEEDED``.

    ``have_rows``: whether each of the blocks has rows.
    """

    leaves: Sequence[Leaf]
    zones: Sequence[Zones]
    numbers: dict[str, npt.NDArray[Any]]
    have_rows: bool

    @classmethod
    def of(cls, companion: Companion, leaves: Sequence[Leaf]) -> Held:
        """Those of a companion."""
        zones = [companion.zones(leaf.id, leaf.dtype) for leaf in leaves]
        return cls(leaves, zones, {name: companion.numbers(name) for name in NEEDED}, companion.have_rows)

    def __call__(self, leaf: Leaf) -> Zones:
        """The zone maps of one of the columns."""
        return self.zones[self.leaves.index(leaf)]

    def edges(self, leaf: Leaf) -> Edges | None:
        """The edges of one of the columns, when its blocks' own bounds ascend."""
        zones = self.zones[self.leaves.index(leaf)]
        found = zones.ascending
        return ascending(zones) if found is None else found or None


#: Where columns are held, by the key of their chunk and their name.
ColumnShelf = Shelf[Column | Numbers]


class Columns(msgspec.Struct, frozen=True):
    """Where chunks' columns are kept: ``shelf`` in memory; ``disk`` (None: none) for all processes of the host."""

    shelf: ColumnShelf
    disk: DerivedCache | None = None


class Chunk:
    """Segments ``first`` up to before ``stop`` of a snapshot; ``starts``: the first block of each, and the end."""

    def __init__(self, first: int, counts: Rows, key: str, columns: Columns) -> None:
        self.first = first
        self.stop = first + len(counts)
        self.starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        #: The same as integers, of which some are looked at one by one.
        self.bounds: list[int] = self.starts.tolist()
        self.key = key
        self._columns = columns
        self._needed = [f"{key}/{name}" for name in NEEDED]
        self._names: dict[Leaf, str] = {}
        self._have_rows: bool | None = None

    def column(self, leaf: Leaf, load: Load) -> Column:
        """The statistics of a column."""
        found = self._columns.shelf.load(self._name(leaf), lambda: self._column(leaf, self._assembly(load, [leaf])))
        assert isinstance(found, Column)  # noqa: S101  # by its name
        return found

    def prepare(self, leaves: Sequence[Leaf], load: Load, wanted: Sequence[str] = NEEDED) -> None:
        """Put these columns together, and the ``wanted`` numbers; each companion is opened once."""
        shelf = self._columns.shelf
        new = [leaf for leaf in leaves if shelf.get(self._name(leaf)) is None]
        names = [name for name in wanted if shelf.get(f"{self.key}/{name}") is None]
        assembly = self._assembly(load, new, names)
        for name in names:
            shelf.load(f"{self.key}/{name}", partial(self._numbers, name, assembly))
        for leaf in new:
            shelf.load(self._name(leaf), partial(self._column, leaf, assembly))

    def is_made(self, leaves: Sequence[Leaf]) -> bool:
        """Whether :meth:`prepare` will most likely open no companion."""
        disk = self._columns.disk
        names = [*(self._name(leaf) for leaf in leaves), *(f"{self.key}/{name}" for name in NEEDED)]
        kinds = [*("column" for _ in leaves), *("numbers" for _ in NEEDED)]
        return all(
            self._columns.shelf.get(name) is not None or (disk is not None and disk.has_derived(_stored(kind, name)))
            for kind, name in zip(kinds, names, strict=True)
        )

    def held(self, leaves: Sequence[Leaf]) -> Held | None:
        """What :meth:`prepare` makes, when all of it is in memory."""
        # Which of them are columns, and which are numbers, their names say.
        found: list[Any] | None = self._columns.shelf.get_all([*map(self._name, leaves), *self._needed])
        if found is None:
            return None
        count = len(leaves)
        zones = [each.zones for each in found[:count]]
        return self._held(leaves, zones, {name: each.array for name, each in zip(NEEDED, found[count:], strict=True)})

    def made(self, leaves: Sequence[Leaf], load: Load) -> Held:
        """The same, made where it is not in memory."""
        found = self.held(leaves)
        if found is not None:
            return found
        zones = [self.column(leaf, load).zones for leaf in leaves]
        return self._held(leaves, zones, {name: self.numbers(name, load) for name in NEEDED})

    def _held(self, leaves: Sequence[Leaf], zones: Sequence[Zones], numbers: dict[str, npt.NDArray[Any]]) -> Held:
        have_rows = self._have_rows
        if have_rows is None:
            have_rows = self._have_rows = bool((numbers["row_count"] > 0).all())
        return Held(leaves, zones, numbers, have_rows)

    def numbers(self, name: str, load: Load) -> npt.NDArray[Any]:
        """A numeric column of the companions, in as many bytes as it takes."""
        found = self._columns.shelf.load(
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
            zones = unpacked(disk.derived(key, lambda: packed(_comparable(assembly.zones(leaf)))))
            heap_bytes = 0  # of the file, which is mapped
        inner = _inner(zones, self.starts)
        return Column(zones, inner), _COLUMN_BYTES + heap_bytes + (0 if inner is None else _size_bytes(inner))

    def _numbers(self, name: str, assembly: Assembly) -> tuple[Numbers, int]:
        disk = self._columns.disk
        if disk is None:
            array = assembly.numbers(name)
            return Numbers(array), _COLUMN_BYTES + array.nbytes
        key = _stored("numbers", f"{self.key}/{name}")
        (data,) = disk.derived(key, lambda: [assembly.numbers(name)])
        array = np.frombuffer(data, dtype=np.uint32 if data.nbytes == 4 * int(self.starts[-1]) else np.int64)
        return Numbers(array), _COLUMN_BYTES


def _comparable(zones: Zones) -> Zones:
    """Zone maps whose texts are compared behind what all of them begin with."""
    if not isinstance(zones.low, BytesKeys) or not isinstance(zones.high, BytesKeys):
        return zones
    found = Zones(
        SharedKeys(zones.low, zones.has(LOW_KNOWN)), SharedKeys(zones.high, zones.has(HIGH_KNOWN)), zones.flags
    )
    found.spans = zones.spans
    return found


def _stored(kind: str, name: str) -> str:
    """What something is called on disk."""
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
    return zones.flags.nbytes + _keys_bytes(zones.low) + _keys_bytes(zones.high) + spans


def _keys_bytes(keys: Keys | None) -> int:
    parts: list[Any] = []
    if isinstance(keys, NumberKeys):
        parts = [keys.array]
    elif isinstance(keys, WideKeys):
        parts = [keys.high, keys.low]
    elif isinstance(keys, BytesKeys):
        parts = [keys.prefix, keys.prefix, keys.offsets, keys.data]
    return sum(int(part.nbytes) for part in parts)
