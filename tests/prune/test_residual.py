"""Residual filters: what is left of a filter for one block selects the same rows as the whole filter does."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.expression import bind, read_sql, text_of
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.prune import ALL, NONE, evaluate, verdicts
from lamella.snapshot.prune.residual import Residuals
from lamella.snapshot.schema import Column, Schema
from support import generate, stages
from support.oracle import Oracle

SEEDS = st.integers(0, 2**48)


def check_residuals(seed: int, *, filters: int = 12, max_count: int = 100) -> int:
    """Check the residuals of random filters over one random table row by row; returns how many rows were decided."""
    rng = Random(seed)
    schema = generate.schema(rng)
    table = generate.table(rng, schema)
    blocks = [stages.block(i, columns, stages.weakened(rng, schema, columns)) for i, columns in enumerate(table)]
    sidecar = Sidecar(build_blocks(schema, blocks))
    seen, oracle, decided = generate.seen_values(schema, table), Oracle(schema), 0
    for _ in range(filters):
        predicate = generate.predicate(rng, schema, seen)
        outcome = evaluate(bind(predicate, schema), lambda leaf: sidecar.zones(leaf.id, leaf.dtype), len(sidecar))
        codes = verdicts(outcome, sidecar.numbers("row_count"))
        rows = (codes != NONE).nonzero()[0]
        residuals = Residuals(predicate, lambda atom: bind(atom, schema), max_count=max_count)
        residuals.add(sidecar, rows, codes[rows])
        found, indexes = residuals.table(), residuals.indexes()
        assert len(found) <= max_count
        assert [count for _, count in found] == [int((indexes == index).sum()) for index in range(len(found))]
        for row, index in zip(rows, indexes, strict=True):
            residual = found[index][0]
            if codes[row] == ALL and max_count > 2:
                assert residual == n.Constant(True)
            for cells in generate.rows_of(table[row]):
                whole, rest = oracle.decide(predicate, cells), oracle.decide(residual, cells)
                case = f"seed {seed}: {text_of(predicate)} left {text_of(residual)}, row {cells}"
                assert (whole is True) == (rest is True), case
                decided += 1
    return decided


@settings(max_examples=300, deadline=None)
@given(SEEDS)
@example(0)
def test_a_residual_is_true_exactly_where_the_filter_is(seed: int) -> None:
    """Over random tables and filters, block by block and row by row."""
    check_residuals(seed)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_beyond_the_cap_the_whole_filter_stands_for_the_rarest(seed: int) -> None:
    """With room for one or two residuals only, the answer is still exact."""
    check_residuals(seed, max_count=1)
    check_residuals(seed, max_count=2)


@pytest.mark.soak
def test_residuals_hold_over_a_million_rows() -> None:
    """A million decisions, none of them different."""
    decided, seed = 0, 0
    while decided < 1_000_000:
        decided += check_residuals(seed, filters=60)
        seed += 1
    print(f"{decided} rows over {seed} tables: every residual exact")


def residual(text: str, **cells: list[int | None]) -> str:
    """What is left of a filter over one block of integer columns with a scan's statistics."""
    schema = Schema.assign([Column(name=name, type="int64") for name in cells])
    columns: generate.Block = dict(cells)
    sidecar = Sidecar(build_blocks(schema, [stages.block(0, columns, stages.exact(schema, columns))]))
    predicate = read_sql(text)
    outcome = evaluate(bind(predicate, schema), lambda leaf: sidecar.zones(leaf.id, leaf.dtype), 1)
    codes = verdicts(outcome, sidecar.numbers("row_count"))
    residuals = Residuals(predicate, lambda atom: bind(atom, schema))
    residuals.add(sidecar, (codes >= 0).nonzero()[0], codes)
    return text_of(residuals.table()[0][0])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a >= 0 AND b = 5", "b = 5"),  # the first holds for every row
        ("a > 100 OR b = 5", "b = 5"),  # the first holds for none
        ("a >= 0 OR b = 5", "true"),
        ("a <= 9", "true"),
        ("NOT (a < 0 OR b = 5)", "NOT (b = 5)"),
        ("NOT (n > 100)", "NOT (n > 100)"),  # null rows: neither true nor false
        ("n <= 9 AND b = 5", "n <= 9 AND b = 5"),
        ("(n > 100) IS NOT TRUE AND b = 5", "b = 5"),  # never true, so IS NOT TRUE holds for null too
        ("NOT (NOT (a >= 0 AND b = 5))", "b = 5"),
        ("n IS NULL AND a >= 0", "n IS NULL"),
        ("a IS NOT NULL AND b = 5", "b = 5"),
        ("b = 5 AND (a >= 0 OR n = 3)", "b = 5"),
    ],
)
def test_what_the_statistics_decide_is_gone(text: str, left: str) -> None:
    """Every decided predicate is dropped, and nothing else."""
    assert residual(text, a=[0, 9], b=[1, 9], n=[0, None]) == left


def test_predicates_that_look_the_same_stay_apart() -> None:
    """A predicate that is drawn anew for each mention stays as often as it was written."""
    assert residual("rand() < 0.5 AND rand() < 0.5 AND a = 1", a=[1]).lower().count("rand()") == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(a > 5) IS NULL", [1, 2]),
        ("(a > 5) IS NOT NULL", [0, 1]),
        ("(a > 5 AND b = 1) IS NULL", [1, 2]),
        ("(a > 5 OR b < 100) IS NULL", []),  # b decides it in every row
        ("(a IN (1, NULL)) IS NULL", [0, 1, 2]),
        ("((a > 5) IS NULL) IS NULL", []),
        ("isnull(NOT a <=> 5)", []),
        ("isnotnull(a = b)", [0, 1]),
    ],
)
def test_whether_a_predicate_is_null_prunes(text: str, expected: list[int]) -> None:
    """IS NULL of comparisons, AND and OR, by three-valued logic over what the rows may be."""
    schema = Schema.assign([Column(name="a", type="int64"), Column(name="b", type="int64")])
    table: list[generate.Block] = [
        {"a": [1, 9], "b": [1, 2]},
        {"a": [1, None], "b": [1, 2]},
        {"a": [None, None], "b": [1, 2]},
    ]
    blocks = [stages.block(i, columns, stages.exact(schema, columns)) for i, columns in enumerate(table)]
    sidecar = Sidecar(build_blocks(schema, blocks))
    node = bind(read_sql(text), schema)
    outcome = evaluate(node, lambda leaf: sidecar.zones(leaf.id, leaf.dtype), len(sidecar))
    codes = verdicts(outcome, sidecar.numbers("row_count"))
    assert (codes != NONE).nonzero()[0].tolist() == expected
