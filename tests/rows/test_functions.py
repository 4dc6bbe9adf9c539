"""Functions row by row: edges of clocks, of numbers and of text. Spark itself judges the same in ``test_spark``."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lamella.snapshot.errors import EvaluationFailed
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression import read_filter
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.schema import Column, Schema

_ARROW: dict[str, Any] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp(us)": pa.timestamp("us", "UTC"),
    "timestamp(ms)": pa.timestamp("ms", "UTC"),
    "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(30,2)": pa.decimal128(30, 2),
    "binary": pa.binary(),
}


def matching(condition: str, kind: str, values: list[Any], time_zone: str = "UTC") -> list[Any]:
    """The values of column ``a`` for which the condition is true."""
    schema = Schema.assign([Column(name="a", type=kind)])
    made = RowFilter(read_filter(condition, time_zone=time_zone), schema, time_zone=time_zone)
    column = pa.array(values, _ARROW[kind])
    mask = made.matches({1: column}, len(values))
    return [value for value, is_true in zip(values, mask.tolist(), strict=True) if is_true]


def utc(text: str) -> dt.datetime:
    """An instant."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def test_an_hour_that_the_clocks_show_twice_begins_twice() -> None:
    """In the repeated hour, date_trunc keeps the offset that the instant itself has, as java.time does."""
    first, second = utc("2021-10-31T00:30"), utc("2021-10-31T01:30")  # both show 02:30 in Berlin
    condition = "date_trunc('hour', a) = TIMESTAMP'2021-10-31 01:00:00Z'"
    assert matching(condition, "timestamp(us)", [first, second], "Europe/Berlin") == [second]


def test_a_day_whose_midnight_is_skipped_begins_afterwards() -> None:
    """Where clocks jump at midnight, the day begins at the end of the jump."""
    noon = utc("2018-11-04T15:00")  # Sao Paulo jumped from 00:00 to 01:00, that is at 03:00 UTC
    condition = "date_trunc('day', a) = TIMESTAMP'2018-11-04 03:00:00Z'"
    assert matching(condition, "timestamp(ms)", [noon], "America/Sao_Paulo") == [noon]


def test_the_far_future_has_a_time_of_day() -> None:
    """The last rules of a zone hold for ever, as in java.time."""
    summer, winter = utc("2150-07-01T10:00"), utc("2150-01-01T10:00")
    assert matching("hour(a) = 12", "timestamp(us)", [summer, winter], "Europe/Berlin") == [summer]


@pytest.mark.parametrize(("time_zone", "instant"), [("Europe/Berlin", "1950-07-01"), ("Asia/Tehran", "1978-06-01")])
def test_an_offset_on_which_the_databases_disagree_is_an_error(time_zone: str, instant: str) -> None:
    """Before 1970, and in a few zones until 1996, nobody knows what Spark's own time zone data say."""
    with pytest.raises(EvaluationFailed, match="offset"):
        matching("hour(a) = 12", "timestamp(us)", [utc(instant)], time_zone)
    assert matching("hour(a) = 12", "timestamp(us)", [utc(instant)], "+02:00") == []


@pytest.mark.parametrize(
    ("condition", "kind", "value"),
    [
        ("a + 1 > 0", "int32", 2**31 - 1),
        ("- a > 0", "int64", -(2**63)),
        ("abs(a) > 0", "int32", -(2**31)),
        ("a * a > 0", "int64", 2**32),
        ("10 / a > 0", "int32", 0),
        ("1 / a > 0", "float64", -0.0),
        ("date_add(a, 2147483647) > DATE'2000-01-01'", "date", dt.date(2000, 1, 1)),
    ],
)
def test_what_spark_refuses_to_compute_is_an_error(condition: str, kind: str, value: Any) -> None:
    """An overflow or a division by zero is an error that names the filter; a null is not."""
    with pytest.raises(EvaluationFailed) as failure:
        matching(condition, kind, [None, value])
    assert failure.value.details["predicate"]
    assert matching(condition, kind, [None]) == []


@pytest.mark.parametrize(
    "condition", ["a <> 0 AND 10 / a > 1", "a = 0 OR 10 / a > 1", "NOT (a = 0) AND NOT (10 / a <= 1)"]
)
def test_what_need_not_be_computed_cannot_fail(condition: str) -> None:
    """A side that the first one decides is not looked at."""
    assert 5 in matching(condition, "int32", [0, 5, None])


def test_the_side_that_comes_first_fails_first() -> None:
    """A division by zero on the left fails whatever stands on the right."""
    with pytest.raises(EvaluationFailed):
        matching("10 / a > 1 AND a <> 0", "int32", [0])


def test_wide_decimals_are_computed_exactly() -> None:
    """Beyond 64 bits nothing is rounded."""
    lower = Decimal("9999999999999999999999999999.98")
    upper = Decimal("9999999999999999999999999999.99")
    lowest = Decimal("-9999999999999999999999999999.99")  # a minus sign in front would round
    values = [lower, upper, lowest, None]
    assert matching("a + 0.01 = 9999999999999999999999999999.99", "decimal(30,2)", values) == [lower]
    assert matching("abs(a) > 9999999999999999999999999999.98", "decimal(30,2)", values) == [upper, lowest]
    assert matching("a = 9999999999999999999999999999.99", "decimal(30,2)", values) == [upper]


def test_unsigned_numbers_beyond_the_signed_ones_compare_as_numbers() -> None:
    """2^64 - 1 is more than nothing."""
    assert matching("a > 9223372036854775807", "uint64", [0, 2**63, 2**64 - 1]) == [2**63, 2**64 - 1]


def test_text_that_is_converted_differently_by_other_versions_is_an_error() -> None:
    """A letter that got its other case in a newer Unicode is not guessed at; the others are folded."""
    assert matching("upper(a) = 'STRASSE'", "string", ["straße", "strasse", "x"]) == ["straße", "strasse"]
    assert matching("lower(a) = 'όσος'", "string", ["ΌΣΟΣ"]) == ["ΌΣΟΣ"]
    for letter in ("\u019b", "\U00010d50"):
        with pytest.raises(EvaluationFailed, match="Unicode"):
            matching("upper(a) = 'x'", "string", [letter])


def test_bytes_that_are_no_text_are_an_error_only_where_characters_count() -> None:
    """A text column of broken bytes can be compared, but has no length."""
    broken = pa.array([b"a\xff", b"b"], pa.binary()).view(pa.string())
    schema = Schema.assign([Column(name="a", type="string")])
    assert RowFilter(read_filter("a < 'b'"), schema).matches({1: broken}, 2).tolist() == [True, False]
    for condition in ("length(a) = 1", "a LIKE '_%b'", "left(a, 1) = 'a'", "lower(a) = 'b'"):
        with pytest.raises(EvaluationFailed, match="UTF-8"):
            RowFilter(read_filter(condition), schema).matches({1: broken}, 2)


def test_a_double_just_beyond_64_bits_is_cut() -> None:
    """Spark holds 2^63 against the greatest long as a double, finds it no greater, and cuts it to that."""
    schema = Schema.assign([Column(name="a", type="float64")])
    maximum = n.Literal("integer", 2**63 - 1)
    ours = RowFilter(n.Compare("eq", n.Cast(n.Ref("a"), "int64"), maximum), schema)
    assert ours.matches({1: pa.array([2.0**63, 2.0**62, None])}, 3).tolist() == [True, False, False]
    with pytest.raises(EvaluationFailed):
        ours.matches({1: pa.array([2.0**63 + 2048])}, 1)


def test_a_null_on_the_left_hides_what_fails_on_the_right_but_for_quotients() -> None:
    """Spark computes the left side first and stops at null; of a quotient it computes the divisor first."""
    schema = Schema.assign([Column(name="a", type="int32"), Column(name="b", type="int32")])
    columns = {1: pa.array([None], pa.int32()), 2: pa.array([-(2**31)], pa.int32())}
    for hidden in ("a > (- b)", "a + (- b) > 0", "a / b > 0"):
        assert RowFilter(read_filter(hidden), schema).matches(columns, 1).tolist() == [False]
    for seen in ("(- b) > a", "(- b) + a > 0", "a / (- b) > 0"):
        with pytest.raises(EvaluationFailed):
            RowFilter(read_filter(seen), schema).matches(columns, 1)
