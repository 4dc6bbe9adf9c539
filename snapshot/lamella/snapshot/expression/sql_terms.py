"""Terms of SQL text: columns, constants, and the supported functions.

sqlglot gives one name to functions that are the same in every dialect and wraps some arguments in casts; here each is
converted back to Spark's function of that spelling, or is unsupported if that is not certain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import Final

import msgspec
import numpy as np
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lamella.snapshot.errors import InvalidSchema, LimitExceeded
from lamella.snapshot.expression import spark_casts
from lamella.snapshot.expression.bind_numbers import digits_of
from lamella.snapshot.expression.nodes import (
    FUNCTIONS,
    MAX_DEPTH,
    SUFFIXES,
    Branch,
    Call,
    Case,
    Cast,
    Compare,
    IsNull,
    Literal,
    Not,
    NullSafeEqual,
    Predicate,
    Ref,
    Term,
    is_known,
)
from lamella.snapshot.function.calendar import add_months
from lamella.snapshot.schema import parse_type, quoted_path

_INTEGER_TYPES: Final = {
    exp.DType.TINYINT: "int8",
    exp.DType.SMALLINT: "int16",
    exp.DType.INT: "int32",
    exp.DType.BIGINT: "int64",
}
_INT: Final = 1 << 31
_MAX_NUMBER_CHARACTERS: Final = 64
# Text that Java and Python read as the same number: no underscores, no digits of other scripts.
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
_SUFFIXED: Final = re.compile(r"(-?[0-9.]+(?:e[+-]?[0-9]+)?)(BD|[DFLSY])", re.ASCII | re.IGNORECASE)
# A NaN with a sign is one of Java's spellings only in some cases of its letters.
_SPECIAL: Final = re.compile(r"nan|[+-]?(inf|infinity)", re.ASCII | re.IGNORECASE)


def bare(node: exp.Expr) -> exp.Expr:
    """Returns the content of parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


class ImpossibleLiteral(Exception):
    """A constant that Spark refuses, such as the thirteenth month; ``text`` is the quoted text or the number."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


def constant(node: exp.Expr, time_zone: str) -> Literal | Cast | None:
    """Returns the constant of a node; None if it is not a constant, or if its value is not certain.

    Raises:
        ImpossibleLiteral: one that Spark refuses.
    """
    node = bare(node)
    if isinstance(node, exp.Neg):
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return number("-" + inner.this)  # one literal, including the minus sign
        found = None if isinstance(bare(inner), exp.Neg) else constant(inner, time_zone)
        return None if found is None else _negated(found)
    if isinstance(node, exp.Literal):
        if not node.is_string:
            return number(node.this)
        return Literal("string", node.this) if spark_casts.is_unicode(node.this) else None
    if isinstance(node, exp.Null):
        return Literal("null")
    if isinstance(node, exp.Boolean):
        return Literal("boolean", bool(node.this))
    if isinstance(node, exp.HexString):
        return _hex(node.this)
    if isinstance(node, exp.RawString):
        return Literal("string", node.this)
    if isinstance(node, exp.Cast):  # including TryCast; DATE '...' and similar arrive as casts
        return _cast(node, time_zone)
    return None


def _negated(found: Literal | Cast) -> Literal | Cast | None:
    """Negates parentheses or a cast: the type stays, and its digits no longer matter with a decimal operand."""
    literal, target = (found.term, found.type) if isinstance(found, Cast) else (found, "")
    if not isinstance(literal, Literal):
        return None
    value = literal.value
    if literal.kind == "integer" and isinstance(value, int):
        dtype = parse_type(target or literal.type or ("int32" if -_INT <= value < _INT else "int64"))
        low, high = dtype.int_range
        return Cast(Literal("integer", -value), dtype.name) if low <= -value <= high else None
    if literal.kind == "decimal":
        negative = Literal("decimal", str(Decimal(str(value)).copy_negate()))
        return Cast(negative, target) if target else negative
    if literal.kind in ("double", "float") and isinstance(value, float):
        return Literal(literal.kind, -value)
    return None


def _cast(node: exp.Cast, time_zone: str) -> Literal | Cast | None:
    inner, target = bare(node.this), node.to.this
    if node.args.get("format"):
        return None
    if target in _INTEGER_TYPES:
        return _integer_cast(constant(node.this, time_zone), _INTEGER_TYPES[target])
    negative = isinstance(inner, exp.Neg) and isinstance(inner.this, exp.Literal) and not inner.this.is_string
    literal = inner.this if negative else inner
    if not isinstance(literal, exp.Literal):
        return None
    text = "-" + literal.this if negative else literal.this
    if target in (exp.DType.DOUBLE, exp.DType.FLOAT):
        return _float(text, single=target is exp.DType.FLOAT)
    if target is exp.DType.DECIMAL:
        return _decimal_cast(text, node.to)
    if not literal.is_string:
        return None
    found: Literal | None = None
    if target in (exp.DType.DATE, exp.DType.DATE32):
        days = spark_casts.date_days(text)
        found = None if days is None else Literal("date", days)
    elif target in (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ):
        micros = spark_casts.instant_us(text, time_zone)
        found = None if micros is None else Literal("timestamp", micros)
    elif target is exp.DType.TIMESTAMPNTZ:
        micros = spark_casts.wall_us(text)
        found = None if micros is None else Literal("timestamp_ntz", micros)
    else:
        return None
    kind = "date" if target in (exp.DType.DATE, exp.DType.DATE32) else "timestamp"
    if found is None and not node.args.get("safe") and spark_casts.is_impossible(text, kind):
        raise ImpossibleLiteral(f"{text!r} is not a {kind}", text)
    return found


def _integer_cast(inner: Literal | Cast | None, target: str) -> Cast | None:
    """Returns a whole number in an integer type that can represent it."""
    literal = inner.term if isinstance(inner, Cast) else inner
    if not isinstance(literal, Literal) or literal.kind != "integer" or not isinstance(literal.value, int):
        return None
    low, high = parse_type(target).int_range
    return Cast(Literal("integer", literal.value), target) if low <= literal.value <= high else None


def number(text: str) -> Literal | None:
    """Returns the constant of an unquoted number in Spark, with its suffix; None if no Spark type can represent it.

    Raises:
        ImpossibleLiteral: it is out of range of the type that its suffix names.
    """
    if len(text) > _MAX_NUMBER_CHARACTERS:  # more digits than any decimal has are an error in Spark
        return None
    suffixed = _SUFFIXED.fullmatch(text)
    if suffixed is not None:
        return _suffixed(suffixed[1], suffixed[2])
    lowered = text.lower()
    try:
        if "e" in lowered:  # Spark: a number with an exponent is a double
            return Literal("double", float(lowered))
        if "." in lowered:
            return Literal("decimal", str(Decimal(lowered)))
        return Literal("integer", int(lowered))
    except (ValueError, InvalidOperation):
        return None


def _suffixed(text: str, suffix: str) -> Literal | None:
    kind = suffix.upper()
    if kind in SUFFIXES:
        if not text.lstrip("-").isdecimal():
            return None
        value, dtype = int(text), parse_type(SUFFIXES[kind])
        if not dtype.int_range[0] <= value <= dtype.int_range[1]:
            written = text.lstrip("-") + suffix
            raise ImpossibleLiteral(f"{text}{suffix} is out of range for the type of its suffix", written)
        return Literal("integer", value, dtype.name)
    if kind in ("D", "F"):
        return _float(text, single=kind == "F")
    return Literal("decimal", str(Decimal(text))) if _NUMBER.fullmatch(text) else None


def _float(text: str, *, single: bool) -> Literal | None:
    spelled = text.strip(" ")
    if not (_NUMBER.fullmatch(spelled) or _SPECIAL.fullmatch(spelled)):
        return None
    value = float(spelled)
    if not single:
        return Literal("double", value)
    if spark_casts.is_between_singles(value):  # rounding twice may differ from rounding once
        return None
    return Literal("float", spark_casts.single(value))


def _decimal_cast(text: str, target: exp.DataType) -> Cast | None:
    spelled = text.strip(" ")
    if not _NUMBER.fullmatch(spelled):
        return None
    try:
        value = Decimal(spelled)
        precision, scale = (int(part.this.this) for part in target.expressions)
    except (ValueError, InvalidOperation, AttributeError):
        return None
    digits, exponent = value.as_tuple().digits, value.as_tuple().exponent
    fits = isinstance(exponent, int) and -exponent <= scale and len(digits) + exponent <= precision - scale
    # a cast that rounds is not folded
    return Cast(Literal("decimal", str(value)), f"decimal({precision},{scale})") if fits else None


def _hex(text: str) -> Literal | None:
    try:
        return Literal("binary", bytes.fromhex(text if len(text) % 2 == 0 else "0" + text))
    except ValueError:
        return None


_INFIX: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.IntDiv: "div",
    exp.Mod: "mod",
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
}
#: Functions of one argument, which sqlglot may have wrapped in a cast to a date.
_UNARY: Final[dict[type[exp.Expr], str]] = {
    exp.Neg: "negative",
    exp.Abs: "abs",
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfWeek: "dayofweek",
    exp.DayOfYear: "dayofyear",
    exp.WeekOfYear: "weekofyear",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Second: "second",
    exp.TsOrDsToDate: "to_date",
    exp.LastDay: "last_day",
    exp.Lower: "lower",
    exp.Upper: "upper",
    exp.Length: "length",
    exp.Floor: "floor",
    exp.Ceil: "ceil",
    exp.UnixDate: "unix_date",
    exp.UnixSeconds: "unix_seconds",
    exp.UnixMillis: "unix_millis",
    exp.UnixMicros: "unix_micros",
}
#: Functions that sqlglot does not know, or that are read as they are spelled.
_NAMED: Final = frozenset(
    (
        *("date_trunc", "trunc", "get_json_object", "date_format", "unix_timestamp", "weekday", "pmod", "bround"),
        *("shiftleft", "shiftright", "shiftrightunsigned", "variant_get", "try_variant_get"),
    )
)
#: The fields of EXTRACT that are whole numbers; its SECOND has a fraction, the function's has none.
_FIELDS: Final = {
    "YEAR": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "DAY": "day",
    "DAYOFWEEK": "dayofweek",
    "DOW": "dayofweek",
    "DOY": "dayofyear",
    "WEEK": "weekofyear",
    "W": "weekofyear",
    "YEAROFWEEK": "yearofweek",
    "HOUR": "hour",
    "MINUTE": "minute",
}
#: Arguments that are evaluated, or that do not affect the value; a node with any other is unsupported.
_KNOWN: Final[dict[type[exp.Expr], frozenset[str]]] = {
    exp.Div: frozenset({"this", "expression", "safe"}),
    exp.TsOrDsToDate: frozenset({"this", "safe"}),
    exp.Cast: frozenset({"this", "to", "_type"}),
    exp.TryCast: frozenset({"this", "to", "_type"}),
    exp.TsOrDsAdd: frozenset({"this", "expression", "unit"}),
    exp.Substring: frozenset({"this", "start", "length"}),
    exp.Coalesce: frozenset({"this", "expressions"}),
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.Round: frozenset({"this", "decimals"}),
    exp.Greatest: frozenset({"this", "expressions", "ignore_nulls"}),
    exp.Least: frozenset({"this", "expressions", "ignore_nulls"}),
    exp.Concat: frozenset({"expressions", "safe"}),
    exp.DPipe: frozenset({"this", "expression", "safe"}),
    exp.Trim: frozenset({"this", "position"}),
    exp.TimestampAdd: frozenset({"this", "expression", "unit"}),
    exp.TimestampDiff: frozenset({"this", "expression", "unit"}),
    exp.If: frozenset({"this", "true", "false"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.Nvl2: frozenset({"this", "true", "false"}),
    exp.DecodeCase: frozenset({"expressions"}),
}
_BINARY: Final = frozenset({"this", "expression"})
_MAX_DIGITS: Final = 38
_MONTHS: Final = {"MONTH": 1, "YEAR": 12}
_DAYS: Final = {"DAY": 1, "WEEK": 7}
_SECONDS: Final = {"HOUR": 3_600, "MINUTE": 60, "SECOND": 1}
_DAY_US: Final = 86_400_000_000
#: Units of intervals: what one is, in the unit that ``add_interval`` takes.
_INTERVALS: Final = {
    "YEAR": ("MONTH", 12),
    "MONTH": ("MONTH", 1),
    "WEEK": ("DAY", 7),
    "DAY": ("DAY", 1),
    "HOUR": ("MICROSECOND", 3_600_000_000),
    "MINUTE": ("MICROSECOND", 60_000_000),
    "SECOND": ("MICROSECOND", 1_000_000),
    "MILLISECOND": ("MICROSECOND", 1_000),
    "MICROSECOND": ("MICROSECOND", 1),
}
_AMOUNT: Final = re.compile(r"([+-]?)(\d{1,9})(?:\.(\d{1,6}))?", re.ASCII)
_CLOCK: Final = frozenset({exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp})


def path_of(node: exp.Expr) -> str | None:
    """Returns the path of a column reference, None if the node is something else."""
    names: list[str] = []
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        names.append(node.expression.name)
        node = node.this
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    return quoted_path((*(part.name for part in node.parts), *reversed(names)))


class TermReader:
    """Reads terms; ``time_zone`` is for TIMESTAMP literals without one.

    ``now_us``: the time of ``now()`` and similar functions, in microseconds since the epoch; None: they are unknown.
    ``condition`` reads the condition of a CASE; without it there is none.
    """

    def __init__(
        self, time_zone: str, now_us: int | None = None, condition: Callable[[exp.Expr], Predicate] | None = None
    ) -> None:
        self._time_zone = time_zone
        self._now_us = now_us
        self._condition = condition
        self._depth = 0

    def read(self, node: exp.Expr | None) -> Term | None:
        """Returns the term of a node, None if it is not supported or missing (an argument that the parser does not
        require); raises LimitExceeded if it is too deep."""
        if node is None:
            return None
        if self._depth >= MAX_DEPTH:
            raise LimitExceeded(
                f"a term is nested deeper than {MAX_DEPTH} levels", limit="filter_depth", maximum=MAX_DEPTH
            )
        self._depth += 1
        try:
            return self._read(node)
        finally:
            self._depth -= 1

    def _read(self, node: exp.Expr) -> Term | None:
        node = bare(node)
        path = path_of(node)
        if path is not None:
            return Ref(path)
        literal = constant(node, self._time_zone)
        if literal is not None:
            return literal
        if _has_more(node):
            return None
        if type(node) in _CLOCK or (isinstance(node, exp.Anonymous) and str(node.this).lower() == "now"):
            return self._clock(node)
        if type(node) in _INFIX:
            return self._infix(node)
        if type(node) in _UNARY:
            return self._of(_UNARY[type(node)], _plain_argument(node))
        reader = _READERS.get(type(node))
        return reader(self, node) if reader is not None else None

    def constant(self, node: exp.Expr) -> Literal | None:
        """Returns the constant of a node, also of a sum of constants; None if it is not constant, or a number with a
        cast's type."""
        term = self.read(node)
        return term if isinstance(term, Literal) else None

    def listed(self, node: exp.Expr) -> Literal | None:
        """Returns a constant in the list of an IN, where the types of all values matter, however they were written."""
        term = self.read(node)
        if not isinstance(term, Cast):
            return term if isinstance(term, Literal) else None
        literal = term.term
        if not isinstance(literal, Literal) or literal.kind not in ("integer", "decimal"):
            return None
        return msgspec.structs.replace(literal, type="" if term.type == "int32" else term.type)

    def _of(self, function: str, *nodes: exp.Expr | None) -> Term | None:
        arguments = [self.read(node) for node in nodes if node is not None]
        known = [argument for argument in arguments if argument is not None]
        if len(known) < len(arguments):
            return None
        return Call(function, tuple(known))

    def _infix(self, node: exp.Expr) -> Term | None:
        left, right = node.this, bare(node.args["expression"])
        if isinstance(bare(left), exp.Interval) and isinstance(node, exp.Add):
            left, right = right, bare(left)
        if isinstance(right, exp.Interval) and isinstance(node, exp.Add | exp.Sub):
            sign = -1 if isinstance(node, exp.Sub) else 1
            return self._shifted(left, right, sign) or self._with_interval(left, right, sign)
        made = self._of(_INFIX[type(node)], left, right)
        if not isinstance(made, Call):
            return made
        day = _moved_day(made)
        if day is not None:
            return day
        if not all(isinstance(argument, Literal) for argument in made.arguments):
            return made
        return _fold_constants(made) or made

    def _clock(self, node: exp.Expr) -> Literal | None:
        """Returns the value of ``now()``, ``current_timestamp``, ``current_date`` and ``localtimestamp``, which take no
        argument."""
        if self._now_us is None or any(
            node.args.get(name) for name in node.args if name not in ("this", "expressions")
        ):
            return None
        if node.expressions or (node.args.get("this") and not isinstance(node, exp.Anonymous)):
            return None
        if not isinstance(node, exp.CurrentDate | exp.Localtimestamp):
            return Literal("timestamp", self._now_us)
        wall = spark_casts.wall_clock_us(self._now_us, self._time_zone)
        if wall is None:
            return None
        return (
            Literal("timestamp_ntz", wall) if isinstance(node, exp.Localtimestamp) else Literal("date", wall // _DAY_US)
        )

    def _shifted(self, node: exp.Expr, interval: exp.Interval, sign: int) -> Literal | None:
        """Returns a constant date or time ``+ INTERVAL n DAY`` (or WEEK, MONTH, YEAR; for a time also HOUR, MINUTE,
        SECOND)."""
        at, unit = self.constant(node), interval.args.get("unit")
        amount = bare(interval.this) if interval.this is not None else None
        if at is None or not isinstance(at.value, int) or not isinstance(unit, exp.Var):
            return None
        if not isinstance(amount, exp.Literal) or not amount.this.isdecimal() or len(amount.this) > 6:
            return None
        count, name = sign * int(amount.this), unit.name.upper().removesuffix("S")
        if at.kind == "date":
            day = _shifted_day(at.value, count, name)
            return None if day is None else Literal("date", day)
        if at.kind not in ("timestamp", "timestamp_ntz"):
            return None
        zone = self._time_zone if at.kind == "timestamp" else "UTC"
        if name not in _SECONDS:
            moved = _moved_by_clock(at.value, count, name, zone)
            return None if moved is None else Literal(at.kind, moved)
        # Spark adds whole days of a day-time interval by the session's clocks, also when they are written as hours, and
        # then the rest (DateTimeUtils.timestampAddDayTime).
        days, rest_us = divmod(abs(count) * _SECONDS[name] * 1_000_000, _DAY_US)
        moved = _moved_by_clock(at.value, sign * days, "DAY", zone) if days else at.value
        return None if moved is None else Literal(at.kind, moved + sign * rest_us)

    def _with_interval(self, node: exp.Expr, interval: exp.Interval, sign: int) -> Term | None:
        """Returns a term ``+ INTERVAL n UNIT``, of one unit."""
        term, found = self.read(node), _interval_of(interval)
        if term is None or found is None:
            return None
        kind, count = found
        return Call("add_interval", (term, Literal("string", kind), Literal("integer", sign * count)))

    def _cast(self, node: exp.Expr) -> Term | None:
        inner = self.read(node.this)
        constants = isinstance(inner, Cast) and isinstance(inner.term, Literal)
        if inner is None or isinstance(inner, Literal) or constants:  # a certain one has been read as a constant
            return None
        target = _type_text(node.args["to"])
        return None if target is None else Cast(inner, target)

    def _extract(self, node: exp.Expr) -> Term | None:
        field = _FIELDS.get(node.name.upper())
        return self._of(field, node.args["expression"]) if field else None

    def _anonymous(self, node: exp.Expr) -> Term | None:
        name, arguments = str(node.this).lower(), node.expressions
        if name == "date_part" and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
            field = _FIELDS.get(arguments[0].name.upper())
            return self._of(field, arguments[1]) if field else None
        if name in _NAMED and len(arguments) in FUNCTIONS[name]:
            return self._of(name, *arguments)
        if name in ("btrim", "zeroifnull", "nullifzero") and len(arguments) == 1:
            term, zero = self.read(arguments[0]), Literal("integer", 0)
            if term is None or isinstance(term, Literal):
                return None
            if name == "nullifzero":
                return Case((Branch(Compare("eq", term, zero), Literal("null")),), term)
            return Call("trim", (term,)) if name == "btrim" else Call("coalesce", (term, zero))
        return None

    def _round(self, node: exp.Expr) -> Term | None:
        return self._of("round", node.this, *filter(None, [node.args.get("decimals")]))

    def _extreme(self, node: exp.Expr) -> Term | None:
        nodes = [node.this, *node.expressions]
        name = "greatest" if isinstance(node, exp.Greatest) else "least"
        return self._of(name, *nodes) if len(nodes) in FUNCTIONS[name] else None

    def _concat(self, node: exp.Expr) -> Term | None:
        nodes = node.expressions if isinstance(node, exp.Concat) else _piped(node)
        if isinstance(node, exp.Concat) and all(isinstance(each, exp.Literal) for each in nodes):
            return None  # adjoining texts, which Spark joins or reads as one with a quote, by its settings
        return self._of("concat", *nodes) if len(nodes) in FUNCTIONS["concat"] else None

    def _trim(self, node: exp.Expr) -> Term | None:
        side = str(node.args.get("position") or "BOTH").upper()
        name = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}.get(side)
        return self._of(name, node.this) if name else None

    def _timestamp_add(self, node: exp.Expr) -> Term | None:
        unit, count, at = node.args.get("unit"), self.read(node.args["expression"]), self.read(node.this)
        if not isinstance(unit, exp.Var) or not isinstance(count, Literal) or at is None:
            return None
        return Call("timestampadd", (Literal("string", unit.name.upper()), count, at))

    def _timestamp_diff(self, node: exp.Expr) -> Term | None:
        unit, end, start = node.args.get("unit"), self.read(node.this), self.read(node.args["expression"])
        if not isinstance(unit, exp.Var) or start is None or end is None:
            return None
        constants = [each for each in (start, end) if isinstance(each, Literal)]
        if len(constants) > 1 or any(each.kind not in ("timestamp", "timestamp_ntz", "date") for each in constants):
            return None
        return Call("timestampdiff", (Literal("string", unit.name.upper()), start, end))

    def _if(self, node: exp.Expr) -> Term | None:
        return self._case_of([(node.this, node.args["true"])], node.args.get("false"))

    def _nvl2(self, node: exp.Expr) -> Term | None:
        term = self.read(node.this)
        if term is None or isinstance(term, Literal):
            return None
        first, second = self.read(node.args["true"]), self.read(node.args.get("false"))
        return None if first is None or second is None else Case((Branch(Not(IsNull(term)), first),), second)

    def _nullif(self, node: exp.Expr) -> Term | None:
        left, right = self.read(node.this), self.read(node.args["expression"])
        if left is None or right is None:
            return None
        return Case((Branch(Compare("eq", left, right), Literal("null")),), left)

    def _decode(self, node: exp.Expr) -> Term | None:
        """Returns ``decode(x, a, b, ...)``, whose comparisons find nulls."""
        terms = [self.read(each) for each in node.expressions]
        known = [term for term in terms if term is not None]
        if len(known) < len(terms) or len(terms) < 3:
            return None
        tested, *rest = known
        pairs = zip(rest[::2], rest[1::2], strict=False)
        branches = tuple(Branch(NullSafeEqual(tested, search), value) for search, value in pairs)
        return Case(branches, rest[-1]) if len(rest) % 2 else Case(branches)

    def _case(self, node: exp.Expr) -> Term | None:
        listed = [(each.this, each.args["true"]) for each in node.args["ifs"]]
        tested = node.args.get("this")
        if tested is not None:
            listed = [(exp.EQ(this=tested, expression=value), result) for value, result in listed]
        return self._case_of(listed, node.args.get("default"))

    def _case_of(self, listed: Sequence[tuple[exp.Expr, exp.Expr]], default: exp.Expr | None) -> Term | None:
        values = [self.read(value) for _, value in listed]
        otherwise = Literal("null") if default is None else self.read(default)
        known = [value for value in values if value is not None]
        if self._condition is None or otherwise is None or len(known) < len(values):
            return None
        conditions = [self._condition(condition) for condition, _ in listed]
        if not all(map(is_known, conditions)):  # only the whole can be repeated as it was written
            return None
        return Case(tuple(Branch(*pair) for pair in zip(conditions, known, strict=True)), otherwise)

    def _date_add(self, node: exp.Expr) -> Term | None:
        unit = node.args.get("unit")
        if not isinstance(unit, exp.Var) or unit.name.upper() != "DAY":
            return None
        made = self._of("date_add", node.this, node.args["expression"])
        return (_moved_day(made) or made) if isinstance(made, Call) else made

    def _date_diff(self, node: exp.Expr) -> Term | None:
        return self._of("datediff", _without_date(node.this), _without_date(node.args["expression"]))

    def _add_months(self, node: exp.Expr) -> Term | None:
        return self._of("add_months", node.this, node.args["expression"])

    def _substring(self, node: exp.Expr) -> Term | None:
        return self._of("substring", node.this, node.args.get("start"), node.args.get("length"))

    def _left(self, node: exp.Expr) -> Term | None:
        return self._of("left", node.this, node.args["expression"])

    def _coalesce(self, node: exp.Expr) -> Term | None:
        nodes = [node.this, *node.expressions]
        return self._of("coalesce", *nodes) if len(nodes) <= 8 else None


def _interval_of(interval: exp.Interval) -> tuple[str, int] | None:
    """Returns ``INTERVAL n UNIT`` as the unit that ``add_interval`` takes and the number of them; None: it has no exact
    form."""
    unit, amount = interval.args.get("unit"), interval.this
    if not isinstance(unit, exp.Var) or amount is None or not isinstance(bare(amount), exp.Literal):
        return None
    kind, size = _INTERVALS.get(unit.name.upper().removesuffix("S"), ("", 0))
    given = _AMOUNT.fullmatch(str(bare(amount).this))
    if not kind or given is None or (given[3] and kind != "MICROSECOND"):
        return None
    count, rest = divmod((int(given[2]) * 10**6 + int((given[3] or "").ljust(6, "0") or 0)) * size, 10**6)
    if rest or (given[3] and size != 1_000_000):
        return None
    return kind, -count if given[1] == "-" else count


def _piped(node: exp.Expr) -> list[exp.Expr]:
    """Returns the operands of a chain of ``||``, left to right."""
    found: list[exp.Expr] = []
    while isinstance(node, exp.DPipe):
        found.append(node.args["expression"])
        node = bare(node.this)
    return [node, *reversed(found)]


def _has_more(node: exp.Expr) -> bool:
    known = _KNOWN.get(type(node), _BINARY)
    return any(value and name not in known for name, value in node.args.items())


def _type_text(node: exp.Expr) -> str | None:
    """Returns a type's text; None for one that no column can have, or that has no spelling."""
    try:
        text: str = node.sql(dialect="spark").lower()
        parse_type(text)
    except (SqlglotError, ValueError, LookupError, TypeError, AttributeError, InvalidSchema):
        return None
    return text


def _plain_argument(node: exp.Expr) -> exp.Expr:
    """Returns the argument of a date part, without the cast to a date that sqlglot adds (and that changes nothing)."""
    inner: exp.Expr = node.this
    return inner if isinstance(node, exp.TsOrDsToDate) else _without_date(inner)


def _without_date(node: exp.Expr) -> exp.Expr:
    if type(node) is exp.TsOrDsToDate and not any(node.args.get(name) for name in node.args if name != "this"):
        inner: exp.Expr = node.this
        return inner
    return node


def _moved_by_clock(instant_us: int, count: int, unit: str, zone: str) -> int | None:
    """Returns a time moved by days or months of the clocks of a zone; None if they skip or repeat it."""
    wall = spark_casts.wall_clock_us(instant_us, zone)
    day = None if wall is None else _shifted_day(wall // _DAY_US, count, unit)
    return None if wall is None or day is None else spark_casts.only_instant_us(day * _DAY_US + wall % _DAY_US, zone)


def _shifted_day(day: int, count: int, unit: str) -> int | None:
    if unit in _DAYS:
        return day + count * _DAYS[unit]
    if unit in _MONTHS and abs(day) < 10**7:
        return int(add_months(np.array([day], dtype=np.int64), count * _MONTHS[unit])[0])
    return None


def _moved_day(call: Call) -> Literal | None:
    """Returns the sum of a constant date and a whole number of days; None for anything else."""
    if call.function not in ("add", "subtract", "date_add"):
        return None
    day, days = call.arguments
    days = days.term if isinstance(days, Cast) else days
    if not isinstance(day, Literal) or day.kind != "date" or not isinstance(day.value, int):
        return None
    if not isinstance(days, Literal) or days.kind != "integer" or not isinstance(days.value, int):
        return None
    count = -days.value if call.function == "subtract" else days.value
    return Literal("date", day.value + count) if abs(count) < 10**6 and days.type in ("", "int8", "int16") else None


def _fold_constants(call: Call) -> Cast | None:
    """Returns a sum, difference or product of constants, in the type that Spark gives it, if the result is exact
    there."""
    literals = [argument for argument in call.arguments if isinstance(argument, Literal)]
    if call.function not in ("add", "subtract", "multiply"):
        return None
    if any(literal.kind not in ("integer", "decimal") for literal in literals):
        return None
    left, right = (Decimal(str(literal.value)) for literal in literals)
    (p1, s1), (p2, s2) = digits_of(left), digits_of(right)
    if p1 + p2 + s1 + s2 >= _MAX_DIGITS:
        return None
    with localcontext(prec=2 * _MAX_DIGITS):
        exact = {"add": left + right, "subtract": left - right, "multiply": left * right}[call.function]
    if all(literal.kind == "integer" for literal in literals):
        types = [parse_type(literal.type or ("int32" if _is_int(literal) else "int64")) for literal in literals]
        widest = max(types, key=lambda dtype: dtype.bits)
        low, high = widest.int_range
        return Cast(Literal("integer", int(exact)), widest.name) if low <= exact <= high else None
    scale = s1 + s2 if call.function == "multiply" else max(s1, s2)
    precision = p1 + p2 + 1 if call.function == "multiply" else max(p1 - s1, p2 - s2) + scale + 1
    return Cast(Literal("decimal", format(exact, "f")), f"decimal({precision},{scale})")


def _is_int(literal: Literal) -> bool:
    return isinstance(literal.value, int) and -_INT <= literal.value < _INT


_READERS: Final[dict[type[exp.Expr], Callable[[TermReader, exp.Expr], Term | None]]] = {
    exp.Cast: TermReader._cast,
    exp.TryCast: TermReader._cast,  # without "safe" it is a CAST
    exp.Extract: TermReader._extract,
    exp.Anonymous: TermReader._anonymous,
    exp.TsOrDsAdd: TermReader._date_add,
    exp.DateDiff: TermReader._date_diff,
    exp.AddMonths: TermReader._add_months,
    exp.Substring: TermReader._substring,
    exp.Left: TermReader._left,
    exp.Coalesce: TermReader._coalesce,
    exp.Round: TermReader._round,
    exp.Greatest: TermReader._extreme,
    exp.Least: TermReader._extreme,
    exp.Concat: TermReader._concat,
    exp.DPipe: TermReader._concat,
    exp.Trim: TermReader._trim,
    exp.TimestampAdd: TermReader._timestamp_add,
    exp.TimestampDiff: TermReader._timestamp_diff,
    exp.If: TermReader._if,
    exp.Case: TermReader._case,
    exp.Nullif: TermReader._nullif,
    exp.Nvl2: TermReader._nvl2,
    exp.DecodeCase: TermReader._decode,
}
