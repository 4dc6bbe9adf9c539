"""A remembered answer held against the rows of the block's file."""

from __future__ import annotations

from lamella.snapshot.errors import LamellaError, StoreError
from lamella.snapshot.expression import Predicate
from lamella.snapshot.index.block_values import own_footer
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import Block
from lamella.snapshot.rows import RowFilter
from lamella.snapshot.schema import Schema
from lamella.snapshot.verify.sampled_rows import read_leaves


def matching_rows(
    store: Store,
    block: Block,
    predicate: Predicate,
    written: Schema,
    schema: Schema,
    *,
    time_zone: str,
    case_sensitive: bool,
) -> int | None:
    """How many rows of a block match; None: that cannot be told (the file is gone, or is another one by now, ...).

    ``written``: the schema that the block was written with, ``schema``: the one that the predicate is about.

    Raises StoreError: storage failed.
    """
    try:
        rows_filter = RowFilter(predicate, schema, time_zone=time_zone, case_sensitive=case_sensitive)
        footer = own_footer(store, block)
        rows = read_leaves(store, footer, written, schema, rows_filter.columns)
        return None if rows is None else int(rows_filter.matches(rows.columns, rows.count).sum())
    except StoreError:
        raise
    except LamellaError:
        return None
