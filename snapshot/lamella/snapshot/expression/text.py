"""Predicates and values as text: short for reports, and in full as JSON and as Spark SQL."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from typing import Any, Final, assert_never

import msgspec

from lamella.snapshot.expression.nodes import (
    MIRRORED,
    SUFFIXES,
    And,
    Call,
    Case,
    Cast,
    Compare,
    Constant,
    In,
    IsNan,
    IsNull,
    IsTrue,
    IsUnknown,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Or,
    Predicate,
    Ref,
    StartsWith,
    Term,
    Truth,
    Unknown,
)
from lamella.snapshot.schema import DataType, path_parts, quoted
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.stats.bound import Value

_NAIVE_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # a time zone is written behind where there is one
_SECONDS: Final = {"ms": 3, "us": 6, "ns": 9}
_UUID_BYTES: Final = 16


class ValueText(msgspec.Struct, frozen=True):
    """The text of a value. ``is_cut``: the value is longer than ``text``, which ends in an ellipsis."""

    text: str
    is_cut: bool = False


def value_text(dtype: DataType, value: Value) -> ValueText:
    """Returns the text of a value of a type's order; instants are in UTC, and times beyond the year 9999 or before 1
    are numbers."""
    if isinstance(value, bytes):
        return _bytes(dtype, value)
    if dtype.is_float:
        number = float(value)
        special = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
        return ValueText(special.get(number, repr(number)))
    whole = int(value)
    if dtype.name == "boolean":
        return ValueText("true" if whole else "false")
    if dtype.name == "decimal" and dtype.scale:
        digits = str(abs(whole)).rjust(dtype.scale + 1, "0")
        return ValueText(f"{'-' if whole < 0 else ''}{digits[: -dtype.scale]}.{digits[-dtype.scale :]}")
    if dtype.name in ("date", "time", "timestamp", "timestamp_ntz"):
        return ValueText(_moment(dtype, whole))
    return ValueText(str(whole))


def _bytes(dtype: DataType, value: bytes) -> ValueText:
    if dtype.name == "uuid" and len(value) == _UUID_BYTES:
        return ValueText(f"'{uuid.UUID(bytes=value)}'")
    if dtype.is_text:
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:  # a bound may end inside a character
            pass
        else:
            return ValueText(literal_text(Literal("string", text)), len(text) > TEXT_SHOWN)
    return ValueText(literal_text(Literal("binary", value)), len(value.hex()) > TEXT_SHOWN)


def _moment(dtype: DataType, value: int) -> str:
    if dtype.name == "date":
        try:
            return f"'{(_NAIVE_EPOCH + dt.timedelta(days=value)).date().isoformat()}'"
        except OverflowError:
            return f"date_from_unix_date({value})"
    seconds, part = divmod(value, PER_SECOND[dtype.unit])
    fraction = f".{part:0{_SECONDS[dtype.unit]}}".rstrip("0") if part else ""
    try:
        moment = _NAIVE_EPOCH + dt.timedelta(seconds=seconds)
    except OverflowError:
        return f"timestamp_micros({value * (10**6 // PER_SECOND[dtype.unit])})"
    if dtype.name == "time":
        return f"'{moment.time().isoformat()}{fraction}'"
    zone = "+00:00" if dtype.name == "timestamp" else ""
    return f"'{moment.isoformat(' ')}{fraction}{zone}'"


# Predicates in full: as a JSON tree that ``.json_filters`` reads back, and as SQL in Spark's dialect.
#
# The tree is exact. SQL is exact too, with two exceptions: a JSON text that stands for a value of the column's own type
# is spelled as text, which Spark casts by its own rules, and an unknown part is the client's original text.

_SIGNS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "<>"}
_SUFFIX_OF: Final = {dtype: suffix for suffix, dtype in SUFFIXES.items()}
_LIST_SHOWN: Final = 5
#: Maximum characters of a text, or digits of binary, that are shown.
TEXT_SHOWN: Final = 60


def literal_text(literal: Literal) -> str:
    """Returns the SQL spelling of a literal; long text is cut with an ellipsis."""
    kind, value = literal.kind, literal.value
    if kind == "integer":
        return str(value) + _SUFFIX_OF.get(literal.type, "")
    if kind == "null":
        return "NULL"
    if kind in ("string", "text"):
        text = str(value)
        cut = text if len(text) <= TEXT_SHOWN else text[:TEXT_SHOWN] + "…"
        return "'" + cut.replace("'", "''") + "'"
    if isinstance(value, bytes):
        digits = value.hex().upper()
        return f"X'{digits if len(digits) <= TEXT_SHOWN else digits[:TEXT_SHOWN] + '…'}'"
    if kind == "boolean":
        return "true" if value else "false"
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return f"{kind}({value})"
    return f"CAST({value} AS {literal.type})" if literal.type else str(value)


_INFIX: Final = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "div": "DIV", "mod": "%"}


def term_text(term: Term) -> str:
    """Returns a term's SQL text."""
    if isinstance(term, Ref):
        return term.path
    match term:
        case Literal():
            return literal_text(term)
        case Cast(inner, target):
            return f"CAST({term_text(inner)} AS {target})"
        case Call(name, (left, right)) if name in _INFIX:
            return f"({term_text(left)} {_INFIX[name]} {term_text(right)})"
        case Call("negative", (inner,)):
            return f"(- {term_text(inner)})"
        case Call("add_interval", (inner, Literal(_, unit), Literal(_, int(count)))):
            return f"({term_text(inner)} + {_interval(str(unit), count)})"
        case Call(name, arguments):
            return f"{name}({', '.join(term_text(argument) for argument in arguments)})"
        case Case(branches, otherwise):
            parts = [f"WHEN {text_of(each.condition)} THEN {term_text(each.value)}" for each in branches]
            return f"CASE {' '.join(parts)} ELSE {term_text(otherwise)} END"
        case _:
            assert_never(term)


def _interval(unit: str, count: int) -> str:
    if unit != "MICROSECOND":
        return f"INTERVAL '{count}' {unit}"
    seconds, micros = divmod(abs(count), 1_000_000)
    return f"INTERVAL '{'-' if count < 0 else ''}{seconds}{f'.{micros:06}' if micros else ''}' SECOND"


def text_of(predicate: Predicate) -> str:
    """Returns the predicate's SQL text, with long lists shortened."""
    match predicate:
        case Compare(op, left, right):
            one = left.path if isinstance(left, Ref) else term_text(left)
            other = literal_text(right) if isinstance(right, Literal) else term_text(right)
            return f"{one} {_SIGNS[op]} {other}"
        case Constant(value):
            return "NULL" if value is None else "true" if value else "false"
        case NullSafeEqual(left, right):
            return f"{term_text(left)} <=> {term_text(right)}"
        case In(term, literals):
            shown = ", ".join(literal_text(value) for value in literals[:_LIST_SHOWN])
            more = f", … {len(literals)} in all" if len(literals) > _LIST_SHOWN else ""
            return f"{term_text(term)} IN ({shown}{more})"
        case IsNull(term):
            return f"{term_text(term)} IS NULL"
        case IsNan(term):
            return f"isnan({term_text(term)})"
        case Like(term, pattern, _):
            return f"{term_text(term)} LIKE {literal_text(Literal('string', pattern))}"
        case StartsWith(term, prefix):
            return f"startswith({term_text(term)}, {literal_text(prefix)})"
        case Truth(term):
            return term_text(term)
        case IsTrue(child):
            return f"({text_of(child)}) IS TRUE"
        case IsUnknown(child):
            return f"({text_of(child)}) IS NULL"
        case Not(IsNull(term)):
            return f"{term_text(term)} IS NOT NULL"
        case Not(child):
            return f"NOT ({text_of(child)})"
        case And(children):
            return " AND ".join(f"({text_of(c)})" if isinstance(c, Or) else text_of(c) for c in children) or "true"
        case Or(children):
            return " OR ".join(f"({text_of(c)})" if isinstance(c, And) else text_of(c) for c in children) or "false"
        case Unknown(text, _, _):
            return text
        case _:
            assert_never(predicate)


_OPERATORS: Final = {"lt": "lt", "le": "lt-eq", "gt": "gt", "ge": "gt-eq", "eq": "eq", "ne": "not-eq"}
_SPARK_TYPES: Final = {
    **{"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float32": "float"},
    **{"float64": "double", "timestamp(us)": "timestamp", "timestamp_ntz(us)": "timestamp_ntz"},
}
_DATA_TYPES: Final = {"integer": "long"}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_INT64: Final = 1 << 63
#: Days from 0001-01-01 to 9999-12-31, which DATE and TIMESTAMP literals can spell.
_SPELLED_DAYS: Final = range(-719_162, 2_932_897)
_DAY_US: Final = 86_400_000_000


def tree_of(predicate: Predicate) -> bool | dict[str, Any]:
    """Returns the predicate as a JSON tree."""
    match predicate:
        case Constant(value):
            return {"type": "null"} if value is None else value
        case And(children) | Or(children):
            kind = "and" if isinstance(predicate, And) else "or"
            if not children:
                return isinstance(predicate, And)
            return {"type": kind, "children": [tree_of(child) for child in children]}
        case Not(child):
            return {"type": "not", "child": tree_of(child)}
        case IsTrue(child):
            return {"type": "is-true", "child": tree_of(child)}
        case IsUnknown(child):
            return {"type": "is-unknown", "child": tree_of(child)}
        case Compare(_, left, Literal("null")):
            del left
            return {"type": "null"}
        case Compare(op, left, right):
            if isinstance(left, Literal) and not isinstance(right, Literal):
                left, right, op = right, left, MIRRORED[op]
            return {"type": _OPERATORS[op], "term": _term_tree(left), "value": _operand_tree(right)}
        case NullSafeEqual(left, right):
            if isinstance(left, Literal):
                left, right = right, left
            return {"type": "eq-null-safe", "term": _term_tree(left), "value": _operand_tree(right)}
        case In(term, literals):
            return {"type": "in", "term": _term_tree(term), "values": [_literal_tree(value) for value in literals]}
        case IsNull(term):
            return {"type": "is-null", "term": _term_tree(term)}
        case IsNan(term):
            return {"type": "is-nan", "term": _term_tree(term)}
        case Like(term, pattern, escape):
            value = _literal_tree(Literal("string", pattern))
            return {"type": "like", "term": _term_tree(term), "value": value, "escape": escape}
        case StartsWith(term, prefix):
            return {"type": "starts-with", "term": _term_tree(term), "value": _literal_tree(prefix)}
        case Truth(term):
            return {"type": "truth", "term": _term_tree(term)}
        case Unknown(text, reason, _):
            return {"type": "unknown", "text": text, "reason": reason}
        case _:
            assert_never(predicate)


def sql_of(predicate: Predicate) -> str:
    """Returns the predicate as SQL text."""
    match predicate:
        case Constant(value):
            return "CAST(NULL AS BOOLEAN)" if value is None else "true" if value else "false"
        case And(children):
            return " AND ".join(_within(child) for child in children) or "true"
        case Or(children):
            return " OR ".join(_within(child) for child in children) or "false"
        case Not(IsNull(term)):
            return f"{term_sql(term)} IS NOT NULL"
        case Not(child):
            return f"NOT ({sql_of(child)})"
        case IsTrue(child):
            return f"({sql_of(child)}) IS TRUE"
        case IsUnknown(child):
            return f"({sql_of(child)}) IS NULL"
        case Compare(op, left, right):
            return f"{term_sql(left)} {_SIGNS[op]} {term_sql(right)}"
        case NullSafeEqual(left, right):
            return f"{term_sql(left)} <=> {term_sql(right)}"
        case In(_, ()):
            return "false"
        case In(term, literals):
            return f"{term_sql(term)} IN ({', '.join(_literal_sql(value) for value in literals)})"
        case IsNull(term):
            return f"{term_sql(term)} IS NULL"
        case IsNan(term):
            return f"isnan({term_sql(term)})"
        case Like(term, pattern, escape):
            if not escape:  # Spark has no LIKE without an escape character: one that the pattern lacks escapes nothing
                escape = next(each for each in map(chr, range(1, 0x110000)) if each not in pattern)
            mark = "" if escape == "\\" else f" ESCAPE {_quoted(escape)}"
            return f"{term_sql(term)} LIKE {_quoted(pattern)}{mark}"
        case StartsWith(term, prefix):
            return f"startswith({term_sql(term)}, {_literal_sql(prefix)})"
        case Truth(term):
            return term_sql(term)
        case Unknown(text, _, _):
            return f"({text})"
        case _:
            assert_never(predicate)


def _within(child: Predicate) -> str:
    return f"({sql_of(child)})" if isinstance(child, And | Or) else sql_of(child)


def _term_tree(term: Term) -> Any:
    match term:
        case Ref(path):
            return path
        case Literal():
            return _literal_tree(term)
        case Cast(inner, target):
            return {"type": "cast", "term": _term_tree(inner), "to": target}
        case Call(function, arguments):
            return {"type": "apply", "function": function, "arguments": [_term_tree(each) for each in arguments]}
        case Case(branches, otherwise):
            parts = [{"condition": tree_of(each.condition), "value": _term_tree(each.value)} for each in branches]
            return {"type": "case", "branches": parts, "otherwise": _term_tree(otherwise)}
        case _:
            assert_never(term)


def _operand_tree(term: Term) -> Any:
    """Returns the right side of a comparison, where bare text is a value and not a column."""
    return {"type": "reference", "name": term.path} if isinstance(term, Ref) else _term_tree(term)


def _literal_tree(literal: Literal) -> Any:
    value, kind = literal.value, literal.kind
    if kind == "integer" and isinstance(value, int) and not -_INT64 <= value < 2 * _INT64:
        value, kind = str(value), "decimal"  # as in SQL; MessagePack has no larger integers
    if kind == "text" or (kind == "integer" and isinstance(value, int) and not -_INT64 <= value < _INT64):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        value = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        value = value.hex()
    data_type = _SPARK_TYPES.get(literal.type, literal.type) or _DATA_TYPES.get(kind, kind)
    return {"type": "literal", "data-type": data_type, "value": value}


def term_sql(term: Term) -> str:
    """Returns a term as SQL text."""
    match term:
        case Ref(path):
            return ".".join(map(quoted, path_parts(path) or (path,)))
        case Literal():
            return _literal_sql(term)
        case Cast(inner, target):
            return f"CAST({term_sql(inner)} AS {_SPARK_TYPES.get(target, target).upper()})"
        case Call(function, (left, right)) if function in _INFIX:
            return f"({term_sql(left)} {_INFIX[function]} {term_sql(right)})"
        case Call("negative", (inner,)):
            return f"(- {term_sql(inner)})"
        case Call("add_interval", (inner, Literal(_, unit), Literal(_, int(count)))):
            return f"({term_sql(inner)} + {_interval(str(unit), count)})"
        case Call("yearofweek", (inner,)):
            return f"extract(YEAROFWEEK FROM {term_sql(inner)})"
        case Call("timestampadd", (Literal(_, str(unit)), number, inner)):
            return f"timestampadd({unit}, {term_sql(number)}, {term_sql(inner)})"
        case Call("timestampdiff", (Literal(_, str(unit)), start, end)):
            return f"timestampdiff({unit}, {term_sql(start)}, {term_sql(end)})"
        case Call(function, arguments):
            return f"{function}({', '.join(term_sql(each) for each in arguments)})"
        case Case(branches, otherwise):
            parts = [f"WHEN {sql_of(each.condition)} THEN {term_sql(each.value)}" for each in branches]
            return f"CASE {' '.join(parts)} ELSE {term_sql(otherwise)} END"
        case _:
            assert_never(term)


def _literal_sql(literal: Literal) -> str:
    value, kind = literal.value, literal.kind
    if kind == "null" or value is None:
        return "NULL"
    if kind == "boolean":
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if kind == "decimal":
        return f"CAST({value}BD AS {literal.type.upper()})" if literal.type else f"{value}BD"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS {'FLOAT' if kind == 'float' else 'DOUBLE'})"
    if kind == "date" and isinstance(value, int):
        if value not in _SPELLED_DAYS:
            return f"date_from_unix_date({value})"
        return f"DATE '{(_EPOCH + dt.timedelta(days=value)).date().isoformat()}'"
    if kind in ("timestamp", "timestamp_ntz") and isinstance(value, int):
        if value // _DAY_US not in _SPELLED_DAYS:
            return f"timestamp_micros({value})" if kind == "timestamp" else _far_wall_clock(value)
        shown = (_EPOCH + dt.timedelta(microseconds=value)).replace(tzinfo=None).isoformat(" ", "microseconds")
        return f"TIMESTAMP '{shown}+00:00'" if kind == "timestamp" else f"TIMESTAMP_NTZ '{shown}'"
    return _quoted(value) if isinstance(value, str) else f"{int(value)}{_SUFFIX_OF.get(literal.type, '')}"


def _far_wall_clock(micros: int) -> str:
    days, rest = divmod(micros, _DAY_US)
    return f"(TIMESTAMP_NTZ '1970-01-01' + make_dt_interval({days}, 0, 0, {rest / 1_000_000:.6f}BD))"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
