"""What a scan reads: columns of the top level, or single leaves, by their ids."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from lamella.snapshot.errors import InvalidRequest, UnknownColumn
from lamella.snapshot.rows.arrow_types import arrow_field, leaf_type
from lamella.snapshot.schema import Column, Leaf, Schema


class Wanted(msgspec.Struct, frozen=True):
    """One column to read: ``leaf`` when that is all of it, else a whole struct, list or map.

    ``column`` is the column of the top level that it is, or lies in; ``field`` what comes out.
    """

    column: Column
    leaf: Leaf | None
    leaves: tuple[Leaf, ...]
    field: pa.Field

    @property
    def key(self) -> int:
        """Its column id."""
        return self.column.id if self.leaf is None else self.leaf.id


def wanted_columns(schema: Schema, names: Sequence[str] | None, *, case_sensitive: bool) -> tuple[Wanted, ...]:
    """The columns of these names (None: all of the top level), each once, in the order asked.

    Raises:
        UnknownColumn: no such column, or several.
        InvalidRequest: no columns, one twice, a part of a list or map, or a type without a form in Arrow.
    """
    if names is None:
        return tuple(_whole(schema, column) for column in schema.columns)
    if isinstance(names, str):
        raise InvalidRequest("columns is a list of strings, not one string")
    found: dict[int, Wanted] = {}
    for name in names:
        one = _named(schema, name, case_sensitive=case_sensitive)
        if one.key in found:
            raise InvalidRequest(f"column {name!r} is asked for twice", column=name)
        found[one.key] = one
    if not found:
        raise InvalidRequest("there is no column to read; count() counts the rows")
    return tuple(found.values())


def wanted_leaf(schema: Schema, leaf: Leaf) -> Wanted:
    """A leaf that is not below a list or map."""
    column = next(column for column in schema.columns if any(each.id == leaf.id for each in _below(schema, column)))
    field = pa.field(leaf.name, leaf_type(leaf.dtype, leaf.name), nullable=leaf.nullable)
    return Wanted(column, leaf, (leaf,), field)


def _named(schema: Schema, name: str, *, case_sensitive: bool) -> Wanted:
    for column in schema.columns:
        if name == column.name or (not case_sensitive and name.lower() == column.name.lower()):
            return _whole(schema, column)
    leaf = schema.find(name, case_sensitive=case_sensitive)
    if leaf is None:
        raise InvalidRequest(f"column {name!r} is a part that cannot be read alone", column=name)
    if leaf.repeated:
        raise UnknownColumn(f"column {name!r} lies below a list or map; read the whole column", column=name)
    return wanted_leaf(schema, leaf)


def _whole(schema: Schema, column: Column) -> Wanted:
    leaves = _below(schema, column)
    flat = not column.dtype.is_nested
    return Wanted(column, leaves[0] if flat else None, leaves, arrow_field(column))


def _below(schema: Schema, column: Column) -> tuple[Leaf, ...]:
    return tuple(leaf for leaf in schema.leaves() if leaf.path[0] == column.name)
