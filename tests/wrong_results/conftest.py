"""A service, Spark's session, and the catalog through which it is judged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import attach

# The same service and session as the tests of the Spark integration have; fixtures are found by name.
from spark.conftest import lake, lake_url, spark  # noqa: F401
from wrong_results.engines import CATALOG


@pytest.fixture(scope="module")
def judged(spark: SparkSession, lake: Lamella) -> Iterator[Lamella]:  # noqa: F811  # a fixture's name
    """The service, attached as a catalog of its own."""
    attached = attach(spark, CATALOG, lake, mode="catalog")
    yield lake
    attached.detach()
