"""Binding of terms: the value that each function of columns computes, or the reason why it is not supported."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Final, Protocol, cast
from typing import cast as as_type

from lamella.snapshot.columnar.zones import is_wide
from lamella.snapshot.errors import InvalidFilter, InvalidSchema
from lamella.snapshot.expression import spark_casts
from lamella.snapshot.expression.bound import BoundTerm, ConstantTerm, Derived
from lamella.snapshot.expression.coerce import DIGITS, Point, Unusable, coerce
from lamella.snapshot.expression.nodes import FUNCTIONS, Call, Cast, Literal, Ref, Term
from lamella.snapshot.expression.text import term_text
from lamella.snapshot.function import calendar, json_path, numeric, text
from lamella.snapshot.function.calendar import Offsets, offsets_of
from lamella.snapshot.function.numeric import Coalesce
from lamella.snapshot.schema import DataType, Leaf, Schema, parse_type

# Numbers in terms: Spark's types for them, casts between them, and constants.
#
# The result type is the wider of two integers, a decimal with room for the exact result, or a double if one operand is.
# Operations that Spark would round are not supported.

INT: Final = parse_type("int32")
LONG: Final = parse_type("int64")
DOUBLE: Final = parse_type("float64")
DATE: Final = parse_type("date")
_MAX_DIGITS: Final = 38


def double_arithmetic(
    operation: numeric.Operation, left: BoundTerm, right: BoundTerm, name: str
) -> BoundTerm | Unusable:
    singles = [each for each in (left, right) if each.dtype.is_float and each.dtype.bits < 64]
    others = [each for each in (left, right) if each not in singles]
    if singles and not any(each.dtype == DOUBLE or each.dtype.name == "decimal" for each in others):
        return Unusable("arithmetic in single precision is not used")
    arguments = [_as_double(each) for each in (left, right)]
    problem = next((each for each in arguments if isinstance(each, Unusable)), None)
    if problem is not None:
        return problem
    made = tuple(each for each in arguments if not isinstance(each, Unusable))
    return Derived(numeric.Doubles(operation, DOUBLE), made, DOUBLE, name)


def _as_double(term: BoundTerm) -> BoundTerm | Unusable:
    if isinstance(term, ConstantTerm) and isinstance(term.value, int):
        exact = Fraction(term.value, 10**term.dtype.scale)
        try:
            return ConstantTerm(float(exact), DOUBLE, term.name)
        except OverflowError:
            return Unusable("the number is too large for a double")
    if term.dtype.name == "decimal":
        return Unusable("a decimal cast to a double is rounded")
    return term if term.dtype == DOUBLE else Derived(numeric.ToDouble(DOUBLE), (term,), DOUBLE, term.name)


def decimal_arithmetic(
    operation: numeric.Operation, left: BoundTerm, right: BoundTerm, name: str
) -> BoundTerm | Unusable:
    (p1, s1), (p2, s2) = _digits(left), _digits(right)
    if operation == "multiply":
        scale, precision, factors = s1 + s2, p1 + p2 + 1, (1, 1)
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
        factors = 10 ** (scale - s1), 10 ** (scale - s2)
    if precision > _MAX_DIGITS:
        return Unusable("Spark rounds decimals of more than 38 digits")
    dtype = DataType("decimal", precision=precision, scale=scale)
    return Derived(numeric.Integers(operation, dtype, *factors), (left, right), dtype, name)


def is_comparable(left: DataType, right: DataType) -> bool:
    """Returns whether two types' bounds can be compared directly, and Spark compares the values in the same way."""
    if left.is_integer and right.is_integer:
        return left.order == right.order
    if left.is_float and right.is_float:
        return True
    if left.name == right.name == "decimal":
        return left.scale == right.scale and is_wide(left) == is_wide(right) and left.order is not None
    if left.is_text and right.is_text:
        return True
    return left == right and left.order is not None


def as_decimals(left: BoundTerm, right: BoundTerm) -> tuple[BoundTerm, BoundTerm] | Unusable:
    """Returns both terms as decimals that represent the values of both exactly."""
    (p1, s1), (p2, s2) = _digits(left), _digits(right)
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale
    if precision > _MAX_DIGITS:
        return Unusable("Spark rounds decimals of more than 38 digits")
    wanted = DataType("decimal", precision=precision, scale=scale)
    first, second = (each if each.dtype == wanted else cast_number(each, wanted, each.name) for each in (left, right))
    if isinstance(first, Unusable) or isinstance(second, Unusable):
        return first if isinstance(first, Unusable) else Unusable("a decimal is not compared with this type")
    return first, second


def as_doubles(left: BoundTerm, right: BoundTerm) -> tuple[BoundTerm, BoundTerm] | Unusable:
    first, second = (_as_double(each) for each in (left, right))
    if isinstance(first, Unusable) or isinstance(second, Unusable):
        return (
            first
            if isinstance(first, Unusable)
            else Unusable("whether the number is compared as a double is not certain")
        )
    return first, second


def coalesce_type(dtype: DataType, constant: list[ConstantTerm]) -> DataType | None:
    """Returns the type of a coalesce of such a column and numbers, None if it would have to round."""
    if not constant:
        return dtype
    if dtype.name == "float32":
        decimals = [each.dtype.name == "decimal" for each in constant]
        return DOUBLE if all(decimals) else None if any(decimals) else dtype
    if dtype.is_integer:
        if not all(each.dtype.is_integer for each in constant):
            return None
        bits = max(signed_bits(dtype), *(each.dtype.bits for each in constant))
        return parse_type(f"int{bits}") if bits <= 64 else None  # uint64 is a decimal in Spark
    if dtype.name == "decimal":
        pairs = [(dtype.precision, dtype.scale), *(_typed_digits(each) for each in constant)]
        scale = max(s for _, s in pairs)
        precision = max(p - s for p, s in pairs) + scale
        return DataType("decimal", precision=precision, scale=scale) if precision <= _MAX_DIGITS else None
    return dtype


def cast_number(term: BoundTerm, wanted: DataType, name: str) -> BoundTerm | Unusable:
    source = term.dtype
    whole = source.is_integer or source.name in ("boolean", "decimal")
    if wanted.is_integer and wanted.order == "int" and whole:
        return Derived(numeric.Whole(wanted, divisor=10**source.scale), (term,), wanted, name)
    if wanted.is_integer and wanted.order == "int" and source == DOUBLE:
        return Derived(numeric.ToInteger(wanted), (term,), wanted, name)
    if wanted.name == "decimal" and wanted.order == "decimal" and whole and wanted.scale >= source.scale:
        return Derived(numeric.Whole(wanted, factor=10 ** (wanted.scale - source.scale)), (term,), wanted, name)
    if wanted == DOUBLE and (source.is_integer or source.is_float):
        return Derived(numeric.ToDouble(wanted), (term,), wanted, name)
    return Unusable(f"a cast from {source} to {wanted} does not reliably keep the order")


def digits_of(number: Decimal) -> tuple[int, int]:
    """Returns precision and scale of the decimal type that Spark gives a number by its digits."""
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or exponent >= 0:
        return len(digits) + (exponent if isinstance(exponent, int) else 0), 0
    return max(len(digits), -exponent), -exponent


def type_of(literal: Literal) -> DataType:
    """Returns the type of a whole number or decimal outside of decimal arithmetic."""
    if literal.type:
        return parse_type(literal.type)
    value = literal.value
    if literal.kind == "integer" and isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return INT if -(1 << 31) <= value < 1 << 31 else LONG
    precision, scale = digits_of(Decimal(str(value)))
    return DataType("decimal", precision=precision, scale=scale)


def constant(literal: Literal) -> ConstantTerm | Unusable:
    """Returns a literal inside a function, in the type that Spark gives it."""
    value, name = literal.value, term_text(literal)
    if literal.kind in ("integer", "decimal"):
        dtype = type_of(literal)
        if dtype.name == "decimal" and dtype.precision > _MAX_DIGITS:
            return Unusable("a constant has more digits than Spark's decimals")
        digits = len(str(abs(value))) if literal.kind == "integer" and isinstance(value, int) else 0
        return ConstantTerm(int(Fraction(Decimal(str(value))) * 10**dtype.scale), dtype, name, digits)
    if literal.kind == "double" and isinstance(value, float | int):
        return ConstantTerm(float(value), DOUBLE, name)
    if literal.kind in ("string", "text"):
        return ConstantTerm(str(value).encode(), parse_type("string"), name)
    if literal.kind == "date" and isinstance(value, int):
        return ConstantTerm(value, DATE, name)
    return Unusable("a constant of this kind inside a function is not used")


def constant_as(constant: ConstantTerm, wanted: DataType, name: str) -> ConstantTerm | Unusable:
    """Returns a whole number or decimal constant in another type that represents it exactly."""
    source, value = constant.dtype, constant.value
    if not isinstance(value, int) or not (source.is_integer or source.name == "decimal"):
        return Unusable("a constant that is cast is not used")
    to_integer = wanted.is_integer and wanted.order == "int" and not source.scale
    if to_integer or (wanted.order == "decimal" and wanted.scale >= source.scale):
        moved = value * 10 ** (wanted.scale - source.scale)
        low, high = wanted.int_range
        if low <= moved <= high:
            return ConstantTerm(moved, wanted, name)
    return Unusable("a constant that its cast rounds is not used")


def _typed_digits(constant: ConstantTerm) -> tuple[int, int]:
    """Returns precision and scale of a constant's type."""
    return (
        (constant.dtype.precision, constant.dtype.scale)
        if constant.dtype.name == "decimal"
        else (DIGITS[constant.dtype.bits], 0)
    )


def kind_of(term: BoundTerm) -> str | None:
    if term.dtype.is_integer:
        return "int" if term.dtype.name != "uint64" else None
    if term.dtype.is_float:
        return "float" if term.dtype.bits > 16 else None
    return "decimal" if term.dtype.order == "decimal" else None


def signed_bits(dtype: DataType) -> int:
    """Returns the width of the signed integer as which Spark reads a column."""
    return dtype.bits * 2 if dtype.order == "uint" else dtype.bits


def _digits(term: BoundTerm) -> tuple[int, int]:
    """Returns precision and scale of a term in decimal arithmetic."""
    if term.dtype.name == "decimal":
        return term.dtype.precision, term.dtype.scale
    if isinstance(term, ConstantTerm) and term.digits:
        return term.digits, 0
    return DIGITS[signed_bits(term.dtype)], 0


# Binding of terms: a function of columns becomes a computed term, or the reason why it is not supported.
#
# Types are Spark's: the wider of two integers, decimals with room for the exact result, doubles if one operand is a
# double. Operations that Spark would round, cast row by row, or decide by its ANSI setting have no exact meaning here
# and are not supported.

_INSTANT: Final = parse_type("timestamp(us)")
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


class Binder(Protocol):
    """The methods of :class:`lamella.snapshot.expression.bind_terms.TermBinder` that functions use."""

    def offsets(self) -> Offsets:
        """Returns the offsets of the session's time zone."""

    def wall(self, term: BoundTerm) -> BoundTerm | Unusable:
        """Returns a time or date as a wall clock time, in microseconds."""

    def day(self, term: BoundTerm) -> BoundTerm | Unusable:
        """Returns the date of a date or time."""

    def cast(self, term: BoundTerm, target: str, name: str) -> BoundTerm | Unusable:
        """Returns the term cast to another type."""


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
    if factor is None or isinstance(instant, ConstantTerm):
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


def _json_path(_binder: Binder, term: Call, bound: list[BoundTerm]) -> BoundTerm | Unusable:
    document, path = bound
    if not document.dtype.is_text:
        return Unusable("JSON paths are only supported on text")
    steps = json_path.steps_of(_text(path))
    if steps is None:
        return Unusable("only a constant JSON path of names and positions is used")
    same = Call(term.function, (term.arguments[0], Literal("string", json_path.path_of(steps))))
    return Derived(json_path.JsonPath(steps), (document,), _STRING, term_text(same))


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


_WALL: Final = parse_type("timestamp_ntz(us)")
_DAY_US: Final = 86_400_000_000
#: The constants that a coalesce accepts with a term, if the result has the term's type.
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
_REPEATED: Final = "the column is inside a list or map: its statistics do not apply to whole rows"


class TermBinder:
    """Binds terms over one schema."""

    def __init__(self, schema: Schema, time_zone: str, case_sensitive: bool) -> None:
        self._schema = schema
        self._time_zone = time_zone
        self._case_sensitive = case_sensitive
        self._columns: dict[str, Leaf | Unusable] = {}

    def bind(self, term: Term) -> BoundTerm | Unusable:
        """Binds a term; returns the reason if it is not supported.

        Raises:
            UnknownColumn: anywhere in the term.
            InvalidFilter: a function that does not exist, or with another number of arguments.
        """
        match term:
            case Ref(path):
                return self._column(path)
            case Literal():
                return constant(term)
            case Cast(inner, target):
                bound = self.bind(inner)
                return bound if isinstance(bound, Unusable) else self.cast(bound, target, term_text(term))
            case Call(name, arguments):
                counts = FUNCTIONS.get(name)
                if counts is None or len(arguments) not in counts:
                    raise InvalidFilter(f"there is no function {name} with {len(arguments)} arguments", function=name)
                return self._call(term)

    def _column(self, path: str) -> Leaf | Unusable:
        """Returns the column of a path; repeated names are looked up once."""
        found = self._columns.get(path)
        if found is None:
            leaf = self._schema.find(path, case_sensitive=self._case_sensitive)
            found = Unusable(_NESTED) if leaf is None else Unusable(_REPEATED) if leaf.repeated else leaf
            self._columns[path] = found
        return found

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
        if all(isinstance(each, ConstantTerm) for each in bound):
            return Unusable(f"function {term.function} of constants is not evaluated")
        return READERS[term.function](self, term, bound)

    def offsets(self) -> Offsets:
        """Returns the offsets of the session's time zone."""
        zone = spark_casts.zone(self._time_zone)
        if zone is None:
            raise AssertionError("the time zone was checked before")
        return offsets_of(zone)

    def wall(self, term: BoundTerm) -> BoundTerm | Unusable:
        """Returns a time or date as a wall clock time, in microseconds."""
        dtype = term.dtype
        if dtype.name == "date":
            return Derived(calendar.Micros(_DAY_US), (term,), _WALL, term.name)
        factor = FACTORS.get(dtype.unit)
        if dtype.name not in ("timestamp", "timestamp_ntz") or factor is None or isinstance(term, ConstantTerm):
            return Unusable(f"a part of a {dtype} is not used")
        if dtype.name == "timestamp":
            return Derived(calendar.Wall(self.offsets(), factor), (term,), _WALL, term.name)
        return term if factor == 1 else Derived(calendar.Micros(factor), (term,), _WALL, term.name)

    def day(self, term: BoundTerm) -> BoundTerm | Unusable:
        """Returns the date of a date or time."""
        if term.dtype.name == "date":
            return term
        wall = self.wall(term)
        return wall if isinstance(wall, Unusable) else Derived(calendar.Day(), (wall,), DATE, term.name)

    def cast(self, term: BoundTerm, target: str, name: str) -> BoundTerm | Unusable:
        """Returns the term in another type, like ``CAST``; raises InvalidFilter for a type that does not exist."""
        try:
            wanted = parse_type(target)
        except InvalidSchema as error:
            raise InvalidFilter(f"unknown type {target!r} in a cast", type=target) from error
        source = term.dtype
        if isinstance(term, ConstantTerm):
            return constant_as(term, wanted, name)
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

    def in_one_order(self, left: BoundTerm, right: BoundTerm) -> tuple[BoundTerm, BoundTerm] | Unusable:
        """Converts both terms to one order, as Spark casts them before it compares; returns the reason if that is not
        exact."""
        pair = left.dtype, right.dtype
        if is_comparable(*pair):
            return left, right
        if isinstance(left, ConstantTerm) or isinstance(right, ConstantTerm):
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
                each if each.dtype.name == wanted else self.cast(each, wanted, each.name) for each in (left, right)
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
            return problem or Unusable("coalesce of constants is not evaluated")
        plain = [constant(each) for each in term.arguments if isinstance(each, Literal) and each.kind in _NUMBERS]
        wanted = coalesce_type(first.dtype, [each for each in (*plain, *bound) if isinstance(each, ConstantTerm)])
        arguments: list[BoundTerm] = []
        made: BoundTerm | Unusable | None
        for argument, each in zip(term.arguments, bound, strict=True):
            if isinstance(argument, Literal):
                made = None if wanted is None else self._constant_of_coalesce(argument, wanted)
            elif isinstance(each, ConstantTerm):
                made = (
                    each if each.dtype == wanted else None if wanted is None else constant_as(each, wanted, each.name)
                )
            elif wanted is None or not isinstance(each, Leaf | Derived) or each.dtype != first.dtype:
                made = None
            else:
                made = each if each.dtype == wanted else cast_number(each, wanted, each.name)
            if made is None or isinstance(made, Unusable):
                return Unusable("coalesce of several types is cast row by row")
            arguments.append(made)
        return Derived(Coalesce(), tuple(arguments), wanted or first.dtype, term_text(term))

    def _constant_of_coalesce(self, literal: Literal, dtype: DataType) -> ConstantTerm | None:
        """Returns a constant of a coalesce in the result's type; None if Spark's type for the whole is another."""
        if literal.kind == "null":
            return ConstantTerm(None, dtype, "NULL")
        if literal.kind not in _BESIDE.get(dtype.name, frozenset()):
            return None
        name = term_text(literal)
        point = coerce(literal, ConstantTerm(None, dtype, name), self._time_zone)
        if isinstance(point, Unusable) or not _is_value(point, dtype):
            return None
        return ConstantTerm(as_type("int | float | bytes", point.value), dtype, name)


def _is_value(point: Point, dtype: DataType) -> bool:
    if isinstance(point.value, Fraction) or (isinstance(point.value, float) != (dtype.order == "float")):
        return False
    if isinstance(point.value, int) and dtype.order != "float":
        low, high = dtype.int_range
        return low <= point.value <= high
    return True
