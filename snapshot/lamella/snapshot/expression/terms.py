"""Binding of terms: a function of columns becomes what is computed, or the reason why it is not understood.

Types are Spark's: the wider of two integers, decimals with room for the exact result, doubles beside anything. What
Spark would round, cast row by row, or decide by its ANSI setting has no exact meaning here and is not understood.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final
from typing import cast as as_type

from lamella.snapshot.errors import InvalidFilter, InvalidSchema
from lamella.snapshot.expression import moments
from lamella.snapshot.expression.bound import BoundTerm, Derived, Held
from lamella.snapshot.expression.coerce import Point, Unusable, coerce
from lamella.snapshot.expression.nodes import FUNCTIONS, Call, Cast, Literal, Ref, Term
from lamella.snapshot.expression.term_functions import FACTORS, READERS, renamed
from lamella.snapshot.expression.term_numbers import (
    DATE,
    DOUBLE,
    as_decimals,
    as_doubles,
    cast_number,
    held,
    held_as,
    is_comparable,
    kind_of,
    room_for,
)
from lamella.snapshot.expression.text import term_text
from lamella.snapshot.function import calendar
from lamella.snapshot.function.choice import Coalesce
from lamella.snapshot.function.offsets import Offsets, offsets_of
from lamella.snapshot.schema import DataType, Leaf, Schema, parse_type

_INSTANT: Final = parse_type("timestamp(us)")
_WALL: Final = parse_type("timestamp_ntz(us)")
_DAY_US: Final = 86_400_000_000
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
        self._columns: dict[str, Leaf | Unusable] = {}

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
                return bound if isinstance(bound, Unusable) else self.cast(bound, target, term_text(term))
            case Call(name, arguments):
                counts = FUNCTIONS.get(name)
                if counts is None or len(arguments) not in counts:
                    raise InvalidFilter(f"there is no function {name} of {len(arguments)} arguments", function=name)
                return self._call(term)

    def _column(self, path: str) -> Leaf | Unusable:
        """The column of a path; one that is named again is not looked up again."""
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
        if all(isinstance(each, Held) for each in bound):
            return Unusable(f"function {term.function} of constants only is not computed")
        return READERS[term.function](self, term, bound)

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
        factor = FACTORS.get(dtype.unit)
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

    def cast(self, term: BoundTerm, target: str, name: str) -> BoundTerm | Unusable:
        """The term in another type, as ``CAST`` does it; raises InvalidFilter for a type that does not exist."""
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
        return Held(as_type("int | float | bytes", place.value), dtype, name)


def _is_value(place: Point, dtype: DataType) -> bool:
    if isinstance(place.value, Fraction) or (isinstance(place.value, float) != (dtype.order == "float")):
        return False
    if isinstance(place.value, int) and dtype.order != "float":
        low, high = dtype.int_range
        return low <= place.value <= high
    return True
