"""Parts and beginnings of dates and times, in the session's time zone.

Wall clock times are not monotone: where clocks go back, a later instant shows an earlier time. Bounds of wall clock
times therefore use the minimum and maximum offset of the whole range of instants (the problem of
databendlabs/databend#20241), and bounds of instants those around the wall clock times.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.zones import Spans, Zones
from lamella.snapshot.function.base import SAFE, Span, Vector, result, span_of, strict, whole_numbers
from lamella.snapshot.schema import parse_type

# Offsets of a time zone from UTC, as bounds over ranges of instants.
#
# Rows need the exact offset, and get it where Java's and Python's copies of the time zone database agree: from 1970 on
# (compared for every region of Java 17 and tzdata 2025b, up to the year 9998), except for four regions not before 1997.
# Elsewhere it is unknown.

MicrosArray = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_SECOND: Final = 1_000_000
#: java.time allows no offset beyond 18 hours.
WIDEST_US: Final = 18 * 3_600 * _SECOND
_TRUSTED_FROM_S: Final = 946_684_800  # 2000-01-01
_TRUSTED_UNTIL_S: Final = 2_145_916_800  # 2038-01-01
_DAY_S: Final = 86_400
_MINUTE_US: Final = 60 * _SECOND
#: The last instant that the standard library can convert, less a day for the offset.
_LAST_S: Final = 253_402_214_400
_AGREED_FROM_S: Final = -2_678_400  # 1969-12-01, so that the beginning of 1970 is known in every zone
#: Regions whose offsets differ between Java and Python, the last of them until 1996.
_AGREED_SINCE_1996_S: Final = 849_398_400  # 1996-12-01
_ZONES_SINCE_1996: Final = frozenset({"WET", "EET", "Asia/Tehran", "Iran"})
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Offsets(msgspec.Struct, frozen=True, eq=False):
    """``starts``: the instants (microseconds, ascending) from which the ``offsets`` (microseconds) apply.

    A zone that is not a region has one constant offset. ``trusted_from`` and ``trusted_until`` limit the known range.
    """

    starts: Any
    offsets: Any
    trusted_from: int
    trusted_until: int
    zone: dt.tzinfo | None = None

    def between(self, low: MicrosArray, high: MicrosArray) -> tuple[MicrosArray, MicrosArray]:
        """Returns the minimum and maximum offset in each range of instants, both ends included."""
        if len(self.offsets) == 1 and self.trusted_from < -(1 << 62):
            fixed = np.full(len(low), self.offsets[0], dtype=np.int64)
            return fixed, fixed
        first = np.searchsorted(self.starts, low, side="right") - 1
        last = np.searchsorted(self.starts, high, side="right") - 1
        exact = first == last
        at = np.maximum(first, 0)
        lowest = np.where(exact, self.offsets[at], self.offsets.min())
        highest = np.where(exact, self.offsets[at], self.offsets.max())
        trusted = (low >= self.trusted_from) & (high < self.trusted_until)
        return np.where(trusted, lowest, -WIDEST_US), np.where(trusted, highest, WIDEST_US)

    def at(self, instants: MicrosArray) -> tuple[MicrosArray, Flags]:
        """Returns the offset at each instant, and where it is known."""
        if not isinstance(self.zone, zoneinfo.ZoneInfo):
            return np.full(len(instants), self.offsets[0], dtype=np.int64), np.ones(len(instants), dtype=bool)
        starts, offsets, since = _transitions(self.zone)
        found = offsets[np.maximum(np.searchsorted(starts, instants, side="right") - 1, 0)]
        untrusted = instants >= _TRUSTED_UNTIL_S * _SECOND
        if untrusted.any():
            found = found.copy()
            found[untrusted] = _probed(self.zone, instants[untrusted], wall=False)
        return found, np.asarray((instants >= since) & (instants < _LAST_S * _SECOND))

    def instants(self, walls: MicrosArray, *, starts_of_days: bool = False) -> tuple[MicrosArray, Flags]:
        """Returns the instant at which the clocks show each wall clock time, and where it is known.

        As in java.time, the offset before a transition applies in a gap and in an overlap. ``starts_of_days``: walls
        are midnights, and one that the clocks skip stands for the end of the gap (``LocalDate.atStartOfDay``).
        """
        if not isinstance(self.zone, zoneinfo.ZoneInfo):
            return walls - self.offsets[0], np.ones(len(walls), dtype=bool)
        starts, offsets, since = _transitions(self.zone)
        ends = starts[1:] + np.maximum(offsets[:-1], offsets[1:])  # of each offset's wall clock time
        index = np.searchsorted(ends, walls, side="right")
        found = walls - offsets[index]
        if starts_of_days and len(starts) > 1:
            following = starts[np.minimum(index + 1, len(starts) - 1)]
            found = np.where((index + 1 < len(starts)) & (found > following), following, found)
        known = (found >= since) & (found < _LAST_S * _SECOND)
        untrusted = known & (walls >= _TRUSTED_UNTIL_S * _SECOND - WIDEST_US)
        if untrusted.any():
            found[untrusted] = walls[untrusted] - _probed(self.zone, walls[untrusted], wall=True)
            if starts_of_days:
                shown = found + self.at(found)[0]
                known = known & ~(untrusted & (shown != walls))
        return found, np.asarray(known)


def fixed(offset_us: int) -> Offsets:
    """Returns the offsets of UTC and of zones that are offsets."""
    return Offsets(np.array([-(1 << 63)]), np.array([offset_us]), -(1 << 63), (1 << 63) - 1)


@lru_cache(maxsize=64)
def offsets_of(zone: dt.tzinfo) -> Offsets:
    """Returns the offsets of a zone; those of a region by probing it day after day, since the standard library hides
    its table."""
    if not isinstance(zone, zoneinfo.ZoneInfo):
        return fixed(_offset_s(zone, 0) * _SECOND)
    starts, offsets = [_TRUSTED_FROM_S], [_offset_s(zone, _TRUSTED_FROM_S)]
    for day in range(_TRUSTED_FROM_S + _DAY_S, _TRUSTED_UNTIL_S + 1, _DAY_S):
        if _offset_s(zone, day) != offsets[-1]:
            starts.append(_transition(zone, day - _DAY_S, day))
            offsets.append(_offset_s(zone, day))
    return Offsets(
        np.array(starts, dtype=np.int64) * _SECOND,
        np.array(offsets, dtype=np.int64) * _SECOND,
        _TRUSTED_FROM_S * _SECOND,
        _TRUSTED_UNTIL_S * _SECOND,
        zone,
    )


@lru_cache(maxsize=64)
def _transitions(zone: zoneinfo.ZoneInfo) -> tuple[MicrosArray, MicrosArray, int]:
    """Returns the instants from which offsets apply, the offsets, and the instant from which they are known; until
    2038."""
    since = _AGREED_SINCE_1996_S if zone.key in _ZONES_SINCE_1996 else _AGREED_FROM_S
    starts, offsets = [since], [_offset_s(zone, since)]
    for day in range(since + _DAY_S, _TRUSTED_UNTIL_S + 2 * _DAY_S, _DAY_S):
        if _offset_s(zone, day) != offsets[-1]:
            starts.append(_transition(zone, day - _DAY_S, day))
            offsets.append(_offset_s(zone, day))
    return (
        np.array(starts, dtype=np.int64) * _SECOND,
        np.array(offsets, dtype=np.int64) * _SECOND,
        since * _SECOND,
    )


def _probed(zone: zoneinfo.ZoneInfo, times: MicrosArray, *, wall: bool) -> MicrosArray:
    """Returns the offset at each instant (or wall clock time), probed minute by minute."""
    minutes, inverse = np.unique(times // _MINUTE_US, return_inverse=True)
    found = np.zeros(len(minutes), dtype=np.int64)
    for index, minute in enumerate(minutes.tolist()):
        seconds = min(max(minute * 60, _AGREED_FROM_S), _LAST_S)
        if wall:
            local = (_EPOCH + dt.timedelta(seconds=seconds)).replace(tzinfo=zone, fold=0)
            offset = local.utcoffset() or dt.timedelta()
            found[index] = (offset.days * _DAY_S + offset.seconds) * _SECOND
        else:
            found[index] = _offset_s(zone, seconds) * _SECOND
    return found[inverse.reshape(-1)]


def _transition(zone: dt.tzinfo, before: int, after: int) -> int:
    """Returns the first second with the offset that applies at ``after``; there is one change in between."""
    wanted = _offset_s(zone, after)
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (before, middle) if _offset_s(zone, middle) == wanted else (middle, after)
    return after


def _offset_s(zone: dt.tzinfo, second: int) -> int:
    offset = (_EPOCH + dt.timedelta(seconds=second)).astimezone(zone).utcoffset()
    if offset is None:
        raise ValueError(f"{zone} has no offset")
    return offset.days * _DAY_S + offset.seconds


_Numbers = npt.NDArray[np.int64]
DatePart = Literal["year", "quarter", "month", "day", "dayofweek", "dayofyear", "weekday", "weekofyear", "yearofweek"]
ClockPart = Literal["hour", "minute", "second"]
Unit = Literal["year", "quarter", "month", "week", "day", "hour", "minute", "second"]

_INT: Final = parse_type("int32")
_DATE: Final = parse_type("date")
_WALL: Final = parse_type("timestamp_ntz(us)")
_INSTANT: Final = parse_type("timestamp(us)")
_CLOCK_US: Final = {"second": 10**6, "minute": 60 * 10**6, "hour": 3_600 * 10**6, "day": 86_400 * 10**6}
_DAY_US: Final = _CLOCK_US["day"]
_NO_OFFSET: Final = "a time at which the offset of the session's time zone is not certain"
#: Days beyond these are not computed with; Spark's own dates end at the years -5877641 and 5881580.
_FAR_DAYS: Final = 100_000_000
#: The minimum and maximum of each part of a date.
_PART_LIMITS: Final = {
    "quarter": (1, 4),
    "month": (1, 12),
    "day": (1, 31),
    "dayofweek": (1, 7),
    "weekday": (0, 6),
    "dayofyear": (1, 366),
    "weekofyear": (1, 53),
}


class Wall(msgspec.Struct, frozen=True, gc=False):
    """The wall clock time at an instant: ``timestamp`` to ``timestamp_ntz``, in microseconds."""

    offsets: Offsets
    factor: int = 1  # microseconds in the column's unit

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the wall clock times."""
        span, _ = _micros(span_of(arguments[0]), self.factor)
        low = np.where(span.low_known, span.low, -SAFE)
        high = np.where(span.high_known, span.high, SAFE)
        lowest, highest = self.offsets.between(low, high)
        return result(_WALL, span._replace(low=low + lowest, high=high + highest), arguments)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the wall clock times; one with an unknown offset has failed."""
        instants, fits = _as_micros(arguments[0], self.factor)
        offsets, known = self.offsets.at(instants)
        return strict(instants + offsets, arguments, failed=~(known & fits), reason=_NO_OFFSET)


class Micros(msgspec.Struct, frozen=True, gc=False):
    """A time in milliseconds (times ``factor``) or days, as microseconds of a wall clock."""

    factor: int

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the wall clock times; values beyond 64 bits may fail."""
        span, _ = _micros(span_of(arguments[0]), self.factor)
        return result(_WALL, span, arguments, may_fail=~span.known)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the wall clock times; one beyond 64 bits has failed."""
        walls, fits = _as_micros(arguments[0], self.factor)
        return strict(walls, arguments, failed=~fits, reason="a time beyond 64 bits")


class Day(msgspec.Struct, frozen=True, gc=False):
    """The day of a wall clock time."""

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the days since 1970-01-01."""
        span = span_of(arguments[0])
        return result(_DATE, span._replace(low=span.low // _DAY_US, high=span.high // _DAY_US), arguments)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the days since 1970-01-01."""
        return strict(arguments[0].values // _DAY_US, arguments)


class PartOfDate(msgspec.Struct, frozen=True, gc=False):
    """A part of a date, in the proleptic Gregorian calendar; Sunday is day 1 of the week."""

    part: DatePart

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the parts: from bound to bound if both are in one enclosing unit, else the full
        range."""
        span = _near(span_of(arguments[0]))
        low, high = part_of(self.part, span.low), part_of(self.part, span.high)
        if self.part not in _PART_LIMITS:  # years do not begin again
            return result(_INT, Span(low, high, span.low_known, span.high_known), arguments)
        units = _units(self.part, span.high) - _units(self.part, span.low)
        return _cyclic(span, low, high, units, _PART_LIMITS[self.part], arguments)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the parts."""
        return strict(part_of(self.part, arguments[0].values), arguments)


class PartOfClock(msgspec.Struct, frozen=True, gc=False):
    """Hour, minute or second of a wall clock time."""

    part: ClockPart

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the parts."""
        span = span_of(arguments[0])
        low, high = clock_part(self.part, span.low), clock_part(self.part, span.high)
        outer = {"hour": "day", "minute": "hour", "second": "minute"}[self.part]
        units = span.high // _CLOCK_US[outer] - span.low // _CLOCK_US[outer]
        return _cyclic(span, low, high, units, (0, 23 if self.part == "hour" else 59), arguments)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the parts."""
        return strict(clock_part(self.part, arguments[0].values), arguments)


class StartOfDay(msgspec.Struct, frozen=True, gc=False):
    """``trunc(date, unit)``: the first day of the unit that a day lies in."""

    unit: Unit

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the first days."""
        span = _near(span_of(arguments[0]))
        low, high = start_of_day(self.unit, span.low), start_of_day(self.unit, span.high)
        return result(_DATE, span._replace(low=low, high=high), arguments, may_fail=~span.known)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the first days."""
        return _days(start_of_day(self.unit, arguments[0].values), arguments)


class StartOfWall(msgspec.Struct, frozen=True, gc=False):
    """``date_trunc(unit, timestamp_ntz)``: the wall clock time at which the unit began."""

    unit: Unit

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the beginnings."""
        span = span_of(arguments[0])
        low, high = start_of_wall(self.unit, span.low), start_of_wall(self.unit, span.high)
        return result(_WALL, span._replace(low=low, high=high), arguments, may_fail=~span.known)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the beginnings."""
        return strict(start_of_wall(self.unit, arguments[0].values), arguments)


class Instant(msgspec.Struct, frozen=True, gc=False):
    """The instant at which the clocks show a wall clock time, by the offset before a gap or an overlap.

    ``of_date``: the wall clock time is the midnight of a date; one that the clocks skip is the end of the gap.
    """

    offsets: Offsets
    of_date: bool = False

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the instants."""
        span, _ = _micros(span_of(arguments[0]), 1)
        low = np.where(span.low_known, span.low, -SAFE)
        high = np.where(span.high_known, span.high, SAFE)
        lowest, highest = self.offsets.between(low - 2 * WIDEST_US, high + 2 * WIDEST_US)
        return result(_INSTANT, span._replace(low=low - highest, high=high - lowest), arguments)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the instants; one with an unknown offset has failed."""
        instants, known = self.offsets.instants(arguments[0].values, starts_of_days=self.of_date)
        return strict(instants, arguments, failed=~known, reason=_NO_OFFSET)


class StartOfInstant(msgspec.Struct, frozen=True, gc=False):
    """``date_trunc(unit, timestamp)``: the instant at which the unit began on the wall clock.

    For days and shorter units the offset of the instant itself applies if the clocks show the beginning twice. Longer
    units begin with the first instant of a day.
    """

    unit: Unit
    offsets: Offsets
    factor: int = 1  # microseconds in the column's unit

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the beginnings: through the wall clock, with either offset allowed."""
        walls = Wall(self.offsets, self.factor).zones(*arguments)
        return Instant(self.offsets).zones(StartOfWall(self.unit).zones(walls))

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the beginnings; one with an unknown offset has failed."""
        instants, fits = _as_micros(arguments[0], self.factor)
        offsets, known = self.offsets.at(instants)
        starts = start_of_wall(self.unit, instants + offsets)
        found, found_known = self.offsets.instants(starts, starts_of_days=self.unit not in _CLOCK_US)
        if self.unit in _CLOCK_US:
            mine = starts - offsets
            now, now_known = self.offsets.at(mine)
            found = np.where(now_known & (now == offsets), mine, found)
        return strict(found, arguments, failed=~(known & fits & found_known), reason=_NO_OFFSET)


class LastDay(msgspec.Struct, frozen=True, gc=False):
    """``last_day(date)``: the last day of its month."""

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the days."""
        span = _near(span_of(arguments[0]))
        made = span._replace(low=_last(span.low), high=_last(span.high))
        return result(_DATE, made, arguments, may_fail=~span.known)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the days."""
        return _days(_last(arguments[0].values), arguments)


class AddMonths(msgspec.Struct, frozen=True, gc=False):
    """``add_months(date, months)``: the same day of another month, or its last day; monotone in the date."""

    months: int

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the days."""
        span = _near(span_of(arguments[0]))
        low, high = (add_months(side, self.months) for side in (span.low, span.high))
        return result(_DATE, span._replace(low=low, high=high), arguments, may_fail=~span.known)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the days."""
        return _days(add_months(arguments[0].values, self.months), arguments)


class AddMonthsToWall(msgspec.Struct, frozen=True, gc=False):
    """A wall clock time ``months`` later: the same time on the day that :class:`AddMonths` gives."""

    months: int

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the wall clock times: whole days, since several days may become one."""
        span = span_of(arguments[0])
        days = _near(span._replace(low=span.low // _DAY_US, high=span.high // _DAY_US))
        low, high = (add_months(side, self.months) * _DAY_US for side in (days.low, days.high))
        return result(_WALL, days._replace(low=low, high=high + _DAY_US - 1), arguments, may_fail=~days.known)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the wall clock times."""
        walls = arguments[0].values
        days = walls // _DAY_US
        near = (days > -_FAR_DAYS) & (days < _FAR_DAYS)
        moved = add_months(np.where(near, days, 0), self.months) * _DAY_US + walls % _DAY_US
        return strict(moved, arguments, failed=~near, reason="a time that is too far away")


class MovedInstant(msgspec.Struct, frozen=True, gc=False):
    """An instant moved by days or months of the clocks: the same time on another day.

    Where the clocks show the time twice, the offset of the instant itself applies if it can; where they skip it, the
    offset before (java.time's ``plusDays`` and ``plusMonths``).
    """

    offsets: Offsets
    days: int = 0
    months: int = 0
    factor: int = 1  # microseconds in the column's unit

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the instants: through the wall clock, with either offset allowed."""
        walls = Wall(self.offsets, self.factor).zones(*arguments)
        if self.months:
            walls = AddMonthsToWall(self.months).zones(walls)
        span, shift = span_of(walls), self.days * _DAY_US
        near = span.known & (np.abs(span.low) < SAFE - abs(shift)) & (np.abs(span.high) < SAFE - abs(shift))
        low, high = (np.where(near, side, 0) + shift for side in (span.low, span.high))
        return Instant(self.offsets).zones(result(_WALL, Span(low, high, near, near), [walls], may_fail=~near))

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the instants; one with an unknown offset has failed."""
        instants, fits = _as_micros(arguments[0], self.factor)
        offsets, known = self.offsets.at(instants)
        walls = instants + offsets
        days = walls // _DAY_US
        near = (days > -_FAR_DAYS // 2) & (days < _FAR_DAYS // 2)
        moved = add_months(np.where(near, days, 0), self.months) + self.days
        walls = moved * _DAY_US + walls % _DAY_US
        found, found_known = self.offsets.instants(walls)
        mine = walls - offsets
        now, now_known = self.offsets.at(mine)
        found = np.where(now_known & (now == offsets), mine, found)
        return strict(found, arguments, failed=~(known & fits & near & found_known), reason=_NO_OFFSET)


def part_of(part: DatePart, days: _Numbers) -> _Numbers:
    """Returns a part of each day since 1970-01-01."""
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]").astype(np.int64)
    if part == "year":
        return np.asarray(months // 12 + 1970)
    if part == "month":
        return np.asarray(months % 12 + 1)
    if part == "quarter":
        return np.asarray(months % 12 // 3 + 1)
    if part == "day":
        return np.asarray(days - start_of_day("month", days) + 1)
    if part == "dayofyear":
        return np.asarray(days - start_of_day("year", days) + 1)
    if part == "dayofweek":
        return np.asarray((days + 4) % 7 + 1)  # 1970-01-01 was a Thursday, 5
    if part == "weekday":
        return np.asarray((days + 3) % 7)
    thursdays = _thursday(days)
    return part_of("year", thursdays) if part == "yearofweek" else (part_of("dayofyear", thursdays) + 6) // 7


def clock_part(part: ClockPart, walls: _Numbers) -> _Numbers:
    """Returns a part of each wall clock time in microseconds."""
    return np.asarray(walls // _CLOCK_US[part] % (24 if part == "hour" else 60))


def start_of_day(unit: Unit, days: _Numbers) -> _Numbers:
    """Returns the first day of the year, quarter, month or week (from Monday) of each day."""
    if unit == "week":
        return np.asarray(days - (days + 3) % 7)
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    whole = {"year": 12, "quarter": 3, "month": 1}[unit]
    return np.asarray((months // whole * whole).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64))


def start_of_wall(unit: Unit, walls: _Numbers) -> _Numbers:
    """Returns the beginning of the unit that contains each wall clock time, in microseconds."""
    if unit in _CLOCK_US:
        return np.asarray(walls // _CLOCK_US[unit] * _CLOCK_US[unit])
    return start_of_day(unit, walls // _DAY_US) * _DAY_US


def add_months(days: _Numbers, months: int, *, last: bool = False) -> _Numbers:
    """Returns each day ``months`` months later, or the last day of that month if there is no such day (or always:
    ``last``)."""
    month = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    ends = (month + months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) - 1
    if last:
        return np.asarray(ends)
    begins = (month + months).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return np.asarray(np.minimum(begins + days - start_of_day("month", days), ends))


def _last(days: _Numbers) -> _Numbers:
    return add_months(days, 0, last=True)


def _as_micros(vector: Vector, factor: int) -> tuple[_Numbers, Mask]:
    """Returns times in microseconds, and where they fit 64 bits with room for an offset."""
    values = whole_numbers(vector)
    limit = (SAFE >> 1) // factor
    fits = np.asarray((values > -limit) & (values < limit))
    return np.where(fits, values, 0) * np.int64(factor), fits


def _days(values: _Numbers, arguments: tuple[Vector, ...]) -> Vector:
    low, high = _DATE.int_range
    return strict(values, arguments, failed=(values < low) | (values > high), reason="a day outside the range of dates")


def _thursday(days: _Numbers) -> _Numbers:
    """Returns the Thursday of each day's week from Monday: its year is the one that ISO 8601 counts the week to."""
    return np.asarray(days - (days + 3) % 7 + 3)


def _units(part: DatePart, days: _Numbers) -> _Numbers:
    """Returns the number of the unit, within which a part grows, that contains each day."""
    if part == "dayofweek":
        return np.asarray((days + 4) // 7)
    if part == "weekday":
        return np.asarray((days + 3) // 7)
    if part == "weekofyear":
        return part_of("yearofweek", days)
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return np.asarray(months if part == "day" else months // 12)


def _cyclic(
    span: Span, low: _Numbers, high: _Numbers, units: _Numbers, limits: tuple[int, int], arguments: Sequence[Zones]
) -> Zones:
    """Returns zone maps of parts that repeat with each enclosing unit; ``units`` is the number of units between the
    bounds.

    Within one unit the parts lie between those of the bounds. Across one border they are the last ones of the first
    unit and the first ones of the next, with a gap between if these do not meet.
    """
    everywhere = np.ones(len(low), dtype=bool)
    one = span.known & (units == 0)
    lowest, highest = limits
    made = Span(np.where(one, low, lowest), np.where(one, high, highest), everywhere, everywhere)
    zones = result(_INT, made, arguments)
    across = span.known & (units == 1) & (high < low)
    if across.any():
        offsets = np.concatenate([[0], np.cumsum(across * 4)])
        edges = [np.full_like(low, lowest), high, low, np.full_like(high, highest)]
        zones.spans = Spans(offsets, np.stack(edges, axis=1)[across].reshape(-1))
    return zones


def _near(span: Span) -> Span:
    """Returns a span of days, unknown where it is too far away to compute with: Spark may overflow there."""
    low_near, high_near = ((side > -_FAR_DAYS) & (side < _FAR_DAYS) for side in (span.low, span.high))
    return Span(
        np.where(low_near, span.low, 0),
        np.where(high_near, span.high, 0),
        span.low_known & low_near,
        span.high_known & high_near,
    )


def _micros(span: Span, factor: int) -> tuple[Span, Mask]:
    """Returns a span in microseconds, and where both known sides are far enough from the ends of 64 bits."""
    limit = (SAFE >> 1) // factor
    fits: Any = np.ones(len(span.low), dtype=bool)
    for side, known in ((span.low, span.low_known), (span.high, span.high_known)):
        fits = fits & (~known | ((side > -limit) & (side < limit)))
    with np.errstate(over="ignore"):
        low, high = span.low * np.int64(factor), span.high * np.int64(factor)
    return Span(low, high, span.low_known & fits, span.high_known & fits), np.asarray(fits)
