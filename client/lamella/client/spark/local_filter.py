"""Rows that Python has, for Spark: only the columns that a query uses, of rows that may meet its conditions.

Spark evaluates its conditions again, so a part that cannot be decided here keeps all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from lamella.client.spark.catalyst import FilterWalker
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression import read_filter
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.schema import Schema


class Condition(msgspec.Struct, frozen=True):
    """A conjunct as a tree, and the time zone of the session that it is from."""

    tree: dict[str, Any]
    time_zone: str


class LocalFilter:
    """Conjuncts that can be decided by columns of a schema."""

    def __init__(self, schema: Schema, conditions: Sequence[Condition] = ()) -> None:
        self._schema = schema
        #: The conjuncts.
        self.conditions: list[Condition] = []
        self._filters: list[RowFilter] = []
        for condition in conditions:
            self._add(condition)

    def push(self, expression: Any, time_zone: str) -> bool:
        """Add one of Spark's conjuncts; returns False if it cannot be decided by these columns."""
        walker = FilterWalker(self._schema, time_zone=time_zone)
        tree = walker.tree(expression)
        try:
            self._add(Condition(tree, walker.time_zone))
        except LamellaError:
            return False
        return True

    def _add(self, condition: Condition) -> None:
        made = RowFilter(read_filter(condition.tree), self._schema, time_zone=condition.time_zone)
        self.conditions.append(condition)
        self._filters.append(made)

    @property
    def columns(self) -> set[str]:
        """The dotted names of the columns that the conjuncts use."""
        return {leaf.name for each in self._filters for leaf in each.columns}

    def keep(self, columns: Mapping[str, pa.Array], count: int) -> Mask:
        """Return which of ``count`` rows may meet all conjuncts; ``columns``: the values, by dotted name. Rows for
        which a conjunct fails are kept: Spark reports the error."""
        ids = {leaf.name: leaf.id for leaf in self._schema.leaves()}
        values = {ids[name]: column for name, column in columns.items()}
        found = np.ones(count, dtype=np.bool_)
        for each in self._filters:
            truth = each.decide(values, count)
            found &= truth.true if truth.failed is None else truth.true | truth.failed
        return found


class LazyColumns(msgspec.Struct, frozen=True, eq=False):
    """``count`` rows; ``values``: for each column, what returns its values in the rows with these numbers."""

    count: int
    values: Mapping[str, Callable[[Sequence[int]], list[Any]]]

    def table(self, types: pa.Schema, names: Sequence[str], conditions: LocalFilter) -> pa.Table:
        """Return the columns ``names`` of rows that may meet the conditions; ``types``: of all columns."""
        numbers: Sequence[int] = range(self.count)
        if conditions.conditions:
            known = {name: pa.array(self.values[name](numbers), types.field(name).type) for name in conditions.columns}
            numbers = np.flatnonzero(conditions.keep(known, self.count)).tolist()
        made = [pa.array(self.values[name](numbers), types.field(name).type) for name in names]
        if not made:
            return pa.table({"": pa.nulls(len(numbers))}).select([])
        return pa.table(made, names=list(names))
