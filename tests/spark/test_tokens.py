"""A service that asks for keys, from Spark: who shows which key, and where it cannot be seen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from fixtures_server import ServerProcess, environment_of
from lamella.client.http import Lamella
from lamella.client.spark import attach, build_index, read, write
from lamella.client.spark.datasource import LamellaDataSource, open_table
from lamella.snapshot.errors import InvalidRequest, NamespaceNotFound, PermissionDenied, Unauthenticated
from lamella.snapshot.tokens import key_sha256, key_text
from lamella.snapshot.wire import Grant

pytestmark = pytest.mark.spark

ROOT_KEY = key_text(b"k" * 32)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that asks for keys, with the table ``db.t`` of ten rows."""
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "ten.parquet"
    pq.write_table(pa.table({"a": list(range(10))}), file)
    settings = {
        "warehouse": folder / "warehouse",
        "auth": "true",
        "root_key_sha256": key_sha256(ROOT_KEY),
        "allowed_locations": f'{{"*": ["file://{folder}"]}}',
    }
    server = ServerProcess(environment_of(settings), folder).wait_ready()
    with Lamella(server.url, token=ROOT_KEY) as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema_from=f"file://{file}")
        lake.table("db.t").register([f"file://{file}"])
    yield server.url
    server.stop()


@pytest.fixture(scope="module")
def key(guarded: str) -> str:
    """The text of a key that may write to ``db``."""
    with Lamella(guarded, token=ROOT_KEY) as lake:
        return lake.keys.create("spark", [Grant(role="write", namespace="db")]).key


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key in the environment, but where a test puts one there."""
    for name in ("LAMELLA_URL", "LAMELLA_TOKEN", "LAMELLA_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_a_url_is_requested_with_the_key_of_the_environment(
    spark: SparkSession, guarded: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the catalog, by a read and by a write, from a variable or from a file."""
    with pytest.raises(Unauthenticated):
        read(spark, "db.t", url=guarded)
    file = tmp_path / "key"
    file.write_text(key + "\n")
    monkeypatch.setenv("LAMELLA_TOKEN_FILE", str(file))
    attached = attach(spark, "guarded", guarded)
    assert spark.sql("SELECT count(*) FROM guarded.db.t WHERE a < 3").collect()[0][0] == 3
    monkeypatch.delenv("LAMELLA_TOKEN_FILE")
    monkeypatch.setenv("LAMELLA_TOKEN", key)
    write(spark.range(5).withColumnRenamed("id", "a"), "db.written", url=guarded)
    assert attached.table("db.written").count() == 5
    attached.detach()


def test_the_data_source_shows_the_key_of_the_environment_to_the_service_that_it_names(
    guarded: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And to no other: whoever writes SQL for a shared session could name one of their own, and read the key there."""
    named = {"url": guarded, "table": "db.t"}
    monkeypatch.setenv("LAMELLA_TOKEN", key)
    with pytest.raises(Unauthenticated), open_table(named):
        pass
    monkeypatch.setenv("LAMELLA_URL", guarded)
    for options in (named, {"table": "db.t"}, {"path": "db.t"}):
        with open_table(options) as table:
            assert table.row_count == 10
    with pytest.raises(Unauthenticated), open_table({**named, "TOKEN": key_text(b"x" * 32)}):
        pass
    with pytest.raises(Unauthenticated), open_table({**named, "url": guarded + "/"}):
        pass
    monkeypatch.setenv("LAMELLA_TOKEN_FILE", "/nowhere")
    with pytest.raises(InvalidRequest, match="both"), open_table(named):
        pass
    with open_table({**named, "token": key}) as table:
        assert table.row_count == 10


def test_executors_are_not_sent_the_token() -> None:
    """They read files, and ask the service nothing; the process that plans has it."""
    token = "very-secret-token"
    for name in ("token", "Token"):
        source = LamellaDataSource({"url": "http://lake.test", "table": "db.t", name: token})
        to_planner = cloudpickle.dumps(source)  # type: ignore[no-untyped-call]  # pyspark's
        assert token.encode() in to_planner
        reader: Any = source.reader(StructType([StructField("a", LongType())]))
        assert token in reader._options.values()
        sent = cloudpickle.dumps((source, reader.read))  # type: ignore[no-untyped-call]  # pyspark's
        assert token.encode() not in sent
        assert b"lake.test" in sent


def seen(spark: SparkSession, *texts: str) -> str:
    """All that Spark tells of what it ran: the plans, and what its pages about SQL show."""
    session: Any = spark
    found = list(texts)
    executions = session._jsparkSession.sharedState().statusStore().executionsList()
    for at in range(executions.size()):
        each = executions.apply(at)
        found += [each.description(), each.details(), each.physicalPlanDescription(), each.modifiedConfigs().toString()]
    return "\n".join(map(str, found))


def test_the_token_of_the_data_source_is_not_shown(spark: SparkSession, guarded: str, key: str) -> None:
    """Not in plans, descriptions of views, the settings that `SET` lists, errors, or what the pages about SQL show."""
    frame = spark.read.format("lamella").options(url=guarded, token=key).load("db.t")
    frame.where("a > 4").createOrReplaceTempView("hidden")
    assert spark.sql("SELECT count(*) FROM hidden").collect()[0][0] == 5
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW named USING lamella OPTIONS (url '{guarded}', table 'db.t', token '{key}')"
    )
    assert spark.table("named").count() == 10
    with pytest.raises(PySparkException) as caught:
        spark.read.format("lamella").options(url=guarded, token=key, prune="a = ").load("db.t").count()
    planned: Any = frame.where("a > 4")
    texts = [str(planned._jdf.queryExecution().toString()), str(caught.value)]
    for statement in (
        "EXPLAIN EXTENDED SELECT * FROM hidden",
        "EXPLAIN FORMATTED SELECT * FROM named",
        "DESCRIBE TABLE EXTENDED named",
        "SHOW VIEWS",
        "SET",
        "SET -v",
        f"EXPLAIN EXTENDED CREATE OR REPLACE TEMPORARY VIEW v USING lamella OPTIONS (table 'db.t', token '{key}')",
    ):
        texts += [str(row) for row in spark.sql(statement).collect()]
    text = seen(spark, *texts)
    assert "lamella" in text
    assert key not in text


def test_sparks_own_rule_hides_the_names_under_which_keys_are_given(spark: SparkSession) -> None:
    """Where Spark shows options or its environment, it hides the values of those that its rule names."""
    jvm: Any = spark
    package = jvm._jvm.org.apache.spark.internal.config.__getattr__("package$").__getattr__("MODULE$")
    rule = re.compile(str(package.SECRET_REDACTION_PATTERN().defaultValueString()))
    for name in ("token", "LAMELLA_TOKEN", "LAMELLA_TOKEN_FILE", "spark.executorEnv.LAMELLA_TOKEN"):
        assert rule.search(name), name


def test_a_plan_needs_the_right_to_read_and_sends_no_key(spark: SparkSession, guarded: str, key: str) -> None:
    """The service says which segments are left; access to the store is not enough, and tasks have no key."""
    with Lamella(guarded, token=ROOT_KEY) as root:
        elsewhere = root.keys.create("elsewhere", [Grant(role="read", namespace="other")]).key
    with Lamella(guarded, token=elsewhere) as lake, pytest.raises(NamespaceNotFound):
        attach(spark, "elsewhere", lake).plan("db.t", "a = 1")
    with pytest.raises(Unauthenticated):
        attach(spark, "without", guarded).plan("db.t", "a = 1")
    with Lamella(guarded, token=key) as lake:
        frame = attach(spark, "allowed", lake).plan("db.t", "a = 1")
        assert frame.count() == 1
        texts = str(frame._jdf.queryExecution().toString()) + str(
            frame._jdf.queryExecution().analyzed().collectLeaves().head().options().asCaseSensitiveMap().toString()
        )
        assert key not in texts
        assert guarded not in texts


def test_a_reader_writes_no_file_from_spark(spark: SparkSession, guarded: str) -> None:
    """Writes, row changes and index builds are refused before executors write anything."""
    with Lamella(guarded, token=ROOT_KEY) as lake:
        lake.table("db.t").create_index("by_a", "value_set", "a")
        reader = Lamella(guarded, token=lake.keys.create("reads", [Grant(role="read", namespace="db")]).key)
        folder = Path(lake.table("db.t").info().location.removeprefix("file://"))
    with reader:
        before = sorted(folder.rglob("*"))
        attach(spark, "reads", reader)
        for statement in (
            "INSERT INTO reads.db.t VALUES (11)",
            "INSERT OVERWRITE reads.db.t VALUES (11)",
            "UPDATE reads.db.t SET a = 12 WHERE a = 3",
            "DELETE FROM reads.db.t WHERE a = 3",
        ):
            with pytest.raises(Exception, match="would need the role 'write'"):
                spark.sql(statement).collect()
        with pytest.raises(PermissionDenied, match="'maintain'"):
            build_index(spark, reader, "db.t", "by_a")
        assert sorted(folder.rglob("*")) == before
