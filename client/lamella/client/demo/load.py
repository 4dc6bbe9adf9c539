"""The demo's tables in Lamella: written by Spark through ``lamella.client.spark.write``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lamella.client.demo.folder import Folder, Loaded
from lamella.client.demo.progress import Steps
from lamella.client.http import Lamella
from lamella.client.spark import write
from lamella.snapshot.errors import AlreadyExists, NotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE: Final = "tpch"

#: Cluster key and number of blocks of each table.
LAYOUTS: Final = {"lineitem": ("l_shipdate", 240), "orders": ("o_orderdate", 60)}


def is_whole(lake: Lamella, loaded: Loaded | None) -> bool:
    """True when the service still has what an earlier run loaded."""
    if loaded is None:
        return False
    try:
        return all(
            lake.table(f"{NAMESPACE}.{name}").info().row_count == loaded.row_counts.get(name) for name in LAYOUTS
        )
    except NotFound:
        return False


def load(spark: SparkSession, lake: Lamella, folder: Folder, scale: float, steps: Steps) -> None:
    """Write both tables; the folder is marked when they are whole."""
    with suppress(AlreadyExists):
        lake.create_namespace(NAMESPACE)
    row_counts = {}
    for name, (key, blocks) in LAYOUTS.items():
        frame = spark.read.parquet(str(folder.source(scale) / f"{name}.parquet"))
        row_counts[name] = frame.count()
        with steps.step(f"Spark writes {name}, {row_counts[name]:,} rows by {key}", spark=spark.sparkContext):
            write(
                frame,
                f"{NAMESPACE}.{name}",
                cluster_by=[key],
                client=lake,
                target_block_rows=max(1, row_counts[name] // blocks),
            )
    folder.mark_loaded(Loaded(scale, row_counts))
