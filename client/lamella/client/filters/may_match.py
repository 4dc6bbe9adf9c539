"""What a query engine's own condition says about which blocks it needs: a filter that is true of every row it wants.

The engine decides the rows by itself afterwards, so a part that cannot be translated is left out: more rows are read,
and none is lost. A part is never left out below a negation, and an alternative only with all of its alternatives.
Unlike :func:`lamella.client.filters.plain_filter`, the types of the columns are known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from lamella.client.filters import trees
from lamella.client.filters.arrow import COMPARISONS, Call, Constant, Field, Node
from lamella.client.filters.arrow import condition_of as arrow_condition
from lamella.client.filters.arrow import literal_of as arrow_literal
from lamella.client.filters.arrow import read_expression as read_arrow
from lamella.client.filters.polars import COMPARISONS as POLARS_COMPARISONS
from lamella.client.filters.polars import CONNECTIVES, ENDS, path_of, variant_of
from lamella.client.filters.polars import condition_of as polars_condition
from lamella.client.filters.polars import literal_of as polars_literal
from lamella.client.filters.polars import read_expression as read_polars
from lamella.client.filters.trees import Tree
from lamella.snapshot.errors import InvalidFilter

if TYPE_CHECKING:
    import polars as pl
    import pyarrow.compute as pc

#: A filter that every wanted row matches; None: nothing is known of them.
MayMatch = Tree | None

#: The comparison that is true where another is false.
_OPPOSITE: Final = {"lt": "gt-eq", "gt-eq": "lt", "gt": "lt-eq", "lt-eq": "gt", "eq": "not-eq", "not-eq": "eq"}


def every(parts: Iterable[MayMatch]) -> MayMatch:
    """Return what holds where all parts hold: unknown parts are left out."""
    known = [part for part in parts if part is not None]
    return trees.joined("and", known) if known else None


def some(parts: Iterable[MayMatch]) -> MayMatch:
    """Return what holds where one part holds: nothing is known if one is unknown."""
    known = list(parts)
    if any(part is None for part in known):
        return None
    possible = [part for part in known if part is not None and part != trees.FALSE]
    return trees.joined("or", possible) if possible else trees.FALSE


def conjuncts(tree: Tree) -> list[Tree]:
    """Return the conditions that all hold where a filter is true."""
    return list(tree["children"]) if tree["type"] == "and" else [tree]


def _exactly(made: Callable[[], Tree]) -> MayMatch:
    try:
        return made()
    except InvalidFilter:
        return None


def _type_at(schema: pa.Schema, path: Sequence[str]) -> pa.DataType | None:
    """Return the type of a column, or of a field in structs; None: there is none of this name, or several."""
    if not path or schema.get_field_index(path[0]) < 0:
        return None
    found = schema.field(path[0]).type
    for name in path[1:]:
        if not pa.types.is_struct(found) or found.get_field_index(name) < 0:
            return None
        found = found.field(name).type
    return found


def _bounded(call: Callable[[], MayMatch]) -> MayMatch:
    """Return the result; None for an expression that is nested too deep, or has constants that Python has not."""
    try:
        return call()
    except (InvalidFilter, RecursionError, OverflowError, ValueError):
        return None


# pyarrow


def of_arrow(expression: pc.Expression, schema: pa.Schema) -> MayMatch:
    """Return what is true of every row for which an expression is true in pyarrow; ``schema``: of its columns."""
    return _bounded(lambda: _Arrow(schema).true(read_arrow(expression)))


class _Arrow(msgspec.Struct, frozen=True):
    """Conditions of pyarrow over the columns of a schema."""

    schema: pa.Schema

    def true(self, node: Node) -> MayMatch:
        """Return what holds where a condition is true."""
        if isinstance(node, Constant) and not node.scalar.is_valid:
            return trees.FALSE
        if isinstance(node, Call):
            match node.function:
                case "and_kleene" | "and" | "and_":
                    return every(map(self.true, node.arguments))
                case "or_kleene" | "or" | "or_":
                    return some(map(self.true, node.arguments))
                case "invert":
                    return self.false(node.arguments[0])
                case "if_else":
                    return some(map(self.true, node.arguments[1:]))
                case "is_in":
                    return self._in(node)
                case name if name in COMPARISONS:
                    return self._comparison(node)
        return _exactly(lambda: arrow_condition(node))

    def false(self, node: Node) -> MayMatch:
        """Return what holds where a condition is false."""
        if isinstance(node, Call):
            match node.function:
                case "and_kleene" | "and" | "and_":
                    return some(map(self.false, node.arguments))
                case "or_kleene" | "or" | "or_":
                    return every(map(self.false, node.arguments))
                case "invert":
                    return self.true(node.arguments[0])
        return _exactly(lambda: trees.negated(arrow_condition(node)))

    def _comparison(self, node: Call) -> MayMatch:
        exact = _exactly(lambda: arrow_condition(node))
        if exact is not None:
            return exact
        kind = COMPARISONS[node.function]
        left, right = node.arguments
        if isinstance(left, Constant):
            left, right, kind = right, left, trees.MIRRORED[kind]
        if not (isinstance(left, Field) and isinstance(right, Constant)):
            return None
        if pa.types.is_floating(right.scalar.type) and right.scalar.is_valid and math.isnan(right.scalar.as_py()):
            return None  # in pyarrow NaN is unequal to itself, so all rows but null match !=
        # pyarrow compares with less precision where the types differ
        literal = _literal_of_type(right.scalar, _type_at(self.schema, left.path))
        return None if literal is None else trees.compare(kind, trees.reference(left.path), literal)

    def _in(self, node: Call) -> MayMatch:
        exact = _exactly(lambda: arrow_condition(node))
        if exact is not None:
            return exact
        found = _members(node)
        if found is None:
            return None
        field, scalars = found
        kind = _type_at(self.schema, field.path)
        literals = [_literal_of_type(scalar, kind) for scalar in scalars if scalar.is_valid]
        if any(literal is None for literal in literals):
            return None
        term = trees.reference(field.path)
        parts: list[MayMatch] = [{"type": "in", "term": term, "values": literals}] if literals else []
        if len(literals) < len(scalars):
            parts.append(trees.unary("is-null", term))
        return some(parts)


def _members(node: Call) -> tuple[Field, list[Any]] | None:
    """Return the column of ``isin`` and the members of its list."""
    field, listed = node.arguments[0], node.options.get("value_set")
    if not isinstance(field, Field) or listed is None:
        return None
    return field, list(listed.values) if isinstance(listed, pa.Scalar) else list(listed)


def _literal_of_type(scalar: Any, kind: pa.DataType | None) -> Tree | None:
    """Return a constant that has the type of its column exactly; None: it has another one, or a filter cannot hold
    it."""
    if kind is None or scalar.type != kind or not scalar.is_valid:
        return None
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return trees.term_constant(float(scalar.as_py()))
    return _exactly(lambda: arrow_literal(scalar))


# Conditions of other engines, written as expressions of pyarrow.


def of_any_float_order(condition: Node, schema: pa.Schema) -> MayMatch:
    """Return what is true of every row for which a condition is true, wherever an engine orders NaN and signed zeros.

    The condition is an expression of pyarrow, but of SQL's meaning: NOT IN is null for null. DataFusion orders NaN of
    negative sign below all numbers and NaN of positive sign above.
    """
    return _bounded(lambda: _AnyFloatOrder(schema).true(condition))


class _AnyFloatOrder(msgspec.Struct, frozen=True):
    """Conditions over the columns of a schema."""

    schema: pa.Schema

    def true(self, node: Node) -> MayMatch:
        """Return what holds where a condition is true."""
        return self._decided(node, wanted=True)

    def _decided(self, node: Node, *, wanted: bool) -> MayMatch:
        """Return what holds where a condition is true, or where it is false."""
        if isinstance(node, Field):
            truth = trees.unary("truth", trees.reference(node.path))
            return truth if wanted else trees.negated(truth)
        if isinstance(node, Constant):
            return _exactly(lambda: arrow_condition(node)) if wanted else None
        match node.function:
            case "and_kleene" | "and" | "and_" | "or_kleene" | "or" | "or_":
                parts = [self._decided(each, wanted=wanted) for each in node.arguments]
                return every(parts) if node.function.startswith("and") == wanted else some(parts)
            case "invert":
                return self._decided(node.arguments[0], wanted=not wanted)
            case "is_null" | "is_valid" if isinstance(node.arguments[0], Field):
                kind = "is-null" if (node.function == "is_null") == wanted else "not-null"
                return trees.unary(kind, trees.reference(node.arguments[0].path))
            case "is_in":
                return self._in(node, wanted=wanted)
            case name if name in COMPARISONS:
                return self._comparison(node, wanted=wanted)
        return None

    def _comparison(self, node: Call, *, wanted: bool) -> MayMatch:
        kind = COMPARISONS[node.function] if wanted else _OPPOSITE[COMPARISONS[node.function]]
        left, right = node.arguments
        if isinstance(left, Constant):
            left, right, kind = right, left, trees.MIRRORED[kind]
        if not (isinstance(left, Field) and isinstance(right, Constant)):
            return None
        of = _type_at(self.schema, left.path)
        term = trees.reference(left.path)
        literal = None if of is None else _comparable(right.scalar, of)
        if literal is None or of is None or not pa.types.is_floating(of):
            return None if literal is None else trees.compare(kind, term, literal)
        number = float(right.scalar.as_py())
        if math.isnan(number):
            return None
        if number == 0:  # -0.0 may be below 0.0
            kind = {"lt": "lt-eq", "gt": "gt-eq"}.get(kind, kind)
            if kind == "not-eq":
                return None
        found = trees.compare(kind, term, literal)
        return trees.joined("or", [found, trees.unary("is-nan", term)]) if kind in ("lt", "lt-eq") else found

    def _in(self, node: Call, *, wanted: bool) -> MayMatch:
        found = _members(node)
        if found is None:
            return None
        field, scalars = found
        kind = _type_at(self.schema, field.path)
        literals = [None if kind is None else _comparable(scalar, kind) for scalar in scalars]
        if not literals or any(literal is None for literal in literals):
            return None
        is_float = kind is not None and pa.types.is_floating(kind)
        if is_float and (not wanted or any(math.isnan(scalar.as_py()) for scalar in scalars)):
            return None
        term = trees.reference(field.path)
        tree: Tree = {"type": "in", "term": term, "values": literals}
        if wanted:
            return tree
        # null is in no list for some engines
        return trees.joined("or", [trees.negated(tree), trees.unary("is-null", term)])


#: Families of types in which a constant and a column are compared by their values.
_FAMILIES: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_integer,
    pa.types.is_decimal,
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
)
#: Integers up to this size are exact as 32-bit floats.
_EXACT_FLOAT: Final = 1 << 24


def _comparable(scalar: Any, kind: pa.DataType) -> Tree | None:
    """Return a constant that a column is compared with by its value, whichever of both types an engine converts."""
    if not scalar.is_valid:
        return None
    if scalar.type == kind:
        return _literal_of_type(scalar, kind)
    if any(family(scalar.type) and family(kind) for family in _FAMILIES):
        return _exactly(lambda: arrow_literal(scalar))
    if pa.types.is_floating(kind) and not pa.types.is_float16(kind):
        value = scalar.as_py()
        is_exact = (pa.types.is_integer(scalar.type) and abs(value) <= _EXACT_FLOAT) or (
            pa.types.is_floating(scalar.type) and float(np.float32(value)) == value
        )
        return trees.term_constant(float(value)) if is_exact else None
    return None


# Polars


def of_polars(expression: pl.Expr, schema: pa.Schema) -> MayMatch:
    """Return what is true of every row for which an expression is true in Polars.

    ``schema``: of the columns that Polars sees. The expression is one that its optimizer has given types.
    """
    return _bounded(lambda: _Polars(schema).true(read_polars(expression)))


class _Polars(msgspec.Struct, frozen=True):
    """Conditions of Polars over the columns of a schema."""

    schema: pa.Schema

    def true(self, node: Any) -> MayMatch:
        """Return what holds where a condition is true."""
        kind, content = variant_of(node)
        inputs: Sequence[Any] = ()
        if kind == "Alias":
            return self.true(content[0])
        if kind == "Literal" and _is_null(content):
            return trees.FALSE
        if kind == "Ternary":
            return some(map(self.true, (content["truthy"], content["falsy"])))
        if kind == "BinaryExpr":
            sides = (content["left"], content["right"])
            operator = str(content["op"])
            if operator in CONNECTIVES:
                return (every if CONNECTIVES[operator] == "and" else some)(map(self.true, sides))
            if operator in POLARS_COMPARISONS:
                return self._comparison(node, operator, *sides)
        name, options = _boolean_function(kind, content)
        inputs = content["input"] if name else inputs
        match name:
            case "Not":
                return self.false(inputs[0])
            case "AllHorizontal":
                return every(map(self.true, inputs))
            case "AnyHorizontal":
                return some(map(self.true, inputs))
            case "IsBetween":
                low, high = ENDS[options["closed"]]
                parts = [self._typed(low, inputs[0], inputs[1]), self._typed(high, inputs[0], inputs[2])]
                return _exactly(lambda: polars_condition(node)) or every(parts)
        return _exactly(lambda: polars_condition(node))

    def false(self, node: Any) -> MayMatch:
        """Return what holds where a condition is false."""
        kind, content = variant_of(node)
        if kind == "BinaryExpr":
            sides = (content["left"], content["right"])
            operator = str(content["op"])
            if operator in CONNECTIVES:
                return (some if CONNECTIVES[operator] == "and" else every)(map(self.false, sides))
            opposite = _OPPOSITE.get(POLARS_COMPARISONS.get(operator, ""))
            if opposite is not None:
                exact = _exactly(lambda: trees.negated(polars_condition(node)))
                return self._typed(opposite, *sides) if exact is None else exact
        if _boolean_function(kind, content)[0] == "Not":
            return self.true(content["input"][0])
        return _exactly(lambda: trees.negated(polars_condition(node)))

    def _comparison(self, node: Any, operator: str, left: Any, right: Any) -> MayMatch:
        kind = POLARS_COMPARISONS[operator]
        typed = self._typed(kind, left, right) if kind in _OPPOSITE else None
        return _exactly(lambda: polars_condition(node)) if typed is None else typed

    def _typed(self, kind: str, left: Any, right: Any) -> MayMatch:
        """Return a comparison of a column with a constant of its type."""
        if variant_of(left)[0] == "Literal":
            left, right, kind = right, left, trees.MIRRORED[kind]
        column, (side, content) = self._column(left), variant_of(right)
        if column is None or side != "Literal":
            return None
        path, of = column
        if _is_null(content):
            return trees.FALSE
        value = _polars_constant(content, of)
        return None if value is None else trees.compare(kind, trees.reference(path), value)

    def _column(self, node: Any) -> tuple[tuple[str, ...], pa.DataType] | None:
        """Return a column and the type that it is compared as: its own, or a number that it is cast to without a
        difference to how Spark compares."""
        path = path_of(node)
        if path is not None:
            of = _type_at(self.schema, path)
            return None if of is None else (path, of)
        kind, content = variant_of(node)
        if kind != "Cast":
            return None
        inner = self._column(content["expr"])
        target = _CASTS.get(str(content["dtype"].get("Literal")) if isinstance(content["dtype"], dict) else "")
        if inner is None or target is None:
            return None
        path, of = inner
        if pa.types.is_signed_integer(of) and (target == pa.float64() or _is_wider(target, of)):
            return path, target
        return (path, target) if pa.types.is_float32(of) and target == pa.float64() else None


#: Types of Polars that a column of numbers may be cast to before it is compared.
_CASTS: Final = {"Int16": pa.int16(), "Int32": pa.int32(), "Int64": pa.int64(), "Float64": pa.float64()}


def _is_wider(target: pa.DataType, of: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(target) and target.bit_width >= of.bit_width)


def _boolean_function(kind: str, content: Any) -> tuple[str, Any]:
    """Return the name of a function of conditions and its options; an empty name for another expression."""
    if kind != "Function" or not isinstance(content["function"], dict) or "Boolean" not in content["function"]:
        return "", None
    return variant_of(content["function"]["Boolean"])


def _is_null(content: Any) -> bool:
    """Whether a constant is null. Polars writes NaN as a null of its type, so floats are not told apart."""
    inner = content.get("Scalar") if isinstance(content, dict) else None
    if not isinstance(inner, dict) or len(inner) != 1:
        return False
    ((name, value),) = inner.items()
    return bool(name == "Null" or (value is None and name in ("Boolean", "String", "Int64", "Int32")))


def _polars_constant(content: Any, of: pa.DataType) -> Tree | None:
    """Return a constant that a column of type ``of`` is compared with, if it is of that type."""
    kind, inner = variant_of(content)
    if kind != "Scalar":
        return None
    name, value = variant_of(inner)
    if name == "Float32" and pa.types.is_float32(of) and value is not None:
        return trees.term_constant(float(np.float32(value)))
    if name == "Float64" and pa.types.is_float64(of) and value is not None:
        return trees.term_constant(float(value))
    if name == "Datetime" and pa.types.is_timestamp(of) and of.unit == "us" and value[1] == "Microseconds":
        if (value[2] is None) != (of.tz is None):
            return None
        return trees.typed("timestamp_ntz" if of.tz is None else "timestamp", value[0])
    if pa.types.is_timestamp(of) or pa.types.is_floating(of):
        return None
    return _exactly(lambda: polars_literal(content))
