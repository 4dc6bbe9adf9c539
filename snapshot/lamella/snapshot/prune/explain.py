"""Why each predicate decided what it did, layer by layer: the part of a report that ``explain`` asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Companion
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NUMBER, NULLS_KNOWN
from lamella.snapshot.expression.bound import Anything, BoundLeaf, BoundPredicate, columns_of, leaves_of
from lamella.snapshot.prune.evaluate import Lookup, evaluate
from lamella.snapshot.prune.kept import Codes
from lamella.snapshot.prune.verdict import ALL, NONE, SOME, UNKNOWN, verdicts
from lamella.snapshot.wire import LayerUse


class Layer(msgspec.Struct, frozen=True):
    """Entries of one layer that were considered together: their zone maps and row counts."""

    name: Literal["snapshot", "segment", "block"]
    lookup: Lookup
    row_counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, name: Literal["segment", "block"], companion: Companion) -> Layer:
        """The entries of a companion."""
        return cls(name, lambda leaf: companion.zones(leaf.id, leaf.dtype), companion.numbers("row_count"))


def judged(bound: BoundPredicate, layer: Layer) -> tuple[Codes, dict[str, Mask]]:
    """The verdicts of a layer's entries; and by what is not known, the entries that are UNKNOWN and lack it."""
    count = len(layer.row_counts)
    codes = verdicts(evaluate(bound, layer.lookup, count), layer.row_counts)
    return codes, {reason: mask & (codes == UNKNOWN) for reason, mask in _wanting(bound, layer.lookup, count).items()}


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


def _wanting(bound: BoundPredicate, lookup: Lookup, count: int) -> dict[str, Mask]:
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
        found[f"the least value of {column.name} is not known"] = some & zones.lacks(LOW_KNOWN)
        found[f"the greatest value of {column.name} is not known"] = some & zones.lacks(HIGH_KNOWN)
        found[f"the number of nulls in {column.name} is not known"] = zones.lacks(NULLS_KNOWN)
        if column.dtype.is_float:
            found[f"{column.name} may hold NaN"] = zones.has(MAY_NAN) & some
    return found
