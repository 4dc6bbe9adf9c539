"""The keys of rows, by Spark's equality: NaN equals NaN, -0.0 equals 0.0, and null equals nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from decimal import Context
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression.coerce import literal_of
from lamella.snapshot.expression.nodes import And, Compare, In, Or, Predicate, Ref
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.stats.measure import leaf_values

Numbers = npt.NDArray[np.int64]

#: Maximum distinct values of a column that a filter lists. More are covered by ranges.
MAX_LISTED: Final = 10_000
#: Ranges that cover more values.
MAX_RANGES: Final = 500
_DIGITS: Final = Context(prec=100)
#: Instead of infinity, where distances are computed.
_LARGEST: Final = 1e300
#: Bytes of text beyond which an array gets 64-bit offsets.
MAX_ARRAY_BYTES: Final = 1 << 30


def key_leaves(schema: Schema, on: Sequence[str]) -> tuple[Leaf, ...]:
    """Return the columns of a key, given as dotted paths.

    Raises:
        UnknownColumn: there is no such column.
        InvalidRequest: no column, one column twice, or one whose values cannot be compared.
    """
    leaves = tuple(schema.leaf(path) for path in on)
    if not leaves or len({leaf.id for leaf in leaves}) < len(leaves):
        raise InvalidRequest("a key has at least one column, and each once", on=list(on))
    for leaf in leaves:
        if leaf.repeated or leaf.dtype.order is None:
            raise InvalidRequest(f"{leaf.name!r} is {leaf.dtype}, which cannot be a key", column=leaf.name)
    return leaves


class KeyCollector:
    """Takes the keys of rows that pass. All keys are in memory."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self._leaves = tuple(leaves)
        self._columns: list[list[pa.Array]] = [[] for _ in leaves]

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches; raises InvalidRequest for a null in a key."""
        for batch in batches:
            for taken, values in zip(self._columns, key_columns(batch, self._leaves), strict=True):
                taken.append(values)
            for leaf, taken in zip(self._leaves, self._columns, strict=True):
                if taken[-1].null_count:
                    raise InvalidRequest(f"a row has null in {leaf.name!r}, a column of its key", column=leaf.name)
            yield batch

    def keys(self) -> KeySet:
        """Return the keys of at least one batch; raises InvalidRequest if two rows have the same key, and names it."""
        return KeySet(self._leaves, [joined(parts) for parts in self._columns])


def joined(parts: Sequence[pa.Array], max_bytes: int = MAX_ARRAY_BYTES) -> pa.Array:
    """Return the values of all parts; an array with short offsets holds 2 GiB of text at most."""
    if sum(part.nbytes for part in parts) > max_bytes:
        longer = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
        parts = [part.cast(longer.get(part.type, part.type)) for part in parts]
    return pa.concat_arrays(parts)


def key_columns(batch: pa.RecordBatch, leaves: Sequence[Leaf]) -> list[pa.Array]:
    """Return the columns of the key, in an array each."""
    rows = pa.Table.from_batches([batch])
    return [leaf_values(rows, leaf).combine_chunks() for leaf in leaves]


class KeySet:
    """Distinct keys, numbered from 0. Picklable."""

    def __init__(self, leaves: Sequence[Leaf], columns: Sequence[pa.Array]) -> None:
        """``columns``: the keys of all rows, without nulls. Raises InvalidRequest if two rows have the same key."""
        self.leaves = tuple(leaves)
        self._sets = [_ValueSet(leaf.dtype, values) for leaf, values in zip(leaves, columns, strict=True)]
        self._combinations: list[Numbers] = []
        numbers = self._sets[0].positions(columns[0])
        for values, column in zip(self._sets[1:], columns[1:], strict=True):
            pairs = numbers * len(values) + values.positions(column)
            combinations, numbers = np.unique(pairs, return_inverse=True)
            self._combinations.append(combinations)
        self.count = len(self._combinations[-1]) if self._combinations else len(self._sets[0])
        if self.count < len(numbers):
            _, first, counts = np.unique(numbers, return_index=True, return_counts=True)
            at = int(first[np.argmax(counts > 1)])
            key = {leaf.name: column[at].as_py() for leaf, column in zip(leaves, columns, strict=True)}
            raise InvalidRequest(f"several rows have the key {key}", key={name: str(key[name]) for name in key})

    def positions(self, columns: Sequence[pa.Array]) -> Numbers:
        """Return the number of each row's key; -1: the row has none of these keys."""
        numbers = self._sets[0].positions(columns[0])
        for values, column, combinations in zip(self._sets[1:], columns[1:], self._combinations, strict=True):
            other = values.positions(column)
            is_known = (numbers >= 0) & (other >= 0)
            numbers = np.where(is_known, _find(combinations, numbers * len(values) + other), -1)
        return numbers

    def filter(self) -> Any:
        """Return a filter, as a JSON tree, that is true for every row with one of the keys; None: any row."""
        parts = [part for values, leaf in zip(self._sets, self.leaves, strict=True) if (part := values.filter(leaf))]
        if not parts:
            return None
        return tree_of(parts[0] if len(parts) == 1 else And(tuple(parts)))


class _ValueSet:
    """The distinct values of one column, in order.

    Numbers and times are searched as integers; other values by Arrow.
    """

    def __init__(self, dtype: DataType, values: pa.Array) -> None:
        self._dtype = dtype
        self._is_number = dtype.order in ("int", "uint", "float")
        self._distinct: Any
        if self._is_number:
            self._distinct = _distinct(_integers(values, dtype))
        else:
            distinct = pc.unique(values)
            self._distinct = distinct.take(pc.sort_indices(distinct))

    def __len__(self) -> int:
        return len(self._distinct)

    def positions(self, values: pa.Array) -> Numbers:
        """Return the number of each value; -1: it is null or not here."""
        if not self._is_number:
            values = values.cast(self._distinct.type)  # which has longer offsets for many bytes of text
            found = pc.index_in(values, value_set=self._distinct, skip_nulls=True)
            return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
        numbers = _find(self._distinct, _integers(values, self._dtype))
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        return np.where(is_null, -1, numbers)

    def filter(self, leaf: Leaf) -> Predicate | None:
        """Return a predicate that is true for these values, and for others if they are many; None: it has no
        spelling."""
        values = self._in_order()
        if not len(values):
            return None
        reference = Ref(leaf.reference)
        if len(values) <= MAX_LISTED:
            listed = values.tolist() if isinstance(values, np.ndarray) else values
            literals = [literal_of(self._dtype, value) for value in listed]
            known = tuple(each for each in literals if each is not None)
            return In(reference, known) if len(known) == len(literals) else None
        parts: list[Predicate] = []
        for low, high in _ranges(values, self._dtype):
            at_least, at_most = literal_of(self._dtype, low), literal_of(self._dtype, high)
            if at_least is None or at_most is None:
                return None
            parts.append(And((Compare("ge", reference, at_least), Compare("le", reference, at_most))))
        return Or(tuple(parts))

    def _in_order(self) -> Any:
        """Return the distinct values in the order and the domain of their type, numbers and times as an array; NaN is
        the last."""
        dtype = self._dtype
        if dtype.is_float:
            return np.sort(self._distinct.view(np.float64))  # NumPy, too, sorts NaN last
        if dtype.order == "uint":
            return np.sort(self._distinct.view(np.uint64))
        if self._is_number:
            return self._distinct
        listed = self._distinct.to_pylist()
        if dtype.order == "decimal":
            return [int(_DIGITS.scaleb(value, dtype.scale)) for value in listed]
        return [value.encode("utf-8") if isinstance(value, str) else value for value in listed]


def _integers(values: pa.Array, dtype: DataType) -> Numbers:
    """Return numbers and times as integers that are equal where the values are; those of nulls have no meaning."""
    if dtype.is_float:
        numbers = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        numbers = np.where(np.isnan(numbers), np.nan, numbers + 0.0)  # -0.0 + 0.0 is 0.0
        return np.asarray(numbers.view(np.int64), dtype=np.int64)
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not pa.types.is_integer(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())  # dates and times
    filled = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    return np.asarray(filled.view(np.int64) if filled.dtype == np.uint64 else filled, dtype=np.int64)


def _distinct(values: Numbers) -> Numbers:
    """Return the distinct values, ascending. NumPy's own function takes three times as long for a million values."""
    ordered = np.sort(values)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))] if len(ordered) else ordered


def _find(ordered: Numbers, values: Numbers) -> Numbers:
    """Return the index of each value in an ascending array; -1: it is not there."""
    if not len(ordered):
        return np.full(len(values), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.where(ordered[at] == values, at, -1)


def _ranges(values: Any, dtype: DataType) -> Iterator[tuple[Any, Any]]:
    """Yield the ends of ranges that cover ascending values, an array or a list: cut at the widest gaps of numbers,
    otherwise evenly."""
    is_nan = dtype.is_float and values[-1] != values[-1]
    if is_nan:
        yield float(values[-1]), float(values[-1])
        values = values[:-1]
    cuts: Sequence[int]
    if isinstance(values[0], bytes):
        cuts = [len(values) * at // MAX_RANGES for at in range(1, MAX_RANGES)]
    else:
        numbers = np.clip(np.asarray(values, dtype=np.float64), -_LARGEST, _LARGEST)
        gaps = numbers[1:] - numbers[:-1]
        cuts = sorted((np.argpartition(-gaps, MAX_RANGES - 1)[: MAX_RANGES - 1] + 1).tolist())
    edges = [0, *cuts, len(values)]
    for start, stop in itertools.pairwise(edges):
        if start < stop:
            ends = (values[start], values[stop - 1])
            yield ends if not isinstance(values, np.ndarray) else (ends[0].item(), ends[1].item())
