"""Terms: plausible readings of functions, casts and arithmetic that would leave out rows, and what Spark 4.3 does."""

from __future__ import annotations

from typing import Any

import pytest

from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.errors import InvalidFilter, UnknownColumn
from lamella.snapshot.expression import bind, read_filter, read_sql
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.manifest import Block
from lamella.snapshot.prune import ALL, NONE, evaluate, verdicts
from lamella.snapshot.schema import Column, Schema
from support import generate

TYPES = {
    "t": "tinyint",
    "i": "int",
    "b": "bigint",
    "u64": "uint64",
    "f": "float",
    "x": "double",
    "p": "decimal(10,2)",
    "w": "decimal(38,37)",
    "d": "date",
    "ts": "timestamp",
    "s": "string",
    "flag": "boolean",
}
SCHEMA = Schema.assign([Column(name=name, type=kind) for name, kind in TYPES.items()])
INT_MAX, DATE_MAX = 2**31 - 1, 2**31 - 1


def verdict(condition: Any, time_zone: str = "UTC", **row: Any) -> int:
    """The verdict over a block of one row with exact statistics; columns that are not given are null."""
    stats = {leaf.id: generate.exact_stats(leaf.dtype, [row.get(leaf.name)]) for leaf in SCHEMA.leaves()}
    sidecar = Sidecar(build_blocks(SCHEMA, [Block(location="memory://b", row_count=1, file_size=1, col_stats=stats)]))
    bound = bind(read_filter(condition, time_zone=time_zone), SCHEMA, time_zone=time_zone)
    outcome = evaluate(bound, lambda leaf: sidecar.zones(leaf.id, leaf.dtype), 1)
    return int(verdicts(outcome, sidecar.numbers("row_count"))[0])


@pytest.mark.parametrize(
    ("condition", "row"),
    [
        ("t + 5Y = -124", {"t": 127}),  # a TINYINT constant: the sum is one too, and wraps around without ANSI mode
        ("CAST(5 AS TINYINT) + t = -124", {"t": 127}),
        ("t * 2Y < 0", {"t": 127}),
        ("i + 2147483647L > 3000000000", {"i": INT_MAX}),  # a BIGINT constant: the sum has room
        ("i * 2L > 3000000000", {"i": INT_MAX}),
        ("coalesce(t, 5) + coalesce(t, 5) = 200", {"t": 100}),  # an INT by then
        ("coalesce(i, CAST(5 AS DECIMAL(2,0))) + 2147483647 > 3000000000", {"i": INT_MAX}),  # a decimal by then
        ("coalesce(i, 5L) * 2 > 3000000000", {"i": INT_MAX}),
        ("i + 1 < 0", {"i": INT_MAX}),
        ("-t = -128", {"t": -128}),
        ("abs(t) < 0", {"t": -128}),
        ("i / 0 IS NULL", {"i": 1}),
        ("CAST(i AS TINYINT) = 0", {"i": 256}),
        ("CAST(x AS INT) = 2147483647", {"x": 1e300}),
        ("trunc(d, 'Q') IS NULL", {"d": 0}),  # no unit of Spark's, though the parser spells it out
        ("trunc(d, 'Y') IS NULL", {"d": 0}),
        ("date_trunc('D', ts) IS NULL", {"ts": 0}),
        ("date_trunc('W', ts) IS NULL", {"ts": 0}),
        ("coalesce(d, '2020-01-01') < '2020-01-02'", {"d": 3_000_000}),  # text without ANSI mode: '+10183-...'
        ("left(s, 0) = ''", {"s": b"abc"}),
        ("substring(s, -1, 1) = 'c'", {"s": b"abc"}),
        ("lower(s) = 'k'", {"s": "\u212a".encode()}),  # the Kelvin sign
        ("upper(s) = 'SS'", {"s": "ß".encode()}),
        ("upper(s) = 'I'", {"s": "\u0131".encode()}),
        ("date_add(d, 1) < d", {"d": DATE_MAX}),  # wraps around in either mode
        ("get_json_object(s, '$.a') IS NULL", {"s": b"{}"}),
        ("get_json_object(s, '$.a') = 'x'", {"s": b"{'a':'x'}"}),
    ],
)
def test_what_matches_in_spark_is_selected(condition: str, row: dict[str, Any]) -> None:
    """Each row matches in Spark 4.3, with ANSI mode or without: its block stays."""
    assert verdict(condition, **row) != NONE


@pytest.mark.parametrize(
    ("condition", "row"),
    [
        ("t + 5Y = 132", {"t": 127}),
        ("w < 10", {"w": 10**38 - 1}),  # Spark rounds 9.99... to a decimal with room for 10
        ("NOT isnan(i + 1)", {"i": INT_MAX}),  # fails in ANSI mode
        ("NOT (t + t <=> 4.5)", {"t": 127}),
        ("s <=> CAST(CAST(i AS TINYINT) AS STRING)", {"i": 256}),
        ("trunc(d, 'Y') IS NOT NULL", {"d": 0}),
        ("trunc(d, 'MON') < DATE '2020-02-01'", {"d": -(2**31)}),  # wraps around
        ("add_months(d, 1) IS NOT NULL", {"d": DATE_MAX}),  # fails
        ("last_day(d) > DATE '2020-01-01'", {"d": DATE_MAX}),
        ("coalesce(d, '2020-01-01') > '2020'", {"d": 3_000_000}),
        ("date_trunc('Y', d) IS NOT NULL", {"d": 0}),
        ("CAST(x AS INT) >= 0", {"x": float("nan")}),
        ("get_json_object(s, '$.a') IS NOT NULL", {"s": b"{}"}),
        ("NOT get_json_object(s, '$.a') <> 'x'", {"s": b"{}"}),
        ("get_json_object(s, '$.a') IS NULL", {"s": b"{'a':'x'}"}),
    ],
)
def test_what_does_not_match_in_spark_is_no_all(condition: str, row: dict[str, Any]) -> None:
    """Each row does not match, or fails, in Spark 4.3 with ANSI mode or without: its block is not ALL."""
    assert verdict(condition, **row) != ALL


@pytest.mark.parametrize(
    ("condition", "row", "expected"),
    [
        ("t + 5 = 132", {"t": 127}, ALL),
        ("t + 5 = 131", {"t": 127}, NONE),
        ("i + 1.5 > 2.5", {"i": 1}, NONE),
        ("p * 1.5 = 2.25", {"p": 150}, ALL),
        ("p = i", {"p": 200, "i": 2}, ALL),
        ("i = x", {"i": 2, "x": 2.5}, NONE),
        ("d < ts", {"d": 1, "ts": 86_400_000_000}, NONE),
        ("coalesce(flag, false) = true", {"flag": None}, NONE),
        ("nvl(p, 0) + 1 = 1", {"p": None}, ALL),
        ("coalesce(b, CAST(0 AS INT)) >= 95", {"b": 94}, NONE),
        ("year(d) = 2020 AND month(d) = 2", {"d": 18_321}, ALL),
        ("trunc(d, 'mon') = DATE '2020-02-01'", {"d": 18_321}, ALL),
        ("date_trunc('Month', ts) = TIMESTAMP '1970-01-01'", {"ts": 5}, ALL),
        ("upper(s) LIKE 'ROW-3%'", {"s": b"row-40"}, NONE),
        ("left(s, 2) = 'ab'", {"s": b"abc"}, ALL),
        ("length(s) = 2", {"s": "ä😀".encode()}, ALL),
        ("i + 1 IS NULL", {"i": 4}, NONE),
        ("get_json_object(s, '$.a') IS NULL", {"s": None}, ALL),
        ("get_json_object(s, '$.a') = 'x'", {"s": None}, NONE),
    ],
)
def test_what_is_certain_is_decided(condition: str, row: dict[str, Any], expected: int) -> None:
    """With exact bounds of one value, the functions are computed."""
    assert verdict(condition, **row) == expected


def test_a_part_of_a_time_is_that_of_the_sessions_zone() -> None:
    """1970-01-01 00:00 UTC is an evening of 1969 in New York; its offset before 2000 is taken for any there is."""
    instant = 1_583_020_800_000_000  # 2020-03-01 00:00 UTC
    assert verdict("month(ts) = 3", ts=instant) == ALL
    assert verdict("month(ts) = 3", "America/New_York", ts=instant) == NONE
    assert verdict("year(ts) = 1969", "America/New_York", ts=0) not in (ALL, NONE)
    assert verdict("year(ts) = 1970", ts=0) == ALL


def test_a_constants_type_is_preserved_where_it_decides_the_results() -> None:
    """A suffix is another thing than a cast: Spark types the one by its digits beside a decimal, the other never."""
    one, five = n.Literal("integer", 1), n.Literal("integer", 5, "int8")
    assert read_sql("t + 5Y > 1") == n.Compare("gt", n.Call("add", (n.Ref("t"), five)), one)
    assert read_sql("t > 5Y") == n.Compare("gt", n.Ref("t"), five)
    cast = n.Cast(n.Literal("integer", 5), "int8")
    assert read_sql("t > CAST(5 AS TINYINT)") == n.Compare("gt", n.Ref("t"), cast)
    assert read_sql("t + (2Y + 3Y) > 1") == n.Compare("gt", n.Call("add", (n.Ref("t"), cast)), one)
    assert read_sql("t IN (CAST(5 AS TINYINT), 5Y)") == n.In(n.Ref("t"), (five, five))


@pytest.mark.parametrize(
    "condition",
    [
        "date_trunc(s, ts) IS NULL",  # a column as the unit
        "trunc(d, s) IS NULL",
        "TRY_CAST(i AS TINYINT) = 5",
        "CAST(s AS STRING COLLATE utf8_lcase) = 'a'",
        "CAST(s AS ARRAY<INT>) = d",
        "i + u64 > 5",
        "coalesce(u64, 5) > 5",
        "coalesce(f, 0.1D) > 0.1D",
        "f + 1 > 5",
        "p / 2 > 1",
        "hour(d) = 0",
        "coalesce(b, f) > 5",
        "CASE WHEN flag THEN i ELSE f END = 1",
        "round(f, 1) = 1.0D",
        "p DIV 2 = 1",
        "x % 2 = 1",
        "p % 2 = 1",
        "CAST(p AS STRING) = '1.00'",
        "date_format(ts, 'MM-dd') = '01-01'",
        "date_format(d, 'yyyy-MM-dd HH') = '1970-01-01 00'",
        "concat(s, X'00') = 'a'",
    ],
)
def test_what_is_rounded_or_decided_by_settings_keeps_everything(condition: str) -> None:
    """Neither an error nor a claim."""
    assert verdict(condition, i=1, d=0, s=b"a", p=1, f=1.0) not in (ALL, NONE)


@pytest.mark.parametrize("condition", ["NOT ((1D / f <=> 2D) IS NULL)", "NOT ((1D / f <=> unknown(f)) IS NULL)"])
def test_a_row_that_may_fail_inside_a_null_test_is_not_proven(condition: str) -> None:
    """``<=>`` is never null, but in ANSI mode the division by zero in it fails: the block is not ALL."""
    assert verdict(condition, f=0.0) not in (ALL, NONE)


def test_columns_inside_functions_must_exist() -> None:
    """A misspelt column is an error even where the function could not be used; so is a wrong number of arguments."""
    with pytest.raises(UnknownColumn):
        verdict("year(nosuch) = 5")
    with pytest.raises(UnknownColumn):
        verdict("date_trunc(nosuch, ts) IS NULL")
    with pytest.raises(InvalidFilter):
        verdict({"type": "eq", "term": {"type": "apply", "function": "year", "arguments": ["d", "d"]}, "value": 5})
    with pytest.raises(InvalidFilter):
        verdict({"type": "eq", "term": {"type": "cast", "term": "i", "to": "nothing"}, "value": 5})
