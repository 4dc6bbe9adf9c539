"""Binding of functions: what each one computes, or the reason why it is not understood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, cast

from lamella.snapshot.expression.bound import BoundTerm, Derived, Held
from lamella.snapshot.expression.coerce import Unusable
from lamella.snapshot.expression.nodes import Call, Literal
from lamella.snapshot.expression.term_numbers import (
    DATE,
    INT,
    decimal_arithmetic,
    double_arithmetic,
    kind_of,
    signed_bits,
)
from lamella.snapshot.expression.text import term_text
from lamella.snapshot.function import arithmetic, calendar, json_path, text
from lamella.snapshot.function.offsets import Offsets
from lamella.snapshot.schema import parse_type

_INSTANT: Final = parse_type("timestamp(us)")
_STRING: Final = parse_type("string")
_MAX_MONTHS: Final = 120_000
#: Microseconds in the units of times that are used.
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


class Binder(Protocol):
    """What functions need of :class:`lamella.snapshot.expression.terms.TermBinder`."""

    def offsets(self) -> Offsets:
        """The offsets of the session's time zone."""

    def wall(self, term: BoundTerm) -> BoundTerm | Unusable:
        """A time or date as the wall clock shows it, in microseconds."""

    def day(self, term: BoundTerm) -> BoundTerm | Unusable:
        """The date of a date or time."""

    def cast(self, term: BoundTerm, target: str, name: str) -> BoundTerm | Unusable:
        """The term in another type."""


def renamed(term: BoundTerm | Unusable, name: str) -> BoundTerm | Unusable:
    """The same term under the text of the whole."""
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
    operation: arithmetic.Operation = "add" if term.function == "date_add" else "subtract"
    return Derived(arithmetic.Integers(operation, DATE), (day, days), DATE, term_text(term))


def _datediff(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    days = [binder.day(each) for each in bound]
    problem = next((each for each in days if isinstance(each, Unusable)), None)
    if problem is not None:
        return problem
    arguments = tuple(each for each in days if not isinstance(each, Unusable))
    return Derived(arithmetic.Integers("subtract", INT), arguments, INT, term_text(term))


def _date_trunc(binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    unit = _UNITS.get(_text(bound[0]).lower())
    if unit is None:
        return Unusable("this unit of date_trunc is not used")
    instant = bound[1] if bound[1].dtype.name == "timestamp" else binder.cast(bound[1], "timestamp", bound[1].name)
    if isinstance(instant, Unusable):
        return instant
    factor = FACTORS.get(instant.dtype.unit)
    if factor is None or isinstance(instant, Held):
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
    operation = cast("arithmetic.Operation", term.function)
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
        return Derived(arithmetic.Integers(operation, dtype), (left, right), dtype, name)
    return decimal_arithmetic(operation, left, right, name)


def _unary(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    (inner,) = bound
    if kind_of(inner) is None or inner.dtype.order == "uint":
        return Unusable(f"{term.function} of {inner.dtype} is not used")
    function = arithmetic.Negative if term.function == "negative" else arithmetic.Absolute
    return Derived(function(inner.dtype), (inner,), inner.dtype, term_text(term))


def _fold(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    if bound[0].dtype.name != "string":
        return Unusable("only text is folded")
    function = text.Folded("lower" if term.function == "lower" else "upper")
    return Derived(function, (bound[0],), bound[0].dtype, term_text(term))


def _length(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    if not bound[0].dtype.is_text:
        return Unusable("only the length of text is used")
    return Derived(text.Length(), (bound[0],), INT, term_text(term))


def _beginning(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    count = _whole_number(bound[-1])
    if term.function == "substring":
        start = _whole_number(bound[1])
        if len(bound) < 3 or start not in (0, 1):
            return Unusable("only the beginning of text keeps its order")
    if bound[0].dtype.name != "string" or count is None or count < 1:
        return Unusable("only a beginning of text of constant length is used")
    return Derived(text.FirstCharacters(count), (bound[0],), bound[0].dtype, term_text(term))


def _json_path(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    document, path = bound
    if not document.dtype.is_text:
        return Unusable("only paths in text are used")
    steps = json_path.steps_of(_text(path))
    if steps is None:
        return Unusable("only a constant JSON path of names and places is used")
    same = Call(term.function, (term.arguments[0], Literal("string", json_path.path_of(steps))))
    return Derived(json_path.JsonPath(steps), (document,), _STRING, term_text(same))


def _whole_number(term: BoundTerm) -> int | None:
    return term.value if isinstance(term, Held) and isinstance(term.value, int) and term.dtype.is_integer else None


def _text(term: BoundTerm) -> str:
    return term.value.decode() if isinstance(term, Held) and isinstance(term.value, bytes) else ""


Reader = Callable[[Binder, Call, list[BoundTerm]], BoundTerm | Unusable]
#: How each function of the language is bound, its arguments being bound already.
READERS: Final[dict[str, Reader]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide"), _arithmetic),
    **dict.fromkeys(("negative", "abs"), _unary),
    **dict.fromkeys(("year", "quarter", "month", "day", "dayofweek", "dayofyear"), _part_of_date),
    **dict.fromkeys(("hour", "minute", "second"), _part_of_clock),
    "to_date": _to_date,
    "last_day": _last_day,
    "add_months": _add_months,
    **dict.fromkeys(("date_add", "date_sub"), _shift_days),
    "datediff": _datediff,
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    **dict.fromkeys(("lower", "upper"), _fold),
    "length": _length,
    **dict.fromkeys(("substring", "left"), _beginning),
    "get_json_object": _json_path,
}
