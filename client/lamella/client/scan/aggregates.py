"""Exact aggregates: what statistics prove, and the rows of the blocks for which they prove nothing.

Counts and sums of both parts are added, minima and maxima compared, by group. The order is Spark's: NaN is above all
numbers, and the zeros are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.errors import InvalidRequest, LimitExceeded
from lamella.snapshot.prune.aggregate import AggregateTerm, read_plan
from lamella.snapshot.schema import DataType, Leaf, Schema, parse_type
from lamella.snapshot.schema.arrow import arrow_scalar, leaf_type, repeated
from lamella.snapshot.stats import Bound, from_bound, to_bound
from lamella.snapshot.wire import AggregateAnswer, AggregateGroup, AggregateRequest, AggregateValue

#: Wide enough for the sum of any number of rows.
_SUM_DIGITS: Final = 76


class RowAggregates:
    """The aggregates of an answer, of rows; raises InvalidRequest for one that Arrow cannot compute."""

    def __init__(self, answer: AggregateAnswer, schema: Schema, *, case_sensitive: bool) -> None:
        request = AggregateRequest(
            aggregates=tuple(column.name for column in answer.columns),
            group_by=tuple(column.name for column in answer.group_columns),
            case_sensitive=case_sensitive,
        )
        plan = read_plan(request, schema)
        self._terms = plan.aggregates
        self._keys = plan.group_by
        for leaf in (*self._keys, *(term.leaf for term in self._terms if term.leaf is not None and not term.is_count)):
            if leaf.dtype.name == "float16":
                raise InvalidRequest(f"values of type float16 are not compared: {leaf.name!r}", column=leaf.name)
        leaves = [*self._keys, *(term.leaf for term in self._terms if term.leaf is not None)]
        #: The columns to read, by the names that a scan has for them.
        self.columns: tuple[str, ...] = tuple(dict.fromkeys(leaf.reference for leaf in leaves))
        self._numbers = {leaf.id: number for number, leaf in enumerate({leaf.id: leaf for leaf in leaves}.values())}

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the aggregates of some rows, by group; ``rows`` has :attr:`columns` in this order."""
        arrays = {f"k{at}": _comparable(leaf, self._values(rows, leaf)) for at, leaf in enumerate(self._keys)}
        for at, term in enumerate(self._terms):
            arrays[f"a{at}"] = self._added(rows, term)
        return grouped(pa.table(arrays), [term.function for term in self._terms], len(self._keys))

    def of_count(self, count: int) -> pa.Table:
        """Return the aggregates of that many rows, if they are counts of rows and nothing else."""
        return pa.table({f"a{at}": pa.array([count], pa.int64()) for at in range(len(self._terms))})

    def _values(self, rows: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
        return rows.column(self._numbers[leaf.id])

    def _added(self, rows: pa.Table, term: AggregateTerm) -> Any:
        """Return what each row adds to an aggregate."""
        if term.leaf is None:
            return pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
        values = self._values(rows, term.leaf)
        if term.is_count:
            return pc.is_valid(values).cast(pa.int64())
        if term.function == "sum":
            return values.cast(pa.decimal256(_SUM_DIGITS, term.leaf.dtype.scale))
        return _comparable(term.leaf, values)


def grouped(parts: pa.Table, functions: Sequence[str], keys: int) -> pa.Table:
    """Return the groups of a table whose columns are ``keys`` keys and aggregates of parts of the groups."""
    names = parts.column_names
    how = {"min": "min", "max": "max"}
    made = parts.group_by(names[:keys]).aggregate(
        [(name, how.get(function, "sum")) for name, function in zip(names[keys:], functions, strict=True)]
    )
    return made.rename_columns(names).cast(parts.schema)


def complete(answer: AggregateAnswer, parts: Iterable[pa.Table] = ()) -> pa.Table:
    """Return the groups with what statistics prove of them and what the rows of the other blocks add.

    The columns are those of the request, keys first. ``parts``: what :meth:`RowAggregates.of` returned for these rows.

    Raises:
        LimitExceeded: a sum of more than 38 digits.
    """
    functions = [column.name.partition("(")[0].strip().lower() for column in answer.columns]
    keys = [parse_type(column.type) for column in answer.group_columns]
    results = [parse_type(column.type) for column in answer.columns]
    proven = _proven(answer, keys, results, functions)
    found = grouped(pa.concat_tables([proven, *(part.cast(proven.schema) for part in parts)]), functions, len(keys))
    columns = [
        *(_restored(dtype, found.column(at)) for at, dtype in enumerate(keys)),
        *(
            _result(dtype, function, found.column(len(keys) + at))
            for at, (dtype, function) in enumerate(zip(results, functions, strict=True))
        ),
    ]
    names = [*(column.name for column in answer.group_columns), *(column.name for column in answer.columns)]
    return pa.table(columns, names=names)


def completed_answer(answer: AggregateAnswer, result: pa.Table) -> AggregateAnswer:
    """Return an answer with the groups of :func:`complete`, of which nothing is left to scan."""
    described = (*answer.group_columns, *answer.columns)
    columns = [
        _bounds_of(parse_type(column.type), values) for column, values in zip(described, result.columns, strict=True)
    ]
    keys = len(answer.group_columns)
    groups = tuple(
        AggregateGroup(key=row[:keys], values=tuple(AggregateValue(value=value) for value in row[keys:]))
        for row in zip(*columns, strict=True)
    )
    return msgspec.structs.replace(answer, complete=True, groups=groups, other_groups=False, scan=(), scan_blocks=0)


def _bounds_of(dtype: DataType, values: pa.ChunkedArray) -> list[Bound | None]:
    """Return values as tagged ones, as the service has them in its answers."""
    if isinstance(values.type, pa.ExtensionType):
        values = pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    if dtype.name == "decimal":
        found: list[Any] = [
            None if value is None else int(format(value, "f").replace(".", "")) for value in values.to_pylist()
        ]
    elif pa.types.is_temporal(values.type):
        found = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64()).to_pylist()
    elif pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        found = values.cast(pa.large_binary()).to_pylist()
    else:
        found = values.to_pylist()
    return [None if value is None else _tagged(dtype, value) for value in found]


def _tagged(dtype: DataType, value: Any) -> Bound:
    return Bound(float64="NaN") if dtype.is_float and value != value else to_bound(dtype, value)


def _proven(
    answer: AggregateAnswer, keys: Sequence[DataType], results: Sequence[DataType], functions: Sequence[str]
) -> pa.Table:
    arrays = {}
    for at, dtype in enumerate(keys):
        arrays[f"k{at}"] = _of_bounds(dtype, [group.key[at] for group in answer.groups])
    for at, (dtype, function) in enumerate(zip(results, functions, strict=True)):
        values = _of_bounds(dtype, [group.values[at].value for group in answer.groups])
        arrays[f"a{at}"] = values.cast(pa.decimal256(_SUM_DIGITS, dtype.scale)) if function == "sum" else values
    return pa.table(arrays)


def _of_bounds(dtype: DataType, bounds: Sequence[Bound | None]) -> pa.Array:
    target = leaf_type(dtype, "result")
    try:
        made = [
            pa.nulls(1, target) if bound is None else repeated(arrow_scalar(dtype, from_bound(dtype, bound)), 1, target)
            for bound in bounds
        ]
    except UnicodeDecodeError as error:
        raise InvalidRequest("a result is text that is not UTF-8") from error
    values = pa.concat_arrays(made) if made else pa.nulls(0, target)
    return _sortable(dtype, values) if dtype.is_float else values


def _comparable(leaf: Leaf, values: pa.ChunkedArray) -> Any:
    return _sortable(leaf.dtype, values) if leaf.dtype.is_float else values


def _sortable(dtype: DataType, values: Any) -> Any:
    """Return floats as integers in Spark's order."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    kind, integer = (np.float32, np.int32) if dtype.name == "float32" else (np.float64, np.int64)
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype(kind) + kind(0)  # -0.0 becomes 0.0
    numbers[np.isnan(numbers)] = np.nan
    bits = numbers.view(integer)
    ranks = np.where(bits < 0, bits ^ np.iinfo(integer).max, bits)
    return pa.array(ranks, mask=np.asarray(values.is_null()))


def _restored(dtype: DataType, values: pa.ChunkedArray) -> Any:
    """Return the values of :func:`_comparable` in their own type."""
    if not dtype.is_float:
        return values
    kind, integer = (np.float32, np.int32) if dtype.name == "float32" else (np.float64, np.int64)
    ranks = values.combine_chunks().fill_null(0).to_numpy(zero_copy_only=False).astype(integer)
    bits = np.where(ranks < 0, ranks ^ np.iinfo(integer).max, ranks).astype(integer)
    return pa.array(bits.view(kind), mask=np.asarray(values.combine_chunks().is_null()))


def _result(dtype: DataType, function: str, values: pa.ChunkedArray) -> Any:
    if function == "count":
        return values.fill_null(0)
    if function != "sum":
        return _restored(dtype, values)
    try:
        return values.cast(leaf_type(dtype, "sum"))
    except pa.ArrowInvalid as error:
        raise LimitExceeded(
            f"a sum has more than {dtype.precision} digits", limit="digits", maximum=dtype.precision
        ) from error
