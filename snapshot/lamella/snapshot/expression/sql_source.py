"""Which part of a text each predicate was read from, so that errors say where, and what is not used stays as written.

sqlglot keeps no places but those of names, and writes what it read in its own way, which may mean something else in
Spark (``1L`` as a cast, ``TIME '12:00:00'`` as a timestamp). So the tokens are matched with the tree once more, as far
down as connectives reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlglot import Token, TokenType, exp

_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})
_WORDS: Final[dict[type[exp.Expr], TokenType]] = {exp.And: TokenType.AND, exp.Or: TokenType.OR}


def parts_of(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of one connective, left to right: a chain of a thousand is one level, no recursion."""
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
    """The text of a tree's predicates; what could not be matched has none."""

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
        """What a predicate was read from, comments inside of it with it."""
        span = self._spans.get(id(node))
        return None if span is None else self._text[self._tokens[span[0]].start : self._tokens[span[1] - 1].end + 1]

    def between(self, start: int, end: int) -> str:
        """The text from one offset to another."""
        return self._text[start:end]

    def offset(self, node: exp.Expr) -> int | None:
        """The 0-based offset of its first character."""
        return self._starts.get(id(node))

    def offset_of_constant(self, node: exp.Expr, text: str) -> int | None:
        """The offset of a quoted text or a number inside of a predicate."""
        first, end = self._spans.get(id(node), (0, len(self._tokens)))
        for token in self._tokens[first:end]:
            if token.token_type in (TokenType.STRING, TokenType.NUMBER) and token.text == text:
                return token.start
        return self.offset(node)

    def _inside(self, node: exp.Expr, first: int, end: int) -> Iterator[tuple[exp.Expr, int, int]]:
        """The predicates that a predicate is made of, each with its tokens."""
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
        """Where a connective stands, outside of parentheses, CASE and BETWEEN."""
        depth, betweens = 0, 0
        found: list[int] = []
        for at in range(first, end):
            kind = self._tokens[at].token_type
            if kind in _OPENING:
                depth += 1
            elif kind in _CLOSING:
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
