"""Changed rows in Spark: ``SELECT ... FROM t CHANGES FROM VERSION ...``, and ``read.changes``.

The rows, and what is a change, are those of :meth:`lamella.client.http.Table.row_changes`. The service lists the blocks
of each snapshot that came and went, and tasks read them (:mod:`lamella.client.spark.change_rows`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

import msgspec

from lamella.client.http import Lamella, Table
from lamella.client.scan.row_changes import is_silent, require_earlier_rows
from lamella.client.spark.catalyst import FilterWalker
from lamella.client.spark.change_rows import CHANGE_FIELDS, changes_scan, with_schema_ids
from lamella.client.spark.gateway import CONNECTOR, SQL, Gateway
from lamella.client.spark.lake import ODD_TREE, LakeTable, Settings, load_table
from lamella.client.spark.literal import TRUE
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.scan import filter_text, shortened
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest, SnapshotExpired, SnapshotNotFound, UnknownColumn
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.wire import SnapshotChanges, SnapshotInfo

_READ: Final = CONNECTOR + "read."
_CATALOG: Final = CONNECTOR + "catalog."
#: The option with the columns by which rows are the same, separated by commas.
KEYS: Final = "keys"
#: Spark's own options, by which it makes the range.
_OF_SPARK: Final = frozenset(
    {
        *("startingversion", "endingversion", "startingtimestamp", "endingtimestamp"),
        *("startingboundinclusive", "endingboundinclusive", "deduplicationmode", "computeupdates"),
    }
)
#: Characters of a filter that is sent, in the address of a request.
_MAX_FILTER: Final = 4_000


class ChangeRange(msgspec.Struct, frozen=True, kw_only=True):
    """From which snapshot (exclusive) to which, by id, and how. ``net``: only the difference of both. ``keys``: columns
    by which a deleted and an inserted row of a snapshot are an update."""

    since: str
    until: str
    net: bool = False
    keys: tuple[str, ...] = ()


def change_range(lake: Lamella, name: str, context: Any, options: Any) -> ChangeRange:
    """Return the range of a table that Spark's ``ChangelogContext`` and the options of a read ask for.

    A version is the number of a snapshot in the table's history, its id, or a tag.

    Raises:
        SnapshotNotFound: no such snapshot, or (SnapshotExpired) not any more.
        InvalidRequest: no start.
    """
    keys = tuple(key.strip() for key in str(options.getOrDefault(KEYS, "")).split(",") if key.strip())
    if context.computeUpdates() and not keys:
        raise InvalidRequest(
            f"a table has no key by which rows are updated: name one by the option {KEYS}, as in"
            f" spark.read.option('{KEYS}', 'id').changes(...), or leave out computeUpdates"
        )
    requested = context.range()
    kind = str(requested.getClass().getSimpleName())
    history = TableHistory(lake.table(name))
    if kind == "VersionRange":
        until = requested.endingVersion()
        since = history.version(str(requested.startingVersion()))
        if requested.startingBoundInclusive():
            since = history.before(since)
        last = history.version(str(until.get())) if until.isPresent() else history.current()
        if until.isPresent() and not requested.endingBoundInclusive():
            last = history.before(last)
    elif kind == "TimestampRange":
        start_us, end_us = int(requested.startingTimestamp()), requested.endingTimestamp()
        # Times of snapshots are whole milliseconds: those of the range are later than this one.
        start_ms = -(-start_us // 1000) - 1 if requested.startingBoundInclusive() else start_us // 1000
        since = history.at(start_ms)
        last = history.current()
        if end_us.isPresent():
            end_ms = int(end_us.get()) // 1000
            if not requested.endingBoundInclusive():
                end_ms = -(-int(end_us.get()) // 1000) - 1
            last = history.at(end_ms)
    else:
        raise InvalidRequest(f"changes of {name} need a start: FROM VERSION or FROM TIMESTAMP")
    if last.number < since.number:
        raise InvalidRequest(
            f"the range of changes ends at snapshot {last.number}, before it begins after {since.number}"
        )
    net = str(context.deduplicationMode().name()) == "NET_CHANGES"
    return ChangeRange(since=since.snapshot_id, until=last.snapshot_id, net=net, keys=keys)


class TableHistory:
    """Finds snapshots of a table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def current(self) -> SnapshotInfo:
        """Return the current snapshot."""
        return next(self._table.snapshots(page_size=1))

    def end_of(self, version: str | int | None, timestamp_ms: int | None) -> str:
        """Return the id of the snapshot of a version, or of the one that was current at a time."""
        found = self.version(str(version)) if timestamp_ms is None else self.at(timestamp_ms)
        return found.snapshot_id

    def version(self, text: str) -> SnapshotInfo:
        """Return the snapshot with a number, an id or a tag."""
        return next(self._table.snapshots(page_size=1, snapshot_id=text))

    def before(self, entry: SnapshotInfo) -> SnapshotInfo:
        """Return the snapshot before one. The first has no rows: it is returned itself."""
        if entry.prev_snapshot_id is None:
            return entry
        return next(self._table.snapshots(page_size=1, snapshot_id=entry.prev_snapshot_id))

    def at(self, timestamp_ms: int) -> SnapshotInfo:
        """Return the snapshot that was current at a time; before the first one, that one."""
        try:
            return next(self._table.snapshots(page_size=1, timestamp=max(0, timestamp_ms)))
        except SnapshotExpired:
            raise
        except SnapshotNotFound:
            return self.version("1")


class LakeChangelog(Proxy):
    """The changed rows of a table in a range. Table and columns are those of its last snapshot."""

    class Java:
        implements = [_CATALOG + "Changelog"]  # noqa: RUF012  # py4j reads it from the class

    def __init__(self, gateway: Gateway, table: LakeTable, requested: ChangeRange, shape: Any) -> None:
        super().__init__(gateway)
        self._table = table
        self._requested = requested
        self._columns = shape[1]

    @classmethod
    def of(cls, gateway: Gateway, lake: Lamella, name: str, settings: Settings, how: Any, shapes: Any) -> LakeChangelog:
        """Return the changelog for Spark's context and options; ``shapes`` makes columns of a schema.

        Raises:
            TableNotFound, NamespaceNotFound, and as :func:`change_range`.
            InvalidRequest: the table has a column of the changelog's own.
        """
        requested = change_range(lake, name, *how)
        time_type = gateway.spark.conf.get("spark.sql.timeType.enabled", "false") == "true"
        table = load_table(lake, name, settings, snapshot_id=requested.until, time_type=time_type)
        if settings.signed_urls:
            raise InvalidRequest("changes are not read by signed URLs; attach the catalog without signed_urls")
        taken = {column.name.lower() for column in table.schema.columns}
        for field in CHANGE_FIELDS:
            if field["name"] in taken:
                raise InvalidRequest(f"the table has a column {field['name']!r}, which is one of its changes")
        for key in requested.keys:
            if key.lower() not in taken:
                raise UnknownColumn(f"there is no column {key!r}", column=key)
        return cls(gateway, table, requested, shapes(gateway.planned_schema(changed_schema(table.columns.typed))))

    def _key(self) -> str:
        requested = self._requested
        return (
            f"Lamella {self._table.name} changes {requested.since}..{requested.until} {requested.net} {requested.keys}"
        )

    def name(self) -> str:
        return f"{self._table.name} changes"

    def columns(self) -> Any:
        return self._columns

    def containsCarryoverRows(self) -> bool:
        return False

    def containsIntermediateChanges(self) -> bool:
        return False  # Spark would combine them by a key; the service knows the difference of the two ends

    def representsUpdateAsDeleteAndInsert(self) -> bool:
        return False

    def rowId(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "expressions.NamedReference")

    def newScanBuilder(self, options: Any) -> Any:
        unknown = sorted({str(key) for key in options.keySet()} - _OF_SPARK - {KEYS})
        if unknown:
            raise InvalidRequest(f"unknown option {unknown[0]!r} of changes; Lamella's own is {KEYS}")
        return ChangesScanBuilder(self._gateway, self._table, self._requested)


def changed_schema(columns: str) -> str:
    """Return columns of a table and those that say what happened to a row, in Spark's JSON."""
    shown = json.loads(columns)
    return json.dumps({**shown, "fields": [*shown["fields"], *CHANGE_FIELDS]})


class ChangesScanBuilder(Proxy):
    """Collects filters and columns. Filters only leave out blocks: Spark evaluates them after the scan."""

    class Java:
        implements = [  # noqa: RUF012  # py4j reads it from the class
            SQL + "internal.connector.SupportsPushDownCatalystFilters",
            _READ + "SupportsPushDownRequiredColumns",
        ]

    def __init__(self, gateway: Gateway, table: LakeTable, requested: ChangeRange) -> None:
        super().__init__(gateway)
        self._table = table
        self._requested = requested
        self._tree: dict[str, Any] = TRUE
        self._time_zone = "UTC"
        self._fields: list[dict[str, Any]] = json.loads(changed_schema(table.columns.shown))["fields"]

    def pushFilters(self, filters: Any) -> Any:
        if not self._requested.keys:  # the other row of an update may not match
            walker = FilterWalker(self._table.schema, time_zone=self._gateway.time_zone())
            self._tree, self._time_zone = walker.conjunction(filters), walker.time_zone
        return filters

    def pushedFilters(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "expressions.filter.Predicate")

    def pruneColumns(self, required: Any) -> None:
        fields = json.loads(str(required.json()))["fields"]
        # Rows without columns cannot be passed on.
        self._fields = fields or [field for field in CHANGE_FIELDS if field["type"] == "long"]

    def build(self) -> Any:
        names = [field["name"] for field in self._fields]
        own = {field["name"] for field in CHANGE_FIELDS}
        self._table.columns.check([name for name in names if name not in own])
        return ChangesScan(self._gateway, self._table, self._requested, self._changes(), self._fields, self._tree)

    def _changes(self) -> list[SnapshotChanges]:
        if len(json.dumps(self._tree)) > _MAX_FILTER:
            self._tree = TRUE
        try:
            found = list(self._listed(None if self._tree == TRUE else self._tree))
        except ODD_TREE:
            self._tree = TRUE
            found = list(self._listed(None))
        for changes in found:
            if not is_silent(changes):
                require_earlier_rows(changes)
        return [with_schema_ids(changes, self._table.schema.schema_id) for changes in found]

    def _listed(self, tree: dict[str, Any] | None) -> Iterator[SnapshotChanges]:
        requested = self._requested
        return self._table.handle.changes(
            requested.since,
            requested.until,
            tree,
            net=requested.net,
            time_zone=self._time_zone,
            reader_features=FEATURES,
        )


class ChangesScan(Proxy):
    """One scan of changed rows."""

    class Java:
        implements = [_READ + "Scan"]  # noqa: RUF012  # py4j reads it from the class

    def __init__(
        self,
        gateway: Gateway,
        table: LakeTable,
        requested: ChangeRange,
        changes: Sequence[SnapshotChanges],
        fields: Sequence[dict[str, Any]],
        tree: dict[str, Any],
    ) -> None:
        super().__init__(gateway)
        self._table = table
        self._requested = requested
        self._struct = json.dumps({"type": "struct", "fields": list(fields)})
        self._snapshots = len(changes)
        self._tree = tree
        self._native = changes_scan(gateway, table, changes, self._struct, keys=requested.keys)

    def _key(self) -> str:
        requested = self._requested
        return json.dumps(
            [
                self._table.name,
                requested.since,
                requested.until,
                requested.net,
                requested.keys,
                self._struct,
                self._tree,
            ]
        )

    def readSchema(self) -> Any:
        return self._gateway.struct_type(self._struct)

    def description(self) -> str:
        filter = "" if self._tree == TRUE else f" filter=[{shortened(filter_text(self._tree))}]"
        return f"Lamella {self._table.name} changes of {counted(self._snapshots, 'snapshot')}{filter}"

    def toBatch(self) -> Any:
        return self._native.toBatch()

    def toMicroBatchStream(self, _folder: str) -> NoReturn:
        raise InvalidRequest(
            f"changes are no stream; spark.readStream.table({self._table.name!r}) has the rows that are added"
        )

    def columnarSupportMode(self) -> Any:
        return self._native.columnarSupportMode()

    def supportedCustomMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomTaskMetric")
