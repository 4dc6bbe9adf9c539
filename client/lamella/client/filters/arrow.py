"""Expressions of pyarrow (``pc.field("a") > 4``) as JSON filters.

An expression is read from Arrow's own serialization (what pickling uses): one record batch with the constants and the
options, and metadata of its schema with the structure. It holds no types of columns, so only what has the same meaning
for every type is translated, and everything else is refused. pyarrow compares otherwise than Spark: a comparison with
NaN is false, and so is ``isin`` of null.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lamella.client.filters import trees
from lamella.client.filters.trees import Tree
from lamella.snapshot.errors import InvalidFilter

COMPARISONS: Final = {
    "less": "lt",
    "less_equal": "lt-eq",
    "greater": "gt",
    "greater_equal": "gt-eq",
    "equal": "eq",
    "not_equal": "not-eq",
}
_CONNECTIVES: Final = {"and_kleene": "and", "or_kleene": "or"}
#: Arithmetic that fails on an overflow, as Spark's.
_ARITHMETIC: Final = {
    "add_checked": "add",
    "subtract_checked": "subtract",
    "multiply_checked": "multiply",
    "negate_checked": "negative",
    "abs_checked": "abs",
}
_TEXT_TESTS: Final = {"starts_with": "start", "ends_with": "end", "match_substring": "inside"}
#: How ``isin`` treats nulls, by Arrow's numbers: null is a value like others, or null is in no list.
_NULL_MATCHES: Final = 0
_NULL_IS_SKIPPED: Final = 1


class Field(msgspec.Struct, frozen=True):
    """A column, by the names of its path."""

    path: tuple[str, ...]


class Constant(msgspec.Struct, frozen=True):
    """A constant of an Arrow type."""

    scalar: Any


class Call(msgspec.Struct, frozen=True):
    """A function, with its options as a dictionary."""

    function: str
    arguments: tuple[Node, ...]
    options: dict[str, Any]


Node = Field | Constant | Call


def tree_of_arrow(expression: pc.Expression) -> Tree:
    """Return an expression of pyarrow as a JSON filter.

    Raises:
        InvalidFilter: a part has no exact translation; the error names it.
    """
    return condition_of(read_expression(expression))


# Arrow's serialization.


class _CSchema(ctypes.Structure):
    """The first members of Arrow's C data interface for schemas."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def read_expression(expression: pc.Expression) -> Node:
    """Return an expression of pyarrow as a tree of what it consists of.

    Raises:
        InvalidFilter: this version of pyarrow writes it in another form.
    """
    try:
        written = expression.__reduce__()[1][0]
    except pa.ArrowNotImplementedError as error:
        raise InvalidFilter(f"pyarrow cannot write the expression {trees.shown(expression)}: {error}") from error
    try:
        batch = pa.ipc.open_file(written).get_batch(0)
    except (pa.ArrowException, TypeError, IndexError) as error:
        raise _other_form() from error
    entries = _metadata(batch.schema)
    node = _node(next(entries), entries, batch)
    if next(entries, None) is not None:
        raise _other_form()
    return node


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Yield the metadata of a schema in its order; pyarrow's own attribute loses keys that occur twice."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = _CSchema.from_address(pointer(capsule, b"arrow_schema")).metadata
    if not address:
        raise _other_form()
    at = address

    def number() -> int:
        nonlocal at
        value = ctypes.c_int32.from_address(at).value
        at += 4
        return value

    def text() -> str:
        nonlocal at
        length = number()
        value = ctypes.string_at(at, length)
        at += length
        return value.decode("utf-8")

    entries = [(text(), text()) for _ in range(number())]
    del capsule  # it owns the memory until here
    return iter(entries)


def _node(entry: tuple[str, str], entries: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    kind, value = entry
    match kind:
        case "field_ref":
            return Field((value,))
        case "nested_field_ref":
            parts = [next(entries, ("", "")) for _ in range(int(value))]
            if any(kind != "field_ref" for kind, _ in parts):
                raise InvalidFilter("a column of pyarrow is named by its names, not by numbers")
            return Field(tuple(name for _, name in parts))
        case "literal":
            return Constant(batch.column(int(value))[0])
        case "call":
            arguments: list[Node] = []
            options: dict[str, Any] = {}
            for inner in entries:
                if inner[0] == "end":
                    return Call(value, tuple(arguments), options)
                if inner[0] == "options":
                    options = {name: member for name, member in batch.column(int(inner[1]))[0].items()}  # noqa: C416
                    continue
                arguments.append(_node(inner, entries, batch))
    raise _other_form()


def _other_form() -> InvalidFilter:
    return InvalidFilter(f"this version of pyarrow ({pa.__version__}) writes expressions in another form")


# Conditions.


def condition_of(node: Node) -> Tree:
    """Return a condition exactly; raises InvalidFilter, naming the part that cannot be translated."""
    if isinstance(node, Field):
        return trees.unary("truth", trees.reference(node.path))
    if isinstance(node, Constant):
        if pa.types.is_boolean(node.scalar.type) and node.scalar.is_valid:
            return trees.TRUE if node.scalar.as_py() else trees.FALSE
        raise _refused("a constant as a condition", f"{node.scalar!r} is neither true nor false")
    name = node.function
    if name in _CONNECTIVES:
        return trees.joined(_CONNECTIVES[name], [condition_of(side) for side in operands_of(node)])
    if name in COMPARISONS:
        return _comparison(COMPARISONS[name], node.arguments[0], node.arguments[1])
    made = _CONDITIONS.get(name)
    if made is None:
        raise _refused(name, _REASONS.get(name, "it is not translated; use col() or SQL"))
    return made(node)


def operands_of(node: Call) -> list[Node]:
    """Return the operands of a chain of one connective."""
    found: list[Node] = []
    waiting: list[Node] = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Call) and each.function == node.function:
            waiting += reversed(each.arguments)
        else:
            found.append(each)
    return found


def _comparison(kind: str, left: Node, right: Node) -> Tree:
    if isinstance(left, Constant):
        if isinstance(right, Constant):
            raise _refused("a comparison of two constants", "it has no column")
        left, right, kind = right, left, trees.MIRRORED[kind]
    term = _term(left)
    if isinstance(right, Constant):
        value = literal_of(right.scalar)
        found = trees.compare(kind, term, value)
        # NaN is greater than all numbers in Spark, and than none in pyarrow.
        guarded = kind in ("gt", "gt-eq") and value["data-type"] in ("long", "decimal", "double")
        return trees.joined("and", [found, trees.negated(_nan(left, term))]) if guarded else found
    other = _term(right)
    sides = (term, other)
    found = trees.compare(kind, term, other)
    nans = [_nan(left, term), _nan(right, other)]
    # A null beside a NaN is null, not false: under a negation these differ.
    if kind == "not-eq":
        either = trees.joined("or", nans)
        return trees.joined("or", [found, trees.joined("and", [either, *(trees.unary("not-null", s) for s in sides)])])
    neither = trees.joined("and", [trees.negated(each) for each in nans])
    return trees.joined("and", [found, trees.joined("or", [neither, *(trees.unary("is-null", s) for s in sides)])])


def _nan(node: Node, term: Tree) -> Tree:
    """Return a condition that is true where a number is NaN. It is an error for what is not a number."""
    return trees.unary("is-nan", term) if isinstance(node, Field) else trees.compare("eq", term, trees.NAN)


def _negation(node: Call) -> Tree:
    return trees.negated(condition_of(node.arguments[0]))


def _and_not(node: Call) -> Tree:
    return trees.joined("and", [condition_of(node.arguments[0]), trees.negated(condition_of(node.arguments[1]))])


def _null_test(node: Call) -> Tree:
    term = _term(node.arguments[0])
    found = trees.unary("is-null", term)
    nan_is_null = node.options.get("nan_is_null")
    if nan_is_null is not None and nan_is_null.as_py():
        return trees.joined("or", [found, trees.unary("is-nan", term)])
    return found


def _valid_test(node: Call) -> Tree:
    return trees.unary("not-null", _term(node.arguments[0]))


def _nan_test(node: Call) -> Tree:
    return trees.compare("eq", _term(node.arguments[0]), trees.NAN)  # null of null, unlike Spark's isnan


def _membership(node: Call) -> Tree:
    matching = node.options["null_matching_behavior"].as_py()
    if matching not in (_NULL_MATCHES, _NULL_IS_SKIPPED):
        raise _refused("is_in", "only the behaviours MATCH and SKIP of nulls are translated")
    term = _term(node.arguments[0])
    listed = node.options["value_set"]
    scalars = list(listed.values) if isinstance(listed, pa.Scalar) else list(listed)
    values = [_listed(scalar) for scalar in scalars if scalar.is_valid]
    found = trees.never_null({"type": "in", "term": term, "values": values}) if values else trees.FALSE
    if matching == _NULL_MATCHES and len(values) < len(scalars):
        return trees.joined("or", [found, trees.unary("is-null", term)])
    return found


def _listed(scalar: Any) -> Tree:
    """Return a member of a list. pyarrow converts lists to the column's type and tells 0.0 from -0.0."""
    literal = literal_of(scalar)
    if literal["data-type"] in ("double", "decimal") and not float(literal["value"]).is_integer():
        raise _refused("isin", f"{_shown(scalar)} is converted to the column's type: write (x == a) | (x == b)")
    if literal["data-type"] in ("long", "double", "decimal") and float(literal["value"]) == 0:
        raise _refused("isin with 0", "pyarrow tells 0.0 from -0.0 in lists: write (x == 0) | x.isin(...)")
    if literal["data-type"] in ("timestamp", "timestamp_ntz") and literal["value"] % 86_400_000_000:
        raise _refused("isin", f"{_shown(scalar)} is converted to the column's type: write (x == a) | (x == b)")
    return literal


def _text_test(node: Call) -> Tree:
    if node.options["ignore_case"].as_py():
        raise _refused(node.function, "upper and lower case are not ignored; use col() or SQL")
    return trees.text_test(_term(node.arguments[0]), node.options["pattern"].as_py(), _TEXT_TESTS[node.function])


def _like(node: Call) -> Tree:
    pattern = node.options["pattern"].as_py()
    if node.options["ignore_case"].as_py() or "\\" in pattern:
        raise _refused("match_like", "patterns with backslashes, and without regard to case, are not translated")
    return trees.like(_term(node.arguments[0]), pattern)


_CONDITIONS: Final[dict[str, Callable[[Call], Tree]]] = {
    "invert": _negation,
    "and_not_kleene": _and_not,
    "is_null": _null_test,
    "is_valid": _valid_test,
    "is_nan": _nan_test,
    "is_in": _membership,
    **dict.fromkeys(_TEXT_TESTS, _text_test),
    "match_like": _like,
}
_REASONS: Final = {
    **dict.fromkeys(("and_", "or_", "and_not"), "it is null if one side is, unlike & and |"),
    "xor": "filters have no exclusive or: write (a & ~b) | (~a & b)",
    "cast": "casts of pyarrow and Spark differ by type: use col().cast()",
}


# Terms and constants.


def _term(node: Node) -> Tree:
    if isinstance(node, Field):
        return trees.reference(node.path)
    if isinstance(node, Constant):
        return literal_of(node.scalar)
    if node.function in _ARITHMETIC:
        return trees.apply(_ARITHMETIC[node.function], *_arguments(node))
    if node.function == "utf8_length":
        return trees.apply("length", _term(node.arguments[0]))
    raise _refused(node.function, _REASONS.get(node.function, _ARITHMETIC_REASONS.get(node.function, _NO_TERM)))


def _arguments(node: Call) -> Sequence[Tree]:
    for argument in node.arguments:
        if isinstance(argument, Constant) and not (
            pa.types.is_integer(argument.scalar.type) or pa.types.is_decimal(argument.scalar.type)
        ):
            raise _refused(
                node.function, f"arithmetic is translated with integers and decimals, not {_shown(argument.scalar)}"
            )
    return [_term(argument) for argument in node.arguments]


_NO_TERM: Final = "it is not translated; use col(), call() or SQL"
_WRAPS: Final = "it wraps around on an overflow: use + - *, which fail as in Spark"
_ARITHMETIC_REASONS: Final = {
    **dict.fromkeys(("add", "subtract", "multiply", "negate", "abs"), _WRAPS),
    **dict.fromkeys(("divide", "divide_checked"), "pyarrow cuts off quotients of integers: use col()"),
}


def literal_of(scalar: Any) -> Tree:
    """Return a constant of Arrow exactly; raises InvalidFilter if the grammar cannot hold it."""
    kind = scalar.type
    if not scalar.is_valid:
        raise _refused("null", "nothing is equal to null: use is_null()")
    if pa.types.is_timestamp(kind):
        return _moment(scalar)
    if pa.types.is_floating(kind):
        value = scalar.as_py()
        if kind.bit_width != 64:
            raise _refused(
                f"{kind} {_shown(scalar)}",
                "constants of this type are compared with less precision: use a Python float",
            )
        if math.isnan(value):
            raise _refused("NaN", "nothing is equal to NaN in pyarrow: use is_nan()")
        return _as_tree(value)
    if pa.types.is_date64(kind):
        raise _refused(f"{kind} {_shown(scalar)}", "use a date of days")
    if pa.types.is_date(kind):
        try:
            return _as_tree(scalar.as_py())
        except (OverflowError, ValueError):  # neither has Python such a date, nor a filter
            raise _refused(f"{kind} {scalar.cast(pa.int32())}", "a date is in the years 1 to 9999") from None
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _as_tree(scalar.as_py())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _as_tree(scalar.as_py())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _as_tree(scalar.as_py())
    raise _refused(f"{kind} {_shown(scalar)}", "filters have no constants of this type")


def _shown(scalar: Any) -> str:
    """Return the text of a constant, for messages."""
    try:
        return str(scalar)
    except (OverflowError, ValueError):  # a time that Python does not have
        return str(scalar.value)


def _as_tree(value: bool | int | float | Decimal | str | bytes | dt.date) -> Tree:
    return trees.term_constant(value)


def _moment(scalar: Any) -> Tree:
    per_unit = {"s": 1_000_000, "ms": 1_000, "us": 1}
    count, unit = scalar.value, scalar.type.unit
    if unit == "ns" and count % 1_000:
        raise _refused(f"{scalar.type} {_shown(scalar)}", "a filter holds microseconds")
    micros = count // 1_000 if unit == "ns" else count * per_unit[unit]
    return trees.typed("timestamp_ntz" if scalar.type.tz is None else "timestamp", micros)


def _refused(part: str, reason: str) -> InvalidFilter:
    return InvalidFilter(f"{part} of a pyarrow expression cannot be a filter: {reason}")
