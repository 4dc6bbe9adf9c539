"""Values of columns as people read them: spelled as SQL would, long ones cut."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Final

import msgspec

from lamella.snapshot.expression.nodes import Literal
from lamella.snapshot.expression.text import TEXT_SHOWN, literal_text
from lamella.snapshot.schema import DataType
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.stats.bound import Value

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # a time zone is written behind where there is one
_SECONDS: Final = {"ms": 3, "us": 6, "ns": 9}
_UUID_BYTES: Final = 16


class ValueText(msgspec.Struct, frozen=True):
    """``is_cut``: the value goes on behind ``text``, which ends in an ellipsis."""

    text: str
    is_cut: bool = False


def value_text(dtype: DataType, value: Value) -> ValueText:
    """A value of a type's order; instants are in UTC, and moments beyond the year 9999 or before 1 are numbers."""
    if isinstance(value, bytes):
        return _bytes(dtype, value)
    if dtype.is_float:
        number = float(value)
        special = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
        return ValueText(special.get(number, repr(number)))
    whole = int(value)
    if dtype.name == "boolean":
        return ValueText("true" if whole else "false")
    if dtype.name == "decimal" and dtype.scale:
        digits = str(abs(whole)).rjust(dtype.scale + 1, "0")
        return ValueText(f"{'-' if whole < 0 else ''}{digits[: -dtype.scale]}.{digits[-dtype.scale :]}")
    if dtype.name in ("date", "time", "timestamp", "timestamp_ntz"):
        return ValueText(_moment(dtype, whole))
    return ValueText(str(whole))


def _bytes(dtype: DataType, value: bytes) -> ValueText:
    if dtype.name == "uuid" and len(value) == _UUID_BYTES:
        return ValueText(f"'{uuid.UUID(bytes=value)}'")
    if dtype.is_text:
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:  # a bound may end inside a character
            pass
        else:
            return ValueText(literal_text(Literal("string", text)), len(text) > TEXT_SHOWN)
    return ValueText(literal_text(Literal("binary", value)), len(value.hex()) > TEXT_SHOWN)


def _moment(dtype: DataType, value: int) -> str:
    if dtype.name == "date":
        try:
            return f"'{(_EPOCH + dt.timedelta(days=value)).date().isoformat()}'"
        except OverflowError:
            return f"date_from_unix_date({value})"
    seconds, part = divmod(value, PER_SECOND[dtype.unit])
    fraction = f".{part:0{_SECONDS[dtype.unit]}}".rstrip("0") if part else ""
    try:
        moment = _EPOCH + dt.timedelta(seconds=seconds)
    except OverflowError:
        return f"timestamp_micros({value * (10**6 // PER_SECOND[dtype.unit])})"
    if dtype.name == "time":
        return f"'{moment.time().isoformat()}{fraction}'"
    zone = "+00:00" if dtype.name == "timestamp" else ""
    return f"'{moment.isoformat(' ')}{fraction}{zone}'"
