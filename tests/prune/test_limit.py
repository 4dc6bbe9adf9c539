"""LIMIT: the blocks of the answer hold enough matching rows, or all of them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression.nodes import TRUE
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.prune.segment_scan import limited
from lamella.snapshot.wire import PruneRequest
from support import generate, stages

SEEDS = st.integers(0, 2**48)


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_a_limit_leaves_enough_matching_rows(seed: int) -> None:
    """Whatever is left out, the rest holds ``limit`` matches, or as many as there are."""
    rng = Random(seed)
    lake = stages.lake(rng, deletes=rng.random() < 0.5)
    for _ in range(8):
        predicate = TRUE if rng.random() < 0.3 else generate.predicate(rng, lake.schema, lake.seen, depth=1)
        limit = rng.choice([0, 1, 2, 5, 20])
        request = PruneRequest(limit=limit, reader_features=FEATURES)
        answer = lake.warehouse.prune_predicate(lake.pointer, predicate, request)
        assert answer.blocks is not None
        assert answer.report.limit is not None
        found = sum(len(lake.matching(predicate, block.location)) for block in answer.blocks)
        everywhere = sum(len(lake.matching(predicate, location)) for location in lake.rows)
        assert found >= min(limit, everywhere), f"seed {seed}: {found} of {everywhere} matches"
        verdicts = [block.verdict for block in answer.blocks]
        if answer.report.limit.decided:
            assert set(verdicts) <= {"ALL"}
        else:
            assert found == everywhere
            assert verdicts == sorted(verdicts, key=lambda verdict: verdict != "ALL")


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_what_is_chosen_suffices_and_nothing_of_it_is_needless(seed: int) -> None:
    """No chosen block can be left out again; a single one is taken when it is not larger."""
    rng = Random(seed)
    count = rng.randint(1, 12)
    rows = np.array([rng.randint(1, 20) for _ in range(count)])
    sizes = np.array([rng.randint(1, 100) for _ in range(count)])
    whole = np.array([rng.random() < 0.7 for _ in range(count)])
    limit = rng.randint(0, 60)
    found = limited(limit, rows, sizes, whole)
    assert found.decided == (rows[whole].sum() >= limit)
    if not found.decided:
        assert sorted(found.order) == list(range(count))
        return
    chosen = found.order
    assert whole[chosen].all()
    assert len(set(chosen.tolist())) == len(chosen)
    assert rows[chosen].sum() >= limit
    alone = [
        size for size, row_count, all_match in zip(sizes, rows, whole, strict=True) if all_match and row_count >= limit
    ]
    if alone and limit:
        assert sizes[chosen].sum() <= min(alone)


def test_one_block_of_many_is_enough_and_the_rest_is_never_opened() -> None:
    """A limit that one segment satisfies opens no other segment."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3)
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(filter="a >= 0", limit=7))
    assert answer.blocks is not None
    assert len(answer.blocks) == 1
    opened = {stage.stage: stage.considered for stage in answer.report.stages}
    assert opened["block"] == 3
    assert answer.report.limit is not None
    assert answer.report.limit.decided


@pytest.mark.parametrize("limit", [-1, 2**63])
def test_a_limit_that_is_none_is_refused(limit: int) -> None:
    """Rows are counted from 0."""
    lake = stages.counting(blocks=1)
    with pytest.raises(InvalidRequest, match="limit"):
        lake.warehouse.prune(lake.pointer, PruneRequest(limit=limit))
