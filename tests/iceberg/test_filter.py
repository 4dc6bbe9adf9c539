"""Filters of Iceberg clients leave out no row that a client keeps, and what is left of them selects the same rows."""

from __future__ import annotations

import json
import math
import sys
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.errors import InvalidFilter, LimitExceeded, UnknownColumn
from lamella.snapshot.expression import bind
from lamella.snapshot.iceberg.filter import IcebergResiduals, read_iceberg_filter, without_infinity
from lamella.snapshot.prune import NONE, evaluate, verdicts
from lamella.snapshot.schema import Column, DataType, Schema
from support import generate, stages
from support.iceberg_rows import CLIENTS, matches, random_filter

TYPES = (
    *("boolean", "int8", "int16", "int32", "int64", "float32", "float64", "decimal(9,2)", "decimal(38,10)"),
    *("date", "timestamp(us)", "timestamp_ntz(us)", "string", "binary", "uuid"),
)


def left_of(tree: Any, schema: Schema, blocks: list[generate.Block], stats: list[Any]) -> list[Any]:
    """What is left of a filter in each block: None where it is ruled out."""
    made = [stages.block(number, columns, stats[number]) for number, columns in enumerate(blocks)]
    sidecar = Sidecar(build_blocks(schema, made))
    filter = read_iceberg_filter(tree, schema)
    bound = bind(filter.predicate, schema, case_sensitive=True)
    outcome = evaluate(bound, lambda leaf: sidecar.zones(leaf.id, leaf.dtype), len(sidecar))
    rows = (verdicts(outcome, sidecar.numbers("row_count")) != NONE).nonzero()[0]
    found: list[Any] = [None] * len(blocks)
    for row, left in zip(rows.tolist(), IcebergResiduals(filter, schema).of(sidecar, rows), strict=True):
        found[row] = left if isinstance(left, bool) else json.loads(bytes(left))
    return found


def check(seed: int, *, filters: int = 12) -> int:
    """Check random filters over one random table, row by row and client by client; returns the decisions."""
    rng = Random(seed)
    schema = generate.schema(rng, TYPES)
    types = {leaf.name: leaf.dtype for leaf in schema.leaves()}
    blocks = generate.table(rng, schema)
    seen, decided = generate.seen_values(schema, blocks), 0
    stats = [
        stages.exact(schema, each) if rng.random() < 0.5 else stages.weakened(rng, schema, each) for each in blocks
    ]
    for _ in range(filters):
        tree = random_filter(rng, schema, seen)
        for block, left in zip(blocks, left_of(tree, schema, blocks, stats), strict=True):
            for row in generate.rows_of(block):
                for client in CLIENTS:
                    whole = matches(client, tree, row, types)
                    case = f"seed {seed}, {client}: {tree} left {left}, row {row}"
                    is_left = left is not None and matches(client, left, row, types)
                    # Arrow's client filters the rows of a file by its own filter, unless nothing is left of that.
                    is_wider = client == "arrow" and isinstance(left, dict)
                    assert whole is is_left or (is_wider and is_left), case
                    decided += 1
    return decided


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**48))
@example(0)
def test_what_is_left_selects_the_rows_that_the_filter_does(seed: int) -> None:
    """Over random tables and filters in both spellings, for SQL, Iceberg's evaluators and Arrow."""
    check(seed)


@pytest.mark.soak
def test_what_is_left_holds_over_millions_of_rows() -> None:
    """Three million decisions, none of them different."""
    decided, seed = 0, 1 << 50
    while decided < 3_000_000:
        decided += check(seed, filters=60)
        seed += 1


def one(tree: Any, dtype: str, cells: list[Any]) -> Any:
    """What is left of a filter in one block of a column ``a``, whose statistics are those of a scan."""
    schema = Schema.assign([Column(name="a", type=dtype)])
    block: generate.Block = {"a": cells}
    return left_of(tree, schema, [block], [stages.exact(schema, block)])[0]


def test_a_null_may_differ_from_a_value() -> None:
    """Of a block of sevens and nulls ``not-eq 7`` leaves the predicate; without nulls nothing is kept."""
    tree = {"type": "not-eq", "term": "a", "value": 7}
    assert one(tree, "int64", [7, None]) == tree
    assert one(tree, "int64", [7, 7]) is None
    assert one(tree, "int64", [8, 9]) is True


def test_nan_is_decided_by_the_client() -> None:
    """A block with NaN is never proven to be greater; one without it is."""
    tree = {"type": "gt", "term": "a", "value": 1.5}
    with_nan = {"type": "or", "left": tree, "right": {"type": "is-nan", "term": "a"}}
    assert one(tree, "float64", [2.0, float("nan")]) == with_nan
    assert one(tree, "float64", [float("nan")]) == with_nan
    assert one(tree, "float64", [2.0, 3.0]) is True


@pytest.mark.parametrize("kind", ["lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq", "in", "not-in"])
@pytest.mark.parametrize("value", ["NaN", "nan", float("nan")])
def test_a_comparison_with_nan_proves_nothing(kind: str, value: Any) -> None:
    """Spark and Java order NaN, Arrow does not; what is left is JSON that has NaN as text."""
    given = {"type": kind, "term": "a"} | ({"values": [1.5, value]} if kind.endswith("in") else {"value": value})
    left = one(given, "float64", [2.0, 3.0])
    assert left == json.loads(json.dumps(given).replace(": NaN", ': "NaN"').replace(", NaN", ', "NaN"'))


@pytest.mark.parametrize("kind", ["lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq", "in", "not-in"])
@pytest.mark.parametrize("value", ["Infinity", "-Infinity"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_infinity_is_written_without_one(kind: str, value: str, dtype: str) -> None:
    """Java's client fails at its text; what is written instead is true for the same rows, for every client."""
    node = {"type": kind, "term": "a"} | ({"values": [2.5, value]} if kind.endswith("in") else {"value": value})
    written = without_infinity(node, DataType(dtype))
    assert "Infinity" not in json.dumps(written)
    max_value = (2 - 2**-23) * 2.0**127 if dtype == "float32" else sys.float_info.max
    for cell in (None, math.nan, math.inf, -math.inf, max_value, -max_value, 0.0, -0.0, 0.5, 2.5):
        for client in CLIENTS:
            row, types = {"a": cell}, {"a": DataType(dtype)}
            assert matches(client, written, row, types) is matches(client, node, row, types), (client, cell)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int32", 1 << 31), ("int8", 1 << 31), ("int64", -(1 << 70)), ("int64", "7"), ("float32", 1e39)],
)
def test_numbers_that_the_type_does_not_have_prove_nothing(dtype: str, value: Any) -> None:
    """Iceberg's clients decide all rows at once by such a number, nulls too; text they round."""
    for kind in ("lt", "gt-eq", "not-eq"):
        tree = {"type": kind, "term": "a", "value": value}
        assert one(tree, dtype, [None, None]) == tree
        assert one(tree, dtype, [7, 7]) == tree


@pytest.mark.parametrize(
    "value", ["2024-01-01T12:00:00", "2024-01-01 00:00:00+00:00", " 2024-01-01", "20240101", 1 << 31]
)
def test_what_is_perhaps_a_time_proves_nothing_of_days(value: Any) -> None:
    """Some clients cut times to days, and a number that is no day may be microseconds."""
    for kind in ("eq", "not-eq", "lt", "gt-eq"):
        tree = {"type": kind, "term": "a", "value": value}
        assert one(tree, "date", [19_723, 19_724]) == tree
    listed = {"type": "not-in", "term": "a", "values": ["2023-01-01", value]}
    assert one(listed, "date", [19_723]) == listed


@pytest.mark.parametrize("dtype", ["int64", "date", "binary", "uuid"])
def test_a_prefix_of_what_is_not_text_proves_nothing(dtype: str) -> None:
    """Clients that can decide one at all do not say how."""
    schema = Schema.assign([Column(name="a", type=dtype)])
    block: generate.Block = {"a": [b"\0" * 16 if dtype in ("binary", "uuid") else 7]}
    for kind in ("starts-with", "not-starts-with"):
        tree = {"type": kind, "term": "a", "value": "7"}
        assert left_of(tree, schema, [block], [stages.exact(schema, block)])[0] == tree


def test_zeros_are_decided_by_the_client() -> None:
    """For SQL -0.0 equals 0.0, for Iceberg's comparators it is less."""
    tree = {"type": "lt", "term": "a", "value": 0.0}
    assert one(tree, "float64", [-0.0]) == tree
    assert one(tree, "float64", [-1.0]) is True
    assert one(tree, "float64", [1.0]) is None


def test_a_double_may_be_rounded_to_the_columns_width() -> None:
    """0.1 is none of a FLOAT's values in SQL, and one of them for a client that rounds it first."""
    tree = {"type": "eq", "term": "a", "value": 0.1}
    nearest = generate.single(0.1)
    assert one(tree, "float32", [nearest]) == tree
    assert one(tree, "float64", [nearest]) is None


@pytest.mark.parametrize("kind", ["lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq"])
def test_a_null_value_proves_nothing(kind: str) -> None:
    """Clients write infinity as null; what is left can be read by them, and is not true."""
    assert one({"type": kind, "term": "a", "value": None}, "float64", [1.0]) == {"type": "not-null", "term": "a"}
    spelled = {"type": kind, "left": {"type": "reference", "name": "a"}, "right": None}
    assert one(spelled, "float64", [1.0]) == {"type": "not-null", "term": "a"}


@pytest.mark.parametrize(
    ("dtype", "cell", "value"),
    [
        ("date", 19_723, "2024-01-01"),
        ("date", 19_723, 19_723),
        ("timestamp(us)", 1_704_067_200_000_000, "2024-01-01T00:00:00+00:00"),
        ("timestamp(us)", 1_704_067_200_000_000, 1_704_067_200_000_000),
        ("timestamp_ntz(us)", 1_704_067_200_000_000, "2024-01-01T00:00:00.000000"),
        ("timestamp(ms)", 1_704_067_200_000, 1_704_067_200_000_000),
        ("time(us)", 3_600_000_000, "01:00:00"),
        ("time(us)", 3_600_000_000, 3_600_000_000),
        ("decimal(9,2)", 1050, "10.50"),
        ("uuid", bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("binary", b"\x0f\xf0", "0FF0"),
        ("fixed(2)", b"\x0f\xf0", "0ff0"),
        ("float64", float("inf"), "Infinity"),
        ("boolean", 1, True),
    ],
)
def test_values_come_in_every_clients_notation(dtype: str, cell: Any, value: Any) -> None:
    """Text of pyiceberg, and the bare days and microseconds of Java's clients."""
    assert one({"type": "eq", "term": "a", "value": value}, dtype, [cell, cell]) is True
    assert one({"type": "in", "term": "a", "values": [value]}, dtype, [cell, cell]) is True
    assert one({"type": "not-eq", "term": "a", "value": value}, dtype, [cell, cell]) is None


def test_columns_are_named_in_four_ways() -> None:
    """By name, by a reference with a name, an id or a term."""
    for term in ("a", {"type": "reference", "name": "a"}, {"type": "reference", "id": 1}):
        assert one({"type": "gt", "left": term, "right": 5}, "int64", [1, 9]) == {"type": "gt", "term": "a", "value": 5}
        assert one({"type": "gt", "term": term, "value": 5}, "int64", [6, 9]) is True
    assert one({"type": "is-null", "child": {"type": "reference", "term": "a"}}, "int64", [None]) is True


def test_transforms_keep_everything() -> None:
    """A function of a column proves nothing, and stays as it was written."""
    term = {"type": "transform", "transform": "bucket[16]", "term": "a"}
    tree = {"type": "eq", "term": term, "value": 3}
    assert one(tree, "int64", [1, 2]) == tree
    assert one({"type": "not", "child": tree}, "int64", [1, 2]) == {**tree, "type": "not-eq"}


def test_nots_are_taken_away() -> None:
    """What is left has no negation around it, as the clients themselves write it."""
    tree = {
        "type": "not",
        "child": {
            "type": "or",
            "left": {"type": "lt", "term": "a", "value": 3},
            "right": {"type": "not", "child": {"type": "in", "term": "a", "values": [4, 5]}},
        },
    }
    assert one(tree, "int64", [1, 4]) == {
        "type": "and",
        "left": {"type": "gt-eq", "term": "a", "value": 3},
        "right": {"type": "in", "term": "a", "values": [4, 5]},
    }


def test_long_chains_and_lists_are_read() -> None:
    """A thousand alternatives chained on the left, and a list of 5,000 values."""
    tree: Any = False
    for value in range(1_000):
        tree = {"type": "or", "left": tree, "right": {"type": "eq", "term": "a", "value": value}}
    assert one(tree, "int64", [2_000, 3_000]) is None
    assert one(tree, "int64", [999, 999]) is True
    values = list(range(0, 10_000, 2))
    assert one({"type": "in", "term": "a", "values": values}, "int64", [10_001, 20_000]) is None
    assert one({"type": "in", "term": "a", "values": values[:201]}, "int64", [401, 401]) is None


@pytest.mark.parametrize(
    ("tree", "error", "position"),
    [
        ({"type": "like", "term": "a", "value": "x%"}, InvalidFilter, "$.type"),
        ({"type": "eq", "term": "a"}, InvalidFilter, "$"),
        ({"type": "and", "left": True}, InvalidFilter, "$"),
        ({"type": "in", "term": "a", "values": 3}, InvalidFilter, "$.values"),
        ({"type": "eq", "term": {"type": "reference", "id": 77}, "value": 1}, InvalidFilter, "$.term"),
        ([1], InvalidFilter, "$"),
        ({"type": "eq", "term": "b", "value": 1}, UnknownColumn, None),
        ({"type": "eq", "term": "A", "value": 1}, UnknownColumn, None),
    ],
)
def test_what_is_no_filter_is_refused_by_its_position(tree: Any, error: type[Exception], position: str | None) -> None:
    """Also names in another case, since clients ask with regard to it."""
    with pytest.raises(error) as refused:
        one(tree, "int64", [1])
    assert position is None or refused.value.details["position"] == position  # type: ignore[attr-defined]  # of our errors


def test_deep_nesting_is_refused() -> None:
    """Nesting that no chain explains ends at the limit of filters."""
    tree: Any = True
    for _ in range(101):
        tree = {"type": "not", "child": tree}
    with pytest.raises(LimitExceeded) as refused:
        one(tree, "int64", [1])
    assert refused.value.details["limit"] == "filter_depth"


@pytest.mark.parametrize("leaf", [True, {"type": "eq", "term": "a", "value": 1}, {"type": "not", "child": False}])
def test_connectives_count_as_predicates(leaf: Any) -> None:
    """A chain of booleans is as long as it is deep, so it ends at the limit of predicates too."""
    nodes = 2 if isinstance(leaf, dict) and leaf["type"] == "not" else 1
    count = (10_000 - nodes) // (1 + nodes)
    tree = leaf
    for _ in range(count):
        tree = {"type": "or", "left": tree, "right": leaf}
    read_iceberg_filter(tree, Schema.assign([Column(name="a", type="int64")]))
    with pytest.raises(LimitExceeded) as refused:
        one({"type": "or", "left": tree, "right": leaf}, "int64", [1])
    assert refused.value.details["limit"] == "filter_predicates"


def test_a_null_is_perhaps_nan_to_arrow() -> None:
    """``not-nan`` is proven of a block without NaN only if that has no null either."""
    tree = {"type": "not-nan", "term": "a"}
    assert one(tree, "float64", [1.0, None]) == tree
    assert one(tree, "float64", [1.0, 2.0]) is True
