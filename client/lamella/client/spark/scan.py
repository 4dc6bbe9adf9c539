"""Plans a read of one table: takes filters, selects blocks, and uses Spark's own vectorised Parquet scan.

Keys that Spark collects from the small side of a join prune again at run time. Plans show filters as one short line.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from lamella.client.spark.aggregates import (
    KnownRows,
    expected_aggregates,
    known_rows,
    pushed_aggregates,
)
from lamella.client.spark.block_scan import NO_FILTERS, NOTES, BlockScan, Pushed
from lamella.client.spark.catalyst import FilterWalker, kind_of, order_of
from lamella.client.spark.column_statistics import column_statistics, is_wanted
from lamella.client.spark.gateway import CONNECTOR, SQL, Gateway
from lamella.client.spark.lake import BlockSelection, LakeTable
from lamella.client.spark.literal import FALSE, TRUE, Inexpressible, literal, unknown
from lamella.client.spark.local_rows import LocalRows, statistics
from lamella.client.spark.metadata_column import NAME, filter_of_blocks, has_metadata, matching_blocks
from lamella.client.spark.parquet_pushdown import columns_in, is_sound_in_parquet
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.read_expression import live, read_expressions, referred_names
from lamella.client.spark.row_ids import id_column
from lamella.client.spark.statement import ReadScan
from lamella.client.spark.stream_read import LakeStream
from lamella.client.spark.subqueries import subquery_filter
from lamella.client.spark.v2_predicates import constants_of, listed_type
from lamella.client.spark.vector_scan import fast_condition, hidden_fields
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.schema import Column, Schema, quoted
from lamella.snapshot.wire import JoinKeys, OrderBy

if TYPE_CHECKING:
    from lamella.client.spark.lake import BlockSelection


_OPERATOR_TEXTS: Final = {
    "eq": "=",
    "not-eq": "!=",
    "eq-null-safe": "<=>",
    "lt": "<",
    "lt-eq": "<=",
    "gt": ">",
    "gt-eq": ">=",
    "starts-with": "STARTS WITH",
    "like": "LIKE",
    "rlike": "RLIKE",
}
_TESTS: Final = {"is-null": "IS NULL", "not-null": "IS NOT NULL", "is-nan": "IS NAN"}
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # wall clock; the zone is written behind it
_MAX_VALUES: Final = 5
_SEPARATOR: Final = "\0"
_MAX_RESIDUAL: Final = 120
#: So many join keys are a condition, which skip indexes can test; more are ranges.
_MAX_LISTED_KEYS: Final = 1_000
#: Of join keys, unless there are more blocks: each could be in a gap of its own.
_MIN_KEY_RANGES: Final = 1_000
#: The service takes no more columns with join keys.
_MAX_JOINS: Final = 32
#: Asking which of fewer blocks the keys of a join leave costs more than it saves.
_MIN_BLOCKS_FOR_JOIN_KEYS: Final = 2


def filter_text(tree: Mapping[str, Any]) -> str:
    """Return the tree as SQL-like text, for people; long lists are cut."""
    kind = tree["type"]
    if kind in ("and", "or"):
        return "(" + f" {kind.upper()} ".join(filter_text(child) for child in tree["children"]) + ")"
    if kind == "not":
        return f"NOT {filter_text(tree['child'])}"
    if kind in ("is-true", "is-unknown"):
        return f"({filter_text(tree['child'])}) IS {'TRUE' if kind == 'is-true' else 'NULL'}"
    if kind in _TESTS:
        return f"{_term(tree['term'])} {_TESTS[kind]}"
    if kind == "in":
        values = [_value_text(value) for value in tree["values"][:_MAX_VALUES]]
        more = len(tree["values"]) - len(values)
        return f"{_term(tree['term'])} IN ({', '.join(values)}{f', {more} more' if more else ''})"
    if kind in _OPERATOR_TEXTS:
        return f"{_term(tree['term'])} {_OPERATOR_TEXTS[kind]} {_term(tree['value'])}"
    if kind == "unknown":
        return f"UNKNOWN[{tree['text']}]"
    return str(kind).upper()


def _term(tree: Any) -> str:
    """Return the text of a column, a function, a cast or a constant."""
    if isinstance(tree, str):
        return tree
    if tree["type"] == "literal":
        return _value_text(tree)
    if tree["type"] == "reference":
        return str(tree["name"])
    if tree["type"] == "cast":
        return f"CAST({_term(tree['term'])} AS {tree['to']})"
    if tree["type"] == "case":
        parts = [f"WHEN {filter_text(each['condition'])} THEN {_term(each['value'])}" for each in tree["branches"]]
        return f"CASE {' '.join(parts)} ELSE {_term(tree['otherwise'])} END"
    return f"{tree['function']}({', '.join(_term(each) for each in tree['arguments'])})"


def selection_text(selection: BlockSelection) -> list[str]:
    """Return short texts for a plan: the blocks by verdict, and their residual filters."""
    if selection.fell_back is not None:
        return []
    verdicts = " ".join(f"{name}:{count}" for name, count in sorted(Counter(selection.verdicts).items()))
    residuals = sorted(Counter(selection.residual_numbers).items())
    shown = [f"{selection.residuals[at][:_MAX_RESIDUAL]} ({blocks})" for at, blocks in residuals[:_MAX_VALUES]]
    if len(residuals) > _MAX_VALUES:
        shown.append(f"{len(residuals) - _MAX_VALUES} more")
    return [f"verdicts=[{verdicts}]", *([f"residual=[{'; '.join(shown)}]"] if shown else [])]


def order_text(by: OrderBy) -> str:
    """Return one column of an order as SQL."""
    nulls = "" if by.nulls_first is None else f" NULLS {'FIRST' if by.nulls_first else 'LAST'}"
    return f"{by.column} {'DESC' if by.descending else 'ASC'}{nulls}"


def _value_text(literal: Mapping[str, Any]) -> str:
    kind, value = literal["data-type"], literal["value"]
    try:
        if kind == "date":
            return f"DATE '{(_EPOCH + dt.timedelta(days=value)).date()}'"
        if kind in ("timestamp", "timestamp_ntz"):
            zone = "Z" if kind == "timestamp" else ""
            return f"'{(_EPOCH + dt.timedelta(microseconds=value)).isoformat()}{zone}'"
    except OverflowError:  # outside Python's range of years
        return f"{kind} {value}"
    if kind == "string":
        return f"'{value}'"
    return f"x'{value}'" if kind == "binary" else str(value)


# Join keys that Spark collects from the small side of a join, as filters of Lamella's language.


def prunable_columns(schema: Schema, names: Sequence[str]) -> list[str]:
    """Return the ``names`` whose join keys can be sent exactly: no floats (NaN, -0.0), no binary, nothing nested."""
    by_name = {column.name.lower(): column for column in schema.columns}
    found = [by_name.get(name.lower()) for name in names]
    return [column.name for column in found if column is not None and _key_type(column) is not None]


def join_filter(
    gateway: Gateway, schema: Schema, predicate: Any, *, max_distinct: int, max_ranges: int
) -> dict[str, Any] | JoinKeys:
    """Return one V2 predicate as a tree, or as ranges of keys if it has many values; unknown unless it is
    ``column IN (values of the column's type)``.

    ``max_distinct`` and ``max_ranges``: see :func:`constants_of`.
    """
    text = str(predicate.name())
    try:
        children = predicate.children()
        if text != "IN" or len(children) < 1:
            raise Inexpressible("not a list of join keys")
        path = list(children[0].fieldNames())
        column = next((c for c in schema.columns if [c.name.lower()] == [part.lower() for part in path]), None)
        spark_type = _key_type(column) if column is not None else None
        if column is None or spark_type is None:
            raise Inexpressible("join keys of a column whose keys cannot be sent")
        if len(children) == 1:
            return FALSE
        keys = constants_of(
            gateway,
            predicate,
            spark_type,
            max_distinct=max_distinct,
            max_listed=min(max_distinct, _MAX_LISTED_KEYS),
            max_ranges=max_ranges,
        )
        # A null key matches nothing.
        ranges = [[literal(column.dtype, spark_type, end) for end in each] for each in keys.ranges]
    except Inexpressible as reason:
        return unknown(text, str(reason))
    if not ranges:
        return FALSE
    if all(len(each) == 1 for each in ranges):
        return {"type": "in", "term": column.name, "values": [value for (value,) in ranges]}
    return JoinKeys(column=quoted(column.name), ranges=tuple((each[0], each[-1]) for each in ranges))


def _key_type(column: Column) -> str | None:
    return None if column.fields else listed_type(column.dtype)


_log = logging.getLogger(__name__)
_READ = CONNECTOR + "read."
_MAX_TEXT = 300
_PAGE_INDEX: Final = "parquet.filter.columnindex.enabled"
_NO_OPTIONS: Final = "{}"
# In characters: residuals of longer filters (lists of values) are not worth returning for a line of text.
_MAX_RESIDUAL_TREE = 10_000


def shortened(text: str) -> str:
    """Return the text, or its beginning if it is long."""
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."


class Request:
    """Spark's requests for one scan: filters, columns, options. Complete once ``build`` is called.

    ``deletes_column``: the hidden column by which filters choose the blocks with deleted rows, or the others; None:
    there is none.
    """

    def __init__(
        self,
        gateway: Gateway,
        table: LakeTable,
        options: Any,
        deletes_column: str | None,
    ) -> None:
        self.gateway = gateway
        self.table = table
        self.options = options
        self.deletes_column = deletes_column
        #: True: only blocks with deleted rows are read; False: only the others; None: both.
        self.has_deletes: bool | None = None
        self.tree: dict[str, Any] = TRUE
        #: The filter, as Spark passed it.
        self.filters: Any = None
        #: The conjuncts as their numbers in the filter and as trees, in Spark's order.
        self.conjuncts: list[tuple[int, dict[str, Any]]] = []
        #: Conjuncts that only Spark evaluates: which rows of a file are deleted.
        self.of_rows: list[Any] = []
        #: Conditions on ``_metadata`` by which blocks are left out.
        self.of_blocks = filter_of_blocks()
        #: The time zone to send with the trees.
        self.time_zone = "UTC"
        self.required = gateway.struct_type(table.columns.shown)
        #: The selected blocks; requested once, so that what Spark was told about them stays true.
        self.selection: BlockSelection | None = None
        self.limit: int | None = None
        #: What a query whose aggregates are known before Spark pushes them down will ask for.
        self.expected: KnownRows | None = None
        self._json: tuple[Any, str] | None = None
        self.order_by: tuple[OrderBy, ...] = ()

    @cached_property
    def options_text(self) -> str:
        """The options, as the text of a map."""
        return str(self.gateway.classes.requests.text(self.options))

    def required_json(self) -> str:
        """The requested columns, as the JSON of their struct type."""
        if self._json is None or self._json[0] is not self.required:
            self._json = (self.required, str(self.required.json()))
        return self._json[1]

    def required_names(self) -> list[str]:
        """The names of the requested columns, read from that JSON: reading an array of the JVM takes a call per
        element."""
        return [field["name"] for field in json.loads(self.required_json())["fields"]]

    def check_columns(self) -> None:
        """Raise InvalidSchema for a requested column that Spark cannot read."""
        hidden = {id_column(self.table.schema), *(field["name"] for field in hidden_fields(self.table.schema))}
        if has_metadata(self.table.schema):
            hidden.add(NAME)
        self.table.columns.check([name for name in self.required_names() if name not in hidden])

    @property
    def fully_pushed(self) -> bool:
        """Whether Spark was told that no filter is left to evaluate: every row of ``selection`` matches."""
        return bool(self.conjuncts) and self.selection is not None and self.selection.all_match

    def push(self, filters: Any) -> None:
        """Set the conjuncts of the filter, a Scala ``Seq`` of expressions."""
        self.filters = filters
        expressions, time_zone = read_expressions(self.gateway, filters)
        walker = FilterWalker(self.table.schema, time_zone=time_zone)
        for at, expression in enumerate(expressions):
            chosen = None if self.has_deletes is not None else self._chosen_blocks(expression)
            if chosen is not None:
                self.has_deletes = chosen
            elif self._is_of_rows(expression):
                self.of_rows.append(fast_condition(self.gateway, self.table.schema, live(expression)))
            else:
                if self._uses_metadata(expression):
                    self.of_blocks.push(live(expression), time_zone)
                self.conjuncts.append((at, walker.tree(expression)))
        self.time_zone = walker.time_zone
        trees = [tree for _, tree in self.conjuncts]
        if trees:
            self.tree = trees[0] if len(trees) == 1 else {"type": "and", "children": trees}

    def select(self) -> None:
        """Select the blocks, if there is a filter."""
        if self.tree != TRUE:
            self.selection = self.blocks(self.tree)

    def expect_aggregates(self) -> bool:
        """Find out whether all that the query asks for is an aggregate that can be told now; then no condition is left
        for Spark."""
        if self.tree == TRUE or self.has_deletes is not None or self.of_rows or not self.table.settings.aggregates:
            return False
        if "aggregates" in self.gateway.missing_hooks:
            return False
        wanted = expected_aggregates(self.gateway, self.table)
        if wanted is not None:
            self.expected = known_rows(self.table, wanted, self.tree, self.time_zone)
        return self.expected is not None

    def aggregate(self, aggregation: Any) -> KnownRows | None:
        """Return the result of Spark's ``Aggregation``; None: Spark has to find it."""
        try:
            wanted = pushed_aggregates(self.table, aggregation)
        except Inexpressible as reason:
            _log.debug("%s: Spark computes the aggregates: %s", self.table.key, reason)
            return None
        if self.expected is not None:
            # Spark may have rewritten them, `count(id)` as `count(*)` for example.
            return self.expected.part(wanted) or known_rows(self.table, wanted, self.tree, self.time_zone)
        if self.has_deletes is not None or self.of_rows or (self.conjuncts and not self.fully_pushed):
            return None
        if not self.table.settings.aggregates:
            return None
        return known_rows(self.table, wanted, self.tree, self.time_zone)

    def _chosen_blocks(self, expression: Any) -> bool | None:
        """Return whether a conjunct chooses blocks with deleted rows (True), or without (False); None: neither."""
        if self.deletes_column is None:
            return None
        negated = kind_of(expression) == "Not"
        column = expression.child() if negated else expression
        if kind_of(column) != "AttributeReference" or str(column.name()) != self.deletes_column:
            return None
        return not negated

    def _is_of_rows(self, expression: Any) -> bool:
        """Return whether a conjunct is about the columns that say which rows are deleted."""
        if self.deletes_column is None:
            return False
        return not referred_names(expression).isdisjoint(field["name"] for field in hidden_fields(self.table.schema))

    def _uses_metadata(self, expression: Any) -> bool:
        return has_metadata(self.table.schema) and referred_names(expression) == {NAME}

    def blocks(
        self,
        tree: dict[str, Any],
        *,
        limited: bool = False,
        time_zone: str | None = None,
        keys: Sequence[JoinKeys] = (),
    ) -> BlockSelection:
        """Return the blocks that a filter and the keys of joins select; ``limited``: only those needed for the limit.
        ``time_zone``: of the filter, if it is not that of the conditions that Spark pushed down."""
        selection = self.table.selection(
            None if tree == TRUE else tree,
            keys,
            time_zone=time_zone or self.time_zone,
            reader_columns=self.columns(),
            limit=self.limit if limited else None,
            order_by=self.order_by if limited else (),
            residuals=tree != TRUE and len(json.dumps(tree)) <= _MAX_RESIDUAL_TREE,
        )
        if self.of_blocks.conditions:
            selected = matching_blocks(self.of_blocks, selection.locations, selection.sizes, self.table.snapshot_id)
            selection = selection.part(selected)
        return selection if self.has_deletes is None else selection.part_by_deletes(self.has_deletes)

    def columns(self) -> list[str]:
        """Return the columns by which Spark's reader could skip."""
        found = [columns_in(tree) for _, tree in self.conjuncts]
        return sorted({name for names in found if names is not None for name in names})

    def pushed(self, believed: Collection[str]) -> tuple[Pushed, list[str]]:
        """Return the conjuncts that Spark's reader may skip by, and a text of each."""
        sound = [pair for pair in self.conjuncts if is_sound_in_parquet(pair[1], self.table.schema, believed)]
        texts = sorted(json.dumps(tree, sort_keys=True) for _, tree in sound)
        return Pushed(self.filters, tuple(at for at, _ in sound)), texts


class Plan:
    """The blocks of one filter and the native scan over them. Immutable."""

    def __init__(self, request: Request, tree: dict[str, Any], selection: BlockSelection) -> None:
        gateway, table = request.gateway, request.table
        self._gateway = gateway
        self.tree = tree
        self.selection = selection
        # Not when every row matches: Spark then does not read the columns of the filter, and when its reader skips
        # pages it treats an unread column as all null.
        pushed, texts = (NO_FILTERS, []) if request.fully_pushed else request.pushed(self.selection.believed)
        self.scan = BlockScan(
            gateway,
            table,
            selection,
            request.required,
            request.required_json(),
            _reader_options(request, self.selection),
            pushed=pushed,
        )
        #: Everything that determines which rows are read: two scans with the same key are interchangeable.
        self.key = json.dumps([table.key, selection.digest(), request.required_json(), texts, request.options_text])

    @cached_property
    def partitions(self) -> Any:
        """Return ``InputPartition[]``."""
        return self.scan.partitions()

    @cached_property
    def reader_factory(self) -> Any:
        """Return the reader factory. Created once: each one broadcasts Hadoop's whole configuration."""
        return self.scan.reader_factory()

    @cached_property
    def is_columnar(self) -> bool:
        """Whether Spark reads the blocks in batches of columns; False without blocks."""
        if self.scan.native is not None:
            return bool(self._gateway.classes.scans.isColumnar(self.scan.native))
        partitions = self.partitions
        return len(partitions) > 0 and bool(self.reader_factory.supportColumnarReads(partitions[0]))

    @cached_property
    def size_bytes(self) -> int:
        """Spark's own estimate for the requested columns of the selected blocks."""
        return self.scan.size_bytes()


def _reader_options(request: Request, selection: BlockSelection) -> Any:
    if request.table.trusts_page_index(selection):
        return request.options
    scans = request.gateway.classes.scans
    if request.options_text != _NO_OPTIONS:
        return scans.withOption(request.options, _PAGE_INDEX, "false")
    return request.gateway.shared(_PAGE_INDEX, lambda: scans.withOption(request.options, _PAGE_INDEX, "false"))


class LakeScanBuilder(Proxy):
    """Collects filters, columns and the limit.

    The filter goes back to Spark, which evaluates it again after the scan, unless every row of the selected blocks is
    proven to match. Only then does Spark push down a limit, which it also applies itself.
    """

    _once_for_all = "pushedFilters isPartiallyPushed"

    class Java:
        implements = [  # noqa: RUF012  # py4j reads it from the class
            SQL + "internal.connector.SupportsPushDownCatalystFilters",
            _READ + "SupportsPushDownRequiredColumns",
            _READ + "SupportsPushDownLimit",
            _READ + "SupportsPushDownTopN",
            _READ + "SupportsPushDownAggregates",
        ]

    def __init__(
        self,
        gateway: Gateway,
        table: LakeTable,
        options: Any,
        *,
        deletes_column: str | None = None,
    ) -> None:
        super().__init__(gateway)
        self._request = Request(gateway, table, options, deletes_column)
        self._known: KnownRows | None = None
        #: Spark does not ask streams for fewer columns.
        self._is_batch = False

    def pushFilters(self, filters: Any) -> Any:
        self._request.push(filters)
        request = self._request
        if request.expect_aggregates():
            return self._nothing()
        request.select()
        if request.fully_pushed:
            return self._gateway.seq(request.of_rows) if request.of_rows else self._nothing()
        if request.has_deletes is None:
            return filters
        left = (request.filters.apply(at) for at, _ in request.conjuncts)
        return self._gateway.seq([*left, *request.of_rows])

    def _nothing(self) -> Any:
        return self._gateway.shared("empty Seq", self._gateway.seq)

    def pushedFilters(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "expressions.filter.Predicate")

    def pruneColumns(self, required: Any) -> None:
        self._request.required = required
        self._is_batch = True

    def supportCompletePushDown(self, aggregation: Any) -> bool:
        # Spark replaces an average by a sum and a count only if results may be partial.
        return all(kind_of(each) != "Avg" for each in aggregation.aggregateExpressions())

    def pushAggregation(self, aggregation: Any) -> bool:
        self._known = self._request.aggregate(aggregation)
        return self._known is not None

    def pushLimit(self, limit: int) -> bool:
        if self._request.has_deletes is not None or self._known is not None:
            return False  # the blocks that are enough could all be among those that this scan leaves to the other
        self._request.limit = int(limit)
        return True

    def pushTopN(self, orders: Any, limit: int) -> bool:
        if self._request.has_deletes is not None or self._known is not None:
            return False
        self._request.order_by = order_of(self._request.table.schema, orders)
        self._request.limit = int(limit) if self._request.order_by else None
        return bool(self._request.order_by)

    def isPartiallyPushed(self) -> bool:
        return True  # Spark still sorts and counts

    def build(self) -> Any:
        if self._known is not None:
            return AggregateScan(self._gateway, self._request.table, self._known)
        if self._request.expected is not None:
            raise LamellaError(
                "Spark does not ask for the aggregates of its query as it usually does; attach with aggregates=False"
            )
        names = self._request.required_names()
        self._request.check_columns()
        if self._request.deletes_column in names:
            # No file has it. Spark reads it if it did not pass on a filter by it as it stands.
            raise InvalidRequest(f"{self._request.deletes_column} can only be a condition of its own")
        scan = LakeScan(self._gateway, self._request)
        return scan._planned() if self._is_batch else scan._in_jvm()


class LakeScan(ReadScan):
    """One scan. Its filter never changes; join keys that arrive later make a new plan for one execution."""

    _once = (
        "readSchema columnarSupportMode estimateStatistics estimateSizeInBytes filterAttributes"
        " reflectsFullyPushedDownFilters"
    )
    _once_for_all = "supportedCustomMetrics reportDriverMetrics pushedPredicates supportsIterativePushdown"

    class Java:
        implements = [  # noqa: RUF012
            _READ + "Scan",
            _READ + "SupportsReportStatistics",
            _READ + "SupportsRuntimeV2Filtering",
        ]

    def __init__(self, gateway: Gateway, request: Request) -> None:
        super().__init__(gateway)
        self._request = request
        self._stream: LakeStream | None = None
        self._lock = threading.Lock()
        self._narrowed: dict[int, Plan] = {}
        self._blocks_after_join: int | None = None
        self._blocks_after_subqueries: int | None = None

    @cached_property
    def _plan(self) -> Plan:
        """Made when it is needed: a stream has a plan for each micro-batch instead."""
        return Plan(self._request, self._request.tree, self._selection())

    def _planned(self) -> Any:
        """Return the object of the JVM for a scan of one snapshot, which has the answers of Spark's own scan."""
        plan = self._plan
        native = plan.scan.native
        if native is None:
            return self._in_jvm()
        selection, exact = plan.selection, self.reflectsFullyPushedDownFilters()
        answers = self._gateway.classes.scans.answers(
            native,
            plan.scan.own_schema,
            sum(selection.sizes),
            selection.row_count,
            plan.key,
            self._join_columns(),
            exact,
            self._column_statistics(),
        )
        if not plan.scan.is_plain:
            return self._in_jvm(answers)
        narrows = self._gateway.classes.subqueries if self._has_run_time_conditions() else None
        return self._in_jvm(answers, native, narrows)

    def _selection(self) -> BlockSelection:
        request = self._request
        selection = request.selection if request.selection is not None else request.blocks(request.tree)
        if request.limit is None:
            return selection
        fewer = request.blocks(request.tree, limited=True)
        # The fallback lists all blocks of the table, which is wrong when Spark does not filter them.
        return selection if fewer.fell_back is not None else fewer

    def _key(self) -> str:
        return self._plan.key if self._stream is None else self._stream._key()

    def _filter(self) -> tuple[dict[str, Any], str]:
        request = self._request
        # Blocks that are left out for a limit are not known to be without a matching row.
        return (request.tree if request.limit is None else TRUE, request.time_zone)

    def readSchema(self) -> Any:
        return self._plan.scan.schema if self._stream is None else self._request.required

    def description(self) -> str:
        if self._stream is not None:
            return f"Lamella {self._request.table.name} stream"
        selection, table = self._plan.selection, self._request.table
        parts = [f"Lamella {table.key} blocks={len(selection.locations)}/{selection.blocks_total}"]
        if self._blocks_after_join is not None:
            parts.append(f"after join keys={self._blocks_after_join}")
        if self._blocks_after_subqueries is not None:
            parts.append(f"after subqueries={self._blocks_after_subqueries}")
        if self._plan.scan.way in NOTES:
            parts.append(NOTES[self._plan.scan.way])
        if selection.fell_back is not None:
            parts.append(f"ALL BLOCKS, pruning failed: {selection.fell_back}")
        if self._plan.tree != TRUE:
            parts.append(f"filter=[{shortened(filter_text(self._plan.tree))}]")
            parts += selection_text(selection)
        if self._request.limit is not None:
            order = ", ".join(order_text(by) for by in self._request.order_by)
            parts.append(f"limit={self._request.limit}" + (f" order=[{order}]" if order else ""))
        return " ".join(parts)

    def toBatch(self) -> Any:
        # Spark calls filter() and then immediately toBatch() on the same thread. Another execution of the same scan, on
        # another thread, must not use these join keys: it would lose rows.
        with self._lock:
            narrowed = self._narrowed.pop(self._gateway.thread_id(), None) if self._narrowed else None
        return LakeBatch(self._gateway, narrowed or self._plan, self)

    def _has_run_time_conditions(self) -> bool:
        """Whether conditions with subqueries may leave out blocks."""
        if "subqueries" in self._gateway.missing_hooks or not self._gateway.pins_threads:
            return False
        return self._request.limit is None  # the blocks that are left may be fewer than a limit needs

    def by_subqueries(self, plan: Plan) -> Plan:
        """Return a plan without the blocks that conditions with subqueries exclude, which have their values by now."""
        request = self._request
        if not self._has_run_time_conditions():
            return plan
        # What join keys have left is what semi joins leave.
        found = subquery_filter(
            self._gateway,
            self,
            request.table.schema,
            max_distinct=request.table.settings.max_join_keys,
            max_listed=max(_MAX_LISTED_KEYS, 2 * len(plan.selection.locations)),
            semi_joins=plan is self._plan,
        )
        if found is None:
            return plan
        tree = {"type": "and", "children": [plan.tree, found[0]]}
        selection = request.blocks(tree, time_zone=request.time_zone if found[1] == "UTC" else found[1])
        narrowed = Plan(request, tree, selection)
        if selection.fell_back is not None or (selection.locations and narrowed.is_columnar != plan.is_columnar):
            return plan
        self._blocks_after_subqueries = len(selection.locations)
        return narrowed

    def toMicroBatchStream(self, folder: str) -> Any:
        request = self._request
        if has_metadata(request.table.schema) and NAME in request.required_names():
            raise InvalidRequest(f"a stream of {request.table.name} has no {NAME}; read the table as a batch for it")
        shown = (request.required, request.required_json())
        self._stream = LakeStream.of(self._gateway, request.table, shown, request.options, folder)
        return self._stream

    def columnarSupportMode(self) -> Any:
        if self._stream is not None:
            name = "PARTITION_DEFINED"  # by the blocks of a micro-batch
        else:
            # For each partition apart, Spark would plan partitions and ask for readers each time it changes its plan.
            name = "SUPPORTED" if self._plan.is_columnar else "UNSUPPORTED"
        return self._gateway.constant(_READ + "Scan$ColumnarSupportMode", name)

    def supportedCustomMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomTaskMetric")

    def estimateStatistics(self) -> Any:
        if self._stream is not None:  # of the table, for lack of anything better
            table = self._request.table
            return statistics(self._gateway, max(1, table.size_bytes), table.row_count)
        return statistics(
            self._gateway, self._plan.size_bytes, self._plan.selection.row_count, self._column_statistics()
        )

    def estimateSizeInBytes(self) -> Any:
        if self._stream is not None:
            return self._gateway.optional_long(max(1, self._request.table.size_bytes))
        return self._gateway.optional_long(self._plan.size_bytes)

    def reflectsFullyPushedDownFilters(self) -> bool:
        # The statistics are those of the selected blocks: when every row there matches, they need no filter. False
        # would let Spark evaluate the conditions that are not returned by pushFilters, also where they were replaced.
        return self._request.fully_pushed or self._request.has_deletes is not None

    def _column_statistics(self) -> Any:
        """Return the statistics of columns as a ``java.util.Map``; None: Spark uses none."""
        request, rows = self._request, self._plan.selection.row_count
        if "statistics of columns" in self._gateway.missing_hooks or not is_wanted(self._gateway):
            return None
        found = column_statistics(self._gateway, request.table, request.required_names(), rows)
        return self._gateway.java_map(found)

    def filterAttributes(self) -> Any:
        """The columns by whose join keys the scan leaves out blocks."""
        return self._gateway.classes.scans.references(self._join_columns())

    def _join_columns(self) -> str:
        """Return the quoted names of these columns, separated by U+0000."""
        # See toBatch. Also, the blocks left by join keys may be fewer than a limit needs.
        if not self._gateway.pins_threads or self._request.limit is not None:
            return ""
        if len(self._plan.selection.locations) < _MIN_BLOCKS_FOR_JOIN_KEYS:
            return ""
        names = prunable_columns(self._request.table.schema, self._request.required_names())
        return _SEPARATOR.join(quoted(name) for name in names if _SEPARATOR not in name)

    def filter(self, predicates: Any) -> None:
        table = self._request.table
        distinct = table.settings.max_join_keys
        ranges = min(distinct, max(_MIN_KEY_RANGES, 2 * len(self._plan.selection.locations)))
        filters = [
            join_filter(self._gateway, table.schema, predicate, max_distinct=distinct, max_ranges=ranges)
            for predicate in predicates
        ]
        lists = [each for each in filters if isinstance(each, dict)]
        tree = {"type": "and", "children": [self._plan.tree, *lists]} if lists else self._plan.tree
        keys = [each for each in filters if isinstance(each, JoinKeys)][:_MAX_JOINS]
        selection = self._request.blocks(tree, keys=keys)
        if selection.fell_back is not None:
            return  # all blocks would be too many, and wrong where Spark does not filter them
        plan = Plan(self._request, tree, selection)
        if selection.locations and plan.is_columnar != self._plan.is_columnar:
            return  # Spark has decided how to read the rows
        with self._lock:
            self._narrowed[self._gateway.thread_id()] = plan
        self._blocks_after_join = len(plan.selection.locations)

    def pushedPredicates(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "expressions.filter.Predicate")

    def supportsIterativePushdown(self) -> bool:
        return False


class AggregateScan(LocalRows):
    """The result of aggregates: one row, or one for each group."""

    class Java:
        implements = LocalRows.Java.implements

    def __init__(self, gateway: Gateway, table: LakeTable, known: KnownRows) -> None:
        super().__init__(gateway, known.aggregates.struct(), known.rows)
        self._table = table
        self._known = known

    def _key(self) -> str:
        known = self._known
        wanted = known.aggregates
        return json.dumps(["rows", self._table.key, known.tree, known.time_zone, wanted.calls, wanted.group_by])

    def _filter(self) -> tuple[dict[str, Any], str]:
        return self._known.tree, self._known.time_zone

    def description(self) -> str:
        known = self._known
        parts = [f"Lamella {self._table.key} from statistics: {', '.join(known.aggregates.calls)}"]
        if known.aggregates.group_by:
            parts.append(f"by {', '.join(known.aggregates.group_by)}")
        if known.tree != TRUE:
            parts.append(f"filter=[{shortened(filter_text(known.tree))}]")
        return " ".join(parts)


class LakeBatch(Proxy):
    """One execution of a scan."""

    class Java:
        implements = [_READ + "Batch"]  # noqa: RUF012

    def __init__(self, gateway: Gateway, plan: Plan, scan: LakeScan) -> None:
        super().__init__(gateway)
        self._plan = plan
        self._scan = scan
        self._is_read = False

    def _key(self) -> str:
        return self._plan.key

    def planInputPartitions(self) -> Any:
        if not self._is_read:
            self._plan = self._scan.by_subqueries(self._plan)
            self._is_read = True
        return self._plan.partitions

    def createReaderFactory(self) -> Any:
        self._is_read = True  # the partitions must be of the same plan
        return self._plan.reader_factory
