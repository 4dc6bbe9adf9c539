"""RLIKE: what is certain of a regular expression."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression.regexp import regexp
from lamella.snapshot.schema import Column, Schema
from support.oracle import Oracle

A = n.Ref("a")
UNKNOWN = n.Unknown("a RLIKE ...", "not evaluated")
SCHEMA = Schema.assign([Column(name="a", type="string")])


def starts(text: str) -> n.StartsWith:
    return n.StartsWith(A, n.Literal("string", text))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^abc", starts("abc")),
        ("^abc.*", starts("abc")),
        ("^abc.*$", n.And((starts("abc"), UNKNOWN))),  # a dot is no line break
        ("^abc$", n.And((starts("abc"), UNKNOWN))),  # a line break may follow
        ("^abc*", n.And((starts("ab"), UNKNOWN))),
        ("^ab{0}c", n.And((starts("a"), UNKNOWN))),
        ("^abc+d", n.And((starts("abc"), UNKNOWN))),
        ("^ab?", n.And((starts("a"), UNKNOWN))),
        ("^a\\.b", starts("a.b")),
        ("^a\\d", n.And((starts("a"), UNKNOWN))),
        ("^a[bc]", n.And((starts("a"), UNKNOWN))),
        ("^(?i)abc", UNKNOWN),
        ("^abc|d", UNKNOWN),
        ("^ab(c|d)", UNKNOWN),
        ("abc", n.Like(A, "%abc%")),
        ("a%c_", n.Like(A, "%a\\%c\\_%")),
        ("", n.Like(A, "%%")),
        ("ab.c", UNKNOWN),
        ("^", UNKNOWN),
        ("^\\Qa", UNKNOWN),
        ("^ü+x", n.And((starts("ü"), UNKNOWN))),
    ],
)
def test_the_fixed_beginning_of_a_pattern_is_found(pattern: str, expected: n.Predicate) -> None:
    """A match begins with the text before the first character with a meaning."""
    assert regexp(A, pattern, UNKNOWN) == expected


@given(st.text("ab.*+?^$[](){}\\|01", max_size=8), st.lists(st.text("ab.01\n", max_size=5), min_size=1, max_size=20))
def test_no_match_is_lost(pattern: str, texts: list[str]) -> None:
    """Whatever matches by a regular expression is not excluded by what is certain of it."""
    try:
        compiled = re.compile(pattern)
    except (re.error, FutureWarning):  # a set in a set, which Java reads in another way, is a warning
        return
    found = regexp(A, pattern, n.Unknown("?", "?"))
    for text in texts:
        if compiled.search(text) is None:
            continue
        parts = found.children if isinstance(found, n.And) else (found,)
        for part in parts:
            if not isinstance(part, n.Unknown):
                assert Oracle(SCHEMA).decide(part, {"a": text.encode()}) is True, (pattern, text)
