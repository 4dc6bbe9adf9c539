"""Expressions in a cluster key: their values in rows, their bounds in blocks, their text through changes of columns."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.client.rewrite.sort import Order, in_order
from lamella.snapshot.cluster.extent import Intervals, extents
from lamella.snapshot.cluster.key import follows_a_column, key_terms, key_texts, key_values, key_zones
from lamella.snapshot.columnar.zones import zones_of
from lamella.snapshot.commit import empty_snapshot, evolved_snapshot
from lamella.snapshot.errors import FilterTypeMismatch, InvalidFilter, InvalidRequest, InvalidSchema, UnknownColumn
from lamella.snapshot.expression.bound import leaves_in
from lamella.snapshot.schema import Column, Leaf, Schema
from lamella.snapshot.schema.column import split_key
from lamella.snapshot.schema.evolution import DropColumn, RenameColumn, WidenColumn
from lamella.snapshot.stats.measure import leaf_stats, leaf_values

SCHEMA = Schema.assign(
    [
        Column(name="a", type="int64"),
        Column(name="n", type="int32"),
        Column(name="x", type="float64"),
        Column(name="m", type="decimal(20,2)"),
        Column(name="s", type="string"),
        Column(name="d", type="date"),
        Column(name="t", type="timestamp"),
        Column(name="w", type="timestamp_ntz"),
        Column(name="p", type="struct", fields=(Column(name="odd (name)", type="int64"),)),
    ]
)
ORDERED = (
    "a DIV 100",
    "a DIV -7",
    "- a",
    "a + 5",
    "7 - a",
    "a * -3",
    "CAST(a AS INT)",
    "CAST(n AS DOUBLE) / 8",
    "n * 2 + 1",
    "floor(x)",
    "x * -0.5",
    "floor(m)",
    "m + 1.25",
    "round(m, 1)",
    "left(s, 2)",
    "substr(s, 1, 3)",
    "trunc(d, 'MONTH')",
    "date_add(d, 3)",
    "date_trunc('DAY', t)",
    "date_trunc('MONTH', w)",
    "CAST(t AS DATE)",
    "date(w)",
    "`p`.`odd (name)` DIV 10",
    "a > 100",
    "NOT (n >= -5)",
    "x <= 1.5",
    "m < 3",
    "a DIV 10 > 3",
    "t < TIMESTAMP '2000-01-01 00:00:00'",
    "s > 'ab'",
    "s IS NULL",
    "d IS NOT NULL",
)
UNORDERED = (
    "a % 16",
    "abs(a)",
    "lower(s)",
    "length(s)",
    "hour(t)",
    "month(d)",
    "a + n",
    "100 / x",
    "100 DIV a",
    "a = 5",
    "a <> 5",
    "a > n",
    "s LIKE 'a%'",
    "a > 1 AND n > 2",
    "a IN (1, 2)",
    "a % 2 > 0",
)

_DAYS = st.dates(dt.date(1890, 1, 1), dt.date(2100, 12, 31))
_TIMES = st.datetimes(dt.datetime(1890, 1, 1), dt.datetime(2100, 12, 31))  # noqa: DTZ001 - strategies take no zone
ROW = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-500, 500) | st.integers(-(1 << 63), (1 << 63) - 1),
        "n": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
        "x": st.none() | st.floats() | st.sampled_from([0.0, -0.0, math.nan]),
        "m": st.none() | st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-2)),
        "s": st.none() | st.text(max_size=6) | st.sampled_from(["", "ab", "abc", "é", "\U0001f600"]),
        "d": st.none() | _DAYS,
        "t": st.none() | _TIMES,
        "w": st.none() | _TIMES,
        "p": st.none() | st.fixed_dictionaries({"odd (name)": st.none() | st.integers(-100, 100)}),
    }
)
ARROW = pa.schema(
    [
        ("a", pa.int64()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("m", pa.decimal128(20, 2)),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("w", pa.timestamp("us")),
        ("p", pa.struct([("odd (name)", pa.int64())])),
    ]
)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows in Arrow; decimals of any context's digits."""
    return pa.Table.from_pylist(rows, ARROW)


def ranks(values: Any) -> list[int]:
    """Dense ranks in the order of a sort: nulls last, NaN before them, -0.0 as 0.0."""
    given = values.to_pylist()
    some = sorted({value for value in given if value is not None and value == value})
    known = {value: rank for rank, value in enumerate(some)}
    return [len(some) + 1 if value is None else known.get(value, len(some)) for value in given]


@pytest.mark.parametrize("text", ORDERED)
def test_expressions_that_follow_a_column_can_be_a_key(text: str) -> None:
    """Their text is stable: read again, it is the same term."""
    (recorded,) = key_texts(SCHEMA, (text,))
    assert key_texts(SCHEMA, (recorded,)) == (recorded,)
    (term,) = key_terms(SCHEMA, (text,))
    assert follows_a_column(term)
    assert not isinstance(term, Leaf)


@pytest.mark.parametrize("text", UNORDERED)
def test_other_expressions_cannot(text: str) -> None:
    """The bounds of blocks say nothing of where such a value is."""
    with pytest.raises(InvalidRequest, match="do not follow the order of one column"):
        key_terms(SCHEMA, (text,))


@given(rows=st.lists(ROW, min_size=1, max_size=30))
@settings(max_examples=150)
def test_the_values_are_in_the_order_of_the_column(rows: list[dict[str, Any]]) -> None:
    """Or in the reverse order, for every pair of rows with a value of both; equal values give equal ones."""
    table = table_of(rows)
    for text in ORDERED:
        (term,) = key_terms(SCHEMA, (text,))
        (leaf,) = leaves_in(term)
        column, values = leaf_values(table, leaf), key_values(table, term)
        both = pc.and_(column.is_valid(), values.is_valid())
        if pa.types.is_floating(column.type):
            both = pc.and_(both, pc.invert(pc.is_nan(column)))
        if pa.types.is_floating(values.type):
            both = pc.and_(both, pc.invert(pc.is_nan(values)))
        ours, theirs = ranks(values.filter(both)), ranks(column.filter(both))
        pairs = sorted(set(zip(theirs, ours, strict=True)))
        found = [value for _, value in pairs]
        assert len({rank for rank, _ in pairs}) == len(pairs), text
        assert found in (sorted(found), sorted(found, reverse=True)), text


@given(rows=st.lists(ROW, min_size=1, max_size=12))
@settings(max_examples=150)
def test_the_bounds_of_a_block_hold_its_values(rows: list[dict[str, Any]]) -> None:
    """A block of these rows overlaps every block of one of them."""
    table = table_of(rows)
    for text in ORDERED:
        (term,) = key_terms(SCHEMA, (text,))
        (leaf,) = leaves_in(term)
        entries = [(table.num_rows, leaf_stats(leaf, leaf_values(table, leaf)))]
        entries += [(1, leaf_stats(leaf, leaf_values(table.slice(at, 1), leaf))) for at in range(table.num_rows)]
        zones = key_zones(term, lambda leaf, entries=entries: zones_of(leaf.dtype, entries), len(entries))  # type: ignore[misc]
        valid = key_values(table, term).is_valid().to_pylist()
        found = extents("linear", [zones])
        assert isinstance(found, Intervals)
        for at, has_value in enumerate(valid, 1):
            if has_value:
                assert found.first[0] <= found.first[at], text
                assert found.last[at] <= found.last[0], text


@given(rows=st.lists(ROW, min_size=2, max_size=40), seed=st.integers(0, 1 << 30))
@settings(max_examples=60)
def test_rows_are_sorted_by_expressions(rows: list[dict[str, Any]], seed: int) -> None:
    """Of two terms: the first decides, the second among its equals; nulls, and rows where it fails, come last."""
    table = table_of(rows)
    chosen = np.random.default_rng(seed).choice(len(ORDERED), 2, replace=False)
    texts = tuple(ORDERED[each] for each in chosen)
    if len({leaves_in(term) for term in key_terms(SCHEMA, texts)}) < 2:
        return
    order = Order(keys=key_texts(SCHEMA, texts))
    order.check(SCHEMA)
    done, keys = in_order(table, order.key_rows(table, SCHEMA))
    assert done.num_rows == table.num_rows
    again = order.key_rows(done, SCHEMA)
    assert [ranks(again.column(at)) for at in range(2)] == [ranks(keys.column(at)) for at in range(2)]
    first, second = (ranks(again.column(at)) for at in range(2))
    assert list(zip(first, second, strict=True)) == sorted(zip(first, second, strict=True))


def test_curves_go_through_expressions() -> None:
    """Numbers, texts and times alike."""
    table = table_of(
        [
            {
                "a": n * 37 % 101,
                "s": f"{n * 17 % 89:03}",
                "t": dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=n * 31 % 97),
                "m": Decimal(n),
            }
            for n in range(200)
        ]
    )
    keys = key_texts(SCHEMA, ("a DIV 10", "left(s, 2)", "date_trunc('DAY', t)", "floor(m)"))
    order = Order(keys=keys, kind="hilbert")
    fitted = order.along(order.columns(table, SCHEMA), SCHEMA)
    done, _ = in_order(table, fitted.key_rows(table, SCHEMA))
    blocks = [done.slice(at, 20) for at in range(0, 200, 20)]
    width = np.mean([pc.max(b["a"]).as_py() - pc.min(b["a"]).as_py() for b in blocks])
    assert width < 90  # of 100: rows in any order would have nearly all of it


def test_text_that_names_a_column_is_the_column() -> None:
    """However it looks; other text is an expression with the spelling of the schema."""
    schema = Schema.assign([Column(name="a DIV 10", type="int64"), Column(name="a", type="int64")])
    assert isinstance(key_terms(schema, ("a DIV 10",))[0], Leaf)
    assert key_texts(schema, ("(A DIV 10)",)) == ("(a DIV 10)",)
    assert key_texts(SCHEMA, ("(A)", "`S`")) == ("a", "s")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nothing", UnknownColumn),
        ("floor(nothing)", UnknownColumn),
        ("floor(a", InvalidFilter),
        ("a > 'x'", InvalidRequest),
        ("1 > 0", InvalidRequest),
        ("nothing > 3", UnknownColumn),
        ("1 + 1", InvalidRequest),
        ("floor(s)", InvalidRequest),
        ("p", UnknownColumn),
        ("now()", InvalidRequest),
    ],
)
def test_what_is_no_part_of_a_key(text: str, error: type[Exception]) -> None:
    """Is refused by an error that names it."""
    with pytest.raises((error, FilterTypeMismatch)):
        key_terms(SCHEMA, (text,))


def test_the_same_expression_twice_is_refused() -> None:
    """However it is spelled."""
    with pytest.raises(InvalidRequest, match="more than once"):
        key_terms(SCHEMA, ("left(s, 2)", "substr(S, 1, 2)"))


def test_changes_of_columns_reach_the_expressions() -> None:
    """A rename renames; a column of the key cannot be dropped; a wider type must still fit."""
    first = empty_snapshot(
        snapshot_id="s0",
        table_id="t",
        schema=SCHEMA,
        cluster_key=key_texts(SCHEMA, ("date_trunc('DAY', t)", "n * 2", "w IS NULL")),
        cluster_kind="linear",
        properties={},
        now_ms=1,
    )

    def evolved(*changes: Any) -> Any:
        return evolved_snapshot(first, changes, snapshot_id="next", now_ms=2, base_schema_id=None).cluster_key

    assert evolved(RenameColumn(column=("t",), name="at it")).columns == (
        *key_texts(Schema.assign([Column(name="at it", type="timestamp")]), ("date_trunc('DAY', `at it`)",)),
        *first.cluster_key.columns[1:],  # type: ignore[union-attr]
    )
    assert evolved(RenameColumn(column=("w",), name="gone at")).columns[2] == "`gone at` IS NULL"
    with pytest.raises(InvalidSchema, match="part of the cluster key"):
        evolved(DropColumn(column=("t",)))
    assert evolved(WidenColumn(column=("n",), type="int64")).key_id == 0
    assert evolved(DropColumn(column=("a",))).columns == first.cluster_key.columns  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a, b", ("a", "b")),
        ("left(s, 2), a DIV 10 , ", ("left(s, 2)", "a DIV 10")),
        ("`a,b`, concat(s, ',')", ("`a,b`", "concat(s, ',')")),
        ("", ()),
    ],
)
def test_a_key_in_one_text_is_cut_at_its_commas(text: str, parts: tuple[str, ...]) -> None:
    """Not at those in parentheses and quotes."""
    assert split_key(text) == parts
