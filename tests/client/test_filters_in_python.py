"""Filters written in Python, and what of pyarrow's and Polars' expressions is translated, and what is refused."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.client import call, col
from lamella.client.filters import plain_filter
from lamella.client.filters.trees import constant, term_constant
from lamella.snapshot.errors import InvalidFilter, LimitExceeded
from lamella.snapshot.expression import read_sql, read_tree, text_of

#: Expressions, and the SQL text of the filter that they are.
OURS: list[tuple[Any, str]] = [
    (col("a") > 4, "a > 4"),
    (col("a") > 4, "a > 4"),
    ((col("a") >= 1) & (col("b") <= 2) & (col("c") < 3), "a >= 1 AND b <= 2 AND c < 3"),
    ((col("a") == 1) | ~(col("b") != "x"), "a = 1 OR NOT (b <> 'x')"),
    (col("flag") & ~col("other"), "flag AND NOT (other)"),
    (True & col("flag"), "true AND flag"),
    (False | col("flag"), "false OR flag"),
    (col("a").is_in([1, 2]), "a IN (1, 2)"),
    (col("a").is_null() | col("a").is_not_null(), "a IS NULL OR a IS NOT NULL"),
    (col("a").is_nan(), "isnan(a)"),
    (col("a").between(1, col("b")), "a >= 1 AND a <= b"),
    (col("a").eq_null_safe(3), "a <=> 3"),
    (col("a").eq_null_safe(None), "a IS NULL"),
    (col("s")["x"]["y.z"] == 1, "s.x.`y.z` = 1"),
    (col("s.x").startswith("50%_"), "startswith(s.x, '50%_')"),
    (col("t").endswith("50%"), r"t LIKE '%50\\%'"),
    (col("t").contains("_"), r"t LIKE '%\\_%'"),
    (col("t").like("a%"), "t LIKE 'a%'"),
    (col("t").rlike("^abc"), "startswith(t, 'abc')"),
    ((col("a") > 1).is_true() & (col("b") > 1).is_unknown(), "(a > 1) IS TRUE AND (b > 1) IS UNKNOWN"),
    (col("a") + 1 - col("b") * 2 > -col("c"), "((a + 1) - (b * 2)) > (-c)"),
    (1 + col("a") > 1 - col("b"), "(1 + a) > (1 - b)"),
    (2 * col("a") > col("b") / 2, "(2 * a) > (b / 2)"),
    (1 / col("a") > abs(col("b")) % 3, "(1 / a) > (abs(b) % 3)"),
    (col("a").cast("bigint") == 1, "CAST(a AS bigint) = 1"),
    (call("year", col("day")) == 2024, "year(day) = 2024"),
    (call("coalesce", col("a"), 5) == 2, "coalesce(a, 5) = 2"),
    (col("day") + dt.timedelta(days=3) > col("at"), "(day + INTERVAL '3' DAY) > at"),
    (col("at") - dt.timedelta(hours=1) > col("day"), "(at + INTERVAL '-3600' SECOND) > day"),
    (col("a") == Decimal("1.50"), "a = 1.50"),
    (col("day") == dt.date(2024, 1, 31), "day = DATE '2024-01-31'"),
    (col("at") >= dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "at >= TIMESTAMP '2024-01-01T00:00:00Z'"),
    (col("at") >= dt.datetime(2024, 1, 1), "at >= TIMESTAMP_NTZ '2024-01-01T00:00:00'"),  # noqa: DTZ001
    (col("raw") == b"\x01\xff", "raw = X'01FF'"),
]


def words(text: str) -> str:
    """A filter's text without parentheses."""
    return text.replace("(", "").replace(")", "")


@pytest.mark.parametrize(("expression", "sql"), OURS)
def test_an_expression_is_the_filter_that_its_sql_text_is(expression: Any, sql: str) -> None:
    """Both read the same, but for the types of constants."""
    assert words(text_of(read_tree(plain_filter(expression)))) == words(text_of(read_sql(sql)))


def test_a_chain_is_one_condition_with_many_parts() -> None:
    """Thousands of alternatives are within the depth of filters."""
    found = col("a") == 0
    for number in range(1, 500):
        found = found | (col("a") == number)
    assert len(found.tree["children"]) == 500


def test_what_python_would_decide_itself_is_an_error() -> None:
    """``and``, ``or``, ``not``, chains of comparisons and ``in`` have no meaning that an expression could see."""
    wrongs: list[Callable[[], object]] = [
        lambda: (col("a") > 1) and (col("b") > 1),
        lambda: not col("a"),
        lambda: 1 < col("a") < 3,
        lambda: 1 in col("a"),  # type: ignore[operator]
        lambda: list(col("a")),  # type: ignore[call-overload]
        lambda: {col("a")},
    ]
    for wrong in wrongs:
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: col("a") == None, "is_null"),  # noqa: E711
        (lambda: col("a").is_in([1, None]), "is_null"),  # type: ignore[list-item]
        (lambda: col("a").is_in("abc"), "list"),
        (lambda: call("frobnicate", col("a")), "frobnicate"),
        (lambda: call("year"), "0 arguments"),
        (lambda: col("a") == Decimal("NaN"), "finite"),
        (lambda: col("a") == dt.timedelta(1), "timedelta"),
        (lambda: col("a") == (col("b") == 1), "condition"),
        (lambda: (col("a") + 1)["x"], "fields"),
        (lambda: col("a") == pd.Timestamp("2024-01-01 00:00:00.000000001"), "microseconds"),
        (lambda: col("a") == pd.NaT, "microseconds"),
        (lambda: col("a") == np.datetime64(1, "ns"), "microseconds"),
        (lambda: col("a") == dt.time(1, tzinfo=dt.UTC), "time zone"),
        (lambda: call("concat", col("a"), dt.time(1)) == "x", "time"),
        (lambda: plain_filter(5), "int 5"),
        (lambda: plain_filter([col("a") > 1]), "list"),
    ],
)
def test_what_a_filter_cannot_hold_is_named(make: Callable[[], object], part: str) -> None:
    """Nothing is dropped."""
    with pytest.raises(InvalidFilter, match=part):
        make()


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (True, {"data-type": "boolean", "value": True}),
        (np.int8(5), {"data-type": "long", "value": 5}),
        (2**63, {"data-type": "decimal", "value": "9223372036854775808"}),
        (float("nan"), {"data-type": "double", "value": "NaN"}),
        (float("-inf"), {"data-type": "double", "value": "-Infinity"}),
        (Decimal("1E+3"), {"data-type": "decimal", "value": "1000"}),
        (np.datetime64("2024-01-01", "D"), {"data-type": "date", "value": 19723}),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999999), {"data-type": "timestamp_ntz", "value": -1}),  # noqa: DTZ001
    ],
)
def test_constants_are_exact(value: object, literal: dict[str, object]) -> None:
    """Of Python and NumPy."""
    assert constant(value) == term_constant(value) == {"type": "literal", **literal}


def test_texts_stand_for_values_of_the_column_s_type() -> None:
    """As in other JSON filters, on one side of a comparison."""
    assert constant("2024-01-01") == "2024-01-01"
    assert constant(uuid.UUID(int=1)) == "00000000-0000-0000-0000-000000000001"
    assert constant(dt.time(1, 2, 3, 4)) == "01:02:03.000004"


@given(value=st.datetimes() | st.datetimes(timezones=st.timezones()) | st.dates())
def test_every_moment_is_exact(value: dt.date) -> None:
    """Microseconds and days come back."""
    literal = term_constant(value)
    if isinstance(value, dt.datetime):
        zone = value.tzinfo
        epoch = dt.datetime(1970, 1, 1, tzinfo=None if zone is None else dt.UTC)
        assert epoch + dt.timedelta(microseconds=literal["value"]) == value
    else:
        assert dt.date(1970, 1, 1) + dt.timedelta(days=literal["value"]) == value


F = pc.field
#: Accepted expressions of pyarrow, and the text of their filter.
ARROW: list[tuple[Any, str]] = [
    (F("a") == 4, "a = 4"),
    (F("a") < 4, "a < 4"),
    (F("a") > 4, "a > 4 AND NOT (isnan(a))"),
    (F("a") >= 4.5, "a >= 4.5 AND NOT (isnan(a))"),
    (F("a") > "x", "a > 'x'"),
    (F("a") < F("b"), "a < b AND ((NOT (isnan(a)) AND NOT (isnan(b))) OR a IS NULL OR b IS NULL)"),
    (F("a") != F("b"), "a <> b OR ((isnan(a) OR isnan(b)) AND a IS NOT NULL AND b IS NOT NULL)"),
    (F("s", "x.y") == 1, "s.`x.y` = 1"),
    (F("it's\ncall: 'x'") == 1, "it's\ncall: 'x' = 1"),
    (F("a").isin([1, None]), "((a IN (1)) IS TRUE) OR a IS NULL"),
    (F("a").isin(pa.array([], pa.int64())), "false"),
    (F("a").is_null(nan_is_null=True), "a IS NULL OR isnan(a)"),
    (~F("flag") & F("a").is_valid(), "NOT (flag) AND a IS NOT NULL"),
    (pc.scalar(False) | F("flag"), "false OR flag"),
    (F("day") == dt.date(1970, 1, 2), "day = date(1)"),
    (F("at") == pa.scalar(1_000, pa.timestamp("ns", "UTC")), "at = timestamp(1)"),
    (pc.match_like(F("t"), "a%"), "t LIKE 'a%'"),
]


@pytest.mark.parametrize(("expression", "text"), ARROW)
def test_pyarrow_s_meaning_is_spelled_out(expression: Any, text: str) -> None:
    """NaN is above nothing, and null is in no list."""
    assert words(text_of(read_tree(plain_filter(expression)))) == words(text)


P = pl.col
#: Accepted expressions of Polars, and the text of their filter.
POLARS: list[tuple[Any, str]] = [
    (P("a") > 4, "a > 4"),
    (P("a") >= 0.5, "a >= 0.5"),
    (P("a") == pl.lit(0.1, pl.Float64), "a = 0.1"),
    (P("a").is_in([1, None]), "a IN (1)"),
    (P("a").is_in(["x"]), "a IN ('x')"),
    (P("a").is_in([]), "a <> a"),
    (P("a").is_between(1, 2, closed="right"), "a > 1 AND a <= 2"),
    (P("a").eq_missing(3), "a <=> 3"),
    (P("s").struct.field("x.y").is_nan(), "s.`x.y` = nan"),
    (P("t").str.contains("plain text"), "t LIKE '%plain text%'"),
    (P("t").str.contains("a.b", literal=True), "t LIKE '%a.b%'"),
    (P("t").str.len_chars() == 3, "length(t) = 3"),
    (P("day") == dt.date(1970, 1, 2), "day = date(1)"),
    (P("a") == Decimal("12345678901234567890.12345"), "a = 12345678901234567890.12345"),
    ((P("a") == 1).alias("x") & ~P("flag"), "a = 1 AND NOT (flag)"),
]


@pytest.mark.parametrize(("expression", "text"), POLARS)
def test_polars_meaning_is_spelled_out(expression: Any, text: str) -> None:
    """Nulls in lists match nothing, unless they are to be equal."""
    assert words(text_of(read_tree(plain_filter(expression)))) == words(text)


REFUSED: list[tuple[Any, str]] = [
    (F("a").isin([0, 1]), "isin with 0"),
    (F("a").isin([1.5]), "isin"),
    (F("a") == float("nan"), "NaN"),
    (F("a") == pa.scalar(None, pa.int64()), "null"),
    (F("a") == pa.scalar(0.1, pa.float32()), "float"),
    (F("a") == pa.scalar(1, pa.timestamp("ns")), "microseconds"),
    (F("a") == pa.scalar(1, pa.duration("us")), "duration"),
    (F("a").isin(pa.array([2**62 + 1], pa.timestamp("us"))), "4611686018427387905 is converted"),
    (F("a").cast("int32") == 1, "cast"),
    (F("a") / 2 > 1, "divide_checked"),
    (pc.add(F("a"), 1) > 1, "add of"),
    (F("a") + 0.5 > 1, "add_checked"),
    (pc.year(F("a")) > 1, "year"),
    (pc.and_(F("a"), F("b")), "and_ of"),
    (pc.xor(F("a"), F("b")), "xor"),
    (pc.if_else(F("a"), F("b"), F("c")), "if_else"),
    (pc.starts_with(F("t"), "x", ignore_case=True), "starts_with"),
    (pc.match_substring_regex(F("t"), "x"), "match_substring_regex"),
    (pc.match_like(F("t"), "a\\_"), "match_like"),
    (pc.field(0) > 1, "field"),
    (pc.scalar(1) == pc.scalar(1), "two constants"),
    (pc.scalar(1), "condition"),
    (P("a") > 0.1, "0.1"),
    (P("a") > float("inf"), "NaN or infinity"),
    (P("a") == pl.lit(None), "null"),
    (P("a") > P("b"), "Column"),
    (P("a") + 1 > 1, "Plus"),
    (P("a") // 2 > 1, "FloorDivide"),
    (P("a").cast(pl.Int8) > 1, "Cast"),
    (P("a") ^ P("b"), "Xor"),
    (P("a").sum() > 1, "Agg"),
    (P("a").shift(1) > 1, "Shift"),
    (P("a").over("b") > 1, "Over"),
    (P("a").map_elements(bool, return_dtype=pl.Boolean), "AnonymousFunction"),
    (P("a").is_in(P("b")), "is_in"),
    (P("a").is_in([1], nulls_equal=True), "nulls_equal"),
    (P("^a.*$") > 1, "Selector"),
    (pl.all() > 1, "Selector"),
    (pl.len() > 1, "Len"),
    (P("a") == pl.Series([1]), "Series"),
    (P("t").str.contains("a.b"), "str.contains"),
    (P("a").dt.year() > 1, "TemporalExpr.Year"),
    (P("a") == dt.datetime(2024, 1, 1, 0, 0, 0, 1), "microseconds"),  # noqa: DTZ001
    (P("a") == dt.timedelta(1), "Duration"),
    (pl.when(P("a") > 1).then(True), "Ternary"),
    (P("a").is_null().any(), "Any"),
    (P("a").fill_null(0) > 1, "FillNull"),
]


@pytest.mark.parametrize(("expression", "part"), REFUSED)
def test_what_is_not_translated_is_named(expression: Any, part: str) -> None:
    """A part that was dropped would give more rows."""
    with pytest.raises(InvalidFilter, match=part):
        plain_filter(expression)


@pytest.mark.parametrize("expression", [F("a") > 1, P("a") > 1])
def test_expressions_of_others_are_in_utc(expression: Any) -> None:
    """They compare dates with times in UTC."""
    with pytest.raises(InvalidFilter, match="UTC"):
        plain_filter(expression, "Europe/Berlin")
    assert plain_filter(col("a") > 1, "Europe/Berlin")


@pytest.mark.parametrize("first", [F("a") == 0, P("a") == 0])
def test_an_expression_of_others_that_is_too_deep_is_refused(first: Any) -> None:
    """Each ``|`` of theirs is a level; a list has no levels."""
    found = first
    for number in range(1, 3_000):
        found = found | (first if number % 2 else ~first)
    with pytest.raises(LimitExceeded):
        plain_filter(found)


def test_other_filters_stay_as_they_are() -> None:
    """SQL text, JSON filters, true and false, and none."""
    for given_filter in ("a > 1", {"type": "true"}, True, False, None):
        assert plain_filter(given_filter) is given_filter
