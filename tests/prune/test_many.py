"""Many filters over one snapshot, one filter over two, and residuals in answers."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import InvalidFilter, LimitExceeded
from lamella.snapshot.expression import read_tree
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.manifest import Block
from lamella.snapshot.wire import BatchRequest, DiffRequest, PruneRequest, Stage
from support import generate, stages

SEEDS = st.integers(0, 2**48)


_OF_THE_MOMENT = ("ms", "from_cache", "reused_blocks")


def untimed(value: Any) -> Any:
    """An answer without its times and what caches had to do with it, as JSON."""

    def still(found: Any) -> Any:
        if isinstance(found, list | tuple):
            return [still(part) for part in found]
        if isinstance(found, dict):
            return {name: still(part) for name, part in found.items() if name not in _OF_THE_MOMENT}
        return found

    return still(msgspec.to_builtins(value))


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_a_batch_answers_as_single_prunes_do(seed: int) -> None:
    """Filter by filter the same blocks, verdicts, residuals and counts."""
    rng = Random(seed)
    lake = stages.lake(rng)
    trees = [tree_of(generate.predicate(rng, lake.schema, lake.seen)) for _ in range(4)]
    batch = lake.warehouse.prune_batch(lake.pointer, BatchRequest(filters=tuple(trees), residuals=True))
    for tree, answer in zip(trees, batch.answers, strict=True):
        single = lake.warehouse.prune(lake.pointer, PruneRequest(filter=tree, residuals=True))
        assert untimed(answer) == untimed(single)


def test_a_batch_names_the_filter_that_is_wrong_and_has_a_limit() -> None:
    """By its number; and no more than a thousand filters."""
    lake = stages.counting(blocks=1)
    with pytest.raises(InvalidFilter) as caught:
        lake.warehouse.prune_batch(lake.pointer, BatchRequest(filters=("a = 1", "a = = 1")))
    assert caught.value.details["filter"] == 1
    with pytest.raises(LimitExceeded):
        lake.warehouse.prune_batch(lake.pointer, BatchRequest(filters=("a = 1",) * 1001))


@pytest.mark.parametrize(
    ("options", "count"),
    [({}, 24), ({"shape": "columns"}, 24), ({"shape": "ranges"}, 8), ({"level": "segment"}, 8)],
)
def test_a_batch_has_no_more_blocks_than_it_may(options: dict[str, Any], count: int) -> None:
    """Of all its answers together; runs and segments count as what they are. The filter with which it is too much is
    named.
    """
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3)
    request = BatchRequest(filters=("a >= 0", "a < 1000000"), **options)
    answer = lake.warehouse.prune_batch(lake.pointer, request, max_blocks=count)
    assert len(answer.answers) == 2
    with pytest.raises(LimitExceeded) as caught:
        lake.warehouse.prune_batch(lake.pointer, request, max_blocks=count - 1)
    assert caught.value.details == {"limit": "answer_blocks", "maximum": count - 1, "filter": 1}


def test_a_diff_has_no_more_blocks_than_it_may() -> None:
    """Those that came and those that went together."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3)
    gone = [f"memory://blocks/{number}.parquet" for number in range(6)]
    after = lake.warehouse.commit(lake.pointer, removed=gone, now_ms=9).pointer
    request = DiffRequest(from_snapshot_id="")
    assert len(lake.warehouse.diff(lake.pointer, after, request, max_blocks=6).removed) == 6
    with pytest.raises(LimitExceeded) as caught:
        lake.warehouse.diff(lake.pointer, after, request, max_blocks=5)
    assert caught.value.details == {"limit": "answer_blocks", "maximum": 5}


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_a_diff_is_what_two_prunes_differ_in(seed: int) -> None:
    """Over random appends, removals and replacements in place, in both directions."""
    rng = Random(seed)
    lake = stages.lake(rng)
    warehouse, pointer = lake.warehouse, lake.pointer
    blocks: dict[str, Block] = {}
    for ref in warehouse.segments(pointer):
        blocks |= {block.location: block for block in warehouse.segment(ref).blocks}
    states = [(pointer, dict(blocks))]
    table_id = warehouse.snapshot(pointer).table_id
    for step in range(3):
        gone = {location for location in blocks if rng.random() < 0.3}
        back = [
            msgspec.structs.replace(blocks[location], content_id=f"v{step}") for location in gone if rng.random() < 0.3
        ]
        fresh = [
            stages.block(100 * (step + 1) + i, columns, {})
            for i, columns in enumerate(generate.table(rng, lake.schema, blocks=2))
        ]
        added = warehouse.prepare(table_id, lake.schema, [*back, *fresh])
        pointer = warehouse.commit(pointer, added=added, removed=sorted(gone), now_ms=10 + step).pointer
        blocks = {location: block for location, block in blocks.items() if location not in gone}
        blocks |= {block.location: block for block in [*back, *fresh]}
        states.append((pointer, dict(blocks)))
    (before, then), (after, now) = rng.choice(states), rng.choice(states)
    predicate = generate.predicate(rng, lake.schema, lake.seen)
    request = DiffRequest(from_snapshot_id="", filter=tree_of(predicate))
    answer = warehouse.diff(before, after, request)
    both = {location for location in then.keys() & now.keys() if then[location].content_id == now[location].content_id}
    assert answer.unchanged_blocks == len(both)
    for found, pointer, other in ((answer.removed, before, now), (answer.added, after, then)):
        selected = warehouse.prune(pointer, PruneRequest(filter=request.filter)).blocks or ()
        expected = {(b.location, b.verdict) for b in selected if b.location not in both}
        assert {(b.location, b.verdict) for b in found} == expected, f"seed {seed}: {other}"
        assert len(found) == len(expected)


def test_a_diff_skips_what_both_snapshots_share() -> None:
    """Only the segments that a commit touched are read."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3)
    location = "memory://blocks/4.parquet"
    after = lake.warehouse.commit(lake.pointer, removed=[location], now_ms=9).pointer
    answer = lake.warehouse.diff(lake.pointer, after, DiffRequest(from_snapshot_id="", filter="a < 1000"))
    assert ([b.location for b in answer.removed], answer.added) == ([location], ())
    assert (answer.unchanged_blocks, answer.segments_skipped, answer.segments_read) == (11, 3, 2)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_residuals_of_an_answer_decide_its_blocks_rows(seed: int) -> None:
    """Each block's residual, read back from its JSON tree, is true for exactly the rows that match."""
    rng = Random(seed)
    lake = stages.lake(rng)
    for _ in range(4):
        predicate = generate.predicate(rng, lake.schema, lake.seen)
        answer = lake.warehouse.prune_predicate(lake.pointer, predicate, PruneRequest(residuals=True))
        assert answer.residuals is not None
        read = [read_tree(residual.tree) for residual in answer.residuals]
        for block in answer.blocks or ():
            assert block.residual is not None
            for row in lake.rows[block.location]:
                whole, rest = lake.oracle.decide(predicate, row), lake.oracle.decide(read[block.residual], row)
                assert (whole is True) == (rest is True), f"seed {seed}: {answer.residuals[block.residual]}"


def test_an_explanation_says_what_each_predicate_decides_in_each_layer() -> None:
    """Counts per verdict that add up, and for what is unknown the reason."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3)
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(filter="a >= 35 AND l IS NOT NULL", explain=True))
    layers = answer.report.layers or ()
    assert [(use.layer, use.none, use.some, use.all, use.unknown) for use in layers if use.predicate == "a >= 35"] == [
        ("snapshot", 0, 1, 0, 0),
        ("segment", 1, 1, 2, 0),
        ("block", 0, 1, 8, 0),
    ]
    unknown = [use for use in layers if use.predicate != "a >= 35" and use.layer == "block"]
    assert [(use.unknown, sum(use.reasons.values())) for use in unknown] == [(9, 9)]
    assert answer.residuals is not None
    stage_names = [stage.stage for stage in answer.report.stages if isinstance(stage, Stage)]
    assert stage_names == ["snapshot", "segment", "block"]
