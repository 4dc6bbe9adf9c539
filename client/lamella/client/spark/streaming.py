"""Structured Streaming into a table: each micro-batch is committed exactly once.

The table records the progress of a stream: the number of the last batch is a table property, set by the commit that
adds the batch's rows, so rows and number are committed together. A batch whose number is not greater is skipped.
Against a second driver that runs the same batch concurrently, the commit has an idempotency key derived from the batch:
the service makes only one of the commits with that key.

A limit remains: the service forgets a key after a time (``idempotency_ttl_s`` of its configuration, a day by default).
A driver that is suspended for longer than that between reading the property and committing adds its batch again when it
continues.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lamella.client.http import Lamella
from lamella.client.spark.lake import service
from lamella.client.spark.writer import write_into
from lamella.client.write.commit import RowsCommit
from lamella.client.write.layout import Layout
from lamella.client.write.new_table import table_for
from lamella.snapshot.errors import IdempotencyMismatch, InvalidRequest
from lamella.snapshot.schema.spark_types import columns_of
from lamella.snapshot.wire import TableInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_log = logging.getLogger(__name__)
#: The property of a sink is this prefix and the sink's name.
PREFIX: Final = "lamella.stream."
_SINK: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
#: Attempts to commit under another key after the previous one was refused permanently.
_TRIES: Final = 20
#: The local property with which Spark names the query that runs a batch; it is constant for a checkpoint.
_QUERY_ID: Final = "sql.streaming.queryId"


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last batch that a sink committed, and the id of the streaming query (None: unknown) that it came from."""

    batch: int
    query: str | None = None


class _TakenAlready(Exception):
    """The batch is in the table."""


class BatchSink:
    """A function for ``foreachBatch``; see :func:`append_batches`."""

    def __init__(
        self, name: str, sink: str, *, url: str | None, client: Lamella | None, create: bool, layout: Layout
    ) -> None:
        self._name = name
        self._sink = sink
        self._url = url
        self._client = client
        self._create = create
        self._layout = layout

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        query = _query_id(frame)
        with (
            service(self._url, self._client) as lake,
            table_for(
                lake, self._name, lambda: columns_of(frame.schema.json()), self._layout.keys, create=self._create
            ),
        ):
            commit_once(
                lake,
                self._name,
                self._sink,
                Progress(batch=batch_id, query=query),
                lambda rows_commit: write_into(lake, self._name, frame, rows_commit, self._layout),
            )


def commit_once(
    lake: Lamella,
    name: str,
    sink: str,
    progress: Progress,
    write: Callable[[RowsCommit], object],
    *,
    replaces: Any = None,
) -> None:
    """Have the rows of a batch committed, unless the table has them.

    ``write`` makes the commit that it is given; it is called again if the service refuses the commit's key.
    ``replaces``: the rows that the batch replaces, as in :class:`RowsCommit`.

    Raises:
        InvalidRequest: the sink has batches of another query.
    """
    for attempt in range(_TRIES):
        try:
            info = _check_batch(lake, name, sink, progress)
            write(
                RowsCommit(
                    properties={PREFIX + sink: msgspec.json.encode(progress).decode()},
                    idempotency_key=_key(info.table_id, sink, progress.batch, attempt),
                    before=lambda: _check_batch(lake, name, sink, progress),
                    replaces=replaces,
                )
            )
        except _TakenAlready:
            _log.info("batch %d of %s is in %s already", progress.batch, sink, name)
            return
        except IdempotencyMismatch:
            # The key was used: by a commit that happened, which the next read of the property shows; or by one that
            # was refused permanently (because the columns had changed, say), and then the batch is tried again.
            if attempt + 1 == _TRIES:
                raise
        else:
            return


def _check_batch(lake: Lamella, name: str, sink: str, progress: Progress) -> TableInfo:
    """Check that the batch must be written; raises _TakenAlready, InvalidRequest."""
    info = lake.table(name).info()
    last = progress_of(info.properties, sink)
    if last is None:
        return info
    if None not in (last.query, progress.query) and last.query != progress.query:
        raise InvalidRequest(
            f"sink {sink!r} of {name} has committed batches of another query, up to {last.batch}; a new"
            " checkpoint starts counting again, so use another sink name"
        )
    if progress.batch <= last.batch:
        raise _TakenAlready
    return info


def append_batches(
    name: str,
    *,
    sink: str,
    url: str | None = None,
    client: Lamella | None = None,
    create: bool = True,
    cluster_by: Sequence[str] | None = None,
    target_block_rows: int | None = None,
    target_block_bytes: int | None = None,
    compression: str = "zstd",
    storage_options: Mapping[str, Mapping[str, Any]] | None = None,
    scratch: str | None = None,
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``writeStream.foreachBatch`` that appends each micro-batch to ``namespace.table`` once.

    ::

        events.writeStream.foreachBatch(append_batches("db.events", sink="kafka-1", url=url)) \\
        .option("checkpointLocation", ...).start()

    ``sink``: identifies the stream among those that write to the table; one name per checkpoint. The other arguments
    are those of :func:`lamella.client.spark.write`. A batch without rows makes no snapshot. On Spark Connect pass
    ``url``.

    The function raises what ``write`` raises, and InvalidRequest for a batch of a query with another checkpoint than
    the sink's; the query then fails, and repeats the batch when it is restarted.

    Raises:
        InvalidRequest: an invalid sink name; neither or both of ``url`` and ``client``.
    """
    if _SINK.fullmatch(sink) is None:
        raise InvalidRequest(f"{sink!r} is not a name for a sink: letters, digits, '_', '.' and '-', at most 100")
    if (url is None) == (client is None):
        raise InvalidRequest("give either the service's url or a client")
    layout = Layout(
        keys=None if cluster_by is None else tuple(cluster_by),
        block_rows=target_block_rows,
        block_bytes=target_block_bytes,
        compression=compression,
        storage_options=storage_options or {},
        scratch=scratch,
    )
    return BatchSink(name, sink, url=url, client=client, create=create, layout=layout)


def write_stream(frame: DataFrame, name: str, *, sink: str, **more: Any) -> DataStreamWriter:
    """Return a streaming frame's ``writeStream`` into a table; add a checkpoint and a trigger, and start it.

    Arguments: see :func:`append_batches`.
    """
    return frame.writeStream.outputMode("append").foreachBatch(append_batches(name, sink=sink, **more))


def progress_of(properties: Mapping[str, str], sink: str) -> Progress | None:
    """Return the progress of a sink from the table's properties; None: it has committed no batch.

    Raises:
        InvalidRequest: the property was not written by a sink.
    """
    text = properties.get(PREFIX + sink)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Progress)
    except msgspec.MsgspecError as error:
        raise InvalidRequest(f"property {PREFIX + sink} says {text!r}, which no sink wrote") from error


def _key(table_id: str, sink: str, batch: int, attempt: int) -> str:
    named = f"{table_id}/{sink}/{batch}/{attempt}"
    return "lamella-stream-" + hashlib.sha256(named.encode()).hexdigest()


def _query_id(frame: DataFrame) -> str | None:
    """Return the id of the query that runs the batch; needs a classic session with pinned threads."""
    context = getattr(frame.sparkSession, "_sc", None)
    found = None if context is None else context.getLocalProperty(_QUERY_ID)
    return None if found is None else str(found)
