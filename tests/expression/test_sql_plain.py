"""The reader of plain filters: it says what the parser says, or nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

from fuzz.mutation import mutated_text
from fuzz.sql_grammar import CORPUS, sql
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression import read_sql, spark_casts
from lamella.snapshot.expression.nodes import MAX_NODES
from lamella.snapshot.expression.sql import read_fully
from lamella.snapshot.expression.sql_plain import NAMES, read_plain
from support.plain_sql import plain_sql

TESTS = Path(__file__).resolve().parents[1]
SEEDS = st.integers(0, 2**48)
ZONES = ("UTC", "UTC", "Europe/Berlin", "Africa/Accra", "+05:30", "nowhere")
A = n.Ref("a")


def agrees(text: str, time_zone: str = "UTC") -> bool:
    """True when the plain reader answered, which must be what the parser gives."""
    if not text.strip() or not spark_casts.is_unicode(text):  # refused before either reader is asked
        return False
    found = read_plain(text, time_zone)
    if found is None:
        return False
    expected: n.Predicate | LamellaError
    try:
        expected = read_fully(text, time_zone)
    except LamellaError as error:
        expected = error
    assert found == expected, text
    assert repr(found) == repr(expected), text  # tells 0.0 from -0.0 and True from 1
    return True


@pytest.mark.parametrize(
    "text",
    [
        "event_time >= 500000000 AND event_time < 500005000",
        "x IN (11, 12, 13, 14, 15, 16, 17, 18, 19, 20)",
        "x in(1,2,-3)",
        "t BETWEEN timestamp '2024-01-01 00:00:00' AND TIMESTAMP'2024-01-01 01:00:00'",
        "a = 'x' AND b > 3",
        "a < 1 OR a > 9",
        "name LIKE 'ab%'",
        "name NOT LIKE '%ab_'",
        "x IS NULL",
        "x is not null",
        "day = DATE '2024-05-06'",
        "price > 12.50 AND price <= 99.99",
        "x = 1e3 OR x = -1.5E-3",
        "NOT (a = 'x' OR b IS NOT NULL)",
        "not not a = 1",
        "NOT a NOT IN ('x', NULL)",
        "((a = 1)) AND (b = 2 OR (c = 3 AND d <> 4))",
        "a NOT BETWEEN -1 AND 5 OR s.b.c == 4",
        "a <=> NULL AND flag != true",
        "`we ird` = 4 AND `a`.`b` >= 'ä'",
        "\n\ta=1\r\nAND b='it has -> and ; and \"'\n",
        "date >= '2020-01-01' AND timestamp < 5",
        "a IN (1, 'x', DATE '2020-01-01', 2.5, FALSE)",
    ],
)
def test_what_is_common_is_plain(text: str) -> None:
    """The filters that most requests carry need no parser."""
    assert agrees(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a",
            "true",
            "1 = 1",
            "4 < a",
            "a < b",
            "a + 1 = 2",
            "f(a) = 1",
            "(a) = 1",
            "a IS TRUE",
            "a = (1)",
            "a = - 1",
        ),
        *("a = 1;", "a = 1 x", "a = 1 -- c", "a = /* c */ 1", "a = '--'", "a = 1 AND", "(a = 1", "a = 1)", "", " "),
        *(
            "a = 'it''s'",
            "a = 'a' 'b'",
            "a = 'a\\nb'",
            'a = "x"',
            "a = r'x'",
            "a = X'00'",
            "a = 'x",
            "a LIKE 'x' ESCAPE 'y'",
        ),
        *(
            "a = 1L",
            "a = 1.",
            "a = .5",
            "a = 1.5BD",
            "a = 1.5.5",
            "a = 1_0",
            "a = 0x1F",
            "a = +1",
            "a = 1e",
            "a = " + "9" * 65,
        ),
        *("a = DATE '2020-02-30'", "a = TIMESTAMP 'x'", "a = CAST('1' AS INT)", "a = INTERVAL '1' DAY", "a IN ()"),
        *("a IN (1,)", "a IN (SELECT 1)", "a BETWEEN 1 AND b", "a ILIKE 'x'", "a LIKE b", "a\u00a0= 1", "a = 1\u2003"),
        *("order = 1", "case = 1", "NULL = 1", "current_date > '2020-01-01'", "not in (1)", "is is null", "s.date = 1"),
        *(
            "ä = 1",
            "a. b = 1",
            "`a``b` = 1",
            "`` = 1",
            "1a = 1",
            "a$b = 1",
            "a IS NULL NULL",
            "a I\u017f NULL",
            "a = 1 XOR b = 2",
        ),
        "NOT " * 30 + "a = 1",
        "(" * 30 + "a = 1" + ")" * 30,
        " OR ".join(["a = 1"] * MAX_NODES),
        "a" * 300 + " = 1",
    ],
)
def test_what_is_not_certain_is_left_to_the_parser(text: str) -> None:
    """Other spellings, other forms, deep or long ones, and every mistake: no answer."""
    assert read_plain(text, "UTC") is None


@pytest.mark.parametrize("sign", ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
def test_signs_need_no_spaces(sign: str) -> None:
    """However a sign, a value and what follows are spaced, both readers see the same tokens."""
    for before in ("", " ", "\t", "\n "):
        for behind in ("", " ", "\r\n"):
            for value in ("1", "-1", "'x'", "1.5", "-1e3", "true", "null", "date'2020-01-01'", "NULL"):
                for end in ("", " ", " and b = 1", ")", "\nOR(b=1)"):
                    text = f"{'(' if end == ')' else ''}a{before}{sign}{behind}{value}{end}"
                    assert agrees(text)


def _about(name: str) -> Iterator[str]:
    for sign in ("=", "<", "<=", ">", ">=", "<>", "!=", "<=>", " = ", " < ", " <=> "):
        yield from (f"{name}{sign}{value}" for value in ("1", "-1", "'x'", "DATE '1970-01-02'", "NULL", "1.5"))
    yield from (f"{name} {test}" for test in ("IN (1, 2)", "NOT IN (1)", "BETWEEN 1 AND 2", "NOT BETWEEN 1 AND 2"))
    yield from (f"{name} {test}" for test in ("IS NULL", "IS NOT NULL", "LIKE 'x%'", "NOT LIKE 'x'", "IN('x')"))


def _within(predicate: str) -> Iterator[str]:
    yield from (predicate, f"({predicate})", f"NOT {predicate}", f"NOT ({predicate})", f"( {predicate} ) OR z = 1")
    yield from (
        f"z = 1 AND {predicate}",
        f"z = 1 OR ({predicate})",
        f"{predicate} OR z = 1",
        f"({predicate} AND z = 1)",
    )
    yield f"z IN (1) AND NOT {predicate} AND {predicate}"


def _in_every_position(name: str) -> list[str]:
    return [text for predicate in _about(name) for text in _within(predicate)]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NAMES))
def test_words_of_sql_that_columns_are_named_by(name: str) -> None:
    """Each of them is a column in every place, for both readers."""
    assert all(agrees(text) for text in _in_every_position(name))


@pytest.mark.slow
def test_all_other_words_of_sql() -> None:
    """Each word that the parser knows is left to it, or is a column in some places drawn from all."""
    rng = Random(4)
    words = {word for keyword in Spark.Tokenizer.KEYWORDS for word in keyword.split()}
    plain = set()
    for word in sorted(words | set(SparkParser.FUNCTIONS) | set(SparkParser.NO_PAREN_FUNCTION_PARSERS)):
        if word.isidentifier() and read_plain(f"{word} = 1", "UTC") is not None:
            plain.add(word.lower())
            assert all(agrees(text) for text in rng.sample(_in_every_position(word.lower()), 10))
    assert {"year", "count", *NAMES} <= plain
    assert not plain & {"and", "or", "not", "in", "is", "like", "between", "null", "true", "case", "select", "interval"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a", "`a b`", "s.b", "s.`x`.c", "_1", "E5", "inx", "notes", "nullish", "betweens"])
def test_names_in_every_position(name: str) -> None:
    """A plain, quoted or dotted name is a column in every place, also one that begins like a keyword."""
    assert all(agrees(text) for text in _in_every_position(name))


def hostile(seed: int) -> tuple[str, str]:
    """A text and a time zone: mostly plain, often damaged, some by the grammar of all SQL."""
    rng = Random(seed)
    text = plain_sql(rng) if rng.random() < 0.8 else sql(rng) if rng.random() < 0.5 else rng.choice(CORPUS)
    if rng.random() < 0.3:
        text = mutated_text(rng, text, (*CORPUS, *(plain_sql(rng) for _ in range(3))))
    return text[:5_000], rng.choice(ZONES)


@settings(max_examples=1_000)
@given(SEEDS)
def test_both_readers_agree(seed: int) -> None:
    """Whatever the plain reader answers, the parser gives the equal predicate."""
    agrees(*hostile(seed))


@pytest.mark.soak
def test_both_readers_agree_on_a_lot() -> None:
    """As above, 200,000 times; a good part of them is answered."""
    assert sum(agrees(*hostile(seed)) for seed in range(200_000)) > 40_000


@cache
def texts_of_the_tests() -> tuple[str, ...]:
    """Every text in the tests' sources: all filters among them, and much that is none."""
    found = {
        node.value
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 500
    }
    return tuple(sorted(found))


@pytest.mark.slow
def test_both_readers_agree_on_the_texts_of_the_tests() -> None:
    """All of them, and each once more damaged."""
    rng = Random(21)
    texts = texts_of_the_tests()
    answered = sum(agrees(text) for text in texts)
    filters = [text for text in texts if read_plain(text, "UTC") is not None]
    for text in filters:
        for _ in range(10):
            agrees(mutated_text(rng, text, filters)[:2_000])
    assert answered > 100


def test_limits_are_those_of_the_parser() -> None:
    """What is refused by name is refused whichever reader comes first."""
    for text in ("(" * 5_000 + "a = 1", " AND ".join(["a = 1"] * (MAX_NODES + 1)), "NOT " * 3_000 + "a = 1"):
        with pytest.raises(LamellaError) as plain:
            read_sql(text)
        with pytest.raises(LamellaError) as full:
            read_fully(text, "UTC")
        assert (plain.value.code, plain.value.details) == (full.value.code, full.value.details)


def test_a_long_list_is_plain() -> None:
    """Ten thousand values in one list are read without the parser, and are all there."""
    text = f"a IN ({', '.join(str(value) for value in range(10_000))})"
    assert read_plain(text, "UTC") == n.In(A, tuple(n.Literal("integer", value) for value in range(10_000)))
