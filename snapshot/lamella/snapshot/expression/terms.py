"""Binding of terms: a function of columns becomes what is computed, or the reason why it is not understood.

Types are Spark's: the wider of two integers, decimals with room for the exact result, doubles beside anything. What
Spark would round, cast row by row, or decide by its ANSI setting has no exact meaning here and is not understood.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final, cast

from lamella.snapshot.errors import InvalidFilter, InvalidSchema
from lamella.snapshot.expression import moments
from lamella.snapshot.expression.bound import BoundTerm, Derived, Held
from lamella.snapshot.expression.coerce import Point, Unusable, coerce
from lamella.snapshot.expression.nodes import FUNCTIONS, Call, Cast, Literal, Ref, Term
from lamella.snapshot.expression.term_numbers import (
    DATE,
    DOUBLE,
    INT,
    as_decimals,
    as_doubles,
    cast_number,
    decimal_arithmetic,
    double_arithmetic,
    held,
    held_as,
    is_comparable,
    kind_of,
    room_for,
    signed_bits,
)
from lamella.snapshot.expression.text import term_text
from lamella.snapshot.function import arithmetic, calendar, text
from lamella.snapshot.function.choice import Coalesce
from lamella.snapshot.function.offsets import Offsets, offsets_of
from lamella.snapshot.schema import DataType, Leaf, Schema, parse_type

_INSTANT: Final = parse_type("timestamp(us)")
_WALL: Final = parse_type("timestamp_ntz(us)")
_DAY_US: Final = 86_400_000_000
_MAX_MONTHS: Final = 120_000
_FACTORS: Final = {"us": 1, "ms": 1000}
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
#: Which constants a coalesce takes beside a term, the result being of the term's type.
_BESIDE: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("int32", "int64"), frozenset({"integer"})),
    "decimal": frozenset({"integer", "decimal"}),
    "float32": frozenset({"integer"}),
    "float64": frozenset({"integer", "decimal", "double"}),
    **{kind: frozenset({kind}) for kind in ("boolean", "binary", "date", "timestamp", "timestamp_ntz")},
    "string": frozenset({"string"}),
}
_NUMBERS: Final = frozenset({"integer", "decimal"})
_NESTED: Final = "a struct, list or map as a whole has no statistics"
_REPEATED: Final = "the column lies below a list or map: its statistics say nothing of whole rows"


class TermBinder:
    """Binds terms over one schema."""

    def __init__(self, schema: Schema, time_zone: str, case_sensitive: bool) -> None:
        self._schema = schema
        self._time_zone = time_zone
        self._case_sensitive = case_sensitive

    def bind(self, term: Term) -> BoundTerm | Unusable:
        """The term, or why it is not understood.

        Raises:
            UnknownColumn: anywhere in the term.
            InvalidFilter: a function that does not exist, or with another number of arguments.
        """
        match term:
            case Ref(path):
                return self._column(path)
            case Literal():
                return held(term)
            case Cast(inner, target):
                bound = self.bind(inner)
                return bound if isinstance(bound, Unusable) else self._cast(bound, target, term_text(term))
            case Call(name, arguments):
                counts = FUNCTIONS.get(name)
                if counts is None or len(arguments) not in counts:
                    raise InvalidFilter(f"there is no function {name} of {len(arguments)} arguments", function=name)
                return self._call(term)

    def _column(self, path: str) -> Leaf | Unusable:
        leaf = self._schema.find(path, case_sensitive=self._case_sensitive)
        if leaf is None:
            return Unusable(_NESTED)
        return Unusable(_REPEATED) if leaf.repeated else leaf

    def _call(self, term: Call) -> BoundTerm | Unusable:
        if term.function == "coalesce":
            return self._coalesce(term)
        bound: list[BoundTerm] = []
        problem = None
        for argument in term.arguments:  # all of them, so that an unknown column is always an error
            made = self.bind(argument)
            if isinstance(made, Unusable):
                problem = problem or made
            else:
                bound.append(made)
        if problem is not None:
            return problem
        if all(isinstance(each, Held) for each in bound):
            return Unusable(f"function {term.function} of constants only is not computed")
        return _READERS[term.function](self, term, bound)

    def offsets(self) -> Offsets:
        """The offsets of the session's time zone."""
        zone = moments.zone(self._time_zone)
        if zone is None:
            raise AssertionError("the time zone was checked before")
        return offsets_of(zone)

    def wall(self, term: BoundTerm) -> BoundTerm | Unusable:
        """A time or date as the wall clock shows it, in microseconds."""
        dtype = term.dtype
        if dtype.name == "date":
            return Derived(calendar.Micros(_DAY_US), (term,), _WALL, term.name)
        factor = _FACTORS.get(dtype.unit)
        if dtype.name not in ("timestamp", "timestamp_ntz") or factor is None or isinstance(term, Held):
            return Unusable(f"a part of a {dtype} is not used")
        if dtype.name == "timestamp":
            return Derived(calendar.Wall(self.offsets(), factor), (term,), _WALL, term.name)
        return term if factor == 1 else Derived(calendar.Micros(factor), (term,), _WALL, term.name)

    def day(self, term: BoundTerm) -> BoundTerm | Unusable:
        """The date of a date or time."""
        if term.dtype.name == "date":
            return term
        wall = self.wall(term)
        return wall if isinstance(wall, Unusable) else Derived(calendar.Day(), (wall,), DATE, term.name)

    def _cast(self, term: BoundTerm, target: str, name: str) -> BoundTerm | Unusable:
        try:
            wanted = parse_type(target)
        except InvalidSchema as error:
            raise InvalidFilter(f"unknown type {target!r} in a cast", type=target) from error
        source = term.dtype
        if isinstance(term, Held):
            return held_as(term, wanted, name)
        if source == wanted or (source.is_text and wanted.name == "string"):
            return term
        if source.name == wanted.name and source.name in ("timestamp", "timestamp_ntz"):
            return term  # Spark has one unit only
        if wanted == DATE and source.name in ("timestamp", "timestamp_ntz"):
            day = self.day(term)
            return renamed(day, name)
        if wanted == _INSTANT and source.name in ("date", "timestamp_ntz"):
            wall = self.wall(term)
            if isinstance(wall, Unusable):
                return wall
            return Derived(calendar.Instant(self.offsets(), source.name == "date"), (wall,), _INSTANT, name)
        if wanted == _WALL and source.name in ("date", "timestamp"):
            return renamed(self.wall(term), name)
        return cast_number(term, wanted, name)

    def alike(self, left: BoundTerm, right: BoundTerm) -> tuple[BoundTerm, BoundTerm] | Unusable:
        """Both terms in one order, as Spark casts them before it compares the values; or why that is not exact."""
        pair = left.dtype, right.dtype
        if is_comparable(*pair):
            return left, right
        if isinstance(left, Held) or isinstance(right, Held):
            return Unusable("a constant that was cast is not compared")
        kinds = {kind_of(left), kind_of(right)}
        if kinds in ({"decimal"}, {"int", "decimal"}):
            return as_decimals(left, right)
        if kinds == {"int", "float"} and DOUBLE in pair:
            return as_doubles(left, right)
        names = {dtype.name for dtype in pair}
        if names <= {"date", "timestamp", "timestamp_ntz"} and len(names) == 2:
            wanted = "timestamp" if "timestamp" in names else "timestamp_ntz"
            sides = [
                each if each.dtype.name == wanted else self._cast(each, wanted, each.name) for each in (left, right)
            ]
            first, second = sides
            if isinstance(first, Unusable) or isinstance(second, Unusable):
                return (
                    first
                    if isinstance(first, Unusable)
                    else Unusable(f"{left.dtype} and {right.dtype} are not compared")
                )
            if first.dtype == second.dtype:
                return first, second
        return Unusable(f"{left.dtype} and {right.dtype} are cast to a common type row by row")

    def _coalesce(self, term: Call) -> BoundTerm | Unusable:
        bound = [None if isinstance(argument, Literal) else self.bind(argument) for argument in term.arguments]
        problem = next((each for each in bound if isinstance(each, Unusable)), None)
        first = next((each for each in bound if isinstance(each, Leaf | Derived)), None)
        if first is None or problem is not None:
            return problem or Unusable("coalesce of constants only is not computed")
        plain = [held(each) for each in term.arguments if isinstance(each, Literal) and each.kind in _NUMBERS]
        wanted = room_for(first.dtype, [each for each in (*plain, *bound) if isinstance(each, Held)])
        arguments: list[BoundTerm] = []
        made: BoundTerm | Unusable | None
        for argument, each in zip(term.arguments, bound, strict=True):
            if isinstance(argument, Literal):
                made = None if wanted is None else self._held_beside(argument, wanted)
            elif isinstance(each, Held):
                made = each if each.dtype == wanted else None if wanted is None else held_as(each, wanted, each.name)
            elif wanted is None or not isinstance(each, Leaf | Derived) or each.dtype != first.dtype:
                made = None
            else:
                made = each if each.dtype == wanted else cast_number(each, wanted, each.name)
            if made is None or isinstance(made, Unusable):
                return Unusable("coalesce of several types is cast row by row")
            arguments.append(made)
        return Derived(Coalesce(), tuple(arguments), wanted or first.dtype, term_text(term))

    def _held_beside(self, literal: Literal, dtype: DataType) -> Held | None:
        """A constant of a coalesce in the result's type; None where Spark's type for the whole is another."""
        if literal.kind == "null":
            return Held(None, dtype, "NULL")
        if literal.kind not in _BESIDE.get(dtype.name, frozenset()):
            return None
        name = term_text(literal)
        place = coerce(literal, Held(None, dtype, name), self._time_zone)
        if isinstance(place, Unusable) or not _is_value(place, dtype):
            return None
        return Held(cast("int | float | bytes", place.value), dtype, name)

    def part_of_date(self, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
        day = self.day(bound[0])
        if isinstance(day, Unusable):
            return day
        part = cast("calendar.DatePart", term.function)
        return Derived(calendar.PartOfDate(part), (day,), INT, term_text(term))

    def part_of_clock(self, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
        wall = self.wall(bound[0]) if bound[0].dtype.name != "date" else Unusable("a date has no time of day")
        if isinstance(wall, Unusable):
            return wall
        part = cast("calendar.ClockPart", term.function)
        return Derived(calendar.PartOfClock(part), (wall,), INT, term_text(term))

    def to_date(self, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
        return renamed(self.day(bound[0]), term_text(term))

    def last_day(self, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
        day = self.day(bound[0])
        return day if isinstance(day, Unusable) else Derived(calendar.LastDay(), (day,), DATE, term_text(term))

    def add_months(self, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
        day, months = self.day(bound[0]), _whole_number(bound[1])
        if isinstance(day, Unusable):
            return day
        if months is None or abs(months) > _MAX_MONTHS:
            return Unusable("only a constant number of months is used")
        return Derived(calendar.AddMonths(months), (day,), DATE, term_text(term))

    def shift_days(self, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
        day, days = self.day(bound[0]), bound[1]
        if isinstance(day, Unusable):
            return day
        if not days.dtype.is_integer or days.dtype.bits > 32:
            return Unusable("a number of days is a whole number")
        operation: arithmetic.Operation = "add" if term.function == "date_add" else "subtract"
        return Derived(arithmetic.Integers(operation, DATE), (day, days), DATE, term_text(term))

    def datediff(self, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
        days = [self.day(each) for each in bound]
        problem = next((each for each in days if isinstance(each, Unusable)), None)
        if problem is not None:
            return problem
        arguments = tuple(each for each in days if not isinstance(each, Unusable))
        return Derived(arithmetic.Integers("subtract", INT), arguments, INT, term_text(term))

    def date_trunc(self, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
        unit = _UNITS.get(_text(bound[0]).lower())
        if unit is None:
            return Unusable("this unit of date_trunc is not used")
        instant = bound[1] if bound[1].dtype.name == "timestamp" else self._cast(bound[1], "timestamp", bound[1].name)
        if isinstance(instant, Unusable):
            return instant
        factor = _FACTORS.get(instant.dtype.unit)
        if factor is None or isinstance(instant, Held):
            return Unusable(f"a part of a {instant.dtype} is not used")
        start = calendar.StartOfInstant(unit, self.offsets(), factor)
        return Derived(start, (instant,), _INSTANT, term_text(term))

    def trunc(self, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
        unit, day = _UNITS.get(_text(bound[1]).lower()), self.day(bound[0])
        if unit not in ("year", "quarter", "month", "week"):
            return Unusable("this unit of trunc is not used")
        if isinstance(day, Unusable):
            return day
        return Derived(calendar.StartOfDay(unit), (day,), DATE, term_text(term))


def renamed(term: BoundTerm | Unusable, name: str) -> BoundTerm | Unusable:
    """The same term under the text of the whole."""
    return Derived(term.function, term.arguments, term.dtype, name) if isinstance(term, Derived) else term


def _arithmetic(binder: TermBinder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    left, right = bound
    operation = cast("arithmetic.Operation", term.function)
    name = term_text(term)
    if left.dtype.name == "date" and operation in ("add", "subtract") and right.dtype.is_integer:
        shifted = Call("date_add" if operation == "add" else "date_sub", term.arguments)
        return renamed(binder.shift_days(shifted, bound), name)
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


def _unary(_binder: TermBinder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    (inner,) = bound
    if kind_of(inner) is None or inner.dtype.order == "uint":
        return Unusable(f"{term.function} of {inner.dtype} is not used")
    function = arithmetic.Negative if term.function == "negative" else arithmetic.Absolute
    return Derived(function(inner.dtype), (inner,), inner.dtype, term_text(term))


def _fold(_binder: TermBinder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    if bound[0].dtype.name != "string":
        return Unusable("only text is folded")
    function = text.Folded("lower" if term.function == "lower" else "upper")
    return Derived(function, (bound[0],), bound[0].dtype, term_text(term))


def _length(_binder: TermBinder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    if not bound[0].dtype.is_text:
        return Unusable("only the length of text is used")
    return Derived(text.Length(), (bound[0],), INT, term_text(term))


def _beginning(_binder: TermBinder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    count = _whole_number(bound[-1])
    if term.function == "substring":
        start = _whole_number(bound[1])
        if len(bound) < 3 or start not in (0, 1):
            return Unusable("only the beginning of text keeps its order")
    if bound[0].dtype.name != "string" or count is None or count < 1:
        return Unusable("only a beginning of text of constant length is used")
    return Derived(text.FirstCharacters(count), (bound[0],), bound[0].dtype, term_text(term))


def _whole_number(term: BoundTerm) -> int | None:
    return term.value if isinstance(term, Held) and isinstance(term.value, int) and term.dtype.is_integer else None


def _text(term: BoundTerm) -> str:
    return term.value.decode() if isinstance(term, Held) and isinstance(term.value, bytes) else ""


def _is_value(place: Point, dtype: DataType) -> bool:
    if isinstance(place.value, Fraction) or (isinstance(place.value, float) != (dtype.order == "float")):
        return False
    if isinstance(place.value, int) and dtype.order != "float":
        low, high = dtype.int_range
        return low <= place.value <= high
    return True


_Reader = Callable[[TermBinder, Call, list[BoundTerm]], BoundTerm | Unusable]
_READERS: Final[dict[str, _Reader]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide"), _arithmetic),
    **dict.fromkeys(("negative", "abs"), _unary),
    **dict.fromkeys(("year", "quarter", "month", "day", "dayofweek", "dayofyear"), TermBinder.part_of_date),
    **dict.fromkeys(("hour", "minute", "second"), TermBinder.part_of_clock),
    "to_date": TermBinder.to_date,
    "last_day": TermBinder.last_day,
    "add_months": TermBinder.add_months,
    **dict.fromkeys(("date_add", "date_sub"), TermBinder.shift_days),
    "datediff": TermBinder.datediff,
    "date_trunc": TermBinder.date_trunc,
    "trunc": TermBinder.trunc,
    **dict.fromkeys(("lower", "upper"), _fold),
    "length": _length,
    **dict.fromkeys(("substring", "left"), _beginning),
}
