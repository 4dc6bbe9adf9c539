"""Comparisons of floats as they are written in residuals.

Not with an infinity: JSON has none, and Java's client fails at the text of one. What is written instead is true for
the rows that the comparison is true for, in SQL, in Iceberg's evaluators and in Arrow: they differ in where NaN lies,
and in whether ``not-eq`` holds for a null, so it is made of predicates that differ alike.

Where NaN is greater than numbers, as in Spark, ``gt`` is true for it, and yet Iceberg's readers skip row groups by the
bounds of Parquet footers, which leave NaN out: so those rows are asked for by name. To Arrow ``gt`` is not true for
NaN; pyiceberg filters rows by its own filter, whatever is left of it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lamella.snapshot.schema import DataType

_INFINITIES: Final = ("Infinity", "-Infinity")
_DOUBLE_MAX: Final = (2 - 2**-52) * 2.0**1023
_FLOAT_MAX: Final = (2 - 2**-23) * 2.0**127

Node = dict[str, Any]


def for_readers(node: Mapping[str, Any], dtype: DataType) -> Node:
    """A comparison or list of the older spelling as readers take it, and lose no row."""
    if not dtype.is_float:
        return dict(node)
    written = without_infinity(node, dtype)
    has_nan = node["type"] in ("gt", "gt-eq") and (node["value"] in _INFINITIES or _is_in_range(node["value"], dtype))
    return _either(written, _of("is-nan", node["term"])) if has_nan else written


def _is_in_range(value: Any, dtype: DataType) -> bool:
    """Whether a value is a number of the type; by others clients decide all rows at once."""
    return isinstance(value, int | float) and abs(value) <= (_DOUBLE_MAX if dtype.bits == 64 else _FLOAT_MAX)


def without_infinity(node: Mapping[str, Any], dtype: DataType) -> Node:
    """The same of a column of floats, as an expression whose numbers are finite."""
    term, kind = node["term"], node["type"]
    most = _DOUBLE_MAX if dtype.bits == 64 else _FLOAT_MAX
    if "values" in node:
        rest = [value for value in node["values"] if value not in _INFINITIES]
        if len(rest) == len(node["values"]):
            return dict(node)
        connective, single = ("or", "eq") if kind == "in" else ("and", "not-eq")
        parts = [{"type": kind, "term": term, "values": rest}] if rest else []
        parts += [_compared(single, term, sign, most) for sign in _INFINITIES if sign in node["values"]]
        return _chained(connective, parts)
    if node.get("value") not in _INFINITIES:
        return dict(node)
    return _compared(kind, term, node["value"], most)


def _compared(kind: str, term: str, infinity: str, most: float) -> Node:
    if infinity == "-Infinity":
        below, others = _of("lt", term, -most), _of("gt-eq", term, -most)
        return {
            "lt": _both(below, others),  # nothing lies below it
            "lt-eq": below,
            "eq": below,
            "gt": others,
            "gt-eq": _either(others, below),  # with NaN where that is the greatest
            "not-eq": _either(_either(others, _of("is-nan", term)), _null(term)),
        }[kind]
    above, others = _of("gt", term, most), _of("lt-eq", term, most)
    equal = _both(above, _of("not-nan", term))
    return {
        "lt": others,
        "lt-eq": _either(others, equal),
        "eq": equal,
        "gt": _both(above, _of("is-nan", term)),
        "gt-eq": above,
        "not-eq": _either(_either(others, _of("is-nan", term)), _null(term)),
    }[kind]


def _null(term: str) -> Node:
    """True for a null where ``not-eq`` is."""
    return _both(_of("not-eq", term, 0.5), _of("is-null", term))


def _of(kind: str, term: str, value: float | None = None) -> Node:
    return {"type": kind, "term": term} | ({} if value is None else {"value": value})


def _both(left: Node, right: Node) -> Node:
    return {"type": "and", "left": left, "right": right}


def _either(left: Node, right: Node) -> Node:
    return {"type": "or", "left": left, "right": right}


def _chained(connective: str, parts: list[Node]) -> Node:
    found = parts[0]
    for part in parts[1:]:
        found = {"type": connective, "left": found, "right": part}
    return found
