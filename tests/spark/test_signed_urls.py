"""Spark without credentials for the store: blocks by URLs that the service signed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from fixtures_s3 import S3Server
from fixtures_server import ServerProcess, environment_of
from lamella.client.http import Lamella
from lamella.client.presigned import SignedBlocks
from lamella.client.spark import attach, read
from lamella.client.spark.datasource import LamellaDataSource
from lamella.client.spark.python_blocks import BLOCKS, URLS, BlockGroup, BlocksSource
from lamella.snapshot.errors import BlockReplaced, InvalidRequest, LamellaError, NotSignable
from lamella.snapshot.schema.evolution import RenameColumn
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.tokens import key_sha256, key_text
from spark.test_tokens import seen
from support.service_api import parquet_bytes
from support.signature_proxy import SignatureProxy, signature_proxy
from support.spark_environment import connect_environment

pytestmark = [pytest.mark.spark, pytest.mark.s3]

FILES, ROWS = 6, 100
ROOT_KEY = key_text(b"s" * 32)


@dataclass
class Lake:
    """A table ``db.t`` in a bucket that is read through a proxy which wants signatures."""

    client: Lamella
    proxy: SignatureProxy
    store: FsspecStore
    files: list[str]


@contextmanager
def running(s3: S3Server, folder: Path, **settings: Any) -> Iterator[Lake]:
    """A service over a bucket of its own."""
    with ExitStack() as opened:
        proxy = opened.enter_context(signature_proxy(s3.endpoint_url))
        bucket = s3.bucket(f"spark-signed-{uuid.uuid4().hex[:8]}")
        options = {"s3": {**s3.storage_options, "signed_endpoint_url": proxy.url}}
        given = {
            "warehouse": f"{bucket}/warehouse",
            "catalog": folder / "catalog.db",
            "store_options": json.dumps(options),
            "allowed_locations": json.dumps({"*": [f"{bucket}/data"]}),
        }
        server = ServerProcess(environment_of({**given, **settings}), folder)
        opened.callback(server.stop)
        server.wait_ready()
        token = ROOT_KEY if "auth" in settings else None
        client = opened.enter_context(Lamella(server.url, token=token))
        store = FsspecStore({"s3": s3.storage_options})
        files = [f"{bucket}/data/part {number}.parquet" for number in range(FILES)]
        for number, location in enumerate(files):
            values = range(number * ROWS, (number + 1) * ROWS)
            store.put(location, parquet_bytes({"a": pa.array(values, pa.int64()), "s": [f"s{v % 7}" for v in values]}))
        client.create_namespace("db")
        client.create_table("db.t", schema_from=files[0])
        client.table("db.t").register(files)
        yield Lake(client, proxy, store, files)


@pytest.fixture(scope="module")
def shared(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """One for all tests."""
    with running(s3, tmp_path_factory.mktemp("signed")) as lake:
        yield lake


@pytest.fixture
def lake(shared: Lake) -> Lake:
    """The shared one, whose proxy has seen nothing yet."""
    shared.proxy.seen.clear()
    return shared


def test_a_catalog_reads_by_signed_urls(spark: SparkSession, lake: Lake) -> None:
    """Filters, sums and joins are right, only kept blocks are read, and only by URLs that were granted."""
    attached = attach(spark, "signed", lake.client, signed_urls=True)
    frame = spark.sql("SELECT a, s FROM signed.db.t WHERE a BETWEEN 195 AND 204")
    assert sorted(row.a for row in frame.collect()) == list(range(195, 205))
    assert {path.split("?")[0].rpartition("/")[2] for path, _, _ in lake.proxy.seen} == {
        "part%201.parquet",
        "part%202.parquet",
    }
    joined = "SELECT sum(t.a) FROM signed.db.t t JOIN signed.db.t u ON t.a = u.a WHERE u.s = 's3'"
    assert spark.sql(joined).collect()[0][0] == sum(a for a in range(FILES * ROWS) if a % 7 == 3)
    assert spark.sql("SELECT count(*) FROM signed.db.t").collect()[0][0] == FILES * ROWS
    assert spark.sql("SELECT 1 FROM signed.db.t WHERE s = 's0'").count() == len(range(0, FILES * ROWS, 7))
    assert spark.sql("SELECT count(*), max(s) FROM signed.db.t").collect()[0] == (FILES * ROWS, "s6")
    assert spark.sql("SELECT a FROM signed.db.t ORDER BY a DESC LIMIT 3").collect()[0].a == FILES * ROWS - 1
    plan = frame._jdf.queryExecution().toString()
    assert "READ IN PYTHON, by signed URLs" in plan
    assert {status for _, _, status in lake.proxy.seen} == {206}
    assert "X-Amz-" not in seen(spark, plan)
    attached.detach()


def test_the_hidden_column_is_read_by_signed_urls(spark: SparkSession, lake: Lake) -> None:
    """Paths are those of the blocks, not the URLs."""
    attached = attach(spark, "signed", lake.client, signed_urls=True)
    found = spark.sql("SELECT a, _metadata.file_path AS path, _metadata.row_index AS i FROM signed.db.t").collect()
    assert {row.path for row in found} == set(lake.files)
    assert sorted((row.a, row.i) for row in found) == [(a, a % ROWS) for a in range(FILES * ROWS)]
    assert lake.proxy.seen
    attached.detach()


def test_a_stream_reads_by_signed_urls(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """In micro-batches, each of blocks of one snapshot."""
    attach(spark, "signed", lake.client, signed_urls=True)
    seen: list[int] = []
    writer = spark.readStream.option("max_blocks_per_trigger", 4).table("signed.db.t").writeStream
    writer = writer.foreachBatch(lambda rows, _number: seen.extend(row.a for row in rows.collect()))
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    writer.start().awaitTermination()
    assert sorted(seen) == list(range(FILES * ROWS))


def test_the_data_source_and_a_read_go_by_signed_urls(spark: SparkSession, lake: Lake) -> None:
    """With a filter that is known beforehand, and with one that comes later."""
    frame = (
        spark.read.format("lamella")
        .option("url", lake.client.url)
        .option("signedUrls", "true")
        .option("prune", "a >= 500")
        .load("db.t")
    )
    assert sorted(row.a for row in frame.where("a >= 550").collect()) == list(range(550, 600))
    for where in ("a < 5", None):
        found = read(spark, "db.t", where=where, url=lake.client.url, signed_urls=True).where("a < 5")
        assert sorted(row.a for row in found.collect()) == list(range(5))
    assert {status for _, _, status in lake.proxy.seen} == {206}
    assert "X-Amz-" not in seen(spark, frame._jdf.queryExecution().toString())


CONNECT = """
import json, sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from lamella.client.spark import read
spark = SparkSession.builder.remote("local[1]").getOrCreate()
frame = read(spark, "db.t", where=F.col("a") >= 590, url=sys.argv[1], signed_urls=True)
print(json.dumps([frame.count(), sorted(row.a for row in frame.collect())]))
"""


@pytest.mark.soak
def test_spark_connect_reads_by_signed_urls(lake: Lake, java_home: Path, tmp_path: Path) -> None:
    """In a program with neither keys nor a JVM of its own."""
    assert java_home
    environment = {key: value for key, value in connect_environment().items() if not key.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, lake.client.url],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.strip().rsplit("\n", 1)[-1]) == [10, list(range(590, 600))]
    assert {status for _, _, status in lake.proxy.seen} == {206}


def test_blocks_with_earlier_names_are_read_too(spark: SparkSession, lake: Lake) -> None:
    """A column that was renamed is the same one in files of both names, and a nested loop over them is right."""
    name = f"db.t{uuid.uuid4().hex[:8]}"
    lake.client.create_table(name, schema_from=lake.files[0])
    table = lake.client.table(name)
    table.register(lake.files[:1])
    table.evolve([RenameColumn(column=("a",), name="b")])
    found = read(spark, name, url=lake.client.url, signed_urls=True)
    assert sorted(row.b for row in found.collect()) == list(range(ROWS))


def test_urls_that_expired_before_the_blocks_are_read_are_renewed(s3: S3Server, tmp_path: Path) -> None:
    """Partitions may wait for a place for longer than URLs hold; the worker asks the service then."""
    with running(s3, tmp_path, signed_url_s=3) as lake:  # on a busy machine, new ones must hold until they are used
        source = BlocksSource({BLOCKS: listed(lake), URLS: signed(lake)})
        reader = source.reader(StructType([StructField("a", LongType())]))
        partitions = reader.partitions()
        time.sleep(3.5)
        batches: list[Any] = [batch for part in partitions for batch in reader.read(part)]
        found = [row for batch in batches for row in batch.column("a").to_pylist()]
        assert found == list(range(FILES * ROWS))
        assert lake.proxy.refused >= 1


def table_of(lake: Lake) -> Any:
    """The table as Spark's planner knows it, and all of its blocks."""
    from lamella.client.spark.lake import Settings, load_table

    table = load_table(lake.client, "db.t", Settings(signed_urls=True))
    return table, table.selection(None)


def listed(lake: Lake) -> str:
    """All blocks, as they travel in an option."""
    import msgspec

    from lamella.client.spark.python_blocks import BlockListOption

    table, selection = table_of(lake)
    return msgspec.json.encode(
        BlockListOption(selection.locations, selection.sizes, selection.schema_ids, table.history)
    ).decode()


def signed(lake: Lake) -> str:
    """Their URLs, as they travel in another one."""
    import msgspec

    from lamella.client.spark.python_blocks import signed_blocks

    return msgspec.json.encode(signed_blocks(*table_of(lake))).decode()


def test_executors_are_sent_their_own_urls_alone(lake: Lake) -> None:
    """Each partition has those of its blocks; what every task is sent has none, and no text shows one."""
    source: Any = BlocksSource({BLOCKS: listed(lake), URLS: signed(lake)})
    reader = source.reader(StructType([StructField("a", LongType())]))
    groups = reader.partitions()
    sent = cloudpickle.dumps((source, reader, reader.read))  # type: ignore[no-untyped-call]  # pyspark's
    assert b"X-Amz-" not in sent
    assert b"part 0" not in sent
    for group in groups:
        assert isinstance(group, BlockGroup)
        assert group.signed is not None
        assert len(group.signed.urls) == len(group.locations)
        assert "X-Amz-" not in repr(group.signed)
    options = {"url": lake.client.url, "table": "db.t", "signedUrls": "true", "partitionBytes": "1"}
    options["storageOptions"] = json.dumps({"s3": {"key": "of the store"}})
    by_one = LamellaDataSource(options).reader(StructType([StructField("a", LongType())])).partitions()
    assert len(by_one) == FILES
    for number, group in enumerate(by_one):
        assert isinstance(group, BlockGroup)
        assert group.signed is not None
        assert group.storage_options == {}
        (url,) = group.signed.urls
        assert f"part%20{number}.parquet?" in url


def test_a_worker_renews_by_its_own_environment(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows the service the key that is there for it, and no other service; without one it says what would help."""
    settings = {"auth": "true", "root_key_sha256": key_sha256(ROOT_KEY)}
    with running(s3, tmp_path, **settings) as lake:
        stale = SignedBlocks(
            service_url=lake.client.url,
            table="db.t",
            snapshot_id=lake.client.table("db.t").info().snapshot_id,
            urls=(f"{lake.proxy.url}/old",),
            sizes=(lake.store.stat(lake.files[0]).size_bytes,),
        )
        for name in ("LAMELLA_URL", "LAMELLA_TOKEN", "LAMELLA_TOKEN_FILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("LAMELLA_TOKEN", ROOT_KEY)
        for own in (None, "http://127.0.0.1:1"):
            if own is not None:
                monkeypatch.setenv("LAMELLA_URL", own)
            with pytest.raises(LamellaError, match="LAMELLA_TOKEN_FILE"):
                stale.store(lake.files[:1]).stat(lake.files[0])
        monkeypatch.setenv("LAMELLA_URL", lake.client.url + "/")
        assert stale.store(lake.files[:1]).stat(lake.files[0]).size_bytes == stale.sizes[0]


def test_a_block_that_was_replaced_fails_the_task(spark: SparkSession, lake: Lake) -> None:
    """Its size is not the one that the service knows; nothing is read as if it were the same."""
    name = f"db.t{uuid.uuid4().hex[:8]}"
    copy = lake.files[0].replace("part 0", f"copy {uuid.uuid4().hex}")
    lake.store.put(copy, lake.store.read(lake.files[0]))
    lake.client.create_table(name, schema_from=copy)
    lake.client.table(name).register([copy])
    frame = read(spark, name, url=lake.client.url, signed_urls=True)
    assert frame.count() == ROWS
    lake.store.delete(copy)
    lake.store.put(copy, parquet_bytes({"a": [1], "s": ["x"]}))
    with pytest.raises(PySparkException, match=BlockReplaced.__name__):
        read(spark, name, url=lake.client.url, signed_urls=True).collect()


def test_what_cannot_be_read_so_is_reported(spark: SparkSession, lake: Lake, lake_url: str, tmp_path: Path) -> None:
    """Views, which only Spark's own readers serve, and tables whose files no URL leads to."""
    with pytest.raises(InvalidRequest, match="signed"):
        attach(spark, "views", lake.client, signed_urls=True, mode="views")
    (tmp_path / "x.parquet").write_bytes(parquet_bytes({"a": [1]}))
    with Lamella(lake_url) as local:
        name = f"n{uuid.uuid4().hex[:8]}.t"
        local.create_namespace(name.partition(".")[0])
        local.create_table(name, schema_from=f"{tmp_path}/x.parquet")
        local.table(name).register([f"{tmp_path}/x.parquet"])
        with pytest.raises((PySparkException, NotSignable), match=r"signed|sign"):
            read(spark, name, client=local, signed_urls=True).collect()


def test_workers_are_sent_the_storage_options_where_they_need_them(lake: Lake) -> None:
    """Blocks that are not read by signed URLs are read with what the user gave."""
    given = {"s3": {"key": "of the store"}}
    options = {"url": lake.client.url, "table": "db.t", "storageOptions": json.dumps(given)}
    for group in LamellaDataSource(options).reader(StructType([StructField("a", LongType())])).partitions():
        assert isinstance(group, BlockGroup)
        assert group.storage_options == given
