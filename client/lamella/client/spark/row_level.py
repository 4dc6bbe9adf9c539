"""SQL ``UPDATE``, ``DELETE`` and ``MERGE``: which rows such a statement takes from the table.

Spark rewrites these statements as plans that read *groups* of rows and write the rows that replace them. Here a group
is a row, or a short run of rows: the hidden column with row ids identifies it. A first query of Spark finds the ids of
all rows that match. The scan then reads only those rows, or whole blocks where many match. The commit takes away
exactly what the scan read, and adds exactly what was written (:mod:`.row_level_write`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from lamella.client.rewrite.source import Source
from lamella.client.spark.gateway import CONNECTOR, Gateway
from lamella.client.spark.local_rows import statistics
from lamella.client.spark.metadata_column import NAME, is_named
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.row_ids import Ids, Runs, id_column, positions_in
from lamella.client.spark.rows_with_ids import scan_with_ids
from lamella.client.spark.scan import LakeScanBuilder, Request, filter_text
from lamella.client.spark.sql_write import Destination
from lamella.client.spark.statement import Statement
from lamella.snapshot.delete_policy import DeletePolicy, delete_policy_of
from lamella.snapshot.deletes import Positions, deleted_rows
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.storage import FsspecStore

_WRITE: Final = CONNECTOR + "write."
_READ: Final = CONNECTOR + "read."
_CATALOG: Final = CONNECTOR + "catalog."
_SEPARATOR: Final = ";"


class TakenBlock(msgspec.Struct, frozen=True, eq=False):
    """A block of which rows are taken: those at these positions of its file, or all (None)."""

    source: Source
    positions: Positions | None
    row_count: int


class Taken(msgspec.Struct, frozen=True, eq=False):
    """The rows that a statement takes from the table."""

    blocks: tuple[TakenBlock, ...] = ()

    @property
    def row_count(self) -> int:
        """Total number of rows."""
        return sum(block.row_count for block in self.blocks)


class RowLevel(Proxy):
    """One statement that changes rows: builder and operation in one."""

    class Java:
        implements = [  # noqa: RUF012
            _WRITE + "RowLevelOperationBuilder",
            _WRITE + "RowLevelOperation",
        ]

    def __init__(self, destination: Destination, command: Any, write: Any) -> None:
        super().__init__(destination.gateway)
        self.destination = destination
        self._command = command
        #: ``DELETE``, ``UPDATE`` or ``MERGE``.
        self.verb = str(command.toString())
        self._write = write
        self._statement: Statement | None = None
        self._scans: list[RowLevelScan] = []
        # Now, while Spark rewrites the statement: it asks for them later too.
        names = [NAME] if is_named(self._gateway, destination.table.schema) else []
        if names and self.verb == "MERGE":
            # Spark evaluates the condition of a MERGE on a plan without hidden columns, too.
            raise InvalidRequest(f"MERGE cannot use {NAME}; use UPDATE or DELETE with a subquery as the condition")
        self._hidden = references(self._gateway, id_column(destination.table.schema), *names)

    def _running(self) -> Statement:
        """Return the statement as Spark runs it; only while it runs. Raises InvalidRequest."""
        if self._statement is None:
            self._statement = Statement.running(self._gateway, self.verb, self.destination.table.service_url)
        return self._statement

    def _scan_read(self) -> RowLevelScan | None:
        """Return the scan whose rows were read; None: Spark read none, since no row can match.

        Raises:
            LamellaError: several were read.
        """
        read = [scan for scan in self._scans if scan.taken is not None]
        if len(read) > 1:
            raise LamellaError(f"Spark planned several scans of {self.destination.table.name}, and read more than one")
        return read[0] if read else None

    def build(self) -> Any:
        return self

    def command(self) -> Any:
        return self._command

    def description(self) -> str:
        return f"Lamella {self.destination.table.name}"

    def requiredMetadataAttributes(self) -> Any:
        return self._hidden

    def newScanBuilder(self, options: Any) -> Any:
        return RowLevelScanBuilder(self, options)

    def newWriteBuilder(self, info: Any) -> Any:
        return self._write(self, info)

    def _planned(self, request: Request) -> RowLevelScan:
        scan = RowLevelScan(self, request)
        self._scans.append(scan)
        return scan


def references(gateway: Gateway, *names: str) -> Any:
    """Return a ``NamedReference[]`` of hidden columns."""
    column = gateway.static(CONNECTOR + "expressions.Expressions", "column")
    return gateway.array(CONNECTOR + "expressions.NamedReference", [column(name) for name in names])


class RowLevelScanBuilder(LakeScanBuilder):
    """Collects the condition on the table's columns. Spark evaluates it again."""

    class Java:
        implements = [  # noqa: RUF012
            each for each in LakeScanBuilder.Java.implements if not each.endswith("SupportsPushDownAggregates")
        ]

    def __init__(self, operation: RowLevel, options: Any) -> None:
        to = operation.destination
        super().__init__(to.gateway, to.table, options)
        self._operation = operation

    def pushFilters(self, filters: Any) -> Any:
        self._request.push(filters)
        self._request.select()
        return filters

    def build(self) -> Any:
        self._request.check_columns()
        return self._operation._planned(self._request)


class RowLevelScan(Proxy):
    """The scan of one statement. ``taken``: what Spark reads; None before it runs.

    Without ids of matching rows, all blocks that may have one are read.
    """

    class Java:
        implements = [  # noqa: RUF012
            _READ + "Scan",
            _READ + "SupportsReportStatistics",
            _READ + "SupportsRuntimeV2Filtering",
        ]

    def __init__(self, operation: RowLevel, request: Request) -> None:
        super().__init__(operation.destination.gateway)
        self._operation = operation
        self.request = request
        self._selection = request.selection if request.selection is not None else request.blocks(request.tree)
        self._ids: Ids | None = None
        self.taken: Taken | None = None
        self._native: Any = None

    def _key(self) -> str:
        return f"{self._shown()} #{id(self):x}"

    def readSchema(self) -> Any:
        return self.request.required

    def description(self) -> str:
        return self._shown()

    def _shown(self) -> str:
        table = self.request.table
        parts = [f"Lamella {table.key} blocks={len(self._selection.locations)}/{self._selection.blocks_total}"]
        if self.taken is not None:
            whole = [block for block in self.taken.blocks if block.positions is None]
            rows = self.taken.row_count
            parts.append(f"changes blocks={len(self.taken.blocks)} (whole={len(whole)}) rows={rows}")
        if self._selection.fell_back is not None:
            parts.append(f"ALL BLOCKS, pruning failed: {self._selection.fell_back}")
        if self.request.conjuncts:
            parts.append(f"filter=[{filter_text(self.request.tree)[:300]}]")
        return " ".join(parts)

    def toBatch(self) -> Any:
        return RowLevelBatch(self._gateway, self)

    def columnarSupportMode(self) -> Any:
        # Otherwise Spark asks for partitions before it knows the ids.
        return self._gateway.constant(_READ + "Scan$ColumnarSupportMode", "UNSUPPORTED")

    def supportedCustomMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomTaskMetric")

    def estimateStatistics(self) -> Any:
        return statistics(self._gateway, max(1, sum(self._selection.sizes)), self._selection.row_count)

    def estimateSizeInBytes(self) -> Any:
        return self._gateway.optional_long(max(1, sum(self._selection.sizes)))

    def reflectsFullyPushedDownFilters(self) -> bool:
        return False

    def filterAttributes(self) -> Any:
        return references(self._gateway, id_column(self.request.table.schema))

    def filter(self, predicates: Any) -> None:
        ids = ids_in(self._gateway, predicates)
        if not self._operation._running().is_repeatable:
            return  # the ids may be of other rows than those that will match
        if self.taken is None:
            self._ids = ids
        elif self._ids is None or not np.array_equal(self._ids, ids):
            raise LamellaError("the rows that match were found twice, and differ; nothing was done")

    def pushedPredicates(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "expressions.filter.Predicate")

    def supportsIterativePushdown(self) -> bool:
        return False

    def _batch(self) -> Any:
        """Return Spark's own batch of what is taken."""
        if self._native is None:
            self.taken = self._taken()
            scan = scan_with_ids(
                self._gateway,
                self.request.table,
                [(block.source, block.positions) for block in self.taken.blocks],
                self.request.required_json(),
                row_count=self._selection.row_count,
            )
            self._native = scan.toBatch()
        return self._native

    def _taken(self) -> Taken:
        to = self._operation.destination
        store = FsspecStore(to.defaults.storage_options)
        if self._ids is None:
            sources = self._sources(self._selection.locations)
            return Taken(tuple(TakenBlock(each, None, each.live_row_count(store)) for each in sources))
        numbers = to.table.block_numbers
        runs = {numbers.location(number): found for number, found in Runs.of(self._ids).items()}
        strange = runs.keys() - set(self._selection.locations)
        if strange:
            raise LamellaError(f"rows of {min(strange)} match, which the condition excludes; nothing was done")
        sources = self._sources([location for location in self._selection.locations if location in runs])
        policy = delete_policy_of(to.table.properties)
        return Taken(tuple(_taken_rows(store, source, runs[source.location], policy) for source in sources))

    def _sources(self, locations: Sequence[str]) -> list[Source]:
        to = self._operation.destination
        if not locations:
            return []
        facts = to.lake.table(to.table.name).blocks(
            list(locations), snapshot_id=to.table.snapshot_id, reader_features=FEATURES
        )
        if facts.missing:
            raise InvalidRequest(f"{facts.missing[0]} is not in snapshot {facts.snapshot_id}")
        found = {block.location: block for block in facts.blocks}
        return [Source.of(found[location]) for location in locations]


def _taken_rows(
    store: FsspecStore, source: Source, runs: Sequence[tuple[int, Ids]], policy: DeletePolicy
) -> TakenBlock:
    """Return the rows of a block that some ids stand for, or the whole block if its file should not stay."""
    deleted = deleted_rows(store, source.deletes, source.row_count)
    positions = np.setdiff1d(positions_in(runs, source.row_count), deleted, assume_unique=True)
    live = source.row_count - len(deleted)
    if len(positions) == live or not policy.keeps_file(len(deleted) + len(positions), source.row_count):
        return TakenBlock(source, None, live)
    return TakenBlock(source, positions, len(positions))


def ids_in(gateway: Gateway, predicates: Any) -> Ids:
    """Return the ids of a runtime filter, ascending; raises LamellaError if it is not ``column IN (ids)``."""
    found: Ids | None = None
    wrap = gateway.scala_object("scala.collection.immutable.ArraySeq").unsafeWrapArray
    for predicate in predicates:
        if str(predicate.name()) != "IN":
            raise LamellaError(f"Spark filters row ids by {predicate.name()}, which is not known here")
        values = wrap(predicate.children()).drop(1)
        # One call for all of them: one call for each takes a millisecond.
        text = str(values.mkString(_SEPARATOR))
        ids = np.unique(np.array(text.split(_SEPARATOR) if text else [], dtype=np.int64))
        found = ids if found is None else np.intersect1d(found, ids, assume_unique=True)
    if found is None:
        raise LamellaError("Spark filters row ids by nothing")
    return found


class RowLevelBatch(Proxy):
    """The rows of a statement, for Spark's reader."""

    class Java:
        implements = [_READ + "Batch"]  # noqa: RUF012

    def __init__(self, gateway: Gateway, scan: RowLevelScan) -> None:
        super().__init__(gateway)
        self._scan = scan

    def planInputPartitions(self) -> Any:
        return self._scan._batch().planInputPartitions()

    def createReaderFactory(self) -> Any:
        return self._scan._batch().createReaderFactory()
