"""Random terms (functions, casts, arithmetic, columns beside columns) and predicates over them.

Types follow Spark's rules through the oracle: a term that the oracle cannot type, since Spark would round or decide by
its settings, is drawn anew. Literals lie at and beside values that the term has in some row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from lamella.snapshot.expression import nodes as n
from lamella.snapshot.schema import DataType, Schema
from support import generate
from support.calendar_oracle import Undecided
from support.generate import Block
from support.oracle import Oracle
from support.term_oracle import DATE, INSTANT, INT, TEXT, Fails, wider

ZONES = (
    *("UTC", "UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata"),
    *("America/Santiago", "+05:30", "-08:00"),
)
_DAY_US = 86_400 * 10**6
_HOUR_US = 3_600 * 10**6
#: Instants at which clocks are changed in the zones above: Berlin 2021, New York 2024, Lord Howe 2019, Apia's lost day
#: of 2011, Santiago's lost midnight of 2019, New York before 2000 and after 2038.
TRANSITIONS_S = (
    *(1_616_893_200, 1_635_642_000, 1_710_054_000, 1_730_613_600, 1_554_562_800, 1_570_289_400, 1_325_239_200),
    *(1_567_915_200, 814_946_400, 2_214_777_600),
)
_DATE_PARTS = ("year", "quarter", "month", "day", "dayofweek", "dayofyear", "weekday", "weekofyear", "yearofweek")
_CLOCK_PARTS = ("hour", "minute", "second")
_TRUNCATIONS = ("year", "QUARTER", "Month", "mon", "MM", "week", "day", "DD", "hour", "minute", "second")
_INTEGERS = ("int8", "int16", "int32", "int64")
_OPERATORS: tuple[n.Operator, ...] = ("lt", "le", "gt", "ge", "eq", "ne")


def moment(rng: Random, dtype: DataType) -> int:
    """A day or time beside a change of clocks, in the type's unit."""
    micros = rng.choice(TRANSITIONS_S) * 10**6 + rng.choice((-1, 0, 1, 30, 60, 600, -60)) * rng.choice((1, 60 * 10**6))
    micros += rng.randint(-3, 3) * rng.choice((_HOUR_US, _DAY_US, _HOUR_US // 2))
    if dtype.name == "date":
        return micros // _DAY_US
    return micros // 1000 if dtype.unit == "ms" else micros * 1000 if dtype.unit == "ns" else micros


def table(rng: Random, of: Schema, **sizes: int) -> list[Block]:
    """As :func:`generate.table`, with times around changes of clocks."""
    blocks = generate.table(rng, of, **sizes)
    for leaf in of.leaves():
        if leaf.dtype.name not in ("date", "timestamp", "timestamp_ntz"):
            continue
        for block in blocks:
            if rng.random() < 0.7:
                pool = [moment(rng, leaf.dtype) for _ in range(2)]
                block[leaf.name] = [None if cell is None else rng.choice(pool) for cell in block[leaf.name]]
    return blocks


class Terms:
    """Draws terms over one schema, and predicates whose literals lie near the terms' values in ``rows``."""

    def __init__(self, rng: Random, schema: Schema, oracle: Oracle, rows: Sequence[dict[str, Any]]) -> None:
        self._rng = rng
        self._oracle = oracle.terms
        self._rows = rows
        usable = [leaf for leaf in schema.leaves() if leaf.dtype.unit != "ns" and leaf.dtype.name != "float16"]
        self._leaves = [leaf for leaf in usable if leaf.dtype.name not in ("time", "fixed", "uuid")]

    def predicate(self) -> n.Predicate | None:
        """A predicate over a term, None when the schema has no column for one."""
        if not self._leaves:
            return None
        for _ in range(20):
            try:
                return self._predicate()
            except Undecided:
                continue
        return None

    def term(self, depth: int = 2) -> n.Term:
        """A term; raises Undecided when this draw has none."""
        rng = self._rng
        leaf = rng.choice(self._leaves)
        term: n.Term = n.Ref(leaf.name)
        for _ in range(rng.randint(1, depth)):
            wrap = self._wrappers(self._oracle.type_of(term))
            if wrap:
                term = rng.choice(wrap)(term)
        self._oracle.type_of(term)
        return term

    def _predicate(self) -> n.Predicate:
        rng, term = self._rng, self.term()
        dtype = self._oracle.type_of(term)
        kinds = ["null", "compare", "compare", "compare", "in", "between", "null safe", "pair", "pair"]
        kinds += ["nan"] if dtype.is_float else ["prefix", "like"] if dtype == TEXT else []
        kinds += ["truth"] if dtype.name == "boolean" else []
        kind = rng.choice(kinds)
        if kind == "null":
            return n.IsNull(term)
        if kind == "nan":
            return n.IsNan(term)
        if kind == "truth":
            return n.Truth(term)
        if kind == "pair":
            return self._pair(term, dtype)
        if kind == "in":
            literals = [self._literal(term, dtype) for _ in range(rng.randint(1, 3))]
            same = tuple(each for each in literals if each.kind == literals[0].kind)
            if same[0].kind == "string" and dtype != TEXT:
                return n.Compare("eq", term, same[0])
            return n.In(term, (*same, n.Literal("null")) if rng.random() < 0.2 else same)
        if kind == "between":
            low, high = self._literal(term, dtype), self._literal(term, dtype)
            return n.And((n.Compare("ge", term, low), n.Compare("le", term, high)))
        literal = self._literal(term, dtype)
        if kind == "null safe":
            return n.NullSafeEqual(term, rng.choice([literal, literal, n.Literal("null")]))
        if kind in ("prefix", "like"):
            start = str(literal.value)[: rng.randint(0, 3)]
            if kind == "prefix":
                return n.StartsWith(term, n.Literal("string", start))
            escaped = "".join("\\" + c if c in "%_\\" else c for c in start)
            return n.Like(term, escaped + rng.choice(["%", "", "_%", "%a"]))
        return n.Compare(rng.choice(_OPERATORS), term, literal)

    def _pair(self, term: n.Term, dtype: DataType) -> n.Predicate:
        """The term beside another of a type that Spark compares it with, a bare column more often than not."""
        for _ in range(10):
            leaf = self._rng.choice(self._leaves)
            other = n.Ref(leaf.name) if self._rng.random() < 0.6 else self.term(1)
            try:
                wider(dtype, self._oracle.type_of(other))
            except Undecided:
                continue
            left, right = (term, other) if self._rng.random() < 0.5 else (other, term)
            if self._rng.random() < 0.2:
                return n.NullSafeEqual(left, right)
            return n.Compare(self._rng.choice(_OPERATORS), left, right)
        raise Undecided

    def _literal(self, term: n.Term, dtype: DataType) -> n.Literal:
        """At or beside a value that the term has."""
        value = None
        if self._rows:
            try:
                value = self._oracle.value(term, self._rng.choice(self._rows), ansi=False)
            except (Undecided, Fails):
                value = None
        if value is None:
            value = generate.value(self._rng, dtype)
        if dtype.name in ("date", "timestamp", "timestamp_ntz"):
            day = value if dtype.name == "date" else value // _DAY_US
            if not -700_000 < day < 2_900_000:
                raise Undecided  # beyond the years that literals can spell
            return self._rng.choice(
                [
                    each
                    for each in generate.literals(dtype, value)
                    if each.kind != "timestamp_ntz" or dtype.name == "timestamp_ntz"
                ]
            )
        return self._rng.choice(generate.literals(dtype, value))

    def _wrappers(self, dtype: DataType) -> list[Callable[[n.Term], n.Term]]:
        """What can be made of a term of that type."""
        rng = self._rng
        if dtype == DATE:
            made = [self._call(part) for part in (*_DATE_PARTS, "last_day", "to_date")]
            made += [self._days, self._days, self._months, self._truncated_day, self._difference]
            made += [self._call("unix_date"), self._call("unix_timestamp"), self._formatted, self._cast("string")]
            made += [self._with_interval, self._with_interval, self._extreme, self._chosen]
            return [
                *made,
                self._cast(rng.choice(("timestamp", "timestamp_ntz", "date"))),
                self._coalesced,
                self._coalesced,
            ]
        if dtype.name in ("timestamp", "timestamp_ntz"):
            made = [self._call(part) for part in (*_DATE_PARTS, *_CLOCK_PARTS, "to_date", "last_day")]
            made += [self._cast("date"), self._cast("date"), self._days, self._difference, self._coalesced]
            made += [
                self._formatted,
                self._cast("string"),
                self._with_interval,
                self._with_timestampadd,
                self._time_difference,
                self._extreme,
                self._chosen,
            ]
            if dtype == INSTANT:
                made += [self._call(rng.choice(("unix_seconds", "unix_millis", "unix_micros"))), self._cast("bigint")]
            return [*made, *([self._truncated_time] * 4 if dtype == INSTANT else [self._cast("timestamp")])]
        if dtype == TEXT:
            return [
                *(self._call(name) for name in ("lower", "upper", "length", "trim", "ltrim", "rtrim")),
                self._concatenated,
                self._concatenated,
                self._extreme,
                self._chosen,
                self._beginning,
                self._beginning,
                self._coalesced,
            ]
        if dtype.is_integer or dtype.name == "decimal" or dtype.is_float:
            casts = [*_INTEGERS, "double", "decimal(20,4)", "decimal(5,2)"]
            made = [self._infix, self._infix, self._infix, self._coalesced]
            made += [self._extreme, self._chosen, self._call(rng.choice(("floor", "ceil"))), self._rounded]
            if dtype.is_integer:
                made += [self._whole_division, self._whole_division, self._shifted, self._cast("string")]
            if dtype.precision <= 34:  # Spark rounds to 34 digits here, and may fail then without ANSI mode too
                made += [self._call("negative"), self._call("abs")]
            return [*made, self._cast(rng.choice(casts)), self._cast(rng.choice(casts))]
        if dtype.name == "boolean":
            return [self._coalesced, self._cast("int"), self._cast("string"), self._chosen]
        return [self._coalesced]

    def _call(self, function: str) -> Callable[[n.Term], n.Term]:
        return lambda term: n.Call(function, (term,))

    def _cast(self, target: str) -> Callable[[n.Term], n.Term]:
        return lambda term: n.Cast(term, target)

    def _column_like(self, test: Callable[[DataType], bool]) -> n.Term | None:
        found = [leaf.name for leaf in self._leaves if test(self._oracle.type_of(n.Ref(leaf.name)))]
        return n.Ref(self._rng.choice(found)) if found else None

    def _number(self) -> n.Term:
        rng = self._rng
        column = self._column_like(lambda dtype: dtype.is_integer or dtype.is_float or dtype.name == "decimal")
        if column is not None and rng.random() < 0.35:
            return column
        whole = n.Literal("integer", rng.choice((0, 1, 2, 3, -1, 5, 100, 127, 2_000_000_000, 3_000_000_000)))
        typed = n.Cast(n.Literal("integer", rng.choice((1, 2, 5, 100))), rng.choice(("tinyint", "smallint", "bigint")))
        decimal = n.Literal("decimal", rng.choice(("0.5", "1.50", "-2.25", "100", "0.001")))
        double = n.Literal("double", rng.choice((0.5, -1.0, 2.0, 1e300)))
        numbers: list[n.Term] = [whole, whole, typed, decimal, double]
        return rng.choice(numbers)

    def _infix(self, term: n.Term) -> n.Term:
        sides = [term, self._number()]
        self._rng.shuffle(sides)
        return n.Call(self._rng.choice(("add", "subtract", "multiply", "add", "subtract", "divide")), tuple(sides))

    def _days(self, term: n.Term) -> n.Term:
        column = self._column_like(lambda dtype: dtype.is_integer and dtype.bits <= 32)
        count = n.Literal("integer", self._rng.choice((0, 1, -1, 30, 365, -400, 100_000)))
        amount = column if column is not None and self._rng.random() < 0.4 else count
        function = self._rng.choice(("date_add", "date_sub"))
        if self._oracle.type_of(term) == DATE and self._rng.random() < 0.3:
            function = self._rng.choice(("add", "subtract"))
        return n.Call(function, (term, amount))

    def _months(self, term: n.Term) -> n.Term:
        return n.Call("add_months", (term, n.Literal("integer", self._rng.choice((0, 1, -1, 12, -13, 1200)))))

    def _difference(self, term: n.Term) -> n.Term:
        other = self._column_like(lambda dtype: dtype.name in ("date", "timestamp", "timestamp_ntz"))
        day = n.Literal("date", self._rng.choice((0, 18_321, 18_000)))
        sides = [term, other if other is not None and self._rng.random() < 0.6 else day]
        self._rng.shuffle(sides)
        return n.Call("datediff", tuple(sides))

    def _truncated_day(self, term: n.Term) -> n.Term:
        unit = self._rng.choice(("year", "yy", "QUARTER", "Month", "mon", "week"))
        return n.Call("trunc", (term, n.Literal("string", unit)))

    def _truncated_time(self, term: n.Term) -> n.Term:
        return n.Call("date_trunc", (n.Literal("string", self._rng.choice(_TRUNCATIONS)), term))

    def _beginning(self, term: n.Term) -> n.Term:
        count = n.Literal("integer", self._rng.choice((0, 1, 1, 2, 3, 8, 9)))
        if self._rng.random() < 0.5:
            return n.Call("left", (term, count))
        return n.Call("substring", (term, n.Literal("integer", self._rng.choice((0, 1))), count))

    def _rounded(self, term: n.Term) -> n.Term:
        digits = n.Literal("integer", self._rng.choice((0, 0, 1, 2, 5)))
        return n.Call(self._rng.choice(("round", "bround")), (term, digits))

    def _whole_division(self, term: n.Term) -> n.Term:
        column = self._column_like(lambda dtype: dtype.is_integer)
        constant = n.Literal("integer", self._rng.choice((1, 2, 3, 7, 10, 1000, -2, 0)))
        divisor = column if column is not None and self._rng.random() < 0.2 else constant
        return n.Call(self._rng.choice(("div", "mod", "pmod")), (term, divisor))

    def _shifted(self, term: n.Term) -> n.Term:
        count = n.Literal("integer", self._rng.choice((0, 1, 3, 8, 31, 33, 63, -1)))
        return n.Call(self._rng.choice(("shiftleft", "shiftright", "shiftrightunsigned")), (term, count))

    def _concatenated(self, term: n.Term) -> n.Term:
        rng = self._rng
        column = self._column_like(lambda dtype: dtype in (TEXT, DATE) or dtype.is_integer)
        parts = [term, n.Literal("string", rng.choice(("-", "", "a", "\U0001f600")))]
        if column is not None and rng.random() < 0.5:
            parts.append(column)
        rng.shuffle(parts)
        return n.Call("concat", tuple(parts))

    def _formatted(self, term: n.Term) -> n.Term:
        patterns = ["yyyy", "yyyyMM", "yyyy-MM", "yyyy/MM/dd"]
        if self._oracle.type_of(term) != DATE:
            patterns += ["yyyy-MM-dd HH", "yyyyMMddHHmmss"]
        return n.Call("date_format", (term, n.Literal("string", self._rng.choice(patterns))))

    def _with_interval(self, term: n.Term) -> n.Term:
        unit = self._rng.choice(("MONTH", "DAY", "MICROSECOND"))
        counts = (
            (0, 1, -3_600_000_000, 90_061_000_001, -200_000_000_000) if unit == "MICROSECOND" else (0, 1, -1, 13, 400)
        )
        return n.Call("add_interval", (term, n.Literal("string", unit), n.Literal("integer", self._rng.choice(counts))))

    def _with_timestampadd(self, term: n.Term) -> n.Term:
        unit = self._rng.choice(("MICROSECOND", "SECOND", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"))
        count = n.Literal("integer", self._rng.choice((0, 1, -1, 30, -25)))
        return n.Call("timestampadd", (n.Literal("string", unit), count, term))

    def _time_difference(self, term: n.Term) -> n.Term:
        unit = n.Literal("string", self._rng.choice(("MICROSECOND", "SECOND", "HOUR", "DAY", "WEEK")))
        other = self._column_like(lambda dtype: dtype.name in ("date", "timestamp", "timestamp_ntz"))
        instant = n.Literal("timestamp", self._rng.choice((0, 1_582_934_400_000_000, 1_711_846_800_000_000)))
        sides = [term, other if other is not None and self._rng.random() < 0.6 else instant]
        self._rng.shuffle(sides)
        return n.Call("timestampdiff", (unit, *sides))

    def _extreme(self, term: n.Term) -> n.Term:
        made = self._coalesced(term)
        assert isinstance(made, n.Call)
        return n.Call(self._rng.choice(("greatest", "least")), made.arguments)

    def _chosen(self, term: n.Term) -> n.Term:
        """A CASE, or what it means: the term under a condition, and something of its type."""
        made = self._coalesced(term)
        assert isinstance(made, n.Call)
        others = made.arguments[1:]
        condition = self._condition()
        if len(others) > 1:
            return n.Case((n.Branch(condition, term), n.Branch(self._condition(), others[0])), others[1])
        values = [term, *others]
        self._rng.shuffle(values)
        return n.Case((n.Branch(condition, values[0]),), values[1])

    def _condition(self) -> n.Predicate:
        leaf = self._rng.choice(self._leaves)
        dtype = self._oracle.type_of(n.Ref(leaf.name))
        if self._rng.random() < 0.3:
            return n.IsNull(n.Ref(leaf.name))
        return n.Compare(self._rng.choice(_OPERATORS), n.Ref(leaf.name), self._literal(n.Ref(leaf.name), dtype))

    def _coalesced(self, term: n.Term) -> n.Term:
        dtype = self._oracle.type_of(term)
        same = self._column_like(lambda other: other == dtype)
        value = generate.value(self._rng, dtype)
        literal = self._rng.choice(generate.literals(dtype, value))
        own: tuple[str, ...] = (
            ("integer", "decimal", "double") if dtype.is_integer or dtype.is_float else (dtype.name, "integer")
        )
        fallback: n.Term = literal if literal.kind in own or dtype.name in ("decimal", "binary") else n.Literal("null")
        if dtype.name in ("date", "timestamp", "timestamp_ntz") and literal.kind != dtype.name:
            fallback = n.Literal("null")
        if dtype.order == "float" and literal.kind == "integer" and dtype.bits < 64:
            fallback = n.Literal("null")  # FLOAT or DOUBLE by Spark's settings
        others = [fallback] if same is None or self._rng.random() < 0.5 else [same, fallback][: self._rng.randint(1, 2)]
        return n.Call("coalesce", (term, *others))


def predicates(rng: Random, schema: Schema, oracle: Oracle, blocks: Sequence[Block]) -> Callable[[], n.Predicate]:
    """Draws predicates of the whole language: over columns, over terms, and mixed under AND, OR, NOT."""
    rows = [row for block in blocks for row in generate.rows_of(block)]
    seen = generate.seen_values(schema, blocks)
    terms = Terms(rng, schema, oracle, rows)

    def draw(depth: int = 2) -> n.Predicate:
        if depth and rng.random() < 0.3:
            kind = rng.choice(("and", "or", "not", "is true"))
            if kind in ("not", "is true"):
                return n.Not(draw(depth - 1)) if kind == "not" else rng.choice((n.IsTrue, n.IsUnknown))(draw(depth - 1))
            parts = tuple(draw(depth - 1) for _ in range(rng.randint(1, 3)))
            return n.And(parts) if kind == "and" else n.Or(parts)
        made = terms.predicate() if rng.random() < 0.75 else None
        return made if made is not None else generate.predicate(rng, schema, seen, 0)

    return draw


__all__ = ["INT", "ZONES", "Terms", "predicates", "table"]
