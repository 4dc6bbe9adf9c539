"""``writeStream.toTable``: every row of a stream once in a table, whatever fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lamella.client.http.fake_transport import problem_response
from lamella.client.http.transport import HttpRequest, HttpResponse, PooledTransport, TransportFailure
from lamella.client.spark import attach
from lamella.client.spark.streaming import PREFIX, progress_of
from spark.lakes import CATALOG, Faults, Lakes, fresh

pytestmark = pytest.mark.spark


class Source:
    """Files of JSON, each a micro-batch, and queries over them with checkpoints of their own."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str = "id BIGINT, s STRING") -> None:
        self._spark = spark
        self._folder = folder
        self._schema = schema
        self._files = 0
        (folder / "source").mkdir(parents=True)

    def add(self, *rows: dict[str, Any]) -> None:
        """Add a file with rows."""
        text = "\n".join(map(json.dumps, rows))
        (self._folder / "source" / f"{self._files:03}.json").write_text(text)
        self._files += 1

    @property
    def frame(self) -> DataFrame:
        """The stream."""
        reader = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self._folder / "source"))

    def run(self, table: str, frame: DataFrame | None = None, mode: str = "append", **options: Any) -> str:
        """Write until nothing is left; returns the id of the query. Raises StreamingQueryException."""
        writer = (self.frame if frame is None else frame).writeStream.outputMode(mode).trigger(availableNow=True)
        given = {"checkpointLocation": str(self._folder / "checkpoint"), **options}
        query = writer.options(**given).toTable(table)
        query.awaitTermination()
        return str(query.id)


@pytest.fixture
def space(lakes: Lakes) -> str:
    """A namespace."""
    name = fresh("sink")
    lakes.lake.create_namespace(name)
    return name


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    """Two files."""
    made = Source(spark, tmp_path)
    made.add({"id": 2, "s": "b"}, {"id": 1, "s": "a"})
    made.add({"id": 3, "s": None})
    return made


def rows(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    """All rows, in order."""
    return sorted(map(tuple, spark.table(table).collect()), key=repr)


def operations(lakes: Lakes, name: str) -> list[str]:
    """What made the table's snapshots, oldest first."""
    return [entry.operation for entry in lakes.lake.table(name).snapshots()][::-1]


def test_a_stream_makes_its_table_and_adds_each_batch_once(
    spark: SparkSession, lakes: Lakes, space: str, source: Source
) -> None:
    """One commit for each batch, with the progress of the query; a restart goes on."""
    table, name = f"{CATALOG}.{space}.t", f"{space}.t"
    query = source.run(table)
    assert rows(spark, table) == [(1, "a"), (2, "b"), (3, None)]
    assert operations(lakes, name) == ["create", "append", "append"]
    last = progress_of(lakes.lake.table(name).info().properties, query)
    assert last is not None
    assert (last.batch, last.query) == (1, query)
    source.add({"id": 4, "s": "d"})
    assert source.run(table) == query
    assert source.run(table) == query
    assert rows(spark, table) == [(1, "a"), (2, "b"), (3, None), (4, "d")]
    assert operations(lakes, name) == ["create", *["append"] * 3]


def test_a_batch_whose_answer_is_lost_is_not_added_again(
    spark: SparkSession, lakes: Lakes, faults: Faults, lake_url: str, space: str, source: Source
) -> None:
    """The query fails since nobody knows; started again it finds that the batch is there. One that the service
    refused is written again."""
    service = PooledTransport(lake_url, timeout_s=30)
    commits = iter(range(100))

    def lose_or_refuse(request: HttpRequest) -> HttpResponse | TransportFailure | None:
        if not request.path.endswith("/commits"):
            return None
        number = next(commits)
        if number == 0:
            return problem_response(503, "unavailable", "not now")
        if number == 1:
            service.send(request)
            return TransportFailure("the connection was cut", sent=True)
        return None

    other, name = fresh("unsure"), f"{space}.t"
    attach(spark, other, faults.client(lose_or_refuse))
    with pytest.raises(StreamingQueryException, match=r"\[lamella.unavailable\] not now"):
        source.run(f"{other}.{name}")
    with pytest.raises(StreamingQueryException, match=r"\[lamella.outcome_unknown\]"):
        source.run(f"{other}.{name}")
    source.run(f"{other}.{name}")
    service.close()
    assert rows(spark, f"{CATALOG}.{name}") == [(1, "a"), (2, "b"), (3, None)]
    assert operations(lakes, name) == ["create", "append", "append"]


def test_two_queries_write_to_one_table(
    spark: SparkSession, lakes: Lakes, space: str, source: Source, tmp_path: Path
) -> None:
    """Each has its own progress, by the id of its checkpoint; a new checkpoint adds the rows again."""
    table = f"{CATALOG}.{space}.t"
    first = source.run(table)
    second = source.run(table, checkpointLocation=str(tmp_path / "other"))
    assert rows(spark, table) == [(1, "a")] * 2 + [(2, "b")] * 2 + [(3, None)] * 2
    properties = lakes.lake.table(f"{space}.t").info().properties
    assert {name for name in properties if name.startswith(PREFIX)} == {f"{PREFIX}{first}", f"{PREFIX}{second}"}


def test_rows_are_written_as_other_writes_do(spark: SparkSession, lakes: Lakes, space: str, source: Source) -> None:
    """Sorted by the cluster key, in blocks of the wanted size, with exact statistics; columns are matched by name, and
    get defaults."""
    table, name = f"{CATALOG}.{space}.t", f"{space}.t"
    spark.sql(
        f"CREATE TABLE {table} (`a.b` STRING, ID DECIMAL(20, 0) NOT NULL, d INT DEFAULT 7, t TIMESTAMP,"
        " n STRUCT<x: ARRAY<INT>>) CLUSTER BY (ID)"
    )
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN d SET DEFAULT 8")
    frame = source.frame.select(
        F.expr("named_struct('x', array(CAST(id AS INT)))").alias("n"),
        F.expr("timestamp_seconds(id)").alias("T"),
        F.col("id"),
        F.col("s").alias("a.b"),
    )
    source.run(table, frame, target_block_rows=1)
    found = spark.table(table).selectExpr("CAST(id AS INT)", "`a.b`", "d", "unix_seconds(t)", "n.x").collect()
    assert sorted(map(tuple, found)) == [(1, "a", 8, 1, [1]), (2, "b", 8, 2, [2]), (3, None, 8, 3, [3])]
    handle = lakes.lake.table(name)
    assert [block.row_count for block in handle.prune(None).records()] == [1, 1, 1]
    assert len(list(handle.prune("id = 2").records())) == 1
    assert handle.verify(deep=True, blocks=3).findings == ()


def test_rows_that_do_not_fit_fail_their_batch(spark: SparkSession, lakes: Lakes, space: str, source: Source) -> None:
    """By their columns, before anything is written, or by a value; the error has a code, and no traceback."""
    name = f"{space}.t"
    spark.sql(f"CREATE TABLE {CATALOG}.{name} (id BIGINT, s STRING NOT NULL)")
    with pytest.raises(StreamingQueryException, match=r"\[lamella.schema_mismatch\].*unknown \['more'\]"):
        source.run(f"{CATALOG}.{name}", source.frame.withColumn("more", F.lit(1)))
    with pytest.raises(StreamingQueryException, match=r"\[lamella.schema_mismatch\].*'id' is string"):
        source.run(f"{CATALOG}.{name}", source.frame.withColumn("id", F.col("s")))
    assert operations(lakes, name) == ["create"]
    with pytest.raises(StreamingQueryException, match=r"\[lamella.schema_mismatch\].*required") as caught:
        source.run(f"{CATALOG}.{name}")
    assert "Traceback" not in str(caught.value)
    assert (3, None) not in rows(spark, f"{CATALOG}.{name}")


def test_the_complete_result_replaces_the_rows(spark: SparkSession, space: str, source: Source, tmp_path: Path) -> None:
    """Each batch of a query in complete mode; update mode is refused."""
    table = f"{CATALOG}.{space}.t"
    counts = source.frame.groupBy("s").count()
    source.run(table, counts, mode="complete")
    assert rows(spark, table) == [("a", 1), ("b", 1), (None, 1)]
    source.add({"id": 9, "s": "a"})
    source.run(table, counts, mode="complete")
    assert rows(spark, table) == [("a", 2), ("b", 1), (None, 1)]
    with pytest.raises(PySparkException, match=r"(?i)\bupdate\b.* mode"):
        source.run(f"{CATALOG}.{space}.u", counts, mode="update", checkpointLocation=str(tmp_path / "u"))


def test_what_a_table_cannot_be_is_refused(lakes: Lakes, space: str, source: Source, tmp_path: Path) -> None:
    """With the reason, and before a table is made."""
    table = f"{CATALOG}.{space}.t"
    writer = source.frame.writeStream.option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(PySparkException, match="not of orc"):
        writer.toTable(table, format="orc")
    with pytest.raises(PySparkException, match="CLUSTER BY"):
        source.frame.writeStream.option("checkpointLocation", str(tmp_path / "d")).toTable(table, partitionBy="s")
    assert lakes.lake.tables(space) == ()
    source.frame.writeStream.option("checkpointLocation", str(tmp_path / "e")).clusterBy("s").trigger(
        availableNow=True
    ).toTable(table).awaitTermination()
    assert lakes.lake.table(f"{space}.t").info().cluster_key == ("s",)
    with pytest.raises(StreamingQueryException, match="unknown option 'colour'"):
        source.run(table, colour="blue")


def test_a_batch_without_rows_makes_no_snapshot(spark: SparkSession, lakes: Lakes, space: str, source: Source) -> None:
    """Its rows were filtered out."""
    table = f"{CATALOG}.{space}.t"
    source.run(table, source.frame.where("id = 3"))
    assert rows(spark, table) == [(3, None)]
    assert operations(lakes, f"{space}.t") == ["create", "append"]
