"""What is left of an Iceberg client's filter in each block: only what every reading of it decides alike is gone."""

from __future__ import annotations

import msgspec
import numpy as np

from lamella.snapshot.columnar import Companion
from lamella.snapshot.expression import bind
from lamella.snapshot.expression.bound import BoundPredicate
from lamella.snapshot.iceberg.filter import IcebergFilter
from lamella.snapshot.prune.kept import Indexes
from lamella.snapshot.prune.residual import Shape, simplified, states_of
from lamella.snapshot.schema import Schema


class IcebergResiduals:
    """The residuals of one filter, each as JSON text that is made once."""

    def __init__(self, filter: IcebergFilter, schema: Schema, *, case_sensitive: bool = True) -> None:
        """Raises FilterTypeMismatch, UnknownColumn, for a filter that does not fit the columns."""
        self._filter = filter
        self._bound: list[list[BoundPredicate]] = [
            [bind(reading, schema, case_sensitive=case_sensitive) for reading in leaf.readings]
            for leaf in filter.leaves
        ]
        self._texts: dict[Shape, msgspec.Raw] = {}

    def of(self, companion: Companion, rows: Indexes) -> list[bool | msgspec.Raw]:
        """For each of a companion's ``rows`` what is left: True nothing, False no row can match, or JSON."""
        states = states_of(self._bound, companion)[rows]
        vectors, inverse = np.unique(states, axis=0, return_inverse=True)
        left = [self._text(simplified(self._filter.shape, vector.tolist())) for vector in vectors]
        return [left[place] for place in inverse.reshape(-1).tolist()]

    def _text(self, shape: Shape) -> bool | msgspec.Raw:
        if shape is None or isinstance(shape, bool):
            return bool(shape)
        found = self._texts.get(shape)
        if found is None:
            found = self._texts[shape] = msgspec.Raw(msgspec.json.encode(self._filter.residual(shape)))
        return found
