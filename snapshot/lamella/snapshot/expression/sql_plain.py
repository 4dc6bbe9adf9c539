"""Plain SQL filters, read without a parser: comparisons, IN, BETWEEN, LIKE and IS NULL of columns and constants, under
AND, OR, NOT and parentheses.

This reader returns either a certain result or none. Its result equals that of :mod:`.sql` for the same text; everything
uncertain (comments, escapes, functions, words with a meaning in SQL, deep nesting, every mistake) is left to that
reader, which also raises all errors. Tests compare the two. Decision 21 explains why there are two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

from lamella.snapshot.expression import spark_casts
from lamella.snapshot.expression.nodes import (
    MAX_IN_LITERALS,
    MAX_NODES,
    SURE_SQL_DEPTH,
    And,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Operator,
    Or,
    Predicate,
    Ref,
    SourcePosition,
)
from lamella.snapshot.expression.sql_terms import number
from lamella.snapshot.schema import quoted_path

_OPERATORS: Final[dict[str, Operator]] = {
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "=": "eq",
    "==": "eq",
    "<>": "ne",
    "!=": "ne",
}
#: Words of SQL that are common column names, and that are columns wherever this reader accepts a name.
NAMES: Final = frozenset(
    {
        *("database", "date", "datetime", "first", "format", "index", "json", "key", "number", "offset", "partition"),
        *("percent", "row", "schema", "sequence", "session", "text", "time", "timestamp", "uuid", "view"),
    }
)
#: Every other word that the parser knows, alone or in a keyword of several words.
_RESERVED: Final = (
    frozenset(word.lower() for keyword in Spark.Tokenizer.KEYWORDS for word in keyword.split())
    | frozenset(word.lower() for word in SparkParser.NO_PAREN_FUNCTION_PARSERS)
) - NAMES
#: Each level of this reader is at most two of the guaranteed levels of SQL text.
_MAX_LEVELS: Final = SURE_SQL_DEPTH // 2
_MAX_NAME: Final = 200

# Possessive quantifiers (with a plus) do not backtrack: the time is linear in the text.
_SPACE: Final = "[ \t\r\n]"
_PART: Final = r"(?:[a-z_][a-z0-9_]*+|`[^`\\]++`)"
_NAME: Final = rf"{_SPACE}*+({_PART}(?:\.{_PART})*+)"
#: Groups: a whole number, another number, the type of a text, the text, a word.
_VALUE: Final = (
    r"(?:(-?[0-9]{1,60}+)|(-?[0-9]++(?:\.[0-9]++)?+(?:e[+-]?[0-9]++)?+)"
    rf"|(?:(date|timestamp(?:_ntz|_ltz)?+){_SPACE}*+)?+'([^'\\]*+)'|(true|false|null))"
)
#: What may follow a predicate: a parenthesis, AND, OR, or nothing.
_NEXT: Final = rf"{_SPACE}*+(\)|\Z|(?<={_SPACE})(?:and|or)(?={_SPACE}|\())"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.ASCII | re.IGNORECASE)


_WHOLE: Final = rf"{_SPACE}*+-?[0-9]{{1,60}}+{_SPACE}*+"

_PARTS: Final = _pattern(_PART)
_COMPARISON: Final = _pattern(rf"{_NAME}{_SPACE}*+(<=>|<=|>=|<>|!=|==|=|<|>){_SPACE}*+{_VALUE}{_NEXT}")
_OTHER: Final = _pattern(rf"{_NAME}{_SPACE}++(not{_SPACE}++)?+(in|between|like|is)(?![a-z0-9_])")
_OPENING: Final = _pattern(rf"{_SPACE}*+(not(?={_SPACE}|\()|\()")
_BEHIND: Final = _pattern(_NEXT)
_WHOLE_NUMBERS: Final = _pattern(rf"{_SPACE}*+\(({_WHOLE}(?:,{_WHOLE})*+)\)")
_LIST: Final = _pattern(rf"{_SPACE}*+\(")
_ITEM: Final = _pattern(rf"{_SPACE}*+{_VALUE}{_SPACE}*+([,)])")
_BOUNDS: Final = _pattern(rf"{_SPACE}++{_VALUE}{_SPACE}++and{_SPACE}++{_VALUE}{_NEXT}")
_LIKE: Final = _pattern(rf"{_SPACE}*+'([^'\\]*+)'{_NEXT}")
_NULL: Final = _pattern(rf"{_SPACE}++(not{_SPACE}++)?+null{_NEXT}")
#: A quoted text, or IN followed by a possible list.
_IN: Final = _pattern(rf"'[^']*+'|\"[^\"]*+\"|`[^`]*+`|(?<![a-z0-9_.])in(?={_SPACE}*+\()")
#: A shorter list is left to the parser.
_LONG_LIST: Final = 32
#: What may follow a predicate, by its length.
_END, _CLOSING, _OR, _AND = 0, 1, 2, 3


class _Unsure(Exception):
    """The text is left to the other reader."""


def read_plain(text: str, time_zone: str) -> Predicate | None:
    """Returns the predicate of a plain filter, None for a text about which this reader is not certain.

    ``text`` is valid Unicode; ``time_zone`` is for TIMESTAMP literals without one.
    """
    if "\\" in text or "--" in text:
        return None
    reader = _Reader(text, time_zone)
    try:
        found = reader.condition(0)
    except _Unsure:
        return None
    return found if reader.behind == _END else None


class LongList(msgspec.Struct, frozen=True):
    """A list of constants in parentheses after IN: ``text[start:end]``."""

    start: int
    end: int
    literals: tuple[Literal, ...]


def long_lists(text: str, time_zone: str) -> list[LongList]:
    """Returns the long lists of constants in a text about which :func:`read_plain` is not certain, in order.

    They need no parser either: without them a filter is short. Returns none for a text with comments or escapes, in
    which the ends of quoted texts are not certain.
    """
    if "\\" in text or "--" in text or "/*" in text:
        return []
    found: list[LongList] = []
    reader = _Reader(text, time_zone)
    for match in _IN.finditer(text):
        if match[0][0] in "'\"`":
            continue
        start = reader.at = text.index("(", match.end())
        try:
            literals = reader.constants()
        except _Unsure:
            continue
        if _LONG_LIST <= len(literals) <= MAX_IN_LITERALS:
            found.append(LongList(start, reader.at, literals))
    return found


class _Reader:
    def __init__(self, text: str, time_zone: str) -> None:
        self._text = text
        self._time_zone = time_zone
        self.at = 0
        self._source_position = SourcePosition()
        self._nodes = 0
        self.behind = _END

    def condition(self, level: int) -> Predicate:
        """Reads units under AND and OR, up to a closing parenthesis or the end; ``behind`` is which."""
        alternatives: list[Predicate] = []
        conjuncts: list[Predicate] = []
        while True:
            conjuncts.append(self._unit(level))
            if self.behind == _AND:
                continue
            if len(conjuncts) == 1:
                alternatives.append(conjuncts[0])
            else:
                self._count()
                alternatives.append(And(tuple(conjuncts)))
            if self.behind != _OR:
                break
            conjuncts = []
        if len(alternatives) == 1:
            return alternatives[0]
        self._count()
        return Or(tuple(alternatives))

    def _count(self) -> None:
        """Count one more node: at least as many as the parser's tree has, so that texts that are too large here are
        left to it."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _Unsure

    def _unit(self, level: int) -> Predicate:
        self._count()
        if level > _MAX_LEVELS:
            raise _Unsure
        match = _COMPARISON.match(self._text, self.at)
        if match is not None:
            name, sign, *value, behind = match.groups()
            self.at, self.behind = match.end(), len(behind)
            position = SourcePosition(match.start(1))
            if sign == "<=>":
                return NullSafeEqual(_column(name), self._literal(*value), at=position)
            return Compare(_OPERATORS[sign], _column(name), self._literal(*value), at=position)
        match = _OTHER.match(self._text, self.at)
        if match is not None:
            self.at, self._source_position = match.end(), SourcePosition(match.start(1))
            test = _TESTS[match[3].lower()](self, _column(match[1]))
            if match[2] is None:
                return test
            self._count()
            return Not(test)
        match = _OPENING.match(self._text, self.at)
        if match is None:
            raise _Unsure
        self.at = match.end()
        if match[1] != "(":
            return Not(self._unit(level + 1))
        inside = self.condition(level + 1)
        if self.behind != _CLOSING:
            raise _Unsure
        self._follow(_BEHIND)
        return inside

    def _follow(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Returns the match of what must come next; its last group is what follows a predicate."""
        match = pattern.match(self._text, self.at)
        if match is None:
            raise _Unsure
        self.at, self.behind = match.end(), len(match[pattern.groups])
        return match

    def _in(self, column: Ref) -> Predicate:
        literals = self.constants()
        self._follow(_BEHIND)
        if len(literals) > MAX_IN_LITERALS:
            raise _Unsure
        return In(column, literals, at=self._source_position)

    def constants(self) -> tuple[Literal, ...]:
        """Reads a list of constants in parentheses, and moves ``at`` to its end."""
        match = _WHOLE_NUMBERS.match(self._text, self.at)
        if match is not None:
            self.at = match.end()
            return tuple([Literal("integer", int(item)) for item in match[1].split(",")])
        match = _LIST.match(self._text, self.at)
        made: list[Literal] = []
        while match is not None:
            self.at = match.end()
            match = _ITEM.match(self._text, self.at)
            if match is None:
                break
            *value, comma = match.groups()
            made.append(self._literal(*value))
            if comma == ")":
                self.at = match.end()
                return tuple(made)
        raise _Unsure

    def _between(self, column: Ref) -> Predicate:
        *values, _ = self._follow(_BOUNDS).groups()
        low, high = self._literal(*values[:5]), self._literal(*values[5:])
        return And(
            (
                Compare("ge", column, low, at=self._source_position),
                Compare("le", column, high, at=self._source_position),
            )
        )

    def _like(self, column: Ref) -> Predicate:
        return Like(column, self._follow(_LIKE)[1], at=self._source_position)

    def _is(self, column: Ref) -> Predicate:
        test = IsNull(column, at=self._source_position)
        if self._follow(_NULL)[1] is None:
            return test
        self._count()
        return Not(test)

    def _literal(
        self, whole: str | None, other: str | None, kind: str | None, text: str | None, word: str | None
    ) -> Literal:
        """Returns the constant of a value's groups."""
        if whole is not None:
            return Literal("integer", int(whole))
        if kind is not None and text is not None:
            return self._moment(kind.lower(), text)
        if text is not None:
            return Literal("string", text)
        if other is not None:
            literal = number(other)
            if literal is None:
                raise _Unsure
            return literal
        return _WORDS[str(word).lower()]

    def _moment(self, kind: str, text: str) -> Literal:
        if kind == "date":
            days = spark_casts.date_days(text)
            if days is not None:
                return Literal("date", days)
        elif kind == "timestamp_ntz":
            micros = spark_casts.wall_us(text)
            if micros is not None:
                return Literal("timestamp_ntz", micros)
        else:
            micros = spark_casts.instant_us(text, self._time_zone)
            if micros is not None:
                return Literal("timestamp", micros)
        raise _Unsure


_TESTS: Final[dict[str, Callable[[_Reader, Ref], Predicate]]] = {
    "in": _Reader._in,
    "between": _Reader._between,
    "like": _Reader._like,
    "is": _Reader._is,
}
_WORDS: Final = {"true": Literal("boolean", True), "false": Literal("boolean", False), "null": Literal("null")}


def _column(name: str) -> Ref:
    """Returns the column of a name, from a bounded cache; raises _Unsure for words with a meaning in SQL."""
    if len(name) > _MAX_NAME:
        raise _Unsure
    column = _known(name)
    if column is None:
        raise _Unsure
    return column


@lru_cache(maxsize=4096)
def _known(name: str) -> Ref | None:
    parts = _PARTS.findall(name)
    for part in parts:
        if part[0] != "`" and part.lower() in (_RESERVED if len(parts) == 1 else _RESERVED | NAMES):
            return None
    return Ref(quoted_path(part.strip("`") for part in parts))
