"""Integers, dates and times as text, as a cast to STRING and ``date_format`` write them.

Text compares by its bytes, so an order of numbers becomes another one: ``9`` is greater than ``10``. Dates and times of
the years 0 to 9999 keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.columnar.keys import Mask, bytes_keys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, Zones
from lamella.snapshot.function.base import Vector, fails_of, span_of, strict, strict_flags, whole_numbers

_Numbers = npt.NDArray[Any]
_DAY_US: Final = 86_400_000_000
#: Days of the years 0 to 9999, from the first to before the last bound.
_FIRST_DAY: Final = -719_528
_END_DAY: Final = 2_932_897
_FAR: Final = "a time beyond the years 0 to 9999"
#: The parts of a pattern of ``date_format``, from the longest unit to the shortest, and where they are in
#: ``yyyy-MM-ddTHH:mm:ss``.
PATTERN_PARTS: Final = {
    "yyyy": slice(0, 4),
    "MM": slice(5, 7),
    "dd": slice(8, 10),
    "HH": slice(11, 13),
    "mm": slice(14, 16),
    "ss": slice(17, 19),
}


class IntegerText(msgspec.Struct, frozen=True, gc=False):
    """``CAST(x AS STRING)`` of an integer."""

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the texts."""
        span = span_of(arguments[0])
        return _texts(arguments, span.low, span.high, span.known, _integer_bounds)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the texts."""
        return strict(_array([str(value) for value in arguments[0].values.tolist()]), arguments)


class BooleanText(msgspec.Struct, frozen=True, gc=False):
    """``CAST(x AS STRING)`` of a boolean: ``false`` is less than ``true``."""

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the texts."""
        span = span_of(arguments[0])
        return _texts(arguments, span.low, span.high, span.known, lambda low, high: (_BOOLEANS[low], _BOOLEANS[high]))

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the texts."""
        return strict(_array([_BOOLEANS[value] for value in arguments[0].values.tolist()]), arguments)


class DateText(msgspec.Struct, frozen=True, gc=False):
    """``CAST(x AS STRING)`` of a date."""

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the texts, of the years 0 to 9999."""
        span = span_of(arguments[0])
        known = span.known & (span.low >= _FIRST_DAY) & (span.high < _END_DAY)
        return _texts(arguments, span.low, span.high, known, lambda low, high: (_date(low), _date(high)))

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the texts; a date of another year has failed."""
        days = whole_numbers(arguments[0])
        near = (days >= _FIRST_DAY) & (days < _END_DAY)
        return strict(
            _array([_date(day) for day in np.where(near, days, 0).tolist()]), arguments, failed=~near, reason=_FAR
        )


class WallText(msgspec.Struct, frozen=True, gc=False):
    """A wall clock time in microseconds as text. ``parts``: what it consists of, names of :data:`PATTERN_PARTS` and
    other text; empty: a cast to STRING, ``yyyy-MM-dd HH:mm:ss`` and a fraction without zeros at its end."""

    parts: tuple[str, ...] = ()

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the texts, of the years 0 to 9999."""
        span = span_of(arguments[0])
        known = span.known & (span.low // _DAY_US >= _FIRST_DAY) & (span.high // _DAY_US < _END_DAY)
        return _texts(arguments, span.low, span.high, known, lambda low, high: (self._text(low), self._text(high)))

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the texts; a time of another year has failed."""
        walls = whole_numbers(arguments[0])
        near = (walls // _DAY_US >= _FIRST_DAY) & (walls // _DAY_US < _END_DAY)
        made = [self._text(wall) for wall in np.where(near, walls, 0).tolist()]
        return strict(_array(made), arguments, failed=~near, reason=_FAR)

    def _text(self, wall_us: int) -> str:
        whole = str(np.datetime64(wall_us, "us"))
        if self.parts:
            return "".join(whole[PATTERN_PARTS[part]] if part in PATTERN_PARTS else part for part in self.parts)
        fraction = whole[19:].rstrip("0")
        return f"{whole[:10]} {whole[11:19]}{fraction if len(fraction) > 1 else ''}"


_BOOLEANS: Final = ("false", "true")


def pattern_parts(pattern: str) -> tuple[str, ...] | None:
    """Returns the parts of a pattern of ``date_format`` that keeps the order of times.

    That is so if it names year, month, day, hour, minute and second in this order, leaving out none before the last
    one it names. Between them may be text in quotes, and characters that mean themselves. None for any other pattern.
    """
    units = list(PATTERN_PARTS)
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "'":
            end = pattern.find("'", at + 1)
            quoted = pattern[at + 1 : end]
            if end < 0 or not quoted or pattern[end + 1 : end + 2] == "'" or quoted in PATTERN_PARTS:
                return None
            parts.append(quoted)
            at = end + 1
        elif character.isascii() and character.isalpha():
            end = at
            while end < len(pattern) and pattern[end] == character:
                end += 1
            if not units or pattern[at:end] != units.pop(0):
                return None
            parts.append(pattern[at:end])
            at = end
        elif character in "[]{}#" or not character.isascii():
            return None
        else:
            parts.append(character)
            at += 1
    return tuple(parts) if len(units) < len(PATTERN_PARTS) else None


def _date(day: int) -> str:
    return str(np.datetime64(day, "D"))


def _array(texts: Sequence[str]) -> pa.Array:
    return pa.array([text.encode() for text in texts], pa.large_binary())


def _integer_bounds(low: int, high: int) -> tuple[str, str]:
    """Returns the least and the greatest text of the integers of a range."""
    if low < 0:
        nearest = -high if high < 0 else 1
        low_text, high_text = _digit_bounds(nearest, -low)
        return f"-{low_text}", f"-{high_text}" if high < 0 else _digit_bounds(0, high)[1]
    return _digit_bounds(low, high)


def _digit_bounds(low: int, high: int) -> tuple[str, str]:
    """Returns the bounds of a range without negative integers. Those with the same number of digits keep their order,
    so the bounds are among the ends of these parts."""
    ends = {low, high}
    power = 10 ** len(str(low))
    while power <= high:
        ends |= {power - 1, power}
        power *= 10
    texts = [str(end) for end in ends]
    return min(texts), max(texts)


def _texts(
    arguments: Sequence[Zones],
    low: _Numbers,
    high: _Numbers,
    known: Mask,
    bounds: Callable[[int, int], tuple[str, str]],
) -> Zones:
    pairs = [
        bounds(first, last) if some else ("", "")
        for first, last, some in zip(low.tolist(), high.tolist(), known.tolist(), strict=True)
    ]
    flags = strict_flags(arguments) | known * np.uint8(LOW_KNOWN | HIGH_KNOWN)
    lows, highs = (bytes_keys([pair[side].encode() for pair in pairs]) for side in (0, 1))
    return Zones(lows, highs, flags.astype(np.uint8), fails_of(arguments))
