"""Catalyst expressions (predicates, functions, casts, arithmetic, sort orders) translated to Lamella's language.

The translation reads the live objects instead of ``toJSON``, which loses the values of an ``IN`` with more than ten of
them and writes timestamps as local time without a zone, which is ambiguous when clocks go back. A part without an exact
counterpart becomes an ``unknown`` node, which keeps every block and is reported; the other conjuncts still prune.
"""

from __future__ import annotations

import re
from typing import Any, Final

from lamella.client.spark.literal import FALSE, NULL, TRUE, Inexpressible, literal, typed_literal, unknown
from lamella.snapshot.errors import InvalidSchema, UnknownColumn
from lamella.snapshot.expression import spark_casts
from lamella.snapshot.schema import DataType, Leaf, Schema, parse_type, quoted_path
from lamella.snapshot.wire import OrderBy

# Catalyst's functions, casts and arithmetic as terms of Lamella's language.
#
# Spark has typed every part and made implicit casts explicit, so constants keep their types. Parts that depend on the
# session's time zone set ``zone_used``: the service must be told the zone. A part in another time zone (of a view that
# was created in another one, say) has no counterpart.

#: A column's name, or a term as a JSON tree.
TermTree = str | dict[str, Any]

_FUNCTIONS: Final = {
    **{"Add": "add", "Subtract": "subtract", "Multiply": "multiply", "Divide": "divide"},
    **{"UnaryMinus": "negative", "Abs": "abs"},
    **{"Year": "year", "Quarter": "quarter", "Month": "month", "DayOfMonth": "day", "DayOfWeek": "dayofweek"},
    **{"DayOfYear": "dayofyear", "Hour": "hour", "Minute": "minute", "Second": "second"},
    **{"DateAdd": "date_add", "DateSub": "date_sub", "DateDiff": "datediff", "AddMonths": "add_months"},
    **{"LastDay": "last_day", "TruncDate": "trunc", "TruncTimestamp": "date_trunc"},
    **{"Substring": "substring", "Lower": "lower", "Upper": "upper", "Length": "length", "Coalesce": "coalesce"},
    "GetJsonObject": "get_json_object",
}
_IN_A_ZONE: Final = frozenset({"Hour", "Minute", "Second", "TruncTimestamp"})
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_INTEGERS: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_MAX_DEPTH: Final = 40
#: Expression classes of columns and fields of structs.
COLUMNS: Final = ("AttributeReference", "GetStructField")
#: Spark types that terms may have; a string with a collation is a different type.
_TYPES: Final = _TIMES | {"boolean", "float", "double", "string", "binary", *_INTEGERS}


class TermWalker:
    """Translates expressions over one table to terms; ``time_zone`` is the session's."""

    def __init__(self, schema: Schema, time_zone: str | None) -> None:
        self._schema = schema
        self._time_zone = time_zone
        #: True when a term so far depends on the time zone.
        self.zone_used = False

    def term(self, e: Any, depth: int = 1) -> TermTree:
        """Return the term of an expression that is not a constant.

        Raises:
            Inexpressible: the expression has no exact counterpart.
        """
        if depth > _MAX_DEPTH:
            raise Inexpressible("nested too deep")
        name = kind_of(e)
        if name in COLUMNS:
            return find_leaf(self._schema, _path(e)).reference
        if name == "Cast":
            return self._cast(e, depth)
        if name not in _FUNCTIONS:
            raise Inexpressible(f"function {name} is not used")
        dtype_of(e)
        if name in _IN_A_ZONE and not self._is_wall(e):
            self._in_zone(e)
        children = e.children()
        arguments = [self._argument(children.apply(at), depth + 1) for at in range(children.size())]
        return {"type": "apply", "function": _FUNCTIONS[name], "arguments": arguments}

    def leaf(self, e: Any) -> Leaf:
        """Return the column of an expression; raises Inexpressible for any other expression."""
        return find_leaf(self._schema, _path(e))

    def constant(self, e: Any, dtype: DataType) -> dict[str, Any]:
        """Return a constant of that type."""
        if kind_of(e) != "Literal":
            raise Inexpressible("not a constant")
        value = e.value()
        spark_type = e.dataType().typeName()
        if value is not None and (spark_type == "string" or spark_type.startswith("decimal")):
            value = value.toString()
        return literal(dtype, spark_type, value)

    def _argument(self, e: Any, depth: int) -> TermTree:
        if kind_of(e) != "Literal":
            return self.term(e, depth)
        dtype = dtype_of(e)
        made = self.constant(e, dtype)
        if made["value"] is not None and (dtype.is_integer or dtype.name == "decimal"):
            return {"type": "cast", "term": made, "to": _name(e)}
        return made

    def _cast(self, e: Any, depth: int) -> dict[str, Any]:
        source, target = dtype_of(e.child()), dtype_of(e)
        if source.name in _TIMES and target.name in _TIMES and "timestamp" in (source.name, target.name):
            self._in_zone(e)
        return {"type": "cast", "term": self.term(e.child(), depth + 1), "to": _name(e)}

    def _is_wall(self, e: Any) -> bool:
        """Whether the expression is a part of a time without zone, which Spark evaluates as UTC."""
        children = e.children()
        return any(str(children.apply(at).dataType().typeName()) == "timestamp_ntz" for at in range(children.size()))

    def _in_zone(self, e: Any) -> None:
        given = e.timeZoneId()
        name = str(given.get()) if given.isDefined() else None
        if name is None or name != self._time_zone or spark_casts.zone(name) is None:
            raise Inexpressible(f"time zone {name} is not the session's")
        self.zone_used = True


def dtype_of(e: Any) -> DataType:
    """Return the type of an expression."""
    return dtype_named(str(e.dataType().typeName()))


def dtype_named(name: str) -> DataType:
    """Return the type of a name in Spark's JSON; raises Inexpressible for types that terms cannot have."""
    if name not in _TYPES and not name.startswith("decimal("):
        raise Inexpressible(f"values of type {name}")
    try:
        return parse_type(_INTEGERS.get(name, name))
    except InvalidSchema as error:
        raise Inexpressible(f"values of type {name}") from error


def _name(e: Any) -> str:
    """Return the SQL name of an expression's type."""
    return sql_type_name(str(e.dataType().typeName()))


def sql_type_name(name: str) -> str:
    """Return the SQL name of a type name in Spark's JSON."""
    return _INTEGERS.get(name, name)


def find_leaf(schema: Schema, path: list[str]) -> Leaf:
    """Return the leaf at exactly that path, compared case-insensitively.

    Raises:
        Inexpressible: there is none, it is nested or inside a list or map, or the name is ambiguous.
    """
    name = quoted_path(path)
    try:
        leaf = schema.leaf(name)
    except UnknownColumn as error:
        raise Inexpressible(error.message) from error
    if tuple(part.lower() for part in leaf.path) != tuple(part.lower() for part in path):
        raise Inexpressible(f"column {name!r} is ambiguous")
    if leaf.repeated:
        raise Inexpressible(f"column {name!r} is inside a list or map")
    return leaf


#: The attribute of py4j's proxy for an expression that caches its class, which never changes.
_KIND: Final = "_lamella_kind"


def kind_of(e: Any) -> str:
    """Return the class of an expression; fetched from the JVM once per py4j object."""
    known = vars(e)
    found = known.get(_KIND)
    if found is None:
        found = known[_KIND] = str(e.getClass().getSimpleName())
    return str(found)


def _path(e: Any) -> list[str]:
    kind = kind_of(e)
    if kind == "AttributeReference":
        return [str(e.name())]
    if kind == "GetStructField":
        child = e.child()
        return [*_path(child), str(child.dataType().fieldNames()[e.ordinal()])]
    raise Inexpressible("not a comparison of a column with a constant")


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
#: Predicates that may be null and are not columns.
_CONDITIONS: Final = frozenset({"And", "Or", "Not", "In", "InSet", "StartsWith", "Like", *_COMPARISONS})
#: Characters with a meaning in a LIKE pattern.
_SPECIAL: Final = re.compile(r"[%_\\]")
_EXPRESSION_ID: Final = re.compile(r"#\d+L?")
# Two control characters that values hardly contain; the number of values is checked afterwards.
_SEPARATOR: Final = "\x1f\x1e"


class FilterWalker:
    """Translates expressions over one table to filter trees.

    ``max_nodes`` and ``max_depth`` limit one tree, ``max_values`` one list: anything larger becomes unknown instead of
    causing a request that the service refuses. ``time_zone`` is the session's; without it, parts that depend on a time
    zone are not expressed.
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
        """The time zone to send with these trees."""
        return self._time_zone or "UTC" if self._terms.zone_used else "UTC"

    def conjunction(self, filters: Any) -> dict[str, Any]:
        """Return the tree of a Scala ``Seq`` of conjuncts."""
        children = [self.tree(filters.apply(at)) for at in range(filters.size())]
        if not children:
            return TRUE
        return children[0] if len(children) == 1 else {"type": "and", "children": children}

    def tree(self, expression: Any, depth: int = 1) -> dict[str, Any]:
        """Return the tree of one expression."""
        self._left -= 1
        if self._left < 0 or depth > self._max_depth:
            return unknown(_text(expression), "the filter has too many parts or levels")
        kind = kind_of(expression)
        if kind in ("And", "Or"):
            # Long chains are nested on the left side: flattened, they use neither recursion here nor depth in the
            # service.
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
        if kind in ("Contains", "EndsWith"):  # used only for its nulls
            term, dtype = self._side(e.left())
            text = _SPECIAL.sub(r"\\\g<0>", self._text(dtype, e.right())["value"])
            pattern = f"%{text}%" if kind == "Contains" else f"%{text}"
            return {"type": "like", "term": term, "value": typed_literal("string", pattern)}
        if kind == "Literal":
            if e.value() is None:
                raise Inexpressible("a constant null")
            return TRUE if e.value() else FALSE
        term, dtype = self._side(e)
        return {"type": "eq", "term": term, "value": literal(dtype, "boolean", True)}

    def _side(self, e: Any) -> tuple[TermTree, DataType]:
        """Return a term, and the type of constants compared with it: a column's own type, otherwise Spark's."""
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
            raise Inexpressible("a list of binary values")  # their text is only an address
        parts = values.mkString(_SEPARATOR).split(_SEPARATOR)  # one call for all of them
        if len(parts) != count:
            raise Inexpressible("a value that contains the separator")
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


def order_of(schema: Schema, orders: Any) -> tuple[OrderBy, ...]:
    """Return the order of a Java array of ``SortOrder``; empty when its first part is not a column.

    Later parts only break ties, so a later part that is not a column is replaced by the first column: only its
    existence matters.
    """
    found: list[OrderBy] = []
    for order in orders:
        expression = order.expression()
        try:
            if expression.getClass().getSimpleName() != "FieldReference":
                raise Inexpressible("not a column")
            column = find_leaf(schema, [str(part) for part in expression.fieldNames()]).name
        except Inexpressible:
            if not found:
                return ()
            found.append(found[0])
            continue
        found.append(
            OrderBy(
                column=column,
                descending=str(order.direction().name()) == "DESCENDING",
                nulls_first=str(order.nullOrdering().name()) == "NULLS_FIRST",
            )
        )
    return tuple(found)
