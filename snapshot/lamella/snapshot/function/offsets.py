"""Offsets of a time zone from UTC, as bounds over ranges of instants.

Java's and Python's copies of the time zone database differ before 2000 (see ``expression.moments``), and nobody knows
the rules of later decades. Outside 2000 to 2037 a region's offset is therefore only known to be one that java.time
can have at all. Within, it is exact for ranges without a transition, else between the zone's least and greatest.

Rows need the very offset, and get it wherever the two copies were seen to agree: from 1970 on (compared for every
region of Java 17 and tzdata 2025b, up to the year 9998), but for four regions not before 1997. Elsewhere there is none.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

Micros = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_SECOND: Final = 1_000_000
#: java.time knows no offset beyond 18 hours.
WIDEST_US: Final = 18 * 3_600 * _SECOND
_TRUSTED_FROM_S: Final = 946_684_800  # 2000-01-01
_TRUSTED_UNTIL_S: Final = 2_145_916_800  # 2038-01-01
_DAY_S: Final = 86_400
_MINUTE_US: Final = 60 * _SECOND
#: The last instant that the standard library can convert, less a day for the offset.
_LAST_S: Final = 253_402_214_400
_AGREED_FROM_S: Final = -2_678_400  # 1969-12-01, so that what begins 1970 anywhere is known
#: Regions whose offsets Java and Python knew differently, the last of them until 1996.
_LATE_FROM_S: Final = 849_398_400  # 1996-12-01
_LATE: Final = frozenset({"WET", "EET", "Asia/Tehran", "Iran"})
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Offsets(msgspec.Struct, frozen=True, eq=False):
    """``starts``: the instants (microseconds, ascending) from which the ``offsets`` (microseconds) hold.

    A zone that is no region has one offset for ever. ``trusted_from`` and ``trusted_until`` bound what is known.
    """

    starts: Any
    offsets: Any
    trusted_from: int
    trusted_until: int
    zone: dt.tzinfo | None = None

    def between(self, low: Micros, high: Micros) -> tuple[Micros, Micros]:
        """The least and the greatest offset in each range of instants, both ends included."""
        if len(self.offsets) == 1 and self.trusted_from < -(1 << 62):
            fixed = np.full(len(low), self.offsets[0], dtype=np.int64)
            return fixed, fixed
        first = np.searchsorted(self.starts, low, side="right") - 1
        last = np.searchsorted(self.starts, high, side="right") - 1
        exact = first == last
        at = np.maximum(first, 0)
        least = np.where(exact, self.offsets[at], self.offsets.min())
        greatest = np.where(exact, self.offsets[at], self.offsets.max())
        trusted = (low >= self.trusted_from) & (high < self.trusted_until)
        return np.where(trusted, least, -WIDEST_US), np.where(trusted, greatest, WIDEST_US)

    def at(self, instants: Micros) -> tuple[Micros, Mask]:
        """The offset at each instant, and where it is known."""
        if not isinstance(self.zone, zoneinfo.ZoneInfo):
            return np.full(len(instants), self.offsets[0], dtype=np.int64), np.ones(len(instants), dtype=bool)
        starts, offsets, since = _transitions(self.zone)
        found = offsets[np.maximum(np.searchsorted(starts, instants, side="right") - 1, 0)]
        late = instants >= _TRUSTED_UNTIL_S * _SECOND
        if late.any():
            found = found.copy()
            found[late] = _asked(self.zone, instants[late], wall=False)
        return found, np.asarray((instants >= since) & (instants < _LAST_S * _SECOND))

    def instants(self, walls: Micros, *, starts_of_days: bool = False) -> tuple[Micros, Mask]:
        """The instant at which the clocks show each wall clock time, and where it is known.

        As in java.time, the offset before a transition counts in a gap and in an overlap. ``starts_of_days``: walls are
        midnights, and one that the clocks skip stands for the end of the gap (``LocalDate.atStartOfDay``).
        """
        if not isinstance(self.zone, zoneinfo.ZoneInfo):
            return walls - self.offsets[0], np.ones(len(walls), dtype=bool)
        starts, offsets, since = _transitions(self.zone)
        ends = starts[1:] + np.maximum(offsets[:-1], offsets[1:])  # of each offset's time on the wall
        index = np.searchsorted(ends, walls, side="right")
        found = walls - offsets[index]
        if starts_of_days and len(starts) > 1:
            following = starts[np.minimum(index + 1, len(starts) - 1)]
            found = np.where((index + 1 < len(starts)) & (found > following), following, found)
        known = (found >= since) & (found < _LAST_S * _SECOND)
        late = known & (walls >= _TRUSTED_UNTIL_S * _SECOND - WIDEST_US)
        if late.any():
            found[late] = walls[late] - _asked(self.zone, walls[late], wall=True)
            if starts_of_days:
                shown = found + self.at(found)[0]
                known = known & ~(late & (shown != walls))
        return found, np.asarray(known)


def fixed(offset_us: int) -> Offsets:
    """The offsets of UTC and of zones that are offsets."""
    return Offsets(np.array([-(1 << 63)]), np.array([offset_us]), -(1 << 63), (1 << 63) - 1)


@lru_cache(maxsize=64)
def offsets_of(zone: dt.tzinfo) -> Offsets:
    """The offsets of a zone; of a region's by asking it day after day, since the standard library hides its table."""
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
def _transitions(zone: zoneinfo.ZoneInfo) -> tuple[Micros, Micros, int]:
    """The instants from which offsets hold, the offsets, and the instant from which they are known; until 2038."""
    since = _LATE_FROM_S if zone.key in _LATE else _AGREED_FROM_S
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


def _asked(zone: zoneinfo.ZoneInfo, times: Micros, *, wall: bool) -> Micros:
    """The offset at each instant (or wall clock time), asked for minute by minute."""
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
    """The first second with the offset that holds at ``after``; there is one change in between."""
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
