"""Parses dates, timestamps and single-precision numbers of literals as Spark's casts do.

Each parser returns None for text whose meaning is not certain: the caller then keeps instead of skipping.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
import re
import struct
import zoneinfo
from functools import lru_cache
from typing import Final

_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH_TIME: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ZONES_AGREE_SINCE_S: Final = 946_684_800  # 2000-01-01
_TEXT: Final = re.compile(
    r"^\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?"  # Spark accepts a zone only after seconds
    r" *(Z|UTC|[+-]\d{1,2}:\d{2}|[A-Za-z_]+/[A-Za-z_/]+)?)?)?)?)?\s*$",
    re.ASCII,
)
_TIME: Final = re.compile(r"^\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{0,9}))?)?\s*$", re.ASCII)
_OFFSET: Final = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(?:(\d{1,2})(?::(\d{1,2})(?::(\d{2}))?)?|(\d{2})(\d{2})(\d{2})?)", re.ASCII
)
#: Java's three-letter names (java.time.ZoneId.SHORT_IDS), which Spark's session zone may have.
_SHORT: Final = {
    **{"EST": "-05:00", "HST": "-10:00", "MST": "-07:00", "ACT": "Australia/Darwin", "AET": "Australia/Sydney"},
    **{"AGT": "America/Argentina/Buenos_Aires", "ART": "Africa/Cairo", "AST": "America/Anchorage"},
    **{"BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns"},
    **{"CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris"},
    **{"IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia"},
    **{"NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix"},
    **{"PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal"},
    **{"VST": "Asia/Ho_Chi_Minh"},
}


@lru_cache(maxsize=256)
def zone(name: str) -> dt.tzinfo | None:
    """Returns the time zone of a name or offset as spelled in Spark's sessions (``+2``, ``GMT+02:00``), None if it is
    invalid."""
    name = _SHORT.get(name, name)
    if name in ("Z", "UTC", "GMT", "UT", "Etc/UTC"):
        return dt.UTC
    match = _OFFSET.fullmatch(name)
    if match:
        hours, minutes, seconds = (int(match[at] or match[at + 3] or 0) for at in (2, 3, 4))
        offset = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if minutes > 59 or seconds > 59 or offset > dt.timedelta(hours=18):
            return None
        return dt.timezone(-offset if match[1] == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def is_utc(name: str) -> bool:
    """Returns whether the session's zone is UTC itself, where wall clock and instant are equal."""
    return zone(name) is dt.UTC


def date_days(text: str) -> int | None:
    """Returns the days since 1970-01-01 of ``yyyy[-m[-d]]``; a following time is cut, as in Spark's cast."""
    match = _TEXT.match(text)
    if match is None:
        return None
    try:
        day = dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        return None
    return day.toordinal() - _EPOCH


def wall_us(text: str) -> int | None:
    """Returns the microseconds of a wall clock time since 1970-01-01 00:00; None if a zone is given."""
    parsed = _wall(text)
    return None if parsed is None or parsed[1] is not None else parsed[0]


def instant_us(text: str, time_zone: str) -> int | None:
    """Returns the microseconds since the epoch of a time in its own zone, else in ``time_zone``.

    In a gap (spring) and an overlap (autumn) the offset before the transition applies, as in java.time.
    """
    parsed = _wall(text)
    if parsed is None:
        return None
    micros, named = parsed
    at = named or time_zone
    return micros if zone(at) is dt.UTC else to_instant_us(micros, at)


def to_instant_us(wall_clock_us: int, time_zone: str) -> int | None:
    """Returns the instant at which the clocks of ``time_zone`` show a wall clock time.

    None outside the years 1 to 9999, and in a region's zone before 2000: Java's and Python's copies of the time zone
    database differ for a hundred zones before 1970 and for four until 1996, and agree since then.
    """
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
    at = seconds - offset.days * 86_400 - offset.seconds
    if isinstance(tz, zoneinfo.ZoneInfo) and at < _ZONES_AGREE_SINCE_S:
        return None
    return at * 1_000_000 + rest


def wall_clock_us(instant_us: int, time_zone: str) -> int | None:
    """Returns what the clocks of ``time_zone`` show at an instant; None as :func:`to_instant_us`."""
    tz = zone(time_zone)
    if tz is None or tz is dt.UTC:
        return None if tz is None else instant_us
    if isinstance(tz, zoneinfo.ZoneInfo) and instant_us < _ZONES_AGREE_SINCE_S * 1_000_000:
        return None
    try:
        shown = (_EPOCH_TIME + dt.timedelta(microseconds=instant_us)).astimezone(tz)
    except (OverflowError, ValueError):
        return None
    return (shown.replace(tzinfo=dt.UTC) - _EPOCH_TIME) // dt.timedelta(microseconds=1)


def only_instant_us(wall_clock_us: int, time_zone: str) -> int | None:
    """Like :func:`to_instant_us`, but also None if the clocks skip that time or show it twice."""
    tz = zone(time_zone)
    try:
        local = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=wall_clock_us)  # noqa: DTZ001  # wall clock
        if local.replace(tzinfo=tz, fold=0).utcoffset() != local.replace(tzinfo=tz, fold=1).utcoffset():
            return None
    except (OverflowError, ValueError):
        return None
    return to_instant_us(wall_clock_us, time_zone)


def midnight_us(days: int, time_zone: str) -> int | None:
    """Returns the instant at which a day (since 1970-01-01) begins; None if the clocks skip its midnight."""
    wall = days * 86_400_000_000
    instant, tz = to_instant_us(wall, time_zone), zone(time_zone)
    if instant is None or tz is None or tz is dt.UTC:
        return instant
    try:
        shown = (_EPOCH_TIME + dt.timedelta(microseconds=instant)).astimezone(tz)
    except (OverflowError, ValueError):
        return None
    return instant if shown.replace(tzinfo=dt.UTC) == _EPOCH_TIME + dt.timedelta(days=days) else None


def time_of_day_us(text: str) -> int | None:
    """Returns the microseconds since midnight of ``hh:mm[:ss[.ffffff]]``."""
    match = _TIME.match(text)
    if match is None:
        return None
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + _fraction(match[4])


#: A date as Spark's cast reads it; text after a day and a space or a T is a time, or ignored for a date.
_ANY_DATE: Final = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", re.ASCII)
_ANY_CLOCK: Final = re.compile(r"T?(\d{1,2}):(\d{1,2})(?::(\d{1,2}))?", re.ASCII)
_TRIMMED: Final = "".join(map(chr, (*range(33), *range(127, 160))))  # what Spark's casts remove from both ends
#: What Spark's cast from text accepts besides dates and times written in digits.
_SPECIAL: Final = re.compile(r"(epoch|now|today|tomorrow|yesterday)\b.*", re.ASCII | re.IGNORECASE | re.DOTALL)


def is_impossible(text: str, kind: str) -> bool:
    """Returns whether Spark's cast of text to a ``date``, ``timestamp`` or ``time`` certainly fails
    (CAST_INVALID_INPUT).

    False means that it may fail or not: some spellings are accepted only by Spark.
    """
    trimmed = text.strip(_TRIMMED)
    if not trimmed.isascii():
        return not any(each.isdigit() for each in trimmed)
    if kind == "time":
        clock = _ANY_CLOCK.match(trimmed)
        return _is_impossible_clock(clock) if clock else not any(each.isdigit() for each in trimmed)
    if _SPECIAL.fullmatch(trimmed):
        return False
    date = _ANY_DATE.match(trimmed)
    if date is None:
        clock = _ANY_CLOCK.match(trimmed) if kind == "timestamp" else None
        return _is_impossible_clock(clock) if clock else kind == "date" or not any(each.isdigit() for each in trimmed)
    rest = trimmed[date.end() :]
    if rest and (date[4] is None or rest[0] not in " T"):
        return kind == "date"
    if not _is_day(int(date[1] + date[2]), int(date[3] or 1), int(date[4] or 1)):
        return True
    clock = _ANY_CLOCK.match(rest[1:]) if kind == "timestamp" else None
    return clock is not None and _is_impossible_clock(clock)


def _is_impossible_clock(clock: re.Match[str]) -> bool:
    return int(clock[1]) > 23 or int(clock[2]) > 59 or int(clock[3] or 0) > 59


def _is_day(year: int, month: int, day: int) -> bool:
    if not 1 <= month <= 12:
        return False
    return 1 <= day <= calendar.monthrange(2000 + year % 400, month)[1]  # the calendar repeats after 400 years


def is_finer_than_us(text: str) -> bool:
    """Returns whether a time's text has digits after its microseconds."""
    match = _TEXT.match(text) or _TIME.match(text)
    digits = (match[7 if match.re is _TEXT else 4] if match else None) or ""
    return digits[6:].strip("0") != ""


def _wall(text: str) -> tuple[int, str | None] | None:
    match = _TEXT.match(text)
    if match is None:
        return None
    year, month, day, *time, fraction, named = match.groups()
    try:
        days = dt.date(int(year), int(month or 1), int(day or 1)).toordinal() - _EPOCH
    except ValueError:
        return None
    if time[0] is None:
        return days * 86_400_000_000, None
    hour, minute, second = int(time[0]), int(time[1]), int(time[2] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    seconds = days * 86_400 + (hour * 60 + minute) * 60 + second
    return seconds * 1_000_000 + (_fraction(fraction) if fraction else 0), named


def _fraction(digits: str | None) -> int:
    return int(((digits or "") + "000000")[:6])  # Spark truncates digits after the microseconds


def is_between_singles(value: float) -> bool:
    """Returns whether a double is half-way between two 32-bit floats: its neighbours round to either side."""
    near = single(value)
    return math.isfinite(near) and near != value and single(2 * value - near) == 2 * value - near


def is_unicode(text: str) -> bool:
    """Returns whether text can be encoded as UTF-8 (no half of a surrogate pair)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def single(value: float) -> float:
    """Returns the nearest 32-bit float (infinite if too large)."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
