"""CASE and IF: decided branch by branch, in the type that Spark gives the whole."""

from __future__ import annotations

import re

import pytest

from lamella.snapshot.expression import bind, read_filter, read_sql, sql_of, tree_of
from lamella.snapshot.expression.bound import Anything, BoundPredicate, leaves_of
from lamella.snapshot.expression.cases import MAX_ALTERNATIVES
from lamella.snapshot.schema import Column, Schema

SCHEMA = Schema.assign(
    [
        Column(name="i", type="int"),
        Column(name="l", type="bigint"),
        Column(name="m", type="decimal(10,2)"),
        Column(name="x", type="double"),
        Column(name="y", type="float"),
        Column(name="s", type="string"),
        Column(name="d", type="date"),
        Column(name="f", type="boolean"),
        Column(name="t", type="timestamp"),
    ]
)


def bound(text: str) -> BoundPredicate:
    return bind(read_sql(text, time_zone="Europe/Berlin"), SCHEMA, time_zone="Europe/Berlin")


def shape_of(node: BoundPredicate) -> str:
    """A filter without the texts of its parts; a list of one constant is a choice of one."""
    text = re.sub(r"(, )?text=('([^'\\\\]|\\\\.)*'|\"[^\"]*\")", "", str(node))
    return re.sub(r"name='[^']*'", "", text).replace("BoundOr(children=(Fixed(value=True),))", "Fixed(value=True)")


def reasons(text: str) -> list[str]:
    return [leaf.reason for leaf in leaves_of(bound(text)) if isinstance(leaf, Anything)]


@pytest.mark.parametrize(
    ("case", "same"),
    [
        ("CASE WHEN f THEN i ELSE 5 END > 3", "(f IS TRUE AND i > 3) OR (NOT (f IS TRUE) AND true)"),
        ("IF(f, i, 2) > 3", "(f IS TRUE AND i > 3) OR (NOT (f IS TRUE) AND false)"),
        ("CASE WHEN f THEN i END > 3", "(f IS TRUE AND i > 3) OR (NOT (f IS TRUE) AND NULL)"),
        ("CASE WHEN f THEN s LIKE 'a%' ELSE i > 3 END", "(f IS TRUE AND s LIKE 'a%') OR (NOT (f IS TRUE) AND i > 3)"),
        ("5 < CASE WHEN f THEN i ELSE 9 END", "(f IS TRUE AND i > 5) OR (NOT (f IS TRUE) AND true)"),
        ("CASE WHEN f THEN i ELSE 9 END + 1 > 5", "(f IS TRUE AND i + 1 > 5) OR (NOT (f IS TRUE) AND true)"),
        ("CASE WHEN f THEN 'a' ELSE s END IN ('a')", "(f IS TRUE AND true) OR (NOT (f IS TRUE) AND s IN ('a'))"),
        ("CASE WHEN f THEN NULL ELSE s END IS NULL", "(f IS TRUE AND true) OR (NOT (f IS TRUE) AND s IS NULL)"),
        ("nullif(i, 3) = 5", "((i = 3) IS TRUE AND NULL) OR (NOT ((i = 3) IS TRUE) AND i = 5)"),
    ],
)
def test_a_case_means_the_same_as_its_branches(case: str, same: str) -> None:
    """A CASE has, for each row, the result of the one branch that the row reaches."""
    assert shape_of(bound(case)) == shape_of(bound(same))
    assert not reasons(case)


@pytest.mark.parametrize(
    "text",
    [
        "CASE WHEN f THEN i ELSE l END = 5",  # a BIGINT
        "CASE WHEN f THEN i ELSE 5000000000 END = 5",
        "CASE WHEN f THEN m ELSE 1 END = 5",  # a decimal with room for both
        "CASE WHEN f THEN 1 ELSE 1.5 END = m",
        "CASE WHEN f THEN x ELSE 1 END = 5.0D",
        "CASE WHEN f THEN d ELSE DATE '2024-01-01' END = d",
    ],
)
def test_branches_of_types_that_are_widened_exactly_are_used(text: str) -> None:
    """Where Spark's type for the whole holds every value exactly, each branch is compared in it."""
    assert not reasons(text)


@pytest.mark.parametrize(
    "text",
    [
        "CASE WHEN f THEN l ELSE x END = 5.0D",  # 64 bits as a double
        "CASE WHEN f THEN y ELSE 16777217 END = 5",  # rounded to a FLOAT
        "CASE WHEN f THEN i ELSE s END = '5'",  # by Spark's settings
        "CASE WHEN f THEN s ELSE 5 END = '5'",
        "CASE WHEN f THEN 1e0 ELSE 1.5 END = 1",
        "CASE WHEN f THEN 12345678901234567890123456789.5BD ELSE 0.12345678901234567890BD END > m",
    ],
)
def test_branches_that_spark_may_round_are_unknown(text: str) -> None:
    """Where the type of the whole may round a branch, or depends on settings, the predicate excludes nothing."""
    assert reasons(text)


def test_combinations_of_branches_are_limited() -> None:
    """A term with very many combinations of branches is unknown, and takes no time."""
    one = "CASE WHEN i = 1 THEN 1 WHEN i = 2 THEN 2 WHEN i = 3 THEN 3 ELSE 4 END"
    assert not reasons(f"{one} + {one} > 5")
    assert str(MAX_ALTERNATIVES) in reasons(f"{one} + {one} + {one} + {one} > 5")[0]


@pytest.mark.parametrize(
    "nested",
    ["CASE WHEN {} THEN 1 WHEN f THEN 2 ELSE 3 END = 2", "(CASE WHEN {} THEN f END) IS NULL", "({}) = (i > 1)"],
)
def test_nested_conditions_are_bounded(nested: str) -> None:
    """A condition is used several times on each level: what would grow without bound is unknown."""
    text = "i = 1"
    for _ in range(18):
        text = nested.format(text)
    assert len(leaves_of(bound(text))) < 50_000


@pytest.mark.parametrize(
    "text",
    [
        "CASE WHEN f THEN i WHEN i > 3 OR s LIKE 'x%' THEN 5 ELSE 7 END > 3",
        "round(x, 1) > 0.5D AND d + INTERVAL '1' MONTH > d",
        "greatest(i, 5) = 6 OR concat(s, 'x') = 'yx'",
        "timestampadd(HOUR, 3, d) > TIMESTAMP '2024-01-01 00:00:00'",
        "timestampdiff(HOUR, d, TIMESTAMP '2024-01-01 00:00:00') > 7",
        "i DIV 2 = 1 AND i % 3 = 1 AND pmod(i, 3) = 1 AND shiftright(i, 1) = 2",
        "extract(YEAROFWEEK FROM d) = 2024",
    ],
)
def test_filters_are_written_as_they_are_read(text: str) -> None:
    """SQL and JSON made of a filter mean the same filter."""
    predicate = read_sql(text)
    assert bind(read_sql(sql_of(predicate)), SCHEMA) == bind(predicate, SCHEMA)
    assert read_filter(tree_of(predicate)) == predicate


@pytest.mark.parametrize("text", ["nullif(3, i) = 2", "decode(5, i, 'a', 'b') = 'a'", "(5, i) < (l, 3)"])
def test_constants_are_on_the_right_in_json(text: str) -> None:
    """The grammar has terms on the left only; the filter stays the same."""
    again = bind(read_filter(tree_of(read_sql(text))), SCHEMA)
    assert shape_of(again) == shape_of(bound(text))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("d > DATE '2024-01-31' + INTERVAL '1' MONTH", "d > DATE '2024-02-29'"),
        ("d >= trunc(DATE '2024-05-17', 'MONTH')", "d >= DATE '2024-05-01'"),
        ("x > abs(-5)", "x > 5"),
        ("i > 7 DIV 2", "i > CAST(3 AS BIGINT)"),
        ("t > TIMESTAMP '2026-03-30 02:30:00' - INTERVAL 1 DAY", "t > TIMESTAMP '2026-03-29 01:30:00+00:00'"),
        ("s = concat('a', upper('b'))", "s = 'aB'"),
        ("s = date_format(DATE '2024-05-17', 'yyyy-MM')", "s = '2024-05'"),
    ],
)
def test_functions_of_constants_are_constants(text: str, same: str) -> None:
    """A function of constants is computed when the filter is bound."""
    values = [getattr(leaf, "value", leaf) for leaf in leaves_of(bound(text))]
    assert values == [getattr(leaf, "value", None) for leaf in leaves_of(bound(same))]


def test_a_constant_that_spark_may_refuse_is_unknown() -> None:
    """An overflow in a constant expression is an error or a null by Spark's settings."""
    assert reasons("i > 2147483647 + 1")
    assert reasons("i > 1 DIV 0")
