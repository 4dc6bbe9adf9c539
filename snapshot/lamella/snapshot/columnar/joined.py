"""Several companions seen as one: the groups of a snapshot, and its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.companion import Companion
from lamella.snapshot.columnar.keys import Keys, joined_keys
from lamella.snapshot.columnar.spans import Spans
from lamella.snapshot.columnar.zones import Zones, keys_of
from lamella.snapshot.schema import DataType, Schema

#: A companion, and which of its rows belong here (None: all).
Part = tuple[Companion, npt.NDArray[np.int64] | None]


class JoinedCompanion(Companion):
    """The rows of ``parts`` one after another; arrays are put together column by column, when first asked for.

    ``own``: the companion of the snapshot itself, whose header and schema this one has. Every part is in terms of
    that schema.
    """

    def __init__(self, own: Companion, parts: Sequence[Part]) -> None:
        self.header = own.header
        self.schema_id = own.schema_id
        self.size_bytes = sum(part.size_bytes for part, _ in parts)
        self._parts = tuple(parts)
        counts = [len(part) if rows is None else len(rows) for part, rows in parts]
        self._starts = np.cumsum([0, *counts])
        self._numbers: dict[str, npt.NDArray[Any]] = {}
        self._joined: dict[tuple[int, DataType], Zones] = {}
        self._nulls: dict[tuple[int, DataType], npt.NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return int(self._starts[-1])

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """A numeric column as an array; raises ManifestError when a part has none of that name."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = _rows_of(self._parts, lambda part: part.numbers(name))
        return found

    def texts(self, name: str, rows: npt.NDArray[Any] | None = None) -> list[str]:
        """A text column's values, all or those of some rows; raises ManifestError when a part has none of that name."""
        if rows is None:
            return [text for part, picked in self._parts for text in part.texts(name, picked)]
        if len(rows) == 1:  # as whoever opens segments one by one asks
            return [self.text_at(name, int(rows[0]))]
        found: list[str] = [""] * len(rows)
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(owners).tolist():
            part, picked = self._parts[number]
            at = np.flatnonzero(owners == number)
            local = np.asarray(rows)[at] - self._starts[number]
            values = part.texts(name, local if picked is None else picked[local])
            for index, value in zip(at.tolist(), values, strict=True):
                found[index] = value
        return found

    def text_at(self, name: str, row: int) -> str:
        """One of the values that :meth:`texts` gives."""
        number = int(self._starts.searchsorted(row, side="right")) - 1
        part, picked = self._parts[number]
        local = row - int(self._starts[number])
        return part.text_at(name, local if picked is None else int(picked[local]))

    def seen_from(self, written: Schema, wanted: Schema) -> Companion:
        """The parts in terms of a later schema of the table than ``written``, theirs."""
        view = JoinedCompanion(self, [(part.seen_from(written, wanted), rows) for part, rows in self._parts])
        view.schema_id = wanted.schema_id
        return view

    def zones(self, column_id: int, dtype: DataType) -> Zones:
        """The zone maps of a column; entries of a part that does not have it have none."""
        key = (column_id, dtype)
        found = self._joined.get(key)
        if found is None:
            found = self._joined[key] = joined_zones(
                dtype, [_taken(part.zones(column_id, dtype), rows) for part, rows in self._parts]
            )
        return found

    def null_counts(self, column_id: int, dtype: DataType) -> npt.NDArray[np.int64]:
        """Null counts of a column, -1 where not known."""
        key = (column_id, dtype)
        found = self._nulls.get(key)
        if found is None:
            found = self._nulls[key] = _rows_of(self._parts, lambda part: part.null_counts(column_id, dtype))
        return found

    def from_elsewhere(self, column_id: int) -> npt.NDArray[np.bool_]:
        """Where the statistics of a column are not those of the file's own footer."""
        return _rows_of(self._parts, lambda part: part.from_elsewhere(column_id))

    def column_size_bytes(self, column_ids: Sequence[int]) -> npt.NDArray[np.int64]:
        """Compressed bytes of the columns, added up per entry."""
        return _rows_of(self._parts, lambda part: part.column_size_bytes(column_ids))

    def older_schema_ids(self, rows: npt.NDArray[Any], current: int) -> list[int | None]:
        """The schema that rows are in terms of, None where it is the current one: all are in terms of one."""
        return [None if self.schema_id == current else self.schema_id] * len(rows)


def _rows_of(parts: Sequence[Part], column: Callable[[Companion], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    arrays = [(column(part), rows) for part, rows in parts]
    return np.concatenate([values if rows is None else values[rows] for values, rows in arrays])


def _taken(zones: Zones, rows: npt.NDArray[np.int64] | None) -> Zones:
    if rows is None:
        return zones
    taken = zones.take(rows)
    taken.spans = None if zones.spans is None else zones.spans.take(rows)
    return taken


def joined_zones(dtype: DataType, parts: Sequence[Zones]) -> Zones:
    """The zone maps of several layers one after another; at least one part."""
    zones = Zones(
        _joined_side(dtype, [(part.low, len(part)) for part in parts]),
        _joined_side(dtype, [(part.high, len(part)) for part in parts]),
        np.concatenate([part.flags for part in parts]),
    )
    zones.spans = Spans.joined([(part.spans, len(part)) for part in parts])
    return zones


def _joined_side(dtype: DataType, parts: Sequence[tuple[Keys | None, int]]) -> Keys | None:
    """One side's bounds; those of a part without any hold a zero value, as the flags there say that none is known."""
    if all(keys is None for keys, _ in parts):
        return None
    zero: Any = b"" if dtype.order == "bytes" else 0.0 if dtype.order == "float" else 0
    filled = [keys if keys is not None else keys_of(dtype, [zero] * count) for keys, count in parts]
    return joined_keys([keys for keys in filled if keys is not None])
