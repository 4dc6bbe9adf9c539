"""The blocks of a few neighbouring segments by binary search, where the columns that a filter names ascend.

Nothing is tested block by block: where the filter may be true, and where it surely is, are windows (:mod:`.window`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from lamella.snapshot.columnar.chunk import Held
from lamella.snapshot.columnar.resident import Piece
from lamella.snapshot.prune.division import Division, division
from lamella.snapshot.prune.evaluate import Evaluator
from lamella.snapshot.prune.kept import Codes
from lamella.snapshot.prune.kept_blocks import Survivors
from lamella.snapshot.prune.verdict import ALL

#: Of more segments the blocks are tested: that is as fast.
_MOST_SEGMENTS: Final = 16


class Searched(msgspec.Struct, frozen=True):
    """What a search finds of a piece: ``division`` decides the blocks of its source, of which ``held`` are the columns.

    ``bounds``: where the blocks of each segment from ``first`` on begin there, and the end; ``decided``: the
    segments' own verdicts.
    """

    division: Division
    held: Held
    first: int
    bounds: Sequence[int]
    decided: Sequence[int]

    def add_to(self, left: Survivors) -> None:
        """Add the blocks that are kept."""
        if self.division.rest is None:
            self._add_windows(left)
            return
        begin, end = self.bounds[0], self.bounds[-1]
        codes = self.division.codes(begin, end, self.held)
        for code, start, stop in zip(self.decided, self.bounds, self.bounds[1:], strict=False):
            if code == ALL:
                codes[start - begin : stop - begin] = ALL
        segments = np.arange(self.first, self.first + len(self.decided))
        sizes = self.held.numbers["file_size"][begin:end]
        left.add_tested(segments, np.array(self.bounds) - begin, codes, sizes)

    def _add_windows(self, left: Survivors) -> None:
        """As there is nothing to test, all blocks in the windows are kept."""
        sizes = self.held.numbers["file_size"]
        start = self.bounds[0]
        for segment, (code, stop) in enumerate(zip(self.decided, self.bounds[1:], strict=True), self.first):
            runs = [(start, stop, ALL)] if code == ALL else self.division.runs(start, stop)
            if runs:
                left.add_runs(segment, runs, start, sizes)
            start = stop


class Search:
    """Finds what a filter keeps; ``decided``: the verdicts of the snapshot's segments."""

    def __init__(self, filter: Evaluator, decided: Codes) -> None:
        self._filter = filter
        self._decided = decided
        self._held: Held | None = None
        self._division: Division | None = None

    def of(self, piece: Piece) -> Searched | None:
        """The blocks of a piece that are kept; None: they are to be tested."""
        held = piece.held
        if not held.have_rows or piece.stop - piece.first > _MOST_SEGMENTS:
            return None
        if held is not self._held:  # the pieces of a chunk come one after another
            self._held = held
            self._division = division(self._filter, held.edges, len(held.numbers["row_count"]))
        found = self._division
        if found is None or found.rest is self._filter:
            return None
        return Searched(found, held, piece.first, piece.bounds, self._decided[piece.first : piece.stop].tolist())
