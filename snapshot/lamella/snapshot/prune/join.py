"""Join keys: which entries can hold a row that has a partner on the other side of an inner or left semi join.

The other side's keys come as a set, as ranges that hold them, as a bloom filter, or as several of these. A null key has
no partner. Keys never prove that a row has one, so an entry is never ALL because of them; what is not known keeps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np

from lamella.snapshot.bloom import SplitBlockBloom, key_bytes, key_hashes, xxh64_numbers
from lamella.snapshot.columnar import NumberKeys, Zones
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NUMBER
from lamella.snapshot.errors import InvalidRequest, LimitExceeded
from lamella.snapshot.expression import BoundPredicate, bind, read_tree
from lamella.snapshot.expression.bound import Anything, Comparison, Fixed, NonNull
from lamella.snapshot.expression.nodes import Compare, In, Ref
from lamella.snapshot.expression.nodes import Literal as Constant
from lamella.snapshot.prune.evaluate import evaluate
from lamella.snapshot.prune.top_k import value_at
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.wire import JoinKeys, NotUsed

#: Ranges of one join.
MAX_RANGES: Final = 100_000
#: A block whose keys span at most so many integers is looked up in a bloom filter key by key.
MAX_ENUMERATED: Final = 256


class Ranges(msgspec.Struct, frozen=True):
    """Sorted ranges that do not touch, ends included; ``nan``: one of them holds NaN."""

    lows: tuple[Value, ...]
    highs: tuple[Value, ...]
    nan: bool


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """What one column's keys may be. Made by :func:`read_join`."""

    leaf: Leaf
    values: BoundPredicate | None = None
    ranges: Ranges | None = None
    bloom: SplitBlockBloom | None = None
    not_used: tuple[NotUsed, ...] = ()

    def keeps(self, zones: Zones, candidates: Mask) -> Mask:
        """Which of the candidates may hold a key of the other side; the rest are False."""
        number = zones.has(MAY_NUMBER)
        nan = zones.has(MAY_NAN) if self.leaf.dtype.is_float else np.zeros_like(number)
        keep = candidates & (number | nan)
        if self.values is not None:
            keep = keep & evaluate(self.values, lambda _: zones, len(zones)).true
        if self.ranges is not None:
            keep = keep & ((number & _meets(self.ranges, zones)) | (nan & self.ranges.nan))
        if self.bloom is not None:
            keep = keep & _may_contain(self.bloom, self.leaf, zones, keep)
        return keep


def read_join(keys: JoinKeys, schema: Schema, *, time_zone: str, case_sensitive: bool) -> Join:
    """The test of a request's join keys; a form that cannot be used is in ``not_used``, and keeps.

    Raises:
        UnknownColumn: no such column; InvalidRequest: nested, no keys at all, or no filter; InvalidFilter: a value that
            is none; FilterTypeMismatch: one of another type; LimitExceeded: too many.
    """
    leaf = schema.find(keys.column, case_sensitive=case_sensitive)
    if leaf is None or leaf.repeated:
        raise InvalidRequest(f"column {keys.column!r} is nested, so its rows have no single key", column=keys.column)
    if keys.values is None and keys.ranges is None and keys.bloom is None:
        raise InvalidRequest("join keys must be given as values, ranges or bloom", column=keys.column)
    reader = _Reader(keys.column, leaf, schema, time_zone, case_sensitive)
    values = None if keys.values is None else reader.values(keys.values)
    ranges = None if keys.ranges is None else reader.ranges(keys.ranges)
    bloom = None if keys.bloom is None else reader.bloom(keys.bloom)
    return Join(leaf=leaf, values=values, ranges=ranges, bloom=bloom, not_used=tuple(reader.not_used))


class _Reader:
    def __init__(self, column: str, leaf: Leaf, schema: Schema, time_zone: str, case_sensitive: bool) -> None:
        self._column = column
        self._leaf = leaf
        self._schema = schema
        self._time_zone = time_zone
        self._case_sensitive = case_sensitive
        self.not_used: list[NotUsed] = []

    def values(self, given: Sequence[Any]) -> BoundPredicate | None:
        keys = self._literals(given)
        if not keys:
            return Fixed(False)
        bound = self._bind(In(Ref(self._column), keys))
        if isinstance(bound, Anything):
            self._unusable("values", bound.reason)
            return None
        return bound

    def ranges(self, given: Sequence[tuple[Any, Any]]) -> Ranges | None:
        if len(given) > MAX_RANGES:
            raise LimitExceeded(f"a join may have {MAX_RANGES} ranges", limit="join_ranges", maximum=MAX_RANGES)
        ends = self._literals([end for pair in given for end in pair])
        if len(ends) != 2 * len(given):
            raise InvalidRequest("a range of join keys must have two ends that are not null", column=self._column)
        found: list[tuple[Any, Any]] = []
        nan = False
        for low, high in zip(ends[::2], ends[1::2], strict=True):
            first, last = self._end("ge", low), self._end("le", high)
            for end in (first, last):
                if isinstance(end, str):
                    self._unusable("ranges", end)
                    return None
            if first is None or last is None:
                continue
            nan = nan or _is_nan(last)
            if not _is_nan(first):
                found.append((first, math.inf if _is_nan(last) else last))
        return _merged(found, nan)

    def bloom(self, text: str) -> SplitBlockBloom | None:
        bloom = SplitBlockBloom.from_base64(text)
        if key_bytes(self._leaf.dtype) is None:
            self._unusable("bloom", f"bloom filters are not defined for {self._leaf.dtype}")
            return None
        return bloom

    def _literals(self, given: Sequence[Any]) -> tuple[Constant, ...]:
        """The values that are not null."""
        some = [value for value in given if value is not None]
        read = read_tree({"type": "in", "term": self._column, "values": some})
        literals = read.literals if isinstance(read, In) else ()
        return tuple(literal for literal in literals if isinstance(literal, Constant) and literal.kind != "null")

    def _end(self, op: Literal["ge", "le"], literal: Constant) -> Value | str | None:
        """The end as a value of the column; None: nothing lies on that side of it; text: why it cannot be used."""
        bound = self._bind(Compare(op, Ref(self._column), literal))
        dtype = self._leaf.dtype
        match bound:
            case Comparison():
                value = bound.value
                if bound.op == op or not isinstance(value, int):
                    return value
                return value + 1 if bound.op == "gt" else value - 1 if bound.op == "lt" else value
            case NonNull() if dtype.order in ("int", "uint", "decimal"):
                return dtype.int_range[0 if op == "ge" else 1] if bound.value else None
            case Anything():
                return bound.reason
            case _:
                return "an end of a range cannot be converted to the column's type"

    def _bind(self, predicate: Compare | In) -> BoundPredicate:
        return bind(predicate, self._schema, time_zone=self._time_zone, case_sensitive=self._case_sensitive)

    def _unusable(self, form: str, reason: str) -> None:
        self.not_used.append(NotUsed(predicate=f"join on {self._column} by {form}", reason=reason))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _merged(found: list[tuple[Any, Any]], nan: bool) -> Ranges:
    lows: list[Value] = []
    highs: list[Any] = []
    for low, high in sorted(pair for pair in found if pair[0] <= pair[1]):
        if highs and low <= highs[-1]:
            highs[-1] = max(highs[-1], high)
        else:
            lows.append(low)
            highs.append(high)
    return Ranges(tuple(lows), tuple(highs), nan)


def _meets(ranges: Ranges, zones: Zones) -> Mask:
    if not ranges.lows:
        return np.zeros(len(zones), dtype=bool)
    if zones.low is None or zones.high is None:
        return np.ones(len(zones), dtype=bool)
    ended = np.where(zones.lacks(LOW_KNOWN), 0, zones.low.rank(ranges.highs, right=False))
    begun = np.where(zones.lacks(HIGH_KNOWN), len(ranges.lows), zones.high.rank(ranges.lows, right=True))
    return np.asarray(ended < begun)


def _may_contain(bloom: SplitBlockBloom, leaf: Leaf, zones: Zones, candidates: Mask) -> Mask:
    """False only where every value that lies within an entry's bounds is known to be no key."""
    keep = np.ones(len(zones), dtype=bool)
    bounded = candidates & zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN)
    low, high, width = zones.low, zones.high, key_bytes(leaf.dtype)
    if low is None or high is None or width is None:
        return keep
    if isinstance(low, NumberKeys) and isinstance(high, NumberKeys):
        return _numbers_may_be_in(bloom, low, high, width, bounded)
    for row in np.flatnonzero(bounded).tolist():
        value = value_at(low, row)
        if not isinstance(value, float) and value == value_at(high, row):
            keep[row] = bloom.contains(key_hashes(leaf.dtype, [value]))[0]
    return keep


def _numbers_may_be_in(bloom: SplitBlockBloom, low: NumberKeys, high: NumberKeys, width: int, bounded: Mask) -> Mask:
    keep = np.ones(len(bounded), dtype=bool)
    with np.errstate(over="ignore"):  # the difference of two 64-bit numbers fits, unsigned
        span = high.array.astype(np.uint64) - low.array.astype(np.uint64)
    rows = np.flatnonzero(bounded & (low.array <= high.array) & (span < MAX_ENUMERATED))
    if len(rows):
        counts = span[rows].astype(np.int64) + 1
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        within = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(starts, counts)
        with np.errstate(over="ignore"):
            keys = np.repeat(low.array[rows].astype(np.uint64), counts) + within.astype(np.uint64)
        found = bloom.contains(xxh64_numbers(keys.astype(f"u{width}")))
        keep[rows] = np.logical_or.reduceat(found, starts)
    return keep
