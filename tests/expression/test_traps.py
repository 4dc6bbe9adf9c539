"""Traps: spellings and constants for which a plausible reading would leave out rows, each with what Spark 4.3 does."""

from __future__ import annotations

from typing import Any

import pytest

from lamella.snapshot.errors import InvalidFilter, LimitExceeded
from lamella.snapshot.expression import bind, read_filter, read_sql, spark_casts
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression.bound import Anything, BoundPredicate, Comparison, Membership
from lamella.snapshot.schema import Column, Schema

A = n.Ref("a")
SCHEMA = Schema.assign(
    [
        Column(name="small", type="tinyint"),
        Column(name="i", type="int"),
        Column(name="big", type="bigint"),
        Column(name="u64", type="uint64"),
        Column(name="f", type="float"),
        Column(name="x", type="double"),
        Column(name="price", type="decimal(10,2)"),
        Column(name="text", type="string"),
        Column(name="day", type="date"),
        Column(name="at", type="timestamp"),
        Column(name="at_ns", type="timestamp(ns)"),
        Column(name="clock", type="time(us)"),
        Column(
            name="m",
            type="map",
            fields=(Column(name="key", type="string", nullable=False), Column(name="value", type="int")),
        ),
        Column(
            name="items",
            type="list",
            fields=(Column(name="element", type="struct", fields=(Column(name="x", type="int"),)),),
        ),
    ]
)


def bound(given: Any, time_zone: str = "UTC") -> BoundPredicate:
    return bind(read_filter(given, time_zone=time_zone), SCHEMA, time_zone=time_zone)


def typed(kind: Any, value: Any) -> dict[str, Any]:
    return {"type": "literal", "data-type": kind, "value": value}


def equals(term: str, value: Any) -> dict[str, Any]:
    return {"type": "eq", "term": term, "value": value}


@pytest.mark.parametrize(
    ("text", "like"),
    [
        ("a NOT LIKE 'x%'", n.Like(A, "x%")),
        ("a NOT LIKE 'x/%' ESCAPE '/'", n.Like(A, "x/%", "/")),
    ],
)
def test_not_like_is_the_negation_of_like(text: str, like: n.Like) -> None:
    """The parser keeps NOT LIKE as a flag of LIKE; it is never lost."""
    assert read_sql(text) == n.Not(like)


def test_a_second_sign_may_wrap_around() -> None:
    """``-(-2147483648)`` is -2147483648 in Spark without ANSI, and an error with it: it excludes nothing."""
    schema = Schema.assign([Column(name="a", type="bigint")])
    for text in ("a = -(-2147483648)", "a = - -2147483648", "a = -(-128Y)"):
        assert isinstance(bind(read_sql(text), schema), Anything)
    assert read_sql("a = -(5)") == n.Compare("eq", A, n.Cast(n.Literal("integer", -5), "int32"))  # no literal in Spark
    assert read_sql("a = (-5)") == n.Compare("eq", A, n.Literal("integer", -5))


@pytest.mark.parametrize("text", ["a = 1 -- c\\\n AND b = 2", "a = 1 OR b = 2 -- c\r OR c = 3"])
def test_a_comment_that_ends_elsewhere_in_spark_is_not_read(text: str) -> None:
    """A backslash joins the next line to Spark's comment, a lone carriage return ends it."""
    assert isinstance(read_sql(text), n.Unknown)


@pytest.mark.parametrize("name", ["comment", "desc", "set", "end"])
def test_a_column_may_be_named_like_the_beginning_of_a_statement(name: str) -> None:
    """What is no expression as a statement is read as a condition."""
    assert read_sql(f"{name} = 4") == n.Compare("eq", n.Ref(name), n.Literal("integer", 4))


@pytest.mark.parametrize(
    "text",
    [
        "a = CAST('1_0' AS DOUBLE)",  # Python reads 10, Spark null
        "a = CAST('1_0' AS DECIMAL(5, 0))",
        "a = CAST('\u0661' AS DOUBLE)",  # a digit one of another script
        "a = 1.00000017881393432617187499F",  # as a double it lies half-way between two floats
        "a = CAST('1.00000017881393432617187499' AS FLOAT)",
        "a = " + "9" * 400,
        "a = '\\U00110000'",  # beyond Unicode
    ],
)
def test_a_constant_that_java_may_read_otherwise_is_not_used(text: str) -> None:
    """Only what Python and Java read as the same value is a constant."""
    assert isinstance(read_sql(text), n.Unknown)


@pytest.mark.parametrize(
    "text",
    [
        "i = 16777216F",  # equals 16777217 in single precision
        "big IN (16777217, 1.5F)",
        "small < '300'",  # null without ANSI, true with it
        "i = '3000000000'",
        "big = '5.7'",
        "u64 = '5'",  # decimal(20,0) in Spark, compared as doubles
        "u64 IN ('5')",
        "big IN ('--5')",
        "x = '1_0'",
        "f = '\uff11.5'",
        "x = '1.5d'",
        "text = X'61'",
        "price IN (1.00, 99999999999999999999999999999999999999)",  # 38 digits before the point leave none behind
        "price IN (0.000000000000000000000000000001, 99999999999999999999)",
        "day IN ('2020-1-01 ')",  # as text it equals no date
        "day = '\uff12\uff10\uff12\uff10-01-01'",
        "day = '2020-01-01 noon'",
        "day < 'tomorrow'",
        "day = '0000-01-01'",
        "day = '12020-01-01'",
        "at < 'now'",
        "at > '10:00'",
        "at > '10000-01-01'",
        "at = '2020-01-01 01:00 Europe/Berlin'",  # null in Spark: a zone needs seconds before it
        "clock > '10:00 AM'",
        "m.some = 1",
        "items.x IS NULL",
    ],
)
def test_what_spark_casts_by_its_settings_is_unknown(text: str) -> None:
    """Neither an error nor a claim: Spark runs these, with ANSI or without, and not always alike."""
    assert isinstance(bound(text), Anything)


def test_small_values_stay_exact_beside_a_float() -> None:
    """Below 2^24 single precision loses nothing."""
    assert isinstance(bound("big > 5.5F"), Comparison)
    assert isinstance(bound("small = 16777216F"), Anything) is False
    assert isinstance(bound("big IN (5, 1.5F)"), Membership)
    assert isinstance(bound("price IN (1.00, 2)"), Membership)


def test_finer_than_a_microsecond_is_exact_or_unknown() -> None:
    """Spark cuts nanoseconds of text, Iceberg's readers do not: a column that has them keeps its blocks."""
    assert isinstance(bound(equals("at_ns", "2020-01-01T00:00:00.000000001")), Anything)
    assert isinstance(bound(equals("at_ns", "2020-01-01T00:00:00.000001000")), Comparison)


@pytest.mark.parametrize(
    ("name", "offset_h"),
    [("CST", -6), ("EST", -5), ("GMT+6", 6), ("UTC-06:00", -6), ("-6", -6), ("+0530", 5.5), ("-06:00:00", -6)],
)
def test_zones_are_spelled_as_sparks_sessions_spell_them(name: str, offset_h: float) -> None:
    """Java's short names and offsets are time zones, not errors."""
    winter_us = 1_577_836_800_000_000
    assert spark_casts.to_instant_us(winter_us, name) == winter_us - int(offset_h * 3_600_000_000)


def test_old_wall_clock_times_of_a_region_are_unknown() -> None:
    """Java's and Python's time zone data differ for Africa/Accra before 1956, so nothing before 2000 is claimed."""
    assert isinstance(bound("at > '1950-01-01'", "Africa/Accra"), Anything)
    assert isinstance(bound("at > '1950-01-01'", "+01:00"), Comparison)
    assert isinstance(bound("at > '2020-01-01'", "Africa/Accra"), Comparison)


def test_a_day_whose_midnight_the_clocks_skip_is_unknown() -> None:
    """Spark begins such a day at the transition and reads text with the offset before it; only text is followed."""
    zone = "America/Santiago"  # 2019-09-08 00:00 was 01:00
    assert isinstance(bound("at >= DATE '2019-09-08'", zone), Anything)
    assert isinstance(bound("at >= DATE '2019-09-09'", zone), Comparison)


@pytest.mark.parametrize(
    "tree",
    [
        equals("x", 10**400),
        equals("big", 10**5_000),
        equals("x", typed("double", 10**400)),
        equals("price", typed("decimal", "1E999999999")),
        equals("price", typed("decimal", "1_0")),
        equals("price", typed("decimal", "NaN")),
        equals("big", typed([], 5)),
        equals("big", typed("long", [[[]]] * 1_000)),
        equals("big", {"type": "literal", "value": {"type": "literal", "value": 5}}),
        equals("\ud800", 5),
        {"type": "unknown", "text": "\ud800"},
        {"type": "unknown", "text": []},
        {"type": "\ud800"},
        "text = '\ud800'",
    ],
)
def test_hostile_values_are_refused_by_name(tree: Any) -> None:
    """Numbers without end, halves of characters and lists for texts are typed errors, whose message can be sent."""
    with pytest.raises(InvalidFilter) as caught:
        bound(tree)
    assert len(caught.value.message.encode()) < 500


def test_deep_functions_are_refused_or_unknown() -> None:
    """A tree that can be parsed but not be written back ends in the same typed error as one too deep to parse."""
    for depth in (50, 100, 150, 200, 300, 500, 2_000):
        for text in ("abs(" * depth + "a" + ")" * depth + " > 5", "a" + ".b" * depth + " = 5", "a" + "[0]" * depth):
            try:
                read_sql(text)
            except LimitExceeded as error:
                limit = (error.details["limit"], error.details["maximum"])
                assert limit in (("filter_depth", 20), ("filter_depth", 100))
    assert isinstance(read_sql("abs(a) > 5"), n.Compare)


@pytest.mark.parametrize("text", ["a = 3.3.3BD", "a = .3.36BD", "a > 1..5", "a = 3.3.3 AND b = 'x'"])
def test_a_number_with_two_points_is_not_read_as_one(text: str) -> None:
    """sqlglot reads the first half and drops the second."""
    assert isinstance(read_sql(text), n.Unknown)


def test_points_inside_quotes_are_no_numbers() -> None:
    """Versions and addresses as text stay constants."""
    assert read_sql("a = '1.2.3' AND `b.c` = \"10.0.0.1\"") == n.And(
        (
            n.Compare("eq", n.Ref("a"), n.Literal("string", "1.2.3")),
            n.Compare("eq", n.Ref("`b.c`"), n.Literal("string", "10.0.0.1")),
        )
    )


@pytest.mark.parametrize("opening", ["NOT (", "(", "abs(", "a = 1 AND (a = 2 OR ("])
def test_twenty_levels_are_read_however_deep_the_caller_stands(opening: str) -> None:
    """The parser's recursion is not added to the caller's."""
    levels = 20 // opening.count("(")
    text = opening * levels + ("a" if opening == "abs(" else "a = 1") + ")" * levels * opening.count("(")

    def at(depth: int) -> n.Predicate:
        return at(depth - 1) if depth else read_sql(text + (" > 1" if opening == "abs(" else ""))

    assert at(700) == at(0)
