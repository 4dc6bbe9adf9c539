"""Windows: what a search over running bounds leaves holds every entry that the filter may be true for."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar import zones_of
from lamella.snapshot.columnar.zones import edges_of
from lamella.snapshot.expression import bind, read_sql, text_of
from lamella.snapshot.prune.evaluate import evaluate
from lamella.snapshot.prune.search import reach
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound
from support import generate


def check(seed: int) -> None:
    """Compare the windows of random filters with what evaluating every entry says."""
    rng = Random(seed)
    schema = generate.schema(rng)
    table = [each for _ in range(6) for each in generate.table(rng, schema, blocks=5)]
    zones = {}
    for leaf in schema.leaves():
        cells = [columns[leaf.name] for columns in table]
        entries = [(len(each), generate.weakened_stats(rng, leaf.dtype, each)) for each in cells]
        if rng.random() < 0.5:  # as in a sorted table, mostly
            entries.sort(key=lambda entry: repr(entry[1].min) if entry[1] is not None else "")
        zones[leaf] = zones_of(leaf.dtype, entries)
    edges = {leaf: edges_of(each) for leaf, each in zones.items()}
    seen = generate.seen_values(schema, table)
    for _ in range(30):
        predicate = generate.predicate(rng, schema, seen)
        bound = bind(predicate, schema)
        true = np.asarray(evaluate(bound, zones.__getitem__, len(table)).true)
        found = reach(bound, edges.__getitem__, len(table)).some
        inside = np.zeros(len(table), dtype=bool)
        for start, stop in found:
            assert 0 <= start < stop <= len(table)
            assert not inside[start:stop].any()
            inside[start:stop] = True
        assert not (true & ~inside).any(), f"seed {seed}: {text_of(predicate)}"


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**48))
def test_no_entry_that_may_match_is_outside(seed: int) -> None:
    """Over random types, statistics and filters, NaN and missing bounds included."""
    check(seed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x BETWEEN 500 AND 519", [(50, 52)]),
        ("x < 5 OR x >= 995", [(0, 1), (99, 100)]),
        ("x IN (5, 15, 705)", [(0, 2), (70, 71)]),
        ("x < -1", []),
        ("x > 9223372036854775806", []),
        ("NOT (x > 5)", [(0, 100)]),
        ("x > 100 AND (x < 120 OR x > 980)", [(10, 12), (98, 100)]),
        ("(x > 100) IS TRUE", [(10, 100)]),
        ("x > 500 AND y = 1", [(50, 100)]),
    ],
)
def test_a_sorted_column_leaves_what_overlaps(text: str, expected: list[tuple[int, int]]) -> None:
    """Ranges, lists and their combinations come down to the few entries they meet; a negation to all of them."""
    schema = Schema.assign([Column(name="x", type="int64"), Column(name="y", type="int64")])
    x, y = schema.leaves()
    stats = [
        ColumnStats(min=to_bound(x.dtype, i * 10), max=to_bound(x.dtype, i * 10 + 9), null_count=0) for i in range(100)
    ]
    zones = {x: zones_of(x.dtype, [(10, each) for each in stats]), y: zones_of(y.dtype, [(10, None)] * 100)}
    edges = {leaf: edges_of(each) for leaf, each in zones.items()}
    assert list(reach(bind(read_sql(text), schema), edges.__getitem__, 100).some) == expected
