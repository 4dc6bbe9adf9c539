"""SQL ``UPDATE``, ``DELETE`` and ``MERGE``: how the new rows are written and committed.

Spark's own Parquet writer on the executors writes the rows to scratch space. When all tasks are done, the driver has
these files rewritten as blocks of the table, by the stages of any other write, and makes one commit: without the rows
that the scan took from the table, and with these blocks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq

from lamella.client.rewrite.block_writer import WrittenBlocks
from lamella.client.rewrite.commit import TableState, commit_result
from lamella.client.rewrite.engine import Engine, ScratchSpace, SerialEngine, merge_runs, scratch_space
from lamella.client.rewrite.source import Source, grouped
from lamella.client.rewrite.stages import Bin, RewriteBin, SortBlocks
from lamella.client.rewrite.target import Target
from lamella.client.spark.block_scan import session_with
from lamella.client.spark.engine import SparkEngine
from lamella.client.spark.gateway import CONNECTOR, DATASOURCES, SQL, Gateway
from lamella.client.spark.lake import hadoop_path
from lamella.client.spark.literal import TRUE
from lamella.client.spark.proxy import Proxy, raise_java, spark_exception
from lamella.client.spark.row_level import RowLevel, Taken
from lamella.client.spark.statement import run_again
from lamella.snapshot.errors import CommitConflict, InvalidRequest, LamellaError, SchemaMismatch
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import RowChange
from lamella.snapshot.parquet.footer import StoreFile
from lamella.snapshot.storage import Store
from lamella.snapshot.wire import NoNewMatches

_WRITE: Final = CONNECTOR + "write."
#: Spark's settings for the files, whatever those of the session are.
_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.compression.codec": "snappy",
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.sources.commitProtocolClass": DATASOURCES + "SQLHadoopMapReduceCommitProtocol",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
}
#: Of the write. Version 2 of the committer would leave files of tasks that fail while they commit.
_OPTIONS: Final = {"mapreduce.fileoutputcommitter.algorithm.version": "1", "parquet.enable.summary-metadata": "false"}
#: Bytes of Parquet that the driver rewrites by itself; more is rewritten by tasks of Spark.
_DRIVER_BYTES: Final = 16 << 20
_TASK_BYTES: Final = 64 << 20


class RowLevelWrite(Proxy):
    """Builder and write in one."""

    class Java:
        implements = [_WRITE + "WriteBuilder", _WRITE + "Write"]  # noqa: RUF012  # py4j reads it from the class

    def __init__(self, operation: RowLevel, info: Any) -> None:
        super().__init__(operation.destination.gateway)
        self._operation = operation
        self._info = info

    def build(self) -> Any:
        return self

    def description(self) -> str:
        return f"Lamella {self._operation.destination.table.name} {self._operation.verb.lower()}"

    def supportedCustomMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomTaskMetric")

    def toBatch(self) -> Any:
        self._operation._running()
        return RowLevelBatchWrite(self._operation, self._info)


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What Spark counted while it wrote; None: it did not."""

    copied: int | None = None
    updated: int | None = None
    deleted: int | None = None
    inserted: int | None = None

    @classmethod
    def of(cls, verb: str, summary: Any) -> Counts:
        """Return the counts of a ``WriteSummary``."""
        if summary is None:
            return cls()
        if verb == "MERGE":
            return cls(
                copied=_known(summary.numTargetRowsCopied()),
                updated=_known(summary.numTargetRowsUpdated()),
                deleted=_known(summary.numTargetRowsDeleted()),
                inserted=_known(summary.numTargetRowsInserted()),
            )
        copied = _known(summary.numCopiedRows())
        if verb == "UPDATE":
            return cls(copied=copied, updated=_known(summary.numUpdatedRows()), deleted=0, inserted=0)
        return cls(copied=copied, updated=0, deleted=_known(summary.numDeletedRows()), inserted=0)

    def copies_rows_repeatedly(self, taken: int) -> bool:
        """Whether more rows were copied, updated or deleted than were taken from the table."""
        return sum(part or 0 for part in (self.copied, self.updated, self.deleted)) > taken

    def check(self, taken: int, written: int, *, may_match_repeatedly: bool) -> None:
        """Raise LamellaError unless each row that was taken from the table was copied, updated or deleted, and each
        other written row inserted. ``may_match_repeatedly``: a deleted row may be counted several times."""
        after, before = (self.copied, self.updated, self.inserted), (self.copied, self.updated, self.deleted)
        known = None not in after and None not in before
        wrong = sum(part or 0 for part in after) > written or sum(part or 0 for part in after[:2]) > taken
        if known and not wrong:
            counted = sum(part or 0 for part in before)
            wrong = sum(part or 0 for part in after) != written or (
                counted < taken if may_match_repeatedly else counted != taken
            )
        if wrong:
            raise LamellaError(
                f"the statement read {taken} rows and wrote {written}, but Spark counts {self}; nothing was done"
            )

    def is_nothing(self, taken: int, written: int) -> bool:
        """Whether the table stays as it is."""
        if taken == 0 and written == 0:
            return True
        return taken == written and self.updated == 0 and self.deleted == 0 and self.inserted == 0


def _known(count: int) -> int | None:
    return None if int(count) < 0 else int(count)


class WrittenFile(msgspec.Struct, frozen=True):
    """A file of rows. ``nulls``: the columns of simple types that have some."""

    source: Source
    nulls: frozenset[str]

    @classmethod
    def read(cls, store: Store, location: str) -> WrittenFile:
        """Return what the file's footer says."""
        stat = store.stat(location)
        with StoreFile(store, stat) as opened, pq.ParquetFile(opened) as file:
            metadata = file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
        return cls(
            Source(
                location=location,
                row_count=metadata.num_rows,
                file_size=stat.size_bytes,
                content_id=stat.content_id,
                schema_id=0,
            ),
            frozenset(
                chunk.path_in_schema
                for chunk in chunks
                if chunk.statistics is not None and chunk.statistics.has_null_count and chunk.statistics.null_count
            ),
        )


class Staging:
    """Scratch space for the rows that Spark writes: one folder, named as vacuum recognises it."""

    def __init__(self, gateway: Gateway, target: Target, folder: str | None) -> None:
        self._gateway = gateway
        self._store = target.store()
        self._local: tempfile.TemporaryDirectory[str] | None = None
        if folder is None and SparkEngine(gateway.spark).is_near:
            self._local = tempfile.TemporaryDirectory(prefix="lamella-", ignore_cleanup_errors=True)
            self.location = f"file://{self._local.name}/rows"
        else:
            self.location = f"{(folder or target.layout.scratch).rstrip('/')}/{Ids().new()}_v1.rows"

    @property
    def folder(self) -> str:
        """Hadoop's path of the folder."""
        return hadoop_path(f"{self.location}/f").rpartition("/")[0]

    def files(self) -> list[WrittenFile]:
        """Return the files that tasks committed."""
        found = []
        for each in self._store.list(f"{self.location}/"):
            name = each.location.removeprefix(f"{self.location}/")
            if "/" not in name and name.endswith(".parquet"):
                found.append(WrittenFile.read(self._store, each.location))
        return found

    def clear(self) -> None:
        """Remove everything."""
        from py4j.protocol import Py4JError

        if self._local is not None:
            self._local.cleanup()
            return
        path = self._gateway.path(self.folder)
        with suppress(Py4JError):  # vacuum removes it
            path.getFileSystem(self._gateway.session.sessionState().newHadoopConf()).delete(path, True)


def spark_writer(gateway: Gateway, path: str, info: Any) -> Any:
    """Return Spark's ``BatchWrite`` of Parquet files into a folder; ``info``: the ``LogicalWriteInfo`` of the rows."""
    session = session_with(gateway, _SETTINGS)
    options = gateway.java_class(SQL + "util.CaseInsensitiveStringMap")(gateway.java_map(_OPTIONS))
    of_file = gateway.java_class("java.lang.Class").forName(DATASOURCES + "parquet.ParquetFileFormat")
    table = gateway.java_class(DATASOURCES + "v2.parquet.ParquetTable")(
        "rows", session, options, gateway.seq([path]), gateway.some(info.schema()), of_file
    )
    nothing = gateway.java_class("java.util.Optional").empty()
    own = gateway.java_class(_WRITE + "LogicalWriteInfoImpl")(info.queryId(), info.schema(), options, nothing, nothing)
    with gateway.active_session(session):  # the writer takes its settings from there
        return table.newWriteBuilder(own).build().toBatch()


class RowLevelBatchWrite(Proxy):
    """One execution of a write."""

    class Java:
        implements = [_WRITE + "BatchWrite"]  # noqa: RUF012

    def __init__(self, operation: RowLevel, info: Any) -> None:
        super().__init__(operation.destination.gateway)
        self._operation = operation
        to = operation.destination
        layout = to.defaults
        state = TableState.read(to.lake, to.table.name, snapshot_id=to.table.snapshot_id)
        self._state = state.with_update(to.table.schema_update)
        self._target = self._state.target(
            keys=layout.keys,
            block_rows=layout.block_rows,
            block_bytes=layout.block_bytes,
            compression=layout.compression,
            indexes=layout.indexes,
            storage_options=layout.storage_options,
        )
        self._target.check()
        self._properties: dict[str, str | None] = {}
        self._staging = Staging(self._gateway, self._target, layout.scratch)
        try:
            self._native = spark_writer(self._gateway, self._staging.folder, info)
        except (TypeError, AttributeError) as error:  # a class that this version of Spark does not have
            self._staging.clear()
            raise InvalidRequest(
                f"this version of Spark lacks what {operation.verb} by SQL needs; use update, merge and delete of"
                " lamella.client.spark"
            ) from error
        except BaseException:
            self._staging.clear()
            raise

    def createBatchWriterFactory(self, info: Any) -> Any:
        # Tasks have the settings of the session that runs the statement, by properties of its thread.
        context = self._gateway.session.sparkContext()
        for name, value in _SETTINGS.items():
            self._properties.setdefault(name, context.getLocalProperty(name))
            context.setLocalProperty(name, value)
        return self._native.createBatchWriterFactory(info)

    def useCommitCoordinator(self) -> bool:
        return bool(self._native.useCommitCoordinator())

    def onDataWriterCommit(self, _message: Any) -> None:
        """Do nothing: the files are read when all tasks are done."""

    def commit(self, messages: Any, *summary: Any) -> None:
        try:
            self._native.commit(messages)
            files = self._staging.files()
            written = sum(file.source.row_count for file in files)
            scan = self._operation._scan_read()
            taken = Taken() if scan is None or scan.taken is None else scan.taken
            counts = Counts.of(self._operation.verb, summary[0] if summary else None)
            repeatedly = self._operation._running().may_match_repeatedly
            if self._operation.verb == "MERGE" and not repeatedly and counts.copies_rows_repeatedly(taken.row_count):
                # Spark itself checks this only if there is a clause WHEN MATCHED.
                raise_java(spark_exception(self._gateway, "MERGE_CARDINALITY_VIOLATION", self._gateway.scala_map({})))
            counts.check(taken.row_count, written, may_match_repeatedly=repeatedly)
            if not counts.is_nothing(taken.row_count, written):
                self._commit(taken, files)
        finally:
            self._end()

    def _end(self) -> None:
        self._staging.clear()
        for name, value in self._properties.items():
            self._gateway.session.sparkContext().setLocalProperty(name, value)
        self._properties.clear()

    def _commit(self, taken: Taken, files: Sequence[WrittenFile]) -> None:
        to = self._operation.destination
        target = self._target
        self._require_values(files)
        sources = [file.source for file in files]
        scan = self._operation._scan_read()
        request = None if scan is None else scan.request
        spark = SparkEngine(self._gateway.spark)
        is_small = sum(source.file_size for source in sources) <= _DRIVER_BYTES
        engine: Engine = SerialEngine() if is_small else spark
        with scratch_space(target, is_near=spark.is_near, folder=to.defaults.scratch) as space:
            try:
                commit_result(
                    to.lake,
                    self._state,
                    target,
                    rewritten(engine, target, space, sources),
                    operation=self._operation.verb.lower(),
                    removed=[block.source.location for block in taken.blocks if block.positions is None],
                    deletes={
                        block.source.location: block.positions for block in taken.blocks if block.positions is not None
                    },
                    row_change=self._row_change(sources),
                    reads=self._operation._running().reads,
                    no_new_matches=NoNewMatches(
                        filter=None if request is None or request.tree == TRUE else request.tree,
                        time_zone="UTC" if request is None else request.time_zone,
                    ),
                )
            except CommitConflict as error:
                raise run_again(error, self._operation.verb) from error

    def _row_change(self, sources: Sequence[Source]) -> RowChange | None:
        """Return what the commit does to rows; None: what its blocks say."""
        adds = any(source.row_count for source in sources)
        only_rows = self._operation._running().reads_only_rows
        return "delete" if self._operation.verb == "DELETE" and only_rows and not adds else None

    def _require_values(self, files: Sequence[WrittenFile]) -> None:
        """Throw Spark's own error if a required column has nulls."""
        nulls = {name.lower() for file in files for name in file.nulls}
        for column in self._target.schema.columns:
            if not column.nullable and column.name.lower() in nulls:
                parameters = self._gateway.scala_map({"walkedTypePath": f"\n{column.name}\n"})
                raise_java(spark_exception(self._gateway, "NOT_NULL_ASSERT_VIOLATION", parameters))

    def abort(self, messages: Any) -> None:
        try:
            self._native.abort(messages)
        finally:
            self._end()


def rewritten(engine: Engine, target: Target, space: ScratchSpace, files: Sequence[Source]) -> list[WrittenBlocks]:
    """Return the rows of files as blocks of the table that are in no snapshot yet.

    Raises:
        SchemaMismatch: a value does not fit.
    """
    sources = [msgspec.structs.replace(file, schema_id=target.schema.schema_id) for file in files if file.row_count]
    if not sources:
        return []
    if sum(source.file_size for source in sources) <= _DRIVER_BYTES:
        stage = RewriteBin(target=target, scratch=space.scratch)
        ((_, result),) = engine.run(stage, [Bin(sources=tuple(sources))])
        _require_read(result.failed)
        space.used(written=[result.written])
        return [result.written]
    tasks = [Bin(sources=tuple(some)) for some in grouped(sources, lambda source: source.file_size, _TASK_BYTES)]
    runs = []
    for _, result in engine.run(SortBlocks(target=target, scratch=space.scratch), tasks):
        _require_read(result.failed)
        space.used(result.runs)
        runs += result.runs
    return merge_runs(engine, target, space, runs)


def _require_read(failed: str | None) -> None:
    if failed is not None:
        raise SchemaMismatch(failed)
