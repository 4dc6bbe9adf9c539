"""Expressions of Polars (``pl.col("a") > 4``) as JSON filters.

An expression is read from the JSON that Polars writes of it (``expr.meta.serialize``). It holds no types of columns, so
only what has the same meaning for every type is translated, and everything else is refused. Polars compares as Spark
does: NaN equals itself and is greater than all numbers. But its arithmetic wraps around on overflow, and it converts a
constant number to the type of the column.
"""

from __future__ import annotations

import json
import re
import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lamella.client.filters import trees
from lamella.client.filters.trees import Tree
from lamella.snapshot.errors import InvalidFilter

if TYPE_CHECKING:
    import polars as pl

COMPARISONS: Final = {
    "Lt": "lt",
    "LtEq": "lt-eq",
    "Gt": "gt",
    "GtEq": "gt-eq",
    "Eq": "eq",
    "NotEq": "not-eq",
    "EqValidity": "eq-null-safe",
    "NotEqValidity": "eq-null-safe",
}
CONNECTIVES: Final = {"And": "and", "LogicalAnd": "and", "Or": "or", "LogicalOr": "or"}
ENDS: Final = {
    "Both": ("gt-eq", "lt-eq"),
    "Left": ("gt-eq", "lt"),
    "Right": ("gt", "lt-eq"),
    "None": ("gt", "lt"),
}
#: Microseconds per unit of time.
_PER_UNIT: Final = {"Microseconds": 1, "Milliseconds": 1_000}
#: A regular expression that is the text itself.
_FIXED: Final = re.compile(r"[\w \-_,:;/@#%&='\"<>!~`]*")
_WHOLE: Final = ("Int8", "Int16", "Int32", "Int64", "Int128", "UInt8", "UInt16", "UInt32", "UInt64")


def tree_of_polars(expression: pl.Expr) -> Tree:
    """Return an expression of Polars as a JSON filter.

    Raises:
        InvalidFilter: a part has no exact translation; the error names it.
    """
    return condition_of(read_expression(expression))


def read_expression(expression: pl.Expr) -> Any:
    """Return an expression of Polars as a tree of what it consists of.

    Raises:
        InvalidFilter: Polars cannot write it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the form may change with the version; what is not known is refused
        try:
            text = expression.meta.serialize(format="json")
        except Exception as error:  # Polars has errors of several classes for what it cannot write
            raise InvalidFilter(f"Polars cannot write the expression as JSON: {error}") from error
    return json.loads(text)


def variant_of(node: Any) -> tuple[str, Any]:
    """Return the name of a node and its content."""
    if isinstance(node, str):
        return node, None
    if isinstance(node, dict) and len(node) == 1:
        ((name, content),) = node.items()
        return str(name), content
    raise _refused(trees.shown(node), "this version of Polars writes expressions in another form")


# Conditions.


def condition_of(node: Any) -> Tree:
    """Return a condition exactly; raises InvalidFilter, naming the part that cannot be translated."""
    kind, content = variant_of(node)
    match kind:
        case "Column":
            return trees.unary("truth", _term(node))
        case "Alias":
            return condition_of(content[0])
        case "Literal":
            value = variant_of(content)[1]
            if isinstance(value, dict) and isinstance(value.get("Boolean"), bool):
                return trees.TRUE if value["Boolean"] else trees.FALSE
            raise _refused(trees.shown(content), "it is neither true nor false")
        case "BinaryExpr":
            return _binary(content)
        case "Function":
            return _function(content)
        case _:
            raise _refused(kind, _REASONS.get(kind, _NOT_TRANSLATED))


def _binary(content: Mapping[str, Any]) -> Tree:
    operator = str(content["op"])
    if operator in CONNECTIVES:
        sides = operands_of(content, operator)
        return trees.joined(CONNECTIVES[operator], [condition_of(side) for side in sides])
    if operator not in COMPARISONS:
        raise _refused(operator, _REASONS.get(operator, _NOT_TRANSLATED))
    found = _comparison(COMPARISONS[operator], content["left"], content["right"])
    return trees.negated(found) if operator == "NotEqValidity" else found


def operands_of(content: Mapping[str, Any], operator: str) -> list[Any]:
    """Return the operands of a chain of one connective."""
    found: list[Any] = []
    waiting: list[Any] = [content["right"], content["left"]]
    while waiting:
        node = waiting.pop()
        kind, inner = variant_of(node)
        if kind == "BinaryExpr" and inner["op"] == operator:
            waiting += [inner["right"], inner["left"]]
        else:
            found.append(node)
    return found


def _comparison(kind: str, left: Any, right: Any) -> Tree:
    if _is_literal(left):
        if _is_literal(right):
            raise _refused("a comparison of two constants", "it has no column")
        left, right, kind = right, left, trees.MIRRORED[kind]
    term = _term(left)
    if not _is_literal(right):
        return trees.compare(kind, term, _other_column(right))
    if kind == "eq-null-safe" and _is_null(right):
        return trees.unary("is-null", term)
    value = literal_of(variant_of(right)[1])
    return trees.compare(kind, _in_micros(term, [value]), value)


def _in_micros(term: Tree, values: Sequence[Tree]) -> Tree:
    """Return a term that moments are compared with. Polars cuts off nanoseconds of a column before it compares, and
    Lamella does not: with an interval added, a filter on such a column is refused where it is evaluated."""
    if any(value["data-type"] in ("timestamp", "timestamp_ntz") for value in values):
        return trees.apply("timestampadd", trees.typed("string", "MICROSECOND"), trees.typed("long", 0), term)
    return term


def _other_column(node: Any) -> Tree:
    """Refuse columns on both sides: Polars compares some pairs of types with less precision than Spark."""
    raise _refused(
        f"a comparison with {trees.shown(node)}", "two columns are compared by rules of their types: use col() or SQL"
    )


def _is_literal(node: Any) -> bool:
    return isinstance(node, dict) and "Literal" in node


def _is_null(node: Any) -> bool:
    content = node["Literal"]
    return isinstance(content, dict) and content.get("Scalar") == {"Null": "Null"}


def _function(content: Mapping[str, Any]) -> Tree:
    inputs = content["input"]
    family, function = variant_of(content["function"])
    name, options = (
        variant_of(function) if function is not None and family.endswith(("Expr", "Boolean")) else (family, None)
    )
    made = _FUNCTIONS.get((family, name))
    if made is None:
        raise _refused(f"{family}.{name}" if name != family else name, _REASONS.get(name, _NOT_TRANSLATED))
    return made(inputs, options)


def _not(inputs: Sequence[Any], options: Any) -> Tree:
    del options
    return trees.negated(condition_of(inputs[0]))


def _all(inputs: Sequence[Any], options: Any) -> Tree:
    del options
    return trees.joined("and", [condition_of(each) for each in inputs])


def _any(inputs: Sequence[Any], options: Any) -> Tree:
    del options
    return trees.joined("or", [condition_of(each) for each in inputs])


def _is_null_test(inputs: Sequence[Any], options: Any) -> Tree:
    del options
    return trees.unary("is-null", _term(inputs[0]))


def _is_not_null(inputs: Sequence[Any], options: Any) -> Tree:
    del options
    return trees.unary("not-null", _term(inputs[0]))


def _is_nan(inputs: Sequence[Any], options: Any) -> Tree:
    del options
    return trees.compare("eq", _term(inputs[0]), trees.NAN)  # null of null, unlike Spark's isnan


def _is_not_nan(inputs: Sequence[Any], options: Any) -> Tree:
    del options
    return trees.compare("not-eq", _term(inputs[0]), trees.NAN)


def _between(inputs: Sequence[Any], options: Any) -> Tree:
    low, high = ENDS[options["closed"]]
    return trees.joined("and", [_comparison(low, inputs[0], inputs[1]), _comparison(high, inputs[0], inputs[2])])


def _in(inputs: Sequence[Any], options: Any) -> Tree:
    if options["nulls_equal"]:
        raise _refused(
            "is_in with nulls_equal", "its result for null differs within Polars: write x.is_in(...) | x.is_null()"
        )
    term, (kind, content) = _term(inputs[0]), variant_of(inputs[1])
    scalar = variant_of(content) if kind == "Literal" else ("", None)
    if scalar[0] == "Scalar":
        scalar = variant_of(scalar[1])
    if scalar[0] not in ("List", "Series"):
        raise _refused("is_in", "the list must be constant")
    found = _values(scalar[1])
    if pa.types.is_nested(found.type):
        found = found.combine_chunks().flatten() if scalar[0] == "List" else found
    values = [_value(each) for each in found if each.is_valid]
    # A null in the list matches nothing, and null is in no list: null, also for an empty list.
    if not values:
        return trees.compare("not-eq", term, term)
    return {"type": "in", "term": _in_micros(term, values), "values": values}


def _values(written: Any) -> pa.ChunkedArray:
    """Return a series as Polars writes it: the bytes of an Arrow stream of one column."""
    try:
        return pa.ipc.open_stream(bytes(written)).read_all().column(0)
    except (pa.ArrowException, ValueError, IndexError) as error:
        raise _refused("a list", "this version of Polars writes lists in another form") from error


def _value(scalar: pa.Scalar) -> Tree:
    kind = scalar.type
    if pa.types.is_dictionary(kind) or pa.types.is_duration(kind) or pa.types.is_nested(kind) or pa.types.is_time(kind):
        raise _refused(f"{kind} in a list", "filters have no constants of this type")
    if pa.types.is_timestamp(kind):
        zone = None if kind.tz is None else {"inner": kind.tz}
        unit = {"ns": "Nanoseconds", "us": "Microseconds", "ms": "Milliseconds"}[kind.unit]
        return _moment([scalar.value, unit, zone])
    return trees.term_constant(scalar.as_py())


def _starts(inputs: Sequence[Any], options: Any) -> Tree:
    del options
    return trees.text_test(_term(inputs[0]), _text(inputs[1]), "start")


def _ends(inputs: Sequence[Any], options: Any) -> Tree:
    del options
    return trees.text_test(_term(inputs[0]), _text(inputs[1]), "end")


def _contains(inputs: Sequence[Any], options: Any) -> Tree:
    text = _text(inputs[1])
    if not options["literal"] and not _FIXED.fullmatch(text):
        raise _refused("str.contains", "only fixed text is translated: pass literal=True, or use col().rlike()")
    return trees.text_test(_term(inputs[0]), text, "inside")


def _text(node: Any) -> str:
    kind, content = variant_of(node)
    found = variant_of(content)[1] if kind == "Literal" else None
    if not isinstance(found, dict) or not isinstance(found.get("String"), str):
        raise _refused("a test of text", "the text must be constant")
    return str(found["String"])


_FUNCTIONS: Final[dict[tuple[str, str], Callable[[Sequence[Any], Any], Tree]]] = {
    ("Boolean", "Not"): _not,
    ("Boolean", "AllHorizontal"): _all,
    ("Boolean", "AnyHorizontal"): _any,
    ("Boolean", "IsNull"): _is_null_test,
    ("Boolean", "IsNotNull"): _is_not_null,
    ("Boolean", "IsNan"): _is_nan,
    ("Boolean", "IsNotNan"): _is_not_nan,
    ("Boolean", "IsBetween"): _between,
    ("Boolean", "IsIn"): _in,
    ("StringExpr", "StartsWith"): _starts,
    ("StringExpr", "EndsWith"): _ends,
    ("StringExpr", "Contains"): _contains,
}
_NOT_TRANSLATED: Final = "it is not translated; use col() or SQL"
_REASONS: Final = {
    **dict.fromkeys(("Plus", "Minus", "Multiply", "Negate"), "arithmetic of Polars wraps around: use col()"),
    **dict.fromkeys(("TrueDivide", "FloorDivide", "Modulus"), "division differs by type: use col()"),
    "Xor": "filters have no exclusive or: write (a & ~b) | (~a & b)",
    "Cast": "casts of Polars and Spark differ by type: use col().cast()",
    **dict.fromkeys(("Agg", "Len", "Window", "Over", "Shift"), "a filter decides each row by itself"),
    "AnonymousFunction": "a Python function is not a filter",
    "Selector": "name one column",
}


# Terms and constants.


def _term(node: Any) -> Tree:
    kind, content = variant_of(node)
    if kind == "Alias":
        return _term(content[0])
    path = path_of(node)
    if path is not None:
        return trees.reference(path)
    if kind == "Function" and content["function"] == {"StringExpr": "LenChars"}:
        return trees.apply("length", _term(content["input"][0]))
    name = str(content["op"]) if kind == "BinaryExpr" else kind
    if kind == "Function":
        family, function = variant_of(content["function"])
        name = family if function is None else f"{family}.{variant_of(function)[0]}"
    raise _refused(name, _REASONS.get(name, _NOT_TRANSLATED))


def path_of(node: Any) -> tuple[str, ...] | None:
    """Return the names of a column, or of a field in a struct; None for another expression."""
    kind, content = variant_of(node)
    if kind == "Column":
        return (str(content),)
    if kind != "Function" or not isinstance(content["function"], dict):
        return None
    field = content["function"].get("StructExpr")
    if not isinstance(field, dict) or "FieldByName" not in field:
        return None
    outer = path_of(content["input"][0])
    return None if outer is None else (*outer, str(field["FieldByName"]))


def literal_of(content: Any) -> Tree:
    """Return a constant exactly; raises InvalidFilter if the grammar cannot hold it."""
    kind, inner = variant_of(content)
    if kind not in ("Dyn", "Scalar"):
        raise _refused(kind, "the other side of a comparison must be one constant")
    name, value = variant_of(inner)
    if name == "Null":
        raise _refused("null", "nothing is equal to null: use is_null()")
    if name in ("Int", *_WHOLE) and isinstance(value, int):
        return trees.term_constant(value)
    if name in ("Float", "Float64", "Float32"):
        return _float(value, is_typed=name == "Float64")
    match name:
        case "Boolean" | "String":
            return trees.term_constant(value)
        case "Binary":
            return trees.term_constant(bytes(value))
        case "Date":
            return trees.typed("date", value)
        case "Datetime":
            return _moment(value)
        case "Decimal":
            digits, _, scale = value
            return trees.term_constant(Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale)))
        case _:
            raise _refused(f"a constant of type {name}", "filters have no constants of this type")


def _float(value: Any, *, is_typed: bool) -> Tree:
    if value is None:
        raise _refused("NaN or infinity", "Polars writes both alike: use is_nan(), or col()")
    number = float(value)
    if not is_typed and _single(number) != number:
        raise _refused(
            f"the number {number!r}",
            f"in a Float32 column it is another number: write pl.lit({number!r}, pl.Float64), or use col()",
        )
    return trees.term_constant(number)


def _single(number: float) -> float | None:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return None


def _moment(value: Sequence[Any]) -> Tree:
    count, unit, zone = value
    if unit == "Nanoseconds":
        if count % 1_000:
            raise _refused("a constant of nanoseconds", "a filter holds microseconds")
        micros = count // 1_000
    else:
        micros = count * _PER_UNIT[unit]
    if micros % 1_000:
        raise _refused("a constant of microseconds", "Polars cuts them off for a column of milliseconds: use col()")
    return trees.typed("timestamp_ntz" if zone is None else "timestamp", micros)


def _refused(part: str, reason: str) -> InvalidFilter:
    return InvalidFilter(f"{part} of a Polars expression cannot be a filter: {reason}")
