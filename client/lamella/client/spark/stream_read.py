"""A table as a source of Structured Streaming: ``readStream.table``.

Spark asks for the position at which the next micro-batch ends, writes it into its checkpoint, and then asks for what
lies before it; after a restart it asks again for the same. Positions and blocks are those of
:mod:`lamella.client.spark.stream_feed`; the blocks are read as those of a batch query.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lamella.client.http.maintenance import LONG_READ_S, SnapshotLease
from lamella.client.spark.block_scan import BlockScan
from lamella.client.spark.change_rows import changes_scan
from lamella.client.spark.gateway import CONNECTOR, SQL, Gateway
from lamella.client.spark.lake import LakeTable, load_table
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.stream_feed import Position, StreamFeed, StreamOptions, Unit, selection_of
from lamella.snapshot.errors import InvalidRequest, SchemaConflict

_STREAMING: Final = CONNECTOR + "read.streaming."
#: Of Spark's own offsets, the one that is any JSON.
_OFFSET: Final = SQL + "execution.streaming.runtime.SerializedOffset"
_FILES: Final = SQL + "execution.streaming.checkpointing.CheckpointFileManager"
#: The file below the source's folder in the checkpoint with the position at which the stream started.
_START: Final = "start"
#: How soon a lease is taken on the snapshot whose rows a stream begins with.
_LEASE_AFTER_S: Final = 1.0


def stream_options(options: Any) -> StreamOptions:
    """Return the options of a stream from a ``CaseInsensitiveStringMap``. Names with a dot are settings of Spark's
    reader.

    Raises:
        InvalidRequest: an option that is not known, or no such value.
    """
    known = StreamOptions.__struct_fields__
    given = {str(key).replace("-", "_"): str(options.get(key)) for key in options.keySet() if "." not in str(key)}
    for name in given:
        if name not in known:
            raise InvalidRequest(f"unknown option {name!r} of a stream; known are {', '.join(known)}")
    try:
        made = msgspec.convert(
            {name: text.lower() if name == "skip_deletes" else text for name, text in given.items()},
            StreamOptions,
            strict=False,
        )
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"options of the stream: {error}") from error
    made.check()
    return made


class LakeStream(Proxy):
    """The micro-batches of one table in one query. ``folder``: the source's own in the checkpoint."""

    class Java:
        implements = [  # noqa: RUF012  # py4j reads it from the class
            _STREAMING + "MicroBatchStream",
            _STREAMING + "SupportsTriggerAvailableNow",
        ]

    def __init__(self, gateway: Gateway, table: LakeTable, shown: tuple[Any, str], options: Any, folder: str) -> None:
        super().__init__(gateway)
        self._table = table
        #: The columns of the plan as a struct type, and as JSON.
        self._required, self._required_json = shown
        self._options = options
        self._folder = folder
        self._feed = StreamFeed(table, stream_options(options), time_zone=gateway.time_zone())
        self._start: Position | None = None
        self._head: str | None = None
        self._planned: tuple[tuple[str, str], Any] | None = None
        self._lease: tuple[str, SnapshotLease] | None = None

    @classmethod
    def of(cls, gateway: Gateway, planned: LakeTable, shown: tuple[Any, str], options: Any, folder: str) -> LakeStream:
        """Return the stream of a table as it is now; ``planned``: as the query was planned with.

        Raises:
            InvalidRequest: an option that is not known; threads are not pinned.
            SchemaConflict: its columns have changed in between.
        """
        gateway.require_pinned_threads(f"a stream of {planned.name}")
        time_type = gateway.spark.conf.get("spark.sql.timeType.enabled", "false") == "true"
        table = load_table(planned.lake, planned.name, planned.settings, time_type=time_type)
        if table.columns.shown != planned.columns.shown:
            raise SchemaConflict(
                f"the columns of {table.name} have changed since readStream.table; make the frame again",
                schema_id=table.schema.schema_id,
            )
        return cls(gateway, table, shown, options, folder)

    def _key(self) -> str:
        return f"Lamella {self._table.name} stream {self._folder} #{id(self):x}"

    def initialOffset(self) -> Any:
        return self._offset(self._first())

    def deserializeOffset(self, text: str) -> Any:
        return self._offset(Position.read(text))

    def prepareForTriggerAvailableNow(self) -> None:
        self._head = self._feed.head().snapshot_id

    def getDefaultReadLimit(self) -> Any:
        # Anything but "all available", by which Spark asks for everything in one micro-batch (Trigger.Once).
        return self._gateway.static(_STREAMING + "ReadLimit", "maxFiles")(2**31 - 1)

    def latestOffset(self, *how: Any) -> Any:
        start = self._position(how[0]) if how else self._first()
        is_limited = not how or str(how[1].getClass().getSimpleName()) != "ReadAllAvailable"
        head_id = self._head if self._head is not None else self._feed.head().snapshot_id
        self._hold(start)
        return self._offset(self._feed.end(start, head_id, limited=is_limited))

    def reportLatestOffset(self) -> None:
        return None  # the position of the newest rows is not known without a look at all snapshots before

    def planInputPartitions(self, start: Any, end: Any) -> Any:
        with self._gateway.active_session(self._gateway.session):
            return self._plan(self._position(start), self._position(end)).partitions()

    def createReaderFactory(self) -> Any:
        # Spark plans the partitions of a micro-batch first; one factory is for all of them.
        if self._planned is None:
            raise InvalidRequest("Spark asks for a reader before it has planned a micro-batch")
        with self._gateway.active_session(self._gateway.session):
            return self._planned[1].reader_factory()

    def commit(self, end: Any) -> None:
        self._feed.forget(self._position(end))

    def stop(self) -> None:
        self._release()

    def _offset(self, position: Position) -> Any:
        return self._gateway.java_class(_OFFSET)(position.text())

    def _position(self, offset: Any) -> Position:
        return Position.read(str(offset.json()))

    def _first(self) -> Position:
        """Return where the stream started. The checkpoint keeps it: until a micro-batch is complete Spark asks for it
        again after a restart, and the table has another snapshot then."""
        if self._start is None:
            gateway = self._gateway
            path = gateway.path(f"{self._folder}/{_START}")
            files = gateway.scala_object(_FILES).create(
                path.getParent(), gateway.session.sessionState().newHadoopConf()
            )
            if files.exists(path):
                stream = files.open(path)
                try:
                    text = str(gateway.static("org.apache.commons.io.IOUtils", "toString")(stream, "UTF-8"))
                finally:
                    stream.close()
                self._start = Position.read(text)
            else:
                self._start = self._feed.start()
                files.mkdirs(path.getParent())
                written = files.createAtomic(path, False)
                written.write(self._start.text().encode())
                written.close()
        return self._start

    def _plan(self, start: Position, end: Position) -> Any:
        key = (start.text(), end.text())
        if self._planned is None or self._planned[0] != key:
            self._planned = (key, self._scan(self._feed.between(start, end)))
        return self._planned[1]

    def _scan(self, units: list[Unit]) -> Any:
        """Return what reads the rows of some units."""
        table, ways = self._table, {unit.way for unit in units}
        if "compare" in ways:
            if table.settings.signed_urls:
                raise InvalidRequest(
                    f"{units[0].changes.snapshot_id} of {table.name} has blocks that have to be compared, which is not"
                    " possible with signed URLs; attach the catalog without signed_urls"
                )
            scan = changes_scan(
                self._gateway, table, [unit.changes for unit in units], self._required_json, only_inserted=True
            )
            return _Compared(scan.toBatch())
        if units and table.settings.signed_urls:
            table = table.at(units[0].changes.snapshot_id)
        return BlockScan(
            self._gateway,
            table,
            selection_of(units),
            self._required,
            self._required_json,
            self._options,
            in_order=True,
        )

    def _hold(self, position: Position) -> None:
        """Keep the snapshot at which the stream is from expiring while the query runs."""
        snapshot_id = position.snapshot_id
        if self._lease is not None and self._lease[0] == snapshot_id:
            return
        self._release()
        after_s = _LEASE_AFTER_S if position.content else LONG_READ_S
        lease = SnapshotLease(self._table.handle, snapshot_id=snapshot_id, after_s=after_s)
        self._lease = (snapshot_id, lease.__enter__())

    def _release(self) -> None:
        if self._lease is not None:
            (_, lease), self._lease = self._lease, None
            lease.__exit__(None, None, None)


class _Compared:
    """What :class:`LakeStream` uses of a scan of changed rows."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def partitions(self) -> Any:
        """Return ``InputPartition[]``."""
        return self._batch.planInputPartitions()

    def reader_factory(self) -> Any:
        """Return the ``PartitionReaderFactory``."""
        return self._batch.createReaderFactory()
