"""Pages about asking and reading."""

from __future__ import annotations

import json
import tomllib
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq

from docs.scene import as_type, nothing, scene
from docs.scenes.rows import events, now_and_then, orders
from docs.stage import Stage
from lamella.client.http.profiles import PROFILES_FILE, profile_of
from lamella.snapshot.expression import read_tree
from lamella.snapshot.wire import BlockRanges, PrunedBlock, PruneRatesAnswer, PruneRequest


def _with_lake(stage: Stage) -> None:
    stage.names["lake"] = stage.lake


@scene(
    "docs/prune.md",
    data=[as_type(PruneRequest), as_type(PruneRequest), as_type(dict[str, BlockRanges]), as_type(PruneRatesAnswer)],
)
def prune(stage: Stage) -> None:
    """Orders, and the small side of a join."""
    stage.table("shop.orders", orders())
    stage.names["small_side"] = [SimpleNamespace(id=n) for n in (3, 17)]


@scene("docs/reader-features.md", data=[as_type(PrunedBlock), as_type(PrunedBlock)])
def reader_features(stage: Stage) -> None:
    """Files below folders that name a column."""
    folder = stage.folder / "data" / "events"
    for year in (2023, 2024):
        (folder / f"year={year}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [year]}), folder / f"year={year}" / "0.parquet")
    stage.namespace("sales")
    stage.lake.create_table("sales.events", schema_from=f"{folder}/")
    stage.lake.table("sales.events").register([f"{folder}/"])
    _with_lake(stage)


@scene("docs/pages.md", data=[as_type(PrunedBlock)])
def pages(stage: Stage) -> None:
    """A table whose files have page indexes."""
    path = stage.folder / "data" / "t.parquet"
    path.parent.mkdir()
    count = 30_000
    names = [f"name {n}" for n in range(count)]
    rows = pa.table({"id": range(count), "name": names, "a": range(count), "b": names})
    pq.write_table(rows, path, write_page_index=True, data_page_size=4_096, use_dictionary=False)
    stage.namespace("db")
    stage.lake.create_table("db.t", schema_from=f"file://{path}")
    stage.lake.table("db.t").register([f"file://{path}"])


@scene("docs/filters.md", data=[lambda _stage, text: read_tree(json.loads(text))])
def filters(stage: Stage) -> None:
    """Nothing is asked."""
    nothing(stage)


@scene("docs/aggregate.md")
def aggregate(stage: Stage) -> None:
    """Events, each file those of one day and region."""
    count = 400
    stage.table("db.events", {**events(count), "region": [("eu", "us")[n % 20 // 10] for n in range(count)]}, count=40)
    _with_lake(stage)


@scene("docs/scan.md")
def scan(stage: Stage) -> None:
    """Orders with a struct."""
    stage.table("shop.orders", orders())


@scene("docs/engines.md")
def engines(stage: Stage) -> None:
    """Orders with a struct."""
    stage.table("shop.orders", orders())


def _profiles(stage: Stage, text: str) -> None:
    """Each table is a profile, with a token file beside the file."""
    path = stage.folder / "profiles.toml"
    path.write_text(text, "utf-8")
    found = [profile_of(name, {PROFILES_FILE: str(path)}) for name in tomllib.loads(text)]
    assert [service.token_file for service in found if service] == [None, stage.folder / "production.key"]


@scene("docs/python.md", data=[_profiles])
def python(stage: Stage) -> None:
    """Orders with a struct."""
    stage.table("shop.orders", orders())


@scene("docs/write.md")
def write(stage: Stage) -> None:
    """Orders with fewer columns, and files with more events."""
    columns = orders()
    stage.table("shop.orders", {name: columns[name] for name in ("id", "country", "amount")})
    stage.files("parts", {"id": [5], "at": pa.array([0], pa.timestamp("us", "UTC")), "tags": [["d"]]})


@scene("docs/transactions.md")
def transactions(stage: Stage) -> None:
    """Orders, and how many of them each country has."""
    stage.table("shop.orders", {"id": [1, 2, 3], "country": ["DE", "US", "DE"], "amount": ["1.50", "2.50", "3.50"]})
    stage.table("shop.totals", {"country": ["DE", "US"], "orders": [2, 1]})


@scene("docs/branches.md")
def branches(stage: Stage) -> None:
    """Orders; no amount is missing."""
    stage.table("shop.orders", {"id": [1, 2, 3], "country": ["DE", "US", "DE"], "amount": ["1.50", "2.50", "3.50"]})
    _with_lake(stage)


@scene("docs/history.md")
def history(stage: Stage) -> None:
    """Orders with some history; the tag's time is now."""
    stage.table("shop.orders", orders())
    now_and_then(stage, "2026-04-01T00:00Z")
    _with_lake(stage)


@scene("docs/advice.md")
def advice(stage: Stage) -> None:
    """Events, enough of them for an index within a hundredth of their bytes."""
    stage.table("db.events", events(20_000))
    _with_lake(stage)


@scene("docs/feedback.md", settings=lambda _folder: {"feedback": "true"})
def feedback(stage: Stage) -> None:
    """Devices, at a service that takes feedback."""
    rows = {"device": [f"x-{n}" for n in range(100)], "error": [f"no {n}" for n in range(100)]}
    stage.names["table"] = stage.table("db.devices", rows)


@scene("docs/statistics.md")
def statistics(stage: Stage) -> None:
    """Files from elsewhere, for two tables."""
    stage.files("from-elsewhere", {"a": list(range(100))})
    stage.names["table"] = stage.table("db.other", {"a": list(range(10))})
    stage.lake.create_table("db.t", schema_from=f"file://{stage.folder}/data/from-elsewhere/part-0.parquet")


@scene("docs/troubleshooting.md")
def troubleshooting(stage: Stage) -> None:
    """A file with nanoseconds, registered."""
    folder = stage.files("clicks", {"id": [1, 2], "ts": pa.array([1_000, 2_000], pa.timestamp("ns", "UTC"))}, count=1)
    stage.namespace("shop")
    stage.lake.create_table("shop.clicks", schema_from=f"file://{folder}/")
    stage.lake.table("shop.clicks").register([f"file://{folder}/"])
    stage.names["lake"] = stage.lake
