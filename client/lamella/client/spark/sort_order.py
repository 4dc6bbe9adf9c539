"""Spark's sort orders (of a ``LIMIT`` behind an ``ORDER BY``) as orders of a prune."""

from __future__ import annotations

from typing import Any

from lamella.client.spark.catalyst_terms import find_leaf
from lamella.client.spark.literal import Inexpressible
from lamella.snapshot.schema import Schema
from lamella.snapshot.wire import OrderBy


def order_of(schema: Schema, orders: Any) -> tuple[OrderBy, ...]:
    """The order of a Java array of ``SortOrder``; empty when its first part is not a column.

    Later parts only decide between equal first keys, so one that is no column is named by the first: all that matters
    is that there is one.
    """
    found: list[OrderBy] = []
    for order in orders:
        expression = order.expression()
        try:
            if expression.getClass().getSimpleName() != "FieldReference":
                raise Inexpressible("not a column")
            column = find_leaf(schema, [str(part) for part in expression.fieldNames()]).name
        except Inexpressible:
            if not found:
                return ()
            found.append(found[0])
            continue
        found.append(
            OrderBy(
                column=column,
                descending=str(order.direction().name()) == "DESCENDING",
                nulls_first=str(order.nullOrdering().name()) == "NULLS_FIRST",
            )
        )
    return tuple(found)
