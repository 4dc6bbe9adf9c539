"""Binding of functions: a function of columns becomes a computed term, or the reason why it is not supported.

Types are Spark's: the wider of two integers, decimals with room for the exact result, doubles if one operand is a
double. Operations that Spark would round, cast row by row, or decide by its ANSI setting have no exact meaning here
and are not supported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, cast
from typing import Literal as Choice

from lamella.snapshot.errors import InvalidFilter, InvalidSchema
from lamella.snapshot.expression.bind_numbers import (
    DATE,
    DOUBLE,
    INT,
    LONG,
    MAX_DIGITS,
    cast_number,
    decimal_arithmetic,
    double_arithmetic,
    kind_of,
    signed_bits,
)
from lamella.snapshot.expression.bound import BoundTerm, ConstantTerm, Derived
from lamella.snapshot.expression.coerce import Unusable
from lamella.snapshot.expression.nodes import Call, Literal
from lamella.snapshot.expression.text import term_text
from lamella.snapshot.function import calendar, choice, integer, json_path, numeric, text, text_casts, variants
from lamella.snapshot.function.calendar import Offsets
from lamella.snapshot.schema import DataType, Leaf, parse_type
from lamella.snapshot.schema.shredding import spark_name
from lamella.snapshot.variant.paths import Step, path_text, variant_steps

_INSTANT: Final = parse_type("timestamp(us)")
_WALL: Final = parse_type("timestamp_ntz(us)")
_STRING: Final = parse_type("string")
_MAX_MONTHS: Final = 120_000
#: Microseconds per time unit in use.
FACTORS: Final = {"us": 1, "ms": 1000}
_UNITS: Final[dict[str, calendar.Unit]] = {
    "year": "year",
    "yyyy": "year",
    "yy": "year",
    "month": "month",
    "mm": "month",
    "mon": "month",
    "day": "day",
    "dd": "day",
    "quarter": "quarter",
    "week": "week",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
}


#: Microseconds per unit of ``timestampadd`` that is not a day or longer, by its name.
_MICROS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
}
_DAYS: Final = {"day": 1, "dayofyear": 1, "week": 7}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_DAY_US: Final = 86_400_000_000
_MAX_DAYS: Final = 10_000_000
_MAX_MICROS: Final = 1 << 60
#: Digits behind the point up to which a double is rounded.
_MAX_ROUNDED: Final = 12


class Binder(Protocol):
    """The methods of :class:`lamella.snapshot.expression.bind_terms.TermBinder` that functions use."""

    def common(self, term: Call) -> tuple[list[BoundTerm], DataType] | Unusable:
        """Returns the arguments in one type, and the type."""

    def offsets(self) -> Offsets:
        """Returns the offsets of the session's time zone."""

    def wall(self, term: BoundTerm) -> BoundTerm | Unusable:
        """Returns a time or date as a wall clock time, in microseconds."""

    def day(self, term: BoundTerm) -> BoundTerm | Unusable:
        """Returns the date of a date or time."""

    def cast(self, term: BoundTerm, target: str, name: str) -> BoundTerm | Unusable:
        """Returns the term cast to another type."""

    def shredded(self, variant: Leaf, steps: tuple[Step, ...]) -> Leaf | None:
        """Returns the shredded field at a path of a variant; None: there is none."""


def renamed(term: BoundTerm | Unusable, name: str) -> BoundTerm | Unusable:
    """Returns the same term with the text of the whole expression."""
    return Derived(term.function, term.arguments, term.dtype, name) if isinstance(term, Derived) else term


def _part_of_date(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    day = binder.day(bound[0])
    if isinstance(day, Unusable):
        return day
    part = cast("calendar.DatePart", term.function)
    return Derived(calendar.PartOfDate(part), (day,), INT, term_text(term))


def _part_of_clock(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    wall = binder.wall(bound[0]) if bound[0].dtype.name != "date" else Unusable("a date has no time of day")
    if isinstance(wall, Unusable):
        return wall
    part = cast("calendar.ClockPart", term.function)
    return Derived(calendar.PartOfClock(part), (wall,), INT, term_text(term))


def _to_date(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    return renamed(binder.day(bound[0]), term_text(term))


def _last_day(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    day = binder.day(bound[0])
    return day if isinstance(day, Unusable) else Derived(calendar.LastDay(), (day,), DATE, term_text(term))


def _add_months(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    day, months = binder.day(bound[0]), _whole_number(bound[1])
    if isinstance(day, Unusable):
        return day
    if months is None or abs(months) > _MAX_MONTHS:
        return Unusable("only a constant number of months is used")
    return Derived(calendar.AddMonths(months), (day,), DATE, term_text(term))


def _shift_days(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    day, days = binder.day(bound[0]), bound[1]
    if isinstance(day, Unusable):
        return day
    if not days.dtype.is_integer or days.dtype.bits > 32:
        return Unusable("a number of days is a whole number")
    operation: numeric.Operation = "add" if term.function == "date_add" else "subtract"
    return Derived(numeric.Integers(operation, DATE), (day, days), DATE, term_text(term))


def _datediff(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    days = [binder.day(each) for each in bound]
    problem = next((each for each in days if isinstance(each, Unusable)), None)
    if problem is not None:
        return problem
    arguments = tuple(each for each in days if not isinstance(each, Unusable))
    return Derived(numeric.Integers("subtract", INT), arguments, INT, term_text(term))


def _date_trunc(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    unit = _UNITS.get(_text(bound[0]).lower())
    if unit is None:
        return Unusable("this unit of date_trunc is not used")
    instant = bound[1] if bound[1].dtype.name == "timestamp" else binder.cast(bound[1], "timestamp", bound[1].name)
    if isinstance(instant, Unusable):
        return instant
    factor = FACTORS.get(instant.dtype.unit)
    if factor is None:
        return Unusable(f"a part of a {instant.dtype} is not used")
    start = calendar.StartOfInstant(unit, binder.offsets(), factor)
    return Derived(start, (instant,), _INSTANT, term_text(term))


def _trunc(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    unit, day = _UNITS.get(_text(bound[1]).lower()), binder.day(bound[0])
    if unit not in ("year", "quarter", "month", "week"):
        return Unusable("this unit of trunc is not used")
    if isinstance(day, Unusable):
        return day
    return Derived(calendar.StartOfDay(unit), (day,), DATE, term_text(term))


def _arithmetic(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    left, right = bound
    operation = cast("numeric.Operation", term.function)
    name = term_text(term)
    if left.dtype.name == "date" and operation in ("add", "subtract") and right.dtype.is_integer:
        shifted = Call("date_add" if operation == "add" else "date_sub", term.arguments)
        return renamed(_shift_days(binder, shifted, bound), name)
    kinds = [kind_of(each) for each in bound]
    if None in kinds:
        return Unusable(f"{operation} of {left.dtype} and {right.dtype} is not used")
    if "float" in kinds or (operation == "divide" and kinds == ["int", "int"]):
        return double_arithmetic(operation, left, right, name)
    if operation == "divide":
        return Unusable("a quotient of decimals is rounded")
    if kinds == ["int", "int"]:
        bits = max(signed_bits(left.dtype), signed_bits(right.dtype))
        dtype = parse_type(f"int{bits}")
        return Derived(numeric.Integers(operation, dtype), (left, right), dtype, name)
    return decimal_arithmetic(operation, left, right, name)


def _unary(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    (inner,) = bound
    if kind_of(inner) is None or inner.dtype.order == "uint":
        return Unusable(f"{term.function} of {inner.dtype} is not used")
    function = numeric.Negative if term.function == "negative" else numeric.Absolute
    return Derived(function(inner.dtype), (inner,), inner.dtype, term_text(term))


def _fold(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    if bound[0].dtype.name != "string":
        return Unusable("only text can be changed to upper or lower case")
    function = text.ChangedCase("lower" if term.function == "lower" else "upper")
    return Derived(function, (bound[0],), bound[0].dtype, term_text(term))


def _length(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    if not bound[0].dtype.is_text:
        return Unusable("length is only supported for text")
    return Derived(text.Length(), (bound[0],), INT, term_text(term))


def _beginning(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    count = _whole_number(bound[-1])
    if term.function == "substring":
        start = _whole_number(bound[1])
        if len(bound) < 3 or start not in (0, 1):
            return Unusable("only a prefix of text keeps its order")
    if bound[0].dtype.name != "string" or count is None or count < 1:
        return Unusable("only a prefix of constant length is used")
    return Derived(text.FirstCharacters(count), (bound[0],), bound[0].dtype, term_text(term))


def _whole(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    (inner,), up = bound, term.function == "ceil"
    dtype, kind, name = inner.dtype, kind_of(inner), term_text(term)
    if kind == "int":
        return cast_number(inner, LONG, name)
    if kind == "float":
        as_double = inner if dtype == DOUBLE else cast_number(inner, DOUBLE, name)
        if isinstance(as_double, Unusable):
            return as_double
        return Derived(integer.WholeDouble(up), (as_double,), LONG, name)
    if kind != "decimal":
        return Unusable(f"{term.function} of {dtype} is not used")
    if not dtype.scale:
        return renamed(inner, name)
    wanted = DataType("decimal", precision=dtype.precision - dtype.scale + 1, scale=0)
    return Derived(integer.WholeQuotient(wanted, 10**dtype.scale, up), (inner,), wanted, name)


def _round(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    inner, digits = bound[0], 0 if len(bound) == 1 else _whole_number(bound[1])
    dtype, kind, name, to_even = inner.dtype, kind_of(inner), term_text(term), term.function == "bround"
    if digits is None or digits < 0:
        return Unusable("only a constant number of digits behind the point is used")
    if kind == "int":
        return renamed(inner, name)
    if dtype == DOUBLE and digits <= _MAX_ROUNDED:
        return Derived(integer.RoundedDouble(DOUBLE, digits, to_even), (inner,), DOUBLE, name)
    if kind != "decimal":
        return Unusable(f"{term.function} of {dtype} is not used")
    scale = min(digits, dtype.scale)
    precision = dtype.precision - dtype.scale + 1 + scale
    if precision > MAX_DIGITS:
        return Unusable("Spark's decimals have no room for the rounded number")
    wanted = DataType("decimal", precision=precision, scale=scale)
    return Derived(integer.RoundedDecimal(wanted, 10 ** (dtype.scale - scale), to_even), (inner,), wanted, name)


def _whole_division(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    if [kind_of(each) for each in bound] != ["int", "int"]:
        return Unusable(f"{term.function} is only used for integers")
    if term.function == "div":
        return Derived(integer.Quotient(), tuple(bound), LONG, term_text(term))
    dtype = parse_type(f"int{max(signed_bits(each.dtype) for each in bound)}")
    return Derived(integer.Remainder(dtype, term.function == "pmod"), tuple(bound), dtype, term_text(term))


def _shift(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    inner, count = bound[0], _whole_number(bound[1])
    if kind_of(inner) != "int" or count is None or not -(1 << 31) <= count < 1 << 31:
        return Unusable("only integers are shifted, by a constant number of bits")
    dtype = INT if signed_bits(inner.dtype) <= INT.bits else LONG
    direction = term.function.removeprefix("shift").removeprefix("right") or "right"
    shift = integer.Shift(dtype, cast('Choice["left", "right", "unsigned"]', direction), count)
    return Derived(shift, (inner,), dtype, term_text(term))


def _extreme(binder: Binder, term: Call, _bound: list[BoundTerm]) -> BoundTerm | Unusable:
    found = binder.common(term)
    if isinstance(found, Unusable):
        return found
    arguments, dtype = found
    return Derived(choice.Extreme(term.function == "greatest"), tuple(arguments), dtype, term_text(term))


def _concat(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    if any(each.dtype.name == "binary" for each in bound):
        return Unusable("concat is only used for text")
    texts = [each if each.dtype.is_text else binder.cast(each, "string", each.name) for each in bound]
    problem = next((each for each in texts if isinstance(each, Unusable)), None)
    if problem is not None:
        return problem
    arguments = tuple(each for each in texts if not isinstance(each, Unusable))
    return Derived(text.Concatenation(), arguments, _STRING, term_text(term))


def _trim(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    if bound[0].dtype.name != "string":
        return Unusable("only text is trimmed")
    function = text.Trimmed("left" if term.function == "ltrim" else "right" if term.function == "rtrim" else "both")
    return Derived(function, (bound[0],), bound[0].dtype, term_text(term))


def _date_format(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    parts = text_casts.pattern_parts(_text(bound[1]))
    wall = binder.wall(bound[0])
    if isinstance(wall, Unusable):
        return wall
    if parts is None:
        return Unusable("a pattern is used if it has year, month, day and so on in this order, as in yyyy-MM-dd")
    if bound[0].dtype.name == "date" and "HH" in parts:
        return Unusable("the hour of a date depends on the clocks of its day")
    return Derived(text_casts.WallText(parts), (wall,), _STRING, term_text(term))


def _unix_date(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    if bound[0].dtype.name != "date":
        return Unusable("unix_date is of a date")
    return Derived(numeric.Whole(INT), (bound[0],), INT, term_text(term))


def _unix_time(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    at = bound[0]
    if term.function == "unix_timestamp" and at.dtype.name == "date":
        midnight = binder.cast(at, "timestamp", at.name)
        if isinstance(midnight, Unusable):
            return midnight
        at = midnight
    unit = {"unix_micros": "us", "unix_millis": "ms"}.get(term.function, "s")
    return seconds_of(at, term_text(term), unit)


def seconds_of(at: BoundTerm, name: str, unit: str = "s") -> BoundTerm | Unusable:
    """Returns the whole seconds (or another ``unit``) since 1970 of a timestamp, rounded down."""
    factor = FACTORS.get(at.dtype.unit)
    if at.dtype.name != "timestamp" or factor is None:
        return Unusable(f"the seconds of a {at.dtype} are not used")
    divisor = {"us": 1, "ms": 1_000, "s": 1_000_000}[unit]
    return Derived(integer.WholeQuotient(LONG, divisor, factor=factor), (at,), LONG, name)


def _add_interval(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    at, unit, count = bound[0], _text(bound[1]), _whole_number(bound[2])
    name = term_text(term)
    if count is None or unit not in ("MONTH", "DAY", "MICROSECOND"):
        return Unusable("only a constant interval is added")
    if at.dtype.name == "date":
        if unit == "MONTH":
            if abs(count) > _MAX_MONTHS:
                return Unusable("the interval is too long")
            return Derived(calendar.AddMonths(count), (at,), DATE, name)
        if unit == "DAY" and -(1 << 31) < count < 1 << 31:
            days = ConstantTerm(count, INT, bound[2].name)
            return Derived(numeric.Integers("add", DATE), (at, days), DATE, name)
    if unit != "MICROSECOND":
        return _moved(binder, at, unit.lower(), count, name)
    # Spark adds the whole days of an interval by the clocks of the time zone, then the rest.
    whole_days, rest_us = divmod(abs(count), _DAY_US)
    sign = -1 if count < 0 else 1
    moved = _moved(binder, at, "day", sign * whole_days, name) if whole_days else at
    return moved if isinstance(moved, Unusable) else _moved(binder, moved, "microsecond", sign * rest_us, name)


def _timestampadd(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    unit, count = _text(bound[0]).lower(), _whole_number(bound[1])
    if count is None:
        return Unusable("only a constant number of units is added")
    return _moved(binder, bound[2], unit, count, term_text(term))


def _timestampdiff(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    unit = _text(bound[0]).lower()
    size = _MICROS.get(unit) or {"day": _DAY_US, "week": 7 * _DAY_US}.get(unit)
    if size is None:
        return Unusable("this unit of timestampdiff is not used")
    # Spark casts both to timestamps, and subtracts the clocks of the time zone (DateTimeUtils.timestampDiff).
    start, end = (_clock_of_instant(binder, each) for each in bound[1:])
    if isinstance(start, Unusable) or isinstance(end, Unusable):
        return start if isinstance(start, Unusable) else end
    name = term_text(term)
    micros = Derived(numeric.Integers("subtract", LONG), (end, start), LONG, name)
    if size == 1:
        return micros
    return Derived(integer.Quotient(), (micros, ConstantTerm(size, LONG, str(size))), LONG, name)


def _clock_of_instant(binder: Binder, at: BoundTerm) -> BoundTerm | Unusable:
    instant = at if at.dtype.name == "timestamp" else binder.cast(at, "timestamp", at.name)
    return instant if isinstance(instant, Unusable) else binder.wall(instant)


def _moved(binder: Binder, at: BoundTerm, unit: str, count: int, name: str) -> BoundTerm | Unusable:
    """Returns a time moved by a number of units: hours and less exactly, days and longer by the clocks."""
    if at.dtype.name == "date":
        midnight = binder.cast(at, "timestamp", at.name)
        if isinstance(midnight, Unusable):
            return midnight
        at = midnight
    factor = FACTORS.get(at.dtype.unit)
    if at.dtype.name not in ("timestamp", "timestamp_ntz") or factor is None:
        return Unusable(f"an interval is not added to a {at.dtype}")
    micros = count * _MICROS.get(unit, 0)
    if unit in _MICROS and abs(micros) <= _MAX_MICROS:
        dtype = _INSTANT if at.dtype.name == "timestamp" else _WALL
        added = ConstantTerm(micros, LONG, str(micros))
        return Derived(numeric.Integers("add", dtype, left_factor=factor), (at, added), dtype, name)
    days, months = count * _DAYS.get(unit, 0), count * _MONTHS.get(unit, 0)
    if unit not in (*_DAYS, *_MONTHS) or abs(days) > _MAX_DAYS or abs(months) > _MAX_MONTHS:
        return Unusable("this unit or number of units is not used")
    if at.dtype.name == "timestamp":
        return Derived(calendar.MovedInstant(binder.offsets(), days, months, factor), (at,), _INSTANT, name)
    wall = binder.wall(at)
    if isinstance(wall, Unusable):
        return wall
    if months:
        return Derived(calendar.AddMonthsToWall(months), (wall,), _WALL, name)
    added = ConstantTerm(days * _DAY_US, LONG, str(count))
    return Derived(numeric.Integers("add", _WALL), (wall, added), _WALL, name)


def _json_path(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    document, path = bound
    if not document.dtype.is_text:
        return Unusable("JSON paths are only supported on text")
    steps = json_path.steps_of(_text(path))
    if steps is None:
        return Unusable("only a constant JSON path of names and positions is used")
    same = Call(term.function, (term.arguments[0], Literal("string", json_path.path_of(steps))))
    return Derived(json_path.JsonPath(steps), (document,), _STRING, term_text(same))


def _variant_get(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    variant, steps = bound[0], variant_steps(_text(bound[1]))
    if not isinstance(variant, Leaf) or variant.dtype.name != "variant":
        return Unusable(f"{term.function} is of a column that is a variant")
    if steps is None:
        return Unusable("only a constant path of names is used")
    if len(bound) < 3:
        return Unusable("a variant is not compared")
    try:
        wanted = parse_type(_text(bound[2]))
    except InvalidSchema as error:
        raise InvalidFilter(f"unknown type {_text(bound[2])!r} of {term.function}", type=_text(bound[2])) from error
    field = binder.shredded(variant, steps)
    if field is None:
        return Unusable(f"{path_text(steps)} is not a shredded field of {variant.name}")
    same = Call(
        term.function,
        (term.arguments[0], Literal("string", path_text(steps)), Literal("string", spark_name(wanted))),
    )
    name = term_text(same)
    got = Derived(variants.ShreddedField(), (field,), field.dtype, name)
    if wanted == field.dtype:
        return got
    source = field.dtype
    if wanted == _STRING and (source.is_integer or source.name in ("boolean", "date")):
        return binder.cast(got, "string", name)
    if source.is_integer or source.is_float or source.name == "decimal":
        return cast_number(got, wanted, name)
    return Unusable(f"{path_text(steps)} of {variant.name} is shredded as {source}, which is not read as {wanted}")


def _whole_number(term: BoundTerm) -> int | None:
    return (
        term.value if isinstance(term, ConstantTerm) and isinstance(term.value, int) and term.dtype.is_integer else None
    )


def _text(term: BoundTerm) -> str:
    return term.value.decode() if isinstance(term, ConstantTerm) and isinstance(term.value, bytes) else ""


Reader = Callable[[Binder, Call, list[BoundTerm]], BoundTerm | Unusable]
#: How each function of the language is bound; its arguments are bound already.
READERS: Final[dict[str, Reader]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide"), _arithmetic),
    **dict.fromkeys(("negative", "abs"), _unary),
    **dict.fromkeys(("floor", "ceil"), _whole),
    **dict.fromkeys(("round", "bround"), _round),
    **dict.fromkeys(("div", "mod", "pmod"), _whole_division),
    **dict.fromkeys(("shiftleft", "shiftright", "shiftrightunsigned"), _shift),
    **dict.fromkeys(("greatest", "least"), _extreme),
    **dict.fromkeys(("year", "quarter", "month", "day", "dayofweek", "dayofyear"), _part_of_date),
    **dict.fromkeys(("weekday", "weekofyear", "yearofweek"), _part_of_date),
    **dict.fromkeys(("hour", "minute", "second"), _part_of_clock),
    "to_date": _to_date,
    "last_day": _last_day,
    "add_months": _add_months,
    **dict.fromkeys(("date_add", "date_sub"), _shift_days),
    "datediff": _datediff,
    "date_trunc": _date_trunc,
    "date_format": _date_format,
    "unix_date": _unix_date,
    **dict.fromkeys(("unix_seconds", "unix_millis", "unix_micros", "unix_timestamp"), _unix_time),
    "add_interval": _add_interval,
    "timestampadd": _timestampadd,
    "timestampdiff": _timestampdiff,
    "trunc": _trunc,
    **dict.fromkeys(("lower", "upper"), _fold),
    "length": _length,
    "concat": _concat,
    **dict.fromkeys(("trim", "ltrim", "rtrim"), _trim),
    **dict.fromkeys(("substring", "left"), _beginning),
    "get_json_object": _json_path,
    **dict.fromkeys(("variant_get", "try_variant_get"), _variant_get),
}
