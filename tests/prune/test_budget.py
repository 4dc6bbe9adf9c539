"""A time budget and a choice of segments: a part of the answer, and exactly what the rest of it is."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import SegmentNotFound
from lamella.snapshot.prune.options import Options
from lamella.snapshot.wire import OrderBy, PruneRequest
from support import generate, stages

SEEDS = st.integers(0, 2**48)


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_resolved_and_unresolved_together_hold_every_match(seed: int) -> None:
    """Asking for what is left until nothing is gives the blocks of the whole answer, no more and no fewer."""
    rng = Random(seed)
    lake = stages.lake(rng, timer=itertools.count().__next__)  # a second passes at each look at the clock
    predicate = generate.predicate(rng, lake.schema, lake.seen, depth=2)
    whole = lake.warehouse.prune_predicate(lake.pointer, predicate, PruneRequest())
    found: list[str] = []
    segments: tuple[str, ...] | None = None
    for _ in range(20):
        request = PruneRequest(max_ms=rng.choice([0, 1500]), segments=segments)
        answer = lake.warehouse.prune_predicate(lake.pointer, predicate, request)
        found += [block.location for block in answer.blocks or ()]
        assert answer.complete == (answer.unresolved is None)
        if answer.unresolved is None:
            break
        segments = tuple(segment.segment_id for segment in answer.unresolved)
    assert sorted(found) == sorted(block.location for block in whole.blocks or ())
    assert len(found) == len(set(found))


def test_an_order_resolves_the_best_segments_first() -> None:
    """When time runs out, what is left unresolved is only what may still hold one of the first rows."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3, timer=itertools.count().__next__)
    order = (OrderBy(column="a", descending=True),)
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(order_by=order, limit=5, max_ms=0))
    assert [stages.number_of(block.location) for block in answer.blocks or ()] == [11]
    assert answer.complete
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(order_by=order, max_ms=0))
    assert [stages.number_of(block.location) for block in answer.blocks or ()] == [11, 10, 9]
    assert len(answer.unresolved or ()) == 3


def test_a_limit_that_is_reached_in_time_is_complete() -> None:
    """Enough is enough: segments that were not opened are not missing."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3, timer=itertools.count().__next__)
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(limit=5, max_ms=0))
    assert answer.complete
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(limit=50, max_ms=0))
    assert not answer.complete


def test_segments_that_are_not_requested_stay_closed() -> None:
    """The parts of a snapshot can be resolved apart, and the parts are the whole."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3)
    found = lake.warehouse.prune(lake.pointer, PruneRequest(filter="a < 95", level="segment"))
    ids = [segment.segment_id for segment in found.segments or ()]
    assert len(ids) == 4
    blocks = []
    for segment_id in ids:
        part = lake.warehouse.prune(lake.pointer, PruneRequest(filter="a < 95", segments=(segment_id,)))
        assert part.report.stages[-1].considered == 3
        blocks += [stages.number_of(block.location) for block in part.blocks or ()]
    assert blocks == list(range(10))
    none = lake.warehouse.prune(lake.pointer, PruneRequest(segments=()))
    assert none.blocks == ()
    with pytest.raises(SegmentNotFound):
        lake.warehouse.prune(lake.pointer, PruneRequest(segments=("another",)))


def test_no_options_are_no_options() -> None:
    """The defaults ask for nothing."""
    assert not Options().ranked
