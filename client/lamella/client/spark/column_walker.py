"""Columns of Spark Connect as filters of Lamella's language.

On Connect a ``Column`` is a tree of Python objects that the server has not analysed yet: names are text, and types
of columns are not known there. So they come from the table's schema, and a comparison in which Spark might cast is
expressed only where that cast is exact.
"""

from __future__ import annotations

from typing import Any, Final

from lamella.client.spark.column_terms import ColumnTermWalker, function_of
from lamella.client.spark.literal import Inexpressible, cross_type_literal, unknown
from lamella.snapshot.schema import Leaf, Schema

_COMPARISONS: Final = {"==": "eq", "=": "eq", "<=>": "eq-null-safe", "<": "lt", "<=": "lt-eq", ">": "gt", ">=": "gt-eq"}
_MIRRORED: Final = {"lt": "gt", "gt": "lt", "lt-eq": "gt-eq", "gt-eq": "lt-eq"}
_TESTS: Final = {"isnull": "is-null", "isnotnull": "not-null", "isnan": "is-nan"}
#: Predicates that may be null, and are no columns.
_CONDITIONS: Final = frozenset({"and", "or", "not", "!", "!=", "in", "startswith", "startsWith", *_COMPARISONS})
_MAX_NODES: Final = 2_000
_MAX_DEPTH: Final = 50


class ColumnWalker:
    """Turns Connect's columns over one table into filter trees."""

    def __init__(self, schema: Schema) -> None:
        self._terms = ColumnTermWalker(schema)
        self._left = _MAX_NODES

    def tree(self, expression: Any, depth: int = 1) -> dict[str, Any]:
        """The tree of a column's ``_expr``."""
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            return unknown(type(expression).__name__, "the filter has too many parts or levels")
        name = function_of(expression)
        if name in ("and", "or"):
            return {"type": name, "children": [self.tree(part, depth + 1) for part in _chain(expression, name)]}
        if name in ("not", "!"):
            return {"type": "not", "child": self.tree(expression._args[0], depth + 1)}
        if name == "!=":
            return {"type": "not", "child": self._guarded("==", expression)}
        test = _TESTS.get(name.lower()) if name is not None else None
        if test in ("is-null", "not-null") and function_of(expression._args[0]) in _CONDITIONS:
            inner = {"type": "is-unknown", "child": self.tree(expression._args[0], depth + 1)}
            return inner if test == "is-null" else {"type": "not", "child": inner}
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
            if type(left).__name__ != "ColumnReference" or type(right).__name__ != "LiteralExpression":
                return self._of_terms(operator, left, right)
            leaf = self._terms.leaf(left)
            return {"type": operator, "term": leaf.reference, "value": _literal(leaf, right)}
        if name == "in":
            leaf = self._terms.leaf(e._args[0])
            return {"type": "in", "term": leaf.reference, "values": [_literal(leaf, value) for value in e._args[1:]]}
        if name is not None and name.lower() in _TESTS:
            return {"type": _TESTS[name.lower()], "term": self._terms.term(e._args[0])}
        if name is not None and name.lower() == "startswith":
            leaf = self._terms.leaf(e._args[0])
            prefix = _literal(leaf, e._args[1])
            if prefix["data-type"] != "string" or not leaf.dtype.is_text:
                raise Inexpressible("a prefix that is not text")
            return {"type": "starts-with", "term": leaf.reference, "value": prefix}
        leaf = self._terms.leaf(e)
        if leaf.dtype.name != "boolean":
            raise Inexpressible("not a condition")
        return {"type": "eq", "term": leaf.reference, "value": cross_type_literal(leaf.dtype, "boolean", True)}

    def _of_terms(self, operator: str, left: Any, right: Any) -> dict[str, Any]:
        term = self._terms.term(left)
        if type(right).__name__ == "LiteralExpression":
            return {"type": operator, "term": term, "value": self._terms.constant(right)}
        other = self._terms.term(right)
        return {
            "type": operator,
            "term": term,
            "value": {"type": "reference", "name": other} if isinstance(other, str) else other,
        }


def _literal(leaf: Leaf, e: Any) -> dict[str, Any]:
    if type(e).__name__ != "LiteralExpression":
        raise Inexpressible("not a comparison of a column with a constant")
    return cross_type_literal(leaf.dtype, e._dataType.typeName(), e._value)


def _chain(expression: Any, name: str) -> list[Any]:
    parts: list[Any] = []
    pending = [expression]
    while pending:
        e = pending.pop()
        if function_of(e) == name:
            pending += reversed(e._args)
        else:
            parts.append(e)
    return parts
