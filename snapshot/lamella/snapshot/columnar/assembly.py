"""Columns of many segments, put together from their companions.

What is put together stays, and companions are many small pieces of memory that do not. So only a few are open at a
time, and numbers are copied right to where they stay: the memory that is freed in between, the system would not get
back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.companion import Companion
from lamella.snapshot.columnar.joined import joined_zones
from lamella.snapshot.columnar.keys import NumberKeys
from lamella.snapshot.columnar.zones import Zones
from lamella.snapshot.errors import ManifestError
from lamella.snapshot.schema import DataType, Leaf

#: Companions that are open at a time, and fetched together.
_OPEN_SEGMENTS: Final = 16


class Load(Protocol):
    """Opens the companions of segments by their rows."""

    def __call__(self, rows: Sequence[int], *, keep: bool = True) -> list[Companion]:
        """``keep`` False: they are looked at once, and need not be kept in memory."""
        ...


class Assembly:
    """Some columns of consecutive segments, read all together when one is first asked for; each is given out once.

    ``first``: the first segment's row; ``starts``: where the blocks of each begin, and the end.
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
        """The zone maps of one of the columns."""
        if leaf not in self._zones:
            self._read()
        return self._zones.pop(leaf)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """One of the numeric columns, each number in four bytes if all fit, else in eight."""
        if name not in self._numbers:
            self._read()
        return self._numbers.pop(name)

    def _read(self) -> None:
        zones = {leaf: _Zones(leaf.dtype, self._count) for leaf in self._leaves}
        numbers = {name: _Numbers(self._count) for name in self._names}
        for at in range(0, len(self._segments), _OPEN_SEGMENTS):
            segments = self._segments[at : at + _OPEN_SEGMENTS]
            counts = self._counts[at : at + _OPEN_SEGMENTS].tolist()
            for companion, count in zip(self._load(segments, keep=False), counts, strict=True):
                if len(companion) != count:
                    raise ManifestError(f"a segment has {len(companion)} blocks, and {count} by its snapshot")
                for leaf, joining in zones.items():
                    joining.add(companion.zones(leaf.id, leaf.dtype))
                for name, growing in numbers.items():
                    growing.add(companion.numbers(name))
        self._zones = {leaf: joining.joined() for leaf, joining in zones.items()}
        self._numbers = {name: growing.array[: growing.count] for name, growing in numbers.items()}


class _Numbers:
    """An array that is filled from its beginning: in four bytes each, as row counts and file sizes mostly fit."""

    def __init__(self, room: int) -> None:
        self.array: npt.NDArray[Any] = np.empty(room, dtype=np.uint32)
        self.count = 0

    def add(self, part: npt.NDArray[np.int64]) -> None:
        """Put some more into it."""
        if self.array.dtype == np.uint32 and len(part) and not 0 <= int(part.min()) <= int(part.max()) < 1 << 32:
            self.array = self.array.astype(np.int64)
        self.array[self.count : self.count + len(part)] = part
        self.count += len(part)


class _Zones:
    """Zone maps that are put together part by part: bounds that are numbers in place, others at the end."""

    def __init__(self, dtype: DataType, room: int) -> None:
        self._dtype = dtype
        self._room = room
        self._count = 0
        #: The lows, the highs and the flags.
        self._in_place: tuple[npt.NDArray[Any], ...] | None = None
        self._parts: list[Zones] = []

    def add(self, part: Zones) -> None:
        """Put some more into it."""
        low, high = part.low, part.high
        if not self._parts and part.spans is None and isinstance(low, NumberKeys) and isinstance(high, NumberKeys):
            arrays = low.array, high.array, part.flags
            if self._in_place is None:
                self._in_place = tuple(np.empty(self._room, dtype=array.dtype) for array in arrays)
            if [whole.dtype for whole in self._in_place] == [array.dtype for array in arrays]:
                stop = self._count + len(part)
                for whole, array in zip(self._in_place, arrays, strict=True):
                    whole[self._count : stop] = array
                self._count = stop
                return
        if self._in_place is not None:
            self._parts.append(self._filled())
            self._in_place = None
        # Joined, it is a copy, and needs its companion no longer.
        self._parts.append(joined_zones(self._dtype, [part]))

    def joined(self) -> Zones:
        """All of it."""
        return joined_zones(self._dtype, self._parts) if self._parts else self._filled()

    def _filled(self) -> Zones:
        assert self._in_place is not None  # noqa: S101  # a chunk has a segment
        low, high, flags = (array[: self._count] for array in self._in_place)
        return Zones(NumberKeys(low), NumberKeys(high), flags)
