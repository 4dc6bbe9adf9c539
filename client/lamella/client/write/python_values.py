"""Rows that are dictionaries of Python values, as columns of values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.schema import DataType

_ABSENT: Final = object()
_MISSING: Final = frozenset({"NAType", "NaTType"})


class PythonColumn(msgspec.Struct, frozen=True):
    """The values of one column; ``is_absent``: for each row whether it lacks the column (None: no row does)."""

    values: list[Any]
    is_absent: list[bool] | None = None


class PythonRows:
    """Some rows. A column's name may be spelled in upper or lower case."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], what: str = "the data") -> None:
        self._rows = rows
        self._what = what

    @classmethod
    def of(cls, rows: Sequence[Any], what: str = "the data") -> PythonRows:
        """Return checked rows; raises SchemaMismatch if one is not a dictionary with text as keys."""
        for row in rows:
            if not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row):
                raise SchemaMismatch(f"{what}: a row is a dictionary by column name, not {type(row).__name__}")
        return cls(rows, what)

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def _spellings(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in dict.fromkeys(name for row in self._rows for name in row):
            found.setdefault(name.lower(), []).append(name)
        return found

    @property
    def names(self) -> dict[str, str]:
        """Return the columns that any row has: the spelling by the name in lower case."""
        return {key: spelled[0] for key, spelled in self._spellings.items()}

    def columns(self) -> dict[str, PythonColumn]:
        """Return the columns that any row has, by the name in lower case; a value that a row lacks is None.

        Raises:
            SchemaMismatch: a row has one column in two spellings.
        """
        return {key: self._column(spelled) for key, spelled in self._spellings.items()}

    def _column(self, spelled: Sequence[str]) -> PythonColumn:
        if len(spelled) > 1:
            for row in self._rows:
                if sum(name in row for name in spelled) > 1:
                    raise SchemaMismatch(
                        f"{self._what} has two columns {spelled[0]!r}, without regard to case", column=spelled[0]
                    )
        values = [row.get(spelled[0], _ABSENT) for row in self._rows]
        for name in spelled[1:]:
            values = [row.get(name, value) for row, value in zip(self._rows, values, strict=True)]
        is_absent = [value is _ABSENT for value in values]
        if not any(is_absent):
            return PythonColumn(values)
        return PythonColumn([None if value is _ABSENT else value for value in values], is_absent)

    def to_batch(self) -> pa.RecordBatch:
        """Return the rows in the types that Arrow finds for them; raises SchemaMismatch."""
        names, columns = self.names, self.columns()
        arrays = [leaf_array(columns[key].values, None, name) for key, name in names.items()]
        return pa.RecordBatch.from_arrays(arrays, names=list(names.values()))


def leaf_array(values: Sequence[Any], dtype: DataType | None, path: str) -> pa.Array:
    """Return Python values as an array of a natural type, which the caller converts to ``dtype`` (None: unknown).

    Raises:
        SchemaMismatch: the values have no common type, or none that Arrow knows.
    """
    plain = [_plain(value) for value in values]
    kinds = {type(value) for value in plain if value is not None}
    if _is_mixed(plain, kinds):
        listed = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise SchemaMismatch(f"column {path!r} has values of several kinds: {listed}", column=path)
    try:
        return pa.array(plain, _wanted(plain, kinds, dtype))
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SchemaMismatch(f"column {path!r}: {error}", column=path) from error


def _plain(value: Any) -> Any:
    """Return a scalar of NumPy as Python's, and what pandas has for a missing value as None."""
    if isinstance(value, np.bool_ | np.number):
        return value.item()
    return None if type(value).__name__ in _MISSING and type(value).__module__.startswith("pandas.") else value


def _wanted(values: Sequence[Any], kinds: set[type], dtype: DataType | None) -> Any:
    """Return the Arrow type to ask for where Arrow's own choice is too narrow: for numbers beyond 64 bits with a sign,
    and for nanoseconds, which pandas has and Arrow would cut off."""
    if any(issubclass(kind, dt.datetime) and hasattr(kind, "nanosecond") for kind in kinds):
        fine = [value for value in values if getattr(value, "nanosecond", 0)]
        if fine:
            return pa.timestamp("ns", None if fine[0].tzinfo is None else "UTC")
    if dtype is None or not kinds or not kinds <= {int, Decimal}:
        return None
    if dtype.name == "decimal":
        return pa.decimal128(dtype.precision, dtype.scale)
    return pa.uint64() if dtype.name == "uint64" and kinds == {int} else None


def _is_mixed(values: Sequence[Any], kinds: set[type]) -> bool:
    """Whether Arrow would change values to bring them into one type: it cuts times off dates, and takes times without
    zone for UTC."""
    if any(issubclass(kind, dt.datetime) for kind in kinds):
        if not all(issubclass(kind, dt.datetime) for kind in kinds):
            return True
        zones = {value.tzinfo is None for value in values if value is not None and value == value}
        return len(zones) > 1
    if dt.date in kinds or dt.time in kinds:
        return len(kinds) > 1
    return str in kinds and len(kinds) > 1
