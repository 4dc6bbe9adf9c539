"""Planning a read of one table: filters in, blocks out, Spark's own vectorised Parquet scan underneath."""

from __future__ import annotations

import json
import threading
from functools import cached_property
from typing import Any

from lamella.client.spark.catalyst import Walker, is_sound_in_parquet
from lamella.client.spark.file_index import file_index
from lamella.client.spark.gateway import CONNECTOR, DATASOURCES, SQL, Gateway
from lamella.client.spark.join_keys import join_filter, prunable_columns
from lamella.client.spark.lake import Kept, LakeTable
from lamella.client.spark.literal import TRUE
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.rendering import rendered

_READ = CONNECTOR + "read."
_MAX_TEXT = 300


class Request:
    """What Spark asked of one scan: filters, columns, options. Complete once ``build`` is called."""

    def __init__(self, gateway: Gateway, table: LakeTable, options: Any) -> None:
        self.gateway = gateway
        self.table = table
        self.options = options
        self.tree: dict[str, Any] = TRUE
        self.pushed: list[Any] = []
        self.pushed_text: list[str] = []
        self.required = gateway.struct_type(table.columns.shown)

    def push(self, filters: Any) -> None:
        """Take the conjuncts of a filter, a Scala ``Seq`` of expressions."""
        walker = Walker(self.table.schema)
        trees = []
        for at in range(filters.size()):
            expression = filters.apply(at)
            tree = walker.tree(expression)
            trees.append(tree)
            if is_sound_in_parquet(tree, self.table.schema):
                self.pushed.append(expression)
                self.pushed_text.append(json.dumps(tree, sort_keys=True))
        if trees:
            self.tree = trees[0] if len(trees) == 1 else {"type": "and", "children": trees}


class Plan:
    """The blocks of one filter and the native scan over them. Never changes once it is made."""

    def __init__(self, request: Request, tree: dict[str, Any]) -> None:
        gateway, table = request.gateway, request.table
        self.tree = tree
        self.kept: Kept = table.kept(None if tree == TRUE else tree)
        digest = self.kept.digest()
        readable = gateway.struct_type(table.columns.readable)
        index = file_index(gateway, self.kept, digest, readable)
        builder = gateway.java_class(DATASOURCES + "v2.parquet.ParquetScanBuilder")(
            gateway.session, index, readable, readable, _reader_options(request, self.kept)
        )
        if request.pushed:
            builder.pushFilters(gateway.seq(request.pushed))
        builder.pruneColumns(request.required)
        self.native = builder.build()
        self._batch = self.native.toBatch()
        #: All that decides which rows are read: two scans with one key may stand for each other.
        self.key = json.dumps(
            [table.key, digest, request.required.json(), sorted(request.pushed_text), _options_text(request.options)]
        )

    @cached_property
    def partitions(self) -> Any:
        """``InputPartition[]``."""
        return self._batch.planInputPartitions()

    @cached_property
    def reader_factory(self) -> Any:
        """Made once: each one broadcasts Hadoop's whole configuration."""
        return self._batch.createReaderFactory()


def _reader_options(request: Request, kept: Kept) -> Any:
    if request.table.trusts_page_index(kept):
        return request.options
    name = "parquet.filter.columnindex.enabled"
    merged = request.gateway.java_map({name: "false"})
    merged.putAll(request.options.asCaseSensitiveMap())
    return request.gateway.java_class(SQL + "util.CaseInsensitiveStringMap")(merged)


def _options_text(options: Any) -> str:
    return str(options.asCaseSensitiveMap().toString())


class LakeScanBuilder(Proxy):
    """Collects filters and columns. Every filter goes back to Spark, which evaluates it again after the scan."""

    class Java:
        implements = [  # noqa: RUF012  # py4j reads it from the class
            SQL + "internal.connector.SupportsPushDownCatalystFilters",
            _READ + "SupportsPushDownRequiredColumns",
        ]

    def __init__(self, gateway: Gateway, table: LakeTable, options: Any) -> None:
        super().__init__(gateway)
        self._request = Request(gateway, table, options)

    def pushFilters(self, filters: Any) -> Any:
        self._request.push(filters)
        return filters

    def pushedFilters(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "expressions.filter.Predicate")

    def pruneColumns(self, required: Any) -> None:
        self._request.required = required

    def build(self) -> Any:
        self._request.table.columns.check(self._request.required.fieldNames())
        return LakeScan(self._gateway, self._request)


class LakeScan(Proxy):
    """One scan. Its filter never changes; join keys that come later make a new plan for one execution."""

    class Java:
        implements = [  # noqa: RUF012
            _READ + "SupportsReportStatistics",
            _READ + "SupportsRuntimeV2Filtering",
        ]

    def __init__(self, gateway: Gateway, request: Request) -> None:
        super().__init__(gateway)
        self._request = request
        self._plan = Plan(request, request.tree)
        self._lock = threading.Lock()
        self._narrowed: dict[int, Plan] = {}
        self._blocks_after_join: int | None = None

    def _key(self) -> str:
        return self._plan.key

    def readSchema(self) -> Any:
        return self._plan.native.readSchema()

    def description(self) -> str:
        kept, table = self._plan.kept, self._request.table
        parts = [f"Lamella {table.key} blocks={len(kept.locations)}/{kept.blocks_total}"]
        if self._blocks_after_join is not None:
            parts.append(f"after join keys={self._blocks_after_join}")
        if kept.fell_back is not None:
            parts.append(f"ALL BLOCKS, pruning failed: {kept.fell_back}")
        if self._plan.tree != TRUE:
            text = rendered(self._plan.tree)
            parts.append(f"filter=[{text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + '...'}]")
        return " ".join(parts)

    def toBatch(self) -> Any:
        # Spark calls filter() and then at once toBatch() on the same thread. Another execution of the same scan, on
        # another thread, must not see keys that are not its own: it would lose rows.
        with self._lock:
            narrowed = self._narrowed.pop(self._gateway.thread_id(), None) if self._narrowed else None
        return LakeBatch(self._gateway, narrowed or self._plan)

    def columnarSupportMode(self) -> Any:
        return self._gateway.constant(_READ + "Scan$ColumnarSupportMode", "PARTITION_DEFINED")

    def supportedCustomMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomTaskMetric")

    def estimateStatistics(self) -> Any:
        return LakeStatistics(self._gateway, self._size_bytes(), self._plan.kept.row_count)

    def estimateSizeInBytes(self) -> Any:
        return self._gateway.optional_long(self._size_bytes())

    def reflectsFullyPushedDownFilters(self) -> bool:
        return False

    def _size_bytes(self) -> int:
        # Spark's own estimate for the columns that are read, over the blocks that are kept.
        return max(1, int(self._plan.native.estimateStatistics().sizeInBytes().getAsLong()))

    def filterAttributes(self) -> Any:
        expressions = self._gateway.java_class(CONNECTOR + "expressions.Expressions")
        names: list[str] = []
        if self._gateway.pins_threads:  # see toBatch
            names = prunable_columns(self._request.table.schema, list(self._request.required.fieldNames()))
        columns = [expressions.column("`" + name.replace("`", "``") + "`") for name in names]
        return self._gateway.array(CONNECTOR + "expressions.NamedReference", columns)

    def filter(self, predicates: Any) -> None:
        table = self._request.table
        trees = [
            join_filter(self._gateway, table.schema, predicate, table.settings.max_join_keys)
            for predicate in predicates
        ]
        plan = Plan(self._request, {"type": "and", "children": [self._plan.tree, *trees]})
        with self._lock:
            self._narrowed[self._gateway.thread_id()] = plan
        self._blocks_after_join = len(plan.kept.locations)

    def pushedPredicates(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "expressions.filter.Predicate")

    def supportsIterativePushdown(self) -> bool:
        return False


class LakeBatch(Proxy):
    """One execution of a scan."""

    class Java:
        implements = [_READ + "Batch"]  # noqa: RUF012

    def __init__(self, gateway: Gateway, plan: Plan) -> None:
        super().__init__(gateway)
        self._plan = plan

    def _key(self) -> str:
        return self._plan.key

    def planInputPartitions(self) -> Any:
        return self._plan.partitions

    def createReaderFactory(self) -> Any:
        return self._plan.reader_factory


class LakeStatistics(Proxy):
    """Size and rows of the blocks that are kept."""

    class Java:
        implements = [_READ + "Statistics"]  # noqa: RUF012

    def __init__(self, gateway: Gateway, size_bytes: int, row_count: int) -> None:
        super().__init__(gateway)
        self._size_bytes = size_bytes
        self._row_count = row_count

    def sizeInBytes(self) -> Any:
        return self._gateway.optional_long(self._size_bytes)

    def numRows(self) -> Any:
        return self._gateway.optional_long(self._row_count)

    def columnStats(self) -> Any:
        return self._gateway.java_map({})
