"""Which columns rows can be laid out by."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema.column import Leaf, Schema

#: Columns of a cluster key at most.
MOST_COLUMNS = 16


def cluster_leaves(schema: Schema, columns: Sequence[str], *, case_sensitive: bool = False) -> tuple[Leaf, ...]:
    """The columns of a cluster key, named by their paths.

    Raises:
        UnknownColumn: not a column that holds values.
        InvalidRequest: named twice, without an order, inside a list or map; more than :data:`MOST_COLUMNS`.
    """
    if len(columns) > MOST_COLUMNS:
        raise InvalidRequest(f"a cluster key has at most {MOST_COLUMNS} columns, not {len(columns)}")
    leaves = tuple(schema.leaf(path, case_sensitive=case_sensitive) for path in columns)
    for leaf in leaves:
        if leaf.dtype.order is None or leaf.repeated:
            raise InvalidRequest(f"rows cannot be ordered by column {leaf.name!r} ({leaf.dtype})", column=leaf.name)
    if len({leaf.id for leaf in leaves}) != len(leaves):
        names = [leaf.name for leaf in leaves]
        raise InvalidRequest("a column stands twice in cluster_key", cluster_key=names)
    return leaves


def cluster_columns(schema: Schema, columns: Sequence[str]) -> tuple[str, ...]:
    """The same, spelled as in the schema."""
    return tuple(leaf.reference for leaf in cluster_leaves(schema, columns))
