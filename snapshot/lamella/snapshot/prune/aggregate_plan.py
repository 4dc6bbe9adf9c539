"""What an aggregate request asks for, read and bound to a snapshot's schema."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidRequest, LimitExceeded
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.wire import AggregateFunction, AggregateRequest

#: Aggregates, and columns to group by, in one request.
MAX_TERMS: Final = 64
#: Groups in one answer.
MAX_GROUPS: Final = 10_000

_CALL: Final = re.compile(r"\s*(count|min|max)\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
_PART: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`\s.()]+))\s*(\.|$)")


class Asked(msgspec.Struct, frozen=True):
    """One aggregate; ``leaf`` None: ``count(*)``. ``text`` is how the request spells it."""

    function: AggregateFunction
    leaf: Leaf | None
    text: str

    @property
    def is_count(self) -> bool:
        """True for counts; the others are the least and the greatest value."""
        return self.function == "count"

    @property
    def type_text(self) -> str:
        """The type of the result."""
        return "int64" if self.is_count or self.leaf is None else str(self.leaf.dtype)


class Plan(msgspec.Struct, frozen=True):
    """The aggregates and the columns to group by."""

    asked: tuple[Asked, ...]
    group_by: tuple[Leaf, ...]


def read_plan(request: AggregateRequest, schema: Schema) -> Plan:
    """Read the request's aggregates and group columns.

    Raises:
        InvalidRequest: no aggregate, one that is not ``count(*)``, ``count(c)``, ``min(c)`` or ``max(c)``, or a column
            that has no single value in a row or no order.
        UnknownColumn: no such column, or a struct, list or map.
        LimitExceeded: more than 64 aggregates or group columns.
    """
    if not request.aggregates:
        raise InvalidRequest("aggregates is empty")
    for name, given in (("aggregates", request.aggregates), ("group_by", request.group_by)):
        if len(given) > MAX_TERMS:
            raise LimitExceeded(
                f"{name} has {len(given)} entries; the limit is {MAX_TERMS}", limit=name, most=MAX_TERMS
            )
    asked = tuple(_asked(text, schema, request.case_sensitive) for text in request.aggregates)
    groups = tuple(_leaf(text, schema, request.case_sensitive) for text in request.group_by)
    return Plan(asked, groups)


def _asked(text: str, schema: Schema, case_sensitive: bool) -> Asked:
    match = _CALL.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"{text!r} is not count(*), count(c), min(c) or max(c)", aggregate=text)
    function, inner = match[1].lower(), match[2].strip()
    if function == "count" and (inner == "*" or inner.isdecimal()):
        return Asked("count", None, text)
    leaf = _leaf(inner, schema, case_sensitive)
    if function == "count":
        return Asked("count", leaf, text)
    if leaf.dtype.order is None:
        raise InvalidRequest(f"{text!r}: values of type {leaf.dtype} have no order", aggregate=text)
    return Asked("min" if function == "min" else "max", leaf, text)


def _leaf(text: str, schema: Schema, case_sensitive: bool) -> Leaf:
    leaf = schema.leaf(_path(text), case_sensitive=case_sensitive)
    if leaf.repeated:
        raise InvalidRequest(f"column {leaf.name!r} holds several values in a row", column=leaf.name)
    return leaf


def _path(text: str) -> str:
    """A column's dotted path; a part in backquotes may hold anything."""
    parts, at, more = [], 0, True
    while more:
        match = _PART.match(text, at)
        if match is None:
            raise InvalidRequest(f"{text!r} does not name a column; only plain columns are aggregated", column=text)
        parts.append(match[1].replace("``", "`") if match[1] is not None else match[2])
        at, more = match.end(), match[3] == "."
    return ".".join(parts)
