"""Binding: exact where it can be, unknown where Spark would decide row by row, an error where nothing could."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lamella.snapshot.errors import FilterTypeMismatch, InvalidRequest, UnknownColumn
from lamella.snapshot.expression import bind, read_filter
from lamella.snapshot.expression.bound import (
    Anything,
    BoundIsTrue,
    BoundNot,
    BoundPredicate,
    Comparison,
    Fixed,
    Membership,
    NonNull,
    NullTest,
    Prefix,
    columns_of,
)
from lamella.snapshot.schema import Column, Schema

SCHEMA = Schema.assign(
    [
        Column(name="Small", type="tinyint"),
        Column(name="big", type="bigint"),
        Column(name="u64", type="uint64"),
        Column(name="f", type="float"),
        Column(name="x", type="double"),
        Column(name="price", type="decimal(10,2)"),
        Column(name="text", type="string"),
        Column(name="day", type="date"),
        Column(name="at", type="timestamp"),
        Column(name="at_ms", type="timestamp(ms)"),
        Column(name="wall", type="timestamp_ntz"),
        Column(name="flag", type="boolean"),
        Column(name="raw", type="binary"),
        Column(name="id", type="uuid"),
        Column(name="nested", type="struct", fields=(Column(name="leaf", type="int"),)),
        Column(name="items", type="list", fields=(Column(name="element", type="int"),)),
    ]
)


def bound(text: Any, time_zone: str = "UTC") -> BoundPredicate:
    return bind(read_filter(text, time_zone=time_zone), SCHEMA, time_zone=time_zone)


def comparison(text: Any, time_zone: str = "UTC") -> tuple[str, Any]:
    node = bound(text, time_zone)
    assert isinstance(node, Comparison), node
    return node.op, node.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("small > 4", ("gt", 4)),  # names are found without regard to case
        ("nested.leaf = 4", ("eq", 4)),
        ("big > 4.5", ("gt", 4)),
        ("big >= 4.5", ("gt", 4)),
        ("big < -4.5", ("le", -5)),
        ("big > '5'", ("gt", 5)),
        ("big > 9007199254740991e0", ("gt", 2**53 - 1)),
        ("u64 > 18446744073709551614", ("gt", 2**64 - 2)),
        ("price < 1.005", ("le", 100)),
        ("price = 1.5", ("eq", 150)),
        ("f = 0.5", ("eq", 0.5)),
        ("f = 0.1", ("eq", 0.1)),  # Spark widens the column and compares as doubles
        ("x > 5", ("gt", 5.0)),
        ("day >= '1582-10-04'", ("ge", -141438)),
        ("day > TIMESTAMP '1970-01-02 00:00:01'", ("gt", 1)),
        ("at >= DATE '1970-01-02'", ("ge", 86_400_000_000)),
        ("at_ms > TIMESTAMP '1970-01-01 00:00:00.0015'", ("gt", 1)),
        ("wall > '1970-01-01 00:00:01'", ("gt", 1_000_000)),
        ("text > 'ä'", ("gt", "ä".encode())),
        ("text LIKE 'abc'", ("eq", b"abc")),
        ("flag", ("eq", 1)),
        ("raw = X'00'", ("eq", b"\0")),
    ],
)
def test_a_literal_becomes_a_value_of_the_columns_order(text: str, expected: tuple[str, Any]) -> None:
    """The comparison over the column's own values says exactly what the filter says."""
    assert comparison(text) == expected


def test_a_time_without_zone_lies_in_the_sessions_zone() -> None:
    """Berlin's gap of March 2020: the wall clock time that never was counts with the offset before it."""
    assert comparison("at > '2020-01-01'", "Europe/Berlin") == ("gt", 1_577_833_200_000_000)
    assert comparison("at > '2020-03-29 02:30:00'", "Europe/Berlin") == ("gt", 1_585_445_400_000_000)
    assert comparison("at > '2020-10-25 02:30:00'", "Europe/Berlin") == ("gt", 1_603_585_800_000_000)
    assert isinstance(bound("wall > TIMESTAMP '2020-01-01'", "Europe/Berlin"), Anything)
    with pytest.raises(InvalidRequest):
        bound("at > '2020-01-01'", "Mars/Olympus")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("small > 1000", False),
        ("small < 1000", True),
        ("small = 4.5", False),
        ("big < CAST('NaN' AS DOUBLE)", True),
        ("big >= CAST('Infinity' AS DOUBLE)", False),
        ("u64 >= -1", True),
        ("text LIKE '%'", True),
    ],
)
def test_a_literal_beyond_the_type_decides_every_value(text: str, value: bool) -> None:
    """Out of range, between two values, NaN against integers: one answer for all that is not null."""
    node = bound(text)
    assert isinstance(node, NonNull)
    assert node.value is value


@pytest.mark.parametrize(
    "text",
    [
        "big = 9007199254740992e0",  # the cast to double loses digits
        "price > 1e0",
        "price = '1.5'",
        "text = 5",
        "flag = 'yes'",
        "items.element = 4",
        "items.element IS NULL",
        "items IS NULL",
        "nested IS NULL",
        "nested = 1",
        "text LIKE 'a\\\\b\\x'",
        "big IN ('05')",
        "at IN ('2020-01-01')",
        "at > '2020-01-01 10:00 CEST'",
        {"type": "gt", "term": "f", "value": 0.1},
        {"type": "eq", "term": "text", "value": 4},
    ],
)
def test_what_is_not_exact_is_unknown(text: Any) -> None:
    """Casts that Spark makes row by row, or lossily, are never imitated."""
    assert isinstance(bound(text), Anything)


@pytest.mark.parametrize(
    "text",
    [
        "big = 'five'",
        "day = 'someday'",
        "at > 'soon'",
        "day > 5",
        "raw > 5",
        "text",
        "isnan(text)",
        "big = true",
        "flag = DATE '2020-01-01'",
        "flag = 1",
        "flag < 'maybe'",
        "flag IN (1, 0)",
        "day <=> 3",
        "day IN ('2020-01-01', 3)",
        "day BETWEEN 1 AND 2",
        "day = '2026-13-45'",
        "day IN ('2026-02-29')",
        "at < '2026-13-45'",
        "at > '2026-01-01 25:00:00'",
        "raw < big",
        "big = day",
        "abs(big) < raw",
        "NOT (big + 1)",
        "big = CAST(1.50 AS DECIMAL(5,2)) AND raw = CAST(1 AS BIGINT)",
    ],
)
def test_what_can_never_be_compared_is_refused(text: str) -> None:
    """A type mismatch is an error of the request, not a silent full scan."""
    with pytest.raises(FilterTypeMismatch):
        bound(text)


@pytest.mark.parametrize("text", ["nosuch = 1", "upper(nosuch) = 'X'", "nested.other = 1", "big = nosuch"])
def test_unknown_columns_are_refused_also_where_they_are_not_used(text: str) -> None:
    """A misspelt column is never taken for something that cannot prune."""
    with pytest.raises(UnknownColumn):
        bound(text)


def test_lists_are_sorted_without_doubles_and_keep_null_and_nan_apart() -> None:
    """IN: ascending distinct values; what lies between two values is dropped; null and NaN are flags."""
    node = bound("x IN (2.0D, 1.0D, CAST('NaN' AS DOUBLE), 1.0D, NULL, -0.0D, 0.0D)")
    assert isinstance(node, Membership)
    assert [float(v) for v in node.values if isinstance(v, float)] == [0.0, 1.0, 2.0]
    assert (node.has_nan, node.has_null) == (True, True)
    whole = bound("big IN (3, 4.5, 1)")
    assert isinstance(whole, Membership)
    assert whole.values == (1, 3)


def test_a_list_with_a_double_is_compared_as_doubles() -> None:
    """Spark brings the whole list to double: a neighbour beyond 2^53 would equal it, so nothing is claimed."""
    assert isinstance(bound("big IN (9007199254740993, 1e0)"), Anything)


def test_null_literals_follow_sql() -> None:
    """``= NULL`` is never true; ``<=> NULL`` is IS NULL."""
    assert bound("big = NULL") == Fixed(None)
    assert isinstance(bound("big <=> NULL"), NullTest)
    assert isinstance(bound("big <=> 4"), BoundIsTrue)
    assert isinstance(bound("big <> 4"), BoundNot)


def test_like_is_split_at_its_first_wildcard() -> None:
    """The fixed beginning prunes; only a lone trailing % makes it exact."""
    assert bound("text LIKE 'ab%'") == Prefix(SCHEMA.leaf("text"), b"ab", True, "text LIKE 'ab%'")
    rest = bound("text LIKE 'a\\%b_c%'")
    assert isinstance(rest, Prefix)
    assert (rest.prefix, rest.whole) == (b"a%b", False)


def test_iceberg_text_stands_for_the_columns_type() -> None:
    """JSON texts are dates, decimals, UUIDs and hexadecimal bytes by the column they meet."""
    assert comparison({"type": "eq", "term": "price", "value": "1.50"}) == ("eq", 150)
    assert comparison({"type": "eq", "term": "day", "value": "1970-01-02"}) == ("eq", 1)
    assert comparison({"type": "eq", "term": "at", "value": "1970-01-01T00:00:01+00:00"}) == ("eq", 1_000_000)
    assert comparison({"type": "eq", "term": "raw", "value": "00FF"}) == ("eq", b"\0\xff")
    text = "00000000-0000-0000-0000-0000000000ff"
    assert comparison({"type": "eq", "term": "id", "value": text}) == ("eq", b"\0" * 15 + b"\xff")


def test_nan_is_a_value_of_floats() -> None:
    """``x = NaN`` compares, as Spark does."""
    op, value = comparison(
        {"type": "eq", "term": "x", "value": {"type": "literal", "data-type": "double", "value": "NaN"}}
    )
    assert op == "eq"
    assert math.isnan(value)


DOTTED = Schema.assign(
    [
        Column(name="b.c", type="int64"),
        Column(name="b", type="struct", fields=(Column(name="c", type="string"), Column(name="d.e", type="date"))),
        Column(name="x.y", type="int32"),
        Column(name="p.q", type="struct", fields=(Column(name="r", type="int32"),)),
        Column(name="p", type="struct", fields=(Column(name="q.r", type="int32"),)),
        Column(name="odd`", type="int32"),
    ]
)


@pytest.mark.parametrize(
    ("path", "column"),
    [
        ("`b.c`", ("b.c",)),
        ("b.c", ("b", "c")),  # as in Spark: the field, where there is one
        ("b.`c`", ("b", "c")),
        ("`B`.`D.E`", ("b", "d.e")),
        ("x.y", ("x.y",)),  # nothing else is called so
        ("`x.y`", ("x.y",)),
        ("`p.q`.r", ("p.q", "r")),
        ("p.`q.r`", ("p", "q.r")),
        ("`odd```", ("odd`",)),
        ("odd`", ("odd`",)),
    ],
)
def test_backquotes_reach_every_column(path: str, column: tuple[str, ...]) -> None:
    """In SQL, in JSON, and wherever else a path names a column; the way back is the same."""
    leaf = DOTTED.leaf(path)
    assert leaf.path == column
    assert DOTTED.leaf(leaf.reference) == leaf
    assert DOTTED.select([path]) == (leaf.id,)
    assert columns_of(bind(read_filter({"type": "is-null", "term": path}), DOTTED)) == (leaf,)
    if path != "odd`":
        for text in (f"{path} IS NULL", f"{path} = NULL OR coalesce({path}, {path}) IS NULL"):
            assert columns_of(bind(read_filter(text), DOTTED)) == (leaf,)


@pytest.mark.parametrize("path", ["`b`", "b", "p.q"])
def test_a_struct_is_no_column_of_values(path: str) -> None:
    """Also where a column has the same name with a dot."""
    assert DOTTED.find(path) is None


@pytest.mark.parametrize("path", ["`b.d`", "x.`y`", "`x.z`", "p.q.r", "`b.c`.d"])
def test_what_no_column_or_more_than_one_is_called_is_refused(path: str) -> None:
    """Quoted names are never looked for in other ways; a dotted one that two columns have is ambiguous."""
    with pytest.raises(UnknownColumn):
        DOTTED.find(path)


@pytest.mark.parametrize(
    ("given", "position"),
    [
        ("big = 1 AND (raw < 5 OR day = 'x')", 13),
        ("day BETWEEN 1 AND 2", 0),
        ("big IN (1) AND NOT day NOT IN ('2026-13-45')", 19),
        ("upper(text) = 'A' AND\n  CAST(big AS DATE) = 1", None),
        ("abs(big) < 3L AND flag < 'x'", 18),
        ({"type": "and", "children": [True, {"type": "eq", "term": "day", "value": 5}]}, "$.children[1]"),
        ({"type": "not", "child": {"type": "in", "term": "flag", "values": [True, 5]}}, "$.child"),
    ],
)
def test_what_spark_refuses_is_an_error_that_says_where(given: Any, position: int | str | None) -> None:
    """The offset of the predicate in SQL text, or its JSON path."""
    if position is None:
        bound(given)
        return
    with pytest.raises(FilterTypeMismatch) as caught:
        bound(given)
    assert caught.value.details["position"] == position


@pytest.mark.parametrize(
    "text", ["wide = CAST(1 AS BIGINT)", "wide IN (1L)", "wide IN (1, 2L)", "wide < CAST(1 AS DECIMAL(30,0))"]
)
def test_a_comparison_that_spark_rounds_is_unknown(text: str) -> None:
    """A cast and a list count by types: 20 digits before the point leave a decimal(38,20) no room for its own."""
    schema = Schema.assign([Column(name="wide", type="decimal(38,20)")])
    assert isinstance(bind(read_filter(text), schema), Anything)
    for exact in ("wide = 1L", "wide IN (1, 2)", "wide < CAST(1 AS INT)", "wide = 1.5BD"):
        assert not isinstance(bind(read_filter(exact), schema), Anything)
