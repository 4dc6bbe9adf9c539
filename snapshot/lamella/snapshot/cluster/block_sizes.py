"""How large blocks are, how large they should be, and how often they were rewritten."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.columnar.masks import Mask
from lamella.snapshot.errors import InvalidRequest

#: Properties of a table that say how large its blocks should be.
TARGET_ROWS: Final = "target_block_rows"
TARGET_BYTES: Final = "target_block_bytes"
_NUMBER: Final = re.compile(r"[0-9]{1,18}")

#: What ``Sizes.level`` is of blocks that were not written for the key.
NOT_WRITTEN: Final = -1
#: Blocks of this level are never chosen again: rewriting does not help them.
SETTLED: Final = 32
#: Blocks below this part of the wanted size are small: worth putting together.
SMALL: Final = 0.4
#: Above this multiple of it they are large: worth splitting.
LARGE: Final = 2.0


class Sizes(msgspec.Struct, frozen=True, eq=False):
    """n blocks: their rows, the bytes of their files (both int64), and how often rows of them were rewritten for the
    cluster key (``level``, int64, 0 to 32; -1: the block was not written for this key).
    """

    rows: Any
    size_bytes: Any
    level: Any

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: Any) -> Sizes:
        """Some of the blocks, in that order."""
        return Sizes(self.rows[chosen], self.size_bytes[chosen], self.level[chosen])


class BlockTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The size that a block should have: so many rows, or so many bytes of file, whichever comes first."""

    rows: int = 1_000_000
    size_bytes: int = 128 << 20

    def fill(self, sizes: Sizes) -> Any:
        """How much of the target each block fills: the greater of its part of the rows and of the bytes."""
        return np.maximum(sizes.rows / self.rows, sizes.size_bytes / self.size_bytes)

    def is_small(self, sizes: Sizes) -> Mask:
        """Blocks that compaction puts together: below 40 % of both."""
        return np.asarray(self.fill(sizes) < SMALL)

    def is_large(self, sizes: Sizes) -> Mask:
        """Blocks that compaction splits: above 200 % of one."""
        return np.asarray(self.fill(sizes) > LARGE)

    def is_perfect(self, sizes: Sizes) -> Mask:
        """Blocks that compaction leaves alone: neither small nor large."""
        return ~(self.is_small(sizes) | self.is_large(sizes))

    def is_perfect_block(self, rows: int, size_bytes: int) -> bool:
        """The same of one block."""
        return SMALL <= max(rows / self.rows, size_bytes / self.size_bytes) <= LARGE

    def blocks_of(self, rows: Any, size_bytes: Any) -> Any:
        """Into how many blocks of about the same size so many rows and bytes are cut."""
        fill = np.maximum(np.asarray(rows) / self.rows, np.asarray(size_bytes) / self.size_bytes)
        return np.maximum(np.round(fill), 1).astype(np.int64)


def block_target_of(properties: Mapping[str, str]) -> BlockTarget:
    """The size that blocks of a table with these properties should have.

    Raises:
        InvalidRequest: the value of one of the two properties is not a whole number above zero.
    """
    default = BlockTarget()
    return BlockTarget(
        rows=_positive(properties, TARGET_ROWS, default.rows),
        size_bytes=_positive(properties, TARGET_BYTES, default.size_bytes),
    )


def _positive(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    if _NUMBER.fullmatch(text) is None or int(text) == 0:
        raise InvalidRequest(
            f"property {name} is a whole number from 1, of at most 18 digits, not {text[:100]!r}", property=name
        )
    return int(text)
