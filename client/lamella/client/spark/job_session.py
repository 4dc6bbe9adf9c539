"""The Spark session of a job that was started from a command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Set by ``spark-submit`` for the Python programs that it starts.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"


def is_submitted() -> bool:
    """Whether ``spark-submit`` started this process, so that there is a cluster to work on."""
    return _SUBMITTED in os.environ


@contextmanager
def job_session(name: str) -> Iterator[SparkSession]:
    """A session as ``spark-submit`` was told to make it, or else one on this machine; it ends with the block."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"lamella {name}")
    if not is_submitted():
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = (
            builder.master("local[*]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.log.level", "WARN")
        )
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
