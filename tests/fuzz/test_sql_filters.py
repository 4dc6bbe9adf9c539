"""Hostile SQL filters: an answer or an error of the request, in bounded time and memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.filters import swallow
from fuzz.guard import peak_bytes, survive
from fuzz.mutation import ODD_TEXTS, mutated_text
from fuzz.sql_grammar import CORPUS, sql
from fuzz.tables import schema
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression import bind, read_filter, text_of
from lamella.snapshot.expression.nodes import MAX_SQL_CHARACTERS

SEEDS = st.integers(0, 2**48)


def hostile_sql(seed: int) -> str:
    """A filter by the grammar, a valid one that was damaged, or both."""
    rng = Random(seed)
    text = sql(rng) if rng.random() < 0.6 else rng.choice(CORPUS)
    return mutated_text(rng, text, CORPUS) if rng.random() < 0.6 else text


@pytest.mark.parametrize("text", CORPUS)
def test_the_corpus_is_read(text: str) -> None:
    """What the mutations start from is read without an error, so that they do not all stop at the first word."""
    read_filter(text)


@settings(max_examples=600)
@given(SEEDS)
def test_damaged_and_generated_sql(seed: int) -> None:
    """Filters by the grammar and damaged ones are used or refused by an error of the request."""
    swallow(hostile_sql(seed), seed)


@given(st.text(max_size=60) | st.lists(st.sampled_from(ODD_TEXTS), max_size=4).map("".join))
def test_any_text(text: str) -> None:
    """Text that is no SQL at all."""
    swallow(text, 0)


@pytest.mark.soak
def test_a_lot_of_damaged_and_generated_sql() -> None:
    """As above, 60,000 times; a good part of them is really used."""
    used = sum(swallow(hostile_sql(seed), seed) for seed in range(60_000))
    assert used > 10_000


def _filled(size: int, unit: str, head: str = "", tail: str = "") -> str:
    return head + unit * ((size - len(head) - len(tail)) // len(unit)) + tail


def _around(size: int, left: str, middle: str, right: str) -> str:
    return left * (size // (len(left) + len(right))) + middle + right * (size // (len(left) + len(right)))


#: Inputs of a size in characters, each made to be as dear as possible in one way.
DEAR: dict[str, Callable[[int], str]] = {
    "integers": lambda size: _filled(size, "1,", "n IN (", "1)"),
    "texts": lambda size: _filled(size, "'x',", "s IN (", "'y')"),
    "a chain": lambda size: _filled(size, "n=1 OR ", "", "n=1"),
    "parentheses": lambda size: _around(size, "(", "n=1", ")"),
    "open parentheses": lambda size: "(" * size,
    "NOT": lambda size: _filled(size, "NOT ", "", "n=1"),
    "signs": lambda size: _filled(size, "- ", "n=", "1"),
    "additions": lambda size: _filled(size, "+1", "n", " > 3"),
    "concatenations": lambda size: _filled(size, "||'x'", "s", " = 'y'"),
    "CASE": lambda size: _filled(size, "CASE WHEN ", "", "n=1 THEN 1 END"),
    "casts": lambda size: _filled(size, "CAST(", "", "n AS INT)"),
    "functions": lambda size: _around(size, "abs(", "n", ")") + " > 1",
    "arguments": lambda size: _filled(size, "n,", "coalesce(", "1) = 1"),
    "digits": lambda size: "n = " + "9" * size,
    "digits behind the point": lambda size: "n = 0." + "9" * size,
    "wildcards": lambda size: "s LIKE '" + "%" * size + "'",
    "dots": lambda size: _filled(size, "n.", "", "n = 1"),
    "a long name": lambda size: "n" * size + " = 1",
    "brackets": lambda size: _filled(size, "[", "n", " = 1"),
    "comments": lambda size: _filled(size, "/* */", "", "n=1"),
    "an open comment": lambda size: _filled(size, "/*"),
    "quotes": lambda size: "'" * size,
    "semicolons": lambda size: ";" * size,
    "comparisons": lambda size: _filled(size, " = 1", "n", ""),
    "sub-queries": lambda size: _filled(size, "(SELECT ", "", "1)"),
    "intervals": lambda size: _filled(size, " - INTERVAL '1' DAY", "day > current_date"),
    "lambdas": lambda size: _filled(size, "x -> ", "", "n=1"),
}
LARGEST = MAX_SQL_CHARACTERS - 20


@pytest.mark.slow
@pytest.mark.parametrize("name", DEAR)
@pytest.mark.parametrize("size", [8_000, pytest.param(LARGEST, marks=pytest.mark.soak)])
@pytest.mark.few(3)
def test_dear_text_takes_bounded_time_and_memory(name: str, size: int) -> None:
    """Text made to be dear, up to the permitted length: the guard's CPU time, and 1.5 kB of memory a character."""
    text = DEAR[name](size)
    # Tracing allocations slows everything down: once to see it within its time, once for its memory.
    survive(lambda: _whole(text), text)
    assert peak_bytes(lambda: _refused_or_not(text)) < 1_500 * len(text) + (4 << 20)


def _refused_or_not(text: str) -> None:
    with suppress(LamellaError):
        _whole(text)


def _whole(text: str) -> None:
    predicate = read_filter(text)
    bind(predicate, schema())
    text_of(predicate)


def test_longer_text_is_refused_unread() -> None:
    """One character more than the limit is an error, before anything is parsed."""
    answer = survive(lambda: read_filter("n" * (MAX_SQL_CHARACTERS + 1)), "n")
    assert isinstance(answer, LamellaError)
    assert answer.code == "limit_exceeded"
