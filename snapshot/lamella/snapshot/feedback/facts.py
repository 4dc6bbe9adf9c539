"""Remembered answers, and the blocks of a prune that they leave out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from lamella.snapshot.manifest.block_key import BlockKeys, are_among, no_keys
from lamella.snapshot.prune.kept import Kept
from lamella.snapshot.prune.verdict import ALL
from lamella.snapshot.wire import FeedbackUse

#: What one of the entries takes beside its keys, roughly.
_ENTRY_BYTES: Final = 200


class Facts:
    """The blocks that were reported to be empty, by the digest of what they are empty for. Never changed."""

    def __init__(self, blocks: Mapping[bytes, BlockKeys]) -> None:
        self._blocks = dict(blocks)

    def __len__(self) -> int:
        return sum(len(keys) for keys in self._blocks.values())

    @property
    def size_bytes(self) -> int:
        """What they take in memory, roughly."""
        return sum(keys.nbytes + _ENTRY_BYTES for keys in self._blocks.values())

    def known(self, digests: Sequence[bytes]) -> list[bytes]:
        """Those of the digests that something is remembered under."""
        return [digest for digest in digests if digest in self._blocks]

    def empty(self, digests: Sequence[bytes]) -> BlockKeys:
        """The blocks that are empty for one of them, and so for a filter that needs all."""
        return np.concatenate([no_keys(), *(self._blocks[digest] for digest in self.known(digests))])


class FeedbackResult(msgspec.Struct, frozen=True):
    """What is left. ``use`` None: there was nothing to say. ``used``: the digests that something was known under."""

    kept: Sequence[Kept]
    use: FeedbackUse | None
    used: tuple[bytes, ...] = ()


def refine(
    kept: Sequence[Kept],
    digests: Sequence[bytes],
    facts: Facts | None,
    keys: Callable[[int], BlockKeys],
    timer: Callable[[], float],
) -> FeedbackResult:
    """The kept blocks without those that readers found empty.

    ``digests``: :func:`lamella.snapshot.feedback.questions` of the filter over the snapshot's schema. ``keys`` gives
    the block keys of a segment by its row, as it does for skip indexes; it is asked only when something is known. A
    block all of whose rows are proven to match stays, whatever was reported.
    """
    known = [] if facts is None else facts.known(digests)
    if facts is None or not known or not len(kept):
        return FeedbackResult(kept, None)
    started = timer()
    empty = facts.empty(known)
    left: list[Kept] = []
    considered = ruled_out = contradicted = 0
    for part in kept:
        is_empty = are_among(keys(part.segment)[part.rows], empty)
        is_proven = part.codes == ALL
        considered += len(part.rows)
        contradicted += int((is_empty & is_proven).sum())
        keep = ~is_empty | is_proven
        ruled_out += int(len(keep) - keep.sum())
        if keep.all():
            left.append(part)
        elif keep.any():
            left.append(part.where(keep))
    use = FeedbackUse(
        considered=considered, ruled_out=ruled_out, contradicted=contradicted, ms=(timer() - started) * 1e3
    )
    return FeedbackResult(left if ruled_out else kept, use, tuple(known))
