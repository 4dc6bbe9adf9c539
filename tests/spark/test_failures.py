"""When something goes wrong: a clear error, never fewer rows, never a silent full scan."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

from lamella.client.http import NO_RETRY, Lamella
from lamella.client.http.fake_transport import problem_response
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.client.spark import attach
from lamella.client.spark.block_scan import file_index
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.lake import BlockSelection
from lamella.client.spark.proxy import Proxy
from lamella.snapshot.errors import BlocksRefused, LamellaError
from lamella.snapshot.manifest import Block
from spark.lakes import Fault, Faults, Lakes, LakeTable, fresh, numbers, plan, setting

pytestmark = pytest.mark.spark


@pytest.fixture
def table(lakes: Lakes) -> LakeTable:
    """Four blocks."""
    return lakes.of(*numbers(4))


def attach_with(spark: SparkSession, faults: Faults, fault: Fault, *, allow_fallback: bool = False) -> str:
    """A catalog of the service with a fault; returns its name."""
    name = fresh("faulty")
    attach(spark, name, faults.client(fault), allow_fallback=allow_fallback)
    return name


def is_filtered_prune(request: HttpRequest) -> bool:
    """True for a prune request that carries a filter."""
    return request.path.endswith("/prune") and b'"filter":null' not in request.body and b'"filter"' in request.body


def test_a_prune_that_fails_fails_the_query_with_its_message(
    spark: SparkSession, table: LakeTable, faults: Faults
) -> None:
    """The service's own words and code reach the user; the session goes on working."""

    def refuse(request: HttpRequest) -> HttpResponse | None:
        return problem_response(503, "unavailable", "the warehouse is on fire") if is_filtered_prune(request) else None

    name = attach_with(spark, faults, refuse)
    with pytest.raises(SparkRuntimeException, match=r"\[lamella\.unavailable\].*the warehouse is on fire"):
        spark.table(f"{name}.{table.name}").where("a < 10").collect()
    assert spark.table(table.sql).where("a < 10").count() == 10


def test_a_service_that_is_gone_fails_the_query(spark: SparkSession, table: LakeTable) -> None:
    """Nothing is read without the service's answer."""
    name = fresh("gone")
    attach(spark, name, Lamella("http://127.0.0.1:9", policy=NO_RETRY))
    with pytest.raises(SparkRuntimeException, match=r"\[lamella\.unavailable\]"):
        spark.table(f"{name}.{table.name}").collect()


def test_fallback_reads_all_blocks_only_on_request(
    spark: SparkSession, table: LakeTable, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    """With the explicit setting a failed prune reads the whole snapshot, says so in the log and in the plan."""

    def refuse(request: HttpRequest) -> HttpResponse | None:
        return problem_response(500, "lamella_error", "a bug") if is_filtered_prune(request) else None

    name = attach_with(spark, faults, refuse, allow_fallback=True)
    frame = spark.table(f"{name}.{table.name}").where("a < 10")
    assert len(frame.collect()) == 10
    assert "blocks=4/4" in plan(frame)
    assert "ALL BLOCKS, pruning failed: a bug" in plan(frame)
    assert "reading all 4 blocks" in caplog.text


def test_fallback_cannot_help_when_not_even_the_block_list_is_there(
    spark: SparkSession, table: LakeTable, faults: Faults
) -> None:
    """Without any list of blocks the query fails, whatever the setting."""

    def refuse(request: HttpRequest) -> HttpResponse | None:
        return problem_response(503, "unavailable", "down") if request.path.endswith("/prune") else None

    name = attach_with(spark, faults, refuse, allow_fallback=True)
    with pytest.raises(SparkRuntimeException, match="down"):
        spark.table(f"{name}.{table.name}").where("a < 10").collect()


def test_a_bug_in_a_callback_has_a_code_and_no_traceback(spark: SparkSession, table: LakeTable, faults: Faults) -> None:
    """The traceback is for the log; what Spark asks for and Lamella does not have is named."""

    def stumble(request: HttpRequest) -> HttpResponse | None:
        return None if not is_filtered_prune(request) else [][0]

    name = attach_with(spark, faults, stumble)
    with pytest.raises(SparkRuntimeException, match=r"\[lamella.lamella_error\] IndexError.*list index") as failed:
        spark.table(f"{name}.{table.name}").where("a < 10").collect()
    assert "Traceback" not in str(failed.value)
    loaded = Proxy(Gateway(spark))
    with pytest.raises(Py4JJavaError) as refused:
        loaded.aMethodOfALaterVersion(1, "x")
    assert "[lamella.invalid_request] Spark calls aMethodOfALaterVersion of Proxy" in str(refused.value.java_exception)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exit_inside_a_callback_ends_the_query_instead_of_hanging_it(
    spark: SparkSession, table: LakeTable, faults: Faults, kind: type[BaseException]
) -> None:
    """py4j passes on ordinary exceptions only: anything else would leave the JVM waiting for ever."""

    def leave(request: HttpRequest) -> HttpResponse | None:
        if is_filtered_prune(request):
            raise kind("enough")
        return None

    name = attach_with(spark, faults, leave)
    caught: list[BaseException] = []

    def run() -> None:
        try:
            spark.table(f"{name}.{table.name}").where("a < 10").collect()
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout=120)
    assert not thread.is_alive()
    assert kind.__name__ in str(caught[0])


def test_an_error_in_the_thread_that_broadcasts_reaches_the_user(
    spark: SparkSession, table: LakeTable, faults: Faults
) -> None:
    """Join keys are sent from a thread of Spark's own; what fails there fails the query."""
    seen: list[bytes] = []

    def refuse_lists(request: HttpRequest) -> HttpResponse | None:
        if request.path.endswith("/prune") and b'"in"' in request.body:
            seen.append(request.body)
            return problem_response(503, "unavailable", "no lists today")
        return None

    name = attach_with(spark, faults, refuse_lists)
    query = (
        f"SELECT f.a FROM {name}.{table.name} f JOIN"
        f" (SELECT a AS k FROM {name}.{table.name} WHERE cast(a AS string) LIKE '%17') d ON f.a = d.k"
    )
    with pytest.raises(SparkRuntimeException, match="no lists today"):
        spark.sql(query).collect()
    assert seen


def test_an_index_that_lost_blocks_is_an_error(spark: SparkSession, table: LakeTable) -> None:
    """Spark's listing cache may evict what we put there; reading the rest would lose rows without a word."""
    gateway = Gateway(spark)
    schema = gateway.struct_type(spark.table(table.sql).schema.json())
    selection = BlockSelection(locations=table.paths, sizes=[1] * 4, rows=[1] * 4, blocks_total=4)
    assert file_index(gateway, selection, "whole", schema).allFiles().size() == 4
    doubled = BlockSelection(locations=[*table.paths, table.paths[0]], sizes=[1] * 5, rows=[1] * 5, blocks_total=5)
    with pytest.raises(LamellaError, match="Spark's file index lost blocks: it holds 4 of 5"):
        file_index(gateway, doubled, "doubled", schema)
    with pytest.raises(Exception, match=r"lost blocks|does not exist|PATH_NOT_FOUND"):
        file_index(gateway, selection, "evicted", schema, cache_bytes=64)


def test_sparks_listing_cache_may_be_off(spark: SparkSession, table: LakeTable) -> None:
    """The settings of Spark's shared cache do not matter: the index has a cache of its own."""
    with setting(
        spark,
        spark__sql__hive__filesourcePartitionFileCacheSize="0",
        spark__sql__hive__manageFilesourcePartitions="false",
    ):
        assert spark.table(table.sql).where("a >= 350").count() == 50


def test_a_file_that_sparks_index_would_hide_is_an_error(spark: SparkSession, lakes: Lakes) -> None:
    """Names that start with _ or . are left out by Spark without a word, although they can be registered."""
    table = lakes.of(*numbers(1))
    table.add(*[block.slice(0, 10) for block in numbers(1)], names=["_hidden.parquet"])
    with pytest.raises(SparkRuntimeException, match=r"_hidden\.parquet"):
        spark.table(table.sql).collect()
    shown = lakes.of(*numbers(1))
    shown.add(*[block.slice(0, 10) for block in numbers(1)], names=["_k=v.parquet"])
    assert spark.table(shown.sql).count() == 110


@pytest.mark.parametrize(
    "name", ["a b.parquet", "50%25.parquet", "#1?x=y.parquet", "grün-ß-日本.parquet", "[x]{y}*.parquet"]
)
def test_any_file_name_is_read(spark: SparkSession, lakes: Lakes, name: str) -> None:
    """Spaces, %, #, ?, brackets and letters of any script survive the way into Spark."""
    table = lakes.empty(numbers(1)[0].schema).add(
        *numbers(1), names=[f"dir of {name}/k=v/{name}"], path_columns="ignore"
    )
    assert spark.table(table.sql).count() == 100
    assert spark.table(table.sql).schema.names == ["a", "b", "s"]
    assert spark.table(table.sql).where("a = 7").collect()[0].s == "v000007"


def test_a_block_that_is_gone_fails_the_query(spark: SparkSession, lakes: Lakes) -> None:
    """A file that someone deleted is an error at run time, not a smaller answer."""
    table = lakes.of(*numbers(2))
    Path(table.paths[0]).unlink()
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
        spark.table(table.sql).collect()
    assert spark.table(table.sql).where("a >= 100").count() == 100


def test_a_size_that_a_writer_made_up_is_replaced_by_the_stores(spark: SparkSession, lakes: Lakes) -> None:
    """A recorded size that is too small would make Spark lose rows: the service asks the store at commit."""
    source = lakes.of(*numbers(1, rows=5000))
    target = lakes.empty(numbers(1)[0].schema)
    lied = Block(location=source.paths[0], row_count=5000, file_size=500)
    lakes.lake.table(target.name).commit(added=[lied])
    assert spark.table(target.sql).count() == 5000
    with pytest.raises(BlocksRefused):
        lakes.lake.table(target.name).commit(added=[Block(location="/nowhere.parquet", row_count=1, file_size=1)])


def test_callbacks_still_work_after_many_of_them(spark: SparkSession, table: LakeTable) -> None:
    """References between Python and the JVM are neither lost nor kept for ever."""
    frame = spark.table(table.sql).where("a < 150")
    pool = spark.sparkContext._gateway.gateway_property.pool  # type: ignore[union-attr]  # None only once it is stopped
    for _ in range(8):
        assert spark.table(table.sql).where("a < 150").count() == 150
    before = len(pool)
    spark._jvm.java.lang.System.gc()  # type: ignore[union-attr]
    for _ in range(50):
        if len(pool) < before:
            break
        time.sleep(0.1)
        spark._jvm.java.lang.System.gc()  # type: ignore[union-attr]
    assert len(pool) < before
    assert frame.count() == 150


def test_a_location_that_spark_cannot_name_is_refused() -> None:
    """memory:// says nothing to other processes, and Hadoop would read another object for `a//b`."""
    selection = BlockSelection(locations=["memory://x.parquet"], sizes=[1], rows=[1], blocks_total=1)
    with pytest.raises(LamellaError, match="no executor can access it"):
        selection.files()
    doubled = BlockSelection(locations=["s3://bucket/a//b.parquet"], sizes=[1], rows=[1], blocks_total=1)
    with pytest.raises(LamellaError, match="Hadoop removes empty parts"):
        doubled.files()
    fine = BlockSelection(locations=["s3://bucket/a b/100%25.parquet"], sizes=[1], rows=[1], blocks_total=1)
    assert fine.files() == [("s3a://bucket/a b/100%25.parquet", 1)]


def test_blocks_without_rows_are_no_trouble(spark: SparkSession, lakes: Lakes) -> None:
    """A block of zero rows is read as such."""
    table = lakes.of(pa.table({"a": pa.array([], pa.int64())}), pa.table({"a": [1]}))
    assert [row.a for row in spark.table(table.sql).collect()] == [1]
