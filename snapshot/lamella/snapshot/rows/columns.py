"""The columns that a scan reads (top-level columns or single leaves, by id), and the order of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.errors import InvalidRequest, UnknownColumn
from lamella.snapshot.function.base import Vector
from lamella.snapshot.row_filter import vector_of
from lamella.snapshot.schema import Column, Leaf, Schema
from lamella.snapshot.schema.arrow import arrow_field, leaf_type
from lamella.snapshot.stats import from_bound
from lamella.snapshot.wire import OrderBound, OrderBy


class ReadColumn(msgspec.Struct, frozen=True):
    """One column to read: ``leaf`` when it is a single leaf, else a whole struct, list, map or variant.

    ``column``: its top-level column; ``field``: the output field.
    """

    column: Column
    leaf: Leaf | None
    field: pa.Field

    @property
    def key(self) -> int:
        """The column id."""
        return self.column.id if self.leaf is None else self.leaf.id


def read_columns(schema: Schema, names: Sequence[str] | None, *, case_sensitive: bool) -> tuple[ReadColumn, ...]:
    """Return the columns of these names (None: all top-level columns), each once, in the requested order.

    Raises:
        UnknownColumn: no such column, or the name is ambiguous.
        InvalidRequest: no columns, a duplicate, a part of a list or map, or a type that Arrow cannot represent.
    """
    if names is None:
        return tuple(_whole(schema, column) for column in schema.columns)
    if isinstance(names, str):
        raise InvalidRequest("columns is a list of strings, not one string")
    found: dict[int, ReadColumn] = {}
    for name in names:
        one = _named(schema, name, case_sensitive=case_sensitive)
        if one.key in found:
            raise InvalidRequest(f"column {name!r} is requested twice", column=name)
        found[one.key] = one
    if not found:
        raise InvalidRequest("there is no column to read; count() counts the rows")
    return tuple(found.values())


def read_leaf(schema: Schema, leaf: Leaf) -> ReadColumn:
    """Return a leaf that is not inside a list or map."""
    column = next(column for column in schema.columns if any(each.id == leaf.id for each in _below(schema, column)))
    if leaf.id == column.id and leaf.dtype.name == "variant":
        return _whole(schema, column)
    field = pa.field(leaf.name, leaf_type(leaf.dtype, leaf.name), nullable=leaf.nullable)
    return ReadColumn(column, leaf, field)


def _named(schema: Schema, name: str, *, case_sensitive: bool) -> ReadColumn:
    for column in schema.columns:
        if name == column.name or (not case_sensitive and name.lower() == column.name.lower()):
            return _whole(schema, column)
    leaf = schema.find(name, case_sensitive=case_sensitive)
    if leaf is None:
        raise InvalidRequest(f"column {name!r} is a part that cannot be read alone", column=name)
    if leaf.repeated:
        raise UnknownColumn(f"column {name!r} lies inside a list or map; read the whole column", column=name)
    if leaf.dtype.name == "variant":
        raise InvalidRequest(f"column {name!r} is a variant in a struct; read the whole column", column=name)
    return read_leaf(schema, leaf)


def _whole(schema: Schema, column: Column) -> ReadColumn:
    leaves = _below(schema, column)
    flat = not column.dtype.is_nested and column.dtype.name != "variant"
    return ReadColumn(column, leaves[0] if flat else None, arrow_field(column))


def _below(schema: Schema, column: Column) -> tuple[Leaf, ...]:
    return tuple(leaf for leaf in schema.leaves() if leaf.path[0] == column.name)


_Ranks = npt.NDArray[np.int64]


class Key(msgspec.Struct, frozen=True):
    """One column of an order."""

    leaf: Leaf
    descending: bool
    nulls_first: bool

    def classes(self, vector: Vector) -> _Ranks:
        """Return the class of each row: null, NaN or value."""
        found = np.full(len(vector), self._class("value"), dtype=np.int64)
        if self.leaf.dtype.is_float:
            found[np.isnan(vector.values)] = self._class("nan")
        found[~vector.valid] = self._class("null")
        return found

    def _class(self, kind: str) -> int:
        if kind == "null":
            return 0 if self.nulls_first else 3
        return 2 if (kind == "nan") != self.descending else 1

    def is_before(self, vector: Vector, row: int, bound: OrderBound, *, or_equal: bool) -> bool:
        """Whether a row comes before every row that ``bound`` allows."""
        if bound.first == "unknown":
            return False
        mine, other = int(self.classes(vector)[row]), self._class(bound.first)
        if mine != other or bound.first != "value" or bound.bound is None:
            return mine < other or (or_equal and mine == other and bound.first != "value")
        value = vector.values[row].as_py() if vector.is_bytes else vector.values[row]
        limit = from_bound(self.leaf.dtype, bound.bound)
        if value == limit:
            return or_equal
        return bool(value > limit if self.descending else value < limit)


class Ordering:
    """An order over tables that have the columns of :attr:`wanted` from position ``first`` on."""

    def __init__(self, schema: Schema, parts: Sequence[OrderBy], first: int, *, case_sensitive: bool) -> None:
        keys: list[Key] = []
        for part in parts:
            leaf = schema.leaf(part.column, case_sensitive=case_sensitive)
            if leaf.repeated or leaf.dtype.order is None:
                raise InvalidRequest(f"rows cannot be ordered by column {part.column!r}", column=part.column)
            nulls_first = not part.descending if part.nulls_first is None else part.nulls_first
            keys.append(Key(leaf, part.descending, nulls_first))
        self.keys = tuple(keys)
        leaves = tuple(dict.fromkeys(key.leaf for key in keys))
        self.wanted: tuple[ReadColumn, ...] = tuple(read_leaf(schema, leaf) for leaf in leaves)
        self._positions = {leaf: first + at for at, leaf in enumerate(leaves)}

    def sorted(self, table: pa.Table, limit: int | None) -> pa.Table:
        """Return the rows in order, the first ``limit`` of them."""
        ranks: list[Any] = []
        for key in reversed(self.keys):
            vector = vector_of(table.column(self._positions[key.leaf]), key.leaf.dtype)
            values = _ranks(vector)
            ranks += [~values if key.descending else values, key.classes(vector)]
        rows = np.lexsort(ranks)
        return table.take(pa.array(rows[:limit]))

    def is_complete(self, table: pa.Table, bound: OrderBound | None, limit: int) -> bool:
        """Whether the first ``limit`` rows of a sorted table come before every row that ``bound`` allows."""
        if bound is None or table.num_rows < limit:
            return False
        key = self.keys[0]
        last = table.column(self._positions[key.leaf]).slice(limit - 1, 1)
        return key.is_before(vector_of(last, key.leaf.dtype), 0, bound, or_equal=len(self.keys) == 1)


def _ranks(vector: Vector) -> _Ranks:
    """Return integers in the order of the values; those of nulls and NaN are meaningless."""
    if vector.is_bytes:
        found = pc.rank(vector.values, sort_keys="ascending", tiebreaker="dense")
        return np.asarray(found.to_numpy(zero_copy_only=False)).astype(np.int64)
    values = vector.values
    if values.dtype == np.int64:
        return np.where(vector.valid, values, 0)
    if values.dtype == np.float64:
        values = np.where(np.isnan(values) | ~vector.valid, 0.0, values + 0.0)
    _, ranks = np.unique(values, return_inverse=True)
    return ranks.reshape(-1).astype(np.int64)
