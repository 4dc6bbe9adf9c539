"""Top-k: which entries can hold any of the first k rows of an order, and in which sequence to read them.

Keys are placed on one scale, Spark's order: null first or last as asked, NaN above every number, -0.0 equal to 0.0,
text by its bytes. An entry (segment or block) of which every row matches guarantees that so many rows lie at or before
its last position; k guaranteed rows make a cutoff, and an entry whose first position lies behind it cannot hold one of
the first k. What is not known is placed where it excludes nothing.

With one order column an entry that only ties with the boundary is dropped too, unless it is one of those that guarantee
it: rows with equal keys are equally good. With more columns the later ones decide between them, so ties are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import BytesKeys, Keys, NumberKeys, WideKeys, Zones
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.zones import HIGH_EXACT, HIGH_KNOWN, LOW_EXACT, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER
from lamella.snapshot.schema import Leaf
from lamella.snapshot.stats import to_bound
from lamella.snapshot.wire import OrderBound

Integers = npt.NDArray[np.int64]

_NULL_FIRST: Final = 0
_NULL_LAST: Final = 3
_NOTHING: Final[Integers] = np.zeros(0, dtype=np.int64)


class SortKey(msgspec.Struct, frozen=True, kw_only=True):
    """The first column of an order. ``alone``: there is no second one, so ties need no look at other columns."""

    leaf: Leaf
    descending: bool = False
    nulls_first: bool = True
    alone: bool = True


class Entries(msgspec.Struct, frozen=True, kw_only=True):
    """n segments or blocks: the key column's zone maps, rows, rows that are not deleted (-1: not known), nulls of all
    rows (-1: not known), and which match as a whole.
    """

    zones: Zones
    row_counts: Integers
    live_row_counts: Integers
    null_counts: Integers
    whole: Mask


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """``order``: the entries that are left, best first. ``guaranteed``: k rows are known to lie at a boundary.

    ``first`` says of each entry (left or not) which kind of key comes first in it.
    """

    order: Integers
    guaranteed: bool
    first: npt.NDArray[np.uint8]


#: Kinds of a first key, as :class:`~lamella.snapshot.wire.OrderBound` names them.
VALUE: Final = 0
NULL: Final = 1
NAN: Final = 2
UNKNOWN: Final = 3
_KINDS: Final = ("value", "null", "nan", "unknown")


def rank(key: SortKey, parts: Sequence[Entries], k: int | None, *, strict: bool = False) -> Ranking:
    """Place all entries (the parts one after another); ``k`` None: no limit, so that none is dropped.

    ``strict``: keep entries that tie with the boundary.
    """
    scale = _Scale(key, parts)
    count = len(scale.best)
    if k is None:
        keep, guaranteed = np.ones(count, dtype=bool), False
    elif k == 0:
        keep, guaranteed = np.zeros(count, dtype=bool), True
    else:
        keep, guaranteed = scale.within(k, ties=strict or not key.alone)
    rows = np.flatnonzero(keep)
    return Ranking(order=rows[np.argsort(scale.best[rows], kind="stable")], guaranteed=guaranteed, first=scale.first)


def order_bound(key: SortKey, zones: Zones, row: int, first: int) -> OrderBound:
    """What the first key of an entry may be, for readers that stop early."""
    if first != VALUE:
        return OrderBound(first=_KINDS[first])
    keys = zones.high if key.descending else zones.low
    return OrderBound(first="value", bound=to_bound(key.leaf.dtype, value_at(keys, row)))


def value_at(keys: Keys | None, row: int) -> int | float | bytes:
    """One bound as the value that it is."""
    if isinstance(keys, NumberKeys):
        number: int | float = keys.array[row].item()
        return number
    if isinstance(keys, WideKeys):
        return (int(keys.high[row]) << 64) + int(keys.low[row])
    if isinstance(keys, BytesKeys):
        return keys.at(row)
    raise TypeError("a column without order has no bounds")


class _Scale:
    """Positions of entries: smaller comes earlier in the requested order."""

    def __init__(self, key: SortKey, parts: Sequence[Entries]) -> None:
        flags = np.concatenate([np.zeros(0, dtype=np.uint8), *(part.zones.flags for part in parts)])
        self._rows = np.concatenate([_NOTHING, *(part.row_counts for part in parts)])
        self._live = np.concatenate([_NOTHING, *(part.live_row_counts for part in parts)])
        self._nulls = np.concatenate([_NOTHING, *(part.null_counts for part in parts)])
        self._whole = np.concatenate([np.zeros(0, dtype=bool), *(part.whole for part in parts)])
        low, high, span = _number_ranks([part.zones for part in parts])
        near, far, near_bit, far_bit, exact = (low, high, LOW_KNOWN, HIGH_KNOWN, LOW_EXACT)
        if key.descending:
            near, far = span - 1 - high, span - 1 - low
            near_bit, far_bit, exact = HIGH_KNOWN, LOW_KNOWN, HIGH_EXACT
        near = np.where(_has(flags, near_bit), near, -1)
        far = np.where(_has(flags, far_bit), far, span)
        number, nan = (2, 1) if key.descending else (1, 2)
        null = _NULL_FIRST if key.nulls_first else _NULL_LAST
        width = span + 2

        def position(group: int, within: npt.NDArray[np.int64] | int) -> Integers:
            return np.asarray(group * width + within + 1, dtype=np.int64) + np.zeros(len(flags), dtype=np.int64)

        end = 4 * width
        may_null, may_number = _has(flags, MAY_NULL), _has(flags, MAY_NUMBER)
        may_nan = _has(flags, MAY_NAN) & key.leaf.dtype.is_float
        self._null = position(null, 0)
        best_number = position(number, near)
        firsts = np.stack(
            [
                np.where(may_number, best_number, end),
                np.where(may_null, self._null, end),
                np.where(may_nan, position(nan, 0), end),
            ]
        )
        self.best: Integers = firsts.min(axis=0)
        self.first: npt.NDArray[np.uint8] = firsts.argmin(axis=0).astype(np.uint8)
        nothing_known = (self.best == end) | ((self.first == VALUE) & ~_has(flags, near_bit))
        self.first[nothing_known] = UNKNOWN
        self.best[self.best == end] = 0  # contradicts itself: keep it, and first
        lasts = np.maximum(np.where(may_number, position(number, far), -1), np.where(may_nan, position(nan, 0), -1))
        self._last_present = np.where(lasts >= 0, lasts, end)
        lasts = np.maximum(lasts, np.where(may_null, self._null, -1))
        self._last = np.where(lasts >= 0, lasts, end)
        self._sure_number = best_number
        self._one_is_best = may_number & _has(flags, near_bit) & _has(flags, exact)

    def within(self, k: int, *, ties: bool) -> tuple[Mask, bool]:
        """Which entries may hold one of the first k rows, and whether k rows are guaranteed at all."""
        owners, positions, counts = self._guarantees()
        by_position = np.argsort(positions, kind="stable")
        reached = np.flatnonzero(np.cumsum(counts[by_position]) >= k)
        if not len(reached):
            return np.ones(len(self.best), dtype=bool), False
        cutoff = positions[by_position[reached[0]]]
        if ties:
            return self.best <= cutoff, True
        keep = self.best < cutoff
        keep[owners[by_position[: reached[0] + 1]]] = True
        return keep, True

    def _guarantees(self) -> tuple[Integers, Integers, Integers]:
        """(entry, position, rows): so many matching rows of the entry lie at that position or before it.

        Any rows may be deleted: of 100 rows with 10 nulls, 85 of which are left, 75 have a value and none is surely
        null.
        """
        whole = np.flatnonzero(self._whole & (self._live > 0))
        rows, live, nulls = self._rows[whole], self._live[whole], self._nulls[whole]
        counted = (nulls >= 0) & (nulls <= rows)
        present = np.where(counted, np.maximum(live - nulls, 0), live)
        nulls = np.maximum(nulls - (rows - live), 0)
        best = np.where(self._one_is_best[whole] & (present > 0), 1, 0)
        rest_position = np.where(counted, self._last_present[whole], self._last[whole])
        owners = np.concatenate([whole, whole, whole])
        positions = np.concatenate([self._sure_number[whole], self._null[whole], rest_position])
        counts = np.concatenate([best, np.where(counted, nulls, 0), present - best])
        some = counts > 0
        return owners[some], positions[some], counts[some]


def _has(flags: npt.NDArray[np.uint8], bit: int) -> Mask:
    return np.asarray((flags & np.uint8(bit)) != 0)


def _number_ranks(parts: Sequence[Zones]) -> tuple[Integers, Integers, int]:
    """Dense ranks of all low and high bounds on one scale, and how many there are; what is not known gets any rank."""
    bounded = [zones for zones in parts if zones.low is not None and zones.high is not None]
    ranks, span = dense_ranks([keys for zones in bounded for keys in (zones.low, zones.high) if keys is not None])
    lows: list[Integers] = []
    highs: list[Integers] = []
    for zones in parts:
        if zones.low is not None and zones.high is not None:
            lows.append(ranks.pop(0))
            highs.append(ranks.pop(0))
        else:
            lows.append(np.zeros(len(zones), dtype=np.int64))
            highs.append(np.zeros(len(zones), dtype=np.int64))
    return np.concatenate([_NOTHING, *lows]), np.concatenate([_NOTHING, *highs]), span


def dense_ranks(arrays: Sequence[Keys]) -> tuple[list[Integers], int]:
    """Arrays of bounds of one type as ranks on one scale: equal bounds share one. Also how many ranks there are."""
    if not arrays:
        return [], 0
    if all(isinstance(keys, NumberKeys) for keys in arrays):
        values = np.concatenate([keys.array for keys in arrays if isinstance(keys, NumberKeys)])
        distinct, inverse = np.unique(values, return_inverse=True)
        span = len(distinct)
    elif all(isinstance(keys, WideKeys) for keys in arrays):
        high = np.concatenate([keys.high for keys in arrays if isinstance(keys, WideKeys)])
        low = np.concatenate([keys.low for keys in arrays if isinstance(keys, WideKeys)])
        inverse, span = _paired_ranks(high, low)
    else:
        texts = [keys for keys in arrays if isinstance(keys, BytesKeys)]
        if len(texts) != len(arrays):
            raise TypeError("bounds of one column are of one kind")
        inverse, span = _text_ranks(texts)
    ends = np.cumsum([len(_first_array(keys)) for keys in arrays])
    return np.split(inverse.astype(np.int64), ends[:-1]), span


def _paired_ranks(major: npt.NDArray[np.generic], minor: npt.NDArray[np.generic]) -> tuple[Integers, int]:
    order = np.lexsort((minor, major))
    new = np.ones(len(order), dtype=np.int64)
    new[1:] = (major[order][1:] != major[order][:-1]) | (minor[order][1:] != minor[order][:-1])
    ranks = np.zeros(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(new) - 1
    return ranks, int(new.sum())


def _text_ranks(texts: Sequence[BytesKeys]) -> tuple[Integers, int]:
    prefixes = np.concatenate([keys.prefix for keys in texts])
    _, inverse, counts = np.unique(prefixes, return_inverse=True, return_counts=True)
    tied = np.flatnonzero(counts[inverse] > 1)  # only these need a look at the whole text
    sub_ranks = np.zeros(len(prefixes), dtype=np.int64)
    if len(tied):
        ends = np.cumsum([len(keys.prefix) for keys in texts])
        owners = np.searchsorted(ends, tied, side="right")
        starts = np.concatenate([[0], ends[:-1]])
        whole = [texts[owner].at(at - starts[owner]) for owner, at in zip(owners.tolist(), tied.tolist(), strict=True)]
        rank_of = {value: rank for rank, value in enumerate(sorted(set(whole)))}
        sub_ranks[tied] = [rank_of[value] for value in whole]
    return _paired_ranks(inverse, sub_ranks)


def _first_array(keys: Keys) -> npt.NDArray[np.generic]:
    if isinstance(keys, NumberKeys):
        return keys.array
    if isinstance(keys, WideKeys):
        return keys.high
    if isinstance(keys, BytesKeys):
        return keys.prefix
    raise TypeError(f"unknown keys {type(keys).__name__}")
