"""Top-k: the first rows of an order, read from the blocks of the answer, are those of a full scan."""

from __future__ import annotations

import functools
import math
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lamella.snapshot.expression import nodes as n
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.schema import DataType, Leaf
from lamella.snapshot.stats import from_bound
from lamella.snapshot.wire import OrderBound, OrderBy, PruneAnswer, PruneRequest
from support import generate, stages

SEEDS = st.integers(0, 2**48)


def compared(left: Any, right: Any, by: OrderBy) -> int:
    """Spark's order of two cells, straight from its rules: -1, 0, 1."""
    nulls_first = not by.descending if by.nulls_first is None else by.nulls_first
    if left is None or right is None:
        if left is None and right is None:
            return 0
        return -1 if (left is None) == nulls_first else 1
    sign = -1 if by.descending else 1
    nans = [isinstance(cell, float) and math.isnan(cell) for cell in (left, right)]
    if any(nans):
        return sign * (nans[0] - nans[1])
    return sign * (int(left > right) - int(left < right))


def first_keys(rows: list[Any], order: tuple[OrderBy, ...], k: int | None) -> list[Any]:
    """The keys of the first k rows."""

    def compare(left: Any, right: Any) -> int:
        results = (compared(left[by.column], right[by.column], by) for by in order)
        return next((result for result in results if result), 0)

    chosen = sorted(rows, key=functools.cmp_to_key(compare))[:k]
    return [[_key(row[by.column]) for by in order] for row in chosen]


def _key(cell: Any) -> Any:
    if isinstance(cell, float):
        return "NaN" if math.isnan(cell) else cell + 0.0
    return cell


def random_order(rng: Random, leaves: tuple[Leaf, ...]) -> tuple[OrderBy, ...]:
    """One to three columns, any direction, nulls anywhere."""
    return tuple(
        OrderBy(column=leaf.name, descending=rng.random() < 0.5, nulls_first=rng.choice([None, True, False]))
        for leaf in rng.sample(leaves, rng.randint(1, len(leaves)))
    )


def check_top_k(seed: int, asks: int = 8) -> int:
    """Check random orders over one random table; returns how many blocks were left out."""
    rng = Random(seed)
    lake = stages.lake(rng, deletes=rng.random() < 0.5)
    dropped = 0
    for _ in range(asks):
        certain = rng.random() < 0.5
        predicate = n.TRUE if certain else generate.predicate(rng, lake.schema, lake.seen, depth=1)
        order, k = random_order(rng, lake.schema.leaves()), rng.choice([None, 0, 1, 2, 5, 50])
        request = PruneRequest(order_by=order, limit=k, reader_features=FEATURES)
        answer = lake.warehouse.prune_predicate(lake.pointer, predicate, request)
        assert answer.blocks is not None
        through = [row for block in answer.blocks for row in lake.matching(predicate, block.location)]
        everywhere = [row for location in lake.rows for row in lake.matching(predicate, location)]
        case = f"seed {seed}: {request} over {predicate}"
        assert first_keys(through, order, k) == first_keys(everywhere, order, k), case
        check_bounds(lake, predicate, order, answer, case)
        plain = lake.warehouse.prune_predicate(lake.pointer, predicate, PruneRequest(reader_features=FEATURES))
        assert plain.blocks is not None
        assert {block.location for block in answer.blocks} <= {block.location for block in plain.blocks}
        dropped += len(plain.blocks) - len(answer.blocks)
    return dropped


def check_bounds(
    lake: stages.Lake, predicate: n.Predicate, order: tuple[OrderBy, ...], answer: PruneAnswer, case: str
) -> None:
    """No row of a block, nor of any block behind it, comes before the block's bound."""
    by = order[0]
    dtype = lake.schema.leaf(by.column).dtype
    behind: list[Any] = []
    for block in reversed(answer.blocks or ()):
        behind += [row[by.column] for row in lake.matching(predicate, block.location)]
        assert block.order_bound is not None
        for cell in behind:
            assert not comes_before(cell, block.order_bound, by, dtype), f"{case}: {cell} before {block}"


def comes_before(cell: Any, bound: OrderBound, by: OrderBy, dtype: DataType) -> bool:
    """True when a row comes before the bound, so that the bound is none."""
    if bound.first == "unknown":
        return False
    at: Any = None
    if bound.first == "nan":
        at = math.nan
    elif bound.first == "value":
        assert bound.bound is not None
        at = from_bound(dtype, bound.bound)
    return compared(cell, at, by) < 0


@settings(max_examples=100, deadline=None)
@given(SEEDS)
@example(0)
def test_the_first_rows_are_those_of_a_full_scan(seed: int) -> None:
    """Over random types, statistics, filters, orders and limits: the same keys in the same order."""
    check_top_k(seed)


@pytest.mark.soak
def test_many_orders_hold() -> None:
    """Tens of thousands of orders; a good part of the blocks is left out."""
    dropped = sum(check_top_k(seed, asks=20) for seed in range(2_500))
    print(f"50000 orders over 2500 tables: every first row right, {dropped} blocks left out")
    assert dropped > 10_000


@pytest.mark.parametrize(
    ("order", "limit", "blocks"),
    [
        ((OrderBy(column="a"),), 10, [0]),
        ((OrderBy(column="a"),), 11, [0, 1]),
        ((OrderBy(column="a", descending=True),), 1, [11]),
        ((OrderBy(column="a", descending=True),), 25, [11, 10, 9]),
        ((OrderBy(column="a", descending=True), OrderBy(column="s")), 10, [11]),
        ((OrderBy(column="s", descending=True),), 3, [11]),
        ((OrderBy(column="a"),), 0, []),
    ],
)
def test_a_sorted_table_gives_up_the_blocks_that_hold_the_first_rows(
    order: tuple[OrderBy, ...], limit: int, blocks: list[int]
) -> None:
    """On a clustered column nothing else is read, and it comes best first; text columns too."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3)
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(order_by=order, limit=limit))
    assert [stages.number_of(block.location) for block in answer.blocks or ()] == blocks
    assert answer.report.limit is not None
    assert answer.report.limit.decided
    assert sum(stage.considered for stage in answer.report.stages if stage.stage == "block") <= 6


def test_an_order_that_has_no_bounds_is_reported_and_leaves_everything() -> None:
    """A list column cannot order blocks: all are answered, in the snapshot's order, and the report says why."""
    lake = stages.counting(blocks=3)
    order = (OrderBy(column="l"),)
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(order_by=order, limit=1))
    assert [stages.number_of(block.location) for block in answer.blocks or ()] == [0, 1, 2]
    assert [use.predicate for use in answer.report.not_used] == ["order by l"]
