"""Catalyst expressions as filters of Lamella's language.

The walk goes over the live objects, not over ``toJSON``: that loses the values of an ``IN`` with more than ten of
them, and shows timestamps as local wall clock without a zone, which is ambiguous where clocks go back. What has no
exact counterpart becomes an ``unknown`` node, which keeps every block and is reported; the conjuncts beside it still
prune.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from lamella.client.spark.literal import FALSE, NULL, TRUE, Inexpressible, literal, unknown
from lamella.snapshot.errors import UnknownColumn
from lamella.snapshot.schema import Leaf, Schema

_COMPARISONS: Final = {
    "EqualTo": "eq",
    "EqualNullSafe": "eq-null-safe",
    "LessThan": "lt",
    "LessThanOrEqual": "lt-eq",
    "GreaterThan": "gt",
    "GreaterThanOrEqual": "gt-eq",
}
_MIRRORED: Final = {"lt": "gt", "gt": "lt", "lt-eq": "gt-eq", "gt-eq": "lt-eq"}
_EXPRESSION_ID: Final = re.compile(r"#\d+L?")
# Two control characters that no sane value holds between values; the count is checked afterwards.
_SEPARATOR: Final = "\x1f\x1e"


class Walker:
    """Turns expressions over one table into filter trees.

    ``max_nodes`` and ``max_depth`` bound one tree, ``max_values`` one list: what goes beyond becomes unknown, rather
    than a request that the service refuses.
    """

    def __init__(
        self, schema: Schema, *, max_nodes: int = 2_000, max_depth: int = 50, max_values: int = 100_000
    ) -> None:
        self._schema = schema
        self._left = max_nodes
        self._max_depth = max_depth
        self._max_values = max_values

    def conjunction(self, filters: Any) -> dict[str, Any]:
        """The tree of a Scala ``Seq`` of expressions that must all hold."""
        children = [self.tree(filters.apply(at)) for at in range(filters.size())]
        if not children:
            return TRUE
        return children[0] if len(children) == 1 else {"type": "and", "children": children}

    def tree(self, expression: Any, depth: int = 1) -> dict[str, Any]:
        """The tree of one expression."""
        self._left -= 1
        if self._left < 0 or depth > self._max_depth:
            return unknown(_text(expression), "the filter has too many parts or levels")
        kind = _kind(expression)
        if kind in ("And", "Or"):
            # Long chains lean to the left: flattened, they cost neither recursion here nor depth over there.
            parts = _chain(expression, kind)
            return {"type": kind.lower(), "children": [self.tree(part, depth + 1) for part in parts]}
        if kind == "Not":
            return {"type": "not", "child": self.tree(expression.child(), depth + 1)}
        try:
            return self._predicate(kind, expression)
        except Inexpressible as reason:
            return unknown(_text(expression), str(reason))

    def _predicate(self, kind: str, e: Any) -> dict[str, Any]:
        if kind in _COMPARISONS:
            return self._comparison(_COMPARISONS[kind], e.left(), e.right())
        if kind == "In":
            return self._in_list(e)
        if kind == "InSet":
            return self._in_set(e)
        if kind in ("IsNull", "IsNotNull", "IsNaN"):
            leaf = self._leaf(e.child())
            return {"type": {"IsNull": "is-null", "IsNotNull": "not-null", "IsNaN": "is-nan"}[kind], "term": leaf.name}
        if kind == "StartsWith":
            leaf = self._leaf(e.left())
            return {"type": "starts-with", "term": leaf.name, "value": self._text(leaf, e.right())}
        if kind == "Like" and e.escapeChar() == "\\":
            leaf = self._leaf(e.left())
            return {"type": "like", "term": leaf.name, "value": self._text(leaf, e.right())}
        if kind == "Literal":
            if e.value() is None:
                raise Inexpressible("a constant null")
            return TRUE if e.value() else FALSE
        leaf = self._leaf(e)
        return {"type": "eq", "term": leaf.name, "value": literal(leaf.dtype, "boolean", True)}

    def _comparison(self, operator: str, left: Any, right: Any) -> dict[str, Any]:
        if _kind(left) == "Literal":
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        leaf = self._leaf(left)
        return {"type": operator, "term": leaf.name, "value": self._literal(leaf, right)}

    def _in_list(self, e: Any) -> dict[str, Any]:
        leaf = self._leaf(e.value())
        values = e.list()
        return {
            "type": "in",
            "term": leaf.name,
            "values": [self._literal(leaf, values.apply(at)) for at in range(values.size())],
        }

    def _in_set(self, e: Any) -> dict[str, Any]:
        leaf = self._leaf(e.child())
        spark_type = e.child().dataType().typeName()
        values = e.hset()
        count = values.size()
        if count > self._max_values:
            raise Inexpressible(f"a list of {count} values")
        if spark_type == "binary":
            raise Inexpressible("a list of binary values")  # their text is no more than an address
        parts = values.mkString(_SEPARATOR).split(_SEPARATOR)  # one call for all of them
        if len(parts) != count:
            raise Inexpressible("a value that holds the separator")
        with_null = bool(values.contains(None))
        if with_null:
            parts.remove("null")
        literals = [literal(leaf.dtype, spark_type, part) for part in parts]
        return {"type": "in", "term": leaf.name, "values": literals + [NULL] * with_null}

    def _literal(self, leaf: Leaf, e: Any) -> dict[str, Any]:
        if _kind(e) != "Literal":
            raise Inexpressible("not a comparison of a column with a constant")
        spark_type = e.dataType().typeName()
        value = e.value()
        if value is not None and (spark_type == "string" or spark_type.startswith("decimal")):
            value = value.toString()
        return literal(leaf.dtype, spark_type, value)

    def _text(self, leaf: Leaf, e: Any) -> dict[str, Any]:
        value = self._literal(leaf, e)
        if value["data-type"] != "string":
            raise Inexpressible("a prefix or pattern that is not text")
        return value

    def _leaf(self, e: Any) -> Leaf:
        return find_leaf(self._schema, _path(e))


def find_leaf(schema: Schema, path: list[str]) -> Leaf:
    """The leaf at exactly that path, without regard to case.

    Raises:
        Inexpressible: none, a nested column, one below a list or map, or a name that another column shares.
    """
    name = ".".join(path)
    try:
        leaf = schema.leaf(name)
    except UnknownColumn as error:
        raise Inexpressible(error.message) from error
    if tuple(part.lower() for part in leaf.path) != tuple(part.lower() for part in path):
        raise Inexpressible(f"column {name!r} is ambiguous")
    if leaf.repeated:
        raise Inexpressible(f"column {name!r} is inside a list or map")
    return leaf


def is_sound_in_parquet(tree: Mapping[str, Any], schema: Schema) -> bool:
    """True when Spark may use this filter for its own skipping inside Parquet files.

    Spark 4.3 gets floating point wrong there: writers leave NaN out of min and max although Spark orders it above
    every number, and 0.0 and -0.0 differ in dictionaries and bloom filters. So nothing that touches a FLOAT or
    DOUBLE, and nothing that was not understood in full, since that may hide one.
    """
    kind = tree["type"]
    if kind == "unknown":
        return False
    if kind in ("and", "or"):
        return all(is_sound_in_parquet(child, schema) for child in tree["children"])
    if kind == "not":
        return is_sound_in_parquet(tree["child"], schema)
    return "term" not in tree or not schema.leaf(tree["term"]).dtype.is_float


def _chain(expression: Any, kind: str) -> list[Any]:
    parts: list[Any] = []
    pending = [expression]
    while pending:
        e = pending.pop()
        if _kind(e) == kind:
            pending += [e.right(), e.left()]
        else:
            parts.append(e)
    return parts


def _path(e: Any) -> list[str]:
    kind = _kind(e)
    if kind == "AttributeReference":
        return [str(e.name())]
    if kind == "GetStructField":
        child = e.child()
        return [*_path(child), str(child.dataType().fieldNames()[e.ordinal()])]
    raise Inexpressible("not a comparison of a column with a constant")


def _kind(e: Any) -> str:
    return str(e.getClass().getSimpleName())


def _text(e: Any) -> str:
    return _EXPRESSION_ID.sub("", str(e.toString()))
