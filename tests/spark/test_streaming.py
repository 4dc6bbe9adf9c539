"""Structured Streaming into a table: every row once, whatever fails, whoever runs the same batch."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from lamella.client.http.transport import HttpRequest, PooledTransport, TransportFailure
from lamella.client.spark import append_batches, write_stream
from lamella.client.spark.streaming import PREFIX, progress_of
from lamella.snapshot.errors import InvalidRequest, OutcomeUnknown, TableNotFound
from spark.lakes import Faults, Lakes, fresh

pytestmark = pytest.mark.spark

Batch = Callable[[DataFrame, int], None]


class Stream:
    """A folder of files as a source, one of them a micro-batch, and a checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, files: int, rows: int = 5) -> None:
        self._spark = spark
        self._folder = folder
        self.ids = list(range(files * rows))
        (folder / "source").mkdir(parents=True)
        for at in range(files):
            lines = (json.dumps({"id": number}) for number in self.ids[at * rows : (at + 1) * rows])
            (folder / "source" / f"{at:03}.json").write_text("\n".join(lines))

    @property
    def frame(self) -> DataFrame:
        """The stream."""
        reader = self._spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1)
        return reader.json(str(self._folder / "source"))

    def run(self, batch: Batch, checkpoint: str = "checkpoint") -> None:
        """Run until there is nothing left; raises StreamingQueryException."""
        writer = self.frame.writeStream.foreachBatch(batch).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self._folder / checkpoint)).start().awaitTermination()


def ids_of(spark: SparkSession, name: str) -> list[int]:
    """The ids of all rows, in order."""
    return sorted(row[0] for row in spark.table(f"lake.{name}").collect())


def operations(lakes: Lakes, name: str) -> list[str]:
    """What made the table's snapshots."""
    return [entry.operation for entry in lakes.lake.table(name).snapshots()]


def test_rows_are_there_once_over_random_restarts(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """The query ends before a batch is written, or after its commit and before Spark knows of it; again and again."""
    name = f"{fresh('stream')}.t"
    stream = Stream(spark, tmp_path, files=6)
    sink = append_batches(name, sink="files", client=lakes.lake)
    rng = random.Random(11)
    seen: list[int] = []

    def unreliable(frame: DataFrame, batch_id: int) -> None:
        seen.append(batch_id)
        if rng.random() < 0.25:
            raise ConnectionError("before the commit")
        sink(frame, batch_id)
        if rng.random() < 0.5:
            raise ConnectionError("after the commit")

    restarts = 0
    while True:
        try:
            stream.run(unreliable)
        except StreamingQueryException:
            restarts += 1
        else:
            break
    assert restarts >= 5
    assert len(seen) == restarts + 6
    assert ids_of(spark, name) == stream.ids
    assert operations(lakes, name) == ["append"] * 6 + ["create"]
    last = progress_of(lakes.lake.table(name).info().properties, "files")
    assert last is not None
    assert (last.batch, last.query is None) == (5, False)


def test_a_new_checkpoint_needs_a_new_sink(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Its numbers begin anew: left out in silence, its first batches would be lost."""
    name = f"{fresh('stream')}.t"
    stream = Stream(spark, tmp_path, files=2)

    def start(sink: str, checkpoint: str) -> None:
        writer = write_stream(stream.frame, name, sink=sink, client=lakes.lake, cluster_by=["id"])
        writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination()

    start("one", "first")
    assert lakes.lake.table(name).info().cluster_key == ("id",)
    with pytest.raises(StreamingQueryException, match="use another sink name"):
        start("one", "second")
    assert ids_of(spark, name) == stream.ids
    start("two", "third")
    assert ids_of(spark, name) == sorted(stream.ids * 2)


def test_of_two_drivers_with_one_batch_one_commits(spark: SparkSession, lakes: Lakes, faults: Faults) -> None:
    """Both have looked, both have written, both commit at once: the second finds that the batch is there."""
    name = f"{fresh('stream')}.t"
    append_batches(name, sink="s", client=lakes.lake)(spark.range(0, 3), 0)
    both = threading.Barrier(2)

    def together(request: HttpRequest) -> None:
        if request.path.endswith("/commits"):
            both.wait(timeout=60)

    sinks = [append_batches(name, sink="s", client=faults.client(together)) for _ in range(2)]
    failed: list[Exception] = []

    def run(sink: Batch, batch_id: int) -> None:
        try:
            sink(spark.range(batch_id * 10, batch_id * 10 + 3), batch_id)
        except Exception as error:
            failed.append(error)

    for batch_id in (1, 2):
        threads = [threading.Thread(target=run, args=(sink, batch_id)) for sink in sinks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert ids_of(spark, name) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert operations(lakes, name) == ["append"] * 3 + ["create"]


def test_a_driver_that_is_behind_adds_nothing(spark: SparkSession, lakes: Lakes, faults: Faults) -> None:
    """Another one took the batch, and more, while this one was writing; it sees that before it commits."""
    name = f"{fresh('stream')}.t"
    ahead = append_batches(name, sink="s", client=lakes.lake)
    ahead(spark.range(0, 3), 0)
    looks = iter(range(100))

    def overtake(request: HttpRequest) -> None:
        # The table is looked at when the batch begins, by the writer, and right before the commit.
        if request.method == "GET" and request.path.endswith("/t") and next(looks) == 2:
            ahead(spark.range(10, 13), 1)
            ahead(spark.range(20, 23), 2)

    behind = append_batches(name, sink="s", client=faults.client(overtake), create=False)
    behind(spark.range(10, 13), 1)
    behind(spark.range(20, 23), 2)
    assert ids_of(spark, name) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_a_commit_whose_answer_is_lost_is_not_made_again(
    spark: SparkSession, lakes: Lakes, faults: Faults, lake_url: str
) -> None:
    """The batch fails since nobody knows; taken up again it is there."""
    name = f"{fresh('stream')}.t"
    service = PooledTransport(lake_url, timeout_s=30)

    def lose_the_answer(request: HttpRequest) -> TransportFailure | None:
        if not request.path.endswith("/commits"):
            return None
        service.send(request)
        return TransportFailure("the connection was cut", sent=True)

    with pytest.raises(OutcomeUnknown):
        append_batches(name, sink="s", client=faults.client(lose_the_answer))(spark.range(3), 0)
    service.close()
    append_batches(name, sink="s", client=lakes.lake)(spark.range(3), 0)
    assert ids_of(spark, name) == [0, 1, 2]


def test_a_batch_that_was_refused_can_be_taken_up_again(spark: SparkSession, lakes: Lakes, faults: Faults) -> None:
    """The service remembers a refusal under the batch's key; the batch then has another one."""
    name = f"{fresh('stream')}.t"
    append_batches(name, sink="s", client=lakes.lake)(spark.range(3), 0)

    def drop(request: HttpRequest) -> None:
        if request.path.endswith("/commits"):
            lakes.lake.drop_table(name)

    with pytest.raises(TableNotFound):
        append_batches(name, sink="s", client=faults.client(drop))(spark.range(3, 6), 1)
    lakes.lake.undrop_table(name)
    append_batches(name, sink="s", client=lakes.lake)(spark.range(3, 6), 1)
    assert ids_of(spark, name) == list(range(6))


def test_batches_without_rows_make_no_snapshot(spark: SparkSession, lakes: Lakes) -> None:
    """Sinks do not know of each other; a batch that is below the last one is left out."""
    name = f"{fresh('stream')}.t"
    first, second = (append_batches(name, sink=sink, client=lakes.lake) for sink in ("a.1", "b-2"))
    first(spark.range(0), 0)
    assert operations(lakes, name) == ["create"]
    first(spark.range(2), 4)
    second(spark.range(2), 0)
    first(spark.range(2), 3)
    assert ids_of(spark, name) == [0, 0, 1, 1]
    properties = lakes.lake.table(name).info().properties
    assert properties == {f"{PREFIX}a.1": '{"batch":4}', f"{PREFIX}b-2": '{"batch":0}'}


def test_a_sink_has_a_name_and_a_service(lakes: Lakes) -> None:
    """What cannot work is refused before a query starts; so is a property that no sink wrote."""
    for bad in ("", "a b", "x" * 101, "/"):
        with pytest.raises(InvalidRequest, match="not a name for a sink"):
            append_batches("db.t", sink=bad, client=lakes.lake)
    with pytest.raises(InvalidRequest, match="url or a client"):
        append_batches("db.t", sink="s")
    assert progress_of({}, "s") is None
    with pytest.raises(InvalidRequest, match="which no sink wrote"):
        progress_of({f"{PREFIX}s": "7"}, "s")
