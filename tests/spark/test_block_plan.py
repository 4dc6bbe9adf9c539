"""``lake.plan``: the blocks that may hold matching rows, which executors find by segments."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException, SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fixtures_server import StartServer
from lamella.client.http import Lamella
from lamella.client.spark import Attached, attach
from lamella.client.spark.block_plan import PLAN_COLUMNS
from lamella.snapshot.errors import (
    FilterTypeMismatch,
    InvalidFilter,
    InvalidRequest,
    TableNotFound,
    UnknownColumn,
)
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.schema.evolution import AddColumn, RenameColumn
from spark.lakes import CATALOG, Lakes, LakeTable, fresh, no_pushdown, numbers, setting
from support.deleted_rows import blocks_of

pytestmark = pytest.mark.spark

#: What a plan takes the time of ``now()`` from.
CLOCK = "lamella.client.spark.block_plan.time.time_ns"


def answered(table: LakeTable, filter: Any, time_zone: str = "UTC") -> list[tuple[Any, ...]]:
    """The service's own answer: location, verdict and sizes of each block."""
    answer = table.lake.table(table.name).prune(filter, time_zone=time_zone, shape="records", reader_features=FEATURES)
    return sorted((each.location, each.verdict, each.row_count, each.file_size) for each in answer.blocks or ())


def planned(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The same of a frame."""
    return sorted((row.location, row.verdict, row.row_count, row.file_size_bytes) for row in frame.collect())


def by_executors(frame: DataFrame) -> bool:
    """Whether executors find the blocks."""
    return "lamella_block_plan" in str(frame._jdf.queryExecution().analyzed().toString())


def events(start: int, day: int) -> pa.Table:
    """A hundred rows: numbers, their texts, some nulls, times of one day in different zones."""
    values = list(range(start, start + 100))
    begin = dt.datetime(2024, 3, 1, tzinfo=dt.UTC) + dt.timedelta(days=day)
    return pa.table(
        {
            "a": values,
            "s": [f"p{v % 7}-{v:06}" for v in values],
            "n": pa.array([None if day % 3 == 0 and v % 10 == 0 else v for v in values], pa.int64()),
            "ts": pa.array([begin + dt.timedelta(minutes=14 * at) for at in range(100)], pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture(scope="module")
def table(spark: SparkSession, lakes: Lakes) -> LakeTable:
    """Segments of several commits, with new and renamed columns, deleted rows, and an index that knows some blocks."""
    made = lakes.of(*[events(100 * at, at) for at in range(6)])
    handle = made.lake.table(made.name)
    handle.create_index("of_s", "bloom", "s")
    handle.refresh_index("of_s")
    handle.evolve([RenameColumn(column=("n",), name="m"), AddColumn(name="late", type="int64")])
    made.add(*[events(100 * at, at).rename_columns(["a", "s", "m", "ts"]) for at in range(6, 9)])
    rows = pa.table(
        {"a": [5_000], "s": ["late"], "m": [1], "ts": [dt.datetime(2024, 9, 1, tzinfo=dt.UTC)], "late": [3]}
    )
    made.add(rows.set_column(3, "ts", rows["ts"].cast(pa.timestamp("us", "UTC"))))
    spark.sql(f"DELETE FROM {made.sql} WHERE a IN (5, 6, 250)")
    spark.sql(f"DELETE FROM {made.sql} WHERE a BETWEEN 300 AND 399")
    return made


@pytest.mark.parametrize(
    "filter",
    [
        None,
        "a < 150",
        "a BETWEEN 90 AND 310 AND s LIKE 'p3%'",
        "startswith(s, 'p3-0002')",
        "s = 'p3-000003'",
        "s IN ('p3-000003', 'late', 'none')",
        "m IS NULL",
        "late IS NULL",
        "late = 3 OR a = 17",
        "NOT (m IS NOT NULL AND a > 20)",
        "ts >= '2024-03-03 00:30:00'",
        "date_trunc('day', ts) = TIMESTAMP '2024-03-05 00:00:00'",
        "hour(ts) = 23 AND a > 500",
        "a < 0",
        {"type": "gt", "term": "a", "value": 820},
    ],
)
@pytest.mark.few(6)
def test_the_blocks_are_those_of_the_service_and_hold_every_match(
    spark: SparkSession, attached: Attached, table: LakeTable, filter: Any
) -> None:
    """With their verdicts, whatever was deleted, renamed, added and indexed, in any time zone; a full scan agrees."""
    zones = ["Europe/Berlin", "America/Los_Angeles"] if "ts" in str(filter) else ["Europe/Berlin"]
    for time_zone in zones:
        with setting(spark, spark__sql__session__timeZone=time_zone):
            frame = attached.plan(table.name, filter, partitions=2)
            assert by_executors(frame)
            found = planned(frame)
            assert found == answered(table, filter, time_zone)
            if isinstance(filter, str):
                rows = spark.sql(f"SELECT *, _metadata.file_path AS file FROM {table.sql}")
                with no_pushdown(spark):
                    matching = {row.file for row in rows.where(filter).select("file").distinct().collect()}
                assert matching <= {location for location, *_ in found}


def test_the_columns_are_those_of_the_blocks_with_segment_and_verdict(
    spark: SparkSession, attached: Attached, table: LakeTable
) -> None:
    """As in the metadata table; the frame is used like any other."""
    frame = attached.plan(table.name)
    assert frame.columns == list(PLAN_COLUMNS)
    namespace, name = table.name.split(".")
    listed = spark.table(f"{CATALOG}.{namespace}.`{name}$blocks`")
    assert sorted(frame.select(*listed.columns).collect(), key=str) == sorted(listed.collect(), key=str)
    assert {row.deleted_row_count for row in frame.collect()} == {0, 1, 2}
    segments = spark.table(f"{CATALOG}.{namespace}.`{name}$segments`")
    totals = frame.groupBy("segment_id").agg({"*": "count", "row_count": "sum"})
    expected = segments.select("segment_id", "block_count", "row_count")
    assert sorted(map(tuple, totals.collect())) == sorted(map(tuple, expected.collect()))
    assert frame.where("verdict = 'ALL'").count() == len(blocks_of(table.lake.table(table.name)))


def test_values_of_folders_are_among_the_columns(lakes: Lakes, attached: Attached, tmp_path: Path) -> None:
    """Of blocks whose files do not hold them, found by executors and by the service."""
    for day in ("a", "b"):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        pq.write_table(pa.table({"n": list(range(10))}), folder / "0.parquet")
    namespace = fresh("parts")
    lakes.lake.create_namespace(namespace)
    lakes.lake.create_external(f"{namespace}.t", {"kind": "directory", "location": str(tmp_path)})
    lakes.lake.table(f"{namespace}.t").refresh()
    (row,) = attached.plan(f"{namespace}.t", "day = 'b'").collect()
    assert (row.location.split("/")[-2], row.constants, row.verdict) == ("day=b", {"day": "b"}, "ALL")


def test_the_time_of_now_is_fixed_when_the_frame_is_made(
    attached: Attached, lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the segments and for all executors, also if they run afterwards."""
    moments = [dt.datetime(2031, 5, 1, hour, tzinfo=dt.UTC) for hour in range(0, 24, 4)]
    blocks = [pa.table({"ts": pa.array([at], pa.timestamp("us", "UTC"))}) for at in moments]
    table = lakes.of(*blocks[:3]).add(*blocks[3:])
    noon = int(dt.datetime(2031, 5, 1, 11, tzinfo=dt.UTC).timestamp()) * 10**9
    monkeypatch.setattr(CLOCK, lambda: noon)
    frame = attached.plan(table.name, "ts > now() - INTERVAL 4 HOURS AND ts < current_timestamp()")
    coming = attached.plan(table.name, "ts > now()")
    monkeypatch.undo()
    assert [row.location for row in frame.collect()] == [f"file://{table.paths[2]}"]
    assert sorted(row.location for row in coming.collect()) == sorted(f"file://{path}" for path in table.paths[3:])
    assert {row.verdict for row in coming.collect()} == {"ALL"}


def test_a_plan_stays_at_its_snapshot(attached: Attached, lakes: Lakes) -> None:
    """That of the call, or the one that was asked for."""
    table = lakes.of(*numbers(2))
    table.lake.table(table.name).tag("first")
    frame = attached.plan(table.name)
    table.add(*numbers(3))
    assert (frame.count(), attached.plan(table.name).count()) == (2, 5)
    assert attached.plan(table.name, snapshot_id="first").count() == 2
    assert attached.plan(lakes.empty(numbers(1)[0].schema).name, "a = 1").count() == 0


def test_each_task_has_a_group_of_segments(attached: Attached, lakes: Lakes) -> None:
    """As many as were asked for, if there are enough segments."""
    table = lakes.of(*numbers(1))
    for _ in range(4):
        table.add(*numbers(1))
    # Not by rdd: for that, Spark looks for the data source in whichever session made a frame last in this thread.
    frames = [attached.plan(table.name, partitions=each) for each in (1, 2, 5, 9)]
    assert [frame.select(F.spark_partition_id()).distinct().count() for frame in frames] == [1, 2, 5, 5]
    with pytest.raises(InvalidRequest, match="partitions must be at least 1"):
        attached.plan(table.name, partitions=0)


@pytest.mark.parametrize(
    ("filter", "error"),
    [
        ("a <", InvalidFilter),
        ("nothing = 1", UnknownColumn),
        ("a = DATE '2024-01-01'", FilterTypeMismatch),
        (17, InvalidRequest),
    ],
)
def test_a_wrong_filter_is_refused_at_the_call(
    attached: Attached, table: LakeTable, filter: Any, error: type[Exception]
) -> None:
    """By the errors of a prune."""
    with pytest.raises(error):
        attached.plan(table.name, filter)
    with pytest.raises(TableNotFound):
        attached.plan(f"{table.name}x", "a = 1")


@pytest.mark.parametrize(
    ("harm", "code"), [("missing", "object_not_found"), ("changed", "hash_mismatch"), ("cut", "hash_mismatch")]
)
@pytest.mark.few(2)
def test_a_sidecar_that_cannot_be_read_fails_the_frame(attached: Attached, lakes: Lakes, harm: str, code: str) -> None:
    """With the code of the error and without a traceback, whatever is asked of the frame; nothing incomplete comes."""
    table = lakes.of(*numbers(2))
    before = set(sidecars(table))
    table.add(*numbers(2))
    (sidecar,) = set(sidecars(table)) - before
    frame = attached.plan(table.name, "b = 1", partitions=2)
    if harm == "missing":
        sidecar.unlink()
    else:
        data = sidecar.read_bytes()
        sidecar.chmod(0o644)
        sidecar.write_bytes(data[:-8] if harm == "cut" else data.replace(b"v000", b"v001"))
    for used in (
        frame,
        frame.select("row_count"),
        frame.where("location LIKE '%none%'"),
        frame.where("verdict = 'ALL'").select("segment_id").distinct(),
        frame.groupBy().count(),
    ):
        with pytest.raises(SparkRuntimeException) as raised:
            used.collect()
        assert f"[lamella.{code}]" in str(raised.value)
        assert "Traceback" not in str(raised.value)
    with pytest.raises(PySparkException, match=code):
        frame.count()


def sidecars(table: LakeTable) -> list[Path]:
    """The sidecars of a table's segments."""
    folder = Path(table.lake.table(table.name).info().location.removeprefix("file://"))
    return sorted((folder / "_sg").glob("*.arrow"))


def test_a_session_of_signed_urls_is_served_by_the_service(
    spark: SparkSession, lake: Lamella, table: LakeTable
) -> None:
    """The same rows, and no task reads the store."""
    expected = attach(spark, fresh("c"), lake).plan(table.name, "a < 350 OR late = 3")
    frame = attach(spark, fresh("c"), lake, signed_urls=True).plan(table.name, "a < 350 OR late = 3")
    assert (by_executors(expected), by_executors(frame)) == (True, False)
    assert sorted(frame.collect(), key=str) == sorted(expected.collect(), key=str)
    assert frame.schema == expected.schema


def test_a_driver_without_access_to_the_store_is_served_by_the_service(
    spark: SparkSession, start_server: StartServer, tmp_path: Path
) -> None:
    """A store that only the service's process can read."""
    server = start_server(warehouse="memory://lake", catalog=tmp_path / "catalog.db")
    with Lamella(server.url) as lake:
        (tmp_path / "t").mkdir()
        lake.create_namespace("db")
        block = tmp_path / "0.parquet"
        pq.write_table(numbers(1)[0], block)
        lake.create_table("db.t", schema_from=str(block))
        made = LakeTable(lake, "db.t", tmp_path / "t").add(*numbers(5))
        frame = attach(spark, fresh("c"), lake).plan("db.t", "a < 250")
        assert not by_executors(frame)
        assert planned(frame) == answered(made, "a < 250")
        assert len(frame.collect()) == 3
