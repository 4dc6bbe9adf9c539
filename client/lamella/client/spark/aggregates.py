"""Aggregates that are known without Spark reading the table: a query becomes a few rows in its plan.

The service proves counts, minima, maxima and sums from statistics. Blocks for which it cannot are read here, on the
driver, if they are few; otherwise Spark reads the table as always.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from lamella.client.spark.catalyst import COLUMNS, find_leaf, kind_of
from lamella.client.spark.gateway import SQL
from lamella.client.spark.literal import TRUE, Inexpressible
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.client.spark.statement import ReadTable, elements, running_query
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.schema import Leaf, Schema

if TYPE_CHECKING:
    from lamella.client.spark.gateway import Gateway
    from lamella.client.spark.lake import LakeTable

_FUNCTIONS: Final = {"Count": "count", "Min": "min", "Max": "max", "Sum": "sum"}
#: Types of which Spark's order and values are those of the service.
_TYPES: Final = frozenset(
    {
        *("boolean", "date", "string", "binary", "float32", "float64", "decimal"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    }
)
#: What this process reads of a table at most; more is better read by Spark, on all of its executors.
_MAX_BLOCKS: Final = 16
_MAX_ROWS: Final = 4_000_000
#: Grouping by a column with many values takes Spark less time than the driver.
_MAX_GROUPED_ROWS: Final = 100_000
_log = logging.getLogger(__name__)


class Aggregates(msgspec.Struct, frozen=True):
    """Aggregates and keys of a query, as the service spells them, and the Spark types (JSON) of keys and results."""

    calls: tuple[str, ...]
    group_by: tuple[str, ...]
    types: tuple[str, ...]

    def struct(self) -> str:
        """Return the schema of the rows: keys, then results."""
        texts = (*self.group_by, *self.calls)
        fields = [
            {
                "name": f"{text} {number}" if text in texts[:number] else text,
                "type": kind,
                "nullable": True,
                "metadata": {},
            }
            for number, (text, kind) in enumerate(zip(texts, self.types, strict=True))
        ]
        return json.dumps({"type": "struct", "fields": fields})


#: A function and the path of its column; no path: of rows.
Call = tuple[str, list[str] | None]


def aggregates_of(table: LakeTable, calls: Iterable[Call], keys: Iterable[list[str]]) -> Aggregates:
    """Return aggregates of columns, which are given by their paths; raises Inexpressible for what the service does not
    compute."""
    types = _spark_types(json.loads(table.columns.readable)["fields"])
    found = [_typed(table.schema, types, *call) for call in calls]
    groups = [_compared(table.schema, types, path) for path in keys]
    if not found:
        raise Inexpressible("no aggregate")
    return Aggregates(
        calls=tuple(text for text, _ in found),
        group_by=tuple(leaf.reference for leaf, _ in groups),
        types=(*(kind for _, kind in groups), *(kind for _, kind in found)),
    )


def _typed(schema: Schema, types: Mapping[tuple[str, ...], str], name: str, path: list[str] | None) -> tuple[str, str]:
    """Return one aggregate, and Spark's type of its result."""
    if path is None:
        return "count(*)", "long"
    if name == "count":
        return f"count({find_leaf(schema, path).reference})", "long"
    leaf, shown = _compared(schema, types, path)
    call = f"{name}({leaf.reference})"
    if name != "sum":
        return call, shown
    if shown in ("byte", "short", "integer", "long"):
        return call, "long"
    if not shown.startswith("decimal("):
        raise Inexpressible("only integers and decimals have an exact sum")
    digits, scale = map(int, shown[8:-1].split(","))
    return call, f"decimal({min(38, digits + 10)},{scale})"


def _compared(schema: Schema, types: Mapping[tuple[str, ...], str], path: list[str]) -> tuple[Leaf, str]:
    """Return a column whose values Spark compares as the service does, and Spark's type."""
    leaf = find_leaf(schema, path)
    is_time = leaf.dtype.name in ("timestamp", "timestamp_ntz") and leaf.dtype.unit in ("ms", "us")
    if not (is_time or leaf.dtype.name in _TYPES) or leaf.path not in types:
        raise Inexpressible(f"values of type {leaf.dtype}")
    return leaf, types[leaf.path]


def _spark_types(fields: Iterable[dict[str, Any]], above: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    found: dict[tuple[str, ...], str] = {}
    for field in fields:
        path = (*above, field["name"])
        if isinstance(field["type"], str):
            found[path] = field["type"]
        elif field["type"]["type"] == "struct":
            found |= _spark_types(field["type"]["fields"], path)
    return found


def pushed_aggregates(table: LakeTable, aggregation: Any) -> Aggregates:
    """Return what Spark's ``Aggregation`` asks for; raises Inexpressible as :func:`aggregates_of`."""
    calls: list[Call] = []
    for each in aggregation.aggregateExpressions():
        kind = kind_of(each)
        if kind == "CountStar":
            calls.append(("count", None))
            continue
        if kind not in _FUNCTIONS or (kind in ("Count", "Sum") and each.isDistinct()):
            raise Inexpressible(f"aggregate {kind}")
        calls.append((_FUNCTIONS[kind], _path(each.column())))
    return aggregates_of(table, calls, map(_path, aggregation.groupByExpressions()))


def _path(expression: Any) -> list[str]:
    if kind_of(expression) != "FieldReference":
        raise Inexpressible("not a column")
    return [str(part) for part in expression.fieldNames()]


def as_spark(aggregates: Aggregates, rows: pa.Table) -> pa.Table:
    """Return results in Spark's types.

    Raises:
        Inexpressible: a sum that Spark's type cannot hold.
    """
    target = spark_arrow_schema(aggregates.struct())
    columns = []
    for number, field in enumerate(target):
        try:
            columns.append(rows.column(number).cast(field.type))
        except pa.ArrowInvalid as error:
            raise Inexpressible(f"{field.name} does not fit in {field.type}") from error
    return pa.table(columns, schema=target)


class KnownRows(msgspec.Struct, frozen=True, eq=False):
    """The result of aggregates over the rows that match a filter, in Spark's types."""

    aggregates: Aggregates
    rows: pa.Table
    tree: dict[str, Any]
    time_zone: str

    def part(self, wanted: Aggregates) -> KnownRows | None:
        """Return some of the results; None: one of them is not known."""
        mine = self.aggregates
        if wanted.group_by != mine.group_by or not set(wanted.calls) <= set(mine.calls):
            return None
        keys = len(mine.group_by)
        numbers = [*range(keys), *(keys + mine.calls.index(call) for call in wanted.calls)]
        return msgspec.structs.replace(self, aggregates=wanted, rows=self.rows.select(numbers))


def known_rows(table: LakeTable, aggregates: Aggregates, tree: dict[str, Any], time_zone: str) -> KnownRows | None:
    """Return the result of aggregates over the rows that match a filter; None: Spark has to find it."""
    settings = table.settings
    store: dict[str, Any] = (
        {"signed_urls": True} if settings.signed_urls else {"storage_options": settings.storage_options}
    )
    try:
        scan = table.handle.scan(
            None if tree == TRUE else tree, snapshot_id=table.snapshot_id, time_zone=time_zone, **store
        )
        max_rows = _MAX_GROUPED_ROWS if aggregates.group_by else _MAX_ROWS
        rows = scan.aggregate(aggregates.calls, group_by=aggregates.group_by, max_blocks=_MAX_BLOCKS, max_rows=max_rows)
        return KnownRows(aggregates, as_spark(aggregates, rows), tree, time_zone)
    # ImportError: no library for that kind of store here
    except (LamellaError, Inexpressible, ImportError, pa.ArrowException) as reason:
        _log.debug("%s: Spark computes %s: %s", table.key, aggregates.calls, reason)
        return None


# Which aggregates a query will ask for, seen while Spark pushes its filters down.
#
# Spark pushes aggregates down only if no condition is left for it to evaluate, which must be said before it asks. The
# plan of the query that runs tells.


def expected_aggregates(gateway: Gateway, table: LakeTable) -> Aggregates | None:
    """Return the aggregates that the running query computes over the filtered rows of a table, if it reads nothing else
    and does nothing else with them; None: it does, or this cannot be told."""
    query = running_query(gateway)
    plan = None if query is None else query.analyzed()
    if plan is None or plan.collectLeaves().size() != 1:
        return None
    aggregate, subquery = (
        gateway.static(SQL + "catalyst.trees.TreePattern", name)() for name in ("AGGREGATE", "PLAN_EXPRESSION")
    )
    if not plan.containsPattern(aggregate) or plan.containsPattern(subquery):
        return None
    above: list[Any] = []
    node = plan
    while (children := node.children()).size() == 1:
        above.append(node)
        node = children.apply(0)
    try:
        return _expected(gateway, table, above, node)
    except Inexpressible as reason:
        _log.debug("%s: Spark computes the aggregates: %s", table.key, reason)
        return None


def _expected(gateway: Gateway, table: LakeTable, above: list[Any], leaf: Any) -> Aggregates:
    proxy = gateway.python_object(leaf.table()) if kind_of(leaf) == "DataSourceV2Relation" else None
    if not isinstance(proxy, ReadTable) or proxy._table.key != table.key:
        raise Inexpressible("another table")
    # Names of the columns by the ids of the attributes that stand for them.
    paths = {int(each.exprId().id()): [str(each.name())] for each in elements(leaf.output())}
    while above:
        node = above.pop()
        kind = kind_of(node)
        if kind == "Aggregate":
            calls = [call for each in elements(node.aggregateExpressions()) for call in _calls(paths, each)]
            keys = [_column(paths, each) for each in elements(node.groupingExpressions())]
            return aggregates_of(table, calls, [key for at, key in enumerate(keys) if key not in keys[:at]])
        # A condition that Spark cannot push down would stay between the scan and the aggregate.
        if not all(each.deterministic() for each in elements(node.expressions())):
            raise Inexpressible("an expression that is not deterministic")
        if kind == "Project":
            for each in elements(node.projectList()):
                if kind_of(each) == "Alias" and kind_of(each.child()) in COLUMNS:
                    paths[int(each.exprId().id())] = _column(paths, each.child())
        elif kind not in ("Filter", "SubqueryAlias", "View"):
            raise Inexpressible(f"{kind} below the aggregate")
    raise Inexpressible("no aggregate")


def _calls(paths: dict[int, list[str]], expression: Any) -> Iterator[Call]:
    if kind_of(expression) != "AggregateExpression":
        for each in elements(expression.children()):
            yield from _calls(paths, each)
        return
    function = expression.aggregateFunction()
    name = "average" if kind_of(function) == "Average" else _FUNCTIONS.get(kind_of(function))
    children = elements(function.children())
    if name is None or expression.isDistinct() or expression.filter().isDefined() or len(children) != 1:
        raise Inexpressible("an aggregate that is not known")
    (child,) = children
    if name == "count" and kind_of(child) == "Literal" and child.value() is not None:
        yield "count", None
        return
    path = _column(paths, child)
    yield from [("sum", path), ("count", path)] if name == "average" else [(name, path)]


def _column(paths: dict[int, list[str]], expression: Any) -> list[str]:
    if kind_of(expression) == "GetStructField":
        child = expression.child()
        return [*_column(paths, child), str(child.dataType().fieldNames()[expression.ordinal()])]
    if kind_of(expression) != "AttributeReference" or (number := int(expression.exprId().id())) not in paths:
        raise Inexpressible("not a column")
    return paths[number]
