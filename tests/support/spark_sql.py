"""Predicates as whole SQL text in Spark's dialect, so that Spark itself can be asked what they mean."""

from __future__ import annotations

import datetime as dt
import math

from lamella.snapshot.expression import nodes as n

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # wall clock on purpose
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


def sql_of(predicate: n.Predicate) -> str:
    """The predicate as SQL."""
    match predicate:
        case n.Constant(value):
            return "CAST(NULL AS BOOLEAN)" if value is None else str(value).lower()
        case n.Compare(op, ref, literal):
            return f"{ref.path} {_SIGNS[op]} {literal_sql(literal)}"
        case n.NullSafeEqual(ref, literal):
            return f"{ref.path} <=> {literal_sql(literal)}"
        case n.In(ref, literals):
            return f"{ref.path} IN ({', '.join(literal_sql(literal) for literal in literals)})"
        case n.IsNull(ref):
            return f"{ref.path} IS NULL"
        case n.IsNan(ref):
            return f"isnan({ref.path})"
        case n.Like(ref, pattern, _):
            return f"{ref.path} LIKE {quoted(pattern)}"
        case n.StartsWith(ref, prefix):
            return f"startswith({ref.path}, {literal_sql(prefix)})"
        case n.Truth(ref):
            return ref.path
        case n.IsTrue(child):
            return f"({sql_of(child)}) IS TRUE"
        case n.Not(child):
            return f"NOT ({sql_of(child)})"
        case n.And(children):
            return " AND ".join(f"({sql_of(child)})" for child in children)
        case n.Or(children):
            return " OR ".join(f"({sql_of(child)})" for child in children)
    raise AssertionError(f"no SQL for {predicate}")
