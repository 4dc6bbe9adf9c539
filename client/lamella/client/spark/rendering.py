"""Filter trees as one short line for plans and logs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lamella.snapshot.wire import OrderBy

if TYPE_CHECKING:
    from lamella.client.spark.lake import Kept

_OPERATORS: Final = {
    "eq": "=",
    "not-eq": "!=",
    "eq-null-safe": "<=>",
    "lt": "<",
    "lt-eq": "<=",
    "gt": ">",
    "gt-eq": ">=",
    "starts-with": "STARTS WITH",
    "like": "LIKE",
}
_TESTS: Final = {"is-null": "IS NULL", "not-null": "IS NOT NULL", "is-nan": "IS NAN"}
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # wall clock; the zone is written behind it
_MAX_VALUES: Final = 5
_MAX_RESIDUAL: Final = 120


def rendered(tree: Mapping[str, Any]) -> str:
    """The tree as SQL-like text, for people; long lists are cut."""
    kind = tree["type"]
    if kind in ("and", "or"):
        return "(" + f" {kind.upper()} ".join(rendered(child) for child in tree["children"]) + ")"
    if kind == "not":
        return f"NOT {rendered(tree['child'])}"
    if kind in _TESTS:
        return f"{_term(tree['term'])} {_TESTS[kind]}"
    if kind == "in":
        values = [_value(value) for value in tree["values"][:_MAX_VALUES]]
        more = len(tree["values"]) - len(values)
        return f"{_term(tree['term'])} IN ({', '.join(values)}{f', {more} more' if more else ''})"
    if kind in _OPERATORS:
        return f"{_term(tree['term'])} {_OPERATORS[kind]} {_term(tree['value'])}"
    if kind == "unknown":
        return f"UNKNOWN[{tree['text']}]"
    return str(kind).upper()


def _term(tree: Any) -> str:
    """A column, a function, a cast or a constant."""
    if isinstance(tree, str):
        return tree
    if tree["type"] == "literal":
        return _value(tree)
    if tree["type"] == "reference":
        return str(tree["name"])
    if tree["type"] == "cast":
        return f"CAST({_term(tree['term'])} AS {tree['to']})"
    return f"{tree['function']}({', '.join(_term(each) for each in tree['arguments'])})"


def decided_text(kept: Kept) -> list[str]:
    """How the blocks stand to the filter, and what is left of it in them: short texts for a plan."""
    if kept.fell_back is not None:
        return []
    verdicts = " ".join(f"{name}:{kept.verdicts[name]}" for name in sorted(kept.verdicts))
    shown = [f"{sql[:_MAX_RESIDUAL]} ({blocks})" for sql, blocks in kept.residuals[:_MAX_VALUES]]
    if len(kept.residuals) > _MAX_VALUES:
        shown.append(f"{len(kept.residuals) - _MAX_VALUES} more")
    return [f"verdicts=[{verdicts}]", *([f"residual=[{'; '.join(shown)}]"] if shown else [])]


def order_text(by: OrderBy) -> str:
    """One column of an order as SQL."""
    nulls = "" if by.nulls_first is None else f" NULLS {'FIRST' if by.nulls_first else 'LAST'}"
    return f"{by.column} {'DESC' if by.descending else 'ASC'}{nulls}"


def _value(literal: Mapping[str, Any]) -> str:
    kind, value = literal["data-type"], literal["value"]
    try:
        if kind == "date":
            return f"DATE '{(_EPOCH + dt.timedelta(days=value)).date()}'"
        if kind in ("timestamp", "timestamp_ntz"):
            zone = "Z" if kind == "timestamp" else ""
            return f"'{(_EPOCH + dt.timedelta(microseconds=value)).isoformat()}{zone}'"
    except OverflowError:  # beyond Python's years
        return f"{kind} {value}"
    if kind == "string":
        return f"'{value}'"
    return f"x'{value}'" if kind == "binary" else str(value)
