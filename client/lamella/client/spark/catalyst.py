"""Catalyst expressions (predicates, functions, casts, arithmetic, sort orders) translated to Lamella's language.

The translation reads the live objects instead of ``toJSON``, which loses the values of an ``IN`` with more than ten of
them and writes timestamps as local time without a zone, which is ambiguous when clocks go back. A part without an exact
counterpart becomes an ``unknown`` node, which keeps every block and is reported; the other conjuncts still prune.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from lamella.client.spark.literal import FALSE, NULL, TRUE, Inexpressible, literal, typed_literal, unknown
from lamella.snapshot.errors import InvalidSchema, UnknownColumn
from lamella.snapshot.expression import spark_casts
from lamella.snapshot.expression.nodes import MAX_WRITTEN_OUT
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
    **{"Floor": "floor", "Ceil": "ceil", "Round": "round", "BRound": "bround", "IntegralDivide": "div"},
    **{"Remainder": "mod", "Pmod": "pmod", "Greatest": "greatest", "Least": "least"},
    **{"ShiftLeft": "shiftleft", "ShiftRight": "shiftright", "ShiftRightUnsigned": "shiftrightunsigned"},
    **{"WeekDay": "weekday", "WeekOfYear": "weekofyear", "YearOfWeek": "yearofweek"},
    **{
        "UnixDate": "unix_date",
        "UnixSeconds": "unix_seconds",
        "UnixMillis": "unix_millis",
        "UnixMicros": "unix_micros",
    },
    **{"Concat": "concat", "StringTrim": "trim", "StringTrimLeft": "ltrim", "StringTrimRight": "rtrim"},
    **{"DateFormatClass": "date_format", "UnixTimestamp": "unix_timestamp"},
    "GetJsonObject": "get_json_object",
}
_IN_A_ZONE: Final = frozenset({"Hour", "Minute", "Second", "TruncTimestamp", "DateFormatClass", "UnixTimestamp"})
#: Functions with one argument here, and more in some calls of Spark's.
_ONE_ARGUMENT: Final = frozenset({"StringTrim", "StringTrimLeft", "StringTrimRight"})
#: A date or time and an interval, and the unit of the interval's value: months, or microseconds.
_WITH_INTERVAL: Final = {
    **{"DateAddYMInterval": "MONTH", "TimestampAddYMInterval": "MONTH"},
    **{"TimestampAddInterval": "MICROSECOND", "TimeAdd": "MICROSECOND"},  # the second: until Spark 4.0
}
#: The function by which Spark pads what it reads of a column of type ``CHAR(n)``.
_PADDING: Final = "readSidePadding"
#: The metadata of a field that Spark's optimizer has put in place of a path of a variant.
_VARIANT_METADATA: Final = "__VARIANT_METADATA_KEY"
_DAY_US: Final = 86_400_000_000
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_INTEGERS: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_MAX_DEPTH: Final = 40
#: Expression classes of columns and fields of structs.
COLUMNS: Final = ("AttributeReference", "GetStructField")
#: Spark types that terms may have; a string with a collation is a different type.
_TYPES: Final = _TIMES | {"boolean", "float", "double", "string", "binary", *_INTEGERS}


class TermWalker:
    """Translates expressions over one table to terms; ``time_zone`` is the session's. ``condition`` translates the
    conditions of a CASE, at a depth."""

    def __init__(
        self,
        schema: Schema,
        time_zone: str | None,
        condition: Callable[[Any, int], dict[str, Any]],
        value_of_subquery: Callable[[Any], ConstantExpression] | None = None,
    ) -> None:
        self._schema = schema
        self._time_zone = time_zone
        self._condition = condition
        self._value_of_subquery = value_of_subquery
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
            return self.pushed_field(e) or find_leaf(self._schema, _path(e)).reference
        if name == "Cast":
            return self._cast(e, depth)
        if name in ("StaticInvoke", "StringRPad"):
            return self._padded(e, name)
        if name == "VariantGet":
            return self._variant_get(e, e.dataType())
        if name in ("If", "CaseWhen"):
            return self._case(e, depth)
        if name in _WITH_INTERVAL:
            return self._with_interval(e, _WITH_INTERVAL[name], depth)
        if name == "TimestampAdd":
            return self._timestamp_add(e, depth)
        if name == "TimestampDiff":
            return self._timestamp_diff(e, str(e.unit()).upper(), children_of(e), depth)
        if name == "SubtractDates":
            return self._days_between(e, depth)
        if name == "SubtractTimestamps":
            end, start = children_of(e)
            if self._is_wall(e):
                raise Inexpressible("a difference of times without zone")
            return self._timestamp_diff(e, "MICROSECOND", [start, end], depth)
        if name not in _FUNCTIONS:
            raise Inexpressible(f"function {name} is not used")
        dtype_of(e)
        if name in _IN_A_ZONE and not self._is_wall(e):
            self._in_zone(e)
        children = children_of(e)
        if name in ("DateFormatClass", "UnixTimestamp"):
            children = _of_a_time(name, children)
        if name in _ONE_ARGUMENT and len(children) > 1:
            raise Inexpressible("only blanks are trimmed")
        return apply(_FUNCTIONS[name], *(self._argument(child, depth + 1) for child in children))

    def _padded(self, e: Any, name: str) -> TermTree:
        """Return a column of type ``char(n)`` that Spark pads to this length: its values are stored like that."""
        if name == "StaticInvoke" and str(e.functionName()) != _PADDING:
            raise Inexpressible(f"function {e.functionName()} is not used")
        column, count, *padding = children_of(e)
        if kind_of(column) not in COLUMNS or kind_of(count) != "Literal" or any(map(_is_no_blank, padding)):
            raise Inexpressible(f"function {name} is not used")
        leaf = find_leaf(self._schema, _path(column))
        length = self._schema.text_lengths.get(leaf.id)
        if length is None or not length.is_padded or int(count.value()) != length.max_chars:
            raise Inexpressible("padded text")
        return leaf.reference

    def _cast_variant(self, e: Any, dtype: Any) -> dict[str, Any]:
        made = self._variant_get(e, dtype) if kind_of(e) == "VariantGet" else self.pushed_field(e, dtype)
        if made is None:
            raise Inexpressible("a cast of a variant as a whole")
        return made

    def pushed_field(self, e: Any, dtype: Any = None) -> dict[str, Any] | None:
        """Return the value at a path of a variant that Spark reads as a column of its own: it replaces the variant by a
        struct of such fields, whose metadata names the paths. ``dtype``: the type that the field is cast to."""
        if kind_of(e) != "GetStructField":
            return None
        child = e.child().dataType()
        if str(child.typeName()) != "struct":
            return None
        field = child.apply(e.ordinal())
        if not field.metadata().contains(_VARIANT_METADATA):
            return None
        requested = field.metadata().getMetadata(_VARIANT_METADATA)
        if not requested.contains("path"):
            raise Inexpressible("whether a cast of a variant fails")
        path = str(requested.getString("path"))
        wanted = field.dataType() if dtype is None else dtype
        return variant_get(self._schema, _path(e.child()), path, str(wanted.typeName()))

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
            value = str(value)
        return literal(dtype, spark_type, value)

    def _case(self, e: Any, depth: int) -> dict[str, Any]:
        dtype_of(e)
        branches, otherwise = branches_of(e)
        listed = [
            {"condition": self._condition(condition, depth), "value": self._argument(value, depth + 1)}
            for condition, value in branches
        ]
        rest = NULL if otherwise is None else self._argument(otherwise, depth + 1)
        return {"type": "case", "branches": listed, "otherwise": rest}

    def _with_interval(self, e: Any, unit: str, depth: int) -> dict[str, Any]:
        start, interval = children_of(e)
        if not is_interval(interval):
            raise Inexpressible("an interval that is not constant, or has both months and days")
        if dtype_of(e).name == "timestamp":
            self._in_zone(e)
        count = typed_literal("long", int(interval.value()))
        return apply("add_interval", self._argument(start, depth + 1), typed_literal("string", unit), count)

    def _timestamp_add(self, e: Any, depth: int) -> dict[str, Any]:
        count, start = children_of(e)
        if kind_of(count) != "Literal" or count.value() is None:
            raise Inexpressible("an interval that is not constant")
        if dtype_of(e).name == "timestamp":
            self._in_zone(e)
        unit, number = typed_literal("string", str(e.unit())), typed_literal("long", int(count.value()))
        return apply("timestampadd", unit, number, self._argument(start, depth + 1))

    def _timestamp_diff(self, e: Any, unit: str, times: Sequence[Any], depth: int) -> dict[str, Any]:
        self._in_zone(e)
        return apply("timestampdiff", typed_literal("string", unit), *(self._argument(at, depth + 1) for at in times))

    def _days_between(self, e: Any, depth: int) -> dict[str, Any]:
        """Return the microseconds of the interval between two dates."""
        days = apply("datediff", *(self._argument(child, depth + 2) for child in children_of(e)))
        day = {"type": "cast", "term": typed_literal("long", _DAY_US), "to": "bigint"}
        return apply("multiply", {"type": "cast", "term": days, "to": "bigint"}, day)

    def value(self, e: Any) -> Any:
        """Return an expression, or the value of a scalar subquery that is known.

        Spark merges similar subqueries into one whose value is a struct.
        """
        if self._value_of_subquery is None:
            return e
        kind = kind_of(e)
        if kind == "ScalarSubquery":
            return self._value_of_subquery(e)
        if kind == "GetStructField" and kind_of(e.child()) == "ScalarSubquery":
            struct, dtype = self._value_of_subquery(e.child()).value(), e.dataType()
            return ConstantExpression(None if struct is None else struct.get(e.ordinal(), dtype), dtype)
        return e

    def _argument(self, e: Any, depth: int) -> TermTree:
        e = self.value(e)
        if kind_of(e) != "Literal":
            return self.term(e, depth)
        dtype = dtype_of(e)
        made = self.constant(e, dtype)
        if made["value"] is not None and (dtype.is_integer or dtype.name == "decimal"):
            return {"type": "cast", "term": made, "to": _name(e)}
        return made

    def _variant_get(self, e: Any, dtype: Any) -> dict[str, Any]:
        """Return the value at a path of a variant as a type, which may be that of a cast of a variant."""
        variant, path = children_of(e)
        if kind_of(path) != "Literal" or path.value() is None:
            raise Inexpressible("a path that is not constant")
        return variant_get(self._schema, _path(variant), str(path.value()), str(dtype.typeName()))

    def _cast(self, e: Any, depth: int) -> dict[str, Any]:
        if str(e.child().dataType().typeName()) == "variant":
            return self._cast_variant(e.child(), e.dataType())
        source, target = dtype_of(e.child()), dtype_of(e)
        names = (source.name, target.name)
        between_times = source.name in _TIMES and target.name in _TIMES
        if (between_times and "timestamp" in names) or names == ("timestamp", "string"):
            self._in_zone(e)
        return {"type": "cast", "term": self.term(e.child(), depth + 1), "to": _name(e)}

    def _is_wall(self, e: Any) -> bool:
        """Whether the expression is a part of a time without zone, which Spark evaluates as UTC."""
        return any(str(child.dataType().typeName()) == "timestamp_ntz" for child in children_of(e))

    def _in_zone(self, e: Any) -> None:
        given = e.timeZoneId()
        name = str(given.get()) if given.isDefined() else None
        if name is None or name != self._time_zone or spark_casts.zone(name) is None:
            raise Inexpressible(f"time zone {name} is not the session's")
        self.zone_used = True


def variant_get(schema: Schema, column: list[str], path: str, type_name: str) -> dict[str, Any]:
    """Return the value at a path of a variant, as a type named as in Spark's JSON; raises Inexpressible."""
    leaf = find_leaf(schema, column)
    dtype_named(type_name)
    arguments = (typed_literal("string", path), typed_literal("string", sql_type_name(type_name)))
    return apply("variant_get", leaf.reference, *arguments)


def apply(function: str, *arguments: TermTree) -> dict[str, Any]:
    """Return the tree of a function."""
    return {"type": "apply", "function": function, "arguments": list(arguments)}


def children_of(e: Any) -> list[Any]:
    """Return the children of an expression."""
    children = e.children()
    return [children.apply(at) for at in range(children.size())]


def is_interval(e: Any) -> bool:
    """Return whether an expression is a constant interval of years and months, or of days and less; those of
    ``make_interval`` may have all of them."""
    return kind_of(e) == "Literal" and str(e.dataType().typeName()).startswith("interval ") and e.value() is not None


def branches_of(e: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """Return the conditions and values of ``If`` or ``CaseWhen``, and what else it is (None: null)."""
    children = children_of(e)
    pairs = list(zip(children[::2], children[1::2], strict=False))
    return pairs, children[-1] if len(children) % 2 else None


def _is_no_blank(e: Any) -> bool:
    return kind_of(e) != "Literal" or str(e.value()) != " "


def _of_a_time(name: str, children: list[Any]) -> list[Any]:
    """Return the arguments of a function of a time, which Spark also calls with a date that it casts, or with text."""
    start = children[0]
    if name == "DateFormatClass":
        of_date = kind_of(start) == "Cast" and str(start.child().dataType().typeName()) == "date"
        return [start.child() if of_date else start, children[1]]
    if dtype_of(start).name not in _TIMES:
        raise Inexpressible("text that is parsed as a time")
    return [start]


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
KIND: Final = "_lamella_kind"


def kind_of(e: Any) -> str:
    """Return the class of an expression; fetched from the JVM once per py4j object."""
    known = vars(e)
    found = known.get(KIND)
    if found is None:
        found = known[KIND] = str(e.getClass().getSimpleName())
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
_CONDITIONS: Final = frozenset(
    {"And", "Or", "Not", "In", "InSet", "StartsWith", "EndsWith", "Contains", "Like", "RLike", *_COMPARISONS}
)
#: Characters with a meaning in a LIKE pattern.
_SPECIAL: Final = re.compile(r"[%_\\]")
#: Each branch repeats the conditions of those before it.
_MAX_BRANCHES: Final = 20
_EXPRESSION_ID: Final = re.compile(r"#\d+L?")
# Two control characters that values hardly contain; the number of values is checked afterwards.
_SEPARATOR: Final = "\x1f\x1e"


class FilterWalker:
    """Translates expressions over one table to filter trees.

    ``max_nodes`` and ``max_depth`` limit one tree, ``max_values`` one list: anything larger becomes unknown instead of
    causing a request that the service refuses. ``time_zone`` is the session's; without it, parts that depend on a time
    zone are not expressed. ``value_of_subquery`` returns the value of a scalar subquery, where these are known.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        time_zone: str | None = None,
        max_nodes: int = 2_000,
        max_depth: int = 50,
        max_values: int = 100_000,
        value_of_subquery: Callable[[Any], ConstantExpression] | None = None,
    ) -> None:
        self._terms = TermWalker(schema, time_zone, self.tree, value_of_subquery)
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
        if kind in ("IsNull", "IsNotNull") and is_condition(expression.child()):
            test = {"type": "is-unknown", "child": self.tree(expression.child(), depth + 1)}
            return test if kind == "IsNull" else {"type": "not", "child": test}
        try:
            return self._predicate(kind, expression, depth)
        except Inexpressible as reason:
            return unknown(_text(expression), str(reason))

    def _case(self, e: Any, depth: int) -> dict[str, Any]:
        """Return a CASE of conditions: for each row exactly one of its parts is reached."""
        branches, otherwise = branches_of(e)
        if len(branches) > _MAX_BRANCHES:
            raise Inexpressible(f"a CASE of more than {_MAX_BRANCHES} branches")
        reached: list[dict[str, Any]] = []
        parts: list[dict[str, Any]] = []
        for condition, result in branches:
            met = is_true(self.tree(condition, depth + 2))
            parts.append(_all(*reached, met, self.tree(result, depth + 2)))
            reached.append(_not(met))
        rest = {"type": "null"} if otherwise is None else self.tree(otherwise, depth + 2)
        return _small(_any(*parts, _all(*reached, rest)))

    def _conditions(self, operator: str, left: Any, right: Any, depth: int) -> dict[str, Any]:
        """Return ``(a > 1) = (b > 1)``, and the null-safe form."""
        one, other = self.tree(left, depth + 2), self.tree(right, depth + 2)
        same = _any(_all(one, other), _all(_not(one), _not(other)))
        if operator == "eq":
            return _small(same)
        unknowns = ({"type": "is-unknown", "child": each} for each in (one, other))
        return _small(_any(is_true(same), _all(*unknowns)))

    def _rows(self, operator: str, left: Any, right: Any) -> dict[str, Any]:
        """Return a comparison of structs: field by field, where null equals null and is less than any value.

        A struct column may itself be null: then only what is certain for the others remains.
        """
        pairs = list(zip(_fields(left), _fields(right), strict=True))
        if operator in ("gt", "gt-eq"):
            pairs = [(other, one) for one, other in pairs]
        equal = [self._comparison("eq-null-safe", one, other) for one, other in pairs]
        if operator in ("eq", "eq-null-safe"):
            made = _all(*equal)
        else:
            parts: list[dict[str, Any]] = []
            for at, (one, other) in enumerate(pairs):
                less = _any(
                    is_true(self._comparison("lt", one, other)), _all(self._is_null(one), _not(self._is_null(other)))
                )
                parts.append(_all(*equal[:at], less))
            made = _any(*parts, _all(*equal)) if operator.endswith("-eq") else _any(*parts)
        if any(kind_of(side) in COLUMNS for side in (left, right)):
            return _all(made, unknown("a struct that is not null", "whether a struct is null is not known"))
        return made

    def _is_null(self, e: Any) -> dict[str, Any]:
        if kind_of(e) == "Literal":
            return TRUE if e.value() is None else FALSE
        return {"type": "is-null", "term": self._terms.term(e)}

    def _predicate(self, kind: str, e: Any, depth: int) -> dict[str, Any]:
        if kind in ("If", "CaseWhen"):
            return self._case(e, depth)
        if kind in _COMPARISONS:
            operator = _COMPARISONS[kind]
            if _is_struct(e.left()):
                return self._rows(operator, e.left(), e.right())
            if operator in ("eq", "eq-null-safe") and (is_condition(e.left()) or is_condition(e.right())):
                return self._conditions(operator, e.left(), e.right(), depth)
            return self._comparison(operator, e.left(), e.right())
        if kind == "In" and _is_struct(e.value()):
            listed = e.list()
            return _any(*(self._rows("eq", e.value(), listed.apply(at)) for at in range(listed.size())))
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
        if kind == "RLike":
            term, dtype = self._side(e.left())
            return {"type": "rlike", "term": term, "value": self._text(dtype, e.right())}
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
            pushed = self._terms.pushed_field(e)
            if pushed is not None:
                return pushed, dtype_of(e)
            leaf = self._terms.leaf(e)
            return leaf.reference, leaf.dtype
        return self._terms.term(e), dtype_of(e)

    def _comparison(self, operator: str, left: Any, right: Any) -> dict[str, Any]:
        left, right = self._terms.value(left), self._terms.value(right)
        if kind_of(left) == "Literal":
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        if kind_of(left) in ("SubtractDates", "SubtractTimestamps") and is_interval(right):
            micros = typed_literal("long", int(right.value()))
            return {"type": operator, "term": self._terms.term(left), "value": micros}
        if kind_of(left) == "Literal":
            raise Inexpressible("a comparison of constants")
        term, dtype = self._side(left)
        if kind_of(right) == "Literal":
            value = self._terms.constant(right, dtype)
            return (
                {"type": "null"}
                if value == NULL and operator != "eq-null-safe"
                else {
                    "type": operator,
                    "term": term,
                    "value": value,
                }
            )
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


def is_condition(e: Any) -> bool:
    """Return whether an expression is a predicate that may be null, and not a column or a constant."""
    kind = kind_of(e)
    if kind in ("If", "CaseWhen"):
        return str(e.dataType().typeName()) == "boolean"
    return kind in _CONDITIONS


def is_true(child: dict[str, Any]) -> dict[str, Any]:
    """Return ``child IS TRUE``."""
    return {"type": "is-true", "child": child}


def _not(child: dict[str, Any]) -> dict[str, Any]:
    return {"type": "not", "child": child}


def _all(*children: dict[str, Any]) -> dict[str, Any]:
    return {"type": "and", "children": list(children)}


def _any(*children: dict[str, Any]) -> dict[str, Any]:
    return {"type": "or", "children": list(children)}


class ConstantExpression:
    """A constant of Spark's, with the methods of Catalyst's ``Literal`` that are used here."""

    def __init__(self, value: Any, dtype: Any) -> None:
        self.__dict__[KIND] = "Literal"
        self._value = value
        self._dtype = dtype

    def value(self) -> Any:
        return self._value

    def dataType(self) -> Any:
        return self._dtype


class _FieldReference:
    """A field of a struct column, with the methods of Catalyst's ``GetStructField`` that are used here."""

    def __init__(self, child: Any, ordinal: int, dtype: Any) -> None:
        self.__dict__[KIND] = "GetStructField"
        self._child = child
        self._ordinal = ordinal
        self._dtype = dtype

    def child(self) -> Any:
        return self._child

    def ordinal(self) -> int:
        return self._ordinal

    def dataType(self) -> Any:
        return self._dtype


def _small(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a tree that has some parts several times; raises Inexpressible if it is too large."""
    count, pending = 0, [tree]
    while pending:
        node = pending.pop()
        count += 1
        if count > MAX_WRITTEN_OUT:
            raise Inexpressible("too many parts, which depend on each other")
        pending += node.get("children", [node["child"]] if "child" in node else [])
    return tree


def _is_struct(e: Any) -> bool:
    return str(e.dataType().typeName()) == "struct"


def _fields(e: Any) -> list[Any]:
    """Return the fields of a struct, as expressions."""
    kind = kind_of(e)
    if kind == "CreateNamedStruct":
        return children_of(e)[1::2]
    if kind == "Literal" and e.value() is not None:
        row, types = e.value(), [field.dataType() for field in e.dataType().fields()]
        return [ConstantExpression(row.get(at, dtype), dtype) for at, dtype in enumerate(types)]
    if kind in COLUMNS:
        return [_FieldReference(e, at, field.dataType()) for at, field in enumerate(e.dataType().fields())]
    raise Inexpressible("a struct that is neither a constant nor made of columns")


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
