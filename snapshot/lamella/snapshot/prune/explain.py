"""Why each predicate decided what it did, layer by layer, and why some decided nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NUMBER, NULLS_KNOWN, has_bound
from lamella.snapshot.expression.bound import (
    Anything,
    BoundLeaf,
    BoundPredicate,
    NanTest,
    NonNull,
    NullTest,
    Prefix,
    columns_in,
    columns_of,
    leaves_of,
)
from lamella.snapshot.prune.block_layer import Layers
from lamella.snapshot.prune.evaluate import Evaluator, Lookup, evaluate
from lamella.snapshot.prune.outcome import ALL, NONE, SOME, UNKNOWN, verdicts
from lamella.snapshot.prune.result import Codes
from lamella.snapshot.schema import Leaf
from lamella.snapshot.wire import LayerUse, NotUsed


class Layer(msgspec.Struct, frozen=True):
    """Entries of one layer that were considered together: their zone maps and row counts."""

    name: Literal["snapshot", "segment", "block"]
    lookup: Lookup
    row_counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, name: Literal["segment", "block"], sidecar: Sidecar) -> Layer:
        """The entries of a sidecar."""
        return cls(name, lambda leaf: sidecar.zones(leaf.id, leaf.dtype), sidecar.numbers("row_count"))


def judged(bound: BoundPredicate, layer: Layer) -> tuple[Codes, dict[str, Mask]]:
    """The verdicts of a layer's entries; and by what is not known, the entries that are UNKNOWN and lack it."""
    count = len(layer.row_counts)
    codes = verdicts(evaluate(bound, layer.lookup, count), layer.row_counts)
    return codes, {reason: mask & (codes == UNKNOWN) for reason, mask in _missing(bound, layer.lookup, count).items()}


def layer_uses(conjuncts: Sequence[tuple[str, BoundPredicate]], layers: Sequence[Layer]) -> tuple[LayerUse, ...]:
    """What each conjunct (its text, its bound form) decides on its own, for each layer's name once."""
    names = dict.fromkeys(layer.name for layer in layers)
    return tuple(
        _use(text, bound, [layer for layer in layers if layer.name == name])
        for text, bound in conjuncts
        for name in names
    )


def _use(text: str, bound: BoundPredicate, layers: Sequence[Layer]) -> LayerUse:
    counts = np.zeros(4, dtype=np.int64)
    reasons: dict[str, int] = {}
    for layer in layers:
        codes, lacking = judged(bound, layer)
        counts += np.bincount(codes, minlength=4)
        for reason, mask in lacking.items():
            entries = int(mask.sum())
            if entries:
                reasons[reason] = reasons.get(reason, 0) + entries
    return LayerUse(
        predicate=text,
        layer=layers[0].name,
        considered=int(counts.sum()),
        none=int(counts[NONE]),
        some=int(counts[SOME]),
        all=int(counts[ALL]),
        unknown=int(counts[UNKNOWN]),
        reasons=reasons,
    )


def _missing(bound: BoundPredicate, lookup: Lookup, count: int) -> dict[str, Mask]:
    """What is not known that could have decided, with the entries that lack it."""
    found: dict[str, Mask] = {}
    for leaf in leaves_of(bound):
        if isinstance(leaf, Anything):
            found.setdefault(leaf.reason, np.ones(count, dtype=bool))
            continue
        for reason, mask in _lacking(leaf, lookup).items():
            found[reason] = found[reason] | mask if reason in found else mask
    return found


def _lacking(leaf: BoundLeaf, lookup: Lookup) -> dict[str, Mask]:
    found: dict[str, Mask] = {}
    for column in columns_of(leaf):
        zones = lookup(column)
        some = zones.has(MAY_NUMBER)
        found[f"the minimum of {column.name} is not known"] = some & zones.lacks(LOW_KNOWN)
        found[f"the maximum of {column.name} is not known"] = some & zones.lacks(HIGH_KNOWN)
        found[f"the number of nulls in {column.name} is not known"] = zones.lacks(NULLS_KNOWN)
        if column.dtype.is_float:
            found[f"{column.name} may have NaN"] = zones.has(MAY_NAN) & some
    return found


def not_used_of(filter: Evaluator, layers: Layers, unbounded: Collection[Leaf]) -> tuple[NotUsed, ...]:
    """The predicates of a filter that could not be used.

    ``unbounded``: the columns of which no block that was looked at has a bound; empty if none was looked at.
    """
    found: dict[str, str] = {}
    for leaf in filter.leaves:
        if isinstance(leaf, Anything):
            found.setdefault(leaf.text, leaf.reason)
        elif isinstance(leaf, Prefix) and not leaf.prefix:
            found.setdefault(leaf.text, "a pattern without a fixed prefix only decides blocks with a single value")
        elif unbounded and not isinstance(leaf, NullTest | NanTest | NonNull):
            columns = columns_in([leaf])
            if all(column in unbounded for column in columns):
                found.setdefault(leaf.text, _why_unbounded(columns[0], layers))
    return tuple([NotUsed(predicate=text, reason=reason) for text, reason in found.items()])


def unbounded_in(filter: Evaluator, layers: Layers, opened: Sequence[Lookup]) -> list[Leaf]:
    """The columns of a filter of which no block has a bound; ``opened``: the statistics of the blocks."""
    unbounded = layers.unbounded(filter.columns) if opened else []
    return [column for column in unbounded if not any(has_bound(lookup(column)) for lookup in opened)]


def _why_unbounded(column: Leaf, layers: Layers) -> str:
    stats = layers.head.summary.col_stats.get(column.id)
    why = stats.reason if stats is not None and stats.reason else "no statistics were recorded"
    return f"no considered block has bounds for {column.name}: {why}"
