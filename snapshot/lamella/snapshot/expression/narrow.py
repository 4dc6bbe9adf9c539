"""What the conjuncts over one term say together: lists lose the values that its ranges exclude, and an empty range is
said to be empty. Each alone may overlap a block's bounds where all of them do not."""

from __future__ import annotations

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
    excluded: dict[BoundTerm, list[Value]] = {}
    for child in flat:
        if not isinstance(child, BoundNot):
            continue
        inner = child.child
        if isinstance(inner, Comparison) and inner.op == "eq":
            excluded.setdefault(inner.term, []).append(inner.value)
        elif isinstance(inner, Membership) and not inner.has_null:
            excluded.setdefault(inner.term, []).extend(inner.values)
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
    values = tuple(value for value in listed.values if all(_holds(value, part) for part in found))
    has_nan = listed.has_nan and not any(part.op in _HIGH for part in found)
    return msgspec.structs.replace(listed, values=values, has_nan=has_nan)


def _is_empty(parts: _Range) -> bool:
    """True when no value fits, NaN included: one part's upper bound lies outside another's lower one."""
    for low in parts:
        if low.op not in _LOW:
            continue
        for high in parts:
            if high is low or high.op not in _HIGH:
                continue
            if low.value > high.value:  # type: ignore[operator]  # one order per term
                return True
            if low.value == high.value and (low.op == "gt" or high.op == "lt"):
                return True
    return False


def _holds(value: Value, part: Comparison) -> bool:
    bound = part.value
    if part.op == "eq":
        return value == bound
    if part.op in ("lt", "le"):
        return value < bound or (part.op == "le" and value == bound)  # type: ignore[operator]  # one order per term
    return value > bound or (part.op == "ge" and value == bound)  # type: ignore[operator]  # one order per term
