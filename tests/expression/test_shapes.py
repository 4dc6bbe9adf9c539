"""Filters that are bound by the shape of an earlier one: they are what the reader and binder make of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.sql_grammar import CORPUS
from fuzz.tables import schema
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression import Filters, bind, read_filter, text_of
from lamella.snapshot.expression.nodes import Predicate
from lamella.snapshot.expression.shapes import literal_kinds, split_literals
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.workload.recorded_filters import masked
from support.plain_sql import plain_sql

SEEDS = st.integers(0, 2**48)
ZONES = ("UTC", "Europe/Berlin", "+05:30")
TABLE = Schema.assign(
    [
        Column(name=name, type=kind)
        for name, kind in {
            "i": "int64",
            "small": "int8",
            "u": "uint64",
            "f": "float32",
            "d": "float64",
            "price": "decimal(9,2)",
            "s": "string",
            "b": "binary",
            "day": "date",
            "at": "timestamp(us)",
            "ms": "timestamp(ms)",
            "wall": "timestamp_ntz",
            "flag": "boolean",
            "a": "int32",
        }.items()
    ]
)
#: Spellings of literals: usual ones, the ends of types, and what is not certain or not allowed.
SPELLINGS = (
    *("0", "1", "5", "127", "128", "007", "2147483648", "999999999999999999", "9999999999999999999", "1" * 45),
    *("1.5", "2.50", "1e3", "1E-3", "0.005", "123456789.125", "1e400"),
    *("''", "'x'", "'ab%'", "'%'", "'a_b'", "'it -- is /* not'", "'ä'", "'5'", "'" + "z" * 80 + "'"),
    *("'2020-02-29'", "'2021-02-29'", "'2020-1-1'", "'2020'", "'10000-01-01'", "'today'"),
    *("'2020-01-01 00:00:00'", "'2020-01-01T10:11:12.123456+02:00'", "'2020-01-01 10:11:12.123Z'"),
    *("'2020-01-01 10:11:12.1+00:00'", "'2020-01-01 24:00:00+00:00'", "'2020-13-01 00:00:00+00:00'"),
    *("'0001-01-01 00:00:00+09:00'", "'9999-12-31 23:59:59.999999-09:00'", "'2021-03-28 02:30:00'"),
    *("'2020-01-01 10:11:12.123456789+00:00'", "'2020-01-01 10:11:12+09:59'", "'2020-01-01 10:11:12+09:60'"),
)
SHAPES = (
    *("i >= 5 AND i < 9", "i = 5", "i <> 5 AND i >= 5", "i > 9 AND i < 5", "NOT (i = 5 OR a < 3)", "5 < i", "i = -5"),
    *("i BETWEEN 1 AND 5", "i IN (1, 2, 3)", "i IN (1, NULL)", "i NOT IN (5)", "s IN ('a', 'b')", "small >= 5"),
    *("u < 5", "f > 1.5", "d <= 1e3", "price = 2.50", "price > 5", "d IN (1.5, 2)", "f = 1", "i > 1.5", "a - 5 > 3"),
    *("s = 'x'", "s LIKE 'ab%'", "s NOT LIKE '%x'", "s > 'a' AND s < 'b'", "b = 'x'", "s <> 'x'", "i = '5'"),
    *("day = DATE '2020-02-29'", "day > '2020-02-29'", "at >= TIMESTAMP '2020-01-01 10:11:12.123Z'", "i <=> 5"),
    *(
        "ms < timestamp'2020-01-01 00:00:00'",
        "wall = TIMESTAMP_NTZ '2020-01-01 00:00:00'",
        "day = TIMESTAMP '2020-01-01'",
    ),
    *("at < DATE '2020-02-29' OR at >= TIMESTAMP '2020-01-01 00:00:00'", "flag = true AND i = 5", "flag = NULL"),
    *("s IS NULL AND i = 5", "s IS NOT NULL OR s = ''", "((i = 1)) AND (a = 2 OR (i = 3 AND a <> 4))", "missing = 5"),
    *("`i` = 5", 's = "x"', "i = 5 -- six", "i = 5 /* 6 */", "i = - 5", "i = --5\n 5", "s = 'x' 'y'", "s = r'x'"),
    *("i = 5L", "price = 5BD", "abs(i) = 5", "i = 5 + 5", "s LIKE 'a!%' ESCAPE '!'", "i > 5 = true", "b = X'1F'"),
)


def outcome(make: Callable[[], object]) -> str:
    """What a call returns, or the error that it raises."""
    try:
        return repr(make())
    except LamellaError as error:
        return f"{type(error).__name__} {error.message} {error.details}"


def with_others(text: str, random: Random) -> str:
    """The text with other literals; most are of the kind that was there."""
    split = split_literals(text)
    if split is None:  # too long
        return text
    key, literals = split
    others = []
    for literal in literals:
        similar = [each for each in SPELLINGS if (each[0] == "'") == (literal[0] == "'")]
        others.append(random.choice(similar if random.random() < 0.9 else SPELLINGS))
    return "".join(part for pair in zip(key, [*others, ""], strict=True) for part in pair)


def check(filters: Filters, text: str, time_zone: str, table: Schema = TABLE) -> None:
    """The filter is bound as it would be without an earlier one."""

    def read() -> Predicate:
        return read_filter(text, time_zone=time_zone)

    found = outcome(lambda: filters.bound_text(text, table, read, time_zone=time_zone))
    assert found == outcome(lambda: bind(read(), table, time_zone=time_zone)), text


@pytest.mark.parametrize("text", SHAPES)
@given(seed=SEEDS)
def test_a_filter_of_a_known_shape_is_bound_as_any_other(text: str, seed: int) -> None:
    """Whatever the literals are, and in whatever order the filters come; errors and their positions too."""
    random = Random(seed)
    filters, zone = Filters(), random.choice(ZONES)
    check(filters, text, zone)
    for _ in range(6):
        check(filters, with_others(text, random), zone)
    check(filters, text, zone)


@given(seed=SEEDS)
def test_plain_filters_are_bound_as_any_other(seed: int) -> None:
    """The same of filters that are made up, over the tables of the other property tests."""
    random = Random(seed)
    filters = Filters()
    text = plain_sql(random)
    for each in (text, with_others(text, random), with_others(text, random), text):
        check(filters, each, "UTC", schema())


@pytest.mark.parametrize("text", CORPUS)
def test_texts_that_are_not_plain_are_bound_as_any_other(text: str) -> None:
    """Functions, comments, escapes and mistakes have no shape, or the right one."""
    random = Random(text)
    filters = Filters()
    for each in (text, with_others(text, random), text):
        check(filters, each, "UTC", schema())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("i >= 5 AND i < 9", "i >= 70 AND i < 71"),
        ("i = -5", "i = -6"),
        ("at >= TIMESTAMP '2020-01-01 00:00:00Z'", "at >= TIMESTAMP '2021-01-01 00:00:00.123+01:00'"),
        ("s LIKE 'a%' OR s IS NULL", "s LIKE '%b' OR s IS NULL"),
        ("i IN (1, 2) AND price > 2.50", "i IN (4, 3) AND price > 1.5"),
        ("day BETWEEN DATE '2020-01-01' AND DATE '2020-02-01'", "day BETWEEN DATE '2021-01-01' AND DATE '2021-02-01'"),
    ],
)
def test_the_second_filter_of_a_shape_is_not_read(first: str, second: str) -> None:
    """Only its literals are converted."""

    def refuse() -> Predicate:
        raise AssertionError("it was read")

    filters = Filters()
    filters.bound_text(first, TABLE, lambda: read_filter(first))
    assert filters.bound_text(second, TABLE, refuse) == bind(read_filter(second), TABLE)


def test_tables_with_one_shape_do_not_displace_each_other() -> None:
    """A program that asks a hundred tables the same has each filter read once for each of them."""
    texts: list[str] = []
    filters = Filters()
    tables = [Schema.assign([Column(name="i", type="int64"), Column(name=f"c{n}", type="int32")]) for n in range(100)]

    def reader(text: str) -> Callable[[], Predicate]:
        def read() -> Predicate:
            texts.append(text)
            return read_filter(text)

        return read

    for value in range(3):
        text = f"i = {value}"
        for table in tables:
            assert filters.bound_text(text, table, reader(text)) == bind(read_filter(text), table)
    assert texts == ["i = 0"] * 100


def test_shapes_do_not_pile_up() -> None:
    """A program that writes another text each time, with the columns in another order, costs a bounded memory."""
    filters = Filters()
    for number in range(2_000):
        text = f"i > 5 {' ' * number} AND a < 3"
        filters.bound_text(text, TABLE, partial(read_filter, text))
    assert len(filters._shapes) <= 1_024


@given(seed=SEEDS)
def test_filters_of_one_shape_and_kinds_are_recorded_as_one(seed: int) -> None:
    """If the kinds of a filter's literals are known, every text with such literals is the same without them."""
    random = Random(seed)
    text = random.choice(SHAPES) if random.random() < 0.5 else plain_sql(random)
    zone = random.choice(ZONES)
    kinds = literal_kinds(text, zone)
    if kinds is None:
        return
    other = with_others(text, random)
    split, own = split_literals(other), split_literals(text)
    assert split is not None
    assert own is not None
    if split[0] != own[0]:  # a number after a word, as in timestamp'...', is a part of the word
        return
    if any(kind.read(each, zone) is None for kind, each in zip(kinds, split[1], strict=True)):
        return
    one, two = (masked(read_filter(each, time_zone=zone)) for each in (text, other))
    assert (tree_of(one), text_of(one)) == (tree_of(two), text_of(two))
