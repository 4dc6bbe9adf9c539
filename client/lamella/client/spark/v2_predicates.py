"""Conditions of ``DELETE`` and of overwrites, as Spark's planner passes them, translated to filters that decide rows.

Spark passes them as connector predicates, which name functions by text and columns by path; implicit casts are explicit
and constants are typed. Each part is translated exactly or the whole is refused: a deletion cannot be filtered again
afterwards as a read can.

An ``IN`` may have thousands of constants. Reading them one by one takes some py4j calls each (16 s for 20,000), so they
are fetched in one call, as text (``Keys.java``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec

from lamella.client.spark.catalyst import TermTree, dtype_named, find_leaf, kind_of, sql_type_name
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.literal import FALSE, NULL, TRUE, Inexpressible, literal, typed_literal
from lamella.snapshot.errors import FilterNotEvaluable
from lamella.snapshot.expression import read_filter, spark_casts
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.schema.spark_types import spark_type_name

_COMPARISONS: Final = {
    **{"=": "eq", "<>": "not-eq", "<=>": "eq-null-safe"},
    **{"<": "lt", "<=": "lt-eq", ">": "gt", ">=": "gt-eq"},
}
_MIRRORED: Final = {"lt": "gt", "gt": "lt", "lt-eq": "gt-eq", "gt-eq": "lt-eq"}
_TESTS: Final = {"IS_NULL": "is-null", "IS_NOT_NULL": "not-null"}
_AFFIXES: Final = {"STARTS_WITH": "{}%", "ENDS_WITH": "%{}", "CONTAINS": "%{}%"}
_SPECIAL: Final = re.compile(r"[%_\\]")
_FUNCTIONS: Final = {
    **{"+": "add", "*": "multiply", "/": "divide", "ABS": "abs", "COALESCE": "coalesce"},
    **{"UPPER": "upper", "LOWER": "lower", "CHAR_LENGTH": "length", "SUBSTRING": "substring"},
    **{"DATE_ADD": "date_add", "DATE_DIFF": "datediff", "TRUNC": "trunc"},
}
_DATE_FIELDS: Final = {
    **{"YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "DAY": "day", "DAY_OF_YEAR": "dayofyear"},
}
_TIME_FIELDS: Final = {"HOUR": "hour", "MINUTE": "minute", "SECOND": "second"}
_MAX_DEPTH: Final = 40
#: Types whose values have an exact text.
_TEXT_IS_EXACT: Final = ("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "decimal", "boolean")
#: Shorter lists are read one by one.
_LONG_LIST: Final = 10
_ALL: Final = 2**31 - 1


def listed_type(dtype: DataType) -> str | None:
    """Return the type, in Spark's JSON, of constants that :func:`constants_of` can read for a column.

    None for floats (NaN, -0.0), binary, and types that Spark does not have.
    """
    if dtype.is_float or dtype.is_text:
        return "string" if dtype.is_text else None
    name = spark_type_name(dtype)
    return name if name is not None and name.partition("(")[0] in _TEXT_IS_EXACT else None


class Constants(msgspec.Struct, frozen=True, rename="camel"):
    """The constants of an ``IN``. ``type``: Spark's name; ``ranges``: one value, or the first and the last, as text."""

    type: str
    has_null: bool
    ranges: tuple[tuple[str, ...], ...]


def constants_of(
    gateway: Gateway,
    predicate: Any,
    spark_type: str,
    *,
    max_distinct: int = _ALL,
    max_listed: int = _ALL,
    max_ranges: int = 1,
) -> Constants:
    """Return the constants of an ``IN``, whose first child is a column; ``spark_type``: their type.

    All are listed by default. Of more than ``max_distinct`` distinct values only the range is returned; for more than
    ``max_listed``, at most ``max_ranges`` ranges that hold them.

    Raises:
        Inexpressible: there is something else in the list.
    """
    text = gateway.classes.keys.json(predicate, max_distinct, max_listed, max_ranges)
    found = None if text is None else msgspec.json.decode(str(text), type=Constants)
    if found is None or found.type != spark_type:
        raise Inexpressible("constants of another type than the column")
    return found


def filter_of(gateway: Gateway, schema: Schema, predicates: Iterable[Any]) -> dict[str, Any]:
    """Return the tree of predicates that must all be true; decidable for every row.

    Raises:
        FilterNotEvaluable: a part has no exact counterpart; the error names it.
    """
    time_zone = gateway.time_zone()
    walker = _Walker(gateway, schema, time_zone)
    children = []
    for predicate in predicates:
        text = str(predicate.toString())
        try:
            children.append(walker.tree(predicate))
        except Inexpressible as reason:
            raise FilterNotEvaluable(
                f"Lamella cannot decide {text} row by row: {reason}", predicate=text, reason=str(reason)
            ) from reason
    tree = {"type": "and", "children": children} if len(children) != 1 else children[0]
    if not children:
        tree = TRUE
    RowFilter(read_filter(tree, time_zone=time_zone), schema, time_zone=time_zone)
    return tree


class _Walker:
    def __init__(self, gateway: Gateway, schema: Schema, time_zone: str) -> None:
        self._gateway = gateway
        self._schema = schema
        self._time_zone = time_zone

    def tree(self, e: Any, depth: int = 1) -> dict[str, Any]:
        if depth > _MAX_DEPTH:
            raise Inexpressible("nested too deep")
        name, children = str(e.name()), e.children()
        if name == "IN":
            return {"type": "in", "term": self._term(children[0]), "values": self._listed(e, children)}
        children = list(children)
        if name in ("AND", "OR"):
            return {"type": name.lower(), "children": [self.tree(child, depth + 1) for child in children]}
        if name == "NOT":
            return {"type": "not", "child": self.tree(children[0], depth + 1)}
        if name in ("ALWAYS_TRUE", "ALWAYS_FALSE"):
            return TRUE if name == "ALWAYS_TRUE" else FALSE
        if name in _COMPARISONS:
            return self._comparison(_COMPARISONS[name], *children)
        if name in _TESTS:
            return {"type": _TESTS[name], "term": self._term(children[0])}
        if name in _AFFIXES:
            value = self._beside(children[1], children[0])
            if value["data-type"] != "string":
                raise Inexpressible("a part of something that is not text")
            pattern = _AFFIXES[name].format(_SPECIAL.sub(r"\\\g<0>", value["value"]))
            return {"type": "like", "term": self._term(children[0]), "value": typed_literal("string", pattern)}
        raise Inexpressible(f"{name} is not known")

    def _listed(self, predicate: Any, children: Any) -> list[dict[str, Any]]:
        """Return the constants of an ``IN``. Spark has cast them all to one type."""
        first, count = children[0], len(children)
        if count > _LONG_LIST and kind_of(first) == "FieldReference":
            dtype = find_leaf(self._schema, _path(first)).dtype
            spark_type = listed_type(dtype)
            if spark_type is not None and {_type_name(children[1]), _type_name(children[count - 1])} == {spark_type}:
                with suppress(Inexpressible):  # the next line says which constant it is
                    found = constants_of(self._gateway, predicate, spark_type)
                    nulls = [NULL] if found.has_null else []
                    return [*nulls, *(literal(dtype, spark_type, value) for value, *_ in found.ranges)]
        return [self._beside(children[at], first) for at in range(1, count)]

    def _comparison(self, operator: str, left: Any, right: Any) -> dict[str, Any]:
        if _is_literal(left):
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        if _is_literal(left):
            raise Inexpressible("a comparison of two constants")
        if _is_literal(right):
            return {"type": operator, "term": self._term(left), "value": self._beside(right, left)}
        other = self._term(right)
        value = {"type": "reference", "name": other} if isinstance(other, str) else other
        return {"type": operator, "term": self._term(left), "value": value}

    def _beside(self, constant: Any, term: Any) -> dict[str, Any]:
        """Return a constant that is compared with a term: of the column's type, otherwise its own."""
        if not _is_literal(constant):
            raise Inexpressible("not a constant")
        if kind_of(term) == "FieldReference":
            return _constant(constant, find_leaf(self._schema, _path(term)).dtype)
        return _constant(constant, dtype_named(_type_name(constant)))

    def _term(self, e: Any, depth: int = 1) -> TermTree:
        if depth > _MAX_DEPTH:
            raise Inexpressible("nested too deep")
        kind = kind_of(e)
        if kind == "FieldReference":
            return find_leaf(self._schema, _path(e)).name
        if kind == "Cast":
            return self._cast(e, depth)
        if kind == "Extract":
            return self._extract(e, depth)
        if kind != "GeneralScalarExpression":
            raise Inexpressible(f"{e.toString()} is not known")
        name, children = str(e.name()), list(e.children())
        function = _FUNCTIONS.get(name)
        if name == "-":
            function = "subtract" if len(children) == 2 else "negative"
        if function is None:
            raise Inexpressible(f"function {name} is not known")
        return _apply(function, [self._argument(child, depth + 1) for child in children])

    def _argument(self, e: Any, depth: int) -> TermTree:
        if not _is_literal(e):
            return self._term(e, depth)
        name = _type_name(e)
        dtype = dtype_named(name)
        made = _constant(e, dtype)
        if made["value"] is not None and (dtype.is_integer or dtype.name == "decimal"):
            return {"type": "cast", "term": made, "to": sql_type_name(name)}
        return made

    def _cast(self, e: Any, depth: int) -> dict[str, Any]:
        given = e.expressionDataType()
        source = None if given is None else dtype_named(str(given.typeName()))
        target = str(e.dataType().typeName())
        if source is None:
            raise Inexpressible(f"{e.toString()}: a cast from an unknown type")
        if "timestamp" in (source.name, dtype_named(target).name) and source.name != target:
            self._need_zone()
        return {"type": "cast", "term": self._term(e.expression(), depth + 1), "to": sql_type_name(target)}

    def _extract(self, e: Any, depth: int) -> dict[str, Any]:
        field, source = str(e.field()), e.source()
        if field in _DATE_FIELDS:
            return _apply(_DATE_FIELDS[field], [self._term(source, depth + 1)])
        if field not in _TIME_FIELDS or kind_of(source) != "FieldReference":
            raise Inexpressible(f"{e.toString()} is not known")
        if find_leaf(self._schema, _path(source)).dtype.name == "timestamp":
            self._need_zone()
        return _apply(_TIME_FIELDS[field], [self._term(source, depth + 1)])

    def _need_zone(self) -> None:
        if spark_casts.zone(self._time_zone) is None:
            raise Inexpressible(f"time zone {self._time_zone} is not known")


def _apply(function: str, arguments: list[TermTree]) -> dict[str, Any]:
    return {"type": "apply", "function": function, "arguments": arguments}


def _is_literal(e: Any) -> bool:
    return kind_of(e) == "LiteralValue"


def _type_name(e: Any) -> str:
    return str(e.dataType().typeName())


def _constant(e: Any, dtype: DataType) -> dict[str, Any]:
    value, spark_type = e.value(), _type_name(e)
    if value is None:
        return NULL
    if spark_type == "string" or spark_type.startswith("decimal"):
        value = value.toString()
    return literal(dtype, spark_type, value)


def _path(e: Any) -> list[str]:
    return [str(part) for part in e.fieldNames()]
