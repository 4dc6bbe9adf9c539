"""The compared tables. Each is made from the same files, by its own means, without rewriting them."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import pyspark
from pyspark.sql import SparkSession
from speed.environments import DELTA_JAR, ICEBERG_JAR

from lamella.client import Lamella
from lamella.client.spark import attach
from onspark.blocks import COLUMNS

#: The peers that have jars for a version of Spark.
JARS: Final = {
    "4.1": {"delta": DELTA_JAR, "iceberg": ICEBERG_JAR},
    "4.2": {"delta": "io.delta:delta-spark_4.2_2.13:4.4.0"},
}
_REGISTERED_AT_ONCE: Final = 2_000


class Engine(Protocol):
    """``name``: as in the results. ``reads_all``: it opens every file for every query, so it is measured once."""

    name: str
    reads_all: bool

    def make(self, spark: SparkSession, folder: Path) -> None:
        """Make the table of the files in ``folder``."""

    def open(self, spark: SparkSession, folder: Path) -> None:
        """Let a session read the table that was made."""

    def table(self) -> str:
        """Return the text after ``FROM`` in the next query."""

    def files(self, leaf: Any) -> int:
        """Return how many files a scan of a physical plan reads."""


def jars_here() -> dict[str, str]:
    """Return the jars for the Spark of this environment, by peer."""
    version = pyspark.__version__.rpartition(".")[0]
    if version not in JARS:
        raise SystemExit(f"no peer has jars for Spark {version}; use {' or '.join(JARS)}")
    return JARS[version]


def settings(folder: Path, ivy: Path, peers: Sequence[str] | None = None) -> dict[str, str]:
    """Return the session settings that any of the peers needs; the same for all.

    ``ivy``: where jars are kept. ``peers``: by default all that this environment has jars for.
    """
    jars = {name: jar for name, jar in jars_here().items() if peers is None or name in peers}
    found = {"spark.jars.packages": ",".join(jars.values()), "spark.jars.ivy": str(ivy)}
    extensions = []
    if "delta" in jars:
        extensions.append("io.delta.sql.DeltaSparkSessionExtension")
        found["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    if "iceberg" in jars:
        extensions.append("org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        found["spark.sql.catalog.ice"] = "org.apache.iceberg.spark.SparkCatalog"
        found["spark.sql.catalog.ice.type"] = "hadoop"
        found["spark.sql.catalog.ice.warehouse"] = f"file://{folder}/iceberg"
    return {**found, "spark.sql.extensions": ",".join(extensions)}


class LamellaTable:
    """Registered with a service; read through ``attach``."""

    name = "lamella"
    reads_all = False

    def __init__(self, url: str) -> None:
        self._url = url

    def make(self, spark: SparkSession, folder: Path) -> None:  # noqa: ARG002  # as of Engine
        with Lamella(self._url, timeout_s=600) as lake:
            paths = sorted(str(path) for path in folder.glob("*.parquet"))
            lake.create_namespace("bench")
            lake.create_table("bench.t", schema_from=paths[0], cluster_key=["id"])
            for start in range(0, len(paths), _REGISTERED_AT_ONCE):
                lake.table("bench.t").register(paths[start : start + _REGISTERED_AT_ONCE], strict=True)

    def open(self, spark: SparkSession, folder: Path) -> None:  # noqa: ARG002  # as of Engine
        attach(spark, "lake", self._url, aggregates=False)  # which files are read is compared

    def table(self) -> str:
        return "lake.bench.t"

    def files(self, leaf: Any) -> int:
        found = re.search(r"blocks=(\d+)/", leaf.scan().description())
        assert found is not None
        return int(found[1])


class DeltaTable:
    """``CONVERT TO DELTA``, which gathers statistics and leaves a checkpoint. Read by its path."""

    name = "delta"
    reads_all = False

    def make(self, spark: SparkSession, folder: Path) -> None:
        spark.sql(f"CONVERT TO DELTA parquet.`file://{folder}`")

    def open(self, spark: SparkSession, folder: Path) -> None:  # noqa: ARG002  # as of Engine
        self._path = f"delta.`file://{folder}`"

    def table(self) -> str:
        return self._path

    def files(self, leaf: Any) -> int:
        return _metric(leaf, "numFiles")


class IcebergTable:
    """``add_files`` into a table of a Hadoop catalog."""

    name = "iceberg"
    reads_all = False

    def make(self, spark: SparkSession, folder: Path) -> None:
        columns = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
        spark.sql(f"CREATE TABLE ice.bench.t ({columns}) USING iceberg")
        spark.sql(f"CALL ice.system.add_files(table => 'bench.t', source_table => '`parquet`.`file://{folder}`')")

    def open(self, spark: SparkSession, folder: Path) -> None:
        pass

    def table(self) -> str:
        return "ice.bench.t"

    def files(self, leaf: Any) -> int:
        reported = leaf.scan().reportDriverMetrics()
        return int(next(each.value() for each in reported if each.name() == "resultDataFiles"))


class PlainFolder:
    """``spark.read.parquet``. Either for each query, or once, as a view with a cached listing."""

    reads_all = True

    def __init__(self, *, is_listed_once: bool) -> None:
        self.name = "parquet, listed once" if is_listed_once else "parquet"
        self._is_listed_once = is_listed_once

    def make(self, spark: SparkSession, folder: Path) -> None:
        pass

    def open(self, spark: SparkSession, folder: Path) -> None:
        self._folder = f"file://{folder}"
        if self._is_listed_once:
            spark.read.parquet(self._folder).createOrReplaceTempView("listed")

    def table(self) -> str:
        return "listed" if self._is_listed_once else f"parquet.`{self._folder}`"

    def files(self, leaf: Any) -> int:
        return _metric(leaf, "numFiles")


def made(engines: list[Engine], spark: SparkSession, folder: Path) -> dict[str, float]:
    """Return the seconds it took to make each table; from an earlier run if it exists already."""
    note = folder.with_name("made.json")
    found: dict[str, float] = json.loads(note.read_text()) if note.exists() else {}
    for engine in engines:
        if engine.name not in found:
            print(f"making the table of {engine.name}", file=sys.stderr, flush=True)
            started = time.perf_counter()
            engine.make(spark, folder)
            found[engine.name] = round(time.perf_counter() - started, 1)
            note.write_text(json.dumps(found))
        engine.open(spark, folder)
    return found


def _metric(leaf: Any, name: str) -> int:
    return int(leaf.metrics().apply(name).value())
