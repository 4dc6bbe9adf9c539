"""Which rows match: against the oracle, over everything that can be generated."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import FilterNotEvaluable
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression import read_filter, read_sql, text_of
from lamella.snapshot.row_filter import RowFilter, like_pattern
from lamella.snapshot.schema import Column, Schema
from support import generate, generate_terms
from support.arrow_files import arrow_array
from support.oracle import FAILS, UNDECIDED, Oracle
from support.spark_sql import sql_of

SEEDS = st.integers(0, 2**48)
LETTERS = "ab%_\\\nä😀"


def check_rows(seed: int, filters: int) -> tuple[int, int]:
    """A random table against the oracle; returns how many filters were decided, and how many refused."""
    rng = Random(seed)
    schema = generate.schema(rng)
    seen = generate.seen_values(schema, generate.table(rng, schema, blocks=3, rows=10))
    rows = generate.rows_of(seen)
    columns = {leaf.id: arrow_array(leaf.dtype, seen[leaf.name]) for leaf in schema.leaves()}
    oracle = Oracle(schema)
    refused = 0
    for _ in range(filters):
        predicate = generate.predicate(rng, schema, seen)
        try:
            truth = RowFilter(predicate, schema).decide(columns, len(rows))
        except FilterNotEvaluable:
            refused += 1
            continue
        assert truth.failed is None
        null = np.asarray(truth.null).tolist()
        got = [None if unknown else true for true, unknown in zip(truth.true.tolist(), null, strict=True)]
        wanted = [oracle.decide(predicate, row) for row in rows]
        assert got == wanted, f"seed {seed}: {text_of(predicate)} over {seen}"
    return filters - refused, refused


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_every_row_is_decided_as_sql_says(seed: int) -> None:
    """Truth, falsehood and null of random filters, over every type with its nasty values."""
    check_rows(seed, filters=20)


def test_few_filters_are_refused() -> None:
    """Of filters that compare columns with constants, nine of ten are decided."""
    counts = [check_rows(seed, filters=20) for seed in range(100)]
    assert sum(decided for decided, _ in counts) > 9 * sum(refused for _, refused in counts)


#: Words of the reasons for which a filter gives up where Spark would give a value.
BEYOND_JAVA = (
    *("offset", "Unicode", "the range of date", "beyond 64 bits", "beyond the years", "too far away"),
    *("beside the middle", "the range of int64"),
)


def is_beyond_java(
    predicate: n.Predicate, schema: Schema, zone: str, columns: Mapping[int, pa.Array], index: int
) -> bool:
    """True when the filter gives up on one row, taken alone, for one of those reasons."""
    alone = {column_id: array.slice(index, 1) for column_id, array in columns.items()}
    reason = RowFilter(predicate, schema, time_zone=zone).decide(alone, 1).reason
    return any(word in reason for word in BEYOND_JAVA)


def check_terms(seed: int, filters: int) -> None:
    """The same with functions, casts and arithmetic, in ANSI mode and in any time zone."""
    rng = Random(seed)
    schema, zone = generate.schema(rng), rng.choice(generate_terms.ZONES)
    blocks = generate_terms.table(rng, schema, blocks=3, rows=8)
    oracle = Oracle(schema, zone)
    seen = generate.seen_values(schema, blocks)
    rows = generate.rows_of(seen)
    columns = {leaf.id: arrow_array(leaf.dtype, seen[leaf.name]) for leaf in schema.leaves()}
    draw = generate_terms.predicates(rng, schema, oracle, blocks)
    for _ in range(filters):
        predicate = draw()
        try:
            truth = RowFilter(predicate, schema, time_zone=zone).decide(columns, len(rows))
        except FilterNotEvaluable:
            continue
        failed = np.zeros(len(rows), dtype=bool) if truth.failed is None else truth.failed
        for index, (row, true, false, fails) in enumerate(zip(rows, truth.true, truth.false, failed, strict=True)):
            got = FAILS if fails else True if true else False if false else None
            wanted = oracle.result(predicate, row, ansi=True)
            case = f"seed {seed} in {zone}: {text_of(predicate)} over {row}: {got}, not {wanted}; {truth.reason}"
            if not oracle.may_fail(predicate, row):
                # The oracle takes Python's word for every offset, letter and day; the filter only where Java agrees.
                assert got == wanted or (fails and is_beyond_java(predicate, schema, zone, columns, index)), case
            elif isinstance(predicate, n.And | n.Or | n.Not | n.IsTrue | n.IsUnknown | n.NullSafeEqual):
                # Which part fails first decides, and beside a null none does; what is decided is decided alike.
                assert got in (wanted, FAILS) or wanted in (FAILS, UNDECIDED), case
            else:
                # Where Spark finds a null first, the divisor's or that of the left side, it computes nothing else.
                null_is = True if isinstance(predicate, n.IsNull) else False if isinstance(predicate, n.IsNan) else None
                of_null = got is null_is and (got is None or wanted == FAILS)
                assert got in (wanted, FAILS) or of_null or wanted == UNDECIDED, case


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_functions_are_computed_as_spark_does(seed: int) -> None:
    """Random terms over random tables, row by row, with what ANSI mode refuses to compute."""
    check_terms(seed, filters=15)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_a_filter_written_as_sql_decides_the_same_rows(seed: int) -> None:
    """Whatever the reader of SQL makes of Spark's spelling of a filter, it is that filter."""
    rng = Random(seed)
    schema, zone = generate.schema(rng, generate.SPARK_TYPES), rng.choice(generate_terms.ZONES)
    blocks = generate_terms.table(rng, schema, blocks=3, rows=8)
    seen = generate.seen_values(schema, blocks)
    count = len(generate.rows_of(seen))
    columns = {leaf.id: arrow_array(leaf.dtype, seen[leaf.name]) for leaf in schema.leaves()}
    draw = generate_terms.predicates(rng, schema, Oracle(schema, zone), blocks)
    for _ in range(20):
        predicate = draw()
        text = sql_of(predicate)
        try:
            wanted = RowFilter(predicate, schema, time_zone=zone).decide(columns, count)
            found = RowFilter(read_sql(text, time_zone=zone), schema, time_zone=zone).decide(columns, count)
        except FilterNotEvaluable:
            continue
        decided = np.ones(count, dtype=bool)
        for truth in (wanted, found):
            decided = decided if truth.failed is None else decided & ~truth.failed
        assert not ((wanted.true != found.true) & decided).any(), f"seed {seed} in {zone}: {text}"
        assert not ((wanted.false != found.false) & decided).any(), f"seed {seed} in {zone}: {text}"


@pytest.mark.soak
def test_many_rows_are_decided_as_sql_says() -> None:
    """The same at length."""
    for seed in range(10_000):
        check_rows(seed, filters=30)
        check_terms(seed, filters=30)


@settings(max_examples=500, deadline=None)
@given(
    pattern=st.text(LETTERS, max_size=7),
    texts=st.lists(st.text(LETTERS, max_size=6), min_size=1, max_size=8),
    escape=st.sampled_from(["\\", "a", ""]),
)
def test_patterns_match_whole_texts(pattern: str, texts: list[str], escape: str) -> None:
    """LIKE with any wildcards, escapes and line ends matches as its definition says, character by character."""
    parsed = like_pattern(pattern, escape)
    schema = Schema.assign([Column(name="s", type="string")])
    if parsed is None:
        with pytest.raises(FilterNotEvaluable):
            RowFilter(n.Like(n.Ref("s"), pattern, escape), schema)
        return
    oracle = Oracle(schema)
    found = parsed.matches(pa.array(texts, pa.large_string())).tolist()
    wanted = [oracle.decide(n.Like(n.Ref("s"), pattern, escape), {"s": text.encode()}) for text in texts]
    assert found == wanted


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("a = 1 AND s RLIKE 'x.*'", "RLIKE"),
        ("my_function(a) = 1", "MY_FUNCTION"),
        ("a = 1 OR rand() < 0.5", "RAND"),
        ("a IN (SELECT 1)", "SELECT"),
        ("a LIKE '1%'", "LIKE"),
        ("NOT (s LIKE 'a\\\\b')", "LIKE"),
    ],
)
def test_what_cannot_be_decided_is_refused_by_name(condition: str, named: str) -> None:
    """No part of a filter is ever left out: the error names the part and says why."""
    schema = Schema.assign([Column(name="a", type="int32"), Column(name="s", type="string")])
    with pytest.raises(FilterNotEvaluable) as refusal:
        RowFilter(read_filter(condition), schema)
    assert named in str(refusal.value.details["predicate"]).upper()
    assert refusal.value.details["reason"]


def test_null_tests_need_no_order() -> None:
    """Of values that cannot be compared it is still known which are null."""
    schema = Schema.assign([Column(name="g", type="geometry"), Column(name="v", type="variant")])
    columns = {1: pa.array([b"x", None, b"y"]), 2: pa.array([None, None, b"z"])}
    for text, expected in (("g IS NULL", [False, True, False]), ("g IS NOT NULL AND v IS NULL", [True, False, False])):
        assert RowFilter(read_filter(text), schema).matches(columns, 3).tolist() == expected
    with pytest.raises(FilterNotEvaluable):
        RowFilter(read_filter("g = v"), schema)
