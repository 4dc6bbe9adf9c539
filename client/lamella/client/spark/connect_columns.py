"""Columns of Spark Connect (predicates, functions, casts, arithmetic) translated to filters of Lamella's language."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from lamella.client.spark.catalyst import TermTree, find_leaf
from lamella.client.spark.literal import NULL, Inexpressible, cross_type_literal, literal, typed_literal, unknown
from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.expression.nodes import FUNCTIONS
from lamella.snapshot.schema import Leaf, Schema, parse_type

# Functions, casts and arithmetic of Spark Connect's columns as terms of Lamella's language.
#
# Connect's expressions have no types yet, so the service types these terms, by Spark's rules and the table's schema.
# Constants keep the types that Connect gave them.

_FUNCTIONS: Final = {
    **{"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "negative": "negative", "abs": "abs"},
    **{name: name for name in ("year", "quarter", "month", "day", "dayofweek", "dayofyear")},
    **{name: name for name in ("hour", "minute", "second", "to_date", "last_day", "add_months")},
    **{name: name for name in ("date_add", "date_sub", "datediff", "date_trunc", "trunc")},
    **{name: name for name in ("lower", "upper", "length", "substring", "left", "coalesce")},
    **{name: name for name in ("floor", "ceil", "round", "bround", "pmod", "greatest", "least")},
    **{name: name for name in ("shiftleft", "shiftright", "shiftrightunsigned", "weekday", "weekofyear")},
    **{name: name for name in ("unix_date", "unix_seconds", "unix_millis", "unix_micros", "unix_timestamp")},
    **{name: name for name in ("concat", "trim", "ltrim", "rtrim", "date_format")},
    **{"get_json_object": "get_json_object", "%": "mod", "ceiling": "ceil"},
    **{"dayofmonth": "day", "date_diff": "datediff", "dateadd": "date_add", "substr": "substring"},
    **{"lcase": "lower", "ucase": "upper", "char_length": "length", "nvl": "coalesce", "ifnull": "coalesce"},
}
_INTEGERS: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_PART: Final = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")
_MAX_TERM_DEPTH: Final = 40


class ColumnTermWalker:
    """Translates Connect's columns over one table to terms; ``condition`` translates those of a CASE, at a depth."""

    def __init__(self, schema: Schema, condition: Callable[[Any, int], dict[str, Any]]) -> None:
        self._schema = schema
        self._condition = condition

    def leaf(self, e: Any) -> Leaf:
        """Return the column of an expression; raises Inexpressible for any other expression."""
        if expression_kind(e) != "ColumnReference":
            raise Inexpressible("not a comparison of a column with a constant")
        return find_leaf(self._schema, name_parts(e._unparsed_identifier))

    def term(self, e: Any, depth: int = 1) -> TermTree:
        """Return the term of an expression that is not a constant.

        Raises:
            Inexpressible: the expression has no exact counterpart.
        """
        if depth > _MAX_TERM_DEPTH:
            raise Inexpressible("nested too deep")
        kind = expression_kind(e)
        if kind == "ColumnReference":
            return self.leaf(e).reference
        if kind == "ColumnAlias":
            return self.term(e._child, depth + 1)
        if kind == "CastExpression" and e._eval_mode is None:
            return {"type": "cast", "term": self.term(e._expr, depth + 1), "to": _target(e._data_type)}
        if kind == "CaseWhen":
            return self._case(e, depth)
        name = function_of(e)
        function = _FUNCTIONS.get(name.lower()) if name is not None else None
        if function is None or len(e._args) not in FUNCTIONS[function]:
            raise Inexpressible(f"{name or kind} is not used")
        return {"type": "apply", "function": function, "arguments": [self._argument(a, depth + 1) for a in e._args]}

    def _case(self, e: Any, depth: int) -> TermTree:
        branches = [
            {"condition": self._condition(condition, depth + 1), "value": self._argument(value, depth + 1)}
            for condition, value in e._branches
        ]
        otherwise = NULL if e._else_value is None else self._argument(e._else_value, depth + 1)
        return {"type": "case", "branches": branches, "otherwise": otherwise}

    def constant(self, e: Any) -> dict[str, Any]:
        """Return a constant that is compared with a term, in its own type."""
        if expression_kind(e) != "LiteralExpression":
            raise Inexpressible("not a constant")
        name = str(e._dataType.typeName())
        if name in ("float", "decimal"):
            raise Inexpressible(f"a constant of type {name} with a function")
        try:
            dtype = parse_type(_INTEGERS.get(name, name))
        except InvalidSchema as error:
            raise Inexpressible(f"a constant of type {name}") from error
        return typed_literal("null", None) if e._value is None else literal(dtype, name, e._value)

    def _argument(self, e: Any, depth: int) -> TermTree:
        if expression_kind(e) != "LiteralExpression":
            return self.term(e, depth)
        made, name = self.constant(e), str(e._dataType.typeName())
        whole = name in _INTEGERS and made["value"] is not None
        return {"type": "cast", "term": made, "to": _INTEGERS[name]} if whole else made


def _target(data_type: Any) -> str:
    name = data_type if isinstance(data_type, str) else str(data_type.simpleString())
    try:
        parse_type(name)
    except InvalidSchema as error:
        raise Inexpressible(f"a cast to {name}") from error
    return name


def name_parts(identifier: str) -> list[str]:
    """Return the parts of a column name as Spark parses it: separated by dots, quoted by backticks."""
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


def expression_kind(e: Any) -> str:
    """Return the class of an expression."""
    return type(e).__name__


def function_of(e: Any) -> str | None:
    """Return the function name of a call."""
    if expression_kind(e) != "UnresolvedFunction" or getattr(e, "_is_distinct", False):
        return None
    return str(e._name)


# Columns of Spark Connect as filters of Lamella's language.
#
# On Connect a ``Column`` is a tree of Python objects that the server has not analysed yet: names are text, and column
# types are unknown. So types come from the table's schema, and a comparison that Spark might cast is expressed only
# where that cast is exact.

_COMPARISONS: Final = {"==": "eq", "=": "eq", "<=>": "eq-null-safe", "<": "lt", "<=": "lt-eq", ">": "gt", ">=": "gt-eq"}
_MIRRORED: Final = {"lt": "gt", "gt": "lt", "lt-eq": "gt-eq", "gt-eq": "lt-eq"}
_TESTS: Final = {"isnull": "is-null", "isnotnull": "not-null", "isnan": "is-nan"}
#: Predicates that may be null and are not columns.
_CONDITIONS: Final = frozenset({"and", "or", "not", "!", "!=", "in", "startswith", "startsWith", *_COMPARISONS})
_MAX_NODES: Final = 2_000
_MAX_DEPTH: Final = 50


class ColumnWalker:
    """Translates Connect's columns over one table to filter trees."""

    def __init__(self, schema: Schema) -> None:
        self._terms = ColumnTermWalker(schema, self.tree)
        self._left = _MAX_NODES

    def tree(self, expression: Any, depth: int = 1) -> dict[str, Any]:
        """Return the tree of a column's ``_expr``."""
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
        if name is not None and name.lower() in ("rlike", "regexp", "regexp_like"):
            pattern = self._terms.constant(e._args[1])
            if pattern["data-type"] != "string":
                raise Inexpressible("a regular expression that is not constant")
            return {"type": "rlike", "term": self._terms.term(e._args[0]), "value": pattern}
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
