"""Conditions with subqueries, whose values are known when a scan is executed: they leave out blocks then.

Spark does not push such conditions down; it evaluates them above the scan. It computes scalar subqueries before that,
and of ``IN`` and ``EXISTS`` it makes joins, of which the small side is broadcast before that. So when it asks for the
partitions of a scan, the plan of the running query has the conditions and the values (``Subqueries.java``).
"""

from __future__ import annotations

from typing import Any, Final

from lamella.client.spark.catalyst import ConstantExpression, FilterWalker
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.statement import elements, running_query
from lamella.snapshot.schema import Schema

#: Of the values of a subquery.
_MAX_RANGES: Final = 64


def subquery_filter(
    gateway: Gateway, scan: object, schema: Schema, *, max_distinct: int, max_listed: int, semi_joins: bool
) -> tuple[dict[str, Any], str] | None:
    """Return the conditions with subqueries above a scan of the running query, and the time zone to send with them;
    None: there are none, or they are not known.

    ``max_distinct`` and ``max_listed``: of the values of a subquery, see :func:`constants_of`. ``semi_joins``: use
    those of semi joins too.
    """
    query = running_query(gateway)
    if query is None:
        return None
    above = gateway.classes.subqueries.scans(query.optimizedPlan(), query.executedPlan())
    found = next((each for each in above if gateway.python_object(each.scan()) is scan), None)
    conditions = [] if found is None else elements(found.conditions(max_distinct, max_listed, _MAX_RANGES, semi_joins))
    if not conditions:
        return None
    walker = FilterWalker(schema, time_zone=gateway.time_zone(), max_values=max_distinct, value_of_subquery=_value)
    trees = [walker.tree(condition) for condition in conditions]
    return {"type": "and", "children": trees}, walker.time_zone


def _value(subquery: Any) -> ConstantExpression:
    """Return the value of a scalar subquery of a physical plan, which Spark computes once."""
    dtype, rows = subquery.dataType(), subquery.plan().executeCollect()
    return ConstantExpression(rows[0].get(0, dtype) if len(rows) else None, dtype)
