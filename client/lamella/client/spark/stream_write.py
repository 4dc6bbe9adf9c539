"""A stream into a table: ``writeStream.toTable``.

Spark asks for a factory of writers, runs it on the executors, and then commits the batch. Its own Parquet writer has no
such factory for streams; that of its Python data sources has. So Python workers sort the rows and write blocks, as for
any other write, and the driver commits them with the progress of the query (:mod:`lamella.client.spark.streaming`).
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lamella.client.http import Lamella
from lamella.client.rewrite.commit import TableState
from lamella.client.rewrite.engine import merge_runs, scratch_space
from lamella.client.rewrite.stages import Sink, SinkResult
from lamella.client.rewrite.target import arrow_schema
from lamella.client.spark.engine import SparkEngine
from lamella.client.spark.gateway import CONNECTOR, DATASOURCES, SQL, Gateway
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.streaming import Progress, commit_once
from lamella.client.spark.writer import matched_columns
from lamella.client.write.commit import RowsCommit
from lamella.client.write.layout import Layout
from lamella.snapshot.errors import InvalidRequest, LamellaError, SchemaMismatch
from lamella.snapshot.schema.arrow import arrow_default
from lamella.snapshot.schema.spark_types import columns_of

_WRITE: Final = CONNECTOR + "write."
_FORMAT: Final = "lamella_stream"
#: The name of the option has "url" inside of it because Spark shows the others; it may hold credentials of the store.
_OPTION: Final = "sinkUrl"

_log = logging.getLogger(__name__)


class StreamSink(msgspec.Struct, frozen=True, kw_only=True):
    """What a task does with rows, as JSON for an option. ``positions``: for each column of the table that of the column
    of the query; None: it gets its default."""

    sink: Sink
    positions: tuple[int | None, ...]

    def drain(self, batches: Iterator[pa.RecordBatch]) -> SinkResult:
        """Write the rows of a task; raises SchemaMismatch for a row that does not fit, and StoreError."""
        return self.sink.drain(self._of_table(batch) for batch in batches)

    def _of_table(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = self.sink.target.schema
        columns = []
        for column, field, position in zip(schema.columns, arrow_schema(schema), self.positions, strict=True):
            if position is not None:
                columns.append(batch.column(position))
            elif (default := column.default_of_new_rows) is not None:
                value = arrow_default(column.dtype, default).cast(field.type)
                columns.append(pa.repeat(value, batch.num_rows))
        return pa.RecordBatch.from_arrays(columns, names=[f"c{at}" for at in range(len(columns))])


class TaskDone(WriterCommitMessage):
    """What a task wrote, as JSON; or why its rows do not fit the table, which fails the batch and not the task: Spark
    would try that again, and show a traceback."""

    def __init__(self, written: bytes, failed: str | None = None) -> None:
        self.written = written
        self.failed = failed


class StreamSource(DataSource):
    """``format("lamella_stream")``: writes rows as the option says, and commits nothing. Used only by the catalog."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return _FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of tasks."""
        del schema, overwrite
        return TaskWriter(self.options[_OPTION])


class TaskWriter(DataSourceStreamArrowWriter):
    """Writes the rows of tasks."""

    def __init__(self, sink: str) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        try:
            done = msgspec.json.decode(self._sink, type=StreamSink).drain(iterator)
        except SchemaMismatch as error:
            return TaskDone(b"", error.message)
        return TaskDone(msgspec.json.encode(done))


class LakeStreamingWrite(Proxy):
    """One micro-batch. ``replaces``: the rows that it replaces; None: none."""

    class Java:
        implements = [_WRITE + "streaming.StreamingWrite"]  # noqa: RUF012  # py4j reads it from the class

    def __init__(self, gateway: Gateway, lake: Lamella, name: str, info: Any, layout: Layout, replaces: Any) -> None:
        super().__init__(gateway)
        self._lake = lake
        self._name = name
        self._info = info
        self._layout = layout
        self._replaces = replaces
        self._opened = ExitStack()

    def createStreamingWriterFactory(self, info: Any) -> Any:
        self._gateway.require_pinned_threads(f"toTable({self._name!r})")
        self._state = TableState.read(self._lake, self._name)
        self._target = self._layout.target_of(self._state)
        fields = json.loads(str(self._info.schema().json()))["fields"]
        given = columns_of(json.dumps({"type": "struct", "fields": fields}))
        positions = {column.name: number for number, column in enumerate(given)}
        matched = matched_columns(given, self._target.schema)
        space = scratch_space(
            self._target, is_near=SparkEngine(self._gateway.spark).is_near, folder=self._layout.scratch
        )
        self._space = self._opened.enter_context(space)
        sink = StreamSink(
            sink=Sink(target=self._target, scratch=self._space.scratch),
            positions=tuple(None if column is None else positions[column.name] for _, column in matched),
        )
        # By position: Spark's conversion to Arrow fails on dots in names.
        plain = [{**field, "name": f"c{number}", "metadata": {}} for number, field in enumerate(fields)]
        try:
            return self._native(sink, json.dumps({"type": "struct", "fields": plain}), info)
        except BaseException:
            self._opened.close()
            raise

    def _native(self, sink: StreamSink, struct: str, info: Any) -> Any:
        """Return the factory of Spark's own writer for Python data sources."""
        gateway = self._gateway
        gateway.spark.dataSource.register(StreamSource)
        text = msgspec.json.encode(sink).decode()
        options = gateway.java_class(SQL + "util.CaseInsensitiveStringMap")(gateway.java_map({_OPTION: text}))
        schema = gateway.struct_type(struct)
        nothing = gateway.java_class("java.util.Optional").empty()
        try:
            with gateway.active_session(gateway.session):  # which knows the data source
                source = gateway.java_class(DATASOURCES + "v2.python.PythonDataSourceV2")()
                source.setShortName(_FORMAT)
                no_partitions = gateway.empty_array(CONNECTOR + "expressions.Transform")
                table = source.getTable(schema, no_partitions, options.asCaseSensitiveMap())
                logical = gateway.java_class(_WRITE + "LogicalWriteInfoImpl")
                own = logical(self._info.queryId(), schema, options, nothing, nothing)
                return table.newWriteBuilder(own).build().toStreaming().createStreamingWriterFactory(info)
        except (TypeError, AttributeError) as error:  # a class that this version of Spark does not have
            raise InvalidRequest(
                "this version of Spark lacks what toTable needs; use write_stream(frame, name, sink=...) of"
                " lamella.client.spark"
            ) from error

    def useCommitCoordinator(self) -> bool:
        return True

    def commit(self, number: int, messages: Any) -> None:
        with self._opened:
            done = [pickle.loads(bytes(message.pickledMessage())) for message in messages if message is not None]  # noqa: S301  # of our own tasks
            failed = next((each.failed for each in done if each.failed is not None), None)
            if failed is not None:
                raise SchemaMismatch(failed)
            sunk = [msgspec.json.decode(each.written, type=SinkResult) for each in done]
            if len(sunk) != len(messages):
                raise LamellaError(f"Spark lost {len(messages) - len(sunk)} of the tasks of batch {number}")
            self._commit(int(number), sunk)

    def _commit(self, number: int, sunk: list[SinkResult]) -> None:
        engine = SparkEngine(self._gateway.spark)
        runs = [run for each in sunk for run in each.runs]
        self._space.used(runs, [each.written for each in sunk])
        written = [*(each.written for each in sunk), *merge_runs(engine, self._target, self._space, runs)]
        query = str(self._info.queryId())

        def commit(rows_commit: RowsCommit) -> None:
            rows_commit.apply(self._lake, engine, self._state, self._target, written, scratch=self._layout.scratch)

        commit_once(self._lake, self._name, query, Progress(batch=number, query=query), commit, replaces=self._replaces)

    def abort(self, number: int, _messages: Any) -> None:
        _log.info("batch %d of %s was not written", number, self._name)
        self._opened.close()
