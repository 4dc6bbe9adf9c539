"""``jsonPredicateHints``: a tree of operations in a JSON text.

Leaves have types: ``{"op": "column", "name": "a", "valueType": "int"}`` and ``{"op": "literal", "value": "5",
"valueType": "int"}``. A type other than the column's is a cast, so both types must be the one that holds the column's
values without loss.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from lamella.snapshot.expression.limits import MAX_DEPTH, MAX_NODES
from lamella.snapshot.expression.nodes import And, Or, Predicate
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.sharing import hint
from lamella.snapshot.sharing.hint import Meant, Operator, unused

_OPERATORS: Final[dict[str, Operator]] = {
    **{"equal": "eq", "lessThan": "lt", "lessThanOrEqual": "le"},
    **{"greaterThan": "gt", "greaterThanOrEqual": "ge"},
}
_MIRRORED: Final[dict[Operator, Operator]] = {"eq": "eq", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d{1,400}\.?\d{0,400}|\.\d{1,400})(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
_SMALL: Final = frozenset({"int8", "int16", "int32", "uint8", "uint16"})
_INT: Final = (-(1 << 31), (1 << 31) - 1)


def read_json_hint(given: str, schema: Schema) -> Predicate:
    """The predicate of a hint's text; what cannot be read for certain is unknown in it, and nothing is an error."""
    try:
        tree = msgspec.json.decode(given.encode("utf-8", "surrogatepass"))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return unused("jsonPredicateHints", "it is no JSON")
    return _Reader(schema).predicate(tree, 1, negated=False)


class _Reader:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._nodes = 0

    def predicate(self, node: Any, depth: int, *, negated: bool) -> Predicate:
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            return unused("a part of the hint", "the hint is too large")
        parts = node.get("children") if isinstance(node, dict) else None
        kind = node.get("op") if isinstance(node, dict) else None
        if isinstance(kind, str) and isinstance(parts, list) and parts:
            if kind in ("and", "or"):
                children = tuple(self.predicate(part, depth + 1, negated=negated) for part in parts)
                return And(children) if (kind == "and") is not negated else Or(children)
            if kind == "not" and len(parts) == 1:
                return self.predicate(parts[0], depth + 1, negated=not negated)
            if kind == "isNull" and len(parts) == 1:
                return self._null_test(parts[0], negated=negated)
            if kind in _OPERATORS and len(parts) == 2:
                return self._compare(_OPERATORS[kind], parts, negated=negated)
        return unused("an operation", "it is none of the protocol's")

    def _null_test(self, node: Any, *, negated: bool) -> Predicate:
        found = self._column(node)
        if found is None:
            return unused("isNull", "it names no column of the table as its own type")
        return hint.is_null(found, negated=negated)

    def _compare(self, operator: Operator, parts: list[Any], *, negated: bool) -> Predicate:
        left, right = parts
        if isinstance(left, dict) and left.get("op") == "literal":
            left, right, operator = right, left, _MIRRORED[operator]
        leaf = self._column(left)
        if leaf is None:
            return unused("a comparison", "it names no column of the table as its own type")
        meant = _value(right, left["valueType"], leaf.dtype)
        if meant is None:
            return unused(leaf.name, "it is not compared with a value of its type")
        return hint.compared(operator, leaf, meant, negated=negated)

    def _column(self, node: Any) -> Leaf | None:
        if not isinstance(node, dict) or node.get("op") != "column":
            return None
        leaf, kind = hint.column(self._schema, node.get("name")), node.get("valueType")
        fits = _FITS.get(kind) if isinstance(kind, str) else None
        return leaf if leaf is not None and fits is not None and fits(leaf.dtype) else None


def _value(node: Any, kind: str, dtype: DataType) -> Meant | None:
    if not isinstance(node, dict) or node.get("op") != "literal" or node.get("valueType") != kind:
        return None
    value = node.get("value")
    return _READ[kind](value, dtype) if isinstance(value, str) else None


def _integer(value: str, dtype: DataType) -> Meant | None:
    return hint.integer(int(value), dtype) if _INTEGER.fullmatch(value) else None


def _small_integer(value: str, dtype: DataType) -> Meant | None:
    found = _integer(value, dtype)
    return found if found is not None and _INT[0] <= int(value) <= _INT[1] else None


def _real(value: str, dtype: DataType) -> Meant | None:
    return hint.real(float(value), dtype) if _NUMBER.fullmatch(value) else None


def _boolean(value: str, _dtype: DataType) -> Meant | None:
    return hint.boolean(value == "true") if value in ("true", "false") else None


#: By a leaf's type: which columns it casts without any loss, and its values.
_FITS: Final[dict[str, Callable[[DataType], bool]]] = {
    "bool": lambda dtype: dtype.name == "boolean",
    "int": lambda dtype: dtype.name in _SMALL,
    "long": lambda dtype: dtype.name in _SMALL or dtype.name in ("int64", "uint32"),
    "float": lambda dtype: dtype.name == "float32",
    "double": lambda dtype: dtype.name in ("float32", "float64"),
    "string": lambda dtype: dtype.is_text,
    "date": lambda dtype: dtype.name == "date",
    "timestamp": lambda dtype: dtype.name == "timestamp",
}
_READ: Final[dict[str, Callable[[str, DataType], Meant | None]]] = {
    "bool": _boolean,
    "int": _small_integer,
    "long": _integer,
    "float": _real,
    "double": _real,
    "string": lambda value, _dtype: hint.text(value),
    "date": lambda value, _dtype: hint.date(value),
    "timestamp": lambda value, _dtype: hint.instant(value),
}
