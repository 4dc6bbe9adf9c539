"""Functions, casts and arithmetic of Spark Connect's columns as terms of Lamella's language.

Nothing is typed yet on Connect, so the service gives these terms their types, by Spark's rules and its table's schema.
Constants keep the types that Connect gave them.
"""

from __future__ import annotations

import re
from typing import Any, Final

from lamella.client.spark.catalyst_terms import TermTree, find_leaf
from lamella.client.spark.literal import Inexpressible, literal, typed
from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.schema import Leaf, Schema, parse_type

_FUNCTIONS: Final = {
    **{"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "negative": "negative", "abs": "abs"},
    **{name: name for name in ("year", "quarter", "month", "day", "dayofweek", "dayofyear")},
    **{name: name for name in ("hour", "minute", "second", "to_date", "last_day", "add_months")},
    **{name: name for name in ("date_add", "date_sub", "datediff", "date_trunc", "trunc")},
    **{name: name for name in ("lower", "upper", "length", "substring", "left", "coalesce")},
    "get_json_object": "get_json_object",
    **{"dayofmonth": "day", "date_diff": "datediff", "dateadd": "date_add", "substr": "substring"},
    **{"lcase": "lower", "ucase": "upper", "char_length": "length", "nvl": "coalesce", "ifnull": "coalesce"},
}
_COUNTS: Final = {"to_date": 1, "date_add": 2, "date_sub": 2, "datediff": 2, "substring": 3, "get_json_object": 2}
_INTEGERS: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_PART: Final = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")
_MAX_DEPTH: Final = 40


class ColumnTermWalker:
    """Turns Connect's columns over one table into terms."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def leaf(self, e: Any) -> Leaf:
        """The column of an expression that is one."""
        if kind_of(e) != "ColumnReference":
            raise Inexpressible("not a comparison of a column with a constant")
        return find_leaf(self._schema, name_parts(e._unparsed_identifier))

    def term(self, e: Any, depth: int = 1) -> TermTree:
        """The term of an expression that is no constant.

        Raises:
            Inexpressible: it has no exact counterpart.
        """
        if depth > _MAX_DEPTH:
            raise Inexpressible("nested too deep")
        kind = kind_of(e)
        if kind == "ColumnReference":
            return self.leaf(e).reference
        if kind == "ColumnAlias":
            return self.term(e._child, depth + 1)
        if kind == "CastExpression" and e._eval_mode is None:
            return {"type": "cast", "term": self.term(e._expr, depth + 1), "to": _target(e._data_type)}
        name = function_of(e)
        function = _FUNCTIONS.get(name.lower()) if name is not None else None
        if function is None or len(e._args) != _COUNTS.get(function, len(e._args)):
            raise Inexpressible(f"{name or kind} is not used")
        return {"type": "apply", "function": function, "arguments": [self._argument(a, depth + 1) for a in e._args]}

    def constant(self, e: Any) -> dict[str, Any]:
        """A constant beside a term, in its own type."""
        if kind_of(e) != "LiteralExpression":
            raise Inexpressible("not a constant")
        name = str(e._dataType.typeName())
        if name in ("float", "decimal"):
            raise Inexpressible(f"a constant of type {name} beside a function")
        try:
            dtype = parse_type(_INTEGERS.get(name, name))
        except InvalidSchema as error:
            raise Inexpressible(f"a constant of type {name}") from error
        return typed("null", None) if e._value is None else literal(dtype, name, e._value)

    def _argument(self, e: Any, depth: int) -> TermTree:
        if kind_of(e) != "LiteralExpression":
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


def kind_of(e: Any) -> str:
    """The class of an expression."""
    return type(e).__name__


def function_of(e: Any) -> str | None:
    """The name of a function's call."""
    if kind_of(e) != "UnresolvedFunction" or getattr(e, "_is_distinct", False):
        return None
    return str(e._name)
