"""A local Spark session that keeps to itself: no UI, loopback only, its log in a file."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from lamella.client.demo.folder import Folder
from lamella.snapshot.errors import LamellaError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Read by scripts and people who have no Java; `make demo` brings one.
NO_JAVA = "Spark needs Java 17 or newer: set JAVA_HOME, or use `make demo`, which brings one"


@contextmanager
def local_session(folder: Folder) -> Iterator[SparkSession]:
    """A session on all cores of this machine, stopped at the end.

    Raises:
        LamellaError: no Java, or Spark does not start.
    """
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise LamellaError(NO_JAVA)
    # Python workers must run this very Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder.spark_dir.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.master("local[*]").appName("lamella-demo")
    for key, value in _conf(folder).items():
        builder = builder.config(key, value)
    with _stderr_to(folder.spark_log):
        try:
            session = builder.getOrCreate()
        except Exception as error:  # PySpark's own, py4j's or the system's, for a JVM that does not come up
            raise LamellaError(f"Spark does not start: {error}. {NO_JAVA}. Its log: {folder.spark_log}") from error
    try:
        yield session
    finally:
        session.stop()
        shutil.rmtree(folder.spark_dir, ignore_errors=True)


def _conf(folder: Folder) -> Mapping[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.local.dir": str(folder.spark_dir / "local"),
        "spark.sql.warehouse.dir": str(folder.spark_dir / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        # The default of 200 is for clusters.
        "spark.sql.shuffle.partitions": "8",
        # Reading a list of files must not start a job that lists them.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }


@contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """Let a child process that is started here write its stderr to a file: the JVM keeps what it inherits."""
    sys.stderr.flush()
    with file.open("wb") as log:
        saved = os.dup(2)
        try:
            os.dup2(log.fileno(), 2)
            yield
        finally:
            os.dup2(saved, 2)
            with suppress(OSError):
                os.close(saved)
