"""Filters from JSON: the Iceberg REST expression grammar in both its spellings, and typed literals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from lamella.snapshot.concurrency import check_deadline
from lamella.snapshot.errors import InvalidFilter, LimitExceeded
from lamella.snapshot.expression.near_functions import NearFunctions
from lamella.snapshot.expression.nodes import (
    FUNCTIONS,
    MAX_DEPTH,
    MAX_IN_LITERALS,
    MAX_NODES,
    And,
    Branch,
    Call,
    Case,
    Cast,
    Compare,
    Constant,
    In,
    IsNan,
    IsNull,
    IsTrue,
    IsUnknown,
    Like,
    Literal,
    LiteralKind,
    Not,
    NullSafeEqual,
    Operator,
    Or,
    Predicate,
    Ref,
    SourcePosition,
    StartsWith,
    Term,
    Truth,
    Unknown,
    columns_of_term,
)
from lamella.snapshot.expression.regexp import regexp
from lamella.snapshot.expression.spark_casts import is_unicode, single
from lamella.snapshot.expression.text import literal_text, term_text
from lamella.snapshot.schema import parse_type

_INT64: Final = 1 << 63
#: No type has more than 128 bits; far longer numbers would only cost time.
_MAX_BITS: Final = 1024
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)


_DECIMAL_TYPE: Final = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)", re.ASCII)
_MAX_DIGITS: Final = 38


def wrong(path: str, message: str) -> InvalidFilter:
    """Returns the error for invalid grammar at a JSON path."""
    return InvalidFilter(f"{message} (at {path})", position=path)


def json_literal(value: Any, path: str) -> Literal:
    """Returns the constant of a JSON value; raises InvalidFilter."""
    if value is None:
        return Literal("null")
    if isinstance(value, bool):
        return Literal("boolean", value)
    if isinstance(value, int):
        if value.bit_length() >= _MAX_BITS:
            raise wrong(path, "the number is too long")
        return Literal("integer", value)
    if isinstance(value, float):
        return Literal("double", value)
    if isinstance(value, str):
        encodable(value, path)
        return Literal("text", value)
    if isinstance(value, dict) and value.get("type") == "literal":
        return _typed(value, path)
    raise wrong(path, "a value must be a JSON scalar or a typed literal")


def json_literals(values: list[Any], path: str) -> tuple[Literal, ...]:
    """Returns the constants of a list at a JSON path; raises InvalidFilter."""
    return tuple(
        [
            Literal("integer", value)
            if type(value) is int and -_INT64 <= value < _INT64  # the common case; creates no path
            else json_literal(value, f"{path}[{index}]")
            for index, value in enumerate(values)
        ]
    )


def encodable(text: str, path: str) -> None:
    """Raise InvalidFilter for text that is not valid Unicode."""
    if not is_unicode(text):
        raise wrong(path, "the text is not valid Unicode")


def shown(value: Any) -> str:
    """Returns a short text of a JSON value for messages; a long or deep one is replaced by its type."""
    return repr(value) if isinstance(value, str | float | bool) and len(str(value)) <= 100 else type(value).__name__


def _typed(node: dict[str, Any], path: str) -> Literal:
    kind, value = node.get("data-type"), node.get("value")
    if kind is None and not isinstance(value, dict):
        return json_literal(value, f"{path}.value")
    sized = _DECIMAL_TYPE.fullmatch(kind) if isinstance(kind, str) else None
    reader = _TYPED.get(kind if sized is None else "decimal") if isinstance(kind, str) else None
    literal = reader(value) if reader is not None else None
    if sized is not None and literal is not None:
        literal = _of_size(literal, int(sized[1]), int(sized[2]))
    if literal is None:
        raise wrong(path, f"{shown(value)} is not a value of {shown(kind)}")
    return literal


def _typed_integer(kind: LiteralKind) -> Callable[[Any], Literal | None]:
    def read(value: Any) -> Literal | None:
        inside = isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64
        return Literal(kind, value) if inside else None

    return read


def _typed_float(value: Any, kind: LiteralKind = "double") -> Literal | None:
    special = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    if isinstance(value, str):
        number = special.get(value)
    else:
        fits = isinstance(value, float) or (isinstance(value, int) and value.bit_length() < _MAX_BITS)
        number = float(value) if fits and not isinstance(value, bool) else None
    if number is None:
        return None
    return Literal(kind, single(number) if kind == "float" else number)


def _typed_decimal(value: Any) -> Literal | None:
    if not isinstance(value, str) or len(value) > 128 or not _DECIMAL.fullmatch(value):
        return None
    return Literal("decimal", format(Decimal(value), "f"))


def _typed_text(value: Any) -> Literal | None:
    if not isinstance(value, str):
        return None
    encodable(value, "$")
    return Literal("string", value)


def _of_size(literal: Literal, precision: int, scale: int) -> Literal | None:
    """Returns a decimal with the given precision and scale; None if it does not fit."""
    _, digits, exponent = Decimal(str(literal.value)).as_tuple()
    if not isinstance(exponent, int) or not scale <= precision <= _MAX_DIGITS:
        return None
    fits = -exponent <= scale and len(digits) + exponent <= precision - scale
    return Literal("decimal", literal.value, f"decimal({precision},{scale})") if fits else None


def _suffixed(name: str) -> Callable[[Any], Literal | None]:
    low, high = parse_type(name).int_range

    def read(value: Any) -> Literal | None:
        inside = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return Literal("integer", value, parse_type(name).name) if inside else None

    return read


def _typed_binary(value: Any) -> Literal | None:
    try:
        return Literal("binary", bytes.fromhex(value)) if isinstance(value, str) else None
    except ValueError:
        return None


_TYPED: Final[dict[str, Callable[[Any], Literal | None]]] = {
    "null": lambda value: Literal("null") if value is None else None,
    "boolean": lambda value: Literal("boolean", value) if isinstance(value, bool) else None,
    "long": _typed_integer("integer"),
    **{name: _suffixed(name) for name in ("tinyint", "smallint", "bigint")},
    "double": _typed_float,
    "float": lambda value: _typed_float(value, "float"),
    "decimal": _typed_decimal,
    "string": _typed_text,
    "binary": _typed_binary,
    "date": _typed_integer("date"),
    "timestamp": _typed_integer("timestamp"),
    "timestamp_ntz": _typed_integer("timestamp_ntz"),
}


_OPERATORS: Final[dict[str, Operator]] = {
    "lt": "lt",
    "lt-eq": "le",
    "gt": "gt",
    "gt-eq": "ge",
    "eq": "eq",
    "not-eq": "ne",
}


# Filters from JSON: the Iceberg REST expression grammar in both its spellings, and exact typed literals.
#
# ``{"type": "gt", "term": "a", "value": 4}`` and ``{"type": "gt", "left": {"type": "reference", "name": "a"}, "right":
# 4}`` are equivalent. Extensions: many ``children`` under ``and``/``or``, ``eq-null-safe``, ``like``, ``is-true``,
# ``is-unknown`` (a predicate is null), typed literals ``{"type": "literal", "data-type": "timestamp", "value":
# <microseconds>}``, and ``{"type": "unknown", "text": ..., "reason": ...}`` for what a client cannot express.
#
# A null comparison value excludes nothing: clients write infinity as null (observed with pyiceberg).


def read_tree(tree: Any) -> Predicate:
    """Returns the predicate of a JSON filter (already parsed).

    Raises:
        InvalidFilter: invalid grammar; ``position`` is a JSON path.
        LimitExceeded: deeper or with more predicates or values than allowed.
    """
    return _Reader().predicate(tree, "$", 1)


class _Reader:
    def __init__(self) -> None:
        self._nodes = 0
        self._near = NearFunctions()

    def predicate(self, node: Any, path: str, depth: int) -> Predicate:
        check_deadline()
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise LimitExceeded(
                f"the filter has more than {MAX_NODES} predicates", limit="filter_predicates", maximum=MAX_NODES
            )
        if depth > MAX_DEPTH:
            raise LimitExceeded(
                f"the filter is nested deeper than {MAX_DEPTH} levels", limit="filter_depth", maximum=MAX_DEPTH
            )
        if isinstance(node, bool):
            return Constant(node)
        if not isinstance(node, dict) or not isinstance(node.get("type"), str):
            raise wrong(path, "an expression must be true, false or an object with a type")
        kind = node["type"].lower()
        if kind in _OPERATORS:
            return self._compare(kind, node, path)
        reader = _READERS.get(kind)
        if reader is None:
            raise wrong(f"{path}.type", f"unknown expression type {shown(node['type'])}")
        return reader(self, node, path, depth)

    def _constant(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del path, depth
        return Constant({"true": True, "false": False, "null": None}[node["type"].lower()])

    def _connector(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        if "children" in node:
            parts = node["children"]
            if not isinstance(parts, list) or not parts:
                raise wrong(f"{path}.children", "a list of expressions is required")
            children = tuple(self.predicate(p, f"{path}.children[{i}]", depth + 1) for i, p in enumerate(parts))
        else:
            children = tuple(
                self.predicate(_member(node, side, path), f"{path}.{side}", depth + 1) for side in ("left", "right")
            )
        return And(children) if node["type"].lower() == "and" else Or(children)

    def _not(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        return Not(self.predicate(_member(node, "child", path), f"{path}.child", depth + 1))

    def _is_true(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        return IsTrue(self.predicate(_member(node, "child", path), f"{path}.child", depth + 1))

    def _is_unknown(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        return IsUnknown(self.predicate(_member(node, "child", path), f"{path}.child", depth + 1))

    def _unary(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del depth
        term = self._term(node, path)
        kind = node["type"].lower()
        if isinstance(term, Unknown):
            return term
        if kind == "truth":
            return Truth(term, at=SourcePosition(path))
        test: Predicate = (IsNull if kind.endswith("null") else IsNan)(term, at=SourcePosition(path))
        return Not(test) if kind.startswith("not-") else test

    def _compare(self, kind: str, node: dict[str, Any], path: str) -> Predicate:
        left, right = self._term(node, path), self._operand(node, path)
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return left if isinstance(left, Unknown) else right  # type: ignore[return-value]  # one of them is
        if isinstance(right, Literal) and right.kind == "null":
            reason = "a null value cannot be compared (infinity is written as null)"
            return Unknown(f"{term_text(left)} {kind} null", reason, columns_of_term(left), at=SourcePosition(path))
        return Compare(_OPERATORS[kind], left, right, at=SourcePosition(path))

    def _null_safe(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del depth
        left, right = self._term(node, path), self._operand(node, path)
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return left if isinstance(left, Unknown) else right  # type: ignore[return-value]  # one of them is
        return NullSafeEqual(left, right, at=SourcePosition(path))

    def _in(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del depth
        term = self._term(node, path)
        values = node.get("values", node.get("right"))
        if isinstance(values, dict):
            values = values.get("values")
        if not isinstance(values, list):
            raise wrong(f"{path}.values", "a list of values is required")
        if len(values) > MAX_IN_LITERALS:
            raise LimitExceeded(
                f"IN lists may have {MAX_IN_LITERALS} values", limit="in_values", maximum=MAX_IN_LITERALS
            )
        literals = json_literals(values, f"{path}.values")
        if isinstance(term, Unknown):
            return term
        if not literals:
            inside: Predicate = Constant(False)
        elif None in values:  # an untyped null may have been infinity
            reason = "a null in the list cannot be compared"
            inside = Unknown(
                f"{term_text(term)} in (..., null)", reason, columns_of_term(term), at=SourcePosition(path)
            )
        else:
            inside = In(term, literals, at=SourcePosition(path))
        return Not(inside) if node["type"].lower() == "not-in" else inside

    def _starts_with(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del depth
        term, literal = self._term(node, path), _value(node, path)
        if isinstance(term, Unknown):
            return term
        if literal.kind not in ("text", "string", "binary"):
            raise wrong(f"{path}.value", "a prefix must be text")
        test = StartsWith(term, literal, at=SourcePosition(path))
        return Not(test) if node["type"].lower().startswith("not-") else test

    def _like(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del depth
        term, literal = self._term(node, path), _value(node, path)
        escape = node.get("escape", "\\")
        if isinstance(term, Unknown):
            return term
        if literal.kind not in ("text", "string") or not isinstance(escape, str) or len(escape) > 1:
            raise wrong(f"{path}.value", "a pattern must be text, its escape one character")
        encodable(escape, path)
        return Like(term, str(literal.value), escape, at=SourcePosition(path))

    def _rlike(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del depth
        term, literal = self._term(node, path), _value(node, path)
        if isinstance(term, Unknown):
            return term
        if literal.kind not in ("text", "string"):
            raise wrong(f"{path}.value", "a regular expression must be text")
        text, reason = f"{term_text(term)} RLIKE {literal_text(literal)}", "regular expressions are not evaluated"
        unknown = Unknown(text, reason, columns_of_term(term), at=SourcePosition(path))
        return regexp(term, str(literal.value), unknown)

    def _term(self, node: dict[str, Any], path: str) -> Ref | Call | Cast | Case | Unknown:
        name = "term" if "term" in node else "left"
        if name not in node and "child" in node:
            name = "child"
        term = self._read_term(_member(node, name, path), f"{path}.{name}", 1)
        if isinstance(term, Literal):
            raise wrong(f"{path}.{name}", "a term must be a column name, a reference or a function")
        return term

    def _operand(self, node: dict[str, Any], path: str) -> Term | Unknown:
        """Returns the right side: a value, or another term."""
        name = "value" if "value" in node else "right"
        given = _member(node, name, path)
        if isinstance(given, dict) and given.get("type") != "literal":
            return self._read_term(given, f"{path}.{name}", 1)
        return json_literal(given, f"{path}.{name}")

    def _read_term(self, term: Any, path: str, depth: int) -> Term | Unknown:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise LimitExceeded(
                f"the filter has more than {MAX_NODES} predicates", limit="filter_predicates", maximum=MAX_NODES
            )
        if depth > MAX_DEPTH:
            raise LimitExceeded(
                f"a term is nested deeper than {MAX_DEPTH} levels", limit="filter_depth", maximum=MAX_DEPTH
            )
        if isinstance(term, str) and term:
            encodable(term, path)
            return Ref(term)
        if isinstance(term, dict):
            kind, named = term.get("type"), term.get("name", term.get("term"))
            if kind == "reference" and isinstance(named, str):
                encodable(named, path)
                return Ref(named)
            if kind == "literal":
                return json_literal(term, path)
            if kind == "cast" and "term" in term and isinstance(term.get("to"), str):
                inner = self._read_term(term["term"], f"{path}.term", depth + 1)
                encodable(term["to"], path)
                return inner if isinstance(inner, Unknown) else Cast(inner, term["to"])
            if kind == "apply" and isinstance(term.get("arguments"), list):
                return self._call(term, path, depth)
            if kind == "case" and isinstance(term.get("branches"), list) and term["branches"]:
                return self._case(term, path, depth)
            if kind in ("transform", "apply"):
                transform = shown(term.get("transform", term.get("function")))
                return Unknown(f"{kind} {transform}", "column transforms are not used")
        raise wrong(path, "a term must be a column name, a reference or a function")

    def _call(self, term: dict[str, Any], path: str, depth: int) -> Term | Unknown:
        function, given = term.get("function"), term["arguments"]
        counts = FUNCTIONS.get(function) if isinstance(function, str) else None
        if counts is None:
            hint = self._near.hint(function) if isinstance(function, str) else ""
            return Unknown(f"function {shown(function)}", f"this function is not used for pruning{hint}")
        if len(given) not in counts:
            raise wrong(f"{path}.arguments", f"{function} does not take {len(given)} arguments")
        arguments: list[Term] = []
        for index, each in enumerate(given):
            made = self._read_term(each, f"{path}.arguments[{index}]", depth + 1)
            if isinstance(made, Unknown):
                return made
            arguments.append(made)
        return Call(str(function), tuple(arguments))

    def _case(self, term: dict[str, Any], path: str, depth: int) -> Term | Unknown:
        branches: list[Branch] = []
        for index, each in enumerate(term["branches"]):
            at = f"{path}.branches[{index}]"
            if not isinstance(each, dict) or "condition" not in each or "value" not in each:
                raise wrong(at, "a branch needs a condition and a value")
            value = self._read_term(each["value"], f"{at}.value", depth + 1)
            if isinstance(value, Unknown):
                return value
            branches.append(Branch(self.predicate(each["condition"], f"{at}.condition", depth + 1), value))
        if term.get("otherwise") is None:
            return Case(tuple(branches))
        otherwise = self._read_term(term["otherwise"], f"{path}.otherwise", depth + 1)
        return otherwise if isinstance(otherwise, Unknown) else Case(tuple(branches), otherwise)

    def _unknown(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del depth
        text, reason = node.get("text", "?"), node.get("reason", "the client could not express it")
        if not isinstance(text, str) or not isinstance(reason, str):
            raise wrong(path, "text and reason of an unknown expression must be text")
        encodable(text, path)
        encodable(reason, path)
        return Unknown(text, reason)


def _member(node: dict[str, Any], name: str, path: str) -> Any:
    if name not in node:
        raise wrong(path, f"{node['type']} needs {name!r}")
    return node[name]


def _value(node: dict[str, Any], path: str) -> Literal:
    name = "value" if "value" in node else "right"
    return json_literal(_member(node, name, path), f"{path}.{name}")


_READERS: Final[dict[str, Callable[[_Reader, dict[str, Any], str, int], Predicate]]] = {
    "true": _Reader._constant,
    "false": _Reader._constant,
    "null": _Reader._constant,
    "and": _Reader._connector,
    "or": _Reader._connector,
    "not": _Reader._not,
    "is-true": _Reader._is_true,
    "is-unknown": _Reader._is_unknown,
    "is-null": _Reader._unary,
    "not-null": _Reader._unary,
    "is-nan": _Reader._unary,
    "not-nan": _Reader._unary,
    "truth": _Reader._unary,
    "eq-null-safe": _Reader._null_safe,
    "in": _Reader._in,
    "not-in": _Reader._in,
    "starts-with": _Reader._starts_with,
    "not-starts-with": _Reader._starts_with,
    "like": _Reader._like,
    "rlike": _Reader._rlike,
    "unknown": _Reader._unknown,
}
