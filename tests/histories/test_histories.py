"""Random histories of changes with kills and two writers: no row is lost, comes back, or is deleted twice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures_s3 import S3Server
from fixtures_server import ServerProcess, environment_of
from histories.history import Counts, History
from histories.readers import Connect, Readers
from histories.world import World, small_parts
from lamella.client.spark import attach
from spark.conftest import spark
from support.service_api import fresh_name

assert spark  # a fixture

_STEPS = 10
#: Tables in one query of Spark: planning many scans costs less than running many queries.
_TOGETHER = 20


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A service in this process."""
    with small_parts():
        made = World(tmp_path)
        yield made
        made.stop()


@pytest.fixture
def s3_world(tmp_path: Path, s3: S3Server) -> Iterator[World]:
    """The same, with a warehouse in a bucket."""
    options = {"s3": s3.storage_options}
    with small_parts(options):
        made = World(tmp_path, warehouse=f"{s3.bucket(fresh_name('histories'))}/warehouse", options=options)
        yield made
        made.stop()


@pytest.fixture
def readers(world: World, tmp_path: Path) -> Iterator[Readers]:
    """Readers of a service in a process of its own, over the same tables."""
    server = ServerProcess(environment_of(world.settings), tmp_path)
    yield Readers(server.wait_ready().url, world.options)
    server.stop()


def run_histories(world: World, seeds: Sequence[int], counts: Counts) -> list[History]:
    """Run histories, each to its end; returns them."""
    found = []
    for seed in seeds:
        history = History(world, seed, counts)
        for _ in range(_STEPS):
            history.step()
        history.finish()
        found.append(history)
    return found


def drop_tables(histories: Sequence[History]) -> None:
    """Drop the tables."""
    for history in histories:
        history.world.operator.lake.drop_table(history.name, purge=True)


def test_random_histories(world: World, readers: Readers) -> None:
    """Each snapshot is what the changes make of the one before it, and every reader without Java finds its rows."""
    histories = run_histories(world, range(6), Counts())
    for history in histories:
        readers.check_python(history)
        readers.check_iceberg(history)
    readers.check_duckdb(histories, [readers.check_export(each) for each in histories])


def check_shared(world: World, seeds: Sequence[int], folder: Path, counts: Counts) -> str:
    """Run histories in a bucket and read their tables; returns how many each reader read."""
    server = ServerProcess(environment_of({**world.settings, "store_options": json.dumps(world.options)}), folder)
    readers = Readers(server.wait_ready().url, world.options)
    profile = folder / "profile.share"
    endpoint = {"shareCredentialsVersion": 1, "endpoint": f"{readers.url}/delta-sharing/", "bearerToken": "none"}
    profile.write_text(json.dumps(endpoint))
    try:
        for history in run_histories(world, seeds, counts):
            readers.check_python(history)
            readers.check_sharing(history, profile)
            drop_tables([history])
    finally:
        server.stop()
    return readers.shown()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_random_histories_in_spark(world: World, readers: Readers, spark: SparkSession) -> None:
    """Spark's catalog finds the rows."""
    histories = run_histories(world, range(100, 105), Counts())
    attach(spark, "histories", readers.lake)
    readers.check_spark(spark, histories, "histories")


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_random_histories(world: World, readers: Readers, spark: SparkSession, part: int) -> None:
    """The same at length, 500 histories in a part."""
    counts = Counts()
    attach(spark, "histories", readers.lake)
    first = 1_000 + 500 * part
    for at in range(first, first + 500, _TOGETHER):
        histories = run_histories(world, range(at, at + _TOGETHER), counts)
        for history in histories:
            readers.check_python(history)
            readers.check_iceberg(history)
        readers.check_duckdb(histories, [readers.check_export(each) for each in histories])
        readers.check_spark(spark, histories, "histories")
        drop_tables(histories)
        print(f"part {part}: {counts.shown()}; {readers.shown()}", flush=True)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_random_histories_on_connect(world: World, readers: Readers, java_home: Path, tmp_path: Path) -> None:
    """Without a JVM beside the program, too."""
    assert java_home
    counts = Counts()
    with Connect(readers.url, tmp_path / "connect") as connect:
        for at in range(40_000, 40_400, _TOGETHER):
            histories = run_histories(world, range(at, at + _TOGETHER), counts)
            readers.check_connect(connect, histories)
            drop_tables(histories)
            print(f"{counts.shown()}; {readers.shown()}", flush=True)


@pytest.mark.soak
@pytest.mark.s3
@pytest.mark.xdist_group("s3")
def test_random_histories_in_a_bucket(s3_world: World, tmp_path: Path) -> None:
    """Recipients of Delta Sharing find the rows, too."""
    counts = Counts()
    print(check_shared(s3_world, range(50_000, 50_040), tmp_path, counts), counts.shown())
