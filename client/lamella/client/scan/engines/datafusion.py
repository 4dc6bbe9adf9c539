"""A scan as a table of DataFusion, which accepts datasets of pyarrow as table providers.

DataFusion gives a dataset the parts of its filter that it can write as an expression of pyarrow, and does not evaluate
them again. It means its own by them: NaN is a value that is ordered, and NOT IN is null for null. pyarrow would find
other rows, so these filters are evaluated here as DataFusion evaluates them.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.client.filters.arrow import COMPARISONS, Constant, Field, Node, read_expression
from lamella.client.filters.may_match import conjuncts, of_any_float_order
from lamella.client.scan.engines.dataset import TableDataset, columns_in
from lamella.client.scan.engines.source import Part

#: Partitions per processor; more blocks share them, since each partition is a task.
_PER_PROCESSOR: Final = 2
_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "lt": operator.lt,
    "lt-eq": operator.le,
    "gt": operator.gt,
    "gt-eq": operator.ge,
    "eq": operator.eq,
    "not-eq": operator.ne,
}


class DataFusionTable(TableDataset):
    """The rows of a scan of one snapshot, for ``SessionContext.register_table``."""

    def scanner(self, columns: Any = None, filter: pc.Expression | None = None, **options: Any) -> Any:
        """Return what DataFusion asks for the projected schema."""
        del filter, options
        return _Rows(self.schema, (), columns, None)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[Any]:
        """Yield the partitions of a query with this filter: at least one, which may have no rows."""
        known = None if filter is None else of_any_float_order(_read(filter), self.schema)
        fragments = self._scan.narrowed(None, conjuncts(known) if known is not None else ()).fragments()
        count = max(1, min(len(fragments), _PER_PROCESSOR * (os.cpu_count() or 1)))
        for at in range(count):
            yield _Partition(self.schema, fragments[at::count])


class _Partition:
    """Some blocks, which DataFusion reads one after another."""

    def __init__(self, schema: pa.Schema, fragments: Sequence[Part]) -> None:
        self._schema = schema
        self._fragments = fragments

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> _Rows:
        """Return the rows that match."""
        del schema, options
        return _Rows(self._schema, self._fragments, columns, None if filter is None else _read(filter))


def _read(filter: Any) -> Node:
    """Return a condition of DataFusion; one that is constant comes as a value."""
    return Constant(filter) if isinstance(filter, pa.Scalar) else read_expression(filter)


class _Rows:
    """Some columns of the rows of some blocks that match a condition."""

    def __init__(
        self, schema: pa.Schema, fragments: Sequence[Part], columns: Sequence[str] | None, condition: Node | None
    ) -> None:
        self._schema = schema
        self._fragments = fragments
        self._columns = list(schema.names if columns is None else columns)
        self._condition = condition

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the batches."""
        return pa.schema([self._schema.field(name) for name in self._columns])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they are read."""
        used = set(self._columns)
        if self._condition is not None:
            used |= columns_in(self._condition)
        needed = [name for name in self._schema.names if name in used] or self._schema.names[:1]
        for fragment in self._fragments:
            for batch in fragment.with_columns(needed).to_batches():
                found = batch if self._condition is None else matching_rows(batch, self._condition)
                if found.num_rows:
                    yield found.select(self._columns)


def matching_rows(batch: pa.RecordBatch, condition: Node) -> pa.RecordBatch:
    """Return the rows for which a condition, an expression of pyarrow, is true in DataFusion.

    Raises NotImplementedError for an expression that DataFusion does not give to datasets.
    """
    meant = _Meaning(batch)
    expression = meant.expression(condition)
    with_keys = pa.Table.from_batches([batch])
    for name, keys in meant.keys.items():
        with_keys = with_keys.append_column(name, keys)
    found = with_keys.filter(expression).select(range(batch.num_columns)).combine_chunks()
    return found.to_batches()[0] if found.num_rows else batch.slice(0, 0)


class _Meaning:
    """Rewrites a condition so that pyarrow evaluates it as DataFusion does: floats become integers in their order.

    ``keys``: columns of such integers, to be appended to the rows, by their names.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.keys: dict[str, Any] = {}

    def expression(self, node: Node, *, zeros_differ: bool = False) -> pc.Expression:
        """Return a condition or a value. ``zeros_differ``: lists tell -0.0 from 0.0, comparisons do not."""
        if isinstance(node, Field):
            return self._field(node, zeros_differ=zeros_differ)
        if isinstance(node, Constant):
            scalar = node.scalar
            is_float = pa.types.is_floating(scalar.type) and scalar.is_valid
            return pc.scalar(_key(scalar.as_py(), zeros_differ=zeros_differ)) if is_float else pc.scalar(scalar)
        if node.function == "is_in":
            scalars = [Constant(scalar) for scalar in node.options["value_set"].values]
            return self._in(*self._of_one_type((node.arguments[0], *scalars)))
        inner = [self.expression(each) for each in self._of_one_type(node.arguments)]
        if node.function in COMPARISONS:
            return _OPERATORS[COMPARISONS[node.function]](*inner)
        match node.function:
            case "and_kleene":
                return inner[0] & inner[1]
            case "or_kleene":
                return inner[0] | inner[1]
            case "invert":
                return ~inner[0]
            case "is_valid":
                return inner[0].is_valid()
            case "is_null":
                return inner[0].is_null()
        raise NotImplementedError(f"DataFusion gave the function {node.function!r} to a dataset, which is not known")

    def _in(self, term: Node, *listed: Node) -> pc.Expression:
        """Return membership in a list, which is null for null."""
        value, *members = (self.expression(each, zeros_differ=True) for each in (term, *listed))
        return reduce(operator.or_, (value == each for each in members), pc.scalar(False))

    def _of_one_type(self, arguments: Sequence[Node]) -> list[Node]:
        """Return arguments with constant integers in the type of the column beside them: DataFusion wrote them in
        another one, to which pyarrow would convert the column."""
        kinds = [self._batch.schema.field(each.path[0]).type for each in arguments if isinstance(each, Field)]
        integers = [kind for kind in kinds if pa.types.is_integer(kind)]
        return [
            Constant(each.scalar.cast(integers[0]))
            if integers and isinstance(each, Constant) and pa.types.is_integer(each.scalar.type)
            else each
            for each in arguments
        ]

    def _field(self, node: Field, *, zeros_differ: bool) -> pc.Expression:
        (name,) = node.path
        column = self._batch.column(name)
        if not pa.types.is_floating(column.type):
            return pc.field(name)
        key = f"{name}\0{'bits' if zeros_differ else 'key'}"
        if key not in self.keys:
            numbers = np.asarray(column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
            keys = _keys(numbers, zeros_differ=zeros_differ)
            self.keys[key] = pa.array(keys, mask=column.is_null().to_numpy(zero_copy_only=False))
        return pc.field(key)


def _keys(numbers: Any, *, zeros_differ: bool) -> Any:
    """Return integers in the order that DataFusion gives floats: by their bits, and with both zeros equal unless they
    differ."""
    bits = (numbers if zeros_differ else np.where(numbers == 0, 0.0, numbers)).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), bits)


def _key(number: float, *, zeros_differ: bool) -> int:
    return int(_keys(np.array([number]), zeros_differ=zeros_differ)[0])
