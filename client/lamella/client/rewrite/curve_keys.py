"""Places of rows along a curve through several columns: see :mod:`lamella.snapshot.cluster.curve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from lamella.snapshot.cluster.curve import CurveKind, bits_for, positions, to_arrow
from lamella.snapshot.cluster.quantile import quantiles, unpacked
from lamella.snapshot.schema import Leaf


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A curve, and for each of its columns where values stand (:class:`Quantiles`, packed)."""

    kind: CurveKind
    quantiles: tuple[bytes, ...]

    @classmethod
    def of(cls, kind: CurveKind, leaves: Sequence[Leaf], sample: pa.Table) -> Curve:
        """A curve through columns, by a sample of their rows; the sample has them in that order."""
        bits = bits_for(len(leaves))
        packed = (
            quantiles(column, leaf.dtype, bits).packed() for leaf, column in zip(leaves, sample.columns, strict=True)
        )
        return cls(kind=kind, quantiles=tuple(packed))


def curve_positions(curve: Curve, columns: Sequence[Any]) -> pa.Array:
    """Where each row is, as an array that sorts along the curve."""
    found = [unpacked(data) for data in curve.quantiles]
    points = np.column_stack([one.places(values) for one, values in zip(found, columns, strict=True)])
    return to_arrow(positions(curve.kind, points, bits_for(len(columns))))
