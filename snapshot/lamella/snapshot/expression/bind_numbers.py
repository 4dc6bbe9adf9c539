"""Numbers in terms: Spark's types for them, casts between them, and constants.

The result type is the wider of two integers, a decimal with room for the exact result, or a double if one operand is.
Operations that Spark would round are not supported.
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

from lamella.snapshot.columnar.zones import is_wide
from lamella.snapshot.expression.bound import BoundTerm, ConstantTerm, Derived
from lamella.snapshot.expression.coerce import DIGITS, Unusable
from lamella.snapshot.expression.nodes import Literal, LiteralKind
from lamella.snapshot.expression.text import term_text
from lamella.snapshot.function import numeric
from lamella.snapshot.schema import DataType, parse_type

INT: Final = parse_type("int32")
LONG: Final = parse_type("int64")
DOUBLE: Final = parse_type("float64")
DATE: Final = parse_type("date")
MAX_DIGITS: Final = 38
_EXACT: Final = Context(prec=2 * MAX_DIGITS)
#: The types of literals whose value is that of the type's order.
_ORDERED: Final[dict[LiteralKind, DataType]] = {
    "boolean": parse_type("boolean"),
    "date": DATE,
    "timestamp": parse_type("timestamp(us)"),
    "timestamp_ntz": parse_type("timestamp_ntz(us)"),
}


def double_arithmetic(
    operation: numeric.Operation, left: BoundTerm, right: BoundTerm, name: str
) -> BoundTerm | Unusable:
    singles = [each for each in (left, right) if each.dtype.is_float and each.dtype.bits < 64]
    others = [each for each in (left, right) if each not in singles]
    if singles and not any(each.dtype == DOUBLE or each.dtype.name == "decimal" for each in others):
        return Unusable("arithmetic in single precision is not used")
    arguments = [_as_double(each) for each in (left, right)]
    problem = next((each for each in arguments if isinstance(each, Unusable)), None)
    if problem is not None:
        return problem
    made = tuple(each for each in arguments if not isinstance(each, Unusable))
    return Derived(numeric.Doubles(operation, DOUBLE), made, DOUBLE, name)


def _as_double(term: BoundTerm) -> BoundTerm | Unusable:
    if isinstance(term, ConstantTerm) and isinstance(term.value, int):
        exact = Fraction(term.value, 10**term.dtype.scale)
        try:
            return ConstantTerm(float(exact), DOUBLE, term.name)
        except OverflowError:
            return Unusable("the number is too large for a double")
    if term.dtype.name == "decimal":
        return Unusable("a decimal cast to a double is rounded")
    return term if term.dtype == DOUBLE else Derived(numeric.ToDouble(DOUBLE), (term,), DOUBLE, term.name)


def decimal_arithmetic(
    operation: numeric.Operation, left: BoundTerm, right: BoundTerm, name: str
) -> BoundTerm | Unusable:
    (p1, s1), (p2, s2) = _digits(left), _digits(right)
    if operation == "multiply":
        scale, precision, factors = s1 + s2, p1 + p2 + 1, (1, 1)
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
        factors = 10 ** (scale - s1), 10 ** (scale - s2)
    if precision > MAX_DIGITS:
        return Unusable("Spark rounds decimals of more than 38 digits")
    dtype = DataType("decimal", precision=precision, scale=scale)
    return Derived(numeric.Integers(operation, dtype, *factors), (left, right), dtype, name)


def is_comparable(left: DataType, right: DataType) -> bool:
    """Returns whether two types' bounds can be compared directly, and Spark compares the values in the same way."""
    if left.is_integer and right.is_integer:
        return left.order == right.order
    if left.is_float and right.is_float:
        return True
    if left.name == right.name == "decimal":
        return left.scale == right.scale and is_wide(left) == is_wide(right) and left.order is not None
    if left.is_text and right.is_text:
        return True
    return left == right and left.order is not None


def as_decimals(left: BoundTerm, right: BoundTerm) -> tuple[BoundTerm, BoundTerm] | Unusable:
    """Returns both terms as decimals that represent the values of both exactly."""
    (p1, s1), (p2, s2) = _digits(left), _digits(right)
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale
    if precision > MAX_DIGITS:
        return Unusable("Spark rounds decimals of more than 38 digits")
    wanted = DataType("decimal", precision=precision, scale=scale)
    first, second = (each if each.dtype == wanted else cast_number(each, wanted, each.name) for each in (left, right))
    if isinstance(first, Unusable) or isinstance(second, Unusable):
        return first if isinstance(first, Unusable) else Unusable("a decimal is not compared with this type")
    return first, second


def as_doubles(left: BoundTerm, right: BoundTerm) -> tuple[BoundTerm, BoundTerm] | Unusable:
    first, second = (_as_double(each) for each in (left, right))
    if isinstance(first, Unusable) or isinstance(second, Unusable):
        return (
            first
            if isinstance(first, Unusable)
            else Unusable("whether the number is compared as a double is not certain")
        )
    return first, second


def coalesce_type(dtype: DataType, constant: list[ConstantTerm]) -> DataType | None:
    """Returns the type of a coalesce of such a column and numbers, None if it would have to round."""
    if not constant:
        return dtype
    if dtype.name == "float32":
        decimals = [each.dtype.name == "decimal" for each in constant]
        return DOUBLE if all(decimals) else None if any(decimals) else dtype
    if dtype.is_integer:
        if not all(each.dtype.is_integer for each in constant):
            return None
        bits = max(signed_bits(dtype), *(each.dtype.bits for each in constant))
        return parse_type(f"int{bits}") if bits <= 64 else None  # uint64 is a decimal in Spark
    if dtype.name == "decimal":
        pairs = [(dtype.precision, dtype.scale), *(_typed_digits(each) for each in constant)]
        scale = max(s for _, s in pairs)
        precision = max(p - s for p, s in pairs) + scale
        return DataType("decimal", precision=precision, scale=scale) if precision <= MAX_DIGITS else None
    return dtype


def cast_number(term: BoundTerm, wanted: DataType, name: str) -> BoundTerm | Unusable:
    source = term.dtype
    whole = source.is_integer or source.name in ("boolean", "decimal")
    if wanted.is_integer and wanted.order == "int" and whole:
        return Derived(numeric.Whole(wanted, divisor=10**source.scale), (term,), wanted, name)
    if wanted.is_integer and wanted.order == "int" and source == DOUBLE:
        return Derived(numeric.ToInteger(wanted), (term,), wanted, name)
    if wanted.name == "decimal" and wanted.order == "decimal" and whole and wanted.scale >= source.scale:
        return Derived(numeric.Whole(wanted, factor=10 ** (wanted.scale - source.scale)), (term,), wanted, name)
    if wanted == DOUBLE and (source.is_integer or source.is_float):
        return Derived(numeric.ToDouble(wanted), (term,), wanted, name)
    return Unusable(f"a cast from {source} to {wanted} does not reliably keep the order")


def digits_of(number: Decimal) -> tuple[int, int]:
    """Returns precision and scale of the decimal type that Spark gives a number by its digits."""
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or exponent >= 0:
        return len(digits) + (exponent if isinstance(exponent, int) else 0), 0
    return max(len(digits), -exponent), -exponent


def type_of(literal: Literal) -> DataType:
    """Returns the type of a whole number or decimal outside of decimal arithmetic."""
    if literal.type:
        return parse_type(literal.type)
    value = literal.value
    if literal.kind == "integer" and isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return INT if -(1 << 31) <= value < 1 << 31 else LONG
    precision, scale = digits_of(Decimal(str(value)))
    return DataType("decimal", precision=precision, scale=scale)


def constant(literal: Literal) -> ConstantTerm | Unusable:
    """Returns a literal inside a function, in the type that Spark gives it."""
    value, name = literal.value, term_text(literal)
    if literal.kind in ("integer", "decimal"):
        dtype = type_of(literal)
        if dtype.name == "decimal" and dtype.precision > MAX_DIGITS:
            return Unusable("a constant has more digits than Spark's decimals")
        digits = len(str(abs(value))) if literal.kind == "integer" and isinstance(value, int) else 0
        return ConstantTerm(int(Fraction(Decimal(str(value))) * 10**dtype.scale), dtype, name, digits)
    if literal.kind == "double" and isinstance(value, float | int):
        return ConstantTerm(float(value), DOUBLE, name)
    if literal.kind in ("string", "text"):
        return ConstantTerm(str(value).encode(), parse_type("string"), name)
    if literal.kind in _ORDERED and isinstance(value, int):
        return ConstantTerm(int(value), _ORDERED[literal.kind], name)
    return Unusable("a constant of this kind inside a function is not used")


def literal_of(constant: ConstantTerm) -> Literal | None:
    """Returns a constant as a literal of its type; None if there is no such literal."""
    value, dtype = constant.value, constant.dtype
    if value is None:
        return Literal("null")
    if dtype.is_integer and dtype.order == "int":
        return Literal("integer", value, dtype.name)
    if dtype.name == "decimal" and isinstance(value, int):
        return Literal("decimal", format(Decimal(value).scaleb(-dtype.scale, _EXACT), "f"), str(dtype))
    if dtype == DOUBLE:
        return Literal("double", value)
    if dtype.is_text and isinstance(value, bytes):
        try:
            return Literal("string", value.decode())
        except UnicodeDecodeError:
            return None
    kind = next((kind for kind, each in _ORDERED.items() if each == dtype), None)
    return None if kind is None else Literal(kind, bool(value) if kind == "boolean" else value)


def constant_as(constant: ConstantTerm, wanted: DataType, name: str) -> ConstantTerm | Unusable:
    """Returns a whole number or decimal constant in another type that represents it exactly."""
    source, value = constant.dtype, constant.value
    if not isinstance(value, int) or not (source.is_integer or source.name == "decimal"):
        return Unusable("a constant that is cast is not used")
    to_integer = wanted.is_integer and wanted.order == "int" and not source.scale
    if to_integer or (wanted.order == "decimal" and wanted.scale >= source.scale):
        moved = value * 10 ** (wanted.scale - source.scale)
        low, high = wanted.int_range
        if low <= moved <= high:
            return ConstantTerm(moved, wanted, name)
    return Unusable("a constant that its cast rounds is not used")


def _typed_digits(constant: ConstantTerm) -> tuple[int, int]:
    """Returns precision and scale of a constant's type."""
    return (
        (constant.dtype.precision, constant.dtype.scale)
        if constant.dtype.name == "decimal"
        else (DIGITS[constant.dtype.bits], 0)
    )


def kind_of(term: BoundTerm) -> str | None:
    if term.dtype.is_integer:
        return "int" if term.dtype.name != "uint64" else None
    if term.dtype.is_float:
        return "float" if term.dtype.bits > 16 else None
    return "decimal" if term.dtype.order == "decimal" else None


def signed_bits(dtype: DataType) -> int:
    """Returns the width of the signed integer as which Spark reads a column."""
    return dtype.bits * 2 if dtype.order == "uint" else dtype.bits


def _digits(term: BoundTerm) -> tuple[int, int]:
    """Returns precision and scale of a term in decimal arithmetic."""
    if term.dtype.name == "decimal":
        return term.dtype.precision, term.dtype.scale
    if isinstance(term, ConstantTerm) and term.digits:
        return term.digits, 0
    return DIGITS[signed_bits(term.dtype)], 0
