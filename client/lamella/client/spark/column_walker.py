"""Columns of Spark Connect as filters of Lamella's language.

On Connect a ``Column`` is a tree of Python objects that the server has not analysed yet: names are text, and types
of columns are not known there. So they come from the table's schema, and a comparison in which Spark might cast is
expressed only where that cast is exact.
"""

from __future__ import annotations

import re
from typing import Any, Final

from lamella.client.spark.catalyst_terms import find_leaf
from lamella.client.spark.literal import Inexpressible, cross_type_literal, unknown
from lamella.snapshot.schema import Leaf, Schema

_COMPARISONS: Final = {"==": "eq", "=": "eq", "<=>": "eq-null-safe", "<": "lt", "<=": "lt-eq", ">": "gt", ">=": "gt-eq"}
_MIRRORED: Final = {"lt": "gt", "gt": "lt", "lt-eq": "gt-eq", "gt-eq": "lt-eq"}
_TESTS: Final = {"isnull": "is-null", "isnotnull": "not-null", "isnan": "is-nan"}
_PART: Final = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")
_MAX_NODES: Final = 2_000
_MAX_DEPTH: Final = 50


class ColumnWalker:
    """Turns Connect's columns over one table into filter trees."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._left = _MAX_NODES

    def tree(self, expression: Any, depth: int = 1) -> dict[str, Any]:
        """The tree of a column's ``_expr``."""
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            return unknown(type(expression).__name__, "the filter has too many parts or levels")
        name = _function(expression)
        if name in ("and", "or"):
            return {"type": name, "children": [self.tree(part, depth + 1) for part in _chain(expression, name)]}
        if name in ("not", "!"):
            return {"type": "not", "child": self.tree(expression._args[0], depth + 1)}
        if name == "!=":
            return {"type": "not", "child": self._guarded("==", expression)}
        return self._guarded(name, expression)

    def _guarded(self, name: str | None, expression: Any) -> dict[str, Any]:
        try:
            return self._predicate(name, expression)
        except Inexpressible as reason:
            return unknown(str(expression), str(reason))

    def _predicate(self, name: str | None, e: Any) -> dict[str, Any]:
        if name in _COMPARISONS:
            left, right = e._args
            operator = _COMPARISONS[name]
            if type(left).__name__ == "LiteralExpression":
                left, right, operator = right, left, _MIRRORED.get(operator, operator)
            leaf = self._leaf(left)
            return {"type": operator, "term": leaf.name, "value": _literal(leaf, right)}
        if name == "in":
            leaf = self._leaf(e._args[0])
            return {"type": "in", "term": leaf.name, "values": [_literal(leaf, value) for value in e._args[1:]]}
        if name is not None and name.lower() in _TESTS:
            return {"type": _TESTS[name.lower()], "term": self._leaf(e._args[0]).name}
        if name is not None and name.lower() == "startswith":
            leaf = self._leaf(e._args[0])
            prefix = _literal(leaf, e._args[1])
            if prefix["data-type"] != "string" or not leaf.dtype.is_text:
                raise Inexpressible("a prefix that is not text")
            return {"type": "starts-with", "term": leaf.name, "value": prefix}
        leaf = self._leaf(e)
        if leaf.dtype.name != "boolean":
            raise Inexpressible("not a condition")
        return {"type": "eq", "term": leaf.name, "value": cross_type_literal(leaf.dtype, "boolean", True)}

    def _leaf(self, e: Any) -> Leaf:
        if type(e).__name__ != "ColumnReference":
            raise Inexpressible("not a comparison of a column with a constant")
        return find_leaf(self._schema, name_parts(e._unparsed_identifier))


def name_parts(identifier: str) -> list[str]:
    """The parts of a column's name as Spark parses it: dots separate, backticks quote."""
    parts, at = [], 0
    while True:
        match = _PART.match(identifier, at)
        if match is None:
            raise Inexpressible(f"the name {identifier!r} cannot be read")
        parts.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        at = match.end()
        if at == len(identifier):
            return parts
        if identifier[at] != ".":
            raise Inexpressible(f"the name {identifier!r} cannot be read")
        at += 1


def _function(e: Any) -> str | None:
    if type(e).__name__ != "UnresolvedFunction" or getattr(e, "_is_distinct", False):
        return None
    return str(e._name)


def _literal(leaf: Leaf, e: Any) -> dict[str, Any]:
    if type(e).__name__ != "LiteralExpression":
        raise Inexpressible("not a comparison of a column with a constant")
    return cross_type_literal(leaf.dtype, e._dataType.typeName(), e._value)


def _chain(expression: Any, name: str) -> list[Any]:
    parts: list[Any] = []
    pending = [expression]
    while pending:
        e = pending.pop()
        if _function(e) == name:
            pending += reversed(e._args)
        else:
            parts.append(e)
    return parts
