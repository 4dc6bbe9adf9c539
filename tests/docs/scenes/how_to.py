"""The pages that have one task each."""

from __future__ import annotations

import pyarrow as pa
from deltalake import write_deltalake

from docs.scene import as_type, scene
from docs.scenes.access import with_root_key
from docs.scenes.data_access import data_access
from docs.scenes.rows import line_items, now_and_then, orders
from docs.scenes.upkeep import iceberg_settings, make_iceberg_items
from docs.stage import Stage
from lamella.client.spark import attach
from lamella.snapshot.wire import ArrivalsRequest


def _orders(stage: Stage, *, cluster: tuple[str, ...] = ()) -> None:
    stage.table("sales.orders", orders(), cluster=cluster)
    stage.names["lake"] = stage.lake


@scene("docs/how-to/load.md")
def load(stage: Stage) -> None:
    """Two folders of files."""
    stage.files("orders", orders())
    stage.files("returns", orders(200))


@scene("docs/arrivals.md", data=[as_type(ArrivalsRequest), as_type(ArrivalsRequest)])
def arrivals(stage: Stage) -> None:
    """A folder of files."""
    stage.files("landing", orders(), count=4)
    stage.names["lake"] = stage.lake


@scene("docs/how-to/follow.md", settings=iceberg_settings)
def follow(stage: Stage) -> None:
    """A folder, a Delta table and an Iceberg table."""
    stage.files("landing", line_items(200))
    write_deltalake(str(stage.folder / "data" / "orders"), pa.table({"id": list(range(100))}))
    make_iceberg_items(stage)


@scene("docs/how-to/write.md", spark=True)
def write(stage: Stage) -> None:
    """Frames of orders."""
    spark = stage.names["spark"]
    stage.namespace("sales")
    frame = spark.read.parquet(str(stage.files("orders", orders())))
    frame.createOrReplaceTempView("new_orders")
    stage.names["frame"] = frame


@scene("docs/how-to/change-rows.md", spark=True)
def change_rows(stage: Stage) -> None:
    """Orders, and a frame of changes."""
    spark = stage.names["spark"]
    _orders(stage)
    attach(spark, "lake", stage.lake)
    stage.names["changes"] = spark.createDataFrame(
        [(700, 1, False), (701, 2, True)], "id bigint, amount bigint, gone boolean"
    )


@scene("docs/how-to/cluster.md")
def cluster(stage: Stage) -> None:
    """Orders that are laid out by day."""
    _orders(stage, cluster=("day",))


@scene("docs/clustering.md")
def clustering(stage: Stage) -> None:
    """Orders."""
    _orders(stage)


@scene("docs/how-to/index-a-column.md")
def index(stage: Stage) -> None:
    """Orders."""
    _orders(stage)


@scene("docs/how-to/why.md")
def why(stage: Stage) -> None:
    """Orders."""
    _orders(stage)


@scene("docs/how-to/upkeep.md")
def upkeep(stage: Stage) -> None:
    """Orders in many files."""
    stage.table("sales.orders", orders(), count=6)


@scene("docs/how-to/back-in-time.md")
def back_in_time(stage: Stage) -> None:
    """Orders, and more of them to import; the time on the page is now."""
    _orders(stage)
    stage.files("import", orders(100), count=1)
    now_and_then(stage, "2026-01-31T12:00Z")


@scene("docs/how-to/clean-up.md")
def clean_up(stage: Stage) -> None:
    """Orders."""
    _orders(stage)


@scene("docs/how-to/verify.md")
def verify(stage: Stage) -> None:
    """Orders."""
    _orders(stage)


@scene("docs/how-to/access.md", settings=with_root_key)
def access(stage: Stage) -> None:
    """Orders, at a service that asks for keys; the shell has that of an admin."""
    stage.become_root()
    _orders(stage)


@scene("docs/how-to/signed-urls.md", starts_service=True)
def signed_urls(stage: Stage) -> None:
    """Orders in a bucket, and a service that knows its keys; readers do not."""
    data_access(stage)
    catalog = f"sqlite:///{stage.folder}/catalog.db"
    stage.start(["lamella", "serve", "--warehouse", "s3://lake/warehouse", "--catalog", catalog])
    stage.namespace("sales")
    stage.lake.create_table("sales.orders", schema_from="s3://sales/exports/2026/part-0.parquet")
    stage.lake.table("sales.orders").register(["s3://sales/exports/2026"])


@scene("docs/how-to/back-up.md")
def back_up(stage: Stage) -> None:
    """Orders."""
    _orders(stage)
