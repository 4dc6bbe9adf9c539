"""Filters from JSON: the Iceberg REST expression grammar in both its spellings, and exact typed literals.

``{"type": "gt", "term": "a", "value": 4}`` and ``{"type": "gt", "left": {"type": "reference", "name": "a"},
"right": 4}`` say the same. Added here: many ``children`` under ``and``/``or``, ``eq-null-safe``, ``like``,
``is-true``, ``is-unknown`` (a predicate is null), typed literals
``{"type": "literal", "data-type": "timestamp", "value": <microseconds>}``, and
``{"type": "unknown", "text": ..., "reason": ...}`` for what a client cannot express.

A null comparison value keeps everything: clients write infinity as null (seen from pyiceberg).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lamella.snapshot.errors import LimitExceeded
from lamella.snapshot.expression.json_literal import encodable, json_literal, json_literals, shown, wrong
from lamella.snapshot.expression.limits import MAX_DEPTH, MAX_IN_LITERALS, MAX_NODES
from lamella.snapshot.expression.nodes import (
    FUNCTIONS,
    And,
    Call,
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
    Not,
    NullSafeEqual,
    Operator,
    Or,
    Place,
    Predicate,
    Ref,
    StartsWith,
    Term,
    Truth,
    Unknown,
)
from lamella.snapshot.expression.text import term_text
from lamella.snapshot.patience import check_patience

_OPERATORS: Final[dict[str, Operator]] = {
    "lt": "lt",
    "lt-eq": "le",
    "gt": "gt",
    "gt-eq": "ge",
    "eq": "eq",
    "not-eq": "ne",
}


def read_tree(tree: Any) -> Predicate:
    """The predicate of a JSON filter (already parsed).

    Raises:
        InvalidFilter: not of the grammar; ``position`` is a JSON path.
        LimitExceeded: deeper or with more predicates or values than allowed.
    """
    return _Reader().predicate(tree, "$", 1)


class _Reader:
    def __init__(self) -> None:
        self._nodes = 0

    def predicate(self, node: Any, path: str, depth: int) -> Predicate:
        check_patience()
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise LimitExceeded(
                f"the filter has more than {MAX_NODES} predicates", limit="filter_predicates", most=MAX_NODES
            )
        if depth > MAX_DEPTH:
            raise LimitExceeded(
                f"the filter is nested deeper than {MAX_DEPTH} levels", limit="filter_depth", most=MAX_DEPTH
            )
        if isinstance(node, bool):
            return Constant(node)
        if not isinstance(node, dict) or not isinstance(node.get("type"), str):
            raise wrong(path, "an expression is true, false or an object with a type")
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
                raise wrong(f"{path}.children", "a list of expressions is needed")
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
            return Truth(term, at=Place(path))
        test: Predicate = (IsNull if kind.endswith("null") else IsNan)(term, at=Place(path))
        return Not(test) if kind.startswith("not-") else test

    def _compare(self, kind: str, node: dict[str, Any], path: str) -> Predicate:
        left, right = self._term(node, path), self._operand(node, path)
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return left if isinstance(left, Unknown) else right  # type: ignore[return-value]  # one of them is
        if isinstance(right, Literal) and right.kind == "null":
            reason = "a null value says nothing (infinity is written so)"
            return Unknown(f"{term_text(left)} {kind} null", reason, _columns(left), at=Place(path))
        return Compare(_OPERATORS[kind], left, right, at=Place(path))

    def _null_safe(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del depth
        left, right = self._term(node, path), self._operand(node, path)
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return left if isinstance(left, Unknown) else right  # type: ignore[return-value]  # one of them is
        return NullSafeEqual(left, right, at=Place(path))

    def _in(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del depth
        term = self._term(node, path)
        values = node.get("values", node.get("right"))
        if isinstance(values, dict):
            values = values.get("values")
        if not isinstance(values, list):
            raise wrong(f"{path}.values", "a list of values is needed")
        if len(values) > MAX_IN_LITERALS:
            raise LimitExceeded(f"IN lists may have {MAX_IN_LITERALS} values", limit="in_values", most=MAX_IN_LITERALS)
        literals = json_literals(values, f"{path}.values")
        if isinstance(term, Unknown):
            return term
        if not literals:
            inside: Predicate = Constant(False)
        elif None in values:  # an untyped null may have been infinity
            reason = "a null in the list says nothing"
            inside = Unknown(f"{term_text(term)} in (..., null)", reason, _columns(term), at=Place(path))
        else:
            inside = In(term, literals, at=Place(path))
        return Not(inside) if node["type"].lower() == "not-in" else inside

    def _starts_with(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del depth
        term, literal = self._term(node, path), _value(node, path)
        if isinstance(term, Unknown):
            return term
        if literal.kind not in ("text", "string", "binary"):
            raise wrong(f"{path}.value", "a prefix is text")
        test = StartsWith(term, literal, at=Place(path))
        return Not(test) if node["type"].lower().startswith("not-") else test

    def _like(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del depth
        term, literal = self._term(node, path), _value(node, path)
        escape = node.get("escape", "\\")
        if isinstance(term, Unknown):
            return term
        if literal.kind not in ("text", "string") or not isinstance(escape, str) or len(escape) > 1:
            raise wrong(f"{path}.value", "a pattern is text, its escape one character")
        encodable(escape, path)
        return Like(term, str(literal.value), escape, at=Place(path))

    def _term(self, node: dict[str, Any], path: str) -> Ref | Call | Cast | Unknown:
        name = "term" if "term" in node else "left"
        if name not in node and "child" in node:
            name = "child"
        term = self._read_term(_member(node, name, path), f"{path}.{name}", 1)
        if isinstance(term, Literal):
            raise wrong(f"{path}.{name}", "a term is a column's name, a reference or a function")
        return term

    def _operand(self, node: dict[str, Any], path: str) -> Term | Unknown:
        """The right side: a value, or another term."""
        name = "value" if "value" in node else "right"
        given = _member(node, name, path)
        if isinstance(given, dict) and given.get("type") != "literal":
            return self._read_term(given, f"{path}.{name}", 1)
        return json_literal(given, f"{path}.{name}")

    def _read_term(self, term: Any, path: str, depth: int) -> Term | Unknown:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise LimitExceeded(
                f"the filter has more than {MAX_NODES} predicates", limit="filter_predicates", most=MAX_NODES
            )
        if depth > MAX_DEPTH:
            raise LimitExceeded(
                f"a term is nested deeper than {MAX_DEPTH} levels", limit="filter_depth", most=MAX_DEPTH
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
            if kind in ("transform", "apply"):
                transform = shown(term.get("transform", term.get("function")))
                return Unknown(f"{kind} {transform}", "transforms of columns are not used")
        raise wrong(path, "a term is a column's name, a reference or a function")

    def _call(self, term: dict[str, Any], path: str, depth: int) -> Term | Unknown:
        function, given = term.get("function"), term["arguments"]
        counts = FUNCTIONS.get(function) if isinstance(function, str) else None
        if counts is None:
            return Unknown(f"function {shown(function)}", "this function is not used for pruning")
        if len(given) not in counts:
            raise wrong(f"{path}.arguments", f"{function} has not {len(given)} arguments")
        arguments: list[Term] = []
        for index, each in enumerate(given):
            made = self._read_term(each, f"{path}.arguments[{index}]", depth + 1)
            if isinstance(made, Unknown):
                return made
            arguments.append(made)
        return Call(str(function), tuple(arguments))

    def _unknown(self, node: dict[str, Any], path: str, depth: int) -> Predicate:
        del depth
        text, reason = node.get("text", "?"), node.get("reason", "the client could not express it")
        if not isinstance(text, str) or not isinstance(reason, str):
            raise wrong(path, "text and reason of an unknown expression are text")
        encodable(text, path)
        encodable(reason, path)
        return Unknown(text, reason)


def _member(node: dict[str, Any], name: str, path: str) -> Any:
    if name not in node:
        raise wrong(path, f"{node['type']} needs {name!r}")
    return node[name]


def _columns(term: Term) -> tuple[str, ...]:
    """The columns that a term names."""
    match term:
        case Ref(path):
            return (path,)
        case Cast(inner, _):
            return _columns(inner)
        case Call(_, arguments):
            return tuple(dict.fromkeys(name for argument in arguments for name in _columns(argument)))
        case _:
            return ()


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
    "unknown": _Reader._unknown,
}
