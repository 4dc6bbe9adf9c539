"""What the conjuncts over one term say together: lists lose the values that its ranges exclude, and an empty range is
said to be empty. Each alone may overlap a block's bounds where all of them do not."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

import msgspec

from lamella.snapshot.expression.bound import BoundAnd, BoundNot, BoundPredicate, BoundTerm, Comparison, Membership
from lamella.snapshot.stats.bound import Value

_MIN_PARTS: Final = 2
#: The comparisons of one term, which leave a range; NaN lies outside whenever it ends above.
_Range = list[Comparison]
_LOW: Final = ("gt", "ge", "eq")
_HIGH: Final = ("lt", "le", "eq")


def narrowed(children: Sequence[BoundPredicate]) -> tuple[BoundPredicate, ...]:
    """The children of a conjunction, as sharp as they are together; each row's result stays what it was."""
    flat: list[BoundPredicate] = []
    for child in children:
        if isinstance(child, BoundAnd):
            flat += child.children
        else:
            flat.append(child)
    if len(flat) < _MIN_PARTS:
        return tuple(flat)
    flat = _without_ends(flat)
    ranges: dict[BoundTerm, _Range] = {}
    lists = False
    for child in flat:
        if isinstance(child, Comparison):
            if child.value == child.value:  # no NaN
                found = ranges.get(child.term)
                if found is None:
                    ranges[child.term] = [child]
                else:
                    found.append(child)
        elif isinstance(child, Membership):
            lists = True
    if not ranges:
        return tuple(flat)
    if lists:
        flat = [_cut(child, ranges.get(child.term)) if isinstance(child, Membership) else child for child in flat]
    for term, found in ranges.items():
        if len(found) >= _MIN_PARTS and _is_empty(found):
            text = " AND ".join(part.text for part in found)
            flat.append(Membership(term, (), False, False, text))
    return tuple(flat)


def _without_ends(flat: list[BoundPredicate]) -> list[BoundPredicate]:
    """``x >= 5 AND x <> 5`` is ``x > 5``: ranges lose the ends that another conjunct excludes."""
    ends = {child.term for child in flat if isinstance(child, Comparison) and child.op in ("ge", "le")}
    excluded: dict[BoundTerm, set[Value]] = {}
    for child in flat if ends else ():
        if not isinstance(child, BoundNot):
            continue
        inner = child.child
        if isinstance(inner, Comparison) and inner.op == "eq" and inner.term in ends:
            excluded.setdefault(inner.term, set()).add(inner.value)
        elif isinstance(inner, Membership) and not inner.has_null and inner.term in ends:
            excluded.setdefault(inner.term, set()).update(inner.values)
    if not excluded:
        return flat
    return [
        msgspec.structs.replace(child, op="gt" if child.op == "ge" else "lt")
        if isinstance(child, Comparison) and child.op in ("ge", "le") and child.value in excluded.get(child.term, ())
        else child
        for child in flat
    ]


def _cut(listed: Membership, found: _Range | None) -> Membership:
    if found is None:
        return listed
    low, high = _ends(found)
    values = listed.values
    first, last = 0, len(values)
    if low is not None:
        first = (bisect_right if low.op == "gt" else bisect_left)(values, low.value)
    if high is not None:
        last = (bisect_left if high.op == "lt" else bisect_right)(values, high.value)
    return msgspec.structs.replace(listed, values=values[first:last], has_nan=listed.has_nan and high is None)


def _is_empty(parts: _Range) -> bool:
    """True when no value fits, NaN included: one part's upper bound lies outside another's lower one."""
    low, high = _ends(parts)
    if low is None or high is None:
        return False
    if low.value == high.value:
        return low.op == "gt" or high.op == "lt"
    return low.value > high.value  # type: ignore[operator]  # one order per term


def _ends(parts: _Range) -> tuple[Comparison | None, Comparison | None]:
    """The part that bounds the values from below most tightly, and the one from above; None where there is none."""
    low: Comparison | None = None
    high: Comparison | None = None
    for part in parts:
        if part.op in _LOW and (
            low is None
            or part.value > low.value  # type: ignore[operator]  # one order per term
            or (part.op == "gt" and part.value == low.value)
        ):
            low = part
        if part.op in _HIGH and (
            high is None
            or part.value < high.value  # type: ignore[operator]  # one order per term
            or (part.op == "lt" and part.value == high.value)
        ):
            high = part
    return low, high
