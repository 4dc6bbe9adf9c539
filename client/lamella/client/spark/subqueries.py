"""Conditions with scalar subqueries, whose values are known when a scan is executed: they leave out blocks then.

Spark does not push such conditions down; it evaluates them above the scan, and computes each subquery before that. So
when it asks for the partitions of a scan, the plan of the running query tells the condition, and the subqueries their
values. A scan that the plan has several times is left alone, since nothing tells which of them asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lamella.client.spark.catalyst import ConstantExpression, FilterWalker, kind_of
from lamella.client.spark.gateway import SQL, Gateway
from lamella.client.spark.literal import Inexpressible
from lamella.client.spark.statement import elements, nodes_of, running_query
from lamella.snapshot.schema import Schema

_SCAN: Final = "DataSourceV2ScanRelation"
_PATTERN: Final = SQL + "catalyst.trees.TreePattern"


def subquery_filter(gateway: Gateway, scan: object, schema: Schema) -> tuple[dict[str, Any], str] | None:
    """Return the conditions with scalar subqueries above a scan of the running query, and the time zone to send with
    them; None: there are none, or they are not known."""
    query = running_query(gateway)
    plan = None if query is None else query.optimizedPlan()
    if plan is None or not plan.containsPattern(gateway.static(_PATTERN, "SCALAR_SUBQUERY")()):
        return None
    found = [node for node in nodes_of(plan) if kind_of(node) == _SCAN and gateway.python_object(node.scan()) is scan]
    conditions = _conditions_above(gateway, plan, scan) if len(found) == 1 else []
    if not conditions:
        return None
    values = _Values(query.executedPlan())
    walker = FilterWalker(schema, time_zone=gateway.time_zone(), value_of_subquery=values.of)
    trees = [walker.tree(condition) for condition in conditions]
    return {"type": "and", "children": trees}, walker.time_zone


def _conditions_above(gateway: Gateway, plan: Any, scan: object) -> list[Any]:
    """Return the conjuncts with scalar subqueries of the filter over a scan."""
    pattern = gateway.static(_PATTERN, "SCALAR_SUBQUERY")()
    for node in nodes_of(plan):
        if kind_of(node) != "Filter" or not node.condition().containsPattern(pattern):
            continue
        below = node.child()  # not above a projection, whose columns may have other names
        if kind_of(below) == _SCAN and gateway.python_object(below.scan()) is scan:
            return [each for each in _conjuncts(node.condition()) if each.containsPattern(pattern)]
    return []


def _conjuncts(condition: Any) -> list[Any]:
    found: list[Any] = []
    pending = [condition]
    while pending:
        e = pending.pop()
        if kind_of(e) == "And":
            pending += [e.right(), e.left()]
        else:
            found.append(e)
    return found


def _physical(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a physical plan, with the plans of its stages and subqueries."""
    pending = [plan]
    while pending:
        node = pending.pop()
        yield node
        kind = kind_of(node)
        if kind == "AdaptiveSparkPlanExec":
            pending.append(node.executedPlan())
        elif kind.endswith("QueryStageExec"):
            pending.append(node.plan())
        else:
            pending += [*elements(node.children()), *elements(node.subqueries())]


def _expressions(e: Any) -> Iterator[Any]:
    yield e
    for child in elements(e.children()):
        yield from _expressions(child)


class _Values:
    """The values of the scalar subqueries in the conditions of a physical plan."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self._found: dict[int, Any] | None = None

    def of(self, subquery: Any) -> ConstantExpression:
        """Return the value of a subquery as a constant; raises Inexpressible if it is not known."""
        if self._found is None:
            conditions = [node.condition() for node in _physical(self._plan) if kind_of(node) == "FilterExec"]
            each = (e for condition in conditions for e in _expressions(condition))
            self._found = {int(e.exprId().id()): e.plan() for e in each if kind_of(e) == "ScalarSubquery"}
        plan = self._found.get(int(subquery.exprId().id()))
        if plan is None:
            raise Inexpressible("a subquery whose value is not known")
        dtype, rows = subquery.dataType(), plan.executeCollect()
        return ConstantExpression(rows[0].get(0, dtype) if len(rows) else None, dtype)
