"""Parts of the Spark integration that need no Spark: literals, names, encodings, texts."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from lamella.client.spark.block_scan import encode
from lamella.client.spark.catalyst import find_leaf
from lamella.client.spark.connect_columns import ColumnWalker, name_parts
from lamella.client.spark.lake import hadoop_path, refuse_hidden
from lamella.client.spark.literal import (
    FALSE,
    NULL,
    TRUE,
    Inexpressible,
    cross_type_literal,
    literal,
    typed_literal,
    unknown,
)
from lamella.client.spark.parquet_pushdown import (
    columns_in,
    is_sound_in_parquet,
    reader_options,
    skippable_columns,
    unambiguous_columns,
)
from lamella.client.spark.scan import filter_text
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import Column, Schema, parse_type


@pytest.mark.parametrize(
    ("column", "spark_type", "value", "expected"),
    [
        ("int64", "long", 5, typed_literal("long", 5)),
        ("uint8", "short", "5", typed_literal("long", 5)),
        ("uint64", "decimal(20,0)", "18446744073709551615", typed_literal("decimal", "18446744073709551615")),
        ("decimal(10,2)", "decimal(10,2)", "1.2E+3", typed_literal("decimal", "1200")),
        ("float32", "float", 0.1, typed_literal("double", 0.10000000149011612)),
        ("float32", "float", "3.4028235E38", typed_literal("double", 3.4028234663852886e38)),
        ("float64", "double", "NaN", typed_literal("double", "NaN")),
        ("float64", "double", float("-inf"), typed_literal("double", "-Infinity")),
        ("boolean", "boolean", "true", typed_literal("boolean", True)),
        ("date", "date", "-719162", typed_literal("date", -719162)),
        ("timestamp(ms)", "timestamp", 1_500, typed_literal("timestamp", 1_500)),
        ("timestamp_ntz(us)", "timestamp_ntz", 7, typed_literal("timestamp_ntz", 7)),
        ("json", "string", "{}", typed_literal("string", "{}")),
        ("uuid", "binary", b"\x00\xff", typed_literal("binary", "00ff")),
        ("int64", "long", None, NULL),
    ],
)
def test_values_of_the_columns_own_type_are_exact(column: str, spark_type: str, value: Any, expected: Any) -> None:
    """What Spark compares is what is sent."""
    assert literal(parse_type(column), spark_type, value) == expected


@pytest.mark.parametrize(
    ("column", "spark_type", "value"),
    [
        ("int64", "string", "5"),
        ("string", "string collate UNICODE_CI", "x"),
        ("date", "timestamp", 5),
        ("timestamp(us)", "timestamp_ntz", 5),
        ("float16", "float", 1.0),
        ("string", "string", "\ufffd"),
        ("time(us)", "time(6)", 5),
    ],
)
def test_values_of_other_types_are_not_expressed(column: str, spark_type: str, value: Any) -> None:
    """Where Spark would cast, or text may be damaged, nothing is said."""
    with pytest.raises(Inexpressible):
        literal(parse_type(column), spark_type, value)


@pytest.mark.parametrize(
    ("column", "spark_type", "value", "expected"),
    [
        ("int32", "long", 1 << 40, typed_literal("long", 1 << 40)),
        ("float64", "integer", 5, typed_literal("double", 5.0)),
        ("float32", "integer", (1 << 24) + 1, None),
        ("float64", "long", (1 << 53) + 1, None),
        ("int64", "double", 4.5, typed_literal("double", 4.5)),
        ("int64", "double", 1e300, None),
        ("decimal(10,2)", "integer", 5, typed_literal("long", 5)),
        ("decimal(38,30)", "integer", 5, None),
        ("decimal(10,2)", "decimal(10,0)", Decimal("12.345"), typed_literal("decimal", "12.345")),
        ("decimal(38,10)", "decimal(10,0)", Decimal("1E-20"), None),
        ("int64", "decimal(10,0)", Decimal("5"), None),
        ("date", "string", "2024-02-29", typed_literal("string", "2024-02-29")),
        ("date", "string", "2023-02-29", None),
        ("date", "string", "2024-2-9", None),
        ("timestamp(us)", "string", "2024-02-29 12:00:00.5", typed_literal("string", "2024-02-29 12:00:00.5")),
        ("timestamp(us)", "date", 5, None),
        ("string", "integer", 5, None),
        ("boolean", "boolean", True, typed_literal("boolean", True)),
        ("string", "string", None, NULL),
    ],
)
def test_comparisons_that_spark_has_not_analysed_are_expressed_only_where_exact(
    column: str, spark_type: str, value: Any, expected: Any
) -> None:
    """On Connect types may differ still: exact casts are made here, others left out."""
    if expected is None:
        with pytest.raises(Inexpressible):
            cross_type_literal(parse_type(column), spark_type, value)
    else:
        assert cross_type_literal(parse_type(column), spark_type, value) == expected


SCHEMA = Schema.assign(
    [
        Column(name="a", type="int64"),
        Column(name="x", type="float64"),
        Column(name="s", type="struct", fields=(Column(name="b", type="string"),)),
        Column(name="s.b", type="int64"),
        Column(name="l", type="list", fields=(Column(name="element", type="int64"),)),
    ]
)


def test_a_column_is_found_by_its_path_or_not_at_all() -> None:
    """A column ``s.b`` beside a field ``b`` of ``s`` is another one; lists and structs as a whole are not used."""
    assert find_leaf(SCHEMA, ["A"]).id == 1
    for path in (["s", "b"], ["S.B"]):
        assert [part.lower() for part in find_leaf(SCHEMA, path).path] == [part.lower() for part in path]
    for path in (["l", "element"], ["s"], ["nope"], ["s", "b.c"]):
        with pytest.raises(Inexpressible):
            find_leaf(SCHEMA, path)


def test_only_filters_on_believed_columns_go_into_sparks_skipping() -> None:
    """One part on a column that is not believed, or that is not understood, keeps a filter out."""
    good = {"type": "gt", "term": "a", "value": typed_literal("long", 1)}
    bad = {"type": "gt", "term": "n", "value": typed_literal("long", 1)}
    assert is_sound_in_parquet(good, SCHEMA, ["a"])
    assert is_sound_in_parquet({"type": "not", "child": {"type": "or", "children": [good, FALSE]}}, SCHEMA, ["a"])
    assert not is_sound_in_parquet(good, SCHEMA, [])
    for tree in (bad, unknown("f(a)", "?"), {"type": "and", "children": [good, bad]}, {"type": "not", "child": bad}):
        assert not is_sound_in_parquet(tree, SCHEMA, ["a"])
    call = {"type": "gt", "term": {"type": "call", "function": "abs"}, "value": typed_literal("long", 1)}
    assert columns_in(call) is None
    assert columns_in({"type": "and", "children": [good, bad]}) == frozenset({"a", "n"})


@pytest.mark.parametrize(
    ("value", "sound"),
    [(1.0, True), (-1.5, True), ("Infinity", True), (0.0, False), (-0.0, False), ("NaN", False), (None, True)],
)
def test_floats_go_into_sparks_skipping_but_for_zeros_and_nan(value: Any, sound: bool) -> None:
    """Where there is no NaN, only the two zeros differ in dictionaries and bloom filters."""
    tree = {"type": "lt-eq", "term": "x", "value": typed_literal("double", value)}
    assert is_sound_in_parquet(tree, SCHEMA, ["x"]) == sound
    listed = {"type": "in", "term": "x", "values": [typed_literal("double", 2.0), typed_literal("double", value)]}
    assert is_sound_in_parquet({"type": "not", "child": listed}, SCHEMA, ["x"]) == sound
    assert is_sound_in_parquet({"type": "is-null", "term": "x"}, SCHEMA, ["x"])
    assert not is_sound_in_parquet(tree, SCHEMA, ["a"])


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_timestamps_go_into_sparks_skipping_in_whole_milliseconds(kind: str) -> None:
    """Spark cuts a constant to the unit of a file, so ``t < 0.0015`` would lose a row at 0.001."""
    schema = Schema.assign([Column(name="t", type=f"{kind}(us)")])
    for value, sound in ((0, True), (-1000, True), (1500, False), (-1, False)):
        assert (
            is_sound_in_parquet({"type": "lt", "term": "t", "value": typed_literal(kind, value)}, schema, ["t"])
            == sound
        )


def test_reader_options_switch_off_what_is_not_sound() -> None:
    """With a float, or a column that is not believed, nothing in the file is, also where page indexes are trusted."""
    plain = Schema.assign([Column(name="a", type="int64"), Column(name="b", type="string")])
    assert skippable_columns(plain) == ["a", "b"]
    assert reader_options(plain, page_index=True, believed=["a", "b"]) == {}
    column_index = "parquet.filter.columnindex.enabled"
    assert reader_options(plain, page_index=False, believed=["a", "b"]) == {column_index: "false"}
    levels = {f"parquet.filter.{level}.enabled" for level in ("stats", "dictionary", "bloom", "columnindex")}
    assert reader_options(plain, page_index=True, believed=["a"]) == dict.fromkeys(levels, "false")
    everything = skippable_columns(SCHEMA)
    assert everything == ["a", "x", "s.b", "s.b"]
    assert unambiguous_columns(SCHEMA) == ["a", "x"]
    assert reader_options(SCHEMA, page_index=True, believed=everything) == dict.fromkeys(levels, "false")


def test_names_of_columns_are_parsed_as_spark_parses_them() -> None:
    """Dots separate, backticks quote, doubled backticks stand for one."""
    assert name_parts("a") == ["a"]
    assert name_parts("s.b") == ["s", "b"]
    assert name_parts("`s.b`") == ["s.b"]
    assert name_parts("`a``b`.c") == ["a`b", "c"]
    for wrong in ("", "a..b", "`a", "a.", "`a`b"):
        with pytest.raises(Inexpressible):
            name_parts(wrong)


def test_a_connect_column_of_unknown_form_keeps_everything() -> None:
    """The walk never fails, whatever a future version's trees look like."""
    assert ColumnWalker(SCHEMA).tree(SimpleNamespace())["type"] == "unknown"


def test_locations_become_hadoops_paths() -> None:
    """Nothing is escaped; S3 is s3a; what Hadoop would change is refused."""
    assert hadoop_path("/a b/c%20#?.parquet") == "file:///a b/c%20#?.parquet"
    assert hadoop_path("s3://bucket/ü/x.parquet") == "s3a://bucket/ü/x.parquet"
    for location in ("s3://bucket/a/../b", "s3://bucket/a/./b", "s3://bucket/a//b", "memory://a"):
        with pytest.raises(InvalidRequest):
            hadoop_path(location)
    refuse_hidden(["file:///_b/x.parquet", "file:///a/_k=v"])
    for location in ("file:///a/_x.parquet", "file:///a/.x.parquet"):
        with pytest.raises(InvalidRequest):
            refuse_hidden([location])


def test_statuses_are_encoded_as_hadoop_writes_them() -> None:
    """The count, then length and message of each; lengths beyond one byte are continued."""
    encoded = encode([("file:///a", 300), ("s3a://b/ä", 1 << 40)])
    assert encoded[:4] == b"\x00\x00\x00\x02"
    first = int.from_bytes(encoded[4:8], "big")
    assert b"file:///a" in encoded[8 : 8 + first]
    assert b"\x18\xac\x02" in encoded[8 : 8 + first]
    assert "s3a://b/ä".encode() in encoded[8 + first :]
    assert encode([]) == b"\x00\x00\x00\x00"


def test_filters_are_shown_as_one_line() -> None:
    """Plans show what was sent, readable, with long lists cut and unknown parts marked."""
    many = [typed_literal("long", at) for at in range(9)]
    tree = {
        "type": "and",
        "children": [
            {"type": "in", "term": "a", "values": many},
            {"type": "not", "child": {"type": "is-null", "term": "b"}},
            {"type": "gt-eq", "term": "d", "value": typed_literal("date", 19_000)},
            {"type": "lt", "term": "t", "value": typed_literal("timestamp", 1_000_000)},
            {"type": "eq", "term": "t", "value": typed_literal("timestamp", 1 << 62)},
            {"type": "like", "term": "s", "value": typed_literal("string", "a%")},
            {"type": "eq", "term": "r", "value": typed_literal("binary", "00")},
            unknown("f(x) = 1", "?"),
            TRUE,
        ],
    }
    assert filter_text(tree) == (
        "(a IN (0, 1, 2, 3, 4, 4 more) AND NOT b IS NULL AND d >= DATE '2022-01-08' AND t < '1970-01-01T00:00:01Z'"
        f" AND t = timestamp {1 << 62} AND s LIKE 'a%' AND r = x'00' AND UNKNOWN[f(x) = 1] AND TRUE)"
    )
