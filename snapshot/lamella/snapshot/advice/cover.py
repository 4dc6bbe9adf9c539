"""How likely entries cover a value: one that the table has, and one that lies among its values and that it has not.

Manifests say where the values of an entry begin and end and about how many there are, not where they lie in between.
That is inferred from all entries together, as the mass of a histogram over the elements of their line:

- each end of a range is a value;
- the others lie within their range, where other ranges say that values are: an element that many ranges share has more
  of each than one that few have. Starting from equally spread, :data:`ROUNDS` rounds of this are made. (Going on until
  nothing changes is the likeliest histogram of all, and puts everything where ranges overlap most. Few rounds are
  closer to the truth: within a hundredth of all entries on average, over the layouts of ``tests/advice``.)
- values that several entries have in common count once. How many have one is a power of how many ranges overlap there,
  the same power everywhere, such that the whole table has as many different values as it has.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.advice.line import Line, Numbers
from lamella.snapshot.columnar.points import spread

ROUNDS: Final = 3
_BISECTIONS: Final = 40
#: What is left of a stretch of whole numbers that seem to be there all: counts are estimates.
_LEAST_ABSENT: Final = 0.02


class Cover(msgspec.Struct, frozen=True, eq=False):
    """For each entry: how likely its bounds contain a value of the table (``present``); one that is not in the table,
    and lies between its least and its greatest (``absent``, None: there is no such). ``holds``: how likely it has a
    value of the table, which is never more than ``present``. ``mass``: different values in each element of the line.
    """

    present: Any
    absent: Any
    holds: Any
    mass: Any


def cover_of(line: Line, distinct: Numbers, total: float) -> Cover:
    """``distinct``: different values of each entry; ``total``: of the whole table."""
    depth = np.maximum(line.depth, 1.0)
    pairs = _pairs(line, distinct)
    room = line.measure if line.is_whole else np.full(len(pairs), np.inf)
    most, least = float(np.minimum(pairs, room).sum()), float(np.minimum(pairs / depth, room).sum())
    mass = _shared(pairs, depth, room, float(np.clip(total, least, most)))
    present = _within(line, mass)
    absent = None
    empty = line.measure.copy()
    if line.is_whole:
        empty = np.where(mass < line.measure, np.maximum(line.measure - mass, _LEAST_ABSENT * line.measure), 0.0)
    if empty.sum() > 0 and (not line.is_whole or total < 0.999 * line.measure.sum()):
        absent = _within(line, empty)
    holds = np.minimum(distinct / max(total, 1.0), present)
    return Cover(present, absent, holds, mass)


def _pairs(line: Line, distinct: Numbers) -> Numbers:
    """How many values of entries lie in each element, a value of two entries counted twice."""
    wide = line.last > line.first
    pieces = np.maximum(np.bincount(line.entry, minlength=line.count)[line.entry], 1)
    ends = np.where(wide, 2.0, 1.0)
    # Ends may be looser than the values, so an entry may have fewer values than ends.
    ends = np.minimum(ends, distinct[line.entry] / pieces)
    inner = np.maximum(distinct[line.entry] / pieces - ends, 0.0)
    weight = line.measure
    for _ in range(ROUNDS):
        sums = np.concatenate([[0.0], np.cumsum(weight)])
        room = sums[line.last] - sums[np.minimum(line.first + 1, line.last)]
        density = np.divide(inner, room, out=np.zeros(len(inner)), where=room > 0)
        inner_of = spread(len(weight), line.first[wide] + 1, line.last[wide] - 1, density[wide])
        weight = np.maximum(weight * inner_of, 0.0)
    pairs: Numbers = weight.copy()
    np.add.at(pairs, line.first, np.where(wide, ends / 2, ends))
    np.add.at(pairs, line.last[wide], ends[wide] / 2)
    return pairs


def _shared(pairs: Numbers, depth: Numbers, room: Numbers, total: float) -> Numbers:
    """Different values in each element, ``total`` altogether."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if np.minimum(pairs / depth**middle, room).sum() > total:
            low = middle
        else:
            high = middle
    return np.asarray(np.minimum(pairs / depth**high, room))


def _within(line: Line, weight: Numbers) -> Numbers:
    """The part of all weight that lies in the ranges of each entry."""
    sums = np.concatenate([[0.0], np.cumsum(weight)])
    found = np.zeros(line.count)
    if sums[-1] > 0:
        np.add.at(found, line.entry, (sums[line.last + 1] - sums[line.first]) / sums[-1])
    elif len(weight) == 1:
        found[line.entry] = 1.0
    return np.clip(found, 0.0, 1.0)
