"""What the conjuncts over one term say together: lists lose the values that its ranges exclude, and an empty range is
said to be empty. Each alone may overlap a block's bounds where all of them do not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from lamella.snapshot.expression.bound import BoundAnd, BoundNot, BoundPredicate, BoundTerm, Comparison, Membership
from lamella.snapshot.stats.bound import Value

_MIN_PARTS = 2


class _Range:
    """The range that comparisons of one term leave, NaN outside whenever it ends above."""

    def __init__(self) -> None:
        self.parts: list[Comparison] = []

    def holds(self, value: Value) -> bool:
        return all(_holds(value, part) for part in self.parts)

    @property
    def ends_above(self) -> bool:
        return any(part.op in ("lt", "le", "eq") for part in self.parts)

    @property
    def is_empty(self) -> bool:
        """True when no number fits: one part's bound lies outside another's."""
        low = [part for part in self.parts if part.op in ("gt", "ge", "eq")]
        high = [part for part in self.parts if part.op in ("lt", "le", "eq")]
        return any(_excludes(a, b) for a in low for b in high)


def narrowed(children: Sequence[BoundPredicate]) -> tuple[BoundPredicate, ...]:
    """The children of a conjunction, as sharp as they are together; each row's result stays what it was."""
    flat: list[BoundPredicate] = []
    for child in children:
        flat += child.children if isinstance(child, BoundAnd) else (child,)
    flat = _without_ends(flat)
    ranges: dict[BoundTerm, _Range] = {}
    for child in flat:
        if isinstance(child, Comparison) and not _is_nan(child.value):
            ranges.setdefault(child.term, _Range()).parts.append(child)
    lists = [child for child in flat if isinstance(child, Membership)]
    if not ranges or len(flat) < _MIN_PARTS:
        return tuple(flat)
    made: list[BoundPredicate] = []
    for child in flat:
        found = ranges.get(child.term) if child in lists and isinstance(child, Membership) else None
        made.append(child if found is None or not isinstance(child, Membership) else _cut(child, found))
    for term, found in ranges.items():
        if len(found.parts) >= _MIN_PARTS and found.ends_above and found.is_empty:
            text = " AND ".join(part.text for part in found.parts)
            made.append(Membership(term, (), False, False, text))
    return tuple(made)


def _without_ends(flat: Sequence[BoundPredicate]) -> list[BoundPredicate]:
    """``x >= 5 AND x <> 5`` is ``x > 5``: ranges lose the ends that another conjunct excludes."""
    excluded: dict[BoundTerm, list[Value]] = {}
    for child in flat:
        inner = child.child if isinstance(child, BoundNot) else None
        if isinstance(inner, Comparison) and inner.op == "eq":
            excluded.setdefault(inner.term, []).append(inner.value)
        elif isinstance(inner, Membership) and not inner.has_null:
            excluded.setdefault(inner.term, []).extend(inner.values)
    return [
        msgspec.structs.replace(child, op="gt" if child.op == "ge" else "lt")
        if isinstance(child, Comparison) and child.op in ("ge", "le") and child.value in excluded.get(child.term, ())
        else child
        for child in flat
    ]


def _cut(listed: Membership, found: _Range) -> Membership:
    values = tuple(value for value in listed.values if found.holds(value))
    return msgspec.structs.replace(listed, values=values, has_nan=listed.has_nan and not found.ends_above)


def _holds(value: Value, part: Comparison) -> bool:
    bound = part.value
    if part.op == "eq":
        return value == bound
    if part.op in ("lt", "le"):
        return value < bound or (part.op == "le" and value == bound)  # type: ignore[operator]  # one order per term
    return value > bound or (part.op == "ge" and value == bound)  # type: ignore[operator]  # one order per term


def _excludes(low: Comparison, high: Comparison) -> bool:
    if low.value == high.value:
        return low.op == "gt" or high.op == "lt"
    return low.value > high.value  # type: ignore[operator]  # one order per term


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)
