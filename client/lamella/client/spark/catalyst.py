"""Catalyst expressions as filters of Lamella's language.

The walk goes over the live objects, not over ``toJSON``: that loses the values of an ``IN`` with more than ten of
them, and shows timestamps as local wall clock without a zone, which is ambiguous where clocks go back. What has no
exact counterpart becomes an ``unknown`` node, which keeps every block and is reported; the conjuncts beside it still
prune.
"""

from __future__ import annotations

import re
from typing import Any, Final

from lamella.client.spark.catalyst_terms import COLUMNS, TermTree, TermWalker, dtype_of, kind_of
from lamella.client.spark.literal import FALSE, NULL, TRUE, Inexpressible, literal, typed, unknown
from lamella.snapshot.schema import DataType, Schema

_COMPARISONS: Final = {
    "EqualTo": "eq",
    "EqualNullSafe": "eq-null-safe",
    "LessThan": "lt",
    "LessThanOrEqual": "lt-eq",
    "GreaterThan": "gt",
    "GreaterThanOrEqual": "gt-eq",
}
_MIRRORED: Final = {"lt": "gt", "gt": "lt", "lt-eq": "gt-eq", "gt-eq": "lt-eq"}
_TESTS: Final = {"IsNull": "is-null", "IsNotNull": "not-null", "IsNaN": "is-nan"}
#: Predicates that may be null, and are no columns.
_CONDITIONS: Final = frozenset({"And", "Or", "Not", "In", "InSet", "StartsWith", "Like", *_COMPARISONS})
#: What means something in a LIKE pattern.
_SPECIAL: Final = re.compile(r"[%_\\]")
_EXPRESSION_ID: Final = re.compile(r"#\d+L?")
# Two control characters that no sane value holds between values; the count is checked afterwards.
_SEPARATOR: Final = "\x1f\x1e"


class Walker:
    """Turns expressions over one table into filter trees.

    ``max_nodes`` and ``max_depth`` bound one tree, ``max_values`` one list: what goes beyond becomes unknown, rather
    than a request that the service refuses. ``time_zone`` is the session's; without it, nothing that depends on one is
    expressed.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        time_zone: str | None = None,
        max_nodes: int = 2_000,
        max_depth: int = 50,
        max_values: int = 100_000,
    ) -> None:
        self._terms = TermWalker(schema, time_zone)
        self._time_zone = time_zone
        self._left = max_nodes
        self._max_depth = max_depth
        self._max_values = max_values

    @property
    def time_zone(self) -> str:
        """The time zone that the service has to be told with these trees."""
        return self._time_zone or "UTC" if self._terms.zone_used else "UTC"

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
        kind = kind_of(expression)
        if kind in ("And", "Or"):
            # Long chains lean to the left: flattened, they cost neither recursion here nor depth over there.
            parts = _chain(expression, kind)
            return {"type": kind.lower(), "children": [self.tree(part, depth + 1) for part in parts]}
        if kind == "Not":
            return {"type": "not", "child": self.tree(expression.child(), depth + 1)}
        if kind in ("IsNull", "IsNotNull") and kind_of(expression.child()) in _CONDITIONS:
            test = {"type": "is-unknown", "child": self.tree(expression.child(), depth + 1)}
            return test if kind == "IsNull" else {"type": "not", "child": test}
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
        if kind in _TESTS:
            return {"type": _TESTS[kind], "term": self._terms.term(e.child())}
        if kind == "StartsWith":
            term, dtype = self._side(e.left())
            return {"type": "starts-with", "term": term, "value": self._text(dtype, e.right())}
        if kind == "Like" and e.escapeChar() == "\\":
            term, dtype = self._side(e.left())
            return {"type": "like", "term": term, "value": self._text(dtype, e.right())}
        if kind in ("Contains", "EndsWith"):  # says nothing but where it is null
            term, dtype = self._side(e.left())
            text = _SPECIAL.sub(r"\\\g<0>", self._text(dtype, e.right())["value"])
            pattern = f"%{text}%" if kind == "Contains" else f"%{text}"
            return {"type": "like", "term": term, "value": typed("string", pattern)}
        if kind == "Literal":
            if e.value() is None:
                raise Inexpressible("a constant null")
            return TRUE if e.value() else FALSE
        term, dtype = self._side(e)
        return {"type": "eq", "term": term, "value": literal(dtype, "boolean", True)}

    def _side(self, e: Any) -> tuple[TermTree, DataType]:
        """A term, and the type that constants beside it have: of a column its own, else Spark's."""
        if kind_of(e) in COLUMNS:
            leaf = self._terms.leaf(e)
            return leaf.reference, leaf.dtype
        return self._terms.term(e), dtype_of(e)

    def _comparison(self, operator: str, left: Any, right: Any) -> dict[str, Any]:
        if kind_of(left) == "Literal":
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        term, dtype = self._side(left)
        if kind_of(right) == "Literal":
            return {"type": operator, "term": term, "value": self._terms.constant(right, dtype)}
        if left.dataType().typeName() != right.dataType().typeName():
            raise Inexpressible("a comparison of two types")
        dtype_of(left)
        other = self._terms.term(right)
        value = {"type": "reference", "name": other} if isinstance(other, str) else other
        return {"type": operator, "term": term, "value": value}

    def _in_list(self, e: Any) -> dict[str, Any]:
        term, dtype = self._side(e.value())
        values = e.list()
        constants = [self._terms.constant(values.apply(at), dtype) for at in range(values.size())]
        return {"type": "in", "term": term, "values": constants}

    def _in_set(self, e: Any) -> dict[str, Any]:
        term, dtype = self._side(e.child())
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
        literals = [literal(dtype, spark_type, part) for part in parts]
        return {"type": "in", "term": term, "values": literals + [NULL] * with_null}

    def _text(self, dtype: DataType, e: Any) -> dict[str, Any]:
        value = self._terms.constant(e, dtype)
        if value["data-type"] != "string":
            raise Inexpressible("a prefix or pattern that is not text")
        return value


def _chain(expression: Any, kind: str) -> list[Any]:
    parts: list[Any] = []
    pending = [expression]
    while pending:
        e = pending.pop()
        if kind_of(e) == kind:
            pending += [e.right(), e.left()]
        else:
            parts.append(e)
    return parts


def _text(e: Any) -> str:
    return _EXPRESSION_ID.sub("", str(e.toString()))
