"""Sets of values, one for each block of a part, over one dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.function.vector import Vector
from lamella.snapshot.index.part import Part
from lamella.snapshot.index.values import any_by_row, ascending, listed, loaded, picked, spans_of, stored
from lamella.snapshot.schema import DataType

_Array = npt.NDArray[Any]


def sections_of(name: str, dtype: DataType, sets: Sequence[Sequence[Any]]) -> dict[str, _Array]:
    """The sections of sets of values, in the order of their blocks."""
    dictionary = sorted(set().union(*sets))
    codes = {value: code for code, value in enumerate(dictionary)}
    offsets = np.zeros(len(sets) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in sets], out=offsets[1:])
    narrow = np.uint16 if len(dictionary) <= 1 << 16 else np.uint32
    return {
        f"{name}.offsets": offsets,
        f"{name}.codes": np.fromiter((codes[value] for each in sets for value in each), narrow, int(offsets[-1])),
        **stored(f"{name}.values", dtype, dictionary),
    }


class Sets:
    """The sets of a part. What was read is kept."""

    def __init__(self, part: Part, name: str, dtype: DataType) -> None:
        self._part = part
        self._name = name
        self._dtype = dtype
        self._values: Vector | None = None

    def of(self, rows: npt.NDArray[np.int64]) -> ChosenSets:
        """The sets of the blocks ``rows``, ascending."""
        offsets = self._part.whole(f"{self._name}.offsets")
        codes = self._part.ranges(f"{self._name}.codes", spans_of(offsets, rows))
        every = np.concatenate([np.zeros(0, dtype=np.uint32), *codes])
        used = ascending(every)
        if self._values is None:
            self._values = loaded(self._part, f"{self._name}.values", self._dtype)
        places = np.zeros(len(self._values), dtype=np.int64)
        places[used] = np.arange(len(used))
        return ChosenSets(picked(self._values, used.astype(np.int64)), places[every], offsets, rows)

    def lists(self, rows: npt.NDArray[np.int64]) -> list[list[Any]]:
        """The sets of blocks in any order, as lists."""
        values = listed(loaded(self._part, f"{self._name}.values", self._dtype))
        offsets = self._part.whole(f"{self._name}.offsets").tolist()
        codes = self._part.whole(f"{self._name}.codes").tolist()
        return [[values[code] for code in codes[offsets[row] : offsets[row + 1]]] for row in rows.tolist()]


class ChosenSets:
    """Some of the sets: ``values`` are all that occur in them."""

    def __init__(self, values: Vector, places: _Array, offsets: _Array, rows: npt.NDArray[np.int64]) -> None:
        self.values = values
        self._places = places
        self._offsets = offsets
        self._rows = rows

    def having(self, hits: Mask) -> Mask:
        """Per block: whether a value of its set is among those of ``values`` that are hit."""
        return any_by_row(hits[self._places], self._offsets, self._rows)
