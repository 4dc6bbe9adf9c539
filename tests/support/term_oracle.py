"""The oracle's terms: types as Spark gives them, values row by row, with ANSI mode and without.

It shares no code with the binding of terms nor with the functions; it knows nothing of statistics.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

from lamella.snapshot.expression import nodes as n
from lamella.snapshot.schema import DataType, parse_type
from support import calendar_oracle as calendar
from support.calendar_oracle import Undecided

Row = Mapping[str, Any]

INT, LONG, DOUBLE = parse_type("int32"), parse_type("int64"), parse_type("float64")
DATE, INSTANT, WALL = parse_type("date"), parse_type("timestamp(us)"), parse_type("timestamp_ntz(us)")
TEXT = parse_type("string")
_READ_AS = {"uint8": "int16", "uint16": "int32", "uint32": "int64", "uint64": "decimal(20,0)"}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_DATE_PARTS = ("year", "quarter", "month", "day", "dayofweek", "dayofyear", "weekday", "weekofyear", "yearofweek")
_CLOCK_PARTS = ("hour", "minute", "second")
_UNITS = {"mon": "month", "mm": "month", "yy": "year", "yyyy": "year", "dd": "day"}
_INFIX = ("add", "subtract", "multiply", "divide")


_TRIMS = ("trim", "ltrim", "rtrim")
_SHIFTS = ("shiftleft", "shiftright", "shiftrightunsigned")
_TIMES = {"unix_seconds": 10**6, "unix_timestamp": 10**6, "unix_millis": 10**3, "unix_micros": 1}
_STEPS_US = {"MICROSECOND": 1, "MILLISECOND": 10**3, "SECOND": 10**6, "MINUTE": 60 * 10**6, "HOUR": 3_600 * 10**6}
_STEPS_DAYS = {"DAY": 1, "WEEK": 7}
#: Of timestampdiff, in microseconds.
_DIFFERENCES = _STEPS_US | {unit: days * calendar.DAY_US for unit, days in _STEPS_DAYS.items()}
_STEPS_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
#: Java's patterns as Python's.
_PATTERNS = {"yyyy": "{0:%Y}", "MM": "{0:%m}", "dd": "{0:%d}", "HH": "{0:%H}", "mm": "{0:%M}", "ss": "{0:%S}"}
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # wall clock on purpose


class Fails(Exception):  # not an error of the tests
    """Spark refuses to compute this row in ANSI mode."""


class TermOracle:
    """Terms over rows whose columns have these types (values in the type's order)."""

    def __init__(self, types: Mapping[str, DataType], time_zone: str) -> None:
        self._types = types
        self.zone = calendar.zone_of(time_zone)
        #: Decides the condition of a CASE over a row; set by the oracle of predicates.
        self.decide: Callable[..., Any] = lambda *_, **__: "undecided"

    def type_of(self, term: n.Term) -> DataType:
        """Spark's type; raises Undecided where it depends on settings or would be rounded."""
        match term:
            case n.Ref(path):
                dtype = self._types[path]
                if dtype.name in ("timestamp", "timestamp_ntz"):
                    return INSTANT if dtype.name == "timestamp" else WALL
                return parse_type(_READ_AS[dtype.name]) if dtype.name in _READ_AS else dtype
            case n.Literal(kind, value):
                return _literal_type(kind, value)
            case n.Cast(_, target):
                return parse_type(target)
            case n.Call(function, arguments):
                return self._call_type(function, arguments)
            case n.Case(branches, otherwise):
                return self._common((*(each.value for each in branches), otherwise))

    def _call_type(self, function: str, arguments: tuple[n.Term, ...]) -> DataType:
        if function in _INFIX:
            return self._infix_type(function, *arguments)
        if function in ("negative", "abs"):
            return self.type_of(arguments[0])
        if function == "coalesce":
            return self._common(arguments)
        if function in ("greatest", "least"):
            return self._common(arguments)
        if function in ("floor", "ceil", "round", "bround"):
            return self._rounded_type(function, arguments)
        if function in ("mod", "pmod", "div", *_SHIFTS):
            return self._whole_type(function, arguments)
        if function in ("add_interval", "timestampadd"):
            return self._moved_type(function, arguments)
        if function in (*_TIMES, "timestampdiff"):
            return LONG
        if function == "date_trunc":
            return INSTANT
        if function in (*_DATE_PARTS, *_CLOCK_PARTS, "datediff", "length", "unix_date"):
            return INT
        texts = ("lower", "upper", "substring", "left", "concat", "date_format", *_TRIMS)
        return TEXT if function in texts else DATE

    def _rounded_type(self, function: str, arguments: tuple[n.Term, ...]) -> DataType:
        dtype = self.type_of(arguments[0])
        if function in ("floor", "ceil"):
            if dtype.name != "decimal":
                return LONG
            return dtype if not dtype.scale else _decimal(dtype.precision - dtype.scale + 1, 0)
        if dtype.name != "decimal":
            if dtype.is_float and dtype != DOUBLE:
                raise Undecided
            return dtype
        scale = min(dtype.scale, _digits_of(arguments))
        return _decimal(dtype.precision - dtype.scale + 1 + scale, scale)

    def _whole_type(self, function: str, arguments: tuple[n.Term, ...]) -> DataType:
        types = [self.type_of(argument) for argument in arguments]
        if not all(each.is_integer for each in types):
            raise Undecided
        if function in _SHIFTS:
            return LONG if types[0].bits == 64 else INT
        return LONG if function == "div" else max(types, key=lambda each: each.bits)

    def _moved_type(self, function: str, arguments: tuple[n.Term, ...]) -> DataType:
        dtype = self.type_of(arguments[0 if function == "add_interval" else 2])
        if dtype != DATE:
            return dtype
        by_days = function == "add_interval" and str(getattr(arguments[1], "value", "")) != "MICROSECOND"
        return DATE if by_days else INSTANT

    def _infix_type(self, function: str, left: n.Term, right: n.Term) -> DataType:
        a, b = self.type_of(left), self.type_of(right)
        if a == DATE:
            return DATE
        if a.is_float or b.is_float:
            return _wider_float(a, b)
        if a.is_integer and b.is_integer:
            return DOUBLE if function == "divide" else a if a.bits >= b.bits else b
        (p1, s1), (p2, s2) = _digits(left, a), _digits(right, b)
        if function == "multiply":
            return _decimal(p1 + p2 + 1, s1 + s2)
        if function == "divide":
            raise Undecided
        return _decimal(max(p1 - s1, p2 - s2) + max(s1, s2) + 1, max(s1, s2))

    def _common(self, arguments: tuple[n.Term, ...]) -> DataType:
        found: DataType | None = None
        for argument in arguments:
            if isinstance(argument, n.Literal) and argument.kind == "null":
                continue
            dtype = self.type_of(argument)
            found = dtype if found is None or found == dtype else wider(found, dtype)
        if found is None:
            raise Undecided
        return found

    def value(self, term: n.Term, row: Row, *, ansi: bool) -> Any:
        """The term's value in its type's order, None for null; raises Fails or Undecided."""
        match term:
            case n.Ref(path):
                value, dtype = row[path], self._types[path]
                if value is not None and dtype.name in ("timestamp", "timestamp_ntz"):
                    return value * 1000 if dtype.unit == "ms" else value if dtype.unit == "us" else value // 1000
                return value
            case n.Literal(kind, given):
                return _literal_value(kind, given)
            case n.Cast(inner, target):
                value = self.value(inner, row, ansi=ansi)
                return None if value is None else self.cast(value, self.type_of(inner), parse_type(target), ansi=ansi)
            case n.Call("coalesce", arguments):
                wanted = self.type_of(term)
                for argument in arguments:
                    value = self.value(argument, row, ansi=ansi)
                    if value is not None:
                        return self.cast(value, self.type_of(argument), wanted, ansi=ansi)
                return None
            case n.Case(branches, otherwise):
                return self._branch(term, branches, otherwise, row, ansi)
            case n.Call("greatest" | "least" as function, arguments):
                wanted = self.type_of(term)
                pairs = [(self.value(each, row, ansi=ansi), each) for each in arguments]
                values = [self.cast(v, self.type_of(each), wanted, ansi=ansi) for v, each in pairs if v is not None]
                found = [v for v in values if v is not None]
                if not found:
                    return None
                ranked = sorted(found, key=lambda v: (v != v, v))
                return ranked[-1 if function == "greatest" else 0]
            case n.Call(function, arguments):
                values = [self.value(argument, row, ansi=ansi) for argument in arguments]
                if None in values:
                    return None
                return self._apply(term, function, arguments, values, row, ansi=ansi)

    def _branch(self, case: n.Case, branches: Any, otherwise: n.Term, row: Row, ansi: bool) -> Any:
        """The value of the first branch whose condition is true, in the type of the whole."""
        chosen = otherwise
        for each in branches:
            result = self.decide(each.condition, row, ansi=ansi)
            if isinstance(result, str):
                raise Fails if result == "fails" else Undecided
            if result is True:
                chosen = each.value
                break
        wanted, value = self.type_of(case), self.value(chosen, row, ansi=ansi)
        return None if value is None else self.cast(value, self.type_of(chosen), wanted, ansi=ansi)

    def _rounded(self, function: str, value: Any, dtype: DataType, digits: int, *, ansi: bool) -> Any:
        if function in ("floor", "ceil"):
            if isinstance(value, float):
                if ansi and not abs(value) < 2.0**63:
                    raise Fails
                if math.isnan(value):
                    return 0
                if math.isinf(value) or abs(value) >= 2.0**63:
                    return (1 << 63) - 1 if value > 0 else -(1 << 63)
                return int(Decimal(value).to_integral_value("ROUND_FLOOR" if function == "floor" else "ROUND_CEILING"))
            exact = Fraction(value, 10**dtype.scale)
            return math.floor(exact) if function == "floor" else math.ceil(exact)
        if dtype.is_integer:
            return value
        mode = ROUND_HALF_UP if function == "round" else ROUND_HALF_EVEN
        if isinstance(value, float):
            if math.isnan(value) or math.isinf(value):
                return value
            if abs(value) >= 10.0 ** (14 - digits):
                raise Undecided
            printed = Decimal(repr(value))
            if abs(printed - printed.quantize(Decimal(1).scaleb(-digits), ROUND_DOWN)) * 2 == Decimal(1).scaleb(
                -digits
            ):
                raise Undecided  # versions of Java print different digits
            return float(printed.quantize(Decimal(1).scaleb(-digits), mode))
        with localcontext(prec=100):
            exact_number = Decimal(value).scaleb(-dtype.scale)
            scale = min(dtype.scale, digits)
            return int(exact_number.quantize(Decimal(1).scaleb(-scale), mode).scaleb(scale))

    def _whole(self, function: str, values: list[int], dtype: DataType, *, ansi: bool) -> int | None:
        left, right = values
        if function in _SHIFTS:
            bits = dtype.bits
            by = right % bits
            if function == "shiftright":
                return left >> by
            return _wrapped(left << by if function == "shiftleft" else (left % (1 << bits)) >> by, bits)
        if right == 0:
            if ansi:
                raise Fails
            return None
        cut = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        if function == "div":
            return fitted(cut, LONG, ansi=ansi)
        rest = left - cut * right
        if function == "pmod" and rest < 0:
            if right < 0:
                raise Undecided
            rest = (rest + right) % right
        return rest

    def _moved(self, at: int, dtype: DataType, unit: str, count: int, *, is_interval: bool) -> int:
        """A date or time and an interval."""
        if dtype == DATE:
            if is_interval and unit == "DAY":
                return _wrapped(at + count, 32)
            if is_interval and unit == "MONTH":
                return calendar.moved_months(at, count)
            at, dtype = calendar.midnight_of(at, self.zone), INSTANT
        micros = _STEPS_US.get(unit, 0) * count
        days = _STEPS_DAYS.get(unit, 0) * count
        if is_interval:
            days = int(Fraction(micros, calendar.DAY_US)) + days
            micros -= int(Fraction(micros, calendar.DAY_US)) * calendar.DAY_US
        months = _STEPS_MONTHS.get(unit, 0) * count
        if days or months or (is_interval and unit == "DAY"):
            wall = self._wall(at, dtype)
            day = wall // calendar.DAY_US
            if abs(day) > 3_000_000:
                raise Undecided
            day = calendar.moved_months(day, months) if months else day + days
            moved = day * calendar.DAY_US + wall % calendar.DAY_US
            at = moved if dtype == WALL else calendar.instant_of(moved, self.zone, like_us=at)
        return at + micros

    def _text(self, value: Any, dtype: DataType) -> bytes:
        """A cast to STRING."""
        if dtype.is_integer:
            return str(value).encode()
        if dtype.name == "boolean":
            return b"true" if value else b"false"
        if dtype not in (DATE, INSTANT, WALL):
            raise Undecided
        wall = self._wall(value, dtype)
        at = _moment(wall)
        if dtype == DATE:
            return f"{at.year:04}-{at:%m-%d}".encode()
        fraction = f".{at.microsecond:06}".rstrip("0") if at.microsecond else ""
        return f"{at.year:04}-{at:%m-%d %H:%M:%S}{fraction}".encode()

    def _apply(
        self, term: n.Call, function: str, arguments: tuple[n.Term, ...], values: list[Any], row: Row, *, ansi: bool
    ) -> Any:
        types = [self.type_of(argument) for argument in arguments]
        if function in _INFIX and types[0] != DATE:
            return _arithmetic(function, values, types, self.type_of(term), ansi=ansi)
        if function in ("negative", "abs"):
            made = -values[0] if function == "negative" else abs(values[0])
            if types[0].name == "decimal" and abs(made) >= 10**34:
                raise Undecided  # Spark rounds these to 34 digits, and may fail then
            return made if types[0].is_float or types[0].name == "decimal" else fitted(made, types[0], ansi=ansi)
        if function in ("lower", "upper"):
            converted = _converted(function, values[0])
            inner = arguments[0]
            if not isinstance(inner, n.Call) or inner.function not in ("lower", "upper"):
                return converted
            if _converted(function, self.value(inner.arguments[0], row, ansi=ansi)) != converted:
                raise Undecided  # Spark's optimizer drops the inner one
            return converted
        if function == "length":
            return len(values[0].decode())
        if function in ("floor", "ceil", "round", "bround"):
            return self._rounded(function, values[0], types[0], _digits_of(arguments), ansi=ansi)
        if function in ("mod", "pmod", "div", *_SHIFTS):
            return self._whole(function, values, self.type_of(term), ansi=ansi)
        if function == "concat":
            return b"".join(v if t.is_text else self._text(v, t) for v, t in zip(values, types, strict=True))
        if function in _TRIMS:
            left = values[0].lstrip(b" ") if function != "rtrim" else values[0]
            return left.rstrip(b" ") if function != "ltrim" else left
        if function == "add_interval":
            return self._moved(values[0], types[0], values[1].decode(), values[2], is_interval=True)
        if function == "timestampadd":
            return self._moved(values[2], types[2], values[0].decode(), values[1], is_interval=False)
        if function == "timestampdiff":
            start, end = (
                self._wall(self.cast(value, dtype, INSTANT, ansi=ansi), INSTANT)
                for value, dtype in zip(values[1:], types[1:], strict=True)
            )
            whole = abs(end - start) // _DIFFERENCES[values[0].decode()]
            return whole if end >= start else -whole
        if function == "unix_date":
            return values[0]
        if function in _TIMES:
            return self.cast(values[0], types[0], INSTANT, ansi=ansi) // _TIMES[function]
        if function == "date_format":
            at = _moment(self._wall(values[0], types[0]))
            pattern = re.sub("|".join(_PATTERNS), lambda word: _PATTERNS[word[0]], values[1].decode())
            return pattern.replace("{0:%Y}", f"{at.year:04}").format(at).encode()
        if function in ("left", "substring"):
            return values[0].decode()[: max(values[-1], 0)].encode()
        if function in _CLOCK_PARTS:
            return calendar.clock_part(function, self._wall(values[0], types[0]))
        if function == "date_trunc":
            unit = values[0].decode().lower()
            at = self.cast(values[1], types[1], INSTANT, ansi=ansi)
            return calendar.truncated(_UNITS.get(unit, unit), at, self.zone)
        return self._of_days(function, arguments, values, types)

    def _of_days(self, function: str, arguments: tuple[n.Term, ...], values: list[Any], types: list[DataType]) -> Any:
        del arguments
        day = self._day(values[0], types[0])
        if function in _DATE_PARTS:
            return calendar.date_part(function, day)
        if function == "to_date":
            return day
        if function in ("date_add", "add", "date_sub", "subtract"):
            return _wrapped(day + values[1] if function in ("date_add", "add") else day - values[1], 32)
        if function == "datediff":
            return _wrapped(day - self._day(values[1], types[1]), 32)
        if abs(day) > 700_000_000:
            raise Undecided  # near the ends of Spark's dates these overflow
        if function == "last_day":
            year, month, _ = calendar.civil(day)
            return calendar.days_of(year, month, calendar.month_length(year, month))
        if function == "add_months":
            return calendar.moved_months(day, values[1])
        unit = values[1].decode().lower()
        return calendar.first_day(_UNITS.get(unit, unit), day)

    def _wall(self, value: int, dtype: DataType) -> int:
        if dtype == DATE:
            return value * calendar.DAY_US
        return value if dtype == WALL else calendar.wall_of(value, self.zone)

    def _day(self, value: int, dtype: DataType) -> int:
        return value if dtype == DATE else self._wall(value, dtype) // calendar.DAY_US

    def cast(self, value: Any, source: DataType, wanted: DataType, *, ansi: bool) -> Any:
        """A value in another type."""
        if source == wanted or (source.is_text and wanted.is_text):
            return value
        if wanted == TEXT:
            return self._text(value, source)
        if wanted == LONG and source == INSTANT:
            return value // 10**6
        if wanted == DATE:
            return self._day(value, source)
        if wanted == WALL:
            return self._wall(value, source)
        if wanted == INSTANT:
            at = calendar.midnight_of(value, self.zone) if source == DATE else calendar.instant_of(value, self.zone)
            if not -(1 << 63) <= at < 1 << 63:
                raise Undecided
            return at
        if wanted.is_float:
            if wanted.bits < 64:
                raise Undecided
            return float(Fraction(value, 10**source.scale)) if isinstance(value, int) else value
        if isinstance(value, float):
            return _from_double(value, wanted, ansi=ansi)
        exact = Fraction(value, 10**source.scale)
        if wanted.name == "decimal":
            scaled = exact * 10**wanted.scale
            if scaled.denominator != 1:
                raise Undecided
            if abs(scaled) >= 10**wanted.precision:
                if ansi:
                    raise Fails
                return None
            return scaled.numerator
        return fitted(int(exact), wanted, ansi=ansi)


def fitted(value: int, dtype: DataType, *, ansi: bool) -> int:
    """A whole number in its type: beyond its range it fails, or wraps around."""
    low, high = dtype.int_range
    if low <= value <= high:
        return value
    if ansi:
        raise Fails
    return _wrapped(value, dtype.bits)


def wider(a: DataType, b: DataType) -> DataType:
    """The type that Spark brings two types to."""
    if a == b:
        return a
    if a.is_integer and b.is_integer:
        return a if a.bits >= b.bits else b
    if a.is_float or b.is_float:
        return _wider_float(a, b)
    numbers = [each for each in (a, b) if each.is_integer or each.name == "decimal"]
    if len(numbers) == 2:
        (p1, s1), (p2, s2) = ((x.precision, x.scale) if x.name == "decimal" else (_DIGITS[x.bits], 0) for x in numbers)
        return _decimal(max(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2))
    if {a.name, b.name} <= {"date", "timestamp", "timestamp_ntz"}:
        return INSTANT if INSTANT in (a, b) else WALL
    if a.is_text and b.is_text:
        return TEXT
    raise Undecided


def _wider_float(a: DataType, b: DataType) -> DataType:
    for one, other in ((a, b), (b, a)):
        if one == DOUBLE and (other.is_float or other.is_integer or other.name == "decimal"):
            return DOUBLE
        if one.is_float and other.name == "decimal":
            return DOUBLE
    if a == b:
        return a
    raise Undecided  # FLOAT beside a whole number is FLOAT or DOUBLE by Spark's settings


def _digits_of(arguments: tuple[n.Term, ...]) -> int:
    """The second argument of ``round``."""
    literal = arguments[1] if len(arguments) > 1 else n.Literal("integer", 0)
    assert isinstance(literal, n.Literal)
    assert isinstance(literal.value, int)
    return literal.value


def _moment(wall_us: int) -> dt.datetime:
    """A wall clock time of the years 1 to 9999."""
    try:
        return _EPOCH + dt.timedelta(microseconds=wall_us)
    except OverflowError as error:
        raise Undecided from error


def _decimal(precision: int, scale: int) -> DataType:
    if precision > 38:
        raise Undecided
    return DataType("decimal", precision=precision, scale=scale)


def _digits(term: n.Term, dtype: DataType) -> tuple[int, int]:
    if dtype.name == "decimal":
        return dtype.precision, dtype.scale
    if isinstance(term, n.Literal):
        return len(str(abs(int(term.value or 0)))), 0
    return _DIGITS[dtype.bits], 0


def _literal_type(kind: str, value: Any) -> DataType:
    if kind == "integer":
        if not -(1 << 63) <= value < 1 << 63:
            return _decimal(len(str(abs(value))), 0)
        return INT if -(1 << 31) <= value < 1 << 31 else LONG
    if kind == "decimal":
        _, digits, exponent = Decimal(str(value)).as_tuple()
        scale = max(0, -int(exponent))
        return _decimal(max(len(digits) + max(0, int(exponent)), scale), scale)
    named = {"double": DOUBLE, "string": TEXT, "date": DATE, "timestamp": INSTANT, "timestamp_ntz": WALL}
    return named[kind] if kind in named else parse_type(kind)


def _literal_value(kind: str, value: Any) -> Any:
    if kind == "decimal":
        return int(Decimal(str(value)).scaleb(_literal_type(kind, value).scale))
    if kind == "boolean":
        return int(value)
    return value.encode() if kind == "string" else value


def _arithmetic(function: str, values: list[Any], types: list[DataType], wanted: DataType, *, ansi: bool) -> Any:
    if wanted.is_float:
        if wanted.bits < 64:
            raise Undecided
        a, b = (
            float(Fraction(v, 10**t.scale)) if isinstance(v, int) else v for v, t in zip(values, types, strict=True)
        )
        return _doubles(function, a, b, ansi=ansi)
    a, b = (
        v * 10 ** (wanted.scale - t.scale) if function != "multiply" else v for v, t in zip(values, types, strict=True)
    )
    exact: int = a + b if function == "add" else a - b if function == "subtract" else a * b
    return exact if wanted.name == "decimal" else fitted(exact, wanted, ansi=ansi)


def _doubles(function: str, a: float, b: float, *, ansi: bool) -> float | None:
    if function == "divide":
        if b == 0:
            if ansi:
                raise Fails
            return None
        return math.nan if math.isnan(a) or math.isnan(b) else a / b if not math.isinf(a) else _infinite_by(a, b)
    return a + b if function == "add" else a - b if function == "subtract" else a * b


def _infinite_by(a: float, b: float) -> float:
    return math.nan if math.isinf(b) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _from_double(value: float, wanted: DataType, *, ansi: bool) -> int:
    if not wanted.is_integer:
        raise Undecided
    low, high = wanted.int_range
    if not math.isnan(value) and low - 1 < value < high + 1:
        return int(value)
    if value == float(1 << 63) and wanted.bits == 64:
        return high  # Spark compares with the greatest long as a double, which is 2^63
    if ansi:
        raise Fails
    if wanted.bits < 32:
        raise Undecided  # Java goes through int, and wraps around there
    return 0 if math.isnan(value) else low if value < 0 else high


def _converted(function: str, text: bytes) -> bytes:
    return (text.decode().lower() if function == "lower" else text.decode().upper()).encode()


def _wrapped(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half
