"""Filter trees as one short line for plans and logs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

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


def rendered(tree: Mapping[str, Any]) -> str:
    """The tree as SQL-like text, for people; long lists are cut."""
    kind = tree["type"]
    if kind in ("and", "or"):
        return "(" + f" {kind.upper()} ".join(rendered(child) for child in tree["children"]) + ")"
    if kind == "not":
        return f"NOT {rendered(tree['child'])}"
    if kind in _TESTS:
        return f"{tree['term']} {_TESTS[kind]}"
    if kind == "in":
        values = [_value(value) for value in tree["values"][:_MAX_VALUES]]
        more = len(tree["values"]) - len(values)
        return f"{tree['term']} IN ({', '.join(values)}{f', {more} more' if more else ''})"
    if kind in _OPERATORS:
        return f"{tree['term']} {_OPERATORS[kind]} {_value(tree['value'])}"
    if kind == "unknown":
        return f"UNKNOWN[{tree['text']}]"
    return str(kind).upper()


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
