"""How segments and groups are kept well-shaped: decisions over counts."""

from __future__ import annotations

from random import Random

import pytest

from lamella.snapshot.commit import Shape, segments_to_merge, to_merge, to_move

SHAPE = Shape()


class Counts:
    """A table's own segments by their blocks and its groups by their segments, as commits would leave them."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.segments: list[int] = []
        self.groups: list[list[int]] = []
        self.rewritten_blocks = 0
        self.rewritten_entries = 0

    def append(self, *block_counts: int) -> None:
        self.segments += block_counts
        if chosen := segments_to_merge(self.segments, self.shape):
            total = sum(self.segments[index] for index in chosen)
            self.rewritten_blocks += total
            size = self.shape.segment_blocks
            made = [min(size, total - start) for start in range(0, total, size)]
            last = chosen[-1]
            self.segments = [
                each
                for index, count in enumerate(self.segments)
                for each in (made if index == last else [] if index in chosen else [count])
            ]
        moved = to_move(self.segments, self.shape)
        self.groups += [[self.segments[index] for index in chosen] for chosen in moved]
        gone = {index for chosen in moved for index in chosen}
        self.segments = [count for index, count in enumerate(self.segments) if index not in gone]
        while chosen := to_merge([len(group) for group in self.groups], self.shape):
            merged = [count for index in chosen for count in self.groups[index]]
            self.rewritten_entries += len(merged)
            self.groups = [group for index, group in enumerate(self.groups) if index not in chosen] + [merged]

    @property
    def all(self) -> list[int]:
        return [*(count for group in self.groups for count in group), *self.segments]


def test_ten_thousand_single_appends_leave_full_segments_and_a_short_tail() -> None:
    """Not one segment each: ten full ones and a few tens, and each block was written again four times at most."""
    counts = Counts(SHAPE)
    longest = 0
    for _ in range(10_000):
        counts.append(1)
        longest = max(longest, sum(map(SHAPE.is_small, counts.segments)))
    assert sum(counts.all) == 10_000
    assert sum(count == 1_000 for count in counts.all) >= 9
    assert len(counts.all) <= 10 + 32
    assert longest <= 32
    assert counts.rewritten_blocks <= 4 * 10_000


@pytest.mark.parametrize("seed", range(6))
def test_appends_of_any_size_keep_the_table_well_shaped(seed: int) -> None:
    """What a commit has to look at stays short, and nothing is written again more than a few times."""
    rng = Random(seed)
    counts, total = Counts(SHAPE), 0
    sizes = rng.choice([(1,), (1, 1_000), (1, 8, 64), (5, 120, 700), (499, 500, 501), (1, 3_000)])
    for _ in range(1_500):
        size = rng.choice(sizes)
        total += size
        counts.append(*(min(1_000, size - start) for start in range(0, size, 1_000)))
        assert sum(map(SHAPE.is_small, counts.segments)) <= 40
        assert len(counts.segments) <= 40 + SHAPE.group_segments
    assert sum(counts.all) == total
    assert len(counts.all) <= 2 * total / SHAPE.segment_blocks + 40
    assert counts.rewritten_blocks <= 5 * total
    assert len(counts.groups) <= 2 * (SHAPE.fan_in - 1) + total / SHAPE.segment_blocks / SHAPE.max_grouped * 2 + 1


def test_groups_merge_by_levels() -> None:
    """Each segment's entry is written again once a level, and a level has fewer groups than the fan-in."""
    counts = Counts(SHAPE)
    for _ in range(3_000):
        counts.append(1_000)
    assert sorted(map(len, counts.groups)) == [32] * 5 + [256] * 3 + [2_048]
    assert len(counts.segments) == 3_000 - 2_048 - 3 * 256 - 5 * 32
    assert counts.rewritten_entries <= 2 * 3_000


def test_one_commit_does_a_bounded_part_of_the_work() -> None:
    """A table that comes with many segments is put into groups by several commits."""
    moved = to_move([1_000] * 5_000, SHAPE)
    assert [index for chosen in moved for index in chosen] == list(range(SHAPE.max_moved))
    chosen = segments_to_merge([1] * 5_000, SHAPE)
    assert len(chosen) == SHAPE.max_merged


def test_what_is_full_is_left_alone() -> None:
    """Segments that are not small are never folded, wherever they stand."""
    assert segments_to_merge([1_000, 501, 1, 1_000, 900], SHAPE) == []
    assert segments_to_merge([1, 1_000] * 8, SHAPE) == list(range(0, 16, 2))
    assert segments_to_merge([], SHAPE) == []
    assert to_move([1] * 100, SHAPE) == []
