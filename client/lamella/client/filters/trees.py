"""Parts of the JSON filters that Python expressions are translated to, and their exact constants."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

from lamella.snapshot.errors import InvalidFilter
from lamella.snapshot.schema.column import quoted_path

#: A part of a JSON filter; see docs/filters.md.
Tree = dict[str, Any]

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # a wall clock
_UTC_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_INT64: Final = 1 << 63
_SHOWN: Final = 100

#: The comparisons of the JSON grammar with their sides exchanged.
MIRRORED: Final = {
    "lt": "gt",
    "lt-eq": "gt-eq",
    "gt": "lt",
    "gt-eq": "lt-eq",
    "eq": "eq",
    "not-eq": "not-eq",
    "eq-null-safe": "eq-null-safe",
}

TRUE: Final[Tree] = {"type": "true"}
FALSE: Final[Tree] = {"type": "false"}
NAN: Final[Tree] = {"type": "literal", "data-type": "double", "value": "NaN"}


def typed(data_type: str, value: object) -> Tree:
    """Return a typed literal of the JSON grammar."""
    return {"type": "literal", "data-type": data_type, "value": value}


def constant(value: object) -> Tree | str:
    """Return a Python value as one side of a comparison. Texts, times and UUIDs stand for a value of the column's own
    type.

    Raises:
        InvalidFilter: a value that a filter cannot hold exactly, as :func:`term_constant`.
    """
    value = _plain(value)
    if isinstance(value, str):
        return value
    if isinstance(value, dt.time):
        if value.tzinfo is not None:
            raise unfit(value, "a time of day has no time zone")
        return value.isoformat()
    return str(value) if isinstance(value, uuid.UUID) else term_constant(value)


def term_constant(value: object) -> Tree:
    """Return a Python value as an argument of a function, with the type that Spark gives it.

    Raises:
        InvalidFilter: None, which nothing is compared with; a value that a filter cannot hold exactly, such as
            nanoseconds; other types.
    """
    value = _plain(value)
    match value:
        case None:
            raise unfit(value, "nothing is equal to null: use is_null()")
        case bool():
            return typed("boolean", value)
        case int():
            return typed("long", value) if -_INT64 <= value < _INT64 else typed("decimal", str(value))
        case float():
            special = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return typed("double", value if math.isfinite(value) else special)
        case Decimal():
            if not value.is_finite():
                raise unfit(value, "a decimal is a finite number")
            return typed("decimal", format(value, "f"))
        case str():
            return typed("string", value)
        case bytes() | bytearray() | memoryview():
            return typed("binary", bytes(value).hex())
        case dt.datetime():
            # pandas has moments that are none, and nanoseconds
            if value != value or getattr(value, "nanosecond", False):
                raise unfit(value, "a filter holds microseconds")
            if value.tzinfo is None:
                return typed("timestamp_ntz", (value - _EPOCH) // _MICROSECOND)
            return typed("timestamp", (value - _UTC_EPOCH) // _MICROSECOND)
        case dt.date():
            return typed("date", (value - _EPOCH.date()).days)
        case _:
            raise unfit(value, "filters hold booleans, numbers, text, bytes, dates and times")


def _plain(value: object) -> object:
    """Return the Python value of a NumPy scalar; others as they are."""
    if type(value).__module__ != "numpy" or not hasattr(value, "item"):
        return value
    item = value.item()
    if type(value).__name__ == "datetime64" and isinstance(item, int):
        raise unfit(value, "a filter holds microseconds: convert it with astype('datetime64[us]')")
    return item


def unfit(value: object, reason: str) -> InvalidFilter:
    """Return the error for a constant that a filter cannot hold."""
    return InvalidFilter(f"{type(value).__name__} {shown(value)} in a filter: {reason}")


def shown(value: object) -> str:
    """Return a short text of a value, for messages."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def reference(parts: Iterable[str]) -> Tree:
    """Return a column by the names of its path, in which dots and backquotes have no meaning."""
    return {"type": "reference", "name": quoted_path(parts)}


def apply(function: str, *arguments: Tree) -> Tree:
    """Return a function of terms."""
    return {"type": "apply", "function": function, "arguments": list(arguments)}


def compare(kind: str, left: Tree, right: Tree | str) -> Tree:
    """Return a comparison; the left side is not a constant."""
    return {"type": kind, "term": left, "value": right}


def unary(kind: str, term: Tree) -> Tree:
    """Return ``is-null`` and the like, or ``truth``, of a term."""
    return {"type": kind, "term": term}


def negated(child: Tree) -> Tree:
    """Return NOT."""
    return {"type": "not", "child": child}


def never_null(child: Tree) -> Tree:
    """Return ``child IS TRUE``."""
    return {"type": "is-true", "child": child}


def joined(kind: str, children: Sequence[Tree]) -> Tree:
    """Return ``and`` or ``or`` of conditions. Those of the same kind are taken in, since depth is limited."""
    flat: list[Tree] = []
    for child in children:
        flat += child["children"] if child["type"] == kind else [child]
    return flat[0] if len(flat) == 1 else {"type": kind, "children": flat}


def like(term: Tree, pattern: str) -> Tree:
    """Return ``term LIKE pattern``, with the backslash as the escape character."""
    return {"type": "like", "term": term, "value": typed("string", pattern)}


def text_test(term: Tree, text: str, position: str) -> Tree:
    """Return whether ``text`` is at the ``position`` "start", "end" or "inside" of a term."""
    if position == "start":
        return {"type": "starts-with", "term": term, "value": typed("string", text)}
    escaped = "".join(f"\\{character}" if character in "\\%_" else character for character in text)
    return like(term, f"%{escaped}" if position == "end" else f"%{escaped}%")
