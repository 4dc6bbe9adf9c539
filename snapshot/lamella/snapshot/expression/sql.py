"""Filters from SQL text in Spark's dialect, parsed by sqlglot.

What the language does not use (functions, arithmetic, sub-queries, ...) becomes ``Unknown`` with its reason; what is
not a boolean expression at all is an error that says where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from lamella.snapshot.errors import FilterTypeMismatch, InvalidFilter, LimitExceeded
from lamella.snapshot.expression import moments
from lamella.snapshot.expression.limits import MAX_DEPTH, MAX_IN_LITERALS, MAX_NODES, MAX_SQL_CHARACTERS
from lamella.snapshot.expression.nodes import (
    And,
    Compare,
    Constant,
    In,
    IsNan,
    IsNull,
    IsTrue,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Operator,
    Or,
    Predicate,
    Ref,
    StartsWith,
    Truth,
    Unknown,
)
from lamella.snapshot.expression.sql_constant import bare, constant
from lamella.snapshot.expression.sql_text import doubt, parsed

_COMPARISONS: Final[dict[type[exp.Expr], Operator]] = {
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.EQ: "eq",
    exp.NEQ: "ne",
}
_MIRRORED: Final[dict[Operator, Operator]] = {
    "lt": "gt",
    "le": "ge",
    "gt": "lt",
    "ge": "le",
    "eq": "eq",
    "ne": "ne",
}
#: Arguments that the readers below look at; a node with any other (a form that a newer parser adds) is not used.
_BINARY: Final = frozenset({"this", "expression"})
_ARGUMENTS: Final[dict[type[exp.Expr], frozenset[str]]] = {
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.In: frozenset({"this", "expressions"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.Like: _BINARY | {"negate"},
}


def read_sql(text: str, *, time_zone: str = "UTC") -> Predicate:
    """The predicate of a SQL boolean expression; ``time_zone`` is for TIMESTAMP literals without one.

    Raises:
        InvalidFilter: cannot be parsed, or is not one boolean expression; ``position`` is the 0-based offset.
        LimitExceeded: longer, deeper or with more predicates than allowed.
    """
    if len(text) > MAX_SQL_CHARACTERS:
        raise LimitExceeded(
            f"the filter has {len(text)} characters; SQL text may have {MAX_SQL_CHARACTERS}, use a JSON filter",
            limit=MAX_SQL_CHARACTERS,
        )
    if not text.strip():
        raise InvalidFilter("the filter is empty", position=0)
    if not moments.is_unicode(text):
        raise InvalidFilter("the filter is not valid Unicode", position=0)
    reason = doubt(text)
    if reason is not None:
        return Unknown(text, reason)
    try:
        return _Reader(text, time_zone).read(parsed(text))
    except RecursionError as error:
        raise LimitExceeded(f"the filter is nested deeper than {MAX_DEPTH} levels", limit=MAX_DEPTH) from error


class _Reader:
    def __init__(self, text: str, time_zone: str) -> None:
        self._text = text
        self._time_zone = time_zone
        self._nodes = 0

    def read(self, tree: exp.Expr) -> Predicate:
        if isinstance(tree, exp.Alias):
            raise InvalidFilter("unexpected text after the expression", position=self._position(tree.args["alias"]))
        if not isinstance(tree, exp.Condition) or isinstance(tree, exp.Query):
            raise InvalidFilter("a filter is a boolean expression, not a statement", position=0)
        for placeholder in tree.find_all(exp.Placeholder, exp.Parameter):
            raise InvalidFilter("placeholders have no value here", position=self._position(placeholder))
        return self._predicate(tree, 1)

    def _position(self, node: exp.Expr) -> int:
        start = node.meta.get("start")
        return int(start) if isinstance(start, int) else 0

    def _predicate(self, node: exp.Expr, depth: int) -> Predicate:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise LimitExceeded(f"the filter has more than {MAX_NODES} predicates", limit=MAX_NODES)
        if depth > MAX_DEPTH:
            raise LimitExceeded(f"the filter is nested deeper than {MAX_DEPTH} levels", limit=MAX_DEPTH)
        for kind, reader in _READERS.items():
            if isinstance(node, kind):
                if _has_more(node):
                    return self._unknown(node, "this form of the expression is not used for pruning")
                return reader(self, node, depth)
        return self._unknown(node, "this expression is not used for pruning")

    def _unknown(self, node: exp.Expr, reason: str) -> Unknown:
        names: tuple[str, ...] = ()
        if node.find(exp.Query) is None:
            names = tuple(dict.fromkeys(filter(None, (_path(column) for column in _columns(node)))))
        return Unknown(node.sql(dialect="spark"), reason, names)

    def _paren(self, node: exp.Expr, depth: int) -> Predicate:
        return self._predicate(node.this, depth + 1)

    def _connector(self, node: exp.Expr, depth: int) -> Predicate:
        same = type(node)
        parts: list[exp.Expr] = []
        stack: list[exp.Expr] = [node]
        while stack:  # a chain of a thousand ORs is one level, and no recursion
            top = stack.pop()
            if type(top) is same:
                stack += [top.args["expression"], top.this]
            else:
                parts.append(top)
        children = tuple(self._predicate(part, depth + 1) for part in parts)
        return And(children) if same is exp.And else Or(children)

    def _not(self, node: exp.Expr, depth: int) -> Predicate:
        return Not(self._predicate(node.this, depth + 1))

    def _boolean(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        return Constant(bool(node.this))

    def _no_condition(self, node: exp.Expr, depth: int) -> Predicate:
        if depth > 1 and node.args.get("is_string"):
            return self._unknown(node, "text as a condition is cast by Spark's settings")
        raise FilterTypeMismatch(f"{node.sql(dialect='spark')} is no condition", literal=node.sql(dialect="spark"))

    def _null(self, node: exp.Expr, depth: int) -> Predicate:
        del node, depth
        return Constant(None)

    def _column(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        path = _path(node)
        return Truth(Ref(path)) if path else self._unknown(node, "not a column")

    def _comparison(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        op = _COMPARISONS[type(node)]
        left, right = bare(node.this), bare(node.args["expression"])
        path, literal = _path(left), self._constant(right)
        if path is None or literal is None:
            path, literal, op = _path(right), self._constant(left), _MIRRORED[op]
        if path is None or literal is None:
            return self._unknown(node, _why_not(left, right))
        return Compare(op, Ref(path), literal)

    def _null_safe(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        left, right = bare(node.this), bare(node.args["expression"])
        path, literal = _path(left), self._constant(right)
        if path is None or literal is None:
            path, literal = _path(right), self._constant(left)
        if path is None or literal is None:
            return self._unknown(node, _why_not(left, right))
        equal = NullSafeEqual(Ref(path), literal)
        return Not(equal) if isinstance(node, exp.NullSafeNEQ) else equal

    def _between(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        path = _path(bare(node.this))
        low, high = self._constant(bare(node.args["low"])), self._constant(bare(node.args["high"]))
        if path is None or low is None or high is None or node.args.get("symmetric"):
            return self._unknown(node, "only BETWEEN of a column and two constants is used")
        return And((Compare("ge", Ref(path), low), Compare("le", Ref(path), high)))

    def _in(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        path = _path(bare(node.this))
        items = node.args.get("expressions") or []
        if path is None or not items or node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            return self._unknown(node, "only IN of a column and a list of constants is used")
        if len(items) > MAX_IN_LITERALS:
            raise LimitExceeded(f"IN lists may have {MAX_IN_LITERALS} values", limit=MAX_IN_LITERALS)
        literals = [self._constant(bare(item)) for item in items]
        if any(literal is None for literal in literals):
            return self._unknown(node, "a value of the IN list is not a constant")
        return In(Ref(path), tuple(literal for literal in literals if literal is not None))

    def _is(self, node: exp.Expr, depth: int) -> Predicate:
        what = node.args["expression"]
        path = _path(bare(node.this))
        if isinstance(what, exp.Null):
            return IsNull(Ref(path)) if path else self._unknown(node, "only IS NULL of a column is used")
        if isinstance(what, exp.Boolean):
            child = self._predicate(node.this, depth + 1)
            return IsTrue(child if what.this else Not(child))
        return self._unknown(node, "this form of IS is not used for pruning")

    def _is_nan(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        path = _path(bare(node.this))
        return IsNan(Ref(path)) if path else self._unknown(node, "only isnan of a column is used")

    def _function(self, node: exp.Expr, depth: int) -> Predicate:
        name = str(node.this).lower()
        arguments = node.expressions
        path = _path(bare(arguments[0])) if len(arguments) == 1 else None
        if path and name == "isnull":
            return IsNull(Ref(path))
        if path and name == "isnotnull":
            return Not(IsNull(Ref(path)))
        del depth
        return self._unknown(node, f"function {name} is not used for pruning")

    def _starts_with(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        path, prefix = _path(bare(node.this)), self._constant(bare(node.args["expression"]))
        if path is None or prefix is None or prefix.kind not in ("string", "binary"):
            return self._unknown(node, "only startswith of a column and a constant is used")
        return StartsWith(Ref(path), prefix)

    def _like(self, node: exp.Expr, depth: int, escape: str = "\\") -> Predicate:
        del depth
        path, pattern = _path(bare(node.this)), self._constant(bare(node.args["expression"]))
        if path is None or pattern is None or pattern.kind != "string":
            return self._unknown(node, "only LIKE of a column and a constant pattern is used")
        like = Like(Ref(path), str(pattern.value), escape)
        return Not(like) if node.args.get("negate") else like

    def _escape(self, node: exp.Expr, depth: int) -> Predicate:
        mark = self._constant(node.args["expression"])
        if (
            type(node.this) is exp.Like
            and not _has_more(node.this)
            and mark is not None
            and isinstance(mark.value, str)
            and len(mark.value) == 1
        ):
            return self._like(node.this, depth, mark.value)
        return self._unknown(node, "this form of LIKE is not used for pruning")

    def _constant(self, node: exp.Expr) -> Literal | None:
        return constant(node, self._time_zone)


def _columns(node: exp.Expr) -> list[exp.Expr]:
    """The outermost column references, so that ``a.b.c`` counts once."""
    found: list[exp.Expr] = []
    stack = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, exp.Column | exp.Dot) and _path(top):
            found.append(top)
        else:
            stack += list(top.iter_expressions())
    return found


def _has_more(node: exp.Expr) -> bool:
    """True when a node carries an argument that its reader does not look at."""
    known = _ARGUMENTS.get(type(node), _BINARY)
    return any(value and name not in known for name, value in node.args.items())


def _path(node: exp.Expr) -> str | None:
    """The dotted path of a column reference, None when the node is something else."""
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        return ".".join(part.name for part in node.parts)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        head = _path(node.this)
        return f"{head}.{node.expression.name}" if head else None
    return None


def _why_not(left: exp.Expr, right: exp.Expr) -> str:
    if _path(left) and _path(right):
        return "comparing two columns is not used for pruning"
    if isinstance(left, exp.Func | exp.Binary) or isinstance(right, exp.Func | exp.Binary):
        return "a function or arithmetic over the column is not used for pruning"
    return "only a column compared with a constant is used for pruning"


_READERS: Final[dict[type[exp.Expr], Callable[[_Reader, exp.Expr, int], Predicate]]] = {
    exp.Paren: _Reader._paren,
    exp.And: _Reader._connector,
    exp.Or: _Reader._connector,
    exp.Not: _Reader._not,
    exp.Boolean: _Reader._boolean,
    exp.Null: _Reader._null,
    exp.Literal: _Reader._no_condition,
    exp.Column: _Reader._column,
    exp.Dot: _Reader._column,
    exp.LT: _Reader._comparison,
    exp.LTE: _Reader._comparison,
    exp.GT: _Reader._comparison,
    exp.GTE: _Reader._comparison,
    exp.EQ: _Reader._comparison,
    exp.NEQ: _Reader._comparison,
    exp.NullSafeEQ: _Reader._null_safe,
    exp.NullSafeNEQ: _Reader._null_safe,
    exp.Between: _Reader._between,
    exp.In: _Reader._in,
    exp.Is: _Reader._is,
    exp.IsNan: _Reader._is_nan,
    exp.Anonymous: _Reader._function,
    exp.StartsWith: _Reader._starts_with,
    exp.Like: _Reader._like,
    exp.Escape: _Reader._escape,
}
