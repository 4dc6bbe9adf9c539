"""Binary search in sorted columns: where a filter can be true, and where it surely is.

Nothing is tested block by block: where the filter may be true, and where it surely is, are windows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.columnar.chunk import CachedColumns
from lamella.snapshot.columnar.snapshot_blocks import Piece
from lamella.snapshot.columnar.zones import Edges, ends_of
from lamella.snapshot.expression.bound import (
    BoundAnd,
    BoundIsTrue,
    BoundOperator,
    BoundOr,
    BoundPredicate,
    Comparison,
    Membership,
    columns_of,
)
from lamella.snapshot.prune.evaluate import Evaluator, Lookup
from lamella.snapshot.prune.outcome import ALL, SOME, codes_of
from lamella.snapshot.prune.result import Codes, SelectionBuilder
from lamella.snapshot.schema import Leaf

# Where in a layer a filter can be true, and where it surely is, by binary search: what makes sorted columns cheap.
#
# Entries whose greatest value so far lies below a bound, and those from which on the least value lies above it, cannot
# match. Both limits ascend with the entries in whatever order these are (``snapshot.columnar.zones``), so they are
# searched, not compared; in a sorted layer they leave a handful of entries, in an unsorted one all of them.
#
# Where a column's own bounds ascend, the same search finds which entries match as a whole, and nothing is left to
# test.

#: Entries from ``start`` to before ``stop``.
Window = tuple[int, int]
#: The edges of a column.
EdgesOf = Callable[[Leaf], Edges | None]

#: Layers of fewer entries are compared as a whole in about the time of a search.
WORTH_ENTRIES: Final = 8
#: So many windows are looked at apart; more are joined where the smallest gaps are.
_MAX_WINDOWS: Final = 16
#: Lists of more values are not searched for.
_MAX_VALUES: Final = 64
#: So many are searched for one by one, which is then faster.
_FEW_VALUES: Final = 6
#: Operators with a lower limit, and those with an upper one.
_FROM: Final = ("ge", "gt", "eq")
_UPTO: Final = ("le", "lt", "eq")


class Reach(msgspec.Struct, frozen=True):
    """``some``: windows, ascending, apart from each other, none of them empty; outside, the filter is true for no row.

    ``every``: windows within these, where it is true for every row; in the rest of ``some`` each entry may have a row
    for which it is and one for which it is not, as far as bounds tell. None: that is to be tested.
    """

    some: Sequence[Window]
    every: Sequence[Window] | None


def reach(node: BoundPredicate, edges: EdgesOf, count: int) -> Reach:
    """How far a filter reaches in a layer of ``count`` entries, each of which has rows."""
    if isinstance(node, Comparison):
        known = edges(node.term) if isinstance(node.term, Leaf) else None
        if known is None or node.value != node.value:  # NaN
            return Reach(((0, count),), None)
        return _compared(known, node.op, node.value, count)
    if isinstance(node, BoundAnd) and node.children:
        return all_of([reach(child, edges, count) for child in node.children])
    if isinstance(node, BoundOr):
        return _any_of([reach(child, edges, count) for child in node.children])
    if isinstance(node, BoundIsTrue):
        return reach(node.child, edges, count)
    if isinstance(node, Membership) and isinstance(node.term, Leaf) and len(node.values) <= _MAX_VALUES:
        known = edges(node.term)
        if known is not None and (known.exact or not node.has_nan):
            return _listed(known, node.values)
    return Reach(((0, count),), None)


def _compared(edges: Edges, op: BoundOperator, value: Any, count: int) -> Reach:
    if not edges.exact:
        start, stop = _within(edges, op, np.array(value, dtype=edges.left.dtype), count)
        return Reach(((start, stop),) if start < stop else (), None)
    start, stop, first, last = _limits(edges, op, value, count)
    if start >= stop:
        return _NOTHING
    first, last = max(start, first), min(stop, last)
    every: Sequence[Window] | None = ()
    if first < last and not edges.nulls:  # where it is true for every value, it is for every row that is not null
        every = ((first, last),) if edges.nulls is False else None
    return Reach(((start, stop),), every)


def _limits(edges: Edges, op: BoundOperator, value: Any, count: int) -> tuple[int, int, int, int]:
    """Where a comparison may be true (start and stop) and where it is true for every value (first and last)."""
    # As sequences of Python's numbers they are searched twice as fast as by NumPy.
    reached, left = edges.reached.data, edges.left.data
    number = float(value) if left.format == "d" else value
    if op == "ge":
        return bisect_left(reached, number), count, bisect_left(left, number), count
    if op == "le":
        return 0, bisect_right(left, number), 0, bisect_right(reached, number)
    if op == "lt":
        return 0, bisect_left(left, number), 0, bisect_left(reached, number)
    if op == "gt":
        return bisect_right(reached, number), count, bisect_right(left, number), count
    start, first = bisect_left(reached, number), bisect_left(left, number)
    return start, bisect_right(left, number), first, bisect_right(reached, number)


def _within(edges: Edges, op: str, number: Any, count: int) -> Window:
    start, stop = 0, count
    lowest, highest = ends_of(edges.left.dtype)
    # The ends of a type also stand for what is not known and, the greatest, for NaN, which is greater than infinity.
    if op in _FROM:
        beyond = op == "gt" and number != highest
        start = int(edges.reached.searchsorted(number, "right" if beyond else "left"))
    if op in _UPTO:
        below = op == "lt" and number != lowest
        stop = int(edges.left.searchsorted(number, "left" if below else "right"))
    return start, stop


def _listed(edges: Edges, values: Sequence[Any]) -> Reach:
    """As of ``eq`` to one of the values, all of them at once."""
    reached, left = edges.reached, edges.left
    if len(left):  # most values of a list lie outside of a part of a sorted layer
        values = values[bisect_left(values, left.item(0)) : bisect_right(values, reached.item(-1))]
    if not values:
        return Reach((), () if edges.exact else None)
    if len(values) <= _FEW_VALUES:
        return _any_of([_compared(edges, "eq", value, len(left)) for value in values])
    numbers = np.array(values, dtype=left.dtype)
    starts, stops = reached.searchsorted(numbers, "left"), left.searchsorted(numbers, "right")
    hit = starts < stops
    some = _joined(list(zip(starts[hit].tolist(), stops[hit].tolist(), strict=True)))
    every: Sequence[Window] | None = None
    if edges.exact and edges.nulls is not None:
        numbers = numbers[:0] if edges.nulls else numbers[hit]
        firsts, lasts = left.searchsorted(numbers, "left").tolist(), reached.searchsorted(numbers, "right").tolist()
        every = _common(some, [(start, stop) for start, stop in zip(firsts, lasts, strict=True) if start < stop])
    return _limited(some, every)


_NOTHING: Final = Reach((), ())


def all_of(parts: Sequence[Reach]) -> Reach:
    """Where all of them hold, which are one at least."""
    some, every = parts[0].some, parts[0].every
    for part in parts[1:]:
        some = _common(some, part.some)
        every = None if every is None or part.every is None else _common(every, part.every)
    return Reach(some, every)


def _any_of(parts: Sequence[Reach]) -> Reach:
    """Where one of them holds."""
    if len(parts) == 1:
        return parts[0]
    some = _joined([window for part in parts for window in part.some])
    every: Sequence[Window] | None = None
    if all(part.every is not None for part in parts):
        every = _joined([window for part in parts for window in part.every or ()])
    return _limited(some, every)


def _limited(some: list[Window], every: Sequence[Window] | None) -> Reach:
    """No more windows than are looked at apart."""
    return Reach(some, every) if len(some) <= _MAX_WINDOWS else Reach(_fewer(some), None)


def _common(one: Sequence[Window], other: Sequence[Window]) -> Sequence[Window]:
    if len(one) == len(other) == 1:
        (first, last), (start, stop) = one[0], other[0]
        start, stop = max(first, start), min(last, stop)
        return ((start, stop),) if start < stop else ()
    if not one or not other:
        return ()
    found = [(max(a, c), min(b, d)) for a, b in one for c, d in other]
    return sorted((start, stop) for start, stop in found if start < stop)


def _joined(parts: list[Window]) -> list[Window]:
    found: list[Window] = []
    for start, stop in sorted(parts):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found


def _fewer(found: list[Window]) -> list[Window]:
    """Windows joined where the gaps are smallest."""
    while len(found) > _MAX_WINDOWS:
        gap = min(range(len(found) - 1), key=lambda at: found[at + 1][0] - found[at][1])
        found[gap : gap + 2] = [(found[gap][0], found[gap + 1][1])]
    return found


#: Of more segments the blocks are tested: that is as fast.
MAX_SEGMENTS: Final = 16


class Searched(msgspec.Struct, frozen=True):
    """What a search finds of a piece: ``division`` decides the blocks of its source, of which ``columns`` are the
    columns.

    ``bounds``: where the blocks of each segment from ``first`` on begin there, and the end; ``decided``: the
    segments' own verdicts.
    """

    division: Division
    columns: CachedColumns
    first: int
    bounds: Sequence[int]
    decided: Sequence[int]

    def add_to(self, left: SelectionBuilder) -> None:
        """Add the blocks that are kept."""
        if self.division.rest is None:
            self._add_windows(left)
            return
        begin, end = self.bounds[0], self.bounds[-1]
        codes = self.division.codes(begin, end, self.columns)
        for code, start, stop in zip(self.decided, self.bounds, self.bounds[1:], strict=False):
            if code == ALL:
                codes[start - begin : stop - begin] = ALL
        segments = np.arange(self.first, self.first + len(self.decided))
        sizes = self.columns.numbers["file_size"][begin:end]
        left.add_tested(segments, np.array(self.bounds) - begin, codes, sizes)

    def _add_windows(self, left: SelectionBuilder) -> None:
        """As there is nothing to test, all blocks in the windows are kept."""
        division, bounds = self.division, self.bounds
        start = bounds[0]
        for segment, code in enumerate(self.decided, self.first):
            stop = bounds[segment - self.first + 1]
            runs = [(start, stop, ALL)] if code == ALL else division.runs(start, stop)
            if runs:
                left.add_runs(segment, runs, start)
            start = stop
        sizes = self.columns.numbers["file_size"]
        for begin, end in division.windows:  # a segment that matches as a whole lies within them
            if begin < start and end > bounds[0]:
                left.add_sizes(sizes[max(begin, bounds[0]) : min(end, start)])


class Search:
    """Finds what a filter keeps; ``decided``: the verdicts of the snapshot's segments."""

    def __init__(self, filter: Evaluator, decided: Codes) -> None:
        self._filter = filter
        self._decided = decided
        self._columns: CachedColumns | None = None
        self._division: Division | None = None

    def of(self, piece: Piece) -> Searched | None:
        """The blocks of a piece that are kept; None: they are to be tested."""
        columns = piece.columns
        if not columns.have_rows or piece.stop - piece.first > MAX_SEGMENTS:
            return None
        if columns is not self._columns:  # the pieces of a chunk come one after another
            self._columns = columns
            self._division = division(self._filter, columns.edges, len(columns.numbers["row_count"]))
        found = self._division
        if found is None or found.rest is self._filter:
            return None
        return Searched(found, columns, piece.first, piece.bounds, self._decided[piece.first : piece.stop].tolist())


class Division(msgspec.Struct, frozen=True):
    """How a filter is decided in a layer whose entries all have rows: outside the windows it is true for no row.

    Inside, the verdicts are those of ``rest``, where ALL becomes SOME outside of ``every``; with no ``rest`` they are
    ALL within ``every`` and SOME outside.
    """

    windows: Sequence[Window]
    every: Sequence[Window]
    rest: Evaluator | None

    def codes(self, start: int, stop: int, lookup: Lookup) -> Codes:
        """The verdicts of the entries from ``start`` to before ``stop``; ``lookup`` has those of the whole layer."""
        codes = np.zeros(stop - start, dtype=np.uint8)  # NONE
        for begin, end in self.windows:
            low, high = max(begin, start), min(end, stop)
            if low < high:
                codes[low - start : high - start] = SOME if self.rest is None else self._tested(low, high, lookup)
        if self.rest is None:
            for first, last in self.every:
                if first < stop and last > start:
                    codes[max(first - start, 0) : last - start] = ALL
        return codes

    def runs(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """The kept ones of the entries from ``start`` to before ``stop``, with no ``rest``, as runs of one verdict.

        Each has its first entry, the one behind its last, and the verdict.
        """
        found: list[tuple[int, int, int]] = []
        for begin, end in self.windows:
            low, high = max(begin, start), min(end, stop)
            for first, last in self.every:
                if first < high and low < min(last, high):
                    if low < first:
                        found.append((low, first, SOME))
                        low = first
                    found.append((low, min(last, high), ALL))
                    low = min(last, high)
            if low < high:
                found.append((low, high, SOME))
        return found

    def _tested(self, start: int, stop: int, lookup: Lookup) -> Codes:
        """The verdicts of entries within one of the windows, by the ``rest``."""
        assert self.rest is not None  # noqa: S101  # who asks has looked
        count = stop - start
        zones = {leaf: lookup(leaf).cut(start, stop) for leaf in self.rest.columns}
        codes = codes_of(self.rest.outcome(zones.__getitem__, count), True, count)
        at = start
        for first, last in [*self.every, (stop, stop)]:
            if at < first:
                part = codes[at - start : first - start]
                part[part == ALL] = SOME
            at = max(at, last)
        return codes


_NONE: Final = Division((), (), None)


def division(filter: Evaluator, edges: EdgesOf, count: int) -> Division:
    """The division of a filter in a layer of ``count`` entries; its ``rest`` is all of it when no part is decided."""
    node = filter.node
    children = node.children if isinstance(node, BoundAnd) and node.children else (node,)
    ranges = _of_ranges(children, edges, count)
    if ranges is not None:
        return ranges
    parts = [reach(child, edges, count) for child in children]
    found = all_of(parts)
    if found.every is not None or not found.some:
        return Division(found.some, found.every or (), None)
    exact = [(child, part) for child, part in zip(children, parts, strict=True) if part.every is not None]
    if not exact or _torn(filter, [child for child, _ in exact]):
        return Division(found.some, found.some, filter)
    rest = tuple([child for child, part in zip(children, parts, strict=True) if part.every is None])
    return Division(found.some, all_of([part for _, part in exact]).every or (), filter.only(rest))


def _of_ranges(children: Sequence[BoundPredicate], edges: EdgesOf, count: int) -> Division | None:
    """The division by comparisons of sorted columns without nulls alone, as most are; None for other filters."""
    start = first = 0
    stop = last = count
    for child in children:
        if type(child) is not Comparison or type(child.term) is not Leaf or child.value != child.value:  # NaN
            return None
        known = edges(child.term)
        if known is None or not known.exact or known.nulls is not False:
            return None
        limits = _limits(known, child.op, child.value, count)
        start, stop = max(start, limits[0]), min(stop, limits[1])
        first, last = max(first, limits[2]), min(last, limits[3])
    if start >= stop:
        return _NONE
    first, last = max(start, first), min(stop, last)
    return Division(((start, stop),), ((first, last),) if first < last else (), None)


def _torn(filter: Evaluator, parts: Sequence[BoundPredicate]) -> bool:
    """Whether some parts speak of a column that others say more of together than one by one."""
    return bool(filter.split) and any(column in columns_of(part) for column, _ in filter.split for part in parts)
