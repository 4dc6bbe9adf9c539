"""A filter divided into what a search decides (:mod:`.window`) and what is left to be tested."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from lamella.snapshot.expression.bound import BoundAnd, BoundPredicate, columns_of
from lamella.snapshot.prune.evaluate import Evaluator, Lookup
from lamella.snapshot.prune.kept import Codes
from lamella.snapshot.prune.verdict import ALL, SOME, codes_of
from lamella.snapshot.prune.window import EdgesOf, Window, all_of, reach


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


def division(filter: Evaluator, edges: EdgesOf, count: int) -> Division:
    """The division of a filter in a layer of ``count`` entries; its ``rest`` is all of it when no part is decided."""
    node = filter.node
    children = node.children if isinstance(node, BoundAnd) and node.children else (node,)
    parts = [reach(child, edges, count) for child in children]
    found = all_of(parts)
    if found.every is not None or not found.some:
        return Division(found.some, found.every or (), None)
    exact = [(child, part) for child, part in zip(children, parts, strict=True) if part.every is not None]
    if not exact or _torn(filter, [child for child, _ in exact]):
        return Division(found.some, found.some, filter)
    rest = tuple([child for child, part in zip(children, parts, strict=True) if part.every is None])
    return Division(found.some, all_of([part for _, part in exact]).every or (), filter.only(rest))


def _torn(filter: Evaluator, parts: Sequence[BoundPredicate]) -> bool:
    """Whether some parts speak of a column that others say more of together than one by one."""
    return bool(filter.split) and any(column in columns_of(part) for column, _ in filter.split for part in parts)
