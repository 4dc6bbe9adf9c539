"""``readStream.table``: every row that is added to a table, once, whatever else happens to the table."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from fixtures_server import StartServer
from lamella.client.http import Lamella
from lamella.client.spark import attach, delete, write
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.stream_feed import Position
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema.evolution import AddColumn, RenameColumn
from lamella.snapshot.wire import LeaseInfo
from spark.lakes import CATALOG, Lakes, LakeTable, fresh, numbers

pytestmark = pytest.mark.spark


@dataclass
class Streamed:
    """A query over the stream of a table: the values of ``a`` of each micro-batch."""

    spark: SparkSession
    table: LakeTable
    folder: Path
    #: The table in SQL; None: in the catalog of all tests.
    name: str | None = None
    batches: list[list[int]] = field(default_factory=list)
    #: Called before and after the rows of a micro-batch are taken.
    before: Callable[[int], None] = lambda _number: None
    after: Callable[[int], None] = lambda _number: None
    trigger: dict[str, Any] = field(default_factory=lambda: {"availableNow": True})

    def frame(self, **options: Any) -> DataFrame:
        """The stream."""
        return self.spark.readStream.options(**options).table(self.name or self.table.sql)

    def run(self, **options: Any) -> list[int]:
        """Read until there is nothing left; returns the new values, in order. Raises StreamingQueryException."""
        return self.run_frame(self.frame(**options))

    def run_frame(self, stream: DataFrame) -> list[int]:
        """The same, of a stream that was made before."""
        added: list[int] = []

        def take(frame: DataFrame, number: int) -> None:
            self.before(number)
            values = sorted(row[0] for row in frame.select("a").collect())
            self.batches.append(values)
            added.extend(values)
            self.after(number)

        writer = stream.writeStream.foreachBatch(take).trigger(**self.trigger)
        writer.option("checkpointLocation", str(self.folder)).start().awaitTermination()
        return sorted(added)


def values(*blocks: pa.Table) -> list[int]:
    """The values of ``a`` in blocks."""
    return sorted(value for block in blocks for value in block.column("a").to_pylist())


def compact(spark: SparkSession, table: LakeTable) -> None:
    """Rewrite all blocks of a table into one."""
    spark.sql(f"CALL {CATALOG}.system.compact('{table.name}')").collect()


def refused(stream: Streamed, code: str, text: str, **options: Any) -> None:
    """Require that the query fails with an error of that code and text."""
    with pytest.raises(StreamingQueryException, match=rf"(?s)\[lamella\.{code}\].*{text}"):
        stream.run(**options)


def test_a_stream_reads_what_the_table_has_and_then_what_is_added(
    spark: SparkSession, lakes: Lakes, tmp_path: Path
) -> None:
    """Each row is in one micro-batch, also over restarts; a restart without new rows has none."""
    first, second, third = numbers(3)
    stream = Streamed(spark, lakes.of(first), tmp_path)
    assert stream.run() == values(first)
    assert stream.run() == []
    stream.table.add(second)
    stream.table.add(third)
    assert stream.run() == values(second, third)
    assert stream.run() == []


def test_an_analysis_adds_no_rows(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """The blocks are the same files with other statistics, also if a stream has read only some of them."""
    first, second, third = numbers(3)
    stream = Streamed(spark, lakes.of(first), tmp_path)
    assert stream.run() == values(first)
    stream.table.add(second, write_statistics=False)
    spark.sql(f"CALL {CATALOG}.system.analyze('{stream.table.name}')").collect()
    assert stream.run() == values(second)
    spark.sql(f"CALL {CATALOG}.system.analyze('{stream.table.name}')").collect()
    stream.table.add(third)
    assert stream.run() == values(third)


def test_limits_divide_what_there_is(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """By blocks and by bytes, a large first snapshot and later ones alike; a micro-batch has at least one block."""
    blocks = numbers(7, rows=10)
    table = lakes.of(*blocks[:5])
    by_blocks = Streamed(spark, table, tmp_path / "blocks")
    assert by_blocks.run(max_blocks_per_trigger=2) == values(*blocks[:5])
    assert list(map(len, by_blocks.batches)) == [20, 20, 10]
    table.add(blocks[5])
    table.add(blocks[6])
    size_bytes = next(lakes.lake.table(table.name).prune(None).records()).file_size
    for name, options in (
        ("blocks", {"max_blocks_per_trigger": 1}),
        ("some", {"max_bytes_per_trigger": 2 * size_bytes + 20}),
        ("single", {"max_bytes_per_trigger": 1}),
        ("all", {}),
    ):
        stream = Streamed(spark, table, tmp_path / name)
        stream.run(**options)
        expected = {"blocks": [10, 10], "some": [20, 20, 20, 10], "single": [10] * 7, "all": [70]}[name]
        assert list(map(len, stream.batches)) == expected
        assert sorted(chain(*stream.batches)) == values(*(blocks[5:] if name == "blocks" else blocks))


def test_rows_are_read_once_over_random_failures(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """A query that fails in or after a micro-batch repeats exactly its rows; the table grows and is compacted all the
    while."""
    blocks = numbers(20, rows=5)
    table = lakes.of(*blocks[:6])
    stream = Streamed(spark, table, tmp_path)
    rng, left = random.Random(7), blocks[6:]
    retained: dict[int, list[int]] = {}

    def fail_sometimes(number: int) -> None:
        if left and rng.random() < 0.5:
            table.add(left.pop())
        if rng.random() < 0.1:
            compact(spark, table)
        if rng.random() < 0.3:
            raise ConnectionError(f"in batch {number}")

    def keep(number: int) -> None:
        assert retained.setdefault(number, stream.batches[-1]) == stream.batches[-1]

    def keep_and_fail(number: int) -> None:
        keep(number)
        fail_sometimes(number)

    stream.before, stream.after = fail_sometimes, keep_and_fail
    failures = 0
    while left or failures < 5:
        try:
            stream.run(max_blocks_per_trigger=2)
        except StreamingQueryException as error:
            if "in batch" not in str(error):
                raise
            failures += 1
        else:
            table.add(left.pop() if left else numbers(1)[0])
    stream.before, stream.after = (lambda _number: None), keep
    stream.run()
    expected = sorted(row[0] for row in spark.table(table.sql).select("a").collect())
    assert sorted(chain(*retained.values())) == expected


def test_a_first_batch_that_failed_begins_where_it_began(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Before a micro-batch is complete Spark asks again where the stream starts; the table has grown since."""
    first, second = numbers(2)
    stream = Streamed(spark, lakes.of(first), tmp_path)

    def fail(_number: int) -> None:
        stream.table.add(second)
        raise ConnectionError("once")

    stream.before = fail
    with pytest.raises(StreamingQueryException, match="once"):
        stream.run()
    stream.before = lambda _number: None
    assert stream.run() == values(first, second)
    assert stream.batches == [values(first), values(second)]


def test_rewrites_are_silent_and_lose_nothing(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Compaction, clustering, regrouping, changed properties and tags; before and after the stream has read the rows
    that they move."""
    blocks = numbers(6, rows=20)
    stream = Streamed(spark, lakes.of(*blocks[:2]), tmp_path)
    stream.run()
    table, handle = stream.table, lakes.lake.table(stream.table.name)
    table.add(blocks[2])
    compact(spark, table)
    spark.sql(f"ALTER TABLE {table.sql} CLUSTER BY (b)")
    table.add(blocks[3])
    spark.sql(f"CALL {CATALOG}.system.recluster('{table.name}')").collect()
    spark.sql(f"CALL {CATALOG}.system.regroup('{table.name}')").collect()
    spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ('colour' = 'blue')")
    handle.tag("here")
    table.add(blocks[4], blocks[5])
    assert stream.run() == values(*blocks[2:])
    compact(spark, table)
    assert stream.run() == []


def test_appends_that_share_a_snapshot_with_a_rewrite_are_read(
    spark: SparkSession, lakes: Lakes, tmp_path: Path
) -> None:
    """Then blocks do not tell which rows are new, and the rows are compared; equal rows are counted."""
    rows = pa.table({"a": [1, 1, 2], "b": [0, 0, 0], "s": ["x", "x", "y"]})
    table = lakes.of(rows)
    handle = lakes.lake.table(table.name)
    stream = Streamed(spark, table, tmp_path)
    assert stream.run() == [1, 1, 2]
    added = 0
    before = table.snapshot_id()
    for attempt in range(200):
        (old,) = (each.location for each in handle.prune(None).records() if "own" not in each.location)
        files = [table.folder / f"{name}-{attempt}.parquet" for name in ("copy", *(f"own{at}" for at in range(8)))]
        pq.write_table(rows, files[0])
        for file in files[1:]:
            pq.write_table(pa.table({"a": [1], "b": [0], "s": ["x"]}), file)
        together = threading.Barrier(len(files))

        def send(file: Path, old: str = old, together: threading.Barrier = together) -> None:
            block = {"location": f"file://{file}", "row_count": len(pq.read_table(file)), "file_size": 0}
            is_copy = file.name.startswith("copy")
            base = handle.info().snapshot_id if is_copy else None
            together.wait()
            handle.commit([block], [old] if is_copy else [], base, row_change="replace" if is_copy else "append")

        threads = [threading.Thread(target=send, args=(file,)) for file in files]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        added += len(files) - 1
        kinds = [each.row_changes for each in handle.changes(before) if each.row_changes is not None]
        if ("append", "replace") in kinds:
            break
    else:
        pytest.fail("no rewrite shared a snapshot with an append")
    assert stream.run() == [1] * added


def test_deletes_and_updates_stop_the_stream_unless_they_are_skipped(
    spark: SparkSession, lakes: Lakes, tmp_path: Path
) -> None:
    """The error comes after the rows before; with the option deleted rows are left where they are, and rows that an
    update wrote are in the stream."""
    first, second, third = numbers(3, rows=50)
    stream = Streamed(spark, lakes.of(first), tmp_path)
    stream.run()
    table = stream.table
    table.add(second)
    assert delete(spark, table.name, "a = 7", client=lakes.lake).rows == 1
    with pytest.raises(StreamingQueryException, match=r"\[lamella.not_append_only\].*skip_deletes"):
        stream.run()
    assert stream.batches[-1] == values(second)
    refused(stream, "not_append_only", "skip_deletes")
    assert stream.run(skip_deletes=True) == []
    spark.sql(f"UPDATE {table.sql} SET a = a + 1000 WHERE a IN (60, 61)")
    table.add(third)
    spark.sql(f"DELETE FROM {table.sql} WHERE b = (SELECT 1)")
    refused(stream, "not_append_only", "skip_deletes")
    assert stream.run(skip_deletes=True) == sorted([1060, 1061, *values(third)])
    assert stream.run() == []


def test_a_file_that_was_overwritten_is_refused(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Its earlier rows cannot be read any more, so which rows are new is not known."""
    first, second = numbers(2, rows=10)
    stream = Streamed(spark, lakes.of(first), tmp_path)
    stream.run()
    handle = lakes.lake.table(stream.table.name)
    (path,) = stream.table.paths
    pq.write_table(second, path)
    block = {"location": f"file://{path}", "row_count": 10, "file_size": 0}
    handle.commit([block], [f"file://{path}"], stream.table.snapshot_id(), take_replaced=True)
    refused(stream, "not_append_only", "skip_deletes")
    refused(stream, "block_replaced", "replaced in place", skip_deletes=True)
    with pytest.raises(PySparkException, match=r"\[lamella.block_replaced\]"):
        spark.sql(f"SELECT * FROM {stream.table.sql} CHANGES FROM VERSION 2").collect()


def test_a_stream_does_not_survive_a_rollback(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Not even with skip_deletes: rows that were streamed are gone, and come again when they are written again."""
    first, second, third = numbers(3)
    stream = Streamed(spark, lakes.of(first), tmp_path / "one")
    before = stream.table.snapshot_id()
    stream.table.add(second)
    stream.run()
    lakes.lake.table(stream.table.name).rollback(before)
    stream.table.add(third)
    refused(stream, "not_append_only", "rolled back.*checkpointLocation")
    refused(stream, "not_append_only", "rolled back", skip_deletes=True)
    stream.folder = tmp_path / "two"
    assert stream.run() == values(first, third)


def test_another_table_of_the_name_is_refused(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Its rows do not follow those of the table before it; the table that was dropped can be undropped."""
    first, second = numbers(2)
    stream = Streamed(spark, lakes.of(first), tmp_path)
    stream.run()
    name = stream.table.name
    lakes.lake.drop_table(name)
    lakes.lake.create_table(name, schema_from=stream.table.paths[0])
    stream.table.add(second)
    refused(stream, "table_not_found", "dropped and created again.*checkpointLocation")
    lakes.lake.drop_table(name)
    lakes.lake.undrop_table(name, table_id=Position.read((tmp_path / "sources/0/start").read_text()).table_id)
    assert stream.run() == []


def test_a_stream_starts_after_a_snapshot_or_a_time(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """By id, tag, time with and without zone, and in milliseconds; the option is about new streams only."""
    blocks = numbers(4, rows=10)
    table = lakes.of(blocks[0])
    table.add(blocks[1])
    handle = lakes.lake.table(table.name)
    entry = next(handle.snapshots())
    handle.tag("here")
    time.sleep(0.01)
    table.add(blocks[2])
    # Europe/Berlin is the session's time zone.
    local = spark.sql(f"SELECT date_format(timestamp_millis({entry.timestamp_ms}), 'yyyy-MM-dd HH:mm:ss.SSS')")
    starts: list[dict[str, Any]] = [
        {"starting_snapshot": entry.snapshot_id},
        {"starting_snapshot": "here"},
        {"starting-snapshot": "here"},
        {"starting_timestamp": entry.timestamp_ms},
        {"starting_timestamp": local.collect()[0][0]},
    ]
    for number, options in enumerate(starts):
        stream = Streamed(spark, table, tmp_path / str(number))
        assert stream.run(**options) == values(blocks[2])
    stream = Streamed(spark, table, tmp_path / "late")
    assert stream.run(starting_timestamp="2999-01-01") == []
    table.add(blocks[3])
    assert stream.run(starting_snapshot="here") == values(blocks[3])


def test_options_that_cannot_be_are_refused(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Each with the reason; nothing is read."""
    stream = Streamed(spark, lakes.of(*numbers(1)), tmp_path)
    for text, options in (
        ("unknown option 'start'.*starting_snapshot", {"start": "x"}),
        ("not both", {"starting_snapshot": "x", "starting_timestamp": "0"}),
        ("max_blocks_per_trigger", {"max_blocks_per_trigger": 0}),
        ("max_bytes_per_trigger", {"max_bytes_per_trigger": "many"}),
        ("skip_deletes", {"skip_deletes": "perhaps"}),
    ):
        refused(stream, "invalid_request", text, **options)
    refused(stream, "snapshot_not_found", "nowhere", starting_snapshot="nowhere")
    refused(stream, "invalid_request", "yesterday", starting_timestamp="yesterday")
    assert stream.batches == []
    with pytest.raises(InvalidRequest, match="no position of a Lamella table"):
        Position.read("7")


def test_expired_snapshots_are_an_error_that_says_what_to_do(
    spark: SparkSession, start_server: StartServer, tmp_path: Path
) -> None:
    """A stream that was away for too long has missed rows. While it runs, a lease keeps the rows it begins with."""
    server = start_server(warehouse=tmp_path / "warehouse", vacuum_min_age_s=0, retention_max_age_s=0)
    with Lamella(server.url) as lake:
        attach(spark, "own", lake)
        write(spark.range(0, 10).withColumnRenamed("id", "a"), "db.t", client=lake)
        table = LakeTable(lake, "db.t", tmp_path)
        handle = lake.table("db.t")
        leases: list[LeaseInfo] = []

        def vacuum(_number: int) -> None:
            write(spark.range(10, 20).withColumnRenamed("id", "a"), "db.t", client=lake)
            deadline = time.monotonic() + 60
            while not handle.leases() and time.monotonic() < deadline:
                time.sleep(0.05)
            leases.extend(handle.leases())
            handle.vacuum(execute=True)

        stream = Streamed(spark, table, tmp_path / "checkpoint", name="own.db.t", before=vacuum)
        assert stream.run() == list(range(10))
        assert leases
        assert handle.leases() == ()
        stream.before = lambda _number: None
        write(spark.range(20, 30).withColumnRenamed("id", "a"), "db.t", client=lake)
        write(spark.range(30, 40).withColumnRenamed("id", "a"), "db.t", client=lake)
        handle.vacuum(execute=True)
        refused(stream, "snapshot_expired", "checkpointLocation")


def test_changed_columns_need_a_new_query_that_goes_on(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """The frame has the columns of its table; a query that runs fails, and one with a new frame reads old and new
    rows by the new columns."""
    first, second = numbers(2, rows=10)
    table = lakes.of(first)
    handle = lakes.lake.table(table.name)
    stream = Streamed(spark, table, tmp_path)
    frame = stream.frame()
    handle.evolve([AddColumn(name="c", type="int64")])
    with pytest.raises(StreamingQueryException, match=r"\[lamella.schema_conflict\].*make the frame again"):
        stream.run_frame(frame)

    def rename(_number: int) -> None:
        stream.before = lambda _number: None
        handle.evolve([RenameColumn(column="s", name="t")])
        table.add(second.rename_columns(["a", "b", "t"]))

    stream.before, stream.trigger = rename, {"processingTime": "0 seconds"}
    with pytest.raises(StreamingQueryException, match=r"\[lamella.schema_conflict\].*same checkpoint"):
        stream.run()
    assert stream.batches == [values(first)]
    stream.trigger = {"availableNow": True}
    seen: list[tuple[Any, ...]] = []
    writer = stream.frame().writeStream.foreachBatch(lambda batch, _: seen.extend(map(tuple, batch.collect())))
    writer = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path))
    writer.start().awaitTermination()
    assert sorted(seen) == [(a, a % 3, f"v{a:06}", None) for a in range(10, 20)]
    whole = Streamed(spark, table, tmp_path / "whole")
    assert whole.run() == values(first, second)


def test_deleted_rows_of_the_first_snapshot_are_left_out(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Blocks with deletion vectors come after the others, in micro-batches of their own; all at once they are one."""
    blocks = numbers(4, rows=50)
    table = lakes.of(*blocks)
    for gone in (3, 60):
        assert delete(spark, table.name, f"a = {gone}", client=lakes.lake).rows == 1
    live = [value for value in values(*blocks) if value not in (3, 60)]
    stream = Streamed(spark, table, tmp_path / "now")
    assert stream.run() == live
    assert list(map(len, stream.batches)) == [100, 98]
    once = Streamed(spark, table, tmp_path / "once", trigger={"once": True})
    assert once.run() == live
    assert len(once.batches) == 1


def test_values_that_are_not_in_files_are_in_their_columns(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Columns of folders, wherever they are among the columns of the table: Spark's reader has them last."""
    for name, order in (("last", ["a", "x", "day"]), ("first", ["day", "a", "x"])):
        namespace = fresh("stream")
        folder = tmp_path / name
        for day in (1, 2):
            (folder / f"day={day}").mkdir(parents=True)
            pq.write_table(pa.table({"a": [day, 10 * day], "x": ["u", "v"]}), folder / f"day={day}" / "f.parquet")
        columns = {"a": "BIGINT", "x": "STRING", "day": "INT"}
        lakes.lake.create_namespace(namespace)
        spark.sql(f"CREATE TABLE {CATALOG}.{namespace}.t ({', '.join(f'{each} {columns[each]}' for each in order)})")
        lakes.lake.table(f"{namespace}.t").register([f"{folder}/"], strict=True)
        seen: list[tuple[Any, ...]] = []

        def take(batch: DataFrame, _number: int, seen: list[tuple[Any, ...]] = seen) -> None:
            seen.extend(batch.select("day", "a", "x").collect())

        writer = spark.readStream.table(f"{CATALOG}.{namespace}.t").writeStream.foreachBatch(take)
        writer.option("checkpointLocation", str(folder / "_c")).trigger(availableNow=True).start().awaitTermination()
        assert sorted(map(tuple, seen)) == [(1, 1, "u"), (1, 10, "v"), (2, 2, "u"), (2, 20, "v")]


def test_streams_in_sql_and_beside_each_other(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """``FROM STREAM t`` is the same; a frame that is used twice, and two tables, are read each by itself."""
    one, two = numbers(2, rows=10)
    first, second = lakes.of(one), lakes.of(two)
    stream = Streamed(spark, first, tmp_path / "sql")
    assert stream.run_frame(spark.sql(f"SELECT a FROM STREAM {first.sql} WHERE a >= 5")) == [5, 6, 7, 8, 9]
    frame = stream.frame().select("a")
    both = frame.union(frame).union(spark.readStream.table(second.sql).select("a"))
    stream.folder = tmp_path / "union"
    assert stream.run_frame(both) == sorted([*values(one) * 2, *values(two)])
    first.add(two)
    second.add(one)
    assert stream.run_frame(both) == sorted([*values(two) * 2, *values(one)])


def test_a_running_stream_sees_new_rows(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Without an end, through Spark's own aggregation with state."""
    first, second = numbers(2, rows=10)
    table = lakes.of(first)
    name = fresh("counts")
    counts = spark.readStream.table(table.sql).groupBy("b").count()
    query = (
        counts.writeStream.format("memory")
        .queryName(name)
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        assert sum(row["count"] for row in spark.table(name).collect()) == 10
        table.add(second)
        query.processAllAvailable()
        assert sum(row["count"] for row in spark.table(name).collect()) == 20
    finally:
        query.stop()


def test_parts_and_metadata_of_tables_are_no_streams(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """They are refused, with a reason."""
    table = lakes.of(*numbers(1))
    with pytest.raises(PySparkException):
        spark.readStream.table(f"{CATALOG}.{table.name.replace('.t', '.`t$blocks`')}").writeStream.format(
            "noop"
        ).option("checkpointLocation", str(tmp_path / "m")).start().awaitTermination()
    with pytest.raises(StreamingQueryException, match="_lamella_has_deletes can only be a condition"):
        spark.readStream.table(f"{CATALOG}.{table.name.replace('.t', '.`t$rows`')}").writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path / "r")
        ).start().awaitTermination()


def test_streams_need_pinned_threads(
    spark: SparkSession, lakes: Lakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading and writing: Spark's threads for streams have sessions of their own."""
    stream = Streamed(spark, lakes.of(*numbers(1)), tmp_path / "read")
    rates = spark.readStream.format("rate").load().selectExpr("value AS a", "value AS b", "'x' AS s")
    writer = rates.writeStream.option("checkpointLocation", str(tmp_path / "write")).trigger(once=True)
    monkeypatch.setattr(Gateway, "pins_threads", False)
    refused(stream, "invalid_request", "PYSPARK_PIN_THREAD")
    with pytest.raises(StreamingQueryException, match=r"\[lamella.invalid_request\] toTable.*PYSPARK_PIN_THREAD"):
        writer.toTable(stream.table.sql).awaitTermination()
