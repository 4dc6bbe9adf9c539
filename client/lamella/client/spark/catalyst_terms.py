"""Catalyst's functions, casts and arithmetic as terms of Lamella's language.

Spark has typed every part by then and written its implicit casts out, so constants keep their types here. What needs
the session's time zone says so by ``zone_used``: the service has to be told the zone. A part in another time zone (a
view may have been made in one) has no counterpart.
"""

from __future__ import annotations

from typing import Any, Final

from lamella.client.spark.literal import Inexpressible, literal
from lamella.snapshot.errors import InvalidSchema, UnknownColumn
from lamella.snapshot.expression import moments
from lamella.snapshot.schema import DataType, Leaf, Schema, parse_type, quoted_path

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
#: The classes of expressions that are columns, or fields of structs.
COLUMNS: Final = ("AttributeReference", "GetStructField")
#: Spark's types that terms may have; a string with a collation is another type.
_TYPES: Final = _TIMES | {"boolean", "float", "double", "string", "binary", *_INTEGERS}


class TermWalker:
    """Turns expressions over one table into terms; ``time_zone`` is the session's."""

    def __init__(self, schema: Schema, time_zone: str | None) -> None:
        self._schema = schema
        self._time_zone = time_zone
        #: True when a term so far means something else in another time zone.
        self.zone_used = False

    def term(self, e: Any, depth: int = 1) -> TermTree:
        """The term of an expression that is no constant.

        Raises:
            Inexpressible: it has no exact counterpart.
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
        """The column of an expression that is one."""
        return find_leaf(self._schema, _path(e))

    def constant(self, e: Any, dtype: DataType) -> dict[str, Any]:
        """A constant of that type."""
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
        """True for a part of a time without zone, which Spark reads as UTC."""
        children = e.children()
        return any(str(children.apply(at).dataType().typeName()) == "timestamp_ntz" for at in range(children.size()))

    def _in_zone(self, e: Any) -> None:
        given = e.timeZoneId()
        name = str(given.get()) if given.isDefined() else None
        if name is None or name != self._time_zone or moments.zone(name) is None:
            raise Inexpressible(f"time zone {name} is not the session's")
        self.zone_used = True


def dtype_of(e: Any) -> DataType:
    """The type of an expression."""
    return dtype_named(str(e.dataType().typeName()))


def dtype_named(name: str) -> DataType:
    """The type that Spark's JSON calls so; raises Inexpressible for one that terms do not have."""
    if name not in _TYPES and not name.startswith("decimal("):
        raise Inexpressible(f"values of type {name}")
    try:
        return parse_type(_INTEGERS.get(name, name))
    except InvalidSchema as error:
        raise Inexpressible(f"values of type {name}") from error


def _name(e: Any) -> str:
    """The type of an expression as SQL spells it."""
    return sql_type_name(str(e.dataType().typeName()))


def sql_type_name(name: str) -> str:
    """What Spark's JSON calls so, as SQL spells it."""
    return _INTEGERS.get(name, name)


def find_leaf(schema: Schema, path: list[str]) -> Leaf:
    """The leaf at exactly that path, without regard to case.

    Raises:
        Inexpressible: none, a nested column, one below a list or map, or a name that another column shares.
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


#: Where py4j's stand-in for an expression carries its class, which never changes.
_KIND: Final = "_lamella_kind"


def kind_of(e: Any) -> str:
    """The class of an expression; asked of the JVM once for each object that py4j gave us."""
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
