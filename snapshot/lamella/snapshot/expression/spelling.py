"""Predicates written out in full: as a JSON tree that :mod:`.tree` reads back, and as SQL in Spark's dialect.

The tree is exact. SQL is exact too but for two things: a JSON text that stands for a value of the column's own type is
spelled as text, which Spark casts by its own rules, and an unknown part is whatever its client wrote.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any, Final, assert_never

from lamella.snapshot.expression.nodes import (
    SUFFIXES,
    And,
    Call,
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
from lamella.snapshot.schema import path_parts

_OPERATORS: Final = {"lt": "lt", "le": "lt-eq", "gt": "gt", "ge": "gt-eq", "eq": "eq", "ne": "not-eq"}
_SIGNS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "<>"}
_INFIX: Final = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_SPARK_TYPES: Final = {
    **{"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float32": "float"},
    **{"float64": "double", "timestamp(us)": "timestamp", "timestamp_ntz(us)": "timestamp_ntz"},
}
_DATA_TYPES: Final = {"integer": "long"}
_SUFFIX_OF: Final = {dtype: suffix for suffix, dtype in SUFFIXES.items()}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_INT64: Final = 1 << 63
#: Days from 0001-01-01 to 9999-12-31, which DATE and TIMESTAMP literals can spell.
_SPELLED_DAYS: Final = range(-719_162, 2_932_897)
_DAY_US: Final = 86_400_000_000


def tree_of(predicate: Predicate) -> bool | dict[str, Any]:
    """The predicate as a JSON tree."""
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
            return {"type": _OPERATORS[op], "term": _term_tree(left), "value": _operand_tree(right)}
        case NullSafeEqual(left, right):
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
    """The predicate as SQL text."""
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
            if not escape:  # Spark has none without one: any character that the pattern lacks escapes nothing
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
        case _:
            assert_never(term)


def _operand_tree(term: Term) -> Any:
    """The right side of a comparison, where bare text is a value and not a column."""
    return {"type": "reference", "name": term.path} if isinstance(term, Ref) else _term_tree(term)


def _literal_tree(literal: Literal) -> Any:
    value, kind = literal.value, literal.kind
    if kind == "text" or (kind == "integer" and isinstance(value, int) and not -_INT64 <= value < _INT64):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        value = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        value = value.hex()
    data_type = _SPARK_TYPES.get(literal.type, literal.type) or _DATA_TYPES.get(kind, kind)
    return {"type": "literal", "data-type": data_type, "value": value}


def term_sql(term: Term) -> str:
    """A term as SQL text."""
    match term:
        case Ref(path):
            return ".".join("`" + part.replace("`", "``") + "`" for part in path_parts(path) or (path,))
        case Literal():
            return _literal_sql(term)
        case Cast(inner, target):
            return f"CAST({term_sql(inner)} AS {_SPARK_TYPES.get(target, target).upper()})"
        case Call(function, (left, right)) if function in _INFIX:
            return f"({term_sql(left)} {_INFIX[function]} {term_sql(right)})"
        case Call("negative", (inner,)):
            return f"(- {term_sql(inner)})"
        case Call(function, arguments):
            return f"{function}({', '.join(term_sql(each) for each in arguments)})"
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
