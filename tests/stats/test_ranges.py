"""Range sets: they hold every value, and what falls into a gap between them is ruled out, no more and no less."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.service.commits.blocks import check_block
from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.expression import bind, read_sql, text_of
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import ingest
from lamella.snapshot.prune import ALL, NONE, SOME, evaluate, verdicts
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import Bound, ColumnStats, from_bound, to_bound
from lamella.snapshot.stats.measure import leaf_stats
from lamella.snapshot.stats.ranges import MAX_RANGES, RangeFinder, has_ranges
from lamella.snapshot.storage import FsspecStore
from support import generate
from support.arrow_files import arrow_array
from support.oracle import Oracle

KINDS = [kind for kind in generate.TYPES if has_ranges(generate.dtype_of(kind)) and not kind.startswith("time(")]
SEEDS = st.integers(0, 2**48)


def clusters(rng: Random, kind: str, count: int) -> list[Any]:
    """Values in a few clusters far from each other, with nulls and NaN now and then."""
    dtype = generate.dtype_of(kind)
    centres = [generate.value(rng, dtype) for _ in range(rng.randint(1, 10))]
    if dtype.is_float:
        special = [math.nan] if rng.random() < 0.3 else []
        near = [c + rng.choice([0.0, 0.25, -0.25]) if abs(c) < 1e6 else c for c in rng.choices(centres, k=count)]
        cells = [generate.single(v) if dtype.bits == 32 else v for v in near] + special
    else:
        low, high = dtype.int_range
        if dtype.name in ("date", "timestamp", "timestamp_ntz"):
            low, high = min(centres), max(centres)  # what the oracle can write as text
        cells = [min(high, max(low, c + rng.randint(-2, 2))) for c in rng.choices(centres, k=count)]
    return [None if rng.random() < 0.1 else cell for cell in cells]


def stats_of(schema: Schema, cells: list[Any]) -> ColumnStats:
    """Measured statistics of the only column."""
    leaf = schema.leaves()[0]
    return leaf_stats(leaf, pa.chunked_array([arrow_array(leaf.dtype, cells)]))


@settings(max_examples=400, deadline=None)
@given(SEEDS)
def test_ranges_hold_every_value_however_it_arrives(seed: int) -> None:
    """At most eight, ascending, apart, from the least to the greatest value; each edge is a value."""
    rng = Random(seed)
    kind = rng.choice(KINDS)
    dtype = generate.dtype_of(kind)
    cells = clusters(rng, kind, rng.randint(1, 60))
    finder, start = RangeFinder(dtype), 0
    while start < len(cells):
        stop = start + rng.randint(1, 40)
        finder.add(arrow_array(dtype, cells[start:stop]))
        start = stop
    ranges = finder.ranges()
    edges = [from_bound(dtype, bound) for bound in ranges]
    numbers = [cell for cell in cells if cell is not None and cell == cell]
    assert len(ranges) <= 2 * MAX_RANGES
    assert edges == sorted(edges)
    if edges:
        pairs = list(zip(edges[::2], edges[1::2], strict=True))
        assert all(any(low <= number <= high for low, high in pairs) for number in numbers)
        assert set(edges) <= set(numbers)
        assert (edges[0], edges[-1]) == (min(numbers), max(numbers))


def check_pruning(seed: int, filters: int = 30) -> int:
    """Filters over blocks with range sets against the oracle; returns how many blocks gaps alone ruled out."""
    rng = Random(seed)
    kind = rng.choice(KINDS)
    schema = Schema.assign([Column(name="c0", type=kind)])
    table = [{"c0": clusters(rng, kind, rng.randint(1, 12))} for _ in range(rng.randint(1, 5))]
    stats = [stats_of(schema, columns["c0"]) for columns in table]

    def sidecar_of(given: list[ColumnStats]) -> Sidecar:
        blocks = [
            Block(location=str(i), row_count=len(columns["c0"]), file_size=1, col_stats={1: each})
            for i, (columns, each) in enumerate(zip(table, given, strict=True))
        ]
        return Sidecar(build_blocks(schema, blocks))

    def codes(sidecar: Sidecar, predicate: n.Predicate) -> list[int]:
        bound = bind(predicate, schema)
        outcome = evaluate(bound, lambda leaf: sidecar.zones(leaf.id, leaf.dtype), len(sidecar))
        found: list[int] = verdicts(outcome, sidecar.numbers("row_count")).tolist()
        return found

    with_gaps = sidecar_of(stats)
    without = sidecar_of([msgspec.structs.replace(each, ranges=()) for each in stats])
    oracle, seen, won = Oracle(schema), generate.seen_values(schema, table), 0
    for _ in range(filters):
        predicate = generate.predicate(rng, schema, seen)
        if rng.random() < 0.4:
            between = (generate.predicate(rng, schema, seen, 0) for _ in range(2))
            predicate = n.And(tuple(between))
        ours, theirs = codes(with_gaps, predicate), codes(without, predicate)
        for columns, code, other in zip(table, ours, theirs, strict=True):
            results = [oracle.decide(predicate, {"c0": cell}) for cell in columns["c0"]]
            case = f"seed {seed}: {text_of(predicate)} over {columns}"
            assert code != NONE or True not in results, f"left out a match, {case}"
            assert code != ALL or all(result is True for result in results), f"wrong ALL, {case}"
            assert other != NONE or code == NONE, case
            won += code != other
    return won


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_gaps_never_rule_out_a_match(seed: int) -> None:
    """Over clustered values of every type, with NaN, nulls, lists and nested filters."""
    check_pruning(seed)


@pytest.mark.slow
def test_gaps_decide_more_than_bounds_alone() -> None:
    """The property is not met by never using a gap."""
    assert sum(check_pruning(seed) for seed in range(100)) > 100


def verdict(kind: str, cells: list[Any], text: str) -> int:
    """The verdict over one block of column ``a``."""
    schema = Schema.assign([Column(name="a", type=kind)])
    block = Block(location="x", row_count=len(cells), file_size=1, col_stats={1: stats_of(schema, cells)})
    sidecar = Sidecar(build_blocks(schema, [block]))
    outcome = evaluate(bind(read_sql(text), schema), lambda leaf: sidecar.zones(leaf.id, leaf.dtype), 1)
    return int(verdicts(outcome, np.array([len(cells)]))[0])


SENTINELS = [0, 20_000, 20_010, 20_020, 2_932_896]  # 1970-01-01, days of 2024, 9999-12-31


@pytest.mark.parametrize(
    ("kind", "cells", "text", "wanted"),
    [
        ("date", SENTINELS, "a = DATE '2000-01-01'", NONE),
        ("date", SENTINELS, "a BETWEEN DATE '2025-01-01' AND DATE '2030-12-31'", NONE),
        ("date", SENTINELS, "a > DATE '2025-01-01' AND a < DATE '9999-12-31' AND a IS NOT NULL", NONE),
        ("date", SENTINELS, "a >= DATE '2025-01-01' AND a <= DATE '9999-12-31'", SOME),
        ("date", SENTINELS, "a IN (DATE '1980-01-01', DATE '2030-01-01')", NONE),
        ("date", SENTINELS, "a IN (DATE '1980-01-01', DATE '2024-10-14')", SOME),
        ("date", SENTINELS, "a <> DATE '2000-01-01'", ALL),
        ("date", SENTINELS, "NOT (a BETWEEN DATE '2025-01-01' AND DATE '2030-12-31')", ALL),
        ("date", [*SENTINELS, None], "a <> DATE '2000-01-01'", SOME),
        ("date", SENTINELS, "a = DATE '2000-01-01' OR a = DATE '2024-10-04'", SOME),
        ("double", [1.0, 2.0, 1e9, math.nan], "a > 100 AND a < 1000", NONE),
        ("double", [1.0, 2.0, 1e9, math.nan], "a > 100", SOME),
        ("double", [1.0, 2.0, 1e9, math.nan], "a IN (500.0D, double('NaN'))", SOME),
        ("bigint", [-(2**63), 0, 2**63 - 1], "a = 5", NONE),
        ("decimal(10,2)", [100, 101, 99_999_900], "a = 500.00", NONE),
    ],
)
def test_what_gaps_decide(kind: str, cells: list[Any], text: str, wanted: int) -> None:
    """Sentinels beside a cluster: the empty middle is known."""
    assert verdict(kind, cells, text) == wanted


def test_even_values_have_no_ranges() -> None:
    """Nothing is recorded where gaps would not help."""
    rng = np.random.default_rng(0)
    schema = Schema.assign([Column(name="a", type="int64")])
    assert stats_of(schema, rng.integers(0, 10**9, 10_000).tolist()).ranges == ()
    assert stats_of(schema, [5] * 100).ranges == ()
    assert stats_of(schema, [None, None]).ranges == ()
    assert stats_of(Schema.assign([Column(name="a", type="float64")]), [-math.inf, 1.0, math.inf]).ranges == ()


def test_floats_next_to_zero_have_no_ranges() -> None:
    """Values too near to each other to be told apart in buckets are recorded by their bounds alone."""
    for values in ([0.0, 5e-324], [5e-324, 1e-320, 2e-310], [-5e-324, 5e-324]):
        leaf = Schema.assign([Column(name="f", type="float64")]).leaf("f")
        assert leaf_stats(leaf, pa.chunked_array([pa.array(values)])).ranges == ()


def test_verified_files_have_ranges_too(tmp_path: Path) -> None:
    """A scan finds them on the way, across row groups."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1, 2, 3, None, 10**9, 10**9 + 1, -1, 2]}), path, row_group_size=3)
    schema = Schema.assign([Column(name="a", type="int64")])
    ((block,), refused) = ingest(FsspecStore(), [f"file://{path}"], schema, verify=True, workers=1)
    assert refused == []
    assert [bound.int64 for bound in block.col_stats[1].ranges] == [-1, -1, 1, 3, 10**9, 10**9 + 1]


def _bounds(*values: int) -> tuple[Bound, ...]:
    return tuple(to_bound(generate.dtype_of("int64"), value) for value in values)


@pytest.mark.parametrize(
    "ranges",
    [
        _bounds(0),
        _bounds(0, 5, 3, 9),
        _bounds(0, 5, 5, 9),
        _bounds(0, 5, 7, 8),
        _bounds(1, 5, 7, 9),
        _bounds(*range(18)),
        (Bound(date=0), Bound(date=9)),
    ],
)
def test_ranges_that_cannot_be_are_refused(ranges: tuple[Bound, ...]) -> None:
    """A writer's mistake is said when it commits, before it can hide rows."""
    schema = Schema.assign([Column(name="a", type="int64")])
    (low, high) = _bounds(0, 9)

    def block(given: tuple[Bound, ...]) -> Block:
        stats = ColumnStats(min=low, max=high, null_count=0, ranges=given)
        return Block(location="memory://x", row_count=3, file_size=1, col_stats={1: stats})

    check_block(block(_bounds(0, 1, 8, 9)), schema.by_id())
    with pytest.raises(SchemaMismatch):
        check_block(block(ranges), schema.by_id())
