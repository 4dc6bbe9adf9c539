"""What look-ups read: blocks and bytes, expected."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from lamella.snapshot.cluster.block_sizes import Sizes
from lamella.snapshot.cluster.row_share import Numbers


class Read(msgspec.Struct, frozen=True):
    """Blocks read, and bytes of their files."""

    blocks: float
    size_bytes: float

    def minus(self, other: Read) -> Read:
        """What this is more."""
        return Read(self.blocks - other.blocks, self.size_bytes - other.size_bytes)

    def share_of(self, whole: Read) -> float:
        """Which part of the blocks or of the bytes of a whole this is, whichever is more."""
        return max(
            self.blocks / whole.blocks if whole.blocks > 0 else 0.0,
            self.size_bytes / whole.size_bytes if whole.size_bytes > 0 else 0.0,
        )


def read(likely: Any, sizes: Sizes) -> Read:
    """What is read of blocks, each as likely as said."""
    return Read(float(np.sum(likely)), float(np.sum(likely * sizes.size_bytes)))


def met(width: Numbers, share: float) -> Numbers:
    """How likely a range of a share of the rows meets a span of ``width``, both begun anywhere."""
    if share >= 1:
        return np.ones(len(width))
    free = np.maximum(1.0 - width - share, 0.0) ** 2
    room = (1.0 - width) * (1.0 - share)
    return np.asarray(1.0 - np.divide(free, room, out=np.zeros(len(width)), where=room > 0))
