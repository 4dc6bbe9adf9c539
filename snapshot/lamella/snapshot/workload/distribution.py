"""The distribution of a column's values over blocks, estimated from manifests and sampled rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import BytesKeys, Keys, NumberKeys
from lamella.snapshot.columnar.points import ranked, spread
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NUMBER, Spans, Zones
from lamella.snapshot.function.base import Vector
from lamella.snapshot.index.kind import Profile, ProfileLayer
from lamella.snapshot.schema import DataType, Leaf

# The bounds of entries on one line: their beginnings and ends, and the distances between them.
#
# The distinct bounds, in order, are the *points* of the line; the range between two neighbours is an *interval*. Point
# k is element 2k, the interval after it element 2k + 1. Elements have a *measure*: for whole numbers, dates and the
# like the number of possible values, else a length.

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

#: Characters after the common prefix that determine the position of a text.
_TEXT_BYTES: Final = 12


class Line(msgspec.Struct, frozen=True, eq=False):
    """Ranges ``first`` to ``last`` (elements, ends included) of the entries ``entry``, one or more each.

    ``count``: the number of entries; one without values has no range. ``measure``: of each element. ``is_whole``: it
    counts values. ``points``: the points, ascending, as numbers or byte strings.
    """

    count: int
    entry: Any
    first: Any
    last: Any
    measure: Any
    is_whole: bool
    points: Any

    @property
    def depth(self) -> Numbers:
        """Returns how many ranges contain each element."""
        return spread(len(self.measure), self.first, self.last, np.ones(len(self.first)))


def line_of(zones: Zones, dtype: DataType) -> Line:
    """Returns the line of a column's zone maps; entries with unknown bounds extend from end to end."""
    count = len(zones)
    has_values = zones.has(MAY_NUMBER)
    bounded = zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN) & has_values
    if zones.low is None or zones.high is None:
        bounded = np.zeros(count, dtype=bool)
    entry = np.flatnonzero(bounded)
    if len(entry) and zones.low is not None and zones.high is not None:
        low, high = zones.low.take(entry), zones.high.take(entry)
        if zones.spans is not None and isinstance(low, NumberKeys) and isinstance(high, NumberKeys):
            entry, low, high = _in_pieces(entry, low, high, zones.spans)
        ranks, lows, highs = ranked(low, high)
        points = ranks.array()
    else:
        points, lows, highs = np.zeros(1), entry, entry
    is_whole = dtype.order in ("int", "uint", "decimal")
    measure = np.zeros(2 * len(points) - 1)
    measure[1::2] = _gaps(points, low if len(entry) else None, is_whole=is_whole)
    if is_whole:
        measure[0::2] = 1.0
    wide = np.flatnonzero(has_values & ~bounded)
    return Line(
        count,
        np.concatenate([entry, wide]),
        np.concatenate([2 * lows, np.zeros(len(wide), dtype=np.int64)]),
        np.concatenate([2 * highs, np.full(len(wide), len(measure) - 1)]),
        measure,
        is_whole,
        points,
    )


def _in_pieces(entry: Rows, low: NumberKeys, high: NumberKeys, spans: Spans) -> tuple[Rows, NumberKeys, NumberKeys]:
    """Splits entries with known ranges into one piece per range."""
    counts = np.diff(spans.offsets)[entry] // 2
    whole = counts == 0
    chosen = spans.take(entry[~whole])
    return (
        np.concatenate([entry[whole], np.repeat(entry[~whole], counts[~whole])]),
        NumberKeys(np.concatenate([low.array[whole], chosen.low])),
        NumberKeys(np.concatenate([high.array[whole], chosen.high])),
    )


def _gaps(points: Any, keys: Keys | None, *, is_whole: bool) -> Numbers:
    """Returns the distance between neighbouring points."""
    if keys is None:
        return np.zeros(0)
    if points.dtype == object:
        return np.diff(_text_positions(points.tolist()))
    if points.dtype.kind in "iu":
        # Exact even if the numbers are too large for a float.
        wrapped = points.astype(np.uint64)
        return np.asarray((wrapped[1:] - wrapped[:-1]).astype(np.float64)) - 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.nan_to_num(np.diff(points), nan=0.0, posinf=1e308)
    return np.asarray(np.maximum(gaps - 1.0, 0.0)) if is_whole else np.asarray(gaps)


def _text_positions(texts: list[bytes]) -> Numbers:
    """Returns positions of ascending texts between 0 and 1: each byte is a digit among those seen at its index."""
    shared = 0
    shortest = min(map(len, texts))
    while shared < shortest and texts[0][shared] == texts[-1][shared]:
        shared += 1
    tails = [text[shared : shared + _TEXT_BYTES] for text in texts]
    table = np.zeros((len(tails), _TEXT_BYTES), dtype=np.int16)
    for row, tail in enumerate(tails):
        table[row, : len(tail)] = np.frombuffer(tail, dtype=np.uint8).astype(np.int16) + 1
    positions = np.zeros(len(tails))
    unit = 1.0
    for column in table.T:
        seen, digits = np.unique(column, return_inverse=True)
        unit /= len(seen)
        positions += digits * unit
    return positions


#: Approximate bytes of a value of a type that is neither text nor bytes.
_NUMBER_BYTES: Final = 8.0


class ValueDistribution(msgspec.Struct, frozen=True, eq=False):
    """A column's entries of one layer. ``rests_on``: the source of the distinct counts."""

    profile: Profile
    cover: Cover
    line: Line
    rests_on: str


def value_distribution_of(
    layer: ProfileLayer,
    zones: Zones,
    dtype: DataType,
    rows: Numbers,
    distinct: Numbers,
    total: float | None,
) -> ValueDistribution:
    """Returns the estimate for entries that have rows.

    ``rows``: how many of each may have a value, excluding nulls if their number is known. ``distinct``: distinct
    values, NaN if not counted; if only some entries are counted, the others are assumed to be similar. ``total``: of
    the whole table, None: not counted.
    """
    line = line_of(zones, dtype)
    has_values = zones.has(MAY_NUMBER)
    max_distinct = np.where(has_values, np.minimum(rows, _capacity(line)), 0.0)
    known = np.isfinite(distinct)
    is_counted = total is not None and bool(known.any())
    if is_counted:
        share = float((distinct[known] / np.maximum(rows[known], 1.0)).mean())
        counted = np.clip(np.where(known, distinct, share * rows), np.minimum(max_distinct, 1.0), max_distinct)
        whole = float(max(total or 0.0, counted.max(initial=0.0)))
        lacking = int((~known).sum())
        rests_on = "counts of distinct values"
        if lacking:
            rests_on += f", of {lacking:,} of {len(rows):,} taken from others"
    else:
        counted = max_distinct
        whole = float(counted.sum())
        if line.is_whole:
            whole = min(whole, float(line.measure.sum()))
        rests_on = "row counts: distinct values were not counted, and cannot exceed the number of rows"
    profile = Profile(
        layer=layer,
        dtype=dtype,
        rows=rows,
        distinct=counted,
        total=max(whole, 1.0),
        is_counted=is_counted,
        value_bytes=_value_bytes(zones, dtype),
        is_bounded=zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN) | ~has_values,
    )
    return ValueDistribution(profile, cover_of(line, counted, profile.total), line, rests_on)


def _capacity(line: Line) -> Any:
    """Returns how many values fit within the bounds of each entry."""
    if not line.is_whole:
        capacity = np.zeros(line.count)
        np.add.at(capacity, line.entry, np.where(line.first == line.last, 1.0, np.inf))
        return capacity
    sums = np.concatenate([[0.0], np.cumsum(line.measure)])
    capacity = np.zeros(line.count)
    np.add.at(capacity, line.entry, sums[line.last + 1] - sums[line.first])
    return capacity


def _value_bytes(zones: Zones, dtype: DataType) -> float:
    if dtype.order != "bytes":
        return _NUMBER_BYTES
    bounds = [keys for keys in (zones.low, zones.high) if isinstance(keys, BytesKeys)]
    lengths = np.concatenate([np.zeros(0), *(np.diff(keys.offsets) for keys in bounds)])
    return float(lengths.mean()) if len(lengths) else _NUMBER_BYTES


# The probability that entries cover a value: one that the table has, and one within its range that it lacks.
#
# Manifests say where the values of an entry begin and end and about how many there are, not where they lie in between.
# That is inferred from all entries together, as the mass of a histogram over the elements of their line:
#
# - each end of a range is a value;
# - the others lie within their range, where other ranges say that values are: an element that many ranges share has
#   more of each than one that few have. Starting from equally spread, ``ROUNDS`` rounds of this are made. (Going on
#   until nothing changes is the likeliest histogram of all, and puts everything where ranges overlap most. Few rounds
#   are closer to the truth: within a hundredth of all entries on average, over the layouts of ``tests/advice``.)
# - values that several entries have in common count once. How many have one is a power of how many ranges overlap
#   there, the same power everywhere, such that the whole table has as many different values as it has.

ROUNDS: Final = 3
_BISECTIONS: Final = 40
#: Remaining fraction of a range of whole numbers that appears to be complete, since counts are estimates.
_MIN_ABSENT: Final = 0.02


class Cover(msgspec.Struct, frozen=True, eq=False):
    """For each entry: the probability that its bounds contain a value of the table (``present``), and a value that is
    not in the table but between its minimum and maximum (``absent``, None: there is no such value). ``holds``: the
    probability that it has a value of the table, never more than ``present``. ``mass``: distinct values in each
    element of the line.
    """

    present: Any
    absent: Any
    holds: Any
    mass: Any


def cover_of(line: Line, distinct: Numbers, total: float) -> Cover:
    """Returns the coverage. ``distinct``: distinct values of each entry; ``total``: of the whole table."""
    depth = np.maximum(line.depth, 1.0)
    pairs = _pairs(line, distinct)
    capacity = line.measure if line.is_whole else np.full(len(pairs), np.inf)
    max_total, min_total = float(np.minimum(pairs, capacity).sum()), float(np.minimum(pairs / depth, capacity).sum())
    mass = _shared(pairs, depth, capacity, float(np.clip(total, min_total, max_total)))
    present = _within(line, mass)
    absent = None
    empty = line.measure.copy()
    if line.is_whole:
        empty = np.where(mass < line.measure, np.maximum(line.measure - mass, _MIN_ABSENT * line.measure), 0.0)
    if empty.sum() > 0 and (not line.is_whole or total < 0.999 * line.measure.sum()):
        absent = _within(line, empty)
    holds = np.minimum(distinct / max(total, 1.0), present)
    return Cover(present, absent, holds, mass)


def _pairs(line: Line, distinct: Numbers) -> Numbers:
    """Returns how many values of entries lie in each element, counting a value of two entries twice."""
    wide = line.last > line.first
    pieces = np.maximum(np.bincount(line.entry, minlength=line.count)[line.entry], 1)
    ends = np.where(wide, 2.0, 1.0)
    # Ends may be looser than the values, so an entry may have fewer values than ends.
    ends = np.minimum(ends, distinct[line.entry] / pieces)
    inner = np.maximum(distinct[line.entry] / pieces - ends, 0.0)
    weight = line.measure
    for _ in range(ROUNDS):
        sums = np.concatenate([[0.0], np.cumsum(weight)])
        capacity = sums[line.last] - sums[np.minimum(line.first + 1, line.last)]
        density = np.divide(inner, capacity, out=np.zeros(len(inner)), where=capacity > 0)
        inner_of = spread(len(weight), line.first[wide] + 1, line.last[wide] - 1, density[wide])
        weight = np.maximum(weight * inner_of, 0.0)
    pairs: Numbers = weight.copy()
    np.add.at(pairs, line.first, np.where(wide, ends / 2, ends))
    np.add.at(pairs, line.last[wide], ends[wide] / 2)
    return pairs


def _shared(pairs: Numbers, depth: Numbers, capacity: Numbers, total: float) -> Numbers:
    """Returns the distinct values in each element, ``total`` altogether."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if np.minimum(pairs / depth**middle, capacity).sum() > total:
            low = middle
        else:
            high = middle
    return np.asarray(np.minimum(pairs / depth**high, capacity))


def _within(line: Line, weight: Numbers) -> Numbers:
    """Returns the fraction of the total weight within the ranges of each entry."""
    sums = np.concatenate([[0.0], np.cumsum(weight)])
    found = np.zeros(line.count)
    if sums[-1] > 0:
        np.add.at(found, line.entry, (sums[line.last + 1] - sums[line.first]) / sums[-1])
    elif len(weight) == 1:
        found[line.entry] = 1.0
    return np.clip(found, 0.0, 1.0)


#: Bytes after the common prefix of two texts that determine their distance.
_WORD: Final = 8


class SampledColumn(msgspec.Struct, frozen=True, eq=False):
    """Some rows of a column: values in its type's order (numbers, or byte strings as objects), where there are any, and
    where there is NaN instead; all other rows are null.

    ``width``: the approximate fraction of all rows with one value, if the rows were sampled from statistics so that
    values do not repeat as in the table; 0: they do.
    """

    values: Any
    valid: Any
    nan: Any
    width: float = 0.0


#: By column; all of one length, row by row.
Sample = Mapping[Leaf, SampledColumn]


def from_vectors(vectors: Sequence[Vector]) -> SampledColumn:
    """Converts rows that were read."""
    parts = []
    for vector in vectors:
        if vector.is_bytes:
            values = np.empty(len(vector), dtype=object)
            values[:] = vector.values.to_pylist()
        else:
            values = vector.values
        parts.append(values)
    valid = np.concatenate([np.zeros(0, dtype=bool), *(vector.valid for vector in vectors)])
    whole = np.concatenate(parts) if parts else np.zeros(0)
    nan = valid & np.isnan(whole) if whole.dtype == np.float64 else np.zeros(len(valid), dtype=bool)
    return SampledColumn(whole, valid & ~nan, nan)


def stacked(columns: Sequence[SampledColumn]) -> SampledColumn:
    """Concatenates the rows of several columns."""
    return SampledColumn(
        np.concatenate([each.values for each in columns]),
        np.concatenate([each.valid for each in columns]),
        np.concatenate([each.nan for each in columns]),
    )


def sample_values(
    value_distribution: ValueDistribution, blocks: Rows, row_counts: Numbers, rng: np.random.Generator
) -> SampledColumn:
    """Samples for each of ``blocks`` (indexes, with repetition) a value that it may have, or null as often as it has
    nulls.

    Values of different columns of a row are independent except for being in one block.
    """
    line, mass = value_distribution.line, value_distribution.cover.mass
    sums = np.concatenate([[0.0], np.cumsum(mass)])
    has_values = np.zeros(line.count, dtype=bool)
    has_values[line.entry] = True
    if not len(line.entry):
        nothing = np.zeros(len(blocks), dtype=bool)
        return SampledColumn(np.zeros(len(blocks)), nothing, nothing)
    chosen = _pieces(line, sums, blocks, rng)
    low, high = sums[line.first[chosen]], sums[line.last[chosen] + 1]
    positions = low + rng.random(len(blocks)) * (high - low)
    element = np.clip(np.searchsorted(sums, positions, side="right") - 1, line.first[chosen], line.last[chosen])
    within = np.divide(positions - sums[element], mass[element], out=np.zeros(len(blocks)), where=mass[element] > 0)
    values = at(line.points, element, np.clip(within, 0.0, 1.0), is_whole=line.is_whole)
    valued = value_distribution.profile.rows[blocks] / np.maximum(row_counts[blocks], 1.0)
    valid = has_values[blocks] & (rng.random(len(blocks)) < valued)
    return SampledColumn(
        values, valid, np.zeros(len(blocks), dtype=bool), 1.0 / max(value_distribution.profile.total, 1.0)
    )


def _pieces(line: Line, sums: Numbers, blocks: Rows, rng: np.random.Generator) -> Rows:
    """Samples one of the ranges of each block, weighted by its content."""
    order = np.argsort(line.entry, kind="stable")
    inside = np.concatenate([[0.0], np.cumsum((sums[line.last + 1] - sums[line.first])[order])])
    starts = np.searchsorted(line.entry[order], np.arange(line.count + 1))
    low, high = inside[starts[blocks]], inside[starts[blocks + 1]]
    index = np.searchsorted(inside, low + rng.random(len(blocks)) * (high - low), side="right") - 1
    last = np.maximum(starts[blocks + 1] - 1, starts[blocks])
    return np.asarray(order[np.clip(np.clip(index, starts[blocks], last), 0, len(order) - 1)])


def at(points: Any, element: Rows, within: Numbers, *, is_whole: bool) -> Any:
    """Returns values in elements of a line, at a fraction of the way through each."""
    first = element // 2
    if points.dtype == object:
        found = np.empty(len(element), dtype=object)
        found[:] = [
            _between(points[index], points[index + 1], part) if odd and index + 1 < len(points) else points[index]
            for index, odd, part in zip(first.tolist(), (element % 2).tolist(), within.tolist(), strict=True)
        ]
        return found
    following = np.minimum(first + element % 2, len(points) - 1)
    if points.dtype.kind in "iu":
        gap = (points[following].astype(np.uint64) - points[first].astype(np.uint64)).astype(np.float64)
        step = np.minimum(within * gap, np.maximum(gap - 1, 0)).astype(np.uint64)
        return (points[first].astype(np.uint64) + step).astype(points.dtype)
    values = points[first] + within * (points[following] - points[first])
    return np.floor(values) if is_whole else values


def _between(low: bytes, high: bytes, part: float) -> bytes:
    """Returns a byte string between two, at a fraction of the way."""
    shared = next(
        (at for at, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1]), min(len(low), len(high))
    )
    first, last = (int.from_bytes(text[shared : shared + _WORD].ljust(_WORD, b"\0"), "big") for text in (low, high))
    return low[:shared] + (first + int(part * (last - first))).to_bytes(_WORD, "big")
