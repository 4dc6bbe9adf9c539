"""Spark on a Lamella service: a catalog for SQL, a writer, and reads over Spark Connect.

::

    from lamella.client import spark as lamella_spark

    lamella_spark.attach(spark, "lake", "http://127.0.0.1:8181")
    spark.sql("SELECT count(*) FROM lake.db.events WHERE event_date = DATE '2024-05-01'").show()

    lamella_spark.write(frame, "db.events", cluster_by=["event_date"], url="http://127.0.0.1:8181")

Names are loaded on first use, so that executors can import modules of this package without the driver's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lamella.client.spark.attachment import Attached, LamellaSparkWarning, attach
    from lamella.client.spark.engine import delete
    from lamella.client.spark.index_job import BuildProgress, BuildResult, build_index
    from lamella.client.spark.merge_job import Merge, MergeResult, merge, update
    from lamella.client.spark.reader import read
    from lamella.client.spark.streaming import append_batches, write_stream
    from lamella.client.spark.writer import write
    from lamella.client.write.layout import WriteResult

_HOMES = {
    "Attached": "attachment",
    "BuildProgress": "index_job",
    "BuildResult": "index_job",
    "LamellaSparkWarning": "attachment",
    "Merge": "merge_job",
    "MergeResult": "merge_job",
    "WriteResult": "writer",
    "append_batches": "streaming",
    "attach": "attachment",
    "build_index": "index_job",
    "delete": "engine",
    "merge": "merge_job",
    "read": "reader",
    "update": "merge_job",
    "write": "writer",
    "write_stream": "streaming",
}

__all__ = [
    "Attached",
    "BuildProgress",
    "BuildResult",
    "LamellaSparkWarning",
    "Merge",
    "MergeResult",
    "WriteResult",
    "append_batches",
    "attach",
    "build_index",
    "delete",
    "merge",
    "read",
    "update",
    "write",
    "write_stream",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
