"""Dates, timestamps and single-precision numbers of literals, read as Spark's casts read them.

Each reader answers None for text that is not certain to mean one thing: the caller then keeps instead of skipping.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
import zoneinfo
from functools import lru_cache
from typing import Final

_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
_TEXT: Final = re.compile(
    r"^\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?"
    r"\s*(Z|UTC|[+-]\d{1,2}:\d{2}|[A-Za-z_]+/[A-Za-z_/]+)?)?)?)?\s*$"
)
_TIME: Final = re.compile(r"^\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{0,9}))?)?\s*$")


@lru_cache(maxsize=256)
def zone(name: str) -> dt.tzinfo | None:
    """The time zone of that name or offset (``+02:00``), None when there is none."""
    if name in ("Z", "UTC", "GMT", "Etc/UTC", "+00:00", "-00:00"):
        return dt.UTC
    match = re.fullmatch(r"([+-])(\d{1,2}):(\d{2})", name)
    if match:
        minutes = int(match.group(2)) * 60 + int(match.group(3))
        if minutes > 18 * 60 or int(match.group(3)) > 59:
            return None
        return dt.timezone(dt.timedelta(minutes=-minutes if match.group(1) == "-" else minutes))
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def is_utc(name: str) -> bool:
    """True when the session's zone is UTC itself, where wall clock and instant are one."""
    return zone(name) is dt.UTC


def date_days(text: str) -> int | None:
    """Days since 1970-01-01 of ``yyyy[-m[-d]]``; a text that goes on with a time is cut, as Spark's cast does."""
    match = _TEXT.match(text)
    if match is None:
        return None
    try:
        day = dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        return None
    return day.toordinal() - _EPOCH


def wall_us(text: str) -> int | None:
    """Microseconds of a wall clock time since 1970-01-01 00:00; None when a zone is given."""
    parsed = _wall(text)
    return None if parsed is None or parsed[1] is not None else parsed[0]


def instant_us(text: str, time_zone: str) -> int | None:
    """Microseconds since the epoch of a time in its own zone, else in ``time_zone``.

    In a gap (spring) and an overlap (autumn) the offset before the transition counts, as in java.time.
    """
    parsed = _wall(text)
    if parsed is None:
        return None
    micros, named = parsed
    return to_instant_us(micros, named or time_zone)


def to_instant_us(wall_clock_us: int, time_zone: str) -> int | None:
    """The instant at which the clocks of ``time_zone`` show a wall clock time; None outside the years 1 to 9999."""
    tz = zone(time_zone)
    if tz is None:
        return None
    if tz is dt.UTC:
        return wall_clock_us
    seconds, rest = divmod(wall_clock_us, 1_000_000)
    try:
        local = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)  # noqa: DTZ001  # wall clock on purpose
        offset = local.replace(tzinfo=tz, fold=0).utcoffset()
    except (OverflowError, ValueError):
        return None
    if offset is None:
        return None
    return (seconds - offset.days * 86_400 - offset.seconds) * 1_000_000 + rest


def time_of_day_us(text: str) -> int | None:
    """Microseconds since midnight of ``hh:mm[:ss[.ffffff]]``."""
    match = _TIME.match(text)
    if match is None:
        return None
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + _fraction(match[4])


def _wall(text: str) -> tuple[int, str | None] | None:
    match = _TEXT.match(text)
    days = date_days(text)
    if match is None or days is None:
        return None
    hour, minute, second = (int(match[part] or 0) for part in (4, 5, 6))
    if hour > 23 or minute > 59 or second > 59:
        return None
    seconds = days * 86_400 + (hour * 60 + minute) * 60 + second
    return seconds * 1_000_000 + _fraction(match[7]), match[8]


def _fraction(digits: str | None) -> int:
    return int(((digits or "") + "000000")[:6])  # Spark cuts what is finer than a microsecond


def single(value: float) -> float:
    """The nearest 32-bit float (infinite when too large)."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
