"""Predicates as whole SQL text in Spark's dialect, so that Spark itself can be asked what they mean."""

from __future__ import annotations

import datetime as dt
import math

from lamella.snapshot.expression import nodes as n

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # wall clock on purpose
_SPELLED = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint"}
_INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "div": "DIV", "mod": "%"}
_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "<>"}


def quoted(text: str) -> str:
    """A SQL text literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def literal_sql(literal: n.Literal) -> str:
    """A literal, exact, with its type."""
    value = literal.value
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if literal.kind in ("string", "text"):
        return quoted(str(value))
    if literal.kind == "boolean":
        return "true" if value else "false"
    if literal.kind == "decimal":
        return f"{value}BD"
    if literal.kind == "double":
        number = float(value)
        if math.isnan(number) or math.isinf(number):
            word = "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
            return f"CAST('{word}' AS DOUBLE)"
        return f"{number!r}D"
    if literal.kind == "date":
        return f"DATE '{(_EPOCH + dt.timedelta(days=int(value))).date().isoformat()}'"
    if literal.kind in ("timestamp", "timestamp_ntz"):
        text = (_EPOCH + dt.timedelta(microseconds=int(value))).isoformat(sep=" ", timespec="microseconds")
        return f"TIMESTAMP '{text}+00:00'" if literal.kind == "timestamp" else f"TIMESTAMP_NTZ '{text}'"
    return str(value)


def term_sql(term: n.Term) -> str:
    """A term as SQL."""
    match term:
        case n.Ref(path):
            return path
        case n.Literal():
            return literal_sql(term)
        case n.Cast(inner, target):
            return f"CAST({term_sql(inner)} AS {_SPELLED.get(target, target)})"
        case n.Call("negative", (inner,)):
            return f"(- {term_sql(inner)})"
        case n.Call("yearofweek", (inner,)):
            return f"extract(YEAROFWEEK FROM {term_sql(inner)})"
        case n.Call("add_interval", (inner, n.Literal(_, str(unit)), n.Literal(_, int(count)))):
            if unit == "MICROSECOND":
                sign, (seconds, micros) = "-" if count < 0 else "", divmod(abs(count), 10**6)
                return f"({term_sql(inner)} + INTERVAL '{sign}{seconds}.{micros:06}' SECOND)"
            return f"({term_sql(inner)} + INTERVAL '{count}' {unit})"
        case n.Call("timestampadd", (n.Literal(_, str(unit)), number, inner)):
            return f"timestampadd({unit}, {term_sql(number)}, {term_sql(inner)})"
        case n.Call("timestampdiff", (n.Literal(_, str(unit)), start, end)):
            return f"timestampdiff({unit}, {term_sql(start)}, {term_sql(end)})"
        case n.Case(branches, otherwise):
            parts = " ".join(f"WHEN {sql_of(each.condition)} THEN {term_sql(each.value)}" for each in branches)
            return f"(CASE {parts} ELSE {term_sql(otherwise)} END)"
        case n.Call(function, (left, right)) if function in _INFIX:
            return f"({term_sql(left)} {_INFIX[function]} {term_sql(right)})"
        case n.Call(function, arguments):
            return f"{function}({', '.join(term_sql(argument) for argument in arguments)})"
    raise AssertionError(f"no SQL for {term}")


def sql_of(predicate: n.Predicate) -> str:
    """The predicate as SQL."""
    match predicate:
        case n.Constant(value):
            return "CAST(NULL AS BOOLEAN)" if value is None else str(value).lower()
        case n.Compare(op, left, right):
            return f"{term_sql(left)} {_SIGNS[op]} {term_sql(right)}"
        case n.NullSafeEqual(left, right):
            return f"{term_sql(left)} <=> {term_sql(right)}"
        case n.In(term, literals):
            return f"{term_sql(term)} IN ({', '.join(literal_sql(literal) for literal in literals)})"
        case n.IsNull(term):
            return f"{term_sql(term)} IS NULL"
        case n.IsNan(term):
            return f"isnan({term_sql(term)})"
        case n.Like(term, pattern, _):
            return f"{term_sql(term)} LIKE {quoted(pattern)}"
        case n.StartsWith(term, prefix):
            return f"startswith({term_sql(term)}, {literal_sql(prefix)})"
        case n.Truth(term):
            return term_sql(term)
        case n.IsTrue(child):
            return f"({sql_of(child)}) IS TRUE"
        case n.IsUnknown(child):
            return f"({sql_of(child)}) IS NULL"
        case n.Not(child):
            return f"NOT ({sql_of(child)})"
        case n.And(children):
            return " AND ".join(f"({sql_of(child)})" for child in children)
        case n.Or(children):
            return " OR ".join(f"({sql_of(child)})" for child in children)
    raise AssertionError(f"no SQL for {predicate}")
