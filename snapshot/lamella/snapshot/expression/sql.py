"""Filters from SQL text in Spark's dialect, parsed by sqlglot.

Unsupported parts (functions, arithmetic, sub-queries, ...) become ``Unknown`` with the reason; text that is not a
boolean expression at all is an error with its position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

from lamella.snapshot.concurrency import ContextThreadPool, check_deadline
from lamella.snapshot.errors import FilterTypeMismatch, InvalidFilter, LimitExceeded
from lamella.snapshot.expression import spark_casts
from lamella.snapshot.expression.cases import branches
from lamella.snapshot.expression.near_functions import NearFunctions
from lamella.snapshot.expression.nodes import (
    MAX_DEPTH,
    MAX_IN_LITERALS,
    MAX_NODES,
    MAX_REQUEST_SQL_TOKENS,
    MAX_SQL_CHARACTERS,
    MAX_WRITTEN_OUT,
    MIRRORED,
    SURE_SQL_DEPTH,
    And,
    Call,
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
    Predicate,
    Ref,
    SourcePosition,
    StartsWith,
    Term,
    Truth,
    Unknown,
    is_known,
    part_count,
)
from lamella.snapshot.expression.regexp import like_literal, regexp
from lamella.snapshot.expression.sql_parse import Source, doubt, parsed, parts_of, token_count
from lamella.snapshot.expression.sql_plain import LongList, long_lists, read_plain
from lamella.snapshot.expression.sql_terms import ImpossibleLiteral, TermReader, bare, path_of

_COMPARISONS: Final[dict[type[exp.Expr], Operator]] = {
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.EQ: "eq",
    exp.NEQ: "ne",
}
#: Expressions that are predicates and not terms.
_CONDITIONS: Final = (
    *(exp.And, exp.Or, exp.Not, exp.Boolean, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ, exp.NullSafeEQ),
    *(exp.NullSafeNEQ, exp.Between, exp.In, exp.Is, exp.IsNan, exp.StartsWith, exp.Like, exp.Escape),
    *(exp.ILike, exp.RegexpLike, exp.Contains, exp.EndsWith, exp.Case, exp.If),
)
#: Arguments that the readers below evaluate; a node with any other (a form that a newer parser adds) is not used.
_BINARY: Final = frozenset({"this", "expression"})
_ARGUMENTS: Final[dict[type[exp.Expr], frozenset[str]]] = {
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.In: frozenset({"this", "expressions"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.Like: _BINARY | {"negate"},
    exp.ILike: _BINARY | {"negate"},
    exp.If: frozenset({"this", "true", "false"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
}


def read_sql(text: str, *, time_zone: str = "UTC", now_us: int | None = None) -> Predicate:
    """Returns the predicate of a SQL boolean expression; ``time_zone`` is for TIMESTAMP literals without one.

    ``now_us``: the time of ``now()`` and similar functions, in microseconds since the epoch; None: they are not used.

    Raises:
        InvalidFilter: cannot be parsed, or is not one boolean expression; ``position`` is the 0-based offset.
        LimitExceeded: longer, deeper or with more predicates than allowed.
    """
    if len(text) > MAX_SQL_CHARACTERS:
        raise LimitExceeded(
            f"the filter has {len(text)} characters; SQL text may have {MAX_SQL_CHARACTERS}, use a JSON filter",
            limit="sql_characters",
            maximum=MAX_SQL_CHARACTERS,
        )
    if not text.strip():
        raise InvalidFilter("the filter is empty", position=0)
    if not spark_casts.is_unicode(text):
        raise InvalidFilter("the filter is not valid Unicode", position=0)
    plain = read_plain(text, time_zone)
    if plain is not None:
        return plain
    return read_fully(text, time_zone, now_us, long_lists(text, time_zone))


def check_together(filters: Iterable[Any]) -> None:
    """Raise LimitExceeded if the SQL texts of the filters of one request are too long for the parser in total."""
    texts = [each for each in filters if isinstance(each, str)]
    if sum(map(len, texts)) <= MAX_REQUEST_SQL_TOKENS:
        return
    left = MAX_REQUEST_SQL_TOKENS
    for text in texts:
        check_deadline()
        if read_plain(text, "UTC") is None:
            left -= token_count(text, left)
        if left < 0:
            raise LimitExceeded(
                f"the filters have more than {MAX_REQUEST_SQL_TOKENS} words, numbers, texts and signs together, not "
                "counting those of filters with only columns and constants"
                "",
                limit="sql_tokens",
                maximum=MAX_REQUEST_SQL_TOKENS,
            )


def read_fully(text: str, time_zone: str, now_us: int | None = None, lists: Sequence[LongList] = ()) -> Predicate:
    """Like :func:`read_sql`, with the parser, for a text within its length that is valid Unicode and not empty.

    ``lists``: the parts of the text that have already been read.
    """
    reason = doubt(text)
    if reason is not None:
        return Unknown(text, reason)
    try:
        return _read(text, time_zone, now_us, lists)
    except RecursionError:
        pass
    # Repeated on a separate stack: the depth limit of a filter must not depend on the caller's stack.
    with ContextThreadPool(max_workers=1, thread_name_prefix="deep-filter") as pool:
        try:
            return pool.submit(_read, text, time_zone, now_us, lists).result()
        except RecursionError as error:
            message = (
                f"the filter is nested too deeply; {SURE_SQL_DEPTH} levels always work, a JSON filter can have more"
            )
            raise LimitExceeded(message, limit="filter_depth", maximum=SURE_SQL_DEPTH) from error


def _read(text: str, time_zone: str, now_us: int | None, lists: Sequence[LongList]) -> Predicate:
    if lists and _MARK not in text:
        tree, tokens = parsed(_without(text, lists))  # the rest keeps its position in the text
        reader = _Reader(Source(text, tokens, tree), time_zone, now_us, lists)
        found = reader.read(tree)
        if len(reader.lists_read) == len(lists):
            return found
    tree, tokens = parsed(text)
    return _Reader(Source(text, tokens, tree), time_zone, now_us).read(tree)


#: Fields of rows that are compared by order: each repeats the comparisons of those before it.
_MAX_ORDERED_FIELDS: Final = 20
#: Replaces a long list, with its number and the mark again after it, as the only text of the list.
_MARK: Final = "\ue000"
#: Maximum characters of an expression in a reason.
_SHOWN: Final = 200
_MARKED: Final = re.compile(f"'{_MARK}([0-9]+){_MARK}'")


def _without(text: str, lists: Sequence[LongList]) -> str:
    """Returns the text with a mark in place of each list; everything after it keeps its line and offset."""
    parts: list[str] = []
    at = 0
    for number, each in enumerate(lists):
        mark = f"('{_MARK}{number}{_MARK}')"
        blank = re.sub("[^\r\n]", " ", text[each.start + len(mark) : each.end])
        parts += [text[at : each.start], mark, blank]
        at = each.end
    return "".join([*parts, text[at:]])


class _Reader:
    """Reads a syntax tree. ``lists``: the lists that the marks stand for; ``lists_read``: the numbers of those that
    were found again."""

    def __init__(self, source: Source, time_zone: str, now_us: int | None, lists: Sequence[LongList] = ()) -> None:
        self._source = source
        self._depth = 0
        self._terms = TermReader(time_zone, now_us, self._condition)
        self._nodes = 0
        self._near = NearFunctions()
        self._lists = lists
        self.lists_read: set[int] = set()

    def read(self, tree: exp.Expr) -> Predicate:
        if isinstance(tree, exp.Alias):
            raise InvalidFilter("unexpected text after the expression", position=self._position(tree.args["alias"]))
        if not isinstance(tree, exp.Condition) or isinstance(tree, exp.Query):
            raise InvalidFilter("a filter must be a boolean expression, not a statement", position=0)
        for placeholder in tree.find_all(exp.Placeholder, exp.Parameter):
            raise InvalidFilter("placeholders are not supported", position=self._position(placeholder))
        return self._predicate(tree, 1)

    def _position(self, node: exp.Expr) -> int:
        start = node.meta.get("start")
        return int(start) if isinstance(start, int) else 0

    def _condition(self, node: exp.Expr) -> Predicate:
        """Returns the condition of a CASE inside of a term."""
        return self._predicate(node, self._depth + 1)

    def _predicate(self, node: exp.Expr, depth: int) -> Predicate:
        self._nodes += 1
        outer, self._depth = self._depth, depth
        try:
            return self._checked(node, depth)
        finally:
            self._depth = outer

    def _checked(self, node: exp.Expr, depth: int) -> Predicate:
        check_deadline()
        if self._nodes > MAX_NODES:
            raise LimitExceeded(
                f"the filter has more than {MAX_NODES} predicates", limit="filter_predicates", maximum=MAX_NODES
            )
        if depth > MAX_DEPTH:
            raise LimitExceeded(
                f"the filter is nested deeper than {MAX_DEPTH} levels", limit="filter_depth", maximum=MAX_DEPTH
            )
        try:
            return self._read(node, depth)
        except ImpossibleLiteral as error:
            position = self._source.offset_of_constant(node, error.text)
            raise InvalidFilter(f"{error} (at offset {position})", position=position) from None

    def _read(self, node: exp.Expr, depth: int) -> Predicate:
        for kind, reader in _READERS.items():
            if isinstance(node, kind):
                if _has_more(node):
                    return self._unknown(node, "this form of the expression is not used for pruning")
                return reader(self, node, depth)
        term = self._column_term(node)
        if term is None:
            return self._unknown(node, "this expression is not used for pruning")
        return Truth(term, at=self._source_position(node))

    def _source_position(self, node: exp.Expr) -> SourcePosition:
        return SourcePosition(self._source.offset(node))

    def _unknown(self, node: exp.Expr, reason: str) -> Unknown:
        names: tuple[str, ...] = ()
        if node.find(exp.Query) is None:
            names = tuple(dict.fromkeys(filter(None, (path_of(column) for column in _columns(node)))))
        text = self._source.text(node)
        if text is None:
            text = self._spelled(node)
        elif self._lists:
            start = self._source.offset(node) or 0
            end = start + len(text)
            self.lists_read.update(number for number, each in enumerate(self._lists) if start <= each.start < end)
        return Unknown(text, reason + self._near_function(node), names, at=self._source_position(node))

    def _near_function(self, node: exp.Expr) -> str:
        """Returns a hint for the first function that Spark's dialect does not know; empty if there is none."""
        found = node.find(exp.Anonymous)
        return "" if found is None else self._near.hint(str(found.this))

    def _spelled(self, node: exp.Expr) -> str:
        """Returns what was read as text, with its long lists."""
        text = _spelled(node)
        if not self._lists:
            return text
        return _MARKED.sub(self._listed, text)

    def _listed(self, mark: re.Match[str]) -> str:
        each = self._lists[int(mark[1])]
        self.lists_read.add(int(mark[1]))
        return self._source.between(each.start + 1, each.end - 1)

    def _why_not(self, *sides: exp.Expr) -> str:
        for side in sides:
            node = bare(side)
            if isinstance(node, exp.Func | exp.Binary):
                text = _MARKED.sub("...", _spelled(node))
                shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
                return f"{shown} is not used for pruning"
        return "only comparisons of columns, constants and known functions are used for pruning"

    def _paren(self, node: exp.Expr, depth: int) -> Predicate:
        return self._predicate(node.this, depth + 1)

    def _connector(self, node: exp.Expr, depth: int) -> Predicate:
        parts = parts_of(node)
        children = tuple(self._predicate(part, depth + 1) for part in parts)
        return And(children) if isinstance(node, exp.And) else Or(children)

    def _not(self, node: exp.Expr, depth: int) -> Predicate:
        child = self._predicate(node.this, depth + 1)
        if isinstance(child, Unknown) and self._source.text(node.this) is None:  # x NOT IN (...) as a whole
            text = self._source.text(node)
            return child if text is None else Unknown(text, child.reason, child.columns, at=self._source_position(node))
        return Not(child)

    def _boolean(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        return Constant(bool(node.this))

    def _no_condition(self, node: exp.Expr, depth: int) -> Predicate:
        if depth > 1 and node.args.get("is_string"):
            return self._unknown(node, "how text as a condition is cast depends on Spark's settings")
        position = self._source.offset(node) or 0
        raise FilterTypeMismatch(f"{_spelled(node)} is not a condition", literal=_spelled(node), position=position)

    def _null(self, node: exp.Expr, depth: int) -> Predicate:
        del node, depth
        return Constant(None)

    def _column(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        path = path_of(node)
        return Truth(Ref(path), at=self._source_position(node)) if path else self._unknown(node, "not a column")

    def _cases(self, node: exp.Expr, depth: int) -> Predicate:
        """Returns a CASE (or ``if``) of conditions; one of values is a term."""
        if isinstance(node, exp.If):
            listed, default = [(node.this, node.args["true"])], node.args.get("false")
        else:
            listed, default = [(each.this, each.args["true"]) for each in node.args["ifs"]], node.args.get("default")
            if node.args.get("this") is not None:
                listed = [(exp.EQ(this=node.this, expression=value), result) for value, result in listed]
        conditions = [self._predicate(condition, depth + 1) for condition, _ in listed]
        results = [self._predicate(result, depth + 1) for _, result in listed]
        rest = Constant(None) if default is None else self._predicate(default, depth + 1)
        if not all(map(is_known, (*conditions, *results, rest))):  # only the whole can be repeated as it was written
            return self._unknown(node, "a part of this CASE is not used for pruning")
        return self._written_out(node, branches(conditions, [*results, rest]))

    def _written_out(self, node: exp.Expr, made: Predicate) -> Predicate:
        """Returns a predicate that has some parts several times, unless it is too large: nested, it would grow without
        bound."""
        if part_count(made, MAX_WRITTEN_OUT) < MAX_WRITTEN_OUT:
            return made
        return self._unknown(node, "the expression is too large")

    def _comparison(self, node: exp.Expr, depth: int) -> Predicate:
        fields = _fields_of(node.this), _fields_of(node.args["expression"])
        if fields[0] and len(fields[0]) == len(fields[1]):
            return self._rows(node, list(zip(*fields, strict=True)))
        op, left, right = _COMPARISONS[type(node)], *self._sides(node)
        if (left is None or right is None) and op in ("eq", "ne"):
            equal = self._equal_conditions(node, depth)
            if equal is not None:
                return Not(equal) if op == "ne" else equal
        if left is None or right is None:
            return self._unknown(node, self._why_not(node.this, node.args["expression"]))
        if isinstance(left, Literal) and not isinstance(right, Literal):
            return Compare(MIRRORED[op], right, left, at=self._source_position(node))
        return Compare(op, left, right, at=self._source_position(node))

    def _equal_conditions(self, node: exp.Expr, depth: int) -> Predicate | None:
        """Returns ``(a > 1) = (b > 1)``; None if a side is no condition."""
        sides = [bare(node.this), bare(node.args["expression"])]
        if not all(isinstance(side, _CONDITIONS) or path_of(side) for side in sides):
            return None
        left, right = (self._predicate(side, depth + 1) for side in sides)
        if not (is_known(left) and is_known(right)):
            return None
        return self._written_out(node, Or((And((left, right)), And((Not(left), Not(right))))))

    def _rows(self, node: exp.Expr, pairs: list[tuple[exp.Expr, exp.Expr]]) -> Predicate:
        """Returns a comparison of rows, ``(a, b) < (1, 2)``: field by field; null equals null and is less than any
        value."""
        op, at = _COMPARISONS[type(node)], self._source_position(node)
        sides = [(self._terms.read(left), self._terms.read(right)) for left, right in pairs]
        fields = [(left, right) for left, right in sides if left is not None and right is not None]
        if len(fields) < len(sides):
            return self._unknown(node, self._why_not(*(side for pair in pairs for side in pair)))
        if op not in ("eq", "ne") and len(fields) > _MAX_ORDERED_FIELDS:
            return self._unknown(node, f"rows of more than {_MAX_ORDERED_FIELDS} fields are not ordered")
        if op in ("gt", "ge"):
            fields = [(right, left) for left, right in fields]
        equal = tuple(
            NullSafeEqual(right, left, at=at) if isinstance(left, Literal) else NullSafeEqual(left, right, at=at)
            for left, right in fields
        )
        if op in ("eq", "ne"):
            return And(equal) if op == "eq" else Not(And(equal))
        parts: list[Predicate] = []
        for index, (left, right) in enumerate(fields):
            less = IsTrue(Compare("lt", left, right, at=at))
            parts.append(And((*equal[:index], Or((less, And((_is_null(left), Not(_is_null(right)))))))))
        return Or((*parts, And(equal)) if op in ("le", "ge") else tuple(parts))

    def _null_safe(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        left, right = self._sides(node)
        if left is None or right is None:
            return self._unknown(node, self._why_not(node.this, node.args["expression"]))
        if isinstance(left, Literal):
            left, right = right, left
        equal = NullSafeEqual(left, right, at=self._source_position(node))
        return Not(equal) if isinstance(node, exp.NullSafeNEQ) else equal

    def _sides(self, node: exp.Expr) -> tuple[Term | None, Term | None]:
        return self._terms.read(node.this), self._terms.read(node.args["expression"])

    def _between(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        term, low, high = (self._terms.read(node.args[name]) for name in ("this", "low", "high"))
        if term is None or low is None or high is None or isinstance(term, Literal):
            return self._unknown(node, "one side of this BETWEEN is not supported")
        position = self._source_position(node)
        return And((Compare("ge", term, low, at=position), Compare("le", term, high, at=position)))

    def _in(self, node: exp.Expr, depth: int) -> Predicate:
        items = node.args.get("expressions") or []
        fields = _fields_of(node.this)
        if fields and all(len(_fields_of(item)) == len(fields) for item in items):
            return Or(tuple(self._comparison(exp.EQ(this=node.this, expression=item), depth) for item in items))
        del depth
        term = self._terms.read(node.this)
        if term is None or isinstance(term, Literal) or not items:
            return self._unknown(node, "IN is only used with a column and a list of constants")
        marked = _MARKED.fullmatch(f"'{items[0].this}'") if self._lists and isinstance(items[0], exp.Literal) else None
        if marked is not None and len(items) == 1:
            self.lists_read.add(int(marked[1]))
            return In(term, self._lists[int(marked[1])].literals, at=self._source_position(node))
        if len(items) > MAX_IN_LITERALS:
            raise LimitExceeded(
                f"IN lists may have {MAX_IN_LITERALS} values", limit="in_values", maximum=MAX_IN_LITERALS
            )
        literals = [self._terms.listed(item) for item in items]
        if any(literal is None for literal in literals):
            return self._unknown(node, "a value of the IN list is not a constant")
        return In(term, tuple(literal for literal in literals if literal is not None), at=self._source_position(node))

    def _is(self, node: exp.Expr, depth: int) -> Predicate:
        what = node.args["expression"]
        if isinstance(what, exp.Null):
            test = self._null_test(node.this, node, depth)
            return test or self._unknown(node, "IS NULL of this expression is not used")
        if isinstance(what, exp.Boolean):
            child = self._predicate(node.this, depth + 1)
            return IsTrue(child if what.this else Not(child))
        return self._unknown(node, "this form of IS is not used for pruning")

    def _null_test(self, tested: exp.Expr, node: exp.Expr, depth: int) -> Predicate | None:
        """Returns the null test that ``node`` makes of a term or a predicate; None if the operand is not supported."""
        term = self._column_term(tested)
        if term is not None:
            return IsNull(term, at=self._source_position(node))
        if not isinstance(bare(tested), _CONDITIONS):
            return None
        child = self._predicate(bare(tested), depth + 1)
        return None if isinstance(child, Unknown) else IsUnknown(child)

    def _column_term(self, node: exp.Expr) -> Term | None:
        """Returns a term that is not a constant."""
        term = self._terms.read(node)
        return None if isinstance(term, Literal) else term

    def _is_nan(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        term = self._column_term(node.this)
        return (
            IsNan(term, at=self._source_position(node))
            if term
            else self._unknown(node, "isnan of this expression is not used")
        )

    def _function(self, node: exp.Expr, depth: int) -> Predicate:
        name = str(node.this).lower()
        arguments = node.expressions
        if name in ("isnull", "isnotnull") and len(arguments) == 1:
            test = self._null_test(arguments[0], node, depth)
            if test is not None:
                return test if name == "isnull" else Not(test)
        if name == "regexp" and len(arguments) == 2:
            return self._regexp(exp.RegexpLike(this=arguments[0], expression=arguments[1]), depth)
        condition = self._column_term(node)
        if condition is None:
            return self._unknown(node, f"function {name} is not used for pruning")
        return Truth(condition, at=self._source_position(node))

    def _starts_with(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        term, prefix = self._column_term(node.this), self._terms.constant(node.args["expression"])
        if term is None or prefix is None or prefix.kind not in ("string", "binary"):
            return self._unknown(node, "startswith is only used with a column and a constant")
        return StartsWith(term, prefix, at=self._source_position(node))

    def _like(self, node: exp.Expr, depth: int, escape: str = "\\") -> Predicate:
        several = node.args["expression"]
        if isinstance(several, exp.Any | exp.All) and isinstance(bare(several.this), exp.Tuple):
            patterns = bare(several.this).expressions
            each = tuple(self._like(type(node)(this=node.this, expression=one), depth, escape) for one in patterns)
            if not all(map(is_known, each)):  # only the whole can be repeated as it was written
                return self._unknown(node, "LIKE is only used with a column and constant patterns")
            if node.args.get("negate"):  # NOT LIKE ANY: one of the patterns does not match
                each = tuple(map(Not, each))
            return Or(each) if isinstance(several, exp.Any) else And(each)
        term, pattern = self._column_term(node.this), self._terms.constant(node.args["expression"])
        if term is None or pattern is None or pattern.kind != "string":
            return self._unknown(node, "LIKE is only used with a column and a constant pattern")
        text = str(pattern.value)
        if isinstance(node, exp.ILike):  # Spark compares both in lower case
            if not text.isascii():
                return self._unknown(node, "ILIKE is used with patterns in ASCII")
            term, text = Call("lower", (term,)), text.lower()
        like = Like(term, text, escape, at=self._source_position(node))
        return Not(like) if node.args.get("negate") else like

    def _regexp(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        term, pattern = self._column_term(node.this), self._terms.constant(node.args["expression"])
        if term is None or pattern is None or pattern.kind != "string":
            return self._unknown(node, "RLIKE is only used with a column and a constant pattern")
        return regexp(term, str(pattern.value), self._unknown(node, "regular expressions are not evaluated"))

    def _contains(self, node: exp.Expr, depth: int) -> Predicate:
        del depth
        is_end = isinstance(node, exp.EndsWith)
        term, part = self._column_term(node.this), self._terms.constant(node.args["expression"])
        if term is None or part is None or part.kind != "string":
            return self._unknown(node, "contains and endswith are only used with a column and a constant")
        pattern = like_literal(str(part.value))
        return Like(term, f"%{pattern}" if is_end else f"%{pattern}%", at=self._source_position(node))

    def _escape(self, node: exp.Expr, depth: int) -> Predicate:
        mark = self._terms.constant(node.args["expression"])
        if (
            type(node.this) in (exp.Like, exp.ILike)
            and not _has_more(node.this)
            and mark is not None
            and isinstance(mark.value, str)
            and len(mark.value) == 1
        ):
            return self._like(node.this, depth, mark.value)
        return self._unknown(node, "this form of LIKE is not used for pruning")


def _is_null(term: Term) -> Predicate:
    return Constant(term.kind == "null") if isinstance(term, Literal) else IsNull(term)


def _fields_of(node: exp.Expr) -> list[exp.Expr]:
    """Returns the fields of a row of several values, ``(a, b)``; none for anything else."""
    node = bare(node)
    return list(node.expressions) if isinstance(node, exp.Tuple) else []


def _columns(node: exp.Expr) -> list[exp.Expr]:
    """Returns the outermost column references, so that ``a.b.c`` counts once."""
    found: list[exp.Expr] = []
    stack = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, exp.Column | exp.Dot) and path_of(top):
            found.append(top)
            continue
        while isinstance(top, exp.Dot) and isinstance(top.expression, exp.Identifier):
            top = top.this  # a part of something that is not a column
        if not isinstance(top, exp.DataType):  # its collation looks like a column
            stack += list(top.iter_expressions())
    return found


def _has_more(node: exp.Expr) -> bool:
    """Returns whether a node has an argument that its reader does not evaluate."""
    known = _ARGUMENTS.get(type(node), _BINARY)
    return any(value and name not in known for name, value in node.args.items())


def _spelled(node: exp.Expr) -> str:
    """Returns what was read as text; sqlglot cannot write everything that it reads."""
    try:
        return node.sql(dialect="spark")
    except (SqlglotError, ValueError, LookupError, TypeError, AttributeError):
        return f"a use of {node.key}"


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
    exp.ILike: _Reader._like,
    exp.Escape: _Reader._escape,
    exp.RegexpLike: _Reader._regexp,
    exp.Contains: _Reader._contains,
    exp.EndsWith: _Reader._contains,
    exp.If: _Reader._cases,
    exp.Case: _Reader._cases,
    exp.EqualNull: _Reader._null_safe,
}
