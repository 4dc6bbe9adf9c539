"""Divides a part of a column's values into bins whose ends people can read, and writes such values as text.

Numbers, dates and times are divided at round values, as wide as their values are apart. Texts, and values of which most
are in a small part of the range, are divided *evenly*: each bin has about as many bounds of blocks as any other.
"""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, takewhile
from typing import Any, Final

import msgspec

from lamella.service.dashboard import words
from lamella.snapshot.errors import FilterTypeMismatch, InvalidRequest
from lamella.snapshot.expression import bind
from lamella.snapshot.expression.bound import BoundPredicate, Comparison, Fixed
from lamella.snapshot.expression.nodes import Compare, Literal, Ref
from lamella.snapshot.expression.text import value_text
from lamella.snapshot.schema import Column, DataType, Schema, parse_type
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.warehouse.key_axis import KeyAxis, Window

_EPOCH: Final = dt.date(1970, 1, 1)
_MONDAY: Final = 4  # days after it
_DAY_S: Final = 86_400
#: Steps of times, in seconds; below a second, and beyond a fortnight, there are others.
_TIME_STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200, _DAY_S, 2 * _DAY_S, 7 * _DAY_S, 14 * _DAY_S),
)
_MONTH_STEPS: Final = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1_200, 2_400, 6_000, 12_000, 120_000)
#: Days of the years 1 to 9999, which have a calendar.
_CALENDAR_DAYS: Final = range(-719_162, 2_932_897)
#: Labels of an axis, at most about so many.
TICKS: Final = 6
_ROUND_TICKS: Final = 8
#: Bins are even when one of those at round values would have more than this fraction of all bounds.
_CROWDED: Final = 0.5
_CROWDED_POINTS: Final = 20
_LABEL_LENGTH: Final = 10
#: Digits of a number that a label shows in full.
_LABEL_DIGITS: Final = 9
_MICRO_DIGITS: Final = 6
_MIDNIGHT: Final = " 00:00:00"


def text_of(dtype: DataType, value: Value) -> str:
    """Return a value as text that :func:`value_of` reads, without quotation marks; instants are in UTC."""
    if isinstance(value, bytes):
        if dtype.is_text:
            return value.decode("utf-8", "ignore")  # a bound may end inside a character
        return value_text(dtype, value).text.strip("'") if dtype.name == "uuid" else value.hex()
    return value_text(dtype, value).text.strip("'").removesuffix("+00:00")


def value_of(dtype: DataType, text: str, *, is_upper: bool = False) -> Value:
    """Return the value that a text means for a type; ``is_upper``: of several the greatest.

    Raises:
        InvalidRequest: it means none.
    """
    if dtype.is_text:
        return text.encode()
    try:
        if dtype.is_float and not math.isnan(float(text)):
            return float(text)
        if dtype.order == "bytes" and dtype.name != "uuid":
            return bytes.fromhex(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is not a value of type {dtype}", value=text) from None
    read = _type_read(dtype)
    found: BoundPredicate
    try:
        found = bind(Compare("ge", Ref("v"), Literal("text", text)), Schema.assign([Column(name="v", type=str(read))]))
    except (FilterTypeMismatch, InvalidRequest):
        found = Fixed(None)
    if not isinstance(found, Comparison) or dtype.is_float:
        raise InvalidRequest(f"{text!r} is not a value of type {dtype}", value=text)
    if not _is_time(dtype) or dtype.unit == "us":
        return found.value
    micros = int(found.value)
    if dtype.unit == "ms":
        return -(-micros // 1_000) if is_upper else micros // 1_000
    is_cut = is_upper and len(text.partition(".")[2]) > _MICRO_DIGITS
    return micros * 1_000 + (999 if is_cut else 0)


class Bins(msgspec.Struct, frozen=True):
    """A part of an axis in bins: bin i has the values from edge i to before edge i + 1, the last one its end too.

    ``highs``: of each bin the greatest value that counts. ``is_even``: all bins are drawn equally wide; otherwise as
    wide as their values are apart.
    """

    dtype: DataType
    edges: tuple[Value, ...]
    highs: tuple[Value, ...]
    is_even: bool

    def __len__(self) -> int:
        return len(self.edges) - 1

    def window_of(self, number: int) -> Window:
        """Return the values of a bin."""
        return Window(self.edges[number], self.highs[number])

    def text(self, number: int) -> str:
        """Return what a bin has, as text."""
        return range_text(self.dtype, self.window_of(number))

    def position(self, value: Value, *, is_upper: bool = False) -> float:
        """Return where a value is, from 0 to 1; ``is_upper``: where it ends."""
        if self.is_even or isinstance(value, bytes):
            number = bisect_right(self.edges[1:-1], value)
            return (number + 1 if is_upper else number) / len(self)
        if self.edges[0] == self.edges[-1]:
            return 1.0 if is_upper else 0.0
        return self._share(int(value) + 1 if is_upper and _is_counted(self.dtype) else value)

    def _share(self, value: Value) -> float:
        low, high = float(self.edges[0]), float(self.edges[-1])
        return min(max((float(value) - low) / (high - low), 0.0), 1.0) if high > low else 1.0

    def sides(self, number: int) -> tuple[float, float]:
        """Return where a bin begins and ends, from 0 to 1."""
        if self.is_even:
            return number / len(self), (number + 1) / len(self)
        return self.position(self.edges[number]), self._share(self.edges[number + 1])

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Return positions and labels for the axis."""
        if self.is_even:
            every = -(-len(self) // TICKS)
            chosen = range(0, len(self), every)
            labels = _labels(self.dtype, [self.edges[number] for number in chosen])
            return tuple((number / len(self), label) for number, label in zip(chosen, labels, strict=True))
        low, high = self.edges[0], self.edges[-1]
        inner = [each for each in _round_values(self.dtype, low, high, _ROUND_TICKS) if low <= each < high] or [low]
        labels = _labels(self.dtype, inner)
        return tuple((self.position(value), label) for value, label in zip(inner, labels, strict=True))


def range_text(dtype: DataType, window: Window) -> str:
    """Return the values of a part of an axis, as text."""
    texts = [text_of(dtype, value) for value in (window.low, window.high)]
    if _is_time(dtype) and all(text.endswith(_MIDNIGHT) for text in texts):
        texts = [text.removesuffix(_MIDNIGHT) for text in texts]
    low, high = map(shortened, texts)
    return low if low == high else f"{low} to {high}"


def shortened(text: str, length: int = 40) -> str:
    """Return a text that is cut where it is long; a part that cannot be seen is shown as empty quotation marks."""
    return (text if len(text) <= length else f"{text[:length]}…") or "''"


def bins_of(axis: KeyAxis, window: Window, at_most: int, *, even: bool | None = None) -> Bins:
    """Return at most so many bins of a part of an axis; ``even``: None chooses by the values."""
    if even is not True and _has_round_values(axis.dtype, window):
        bins = _round_bins(axis.dtype, window, at_most)
        if even is False or not _is_crowded(axis, bins):
            return bins
    return _even_bins(axis, window, at_most)


def neighbours(axis: KeyAxis, window: Window) -> list[tuple[str, Window | None]]:
    """Return the ways from a part of an axis to other parts, with a text for each; None: the whole axis."""
    whole = axis.whole
    if whole is None or window == whole:
        return []
    points = axis.points_in(window)
    count, size = axis.point_count, max(len(points), 1)
    ways: list[tuple[str, Window | None]] = [("Whole key", None)]
    wider = Window(axis.value(max(points.start - size, 0)), axis.value(min(points.stop + size, count) - 1))
    if wider not in (whole, window):
        ways.append(("Wider", wider))
    if points.start > 0:
        ways.append(("Before", Window(axis.value(max(points.start - size, 0)), axis.value(points.start - 1))))
    if points.stop < count:
        ways.append(("After", Window(axis.value(points.stop), axis.value(min(points.stop + size, count) - 1))))
    return ways


def _round_bins(dtype: DataType, window: Window, at_most: int) -> Bins:
    low, high = window.low, window.high
    end = int(high) + 1 if _is_counted(dtype) else high
    edges = (low, *(each for each in _round_values(dtype, low, end, at_most - 1) if low < each < end), end)
    highs = [_last_before(dtype, first, after) for first, after in pairwise(edges[:-1])]
    return Bins(dtype, edges, (*highs, high), is_even=False)


def _last_before(dtype: DataType, first: Value, after: Value) -> Value:
    """Return the end of a bin; of times and floats the bin after it begins there."""
    is_one = _is_time(dtype) and int(after) - int(first) == 1
    return int(after) - 1 if _is_counted(dtype) or is_one else after


def _even_bins(axis: KeyAxis, window: Window, at_most: int) -> Bins:
    points = axis.points_in(window)
    count = max(min(at_most, len(points)), 1)
    edges, highs = [window.low], []
    for number in range(1, count):
        point = points.start + len(points) * number // count
        before, value = axis.value(point - 1), axis.value(point)
        highs.append(before)
        edges.append(_between(before, value, is_text=axis.dtype.is_text))
    return Bins(axis.dtype, (*edges, window.high), (*highs, window.high), is_even=True)


def _between(before: Value, value: Value, *, is_text: bool) -> Value:
    """Return the shortest beginning of a text that is greater than the value before it."""
    if not isinstance(before, bytes) or not isinstance(value, bytes):
        return value
    length = next((at for at in range(1, len(value) + 1) if value[:at] > before), len(value))
    while is_text and length < len(value) and value[length] & 0xC0 == 0x80:  # not inside of a character
        length += 1
    return value[:length]


def _is_crowded(axis: KeyAxis, bins: Bins) -> bool:
    firsts = [axis.first_at(edge) for edge in bins.edges]
    points = firsts[-1] - firsts[0]
    largest = max(after - first for first, after in pairwise(firsts))
    return len(bins) > 2 and points >= _CROWDED_POINTS and largest > _CROWDED * points


def _is_counted(dtype: DataType) -> bool:
    """Return whether a value has a next one that people would name."""
    return dtype.order in ("int", "uint", "decimal") and not _is_time(dtype)


def _is_time(dtype: DataType) -> bool:
    return dtype.name in ("time", "timestamp", "timestamp_ntz")


def _type_read(dtype: DataType) -> DataType:
    """Return the type as which texts are read: of whole numbers the widest, of times the one that Spark has."""
    if dtype.is_integer:
        return parse_type("uint64" if dtype.order == "uint" else "int64")
    return parse_type(f"{dtype.name}(us)") if _is_time(dtype) else dtype


def _has_round_values(dtype: DataType, window: Window) -> bool:
    if dtype.order == "bytes" or dtype.name == "boolean":
        return False
    if dtype.is_float:
        return math.isfinite(float(window.high) - float(window.low))
    if dtype.name == "date" or dtype.name.startswith("timestamp"):
        per_day = _per_day(dtype)
        return all(int(value) // per_day in _CALENDAR_DAYS for value in (window.low, window.high))
    return True


def _per_day(dtype: DataType) -> int:
    return 1 if dtype.name == "date" else _DAY_S * PER_SECOND[dtype.unit]


def _round_values(dtype: DataType, low: Any, high: Any, at_most: int) -> list[Any]:
    """Return round values from about ``low`` to about ``high``, with at most so many steps between these."""
    if high <= low:
        return []
    if dtype.is_float:
        return _round_floats(float(low), float(high), at_most)
    if dtype.name != "date" and not _is_time(dtype):
        return _multiples(low, high, next(step for step in _decimal_steps() if (high - low) // step < at_most))
    per_second = PER_SECOND[dtype.unit]
    steps: Iterator[int] = iter((1, 2, 7, 14))
    if dtype.name != "date":
        of_second = takewhile(lambda step: step < per_second, _decimal_steps())
        steps = chain(of_second, (step * per_second for step in _TIME_STEPS_S))
    per_day = _per_day(dtype)
    for step in steps:
        if (high - low) // step < at_most:
            return _multiples(low, high, step, _MONDAY * per_day if step % (7 * per_day) == 0 else 0)
    return _months(low, high, at_most, per_day)


def _decimal_steps() -> Iterator[int]:
    unit = 1
    while True:
        yield from (unit, 2 * unit, 5 * unit)
        unit *= 10


def _multiples(low: int, high: int, step: int, offset: int = 0) -> list[int]:
    first = -((offset - low) // step) * step + offset
    return list(range(first, high + 1, step))


def _round_floats(low: float, high: float, at_most: int) -> list[float]:
    wide = high - low
    if not math.isfinite(wide):
        return []
    unit = 10.0 ** math.floor(math.log10(wide / at_most))
    step = next((unit * each for each in (1, 2, 5, 10, 20) if unit and wide / (unit * each) < at_most), 0.0)
    if not step or not math.isfinite(low / step):
        return []
    first = math.ceil(low / step)
    found = [float(f"{(first + number) * step:.12g}") for number in range(at_most + 1)]
    return [value for number, value in enumerate(found) if low <= value <= high and value not in found[:number]]


def _months(low: int, high: int, at_most: int, per_day: int) -> list[int]:
    """Return first days of months, of every second month, of years and so on."""
    start, end = (_month_of(int(value) // per_day) for value in (low, high))
    step = next((each for each in _MONTH_STEPS if (end - start) // each < at_most), _MONTH_STEPS[-1])
    found = [_day_of(month) for month in range(-(-start // step) * step, end + 1, step)]
    return [day * per_day for day in found if day is not None]


def _month_of(day: int) -> int:
    date = _EPOCH + dt.timedelta(days=min(day, _CALENDAR_DAYS[-1]))
    return date.year * 12 + date.month - 1


def _day_of(month: int) -> int | None:
    if not 1 <= month // 12 <= dt.MAXYEAR:
        return None
    return (dt.date(month // 12, month % 12 + 1, 1) - _EPOCH).days


def _labels(dtype: DataType, values: Sequence[Value]) -> list[str]:
    """Return short labels of values: of dates and times the parts that tell them apart."""
    texts = [text_of(dtype, value) for value in values]
    if dtype.name == "date":
        return _without(texts, "-01", "-01")
    if _is_time(dtype):
        dates = _without(texts, _MIDNIGHT)
        return _without(texts, ":00") if dates == texts else _without(dates, "-01", "-01")
    if dtype.order in ("int", "uint", "decimal", "float"):
        return [_number_label(text) for text in texts]
    return [shortened(text, _LABEL_LENGTH) for text in texts]


def _without(texts: list[str], *endings: str) -> list[str]:
    """Return texts without the endings that all of them have; of one text alone all is told."""
    for ending in endings:
        if len(texts) < 2 or not all(text.endswith(ending) for text in texts):
            break
        texts = [text.removesuffix(ending) for text in texts]
    return texts


def _number_label(text: str) -> str:
    whole = text.lstrip("-")
    if whole.isdigit():
        return words.short(int(text)) if len(whole) > _LABEL_DIGITS else words.count(int(text))
    return text if len(text) <= _LABEL_LENGTH else f"{float(text):.4g}"
