"""Writes of Spark SQL: ``INSERT``, ``writeTo`` and the like use Lamella's own writer.

A statement that reads the table it writes to reads one pinned snapshot of it.

Spark plans such a write as a ``V1Write``: when it runs, it passes the query as a frame, on the driver, which is written
like any other frame. Spark has already ordered the columns as in the table, cast them and filled in defaults.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import msgspec

from lamella.client.http import Lamella
from lamella.client.rewrite.commit import TableState
from lamella.client.spark.catalyst import kind_of
from lamella.client.spark.engine import SparkEngine
from lamella.client.spark.gateway import CONNECTOR, SQL, Gateway
from lamella.client.spark.lake import LakeTable
from lamella.client.spark.proxy import Proxy, error_of_task
from lamella.client.spark.scan import filter_text
from lamella.client.spark.schema_evolution import OPTION_KEYS
from lamella.client.spark.statement import excludes_rows_of, run_again, table_reads
from lamella.client.spark.stream_write import LakeStreamingWrite
from lamella.client.spark.v2_predicates import filter_of
from lamella.client.spark.writer import write_into
from lamella.client.write.commit import EVERY_ROW, RowsCommit
from lamella.client.write.layout import Layout, require_sizes
from lamella.snapshot.errors import InvalidRequest, ReadConflict
from lamella.snapshot.wire import TableRead


class Pin(msgspec.Struct, eq=False):
    """``was_read``: the statement loaded the table and got this snapshot."""

    snapshot_id: str
    was_read: bool = False


class Pins:
    """Spark loads a table again for each query that it runs, so a statement that runs several may see several
    snapshots. While a statement writes, a pin gives all its reads of the table one snapshot, the one it began with.

    With pinned threads (``pins_threads`` of the gateway) a pin applies to the current thread; without them callbacks
    cannot be attributed to a thread, and every query of the session gets that snapshot meanwhile.
    """

    def __init__(self, *, by_thread: bool) -> None:
        self._by_thread = by_thread
        self._pins: dict[tuple[int, str], list[Pin]] = {}
        self._written: Counter[tuple[int, str]] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def pinned(self, table: str, snapshot_id: str) -> Iterator[Pin]:
        """Pin ``namespace.table`` while it is written to; the innermost pin counts."""
        key, pin = self._key(table), Pin(snapshot_id)
        with self._lock:
            self._pins.setdefault(key, []).append(pin)
        try:
            yield pin
            with self._lock:
                self._written[key] += 1
        finally:
            with self._lock:
                self._pins[key].remove(pin)
                if not self._pins[key]:
                    del self._pins[key]

    def read(self, table: str) -> str | None:
        """Return the pinned snapshot, if any, and record that it was read."""
        with self._lock:
            pins = self._pins.get(self._key(table))
            if not pins:
                return None
            pins[-1].was_read = True
            return pins[-1].snapshot_id

    def written(self, table: str) -> int:
        """Return how many times the table has been written to."""
        with self._lock:
            return self._written[self._key(table)]

    def _key(self, table: str) -> tuple[int, str]:
        return (threading.get_ident() if self._by_thread else 0, table)


def snapshot_read(gateway: Gateway, dataset: Any, table: LakeTable, pin: Pin) -> str | None:
    """Return the snapshot of a table that an executed frame read without requesting that one; None: it read none.

    Raises:
        InvalidRequest: it may have read another snapshot than the pinned one.
    """
    named = set(_versions(dataset.queryExecution().analyzed(), table.table_id))
    if not named and not pin.was_read:
        return None
    # Spark loads a table again when it runs a query, and then gets the pinned snapshot; cached data stays as it is.
    if named - {pin.snapshot_id} and not gateway.session.sharedState().cacheManager().isEmpty():
        raise InvalidRequest(
            f"the query may have read {table.name} from Spark's cache, which may be outdated; nothing was done."
            " Create the frame again, or clear the cache (UNCACHE TABLE, unpersist)"
        )
    return pin.snapshot_id


def _versions(plan: Any, table_id: str) -> Iterator[str]:
    pending = [plan]
    while pending:
        node = pending.pop()
        if kind_of(node) == "DataSourceV2Relation" and not node.timeTravelSpec().isDefined():
            table = node.table()
            if table.id() == table_id:
                yield str(table.version())
        for more in (node.children(), node.subqueries()):
            pending += [more.apply(at) for at in range(more.size())]


_WRITE: Final = CONNECTOR + "write."
_OPTIONS: Final = {
    "target_block_rows": ("block_rows", int),
    "target_block_bytes": ("block_bytes", int),
    "compression": ("compression", str),
    "scratch": ("scratch", str),
}
#: Options of a query that streams, which Spark passes on to its write.
_OF_A_QUERY: Final = frozenset({"checkpointlocation", "queryname"})


class Destination(msgspec.Struct, frozen=True, eq=False):
    """A table that a statement writes to, at the snapshot that the statement began with.

    ``defaults``: how blocks are written unless the write has options. ``properties``: of the table, set by its commit.
    """

    gateway: Gateway
    lake: Lamella
    table: LakeTable
    pins: Pins
    defaults: Layout = Layout()
    properties: Mapping[str, str] = {}

    def filter_of(self, predicates: Any) -> dict[str, Any]:
        """Return the filter of a condition; raises FilterNotEvaluable."""
        return filter_of(self.gateway, self.table.schema, predicates)


#: Returns the rows of a running write as resolved with schema evolution, and the table that they go to.
Resolve = Callable[[Any], tuple[Any, Destination]]


class LakeWriteBuilder(Proxy):
    """Collects Spark's request: an append, unless rows are to be deleted first."""

    class Java:
        implements = [  # noqa: RUF012  # py4j reads it from the class
            _WRITE + "SupportsOverwriteV2",
            _WRITE + "SupportsDynamicOverwrite",
        ]

    def __init__(self, destination: Destination, info: Any, resolve: Resolve | None = None) -> None:
        super().__init__(destination.gateway)
        self._destination = destination
        self._info = info
        self._resolve = resolve
        self._layout = _layout(destination.defaults, info.options())
        self._replaces: Any = None

    def truncate(self) -> Any:
        self._replaces = EVERY_ROW
        return self

    def canOverwrite(self, predicates: Any) -> bool:
        self._destination.filter_of(predicates)
        return True

    def overwrite(self, predicates: Any) -> Any:
        self._replaces = self._destination.filter_of(predicates)
        return self

    def overwriteDynamicPartitions(self) -> NoReturn:
        name = self._destination.table.name
        raise InvalidRequest(
            f"{name} has no partitions to overwrite; name the rows to replace: INSERT INTO ... REPLACE WHERE condition,"
            " or writeTo(...).overwrite(condition). To replace all rows, set partitionOverwriteMode to static"
        )

    def build(self) -> Any:
        return LakeWrite(self._destination, self._info, self._layout, self._replaces, self._resolve)


class LakeWrite(Proxy):
    """One write; ``info``: Spark's ``LogicalWriteInfo``."""

    class Java:
        implements = [_WRITE + "V1Write"]  # noqa: RUF012

    def __init__(
        self, destination: Destination, info: Any, layout: Layout, replaces: Any, resolve: Resolve | None
    ) -> None:
        super().__init__(destination.gateway)
        self._destination = destination
        self._info = info
        self._layout = layout
        self._replaces = replaces
        self._resolve = resolve

    def _key(self) -> str:
        return f"{self.description()} #{id(self):x}"

    def description(self) -> str:
        what = {"None": "append", str(EVERY_ROW): "overwrite"}.get(str(self._replaces))
        return f"Lamella {self._destination.table.name} {what or f'replace [{filter_text(self._replaces)}]'}"

    def toInsertableRelation(self) -> Any:
        return LakeInsertion(self._destination, self._layout, self._replaces, self._resolve)

    def toStreaming(self) -> Any:
        to = self._destination
        return LakeStreamingWrite(self._gateway, to.lake, to.table.name, self._info, self._layout, self._replaces)

    def supportedCustomMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomTaskMetric")


class LakeInsertion(Proxy):
    """Runs the query and writes its rows."""

    class Java:
        implements = [SQL + "sources.InsertableRelation"]  # noqa: RUF012

    def __init__(self, destination: Destination, layout: Layout, replaces: Any, resolve: Resolve | None) -> None:
        super().__init__(destination.gateway)
        self._destination = destination
        self._layout = layout
        self._replaces = replaces
        self._resolve = resolve

    def insert(self, dataset: Any, _overwrite: bool) -> None:
        from pyspark.errors import PySparkException
        from pyspark.sql import DataFrame, SparkSession

        to, session = self._destination, self._gateway.spark
        if self._resolve is not None:
            dataset, to = self._resolve(dataset)
        own = dataset.sparkSession()
        if not own.equals(self._gateway.session):
            session = SparkSession(session.sparkContext, own)
        name = to.table.name
        with to.pins.pinned(name, to.table.snapshot_id) as pin:
            rows_commit = RowsCommit(
                replaces=self._replaces,
                time_zone=self._gateway.time_zone(),
                rests_on=lambda: snapshot_read(self._gateway, dataset, to.table, pin),
                reads=self._reads(dataset) if self._replaces is None else (),
                properties=to.properties,
            )
            try:
                frame = DataFrame(dataset, session)
                write_into(to.lake, name, frame, rows_commit, self._layout, schema_update=to.table.schema_update)
            except PySparkException as error:
                own = error_of_task(str(error))
                if own is None:
                    raise
                raise own from error
            except ReadConflict as error:
                raise run_again(error, "MERGE") from error

    def _reads(self, dataset: Any) -> tuple[TableRead, ...]:
        """Return what an append of rows that the table lacks depends on, so that no two of them add the same row.

        Spark plans a ``MERGE`` that only inserts as such an append.
        """
        plan = dataset.queryExecution()
        anti_join = self._gateway.static(SQL + "catalyst.trees.TreePattern", "LEFT_SEMI_OR_ANTI_JOIN")()
        if not plan.analyzed().containsPattern(anti_join):
            return ()
        table = self._destination.table
        optimized = plan.optimizedPlan()
        if not excludes_rows_of(self._gateway, optimized, table.table_id):
            return ()
        return table_reads(self._gateway, optimized, table.service_url)


def replace_rows(to: Destination) -> None:
    """Remove all rows of a table, in the commit that gives it its new definition."""
    state = TableState.read(to.lake, to.table.name).with_update(to.table.schema_update)
    commit = RowsCommit(replaces=EVERY_ROW, properties=to.properties)
    target = to.defaults.target_of(state)
    commit.apply(to.lake, SparkEngine(to.gateway.spark), state, target, (), scratch=to.defaults.scratch)


def _layout(defaults: Layout, options: Any) -> Layout:
    """Return the layout with the options of a write; raises InvalidRequest for an unknown option."""
    found: dict[str, Any] = {}
    for key, text in _items(options):
        if key in _OF_A_QUERY or key in map(str.lower, OPTION_KEYS):  # the catalog reads these
            continue
        member, kind = _OPTIONS.get(key.replace("-", "_"), (None, str))
        if member is None:
            raise InvalidRequest(f"unknown option {key!r} of a write; known are {', '.join(_OPTIONS)}, mergeSchema")
        try:
            found[member] = kind(text)
        except ValueError as error:
            raise InvalidRequest(f"option {key!r} is not a number: {text!r}") from error
    layout = msgspec.structs.replace(defaults, **found)
    require_sizes(layout.block_rows, layout.block_bytes)
    return layout


def _items(options: Any) -> list[tuple[str, str]]:
    """Return the items of a ``CaseInsensitiveStringMap``; its keys are in lower case."""
    return [(str(key), str(options.get(key))) for key in options.keySet()]
