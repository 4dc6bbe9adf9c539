"""The statement that Spark runs, as its plan tells it: which tables it reads, and whether it finds the same rows twice.

Spark evaluates the source of a statement twice: once to find the rows of the table that match, and once to compute the
new rows. If the second time the source has other rows, a row that matches could be missing among those that were read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from lamella.client.spark.catalyst import kind_of
from lamella.client.spark.gateway import SQL, Gateway
from lamella.client.spark.lake import LakeTable
from lamella.client.spark.literal import TRUE
from lamella.client.spark.proxy import Proxy
from lamella.snapshot.errors import CommitConflict, InvalidRequest
from lamella.snapshot.wire import TableRead
from lamella.snapshot.wire.commit import MAX_READS

_EXECUTION: Final = "spark.sql.execution.id"
_SCAN: Final = "DataSourceV2ScanRelation"
#: Nodes whose rows depend on nothing but the rows of their children. Limits and samples are missing: they choose.
_REPEATABLE: Final = frozenset(
    {
        *("Project", "Filter", "Join", "Union", "Expand", "Generate", "Sort", "Distinct", "Deduplicate"),
        *("Except", "Intersect", "Repartition", "RepartitionByExpression", "RebalancePartitions", "SubqueryAlias"),
        *("View", "WithCTE", "CTERelationDef", "CTERelationRef", "ResolvedHint", "CollectMetrics", "LateralJoin"),
        *("BatchEvalPython", "ArrowEvalPython", "LocalRelation", "Range", "OneRowRelation"),
    }
)
_FILE_TABLES: Final = frozenset({"ParquetTable", "OrcTable", "CSVTable", "JsonTable", "TextTable", "AvroTable"})
_WINDOWS: Final = frozenset({"Window", "WindowGroupLimit"})
_RANKS: Final = frozenset({"RowNumber", "Rank", "DenseRank"})
#: Aggregate functions that choose none of several rows.
_AGGREGATES: Final = frozenset(
    {
        *(
            "Count",
            "CountIf",
            "Max",
            "Min",
            "Sum",
            "Average",
            "BoolAnd",
            "BoolOr",
            "BitAndAgg",
            "BitOrAgg",
            "BitXorAgg",
        ),
        *("StddevSamp", "StddevPop", "VarianceSamp", "VariancePop"),
    }
)


class ReadTable(Proxy):
    """A table of a Lamella service in a plan."""

    class Java:
        implements: list[str] = []  # noqa: RUF012  # of the subclasses

    #: The table at its snapshot.
    _table: LakeTable


class ReadScan(Proxy):
    """A scan of such a table."""

    class Java:
        implements: list[str] = []  # noqa: RUF012

    def _filter(self) -> tuple[dict[str, Any], str]:
        """Return the filter by which the scan left out blocks, and its time zone; by default it may depend on all
        rows."""
        return TRUE, "UTC"


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """``is_repeatable``: the rows that match are the same whenever Spark looks for them. ``reads_only_rows``: it reads
    nothing but the rows of the table. ``may_match_repeatedly``: several rows of the source may match a row, which is
    deleted in any case. ``reads``: tables of the service that it reads in other ways."""

    is_repeatable: bool
    may_match_repeatedly: bool
    reads_only_rows: bool
    reads: tuple[TableRead, ...]

    @classmethod
    def running(cls, gateway: Gateway, verb: str, service_url: str) -> Statement:
        """Return the statement that the current callback is part of.

        Raises:
            InvalidRequest: it cannot be told from others, since threads are not pinned; or its condition may find other
                rows each time.
        """
        query = changing_query(gateway, verb)
        matching = list(_matching_plans(query))
        is_repeatable = all(_is_repeatable(gateway, plan) for plan in matching)
        if verb == "UPDATE" and kind_of(query) == "Union" and not (matching and is_repeatable):
            # Spark evaluates the condition once for the rows that change, and once for those that stay.
            raise InvalidRequest(
                "the subquery of this UPDATE may find other rows each time it runs (LIMIT, or a source that is not"
                " known to stay the same); write its result to a table first, or use MERGE"
            )
        nodes = list(nodes_of(query, but_matching=True))
        return cls(
            is_repeatable=is_repeatable,
            may_match_repeatedly=any(kind_of(node) == "MergeRows" and _only_deletes(node) for node in nodes),
            reads_only_rows=all(_is_changed(node) for node in nodes if not node.children().size()),
            reads=table_reads(gateway, query, service_url),
        )


def changing_query(gateway: Gateway, verb: str) -> Any:
    """Return the plan of the rows that the running statement writes.

    Raises:
        InvalidRequest: which statement runs cannot be told, since threads are not pinned.
    """
    execution = running_query(gateway)
    for node in nodes_of(execution.optimizedPlan()) if execution is not None else ():
        if kind_of(node) == "ReplaceData":
            return node.query()
    raise InvalidRequest(
        f"this session cannot {verb} rows of a Lamella table by SQL: callbacks of Spark need pinned threads"
        " (PYSPARK_PIN_THREAD). The functions update, merge and delete of lamella.client.spark do without"
    )


def running_query(gateway: Gateway) -> Any:
    """Return the ``QueryExecution`` that the current callback is part of; None: it is not known."""
    number = gateway.local_property(_EXECUTION) if gateway.pins_threads else None
    if number is None:
        return None
    return gateway.java_class(SQL + "execution.SQLExecution").getQueryExecution(int(number))


def _only_deletes(merge: Any) -> bool:
    """Whether a ``MergeRows`` deletes all rows that match. Spark then lets several rows of the source match one."""
    # The last instruction copies what no clause is about.
    return not merge.checkCardinality() and int(merge.matchedInstructions().size()) > 1


def table_reads(gateway: Gateway, plan: Any, service_url: str) -> tuple[TableRead, ...]:
    """Return what an optimised plan reads of tables of a service at their current snapshots."""
    found = dict.fromkeys(map(msgspec.json.encode, _table_reads(gateway, plan, service_url)))
    if len(found) > MAX_READS:
        raise InvalidRequest(f"a statement reads at most {MAX_READS} tables in different ways, not {len(found)}")
    return tuple(msgspec.json.decode(each, type=TableRead) for each in found)


def excludes_rows_of(gateway: Gateway, plan: Any, table_id: str) -> bool:
    """Whether an optimised plan has rows that a table lacks: an anti join with it."""
    for node in nodes_of(plan):
        if kind_of(node) == "Join" and str(node.joinType().toString()) == "LeftAnti":
            for each in nodes_of(node.right()):
                proxy = gateway.python_object(each.relation().table()) if kind_of(each) == _SCAN else None
                if isinstance(proxy, ReadTable) and proxy._table.table_id == table_id:
                    return True
    return False


def run_again(error: CommitConflict, verb: str) -> CommitConflict:
    """Return a conflict with a sentence on what to do."""
    return type(error)(
        f"{error.message}. Others changed what this {verb} read; nothing was done. Run the statement again",
        **error.details,
    )


def _table_reads(gateway: Gateway, plan: Any, service_url: str) -> Iterator[TableRead]:
    for node in nodes_of(plan, but_matching=True):
        kind = kind_of(node)
        if kind == "InMemoryRelation":
            yield from _table_reads(gateway, node.cacheBuilder().logicalPlan(), service_url)
        if kind not in (_SCAN, "DataSourceV2Relation"):
            continue
        relation = node.relation() if kind == _SCAN else node
        proxy = gateway.python_object(relation.table())
        if not isinstance(proxy, ReadTable) or relation.timeTravelSpec().isDefined():
            continue
        table = proxy._table
        scan = gateway.python_object(node.scan()) if kind == _SCAN else None
        tree, time_zone = scan._filter() if isinstance(scan, ReadScan) else (TRUE, "UTC")
        if table.service_url == service_url:
            yield TableRead(
                table=table.name,
                snapshot_id=table.snapshot_id,
                filter=None if tree == TRUE else tree,
                time_zone=time_zone,
            )


def nodes_of(plan: Any, *, but_matching: bool = False) -> Iterator[Any]:
    """Yield a plan and everything below it, with the plans inside of expressions; ``but_matching``: without those by
    which Spark looks for the rows that match."""
    pending = [plan]
    while pending:
        node = pending.pop()
        yield node
        below = [node.children()]
        if not (but_matching and kind_of(node) == "Filter" and _is_changed(node.child())):
            below.append(node.subqueries())
        for more in below:
            pending += elements(more)


def elements(seq: Any) -> list[Any]:
    """Return the elements of a Scala ``Seq``."""
    return [seq.apply(at) for at in range(seq.size())]


def _matching_plans(query: Any) -> Iterator[Any]:
    """Yield the plans by which Spark looks for the rows that match."""
    for node in nodes_of(query, but_matching=True):
        if kind_of(node) == "Filter" and _is_changed(node.child()):
            yield from elements(node.subqueries())


def _is_changed(node: Any) -> bool:
    """Whether a node is a scan of the rows to change."""
    return kind_of(node) == _SCAN and kind_of(node.relation().table()) == "RowLevelOperationTable"


def _is_repeatable(gateway: Gateway, plan: Any) -> bool:
    """Whether a plan has the same rows each time it runs."""
    nodes = list(nodes_of(plan))
    windows = [node for node in nodes if kind_of(node) in _WINDOWS]
    others = [node for node in nodes if kind_of(node) not in _WINDOWS]
    if not all(_is_repeatable_node(gateway, node) for node in others) or not plan.deterministic():
        return False
    return not windows or _uses_only_partitions(gateway, others, windows)


def _is_repeatable_node(gateway: Gateway, node: Any) -> bool:
    kind = kind_of(node)
    if kind == "Aggregate":
        return all(_is_repeatable_value(each) for each in elements(node.aggregateExpressions()))
    if kind in _REPEATABLE:
        return True
    if kind == "LogicalRelation":
        return kind_of(node.relation()) == "HadoopFsRelation"
    if kind == _SCAN:
        table = node.relation().table()
        return kind_of(table) in _FILE_TABLES or isinstance(gateway.python_object(table), ReadTable)
    if kind == "LogicalRDD":
        return str(node.rdd().outputDeterministicLevel().toString()) != "INDETERMINATE"
    return False


def _is_repeatable_value(expression: Any) -> bool:
    if kind_of(expression) == "AggregateExpression" and kind_of(expression.aggregateFunction()) not in _AGGREGATES:
        return False
    return all(map(_is_repeatable_value, elements(expression.children())))


def _uses_only_partitions(gateway: Gateway, nodes: list[Any], windows: list[Any]) -> bool:
    """Whether joins and filters above use only ranks and the columns by which ranks are partitioned.

    Of rows with equal order either may be the first, but each partition has one. This is how a source is reduced to one
    row for each key.
    """
    same: dict[int, int] = {}
    for node in nodes:
        for each in elements(node.projectList()) if kind_of(node) == "Project" else ():
            if kind_of(each) == "Alias" and kind_of(each.child()) == "AttributeReference":
                same[int(each.exprId().id())] = int(each.child().exprId().id())
    chosen: set[int] = set()
    below: set[int] = set()
    for window in windows:
        chosen |= _attributes(window.partitionSpec())
        below |= _attributes(window.child().output())
        for each in elements(window.windowExpressions()) if kind_of(window) == "Window" else ():
            if kind_of(each) != "Alias" or kind_of(each.child().windowFunction()) not in _RANKS:
                return False
    for node in nodes:
        above = node.containsPattern(gateway.static(SQL + "catalyst.trees.TreePattern", "WINDOW")())
        if not above or kind_of(node) not in ("Join", "Filter", "Aggregate", "Generate", "Deduplicate"):
            continue
        for used in _attributes(node.expressions()):
            while used in same:
                used = same[used]
            if used in below and used not in chosen:
                return False
    return True


def _attributes(expressions: Any) -> set[int]:
    """Return the ids of the attributes that expressions refer to."""
    found = [elements(each.references().toSeq()) for each in elements(expressions)]
    return {int(attribute.exprId().id()) for some in found for attribute in some}
