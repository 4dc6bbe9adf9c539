"""Which predicates of a filter did not decide anything, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamella.snapshot.columnar import Zones
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN
from lamella.snapshot.expression.bound import (
    Anything,
    Comparison,
    NanTest,
    NonNull,
    NullTest,
    Prefix,
    columns_in,
)
from lamella.snapshot.prune.evaluate import Evaluator, Lookup
from lamella.snapshot.prune.layers import Layers
from lamella.snapshot.schema import Leaf
from lamella.snapshot.wire import NotUsed


def not_used_of(filter: Evaluator, layers: Layers, opened: Sequence[Lookup]) -> tuple[NotUsed, ...]:
    """The predicates of a filter that could not be used; ``opened``: the statistics of the blocks looked at."""
    # Where all segments have a bound, so have all blocks in them.
    bounded = [column for column in filter.columns if layers.is_bounded(column)] if opened else []
    found: dict[str, str] = {}
    for leaf in filter.leaves:
        if isinstance(leaf, Comparison) and leaf.term in bounded:
            continue
        if isinstance(leaf, Anything):
            found.setdefault(leaf.text, leaf.reason)
        elif isinstance(leaf, Prefix) and not leaf.prefix:
            found.setdefault(leaf.text, "a pattern without fixed beginning decides only blocks of one value")
        elif opened and not isinstance(leaf, NullTest | NanTest | NonNull):
            columns = columns_in([leaf])
            if not any(column in bounded for column in columns) and not _has_bounds(columns, opened):
                found.setdefault(leaf.text, _why_unbounded(columns[0], layers))
    return tuple([NotUsed(predicate=text, reason=reason) for text, reason in found.items()])


def _why_unbounded(column: Leaf, layers: Layers) -> str:
    stats = layers.head.summary.col_stats.get(column.id)
    why = stats.reason if stats is not None and stats.reason else "no statistics were recorded"
    return f"no block considered has bounds of {column.name}: {why}"


def _has_bounds(columns: Sequence[Leaf], opened: Sequence[Lookup]) -> bool:
    return any(_is_bounded(lookup(column)) for lookup in opened for column in columns)


def _is_bounded(zones: Zones) -> bool:
    """Whether a bound of some entry is known."""
    bits = LOW_KNOWN | HIGH_KNOWN
    every, some = zones.flags_of_all()
    if every & bits:
        return len(zones) > 0
    return bool(some & bits) and bool((zones.flags & np.uint8(bits)).any())
