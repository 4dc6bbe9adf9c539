"""Dates and times of the oracle: Python's whole numbers and ``zoneinfo``, row by row."""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from zoneinfo import ZoneInfo

DAY_US = 86_400 * 10**6
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # wall clock on purpose
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Undecided(Exception):  # no error: the oracle does not know
    """Python cannot say what Spark would give for this row."""


@lru_cache(maxsize=64)
def zone_of(name: str) -> dt.tzinfo:
    """A region, or an offset such as ``+05:30``."""
    if name[0] in "+-":
        minutes = int(name[1:3]) * 60 + int(name[4:6])
        return dt.timezone(dt.timedelta(minutes=-minutes if name[0] == "-" else minutes))
    return dt.UTC if name == "UTC" else ZoneInfo(name)


def wall_of(instant_us: int, zone: dt.tzinfo) -> int:
    """What the clocks show at an instant."""
    if zone is dt.UTC:
        return instant_us
    try:
        shown = (_EPOCH_UTC + dt.timedelta(microseconds=instant_us)).astimezone(zone)
    except OverflowError as error:
        raise Undecided from error
    return _micros(shown.replace(tzinfo=None) - _EPOCH)


def instant_of(wall_us: int, zone: dt.tzinfo, *, like_us: int | None = None) -> int:
    """When the clocks show that: of two instants the earlier, or the one with the offset that holds at ``like_us``."""
    if zone is dt.UTC:
        return wall_us
    try:
        local = (_EPOCH + dt.timedelta(microseconds=wall_us)).replace(tzinfo=zone)
        first, second = (wall_us - _micros(local.replace(fold=fold).utcoffset() or dt.timedelta()) for fold in (0, 1))
        if like_us is not None and second > first and wall_of(like_us, zone) - like_us == wall_us - second:
            return second
    except OverflowError as error:
        raise Undecided from error
    return first


def midnight_of(days: int, zone: dt.tzinfo) -> int:
    """The instant at which a day begins: where the clocks skip its midnight, the instant of that."""
    at = instant_of(days * DAY_US, zone)
    if zone is dt.UTC or wall_of(at, zone) == days * DAY_US:
        return at
    before, after = at - 2 * DAY_US, at  # the clocks show an earlier day before the jump, this or a later one behind it
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if wall_of(middle, zone) < days * DAY_US else (before, middle)
    return after


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day since 1970-01-01 in the proleptic Gregorian calendar (400 years have 146,097 days)."""
    era, of_era = divmod(days + 719_162, 146_097)
    day = dt.date.fromordinal(of_era + 1)
    return day.year + 400 * era, day.month, day.day


def days_of(year: int, month: int, day: int) -> int:
    """The inverse of :func:`civil`."""
    era, rest = divmod(year - 1, 400)
    return dt.date(rest + 1, month, day).toordinal() - 1 - 719_162 + era * 146_097


def month_length(year: int, month: int) -> int:
    """Days of a month."""
    after = (year + 1, 1) if month == 12 else (year, month + 1)
    return days_of(*after, 1) - days_of(year, month, 1)


def moved_months(days: int, months: int) -> int:
    """The same day of another month, or its last."""
    year, month, day = civil(days)
    year, month = divmod(year * 12 + month - 1 + months, 12)
    return days_of(year, month + 1, min(day, month_length(year, month + 1)))


def date_part(part: str, days: int) -> int:
    """A part of a date; Sunday is day 1 of the week."""
    year, month, day = civil(days)
    if part in ("weekofyear", "yearofweek"):
        try:
            iso = (dt.date(1970, 1, 1) + dt.timedelta(days=days)).isocalendar()
        except OverflowError as error:
            raise Undecided from error
        return iso.week if part == "weekofyear" else iso.year
    return {
        "year": year,
        "weekday": (days + 3) % 7,
        "quarter": (month + 2) // 3,
        "month": month,
        "day": day,
        "dayofweek": (days + 4) % 7 + 1,
        "dayofyear": days - days_of(year, 1, 1) + 1,
    }[part]


def clock_part(part: str, wall_us: int) -> int:
    """A part of a time of day."""
    second = wall_us // 10**6 % 86_400
    return {"hour": second // 3600, "minute": second // 60 % 60, "second": second % 60}[part]


def first_day(unit: str, days: int) -> int:
    """The first day of a year, quarter, month or week (from Monday)."""
    year, month, _ = civil(days)
    if unit == "week":
        return days - (days + 3) % 7
    return days_of(year, {"year": 1, "quarter": (month - 1) // 3 * 3 + 1, "month": month}[unit], 1)


def truncated(unit: str, instant_us: int, zone: dt.tzinfo) -> int:
    """``date_trunc``: of days and longer, the midnight of the first; of shorter ones, keeping the offset."""
    wall = wall_of(instant_us, zone)
    if unit in ("year", "quarter", "month", "week"):
        return midnight_of(first_day(unit, wall // DAY_US), zone)
    length = {"day": DAY_US, "hour": 3600 * 10**6, "minute": 60 * 10**6, "second": 10**6}[unit]
    return instant_of(wall // length * length, zone, like_us=instant_us)


def _micros(span: dt.timedelta) -> int:
    return (span.days * 86_400 + span.seconds) * 10**6 + span.microseconds
