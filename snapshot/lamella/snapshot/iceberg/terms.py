"""A filter in terms of one schema of a table, asked of a snapshot that has another one."""

from __future__ import annotations

import msgspec

from lamella.snapshot.expression.nodes import Unknown
from lamella.snapshot.iceberg.filter import IcebergFilter, IcebergLeaf, predicate_of, read_iceberg_filter
from lamella.snapshot.schema import Schema


def filter_for(given: object, spoken: Schema, stored: Schema, *, case_sensitive: bool) -> IcebergFilter:
    """The filter of a request whose names are those of ``spoken``, for a snapshot whose schema is ``stored``.

    A predicate on a column that the two call or type differently is not used, and stays in every residual.

    Raises as :func:`lamella.snapshot.iceberg.filter.read_iceberg_filter`.
    """
    read = read_iceberg_filter(given, spoken, case_sensitive=case_sensitive)
    if spoken.columns == stored.columns:
        return read
    then = stored.by_id()
    same = {
        leaf.name if case_sensitive else leaf.name.lower()
        for leaf in spoken.leaves()
        if leaf.id in then and (then[leaf.id].path, then[leaf.id].dtype) == (leaf.path, leaf.dtype)
    }
    leaves = tuple(_for(leaf, same, case_sensitive=case_sensitive) for leaf in read.leaves)
    return msgspec.structs.replace(read, leaves=leaves, predicate=predicate_of(read.shape, leaves))


def _for(leaf: IcebergLeaf, same: set[str], *, case_sensitive: bool) -> IcebergLeaf:
    name = leaf.node.get("term")
    if isinstance(name, str) and (name if case_sensitive else name.lower()) in same:
        return leaf
    text = f"{name} {leaf.node['type']}"
    return msgspec.structs.replace(leaf, readings=(Unknown(text, "the column is another one in that snapshot"),))
