"""The superset property through schema changes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolution.histories import History
from lamella.snapshot.expression import text_of
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.wire import PruneRequest
from support import generate
from support.oracle import Oracle
from support.segment_prunes import assert_same_by_segments

_SEEDS = st.integers(0, 2**48)
_INT64 = range(-(2**63), 2**63)


def _check(history: History, pointer: SnapshotPointer, present: tuple[str, ...], filters: int) -> int:
    schema = history.warehouse.head(pointer).schema
    oracle, rng = Oracle(schema), Random(history.seed)
    seen = history.seen(schema, present)
    for _ in range(filters):
        predicate = generate.predicate(rng, schema, seen)
        answer = history.warehouse.prune_predicate(pointer, predicate, PruneRequest())
        assert answer.blocks is not None
        assert_same_by_segments(history.warehouse, pointer, predicate, answer, f"seed {history.seed}")
        selected = {block.location: block for block in answer.blocks}
        assert set(selected) <= set(present)
        for location in present:
            rows = history.rows(location, schema)
            results = [oracle.decide(predicate, row) for row in rows]
            written = history.blocks[location].schema
            case = f"seed {history.seed}: {text_of(predicate)} over {rows} of {written} under {schema}"
            assert location in selected or True not in results, f"left out a match, {case}"
            if location in selected:
                block = selected[location]
                assert block.verdict != "ALL" or all(result is True for result in results), f"wrong ALL, {case}"
                assert (block.schema_id if block.schema_id is not None else schema.schema_id) == written.schema_id
    return filters * len(present)


def check_history(seed: int, *, steps: int = 12, filters: int = 12) -> int:
    """Check the last snapshot of a random history, and an earlier one; returns the (block, filter) pairs looked at."""
    history = History(seed)
    history.live(steps)
    earlier = history.rng.choice(history.states)
    return sum(_check(history, *state, filters) for state in (history.states[-1], earlier))


@pytest.mark.dear
@settings(max_examples=60, deadline=None)
@given(_SEEDS)
def test_no_match_is_left_out_however_the_schema_changed(seed: int) -> None:
    """Appends, late appends, removals and schema changes in any order: verdicts agree with a decision row by row."""
    check_history(seed)


@pytest.mark.soak
def test_half_a_million_pairs_through_schema_changes_hold_no_false_skip() -> None:
    """Long random histories, 500,000 (block, filter) pairs: no false skip, no wrong ALL."""
    pairs, seed = 0, 0
    while pairs < 500_000:
        pairs += check_history(seed, steps=30, filters=40)
        seed += 1
    print(f"{pairs} pairs over {seed} histories: 0 false skips, 0 wrong ALL")
