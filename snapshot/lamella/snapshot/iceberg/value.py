"""Values in filters of Iceberg clients: JSON scalars, whose meaning the column's type decides."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from decimal import Decimal
from typing import Any, Final

from lamella.snapshot.expression.json_literal import wrong
from lamella.snapshot.schema import DataType

_INFINITE: Final = frozenset({"Infinity", "-Infinity"})
_EXPONENT: Final = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?e[+-]?\d{1,2}", re.ASCII | re.IGNORECASE)
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DAYS: Final = DataType("date").int_range
_INT: Final = DataType("int32")
_LONG: Final = DataType("int64")
_FLOAT_MAX: Final = (2 - 2**-23) * 2.0**127
_MIDNIGHT: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_US: Final = 86_400_000_000


def plain_value(value: Any, path: str) -> Any:
    """A value as a JSON scalar, which the older spelling has; raises InvalidFilter."""
    if isinstance(value, dict) and value.get("type") == "literal":
        value = value.get("value")
    if isinstance(value, float) and not math.isfinite(value):  # JSON has no number for these
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise wrong(path, "a value is a JSON scalar or a literal")


def is_doubtful_number(value: Any, dtype: DataType) -> bool:
    """What clients do not read alike beside a column of numbers: text, NaN too, and what is outside of Iceberg's type.

    By a number outside they decide all rows at once, nulls among them.
    """
    if isinstance(value, str):
        return dtype.name != "float64" or value not in _INFINITE
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if dtype.is_float:
        return dtype.bits < 64 and abs(value) > _FLOAT_MAX
    low, high = (_LONG if dtype.bits == 64 else _INT).int_range
    return not low <= value <= high


def is_doubtful_day(value: Any) -> bool:
    """What is perhaps a time: pyiceberg cuts the text of one to its day, and a large number may count microseconds."""
    if isinstance(value, str):
        return _DAY.fullmatch(value) is None
    return type(value) is int and not _DAYS[0] <= value <= _DAYS[1]


def is_zero(value: Any) -> bool:
    """Either of the two zeros."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


def typed(value: Any, dtype: DataType) -> Any:
    """A value of the wire as JSON filters take it: Java's clients write days and microseconds as bare numbers."""
    if type(value) is int:
        if dtype.name == "date":
            return {"type": "literal", "data-type": "date", "value": value}
        if dtype.name in ("timestamp", "timestamp_ntz"):
            return {"type": "literal", "data-type": dtype.name, "value": value}
        if dtype.name == "time" and 0 <= value < _DAY_US:
            return (_MIDNIGHT + dt.timedelta(microseconds=value)).time().isoformat("microseconds")
    if dtype.is_float and isinstance(value, str) and value in _INFINITE:
        return {"type": "literal", "data-type": "double", "value": value}
    if dtype.name == "decimal" and isinstance(value, str) and _EXPONENT.fullmatch(value):  # Python's, of small ones
        return format(Decimal(value), "f")
    return value


def rounded(value: Any) -> Any:
    """A number of the type's range as the 32-bit number next to it."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
