"""SQL text to one syntax tree, by sqlglot; what cannot be read says where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError

from lamella.snapshot.errors import InvalidFilter

# Spark ends a comment at a carriage return, and goes on with it behind a backslash; sqlglot does otherwise.
_OTHER_COMMENT: Final = re.compile("\\\\\n|\r(?!\n)")
# Spark reads such an escape as two question marks.
_BEYOND_UNICODE: Final = re.compile(r"\\U(?!00(?:0[0-9a-fA-F]|10))(?=[0-9a-fA-F]{8})")
_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""", re.DOTALL)
# sqlglot takes two such numbers for one and drops the second.
_TWO_POINTS: Final = re.compile(r"(?<![\w.])\d*\.\d*\.\d")


#: sqlglot spells the units of truncations out, and takes a column for a unit: ``date_trunc('D', t)`` is null in Spark,
#: and no day. JSON paths it reads by other rules. All these are read as functions that it does not know.
_AS_SPELLED: Final = frozenset({"DATE_TRUNC", "TIMESTAMP_TRUNC", "TRUNC", "GET_JSON_OBJECT"})


def doubt(text: str) -> str | None:
    """Why Spark may read the text otherwise than sqlglot does; None when it does not."""
    if "--" in text and _OTHER_COMMENT.search(text):
        return "the comment may end elsewhere in Spark"
    if _BEYOND_UNICODE.search(text):
        return "an escape names no character"
    return "a number has two points" if _TWO_POINTS.search(_QUOTED.sub("''", text)) else None


def parsed(text: str) -> tuple[exp.Expr, Sequence[Token]]:
    """The one statement or expression of a text, and its tokens.

    Numbers keep the suffixes that they were written with. Raises InvalidFilter with its ``position``, or
    RecursionError.
    """
    try:
        statements, tokens = _statements(text)
        if len(statements) == 1 and isinstance(statements[0], exp.Command):
            return _condition(text) or (statements[0], tokens)
    except ParseError as error:
        condition = _condition(text)
        if condition is not None:
            return condition
        raise _syntax_error(text, error) from error
    except TokenError as error:
        raise InvalidFilter("the filter ends inside a quoted text or comment", position=len(text)) from error
    except (SqlglotError, ValueError, ArithmeticError) as error:  # a number that is none
        raise InvalidFilter(f"the filter cannot be read: {error}", position=0) from error
    if len(statements) != 1 or statements[0] is None:
        position = text.find(";")
        raise InvalidFilter("a filter is one expression", position=max(position, 0))
    return statements[0], tokens


def _statements(text: str) -> tuple[list[exp.Expr | None], list[Token]]:
    tokens, mark = _tokens(text)
    return _unmarked(Spark().parser().parse(tokens, text), mark), tokens


def _condition(text: str) -> tuple[exp.Expr, list[Token]] | None:
    """The text read as a condition only, where a column's name is also the beginning of a statement."""
    try:
        tokens, mark = _tokens(text)
        found = _unmarked(Spark().parser().parse_into(exp.Condition, tokens, text), mark)
    except (SqlglotError, ValueError, ArithmeticError):
        return None
    return (found[0], tokens) if len(found) == 1 and found[0] is not None else None


def _tokens(text: str) -> tuple[list[Token], str]:
    """The text's tokens, a mark (empty when there is none) behind the names of functions that stay as they are spelled.

    A parser of our own would say it better, but sqlglot's compiled build lets no class inherit from its parser.
    """
    tokens = _with_suffixes(Spark().tokenize(text), text)
    names = [
        token
        for token, behind in pairwise(tokens)
        if behind.token_type == TokenType.L_PAREN
        and token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
        and token.text.upper() in _AS_SPELLED
    ]
    mark = "\ue000"
    while mark in text:
        mark += mark
    for token in names:
        token.text += mark
    return tokens, mark if names else ""


def _with_suffixes(tokens: list[Token], text: str) -> list[Token]:
    """The tokens with numbers as they were written: sqlglot makes three tokens of ``1L``, those of ``1::BIGINT``."""
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
    place = error.errors[0] if error.errors else {}
    lines = text.splitlines(keepends=True) or [""]
    line = max(1, min(int(place.get("line") or 1), len(lines)))
    highlight = place.get("highlight") or ""
    # sqlglot's column counts the last character of the token that it stopped at.
    column = int(place.get("col") or 1) - max(len(highlight), 1)
    position = min(len(text), sum(len(part) for part in lines[: line - 1]) + max(column, 0))
    description = place.get("description") or "cannot be parsed"
    if "missing for" in description:
        description = f"something is missing after {highlight!r}"
    return InvalidFilter(f"{description} (at offset {position})", position=position, near=highlight)
