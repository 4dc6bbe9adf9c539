"""Default values of columns: what a row of a file that lacks the column holds there.

A default is kept as text, the same in manifests and over HTTP:

- booleans ``true``, ``false``; numbers in digits (``5``, ``-1.50``, ``0.1``; no NaN, no infinity);
- dates ``2024-01-31``; times ``12:30:00.5``; timestamps ``2024-01-31T12:30:00Z`` (with a zone),
  timestamp_ntz ``2024-01-31T12:30:00`` (without); parts of a second down to microseconds;
- text as it is; binary, fixed and uuid as hexadecimal digits (a uuid also with dashes).
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from decimal import Context, Decimal, InvalidOperation
from typing import Final

from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.schema.types import PER_SECOND, DataType

_EPOCH_DAY: Final = dt.date(1970, 1, 1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_FINE: Final = re.compile(r"\.[0-9]{7,}")
_FLOAT_CODES: Final = {16: "<e", 32: "<f", 64: "<d"}
_DIGITS: Final = Context(prec=100)
_MAX_TEXT: Final = 1_000


def default_value(dtype: DataType, text: str) -> int | float | bytes:
    """The value of a default in its type's order (see :mod:`lamella.snapshot.schema.types`).

    Raises:
        InvalidSchema: the text is no value of the type, or the type can have no default.
    """
    if len(text) > _MAX_TEXT:
        raise InvalidSchema(f"a default has at most {_MAX_TEXT} characters", type=str(dtype))
    try:
        value = _read(dtype, text)
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise InvalidSchema(f"{text!r} is no value of type {dtype}", type=str(dtype)) from error
    if value is None:
        raise InvalidSchema(f"a column of type {dtype} can have no default", type=str(dtype))
    if isinstance(value, int):
        low, high = dtype.int_range
        if not low <= value <= high:
            raise InvalidSchema(f"{text!r} is outside the range of {dtype}", type=str(dtype))
    return value


def canonical_default(dtype: DataType, text: str, column: str) -> str:
    """The one spelling of a default that manifests hold; raises InvalidSchema that names the column."""
    try:
        value = default_value(dtype, text)
    except InvalidSchema as error:
        raise InvalidSchema(f"the default of column {column!r}: {error.message}", column=column) from error
    return _written(dtype, value)


def _read(dtype: DataType, text: str) -> int | float | bytes | None:
    """The value, None when the type can have no default."""
    if dtype.order is None:
        return None
    if dtype.name == "boolean":
        return {"true": 1, "false": 0}[text.lower()] if text.lower() in ("true", "false") else _refuse()
    if dtype.is_float:
        code = _FLOAT_CODES[dtype.bits]
        rounded: float = struct.unpack(code, struct.pack(code, float(text)))[0]
        return rounded if math.isfinite(rounded) else _refuse()
    if dtype.name == "date":
        return (dt.date.fromisoformat(text) - _EPOCH_DAY).days
    if dtype.name in ("time", "timestamp", "timestamp_ntz"):
        return _moment(dtype, text)
    if dtype.is_text:
        return text.encode("utf-8")
    if dtype.order == "bytes":
        raw = bytes.fromhex(text.replace("-", "") if dtype.name == "uuid" else text)
        return raw if dtype.length in (0, len(raw)) else _refuse()
    number = Decimal(text)
    if not number.is_finite() or number.adjusted() >= _DIGITS.prec:
        return _refuse()
    scaled = _DIGITS.scaleb(number, dtype.scale)
    return int(scaled) if scaled == int(scaled) else _refuse()


def _moment(dtype: DataType, text: str) -> int:
    if _FINE.search(text):
        raise ValueError("finer than a microsecond")
    if dtype.name == "time":
        at = dt.time.fromisoformat(text)
        if at.tzinfo is not None:
            raise ValueError("a time of day has no zone")
        micros = ((at.hour * 60 + at.minute) * 60 + at.second) * 10**6 + at.microsecond
    else:
        moment = dt.datetime.fromisoformat(text)
        if (moment.tzinfo is not None) != (dtype.name == "timestamp"):
            raise ValueError("a timestamp has a zone, a timestamp_ntz has none")
        micros = (moment.replace(tzinfo=moment.tzinfo or dt.UTC) - _EPOCH) // _MICROSECOND
    scaled = micros * PER_SECOND[dtype.unit]
    return scaled // 10**6 if scaled % 10**6 == 0 else _refuse()


def _written(dtype: DataType, value: int | float | bytes) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8") if dtype.is_text else value.hex()
    if isinstance(value, float):
        return repr(value)
    if dtype.name == "boolean":
        return "true" if value else "false"
    if dtype.name == "date":
        return (_EPOCH_DAY + dt.timedelta(days=value)).isoformat()
    if dtype.name in ("time", "timestamp", "timestamp_ntz"):
        moment = _EPOCH + value * 10**6 // PER_SECOND[dtype.unit] * _MICROSECOND
        if dtype.name == "time":
            return moment.time().isoformat()
        naive = moment.replace(tzinfo=None).isoformat()
        return naive + "Z" if dtype.name == "timestamp" else naive
    return format(_DIGITS.scaleb(Decimal(value), -dtype.scale), "f") if dtype.scale else str(value)


def _refuse() -> int:
    raise ValueError("no value of the type")
