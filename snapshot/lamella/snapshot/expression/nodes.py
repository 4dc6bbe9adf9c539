"""The filter language as values, independent of a schema, and the size limits of filters.

A filter is a tree of predicates over terms (columns, functions of columns, literals), with SQL's three-valued logic.
Whatever cannot be expressed is :class:`Unknown`: it may be true, false or null for any row, so it excludes nothing,
while the other predicates still do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final
from typing import Literal as Choice

import msgspec

#: Maximum characters of SQL text; longer lists belong in a JSON filter, which needs no tokenizer.
MAX_SQL_CHARACTERS: Final = 262_144
#: Maximum words, numbers, quoted texts and signs of SQL text that needs the parser, without long lists of constants
#: after IN. The parser takes up to 60 µs for each.
MAX_SQL_TOKENS: Final = 10_000
#: The same for all filters of one request together.
MAX_REQUEST_SQL_TOKENS: Final = 5 * MAX_SQL_TOKENS
#: Maximum levels of nested types (arrays, maps, structs) in a cast. The parser's time grows quadratically.
MAX_SQL_TYPE_DEPTH: Final = 8
#: Maximum nodes that the parser may create per token of a text, including those of failed attempts, and a constant
#: number besides.
MAX_NODES_PER_TOKEN: Final = 20
NODES_BESIDE: Final = 1_000
#: Maximum levels of nesting.
MAX_DEPTH: Final = 100
#: Levels of nesting that SQL text can always have. The parser recurses several times per level, so it fails before
#: :data:`MAX_DEPTH`; a JSON filter can use all of them.
SURE_SQL_DEPTH: Final = 20
#: Maximum predicates in one filter.
MAX_NODES: Final = 10_000
#: Maximum parts of a predicate that is written out of others, each as often as it occurs: rows and conditions that are
#: compared, and a CASE of conditions.
MAX_WRITTEN_OUT: Final = 1_000
#: Maximum literals of one IN list.
MAX_IN_LITERALS: Final = 1_000_000


#: A part of a pattern: fixed text, or one of the two wildcards.
Part = str | int
ANY: Final = 0
ONE: Final = 1


def like_parts(pattern: str, escape: str) -> tuple[Part, ...] | None:
    """Returns a pattern's parts; None if the escape character precedes anything but a wildcard or itself.

    No two texts and no two ``ANY`` are adjacent.
    """
    parts: list[Part] = []
    text: list[str] = []
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if escape and character == escape:
            if index + 1 == len(pattern) or pattern[index + 1] not in ("%", "_", escape):
                return None
            text.append(pattern[index + 1])
            index += 2
            continue
        index += 1
        if character not in "%_":
            text.append(character)
            continue
        if text:
            parts.append("".join(text))
            text.clear()
        if character == "_":
            parts.append(ONE)
        elif parts[-1:] != [ANY]:
            parts.append(ANY)
    if text:
        parts.append("".join(text))
    return tuple(parts)


def min_length(parts: tuple[Part, ...]) -> int:
    """Returns the minimum number of characters of a matching text."""
    return sum(len(part) if isinstance(part, str) else part for part in parts)


def is_like(text: str, parts: tuple[Part, ...]) -> bool:
    """Returns whether the whole text matches; the time is at most the product of the two lengths."""
    single: list[str | int] = []
    for part in parts:
        single += [part] if isinstance(part, int) else list(part)
    at = here = 0
    retry: tuple[int, int] | None = None  # after the last ANY, and the first character that it has not consumed
    while at < len(text):
        if here < len(single) and single[here] == ANY:
            here += 1
            retry = (here, at)
        elif here < len(single) and (single[here] == ONE or single[here] == text[at]):
            here, at = here + 1, at + 1
        elif retry is not None:
            here, at = retry[0], retry[1] + 1
            retry = (here, at)
        else:
            return False
    return all(part == ANY for part in single[here:])


Operator = Choice["lt", "le", "gt", "ge", "eq", "ne"]
#: The operators with the sides exchanged.
MIRRORED: Final[dict[Operator, Operator]] = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}

#: How a literal was written, which determines what it may be compared with and how (see ``bind``).
LiteralKind = Choice[
    "null",
    "boolean",
    "integer",  # value: int
    "decimal",  # value: text of a decimal number, exact
    "double",  # value: float
    "float",  # value: float that is exact in 32 bits
    "string",  # SQL text: compared with other types by Spark's casts
    "text",  # JSON text: stands for a date, timestamp, decimal, uuid, ... of the column's own type
    "binary",  # value: bytes
    "date",  # value: days since 1970-01-01
    "timestamp",  # value: microseconds since the epoch, an instant
    "timestamp_ntz",  # value: microseconds since the epoch, wall clock
]


#: Types of whole numbers that a suffix names: ``1Y``, ``1S``, ``1L``.
SUFFIXES: Final = {"Y": "int8", "S": "int16", "L": "int64"}


class Literal(msgspec.Struct, frozen=True, gc=False):
    """A constant; ``kind`` states how it was written.

    ``type``: for an integer the type that its suffix names, and in the list of an IN the type that a cast gave a
    decimal; empty: the type is that of the digits. With a decimal operand, Spark still types an integer by its digits,
    but a cast by its type: therefore casts of integers and decimals are :class:`Cast`.
    """

    kind: LiteralKind
    value: bool | int | float | str | bytes | None = None
    type: str = ""


class Ref(msgspec.Struct, frozen=True, gc=False):
    """A column by its path: dots separate the parts; a part with a dot or a backquote is quoted with backquotes."""

    path: str


class Call(msgspec.Struct, frozen=True, gc=False):
    """A scalar function; ``function`` is one of :data:`FUNCTIONS`, with arguments in Spark's order."""

    function: str
    arguments: tuple[Term, ...]


class Cast(msgspec.Struct, frozen=True, gc=False):
    """``CAST(term AS type)``; the type by its text (see ``lamella.snapshot.schema.types``)."""

    term: Term
    type: str


class Branch(msgspec.Struct, frozen=True, gc=False):
    """``WHEN condition THEN value``."""

    condition: Predicate
    value: Term


class Case(msgspec.Struct, frozen=True, gc=False):
    """``CASE WHEN ... THEN ... ELSE otherwise END``: the value of the first branch whose condition is true."""

    branches: tuple[Branch, ...]
    otherwise: Term = Literal("null")


#: The operands of comparisons: a value of each row.
Term = Ref | Literal | Call | Cast | Case

#: Supported functions with the numbers of arguments that they accept.
FUNCTIONS: Final[dict[str, tuple[int, ...]]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "div", "mod", "pmod"), (2,)),
    **dict.fromkeys(("negative", "abs", "floor", "ceil"), (1,)),
    **dict.fromkeys(("round", "bround"), (1, 2)),  # number, digits
    **dict.fromkeys(("shiftleft", "shiftright", "shiftrightunsigned"), (2,)),
    **dict.fromkeys(("greatest", "least"), tuple(range(2, 9))),
    **dict.fromkeys(("year", "quarter", "month", "day", "dayofweek", "dayofyear", "hour", "minute", "second"), (1,)),
    **dict.fromkeys(("weekday", "weekofyear", "yearofweek"), (1,)),
    **dict.fromkeys(("to_date", "last_day"), (1,)),
    **dict.fromkeys(("date_add", "date_sub", "datediff", "add_months"), (2,)),
    "date_trunc": (2,),  # unit, timestamp -> timestamp
    "trunc": (2,),  # date, unit -> date
    "add_interval": (3,),  # date or timestamp, unit (MONTH, DAY, MICROSECOND), count; like + INTERVAL
    "timestampadd": (3,),  # unit, count, timestamp
    "timestampdiff": (3,),  # unit, start, end
    "date_format": (2,),  # timestamp, pattern
    **dict.fromkeys(("unix_date", "unix_seconds", "unix_millis", "unix_micros", "unix_timestamp"), (1,)),
    **dict.fromkeys(("lower", "upper", "length", "trim", "ltrim", "rtrim"), (1,)),
    "concat": tuple(range(1, 9)),
    "substring": (2, 3),  # text, start, length
    "left": (2,),
    "get_json_object": (2,),  # text, path
    **dict.fromkeys(("variant_get", "try_variant_get"), (2, 3)),  # variant, path, type
    "coalesce": tuple(range(1, 9)),
}


class SourcePosition(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The position of a predicate: a 0-based offset in SQL text, or a JSON path. All positions are equal to each
    other."""

    position: int | str | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourcePosition)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, SourcePosition)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Place()"  # equal values have equal texts


class _Positioned(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """``at`` is for messages only, and so does not affect equality."""

    at: SourcePosition = SourcePosition()


class Constant(msgspec.Struct, frozen=True, gc=False):
    """TRUE, FALSE, or NULL."""

    value: bool | None


class Compare(_Positioned, frozen=True, gc=False):
    """``left op right``; null if either is null. A single literal is on the right."""

    op: Operator
    left: Term
    right: Term


class NullSafeEqual(_Positioned, frozen=True, gc=False):
    """``left <=> right``; never null."""

    left: Term
    right: Term


class In(_Positioned, frozen=True, gc=False):
    """``term IN (literals)``, of any length."""

    term: Term
    literals: tuple[Literal, ...]


class IsNull(_Positioned, frozen=True, gc=False):
    """``term IS NULL``."""

    term: Term


class IsNan(_Positioned, frozen=True, gc=False):
    """``isnan(term)``; false for null."""

    term: Term


class Like(_Positioned, frozen=True, gc=False):
    """``term LIKE pattern``, with ``%``, ``_`` and one escape character (empty: none)."""

    term: Term
    pattern: str
    escape: str = "\\"


class StartsWith(_Positioned, frozen=True, gc=False):
    """``startswith(term, prefix)``."""

    term: Term
    prefix: Literal


class Truth(_Positioned, frozen=True, gc=False):
    """A boolean column as a predicate."""

    term: Term


class IsTrue(msgspec.Struct, frozen=True, gc=False):
    """``(predicate) IS TRUE``: null counts as false."""

    child: Predicate


class IsUnknown(msgspec.Struct, frozen=True, gc=False):
    """``(predicate) IS NULL``, or ``IS UNKNOWN``: true where it is null, otherwise false."""

    child: Predicate


class And(msgspec.Struct, frozen=True, gc=False):
    """All of the children."""

    children: tuple[Predicate, ...]


class Or(msgspec.Struct, frozen=True, gc=False):
    """Any of the children."""

    children: tuple[Predicate, ...]


class Not(msgspec.Struct, frozen=True, gc=False):
    """SQL's NOT: null stays null."""

    child: Predicate


class Unknown(_Positioned, frozen=True, gc=False):
    """A predicate that is not used: its text, the reason, and the columns it names (they must exist)."""

    text: str
    reason: str
    columns: tuple[str, ...] = ()


#: Predicates of one term, and all predicates over terms.
OneTermPredicate = In | IsNull | IsNan | Like | StartsWith | Truth
TermPredicate = Compare | NullSafeEqual | OneTermPredicate
Predicate = Constant | TermPredicate | IsTrue | IsUnknown | And | Or | Not | Unknown

TRUE = Constant(True)


def is_known(predicate: Predicate) -> bool:
    """Returns whether no part of a predicate is unknown."""
    return not any(isinstance(part, Unknown) for part in _parts(predicate))


def part_count(predicate: Predicate, limit: int) -> int:
    """Returns the number of parts of a predicate, counted up to a limit: a part that occurs twice counts twice."""
    return sum(1 for _ in islice(_parts(predicate), limit))


def _parts(predicate: Predicate) -> Iterator[Predicate]:
    pending: list[Predicate] = [predicate]
    while pending:
        part = pending.pop()
        yield part
        if isinstance(part, And | Or):
            pending += part.children
        elif isinstance(part, Not | IsTrue | IsUnknown):
            pending.append(part.child)


def columns_of_term(term: Term) -> tuple[str, ...]:
    """Returns the columns that a term names, without those of the conditions of a CASE, and without duplicates."""
    match term:
        case Ref(path):
            return (path,)
        case Cast(inner, _):
            return columns_of_term(inner)
        case Call(_, arguments):
            return tuple(dict.fromkeys(name for argument in arguments for name in columns_of_term(argument)))
        case Case(branches, otherwise):
            values = (*(branch.value for branch in branches), otherwise)
            return tuple(dict.fromkeys(name for value in values for name in columns_of_term(value)))
        case _:
            return ()
