"""Looking at nulls, NaN and numbers of a column one after another.

A row is null, NaN or a number in a column, never two of them at once. Where several predicates speak of one column,
taking them as independent loses that: ``x BETWEEN 2 AND 9`` over the values 1 and NaN holds for neither, though NaN
passes one side and 1 the other. So the filter is decided once for each kind of row, and the results are put together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER, NULLS_KNOWN, Zones
from lamella.snapshot.expression.bound import BoundLeaf, NullTest, columns_in
from lamella.snapshot.schema import Leaf

#: Columns that are looked at so; each may triple the work.
MAX_COLUMNS = 2


def split_columns(parts: Sequence[BoundLeaf]) -> tuple[tuple[Leaf, tuple[int, ...]], ...]:
    """The columns of a filter's predicates that are worth it, each with the kinds of rows (flags) looked at apart."""
    if len(parts) < 2:
        return ()
    used: dict[Leaf, int] = {}
    tested: set[Leaf] = set()
    for part in parts:
        columns = columns_in([part])
        for leaf in columns:
            used[leaf] = used.get(leaf, 0) + 1
        if isinstance(part, NullTest):
            tested.update(columns)
    found: list[tuple[Leaf, tuple[int, ...]]] = []
    for leaf, count in used.items():
        if count < 2 or not (leaf.dtype.is_float or leaf in tested):
            continue
        nulls = (MAY_NULL, MAY_NUMBER) if leaf in tested else (MAY_NULL | MAY_NUMBER,)
        found.append((leaf, (*nulls, MAY_NAN) if leaf.dtype.is_float else nulls))
    return tuple(found[:MAX_COLUMNS])


def only(zones: Zones, kinds: int) -> Zones:
    """The zone maps of the rows of some kinds."""
    kept = kinds | NULLS_KNOWN | ((LOW_KNOWN | HIGH_KNOWN) if kinds & MAY_NUMBER else 0)
    made = Zones(zones.low, zones.high, zones.flags & np.uint8(kept), zones.fails)
    if kinds & MAY_NUMBER:
        made.spans = zones.spans
    return made
