"""Row ids: what Spark is told about the place of a row, in a hidden column of tables.

An id has the number of a block and a position in its file. Spark collects the ids of all rows that a statement changes,
on the driver. So that these stay few, an id can stand for a run of ``2 ** shift`` neighbouring rows: the more rows a
scan may read, the longer the runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.schema import Schema

Ids = npt.NDArray[np.int64]

#: A scan has at most about as many different ids. Each takes about 100 bytes of the driver's JVM.
MAX_IDS: Final = 1 << 20
#: From the lowest bit: the run in the file, the number of the block, the shift.
_RUN_BITS: Final = 36
_BLOCK_BITS: Final = 22
_RUNS: Final = (1 << _RUN_BITS) - 1
_BLOCKS: Final = (1 << _BLOCK_BITS) - 1


def id_column(schema: Schema) -> str:
    """Return the name of the hidden column with row ids."""
    return unused_name(schema, "_lamella_row_id")


def unused_name(schema: Schema, name: str) -> str:
    """Return the name, with underscores behind it if a column has it."""
    taken = {column.name.lower() for column in schema.columns}
    while name in taken:
        name += "_"
    return name


def shift_for(row_count: int) -> int:
    """Return the shift of the ids of a scan over that many rows."""
    return max(0, (row_count // MAX_IDS).bit_length())


def ids_of(block: int, positions: Ids, shift: int) -> Ids:
    """Return the ids of rows of a block; ``positions``: in the file."""
    return (positions >> shift) | np.int64((shift << (_BLOCK_BITS + _RUN_BITS)) | (block << _RUN_BITS))


class Runs(dict[int, list[tuple[int, Ids]]]):
    """By the number of a block: pairs of a shift and ascending runs."""

    @classmethod
    def of(cls, ids: Ids) -> Runs:
        """Return what ids stand for."""
        found = cls()
        ordered = np.unique(ids)
        heads = ordered >> _RUN_BITS
        edges = [0, *(np.flatnonzero(np.diff(heads)) + 1).tolist(), len(ordered)]
        for start, stop in pairwise(edges):
            if start < stop:
                head = int(heads[start])
                runs = ordered[start:stop] & _RUNS
                found.setdefault(head & _BLOCKS, []).append((head >> _BLOCK_BITS, runs))
        return found


def positions_in(runs: Sequence[tuple[int, Ids]], row_count: int) -> Ids:
    """Return the ascending positions in a file of ``row_count`` rows that some runs of it contain.

    Raises:
        LamellaError: a run begins behind the end of the file.
    """
    parts = []
    for shift, numbers in runs:
        starts = numbers << shift
        if len(starts) and int(starts[-1]) >= row_count:
            raise LamellaError(f"a row id names row {int(starts[-1])} of a block of {counted(row_count, 'row')}")
        parts.append((starts[:, None] + np.arange(1 << shift, dtype=np.int64)).ravel())
    found = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
    return found[found < row_count]


class BlockNumbers:
    """Numbers of a table's blocks, by location. Equal in all scans of the table that this process plans meanwhile."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._locations: list[str] = []
        self._lock = threading.Lock()

    def of(self, locations: Iterable[str]) -> list[int]:
        """Return the number of each block.

        Raises:
            InvalidRequest: there are more blocks than numbers.
        """
        with self._lock:
            found = []
            for location in locations:
                number = self._numbers.get(location)
                if number is None:
                    number = self._numbers[location] = len(self._locations)
                    self._locations.append(location)
                found.append(number)
            if len(self._locations) > _BLOCKS:
                raise InvalidRequest(f"a statement changes rows of at most {_BLOCKS} blocks; narrow its condition")
            return found

    def location(self, number: int) -> str:
        """Return the location of a numbered block."""
        return self._locations[number]


_in_use: WeakValueDictionary[str, BlockNumbers] = WeakValueDictionary()
_lock: Final = threading.Lock()


def block_numbers(table_id: str) -> BlockNumbers:
    """Return the numbers of a table's blocks; there is one object as long as somebody refers to it."""
    with _lock:
        found = _in_use.get(table_id)
        if found is None:
            found = _in_use[table_id] = BlockNumbers()
        return found
