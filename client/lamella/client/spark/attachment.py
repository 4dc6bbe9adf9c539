"""Attaches a Lamella service to a Spark session as a catalog."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from py4j.protocol import Py4JError, Py4JJavaError

from lamella.client.http import Lamella
from lamella.client.spark.block_plan import block_plan
from lamella.client.spark.block_scan import NO_FILTERS, RelationIndex, file_index, parquet_scan, relation_frame
from lamella.client.spark.catalog import LakeCatalog, LakeRelationCatalog
from lamella.client.spark.changelog import KEYS, TableHistory
from lamella.client.spark.deleted_rows import table_frame
from lamella.client.spark.gateway import CONNECTOR, DATASOURCES, SQL, Gateway
from lamella.client.spark.hooks import probe_hooks
from lamella.client.spark.lake import BlockSelection, Settings, client_of, load_table, plain_options, unix_ms
from lamella.client.spark.proxy import Proxy, runtime_exception
from lamella.client.write.layout import Layout
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.schema import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lamella.client.http.call import Filter

Mode = Literal["catalog", "views"]
#: Interfaces that a catalog cannot do without.
_REQUIRED: Final = (
    *(f"{CONNECTOR}catalog.{name}" for name in ("TableCatalog", "SupportsRead", "Column", "Identifier")),
    *(f"{CONNECTOR}read.{name}" for name in ("Scan", "LocalScan", "Batch", "SupportsPushDownRequiredColumns")),
    SQL + "internal.connector.SupportsPushDownCatalystFilters",
)
_PROBE_SCHEMA = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'


class LamellaSparkWarning(UserWarning):
    """A feature is limited with this version of Spark."""


class NewSessions(Proxy):
    """Gives each session that Spark makes from now on to a function, until ``end``: those of Spark Connect, the copies
    for ``foreachBatch``, and ``newSession()``.

    Each has its own catalogs. Spark makes a parser for each, through its extensions, and parses a statement or a name
    before it looks for a table (``Sessions.java``).
    """

    class Java:
        implements = ["java.util.function.Consumer"]  # noqa: RUF012  # py4j reads it from the object

    def __init__(self, gateway: Gateway, found: Callable[[SparkSession], None]) -> None:
        super().__init__(gateway)
        self._found = found
        self._watch: Any = gateway.classes.sessions.watch(gateway.session.extensions(), self)

    def accept(self, session: Any) -> None:
        from pyspark.sql.session import SparkSession  # that of a classic session, in each mode of PySpark

        self._found(SparkSession(self._gateway.spark.sparkContext, session))

    def _end(self) -> None:
        self._watch.end()


class Attached:
    """A Lamella service attached to a Spark session.

    ``mode`` "catalog": SQL finds tables as ``<name>.<namespace>.<table>``. ``mode`` "views": this version of Spark
    cannot have the catalog, for the reason in ``reason``; use :meth:`table` and :meth:`view`.
    """

    def __init__(
        self,
        gateway: Gateway,
        name: str,
        lake: Lamella,
        settings: Settings,
        *,
        reason: str | None,
        owns_client: bool,
        new_sessions: NewSessions | None = None,
    ) -> None:
        self._gateway = gateway
        self._owns_client = owns_client
        self._new_sessions = new_sessions
        self._lake = lake
        self._settings = settings
        self.name = name
        self.reason = reason
        self.mode: Mode = "catalog" if reason is None else "views"

    def table(
        self,
        name: str,
        *,
        snapshot_id: str | None = None,
        timestamp: dt.datetime | int | None = None,
        columns: Sequence[str] | None = None,
    ) -> DataFrame:
        """Return ``namespace.table`` as a frame, in both modes, at the current snapshot or the requested one.

        ``timestamp``: an aware datetime or Unix milliseconds. ``columns``: only these; required when the table has a
        column that Spark cannot read.

        Raises:
            TableNotFound, NamespaceNotFound, SnapshotNotFound, InvalidSchema.
        """
        table = load_table(
            self._lake,
            name,
            self._settings,
            snapshot_id=snapshot_id,
            timestamp_ms=unix_ms(timestamp),
            time_type=self._gateway.spark.conf.get("spark.sql.timeType.enabled", "false") == "true",
        )
        if self.mode == "catalog":
            frame = table_frame(self._gateway.spark, self.name, table)
            return frame if columns is None else frame.select(*map(quoted, columns))
        return relation_frame(self._gateway, table, columns)

    def plan(
        self,
        name: str,
        filter: Filter = None,
        *,
        snapshot_id: str | None = None,
        timestamp: dt.datetime | int | None = None,
        partitions: int | None = None,
    ) -> DataFrame:
        """Return the blocks of ``namespace.table`` that may hold a row for which ``filter`` is true, as a frame.

        The service leaves out segments, and Spark's executors test the blocks of the others, in about ``partitions``
        tasks; so the answer may be longer than one process would like. ``filter``: as of
        :meth:`lamella.client.http.Table.prune`; ``now()`` has the value that it has at this call. Columns: those of
        ``t$blocks``, ``segment_id`` and ``verdict``. The snapshot is that of :meth:`table`.

        Executors read the table's sidecars and indexes from the store. A session that reads by signed URLs, or whose
        driver has no access to the store, gets the whole answer from the service.

        Raises:
            TableNotFound, NamespaceNotFound, SnapshotNotFound, and the errors of a prune.
            SparkRuntimeException: when the frame is read, with the code of the error if an executor cannot read the
                store.
        """
        table = load_table(self._lake, name, self._settings, snapshot_id=snapshot_id, timestamp_ms=unix_ms(timestamp))
        return block_plan(self._gateway, table, filter, partitions)

    def changes(
        self,
        name: str,
        since: str | int | None = None,
        until: str | int | None = None,
        *,
        since_timestamp: dt.datetime | int | None = None,
        until_timestamp: dt.datetime | int | None = None,
        keys: Sequence[str] = (),
        net: bool = False,
    ) -> DataFrame:
        """Return the rows of ``namespace.table`` that came and went after a snapshot, as a frame.

        They are those of :meth:`lamella.client.http.Table.row_changes`, with the columns ``_change_type``,
        ``_commit_version`` and ``_commit_timestamp``, and are read by Python workers. ``since`` (exclusive), ``until``
        (default: the current one): the number of a snapshot in the history, its id, or a tag; or a time, as an aware
        datetime or Unix milliseconds. ``keys``: columns by which a deleted and an inserted row of a snapshot are an
        update. ``net``: only the difference of the two ends.

        Raises:
            InvalidRequest: no start or two; mode "views".
            SnapshotNotFound: no such snapshot (SnapshotExpired: not any more, or one in between).
            TableNotFound, NamespaceNotFound.
        """
        if (since is None) == (since_timestamp is None) or (until is not None and until_timestamp is not None):
            raise InvalidRequest("give one start of changes, since or since_timestamp, and at most one end")
        if self.mode != "catalog":
            raise InvalidRequest(f"changes as frames need the catalog, which is not available: {self.reason}")
        if "changes" in self._gateway.missing_hooks:
            raise InvalidRequest("this version of Spark has no changes; use lamella.client.Table.row_changes")
        history = TableHistory(self._lake.table(name))
        given = {"startingVersion": history.end_of(since, unix_ms(since_timestamp)), "startingBoundInclusive": "false"}
        if until is not None or until_timestamp is not None:
            given["endingVersion"] = history.end_of(until, unix_ms(until_timestamp))
        if keys:
            given[KEYS] = ",".join(keys)
        if net:
            given["deduplicationMode"] = "netChanges"
        table = ".".join(map(quoted, (self.name, *name.split("."))))
        return self._gateway.spark.read.options(**given).changes(table)

    def view(self, name: str, view_name: str | None = None, **options: Any) -> str:
        """Create a temporary view over :meth:`table` (same ``options``) and return its name.

        Without a ``view_name`` the name is ``<attached name>_<namespace>_<table>``. The view stays at its snapshot:
        create it again to see later commits.
        """
        chosen = view_name or "_".join((self.name, *name.split(".")))
        self.table(name, **options).createOrReplaceTempView(chosen)
        return chosen

    def detach(self) -> None:
        """Remove the catalog from the session, and close the client if :func:`attach` made it.

        Sessions that have got the catalog by ``new_sessions`` keep it; later ones do not get it.
        """
        if self.mode == "catalog":
            _catalogs(self._gateway).remove(self.name)
        if self._new_sessions is not None:
            self._new_sessions._end()
        if self._owns_client:
            self._lake.close()

    def __repr__(self) -> str:
        return f"Attached({self.name!r}, mode={self.mode!r}, lake={self._lake!r})"


def attach(
    spark: SparkSession,
    name: str,
    url_or_client: str | Lamella,
    *,
    allow_fallback: bool = False,
    max_join_keys: int = 100_000,
    page_index: bool | None = None,
    mode: Mode | None = None,
    storage_options: Mapping[str, Mapping[str, Any]] | None = None,
    scratch: str | None = None,
    signed_urls: bool = False,
    aggregates: bool = True,
    new_sessions: bool = False,
) -> Attached:
    """Attach a Lamella service to a classic Spark session as the catalog ``name``.

    Afterwards ``spark.sql("SELECT ... FROM name.namespace.table WHERE ...")`` reads only the blocks that the service
    selects, also with ``VERSION AS OF`` and ``TIMESTAMP AS OF``. The catalog belongs to this session: attach a
    ``newSession()`` separately, or with ``new_sessions`` all that Spark makes from now on: those too of Spark Connect
    and ``foreachBatch``, also for other users. Attaching again replaces the catalog.

    ``allow_fallback``: when the service cannot prune, read every block of the snapshot and log a warning; otherwise the
    query fails with the service's message. ``max_join_keys``: of a join with more distinct keys, only the smallest and
    the largest key prune. ``page_index``: let Spark skip pages inside files by their column indexes: None for reads
    whose blocks were all written by Lamella's jobs, True always (if you trust the writers), False never.
    ``storage_options``: with which this process and Python workers read and write the store (see
    :func:`lamella.client.spark.write`); Spark's own reader has settings of its own (``spark.hadoop.fs.s3a...``).
    ``scratch``: for SQL writes, as there. ``signed_urls``: read blocks by URLs that the service signs, without
    credentials for the store; reads run in Python workers, which is slower, and are not available in mode "views". See
    ``docs/data-access.md``. ``aggregates``: let this process answer counts, minima, maxima and sums, from statistics
    and the rows of a few blocks. ``mode``: the required mode; by default "catalog", or "views" with a
    :class:`LamellaSparkWarning` when this version of Spark lacks the internals that a catalog needs.

    Raises:
        InvalidRequest: a Spark Connect session, a reserved name, or signed URLs in mode "views".
        LamellaError: neither mode works with this version of Spark.
    """
    if not name or name == "spark_catalog" or "`" in name:
        raise InvalidRequest(f"a catalog cannot be called {name!r}")
    gateway = Gateway(spark)
    lake = client_of(url_or_client)
    owns_client = lake is not url_or_client
    options = plain_options(storage_options)
    writing = Layout(storage_options=options, scratch=scratch)
    settings = Settings(
        allow_fallback=allow_fallback,
        max_join_keys=max_join_keys,
        page_index=page_index,
        signed_urls=signed_urls,
        storage_options=options,
        aggregates=aggregates,
    )
    reason = "asked for" if mode == "views" else _missing(lambda: _probe_catalog(gateway))
    if reason is None:
        lacking = probe_hooks(gateway)
        kind = LakeCatalog if "views" in gateway.missing_hooks else LakeRelationCatalog
        catalog = kind(gateway, name, lake, settings, writing)._in_jvm()
        reason = _missing(lambda: _probe_callback(catalog, name))

        def attach_new(session: SparkSession) -> None:
            own = gateway.of_session(session)
            _catalogs(own).put(name, kind(own, name, lake, settings, writing)._in_jvm())

    if reason is None:
        if lacking:
            texts = [f"{hook.without} ({hook.name}: {why})" for hook, why in lacking.items()]
            warnings.warn(
                f"Spark {spark.version} lacks what parts of the catalog {name!r} need: {'; '.join(texts)}",
                LamellaSparkWarning,
                stacklevel=2,
            )
        _catalogs(gateway).put(name, catalog)
        return Attached(
            gateway,
            name,
            lake,
            settings,
            reason=None,
            owns_client=owns_client,
            new_sessions=NewSessions(gateway, attach_new) if new_sessions else None,
        )
    if mode == "catalog":
        raise LamellaError(f"this version of Spark lacks what a catalog needs: {reason}")
    if signed_urls:
        raise InvalidRequest(f"signed URLs need the catalog, which is not available: {reason}")
    worse = _missing(lambda: _probe_relation(gateway))
    if worse is not None:
        raise LamellaError(f"this version of Spark is not supported: {worse}")
    if mode is None:
        warnings.warn(
            f"Spark {spark.version} lacks what the catalog {name!r} needs ({reason}); SQL cannot find its tables."
            " Use the returned object's table('namespace.table') and view('namespace.table')",
            LamellaSparkWarning,
            stacklevel=2,
        )
    return Attached(gateway, name, lake, settings, reason=reason, owns_client=owns_client)


def _missing(probe: Any) -> str | None:
    from pyspark.errors import PySparkException

    try:
        probe()
    except Py4JJavaError as error:
        return str(error.java_exception.toString())
    except (Py4JError, PySparkException, LamellaError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}".split("\n", 1)[0]
    return None


def _probe_catalog(gateway: Gateway) -> None:
    """Check every Spark internal that the catalog uses, without a table."""
    class_for_name = gateway.java_class("java.lang.Class").forName
    for interface in _REQUIRED:
        class_for_name(interface)
    _catalogs(gateway).size()
    runtime_exception(gateway, "probe")
    struct = gateway.struct_type(_PROBE_SCHEMA)
    selection = BlockSelection(locations=["file:///lamella/probe.parquet"], sizes=[1], rows=[1], blocks_total=1)
    index = file_index(gateway, selection, "probe", struct)
    options = gateway.java_class("org.apache.spark.sql.util.CaseInsensitiveStringMap").empty()
    scan = parquet_scan(gateway, {}, index, struct, options, NO_FILTERS, struct)
    gateway.classes.requests.text(options)
    if len(scan.toBatch().planInputPartitions()) != 1 or not scan.estimateStatistics().sizeInBytes().isPresent():
        raise LamellaError("Spark's Parquet scan does not plan the file that it was given")


def _probe_callback(catalog: Any, name: str) -> None:
    if str(catalog.name()) != name:
        raise LamellaError("Spark's JVM does not ask Python")


def _probe_relation(gateway: Gateway) -> None:
    gateway.java_class("java.lang.Class").forName(RelationIndex.Java.implements[0])
    for name in ("HadoopFsRelation", "PartitionDirectory", "parquet.ParquetFileFormat"):
        gateway.java_class("java.lang.Class").forName(DATASOURCES + name)


def _catalogs(gateway: Gateway) -> Any:
    """Return the session's map of catalogs. Spark makes catalogs by class name only, so this one is added by
    reflection."""
    manager = gateway.session.sessionState().catalogManager()
    field = manager.getClass().getDeclaredField("catalogs")
    field.setAccessible(True)
    return field.get(manager)


__all__ = ["Attached", "LamellaSparkWarning", "attach"]
