"""Without one of Spark's hooks, only what it is for is missing, and attaching says so."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import Attached, LamellaSparkWarning, attach
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.hooks import HOOKS, Hook, probe_hooks
from lamella.snapshot.errors import InvalidRequest
from spark.lakes import Lakes, LakeTable, blocks_after_join, fresh, plan

pytestmark = pytest.mark.spark

_BY_NAME = {hook.name: hook for hook in HOOKS}


@dataclass(frozen=True)
class Without:
    """A statement that shows what is missing; ``{t}``: a table, ``{c}``: the catalog.

    ``refused``: a part of Spark's message; None: it works in another way.
    """

    statement: str
    refused: str | None = None


_WITHOUT = {
    "namespaces": Without("SHOW NAMESPACES IN {c}", "namespaces"),
    "staged tables": Without("CREATE TABLE {t}_copy AS SELECT * FROM {t}"),
    "views": Without("CREATE VIEW {t}_view AS SELECT a FROM {t}", "views"),
    "procedures": Without("CALL {c}.system.analyze('{t}')", "PROCEDURE"),
    "constraints": Without("CREATE TABLE {t}_checked (a INT, CHECK (a > 0))", "CONSTRAINT"),
    "schema evolution": Without("INSERT WITH SCHEMA EVOLUTION INTO {t} SELECT 1L AS a, 2 AS b", "too many"),
    "metadata columns": Without("SELECT _metadata FROM {t}", "_metadata"),
    "indexes": Without("CREATE INDEX i ON {t} (a)", "INDEX"),
    "writes": Without("INSERT INTO {t} VALUES (1)", "write"),
    "deletes by filter": Without("DELETE FROM {t} WHERE a = 3"),
    "row-level operations": Without("UPDATE {t} SET a = 1 WHERE a = 2", "UPDATE"),
    "limits": Without("SELECT count(*) FROM (SELECT * FROM {t} LIMIT 7)"),
    "top n": Without("SELECT * FROM {t} ORDER BY a LIMIT 1"),
    "aggregates": Without("SELECT min(a) FROM {t}"),
    "join keys": Without("SELECT * FROM {t} x JOIN (SELECT a FROM {t} WHERE a % 80 = 7) y ON x.a = y.a"),
    "subqueries": Without("SELECT * FROM {t} WHERE a > (SELECT max(a) - 3 FROM {t})"),
    "statistics of scans": Without("SELECT * FROM {t} x JOIN {t} y ON x.a = y.a"),
    "statistics of columns": Without("SELECT * FROM {t} x JOIN {t} y ON x.a = y.a"),
    "expressions as text": Without("SELECT * FROM {t} WHERE a IN (1, 2) AND a + 1 < 3"),
}


@contextmanager
def attached_without(
    spark: SparkSession, lake: Lamella, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Attached]:
    """The service attached as if Spark lacked what a hook needs, with a warning that names it."""
    has_class, compile_error = Gateway.has_class, Gateway.compile_error
    gone = next(iter((*hook.interfaces, *hook.classes)), None)

    with monkeypatch.context() as patched:
        if gone is None:
            patched.setattr(
                Gateway,
                "compile_error",
                lambda self, name: "no such class" if name == hook.compiles else compile_error(self, name),
            )
        else:
            patched.setattr(Gateway, "has_class", lambda self, name: name != gone and has_class(self, name))
        with pytest.warns(LamellaSparkWarning) as found:
            attached = attach(spark, fresh("without"), lake)
    assert attached.mode == "catalog"
    assert f"{hook.without} ({hook.name}: " in str(found[0].message)
    try:
        yield attached
    finally:
        attached.detach()


@pytest.fixture
def table(lakes: Lakes) -> LakeTable:
    """Five blocks of forty rising numbers."""
    return lakes.of(*(pa.table({"a": pa.array(range(at * 40, at * 40 + 40), pa.int64())}) for at in range(5)))


def test_every_hook_is_tried() -> None:
    """Each has a statement, or a test of its own."""
    assert {*_WITHOUT, "changes", "streaming reads", "streaming writes"} == set(_BY_NAME)


def test_this_version_of_spark_has_every_hook(spark: SparkSession, lake: Lamella) -> None:
    """Nothing is warned of with the version that the tests run."""
    assert probe_hooks(Gateway(spark)) == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", LamellaSparkWarning)
        attach(spark, fresh("whole"), lake).detach()


@pytest.mark.parametrize("name", _WITHOUT)
@pytest.mark.few(6)
def test_one_missing_hook_leaves_the_rest_working(
    spark: SparkSession, lake: Lamella, table: LakeTable, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Reads stay right, and the statement that needs the hook is answered in another way or refused with a code."""
    without = _WITHOUT[name]
    with attached_without(spark, lake, _BY_NAME[name], monkeypatch) as attached:
        sql = f"{attached.name}.{table.name}"
        assert spark.sql(f"SELECT count(*), sum(a) FROM {sql} WHERE a >= 150").first() == (50, 8725)
        text = without.statement.format(t=sql, c=attached.name)
        if without.refused is None:
            here = spark.sql(text.replace(sql, table.sql)) if text.startswith("SELECT") else None
            there = spark.sql(text)
            if here is not None:
                assert sorted(there.collect()) == sorted(here.collect())
        else:
            with pytest.raises(PySparkException) as refused:
                spark.sql(text).collect()
            assert without.refused.lower() in str(refused.value).lower()
            assert "Traceback" not in str(refused.value)


def test_a_missing_hook_takes_those_that_need_it_along(
    spark: SparkSession, lake: Lamella, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row-level operations need metadata columns: both are named."""
    with attached_without(spark, lake, _BY_NAME["metadata columns"], monkeypatch) as attached:
        assert attached._gateway.missing_hooks == {"metadata columns", "row-level operations"}


def test_changes_as_a_frame_are_refused(
    spark: SparkSession, lake: Lamella, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to use."""
    with (
        attached_without(spark, lake, _BY_NAME["changes"], monkeypatch) as attached,
        pytest.raises(InvalidRequest, match="row_changes"),
    ):
        attached.changes(table.name, 0)


def test_streams_are_refused_by_spark_itself(
    spark: SparkSession, lake: Lamella, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table does not declare that it can be streamed."""
    with (
        attached_without(spark, lake, _BY_NAME["streaming reads"], monkeypatch) as attached,
        pytest.raises(PySparkException, match=r"(?i)stream"),
    ):
        spark.readStream.table(f"{attached.name}.{table.name}")
    with attached_without(spark, lake, _BY_NAME["streaming writes"], monkeypatch) as attached:
        writer = spark.readStream.table(table.sql).writeStream.option("checkpointLocation", "/nowhere")
        with pytest.raises(PySparkException, match=r"(?i)stream"):
            writer.toTable(f"{attached.name}.{table.name}")


def test_join_keys_and_subqueries_leave_out_nothing_without_their_hooks(
    spark: SparkSession, lake: Lamella, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of a query that has run does not say that blocks were left out."""
    with attached_without(spark, lake, _BY_NAME["join keys"], monkeypatch) as attached:
        sql = f"{attached.name}.{table.name}"
        frame = spark.sql(
            f"SELECT x.a FROM {sql} x JOIN (SELECT /*+ BROADCAST */ a FROM {sql} WHERE a % 200 = 7) y ON x.a = y.a"
        )
        assert [row.a for row in frame.collect()] == [7]
        assert blocks_after_join(frame) is None
        frame = spark.sql(f"SELECT a FROM {sql} WHERE a > (SELECT max(a) - 2 FROM {sql})")
        assert frame.count() == 2
        assert "after subqueries" not in plan(frame)
