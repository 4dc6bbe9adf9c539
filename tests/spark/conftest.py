"""One service and one Spark session for all tests of the Spark integration."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures_server import ServerProcess, environment_of
from lamella.client.http import Lamella
from lamella.client.spark import Attached, attach
from spark.lakes import CATALOG, Faults, Lakes


@pytest.fixture(scope="session")
def lake_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with SQLite and a local warehouse."""
    folder = tmp_path_factory.mktemp("service")
    server = ServerProcess(environment_of({"warehouse": folder / "warehouse"}), folder)
    yield server.wait_ready().url
    server.stop()


@pytest.fixture(scope="session")
def lake(lake_url: str) -> Iterator[Lamella]:
    """Its client."""
    with Lamella(lake_url) as client:
        yield client


def python_without_spaces(folder: Path) -> str:
    """This Python, by a link to its environment if its path has a space: Spark would look for no data source then."""
    if " " not in sys.executable:
        return sys.executable
    environment = folder / "environment"
    environment.symlink_to(sys.prefix)
    return str(environment / Path(sys.executable).relative_to(sys.prefix))


@pytest.fixture(scope="session")
def spark(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session. Its time zone has daylight saving time, and differs from the machine's."""
    assert java_home
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = python_without_spaces(folder)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("lamella-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        # What Spark keeps of finished queries for a user interface that is off: thousands of queries fill the memory.
        .config("spark.sql.ui.retainedExecutions", "10")
        .config("spark.ui.retainedJobs", "10")
        .config("spark.ui.retainedStages", "10")
        .config("spark.ui.retainedTasks", "100")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "Europe/Berlin")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def attached(spark: SparkSession, lake: Lamella) -> Attached:
    """The service as the catalog ``lake``."""
    return attach(spark, CATALOG, lake)


@pytest.fixture(scope="session")
def lakes(attached: Attached, lake: Lamella, tmp_path_factory: pytest.TempPathFactory) -> Lakes:
    """Makes tables that SQL knows as ``lake.<namespace>.t``."""
    assert attached.mode == "catalog", attached.reason
    return Lakes(lake, tmp_path_factory.mktemp("tables"))


@pytest.fixture
def faults(lake_url: str) -> Iterator[Faults]:
    """Clients of the service that fail on purpose."""
    made = Faults(lake_url)
    yield made
    made.close()
