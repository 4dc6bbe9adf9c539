"""Regular expressions of Java: the text with which every match begins, and expressions that are simpler predicates.

Spark's ``RLIKE`` looks for a match anywhere in the text. Only what is certain is used: an expression that begins with
``^`` and fixed text, or consists of fixed text.
"""

from __future__ import annotations

import re
from typing import Final

from lamella.snapshot.expression.nodes import And, Like, Literal, Predicate, StartsWith, Term, Unknown

#: Characters that mean themselves outside of brackets.
_PLAIN: Final = re.compile(r"[A-Za-z0-9 _\-/:,;@#%&=~\"'<>!`]|[^\x00-\x7f]")
_ESCAPED: Final = re.compile(r"\\[!-/:-@\[-`{-~]")
#: What follows a character that may be missing or be repeated.
_OPTIONAL: Final = ("*", "?", "{")
_LIKE_SIGNS: Final = re.compile(r"[%_\\]")


def like_literal(text: str) -> str:
    """Returns a LIKE pattern that matches exactly a text."""
    return _LIKE_SIGNS.sub(r"\\\g<0>", text)


def regexp(term: Term, pattern: str, unknown: Unknown) -> Predicate:
    """Returns the predicate ``term RLIKE pattern``; ``unknown`` stands for what is not certain of it."""
    anchored = pattern.startswith("^")
    text, rest = _fixed(pattern[anchored:])
    if rest and not anchored:
        return unknown
    if not anchored:
        return Like(term, f"%{like_literal(text)}%", at=unknown.at)
    if not text:
        return unknown
    beginning = StartsWith(term, Literal("string", text), at=unknown.at)
    return beginning if rest in ("", ".*") else And((beginning, unknown))


def _fixed(pattern: str) -> tuple[str, str]:
    """Returns the text with which every match of a pattern begins, and the rest of the pattern.

    An alternative makes everything uncertain, also one that is not at the top: brackets are not looked into.
    """
    if "|" in pattern:
        return "", pattern
    text: list[str] = []
    at = 0
    while at < len(pattern):
        found = _PLAIN.match(pattern, at) or _ESCAPED.match(pattern, at)
        if found is None:
            break
        end = found.end()
        if pattern[end : end + 1] in _OPTIONAL and end < len(pattern):
            break
        text.append(found[0][-1])
        at = end
        if pattern[at : at + 1] == "+":
            break
    return "".join(text), pattern[at:]
