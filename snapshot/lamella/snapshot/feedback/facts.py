"""Remembered answers, and the blocks of a prune that they leave out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.manifest.block_key import BlockKeys, no_keys
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


class Told:
    """What readers said about one filter, taken from the kept blocks of one prune; it adds up what it did.

    ``digests``: :func:`lamella.snapshot.feedback.questions` of the filter over the snapshot's schema. ``keys`` gives
    the block keys of a segment by its row, as it does for skip indexes. A block all of whose rows are proven to match
    stays, whatever was reported.
    """

    def __init__(
        self,
        facts: Facts,
        digests: Sequence[bytes],
        keys: Callable[[int], BlockKeys],
        timer: Callable[[], float],
    ) -> None:
        #: Those under which something is known.
        self.used = tuple(facts.known(digests))
        empty = facts.empty(self.used)
        self._empty = empty[np.argsort(empty[:, 1])]
        self._keys = keys
        self._timer = timer
        self._considered = self._ruled_out = self._contradicted = 0
        self._ms = 0.0

    def refine(self, kept: Sequence[Kept]) -> Sequence[Kept]:
        """The kept blocks without those that readers found empty; the same object when all of them stay."""
        before = self._ruled_out
        left = [found for part in kept if len((found := self.refine_one(part)).rows)]
        return kept if self._ruled_out == before else left

    def refine_one(self, part: Kept) -> Kept:
        """As :meth:`refine`, of one segment, perhaps without any block left."""
        started = self._timer()
        is_empty = self._is_empty(self._keys(part.segment)[part.rows])
        is_proven = part.codes == ALL
        keep = ~is_empty | is_proven
        self._considered += len(part.rows)
        self._contradicted += int((is_empty & is_proven).sum())
        self._ruled_out += int(len(keep) - keep.sum())
        left = part if keep.all() else part.where(keep)
        self._ms += (self._timer() - started) * 1e3
        return left

    def _is_empty(self, keys: BlockKeys) -> Mask:
        if not len(self._empty):
            return np.zeros(len(keys), dtype=bool)
        # Of two files with the same second half only the first one would be found, which keeps a block too many.
        places = np.minimum(np.searchsorted(self._empty[:, 1], keys[:, 1]), len(self._empty) - 1)
        found: Mask = (self._empty[places] == keys).all(axis=1)
        return found

    @property
    def use(self) -> FeedbackUse:
        """What the report says."""
        return FeedbackUse(
            considered=self._considered,
            ruled_out=self._ruled_out,
            contradicted=self._contradicted,
            ms=self._ms,
        )
