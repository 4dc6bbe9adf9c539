"""Pages whose blocks use Spark from the first to the last."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from docs.scene import drawing, scene
from docs.scenes.rows import events
from docs.stage import Stage
from lamella.client.spark import attach


def _plan(stage: Stage, text: str) -> None:
    """The line of a plan is what EXPLAIN says of such a query."""
    spark = stage.names["spark"]
    query = "SELECT * FROM lake.db.events WHERE event_id >= 7 AND event_id <= 9"
    plan = spark.sql(f"EXPLAIN {query}").collect()[0][0]
    line = next(each for each in plan.splitlines() if "Lamella" in each)
    shown = re.match(r"BatchScan lake\.db\.events\[.*\] Lamella db\.events@\S+ blocks=\d+/\d+ filter=\[", text)
    assert shown, text
    assert re.search(r"BatchScan lake\.db\.events\[.*\] Lamella db\.events@\S+ blocks=\d+/\d+ filter=\[", line), line


def stop_streams(spark: Any) -> None:
    """Let streams take what is there, and end them; their failures are ours."""
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


@scene("docs/spark.md", spark=True, texts=[_plan, drawing])
def spark_page(stage: Stage) -> None:
    """Events with a tag, a stream of more, users and changes of them, and times and ids of the examples."""
    spark = stage.names["spark"]
    table = stage.table("db.events", events())
    table.tag("nightly")
    (stage.work / "etl.key").write_text("asked-for-by-nobody-here")
    stage.swaps["01a1fd3a-a3bb-7c8a-be00-8c70114c4023"] = table.info().snapshot_id
    stage.swaps["2024-05-01 12:00:00"] = datetime.now(ZoneInfo("Europe/Berlin")).strftime("%Y-%m-%d %H:%M:%S.%f")
    files = str(stage.files("more", events(50), count=1))
    frame = spark.read.parquet(files)
    stage.names |= {"frame": frame, "events": spark.readStream.schema(frame.schema).parquet(files)}
    stage.table("db.users", {"id": list(range(20)), "name": [f"u{n}" for n in range(20)]})
    spark.range(5).selectExpr("id", "'new' AS name", "id AS score").createOrReplaceTempView("updates")
    stage.clean_up.append(lambda: stop_streams(spark))


@scene("docs/rewriting.md", spark=True)
def rewriting(stage: Stage) -> None:
    """Events, users, and changes of users."""
    stage.table("db.events", events(), count=6)
    spark = stage.names["spark"]
    attach(spark, "lake", stage.lake)
    stage.table("db.users", {"id": list(range(20)), "name": [f"u{n}" for n in range(20)], "seen": [0] * 20})
    stage.names["changes"] = spark.createDataFrame(
        [(3, "new", 0, False), (4, "old", 0, True)], "id bigint, name string, seen bigint, gone boolean"
    )


@scene("README.md", spark=True, starts_service=True)
def readme(stage: Stage) -> None:
    """Files to register, and frames to write."""
    stage.files("events", events())
    (stage.folder / "data" / "lake").mkdir()
    stage.swaps["TIMESTAMP AS OF '2026-01-01'"] = "TIMESTAMP AS OF '2100-01-01'"
    frame = stage.names["spark"].read.parquet(str(stage.folder / "data" / "events"))
    frame.createOrReplaceTempView("new_events")
    stage.names["frame"] = frame
