"""Where on a line the rows of blocks are, and what look-ups read.

Zone maps say where a block begins and ends, not where its rows are in between. That is inferred from all blocks
together: rows are where other blocks say that rows are. Starting with as many rows between any two neighbouring points,
each block's rows are put where the rows of all blocks were in the round before, :data:`ROUNDS` times; those of a
constant block are at its point. (Going on would put everything where blocks overlap most. See
:mod:`lamella.snapshot.advice.cover`, which does the same for different values.)

So each block has a *span*: the part of all rows before it, to that part behind it. A block of a sorted table spans
what it holds. A look-up of a range that has a share s of all rows, wherever that begins, reads the blocks that the
range meets.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.cluster.extent import Intervals, Rows
from lamella.snapshot.columnar.points import spread

ROUNDS: Final = 4
Numbers = npt.NDArray[np.float64]


class Spans(msgspec.Struct, frozen=True, eq=False):
    """n blocks, each from ``start`` to ``stop``, parts of all rows from 0 to 1."""

    start: Any
    stop: Any

    def __len__(self) -> int:
        return len(self.start)

    @property
    def width(self) -> Numbers:
        """The part of all rows that lie where a block lies: how likely a look-up of one row's value reads it."""
        return np.asarray(self.stop - self.start)

    def take(self, rows: Any) -> Spans:
        """Some of the blocks, in that order."""
        return Spans(self.start[rows], self.stop[rows])

    def read_by(self, share: float) -> Numbers:
        """How likely each block is read by a range of a share of the rows (0: one value), begun anywhere from 0 to
        ``1 - share``, each place as likely as another."""
        if share >= 1:
            return np.ones(len(self.start))
        begin = np.maximum(self.start - share, 0.0)
        end = np.minimum(self.stop, 1.0 - share)
        return np.asarray(np.clip((end - begin) / (1.0 - share), 0.0, 1.0))


class Mass(msgspec.Struct, frozen=True, eq=False):
    """How the rows of a table are spread over a line: point k is element 2k, what lies behind it element 2k + 1.

    ``sums``: the part of all rows before each element, and 1.
    """

    sums: Any

    def spans(self, intervals: Intervals) -> Spans:
        """The spans of blocks on that line."""
        return Spans(self.sums[2 * intervals.first], self.sums[2 * intervals.last + 1])

    def place(self, part: Numbers) -> Rows:
        """The element in which so great a part of the rows is reached."""
        found = np.searchsorted(self.sums, part, side="right") - 1
        return np.asarray(np.clip(found, 0, len(self.sums) - 2))

    def centred(self, part: Numbers) -> Numbers:
        """Parts of the rows; those within one point at its middle."""
        element = self.place(part)
        middle = (self.sums[element] + self.sums[element + 1]) / 2
        return np.asarray(np.where(element % 2 == 0, middle, part))

    def widened(self, spans: Spans) -> Spans:
        """Spans that end within the rows of one point take in all of these."""
        first, last = self.place(spans.start), self.place(np.nextafter(spans.stop, 0))
        return Spans(
            np.where(first % 2 == 0, self.sums[first], spans.start),
            np.where(last % 2 == 0, self.sums[last + 1], spans.stop),
        )


def mass_of(intervals: Intervals, rows: Rows) -> Mass:
    """How the rows of blocks are spread."""
    elements = max(2 * intervals.count - 1, 1)
    constant = intervals.is_constant
    piles: Numbers = np.bincount(2 * intervals.first[constant], rows[constant], minlength=elements).astype(np.float64)
    first, last = 2 * intervals.first[~constant], 2 * intervals.last[~constant]
    count = rows[~constant].astype(np.float64)
    weight = np.zeros(elements)
    weight[1::2] = 1.0
    if not len(count):
        weight = piles
    else:
        for _ in range(ROUNDS):
            sums = np.concatenate([[0.0], np.cumsum(weight)])
            room = sums[last + 1] - sums[first]
            density = np.divide(count, room, out=np.zeros(len(count)), where=room > 0)
            weight = np.maximum(weight * spread(elements, first, last, density), 0.0) + piles
    total = float(weight.sum())
    sums = np.concatenate([[0.0], np.cumsum(weight)])
    return Mass(np.minimum(sums / total, 1.0) if total > 0 else np.linspace(0.0, 1.0, elements + 1))
