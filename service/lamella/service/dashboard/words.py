"""Formats numbers, sizes and times for people; all of these are filters of the templates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from lamella.snapshot.counts import counted

#: Shown for an unknown value.
UNKNOWN_VALUE: Final = "unknown"
NOTHING: Final = "\N{EN DASH}"
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SHORT: Final = ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k"))
_SPANS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_LAST_YEAR: Final = 9_999


def count(number: float | None) -> str:
    """Format as ``1,234``; a fraction with one digit."""
    if number is None:
        return NOTHING
    if isinstance(number, float) and not number.is_integer():
        return f"{number:,.1f}"
    return f"{int(number):,}"


def short(number: float | None) -> str:
    """Format as ``12.3 k``, ``4.5 M``; small numbers as integers."""
    if number is None:
        return NOTHING
    for unit, name in _SHORT:
        if abs(number) >= unit:
            divisor = 1_000 if name == "k" else unit
            return f"{number / divisor:.1f} {name}"
    return count(number)


def size(size_bytes: float | None) -> str:
    """Format as ``1.5 GiB``."""
    if size_bytes is None:
        return NOTHING
    amount = float(size_bytes)
    for unit in _SIZES:
        if abs(amount) < 1_024 or unit == _SIZES[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1_024
    raise AssertionError("the last unit takes everything")


def percent(share: float | None) -> str:
    """Format as ``98.7 %``; 100 and 0 only for exactly these."""
    if share is None:
        return NOTHING
    text = f"{share * 100:.1f}"
    if text == "100.0" and share < 1:
        text = "99.9"
    elif text == "0.0" and share > 0:
        return "< 0.1 %"
    return f"{text} %"


def plural(number: float | None, singular: str, many: str | None = None) -> str:
    """Format as ``1 block``, ``2 blocks``."""
    return f"{NOTHING} {many or singular + 's'}" if number is None else counted(number, singular, many)


def moment(at_ms: int | None) -> str:
    """Format as ``2026-01-31 12:00:00 UTC``."""
    if at_ms is None:
        return NOTHING
    found = _datetime(at_ms)
    return f"{at_ms} ms" if found is None else found.strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(at_ms: int) -> str:
    """Format for the ``datetime`` of a ``time`` element."""
    found = _datetime(at_ms)
    return "" if found is None else found.isoformat(timespec="milliseconds")


def span(seconds: float | None) -> str:
    """Format a duration as ``3 hours``, ``1.5 s``, ``12 ms``."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit_s, name in _SPANS:
        if seconds >= unit_s:
            return plural(int(seconds // unit_s), name)
    raise AssertionError("a second is the least")


def ago(at_ms: int | None, now_ms: int) -> str:
    """Format as ``3 hours ago``."""
    if at_ms is None:
        return "never"
    passed_s = (now_ms - at_ms) / 1000
    if passed_s < 0:
        return f"in {span(-passed_s)}"
    return "just now" if passed_s < 1 else f"{span(int(passed_s))} ago"


def shown_id(text: str | None) -> str:
    """Return the end of an id, which distinguishes it; its beginning is a time."""
    if text is None:
        return NOTHING
    return text if len(text) <= 12 else f"…{text[-8:]}"


def sentence(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def _datetime(at_ms: int) -> datetime | None:
    try:
        found = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return found if found.year <= _LAST_YEAR else None


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    each.__name__: each for each in (count, short, size, percent, plural, moment, iso, span, shown_id, sentence)
}
