"""Ranges: runs of blocks by their numbers, which name the same blocks as the other shapes do."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import InvalidRequest, SegmentNotFound
from lamella.snapshot.ids import Ids
from lamella.snapshot.wire import OrderBy, PruneAnswer, PruneRequest
from support import generate, stages


def expanded(lake: stages.Lake, answer: PruneAnswer) -> list[tuple[str, str]]:
    """Location and verdict of each block that the runs name."""
    ranges = answer.block_ranges
    assert ranges is not None
    found: list[tuple[str, str]] = []
    for segment, first, count, verdict in zip(
        ranges.segment, ranges.first, ranges.block_count, ranges.verdict, strict=True
    ):
        blocks = lake.warehouse.blocks_of(lake.pointer, ranges.segment_id[segment])
        found += [(location, verdict) for location in blocks.location[first : first + count]]
    return found


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**48))
def test_ranges_name_the_blocks_of_the_other_shapes(seed: int) -> None:
    """In the same sequence, with the same verdicts, and no two runs that could be one."""
    rng = Random(seed)
    lake = stages.lake(rng, blocks=12, segment_blocks=rng.choice([1, 3, 5, 50]))
    for _ in range(4):
        predicate = generate.predicate(rng, lake.schema, lake.seen, depth=2)
        columns = lake.warehouse.prune_predicate(lake.pointer, predicate, PruneRequest(shape="columns"))
        answer = lake.warehouse.prune_predicate(lake.pointer, predicate, PruneRequest(shape="ranges"))
        assert columns.block_columns is not None
        expected = list(zip(columns.block_columns.location, columns.block_columns.verdict, strict=True))
        assert expanded(lake, answer) == expected
        ranges = answer.block_ranges
        assert ranges is not None
        assert all(ranges.block_count)
        assert sorted(set(ranges.segment)) == list(range(len(ranges.segment_id)))
        runs = list(zip(ranges.segment, ranges.first, ranges.block_count, ranges.verdict, strict=True))
        for (segment, first, count, verdict), (next_segment, next_first, _, next_verdict) in pairwise(runs):
            assert (next_segment, next_first, next_verdict) != (segment, first + count, verdict)


def test_a_limit_leaves_the_ranges_of_the_blocks_that_it_leaves() -> None:
    """As a set: runs have the snapshot's sequence."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=4)
    request = PruneRequest(filter="a >= 0", limit=25)
    blocks = lake.warehouse.prune(lake.pointer, request).blocks
    ranges = lake.warehouse.prune(lake.pointer, msgspec.structs.replace(request, shape="ranges"))
    assert blocks is not None
    assert {location for location, _ in expanded(lake, ranges)} == {block.location for block in blocks}
    assert len(expanded(lake, ranges)) == len(blocks)


@pytest.mark.parametrize(
    "more",
    [
        {"level": "page"},
        {"columns": ("a",)},
        {"order_by": (OrderBy(column="a"),)},
        {"residuals": True},
        {"page_size": 5},
    ],
)
def test_what_ranges_cannot_say_is_refused(more: dict[str, object]) -> None:
    """Rather than left out in silence."""
    lake = stages.counting(blocks=4, rows=10, segment_blocks=2)
    request = msgspec.structs.replace(PruneRequest(shape="ranges"), **more)
    with pytest.raises(InvalidRequest, match="ranges"):
        lake.warehouse.prune(lake.pointer, request)


def test_only_segments_of_the_snapshot_have_addresses() -> None:
    """Another id is not found."""
    lake = stages.counting(blocks=4, rows=10, segment_blocks=2)
    with pytest.raises(SegmentNotFound):
        lake.warehouse.blocks_of(lake.pointer, str(Ids().new()))
