"""Binding of terms: the value that each function of columns computes, or the reason why it is not supported."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, cast

from lamella.snapshot.errors import InvalidFilter, InvalidSchema
from lamella.snapshot.expression import spark_casts
from lamella.snapshot.expression.bind_functions import FACTORS, READERS, renamed, seconds_of
from lamella.snapshot.expression.bind_numbers import (
    DATE,
    DOUBLE,
    LONG,
    as_decimals,
    as_doubles,
    cast_number,
    coalesce_type,
    constant,
    constant_as,
    is_comparable,
    kind_of,
    signed_bits,
)
from lamella.snapshot.expression.bound import BoundTerm, ConstantTerm, Derived
from lamella.snapshot.expression.coerce import Point, Unusable, coerce
from lamella.snapshot.expression.nodes import FUNCTIONS, Call, Case, Cast, Literal, Ref, Term
from lamella.snapshot.expression.text import term_text
from lamella.snapshot.function import Function, calendar, text_casts
from lamella.snapshot.function.base import Vector, constant_vector
from lamella.snapshot.function.calendar import Offsets, offsets_of
from lamella.snapshot.function.choice import Coalesce
from lamella.snapshot.schema import DataType, Leaf, Schema, parse_type
from lamella.snapshot.variant.paths import Step, path_text

_INSTANT: Final = parse_type("timestamp(us)")
_STRING: Final = parse_type("string")
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
            case Case():
                return Unusable("a CASE is decided branch by branch")
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
        if term.function in ("greatest", "least"):
            return READERS[term.function](self, term, [])
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
        made = READERS[term.function](self, term, bound)
        return computed(made) if all(isinstance(each, ConstantTerm) for each in bound) else made

    def shredded(self, variant: Leaf, steps: tuple[Step, ...]) -> Leaf | None:
        """Returns the shredded field at a path of a variant; None: there is none."""
        wanted = (*variant.path, path_text(steps))
        return next((leaf for leaf in self._schema.shredded_leaves() if leaf.path == wanted), None)

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
        if dtype.name not in ("timestamp", "timestamp_ntz") or factor is None:
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
        if isinstance(term, ConstantTerm):
            number = constant_as(term, wanted, name)
            return computed(self._cast(term, wanted, name)) if isinstance(number, Unusable) else number
        return self._cast(term, wanted, name)

    def _cast(self, term: BoundTerm, wanted: DataType, name: str) -> BoundTerm | Unusable:
        source = term.dtype
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
        if wanted == LONG and source.name == "timestamp":
            return seconds_of(term, name)
        if wanted == _STRING:
            return self._as_text(term, name)
        return cast_number(term, wanted, name)

    def _as_text(self, term: BoundTerm, name: str) -> BoundTerm | Unusable:
        source = term.dtype
        if source.name in ("timestamp", "timestamp_ntz"):
            wall = self.wall(term)
            return wall if isinstance(wall, Unusable) else Derived(text_casts.WallText(), (wall,), _STRING, name)
        function: Function | None = None
        if source.is_integer and source.name != "uint64":
            function = text_casts.IntegerText()
        elif source.name in ("boolean", "date"):
            function = text_casts.BooleanText() if source.name == "boolean" else text_casts.DateText()
        if function is None:
            return Unusable(f"a {source} as text does not keep its order")
        return Derived(function, (term,), _STRING, name)

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
        found = self.common(term)
        return found if isinstance(found, Unusable) else Derived(Coalesce(), tuple(found[0]), found[1], term_text(term))

    def common(self, term: Call) -> tuple[list[BoundTerm], DataType] | Unusable:
        """Returns the arguments of a coalesce (or greatest, least) in one type, and the type; the reason if Spark would
        cast them row by row."""
        name = term.function
        bound = [None if isinstance(argument, Literal) else self.bind(argument) for argument in term.arguments]
        problem = next((each for each in bound if isinstance(each, Unusable)), None)
        first = next((each for each in bound if isinstance(each, Leaf | Derived)), None)
        if first is None or problem is not None:
            return problem or Unusable(f"{name} of constants is not evaluated")
        types = [each.dtype for each in bound if isinstance(each, Leaf | Derived)]
        base = first.dtype
        widens = any(each != base for each in types) and all(
            each.is_integer and each.name != "uint64" for each in types
        )
        if widens:
            base = parse_type(f"int{max(map(signed_bits, types))}")
        plain = [constant(each) for each in term.arguments if isinstance(each, Literal) and each.kind in _NUMBERS]
        wanted = coalesce_type(base, [each for each in (*plain, *bound) if isinstance(each, ConstantTerm)])
        arguments: list[BoundTerm] = []
        made: BoundTerm | Unusable | None
        for argument, each in zip(term.arguments, bound, strict=True):
            if isinstance(argument, Literal):
                made = None if wanted is None else self._constant_of_coalesce(argument, wanted)
            elif isinstance(each, ConstantTerm):
                made = (
                    each if each.dtype == wanted else None if wanted is None else constant_as(each, wanted, each.name)
                )
            elif wanted is None or not isinstance(each, Leaf | Derived) or (each.dtype != base and not widens):
                made = None
            else:
                made = each if each.dtype == wanted else cast_number(each, wanted, each.name)
            if made is None or isinstance(made, Unusable):
                return Unusable(f"{name} of several types is cast row by row")
            arguments.append(made)
        return arguments, wanted or base

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
        return ConstantTerm(cast("int | float | bytes", point.value), dtype, name)


def computed(made: BoundTerm | Unusable) -> BoundTerm | Unusable:
    """Returns the constant that a function of constants computes; the reason if Spark may refuse to compute it."""
    if not isinstance(made, Derived):
        return made
    vector = _value_of(made)
    if vector.failed is not None and vector.failed.any():
        return Unusable(f"a constant that Spark may refuse: {vector.reason}")
    if not vector.valid[0]:
        return ConstantTerm(None, made.dtype, made.name)
    value = vector.values.to_pylist()[0] if vector.is_bytes else vector.values.tolist()[0]
    return ConstantTerm(value, made.dtype, made.name)


def _value_of(term: BoundTerm) -> Vector:
    if isinstance(term, ConstantTerm):
        return constant_vector(term.dtype, term.value, 1)
    if not isinstance(term, Derived):
        raise AssertionError("a column is not constant")
    return term.function.rows(*(_value_of(argument) for argument in term.arguments))


def _is_value(point: Point, dtype: DataType) -> bool:
    if isinstance(point.value, Fraction) or (isinstance(point.value, float) != (dtype.order == "float")):
        return False
    if isinstance(point.value, int) and dtype.order != "float":
        low, high = dtype.int_range
        return low <= point.value <= high
    return True
