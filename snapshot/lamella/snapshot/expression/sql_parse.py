"""Parses SQL text to a syntax tree with sqlglot, and finds the position of each part in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.parsers.spark import SparkParser

from lamella.snapshot.concurrency import check_deadline
from lamella.snapshot.errors import InvalidFilter, LimitExceeded
from lamella.snapshot.expression.nodes import (
    MAX_DEPTH,
    MAX_NODES_PER_TOKEN,
    MAX_SQL_TOKENS,
    MAX_SQL_TYPE_DEPTH,
    NODES_BESIDE,
)

# The part of a text that each predicate was read from, for positions in errors and the original text of unused parts.
#
# sqlglot only keeps the positions of names, and writes expressions in its own way, which may have another meaning in
# Spark (``1L`` as a cast, ``TIME '12:00:00'`` as a timestamp). So the tokens are matched with the tree again, down to
# the operands of connectives.

_OPENING_TOKENS: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING_TOKENS: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})
_WORDS: Final[dict[type[exp.Expr], TokenType]] = {exp.And: TokenType.AND, exp.Or: TokenType.OR}


def parts_of(node: exp.Expr) -> list[exp.Expr]:
    """Returns the operands of a chain of one connective, left to right: a chain of a thousand is one level, without
    recursion."""
    same = type(node)
    parts: list[exp.Expr] = []
    stack: list[exp.Expr] = [node]
    while stack:
        top = stack.pop()
        if type(top) is same:
            stack += [top.args["expression"], top.this]
        else:
            parts.append(top)
    return parts


class Source:
    """The text of a tree's predicates; unmatched ones have none."""

    def __init__(self, text: str, tokens: Sequence[Token], tree: exp.Expr) -> None:
        self._text = text
        self._tokens = tokens
        self._spans: dict[int, tuple[int, int]] = {}
        self._starts: dict[int, int] = {}
        if tokens and tokens[-1].token_type == TokenType.SEMICOLON:
            tokens = tokens[:-1]
        left: list[tuple[exp.Expr, int, int]] = [(tree, 0, len(tokens))] if tokens else []
        while left:
            node, first, end = left.pop()
            self._spans[id(node)], self._starts[id(node)] = (first, end), tokens[first].start
            left += self._inside(node, first, end)

    def text(self, node: exp.Expr) -> str | None:
        """Returns the text that a predicate was read from, including comments inside of it."""
        span = self._spans.get(id(node))
        return None if span is None else self._text[self._tokens[span[0]].start : self._tokens[span[1] - 1].end + 1]

    def between(self, start: int, end: int) -> str:
        """Returns the text from one offset to another."""
        return self._text[start:end]

    def offset(self, node: exp.Expr) -> int | None:
        """Returns the 0-based offset of its first character."""
        return self._starts.get(id(node))

    def offset_of_constant(self, node: exp.Expr, text: str) -> int | None:
        """Returns the offset of a quoted text or a number inside of a predicate."""
        first, end = self._spans.get(id(node), (0, len(self._tokens)))
        for token in self._tokens[first:end]:
            if token.token_type in (TokenType.STRING, TokenType.NUMBER) and token.text == text:
                return token.start
        return self.offset(node)

    def _inside(self, node: exp.Expr, first: int, end: int) -> Iterator[tuple[exp.Expr, int, int]]:
        """Yields the operands of a predicate that are predicates, each with its tokens."""
        start = self._tokens[first].token_type
        if isinstance(node, exp.Paren):
            if start == TokenType.L_PAREN and end - first > 2:
                yield node.this, first + 1, end - 1
        elif isinstance(node, exp.And | exp.Or):
            parts, cuts = parts_of(node), self._cuts(_WORDS[type(node)], first, end)
            if len(cuts) == len(parts) - 1:
                yield from zip(parts, [first, *(cut + 1 for cut in cuts)], [*cuts, end], strict=True)
        elif isinstance(node, exp.Not):
            if start == TokenType.NOT:
                yield node.this, first + 1, end
            else:  # x NOT IN (...), x IS NOT TRUE
                self._starts[id(node.this)] = self._tokens[first].start
                if isinstance(node.this, exp.Is):
                    yield from self._tested(node.this, first, end - 3)
        elif isinstance(node, exp.Is):
            yield from self._tested(node, first, end - 2)

    def _tested(self, node: exp.Is, first: int, end: int) -> Iterator[tuple[exp.Expr, int, int]]:
        if first < end and self._tokens[end].token_type == TokenType.IS:
            yield node.this, first, end

    def _cuts(self, word: TokenType, first: int, end: int) -> list[int]:
        """Returns the positions of a connective, outside of parentheses, CASE and BETWEEN."""
        depth, betweens = 0, 0
        found: list[int] = []
        for at in range(first, end):
            kind = self._tokens[at].token_type
            if kind in _OPENING_TOKENS:
                depth += 1
            elif kind in _CLOSING_TOKENS:
                depth -= 1
            elif depth:
                continue
            elif kind == TokenType.BETWEEN:
                betweens += 1
            elif kind == TokenType.AND and betweens:
                betweens -= 1
            elif kind == word:
                found.append(at)
        return found


# SQL text to one syntax tree, by sqlglot; errors have a position.
#
# The parser's time is bounded in advance: by the number of tokens, by the depth of brackets and types, and by a text
# that leaves it nothing to try twice (``_tokens``). Decision 48 has the figures.

# Spark ends a comment at a carriage return, and continues it after a backslash; sqlglot does not.
_OTHER_COMMENT: Final = re.compile("\\\\\n|\r(?!\n)")
# Spark reads such an escape as two question marks.
_BEYOND_UNICODE: Final = re.compile(r"\\U(?!00(?:0[0-9a-fA-F]|10))(?=[0-9a-fA-F]{8})")
# An unterminated quoted text extends to the end; retrying after each quote would take quadratic time.
_TEXT: Final = r"""'(?:[^'\\]++|\\.)*+(?:'|\\?\Z)|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)"""
_QUOTED: Final = re.compile(rf"{_TEXT}|`[^`]*+(?:`|\Z)", re.DOTALL)
#: Approximately the tokenizer's tokens. The content of comments and quoted names counts, since the parser reads hints
#: and types there.
_TOKEN: Final = re.compile(
    rf"{_TEXT}|\d++(?:\.\d*+)?+(?:e[+-]?\d++)?+|\w++|[<>=!|:&]{{1,2}}+|[^\w\s]", re.DOTALL | re.I
)
# sqlglot takes two such numbers for one and drops the second.
_TWO_POINTS: Final = re.compile(r"(?<![\w.])\d*\.\d*\.\d")


#: sqlglot expands the units of truncations, and takes a column for a unit: ``date_trunc('D', t)`` is null in Spark, and
#: not a day. It reads JSON paths by other rules, and translates the patterns of times. All these are read as functions
#: that it does not know.
_AS_SPELLED: Final = frozenset(
    {"DATE_TRUNC", "TIMESTAMP_TRUNC", "TRUNC", "GET_JSON_OBJECT", "DATE_FORMAT", "UNIX_TIMESTAMP"}
)
_NAMES: Final = (TokenType.VAR, TokenType.IDENTIFIER)
_OPENING: Final = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING: Final = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_CONNECTIVES: Final = (TokenType.AND, TokenType.OR)
#: Types that contain others, by their names.
_NESTED: Final = frozenset(SparkParser.NESTED_TYPE_TOKENS)
_NESTED_NAMES: Final = frozenset({"ARRAY", "LIST", "MAP", "NULLABLE", "STRUCT"})
#: Names of types that are also functions, before a parenthesis, and columns before a bracket.
_FUNCTIONS: Final = frozenset(SparkParser.TYPE_TOKENS) - {TokenType.NULL, TokenType.INTERVAL}
_COLUMNS: Final = frozenset(SparkParser.TYPE_TOKENS) - _NESTED
#: Exceptions of the parser besides its own errors, for texts that it does not check.
_UNREADABLE: Final = (SqlglotError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, AssertionError)
_OUT_OF_NODES: Final = "Maximum number of AST nodes"


def doubt(text: str) -> str | None:
    """Returns why Spark may read the text differently than sqlglot; None if it does not."""
    if "--" in text and _OTHER_COMMENT.search(text):
        return "the comment may end at another position in Spark"
    if _BEYOND_UNICODE.search(text):
        return "an escape is not a valid character"
    return "a number has two decimal points" if _TWO_POINTS.search(_QUOTED.sub("''", text)) else None


def parsed(text: str) -> tuple[exp.Expr, Sequence[Token]]:
    """Returns the one statement or expression of a text, and its tokens. Numbers keep their suffixes.

    Raises:
        InvalidFilter: it cannot be read; ``position`` is the offset.
        LimitExceeded: it has too many tokens, or is nested too deeply; ``position`` is where.
        RecursionError: it is nested too deeply for this stack.
    """
    _check_length(text)
    try:
        statements, tokens = _statements(text)
        if len(statements) == 1 and isinstance(statements[0], exp.Command):
            return _condition(text) or (statements[0], tokens)
    except ParseError as error:
        if _OUT_OF_NODES in str(error):
            raise _too_much_work() from error
        condition = _condition(text)
        if condition is not None:
            return condition
        raise _syntax_error(text, error) from error
    except TokenError as error:
        raise InvalidFilter("the filter ends inside a quoted text or comment", position=len(text)) from error
    except _UNREADABLE as error:
        raise InvalidFilter(f"the filter cannot be parsed: {error}", position=0) from error
    if len(statements) != 1 or statements[0] is None:
        position = text.find(";")
        raise InvalidFilter("a filter must be one expression", position=max(position, 0))
    return statements[0], tokens


def _statements(text: str) -> tuple[list[exp.Expr | None], list[Token]]:
    tokens, mark = _tokens(text)
    return _unmarked(Spark().parser(max_nodes=_max_nodes(tokens)).parse(tokens, text), mark), tokens


def _condition(text: str) -> tuple[exp.Expr, list[Token]] | None:
    """Parses the text as a condition only, for column names that are also the beginning of a statement."""
    try:
        tokens, mark = _tokens(text)
        parser = Spark().parser(max_nodes=_max_nodes(tokens))
        found = _unmarked(parser.parse_into(exp.Condition, tokens, text), mark)
    except _UNREADABLE:
        return None
    return (found[0], tokens) if len(found) == 1 and found[0] is not None else None


def _max_nodes(tokens: Sequence[Token]) -> int:
    return MAX_NODES_PER_TOKEN * len(tokens) + NODES_BESIDE


def _too_much_work() -> LimitExceeded:
    return LimitExceeded(
        "the filter takes too long to parse; write it with less nesting, or as a JSON filter",
        limit="sql_nodes",
        maximum=MAX_NODES_PER_TOKEN,
    )


def _too_many_tokens(position: int) -> LimitExceeded:
    return LimitExceeded(
        f"the filter has more than {MAX_SQL_TOKENS} words, numbers, texts and signs (at offset {position}); "
        "comparisons of columns with constants, and lists of constants, may be longer, as may a JSON filter",
        limit="sql_tokens",
        maximum=MAX_SQL_TOKENS,
        position=position,
    )


def token_count(text: str, limit: int) -> int:
    """Returns the approximate number of tokens of a text, at most ``most + 1``."""
    return sum(1 for _ in islice(_TOKEN.finditer(text), limit + 1))


def _check_length(text: str) -> None:
    """Raise LimitExceeded for too many tokens, before any of them is created."""
    beyond = next(islice(_TOKEN.finditer(text), MAX_SQL_TOKENS, None), None)
    if beyond is not None:
        raise _too_many_tokens(beyond.start())


def _tokens(text: str) -> tuple[list[Token], str]:
    """Returns the text's tokens, and a mark (empty if there is none) that follows names of functions that stay as they
    are spelled.

    A parser of our own would express this better, but sqlglot's compiled build does not allow classes to inherit from
    its parser.

    ``date(x)`` and similar are calls of functions, and ``date[x]`` is a part of a column. The parser first tries them
    as types, and parses the content again when that fails: at least twice the time for each level of
    ``date(date(...))``. So such a name is replaced by another name, unless type parameters follow it, as in
    ``decimal(10, 2)``.
    """
    check_deadline()
    tokens = _with_suffixes(Spark().tokenize(text), text)
    if len(tokens) > MAX_SQL_TOKENS:  # after a quoted text the tokenizer may count differently
        raise _too_many_tokens(tokens[MAX_SQL_TOKENS].start)
    _check_depth(tokens)
    mark = "\ue000"
    while mark in text:
        mark += mark
    is_marked = False
    for at in range(len(tokens) - 1):
        token, behind = tokens[at], tokens[at + 1].token_type
        if behind is TokenType.L_BRACKET and token.token_type in _COLUMNS:
            token.token_type = TokenType.VAR
        if behind is not TokenType.L_PAREN:
            continue
        if token.token_type in _FUNCTIONS and not _is_size(tokens, at + 2):
            token.token_type = TokenType.VAR
        elif token.token_type in _NAMES and token.text.upper() in _AS_SPELLED:
            token.text += mark
            is_marked = True
    check_deadline()
    return tokens, mark if is_marked else ""


def _is_size(tokens: Sequence[Token], at: int) -> bool:
    """Returns whether type parameters with the closing parenthesis follow: ``10)`` or ``10, -2)``."""
    kinds = [token.token_type for token in tokens[at : at + 5] if token.token_type is not TokenType.DASH]
    one = [TokenType.NUMBER, TokenType.R_PAREN]
    return kinds[:2] == one or kinds[:4] == [TokenType.NUMBER, TokenType.COMMA, *one]


def _check_depth(tokens: Sequence[Token]) -> None:
    """Raise LimitExceeded for brackets or types that are nested too deeply."""
    brackets: list[bool] = []  # whether each belongs to a nested type, or to the function that creates one
    types = angles = 0
    before: Token | None = None
    for token in tokens:
        kind = token.token_type
        of_type = before is not None and (before.token_type in _NESTED or before.text.upper() in _NESTED_NAMES)
        if kind in _OPENING:
            brackets.append(of_type)
            types += of_type
        elif kind in _CLOSING:
            types -= brackets.pop() if brackets else 0
        elif kind is TokenType.LT and of_type:
            angles += 1
        elif kind is TokenType.GT and angles:
            angles -= 1
        elif kind in _CONNECTIVES:  # these were comparisons of columns with such names
            angles = 0
        if len(brackets) > MAX_DEPTH or types + angles > MAX_SQL_TYPE_DEPTH:
            what, limit = (
                ("brackets", MAX_DEPTH) if len(brackets) > MAX_DEPTH else ("types or arrays", MAX_SQL_TYPE_DEPTH)
            )
            raise LimitExceeded(
                f"more than {limit} {what} are nested in each other (at offset {token.start})",
                limit="filter_depth",
                maximum=limit,
                position=token.start,
            )
        before = token


def _with_suffixes(tokens: list[Token], text: str) -> list[Token]:
    """Returns the tokens with numbers as they were written: sqlglot makes three tokens of ``1L``, those of
    ``1::BIGINT``."""
    found: list[Token] = []
    for token in tokens:
        number = found[-1] if found else None
        if number is None or number.token_type != TokenType.NUMBER or token.start != number.start:
            found.append(token)
        else:
            number.text = text[number.start : number.end + 1]
    return found


def _unmarked(trees: list[exp.Expr | None], mark: str) -> list[exp.Expr | None]:
    if mark:
        for tree in filter(None, trees):
            for function in tree.find_all(exp.Anonymous):
                named = function.this if isinstance(function.this, exp.Identifier) else function
                named.set("this", str(named.this).removesuffix(mark))
    return trees


def _syntax_error(text: str, error: ParseError) -> InvalidFilter:
    location = error.errors[0] if error.errors else {}
    lines = text.splitlines(keepends=True) or [""]
    line = max(1, min(int(location.get("line") or 1), len(lines)))
    highlight = location.get("highlight") or ""
    # sqlglot's column counts the last character of the token at which it stopped.
    column = int(location.get("col") or 1) - max(len(highlight), 1)
    position = min(len(text), sum(len(part) for part in lines[: line - 1]) + max(column, 0))
    description = location.get("description") or "cannot be parsed"
    if "missing for" in description:
        description = f"something is missing after {highlight!r}"
    return InvalidFilter(f"{description} (at offset {position})", position=position, near=highlight)
