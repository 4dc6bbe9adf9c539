"""Writing a frame as blocks: the rows come back, blocks are sorted, even and described exactly."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lamella.client.http import Lamella
from lamella.client.http.fake_transport import FakeTransport, problem_response
from lamella.client.http.transport import HttpRequest, HttpResponse, PooledTransport, TransportFailure
from lamella.client.spark import Attached, append_batches, write
from lamella.snapshot.errors import (
    FilterNotEvaluable,
    IdempotencyMismatch,
    InvalidRequest,
    InvalidSchema,
    LamellaError,
    SchemaMismatch,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import from_bound
from spark.lakes import CATALOG, Faults, Lakes, blocks_read, fresh, plan, sorted_rows

pytestmark = pytest.mark.spark


def blocks_of(lake: Lamella, name: str) -> list[Block]:
    """The blocks of a table's current snapshot, as the service keeps them."""
    table = lake.table(name)
    snapshot = table.snapshot(table.info().snapshot_id)
    return [block for ref in snapshot.segments for block in table.segment(ref.segment_id).blocks]


def new_name() -> str:
    """A table that is not there yet, in a namespace that is not there either."""
    return f"{fresh('written')}.t"


def test_values_of_every_type_read_back_equal(spark: SparkSession, lakes: Lakes) -> None:
    """What was written is what is read: extremes, nulls, NaN, old dates, other scripts, nested values."""
    schema = (
        "b boolean, y tinyint, h smallint, i int, l bigint, f float, x double, d decimal(38,10), e decimal(9,2),"
        " s string, r binary, day date, ts timestamp, n timestamp_ntz, st struct<a:int,b:struct<c:string>>,"
        " arr array<int>, m map<string,array<bigint>>"
    )
    first = {
        "b": True,
        "y": 127,
        "h": -32768,
        "i": 2**31 - 1,
        "l": -(2**63),
        "f": 0.1,
        "x": math.nan,
        "d": Decimal("12345678901234567890.0123456789"),
        "e": Decimal("0.01"),
        "s": "käse 日本",
        "r": b"\x00\xff",
        "day": dt.date(1, 1, 1),
        "ts": dt.datetime(1500, 1, 1, tzinfo=dt.UTC),
        "n": dt.datetime(2024, 10, 27, 2, 30),  # noqa: DTZ001  # a column without zone
        "st": (1, ("x",)),
        "arr": [1, None],
        "m": {"k": [1]},
    }
    second = {
        "b": False,
        "y": -128,
        "h": 0,
        "i": -5,
        "l": 2**63 - 1,
        "f": math.nan,
        "x": -0.0,
        "d": Decimal("-1E-10"),
        "e": Decimal("-9999999.99"),
        "s": "",
        "r": b"",
        "day": dt.date(9999, 12, 31),
        "ts": dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC),
        "n": dt.datetime(1, 1, 1),  # noqa: DTZ001
        "st": (None, None),
        "arr": [],
        "m": {},
    }
    rows: list[tuple[Any, ...]] = [tuple(first.values()), tuple(second.values()), (None,) * len(first)]
    frame = spark.createDataFrame(rows, schema)
    name = new_name()
    result = write(frame, name, client=lakes.lake, cluster_by=["i"])
    assert (result.blocks, result.rows) == (1, 3)
    through = spark.table(f"{CATALOG}.{name}")
    assert through.schema.simpleString() == frame.schema.simpleString()
    assert sorted_rows(through) == sorted_rows(frame)
    conditions = [
        "x = double('NaN')",
        "x = 0.0D",
        "day < DATE '1500-01-01'",
        "n < TIMESTAMP_NTZ '1000-01-01'",
        "s = ''",
    ]
    for condition in conditions:
        assert through.where(condition).count() == 1


def test_decimals_of_any_number_of_digits_read_back_equal(spark: SparkSession, lakes: Lakes) -> None:
    """Those of few digits travel as integers: the largest and smallest of each, nulls, and narrower ones of a frame."""
    types = {"a": (1, 1), "b": (9, 2), "c": (18, 0), "d": (18, 18), "e": (19, 2), "f": (38, 10)}
    schema = ", ".join(f"{name} decimal({digits},{scale})" for name, (digits, scale) in types.items())
    rows: list[tuple[Decimal | None, ...]] = [
        tuple(Decimal((sign, (digit,) * digits, -scale)) for digits, scale in types.values())
        for sign in (0, 1)
        for digit in (9, 1, 0)
    ]
    rows += [(None,) * len(types), (*rows[0][:3], None, *rows[1][4:])]
    frame = spark.createDataFrame(rows, schema)
    narrower = frame.where("b IS NULL OR abs(b) < 2000000").withColumn("b", F.expr("CAST(b / 1000000 AS decimal(3,2))"))
    name = new_name()
    write(frame, name, client=lakes.lake)
    write(narrower, name, client=lakes.lake)
    through = spark.table(f"{CATALOG}.{name}")
    assert through.schema.simpleString() == frame.schema.simpleString()
    expected = frame.union(narrower.withColumn("b", F.col("b").cast("decimal(9,2)")))
    assert sorted_rows(through) == sorted_rows(expected)
    assert through.where("d = -0.111111111111111111BD").count() == 2
    (low,) = {
        from_bound(Column(name="c", type="decimal(18,0)").dtype, each.col_stats[3].min)  # type: ignore[arg-type]
        for each in blocks_of(lakes.lake, name)[:1]
    }
    assert low == -(10**18 - 1)


def test_blocks_are_sorted_even_and_described_exactly(spark: SparkSession, lakes: Lakes) -> None:
    """Ranges of the key do not overlap, no block is small, and each one's statistics are those of its rows."""
    frame = spark.range(0, 10_000, 1, 4).select(
        (F.col("id") * 7919 % 10_007).alias("k"),
        F.when(F.col("id") % 100 == 0, None).otherwise(F.col("id")).alias("n"),
        F.when(F.col("id") % 5 == 0, F.lit(math.nan)).otherwise(F.col("id") / 3).alias("x"),
    )
    name = new_name()
    result = write(frame, name, client=lakes.lake, cluster_by=["k"], target_block_rows=1_000)
    blocks = sorted(blocks_of(lakes.lake, name), key=lambda block: str(block.col_stats[1].min))
    assert result.rows == sum(block.row_count for block in blocks) == 10_000
    assert result.blocks == len(blocks)
    assert result.size_bytes == sum(block.file_size for block in blocks)
    assert result.snapshot_id == lakes.lake.table(name).info().snapshot_id
    assert lakes.lake.table(name).info().cluster_key == ("k",)
    assert all(700 <= block.row_count <= 1_500 for block in blocks)
    ranges = []
    for block in blocks:
        rows = pq.read_table(block.location.removeprefix("file://"))
        keys = rows["k"].to_pylist()
        assert keys == sorted(keys)
        low, high = block.col_stats[1].min, block.col_stats[1].max
        assert low is not None
        assert high is not None
        dtype = Schema.assign([Column(name="k", type="int64")]).columns[0].dtype
        assert (from_bound(dtype, low), from_bound(dtype, high)) == (keys[0], keys[-1])
        ranges.append((keys[0], keys[-1]))
        assert block.col_stats[1].distinct_of_values == pytest.approx(len(keys), rel=0.13)  # an estimate
        assert block.col_stats[2].null_count == rows["n"].null_count
        assert block.col_stats[3].nan == "maybe"
    ranges.sort()
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))
    frame = spark.table(f"{CATALOG}.{name}").where("k = 4321")
    assert len(frame.collect()) == 1
    assert blocks_read(frame)[0] == 1


def test_a_second_write_appends(spark: SparkSession, lakes: Lakes) -> None:
    """Each write is one more snapshot; columns are matched by name, narrower types are widened."""
    name = new_name()
    first = write(spark.range(10).selectExpr("id", "'x' AS s"), name, client=lakes.lake)
    second = write(spark.range(10, 15).selectExpr("'y' AS S", "CAST(id AS INT) AS ID"), name, client=lakes.lake)
    assert first.snapshot_id != second.snapshot_id
    table = spark.table(f"{CATALOG}.{name}")
    assert table.where("s = 'y'").agg(F.sum("id")).collect()[0][0] == 60
    assert table.count() == 15
    entries = list(lakes.lake.table(name).snapshots())
    assert [entry.operation for entry in entries] == ["append", "append", "create"]


def test_an_overwrite_replaces_rows_in_the_same_snapshot(spark: SparkSession, lakes: Lakes) -> None:
    """Of all, or of those for which a condition is true; what cannot be decided is refused before anything runs."""
    name = new_name()
    write(spark.range(10).selectExpr("id", "TIMESTAMP '2024-07-01 00:00:00' AS ts"), name, client=lakes.lake)
    frame = spark.range(20, 22).selectExpr("id", "TIMESTAMP '2024-07-02 00:00:00' AS ts")
    where = "id < 5 AND ts = '2024-07-01 00:00:00'"  # in the session's time zone
    part = write(frame, name, client=lakes.lake, mode="overwrite", where=where, set_properties={"done": "yes"})
    assert (part.rows, part.rows_removed) == (2, 5)
    assert lakes.lake.table(name).info().properties == {"done": "yes"}
    failing = frame.selectExpr("CAST(raise_error('it ran') AS BIGINT) AS id", "ts")
    with pytest.raises(FilterNotEvaluable, match="'x'"):
        write(failing, name, client=lakes.lake, mode="overwrite", where="reverse(CAST(id AS STRING)) = 'x'")
    whole = write(frame, name, client=lakes.lake, mode="overwrite")
    assert (whole.rows, whole.rows_removed) == (2, 7)
    assert whole.snapshot_id == lakes.lake.table(name).info().snapshot_id
    assert sorted(row[0] for row in spark.table(f"{CATALOG}.{name}").select("id").collect()) == [20, 21]
    operations = [entry.operation for entry in lakes.lake.table(name).snapshots()]
    assert operations == ["overwrite", "overwrite", "append", "create"]


def test_of_two_appends_with_one_key_one_happens(spark: SparkSession, lakes: Lakes) -> None:
    """The second one has other files, so it is another request under the same key."""
    name = new_name()
    write(spark.range(3), name, client=lakes.lake, idempotency_key="once")
    with pytest.raises(IdempotencyMismatch):
        write(spark.range(3), name, client=lakes.lake, idempotency_key="once")
    assert lakes.lake.table(name).info().row_count == 3


def test_an_empty_frame_makes_the_table_and_no_snapshot(spark: SparkSession, lakes: Lakes) -> None:
    """Nothing to add is no error."""
    name = new_name()
    result = write(spark.range(0), name, client=lakes.lake)
    assert (result.blocks, result.rows, result.size_bytes) == (0, 0, 0)
    assert result.snapshot_id == lakes.lake.table(name).info().snapshot_id
    assert spark.table(f"{CATALOG}.{name}").collect() == []


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("struct(id) AS frame", "missing"),
        ("id, 'x' AS s, 1 AS more", "unknown"),
        ("id", "missing"),
        ("id, 1 AS s", "is int32 in the frame and string in the table"),
        ("id / 2 AS id, 'x' AS s", "float64"),
    ],
)
def test_a_frame_that_does_not_fit_changes_nothing(
    spark: SparkSession, lakes: Lakes, expression: str, message: str
) -> None:
    """Columns that are missing, unknown or of another type are named; no file is written."""
    name = new_name()
    write(spark.range(3).selectExpr("id", "'x' AS s"), name, client=lakes.lake)
    before = lakes.lake.table(name).info()
    with pytest.raises(SchemaMismatch, match=message):
        write(spark.range(3).selectExpr(*_split(expression)), name, client=lakes.lake)
    after = lakes.lake.table(name).info()
    assert after == before
    assert len(_files(after.location)) == 1


def test_what_cannot_be_requested_is_refused_before_anything_runs(spark: SparkSession, lakes: Lakes) -> None:
    """Other modes, no service, two services, targets of nothing, types that no table holds, no table."""
    frame = spark.range(3)
    with pytest.raises(InvalidRequest, match="'merge'"):
        write(frame, new_name(), client=lakes.lake, mode="merge")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(InvalidRequest, match="an append replaces none"):
        write(frame, new_name(), client=lakes.lake, where="id = 1")
    with pytest.raises(InvalidRequest, match="takes no idempotency key"):
        write(frame, new_name(), client=lakes.lake, mode="overwrite", idempotency_key="k")
    with pytest.raises(InvalidRequest, match="url or a client"):
        write(frame, new_name())
    with pytest.raises(InvalidRequest, match="url or a client"):
        write(frame, new_name(), client=lakes.lake, url="http://127.0.0.1:9")
    with pytest.raises(InvalidRequest, match="at least one row"):
        write(frame, new_name(), client=lakes.lake, target_block_rows=0)
    with pytest.raises(InvalidSchema, match="'v'"):
        write(frame.selectExpr("INTERVAL '1' DAY AS v"), new_name(), client=lakes.lake)
    with pytest.raises(TableNotFound):
        write(frame, lakes.empty(pa.schema([("id", pa.int64())])).name + "x", client=lakes.lake, create=False)


def test_a_required_column_takes_no_nulls(spark: SparkSession, lakes: Lakes) -> None:
    """The task that meets a null fails, and nothing is committed."""
    name = new_name()
    lakes.lake.create_namespace(name.split(".")[0])
    lakes.lake.create_table(name, schema=[Column(name="id", type="int64", nullable=False)])
    with pytest.raises(PythonException, match="is required and has nulls"):
        write(spark.range(5).selectExpr("nullif(id, 3) AS id"), name, client=lakes.lake)
    assert lakes.lake.table(name).info().row_count == 0
    assert write(spark.range(5), name, client=lakes.lake).rows == 5


def test_values_are_checked_against_types_that_spark_lacks(spark: SparkSession, lakes: Lakes) -> None:
    """A table of unsigned integers can be written, as far as the values fit."""
    table = lakes.of(pa.table({"u": pa.array([1, 2], pa.uint32()), "f": pa.array([b"ab", b"cd"], pa.binary(2))}))
    write(spark.range(3).selectExpr("id + 4294967290 AS u", "X'0102' AS f"), table.name, client=lakes.lake)
    assert spark.table(table.sql).agg(F.max("u")).collect()[0][0] == 4294967292
    with pytest.raises(PythonException, match="does not fit"):
        write(spark.range(3).selectExpr("-1 AS u", "X'0102' AS f"), table.name, client=lakes.lake)


def test_a_commit_that_fails_leaves_unreferenced_files_only(spark: SparkSession, lakes: Lakes, faults: Faults) -> None:
    """The table is as it was; the same frame can be written again."""

    def refuse(request: HttpRequest) -> HttpResponse | None:
        return problem_response(503, "unavailable", "not now") if request.path.endswith("/commits") else None

    name = new_name()
    write(spark.range(0), name, client=lakes.lake)
    with pytest.raises(Unavailable, match="not now"):
        write(spark.range(10), name, client=faults.client(refuse))
    info = lakes.lake.table(name).info()
    assert info.row_count == 0
    assert len(_files(info.location)) == 1
    assert write(spark.range(10), name, client=lakes.lake).rows == 10
    assert spark.table(f"{CATALOG}.{name}").count() == 10


def test_a_write_that_fails_leaves_no_table(spark: SparkSession, lakes: Lakes, faults: Faults) -> None:
    """Neither when a row cannot be computed nor when the commit is refused; a table that was there stays."""

    def refuse(request: HttpRequest) -> HttpResponse | None:
        return problem_response(503, "unavailable", "not now") if request.path.endswith("/commits") else None

    name = new_name()
    with pytest.raises(Exception, match="boom"):
        write(spark.range(3).selectExpr("if(id > 1, raise_error('boom'), id) AS id"), name, client=lakes.lake)
    with pytest.raises(LamellaError, match="not now"):
        write(spark.range(3), name, client=faults.client(refuse))
    with pytest.raises(LamellaError, match="not now"):
        append_batches(name, sink="s", client=faults.client(refuse))(spark.range(3), 0)
    assert name.split(".")[1] not in lakes.lake.tables(name.split(".")[0])
    write(spark.range(3), name, client=lakes.lake)
    before = lakes.lake.table(name).info()
    with pytest.raises(LamellaError, match="not now"):
        write(spark.range(3), name, client=faults.client(refuse))
    assert lakes.lake.table(name).info() == before


def test_a_commit_that_is_sent_twice_happens_once(spark: SparkSession, attached: Attached, lake_url: str) -> None:
    """The answer to the first try is lost; the second has the same idempotency key."""
    keys: list[str | None] = []
    service = PooledTransport(lake_url, timeout_s=30)

    def lose_the_first_answer(request: HttpRequest) -> HttpResponse | TransportFailure:
        answer = service.send(request)
        if request.path.endswith("/commits"):
            keys.append(request.header("Idempotency-Key"))
            if len(keys) == 1:
                return TransportFailure("the connection was cut", sent=True)
        return answer

    name = new_name()
    client = Lamella(lake_url, transport=FakeTransport(lose_the_first_answer))
    assert write(spark.range(10), name, client=client).rows == 10
    service.close()
    assert attached.mode == "catalog"
    assert len(keys) == 2
    assert keys[0] == keys[1] is not None
    assert spark.table(f"{CATALOG}.{name}").count() == 10


def test_without_a_key_the_frames_order_stays(spark: SparkSession, lakes: Lakes) -> None:
    """No shuffle, and no tiny blocks from many small partitions."""
    name = new_name()
    result = write(spark.range(0, 4_000, 1, 40), name, client=lakes.lake, target_block_rows=1_000)
    assert result.blocks == 4
    assert result.rows == 4_000


def test_blocks_can_be_sized_by_bytes(spark: SparkSession, lakes: Lakes) -> None:
    """The size of files is what counts, measured on a sample of the rows."""
    name = new_name()
    frame = spark.range(60_000).select(F.col("id"), F.sha2(F.col("id").cast("string"), 256).alias("hash"))
    write(frame, name, client=lakes.lake, cluster_by=["id"], target_block_bytes=400_000)
    sizes = [block.file_size for block in blocks_of(lakes.lake, name)]
    assert len(sizes) > 3
    assert all(250_000 < size < 600_000 for size in sizes), sizes


def test_nested_keys_and_names_with_dots_are_found(spark: SparkSession, lakes: Lakes) -> None:
    """A cluster key may be inside a struct, and a column's own name may hold a dot."""
    name = new_name()
    frame = spark.range(2_000).select(
        F.struct((F.col("id") * 37 % 2_003).alias("k")).alias("s"), F.col("id").alias("a.b")
    )
    write(frame, name, client=lakes.lake, cluster_by=["s.k"], target_block_rows=500)
    read = spark.table(f"{CATALOG}.{name}").where("s.k = 1000")
    assert len(read.collect()) == 1
    assert blocks_read(read)[0] == 1
    by_dot = spark.table(f"{CATALOG}.{name}").where("`a.b` = 7")
    assert by_dot.count() == 1
    assert "`a.b` = 7" in plan(by_dot)


def _split(expressions: str) -> list[str]:
    return [part.strip() for part in expressions.split(",")]


def _files(location: str) -> list[Path]:
    return sorted(Path(location.removeprefix("file://"), "_b").glob("*.parquet"))
