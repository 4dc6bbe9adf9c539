"""Some segments of a snapshot taken together: their blocks' statistics, column by column.

Of a chunk only the columns that filters name are put together, and held by content; the companions they come from are
not needed any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.cache import DerivedCache, Shelf
from lamella.snapshot.columnar.companion import Companion
from lamella.snapshot.columnar.joined import joined_zones
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


#: Where columns are held, by the key of their chunk and their name.
ColumnShelf = Shelf[Column | Numbers]


class Columns(msgspec.Struct, frozen=True):
    """Where chunks' columns are kept: ``shelf`` in memory; ``disk`` (None: none) for all processes of the host."""

    shelf: ColumnShelf
    disk: DerivedCache | None = None


class Load(Protocol):
    """Opens the companions of segments by their rows."""

    def __call__(self, rows: Sequence[int], *, keep: bool = True) -> list[Companion]:
        """``keep`` False: they are looked at once, and need not be kept in memory."""
        ...


class Chunk:
    """Segments ``first`` up to before ``stop`` of a snapshot; ``starts``: the first block of each, and the end."""

    def __init__(self, first: int, counts: Rows, key: str, columns: Columns) -> None:
        self.first = first
        self.stop = first + len(counts)
        self.starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        self.key = key
        self._columns = columns

    def column(self, leaf: Leaf, load: Load) -> Column:
        """The statistics of a column."""
        found = self.held(leaf)
        if found is None:
            made = self._columns.shelf.load(self._name(leaf), lambda: self._column(leaf, load))
            assert isinstance(made, Column)  # noqa: S101  # by its name
            found = made
        return found

    def prepare(self, leaves: Sequence[Leaf], load: Load) -> None:
        """Put these columns together, and the numbers of ``NEEDED``; companions are opened once."""
        opened: list[Companion] = []

        def once(rows: Sequence[int], *, keep: bool = True) -> list[Companion]:
            if not opened:
                opened.extend(load(rows, keep=keep))
            return opened

        for name in NEEDED:
            self.numbers(name, once)
        for leaf in leaves:
            self.column(leaf, once)

    def is_made(self, leaves: Sequence[Leaf]) -> bool:
        """Whether :meth:`prepare` will most likely open no companion."""
        disk = self._columns.disk
        names = [*(self._name(leaf) for leaf in leaves), *(f"{self.key}/{name}" for name in NEEDED)]
        kinds = [*("column" for _ in leaves), *("numbers" for _ in NEEDED)]
        return all(
            self._columns.shelf.get(name) is not None or (disk is not None and disk.has_derived(_stored(kind, name)))
            for kind, name in zip(kinds, names, strict=True)
        )

    def is_held(self, leaves: Sequence[Leaf]) -> bool:
        """Whether all that :meth:`prepare` makes is in memory."""
        get = self._columns.shelf.get
        return all(get(self._name(leaf)) is not None for leaf in leaves) and all(
            get(f"{self.key}/{name}") is not None for name in NEEDED
        )

    def held(self, leaf: Leaf) -> Column | None:
        """A column when it is in memory."""
        found = self._columns.shelf.get(self._name(leaf))
        return found if isinstance(found, Column) else None

    def numbers(self, name: str, load: Load) -> npt.NDArray[Any]:
        """A numeric column of the companions, in as many bytes as it takes."""
        found = self._columns.shelf.load(f"{self.key}/{name}", lambda: self._numbers(name, load))
        assert isinstance(found, Numbers)  # noqa: S101  # by its name
        return found.array

    def _name(self, leaf: Leaf) -> str:
        return f"{self.key}/{leaf.id}/{leaf.dtype}"

    def _column(self, leaf: Leaf, load: Load) -> tuple[Column, int]:
        disk = self._columns.disk
        if disk is None:
            zones = self._joined(leaf, load)
            heap_bytes = _size_bytes(zones)
        else:
            key = _stored("column", self._name(leaf))
            zones = unpacked(disk.derived(key, lambda: packed(self._joined(leaf, load))))
            heap_bytes = 0  # of the file, which is mapped
        inner = _inner(zones, self.starts)
        return Column(zones, inner), _COLUMN_BYTES + heap_bytes + (0 if inner is None else _size_bytes(inner))

    def _joined(self, leaf: Leaf, load: Load) -> Zones:
        companions = load(range(self.first, self.stop), keep=False)
        zones = joined_zones(leaf.dtype, [each.zones(leaf.id, leaf.dtype) for each in companions])
        if isinstance(zones.low, BytesKeys) and isinstance(zones.high, BytesKeys):
            spans = zones.spans
            low, high = SharedKeys(zones.low, zones.has(LOW_KNOWN)), SharedKeys(zones.high, zones.has(HIGH_KNOWN))
            zones = Zones(low, high, zones.flags)
            zones.spans = spans
        return zones

    def _numbers(self, name: str, load: Load) -> tuple[Numbers, int]:
        def joined() -> npt.NDArray[Any]:
            return narrowed(
                np.concatenate([each.numbers(name) for each in load(range(self.first, self.stop), keep=False)])
            )

        disk = self._columns.disk
        if disk is None:
            array = joined()
            return Numbers(array), _COLUMN_BYTES + array.nbytes
        key = _stored("numbers", f"{self.key}/{name}")
        (data,) = disk.derived(key, lambda: [joined()])
        array = np.frombuffer(data, dtype=np.uint32 if data.nbytes == 4 * int(self.starts[-1]) else np.int64)
        return Numbers(array), _COLUMN_BYTES


def _stored(kind: str, name: str) -> str:
    """What something is called on disk."""
    return f"{kind} {STORED_VERSION} {name}"


def narrowed(numbers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Numbers in four bytes each where they fit, as counts of rows and sizes of files mostly do."""
    if len(numbers) and int(numbers.min()) >= 0 and int(numbers.max()) < 1 << 32:
        return numbers.astype(np.uint32)
    return numbers


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
