"""Which blocks a deep verification reads: as many as asked, drawn by a seed, the same ones every time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidRequest

#: The share and the least number of blocks when nothing is said.
DEFAULT_SHARE: Final = 0.01
DEFAULT_BLOCKS: Final = 20


class Deep(msgspec.Struct, frozen=True, kw_only=True):
    """What a deep verification reads: ``blocks``, or the share ``sample`` of them; ``filters`` for each."""

    sample: float | None = None
    blocks: int | None = None
    seed: int = 0
    filters: int = 20

    def check(self) -> None:
        """Raise InvalidRequest for what cannot be read."""
        if self.sample is not None and self.blocks is not None:
            raise InvalidRequest("give sample or blocks, not both")
        if self.sample is not None and not 0 < self.sample <= 1:
            raise InvalidRequest(f"sample is a share above 0 and up to 1, not {self.sample}", parameter="sample")
        if self.blocks is not None and self.blocks < 0:
            raise InvalidRequest(f"blocks is {self.blocks}", parameter="blocks")
        if not 0 <= self.filters <= 10_000:
            raise InvalidRequest(f"filters is a number from 0 to 10000, not {self.filters}", parameter="filters")


def how_many(deep: Deep, total: int) -> int:
    """How many of all blocks are read."""
    if deep.blocks is not None:
        wanted = deep.blocks
    elif deep.sample is not None:
        wanted = math.ceil(deep.sample * total)
    else:
        wanted = max(DEFAULT_BLOCKS, math.ceil(DEFAULT_SHARE * total))
    return min(wanted, total)


def chosen(deep: Deep, block_counts: Sequence[int]) -> list[tuple[int, int]]:
    """(segment, block in it) of each block to be read, ascending; ``block_counts`` are the segments'."""
    counts = [max(count, 0) for count in block_counts]
    total = sum(counts)
    rng = Random(deep.seed)  # noqa: S311  # a sample that can be drawn again, no secret
    picked = sorted(rng.sample(range(total), how_many(deep, total)))
    starts = [0, *accumulate(counts)]
    found = []
    for number in picked:
        segment = bisect_right(starts, number) - 1
        found.append((segment, number - starts[segment]))
    return found
