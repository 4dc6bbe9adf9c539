"""Maintains the shape of a table's segments and groups: which of them a commit merges, decided from counts.

Small segments are merged size-tiered, like the runs of a log-structured merge tree: eight of a tier become one of the
next, and when all small ones together fill a segment, they are merged into one. Full segments move from the snapshot's
own list into groups, and groups merge the same way. So the number of times that a block's metadata is rewritten grows
with the logarithm of a segment's size, and that of a segment's entry with the logarithm of the table's size.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

#: Blocks per new segment.
SEGMENT_BLOCKS = 1_000


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """``segment_blocks``: blocks of a full segment; a segment of up to half as many is small. ``fan_in``: see above.
    ``max_merged``: maximum number of small segments that one commit merges into full ones.

    ``group_segments``: when the snapshot's own list has this many segments that are not small, they move into a group;
    one commit moves at most ``max_moved``. Groups have at most ``max_grouped`` segments.
    """

    segment_blocks: int = SEGMENT_BLOCKS
    fan_in: int = 8
    max_merged: int = 512
    group_segments: int = 32
    max_moved: int = 256
    max_grouped: int = 2_048

    def is_small(self, block_count: int) -> bool:
        """Returns whether later commits may merge the segment into another."""
        return 2 * block_count <= self.segment_blocks


def segments_to_merge(block_counts: Sequence[int], shape: Shape) -> list[int]:
    """Selects the snapshot's own segments (given by their numbers of blocks) that one commit merges: none, or at least
    two.

    Takes all small ones if they fill a segment. Otherwise takes, from the highest tier that has ``fan_in`` members,
    those and all below it, unless the result would be neither small nor full.
    """
    small = [index for index, count in enumerate(block_counts) if shape.is_small(count)]
    if sum(block_counts[index] for index in small) >= shape.segment_blocks:
        return small[: shape.max_merged] if len(small) > 1 else []
    chosen: list[int] = []
    for tier in range(_tier(shape.segment_blocks, shape.fan_in) + 1):
        upto = [index for index in small if _tier(block_counts[index], shape.fan_in) <= tier]
        made = _tier(sum(block_counts[index] for index in chosen), shape.fan_in) if chosen else -1
        members = [i for i in upto if _tier(block_counts[i], shape.fan_in) == tier and i not in chosen]
        enough = len(members) + (made == tier) >= shape.fan_in
        if enough and shape.is_small(sum(block_counts[index] for index in {*upto, *chosen})):
            chosen = sorted({*upto, *chosen})
    return chosen if len(chosen) > 1 else []


def to_move(block_counts: Sequence[int], shape: Shape) -> list[list[int]]:
    """Selects the snapshot's own segments that move into groups, oldest first: the members of each new group."""
    large = [index for index, count in enumerate(block_counts) if not shape.is_small(count)]
    left = large[: shape.max_moved]
    moved: list[list[int]] = []
    while len(left) >= shape.group_segments:
        size = shape.group_segments
        while size * shape.fan_in <= min(len(left), shape.max_grouped):
            size *= shape.fan_in
        moved.append(left[:size])
        left = left[size:]
    return moved


def to_merge(segment_counts: Sequence[int], shape: Shape) -> list[int]:
    """Selects the groups (given by their numbers of segments) that one commit merges next; none if they are
    well-shaped."""
    levels = [_tier(max(1, count // shape.group_segments), shape.fan_in) for count in segment_counts]
    for level in sorted(set(levels)):
        members = [index for index, each in enumerate(levels) if each == level][: shape.fan_in]
        if len(members) == shape.fan_in and sum(segment_counts[i] for i in members) <= shape.max_grouped:
            return members
    return []


def _tier(count: int, fan_in: int) -> int:
    """Returns the greatest power of ``fan_in`` that is at most ``count`` (at least 1)."""
    tier = 0
    while count >= fan_in:
        count //= fan_in
        tier += 1
    return tier
